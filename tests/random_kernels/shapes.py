"""Reductions, changes of shape, trips through shared memory."""

from __future__ import annotations

from tlxc.ir.types import DType, int32, uint32

from .writer import ALL, LARGEST, Shape, Val, Writer, broadcast, is_float, is_matrix, is_tile, larger, size


def reductions(w: Writer) -> Val | None:
    a, fn = w.pick(is_tile), w.random.choice(("sum", "max", "min"))
    if a is None:
        return None
    axis = w.random.choice((None, *range(len(a.shape))))
    count = size(a.shape) if axis is None else a.shape[axis]
    dtype, whole, more = a.dtype, a.whole, ""
    if fn == "sum":
        if is_float(a) and (a.whole is None or a.whole * count > 2**24) and w.chance(0.9):
            return None
        whole = None if whole is None else whole * count
        dtype = _summed(a.dtype)
        if not is_float(a) and w.chance(0.2):
            dtype = w.random.choice([d for d in ALL if d.kind == dtype.kind and d.bits >= dtype.bits])
            more = f", dtype=tl.{dtype.name}"
    if axis is None:
        return w.let(f"tl.{fn}({a.name}{more})", dtype, (), whole)
    if w.chance(0.5):
        shape = tuple(1 if i == axis else n for i, n in enumerate(a.shape))
        return w.let(f"tl.{fn}({a.name}, {axis}, keep_dims=True{more})", dtype, shape, whole)
    return w.let(f"tl.{fn}({a.name}, {axis}{more})", dtype, a.shape[:axis] + a.shape[axis + 1 :], whole)


def _summed(dtype: DType) -> DType:
    """What a sum gives."""
    if dtype.is_float or dtype.bits >= 32:
        return dtype
    return uint32 if dtype.kind == "uint" else int32


def transposes(w: Writer) -> Val | None:
    a = w.pick(lambda v: len(v.shape) > 1)
    if a is None:
        return None
    order = list(range(len(a.shape)))
    w.random.shuffle(order)
    text = f"tl.permute({a.name}, {tuple(order)})" if w.chance(0.5) or len(order) > 2 else f"tl.trans({a.name})"
    order = order if "permute" in text else [1, 0]
    return w.let(text, a.dtype, tuple(a.shape[i] for i in order), a.whole)


def new_axes(w: Writer) -> Val | None:
    a = w.pick(lambda v: len(v.shape) in (1, 2))
    if a is None:
        return None
    i = w.random.randrange(len(a.shape) + 1)
    index = ", ".join("None" if j == i else ":" for j in range(len(a.shape) + 1))
    return w.let(f"{a.name}[{index}]", a.dtype, (*a.shape[:i], 1, *a.shape[i:]), a.whole)


def reshapes(w: Writer) -> Val | None:
    """Of powers of two to any others; odd factors of extents keep their places."""
    a = w.pick(is_tile, lambda v: all(n & (n - 1) == 0 for n in v.shape))
    if a is None:
        return None
    shape = powers(w, size(a.shape))
    text = f"tl.reshape({a.name}, {shape})"
    if len(shape) == 2 and w.chance(0.3):
        text, shape = f"tl.trans({text})", shape[::-1]
    return w.let(text, a.dtype, shape, a.whole)


def powers(w: Writer, count: int) -> Shape:
    """`count`, a power of two, as 1 to 3 factors."""
    shape: list[int] = []
    for _ in range(w.random.choice((0, 1, 1, 2))):
        factor = 1 << w.random.randrange(count.bit_length())
        shape.append(factor)
        count //= factor
    return (*shape, count)


def spreads(w: Writer) -> Val | None:
    """A row or column in every row or column of a known shape."""
    a = w.pick(lambda v: 1 in v.shape)
    b = a and w.pick(lambda v: v.shape != a.shape and broadcast(v.shape, a.shape) == v.shape)
    return a and b and w.let(f"tl.broadcast_to({a.name}, {b.shape})", a.dtype, b.shape, a.whole)


def joins(w: Writer) -> Val | None:
    a = w.pick(is_tile, lambda v: size(v.shape) * 2 <= LARGEST and len(v.shape) < 3)
    b = a and w.pick(lambda v: v.shape == a.shape and v.dtype == a.dtype)
    if a is None or b is None:
        return None
    shape = (*a.shape, 2)
    text = f"tl.join({a.name}, {b.name})"
    if w.chance(0.7):
        shape = (*a.shape[:-1], 2 * a.shape[-1])
        text = f"tl.reshape({text}, {shape})"
    return w.let(text, a.dtype, shape, larger(a, b))


def splits(w: Writer) -> Val | None:
    a = w.pick(is_tile, lambda v: v.shape[-1] % 2 == 0 and len(v.shape) < 3 or v.shape[-1] == 2)
    if a is None:
        return None
    half = (*a.shape[:-1], a.shape[-1] // 2)
    source = f"tl.reshape({a.name}, {(*half, 2)})"
    if a.shape[-1] == 2 and len(a.shape) > 1:
        half, source = a.shape[:-1], a.name
    first, second = w.name(), w.name()
    w.emit(f"{first}, {second} = tl.split({source})")
    w.known += [Val(name, a.dtype, half, a.whole) for name in (first, second)]
    return w.known[-1]


def buffers(w: Writer) -> Val | None:
    """Through shared memory: as it was, transposed, a part, or of two buffers the one that is chosen at run time."""
    a = w.pick(is_matrix, lambda v: v.dtype.kind != "bool")
    if a is None or w.depth > 1:
        return None
    buffer, kind = w.name("b"), w.random.choice(("plain", "trans", "two", "slice"))
    w.emit(f"{buffer} = tlx.local_alloc({a.shape}, tl.{a.dtype.name}, {2 if kind == 'two' else 1})")
    w.emit(f"tlx.local_store({buffer}[0], {a.name})")
    if kind == "trans":
        return w.let(f"tlx.local_load(tlx.local_trans({buffer}[0]))", a.dtype, a.shape[::-1], a.whole)
    if kind == "two":
        w.emit(f"tlx.local_store({buffer}[1], -{a.name})")
        return w.let(f"tlx.local_load({buffer}[(pid + n) % 2])", a.dtype, a.shape, a.whole)
    if kind == "slice" and a.shape[0] % 32 == 0:  # whole atoms of a swizzle
        shape = (a.shape[0] // 4, a.shape[1])
        part = f"tlx.local_slice({buffer}[0], ({shape[0] * w.random.randrange(4)}, 0), {shape})"
        return w.let(f"tlx.local_load({part})", a.dtype, shape, a.whole)
    return w.let(f"tlx.local_load({buffer}[0])", a.dtype, a.shape, a.whole)


SHAPES = (
    (reductions, 5), (transposes, 2), (new_axes, 1), (reshapes, 2), (spreads, 1), (joins, 1), (splits, 1), (buffers, 1),
)  # fmt: skip
