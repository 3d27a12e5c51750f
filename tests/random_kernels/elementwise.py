"""Elementwise statements: every operator, conversion and function, within what is defined."""

from __future__ import annotations

from tlxc.ir.types import float32, int1
from tlxc.language.promotion import arithmetic, promote

from .writer import ALL, Shape, Val, Writer, broadcast, is_bits, is_bool, is_float, is_int, larger


def _meet(a: Val, b: Val) -> Shape:
    """The shape of an operation on two values that `partner` found."""
    shape = broadcast(a.shape, b.shape)
    assert shape is not None
    return shape


def sums_and_products(w: Writer) -> Val | None:
    a, op = w.pick(), w.random.choice("+-*")
    assert a is not None
    if w.chance(0.3):
        dtype, shape = arithmetic(a.dtype), a.shape
        b, magnitude = w.literal(dtype)
    else:
        other = w.partner(a)
        if other is None:
            return None
        b, magnitude, shape = other.name, other.whole, _meet(a, other)
        dtype = arithmetic(promote(a.dtype, other.dtype))
    whole = None
    if a.whole is not None and magnitude is not None:
        whole = a.whole * magnitude if op == "*" else a.whole + magnitude
    if dtype.is_float and op == "*" and whole is None and w.chance(0.8):
        op = "+"  # products that may be fused are wanted in few programs only
    left, right = (a.name, b) if w.chance(0.7) else (b, a.name)
    return w.let(f"{left} {op} {right}", dtype, shape, whole)


def extremes(w: Writer) -> Val | None:
    a = w.pick()
    b = a and w.partner(a)
    if a is None or b is None:
        return None
    text = f"tl.{w.random.choice(('minimum', 'maximum'))}({a.name}, {b.name})"
    return w.let(text, arithmetic(promote(a.dtype, b.dtype)), _meet(a, b), larger(a, b))


def quotients(w: Writer) -> Val | None:
    """Of integers by what is not 0 or -1, or of floats."""
    a = w.pick()
    assert a is not None
    if is_float(a):
        b = w.partner(a, is_float)
        return b and w.let(f"{a.name} / {b.name}", promote(a.dtype, b.dtype), _meet(a, b))
    if is_bool(a):
        return None
    if w.chance(0.4):
        n = w.random.choice((1, 2, 3, 7, 8, 10, 64, 100))
        return w.let(f"{a.name} {w.random.choice(('//', '%'))} {n}", a.dtype, a.shape, a.whole)
    b = w.partner(a, lambda v: v.dtype.kind == a.dtype.kind)
    if b is None:
        return None
    bad = f"(({b.name} == 0) | ({b.name} == -1))" if b.dtype.signed else f"({b.name} == 0)"
    op, divisor = w.random.choice(("//", "%", "/", "cdiv")), f"tl.where({bad}, 3, {b.name})"
    text = f"tl.cdiv({a.name}, {divisor})" if op == "cdiv" else f"{a.name} {op} {divisor}"
    return w.let(text, float32 if op == "/" else promote(a.dtype, b.dtype), _meet(a, b))


def bits(w: Writer) -> Val | None:
    a = w.pick(is_bits)
    b = a and w.partner(a, is_bits)
    if a is None or b is None:
        return None
    if w.chance(0.2):
        return w.let(f"~{a.name}", a.dtype, a.shape)
    return w.let(f"{a.name} {w.random.choice('&|^')} {b.name}", promote(a.dtype, b.dtype), _meet(a, b))


def shifts(w: Writer) -> Val | None:
    a = w.pick(is_int)
    b = a and w.partner(a, is_int)
    if a is None or b is None:
        return None
    op = w.random.choice(("<<", ">>"))
    if w.chance(0.5):
        return w.let(f"{a.name} {op} {w.random.randrange(a.dtype.bits)}", a.dtype, a.shape)
    return w.let(f"{a.name} {op} ({b.name} & {a.dtype.bits - 1}).to(tl.{a.dtype.name})", a.dtype, _meet(a, b))


