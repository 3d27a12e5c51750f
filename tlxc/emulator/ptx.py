"""Inline PTX: straight-line code with scopes, predicates and typed registers, compiled once per call site.

Registers are untyped bits, held as (lanes,) arrays of uint16, uint32 or uint64 (bool for predicates); each operand is
viewed in the type its opcode names. An instruction with a guard acts on the lanes whose predicate holds and leaves
destinations alone elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Union

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Cta
from tlxc.emulator.parse import Instruction
from tlxc.emulator.values import BF16, Array, StructType, Type, VoidType, element_type, from_bytes, raw_bytes, size_of

_UNSIGNED = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}
_SIGNED = {8: np.dtype(np.int8), 16: np.dtype(np.int16), 32: np.dtype(np.int32), 64: np.dtype(np.int64)}
_FLOATS = {
    "f16": np.dtype(np.float16),
    "bf16": BF16,
    "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
_PAIRS = {"f16x2": np.dtype(np.float16), "bf16x2": BF16}
_BITS = {"f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32, "e4m3x2": 16, "e5m2x2": 16}


def is_type(name: str) -> bool:
    return name == "pred" or name in _BITS or bool(re.fullmatch(r"[bus](8|16|32|64)", name))


def type_bits(name: str) -> int:
    """Width of a PTX type, 1 for `pred`."""
    return 1 if name == "pred" else _BITS[name] if name in _BITS else int(name[1:])


def type_dtype(name: str) -> np.dtype[Any]:
    """How values of a scalar PTX type are computed with (`b` and `u` unsigned, packed pairs as their 32 bits)."""
    if name == "pred":
        return np.dtype(bool)
    if name in _FLOATS:
        return _FLOATS[name]
    return (_SIGNED if name[0] == "s" else _UNSIGNED)[type_bits(name)]


def container(bits: int) -> np.dtype[Any]:
    """The dtype of a register of that width; 8-bit values live in 16-bit registers."""
    return np.dtype(bool) if bits == 1 else _UNSIGNED[max(16, bits)]


# -- operands
@dataclass(frozen=True)
class Register:
    index: int


@dataclass(frozen=True)
class Immediate:
    """`is_float` says that `value` is a float number, not bits."""

    value: int | float
    is_float: bool = False


@dataclass(frozen=True)
class Special:
    name: str


@dataclass(frozen=True)
class Address:
    base: Any
    offset: int


@dataclass(frozen=True)
class Vector:
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Sink:
    """`_`: a result nobody wants."""


PtxOperand = Union[Register, Immediate, Special, Address, Vector, Sink]


@dataclass
class Frame:
    """One execution of an asm block: its registers, and the lanes that execute the current instruction."""

    cta: Cta
    registers: list[Array]
    mask: Array

    def read(self, operand: Any, type_name: str) -> Array:
        """The operand's value over all lanes in the dtype of a PTX type."""
        dtype = type_dtype(type_name)
        if isinstance(operand, Register):
            value = self.registers[operand.index]
            if value.dtype == dtype:
                return value
            bits = type_bits(type_name)
            if bits == 1 or value.dtype == bool:
                raise EmulatorError(f"A register of {value.dtype} is used where PTX needs .{type_name}.")
            if 8 * value.dtype.itemsize != bits:
                value = value.astype(_UNSIGNED[bits])
            return value.view(dtype)
        if isinstance(operand, Immediate):
            return self._immediate(operand, type_name, dtype)
        if isinstance(operand, Special):
            return self._special(operand.name).astype(_UNSIGNED[type_bits(type_name)]).view(dtype)
        raise EmulatorError(f"A PTX operand of type .{type_name} is needed, found {operand}.")

    def _immediate(self, operand: Immediate, type_name: str, dtype: np.dtype[Any]) -> Array:
        lanes = self.cta.lanes
        if operand.is_float:
            return np.full(lanes, operand.value).astype(dtype if dtype.kind not in "ui" else np.float32).view(dtype)
        if type_name == "pred":
            return np.full(lanes, bool(operand.value))
        bits = type_bits(type_name)
        return np.full(lanes, int(operand.value) % (1 << bits), _UNSIGNED[bits]).view(dtype)

    def _special(self, name: str) -> Array:
        from tlxc.emulator.nvptx import special_register

        read = special_register(name)
        if read is None:
            raise EmulatorError(f"The PTX special register %{name} is not known to the emulator.")
        return read(self.cta)

    def write(self, operand: Any, value: Array) -> None:
        """Bits of `value`, zero- or sign-extended by its dtype to the register; only on the lanes of the guard."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise EmulatorError(f"A PTX result needs a register, found {operand}.")
        old = self.registers[operand.index]
        if old.dtype != bool:
            if value.dtype.kind not in "ui":
                value = np.ascontiguousarray(value).view(_UNSIGNED[8 * value.dtype.itemsize])
            value = value.astype(old.dtype)
        elif value.dtype != bool:
            raise EmulatorError("A PTX value that is no predicate is written to a predicate register.")
        self.registers[operand.index] = np.where(self.mask, value, old)

    def addresses(self, operand: Any) -> Array:
        """Addresses over all lanes of `[register+offset]`; 32-bit registers hold shared addresses."""
        if not isinstance(operand, Address):
            raise EmulatorError(f"A PTX address is needed, found {operand}.")
        if isinstance(operand.base, Immediate):
            base = np.full(self.cta.lanes, operand.base.value, np.uint64)
        else:
            base = self.registers[operand.base.index].astype(np.uint64)
        return base + np.uint64(operand.offset % (1 << 64))


@dataclass
class PtxInstruction:
    """`opcode` is the first word, `modifiers` the others; `types` are the modifiers that are types."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: list[Any]
    text: str
    guard: tuple[int, bool] | None
    types: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.types = tuple(m for m in self.modifiers if is_type(m))

    @property
    def type(self) -> str:
        if not self.types:
            raise EmulatorError(f"The PTX instruction '{self.text}' names no type the emulator knows.")
        return self.types[-1]

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers

    def unknown(self, what: str) -> EmulatorError:
        return EmulatorError(f"PTX '{self.text}': {what}.")


