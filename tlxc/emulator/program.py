"""Compiles a parsed kernel for one CTA size: registers, constants, global variables, blocks and branch edges."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tlxc.emulator import amdgcn, barriers, generic, nvptx, nvptx_async, ptx
from tlxc.emulator.cursor import Operand
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.instructions import Context, compile_instruction, gep_terms
from tlxc.emulator.machine import CompiledBlock, Cta, Edge, Gate, Program, Step, located
from tlxc.emulator.memory import SHARED_BASE, SHARED_WINDOW, constant_address
from tlxc.emulator.module import Block, Function, Module
from tlxc.emulator.order import block_order
from tlxc.emulator.parse import Instruction
from tlxc.emulator.segments import call_gate, cut_blocks, is_gate
from tlxc.emulator.values import Array, IntType, LaneValue, PointerType, VoidType, lane_type, size_of

_WORD = (1 << 64) - 1


def compile_program(module: Module, function: Function, lanes: int, warp_size: int) -> Program:
    """`function` for CTAs of `lanes` lanes in warps of `warp_size`."""
    return _Compiler(module, function, lanes, warp_size).program


class _Compiler:
    def __init__(self, module: Module, function: Function, lanes: int, warp_size: int) -> None:
        self.function, self.lanes = function, lanes
        self.addresses: dict[str, int] = {}
        self.shared = {v.name for v in module.globals.values() if v.space == 3}
        self.registers: list[LaneValue | None] = []
        self.names: dict[str, int] = {}
        self.constants: dict[Any, int] = {}
        self.program = Program(
            function.name, lanes, warp_size, self.registers, [], shared_base=0 if function.is_amd else SHARED_BASE
        )
        declared = re.search(r'"nvvm.cluster_dim"="(\d+),(\d+),(\d+)"', function.attributes.replace(" ", ""))
        if declared:
            self.program.cluster = (int(declared[1]), int(declared[2]), int(declared[3]))
        self._place_globals(module)
        for type_, name in function.params:
            self.program.params.append((self._name(name), lane_type(type_).dtype))
        self.pieces = cut_blocks(function.blocks)
        order = block_order(self.pieces)
        self.index = {block.name: at for at, block in enumerate(order)}
        self.escaping = _escaping_names(order)
        for block in order:
            self.program.blocks.append(self._block(block))

    # -- global variables
    def _place_globals(self, module: Module) -> None:
        """Static shared arrays one after the other, then the dynamic one; constant variables become buffers."""
        program, dynamic = self.program, []
        end = program.shared_base
        for variable in module.globals.values():
            if variable.space != 3:
                if variable.data is not None:
                    self.addresses[variable.name] = constant_address(len(program.constants))
                    program.constants.append((variable.name, variable.data))
            elif variable.external:
                dynamic.append(variable)
            else:
                end = -(-end // variable.align) * variable.align
                self.addresses[variable.name] = end
                end += size_of(variable.type)
        program.static_shared = end - program.shared_base
        for variable in dynamic:
            end = -(-end // variable.align) * variable.align
        for variable in dynamic:
            self.addresses[variable.name] = end
            program.dynamic_start = end - program.shared_base

    def _address(self, name: str) -> int:
        if name not in self.addresses:
            raise EmulatorError(
                f"The global variable @{name} has no contents; internal ones with a value are supported."
            )
        return self.addresses[name]

    # -- operands
    def _name(self, name: str) -> int:
        slot = self.names.get(name)
        if slot is None:
            slot = self.names[name] = len(self.registers)
            self.registers.append(None)
        return slot

    def slot(self, operand: Operand) -> int:
        """The register of an operand; constants get one that holds them for all lanes."""
        if operand.kind == "local":
            return self._name(operand.value)
        is_shared = operand.kind != "const" and self._is_shared(operand)
        if operand.kind != "const":
            operand = Operand(operand.type, "const", np.array(self._scalar(operand), lane_type(operand.type).dtype))
        key = is_shared, _constant_key(operand.value)
        slot = self.constants.get(key)
        if slot is None:
            slot = self.constants[key] = len(self.registers)
            self.registers.append(self._spread(operand.value))
            if is_shared:
                self.program.shared_slots.append(slot)
        return slot

    def _is_shared(self, operand: Operand) -> bool:
        """Whether a constant is an address in shared memory, which differs between the CTAs of a cluster."""
        if operand.kind == "global":
            return operand.value in self.shared
        return operand.kind == "expr" and any(self._is_shared(o) for o in operand.value[1])

    def _spread(self, value: Any) -> LaneValue:
        if isinstance(value, tuple):
            return tuple(self._spread(v) for v in value)
        array = np.empty((self.lanes, *value.shape), value.dtype)
        array[...] = value
        array.flags.writeable = False
        return array

    def _scalar(self, operand: Operand) -> int:
        """The integer value of a global's address or a constant expression."""
        if operand.kind == "global":
            return self._address(operand.value)
        if operand.kind == "const":
            return int(operand.value)
        opcode, operands, source = operand.value
        if opcode == "getelementptr":
            offset, terms = gep_terms(source, operands)
            return (self._scalar(operands[0]) + offset + sum(self._scalar(o) * s for o, s in terms)) & _WORD
        values = [self._scalar(o) for o in operands]
        if opcode == "addrspacecast":
            spaces = [cast(PointerType, t).space for t in (operands[0].type, operand.type)]
            shift = {(3, 0): SHARED_WINDOW, (0, 3): -SHARED_WINDOW}.get((spaces[0], spaces[1]), 0)
            return (values[0] + shift) & _WORD
        result = {"add": sum(values), "sub": values[0] - sum(values[1:])}.get(opcode, values[0])
        return result & ((1 << operand.type.bits) - 1 if isinstance(operand.type, IntType) else _WORD)

    # -- code
    def _block(self, block: Block) -> CompiledBlock:
        context = Context(self.slot, self._lookup, ptx.compile_assembly)
        steps: list[Step] = []
        instruction, gate = block.terminator, None
        try:
            for instruction in block.instructions[:-1]:
                if instruction.opcode == "phi" or _is_debug(instruction):
                    continue
                if not steps:
                    gate = self._gate(instruction)
                run = self._pseudo(instruction) or compile_instruction(context, instruction)
                void = instruction.dst is None or isinstance(instruction.type, VoidType)
                dst = -1 if void else self._name(cast(str, instruction.dst))
                steps.append(Step(run, dst, instruction.dst not in self.escaping, instruction))
            instruction = block.terminator
            return CompiledBlock(steps, self._terminator(block), instruction, gate)
        except EmulatorError as error:
            if error.located:
                raise
            raise EmulatorError(located(error, instruction), located=True) from None

    def _pseudo(self, i: Instruction) -> Callable[[Cta], LaneValue] | None:
        """The pieces of inline PTX that was taken apart."""
        if i.opcode == "asm.enter":
            return ptx.enter_site(i.detail["site"], [self.slot(o) for o in i.operands])
        if i.opcode == "asm.run":
            return ptx.run_statements(i.detail["site"], i.detail["code"])
        return ptx.leave_site(i.detail["site"]) if i.opcode == "asm.leave" else None

    def _gate(self, first: Instruction) -> Gate | None:
        """The gate of a block that begins with an instruction that may have to wait."""
        if first.opcode == "asm.run":
            statement = first.detail["code"][0]
            needed = statement.waits or statement.needs_warp_group
            return ptx.site_gate(first.detail["site"], statement) if needed else None
        if "asm" in first.detail:
            return barriers.warp_group_gate if first.detail["site"].needs_warp_group else None
        if not is_gate(first):
            return None
        gate, slots = call_gate(first.detail["callee"]), [self.slot(o) for o in first.operands]
        return lambda cta: gate(cta, [cta.regs[s] for s in slots])

    def _lookup(self, instruction: Instruction) -> Callable[[Cta, list[Any]], Any]:
        name = instruction.detail["callee"]
        for table in (generic.INTRINSICS, nvptx.INTRINSICS, nvptx_async.INTRINSICS, amdgcn.INTRINSICS):
            for pattern, factory in table.items():
                match = re.fullmatch(pattern, name)
                if match:
                    return factory(instruction, match, self.function.attributes)
        raise EmulatorError(f"The function @{name} is not known to the emulator.")

    def _terminator(self, block: Block) -> Callable[[Cta], None]:
        terminator = block.terminator
        edges = [self._edge(block, target) for target in block.targets]
        if terminator.opcode == "ret":
            return _leave(Edge(len(self.index), []))
        if terminator.opcode == "unreachable":
            return _unreachable
        if len(edges) == 1:
            return _leave(edges[0])
        if terminator.opcode == "asm.branch":
            return _site_branch(terminator.detail["site"], terminator.detail["guard"], edges)
        value = self.slot(terminator.operands[0])
        if terminator.opcode == "br":
            return _branch(value, edges)
        type_ = lane_type(terminator.operands[0].type)
        cases = [np.array(c % (1 << 64), np.uint64).astype(type_.dtype) for c in terminator.detail["cases"]]
        return _switch(value, cases, edges)

    def _edge(self, block: Block, target: str) -> Edge:
        moves = []
        for instruction in self.pieces[target].instructions:
            if instruction.opcode != "phi":
                break
            if block.origin not in instruction.detail["blocks"]:
                raise EmulatorError(f"The phi %{instruction.dst} has no value for the block %{block.origin}.")
            source = instruction.operands[instruction.detail["blocks"].index(block.origin)]
            moves.append((self._name(cast(str, instruction.dst)), self.slot(source)))
        return Edge(self.index[target], moves)


