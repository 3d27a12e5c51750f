"""PTX types, operands and the state of one execution of an asm block.

Registers are untyped bits, held as (lanes,) arrays of uint16, uint32 or uint64 (bool for predicates); each operand is
viewed in the type its opcode names. An instruction with a guard acts on the lanes whose predicate holds and leaves
destinations alone elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Cta
from tlxc.emulator.nvptx import special_register
from tlxc.emulator.pending import Pending, Token
from tlxc.emulator.values import BF16, Array

UNSIGNED: dict[int, np.dtype[Any]] = {
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}
SIGNED: dict[int, np.dtype[Any]] = {
    8: np.dtype(np.int8),
    16: np.dtype(np.int16),
    32: np.dtype(np.int32),
    64: np.dtype(np.int64),
}
FLOATS: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": BF16,
    "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
PAIRS: dict[str, np.dtype[Any]] = {"f16x2": np.dtype(np.float16), "bf16x2": BF16}
_BITS = {"f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32, "e4m3x2": 16, "e5m2x2": 16}


def is_type(name: str) -> bool:
    return name == "pred" or name in _BITS or bool(re.fullmatch(r"[bus](8|16|32|64)", name))


def type_bits(name: str) -> int:
    """Width of a PTX type, 1 for `pred`."""
    return 1 if name == "pred" else _BITS[name] if name in _BITS else int(name[1:])


def type_dtype(name: str) -> np.dtype[Any]:
    """How values of a scalar PTX type are computed with (`b` and `u` unsigned, packed pairs as their 32 bits)."""
    if name == "pred":
        return np.dtype(bool)
    if name in FLOATS:
        return FLOATS[name]
    return (SIGNED if name[0] == "s" else UNSIGNED)[type_bits(name)]


def container(bits: int) -> np.dtype[Any]:
    """The dtype of a register of that width; 8-bit values live in 16-bit registers."""
    return np.dtype(bool) if bits == 1 else UNSIGNED[max(16, bits)]


# -- operands
@dataclass(frozen=True)
class Register:
    index: int


@dataclass(frozen=True)
class Immediate:
    """`is_float` says that `value` is a float number, not bits."""

    value: int | float
    is_float: bool = False


@dataclass(frozen=True)
class Special:
    name: str


@dataclass(frozen=True)
class Address:
    """`coordinates` are those of a block in a tensor map."""

    base: Any
    offset: int
    coordinates: Any = None


@dataclass(frozen=True)
class Vector:
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Sink:
    """`_`: a result nobody wants."""


PtxOperand = Union[Register, Immediate, Special, Address, Vector, Sink]


@dataclass
class Frame:
    """One execution of an asm block: its registers, and the lanes that execute the current instruction. `pending` are
    the registers that hold accumulators of matrix products that are not waited for."""

    cta: Cta
    registers: list[Array]
    mask: Array
    guarded: bool = False
    pending: dict[int, Pending] = field(default_factory=dict)

    def read(self, operand: Any, type_name: str) -> Array:
        """The operand's value over all lanes in the dtype of a PTX type."""
        dtype = type_dtype(type_name)
        if isinstance(operand, Register):
            if self.pending and operand.index in self.pending:
                self.pending[operand.index].settled()
            value = self.registers[operand.index]
            if value.dtype == dtype:
                return value
            bits = type_bits(type_name)
            if bits == 1 or value.dtype == bool:
                raise EmulatorError(f"A register of {value.dtype} is used where PTX needs .{type_name}.")
            if 8 * value.dtype.itemsize != bits:
                value = value.astype(UNSIGNED[bits])
            return value.view(dtype)
        if isinstance(operand, Immediate):
            return self._immediate(operand, type_name, dtype)
        if isinstance(operand, Special):
            return self._special(operand.name).astype(UNSIGNED[type_bits(type_name)]).view(dtype)
        raise EmulatorError(f"A PTX operand of type .{type_name} is needed, found {operand}.")

    def _immediate(self, operand: Immediate, type_name: str, dtype: np.dtype[Any]) -> Array:
        lanes = self.cta.lanes
        if operand.is_float:
            return np.full(lanes, operand.value).astype(dtype if dtype.kind not in "ui" else np.float32).view(dtype)
        if type_name == "pred":
            return np.full(lanes, bool(operand.value))
        bits = type_bits(type_name)
        return np.full(lanes, int(operand.value) % (1 << bits), UNSIGNED[bits]).view(dtype)

    def _special(self, name: str) -> Array:
        read = special_register(name)
        if read is None:
            raise EmulatorError(f"The PTX special register %{name} is not known to the emulator.")
        return read(self.cta)

    def write(self, operand: Any, value: Array) -> None:
        """Bits of `value`, zero- or sign-extended by its dtype to the register; only on the lanes of the guard."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise EmulatorError(f"A PTX result needs a register, found {operand}.")
        if self.pending and not self.guarded:
            self.pending.pop(operand.index, None)
        old = self.registers[operand.index]
        if old.dtype != bool:
            if value.dtype.kind not in "ui":
                value = np.ascontiguousarray(value).view(UNSIGNED[8 * value.dtype.itemsize])
            value = value.astype(old.dtype)
        elif value.dtype != bool:
            raise EmulatorError("A PTX value that is no predicate is written to a predicate register.")
        self.registers[operand.index] = np.where(self.mask, value, old) if self.guarded else value

    def accumulator(self, operand: Any, type_name: str) -> Array:
        """Like `read`, for the next product of a chain: it may be pending."""
        if not isinstance(operand, Register):
            return self.read(operand, type_name)
        return self.registers[operand.index].view(type_dtype(type_name))

    def promise(self, operand: Any, tokens: dict[int, Token]) -> None:
        """The register holds a result that is to come; lanes of other warp groups keep what they wait for."""
        old = self.pending.get(operand.index)
        merged = {**(old.tokens if old else {}), **tokens}
        self.pending[operand.index] = Pending(self.cta, self.registers[operand.index], merged)

    def addresses(self, operand: Any) -> Array:
        """Addresses over all lanes of `[register+offset]`; 32-bit registers hold shared addresses."""
        if not isinstance(operand, Address):
            raise EmulatorError(f"A PTX address is needed, found {operand}.")
        if isinstance(operand.base, Immediate):
            base = np.full(self.cta.lanes, operand.base.value, np.uint64)
        else:
            base = self.registers[operand.base.index].astype(np.uint64)
        return base + np.uint64(operand.offset % (1 << 64))


@dataclass
class PtxInstruction:
    """`opcode` is the first word, `modifiers` the others; `types` are the modifiers that are types. `label` is where a
    `bra` goes."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: list[Any]
    text: str
    guard: tuple[int, bool] | None
    label: str = ""
    types: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.types = tuple(m for m in self.modifiers if is_type(m))

    @property
    def type(self) -> str:
        if not self.types:
            raise EmulatorError(f"The PTX instruction '{self.text}' names no type the emulator knows.")
        return self.types[-1]

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers

    @property
    def waits(self) -> bool:
        """Whether it may have to wait for other warps."""
        if self.opcode == "mbarrier":
            return self.has("try_wait")
        return self.opcode in ("bar", "barrier") and not self.has("warp") and (self.has("sync") or self.has("wait"))

    @property
    def needs_warp_group(self) -> bool:
        """Whether the four warps of a warp group execute it together."""
        return self.opcode == "wgmma" and not self.has("fence")

    def unknown(self, what: str) -> EmulatorError:
        return EmulatorError(f"PTX '{self.text}': {what}.")


Action = Callable[[Frame], None]
