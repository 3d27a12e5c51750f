"""What random programs are written with: values whose dtype, shape and magnitude are known, and choices among them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numeric.support import Array

from tlxc.ir.types import DTYPES, DType

Shape = tuple[int, ...]
Test = Callable[["Val"], bool]
LARGEST = 4096  # elements of a tile
PRECISION = {"f16": 11, "bf16": 8, "f32": 24}
ALL = tuple(DTYPES.values())


@dataclass(frozen=True)
class Val:
    """A run-time value that has a name.  `whole`: it holds integers of at most this magnitude."""

    name: str
    dtype: DType
    shape: Shape
    whole: float | None = None


@dataclass
class Writer:
    """The program so far.  `known`: the values in scope, oldest first; `arrays`: the parameters that are read."""

    seed: int
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    known: list[Val] = field(default_factory=list)
    arrays: dict[str, Any] = field(default_factory=dict)
    outs: dict[str, Array] = field(default_factory=dict)
    counter: int = 0
    matrix: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.rng = np.random.default_rng(self.seed)
        self.programs = self.random.choice((1, 2, 3))
        self.num_warps = self.random.choice((1, 2, 4, 4, 8))
        choices = {"n": (3, 7, 16, 32, 48), "m": (2, 5, 16, 20), "trips": (0, 1, 2, 3)}
        self.numbers = {name: self.random.choice(values) for name, values in choices.items()}

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines inside a compound statement; what becomes known in it is not known behind it."""
        self.emit(head)
        before, self.depth = len(self.known), self.depth + 1
        yield
        self.depth -= 1
        del self.known[before:]

    def name(self, letter: str = "v") -> str:
        self.counter += 1
        return f"{letter}{self.counter}"

    def let(self, text: str, dtype: DType, shape: Shape, whole: float | None = None) -> Val:
        """A new value."""
        if whole is not None and dtype.is_float and whole > 2.0 ** PRECISION[dtype.short]:
            whole = None
        made = Val(self.name(), dtype, shape, whole)
        self.emit(f"{made.name} = {text}")
        self.known.append(made)
        return made

    # -- choosing
    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def pick(self, *tests: Test) -> Val | None:
        """A known value, of the later ones rather than of the first."""
        found = [v for v in self.known if all(test(v) for test in tests)]
        return found[-1 - min(int(self.random.expovariate(0.35)), len(found) - 1)] if found else None

    def partner(self, a: Val, *tests: Test) -> Val | None:
        """A value that meets `a`; most often another one."""
        fits: tuple[Test, ...] = (lambda v: broadcast(a.shape, v.shape) is not None, *tests)
        return self.pick(lambda v: v is not a or self.chance(0.1), *fits) or self.pick(*fits)

    def literal(self, dtype: DType) -> tuple[str, float | None]:
        """A number that `dtype` holds, and its magnitude where it is an integer."""
        if dtype.is_float:
            text = self.random.choice([t for t in FLOAT_LITERALS if t != NOT_IN.get(dtype.short)])
            number = float(text.replace("float('inf')", "inf"))
            return text, abs(number) if number.is_integer() else None
        if dtype.kind == "bool":
            return self.random.choice(("True", "False")), 1
        low, high = dtype.limits
        n = self.random.choice([n for n in (0, 1, 2, 3, 5, 7, -1, -2, low, high) if low <= n <= high])
        return f"({n})" if n < 0 else str(n), abs(n)


FLOAT_LITERALS = ("0.0", "-0.0", "1.0", "2.0", "-3.0", "0.5", "0.375", "-1.0", "float('inf')", "1e-7", "-6e4")
NOT_IN = {"f16": "1e-7"}  # rounds to 0


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The common shape of two of equal rank, or of a tile and a scalar."""
    if not a or not b:
        return a or b
    if len(a) != len(b) or any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
        return None
    shape = tuple(map(max, a, b))
    return shape if size(shape) <= LARGEST else None


def size(shape: Shape) -> int:
    return int(np.prod(shape, dtype=np.int64))


def larger(a: Val, b: Val) -> float | None:
    """The magnitude of a choice between two."""
    return None if a.whole is None or b.whole is None else max(a.whole, b.whole)


def is_float(v: Val) -> bool:
    return v.dtype.is_float


def is_int(v: Val) -> bool:
    return v.dtype.is_int


def is_bits(v: Val) -> bool:
    return not v.dtype.is_float


def is_bool(v: Val) -> bool:
    return v.dtype.kind == "bool"


def is_tile(v: Val) -> bool:
    return bool(v.shape)


def is_scalar(v: Val) -> bool:
    return not v.shape


def is_matrix(v: Val) -> bool:
    return len(v.shape) == 2
