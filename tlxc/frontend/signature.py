"""What a kernel is compiled for: the types of its run-time arguments, its constants and its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tlxc.ir.types import Descriptor, Pointer, Scalar


@dataclass(frozen=True)
class Argument:
    """A run-time argument.  `align`: bytes that the address is a multiple of (0: only the element's own size);
    `divisible`: an integer that the value is known to be a multiple of."""

    type: Scalar | Pointer | Descriptor
    align: int = 0
    divisible: int = 1

    def __str__(self) -> str:
        aligned = f", {self.align}-byte aligned" if self.align else ""
        return f"{self.type}{aligned}" + (f", multiple of {self.divisible}" if self.divisible > 1 else "")


@dataclass(frozen=True)
class Signature:
    """One specialisation of a kernel.  `arguments` are passed at launch, in order; `constants` are compile-time values:
    constexpr parameters, `None`, and integers specialised to 1.  `maxnreg`: registers that a thread may use at most;
    None is no limit."""

    arguments: tuple[tuple[str, Argument], ...]
    constants: tuple[tuple[str, Any], ...] = ()
    num_warps: int = 4
    maxnreg: int | None = None
    cluster: tuple[int, int, int] = (1, 1, 1)
