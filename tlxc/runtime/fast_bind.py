"""The generated part of argument binding: one Python function per kernel that turns arguments into a key and values.

Per argument it computes a token (see `tokens`) and the value to pass.  It refuses nothing: whatever is wrong leads to a
key that no launch has, and then `bind.Binder.resolve` looks at the same arguments again, slowly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from tlxc.frontend.signature import Argument
from tlxc.frontend.source import MISSING, Parameter
from tlxc.ir import types as ir
from tlxc.runtime import tokens

OPTIONS = ("num_warps", "num_stages")
MIXED = -3  # stands for the device where arrays are on several

# (key, values to pass); the key ends with num_warps and the device
Bind = Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]]

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
_INTEGER = (
    "{p}ONE if {n} == 1 else ({p}I32 if {n} & 15 else {p}I32_16) if -2147483648 <= {n} <= 2147483647 else {p}wide({n})"
)
_INTEGER_PLAIN = "{p}I32 if -2147483648 <= {n} <= 2147483647 else {p}wide_plain({n})"
_INTEGER_RANGED = "{p}ranged({n}, {p}declared{i})"
_CONSTANT = "    {p}k{i} = {n} if {n}.__class__ in {p}exact else {p}constant({n})\n"
_BIND = """\
def bind({head}):
    {p}device = None
{body}\
    if {p}device is None:
        {p}device = {p}current()
    return ({key}num_warps, {p}device), ({values})

def names({head}):
    return {{{named}}}
"""
# Constants of these classes are equal only where they are the same, given that the class is in the key as well.
_EXACT = frozenset({int, bool, str, type(None), ir.DType})


def generate(
    name: str,
    parameters: Sequence[Parameter],
    declared: Mapping[str, Argument | None],
    plain: Set[str],
    num_warps: int,
) -> tuple[Bind, Callable[..., dict[str, Any]]]:
    """The function `bind(*args, **options)`, and `names`, which takes the same and gives all arguments by name.

    `plain` names parameters that are not specialised; `num_warps` is that option's default.
    """
    prefix = "_"
    while any(p.name.startswith(prefix) for p in parameters):
        prefix += "_"
    text = _text(prefix, parameters, declared, plain, num_warps)
    namespace = _namespace(prefix, parameters, declared)
    exec(compile(text, f"<arguments of {name}>", "exec"), namespace)
    return namespace["bind"], namespace["names"]


def _namespace(prefix: str, parameters: Sequence[Parameter], declared: Mapping[str, Argument | None]) -> dict[str, Any]:
    scan = tokens.Scanner()
    values: dict[str, Any] = {
        "scan": scan, "arrays": scan.arrays, "odd": scan.odd, "exact": _EXACT, "current": current_device,
        "wide": tokens.wide_token, "wide_plain": tokens.wide_plain_token, "ranged": tokens.ranged_token,
        "constant": tokens.constant_token, "ONE": tokens.ONE, "I32": tokens.INT32, "I32_16": tokens.INT32_16,
        "FLOAT": tokens.FLOAT,
    }  # fmt: skip
    for i, parameter in enumerate(parameters):
        values[f"default{i}"] = parameter.default
        values[f"declared{i}"] = declared[parameter.name]
    return {prefix + name: value for name, value in values.items()}


def _text(
    p: str, parameters: Sequence[Parameter], declared: Mapping[str, Argument | None], plain: Set[str], num_warps: int
) -> str:
    head, key, values = [], [], []
    for i, parameter in enumerate(parameters):
        if parameter.keyword_only and "*" not in head:
            head.append("*")
        head.append(parameter.name + (f"={p}default{i}" if parameter.default is not MISSING else ""))
        key.append(f"{parameter.name}.__class__, {p}k{i}, " if parameter.constexpr else f"{p}k{i}, ")
        values += [] if parameter.constexpr else [f"{p}v{i}, "]
    head += [*([] if "*" in head else ["*"]), f"num_warps={num_warps}", "num_stages=None"]
    named = [*(q.name for q in parameters), *OPTIONS]
    return _BIND.format(
        p=p,
        head=", ".join(head),
        body="".join(_parameter_text(p, i, q, declared[q.name], q.name in plain) for i, q in enumerate(parameters)),
        key="".join(key),
        values="".join(values),
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
