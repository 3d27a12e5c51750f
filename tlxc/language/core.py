"""Run-time values of a kernel, and the few helpers with which every language function appends ops.

Inside a kernel a Python bool, int, float, string, tuple or dtype is a compile-time value; a `tensor` is a run-time
value and wraps one IR value.  Functions here raise `CompileError` without a location: the frontend knows where it
stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tlxc.errors import CompileError
from tlxc.ir.core import Builder, Value
from tlxc.ir.types import DTYPES, UNIFORMITY, DType, Element, Pointer, Scalar, Tensor, Type, element_of, like, shape_of

from . import promotion
from .context import current
from .promotion import Literal, is_literal

F = TypeVar("F", bound=Callable[..., Any])

DTYPE_NAMES = ", ".join(map(repr, DTYPES.values()))


def builtin(fn: F) -> F:
    """Marks a function that the frontend calls as it is, with run-time values as `tensor`, instead of inlining it."""
    fn.__tlxc_builtin__ = True  # type: ignore[attr-defined]
    return fn


class constexpr:
    """A compile-time value: an annotation of kernel parameters, and a wrapper of module constants.

    `BLOCK: tl.constexpr` makes a parameter part of the specialisation; `SCALE = tl.constexpr(0.5)` is a constant whose
    `.value` the kernel reads.  Equal and hashed by value.  No instruction.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, constexpr) else value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, constexpr) else other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"constexpr({self.value!r})"


