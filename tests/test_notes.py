"""What a compilation says about a kernel that is right but wasteful."""

from __future__ import annotations

import linecache
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import tlxc
from tlxc import tl, tlx
from tlxc.codegen.notes import KINDS, Note
from tlxc.codegen.notes.assembler import SERIALISED, assembler_notes, spills
from tlxc.codegen.notes.collect import in_order
from tlxc.compiler import Compiled, build, compile_kernel
from tlxc.errors import Location
from tlxc.ir.core import Module
from tlxc.targets import get_target

SM90 = get_target("sm_90")


def tile(p):
    return p + tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]


@tlxc.kernel
def sums(x: tl.ptr(tl.float16, align=16), y: tl.ptr(tl.float32, align=16), n: tl.int32, HOW: tl.constexpr):
    a = tlx.local_alloc((64, 64), tl.float16, 1)[0]
    tlx.local_store(a, tl.load(tile(x)))
    acc = tl.zeros((64, 64), tl.float32) if HOW == "zeros" else tl.load(tile(y))
    if HOW == "before":
        tl.store(tile(y), acc + 1)
    if HOW in ("once", "before"):
        acc = tlx.async_dot_wait(0, tlx.async_dot(a, a, acc))
    elif HOW == "after":
        acc += tlx.async_dot_wait(0, tlx.async_dot(a, a, acc))
    elif HOW == "loop" or HOW == "zeros":
        for i in range(n):
            tl.store(tile(y) + i * 4096, tlx.async_dot_wait(0, tlx.async_dot(a, a, acc)))
    elif HOW == "swap":
        old = acc
        for _ in range(n):
            acc, old = tlx.async_dot_wait(0, tlx.async_dot(a, a, acc)), acc
        acc += old
    elif HOW == "carried":
        for _ in range(n):
            acc = tlx.async_dot_wait(0, tlx.async_dot(a, a, acc))
    elif n > 0:
        acc = tlx.async_dot_wait(0, tlx.async_dot(a, a, acc))
    else:
        acc *= 2
    tl.store(tile(y), acc)


def compiled(kernel: Any, **constants: Any) -> tuple[Compiled, list[Note]]:
    made = compile_kernel(kernel.__tlxc_source__, kernel.signature(**constants), SM90)
    return made, [Note.of(facts) for facts in made.metadata["notes"]]


def notes(how: str) -> list[str]:
    return [str(note) for note in compiled(sums, HOW=how)[1]]


@pytest.mark.parametrize("how", ["once", "before", "carried", "branch", "zeros"])
def test_an_accumulator_that_a_dot_takes_over_is_not_copied(how: str) -> None:
    assert notes(how) == []


@pytest.mark.parametrize(
    ("how", "text", "why"),
    [
        ("after", "        acc += tlx.async_dot_wait", "by add at test_notes.py:{}"),
        ("loop", "            tl.store(tile(y) + i", "in the next trip of the loop"),
        ("swap", "            acc, old =", "as a variable of a loop or `if`"),
    ],
)
def test_an_accumulator_that_lives_on_is_named(how: str, text: str, why: str) -> None:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(i for i, found in enumerate(lines, 1) if found.startswith(text))
    shown = lines[line - 1]
    column = shown.index("tlx.async_dot(")
    assert notes(how) == [
        f"{__file__}:{line}:{column + 1}: note: copy: `acc` is copied before this dot, 32 registers of each thread, "
        f"since it is used again {why.format(line)}\n{line:>5} | {shown}\n      | {' ' * column}^{'~' * 23}"
    ]


# -- conversions

ROWS = tlx.layout(((128,), (2,)), ((2,), (1,)))  # each thread two neighbours
LANES = tlx.layout(((32, 4), (2,)), ((1, 64), (32,)))  # each warp the same elements as in ROWS
WARPS = tlx.layout(((128,), (2,)), ((1,), (128,)))


@tlxc.kernel
def moves(x: tl.ptr(tl.int32, align=16), y: tl.ptr(tl.int32, align=16), n: tl.int32, TO: tl.constexpr):
    i = tl.arange(0, 256)
    for k in range(n):
        a = tlx.require_layout(tl.load(x + k * 256 + i), ROWS)
        tl.store(y + k * 256 + i, tlx.require_layout(a, TO))


def shuffles(made: Compiled) -> int:
    """Those in PTX, but for the one that makes the number of the warp uniform."""
    return len(re.findall(r"\bshfl\.sync", str(made.asm["ptx"]))) - 1


def line_of(text: str) -> int:
    return 1 + linecache.getlines(__file__).index(f"        {text}\n")


