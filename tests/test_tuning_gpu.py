"""Tuning on a real GPU: times, results, arrays that are restored, captures, spills, and a configuration that hangs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tlxc
from tlxc import Config, tl, tlx
from tlxc.runtime import trial
from tlxc.runtime.kernel import CaptureError

pytestmark = pytest.mark.gpu
ROOT = Path(tlxc.__file__).parents[1]


@pytest.fixture
def torch() -> Any:
    """torch with a GPU, under its own name."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return module


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path))


def add_one(x, n, BLOCK: tl.constexpr, REPEAT: tl.constexpr = 1):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    for i in range(REPEAT):
        value = tl.sqrt(value * value + i) - tl.sqrt(value * value + i) + value
    tl.store(x + at, value + 1, mask=at < n)


def grid(arguments: dict[str, Any]) -> tuple[int]:
    return (tlxc.cdiv(arguments["n"], arguments["BLOCK"]),)


def cold_us(torch: Any, launch: Any) -> float:
    """A median by torch's events, each launch with a cold L2 cache."""
    flush, samples = torch.empty(256 << 20, dtype=torch.int8, device="cuda"), []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        start.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        samples.append(1e3 * start.elapsed_time(end))
    return statistics.median(samples)


@pytest.mark.alone
def test_the_fastest_is_found_and_times_are_true(torch: Any) -> None:
    configs = [Config({"BLOCK": 1024, "REPEAT": repeat}) for repeat in (400, 1, 40)]
    kernel = tlxc.autotune(configs, key=["n"], restore_value=["x"])(tlxc.kernel(add_one))
    x = torch.ones(1 << 24, device="cuda")
    kernel[grid](x, x.numel())
    assert (x == 2).all() and kernel.best_config.kwargs["REPEAT"] == 1
    (record,) = trial.records()
    assert record.best == 1 and torch.cuda.get_device_name() == record.facts["card"]
    for config, made in zip(configs, record.trials):
        assert made.us == pytest.approx(
            cold_us(torch, lambda: kernel.kernel[grid](x, x.numel(), **config.kwargs)), rel=0.25  # noqa: B023
        )


def test_on_a_side_stream_and_by_handle(torch: Any) -> None:
    configs = [Config({"BLOCK": block}) for block in (256, 1024)]
    kernel = tlxc.autotune(configs, restore_value=["x"])(tlxc.kernel(add_one))
    x, side = torch.zeros(1 << 20, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        kernel[grid](x, x.numel())
    side.synchronize()
    assert (x == 1).all()


def test_a_capture(torch: Any) -> None:
    configs = [Config({"BLOCK": block}) for block in (256, 1024)]
    kernel = tlxc.autotune(configs, restore_value=["x"])(tlxc.kernel(add_one))
    x = torch.zeros(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(CaptureError, match=r"add_one must be tuned for these arguments"):
        x.add_(0)
        kernel[grid](x, x.numel())
    kernel[grid](x, x.numel())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[grid](x, x.numel())
    graph.replay()
    torch.cuda.synchronize()
    assert (x == 2).all()


def test_descriptors_take_the_blocks_of_a_configuration(torch: Any) -> None:
    """Of kernels that make descriptors too, whose launches allocate a workspace inside the graph."""

    def copy(x, y, rows, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        slots = tlx.allocate_tensor_descriptor(1)
        target = tlx.make_tensor_descriptor(slots[0], y, [rows, 256], [256, 1], [BLOCK, 64])
        for j in range(0, 256, 64):
            target.store([tl.program_id(0) * BLOCK, j], x.load([tl.program_id(0) * BLOCK, j]))

    def blocks(arguments: dict[str, Any]) -> None:
        arguments["x"].block_shape = [arguments["BLOCK"], 64]

    configs = [Config({"BLOCK": block}, pre_hook=blocks) for block in (16, 64)]
    kernel = tlxc.autotune(configs, key=["rows"], reset_to_zero=["y"])(tlxc.kernel(copy))
    x = torch.randn(1024, 256, device="cuda").half()
    y = torch.ones_like(x)
    source = tlxc.TensorDescriptor.from_tensor(x, [16, 64])
    kernel[lambda arguments: (1024 // arguments["BLOCK"],)](source, y, 1024)
    assert torch.equal(x, y)
    (record,) = trial.records()
    assert all(made.us for made in record.trials)


def test_what_spills_and_what_is_too_large(torch: Any) -> None:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import matmul as example
    finally:
        sys.path.pop(0)
    m = n = k = 512
    a, b = (torch.randn(512, 512, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    configs = [
        Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_warps=8),
        Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_warps=8, maxnreg=96),
        Config({"BLOCK_M": 512, "BLOCK_N": 512, "BLOCK_K": 256}, num_warps=8),
    ]
    kernel = tlxc.autotune(configs, key=["M", "N", "K"])(example.matmul)
    kernel[lambda q: (tlxc.cdiv(m, q["BLOCK_M"]) * tlxc.cdiv(n, q["BLOCK_N"]),)](a, b, c, m, n, k, 512, 512, 512)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=1e-1)
    (record,) = trial.records()
    assert record.best == 0 and record.trials[1].reason.startswith("it spills ")
    assert record.trials[2].us is None and record.trials[2].reason


HANG = """
import sys, torch, tlxc
from tlxc import Config, tl, tlx

@tlxc.autotune([Config({"PHASE": 0}), Config({"PHASE": 1})], limit_s=2.0)
@tlxc.kernel
def wait(x, PHASE: tl.constexpr):
    bar = tlx.alloc_barriers(1)
    tlx.barrier_wait(bar[0], 1 - PHASE)  # of PHASE 1: for the phase that is now, which nobody completes
    tl.store(x, 1.0)

x = torch.zeros(1, device="cuda")
try:
    wait[1](x)
except tlxc.TlxcError as error:
    print(error)
    sys.exit(7)
print(x.item(), wait.best_config)
"""


def test_a_configuration_that_hangs(torch: Any, tmp_path: Path) -> None:
    file = tmp_path / "hang.py"
    file.write_text(HANG)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(file)]
    first = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert first.returncode == 7, first.stderr
    assert first.stdout.startswith(
        "Tuning wait, the configuration PHASE=1 took the GPU from this process: it did not end within 2 s."
    )
    second = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert (second.stdout, second.returncode) == ("1.0 PHASE=0\n", 0), second.stderr
    (record,) = trial.records()
    assert [t.fatal for t in record.trials] == [False, True] and record.best == 0
