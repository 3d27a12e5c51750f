"""AMD targets. Limits: ROCm's GPU specifications and LLVM's AMDGPU guide; shapes: the CDNA ISA manuals and LLVM."""

from __future__ import annotations

from itertools import product

from .target import MmaShape, Target
from .timing import CDNA3, CDNA4, Timing

_FNUZ = ("e4m3fnuz", "e5m2fnuz")
_OCP = ("e4m3fn", "e5m2")
_SCALED = ("e4m3fn", "e5m2", "e2m3fn", "e3m2fn", "e2m1fn")


def _square(op: str, k_of_extent: dict[int, int], types: list[tuple[str, str, str]]) -> tuple[MmaShape, ...]:
    """Rows for square results; `k_of_extent` maps M = N to K, the preferred extent first."""
    return tuple(MmaShape(op, mn, (mn,), k, *type_) for type_ in types for mn, k in k_of_extent.items())


_HALF = [("f16", "f16", "f32"), ("bf16", "bf16", "f32")]

_MFMA_V3 = (
    _square("mfma", {32: 8, 16: 16}, _HALF)
    + _square("mfma", {32: 2, 16: 4}, [("f32", "f32", "f32")])
    + _square("mfma", {16: 4}, [("f64", "f64", "f64")])
    + _square("mfma", {32: 16, 16: 32}, [("i8", "i8", "i32")])
)
_MFMA_GFX942 = (
    _MFMA_V3
    + _square("mfma", {32: 4, 16: 8}, [("tf32", "tf32", "f32")])
    + _square("mfma", {32: 16, 16: 32}, [(a, b, "f32") for a, b in product(_FNUZ, _FNUZ)])
)
# The widest K comes first; the older forms serve tiles whose K is too short.
_MFMA_GFX950 = (
    _square("mfma", {32: 16, 16: 32}, _HALF)
    + _square("mfma", {32: 32, 16: 64}, [("i8", "i8", "i32")])
    + _square("mfma.scale", {32: 64, 16: 128}, [(a, b, "f32") for a, b in product(_SCALED, _SCALED)])
    + _square("mfma", {32: 16, 16: 32}, [(a, b, "f32") for a, b in product(_OCP, _OCP)])
    + _MFMA_V3
)
_WMMA_GFX1250 = (
    _square("wmma", {16: 32}, _HALF)
    + _square("wmma", {16: 4}, [("f32", "f32", "f32")])
    + _square("wmma.scale", {16: 128}, [(a, b, "f32") for a, b in product(_SCALED, _SCALED)])
    + _square("wmma", {16: 128}, [(a, b, "f32") for a, b in product(_OCP, _OCP)])
    + _square("wmma", {16: 64}, [(a, b, "f32") for a, b in product(_OCP, _OCP)])
    + _square("wmma", {16: 64}, [("i8", "i8", "i32"), ("u8", "u8", "i32")])
)

_GFX9 = frozenset({"mfma", "lds.dma", "dpp.row_bcast"})


def _target(name: str, *, warp_size: int, shared: int, banks: int, max_registers: int, sm_count: int | None,
            max_cluster: int, features: frozenset[str], mma: tuple[MmaShape, ...], timing: Timing | None) -> Target:
    """All three have four SIMDs a CU, each with a 128 KiB register file, and CTAs of up to 1024 threads.

    xnack and sramecc are left unset, so that a code object loads on every board.
    """
    return Target(
        name=name, vendor="amd", triple="amdgcn-amd-amdhsa", cpu=name, llvm_features="", warp_size=warp_size,
        max_warps=1024 // warp_size, static_shared=shared, max_shared=shared, shared_per_sm=shared, shared_banks=banks,
        registers_per_sm=4 * 128 * 1024 // 4, max_registers=max_registers, sm_count=sm_count, max_cluster=max_cluster,
        features=features, mma=mma, timing=timing)  # fmt: skip


TARGETS = (
    _target("gfx942", warp_size=64, shared=64 * 1024, banks=32, max_registers=512, sm_count=304, max_cluster=1,
            features=_GFX9 | {"fp8.fnuz"}, mma=_MFMA_GFX942, timing=CDNA3),  # MI300X
    _target("gfx950", warp_size=64, shared=160 * 1024, banks=64, max_registers=512, sm_count=256, max_cluster=1,
            features=_GFX9 | {"fp8", "mfma.scale", "buffer.atomic.bf16", "lds.dma.b128", "lds.transpose",
                              "permlane16.swap", "permlane32.swap", "cvt.bf16"},
            mma=_MFMA_GFX950, timing=CDNA4),  # MI350X
    _target("gfx1250", warp_size=32, shared=320 * 1024, banks=64, max_registers=1024, sm_count=None, max_cluster=16,
            features=frozenset({"wmma", "wmma.scale", "fp8", "buffer.atomic.bf16", "lds.async", "lds.transpose", "tdm",
                                "permlane16.swap", "named_barrier", "mbarrier", "cluster", "cvt.bf16",
                                "split_waitcnt"}),
            mma=_WMMA_GFX1250, timing=None),
)