def test_a_conversion_by_shuffles_is_counted() -> None:
    made, (note,) = compiled(moves, TO=LANES)
    at = line_of("tl.store(y + k * 256 + i, tlx.require_layout(a, TO))")
    assert note.kind == "convert" and note.text == (
        f"`a` (256 i32) changes its layout for require_layout at test_notes.py:{at} by {shuffles(made)} shuffles "
        "of each thread per iteration"
    )
    assert note.source.strip() == "a = tlx.require_layout(tl.load(x + k * 256 + i), ROWS)"


def test_a_conversion_through_shared_memory_is_counted() -> None:
    made, (note,) = compiled(moves, TO=WARPS)
    stores, loads = (len(re.findall(rf"\b{op}\.shared", str(made.asm["ptx"]))) for op in ("st", "ld"))
    assert note.text.endswith(
        f" through 1024 bytes of shared memory: {stores} stores and {loads} loads of each thread per iteration, with a "
        "barrier between"
    )


def test_a_conversion_that_costs_nothing_is_not_told() -> None:
    assert compiled(moves, TO=ROWS)[1] == []


@tlxc.kernel
def unrolled(x: tl.ptr(tl.int32, align=16), y: tl.ptr(tl.int32, align=16), TO: tl.constexpr):
    i = tl.arange(0, 256)
    for k in tl.static_range(3):
        a = tlx.require_layout(tl.load(x + k * 256 + i), ROWS)
        tl.store(y + k * 256 + i, tlx.require_layout(a, TO))


def test_one_line_has_one_note() -> None:
    made, (note,) = compiled(unrolled, TO=LANES)
    assert note.text == f"3 tiles change their layouts by {shuffles(made)} shuffles of each thread"


@tlxc.kernel
def total(x: tl.ptr(tl.float32, align=16), y: tl.ptr(tl.float32)):
    tl.store(y, tl.sum(tl.load(x + tl.arange(0, 1024))))


def test_a_reduction_over_warps_is_no_conversion() -> None:
    assert compiled(total)[1] == []


# -- narrow accesses


@tlxc.kernel
def scale(x, n, stride, BLOCK: tl.constexpr = 1024):
    i = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def narrow(types: list[Any]) -> list[Note]:
    made = compile_kernel(scale.__tlxc_source__, scale.signature(**dict(zip(("x", "n", "stride"), types))), SM90)
    return [Note.of(facts) for facts in made.metadata["notes"]]


WIDE = tl.ptr(tl.float16, align=16)
EVEN = tl.divisible(tl.int32, 16)


def test_an_access_that_could_be_wider_tells_why() -> None:
    store, load = narrow([tl.ptr(tl.float16), tl.int32, tl.int32])
    assert load.text == (
        "8 loads of 2 bytes of each thread, where 1 of 16 would do: `x` is not known to be aligned to 16 bytes, and "
        "the mask may end between neighbours"
    )
    assert load.fix == (
        "where that holds, declare `x` as tl.ptr(tl.float16, align=16) and `stride` and `n` as "
        "tl.divisible(tl.int32, 16)"
    )
    assert store.text.startswith("8 stores of 2 bytes") and store.fix == load.fix
    assert [note.source[note.loc.column : note.loc.end_column] for note in (load, store) if note.loc] == [
        "tl.load(x + i, mask=i < n)",
        "tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)",
    ]


@pytest.mark.parametrize(
    ("types", "reason", "fix"),
    [
        ([WIDE, EVEN, EVEN], None, ""),
        (
            [tl.ptr(tl.float16), EVEN, EVEN],
            "`x` is not known to be aligned to 16 bytes",
            "where that holds, declare `x` as tl.ptr(tl.float16, align=16)",
        ),
        (
            [WIDE, tl.int64, EVEN],
            "the mask may end between neighbours",
            "where that holds, declare `n` as tl.divisible(tl.int64, 16)",
        ),
        (
            [WIDE, EVEN, tl.int32],
            "the address is not known to be aligned to 16 bytes",
            "where that holds, declare `stride` as tl.divisible(tl.int32, 16)",
        ),
    ],
)
def test_what_is_to_declare(types: list[Any], reason: str | None, fix: str) -> None:
    """And what a note says is enough: with it the note is gone."""
    found = narrow(types)
    assert [note.kind for note in found] == (["narrow"] * 2 if reason else [])
    for note in found:
        assert note.fix == fix and note.text.split(": ", 1)[1].split(", and ")[0] == reason


