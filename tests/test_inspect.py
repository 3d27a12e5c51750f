"""Code read by loops, and builds compared: `tlxc diff`."""

from __future__ import annotations

import json
import linecache
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tlxc.cli import main
from tlxc.codegen.nvptx.disassemble import DisassemblerError, find_nvdisasm
from tlxc.inspect.diff import Row, compare, paired
from tlxc.inspect.forms import AMD, PTX, SASS, Form
from tlxc.inspect.loops import Code, read
from tlxc.inspect.sides import Side

# -- loops


def shape(code: Code) -> list[tuple[int, dict[str, int]]]:
    return [(loop.depth, dict(loop.counts)) for loop in code.loops]


def sass(*lines: str) -> str:
    """Instructions with addresses; what ends in a colon is a label."""
    texts = (f".L_x_{x}" if x.endswith(":") else f"        /*{i:04x}*/       {x} ;" for i, x in enumerate(lines))
    return "\n".join(texts)


NESTED = sass(
    "MOV R1, R2", "0:", "IADD3 R1, R1, 0x1, RZ", "1:", "HGMMA.64x256x16.F32 R24, gdesc[UR8], R24",
    "FFMA R1, R2, R3, R4", "@P0 BRA `(.L_x_1)", "STG.E [R2], R1", "@!P1 BRA `(.L_x_0)", "EXIT", "2:", "BRA `(.L_x_2)",
)  # fmt: skip


def test_loops_are_counted_without_those_inside() -> None:
    code = read(SASS, NESTED)
    assert shape(code) == [(1, {"integer": 1, "STG": 1, "branch": 1}), (2, {"HGMMA": 1, "FFMA": 1, "branch": 1})]
    assert code.counts.total() == 9  # the jump to itself behind the end is never reached: no loop


def test_a_wait_out_of_line_belongs_to_its_loop() -> None:
    """The assembler moves the repeated try behind the end of the function."""
    text = sass(
        "0:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", "@!P0 BRA `(.L_x_1)", "2:", "FADD R1, R1, R2",
        "@P1 BRA `(.L_x_0)", "EXIT", "1:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", "@!P0 BRA `(.L_x_1)",
        "BRA `(.L_x_2)",
    )  # fmt: skip
    assert shape(read(SASS, text)) == [(1, {"SYNCS": 2, "branch": 4, "FADD": 1})]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (SASS, sass("0:", "FMUL R1, R1, R2", "BRA P0, `(.L_x_0)", "EXIT")),
        (PTX, "$L__BB0_1:\n\tmul.rn.f32 \t%f1, %f1, %f2;\n\t@%p1 bra \t$L__BB0_1;\n\tret;\n"),
        (AMD, ".LBB0_1:\n\tv_mul_f32_e32 v1, v1, v2\n\ts_cbranch_scc1 .LBB0_1\n\ts_endpgm\n"),
    ],
    ids=["SASS", "PTX", "AMD"],
)  # fmt: skip
def test_every_form_is_read(form: Form, text: str) -> None:
    name = "FMUL" if form is SASS else "float"
    assert shape(read(form, text)) == [(1, {name: 1, "branch": 1})]


def test_inline_assembly_of_ptx_is_counted_and_does_not_jump() -> None:
    text = (
        "\t{ .reg .pred done; WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], %r2; @done bra DONE; "
        "bra WAIT; DONE: }\n\t{ .reg .pred p; setp.ne.b32 p, %r1, 0; @p cp.async.bulk.tensor.2d.shared::cluster.global "
        "[%r2], [%rd5, {%r3, %r4}], [%r7]; }\n\tret;\n"
    )
    code = read(PTX, text)
    assert dict(code.counts) == {"mbarrier": 1, "branch": 3, "integer": 1, "TMA": 1} and not code.loops


