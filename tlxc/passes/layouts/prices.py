"""What layouts cost: estimates in cycles of one SM, for the whole CTA.

Only ratios matter.  Prices of conversions, accesses and reductions come from counts that the layout algebra gives
exactly (instructions, wavefronts, sectors, steps); the constants turn counts into one currency.  Off by a factor of
three either way, any of them changes next to no decision.
"""

from __future__ import annotations

from functools import cache
from math import prod

from tlxc.ir import layout as algebra
from tlxc.ir.conversion import REGISTERS, SHARED, SHUFFLE, classify, live_warps, reduce_steps, trip_wavefronts
from tlxc.ir.f2 import span_map
from tlxc.ir.layout import Layout, log2_exact
from tlxc.ir.memory import (
    Memory,
    lane_offsets,
    matrix_access,
    shared_access,
    strided,
    vector_base,
    vector_bits,
    wavefronts_of,
    widest_swizzle,
)

BARRIER = 100.0  # two barriers and the latency of a trip through shared memory
SECTOR = 1.5  # 32 bytes at one SM's share of DRAM bandwidth
CACHED_SECTOR = SECTOR / 3  # a sector that another warp has just loaded
SHUFFLE_STEP = 1.0
ALU = 0.25  # one instruction per thread, four warps at a time
SPECIAL = 1.0  # transcendental functions and division
PACK = 0.001  # registers of small elements that change places may need a byte permute
IMPOSSIBLE = 1e12  # finite, so that differences stay meaningful

SECTOR_BYTES = 32
WORD = 4  # bytes: the narrowest cp.async and st.async
WIDEST = 16  # bytes of the widest access
PAGE = 4096  # elements: rows of a global tile are taken to start in different sectors and banks


def warps_of(a: Layout) -> int:
    return 1 << len(a.others)


@cache
def conversion_price(a: Layout, b: Layout, elem: int) -> float:
    """From layout a to b of a tile of `elem`-byte elements."""
    kind, mixed, selects = classify(a, b)
    n = b.registers
    if kind == SHARED:
        return BARRIER + trip_wavefronts(a, b, elem)
    if kind == REGISTERS:
        return PACK * n if elem < 4 else 0.0
    moves = SHUFFLE_STEP * max(1, n * elem // 4) if kind == SHUFFLE else 0.0
    return (moves + ALU * n * (mixed + selects)) * warps_of(a)


@cache
def detour_price(shape: tuple[int, ...], elem: int) -> float:
    """A conversion in the middle of a chain of relabelling ops, where no layout of the source gives the wanted one."""
    return 2 * BARRIER + 2 * prod(shape) * elem / 128


@cache
def global_price(a: Layout, elem: int, order: tuple[int, ...], vector: int, store: bool) -> float:
    """Warp instructions and sectors of a global access; `vector` is the widest access in elements, `order` the
    dimensions of the address, fastest first.  Copies in other warps hit the L1 cache, and are not stored."""
    strides, run = [0] * len(a.shape), 1
    for d in order:
        strides[d] = run
        run = (run * a.shape[d] + PAGE - 1) // PAGE * PAGE
    memory = strided(a.shape, tuple(strides))
    v = vector_bits(a, memory, elem, min(16, elem * vector))
    accesses = prod(a.reps) << len(vector_base(a, memory, v))
    starts = (offset * elem for offset in lane_offsets(a, memory, v))
    sectors = len({(s + x) // SECTOR_BYTES for s in starts for x in range(0, elem << v, 4)})
    fresh = live_warps(a)
    copies = 0 if store else warps_of(a) - fresh
    return accesses * ((1 + SECTOR * sectors) * fresh + (1 + CACHED_SECTOR * sectors) * copies)


@cache
def shared_price(a: Layout, memory: Memory, elem: int) -> float:
    """Instructions and wavefronts of a shared-memory access: plain vectors or 8x8 matrices, whichever is less."""
    _, accesses, waves = shared_access(a, memory, elem)
    best = float(accesses + waves)
    for trans in (False, True):
        if per_instruction := matrix_access(a, memory, elem, trans):
            lanes = [*a.lane[:2], a.reg[0]] if trans else a.lane[2:5]
            rows = [memory.offset(a.unpack(span_map(lanes, i))) for i in range(8)]
            matrices = max(1, a.registers * elem // 4)
            waves = wavefronts_of(rows, elem, log2_exact(16 // elem))
            best = min(best, matrices * waves + matrices / per_instruction)
    return best * warps_of(a)


@cache
def shared_store_price(a: Layout, memory: Memory, elem: int) -> float:
    """A store leaves out copies, which only plain accesses can do."""
    if not any(a.free_masks().values()):
        return shared_price(a, memory, elem)
    _, accesses, waves = shared_access(a, memory, elem)
    return float(accesses + waves) * live_warps(a)


@cache
def remote_price(a: Layout, memory: Memory, elem: int, least: int) -> float:
    """Storing to the shared memory of another CTA, at least `least` bytes at once."""
    width, accesses, waves = shared_access(a, memory, elem)
    return IMPOSSIBLE if width < least else float(accesses + waves) * live_warps(a)


def gather_price(a: Layout) -> float:
    """One access per element, at addresses that nothing is known of."""
    return 2.0 * a.registers * warps_of(a)


def async_load_bytes(a: Layout, memory: Memory, elem: int, vector: int) -> int:
    """Bytes of one cp.async: contiguous in global memory (`vector` elements at most) and in the buffer."""
    return elem << vector_bits(a, memory, elem, min(WIDEST, elem * vector))


@cache
def async_load_price(a: Layout, memory: Memory, elem: int, order: tuple[int, ...], vector: int) -> float:
    width = async_load_bytes(a, memory, elem, vector)
    if width < WORD:
        return IMPOSSIBLE
    return global_price(a, elem, order, width // elem, False) + float(shared_access(a, memory, elem)[2]) * warps_of(a)


@cache
def stage_price(a: Layout, elem: int) -> float:
    """Storing a matrix operand to shared memory, swizzled along whichever dimension suits the registers: wgmma reads
    16-bit operands of either major."""
    memories = (widest_swizzle(a.shape, elem), widest_swizzle(a.shape[::-1], elem).transpose((1, 0)))
    return BARRIER + min(shared_price(a, memory, elem) for memory in memories)


@cache
def reduce_price(a: Layout, axis: int) -> tuple[float, float]:
    """(inside threads, across lanes and warps) of a reduction over `axis`."""
    _, lane_steps, warp_steps = reduce_steps(a, axis)
    kept, warps = algebra.slice_(a, axis).registers, warps_of(a)
    across = (SHUFFLE_STEP + ALU) * kept * lane_steps * warps
    if warp_steps:
        across += BARRIER + 2 * kept * warps
    return ALU * a.registers * warps, across


def elementwise_price(a: Layout, per_element: float) -> float:
    return per_element * a.registers * warps_of(a)
