"""The functions of `tlx` on buffers, barriers, descriptors and tasks: the ops that they build, and every error in full.

Kernels are put together by hand, without the frontend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_language import Kernel

from tlxc.errors import CompileError
from tlxc.ir.core import Param, Value
from tlxc.ir.memory import row_major, swizzled
from tlxc.ir.types import Descriptor, DType, Pointer, Scalar
from tlxc.language import tl, tlx
from tlxc.language.context import Context, TaskCopy, building, current
from tlxc.language.core import tensor
from tlxc.language.handles import tensor_descriptor, wrap
from tlxc.targets import get_target

I64 = tl.int64


class Tile(Kernel):
    """A kernel that also makes what tlx works on."""

    def desc(self, *shape: int, dtype: DType = tl.float16) -> tensor_descriptor:
        value = Value(Descriptor(shape, dtype), name="d")
        self.module.params.append(Param(value))
        made = wrap(value)
        assert isinstance(made, tensor_descriptor)
        return made

    def number(self, dtype: DType = tl.int32) -> tensor:
        return self.param(dtype, "i")

    def buf(self, *shape: int, dtype: DType = tl.float16, num: int = 1) -> Any:
        made = tlx.local_alloc(shape, dtype, num)
        return made if num > 1 else made[0]

    def bar(self, num: int = 1) -> Any:
        made = tlx.alloc_barriers(num)
        return made if num > 1 else made[0]


@pytest.fixture
def k() -> Iterator[Tile]:
    kernel = Tile()
    with building(Context(kernel.builder, get_target("sm_90"))):
        yield kernel


def made(
    k: Tile, slot: Any = None, shape: Any = (8, 64), strides: Any = (64, 1), block: Any = (8, 64), padding: str = "zero"
) -> Any:
    """A descriptor of halves that the kernel makes."""
    return tlx.make_tensor_descriptor(slot, k.param(Pointer(tl.float16)), shape, strides, block, padding)


def tail(k: Tile, count: int) -> list[str]:
    """The last lines of the verified kernel."""
    return k.text().splitlines()[-count:]


# ------------------------------------------------------------------------------------------------------------ handles
def test_an_array_of_buffers_is_indexed(k: Tile) -> None:
    array = tlx.local_alloc((8, 16), tl.float16, 3)
    assert (array.shape, array.dtype) == ((8, 16), tl.float16)
    one, other = array[2], tlx.local_view(array, k.number(tl.int64))
    assert one.shape == other.shape == (8, 16)
    assert k.text().splitlines() == [
        "%0 = local_alloc : buffer<3 * 8x16xf16, smem>",
        "%1 = constant {value = 2} : i32",
        "%2 = local_view %0, %1 : buffer<8x16xf16, smem>",
        "%3 = cast %i : i32",
        "%4 = local_view %0, %3 : buffer<8x16xf16, smem>",
    ]


def test_barriers_are_indexed_and_keep_their_flavour(k: Tile) -> None:
    tlx.alloc_barriers(2, arrive_count=3)[1]
    assert tlx.alloc_warp_barrier(4, num_warps=8, num_arrivals=2)[0].barrier.warp
    assert k.text().splitlines() == [
        "%0 = alloc_barriers {arrive_count = 3} : barrier<2>",
        "%1 = constant {value = 1} : i32",
        "%2 = barrier_view %0, %1 : barrier",
        "%3 = alloc_barriers {arrive_count = 512} : barrier<4, warp>",
        "%4 = constant {value = 0} : i32",
        "%5 = barrier_view %3, %4 : barrier<warp>",
    ]


def test_dtype_of_takes_buffers_and_descriptors(k: Tile) -> None:
    assert tlx.dtype_of(k.buf(4, dtype=tl.int8)) == tl.int8
    assert tlx.dtype_of(k.desc(8, 64, dtype=tl.bfloat16)) == tl.bfloat16
    assert k.desc(8, 64).block_shape == (8, 64)


# -------------------------------------------------------------------------------------------------------------- views
VIEWS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda b: tlx.local_trans(b), "local_trans %2 {order = (1, 0)} : buffer<64x32xf16, smem>"),
    (lambda b: tlx.local_slice(b, [8, 0], [16, 64]), "local_slice %2 {offsets = (8, 0)} : buffer<16x64xf16, smem>"),
    (lambda b: tlx.local_reinterpret(b, tl.float32), "local_reinterpret %2 : buffer<32x32xf32, smem>"),
    (lambda b: tlx.local_reinterpret(b, tl.int8, (64,)), "local_reinterpret %2 : buffer<64xi8, smem>"),
    (lambda b: tlx.local_reshape(b, (2048,)), "local_reinterpret %2 : buffer<2048xf16, smem>"),
]


@pytest.mark.parametrize("make, text", VIEWS)
def test_view(k: Tile, make: Callable[[Any], Any], text: str) -> None:
    make(k.buf(32, 64))
    assert tail(k, 1) == [f"%3 = {text}"]


def test_an_array_is_reinterpreted_buffer_by_buffer(k: Tile) -> None:
    tlx.local_reinterpret(k.buf(4, 8, num=2), tl.int32, (2, 8))
    assert tail(k, 1) == ["%1 = local_reinterpret %0 : buffer<2 * 2x8xi32, smem>"]


# ----------------------------------------------------------------------------------------------------------- accesses
def test_load_store_and_fill(k: Tile) -> None:
    b = k.buf(8, 16)
    tlx.local_store(b, tlx.local_load(b))
    tlx.local_store(b, 0)
    tlx.local_store(b, k.param(tl.float16))
    assert tail(k, 7) == [
        "%3 = local_load %2 : tensor<8x16xf16>",
        "local_store %2, %3",
        "%4 = constant {value = 0x0.0p+0} : f16",
        "%5 = splat %4 : tensor<8x16xf16>",
        "local_store %2, %5",
        "%6 = splat %p : tensor<8x16xf16>",
        "local_store %2, %6",
    ]


def test_load_in_a_layout(k: Tile) -> None:
    rows = tlx.layout(shape=((128,), (64,)), stride=((64,), (1,)))
    tlx.local_load(k.buf(128, 64), layout=rows)
    assert k.kinds[-2:] == ["local_load", "require_layout"]


def test_gather_and_scatter(k: Tile) -> None:
    b, places = k.buf(8, 16), k.tile(tl.int32, 4, 16)
    tlx.local_scatter(b, tlx.local_gather(b, places, 0), places, -2)
    assert tail(k, 2) == [
        "%4 = local_gather %2, %3 {axis = 0} : tensor<4x16xf16>",
        "local_scatter %2, %4, %3 {axis = 0}",
    ]


# ----------------------------------------------------------------------------------------------------------- barriers
def test_barrier_operations(k: Tile) -> None:
    bar, on = k.bar(), k.param(tl.int1, "on")
    tlx.barrier_expect_bytes(bar, 1024)
    tlx.barrier_expect_bytes(bar, 16, pred=on)
    tlx.barrier_wait(bar, k.number(), pred=True)
    tlx.barrier_arrive(bar, 2, pred=on)
    tlx.named_barrier_wait(9, 256)
    tlx.named_barrier_arrive(9, 256)
    for scope in ("async_shared", "gpu", "sys"):
        tlx.fence(scope)
    tlx.fence_async_shared()
    assert tail(k, 12) == [
        "barrier_expect %2, _ {bytes = 1024}",
        "barrier_expect %2, %on {bytes = 16}",
        "barrier_wait %2, %i, _",
        "barrier_arrive %2, %on, _ {count = 2}",
        "%3 = constant {value = 9} : i32",
        "named_barrier_wait %3 {threads = 256}",
        "%4 = constant {value = 9} : i32",
        "named_barrier_arrive %4 {threads = 256}",
        "fence_async_shared",
        'fence {scope = "gpu"}',
        'fence {scope = "sys"}',
        "fence_async_shared",
    ]


# ---------------------------------------------------------------------------------------------------------------- TMA
def test_descriptor_copies(k: Tile) -> None:
    d, b, bar, i = k.desc(8, 64), k.buf(8, 64), k.bar(), k.number()
    tlx.async_descriptor_load(d, b, [i, i], bar, pred=k.param(tl.int1, "on"), eviction_policy="evict_first")
    tlx.async_descriptor_store(d, b, [i, i])
    tlx.async_descriptor_store(d, b, (i, i), store_reduce="add")
    tlx.async_descriptor_store_wait(1, read=True)
    tlx.async_descriptor_store_wait()
    tlx.async_descriptor_prefetch_tensor(d, [i, i])
    tlx.prefetch_descriptor(d)
    assert tail(k, 7) == [
        'tma_load %d, %2, %5, %on, _, %i, %i {eviction = "evict_first"}',
        "tma_store %d, %2, %i, %i",
        'tma_store %d, %2, %i, %i {reduce = "add"}',
        "tma_store_wait {pendings = 1, read = true}",
        "tma_store_wait {pendings = 0, read = false}",
        "tma_prefetch %d, _, %i, %i",
        "prefetch_descriptor %d",
    ]


def test_descriptors_are_made(k: Tile) -> None:
    n, m = k.number(), k.number(I64)
    slots = tlx.allocate_tensor_descriptor(3)
    d = tlx.make_tensor_descriptor(slots[n], k.param(Pointer(tl.float16)), [n, 64], [m, 1], [8, 64], "nan")
    again = tlx.reinterpret_tensor_descriptor(slots[0], [8, 64], tl.float16)
    assert (d.shape, d.strides, d.block_shape, d.dtype) == ((n, 64), (m, 1), (8, 64), tl.float16)
    assert (again.block_shape, again.dtype) == ((8, 64), tl.float16) and not hasattr(again, "shape")
    own = made(k)
    assert own.shape == (8, 64) and k.module.attrs["workspace"] == 128 * 4
    text = k.text()
    for line in (
        "%0 = local_alloc : buffer<128xu8, smem>",
        "%1 = descriptor_slots {count = 3, offset = 0} : ptr<u8>",
        "%2 = descriptor_slot %1, %i : ptr<u8>",
        '{padding = "nan"}',
        "descriptor_slots {count = 1, offset = 384} : ptr<u8>",
        '{padding = "zero"}',
    ):
        assert line in text, text
    assert text.count("acquire_descriptor") == 3 and text.count("encode_descriptor") == 2


def test_a_block_may_have_leading_ones(k: Tile) -> None:
    tlx.async_descriptor_load(k.desc(8, 64), k.buf(1, 8, 64), [0, 0], k.bar())
    assert k.last.kind == "tma_load"


def test_multicast_is_a_mask_of_ranks(k: Tile) -> None:
    k.module.cluster = (4, 1, 1)
    d, b, bar = k.desc(8, 64), k.buf(8, 64), k.bar()
    tlx.async_descriptor_load(d, b, [0, 0], bar, multicast_targets=[0, 3])
    assert tail(k, 2) == ["%8 = constant {value = 9} : i32", "tma_load %d, %2, %5, _, %8, %6, %7"]
    tlx.async_descriptor_load(d, b, [0, 0], bar, multicast_targets=range(3))
    assert k.text().splitlines()[-2] == "%11 = constant {value = 7} : i32"
    tlx.async_descriptor_load(d, b, [0, 0], bar, multicast_targets=[k.number()])
    assert "shl" in k.kinds


def test_copies_by_threads(k: Tile) -> None:
    p, b = k.tile(Pointer(tl.float16), 8, 64), k.buf(8, 64)
    token = tlx.async_load(p, b)
    tlx.async_load(p, b, mask=k.param(tl.int1, "on"), other=1.0, cache_modifier=".cg")
    tlx.local_load(b, token=tlx.async_load_wait_group(1, [tlx.async_load_commit_group([token])]))
    assert tail(k, 8) == [
        "%4 = async_load %0, %3, _, _ : token",
        "%5 = splat %on : tensor<8x64xi1>",
        "%6 = constant {value = 0x1.0000000000000p+0} : f16",
        "%7 = splat %6 : tensor<8x64xf16>",
        '%8 = async_load %0, %3, %5, %7 {cache = ".cg"} : token',
        "%9 = async_load_commit %4 : token",
        "%10 = async_load_wait %9 {pendings = 1} : token",
        "%11 = local_load %3 : tensor<8x64xf16>",
    ]


def test_bulk_copies(k: Tile) -> None:
    p, b, bar = k.param(Pointer(tl.float32)), k.buf(64, dtype=tl.float32), k.bar()
    assert tlx.async_load(p, b, bulk=True, barrier=bar) is None
    tlx.async_load(p, b, bulk=True, barrier=bar, bulk_size=128)
    tlx.async_store(p, b, k.number())
    assert tail(k, 4) == [
        "bulk_load %p, %2, %5, _, _",
        "%6 = constant {value = 128} : i32",
        "bulk_load %p, %2, %5, %6, _",
        "bulk_store %p, %2, %i",
    ]


# ---------------------------------------------------------------------------------------------------------- async dot
def test_async_dot(k: Tile) -> None:
    a, b = k.buf(64, 32), k.buf(128, 32)
    acc = tlx.async_dot(a, tlx.local_trans(b))
    acc = tlx.async_dot(tlx.local_load(a), tlx.local_trans(b), acc)
    other = tlx.async_dot(a, tlx.local_trans(b), acc, use_acc=False)
    tlx.async_dot(a, tlx.local_trans(b), None, use_acc=k.param(tl.int1, "on"))
    other = tlx.async_dot(a, tlx.local_trans(b), other, use_acc=k.param(tl.int1, "use"))
    acc, other = tlx.async_dot_wait(1, (acc, other))
    assert tlx.async_dot_wait(0, acc).shape == (64, 128)
    assert [line for line in k.text().splitlines() if "async_dot" in line] == [
        "%7 = async_dot %2, %6, _, _ : tensor<64x128xf32>",
        "%10 = async_dot %8, %9, %7, _ : tensor<64x128xf32>",
        "%12 = async_dot %2, %11, _, _ : tensor<64x128xf32>",
        "%14 = async_dot %2, %13, _, _ : tensor<64x128xf32>",
        "%16 = async_dot %2, %15, %12, %use : tensor<64x128xf32>",
        "%17, %18 = async_dot_wait %10, %16 {pendings = 1} : tensor<64x128xf32>, tensor<64x128xf32>",
        "%19 = async_dot_wait %17 {pendings = 0} : tensor<64x128xf32>",
    ]


# ----------------------------------------------------------------------------------------------------------- clusters
def test_a_dot_of_tf32(k: Tile) -> None:
    a, b = k.buf(64, 8, dtype=tl.float32), k.buf(16, 8, dtype=tl.float32)
    tlx.async_dot(a, tlx.local_trans(b), input_precision="tf32")
    assert tail(k, 2) == [
        "%6 = local_trans %5 {order = (1, 0)} : buffer<8x16xf32, smem>",
        "%7 = async_dot %2, %6, _, _ : tensor<64x16xf32>",
    ]


def test_votes_of_a_warp(k: Tile) -> None:
    assert tlx.warp_any(k.tile(tl.int1, 64)).type == Scalar(tl.int1, "warp")
    tlx.warp_all(tlx.thread_id(0))
    assert tail(k, 1) == ["%5 = warp_vote %4 {mode = \"all\"} : i1@warp"]


def test_votes_and_prefetches(k: Tile) -> None:
    assert tlx.vote_ballot_sync(-1, k.tile(tl.int32, 64)).shape == (64,)
    tlx.vote_ballot_sync(0xFF, tlx.thread_id(0) > 3)
    assert tail(k, 1) == ["%8 = vote %7 {mask = 255} : i32@warp"]
    x = k.param(Pointer(tl.float16), "x")
    tlx.prefetch(x + tl.arange(0, 64), "L1", mask=True)
    tlx.prefetch(x)
    tlx.prefetch(k.desc(8, 64), tensormap=True)
    assert tail(k, 3) == [
        'prefetch %11, %13 {level = "L1"}', 'prefetch %x, _ {level = "L2"}', "prefetch_descriptor %d",
    ]  # fmt: skip


def test_a_buffer_keeps_the_layout_of_its_author(k: Tile) -> None:
    swizzle = tlx.swizzled_layout(3, 3, 3)
    assert tlx.layout(swizzle) is swizzle
    made = tlx.local_alloc((64, 64), tl.float16, 2, layout=swizzle)
    assert made.buffer.layout == swizzled((64, 64), 2, 128)  # what TMA and wgmma know
    assert made.value.op is not None and made.value.op.attrs == {"pinned": True}
    assert tlx.local_trans(made[0]).buffer.layout is None  # follows from its source
    plain = tlx.local_alloc((8, 4, 16), tl.float16, 1, layout=tlx.swizzled_layout.make_default(3))
    assert plain.buffer.layout == row_major((8, 4, 16))


@pytest.mark.parametrize(
    ("form", "shape", "vectors"),
    [((2, 0, 2), (4, 4), (1, 1, 4)), ((2, 0, 3), (4, 4), (1, 2, 4)), ((2, 1, 2), (4, 8), (2, 1, 4)),
     ((3, 0, 6), (128, 64), (1, 1, 8))],
)  # fmt: skip
def test_swizzles_permute_vectors_of_rows(form: Any, shape: tuple[int, int], vectors: tuple[int, int, int]) -> None:
    vec, per_phase, phases = vectors
    made = tlx.swizzled_layout(*form).resolve(shape, 4)
    for r in range(shape[0]):
        for c in range(shape[1]):
            wanted = r * shape[1] + ((c // vec) ^ (r // per_phase % phases)) * vec + c % vec
            assert made.offset((r, c)) == wanted


def test_the_contiguous_dimension_comes_first_in_the_order() -> None:
    made = tlx.swizzled_layout(2, 0, 2, order=(0, 1)).resolve((4, 8), 4)
    assert made.offset((1, 0)) == 1 and made.offset((0, 1)) == 4 ^ 1


def test_cluster_operations(k: Tile) -> None:
    k.module.cluster = (2, 1, 1)
    b, c, bar = k.buf(4, 8), k.buf(4, 8), k.bar()
    rank = tlx.cluster_cta_rank()
    tlx.cluster_size_1d()
    tlx.fence_mbarrier_init_cluster()
    tlx.cluster_barrier()
    tlx.barrier_arrive(bar, remote_cta_rank=0)
    tlx.remote_shmem_store(b, tlx.local_load(b), rank)
    tlx.async_remote_shmem_store(b, 0.0, rank, bar)
    tlx.async_remote_shmem_copy(b, c, rank, bar)
    assert tail(k, 12) == [
        "%9 = cluster_rank : i32",
        "%10 = cluster_size : i32",
        "fence_mbarrier_init",
        "cluster_barrier",
        "%11 = constant {value = 0} : i32",
        "barrier_arrive %8, _, %11 {count = 1}",
        "%12 = local_load %2 : tensor<4x8xf16>",
        "remote_store %2, %12, %9",
        "%13 = constant {value = 0x0.0p+0} : f16",
        "%14 = splat %13 : tensor<4x8xf16>",
        "async_remote_store %2, %14, %9, %8",
        "async_remote_copy %2, %5, %9, %8",
    ]


def test_dependent_launch(k: Tile) -> None:
    tlx.gdc_wait()
    tlx.gdc_launch_dependents()
    assert tail(k, 2) == ['grid_dependency {action = "wait"}', 'grid_dependency {action = "launch_dependents"}']


# -------------------------------------------------------------------------------------------------------------- tasks
def test_thread_level_values(k: Tile) -> None:
    assert tlx.thread_id(0).type == Scalar(tl.int32, "thread")
    assert tlx.clock64().type == Scalar(tl.int64, "thread")
    assert (tlx.thread_id(1) + 1).type == Scalar(tl.int32, "thread")


def test_buffer_and_phase_of_a_trip(k: Tile) -> None:
    assert [tlx.get_bufidx_phase(n, 3) for n in (0, 2, 3, 5, 6)] == [(0, 0), (2, 0), (0, 1), (2, 1), (0, 0)]
    stage, phase = tlx.get_bufidx_phase(k.number(), 4)
    assert k.kinds == ["cast", "constant", "rem", "cast", "constant", "idiv", "constant", "and", "cast"]
    assert stage.dtype == phase.dtype == tl.int32
    k.kinds.clear()
    assert tlx.get_bufidx_phase(k.number().to(tl.uint32), 4)[0].dtype == tl.uint32


def test_replica_and_warps_of_the_task(k: Tile) -> None:
    assert current().num_warps == 4
    current().task = TaskCopy(8, 1)
    assert (current().num_warps, tlx.async_task_replica_id()) == (8, 1)


# ------------------------------------------------------------------------------------------------------------- errors
LOCAL_BARRIER = (
    "  found: the remote_view of a barrier\n"
    "  allowed: a barrier of this CTA\n"
    "  fix: pass the barrier itself: barrier_arrive(bar, remote_cta_rank=rank) arrives in another CTA, and a CTA waits "
    "at its own barriers"
)
SWIZZLES = (
    "  allowed: bits = 0 for any shape; else rank 2, rows of a power of two of at least 2**(bits + base) elements and "
    "at most 2**(shift + base)\n"
    "  fix: leave the layout out, and the compiler takes the widest swizzle that TMA and wgmma read"
)


def _remote(k: Tile) -> Any:
    """The remote_view of a barrier, in a cluster of two."""
    k.module.cluster = (2, 1, 1)
    return tlx.remote_view(k.bar(), 1)


CASES: list[tuple[str, Callable[[Tile], Any], str]] = [
    # handles
    (
        "index_out_of_range",
        lambda k: k.buf(8, num=3)[3],
        "error: the index of a buffer is out of range\n"
        "  found: 3 in an array of 3 buffers (8,) of tl.float16\n"
        "  allowed: 0 to 2",
    ),
    (
        "index_of_one_buffer",
        lambda k: k.buf(8)[0],
        "error: only an array of buffers is indexed\n"
        "  found: a buffer (8,) of tl.float16\n"
        "  fix: take a part of it with tlx.local_slice",
    ),
    (
        "index_of_one_barrier",
        lambda k: k.bar()[0],
        "error: only an array of barriers is indexed\n  found: a barrier\n  fix: use it without an index",
    ),
    (
        "index_is_a_float",
        lambda k: k.buf(8, num=2)[k.number(tl.float32)],
        "error: the index of a buffer is an integer scalar\n"
        "  found: a scalar tl.float32\n"
        "  allowed: ints, and run-time integer scalars\n"
        "  fix: convert it with `.to(tl.int32)`",
    ),
    (
        "index_differs_between_threads",
        lambda k: k.buf(8, num=2)[tlx.thread_id(0)],
        "error: the index of a buffer differs between the threads of the task\n"
        "  found: a value that is known per thread only\n"
        "  allowed: values that all threads of the task agree on",
    ),
    (
        "scalar_pointer_differs_between_threads",
        lambda k: k.param(Pointer(tl.float16)) + tlx.thread_id(0),
        "error: the offset of a scalar pointer differs between the threads of the task\n"
        "  found: a value that is known per thread only\n"
        "  allowed: values that all threads of the task agree on",
    ),
    (
        "comparison",
        lambda k: k.buf(8) == 3,
        "error: a buffered_tensor is neither compared nor true or false\n"
        "  found: a buffer (8,) of tl.float16\n"
        "  allowed: indexing, and the functions of tlx that take it",
    ),
    (
        "unpacking",
        lambda k: list(k.bar(2)),
        "error: a mbarrier cannot be iterated or unpacked\n"
        "  found: an array of 2 barriers\n"
        "  fix: index it: x[0], x[i]",
    ),
    (
        "arithmetic_with_a_buffer",
        lambda k: k.number() + k.buf(8),
        "error: this value does not exist at run time\n"
        "  found: a buffer (8,) of tl.float16\n"
        "  allowed: tiles, scalars, pointers, and Python bools, ints and floats",
    ),
    # buffers
    (
        "alloc_num",
        lambda k: tlx.local_alloc((8,), tl.float16, 0),
        "error: num of local_alloc is 1 or more\n  found: 0\n  fix: write 1 for a single buffer",
    ),
    (
        "alloc_num_at_run_time",
        lambda k: tlx.local_alloc((8,), tl.float16, k.number()),
        "error: num of local_alloc must be a compile-time integer\n"
        "  found: a scalar tl.int32\n"
        "  fix: pass the value as a tl.constexpr parameter",
    ),
    (
        "alloc_scalar",
        lambda k: tlx.local_alloc((), tl.float16, 1),
        "error: a buffer has a shape\n  found: the shape ()\n  fix: write (1,) for one element",
    ),
    (
        "alloc_in_tensor_memory",
        lambda k: tlx.local_alloc((128, 64), tl.float32, 1, tlx.storage_kind.tmem),
        "error: tensor memory does not exist on sm_90\n"
        "  found: a target without the feature tcgen05\n"
        "  fix: compile for a target that has it, or choose the code by target",
    ),
    (
        "alloc_elsewhere",
        lambda k: tlx.local_alloc((8,), tl.float16, 1, tlx.storage_kind.smemCluster),
        "error: local_alloc takes shared memory only\n"
        "  found: <storage_kind.smemCluster: 'smemCluster'> (storage_kind)\n"
        "  allowed: storage_kind.smem",
    ),
    (
        "view_of_a_tile",
        lambda k: tlx.local_view(k.tile(tl.int32, 8), 0),
        "error: local_view takes an array of buffers or barriers\n"
        "  found: a tile (8,) of tl.int32\n"
        "  fix: allocate it with tlx.local_alloc or tlx.alloc_barriers",
    ),
    (
        "trans_order",
        lambda k: tlx.local_trans(k.buf(8, 8), (0, 0)),
        "error: the dims of local_trans are no permutation\n"
        "  found: (0, 0) for a buffer (8, 8) of tl.float16\n"
        "  allowed: each of 0, 1 once",
    ),
    (
        "slice_outside",
        lambda k: tlx.local_slice(k.buf(8, 8), [4, 0], [8, 8]),
        "error: the box of local_slice leaves the buffer\n"
        "  found: offset (4, 0), shape (8, 8) in a buffer (8, 8) of tl.float16",
    ),
    (
        "slice_rank",
        lambda k: tlx.local_slice(k.buf(8, 8), [4], [8]),
        "error: local_slice takes one offset and one extent per dimension\n"
        "  found: offset (4,), shape (8,) for a buffer (8, 8) of tl.float16",
    ),
    (
        "reinterpret_larger",
        lambda k: tlx.local_reinterpret(k.buf(8), tl.float32, (8,)),
        "error: local_reinterpret needs more bytes than the buffer has\n"
        "  found: 32 bytes for (8,) of tl.float32, 16 bytes in a buffer (8,) of tl.float16",
    ),
    (
        "reinterpret_array",
        lambda k: tlx.local_reinterpret(k.buf(8, num=2), tl.float32, (2,)),
        "error: local_reinterpret of an array keeps the size of its buffers\n"
        "  found: 8 bytes for (2,) of tl.float32, 16 bytes in an array of 2 buffers (8,) of tl.float16",
    ),
    (
        "reinterpret_row",
        lambda k: tlx.local_reinterpret(k.buf(4, 3), tl.float32),
        "error: the innermost row is no whole number of the new elements\n"
        "  found: 6 bytes in a buffer (4, 3) of tl.float16, elements of tl.float32\n"
        "  fix: give the shape",
    ),
    (
        "reshape_elements",
        lambda k: tlx.local_reshape(k.buf(8), (4,)),
        "error: local_reshape keeps the number of elements\n  found: (4,) of a buffer (8,) of tl.float16",
    ),
    (
        "load_of_an_array",
        lambda k: tlx.local_load(k.buf(8, num=2)),
        "error: the source of local_load is one buffer\n"
        "  found: an array of 2 buffers (8,) of tl.float16\n"
        "  fix: index the array: buf[i]",
    ),
    (
        "load_of_a_tile",
        lambda k: tlx.local_load(k.tile(tl.int32, 8)),
        "error: the source of local_load is a buffer in shared memory\n"
        "  found: a tile (8,) of tl.int32\n"
        "  fix: allocate it with tlx.local_alloc",
    ),
    (
        "load_token",
        lambda k: tlx.local_load(k.buf(8), token=3),
        "error: token is what tlx.async_load_wait_group gives\n  found: the compile-time value 3",
    ),
    (
        "store_arguments_swapped",
        lambda k: tlx.local_store(k.tile(tl.float16, 8), k.buf(8)),
        "error: local_store takes the buffer first\n"
        "  found: local_store(a tile (8,) of tl.float16, a buffer (8,) of tl.float16)\n"
        "  fix: write tlx.local_store(buffer, value)",
    ),
    (
        "store_dtype",
        lambda k: tlx.local_store(k.buf(8), k.tile(tl.float32, 8)),
        "error: the value of local_store differs from the buffer\n"
        "  found: a tile (8,) of tl.float32 into a buffer (8,) of tl.float16\n"
        "  allowed: a tile (8,) of tl.float16, or a scalar\n"
        "  fix: convert it with `.to(tl.float16)`",
    ),
    (
        "store_shape",
        lambda k: tlx.local_store(k.buf(8), k.tile(tl.float16, 4)),
        "error: the value of local_store differs from the buffer\n"
        "  found: a tile (4,) of tl.float16 into a buffer (8,) of tl.float16\n"
        "  allowed: a tile (8,) of tl.float16, or a scalar",
    ),
    (
        "store_a_buffer",
        lambda k: tlx.local_store(k.buf(8), k.buf(8)),
        "error: local_store writes a tile or a scalar\n  found: a buffer (8,) of tl.float16",
    ),
    (
        "gather_rank",
        lambda k: tlx.local_gather(k.buf(8, 8), k.tile(tl.int32, 8), 0),
        "error: the indices of local_gather are an integer tile of the buffer's rank\n"
        "  found: a tile (8,) of tl.int32 for a buffer (8, 8) of tl.float16",
    ),
    (
        "gather_extent",
        lambda k: tlx.local_gather(k.buf(8, 8), k.tile(tl.int32, 4, 16), 0),
        "error: the indices of local_gather reach beyond the buffer\n"
        "  found: a tile (4, 16) of tl.int32 for a buffer (8, 8) of tl.float16, axis 0\n"
        "  allowed: extents up to those of the buffer on the other axes",
    ),
    (
        "scatter_value",
        lambda k: tlx.local_scatter(k.buf(8), k.tile(tl.float32, 4), k.tile(tl.int32, 4), 0),
        "error: the value of local_scatter has the shape of the indices and the dtype of the buffer\n"
        "  found: a tile (4,) of tl.float32\n"
        "  allowed: a tile (4,) of tl.float16",
    ),
    # barriers
    (
        "no_arrival",
        lambda k: tlx.alloc_barriers(2, arrive_count=0),
        "error: arrive_count is out of range\n  found: 0\n  allowed: 1 to 1048575",
    ),
    (
        "no_barrier",
        lambda k: tlx.alloc_barriers(0),
        "error: num_barriers is out of range\n  found: 0\n  allowed: 1 to 4096",
    ),
    (
        "wait_at_an_array",
        lambda k: tlx.barrier_wait(k.bar(2), 0),
        "error: the barrier of barrier_wait is one barrier\n"
        "  found: an array of 2 barriers\n"
        "  fix: index the array: bar[i]",
    ),
    (
        "wait_at_a_buffer",
        lambda k: tlx.barrier_wait(k.buf(8), 0),
        "error: the barrier of barrier_wait is an mbarrier\n"
        "  found: a buffer (8,) of tl.float16\n"
        "  fix: allocate it with tlx.alloc_barriers",
    ),
    (
        "wait_phase",
        lambda k: tlx.barrier_wait(k.bar(), 2),
        "error: the phase of barrier_wait is a parity\n  found: 2\n  allowed: 0 or 1",
    ),
    (
        "wait_pred",
        lambda k: tlx.barrier_wait(k.bar(), 0, pred=k.number()),
        "error: pred is a bool scalar\n  found: a scalar tl.int32\n  fix: compare: pred=i > 0, or pred=x != 0",
    ),
    (
        "expect_nothing",
        lambda k: tlx.barrier_expect_bytes(k.bar(), 0),
        "error: the size of barrier_expect_bytes is out of range\n  found: 0\n  allowed: 1 to 1048575",
    ),
    (
        "remote_arrive_without_a_cluster",
        lambda k: tlx.barrier_arrive(k.bar(), remote_cta_rank=1),
        "error: barrier_arrive with remote_cta_rank reaches into other CTAs of a cluster, but this kernel has none\n"
        "  found: a cluster of one CTA\n"
        "  fix: give the kernel a cluster, for example @tlxc.kernel(ctas_per_cga=(2, 1, 1))",
    ),
    (
        "named_barrier_id",
        lambda k: tlx.named_barrier_wait(16, 64),
        "error: a CTA has 16 named barriers, and 0 is that of the whole CTA\n  found: id 16\n  allowed: 1 to 15",
    ),
    (
        "named_barrier_id_of_a_float",
        lambda k: tlx.named_barrier_wait(k.number(tl.float32), 64),
        "error: the id of named_barrier_wait is an integer scalar\n"
        "  found: a scalar tl.float32\n"
        "  allowed: ints, and run-time integer scalars\n"
        "  fix: convert it with `.to(tl.int32)`",
    ),
    (
        "named_barrier_id_of_a_thread",
        lambda k: tlx.named_barrier_arrive(tlx.thread_id(0), 64),
        "error: the id of named_barrier_arrive differs between the threads of the task\n"
        "  found: a value that is known per thread only\n"
        "  allowed: values that all threads of the task agree on",
    ),
    (
        "named_barrier_threads",
        lambda k: tlx.named_barrier_arrive(9, 48),
        "error: the arrive_count of named_barrier_arrive counts threads of whole warps\n"
        "  found: 48\n"
        "  allowed: multiples of 32 up to 1024\n"
        "  fix: count 32 for each warp that arrives or waits",
    ),
    (
        "fence_scope",
        lambda k: tlx.fence("cta"),
        "error: unknown scope of fence\n  found: 'cta' (str)\n  allowed: 'async_shared', 'gpu', 'sys'",
    ),
    # TMA
    (
        "load_without_descriptor",
        lambda k: tlx.async_descriptor_load(k.param(Pointer(tl.float16)), k.buf(8, 64), [0, 0], k.bar()),
        "error: the first argument of async_descriptor_load is a tensor descriptor\n"
        "  found: a scalar tl.ptr(tl.float16)\n"
        "  fix: pass a tlxc.TensorDescriptor as an argument, or make one with tlx.make_tensor_descriptor",
    ),
    (
        "load_of_another_block",
        lambda k: tlx.async_descriptor_load(k.desc(8, 64), k.buf(16, 64), [0, 0], k.bar()),
        "error: the result of async_descriptor_load is no block of the descriptor\n"
        "  found: a buffer (16, 64) of tl.float16, a descriptor of blocks (8, 64) of tl.float16\n"
        "  allowed: a buffer (8, 64) of tl.float16\n"
        "  fix: give buffer and block_shape the same extents and dtype",
    ),
    (
        "load_offsets",
        lambda k: tlx.async_descriptor_load(k.desc(8, 64), k.buf(8, 64), [0], k.bar()),
        "error: async_descriptor_load takes one offset per dimension of the descriptor\n"
        "  found: 1 offsets for blocks (8, 64)\n"
        "  allowed: 2",
    ),
    (
        "load_cache_modifier",
        lambda k: tlx.async_descriptor_load(k.desc(8), k.buf(8), [0], k.bar(), cache_modifier=".cg"),
        "error: unknown cache_modifier of async_descriptor_load\n  found: '.cg' (str)\n  allowed: ''",
    ),
    (
        "multicast_without_a_cluster",
        lambda k: tlx.async_descriptor_load(k.desc(8), k.buf(8), [0], k.bar(), multicast_targets=[0, 1]),
        "error: async_descriptor_load with multicast_targets reaches into other CTAs of a cluster, but this kernel has "
        "none\n"
        "  found: a cluster of one CTA\n"
        "  fix: give the kernel a cluster, for example @tlxc.kernel(ctas_per_cga=(2, 1, 1))",
    ),
    (
        "store_reduction_unknown",
        lambda k: tlx.async_descriptor_store(k.desc(8), k.buf(8), [0], store_reduce="mul"),
        "error: unknown store_reduce\n  found: 'mul' (str)\n  allowed: '', 'add', 'min', 'max', 'and', 'or', 'xor'",
    ),
    (
        "store_reduction_dtype",
        lambda k: tlx.async_descriptor_store(k.desc(8), k.buf(8), [0], store_reduce="xor"),
        "error: store_reduce='xor' does not compute on tl.float16\n"
        "  found: a descriptor of blocks (8,) of tl.float16\n"
        "  allowed: i32, u32, u64",
    ),
    (
        "store_bits_of_i64",
        lambda k: tlx.async_descriptor_store(k.desc(8, dtype=I64), k.buf(8, dtype=I64), [0], store_reduce="or"),
        "error: store_reduce='or' does not compute on tl.int64\n"
        "  found: a descriptor of blocks (8,) of tl.int64\n"
        "  allowed: i32, u32, u64",
    ),
    (
        "load_between_chunks",
        lambda k: tlx.async_descriptor_load(k.desc(8, 8), k.buf(8, 8), [1, 4], k.bar()),
        "error: the last offset of async_descriptor_load is not a multiple of 16 bytes\n"
        "  found: 4 elements of tl.float16\n"
        "  allowed: multiples of 8 elements along the last dimension\n"
        "  fix: begin at such a multiple, or copy with tl.load and tl.store instead",
    ),
    (
        "store_between_chunks",
        lambda k: k.desc(8).store([12], k.tile(tl.float16, 8)),
        "error: the last offset of desc.store is not a multiple of 16 bytes\n"
        "  found: 12 elements of tl.float16\n"
        "  allowed: multiples of 8 elements along the last dimension\n"
        "  fix: begin at such a multiple, or copy with tl.load and tl.store instead",
    ),
    (
        "store_a_tile_before_the_tensor",
        lambda k: k.desc(8).store([-4], k.tile(tl.float16, 8)),
        "error: a store of a block begins before its tensor\n"
        "  found: the offset -4\n"
        "  allowed: offsets of 0 and more; the block may end beyond the tensor\n"
        "  fix: store the part that lies inside with tl.store",
    ),
    (
        "store_before_the_tensor",
        lambda k: tlx.async_descriptor_store(k.desc(8), k.buf(8), [-4]),
        "error: a store of a block begins before its tensor\n"
        "  found: the offset -4\n"
        "  allowed: offsets of 0 and more; the block may end beyond the tensor\n"
        "  fix: store the part that lies inside with tl.store",
    ),
    (
        "store_wait",
        lambda k: tlx.async_descriptor_store_wait(-1),
        "error: pendings counts groups that may be under way\n  found: -1\n  allowed: 0, 1, 2, ...",
    ),
    (
        "async_load_of_another_shape",
        lambda k: tlx.async_load(k.tile(Pointer(tl.float16), 8), k.buf(16)),
        "error: async_load copies from a tile of pointers to a buffer of its shape and dtype\n"
        "  found: a tile (8,) of tl.ptr(tl.float16), a buffer (16,) of tl.float16\n"
        "  allowed: a tile (16,) of tl.ptr(tl.float16)",
    ),
    (
        "async_load_narrow",
        lambda k: tlx.async_load(k.tile(Pointer(tl.float16), 8, 1), k.buf(8, 1)),
        "error: async_load moves 4 bytes at least\n"
        "  found: rows of 2 bytes in a buffer (8, 1) of tl.float16\n"
        "  fix: copy through registers: tlx.local_store(buf, tl.load(ptr))",
    ),
    (
        "async_load_barrier",
        lambda k: tlx.async_load(k.tile(Pointer(tl.float16), 8), k.buf(8), barrier=k.bar()),
        "error: async_load takes bulk_size and barrier for a bulk copy only\n"
        "  fix: write bulk=True, or wait with tlx.async_load_wait_group",
    ),
    (
        "async_load_other",
        lambda k: tlx.async_load(k.tile(Pointer(tl.float16), 8), k.buf(8), other=0),
        "error: async_load has `other` but no mask\n  fix: give mask=..., or drop other=",
    ),
    (
        "bulk_without_a_barrier",
        lambda k: tlx.async_load(k.param(Pointer(tl.float16)), k.buf(8), bulk=True),
        "error: a bulk copy signals a barrier\n  found: no barrier\n  fix: pass barrier=bar[i]",
    ),
    (
        "bulk_mask",
        lambda k: tlx.async_load(k.param(Pointer(tl.float16)), k.buf(8), mask=True, bulk=True, barrier=k.bar()),
        "error: a bulk copy has no mask\n  found: the compile-time value True\n  fix: copy without bulk=True",
    ),
    (
        "bulk_rank",
        lambda k: tlx.async_store(k.param(Pointer(tl.float16)), k.buf(8, 8)),
        "error: a bulk copy moves bytes between a scalar pointer and a buffer of rank 1\n"
        "  found: a scalar tl.ptr(tl.float16), a buffer (8, 8) of tl.float16\n"
        "  allowed: a scalar tl.ptr(tl.float16)\n"
        "  fix: view the buffer with tlx.local_reshape, or use a descriptor for tiles of higher rank",
    ),
    (
        "bulk_size",
        lambda k: tlx.async_store(k.param(Pointer(tl.float16)), k.buf(16), 24),
        "error: the size of a bulk copy is out of range\n"
        "  found: 24 bytes of a buffer (16,) of tl.float16\n"
        "  allowed: multiples of 16 bytes from 16 to 32",
    ),
    (
        "tokens",
        lambda k: tlx.async_load_commit_group([3]),
        "error: tokens are what tlx.async_load gives\n  found: the compile-time value 3",
    ),
    # async_dot
    (
        "dot_dtype",
        lambda k: tlx.async_dot(k.buf(64, 16, dtype=tl.int8), k.buf(16, 8)),
        "error: async_dot does not take A in this dtype\n"
        "  found: a buffer (64, 16) of tl.int8\n"
        "  allowed: tl.float16, tl.bfloat16, or tl.float32 as tf32\n"
        "  fix: keep floats in the buffer; convert tiles with `.to(...)` before tlx.local_store",
    ),
    (
        "dot_k_of_tf32",
        lambda k: tlx.async_dot(k.buf(64, 4, dtype=tl.float32), k.buf(4, 8, dtype=tl.float32)),
        "error: K of async_dot is out of range\n  found: K = 4; A is (64, 4), B is (4, 8)\n  allowed: multiples of 8",
    ),
    (
        "dot_precision",
        lambda k: tlx.async_dot(k.buf(64, 16), k.buf(16, 8), input_precision="tf32"),
        "error: input_precision of async_dot says how float32 is multiplied, and tf32 is the only way\n"
        "  found: 'tf32' (str) for tl.float16\n"
        "  allowed: None, and \"tf32\" for tl.float32\n"
        "  fix: leave it out",
    ),
    (
        "remote_view_without_a_cluster",
        lambda k: tlx.remote_view(k.bar(), 1),
        "error: remote_view reaches into other CTAs of a cluster, but this kernel has none\n"
        "  found: a cluster of one CTA\n"
        "  fix: give the kernel a cluster, for example @tlxc.kernel(ctas_per_cga=(2, 1, 1))",
    ),
    (
        "wait_at_a_remote_view",
        lambda k: tlx.barrier_wait(_remote(k), 0),
        "error: the barrier of barrier_wait is a remote_view\n" + LOCAL_BARRIER,
    ),
    (
        "arrive_at_a_remote_view",
        lambda k: tlx.barrier_arrive(_remote(k)),
        "error: the barrier of barrier_arrive is a remote_view\n" + LOCAL_BARRIER,
    ),
    # votes and prefetches
    (
        "vote_mask",
        lambda k: tlx.vote_ballot_sync(0, True),
        "error: the mask of vote_ballot_sync names no lane\n"
        "  found: 0\n"
        "  allowed: 1 to 0xFFFFFFFF, a bit for each lane\n"
        "  fix: write 0xFFFFFFFF for the whole warp",
    ),
    (
        "prefetch_level",
        lambda k: tlx.prefetch(k.param(Pointer(tl.float16)), "L3"),
        "error: unknown level of prefetch\n  found: 'L3' (str)\n  allowed: 'L1', 'L2'",
    ),
    (
        "prefetch_of_a_descriptor",
        lambda k: tlx.prefetch(k.desc(8, 64)),
        "error: prefetch takes pointers\n"
        "  found: a descriptor of blocks (8, 64) of tl.float16\n"
        "  fix: pass tensormap=True for a descriptor",
    ),
    # descriptors that a kernel makes
    (
        "no_slots",
        lambda k: tlx.allocate_tensor_descriptor(0),
        "error: allocate_tensor_descriptor gives one slot at least\n  found: num=0",
    ),
    (
        "slots_at_run_time",
        lambda k: tlx.allocate_tensor_descriptor(k.number()),
        "error: the number of slots must be a compile-time integer\n"
        "  found: a scalar tl.int32\n"
        "  fix: pass the value as a tl.constexpr parameter",
    ),
    (
        "index_of_a_slot",
        lambda k: tlx.allocate_tensor_descriptor(2)[2],
        "error: the index of a slot is out of range\n"
        "  found: 2 in an array of 2 slots for descriptors\n"
        "  allowed: 0 to 1",
    ),
    (
        "made_in_an_array",
        lambda k: made(k, tlx.allocate_tensor_descriptor(2)),
        "error: make_tensor_descriptor takes one slot\n"
        "  found: an array of 2 slots for descriptors\n"
        "  fix: index the array: slots[i]",
    ),
    (
        "made_in_no_slot",
        lambda k: made(k, k.param(Pointer(tl.int8))),
        "error: the desc_ptr of make_tensor_descriptor is a slot for a descriptor\n"
        "  found: a scalar tl.ptr(tl.int8)\n"
        "  allowed: slots[i], or None for a slot of its own\n"
        "  fix: allocate slots before: slots = tlx.allocate_tensor_descriptor(num=...)",
    ),
    (
        "made_in_a_descriptor",
        lambda k: made(k, k.desc(8, 64)),
        "error: the desc_ptr of make_tensor_descriptor is a slot for a descriptor\n"
        "  found: a descriptor of blocks (8, 64) of tl.float16\n"
        "  allowed: slots[i], or None for a slot of its own\n"
        "  fix: allocate slots before: slots = tlx.allocate_tensor_descriptor(num=...)",
    ),
    (
        "made_of_a_tile",
        lambda k: tlx.make_tensor_descriptor(None, k.buf(8, 64), [8, 64], [64, 1], [8, 64]),
        "error: the base of make_tensor_descriptor is a scalar pointer\n"
        "  found: a buffer (8, 64) of tl.float16\n"
        "  allowed: a pointer parameter of the kernel, or such a pointer plus an offset",
    ),
    (
        "made_with_other_ranks",
        lambda k: made(k, strides=[1]),
        "error: shape, strides and block_shape of make_tensor_descriptor have one length\n"
        "  found: 2 extents, 1 strides and a block of 2 dimensions\n"
        "  allowed: 1 to 5 of each",
    ),
    (
        "made_of_six_dimensions",
        lambda k: made(k, shape=[1] * 6, strides=[64] * 5 + [1], block=[1] * 5 + [64]),
        "error: shape, strides and block_shape of make_tensor_descriptor have one length\n"
        "  found: 6 extents, 6 strides and a block of 6 dimensions\n"
        "  allowed: 1 to 5 of each",
    ),
    (
        "made_of_narrow_blocks",
        lambda k: made(k, block=[8, 4]),
        "error: the block_shape of make_tensor_descriptor is none of a descriptor\n"
        "  found: block_shape=(8, 4) of tl.float16\n"
        "  allowed: 1 to 5 positive extents, the last of a multiple of 16 bytes; dtypes other than bool",
    ),
    (
        "made_of_bools",
        lambda k: tlx.make_tensor_descriptor(None, k.param(Pointer(tl.int1)), [8, 64], [64, 1], [8, 64]),
        "error: the block_shape of make_tensor_descriptor is none of a descriptor\n"
        "  found: block_shape=(8, 64) of tl.int1\n"
        "  allowed: 1 to 5 positive extents, the last of a multiple of 16 bytes; dtypes other than bool",
    ),
    (
        "made_of_run_time_blocks",
        lambda k: made(k, block=[k.number(), 64]),
        "error: an extent of block_shape must be a compile-time integer\n"
        "  found: a scalar tl.int32\n"
        "  fix: pass the value as a tl.constexpr parameter",
    ),
    (
        "made_of_columns",
        lambda k: made(k, strides=[1, 64]),
        "error: the last stride of make_tensor_descriptor is the compile-time int 1\n"
        "  found: the compile-time value 64\n"
        "  fix: write strides=[..., 1]; a tensor that is contiguous along another dimension is described with its "
        "dimensions in that order",
    ),
    (
        "made_with_a_run_time_last_stride",
        lambda k: made(k, strides=[64, k.number()]),
        "error: the last stride of make_tensor_descriptor is the compile-time int 1\n"
        "  found: a scalar tl.int32\n"
        "  fix: write strides=[..., 1]; a tensor that is contiguous along another dimension is described with its "
        "dimensions in that order",
    ),
    (
        "made_of_misaligned_rows",
        lambda k: made(k, strides=[60, 1]),
        "error: a stride of make_tensor_descriptor is no multiple of 16 bytes\n"
        "  found: 60 elements of tl.float16\n"
        "  allowed: positive multiples of 8 elements, but for the last stride, which is 1\n"
        "  fix: pad the rows of the tensor",
    ),
    (
        "made_with_a_float_stride",
        lambda k: made(k, strides=[k.number(tl.float32), 1]),
        "error: a stride of make_tensor_descriptor is an integer scalar\n  found: a scalar tl.float32",
    ),
    (
        "made_of_nothing",
        lambda k: made(k, shape=[0, 64]),
        "error: a tensor without elements has no descriptor\n"
        "  found: the extent 0 in the shape of make_tensor_descriptor\n"
        "  allowed: extents of 1 and more",
    ),
    (
        "made_with_a_float_extent",
        lambda k: made(k, shape=[k.number(tl.float32), 64]),
        "error: an extent in the shape of make_tensor_descriptor is an integer scalar\n"
        "  found: a scalar tl.float32\n"
        "  allowed: ints, and run-time integer scalars\n"
        "  fix: convert it with `.to(tl.int32)`",
    ),
    (
        "made_with_another_padding",
        lambda k: made(k, padding="inf"),
        "error: unknown padding_option of make_tensor_descriptor\n  found: 'inf' (str)\n  allowed: 'zero', 'nan'",
    ),
    (
        "integers_padded_with_nan",
        lambda k: tlx.make_tensor_descriptor(None, k.param(Pointer(tl.int8)), [8, 64], [64, 1], [8, 64], "nan"),
        "error: only floats are padded with NaN\n"
        "  found: padding_option='nan' for tl.int8\n"
        "  allowed: padding_option='zero'",
    ),
    (
        "reinterpreted_without_a_slot",
        lambda k: tlx.reinterpret_tensor_descriptor(None, [8, 64], tl.float16),
        "error: the desc_ptr of reinterpret_tensor_descriptor is a slot for a descriptor\n"
        "  found: None (NoneType)\n"
        "  allowed: slots[i]\n"
        "  fix: allocate slots before: slots = tlx.allocate_tensor_descriptor(num=...)",
    ),
    (
        "reinterpreted_without_a_dtype",
        lambda k: tlx.reinterpret_tensor_descriptor(tlx.allocate_tensor_descriptor(1)[0], [8, 64], 16),
        "error: the dtype of reinterpret_tensor_descriptor must be a dtype\n"
        "  found: the compile-time value 16\n"
        "  allowed: tl.int1, tl.int8, tl.int16, tl.int32, tl.int64, tl.uint8, tl.uint16, tl.uint32, tl.uint64, "
        "tl.float16, tl.bfloat16, tl.float32",
    ),
    (
        "reinterpreted_as_narrow_blocks",
        lambda k: tlx.reinterpret_tensor_descriptor(tlx.allocate_tensor_descriptor(1)[0], [8, 4], tl.float16),
        "error: the block_shape of reinterpret_tensor_descriptor is none of a descriptor\n"
        "  found: block_shape=(8, 4) of tl.float16\n"
        "  allowed: 1 to 5 positive extents, the last of a multiple of 16 bytes; dtypes other than bool",
    ),
    # layouts of buffers
    (
        "layout_of_a_buffer",
        lambda k: tlx.local_alloc((8, 8), tl.float16, 1, layout=tlx.layout(((32,), (2,)), ((2,), (1,)))),
        "error: the layout of local_alloc is one of shared memory\n"
        "  found: tlx.layout(shape=((32,), (2,)), stride=((2,), (1,)))\n"
        "  allowed: tlx.swizzled_layout(bits, base, shift)\n"
        "  fix: leave it out, or pin tiles with tlx.require_layout",
    ),
    (
        "swizzle_bits",
        lambda k: tlx.swizzled_layout(-1),
        "error: bits of swizzled_layout is a number of bits\n  found: -1\n  allowed: 0, 1, 2, ...",
    ),
    (
        "swizzle_phase",
        lambda k: tlx.local_alloc((8, 64), tl.float16, 1, layout=tlx.swizzled_layout(3, 3, 2)),
        "error: this swizzled_layout does not fit a buffer (8, 64)\n"
        "  found: a phase of 2**(2 + 3) / 64 rows\n" + SWIZZLES,
    ),
    (
        "swizzle_rank",
        lambda k: tlx.local_alloc((2, 8, 64), tl.float16, 1, layout=tlx.swizzled_layout(3, 3, 3)),
        "error: this swizzled_layout does not fit a buffer (2, 8, 64)\n"
        "  found: a swizzle of 3 dimensions\n" + SWIZZLES,
    ),
    (
        "swizzle_order",
        lambda k: tlx.local_alloc((8, 64), tl.float16, 1, layout=tlx.swizzled_layout(0, order=(0, 2))),
        "error: this swizzled_layout does not fit a buffer (8, 64)\n"
        "  found: the order (0, 2) names other dimensions than those of the buffer\n" + SWIZZLES,
    ),
    (
        "dot_two_dtypes",
        lambda k: tlx.async_dot(k.buf(64, 16), k.buf(16, 8, dtype=tl.bfloat16)),
        "error: async_dot takes two operands of one dtype\n  found: tl.float16 and tl.bfloat16",
    ),
    (
        "dot_inner",
        lambda k: tlx.async_dot(k.buf(64, 16), k.buf(8, 16)),
        "error: the inner extents of async_dot differ\n"
        "  found: A is (64, 16), B is (8, 16)\n"
        "  allowed: (M, K) and (K, N)\n"
        "  fix: transpose an operand with tlx.local_trans(buf)",
    ),
    (
        "dot_rank",
        lambda k: tlx.async_dot(k.buf(64, 16), k.buf(1, 16, 8)),
        "error: async_dot multiplies operands of rank 2\n"
        "  found: a buffer (64, 16) of tl.float16 and a buffer (1, 16, 8) of tl.float16\n"
        "  allowed: (M, K) and (K, N)\n"
        "  fix: reshape a buffer with tlx.local_reshape",
    ),
    (
        "dot_m",
        lambda k: tlx.async_dot(k.buf(32, 16), k.buf(16, 8)),
        "error: M of async_dot is out of range\n"
        "  found: M = 32; A is (32, 16), B is (16, 8)\n"
        "  allowed: multiples of 64",
    ),
    (
        "dot_n",
        lambda k: tlx.async_dot(k.buf(64, 16), k.buf(16, 512)),
        "error: N of async_dot is out of range\n"
        "  found: N = 512; A is (64, 16), B is (16, 512)\n"
        "  allowed: multiples of 8 up to 256\n"
        "  fix: split B by columns into several dots with tlx.local_slice",
    ),
    (
        "dot_k",
        lambda k: tlx.async_dot(k.buf(64, 8), k.buf(8, 8)),
        "error: K of async_dot is out of range\n  found: K = 8; A is (64, 8), B is (8, 8)\n  allowed: multiples of 16",
    ),
    (
        "dot_a",
        lambda k: tlx.async_dot(3, k.buf(16, 8)),
        "error: A of async_dot is a buffer or a tile\n  found: the compile-time value 3",
    ),
    (
        "dot_accumulator",
        lambda k: tlx.async_dot(k.buf(64, 16), k.buf(16, 8), k.tile(tl.float32, 64, 16)),
        "error: the accumulator of async_dot has another type\n"
        "  found: a tile (64, 16) of tl.float32\n"
        "  allowed: a tile (64, 8) of tl.float32\n"
        "  fix: start from tl.zeros((64, 8), tl.float32), or leave acc out",
    ),
    (
        "dot_use_acc",
        lambda k: tlx.async_dot(k.buf(64, 16), k.buf(16, 8), use_acc=k.number()),
        "error: use_acc is a bool scalar\n"
        "  found: a scalar tl.int32\n"
        "  fix: compare: use_acc=i > 0, or use_acc=x != 0",
    ),
    (
        "dot_into_tensor_memory",
        lambda k: tlx.async_dot(k.buf(64, 16), k.buf(16, 8), mBarriers=[k.bar()]),
        "error: async_dot has no `mBarriers` on sm_90\n"
        "  found: an argument of dots into tensor memory, which this target does not have\n"
        "  fix: leave mBarriers out; wait for the product with tlx.async_dot_wait",
    ),
    (
        "dot_wait",
        lambda k: tlx.async_dot_wait(0, ()),
        "error: async_dot_wait takes the results of async_dot\n"
        "  found: no value\n"
        "  fix: write acc = tlx.async_dot_wait(0, acc)",
    ),
    # clusters
    (
        "remote_store_without_a_cluster",
        lambda k: tlx.remote_shmem_store(k.buf(8), 0.0, 1),
        "error: remote_shmem_store reaches into other CTAs of a cluster, but this kernel has none\n"
        "  found: a cluster of one CTA\n"
        "  fix: give the kernel a cluster, for example @tlxc.kernel(ctas_per_cga=(2, 1, 1))",
    ),
    (
        "no_such_rank",
        lambda k: (setattr(k.module, "cluster", (2, 1, 1)), tlx.barrier_arrive(k.bar(), remote_cta_rank=2)),
        "error: the cluster has no CTA of this rank\n  found: 2\n  allowed: 0 to 1",
    ),
    # tasks
    (
        "task_ids",
        lambda k: tlx.async_task([0, 1]),
        "error: async_task does not take a list of ids\n"
        "  found: async_task([0, 1])\n"
        '  fix: write one tlx.async_task("default") and tlx.async_task(num_warps=N) for the others',
    ),
    (
        "task_without_warps",
        lambda k: tlx.async_task(),
        "error: async_task is the default task or says its number of warps\n"
        "  found: task=None, num_warps=None\n"
        '  allowed: async_task("default") or async_task(num_warps=N)',
    ),
    (
        "task_warps",
        lambda k: tlx.async_task(num_warps=3),
        "error: num_warps of async_task is a power of two\n"
        "  found: 3\n"
        "  allowed: 1, 2, 4, ... up to 32\n"
        "  fix: use replicate, or several tasks, for other sums",
    ),
    (
        "task_registers_step",
        lambda k: tlx.async_task("default", num_regs=100),
        "error: num_regs must be divisible by 8\n  found: 100\n  allowed: multiples of 8 from 24 to 256",
    ),
    (
        "task_registers_range",
        lambda k: tlx.async_task("default", registers=16),
        "error: num_regs is out of range\n  found: 16\n  allowed: multiples of 8 from 24 to 256",
    ),
    (
        "task_registers_twice",
        lambda k: tlx.async_task("default", num_regs=24, registers=24),
        "error: num_regs and registers are one argument\n  fix: give num_regs alone",
    ),
    (
        "task_replicate",
        lambda k: tlx.async_task(num_warps=4, replicate=0),
        "error: replicate counts the copies of a task\n  found: 0\n  allowed: 1, 2, ...",
    ),
    (
        "task_start",
        lambda k: tlx.async_task(num_warps=4, warp_group_start_id=6),
        "error: a task stays inside one group of 4 warps or begins one\n"
        "  found: warp_group_start_id=6 with 4 warps\n"
        "  fix: start it at a multiple of 4",
    ),
    (
        "default_start",
        lambda k: tlx.async_task("default", warp_group_start_id=4),
        "error: the default task starts at warp 0\n  found: warp_group_start_id=4\n  fix: leave it out",
    ),
    (
        "replica_outside",
        lambda k: tlx.async_task_replica_id(),
        "error: async_task_replica_id exists only inside a task\n  fix: call it in `with tlx.async_task(...)`",
    ),
    (
        "thread_axis",
        lambda k: tlx.thread_id(3),
        "error: a grid has no axis 3\n  allowed: 0, 1 or 2",
    ),
]


@pytest.mark.parametrize("make, text", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_error(make: Callable[[Tile], Any], text: str, k: Tile) -> None:
    with pytest.raises(CompileError) as caught:
        make(k)
    assert str(caught.value) == text
    assert caught.value.loc is None  # the frontend knows where it stands


def test_a_dot_needs_a_warpgroup(k: Tile) -> None:
    current().task = TaskCopy(2, 0)
    with pytest.raises(CompileError) as caught:
        tlx.async_dot(k.buf(64, 16), k.buf(16, 8))
    assert str(caught.value) == (
        "error: async_dot is issued by whole warpgroups\n"
        "  found: a task of 2 warps\n"
        "  allowed: multiples of 4 warps\n"
        "  fix: write tlx.async_task(num_warps=4), or use tl.dot on tiles in registers"
    )


MISSING: list[tuple[str, Callable[[Tile], Any], str]] = [
    ("gfx950", lambda k: tlx.alloc_barriers(1), "an mbarrier does not exist on gfx950"),
    ("gfx950", lambda k: tlx.cluster_barrier(), "cluster_barrier does not exist on gfx950"),
    ("gfx950", lambda k: tlx.async_descriptor_store_wait(), "async_descriptor_store_wait does not exist on gfx950"),
    ("gfx950", lambda k: made(k), "make_tensor_descriptor does not exist on gfx950"),
    ("gfx950", lambda k: tlx.allocate_tensor_descriptor(1), "allocate_tensor_descriptor does not exist on gfx950"),
    ("sm_100", lambda k: tlx.async_dot(k.buf(64, 16), k.buf(16, 8)), "async_dot on registers does not exist on sm_100"),
]


@pytest.mark.parametrize("target, make, summary", MISSING)
def test_what_a_target_lacks_is_refused(target: str, make: Callable[[Tile], Any], summary: str) -> None:
    kernel = Tile()
    with building(Context(kernel.builder, get_target(target))), pytest.raises(CompileError) as caught:
        make(kernel)
    assert caught.value.summary == summary


def test_names_of_cases_are_unique() -> None:
    assert len({case[0] for case in CASES}) == len(CASES)


def test_every_function_says_its_targets() -> None:
    for name in tlx.__all__:
        item = getattr(tlx, name)
        if hasattr(item, "__tlxc_builtin__"):
            assert "Targets:" in (item.__doc__ or ""), name
