"""Launches that native code decides alone: the arguments look like those of a call before, so they mean the same code.

A *guarded plan* is made of a call that went the long way.  It says what each argument must look like (class, dtype,
alignment, divisor, or the very value of a constant), which is all that specialisation looks at, so arguments that fit
would have found the same plan.  Where anything else is given, or the grid is unclear, the call goes the long way again.
See `guarded` in launch.ll for the layout of the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from tlxc.frontend.signature import Argument
from tlxc.frontend.source import Parameter
from tlxc.ir import types as ir
from tlxc.runtime import native, tokens
from tlxc.runtime.descriptor import FILLS, L2_256B, MAX_RANK, SWIZZLES, TYPES, TensorDescriptor, as_descriptor
from tlxc.runtime.fast_bind import EXACT, Key, Plan
from tlxc.runtime.launcher import FLOAT, MAP, SKIP, MapShape, Ready

GuardedPlan = tuple[Any, ...]  # the bytes, and the objects that they point to
Check = tuple[Callable[[Any], Any], Any, Any]

_SHAPE = struct.Struct("<QQQQQQqQQ3QQQQ")
_CHECK = struct.Struct("<QQQ")
_ENTRY = struct.Struct("<QQQQqqQQqQ")
_PARAM = struct.Struct("<QQ")
_MAP = struct.Struct("<QQQQ5Q6IIIII")

_MOST = 8  # plans of a kernel that are tried one after another
_CONSTANT, _ARRAY, _INTEGER, _FLOAT, _DESCRIPTOR, _TENSOR = range(6)
_INT32, _INT64 = ir.int32.limits, ir.int64.limits
# Python integers by range: those of one range have one dtype.
_RANGES = (_INT32, (_INT32[1] + 1, _INT64[1]), (_INT64[0], _INT32[0] - 1))


_NULL = object()


class _Unguarded(Exception):
    """The argument is none that native code can look at."""


@dataclass
class _Entry:
    """One argument of a call: an %Entry of launch.ll."""

    kind: int
    class_: type
    token: Any = None
    low: int = 0
    high: int = 0
    mask: int = 0
    want: int = 0
    param: int = -1
    keyword: str | None = None
    map: bytes = b""
    also: Any = None  # objects that `map` and `high` point to


@dataclass(frozen=True)
class Specialised:
    """What decides how arguments of a kernel are looked at; see `Binder`."""

    parameters: Sequence[Parameter]
    declared: Mapping[str, Argument | None]
    plain: frozenset[str]


@dataclass
class _Bytes:
    """Guarded plans are written here; `refs` keeps alive what addresses point to."""

    refs: list[Any] = field(default_factory=list)

    def at(self, value: Any) -> int:
        """The address of an object; null for `_NULL`."""
        if value is _NULL:
            return 0
        self.refs.append(value)
        return id(value)


class State(Protocol):
    """What calls were launched with: see `fast_bind.State`."""

    plans: dict[Key, Plan]
    checks: tuple[Check, ...]


class GuardedCalls:
    """The guarded plans of one kernel; `run` tries them, newest first, and calls `long_way` where none fits."""

    def __init__(self, long_way: Callable[..., Any], known: Specialised, refuse: Callable[[int], None]) -> None:
        self._known, self._refuse = known, refuse
        self._plans: list[Any] = [long_way]
        self._refused = 0

    @cached_property
    def run(self) -> Callable[..., Any]:
        return native.functions().function("guarded", self._plans)

    def forget(self) -> None:
        del self._plans[1:]

    def learn(self, state: State, compiled: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Remembers a call that was launched as `compiled`, if `state` still has it.  Where calls of many kinds take
        turns, few are learned."""
        if len(self._plans) > _MOST:
            self._refused += 1
            if self._refused % _MOST:
                return
        wanted = _device((*args, *kwargs.values())), kwargs.get("launch_pdl", False)
        plans = (p for p in list(state.plans.values()) if p.compiled is compiled)
        plan = next((p for p in plans if (p.ready.function.gpu.ordinal, p.ready.launch_pdl) == wanted), None)
        made = plan and _guard(self._known, plan, state.checks, self._refuse, args, kwargs)
        if made is not None:
            self._plans.insert(1, made)
            del self._plans[1 + _MOST :]


