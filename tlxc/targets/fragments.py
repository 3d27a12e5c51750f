"""Register layouts that instructions dictate: MMA accumulators and operands, tensor-memory accesses.

Each constructor takes the shape of a whole tile and repeats the instruction's fragment over it.  Register order is the
operand order of the instruction; further instructions follow along the last dimension first.
"""

from __future__ import annotations

from functools import cache

from tlxc.ir.layout import Layout, LayoutError, TileBits, from_coords, log2_exact


def _accumulator(shape: tuple[int, int], warp_rows: int, warp_columns: int, warp_copies: int = 0) -> Layout:
    """The quad layout of all NVIDIA register accumulators, 16 rows by 8 columns per warp.

    The first `warp_rows` warp bits tile rows above 16, the next `warp_columns` tile columns above 8; what remains tiles
    rows again.
    """
    tile = TileBits(shape)
    c1, c2, c4 = tile.run(1, 3)
    r1, r2, r4, r8 = tile.run(0, 4)
    warp = tile.fill(warp_rows, (0,)) + tile.fill(warp_columns, (1,)) + tile.fill(warp_copies, (0,))
    return from_coords(shape, register=[c1, r8] + tile.rest((1, 0)), lane=[c2, c4, r1, r2, r4], warp=warp)


def _check_warpgroup(what: str, m: int, warps: int) -> None:
    if m % 64 or warps % 4:
        raise LayoutError(
            f"A wgmma {what} needs rows in units of 64 and warps in units of 4 (one warpgroup); it has {m} rows on "
            f"{warps} warps."
        )


@cache
def wgmma_acc(m: int, n: int, warps: int = 4) -> Layout:
    """m64nN accumulator: any n % 8 == 0; further warpgroups and instructions along m."""
    _check_warpgroup("accumulator", m, warps)
    if n % 8:
        raise LayoutError(f"A wgmma accumulator needs columns in units of 8; it has {n}.")
    return _accumulator((m, n), 2, 0, log2_exact(warps) - 2)


@cache
def wgmma_a(m: int, k: int, warps: int = 4, elem: int = 2) -> Layout:
    """Operand A in registers: 32 bytes of k per instruction (k16 for 16-bit elements, k32 for 8-bit, k8 for tf32)."""
    _check_warpgroup("register operand", m, warps)
    if k % (32 // elem):
        raise LayoutError(
            f"A wgmma register operand of {elem}-byte elements needs k in units of {32 // elem}; it has {k}."
        )
    tile = TileBits((m, k))
    word = tile.run(1, log2_exact(4 // elem))
    quad = tile.run(1, 2)
    r1, r2, r4, r8 = tile.run(0, 4)
    warp = tile.fill(log2_exact(warps), (0,))
    return from_coords((m, k), register=word + [r8] + tile.rest((1, 0)), lane=quad + [r1, r2, r4], warp=warp)


@cache
def mma16816(role: str, shape: tuple[int, int], warps: tuple[int, int] = (4, 1)) -> Layout:
    """mma.sync m16n8k16 fragments of 16-bit operands: role 'acc' [m,n], 'a' [m,k], 'b' [k,n]; warps = grid (m, n)."""
    warp_m, warp_n = map(log2_exact, warps)
    if role not in ("acc", "a", "b"):
        raise LayoutError(f"An mma.sync fragment has the role 'acc', 'a' or 'b', not '{role}'.")
    if role == "acc":
        return _accumulator(shape, warp_m, warp_n)
    tile, copies = TileBits(shape), [(0, 0)]
    k_dim = 1 if role == "a" else 0
    k1, k2, k4 = tile.run(k_dim, 3)
    r1, r2, r4 = tile.run(1 - k_dim, 3)
    if role == "a":
        registers = [k1, *tile.run(0, 1), *tile.run(1, 1)]
        warp = tile.fill(warp_m, (0,)) + copies * warp_n
    else:
        registers = [k1, *tile.run(0, 1)]
        warp = copies * warp_m + tile.fill(warp_n, (1,))
    rest = tile.rest((k_dim, 1 - k_dim))
    return from_coords(shape, register=registers + rest, lane=[k2, k4, r1, r2, r4], warp=warp)


@cache
def mfma_acc(shape: tuple[int, int], size: int = 32, warps: int = 4) -> Layout:
    """MFMA f32 accumulator, wave 64: lane = column, groups of four rows per half (32x32) or quarter (16x16) wave."""
    if size not in (16, 32):
        raise LayoutError(f"An MFMA accumulator is 16x16 or 32x32, not {size}x{size}.")
    tile = TileBits(shape)
    lane = tile.run(1, log2_exact(size))
    registers = tile.run(0, 2)
    groups = 6 - log2_exact(size)
    lane += tile.run(0, groups)
    registers += tile.run(0, log2_exact(size) - 2 - groups)
    warp = tile.fill(log2_exact(warps), (0, 1))
    return from_coords(shape, register=registers + tile.rest((1, 0)), lane=lane, warp=warp)


@cache
def tmem_32x32b(shape: tuple[int, int], warps: int = 4) -> Layout:
    """tcgen05.ld.32x32b: thread = TMEM lane, register = column; a second warpgroup takes the upper column bit."""
    if shape[0] != 128 or warps not in (4, 8):
        raise LayoutError(
            f"A 32x32b tensor-memory access moves 128 rows with 4 or 8 warps; it has {shape[0]} rows and {warps} warps."
        )
    tile = TileBits(shape)
    lane, warp = tile.run(0, 5), tile.run(0, 2)
    if warps == 8:
        warp.append(tile.take_top(1) or (0, 0))
    return from_coords(shape, register=tile.rest((1, 0)), lane=lane, warp=warp)
