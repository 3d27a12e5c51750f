"""Clusters on NVIDIA.  Source: PTX ISA, "barrier.cluster", "mapa", "st.async", "cp.async.bulk" (shared::cluster)."""

from __future__ import annotations

from tlxc.codegen.simt.buffer import buffer_type, shared_addresses, shared_pointer, shared_runs
from tlxc.codegen.simt.lowering import Lower, Lowering, layout_of
from tlxc.codegen.simt.words import pack, word_shape
from tlxc.ir.core import Op
from tlxc.ir.types import element_of

from .barrier import map_remote, predicated

_SHARED = "ptr addrspace(3)"
_LETTER = {8: ("i16", "h"), 16: ("i16", "h"), 32: ("i32", "r"), 64: ("i64", "l")}


def _register(name: str) -> Lower:
    def lower(low: Lowering, op: Op) -> None:
        low.set(op.result, [low.w.call("i32", f"llvm.nvvm.read.ptx.sreg.cluster.{name}", [])])

    return lower


def cluster_barrier(low: Lowering, op: Op) -> None:
    relaxed = ".relaxed" if op.attrs.get("relaxed") else ""
    low.w.asm("void", f"barrier.cluster.arrive{relaxed}.aligned; barrier.cluster.wait.aligned;", "~{memory}", [])


def fence_mbarrier_init(low: Lowering, op: Op) -> None:
    low.w.asm("void", "fence.mbarrier_init.release.cluster;", "~{memory}", [])


def remote_store(low: Lowering, op: Op) -> None:
    """The tile to the same buffer of CTA `rank`; with a barrier, its bytes are signalled there."""
    buf, value, rank, *bar = op.inputs
    w, layout, element = low.w, layout_of(value), element_of(value.type)
    groups = shared_runs(layout, buffer_type(buf)[1], element.bytes)
    names, owner, there = low.get(value), low.owner(layout), low.scalar(rank)
    remote_bar = map_remote(low, shared_pointer(low, bar[0]), there) if bar else None
    for group, address in zip(groups, shared_addresses(low, buf, layout, tuple(g[0] for g in groups))):
        bits, n = word_shape(len(group), element.bytes)
        t, letter = _LETTER[bits]
        words = pack(w, [names[r] for r in group], element)
        if bits == 8:
            words = [w.assign(f"zext i8 {x} to i16") for x in words]
        args = [("i32", map_remote(low, address, there)), *((t, x) for x in words)]
        values = "$1" if n == 1 else "{" + ", ".join(f"${i + 1}" for i in range(n)) + "}"
        vector = f".v{n}" if n > 1 else ""
        if remote_bar is None:
            text = f"st.shared::cluster{vector}.b{bits} [$0], {values};"
        else:
            text = f"st.async.shared::cluster.mbarrier::complete_tx::bytes{vector}.b{bits} [$0], {values}, [${n + 1}];"
            args.append(("i32", remote_bar))
        constraints = ["r", *[letter] * n, *["r"] * (remote_bar is not None)]
        predicated(low, text, constraints, args, owner)


def async_remote_copy(low: Lowering, op: Op) -> None:
    dst, src, rank, bar = op.inputs
    low.task_barrier()
    there = low.scalar(rank)
    size = buffer_type(src)[0].nbytes
    args = [
        ("i32", map_remote(low, shared_pointer(low, dst), there)),
        (_SHARED, shared_pointer(low, src)),
        ("i32", map_remote(low, shared_pointer(low, bar), there)),
    ]
    text = f"cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [$0], [$1], {size}, [$2];"
    predicated(low, text, ["r", "r", "r"], args, low.elected())


LOWERINGS: dict[str, Lower] = {
    "cluster_rank": _register("ctarank"),
    "cluster_size": _register("nctarank"),
    "cluster_barrier": cluster_barrier,
    "fence_mbarrier_init": fence_mbarrier_init,
    "remote_store": remote_store,
    "async_remote_store": remote_store,
    "async_remote_copy": async_remote_copy,
}