class handle:
    """A run-time value that is no number: a buffer, a barrier, a descriptor or a token.

    It wraps one IR value, is passed to helpers, kept in tuples, captured by tasks, and never compared."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def type(self) -> Type:
        return self.value.type

    def describe(self) -> str:
        """The value as error messages name it."""
        return f"a {type(self).__name__}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"

    def _no_comparison(self, other: object = None) -> Any:
        raise CompileError(
            f"a {type(self).__name__} is neither compared nor true or false",
            found=self.describe(),
            allowed="indexing, and the functions of tlx that take it",
        )

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _no_comparison

    def __iter__(self) -> Any:
        raise CompileError(
            f"a {type(self).__name__} cannot be iterated or unpacked",
            found=self.describe(),
            fix="index it: x[0], x[i]",
        )

    def __hash__(self) -> int:
        return id(self)


class tensor:
    """A run-time value: a tile in registers, or a scalar (number or pointer), whose shape is ().

    Values are immutable.  Operators follow `tlxc.language.promotion`; shapes broadcast as in NumPy, in explicit ops.
    """

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def type(self) -> Type:
        return self.value.type

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents; () for a scalar."""
        return shape_of(self.value.type)

    @property
    def dtype(self) -> Element:
        """The element type: a dtype, or a pointer type."""
        return element_of(self.value.type)

    @property
    def number(self) -> DType:
        """The dtype of a value that is no pointer; an error for pointers."""
        e = self.dtype
        if isinstance(e, Pointer):
            raise CompileError(
                "a number is wanted here", found=describe(self), fix="read the memory with tl.load first"
            )
        return e

    @property
    def T(self) -> tensor:
        """The transposed tile of rank 2: `tl.trans(x)`."""
        return self.trans()

    def __repr__(self) -> str:
        return f"tensor({self.value!r})"

    # ---------------------------------------------------------------------------------------- what Python may not do
    def __bool__(self) -> bool:
        raise CompileError(
            "the truth of a run-time value is not known while the kernel is compiled",
            found=describe(self),
            allowed="a run-time scalar as the condition of `if`, `while` or `x if c else y`",
            fix="choose elements with tl.where(cond, x, y), or reduce the tile to a scalar first",
        )

    def __iter__(self) -> Any:
        raise CompileError(
            "a run-time value cannot be iterated or unpacked",
            found=describe(self),
            allowed="`range`, `tl.range`, `tl.static_range` and tuples",
            fix="take a tile apart with tl.split, along a last extent of 2 or odd",
        )

    def __index__(self) -> int:
        raise CompileError(
            "a compile-time integer is wanted here",
            found=describe(self),
            fix="pass the value as a tl.constexpr parameter, or compute it from compile-time values only",
        )

    def __len__(self) -> int:
        raise CompileError(
            "a run-time value has no len()",
            found=describe(self),
            fix="read an extent with x.shape[i], known at compile time",
        )

    def __hash__(self) -> int:
        return id(self)

    # ---------------------------------------------------------------------------------------------------- operators
    def __add__(self, other: Any) -> tensor:
        return _binary("+", self, other)

    def __radd__(self, other: Any) -> tensor:
        return _binary("+", other, self)

    def __sub__(self, other: Any) -> tensor:
        return _binary("-", self, other)

    def __rsub__(self, other: Any) -> tensor:
        return _binary("-", other, self)

    def __mul__(self, other: Any) -> tensor:
        return _binary("*", self, other)

    def __rmul__(self, other: Any) -> tensor:
        return _binary("*", other, self)

    def __truediv__(self, other: Any) -> tensor:
        return _binary("/", self, other)

    def __rtruediv__(self, other: Any) -> tensor:
        return _binary("/", other, self)

    def __floordiv__(self, other: Any) -> tensor:
        return _binary("//", self, other)

    def __rfloordiv__(self, other: Any) -> tensor:
        return _binary("//", other, self)

    def __mod__(self, other: Any) -> tensor:
        return _binary("%", self, other)

    def __rmod__(self, other: Any) -> tensor:
        return _binary("%", other, self)

    def __and__(self, other: Any) -> tensor:
        return _binary("&", self, other)

    def __rand__(self, other: Any) -> tensor:
        return _binary("&", other, self)

    def __or__(self, other: Any) -> tensor:
        return _binary("|", self, other)

    def __ror__(self, other: Any) -> tensor:
        return _binary("|", other, self)

    def __xor__(self, other: Any) -> tensor:
        return _binary("^", self, other)

    def __rxor__(self, other: Any) -> tensor:
        return _binary("^", other, self)

    def __lshift__(self, other: Any) -> tensor:
        return _binary("<<", self, other)

    def __rlshift__(self, other: Any) -> tensor:
        return _binary("<<", other, self)

    def __rshift__(self, other: Any) -> tensor:
        return _binary(">>", self, other)

    def __rrshift__(self, other: Any) -> tensor:
        return _binary(">>", other, self)

    def __pow__(self, other: Any) -> tensor:
        return _binary("**", self, other)

    def __rpow__(self, other: Any) -> tensor:
        return _binary("**", other, self)

    def __matmul__(self, other: Any) -> tensor:
        return _binary("@", self, other)

    def __lt__(self, other: Any) -> tensor:
        return _binary("<", self, other)

    def __le__(self, other: Any) -> tensor:
        return _binary("<=", self, other)

    def __gt__(self, other: Any) -> tensor:
        return _binary(">", self, other)

    def __ge__(self, other: Any) -> tensor:
        return _binary(">=", self, other)

    def __eq__(self, other: Any) -> tensor:  # type: ignore[override]
        return _binary("==", self, other)

    def __ne__(self, other: Any) -> tensor:  # type: ignore[override]
        return _binary("!=", self, other)

    def __neg__(self) -> tensor:
        from . import math

        return math.negate(self)

    def __pos__(self) -> tensor:
        return self

    def __invert__(self) -> tensor:
        from . import math

        return math.invert(self)

    def __abs__(self) -> tensor:
        from . import math

        return math.abs(self)

    def __getitem__(self, index: Any) -> tensor:
        """Rank changing only: `x[:, None]`, `x[None, :]`, `x[None]`, `x[:]`."""
        from . import shape

        return shape.subscript(self, index)

    # ------------------------------------------------------------------------------------------------------ methods
    def to(self, dtype: DType, bitcast: bool = False) -> tensor:
        """`tl.cast(x, dtype, bitcast)`."""
        from . import math

        return math.cast(self, dtype, bitcast)

    def reshape(self, *extents: Any) -> tensor:
        """`tl.reshape(x, shape)`; the shape is one tuple or several ints."""
        from . import shape

        return shape.reshape(self, *extents)

    def permute(self, *order: Any) -> tensor:
        """`tl.permute(x, order)`."""
        from . import shape

        return shape.permute(self, *order)

    def trans(self, *order: Any) -> tensor:
        """`tl.trans(x)`."""
        from . import shape

        return shape.trans(self, *order)

    def expand_dims(self, axis: int) -> tensor:
        """`tl.expand_dims(x, axis)`."""
        from . import shape

        return shape.expand_dims(self, axis)

    def broadcast_to(self, *extents: Any) -> tensor:
        """`tl.broadcast_to(x, shape)`."""
        from . import shape

        return shape.broadcast_to(self, *extents)

    def split(self) -> tuple[tensor, ...]:
        """`tl.split(x)`."""
        from . import shape

        return shape.split(self)

    def sum(self, axis: int | None = None, keep_dims: bool = False, dtype: DType | None = None) -> tensor:
        """`tl.sum(x, axis, keep_dims, dtype)`."""
        from . import reduce

        return reduce.sum(self, axis, keep_dims, dtype)

    def max(self, axis: int | None = None, keep_dims: bool = False) -> tensor:
        """`tl.max(x, axis, keep_dims)`."""
        from . import reduce

        return reduce.max(self, axis, keep_dims)

    def min(self, axis: int | None = None, keep_dims: bool = False) -> tensor:
        """`tl.min(x, axis, keep_dims)`."""
        from . import reduce

        return reduce.min(self, axis, keep_dims)


