"""AMD intrinsics (`llvm.amdgcn.*`). A wave is `cta.warp_size` lanes (64 on CDNA)."""

from __future__ import annotations

import re
from collections.abc import Callable
from re import Match
from typing import Any

import numpy as np

from tlxc.emulator import matrix, numerics
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.generic import Factory, Handler, nothing
from tlxc.emulator.instructions import constant_index
from tlxc.emulator.machine import Cta
from tlxc.emulator.memory import implicit_address
from tlxc.emulator.parse import Instruction
from tlxc.emulator.values import Array, from_bytes


def _simple(function: Callable[[Cta, list[Any]], Any]) -> Factory:
    """A handler that needs nothing of the call but its arguments."""
    return lambda call, match, attributes: function


def _constant(call: Instruction, at: int) -> int:
    value = constant_index(call.operands[at])
    if value is None:
        raise EmulatorError(f"Argument {at} of @{call.detail['callee']} must be a constant.")
    return value


def _work_item(call: Instruction, match: Match[str], attributes: str) -> Handler:
    if match[1] == "x":
        return lambda cta, args: cta.lane_ids.astype(np.uint32)
    return lambda cta, args: np.zeros(cta.lanes, np.uint32)


def _work_group(call: Instruction, match: Match[str], attributes: str) -> Handler:
    axis = "xyz".index(match[1])
    return lambda cta, args: np.full(cta.lanes, cta.ctaid[axis], np.uint32)


# -- lanes
def _lane_ids(cta: Cta) -> Array:
    return cta.lane_ids % cta.warp_size


def _bits(cta: Cta, mask: Array) -> Array:
    """Per wave, bit i of the result is `mask` of lane i; (lanes,) of uint64, the same in a whole wave."""
    packed = np.packbits(cta.by_warp(mask), axis=1, bitorder="little")
    wide = np.zeros((cta.warps, 8), np.uint8)
    wide[:, : packed.shape[1]] = packed
    return np.repeat(wide.view(np.uint64)[:, 0], cta.warp_size)


def _ballot(call: Instruction, match: Match[str], attributes: str) -> Handler:
    dtype = np.dtype(f"uint{match[1]}")
    return lambda cta, args: _bits(cta, cta.active & args[0]).astype(dtype)


def _count_below(low: bool) -> Factory:
    """mbcnt.lo / .hi: bits of the mask's half below this lane, plus the second operand."""

    def factory(call: Instruction, match: Match[str], attributes: str) -> Handler:
        def run(cta: Cta, args: list[Any]) -> Array:
            below = np.clip(_lane_ids(cta) - (0 if low else 32), 0, 32).astype(np.uint64)
            kept = args[0].astype(np.uint64) & ((np.uint64(1) << below) - np.uint64(1))
            counts = np.unpackbits(kept.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1)
            return (counts + args[1]).astype(np.uint32)

        return run

    return factory


def _read_first_lane(cta: Cta, args: list[Any]) -> Array:
    first = cta.by_warp(cta.active).argmax(axis=1) + np.arange(cta.warps) * cta.warp_size
    return np.repeat(args[0][first], cta.warp_size, axis=0)


def _read_lane(cta: Cta, args: list[Any]) -> Array:
    value, lane = args
    first = cta.by_warp(cta.active).argmax(axis=1)
    chosen = cta.by_warp(lane)[np.arange(cta.warps), first].astype(np.int64) % cta.warp_size
    wrong = cta.active & (lane.astype(np.int64) % cta.warp_size != np.repeat(chosen, cta.warp_size))
    if wrong.any():
        raise EmulatorError("The lane of readlane must be the same in all lanes of a wave.")
    return np.repeat(value[chosen + np.arange(cta.warps) * cta.warp_size], cta.warp_size, axis=0)


def _bpermute(cta: Cta, args: list[Any]) -> Array:
    """Lane (address / 4) of the wave; a lane that does not execute gives 0."""
    source = cta.lane_ids - _lane_ids(cta) + (args[0] >> 2).astype(np.int64) % cta.warp_size
    return np.where(cta.active[source], args[1][source], np.zeros_like(args[1]))


