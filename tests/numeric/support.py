"""Cases, and the two machines that run them.

A `Case` names a kernel, how many warps run it, and `make(rng, big)`, which gives its `Launch`: grid, arguments and what
must stand in memory afterwards.  The same cases run in the emulator (`run_emulated`, from the LLVM IR of any target)
and on a GPU (`run_on_gpu`).  References are exact integers or float64; tolerances are those of docs/numerics.md.

Every output starts as the byte 0xA5 and lies between guard zones of the same byte: whatever is not expected to be
written must still hold it.  Inputs lie between bytes 0xFF, which are NaN or -1, so that an overread shows; in the
emulator they end where the buffer ends, so that an overread is an error.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tlxc
from tlxc.frontend.signature import Argument, Signature
from tlxc.frontend.source import MISSING, Source
from tlxc.ir.core import Module, Op
from tlxc.ir.table import OPS
from tlxc.ir.types import DTYPES, Descriptor, DType, Pointer, Scalar, element_of, float32, int1, int32, int64
from tlxc.ir.types import Buffer as SharedBuffer

Array = npt.NDArray[Any]
Cluster = tuple[int, int, int]
Cell = tuple[str, str]  # op kind, short name of the dtype ("ptr" for pointers, "-" for ops without one)

POISON, FENCE = 0xA5, 0xFF
GUARD = 256  # bytes on either side of a GPU buffer, and before an emulated one
WARPS = (1, 2, 4, 8)

# ------------------------------------------------------------------------------------------------------------- dtypes
_FORMATS = {
    "f16": (11, -24, 65504.0),
    "bf16": (8, -133, (2.0 - 2.0**-7) * 2.0**127),
    "f32": (24, -149, 3.4028234663852886e38),
}


def storage(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of elements in memory."""
    if dtype.kind == "bool":
        return np.dtype(np.bool_)
    return np.dtype(ml_dtypes.bfloat16 if dtype.short == "bf16" else dtype.name)


def dtype_of(array: Array) -> DType:
    """The dtype that a NumPy array stores."""
    return next(d for d in DTYPES.values() if storage(d) == array.dtype)


def round_float(values: npt.ArrayLike, dtype: DType) -> Array:
    """Float64 to a float dtype, to nearest even, rounded once; still float64."""
    x = np.asarray(values, np.float64)
    precision, smallest, largest = _FORMATS[dtype.short]
    with np.errstate(all="ignore"):
        quantum = np.maximum(np.frexp(x)[1] - precision, smallest)
        rounded = np.ldexp(np.rint(np.ldexp(x, -quantum)), quantum)
        rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, x), rounded)
        return np.where(np.isfinite(x) & (x != 0), rounded, x)


def round_int(n: int, dtype: DType) -> float:
    """An integer to a float dtype, to nearest even, rounded once."""
    precision, _, largest = _FORMATS[dtype.short]
    drop = max(0, abs(n).bit_length() - precision)
    whole, rest = divmod(abs(n), 1 << drop)
    half = (1 << drop) >> 1
    whole += drop > 0 and (rest > half or (rest == half and whole & 1))
    value = float(whole << drop)
    return float(np.copysign(np.inf if value > largest else value, n))


def wrap(values: Array, dtype: DType) -> Array:
    """Integers of any width modulo that of an integer dtype."""
    return values.astype(storage(dtype))


def to_storage(values: npt.ArrayLike, dtype: DType) -> Array:
    """float64 that the dtype represents (see `round_float`), or integers, as they stand in memory."""
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(np.float32 if dtype.short == "bf16" else storage(dtype)).astype(storage(dtype))


# -------------------------------------------------------------------------------------------------------------- values
_SPECIAL_FLOATS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 3.0, -7.0)


