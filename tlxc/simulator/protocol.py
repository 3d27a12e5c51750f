"""The static protocol of a kernel's mbarriers: which ops arrive, copy and wait, and in which task.

Reports print it, so that a wait or an arrival that is missing is named where it is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tlxc.ir.core import Module, Op, Region
from tlxc.ir.types import Barrier

from .barriers import MBarrier
from .program import alloc_of
from .reports import at

ROLES = {
    "barrier_arrive": "arrivals", "barrier_expect": "arrivals", "barrier_wait": "waits",
    "tma_load": "bytes", "bulk_load": "bytes", "async_remote_store": "bytes", "async_remote_copy": "bytes",
}  # fmt: skip


class Site:
    """An op that names a barrier; `task` is the number of its region, 0 for the default task and outside of tasks."""

    __slots__ = ("op", "role", "alloc", "task")

    def __init__(self, op: Op, role: str, alloc: Op, task: int) -> None:
        self.op, self.role, self.alloc, self.task = op, role, alloc, task


class Protocol:
    """All sites of a module."""

    def __init__(self, module: Module, names: dict[Op, str]) -> None:
        self.module, self.names = module, names

    @cached_property
    def sites(self) -> list[Site]:
        return list(_sites(self.module.body, 0))

    def of(self, alloc: Op, role: str) -> list[Site]:
        """One site for each source line."""
        found: dict[object, Site] = {}
        for site in self.sites:
            if site.alloc is alloc and site.role == role:
                found.setdefault(site.op.loc or id(site.op), site)
        return list(found.values())

    def line(self, alloc: Op) -> str:
        parts = []
        for role in ("arrivals", "bytes", "waits"):
            ops = [at(site.op) for site in self.of(alloc, role)]
            if ops or role != "bytes":
                parts.append(f"{role}: {', '.join(ops) or 'none'}")
        return f"{self.names[alloc]} (arrive_count {alloc.attrs['arrive_count']}) has {'; '.join(parts)}"

    def answers(self, alloc: Op) -> list[Op]:
        """Barriers through which those who wait for one tell that they are done, those who wait for them, and so on:
        allocations at which their tasks arrive."""
        chain = [alloc]
        for link in chain:
            waiting = {site.task for site in self.of(link, "waits")}
            told = [s.alloc for s in self.sites if s.role == "arrivals" and s.task in waiting]
            chain += [a for a in dict.fromkeys(told) if a not in chain]
        return chain[1:]

    def explain(self, bar: MBarrier, task: int | None = None) -> list[str]:
        """Lines on a barrier and on those that answer it; where `task` waits for none of them, that."""
        answers = self.answers(bar.alloc)
        out = [self.line(alloc) for alloc in (bar.alloc, *answers)]
        if task is None:
            return out
        for alloc in answers:
            if all(site.task != task for site in self.of(alloc, "waits")):
                releases = ", ".join(at(site.op) for site in self.of(alloc, "arrivals"))
                out.append(
                    f"those who wait for {self.names[bar.alloc]} release it through {self.names[alloc]} ({releases}), "
                    "for which this task never waits"
                )
        return out

    def between(self, first: int, second: int) -> list[str]:
        """Lines on the barriers through which one task can tell another that it is done."""
        out: dict[Op, str] = {}
        for one, other in ((first, second), (second, first)):
            for alloc in [s.alloc for s in self.sites if s.role != "waits" and s.task == one]:
                missing = all(site.task != other for site in self.of(alloc, "waits"))
                never = "; the second side never waits for it" if missing and one == first else ""
                out.setdefault(alloc, self.line(alloc) + never)
        return [*out.values(), *self.named]

    @cached_property
    def named(self) -> list[str]:
        """Lines on the named barriers, by the number that is known."""
        found: dict[str, list[str]] = {}
        for op in self.module.walk():
            if op.kind in ("named_barrier_arrive", "named_barrier_wait"):
                number = op.inputs[0].op
                which = str(number.attrs["value"]) if number is not None and number.kind == "constant" else "of any id"
                found.setdefault(which, []).append(at(op))
        return [f"named barrier {which} has {', '.join(dict.fromkeys(ops))}" for which, ops in found.items()]

    def atomics(self) -> list[str]:
        """A line on the atomics by which CTAs may hand over what they wrote to global memory."""
        ops = [op for op in self.module.walk() if op.kind == "atomic_rmw"]
        found = [f"{at(op)} ({op.attrs['sem']}, scope {op.attrs['scope']})" for op in ops]
        return [f"atomics: {', '.join(dict.fromkeys(found))}"] if found else []


def _sites(region: Region, task: int) -> Iterator[Site]:
    for op in region.ops:
        role = ROLES.get(op.kind)
        if role:
            for v in op.inputs:
                alloc = alloc_of(v) if isinstance(v.type, Barrier) else None
                if alloc is not None:
                    yield Site(op, role, alloc, task)
        for i, inner in enumerate(op.regions):
            yield from _sites(inner, i if op.kind == "async_tasks" else task)
