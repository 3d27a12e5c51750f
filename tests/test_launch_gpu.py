"""Launching on a real GPU: torch tensors, streams, graphs, odd views, several devices, other arrays."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tlxc
from tlxc import tl, tlx

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[1]
FACTOR = 3


@pytest.fixture
def torch() -> Any:
    """torch with a GPU, under its own name."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return module


def fresh(**options: Any) -> Any:
    """A kernel that no test has launched yet."""

    def combine(x, y, out, n, s, BLOCK: tl.constexpr = 256):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        value = tl.load(x + at, mask=inside) * s + tl.load(y + at, mask=inside) * FACTOR
        tl.store(out + at, value, mask=inside)

    return tlxc.kernel(**options)(combine)


def run(kernel: Any, x: Any, y: Any, s: float = 2.0, **options: Any) -> Any:
    out = x.new_full((x.numel(),), float("nan"))
    kernel[(tlxc.cdiv(x.numel(), 256),)](x, y, out, x.numel(), s, **options)
    return out


def inputs(torch: Any, n: int, device: str = "cuda") -> tuple[Any, Any]:
    torch.manual_seed(n)
    return torch.randn(n, device=device), torch.randn(n, device=device)


def check(torch: Any, out: Any, x: Any, y: Any, s: float = 2.0) -> None:
    torch.testing.assert_close(out, x * s + y * FACTOR)


@pytest.mark.parametrize("n", [1, 255, 256, 4099, 16384])
@pytest.mark.parametrize("num_warps", [1, 2, 4, 8])
def test_a_launch(torch: Any, n: int, num_warps: int) -> None:
    x, y = inputs(torch, n)
    check(torch, run(fresh(), x, y, num_warps=num_warps), x, y)


def test_the_driver_and_the_assembler_agree_on_registers(torch: Any) -> None:
    kernel = fresh()
    x, y = inputs(torch, 1000)
    out = torch.empty_like(x)
    compiled = kernel[(4,)](x, y, out, 1000, 2.0)
    gpu = tlxc.runtime.cuda.device(x.device.index)
    function = compiled.load(gpu)
    assert function.registers == compiled.registers
    assert (function.local_bytes, compiled.spill_bytes) == (0, 0)
    assert compiled.target == tlxc.runtime.cuda.target_of(gpu).name


def test_misaligned_views(torch: Any) -> None:
    kernel = fresh()
    x, y = inputs(torch, 4100)
    for a, b in ((0, 0), (1, 0), (0, 3), (1, 1), (4, 8)):
        n = 4096 - 8
        check(torch, run(kernel, x[a : a + n], y[b : b + n]), x[a : a + n], y[b : b + n])
    assert len(kernel.variants) == 4  # (4, 8) is aligned again


def test_integers_floats_bools_none(torch: Any) -> None:
    def scalars(out, a, b, c, flag, nothing, f):  # type: ignore[no-untyped-def]
        if flag:
            tl.store(out, a.to(tl.float32) if a is not None else 0.0)
        tl.store(out + 1, f)
        if nothing is None:
            tl.store(out + 2, 1.0)
        tl.store(out + 3, (b + c).to(tl.float32))

    kernel = tlxc.kernel(do_not_specialize=["a", "b", "c"])(scalars)
    for a, b, c, flag, f in ((1, 2, 3, True, 0.1), (-7, 2**31, 5, False, -1.0), (16, 1, 2**40, True, 3.0)):
        out = torch.full((4,), -99.0, device="cuda")
        kernel[1](out, a, b, c, flag, None, f)
        expected = [float(a) if flag else -99.0, float(f), 1.0, float(b + c)]
        torch.testing.assert_close(out.cpu(), torch.tensor(expected))


# -- descriptors


def copier(**options: Any) -> Any:
    """A fresh kernel that copies a 2-D array block by block through shared memory."""

    def copy(x, y, N):  # type: ignore[no-untyped-def]
        buf = tlx.local_alloc(x.block_shape, tlx.dtype_of(x), 1)
        bar = tlx.alloc_barriers(1)
        row = tl.program_id(0) * x.block_shape[0]
        for i in range(tl.cdiv(N, x.block_shape[1])):
            tlx.barrier_expect_bytes(bar[0], x.block_shape[0] * x.block_shape[1] * tlx.size_of(tlx.dtype_of(x)))
            tlx.async_descriptor_load(x, buf[0], [row, i * x.block_shape[1]], bar[0])
            tlx.barrier_wait(bar[0], i & 1)
            tlx.async_descriptor_store(y, buf[0], [row, i * x.block_shape[1]])
            tlx.async_descriptor_store_wait(0)

    return tlxc.kernel(**options)(copy)


