"""All cases of the matrix, by family."""

from __future__ import annotations

from . import buffer_cases, control_cases, math_cases, memory_cases, mma_cases, reduce_cases, shape_cases
from .support import Case

FAMILIES = {
    "math": math_cases,
    "memory": memory_cases,
    "shape": shape_cases,
    "reduce": reduce_cases,
    "control": control_cases,
    "mma": mma_cases,
}
ASYNC_FAMILIES = {
    "buffer": buffer_cases,
}
ASYNC_CASES: tuple[Case, ...] = tuple(case for family in ASYNC_FAMILIES.values() for case in family.cases())
CASES: tuple[Case, ...] = (*(case for family in FAMILIES.values() for case in family.cases()), *ASYNC_CASES)
