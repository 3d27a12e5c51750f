"""Waits that give up: their code, the record they leave, and what is said about it."""

from __future__ import annotations

import ctypes
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_driver import Array, FakeDriver, float32, install

import tlxc
from tlxc import tl, tlx
from tlxc.codegen.nvptx.trap import RECORD_BYTES, VARIABLE, WORDS, wait_limit
from tlxc.compiler import compile_kernel
from tlxc.errors import TlxcError
from tlxc.runtime import cuda, trap
from tlxc.targets import get_target

ROOT = Path(__file__).resolve().parents[1]
CYCLES = 123456789
TARGETS = ["sm_90", "sm_100"]


def wait_for_empty(empty, s):  # type: ignore[no-untyped-def]
    tlx.barrier_wait(empty[s], 0)  # in a function


def hang(x, n, STAGES: tl.constexpr = 4):  # type: ignore[no-untyped-def]
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=2)
    for i in range(n):
        tlx.barrier_wait(full[i % STAGES], 1)  # passes
        tlx.barrier_wait(full[i % STAGES], 0, pred=i > 1)  # hangs
        wait_for_empty(empty, i % STAGES)
    tl.store(x, 1.0)


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("# " + text))


@pytest.fixture(autouse=True)
def no_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(trap, "_records", [])
    monkeypatch.setattr(trap, "_free", [])


def compiled(target: str = "sm_90", fn: Any = hang) -> Any:
    return tlxc.kernel(fn).warmup(tl.float32, 5, target=target)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(CYCLES))


# -- the variable


@pytest.mark.parametrize("text", ["-1", "0", "1e9", "soon", str(1 << 63)])
def test_a_limit_that_is_no_number_of_cycles(text: str) -> None:
    with pytest.raises(TlxcError, match=f"{VARIABLE} is '{re.escape(text)}'; give the clock cycles"):
        wait_limit({VARIABLE: text})


def test_a_limit() -> None:
    assert (wait_limit({}), wait_limit({VARIABLE: ""}), wait_limit({VARIABLE: " 7 "})) == (None, None, 7)


# -- code


