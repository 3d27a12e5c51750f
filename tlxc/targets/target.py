"""The vocabulary that GPUs are described in: `Target`, `MmaShape` and the names of features."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import TlxcError
from .timing import Timing

# Every feature name and what it promises. Code asks `"wgmma" in target.features` before it emits such an instruction:
# LLVM ends the process on an intrinsic that a target lacks.
FEATURES: dict[str, str] = {
    # NVIDIA
    "mma.sync": "warp-wide matrix multiply from registers",
    "ldmatrix": "8x8 matrices from shared memory to registers",
    "stmatrix": "8x8 matrices from registers to shared memory",
    "cp.async": "per-thread asynchronous copy from global to shared memory",
    "bulk": "bulk asynchronous copy between global and shared memory",
    "tma": "bulk tensor copies through a tensor map",
    "tma.multicast": "one tensor copy into the shared memory of several CTAs of a cluster",
    "tma.gather4": "tensor copies of four rows at free positions",
    "tma.2cta": "tensor copies that signal the barrier of a CTA pair",
    "wgmma": "asynchronous warpgroup matrix multiply from shared memory",
    "setmaxnreg": "register budgets that change while a warpgroup runs",
    "elect": "election of one thread of a warp",
    "griddepcontrol": "programmatic launch of dependent grids",
    "redux": "integer reduction over a warp in one instruction",
    "redux.f32": "float minimum and maximum over a warp in one instruction",
    "f32x2": "arithmetic on pairs of 32-bit floats",
    "max3": "float minimum and maximum of three operands",
    "cvt.rs": "conversion with stochastic rounding",
    "tcgen05": "matrix multiply into tensor memory, its loads, stores and copies",
    "tcgen05.ld.red": "tensor memory load with a reduction",
    "clc": "cluster launch control: taking over the tile of a CTA that has not started",
    # both vendors
    "mbarrier": "hardware barrier objects in shared memory, with phase and pending count",
    "cluster": "groups of CTAs with access to each other's shared memory",
    "fp8": "8-bit floats of the OCP formats e4m3fn and e5m2 in matrix multiplies and conversions",
    # AMD
    "fp8.fnuz": "8-bit floats of the FNUZ formats, which have no negative zero and another bias",
    "mfma": "matrix multiply of a wave of 64 lanes",
    "mfma.scale": "the same with block scales on 8, 6 and 4-bit floats",
    "wmma": "matrix multiply of a wave of 32 lanes",
    "wmma.scale": "the same with block scales on 8, 6 and 4-bit floats",
    "buffer.atomic.bf16": "atomic addition of bf16 pairs through a buffer descriptor",
    "lds.dma": "4-byte loads from global memory straight into LDS",
    "lds.dma.b128": "16-byte loads from global memory straight into LDS",
    "lds.async": "asynchronous copies between global memory and LDS with an LDS address per lane",
    "lds.transpose": "transposing loads from LDS",
    "tdm": "tensor copies by the data mover",
    "permlane16.swap": "exchange of odd and even rows of 16 lanes between two registers",
    "permlane32.swap": "exchange of the halves of a wave between two registers",
    "dpp.row_bcast": "broadcast of lane 15 or 31 to the rows that follow",
    "named_barrier": "barriers of a part of the waves of a CTA",
    "cvt.bf16": "conversion of fp32 to bf16 in one instruction",
    "split_waitcnt": "one wait instruction per kind of memory operation in place of the joint one",
}


class TargetError(TlxcError):
    """A target name that tlxc does not know."""


@dataclass(frozen=True)
class MmaShape:
    """One matrix instruction: acc[m, n] += a[m, k] @ b[k, n]; `n` lists every extent that the instruction takes.

    Element types go by their short names (f16, bf16, f32, tf32, f64, i8, u8, i32, e4m3fn, e5m2, ...).
    """

    op: str
    m: int
    n: tuple[int, ...]
    k: int
    a: str
    b: str
    acc: str
    ctas: int = 1


@dataclass(frozen=True)
class Target:
    """What one GPU is. Sizes are bytes; "SM" is AMD's compute unit, "warp" its wave, "shared" its LDS.

    `max_*` fields are limits of one CTA or one thread, `*_per_sm` what an SM has. `sm_count` is that of the product
    named beside it in the table and serves estimates without a GPU; None where the vendor has published none.
    """

    name: str
    vendor: str
    triple: str
    cpu: str
    llvm_features: str
    warp_size: int
    max_warps: int
    static_shared: int  # that a CTA gets without asking the driver for more
    max_shared: int
    shared_per_sm: int
    shared_banks: int  # each 4 bytes wide
    registers_per_sm: int  # 32 bits each
    max_registers: int  # per thread; includes accumulation registers
    sm_count: int | None
    max_cluster: int  # CTAs that a cluster may have on every card; 1 without clusters
    features: frozenset[str]
    mma: tuple[MmaShape, ...]
    ptxas_arch: str = ""
    tensor_memory_columns: int = 0  # each 128 lanes of 32 bits
    timing: Timing | None = None  # the model of time; None where no figures are known

    @property
    def max_threads(self) -> int:
        return self.max_warps * self.warp_size

    def mma_shapes(self, a: str, b: str, acc: str) -> tuple[MmaShape, ...]:
        """Matrix instructions for these element types, in the order of preference of the target's table."""
        return tuple(shape for shape in self.mma if (shape.a, shape.b, shape.acc) == (a, b, acc))