Action = Callable[[Frame], None]


# -- parsing
class _Assembler:
    """Turns the text of one asm block into instructions; names are resolved to register numbers by scope."""

    def __init__(self, operand_bits: list[int]) -> None:
        self.widths = list(operand_bits)
        self.scopes: list[dict[str, int]] = [{}]
        self.code: list[PtxInstruction] = []

    def assemble(self, text: str) -> None:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S).replace("$$", "%%dollar")
        for statement in self._statements(text):
            if statement == "{":
                self.scopes.append({})
            elif statement == "}":
                self.scopes.pop()
            elif statement.startswith(".reg"):
                self._declare(statement)
            else:
                self.code.append(self._instruction(statement))

    @staticmethod
    def _statements(text: str) -> list[str]:
        """Split at `;`; a brace at the start of a statement is a scope."""
        statements = []
        for part in text.split(";"):
            part = part.strip()
            while part[:1] in ("{", "}") and part:
                statements.append(part[0])
                part = part[1:].strip()
            if part:
                statements.append(part)
        return statements

    def _declare(self, statement: str) -> None:
        match = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", statement, re.S)
        if not match or not is_type(match[1]):
            raise EmulatorError(f"The PTX declaration '{statement}' is not supported.")
        for name in match[2].split(","):
            ranged = re.fullmatch(r"([\w$%]+)<(\d+)>", name.strip())
            names = [f"{ranged[1]}{i}" for i in range(int(ranged[2]))] if ranged else [name.strip()]
            for each in names:
                self.scopes[-1][each] = len(self.widths)
                self.widths.append(type_bits(match[1]))

    def _instruction(self, statement: str) -> PtxInstruction:
        match = re.fullmatch(r"(?:@(!?)\s*([\w$%]+)\s+)?([a-z]\w*)((?:\.[\w:]+)*)\s*(.*)", statement, re.S)
        if not match:
            raise EmulatorError(f"The PTX statement '{statement}' is not understood; straight-line code is supported.")
        guard = None
        if match[2]:
            register = self._operand(match[2])
            if not isinstance(register, Register):
                raise EmulatorError(f"The guard of '{statement}' is not a predicate register.")
            guard = (register.index, match[1] == "!")
        modifiers = tuple(m for m in match[4].split(".") if m)
        operands = [self._operand(o) for o in _split(match[5])]
        return PtxInstruction(match[3], modifiers, operands, " ".join(statement.split()), guard)

    def _operand(self, text: str) -> PtxOperand:
        text = text.strip()
        if text == "_":
            return Sink()
        if text.startswith("{"):
            return Vector(tuple(self._operand(part) for part in _split(text[1:-1])))
        if text.startswith("["):
            return self._address(text[1:-1])
        if re.fullmatch(r"\$\d+", text):
            return self._register(int(text[1:]), text)
        for scope in reversed(self.scopes):
            if text in scope:
                return Register(scope[text])
        if text.startswith("%"):
            return Special(text.lstrip("%"))
        return _number(text)

    def _register(self, index: int, text: str) -> Register:
        if index >= len(self.widths):
            raise EmulatorError(f"Inline PTX names the operand {text}, which the constraints do not declare.")
        return Register(index)

    def _address(self, text: str) -> Address:
        match = re.fullmatch(r"\s*([\w$%]+)\s*(?:\+\s*(-?\w+))?\s*", text)
        if not match:
            raise EmulatorError(f"The PTX address '[{text}]' is not supported; [register] and [register+offset] are.")
        base = self._operand(match[1])
        if not isinstance(base, (Register, Immediate)):
            raise EmulatorError(f"The PTX address '[{text}]' has no register as its base.")
        return Address(base, int(match[2], 0) if match[2] else 0)


