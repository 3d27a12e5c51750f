"""Random kernels: elementwise chains, conversions, reductions, changes of shape, masks, loops, branches, products.

`generate(seed)` gives one, as the text of a Python module with one kernel, and arguments; the same for a seed on every
machine.  Every kernel is defined by docs/numerics.md on all its inputs, which hold special values: divisors and shift
counts are kept in range, indices inside their arrays.  Where floats are added up they are mostly small integers, so
that most programs have one right answer, bit for bit.

    python tests/random_programs.py 17          prints the program of seed 17
    python tests/random_programs.py 0 500       runs seeds 0 to 499 in the emulator and the simulator, for sm_90
    python tests/random_programs.py 0 500 gfx950        or for another target, or on the `gpu`
"""

from __future__ import annotations

import importlib.util
import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numeric.agreement import NOTES
from numeric.support import Array, emulate, launch_on_gpu, numbers, small_integers, storage, values

from tlxc.ir.types import DTYPES, DType, bfloat16, float16, float32, int1, int32, uint32
from tlxc.language.promotion import arithmetic, promote

Shape = tuple[int, ...]
EXTENTS = (1, 2, 4, 8, 16, 32, 64, 3, 5, 12, 24, 40)
LARGEST = 2048  # elements of a tile
PRECISION = {"f16": 11, "bf16": 8, "f32": 24}
ALL = tuple(DTYPES.values())
INTEGERS = tuple(d for d in ALL if d.is_int)
FLOATS = tuple(d for d in ALL if d.is_float)