@tlxc.kernel
def columns(x: tl.ptr(tl.float32, align=16), y: tl.ptr(tl.float32, align=16), s: tl.int32, S: tl.constexpr = 0):
    i = tl.arange(0, 1024)
    tl.store(y + i, tl.load(x + i * (S or s)))


def test_a_stride_at_run_time() -> None:
    (note,) = compiled(columns)[1]
    assert note.text == (
        "8 loads of 4 bytes of each thread, where 2 of 16 would do: neighbours are `s` elements apart, which are not "
        "known to be 1"
    )
    assert note.fix == "where `s` is always 1, leave it out of the offsets or make it tl.constexpr"


@pytest.mark.parametrize("stride", [1, 3])
def test_a_stride_that_is_known_is_meant(stride: int) -> None:
    assert compiled(columns, S=stride)[1] == []


@tlxc.kernel
def one_for_all(x: tl.ptr(tl.float32), y: tl.ptr(tl.float32, align=16)):
    i = tl.arange(0, 1024)
    tl.store(y + i, tl.load(x + tl.zeros((1024,), tl.int32)))


def test_one_address_has_no_neighbours() -> None:
    assert compiled(one_for_all)[1] == []


@tlxc.kernel
def walking(x: tl.ptr(tl.float16), y: tl.ptr(tl.float16, align=16), n: tl.int32, step: tl.int32, flag: tl.int32):
    i = tl.arange(0, 1024)
    at = x + i if flag > 0 else x + 1024 + i
    for k in range(n):
        tl.store(y + k * 1024 + i, tl.load(at))
        at += step


def test_parameters_are_found_through_loops_and_branches() -> None:
    (note,) = compiled(walking)[1]
    assert note.text.startswith("8 loads of 2 bytes of each thread per iteration, where 1 of 16 would do: `x` is not ")
    assert note.fix == (
        "where that holds, declare `x` as tl.ptr(tl.float16, align=16) and `step` as tl.divisible(tl.int32, 16)"
    )


@tlxc.kernel
def odd(x: tl.ptr(tl.float16, align=16), y: tl.ptr(tl.float16, align=16)):
    i = tl.arange(0, 1024)
    tl.store(y + i, tl.load(x + 1 + i, mask=i < 1001))


def test_where_no_promise_would_help_there_is_no_note() -> None:
    assert compiled(odd)[1] == []


@tlxc.kernel
def gather(x: tl.ptr(tl.float32, align=16), y: tl.ptr(tl.float32, align=16), at: tl.ptr(tl.int32, align=16)):
    i = tl.arange(0, 1024)
    tl.store(y + i, tl.load(x + tl.load(at + i)))


def test_a_gather_has_no_neighbours() -> None:
    assert compiled(gather)[1] == []


# -- what the assembler reports


@tlxc.kernel(maxnreg=32)
def crowded(x: tl.ptr(tl.float32, align=16), n: tl.int32, SIZE: tl.constexpr = 8192):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i)
    for _ in range(n):
        a = tl.exp2(a)
    tl.store(x + i, a)


def test_spills_stand_at_the_kernel() -> None:
    made, found = compiled(crowded)
    note = next(note for note in found if note.kind == "spill")
    told = re.fullmatch(
        r"registers ran out, with 32 in use: each thread stores (\d+) bytes to local memory and loads (\d+)",
        note.text,
    )
    assert told and int(told[1]) + int(told[2]) == made.metadata["spill_bytes"]
    assert note.fix == "raise maxnreg=32, or use smaller tiles or more warps"
    assert note.source.startswith("def crowded(")


def test_no_spill_no_note() -> None:
    assert spills("", 32, Module("k")) == []


def test_spills_on_amd() -> None:
    signature = crowded.signature(maxnreg=None, SIZE=1 << 17)
    made = compile_kernel(crowded.__tlxc_source__, signature, get_target("gfx950"))
    (note,) = [note for note in map(Note.of, made.metadata["notes"]) if note.kind == "spill"]
    assert re.fullmatch(
        r"registers ran out, with \d+ in use: each thread keeps \d+ vector registers in scratch memory", note.text
    )


def remark(cause: str) -> str:
    what = "wgmma.mma_async instructions are serialized"
    return f"(C7511) Potential Performance Loss: {what} due to {cause} in the function 'k'"


def test_serialised_products_are_explained() -> None:
    module = build(sums.__tlxc_source__, sums.signature(HOW="carried"), SM90)
    (note,) = assembler_notes([remark("insufficient register resources for the wgmma pipeline")] * 2, module)
    assert note.kind == "serialise" and note.text == (
        "this product of wgmma is waited for one by one: accumulators and operands that are under way together need "
        "more registers than there are (ptxas C7511)"
    )
    assert note.loc is not None and "for _ in range(n)" in linecache.getline(__file__, note.loc.line - 1)


