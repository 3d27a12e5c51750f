"""Notes on what the assembler reports: spills, products that it serialises, and its other remarks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tlxc.errors import Location
from tlxc.ir.core import Module

from .note import Note
from .program import with_loops

# What ptxas says after "serialized due to" -> (the cause in plain words, what avoids it)
SERIALISED: dict[str, tuple[str, str]] = {
    "the presence of Extern calls": ("a function is called that ptxas cannot see into", ""),
    "wgmma pipeline crossing function boundary": ("products are under way when a function is called", ""),
    "insufficient register resources": (
        "accumulators and operands that are under way together need more registers than there are",
        "use smaller accumulators, more warps or consumers for a tile, or more registers for the task (num_regs)",
    ),
    "non wgmma instructions defining input registers": (
        "registers of an operand are written while a product that may read them is under way",
        "call async_dot_wait before the operand is computed anew",
    ),
    "non wgmma instructions reading accumulator registers": (
        "an accumulator is read while its product is under way",
        "call async_dot_wait before the accumulator is used",
    ),
    "non wgmma instructions defining accumulator registers": (
        "an accumulator is written, as when it is set to zero or copied, while products are under way",
        "start a sum by use_acc=False, and wait for products before their accumulators change",
    ),
    "ill formed pipeline stage": (
        "ptxas cannot tell where products begin and where they are waited for",
        "start products and wait for them in the same loop or branch",
    ),
    "compiler-inserted WG.DP in divergent path": (
        "a wait for products stands where threads of a warpgroup may take different branches",
        "branch on values that are the same for all threads of the task",
    ),
    "compiler-inserted WG.AR in divergent path": (
        "products start where threads of a warpgroup may take different branches",
        "branch on values that are the same for all threads of the task",
    ),
}


def assembler_notes(remarks: Sequence[str], module: Module) -> list[Note]:
    """`remarks`: lines of the assembler's report.  It names functions, not lines: where several products are in the
    kernel, the note stands at the first, one in a loop if there is such."""
    return [_serialised(remark, module) or Note("assembler", remark) for remark in dict.fromkeys(remarks)]


def _serialised(remark: str, module: Module) -> Note | None:
    found = re.search(r"serialized due to (.*?)(?: in the function '|$)", remark)
    if found is None:
        return None
    cause, fix = next((row for start, row in SERIALISED.items() if start in found[1]), (found[1], ""))
    code = re.match(r"\((C\d+)\)", remark)
    told = f" (ptxas {code[1]})" if code else ""
    places = _products(module)
    which = "products of wgmma are waited for" if len(places) > 1 else "this product of wgmma is waited for"
    return Note("serialise", f"{which} one by one: {cause}{told}", places[0] if places else None, fix)


def _products(module: Module) -> list[Location]:
    """Where products of wgmma stand, those in loops first."""
    found = {
        op.loc: loop is None
        for op, loop in with_loops(module.body)
        if op.loc is not None and (op.kind == "async_dot" or op.attrs.get("impl") == "wgmma")
    }
    return sorted(found, key=lambda loc: found[loc])


def spills(cost: str, registers: int | None, module: Module) -> list[Note]:
    """`cost`: what is kept in memory because registers ran out; empty where they did not."""
    if not cost:
        return []
    fix = "use smaller tiles or more warps"
    if module.maxnreg is not None:
        fix = f"raise maxnreg={module.maxnreg}, or {fix}"
    return [Note("spill", f"registers ran out, with {registers} in use: {cost}", None, fix)]
