"""All cases of the matrix, by family."""

from __future__ import annotations

from . import (
    barrier_cases,
    buffer_cases,
    cluster_cases,
    control_cases,
    descriptor_cases,
    extra_cases,
    math_cases,
    memory_cases,
    mma_cases,
    reduce_cases,
    shape_cases,
    task_cases,
    tma_cases,
    wgmma_cases,
)
from .support import Case

TILE_FAMILIES = {
    "math": math_cases,
    "memory": memory_cases,
    "shape": shape_cases,
    "reduce": reduce_cases,
    "control": control_cases,
    "mma": mma_cases,
}
# Shared memory and what the hardware does by itself; most of it exists on NVIDIA only.
ASYNC_FAMILIES = {
    "buffer": buffer_cases,
    "barrier": barrier_cases,
    "tma": tma_cases,
    "descriptor": descriptor_cases,
    "wgmma": wgmma_cases,
    "task": task_cases,
    "cluster": cluster_cases,
    "extra": extra_cases,
}
FAMILIES = {**TILE_FAMILIES, **ASYNC_FAMILIES}
ASYNC_CASES: tuple[Case, ...] = tuple(case for family in ASYNC_FAMILIES.values() for case in family.cases())
CASES: tuple[Case, ...] = (*(case for family in TILE_FAMILIES.values() for case in family.cases()), *ASYNC_CASES)
