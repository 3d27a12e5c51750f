"""PTX opcodes: each entry of the table compiles one instruction to an action on a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tlxc.emulator import matrix, numerics, nvptx, ptx_async, ptx_tensormap
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.instructions import FCMP
from tlxc.emulator.ptx_operands import (
    PAIRS,
    UNSIGNED,
    Action,
    Frame,
    Immediate,
    PtxInstruction,
    Vector,
    type_bits,
    type_dtype,
)
from tlxc.emulator.values import Array

Compile = Callable[[PtxInstruction], Action]


def compile_opcode(instruction: PtxInstruction) -> Action:
    compiler = OPCODES.get(instruction.opcode)
    if compiler is None:
        raise EmulatorError(f"The PTX opcode '{instruction.opcode}' is not known to the emulator: {instruction.text}")
    return compiler(instruction)


def _is_float(type_name: str) -> bool:
    return type_dtype(type_name).kind not in "uib" or type_name in PAIRS


def _paired(function: Callable[..., Array], type_name: str) -> Callable[..., Array]:
    """`function` on the two halves of f16x2 and bf16x2 values."""
    if type_name not in PAIRS:
        return function
    dtype = PAIRS[type_name]

    def apply(*args: Array) -> Array:
        halves = [np.ascontiguousarray(a).view(dtype) for a in args]
        return np.ascontiguousarray(function(*halves)).view(np.uint32)

    return apply


def _flushed(function: Callable[..., Array], i: PtxInstruction) -> Callable[..., Array]:
    if not i.has("ftz") or i.type != "f32":
        return function
    return lambda *args: numerics.flush(function(*[numerics.flush(a) for a in args]))


def _elementwise(i: PtxInstruction, function: Callable[..., Array]) -> Action:
    """d = function(sources), all of the instruction's type."""
    type_name, (dst, *sources) = i.type, i.operands
    if i.has("sat") or i.has("relu"):
        raise i.unknown("saturation is not supported")
    function = _paired(_flushed(function, i), type_name)
    return lambda frame: frame.write(dst, function(*[frame.read(s, type_name) for s in sources]))


def _simple(function: Callable[..., Array]) -> Compile:
    return lambda i: _elementwise(i, function)


def _by_kind(integer: Callable[..., Array], real: Callable[..., Array]) -> Compile:
    return lambda i: _elementwise(i, real if _is_float(i.type) else integer)


