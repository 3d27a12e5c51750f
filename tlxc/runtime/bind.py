"""Argument binding: what a launch was given, as the key of a specialisation and the values to pass.

For each kernel a function is generated as Python source.  It computes, per argument, a *token* that decides the code
(dtype and 16-byte alignment of an array; size, equality to 1 and divisibility by 16 of an integer; the value of a
constexpr) and the value to pass.  It refuses nothing: whatever is wrong leads to a key that no specialisation has, and
then `Binder.resolve` looks at the same arguments again, slowly, and either finds the signature or says what is wrong.
"""

from __future__ import annotations

import difflib
import functools
import numbers
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tlxc.errors import TlxcError
from tlxc.frontend.signature import Argument, Signature
from tlxc.frontend.source import MISSING, Parameter, Source
from tlxc.ir import types as ir
from tlxc.language.core import constexpr
from tlxc.runtime.launcher import FLOAT, INTEGER, SKIP

ALIGN = 16  # bytes, and the divisor that integers are tested for
OPTIONS = ("num_warps", "num_stages")
MIXED = -3  # stands for the device where arrays are on several
_ARRAY_DTYPES = {t.name: t for t in ir.DTYPES.values()} | {"bool": ir.int1}
_SCALARS = "an int, a float, a bool, None"


class ArgumentError(TlxcError, TypeError):
    """A launch or warm-up was given arguments that the kernel cannot take."""


@dataclass(frozen=True, eq=False)
class Odd:
    """Token of an array of this dtype whose address is not a multiple of `ALIGN`; one object a dtype."""

    dtype: Any


class _Odds(dict[Any, Odd]):
    def __missing__(self, dtype: Any) -> Odd:
        return self.setdefault(dtype, Odd(dtype))


@dataclass(frozen=True)
class Bound:
    """One specialisation.  `identity` tells it apart from every other one of the kernel, also where Python's `==` does
    not (1, True, 1.0).  `kinds` is for the launcher, one byte a run-time parameter.  `device` is None without arrays."""

    signature: Signature
    identity: tuple[Any, ...]
    kinds: bytes
    device: int | None


# -- annotations -----------------------------------------------------------------------------------------------------

_TEXT_DTYPES = {t.short: t for t in ir.DTYPES.values()} | {
    "fp16": ir.float16, "bf16": ir.bfloat16, "fp32": ir.float32,
}  # fmt: skip


def declared(annotation: Any) -> Argument | None:
    """The argument that an annotation declares, or None for one that says nothing about the type (as `int` does).

    A pointer or number of `tl`, optionally with `align` or `divisible`, or text such as "i32" and "*fp16".
    """
    if isinstance(annotation, str):
        dtype = _TEXT_DTYPES.get(annotation.lstrip("*"))
        if dtype is None:
            return None
        return Argument(ir.Pointer(dtype) if annotation.startswith("*") else ir.Scalar(dtype))
    type_ = getattr(annotation, "type", annotation)
    if isinstance(type_, ir.DType):
        type_ = ir.Scalar(type_)
    if not isinstance(type_, (ir.Scalar, ir.Pointer)):
        return None
    return Argument(type_, getattr(annotation, "align", 0), getattr(annotation, "divisible", 1))


# -- tokens ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Token:
    """Type and promises of a scalar argument; one object each (see `_token`), compared and hashed by identity."""

    dtype: ir.DType
    divisible: int = 1


@functools.cache
def _token(dtype: ir.DType, divisible: int = 1) -> _Token:
    return _Token(dtype, divisible)


_INT32, _INT32_16 = _token(ir.int32), _token(ir.int32, ALIGN)
_INT64, _INT64_16 = _token(ir.int64), _token(ir.int64, ALIGN)
_UINT64, _UINT64_16 = _token(ir.uint64), _token(ir.uint64, ALIGN)
_BOOL, _FLOAT = _token(ir.int1), _token(ir.float32)
_ONE = "1"
_BAD = "refused"  # token that no specialisation has


def _wide(value: int) -> Any:
    """Token of an integer outside of 32 bits."""
    for signed, by_16 in ((_INT64, _INT64_16), (_UINT64, _UINT64_16)):
        low, high = signed.dtype.limits
        if low <= value <= high:
            return signed if value % ALIGN else by_16
    return _BAD


def _wide_plain(value: int) -> Any:
    token = _wide(value)
    return _token(token.dtype) if isinstance(token, _Token) else token


