"""Target descriptions: the limits are the vendors', and every feature and matrix shape is accepted by the vendor's
assembler (NVIDIA) or by LLVM (AMD) exactly where the tables say so."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tlxc.targets import MmaShape, Target, TargetError, all_targets, get_target
from tlxc.targets.target import FEATURES

NVIDIA = [target for target in all_targets() if target.vendor == "nvidia"]
AMD = [target for target in all_targets() if target.vendor == "amd"]


def names(targets: list[Target]) -> list[str]:
    return [target.name for target in targets]


def test_known_targets() -> None:
    assert names(list(all_targets())) == ["sm_90", "sm_100", "sm_103", "sm_120", "gfx942", "gfx950", "gfx1250"]
    assert all(get_target(target.name) is target for target in all_targets())
    assert get_target("sm_90a") is get_target("sm_90")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("sm_80", " Did you mean sm_90?"), ("gfx94", " Did you mean gfx942?"), ("sm_121", " Did you mean sm_120?"),
     ("SM-100", " Did you mean sm_100?"), ("h100", ""), ("", "")],
)  # fmt: skip
def test_unknown_target(name: str, hint: str) -> None:
    with pytest.raises(TargetError) as error:
        get_target(name)
    known = "Known targets: sm_90, sm_100, sm_103, sm_120, gfx942, gfx950, gfx1250."
    assert str(error.value).startswith(f"Unknown target {name!r}.{hint[:-1]}")
    assert str(error.value).endswith(known)


def test_every_feature_is_explained_and_used() -> None:
    assert set(FEATURES) == set().union(*(target.features for target in all_targets()))


# warp size, static and opt-in shared memory, shared memory of an SM, registers of an SM and of a thread
LIMITS = {
    "sm_90": (32, 49152, 232448, 233472, 65536, 255),
    "sm_100": (32, 49152, 232448, 233472, 65536, 255),
    "sm_103": (32, 49152, 232448, 233472, 65536, 255),
    "sm_120": (32, 49152, 101376, 102400, 65536, 255),
    "gfx942": (64, 65536, 65536, 65536, 131072, 512),
    "gfx950": (64, 163840, 163840, 163840, 131072, 512),
    "gfx1250": (32, 327680, 327680, 327680, 131072, 1024),
}


@pytest.mark.parametrize("target", all_targets(), ids=lambda target: target.name)
def test_limits(target: Target) -> None:
    found = (target.warp_size, target.static_shared, target.max_shared, target.shared_per_sm, target.registers_per_sm,
             target.max_registers)  # fmt: skip
    assert found == LIMITS[target.name]
    assert target.max_threads == 1024
    assert (target.max_cluster > 1) == ("cluster" in target.features)
    assert (target.tensor_memory_columns > 0) == ("tcgen05" in target.features)
    assert len(set(target.mma)) == len(target.mma)
    assert {shape.op for shape in target.mma} == set(target.features) & {
        "mma.sync", "wgmma", "tcgen05", "mfma", "mfma.scale", "wmma", "wmma.scale"}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "best"),
    [("sm_90", ("wgmma", 64, 16)), ("sm_100", ("tcgen05", 256, 16)), ("sm_120", ("mma.sync", 16, 16)),
     ("gfx942", ("mfma", 32, 8)), ("gfx950", ("mfma", 32, 16)), ("gfx1250", ("wmma", 16, 32))],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_preferred_shape(name: str, best: tuple[str, int, int], dtype: str) -> None:
    shape = get_target(name).mma_shapes(dtype, dtype, "f32")[0]
    assert (shape.op, shape.m, shape.k) == best


# ---------------------------------------------------------------------------------------------------------------------
# NVIDIA: ptxas decides

_PTX_TYPES = {"e4m3fn": "e4m3", "i8": "s8", "i32": "s32", "u8": "u8"}
_BITS = {"f64": 64, "f32": 32, "tf32": 32, "i32": 32, "f16": 16, "bf16": 16}
_TMA = "cp.async.bulk.tensor.2d.shared::cluster.global"
_TMA_BYTES = "mbarrier::complete_tx::bytes"

FEATURE_PTX = {
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%r4];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r0, %r1, %r2, %r3};",
    "cp.async": "cp.async.cg.shared.global [%r0], [%d0], 16;",
    "bulk": f"cp.async.bulk.shared::cluster.global.{_TMA_BYTES} [%r0], [%d0], %r1, [%r2];",
    "tma": f"{_TMA}.tile.{_TMA_BYTES} [%r0], [%d0, {{%r1, %r2}}], [%r3];",
    "tma.multicast": f"{_TMA}.tile.{_TMA_BYTES}.multicast::cluster [%r0], [%d0, {{%r1, %r2}}], [%r3], %h0;",
    "tma.gather4": f"{_TMA}.tile::gather4.{_TMA_BYTES} [%r0], [%d0, {{%r1, %r2, %r3, %r4, %r5}}], [%r6];",
    "tma.2cta": f"{_TMA}.tile.{_TMA_BYTES}.cta_group::2 [%r0], [%d0, {{%r1, %r2}}], [%r3];",
    "wgmma": "wgmma.fence.sync.aligned;",
    "setmaxnreg": "setmaxnreg.inc.sync.aligned.u32 160;",
    "elect": "elect.sync _|%p0, -1;",
    "griddepcontrol": "griddepcontrol.wait;",
    "redux": "redux.sync.add.s32 %r0, %r1, -1;",
    "redux.f32": "redux.sync.max.f32 %f0, %f1, -1;",
    "f32x2": "fma.rn.f32x2 %d0, %d1, %d2, %d3;",
    "max3": "max.f32 %f0, %f1, %f2, %f3;",
    "cvt.rs": "cvt.rs.bf16x2.f32 %r0, %f0, %f1, %r1;",
    "tcgen05": "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 32;",
    "tcgen05.ld.red": "tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32 {%f0, %f1}, %f2, [%r0];",
    "clc": "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r0], [%r1];",
    "mbarrier": "mbarrier.arrive.expect_tx.shared.b64 %d0, [%r0], %r1;",
    "cluster": "barrier.cluster.arrive.aligned;",
    "fp8": "cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1;",
}


def _registers(dtype: str, elements: int) -> str:
    """A vector operand that holds `elements` values per thread."""
    if dtype == "f64":
        return "{" + ", ".join(f"%g{i}" for i in range(elements)) + "}"
    kind = "%f" if dtype == "f32" else "%r"
    return "{" + ", ".join(f"{kind}{i}" for i in range(max(1, elements * _BITS.get(dtype, 8) // 32))) + "}"


def _mma_ptx(shape: MmaShape, n: int) -> str:
    acc, a, b = (_PTX_TYPES.get(dtype, dtype) for dtype in (shape.acc, shape.a, shape.b))
    name = f"m{shape.m}n{n}k{shape.k}"
    if shape.op == "mma.sync":
        ab = ", ".join(_registers(dtype, rows * shape.k // 32) for dtype, rows in ((shape.a, shape.m), (shape.b, n)))
        d = _registers(shape.acc, shape.m * n // 32)
        return f"mma.sync.aligned.{name}.row.col.{acc}.{a}.{b}.{acc} {d}, {ab}, {d};"
    scales = {"f16": ", 1, 1, 0, 0", "bf16": ", 1, 1, 0, 0", "s8": "", "u8": ""}.get(a, ", 1, 1")
    d = _registers(shape.acc, shape.m * n // 128)
    return f"wgmma.mma_async.sync.aligned.{name}.{acc}.{a}.{b} {d}, %d0, %d1, %p0{scales};"


@pytest.fixture(scope="module")
def ptxas() -> str:
    nvidia = importlib.util.find_spec("nvidia")
    folders = (nvidia.submodule_search_locations if nvidia else None) or ()
    wheels = [str(Path(folder, "cuda_nvcc/bin/ptxas")) for folder in folders]
    found = next((path for path in [os.environ.get("TLXC_PTXAS", ""), *wheels, "ptxas"] if shutil.which(path)), None)
    if found is None:
        pytest.skip("no ptxas on this platform")
    return found


def _assemble(ptxas: str, target: Target, instructions: list[str], folder: Path) -> str:
    """What ptxas complains about; empty if it takes the instructions, each in a kernel of its own."""
    version = target.llvm_features.removeprefix("+ptx")
    source = folder / "probe.ptx"
    source.write_text(f".version {version[0]}.{version[1]}\n.target {target.ptxas_arch}\n.address_size 64\n" + "".join(
        f".visible .entry probe{i}() .maxntid 128, 1, 1 {{\n.reg .b16 %h<4>; .reg .b32 %r<130>; .reg .b64 %d<4>;\n"
        f".reg .f32 %f<130>; .reg .f64 %g<4>; .reg .pred %p<2>;\n{instruction}\nret;\n}}\n"
        for i, instruction in enumerate(instructions)))  # fmt: skip
    done = subprocess.run([ptxas, "-O0", "-arch", target.ptxas_arch, str(source), "-o", str(folder / "probe.cubin")],
                          capture_output=True, text=True)  # fmt: skip
    return done.stderr if done.returncode else ""


def test_every_nvidia_feature_has_a_probe() -> None:
    assert set(FEATURE_PTX) | {"mma.sync"} == set().union(*(target.features for target in NVIDIA))


@pytest.mark.parametrize("target", NVIDIA, ids=names(NVIDIA))
def test_ptxas_agrees_on_features(target: Target, ptxas: str, tmp_path: Path) -> None:
    accepted = {name for name, ptx in FEATURE_PTX.items() if not _assemble(ptxas, target, [ptx], tmp_path)}
    assert accepted == target.features - {"mma.sync"}


@pytest.mark.parametrize("target", NVIDIA, ids=names(NVIDIA))
def test_ptxas_takes_every_matrix_shape(target: Target, ptxas: str, tmp_path: Path) -> None:
    # tcgen05 encodes its shape in a run-time descriptor, which ptxas cannot check.
    shapes = [shape for shape in target.mma if shape.op != "tcgen05"]
    ends = [(shape, n) for shape in shapes for n in {shape.n[0], shape.n[-1]}]
    assert not _assemble(ptxas, target, [_mma_ptx(shape, n) for shape, n in ends], tmp_path)


def test_ptxas_takes_every_wgmma_width(ptxas: str, tmp_path: Path) -> None:
    target = get_target("sm_90")
    for shape in (target.mma_shapes("f16", "f16", "f32")[0], target.mma_shapes("i8", "i8", "i32")[0]):
        assert not _assemble(ptxas, target, [_mma_ptx(shape, n) for n in shape.n], tmp_path)
        for n in set(range(8, 265, 8)) - set(shape.n):
            assert _assemble(ptxas, target, [_mma_ptx(shape, n)], tmp_path)


# ---------------------------------------------------------------------------------------------------------------------
# AMD: LLVM decides. It ends the process on an intrinsic that a target lacks, so every probe runs in a forked child.

_PROBE = r"""
import json, os, sys
import llvmlite.binding as llvm
llvm.initialize_all_targets(); llvm.initialize_all_asmprinters()

