"""`breakpoint()` in a simulated kernel: what is where, and a prompt for it at a terminal."""

from __future__ import annotations

import ast
import cmd
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tlxc.errors import source_excerpt
from tlxc.ir.core import Op
from tlxc.ir.types import Buffer

from .agents import AsyncOp, Pending
from .barriers import MBarrier, Rendezvous
from .deadlock import state
from .memory import Array, Place, foot_of
from .reports import at, place

if TYPE_CHECKING:
    from .machine import Strand

_EDGE, _WHOLE = 3, 12  # elements that are shown at each edge of a tile, and of tiles that are shown whole


def stop(strand: Strand, op: Op, values: Mapping[str, Any]) -> None:
    """Asks at a terminal what to show; elsewhere shows all and goes on.  PYTHONBREAKPOINT=0 turns it off, as for
    Python's own."""
    if os.environ.get("PYTHONBREAKPOINT") == "0":
        return
    here = Stop(strand, op, values)
    if sys.stdin is not None and sys.stdin.isatty():
        _Prompt(here).cmdloop()
        return
    for lines in (here.where(), here.variables(), here.tasks(), here.barriers()):
        print("\n".join(lines))


class Stop:
    """A strand at a breakpoint.  `names`: the variables, tiles as arrays, buffers as copies of their bytes."""

    def __init__(self, strand: Strand, op: Op, values: Mapping[str, Any]) -> None:
        self.strand, self.op = strand, op
        self.names: dict[str, Any] = dict(_shared(strand))
        self.names |= {name: _shown(value) for name, value in op.attrs["constants"]}
        self.names |= {name: _shown(value) for name, value in values.items()}
        _tuples(self.names)

    def where(self) -> list[str]:
        """The place in the source, and who is there."""
        out = [f"breakpoint in {self.strand.name}, {place(self.op)}"]
        if self.op.loc is not None:
            for i, loc in enumerate((self.op.loc, *self.op.loc.callers)):
                out.append(f"  {'called from ' if i else ''}{loc}")
                out += filter(None, [source_excerpt(loc)])
        return out

    def variables(self) -> list[str]:
        return [f"  {name} = {_short(value)}" for name, value in self.names.items()]

    def tasks(self) -> list[str]:
        """Every task and all work of engines: where it is, or what it waits for."""
        machine = self.strand.machine
        out = []
        for strand in machine.strands.values():
            out.append(f"  {strand.name}: {'here' if strand is self.strand else _place(strand)}")
        under_way = {id(w): w for w in machine.ready if isinstance(w, AsyncOp)}
        under_way |= {id(w): w for s in machine.strands.values() for w in s.lane}
        for work in under_way.values():
            out.append(
                f"  engine of {work.strand.name}: {at(work.op)}, {work.done} of {len(work.stages)} steps are done"
            )
        return out

    def barriers(self) -> list[str]:
        """mbarriers and named barriers of the CTA: phases, what is missing, who waits."""
        cta, out = self.strand.cta, []
        for bar in cta.barriers.values():
            waiting = f"; waited for by {', '.join(s.name for s in bar.waiters)}" if bar.waiters else ""
            out.append(f"  {bar.label}: {_Barrier(bar)}{waiting}")
        for number, found in cta.named.items():
            out.append(f"  named barrier {number}: {_meeting(found)}")
        return out


def _place(strand: Strand) -> str:
    if strand.done:
        return "at its end"
    if strand.blocked is not None:
        return f"{at(strand.blocked.op)} {state(strand.blocked, strand.machine.program.protocol)}"
    return "at its beginning" if strand.step is None else f"before {at(strand.step.op)}"


class _Barrier:
    """An mbarrier at the prompt: the number of its open phase and what that lacks."""

    def __init__(self, bar: MBarrier) -> None:
        self.phase, self.pending, self.count, self.bytes = bar.phase, bar.pending, bar.count, bar.tx

    def __repr__(self) -> str:
        return f"phase {self.phase} open; {self.pending} of {self.count} arrivals and {self.bytes} bytes pending"


def _meeting(found: Rendezvous) -> str:
    present = ", ".join(a.strand.name for a in found.arrived) or "nobody"
    return f"round {found.round}; {found.got} of {found.count or 'any number of'} threads present ({present})"


