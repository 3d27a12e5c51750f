"""The emulator against NumPy, on hand-written LLVM IR that LLVM itself verifies."""

# ruff: noqa: E501  (lines of IR are as long as they are)

from __future__ import annotations

import time
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from tlxc.emulator import EmulatorError, launch
from tlxc.emulator import numerics as rounding

BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {
    "i8": np.dtype(np.uint8),
    "i16": np.dtype(np.uint16),
    "i32": np.dtype(np.uint32),
    "i64": np.dtype(np.uint64),
    "half": np.dtype(np.float16),
    "bfloat": BF16,
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
P1, P3 = "ptr addrspace(1)", "ptr addrspace(3)"
SMEM = "@smem = external addrspace(3) global [0 x i8], align 1024\n"
TID = "%tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
BARRIER = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0) #1\n"
FENCE = 'call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"() #1\n'
DECLARES = f"""
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.laneid()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare void @llvm.nvvm.barrier.cta.sync.aligned.count(i32, i32)
declare void @llvm.nvvm.bar.warp.sync(i32)
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)
declare float @llvm.nvvm.shfl.sync.down.f32(i32, float, i32, i32)
declare i32 @llvm.nvvm.shfl.sync.idx.i32(i32, i32, i32, i32)
declare {{ i32, i1 }} @llvm.nvvm.shfl.sync.up.i32p(i32, i32, i32, i32)
declare i1 @llvm.nvvm.vote.any.sync(i32, i1)
declare i1 @llvm.nvvm.vote.all.sync(i32, i1)
declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)
declare {{ i32, i32, i32, i32 }} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3({P3})
declare {{ i32, i32 }} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.trans.b16.p3({P3})
declare void @llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16.p3({P3}, i32, i32, i32, i32)
declare {{ float, float, float, float }} @llvm.nvvm.mma.m16n8k16.row.col.f32.f32(<2 x half>, <2 x half>, <2 x half>, <2 x half>, <2 x half>, <2 x half>, float, float, float, float)
declare void @llvm.nvvm.wgmma.fence.sync.aligned()
declare void @llvm.nvvm.wgmma.commit_group.sync.aligned()
declare void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64)
declare void @llvm.nvvm.fence.proxy.async.shared_cta()
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare i32 @llvm.amdgcn.readlane.i32(i32, i32)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32 immarg, i32 immarg, i32 immarg, i1 immarg)
declare {{ i32, i32 }} @llvm.amdgcn.permlane32.swap(i32, i32, i1 immarg, i1 immarg)
declare i64 @llvm.amdgcn.ballot.i64(i1)
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare void @llvm.amdgcn.global.load.lds({P1}, {P3}, i32 immarg, i32 immarg, i32 immarg)
declare void @llvm.amdgcn.s.waitcnt(i32 immarg)
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half>, <4 x half>, <4 x float>, i32 immarg, i32 immarg, i32 immarg)
declare <16 x float> @llvm.amdgcn.mfma.f32.32x32x8bf16.1k(<4 x i16>, <4 x i16>, <16 x float>, i32 immarg, i32 immarg, i32 immarg)
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x32.fp8.fp8(i64, i64, <4 x float>, i32 immarg, i32 immarg, i32 immarg)
"""


def kernel(params: str, body: str, amd: bool = False, before: str = "", target: str = "gfx942") -> str:
    """A module with one kernel `k`, verified by LLVM. A body without an entry label gets one."""
    convention = "amdgpu_kernel" if amd else "ptx_kernel"
    triple = "amdgcn-amd-amdhsa" if amd else "nvptx64-nvidia-cuda"
    cpu = f' "target-cpu"="{target}"' if amd else ' "nvvm.maxntid"="128"'
    text = (
        f'target triple = "{triple}"\n{before}{DECLARES}\n'
        f"define {convention} void @k({params}) #0 {{\nentry:\n{body}\n}}\n"
        f"attributes #0 = {{ convergent nounwind{cpu} }}\nattributes #1 = {{ convergent nounwind }}\n"
    )
    llvm.parse_assembly(text).verify()
    return text


def pointer(name: str, type_: str, index: str, base: str, space: str = P1) -> str:
    return f"%{name} = getelementptr {type_}, {space} {base}, i32 {index}\n"


def elementwise(body: str, inputs: list[np.ndarray], out_type: str, result: str = "%r", count: int = 32) -> np.ndarray:
    """Runs `body` with %x0, %x1, ... loaded per lane and returns `result` of every lane."""
    names = {v: k for k, v in TYPES.items()}
    text, params = TID, [f"{P1} %out"]
    for at, array in enumerate(inputs):
        type_ = names[array.dtype]
        params.append(f"{P1} noalias readonly align 16 %in{at}")
        text += pointer(f"p{at}", type_, "%tid", f"%in{at}") + f"%x{at} = load {type_}, {P1} %p{at}\n"
    text += body + "\n" + pointer("po", out_type, "%tid", "%out") + f"store {out_type} {result}, {P1} %po\nret void"
    out = np.zeros(count, TYPES[out_type])
    launch(kernel(", ".join(params), text, before=_intrinsics(body)), (1, 1, 1), count, [out, *inputs])
    return out


def _intrinsics(body: str) -> str:
    """Declarations of the generic intrinsics that a body calls (its lines name all types)."""
    lines = []
    for line in body.splitlines():
        if " @llvm." in line and "nvvm" not in line:
            result = line.split("call ")[1].split(" @")[0]
            name, args = line.split(" @")[1].split("(", 1)
            types = ", ".join(a.strip().rsplit(" ", 1)[0] for a in args.rsplit(")", 1)[0].split(","))
            lines.append(f"declare {result} @{name}({types})\n")
    return "".join(dict.fromkeys(lines))


def numbers(rng: np.random.Generator, dtype: np.dtype[Any], count: int = 32) -> np.ndarray:
    if dtype.kind in "ui":
        return rng.integers(0, np.iinfo(dtype).max, count, dtype, endpoint=True)
    return (rng.normal(size=count) * 4).astype(dtype)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


# -- scalar semantics
@pytest.mark.parametrize("type_", ["i8", "i16", "i32", "i64"])
def test_integer_arithmetic(type_: str, rng: np.random.Generator) -> None:
    dtype = TYPES[type_]
    a, b = numbers(rng, dtype), numbers(rng, dtype)
    b[b == 0] = 3
    signed = dtype.str.replace("u", "i")
    x, y = a.view(signed).astype(object), b.view(signed).astype(object)
    quotient = np.array([abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(x, y)], object)
    bits = 8 * dtype.itemsize
    amount = b % bits
    expected = {
        "add": a.astype(object) + b,
        "sub": a.astype(object) - b.astype(object),
        "mul": a.astype(object) * b,
        "udiv": a // b,
        "urem": a % b,
        "sdiv": quotient,
        "srem": x - quotient * y,
        "and": a & b,
        "xor": a ^ b,
        "shl": a.astype(object) << amount.astype(object),
        "lshr": a >> amount,
        "ashr": x >> amount.astype(object),
    }
    for opcode, values in expected.items():
        shift = opcode in ("shl", "lshr", "ashr")
        got = elementwise(f"%r = {opcode} {type_} %x0, %x1", [a, amount if shift else b], type_)
        want = np.array([int(v) % (1 << bits) for v in values], dtype)
        assert (got == want).all(), opcode


def test_odd_width_integers_wrap(rng: np.random.Generator) -> None:
    a = numbers(rng, TYPES["i32"])
    body = "%a = trunc i32 %x0 to i5\n%b = mul i5 %a, 7\n%c = icmp slt i5 %b, 0\n%s = sext i5 %b to i32\n"
    got = elementwise(body + "%r = select i1 %c, i32 %s, i32 77", [a], "i32")
    want = [(int(v) * 7) % 32 for v in a]
    assert got.tolist() == [(w - 32) % 2**32 if w >= 16 else 77 for w in want]


