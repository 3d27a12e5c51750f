"""Litmus tests of the memory model (docs/memory_model.md): what simulator, emulator and card say of small kernels.

    python scripts/litmus.py [--no-card] [--only NAME] [--seconds S] [--out PATH]

Each passes many tiles from one side to the other and counts the tiles that came out wrong.  An outcome never observed
proves nothing.  --no-card assembles instead of launching.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import _machines  # noqa: E402
import litmus_kernels as kernels  # noqa: E402
import litmus_ptx  # noqa: E402
import mutation  # noqa: E402
from kernels import Call, aligned, block, nothing  # noqa: E402
from litmus_kernels import NOBODY, READER, WRITER  # noqa: E402

from tlxc.ir.core import Module  # noqa: E402

CYCLES = 1_000_000_000  # half a second: waits of a broken kernel trap
SMS = 132
ROUNDS = 20_000  # of barriers that are made anew
WHOLE_FENCE = {"fence.proxy.async.shared::cta": "fence.proxy.async"}


@dataclass(frozen=True)
class Litmus:
    """`question`: its number in docs/memory_model.md.  `make(big)`: the launch.  `manual`: what the PTX ISA says of the
    order, "ordered", "not ordered" or "silent".  `ptx`: replacements in the assembly."""

    name: str
    question: int
    make: Callable[[bool], Call]
    manual: str
    change: Callable[[Module], None] = _machines.unchanged
    ptx: Mapping[str, str] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------ launches
def tiles(kernel: Any, tma_in: bool, tma_out: bool, pair: bool, big: bool, **constants: Any) -> Call:
    """Tile i of a CTA is full of numbers that the tiles around it do not hold.  `pair`: CTAs swap theirs."""
    ctas, steps, width = (SMS, 200, 512) if big else (2, 5, 64)
    number = np.arange(ctas * steps, dtype=np.float32).reshape(ctas, steps, 1)
    x = aligned(np.broadcast_to(number + 1, (ctas, steps, width)))
    out = nothing(ctas, steps, width)
    args = {
        "x": block(x.reshape(-1), width) if tma_in else x, "out": block(out.reshape(-1), width) if tma_out else out,
        "steps": steps, "W": width, **constants,
    }  # fmt: skip
    if pair:
        wanted = x.reshape(-1, 2, steps, width)[:, ::-1].reshape(x.shape)
        return Call(kernel, (ctas,), args, out, wanted, (2, 1, 1))
    return Call(kernel, (ctas,), args, out, x)


def halves(big: bool) -> Call:
    """`multicast`: both CTAs of a pair see all tiles of the pair."""
    ctas, steps, width = (SMS, 100, 256) if big else (2, 5, 64)
    number = np.arange(ctas // 2 * steps * 2, dtype=np.float32).reshape(ctas // 2, steps, 2, 1)
    x = aligned(np.broadcast_to(number + 1, (ctas // 2, steps, 2, width)))
    out = nothing(ctas, steps, 2, width)
    args = {"x": block(x.reshape(-1), width), "out": out, "steps": steps, "W": width}
    return Call(kernels.multicast, (ctas,), args, out, np.repeat(x, 2, 0), (2, 1, 1))


def operands(kernel: Any, pair: bool, fence: int | None, big: bool) -> Call:
    """Tile i of A holds one number; a row of A @ ones is K times that."""
    ctas, steps, m, k = (SMS, 50, 64, 64) if big else (2, 4, 64, 16)
    number = (np.arange(ctas * steps) % 29 + 1).astype(np.float16).reshape(ctas, steps, 1, 1)
    x = aligned(np.broadcast_to(number, (ctas, steps, m, k)))
    out = nothing(ctas, steps, m, 16)
    wanted = np.broadcast_to(number.astype(np.float32) * k, out.shape)
    if pair:
        wanted = wanted.reshape(-1, 2, *wanted.shape[1:])[:, ::-1].reshape(out.shape)
    args = {"x": x, "out": out, "steps": steps, "M": m, "K": k}
    args |= {} if fence is None else {"FENCE": fence}
    return Call(kernel, (ctas,), args, out, wanted, (2, 1, 1) if pair else (1, 1, 1))


def notes(big: bool) -> Call:
    call = tiles(kernels.told_by_bytes, False, False, False, big)
    return Call(call.kernel, call.grid, {**call.args, "block": block(aligned(np.ones(64, np.float32)), 64)}, call.out,
                call.wanted)  # fmt: skip


def without_fence(module: Module) -> None:
    """Without the last one."""
    mutation.drop(module, [op for op in module.walk() if op.kind == "fence_async_shared"][-1])


def without_release(module: Module) -> None:
    for op in module.walk():
        op.attrs.pop("release", None)


def passed(kernel: Any, tma_in: bool, tma_out: bool, pair: bool = False, **constants: Any) -> Callable[[bool], Call]:
    return lambda big: tiles(kernel, tma_in, tma_out, pair, big, **constants)


def multiplied(kernel: Any, pair: bool, fence: int | None) -> Callable[[bool], Call]:
    return partial(operands, kernel, pair, fence)


READ, WRITE = kernels.write_then_async_read, kernels.write_then_async_write
COPIED, SENT, THERE = kernels.cp_async_then_wgmma, kernels.st_async_then_wgmma, kernels.write_there_then_async_read
LITMUS = (
    Litmus("read, default remote arrive, overwrite after it", 1, passed(kernels.exchange, False, False, True),
           "ordered"),
    Litmus("remote store, remote arrive without release.cluster", 1, passed(kernels.exchange, False, False, True),
           "not ordered", without_release),
    Litmus("multicast by the peer, default try_wait", 2, halves, "silent"),
    Litmus("write, async read, no fence", 3, passed(READ, False, True, FENCE=NOBODY), "not ordered"),
    Litmus("write, fence, async read", 3, passed(READ, False, True, FENCE=WRITER), "ordered"),
    Litmus("write, async read by the same threads, no fence", 3,
           passed(kernels.write_then_own_async_read, False, True), "not ordered", without_fence),
    Litmus("write, wgmma by the same threads, no fence", 3, multiplied(kernels.write_then_own_wgmma, False, None),
           "not ordered", without_fence),
    Litmus("write, async write, no fence", 3, passed(WRITE, True, False, FENCE=NOBODY), "not ordered"),
    Litmus("write, fence, async write", 3, passed(WRITE, True, False, FENCE=WRITER), "ordered"),
    Litmus("read, async write, no fence", 3, passed(kernels.read_then_async_write, True, False), "not ordered"),
    Litmus("write, fence by the reader, async read", 4, passed(READ, False, True, FENCE=READER), "ordered"),
    Litmus("write, fence by the reader, async write", 4, passed(WRITE, True, False, FENCE=READER), "ordered"),
    Litmus("cp.async, wgmma, no fence", 5, multiplied(COPIED, False, NOBODY), "not ordered"),
    Litmus("cp.async, fence, wgmma", 5, multiplied(COPIED, False, WRITER), "ordered"),
    Litmus("st.async, wgmma, no fence", 5, multiplied(SENT, True, NOBODY), "not ordered"),
    Litmus("st.async, fence by the reader, wgmma", 5, multiplied(SENT, True, READER), "ordered"),
    Litmus("write, copy, read after the bytes of the copy", 6, notes, "not ordered"),
    Litmus("write, bar.arrive; bar.sync, read", 8, passed(kernels.named_arrival, False, False), "ordered"),
    Litmus("write to a peer, async read there, no fence", 10, passed(THERE, False, True, True, FENCE=NOBODY),
           "not ordered"),
    Litmus("write to a peer, fence .shared::cta by the writer", 10, passed(THERE, False, True, True, FENCE=WRITER),
           "not ordered"),
    Litmus("write to a peer, fence of all spaces by the writer", 10, passed(THERE, False, True, True, FENCE=WRITER),
           "ordered", ptx=WHOLE_FENCE),
    Litmus("write to a peer, fence there", 10, passed(THERE, False, True, True, FENCE=READER), "ordered"),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ running them
def examine(litmus: Litmus) -> dict[str, Any]:
    """What simulator and emulator say."""
    return {
        "benchmark": "litmus", "case": litmus.name, "question": litmus.question, "manual": litmus.manual,
        "simulator": _machines.in_simulator(litmus.make(False), litmus.change),
        "emulator": _machines.in_emulator(litmus.make(False), litmus.change),
    }  # fmt: skip


def examine_raw(raw: litmus_ptx.Raw) -> dict[str, Any]:
    return {"benchmark": "litmus", "case": raw.name, "question": raw.question, "manual": raw.manual}


def assembled(test: Litmus | litmus_ptx.Raw) -> int:
    """Bytes of the cubin."""
    if isinstance(test, litmus_ptx.Raw):
        return len(litmus_ptx.assembled(test))
    return len(_machines.compiled(test.make(True), test.change, CYCLES, test.ptx).binary)


def on_card(name: str, seconds: float) -> dict[str, Any]:
    """The card's answer, in the process that is left to die."""
    for raw in litmus_ptx.RAW:
        if raw.name == name:
            return {"card_said": litmus_ptx.on_card(raw, ROUNDS)}
    (litmus,) = (each for each in LITMUS if each.name == name)
    call = litmus.make(True)
    seen = _machines.OnCard(call, _machines.compiled(call, litmus.change, CYCLES, litmus.ptx)).run(100_000, seconds)
    counted = f"{seen.wrong} of {seen.places} wrong"
    return {"card": asdict(seen), "card_said": str(seen) if seen.error else counted}