@pytest.mark.parametrize("target", TARGETS)
def test_without_a_limit_nothing_changes(target: str, limited: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit concerns launches: what is compiled ahead of time takes its own parameters only."""
    kernel = tlxc.kernel(hang)
    signature = kernel._binder.resolve(kernel._binder.check(kernel._functions[1](tl.float32, 5)), ahead=True).signature
    ahead = compile_kernel(kernel.__tlxc_source__, signature, get_target(target))
    monkeypatch.delenv(VARIABLE)
    made = compiled(target)
    assert made.asm["ptx"] == ahead.asm["ptx"] and not {"trap_cycles", "wait_sites"} & set(made.metadata)
    assert "trap" not in made.asm["ptx"] and "clock64" not in made.asm["ptx"]
    assert made.asm["ptx"].count("@done bra DONE; bra WAIT; DONE: }") == 3


@pytest.mark.parametrize("target", TARGETS)
def test_waits_with_a_limit(target: str, limited: None) -> None:
    made = compiled(target)
    ptx = made.asm["ptx"]
    params = re.findall(r"^\t\.param (\S+)(?: .*)? hang_param_(\d)", ptx, re.MULTILINE)
    assert params == [(".u64", "0"), (".u32", "1"), (".u64", "2")]
    assert ptx.count("mbarrier.try_wait") == ptx.count("trap;") == ptx.count(f"now, {CYCLES};") == 3
    assert [int(n) for n in re.findall(r"cas\.b32 word, \[%rd\d+\], 0, (\d+);", ptx)] == [1, 2, 3]
    assert made.asm["cubin"][:4] == b"\x7fELF"
    assert [p["name"] for p in made.metadata["params"]] == ["x", "n"]


def test_sites(limited: None) -> None:
    facts = compiled().metadata
    assert facts["trap_cycles"] == CYCLES
    found = [(s["barrier"], s["count"], s["offset"], [span[:2] for span in s["spans"]]) for s in facts["wait_sites"]]
    call = inspect.getsourcelines(hang)[1] + 6
    assert found == [
        ("full", 4, 0, [[__file__, line_of("passes")]]),
        ("full", 4, 0, [[__file__, line_of("hangs")]]),
        ("empty", 4, 32, [[__file__, line_of("in a function")], [__file__, call]]),
    ]


def test_a_kernel_without_waits_takes_no_record(limited: None) -> None:
    def fill(x, n):  # type: ignore[no-untyped-def]
        tl.store(x + n, 1.0)

    made = compiled(fn=fill)
    assert "wait_sites" not in made.metadata and "param_2" not in made.asm["ptx"]


def test_waits_in_tasks(limited: None) -> None:
    def tasks(x, n):  # type: ignore[no-untyped-def]
        bars = tlx.alloc_barriers(2)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                tlx.barrier_wait(bars[0], 0)
            with tlx.async_task(num_warps=4, replicate=2):
                tlx.barrier_wait(bars[1], n & 1)

    made = compiled(fn=tasks)
    assert [s["barrier"] for s in made.metadata["wait_sites"]] == ["bars"] * 3
    assert made.asm["ptx"].count("trap;") == 3


def test_code_with_a_limit_is_not_cached(limited: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source lines would be those of an older file."""
    compiled()
    assert not list(Path(os.environ["TLXC_CACHE_DIR"]).glob("*"))
    monkeypatch.delenv(VARIABLE)
    compiled()
    assert len(list(Path(os.environ["TLXC_CACHE_DIR"]).glob("*.tlxc"))) == 1
    monkeypatch.setenv(VARIABLE, "5")
    assert compiled().metadata["trap_cycles"] == 5


# -- records


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """The driver of `fake_driver`, whose pinned memory the GPU sees `SHIFT` bytes further on."""
    made = install(monkeypatch)
    pages = []

    def call(name: str, *arguments: Any) -> Any:
        if name == "cuMemHostAlloc":
            assert arguments[1] == 3
            pages.append(ctypes.create_string_buffer(b"\xff" * arguments[0], arguments[0]))
            return ctypes.addressof(pages[-1])
        assert name == "cuMemHostGetDevicePointer"
        return arguments[0] + SHIFT

    api = SimpleNamespace(**vars(cuda.driver()), CU_MEMHOSTALLOC_PORTABLE=1, CU_MEMHOSTALLOC_DEVICEMAP=2)
    monkeypatch.setattr(cuda, "driver", lambda: api)
    monkeypatch.setattr(cuda, "call", call)
    return made


SHIFT = 1 << 40


def give_up(address: int, **words: int) -> None:
    """What the GPU does."""
    values = dict.fromkeys(WORDS, 0) | words | {"complete": 1}
    (ctypes.c_uint32 * len(WORDS)).from_address(address)[:] = [values[name] for name in WORDS]


def test_a_launch_passes_the_record(fake: FakeDriver, limited: None) -> None:
    kernel, fake.parameters = tlxc.kernel(hang), 3
    for _ in range(2):
        made = kernel[(2,)](Array(float32, address=0x9990), 7)
    (record,) = trap._records
    assert record.metadata is made.metadata
    assert [launch.words[::2] for launch in fake.launches] == [[0x9990, record.address + SHIFT]] * 2
    assert tlxc.explain_trap() == "No wait on an mbarrier has given up."


def test_a_workspace_comes_before_the_record(fake: FakeDriver, limited: None) -> None:
    def copy(x, n):  # type: ignore[no-untyped-def]
        tile = tlx.make_tensor_descriptor(None, x, [n, 64], [64, 1], [8, 64])
        tile.store([0, 0], tile.load([0, 0]))

    kernel, fake.parameters = tlxc.kernel(copy), 4
    made = kernel[(2,)](Array(float32, address=0x9990), 7)
    (record,) = trap._records
    assert fake.memory == [("alloc", 2 * made.workspace, 0), ("free", 0x701000, 0)]
    assert fake.launches[0].words == [0x9990, 7, 0x701000, record.address + SHIFT]


def test_a_record_for_each_gpu_and_kernel(fake: FakeDriver, limited: None) -> None:
    fake.parameters = 3
    for kernel in (tlxc.kernel(hang), tlxc.kernel(hang)):
        for gpu in (0, 1):
            kernel[(2,)](Array(float32, gpu), 7)
    addresses = sorted(record.address for record in trap._records)
    assert len(addresses) == 4 and all(b - a >= RECORD_BYTES for a, b in zip(addresses, addresses[1:]))


def test_launches_without_a_limit_take_no_record(fake: FakeDriver) -> None:
    kernel, fake.parameters = tlxc.kernel(hang), 2
    kernel[(2,)](Array(float32), 7)
    assert trap._records == []
    assert f"set {VARIABLE} to the clock cycles" in tlxc.explain_trap()


def test_the_explanation(fake: FakeDriver, limited: None) -> None:
    kernel, fake.parameters = tlxc.kernel(hang), 3
    kernel[(4,)](Array(float32), 7)
    give_up(trap._records[0].address, site=2, offset=16, phase=1, x=3, thread=128)
    text = tlxc.explain_trap()
    assert text.splitlines()[0] == (
        f"kernel hang on GPU 0, CTA (3, 0, 0), thread 128: waited more than {CYCLES} cycles at {__file__}:"
        f"{line_of('hangs')}:9 on barrier `full` (entry 2 of 4, the first being 0) for phase 1, which did not complete"
    )
    assert "tlx.barrier_wait(full[i % STAGES], 0, pred=i > 1)" in text and "^~~~" in text
    fake.status = 719
    with pytest.raises(cuda.LaunchError) as error:
        kernel[(4,)](Array(float32), 7)
    assert "CUDA_ERROR_LAUNCH_FAILED" in str(error.value) and str(error.value).endswith(text)


def test_the_explanation_of_a_wait_in_a_function(fake: FakeDriver, limited: None) -> None:
    kernel, fake.parameters = tlxc.kernel(hang), 3
    kernel[(4,)](Array(float32), 7)
    give_up(trap._records[0].address, site=3, offset=56, y=1)
    text = tlxc.explain_trap()
    assert "CTA (0, 1, 0)" in text and "on barrier `empty` (entry 3 of 4, the first being 0) for phase 0" in text
    assert f"called from {__file__}:{line_of('hangs') + 1}" in text and "wait_for_empty(empty, i % STAGES)" in text


# -- on a GPU

SCRIPT = """
import torch, tlxc
from tlxc import tl, tlx

@tlxc.kernel
def stuck(x):
    full = tlx.alloc_barriers(4)
    if tl.program_id(0) == 3:
        tlx.barrier_wait(full[2], 0)  # nobody arrives
    tl.store(x + tl.program_id(0), 1.0)

x = torch.zeros(8, device="cuda")
print(tlxc.explain_trap())
stuck[8](x)
try:
    torch.cuda.synchronize()
except Exception as error:
    print("CUDA says:", str(error).splitlines()[0])
print(tlxc.explain_trap())
try:
    stuck[8](x)
except tlxc.TlxcError as error:
    print("again:", error)
"""


@pytest.mark.gpu
def test_a_kernel_that_hangs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("waits on mbarriers need sm_90")
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    environment = {**os.environ, VARIABLE: "200000000", "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "No kernel that could tell was loaded" in done.stdout
    assert "CUDA says:" in done.stdout
    said = "waited more than 200000000 cycles at"
    assert done.stdout.count(said) == 2, done.stdout  # once by itself, once with the error of the next launch
    assert "kernel stuck on GPU 0, CTA (3, 0, 0), thread" in done.stdout
    assert "script.py:9:9 on barrier `full` (entry 2 of 4, the first being 0) for phase 0" in done.stdout
    assert "# nobody arrives" in done.stdout