@dataclass(frozen=True)
class RandomProgram:
    """`arguments` by name and in order: arrays, of which `out...` and `count` are written, and numbers."""

    seed: int
    text: str
    arguments: dict[str, Any]
    grid: tuple[int]
    num_warps: int
    matrix: bool  # has products, which not every target computes

    def kernel(self, folder: Path) -> Any:
        """The kernel, from a file in `folder`."""
        path = folder / f"random_program_{self.seed}.py"
        path.write_text(self.text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.program


@dataclass(frozen=True)
class Val:
    """A run-time value that has a name.  `whole`: it holds integers of at most this magnitude."""

    name: str
    dtype: DType
    shape: Shape
    whole: float | None = None


@dataclass
class Writer:
    """Writes statements; each method of `STATEMENTS` adds one value, or returns None where it does not apply."""

    seed: int
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    known: list[Val] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    counter: int = 0
    matrix: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.rng = np.random.default_rng(self.seed)
        self.programs = self.random.choice((1, 2, 3))
        self.num_warps = self.random.choice((1, 2, 4, 4, 8))

    # -- writing
    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self) -> str:
        self.counter += 1
        return f"v{self.counter}"

    def let(self, text: str, dtype: DType, shape: Shape, whole: float | None = None) -> Val:
        """A new value."""
        if whole is not None and dtype.is_float and whole > 2.0 ** PRECISION[dtype.short]:
            whole = None
        made = Val(self.name(), dtype, shape, whole)
        self.emit(f"{made.name} = {text}")
        self.known.append(made)
        return made

    # -- choosing
    def pick(self, *tests: Callable[[Val], bool]) -> Val | None:
        """A known value, of the later ones rather than of the first."""
        found = [v for v in self.known if all(test(v) for test in tests)]
        return found[-1 - min(int(self.random.expovariate(0.35)), len(found) - 1)] if found else None

    def partner(self, a: Val, *tests: Callable[[Val], bool]) -> Val | None:
        """A value that meets `a`; most often another one."""
        fits = (lambda v: broadcast(a.shape, v.shape) is not None, *tests)
        return self.pick(lambda v: v is not a or self.random.random() < 0.1, *fits) or self.pick(*fits)

    def literal(self, dtype: DType) -> tuple[str, float | None]:
        """A number that `dtype` holds, and its magnitude where it is an integer."""
        if dtype.is_float:
            text = self.random.choice(("0.0", "-0.0", "1.0", "2.0", "-3.0", "0.5", "0.375", "-1.0", "float('inf')"))
            number = float(eval(text))
            return text, abs(number) if number.is_integer() else None
        low, high = dtype.limits
        n = self.random.choice([n for n in (0, 1, 2, 3, 5, 7, -1, -2, low, high) if low <= n <= high])
        return f"({n})" if n < 0 else str(n), abs(n)


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The common shape of two of equal rank, or of a tile and a scalar."""
    if not a or not b:
        return a or b
    if len(a) != len(b) or any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
        return None
    return tuple(map(max, a, b))


def size(shape: Shape) -> int:
    return int(np.prod(shape, dtype=np.int64))


def is_float(v: Val) -> bool:
    return v.dtype.is_float


def is_int(v: Val) -> bool:
    return v.dtype.is_int


def is_bool(v: Val) -> bool:
    return v.dtype.kind == "bool"


def is_tile(v: Val) -> bool:
    return bool(v.shape)


def is_scalar(v: Val) -> bool:
    return not v.shape


def is_matrix(v: Val) -> bool:
    return len(v.shape) == 2


# -------------------------------------------------------------------------------------------------------------- loading
def positions(shape: Shape, order: str = "row") -> str:
    """Offsets of a tile: row-major, column-major, or with the rows backwards."""
    if not shape:
        return "0"
    if len(shape) == 1:
        return f"tl.arange(0, {shape[0]})"
    rows, columns = shape
    r, c = f"tl.arange(0, {rows})[:, None]", f"tl.arange(0, {columns})[None, :]"
    if order == "column":
        return f"{r} + {c} * {rows}"
    return f"({rows - 1} - {r}) * {columns} + {c}" if order == "backwards" else f"{r} * {columns} + {c}"


def new_array(w: Writer, dtype: DType, count: int) -> tuple[str, float | None]:
    """A parameter, and the magnitude of its elements where they are small integers."""
    name = f"x{len(w.arrays)}"
    kind = w.random.choice(("special", "special", "number", "small", "small"))
    make = {"special": values, "number": numbers, "small": small_integers}[kind]
    data = make(w.rng, dtype, count)
    w.arrays[name] = np.resize(data, count)  # of a dtype with few values
    return name, 4 if kind == "small" else None


def load(w: Writer, shape: Shape, dtype: DType | None = None) -> Val:
    """A tile of an array, which may be masked."""
    dtype = dtype or w.random.choice(ALL)
    count = size(shape)
    name, whole = new_array(w, dtype, count * w.programs)
    offsets = positions(shape, w.random.choice(("row", "row", "column", "backwards")))
    mask = ""
    if shape and w.random.random() < 0.4:
        last = ("n", f"tl.arange(0, {shape[-1]})") if len(shape) == 1 else ("n", f"tl.arange(0, {shape[-1]})[None, :]")
        test = f"{last[1]} < {last[0]}"
        if len(shape) == 2 and w.random.random() < 0.5:
            test = f"(tl.arange(0, {shape[0]})[:, None] < m) & ({test})"
        mask = f", mask={test}"
        if w.random.random() < 0.6:
            text, magnitude = w.literal(dtype)
            mask += f", other={text}"
            whole = None if whole is None or magnitude is None else max(whole, magnitude)
    return w.let(f"tl.load({name} + pid * {count} + {offsets}{mask})", dtype, shape, whole)


def gather(w: Writer) -> Val | None:
    """Elements at computed places."""
    index = w.pick(is_tile, is_int)
    if index is None:
        return None
    count, dtype = w.random.choice((8, 64, 13)), w.random.choice(ALL)
    name, whole = new_array(w, dtype, count)
    at = f"({index.name} & {count - 1})" if count & (count - 1) == 0 else f"({index.name}.to(tl.uint32) % {count})"
    return w.let(f"tl.load({name} + {at}.to(tl.int32))", dtype, index.shape, whole)


# ---------------------------------------------------------------------------------------------------------- arithmetic
def arithmetic_op(w: Writer) -> Val | None:
    a = w.pick()
    assert a is not None
    op = w.random.choice("+-*")
    if w.random.random() < 0.3:
        text, magnitude = w.literal(a.dtype if a.dtype.kind != "bool" else int32)
        dtype = a.dtype if a.dtype.kind != "bool" else int32
        b, shape, other = text, a.shape, magnitude
    else:
        v = w.partner(a)
        if v is None:
            return None
        dtype, b, other = arithmetic(promote(a.dtype, v.dtype)), v.name, v.whole
        shape = broadcast(a.shape, v.shape) or ()
    whole = None if a.whole is None or other is None else a.whole * other if op == "*" else a.whole + other
    if dtype.is_float and op == "*" and whole is None and w.random.random() < 0.8:
        op = "+"  # products that may be fused are wanted in few programs only
        whole = None
    left, right = (a.name, b) if w.random.random() < 0.7 else (b, a.name)
    return w.let(f"{left} {op} {right}", dtype, shape, whole)


def extreme_op(w: Writer) -> Val | None:
    a = w.pick()
    b = None if a is None else w.partner(a)
    if a is None or b is None:
        return None
    whole = None if a.whole is None or b.whole is None else max(a.whole, b.whole)
    dtype, shape = arithmetic(promote(a.dtype, b.dtype)), broadcast(a.shape, b.shape) or ()
    return w.let(f"tl.{w.random.choice(('minimum', 'maximum'))}({a.name}, {b.name})", dtype, shape, whole)


def division_op(w: Writer) -> Val | None:
    """Integers by what is not 0 or -1, or floats."""
    a = w.pick()
    assert a is not None
    if is_float(a):
        b = w.partner(a, is_float)
        return b and w.let(f"{a.name} / {b.name}", promote(a.dtype, b.dtype), broadcast(a.shape, b.shape) or ())
    if not is_int(a):
        return None
    if w.random.random() < 0.4:
        n = w.random.choice((1, 2, 3, 7, 8, 10, 64, 100))
        return w.let(f"{a.name} {w.random.choice(('//', '%'))} {n}", a.dtype, a.shape, a.whole)
    b = w.partner(a, lambda v: v.dtype.kind == a.dtype.kind)
    if b is None:
        return None
    zero = f"({b.name} == 0)" if not b.dtype.signed else f"(({b.name} == 0) | ({b.name} == -1))"
    op = w.random.choice(("//", "%", "/", "cdiv"))
    divisor = f"tl.where({zero}, 3, {b.name})"
    text = f"tl.cdiv({a.name}, {divisor})" if op == "cdiv" else f"{a.name} {op} {divisor}"
    dtype = float32 if op == "/" else promote(a.dtype, b.dtype)
    return w.let(text, dtype, broadcast(a.shape, b.shape) or ())


def bit_op(w: Writer) -> Val | None:
    a = w.pick(lambda v: not is_float(v))
    if a is None:
        return None
    if is_int(a) and w.random.random() < 0.4:
        if w.random.random() < 0.5:
            count = str(w.random.randrange(a.dtype.bits))
        else:
            b = w.partner(a, is_int)
            if b is None:
                return None
            count = f"({b.name} & {a.dtype.bits - 1}).to(tl.{a.dtype.name})"
            shape = broadcast(a.shape, b.shape) or ()
            return w.let(f"{a.name} {w.random.choice(('<<', '>>'))} {count}", a.dtype, shape)
        return w.let(f"{a.name} {w.random.choice(('<<', '>>'))} {count}", a.dtype, a.shape)
    if w.random.random() < 0.2:
        return w.let(f"~{a.name}", a.dtype, a.shape)
    b = w.partner(a, lambda v: not is_float(v))
    if b is None:
        return None
    text = f"{a.name} {w.random.choice('&|^')} {b.name}"
    return w.let(text, promote(a.dtype, b.dtype), broadcast(a.shape, b.shape) or ())


def compare_op(w: Writer) -> Val | None:
    a = w.pick()
    assert a is not None
    op = w.random.choice(("==", "!=", "<", "<=", ">", ">="))
    b = w.partner(a)
    if b is None or w.random.random() < 0.25:
        text, _ = w.literal(a.dtype)
        return w.let(f"{a.name} {op} {text}", int1, a.shape, 1)
    return w.let(f"{a.name} {op} {b.name}", int1, broadcast(a.shape, b.shape) or (), 1)


def where_op(w: Writer) -> Val | None:
    c = w.pick(is_bool)
    a = None if c is None else w.partner(c)
    if c is None or a is None:
        return None
    shape = broadcast(c.shape, a.shape) or ()
    b = w.pick(lambda v: broadcast(shape, v.shape) is not None)
    if b is None:
        return None
    whole = None if a.whole is None or b.whole is None else max(a.whole, b.whole)
    dtype = promote(a.dtype, b.dtype)
    return w.let(f"tl.where({c.name}, {a.name}, {b.name})", dtype, broadcast(shape, b.shape) or (), whole)


def unary_op(w: Writer) -> Val | None:
    a = w.pick()
    assert a is not None
    kind = w.random.choice(("-", "abs", "sqrt"))
    if kind == "sqrt":
        return w.let(f"tl.sqrt({a.name})", a.dtype, a.shape) if is_float(a) else None
    if kind == "abs":
        return w.let(f"tl.abs({a.name})", a.dtype, a.shape, a.whole)
    return w.let(f"-{a.name}", arithmetic(a.dtype), a.shape, a.whole)


def function_op(w: Writer) -> Val | None:
    """What is approximate; in few programs."""
    a = w.pick(is_float)
    if a is None or w.random.random() < 0.7:
        return None
    return w.let(f"tl.{w.random.choice(('exp2', 'exp', 'log2', 'log', 'rsqrt'))}({a.name})", a.dtype, a.shape)


def cast_op(w: Writer) -> Val | None:
    a = w.pick()
    assert a is not None
    to = w.random.choice(ALL)
    keeps = a.whole is not None and (to.is_float or to.kind == "int" and a.whole < 127)
    return w.let(f"{a.name}.to(tl.{to.name})", to, a.shape, a.whole if keeps else None)


# --------------------------------------------------------------------------------------------------------------- shapes
def reduce_op(w: Writer) -> Val | None:
    a = w.pick(is_tile)
    if a is None:
        return None
    fn = w.random.choice(("sum", "max", "min"))
    axis = w.random.choice((None, *range(len(a.shape))))
    keep = axis is not None and len(a.shape) == 2
    count = size(a.shape) if axis is None else a.shape[axis]
    dtype, whole = a.dtype, a.whole
    if fn == "sum":
        if is_float(a) and (a.whole is None or a.whole * count > 2**24) and w.random.random() < 0.9:
            return None
        narrow = {"bool": int32, "int": int32, "uint": uint32, "float": a.dtype}[dtype.kind]
        dtype = narrow if dtype.bits < 32 else dtype
        whole = None if whole is None else whole * count
    if axis is None:
        return w.let(f"tl.{fn}({a.name})", dtype, (), whole)
    shape = tuple(1 if i == axis else n for i, n in enumerate(a.shape)) if keep else ()
    text = f"tl.{fn}({a.name}, {axis}, keep_dims=True)" if keep else f"tl.{fn}({a.name}, {axis})"
    return w.let(text, dtype, shape, whole)


def shape_op(w: Writer) -> Val | None:
    """Another shape of the same elements, or a row or column spread out."""
    a = w.pick(is_matrix)
    if a is None:
        return None
    rows, columns = a.shape
    whole_powers = rows & (rows - 1) == columns & (columns - 1) == 0  # odd factors keep their places in a reshape
    kinds = ("trans", "spread", "join", "split") + ("reshape", "there and back") * whole_powers
    kind = w.random.choice(kinds)
    if kind == "trans":
        return w.let(f"tl.trans({a.name})", a.dtype, (columns, rows), a.whole)
    if kind == "reshape":
        d = w.random.choice([1 << i for i in range((rows * columns).bit_length())])
        return w.let(f"tl.reshape({a.name}, ({d}, {rows * columns // d}))", a.dtype, (d, rows * columns // d), a.whole)
    if kind == "there and back":
        text = f"tl.trans(tl.reshape({a.name}, ({columns}, {rows})))"
        return w.let(text, a.dtype, (rows, columns), a.whole)
    if kind == "spread" and 1 in a.shape:
        shape = (max(rows, 4), max(columns, 4)) if rows in (1, 4) or columns in (1, 4) else None
        if shape is None or broadcast(a.shape, shape) is None:
            return None
        return w.let(f"tl.broadcast_to({a.name}, {shape})", a.dtype, shape, a.whole)
    if kind == "join" and rows * columns * 2 <= LARGEST:
        b = w.pick(lambda v: v.shape == a.shape and v.dtype == a.dtype)
        if b is None:
            return None
        whole = None if a.whole is None or b.whole is None else max(a.whole, b.whole)
        text = f"tl.reshape(tl.join({a.name}, {b.name}), ({rows}, {2 * columns}))"
        return w.let(text, a.dtype, (rows, 2 * columns), whole)
    if kind == "split" and columns % 2 == 0:
        first, second = w.name(), w.name()
        w.emit(f"{first}, {second} = tl.split(tl.reshape({a.name}, ({rows}, {columns // 2}, 2)))")
        w.known += [Val(v, a.dtype, (rows, columns // 2), a.whole) for v in (first, second)]
        return w.known[-1]
    return None


def buffer_op(w: Writer) -> Val | None:
    """Through shared memory, and perhaps transposed on the way."""
    a = w.pick(is_matrix, lambda v: v.dtype.kind != "bool")
    if a is None or w.depth > 1:
        return None
    buffer = f"b{w.name()[1:]}"
    w.emit(f"{buffer} = tlx.local_alloc({a.shape}, tl.{a.dtype.name}, 1)")
    w.emit(f"tlx.local_store({buffer}[0], {a.name})")
    if w.random.random() < 0.5:
        return w.let(f"tlx.local_load(tlx.local_trans({buffer}[0]))", a.dtype, a.shape[::-1], a.whole)
    return w.let(f"tlx.local_load({buffer}[0])", a.dtype, a.shape, a.whole)


# -------------------------------------------------------------------------------------------------------------- control
def block(w: Writer, statements: int) -> Val:
    """Statements of an inner block; the value that it ends with.  Nothing made in it is known behind it."""
    before = len(w.known)
    w.depth += 1
    for _ in range(statements):
        statement(w)
    made = w.known[-1] if len(w.known) > before else w.pick()
    assert made is not None
    w.depth -= 1
    del w.known[before:]
    return made


def loop_op(w: Writer) -> Val | None:
    """A value that is carried through a loop of run-time bounds."""
    a = w.pick(is_tile, lambda v: v.dtype.kind != "bool")
    if a is None or w.depth > 2:
        return None
    name, kind = w.name(), w.random.choice(("for", "for", "while"))
    w.emit(f"{name} = {a.name}")
    trips = w.random.choice(("trips", "n", "pid + 1", "m - 1"))
    index = f"i{name[1:]}"
    if kind == "for":
        w.emit(f"for {index} in range({w.random.choice(('', '', '1, '))}{trips}):")
    else:
        w.emit(f"{index} = tl.minimum({trips}, 5)")
        w.emit(f"while {index} > 0:")
    carried = Val(name, a.dtype, a.shape)
    w.known += [carried, Val(index, int32, ())]
    made = block(w, w.random.choice((1, 2, 3)))
    w.known.remove(carried)
    w.known = [v for v in w.known if v.name != index]
    if broadcast(made.shape, a.shape) != a.shape:
        made = Val(index, int32, ())
    fn = w.random.choice(("tl.minimum({}, {})", "tl.maximum({}, {})", "tl.where({} > {}, {}, {})", "{} + {}"))
    if a.dtype.is_float and fn == "{} + {}" and w.random.random() < 0.8:
        fn = "tl.maximum({}, {})"
    text = fn.format(*(name, made.name) * 2)
    w.depth += 1
    w.emit(f"{name} = ({text}).to(tl.{a.dtype.name})")
    if kind == "while":
        w.emit(f"{index} -= 1")
    w.depth -= 1
    w.known.append(carried)
    return carried


def branch_op(w: Writer) -> Val | None:
    """A value that depends on a branch of the whole program."""
    condition = w.pick(is_scalar)
    a = w.pick(is_tile)
    if a is None or w.depth > 2:
        return None
    test = "pid == 1" if condition is None else f"{condition.name} > 0" if not is_bool(condition) else condition.name
    name = w.name()
    w.emit(f"{name} = {a.name}")
    w.emit(f"if {test}:")
    made = block(w, w.random.choice((1, 2)))
    w.depth += 1
    fits = broadcast(made.shape, a.shape) == a.shape
    source = f"tl.broadcast_to({made.name}, {a.shape})" if fits and made.shape else f"-{name}"
    w.emit(f"{name} = ({source}).to(tl.{a.dtype.name})")
    w.depth -= 1
    w.known.append(Val(name, a.dtype, a.shape))
    return w.known[-1]


def dot_op(w: Writer, m: int, n: int) -> Val:
    """The product of two loaded tiles of small integers."""
    k = w.random.choice((16, 32, 48, 64))
    dtype = w.random.choice((float16, bfloat16))
    names = []
    for shape in ((m, k), (k, n)):
        name = f"x{len(w.arrays)}"
        w.arrays[name] = small_integers(w.rng, dtype, size(shape) * w.programs, 3)
        text = f"tl.load({name} + pid * {size(shape)} + {positions(shape, w.random.choice(('row', 'column')))})"
        names.append(w.let(text, dtype, shape, 3).name)
    acc = w.random.choice(("", f", tl.full(({m}, {n}), 5.0, tl.float32)"))
    w.matrix = True
    return w.let(f"tl.dot({names[0]}, {names[1]}{acc})", float32, (m, n), 9 * k + 5)


STATEMENTS: tuple[tuple[Callable[[Writer], Val | None], int], ...] = (
    (arithmetic_op, 8),
    (extreme_op, 3),
    (division_op, 3),
    (bit_op, 4),
    (compare_op, 3),
    (where_op, 5),
    (unary_op, 3),
    (function_op, 1),
    (cast_op, 7),
    (reduce_op, 4),
    (shape_op, 5),
    (buffer_op, 1),
    (gather, 2),
    (loop_op, 2),
    (branch_op, 1),
)


def statement(w: Writer) -> None:
    """One that applies."""
    functions, weights = zip(*STATEMENTS)
    while w.random.choices(functions, weights)[0](w) is None:
        pass


# ------------------------------------------------------------------------------------------------------------- programs
def generate(seed: int) -> RandomProgram:
    w = Writer(seed)
    if seed % 5 == 4:
        shape: Shape = (16 * w.num_warps, w.random.choice((16, 32, 64)))
        dot_op(w, *shape)
    else:
        shape = (w.random.choice(EXTENTS), w.random.choice(EXTENTS))
    for _ in range(w.random.choice((1, 2, 3))):
        load(w, w.random.choice((shape, shape, (shape[0], 1), (1, shape[1]))))
    if w.random.random() < 0.4:
        load(w, ())
    for _ in range(w.random.randint(6, 20)):
        statement(w)
    outs = store(w)
    numbers_ = {
        "n": w.random.choice((1, 3, 7, 16)),
        "m": w.random.choice((2, 5, 16)),
        "trips": w.random.choice((0, 1, 3)),
    }
    parameters = ", ".join((*w.arrays, *outs, *numbers_))
    head = ["import tlxc", "from tlxc import tl, tlx", "", "", "@tlxc.kernel", f"def program({parameters}):"]
    text = "\n".join([*head, "    pid = tl.program_id(0)", *w.lines]) + "\n"
    arguments = {**w.arrays, **outs, **numbers_}
    return RandomProgram(seed, text, arguments, (w.programs,), w.num_warps, w.matrix)


def store(w: Writer) -> dict[str, Array]:
    """The last values to arrays of their own, and a count in an array that all programs share."""
    outs: dict[str, Array] = {}
    chosen = [v for v in w.known if is_tile(v)][-3:] + [v for v in w.known if is_scalar(v)][-1:]
    for v in chosen:
        name, count = f"out{len(outs)}", size(v.shape)
        outs[name] = np.full(count * w.programs * v.dtype.bytes, 0xA5, np.uint8).view(storage(v.dtype))
        mask = ""
        if is_matrix(v) and w.random.random() < 0.3:
            mask = f", mask=tl.arange(0, {v.shape[0]})[:, None] < m"
        w.emit(f"tl.store({name} + pid * {count} + {positions(v.shape)}, {v.name}{mask})")
    counted = w.pick(is_tile, is_int)
    if counted is not None and w.random.random() < 0.3:
        outs["count"] = np.zeros(8, np.int32)
        w.emit(f"tl.atomic_add(count + ({counted.name} & 7).to(tl.int32), 1)")
    return outs


def copies(program: RandomProgram) -> dict[str, Any]:
    """Its arguments, for one run."""
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in program.arguments.items()}


def run(program: RandomProgram, folder: Path, target: str = "sm_90") -> dict[str, Any]:
    """Runs a program in the emulator for `target`, or on the GPU; both compare what comes out with the simulator."""
    kernel, args = program.kernel(folder), copies(program)
    if target == "gpu":
        launch_on_gpu(kernel, program.grid, num_warps=program.num_warps, **args)
    else:
        emulate(kernel, program.grid, num_warps=program.num_warps, target=target, **args)
    return args


def main(first: int, count: int, target: str = "sm_90") -> int:
    """Runs seeds and says which fail."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            try:
                program = generate(seed)
                if not program.matrix or target == "sm_90":
                    run(program, Path(folder), target)
            except Exception as error:
                failed.append(seed)
                print(f"seed {seed}: {''.join(traceback.format_exception_only(error))[:1500]}", flush=True)
    print(f"{count - len(failed)} of {count} run: {dict(NOTES)}; others: {failed}")
    return len(failed)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(generate(int(sys.argv[1])).text)
    else:
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]) > 0)
