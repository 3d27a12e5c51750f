"""NVVM intrinsics of mbarriers, clusters and asynchronous copies, and the gates of those that may have to wait."""

from __future__ import annotations

import re
from collections.abc import Callable
from re import Match
from typing import Any

import numpy as np

from tlxc.emulator import barriers, copies, mbarrier
from tlxc.emulator.cluster import cluster_arrive, cluster_wait_gate
from tlxc.emulator.generic import Factory, Handler, nothing
from tlxc.emulator.machine import Cta
from tlxc.emulator.memory import RANK_SHIFT
from tlxc.emulator.parse import Instruction
from tlxc.emulator.values import Array

CallGate = Callable[[Cta, "list[Any]"], Array]


def each_lane(mask: Array) -> list[int]:
    return [int(lane) for lane in np.nonzero(mask)[0]]


def _effect(function: Callable[[Cta, list[Any], int], None]) -> Factory:
    """A handler that acts lane by lane."""

    def handler(cta: Cta, args: list[Any]) -> tuple[()]:
        for lane in each_lane(cta.active):
            function(cta, args, lane)
        return ()

    return lambda call, match, attributes: handler


# -- mbarriers
def _init(cta: Cta, args: list[Any], lane: int) -> None:
    mbarrier.initialise(cta, int(args[0][lane]), int(args[1][lane]), lane)


def _inval(cta: Cta, args: list[Any], lane: int) -> None:
    mbarrier.invalidate(cta, int(args[0][lane]), lane)


def _arrive(call: Instruction, match: Match[str], attributes: str) -> Handler:
    """mbarrier.arrive[.drop][.expect.tx][.relaxed]: (barrier[, count or bytes])."""
    name = match[0]
    expects, relaxed, drop = ".expect.tx" in name, ".relaxed" in name, ".drop" in name

    def run(cta: Cta, args: list[Any]) -> Array:
        ones = np.ones(cta.lanes, np.uint32)
        if expects:
            mbarrier.expect(cta, args[0], args[1], cta.active)
        count = args[1] if len(args) > 1 and not expects else ones
        return mbarrier.arrive(cta, args[0], count, cta.active, relaxed, drop)

    return run


def _expect(cta: Cta, args: list[Any], lane: int) -> None:
    mbarrier.find(cta, int(args[0][lane]), lane).expect(int(args[1][lane]))


def _complete(cta: Cta, args: list[Any], lane: int) -> None:
    barrier = mbarrier.find(cta, int(args[0][lane]), lane)
    barrier.expect(-int(args[1][lane]))
    barrier.try_complete()


def _test(call: Instruction, match: Match[str], attributes: str) -> Handler:
    is_parity, polls = ".parity" in match[0], ".test." in match[0]

    def run(cta: Cta, args: list[Any]) -> Array:
        done = mbarrier.test(cta, args[0], args[1], cta.active, is_parity)
        if polls and not done[cta.active].all():
            cta.cluster.polled()
        return done

    return run


def _wait_gate(match: Match[str]) -> CallGate:
    is_parity = ".parity" in match[0]
    return lambda cta, args: mbarrier.wait_gate(cta, args[0], args[1], cta.active, is_parity)


# -- clusters
def map_address(address: Array, rank: Array) -> Array:
    """The same shared address in the CTA of that rank."""
    bits = np.uint64(255 << RANK_SHIFT)
    return (address & ~bits) | (rank.astype(np.uint64) << np.uint64(RANK_SHIFT))


def _mapa(call: Instruction, match: Match[str], attributes: str) -> Handler:
    return lambda cta, args: map_address(args[0], args[1])


def arrive_at_cluster(cta: Cta, mask: Array, relaxed: bool) -> None:
    cluster_arrive(cta, np.unique(cta.warp_ids[mask]), int(mask.sum()), relaxed)


def _cluster_arrive(call: Instruction, match: Match[str], attributes: str) -> Handler:
    relaxed, aligned = ".relaxed" in match[0], ".aligned" in match[0]

    def run(cta: Cta, args: list[Any]) -> tuple[()]:
        if aligned:
            cta.active_warps("barrier.cluster.arrive.aligned")
        arrive_at_cluster(cta, cta.active, relaxed)
        return ()

    return run


def wait_for_cluster(cta: Cta) -> Array:
    return cluster_wait_gate(cta, np.unique(cta.warp_ids[cta.active]))


# -- copies
def _coordinates(args: list[Any], lane: int) -> list[int]:
    return [int(a[lane : lane + 1].view(np.int32)[0]) for a in args]


def _load_block(call: Instruction, match: Match[str], attributes: str) -> Handler:
    """g2s[.cta].tile.Nd(dst, barrier, map, coordinates..., [mask], hint, [use mask], use hint[, group])"""
    rank, own = int(match[2]), bool(match[1])

    def run(cta: Cta, args: list[Any]) -> tuple[()]:
        for lane in each_lane(cta.active):
            to, barrier, pointer = (int(a[lane]) for a in args[:3])
            mask = None if own or not args[rank + 5][lane] else int(args[rank + 3][lane])
            start = _coordinates(args[3 : 3 + rank], lane)
            copies.load_block(cta, lane, to, cta.tensor_map(pointer, lane), start, barrier, mask)
        return ()

    return run


