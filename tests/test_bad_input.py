"""What a user can get wrong, from a file on disk to the message, in full text: on the command line and from Python.

Every message of the frontend and the language has its own test beside the kernel that causes it.  Here one of each kind
makes the whole way, and what a first user meets outside of kernels is told.  Of the same list, in full text elsewhere:

    every error of the frontend            test_frontend_errors.py
    every error of a `tl`, `tlx` function  test_language_errors.py
    launch arguments, mixed devices        test_bind.py: test_refusals, test_declared_types_are_kept
    grids                                  test_kernel.py: test_wrong_grids
    what the driver refuses                test_kernel.py: test_a_refused_launch_is_explained
    too much shared memory                 test_memory_plan.py: test_overflow_names_the_buffers
    no assembler, a wrong TLXC_PTXAS       test_assemble.py
    a wrong TLXC_CACHE_SIZE                test_cache.py: test_wrong_size_limits
"""
# ruff: noqa: E501

from __future__ import annotations

import ctypes
import linecache
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

import tlxc
from tlxc.cli import load_file, main
from tlxc.cli.inspect import STAGES
from tlxc.runtime.kernel import Kernel

ROOT = Path(__file__).parent.parent
HEAD = "import tlxc\nfrom tlxc import tl, tlx\n\n\n@tlxc.kernel\n"
SOUND = "def fill(x: tl.ptr(tl.float32), BLOCK: tl.constexpr = 128):\n    tl.store(x + tl.arange(0, BLOCK), 1.0)\n"
FREE = "def fill(x, n, BLOCK: tl.constexpr):\n    tl.store(x + tl.arange(0, BLOCK), n)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, in which every test calls its file k.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path
    linecache.clearcache()


