"""Waits that give up: after so many cycles the kernel leaves a record of the wait and traps.

A kernel whose waits are limited takes one more parameter, its last: the address of a record that the host reads after
the trap; a workspace stands before it.  A record is `RECORD_BYTES` bytes of memory that host and GPU share, zero before
anything happened; of the threads that give up, the first fills it in, and none traps before it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tlxc.errors import Location, TlxcError
from tlxc.ir.core import Module, Op
from tlxc.ir.types import Barrier

VARIABLE = "TLXC_TRAP_ON_TIMEOUT"
RECORD_BYTES = 64
# 32-bit words of a record, in order.  `site`: 1 + the number of the wait, 0 as long as none gave up; `offset`: where
# the barrier lies, in bytes from the start of shared memory; `complete`: 1 once everything else is there.
WORDS = ("site", "offset", "phase", "x", "y", "z", "thread", "complete")
PARAMETER = "%trap.record"
PARAMETER_TYPE = "ptr addrspace(1)"
_LIMIT = "trap_cycles"  # the attribute of a module whose waits are limited


def wait_limit(environ: Mapping[str, str]) -> int | None:
    """Cycles after which a wait gives up, as `TLXC_TRAP_ON_TIMEOUT` says; None where it is not set."""
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 1 << 63:
        raise TlxcError(
            f"{VARIABLE} is {text!r}; give the clock cycles after which a wait gives up, as in 2000000000 (about a "
            "second)."
        )
    return int(text)


def limit_waits(module: Module, cycles: int) -> None:
    """Numbers the waits on mbarriers in program order, and lets each give up after `cycles`."""
    for site, op in enumerate(_waits(module)):
        op.attrs["site"] = site
        module.attrs[_LIMIT] = cycles


def is_limited(module: Module) -> bool:
    """Whether the kernel takes a record."""
    return _LIMIT in module.attrs


def trap_facts(module: Module) -> dict[str, Any]:
    """What the reader of a record must know, JSON-able; nothing where the kernel takes none."""
    if not is_limited(module):
        return {}
    return {_LIMIT: module.attrs[_LIMIT], "wait_sites": [_site(op) for op in _waits(module)]}


def _waits(module: Module) -> list[Op]:
    return [op for op in module.walk() if op.kind == "barrier_wait"]


def _site(op: Op) -> dict[str, Any]:
    """Which barriers a wait is for, and where it stands: `spans` begins with the wait; the calls around it follow."""
    barrier = op.inputs[0]
    while barrier.op is not None and barrier.op.kind == "barrier_view":
        barrier = barrier.op.inputs[0]
    assert isinstance(barrier.type, Barrier)
    start = barrier.op.attrs["offset"] if barrier.op is not None and barrier.op.kind == "alloc_barriers" else None
    place = op.loc or Location("unknown", 0)
    return {
        "barrier": barrier.name,
        "count": barrier.type.count,
        "offset": start,
        "spans": [[p.file, p.line, p.column, p.end_column] for p in (place, *place.callers)],
    }


def locations(site: Mapping[str, Any]) -> list[Location]:
    """The wait itself, then the calls around it, innermost first."""
    return [Location(*span) for span in site["spans"]]


def give_up(module: Module, op: Op, offset: int, record: int) -> tuple[str, str]:
    """PTX around a wait with the label WAIT and the predicate `done`: (before it, after a try that failed).

    Operand 1 is the phase, `offset` and `record` are the numbers of those operands.  Whoever loses the exchange waits
    for the winner, since a trap ends the kernel at once.
    """
    sources = {"offset": f"${offset}", "phase": "$1", "thread": "%tid.x", **{d: f"%ctaid.{d}" for d in "xyz"}}
    stores = " ".join(
        f"mov.u32 word, {source}; st.relaxed.sys.global.u32 [${record}+{4 * WORDS.index(name)}], word;"
        for name, source in sources.items()
    )
    complete = f"[${record}+{4 * WORDS.index('complete')}]"
    before = ".reg .b32 word; .reg .b64 start, now; mov.u64 start, %clock64; "
    after = (
        f"mov.u64 now, %clock64; sub.u64 now, now, start; setp.le.u64 done, now, {module.attrs[_LIMIT]}; "
        f"@done bra WAIT; atom.relaxed.gpu.global.cas.b32 word, [${record}], 0, {op.attrs['site'] + 1}; "
        f"setp.ne.b32 done, word, 0; @done bra LOST; {stores} fence.acq_rel.sys; "
        f"st.relaxed.sys.global.u32 {complete}, 1; LOST: ld.relaxed.sys.global.u32 word, {complete}; "
        "setp.eq.b32 done, word, 0; @done bra LOST; fence.acq_rel.sys; trap; "
    )
    return before, after
