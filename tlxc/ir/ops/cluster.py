"""Clusters of CTAs and their distributed shared memory."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import Barrier, Buffer, Scalar, element_of, int32, shape_of


def _number(op: Op) -> None:
    require(op.result.type == Scalar(int32), f"{op.kind} gives i32")


def _remote(op: Op) -> None:
    b, v = op.inputs[0].type, op.inputs[1].type
    require(isinstance(b, Buffer) and b.count == 0, f"{op.kind} writes one buffer")
    require(shape_of(b) == shape_of(v) and element_of(b) == element_of(v), f"{op.kind}: value and buffer differ")
    require(op.inputs[2].type == Scalar(int32), f"{op.kind}: the rank is an i32 scalar")
    require(len(op.inputs) == 3 or isinstance(op.inputs[3].type, Barrier), f"{op.kind} signals a barrier")


row(
    "cluster_rank",
    "cluster",
    "",
    1,
    traits="pure",
    verify=_number,
    doc="Rank of this CTA in its cluster: `%cluster_ctarank`.",
)
row(
    "cluster_size",
    "cluster",
    "",
    1,
    traits="pure",
    verify=_number,
    doc="Number of CTAs in the cluster: `%cluster_nctarank`.",
)
row(
    "cluster_barrier",
    "cluster",
    "",
    0,
    "",
    "relaxed",
    traits="convergent reads_shared writes_shared",
    doc="All threads of the cluster arrive before any goes on: `barrier.cluster.arrive.aligned`, "
    "`barrier.cluster.wait`.  "
    "`relaxed`: orders no memory.",
)
row(
    "fence_mbarrier_init",
    "cluster",
    "",
    0,
    traits="convergent writes_shared",
    doc="Makes initialised mbarriers visible to the cluster: `fence.mbarrier_init.release.cluster`.",
)
row(
    "remote_store",
    "cluster",
    "buf value rank",
    0,
    traits="writes_shared convergent",
    verify=_remote,
    kinds="int uint float",
    doc="Stores a tile to the same buffer of another CTA: `mapa`, `st.shared::cluster`.",
)
row(
    "async_remote_store",
    "cluster",
    "buf value rank bar",
    0,
    traits="writes_shared convergent",
    verify=_remote,
    kinds="int uint float",
    doc="The same without waiting; signals bytes at the same barrier there: `st.async.shared::cluster`.",
)
row(
    "async_remote_copy",
    "cluster",
    "dst src rank bar",
    0,
    traits="reads_shared writes_shared convergent",
    verify=_remote,
    kinds="int uint float",
    doc="Copies a buffer to the same place of another CTA, signalling bytes there: `cp.async.bulk.shared::cluster`.",
)