def _constant_key(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_constant_key(v) for v in value)
    return value.dtype.name, value.shape, value.tobytes()


def _is_debug(instruction: Instruction) -> bool:
    return instruction.detail.get("callee", "").startswith("llvm.dbg.")


def _escaping_names(order: list[Block]) -> set[str | None]:
    """Names read in a block other than their own, and phi results."""
    home: dict[str, str] = {}
    last: dict[str, str] = {}  # the piece that leaves a block, where phis read
    for block in order:
        if not any(target.startswith(f"{block.origin}#") for target in block.targets):
            last[block.origin] = block.name
    for block in order:
        for instruction in block.instructions:
            if instruction.dst is not None and instruction.opcode != "phi":
                home[instruction.dst] = block.name
    escaping: set[str | None] = set()
    for block in order:
        for instruction in block.instructions:
            readers = (
                [last.get(name, name) for name in instruction.detail["blocks"]]
                if instruction.opcode == "phi"
                else [block.name] * len(instruction.operands)
            )
            for operand, reader in zip(instruction.operands, readers):
                if operand.kind == "local" and home.get(operand.value) != reader:
                    escaping.add(operand.value)
    return escaping


def _leave(edge: Edge) -> Callable[[Cta], None]:
    return lambda cta: cta.take(edge, cta.active)


