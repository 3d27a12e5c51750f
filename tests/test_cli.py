"""The command line: files, the resource line, the JSON, and errors in full text."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tlxc import __version__
from tlxc.cli import main
from tlxc.cli.inspect import STAGES
from tlxc.compiler import PASSES
from tlxc.deploy.signature import parse_value
from tlxc.ir.types import float16
from tlxc.targets import all_targets

ROOT = Path(__file__).parent.parent
SCALE = """\
import tlxc
from tlxc import tl


@tlxc.kernel
def scale(
    x: tl.ptr(tl.float16, align=16),
    y: tl.ptr(tl.float16, align=16),
    n: tl.divisible(tl.int32, 16),
    BLOCK: tl.constexpr,
    factor: tl.constexpr = 2,
):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=inside) * factor, mask=inside)


if __name__ == "__main__":
    raise SystemExit("a file that is compiled is not run as a program")
"""
HEAD = "import tlxc\nfrom tlxc import tl\n\n\n"
EMPTY = "@tlxc.kernel\ndef {}(x: tl.ptr(tl.int32)):\n    tl.store(x, 1)\n\n\n"

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder that holds `kernels.py` with the given text."""
    monkeypatch.chdir(tmp_path)

    def invoke(*command: str, source: str = SCALE) -> Result:
        (tmp_path / "kernels.py").write_text(source, encoding="utf-8")
        result = CliRunner().invoke(main, command, prog_name="tlxc")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def failure(result: Result) -> str:
    assert result.exit_code == 1 and result.stdout == ""
    return result.stderr


# -- compile ---------------------------------------------------------------------------------------------------------


def test_compile_writes_the_binary_and_its_json(run: Run, tmp_path: Path) -> None:
    result = run("compile", "kernels.py", "--target", "sm_90", "-D", "BLOCK=1024", "-o", "out/sub")
    assert result.exit_code == 0, result.stderr
    line = (
        r"scale sm_90: \d+ registers, 0 bytes shared, 0 spills, 128 threads; ptxas \d+\.\d+\.\d+ at \S+ptxas(\.exe)?\n"
    )
    assert re.fullmatch(line, result.stdout)
    folder = tmp_path / "out" / "sub"
    assert sorted(path.name for path in folder.iterdir()) == ["scale.sm_90.cubin", "scale.sm_90.json"]
    facts = json.loads((folder / "scale.sm_90.json").read_text())
    cubin = (folder / "scale.sm_90.cubin").read_bytes()
    assert cubin.startswith(b"\x7fELF") and facts["sha256"] == hashlib.sha256(cubin).hexdigest()
    assert facts["files"] == {"cubin": "scale.sm_90.cubin"}
    assert facts["constants"] == {"BLOCK": 1024, "factor": 2}
    assert (facts["name"], facts["target"], facts["threads"], facts["shared"]) == ("scale", "sm_90", 128, 0)
    assert facts["params"] == [
        {"name": "x", "type": "ptr<f16>", "size": 8, "requires": {"align": 16}},
        {"name": "y", "type": "ptr<f16>", "size": 8, "requires": {"align": 16}},
        {"name": "n", "type": "i32", "size": 4, "requires": {"divisible": 16}},
    ]


def test_compile_says_how_long_each_stage_took(run: Run, tmp_path: Path) -> None:
    result = run("compile", "kernels.py", "-t", "sm_90", "-t", "gfx950", "-D", "BLOCK=1024", "--timings")
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if " ms " in line]
    for stages in ("frontend", "layouts", "llvm emit", "ptxas"):
        assert any(" ".join(row).startswith(stages) for row in rows)
    assert [row[-2:] for row in rows if row[0] == "total"] == [["100.0", "%"]] * 2