@pytest.mark.parametrize("type_", ["half", "bfloat", "float", "double"])
def test_float_arithmetic_rounds_once(type_: str, rng: np.random.Generator) -> None:
    dtype = TYPES[type_]
    a, b = numbers(rng, dtype), numbers(rng, dtype)
    exact = {"fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide}
    for opcode, function in exact.items():
        got = elementwise(f"%r = {opcode} contract {type_} %x0, %x1", [a, b], type_)
        want = function(a.astype(np.float64), b.astype(np.float64))
        wide = want if type_ in ("float", "double") else want.astype(np.float32)
        assert (got == wide.astype(dtype)).all(), opcode
    negated = elementwise(f"%r = fneg {type_} %x0", [np.array([0.0, np.nan] * 16, dtype)], type_)
    assert np.signbit(negated.astype(np.float32)).all()


def test_fma_has_one_rounding() -> None:
    # a * b is just above the tie of c's last place: two roundings give the even neighbour, one the other.
    a, b, c = np.float32(1 + 2**-12), np.float32(2**-24 + 2**-36), np.float32(1 + 2**-23)
    got = elementwise(
        "%r = call float @llvm.fma.f32(float %x0, float %x1, float %x2)",
        [np.full(32, v, np.float32) for v in (a, b, c)],
        "float",
    )
    assert got[0] == np.float32(1 + 2**-22)
    one = np.ones(1, np.float32)
    assert rounding.fma(one * 3, one * 2, one)[0] == 7
    half = np.float16(1 + 2**-10)
    assert rounding.fma(np.array([half]), np.array([np.float16(2**-11)]), np.array([half]))[0] == np.float16(1 + 2**-9)


def test_conversions_round_to_nearest_even_and_saturate() -> None:
    x = np.array([259, -259, 2**31, 1e10, np.nan, -1.5, 65519.9, 65520] * 4, np.float32)
    ints = elementwise("%r = fptosi float %x0 to i32", [x], "i32").view(np.int32)
    assert ints[:6].tolist() == [259, -259, 2**31 - 1, 2**31 - 1, 0, -1]
    assert elementwise("%r = fptoui float %x0 to i8", [x], "i8")[:5].tolist() == [255, 0, 255, 255, 0]
    halves = elementwise("%r = fptrunc float %x0 to half", [x], "half")
    assert halves[6] == 65504 and np.isinf(halves[7])
    wide = np.array([1 + 2**-8 + 2**-40, 1 + 2**-8, -(1 + 2**-8 + 2**-40), 1e300] * 8)
    short = elementwise("%r = fptrunc double %x0 to bfloat", [wide], "bfloat").astype(np.float64)
    assert short[:3].tolist() == [1 + 2**-7, 1, -(1 + 2**-7)] and np.isinf(short[3])
    big = np.array([259, (1 << 40) + (1 << 32) + 1, (1 << 62) + (1 << 54) + 1, 2**64 - 1] * 8, np.uint64)
    got = elementwise("%r = uitofp i64 %x0 to bfloat", [big], "bfloat").astype(np.float64)
    assert got[:4].tolist() == [260, 2.0**40 + 2.0**33, 2.0**62 + 2.0**55, 2.0**64]
    sat = elementwise("%r = call i16 @llvm.fptosi.sat.i16.f32(float %x0)", [x], "i16").view(np.int16)
    assert sat[:5].tolist() == [259, -259, 32767, 32767, 0]


def test_comparisons_with_nan() -> None:
    x = np.array([1, 2, np.nan, np.nan] * 8, np.float32)
    y = np.array([2, 2, 1, np.nan] * 8, np.float32)
    table = {
        "oeq": "0100", "one": "1000", "olt": "1000", "oge": "0100", "ord": "1100",
        "ueq": "0111", "une": "1011", "ult": "1011", "uge": "0111", "uno": "0011",
    }  # fmt: skip
    for predicate, want in table.items():
        body = f"%c = fcmp {predicate} float %x0, %x1\n%r = zext i1 %c to i32"
        assert "".join(map(str, elementwise(body, [x, y], "i32")[:4])) == want, predicate
    a = np.array([1, 0xFFFFFFFF] * 16, np.uint32)
    for predicate, want in {"slt": 1, "ult": 0, "sge": 0, "ugt": 1}.items():
        body = f"%c = icmp {predicate} i32 %x0, 0\n%r = zext i1 %c to i32"
        assert elementwise(body, [a], "i32")[1] == want, predicate


def test_generic_intrinsics(rng: np.random.Generator) -> None:
    a, b = numbers(rng, TYPES["float"]), numbers(rng, TYPES["float"])
    b[3] = np.nan
    i, j = numbers(rng, TYPES["i32"]), numbers(rng, TYPES["i32"])
    floats = {
        "maxnum": np.fmax(a, b),
        "minnum": np.fmin(a, b),
        "maximum": np.maximum(a, b),
        "minimum": np.minimum(a, b),
        "copysign": np.copysign(a, b),
    }
    for name, want in floats.items():
        body = f"%r = call float @llvm.{name}.f32(float %x0, float %x1)"
        np.testing.assert_array_equal(elementwise(body, [a, b], "float"), want, name)
    unary = {"floor": np.floor, "ceil": np.ceil, "rint": np.rint, "fabs": np.abs, "sqrt": np.sqrt, "exp2": np.exp2}
    for name, function in unary.items():
        want = function(np.abs(a))
        got = elementwise(
            f"%y = call float @llvm.fabs.f32(float %x0)\n%r = call float @llvm.{name}.f32(float %y)", [a], "float"
        )
        np.testing.assert_allclose(got, want, rtol=3e-7)
    integers = {"smin": np.minimum(i.view(np.int32), j.view(np.int32)).view(np.uint32), "umax": np.maximum(i, j)}
    for name, want in integers.items():
        body = f"%r = call i32 @llvm.{name}.i32(i32 %x0, i32 %x1)"
        assert (elementwise(body, [i, j], "i32") == want).all(), name
    count = elementwise("%r = call i32 @llvm.ctpop.i32(i32 %x0)", [i], "i32")
    assert count.tolist() == [bin(v).count("1") for v in i]
    rotated = elementwise("%r = call i32 @llvm.fshl.i32(i32 %x0, i32 %x0, i32 5)", [i], "i32")
    assert rotated.tolist() == [(int(v) << 5 | int(v) >> 27) % 2**32 for v in i]
    zeros = rounding.minimum(np.array([0.0], np.float32), np.array([-0.0], np.float32))
    assert np.signbit(zeros).all()


def test_vectors_aggregates_and_bitcasts() -> None:
    x = np.arange(32, dtype=np.uint32)
    body = """
      %v0 = insertelement <4 x i8> zeroinitializer, i8 1, i32 0
      %low = trunc i32 %x0 to i8
      %at = and i32 %x0, 3
      %v1 = insertelement <4 x i8> %v0, i8 %low, i32 %at
      %v2 = shufflevector <4 x i8> %v1, <4 x i8> <i8 9, i8 8, i8 7, i8 6>, <4 x i32> <i32 3, i32 2, i32 1, i32 4>
      %v3 = add <4 x i8> %v2, splat (i8 1)
      %s0 = insertvalue { i32, <4 x i8> } poison, <4 x i8> %v3, 1
      %v4 = extractvalue { i32, <4 x i8> } %s0, 1
      %r = bitcast <4 x i8> %v4 to i32
    """
    want = []
    for value in range(32):
        lanes = [1, 0, 0, 0]
        lanes[value & 3] = value
        picked = [lanes[3] + 1, lanes[2] + 1, lanes[1] + 1, 10]
        want.append(sum(v << (8 * at) for at, v in enumerate(picked)))
    assert elementwise(body, [x], "i32").tolist() == want
    bits = "%v = insertelement <8 x i1> zeroinitializer, i1 true, i32 5\n%b = bitcast <8 x i1> %v to i8\n"
    assert elementwise(bits + "%r = zext i8 %b to i32", [x], "i32")[0] == 32


def test_integer_division_by_zero_is_an_error() -> None:
    zero = np.zeros(32, np.uint32)
    with pytest.raises(EmulatorError, match=r"division by zero in lane 0.\n.*%r = udiv i32"):
        elementwise("%r = udiv i32 %x0, %x0", [zero], "i32")


def test_constant_tables_and_constant_expressions() -> None:
    before = "@table = internal addrspace(1) constant [4 x { i32, i16 }] [{ i32, i16 } { i32 1, i16 2 }, { i32, i16 } "
    before += "{ i32 3, i16 4 }, { i32, i16 } zeroinitializer, { i32, i16 } { i32 5, i16 6 }]\n" + SMEM
    body = TID + "%i = and i32 %tid, 3\n"
    body += f"%p = getelementptr [4 x {{ i32, i16 }}], {P1} @table, i32 0, i32 %i, i32 1\n%h = load i16, {P1} %p\n"
    body += "%w = zext i16 %h to i32\n" + pointer("o", "i32", "%tid", "%out")
    body += f"%b = ptrtoint {P3} getelementptr (i8, {P3} @smem, i32 16) to i32\n%s = ptrtoint {P3} @smem to i32\n"
    body += f"%d = sub i32 %b, %s\n%r = add i32 %w, %d\nstore i32 %r, {P1} %o\nret void"
    out = np.zeros(32, np.uint32)
    launch(kernel(f"{P1} %out", body, before=before), (1, 1, 1), 32, [out], dynamic_shared=64)
    assert out[:4].tolist() == [18, 20, 16, 22]


# -- arguments and global memory
VECTOR_ADD = (
    TID
    + "%cta = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n%ntid = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()\n"
    + "%base = mul i32 %cta, %ntid\n%i = add i32 %base, %tid\n%in = icmp slt i32 %i, %n\n"
    + "br i1 %in, label %then, label %done\nthen:\n"
    + "".join(pointer(p, "float", "%i", f"%{p.upper()}") for p in "xyz")
    + f"%a = load float, {P1} %x, align 4, !dbg !0\n%b = load float, {P1} %y\n%s = fadd float %a, %b ; a comment\n"
    + f"store float %s, {P1} %z, align 4\nbr label %done\ndone:\nret void"
)
ADD_PARAMS = f"{P1} noalias nocapture readonly %X, {P1} align 16 %Y, {P1} %Z, i32 %n"


def test_masked_vector_add_over_a_grid(rng: np.random.Generator) -> None:
    text = kernel(ADD_PARAMS, VECTOR_ADD.replace(", !dbg !0", ""))
    x, y = (rng.normal(size=300).astype(np.float32) for _ in range(2))
    z = np.zeros(300, np.float32)
    launch(text, (3, 1, 1), 128, [x, y, z, 290], kernel="k")
    assert (z[:290] == (x + y)[:290]).all() and not z[290:].any()
    canonical = str(llvm.parse_assembly(text))
    launch(canonical, (1, 1, 1), 128, [(x, 4), y, z, 128])
    assert (z[:128] == x[1:129] + y[:128]).all()
    launch(VECTOR_ADD_WITH_DEBUG_INFO, (1, 1, 1), 32, [x, y, z, 32])


VECTOR_ADD_WITH_DEBUG_INFO = (
    DECLARES + f"define ptx_kernel void @k({ADD_PARAMS}) #0 !dbg !3 {{\n{VECTOR_ADD}\n}}\n"
    'attributes #0 = { "nvvm.maxntid"="128" }\n!0 = !DILocation(line: 1, scope: !3)\n!3 = distinct !{}\n'
)


def test_out_of_bounds_names_argument_offset_and_line() -> None:
    text = kernel(ADD_PARAMS, VECTOR_ADD.replace(", !dbg !0", ""))
    x, y, z = (np.zeros(n, np.float32) for n in (128, 100, 128))
    with pytest.raises(EmulatorError) as error:
        launch(text, (1, 1, 1), 128, [x, y, z, 128])
    message = str(error.value)
    assert "Out-of-bounds read by lane 100: byte offset 400, 4 bytes, in argument 1 of 400 bytes." in message
    assert "%b = load float" in message
    with pytest.raises(EmulatorError, match="byte offset -4, 4 bytes, in argument 2"):
        launch(text, (1, 1, 1), 128, [x, x.copy(), (z, -4), 128])
    z.flags.writeable = False
    with pytest.raises(EmulatorError, match="argument 2, which is read-only"):
        launch(text, (1, 1, 1), 128, [x, x.copy(), z, 128])


def test_misaligned_access_is_an_error() -> None:
    body = TID + pointer("p", "i32", "%tid", "%in") + f"%v = load <4 x i32>, {P1} %p, align 16\nret void"
    data = np.zeros(64, np.uint32)
    with pytest.raises(EmulatorError, match=r"Misaligned access by lane 1: .* not a multiple of 16 bytes"):
        launch(kernel(f"{P1} %in", body), (1, 1, 1), 32, [data])
    launch(kernel(f"{P1} %in", body.replace("align 16", "align 4")), (1, 1, 1), 32, [data])


def test_arguments_are_checked() -> None:
    text = kernel(f"{P1} %p, i32 %n", "ret void")
    cases: list[tuple[list[Any], str]] = [
        ([np.zeros(4)], "takes 2 arguments, 1 were given"),
        ([np.zeros((4, 4))[:, 1], 3], "Argument 0 is not contiguous"),
        ([np.zeros(4), np.zeros(4)], "Argument 1 is an array"),
        ([np.zeros(4), "three"], "Argument 1 is a str"),
    ]
    for args, message in cases:
        with pytest.raises(EmulatorError, match=message):
            launch(text, (1, 1, 1), 32, args)
    with pytest.raises(EmulatorError, match="multiple of the warp size"):
        launch(text, (1, 1, 1), 33, [np.zeros(4), 1])
    with pytest.raises(EmulatorError, match="'nope' cannot be chosen; the module's kernels are: k"):
        launch(text, (1, 1, 1), 32, [np.zeros(4), 1], kernel="nope")


def test_unknown_things_are_refused_with_their_line() -> None:
    with pytest.raises(EmulatorError, match="'alloca' is not supported.*\n.*LLVM line.*%a = alloca i32"):
        launch(kernel("", "%a = alloca i32\nret void"), (1, 1, 1), 32, [])
    with pytest.raises(EmulatorError, match="PTX opcode 'brev' is not known"):
        body = 'call i32 asm "brev.b32 $0, $1;", "=r,r"(i32 1)\nret void'
        launch(kernel("", "%a = " + body), (1, 1, 1), 32, [])
    before = "declare i32 @llvm.nvvm.read.ptx.sreg.pm0()\n"
    with pytest.raises(EmulatorError, match="%pm0 is not known"):
        text = kernel("", "%a = call i32 @llvm.nvvm.read.ptx.sreg.pm0()\nret void", before=before)
        launch(text, (1, 1, 1), 32, [])


# -- control flow
def test_divergent_nested_loops() -> None:
    # sum over i < tid of (sum over j <= i of j); lanes leave both loops at different times
    body = TID + pointer("o", "i32", "%tid", "%out")
    body += """
      %any = icmp ne i32 %tid, 0
      br i1 %any, label %outer, label %exit
    outer:
      %i = phi i32 [ 0, %entry ], [ %i1, %latch ]
      %sum = phi i32 [ 0, %entry ], [ %t, %latch ]
      br label %inner
    inner:
      %j = phi i32 [ 0, %outer ], [ %j1, %inner ]
      %t0 = phi i32 [ %sum, %outer ], [ %t, %inner ]
      %t = add i32 %t0, %j
      %j1 = add i32 %j, 1
      %more = icmp ule i32 %j1, %i
      br i1 %more, label %inner, label %latch
    latch:
      %i1 = add i32 %i, 1
      %again = icmp ult i32 %i1, %tid
      br i1 %again, label %outer, label %exit
    exit:
      %r = phi i32 [ 7, %entry ], [ %t, %latch ]
    """
    body += f"store i32 %r, {P1} %o\nret void"
    out = np.zeros(64, np.uint32)
    launch(kernel(f"{P1} %out", body), (1, 1, 1), 64, [out])
    assert out.tolist() == [7] + [sum(j for i in range(n) for j in range(i + 1)) for n in range(1, 64)]


def test_lanes_meet_again_after_a_loop_that_is_left_from_its_head() -> None:
    # the loop body stands after the exit block in the text; the barrier in the exit must see all lanes
    body = (
        TID
        + "br label %head\nexit:\n"
        + BARRIER
        + pointer("o", "i32", "%tid", "%out")
        + f"store i32 %b, {P1} %o\nret void\nhead:\n"
        + "%a = phi i32 [ 0, %entry ], [ %a1, %body ]\n%b = phi i32 [ 1, %entry ], [ %a, %body ]\n"
        + "%c = icmp ult i32 %a, %tid\nbr i1 %c, label %body, label %exit\nbody:\n%a1 = add i32 %a, 1\nbr label %head"
    )
    out = np.zeros(64, np.uint32)
    launch(kernel(f"{P1} %out", body), (1, 1, 1), 64, [out])
    assert out.tolist() == [1] + list(range(63))


def test_phis_of_a_block_are_assigned_together() -> None:
    body = (
        TID
        + "br label %loop\nloop:\n%i = phi i32 [ 0, %entry ], [ %i1, %loop ]\n"
        + "%a = phi i32 [ 0, %entry ], [ %b, %loop ]\n%b = phi i32 [ 1, %entry ], [ %s, %loop ]\n"
        + "%s = add i32 %a, %b\n%i1 = add i32 %i, 1\n%c = icmp ule i32 %i1, %tid\n"
        + "br i1 %c, label %loop, label %done\ndone:\n"
        + pointer("o", "i32", "%tid", "%out")
        + f"store i32 %b, {P1} %o\nret void"
    )
    out = np.zeros(32, np.uint32)
    launch(kernel(f"{P1} %out", body), (1, 1, 1), 32, [out])
    fibonacci = [1, 1]
    while len(fibonacci) < 32:
        fibonacci.append(sum(fibonacci[-2:]))
    assert out.tolist() == fibonacci


def test_switch_and_unreachable() -> None:
    body = TID + pointer("o", "i32", "%tid", "%out") + "%m = urem i32 %tid, 4\n"
    body += "switch i32 %m, label %other [\n  i32 0, label %zero\n  i32 2, label %two\n]\n"
    body += "zero:\nbr label %join\ntwo:\nbr label %join\nother:\nbr label %join\njoin:\n"
    body += f"%r = phi i32 [ 10, %zero ], [ 12, %two ], [ 1, %other ]\nstore i32 %r, {P1} %o\nret void"
    out = np.zeros(32, np.uint32)
    launch(kernel(f"{P1} %out", body), (1, 1, 1), 32, [out])
    assert out[:4].tolist() == [10, 1, 12, 1]
    dead = TID + "%c = icmp eq i32 %tid, 9\nbr i1 %c, label %bad, label %good\nbad:\nunreachable\ngood:\nret void"
    with pytest.raises(EmulatorError, match="Lane 9 reaches an unreachable"):
        launch(kernel("", dead), (1, 1, 1), 32, [])


# -- shared memory
def reverse(middle: str) -> str:
    body = TID + pointer("gi", "i32", "%tid", "%in") + pointer("go", "i32", "%tid", "%out")
    body += pointer("w", "i32", "%tid", "@smem", P3) + "%other = sub i32 127, %tid\n"
    body += pointer("r", "i32", "%other", "@smem", P3)
    body += f"%v = load i32, {P1} %gi\nstore i32 %v, {P3} %w\n{middle}%x = load i32, {P3} %r\nstore i32 %x, {P1} %go\nret void"
    return kernel(f"{P1} %in, {P1} %out", body, before=SMEM)


def test_shared_memory_reverse_and_its_race() -> None:
    data, out = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    launch(reverse(BARRIER), (1, 1, 1), 128, [data, out], dynamic_shared=512)
    assert (out == data[::-1]).all()
    with pytest.raises(EmulatorError, match=r"Race on shared memory at byte 508: read by lane 0 and write by warp 3"):
        launch(reverse(""), (1, 1, 1), 128, [data, out], dynamic_shared=512)
    launch(reverse(""), (1, 1, 1), 128, [data, out], dynamic_shared=512, check=False)
    with pytest.raises(EmulatorError, match="Out-of-bounds write of shared memory by lane 64: byte offset 256"):
        launch(reverse(BARRIER), (1, 1, 1), 128, [data, out], dynamic_shared=256)


def test_race_of_a_write_after_reads_and_of_two_writes() -> None:
    again = f"%y = load i32, {P3} %r\n"
    twice = reverse(BARRIER + again + "store i32 1, " + f"{P3} %w\n" + BARRIER)
    with pytest.raises(EmulatorError, match=r"write by lane 0 and read by warp 3"):
        launch(twice, (1, 1, 1), 128, [np.zeros(128, np.uint32)] * 2, dynamic_shared=512)
    same = kernel("", TID + f"store i32 %tid, {P3} @smem\nret void", before=SMEM)
    with pytest.raises(EmulatorError, match=r"Race on shared memory at byte 0: write by lane 0 and write by warp 1"):
        launch(same, (1, 1, 1), 64, [], dynamic_shared=4)
    launch(same, (1, 1, 1), 32, [], dynamic_shared=4)


def test_reading_shared_memory_that_nobody_wrote() -> None:
    body = TID + pointer("r", "i16", "%tid", "@buffer", P3) + f"%v = load i16, {P3} %r\nret void"
    before = "@buffer = internal addrspace(3) global [64 x i16] poison, align 16\n"
    with pytest.raises(EmulatorError, match="Lane 0 reads shared memory that nobody wrote, at byte 0"):
        launch(kernel("", body, before=before), (1, 1, 1), 32, [])


def test_barriers_need_all_their_lanes() -> None:
    half = (
        TID
        + f"%c = icmp ult i32 %tid, 64\nbr i1 %c, label %sync, label %done\nsync:\n{BARRIER}br label %done\ndone:\nret void"
    )
    with pytest.raises(
        EmulatorError, match="Deadlock: .*\n.*warp 0.*: barrier 0 for 128 threads, of which 64 have not"
    ):
        launch(kernel("", half), (1, 1, 1), 128, [])
    named = "call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 1, i32 64)\n"
    launch(kernel("", half.replace(BARRIER, named)), (1, 1, 1), 128, [])
    assembly = 'call void asm sideeffect "bar.sync 1, 128;", "~{memory}"()\n'
    with pytest.raises(EmulatorError, match="barrier 1 for 128 threads, of which 64 have not"):
        launch(kernel("", half.replace(BARRIER, assembly)), (1, 1, 1), 128, [])
    lanes = TID + "%c = icmp ult i32 %tid, 3\nbr i1 %c, label %sync, label %done\nsync:\n"
    lanes += "call void @llvm.nvvm.bar.warp.sync(i32 15)\nbr label %done\ndone:\nret void"
    with pytest.raises(EmulatorError, match="member mask 0xf, but the lanes executing it are 0x7"):
        launch(kernel("", lanes), (1, 1, 1), 32, [])


def test_a_named_barrier_orders_only_its_warps() -> None:
    """Warps 0 and 1 meet, warp 2 does not; what warp 0 wrote may be read by warp 1 only."""
    body = (
        TID
        + "%w = lshr i32 %tid, 5\n%is0 = icmp eq i32 %w, 0\nbr i1 %is0, label %write, label %next\nwrite:\n"
        + pointer("p", "i32", "%tid", "@smem", P3)
        + f"store i32 %tid, {P3} %p\nbr label %next\nnext:\n%pair = icmp ult i32 %w, 2\n"
        + "br i1 %pair, label %sync, label %read\nsync:\n"
        + "call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 1, i32 64)\nbr label %read\nread:\n"
        + "%l = and i32 %tid, 31\n%who = icmp eq i32 %w, READER\nbr i1 %who, label %load, label %done\nload:\n"
        + pointer("q", "i32", "%l", "@smem", P3)
        + f"%v = load i32, {P3} %q\nbr label %done\ndone:\nret void"
    )
    launch(kernel("", body.replace("READER", "1"), before=SMEM), (1, 1, 1), 96, [], dynamic_shared=128)
    with pytest.raises(EmulatorError, match="read by lane 64 and write by warp 0"):
        launch(kernel("", body.replace("READER", "2"), before=SMEM), (1, 1, 1), 96, [], dynamic_shared=128)


def test_generic_pointers_reach_shared_and_global_memory() -> None:
    body = TID + pointer("s", "i32", "%tid", "@smem", P3) + pointer("g", "i32", "%tid", "%out")
    body += f"%sg = addrspacecast {P3} %s to ptr\n%gg = addrspacecast {P1} %g to ptr\nstore i32 %tid, ptr %sg\n"
    body += "%odd = trunc i32 %tid to i1\nstore i32 5, ptr %gg\n%p = select i1 %odd, ptr %sg, ptr %gg\n"
    body += "%v = load i32, ptr %p\nstore i32 %v, ptr %gg\nret void"
    out = np.zeros(32, np.uint32)
    launch(kernel(f"{P1} %out", body, before=SMEM), (1, 1, 1), 32, [out], dynamic_shared=128)
    assert out.tolist() == [lane if lane % 2 else 5 for lane in range(32)]


# -- atomics
def test_atomics() -> None:
    params = f"{P1} %sum, {P1} %fsum, {P1} %top, {P1} %old, {P1} %lock"
    body = TID + pointer("po", "i32", "%tid", "%old") + "%f = uitofp i32 %tid to float\n%m = and i32 %tid, 1\n"
    body += pointer("ps", "i32", "%m", "%sum")
    body += f'%a = atomicrmw add {P1} %ps, i32 %tid syncscope("agent") monotonic, align 4\n'
    body += f"%b = atomicrmw fadd {P1} %fsum, float %f acq_rel\n%neg = sub i32 0, %tid\n"
    body += f"%c = atomicrmw max {P1} %top, i32 %neg seq_cst\nstore i32 %a, {P1} %po\n"
    body += f"%x = cmpxchg {P1} %lock, i32 0, i32 %tid acq_rel monotonic\nret void"
    sums, fsum, top, lock = (
        np.zeros(2, np.uint32),
        np.zeros(1, np.float32),
        np.full(1, -5, np.int32),
        np.zeros(1, np.uint32),
    )
    old = np.zeros(64, np.uint32)
    launch(kernel(params, body), (1, 1, 1), 64, [sums, fsum, top, old, lock])
    assert sums.tolist() == [sum(range(0, 64, 2)), sum(range(1, 64, 2))]
    assert fsum[0] == 2016 and top[0] == 0 and lock[0] == 1
    assert old[:6].tolist() == [0, 0, 0, 1, 2, 4]


def test_shared_atomics_do_not_race_with_each_other() -> None:
    init = TID + "%z = icmp eq i32 %tid, 0\nbr i1 %z, label %set, label %go\nset:\n"
    init += f"store i32 0, {P3} @smem\nbr label %go\ngo:\n"
    add = f"%a = atomicrmw add {P3} @smem, i32 %tid monotonic\n"
    end = f"%v = load i32, {P3} @smem\nstore i32 %v, {P1} %out\nret void"
    out = np.zeros(1, np.uint32)
    good = kernel(f"{P1} %out", init + BARRIER + add + BARRIER + end, before=SMEM)
    launch(good, (1, 1, 1), 128, [out], dynamic_shared=4)
    assert out[0] == sum(range(128))
    for bad in (init + add + BARRIER + end, init + BARRIER + add + end):
        with pytest.raises(EmulatorError, match="Race on shared memory|nobody wrote"):
            launch(kernel(f"{P1} %out", bad, before=SMEM), (1, 1, 1), 128, [out], dynamic_shared=4)


# -- warps
def test_shuffle_reductions(rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, 64).astype(np.float32)
    body = ""
    for step, mask in enumerate((16, 8, 4, 2, 1)):
        body += f"%s{step} = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float {'%x0' if not step else f'%t{step - 1}'}, i32 {mask}, i32 31) #1\n"
        body += f"%t{step} = fadd float {'%x0' if not step else f'%t{step - 1}'}, %s{step}\n"
    got = elementwise(body, [x], "float", result="%t4", count=64)
    assert (got == np.repeat(x.reshape(2, 32).sum(axis=1), 32)).all()
    down = "%r = call float @llvm.nvvm.shfl.sync.down.f32(i32 -1, float %x0, i32 3, i32 31) #1"
    want = [x[lane + 3] if lane % 32 < 29 else x[lane] for lane in range(64)]
    assert elementwise(down, [x], "float", count=64).tolist() == want
    up = "%s = call { i32, i1 } @llvm.nvvm.shfl.sync.up.i32p(i32 -1, i32 %x0, i32 2, i32 2048) #1\n"  # segments of 8
    up += "%v = extractvalue { i32, i1 } %s, 0\n%p = extractvalue { i32, i1 } %s, 1\n%r = select i1 %p, i32 %v, i32 99"
    lanes = np.arange(32, dtype=np.uint32)
    assert elementwise(up.replace("2048", str(24 << 8)), [lanes], "i32").tolist() == [
        lane - 2 if lane % 8 >= 2 else 99 for lane in range(32)
    ]


def test_votes() -> None:
    x = np.arange(64, dtype=np.uint32)
    body = """
      %c = icmp ugt i32 %x0, 40
      %ballot = call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 %c)
      %any = call i1 @llvm.nvvm.vote.any.sync(i32 -1, i1 %c)
      %all = call i1 @llvm.nvvm.vote.all.sync(i32 -1, i1 %c)
      %a = select i1 %any, i32 1, i32 0
      %b = select i1 %all, i32 2, i32 0
      %ab = or i32 %a, %b
      %r = add i32 %ballot, %ab
    """
    got = elementwise(body, [x], "i32", count=64)
    assert got[0] == 0 and got[63] == sum(1 << lane for lane in range(9, 32)) + 1


def test_approximate_math_in_both_spellings(rng: np.random.Generator) -> None:
    x = np.abs(rng.normal(size=32)).astype(np.float32) + np.float32(0.1)
    want = {"ex2": np.exp2(x), "lg2": np.log2(x), "rsqrt": 1 / np.sqrt(x), "tanh": np.tanh(x), "sqrt": np.sqrt(x)}
    for name, values in want.items():
        ftz = "" if name == "tanh" else ".ftz"
        body = f'%r = call float asm "{name}.approx{ftz}.f32 $0, $1;", "=f,f"(float %x0)'
        np.testing.assert_allclose(elementwise(body, [x], "float"), values, rtol=1e-6, atol=1e-7)
    names = {"ex2.approx.f": "ex2", "lg2.approx.ftz.f": "lg2", "rsqrt.approx.f": "rsqrt", "sqrt.approx.f": "sqrt"}
    for name, key in names.items():
        text = kernel(
            f"{P1} %out, {P1} %in",
            TID + pointer("p", "float", "%tid", "%in") + pointer("o", "float", "%tid", "%out") + f"%x = load float, {P1} %p\n"
            f"%r = call float @llvm.nvvm.{name}(float %x)\nstore float %r, {P1} %o\nret void",
            before=f"declare float @llvm.nvvm.{name}(float)\n",
        )  # fmt: skip
        out = np.zeros(32, np.float32)
        launch(text, (1, 1, 1), 32, [out, x])
        np.testing.assert_allclose(out, want[key], rtol=1e-6, atol=1e-7)
    tiny = np.full(32, 1e-40, np.float32)
    flushed = elementwise('%r = call float asm "sqrt.approx.ftz.f32 $0, $1;", "=f,f"(float %x0)', [tiny], "float")
    assert flushed[0] == 0


# -- inline PTX
def test_predicated_vector_load_and_store() -> None:
    struct = "{ i32, i32, i32, i32 }"
    load = "{ .reg .pred p; setp.ne.b32 p, $9, 0; @p ld.global.L1::evict_first.v4.b32 {$0,$1,$2,$3}, [$8]; }"
    store = "{\\0A.reg .pred p;\\0Asetp.ne.b32 p, $3, 0;\\0A@!p st.global.v2.b32 [$0+8], {$1, $2};\\0A}"
    body = (
        TID
        + "%o = shl i32 %tid, 4\n"
        + pointer("pi", "i8", "%o", "%in")
        + pointer("po", "i8", "%o", "%out")
        + "%c = icmp ult i32 %tid, 20\n%p = zext i1 %c to i32\n"
        + f'%v = call {struct} asm sideeffect "{load}", "=r,=r,=r,=r,0,1,2,3,l,r,~{{memory}}"'
        + f"(i32 7, i32 7, i32 7, i32 7, {P1} %pi, i32 %p)\n"
        + "".join(f"%v{i} = extractvalue {struct} %v, {i}\n" for i in range(4))
        + f'call void asm sideeffect "{store}", "l,r,r,r,~{{memory}}"({P1} %po, i32 %v1, i32 %v3, i32 %p)\nret void'
    )
    data, out = np.arange(80, dtype=np.uint32), np.zeros(128, np.uint32)
    launch(kernel(f"{P1} %in, {P1} %out", body), (1, 1, 1), 32, [data, out])
    assert not out[:80].any()
    assert (out.reshape(32, 4)[20:] == [0, 0, 7, 7]).all()
    flipped = kernel(f"{P1} %in, {P1} %out", body.replace("@!p", "@p"))
    launch(flipped, (1, 1, 1), 32, [data, out])
    assert (out.reshape(32, 4)[:20, 2:] == data.reshape(20, 4)[:, [1, 3]]).all()
    with pytest.raises(EmulatorError, match="(?s)in argument 0 of 316 bytes.*PTX: @p ld.global.L1::evict_first.v4"):
        launch(flipped, (1, 1, 1), 32, [data[:79].copy(), out])
    with pytest.raises(EmulatorError, match="not a multiple of 16 bytes"):
        launch(flipped, (1, 1, 1), 32, [(data, 4), out])


@pytest.mark.parametrize(
    ("text", "constraints", "expected"),
    [
        ("mul.lo.s32 $0, $1, $2;", "=r,r,r", lambda a, b: a * b),
        ("{ .reg .b64 w; mul.wide.u32 w, $1, $2; shr.b64 w, w, 32; cvt.u32.u64 $0, w; }", "=r,r,r",
         lambda a, b: (a.astype(np.uint64) * b >> np.uint64(32)).astype(np.uint32)),
        ("mad.lo.u32 $0, $1, $2, 5;", "=r,r,r", lambda a, b: a * b + np.uint32(5)),
        ("{ .reg .pred p, q; setp.lt.s32 p, $1, $2; not.pred q, p; selp.b32 $0, 1, 2, q; }", "=r,r,r",
         lambda a, b: np.where(a.view(np.int32) < b.view(np.int32), 2, 1)),
        ("{ .reg .b32 t<2>; shl.b32 t0, $1, 4; and.b32 t1, t0, 0xff0; xor.b32 $0, t1, $2; }", "=r,r,r",
         lambda a, b: (a << 4) & 0xFF0 ^ b),
        ("prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", lambda a, b: (a & 0xFFFF) | (b << 16)),
        ("lop3.b32 $0, $1, $2, $1, 0x3c;", "=r,r,r", lambda a, b: a ^ b),
        ("{ .reg .b16 l, h; mov.b32 {l, h}, $1; mov.b32 $0, {h, l}; }", "=r,r,r", lambda a, b: a << 16 | a >> 16),
        ("min.s32 $0, $1, $2;", "=r,r,r", lambda a, b: np.minimum(a.view(np.int32), b.view(np.int32)).view(np.uint32)),
        ("mov.u32 $0, %laneid;", "=r,r,r", lambda a, b: np.arange(32)),
    ],
)  # fmt: skip
def test_ptx_integer_opcodes(text: str, constraints: str, expected: Any, rng: np.random.Generator) -> None:
    a, b = numbers(rng, TYPES["i32"]), numbers(rng, TYPES["i32"])
    got = elementwise(f'%r = call i32 asm "{text}", "{constraints}"(i32 %x0, i32 %x1)', [a, b], "i32")
    assert (got == expected(a, b).astype(np.uint32)).all()


def test_ptx_conversions(rng: np.random.Generator) -> None:
    x, y = numbers(rng, TYPES["float"]), numbers(rng, TYPES["float"])
    for name, dtype in (("f16", np.dtype(np.float16)), ("bf16", BF16)):
        body = f'%r = call i32 asm "cvt.rn.{name}x2.f32 $0, $1, $2;", "=r,f,f"(float %x0, float %x1)'
        pair = elementwise(body, [x, y], "i32")[:, None].view(dtype)
        assert (pair == np.stack([y, x], axis=1).astype(dtype)).all()
    body = '%h = call i16 asm "cvt.rn.bf16.f32 $0, $1;", "=h,f"(float %x0)\n%r = bitcast i16 %h to bfloat'
    assert (elementwise(body, [x], "bfloat") == x.astype(BF16)).all()
    body = '%r = call i32 asm "cvt.rzi.s32.f32 $0, $1;", "=r,f"(float %x0)'
    assert (elementwise(body, [x], "i32").view(np.int32) == np.trunc(x)).all()
    body = '%r = call i16 asm "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", "=h,f,f"(float %x0, float %x1)'
    got = elementwise(body, [x * 200, y], "i16")[:, None].view(ml_dtypes.float8_e4m3fn)
    want = np.stack([y, np.clip(x * 200, -448, 448)], axis=1).astype(ml_dtypes.float8_e4m3fn)
    assert (got.astype(np.float32) == want.astype(np.float32)).all()


def test_ptx_atomics_and_shared_accesses() -> None:
    body = TID + pointer("s", "i32", "%tid", "@smem", P3) + f"%a = ptrtoint {P3} %s to i32\n"
    body += 'call void asm sideeffect "st.shared.b32 [$0], $1;", "r,r,~{memory}"(i32 %a, i32 %tid)\n' + BARRIER
    body += (
        '%v = call i32 asm sideeffect "ld.shared.b32 $0, [$1];", "=r,r,~{memory}"(i32 %a)\n%even = and i32 %tid, 1\n'
    )
    body += 'call void asm sideeffect "{ .reg .pred p; setp.eq.s32 p, $2, 0; @p red.global.relaxed.gpu.add.u32 [$0], $1; }", '
    body += f'"l,r,r,~{{memory}}"({P1} %out, i32 %v, i32 %even)\n%f = uitofp i32 %v to float\n'
    body += f"%o2 = getelementptr i8, {P1} %out, i32 4\n"
    body += '%old = call float asm sideeffect "atom.global.acq_rel.gpu.add.f32 $0, [$2], $3;", "=f,0,l,f,~{memory}"'
    body += f"(float 0.0, {P1} %o2, float %f)\nret void"
    out = np.zeros(2, np.uint32)
    launch(kernel(f"{P1} %out", body, before=SMEM), (1, 1, 1), 64, [out], dynamic_shared=256)
    assert out[0] == sum(range(0, 64, 2)) and out[1:].view(np.float32)[0] == sum(range(64))


def test_asynchronous_copies_land_at_the_wait() -> None:
    copy = "cp.async.cg.shared.global [$0], [$1], 16;"
    wait = "cp.async.commit_group; cp.async.wait_group 0;"
    body = TID + "%o = shl i32 %tid, 4\n" + pointer("s", "i8", "%o", "@smem", P3) + pointer("g", "i8", "%o", "%in")
    body += pointer("q", "i8", "%o", "%out") + f"%a = ptrtoint {P3} %s to i32\n"
    body += f'call void asm sideeffect "{copy}", "r,l,~{{memory}}"(i32 %a, {P1} %g)\n'
    body += f'call void asm sideeffect "{wait}", "~{{memory}}"()\n'
    body += f"%v = load <4 x i32>, {P3} %s\nstore <4 x i32> %v, {P1} %q\nret void"
    data, out = np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)
    text = kernel(f"{P1} %in, {P1} %out", body, before=SMEM)
    launch(text, (1, 1, 1), 64, [data, out], dynamic_shared=1024)
    assert (out == data).all()
    with pytest.raises(EmulatorError, match="nobody wrote"):
        launch(text.replace("wait_group 0", "wait_group 1"), (1, 1, 1), 64, [data, out], dynamic_shared=1024)


