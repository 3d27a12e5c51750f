"""Where the program runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tlxc.ir.types import Tensor

from ..memory import Array
from ..parts import held_by, owner_of
from ..program import Step

if TYPE_CHECKING:
    from ..machine import Strand

_LANES = 32


def program_id(strand: Strand, step: Step) -> Any:
    return np.int32(strand.cta.position[step.op.attrs["axis"]])


def num_programs(strand: Strand, step: Step) -> Any:
    return np.int32(strand.machine.grid[step.op.attrs["axis"]])


def thread_id(strand: Strand, step: Step) -> Any:
    """One value per thread of the task; CTAs have one dimension."""
    threads = strand.warps * strand.machine.target.warp_size
    first = strand.first_warp * strand.machine.target.warp_size
    return np.arange(first, first + threads, dtype=np.int32) if step.op.attrs["axis"] == 0 else np.int32(0)


def clock64(strand: Strand, step: Step) -> Any:
    """Counts the ops of the strand."""
    return np.int64(strand.epoch)


def vote(strand: Strand, step: Step, pred: Array) -> Any:
    """A lane votes for any of its elements; every element of the result is the word of its lane's warp."""
    mask, t = step.op.attrs["mask"], step.op.inputs[0].type
    if not isinstance(t, Tensor):
        lanes = np.broadcast_to(pred, (strand.warps * _LANES,)).reshape(-1, _LANES)
        words = (lanes.astype(np.int64) << np.arange(_LANES)).sum(1) & mask
        words = np.repeat(words.astype(np.uint32).view(np.int32), _LANES)
        return words[0] if np.all(words == words[0]) else words
    layout = t.layout
    assert layout is not None
    warps = 1 << len(layout.bases("warp"))
    result = np.zeros(t.shape, np.int32)
    for warp in range(warps):
        held = [[layout.apply(register, lane, warp) for register in range(layout.registers)] for lane in range(_LANES)]
        word = sum(1 << lane for lane in range(_LANES) if any(pred[c] for c in held[lane])) & mask
        for coords in (c for lane in held for c in lane):
            result[coords] = np.uint32(word).astype(np.int32)
    return result


def warp_vote(strand: Strand, step: Step, pred: Array) -> Any:
    """One bool, or one per thread of the task where its warps differ."""
    t, combine = step.op.inputs[0].type, {"any": np.any, "all": np.all}[step.op.attrs["mode"]]
    if isinstance(t, Tensor):
        assert t.layout is not None
        votes = np.array([combine(pred[held]) for held in held_by(t.layout)])
    else:
        votes = combine(np.broadcast_to(pred, (strand.warps * _LANES,)).reshape(-1, _LANES), axis=1)
    return votes[0] if np.all(votes == votes[0]) else np.repeat(votes, _LANES)


def spread(strand: Strand, step: Step, x: Any) -> Any:
    """A splat of a scalar on which the threads do not agree: each element is the value of the thread that holds it."""
    t = step.op.results[0].type
    assert isinstance(t, Tensor) and t.layout is not None
    return np.full(t.shape, x) if x.ndim == 0 else x[owner_of(t.layout)]


EFFECTS = {
    "program_id": program_id,
    "num_programs": num_programs,
    "thread_id": thread_id,
    "clock64": clock64,
    "vote": vote,
    "warp_vote": warp_vote,
}
