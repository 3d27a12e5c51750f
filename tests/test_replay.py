"""`tlxc check --replay`: the schedule of a seed, and the shortest one that fails in the same way."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tlxc.cli import main
from tlxc.runtime.shrink import minimal

HEAD = """import numpy as np
import tlxc
from tlxc import tl, tlx

"""

# The second ticket is the next one unless another CTA takes it between.
TICKETS = """
@tlxc.kernel
def tickets(ticket, out):
    first = tl.atomic_add(ticket, 1)
    second = tl.atomic_add(ticket, 1)
    if second != first + 1:
        tl.store(out + 100, 1.0)

@tickets.example
def four():
    return (4,), (np.zeros(1, np.int32), np.zeros(12, np.float32))
"""

# Every CTA writes a block of its own, and the last also that of the first.
BLOCKS = """
@tlxc.kernel
def blocks(out):
    at = tl.arange(0, 64)
    tl.store(out + tl.program_id(0) * 64 + at, tl.full((64,), 1.0, tl.float32))
    if tl.program_id(0) == 5:
        tl.store(out + at, tl.full((64,), 2.0, tl.float32))

@blocks.example
def six():
    return (6,), (np.zeros(384, np.float32),)
"""

# The producer never waits for its reader.
RING = """
@tlxc.kernel
def ring(x, out, steps):
    buf = tlx.local_alloc((64,), tl.float32, 2)
    full = tlx.alloc_barriers(2)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, 2)
                tlx.barrier_expect_bytes(full[stage], 256)
                tlx.async_descriptor_load(x, buf[stage], [i * 64], full[stage])
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, 2)
                tlx.barrier_wait(full[stage], phase)
                tl.store(out + i * 64 + tl.arange(0, 64), tlx.local_load(buf[stage]))

@ring.example
def six():
    x = tlxc.TensorDescriptor.from_tensor(np.zeros(384, np.float32), [64])
    return (1,), (x, np.zeros(384, np.float32), 6)
"""


def replay(tmp_path: Path, text: str, seed: int, *options: str) -> Result:
    file = tmp_path / "file.py"
    file.write_text(HEAD + text, encoding="utf-8")
    return CliRunner().invoke(main, ["check", str(file), "--replay", str(seed), *options], prog_name="tlxc")


def turns(result: Result) -> list[str]:
    """Lines of the shortest schedule, its head left out."""
    head, _, rest = result.output.partition("shortest failing schedule: ")
    assert rest, head
    return [line.strip() for line in rest.splitlines()[1:]]


def failing(tmp_path: Path, text: str) -> list[int]:
    return [seed for seed in range(4) if replay(tmp_path, text, seed).exit_code]


def test_a_switch_that_is_needed(tmp_path: Path) -> None:
    """One CTA takes a ticket between two of another: three turns, whatever the schedule that is replayed."""
    seeds = failing(tmp_path, TICKETS)
    assert seeds
    for seed in seeds:
        first, between, last = turns(replay(tmp_path, TICKETS, seed))
        one, other = first[len("1  main of CTA ")], between[len("2  main of CTA ")]
        assert one != other
        assert re.fullmatch(f"1  main of CTA {one}: from its beginning to line [89]", first)  # 8: hands the value on
        assert between == f"2  main of CTA {other}: from its beginning to its end"
        assert re.fullmatch(f"3  main of CTA {one}: from line [89] to line 11, where the report is made", last)


def test_ctas_that_are_needed(tmp_path: Path) -> None:
    """Of CTAs that run one after the other those stay whose accesses meet."""
    result = replay(tmp_path, BLOCKS, 0)
    (only,) = turns(result)
    assert "; clusters 0 run to their end before" in result.output
    assert only.endswith("where the report is made")


@pytest.mark.parametrize("seed", range(4))
def test_tasks_and_engines(tmp_path: Path, seed: int) -> None:
    result = replay(tmp_path, RING, seed)
    report, _, _ = result.output.partition("\nshortest")
    rows = turns(result)
    assert len(rows) <= 5 and rows[-1].endswith(", where the report is made"), result.output
    if "phase-race" in report:  # the first copy ends, then its barrier is armed again
        assert rows[0] == "1  default task: from its beginning to line 14"
        assert rows[1] == "2  engine of default task: async_descriptor_load at line 15, step 1 to its end"


def test_json(tmp_path: Path) -> None:
    (outcome,) = json.loads(replay(tmp_path, TICKETS, failing(tmp_path, TICKETS)[0], "--json").output)
    assert outcome["kind"] == "out-of-bounds"
    assert [turn["end"] for turn in outcome["turns"]] == ["to line 9", "to its end", "to line 11"]


def test_clean(tmp_path: Path) -> None:
    result = replay(tmp_path, TICKETS.replace("100", "tl.program_id(0)"), 0)
    assert result.output == "tickets, four: clean in 1 schedules: 1 conflict graph, none new in the last 0\n"


def test_same_lines(tmp_path: Path) -> None:
    """The shortest schedule makes the report that was replayed, not another one."""
    for seed in failing(tmp_path, RING):
        plain = replay(tmp_path, RING, seed)
        first = json.loads(replay(tmp_path, RING, seed, "--json").output)[0]
        assert plain.output.splitlines()[1].startswith(f"{first['kind']}: ")


@pytest.mark.parametrize("seed", range(20))
def test_minimal(seed: int) -> None:
    """What is left is what is needed, for any need of a few items, also of one of two."""
    chosen = random.Random(seed)
    items = list(range(chosen.randrange(1, 40)))
    need = {chosen.choice(items) for _ in range(chosen.randrange(4))}
    either = {chosen.choice(items), chosen.choice(items)}
    tries = []

    def fails(part: list[int]) -> bool:
        tries.append(part)
        return need <= set(part) and bool(either & set(part))

    left = minimal(items, fails)
    assert fails(left)
    assert all(not fails([n for n in left if n != one]) for one in left)
    assert len(tries) < 40 * 12
