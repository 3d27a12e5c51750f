"""PTX opcodes of barriers, mbarriers, clusters and asynchronous bulk copies, and the gates of those that wait."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tlxc.emulator import barriers, copies, mbarrier, nvptx
from tlxc.emulator.nvptx_async import arrive_at_cluster, each_lane, map_address, wait_for_cluster
from tlxc.emulator.ptx_operands import (
    Action,
    Address,
    Frame,
    Immediate,
    PtxInstruction,
    Sink,
    Vector,
    type_bits,
    type_dtype,
)
from tlxc.emulator.tensormap import REDUCTIONS
from tlxc.emulator.values import Array

FrameGate = Callable[[Frame], Array]


# -- barriers of the CTA and the cluster
def unguarded(i: PtxInstruction) -> None:
    if i.guard is not None:
        raise i.unknown("a guard on a synchronising instruction is not supported")


def bar(i: PtxInstruction) -> Action:
    """bar.{sync,arrive}, barrier[.cta].{sync,arrive}[.aligned], bar.warp.sync, barrier.cluster.{arrive,wait}."""
    unguarded(i)
    if i.has("warp"):
        return lambda frame: nvptx.member_mask(frame.cta, frame.read(i.operands[0], "b32"), "bar.warp.sync")
    if i.has("cluster"):
        if i.has("wait"):
            return lambda frame: None  # its gate has done all
        return lambda frame: arrive_at_cluster(frame.cta, frame.mask, i.has("relaxed"))
    if i.has("sync"):
        return lambda frame: None
    if not i.has("arrive") or len(i.operands) != 2:
        raise i.unknown("only .sync, and .arrive with a thread count, are supported")

    def run(frame: Frame) -> None:
        for number, count, warps in barriers.by_number(frame.cta, *_named(i, frame)):
            barriers.arrive(frame.cta, number, count, warps)

    return run


def _named(i: PtxInstruction, frame: Frame) -> tuple[Array, Array | None]:
    number, *count = (frame.read(o, "u32") for o in i.operands)
    return number, count[0] if count else None


def _bar_gate(i: PtxInstruction) -> FrameGate:
    unguarded(i)
    if i.has("cluster"):
        return lambda frame: wait_for_cluster(frame.cta)
    return lambda frame: barriers.sync_gate(frame.cta, *_named(i, frame))


# -- mbarriers
def mbarrier_(i: PtxInstruction) -> Action:
    kind = i.modifiers[0]
    if kind not in _MBARRIER:
        raise i.unknown(f"only mbarrier.{', mbarrier.'.join(_MBARRIER)} are supported")
    return _MBARRIER[kind](i)


def _per_lane(i: PtxInstruction, function: Callable[[Frame, int, int, int], None]) -> Action:
    """`[barrier]` and perhaps a number: function(frame, lane, address, number)."""

    def run(frame: Frame) -> None:
        addresses = frame.addresses(i.operands[0])
        numbers = frame.read(i.operands[1], "u32") if len(i.operands) > 1 else np.zeros(frame.cta.lanes, np.uint32)
        for lane in each_lane(frame.mask):
            function(frame, lane, int(addresses[lane]), int(numbers[lane]))

    return run


def _arrive(i: PtxInstruction) -> Action:
    """mbarrier.arrive[_drop][.expect_tx] state, [barrier][, count or bytes]"""
    dst, address, *number = i.operands
    if i.has("noComplete"):
        raise i.unknown(".noComplete is not supported")

    def run(frame: Frame) -> None:
        cta, addresses = frame.cta, frame.addresses(address)
        given = frame.read(number[0], "u32") if number else np.ones(cta.lanes, np.uint32)
        if i.has("expect_tx"):
            mbarrier.expect(cta, addresses, given, frame.mask)
            given = np.ones(cta.lanes, np.uint32)
        state = mbarrier.arrive(cta, addresses, given, frame.mask, i.has("relaxed"), i.modifiers[0] == "arrive_drop")
        if not isinstance(dst, Sink):
            frame.write(dst, state)

    return run


def _complete(frame: Frame, lane: int, address: int, number: int) -> None:
    barrier = mbarrier.find(frame.cta, address, lane)
    barrier.expect(-number)
    barrier.try_complete()


def _wait_operands(i: PtxInstruction, frame: Frame) -> tuple[Array, Array]:
    return frame.addresses(i.operands[1]), frame.read(i.operands[2], "b32" if i.has("parity") else "b64")


def _test(i: PtxInstruction) -> Action:
    """mbarrier.{test,try}_wait[.parity] p, [barrier], state or parity[, time]"""

    def run(frame: Frame) -> None:
        done = mbarrier.test(frame.cta, *_wait_operands(i, frame), frame.mask, i.has("parity"))
        if i.has("test_wait") and not done[frame.mask].all():
            frame.cta.cluster.polled()
        frame.write(i.operands[0], done)

    return run


def _wait_gate(i: PtxInstruction) -> FrameGate:
    return lambda frame: mbarrier.wait_gate(frame.cta, *_wait_operands(i, frame), frame.mask, i.has("parity"))


_MBARRIER: dict[str, Callable[[PtxInstruction], Action]] = {
    "init": lambda i: _per_lane(i, lambda f, lane, at, n: mbarrier.initialise(f.cta, at, n, lane)),
    "inval": lambda i: _per_lane(i, lambda f, lane, at, n: mbarrier.invalidate(f.cta, at, lane)),
    "expect_tx": lambda i: _per_lane(i, lambda f, lane, at, n: mbarrier.find(f.cta, at, lane).expect(n)),
    "complete_tx": lambda i: _per_lane(i, _complete),
    "arrive": _arrive,
    "arrive_drop": _arrive,
    "test_wait": _test,
    "try_wait": _test,
}


def compile_gate(i: PtxInstruction) -> FrameGate:
    """The gate of a statement that may have to wait."""
    if i.opcode == "mbarrier":
        return _wait_gate(i)
    if i.opcode == "wgmma":
        return lambda frame: barriers.warp_group_gate(frame.cta)
    return _bar_gate(i)


# -- clusters
def mapa(i: PtxInstruction) -> Action:
    dst, address, rank = i.operands
    width = f"u{type_bits(i.type)}"
    return lambda frame: frame.write(
        dst,
        map_address(frame.read(address, width).astype(np.uint64), frame.read(rank, "u32")).astype(type_dtype(width)),
    )


def elect(i: PtxInstruction) -> Action:
    """elect.sync d|p, membermask"""
    unguarded(i)
    dst, predicate, mask = i.operands

    def run(frame: Frame) -> None:
        lane, chosen = nvptx.elect(frame.cta, frame.read(mask, "b32"))
        frame.write(dst, lane)
        frame.write(predicate, chosen)

    return run


# -- bulk copies
def bulk_copy(i: PtxInstruction) -> Action:
    """cp.async.bulk... and cp.reduce.async.bulk..."""
    if i.has("commit_group"):
        return _commit
    if i.has("wait_group"):
        return _wait_group(i)
    if i.has("prefetch"):
        return lambda frame: None
    if i.has("bulk_group"):
        return _store_block(i) if i.has("tensor") else _store_bytes(i)
    if not i.has("mbarrier::complete_tx::bytes"):
        raise i.unknown("a bulk copy needs .bulk_group or .mbarrier::complete_tx::bytes")
    if i.has("tensor"):
        return _load_block(i)
    return _load_bytes(i) if i.has("global") else _send_bytes(i)


def _commit(frame: Frame) -> None:
    for lane in each_lane(frame.mask):
        copies.commit(frame.cta, lane)


def _wait_group(i: PtxInstruction) -> Action:
    keep = i.operands[0]
    if not isinstance(keep, Immediate):
        raise i.unknown("the number of groups must be a constant")

    def run(frame: Frame) -> None:
        for lane in each_lane(frame.mask):
            copies.wait(frame.cta, lane, int(keep.value), i.has("read"))

    return run


def _block(i: PtxInstruction, frame: Frame, operand: Address) -> tuple[Array, list[Array]]:
    """Address of the map, coordinates."""
    if not isinstance(operand, Address) or not isinstance(operand.coordinates, Vector):
        raise i.unknown("a tensor copy names its block as [map, {coordinates}]")
    return frame.addresses(operand), [frame.read(c, "s32") for c in operand.coordinates.parts]


def _multicast(i: PtxInstruction, frame: Frame, rest: list[object]) -> Array | None:
    return frame.read(rest[0], "u16") if i.has("multicast::cluster") else None


def _load_block(i: PtxInstruction) -> Action:
    dst, block, barrier, *rest = i.operands
    if not set(i.modifiers).isdisjoint(("im2col", "tile::gather4")):
        raise i.unknown("only the .tile mode is supported")

    def run(frame: Frame) -> None:
        to, signal, mask = frame.addresses(dst), frame.addresses(barrier), _multicast(i, frame, rest)
        maps, start = _block(i, frame, block)
        for lane in each_lane(frame.mask):
            map_ = frame.cta.tensor_map(int(maps[lane]), lane)
            targets = None if mask is None else int(mask[lane])
            place = [int(c[lane]) for c in start]
            copies.load_block(frame.cta, lane, int(to[lane]), map_, place, int(signal[lane]), targets)

    return run


def _reduction(i: PtxInstruction) -> str:
    if i.modifiers[0] != "reduce":
        return ""
    return next((m for m in i.modifiers if m in REDUCTIONS), "inc or dec")


def _store_block(i: PtxInstruction) -> Action:
    block, source, reduction = i.operands[0], i.operands[1], _reduction(i)

    def run(frame: Frame) -> None:
        maps, start = _block(i, frame, block)
        at = frame.addresses(source)
        for lane in each_lane(frame.mask):
            map_ = frame.cta.tensor_map(int(maps[lane]), lane)
            copies.store_block(frame.cta, lane, map_, [int(c[lane]) for c in start], int(at[lane]), reduction)

    return run


def _store_bytes(i: PtxInstruction) -> Action:
    dst, source, size = i.operands[:3]
    reduction = _reduction(i)
    dtype = type_dtype(i.type) if reduction else None

    def run(frame: Frame) -> None:
        to, at, count = frame.addresses(dst), frame.addresses(source), frame.read(size, "u32")
        for lane in each_lane(frame.mask):
            copies.store_bytes(frame.cta, lane, int(to[lane]), int(at[lane]), int(count[lane]), reduction, dtype)

    return run


def _load_bytes(i: PtxInstruction) -> Action:
    dst, source, size, barrier, *rest = i.operands

    def run(frame: Frame) -> None:
        to, at, signal = (frame.addresses(o) for o in (dst, source, barrier))
        count, mask = frame.read(size, "u32"), _multicast(i, frame, rest)
        for lane in each_lane(frame.mask):
            targets = None if mask is None else int(mask[lane])
            copies.load_bytes(
                frame.cta, lane, int(to[lane]), int(at[lane]), int(count[lane]), int(signal[lane]), targets
            )

    return run


def _send_bytes(i: PtxInstruction) -> Action:
    dst, source, size, barrier = i.operands

    def run(frame: Frame) -> None:
        to, at, signal = (frame.addresses(o) for o in (dst, source, barrier))
        count = frame.read(size, "u32")
        for lane in each_lane(frame.mask):
            copies.send_bytes(frame.cta, lane, int(to[lane]), int(at[lane]), int(count[lane]), int(signal[lane]))

    return run


def store_async(i: PtxInstruction) -> Action:
    """st.async[.weak].shared::cluster.mbarrier::complete_tx::bytes[.v2,.v4].type [a], b, [mbarrier]"""
    address, source, barrier = i.operands
    registers = list(source.parts) if isinstance(source, Vector) else [source]
    type_name = f"b{type_bits(i.type)}"

    def run(frame: Frame) -> None:
        values = np.stack([frame.read(r, type_name) for r in registers], axis=1)
        rows = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
        to, signal = frame.addresses(address), frame.addresses(barrier)
        for lane in each_lane(frame.mask):
            copies.send_value(frame.cta, lane, int(to[lane]), rows[lane], int(signal[lane]))

    return run