def copy_blocks(kernel: Any, x: Any, y: Any, block: Any, **options: Any) -> None:
    source, target = (tlxc.TensorDescriptor.from_tensor(t, list(block)) for t in (x, y))
    kernel[(tlxc.cdiv(x.shape[0], block[0]),)](source, target, x.shape[1], **options)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("block", [(16, 16), (8, 32), (16, 64), (32, 128), (8, 512), (64, 96)])
def test_descriptors(torch: Any, dtype: str, block: tuple[int, int]) -> None:
    kernel, kind = copier(), getattr(torch, dtype)
    for shape in ((64, 512), (33, 80), (1, 16)):
        x = torch.randint(0, 100, shape, device="cuda").to(kind)
        y = torch.zeros_like(x)
        copy_blocks(kernel, x, y, block)
        assert torch.equal(x, y)
    assert len(kernel.variants) == 1


def test_descriptors_of_views_and_changed_fields(torch: Any) -> None:
    kernel = copier()
    x, y = torch.randn(2, 96, 256, device="cuda").half()
    source = tlxc.TensorDescriptor.from_tensor(x[8:, 64:192], [16, 64])
    target = tlxc.TensorDescriptor.from_tensor(y[8:, 64:192], [16, 64])
    expected = y.clone()
    expected[8:, 64:192] = x[8:, 64:192]
    kernel[(6,)](source, target, 128)
    assert torch.equal(y, expected)
    for block in ([32, 32], [16, 128]):  # as the hooks of a tuner do
        source.block_shape = target.block_shape = block
        target.base = torch.zeros_like(y)[8:, 64:192]
        kernel[(tlxc.cdiv(88, block[0]),)](source, target, 128)
        assert torch.equal(target.base, x[8:, 64:192])
    assert len(kernel.variants) == 3


def test_descriptors_pad_with_nan(torch: Any) -> None:
    def edge(x, out):  # type: ignore[no-untyped-def]
        buf = tlx.local_alloc((16, 16), tl.float32, 1)
        bar = tlx.alloc_barriers(1)
        tlx.barrier_expect_bytes(bar[0], 1024)
        tlx.async_descriptor_load(x, buf[0], [-8, 8], bar[0])
        tlx.barrier_wait(bar[0], 0)
        at = tl.arange(0, 16)
        tl.store(out + at[:, None] * 16 + at[None, :], tlx.local_load(buf[0]))

    kernel = tlxc.kernel(edge)
    x = torch.randn(16, 16, device="cuda")
    for padding, fill in (("zero", 0.0), ("nan", float("nan"))):
        expected = torch.full((16, 16), fill, device="cuda")
        expected[8:, :8] = x[:8, 8:]
        out = torch.empty_like(expected)
        kernel[1](tlxc.TensorDescriptor.from_tensor(x, [16, 16], padding), out)
        torch.testing.assert_close(out, expected, equal_nan=True, rtol=0, atol=0)
    assert len(kernel.variants) == 1


def test_a_graph_keeps_the_descriptor_of_its_capture(torch: Any) -> None:
    kernel = copier()
    x, y, z = torch.randn(3, 64, 64, device="cuda").half()
    source = tlxc.TensorDescriptor.from_tensor(x, [16, 64])
    target = tlxc.TensorDescriptor.from_tensor(y, [16, 64])
    kernel.warmup(source, target, 64)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[(4,)](source, target, 64)
    target.base = z
    before = z.clone()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, y) and torch.equal(z, before)


def maker() -> Any:
    """A kernel that makes its own descriptors, in a workspace."""

    def copy(x, out, rows, columns):  # type: ignore[no-untyped-def]
        slots = tlx.allocate_tensor_descriptor(2)
        source = tlx.make_tensor_descriptor(slots[0], x, [rows, columns], [columns, 1], [16, 64])
        target = tlx.make_tensor_descriptor(slots[1], out, [rows, columns], [columns, 1], [16, 64])
        for j in range(0, columns, 64):
            target.store([tl.program_id(0) * 16, j], source.load([tl.program_id(0) * 16, j]))

    return tlxc.kernel(copy)


def test_workspaces_of_launches_in_flight(torch: Any) -> None:
    """Launches on two streams at once, of different tensors, never meet in a slot."""
    kernel = maker()
    x = torch.randn(16, 1024, 256, device="cuda").half()
    out = torch.zeros_like(x)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    for i in range(16):
        with torch.cuda.stream(streams[i % 2]):
            kernel[(64,)](x[i], out[i], 1024, 256)
    torch.cuda.synchronize()
    assert torch.equal(x, out)


