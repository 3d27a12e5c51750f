"""Tokens of LLVM IR, and reading types, operands and constants from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.values import (
    FLOATS,
    ArrayType,
    FloatType,
    IntType,
    MetadataType,
    PointerType,
    ScalarType,
    StructType,
    Type,
    VectorType,
    VoidType,
    element_type,
    lane_type,
    size_of,
    to_bytes,
    vector_count,
)

_TOKEN = re.compile(
    r"""\s+|;.*                                           # blank, comment
    |(c?"[^"]*"                                           # string
    |\{\s*[a-z]\w*(?:\s*,\s*[a-z]\w*)*\s*\}                # a struct type of simple fields, which can be long
    |[%@$]"[^"]*"|[%@$][\w.$-]+|![\w.]*|\#\w+              # names, metadata, attribute groups
    |-?\d+\.\d*(?:[eE][+-]?\d+)?|-?[\w$][\w.$]*|\.\.\.     # numbers, words
    |.)""",
    re.VERBOSE,
)
OPEN, CLOSE = frozenset("([{<"), frozenset(")]}>")
_FLAGS = frozenset(
    "nuw nsw exact disjoint fast nnan ninf nsz arcp contract afn reassoc inbounds samesign nneg nusw volatile atomic "
    "weak tail musttail notail sideeffect alignstack inteldialect".split()
)


@dataclass(frozen=True)
class Operand:
    """`kind` is local (value: name), global (name), const (array of shape () or (count,), or a tuple of them), or
    expr (value: opcode, operands, source type)."""

    type: Type
    kind: str
    value: Any


def tokenize(text: str) -> list[str]:
    return [token for token in _TOKEN.findall(text) if token]


def name_of(token: str) -> str:
    """%name, @name or %"name" without the sigil and quotes."""
    return token[1:].strip('"')


class Cursor:
    """Reads one logical line token by token."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    @property
    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek
        self.at += 1
        return token

    def accept(self, *tokens: str) -> bool:
        if self.peek in tokens:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise EmulatorError(f"Expected '{token}', found '{self.peek or 'the end of the line'}'.")

    def skip_balanced(self) -> None:
        """Over one bracketed group, the cursor standing at its opening bracket."""
        depth = 0
        while True:
            token = self.take()
            depth += (token in OPEN) - (token in CLOSE)
            if not depth or not token:
                return

    def skip_flags(self) -> set[str]:
        flags = set()
        while self.peek in _FLAGS:
            flags.add(self.take())
        return flags

    def skip_attributes(self) -> None:
        """Parameter, return and function attributes: words, strings, `align N`, `name(...)`, `#n`."""
        while True:
            token = self.peek
            if token == "align":
                self.at += 2
            elif token.startswith(('"', "#")):
                self.at += 1
                if self.accept("="):
                    self.at += 1
            elif re.fullmatch(r"[a-z]\w*", token) and token not in _CONSTANT_WORDS:
                self.at += 1
            else:
                return
            if self.peek == "(":
                self.skip_balanced()

    def type(self) -> Type:
        token = self.take()
        if token == "ptr":
            space = 0
            if self.accept("addrspace"):
                self.expect("(")
                space = int(self.take())
                self.expect(")")
            return PointerType(space)
        if token[0] == "i" and token[1:].isdigit():
            bits = int(token[1:])
            if bits > 64:
                raise EmulatorError(f"The integer type {token} is not supported; i1 to i64 are.")
            return IntType(bits)
        if token in FLOATS:
            return FloatType(token)
        if token == "<" and self.peek[:1] == "{":
            return self._packed_struct()
        if token in ("<", "["):
            return self._sequence(token)
        if token == "{":
            return self._struct()
        if token[0] == "{":
            return _simple_struct(token)
        if token == "void":
            return VoidType()
        if token == "metadata":
            return MetadataType()
        raise EmulatorError(f"The type '{token}' is not supported by the emulator.")

    def _sequence(self, opening: str) -> Type:
        count = int(self.take())
        self.expect("x")
        element = self.type()
        self.expect(">" if opening == "<" else "]")
        if opening == "[":
            return ArrayType(count, element)
        if not isinstance(element, (IntType, FloatType, PointerType)):
            raise EmulatorError(f"A vector of {element} is not supported.")
        return VectorType(count, element)

    def _struct(self) -> StructType:
        """Fields up to the closing brace."""
        fields = []
        while not self.accept("}"):
            fields.append(self.type())
            self.accept(",")
        return StructType(tuple(fields))

    def _packed_struct(self) -> StructType:
        """`<{ ... }>`, the cursor behind the first bracket."""
        inner = self.type()
        self.expect(">")
        assert isinstance(inner, StructType)
        return StructType(inner.fields, packed=True)

    # -- values
    def typed_value(self) -> Operand:
        type_ = self.type()
        self.skip_attributes()
        return self.value(type_)

    def value(self, type_: Type) -> Operand:
        if isinstance(type_, MetadataType):
            while self.peek not in (",", ")", ""):
                self.skip_balanced()
            return Operand(type_, "const", ())
        token = self.peek
        if token[0] in "%@":
            self.at += 1
            return Operand(type_, "local" if token[0] == "%" else "global", name_of(token))
        if token in _EXPRESSIONS:
            return self._expression(type_)
        return Operand(type_, "const", self.constant(type_))

    def constant(self, type_: Type) -> Any:
        token = self.take()
        if token in ("zeroinitializer", "poison", "undef", "null"):
            return zero(type_)
        if token == "splat":
            self.expect("(")
            element = self.constant(self.type())
            self.expect(")")
            return np.full(vector_count(type_), element, element.dtype)
        if token == "<" and self.peek[:1] != "{":
            return np.stack(self._constant_list(">"))
        if token in ("{", "["):
            return tuple(self._constant_list("}" if token == "{" else "]"))
        if token.startswith('c"'):
            data = re.sub(r"\\([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), token[2:-1]).encode("latin-1")
            return tuple(np.array(byte, np.uint8) for byte in data)
        return scalar_constant(token, lane_type(type_))

    def _constant_list(self, closing: str) -> list[Any]:
        values = []
        while not self.accept(closing):
            values.append(self.constant(self.type()))
            self.accept(",")
        return values

    def _expression(self, type_: Type) -> Operand:
        opcode = self.take()
        self.skip_flags()
        if opcode == "getelementptr" and self.peek == "inrange":
            self.at += 1
            self.skip_balanced()
        self.expect("(")
        source: Type | None = None
        if opcode == "getelementptr":
            source = self.type()
            self.expect(",")
        operands = [self.typed_value()]
        while self.accept(","):
            operands.append(self.typed_value())
        if self.accept("to"):
            self.type()
        self.expect(")")
        return Operand(type_, "expr", (opcode, tuple(operands), source))


@lru_cache(maxsize=256)
def _simple_struct(token: str) -> StructType:
    """`{ float, float }`, which the tokenizer keeps in one piece."""
    return StructType(tuple(Cursor([word]).type() for word in re.findall(r"\w+", token)))


_CONSTANT_WORDS = frozenset("true false null poison undef zeroinitializer splat c none".split())
_EXPRESSIONS = frozenset("getelementptr ptrtoint inttoptr addrspacecast bitcast trunc add sub".split())
_CONSTANT_WORDS |= _EXPRESSIONS


def zero(type_: Type) -> Any:
    """The all-zero constant; also what `poison` and `undef` become."""
    if isinstance(type_, StructType):
        return tuple(zero(f) for f in type_.fields)
    if isinstance(type_, ArrayType):
        return tuple(zero(type_.element) for _ in range(type_.count))
    type_ = lane_type(type_)
    return np.zeros(vector_count(type_) or (), type_.dtype)


def scalar_constant(token: str, type_: Type) -> Any:
    element: ScalarType = element_type(type_)
    if token in ("true", "false"):
        return np.array(token == "true")
    try:
        if isinstance(element, FloatType):
            return _float_constant(token, element)
        value = int(token, 16) if token.startswith("0x") else int(token)
    except ValueError:
        raise EmulatorError(f"'{token}' is not a constant of type {type_}.") from None
    if isinstance(element, PointerType):
        return np.array(value, np.uint64)
    return np.array(value & ((1 << element.bits) - 1), element.dtype)


def _float_constant(token: str, type_: FloatType) -> Any:
    """Hexadecimal forms: 0xH half, 0xR bfloat, 0x the bits of a double (also for float)."""
    if token.startswith("0xH"):
        return np.array(int(token[3:], 16), np.uint16).view(np.float16)
    if token.startswith("0xR"):
        return np.array(int(token[3:], 16), np.uint16).view(FLOATS["bfloat"])
    if token.startswith("0x"):
        return np.array(int(token, 16), np.uint64).view(np.float64).astype(type_.dtype)
    return np.array(float(token)).astype(type_.dtype)


def constant_bytes(value: Any, type_: Type) -> bytes:
    """The memory image of a constant."""
    if isinstance(type_, ArrayType):
        return b"".join(constant_bytes(v, type_.element) for v in value)
    if isinstance(type_, StructType):
        image = bytearray(type_.size)
        for offset, element, part in zip(type_.offsets, type_.fields, value):
            image[offset : offset + size_of(element)] = constant_bytes(part, element)
        return bytes(image)
    return to_bytes(np.asarray(value)[None], type_).tobytes()
