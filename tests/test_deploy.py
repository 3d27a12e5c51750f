"""The C header: programs that include it are compiled, linked with a stand-in of the driver's library, and run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from c_programs import STAND_IN, build_and_run, build_driver, cc, cuda_headers, needs_cc
from click.testing import CliRunner, Result

import tlxc
from tlxc import tl
from tlxc.cli import main
from tlxc.deploy.facts import map_type
from tlxc.deploy.grid import GridTextError, parse_grid
from tlxc.deploy.signature import SignatureError, parse_signature
from tlxc.frontend.signature import Argument
from tlxc.ir import types as ir
from tlxc.runtime import descriptor
from tlxc.runtime.bind import ArgumentError

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "deploy" / "hopper_gemm_ws.c"
HEADERS = {"stand-in": STAND_IN, "CUDA": cuda_headers()}


def tlxc_compile(*command: str) -> Result:
    result = CliRunner().invoke(main, ["compile", *command], prog_name="tlxc")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libcuda.so that needs no GPU."""
    folder = tmp_path_factory.mktemp("driver")
    build_driver(folder)
    return folder


# -- the example -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of gemm.h."""
    folder = tmp_path_factory.mktemp("gemm")
    example = ROOT / "examples" / "hopper_gemm_ws.py"
    assert tlxc_compile(f"{example}:gemm", "-t", "sm_90", "--emit", "header", "-o", str(folder)).exit_code == 0
    return folder


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60


@needs_cc
@pytest.mark.parametrize("headers", HEADERS)
def test_the_example_computes_from_what_it_passes(headers: str, gemm: Path, driver: Path) -> None:
    """The stand-in multiplies the arrays of the maps that it is passed, so addresses, extents and order are right."""
    folder = HEADERS[headers]
    if folder is None:
        pytest.skip("no cuda.h is installed")
    status, said = build_and_run(EXAMPLE, gemm, driver, folder)
    assert (status, said.splitlines()[-1]) == (0, "1000 x 776 x 520: 0 of 776000 elements are wrong")
    common = "interleave 0 swizzle 3 l2 3 fill 0"
    assert said.splitlines()[:-1] == [
        f"attribute 8 = {re.search('gemm_sm_90_cubin, 384, ([0-9]+),', (gemm / 'gemm.h').read_text())[1]}",  # type: ignore[index]
        f"map type 6 shape 520 1000 strides 1040 box 64/1 64/1 {common}",
        f"map type 6 shape 776 520 strides 1552 box 64/1 64/1 {common}",
        f"map type 6 shape 776 1000 strides 1552 box 64/1 64/1 {common}",
        f"launch gemm grid 12 1 1 block 384 1 1 shared {said.split()[3]} stream 0",
    ]


@needs_cc
@pytest.mark.parametrize("headers", HEADERS)
def test_a_dependent_launch(headers: str, gemm: Path, driver: Path, tmp_path: Path) -> None:
    """The kernel waits for the grid ahead of it, so a program may define that launches overlap with that."""
    folder = HEADERS[headers]
    if folder is None:
        pytest.skip("no cuda.h is installed")
    program = tmp_path / "dependent.c"
    program.write_text("#define GEMM_LAUNCH_PDL 1\n" + EXAMPLE.read_text())
    status, said = build_and_run(program, gemm, driver, folder)
    assert status == 0 and said.splitlines()[-2].startswith("dependent launch gemm grid 12 1 1 block 384 1 1 ")


@needs_cc
def test_another_gpu_is_refused(gemm: Path, driver: Path) -> None:
    status, said = build_and_run(EXAMPLE, gemm, driver, STAND_IN_MAJOR="10")
    assert (status, said) == (1, "gemm_load(&kernel): CUDA error 209\n")


@needs_cc
@pytest.mark.parametrize("before", ["", "#define GEMM_LAUNCH_PDL 1\n"])
def test_the_header_is_c99_and_cpp11(before: str, gemm: Path) -> None:
    (gemm / "only.c").write_text(before + '#include "gemm.h"\n')
    cc("-c", "-I", STAND_IN, "-I", gemm, gemm / "only.c", "-o", gemm / "only.o", standard=("-std=c99", "-pedantic"))
    if shutil.which("g++") or shutil.which("clang++"):
        arguments = ["-c", "-I", STAND_IN, "-I", gemm, "-x", "c++", gemm / "only.c", "-o", gemm / "only.o"]
        cc(*arguments, standard=("-std=c++11",))


