"""Matrix instructions: register fragments, shared-memory operands and numerics.

Numerics: products are exact, sums are formed in float32 (float64 for f64 and integer kinds), first over K, then with
the accumulator. The order of summation and the rounding inside a hardware unit differ, so results agree to within the
usual bound for a float32 sum of K + 1 terms, not bit for bit.

In fragments a lane of a warp is (g, t) = (lane // 4, lane % 4) on NVIDIA; elements of a register are little end first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Cta
from tlxc.emulator.memory import RANK_SHIFT
from tlxc.emulator.values import BF16, Array

_ELEMENTS: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": BF16,
    "tf32": np.dtype(np.float32),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
}


def element_bits(kind: str) -> int:
    if kind not in _ELEMENTS:
        raise EmulatorError(f"Matrix operands of type {kind} are not supported; {', '.join(_ELEMENTS)} are.")
    return 8 * _ELEMENTS[kind].itemsize


def decode(data: Array, kind: str) -> Array:
    """Bits of any container, viewed along the last axis as elements, in the type the products are formed in."""
    if kind == "tf32":  # the unit ignores the low 13 bits
        data = np.ascontiguousarray(data).view(np.uint32) & np.uint32(0xFFFFE000)
    elements = np.ascontiguousarray(data).view(_ELEMENTS[kind])
    return elements.astype(np.float64 if kind in ("f64", "s8", "u8") else np.float32)


# -- NVIDIA fragments; registers are a list of (lanes,) arrays of 32-bit words
def _stack(cta: Cta, registers: list[Array], warps: Array) -> Array:
    """(warps, 32, registers)"""
    return cta.by_warp(np.stack(registers, axis=1))[warps]


def fragment_a(words: Array, kind: str) -> Array:
    """(warps, 32, registers) of uint32 to (warps, 16, K). Register r holds row g + 8*(r%2), K step r//2."""
    per = 32 // element_bits(kind)
    parts = decode(words, kind).reshape(len(words), 8, 4, -1, 2, per)  # warp, g, t, K step, row half, element
    return parts.transpose(0, 4, 1, 3, 2, 5).reshape(len(words), 16, -1)


def fragment_b(words: Array, kind: str) -> Array:
    """(warps, 32, registers) of uint32 to (warps, 8, K): column g, K step r."""
    per = 32 // element_bits(kind)
    parts = decode(words, kind).reshape(len(words), 8, 4, -1, per)
    return parts.transpose(0, 1, 3, 2, 4).reshape(len(words), 8, -1)


def accumulator_tile(values: Array) -> Array:
    """(warps, 32, count) to (warps, 16, 2*count): element i is row g + 8*((i//2)%2), column 8*(i//4) + 2t + i%2."""
    parts = values.reshape(len(values), 8, 4, -1, 2, 2)
    return parts.transpose(0, 4, 1, 3, 2, 5).reshape(len(values), 16, -1)