def specials(dtype: DType) -> Array:
    """The values of a dtype where errors live: zeros, extremes, denormals, infinities, NaN."""
    if dtype.is_float:
        precision, smallest, largest = _FORMATS[dtype.short]
        tiny = 2.0 ** (smallest + precision - 1)
        extra = (
            largest,
            -largest,
            tiny,
            2.0**smallest,
            -(2.0**smallest),
            tiny - 2.0**smallest,
            1 + 2.0 ** (1 - precision),
        )
        return to_storage((*_SPECIAL_FLOATS, *extra), dtype)
    if dtype.kind == "bool":
        return np.array([False, True])
    low, high = dtype.limits
    values = {0, 1, 2, 3, 7, high, high - 1, high // 2, low, low + 1} | ({-1, -2, -3, -7} if dtype.signed else set())
    return np.array(sorted(values), storage(dtype))


def numbers(rng: np.random.Generator, dtype: DType, n: int) -> Array:
    """n values without special ones: floats of moderate size, integers over the whole range, some small."""
    if dtype.is_float:
        return to_storage(round_float(rng.standard_normal(n) * 2.0 ** rng.integers(-3, 4, n), dtype), dtype)
    if dtype.kind == "bool":
        return rng.integers(0, 2, n).astype(bool)
    low, high = dtype.limits
    wide = rng.integers(low, high, n, storage(dtype), endpoint=True)
    small = rng.integers(max(low, -9), 10, n).astype(storage(dtype))
    return np.where(rng.random(n) < 0.5, wide, small)


def small_integers(rng: np.random.Generator, dtype: DType, n: int, high: int = 4) -> Array:
    """Integers from -high (0 where unsigned) to high, exact in every dtype; sums of many stay exact in float32."""
    low = 0 if dtype.kind in ("uint", "bool") else -high
    return to_storage(rng.integers(low, high, n, endpoint=True), dtype)


def values(rng: np.random.Generator, dtype: DType, n: int) -> Array:
    """n values: the special ones first, then `numbers`, shuffled."""
    chosen = np.concatenate([specials(dtype), numbers(rng, dtype, n)])[:n]
    return rng.permutation(chosen)


def every_value(dtype: DType) -> Array:
    """All bit patterns of an 8 or 16-bit dtype."""
    return np.arange(1 << dtype.bits, dtype=f"uint{dtype.bits}").view(storage(dtype))


def pairs(rng: np.random.Generator, dtype: DType, n: int) -> tuple[Array, Array]:
    """Two arrays of n values in which every pair of special values occurs where n allows."""
    s = specials(dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(s, s))
    x, y = np.concatenate([a, numbers(rng, dtype, n)]), np.concatenate([b, numbers(rng, dtype, n)])
    order = rng.permutation(max(n, len(a)))[:n]
    return x[order], y[order]


def wide(x: Array) -> Array:
    """Values as float64 or, for integers and bools, as Python ints."""
    with np.errstate(all="ignore"):
        return x.astype(np.float64) if dtype_of(x).is_float else x.astype(object) + 0


def plain(x: Array) -> Array:
    """Values as `exact` takes them: float64, or integers and bools as they are."""
    with np.errstate(all="ignore"):
        return x.astype(np.float64) if dtype_of(x).is_float else x


# ----------------------------------------------------------------------------------------------------- what is expected
@dataclass(frozen=True)
class Expect:
    """The contents of one array after the launch.

    Integers and bools: `value`, exactly.  Floats: `value` in float64; the result lies between the roundings of
    value - error and value + error, NaN where `value` is NaN, with the sign of zero where `signed_zero` says so and the
    error is 0.  `written` is false where the array must still hold what it held.  `check` replaces all that by a
    function of the array as found.
    """

    value: Array = field(default_factory=lambda: np.zeros(0))
    error: Array | float = 0.0
    written: Array | bool = True
    signed_zero: bool = True
    check: Callable[[Array], None] | None = None


def exact(value: npt.ArrayLike, written: Array | bool = True, signed_zero: bool = True) -> Expect:
    """Exactly these values: integers, bools, or floats that are rounded to the dtype of the array."""
    return Expect(np.asarray(value), written=written, signed_zero=signed_zero)


def near(value: npt.ArrayLike, error: npt.ArrayLike, written: Array | bool = True) -> Expect:
    """Within `error` (absolute, float64) of `value`, and one rounding to the dtype of the array."""
    v = np.asarray(value, np.float64)
    return Expect(v, np.broadcast_to(np.asarray(error, np.float64), v.shape), written)


def _compare(name: str, expect: Expect, before: Array, after: Array) -> None:
    if expect.check is not None:
        expect.check(after)
        return
    written = np.broadcast_to(np.asarray(expect.written), after.shape)
    kept = _bytes(before).reshape(-1, before.itemsize) == _bytes(after).reshape(-1, before.itemsize)
    touched = ~kept.all(axis=1).reshape(after.shape) & ~written
    assert not touched.any(), f"{name}: elements that no one may write were written: {_places(touched)}"
    wrong = written & ~_right(expect, after)
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        wanted = np.broadcast_to(expect.value, after.shape)
        raise AssertionError(
            f"{name}: {int(wrong.sum())} of {after.size} elements are wrong: {_places(wrong)}; the first, at "
            f"{tuple(map(int, where))}, is {after[where]!r}, wanted {wanted[where]!r}"
            + (f" +- {np.broadcast_to(expect.error, after.shape)[where]:g}" if dtype_of(after).is_float else "")
        )


def _right(expect: Expect, after: Array) -> Array:
    dtype = dtype_of(after)
    wanted = np.broadcast_to(expect.value, after.shape)
    if not dtype.is_float:
        if dtype.kind == "bool":
            return after.view(np.uint8) == wanted.astype(np.uint8)
        return after == wanted.astype(after.dtype)
    with np.errstate(all="ignore"):
        found, value = after.astype(np.float64), wanted.astype(np.float64)
        error = np.where(np.isfinite(value), expect.error, 0.0)
        low, high = round_float(value - error, dtype), round_float(value + error, dtype)
        right = (low <= found) & (found <= high)
        if expect.signed_zero:
            right &= (low != 0) | (high != 0) | (error > 0) | (np.signbit(found) == np.signbit(value))
        return np.where(np.isnan(value), np.isnan(found), right)


def _places(wrong: Array) -> str:
    places = [tuple(map(int, p)) for p in np.argwhere(wrong)[:6]]
    return ", ".join(map(str, places)) + (", ..." if wrong.sum() > 6 else "")


def _bytes(x: Array) -> Array:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


# ----------------------------------------------------------------------------------------------------------- arguments
@dataclass(frozen=True)
class In:
    """An array that the kernel only reads, starting `offset` elements after a 16-byte boundary.  With `block` the
    kernel gets a descriptor of it, in blocks of that shape, where elements outside read as `padding`."""

    data: Array
    offset: int = 0
    block: tuple[int, ...] | None = None
    padding: str = "zero"


@dataclass(frozen=True)
class Out:
    """An array that the kernel writes, poisoned before."""

    shape: tuple[int, ...] | int
    dtype: DType
    offset: int = 0
    block: tuple[int, ...] | None = None
    padding: str = "zero"

    @property
    def data(self) -> Array:
        count = int(np.prod(self.shape)) * self.dtype.bytes
        return np.full(count, POISON, np.uint8).view(storage(self.dtype)).reshape(self.shape)


@dataclass(frozen=True)
class InOut:
    """An array that the kernel reads and writes."""

    data: Array
    offset: int = 0
    block: tuple[int, ...] | None = None
    padding: str = "zero"


Buffer = Union[In, Out, InOut]


@dataclass(frozen=True)
class Launch:
    """`args` holds every parameter by name: buffers, numbers, and the values of constexpr parameters.  `expect` names
    arrays that are written; all others must stay as they are."""

    grid: tuple[int, ...]
    args: Mapping[str, Any]
    expect: Mapping[str, Expect]


@dataclass(frozen=True)
class Case:
    """`cells`: the (op, dtype) pairs that the compiled kernel contains, which a test checks.  `amd`: whether it also
    runs in the emulator for gfx950.  `cluster`: CTAs of a cluster."""

    id: str
    kernel: Any
    make: Callable[[np.random.Generator, bool], Launch]
    num_warps: int = 4
    cells: frozenset[Cell] = frozenset()
    amd: bool = True
    cluster: Cluster = (1, 1, 1)

    def launch(self, big: bool) -> Launch:
        """The launch with inputs that depend on the id alone."""
        return self.make(np.random.default_rng(zlib.crc32(self.id.encode())), big)


def cells(ops: str, *dtypes: str) -> frozenset[Cell]:
    """Every op of a space-separated list with every dtype."""
    return frozenset((op, dtype) for op in ops.split() for dtype in dtypes)


# ---------------------------------------------------------------------------------------------------- compiled modules
def cells_of(module: Module) -> set[Cell]:
    """The cells that a module contains: each op with the dtypes of its operands and results that its row lists."""
    found: set[Cell] = set()
    for op in module.walk():
        kinds = OPS[op.kind].kinds
        found |= {(op.kind, name) for name in _cell_dtypes(op, kinds)} if kinds else {(op.kind, "-")}
    return found


# The dtype of the result is not, or not alone, what is computed on.
_BY_OPERAND = frozenset(("cmp", "cast", "dot", "local_reinterpret"))
# Of a buffer, whose dtype decides.
_BY_BUFFER = frozenset(
    "local_scatter tma_load tma_store async_load bulk_load bulk_store async_dot remote_store async_remote_store "
    "async_remote_copy".split()
)


def _cell_dtypes(op: Op, kinds: Sequence[str]) -> set[str]:
    inputs = [v.type for v in op.inputs]
    if op.kind == "addptr":
        return {"ptr", str(element_of(inputs[1]))}
    if op.kind in _BY_BUFFER:
        return {next(t.dtype.short for t in reversed(inputs) if isinstance(t, SharedBuffer))}
    if op.kind == "store":
        types = inputs[1:2]
    elif op.kind in _BY_OPERAND:
        types = inputs
    else:
        types = [v.type for v in op.results] or inputs[-1:]
    return {"ptr" if isinstance(e, Pointer) else e.short for e in map(element_of, types)}


@dataclass(frozen=True)
class Built:
    """A kernel compiled to LLVM IR; `cells` are those before and after the passes, `threads` those of a CTA."""

    llvm: str
    shared: int
    cells: frozenset[Cell]
    warp_size: int
    module: Module

    @property
    def threads(self) -> int:
        return int(self.module.attrs.get("total_warps", self.module.num_warps)) * self.warp_size


def _built(source: Source, signature: Signature, target: str) -> Built:
    """Constants that are equal and not the same (0, 0.0, -0.0, True) make different kernels."""
    return _compiled(source, signature, target, repr(signature.constants))


@functools.lru_cache(maxsize=256)
def _compiled(source: Source, signature: Signature, target_name: str, constants: str) -> Built:
    from tlxc.codegen.generate import check_supported, generate
    from tlxc.compiler import build, run_passes
    from tlxc.targets import get_target

    target = get_target(target_name)
    module = build(source, signature, target)
    before = cells_of(module) & _ONLY_BEFORE
    check_supported(module, target)
    run_passes(module, target, check=True)
    text = generate(module, target)
    return Built(text, module.attrs.get("shared", 0), frozenset(before | cells_of(module)), target.warp_size, module)


# Ops that the passes consume: what they ask for is in the layouts, or was printed.
_ONLY_BEFORE = {(op, dtype) for op in ("require_layout", "dump_layout") for dtype in (*DTYPES, "ptr")}
_ONLY_BEFORE |= {("buffer_overlap", "-")}


def argument(value: Any) -> Argument | Any:
    """The specialisation of a run-time argument, by the rules of a launch: addresses of a multiple of 16 bytes,
    integers divisible by 16; None and the integer 1 are constants and returned as they are."""
    if isinstance(value, Descriptor):
        return Argument(value)
    if isinstance(value, tuple):
        array, offset = value
        return Argument(Pointer(array), 16 if offset % 16 == 0 else 0)
    if isinstance(value, bool):
        return Argument(Scalar(int1))
    if isinstance(value, float):
        return Argument(Scalar(float32))
    if isinstance(value, int) and value != 1:
        low, high = int32.limits
        return Argument(Scalar(int32 if low <= value <= high else int64), 0, 1 if value % 16 else 16)
    return value


def signature(source: Source, named: Mapping[str, Any], num_warps: int, cluster: Cluster = (1, 1, 1)) -> Signature:
    """`named` gives run-time arguments as `argument` takes them, arrays as (dtype, byte offset) or `Descriptor`."""
    arguments: list[tuple[str, Argument]] = []
    constants: list[tuple[str, Any]] = []
    for p in source.parameters:
        value = named.get(p.name, p.default)
        assert value is not MISSING, f"{source.name}: the argument {p.name} is missing"
        made = value if p.constexpr else argument(value)
        if isinstance(made, Argument):
            arguments.append((p.name, made))
        else:
            constants.append((p.name, made))
    return Signature(tuple(arguments), tuple(constants), num_warps, cluster=cluster)


@dataclass(frozen=True)
class Blocks:
    """An argument that the kernel gets as a descriptor: an array whose bytes start at `offset` of `array`, of `shape`
    (that of `array` where None) and `dtype`, in blocks of `block` elements."""

    array: Array
    block: tuple[int, ...]
    padding: str = "zero"
    offset: int = 0
    shape: tuple[int, ...] | None = None
    dtype: DType | None = None

    @property
    def type(self) -> Descriptor:
        return Descriptor(self.block, self.dtype or dtype_of(self.array))

    def view(self) -> Array:
        """The elements, in the memory of `array`."""
        shape = self.array.shape if self.shape is None else self.shape
        start = self.array.reshape(-1).view(np.uint8)[self.offset :]
        return start[: int(np.prod(shape)) * self.type.dtype.bytes].view(storage(self.type.dtype)).reshape(shape)


def emulate(
    kernel: Any,
    grid: Sequence[int],
    *args: Any,
    num_warps: int = 4,
    target: str = "sm_90",
    ctas_per_cga: Cluster = (1, 1, 1),
    **constants: Any,
) -> Built:
    """Compiles a kernel for its arguments and runs it in the emulator.

    Arguments go to the parameters in order, or by name.  A NumPy array is written in place; `(array, byte offset)`
    points into one; `Blocks` make descriptors.
    """
    from tlxc.emulator import launch

    from .agreement import agreement_of

    source = Source.of(kernel)
    named = named_arguments(kernel, args, constants)
    types = {name: _type_of(v) for name, v in named.items()}
    with agreement_of(kernel, grid, named, num_warps, ctas_per_cga, "the emulator", target):
        return _emulate(source, grid, named, types, num_warps, target, launch, ctas_per_cga)


def named_arguments(kernel: Any, args: Sequence[Any], constants: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments in order and by name, by name."""
    return dict(zip((p.name for p in Source.of(kernel).parameters), args)) | dict(constants)


def _type_of(value: Any) -> Any:
    """What `signature` takes for an argument of `emulate`."""
    if isinstance(value, np.ndarray):
        return dtype_of(value), 0
    if isinstance(value, Blocks):
        return value.type
    return (dtype_of(value[0]), value[1]) if _is_view(value) else value


def _is_view(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], np.ndarray)


def _emulate(
    source: Source,
    grid: Sequence[int],
    named: Mapping[str, Any],
    types: Mapping[str, Any],
    num_warps: int,
    target: str,
    launch: Callable[..., None],
    cluster: Cluster = (1, 1, 1),
    seed: int | None = None,
) -> Built:
    wanted = signature(source, types, num_warps, cluster)
    built = _built(source, wanted, target)
    defaults = {p.name: p.default for p in source.parameters}
    given = [named.get(name, defaults[name]) for name, _ in wanted.arguments]
    passed = [_emulated(value, p.type) for value, p in zip(given, built.module.params)]
    extents = (*grid, 1, 1)[:3]
    if size := built.module.attrs.get("workspace", 0):
        passed.append(np.full(size * int(np.prod(extents)), POISON, np.uint8))
    launch(built.llvm, extents, built.threads, passed, built.shared, built.warp_size, cluster=cluster, seed=seed)
    return built


def _emulated(value: Any, type_: Any) -> Any:
    """An argument as the emulator takes it: descriptors as tensor maps of the boxes that the compiled kernel wants,
    innermost dimension first."""
    if not isinstance(value, Blocks):
        return value
    from tlxc.codegen.nvptx.boxes import box_of
    from tlxc.emulator import TensorMap

    box, view = box_of(type_), value.view()
    rows = view.strides[:-1]
    return TensorMap(
        (value.array, value.offset),
        view.shape[::-1],
        rows[::-1],
        box.box[::-1],
        swizzle=box.swizzle,
        dtype=view.dtype,
        fill=np.nan if value.padding == "nan" else 0.0,
    )


# ------------------------------------------------------------------------------------------------------------- backends
def memory_of(buffer: Buffer, tail: int) -> tuple[Array, int]:
    """(bytes with guard zones, where the data starts)"""
    data = buffer.data
    start = GUARD + buffer.offset * data.dtype.itemsize
    fill = FENCE if isinstance(buffer, In) else POISON
    memory = np.full(start + data.nbytes + tail, fill, np.uint8)
    memory[start : start + data.nbytes] = _bytes(data)
    return memory, start


def check_memory(launch: Launch, memories: Mapping[str, tuple[Array, int]], after: Mapping[str, Array]) -> None:
    """Compares the bytes after the launch with what was expected, guard zones included."""
    for name, (memory, start) in memories.items():
        before = launch.args[name].data
        expect = launch.expect.get(name)
        data = slice(start, start + before.nbytes)
        same = memory == after[name]
        if expect is not None:
            same[data] = True
        assert same.all(), f"{name}: bytes changed that no one may write, the first at {int(np.argmin(same)) - start}"
        if expect is not None:
            found = after[name][data].view(before.dtype).reshape(before.shape)
            _compare(name, expect, before, found)


def run_emulated(case: Case, target: str, seed: int | None = None) -> Built | None:
    """Runs a case in the emulator and checks memory; None for an empty grid, which runs nothing.  `seed`: warps and
    asynchronous copies go in random order."""
    from tlxc.emulator import launch as run

    from .agreement import check_case

    launch = case.launch(big=False)
    if 0 in launch.grid:
        return None
    memories = {name: memory_of(v, 0) for name, v in launch.args.items() if isinstance(v, (In, Out, InOut))}
    after = {name: memory.copy() for name, (memory, _) in memories.items()}
    named = dict(launch.args)
    for name, (_, start) in memories.items():
        buffer, bytes_ = launch.args[name], after[name]
        data, dtype = buffer.data, dtype_of(buffer.data)
        named[name] = (bytes_, start)
        if buffer.block is not None:
            named[name] = Blocks(bytes_, buffer.block, buffer.padding, start, data.shape, dtype)
    source = Source.of(case.kernel)
    built = _emulate(source, launch.grid, named, _types(launch), case.num_warps, target, run, case.cluster, seed)
    check_memory(launch, memories, after)
    check_case(case, launch, after, "the emulator", target)
    return built


def compile_case(case: Case, target: str) -> Built:
    """The LLVM IR of a case; every pass is followed by the verifier."""
    source = Source.of(case.kernel)
    return _built(source, signature(source, _types(case.launch(big=False)), case.num_warps, case.cluster), target)


def _types(launch: Launch) -> dict[str, Any]:
    """The arguments as `signature` takes them."""
    types = dict(launch.args)
    for name, v in launch.args.items():
        if isinstance(v, (In, Out, InOut)):
            dtype = dtype_of(v.data)
            types[name] = (dtype, GUARD + v.offset * dtype.bytes) if v.block is None else Descriptor(v.block, dtype)
    return types


def run_on_gpu(case: Case) -> None:
    """Launches a case on device 0, checks memory and compares it with what the simulator makes of the same launch; of
    the small launch where that one takes the simulator too long."""
    from .agreement import NOTES, SECONDS, TOO_LONG, check_case, target_of_device

    for big in (True, False):
        launch = case.launch(big)
        after = _launched(case, launch)
        if check_case(case, launch, after, "the GPU", target_of_device(), SECONDS, GUARD):
            return
    NOTES[TOO_LONG] += 1


def _launched(case: Case, launch: Launch) -> dict[str, Array]:
    """The memories after a launch on torch tensors, checked."""
    import torch

    memories = {name: memory_of(v, GUARD) for name, v in launch.args.items() if isinstance(v, (In, Out, InOut))}
    device = {name: torch.from_numpy(memory).cuda() for name, (memory, _) in memories.items()}
    args = dict(launch.args)
    for name, (_, start) in memories.items():
        data = launch.args[name].data
        view = device[name][start : start + data.nbytes].view(_torch_dtype(dtype_of(data)))
        args[name] = view.reshape(data.shape)
        if (block := launch.args[name].block) is not None:
            padding = launch.args[name].padding
            args[name] = tlxc.TensorDescriptor.from_tensor(args[name], block, padding)
    case.kernel[launch.grid](**args, num_warps=case.num_warps, ctas_per_cga=case.cluster)
    torch.cuda.synchronize()
    after = {name: memory.cpu().numpy() for name, memory in device.items()}
    check_memory(launch, memories, after)
    return after


def launch_on_gpu(
    kernel: Any,
    grid: Sequence[int],
    *args: Any,
    num_warps: int = 4,
    ctas_per_cga: Cluster = (1, 1, 1),
    **constants: Any,
) -> None:
    """`emulate` on device 0: NumPy arrays are copied there and back; `(array, byte offset)` becomes a view."""
    from .agreement import SECONDS, agreement_of, target_of_device

    named = named_arguments(kernel, args, constants)
    with agreement_of(kernel, grid, named, num_warps, ctas_per_cga, "the GPU", target_of_device(), SECONDS):
        _launch_on_gpu(kernel, grid, named, num_warps, ctas_per_cga)


def _launch_on_gpu(
    kernel: Any, grid: Sequence[int], named: Mapping[str, Any], num_warps: int, ctas_per_cga: Cluster
) -> None:
    import torch

    passed, back = {}, []
    for name, value in named.items():
        if isinstance(value, Blocks):
            view = value.view()
            memory = torch.from_numpy(_bytes(view).copy()).cuda()
            tensor = memory.view(_torch_dtype(value.type.dtype)).reshape(view.shape)
            back.append((view, memory))
            value = tlxc.TensorDescriptor.from_tensor(tensor, value.block, value.padding)
        elif isinstance(value, np.ndarray) or _is_view(value):
            array, offset = value if _is_view(value) else (value, 0)
            memory = torch.from_numpy(_bytes(array).copy()).cuda()
            value = memory[offset:].view(_torch_dtype(dtype_of(array)))
            back.append((array, memory))
        passed[name] = value
    kernel[tuple(grid)](**passed, num_warps=num_warps, ctas_per_cga=ctas_per_cga)
    torch.cuda.synchronize()
    for array, memory in back:
        array[...] = memory.cpu().numpy().view(array.dtype).reshape(array.shape)


def _torch_dtype(dtype: DType) -> Any:
    import torch

    return getattr(torch, "bool" if dtype.kind == "bool" else dtype.name)
