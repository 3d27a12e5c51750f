"""Clusters: CTAs that run at once and reach each other's shared memory."""

from __future__ import annotations

from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.types import Scalar, int32

from .barrier import cluster_rank
from .buffer import stored_tile
from .core import builder, builtin, tensor
from .handles import one_barrier, one_buffer, require_cluster, require_feature


@builtin
def cluster_cta_rank() -> tensor:
    """The rank of this CTA in its cluster, an int32 scalar; 0 in a kernel without clusters.

    Targets: sm_90 and later.  Instruction: a read of `%cluster_ctarank` (PTX ISA, "Special Registers").
    """
    require_feature("cluster", "cluster_cta_rank")
    return tensor(builder().emit("cluster_rank", type=Scalar(int32)))


@builtin
def cluster_size_1d() -> tensor:
    """The number of CTAs in the cluster, an int32 scalar; 1 in a kernel without clusters.

    Targets: sm_90 and later.  Instruction: a read of `%cluster_nctarank` (PTX ISA, "Special Registers").
    """
    require_feature("cluster", "cluster_size_1d")
    return tensor(builder().emit("cluster_size", type=Scalar(int32)))


@builtin
def cluster_barrier() -> None:
    """All threads of all CTAs of the cluster arrive before any goes on, and see each other's memory.

    Inside a region every task executes it the same number of times; warps without a task follow by themselves, as far
    as loops and branches around it do not depend on what only the task knows.  Targets: sm_90 and later.
    Errors: a region in which some tasks have none; a condition that other warps cannot compute.
    Instruction: `barrier.cluster.arrive.aligned`, `barrier.cluster.wait.aligned` (PTX ISA, "barrier.cluster").
    """
    require_feature("cluster", "cluster_barrier")
    builder().op("cluster_barrier")


@builtin
def fence_mbarrier_init_cluster() -> None:
    """Makes initialised mbarriers visible to the cluster; for start protocols by hand: the compiler has its own.

    Targets: sm_90 and later.  Instruction: `fence.mbarrier_init.release.cluster` (PTX ISA, "membar, fence").
    """
    require_feature("cluster", "fence_mbarrier_init_cluster")
    builder().op("fence_mbarrier_init")


@builtin
def remote_shmem_store(dst: Any, src: Any, remote_cta_rank: Any) -> None:
    """Writes a tile to the buffer in the same place as `dst` of another CTA of the cluster.

    `src` as in `local_store`.  Order it with `cluster_barrier`.  Targets: sm_90 and later.
    Errors: a kernel without clusters; a value that differs from the buffer.
    Instruction: `mapa`, `st.shared::cluster` (PTX ISA, "mapa", "st").
    """
    require_cluster("remote_shmem_store")
    target = one_buffer(dst, "the destination of remote_shmem_store")
    value = stored_tile(src, target, "remote_shmem_store")
    builder().op("remote_store", (target.value, value, cluster_rank(remote_cta_rank)))


@builtin
def async_remote_shmem_store(dst: Any, src: Any, remote_cta_rank: Any, barrier: Any) -> None:
    """Starts to write a tile to the buffer in the same place as `dst` of another CTA; its bytes are signalled there, at
    the barrier in the same place as `barrier`, where that CTA announced them.

    Targets: sm_90 and later.  Errors: as `remote_shmem_store`.
    Instruction: `st.async.shared::cluster.mbarrier::complete_tx::bytes` (PTX ISA, "st.async").
    """
    require_cluster("async_remote_shmem_store")
    target = one_buffer(dst, "the destination of async_remote_shmem_store")
    value = stored_tile(src, target, "async_remote_shmem_store")
    signal = one_barrier(barrier, "the barrier of async_remote_shmem_store")
    builder().op("async_remote_store", (target.value, value, cluster_rank(remote_cta_rank), signal.value))


@builtin
def async_remote_shmem_copy(dst: Any, src: Any, remote_cta_rank: Any, barrier: Any) -> None:
    """Starts to copy the buffer `src` to the buffer in the same place as `dst` of another CTA; its bytes are signalled
    there, at the barrier in the same place as `barrier`.

    Targets: sm_90 and later.  Errors: a kernel without clusters; buffers of different shapes or dtypes.
    Instruction: `cp.async.bulk.shared::cluster.shared::cta` (PTX ISA, "cp.async.bulk").
    """
    require_cluster("async_remote_shmem_copy")
    target = one_buffer(dst, "the destination of async_remote_shmem_copy")
    source = one_buffer(src, "the source of async_remote_shmem_copy")
    if (source.shape, source.dtype) != (target.shape, target.dtype):
        raise CompileError(
            "async_remote_shmem_copy copies between equal buffers", found=f"{source.describe()}, {target.describe()}"
        )
    signal = one_barrier(barrier, "the barrier of async_remote_shmem_copy")
    operands = (target.value, source.value, cluster_rank(remote_cta_rank), signal.value)
    builder().op("async_remote_copy", operands)
