"""Where the program runs; barriers."""

from __future__ import annotations

from tlxc.ir.core import Op

from .lowering import Lowering, lowers


@lowers("program_id")
def program_id(low: Lowering, op: Op) -> None:
    low.set(op.result, [low.emitter.program_id(op.attrs["axis"])])


@lowers("task_copy")
def task_copy(low: Lowering, op: Op) -> None:
    low.set(op.result, [low.copy])


@lowers("num_programs")
def num_programs(low: Lowering, op: Op) -> None:
    low.set(op.result, [low.emitter.num_programs(op.attrs["axis"])])


@lowers("barrier")
def barrier(low: Lowering, op: Op) -> None:
    if op.attrs.get("cta"):
        low.emitter.barrier("0", low.total_warps, True)
    else:
        low.task_barrier()


@lowers("fence_async_shared")
def fence_async_shared(low: Lowering, op: Op) -> None:
    low.emitter.fence_async_shared()
