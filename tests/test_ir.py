"""Tile IR: table, printer, parser, verifier."""

from __future__ import annotations

import pytest

import tlxc.ir.ops  # noqa: F401  (fills the table)
from tlxc.errors import InternalError, Location
from tlxc.ir.core import Builder, Module, Param, Region, Value
from tlxc.ir.layout import blocked
from tlxc.ir.memory import swizzled
from tlxc.ir.parser import ParseError, parse_module
from tlxc.ir.printer import print_module
from tlxc.ir.table import OPS
from tlxc.ir.types import Buffer, Pointer, Scalar, Tensor, float16, float32, int1, int32
from tlxc.ir.verifier import verify


def sample() -> Module:
    """A loop that sums a tile, with most of the syntax in it."""
    x = Param(Value(Pointer(float16), name="x"), align=16)
    n = Param(Value(Scalar(int32), name="n"), divisible=16)
    module = Module("sample", [x, n], num_warps=4, attrs={"shared": 64})
    b = Builder(module)
    b.loc = Location("a.py", 3, 4, 9, (Location("a.py", 30, 0, 2),))
    lo = b.emit("constant", type=Scalar(int32), value=0)
    step = b.emit("constant", type=Scalar(int32), value=-1)
    half = b.emit("constant", type=Scalar(float32), value=0.5)
    a = blocked((64, 32), None, 8, 32, 4)
    tile = Tensor((64, 32), float16, a)
    offs = b.emit("splat", n.value, type=Tensor((64, 32), int32, a))
    base = b.emit("splat", x.value, type=Tensor((64, 32), Pointer(float16), a))
    ptr = b.emit("addptr", base, offs, type=Tensor((64, 32), Pointer(float16), a))
    load = b.emit("load", ptr, None, None, type=tile, cache=".cg")
    buf = b.emit("local_alloc", type=Buffer((64, 32), float16, "smem", swizzled((64, 32), 2, 64)), offset=0)
    b.op("local_store", (buf, load))
    body = Region([Value(Scalar(int32), name="i"), Value(Scalar(float32), None, 1, "acc")])
    loop = b.op("for", (lo, n.value, step, half), (Scalar(float32),), [body], descending=True)
    b.stack.append(body)
    b.op("yield", (b.emit("add", body.args[1], half, type=Scalar(float32)),))
    b.stack.pop()
    cond = b.emit("cmp", lo, n.value, type=Scalar(int1), pred="lt")
    branch = b.op("if", (cond,), (Scalar(float32),), [Region(), Region()])
    for r in branch.regions:
        b.stack.append(r)
        b.op("yield", (loop.result,))
        b.stack.pop()
    return module


@pytest.mark.parametrize("locations", [False, True])
def test_printed_form_parses_back(locations: bool) -> None:
    text = print_module(sample(), locations)
    again = parse_module(text)
    verify(again, layouts=True)
    assert print_module(again, locations) == text


def test_printed_form() -> None:
    text = print_module(sample())
    assert 'load %3, _, _ {cache = ".cg"} : tensor<64x32xf16, #0>' in text or "_, _ {cache" in text
    assert "module @sample(%x: ptr<f16> align 16, %n: i32 divisible 16) warps 4 {shared = 64} {" in text
    assert "^(%i: i32, %acc: f32):" in text
    assert "constant {value = 0x1.0000000000000p-1} : f32" in text


def test_a_register_limit_is_printed_and_read_back() -> None:
    module = sample()
    assert parse_module(print_module(module)).maxnreg is None
    module.maxnreg = 64
    text = print_module(module)
    assert "warps 4 maxnreg 64 {shared = 64} {" in text
    again = parse_module(text)
    assert (again.num_warps, again.maxnreg, again.attrs) == (4, 64, {"shared": 64}) and print_module(again) == text


def test_verifier_finds_a_use_before_the_definition() -> None:
    module = sample()
    module.body.ops.reverse()
    with pytest.raises(InternalError, match="not defined before its use"):
        verify(module)


def test_verifier_finds_a_wrong_type() -> None:
    module = sample()
    add = next(op for op in module.walk() if op.kind == "add")
    add.operands[1] = module.params[1].value
    with pytest.raises(InternalError, match="element types differ"):
        verify(module)


def test_parser_names_the_line() -> None:
    with pytest.raises(ParseError, match="line 2: %y is used before its definition"):
        parse_module("module @k(%x: i32) warps 4 {\n  %0 = neg %y : i32\n}\n")


def test_every_row_has_a_family_module_and_a_doc() -> None:
    for name, r in OPS.items():
        assert r.doc.strip().endswith("."), name
