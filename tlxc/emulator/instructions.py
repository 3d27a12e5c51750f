"""Each LLVM instruction compiled once to a closure over register numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tlxc.emulator import numerics
from tlxc.emulator.cursor import Operand
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Cta
from tlxc.emulator.memory import SHARED_WINDOW
from tlxc.emulator.parse import Instruction
from tlxc.emulator.values import (
    Array,
    ArrayType,
    IntType,
    LaneValue,
    PointerType,
    StructType,
    Type,
    VectorType,
    align_of,
    element_type,
    from_bytes,
    int_type,
    signed,
    size_of,
    to_bytes,
    unsigned,
    vector_count,
)

Run = Callable[[Cta], LaneValue]
Function = Callable[..., Any]


@dataclass
class Context:
    """What compiling an instruction needs to know: `slot` gives the register of an operand (constants have one too),
    `lookup` finds an intrinsic, `assembly` compiles inline assembly."""

    slot: Callable[[Operand], int]
    lookup: Callable[[Instruction], Callable[[Cta, list[Any]], Any]]
    assembly: Callable[[Instruction], Callable[[Cta, list[Any]], Any]]


def pure(context: Context, instruction: Instruction, function: Function) -> Run:
    """A closure that applies `function` to the operands."""
    slots = [context.slot(o) for o in instruction.operands]
    if len(slots) == 1:
        (a,) = slots
        return lambda cta: function(cta.regs[a])
    if len(slots) == 2:
        a, b = slots
        return lambda cta: function(cta.regs[a], cta.regs[b])
    return lambda cta: function(*[cta.regs[s] for s in slots])


# -- integer and float arithmetic
_INTEGER: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "shl": np.left_shift,
}
_BITWISE: dict[str, Function] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshr": np.right_shift,
}
_FLOAT: dict[str, Function] = {
    "fadd": np.add,
    "fsub": np.subtract,
    "fmul": np.multiply,
    "fdiv": np.divide,
    "frem": lambda a, b: numerics.convert(np.fmod(a.astype(np.float64), b.astype(np.float64)), a.dtype),
}


def _c_quotient(a: Array, b: Array) -> Array:
    """Division that truncates toward zero."""
    return (a - np.fmod(a, b)) // b


_DIVISION: dict[str, tuple[Function, bool]] = {
    "udiv": (np.floor_divide, False),
    "urem": (np.remainder, False),
    "sdiv": (_c_quotient, True),
    "srem": (np.fmod, True),
}


def _binary(context: Context, i: Instruction) -> Run:
    type_ = i.type
    if i.opcode in _FLOAT:
        return pure(context, i, _FLOAT[i.opcode])
    integer = int_type(type_)
    if i.opcode in _DIVISION:
        return _division(context, i, integer)
    if integer.bits == 1 and i.opcode in ("shl", "lshr", "ashr"):
        return pure(context, i, lambda a, b: a)  # only a shift by 0 is defined
    if i.opcode in _BITWISE:
        return pure(context, i, _BITWISE[i.opcode])
    if i.opcode == "ashr":
        return pure(context, i, lambda a, b: unsigned(signed(a, integer) >> signed(b, integer), integer))
    function = _INTEGER[i.opcode]
    if integer.bits == 1:
        return pure(context, i, {"add": np.logical_xor, "sub": np.logical_xor, "mul": np.logical_and}[i.opcode])
    if integer.mask is None:
        return pure(context, i, function)
    return pure(context, i, lambda a, b: unsigned(function(a, b), integer))


def _division(context: Context, i: Instruction, type_: IntType) -> Run:
    function, is_signed = _DIVISION[i.opcode]
    a, b = (context.slot(o) for o in i.operands)

    def run(cta: Cta) -> Array:
        left, right = cast(Array, cta.regs[a]), cast(Array, cta.regs[b])
        zero = right == 0
        if zero.any():
            lanes = (zero if zero.ndim == 1 else zero.any(axis=1)) & cta.active
            if lanes.any():
                raise EmulatorError(f"Integer division by zero in lane {int(np.argmax(lanes))}.")
            right = np.where(zero, np.array(1, right.dtype), right)
        if is_signed:
            return unsigned(function(signed(left, type_), signed(right, type_)), type_)
        return cast(Array, function(left, right))

    return run


def _fneg(context: Context, i: Instruction) -> Run:
    return pure(context, i, np.negative)


_ICMP: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _icmp(context: Context, i: Instruction) -> Run:
    predicate = i.detail["predicate"]
    function = _ICMP[predicate[-2:]]
    if predicate[0] != "s":
        return pure(context, i, function)
    type_ = int_type(i.operands[0].type)
    return pure(context, i, lambda a, b: function(signed(a, type_), signed(b, type_)))


def _is_ordered(a: Array, b: Array) -> Array:
    return (a == a) & (b == b)


FCMP: dict[str, Function] = {
    "oeq": np.equal,
    "ogt": np.greater,
    "oge": np.greater_equal,
    "olt": np.less,
    "ole": np.less_equal,
    "one": lambda a, b: np.less(a, b) | np.greater(a, b),
    "ord": _is_ordered,
    "ueq": lambda a, b: ~(np.less(a, b) | np.greater(a, b)),
    "ugt": lambda a, b: ~np.less_equal(a, b),
    "uge": lambda a, b: ~np.less(a, b),
    "ult": lambda a, b: ~np.greater_equal(a, b),
    "ule": lambda a, b: ~np.greater(a, b),
    "une": np.not_equal,
    "uno": lambda a, b: ~_is_ordered(a, b),
    "true": lambda a, b: np.ones(a.shape, bool),
    "false": lambda a, b: np.zeros(a.shape, bool),
}


def _fcmp(context: Context, i: Instruction) -> Run:
    return pure(context, i, FCMP[i.detail["predicate"]])


def _select_value(condition: Array, yes: Any, no: Any) -> Any:
    if isinstance(yes, tuple):
        return tuple(_select_value(condition, y, n) for y, n in zip(yes, no))
    return np.where(condition if condition.ndim == yes.ndim else condition[:, None], yes, no)


def _select(context: Context, i: Instruction) -> Run:
    return pure(context, i, _select_value)


# -- conversions
def _cast(context: Context, i: Instruction) -> Run:
    return pure(context, i, _CASTS[i.opcode](i.operands[0].type, i.type))


def _trunc(source: Type, to: Type) -> Function:
    type_ = int_type(to)
    return lambda v: unsigned(v, type_)


def _zext(source: Type, to: Type) -> Function:
    dtype = int_type(to).dtype
    return lambda v: v.astype(dtype)


def _sext(source: Type, to: Type) -> Function:
    narrow, wide = int_type(source), int_type(to)
    return lambda v: unsigned(signed(v, narrow).astype(np.int64), wide)


def _float_to_float(source: Type, to: Type) -> Function:
    dtype = element_type(to).dtype
    return lambda v: numerics.convert(v, dtype)


def _float_to_integer(is_signed: bool) -> Callable[[Type, Type], Function]:
    def build(source: Type, to: Type) -> Function:
        type_ = int_type(to)
        return lambda v: unsigned(numerics.to_integer(v, is_signed, type_.bits), type_)

    return build


def _unsigned_to_float(source: Type, to: Type) -> Function:
    dtype = element_type(to).dtype
    return lambda v: numerics.from_integer(v, dtype)


def _signed_to_float(source: Type, to: Type) -> Function:
    type_, dtype = int_type(source), element_type(to).dtype
    return lambda v: numerics.from_integer(signed(v, type_), dtype)


def bitcast(source: Type, to: Type) -> Function:
    if source == to:
        return lambda v: v
    same = vector_count(source) == vector_count(to) and IntType(1) not in (element_type(source), element_type(to))
    if same and element_type(source).dtype.itemsize == element_type(to).dtype.itemsize:
        dtype = element_type(to).dtype
        return lambda v: np.ascontiguousarray(v).view(dtype)
    return lambda v: from_bytes(to_bytes(v, source), to)


def _addrspacecast(source: Type, to: Type) -> Function:
    """Between generic and shared the window is added or taken away; a null pointer stays null."""
    assert isinstance(source, PointerType) and isinstance(to, PointerType)
    window = np.uint64(SHARED_WINDOW)
    if source.space in (3, 7) and to.space == 0:
        return lambda v: v + window
    if source.space == 0 and to.space in (3, 7):
        return lambda v: np.where(v == 0, v, v - window)
    return lambda v: v


_CASTS: dict[str, Callable[[Type, Type], Function]] = {
    "trunc": _trunc,
    "zext": _zext,
    "sext": _sext,
    "fptrunc": _float_to_float,
    "fpext": _float_to_float,
    "fptosi": _float_to_integer(True),
    "fptoui": _float_to_integer(False),
    "uitofp": _unsigned_to_float,
    "sitofp": _signed_to_float,
    "ptrtoint": _trunc,
    "ptrtoaddr": _trunc,
    "inttoptr": lambda source, to: lambda v: v.astype(np.uint64),
    "bitcast": lambda source, to: bitcast(source, to),
    "addrspacecast": _addrspacecast,
}


# -- vectors and aggregates
def constant_index(operand: Operand) -> int | None:
    return int(operand.value) if operand.kind == "const" else None


def _checked_index(index: Array, count: int) -> Array:
    if (index >= count).any():
        raise EmulatorError(f"A vector of {count} elements is indexed with {int(index.max())}.")
    return index.astype(np.int64)


def _extractelement(context: Context, i: Instruction) -> Run:
    index = constant_index(i.operands[1])
    vector = context.slot(i.operands[0])
    if index is not None:
        return lambda cta: cast(Array, cta.regs[vector])[:, index]
    count = vector_count(i.operands[0].type)
    return pure(context, i, lambda v, at: v[np.arange(len(v)), _checked_index(at, count)])


def _insertelement(context: Context, i: Instruction) -> Run:
    index, count = constant_index(i.operands[2]), vector_count(i.type)

    def insert(vector: Array, element: Array, at: Array) -> Array:
        result = vector.copy()
        if index is not None:
            result[:, index] = element
        else:
            result[np.arange(len(vector)), _checked_index(at, count)] = element
        return result

    return pure(context, i, insert)


def _shufflevector(context: Context, i: Instruction) -> Run:
    if i.operands[2].kind != "const":
        raise EmulatorError("The mask of shufflevector must be constant.")
    mask = i.operands[2].value.astype(np.int64)
    count = vector_count(i.operands[0].type)
    if (mask < count).all():
        return pure(context, i, lambda a, b, m: a[:, mask])
    return pure(context, i, lambda a, b, m: np.concatenate([a, b], axis=1)[:, mask])


def _extractvalue(context: Context, i: Instruction) -> Run:
    indices = i.detail["indices"]

    def extract(value: Any) -> Any:
        for index in indices:
            value = value[index]
        return value

    return pure(context, i, extract)


def _insert_field(aggregate: Any, element: Any, indices: list[int]) -> Any:
    at, *rest = indices
    new = _insert_field(aggregate[at], element, rest) if rest else element
    return (*aggregate[:at], new, *aggregate[at + 1 :])


def _insertvalue(context: Context, i: Instruction) -> Run:
    indices = i.detail["indices"]
    return pure(context, i, lambda aggregate, element: _insert_field(aggregate, element, indices))


# -- memory
def gep_terms(source: Type, operands: tuple[Operand, ...]) -> tuple[int, list[tuple[Operand, int]]]:
    """(constant byte offset, [(index operand, scale in bytes)]) of a getelementptr."""
    offset, terms, type_ = 0, [], source
    for position, operand in enumerate(operands[1:]):
        if position:
            if isinstance(type_, StructType):
                field = int(operand.value)
                offset += type_.offsets[field]
                type_ = type_.fields[field]
                continue
            if not isinstance(type_, (ArrayType, VectorType)):
                raise EmulatorError(f"getelementptr cannot index into {type_}.")
            type_ = type_.element
        if operand.kind == "const":
            offset += int(signed(operand.value[None], int_type(operand.type))[0]) * size_of(type_)
        else:
            terms.append((operand, size_of(type_)))
    return offset, terms


def _getelementptr(context: Context, i: Instruction) -> Run:
    offset, terms = gep_terms(i.detail["source"], i.operands)
    base = context.slot(i.operands[0])
    fixed = np.uint64(offset % (1 << 64))
    if not terms:
        return lambda cta: cast(Array, cta.regs[base]) + fixed
    parts = [(context.slot(o), int_type(o.type), np.int64(scale)) for o, scale in terms]

    def run(cta: Cta) -> Array:
        address = cast(Array, cta.regs[base])
        for slot, type_, scale in parts:
            index = signed(cast(Array, cta.regs[slot]), type_).astype(np.int64)
            address = address + (index * scale).view(np.uint64)
        return address + fixed if offset else address

    return run


def _space(operand: Operand) -> int:
    if not isinstance(operand.type, PointerType):
        raise EmulatorError(f"A memory access needs a pointer, found {operand.type}.")
    return operand.type.space


def _load(context: Context, i: Instruction) -> Run:
    type_, size = i.type, size_of(i.type)
    space, align = _space(i.operands[0]), i.detail["align"] or align_of(type_)
    pointer = context.slot(i.operands[0])
    return lambda cta: from_bytes(cta.load(space, cast(Array, cta.regs[pointer]), size, align), type_)


def _store(context: Context, i: Instruction) -> Run:
    value, pointer = (context.slot(o) for o in i.operands)
    type_ = i.operands[0].type
    space, align = _space(i.operands[1]), i.detail["align"] or align_of(type_)

    def run(cta: Cta) -> LaneValue:
        rows = to_bytes(cast(Array, cta.regs[value]), type_)
        cta.store(space, cast(Array, cta.regs[pointer]), rows, align)
        return ()

    return run


def _signed_pair(function: Function) -> Callable[[Type], Function]:
    def build(type_: Type) -> Function:
        integer = int_type(type_)
        return lambda old, new: unsigned(function(signed(old, integer), signed(new, integer)), integer)

    return build


def _same(function: Function) -> Callable[[Type], Function]:
    return lambda type_: function


ATOMIC: dict[str, Callable[[Type], Function]] = {
    "xchg": _same(lambda old, new: new),
    "add": _same(np.add),
    "sub": _same(np.subtract),
    "and": _same(np.bitwise_and),
    "or": _same(np.bitwise_or),
    "xor": _same(np.bitwise_xor),
    "umax": _same(np.maximum),
    "umin": _same(np.minimum),
    "max": _signed_pair(np.maximum),
    "min": _signed_pair(np.minimum),
    "fadd": _same(np.add),
    "fsub": _same(np.subtract),
    "fmax": _same(numerics.max_number),
    "fmin": _same(numerics.min_number),
}


def _atomicrmw(context: Context, i: Instruction) -> Run:
    operation = i.detail["operation"]
    if operation not in ATOMIC:
        raise EmulatorError(f"atomicrmw {operation} is not supported; {', '.join(ATOMIC)} are.")
    type_, space = i.type, _space(i.operands[0])
    function = ATOMIC[operation](type_)
    pointer, value = (context.slot(o) for o in i.operands)

    def run(cta: Cta) -> Array:
        operand = cast(Array, cta.regs[value])

        def update(old: Array, lanes: Array) -> Array:
            return to_bytes(function(from_bytes(old, type_), operand[lanes]), type_)

        old = cta.read_modify_write(space, cast(Array, cta.regs[pointer]), size_of(type_), update)
        return from_bytes(old, type_)

    return run


def _cmpxchg(context: Context, i: Instruction) -> Run:
    type_, space = i.operands[1].type, _space(i.operands[0])
    pointer, expected, desired = (context.slot(o) for o in i.operands)

    def run(cta: Cta) -> LaneValue:
        want, new = cast(Array, cta.regs[expected]), cast(Array, cta.regs[desired])

        def update(old: Array, lanes: Array) -> Array:
            value = from_bytes(old, type_)
            return to_bytes(np.where(value == want[lanes], new[lanes], value), type_)

        old = from_bytes(cta.read_modify_write(space, cast(Array, cta.regs[pointer]), size_of(type_), update), type_)
        return old, old == want

    return run


# -- calls
def _call(context: Context, i: Instruction) -> Run:
    handler = context.assembly(i) if "asm" in i.detail else context.lookup(i)
    slots = [context.slot(o) for o in i.operands]
    return lambda cta: handler(cta, [cta.regs[s] for s in slots])


_COMPILERS: dict[str, Callable[[Context, Instruction], Run]] = {
    **dict.fromkeys([*_INTEGER, *_BITWISE, *_FLOAT, *_DIVISION, "ashr"], _binary),
    **dict.fromkeys(_CASTS, _cast),
    "fneg": _fneg,
    "freeze": lambda context, i: pure(context, i, lambda v: v),
    "icmp": _icmp,
    "fcmp": _fcmp,
    "select": _select,
    "extractelement": _extractelement,
    "insertelement": _insertelement,
    "shufflevector": _shufflevector,
    "extractvalue": _extractvalue,
    "insertvalue": _insertvalue,
    "getelementptr": _getelementptr,
    "load": _load,
    "store": _store,
    "atomicrmw": _atomicrmw,
    "cmpxchg": _cmpxchg,
    "fence": lambda context, i: lambda cta: (),
    "call": _call,
}


def compile_instruction(context: Context, instruction: Instruction) -> Run:
    """The closure of any instruction but phi and the terminators, which are control flow."""
    return _COMPILERS[instruction.opcode](context, instruction)
