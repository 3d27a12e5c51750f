"""What happens before what in one cluster: a vector clock per warp.

An agent is a warp of the cluster (numbered through all its CTAs) or an asynchronous one: every mbarrier is an agent
that performs the copies it counts. An access is marked with its agent's clock; a warp may follow it when its row of
`seen` has reached that clock.
"""

from __future__ import annotations

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.values import Array

AGENT_BITS = 9
AGENT = (1 << AGENT_BITS) - 1
_ALWAYS = np.iinfo(np.int32).max
_ASYNC_AGENTS = 256


class Clocks:
    """`clock[a]` is the present of agent `a`, `seen[w, a]` how much of it warp `w` has seen, `fenced[w]` what warp `w`
    knew at its last proxy fence. Of initialised mbarriers alone: `init_fenced[w]` is what warp `w` knew at its last
    fence.mbarrier_init, `seen_inits[w]` what it received from such fences."""

    def __init__(self, warps: int) -> None:
        self.warps, self.agents = warps, warps
        agents = warps + _ASYNC_AGENTS
        self.clock = np.ones(agents, np.int32)
        self.seen = np.zeros((warps, agents), np.int32)
        self._own = np.eye(warps, agents, dtype=bool)
        self.seen[self._own] = _ALWAYS  # a warp sees what it did itself
        self.fenced = np.zeros((warps, agents), np.int32)
        self.fenced[:, warps:] = _ALWAYS  # what the asynchronous proxy wrote needs no fence
        self.init_fenced = np.zeros((warps, agents), np.int32)
        self.seen_inits = np.zeros((warps, agents), np.int32)
        self._free: list[int] = []

    def new_agent(self) -> int:
        if self._free:
            return self._free.pop()
        if self.agents == len(self.clock):
            raise EmulatorError(f"A cluster with more than {_ASYNC_AGENTS} mbarriers is not supported.")
        self.agents += 1
        return self.agents - 1

    def free_agent(self, agent: int) -> None:
        """For the next `new_agent`; its clock goes on, so that old marks stay old."""
        self._free.append(agent)

    def code(self, agent: int) -> int:
        """The mark of an access that `agent` makes now."""
        return int(self.clock[agent]) << AGENT_BITS | agent

    def codes(self, warps: Array) -> Array:
        return (self.clock[warps] << AGENT_BITS) | warps

    def known(self, warps: Array) -> Array:
        """(warps, agents): what each of these warps has done or seen."""
        return np.where(self._own[warps], self.clock, self.seen[warps])

    def release(self, warps: Array) -> Array:
        """What these warps pass on by an arrival; what they do later is not part of it."""
        known = self.known(warps).max(axis=0)
        self.clock[warps] += 1
        return known

    def acquire(self, warps: Array, passed: Array) -> None:
        self.seen[warps] = np.maximum(self.seen[warps], passed)

    def join(self, warps: Array) -> None:
        """A barrier: all earlier accesses of these warps come before all their later ones."""
        self.acquire(warps, self.release(warps))

    def proxy_fence(self, warps: Array) -> None:
        """What these warps wrote or have seen written becomes visible to asynchronous accesses."""
        self.fenced[warps, : self.warps] = self.known(warps)[:, : self.warps]
        self.clock[warps] += 1

    def mbarrier_init_fence(self, warps: Array) -> None:
        """mbarriers that these warps have initialised or seen initialised are passed on by their next arrival at the
        cluster's barrier, a relaxed one too (PTX ISA, "membar, fence": fence.mbarrier_init)."""
        self.init_fenced[warps] = self.known(warps)
        self.clock[warps] += 1

    def acquire_inits(self, warps: Array, passed: Array) -> None:
        self.seen_inits[warps] = np.maximum(self.seen_inits[warps], passed)

    def sees_init(self, warp: int, by: int, clock: int) -> bool:
        return bool(max(self.seen[warp, by], self.seen_inits[warp, by]) >= clock)

    def visible(self, warps: Array) -> Array:
        """Per agent, up to which clock its writes are visible to asynchronous accesses that all of `warps` issue."""
        visible = self.fenced[warps].min(axis=0)
        visible[: self.warps] = np.maximum(visible[: self.warps], np.diagonal(self.fenced))
        return visible