@tlxc.kernel
def too_many(x: tl.ptr(tl.float16, align=16), y: tl.ptr(tl.float32, align=16), n: tl.int32):
    a = tlx.local_alloc((64, 64), tl.float16, 1)[0]
    b = tlx.local_alloc((64, 256), tl.float16, 1)[0]
    i, j = tl.arange(0, 64)[:, None], tl.arange(0, 256)[None, :]
    tlx.local_store(a, tl.load(tile(x)))
    tlx.local_store(b, tl.load(x + i * 256 + j))
    first = second = tl.zeros((64, 256), tl.float32)
    for _ in range(n):
        first = tlx.async_dot(a, b, first)
        second = tlx.async_dot(a, b, second)
        first, second = tlx.async_dot_wait(0, first), tlx.async_dot_wait(0, second)
    tl.store(y + i * 256 + j, first + second)


def test_the_assembler_serialises() -> None:
    """Two accumulators of 128 registers are more than a thread has."""
    serialised, spill = compiled(too_many)[1]
    assert serialised.kind == "serialise" and serialised.text.startswith(
        "products of wgmma are waited for one by one: accumulators and operands that are under way together need more "
        "registers than there are"
    )
    assert serialised.source.strip() == "first = tlx.async_dot(a, b, first)" and spill.kind == "spill"


@pytest.mark.parametrize("cause", SERIALISED)
def test_every_cause_is_recognised(cause: str) -> None:
    (note,) = assembler_notes([remark(cause)], Module("k"))
    assert note.kind == "serialise" and SERIALISED[cause][0] in note.text


def test_other_remarks_are_passed_on() -> None:
    lines = [remark("a new reason"), "(C7508) Potential Performance Loss: 'setmaxnreg' ignored"]
    serialised, other = assembler_notes(lines, Module("k"))
    assert serialised.text == "this product of wgmma is waited for one by one: a new reason (ptxas C7511)"
    assert (other.kind, other.text) == ("assembler", lines[1])


# -- notes themselves


def test_the_documentation_names_every_kind() -> None:
    text = (Path(__file__).parent.parent / "docs" / "performance.md").read_text(encoding="utf-8")
    table = text[text.index("| note | when |") :]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [*KINDS]


def test_notes_come_in_the_order_of_lines() -> None:
    at = [None, Location("a.py", 9), Location("a.py", 3)]
    made = [Note(kind, kind, loc) for kind, loc in zip(KINDS, at)]
    assert in_order(made) == made[::-1]


def test_a_note_from_the_cache_finds_its_line_again(tmp_path: Path) -> None:
    file = tmp_path / "moved.py"
    file.write_text("a = 1\nb = 2\n")
    facts = Note("copy", "it is copied", Location(str(file), 2, 0, 1)).facts()
    assert facts["source"] == "b = 2"
    file.write_text("a = 1\n# one more line\n\nb = 2\n")
    os.utime(file, (1, 1))
    linecache.checkcache(str(file))
    assert str(Note.of(facts)) == f"{file}:4:1: note: copy: it is copied\n    4 | b = 2\n      | ^"
    file.unlink()
    linecache.checkcache(str(file))
    assert str(Note.of(facts)) == f"{file}:2:1: note: copy: it is copied\n    2 | b = 2\n      | ^"


def test_notes_are_kept_in_the_cache() -> None:
    first = columns.compile("sm_90")
    again = tlxc.kernel(columns.__tlxc_source__.fn).compile("sm_90")
    assert again.origin == "cache" and again.notes == first.notes and [n.kind for n in again.notes] == ["narrow"]


def test_a_spec_without_allocations_warns() -> None:
    @tlxc.kernel
    def k(x: tl.ptr(tl.float32), USE: tl.constexpr):
        spec = tlx.storage_alias_spec()
        if USE:
            tlx.local_store(tlx.local_alloc((32,), tl.float32, 1, reuse=spec)[0], 1.0)
        tl.store(x, 1.0)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        k.warmup(tl.float32, USE=True, target="sm_90")
        assert not caught
        k.warmup(tl.float32, USE=False, target="sm_90")
    line = k.__tlxc_source__.fn.__code__.co_firstlineno + 2
    assert [(str(w.message), w.filename, w.lineno) for w in caught] == [
        (
            "storage_alias_spec: nothing is allocated in it; pass it as tlx.local_alloc(..., reuse=spec), or remove it",
            __file__,
            line,
        )
    ]
