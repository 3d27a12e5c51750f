"""A module made ready to run: numbered slots for values, one step per op, what is known before the run computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tlxc.ir.ops  # noqa: F401  fills the op table
from tlxc.errors import InternalError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.table import is_pure
from tlxc.ir.types import Barrier, Buffer, Pointer, Tensor, element_of

from .memory import foot_of
from .provenance import Provenance
from .values import TILE_OPS

# Modes of a step: a value of values; a plain function of the strand; a generator, which may wait.
PURE, EFFECT, FLOW = range(3)
# What leaves no trace at this level: barriers of a task, hints, what was consumed while compiling.
NOTHING = frozenset(("barrier", "prefetch_descriptor", "tma_prefetch", "prefetch", "dump_layout", "buffer_overlap"))
_FOLDED_BYTES = 1 << 22  # larger tiles are computed when they are wanted


class Step:
    """One op.  `ins` and `outs` are slots; -1 is that of an absent operand.  `data`: what the handler wants to know."""

    __slots__ = ("op", "mode", "fn", "ins", "outs", "out", "data", "codes")

    def __init__(self, op: Op, mode: int, fn: Callable[..., Any], ins: list[int], outs: list[int]) -> None:
        self.op, self.mode, self.fn, self.ins, self.outs = op, mode, fn, ins, outs
        self.out = outs[0] if len(outs) == 1 else -1
        self.data: Any = None
        self.codes: list[Code] = []


class Code:
    """The steps of a region; `args` and `yields` are slots."""

    __slots__ = ("steps", "args", "yields")

    def __init__(self, steps: list[Step], args: list[int], yields: list[int]) -> None:
        self.steps, self.args, self.yields = steps, args, yields


class Program:
    """`template`: the slots of a strand before it starts, constants filled in.  The last is always None."""

    def __init__(self, module: Module) -> None:
        from .findings import loops
        from .ops import EFFECTS, FLOWS
        from .ops.task import spread
        from .protocol import Protocol

        self.module = module
        self._effects, self._flows, self._spread = EFFECTS, FLOWS, spread
        self._slots: dict[Value, int] = {}
        self.template: list[Any] = []
        self.params = [self._slot(p.value) for p in module.params]
        self._known: set[int] = set()
        self._provenance = Provenance(module)
        self.code = self._code(module.body)
        self.template.append(None)
        self.regions = max((len(op.regions) for op in module.walk() if op.kind == "async_tasks"), default=1)
        self.shared = int(module.attrs.get("shared", 0))
        self.cuts = _cuts(module)
        self.concurrent = _communicates(module)
        self.names = allocation_names(module)
        self.protocol = Protocol(module, self.names)
        self.loops = loops(module)

    def _slot(self, v: Value) -> int:
        if v not in self._slots:
            self._slots[v] = len(self.template)
            self.template.append(None)
        return self._slots[v]

    def _code(self, region: Region) -> Code:
        args = [self._slot(a) for a in region.args]
        steps: list[Step] = []
        yields: list[int] = []
        for op in region.ops:
            if op.kind == "yield":
                yields = [self._slot(v) for v in op.inputs]
            elif op.kind not in NOTHING:
                step = self._step(op)
                if step is not None:
                    steps.append(step)
        return Code(steps, args, yields)

    def _step(self, op: Op) -> Step | None:
        ins = [-1 if v is None else self._slot(v) for v in op.operands]
        outs = [self._slot(v) for v in op.results]
        if op.kind in self._flows:
            step = Step(op, FLOW, self._flows[op.kind], ins, outs)
        elif op.kind == "splat" and getattr(op.inputs[0].type, "uniform", "task") != "task":
            step = Step(op, EFFECT, self._spread, ins, outs)
        elif op.kind in self._effects:
            step = Step(op, EFFECT, self._effects[op.kind], ins, outs)
        elif op.kind in TILE_OPS:
            step = Step(op, PURE, TILE_OPS[op.kind], ins, outs)
            if self._fold(step):
                return None
        else:
            raise InternalError(f"the simulator has no function for {op.kind}")
        step.data = self._facts(op)
        step.codes = [self._code(r) for r in op.regions]
        return step

    def _facts(self, op: Op) -> Any:
        """The parameters behind the pointers of an access to global memory; else the footprint of the buffer that the
        op makes or touches first."""
        if op.operands and op.operands[0] is not None and isinstance(element_of(op.operands[0].type), Pointer):
            return self._provenance.of(op.operands[0])
        for v in (*op.results, *op.inputs):
            if isinstance(v.type, Buffer):
                return foot_of(v.type)
        return None

    def _fold(self, step: Step) -> bool:
        """Computes what depends on constants only."""
        op = step.op
        if not is_pure(op) or op.kind == "dot" or any(i not in self._known for i in step.ins):
            return False
        if any(isinstance(v.type, Tensor) and v.type.numel * 8 > _FOLDED_BYTES for v in op.results):
            return False
        from .values import quiet

        with quiet():
            made = step.fn(op, [self.template[i] for i in step.ins])
        for slot, value in zip(step.outs, made if len(step.outs) > 1 else [made]):
            self.template[slot] = value
            self._known.add(slot)
        return True


def _cuts(module: Module) -> list[int]:
    """Where tiles begin in shared memory."""
    cuts = {0}
    for op in module.walk():
        if op.kind == "local_alloc":
            t = op.result.type
            assert isinstance(t, Buffer)
            for i in range(max(1, t.count)):
                start = op.attrs["offset"] + t.tile_offset(i)
                cuts |= {start, start + t.tile_bytes}
    return sorted(cuts)


def _communicates(module: Module) -> bool:
    """Whether CTAs may wait for each other through global memory: atomics, or loops that load what they test."""
    for op in module.walk():
        if op.kind == "atomic_rmw":
            return True
        if op.kind == "while" and any(inner.kind == "load" for r in op.regions for inner in r.walk()):
            return True
    return False


def alloc_of(v: Value) -> Op | None:
    """The allocation behind a buffer or barrier value."""
    op = v.op
    while op is not None and isinstance(v.type, (Buffer, Barrier)) and op.kind not in ("local_alloc", "alloc_barriers"):
        v = op.inputs[0]
        op = v.op
    return op


def allocation_names(module: Module) -> dict[Op, str]:
    """How the kernel calls each allocation; of `x = alloc(1)[0]` the view has the name."""
    names: dict[Op, str] = {}
    for op in module.walk():
        if op.kind in ("local_alloc", "alloc_barriers"):
            what = "a buffer" if op.kind == "local_alloc" else "a barrier"
            names[op] = op.result.name or f"{what} of the compiler"
        elif op.kind in ("local_view", "barrier_view") and op.result.name:
            made = alloc_of(op.inputs[0])
            if made is not None and not made.result.name:
                names[made] = op.result.name
    return names