def test_compile_for_several_targets_and_kinds(run: Run, tmp_path: Path) -> None:
    result = run(
        "compile", "kernels.py:scale", "-t", "sm_100", "-t", "gfx950", "-D", "BLOCK=256", "--emit", "all",
        "--num-warps", "2", "-o", "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert first.startswith("scale sm_100: ") and ", 64 threads; ptxas " in first
    assert second.startswith("scale gfx950: ") and ", 128 threads; LLVM" in second
    suffixes = {"sm_100": "cubin json ll ptx tlxir", "gfx950": "hsaco json ll s tlxir"}
    files = sorted(["scale.h", *(f"scale.{target}.{end}" for target, text in suffixes.items() for end in text.split())])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == files
    assert "module @scale" in (tmp_path / "out" / "scale.gfx950.tlxir").read_text()
    assert ".visible .entry scale" in (tmp_path / "out" / "scale.sm_100.ptx").read_text()
    assert json.loads((tmp_path / "out" / "scale.sm_100.json").read_text())["files"]["llvm"] == "scale.sm_100.ll"


# -- notes

NARROW = SCALE.replace("y: tl.ptr(tl.float16, align=16)", "y: tl.ptr(tl.float16)")


def test_notes_follow_the_resource_line_and_are_in_the_json(run: Run, tmp_path: Path) -> None:
    result = run("compile", "kernels.py", "-t", "sm_90", "-D", "BLOCK=1024", source=NARROW)
    assert result.exit_code == 0, result.stderr
    line = "    tl.store(y + offsets, tl.load(x + offsets, mask=inside) * factor, mask=inside)"
    assert result.stdout.splitlines()[1:] == [
        "kernels.py:15:5: note: narrow: 8 stores of 2 bytes of each thread, where 1 of 16 would do: `y` is not known "
        "to be aligned to 16 bytes",
        f"   15 | {line}",
        "      |     ^" + "~" * 77,
        "  fix: where that holds, declare `y` as tl.ptr(tl.float16, align=16)",
    ]
    (note,) = json.loads((tmp_path / "scale.sm_90.json").read_text())["notes"]
    assert (note["kind"], note["file"], note["line"], note["column"]) == ("narrow", "kernels.py", 15, 4)
    assert note["source"] == line and note["text"] in result.stdout and note["fix"] in result.stdout


@pytest.mark.parametrize(
    ("kinds", "source", "status", "told"),
    [
        ("narrow", NARROW, 1, "--fail-on narrow: there is 1 note of kind narrow.\n"),
        ("spill,narrow", NARROW, 1, "--fail-on spill,narrow: there is 1 note of kind narrow.\n"),
        ("spill, convert", NARROW, 0, ""),
        ("narrow", SCALE, 0, ""),
    ],
)
def test_notes_may_be_errors(run: Run, tmp_path: Path, kinds: str, source: str, status: int, told: str) -> None:
    result = run("compile", "kernels.py", "-t", "sm_90", "-D", "BLOCK=1024", "--fail-on", kinds, source=source)
    assert (result.exit_code, result.stderr) == (status, told)
    assert ("note: narrow: " in result.stdout) == (source == NARROW) and (tmp_path / "scale.sm_90.cubin").exists()


def test_notes_of_several_targets_count_together(run: Run) -> None:
    targets = ("-t", "sm_90", "-t", "sm_100")
    result = run("compile", "kernels.py", *targets, "-D", "BLOCK=1024", "--fail-on", "narrow", source=NARROW)
    assert (result.exit_code, result.stderr) == (1, "--fail-on narrow: there are 2 notes of kind narrow.\n")


def test_an_unknown_kind_of_note(run: Run) -> None:
    result = run("compile", "kernels.py", "-t", "sm_90", "--fail-on", "spill,slow")
    assert result.exit_code == 2 and result.stderr.endswith(
        "Error: Invalid value for '--fail-on': 'slow' is no kind of note; there are convert, narrow, copy, spill, "
        "serialise and assembler.\n"
    )


DESCRIPTORS = """
import tlxc
from tlxc import tl, tlx


@tlxc.kernel(ctas_per_cga=(2, 1, 1))
def copy(x: tlx.tensor_descriptor_type(tl.float16, (32, 128)), y: tlx.tensor_descriptor_type(tl.float16, (32, 128))):
    buf = tlx.local_alloc((32, 128), tl.float16, 1)
    bar = tlx.alloc_barriers(1)
    tlx.barrier_expect_bytes(bar[0], 8192)
    tlx.async_descriptor_load(x, buf[0], [0, 0], bar[0])
    tlx.barrier_wait(bar[0], 0)
    tlx.async_descriptor_store(y, buf[0], [0, 0])
    tlx.async_descriptor_store_wait(0)
"""


def test_descriptors_and_clusters(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tma.py").write_text(DESCRIPTORS)
    command = ("compile", "tma.py", "-t", "sm_90", "--emit", "ptx", "--emit", "json")
    for options, cluster in (((), [2, 1, 1]), (("--ctas-per-cga", "1,4"), [1, 4, 1])):
        result = run(*command, *options)
        assert result.exit_code == 0, result.stderr
        facts = json.loads((tmp_path / "copy.sm_90.json").read_text())
        assert facts["cluster"] == cluster
        assert facts["params"] == [
            {"name": name, "type": "desc<32x128xf16>", "size": 128, "requires": {"align": 64}, "tensor_map": {
                "data_type": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16", "rank": 2, "box": [32, 64], "swizzle": 128,
                "l2_promotion": "CU_TENSOR_MAP_L2_PROMOTION_L2_256B", "row_multiple": multiple}}
            for name, multiple in (("x", 2), ("y", 16))
        ]  # fmt: skip
        ptx = (tmp_path / "copy.sm_90.ptx").read_text()
        assert f".reqnctapercluster {', '.join(map(str, cluster))}\n" in ptx
        assert ptx.count(".param .align 64 .b8 copy_param_") == 2
    assert (
        "'x' is not one to three numbers with commas between, as 2,1,1." in run(*command, "--ctas-per-cga", "x").stderr
    )
    assert "ctas_per_cga is (4, 8); it may be a tuple of one to three" in run(*command, "--ctas-per-cga", "4,8").stderr
    refused = run("compile", "kernels.py", "-t", "gfx950", "-D", "BLOCK=256", "--ctas-per-cga", "2")
    assert "ctas_per_cga is an option of NVIDIA targets" in failure(refused)


MAKER = """
import tlxc
from tlxc import tl, tlx

@tlxc.kernel
def maker(x: tl.ptr(tl.float16), n: tl.int32):
    tile = tlx.make_tensor_descriptor(None, x, [n, 64], [64, 1], [8, 64])
    tile.store([0, 0], tile.load([0, 0]) * 2)
"""


def test_the_workspace_of_a_kernel(run: Run, tmp_path: Path) -> None:
    """The JSON says what the loader allocates for each launch, and where it passes the address."""
    (tmp_path / "maker.py").write_text(MAKER)
    result = run("compile", "maker.py", "-t", "sm_90", "--emit", "ptx", "--emit", "json")
    assert result.exit_code == 0, result.stderr
    facts = json.loads((tmp_path / "maker.sm_90.json").read_text())
    assert [p["name"] for p in facts["params"]] == ["x", "n"]
    assert facts["workspace"] == {
        "bytes_per_cta": 128, "align": 128, "passed": "as a pointer after the params, to memory of this launch"
    }  # fmt: skip
    assert ".align 128 maker_param_2" in (tmp_path / "maker.sm_90.ptx").read_text()


def test_maxnreg(run: Run, tmp_path: Path) -> None:
    kernel = ("kernels.py", "-t", "sm_90", "-D", "BLOCK=1024")
    result = run("compile", *kernel, "--maxnreg", "24", "-o", ".", source=NARROW)
    assert result.exit_code == 0 and result.stdout.startswith("scale sm_90: 24 registers, "), result.stderr
    assert json.loads((tmp_path / "scale.sm_90.json").read_text())["maxnreg"] == 24
    assert run("compile", *kernel, "-o", ".").exit_code == 0
    assert json.loads((tmp_path / "scale.sm_90.json").read_text())["maxnreg"] is None
    assert " warps 4 maxnreg 24 {" in run("inspect", *kernel, "--maxnreg", "24").stdout
    assert "\n.maxnreg 24\n" in run("inspect", *kernel, "--maxnreg", "24", "--ptx").stdout
    assert failure(run("compile", *kernel, "--maxnreg", "300")) == (
        "scale (kernels.py:5): maxnreg is 300; it may be an integer from 24 to 255, the registers that a thread may "
        "use at most, or None for no limit.\n"
    )
    for command in ("compile", "inspect"):
        message = failure(run(command, "kernels.py", "-t", "gfx950", "-D", "BLOCK=256", "--maxnreg", "64"))
        assert "error: maxnreg is an option of NVIDIA targets\n" in message
        assert message.endswith(
            "\n  found: maxnreg=64 for target gfx950\n"
            "  allowed: maxnreg=None on AMD targets\n"
            "  fix: leave maxnreg out where the target is AMD's\n"
        )


def test_assembler_of_the_wheel_is_found_without_environment(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(SCALE, encoding="utf-8")
    command = [sys.executable, "-m", "tlxc", "compile", str(tmp_path / "kernels.py"), "-t", "sm_90", "-D", "BLOCK=64"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path)], capture_output=True, text=True, cwd=ROOT, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"; ptxas (\S+) at (\S+)$", done.stdout.strip())
    assert found and found[1].count(".") == 2 and "site-packages" in found[2]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16", 16), ("0x10", 16), ("-1", -1), ("1.5", 1.5), ("true", True), ("False", False), ("None", None),
        ("float16", float16), ("tl.float16", float16), ("'16'", "16"), ("sum", "sum"), ("(1, 2)", (1, 2)), ("", ""),
    ],
)  # fmt: skip
def test_values_of_definitions(text: str, value: Any) -> None:
    found = parse_value(text)
    assert found == value and type(found) is type(value)


