"""Loads and stores of random programs.

Offsets and masks are expressions of `tl.arange`, the program and the numbers that the kernel gets, so they are computed
here too: an array is just as long as what the mask lets through, and no two elements are stored to one place.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numeric.support import Array, numbers, small_integers, storage, values

from tlxc.ir.types import DType, float32, int32

from .writer import ALL, Shape, Val, Writer, is_int, is_tile, size

# What may become of offsets, none of them negative.
BENT = (
    "({p}) + 3", "({p}) + 16", "({p}) * 2", "({p}) // 2", "({p}) % 8", "({p}) ^ 1", "({p}) & 13", "({p}) | 1",
    "({p}) + n", "({p}) * n", "({p}) // n", "({p}) % n", "({p}) + m * 16", "({p}).to(tl.int64) + n",
    "({p}) // 4 * 4", "({p}) % 4 + ({p}) // 4 * 8", "({p}) * 16 // 4",
)  # fmt: skip
TESTS = (
    "{p} < n", "{p} < n * 16", "{p} >= 5", "({p}) // 4 < m", "({p}) % 8 < 4", "({p} < n) | ({p} > m * 4)",
    "{a} < m", "{a} < n", "({p} >= m) & ({p} < m + n)", "({p} < n) & (pid > 0)",
)  # fmt: skip


def axis(shape: Shape, i: int) -> str:
    """The index along an axis, in as many dimensions."""
    text = f"tl.arange(0, {shape[i]})"
    places = ", ".join(":" if j == i else "None" for j in range(len(shape)))
    return text if len(shape) == 1 else f"{text}[{places}]"


def positions(shape: Shape, order: str = "row") -> str:
    """Offsets of a tile: row-major, column-major, or with the first axis backwards."""
    if not shape:
        return "0"
    axes = list(range(len(shape)))
    steps, step = {}, 1
    for i in axes if order == "column" else reversed(axes):
        steps[i], step = step, step * shape[i]
    terms = [axis(shape, i) if steps[i] == 1 else f"{axis(shape, i)} * {steps[i]}" for i in axes]
    if order == "backwards":
        terms[0] = f"({shape[0] - 1} - {axis(shape, 0)}) * {steps[0]}"
    return " + ".join(terms)


class _Numbers(np.ndarray):  # type: ignore[type-arg]
    """Tiles of the expressions here."""

    def to(self, dtype: Any) -> Array:
        return self


def computed(w: Writer, text: str) -> list[Array]:
    """An expression, for each program."""
    tl = SimpleNamespace(arange=lambda a, b: np.arange(a, b).view(_Numbers), int64=None)
    return [np.asarray(eval(text, {"tl": tl, "pid": pid, **w.numbers})) for pid in range(w.programs)]


def place(w: Writer, shape: Shape, spread: bool) -> tuple[str, str, list[Array]]:
    """(offsets, mask or nothing, the offsets that are touched by each program); `spread`: all of them differ."""
    plain = f"{positions(shape, w.random.choice(('row', 'row', 'column', 'backwards')))} + pid * {size(shape)}"
    offsets = plain
    for _ in range(w.random.choice((0, 0, 1, 1, 2)) if shape else 0):
        offsets = w.random.choice(BENT).format(p=offsets)
    mask = ""
    if shape and w.chance(0.45):
        a = axis(shape, w.random.randrange(len(shape)))
        mask = w.random.choice(TESTS).format(p=positions(shape), a=a)
    elif not shape and w.chance(0.2):
        mask = w.random.choice(("n > m", "pid < 1"))
    found = _touched(w, shape, offsets, mask)
    everything = np.concatenate(found)
    if everything.max(initial=0) > 1 << 16 or spread and len(np.unique(everything)) < len(everything):
        offsets, found = plain, _touched(w, shape, plain, mask)
    return offsets, mask, found


def _touched(w: Writer, shape: Shape, offsets: str, mask: str) -> list[Array]:
    tests = computed(w, mask) if mask else [np.True_] * w.programs
    return [np.broadcast_to(o, shape)[np.broadcast_to(t, shape)] for o, t in zip(computed(w, offsets), tests)]


# ---------------------------------------------------------------------------------------------------------------- loads
def new_array(w: Writer, dtype: DType, count: int) -> tuple[str, float | None]:
    """A parameter, and the magnitude of its elements where they are small integers.  Some begin inside an array."""
    name = f"x{len(w.arrays)}"
    kind = w.random.choice(("special", "special", "number", "small", "small"))
    make = {"special": values, "number": numbers, "small": small_integers}[kind]
    skip = w.random.choice((0, 0, 0, 1, 8)) if count else 0
    data = np.resize(make(w.rng, dtype, count), max(count, 1) + skip)  # a dtype may have fewer values
    w.arrays[name] = (data, skip * dtype.bytes) if skip else data
    return name, 4 if kind == "small" else None


def small_array(w: Writer, dtype: DType, shape: Shape) -> str:
    """A parameter: a tile of integers from -3 to 3."""
    name = f"x{len(w.arrays)}"
    w.arrays[name] = small_integers(w.rng, dtype, size(shape), 3)
    return name


def load(w: Writer, shape: Shape, dtype: DType | None = None) -> Val:
    """A tile of an array."""
    dtype = dtype or w.random.choice(ALL)
    offsets, mask, touched = place(w, shape, spread=False)
    name, whole = new_array(w, dtype, int(np.concatenate(touched).max(initial=-1)) + 1)
    text = f"tl.load({name} + ({offsets})"
    if mask:
        text += f", mask={mask}"
        if w.chance(0.6):
            other, magnitude = w.literal(dtype)
            text += f", other={other}"
            whole = None if whole is None or magnitude is None else max(whole, magnitude)
    return w.let(f"{text})", dtype, shape, whole)


def gather(w: Writer) -> Val | None:
    """Elements at computed places."""
    index = w.pick(is_tile, is_int)
    if index is None:
        return None
    count, dtype = w.random.choice((8, 64, 13)), w.random.choice(ALL)
    name, whole = new_array(w, dtype, count)
    at = f"({index.name} & {count - 1})" if count & (count - 1) == 0 else f"({index.name}.to(tl.uint32) % {count})"
    return w.let(f"tl.load({name} + {at}.to(tl.int32))", dtype, index.shape, whole)


def walk(w: Writer) -> Val | None:
    """A sum, or a maximum, over tiles behind a pointer that moves in a loop."""
    shape = w.random.choice([v.shape for v in w.known if v.shape] or [(32,)])
    dtype = w.random.choice(ALL[1:])
    step = size(shape)
    name, whole = new_array(w, dtype, 3 * step)
    pointer, acc, i = w.name("p"), w.name(), w.name("i")
    fn = "{} + {}" if not dtype.is_float or whole is not None else "tl.maximum({}, {})"
    w.emit(f"{pointer} = {name} + {positions(shape)}")
    w.emit(f"{acc} = tl.zeros({shape}, tl.{dtype.name})")
    with w.block(f"for {i} in range(trips):"):
        w.emit(f"{acc} = {fn.format(acc, f'tl.load({pointer})')}")
        w.emit(f"{pointer} += {step}")
    w.known.append(Val(acc, dtype, shape, None if whole is None else 3 * whole))
    return w.known[-1]


# --------------------------------------------------------------------------------------------------------------- stores
def store(w: Writer, v: Val) -> None:
    """A value to an array of its own."""
    offsets, mask, touched = place(w, v.shape, spread=True)
    count = int(np.concatenate(touched).max(initial=-1)) + 1
    name = f"out{len(w.outs)}"
    w.outs[name] = np.full(max(count, 1) * v.dtype.bytes, 0xA5, np.uint8).view(storage(v.dtype))
    w.emit(f"tl.store({name} + ({offsets}), {v.name}{f', mask={mask}' if mask else ''})")


def count_up(w: Writer) -> Val | None:
    """Atomic sums, at places that elements share, or each its own, where the old value is known."""
    v = w.pick(is_tile, is_int)
    if v is None:
        return None
    name = f"out{len(w.outs)}"
    if w.depth > 1 or w.chance(0.5):
        w.outs[name] = np.zeros(8, np.int32)
        w.emit(f"tl.atomic_add({name} + ({v.name} & 7).to(tl.int32), 1)")
        return v
    dtype = w.random.choice([d for d in ALL if d.bits >= 32 and d.is_int] + [float32])
    w.outs[name] = small_integers(w.rng, dtype, size(v.shape) * w.programs)
    text = f"tl.atomic_add({name} + pid * {size(v.shape)} + {positions(v.shape)}, ({v.name} & 15).to(tl.{dtype.name}))"
    return w.let(text, dtype, v.shape, 4)


def constant(w: Writer) -> Val:
    """A number known while compiling, or one in every place."""
    dtype = w.random.choice(ALL)
    text, whole = w.literal(dtype)
    shape = w.random.choice([v.shape for v in w.known] or [()])
    return w.let(f"tl.full({shape}, {text}, tl.{dtype.name})", dtype, shape, whole)


def counted(w: Writer) -> Val:
    """The index of each element along an axis, or a number that the kernel gets."""
    shape = w.random.choice([v.shape for v in w.known] or [()])
    if not shape or w.chance(0.3):
        text = w.random.choice(("pid", "n", "m", "tl.num_programs(0)"))  # trips may be 1, a constant
        return w.let(f"{text} + {w.random.choice((0, 1, 16))}", int32, (), 64)
    i = w.random.randrange(len(shape))
    start = w.random.choice((0, 1, 5, 16))
    text = axis(shape, i).replace(f"(0, {shape[i]})", f"({start}, {start + shape[i]})")
    return w.let(text, int32, tuple(n if j == i else 1 for j, n in enumerate(shape)), start + shape[i])
