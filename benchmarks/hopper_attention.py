"""The Hopper attention examples against torch's cuDNN and FlashAttention backends in one process: forward, fp16, bf16.

TFLOP/s count 4 * heads * N**2 * D, half of it for causal attention.  `ratio_interval` is the 95 % bootstrap interval of
the median over rounds of our throughput to cuDNN's; `error` and `cudnn_error` are relative to float64, of one head.

python benchmarks/hopper_attention.py            the form of each case, cool and in bursts, to results/
python benchmarks/hopper_attention.py --sweep    all forms in bursts, printed
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import _harness

TOKENS, HEADS = 32 * 1024, 16
LENGTHS = (2048, 8192, 16384)
ROUNDS, SWEEP_ROUNDS = 30, 12
LOADS: dict[str, Callable[[dict[str, Callable[[], None]]], dict[str, list[float]]]] = {
    "cool": lambda contestants: _harness.cooled(contestants, ROUNDS),
    "burst": lambda contestants: _harness.interleaved(contestants, ROUNDS, burst=4),
}
PIPELINED, GUARDED, PERSISTENT = (f"hopper_attention_{name}" for name in ("pipelined", "guarded", "persistent"))
Form = tuple[str, dict[str, Any]]
TWO: dict[str, Any] = dict(CONSUMERS=2, BN=128, REGISTERS=240)
THREE: dict[str, Any] = dict(CONSUMERS=3, REGISTERS=160)
FOUR: dict[str, Any] = dict(CONSUMERS=4, BN=64, REGISTERS=112)
FORMS: dict[int, list[Form]] = {
    128: [
        (PIPELINED, THREE | dict(BN=80)),
        (GUARDED, THREE | dict(BN=80)),
        (GUARDED, THREE | dict(BN=64)),
        (GUARDED, TWO),
        (PERSISTENT, THREE | dict(BN=80)),
        (PERSISTENT, THREE | dict(BN=80, num_warps=1)),
        (PERSISTENT, THREE | dict(BN=64)),
    ],
    64: [
        (PIPELINED, THREE | dict(BN=128)),
        (GUARDED, THREE | dict(BN=128)),
        (GUARDED, FOUR),
        (PERSISTENT, THREE | dict(BN=128)),
        (PERSISTENT, FOUR),
    ],
}


def best(d: int, n: int, causal: bool) -> Form:
    """What is the fastest in a sweep."""
    if d == 128:
        return PERSISTENT, THREE | dict(BN=80, num_warps=1)
    return PERSISTENT, FOUR if causal or n <= 4096 else THREE | dict(BN=128)


Case = tuple[Any, int, int, bool]  # dtype, D, N, causal


def peer(torch: Any, backend: Any, q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    """torch's attention by one backend, which refuses what it cannot do."""
    from torch.nn.attention import sdpa_kernel

    def call() -> Any:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


class Contest:
    """The tensors of a case and who computes on them."""

    def __init__(self, torch: Any, case: Case) -> None:
        from torch.nn.attention import SDPBackend

        self.torch, self.case = torch, case
        dtype, d, n, causal = case
        shape = (TOKENS // n, HEADS, n, d)
        self.q, self.k, self.v = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3))
        self.o, self.lse = torch.empty_like(self.q), torch.empty(shape[:-1], device="cuda")
        backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION}
        self.peers = {name: peer(torch, b, self.q, self.k, self.v, causal) for name, b in backends.items()}

    @property
    def name(self) -> str:
        dtype, d, n, causal = self.case
        return f"{str(dtype).removeprefix('torch.')} D={d} N={n} {'causal' if causal else 'full'}"

    def ours(self, form: Form) -> Callable[[], None]:
        module, options = form
        prepare = importlib.import_module(module).prepare
        made: Callable[[], None] = prepare(self.q, self.k, self.v, self.o, self.lse, self.case[-1], **options)
        return made

    def error(self, o: Any) -> float:
        """Of the last head, against float64."""
        import _attention

        q, k, v = (x[-1, -1:] for x in (self.q, self.k, self.v))
        wanted, _ = _attention.reference(self.torch, q, k, v, self.case[-1])
        return float((o[-1, -1:].double() - wanted).norm() / wanted.norm())

    def rates(self, times: list[float]) -> list[float]:
        """TFLOP/s from microseconds."""
        _, d, n, causal = self.case
        return [4 * TOKENS * HEADS * n * d / (1 + causal) / (1e6 * t) for t in times]

    def verify(self, call: Callable[[], None]) -> tuple[float, float]:
        """(our error, cuDNN's); ends the program where ours is no rounding."""
        self.o.fill_(float("nan"))
        call()
        ours, theirs = self.error(self.o), self.error(self.peers["cuDNN"]())
        if not ours < 2 * theirs:
            sys.exit(f"hopper_attention {self.name}: error {ours:.2e}, cuDNN's {theirs:.2e}")
        return ours, theirs


def measure(torch: Any, case: Case) -> Iterator[dict[str, Any]]:
    """One record for each load."""
    contest, form = Contest(torch, case), best(*case[1:])
    call = contest.ours(form)
    error, cudnn_error = contest.verify(call)
    compiled = importlib.import_module(form[0]).attention.variants[-1].compiled
    for load, run in LOADS.items():
        samples = {name: contest.rates(times) for name, times in run({"tlxc": call, **contest.peers}).items()}
        yield _harness.record(
            "hopper_attention", f"{contest.name} {load}", "throughput", "TFLOP/s", samples, "more",
            ratio_interval=_harness.ratio_interval(samples["tlxc"], samples["cuDNN"]), error=error,
            cudnn_error=cudnn_error, form=form[0], options=form[1], registers=compiled.registers,
            spill_bytes=compiled.spill_bytes, notes=[f"{n.kind}: {n.text}" for n in compiled.notes],
        )  # fmt: skip


def sweep(torch: Any, case: Case) -> None:
    """All forms of a case in bursts, against cuDNN."""
    contest = Contest(torch, case)
    calls: dict[str, Callable[[], Any]] = {"cuDNN": contest.peers["cuDNN"]}
    for module, options in FORMS[case[1]]:
        name = " ".join([module.removeprefix("hopper_attention_"), *(f"{k}={v}" for k, v in options.items())])
        calls[name] = contest.ours((module, options))
        contest.verify(calls[name])
    times = _harness.interleaved(calls, SWEEP_ROUNDS, burst=4)
    rates = {name: contest.rates(t) for name, t in times.items()}
    for name, samples in rates.items():
        low, high = _harness.ratio_interval(samples, rates["cuDNN"])
        print(
            f"{contest.name}: {name:44} {statistics.median(samples):6.1f} TFLOP/s, ratio {low:.3f} to {high:.3f}",
            flush=True,
        )


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", action="store_true", help="compare all forms, and write nothing")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    dtypes = (torch.float16,) if arguments.sweep else (torch.float16, torch.bfloat16)
    run = partial(sweep if arguments.sweep else measure, torch)
    records = []
    for case in itertools.product(dtypes, (128, 64), LENGTHS, (False, True)):
        for made in run(case) or ():
            records.append(made)
            low, high = made["ratio_interval"]
            print(f"{made['case']}: {made['tlxc']:.1f} TFLOP/s, ratio {low:.4f} to {high:.4f}", flush=True)
    if records:
        _harness.write("hopper_attention", records)


if __name__ == "__main__":
    main()
