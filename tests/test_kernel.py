"""Kernels on a fake driver: launching, specialising, compiling once, grids, capture, errors; and what import loads."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fake_driver import Array, FakeDriver, bfloat16, install, install_compiler

import tlxc
from tlxc import TensorDescriptor, tl, tlx
from tlxc.ir import types as ir
from tlxc.runtime import artifact, cuda, launcher, native
from tlxc.runtime import kernel as kernel_module
from tlxc.runtime.bind import ArgumentError
from tlxc.runtime.descriptor import DescriptorError
from tlxc.runtime.grid import GridError, extents
from tlxc.runtime.kernel import CaptureError

ROOT = Path(kernel_module.__file__).parents[2]
A = Array()
SCALE = 2


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return install(monkeypatch)


@pytest.fixture
def compile_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return install_compiler(monkeypatch)


def make(fn: Any = None, **options: Any) -> Any:
    def add(x, n, s, BLOCK: tl.constexpr = 64):  # type: ignore[no-untyped-def]
        return x + n * SCALE

    return tlxc.kernel(**options)(fn or add)


# -- launching


def test_a_launch_passes_everything(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters = make(), 3
    compiled = kernel[(2, 3, 4)](Array(address=0xABC0), -5, 1.5, num_warps=8)
    (launch,) = fake.launches
    assert (launch.grid, launch.block, launch.shared, launch.stream) == ((2, 3, 4), (256, 1, 1), 64, 0)
    assert launch.words == [0xABC0, (1 << 64) - 5, 0x3FC00000]
    assert launch.context == 0x1000 and launch.function == 0x5001
    assert fake.loads == [(b"code 1", "add", 0)]
    assert (compiled.name, compiled.target, compiled.num_warps, compiled.shared) == ("add", "sm_90", 8, 64)
    assert compiled.asm["ptx"] == "text" and compiled.registers == 16 and compiled.notes == []


def test_constants_are_not_passed(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters = make(), 2
    kernel[1](A, 1, 1.5)
    kernel[1](A, None, 1.5)
    assert [launch.words for launch in fake.launches] == [[0x10000, 0x3FC00000]] * 2
    assert [dict(c.constants)["n"] for c in compile_calls] == [1, None]


def test_specialisations_are_made_once_and_explained(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters = make(), 3
    for n in (5, 7, 9, 16, 32):
        kernel[1](A, n, 1.5)
    kernel[1](Array(address=0x10002), 16, 1.5)
    kernel[1](A, 5, 1.5, BLOCK=128)
    kernel[1](A, 5, 1.5, num_warps=2)
    kernel[1](A, 5, 1.5, maxnreg=64)
    kernel[1](A, 5, 1.5, maxnreg=64)
    kernel[1](A, 5, 1.5, maxnreg=None)
    assert [v.reason for v in kernel.variants] == [
        "first use",
        "n: i32 -> i32, multiple of 16",
        "x: ptr<f16>, 16-byte aligned -> ptr<f16>",
        "BLOCK: = 64 -> = 128",
        "num_warps: 4 -> 2",
        "maxnreg: None -> 64",
    ]
    assert len(compile_calls) == len(fake.loads) == 6 and len(fake.launches) == 11
    assert [v.maxnreg for v in kernel.variants] == [v.compiled.maxnreg for v in kernel.variants] == [None] * 5 + [64]
    assert kernel.variants[1].arguments["n"] == "i32, multiple of 16"


def test_each_device_has_its_own_copy(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters = make(), 3
    for device in (0, 1, 0, 1):
        kernel[1](Array(device=device), 5, 1.5)
    assert [launch.context for launch in fake.launches] == [0x1000, 0x1001, 0x1000, 0x1001]
    assert [launch.function for launch in fake.launches] == [0x5001, 0x5002, 0x5001, 0x5002]
    assert len(compile_calls) == 1 and fake.current == 0


def test_torch_s_stream_is_used(fake: FakeDriver, compile_calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_module, "torch_stream", lambda: lambda device: 0x77 + device)
    kernel, fake.parameters = make(), 3
    kernel[1](Array(device=1), 5, 1.5)
    assert fake.launches[0].stream == 0x78


def test_module_constants_are_read_again(
    fake: FakeDriver, compile_calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, fake.parameters = make(), 3
    for value in (2, 3, 3, 2):
        monkeypatch.setitem(globals(), "SCALE", value)
        kernel[1](A, 5, 1.5)
    assert len(compile_calls) == 2 and len(fake.launches) == 4
    assert [v.reason for v in kernel.variants] == ["first use", "a module constant or the source changed"]


def test_the_stream_of_a_launch_is_asked_whether_it_is_captured(
    fake: FakeDriver, compile_calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, fake.parameters = make(), 3
    monkeypatch.setattr(cuda, "is_capturing", lambda gpu, stream: stream == 77)
    with pytest.raises(CaptureError):
        kernel[1](A, 5, 1.5, stream=77)
    assert compile_calls == [] and fake.launches == []
    kernel[1](A, 5, 1.5, stream=78)
    kernel[1](A, 5, 1.5, stream=77)  # what is loaded may be captured
    assert [launch.stream for launch in fake.launches] == [78, 77]


def test_a_kernel_comes_from_the_disk_in_the_next_process(fake: FakeDriver, compile_calls: list[Any]) -> None:
    fake.parameters = 3
    first, second = make(), make()
    one, two = first[1](A, 5, 1.5), second[1](A, 5, 1.5)
    assert len(compile_calls) == 1
    assert two is not one and two.asm == one.asm and two.metadata == one.metadata


def test_threads_compile_once(fake: FakeDriver, compile_calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, fake.parameters = make(), 3
    fast = artifact._compile

    def slow(*args: Any) -> Any:
        time.sleep(0.02)
        return fast(*args)

    monkeypatch.setattr(artifact, "_compile", slow)
    start, failures = threading.Barrier(32), []

    def work() -> None:
        start.wait()
        try:
            kernel[1](A, 5, 1.5)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(compile_calls) == len(fake.loads) == 1 and len(fake.launches) == 32


def test_a_failed_compilation_is_tried_again(
    fake: FakeDriver, compile_calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, fake.parameters = make(), 3
    good = artifact._compile

    def bad(*args: Any) -> Any:
        raise tlxc.CompileError("no")

    monkeypatch.setattr(artifact, "_compile", bad)
    for _ in range(2):
        with pytest.raises(tlxc.CompileError):
            kernel[1](A, 5, 1.5)
    monkeypatch.setattr(artifact, "_compile", good)
    kernel[1](A, 5, 1.5)
    assert len(fake.launches) == 1


# -- grids


@pytest.mark.parametrize(
    ("grid", "expected"),
    [(5, (5, 1, 1)), ((5,), (5, 1, 1)), ([4], (4, 1, 1)), ((2, 3), (2, 3, 1)), ((1, 2, 3), (1, 2, 3)),
     ((True,), (1, 1, 1)), ((2**31 - 1, 65535, 65535), (2**31 - 1, 65535, 65535)), ((0, 7), (0, 7, 1))],
)  # fmt: skip
def test_grids(grid: Any, expected: tuple[int, int, int]) -> None:
    assert extents(grid) == expected


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        ((1, 70000), "The grid is (1, 70000), but along y it may have 0 to 65535 CTAs."),
        ((2**31,), "The grid is (2147483648,), but along x it may have 0 to 2147483647 CTAs."),
        ((-1,), "The grid is (-1,), but along x it may have 0 to 2147483647 CTAs."),
        ((1, 1, 65536), "The grid is (1, 1, 65536), but along z it may have 0 to 65535 CTAs."),
    ]
    + [
        (grid, f"The grid is {grid!r}; give one to three integers, or a function of the arguments that returns them.")
        for grid in ((), (1, 2, 3, 4), (1.0,), "4", None, 2.5)
    ],
)
def test_wrong_grids(grid: Any, text: str) -> None:
    with pytest.raises(GridError) as error:
        extents(grid)
    assert str(error.value) == text


def test_a_grid_may_be_a_function_of_all_arguments(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters = make(), 3
    seen = {}

    def grid(meta: dict[str, Any]) -> tuple[int]:
        seen.update(meta)
        return (tlxc.cdiv(meta["n"], meta["BLOCK"]),)

    kernel[grid](A, 200, s=1.5)
    assert fake.launches[0].grid == (4, 1, 1)
    assert seen == {"x": A, "n": 200, "s": 1.5, "BLOCK": 64, "num_warps": 4, "num_stages": None,
                    "maxnreg": None, "ctas_per_cga": None, "launch_pdl": False, "stream": None}  # fmt: skip


def test_an_empty_grid_launches_and_compiles_nothing(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel = make()
    for grid in (0, (0,), (4, 0), (1, 1, 0)):
        assert kernel[grid](A, 5, 1.5) is None
    assert (fake.launches, fake.loads, compile_calls) == ([], [], [])
    with pytest.raises(ArgumentError):
        kernel[0](Array(device=-1), 5, 1.5)


# -- warming up, capture, examples


def test_warmup_with_a_target_needs_no_gpu(compile_calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "driver", None)
    kernel = make()
    compiled = kernel.warmup(tl.float16, 64, 1.0, grid=(4,), target="sm_100", BLOCK=32, num_warps=1)
    assert (compiled.target, compiled.num_warps) == ("sm_100", 1)
    assert compiled.asm["cubin"] == b"code 1"
    assert kernel.warmup(tl.float16, 64, 1.0, target="sm_100", BLOCK=32, num_warps=1) is compiled
    with pytest.raises(tlxc.TlxcError, match="Unknown target 'sm_1'"):
        kernel.warmup(tl.float16, 64, 1.0, target="sm_1")
    with pytest.raises(GridError):
        kernel.warmup(tl.float16, 64, 1.0, grid=(1, 70000), target="sm_90")


def test_a_capture_needs_a_warmup(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters = make(), 3
    fake.capturing = True
    with pytest.raises(CaptureError) as error:
        kernel[1](A, 5, 1.5)
    assert str(error.value) == (
        "add must be compiled or loaded for these arguments, which is not possible while a CUDA graph is being "
        "captured; call add.warmup(...) with the same arguments before the capture."
    )
    assert (fake.loads, compile_calls) == ([], [])
    fake.capturing = False
    kernel.warmup(A, 5, 1.5)
    kernel.warmup(bfloat16_array := Array(bfloat16), 5, 1.5)
    fake.capturing = True
    kernel[1](A, 7, 2.5)
    kernel[1](bfloat16_array, 7, 2.5)
    assert len(fake.launches) == 2
    with pytest.raises(CaptureError):  # compiled, but not on this device
        kernel[1](Array(device=1), 7, 2.5)


def test_a_kernel_says_how_it_is_launched() -> None:
    kernel = make()
    with pytest.raises(ArgumentError) as error:
        kernel(A, 5, 1.5)
    assert str(error.value) == "add is a kernel: launch it with a grid, as add[grid](...)."
    assert kernel.__name__ == "add" and repr(kernel) == "<kernel add>"


def test_python_s_argument_errors_are_ours(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel = make()
    for args, kwargs, text in (
        ((A,), {}, "missing arguments `n` and `s`."),
        ((A, 5, 1.5, 2, 3), {}, "takes 4 arguments by position .x, n, s, BLOCK., but 5 were given"),
        ((A, 5, 1.5), {"k": 1}, "has no parameter `k`"),
        ((A, 5, 1.5), {"num_warps": [4]}, r"num_warps is \[4\]"),
        ((A, 5, 1.5), {"BLOCK": [4]}, "cannot be hashed"),
        ((A, 5, 1.5), {"num_warps": 5}, "num_warps is 5"),
        ((A, 5, 1.5), {"maxnreg": [64]}, r"maxnreg is \[64\]"),
        ((A, 5, 1.5), {"maxnreg": 16}, "maxnreg is 16"),
    ):
        with pytest.raises(ArgumentError, match=text):
            kernel[1](*args, **kwargs)
    with pytest.raises(TypeError, match=r"add\(\) got multiple values for argument 'x'"):
        kernel[1](A, 5, 1.5, x=A)
    assert fake.launches == []
    kernel[(1,)](A, 5, 1.5)
    with pytest.raises(ArgumentError, match="has no parameter `k`"):  # also where all else is as before
        kernel[(1,)](A, 5, 1.5, k=1)


def test_examples_are_kept_for_tools() -> None:
    kernel = make(num_warps=2)

    @kernel.example
    def small() -> Any:
        return (1,), (A, 5, 1.5)

    assert kernel.examples == [small] and small() == ((1,), (A, 5, 1.5))


def test_annotations_give_a_signature(compile_calls: list[Any]) -> None:
    def typed(x: tl.ptr(tl.float16), n: tl.int32, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def, valid-type]
        pass

    kernel = make(typed, num_warps=2)
    signature = kernel.signature(BLOCK=16)
    assert [(name, str(a.type)) for name, a in signature.arguments] == [("x", "ptr<f16>"), ("n", "i32")]
    assert (signature.constants, signature.num_warps) == ((("BLOCK", 16),), 2)
    compiled = [kernel.compile("sm_100", BLOCK=16), kernel.compile("sm_100", num_warps=8, BLOCK=16)]
    assert [(c.target, c.num_warps) for c in compiled] == [("sm_100", 2), ("sm_100", 8)]
    assert compile_calls[0] == signature


def test_maxnreg_of_a_kernel_and_of_its_uses(fake: FakeDriver, compile_calls: list[Any]) -> None:
    def typed(x: tl.ptr(tl.float16), n: tl.int32):  # type: ignore[no-untyped-def, valid-type]
        pass

    kernel, fake.parameters = make(typed, maxnreg=96), 2
    for given, limit in (({}, 96), ({"maxnreg": 40}, 40), ({"maxnreg": None}, None)):
        found = (
            kernel.signature(**given).maxnreg,
            kernel.compile("sm_90", **given).maxnreg,
            kernel.warmup(tl.float16, 5, target="sm_90", **given).maxnreg,
            kernel[1](A, 5, **given).maxnreg,
        )
        assert found == (limit,) * 4
    with pytest.raises(ArgumentError, match="maxnreg is 'all'; it may be an integer from 24 to 255"):
        make(maxnreg="all")[1](A, 5, 1.5)


# -- the native launcher


# -- clusters


def test_clusters_of_a_kernel_and_of_its_uses(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters = make(ctas_per_cga=(2, 1, 1)), 3
    compiled = kernel[4, 3](A, 5, 1.5)
    assert compiled.cluster == (2, 1, 1)
    for cluster in ((2,), (2, 1), (4,), None):
        kernel[4, 3](A, 5, 1.5, ctas_per_cga=cluster)
    assert [c.cluster for c in compile_calls] == [(2, 1, 1), (4, 1, 1), (1, 1, 1)]
    assert [v.reason for v in kernel.variants[1:]] == ["ctas_per_cga: (2, 1, 1) -> (4, 1, 1)",
                                                       "ctas_per_cga: (2, 1, 1) -> (1, 1, 1)"]  # fmt: skip
    assert [v.cluster for v in kernel.variants] == [(2, 1, 1), (4, 1, 1), (1, 1, 1)]
    assert len(fake.launches) == 5


def test_a_grid_is_made_of_whole_clusters(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters = make(ctas_per_cga=(2, 2)), 3
    text = (
        "The grid is (4, 3, 1), but along y it must be a multiple of the 2 CTAs of a cluster (ctas_per_cga=(2, 2, 1))."
    )
    for already in (False, True):  # before and after the first launch
        with pytest.raises(GridError) as error:
            kernel[4, 3](A, 5, 1.5)
        assert str(error.value) == text and bool(fake.launches) == already
        kernel[4, 2](A, 5, 1.5)
    assert kernel[0, 3](A, 5, 1.5) is None
    assert len(compile_calls) == 1


def test_the_signature_of_a_cluster() -> None:
    def nothing(n: tl.int32):  # type: ignore[no-untyped-def, valid-type]
        pass

    kernel = make(nothing, ctas_per_cga=(2,))
    found = [kernel.signature(**given).cluster for given in ({}, {"ctas_per_cga": (1, 4)}, {"ctas_per_cga": None})]
    assert found == [(2, 1, 1), (1, 4, 1), (1, 1, 1)]


# -- descriptors


def test_descriptors_are_encoded_at_launch(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters = make(), 3
    x = TensorDescriptor(Array(address=0xABC0), [100, 256], [512, 1], [8, 64])
    kernel[1](x, 5, 1.5)
    (encoded,) = fake.maps
    assert encoded == {
        "type": 6, "rank": 2, "address": 0xABC0, "shape": [256, 100], "strides": [1024, 0], "box": [64, 8],
        "steps": [1, 1], "interleave": 0, "swizzle": 3, "l2": 3, "fill": 0,
    }  # fmt: skip
    # The fake's map starts with the address that it was encoded of; it is passed by value.
    assert fake.launches[0].words == [0xABC0, 5, 0x3FC00000]
    kernel[1](x, 7, 1.5)
    assert len(fake.maps) == 1 and len(fake.launches) == 2  # nothing changed, so nothing is encoded again
    x.base = Array(address=0xDEF0)
    x.padding = "nan"
    kernel[1](x, 7, 1.5)
    assert (fake.launches[2].words[0], fake.maps[1]["fill"]) == (0xDEF0, 1)
    assert len(compile_calls) == 1


def test_the_block_shape_may_change_between_launches(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters = make(), 3
    x = TensorDescriptor.from_tensor(Array(shape=(64, 64)), [8, 64])
    for block in ([8, 64], [16, 64], (8, 64), [8, 64]):
        x.block_shape = block
        kernel[1](x, 5, 1.5)
    x.block_shape[0] = 16
    kernel[1](x, 5, 1.5)
    assert [v.reason for v in kernel.variants] == ["first use", "x: desc<8x64xf16> -> desc<16x64xf16>"]
    assert [m["box"] for m in fake.maps] == [[64, 8], [64, 16]] and len(fake.launches) == 5
    x.strides = [60, 1]
    with pytest.raises(DescriptorError, match="a stride of 60 elements of tl.float16, 120 bytes; TMA takes"):
        kernel[1](x, 5, 1.5)


def test_a_store_does_not_write_beyond_its_rows(fake: FakeDriver, compile_calls: list[Any]) -> None:
    """A store writes the last chunk of a row whole; loads stop at any element."""
    x = TensorDescriptor(Array(), [100, 250], [256, 1], [8, 64])
    x.map_for((8, 64), 128, False, fake.device(0))
    with pytest.raises(DescriptorError) as caught:
        x.map_for((8, 64), 128, True, fake.device(0))
    assert str(caught.value) == (
        "A kernel stores by a TensorDescriptor of shape (100, 250) of tl.float16, whose rows are 500 bytes; TMA would "
        "write beyond their end, to a multiple of 16 bytes. Make the last extent a multiple of 8, or store with "
        "tl.store."
    )


def test_descriptors_beside_constants(fake: FakeDriver, compile_calls: list[Any]) -> None:
    def copy(n, x, s, y, BLOCK: tl.constexpr = 64):  # type: ignore[no-untyped-def]
        pass

    kernel, fake.parameters = make(copy), 3
    x, y = (TensorDescriptor.from_tensor(Array(address=a, shape=(8, 64)), [8, 64]) for a in (0x100, 0x200))
    kernel[1](1, x, 2.0, y)
    assert fake.launches[0].words == [0x100, 0x40000000, 0x200]


# -- workspaces
def test_every_launch_has_a_workspace_of_its_own(
    fake: FakeDriver, compile_calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for all CTAs, allocated before and freed after the launch in its stream, and passed last."""
    compile_ = artifact._compile

    def with_workspace(*args: Any) -> Any:
        entry = compile_(*args)
        entry.metadata["workspace"] = 256
        return entry

    monkeypatch.setattr(artifact, "_compile", with_workspace)
    kernel, fake.parameters = make(), 4
    for grid in ((3, 2), (1,)):
        kernel[grid](Array(address=0xABC0), 5, 1.5)
    first, second = 0x701000, 0x703000
    assert fake.memory == [("alloc", 1536, 0), ("free", first, 0), ("alloc", 256, 0), ("free", second, 0)]
    assert [launch.words for launch in fake.launches] == [[0xABC0, 5, 0x3FC00000, at] for at in (first, second)]
    assert kernel[(0,)](Array(), 5, 1.5) is None and len(fake.memory) == 4
    fake.status = 719
    with pytest.raises(cuda.LaunchError):
        kernel[1](Array(), 5, 1.5)
    assert fake.memory[4:] == [("alloc", 256, 0), ("free", 0x705000, 0)]  # a refused launch leaves nothing behind


