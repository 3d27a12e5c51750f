"""One line of LLVM IR to an `Instruction`. Flags, metadata and attributes that do not change the meaning are skipped;
an opcode that is not in the table is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tlxc.emulator.cursor import Cursor, Operand, name_of
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.values import ArrayType, IntType, StructType, Type, VectorType, VoidType, element_type, vector_count

_CALLING_CONVENTIONS = frozenset("ccc fastcc coldcc ptx_kernel ptx_device amdgpu_kernel spir_kernel".split())


@dataclass
class Instruction:
    """One instruction. `type` is the result type; `detail` holds what only some opcodes have (see the parsers)."""

    opcode: str
    dst: str | None
    type: Type
    operands: tuple[Operand, ...]
    line: int
    text: str
    detail: dict[str, Any] = field(default_factory=dict)


# -- instructions: each parser returns (result type, operands, detail)


def _parse_binary(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    first = c.typed_value()
    c.expect(",")
    return first.type, [first, c.value(first.type)], {}


def _parse_compare(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    predicate = c.take()
    type_, operands, _ = _parse_binary(c)
    count = vector_count(type_)
    result: Type = VectorType(count, IntType(1)) if count else IntType(1)
    return result, operands, {"predicate": predicate}


def _parse_cast(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    operand = c.typed_value()
    c.expect("to")
    return c.type(), [operand], {}


def _parse_typed_list(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    """freeze, fneg, select, insertelement, shufflevector, extractelement: typed operands, result like the obvious."""
    c.skip_flags()
    operands = [c.typed_value()]
    while c.peek == "," and not c.tokens[c.at + 1].startswith("!"):
        c.take()
        operands.append(c.typed_value())
    return operands[0].type, operands, {}


def _parse_select(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    _, operands, detail = _parse_typed_list(c)
    return operands[1].type, operands, detail


def _parse_extractelement(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    type_, operands, detail = _parse_typed_list(c)
    return element_type(type_), operands, detail


def _parse_shufflevector(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    type_, operands, detail = _parse_typed_list(c)
    return VectorType(vector_count(operands[2].type), element_type(type_)), operands, detail


def _parse_indices(c: Cursor) -> list[int]:
    indices = []
    while c.peek == "," and not c.tokens[c.at + 1].startswith("!"):
        c.take()
        indices.append(int(c.take()))
    return indices


def _parse_extractvalue(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    aggregate = c.typed_value()
    indices = _parse_indices(c)
    type_ = aggregate.type
    for index in indices:
        type_ = _field(type_, index)
    return type_, [aggregate], {"indices": indices}


def _field(type_: Type, index: int) -> Type:
    if isinstance(type_, StructType):
        return type_.fields[index]
    if isinstance(type_, ArrayType):
        return type_.element
    raise EmulatorError(f"{type_} is not an aggregate.")


def _parse_insertvalue(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    aggregate = c.typed_value()
    c.expect(",")
    element = c.typed_value()
    return aggregate.type, [aggregate, element], {"indices": _parse_indices(c)}


def _parse_gep(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    source = c.type()
    c.expect(",")
    type_, operands, _ = _parse_typed_list(c)
    return type_, operands, {"source": source}


def _parse_memory_suffix(c: Cursor) -> dict[str, Any]:
    """`syncscope("...") ordering, align N` after a pointer operand; only the alignment matters here."""
    align = None
    while c.peek and not c.peek.startswith("!"):
        token = c.take()
        if token == "align":
            align = int(c.take())
        elif token == "," and c.peek.startswith("!"):
            break
    return {"align": align}


def _parse_load(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    type_ = c.type()
    c.expect(",")
    pointer = c.typed_value()
    return type_, [pointer], _parse_memory_suffix(c)


def _parse_store(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    value = c.typed_value()
    c.expect(",")
    pointer = c.typed_value()
    return VoidType(), [value, pointer], _parse_memory_suffix(c)


def _parse_atomicrmw(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    operation = c.take()
    pointer = c.typed_value()
    c.expect(",")
    value = c.typed_value()
    return value.type, [pointer, value], {"operation": operation, **_parse_memory_suffix(c)}


def _parse_cmpxchg(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    operands = [c.typed_value()]
    for _ in range(2):
        c.expect(",")
        operands.append(c.typed_value())
    return StructType((operands[1].type, IntType(1))), operands, _parse_memory_suffix(c)


def _parse_phi(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    type_ = c.type()
    operands, blocks = [], []
    while c.accept("["):
        operands.append(c.value(type_))
        c.expect(",")
        blocks.append(name_of(c.take()))
        c.expect("]")
        if not (c.peek == "," and c.tokens[c.at + 1] == "["):
            break
        c.take()
    return type_, operands, {"blocks": blocks}


def _parse_label(c: Cursor) -> str:
    c.expect("label")
    return name_of(c.take())


def _parse_br(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    if c.peek == "label":
        return VoidType(), [], {"targets": [_parse_label(c)]}
    condition = c.typed_value()
    c.expect(",")
    then = _parse_label(c)
    c.expect(",")
    return VoidType(), [condition], {"targets": [then, _parse_label(c)]}


def _parse_switch(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    """targets: the default, then one per case value."""
    value = c.typed_value()
    c.expect(",")
    targets, cases = [_parse_label(c)], []
    c.expect("[")
    while not c.accept("]"):
        cases.append(int(c.typed_value().value))
        c.expect(",")
        targets.append(_parse_label(c))
    return VoidType(), [value], {"targets": targets, "cases": cases}


def _parse_ret(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    if c.take() != "void":
        raise EmulatorError("Only kernels are executed, and a kernel returns void.")
    return VoidType(), [], {}


def _parse_nothing(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    return VoidType(), [], {}


def _parse_call(c: Cursor) -> tuple[Type, list[Operand], dict[str, Any]]:
    c.skip_flags()
    while c.peek in _CALLING_CONVENTIONS:
        c.take()
    while c.peek in _RETURN_ATTRIBUTES:
        c.take()
        if c.peek == "(":
            c.skip_balanced()
    type_ = c.type()
    detail: dict[str, Any] = {}
    if c.peek == "(":  # a full function type
        c.skip_balanced()
    if c.accept("asm"):
        detail["effects"] = c.skip_flags()
        detail["asm"] = _unescape(c.take()[1:-1])
        c.expect(",")
        detail["constraints"] = _unescape(c.take()[1:-1])
    elif c.peek.startswith("@"):
        detail["callee"] = name_of(c.take())
    else:
        raise EmulatorError(f"Only direct calls and inline asm are supported, found a call of '{c.peek}'.")
    c.expect("(")
    operands = []
    while not c.accept(")"):
        operands.append(c.typed_value())
        c.accept(",")
    return type_, operands, detail


_RETURN_ATTRIBUTES = frozenset("noundef signext zeroext inreg noalias nonnull range nofpclass dereferenceable".split())


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), text)


BINARY = frozenset("add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem".split())
CASTS = frozenset(
    "trunc zext sext fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint ptrtoaddr inttoptr bitcast "
    "addrspacecast".split()
)
_PARSERS: dict[str, Callable[[Cursor], tuple[Type, list[Operand], dict[str, Any]]]] = {
    **dict.fromkeys(BINARY, _parse_binary),
    **dict.fromkeys(CASTS, _parse_cast),
    **dict.fromkeys(("freeze", "fneg", "insertelement"), _parse_typed_list),
    **dict.fromkeys(("icmp", "fcmp"), _parse_compare),
    **dict.fromkeys(("unreachable", "fence"), _parse_nothing),
    "select": _parse_select,
    "extractelement": _parse_extractelement,
    "shufflevector": _parse_shufflevector,
    "extractvalue": _parse_extractvalue,
    "insertvalue": _parse_insertvalue,
    "getelementptr": _parse_gep,
    "load": _parse_load,
    "store": _parse_store,
    "atomicrmw": _parse_atomicrmw,
    "cmpxchg": _parse_cmpxchg,
    "phi": _parse_phi,
    "br": _parse_br,
    "switch": _parse_switch,
    "ret": _parse_ret,
    "call": _parse_call,
}
TERMINATORS = frozenset(("br", "switch", "ret", "unreachable"))


def parse_instruction(tokens: list[str], line: int, text: str) -> Instruction:
    cursor = Cursor(tokens)
    dst = None
    if len(tokens) > 1 and tokens[1] == "=":
        dst = name_of(cursor.take())
        cursor.take()
    while cursor.peek in ("tail", "musttail", "notail"):
        cursor.take()
    opcode = cursor.take()
    parser = _PARSERS.get(opcode)
    if parser is None:
        raise EmulatorError(f"The instruction '{opcode}' is not supported by the emulator.")
    type_, operands, detail = parser(cursor)
    return Instruction(opcode, dst, type_, tuple(operands), line, text, detail)
