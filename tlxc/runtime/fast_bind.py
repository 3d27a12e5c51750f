"""The generated part of a launch: one Python function per kernel, from arguments to the launcher that fits them.

Per argument it computes a token (see `tokens`) and the value to pass; the tokens find a plan, which is called.  It
refuses nothing: whatever is wrong or new leads to a key without a plan, and then `Host.slow` looks at the same
arguments again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

from tlxc.frontend.signature import Argument
from tlxc.frontend.source import MISSING, Parameter
from tlxc.ir import types as ir
from tlxc.runtime import tokens
from tlxc.runtime.descriptor import as_descriptor
from tlxc.runtime.launcher import Ready
from tlxc.runtime.streams import handle_of

OPTIONS = ("num_warps", "num_stages", "maxnreg", "ctas_per_cga", "launch_pdl", "stream")
MIXED = -3  # stands for the device where arrays are on several

Key = tuple[Any, ...]  # a token for each parameter, num_warps or a tuple of options, device


@dataclass(frozen=True)
class Given:
    """The arguments of a call: by name, `MISSING` for those that were not given; what no parameter takes."""

    named: dict[str, Any]
    surplus: tuple[Any, ...]
    unknown: Mapping[str, Any]


class Plan:
    """A launch that lacks nothing but its values; `stream` gives the stream on a device."""

    __slots__ = ("ready", "launch", "stream", "compiled")

    def __init__(self, ready: Ready, stream: Callable[[int], int], compiled: Any) -> None:
        self.ready, self.launch, self.stream, self.compiled = ready, ready.launcher(), stream, compiled


class State(Protocol):
    """Plans, and the constants that the kernel was compiled with as (look, where, value): `look(where)` must still give
    that very object."""

    plans: dict[Key, Plan]
    checks: tuple[tuple[Callable[[Any], Any], Any, Any], ...]


class Host(Protocol):
    """The kernel, as the generated function uses it; `state` is what launches use at present."""

    @property
    def state(self) -> State: ...

    def renew(self) -> State:
        """The state for constants one of which is another object now."""

    def slow(self, grid: Any, key: Key, given: Given, values: tuple[Any, ...]) -> Any:
        """Launches what the generated function could not, or says what is wrong."""

    def refuse(self, status: int) -> Exception:
        """The error for a status of the driver."""


# {p}: prefix that no parameter has; {n}: the parameter; {i}: its number
_RUNTIME = """\
    {p}c = {n}.__class__
    if {p}c in {p}arrays:
        {p}v{i} = {n}.data_ptr()
        {p}k{i} = {array}
        {p}d = {n}.get_device()
        if {p}d != {p}device:
            {p}device = {p}d if {p}device is None else {mixed}
    elif {p}c is int:
        {p}v{i} = {n}
        {p}k{i} = {integer}
    elif {p}c is float:
        {p}v{i} = {n}
        {p}k{i} = {p}FLOAT
    else:
        {p}k{i}, {p}v{i}, {p}d = {p}scan({n}, {p}declared{i})
        if {p}d is not None and {p}d != {p}device:
            {p}device = {p}d if {p}device is None else {mixed}
"""
_ARRAY = "{p}odd[{n}.dtype] if {p}v{i} & {mask} else {n}.dtype"
_ARRAY_PLAIN = "{n}.dtype"
_INTEGER = "{p}integers[{n}]"
_INTEGER_PLAIN = "{p}plain_integers[{n}]"
_INTEGER_RANGED = "{p}ranged({n}, {p}declared{i})"
_AS_DESCRIPTOR = "    {n} = {p}as_descriptor({n}, {p}declared{i}, {p}where{i})\n"
_CONSTANT = "    {p}k{i} = {n} if {n}.__class__ in {p}exact else {p}constant({n})\n"
_LAUNCH = """\
def launch({p}grid, {head}):
    {p}state = {p}host.state
    for {p}look, {p}where, {p}value in {p}state.checks:
        if {p}look({p}where) is not {p}value:
            {p}state = {p}host.renew()
            break
    {p}device = None
{mapped}\
{body}\
    if {p}device is None:
        {p}device = {p}current()
    {p}plain = maxnreg is None and ctas_per_cga is None and launch_pdl is False
    {p}options = (num_warps, maxnreg, ctas_per_cga, launch_pdl.__class__, launch_pdl)
    {p}key = ({key}num_warps if {p}plain else {p}options, {p}device)
    try:
        {p}plan = {p}state.plans[{p}key]
    except (KeyError, TypeError):
        {p}plan = None
    if {p}plan is not None and {p}grid.__class__ is tuple and not {p}surplus and not {p}unknown:
        {p}queue = {p}plan.stream({p}device) if stream is None else {p}handle_of(stream)
        {p}status = {p}plan.launch({p}grid, {p}queue, {values})
        if not {p}status:
            return {p}plan.compiled
        if {p}status > 0:
            raise {p}host.refuse({p}status)
    return {p}host.slow({p}grid, {p}key, {p}Given({{{named}}}, {p}surplus, {p}unknown), ({values}))

