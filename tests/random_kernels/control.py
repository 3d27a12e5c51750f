"""Loops, branches and products."""

from __future__ import annotations

from tlxc.ir.types import DType, bfloat16, float16, float32, int32

from .elementwise import ELEMENTWISE
from .memory import constant, count_up, counted, gather, load, positions, small_array, store, walk
from .shapes import SHAPES
from .writer import Shape, Val, Writer, broadcast, is_int, is_matrix, is_scalar, is_tile


def body(w: Writer, statements: int) -> Val:
    """Statements of a block; the value that it ends with."""
    for _ in range(statements):
        statement(w)
    return w.known[-1]


def update(w: Writer, name: str, a: Val, made: Val) -> None:
    """`name`, of the type of `a`, becomes something of itself and `made`."""
    if broadcast(made.shape, a.shape) != a.shape:
        made = Val("pid", int32, ())
    x = made.name
    texts = [f"tl.minimum({name}, {x})", f"tl.maximum({name}, {x})", f"tl.where({name} > {x}, {name}, {x})"]
    if not a.dtype.is_float or w.chance(0.2):
        texts.append(f"{name} + {x}")
    w.emit(f"{name} = ({w.random.choice(texts)}).to(tl.{a.dtype.name})")


def loops(w: Writer) -> Val | None:
    """A value that is carried through a loop of run-time bounds, or through an unrolled one."""
    a = w.pick()
    if a is None or w.depth > 2:
        return None
    name, index = w.name(), w.name("i")
    w.emit(f"{name} = {a.name}")
    trips = w.random.choice(("trips", "n", "pid + 1", "m - 1", "n // 16"))
    heads = [
        f"for {index} in range({trips}):",
        f"for {index} in range(1, {trips}):",
        f"for {index} in range(pid, n, 3):",
    ]
    heads += [f"for {index} in tl.static_range(3):", f"while {index} > 0:"]
    head = w.random.choice(heads)
    if head.startswith("while"):
        w.emit(f"{index} = tl.minimum({trips}, 5)")
    with w.block(head):
        w.known += [Val(name, a.dtype, a.shape)] + [Val(index, int32, ())] * ("static" not in head)
        update(w, name, a, body(w, w.random.choice((1, 2, 3))))
        if head.startswith("while"):
            w.emit(f"{index} -= 1")
        elif w.depth == 2 and w.chance(0.1):
            store(w, Val(name, a.dtype, a.shape))  # that of the last trip remains
    w.known.append(Val(name, a.dtype, a.shape))
    return w.known[-1]


def pairs(w: Writer) -> Val | None:
    """Two values that change places in a loop."""
    a = w.pick(is_int)
    b = a and w.pick(lambda v: v.dtype == a.dtype and v.shape == a.shape)
    if a is None or b is None:
        return None
    first, second = w.name(), w.name()
    w.emit(f"{first}, {second} = {a.name}, {b.name}")
    with w.block(f"for {w.name('i')} in range({w.random.choice(('trips', 'n', 'm'))}):"):
        w.emit(f"{first}, {second} = {second}, {first} {w.random.choice('+-^')} {second}")
    w.known += [Val(name, a.dtype, a.shape) for name in (first, second)]
    return w.known[-1]


def branches(w: Writer) -> Val | None:
    """A value that depends on a branch of the whole program."""
    a, condition = w.pick(is_tile), w.pick(is_scalar)
    if a is None or w.depth > 2:
        return None
    name = w.name()
    w.emit(f"{name} = {a.name}")
    with w.block(f"if {'pid == 1' if condition is None or w.chance(0.3) else f'{condition.name} > 0'}:"):
        update(w, name, a, body(w, w.random.choice((1, 2))))
    if w.chance(0.4):
        with w.block("else:"):
            update(w, name, a, body(w, 1))
    w.known.append(Val(name, a.dtype, a.shape))
    return w.known[-1]


def product(w: Writer, m: int, n: int) -> Val:
    """tl.dot of small integers, in a loop or not."""
    k, dtype = w.random.choice((16, 32, 48, 64)), w.random.choice((float16, bfloat16))
    w.matrix = True
    if w.chance(0.5):
        a, b = operand(w, (m, k), dtype), operand(w, (k, n), dtype)
        acc = w.random.choice(("", f", tl.full(({m}, {n}), 5.0, tl.float32)"))
        return w.let(f"tl.dot({a}, {b}{acc})", float32, (m, n), 9 * k + 5)
    acc = w.name()
    w.emit(f"{acc} = tl.zeros(({m}, {n}), tl.float32)")
    with w.block(f"for {w.name('i')} in range({w.random.choice(('trips', 'pid + 1'))}):"):
        a, b = operand(w, (m, k), dtype), operand(w, (k, n), dtype)
        w.emit(f"{acc} = tl.dot({a}, {b}, {acc})")
    w.known.append(Val(acc, float32, (m, n), 3 * 9 * k))
    return w.known[-1]


def operand(w: Writer, shape: Shape, dtype: DType) -> str:
    """Small integers: loaded, loaded as integers and converted, or transposed."""
    kind = w.random.choice(("plain", "plain", "cast", "trans"))
    kept = shape[::-1] if kind == "trans" else shape
    name = small_array(w, int32 if kind == "cast" else dtype, kept)
    text = f"tl.load({name} + {positions(kept, w.random.choice(('row', 'column')))})"
    return w.let(f"tl.trans({text})" if kind == "trans" else f"{text}.to(tl.{dtype.name})", dtype, shape, 3).name


def chained(w: Writer) -> Val | None:
    """A product of which one operand was computed here."""
    a = w.pick(is_matrix, lambda v: v.shape[0] % (16 * w.num_warps) == 0 and v.shape[1] in (16, 32, 64))
    if a is None or not w.matrix:
        return None
    n, dtype = w.random.choice((16, 32)), w.random.choice((float16, bfloat16))
    small = w.let(f"({a.name}.to(tl.int32) & 3).to(tl.{dtype.name})", dtype, a.shape, 3).name
    b = operand(w, (a.shape[1], n), dtype)
    return w.let(f"tl.dot({small}, {b})", float32, (a.shape[0], n), 9 * a.shape[1])


def more_loads(w: Writer) -> Val | None:
    a = w.pick(is_tile)
    return a and load(w, a.shape)


STATEMENTS = (
    *ELEMENTWISE, *SHAPES,
    (constant, 1), (counted, 1), (gather, 2), (walk, 1), (count_up, 1), (more_loads, 2),
    (loops, 2), (pairs, 1), (branches, 1), (chained, 3),
)  # fmt: skip
FUNCTIONS, WEIGHTS = zip(*STATEMENTS)


def statement(w: Writer) -> None:
    """One that applies."""
    while w.random.choices(FUNCTIONS, WEIGHTS)[0](w) is None:
        pass
