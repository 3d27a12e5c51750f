"""Instruction selection for matrix multiplies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op
from tlxc.ir.layout import odd_split
from tlxc.ir.types import element_of, shape_of
from tlxc.targets import MmaShape, Target, all_targets

Extents = tuple[int, int, int]  # M, N, K

WARPGROUP = 4  # warps


def select_dots(module: Module, target: Target) -> None:
    """Afterwards every `dot` names the instruction that computes all of it (`impl`; for mma.sync also `warps_mn`, the
    grid of warps over the result).  A tile that no instruction covers exactly is refused, never cut."""
    for op in module.walk():
        if op.kind == "dot":
            _select(op, module.num_warps, target)


def _select(op: Op, warps: int, target: Target) -> None:
    (m, k), (_, n) = shape_of(op.inputs[0].type), shape_of(op.inputs[1].type)
    for name, fits in _FITS.items():
        if name in target.features and any(fits(s, (m, n, k), warps) for s in _atoms(op, target, name)):
            op.attrs["impl"] = name
            if name == "mma.sync":
                op.attrs["warps_mn"] = warp_grid(m, n, warps)
            return
    raise _refusal(op, (m, n, k), warps, target)


def _atoms(op: Op, target: Target, name: str) -> list[MmaShape]:
    """The instructions of one name for the types of a dot; the deepest K only, which is what code is generated for."""
    a, b, acc = (element_of(v.type) for v in op.inputs)
    shapes = [s for s in target.mma_shapes(str(a), str(b), str(acc)) if s.op == name]
    return [s for s in shapes if s.k == max(x.k for x in shapes)]


def _fits_warpgroups(atom: MmaShape, extents: Extents, warps: int) -> bool:
    """All warpgroups along M, each with whole instructions, one instruction along N."""
    m, n, k = extents
    return warps % WARPGROUP == 0 and m % (atom.m * warps // WARPGROUP) == 0 and n in atom.n and k % atom.k == 0


def _fits_warp(atom: MmaShape, extents: Extents, warps: int) -> bool:
    m, n, k = extents
    return m % atom.m == 0 and n % atom.n[0] == 0 and k % atom.k == 0


# In the order of preference.
_FITS: dict[str, Callable[[MmaShape, Extents, int], bool]] = {"wgmma": _fits_warpgroups, "mma.sync": _fits_warp}


def warp_grid(m: int, n: int, warps: int) -> tuple[int, int]:
    """Warps along (M, N) for m16n8 atoms: no copies where the tile has room, then the least operand rows and columns
    per warp.  Odd factors of an extent stay inside a warp."""
    rows, columns = 1 << odd_split(m // 16)[1], 1 << odd_split(n // 8)[1]

    def cost(grid: tuple[int, int]) -> tuple[int, int, int]:
        tile_m, tile_n = m // min(grid[0], rows), n // min(grid[1], columns)
        return tile_m * tile_n, tile_m + tile_n, -grid[0]

    powers = [1 << i for i in range(warps.bit_length())]
    return min(((wm, wn) for wm, wn in product(powers, powers) if wm * wn == warps), key=cost)


def _refusal(op: Op, extents: Extents, warps: int, target: Target) -> CompileError:
    (m, n, k), (a, b, acc) = extents, (element_of(v.type) for v in op.inputs)
    allowed = [text for name, text in _ALLOWED.items() if name in target.features]
    found = f"{m}x{k} by {k}x{n} of {a} and {b} with {acc} accumulator, {warps} warps"
    if not allowed:
        names = ", ".join(t.name for t in all_targets() if t.features & _ALLOWED.keys())
        return CompileError(
            f"dot is not supported on {target.name}",
            found=found,
            allowed=f"targets whose matrix instruction is wgmma or mma.sync: {names}",
            fix="compile for one of these targets, or write the product as a sum of elementwise products",
            loc=op.loc,
        )
    return CompileError(
        f"no matrix instruction of {target.name} computes this dot",
        found=found,
        allowed="; or ".join(allowed),
        fix="pad M, N and K to multiples of the instruction (masked loads give zeros)",
        loc=op.loc,
    )


_ALLOWED = {
    "wgmma": "wgmma m64nNk16: warps in units of 4, M a multiple of 64 per 4 warps, N a multiple of 8 up to 256, "
    "K a multiple of 16",
    "mma.sync": "mma.sync m16n8k16: M a multiple of 16, N a multiple of 8, K a multiple of 16",
}