def _binary(symbol: str, a: Any, b: Any) -> tensor:
    from . import math  # the operators need `tensor`, so they are imported when the first one is used

    return math.binary(symbol, a, b)


# ------------------------------------------------------------------------------------------------------------ messages
def name_of(element: Element) -> str:
    """A dtype or pointer type as its user writes it."""
    return f"tl.ptr({element.dtype!r})" if isinstance(element, Pointer) else repr(element)


def describe(x: object) -> str:
    """A value as error messages name it."""
    if isinstance(x, tensor):
        return f"a {f'tile {x.shape} of' if x.shape else 'scalar'} {name_of(x.dtype)}"
    if isinstance(x, handle):
        return x.describe()
    if is_literal(x):
        return f"the compile-time value {x!r}"
    if isinstance(x, (DType, Pointer)):
        return f"the type {name_of(x)}"
    text = repr(x)
    return f"{text} ({type(x).__name__})" if len(text) < 60 and "\n" not in text else f"a {type(x).__name__}"


# ----------------------------------------------------------------------------------------------------- building values
def builder() -> Builder:
    """The builder of the kernel in progress; an error outside a kernel."""
    return current().builder


def elementwise(kind: str, *operands: tensor, element: Element, **attrs: Any) -> tensor:
    """One elementwise op on operands of equal shape.  A scalar result is as uniform as its least uniform operand."""
    result = like(operands[0].type, element)
    if isinstance(result, Scalar):
        known = [x.type.uniform for x in operands if isinstance(x.type, Scalar)]
        result = Scalar(result.dtype, min(known, key=UNIFORMITY.index, default="task"))
    return tensor(builder().emit(kind, *(x.value for x in operands), type=result, **attrs))


def constant(value: Literal, dtype: DType) -> tensor:
    """A scalar constant; an error where `dtype` cannot hold the value."""
    return tensor(builder().emit("constant", type=Scalar(dtype), value=promotion.fit(value, dtype)))


def as_tensor(x: Any, dtype: DType | None = None) -> tensor:
    """The run-time form of a value: a tensor stays as it is (`dtype` is for literals only), a Python bool, int or float
    becomes a scalar constant of `dtype`, or of its natural dtype."""
    if isinstance(x, tensor):
        return x
    if not is_literal(x):
        raise CompileError(
            "this value does not exist at run time",
            found=describe(x),
            allowed="tiles, scalars, pointers, and Python bools, ints and floats",
        )
    return constant(x, promotion.natural(x) if dtype is None else dtype)


