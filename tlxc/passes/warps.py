"""The warps of the tasks of a region."""

from __future__ import annotations

from tlxc.ir.core import Op

WARPGROUP = 4  # warps


def copies_of(op: Op) -> tuple[int, ...]:
    """How many task copies run each region of an `async_tasks`."""
    return op.attrs.get("copies") or (1,) * len(op.regions)


def task_name(op: Op, region: int) -> str:
    """How messages call a region, by its first copy."""
    return "the default task" if region == 0 else f"task copy {sum(copies_of(op)[:region])}"


def warp_ranges(op: Op) -> list[tuple[int, int]]:
    """Warps [start, end) of each region of an `async_tasks`, counted from the first warp of the CTA."""
    return [(s, s + n * c) for s, n, c in zip(op.attrs["start_warp"], op.attrs["num_warps"], copies_of(op))]