def show(record: dict[str, Any]) -> None:
    said = f"simulator: {record['simulator']}; emulator: {record['emulator']}" if "simulator" in record else "in PTX"
    print(f"{record['question']:>2}  {record['case']}: {record['card_said']}\n    manual: {record['manual']}; {said}")


def put_into_docs(records: list[dict[str, Any]]) -> None:
    rows = [["", "test", "PTX ISA", "simulator", "H200"]]
    rows += [
        [str(r["question"]), r["case"], r["manual"], str(r.get("simulator", "")).split(" at ")[0], r["card_said"]]
        for r in records
    ]
    _machines.put_table(_machines.ROOT / "docs" / "memory_model.md", "litmus", rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--no-card", action="store_true", help="simulate, emulate and assemble only")
    parser.add_argument("--only", default="", help="tests whose name contains this")
    parser.add_argument("--seconds", type=float, default=1.5, help="of launches of each test")
    parser.add_argument("--jobs", type=int, default=4, help="tests at once")
    parser.add_argument("--out", default=os.environ.get("OUT", ""), help="a JSON file, or a folder for one")
    parser.add_argument("--docs", help="put the table of this JSON file into docs/memory_model.md, and do nothing else")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(on_card(options.child, options.seconds)))
        return 0
    if options.docs:
        put_into_docs(json.loads(Path(options.docs).read_text()))
        return 0
    chosen = [litmus for litmus in LITMUS if options.only in litmus.name]
    raws = [raw for raw in litmus_ptx.RAW if options.only in raw.name]
    records = [*map(examine, chosen), *map(examine_raw, raws)]
    if options.no_card:
        answers = [{"card_said": f"assembled, {assembled(test)} bytes"} for test in (*chosen, *raws)]
    else:
        with ThreadPoolExecutor(options.jobs) as pool:
            ask = partial(_machines.in_a_process, __file__)
            waiting = [pool.submit(ask, test.name, "--seconds", str(options.seconds)) for test in (*chosen, *raws)]
            answers = [one.result() for one in waiting]
    records = sorted(({**r, **answer} for r, answer in zip(records, answers)), key=lambda r: r["question"])
    for record in records:
        show(record)
    print("An outcome never observed proves nothing.")
    if not options.no_card:
        _machines.write("litmus", records, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
