"""Layout conversions inside a warp: register renaming, selects, shuffles.

Where source layout A and destination layout B agree on warps up to lanes and registers, every destination (register r,
lane l, warp w) has a source (register s, lane m) that is F2-linear in (r, l, w).  The lane m is read by one shuffle per
source register; where s depends on the thread, each candidate is fetched and selected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tlxc.errors import InternalError
from tlxc.ir.core import Op
from tlxc.ir.f2 import Solver, span_map
from tlxc.ir.layout import Layout
from tlxc.ir.types import Element, element_of

from .lowering import Lowering, layout_of, lowers
from .words import from_word, to_word


def shuffle_words(low: Lowering, x: str, element: Element, shuffle: Callable[[str], str]) -> str:
    """Applies an i32 shuffle to a value of any width."""
    w = low.w
    word, bits = to_word(w, x, element)
    if bits == 64:
        halves = []
        for shift in (0, 32):
            part = w.assign(f"lshr i64 {word}, {shift}") if shift else word
            part = shuffle(w.assign(f"trunc i64 {part} to i32"))
            halves.append(w.assign(f"zext i32 {part} to i64"))
        upper = w.assign(f"shl i64 {halves[1]}, 32")
        return from_word(w, w.assign(f"or i64 {halves[0]}, {upper}"), element)
    wide = w.assign(f"zext i{bits} {word} to i32") if bits < 32 else word
    moved = shuffle(wide)
    return from_word(w, w.assign(f"trunc i32 {moved} to i{bits}") if bits < 32 else moved, element)


@dataclass(frozen=True)
class Plan:
    """Entries are (register bits, lane bits) of the source, registers without repetitions."""

    register: tuple[tuple[int, int], ...]
    lane: tuple[tuple[int, int], ...]
    warp: tuple[tuple[int, int], ...]


@cache
def plan(a: Layout, b: Layout) -> Plan:
    n = len(a.reg)
    solver = Solver([*a.reg, *a.lane])

    def source(v: int, own: int = 0) -> tuple[int, int]:
        """Prefers the own lane where that lies as the destination wants it."""
        code = solver.solve(v)
        if code is None:
            raise InternalError(f"{a} to {b} leaves the warp")
        return code & ((1 << n) - 1), (code >> n) ^ own

    lanes = []
    for i, (have, want) in enumerate(zip(a.lane, b.lane)):
        lanes.append(source(have ^ want, 1 << i))
    warps = [source(x ^ y) for x, y in zip(a.bases("warp"), b.bases("warp"))]
    return Plan(tuple(source(v) for v in b.reg), tuple(lanes), tuple(warps))


def _image(bases: tuple[tuple[int, int], ...], index: int) -> tuple[int, int]:
    return span_map([s for s, _ in bases], index), span_map([m for _, m in bases], index)


def _span(vectors: list[int]) -> list[int]:
    """All elements of the span."""
    out = [0]
    for v in vectors:
        if v not in out:
            out += [x ^ v for x in out]
    return out


Source = tuple[int, int]  # a register of the source, and what is added (XOR) to the lane that it is read from


@cache
def sources(a: Layout, b: Layout) -> tuple[tuple[Source, ...], ...]:
    """Per destination register what is fetched for it: the first, and what selects may take in its place."""
    p = plan(a, b)
    choices, f2_registers, out = _choices(p), len(b.reg), []
    for r in range(b.registers):
        repetition = r >> f2_registers << len(a.reg)
        s, m = _image(p.register, r & ((1 << f2_registers) - 1))
        out.append(tuple(((s ^ g) | repetition, m) for g in choices))
    return tuple(out)


def _choices(p: Plan) -> list[int]:
    """What a thread may add to the register of a source; 0 first."""
    return _span([s for s, _ in (*p.lane, *p.warp) if s])


def _leaves_lane(p: Plan) -> bool:
    return any(m != 1 << i for i, (_, m) in enumerate(p.lane)) or any(m for _, m in (*p.warp, *p.register))


def shuffles(a: Layout, b: Layout, size: int) -> int:
    """Shuffles of each thread on the way from a to b, for elements of `size` bytes."""
    fetched = {source for one in sources(a, b) for source in one} if _leaves_lane(plan(a, b)) else ()
    return len(fetched) * (2 if size == 8 else 1)


@lowers("convert_layout")
def convert_layout(low: Lowering, op: Op) -> None:
    source = op.inputs[0]
    a, b = layout_of(source), layout_of(op.result)
    names, element = low.get(source), element_of(source.type)
    p = plan(a, b)
    choices, moves = _choices(p), _leaves_lane(p)
    pick = low.thread_linear(tuple(s for s, _ in p.lane), tuple(s for s, _ in p.warp)) if len(choices) > 1 else "0"
    lane = low.thread_linear(tuple(m for _, m in p.lane), tuple(m for _, m in p.warp)) if moves else ""
    fetched: dict[Source, str] = {}

    def fetch(register: int, constant: int) -> str:
        if not moves:
            return names[register]
        if (register, constant) not in fetched:
            index = low.w.xor(lane, str(constant))
            fetched[register, constant] = shuffle_words(
                low, names[register], element, lambda word: low.emitter.shuffle_index(word, index)
            )
        return fetched[register, constant]

    tests = [low.w.assign(f"icmp eq i32 {pick}, {g}") for g in choices[1:]]
    out = []
    for first, *others in sources(a, b):
        value = fetch(*first)
        for test, other in zip(tests, others):
            x = fetch(*other)
            value = low.w.assign(f"select i1 {test}, {low.llvm(source)} {x}, {low.llvm(source)} {value}")
        out.append(value)
    low.set(op.result, out)