def test_the_order_of_classes_decides() -> None:
    assert [PTX.kind(x) for x in ("selp.f32", "selp.b32", "add.rn.f32", "add.s32", "st.async.shared.b32")] == [
        "float", "mov", "float", "integer", "st.shared",
    ]  # fmt: skip
    assert [SASS.kind(x) for x in ("LDGSTS.E", "LDG.E.128", "LDSM.16.M88.4", "UTMALDG.2D", "NOP")] == [
        "LDGSTS", "LDG", "LDS", "TMA", "other",
    ]  # fmt: skip


# -- comparing


def test_items_are_paired_by_the_first_key_then_by_the_next() -> None:
    keys = (lambda x: x, lambda x: x[0])
    assert list(paired(["a1", "b1", "c"], ["a2", "b1", "d"], *keys)) == [
        ("a1", "a2"), ("b1", "b1"), ("c", None), (None, "d"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "change"), [(3, 3, ""), (3, 5, "+2"), (5, 3, "-2"), (None, 3, "differs"), ("0 + 8", "8 + 8", "differs")]
)
def test_rows(a: int | str | None, b: int | str | None, change: str) -> None:
    assert Row("x", a, b).change == change


def text_side(text: str) -> Side:
    return Side("", texts={"SASS": lambda: text})


def test_another_order_of_the_same_instructions() -> None:
    found = compare(text_side(sass("FADD R1, R2, R3", "EXIT")), text_side(sass("FADD R1, R2, R4", "EXIT")))
    assert not found.same
    assert str(found).endswith("All counts agree; the code differs in its order, registers or operands.")
    assert compare(text_side(NESTED), text_side(NESTED)).same


SCALE = '''\
import tlxc
from tlxc import tl


@tlxc.kernel
def scale(
    x: tl.ptr(tl.float16, align=16), y: tl.ptr(tl.float16), n: tl.divisible(tl.int32, 16), B: tl.constexpr = 1024
):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    inside = offsets < n
    for _ in range(n):
        tl.store(y + offsets, tl.load(x + offsets, mask=inside) * 2, mask=inside)
'''
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text(SCALE, encoding="utf-8")

    def invoke(*command: str) -> Result:
        result = CliRunner().invoke(main, command, prog_name="tlxc")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    yield invoke
    linecache.clearcache()  # k.py is another file elsewhere


def _reason() -> str:
    try:
        find_nvdisasm()
    except DisassemblerError as error:
        return str(error)
    return ""


disassembles = pytest.mark.skipif(bool(_reason()), reason=_reason() or "nvdisasm is there")


@disassembles
def test_two_kernels(run: Run) -> None:
    result = run("diff", "k.py", "k.py:scale", "-t", "sm_90", "-B", "B=512")
    assert result.exit_code == 1, result.stderr
    lines = result.stdout.splitlines()
    assert lines[:4] == ["A: k.py for sm_90", "B: k.py:scale for sm_90 B=512", "", lines[3]]
    assert re.fullmatch(r"resources +A +B", lines[3])
    titles = [line.split("  ")[0] for line in lines if line.endswith(" B")]
    assert titles == ["resources", "SASS, whole kernel", "SASS, loop 1"]
    loop = lines[next(i for i, line in enumerate(lines) if line.startswith("SASS, loop 1")) :]
    rows = {row[0]: row[1:] for row in map(str.split, loop) if row}
    a, b, change = map(int, rows["STG"])  # the assembler unrolls as it likes
    assert a and b and b - a == change
    assert [line[:40] for line in lines if line[:2] in ("- ", "+ ")] == [
        "- k.py:12:9: note: narrow: 8 stores of 2", "+ k.py:12:9: note: narrow: 4 stores of 2",
    ]  # fmt: skip
    assert lines[-1] == "They differ."


