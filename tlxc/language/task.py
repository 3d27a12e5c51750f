"""Where the program runs."""

from __future__ import annotations

from tlxc.errors import CompileError
from tlxc.ir.types import Scalar, int32

from .core import builder, builtin, literal_int, tensor


def _grid(kind: str, axis: int) -> tensor:
    a = literal_int(axis, f"the axis of {kind}")
    if a not in (0, 1, 2):
        raise CompileError(f"a grid has no axis {a}", allowed="0, 1 or 2")
    return tensor(builder().emit(kind, type=Scalar(int32), axis=a))


@builtin
def program_id(axis: int) -> tensor:
    """The index of this program in the grid along `axis` (0, 1 or 2): an int32 scalar from 0 to num_programs(axis) - 1.

    Targets: all.  Errors: an axis that is not a compile-time 0, 1 or 2.
    Instruction: a read of `%ctaid` (PTX ISA, "Special Registers"), `workgroup_id`.
    """
    return _grid("program_id", axis)


@builtin
def num_programs(axis: int) -> tensor:
    """The number of programs in the grid along `axis` (0, 1 or 2): an int32 scalar.

    Targets: all.  Errors: an axis that is not a compile-time 0, 1 or 2.
    Instruction: a read of `%nctaid` (PTX ISA, "Special Registers"); on AMD a load from the implicit arguments.
    """
    return _grid("num_programs", axis)
