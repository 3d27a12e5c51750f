"""What the target-neutral lowering asks of a vendor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tlxc.codegen.llvm_text import Writer
from tlxc.ir.core import Module
from tlxc.targets import Target


@dataclass(frozen=True)
class Access:
    """One global access of a thread: `count` words of `word` bits at `address`; `predicate` is an i1 or None."""

    address: str
    word: int
    count: int
    predicate: str | None = None
    cache: str = ""
    eviction: str = ""


class Emitter(ABC):
    """Primitives of one vendor.  Every method appends to the writer and returns names of LLVM values.

    Words are LLVM integers (i8, i16, i32, i64).
    """

    def __init__(self, target: Target, writer: Writer) -> None:
        self.target, self.w = target, writer

    # -- module shell
    @abstractmethod
    def header(self, module: Module) -> list[str]:
        """Triple, and the shared-memory global `@smem` where the module uses shared memory."""

    @abstractmethod
    def kernel_head(self, name: str, params: list[str]) -> str:
        """`define ... @name(params) #0`."""

    @abstractmethod
    def attributes(self, module: Module) -> list[str]:
        """Attribute groups: #0 of the kernel, with its launch bounds, #1 of convergent calls."""

    # -- where am I
    @abstractmethod
    def thread_id(self) -> str: ...

    @abstractmethod
    def uniform(self, value: str) -> str:
        """The i32 `value`, which all lanes of the warp share, in a form that the assembler knows to be uniform."""

    @abstractmethod
    def program_id(self, axis: int) -> str: ...

    @abstractmethod
    def num_programs(self, axis: int) -> str: ...

    # -- memory
    @abstractmethod
    def load_global(self, access: Access, other: list[str] | None) -> list[str]:
        """Words read; where the predicate is false, `other` (zeros if None)."""

    @abstractmethod
    def store_global(self, access: Access, words: list[str]) -> None: ...

    @abstractmethod
    def atomic_add(self, address: str, value: str, element: str, predicate: str | None, sem: str, scope: str) -> str:
        """Adds to an element ("i32", "u64", "f16" ...), returns the old value, 0 where the predicate is false."""

    # -- warp and task
    @abstractmethod
    def shuffle_xor(self, word: str, mask: int) -> str:
        """The i32 of lane (own ^ mask)."""

    @abstractmethod
    def shuffle_index(self, word: str, lane: str) -> str:
        """The i32 of lane `lane`."""

    @abstractmethod
    def barrier(self, id: str, num_warps: int, whole: bool) -> None:
        """Execution barrier number `id` (an i32) of `num_warps` warps; `whole`: of all warps of the CTA."""

    @abstractmethod
    def fence_async_shared(self) -> None: ...

    @abstractmethod
    def elect(self) -> str:
        """i1: one lane of the warp, always the same."""

    @abstractmethod
    def set_registers(self, budget: int, launch: int) -> None:
        """Gives the warps that run this together `budget` registers a thread, where they had `launch`."""

    # -- maths on float
    @abstractmethod
    def unary(self, kind: str, x: str) -> str:
        """exp2, exp2.ftz (denormals are zero), log2, sqrt or rsqrt of an LLVM float."""
