"""What the pure ops of tile IR compute, on NumPy arrays: the value semantics of the simulator.

    TILE_OPS[op.kind](op, arguments)    the value of the result

Arguments and results are tiles (arrays) or run-time scalars (NumPy scalars) in the storage dtype of their IR type:
`storage(element)`, which is bool for i1, ml_dtypes.bfloat16 for bf16 and int64, a byte address, for pointers.  `split`
gives a tuple of two, `dump_layout` None; every other op one value.  Layouts play no part.  `VENDOR_OPS` holds, by
vendor, what differs there.

The rules are those of docs/numerics.md: integers, conversions and comparisons are bit for bit those of the compiled
code, NaN and the sign of zero included; float arithmetic is rounded once per op and nothing is contracted.

* Values are immutable: no function writes to an argument, a result may be a read-only view or share memory with an
  argument, so callers never write to either.
* What is undefined in the contract (division by zero, shifts by the width or more) gives some number, never an
  exception.
* NumPy warns of overflow and NaN by default, which costs more than the ops.  The caller wraps a whole run, not an op,
  in `with quiet():`.
"""

from __future__ import annotations

from .casts import convert
from .dtypes import Value, quiet, storage
from .elementwise import BINARY
from .matmul import matmul
from .table import TILE_OPS, VENDOR_OPS

__all__ = ["BINARY", "TILE_OPS", "VENDOR_OPS", "Value", "convert", "matmul", "quiet", "storage"]