def _unreachable(cta: Cta) -> None:
    raise EmulatorError(f"Lane {int(np.argmax(cta.active))} reaches an unreachable instruction.")


def _split(cta: Cta, condition: Array, edges: list[Edge]) -> None:
    yes = cta.active & condition
    if not yes.any():
        cta.take(edges[1], cta.active)
        return
    no = cta.active & ~condition
    if not no.any():
        cta.take(edges[0], cta.active)
        return
    for mask, edge in ((yes, edges[0]), (no, edges[1])):
        cta.take(edge, mask)


def _branch(value: int, edges: list[Edge]) -> Callable[[Cta], None]:
    return lambda cta: _split(cta, cast(Array, cta.regs[value]), edges)


def _site_branch(site: ptx.Site, guard: tuple[int, bool], edges: list[Edge]) -> Callable[[Cta], None]:
    return lambda cta: _split(cta, ptx.site_condition(cta.frames[site], guard), edges)


def _switch(value: int, cases: list[Array], edges: list[Edge]) -> Callable[[Cta], None]:
    def terminate(cta: Cta) -> None:
        chosen = cast(Array, cta.regs[value])
        rest = cta.active
        for case, edge in zip(cases, edges[1:]):
            mask = rest & (chosen == case)
            rest = rest & ~mask
            if mask.any():
                cta.take(edge, mask)
        if rest.any():
            cta.take(edges[0], rest)

    return terminate
