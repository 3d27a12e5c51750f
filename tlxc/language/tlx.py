"""`tlx`: the low-level part of the language.  Every name here may be used in a kernel; the docstrings are the
reference."""

from __future__ import annotations

from typing import Any

from tlxc.ir.types import DType, Pointer

from .alias import reuse_group, reuse_group_type, storage_alias_spec, storage_kind
from .annotation import tensor_descriptor_type
from .async_dot import async_dot, async_dot_wait
from .barrier import (
    alloc_barriers,
    alloc_warp_barrier,
    barrier_arrive,
    barrier_expect_bytes,
    barrier_wait,
    fence,
    fence_async_shared,
    named_barrier_arrive,
    named_barrier_wait,
    remote_view,
)
from .blackwell import (
    async_dot_scaled,
    clc_consumer,
    clc_create_context,
    clc_producer,
    subslice,
    tcgen05_commit,
    tmem_copy,
)
from .buffer import (
    local_alloc,
    local_gather,
    local_load,
    local_reinterpret,
    local_reshape,
    local_scatter,
    local_slice,
    local_store,
    local_trans,
    local_view,
)
from .cluster import (
    async_remote_shmem_copy,
    async_remote_shmem_store,
    cluster_barrier,
    cluster_cta_rank,
    cluster_size_1d,
    fence_mbarrier_init_cluster,
    remote_shmem_store,
)
from .core import as_tensor, builtin, check_dtype
from .dependency import gdc_launch_dependents, gdc_wait
from .descriptor import allocate_tensor_descriptor, make_tensor_descriptor, reinterpret_tensor_descriptor
from .handles import async_token, buffered_tensor, mbarrier, tensor_descriptor
from .layout import dump_layout, layout, require_layout, swizzled_layout
from .task import (
    async_task,
    async_task_replica_id,
    async_tasks,
    clock64,
    get_bufidx_phase,
    thread_id,
    vote_ballot_sync,
    warp_all,
    warp_any,
)
from .tma import (
    async_descriptor_load,
    async_descriptor_prefetch_tensor,
    async_descriptor_store,
    async_descriptor_store_wait,
    async_load,
    async_load_commit_group,
    async_load_wait_group,
    async_store,
    prefetch,
    prefetch_descriptor,
)


@builtin
def dtype_of(x: Any) -> DType:
    """The element dtype of a scalar or tile, of what a pointer points to, of a buffer or descriptor, or of a literal by
    itself: a compile-time value.
    Targets: all.  Errors: values without a dtype.  No instruction."""
    if isinstance(x, (buffered_tensor, tensor_descriptor)):
        element: DType | Pointer = x.dtype
    else:
        element = x if isinstance(x, (DType, Pointer)) else as_tensor(x).dtype
    return element.dtype if isinstance(element, Pointer) else element


@builtin
def size_of(dtype: Any) -> int:
    """The size of an element in bytes (a bool takes 1, a pointer 8): a compile-time int.
    Targets: all.  Errors: anything but a dtype or pointer type.  No instruction."""
    return dtype.bytes if isinstance(dtype, Pointer) else check_dtype(dtype).bytes


__all__ = [
    "alloc_barriers", "alloc_warp_barrier", "allocate_tensor_descriptor", "async_descriptor_load",
    "async_descriptor_prefetch_tensor", "async_descriptor_store", "async_descriptor_store_wait", "async_dot",
    "async_dot_scaled", "async_dot_wait", "async_load", "async_load_commit_group", "async_load_wait_group",
    "async_remote_shmem_copy", "async_remote_shmem_store", "async_store", "async_task", "async_task_replica_id",
    "async_tasks", "async_token", "barrier_arrive", "barrier_expect_bytes", "barrier_wait", "buffered_tensor",
    "clc_consumer", "clc_create_context", "clc_producer", "clock64", "cluster_barrier", "cluster_cta_rank",
    "cluster_size_1d", "dtype_of", "dump_layout", "fence", "fence_async_shared", "fence_mbarrier_init_cluster",
    "gdc_launch_dependents", "gdc_wait", "get_bufidx_phase", "layout", "local_alloc", "local_gather", "local_load",
    "local_reinterpret", "local_reshape", "local_scatter", "local_slice", "local_store", "local_trans", "local_view",
    "make_tensor_descriptor", "mbarrier", "named_barrier_arrive", "named_barrier_wait", "prefetch",
    "prefetch_descriptor", "reinterpret_tensor_descriptor", "remote_shmem_store", "remote_view", "require_layout",
    "reuse_group", "reuse_group_type", "size_of", "storage_alias_spec", "storage_kind", "subslice", "swizzled_layout",
    "tcgen05_commit", "tensor_descriptor", "tensor_descriptor_type", "thread_id", "tmem_copy", "vote_ballot_sync",
    "warp_all", "warp_any",
]  # fmt: skip