def tool(*command: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of the command line; any exception but its own exit fails the test."""
    result = CliRunner().invoke(main, command, prog_name="tlxc")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def write(text: str, name: str = "k.py") -> None:
    Path(name).write_text(text, encoding="utf-8")


def module(text: str) -> ModuleType:
    write(text)
    return load_file("k.py")


def only_kernel(text: str) -> Kernel:
    (kernel,) = (value for value in vars(module(text)).values() if isinstance(value, Kernel))
    return kernel


# -- errors in kernels -----------------------------------------------------------------------------------------------

# name, the kernel behind `@tlxc.kernel` in line 5, the whole message
IN_KERNELS = [
    (
        "unknown_name",
        """\
def k(x: tl.ptr(tl.float32)):
    offsets = tl.arange(0, 64)
    tl.store(x + ofsets, 1.0)
""",
        """
k.py:8:18: error: `ofsets` is not defined
    8 |     tl.store(x + ofsets, 1.0)
      |                  ^~~~~~
  found: neither a local variable, nor one of the enclosing function or module, has this name
  allowed: of Python's builtins a kernel has abs, bool, breakpoint, float, getattr, hasattr, int, isinstance, len, list, max, min, range, str, tuple
  fix: did you mean `offsets`?
""",
    ),
    (
        "shapes",
        """\
def k(x: tl.ptr(tl.float32)):
    a = tl.load(x + tl.arange(0, 64))
    b = tl.load(x + tl.arange(0, 128))
    tl.store(x + tl.arange(0, 128), a + b)
""",
        """
k.py:9:37: error: the shapes do not broadcast
    9 |     tl.store(x + tl.arange(0, 128), a + b)
      |                                     ^~~~~
  found: (64,) and (128,)
  allowed: extents that are equal or 1, aligned at the last axis
  fix: insert axes with x[:, None] or x[None, :]
""",
    ),
    (
        "dtypes",
        """\
def k(x: tl.ptr(tl.float32), y: tl.ptr(tl.int32)):
    i = tl.arange(0, 64)
    tl.store(y + i, tl.load(x + i))
""",
        """
k.py:8:5: error: the stored value is not converted to the element type by itself
    8 |     tl.store(y + i, tl.load(x + i))
      |     ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
  found: a tile (64,) of tl.float32, elements of tl.int32
  allowed: bools, and integers to integers or floats to floats
  fix: convert it with `.to(tl.int32)`
""",
    ),
    (
        "carried_type",
        """\
def k(x: tl.ptr(tl.float32), n: tl.int32):
    total = 0
    for i in range(n):
        total += tl.load(x + i)
    tl.store(x, total)
""",
        """
k.py:9:9: error: `total` changes its type in a loop
    9 |         total += tl.load(x + i)
      |         ^~~~~
  found: it enters the loop as a scalar tl.int32 and leaves the body as a scalar tl.float32
  allowed: one dtype and shape for all trips
  fix: start it with that dtype: `total: tl.float32 = 0`
  `total` gets the value with which it enters the loop at k.py:7:5
    7 |     total = 0
      |     ^~~~~
""",
    ),
    (
        "dot_inner",
        """\
def k(x: tl.ptr(tl.float16), y: tl.ptr(tl.float32)):
    i = tl.arange(0, 32)[:, None]
    a = tl.load(x + i * 24 + tl.arange(0, 24)[None, :])
    tl.store(y + i * 32 + tl.arange(0, 32)[None, :], tl.dot(a, a.T))
""",
        """
k.py:9:54: error: the inner extent of dot is no multiple of 16
    9 |     tl.store(y + i * 32 + tl.arange(0, 32)[None, :], tl.dot(a, a.T))
      |                                                      ^~~~~~~~~~~~~~
  found: K = 24; a is (32, 24), b is (24, 32)
  allowed: multiples of 16, the K of one matrix instruction on 16-bit elements
  fix: load a wider tile, zero beyond the end (a mask without `other` gives 0)
""",
    ),
    (
        "dot_columns",
        """\
def k(x: tl.ptr(tl.float16), y: tl.ptr(tl.float32)):
    i = tl.arange(0, 32)[:, None]
    n = tl.arange(0, 12)[None, :]
    a = tl.load(x + i * 32 + tl.arange(0, 32)[None, :])
    b = tl.load(x + i * 12 + n)
    tl.store(y + i * 12 + n, tl.dot(a, b))
""",
        """
k.py:11:30: error: no matrix instruction of sm_90 computes this dot
   11 |     tl.store(y + i * 12 + n, tl.dot(a, b))
      |                              ^~~~~~~~~~~~
  found: 32x32 by 32x12 of f16 and f16 with f32 accumulator, 4 warps
  allowed: wgmma m64nNk16: warps in units of 4, M a multiple of 64 per 4 warps, N a multiple of 8 up to 256, K a multiple of 16 (of 8 for tf32); or mma.sync m16n8k16: M a multiple of 16, N a multiple of 8, K a multiple of 16
  fix: pad M, N and K to multiples of the instruction (masked loads give zeros)
""",
    ),
    (
        "reshape",
        """\
def k(x: tl.ptr(tl.float16)):
    a = tl.load(x + tl.arange(0, 8)[:, None] * 12 + tl.arange(0, 12)[None, :])
    tl.store(x + tl.arange(0, 12)[:, None] * 8 + tl.arange(0, 8)[None, :], a.reshape(12, 8))
""",
        """
k.py:8:76: error: this reshape has no layout
    8 |     tl.store(x + tl.arange(0, 12)[:, None] * 8 + tl.arange(0, 8)[None, :], a.reshape(12, 8))
      |                                                                            ^~~~~~~~~~~~~~~~
  found: Reshape of (8, 12) to (12, 8) would cut a repetition: an extent c * 2^k (c odd) is held as c copies of a power-of-two tile, and the odd factors must keep their places, as in (64, 192) and (64, 3, 64).
""",
    ),
    (
        "too_large",
        """\
def k(x: tl.ptr(tl.float16)):
    tl.store(x + tl.arange(0, 1 << 24), 1.0)
""",
        """
k.py:7:18: error: arange has too many elements for one tile
    7 |     tl.store(x + tl.arange(0, 1 << 24), 1.0)
      |                  ^~~~~~~~~~~~~~~~~~~~~
  found: (16777216,): 16777216 elements
  allowed: at most 1048576 elements
  fix: loop over smaller tiles
""",
    ),
    (
        "too_large_for_the_warps",
        """\
def k(x: tl.ptr(tl.float16)):
    tl.store(x + tl.arange(0, 1 << 18), 1.0)
""",
        """
k.py:7:18: error: this tile is too large for its threads
    7 |     tl.store(x + tl.arange(0, 1 << 18), 1.0)
      |                  ^~~~~~~~~~~~~~~~~~~~~
  found: 262144 elements, which are 2048 for each of 128 threads
  allowed: 1024 elements a thread; what does not fit into registers is spilled to memory
  fix: use a smaller tile or more warps
""",
    ),
    (
        "shared_memory",
        """\
def k(x: tl.ptr(tl.float32)):
    i, j = tl.arange(0, 256)[:, None], tl.arange(0, 256)[None, :]
    tile = tl.load(x + i * 256 + j)
    tl.store(x + i * 256 + j, tile.T)
""",
        """
k.py:8:12: error: the buffers of this kernel do not fit into shared memory
    8 |     tile = tl.load(x + i * 256 + j)
      |            ^~~~~~~~~~~~~~~~~~~~~~~~
  found: 262144 bytes are live at once, buffers and tiles on their way between threads: tile (256, 256) 262144 bytes
  allowed: 232448 bytes per CTA on sm_90
  fix: use smaller tiles or fewer stages, or spread the tile over more CTAs
""",
    ),
    (
        "pins",
        """\
def k(x: tl.ptr(tl.float32), y: tl.ptr(tl.float32)):
    i = tl.arange(0, 256)
    a = tlx.require_layout(tl.load(x + i), tlx.layout(((128,), (2,)), ((2,), (1,))))
    b = tlx.require_layout(tl.load(y + i), tlx.layout(((128,), (2,)), ((1,), (128,))))
    tl.store(x + i, a + b)
""",
        """
k.py:10:21: error: two required layouts meet in one operation (add)
   10 |     tl.store(x + i, a + b)
      |                     ^~~~~
  found: ((_32,_4),_2):((_2,_64),_1) and ((_32,_4),_2):((_1,_32),_128)
  allowed: one layout for all operands of an operation
  fix: require the same layout at both places, or, before this use, pin one operand to the layout of the other
  ((_32,_4),_2):((_2,_64),_1) is required at k.py:8:9
    8 |     a = tlx.require_layout(tl.load(x + i), tlx.layout(((128,), (2,)), ((2,), (1,))))
      |         ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
  ((_32,_4),_2):((_1,_32),_128) is required at k.py:9:9
    9 |     b = tlx.require_layout(tl.load(y + i), tlx.layout(((128,), (2,)), ((1,), (128,))))
      |         ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
""",
    ),
    (
        "pin_threads",
        """\
def k(x: tl.ptr(tl.float32)):
    i = tl.arange(0, 256)
    a = tlx.require_layout(tl.load(x + i), tlx.layout(((64,), (4,)), ((4,), (1,))))
    tl.store(x + i, a)
""",
        """
k.py:8:9: error: this layout does not fit a tile (256,)
    8 |     a = tlx.require_layout(tl.load(x + i), tlx.layout(((64,), (4,)), ((4,), (1,))))
      |         ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
  found: The thread extents of a register layout multiply to 64 threads, but the task that executes it wants 32 lanes x 4 warps = 128; change the thread shape or the number of warps.
""",
    ),
    (
        "pointer_subscript",
        """\
def k(x: tl.ptr(tl.float32)):
    tl.store(x, x[3])
""",
        """
k.py:7:17: error: a pointer cannot be indexed
    7 |     tl.store(x, x[3])
      |                 ^~~~
  found: a subscript of a scalar tl.ptr(tl.float32) that is neither `:` nor `None`
  fix: read memory with tl.load(pointer + offset), write it with tl.store(pointer + offset, value)
""",
    ),
    (
        "kernel_name",
        """\
def kärnel(größe: tl.ptr(tl.float32)):
    tl.store(größe, 1.0)
""",
        """
k.py:6:1: error: a kernel cannot be called `kärnel`
    6 | def kärnel(größe: tl.ptr(tl.float32)):
      | ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
  allowed: names of ASCII letters, digits and _, which assemblers read; neither `_` nor `WARP_SZ`
  fix: rename the function
""",
    ),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in IN_KERNELS], ids=[case[0] for case in IN_KERNELS])
def test_an_error_in_a_kernel(folder: Path, text: str, expected: str) -> None:
    kernel = only_kernel(HEAD + text)
    with pytest.raises(tlxc.CompileError) as caught:
        kernel.compile("sm_90")
    assert str(caught.value) == expected[1:-1]
    assert tool("compile", "k.py", "-t", "sm_90") == (1, "", expected[1:])
    assert sorted(path.name for path in folder.iterdir()) == ["k.py"]  # nothing is left behind, not even in the cache


def test_the_traceback_leaves_the_compiler_out(folder: Path) -> None:
    kernel = only_kernel(HEAD + "def k(x: tl.ptr(tl.float32)):\n    for i in range(3):\n        tl.store(x + o, 1.0)\n")
    with pytest.raises(tlxc.CompileError) as caught:
        kernel.compile("sm_90")
    files = {Path(entry.path).name for entry in caught.traceback}
    assert files == {"test_bad_input.py", "kernel.py", "artifact.py"}


# -- the command line ------------------------------------------------------------------------------------------------

USAGE = "Usage: tlxc {0} [OPTIONS] FILE[:KERNEL]\nTry 'tlxc {0} --help' for help.\n\nError: "
KNOWN = "Known targets: sm_90, sm_100, sm_103, sm_120, gfx942, gfx950, gfx1250.\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("compile k.py", "Missing option '-t' / '--target'.\n"),
        ("compile -t sm_90", "Missing argument 'FILE[:KERNEL]'.\n"),
        ("compile nowhere.py -t sm_90", "Invalid value for FILE[:KERNEL]: there is no file 'nowhere.py'.\n"),
        ("compile . -t sm_90", "Invalid value for FILE[:KERNEL]: there is no file '.'.\n"),
        (
            "compile k.py -t sm_91",
            "Invalid value for '-t' / '--target': Unknown target 'sm_91'. Did you mean sm_90? " + KNOWN,
        ),
        ("compile k.py -t hopper", "Invalid value for '-t' / '--target': Unknown target 'hopper'. " + KNOWN),
        ("compile k.py -t sm_90 -D BLOCK", "Invalid value for '-D': 'BLOCK' is not NAME=VALUE.\n"),
        ("compile k.py -t sm_90 -D 2=3", "Invalid value for '-D': '2=3' is not NAME=VALUE.\n"),
        ("compile k.py -t sm_90 -D BLOCK=1 -D BLOCK=2", "Invalid value for '-D': BLOCK is given twice.\n"),
        ("compile k.py -t gfx950 --emit ptx", "Invalid value for --emit: ptx does not exist for gfx950.\n"),
        ("inspect k.py -t gfx950 --sass", "Invalid value for --sass: sass does not exist for gfx950.\n"),
        (
            "inspect k.py -t sm_90 --after layout",
            f"Invalid value for '--after': 'layout' is not one of {', '.join(map(repr, STAGES))}.\n",
        ),
    ],
)
def test_wrong_usage(folder: Path, command: str, expected: str) -> None:
    write(HEAD + SOUND)
    words = command.split()
    assert tool(*words) == (2, "", USAGE.format(words[0]) + expected)


TWO = HEAD + SOUND + "\n\n@tlxc.kernel\n" + SOUND.replace("fill", "fill_too")
LOADING = "k.py could not be loaded; this is what Python says:\n"


@pytest.mark.parametrize(
    ("text", "command", "expected"),
    [
        ("x = 1\n", "k.py", "k.py defines no kernel; decorate a function with @tlxc.kernel.\n"),
        (TWO, "k.py", "k.py defines 2 kernels, fill and fill_too; name one, as in k.py:fill.\n"),
        (TWO, "k.py:fil", "k.py has no kernel `fil`; it defines fill and fill_too.\n"),
        (
            HEAD + FREE,
            "k.py",
            "fill (k.py:5) needs a value for its compile-time parameter `BLOCK`; give -D BLOCK=....\n",
        ),
        (
            HEAD + FREE,
            "k.py -D BLOCK=4",
            "fill (k.py:5): the type of `x` is not declared; annotate it, as in `x: tl.ptr(tl.float16)` or "
            "`x: tl.int32`, or give it a value.\n",
        ),
        (
            HEAD + SOUND,
            "k.py -D BLOK=4",
            "fill (k.py:5) has no parameter `BLOK`. Did you mean `BLOCK`? Its parameters are x and BLOCK.\n",
        ),
        (HEAD + SOUND, "k.py --num-warps 3", "fill (k.py:5): num_warps is 3; it may be 1, 2, 4, 8, 16 or 32.\n"),
        (
            HEAD + SOUND,
            "k.py -D BLOCK=wide",
            "k.py:7:18: error: the end of arange must be a compile-time integer\n"
            "    7 |     tl.store(x + tl.arange(0, BLOCK), 1.0)\n"
            "      |                  ^~~~~~~~~~~~~~~~~~~\n"
            "  found: 'wide' (str)\n",
        ),
        (
            HEAD + "def k(x: tl.ptr(tl.float16, align=3)):\n    tl.store(x, 1.0)\n",
            "k.py",
            "k.py:6:1: error: the alignment of a pointer is a power of two, and its element's size at least\n"
            "    6 | def k(x: tl.ptr(tl.float16, align=3)):\n"
            "      | ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n"
            "  found: align=3 for tl.float16\n"
            "  fix: write align=16 for the widest accesses, or leave it out\n",
        ),
        (
            "from __future__ import annotations\n" + HEAD + "def k(x: tl.ptr(tl.flaot16)):\n    tl.store(x, 1.0)\n",
            "k.py",
            "k.py:7:7: error: the annotation of `x` cannot be evaluated\n"
            "    7 | def k(x: tl.ptr(tl.flaot16)):\n"
            "      |       ^~~~~~~~~~~~~~~~~~~~~\n"
            "  found: tl.ptr(tl.flaot16): module 'tlxc.language.tl' has no attribute 'flaot16'\n",
        ),
        (
            "import tlxc\n\nk = tlxc.kernel(lambda x: None)\n",
            "k.py",
            "k.py:3:1: error: the lambda at k.py:3 cannot be compiled: it has no name and no `def`\n"
            "    3 | k = tlxc.kernel(lambda x: None)\n"
            "      | ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n"
            "  fix: write it as a function with `def`\n",
        ),
        (
            "import tlxc\n\nexec('@tlxc.kernel\\ndef k(x): pass\\n')\n",
            "k.py",
            "k.py defines no kernel; decorate a function with @tlxc.kernel; to take one that it imports, write k.py:k.\n",
        ),
        (
            "import tlxc\n\nexec('@tlxc.kernel\\ndef k(x): pass\\n')\n",
            "k.py:k -D x=1",
            "error: `k` cannot be compiled because Python has no source text for it (<string>); kernels and their "
            "helpers must be defined in a file, not typed at a prompt or made with exec()\n",
        ),
        ("import nothing_of_that_name\n", "k.py", LOADING + (
            "Traceback (most recent call last):\n"
            '  File "k.py", line 1, in <module>\n'
            "    import nothing_of_that_name\n"
            "ModuleNotFoundError: No module named 'nothing_of_that_name'\n"
        )),
        ("raise SystemExit(3)\n", "k.py", LOADING + (
            "Traceback (most recent call last):\n"
            '  File "k.py", line 1, in <module>\n'
            "    raise SystemExit(3)\n"
            "SystemExit: 3\n"
        )),
    ],
)  # fmt: skip
def test_a_file_that_names_no_kernel_to_compile(folder: Path, text: str, command: str, expected: str) -> None:
    write(text)
    assert tool("compile", *command.split(), "-t", "sm_90") == (1, "", expected)


def test_a_syntax_error(folder: Path) -> None:
    write("def f(:\n    pass\n")
    status, _, message = tool("compile", "k.py", "-t", "sm_90")
    assert status == 1 and message == (
        LOADING + '  File "k.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'
    )


def test_what_one_target_lacks(folder: Path) -> None:
    write(HEAD + SOUND)
    assert tool("compile", "k.py", "-t", "gfx950", "--num-warps", "32") == (
        1,
        "",
        "k.py:6:1: error: num_warps=32 is more than a CTA can have\n"
        "    6 | def fill(x: tl.ptr(tl.float32), BLOCK: tl.constexpr = 128):\n"
        "      | ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n"
        "  allowed: at most 16 warps on gfx950\n",
    )
    write(
        HEAD + "def product(x: tl.ptr(tl.float16), y: tl.ptr(tl.float32)):\n"
        "    at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]\n"
        "    a = tl.load(x + at)\n"
        "    tl.store(y + at, tl.dot(a, a))\n"
    )
    assert tool("compile", "k.py", "-t", "gfx950") == (
        1,
        "",
        "k.py:9:22: error: matrix multiplications are not available on AMD targets yet\n"
        "    9 |     tl.store(y + at, tl.dot(a, a))\n"
        "      |                      ^~~~~~~~~~~~\n"
        "  found: target gfx950\n"
        "  allowed: NVIDIA targets\n",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the message is that of the system")
def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    write(HEAD + SOUND)
    write("", "taken")  # root may write anywhere, but not below a file
    expected = "taken/below/fill.sm_90.cubin could not be written: Not a directory.\n"
    assert tool("compile", "k.py", "-t", "sm_90", "-o", "taken/below") == (1, "", expected)


def test_wrong_names_of_passes_to_dump(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(HEAD + SOUND)
    monkeypatch.setenv("TLXC_DUMP", "layout")
    assert tool("compile", "k.py", "-t", "sm_90") == (
        1,
        "",
        f"TLXC_DUMP is 'layout', which matches no pass; there are {', '.join(STAGES)}.\n",
    )
    monkeypatch.setenv("TLXC_DUMP", "(")
    status, _, message = tool("compile", "k.py", "-t", "sm_90")
    assert status == 1 and message.startswith("TLXC_DUMP is '(', which is not a regular expression: ")


def test_a_process_ends_without_a_traceback(folder: Path) -> None:
    """The same without the harness: what a shell sees."""
    write(HEAD + SOUND.replace("x + ", "y + "))
    command = [sys.executable, "-m", "tlxc", "compile", "k.py", "-t", "sm_90"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("k.py:7:14: error: `y` is not defined\n") and "Traceback" not in done.stderr


# -- Python ----------------------------------------------------------------------------------------------------------


class CpuTensor:
    """What the runtime sees of a torch tensor in host memory."""

    dtype = type("dtype", (), {"__repr__": lambda self: "torch.float16"})()
    device = type("device", (), {"type": "cpu"})()

    def data_ptr(self) -> int:
        return 64

    def get_device(self) -> int:
        return -1


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (
            lambda k: k(CpuTensor(), 1.0),
            "fill is a kernel: launch it with a grid, as fill[grid](...).",
        ),
        (
            lambda k: k[1](CpuTensor(), 1.0, BLOCK=16),
            "fill (k.py:5): argument `x` is a CPU tensor of torch.float16, but kernels run on the GPU; pass `x.cuda()`.",
        ),
        (
            lambda k: k[1]([1.0], CpuTensor(), BLOCK=16),
            "fill (k.py:5): argument `x` is [1.0] (list); a kernel takes arrays on the GPU, a tlxc.TensorDescriptor, an int, "
            "a float, a bool, None. Annotate the parameter `x: tl.constexpr` to pass other values at compile time.",
        ),
        (
            lambda k: k[1](CpuTensor(), 1.0),
            "fill (k.py:5): missing argument `BLOCK`; compile-time parameters are passed by name, as in BLOCK=..., or "
            "get a default.",
        ),
        (
            lambda k: k.warmup(tlxc.tl.float32, 1.0, BLOCK=16, target="sm90"),
            "Unknown target 'sm90'. Did you mean sm_90? " + KNOWN[:-1],
        ),
        (
            lambda k: k.compile("sm_90", BLOCK=16),
            "fill (k.py:5): the type of `x` is not declared; annotate it, as in `x: tl.ptr(tl.float16)` or "
            "`x: tl.int32`, or give it a value.",
        ),
        (
            lambda k: k.warmup(tlxc.tl.float32, 1.0, BLOCK=[16], target="sm_90"),
            "fill (k.py:5): the compile-time parameter `BLOCK` was given [16] (list), which cannot be hashed; give a "
            "number, a string, a dtype, a function, None or a tuple of these.",
        ),
    ],
)
def test_wrong_use_from_python(folder: Path, action: Any, expected: str) -> None:
    kernel = only_kernel(HEAD + FREE)
    with pytest.raises(tlxc.TlxcError) as caught:
        action(kernel)
    assert str(caught.value) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="the message names Linux's library")
def test_no_driver(folder: Path) -> None:
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a driver")
    kernel = only_kernel(HEAD + FREE)
    with pytest.raises(tlxc.TlxcError) as caught:
        kernel.warmup(tlxc.tl.float32, 1.0, BLOCK=16)
    assert str(caught.value) == (
        "No CUDA driver was found (libcuda.so.1), so nothing can be launched here. Compiling needs no driver: "
        "kernel.warmup(..., target='sm_90') and `tlxc compile` work without one."
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the message is that of the system")
def test_a_cache_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling works all the same, and one warning tells why it is slow."""
    kernel = only_kernel(HEAD + SOUND)
    monkeypatch.setenv("TLXC_CACHE_DIR", "k.py/cache")
    with pytest.warns(RuntimeWarning) as caught:
        for block in (16, 32):
            assert kernel.compile("sm_90", BLOCK=block).asm["cubin"]
    (warning,) = caught
    assert str(warning.message) == (
        "tlxc cannot write its cache folder k.py/cache (Not a directory); kernels compile anew in every process. "
        "Set TLXC_CACHE_DIR to a folder that can be written."
    )


# -- killed processes ------------------------------------------------------------------------------------------------

ENDLESS = """
from k import fill
print(flush=True)
for block in range(16, 1 << 17, 16):
    fill.compile("sm_90", BLOCK=block)
    print(flush=True)
"""
BLOCKS = range(16, 16 * 9, 16)


@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
def test_killing_a_compile_at_any_point_leaves_a_working_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process compiles the same kernels from the first on, and is killed at another point of one of them."""
    kernel = only_kernel(HEAD + SOUND)
    chance = random.Random(17)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    for finished in (0, 0, 1, 0, 2, 0, 3, 5):
        victim = subprocess.Popen([sys.executable, "-c", ENDLESS], env=environment, stdout=subprocess.PIPE)
        assert victim.stdout is not None
        for _ in range(1 + finished):
            assert victim.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.4))
        victim.send_signal(signal.SIGKILL)
        assert victim.wait() == -signal.SIGKILL
        victim.stdout.close()
    kept = sorted((folder / "cache").glob("*.tlxc"))
    assert kept
    made = [kernel.compile("sm_90", BLOCK=block) for block in BLOCKS]
    monkeypatch.setenv("TLXC_CACHE_DIR", str(folder / "other"))
    fresh = [kernel.compile("sm_90", BLOCK=block) for block in BLOCKS]
    assert [one.asm for one in made] == [one.asm for one in fresh]