def _shared(strand: Strand) -> Iterator[tuple[str, Any]]:
    """Buffers and barriers by the names that the kernel gives them; an array of buffers has one axis more."""
    cta = strand.cta
    for op, name in strand.machine.program.names.items():
        t = op.result.type
        if op.loc is None or not name.isidentifier():
            continue
        if isinstance(t, Buffer):
            tiles = [_tile(strand, op, t, i) for i in range(max(1, t.count))]
            yield name, np.stack(tiles) if t.count else tiles[0]
        elif (first := cta.barriers.get(op.attrs["offset"])) is not None:
            count = first.place.type.count
            found = [_Barrier(cta.barriers[op.attrs["offset"] + 8 * i]) for i in range(max(1, count))]
            yield name, found if count else found[0]


def _tile(strand: Strand, op: Op, t: Buffer, i: int) -> Array:
    return strand.cta.memory.read(Place(op.attrs["offset"] + t.tile_offset(i), t, foot_of(t), ""))


def _shown(value: Any) -> Any:
    return value.op if isinstance(value, Pending) and not value.ready else getattr(value, "value", value)


def _tuples(names: dict[str, Any]) -> None:
    """`t.0` and `t.1` become the tuple `t`."""
    for name in [n for n in names if "." in n]:
        whole = name.rpartition(".")[0]
        names[whole] = (*names.get(whole, ()), names.pop(name))


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_short, value))})"
    if isinstance(value, Op):
        return f"the result of {at(value)}, which is under way"
    if isinstance(value, np.ndarray) and value.ndim:
        text = np.array2string(value, threshold=_WHOLE, edgeitems=_EDGE, separator=", ")
        return f"{value.dtype} {list(value.shape)} {' '.join(text.split())}"
    return repr(value.item() if isinstance(value, (np.ndarray, np.generic)) else value)


class _Prompt(cmd.Cmd):
    """Commands, and Python expressions of the variables."""

    prompt = "(tlxc) "

    def __init__(self, here: Stop) -> None:
        super().__init__()
        self.here, self.scope = here, {"np": np, **here.names}
        self.intro = "\n".join([*here.where(), "help lists the commands; anything else is a Python expression"])

    def _show(self, lines: Callable[[], list[str]]) -> None:
        self.stdout.write("\n".join(lines()) + "\n")

    def do_where(self, rest: str) -> None:
        """The place in the source, and which task is there."""
        self._show(self.here.where)

    def do_variables(self, rest: str) -> None:
        """The variables, shortened."""
        self._show(self.here.variables)

    def do_tasks(self, rest: str) -> None:
        """Every task and engine: where it is, what it waits for."""
        self._show(self.here.tasks)

    def do_barriers(self, rest: str) -> None:
        """The barriers of the CTA: open phase, what it lacks, who waits."""
        self._show(self.here.barriers)

    def do_p(self, rest: str) -> None:
        """p EXPRESSION: its value, also where a variable has the name of a command."""
        self.default(rest)

    def do_continue(self, rest: str) -> bool:
        """Goes on to the next breakpoint."""
        return True

    def do_off(self, rest: str) -> bool:
        """Goes on, and does not stop again in this launch."""
        self.here.strand.machine.schedule.stops = False
        return True

    def do_quit(self, rest: str) -> None:
        """Ends the program."""
        raise KeyboardInterrupt

    def do_EOF(self, rest: str) -> None:
        self.do_quit(rest)

    def emptyline(self) -> bool:
        return False

    def default(self, line: str) -> None:
        """An expression is shown, a statement run: its names are the prompt's own, the kernel does not change."""
        try:
            tree = ast.parse(line, "<breakpoint>")
            if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
                value = eval(compile(ast.Expression(tree.body[0].value), "<breakpoint>", "eval"), self.scope)
                self.stdout.write(f"{_short(value) if isinstance(value, Op) else repr(value)}\n")
            else:
                exec(compile(tree, "<breakpoint>", "exec"), self.scope)
        except Exception as error:  # of what was typed
            self.stdout.write("".join(traceback.format_exception_only(type(error), error)))