def assembly(triple, cpu, features, source):
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=1)
    module = llvm.parse_assembly(f'target triple = "{triple}"\n' + source)
    module.verify()
    return machine.emit_assembly(module)

os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
results = []
for case in json.load(sys.stdin):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, b"+" if case[-1] in assembly(*case[:-1]) else b"-")
        os._exit(0)
    os.close(writer)
    results.append(os.read(reader, 1) == b"+")
    os.close(reader)
    os.wait()
json.dump(results, sys.stdout)
"""


def _llvm_emits(cases: list[tuple[Target, str, str]]) -> list[bool]:
    """For each (target, IR, mnemonic): LLVM compiles the IR and the mnemonic is in the assembly."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    jobs = [(target.triple, target.cpu, target.llvm_features, source, mnemonic) for target, source, mnemonic in cases]
    command = [sys.executable, "-c", _PROBE]
    done = subprocess.run(command, input=json.dumps(jobs), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def _kernel(body: str) -> str:
    """A kernel of `body` with values %in, %out, %x and an LDS array @lds; declarations follow from the calls."""
    declarations = {
        f"declare {result} @{name}({', '.join(argument.rsplit(' ', 1)[0] for argument in arguments.split(', '))})"
        for result, name, arguments in re.findall(r"call (.+?) @(llvm[\w.]+)\((.*)\)", body)
    }
    return "\n".join([
        "@lds = internal addrspace(3) global [1024 x i32] poison, align 16", *sorted(declarations),
        "define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out, i32 %x) {", body, "ret void", "}",
    ])  # fmt: skip


_FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "tf32": "float", "f64": "double"}
_AMD_FP8 = {"e4m3fn": "fp8", "e5m2": "bf8", "e4m3fnuz": "fp8", "e5m2fnuz": "bf8"}
# Format code, and 32-bit words that 32 elements take.
_SCALE_FORMATS = {"e4m3fn": (0, 8), "e5m2": (1, 8), "e2m3fn": (2, 6), "e3m2fn": (3, 6), "e2m1fn": (4, 4)}


