"""Argument binding: from the arguments of a launch to the specialisation that they need, or to what is wrong with them.

The generated function of `fast_bind` runs at every launch; a `Binder` runs once per specialisation and where a launch
is refused.
"""

from __future__ import annotations

import difflib
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tlxc.errors import TlxcError
from tlxc.frontend.signature import Argument, Signature
from tlxc.frontend.source import MISSING, Parameter, Source
from tlxc.ir import types as ir
from tlxc.language.annotation import Declared
from tlxc.runtime import arrays, tokens
from tlxc.runtime.descriptor import DescriptorError, TensorDescriptor
from tlxc.runtime.fast_bind import OPTIONS, Given, Host, generate
from tlxc.runtime.grid import MAX_CLUSTER, Cluster, cluster_shape
from tlxc.runtime.launcher import FLOAT, INTEGER, MAP, SKIP
from tlxc.runtime.text_types import parse_type
from tlxc.runtime.tokens import ALIGN, as_python, freeze
from tlxc.targets import all_targets

NUM_WARPS = (1, 2, 4, 8, 16, 32)
# Below 24 the assembler raises the limit by itself; above, no NVIDIA thread can use more.
MAXNREG = range(24, 1 + max(target.max_registers for target in all_targets() if target.vendor == "nvidia"))


class ArgumentError(TlxcError, TypeError):
    """A launch or warm-up was given arguments that the kernel cannot take."""


@dataclass(frozen=True)
class Bound:
    """One specialisation.

    `identity` tells it apart from every other one of the kernel, also where Python's `==` does not (1, True, 1.0).
    `kinds` is for the launcher, one byte a run-time parameter.  `device` is None without arrays.
    """

    signature: Signature
    identity: tuple[Any, ...]
    kinds: bytes
    device: int | None


def declared(annotation: Any) -> Argument | None:
    """The argument that an annotation declares, or None for one that says nothing about the type (as `int` does).

    A dtype or pointer of `tl`, one with promises (`tl.ptr(dtype, align=16)`, `tl.divisible(dtype, 16)`), a descriptor
    (`tlx.tensor_descriptor_type(dtype, block_shape)`), an `Argument`, or text as in "i32", "*fp16" (see `text_types`).
    """
    if isinstance(annotation, Declared):
        return Argument(annotation.type, annotation.align, annotation.divisible)
    if isinstance(annotation, Argument):
        return annotation
    if isinstance(annotation, ir.DType):
        return Argument(ir.Scalar(annotation))
    if isinstance(annotation, (ir.Scalar, ir.Pointer, ir.Descriptor)):
        return Argument(annotation)
    return parse_type(annotation) if isinstance(annotation, str) else None


