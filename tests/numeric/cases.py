"""All cases of the matrix, by family."""

from __future__ import annotations

from . import control_cases, math_cases, memory_cases, mma_cases, reduce_cases, shape_cases
from .support import Case

FAMILIES = {
    "math": math_cases,
    "memory": memory_cases,
    "shape": shape_cases,
    "reduce": reduce_cases,
    "control": control_cases,
    "mma": mma_cases,
}
CASES: tuple[Case, ...] = tuple(case for family in FAMILIES.values() for case in family.cases())
