"""A small evaluator of tile IR for tests of passes: NumPy arithmetic with the exact dtypes, global memory as a dict.

Addresses are int64 byte addresses.  `Machine.memory` maps an address to the number there (0 where nothing was stored);
`Machine.seen` holds every value that any op ever gave, `Machine.accesses` the addresses of loads and stores in order.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.types import Pointer, Type, element_of, shape_of

NUMPY = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
    "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
}  # fmt: skip


def numpy_dtype(t: Type) -> Any:
    e = element_of(t)
    return np.int64 if isinstance(e, Pointer) else NUMPY[e.short]


def truncated_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    q = a.astype(object) // np.where(b == 0, 1, b).astype(object)
    exact = q * b.astype(object) == a.astype(object)
    return q + np.where(~exact.astype(bool) & (q < 0), 1, 0)


def integers(f: Any) -> Any:
    """Integer arithmetic on Python numbers, wrapped to the width of the operands."""

    def rule(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if not np.issubdtype(a.dtype, np.integer):
            return np.asarray(f(a, b), a.dtype)
        bits = a.dtype.itemsize * 8
        wide = np.asarray(f(a.astype(object), b.astype(object)), object)
        signed = np.vectorize(lambda x: wrap(int(x), bits, a.dtype.kind == "i"), otypes=[object])(wide)
        return np.asarray(signed).astype(a.dtype)

    return rule


def wrap(x: int, bits: int, signed: bool) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if signed and x >> (bits - 1) else x


BINARY = {
    "add": integers(lambda a, b: a + b),
    "sub": integers(lambda a, b: a - b),
    "mul": integers(lambda a, b: a * b),
    "div": lambda a, b: a / b,
    "idiv": integers(truncated_quotient),
    "rem": integers(lambda a, b: a - truncated_quotient(a, b) * b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": integers(lambda a, b: np.asarray([x << (y % 64) for x, y in zip(np.ravel(a), np.ravel(b))], object).reshape(
        np.shape(a))),
    "shr": integers(lambda a, b: np.asarray([x >> (y % 64) for x, y in zip(np.ravel(a), np.ravel(b))], object).reshape(
        np.shape(a))),
    "min": np.fmin,
    "max": np.fmax,
}  # fmt: skip
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
PREDICATES = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal
}  # fmt: skip


class Machine:
    def __init__(self, module: Module, arguments: dict[str, int], program: tuple[int, int, int] = (0, 0, 0)) -> None:
        self.program = program
        self.values: dict[Value, np.ndarray] = {}
        self.seen: list[tuple[Value, np.ndarray]] = []
        self.accesses: list[tuple[str, np.ndarray]] = []
        self.memory: dict[int, Any] = {}
        for p in module.params:
            self.set(p.value, np.asarray(arguments[p.name], numpy_dtype(p.type)))
        self.run(module.body)

    def set(self, v: Value, x: np.ndarray) -> None:
        assert np.shape(x) == shape_of(v.type) and np.asarray(x).dtype == numpy_dtype(v.type), (v, np.asarray(x).dtype)
        self.values[v] = np.asarray(x)
        self.seen.append((v, self.values[v]))

    def run(self, region: Region) -> list[np.ndarray]:
        for op in region.ops:
            inputs = [None if v is None else self.values[v] for v in op.operands]
            if op.kind == "yield":
                return inputs
            with np.errstate(all="ignore"):
                out = getattr(self, f"do_{op.kind}", self.elementwise)(op, inputs)
            for v, x in zip(op.results, out):
                self.set(v, x)
        return []

    def elementwise(self, op: Op, x: list[Any]) -> list[Any]:
        if op.kind in BINARY:
            return [BINARY[op.kind](*x)]
        unary = {"neg": lambda a: -a, "abs": np.abs, "exp2": np.exp2, "sqrt": np.sqrt, "log2": np.log2,
                 "rsqrt": lambda a: (1 / np.sqrt(a)).astype(a.dtype)}  # fmt: skip
        return [np.asarray(unary[op.kind](x[0]))]

    def do_constant(self, op: Op, x: list[Any]) -> list[Any]:
        return [np.asarray(op.attrs["value"], numpy_dtype(op.result.type))]

    def do_cmp(self, op: Op, x: list[Any]) -> list[Any]:
        return [PREDICATES[op.attrs["pred"]](*x)]

    def do_select(self, op: Op, x: list[Any]) -> list[Any]:
        return [np.where(*x)]

    def do_cast(self, op: Op, x: list[Any]) -> list[Any]:
        return [np.asarray(x[0]).astype(numpy_dtype(op.result.type))]

    def do_addptr(self, op: Op, x: list[Any]) -> list[Any]:
        return [x[0] + x[1].astype(np.int64) * element_of(op.result.type).dtype.bytes]

    def do_arange(self, op: Op, x: list[Any]) -> list[Any]:
        return [np.arange(op.attrs["start"], op.attrs["end"], dtype=np.int32)]

    def do_splat(self, op: Op, x: list[Any]) -> list[Any]:
        return [np.broadcast_to(x[0], shape_of(op.result.type))]

    do_broadcast = do_splat

    def do_expand_dims(self, op: Op, x: list[Any]) -> list[Any]:
        return [np.expand_dims(x[0], op.attrs["axis"])]

    def do_reshape(self, op: Op, x: list[Any]) -> list[Any]:
        return [x[0].reshape(shape_of(op.result.type))]

    def do_permute(self, op: Op, x: list[Any]) -> list[Any]:
        return [np.transpose(x[0], op.attrs["order"])]

    def do_join(self, op: Op, x: list[Any]) -> list[Any]:
        return [np.stack(x, -1)]

    def do_split(self, op: Op, x: list[Any]) -> list[Any]:
        return [x[0][..., i] for i in range(x[0].shape[-1])]

    def do_convert_layout(self, op: Op, x: list[Any]) -> list[Any]:
        return [x[0]]

    def do_reduce(self, op: Op, x: list[Any]) -> list[Any]:
        f = {"sum": np.sum, "max": np.max, "min": np.min}[op.attrs["combine"]]
        return [np.asarray(f(x[0], axis=op.attrs["axis"])).astype(x[0].dtype)]

    def do_program_id(self, op: Op, x: list[Any]) -> list[Any]:
        return [np.asarray(self.program[op.attrs["axis"]], np.int32)]

    def do_num_programs(self, op: Op, x: list[Any]) -> list[Any]:
        return [np.asarray(self.program[op.attrs["axis"]] + 1, np.int32)]

    def do_load(self, op: Op, x: list[Any]) -> list[Any]:
        address, mask, other = x
        self.accesses.append(("load", address))
        dtype = numpy_dtype(op.result.type)
        out = np.asarray(np.vectorize(lambda p: self.memory.get(int(p), 0), otypes=[object])(address)).astype(dtype)
        return [out if mask is None else np.where(mask, out, np.asarray(0 if other is None else other, dtype))]

    def do_store(self, op: Op, x: list[Any]) -> list[Any]:
        address, value, mask = x
        self.accesses.append(("store", address))
        keep = np.ones(np.shape(address), bool) if mask is None else mask
        for p, v, k in zip(np.ravel(address), np.ravel(value), np.ravel(keep)):
            if k:
                self.memory[int(p)] = v.item()
        return []

    def do_for(self, op: Op, x: list[Any]) -> list[Any]:
        lo, hi, step = (int(v) for v in x[:3])
        carried, body = x[3:], op.regions[0]
        for i in range(lo, hi, step):
            self.set(body.args[0], np.asarray(i, numpy_dtype(body.args[0].type)))
            for v, c in zip(body.args[1:], carried):
                self.set(v, c)
            carried = self.run(body)
        return carried

    def do_while(self, op: Op, x: list[Any]) -> list[Any]:
        while True:
            for region in op.regions:
                for v, c in zip(region.args, x):
                    self.set(v, c)
            (go,) = self.run(op.regions[0])
            if not go:
                return x
            x = self.run(op.regions[1])

    def do_if(self, op: Op, x: list[Any]) -> list[Any]:
        return self.run(op.regions[0 if x[0] else 1])
