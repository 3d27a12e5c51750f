"""Execution barriers and fences inside one task."""

from __future__ import annotations

from ..table import row

row(
    "barrier",
    "barrier",
    "",
    0,
    traits="convergent reads_shared writes_shared",
    doc="All threads of the task arrive before any goes on, and see each other's memory: `bar.sync`, `s_barrier`; "
    "`bar.warp.sync` where the task is one warp.",
)
row(
    "fence_async_shared",
    "barrier",
    "",
    0,
    traits="convergent reads_shared writes_shared",
    doc="Makes generic writes to shared memory visible to wgmma and TMA: `fence.proxy.async.shared::cta`.",
)
