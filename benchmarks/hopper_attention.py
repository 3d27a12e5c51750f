"""The Hopper attention examples against torch's cuDNN and FlashAttention backends in one process: forward, fp16, bf16.

TFLOP/s count 4 * heads * N**2 * D, half of it for causal attention.  `ratio_interval` is the 95 % bootstrap interval of
the median over rounds of our throughput to cuDNN's, or to that of another `rival` where cuDNN refuses; `error` and
`rival_error` are relative to float64, of one head.
`busy` is the share of cycles in which the tensor cores multiply, whatever the clock: FLOP / (4096 * cycles), of which
each CTA adds its own (`tlx.clock64`); `busy_of_hand_written` is what a kernel written as LLVM text reached.  Triton and
flash-attn-4 take part in bursts, where they are installed (_peers.py).

python benchmarks/hopper_attention.py            the form of each case under each load, to results/
python benchmarks/hopper_attention.py --sweep    all forms in bursts, printed
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import _harness
import _peers

TOKENS, HEADS = 32 * 1024, 16
LENGTHS = (2048, 8192, 16384)
ROUNDS, SWEEP_ROUNDS = 30, 12
FLOP_PER_CYCLE = 4096  # of an SM's tensor cores, 16-bit
Times = dict[str, list[float]]
Calls = dict[str, Callable[[], Any]]
# How contestants are timed, and how many of them: tlxc, its rival, another backend of torch, what else is installed.
LOADS: dict[str, tuple[Callable[[Calls], Times], int]] = {
    "cool": (lambda calls: _harness.cooled(calls, ROUNDS), 3),
    "burst": (lambda calls: _harness.interleaved(calls, ROUNDS, burst=4), 5),
    "sustained": (lambda calls: _harness.sustained(calls, ROUNDS), 2),
}
# Of a guarded softmax and a counter of tiles in hand-written LLVM text: float16, by (D, N, causal).
BUSY_OF_HAND_WRITTEN = {
    (128, 2048, False): 0.88, (128, 8192, False): 0.966, (128, 16384, False): 0.981,
    (128, 2048, True): 0.76, (128, 8192, True): 0.93, (128, 16384, True): 0.956,
    (64, 2048, False): 0.56, (64, 8192, False): 0.66, (64, 16384, False): 0.64,
    (64, 2048, True): 0.47, (64, 8192, True): 0.60, (64, 16384, True): 0.62,
}  # fmt: skip
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
        (PERSISTENT, THREE | dict(BN=128, num_warps=1)),
        (PERSISTENT, FOUR),
        (PERSISTENT, FOUR | dict(num_warps=1)),
    ],
    256: [
        (PIPELINED, TWO | dict(BN=80)),
        (GUARDED, TWO | dict(BN=80)),
        (GUARDED, TWO | dict(BN=64)),
        (PERSISTENT, TWO | dict(BN=64)),
        (PERSISTENT, TWO | dict(BN=64, num_warps=1)),
    ],
}


class Case(NamedTuple):
    dtype: Any
    d: int
    n: int
    causal: bool
    group: int = 1  # heads of Q that share one of K and V

    @property
    def flop(self) -> float:
        return 4 * TOKENS * HEADS * self.n * self.d / (1 + self.causal)

    def __str__(self) -> str:
        shared = f" GQA {self.group}:1" if self.group > 1 else ""
        mask = "causal" if self.causal else "full"
        return f"{str(self.dtype).removeprefix('torch.')} D={self.d} N={self.n} {mask}{shared}"


def cases(torch: Any) -> list[Case]:
    plain = itertools.product((torch.float16, torch.bfloat16), (128, 64), LENGTHS, (False, True))
    wide = itertools.product((torch.float16,), (256,), (2048, 8192), (False, True))
    shared = itertools.product((torch.float16,), (128, 64), (8192,), (False, True), (4,))
    return [Case(*values) for values in (*plain, *wide, *shared)]


def loads(torch: Any, case: Case) -> list[str]:
    """A cool card takes most of its time to cool down, and tells the same of both types."""
    cool = case.dtype == torch.float16 and case.d <= 128 and case.group == 1
    return [load for load in LOADS if cool or load != "cool"]


def peer(torch: Any, backend: Any, q: Any, k: Any, v: Any, causal: bool) -> tuple[Callable[[], Any], str] | None:
    """torch's attention by one backend, and how it gets K and V: as they are, or repeated where it refuses to have
    them shared by heads; None where it refuses that, too."""
    from torch.nn.attention import sdpa_kernel

    attention, group = torch.nn.functional.scaled_dot_product_attention, q.shape[1] // k.shape[1]

    def call(k: Any, v: Any) -> Any:
        with sdpa_kernel(backend):
            return attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

    for how, repeats in {"as they are": 1, "repeated": group}.items():
        made = partial(call, *(x.repeat_interleave(repeats, 1) for x in (k, v)))
        try:
            made()
        except RuntimeError as error:
            print(f"{backend} refuses {tuple(q.shape)} with K and V {how}: {error}")
        else:
            return made, how
    return None


class Contest:
    """The tensors of a case and who computes on them; the rival is cuDNN where that can."""

    def __init__(self, torch: Any, case: Case) -> None:
        from torch.nn.attention import SDPBackend

        self.torch, self.case = torch, case
        shape = (TOKENS // case.n, HEADS, case.n, case.d)
        of_kv = (shape[0], HEADS // case.group, *shape[2:])
        self.q, self.k, self.v = (torch.randn(s, device="cuda", dtype=case.dtype) for s in (shape, of_kv, of_kv))
        self.o, self.lse = torch.empty_like(self.q), torch.empty(shape[:-1], device="cuda")
        backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION}
        made = {name: peer(torch, b, self.q, self.k, self.v, case.causal) for name, b in backends.items()}
        self.peers: Calls = {name: one[0] for name, one in made.items() if one}
        self.kv_of_peers = {name: one[1] for name, one in made.items() if one}
        self.rival = next(iter(self.peers))
        self.peers |= _peers.attention(torch, self.q, self.k, self.v, case.causal)

    def ours(self, form: Form) -> Callable[[], Any]:
        module, options = form
        prepare = importlib.import_module(module).prepare
        made: Callable[[], Any] = prepare(self.q, self.k, self.v, self.o, self.lse, self.case.causal, **options)
        return made

    def error(self, o: Any) -> float:
        """Of the last head, against float64."""
        import _attention

        q, k, v = (x[-1, -1:] for x in (self.q, self.k, self.v))
        wanted, _ = _attention.reference(self.torch, q, k, v, self.case.causal)
        return float((o[-1, -1:].double() - wanted).norm() / wanted.norm())

    def rates(self, times: list[float]) -> list[float]:
        """TFLOP/s from microseconds."""
        return [self.case.flop / (1e6 * t) for t in times]

    def busy(self, form: Form) -> float:
        """The share of cycles in which the tensor cores multiply: the median of five launches."""
        module, options = form
        cycles = self.torch.zeros(1, dtype=self.torch.int64, device="cuda")
        call, shares = self.ours((module, options | dict(cycles=cycles))), []
        for _ in range(5):
            cycles.zero_()
            call()
            shares.append(self.case.flop / (FLOP_PER_CYCLE * int(cycles)))
        return statistics.median(shares)

    def verify(self, call: Callable[[], Any]) -> tuple[float, float]:
        """(our error, the rival's); ends the program where ours is no rounding."""
        self.o.fill_(float("nan"))
        call()
        ours, theirs = self.error(self.o), self.error(self.peers[self.rival]())
        if not ours < 2 * theirs:
            sys.exit(f"hopper_attention {self.case}: error {ours:.2e}, {self.rival}'s {theirs:.2e}")
        return ours, theirs


def measure(torch: Any, case: Case) -> Iterator[dict[str, Any]]:
    """One record for each load."""
    import _attention

    contest, form = Contest(torch, case), (PERSISTENT, _attention.form(case.d, case.n, case.causal))
    call = contest.ours(form)
    error, rival_error = contest.verify(call)
    compiled, busy = call(), contest.busy(form)
    by_hand = BUSY_OF_HAND_WRITTEN.get(case[1:4]) if case.group == 1 else None
    for load in loads(torch, case):
        run, most = LOADS[load]
        times = run(dict([("tlxc", call), *contest.peers.items()][:most]))
        samples = {name: contest.rates(t) for name, t in times.items()}
        yield _harness.record(
            "hopper_attention", f"{case} {load}", "throughput", "TFLOP/s", samples, "more",
            ratio_interval=_harness.ratio_interval(samples["tlxc"], samples[contest.rival]), rival=contest.rival,
            error=error, rival_error=rival_error, busy=round(busy, 4), busy_of_hand_written=by_hand,
            kv_of_peers=contest.kv_of_peers, form=form[0], options=form[1], registers=compiled.registers,
            spill_bytes=compiled.spill_bytes, notes=[f"{n.kind}: {n.text}" for n in compiled.notes],
        )  # fmt: skip


def sweep(torch: Any, case: Case) -> None:
    """All forms of a case in bursts, against its rival."""
    contest = Contest(torch, case)
    calls: Calls = {contest.rival: contest.peers[contest.rival]}
    busy: dict[str, float] = {}
    for module, options in FORMS[case.d]:
        name = " ".join([module.removeprefix("hopper_attention_"), *(f"{k}={v}" for k, v in options.items())])
        calls[name] = contest.ours((module, options))
        contest.verify(calls[name])
        if module != PIPELINED:  # which counts no cycles
            busy[name] = contest.busy((module, options))
    times = _harness.interleaved(calls, SWEEP_ROUNDS, burst=4)
    rates = {name: contest.rates(t) for name, t in times.items()}
    for name, samples in rates.items():
        low, high = _harness.ratio_interval(samples, rates[contest.rival])
        print(
            f"{case}: {name:56} {statistics.median(samples):6.1f} TFLOP/s, ratio {low:.3f} to {high:.3f}, busy "
            f"{busy.get(name, math.nan):.3f}",
            flush=True,
        )


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", action="store_true", help="compare all forms, and write nothing")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.sweep:
        for case in cases(torch):
            if case.dtype == torch.float16:
                sweep(torch, case)
        return
    _harness.warm_up()
    records = []
    for case in cases(torch):
        for made in measure(torch, case):
            records.append(made)
            low, high = made["ratio_interval"]
            print(
                f"{made['case']}: {made['tlxc']:.1f} TFLOP/s, ratio {low:.4f} to {high:.4f}, busy {made['busy']:.3f}"
                f" (by hand {made['busy_of_hand_written']})",
                flush=True,
            )
    _harness.write("hopper_attention", records)


if __name__ == "__main__":
    main()