def test_definitions_reach_the_kernel(run: Run) -> None:
    source = HEAD + (
        "@tlxc.kernel\ndef fill(x: tl.ptr(tl.float32), how: tl.constexpr, dtype: tl.constexpr):\n"
        "    tl.static_assert(how == 'one' and dtype == tl.float32)\n    tl.store(x, tl.full((), 1, dtype))\n"
    )
    command = ("inspect", "kernels.py", "-t", "sm_90", "--after", "frontend")
    assert "store" in run(*command, "-D", "how=one", "-D", "dtype=float32", source=source).stdout
    assert "static_assert failed" in failure(run(*command, "-D", "how=two", "-D", "dtype=float32", source=source))


# -- errors ----------------------------------------------------------------------------------------------------------


def test_missing_constant(run: Run) -> None:
    message = failure(run("compile", "kernels.py", "-t", "sm_90"))
    assert message == (
        "scale (kernels.py:5) needs a value for its compile-time parameter `BLOCK`; give -D BLOCK=....\n"
    )


def test_unknown_constant(run: Run) -> None:
    message = failure(run("compile", "kernels.py", "-t", "sm_90", "-D", "BLOK=4"))
    assert message == (
        "scale (kernels.py:5) has no parameter `BLOK`. Did you mean `BLOCK`? "
        "Its parameters are x, y, n, BLOCK and factor.\n"
    )


