"""`ldmatrix` and `stmatrix`: shared-memory accesses in which a warp moves 8x8 matrices of 16-bit elements.

Each lane hands in the address of one 16-byte row; four lanes share a row in registers (transposed: eight lanes a row, a
register two rows).  Which lanes address which rows is again a layout: the accessed one with bases moved, so the address
code is that of plain accesses.  Source: PTX ISA, "ldmatrix" and "stmatrix".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tlxc.codegen.simt import buffer
from tlxc.codegen.simt.buffer import buffer_type, shared_addresses, shared_runs
from tlxc.codegen.simt.lowering import Lowering, layout_of
from tlxc.ir.core import Op
from tlxc.ir.layout import Layout, intern
from tlxc.ir.memory import Memory, matrix_access
from tlxc.ir.types import element_of
from tlxc.targets import Target

_CONVERGENT = " #1"


@dataclass(frozen=True)
class Plan:
    """`rows`: the layout whose lanes address rows; `words`: per instruction, the register pairs that its words hold."""

    count: int  # matrices per instruction
    transposed: bool
    rows: Layout
    firsts: tuple[int, ...]  # registers of `rows` that address the instructions
    words: tuple[tuple[tuple[int, int], ...], ...]


@cache
def plan(layout: Layout, mem: Memory, transposed: bool) -> Plan | None:
    """How 16-bit elements in `layout` are moved by matrices; None where they cannot be."""
    if not matrix_access(layout, mem, 2, transposed):
        return None
    reg, lane = list(layout.reg), layout.lane
    step = reg[0] if transposed else layout.pack(mem.coords_of_bit(0) or ())
    if step not in reg:
        return None  # the pair is a sum of bases: registers would have to be renamed first
    pair = reg.index(step)
    chosen = [i for i in range(len(reg)) if i != pair][:2]
    rest = [i for i in range(len(reg)) if i != pair and i not in chosen]
    row_lanes = (step, lane[0], lane[1]) if transposed else lane[2:]
    lanes = (*row_lanes, *(reg[i] for i in chosen), *(0,) * (2 - len(chosen)))
    ins = (("register", tuple(reg[i] for i in rest)), ("lane", lanes), *layout.ins[2:])
    rows = intern(ins, layout.bits, layout.reps)
    words, firsts = [], []
    for r in range(rows.registers):
        low, repetition = r & ((1 << len(rest)) - 1), r >> len(rest)
        base = repetition << len(reg) | _spread(low, rest)
        starts = [base | _spread(q, chosen) for q in range(1 << len(chosen))]
        words.append(tuple((s, s | 1 << pair) for s in starts))
        firsts.append(r)
    return Plan(1 << len(chosen), transposed, rows, tuple(firsts), tuple(words))


def _spread(index: int, positions: list[int]) -> int:
    """Bit i of the index at positions[i]."""
    return sum((index >> i & 1) << p for i, p in enumerate(positions))


def _better(
    target: Target, layout: Layout, mem: Memory, size: int, feature: str, forms: tuple[bool, ...]
) -> Plan | None:
    """A plan with fewer instructions than plain vector accesses, or None."""
    if size != 2 or feature not in target.features:
        return None
    plain = len(shared_runs(layout, mem, 2))
    plans = [p for form in forms if (p := plan(layout, mem, form)) is not None and len(p.words) < plain]
    return min(plans, key=lambda p: len(p.words), default=None)


def load_plan(target: Target, layout: Layout, mem: Memory, size: int) -> Plan | None:
    """How a tile is loaded by matrices; None where plain loads are no more."""
    return _better(target, layout, mem, size, "ldmatrix", (False, True))


def store_plan(target: Target, layout: Layout, mem: Memory, size: int) -> Plan | None:
    """How a tile is stored by matrices; None where plain stores are no more, or where copies must not store."""
    if any(layout.free_masks().values()):
        return None
    return _better(target, layout, mem, size, "stmatrix", (False, True))


def local_load(low: Lowering, op: Op) -> None:
    layout, (_, mem) = layout_of(op.result), buffer_type(op.inputs[0])
    p = load_plan(low.target, layout, mem, element_of(op.result.type).bytes)
    if p is None:
        buffer.local_load(low, op)
        return
    w = low.w
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{p.count}.{'trans.' if p.transposed else ''}b16.p3"
    runs = []
    for address, pairs in zip(shared_addresses(low, op.inputs[0], p.rows, p.firsts), p.words):
        words = w.call_values(["i32"] * p.count, name, [("ptr addrspace(3)", address)], _CONVERGENT)
        runs += [(regs, [x]) for regs, x in zip(pairs, words)]
    low.set_words(op.result, runs)


def local_store(low: Lowering, op: Op) -> None:
    layout, (_, mem) = layout_of(op.inputs[1]), buffer_type(op.inputs[0])
    p = store_plan(low.target, layout, mem, element_of(op.inputs[1].type).bytes)
    if p is None:
        buffer.local_store(low, op)
        return
    name = f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{p.count}.{'trans.' if p.transposed else ''}b16.p3"
    for address, pairs in zip(shared_addresses(low, op.inputs[0], p.rows, p.firsts), p.words):
        words = [low.words(op.inputs[1], regs)[0] for regs in pairs]
        args = [("ptr addrspace(3)", address)] + [("i32", x) for x in words]
        low.w.call("void", name, args, _CONVERGENT)