def _device(values: Sequence[Any]) -> int | None:
    """The device of the arrays among the arguments of a call; a call without arrays depends on more than those."""
    for value in values:
        if hasattr(value, "get_device"):
            return int(value.get_device())
        if type(value) is TensorDescriptor:
            return value.device
    return None


def _guard(
    known: Specialised,
    plan: Plan,
    checks: Sequence[Check],
    refuse: Callable[[int], None],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> GuardedPlan | None:
    """The guarded plan of a call that `plan` launched; None where native code cannot look at one of its arguments."""
    ready = plan.ready
    places = _places(known.parameters, ready.kinds)
    try:
        entries = list(_entries(known, ready, places, args, kwargs))
        fixed = {place: (_word(ready.kinds[i], p.default), 0) for i, place, p in _left_out(known, places, args, kwargs)}
    except _Unguarded:
        return None
    stream = plan.stream if kwargs.get("stream") is None else 0
    return _write(plan, stream, checks, refuse, entries, len(kwargs), fixed)


def prepare(plan: Plan, refuse: Callable[[int], None], values: Sequence[Any], stream: int | None) -> Callable[..., Any]:
    """A function of the grid alone that passes these values, one for each run-time parameter; the stream is the plan's
    where none is given."""
    ready, params, alive, place = plan.ready, {}, [], 0
    for position, (kind, value) in enumerate(zip(ready.kinds, values)):
        if kind == SKIP:
            continue
        if kind == MAP:
            shape = ready.maps[position]
            alive.append(value.map_for(shape.box, shape.swizzle, shape.stored, ready.function.gpu))
            params[place] = (0, alive[-1].address)
        else:
            params[place] = (_word(kind, value), 0)
        place += 1
    made = _write(plan, plan.stream if stream is None else stream, (), refuse, [], 0, params)
    return native.functions().function("guarded", [None, (*made, *alive, *values)])


# -- what the arguments must look like --------------------------------------------------------------------------------


def _places(parameters: Sequence[Parameter], kinds: bytes) -> dict[str, tuple[int, int]]:
    """By name: position among the run-time parameters, and among those of the kernel in memory (-1: not passed)."""
    places, passed = {}, 0
    for position, name in enumerate(p.name for p in parameters if not p.constexpr):
        places[name] = (position, -1 if kinds[position] == SKIP else passed)
        passed += kinds[position] != SKIP
    return places


def _entries(
    known: Specialised,
    ready: Ready,
    places: Mapping[str, tuple[int, int]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Iterator[_Entry]:
    by_name = {p.name: p for p in known.parameters}
    positional = [p for p in known.parameters if not p.keyword_only]
    for parameter, keyword, value in (
        *((p, None, value) for p, value in zip(positional, args)),
        *((by_name.get(name), name, value) for name, value in kwargs.items()),
    ):
        if keyword == "stream" and value is not None:
            entry = _stream(value, len(ready.params))
        elif parameter is None or parameter.constexpr:
            entry = _constant(value)
        else:
            position, place = places[parameter.name]
            declared, plain = known.declared[parameter.name], parameter.name in known.plain
            entry = _run_time(value, declared, plain, ready.kinds[position], ready.maps.get(position))
            entry.param = place
        entry.keyword = keyword
        yield entry


def _left_out(
    known: Specialised, places: Mapping[str, tuple[int, int]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[int, int, Parameter]]:
    """The parameters that keep their default and are passed."""
    given = {p.name for p, _ in zip((p for p in known.parameters if not p.keyword_only), args)} | set(kwargs)
    for p in known.parameters:
        if p.name in places and p.name not in given and places[p.name][1] >= 0:
            yield *places[p.name], p


def _constant(value: Any) -> _Entry:
    return _Entry(_CONSTANT, type(value), value, want=type(value) in EXACT)


def _stream(value: Any, place: int) -> _Entry:
    if type(value) is not int:
        raise _Unguarded
    return _Entry(_INTEGER, int, high=_INT64[1], want=1, param=place)


def _run_time(value: Any, declared: Argument | None, plain: bool, kind: int, shape: MapShape | None) -> _Entry:
    if value is None:
        return _constant(value)
    class_ = type(value)
    if shape is not None:
        return _mapped(value, shape, declared)
    if class_ in (int, bool) and kind != FLOAT:
        return _integer(value, declared, plain)
    if class_ is float and kind == FLOAT:
        return _Entry(_FLOAT, float)
    if hasattr(value, "data_ptr") and hasattr(value, "get_device"):
        promised = declared.align if declared else 0
        mask = 0 if plain and not promised else max(tokens.ALIGN, promised) - 1
        return _Entry(_ARRAY, class_, value.dtype, mask=mask, want=not value.data_ptr() & mask)
    raise _Unguarded


def _integer(value: int, declared: Argument | None, plain: bool) -> _Entry:
    entry = _Entry(_INTEGER, type(value), want=1)
    if declared is not None and tokens.needs_range(declared):
        entry.low, entry.high = declared.type.dtype.limits
        entry.mask = declared.divisible - 1
        if declared.divisible & entry.mask or entry.high > _INT64[1]:
            raise _Unguarded
        return entry
    if isinstance(value, bool):
        entry.low, entry.high = 0, 1
        return entry
    if value == 1 and not plain:
        entry.low = entry.high = 1
        return entry
    for low, high in _RANGES:
        if low <= value <= high:
            entry.low, entry.high = low, high
            entry.mask = 0 if plain else tokens.ALIGN - 1
            entry.want = not value & entry.mask
            return entry
    raise _Unguarded


def _mapped(value: Any, shape: MapShape, declared: Argument | None) -> _Entry:
    """A descriptor, or an array in place of one."""
    made = as_descriptor(value, declared)
    base = made.base
    if not (hasattr(base, "data_ptr") and hasattr(base, "get_device")):
        raise _Unguarded
    packed = _MAP.pack(
        id(made.padding), TYPES[made.dtype.short], made.dtype.bytes, len(shape.box),
        *_reversed(made.block_shape, MAX_RANK), *_reversed(shape.box, MAX_RANK + 1),
        SWIZZLES[shape.swizzle], L2_256B, FILLS[made.padding], shape.stored,
    )  # fmt: skip
    # The class of a descriptor's base stands where an integer has its upper limit.
    return _Entry(_DESCRIPTOR if made is value else _TENSOR, type(value), base.dtype, high=id(type(base)),
                  mask=tokens.ALIGN - 1, want=1, map=packed, also=(type(base), made.padding))  # fmt: skip


def _reversed(extents: Sequence[int], length: int) -> tuple[int, ...]:
    return (*reversed(tuple(extents)), *[0] * (length - len(extents)))


def _word(kind: int, value: Any) -> int:
    """A value as the 8 bytes of a parameter."""
    if kind == FLOAT:
        return int.from_bytes(struct.pack("<f", value), "little")
    if kind == MAP or not isinstance(value, int):
        raise _Unguarded
    return value & (1 << 64) - 1


# -- bytes ------------------------------------------------------------------------------------------------------------


def _write(
    plan: Plan,
    stream: Callable[[int], int] | int,
    checks: Sequence[Check],
    refuse: Callable[[int], None],
    entries: Sequence[_Entry],
    by_name: int,
    fixed: Mapping[int, tuple[int, int]],
) -> GuardedPlan:
    """`fixed` gives (word, address of the value) of parameters that no entry fills; `stream` what gets it, or it."""
    ready, out = plan.ready, _Bytes()
    getter, handle = (_NULL, stream) if isinstance(stream, int) else (stream, 0)
    params = [fixed.get(i, param) for i, param in enumerate(ready.params)] + [(handle, 0)]
    work_param = sum(kind != SKIP for kind in ready.kinds)
    gpu = ready.function.gpu
    head = ready.kernel + _SHAPE.pack(
        len(entries) - by_name, by_name, len(checks), len(params), out.at(getter), out.at(gpu.ordinal), gpu.ordinal,
        out.at(plan.compiled), out.at(refuse), *ready.cluster, ready.workspace, work_param,
        sum(e.kind in (_DESCRIPTOR, _TENSOR) for e in entries),
    )  # fmt: skip
    head += b"".join(_CHECK.pack(*map(out.at, check)) for check in checks)
    maps_at = len(head) + len(entries) * _ENTRY.size + len(params) * _PARAM.size
    body = bytearray()
    for entry in entries:
        body += _ENTRY.pack(
            entry.kind, out.at(entry.keyword or _NULL), out.at(entry.class_), out.at(entry.token),
            entry.low, entry.high, entry.mask, entry.want, entry.param, maps_at,
        )  # fmt: skip
        out.refs.append(entry.also)
        maps_at += len(entry.map)
    body += b"".join(_PARAM.pack(*param) for param in params)
    return (bytes(head + body + b"".join(e.map for e in entries)), *out.refs)
