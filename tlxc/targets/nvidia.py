"""NVIDIA targets. Limits: CUDA programming guide, compute capabilities; shapes and features: PTX ISA."""

from __future__ import annotations

from itertools import product

from .target import MmaShape, Target
from .timing import BLACKWELL, HOPPER, RTX_BLACKWELL, Timing

_FP8 = ("e4m3fn", "e5m2")
_INT8 = ("i8", "u8")


def _multiples(step: int, low: int, high: int = 256) -> tuple[int, ...]:
    return tuple(range(low, high + 1, step))


def _rows(op: str, m: int, n: tuple[int, ...], k: int, types: list[tuple[str, str, str]],
          ctas: int = 1) -> tuple[MmaShape, ...]:
    return tuple(MmaShape(op, m, n, k, a, b, acc, ctas) for a, b, acc in types)


_HALF = [("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("f16", "f16", "f16")]
_TF32 = [("tf32", "tf32", "f32")]
_FP8_F32 = [(a, b, "f32") for a, b in product(_FP8, _FP8)]
_FP8_ANY = [(a, b, acc) for acc in ("f32", "f16") for a, b in product(_FP8, _FP8)]
_INT8_I32 = [(a, b, "i32") for a, b in product(_INT8, _INT8)]

_MMA_SYNC = (
    _rows("mma.sync", 16, (8,), 16, _HALF)
    + _rows("mma.sync", 16, (8,), 8, _HALF)
    + _rows("mma.sync", 16, (8,), 8, _TF32)
    + _rows("mma.sync", 16, (8,), 4, _TF32)
    + _rows("mma.sync", 16, (8,), 32, _FP8_F32)
    + _rows("mma.sync", 16, (8,), 32, _INT8_I32)
    + _rows("mma.sync", 16, (8,), 16, _INT8_I32)
    + _rows("mma.sync", 8, (8,), 4, [("f64", "f64", "f64")])
)

# Integer operands take multiples of 8 only up to 32.
_WGMMA_N, _WGMMA_INT_N = _multiples(8, 8), (8, 16, 24, *_multiples(16, 32))
_WGMMA = (
    _rows("wgmma", 64, _WGMMA_N, 16, _HALF)
    + _rows("wgmma", 64, _WGMMA_N, 8, _TF32)
    + _rows("wgmma", 64, _WGMMA_N, 32, _FP8_ANY)
    + _rows("wgmma", 64, _WGMMA_INT_N, 32, _INT8_I32)
)

# (CTAs that share the product, M of the product, its N)
_TCGEN05_TILES = ((2, 256, _multiples(32, 32)), (1, 128, _multiples(16, 16)), (2, 128, _multiples(32, 32)),
                  (1, 64, _multiples(8, 8)))


def _tcgen05(k: int, types: list[tuple[str, str, str]]) -> tuple[MmaShape, ...]:
    return tuple(row for ctas, m, n in _TCGEN05_TILES for row in _rows("tcgen05", m, n, k, types, ctas))


_TCGEN05 = _tcgen05(16, _HALF) + _tcgen05(8, _TF32) + _tcgen05(32, _FP8_ANY)

_HOPPER = frozenset(
    {"mma.sync", "ldmatrix", "stmatrix", "cp.async", "bulk", "tma", "tma.multicast", "mbarrier", "cluster",
     "setmaxnreg", "elect", "griddepcontrol", "redux", "fp8"}
)  # fmt: skip
_BLACKWELL = _HOPPER | {"clc", "f32x2", "max3"}
_BLACKWELL_DATACENTER = _BLACKWELL | {"tcgen05", "tma.gather4", "tma.2cta", "redux.f32", "cvt.rs"}


def _target(name: str, ptx_version: int, max_shared: int, shared_per_sm: int, sm_count: int, features: frozenset[str],
            mma: tuple[MmaShape, ...], timing: Timing, tensor_memory_columns: int = 0) -> Target:
    """`ptx_version` is the PTX ISA (86 for 8.6) that has every instruction of `features`."""
    arch = f"{name}a"  # architecture-specific instructions exist only for the suffixed name
    return Target(
        name=name, vendor="nvidia", triple="nvptx64-nvidia-cuda", cpu=arch, llvm_features=f"+ptx{ptx_version}",
        warp_size=32, max_warps=32, static_shared=48 * 1024, max_shared=max_shared, shared_per_sm=shared_per_sm,
        shared_banks=32, registers_per_sm=65536, max_registers=255, sm_count=sm_count, max_cluster=8,
        features=features, mma=mma, ptxas_arch=arch, tensor_memory_columns=tensor_memory_columns,
        timing=timing)  # fmt: skip


# The driver keeps 1 KiB per CTA for itself, so a CTA gets that much less than the SM has.
TARGETS = (
    _target("sm_90", 86, 227 * 1024, 228 * 1024, 132, _HOPPER | {"wgmma"},
            _WGMMA + _MMA_SYNC, HOPPER),  # H100 SXM, H200
    _target("sm_100", 88, 227 * 1024, 228 * 1024, 148, _BLACKWELL_DATACENTER,
            _TCGEN05 + _tcgen05(32, _INT8_I32) + _MMA_SYNC, BLACKWELL, 512),  # B200
    _target("sm_103", 88, 227 * 1024, 228 * 1024, 148, _BLACKWELL_DATACENTER | {"tcgen05.ld.red"},
            _TCGEN05 + _MMA_SYNC, BLACKWELL, 512),  # B300
    _target("sm_120", 88, 99 * 1024, 100 * 1024, 170, _BLACKWELL, _MMA_SYNC, RTX_BLACKWELL),  # RTX 5090
)