def comparisons(w: Writer) -> Val | None:
    a, op = w.pick(), w.random.choice(("==", "!=", "<", "<=", ">", ">="))
    assert a is not None
    b = w.partner(a)
    if b is None or w.chance(0.25):
        return w.let(f"{a.name} {op} {w.literal(a.dtype)[0]}", int1, a.shape, 1)
    return w.let(f"{a.name} {op} {b.name}", int1, _meet(a, b), 1)


def choices(w: Writer) -> Val | None:
    c = w.pick(is_bool) if w.chance(0.8) else w.pick()
    a = c and w.partner(c)
    if c is None or a is None:
        return None
    shape = _meet(c, a)
    b = w.pick(lambda v: broadcast(shape, v.shape) is not None)
    if b is None:
        return None
    whole_shape = broadcast(shape, b.shape)
    assert whole_shape is not None
    return w.let(f"tl.where({c.name}, {a.name}, {b.name})", promote(a.dtype, b.dtype), whole_shape, larger(a, b))


def signs(w: Writer) -> Val | None:
    a = w.pick()
    assert a is not None
    if w.chance(0.5):
        return w.let(f"tl.abs({a.name})", a.dtype, a.shape, a.whole)
    return w.let(f"-{a.name}", arithmetic(a.dtype), a.shape, a.whole)


def roots(w: Writer) -> Val | None:
    a = w.pick(is_float)
    return a and w.let(f"tl.sqrt({a.name})", a.dtype, a.shape)


def functions(w: Writer) -> Val | None:
    """What is approximate; in few programs."""
    a = w.pick(is_float)
    if a is None or w.chance(0.7):
        return None
    return w.let(f"tl.{w.random.choice(('exp2', 'exp', 'log2', 'log', 'rsqrt'))}({a.name})", a.dtype, a.shape)


def conversions(w: Writer) -> Val | None:
    a, to = w.pick(), w.random.choice(ALL)
    assert a is not None
    keeps = a.whole is not None and (to.is_float or to.kind == "int" and a.whole < 127)
    return w.let(f"{a.name}.to(tl.{to.name})", to, a.shape, a.whole if keeps else None)


def calls(w: Writer) -> Val | None:
    """Functions of the module, which are inlined."""
    a = w.pick()
    b = a and w.partner(a, lambda v: v.dtype == a.dtype and v.shape == a.shape)
    if a is None or b is None:
        return None
    if w.chance(0.5):
        return w.let(f"clamped({a.name}, {b.name})", arithmetic(a.dtype), a.shape, larger(a, b))
    first, second = w.name(), w.name()
    w.emit(f"{first}, {second} = sorted_pair({a.name}, {b.name})")
    w.known += [Val(n, a.dtype, a.shape, larger(a, b)) for n in (first, second)]
    return w.known[-1]


HELPERS = '''def clamped(x, high):
    """x, at most high and at least -1."""
    return tl.maximum(tl.minimum(x, high), (tl.zeros_like(x) - 1).to(x.dtype))


def sorted_pair(a, b):
    less = a <= b
    return tl.where(less, a, b), tl.where(less, b, a)
'''


def scalars(w: Writer) -> Val | None:
    """A conditional expression, `and`, `or` and `not` of numbers."""
    a = w.pick(lambda v: not v.shape)
    b = w.pick(lambda v: not v.shape and a is not None and v.dtype == a.dtype)
    if a is None or b is None:
        return None
    if is_bool(a):
        return w.let(f"{a.name} {w.random.choice(('and', 'or', 'and not'))} {b.name}", int1, (), 1)
    test = w.random.choice(("pid == 1", "n > m", f"{a.name} < {b.name}", f"{a.name} != {a.name}", "not trips"))
    return w.let(f"{a.name} if {test} else {b.name}", a.dtype, (), larger(a, b))


ELEMENTWISE = (
    (sums_and_products, 8), (extremes, 3), (quotients, 3), (bits, 2), (shifts, 2), (comparisons, 3), (choices, 5),
    (signs, 2), (roots, 1), (functions, 1), (conversions, 7), (calls, 1), (scalars, 1),
)  # fmt: skip