def given({head}):
{mapped}\
    return {p}Given({{{named}}}, {p}surplus, {p}unknown)
"""
# Constants of these classes are equal only where they are the same, given that the class is in the key as well.
EXACT = frozenset({int, bool, str, type(None), ir.DType})


def generate(
    host: Host,
    name: str,
    parameters: Sequence[Parameter],
    declared: Mapping[str, Argument | None],
    plain: Set[str],
    options: Mapping[str, Any],
) -> tuple[Callable[..., Any], Callable[..., Given]]:
    """The functions `launch(grid, *args, **options)` and `given(*args, **options)`.

    `plain` names parameters that are not specialised; `options` holds the default of each of OPTIONS.
    """
    prefix = "_"
    while any(p.name.startswith(prefix) for p in parameters):
        prefix += "_"
    text = _text(prefix, parameters, declared, plain)
    namespace = _namespace(prefix, host, name, parameters, declared, options)
    exec(compile(text, f"<launch of {name}>", "exec"), namespace)
    for function in (namespace["launch"], namespace["given"]):
        function.__name__ = function.__qualname__ = name  # Python names it where an argument is given twice
    return namespace["launch"], namespace["given"]


def _namespace(
    prefix: str,
    host: Host,
    name: str,
    parameters: Sequence[Parameter],
    declared: Mapping[str, Argument | None],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    scan = tokens.Scanner()
    values: dict[str, Any] = {
        "host": host, "Given": Given, "MISSING": MISSING, "current": current_device, "exact": EXACT, "scan": scan,
        "arrays": scan.arrays, "odd": scan.odd, "integers": tokens.IntegerTokens(plain=False),
        "plain_integers": tokens.IntegerTokens(plain=True), "ranged": tokens.ranged_token,
        "as_descriptor": as_descriptor, "handle_of": handle_of,
        "constant": tokens.constant_token, "FLOAT": tokens.FLOAT,
    }  # fmt: skip
    for i, parameter in enumerate(parameters):
        values[f"default{i}"] = parameter.default
        values[f"declared{i}"] = declared[parameter.name]
        values[f"where{i}"] = f"{name}: argument `{parameter.name}`"
    values |= {name: options[name] for name in OPTIONS}
    return {prefix + name: value for name, value in values.items()}


def _text(p: str, parameters: Sequence[Parameter], declared: Mapping[str, Argument | None], plain: Set[str]) -> str:
    heads = [f"{parameter.name}={p}default{i}" for i, parameter in enumerate(parameters)]
    positional = sum(not parameter.keyword_only for parameter in parameters)
    heads.insert(positional, f"*{p}surplus")
    key = "".join(
        f"{parameter.name}.__class__, {p}k{i}, " if parameter.constexpr else f"{p}k{i}, "
        for i, parameter in enumerate(parameters)
    )
    named = [*(q.name for q in parameters), *OPTIONS]
    return _LAUNCH.format(
        p=p,
        head=", ".join([*heads, *(f"{name}={p}{name}" for name in OPTIONS), f"**{p}unknown"]),
        body="".join(_parameter_text(p, i, q, declared[q.name], q.name in plain) for i, q in enumerate(parameters)),
        key=key,
        mapped="".join(
            _AS_DESCRIPTOR.format(p=p, n=parameter.name, i=i)
            for i, parameter in enumerate(parameters)
            if (argument := declared[parameter.name]) and isinstance(argument.type, ir.Descriptor)
        ),
        values="".join(f"{p}v{i}, " for i, parameter in enumerate(parameters) if not parameter.constexpr),
        named=", ".join(f"'{name}': {name}" for name in named),
    )


def _parameter_text(p: str, i: int, parameter: Parameter, declared: Argument | None, plain: bool) -> str:
    promised = declared.align if declared else 0
    slots = {"p": p, "n": parameter.name, "i": i, "mask": max(tokens.ALIGN, promised) - 1}
    if parameter.constexpr:
        return _CONSTANT.format(**slots)
    integer = _INTEGER_RANGED if tokens.needs_range(declared) else _INTEGER_PLAIN if plain else _INTEGER
    array = _ARRAY_PLAIN if plain and not promised else _ARRAY
    return _RUNTIME.format(**slots, mixed=MIXED, array=array.format(**slots), integer=integer.format(**slots))


def current_device() -> int:
    """The device of a launch without arrays: torch's current one, or that of the thread's context."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return int(torch.cuda.current_device())
    from tlxc.runtime import cuda

    return cuda.current_device()
