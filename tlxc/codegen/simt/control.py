"""Structured control flow to blocks and phis."""

from __future__ import annotations

from tlxc.ir.core import Op, Region, Value
from tlxc.ir.types import DType, element_of

from .lowering import Lowering, lowers


@lowers("breakpoint")
def breakpoint_(low: Lowering, op: Op) -> None:
    """Nothing: code on a device does not stop."""


class _Slot:
    """How the registers of one value cross a block boundary: 8- and 16-bit elements in 32-bit words, since alone each
    would take a register; all others as they are."""

    def __init__(self, low: Lowering, v: Value) -> None:
        self.low, self.element = low, element_of(v.type)
        size = self.element.bytes
        self.per_word = 4 // size if low.llvm(v) != "i1" and size < 4 and low.registers(v) % (4 // size) == 0 else 1
        self.type = low.llvm(v) if self.per_word == 1 else "i32"

    def pack(self, v: Value) -> list[str]:
        """The words of a value of this kind."""
        n = self.per_word
        if n == 1:
            return self.low.get(v)
        return [self.low.words(v, range(i, i + n))[0] for i in range(0, self.low.registers(v), n)]

    def bind(self, v: Value, words: list[str]) -> None:
        """Gives a value of this kind its words."""
        n = self.per_word
        if n == 1:
            self.low.set(v, words)
        else:
            self.low.set_words(v, [(range(n * i, n * i + n), [word]) for i, word in enumerate(words)])


class _Phis:
    """Phis of loop-carried values, whose second source is known only after the body."""

    def __init__(self, low: Lowering, inits: list[Value], args: list[Value]) -> None:
        self.low = low
        self.slots = [_Slot(low, a) for a in args]
        self.inits = [slot.pack(v) for slot, v in zip(self.slots, inits)]
        self.entry = low.w.block
        self.pending: list[tuple[int, str, str, str]] = []

    def open(self) -> list[list[str]]:
        """Writes the phis at the start of the header; the back edge is filled in by `close`."""
        w, out = self.low.w, []
        for slot, names in zip(self.slots, self.inits):
            words = []
            for x in names:
                words.append(w.assign(""))
                self.pending.append((len(w.lines) - 1, words[-1], slot.type, x))
            out.append(words)
        return out

    def bind(self, values: list[Value], words: list[list[str]]) -> None:
        """Gives values that stand for the carried ones the words of the phis."""
        for slot, v, x in zip(self.slots, values, words):
            slot.bind(v, x)

    def close(self, yielded: list[Value]) -> None:
        """Ends the body: packs what it yields and fills in the phis.  The caller jumps back."""
        flat = [x for slot, v in zip(self.slots, yielded) for x in slot.pack(v)]
        latch = self.low.w.block
        for (line, name, t, init), back in zip(self.pending, flat, strict=True):
            self.low.w.lines[line] = f"  {name} = phi {t} [ {init}, %{self.entry} ], [ {back}, %{latch} ]"


def _body(low: Lowering, region: Region) -> None:
    for op in region.ops[:-1]:
        low.op(op)


def _trip_count(low: Lowering, t: str, dtype: DType, lo: str, hi: str, step: str, descending: bool) -> str:
    """Exact number of trips as an unsigned value: 0 when the range is empty, no overflow at the type's ends."""
    w = low.w
    order = "s" if dtype.signed else "u"
    first, last = (hi, lo) if descending else (lo, hi)
    some = w.assign(f"icmp {order}lt {t} {first}, {last}")
    span = w.assign(f"sub {t} {last}, {first}")
    stride = w.assign(f"sub {t} 0, {step}") if descending else step
    if stride != "1":
        less = w.assign(f"sub {t} {span}, 1")
        span = w.assign(f"add {t} {w.assign(f'udiv {t} {less}, {stride}')}, 1")
    return w.assign(f"select i1 {some}, {t} {span}, {t} 0")


@lowers("for")
def for_loop(low: Lowering, op: Op) -> None:
    w, body = low.w, op.regions[0]
    dtype = element_of(op.inputs[0].type)
    assert isinstance(dtype, DType)
    t = low.llvm(op.inputs[0])
    lo, hi, step = (low.scalar(v) for v in op.inputs[:3])
    trips = _trip_count(low, t, dtype, lo, hi, step, bool(op.attrs.get("descending")))
    header, inside, done = w.new_block("loop"), w.new_block("body"), w.new_block("done")
    carried = _Phis(low, op.inputs[3:], body.args[1:])
    entry = w.block
    w.jump(header)
    w.start(header)
    count_line, count = len(w.lines), w.assign("")
    index_line, index = len(w.lines), w.assign("")
    words = carried.open()
    w.branch(w.assign(f"icmp ult {t} {count}, {trips}"), inside, done)
    w.start(inside)
    low.set(body.args[0], [index])
    carried.bind(body.args[1:], words)
    _body(low, body)
    next_count, next_index = w.assign(f"add {t} {count}, 1"), w.assign(f"add {t} {index}, {step}")
    carried.close(body.terminator.inputs)
    latch = w.block
    w.jump(header)
    w.lines[count_line] = f"  {count} = phi {t} [ 0, %{entry} ], [ {next_count}, %{latch} ]"
    w.lines[index_line] = f"  {index} = phi {t} [ {lo}, %{entry} ], [ {next_index}, %{latch} ]"
    w.start(done)
    carried.bind(op.results, words)


@lowers("while")
def while_loop(low: Lowering, op: Op) -> None:
    w, (cond, body) = low.w, op.regions
    header, inside, done = w.new_block("loop"), w.new_block("body"), w.new_block("done")
    carried = _Phis(low, op.inputs, cond.args)
    w.jump(header)
    w.start(header)
    words = carried.open()
    carried.bind(cond.args, words)
    carried.bind(body.args, words)
    _body(low, cond)
    w.branch(low.scalar(cond.terminator.inputs[0]), inside, done)
    w.start(inside)
    _body(low, body)
    carried.close(body.terminator.inputs)
    w.jump(header)
    w.start(done)
    carried.bind(op.results, words)


def _still_read(dots: list[tuple[str, list[str]]], block: str, then: str) -> list[tuple[str, list[str]]]:
    """Dots under way at the end of `block`, as those under way at the start of `then`, which it dominates."""
    return [(then if b == block else b, names) for b, names in dots]


@lowers("if")
def if_else(low: Lowering, op: Op) -> None:
    w = low.w
    then, otherwise, join = w.new_block("then"), w.new_block("else"), w.new_block("join")
    slots, arms = [_Slot(low, v) for v in op.results], []
    before, entered = low.in_flight, w.block
    w.branch(low.scalar(op.inputs[0]), then, otherwise)
    for block, region in zip((then, otherwise), op.regions):
        w.start(block)
        low.in_flight = _still_read(before, entered, block)
        _body(low, region)
        arms.append(([slot.pack(v) for slot, v in zip(slots, region.terminator.inputs)], w.block))
        w.jump(join)
    w.start(join)
    low.in_flight = _still_read(before, entered, join)
    (a, block_a), (b, block_b) = arms
    for slot, v, xs, ys in zip(slots, op.results, a, b):
        slot.bind(v, [w.assign(f"phi {slot.type} [ {x}, %{block_a} ], [ {y}, %{block_b} ]") for x, y in zip(xs, ys)])