def _swap(call: Instruction, match: Match[str], attributes: str) -> Handler:
    """permlane{16,32}.swap: odd rows (of 16 or 32 lanes) of the first exchange with even rows of the second."""
    row = int(match[1])

    def run(cta: Cta, args: list[Any]) -> tuple[Array, Array]:
        cta.active_warps(f"permlane{row}.swap")
        odd = cta.lane_ids // row % 2 == 1
        first = np.where(odd, np.roll(args[1], row), args[0])
        second = np.where(odd, args[1], np.roll(args[0], -row))
        return first, second

    return run


_DPP: list[tuple[range, Callable[[int, Array], tuple[Array, Array]]]] = [
    (range(0x000, 0x100), lambda c, lane: (lane // 4 * 4 + (c >> (2 * (lane % 4)) & 3), lane >= 0)),
    (range(0x101, 0x110), lambda c, lane: (lane + (c & 15), lane % 16 + (c & 15) < 16)),
    (range(0x111, 0x120), lambda c, lane: (lane - (c & 15), lane % 16 >= (c & 15))),
    (range(0x121, 0x130), lambda c, lane: (lane // 16 * 16 + (lane - (c & 15)) % 16, lane >= 0)),
    (range(0x140, 0x141), lambda c, lane: (lane // 16 * 16 + 15 - lane % 16, lane >= 0)),
    (range(0x141, 0x142), lambda c, lane: (lane // 8 * 8 + 7 - lane % 8, lane >= 0)),
    (range(0x142, 0x143), lambda c, lane: (lane // 16 * 16 - 1, lane >= 16)),
    (range(0x143, 0x144), lambda c, lane: (np.full_like(lane, 31), lane >= 32)),
    (range(0x150, 0x160), lambda c, lane: (lane // 16 * 16 + (c & 15), lane >= 0)),
    (range(0x160, 0x170), lambda c, lane: (lane // 16 * 16 + (lane % 16 ^ (c & 15)), lane >= 0)),
]


def dpp_source(control: int, lane: Array) -> tuple[Array, Array]:
    """(source lane in the wave, valid) of a DPP control word."""
    for controls, rule in _DPP:
        if control in controls:
            source, valid = rule(control, lane)
            return np.where(valid, source, lane), valid
    raise EmulatorError(f"The DPP control {control:#x} is not supported.")


def _update_dpp(call: Instruction, match: Match[str], attributes: str) -> Handler:
    control, row_mask, bank_mask, bound = (_constant(call, at) for at in (2, 3, 4, 5))

    def run(cta: Cta, args: list[Any]) -> Array:
        old, source_value = args[:2]
        lane = _lane_ids(cta)
        source, valid = dpp_source(control, lane)
        at = cta.lane_ids - lane + source
        valid = valid & cta.active[at]
        value = np.where(valid, source_value[at], np.zeros_like(old) if bound else old)
        written = ((row_mask >> (lane // 16 % 4)) & (bank_mask >> (lane % 16 // 4)) & 1).astype(bool)
        return np.where(written, value, old)

    return run


# -- math: exact to float32 here, the hardware's error is not modelled
def _math(function: Any) -> Factory:
    return lambda call, match, attributes: lambda cta, args: numerics.unary(function, args[0])


# -- matrices
_MFMA = r"llvm\.amdgcn\.mfma\.(f32|i32|f64)\.(\d+)x\d+x(\d+)\.?([\w.]+)"
_MFMA_KINDS = {"i8": "s8", "bf16.1k": "bf16", "bf16_1k": "bf16", "xf32": "tf32"}
_FP8 = {"fp8": "e4m3", "bf8": "e5m2"}


def _mfma(call: Instruction, match: Match[str], attributes: str) -> Handler:
    m, k, suffix = int(match[2]), int(match[3]), match[4]
    if any(constant_index(o) != 0 for o in call.operands[3:]):
        raise EmulatorError("mfma with broadcast or permutation controls (cbsz, abid, blgp) is not supported.")
    kinds = [_MFMA_KINDS.get(suffix, suffix)] * 2
    if suffix.split(".")[0] in _FP8:
        fnuz = "fnuz" if _target(attributes) == "gfx942" else ""
        kinds = [_FP8[part] + fnuz for part in suffix.split(".")]

    def run(cta: Cta, args: list[Any]) -> Array:
        c = args[2].view(np.int32) if match[1] == "i32" else args[2]
        return matrix.mfma(cta, args[0], args[1], c, m, k, *kinds).view(args[2].dtype)

    return run


def _target(attributes: str) -> str:
    match = re.search(r'"target-cpu"\s*=\s*"(\w+)"', attributes)
    if not match:
        raise EmulatorError('fp8 formats differ between AMD targets: give the kernel its "target-cpu" attribute.')
    return match[1]


def _transpose_load(call: Instruction, match: Match[str], attributes: str) -> Handler:
    """ds.read.tr{8,16}.b64: of the 8-byte rows of 16 lanes, lane j receives column j."""
    dtype = {"16": np.uint16, "8": np.uint8}[match[1]]

    def run(cta: Cta, args: list[Any]) -> Array:
        cta.active_warps("ds.read.tr")
        rows = np.ascontiguousarray(cta.load(3, args[0], 8, 8)).view(dtype)
        count = rows.shape[1]
        columns = rows.reshape(-1, count, 16).transpose(0, 2, 1).reshape(cta.lanes, count)
        return from_bytes(np.ascontiguousarray(columns).view(np.uint8), call.type)

    return run


# -- direct loads to LDS
def _load_to_lds(call: Instruction, match: Match[str], attributes: str) -> Handler:
    """Lane i of the wave writes at LDS base + i * size; each load is one group of the wait counter."""
    size = _constant(call, 2)

    def run(cta: Cta, args: list[Any]) -> tuple[()]:
        rows = cta.load(1, args[0], size, min(size, 4))
        base = _read_first_lane(cta, [args[1]])
        if (cta.active & (base != args[1])).any():
            raise EmulatorError("The LDS address of a direct load must be the same in all lanes of a wave.")
        cta.start_copy(base + (_lane_ids(cta) * size).astype(np.uint64), rows, cta.active)
        cta.commit_copies(np.unique(cta.warp_ids[cta.active]))
        return ()

    return run


def _wait_count(call: Instruction, match: Match[str], attributes: str) -> Handler:
    """s.waitcnt: only the vector-memory counter (bits 3:0 and 15:14) has an effect here."""
    bits = _constant(call, 0)
    keep = (bits & 15) | ((bits >> 10) & 0x30)

    def run(cta: Cta, args: list[Any]) -> tuple[()]:
        cta.finish_copies(keep, np.unique(cta.warp_ids[cta.active]))
        return ()

    return run


_A = r"llvm\.amdgcn\."
GATE_NAMES = re.compile(_A + r"s\.barrier")
INTRINSICS: dict[str, Factory] = {
    _A + r"workitem\.id\.([xyz])": _work_item,
    _A + r"workgroup\.id\.([xyz])": _work_group,
    _A + r"implicitarg\.ptr": _simple(lambda cta, args: np.full(cta.lanes, implicit_address(), np.uint64)),
    _A + r"s\.barrier": nothing,  # the gate has done all
    _A + r"(?:sched\..*|s\.setprio|wave\.barrier|iglp\.opt|s\.sleep)": nothing,
    _A + r"wavefrontsize": _simple(lambda cta, args: np.full(cta.lanes, cta.warp_size, np.uint32)),
    _A + r"ballot\.i(32|64)": _ballot,
    _A + r"mbcnt\.lo": _count_below(low=True),
    _A + r"mbcnt\.hi": _count_below(low=False),
    _A + r"readfirstlane(?:\.\w+)?": _simple(_read_first_lane),
    _A + r"readlane(?:\.\w+)?": _simple(_read_lane),
    _A + r"ds\.bpermute": _simple(_bpermute),
    _A + r"permlane(16|32)\.swap": _swap,
    _A + r"update\.dpp\.\w+": _update_dpp,
    _A + r"exp2\.\w+": _math(lambda v: numerics.flush(np.exp2(numerics.flush(v)))),
    _A + r"log\.\w+": _math(np.log2),
    _A + r"sqrt\.\w+": _math(np.sqrt),
    _A + r"rsq\.\w+": _math(lambda v: 1 / np.sqrt(numerics.flush(v))),  # a subnormal counts as 0
    _A + r"rcp\.\w+": _math(lambda v: 1 / v),
    _MFMA: _mfma,
    _A + r"ds\.read\.tr(8|16)\.b64\.\w+": _transpose_load,
    _A + r"(?:global\.load\.lds|load\.to\.lds\.p1)": _load_to_lds,
    _A + r"s\.waitcnt": _wait_count,
}
