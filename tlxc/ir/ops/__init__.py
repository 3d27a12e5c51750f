"""Rows of the op table, one module per family.  Importing this package fills `tlxc.ir.table.OPS`."""

from . import barrier, buffer, cluster, control, descriptor, math, memory, mma, reduce, shape, task, tma

__all__ = [
    "barrier", "buffer", "cluster", "control", "descriptor", "math", "memory", "mma", "reduce", "shape", "task", "tma",
]  # fmt: skip
