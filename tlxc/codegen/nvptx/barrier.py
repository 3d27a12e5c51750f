"""mbarriers, named barriers, fences and thread registers on NVIDIA.

Forms are of default semantics (release and acquire at CTA scope), for the `.cluster` ones cost a device-wide memory
barrier; only arrivals that `passes/release.py` marks release at cluster scope.  The first thread of a task acts for it.
"""

from __future__ import annotations

from tlxc.codegen.simt.buffer import shared_pointer
from tlxc.codegen.simt.lowering import Lower, Lowering
from tlxc.codegen.simt.math import compare
from tlxc.codegen.simt.reduce import tree
from tlxc.ir.core import Op, Value
from tlxc.ir.types import Barrier, DType, element_of

from . import trap

_SHARED = "ptr addrspace(3)"


def predicated(low: Lowering, text: str, constraints: list[str], args: list[tuple[str, str]], when: str | None) -> None:
    """Inline PTX without results, run where `when` (i1; None: always) holds.  `text` is one instruction."""
    if when is not None:
        text = f"{{ .reg .pred p; setp.ne.b32 p, ${len(args)}, 0; @p {text} }}"
        constraints = [*constraints, "r"]
        args = [*args, ("i32", low.w.assign(f"zext i1 {when} to i32"))]
    low.w.asm("void", text, ",".join([*constraints, "~{memory}"]), args)


def optional(low: Lowering, v: Value | None) -> str | None:
    return None if v is None else low.scalar(v)


def alloc_barriers(low: Lowering, op: Op) -> None:
    """One thread of the CTA initialises them; the protocol pass puts the barrier that publishes them."""
    low.set(op.result, [str(op.attrs["offset"])])
    t = op.result.type
    assert isinstance(t, Barrier)
    first = low.w.assign(f"icmp eq i32 {low.cta_thread}, 0")
    for i in range(max(1, t.count)):
        address = shared_pointer(low, op.result, 8 * i)
        text = f"mbarrier.init.shared::cta.b64 [$0], {op.attrs['arrive_count']};"
        predicated(low, text, ["r"], [(_SHARED, address)], first)


def barrier_wait(low: Lowering, op: Op) -> None:
    bar, phase, pred = op.operands
    assert bar is not None and phase is not None
    args = [(_SHARED, shared_pointer(low, bar)), ("i32", low.scalar(phase))]
    skip, constraints = "", ["r", "r"]
    if pred is not None:
        skip = "setp.eq.b32 done, $2, 0; @done bra DONE; "
        args.append(("i32", low.w.assign(f"zext i1 {low.scalar(pred)} to i32")))
        constraints.append("r")
    start, again = "", "bra WAIT; "
    if trap.is_limited(low.module):
        start, again = trap.give_up(low.module, op, offset=len(args), record=len(args) + 1)
        args += [("i32", low.scalar(bar)), (trap.PARAMETER_TYPE, trap.PARAMETER)]
        constraints += ["r", "l"]
    text = (
        f"{{ .reg .pred done; {start}{skip}WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; "
        f"@done bra DONE; {again}DONE: }}"
    )
    low.w.asm("void", text, ",".join([*constraints, "~{memory}"]), args)


def _before_one_thread_acts(low: Lowering, op: Op) -> None:
    """All threads of the task come first, unless it is known that nothing of theirs is ordered by this."""
    if not op.attrs.get("synced"):
        low.task_barrier()


def barrier_arrive(low: Lowering, op: Op) -> None:
    bar, pred, rank = op.operands
    assert bar is not None and isinstance(bar.type, Barrier)
    who = optional(low, pred)
    if not bar.type.warp:
        _before_one_thread_acts(low, op)
        who = low.both(low.first_thread(), who)
    count = "" if op.attrs["count"] == 1 else f", {op.attrs['count']}"
    address = shared_pointer(low, bar)
    if rank is None:
        predicated(low, f"mbarrier.arrive.shared::cta.b64 _, [$0]{count};", ["r"], [(_SHARED, address)], who)
        return
    remote = map_remote(low, address, low.scalar(rank))
    release = ".release.cluster" if op.attrs.get("release") else ""
    predicated(low, f"mbarrier.arrive{release}.shared::cluster.b64 _, [$0]{count};", ["r"], [("i32", remote)], who)


def map_remote(low: Lowering, address: str, rank: str) -> str:
    """Address (i32, shared::cluster window) of the same place in another CTA of the cluster."""
    return low.w.asm("i32", "mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", [(_SHARED, address), ("i32", rank)])


