"""What happens at the start and the end of a kernel on behalf of its mbarriers, descriptors and cluster.

Invariant after the pass: every mbarrier is initialised before anything else runs and all threads that may touch it know
(those of the cluster, where there is one); no CTA of a cluster ends while another may still reach into it.
"""

from __future__ import annotations

from tlxc.errors import CompileError, Location
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.types import Descriptor
from tlxc.targets import Target

_REMOTE = ("remote_store", "async_remote_store", "async_remote_copy")
_LOOPS = ("for", "while")


def insert_protocol(module: Module, target: Target) -> None:
    """See the invariant of this module."""
    inits: list[Op] = []
    _take_inits(module.body, inits, in_loop=False)
    remote = any(map(reaches_out, module.walk()))
    clustered = module.cluster != (1, 1, 1)
    start = [Op("prefetch_descriptor", [d], loc=loc) for d, loc in _descriptors(module).items()] + inits
    if clustered and (inits or remote):
        if inits:
            start.append(Op("fence_mbarrier_init", loc=inits[-1].loc))
        start.append(Op("cluster_barrier", (), (), {"relaxed": True}, None, inits[-1].loc if inits else None))
    elif inits:
        start.append(Op("barrier", (), (), {"cta": True}, None, inits[-1].loc))
    module.body.ops[:0] = start
    if clustered and remote:
        _rendezvous(module.body)


def reaches_out(op: Op) -> bool:
    """Whether an op touches the shared memory of another CTA."""
    if op.kind == "barrier_arrive":
        return op.operands[2] is not None
    return op.kind in _REMOTE or op.kind == "tma_load" and op.operands[4] is not None


def _take_inits(region: Region, inits: list[Op], in_loop: bool) -> None:
    kept = []
    for op in region.ops:
        if op.kind == "alloc_barriers":
            if in_loop:
                raise CompileError(
                    "mbarriers are allocated inside a loop",
                    found="one allocation per turn, whose phases would start over while threads still wait",
                    allowed="allocations that run once: they are initialised when the kernel starts",
                    fix="move tlx.alloc_barriers in front of the loop",
                    loc=op.loc,
                )
            inits.append(op)
            continue
        for r in op.regions:
            _take_inits(r, inits, in_loop or op.kind in _LOOPS)
        kept.append(op)
    region.ops = kept


def _descriptors(module: Module) -> dict[Value, Location | None]:
    """Descriptor parameters that a TMA op uses, with the place of their first use."""
    used = {v: op.loc for op in reversed(list(module.walk())) for v in op.inputs if isinstance(v.type, Descriptor)}
    return {p.value: used[p.value] for p in module.params if p.value in used}


def _rendezvous(body: Region) -> None:
    """The last thing that the kernel does; a CTA barrier just before it would say nothing more."""
    if body.ops and body.ops[-1].kind == "barrier" and body.ops[-1].attrs.get("cta"):
        body.ops.pop()
    last = body.ops[-1] if body.ops else None
    if last is None or last.kind != "cluster_barrier" or last.attrs.get("relaxed"):
        body.ops.append(Op("cluster_barrier", loc=last.loc if last else None))
