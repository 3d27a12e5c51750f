"""`kernel.variants`, `kernel.explain_recompile`, the log, and `tlxc cache`."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_driver import Array, FakeDriver, float32, install, install_compiler

import tlxc
from tlxc import tl
from tlxc.cli import main
from tlxc.runtime import cache, entries

A = Array()
SCALE = 2


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    install_compiler(monkeypatch)
    made = install(monkeypatch)
    made.parameters = 2
    return made


def make() -> Any:
    """Each is a kernel of its own, as the next process has it."""

    def add(x, n, BLOCK: tl.constexpr = 64):  # type: ignore[no-untyped-def]
        return x + n * SCALE

    return tlxc.kernel(add)


def test_variants_in_words() -> None:
    first, second = make(), make()
    first[1](A, 5)
    first[1](A, 16, maxnreg=64)
    assert [str(v) for v in first.variants] == [
        "sm_90 (BLOCK = 64; x: ptr<f16>, 16-byte aligned; n: i32; num_warps=4): 16 registers, 64 bytes shared, "
        "None bytes of spills; compiled: first use",
        "sm_90 (BLOCK = 64; x: ptr<f16>, 16-byte aligned; n: i32, multiple of 16; num_warps=4; maxnreg=64): "
        "16 registers, 64 bytes shared, None bytes of spills; compiled: n: i32 -> i32, multiple of 16; "
        "maxnreg: None -> 64",
    ]
    second[1](A, 5)
    assert [(v.compiled.origin, v.reason) for v in second.variants] == [("cache", "first use")]


def test_what_a_launch_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = make()
    assert kernel.explain_recompile(A, 5) == (
        "add: A launch compiles it: it is not in the cache. Neither this process nor the cache has another "
        "specialisation."
    )
    kernel[1](A, 5)
    assert kernel.explain_recompile(A, 7) == (
        "add: This process has it; it was compiled. Neither this process nor the cache has another specialisation."
    )
    assert kernel.explain_recompile(Array(float32), 16, BLOCK=128) == (
        "add: A launch compiles it: it is not in the cache. The nearest other one is in this process; different are:\n"
        "  BLOCK: = 64 -> = 128\n"
        "  x: ptr<f16>, 16-byte aligned -> ptr<f32>, 16-byte aligned\n"
        "  n: i32 -> i32, multiple of 16"
    )
    again = make()
    text = again.explain_recompile(A, 5)
    assert re.fullmatch(r"add: A launch reads it from the cache \([0-9a-f]{12}\)\. Neither .*", text)
    again[1](A, 5)
    assert again.explain_recompile(A, 5).startswith("add: This process has it; it is read from the cache.")
    assert len(kernel.variants) == len(again.variants) == 1


def test_against_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    make()[1](A, 5)
    kernel = make()
    monkeypatch.setitem(globals(), "SCALE", 3)
    monkeypatch.setattr(cache, "stamp", lambda folder: "edited")
    text = kernel.explain_recompile(A, 5, num_warps=8, target="sm_100")
    date = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.fullmatch(
        r"add: A launch compiles it: it is not in the cache\. The nearest other one is in the cache, last used "
        rf"{date}; different are:\n  tlxc itself changed\n  target: sm_90 -> sm_100\n  the source, a function that it "
        r"calls or a module constant changed\n  num_warps: 4 -> 8",
        text,
    )


def test_values_that_have_no_name() -> None:
    kernel = make()
    assert kernel.explain_recompile(A, 5, BLOCK=object()) == (
        "add: A launch compiles it. It is in no cache, because a compile-time value has no name that holds in other "
        "processes, or because TLXC_TRAP_ON_TIMEOUT is set."
    )


def test_the_log(caplog: pytest.LogCaptureFixture) -> None:
    kernel = make()
    with caplog.at_level(logging.INFO, "tlxc"):
        kernel[1](A, 5)
        kernel[1](A, 5)
        kernel[1](A, 5, num_warps=8)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("add for sm_90 (BLOCK = 64; ") and first.endswith("has another specialisation.")
    assert second.endswith("compiled: num_warps: 4 -> 8. The nearest other one is in this process; different are:\n"
                           "  num_warps: 4 -> 8")  # fmt: skip


# -- the command line


def run(*command: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, ["cache", *command], prog_name="tlxc")
    assert result.exit_code == status, result.output
    return result


def test_list(folder: Path) -> None:
    assert run("ls").stdout == f"0 entries in {folder}: 0 bytes; the folder may hold {1 << 30}\n"
    kernel = make()
    kernel[1](A, 5)
    kernel[1](A, 5, num_warps=8)
    (folder / "junk.tlxc").write_bytes(b"junk")
    os.utime(folder / "junk.tlxc", (1, 1))
    head, one, other, junk, total = run("ls").stdout.splitlines()
    assert head.split() == ["key", "last", "used", "bytes", "kernel", "target", "specialised", "for"]
    assert {line.partition("add     ")[2] for line in (one, other)} == {
        f"      sm_90   BLOCK = 64; x: ptr<f16>, 16-byte aligned; n: i32; num_warps={warps}" for warps in (4, 8)
    }
    assert re.fullmatch(r"junk +\d{4}-\d\d-\d\d \d\d:\d\d +4 +not an entry", junk)
    assert total.startswith(f"3 entries in {folder}: ")
    assert run("ls", "add").stdout.count("sm_90") == 2
    assert run("ls", one[:12]).stdout.count("sm_90") == 1
    assert run("ls", "nothing").stdout.startswith("0 entries")


def test_remove(folder: Path) -> None:
    kernel = make()
    for warps in (1, 2, 4):
        kernel[1](A, 5, num_warps=warps)
    key = cache.default_cache().entries()[0].key
    assert run("rm", key[:9]).stdout == "1 entries deleted\n"
    assert run("rm", "other").stdout == "0 entries deleted\n"
    assert run("rm", "add").stdout == "2 entries deleted\n"
    (folder / "junk.tlxc").mkdir()
    refused = run("rm", "--all", status=1)
    assert refused.stderr == (
        f"{folder / 'junk.tlxc'} could not be deleted, nor 0 others; look at the permissions of their folder.\n"
    )
    for wrong in (["rm"], ["rm", "add", "--all"]):
        assert run(*wrong, status=2).stderr.splitlines()[-1] == "Error: Name kernels or keys, or give --all."
    kernel[1](A, 5, num_warps=4)  # what is loaded stays


def test_verify(folder: Path) -> None:
    kernel = make()
    kernel[1](A, 5)
    kernel[1](A, 5, num_warps=8)
    assert run("verify").stdout == "2 of 2 entries are sound\n"
    path = cache.default_cache().entries()[0].path
    path.write_bytes(path.read_bytes()[:-1])
    assert run("verify", status=1).stdout == f"{path}: damaged, or no entry of tlxc\n1 of 2 entries are sound\n"
    assert run("verify", "--remove").stdout.endswith("1 of 2 entries are sound\n1 entries deleted\n")
    assert run("verify").stdout == "1 of 1 entries are sound\n"
    assert not path.exists() and entries.read_header(path) is None