# -- matrices
def mma_fragments(matrix: np.ndarray, is_b: bool) -> np.ndarray:
    """[lane, word] of uint32 for m16n8k16: written out from the PTX manual, register by register."""
    words = np.zeros((32, 2 if is_b else 4, 2), matrix.dtype)
    for lane in range(32):
        group, thread = divmod(lane, 4)
        for register in range(words.shape[1]):
            for element in range(2):
                k = 2 * thread + element + 8 * (register if is_b else register // 2)
                other = group + (0 if is_b else 8 * (register % 2))
                words[lane, register, element] = matrix[k, other] if is_b else matrix[other, k]
    return words.view(np.uint32)[:, :, 0]


def accumulator_coordinates(count: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of [lane, element] of a warp's m16 accumulator."""
    lane, element = np.arange(32)[:, None], np.arange(count)
    return lane // 4 + 8 * (element // 2 % 2), 8 * (element // 4) + 2 * (lane % 4) + element % 2


def load_words(name: str, count: int) -> str:
    """%name0.. : `count` consecutive i32 per lane."""
    text = f"%{name}off = mul i32 %tid, {count}\n" + pointer(f"{name}p", "i32", f"%{name}off", f"%{name}")
    for at in range(count):
        text += (
            f"%{name}p{at} = getelementptr i32, {P1} %{name}p, i32 {at}\n%{name}{at} = load i32, {P1} %{name}p{at}\n"
        )
    return text


def store_floats(values: list[str]) -> str:
    text = f"%doff = mul i32 %tid, {len(values)}\n" + pointer("dp", "float", "%doff", "%d")
    for at, value in enumerate(values):
        text += f"%dp{at} = getelementptr float, {P1} %dp, i32 {at}\nstore float {value}, {P1} %dp{at}\n"
    return text


@pytest.mark.parametrize("form", ["f16", "bf16", "intrinsic"])
def test_mma_sync_tile(form: str, rng: np.random.Generator) -> None:
    dtype = BF16 if form == "bf16" else np.dtype(np.float16)
    a, b = rng.normal(size=(16, 16)).astype(dtype), rng.normal(size=(16, 8)).astype(dtype)
    struct = "{ float, float, float, float }"
    body = TID + load_words("a", 4) + load_words("b", 2)
    if form == "intrinsic":
        body += "".join(f"%{n}h = bitcast i32 %{n} to <2 x half>\n" for n in ("a0", "a1", "a2", "a3", "b0", "b1"))
        args = ", ".join(f"<2 x half> %{n}h" for n in ("a0", "a1", "a2", "a3", "b0", "b1"))
        body += f"%r = call {struct} @llvm.nvvm.mma.m16n8k16.row.col.f32.f32({args}" + ", float 1.0" * 4 + ")\n"
    else:
        text = f"mma.sync.aligned.m16n8k16.row.col.f32.{form}.{form}.f32 {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};"
        args = ", ".join(f"i32 %{n}" for n in ("a0", "a1", "a2", "a3", "b0", "b1"))
        body += f'%r = call {struct} asm "{text}", "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3"({args}' + ", float 1.0" * 4 + ")\n"
    body += "".join(f"%r{i} = extractvalue {struct} %r, {i}\n" for i in range(4))
    body += store_floats([f"%r{i}" for i in range(4)]) + "ret void"
    d = np.zeros((64, 4), np.float32)
    fragments = [np.tile(mma_fragments(m, is_b), (2, 1)) for m, is_b in ((a, False), (b, True))]
    launch(kernel(f"{P1} %a, {P1} %b, {P1} %d", body), (1, 1, 1), 64, [*fragments, d])
    want = (a.astype(np.float32) @ b.astype(np.float32) + 1)[accumulator_coordinates(4)]
    np.testing.assert_allclose(d, np.tile(want, (2, 1)), rtol=1e-5, atol=1e-5)


def test_mma_tf32_ignores_low_bits(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=(8, 8)).astype(np.float32)
    lane, register = np.arange(32)[:, None], np.arange(4)
    words_a = a[lane // 4 + 8 * (register % 2), lane % 4 + 4 * (register // 2)].view(np.uint32)
    words_b = b[lane % 4 + 4 * register[:2], lane // 4].view(np.uint32)
    text = (
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
    )
    struct = "{ float, float, float, float }"
    args = ", ".join(f"i32 %{n}" for n in ("a0", "a1", "a2", "a3", "b0", "b1")) + ", float 0.0" * 4
    body = TID + load_words("a", 4) + load_words("b", 2)
    body += f'%r = call {struct} asm "{text}", "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3"({args})\n'
    body += "".join(f"%r{i} = extractvalue {struct} %r, {i}\n" for i in range(4))
    d = np.zeros((32, 4), np.float32)
    text = kernel(f"{P1} %a, {P1} %b, {P1} %d", body + store_floats([f"%r{i}" for i in range(4)]) + "ret void")
    launch(text, (1, 1, 1), 32, [np.ascontiguousarray(words_a), np.ascontiguousarray(words_b), d])
    cut = [(m.view(np.uint32) & 0xFFFFE000).view(np.float32) for m in (a, b)]
    np.testing.assert_allclose(d, (cut[0] @ cut[1])[accumulator_coordinates(4)], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("inline", [False, True])
def test_ldmatrix_and_stmatrix(inline: bool) -> None:
    """stmatrix.x4 of known words, then ldmatrix.x4 gives them back and ldmatrix.x2.trans the transposes."""
    four, two = "{ i32, i32, i32, i32 }", "{ i32, i32 }"
    body = TID + "%row = mul i32 %tid, 16\n" + pointer("p", "i8", "%row", "@smem", P3)
    body += f"%addr = ptrtoint {P3} %p to i32\n" + load_words("a", 4)
    names = ", ".join(f"i32 %a{i}" for i in range(4))
    if inline:
        st, ld = (
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1,$2,$3,$4};",
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];",
        )
        trans = "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {$0,$1}, [$2];"
        body += f'call void asm sideeffect "{st}", "r,r,r,r,r,~{{memory}}"(i32 %addr, {names})\n'
        body += "call void @llvm.nvvm.bar.warp.sync(i32 -1)\n"
        body += f'%l = call {four} asm sideeffect "{ld}", "=r,=r,=r,=r,r,~{{memory}}"(i32 %addr)\n'
        body += f'%t = call {two} asm sideeffect "{trans}", "=r,=r,r,~{{memory}}"(i32 %addr)\n'
    else:
        body += f"call void @llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16.p3({P3} %p, {names})\n"
        body += f"%l = call {four} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3({P3} %p)\n"
        body += f"%t = call {two} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.trans.b16.p3({P3} %p)\n"
    body += "".join(f"%l{i} = extractvalue {four} %l, {i}\n" for i in range(4))
    body += "".join(f"%t{i} = extractvalue {two} %t, {i}\n" for i in range(2))
    body += "".join(
        f"%f{at} = bitcast i32 %{n} to float\n" for at, n in enumerate(("l0", "l1", "l2", "l3", "t0", "t1"))
    )
    body += store_floats([f"%f{i}" for i in range(6)]) + "ret void"
    matrices = np.arange(4 * 64, dtype=np.uint16).reshape(4, 8, 8)
    words = np.ascontiguousarray(matrices).view(np.uint32).reshape(4, 32).T.copy()
    d = np.zeros((32, 6), np.float32)
    launch(kernel(f"{P1} %a, {P1} %d", body, before=SMEM), (1, 1, 1), 32, [words, d], dynamic_shared=512)
    assert (d.view(np.uint32)[:, :4] == words).all()
    transposes = np.ascontiguousarray(matrices.transpose(0, 2, 1)).view(np.uint32).reshape(4, 32).T
    assert (d.view(np.uint32)[:, 4:] == transposes[:, :2]).all()


# -- wgmma
def swizzled(matrix: np.ndarray, width: int) -> np.ndarray:
    """A [rows, columns] 16-bit matrix in blocks of `width` bytes of columns, each block stored row after row with its
    16-byte pieces exchanged by the row; bytes."""
    rows, columns = matrix.shape
    image = np.zeros(matrix.nbytes, np.uint8)
    block = width // 2
    for at in range(columns // block):
        part = np.ascontiguousarray(matrix[:, at * block : (at + 1) * block]).view(np.uint8).reshape(-1)
        offset = np.arange(part.size)
        bits = {128: 7, 64: 3, 32: 1}[width]
        image[at * part.size + (offset ^ ((offset >> 7 & bits) << 4))] = part
    return image


def descriptor(leading: int, stride: int, mode: int) -> int:
    value = (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62
    return value - (1 << 64) if value >> 63 else value


def wgmma_kernel(
    n: int,
    kind: str,
    desc_a: int,
    desc_b: int,
    offsets: tuple[int, int, int],
    flags: str,
    fence: str,
    threads: int = 128,
) -> str:
    """Copies `offsets[2]` bytes to shared memory, multiplies twice (the second time accumulating), stores D.

    `offsets`: first byte of A, of B, and the size of both.
    """
    count, total = n // 2, offsets[2]
    body = TID
    for at in range(0, total, 16 * threads):
        body += f"%c{at} = shl i32 %tid, 4\n%i{at} = add i32 %c{at}, {at}\n" + pointer(
            f"g{at}", "i8", f"%i{at}", "%image"
        )
        body += pointer(f"s{at}", "i8", f"%i{at}", "@smem", P3)
        body += f"%v{at} = load <4 x i32>, {P1} %g{at}\nstore <4 x i32> %v{at}, {P3} %s{at}\n"
    body += fence + f"%base = ptrtoint {P3} @smem to i32\n"
    for name, offset, fields in (("a", offsets[0], desc_a), ("b", offsets[1], desc_b)):
        body += (
            f"%{name}0 = add i32 %base, {offset}\n%{name}1 = lshr i32 %{name}0, 4\n%{name}2 = and i32 %{name}1, 16383\n"
        )
        body += f"%{name}3 = zext i32 %{name}2 to i64\n%{name} = or i64 %{name}3, {fields}\n"
    regs = ",".join(f"${i}" for i in range(count))
    text = f"{{ .reg .pred p; setp.ne.b32 p, ${2 * count + 2}, 0; wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} "
    text += f"{{{regs}}}, ${2 * count}, ${2 * count + 1}, p, 1, 1, {flags}; }}"
    constraints = ",".join(["=f"] * count + [str(i) for i in range(count)] + ["l", "l", "r"])
    struct = "{ " + ", ".join(["float"] * count) + " }"
    body += "call void @llvm.nvvm.wgmma.fence.sync.aligned()\n"
    start = ["9.0"] * count
    for step in range(2):
        args = ", ".join([f"float {v}" for v in start] + ["i64 %a", "i64 %b", f"i32 {step}"])
        body += f'%d{step} = call {struct} asm sideeffect "{text}", "{constraints}"({args}) #1\n'
        start = [f"%d{step}_{i}" for i in range(count)]
        body += "".join(f"{v} = extractvalue {struct} %d{step}, {i}\n" for i, v in enumerate(start))
    body += "call void @llvm.nvvm.wgmma.commit_group.sync.aligned()\ncall void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 0)\n"
    return kernel(f"{P1} %image, {P1} %d", body + store_floats(start) + "ret void", before=SMEM)


def wgmma_result(d: np.ndarray) -> np.ndarray:
    """[128 lanes, n/2] accumulators as a 64 x n tile."""
    tile = np.zeros((64, 2 * d.shape[1]), np.float32)
    rows, columns = accumulator_coordinates(d.shape[1])
    for warp in range(4):
        tile[16 * warp + rows, columns] = d[32 * warp : 32 * warp + 32]
    return tile


MODES = {128: 1, 64: 2, 32: 3}


@pytest.mark.parametrize(("width", "step"), [(128, 0), (128, 3), (64, 1), (32, 0)])
def test_wgmma_k_major(width: int, step: int, rng: np.random.Generator) -> None:
    """64x32x16 with both operands [rows, K], K contiguous; `step` is the K step inside a swizzled row."""
    columns = width // 2
    a, b = rng.normal(size=(64, columns)).astype(BF16), rng.normal(size=(32, columns)).astype(BF16)
    image = np.concatenate([swizzled(a, width), swizzled(b, width)])
    at_b, fields = 64 * width, descriptor(16, 8 * width, MODES[width])
    image = np.concatenate([image, np.zeros(-len(image) % 2048, np.uint8)])
    offsets = (32 * step, at_b + 32 * step, len(image))
    text = wgmma_kernel(32, "bf16", fields, fields, offsets, "0, 0", FENCE + BARRIER)
    d = np.zeros((128, 16), np.float32)
    launch(text, (1, 1, 1), 128, [image, d], dynamic_shared=len(image))
    k = slice(16 * step, 16 * step + 16)
    want = 2 * a[:, k].astype(np.float32) @ b[:, k].astype(np.float32).T
    np.testing.assert_allclose(wgmma_result(d), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("width", [128, 64, 32])
def test_wgmma_mn_major(width: int, rng: np.random.Generator) -> None:
    """64x64x16 with both operands [K, rows], rows contiguous, in blocks of `width` bytes."""
    a, b = rng.normal(size=(16, 64)).astype(np.float16), rng.normal(size=(16, 64)).astype(np.float16)
    image = np.concatenate([swizzled(a, width), swizzled(b, width)])
    fields = descriptor(16 * width, 8 * width, MODES[width])
    text = wgmma_kernel(64, "f16", fields, fields, (0, 2048, 4096), "1, 1", FENCE + BARRIER)
    d = np.zeros((128, 32), np.float32)
    launch(text, (1, 1, 1), 128, [image, d], dynamic_shared=4096)
    want = 2 * a.astype(np.float32).T @ b.astype(np.float32)
    np.testing.assert_allclose(wgmma_result(d), want, rtol=1e-5, atol=1e-4)


def test_wgmma_needs_the_proxy_fence_and_the_barrier() -> None:
    fields = descriptor(16, 1024, 1)
    image, d = np.zeros(64 * 128 + 32 * 128, np.uint8), np.zeros((128, 16), np.float32)
    for fence, message in ((BARRIER, "no fence.proxy.async stands between"), (FENCE, "Race on shared memory")):
        text = wgmma_kernel(32, "bf16", fields, fields, (0, 8192, len(image)), "0, 0", fence)
        with pytest.raises(EmulatorError, match=message):
            launch(text, (1, 1, 1), 128, [image, d], dynamic_shared=len(image))
    good = wgmma_kernel(32, "bf16", fields, fields, (0, 8192, len(image)), "0, 0", FENCE + BARRIER)
    early = good.replace(
        "wait_group.sync.aligned(i64 0)\n", f"wait_group.sync.aligned(i64 1)\nstore <4 x i32> %v0, {P3} %s0\n"
    )
    with pytest.raises(EmulatorError, match="wait for its group"):
        launch(early, (1, 1, 1), 128, [image, d], dynamic_shared=len(image))


def test_a_second_warp_group_must_not_overwrite_operands_without_a_barrier() -> None:
    fields = descriptor(16, 1024, 1)
    image, d = np.zeros(64 * 128 + 32 * 128, np.uint8), np.zeros((256, 16), np.float32)
    good = wgmma_kernel(32, "bf16", fields, fields, (0, 8192, len(image)), "0, 0", FENCE + BARRIER, threads=256)
    wait = "call void @llvm.nvvm.wgmma.wait_group.sync.aligned(i64 0)\n"
    store = f"store <4 x i32> %v0, {P3} %s0\n"
    launch(good.replace(wait, wait + BARRIER + store), (1, 1, 1), 256, [image, d], dynamic_shared=len(image))
    with pytest.raises(EmulatorError, match="write by lane 0 and wgmma read by warp 4"):
        launch(good.replace(wait, wait + store), (1, 1, 1), 256, [image, d], dynamic_shared=len(image))


def test_wgmma_with_a_in_registers(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(64, 16)).astype(np.float16), rng.normal(size=(8, 64)).astype(np.float16)
    words = np.concatenate([mma_fragments(a[16 * warp : 16 * warp + 16], False) for warp in range(4)])
    body = TID + load_words("a", 4) + "%o = shl i32 %tid, 3\n" + pointer("g", "i8", "%o", "%image")
    body += pointer("s", "i8", "%o", "@smem", P3) + f"%v = load i64, {P1} %g\nstore i64 %v, {P3} %s\n{FENCE}{BARRIER}"
    body += f"%base = ptrtoint {P3} @smem to i64\n%b1 = lshr i64 %base, 4\n%b = or i64 %b1, {descriptor(16, 1024, 1)}\n"
    body += "call void @llvm.nvvm.wgmma.fence.sync.aligned()\n"
    text = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0,$1,$2,$3}, {$8,$9,$10,$11}, $12, 0, 1, -1, 0;"
    struct, args = "{ float, float, float, float }", "float 0.0, float 0.0, float 0.0, float 0.0"
    text = text.replace("$12, 0,", "$12, p,").join(["{ .reg .pred p; setp.ne.b32 p, 0, 0; ", " }"])
    body += f'%r = call {struct} asm sideeffect "{text}", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,l"({args}, '
    body += ", ".join(f"i32 %a{i}" for i in range(4)) + ", i64 %b) #1\n"
    body += (
        'call void asm sideeffect "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;", "~{memory}"()\n'
    )
    body += "".join(f"%r{i} = extractvalue {struct} %r, {i}\n" for i in range(4)) + store_floats(
        [f"%r{i}" for i in range(4)]
    )
    d = np.zeros((128, 4), np.float32)
    module = kernel(f"{P1} %a, {P1} %image, {P1} %d", body + "ret void", before=SMEM)
    launch(module, (1, 1, 1), 128, [words, swizzled(b, 128), d], dynamic_shared=1024)
    want = -(a.astype(np.float32) @ b[:, :16].astype(np.float32).T)
    np.testing.assert_allclose(wgmma_result(d), want, rtol=1e-5, atol=1e-4)


# -- AMD
AMD_TID = "%tid = call i32 @llvm.amdgcn.workitem.id.x()\n"
AMD_BARRIER = (
    'fence syncscope("workgroup") release\ncall void @llvm.amdgcn.s.barrier()\nfence syncscope("workgroup") acquire\n'
)
LDS = "@lds = internal addrspace(3) global [128 x i32] poison, align 16\n"


def test_amd_vector_add_and_grid_size(rng: np.random.Generator) -> None:
    body = (
        AMD_TID
        + "%wg = call i32 @llvm.amdgcn.workgroup.id.x()\n%base = shl i32 %wg, 7\n%i = add i32 %base, %tid\n"
        + "%in = icmp ult i32 %i, %n\nbr i1 %in, label %then, label %done\nthen:\n"
        + "".join(pointer(p, "half", "%i", f"%{p.upper()}") for p in "xyz")
        + f"%a = load half, {P1} %x\n%b = load half, {P1} %y\n%s = fadd half %a, %b\nstore half %s, {P1} %z\nbr label %done\n"
        + "done:\n%implicit = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()\n%c = load i32, ptr addrspace(4) %implicit\n"
        + f"store i32 %c, {P1} %count\nret void"
    )
    text = kernel(f"{P1} %X, {P1} %Y, {P1} %Z, i32 %n, {P1} %count", body, amd=True)
    x, y = (rng.normal(size=300).astype(np.float16) for _ in range(2))
    z, count = np.zeros(300, np.float16), np.zeros(1, np.int32)
    launch(text, (3, 1, 1), 128, [x, y, z, 300, count], warp_size=64)
    assert (z == x + y).all() and count[0] == 3


@pytest.mark.parametrize("barrier", [AMD_BARRIER, ""])
def test_amd_lds_reverse(barrier: str) -> None:
    body = AMD_TID + pointer("gi", "i32", "%tid", "%in") + pointer("go", "i32", "%tid", "%out")
    body += (
        pointer("w", "i32", "%tid", "@lds", P3)
        + "%other = sub i32 127, %tid\n"
        + pointer("r", "i32", "%other", "@lds", P3)
    )
    body += f"%v = load i32, {P1} %gi\nstore i32 %v, {P3} %w\n{barrier}%x = load i32, {P3} %r\nstore i32 %x, {P1} %go\nret void"
    text = kernel(f"{P1} %in, {P1} %out", body, amd=True, before=LDS)
    data, out = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    if barrier:
        launch(text, (1, 1, 1), 128, [data, out], warp_size=64)
        assert (out == data[::-1]).all()
    else:
        with pytest.raises(EmulatorError, match="Race on shared memory"):
            launch(text, (1, 1, 1), 128, [data, out], warp_size=64)


def test_amd_lane_operations() -> None:
    calls = {
        "lane": "%l = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)\n%r = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %l)",
        "permute": "%x = xor i32 %tid, 5\n%a = shl i32 %x, 2\n%r = call i32 @llvm.amdgcn.ds.bpermute(i32 %a, i32 %tid)",
        "first": "%r = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %tid)",
        "lane7": "%r = call i32 @llvm.amdgcn.readlane.i32(i32 %tid, i32 7)",
        "dpp": "%r = call i32 @llvm.amdgcn.update.dpp.i32(i32 1000, i32 %tid, i32 273, i32 15, i32 15, i1 false)",
        "quad": "%r = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %tid, i32 177, i32 15, i32 15, i1 true)",
        "swap": "%y = add i32 %tid, 500\n%s = call { i32, i32 } @llvm.amdgcn.permlane32.swap(i32 %tid, i32 %y, i1 false, i1 false)\n"
        "%r = extractvalue { i32, i32 } %s, 0",
        "ballot": "%c = icmp uge i32 %tid, 100\n%b = call i64 @llvm.amdgcn.ballot.i64(i1 %c)\n%h = lshr i64 %b, 32\n%r = trunc i64 %h to i32",
    }
    lanes = np.arange(128)
    local, wave = lanes % 64, lanes - lanes % 64
    want = {
        "lane": local,
        "permute": lanes ^ 5,
        "first": wave,
        "lane7": wave + 7,
        "dpp": np.where(lanes % 16 == 0, 1000, lanes - 1),
        "quad": lanes ^ 1,
        "swap": np.where(local < 32, lanes, lanes - 32 + 500),
        "ballot": np.where(wave > 0, 0xFFFFFFF0, 0),
    }
    for name, body in calls.items():
        full = AMD_TID + body + "\n" + pointer("o", "i32", "%tid", "%out") + f"store i32 %r, {P1} %o\nret void"
        out = np.zeros(128, np.uint32)
        launch(kernel(f"{P1} %out", full, amd=True, target="gfx950"), (1, 1, 1), 128, [out], warp_size=64)
        assert (out == want[name]).all(), name


def amd_mfma(vector: str, result: str, intrinsic: str, target: str = "gfx942") -> str:
    count = int(result[1:].split()[0])
    body = (
        AMD_TID
        + pointer("pa", vector, "%tid", "%a")
        + pointer("pb", vector, "%tid", "%b")
        + pointer("pd", result, "%tid", "%d")
    )
    body += f"%va = load {vector}, {P1} %pa\n%vb = load {vector}, {P1} %pb\n"
    body += f"%r = call {result} @llvm.amdgcn.mfma.{intrinsic}({vector} %va, {vector} %vb, {result} splat (float 1.0), i32 0, i32 0, i32 0)\n"
    assert count in (4, 16)
    return kernel(
        f"{P1} %a, {P1} %b, {P1} %d", body + f"store {result} %r, {P1} %pd\nret void", amd=True, target=target
    )


def test_amd_mfma(rng: np.random.Generator) -> None:
    lane = np.arange(64)[:, None]
    a, b = rng.normal(size=(16, 16)).astype(np.float16), rng.normal(size=(16, 16)).astype(np.float16)
    index = lane % 16, 4 * (lane // 16) + np.arange(4)
    d = np.zeros((64, 4), np.float32)
    text = amd_mfma("<4 x half>", "<4 x float>", "f32.16x16x16f16")
    launch(text, (1, 1, 1), 64, [a[index], b[index], d], warp_size=64)
    want = (a.astype(np.float32) @ b.astype(np.float32).T + 1)[4 * (lane // 16) + np.arange(4), lane % 16]
    np.testing.assert_allclose(d, want, rtol=1e-5, atol=1e-5)

    a, b = rng.normal(size=(32, 8)).astype(BF16), rng.normal(size=(32, 8)).astype(BF16)
    index, r = (lane % 32, 4 * (lane // 32) + np.arange(4)), np.arange(16)
    d = np.zeros((64, 16), np.float32)
    text = amd_mfma("<4 x i16>", "<16 x float>", "f32.32x32x8bf16.1k")
    launch(text, (1, 1, 1), 64, [a[index].copy(), b[index].copy(), d], warp_size=64)
    want = (a.astype(np.float32) @ b.astype(np.float32).T + 1)[8 * (r // 4) + 4 * (lane // 32) + r % 4, lane % 32]
    np.testing.assert_allclose(d, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "fp8"), [("gfx942", ml_dtypes.float8_e4m3fnuz), ("gfx950", ml_dtypes.float8_e4m3fn)]
)
def test_amd_fp8_format_depends_on_the_target(target: str, fp8: Any, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(16, 32)).astype(fp8), rng.normal(size=(16, 32)).astype(fp8)
    lane = np.arange(64)[:, None]
    index, d = (lane % 16, 8 * (lane // 16) + np.arange(8)), np.zeros((64, 4), np.float32)
    text = amd_mfma("i64", "<4 x float>", "f32.16x16x32.fp8.fp8", target)
    launch(text, (1, 1, 1), 64, [a[index].copy(), b[index].copy(), d], warp_size=64)
    want = (a.astype(np.float32) @ b.astype(np.float32).T + 1)[4 * (lane // 16) + np.arange(4), lane % 16]
    np.testing.assert_allclose(d, want, rtol=1e-5, atol=1e-5)


def test_amd_direct_loads_land_at_the_wait() -> None:
    body = (
        AMD_TID + "%w = lshr i32 %tid, 6\n%w0 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %w)\n%o = shl i32 %w0, 6\n"
    )
    body += pointer("s", "i32", "%o", "@lds", P3) + pointer("g", "i32", "%tid", "%in")
    body += f"call void @llvm.amdgcn.global.load.lds({P1} %g, {P3} %s, i32 4, i32 0, i32 0)\n"
    body += "call void @llvm.amdgcn.s.waitcnt(i32 3952)\n" + AMD_BARRIER + "%other = xor i32 %tid, 127\n"
    body += pointer("r", "i32", "%other", "@lds", P3) + pointer("q", "i32", "%tid", "%out")
    body += f"%v = load i32, {P3} %r\nstore i32 %v, {P1} %q\nret void"
    text = kernel(f"{P1} %in, {P1} %out", body, amd=True, before=LDS)
    data, out = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    launch(text, (1, 1, 1), 128, [data, out], warp_size=64)
    assert (out == data[::-1]).all()
    for bad in (text.replace("i32 3952", "i32 3953"), text.replace(AMD_BARRIER, "")):
        with pytest.raises(EmulatorError, match="nobody wrote|Race"):
            launch(bad, (1, 1, 1), 128, [data, out], warp_size=64)


# -- speed
def test_a_large_tile_is_fast(rng: np.random.Generator) -> None:
    """128x128x64 with mma.sync on four warps: 128 instructions per warp from registers, once, after compiling."""
    struct = "{ float, float, float, float }"
    text = (
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
    )
    body = TID + load_words("a", 4) + load_words("b", 2)
    args = ", ".join(f"i32 %{n}" for n in ("a0", "a1", "a2", "a3", "b0", "b1"))
    acc = ["0.0"] * 4
    for step in range(128):
        floats = ", ".join(f"float {v}" for v in acc)
        body += f'%r{step} = call {struct} asm "{text}", "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3"({args}, {floats})\n'
        acc = [f"%r{step}_{i}" for i in range(4)]
        body += "".join(f"{v} = extractvalue {struct} %r{step}, {i}\n" for i, v in enumerate(acc))
    module = kernel(f"{P1} %a, {P1} %b, {P1} %d", body + store_floats(acc) + "ret void")
    words = [rng.integers(0, 1 << 14, (128, n)).astype(np.uint32) for n in (4, 2)]
    d = np.zeros((128, 4), np.float32)
    launch(module, (1, 1, 1), 128, [*words, d])
    start = time.perf_counter()
    launch(module, (1, 1, 1), 128, [*words, d])
    assert time.perf_counter() - start < 1


def test_large_integers_round_once() -> None:
    """Values next to a tie of a narrow float, further down than float64 reaches."""
    import ml_dtypes

    from tlxc.emulator.numerics import from_integer

    tie, step = 2**63 + 2**55, 2**56
    values = np.array([tie - 1, tie, tie + 1, tie + step - 1, tie + step, tie + step + 1], np.uint64)
    found = from_integer(values, np.dtype(ml_dtypes.bfloat16)).astype(np.float64)
    assert [int(x) - 2**63 for x in found] == [0, 0, step, step, 2 * step, 2 * step]