def freeze(value: Any) -> Any:
    """A hashable stand-in that is equal exactly for equal constants of one type; TypeError where there is none."""
    if isinstance(value, constexpr):
        return freeze(value.value)
    if isinstance(value, float):
        return (float, value.hex())
    if isinstance(value, tuple):
        return (value.__class__, *map(freeze, value))
    hash(value)
    return (value.__class__, value)


def _frozen_or_bad(value: Any) -> Any:
    try:
        return freeze(value)
    except TypeError:
        return _BAD


def as_number(value: Any) -> Any:
    """A number of NumPy as the Python number that it is; anything else as it is."""
    kind = type(value)
    if isinstance(value, numbers.Number) or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")):
        return value.item() if hasattr(value, "item") else value
    return value


def _is_array(value: Any) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "dtype")


def _dtype_of(array_dtype: Any) -> ir.DType | None:
    """The dtype that a dtype of torch, NumPy or tlxc means; None where tlxc has none."""
    if isinstance(array_dtype, ir.DType):
        return array_dtype
    return _ARRAY_DTYPES.get(str(array_dtype).rpartition(".")[2])


class Scanner:
    """Tokens of arguments that are neither plain arrays nor Python ints or floats: the generated function asks it."""

    def __init__(self) -> None:
        self.arrays: set[type] = set()  # classes whose instances have data_ptr(), dtype and get_device()
        self.odd = _Odds()

    def __call__(self, value: Any) -> tuple[Any, Any, int | None]:
        """(token, value to pass, device or None)"""
        if value is None:
            return None, None, None
        if value is True or value is False:
            return _BOOL, value, None
        if _is_array(value) and hasattr(value, "get_device"):
            self.arrays.add(type(value))
            address = value.data_ptr()
            return (self.odd[value.dtype] if address % ALIGN else value.dtype), address, value.get_device()
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:
            from tlxc.runtime import cuda

            address, dtype = interface["data"][0], _interface_dtype(interface["typestr"])
            return (self.odd[dtype] if address % ALIGN else dtype), address, cuda.pointer_device(address)
        number = as_number(value)
        if isinstance(number, float):
            return _FLOAT, number, None
        if isinstance(number, bool):
            return _BOOL, number, None
        if isinstance(number, int):
            return self.integer(number), number, None
        return _BAD, None, None

    def integer(self, value: int) -> Any:
        if value == 1:
            return _ONE
        low, high = ir.int32.limits
        if low <= value <= high:
            return _INT32 if value % ALIGN else _INT32_16
        return _wide(value)


def _interface_dtype(typestr: str) -> Any:
    """The dtype of a `__cuda_array_interface__`, or its text where tlxc has none."""
    names = {"f": "float", "i": "int", "u": "uint"}
    name = "bool" if typestr[1] == "b" else f"{names.get(typestr[1], typestr[1])}{int(typestr[2:]) * 8}"
    return _ARRAY_DTYPES.get(name, typestr)


# -- the generated function ------------------------------------------------------------------------------------------

_PLAIN = frozenset({int, bool, str, type(None), ir.DType})

# {p}: prefix that no parameter has; {n}: the parameter; {i}: its number; {integer}: its token as an integer
_RUNTIME = """\
    {p}c = {n}.__class__
    if {p}c in {p}arrays:
        {p}v{i} = {n}.data_ptr()
        {array}
        {p}d = {n}.get_device()
        if {p}d != {p}device:
            {p}device = {p}d if {p}device is None else {mixed}
    elif {p}c is int:
        {p}v{i} = {n}
        {integer}
    elif {p}c is float:
        {p}v{i} = {n}
        {p}k{i} = {p}FLOAT
    else:
        {p}k{i}, {p}v{i}, {p}d = {p}scan({n})
        if {p}d is not None and {p}d != {p}device:
            {p}device = {p}d if {p}device is None else {mixed}
"""
_ARRAY = "{p}k{i} = {p}odd[{n}.dtype] if {p}v{i} & {mask} else {n}.dtype"
_ARRAY_PLAIN = "{p}k{i} = {n}.dtype"
_INTEGER = (
    "{p}k{i} = {p}ONE if {n} == 1 else ({p}I32 if {n} & 15 else {p}I32_16) if -2147483648 <= {n} <= 2147483647 "
    "else {p}wide({n})"
)
_INTEGER_PLAIN = "{p}k{i} = {p}I32 if -2147483648 <= {n} <= 2147483647 else {p}wide_plain({n})"
# Where the annotation promises what those tokens do not tell, every value is looked at.
_INTEGER_RANGED = "{p}k{i} = {p}ranged({n}, {p}declared{i})"
_CONSTANT = "    {p}k{i} = {n} if {n}.__class__ in {p}plain else {p}freeze({n})\n"


