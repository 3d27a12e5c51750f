"""Instruction selection for matrix multiplies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op, Region
from tlxc.ir.layout import odd_split
from tlxc.ir.types import element_of, shape_of
from tlxc.targets import MmaShape, Target, all_targets

Extents = tuple[int, int, int]  # M, N, K

WARPGROUP = 4  # warps


def select_dots(module: Module, target: Target) -> None:
    """Afterwards every `dot` names the instruction that computes all of it (`impl`; for mma.sync also `warps_mn`, the
    grid of warps over the result), and every `async_dot` is one that wgmma computes.  A tile that no instruction covers
    exactly is refused, never cut."""
    _region(module.body, module.num_warps, target)


def _region(region: Region, warps: int, target: Target) -> None:
    """`warps` are those of the task."""
    for op in region.ops:
        if op.kind == "dot":
            _select(op, warps, target)
        elif op.kind == "async_dot":
            _check_async(op, warps, target)
        counts = op.attrs["num_warps"] if op.kind == "async_tasks" else [warps] * len(op.regions)
        for inner, n in zip(op.regions, counts):
            _region(inner, n, target)


def _select(op: Op, warps: int, target: Target) -> None:
    (m, k), (_, n) = shape_of(op.inputs[0].type), shape_of(op.inputs[1].type)
    for name, fits in _FITS.items():
        if name in target.features and any(fits(s, (m, n, k), warps) for s in _atoms(op, target, name)):
            op.attrs["impl"] = name
            if name == "mma.sync":
                op.attrs["warps_mn"] = warp_grid(m, n, warps)
            return
    raise _refusal(op, (m, n, k), warps, target)


def _check_async(op: Op, warps: int, target: Target) -> None:
    (m, k), (_, n) = shape_of(op.inputs[0].type), shape_of(op.inputs[1].type)
    if "wgmma" not in target.features:
        names = ", ".join(t.name for t in all_targets() if "wgmma" in t.features)
        raise CompileError(
            f"async_dot is not supported on {target.name}",
            allowed=f"targets with wgmma: {names}",
            fix="use tl.dot, which takes the matrix instruction of the target",
            loc=op.loc,
        )
    atoms = _atoms(op, target, "wgmma")
    if any(_fits_warpgroups(s, (m, n, k), warps) for s in atoms):
        return
    a, b = (element_of(v.type) for v in op.inputs[:2])
    raise CompileError(
        f"wgmma does not compute this async_dot on {target.name}",
        found=f"{m}x{k} by {k}x{n} of {a} and {b}, {warps} {'warp' if warps == 1 else 'warps'} in the task",
        allowed=_ALLOWED["wgmma"] if atoms else "operands of one type: f16, bf16, or f32 as tf32",
        fix=_async_fix(atoms, m, warps),
        loc=op.loc,
    )


def _async_fix(atoms: list[MmaShape], m: int, warps: int) -> str:
    if not atoms:
        return "cast both operands to one of these types"
    if warps % WARPGROUP:
        return "run the dot in a task of 4 warps, or a multiple of 4"
    if m % (atoms[0].m * warps // WARPGROUP):
        return f"give the task {atoms[0].m * warps // WARPGROUP} rows or a multiple, or fewer warps"
    return "pad N and K to multiples of the instruction"


def _atoms(op: Op, target: Target, name: str) -> list[MmaShape]:
    """The instructions of one name for the types of a dot; the deepest K only, which is what code is generated for.
    An async_dot multiplies f32 operands as tf32."""
    a, b = (str(element_of(v.type)) for v in op.inputs[:2])
    acc = str(element_of(op.result.type))
    if op.kind == "async_dot" and a == b == "f32":
        a = b = "tf32"
    shapes = [s for s in target.mma_shapes(a, b, acc) if s.op == name]
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
    "K a multiple of 16 (of 8 for tf32)",
    "mma.sync": "mma.sync m16n8k16: M a multiple of 16, N a multiple of 8, K a multiple of 16",
}
