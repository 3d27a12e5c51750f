"""Inline PTX: code with scopes, predicates, labels and typed registers, compiled once per call site.

Where a block of it neither branches nor waits for other warps it runs in one go; otherwise `segments.py` takes it
apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Cta
from tlxc.emulator.parse import Instruction
from tlxc.emulator.pending import Pending
from tlxc.emulator.ptx_async import compile_gate
from tlxc.emulator.ptx_opcodes import compile_opcode
from tlxc.emulator.ptx_operands import (
    UNSIGNED,
    Action,
    Address,
    Frame,
    Immediate,
    PtxInstruction,
    PtxOperand,
    Register,
    Sink,
    Special,
    Vector,
    container,
    is_type,
    type_bits,
)
from tlxc.emulator.values import Array, StructType, Type, VoidType, element_type, from_bytes, raw_bytes, size_of


# -- parsing
class _Assembler:
    """Turns the text of one asm block into instructions; names are resolved to register numbers by scope."""

    def __init__(self, operand_bits: list[int]) -> None:
        self.widths = list(operand_bits)
        self.scopes: list[dict[str, int]] = [{}]
        self.code: list[PtxInstruction | str] = []

    def assemble(self, text: str) -> None:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text.replace("${:uid}", ""), flags=re.S)
        for statement in self._statements(text):
            if statement == "{":
                self.scopes.append({})
            elif statement == "}":
                self.scopes.pop()
            elif statement.startswith(".reg"):
                self._declare(statement)
            elif statement.endswith(":"):
                self.code.append(statement[:-1])
            else:
                self.code.append(self._instruction(statement))

    @staticmethod
    def _statements(text: str) -> list[str]:
        """Split at `;`; a brace at the start of a statement is a scope, a word before a colon a label."""
        statements = []
        for part in text.split(";"):
            part = part.strip()
            while match := re.match(r"([{}]|[\w$%]+:(?!:))\s*", part):
                statements.append(match[1])
                part = part[match.end() :]
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
            raise EmulatorError(f"The PTX statement '{statement}' is not understood.")
        guard = None
        if match[2]:
            register = self._operand(match[2])
            if not isinstance(register, Register):
                raise EmulatorError(f"The guard of '{statement}' is not a predicate register.")
            guard = (register.index, match[1] == "!")
        modifiers = tuple(m for m in match[4].split(".") if m)
        if match[3] == "bra":
            return PtxInstruction("bra", modifiers, [], " ".join(statement.split()), guard, match[5].strip())
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
        if "," in text:  # [tensor map, {coordinates}]
            map_, coordinates = _split(text)
            address = self._address(map_)
            return Address(address.base, address.offset, self._operand(coordinates))
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


@dataclass(eq=False)
class Site:
    """One `call asm`: the registers are those of results, arguments and declarations, in this order. `code` holds
    statements, and the names of labels as strings."""

    constraints: _Constraints
    results: list[Type]
    arguments: int
    widths: list[int]
    code: list[PtxInstruction | str]
    is_struct: bool

    @property
    def takes_apart(self) -> bool:
        """Whether it has control flow, or statements that may wait for other warps."""
        return any(isinstance(i, str) or i.opcode == "bra" or i.waits for i in self.code)

    @property
    def needs_warp_group(self) -> bool:
        return any(isinstance(i, PtxInstruction) and i.needs_warp_group for i in self.code)

    def frame(self, cta: Cta, args: list[Any]) -> Frame:
        """Registers with the arguments in them."""
        first_input, first_local = len(self.results), len(self.results) + self.arguments
        pending = {first_input + at: value for at, value in enumerate(args) if type(value) is Pending}
        if pending:
            args = [value.value if type(value) is Pending else value for value in args]
        registers = [_zeros(cta.lanes, bits) for bits in self.widths[:first_input]]
        registers += [_to_register(value, bits) for value, bits in zip(args, self.widths[first_input:])]
        registers += [_zeros(cta.lanes, bits) for bits in self.widths[first_local:]]
        for argument, output in self.constraints.ties.items():
            registers[output] = registers[first_input + argument]
            if first_input + argument in pending:
                pending[output] = pending[first_input + argument]
        return Frame(cta, registers, cta.active, pending=pending)

    def values(self, frame: Frame) -> Any:
        """What the call returns."""
        values: list[Any] = [_from_register(frame.registers[i], type_) for i, type_ in enumerate(self.results)]
        for at, pending in frame.pending.items():
            if at < len(values) and pending.is_pending:
                values[at] = pending.holding(values[at])
        return tuple(values) if self.is_struct or not values else values[0]


def assemble(call: Instruction) -> Site:
    """Parses the asm of a call."""
    constraints = _parse_constraints(call.detail["constraints"])
    results, arguments = _result_types(call.type), [o.type for o in call.operands]
    if constraints.outputs != len(results) or constraints.inputs != len(arguments):
        raise EmulatorError(
            f"The asm constraints declare {constraints.outputs} results and {constraints.inputs} arguments, the call "
            f"has {len(results)} and {len(arguments)}."
        )
    assembler = _Assembler([_register_bits(t) for t in [*results, *arguments]])
    assembler.assemble(call.detail["asm"])
    is_struct = isinstance(call.type, StructType)
    return Site(constraints, results, len(arguments), assembler.widths, assembler.code, is_struct)


def compile_assembly(call: Instruction) -> Callable[[Cta, list[Any]], Any]:
    """The handler of one `call asm` that runs from its start to its end."""
    site: Site = call.detail["site"]
    actions = [(i, compile_opcode(i)) for i in site.code if isinstance(i, PtxInstruction)]

    def run(cta: Cta, args: list[Any]) -> Any:
        frame = site.frame(cta, args)
        _execute(frame, actions, False)
        return site.values(frame)

    return run


# -- a site that is taken apart: its frame lives in the CTA, and every write concerns the active lanes only
def enter_site(site: Site, slots: list[int]) -> Callable[[Cta], tuple[()]]:
    def run(cta: Cta) -> tuple[()]:
        new, old = site.frame(cta, [cta.regs[s] for s in slots]), cta.frames.get(site)
        if old is not None and not cta.full:
            new.registers = [np.where(cta.active, n, o) for n, o in zip(new.registers, old.registers)]
            new.pending = {**old.pending, **new.pending}
        cta.frames[site] = new
        return ()

    return run


def run_statements(site: Site, code: list[PtxInstruction]) -> Callable[[Cta], tuple[()]]:
    actions = [(i, compile_opcode(i)) for i in code]

    def run(cta: Cta) -> tuple[()]:
        _execute(cta.frames[site], actions, not cta.full)
        return ()

    return run


def leave_site(site: Site) -> Callable[[Cta], Any]:
    return lambda cta: site.values(cta.frames[site])


def site_gate(site: Site, instruction: PtxInstruction) -> Callable[[Cta], Array]:
    """Which active lanes may execute a statement that waits; those that its guard leaves out do not wait."""
    gate = compile_gate(instruction)

    def run(cta: Cta) -> Array:
        frame = cta.frames[site]
        guard = _guard(frame, instruction)
        frame.mask = cta.active if guard is None else guard
        if not frame.mask.any():
            return cta.active
        try:
            return gate(frame)
        except EmulatorError as error:
            raise EmulatorError(f"{error}\n  PTX: {instruction.text[:200]}") from None

    return run


def _guard(frame: Frame, instruction: PtxInstruction) -> Array | None:
    """The active lanes whose guard holds; None without a guard."""
    if instruction.guard is None:
        return None
    return frame.cta.active & site_condition(frame, instruction.guard)


def site_condition(frame: Frame, guard: tuple[int, bool]) -> Array:
    index, negated = guard
    return ~frame.registers[index] if negated else frame.registers[index]


def _execute(frame: Frame, actions: list[tuple[PtxInstruction, Action]], partial: bool) -> None:
    """`partial`: other lanes have live values in the frame."""
    everyone = frame.cta.active
    for instruction, action in actions:
        guard = _guard(frame, instruction)
        frame.mask, frame.guarded = everyone if guard is None else guard, partial or guard is not None
        if guard is not None and not guard.any():
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
    unsigned = data.view(UNSIGNED[8 * data.shape[1]])[:, 0]
    return unsigned.astype(container(bits), copy=False)


def _from_register(register: Array, type_: Type) -> Array:
    if register.dtype == bool:
        return register
    if str(element_type(type_)) == "i1":
        return register != 0
    return from_bytes(raw_bytes(register)[:, : size_of(type_)], type_)
