"""Tensor memory and cluster launch control of Blackwell, refused by name: the ops are known, their code is not there.

On a target without the hardware the message says so; on one that has it, that tlxc has no code for it yet.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tlxc.errors import CompileError
from tlxc.ir.types import float32

from .context import current
from .core import builtin
from .handles import require_feature


def _refuse(feature: str, what: str) -> NoReturn:
    require_feature(feature, what)
    raise CompileError(
        f"tlx.{what} has no code for {current().target.name} yet",
        found="an op on the tensor memory or the launch control of Blackwell",
        fix="use tl.dot and a loop over program ids instead",
    )


@builtin
def subslice(buffer: Any, offset: Any, size: Any) -> Any:
    """Refused: columns [offset, offset + size) of a buffer in tensor memory.

    Targets: all refuse it; those with tcgen05 will have it.
    """
    _refuse("tcgen05", "subslice")


@builtin
def tmem_copy(src: Any, dst: Any) -> Any:
    """Refused: copies a buffer of shared memory to tensor memory (`tcgen05.cp`).

    Targets: all refuse it; those with tcgen05 will have it.
    """
    _refuse("tcgen05", "tmem_copy")


@builtin
def tcgen05_commit(mBarrier: Any, two_ctas: bool = False) -> Any:
    """Refused: an arrival at `mBarrier` once the tensor-memory work issued so far is done (`tcgen05.commit`).

    Targets: all refuse it; those with tcgen05 will have it.
    """
    _refuse("tcgen05", "tcgen05_commit")


@builtin
def async_dot_scaled(
    A: Any, B: Any, acc: Any, A_scale: Any, A_format: str, B_scale: Any, B_format: str, use_acc: Any = None,
    pred: Any = None, mBarriers: Any = (), two_ctas: bool = False, force_async: bool = False, out_dtype: Any = float32,
) -> Any:  # fmt: skip
    """Refused: acc + A @ B with a scale for every 32 elements along K (`tcgen05.mma`, block scale).

    Targets: all refuse it; those with tcgen05 will have it.
    """
    _refuse("tcgen05", "async_dot_scaled")


@builtin
def clc_create_context(num_consumers: int, num_stages: int = 1) -> Any:
    """Refused: barriers and responses of cluster launch control.

    Targets: all refuse it; those with clc will have it.
    """
    _refuse("clc", "clc_create_context")


@builtin
def clc_producer(ctx: Any, p_producer: Any, multi_ctas: bool = True, k: Any = 0) -> Any:
    """Refused: asks for another CTA of the grid (`clusterlaunchcontrol.try_cancel`).

    Targets: all refuse it; those with clc will have it.
    """
    _refuse("clc", "clc_producer")


@builtin
def clc_consumer(ctx: Any, p_consumer: Any, multi_ctas: bool = True, k: Any = 0, return_3d: bool = False) -> Any:
    """Refused: waits for the answer to `clc_producer` (`clusterlaunchcontrol.query_cancel`).

    Targets: all refuse it; those with clc will have it.
    """
    _refuse("clc", "clc_consumer")