def test_undeclared_parameter(run: Run) -> None:
    source = HEAD + "@tlxc.kernel\ndef copy(x, y: tl.ptr(tl.int32)):\n    tl.store(y, tl.load(x))\n"
    message = failure(run("compile", "kernels.py", "-t", "sm_90", source=source))
    assert message == (
        "copy (kernels.py:5): the type of `x` is not declared; annotate it, as in `x: tl.ptr(tl.float16)` or "
        "`x: tl.int32`, or give it a value.\n"
    )


def test_error_in_the_kernel_shows_its_line(run: Run) -> None:
    source = HEAD + "@tlxc.kernel\ndef bad(x: tl.ptr(tl.int32)):\n    tl.store(x, missing)\n"
    message = failure(run("compile", "kernels.py", "-t", "sm_90", source=source))
    assert message.startswith("kernels.py:7:17: error: ") and "    7 |     tl.store(x, missing)\n" in message
    assert "^~~~~~~" in message and "Traceback" not in message


@pytest.mark.parametrize(
    ("reference", "source", "message"),
    [
        ("kernels.py", "x = 1\n", "kernels.py defines no kernel; decorate a function with @tlxc.kernel.\n"),
        (
            "kernels.py",
            HEAD + EMPTY.format("one") + EMPTY.format("two") + "alias = two\n",
            "kernels.py defines 2 kernels, one and two; name one, as in kernels.py:one.\n",
        ),
        (
            "kernels.py:three",
            HEAD + EMPTY.format("one") + EMPTY.format("two"),
            "kernels.py has no kernel `three`; it defines one and two.\n",
        ),
        ("kernels.py:three", "x = 1\n", "kernels.py has no kernel `three`; it defines none.\n"),
    ],
)
def test_which_kernel(run: Run, reference: str, source: str, message: str) -> None:
    assert failure(run("compile", reference, "-t", "sm_90", source=source)) == message