def test_ptx_is_compared_where_there_is_no_disassembler(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TLXC_NVDISASM", "nowhere/nvdisasm")
    result = run("diff", "k.py", "k.py", "-t", "sm_90")
    assert result.exit_code == 0 and "PTX, loop 1" in result.stdout
    assert result.stdout.splitlines()[-2:] == [
        "SASS cannot be compared: TLXC_NVDISASM names nowhere/nvdisasm, which is not a program; give the path of an "
        "nvdisasm or unset it.",
        "No difference.",
    ]


def test_amd(run: Run) -> None:
    result = run("diff", "k.py", "k.py", "-t", "gfx950", "-B", "B=512")
    assert result.exit_code == 1 and "assembly, loop 1" in result.stdout


def test_targets_of_both_vendors_have_no_code_in_common(run: Run) -> None:
    result = run("diff", "k.py", "k.py", "-t", "gfx950", "-t", "sm_90")
    assert result.exit_code == 1
    assert "The code is not compared: no form of it is there on both sides." in result.stdout.splitlines()


@disassembles
def test_written_files(run: Run) -> None:
    assert run("compile", "k.py", "-t", "sm_90", "-o", "old").exit_code == 0
    for file in ("old/scale.sm_90.json", "old/scale.sm_90.cubin"):
        result = run("diff", file, "k.py", "-t", "sm_90")
        assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "No difference."), result.stdout
    result = run("diff", "old/scale.sm_90.json", "k.py", "-t", "sm_90", "-D", "B=256")
    assert result.exit_code == 1 and "SASS, loop 1" in result.stdout


def test_the_json_holds_the_map_of_shared_memory(run: Run) -> None:
    Path("s.py").write_text(
        "import tlxc\nfrom tlxc import tl, tlx\n\n\n@tlxc.kernel\ndef s(x: tl.ptr(tl.float32, align=16)):\n"
        "    a = tlx.local_alloc((128,), tl.float32, 2)\n    i = tl.arange(0, 128)\n"
        "    tlx.local_store(a[1], tl.load(x + i))\n    tl.store(x + i, tlx.local_load(a[1]))\n",
        encoding="utf-8",
    )
    assert run("compile", "s.py", "-t", "sm_90").exit_code == 0
    (row,) = json.loads(Path("s.sm_90.json").read_text())["memory_map"]
    assert row == {"buffer": "a", "offset": 0, "bytes": 1024, "lines": [9, 10]}
    result = run("diff", "s.sm_90.json", "s.py", "-t", "sm_90")
    assert result.exit_code == 0 and re.search(r"^a +0 \+ 1024 +0 \+ 1024$", result.stdout, re.MULTILINE)


def test_files_of_text(run: Run) -> None:
    assert run("compile", "k.py", "-t", "sm_90", "-t", "gfx950", "--emit", "ptx", "--emit", "amdgcn").exit_code == 0
    for file in ("scale.sm_90.ptx", "scale.gfx950.s"):
        result = run("diff", file, file)
        assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "No difference."), result.stdout


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("k.py", "k.py"), "Error: k.py is to be compiled; give --target.\n"),
        (("k.py", "no.py", "-t", "sm_90"), "Invalid value for FILE[:KERNEL]: there is no file 'no.py'.\n"),
        (("no.ptx", "no.ptx"), "no.ptx could not be read: No such file or directory.\n"),
        (("no.json", "no.ptx"), "no.json could not be read as JSON: [Errno 2] No such file or directory: 'no.json'.\n"),
        (
            ("old.json", "old.json"),
            "old.json is not a JSON of this version of `tlxc compile`: 'workspace' is missing in it.\n",
        ),
        (
            ("k.py", "k.py", "-t", "sm_90", "-t", "sm_100", "-t", "gfx950"),
            "Invalid value for --target: give one target for both builds, or one for each.\n",
        ),
        (("k.py:other", "k.py", "-t", "sm_90"), "k.py has no kernel `other`; it defines scale.\n"),
    ],
)  # fmt: skip
def test_errors_have_a_status_of_their_own(run: Run, command: tuple[str, ...], told: str) -> None:
    Path("old.json").write_text("{}")
    result = run("diff", *command)
    assert result.exit_code == 2 and result.stderr.endswith(told) and not result.stdout