def _store_block(call: Instruction, match: Match[str], attributes: str) -> Handler:
    """s2g.tile.Nd and reduce.OP.tile.Nd (source, map, coordinates..., hint, use hint)"""
    reduction, rank = match[1] or "", int(match[2])

    def run(cta: Cta, args: list[Any]) -> tuple[()]:
        for lane in each_lane(cta.active):
            map_ = cta.tensor_map(int(args[1][lane]), lane)
            copies.store_block(cta, lane, map_, _coordinates(args[2 : 2 + rank], lane), int(args[0][lane]), reduction)
        return ()

    return run


def _load_bytes(call: Instruction, match: Match[str], attributes: str) -> Handler:
    """global.to.shared.{cta,cluster}(dst, barrier, source, size[, mask], hint[, use mask], use hint)"""
    own = match[1] == "cta"

    def run(cta: Cta, args: list[Any]) -> tuple[()]:
        for lane in each_lane(cta.active):
            to, barrier, source, size = (int(a[lane]) for a in args[:4])
            mask = None if own or not args[6][lane] else int(args[4][lane])
            copies.load_bytes(cta, lane, to, source, size, barrier, mask)
        return ()

    return run


def _send_bytes(cta: Cta, args: list[Any], lane: int) -> None:
    to, barrier, source, size = (int(a[lane]) for a in args)
    copies.send_bytes(cta, lane, to, source, size, map_barrier(barrier, to))


def map_barrier(barrier: int, to: int) -> int:
    """The intrinsic names the mbarrier by its local address: it stands at the same place of the receiving CTA."""
    low = (1 << RANK_SHIFT) - 1
    return barrier & low | to & ~low


def _store_bytes(cta: Cta, args: list[Any], lane: int) -> None:
    to, source, size = (int(a[lane]) for a in args[:3])
    copies.store_bytes(cta, lane, to, source, size, "", None)


def _commit(cta: Cta, args: list[Any], lane: int) -> None:
    copies.commit(cta, lane)


def _wait_groups(call: Instruction, match: Match[str], attributes: str) -> Handler:
    def run(cta: Cta, args: list[Any]) -> tuple[()]:
        for lane in each_lane(cta.active):
            copies.wait(cta, lane, int(args[0][lane]), bool(match[1]))
        return ()

    return run


_N = r"llvm\.nvvm\."
_TENSOR = _N + r"cp\.async\.bulk\.tensor\."
_SCOPE = r"(?:\.scope\.(?:cta|cluster)\.space\.(?:cta|cluster)|\.shared)"
_CLUSTER_WAIT = _N + r"barrier\.cluster\.wait(?:\.aligned)?"
_TRY_WAIT = _N + rf"mbarrier\.try\.wait(?:\.parity)?(?:\.tl)?(?:\.relaxed)?{_SCOPE}"
INTRINSICS: dict[str, Factory] = {
    _N + r"mbarrier\.init\.shared": _effect(_init),
    _N + r"mbarrier\.inval\.shared": _effect(_inval),
    _N + rf"mbarrier\.arrive(?:\.drop)?(?:\.expect\.tx)?(?:\.relaxed)?{_SCOPE}": _arrive,
    _N + rf"mbarrier\.expect\.tx(?:\.relaxed)?{_SCOPE}": _effect(_expect),
    _N + rf"mbarrier\.complete\.tx(?:\.relaxed)?{_SCOPE}": _effect(_complete),
    _N + rf"mbarrier\.test\.wait(?:\.parity)?(?:\.relaxed)?{_SCOPE}": _test,
    _TRY_WAIT: _test,
    _N + r"mapa\.shared\.cluster": _mapa,
    _N + r"barrier\.cluster\.arrive(?:\.relaxed)?(?:\.aligned)?": _cluster_arrive,
    _CLUSTER_WAIT: nothing,
    _TENSOR + r"g2s(\.cta)?\.tile\.([1-5])d": _load_block,
    _TENSOR + r"(?:s2g|reduce\.(\w+))\.tile\.([1-5])d": _store_block,
    _N + r"cp\.async\.bulk\.(?:tensor\.)?prefetch\..*": nothing,
    _N + r"cp\.async\.bulk\.global\.to\.shared\.(cta|cluster)": _load_bytes,
    _N + r"cp\.async\.bulk\.shared\.cta\.to\.cluster": _effect(_send_bytes),
    _N + r"cp\.async\.bulk\.shared\.cta\.to\.global": _effect(_store_bytes),
    _N + r"cp\.async\.bulk\.commit\.group": _effect(_commit),
    _N + r"cp\.async\.bulk\.wait\.group(\.read)?": _wait_groups,
}


# -- gates
GATES: dict[str, Callable[[Match[str]], CallGate]] = {
    _N + r"barrier0|llvm\.nvvm\.barrier\.cta\.sync(?:\.aligned)?\.all": lambda match: (
        lambda cta, args: barriers.sync_gate(cta, args[0] if args else None, None)
    ),
    _N + r"barrier\.cta\.sync(?:\.aligned)?\.count": lambda match: lambda cta, args: barriers.sync_gate(cta, *args),
    _N + r"wgmma\.(?:commit|wait)_group\.sync\.aligned": lambda match: lambda cta, args: barriers.warp_group_gate(cta),
    _TRY_WAIT: _wait_gate,
    _CLUSTER_WAIT: lambda match: lambda cta, args: wait_for_cluster(cta),
}
GATE_NAMES = re.compile("|".join(GATES))


def call_gate(name: str) -> CallGate:
    """The gate of an intrinsic that `GATE_NAMES` matches."""
    for pattern, factory in GATES.items():
        match = re.fullmatch(pattern, name)
        if match:
            return factory(match)
    raise KeyError(name)
