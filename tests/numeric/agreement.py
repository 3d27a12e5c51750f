"""Two machines ran one call: whether their memories agree as docs/numerics.md says.

The simulator runs the call once more and is asked what the contract leaves open in it: results of approximate
functions, sums whose order shows, products that may be fused.  Where there are none, every output agrees bit for bit.
Else the simulator runs a few more times with those results pushed to either end of their error, and an element may
differ by `SLACK` times as much as that moved it, and one unit in its last place.  Sums are looked at as they happen:
one of small integers is exact in every order, so an output that rests on it must agree bit for bit.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from tlxc.ir.core import Op
from tlxc.ir.types import element_of, shape_of
from tlxc.simulator import Program
from tlxc.simulator.ops import memory as memory_ops
from tlxc.simulator.ops import mma
from tlxc.simulator.program import PURE, Step
from tlxc.simulator.values import storage

from .simulated import Call, Memories, Prepared, array_of, call_of, call_of_case, simulate_call
from .support import Array, Case, Cluster, Launch, check_memory, memory_of

SECONDS = 2.0  # a simulation that takes longer is given up
SLACK = 4.0
RUNS = 4  # with disturbed results
SUMS = ("add", "sub")
TOO_LONG = f"not compared: more than {SECONDS:g} s in the simulator"
NOTES: Counter[str] = Counter()  # how many calls were compared, and how


class TooLong(Exception):
    """The simulation takes more than its time."""


# -------------------------------------------------------------------------------------- what the contract leaves open
def granule(x: Array) -> float:
    """The largest power of two that divides all elements; inf where all are 0."""
    fraction, exponent = np.frexp(np.abs(np.asarray(x, np.float64)))
    digits = np.ldexp(fraction, 53).astype(np.int64)
    lowest = np.ldexp((digits & -digits).astype(np.float64), exponent - 53)
    return float(np.min(lowest, initial=np.inf, where=lowest != 0))


def sums_exactly(total: Array, unit: float) -> Array:
    """Whether every partial sum is an f32, where magnitudes add up to `total` and `unit` divides all."""
    return total <= 2.0**24 * unit


@dataclass
class Witness:
    """What a run of the simulator met that the contract leaves open, by op; `sign` gives the end to which each result
    is pushed, from -1 to 1."""

    sign: Callable[[tuple[int, ...]], Any] = lambda shape: 0.0
    met: Counter[str] = field(default_factory=Counter)
    kept: bool = False  # whether old values of the atomic at hand are used
    touched: Counter[tuple[int, int]] = field(default_factory=Counter)  # by those: array and element

    def moved(self, kind: str, y: Any, error: Any, open_: Any) -> Any:
        """y, pushed by `error` where `open_`."""
        if not np.any(open_):
            return y
        self.met[kind] += 1
        wide = np.asarray(y, np.float64)
        pushed = np.where(open_, wide + self.sign(wide.shape) * error, wide)
        return pushed.astype(np.asarray(y).dtype)[()]

    def function(self, kind: str, x: Any, y: Any) -> Any:
        """exp2, log2, rsqrt."""
        wide, at = np.abs(np.asarray(y, np.float64)), np.asarray(x, np.float64)
        error = wide * 2.0**-22
        if kind == "log2":
            error = np.where((at > 0.5) & (at < 2), 2.0**-22, error)
        return self.moved(kind, y, error + 2.0**-148, np.isfinite(wide) & (wide != 0))

    def product(self, x: Any, y: Any, z: Any) -> Any:
        """A product that may be fused with the sum it feeds.  One that overflows is pushed back among the numbers."""
        wide = np.asarray(x, np.float64) * np.asarray(y, np.float64)
        rounded = np.asarray(z, np.float64)
        lost = np.isinf(rounded) & np.isfinite(wide)
        # A whole unit in the last place: half of one would be rounded away again.
        unit = np.abs(np.spacing(np.asarray(z))).astype(np.float64)
        pushed = self.moved("mul", z, np.where(lost, 0, unit), (wide != rounded) & ~np.isnan(wide))
        if not np.any(lost) or np.all(self.sign(lost.shape) == 0):
            return pushed
        return np.where(lost, np.nextafter(z, np.zeros_like(z)), pushed)[()]

    def sum(self, x: Any, axis: int, y: Any, parts: bool) -> Any:
        """A sum of f32, or those of the parts of an axis, of which the last axis of y counts."""
        wide = np.asarray(x, np.float64)
        total = np.abs(wide).sum(axis)
        open_ = np.isfinite(total) & ~sums_exactly(total, granule(wide[np.isfinite(wide)]))
        error = wide.shape[axis] * 2.0**-24 * np.where(open_, total, 0)
        if parts:
            open_, error = (np.broadcast_to(v[..., None], np.shape(y)) for v in (open_, error))
        return self.moved("sum", y, error, open_)

    def matmul(self, op: Op, a: Any, b: Any, acc: Any) -> Any:
        y = _matmul(op, a, b, acc)
        x, z = (np.abs(np.asarray(v, np.float64)) for v in (a, b))
        total = x @ z + (0 if acc is None else np.abs(np.asarray(acc, np.float64)))
        unit = granule(x[np.isfinite(x)]) * granule(z[np.isfinite(z)])
        if acc is not None:
            unit = min(unit, granule(acc[np.isfinite(acc)]))
        open_ = np.isfinite(total) & ~sums_exactly(total, unit)
        if np.signbit(a).any() or np.signbit(b).any():
            open_ |= total == 0  # the sign of the zero
        return self.moved("dot", y, (x.shape[1] + 16) * 2.0**-23 * np.where(open_, total, 0), open_)

    def add(self, data: Array, index: Array, values: Array) -> Array:
        """An atomic: the sums, and whether an old value depends on who came first."""
        before = np.asarray(data[index], np.float64)
        old = _add(data, index, values)
        base = int(data.__array_interface__["data"][0])
        if self.kept:
            self.touched.update((base, int(i)) for i in index)
        if data.dtype.kind not in "iub":
            exact = before + np.asarray(values, np.float64)
            if len(np.unique(index)) == len(index):
                data[index] = self.moved("atomic", data[index], 0, exact != np.asarray(data[index], np.float64))
            elif granule(np.concatenate([before, np.asarray(values, np.float64)])) < 1:
                self.met["atomic"] += 1
        return old


_matmul, _add = mma.matmul, memory_ops._add


class Watched(Program):
    """A program whose open results pass through a witness."""

    def __init__(self, program: Program, witness: Witness) -> None:
        module = program.module
        self.witness = witness
        self.fuses = any(op.kind in SUMS and _is_float(op) for op in module.walk()) or any(
            op.kind in ("reduce", "partial_reduce") and op.attrs["combine"] == "sum" for op in module.walk()
        )
        self._used = {v for op in module.walk() for v in op.inputs}
        super().__init__(module, program.vendor)

    def _fold(self, step: Step) -> bool:
        return self._watch(step.op, step.fn) is step.fn and super()._fold(step)

    def _step(self, op: Op) -> Step | None:
        step = super()._step(op)
        if step is not None:
            step.fn = self._watch(op, step.fn)
            if step.mode == PURE:
                step.fn = _of_its_type(step.fn)
        return step

    def _watch(self, op: Op, fn: Callable[..., Any]) -> Callable[..., Any]:
        w, kind = self.witness, op.kind
        if kind == "atomic_rmw":

            def atomic(*args: Any) -> Any:
                w.kept = op.result in self._used
                return fn(*args)

            return atomic
        if not op.results or not _is_float(op):
            return fn
        if kind in ("exp2", "log2", "rsqrt"):
            return lambda op, x: w.function(kind, x[0], fn(op, x))
        if kind == "mul" and self.fuses:
            return lambda op, x: w.product(x[0], x[1], fn(op, x))
        if kind in ("reduce", "partial_reduce") and op.attrs["combine"] == "sum":
            return lambda op, x: w.sum(x[0], op.attrs["axis"], fn(op, x), kind == "partial_reduce")
        return fn


def _of_its_type(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Every value has the dtype and shape of its type, and scalars are no arrays; of what each thread or warp has by
    itself there are many."""

    def typed(op: Op, x: list[Any]) -> Any:
        made = fn(op, x)
        for v, found in zip(op.results, made if len(op.results) > 1 else (made,)):
            assert found.dtype == storage(element_of(v.type)), (op, found)
            if getattr(v.type, "uniform", "task") == "task":
                assert found.shape == shape_of(v.type), (op, found)
                assert found.shape or isinstance(found, np.generic), op
        return made

    return typed