# -- moves, logic, integer arithmetic
def _mov(i: PtxInstruction) -> Action:
    dst, source = i.operands
    bits, type_name = type_bits(i.type), i.type
    if isinstance(source, Vector):
        part = f"b{bits // len(source.parts)}"

        def pack(frame: Frame) -> None:
            parts = np.stack([frame.read(p, part) for p in source.parts], axis=1)
            frame.write(dst, parts.view(UNSIGNED[bits])[:, 0])

        return pack
    if isinstance(dst, Vector):

        def unpack(frame: Frame) -> None:
            value = np.ascontiguousarray(frame.read(source, f"b{bits}"))[:, None]
            for at, column in enumerate(value.view(UNSIGNED[bits // len(dst.parts)]).T):
                frame.write(dst.parts[at], column)

        return unpack
    return lambda frame: frame.write(dst, frame.read(source, type_name))


def _logic(function: Any) -> Compile:
    """and, or, xor work on predicates as well."""
    return lambda i: _elementwise(i, function)


def _not(i: PtxInstruction) -> Action:
    return _elementwise(i, np.logical_not if i.type == "pred" else np.invert)


def _shift(function: Any) -> Compile:
    """The amount is a 32-bit operand; amounts past the width give 0 (or the sign)."""

    def build(i: PtxInstruction) -> Action:
        type_name, (dst, source, amount) = i.type, i.operands

        def run(frame: Frame) -> None:
            value = frame.read(source, type_name)
            frame.write(dst, function(value, frame.read(amount, "u32").astype(value.dtype)))

        return run

    return build


def _product(i: PtxInstruction, add: bool) -> Action:
    """mul and mad: .lo, .hi and .wide for integers, plain for floats (mad on floats is fma)."""
    type_name, (dst, *sources) = i.type, i.operands
    if _is_float(type_name):
        return _elementwise(i, numerics.fma if add else np.multiply)
    bits = type_bits(type_name)
    wide = i.has("wide")
    third = f"{type_name[0]}{2 * bits}" if wide else type_name

    def run(frame: Frame) -> None:
        a, b = (frame.read(s, type_name) for s in sources[:2])
        extra = frame.read(sources[2], third) if add else None
        if wide:
            value = a.astype(type_dtype(third)) * b.astype(type_dtype(third))
        elif i.has("hi"):
            value = _high_product(a, b, bits)
        else:
            value = a * b
        frame.write(dst, value if extra is None else value + extra)

    return run


def _high_product(a: Array, b: Array, bits: int) -> Array:
    product = a.astype(object) * b.astype(object) >> bits
    return np.array([int(p) % (1 << bits) for p in product], UNSIGNED[bits]).view(a.dtype)


def _select(i: PtxInstruction) -> Action:
    type_name, (dst, a, b, predicate) = i.type, i.operands
    return lambda frame: frame.write(
        dst, np.where(frame.read(predicate, "pred"), frame.read(a, type_name), frame.read(b, type_name))
    )


_COMPARE: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_FLOAT_COMPARE: dict[str, Any] = {
    **{name: FCMP["o" + name] for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name + "u": FCMP["u" + name] for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "num": FCMP["ord"],
    "nan": FCMP["uno"],
}


def _setp(i: PtxInstruction) -> Action:
    type_name, name = i.type, i.modifiers[0]
    function = (_FLOAT_COMPARE if _is_float(type_name) else _COMPARE).get(name)
    logic = next((m for m in i.modifiers[1:] if m in ("and", "or", "xor")), None)
    if function is None or logic:
        raise i.unknown("this comparison is not supported")
    *dsts, a, b = i.operands

    def run(frame: Frame) -> None:
        result = function(frame.read(a, type_name), frame.read(b, type_name))
        for dst, value in zip(dsts, (result, ~result)):
            frame.write(dst, value)

    return run


def _permute(i: PtxInstruction) -> Action:
    """prmt.b32: each selector nibble picks a byte of {b, a}; bit 3 replicates its sign."""
    dst, a, b, selector = i.operands

    def run(frame: Frame) -> None:
        words = np.stack([frame.read(a, "b32"), frame.read(b, "b32")], axis=1)
        source, pick = words.view(np.uint8), frame.read(selector, "b32")
        result = np.zeros((len(pick), 4), np.uint8)
        for at in range(4):
            nibble = (pick >> np.uint32(4 * at)) & 15
            byte = source[np.arange(len(pick)), nibble & 7]
            sign = np.where(byte & 0x80, 0xFF, 0).astype(np.uint8)
            result[:, at] = np.where(nibble & 8, sign, byte)
        frame.write(dst, result.view(np.uint32)[:, 0])

    return run


def _lop3(i: PtxInstruction) -> Action:
    dst, *sources, table = i.operands
    if not isinstance(table, Immediate):
        raise i.unknown("the table of lop3 must be a constant")

    def run(frame: Frame) -> None:
        a, b, c = (frame.read(s, "b32") for s in sources)
        result = np.zeros_like(a)
        for at in range(8):
            if int(table.value) >> at & 1:
                result |= (a if at & 4 else ~a) & (b if at & 2 else ~b) & (c if at & 1 else ~c)
        frame.write(dst, result)

    return run


# -- conversions
_FP8 = {"e4m3x2": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2x2": np.dtype(ml_dtypes.float8_e5m2)}
_ROUNDING: dict[str, Any] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _cvt(i: PtxInstruction) -> Action:
    if len(i.types) < 2:
        raise i.unknown("cvt needs two types the emulator knows")
    to, source = i.types[-2:]
    if to in PAIRS or to in _FP8:
        return _cvt_pack(i, to, source)
    if source in _FP8:
        return _cvt_unpack_fp8(i, to, source)
    dst, value = i.operands
    function = _conversion(i, to, source)
    return lambda frame: frame.write(dst, function(frame.read(value, source)))


def _conversion(i: PtxInstruction, to: str, source: str) -> Callable[[Array], Array]:
    dtype, is_float = type_dtype(to), _is_float(source)
    if to == "tf32":
        return _round_tf32
    if i.has("rz") or i.has("rm") or i.has("rp") or i.has("sat") and not is_float:
        raise i.unknown("this rounding is not supported; .rn and the integer roundings are")
    if is_float and _is_float(to):
        return lambda v: numerics.convert(v, dtype)
    if is_float:
        rounding = next((f for name, f in _ROUNDING.items() if i.has(name)), np.trunc)
        signed, bits = to[0] == "s", type_bits(to)
        return lambda v: numerics.to_integer(numerics.unary(rounding, v), signed, bits).astype(dtype)
    if _is_float(to):
        return lambda v: numerics.from_integer(v, dtype)
    return lambda v: v.astype(dtype)


def _round_tf32(value: Array) -> Array:
    """Nearest with ties away from zero to 10 mantissa bits (.rna)."""
    bits = value.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded, bits).view(np.float32)


def _cvt_pack(i: PtxInstruction, to: str, source: str) -> Action:
    """d = {high, low}: cvt.rn.f16x2.f32 d, high, low; fp8 pairs (saturating) from two f32 or one f16x2."""
    dst, *sources = i.operands
    if i.has("relu") or not (i.has("rn") or i.has("rna")):
        raise i.unknown("only .rn without .relu is supported")

    def run(frame: Frame) -> None:
        if source in PAIRS:
            pair = np.ascontiguousarray(frame.read(sources[0], "b32"))[:, None].view(PAIRS[source])
        else:
            pair = np.stack([frame.read(s, source) for s in reversed(sources)], axis=1)
        if to in PAIRS:
            frame.write(dst, np.ascontiguousarray(numerics.convert(pair, PAIRS[to])).view(np.uint32)[:, 0])
            return
        limit = float(ml_dtypes.finfo(_FP8[to]).max)
        clipped = np.clip(pair.astype(np.float32), -limit, limit)  # NaN stays NaN
        frame.write(dst, clipped.astype(_FP8[to]).view(np.uint16)[:, 0])

    return run


def _cvt_unpack_fp8(i: PtxInstruction, to: str, source: str) -> Action:
    if to != "f16x2" and i.types[-2] != "f16x2":
        raise i.unknown("fp8 pairs convert to f16x2 only")
    dst, value = i.operands

    def run(frame: Frame) -> None:
        pair = np.ascontiguousarray(frame.read(value, "b16"))[:, None].view(_FP8[source])
        frame.write(dst, pair.astype(np.float16).view(np.uint32)[:, 0])

    return run


def _approximate(i: PtxInstruction) -> Action:
    if not i.has("approx") and not (i.opcode in ("sqrt", "rcp") and i.has("rn")):
        raise i.unknown("only the .approx form is supported")
    function = nvptx.approximate(i.opcode, False)
    return _elementwise(i, function)


def _div(i: PtxInstruction) -> Action:
    if not _is_float(i.type):
        raise i.unknown("integer division is not supported in inline PTX")
    return _elementwise(i, np.divide)


# -- memory
_SPACES = {"global": 1, "shared": 3, "shared::cta": 3, "shared::cluster": 7, "const": 4}


def _space(i: PtxInstruction) -> int:
    return next((_SPACES[m] for m in i.modifiers if m in _SPACES), 0)


def _elements(operand: Any) -> list[Any]:
    return list(operand.parts) if isinstance(operand, Vector) else [operand]


def _checked_vector(i: PtxInstruction, registers: list[Any]) -> None:
    count = next((int(m[1:]) for m in i.modifiers if m in ("v2", "v4", "v8")), 1)
    if count != len(registers):
        raise i.unknown(f"{count} registers are needed, {len(registers)} are given")


def _ld(i: PtxInstruction) -> Action:
    space, type_name = _space(i), i.type
    registers, address = _elements(i.operands[0]), i.operands[1]
    _checked_vector(i, registers)
    bits = type_bits(type_name)
    size, dtype = len(registers) * bits // 8, type_dtype(type_name)

    def run(frame: Frame) -> None:
        rows = frame.cta.load(space, frame.addresses(address), size, size, frame.mask)
        for register, column in zip(registers, np.ascontiguousarray(rows).view(dtype).T):
            frame.write(register, column)

    return run


def _st(i: PtxInstruction) -> Action:
    if i.has("async"):
        return ptx_async.store_async(i)
    space, type_name = _space(i), f"b{type_bits(i.type)}"
    address, registers = i.operands[0], _elements(i.operands[1])
    _checked_vector(i, registers)

    def run(frame: Frame) -> None:
        values = np.stack([frame.read(r, type_name) for r in registers], axis=1)
        rows = values.view(np.uint8).reshape(len(values), -1)
        frame.cta.store(space, frame.addresses(address), rows, rows.shape[1], frame.mask)

    return run


_ATOMIC: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
}


def _atom(i: PtxInstruction) -> Action:
    """atom (with a result) and red; .v2/.v4 vectors and packed pairs act element by element."""
    name = next((m for m in i.modifiers if m in _ATOMIC or m == "cas"), "")
    if name not in _ATOMIC:
        raise i.unknown(f"only {', '.join(_ATOMIC)} are supported")
    space, type_name = _space(i), i.type
    dst, address, source = i.operands if i.opcode == "atom" else [None, *i.operands]
    registers = _elements(source)
    _checked_vector(i, registers)
    function, size = _paired(_ATOMIC[name], type_name), len(registers) * type_bits(type_name) // 8

    def run(frame: Frame) -> None:
        values = np.stack([frame.read(r, type_name) for r in registers], axis=1)

        def update(old: Array, lanes: Array) -> Array:
            new = function(np.ascontiguousarray(old).view(values.dtype), values[lanes])
            return np.ascontiguousarray(new.astype(values.dtype)).view(np.uint8)

        old = frame.cta.read_modify_write(space, frame.addresses(address), size, update, frame.mask)
        if dst is not None:
            for register, column in zip(_elements(dst), np.ascontiguousarray(old).view(values.dtype).T):
                frame.write(register, column)

    return run


def _cp(i: PtxInstruction) -> Action:
    """cp.async.{ca,cg}.shared.global, commit_group, wait_group, wait_all; bulk copies."""
    if "bulk" in i.modifiers:
        return ptx_async.bulk_copy(i)
    if i.modifiers[:1] != ("async",) or i.has("mbarrier"):
        raise i.unknown("of cp, the copies, commits and waits of cp.async are supported")
    if i.has("commit_group"):
        return lambda frame: nvptx.commit_copies(frame.cta)
    if i.has("wait_group"):
        return lambda frame: nvptx.wait_copies(frame.cta, _constant(i, 0))
    if i.has("wait_all"):
        return lambda frame: nvptx.wait_all_copies(frame.cta)
    size = _constant(i, 2)

    def run(frame: Frame) -> None:
        given = frame.read(i.operands[3], "u32") if len(i.operands) > 3 else None
        shared, source = (frame.addresses(o) for o in i.operands[:2])
        nvptx.copy_async(frame.cta, shared, source, size, given, frame.mask)

    return run


def _constant(i: PtxInstruction, at: int) -> int:
    operand = i.operands[at]
    if not isinstance(operand, Immediate):
        raise i.unknown(f"operand {at} must be a constant")
    return int(operand.value)


# -- synchronisation
def _fence(i: PtxInstruction) -> Action:
    if i.has("tensormap::generic"):
        return ptx_tensormap.fence(i)
    if i.has("proxy"):
        return lambda frame: frame.cta.cluster.clocks.proxy_fence(np.unique(frame.cta.agents[frame.mask]))
    if i.has("mbarrier_init"):
        return lambda frame: frame.cta.cluster.clocks.mbarrier_init_fence(np.unique(frame.cta.agents[frame.mask]))
    return lambda frame: None


def _nothing(i: PtxInstruction) -> Action:
    return lambda frame: None


def _shfl(i: PtxInstruction) -> Action:
    """shfl.sync.mode.b32 d[|p], a, b, c, membermask"""
    ptx_async.unguarded(i)
    mode = next((m for m in i.modifiers if m in ("idx", "bfly", "up", "down")), "idx")
    *dsts, value, operand, clamp, mask = i.operands

    def run(frame: Frame) -> None:
        args = [frame.read(o, "b32") for o in (mask, value, operand, clamp)]
        for dst, result in zip(dsts, nvptx.shuffle(frame.cta, mode, *args)):
            frame.write(dst, result)

    return run


def _vote(i: PtxInstruction) -> Action:
    ptx_async.unguarded(i)
    dst, predicate, mask = i.operands
    mode = next(m for m in i.modifiers if m in ("any", "all", "uni", "ballot"))
    return lambda frame: frame.write(
        dst, nvptx.vote(frame.cta, mode, frame.read(mask, "b32"), frame.read(predicate, "pred"))
    )


# -- matrices
def _matrix_guard(i: PtxInstruction) -> None:
    if i.guard is not None:
        raise i.unknown("a guard on a matrix instruction is not supported")


def _ldmatrix(i: PtxInstruction) -> Action:
    _matrix_guard(i)
    dst, address = i.operands
    registers, transposed = _elements(dst), i.has("trans")
    if not i.has("m8n8") or not i.has("b16") or not i.has(f"x{len(registers)}"):
        raise i.unknown("only .m8n8.b16 with as many registers as matrices is supported")

    def run(frame: Frame) -> None:
        words = matrix.load_matrix(frame.cta, frame.addresses(address), len(registers), transposed)
        for register, word in zip(registers, words):
            frame.write(register, word)

    return run


def _stmatrix(i: PtxInstruction) -> Action:
    _matrix_guard(i)
    address, source = i.operands
    registers, transposed = _elements(source), i.has("trans")
    if not i.has("m8n8") or not i.has("b16") or not i.has(f"x{len(registers)}"):
        raise i.unknown("only .m8n8.b16 with as many registers as matrices is supported")

    def run(frame: Frame) -> None:
        words = [frame.read(r, "b32") for r in registers]
        matrix.store_matrix(frame.cta, frame.addresses(address), words, transposed)

    return run


def _kinds(i: PtxInstruction) -> list[str]:
    """The type modifiers of a matrix instruction in order: d, a, b and, for mma, c."""
    known = ("f16", "bf16", "tf32", "f32", "s32", "e4m3", "e5m2", "s8", "u8")
    return [m for m in i.modifiers if m in known]


def _mma(i: PtxInstruction) -> Action:
    """mma.sync.aligned.m16n8kK.row.col.f32.A.B.f32 (also s32 accumulators)."""
    _matrix_guard(i)
    kinds = _kinds(i)
    if not i.has("row") or not i.has("col") or len(kinds) != 4 or kinds[0] not in ("f32", "s32") or i.has("sp"):
        raise i.unknown("only .row.col with f32 or s32 accumulators is supported")
    shape = next((m for m in i.modifiers if m.startswith("m16n8k")), None)
    accumulator, kind_a, kind_b, _ = kinds
    d, a, b, c = (_elements(o) for o in i.operands)
    expected = shape and 16 * int(shape[6:]) * matrix.element_bits(kind_a) // 1024
    if expected != len(a) or len(b) * 2 != len(a) or len(c) != 4 or len(d) != 4:
        raise i.unknown("the numbers of registers do not fit the shape")

    def run(frame: Frame) -> None:
        words_a, words_b = ([frame.read(r, "b32") for r in registers] for registers in (a, b))
        start = [frame.read(r, accumulator) for r in c]
        for register, value in zip(d, matrix.mma(frame.cta, words_a, words_b, start, kind_a, kind_b, "mma.sync")):
            frame.write(register, value)

    return run


def _wgmma(i: PtxInstruction) -> Action:
    ptx_async.unguarded(i)
    if i.has("fence"):
        return _nothing(i)
    if i.has("commit_group"):
        return lambda frame: nvptx.wgmma_commit(frame.cta)
    if i.has("wait_group"):
        return lambda frame: nvptx.wgmma_wait(frame.cta, _constant(i, 0))
    return _wgmma_mma(i)


def _wgmma_mma(i: PtxInstruction) -> Action:
    """wgmma.mma_async.sync.aligned.m64nNkK.D.A.B {d}, a, b-desc, scale-d[, scale-a, scale-b[, trans-a], trans-b]"""
    shape = next((m for m in i.modifiers if m.startswith("m64n")), "")
    kinds = _kinds(i)
    if not i.has("mma_async") or len(kinds) != 3 or kinds[0] not in ("f32", "s32"):
        raise i.unknown("only wgmma.mma_async with f32 or s32 accumulators is supported")
    n = int(shape[4:].split("k")[0])
    dst, a, b, keep, *immediates = i.operands
    numbers = [_constant(i, 4 + at) for at in range(len(immediates))]
    scale_a, scale_b = numbers[:2] or (1, 1)
    flags = numbers[2:]
    in_registers = isinstance(a, Vector)
    transposed_a = bool(flags[0]) if flags and not in_registers else False
    op = matrix.Wgmma(n, kinds[1], kinds[2], scale_a, scale_b, transposed_a, bool(flags[-1]) if flags else False)
    accumulators = _elements(dst)
    if len(accumulators) != n // 2 or (in_registers and len(a.parts) != 4):
        raise i.unknown(f"m64n{n} needs {n // 2} accumulators, and four registers where A is in registers")

    def run(frame: Frame) -> None:
        left = [frame.read(r, "b32") for r in a.parts] if in_registers else frame.read(a, "b64")
        start = [frame.accumulator(r, kinds[0]) for r in accumulators]
        result = matrix.wgmma(frame.cta, op, left, frame.read(b, "b64"), start, frame.read(keep, "pred"))
        tokens = nvptx.product_tokens(frame.cta)
        for register, value in zip(accumulators, result):
            frame.write(register, value)
            frame.promise(register, tokens)

    return run


OPCODES: dict[str, Compile] = {
    "mov": _mov,
    "cvta": _mov,
    "setp": _setp,
    "selp": _select,
    "add": _simple(np.add),
    "sub": _simple(np.subtract),
    "mul": lambda i: _product(i, add=False),
    "mad": lambda i: _product(i, add=True),
    "fma": _simple(numerics.fma),
    "div": _div,
    "neg": _simple(np.negative),
    "abs": _simple(np.abs),
    "min": _by_kind(np.minimum, numerics.min_number),
    "max": _by_kind(np.maximum, numerics.max_number),
    "and": _logic(np.bitwise_and),
    "or": _logic(np.bitwise_or),
    "xor": _logic(np.bitwise_xor),
    "not": _not,
    "shl": _shift(np.left_shift),
    "shr": _shift(np.right_shift),
    "prmt": _permute,
    "lop3": _lop3,
    "cvt": _cvt,
    **dict.fromkeys(nvptx.APPROXIMATE, _approximate),
    "ld": _ld,
    "ldu": _ld,
    "st": _st,
    "atom": _atom,
    "red": _atom,
    "cp": _cp,
    "bar": ptx_async.bar,
    "barrier": ptx_async.bar,
    "mbarrier": ptx_async.mbarrier_,
    "mapa": ptx_async.mapa,
    "elect": ptx_async.elect,
    "tensormap": ptx_tensormap.tensormap,
    **dict.fromkeys(("setmaxnreg", "griddepcontrol", "prefetch", "nanosleep"), _nothing),
    "fence": _fence,
    "membar": _nothing,
    "shfl": _shfl,
    "vote": _vote,
    "ldmatrix": _ldmatrix,
    "stmatrix": _stmatrix,
    "mma": _mma,
    "wgmma": _wgmma,
}
