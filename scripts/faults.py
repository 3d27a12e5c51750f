"""Seeded faults: kernels with one thing wrong, as the simulator, the emulator and an H200 see them.

    python scripts/faults.py [--no-card] [--only NAME] [--runs N] [--out PATH]

Each fault is one weakening of a kernel of tests/kernels or examples (see scripts/mutation.py), on small arrays for
simulator and emulator, on large ones for the card.  On the card waits trap after CYCLES, each fault runs in a process
of its own, which a trap kills, and the kernel without the fault runs first.  --no-card assembles instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import _machines  # noqa: E402
import mutation  # noqa: E402
from kernels import Call, block, handovers, integers, nothing, pipelines, products, real, samples  # noqa: E402
from kernels.clusters import swapped  # noqa: E402

from tlxc.ir.core import Module  # noqa: E402

CYCLES = 200_000_000  # 0.1 s, a thousand times what the longest healthy wait takes


@dataclass(frozen=True)
class Fault:
    """`mutant`, `nth`: which of the mutants of this name, in program order.  `make(big)`: the launch."""

    name: str
    kind: str
    make: Callable[[bool], Call]
    mutant: str
    nth: int = 0

    def change(self, module: Module) -> None:
        found = [m for m in mutation.mutants(module) if m.name == self.mutant and m.change is not None][self.nth]
        assert found.change is not None
        found.change(module, list(module.walk())[found.op])


# ------------------------------------------------------------------------------------------------ launches
def ring(kernel: Any, rule: Callable[[Any], Any], tma_in: bool, tma_out: bool, stages: int, big: bool) -> Call:
    """The kernels of tests/kernels/pipelines.py: tiles go through a ring of buffers."""
    steps, width = (64, 4096) if big else (5, 64)
    x, out = integers(1, steps, width), nothing(steps, width)
    args = {
        "x": block(x.reshape(-1), width) if tma_in else x,
        "out": block(out.reshape(-1), width) if tma_out else out,
        "steps": steps, "W": width, "STAGES": stages,
    }  # fmt: skip
    return Call(kernel, (1,), args, out, rule(x))


def product(kernel: Any, tma: bool, big: bool) -> Call:
    """The kernels of tests/kernels/products.py."""
    m, n, k, steps = (128, 128, 64, 16) if big else (64, 16, 16, 5)
    a, b = integers(1, m, steps * k, dtype=np.float16), integers(2, steps * k, n, dtype=np.float16)
    out = nothing(m, n)
    args = {
        "a": block(a, m, k) if tma else a, "b": block(b, k, n) if tma else b, "out": block(out, m, n) if tma else out,
        "steps": steps, "STAGES": 2, "M": m, "N": n, "K": k,
    }  # fmt: skip
    return Call(kernel, (1,), args, out, a.astype(np.float32) @ b.astype(np.float32))


def gemm(big: bool) -> Call:
    """examples/hopper_gemm_ws.py."""
    if not big:
        return next(s for s in samples() if s.name == "hopper_gemm_ws-1").make(3)
    size, depth = 2048, 512
    a, b = integers(1, size, depth, dtype=np.float16), integers(2, depth, size, dtype=np.float16)
    out = nothing(size, size, dtype=np.float16)
    args = {"a_desc": block(a, 64, 64), "b_desc": block(b, 64, 256), "c_desc": block(out, 64, 64)}
    args |= {"M": size, "N": size, "K": depth}
    return Call(real._kernel("hopper_gemm_ws", "gemm"), (132,), args, out, a.astype(np.float32) @ b.astype(np.float32))


def tiles(big: bool) -> Call:
    """examples/matmul.py: operands go from registers through shared memory to wgmma."""
    size, depth, m, n, k, warps = (2048, 512, 256, 128, 64, 16) if big else (128, 96, 64, 64, 32, 4)
    a, b = integers(1, size, depth, dtype=np.float16), integers(2, depth, size, dtype=np.float16)
    out = nothing(size, size, dtype=np.float16)
    args: dict[str, Any] = {"a": a, "b": b, "c": out, "M": size, "N": size, "K": depth}
    args |= {"stride_a": depth, "stride_b": size, "stride_c": size, "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    grid = (size // m * (size // n),)
    return Call(real._kernel("matmul", "matmul"), grid, args, out, wanted, num_warps=warps)


def exchange(big: bool) -> Call:
    """`swapped` of tests/kernels/clusters.py."""
    ctas, steps, width = (132, 64, 2048) if big else (2, 5, 64)
    x, out = integers(1, ctas, steps, width), nothing(ctas, steps, width)
    wanted = x.reshape(-1, 2, steps, width)[:, ::-1].reshape(x.shape)
    return Call(swapped, (ctas,), {"x": x, "out": out, "steps": steps, "W": width}, out, wanted, (2, 1, 1))


def two_halves(big: bool) -> Call:
    """`halves` of tests/kernels/handovers.py."""
    steps, width = (64, 2048) if big else (5, 64)
    x, out = integers(1, 2 * steps, width), nothing(2 * steps, width)
    return Call(handovers.halves, (1,), {"x": x, "out": block(out, 2, width), "steps": steps, "W": width}, out, x + 1)


tma_ring = partial(ring, pipelines.tma_ring, lambda x: x + 1, True, False, 2)
stored_ring = partial(ring, pipelines.stored_ring, lambda x: x * 2, False, True, 2)
copied_ring = partial(ring, pipelines.copied_ring, lambda x: x + 1, False, False, 2)
written = partial(product, products.written_operands, False)

FAULTS = (
    Fault("stored_ring without the fence", "missing fence", stored_ring, "drop fence_async_shared"),
    Fault("halves without a fence", "missing fence", two_halves, "drop fence_async_shared"),
    Fault("written_operands without the fence", "missing fence", written, "drop fence_async_shared"),
    Fault("matmul without the fence before its product", "missing fence", tiles, "drop fence_async_shared"),
    Fault("hopper_gemm_ws without the fence of its stores", "missing fence", gemm, "drop fence_async_shared"),
    Fault("swapped without the release at cluster scope", "missing fence", exchange, "no release"),
    Fault("tma_ring, consumer waits for the other phase", "wrong phase", tma_ring, "flip phase", 1),
    Fault("hopper_gemm_ws, consumer waits for the other phase", "wrong phase", gemm, "flip phase", 1),
    Fault("tma_ring, producer waits for the other phase", "deadlock", tma_ring, "flip phase", 0),
    Fault("tma_ring, consumer releases nothing", "deadlock", tma_ring, "drop barrier_arrive"),
    Fault("tma_ring announces twice the bytes", "deadlock", tma_ring, "bytes * 2"),
    Fault("hopper_gemm_ws, one arrival too many is counted", "deadlock", gemm, "init count + 1", 1),
    Fault("tma_ring, consumer does not wait", "missing wait", tma_ring, "drop barrier_wait", 1),
    Fault("stored_ring does not wait for its stores", "missing wait", stored_ring, "drop tma_store_wait"),
    Fault("copied_ring does not wait for its copies", "missing wait", copied_ring, "drop async_load_wait"),
)


# ------------------------------------------------------------------------------------------------ running them
def on_card(fault: Fault, runs: int) -> dict[str, Any]:
    """The kernel as it is and with the fault; the second may end all use of CUDA in this process."""
    call = fault.make(True)
    whole = _machines.OnCard(call, _machines.compiled(call, _machines.unchanged, CYCLES)).run(20)
    seen = _machines.OnCard(call, _machines.compiled(call, fault.change, CYCLES)).run(runs)
    return {"unbroken": asdict(whole), "card": asdict(seen), "unbroken_said": str(whole), "card_said": str(seen)}


def outcome(record: dict[str, Any]) -> str:
    """real, latent, or nothing where the card gave no answer."""
    said = record["card_said"]
    if said.startswith("no result"):
        return ""
    return "latent" if said.startswith("right values") else "real"


def examine(fault: Fault) -> dict[str, Any]:
    """What simulator and emulator say."""
    return {
        "benchmark": "faults", "case": fault.name, "kind": fault.kind, "mutant": fault.mutant,
        "simulator": _machines.in_simulator(fault.make(False), fault.change),
        "emulator": _machines.in_emulator(fault.make(False), fault.change),
    }  # fmt: skip


def ask_card(fault: Fault, runs: int) -> dict[str, Any]:
    record = _machines.in_a_process(__file__, fault.name, "--runs", str(runs))
    return {**record, "outcome": outcome(record)}


def assemble(fault: Fault) -> dict[str, Any]:
    made = _machines.compiled(fault.make(True), fault.change, CYCLES)
    return {"cubin": len(made.binary), "shared": made.shared}


def show(record: dict[str, Any]) -> None:
    said = record.get("card_said", f"assembled, {record.get('cubin')} bytes")
    print(f"{record['kind']:14} {record['case']}\n    simulator  {record['simulator']}\n    emulator   "
          f"{record['emulator']}\n    card       {record.get('outcome', '')} {said}", flush=True)  # fmt: skip
    if not record.get("unbroken_said", "right values").startswith("right values"):
        print(f"    and without the fault: {record['unbroken_said']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--no-card", action="store_true", help="simulate, emulate and assemble only")
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--runs", type=int, default=200, help="launches of each fault")
    parser.add_argument("--jobs", type=int, default=4, help="faults at once")
    parser.add_argument("--out", default=os.environ.get("OUT", ""), help="a JSON file, or a folder for one")
    parser.add_argument("--docs", help="put the table of this JSON file into docs/memory_model.md, and do nothing else")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        (fault,) = (f for f in FAULTS if f.name == options.child)
        print(json.dumps(on_card(fault, options.runs)))
        return 0
    if options.docs:
        put_into_docs(json.loads(Path(options.docs).read_text()))
        return 0
    chosen = [f for f in FAULTS if options.only in f.name]
    records = [examine(fault) for fault in chosen]
    if options.no_card:
        answers = [assemble(fault) for fault in chosen]
    else:
        with ThreadPoolExecutor(options.jobs) as pool:
            answers = list(pool.map(partial(ask_card, runs=options.runs), chosen))
    for record, answer in zip(records, answers):
        record |= answer
        show(record)
    if not options.no_card:
        _machines.write("faults", records, options.out)
    return 0 if all(r["simulator"] not in ("clean", "wrong values") for r in records) else 1


def put_into_docs(records: list[dict[str, Any]]) -> None:
    rows = [["fault", "simulator", "emulator", "on the H200", ""]]
    rows += [[r["case"], r["simulator"], r["emulator"], r["card_said"], r["outcome"]] for r in records]
    _machines.put_table(_machines.ROOT / "docs" / "memory_model.md", "faults", rows)


if __name__ == "__main__":
    sys.exit(main())