def test_warmup_with_descriptors(compile_calls: list[Any]) -> None:
    torch = pytest.importorskip("torch")
    kernel = make()
    for base in (tl.float16, torch.float16, torch.empty(64, 64, dtype=torch.float16),
                 torch.empty(64, 64, dtype=torch.float16, device="meta")):  # fmt: skip
        kernel.warmup(TensorDescriptor(base, [64, 64], [64, 1], [8, 64]), 5, 1.5, target="sm_90")
    kernel.warmup(tlx.tensor_descriptor_type(tl.float16, (8, 64)), 5, 1.5, target="sm_90")
    assert len(compile_calls) == 1
    assert dict(compile_calls[0].arguments)["x"].type == ir.Descriptor((8, 64), ir.float16)


def test_a_refused_tensor_map_is_explained(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters, fake.status = make(), 3, 719
    with pytest.raises(cuda.LaunchError) as error:
        kernel[1](TensorDescriptor.from_tensor(Array(shape=(8, 64)), [8, 64]), 5, 1.5)
    assert str(error.value).startswith(
        "Encoding a tensor map of shape (8, 64), strides (64, 1), tl.float16 in boxes of (8, 64) with a swizzle of 128 "
        "bytes failed with CUDA_ERROR_LAUNCH_FAILED: "
    )


# -- the last step


def ready() -> bytes:
    """%Kernel of a launch of function 1 in context 0."""
    return launcher.Ready(cuda.Function(1, 1, cuda.Device(0, "fake", (9, 0), 0), 16, 0), 32, 0, b"").kernel


def test_the_launcher_reports_python_errors(fake: FakeDriver) -> None:
    launch = native.functions().function("launch", launcher.plan_of(ready(), b"if"))
    fake.parameters = 2
    assert launch((1,), 0, -1, -1.0) == 0
    assert fake.launches[0].words == [(1 << 64) - 1, 0xBF800000]
    for values in (("x", 1.0), (1, "x"), (1,), (1, 2.0, 3)):
        with pytest.raises(TypeError):
            launch((1,), 0, *values)
    with pytest.raises(TypeError):
        launch((1,), None, 1, 1.0)
    assert len(fake.launches) == 1


def test_the_launcher_looks_at_the_grid(fake: FakeDriver) -> None:
    launch = native.functions().function("launch", launcher.plan_of(ready(), b""))
    good = [((2**31 - 1, 65535, 65535), (2**31 - 1, 65535, 65535)), ((7,), (7, 1, 1)), ((2, True), (2, 1, 1))]
    for grid, _ in good:
        assert launch(grid, 0) == 0
    assert [found.grid for found in fake.launches] == [sizes for _, sizes in good]
    for grid in (
        (),
        (0,),
        (1, 0),
        (-1,),
        (2**31,),
        (2**64 + 1,),
        (1, 65536),
        (1, 1, 1, 1),
        (1.0,),
        ("1",),
        [1],
        1,
        None,
    ):
        assert launch(grid, 0) == launcher.UNCLEAR
    assert len(fake.launches) == len(good)


def test_a_refused_launch_is_explained(fake: FakeDriver, compile_calls: list[Any]) -> None:
    kernel, fake.parameters, fake.status = make(), 3, 719
    with pytest.raises(cuda.LaunchError) as error:
        kernel[1](A, 5, 1.5)
    assert str(error.value) == (
        "Launching add failed with CUDA_ERROR_LAUNCH_FAILED: an earlier kernel failed, and this process can use the "
        "GPU no more."
    )
    assert error.value.code == "CUDA_ERROR_LAUNCH_FAILED"


# -- import and a machine without a GPU


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_next_to_nothing() -> None:
    heavy = "{'numpy', 'torch', 'llvmlite', 'cuda', 'ml_dtypes', 'click'}"
    loaded = f"sorted({{m.partition('.')[0] for m in sys.modules}} & {heavy})"
    assert run(f"import sys, tlxc; print({loaded})") == "[]"
    assert run(f"import sys; from tlxc import tl, tlx, kernel; print({loaded})") == "[]"
    assert run("import tlxc; print(tlxc.cdiv(7, 2), tlxc.next_power_of_2(5), tlxc.__version__)").startswith("4 8 ")
    assert set(tlxc.__all__) <= set(dir(tlxc))
    # What only tuning needs, decorating a kernel does not load either.
    assert run("import sys, tlxc.runtime.kernel; print('tlxc.runtime.pool' in sys.modules)") == "False"
    with pytest.raises(AttributeError, match="module 'tlxc' has no attribute 'nothing'"):
        tlxc.nothing  # noqa: B018


def test_import_is_fast() -> None:
    code = "import time; t = time.process_time(); import tlxc; {}; print(time.process_time() - t)"
    assert min(float(run(code.format("pass"))) for _ in range(3)) < 0.05
    assert min(float(run(code.format("tlxc.tl, tlxc.tlx, tlxc.kernel"))) for _ in range(3)) < 0.15


@pytest.mark.skipif(sys.platform != "linux", reason="the message names Linux's library")
def test_no_driver(tmp_path: Path) -> None:
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a driver")
    code = tmp_path / "k.py"
    code.write_text(
        "import sys, tlxc\nsys.modules['torch'] = None\n"
        "@tlxc.kernel\ndef k(n):\n    pass\n"
        "try:\n    k[1](5)\nexcept tlxc.TlxcError as e:\n    print(e)\n"
    )
    done = subprocess.run([sys.executable, str(code)], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert done.stdout.strip() == (
        "No CUDA driver was found (libcuda.so.1), so nothing can be launched here. Compiling needs no driver: "
        "kernel.warmup(..., target='sm_90') and `tlxc compile` work without one."
    )
