"""Where the program runs."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import Scalar, Tensor, element_of, int1, int32, int64, shape_of


def _axis(op: Op) -> None:
    require(op.attrs["axis"] in (0, 1, 2), f"{op.kind}: axis is 0, 1 or 2")
    require(op.result.type == Scalar(int32), f"{op.kind} gives i32")


row(
    "program_id",
    "task",
    "",
    1,
    "axis",
    traits="pure cheap",
    verify=_axis,
    kinds="int",
    doc="Index of the CTA along `axis`: `%ctaid`, `workgroup_id`.",
)
row(
    "num_programs",
    "task",
    "",
    1,
    "axis",
    traits="pure cheap",
    verify=_axis,
    kinds="int",
    doc="Number of CTAs along `axis`: `%nctaid`; on AMD from the implicit arguments.",
)


def _tasks(op: Op) -> None:
    n = len(op.regions)
    for name in ("num_warps", "start_warp", "num_regs", "replica"):
        require(len(op.attrs[name]) == n, f"async_tasks: `{name}` has one entry per region")
    copies = op.attrs.get("copies", (1,) * n)
    require(len(copies) == n and min(copies) >= 1 and copies[0] == 1, "async_tasks: `copies` has one entry per region")
    require(n >= 1 and op.attrs["start_warp"][0] == 0, "async_tasks: the default task is first, at warp 0")


def _copy(op: Op) -> None:
    require(op.result.type == Scalar(int32), "task_copy gives i32")


def _thread(op: Op) -> None:
    want = int64 if op.kind == "clock64" else int32
    require(op.result.type == Scalar(want, "thread"), f"{op.kind} gives a thread-level {want}")


def _vote(op: Op) -> None:
    p, r = op.inputs[0].type, op.result.type
    require(element_of(p) == int1 and element_of(r) == int32, "vote takes i1 and gives i32")
    require(shape_of(p) == shape_of(r), "vote keeps the shape")
    require(isinstance(r, Tensor) or r == Scalar(int32, "warp"), "vote of a scalar gives a warp-level i32")
    require(0 < op.attrs["mask"] < 1 << 32, "vote: the mask has 32 bits, one of them set")


def _warp_vote(op: Op) -> None:
    require(element_of(op.inputs[0].type) == int1, "warp_vote takes i1")
    require(op.result.type == Scalar(int1, "warp"), "warp_vote gives a warp-level i1")
    require(op.attrs["mode"] in ("any", "all"), "warp_vote: mode is any or all")


row(
    "async_tasks",
    "task",
    "",
    0,
    "num_warps start_warp num_regs replica",
    "exclusive copies",
    traits="structured",
    verify=_tasks,
    doc="One region per task copy, each run by its own warps at once: first the default task, then the others.  "
    "`copies`: how many copies run a region, each on the next `num_warps` warps.  `num_regs`: register budget, 0 for "
    "none (`setmaxnreg`).  A CTA barrier stands at entry and exit.",
)
row(
    "task_copy",
    "task",
    "",
    1,
    traits="pure",
    verify=_copy,
    doc="Which copy of its region a warp runs, from 0 on: its warp, counted from the first of the task, divided by "
    "`num_warps`.",
)
row("thread_id", "task", "", 1, "axis", traits="pure", verify=_thread, doc="`%tid` of the CTA along `axis`.")
row("clock64", "task", "", 1, traits="reads_global", verify=_thread, doc="Cycle counter of the SM: `%clock64`.")
row(
    "vote",
    "task",
    "pred",
    1,
    "mask",
    traits="elementwise convergent",
    verify=_vote,
    doc="Which lanes of `mask` hold a true, one bit each: `vote.sync.ballot.b32`.  Of a tile, a lane votes for "
    "any of its "
    "elements, and every element of the result is the word of its lane's warp.",
)
row(
    "warp_vote",
    "task",
    "pred",
    1,
    "mode",
    traits="pure convergent",
    verify=_warp_vote,
    doc="Whether `any` or `all` of the bools that the lanes of a warp hold are true: `vote.sync`.",
)