def _is_float(op: Op) -> bool:
    return bool(getattr(element_of(op.results[0].type), "is_float", False))


@contextmanager
def watching(witness: Witness) -> Iterator[None]:
    with mock.patch.object(mma, "matmul", witness.matmul), mock.patch.object(memory_ops, "_add", witness.add):
        yield


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raises TooLong inside, in the main thread of a process."""

    def stop(number: int, frame: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ----------------------------------------------------------------------------------------------------------- agreement
@dataclass(frozen=True)
class Simulated:
    """Memories after a call, by parameter; `open` names what the contract left open, and `memories` then holds some
    more, of disturbed runs."""

    memories: list[Memories]
    open: Counter[str]
    ordered: bool
    compared_bits: bool


def observe(call: Call, target: str = "sm_90", seconds: float = 0) -> Simulated:
    """Simulates a call, and again with disturbances where something is open; TooLong where a run takes `seconds`."""
    first = Witness()
    memories = [_run(call, target, first, seconds)]
    prepared = call.prepare(target)[0]
    for i in range(RUNS if first.met else 0):
        rng = np.random.default_rng(i)
        ends = (lambda shape: 1.0, lambda shape: -1.0)
        sign = ends[i] if i < 2 else lambda shape, rng=rng: rng.choice((-1.0, 1.0), shape)
        memories.append(_run(call, target, Witness(sign), seconds))
    ordered = any(n > 1 for n in first.touched.values())
    return Simulated(memories, first.met, ordered, prepared is None or not _makes_nans(prepared))


def _run(call: Call, target: str, witness: Witness, seconds: float) -> Memories:
    with watching(witness):
        if not seconds:
            return simulate_call(call, target, program=lambda p: Watched(p, witness))
        call.prepare(target)  # compiling is not simulating
        with _limit(seconds):
            return simulate_call(call, target, program=lambda p: Watched(p, witness))


# What may make a NaN, and which one is not promised.
_ARITHMETIC = frozenset(
    "add sub mul div min max neg abs cast exp2 log2 sqrt rsqrt reduce partial_reduce dot async_dot atomic_rmw".split()
)


def _makes_nans(prepared: Prepared) -> bool:
    """By arithmetic, or as what TMA puts where a tensor has ended."""
    ops = list(prepared.program.module.walk())
    computed = any(op.results and _is_float(op) and op.kind in _ARITHMETIC for op in ops)
    fills = [getattr(v, "padding", None) for v in prepared.values.values()] + [op.attrs.get("padding") for op in ops]
    return computed or "nan" in fills


def compare(simulated: Simulated, found: Mapping[str, tuple[Array, int]], what: str) -> None:
    """`found`: by parameter, what another machine left in an array, and where its bytes start in the memory."""
    for name, (array, start) in found.items():
        runs = [
            m[name][start : start + array.nbytes].view(array.dtype).reshape(array.shape) for m in simulated.memories
        ]
        differs = ~_same(runs[0], array, simulated.compared_bits)
        if simulated.open and differs.any():
            differs &= ~_within(runs, array)
        if differs.any():
            where = tuple(map(int, np.argwhere(differs)[0]))
            raise AssertionError(
                f"{name}: {int(differs.sum())} of {array.size} elements differ between {what} and the simulator, the "
                f"first at {where}: {array[where]!r} and {runs[0][where]!r}; open: {dict(simulated.open) or 'nothing'}"
            )


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def _same(a: Array, b: Array, nan_bits: bool) -> Array:
    """Equal bits; every NaN is like every other unless they were only moved."""
    same: Array = _bits(a) == _bits(b)
    return same if nan_bits or a.dtype.kind in "iub" else same | (np.isnan(a) & np.isnan(b))


def _within(runs: list[Array], found: Array) -> Array:
    """As far as disturbances move an element, with some slack."""
    wide = [r.astype(np.float64) for r in runs]
    with np.errstate(invalid="ignore", over="ignore"):
        moves = [np.where(_same(w, wide[0], False), 0, np.abs(w - wide[0])) for w in wide[1:]]
        moved = np.max(moves, axis=0)  # not finite where NaN or infinity came or went
        unit = np.zeros(found.shape) if found.dtype.kind in "iub" else np.abs(np.spacing(runs[0])).astype(np.float64)
        near = np.abs(found.astype(np.float64) - wide[0]) <= SLACK * moved + unit
    return near | ~np.isfinite(moved)


def check_agreement(
    call: Call,
    found: Mapping[str, tuple[Array, int]],
    what: str,
    target: str = "sm_90",
    seconds: float = 0,
    expected: Callable[[Memories], None] | None = None,
) -> bool:
    """Compares what `what` left in memory with a simulation, and notes how; false where that takes too long.
    `expected` checks what the simulator left; the order of atomics then does not show in `found`."""
    try:
        simulated = observe(call, target, seconds)
    except TooLong:
        return False
    if expected:
        expected(simulated.memories[0])
    elif simulated.ordered:
        NOTES["not compared: old values of atomics depend on their order"] += 1
        return True
    compare(simulated, found, what)
    NOTES["within the contract" if simulated.open else "bit for bit"] += 1
    return True


def check_case(
    case: Case, launch: Launch, after: Memories, what: str, target: str, seconds: float = 0, tail: int = 0
) -> bool:
    """`check_agreement` of a case, where its memories are `after`; the simulator's are those that are expected, too."""
    if 0 in launch.grid:
        return True
    found, before = {}, {name: memory_of(launch.args[name], tail) for name in after}
    for name, memory in after.items():
        if name in launch.expect and launch.expect[name].check is not None:
            continue  # there is more than one right answer
        data, start = launch.args[name].data, before[name][1]
        found[name] = (memory[start : start + data.nbytes].view(data.dtype).reshape(data.shape), start)
    call = call_of_case(case, launch, tail)
    return check_agreement(call, found, what, target, seconds, lambda made: check_memory(launch, before, made))


@contextmanager
def agreement_of(
    kernel: Any,
    grid: Sequence[int],
    named: Mapping[str, Any],
    num_warps: int,
    cluster: Cluster,
    what: str,
    target: str,
    seconds: float = 0,
) -> Iterator[None]:
    """Around a call of `emulate` or `launch_on_gpu`: compares what it leaves in its arrays."""
    if any(isinstance(v, tuple) and array_of(v) is not None and v[1] < 0 for v in named.values()):
        NOTES["not compared: a pointer that is not into its array"] += 1
        yield
        return
    call = call_of(kernel, grid, named, num_warps, cluster)
    yield
    found = {}
    for name in call.memories:
        array = array_of(named[name])
        assert array is not None
        found[name] = (array, 0)
    if not check_agreement(call, found, what, target, seconds):
        NOTES[TOO_LONG] += 1


def target_of_device() -> str:
    """The target of device 0."""
    from tlxc.runtime import cuda

    return cuda.target_of(cuda.device(0)).name