def accumulator_values(tile: Array) -> Array:
    """The inverse of `accumulator_tile`."""
    warps, _, columns = tile.shape
    parts = tile.reshape(warps, 2, 8, columns // 8, 4, 2).transpose(0, 2, 4, 3, 1, 5)
    return parts.reshape(warps, 32, columns // 2)


def mma(cta: Cta, a: list[Array], b: list[Array], c: list[Array], kind_a: str, kind_b: str, name: str) -> list[Array]:
    """mma.sync m16n8: `a` and `b` are 32-bit words, `c` the four accumulators; returns the four results."""
    warps = cta.active_warps(name)
    left = fragment_a(_stack(cta, a, warps), kind_a)
    right = fragment_b(_stack(cta, b, warps), kind_b)
    if left.shape[2] != right.shape[2]:
        raise EmulatorError(f"{name}: A has K = {left.shape[2]}, B has K = {right.shape[2]}.")
    start = accumulator_tile(_stack(cta, c, warps))
    tile = (np.matmul(left, right.transpose(0, 2, 1)) + start).astype(c[0].dtype)
    return _scatter(cta, accumulator_values(tile), warps)


def _scatter(cta: Cta, values: Array, warps: Array) -> list[Array]:
    """(executing warps, 32, registers) to one (lanes,) array per register, zero in the other warps."""
    count = values.shape[2]
    if len(warps) == cta.warps:
        flat = values.reshape(cta.lanes, count)
    else:
        flat = np.zeros((cta.lanes, count), values.dtype)
        cta.by_warp(flat)[warps] = values
    columns = np.ascontiguousarray(flat.T)
    return list(columns)


# -- wgmma operands in shared memory
_SWIZZLE_BYTES = {0: 16, 1: 128, 2: 64, 3: 32}
_SWIZZLE_BITS = {0: 0, 1: 7, 2: 3, 3: 1}


@dataclass(frozen=True)
class Descriptor:
    """A wgmma matrix descriptor, in bytes. `mode`: 0 none, 1 128-byte, 2 64-byte, 3 32-byte swizzle."""

    start: int
    leading: int
    stride: int
    mode: int

    @staticmethod
    def decode(bits: int) -> Descriptor:
        if (bits >> 49) & 7:
            raise EmulatorError(f"The matrix descriptor {bits:#x} has a base offset; align the operand to its swizzle.")
        fields = [((bits >> shift) & 0x3FFF) << 4 for shift in (0, 16, 32)]
        return Descriptor(fields[0], fields[1], fields[2], (bits >> 62) & 3)

    def addresses(self, extent: int, transposed: bool) -> Array:
        """Shared addresses of the 16-byte pieces: (extent, 2) when K-major, (16 k, extent / 8) when MN-major."""
        width = _SWIZZLE_BYTES[self.mode]
        if not transposed:
            row, piece = np.arange(extent)[:, None], np.arange(2)
            step = self.leading if self.mode == 0 else 16
            address = (row // 8) * self.stride + (row % 8) * width + piece * step
        else:
            k, piece = np.arange(16)[:, None], np.arange(extent // 8)
            per = width // 16
            block, group = (self.stride, self.leading) if self.mode == 0 else (self.leading, self.stride)
            address = (piece // per) * block + (piece % per) * 16 + (k % 8) * width + (k // 8) * group
        address = address + self.start
        return address ^ (((address >> 7) & _SWIZZLE_BITS[self.mode]) << 4)


def _shared_operand(cta: Cta, bits: int, extent: int, transposed: bool, kind: str, warps: Array) -> Array:
    """(extent, K) of one warp group's operand in shared memory."""
    if transposed and element_bits(kind) != 16:
        raise EmulatorError(f"wgmma takes an MN-major operand only for 16-bit types, not for {kind}.")
    address = Descriptor.decode(bits).addresses(extent, transposed)
    address = address + (cta.rank << RANK_SHIFT)  # a descriptor has 18 bits of the address: in the CTA's own memory
    rows = cta.shared.load_async(address.reshape(-1).astype(np.uint64), warps + cta.first_warp)
    matrix = decode(rows, kind).reshape(address.shape[0], -1)
    return matrix.T if transposed else matrix


@dataclass(frozen=True)
class Wgmma:
    """The immediates of one `wgmma.mma_async` of shape m64 x n."""

    n: int
    kind_a: str
    kind_b: str
    scale_a: int
    scale_b: int
    transposed_a: bool
    transposed_b: bool


def wgmma(cta: Cta, op: Wgmma, a: list[Array] | Array, b: Array, accumulators: list[Array], keep: Array) -> list[Array]:
    """D = A*B + (keep ? D : 0). `a` is a descriptor per lane or four registers; `keep` is the scale-d predicate."""
    warps = cta.active_warps("wgmma", group=4)
    tile = accumulator_tile(_stack(cta, accumulators, warps)).reshape(-1, 64, op.n)
    left = fragment_a(_stack(cta, a, warps), op.kind_a).reshape(len(tile), 64, -1) if isinstance(a, list) else None
    result = np.empty_like(tile)
    for at, group in enumerate(warps.reshape(-1, 4)):
        first = group[0] * 32
        lanes = slice(first, first + 128)
        descriptor_b = _uniform(b[lanes], "The descriptor of B")
        if left is None:
            assert isinstance(a, np.ndarray)
            matrix_a = _shared_operand(
                cta, _uniform(a[lanes], "The descriptor of A"), 64, op.transposed_a, op.kind_a, group
            )
        else:
            matrix_a = left[at]
        matrix_b = _shared_operand(cta, descriptor_b, op.n, op.transposed_b, op.kind_b, group)
        product = np.matmul(matrix_a, matrix_b.T) * (op.scale_a * op.scale_b)
        result[at] = product + tile[at] if _uniform(keep[lanes], "scale-d") else product
    values = accumulator_values(result.reshape(-1, 16, op.n))
    return _scatter(cta, values, warps)


def _uniform(value: Array, what: str) -> int:
    if (value != value[0]).any():
        raise EmulatorError(f"{what} must be the same in all lanes of a warp group.")
    return int(value[0])


# -- 8x8 matrices of 16-bit elements (ldmatrix, stmatrix)
def load_matrix(cta: Cta, addresses: Array, count: int, transposed: bool) -> list[Array]:
    """ldmatrix .x`count`: lane 8j + i gives the address of row i of matrix j; returns one uint32 per matrix."""
    warps = cta.active_warps("ldmatrix")
    mask = _row_lanes(cta, count)
    rows = cta.by_warp(cta.load(3, addresses, 16, 16, mask))[warps, : 8 * count]
    halves = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, count, 8, 8)
    if transposed:
        halves = np.ascontiguousarray(halves.transpose(0, 1, 3, 2))
    words = halves.view(np.uint32).reshape(-1, count, 32)
    return _scatter(cta, words.transpose(0, 2, 1), warps)


def store_matrix(cta: Cta, addresses: Array, registers: list[Array], transposed: bool) -> None:
    """stmatrix, the inverse of `load_matrix`."""
    warps, count = cta.active_warps("stmatrix"), len(registers)
    words = np.ascontiguousarray(cta.by_warp(np.stack(registers, axis=1)).transpose(0, 2, 1))
    halves = words.view(np.uint16).reshape(cta.warps, count, 8, 8)
    if transposed:
        halves = halves.transpose(0, 1, 3, 2)
    rows = np.zeros((cta.warps, 32, 16), np.uint8)
    rows[:, : 8 * count] = np.ascontiguousarray(halves).view(np.uint8).reshape(cta.warps, 8 * count, 16)
    cta.store(3, addresses, rows.reshape(cta.lanes, 16), 16, _row_lanes(cta, count))
    assert len(warps)


def _row_lanes(cta: Cta, count: int) -> Array:
    return cta.active & (cta.lane_ids % 32 < 8 * count)


# -- AMD MFMA: one block of MxNxK, M = N in {16, 32}, 64 lanes
@lru_cache(maxsize=64)
def mfma_operand_index(m: int, k: int) -> tuple[Array, Array]:
    """(row or column, k) of [lane, element] of an A or B operand."""
    lane, per = np.arange(64)[:, None], m * k // 64
    element = np.arange(per)
    return np.broadcast_to(lane % m, (64, per)), (lane // m) * per + element


@lru_cache(maxsize=8)
def mfma_result_index(m: int, is_double: bool) -> tuple[Array, Array]:
    """(row, column) of [lane, register] of the accumulator."""
    lane, register = np.arange(64)[:, None], np.arange(m * m // 64)
    if is_double:
        row = 4 * register + lane // 16
    elif m == 32:
        row = 8 * (register // 4) + 4 * (lane // 32) + register % 4
    else:
        row = 4 * (lane // 16) + register
    return row, np.broadcast_to(lane % m, row.shape)


def mfma(cta: Cta, a: Array, b: Array, c: Array, m: int, k: int, kind_a: str, kind_b: str) -> Array:
    """v_mfma MxMxK. `a`, `b`: (lanes, ...) in any container, `c`: (lanes, M*M/64)."""
    warps = cta.active_warps("mfma")
    left, right = (
        decode(np.ascontiguousarray(v).reshape(cta.lanes, -1), kind) for v, kind in ((a, kind_a), (b, kind_b))
    )
    index = mfma_operand_index(m, k)
    if left.shape[1] != index[0].shape[1]:
        raise EmulatorError(f"mfma {m}x{m}x{k} {kind_a} with several blocks is not supported.")
    rows, columns = mfma_result_index(m, kind_a == "f64")
    operands = []
    for values in (left, right):
        matrix = np.zeros((len(warps), m, k), values.dtype)
        matrix[:, index[0], index[1]] = cta.by_warp(values)[warps]
        operands.append(matrix)
    product = np.matmul(operands[0], operands[1].transpose(0, 2, 1))
    result = np.zeros_like(c)
    start = cta.by_warp(c)[warps]
    cta.by_warp(result)[warps] = (product[:, rows, columns] + start).astype(c.dtype)
    return result
