"""Places buffers in shared memory by live range.

Invariant after the pass: every `local_alloc` has an `offset` in bytes, aligned to the atom of its swizzle; buffers that
are live at once share no byte; `module.attrs["shared"]` is what the CTA needs, `module.attrs["memory_map"]` tells who
lies where, as (offset, bytes, name, first source line, last source line).
"""

from __future__ import annotations

from dataclasses import dataclass

from tlxc.errors import CompileError, InternalError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.layout import LayoutError
from tlxc.ir.memory import swizzled
from tlxc.ir.types import Buffer
from tlxc.targets import Target

ALIGNMENT = 16  # of any buffer: the widest access
_LOOPS = ("for", "while")

Span = tuple[int, int]  # first and last position in program order


@dataclass(eq=False)
class _Live:
    """A buffer and where it is live.  `outer` widens the range to the outermost loop that holds it."""

    alloc: Op
    size: int
    alignment: int
    home: tuple[Span, ...]  # loops around the allocation, outermost first
    span: Span = (1 << 30, -1)
    first: Op | None = None
    last: Op | None = None

    @property
    def outer(self) -> Span:
        return self.home[0] if self.home else self.span

    @property
    def name(self) -> str:
        return self.alloc.result.name or "scratch"


def swizzle_alignment(buffer: Buffer) -> int:
    """Bytes to which the start is aligned: the 8-row atom of an NVIDIA swizzle, whose XOR is of absolute addresses."""
    mem, elem = buffer.layout, buffer.dtype.bytes
    if mem is None:
        raise InternalError("a buffer without a layout cannot be placed")
    for order in ((0, 1), (1, 0)) if len(mem.shape) == 2 else (tuple(range(len(mem.shape))),):
        turned = mem.transpose(order)
        for width in (128, 64, 32):
            try:
                if swizzled(turned.shape, elem, width) == turned:
                    return 8 * width
            except LayoutError:
                continue
    return ALIGNMENT


# ------------------------------------------------------------------------------------------------ live ranges
class _Ranges:
    """Positions count ops in program order; a use inside a loop that does not hold the allocation spans that loop."""

    def __init__(self, module: Module) -> None:
        self.buffers: dict[Value, _Live] = {}
        self.position = 0
        self.last_of: dict[Op, int] = {}
        self._number(module.body)
        self.position = 0
        self._walk(module.body, ())

    def _number(self, region: Region) -> None:
        for op in region.ops:
            self.position += 1
            for r in op.regions:
                self._number(r)
            self.last_of[op] = self.position

    def _walk(self, region: Region, loops: tuple[Span, ...]) -> None:
        for op in region.ops:
            self.position += 1
            here = self.position
            if op.kind == "local_alloc":
                self._alloc(op, loops)
            for v in op.inputs:
                if isinstance(v.type, Buffer):
                    self._use(op, v, here, loops)
            inner = (*loops, (here, self.last_of[op])) if op.kind in _LOOPS else loops
            for r in op.regions:
                self._walk(r, inner)

    def _alloc(self, op: Op, loops: tuple[Span, ...]) -> None:
        t = op.result.type
        assert isinstance(t, Buffer)
        size = -(-t.nbytes // ALIGNMENT) * ALIGNMENT
        self.buffers[op.result] = _Live(op, size, swizzle_alignment(t), loops)

    def _use(self, op: Op, v: Value, here: int, loops: tuple[Span, ...]) -> None:
        live = self.buffers.get(v)
        if live is None or op.kind in (*_LOOPS, "if", "yield"):
            raise InternalError(f"{op.kind} at {op.loc} passes buffer {v!r} on; live ranges follow allocations only")
        foreign = loops[len(live.home) :]
        start, end = foreign[0] if foreign else (here, here)
        live.span = min(live.span[0], start), max(live.span[1], end)
        live.first, live.last = live.first or op, op


# ------------------------------------------------------------------------------------------------ placement
def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _overlap(a: Span, b: Span) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _place(buffers: list[_Live], spans: dict[_Live, Span]) -> tuple[dict[_Live, int], int]:
    """(offset per buffer, total): the largest first, each at the lowest free place."""
    offsets: dict[_Live, int] = {}
    for b in sorted(buffers, key=lambda b: (-b.size, spans[b])):
        taken = sorted((offsets[o], offsets[o] + o.size) for o in offsets if _overlap(spans[o], spans[b]))
        at = 0
        for start, end in taken:
            if at + b.size <= start:
                break
            at = max(at, _up(end, b.alignment))
        offsets[b] = at
    return offsets, max((offsets[b] + b.size for b in buffers), default=0)


def _line(op: Op | None) -> int:
    return op.loc.line if op is not None and op.loc is not None else 0


def plan_memory(module: Module, target: Target) -> None:
    """Sets the offsets; raises `CompileError` where the target has too little shared memory.

    Buffers that share bytes cost barriers, in a loop in every iteration.  So all are kept apart while eight CTAs still
    fit on an SM, and those of one loop while two do.
    """
    buffers = list(_Ranges(module).buffers.values())
    everywhere = (0, 1 << 30)
    choices = (
        (8, {b: everywhere for b in buffers}),
        (2, {b: b.outer for b in buffers}),
        (0, {b: b.span for b in buffers}),
    )
    for ctas, spans in choices:
        offsets, total = _place(buffers, spans)
        if total * ctas <= target.shared_per_sm:
            break
    if total > target.max_shared:
        raise _overflow(buffers, total, target)
    for b, offset in offsets.items():
        b.alloc.attrs["offset"] = offset
    module.attrs["shared"] = total
    rows = sorted((offsets[b], b.size, b.name, _line(b.first), _line(b.last)) for b in buffers)
    module.attrs["memory_map"] = tuple(rows)


def _overflow(buffers: list[_Live], total: int, target: Target) -> CompileError:
    largest = sorted(buffers, key=lambda b: -b.size)
    listed = "; ".join(f"{b.name} {b.alloc.result.type.shape} {b.size} bytes" for b in largest)  # type: ignore[union-attr]
    return CompileError(
        "the buffers of this kernel do not fit into shared memory",
        found=f"{total} bytes are live at once, buffers and tiles on their way between threads: {listed}",
        allowed=f"{target.max_shared} bytes per CTA on {target.name}",
        fix="use smaller tiles or fewer stages, or spread the tile over more CTAs",
        loc=largest[0].alloc.loc,
        related=list(dict.fromkeys((f"{b.name}, {b.size} bytes", b.alloc.loc) for b in largest[1:4])),
    )
