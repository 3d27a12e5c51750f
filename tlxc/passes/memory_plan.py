"""Places buffers and mbarriers in shared memory by live range.

Invariant after the pass: every `local_alloc` and `alloc_barriers` has an `offset` in bytes, aligned to the atom of its
swizzle; what is live at once shares no byte; `module.attrs["shared"]` is what the CTA needs, and
`module.attrs["memory_map"]` tells who lies where, as (offset, bytes, name, first source line, last source line).

Live at once is also what two tasks of one region touch.  Mbarriers, and buffers that asynchronous copies or multiplies
touch, live as long as the kernel: when such work has ended is for the kernel's own barriers to know.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tlxc.errors import CompileError, InternalError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.layout import LayoutError
from tlxc.ir.memory import swizzled
from tlxc.ir.types import Barrier, Buffer, Type
from tlxc.targets import Target

from .warps import copies_of

ALIGNMENT = 16  # of any buffer: the widest access
ASYNC_ALIGNMENT = 128  # of a buffer that TMA touches, and of a tensor map
BARRIER_ALIGNMENT = 8
_LOOPS = ("for", "while")
_ALLOCATIONS = ("local_alloc", "alloc_barriers")
VIEWS = ("local_view", "local_trans", "local_slice", "local_reinterpret", "barrier_view")
# Ops whose effect on a buffer outlasts them, or comes from outside the CTA.
_OUTLASTING = frozenset(
    "tma_load tma_store async_dot async_load bulk_load bulk_store remote_store async_remote_store "
    "async_remote_copy".split()
)

Span = tuple[int, int]  # first and last position in program order
Task = tuple[Op, int, int]  # a region of tasks, the number of one of them, and its copies


@dataclass(eq=False)
class _Live:
    """A buffer and where it is live.  `outer` widens the range to the outermost loop that holds it; `tasks` holds, per
    region of tasks, those that touch it; `whole`: it lives as long as the kernel.  Allocations of one storage are one
    buffer: `members` holds each of them and its offset.  `copies`: task copies that have one each, side by side."""

    alloc: Op
    size: int
    alignment: int
    home: tuple[Span, ...]  # loops around the allocation, outermost first
    span: Span = (1 << 30, -1)
    whole: bool = False
    tasks: dict[Op, set[tuple[int, int]]] = field(default_factory=dict)
    first: Op | None = None
    last: Op | None = None
    members: list[tuple[Op, int]] = field(default_factory=list)
    copies: int = 1

    @property
    def stride(self) -> int:
        """Bytes from the buffer of one copy to that of the next."""
        return _up(self.size, self.alignment)

    @property
    def room(self) -> int:
        return self.stride * (self.copies - 1) + self.size

    @property
    def outer(self) -> Span:
        return self.home[0] if self.home and not self.whole else self.span

    @property
    def name(self) -> str:
        return " | ".join(_name(op) for op, _ in self.members)

    def widen(self, span: Span) -> None:
        self.span = min(self.span[0], span[0]), max(self.span[1], span[1])

    def concurrent(self, other: _Live) -> bool:
        """Whether two tasks that run at once touch them, one each."""
        return any(len(mine | other.tasks[op]) > 1 for op, mine in self.tasks.items() if op in other.tasks)


def _name(alloc: Op) -> str:
    return alloc.result.name or ("scratch" if alloc.kind == "local_alloc" else "barriers")


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
    """Positions count ops in program order; a use inside a loop that does not hold the allocation spans that loop.  A
    view is its buffer."""

    def __init__(self, module: Module) -> None:
        self.buffers: dict[Value, _Live] = {}  # of every buffer, mbarrier and view
        self.storages: dict[int, _Live] = {}  # of allocations that share storage
        self.specialised = "total_warps" in module.attrs
        self.position = 0
        self.last_of: dict[Op, int] = {}
        self._number(module.body)
        end, self.position = self.position, 0
        self._walk(module.body, (), None)
        self.all = list(dict.fromkeys(self.buffers.values()))
        for live in self.all:
            if live.whole:
                live.span = 0, end

    def _number(self, region: Region) -> None:
        for op in region.ops:
            self.position += 1
            for r in op.regions:
                self._number(r)
            self.last_of[op] = self.position

    def _walk(self, region: Region, loops: tuple[Span, ...], task: Task | None) -> None:
        for op in region.ops:
            self.position += 1
            here = self.position
            if op.kind in _ALLOCATIONS:
                self._alloc(op, loops, task)
            elif op.kind in VIEWS:
                self._view(op)
            else:
                for v in op.inputs:
                    if isinstance(v.type, (Buffer, Barrier)):
                        self._use(op, v, here, loops, task)
            inner = (*loops, (here, self.last_of[op])) if op.kind in _LOOPS else loops
            for i, r in enumerate(op.regions):
                self._walk(r, inner, (op, i, copies_of(op)[i]) if op.kind == "async_tasks" else task)
            if op.kind == "async_tasks":
                self._together(op, (here, self.last_of[op]))

    def _alloc(self, op: Op, loops: tuple[Span, ...], task: Task | None) -> None:
        t = op.result.type
        start = 0
        if isinstance(t, Buffer) and "alias" in op.attrs:
            number, start, size = op.attrs["alias"]
            live = self.storages.setdefault(number, _Live(op, _up(size, ALIGNMENT), ASYNC_ALIGNMENT, ()))
            live.alignment = max(live.alignment, swizzle_alignment(t))
        elif isinstance(t, Buffer):
            live = _Live(op, _up(t.nbytes, ALIGNMENT), swizzle_alignment(t), loops)
        else:
            assert isinstance(t, Barrier)
            live = _Live(op, t.nbytes, BARRIER_ALIGNMENT, (), whole=True)
        self.buffers[op.result] = live
        live.members.append((op, start))
        if task is not None:
            live.copies = task[2]

    def _view(self, op: Op) -> None:
        live = self.buffers[op.result] = self._live(op, op.inputs[0])
        t = op.result.type
        if op.kind == "local_reinterpret" and isinstance(t, Buffer) and t.layout is not None:
            live.alignment = max(live.alignment, swizzle_alignment(t))

    def _live(self, op: Op, v: Value) -> _Live:
        live = self.buffers.get(v)
        if live is None or op.kind in (*_LOOPS, "if", "yield"):
            raise InternalError(f"{op.kind} at {op.loc} passes buffer {v!r} on; live ranges follow views only")
        return live

    def _use(self, op: Op, v: Value, here: int, loops: tuple[Span, ...], task: Task | None) -> None:
        live = self._live(op, v)
        foreign = loops[len(live.home) :]
        live.widen(foreign[0] if foreign else (here, here))
        live.first, live.last = live.first or op, op
        # A published scalar is read by all warps, some of them late.
        if op.kind == "encode_descriptor":
            live.alignment = max(live.alignment, ASYNC_ALIGNMENT)
        if op.kind in _OUTLASTING or self.specialised and task is None:
            live.whole = True
            live.alignment = max(live.alignment, ASYNC_ALIGNMENT if isinstance(v.type, Buffer) else 0)
        if task is not None:
            # Copies run at once, so each counts; their own buffers then share no bytes with one another's.
            live.tasks.setdefault(task[0], set()).update((task[1], copy) for copy in range(task[2]))

    def _together(self, op: Op, span: Span) -> None:
        """What several tasks of a region touch lives through all of it."""
        for live in self.buffers.values():
            if len(live.tasks.get(op, ())) > 1:
                live.widen(span)


# ------------------------------------------------------------------------------------------------ placement
def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _overlap(a: Span, b: Span) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _place(buffers: list[_Live], spans: dict[_Live, Span]) -> tuple[dict[_Live, int], int]:
    """(offset per buffer, total): the largest first, each at the lowest free place."""
    offsets: dict[_Live, int] = {}

    def meet(a: _Live, b: _Live) -> bool:
        return _overlap(spans[a], spans[b]) or a.concurrent(b)

    for b in sorted(buffers, key=lambda b: (-b.room, spans[b])):
        taken = sorted((offsets[o], offsets[o] + o.room) for o in offsets if meet(o, b))
        at = 0
        for start, end in taken:
            if at + b.room <= start:
                break
            at = max(at, _up(end, b.alignment))
        offsets[b] = at
    return offsets, max((offsets[b] + b.room for b in buffers), default=0)


def _line(op: Op | None) -> int:
    return op.loc.line if op is not None and op.loc is not None else 0


def plan_memory(module: Module, target: Target) -> None:
    """Sets the offsets; raises `CompileError` where the target has too little shared memory.

    Buffers that share bytes cost barriers, in a loop in every iteration.  So all are kept apart while eight CTAs still
    fit on an SM, and those of one loop while two do.
    """
    buffers = _Ranges(module).all
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
        for op, start in b.members:
            op.attrs["offset"] = offset + start
            if b.copies > 1:
                op.attrs["copy_stride"] = b.stride
    module.attrs["shared"] = total
    rows = sorted(
        (offsets[b] + start, b.room if len(b.members) == 1 else _bytes(op), _name(op), _line(b.first), _line(b.last))
        for b in buffers
        for op, start in b.members
    )
    module.attrs["memory_map"] = tuple(rows)


def _bytes(alloc: Op) -> int:
    t = alloc.result.type
    assert isinstance(t, (Buffer, Barrier))
    return t.nbytes


def _extent(t: Type) -> str:
    """What an allocation holds, in the words of the program."""
    assert isinstance(t, (Buffer, Barrier))
    one = str(t.shape) if isinstance(t, Buffer) else "mbarriers"
    return f"{t.count} x {one}" if t.count else one


def _overflow(buffers: list[_Live], total: int, target: Target) -> CompileError:
    largest = sorted(buffers, key=lambda b: -b.room)
    names = (" | ".join(f"{_name(op)} {_extent(op.result.type)}" for op, _ in b.members) for b in largest)
    listed = "; ".join(f"{name} {b.room} bytes" for name, b in zip(names, largest))
    return CompileError(
        "the buffers of this kernel do not fit into shared memory",
        found=f"{total} bytes are live at once, buffers and tiles on their way between threads: {listed}",
        allowed=f"{target.max_shared} bytes per CTA on {target.name}",
        fix="use smaller tiles or fewer stages, or spread the tile over more CTAs",
        loc=largest[0].alloc.loc,
        related=list(dict.fromkeys((f"{b.name}, {b.room} bytes", b.alloc.loc) for b in largest[1:4])),
    )
