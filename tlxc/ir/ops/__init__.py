"""Rows of the op table, one module per family.  Importing this package fills `tlxc.ir.table.OPS`."""

from . import barrier, buffer, control, math, memory, mma, reduce, shape, task

__all__ = ["barrier", "buffer", "control", "math", "memory", "mma", "reduce", "shape", "task"]