def _vector(element: str, count: int) -> str:
    return element if count == 1 else f"<{count} x {element}>"


def _mangle(type_: str) -> str:
    """The suffix that an overloaded intrinsic carries for a vector type."""
    count, element = type_.strip("<>").split(" x ")
    return f"v{count}" + {"float": "f32", "half": "f16", "bfloat": "bf16", "i32": "i32"}[element]


def _matrix_kernel(intrinsic: str, a: str, b: str, acc: str, arguments: str) -> str:
    loads = [f"%{name} = load {type_}, ptr addrspace(1) %in" for name, type_ in (("a", a), ("b", b), ("c", acc))]
    call = f"%r = call {acc} @{intrinsic}({arguments})"
    return _kernel("\n".join([*loads, call, f"store {acc} %r, ptr addrspace(1) %out"]))


def _mfma(shape: MmaShape) -> tuple[str, str]:
    """IR with one MFMA, and its mnemonic."""
    name, per_lane = f"{shape.m}x{shape.n[0]}x{shape.k}", shape.m * shape.k // 64
    acc = _vector({"f32": "float", "i32": "i32", "f64": "double"}[shape.acc], shape.m * shape.m // 64)
    if shape.a in _AMD_FP8:
        a, suffix = "i64", f".{_AMD_FP8[shape.a]}.{_AMD_FP8[shape.b]}"
    elif shape.a == "i8":
        a, suffix = {8: "i64", 16: "<4 x i32>"}[per_lane], ".i8"
    elif shape.a == "tf32":
        a, suffix = _vector("float", per_lane), ".xf32"
    elif shape.a == "bf16" and per_lane == 4:
        a, suffix = "<4 x i16>", "bf16.1k"
    else:
        a, suffix = _vector(_FLOATS[shape.a], per_lane), ("." if per_lane == 8 else "") + shape.a
    mnemonic = f"v_mfma_{shape.acc}_{name}_" + suffix.strip(".").replace(".1k", "").replace(".", "_")
    arguments = f"{a} %a, {a} %b, {acc} %c, i32 0, i32 0, i32 0"
    return _matrix_kernel(f"llvm.amdgcn.mfma.{shape.acc}.{name}{suffix}", a, a, acc, arguments), mnemonic


def _wmma(shape: MmaShape) -> tuple[str, str]:
    """IR with one WMMA, and its mnemonic."""
    name, per_lane = f"{shape.m}x{shape.n[0]}x{shape.k}", shape.m * shape.k // 32
    acc = "<8 x float>" if shape.acc == "f32" else "<8 x i32>"
    if shape.a in _AMD_FP8:
        kind, a = f"{_AMD_FP8[shape.a]}.{_AMD_FP8[shape.b]}", _vector("i32", per_lane // 4)
        arguments = f"{a} %a, {a} %b, i16 0, {acc} %c, i1 false, i1 false"
    elif shape.acc == "i32":
        kind, a, signed = "iu8", "<8 x i32>", "true" if shape.a == "i8" else "false"
        arguments = f"i1 {signed}, {a} %a, i1 {signed}, {a} %b, {acc} %c, i1 false, i1 false"
    else:
        kind, a = shape.a, _vector(_FLOATS[shape.a], per_lane)
        arguments = f"i1 false, {a} %a, i1 false, {a} %b, i16 0, {acc} %c, i1 false, i1 false"
    intrinsic = f"llvm.amdgcn.wmma.{shape.acc}.{name}.{kind}.{_mangle(acc)}.{_mangle(a)}"
    return _matrix_kernel(intrinsic, a, a, acc, arguments), f"v_wmma_{shape.acc}_{name}_{kind.replace('.', '_')}"


def _scaled(shape: MmaShape) -> tuple[str, str]:
    """IR with one block-scaled MFMA or WMMA, and its mnemonic."""
    (code_a, words_a), (code_b, words_b) = _SCALE_FORMATS[shape.a], _SCALE_FORMATS[shape.b]
    name, lanes = f"{shape.m}x{shape.n[0]}x{shape.k}", 64 if shape.op == "mfma.scale" else 32
    blocks = shape.m * shape.k // lanes // 32
    a, b = f"<{blocks * words_a} x i32>", f"<{blocks * words_b} x i32>"
    acc = _vector("float", shape.m * shape.m // lanes)
    if shape.op == "mfma.scale":
        types = f"{_mangle(a)}.{_mangle(b)}"
        arguments = f"{a} %a, {b} %b, {acc} %c, i32 {code_a}, i32 {code_b}, i32 0, i32 %x, i32 0, i32 %x"
    else:
        types = f"{_mangle(acc)}.{_mangle(a)}.{_mangle(b)}"
        scale = "i32 0, i32 0, i32 %x"
        arguments = f"i32 {code_a}, {a} %a, i32 {code_b}, {b} %b, i16 0, {acc} %c, {scale}, {scale}, i1 false, i1 false"
    op = shape.op.split(".")[0]
    intrinsic = f"llvm.amdgcn.{op}.scale.f32.{name}.f8f6f4.{types}"
    return _matrix_kernel(intrinsic, a, b, acc, arguments), f"v_{op}_scale_f32_{name}_f8f6f4"


_PROBES = {"mfma": _mfma, "wmma": _wmma, "mfma.scale": _scaled, "wmma.scale": _scaled}


@pytest.mark.parametrize("target", AMD, ids=names(AMD))
def test_llvm_selects_every_matrix_shape(target: Target) -> None:
    cases = [(target, *_PROBES[shape.op](shape)) for shape in target.mma]
    assert not [shape for shape, emitted in zip(target.mma, _llvm_emits(cases)) if not emitted]


def _lds_load(intrinsic: str, type_: str) -> str:
    call = f"%v = call {type_} @llvm.amdgcn.{intrinsic}(ptr addrspace(3) @lds)"
    return _kernel(f"{call}\nstore {type_} %v, ptr addrspace(1) %out")


def _direct_to_lds(width: int) -> str:
    return _kernel("call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %in, ptr addrspace(3) @lds, "
                   f"i32 {width}, i32 0, i32 0)")  # fmt: skip


def _swap(lanes: int) -> str:
    return _kernel(f"%r = call {{i32, i32}} @llvm.amdgcn.permlane{lanes}.swap(i32 %x, i32 %x, i1 false, i1 false)\n"
                   "%a = extractvalue {i32, i32} %r, 0\nstore i32 %a, ptr addrspace(1) %out")  # fmt: skip


# Probes for a feature (IR, mnemonic that proves it); it is there where one of them is selected.
FEATURE_LLVM: dict[str, list[tuple[str, str]]] = {
    "buffer.atomic.bf16": [(_kernel(
        "%b = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %in, i16 0, i64 64, i32 0)\n"
        "%v = load <2 x bfloat>, ptr addrspace(1) %out\n%r = call <2 x bfloat> @llvm.amdgcn.raw.ptr.buffer.atomic.fadd."
        "v2bf16(<2 x bfloat> %v, ptr addrspace(8) %b, i32 0, i32 0, i32 0)"), "buffer_atomic_pk_add_bf16")],
    "lds.dma": [(_direct_to_lds(4), "global_load_lds_dword")],
    "lds.dma.b128": [(_direct_to_lds(16), "global_load_lds_dwordx4")],
    "lds.async": [(_kernel("call void @llvm.amdgcn.global.load.async.to.lds.b128(ptr addrspace(1) %in, "
                           "ptr addrspace(3) @lds, i32 0, i32 0)"), "global_load_async_to_lds_b128")],
    "lds.transpose": [(_lds_load("ds.read.tr16.b64.v4f16", "<4 x half>"), "ds_read_b64_tr_b16"),
                      (_lds_load("ds.load.tr16.b128.v8f16", "<8 x half>"), "ds_load_tr16_b128")],
    "tdm": [(_kernel("%d = load <4 x i32>, ptr addrspace(1) %in\n%e = load <8 x i32>, ptr addrspace(1) %in\n"
                     "call void @llvm.amdgcn.tensor.load.to.lds.d2(<4 x i32> %d, <8 x i32> %e, i32 0)"),
             "tensor_load_to_lds")],
    "permlane16.swap": [(_swap(16), "v_permlane16_swap")],
    "permlane32.swap": [(_swap(32), "v_permlane32_swap")],
    "dpp.row_bcast": [(_kernel("%r = call i32 @llvm.amdgcn.update.dpp.i32(i32 %x, i32 %x, i32 322, i32 15, i32 15, "
                               "i1 false)\nstore i32 %r, ptr addrspace(1) %out"), "row_bcast:15")],
    "named_barrier": [('@bar = internal addrspace(3) global target("amdgcn.named.barrier", 0) poison\n' + _kernel(
        "call void @llvm.amdgcn.s.barrier.init(ptr addrspace(3) @bar, i32 4)"), "s_barrier_init")],
    "mbarrier": [(_kernel("%r = call i64 @llvm.amdgcn.ds.atomic.barrier.arrive.rtn.b64(ptr addrspace(3) @lds, i64 1)"),
                  "ds_atomic_barrier_arrive_rtn_b64")],
    "cluster": [(_kernel("call void @llvm.amdgcn.s.cluster.barrier()"), "s_barrier_signal")],
    "cvt.bf16": [(_kernel("%v = load <2 x float>, ptr addrspace(1) %in\n%r = fptrunc <2 x float> %v to <2 x bfloat>\n"
                          "store <2 x bfloat> %r, ptr addrspace(1) %out"), "v_cvt_pk_bf16_f32")],
    "split_waitcnt": [(_kernel("call void @llvm.amdgcn.s.wait.dscnt(i16 0)"), "s_wait_dscnt")],
}  # fmt: skip
_BY_SHAPE = {"mfma", "mfma.scale", "wmma", "wmma.scale"}


def test_every_amd_feature_has_a_probe() -> None:
    assert set(FEATURE_LLVM) | _BY_SHAPE | {"fp8", "fp8.fnuz"} == set().union(*(target.features for target in AMD))
    for feature, dtype in (("fp8", "e4m3fn"), ("fp8.fnuz", "e4m3fnuz")):
        for target in AMD:
            assert (feature in target.features) == any(shape.a == dtype for shape in target.mma)


@pytest.mark.parametrize("target", AMD, ids=names(AMD))
def test_llvm_agrees_on_features(target: Target) -> None:
    probes = [(name, *probe) for name, alternatives in FEATURE_LLVM.items() for probe in alternatives]
    emitted = _llvm_emits([(target, source, mnemonic) for _, source, mnemonic in probes])
    selected = {name for (name, _, _), there in zip(probes, emitted) if there}
    assert selected == target.features - _BY_SHAPE - {"fp8", "fp8.fnuz"}


@pytest.mark.parametrize("target", AMD, ids=names(AMD))
def test_llvm_agrees_on_lds_size(target: Target) -> None:
    def pool(size: int) -> str:
        body = ("%p = getelementptr i8, ptr addrspace(3) @pool, i32 %x\nstore i8 1, ptr addrspace(3) %p\n"
                "%v = load i8, ptr addrspace(3) @pool\nstore i8 %v, ptr addrspace(1) %out")  # fmt: skip
        return f"@pool = internal addrspace(3) global [{size} x i8] poison, align 16\n" + _kernel(body)

    assert _llvm_emits([(target, pool(target.max_shared), "s_endpgm"),
                        (target, pool(target.max_shared + 4), "s_endpgm")]) == [True, False]  # fmt: skip


@pytest.mark.parametrize("target", NVIDIA, ids=names(NVIDIA))
def test_llvm_and_ptxas_know_the_target(target: Target, ptxas: str, tmp_path: Path) -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(f'target triple = "{target.triple}"\ndefine ptx_kernel void @k() {{ ret void }}')
    backend = llvm.Target.from_triple(target.triple)
    machine = backend.create_target_machine(cpu=target.cpu, features=target.llvm_features)
    source = tmp_path / "k.ptx"
    source.write_text(machine.emit_assembly(module))
    assert f".target {target.ptxas_arch}" in source.read_text()
    subprocess.run([ptxas, "-arch", target.ptxas_arch, str(source), "-o", str(tmp_path / "k.cubin")], check=True)