def barrier_expect(low: Lowering, op: Op) -> None:
    bar, pred = op.operands
    assert bar is not None
    _before_one_thread_acts(low, op)
    text = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {op.attrs['bytes']};"
    who = low.both(low.first_thread(), optional(low, pred))
    predicated(low, text, ["r"], [(_SHARED, shared_pointer(low, bar))], who)


def named_barrier(low: Lowering, op: Op) -> None:
    how = {"named_barrier_wait": "bar.sync", "named_barrier_arrive": "bar.arrive"}[op.kind]
    number = low.scalar(op.inputs[0])
    threads = op.attrs["threads"]
    if number.isdigit():
        low.w.asm("void", f"{how} {number}, {threads};", "~{memory}", [])
    else:
        low.w.asm("void", f"{how} $0, {threads};", "r,~{memory}", [("i32", number)])


def fence(low: Lowering, op: Op) -> None:
    low.w.asm("void", f"fence.acq_rel.{op.attrs['scope']};", "~{memory}", [])


def grid_dependency(low: Lowering, op: Op) -> None:
    low.w.asm("void", f"griddepcontrol.{op.attrs['action']};", "~{memory}", [])


def thread_id(low: Lowering, op: Op) -> None:
    low.set(op.result, [low.w.call("i32", f"llvm.nvvm.read.ptx.sreg.tid.{'xyz'[op.attrs['axis']]}", [])])


def clock64(low: Lowering, op: Op) -> None:
    low.set(op.result, [low.w.asm("i64", "mov.u64 $0, %clock64;", "=l,~{memory}", [])])


def vote(low: Lowering, op: Op) -> None:
    """A lane votes for any of its elements; copies vote alike.  All lanes come here, so that all are named: a lane that
    executes the instruction outside its mask would be undefined."""
    w = low.w
    any_true, *others = dict.fromkeys(low.get(op.inputs[0]))
    for x in others:
        any_true = w.assign(f"or i1 {any_true}, {x}")
    text = "{ .reg .pred p; setp.ne.b32 p, $1, 0; vote.sync.ballot.b32 $0, p, 0xffffffff; }"
    word = w.asm("i32", text, "=r,r", [("i32", w.assign(f"zext i1 {any_true} to i32"))])
    mask = op.attrs["mask"]
    kept = word if mask == 0xFFFFFFFF else w.assign(f"and i32 {word}, {mask}")
    low.set(op.result, [kept] * low.registers(op.result))


def warp_vote(low: Lowering, op: Op) -> None:
    w, mode = low.w, op.attrs["mode"]
    word = {"any": "or", "all": "and"}[mode]
    own, *others = dict.fromkeys(_compared_once(low, op) or low.get(op.inputs[0]))
    for x in others:
        own = w.assign(f"{word} i1 {own}, {x}")
    args = [("i32", "-1"), ("i1", own)]
    low.set(op.result, [w.call("i1", f"llvm.nvvm.vote.{mode}.sync", args, " #1")])


# (what is voted, comparison) -> which extreme of the left operand decides
_DECIDES = {
    ("any", "gt"): "max", ("any", "ge"): "max", ("any", "lt"): "min", ("any", "le"): "min",
    ("all", "gt"): "min", ("all", "ge"): "min", ("all", "lt"): "max", ("all", "le"): "max",
}  # fmt: skip


def _compared_once(low: Lowering, op: Op) -> list[str]:
    """Of a vote on `x > limit`, comparisons of the greatest x with each limit in place of one for each register; none
    where that is no gain.  Of floats `all` is left out: a NaN, which fails it, loses against numbers."""
    cmp = op.inputs[0].op
    if cmp is None or cmp.kind != "cmp":
        return []
    how, d = _DECIDES.get((op.attrs["mode"], cmp.attrs["pred"])), element_of(cmp.inputs[0].type)
    assert isinstance(d, DType)
    groups: dict[str, list[str]] = {}
    for x, limit in zip(*(low.get(v) for v in cmp.inputs)):
        groups.setdefault(limit, []).append(x)
    if how is None or len(groups) == low.registers(cmp.result) or (d.is_float and op.attrs["mode"] == "all"):
        return []
    return [
        compare(low, cmp.attrs["pred"], d, tree(low, how, d, list(dict.fromkeys(xs))), y) for y, xs in groups.items()
    ]


LOWERINGS: dict[str, Lower] = {
    "vote": vote,
    "warp_vote": warp_vote,
    "alloc_barriers": alloc_barriers,
    "barrier_wait": barrier_wait,
    "barrier_arrive": barrier_arrive,
    "barrier_expect": barrier_expect,
    "named_barrier_wait": named_barrier,
    "named_barrier_arrive": named_barrier,
    "fence": fence,
    "grid_dependency": grid_dependency,
    "thread_id": thread_id,
    "clock64": clock64,
}