def _ranged(value: int, argument: Argument) -> Any:
    dtype = argument.type.dtype
    low, high = dtype.limits
    return _token(dtype) if low <= value <= high and value % argument.divisible == 0 else _BAD


def _needs_range(argument: Argument | None) -> bool:
    """Whether an integer must be looked at beyond its token: another width, or a divisor other than `ALIGN`."""
    if argument is None or not isinstance(argument.type, ir.Scalar) or argument.type.dtype.is_float:
        return False
    return argument.type.dtype not in (ir.int32, ir.int64) or argument.divisible not in (1, ALIGN)


class Binder:
    """Binds the arguments of one kernel.

    `fast(*args, **options)` returns (key, values); the key ends with the device.  `resolve` gives the `Bound` that a key
    stands for.  `names(*args, **options)` gives all arguments by name.
    """

    def __init__(self, source: Source, num_warps: int, do_not_specialize: Sequence[str | int] = ()) -> None:
        self.source = source
        self.parameters = source.parameters
        self.num_warps = num_warps
        self.declared = {p.name: declared(p.annotation) for p in self.parameters}
        self.plain = self._plain_names(do_not_specialize)
        self.scan = Scanner()
        self._check_parameters()
        namespace = self._namespace()
        exec(compile(self._text(), f"<binder of {source.name}>", "exec"), namespace)
        self.fast: Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]] = namespace["bind"]
        self.names: Callable[..., dict[str, Any]] = namespace["names"]

    # -- making it

    @functools.cached_property
    def _prefix(self) -> str:
        prefix = "_"
        while any(p.name.startswith(prefix) for p in self.parameters):
            prefix += "_"
        return prefix

    @property
    def where(self) -> str:
        return f"{self.source.name} ({self.source.file}:{self.source.first_line})"

    def _plain_names(self, do_not_specialize: Sequence[str | int]) -> set[str]:
        all_names = [p.name for p in self.parameters]
        chosen = set()
        for item in do_not_specialize:
            if isinstance(item, int) and 0 <= item < len(all_names):
                chosen.add(all_names[item])
            elif item in all_names:
                chosen.add(str(item))
            else:
                raise ArgumentError(f"{self.where}: do_not_specialize names {item!r}; the parameters are {', '.join(all_names)}.")
        return chosen

    def _check_parameters(self) -> None:
        for p in self.parameters:
            if p.name in OPTIONS:
                raise ArgumentError(f"{self.where}: the parameter `{p.name}` has the name of a launch option; rename it.")
            argument = self.declared[p.name]
            if argument and isinstance(argument.type, ir.Scalar) and argument.type.dtype in (ir.float16, ir.bfloat16):
                raise ArgumentError(
                    f"{self.where}: the number `{p.name}` is declared {argument.type.dtype!r}; numbers are passed as "
                    "tl.float32, so declare that and convert in the kernel."
                )

    def _namespace(self) -> dict[str, Any]:
        p = self._prefix
        values = {
            "arrays": self.scan.arrays, "odd": self.scan.odd, "scan": self.scan, "wide": _wide, "wide_plain": _wide_plain,
            "freeze": _frozen_or_bad, "plain": _PLAIN, "ranged": _ranged, "ONE": _ONE, "I32": _INT32, "I32_16": _INT32_16,
            "FLOAT": _FLOAT, "current": current_device,
        }  # fmt: skip
        namespace = {p + name: value for name, value in values.items()}
        for i, parameter in enumerate(self.parameters):
            namespace[f"{p}default{i}"] = parameter.default
            namespace[f"{p}declared{i}"] = self.declared[parameter.name]
        return namespace

    def _text(self) -> str:
        p = self._prefix
        parts, star = [], False
        for i, parameter in enumerate(self.parameters):
            if parameter.keyword_only and not star:
                parts.append("*")
                star = True
            parts.append(parameter.name + (f"={p}default{i}" if parameter.default is not MISSING else ""))
        parts += [*([] if star else ["*"]), f"num_warps={self.num_warps}", "num_stages=None"]
        head = ", ".join(parts)
        body = "".join(self._parameter_text(i, parameter) for i, parameter in enumerate(self.parameters))
        key = "".join(
            f"{parameter.name}.__class__, {p}k{i}, " if parameter.constexpr else f"{p}k{i}, "
            for i, parameter in enumerate(self.parameters)
        )
        values = "".join(f"{p}v{i}, " for i, parameter in enumerate(self.parameters) if not parameter.constexpr)
        named = ", ".join(f"'{x}': {x}" for x in [*(q.name for q in self.parameters), *OPTIONS])
        return (
            f"def bind({head}):\n    {p}device = None\n{body}"
            f"    if {p}device is None:\n        {p}device = {p}current()\n"
            f"    return ({key}num_warps, {p}device), ({values})\n"
            f"def names({head}):\n    return {{{named}}}\n"
        )

    def _parameter_text(self, i: int, parameter: Parameter) -> str:
        argument = self.declared[parameter.name]
        promised = argument.align if argument else 0
        slots = {"p": self._prefix, "n": parameter.name, "i": i, "mask": max(ALIGN, promised) - 1}
        if parameter.constexpr:
            return _CONSTANT.format(**slots)
        plain = parameter.name in self.plain
        integer = _INTEGER_RANGED if _needs_range(argument) else _INTEGER_PLAIN if plain else _INTEGER
        array = _ARRAY_PLAIN if plain and not promised else _ARRAY
        return _RUNTIME.format(**slots, mixed=MIXED, array=array.format(**slots), integer=integer.format(**slots))

    # -- matching arguments and parameters

    def match(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Every parameter and option by name, defaults included; an `ArgumentError` says what does not fit."""
        positional = [p.name for p in self.parameters if not p.keyword_only]
        if len(args) > len(positional):
            raise ArgumentError(
                f"{self.where} takes {len(positional)} arguments by position ({', '.join(positional)}), but {len(args)} were given."
            )
        given = dict(zip(positional, args))
        for name, value in kwargs.items():
            if name in given:
                raise ArgumentError(f"{self.where}: argument `{name}` was given twice, by position and by name.")
            if name not in OPTIONS and all(p.name != name for p in self.parameters):
                raise ArgumentError(self._unknown(name))
            given[name] = value
        found: dict[str, Any] = {}
        missing = []
        for p in self.parameters:
            if p.name in given:
                found[p.name] = given[p.name]
            elif p.default is not MISSING:
                found[p.name] = p.default
            else:
                missing.append(p)
        if missing:
            raise ArgumentError(self._missing(missing))
        return found | {"num_warps": given.get("num_warps", self.num_warps), "num_stages": given.get("num_stages")}

    def _unknown(self, name: str) -> str:
        known = [p.name for p in self.parameters] + list(OPTIONS)
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean `{close[0]}`?" if close else ""
        return (
            f"{self.where} has no parameter `{name}`.{hint} Its parameters are {', '.join(known[: -len(OPTIONS)])}; "
            f"launch options are {' and '.join(OPTIONS)}."
        )

    def _missing(self, missing: Sequence[Parameter]) -> str:
        names = " and ".join(f"`{p.name}`" for p in missing)
        what = "argument" if len(missing) == 1 else "arguments"
        constants = [p.name for p in missing if p.constexpr]
        hint = f"; compile-time parameters are passed by name, as in {constants[0]}=..., or get a default" if constants else ""
        return f"{self.where}: missing {what} {names}{hint}."

    # -- specialisations

    def resolve(self, arguments: Mapping[str, Any], ahead: bool = False) -> Bound:
        """The specialisation for matched arguments.

        `ahead`: nothing will be launched.  Then dtypes stand for pointers to aligned arrays of them, and arrays may be
        on any device.
        """
        run_time: list[tuple[str, Argument]] = []
        constants: list[tuple[str, Any]] = []
        identity: list[Any] = [self._num_warps(arguments["num_warps"])]
        kinds = bytearray()
        devices: dict[int, str] = {}
        for p in self.parameters:
            value = arguments[p.name]
            if p.constexpr:
                constants.append((p.name, _unwrapped(value)))
                identity.append(self._frozen(p.name, value))
                continue
            found, device = self._runtime(p.name, value, ahead)
            if device is not None:
                devices.setdefault(device, p.name)
            identity.append((type(found), found))
            if isinstance(found, Argument):
                run_time.append((p.name, found))
                kinds.append(FLOAT if found.type.dtype.is_float and isinstance(found.type, ir.Scalar) else INTEGER)
            else:
                constants.append((p.name, found))
                kinds.append(SKIP)
        if arguments["num_stages"] is not None:
            _note_num_stages()
        if len(devices) > 1 and not ahead:
            raise ArgumentError(self._several(devices))
        signature = Signature(tuple(run_time), tuple(constants), identity[0])
        return Bound(signature, tuple(identity), bytes(kinds), next(iter(devices), None))

    def declared_signature(self, constants: Mapping[str, Any], num_warps: int | None = None) -> Signature:
        """The signature that the annotations declare, for compiling ahead of time: nothing else is assumed."""
        for name in constants:
            if all(p.name != name for p in self.parameters):
                raise ArgumentError(self._unknown(name))
        run_time, fixed = [], []
        for p in self.parameters:
            argument = self.declared[p.name]
            if p.name in constants:
                fixed.append((p.name, _unwrapped(constants[p.name])))
            elif p.constexpr and p.default is MISSING:
                raise ArgumentError(self._missing([p]))
            elif p.constexpr or (argument is None and p.default is not MISSING):
                fixed.append((p.name, p.default))
            elif argument is None:
                raise ArgumentError(
                    f"{self.where}: the type of `{p.name}` is not declared; annotate it, as in `{p.name}: tl.ptr(tl.float16)` "
                    f"or `{p.name}: tl.int32`, or give it a value."
                )
            else:
                run_time.append((p.name, argument))
        warps = self._num_warps(self.num_warps if num_warps is None else num_warps)
        return Signature(tuple(run_time), tuple(fixed), warps)

    def _num_warps(self, value: Any) -> int:
        number = as_number(value)
        if type(number) is not int or number not in (1, 2, 4, 8, 16, 32):
            raise ArgumentError(f"{self.where}: num_warps is {value!r}; it may be 1, 2, 4, 8, 16 or 32.")
        return number

    def _frozen(self, name: str, value: Any) -> Any:
        try:
            return freeze(value)
        except TypeError:
            raise ArgumentError(
                f"{self.where}: the compile-time parameter `{name}` was given {_describe(value)}, which cannot be hashed; "
                "give a number, a string, a dtype, a function, None or a tuple of these."
            ) from None

    def _several(self, devices: Mapping[int, str]) -> str:
        (first, one), (second, other) = list(devices.items())[:2]
        return (
            f"{self.where}: arguments are on different devices, `{one}` on {_device_name(first)} and `{other}` on "
            f"{_device_name(second)}; move them to one device with .to()."
        )

    def _runtime(self, name: str, value: Any, ahead: bool) -> tuple[Any, int | None]:
        """(Argument or the constant that replaces it, device of an array or None)"""
        value = _unwrapped(value)
        if ahead and (dtype := _stand_in(value)) is not None:
            return self._pointer(name, f"a pointer to {dtype!r}", dtype, 0), None
        token, address, device = self.scan(value)
        if token is None:
            return None, None
        if _is_array(value) or hasattr(value, "__cuda_array_interface__"):
            if not ahead:
                self._check_device(name, value, device)
            dtype = token.dtype if isinstance(token, Odd) else token
            return self._pointer(name, _describe(value), _dtype_of(dtype), address), device
        if token is _BAD:
            raise ArgumentError(self._refusal(name, value))
        return self._number(name, value, token), None

    def _check_device(self, name: str, value: Any, device: int | None) -> None:
        if device is None or device < 0:
            raise ArgumentError(
                f"{self.where}: argument `{name}` is {_describe(value)}, but kernels run on the GPU; pass `{name}.cuda()`."
            )

    def _pointer(self, name: str, what: str, dtype: ir.DType | None, address: int) -> Argument:
        if dtype is None:
            allowed = ", ".join(t.name for t in ir.DTYPES.values() if t is not ir.int1)
            raise ArgumentError(f"{self.where}: argument `{name}` is {what}; kernels take arrays of bool, {allowed}.")
        wanted = self.declared[name]
        align = 0 if name in self.plain or address % ALIGN else ALIGN
        if wanted is None:
            return Argument(ir.Pointer(dtype), align)
        if wanted.type != ir.Pointer(dtype):
            raise ArgumentError(f"{self.where}: argument `{name}` is {what}, but it is declared {_type_name(wanted.type)}.")
        if wanted.align and address % wanted.align:
            raise ArgumentError(
                f"{self.where}: argument `{name}` is {what} at an address that is not a multiple of the {wanted.align} bytes "
                "that its annotation promises; pass a copy (.clone()) or change the annotation."
            )
        return Argument(wanted.type, max(align, wanted.align))

    def _number(self, name: str, value: Any, token: Any) -> Any:
        number = as_number(value)
        wanted = self.declared[name]
        if wanted is None:
            if token is _ONE and name not in self.plain:
                return 1
            divisible = 1 if name in self.plain or not isinstance(token, _Token) else token.divisible
            return Argument(ir.Scalar(ir.int32 if token is _ONE else token.dtype), divisible=divisible)
        if not isinstance(wanted.type, ir.Scalar):
            raise ArgumentError(
                f"{self.where}: argument `{name}` is {_describe(value)}, but it is declared {_type_name(wanted.type)}."
            )
        dtype = wanted.type.dtype
        if dtype.is_float:
            return Argument(wanted.type)
        low, high = dtype.limits
        if isinstance(number, float) or not low <= number <= high:
            raise ArgumentError(f"{self.where}: argument `{name}` is {_describe(value)}, but it is declared {dtype!r}.")
        if number % wanted.divisible:
            raise ArgumentError(
                f"{self.where}: argument `{name}` is {number}, but its annotation promises a multiple of {wanted.divisible}."
            )
        if token is _ONE and name not in self.plain and not _needs_range(wanted):
            return 1
        special = name not in self.plain and not _needs_range(wanted) and number % ALIGN == 0
        return Argument(wanted.type, divisible=max(wanted.divisible, ALIGN if special else 1))

    def _refusal(self, name: str, value: Any) -> str:
        if isinstance(value, int):
            return f"{self.where}: argument `{name}` is {value}, which does not fit into 64 bits."
        if hasattr(value, "__array_interface__"):
            return (
                f"{self.where}: argument `{name}` is {_describe(value)}, but kernels run on the GPU; pass a CUDA tensor, as "
                f"torch.from_numpy({name}).cuda()."
            )
        return (
            f"{self.where}: argument `{name}` is {_describe(value)}; a kernel takes arrays on the GPU, {_SCALARS}. Annotate the "
            f"parameter `{name}: tl.constexpr` to pass other values at compile time."
        )


def _unwrapped(value: Any) -> Any:
    return as_number(value.value if isinstance(value, constexpr) else value)


def _stand_in(value: Any) -> ir.DType | None:
    """The dtype that stands for a pointer: of tlxc or torch, or a pointer type."""
    if isinstance(value, ir.Pointer):
        return value.dtype
    if isinstance(value, ir.DType):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.dtype):
        return _dtype_of(value)
    return None


def _describe(value: Any) -> str:
    """An argument in words, short."""
    if hasattr(value, "__array_interface__") and not hasattr(value, "data_ptr") and getattr(value, "shape", ()) != ():
        return f"a NumPy array of {value.dtype}"
    if _is_array(value):
        device = getattr(value, "device", "")
        where = "a CPU tensor" if getattr(device, "type", "") == "cpu" else f"a tensor on {device}" if device else "an array"
        return f"{where} of {value.dtype}"
    if hasattr(value, "__cuda_array_interface__"):
        return f"an array of type {value.__cuda_array_interface__['typestr']}"
    text = repr(value)
    return f"{text} ({type(value).__name__})" if len(text) < 60 else f"a value of type {type(value).__name__}"


def _type_name(type_: ir.Scalar | ir.Pointer) -> str:
    return f"tl.ptr({type_.dtype!r})" if isinstance(type_, ir.Pointer) else repr(type_.dtype)


def _device_name(ordinal: int) -> str:
    return "the CPU" if ordinal < 0 else f"cuda:{ordinal}"


@functools.lru_cache(maxsize=1)
def _note_num_stages() -> None:
    warnings.warn("tlxc does not pipeline loops by itself, so num_stages has no effect.", UserWarning, stacklevel=2)


def current_device() -> int:
    """The device of a launch without arrays: torch's current one, or that of the thread's context."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return int(torch.cuda.current_device())
    from tlxc.runtime import cuda

    return cuda.current_device()