class Binder:
    """What is known of a kernel's parameters; `plain` are those that are not specialised.

    `num_warps`, `maxnreg` and `ctas_per_cga` are those of launches that give none.
    """

    def __init__(
        self,
        source: Source,
        num_warps: int,
        do_not_specialize: Sequence[str | int] = (),
        maxnreg: int | None = None,
        ctas_per_cga: tuple[int, ...] | None = None,
    ) -> None:
        self.source = source
        self.parameters = source.parameters
        self.options = dict.fromkeys(OPTIONS) | {
            "num_warps": num_warps,
            "maxnreg": maxnreg,
            "ctas_per_cga": ctas_per_cga,
            "launch_pdl": False,
        }
        self.declared = {p.name: declared(p.annotation) for p in self.parameters}
        self.plain = self._plain_names(do_not_specialize)
        self._check_parameters()

    def generate(self, host: Host) -> tuple[Callable[..., Any], Callable[..., Given]]:
        """The kernel's functions `launch(grid, ...)` and `given(...)`, see `fast_bind.generate`."""
        return generate(host, self.source.name, self.parameters, self.declared, self.plain, self.options)

    @property
    def where(self) -> str:
        return f"{self.source.name} ({self.source.file}:{self.source.first_line})"

    def _plain_names(self, do_not_specialize: Sequence[str | int]) -> set[str]:
        names = [p.name for p in self.parameters]
        chosen = set()
        for item in do_not_specialize:
            if isinstance(item, int) and 0 <= item < len(names):
                chosen.add(names[item])
            elif item in names:
                chosen.add(str(item))
            else:
                raise ArgumentError(
                    f"{self.where}: do_not_specialize names {item!r}; the parameters are {', '.join(names)}."
                )
        return chosen

    def _check_parameters(self) -> None:
        for p in self.parameters:
            if p.name in OPTIONS:
                raise ArgumentError(
                    f"{self.where}: the parameter `{p.name}` has the name of a launch option; rename it."
                )
            self._check_number(p.name, self.declared[p.name])

    def _check_number(self, name: str, argument: Argument | None) -> None:
        if argument and isinstance(argument.type, ir.Scalar) and argument.type.dtype in (ir.float16, ir.bfloat16):
            raise ArgumentError(
                f"{self.where}: the number `{name}` is declared {argument.type.dtype!r}; numbers are passed as "
                "tl.float32, so declare that and convert in the kernel."
            )

    # -- matching arguments and parameters

    def check(self, given: Given) -> dict[str, Any]:
        """The arguments of a call by name; an `ArgumentError` where they are not those that the kernel has."""
        if given.surplus:
            positional = [p.name for p in self.parameters if not p.keyword_only]
            raise ArgumentError(
                f"{self.where} takes {len(positional)} arguments by position ({', '.join(positional)}), but "
                f"{len(positional) + len(given.surplus)} were given."
            )
        for name in given.unknown:
            self._check_known(name)
        missing = [p for p in self.parameters if given.named[p.name] is MISSING]
        if missing:
            raise ArgumentError(self._missing(missing))
        return given.named

    def _check_known(self, name: str) -> None:
        known = [p.name for p in self.parameters]
        if name in known:
            return
        close = difflib.get_close_matches(name, [*known, *OPTIONS], n=1)
        hint = f" Did you mean `{close[0]}`?" if close else ""
        raise ArgumentError(
            f"{self.where} has no parameter `{name}`.{hint} Its parameters are {', '.join(known)}; launch options are "
            f"{', '.join(OPTIONS[:-1])} and {OPTIONS[-1]}."
        )

    def _missing(self, missing: Sequence[Parameter]) -> str:
        names = " and ".join(f"`{p.name}`" for p in missing)
        constants = [p.name for p in missing if p.constexpr]
        hint = ""
        if constants:
            hint = f"; compile-time parameters are passed by name, as in {constants[0]}=..., or get a default"
        return f"{self.where}: missing argument{'s' * (len(missing) > 1)} {names}{hint}."

    # -- specialisations

    def resolve(self, arguments: Mapping[str, Any], ahead: bool = False) -> Bound:
        """The specialisation for the arguments that `check` returned.

        `ahead`: nothing will be launched.  Then dtypes stand for pointers to aligned arrays of them, and arrays may be
        on any device.
        """
        run_time: list[tuple[str, Argument]] = []
        constants: list[tuple[str, Any]] = []
        warps, maxnreg = self._num_warps(arguments["num_warps"]), self._maxnreg(arguments["maxnreg"])
        cluster = self._cluster(arguments["ctas_per_cga"])
        identity: list[Any] = [warps, maxnreg, cluster]
        kinds = bytearray()
        devices: dict[int, str] = {}
        for p in self.parameters:
            value = as_python(arguments[p.name])
            if p.constexpr:
                constants.append((p.name, value))
                identity.append(self._frozen(p.name, value))
                continue
            found, device = self._runtime(p.name, value, ahead)
            if device is not None:
                devices.setdefault(device, p.name)
            identity.append((type(found), found))
            if isinstance(found, Argument):
                run_time.append((p.name, found))
                kinds.append(_kind(found))
            else:
                constants.append((p.name, found))
                kinds.append(SKIP)
        if arguments["num_stages"] is not None:
            _note_num_stages()
        if len(devices) > 1 and not ahead:
            raise ArgumentError(self._several(devices))
        signature = Signature(tuple(run_time), tuple(constants), warps, maxnreg, cluster)
        return Bound(signature, tuple(identity), bytes(kinds), next(iter(devices), None))

    def declared_signature(
        self,
        constants: Mapping[str, Any],
        num_warps: int | None = None,
        maxnreg: Any = MISSING,
        ctas_per_cga: Any = MISSING,
    ) -> Signature:
        """The signature that the annotations declare, for compiling ahead of time: nothing else is assumed.  A
        type in `constants` takes the place of the annotation of a run-time parameter.

        `num_warps` None, `maxnreg` and `ctas_per_cga` MISSING stand for the kernel's own; None is no limit and no
        cluster.
        """
        for name in constants:
            self._check_known(name)
        run_time, fixed = [], []
        for p in self.parameters:
            argument = self.declared[p.name]
            given = None if p.constexpr else declared(constants.get(p.name))
            if given is not None:
                self._check_number(p.name, given)
                run_time.append((p.name, given))
            elif p.name in constants:
                fixed.append((p.name, as_python(constants[p.name])))
            elif p.constexpr and p.default is MISSING:
                raise ArgumentError(self._missing([p]))
            elif p.constexpr or (argument is None and p.default is not MISSING):
                fixed.append((p.name, p.default))
            elif argument is None:
                raise ArgumentError(
                    f"{self.where}: the type of `{p.name}` is not declared; annotate it, as in "
                    f"`{p.name}: tl.ptr(tl.float16)` or `{p.name}: tl.int32`, or give it a value."
                )
            else:
                run_time.append((p.name, argument))
        warps = self._num_warps(self.options["num_warps"] if num_warps is None else num_warps)
        limit = self._maxnreg(self.options["maxnreg"] if maxnreg is MISSING else maxnreg)
        cluster = self._cluster(self.options["ctas_per_cga"] if ctas_per_cga is MISSING else ctas_per_cga)
        return Signature(tuple(run_time), tuple(fixed), warps, limit, cluster)

    def launch_pdl(self, arguments: Mapping[str, Any]) -> bool:
        """The option of a call; it says how a grid is launched, not how its code is compiled."""
        value = arguments["launch_pdl"]
        if type(value) is not bool:
            raise ArgumentError(f"{self.where}: launch_pdl is {value!r}; it may be True or False.")
        return value

    def _num_warps(self, value: Any) -> int:
        number = as_python(value)
        if type(number) is not int or number not in NUM_WARPS:
            raise ArgumentError(f"{self.where}: num_warps is {value!r}; it may be 1, 2, 4, 8, 16 or 32.")
        return number

    def _maxnreg(self, value: Any) -> int | None:
        number = as_python(value)
        if number is not None and (type(number) is not int or number not in MAXNREG):
            raise ArgumentError(
                f"{self.where}: maxnreg is {value!r}; it may be an integer from {MAXNREG[0]} to {MAXNREG[-1]}, the "
                "registers that a thread may use at most, or None for no limit."
            )
        return number

    def _cluster(self, value: Any) -> Cluster:
        shape = cluster_shape(value)
        if shape is None:
            raise ArgumentError(
                f"{self.where}: ctas_per_cga is {value!r}; it may be a tuple of one to three positive integers, the "
                f"CTAs of a cluster along x, y and z, {MAX_CLUSTER} in all at most, or None for no clusters."
            )
        return shape

    def _frozen(self, name: str, value: Any) -> Any:
        try:
            return freeze(value)
        except TypeError:
            raise ArgumentError(
                f"{self.where}: the compile-time parameter `{name}` was given {describe(value)}, which cannot be "
                "hashed; give a number, a string, a dtype, a function, None or a tuple of these."
            ) from None

    def values(self, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """What a launch passes, one value for each run-time parameter."""
        scan = tokens.Scanner()
        run_time = (p.name for p in self.parameters if not p.constexpr)
        return tuple(scan(arguments[name], self.declared[name])[1] for name in run_time)

    def _several(self, devices: Mapping[int, str]) -> str:
        (first, one), (second, other) = list(devices.items())[:2]
        return (
            f"{self.where}: arguments are on different devices, `{one}` on cuda:{first} and `{other}` on cuda:{second}"
            "; move them to one device with .to()."
        )

    def _runtime(self, name: str, value: Any, ahead: bool) -> tuple[Any, int | None]:
        """(Argument or the constant that replaces it, device of an array or None)"""
        if isinstance(value, TensorDescriptor):
            return self._descriptor(name, value, ahead)
        if ahead and isinstance(value, ir.Descriptor):
            return self._described(name, "a descriptor type", value), None
        if ahead and (dtype := arrays.stand_in(value)) is not None:
            return self._pointer(name, f"a pointer to {dtype!r}", dtype, 0), None
        token, passed, device = tokens.Scanner()(value)
        if token is None:
            return None, None
        if token is tokens.REFUSED:
            raise ArgumentError(self._refusal(name, value))
        if arrays.is_array(value):
            if not ahead and (device is None or device < 0):
                raise ArgumentError(
                    f"{self.where}: argument `{name}` is {describe(value)}, but kernels run on the GPU; pass "
                    f"`{name}.cuda()`."
                )
            dtype = arrays.dtype_of(token.dtype if isinstance(token, tokens.Odd) else token)
            return self._pointer(name, describe(value), dtype, passed), device
        return self._number(name, passed, token), None

    def _pointer(self, name: str, what: str, dtype: ir.DType | None, address: int) -> Argument:
        if dtype is None:
            allowed = ", ".join(t.name for t in ir.DTYPES.values() if t is not ir.int1)
            raise ArgumentError(f"{self.where}: argument `{name}` is {what}; kernels take arrays of bool, {allowed}.")
        wanted = self.declared[name]
        align = 0 if name in self.plain or address % ALIGN else ALIGN
        if wanted is None:
            return Argument(ir.Pointer(dtype), align)
        if not isinstance(wanted.type, ir.Pointer):
            raise ArgumentError(self._undeclared(name, what, wanted))
        if wanted.align and address % wanted.align:
            raise ArgumentError(
                f"{self.where}: argument `{name}` is {what} at an address that is not a multiple of the {wanted.align} "
                "bytes that its annotation promises; pass a copy (.clone()) or change the annotation."
            )
        return Argument(ir.Pointer(dtype), max(align, wanted.align))  # element types come from the arguments

    def _descriptor(self, name: str, value: TensorDescriptor, ahead: bool) -> tuple[Argument, int | None]:
        try:
            type_ = value.type()
        except DescriptorError as error:
            raise ArgumentError(f"{self.where}: argument `{name}`: {error}") from error
        device = value.device
        if not ahead and (device is None or device < 0):
            raise ArgumentError(
                f"{self.where}: argument `{name}` is a TensorDescriptor of {describe(value.base)}, but kernels run on "
                "the GPU; make it of a CUDA tensor."
            )
        return self._described(name, "a TensorDescriptor", type_), device

    def _described(self, name: str, what: str, type_: ir.Descriptor) -> Argument:
        """The Argument of a descriptor: block shape and dtype come from the argument, as those of arrays do."""
        wanted = self.declared[name]
        if wanted is not None and not isinstance(wanted.type, ir.Descriptor):
            raise ArgumentError(self._undeclared(name, what, wanted))
        return Argument(type_)

    def _number(self, name: str, number: Any, token: Any) -> Argument | int:
        """The Argument of a Python number, or 1 where it is specialised to that."""
        wanted = self.declared[name]
        special = name not in self.plain and not tokens.needs_range(wanted)
        if wanted is None:
            if token is tokens.ONE:
                return 1 if special else Argument(ir.Scalar(ir.int32))
            return Argument(ir.Scalar(token.dtype), divisible=token.divisible if special else 1)
        if not isinstance(wanted.type, ir.Scalar):
            raise ArgumentError(self._undeclared(name, describe(number), wanted))
        dtype = wanted.type.dtype
        if dtype.is_float:
            return wanted
        low, high = dtype.limits
        if isinstance(number, float) or not low <= number <= high:
            raise ArgumentError(self._undeclared(name, describe(number), wanted))
        if number % wanted.divisible:
            raise ArgumentError(
                f"{self.where}: argument `{name}` is {number}, but its annotation promises a multiple of "
                f"{wanted.divisible}."
            )
        if token is tokens.ONE and special:
            return 1
        return Argument(wanted.type, divisible=max(wanted.divisible, ALIGN if special and number % ALIGN == 0 else 1))

    def _undeclared(self, name: str, what: str, wanted: Argument) -> str:
        dtype, type_ = wanted.type.dtype, repr(wanted.type.dtype)
        if isinstance(wanted.type, ir.Pointer):
            type_ = f"tl.ptr({dtype!r})"
        elif isinstance(wanted.type, ir.Descriptor):
            type_ = f"tlx.tensor_descriptor_type({dtype!r}, {wanted.type.shape})"
        return f"{self.where}: argument `{name}` is {what}, but it is declared {type_}."

    def _refusal(self, name: str, value: Any) -> str:
        if isinstance(value, int):
            return f"{self.where}: argument `{name}` is {value}, which does not fit into 64 bits."
        if hasattr(value, "__array_interface__"):
            return (
                f"{self.where}: argument `{name}` is {describe(value)}, but kernels run on the GPU; pass a CUDA "
                f"tensor, as torch.from_numpy({name}).cuda()."
            )
        return (
            f"{self.where}: argument `{name}` is {describe(value)}; a kernel takes arrays on the GPU, a "
            "tlxc.TensorDescriptor, an int, a float, a bool, None. Annotate the parameter "
            f"`{name}: tl.constexpr` to pass other values at compile time."
        )


def _kind(argument: Argument) -> int:
    """How the launcher passes an argument."""
    if isinstance(argument.type, ir.Descriptor):
        return MAP
    return FLOAT if argument.type.dtype.is_float and isinstance(argument.type, ir.Scalar) else INTEGER


def describe(value: Any) -> str:
    """An argument in words, short."""
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        device = getattr(value, "device", None)
        where = "a CPU tensor" if getattr(device, "type", "") == "cpu" else f"a tensor on {device}"
        return f"{where} of {value.dtype}"
    if hasattr(value, "__cuda_array_interface__"):
        return f"an array of type {value.__cuda_array_interface__['typestr']}"
    if hasattr(value, "__array_interface__"):
        return f"a NumPy array of {value.dtype}"
    text = repr(value)
    return f"{text} ({type(value).__name__})" if len(text) < 60 else f"a value of type {type(value).__name__}"


@functools.lru_cache(maxsize=1)
def _note_num_stages() -> None:
    warnings.warn("tlxc does not pipeline loops by itself, so num_stages has no effect.", UserWarning, stacklevel=2)
