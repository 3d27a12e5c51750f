"""How long things take on a GPU, roughly: what the timeline of the simulator is drawn from.

These figures are a model, not a measurement: one latency and one throughput for each unit, no cache sets, no bank
conflicts, no clock that falls under load.  They are there to tell which unit a kernel waits for, not its run time.

Where they come from:
* multiply-adds and memory bandwidth: the vendors' peak figures divided by SMs and clock: NVIDIA's H100, H200 and B200
  datasheets and RTX Blackwell whitepaper, AMD's CDNA 3 and CDNA 4 whitepapers;
* latency of L2 and DRAM on NVIDIA GPUs: the pointer chase of github.com/markdewing/AI_kernels (latency/README.md) on
  GH200, B200 and RTX 5090; of shared memory and between SMs, and the share of the peak that mma.sync reaches on Hopper:
  Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture" (arXiv 2402.13499);
* bytes of shared memory and arithmetic per cycle: the throughput tables of the CUDA programming guide and the CDNA ISA
  manuals; L2 to SM, and L2 in total: NVIDIA's A100 whitepaper, whose figures later ones do not repeat;
* estimates of ours, in no source: what TMA adds to a load, what barriers, fences and the start of a copy take, the rate
  of mma.sync on B200, and all latencies of AMD's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Times are cycles of the SM's clock, rates are per cycle and SM where nothing else is said, sizes bytes."""

    product: str  # the card that the figures are of
    clock: int  # MHz, under boost
    warps_per_sm: int  # that may be resident
    issue: float  # warp instructions that each of the four schedulers of an SM starts
    latency: int  # until the result of arithmetic may be used
    scalar: int  # that an op on scalars holds its task up
    special: int  # results of exp2, log2, sqrt, rsqrt and division
    mma: tuple[tuple[str, int], ...]  # multiply-adds of the tensor cores by type of the operands
    mma_sync: float  # share of that rate which instructions of one warp reach
    mma_latency: int
    shared_latency: int
    shared_bytes: int
    l2_latency: int  # of a load that hits
    dram_latency: int  # of a load that misses
    sm_bytes: int  # between L2 and one SM, each way
    l2_bytes: int  # of the whole GPU
    dram_bytes: int  # of the whole GPU
    tma_latency: int  # that TMA adds to a load
    tma_bytes: int  # of the TMA unit, each way
    start: int  # that starting an asynchronous copy or product holds its task up
    arrive: int  # that an arrival does
    wait: int  # between the completion of a barrier and the end of a wait for it
    fence: int
    remote_latency: int  # to the shared memory of another SM
    remote_bytes: int

    def mma_rate(self, dtype: str) -> int:
        """Multiply-adds a cycle for operands of this type; the slowest of the table for types that it lacks."""
        rates = dict(self.mma)
        return rates.get(dtype, min(rates.values()))


def _mma(f16: int, tf32: int, f32: int, f64: int, f8: int, i8: int) -> tuple[tuple[str, int], ...]:
    small = {name: f8 for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")}
    return tuple({"f16": f16, "bf16": f16, "f32": f32, "tf32": tf32, "f64": f64, **small, "i8": i8, "u8": i8}.items())


# NVIDIA's tensor cores multiply operands of type f32 as tf32.
HOPPER = Timing(
    product="H200", clock=1830, warps_per_sm=64, issue=1.0, latency=4, scalar=2, special=16,
    mma=_mma(f16=2048, tf32=1024, f32=1024, f64=128, f8=4096, i8=4096), mma_sync=0.63, mma_latency=32,
    shared_latency=29, shared_bytes=128, l2_latency=281, dram_latency=690, sm_bytes=64, l2_bytes=5120, dram_bytes=2620,
    tma_latency=200, tma_bytes=64, start=8, arrive=8, wait=20, fence=16, remote_latency=180, remote_bytes=32,
)  # fmt: skip

BLACKWELL = Timing(
    product="B200", clock=1850, warps_per_sm=64, issue=1.0, latency=4, scalar=2, special=16,
    mma=_mma(f16=4096, tf32=2048, f32=2048, f64=64, f8=8192, i8=8192), mma_sync=0.25, mma_latency=32,
    shared_latency=29, shared_bytes=128, l2_latency=295, dram_latency=860, sm_bytes=64, l2_bytes=5120, dram_bytes=4320,
    tma_latency=200, tma_bytes=64, start=8, arrive=8, wait=20, fence=16, remote_latency=180, remote_bytes=32,
)  # fmt: skip

# Sums in fp32 run at half the rate of the tensor cores of this product.
RTX_BLACKWELL = Timing(
    product="RTX 5090", clock=2407, warps_per_sm=48, issue=1.0, latency=4, scalar=2, special=16,
    mma=_mma(f16=256, tf32=128, f32=128, f64=2, f8=512, i8=1024), mma_sync=1.0, mma_latency=32,
    shared_latency=29, shared_bytes=128, l2_latency=360, dram_latency=936, sm_bytes=64, l2_bytes=5120, dram_bytes=744,
    tma_latency=200, tma_bytes=64, start=8, arrive=8, wait=20, fence=16, remote_latency=180, remote_bytes=32,
)  # fmt: skip

# Without TMA and clusters: their fields are those of ordinary loads.  A wave has 64 lanes on four units of 16.
CDNA3 = Timing(
    product="MI300X", clock=2100, warps_per_sm=32, issue=0.25, latency=4, scalar=4, special=16,
    mma=_mma(f16=1024, tf32=512, f32=128, f64=128, f8=2048, i8=2048), mma_sync=1.0, mma_latency=32,
    shared_latency=64, shared_bytes=128, l2_latency=300, dram_latency=800, sm_bytes=64, l2_bytes=16384, dram_bytes=2524,
    tma_latency=0, tma_bytes=64, start=8, arrive=8, wait=20, fence=16, remote_latency=300, remote_bytes=64,
)  # fmt: skip

CDNA4 = Timing(
    product="MI350X", clock=2200, warps_per_sm=32, issue=0.25, latency=4, scalar=4, special=16,
    mma=_mma(f16=2048, tf32=128, f32=128, f64=64, f8=4096, i8=4096), mma_sync=1.0, mma_latency=32,
    shared_latency=64, shared_bytes=128, l2_latency=300, dram_latency=800, sm_bytes=64, l2_bytes=16384, dram_bytes=3636,
    tma_latency=0, tma_bytes=64, start=8, arrive=8, wait=20, fence=16, remote_latency=300, remote_bytes=64,
)  # fmt: skip