def test_kernels_of_other_files_do_not_count(run: Run, tmp_path: Path) -> None:
    (tmp_path / "others_of_cli.py").write_text(HEAD + EMPTY.format("other"), encoding="utf-8")
    source = "from others_of_cli import other\n" + HEAD + EMPTY.format("own")
    command = ("-t", "sm_90", "--after", "frontend")
    assert "module @own" in run("inspect", "kernels.py", *command, source=source).stdout
    assert "module @other" in run("inspect", "kernels.py:other", *command, source=source).stdout


def test_exception_while_loading_shows_the_users_lines_only(run: Run) -> None:
    message = failure(run("compile", "kernels.py", "-t", "sm_90", source="def f():\n    return 1 / 0\n\n\nf()\n"))
    lines = [line for line in message.splitlines() if set(line) - set(" ^~")]  # carets differ between Pythons
    assert lines == [
        "kernels.py could not be loaded; this is what Python says:",
        "Traceback (most recent call last):",
        '  File "kernels.py", line 5, in <module>',
        "    f()",
        '  File "kernels.py", line 2, in f',
        "    return 1 / 0",
        "ZeroDivisionError: division by zero",
    ]


def test_syntax_error(run: Run) -> None:
    message = failure(run("compile", "kernels.py", "-t", "sm_90", source="def f(:\n"))
    assert message.startswith(
        'kernels.py could not be loaded; this is what Python says:\n  File "kernels.py", line 1\n'
    )
    assert "Traceback" not in message


def test_folder_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    message = failure(run("compile", "kernels.py", "-t", "sm_90", "-D", "BLOCK=64", "-o", "taken"))
    assert re.fullmatch(r"taken.scale\.sm_90\.cubin could not be written: .*\.\n", message)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("compile", "kernels.py"), "Missing option '-t' / '--target'"),
        (("compile", "nowhere.py", "-t", "sm_90"), "Invalid value for FILE[:KERNEL]: there is no file 'nowhere.py'."),
        (
            ("compile", "kernels.py", "-t", "sm_91"),
            "Unknown target 'sm_91'. Did you mean sm_90? Known targets: "
            "sm_90, sm_100, sm_103, sm_120, gfx942, gfx950, gfx1250.",
        ),
        (("compile", "kernels.py", "-t", "sm_90", "-D", "BLOCK"), "'BLOCK' is not NAME=VALUE."),
        (("compile", "kernels.py", "-t", "sm_90", "-D", "A=1", "-D", "A=2"), "A is given twice."),
        (("compile", "kernels.py", "-t", "sm_90", "-D", "num_warps=8"), "give --num-warps N."),
        (
            ("compile", "kernels.py", "-t", "sm_90", "-D", "maxnreg=64"),
            "maxnreg is an option of the launch; give --maxnreg N.",
        ),
        (("inspect", "kernels.py", "-t", "sm_90", "--maxnreg", "all"), "'all' is not a valid integer."),
        (
            ("compile", "kernels.py", "-t", "gfx950", "--emit", "ptx"),
            "Invalid value for --emit: ptx does not exist for gfx950.",
        ),
        (
            ("inspect", "kernels.py", "-t", "gfx950", "--sass"),
            "Invalid value for --sass: sass does not exist for gfx950.",
        ),
    ],
)
def test_wrong_usage(run: Run, command: tuple[str, ...], message: str) -> None:
    result = run(*command)
    assert result.exit_code == 2 and message in " ".join(result.stderr.split()), result.stderr