def convert(x: tensor, dtype: DType) -> tensor:
    """`x` in another dtype by a `cast` op; no op where the dtype is right already."""
    return x if x.number == dtype else elementwise("cast", x, element=dtype)


def tile_type(shape: tuple[int, ...], element: Element) -> Type:
    """The type of a tile, or of a task-uniform scalar for the shape ()."""
    if shape:
        return Tensor(shape, element)
    return element if isinstance(element, Pointer) else Scalar(element)


# ------------------------------------------------------------------------------------------------------ compile time
def literal_int(x: Any, what: str) -> int:
    """`x` as a compile-time integer; `what` names it in the error."""
    if isinstance(x, bool) or not isinstance(x, int):
        raise CompileError(
            f"{what} must be a compile-time integer",
            found=describe(x),
            fix="pass the value as a tl.constexpr parameter" if isinstance(x, tensor) else "",
        )
    return x


def check_dtype(x: Any, what: str = "the dtype") -> DType:
    """`x` as an element dtype."""
    if not isinstance(x, DType):
        raise CompileError(f"{what} must be a dtype", found=describe(x), allowed=DTYPE_NAMES)
    return x


def constant_floordiv(a: Literal, b: Literal) -> int:
    """`a // b` of compile-time integers: truncated toward zero, as at run time; negative operands are an error."""
    x, y = _constant_division("//", a, b)
    return x // y


def constant_mod(a: Literal, b: Literal) -> int:
    """`a % b` of compile-time integers, with a == (a // b) * b + a % b; negative operands are an error."""
    x, y = _constant_division("%", a, b)
    return x % y


def _constant_division(symbol: str, a: Literal, b: Literal) -> tuple[int, int]:
    from .math import float_division_error, zero_division_error

    if isinstance(a, float) or isinstance(b, float):
        raise float_division_error(symbol)
    if b == 0:
        raise zero_division_error(symbol)
    if a < 0 or b < 0:
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        c, python = (quotient, a // b) if symbol == "//" else (a - quotient * b, a % b)
        raise CompileError(
            f"`{symbol}` of a negative constant has two meanings",
            found=f"{a} {symbol} {b} is {c} truncated toward zero, as in C, and {python} rounded down, as in Python",
            allowed="constant operands that are not negative",
            fix="write the value that you mean; tl.cdiv(a, b) rounds up and is exact for all signs",
        )
    return int(a), int(b)


# ------------------------------------------------------------------------------------------------ what Python calls
def logical_and(a: Any, b: Any) -> tensor:
    """`a and b` of run-time values: both are evaluated, compared with zero and combined.  A tile gives a tile."""
    from . import math

    return _binary("&", math.truth(a), math.truth(b))


def logical_or(a: Any, b: Any) -> tensor:
    """`a or b` of run-time values: both are evaluated, compared with zero and combined.  A tile gives a tile."""
    from . import math

    return _binary("|", math.truth(a), math.truth(b))


def logical_not(x: Any) -> tensor:
    """`not x` of a run-time value: x == 0."""
    from . import math

    return math.invert(math.truth(x))


def builtin_min(*values: Any) -> Any:
    """Python's `min` in a kernel: of several values or of one tuple; run-time values as in tl.minimum."""
    from . import math

    return _fold("min", math.minimum, values)


def builtin_max(*values: Any) -> Any:
    """Python's `max` in a kernel: of several values or of one tuple; run-time values as in tl.maximum."""
    from . import math

    return _fold("max", math.maximum, values)


def _fold(name: str, combine: Callable[[Any, Any], Any], values: tuple[Any, ...]) -> Any:
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    elif len(values) == 1:
        raise CompileError(
            f"{name}() of one value",
            found=describe(values[0]),
            fix=f"reduce a tile with tl.{name}(x), or give two values",
        )
    if not values:
        raise CompileError(f"{name}() of nothing", allowed="two values or more, or a tuple of them")
    result = values[0]
    for v in values[1:]:
        result = combine(result, v)
    return result
