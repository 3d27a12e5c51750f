"""Cuts blocks so that every instruction that may have to wait for another warp is the first of its block.

A warp's program counter is therefore always the number of a block. Inline PTX that waits, or that branches, is taken
apart as well: its statements become pseudo-instructions on registers that the call site owns.

    asm.enter   arguments to the site's registers          asm.branch  [guard] bra: targets (taken, next)
    asm.run     straight-line statements (`code`)          asm.leave   the site's registers to the result
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tlxc.emulator import amdgcn, nvptx_async
from tlxc.emulator.barriers import sync_gate
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Cta
from tlxc.emulator.module import Block
from tlxc.emulator.parse import Instruction
from tlxc.emulator.ptx import Site, assemble
from tlxc.emulator.ptx_operands import PtxInstruction
from tlxc.emulator.values import Array, VoidType


def is_gate(instruction: Instruction) -> bool:
    """Whether the instruction may have to wait for other warps."""
    name = instruction.detail.get("callee", "")
    return bool(nvptx_async.GATE_NAMES.fullmatch(name) or amdgcn.GATE_NAMES.fullmatch(name))


def call_gate(name: str) -> Callable[[Cta, list[Any]], Array]:
    """Which lanes may execute a call of that intrinsic now."""
    if amdgcn.GATE_NAMES.fullmatch(name):
        return lambda cta, args: sync_gate(cta, None, None)
    return nvptx_async.call_gate(name)


def cut_blocks(blocks: dict[str, Block]) -> dict[str, Block]:
    """The same code in blocks that begin at what may wait. Later pieces of a block are named after it; `origin` is the
    block they come from."""
    result: dict[str, Block] = {}
    for block in blocks.values():
        for piece in _Cutter(block).pieces:
            result[piece.name] = piece
    return result


class _Cutter:
    def __init__(self, block: Block) -> None:
        self.block = block
        self.pieces = [Block(block.name, origin=block.name)]
        for instruction in block.instructions:
            self._add(instruction)

    def _name(self, at: int) -> str:
        return f"{self.block.name}#{at}"

    def _next(self, line: Instruction) -> None:
        """Starts a new piece; the present one falls into it."""
        here, name = self.pieces[-1], self._name(len(self.pieces))
        if not here.instructions or here.instructions[-1].opcode != "asm.branch":
            here.instructions.append(_pseudo(line, "br", targets=[name]))
        self.pieces.append(Block(name, origin=self.block.name))

    def _add(self, instruction: Instruction) -> None:
        if "asm" in instruction.detail:
            site = assemble(instruction)
            instruction.detail["site"] = site
            if site.takes_apart:
                self._assembly(instruction, site)
                return
            if site.needs_warp_group:
                self._gate(instruction)
                return
        elif is_gate(instruction):
            self._gate(instruction)
            return
        self.pieces[-1].instructions.append(instruction)

    def _gate(self, instruction: Instruction) -> None:
        """An instruction that may wait, at the start of a piece (phis may precede it)."""
        if any(i.opcode != "phi" for i in self.pieces[-1].instructions):
            self._next(instruction)
        self.pieces[-1].instructions.append(instruction)

    def _assembly(self, call: Instruction, site: Site) -> None:
        enter = _pseudo(call, "asm.enter", site=site)
        enter.operands = call.operands
        self.pieces[-1].instructions.append(enter)
        places: dict[str, int] = {}
        branches: list[Instruction] = []
        for item in site.code:
            if isinstance(item, str):
                self._next(call)
                places[item] = len(self.pieces) - 1
            elif item.opcode == "bra":
                branch = _pseudo(call, "asm.branch", site=site, guard=item.guard)
                branch.detail["targets"] = [item.label, self._name(len(self.pieces))][: 2 if item.guard else 1]
                branches.append(branch)
                self.pieces[-1].instructions.append(branch)
                self._next(call)
            else:
                self._statement(call, site, item)
        leave = _pseudo(call, "asm.leave", site=site)
        leave.dst, leave.type = call.dst, call.type
        self.pieces[-1].instructions.append(leave)
        for branch in branches:
            label = branch.detail["targets"][0]
            if label not in places:
                raise EmulatorError(f"The label '{label}' of a PTX branch is not in the same asm block.")
            branch.detail["targets"][0] = self._name(places[label])

    def _statement(self, call: Instruction, site: Site, item: PtxInstruction) -> None:
        last = self.pieces[-1].instructions[-1] if self.pieces[-1].instructions else None
        if item.waits or item.needs_warp_group:
            self._next(call)
        elif last is not None and last.opcode == "asm.run":
            last.detail["code"].append(item)
            return
        self.pieces[-1].instructions.append(_pseudo(call, "asm.run", site=site, code=[item]))


def _pseudo(call: Instruction, opcode: str, **detail: object) -> Instruction:
    return Instruction(opcode, None, VoidType(), (), call.line, call.text, dict(detail))
