"""PTX opcodes of tensor maps that a kernel makes."""

from __future__ import annotations

import numpy as np

from tlxc.emulator.ptx_operands import Action, Frame, Immediate, PtxInstruction, type_bits
from tlxc.emulator.tensormap import MAP, MAP_BYTES

_GLOBAL, _SHARED = 1, 3  # address spaces


def tensormap(i: PtxInstruction) -> Action:
    return _copy(i) if i.has("cp_fenceproxy") else _replace(i)


def _number(i: PtxInstruction, at: int, what: str) -> int:
    operand = i.operands[at]
    if not isinstance(operand, Immediate):
        raise i.unknown(f"{what} must be a constant")
    return int(operand.value)


def _replace(i: PtxInstruction) -> Action:
    """tensormap.replace.tile.field.space.b1024.type [map], [dimension,] value"""
    name = i.modifiers[2] if len(i.modifiers) > 2 else ""
    if i.modifiers[:2] != ("replace", "tile") or name not in (MAP.names or ()):
        raise i.unknown("only tensormap.replace.tile of a field is supported")
    assert MAP.fields is not None
    field, offset = MAP.fields[name][:2]
    size, type_name, dims = field.base.itemsize, f"b{type_bits(i.type)}", field.shape
    if type_bits(i.type) != 8 * size:
        raise i.unknown(f"the field .{name} has {8 * size} bits")
    if len(i.operands) != 2 + len(dims):
        raise i.unknown(f"the field .{name} takes {1 + len(dims)} operands behind the address")
    if dims:
        at = _number(i, 1, "the dimension")
        if not 0 <= at < dims[0]:
            raise i.unknown(f"the dimension is one of 0 to {dims[0] - 1}")
        offset += at * size
    space = _SHARED if i.has("shared::cta") else _GLOBAL

    def run(frame: Frame) -> None:
        rows = np.ascontiguousarray(frame.read(i.operands[-1], type_name))[:, None].view(np.uint8)
        frame.cta.store(space, frame.addresses(i.operands[0]) + np.uint64(offset), rows, size, frame.mask)

    return run


def _copy(i: PtxInstruction) -> Action:
    """tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned [dst], [src], 128"""
    if _number(i, 2, "the size") != MAP_BYTES:
        raise i.unknown(f"the size is {MAP_BYTES}")

    def run(frame: Frame) -> None:
        cta = frame.cta
        whole = cta.by_warp(frame.mask)
        if (whole.any(axis=1) & ~whole.all(axis=1)).any():
            raise i.unknown("all lanes of a warp must execute it together")
        to, source = (frame.addresses(o) for o in i.operands[:2])
        firsts = np.zeros(cta.lanes, bool)
        firsts[:: cta.warp_size] = True
        rows = cta.load(_SHARED, source, MAP_BYTES, MAP_BYTES, frame.mask & firsts)
        for lane in np.nonzero(frame.mask & firsts)[0]:
            cta.global_memory.publish_map(int(to[lane]), rows[lane], int(lane))

    return run


def fence(i: PtxInstruction) -> Action:
    """fence.proxy.tensormap::generic.acquire.scope [map], 128; a release says nothing to the emulator."""
    if not i.has("acquire"):
        return lambda frame: None
    if _number(i, 1, "the size") != MAP_BYTES:
        raise i.unknown(f"the size is {MAP_BYTES}")

    def run(frame: Frame) -> None:
        addresses = frame.addresses(i.operands[0])
        for address in np.unique(addresses[frame.mask]):
            frame.cta.acquire_map(int(address), frame.mask & (addresses == address))

    return run
