"""`tlxc check`: examples over schedules, what they cover, reports, exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tlxc.cli import main

FILE = """
import numpy as np
import tlxc
from tlxc import tl

@tlxc.kernel
def add_one(x, out, n):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1{mask})

@add_one.example
def whole():
    return (2,), (np.zeros(128, np.float32), np.zeros(128, np.float32), 128)

@add_one.example
def part():
    x, out = np.zeros(100, np.float32), np.zeros(100, np.float32)
    return lambda arguments: (tlxc.cdiv(arguments["n"], 64),), dict(x=x, out=out, n=100)
"""


def run(tmp_path: Path, text: str, *options: str) -> Result:
    file = tmp_path / "file.py"
    file.write_text(text, encoding="utf-8")
    return CliRunner().invoke(main, ["check", str(file), *options], prog_name="tlxc")


def test_clean(tmp_path: Path) -> None:
    result = run(tmp_path, FILE.replace("{mask}", ", mask=at < n"))
    assert result.output == (
        "add_one, whole: clean: all schedules of these inputs\nadd_one, part: clean: all schedules of these inputs\n"
    )
    assert result.exit_code == 0


LOOPS = """
import numpy as np
import tlxc
from tlxc import tl

@tlxc.kernel(do_not_specialize=("n", "m"))
def add(out, n, m):
    total = 0.0
    for i in range(4):
        total += 1.0
    for i in range(n):
        total += 1.0
    for i in range(m):
        total += tl.load(out)
    tl.store(out, total)
"""
EXAMPLE = """
@add.example
def {name}():
    return (1,), (np.zeros(1, np.float32), {n}, {m})
"""


def test_trips_that_were_tried(tmp_path: Path) -> None:
    """Of loops whose bounds are known at run time, over all examples; not after a report."""
    text = LOOPS + "".join(EXAMPLE.format(name=f"e{n}", n=n, m=n + 3) for n in (0, 1, 2, 5))
    result = run(tmp_path, text, "--seeds", "1")
    assert result.output.splitlines()[4:] == [
        "add, loop at line 11: 0 to 2, 5 trips",
        "add, loop at line 13: 3 to 5, 8 trips; never 0",
    ]
    first = json.loads(run(tmp_path, text, "--seeds", "1", "--json").output)[0]
    assert first["trips"] == [
        {"line": 11, "callers": [], "counts": [0]},
        {"line": 13, "callers": [], "counts": [3]},
    ]
    assert first["notes"] == []
    wrong = run(tmp_path, text.replace("tl.load(out)", "tl.load(out + i)"), "--seeds", "1")
    assert wrong.exit_code == 1 and " trips" not in wrong.output


def test_notes(tmp_path: Path) -> None:
    text = FILE.replace("{mask}", ", mask=at < n").replace("tl.program_id(0) * 64 + ", "")
    result = run(tmp_path, text, "--seeds", "2")
    assert result.exit_code == 0
    assert "\nnote: equal-values: out: main of CTA " in result.output and result.output.count("note: ") == 2


def test_report(tmp_path: Path) -> None:
    result = run(tmp_path, FILE.replace("{mask}", ""), "--seeds", "2")
    lines = result.output.splitlines()
    assert lines[0] == "add_one, whole: clean: all schedules of these inputs"
    assert lines[1] == "add_one, part: a report with seed 0 of the random schedule"
    assert lines[2].startswith(
        "out-of-bounds: tl.store at line 9 by main of CTA 1 accesses element 100 and 27 more of out, which has 100: 4 "
    )
    assert result.exit_code == 1


def test_json_and_replay(tmp_path: Path) -> None:
    result = run(tmp_path, FILE.replace("{mask}", ""), "--json", "--replay", "3")
    whole, part = json.loads(result.output)
    assert whole["report"] is None and whole["runs"] == 1
    assert (part["kind"], part["seed"], part["lines"]) == ("out-of-bounds", 3, [9])
    assert result.exit_code == 1


def test_json_beside_a_breakpoint(tmp_path: Path) -> None:
    text = FILE.replace("{mask}", ", mask=at < n").replace("    tl.store", "    breakpoint()\n    tl.store")
    result = run(tmp_path, text, "--json", "--seeds", "1")
    assert [outcome["report"] for outcome in json.loads(result.stdout)] == [None, None]
    assert result.stderr.count("breakpoint in main of CTA ") == 4


def test_no_example(tmp_path: Path) -> None:
    text = FILE.replace("{mask}", "").partition("@add_one.example")[0]
    result = run(tmp_path, text)
    assert result.exit_code == 1
    assert (
        "add_one has no example to run; decorate a function without parameters that returns (grid, arguments) with "
        in (result.output)
    )


@pytest.mark.parametrize("option", [["--seeds", "0"], ["--target", "sm_1"]])
def test_wrong_usage(tmp_path: Path, option: list[str]) -> None:
    assert run(tmp_path, FILE.replace("{mask}", ""), *option).exit_code == 2


SCRIPT = """
import sys
import numpy as np
import tlxc
from tlxc import tl

@tlxc.kernel
def double(x):
    tl.store(x + tl.arange(0, 64), tl.load(x + tl.arange(0, 64)) * 2)

x = np.ones({size}, np.float32)
double[1](x)
print(sys.argv[1:], x.sum())
"""


def test_run(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.format(size=64), encoding="utf-8")
    result = CliRunner().invoke(main, ["run", "--simulate", str(file), "--option", "3"], prog_name="tlxc")
    assert result.output == "['--option', '3'] 128.0\n"
    file.write_text(SCRIPT.format(size=32), encoding="utf-8")
    result = CliRunner().invoke(main, ["run", "--simulate", str(file)], prog_name="tlxc")
    assert result.exit_code == 1
    assert "out-of-bounds: tl.load" in result.output


def at_terminal(*command: str) -> tuple[int, str, str]:
    """(exit status, what a program prints, what it shows on stderr, a terminal)"""
    ends = os.openpty()
    done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, stderr=ends[1], text=True)
    os.write(ends[1], b"$")  # a read of nothing would be an error
    os.close(ends[1])
    shown = os.read(ends[0], 1 << 16).decode()
    os.close(ends[0])
    return done.returncode, done.stdout, shown.removesuffix("$")


@pytest.mark.parametrize("mask", [", mask=at < n", ""])
def test_a_bar_at_a_terminal(tmp_path: Path, mask: str) -> None:
    """On stderr, and only there; full at the end, also where an example ends at a report."""
    file = tmp_path / "file.py"
    file.write_text(FILE.replace("{mask}", mask), encoding="utf-8")
    status, printed, shown = at_terminal("-m", "tlxc", "check", str(file), "--seeds", "3")
    assert status == (not mask) and "100%" in shown and "100%" not in printed


MANY = (
    SCRIPT.format(size=40 * 64).replace("double[1]", "double[40]").replace("x + tl", "x + 64 * tl.program_id(0) + tl")
)


@pytest.mark.parametrize(("patience", "bar"), [(0.0, True), (60.0, False)])
def test_a_bar_for_a_long_launch(tmp_path: Path, patience: float, bar: bool) -> None:
    """It counts CTAs; none where the launch is short."""
    file = tmp_path / "script.py"
    head = f"import tlxc.runtime.simulate as runtime\nruntime.PATIENCE = {patience}\n"
    file.write_text(head + MANY, encoding="utf-8")
    status, printed, shown = at_terminal("-m", "tlxc", "run", "--simulate", str(file))
    assert (status, printed) == (0, "[] 5120.0\n")
    assert ("double, CTAs" in shown and "100%" in shown) is bar and (bar or not shown)