def _split(text: str) -> list[str]:
    """At commas outside of brackets; `p|q` counts as two operands."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "{[") - (char in "}]")
        if char in ",|" and not depth:
            parts.append(current)
            current = ""
        else:
            current += char
    return [p for p in [*parts, current] if p.strip()]


def _number(text: str) -> Immediate:
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return Immediate(int(text[2:], 16))
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return Immediate(int(text[2:], 16))
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        return Immediate(int(text.rstrip("U"), 0))
    if re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?", text):
        return Immediate(float(text), is_float=True)
    raise EmulatorError(f"The PTX operand '{text}' is neither a declared register nor a number.")


# -- the call
@dataclass
class _Constraints:
    """`outputs` result registers come first, then one register per argument; `ties` maps an argument to an output."""

    outputs: int
    inputs: int
    ties: dict[int, int]


def _parse_constraints(text: str) -> _Constraints:
    outputs, inputs, ties = 0, 0, {}
    for item in filter(None, text.split(",")):
        if item.startswith("~"):
            continue
        if item.startswith("="):
            outputs += 1
            continue
        if item.isdigit():
            ties[inputs] = int(item)
        elif not re.fullmatch(r"[chrlfdnib]", item):
            raise EmulatorError(f"The asm constraint '{item}' is not supported.")
        inputs += 1
    return _Constraints(outputs, inputs, ties)


def _result_types(type_: Type) -> list[Type]:
    if isinstance(type_, VoidType):
        return []
    return list(type_.fields) if isinstance(type_, StructType) else [type_]


def _register_bits(type_: Type) -> int:
    return 1 if str(type_) == "i1" else 8 * max(2, size_of(type_))


def compile_assembly(call: Instruction) -> Callable[[Cta, list[Any]], Any]:
    """The handler of one `call asm`."""
    from tlxc.emulator.ptx_opcodes import compile_opcode

    constraints = _parse_constraints(call.detail["constraints"])
    results, arguments = _result_types(call.type), [o.type for o in call.operands]
    if constraints.outputs != len(results) or constraints.inputs != len(arguments):
        raise EmulatorError(
            f"The asm constraints declare {constraints.outputs} results and {constraints.inputs} arguments, the call has "
            f"{len(results)} and {len(arguments)}."
        )
    assembler = _Assembler([_register_bits(t) for t in [*results, *arguments]])
    assembler.assemble(call.detail["asm"])
    widths, scalar = assembler.widths, not isinstance(call.type, StructType)
    actions = [(i, compile_opcode(i)) for i in assembler.code]
    first_input, first_local = len(results), len(results) + len(arguments)

    def run(cta: Cta, args: list[Any]) -> Any:
        registers = [_zeros(cta.lanes, bits) for bits in widths[:first_input]]
        registers += [_to_register(value, bits) for value, bits in zip(args, widths[first_input:])]
        registers += [_zeros(cta.lanes, bits) for bits in widths[first_local:]]
        for argument, output in constraints.ties.items():
            registers[output] = registers[first_input + argument]
        _execute(Frame(cta, registers, cta.active), actions)
        values = [_from_register(registers[i], type_) for i, type_ in enumerate(results)]
        return values[0] if scalar and values else tuple(values)

    return run


def _execute(frame: Frame, actions: list[tuple[PtxInstruction, Action]]) -> None:
    everyone = frame.cta.active
    for instruction, action in actions:
        frame.mask = everyone
        if instruction.guard is not None:
            index, negated = instruction.guard
            predicate = frame.registers[index]
            frame.mask = everyone & (~predicate if negated else predicate)
            if not frame.mask.any():
                continue
        try:
            action(frame)
        except EmulatorError as error:
            raise EmulatorError(f"{error}\n  PTX: {instruction.text[:200]}") from None


def _zeros(lanes: int, bits: int) -> Array:
    return np.zeros(lanes, container(bits))


def _to_register(value: Array, bits: int) -> Array:
    if bits == 1:
        return value
    data = raw_bytes(value)
    unsigned = data.view(_UNSIGNED[8 * data.shape[1]])[:, 0]
    return unsigned.astype(container(bits), copy=False)


def _from_register(register: Array, type_: Type) -> Array:
    if register.dtype == bool:
        return register
    if str(element_type(type_)) == "i1":
        return register != 0
    return from_bytes(raw_bytes(register)[:, : size_of(type_)], type_)
