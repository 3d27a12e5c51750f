"""Target-neutral intrinsics (`llvm.*`). A factory takes the call, the match of its name and the kernel's attributes,
and returns the handler `(cta, argument values) -> result`."""

from __future__ import annotations

from collections.abc import Callable
from re import Match
from typing import Any

import numpy as np

from tlxc.emulator import numerics
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Cta
from tlxc.emulator.parse import Instruction
from tlxc.emulator.values import Array, int_type, signed, unsigned

Handler = Callable[[Cta, "list[Any]"], Any]
Factory = Callable[[Instruction, "Match[str]", str], Handler]


def values(function: Callable[..., Any]) -> Factory:
    """A handler that needs the argument values only."""
    return lambda call, match, attributes: lambda cta, args: function(*args)


def nothing(call: Instruction, match: Match[str], attributes: str) -> Handler:
    """Hints and orderings that change no value here."""
    return lambda cta, args: ()


def math(function: Any) -> Factory:
    """One-argument float functions; NumPy's float32 results are within 1-2 units in the last place."""
    return values(lambda a: numerics.unary(function, a))


def _signed_pair(function: Any) -> Factory:
    def factory(call: Instruction, match: Match[str], attributes: str) -> Handler:
        type_ = int_type(call.type)
        return lambda cta, args: unsigned(function(signed(args[0], type_), signed(args[1], type_)), type_)

    return factory


def _abs(call: Instruction, match: Match[str], attributes: str) -> Handler:
    type_ = int_type(call.type)
    return lambda cta, args: unsigned(np.abs(signed(args[0], type_)), type_)


def _to_integer(is_signed: bool) -> Factory:
    def factory(call: Instruction, match: Match[str], attributes: str) -> Handler:
        type_ = int_type(call.type)
        return lambda cta, args: unsigned(numerics.to_integer(args[0], is_signed, type_.bits), type_)

    return factory


def _population_count(call: Instruction, match: Match[str], attributes: str) -> Handler:
    def count(cta: Cta, args: list[Any]) -> Array:
        value = np.ascontiguousarray(args[0])
        bits = np.unpackbits(value.view(np.uint8).reshape(*value.shape, -1), axis=-1)
        return bits.sum(axis=-1).astype(value.dtype)

    return count


def _funnel(left: bool) -> Factory:
    """fshl / fshr: the high or low word of a:b shifted by c modulo the width."""

    def factory(call: Instruction, match: Match[str], attributes: str) -> Handler:
        type_ = int_type(call.type)
        width = type_.dtype.type(type_.bits)

        def shift(cta: Cta, args: list[Any]) -> Array:
            high, low, amount = args
            amount = amount % width
            rest = width - amount  # NumPy shifts by the full width give 0
            result = (high << amount) | (low >> rest) if left else (high << rest) | (low >> amount)
            return unsigned(result, type_)

        return shift

    return factory


def _assume(call: Instruction, match: Match[str], attributes: str) -> Handler:
    def check(cta: Cta, args: list[Any]) -> tuple[()]:
        broken = cta.active & ~args[0]
        if broken.any():
            raise EmulatorError(f"llvm.assume is false in lane {int(np.argmax(broken))}.")
        return ()

    return check


def _trap(call: Instruction, match: Match[str], attributes: str) -> Handler:
    def stop(cta: Cta, args: list[Any]) -> None:
        raise EmulatorError(f"Lane {int(np.argmax(cta.active))} reaches llvm.trap.")

    return stop


def _count_zeros(leading: bool) -> Factory:
    def factory(call: Instruction, match: Match[str], attributes: str) -> Handler:
        width = int_type(call.type).bits

        def count(cta: Cta, args: list[Any]) -> Array:
            places = np.arange(width - 1, -1, -1) if leading else np.arange(width)
            bits = (args[0][..., None] >> places.astype(args[0].dtype)) & 1
            return np.where(args[0] == 0, width, bits.argmax(axis=-1)).astype(args[0].dtype)

        return count

    return factory


_TYPE = r"\.\w+"
INTRINSICS: dict[str, Factory] = {
    rf"llvm\.(?:fma|fmuladd){_TYPE}": values(numerics.fma),
    rf"llvm\.fabs{_TYPE}": values(np.abs),
    rf"llvm\.copysign{_TYPE}": values(np.copysign),
    rf"llvm\.(?:minnum|minimumnum){_TYPE}": values(numerics.min_number),
    rf"llvm\.(?:maxnum|maximumnum){_TYPE}": values(numerics.max_number),
    rf"llvm\.minimum{_TYPE}": values(numerics.minimum),
    rf"llvm\.maximum{_TYPE}": values(numerics.maximum),
    rf"llvm\.sqrt{_TYPE}": math(np.sqrt),
    rf"llvm\.exp2{_TYPE}": math(np.exp2),
    rf"llvm\.log2{_TYPE}": math(np.log2),
    rf"llvm\.floor{_TYPE}": math(np.floor),
    rf"llvm\.ceil{_TYPE}": math(np.ceil),
    rf"llvm\.trunc{_TYPE}": math(np.trunc),
    rf"llvm\.(?:rint|nearbyint|roundeven){_TYPE}": math(np.rint),
    rf"llvm\.smin{_TYPE}": _signed_pair(np.minimum),
    rf"llvm\.smax{_TYPE}": _signed_pair(np.maximum),
    rf"llvm\.umin{_TYPE}": values(np.minimum),
    rf"llvm\.umax{_TYPE}": values(np.maximum),
    rf"llvm\.abs{_TYPE}": _abs,
    rf"llvm\.ctpop{_TYPE}": _population_count,
    rf"llvm\.ctlz{_TYPE}": _count_zeros(leading=True),
    rf"llvm\.cttz{_TYPE}": _count_zeros(leading=False),
    rf"llvm\.fshl{_TYPE}": _funnel(left=True),
    rf"llvm\.fshr{_TYPE}": _funnel(left=False),
    r"llvm\.fptosi\.sat\..*": _to_integer(True),
    r"llvm\.fptoui\.sat\..*": _to_integer(False),
    r"llvm\.assume": _assume,
    r"llvm\.trap": _trap,
    r"llvm\.(?:lifetime|invariant|experimental\.noalias\.scope)\..*": nothing,
}