@needs_cc
@pytest.mark.gpu
def test_the_example_on_a_gpu(gemm: Path, tmp_path: Path) -> None:
    """Compiled with the header alone and linked with the driver's own library."""
    folder = cuda_headers() or STAND_IN
    program = tmp_path / "hopper_gemm_ws"
    library = "-l:libcuda.so.1"
    cc("-I", folder, "-I", gemm, EXAMPLE, "-o", program, *_driver_folder(), library)
    done = subprocess.run([program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "1000 x 776 x 520: 0 of 776000 elements are wrong\n")


def _driver_folder() -> list[str]:
    """Options that find the library that this process has loaded."""
    paths = re.findall(r"(/\S+)/libcuda\.so", Path("/proc/self/maps").read_text())
    return [f"-L{paths[0]}"] if paths else []


# -- parameters ------------------------------------------------------------------------------------------------------

KINDS = """\
import tlxc
from tlxc import tl, tlx


@tlxc.kernel(num_warps=2, ctas_per_cga=(2, 1, 1))
def kinds(x: tl.ptr(tl.float32, align=16), kernel: tl.ptr(tl.int8), n: tl.divisible(tl.int32, 16), flag: tl.int1,
          small: tl.int8, wide: tl.uint64, s: tl.float32, rows, BLOCK: tl.constexpr = 64, SIGN: tl.constexpr = -1,
          SLOPE: tl.constexpr = 0.5):
    tile = tlx.make_tensor_descriptor(None, x, [n, 64], [64, 1], [8, 64])
    if flag:
        tile.store([0, 0], tile.load([0, 0]) * s * SLOPE)
    tl.store(kernel, small + (wide + rows).to(tl.int8) + SIGN)
"""
PROGRAM = """\
#include "many.h"
int main(void)
{
    many_kernel kernel;
    CUresult status = many_load(&kernel%s);
    if (!status)
        status = many_launch(&kernel, %s, 3, 1, (CUstream)7, 0x1000 + %s, 0x2001, %s, 5, -2, 1ull << 40, 1.5f, 24);
    printf("status %%d, %%d %%d %%g\\n", (int)status, many_const_BLOCK, many_const_SIGN, many_const_SLOPE);
    return 0;
}
"""


@pytest.fixture
def many(tmp_path: Path, driver: Path) -> Any:
    """Runs a program that launches `kinds` on a grid (x, 3, 1) with x misaligned and a value of n."""

    def run(*options: str, grid: int = 4, misaligned: int = 0, n: int = 32, place: str = "") -> list[str]:
        (tmp_path / "kinds.py").write_text(KINDS)
        made = tlxc_compile(str(tmp_path / "kinds.py"), "-t", "sm_90", "-t", "sm_100", "--signature", "rows=i64:8",
                            "--name", "many", "--emit", "header", "-o", str(tmp_path), *options)  # fmt: skip
        assert made.exit_code == 0, made.stderr
        (tmp_path / "many.c").write_text(PROGRAM % (place, grid, misaligned, n))
        settings = {"STAND_IN_SIZES": "884118488", "STAND_IN_MAJOR": "10"}
        said = build_and_run(tmp_path / "many.c", tmp_path, driver, **settings)[1].splitlines()
        shared = re.search(r"\{10, 0, [^,]+, 64, (\d+), 128, \{2, 1, 1\}\}", (tmp_path / "many.h").read_text())
        assert shared is not None and said.pop("--no-embed" in options) == f"attribute 8 = {shared[1]}"
        return [line.replace(f"shared {shared[1]} ", "") for line in said]

    return run


@needs_cc
def test_every_kind_of_parameter(many: Any) -> None:
    *said, address, freed, status = many()
    assert said == [
        "workspace 1536 in 7", "launch kinds grid 4 3 1 block 64 1 1 stream 7", "param 1000", "param 2001",
        "param 20", "param 1", "param fe", "param 10000000000", "param 3fc00000", "param 18",
    ]  # fmt: skip
    assert int(address.split()[1], 16) % 128 == 0
    assert (freed, status) == ("free in 7", "status 0, 64 -1 0.5")


@needs_cc
@pytest.mark.parametrize(
    ("change", "status"),
    [({"grid": 3}, 1), ({"grid": 0}, 0), ({"misaligned": 8}, 1), ({"n": 33}, 1)],
    ids=["a grid of broken clusters", "an empty grid", "a misaligned pointer", "an integer that is no multiple"],
)
def test_what_the_code_cannot_take_is_not_launched(many: Any, change: dict[str, int], status: int) -> None:
    assert many(**change) == [f"status {status}, 64 -1 0.5"]


@needs_cc
def test_cubins_in_a_folder(many: Any, tmp_path: Path) -> None:
    said = many("--no-embed", place=f', "{tmp_path}"')
    assert said[0] == f"load {tmp_path}/many.sm_100.cubin" and said[2].startswith("launch kinds grid 4 3 1")
    assert (tmp_path / "many.sm_90.cubin").is_file() and "_cubin[]" not in (tmp_path / "many.h").read_text()


STORED = """\
#include "copy.h"
int main(void)
{
    copy_kernel kernel;
    CUtensorMap map;
    const uint64_t shape[3] = {4, 40, 36}, strides[3] = {4096, 48, 1}, turned[3] = {4096, 1, 48};
    CUresult status[5] = {
        copy_load(&kernel),
        copy_map_x(&kernel, &map, 0x1000, shape, strides, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA),
        copy_map_x(&kernel, &map, 0x1000, shape, turned, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        copy_map_y(&kernel, &map, 0x1000, shape, strides, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        copy_launch(&kernel, 1, 1, 1, NULL, (CUtensorMap *)((char *)&map + 16), &map)};
    printf("%d %d %d %d %d\\n", status[0], status[1], status[2], status[3], status[4]);
    return 0;
}
"""
COPY = """\
import tlxc
from tlxc import tl, tlx


@tlxc.kernel
def copy(x, y):
    buf, full = tlx.local_alloc((1, 8, 32), tl.bfloat16, 1), tlx.alloc_barriers(1)
    tlx.barrier_expect_bytes(full[0], 512)
    tlx.async_descriptor_load(x, buf[0], [0, 0, 0], full[0])
    tlx.barrier_wait(full[0], 0)
    tlx.async_descriptor_store(y, buf[0], [0, 0, 0])
    tlx.async_descriptor_store_wait(0)
"""


@needs_cc
def test_tensor_maps(tmp_path: Path, driver: Path) -> None:
    """Order and units of extents and strides; rows that TMA would overrun and maps at odd addresses are refused."""
    (tmp_path / "copy.py").write_text(COPY)
    types = "desc<1x8x32xbf16>, desc<1x8x32xbf16>"
    made = tlxc_compile(
        str(tmp_path / "copy.py"), "-t", "sm_90", "--signature", types, "--emit", "header", "-o", str(tmp_path)
    )
    assert made.exit_code == 0, made.stderr
    (tmp_path / "main.c").write_text(STORED)
    said = build_and_run(tmp_path / "main.c", tmp_path, driver)[1].splitlines()
    want = "map type 9 shape 36 40 4 strides 96 8192 box 32/1 8/1 1/1 interleave 0 swizzle 2 l2 3 fill 1"
    assert said[-2:] == [want, "0 0 1 1 1"]


GRID = """\
import tlxc
from tlxc import tl


@tlxc.kernel
def many(out: tl.ptr(tl.int8), n: tl.int32, kernel: tl.uint64, small: tl.int8, BLOCK: tl.constexpr = 64):
    tl.store(out, small)
"""
GRIDS = """\
#include "many.h"
int main(void)
{
    unsigned grid[3];
    many_grid(grid, 1000, 80, 3);
    printf("%u %u %u\\n", grid[0], grid[1], grid[2]);
    return 0;
}
"""


@needs_cc
def test_a_grid(tmp_path: Path, driver: Path) -> None:
    """An expression in Python, computed in C."""
    (tmp_path / "many.py").write_text(GRID)
    text = "tlxc.cdiv(n, BLOCK) * 2, max(kernel // 7 % 5, 2) - 1, min(kernel, 3 + small)"
    command = [str(tmp_path / "many.py"), "-t", "sm_90", "-o", str(tmp_path), "--grid", text]
    assert "only the header computes a grid; add --emit header." in tlxc_compile(*command).stderr
    assert tlxc_compile(*command, "--emit", "header").exit_code == 0
    (tmp_path / "grids.c").write_text(GRIDS)
    assert build_and_run(tmp_path / "grids.c", tmp_path, driver) == (0, "32 1 6\n")


GRID_ERRORS = {
    "n +": "The grid 'n +' is no Python expression: invalid syntax.",
    "1, 2, 3, 4": "The grid '1, 2, 3, 4' has 4 extents; give one to three.",
    "n / 2": "The grid 'n / 2' has `n / 2`; it may consist of integer parameters, numbers, + - * // %, cdiv(a, b), "
    "min(a, b) and max(a, b).",
    "y": "The grid 'y' has `y`, which is no integer parameter of the kernel; it may consist of integer parameters, "
    "numbers, + - * // %, cdiv(a, b), min(a, b) and max(a, b).",
}


@pytest.mark.parametrize("text", GRID_ERRORS)
def test_texts_that_are_no_grid(text: str) -> None:
    with pytest.raises(GridTextError) as caught:
        parse_grid(text, some.signature(x="*f16", n="i32", s="f32"))
    assert str(caught.value) == GRID_ERRORS[text]


def test_names_in_c_and_python_mean_the_same() -> None:
    enum = pytest.importorskip("cuda.bindings.driver").CUtensorMapDataType
    for dtype in ir.DTYPES.values():
        if dtype is not ir.int1:
            assert int(getattr(enum, map_type(dtype))) == descriptor.TYPES[dtype.short]


def test_headers_and_names_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text(KINDS)
    amd = tlxc_compile(str(tmp_path / "kinds.py"), "-t", "gfx950", "--emit", "header")
    assert "header does not exist for gfx950." in amd.stderr
    name = tlxc_compile(str(tmp_path / "kinds.py"), "-t", "sm_90", "--name", "my-kernel")
    assert "'my-kernel' is no name in C; use letters, digits and _." in name.stderr


# -- signatures ------------------------------------------------------------------------------------------------------


@tlxc.kernel
def some(x, y: tl.ptr(tl.float16, align=16), n, s, BLOCK: tl.constexpr = 128, DTYPE: tl.constexpr = tl.float16):
    tl.store(y, tl.load(x) * s + n + BLOCK)


PARAMETERS = some.__tlxc_source__.parameters


def test_a_signature() -> None:
    text = "*fp32:16, *bf16, i32:16, DTYPE=bfloat16, BLOCK = (1, 2), s=f32"
    assert parse_signature(text, PARAMETERS) == {
        "x": Argument(ir.Pointer(ir.float32), align=16), "y": Argument(ir.Pointer(ir.bfloat16)),
        "n": Argument(ir.Scalar(ir.int32), divisible=16), "s": Argument(ir.Scalar(ir.float32)), "BLOCK": (1, 2),
        "DTYPE": ir.bfloat16,
    }  # fmt: skip
    assert parse_signature("desc<8x64xf16>, n=1, s=-0.5, y=None", PARAMETERS) == {
        "x": Argument(ir.Descriptor((8, 64), ir.float16)), "n": 1, "s": -0.5, "y": None,
    }  # fmt: skip


ERRORS = {
    "i32, x=i32": "The signature has `x` twice.",
    "x=i32, i32": "The signature has 'i32' after an entry with a name; write NAME=i32.",
    "i32,, i32": "The signature 'i32,, i32' has an empty entry.",
    "z=i32": "The signature names 'z', but the parameters are x, y, n, s, BLOCK, DTYPE.",
    "i1, i1, i1, i1, 1, f16, 3": "The signature has more entries than the 6 parameters: x, y, n, s, BLOCK, DTYPE.",
    "float": "The signature gives `x` 'float', which is no type; write one such as i32, i32:16, f32, *f16, *f16:16 or "
    "desc<64x64xf16>, or the number that it always is.",
    "*f64": "'*f64' is no type: 'f64' is no dtype; there are " + ", ".join(ir.DTYPES) + ".",
}


@pytest.mark.parametrize("text", ERRORS)
def test_texts_that_are_no_signature(text: str) -> None:
    with pytest.raises(tlxc.TlxcError) as caught:
        parse_signature(text, PARAMETERS)
    assert str(caught.value) == ERRORS[text]
    assert isinstance(caught.value, (SignatureError, ValueError))


def test_types_in_place_of_annotations() -> None:
    signature = some.signature(x=tl.ptr(tl.float32), n=tl.divisible(tl.int32, 8), s="f32", y="*f16")
    assert dict(signature.arguments) == {
        "x": Argument(ir.Pointer(ir.float32)), "y": Argument(ir.Pointer(ir.float16)),
        "n": Argument(ir.Scalar(ir.int32), divisible=8), "s": Argument(ir.Scalar(ir.float32)),
    }  # fmt: skip
    with pytest.raises(ArgumentError, match="the number `s` is declared tl.float16; numbers are passed as tl.float32"):
        some.signature(x="*f32", n="i32", s=tl.float16)
