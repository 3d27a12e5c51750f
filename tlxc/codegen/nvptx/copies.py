"""Copies without a descriptor: cp.async per thread, bulk copies by one thread.  Source: PTX ISA, "cp.async",
"cp.async.bulk"."""

from __future__ import annotations

from tlxc.codegen.simt.buffer import buffer_type, shared_addresses, shared_pointer, shared_runs
from tlxc.codegen.simt.lowering import Lower, Lowering, layout_of
from tlxc.codegen.simt.memory import access_runs
from tlxc.codegen.simt.words import pack, store_words, word_shape
from tlxc.errors import CompileError
from tlxc.ir.core import Op
from tlxc.ir.types import Tensor, element_of

from .barrier import optional, predicated

_SHARED, _GLOBAL = "ptr addrspace(3)", "ptr addrspace(1)"
SIZES = (4, 8, 16)  # bytes of one cp.async


def async_load(low: Lowering, op: Op) -> None:
    pointer, buf, mask, other = op.operands
    assert pointer is not None and buf is not None
    w, layout = low.w, layout_of(pointer)
    t, mem = buffer_type(buf)
    size = t.dtype.bytes
    wide = access_runs(low.info, pointer, mask, layout)
    together = {r: run for run in shared_runs(layout, mem, size) for r in run}
    count = len(wide[0])
    while any(g[i : i + count] not in _pieces(together[g[i]], count) for g in wide for i in range(0, len(g), count)):
        count //= 2
    if count * size not in SIZES:
        raise CompileError(
            "async_load copies 4, 8 or 16 bytes per thread",
            found=f"runs of {count} elements of {size} bytes that are contiguous in global and in shared memory",
            fix="declare alignment and divisibility of the addresses, or use tl.load and tlx.local_store",
            loc=op.loc,
        )
    groups = [g[i : i + count] for g in wide for i in range(0, len(g), count)]
    addresses, masks = low.get(pointer), low.get(mask) if mask is not None else None
    owner = low.owner(layout)
    cache = "cg" if count * size == 16 and op.attrs.get("cache") != ".ca" else "ca"
    filled = other is not None and masks is not None  # by the threads, so the copy must not write its zeros
    for group, shared in zip(groups, shared_addresses(low, buf, layout, tuple(g[0] for g in groups))):
        args = [(_SHARED, shared), (_GLOBAL, addresses[group[0]])]
        text, constraints = f"cp.async.{cache}.shared.global [$0], [$1], {count * size}", ["r", "l"]
        if masks is not None and not filled:
            present = w.assign(f"select i1 {masks[group[0]]}, i32 {count * size}, i32 0")
            args.append(("i32", present))
            text, constraints = text + ", $2", [*constraints, "r"]
        wanted = low.both(masks[group[0]], owner) if masks is not None and filled else owner
        predicated(low, text + ";", constraints, args, wanted)
    if filled:
        _fill_masked(low, op, groups, owner)
    low.set(op.result, [])


def _pieces(run: tuple[int, ...], count: int) -> set[tuple[int, ...]]:
    """A run cut into pieces of `count`."""
    return {run[i : i + count] for i in range(0, len(run), count)}


def _fill_masked(low: Lowering, op: Op, groups: list[tuple[int, ...]], owner: str | None) -> None:
    """Plain stores of `other` where the copy is masked."""
    pointer, buf, mask, other = op.inputs
    w, element = low.w, element_of(other.type)
    names, masks = low.get(other), low.get(mask)
    for group, shared in zip(groups, shared_addresses(low, buf, layout_of(pointer), tuple(g[0] for g in groups))):
        absent = low.both(w.assign(f"xor i1 {masks[group[0]]}, true"), owner)
        then, after = w.new_block("other"), w.new_block("filled")
        w.branch(absent or "true", then, after)
        w.start(then)
        bits, _ = word_shape(len(group), element.bytes)
        store_words(w, f"{_SHARED} {shared}", pack(w, [names[r] for r in group], element), bits)
        w.jump(after)
        w.start(after)


def async_load_commit(low: Lowering, op: Op) -> None:
    low.w.asm("void", "cp.async.commit_group;", "~{memory}", [])
    low.set(op.result, [])


def async_load_wait(low: Lowering, op: Op) -> None:
    low.w.asm("void", f"cp.async.wait_group {op.attrs['pendings']};", "~{memory}", [])
    low.set(op.result, [])


def bulk_load(low: Lowering, op: Op) -> None:
    pointer, buf, bar, size, pred = op.operands
    assert pointer is not None and buf is not None and bar is not None
    count = low.scalar(size) if size is not None else str(buffer_type(buf)[0].nbytes)
    low.task_barrier()
    target, barrier = shared_pointer(low, buf), shared_pointer(low, bar)
    args = [(_SHARED, target), (_GLOBAL, low.scalar(pointer)), ("i32", count), (_SHARED, barrier)]
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    predicated(low, text, ["r", "l", "r", "r"], args, low.both(low.elected(), optional(low, pred)))


def bulk_store(low: Lowering, op: Op) -> None:
    pointer, buf, size = op.operands
    assert pointer is not None and buf is not None
    count = low.scalar(size) if size is not None else str(buffer_type(buf)[0].nbytes)
    low.task_barrier()
    first = low.elected()
    args = [(_GLOBAL, low.scalar(pointer)), (_SHARED, shared_pointer(low, buf)), ("i32", count)]
    predicated(low, "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;", ["l", "r", "r"], args, first)
    predicated(low, "cp.async.bulk.commit_group;", [], [], first)


def prefetch(low: Lowering, op: Op) -> None:
    pointer, mask = op.operands
    assert pointer is not None
    addresses, masks = low.get(pointer), low.get(mask) if mask is not None else None
    tile = isinstance(pointer.type, Tensor)
    groups = access_runs(low.info, pointer, mask, layout_of(pointer)) if tile else ((0,),)
    owner = low.owner(layout_of(pointer)) if tile else low.first_thread()
    for first, *_ in groups:
        wanted = low.both(masks[first] if masks else None, owner)
        text = f"prefetch.global.{op.attrs['level']} [$0];"
        predicated(low, text, ["l"], [(_GLOBAL, addresses[first])], wanted)


LOWERINGS: dict[str, Lower] = {
    "prefetch": prefetch,
    "async_load": async_load,
    "async_load_commit": async_load_commit,
    "async_load_wait": async_load_wait,
    "bulk_load": bulk_load,
    "bulk_store": bulk_store,
}
