"""Parses the text that `tlxc.ir.printer` prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tlxc.errors import Location, TlxcError

from .core import Module, Op, Param, Region, Value
from .layout import Layout, parse_layout
from .memory import Memory, parse_memory
from .types import DTYPES, Barrier, Buffer, Descriptor, DType, Pointer, Scalar, Tensor, Token, Type


class ParseError(TlxcError):
    """The text is not tile IR; the message names the line."""


_TOKEN = re.compile(
    r"""\s+|(?P<string>"(?:[^"\\]|\\.)*")|(?P<value>%[\w.]+)|(?P<alias>\#\d+)|(?P<span>!\d+)|(?P<dtype>\$\w+)"""
    r"""|(?P<number>-?(?:0x[0-9a-f.]+p[+-]?\d+|inf\b|nan\b|\d+(?![\w])))|(?P<word>@?[A-Za-z_][\w.]*(?:@\w+)?)"""
    r"""|(?P<shape>\d+(?:x\d+)*x(?=[a-z]))|(?P<mark>[{}()<>\[\],:=^@*])"""
)


def parse_module(text: str) -> Module:
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self.layouts: dict[str, Layout | Memory] = {}
        self.spans: dict[str, Location] = {}
        self.values: dict[str, Value] = {}
        body = []
        for number, line in enumerate(text.splitlines(), 1):
            if m := re.match(r"(#\d+) = (memory )?(.*)", line):
                self.layouts[m[1]] = parse_memory(m[3]) if m[2] else parse_layout(m[3])
            elif m := re.match(r'(!\d+) = ("(?:[^"\\]|\\.)*") (\d+) (\d+) (\d+)((?: !\d+)*)$', line):
                callers = tuple(self.spans[c] for c in m[6].split())
                self.spans[m[1]] = Location(_unquote(m[2]), int(m[3]), int(m[4]), int(m[5]), callers)
            else:
                body.append((number, line))
        self.tokens = [t for number, line in body for t in _tokens(number, line)]
        self.at = 0

    # -- token stream
    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at][1] if at < len(self.tokens) else ""

    def next(self) -> str:
        if self.at >= len(self.tokens):
            raise ParseError("the text ends in the middle of a module")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def expect(self, *wanted: str) -> None:
        for w in wanted:
            if (got := self.next()) != w:
                raise ParseError(f"line {self.tokens[self.at - 1][0]}: found {got!r}, expected {w!r}")

    def accept(self, wanted: str) -> bool:
        if self.peek() == wanted:
            self.at += 1
            return True
        return False

    def fail(self, message: str) -> ParseError:
        return ParseError(f"line {self.tokens[min(self.at, len(self.tokens)) - 1][0]}: {message}")

    # -- types and attributes
    def dtype(self) -> DType:
        word = self.next()
        if word not in DTYPES:
            raise self.fail(f"{word!r} is no element type")
        return DTYPES[word]

    def pointer(self) -> Pointer:
        self.expect("<")
        dtype, space = self.dtype(), "global"
        if self.accept(","):
            space = self.next()
        self.expect(">")
        return Pointer(dtype, space)

    def type(self) -> Type:
        word = self.next()
        if word == "ptr":
            return self.pointer()
        if word in _TILES:
            return _TILES[word](self)
        name, _, uniform = word.partition("@")
        if name not in DTYPES:
            raise self.fail(f"{word!r} is no type")
        return Scalar(DTYPES[name], uniform or "task")

    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.next()[:-1].split("x"))

    def element(self) -> Pointer | DType:
        return self.pointer() if self.accept("ptr") else self.dtype()

    def layout(self) -> Any:
        """After the element: an optional layout, and the closing bracket."""
        layout = self.layouts[self.next()] if self.accept(",") else None
        self.expect(">")
        return layout

    def tensor(self) -> Tensor:
        self.expect("<")
        return Tensor(self.shape(), self.element(), self.layout())

    def buffer(self) -> Buffer:
        self.expect("<")
        count = 0
        if self.peek(1) == "*":
            count = int(self.next())
            self.expect("*")
        shape, element = self.shape(), self.element()
        self.expect(",")
        storage, pitch, group = self.next(), 0, 1
        if self.peek(1) == "pitch":
            self.expect(",")
            self.expect("pitch")
            pitch = int(self.next())
            group = int(self.next()) if self.accept("group") else 1
        return Buffer(shape, element, storage, self.layout(), count, pitch, group)

    def barrier(self) -> Barrier:
        words = []
        if self.accept("<"):
            while not self.accept(">"):
                words.append(self.next())
                self.accept(",")
        return Barrier(int(words[0]) if words and words[0].isdigit() else 0, "warp" in words)

    def descriptor(self) -> Descriptor:
        self.expect("<")
        return Descriptor(self.shape(), self.dtype(), self.layout())

    def attr(self) -> Any:
        token = self.next()
        constants = {"true": True, "false": False, "none": None}
        if token in constants:
            return constants[token]
        if token == "(":
            items = []
            while not self.accept(")"):
                items.append(self.attr())
                self.accept(",")
            return tuple(items)
        if token[0] == '"':
            return _unquote(token)
        if token[0] == "$":
            return DTYPES[token[1:]]
        if token[0] == "#":
            return self.layouts[token]
        if re.fullmatch(r"-?\d+", token):
            return int(token)
        return float.fromhex(token) if "x" in token else float(token)

    def attrs(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self.peek() != "{" or self.peek(2) != "=" or self.peek(1).startswith("%"):
            return out
        self.expect("{")
        while not self.accept("}"):
            name = self.next()
            self.expect("=")
            out[name] = self.attr()
            self.accept(",")
        return out

    # -- ops
    def new_value(self, name: str, type: Type) -> Value:
        text = re.sub(r"\.\d+$", "", name[1:])
        value = Value(type, name="" if text.isdigit() else text)
        self.values[name] = value
        return value

    def operand(self, name: str) -> Value | None:
        if name == "_":
            return None
        if name not in self.values:
            raise self.fail(f"{name} is used before its definition")
        return self.values[name]

    def op(self) -> Op:
        names: list[str] = []
        while self.peek().startswith("%"):
            names.append(self.next())
            self.accept(",")
        if names:
            self.expect("=")
        kind = self.next()
        operands = []
        while self.peek().startswith("%") and self.peek(1) != "=" or self.peek() == "_":
            operands.append(self.operand(self.next()))
            if not self.accept(","):
                break
        op = Op(kind, operands, (), self.attrs())
        types = []
        if self.accept(":"):
            types.append(self.type())
            while self.accept(","):
                types.append(self.type())
        if len(types) != len(names):
            raise self.fail(f"{kind}: {len(names)} results and {len(types)} types")
        if self.accept("{"):
            op.regions.append(self.region())
            while self.accept("{"):
                op.regions.append(self.region())
        if self.peek().startswith("!"):
            op.loc = self.spans[self.next()]
        for i, (name, t) in enumerate(zip(names, types)):
            value = self.new_value(name, t)
            value.op, value.index = op, i
            op.results.append(value)
        return op

    def region(self) -> Region:
        """After `{`, up to and including `}`."""
        region = Region()
        if self.accept("^"):
            region.args = [self.new_value(n, t) for n, t in self.arguments()]
            for i, a in enumerate(region.args):
                a.index = i
            self.expect(":")
        while not self.accept("}"):
            region.ops.append(self.op())
        return region

    def arguments(self) -> list[tuple[str, Type]]:
        self.expect("(")
        out = []
        while not self.accept(")"):
            name = self.next()
            self.expect(":")
            out.append((name, self.type()))
            self.accept(",")
        return out

    def param(self) -> Param:
        name = self.next()
        self.expect(":")
        param = Param(self.new_value(name, self.type()))
        if self.accept("align"):
            param.align = int(self.next())
        if self.accept("divisible"):
            param.divisible = int(self.next())
        return param

    def module(self) -> Module:
        self.expect("module")
        module = Module(self.next()[1:])
        self.expect("(")
        while not self.accept(")"):
            module.params.append(self.param())
            self.accept(",")
        self.expect("warps")
        module.num_warps = int(self.next())
        if self.accept("maxnreg"):
            module.maxnreg = int(self.next())
        if self.accept("cluster"):
            module.cluster = self.attr()
        module.attrs = self.attrs()
        self.expect("{")
        module.body = self.region()
        return module


_TILES: dict[str, Callable[[_Parser], Type]] = {
    "tensor": _Parser.tensor,
    "buffer": _Parser.buffer,
    "barrier": _Parser.barrier,
    "desc": _Parser.descriptor,
    "token": lambda parser: Token(),
}


def _tokens(number: int, line: str) -> list[tuple[int, str]]:
    out, at = [], 0
    while at < len(line):
        m = _TOKEN.match(line, at)
        if m is None:
            raise ParseError(f"line {number}: cannot read {line[at : at + 20]!r}")
        if m.lastgroup:
            out.append((number, m[0]))
        at = m.end()
    return out


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text[1:-1])