# -- inspect and targets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_inspect_after_each_pass(run: Run, stage: str) -> None:
    result = run("inspect", "kernels.py", "-t", "sm_90", "-D", "BLOCK=256", "--after", stage)
    assert result.exit_code == 0 and "module @scale(" in result.stdout
    names = [name for name, _ in PASSES]
    has_layouts = stage in names and names.index(stage) >= names.index("layouts")
    assert result.stdout.startswith("#0 = 256") == has_layouts


def test_inspect_layouts_and_memory(run: Run) -> None:
    source = HEAD + (
        "@tlxc.kernel\ndef total(x: tl.ptr(tl.float32), y: tl.ptr(tl.float32)):\n"
        "    values = tl.load(x + tl.arange(0, 1024))\n    tl.store(y, tl.sum(values))\n"
    )
    result = run("inspect", "kernels.py", "-t", "sm_90", "--layouts", "--memory", source=source)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^%values  +tensor<1024xf32>  +\(\(_32,_4\),.*\):\(.*\)$", result.stdout, re.MULTILINE)
    assert re.search(r"^offset +bytes +buffer +lines\n0 +\d+ +scratch +8$", result.stdout, re.MULTILINE)
    assert re.search(r"^\d+ bytes of shared memory$", result.stdout, re.MULTILINE)


def test_inspect_layouts_before_there_are_any(run: Run) -> None:
    command = ("inspect", "kernels.py", "-t", "sm_90", "-D", "BLOCK=64", "--layouts", "--after", "simplify")
    assert run(*command).stdout == "No value has a layout yet.\n"


@pytest.mark.parametrize(
    ("target", "flag", "text"),
    [
        ("sm_90", "--llvm", "define ptx_kernel void @scale"),
        ("sm_90", "--ptx", ".entry scale"),
        ("gfx950", "--amdgcn", "s_endpgm"),
    ],
)
def test_inspect_code(run: Run, target: str, flag: str, text: str) -> None:
    result = run("inspect", "kernels.py", "-t", target, "-D", "BLOCK=256", flag)
    assert result.exit_code == 0 and text in result.stdout, result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the test extra brings nvdisasm on Linux")
def test_inspect_sass(run: Run) -> None:
    result = run("inspect", "kernels.py", "-t", "sm_90", "-D", "BLOCK=256", "--sass")
    assert result.exit_code == 0 and "EXIT" in result.stdout, result.stderr


def test_targets_lists_all(run: Run) -> None:
    result = run("targets")
    named = [line.split()[0] for line in result.stdout.splitlines()[1:] if not line.startswith(" ")]
    assert named == [target.name for target in all_targets()]
    for target in all_targets():
        assert all(re.search(rf"\b{re.escape(feature)}\b", result.stdout) for feature in target.features)


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout == f"tlxc, version {__version__}\n"
    text = run("inspect", "--help").stdout
    assert all(name in text for name in STAGES)
    assert all(name in run("-h").stdout for name in ("compile", "inspect", "targets"))