def test_a_graph_allocates_its_workspace(torch: Any) -> None:
    kernel = maker()
    x = torch.randn(1024, 256, device="cuda").half()
    out = torch.zeros_like(x)
    kernel.warmup(x, out, 1024, 256)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[(64,)](x, out, 1024, 256)
    for _ in range(3):
        x.neg_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(x, out)


@pytest.mark.parametrize("cluster", [(2, 1, 1), (1, 2, 1), (4, 2, 1), (16, 1, 1)])
def test_clusters(torch: Any, cluster: tuple[int, int, int]) -> None:
    def ranks(out):  # type: ignore[no-untyped-def]
        at = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        tl.store(out + at, tlx.cluster_cta_rank())
        tl.store(out + tl.num_programs(0) * tl.num_programs(1) + at, tlx.cluster_size_1d())

    x, y, _ = cluster
    grid = (2 * x, 3 * y)
    out = torch.full((2, grid[1], grid[0]), -1, device="cuda", dtype=torch.int32)
    compiled = tlxc.kernel(ctas_per_cga=cluster)(ranks)[grid](out)
    assert compiled.cluster == cluster
    i, j = torch.meshgrid(torch.arange(grid[1]), torch.arange(grid[0]), indexing="ij")
    assert torch.equal(out[0].cpu(), (i % y * x + j % x).int())
    assert (out[1] == x * y).all()


def test_a_side_stream(torch: Any) -> None:
    kernel = fresh()
    x, y = inputs(torch, 1 << 20)
    run(kernel, x, y)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)  # the kernel runs after it only if it is in the same stream
        x.mul_(2)
        out = run(kernel, x, y)
    side.synchronize()
    check(torch, out, x, y)


