"""Where the program runs."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import Scalar, int32


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
