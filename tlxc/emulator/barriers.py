"""Barriers of one CTA by number, and the warps of a warp group meeting at a matrix instruction."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Cta
from tlxc.emulator.values import Array

_BARRIERS = 16


@dataclass
class NamedBarrier:
    """`wanted` threads complete it. `arrived` are the warps that came, `waiting` those of them that wait."""

    wanted: int = 0
    arrived: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


def _barrier(cta: Cta, number: int, count: int | None) -> NamedBarrier:
    if not 0 <= number < _BARRIERS:
        raise EmulatorError(f"There is no barrier number {number}; 0 to {_BARRIERS - 1} are.")
    wanted = cta.lanes if count is None else count
    if wanted <= 0 or wanted % cta.warp_size or wanted > cta.lanes:
        raise EmulatorError(
            f"A barrier for {wanted} threads: a positive multiple of {cta.warp_size}, at most the CTA's {cta.lanes}, "
            "is needed."
        )
    barrier = cta.named.setdefault(number, NamedBarrier())
    if barrier.arrived and barrier.wanted != wanted:
        raise EmulatorError(f"Barrier {number} is used for {barrier.wanted} threads and for {wanted} at the same time.")
    barrier.wanted = wanted
    return barrier


def arrive(cta: Cta, number: int, count: int | None, warps: Array) -> NamedBarrier:
    """`warps` come to the barrier; when they complete it, those that wait may pass."""
    barrier = _barrier(cta, number, count)
    barrier.arrived += map(int, warps)
    present = len(barrier.arrived) * cta.warp_size
    if present > barrier.wanted:
        raise EmulatorError(f"Barrier {number} for {barrier.wanted} threads is reached by {present}.")
    if present == barrier.wanted:
        everyone = np.array(barrier.arrived) + cta.first_warp
        passed = cta.cluster.clocks.release(everyone)
        syncing = np.array(barrier.waiting, np.int64)
        cta.cluster.clocks.acquire(syncing + cta.first_warp, passed)
        cta.granted[syncing] = True
        cta.wake(syncing)
        barrier.arrived, barrier.waiting = [], []
    return barrier


def by_number(cta: Cta, numbers: Array | None, counts: Array | None) -> list[tuple[int, int | None, Array]]:
    """(number, thread count, warps) of the barriers that the active warps execute together; None: 0, all threads."""
    warps = cta.active_warps("A barrier")
    if numbers is None and counts is None:
        return [(0, None, warps)]
    zeros = np.zeros(cta.lanes, np.uint32)
    given = np.stack([zeros if numbers is None else numbers, zeros if counts is None else counts], axis=1)
    values = cta.by_warp(given)[warps]
    if (values != values[:, :1]).any():
        raise EmulatorError("A barrier's number and thread count must be the same in all lanes of a warp.")
    keys = [(int(number), None if counts is None else int(count)) for number, count in values[:, 0]]
    return [(*key, warps[[k == key for k in keys]]) for key in dict.fromkeys(keys)]


def sync_gate(cta: Cta, numbers: Array | None, counts: Array | None) -> Array:
    """The active lanes of the warps that their barriers let pass; operands are given over all lanes."""
    stay = [_sync(cta, number, count, warps) for number, count, warps in by_number(cta, numbers, counts)]
    held = np.concatenate(stay)
    return cta.without(held) if len(held) else cta.active


def _sync(cta: Cta, number: int, count: int | None, warps: Array) -> Array:
    """Brings warps to one barrier; those of them that may not go on now."""
    granted = cta.granted[warps]
    new = warps[~granted]
    if not len(new):
        cta.granted[warps] = False
        return new
    barrier = _barrier(cta, number, count)
    others = bool(barrier.waiting)
    barrier.waiting += map(int, new)
    arrive(cta, number, count, new)
    if cta.granted[new].all():
        if others:  # let those that wake go on together with these
            cta.spread()
            return warps
        cta.granted[warps] = False
        return new[:0]
    cta.park(new, lambda: _reason(number, barrier, cta.warp_size))
    cta.granted[warps[granted]] = False
    return new


def _reason(number: int, barrier: NamedBarrier, warp_size: int) -> str:
    missing = barrier.wanted - len(barrier.arrived) * warp_size
    return f"barrier {number} for {barrier.wanted} threads, of which {missing} have not arrived"


def warp_group_gate(cta: Cta) -> Array:
    """Warps that came to a matrix instruction wait for the others of their warp group."""
    warps = cta.active_warps("A warp group's instruction")
    if cta.warps % 4:
        raise EmulatorError(f"A warp group's instruction in a CTA of {cta.warps} warps; a multiple of 4 is needed.")
    if cta.full:
        return cta.active
    groups = np.unique(warps // 4)
    lanes = cta.lanes // cta.warps * 4
    executing = cta.active.reshape(-1, lanes)[groups].all(axis=1)
    if executing.all():
        return cta.active
    cta.spread()
    present = (cta.current.reshape(-1, lanes)[groups] == cta.pc).all(axis=1)
    for group in groups[~executing]:
        four = np.arange(4 * group, 4 * group + 4)
        if present[groups == group].all():
            cta.wake(four)
        else:
            cta.park(warps[warps // 4 == group], lambda: "the other warps of its warp group")
    kept = np.repeat(np.isin(np.arange(cta.warps // 4), groups[executing]), lanes)
    return cta.active & kept