def test_graph_capture(torch: Any) -> None:
    kernel = fresh()
    x, y = inputs(torch, 5000)
    out = torch.zeros_like(x)
    arguments = (x, y, out, 5000, 2.0)
    kernel.warmup(*arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[(20,)](*arguments)
    torch.cuda.synchronize()
    assert out.abs().max() == 0
    for _ in range(2):
        x.add_(1)
        graph.replay()
        torch.cuda.synchronize()
        check(torch, out, x, y)


def test_a_cold_kernel_is_refused_during_capture(torch: Any) -> None:
    kernel = fresh()
    x, y = inputs(torch, 512)
    out = torch.zeros_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.add_(1)
        with pytest.raises(tlxc.TlxcError, match="combine.warmup"):
            kernel[(2,)](x, y, out, 512, 2.0)
    graph.replay()  # the refusal did not spoil the capture
    torch.cuda.synchronize()
    assert out.min() == out.max() == 1
    check(torch, run(kernel, x, y), x, y)


def test_an_empty_grid(torch: Any) -> None:
    kernel = fresh()
    x, y = inputs(torch, 16)
    assert kernel[(0,)](x, y, x, 0, 2.0) is None
    assert kernel.variants == ()


def test_a_cpu_tensor_among_others(torch: Any) -> None:
    x, y = inputs(torch, 16)
    with pytest.raises(tlxc.TlxcError, match="argument `y` is a CPU tensor of torch.float32"):
        run(fresh(), x, y.cpu())


def test_a_module_constant_that_changes(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = fresh()
    x, y = inputs(torch, 300)
    for value in (3, 5):
        monkeypatch.setitem(globals(), "FACTOR", value)
        check(torch, run(kernel, x, y), x, y)


def test_a_thread_without_a_context(torch: Any) -> None:
    kernel = fresh()
    x, y = inputs(torch, 300)
    outs = [x.new_empty(300) for _ in range(8)]
    threads = [threading.Thread(target=kernel[2], args=(x, y, out, 300, 2.0)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kernel.variants) == 1
    for out in outs:
        check(torch, out, x, y)


def test_arrays_that_are_not_torch_s(torch: Any) -> None:
    x, y = inputs(torch, 300)
    out = torch.empty_like(x)
    arrays = [SimpleNamespace(__cuda_array_interface__=t.__cuda_array_interface__) for t in (x, y, out)]
    torch.cuda.synchronize()
    fresh()[2](*arrays, 300, 2.0)
    check(torch, out, x, y)


@pytest.mark.parametrize("through_bindings", [False, True])
def test_a_dependent_launch_sees_what_the_grid_before_wrote(
    torch: Any, monkeypatch: pytest.MonkeyPatch, through_bindings: bool
) -> None:
    """Each grid lets the next one start first and writes late; so without `gdc_wait` the sum would come short."""
    from tlxc.runtime import native

    def step(x, n, BLOCK: tl.constexpr = 256):  # type: ignore[no-untyped-def]
        tlx.gdc_launch_dependents()
        tlx.gdc_wait()
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        late = tl.load(x + at).to(tl.float32)
        for _ in range(n):
            late = tl.sqrt(late * late)
        tl.store(x + at, late.to(tl.int32) + 1)

    if through_bindings:
        monkeypatch.setattr(native, "available", lambda: False)
    kernel, x = tlxc.kernel(step), torch.zeros(64 * 256, dtype=torch.int32, device="cuda")
    for _ in range(20):
        kernel[(64,)](x, 3000, launch_pdl=True)
    kernel.prepare(x, 3000, grid=64, launch_pdl=True)()
    assert x.eq(21).all()


def test_raw_streams(torch: Any) -> None:
    kernel, side = fresh(), torch.cuda.Stream()
    x, y = inputs(torch, 300)
    torch.cuda.synchronize()
    for stream in (side, side.cuda_stream):
        out = torch.zeros_like(x)
        torch.cuda.synchronize()
        torch.cuda._sleep(int(1e7))  # the default stream is late, the side stream does not wait for it
        kernel[2](x, y, out, 300, 2.0, stream=stream)
        side.synchronize()
        check(torch, out, x, y)
    prepared = kernel.prepare(x, y, out.zero_(), 300, 2.0, grid=2, stream=side)
    torch.cuda.synchronize()
    prepared()
    side.synchronize()
    check(torch, out, x, y)


def test_tensors_where_descriptors_are_declared(torch: Any) -> None:
    def copy(  # type: ignore[no-untyped-def]
        x: tlx.tensor_descriptor_type(tl.float16, (16, 64)), y: tlx.tensor_descriptor_type(tl.float16, (16, 64))
    ):
        buf = tlx.local_alloc((16, 64), tl.float16, 1)
        bar = tlx.alloc_barriers(1)
        tlx.barrier_expect_bytes(bar[0], 2048)
        tlx.async_descriptor_load(x, buf[0], [tl.program_id(0) * 16, 0], bar[0])
        tlx.barrier_wait(bar[0], 0)
        tlx.async_descriptor_store(y, buf[0], [tl.program_id(0) * 16, 0])
        tlx.async_descriptor_store_wait(0)

    kernel = tlxc.kernel(copy)
    for rows in (32, 64, 16, 64):
        x = torch.randn(rows, 64, device="cuda", dtype=torch.float16)
        y = torch.zeros_like(x)
        kernel[(rows // 16,)](x, y)
        assert torch.equal(x, y)
    with pytest.raises(tlxc.TlxcError, match="has a stride of 1 elements of tl.float16"):
        kernel[(4,)](x.T, y)


def test_launching_through_the_bindings(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tlxc.runtime import native

    monkeypatch.setattr(native, "available", lambda: False)
    x, y = inputs(torch, 300)
    check(torch, run(fresh(), x, y, s=-0.5), x, y, s=-0.5)


def test_two_devices(torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    kernel = fresh()
    pairs = [inputs(torch, 700, f"cuda:{i}") for i in (0, 1)]
    for i in (0, 1, 0):  # torch's current device stays 0
        check(torch, run(kernel, *pairs[i]), *pairs[i])
    assert torch.cuda.current_device() == 0
    with pytest.raises(tlxc.TlxcError, match="`x` on cuda:0 and `y` on cuda:1; move them to one device"):
        run(kernel, pairs[0][0], pairs[1][1])


BAD_ACCESS = """
import torch, tlxc
from tlxc import tl
@tlxc.kernel
def wild(x, n):
    tl.store(x + n, 1.0)
x = torch.zeros(4, device="cuda")
wild[1](x, 2**40)
try:
    torch.cuda.synchronize()
except Exception:
    pass
try:
    wild[1](x, 2**40)
except tlxc.TlxcError as error:
    print(error)
"""
IMPORT_THEN_FORK = """
import os, tlxc
from tlxc import tl
@tlxc.kernel
def fill(x):
    tl.store(x, 7.0)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    import torch
    x = torch.zeros(1, device="cuda")
    fill[1](x)
    assert x.item() == 7
"""


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(text)
    command = [sys.executable, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=_environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}


def test_an_earlier_fault_is_explained(torch: Any, tmp_path: Path) -> None:
    text = script(tmp_path, BAD_ACCESS)
    assert "an earlier kernel accessed memory out of bounds, and this process can use the GPU no more" in text


def test_a_forked_worker_may_launch(torch: Any, tmp_path: Path) -> None:
    script(tmp_path, IMPORT_THEN_FORK)
