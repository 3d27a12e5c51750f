"""Buffers, barriers, copies, asynchronous dots, clusters and tasks: final tile IR to PTX that the assembler takes.

Every case is a body as the passes leave it, with layouts and offsets, and the instruction that its PTX must hold.
"""

from __future__ import annotations

import re

import pytest

import tlxc.ir.ops  # noqa: F401  (fills the table)
from tlxc.codegen.backend import emit
from tlxc.codegen.generate import NEEDS, check_supported, generate
from tlxc.codegen.nvptx.assemble import assemble
from tlxc.errors import CompileError, Location
from tlxc.ir.core import Module
from tlxc.ir.layout import blocked
from tlxc.ir.memory import row_major, swizzled
from tlxc.ir.parser import parse_module
from tlxc.ir.table import OPS
from tlxc.ir.verifier import verify
from tlxc.targets import get_target
from tlxc.targets.fragments import wgmma_a, wgmma_acc

FAMILIES = ("buffer", "barrier", "tma", "cluster")
# New in families of register tiles
NEW_ELSEWHERE = {"async_dot", "async_dot_wait", "async_tasks", "thread_id", "clock64", "vote", "warp_vote", "prefetch"}
# Covered with register tiles elsewhere; `buffer_overlap` ends in a pass.
ELSEWHERE = {"barrier", "fence_async_shared", "buffer_overlap"}

SWIZZLED = swizzled((64, 64), 2, 128)
ALIASES = f"""
#0 = {blocked((64, 64), (1, 0), 8)}
#1 = memory {SWIZZLED}
#2 = memory {SWIZZLED.transpose((1, 0))}
#3 = memory {row_major((512,))}
#4 = {blocked((512,), (0,), 4)}
#5 = {wgmma_acc(64, 64)}
#6 = {wgmma_a(64, 64)}
#7 = memory {row_major((256,))}
#8 = {blocked((256,), (0,), 4)}
#9 = memory {swizzled((32, 64), 2, 128)}
#10 = {blocked((32, 64), (1, 0), 8)}
#11 = memory {row_major((128,))}
"""
PARAMS = (
    "%desc: desc<64x64xf16, #1>, %p: ptr<f16> align 16, %q: ptr<f32> align 16, %u: ptr<i32> align 16, "
    "%w: ptr<i64> align 16, %n: i32, %yes: i1, %f: f32, %h: f16"
)
SETUP = """
%a = local_alloc {offset = 0} : buffer<64x64xf16, smem, #1>
%as = local_alloc {offset = 8192} : buffer<2 * 64x64xf16, smem, #1>
%row = local_alloc {offset = 24576} : buffer<512xf16, smem, #3>
%bars = alloc_barriers {arrive_count = 3, offset = 25600} : barrier<2>
%each = alloc_barriers {arrive_count = 128, offset = 25616} : barrier<1, warp>
%zero = constant {value = 0} : i32
%id = constant {value = 9} : i32
%bar = barrier_view %bars, %n : barrier
%mine = barrier_view %each, %zero : barrier<warp>
%tile = splat %h : tensor<64x64xf16, #0>
%line = splat %h : tensor<512xf16, #4>
%index = splat %n : tensor<64x64xi32, #0>
%c = splat %f : tensor<64x64xf32, #5>
%some = splat %yes : tensor<512xi1, #4>
%base = splat %p : tensor<512xptr<f16>, #4>
%along = arange {start = 0, end = 512} : tensor<512xi32, #4>
%places = addptr %base, %along : tensor<512xptr<f16>, #4>
"""
STORE = "\n%to = splat %p : tensor<64x64xptr<f16>, #0>\nstore %to, %r, _"
STORE_NUMBER = "\n%to = splat %u : tensor<512xptr<i32>, #4>\n%all = splat %r : tensor<512xi32, #4>\nstore %to, %all, _"
STORE_SUM = "\n%to = splat %q : tensor<64x64xptr<f32>, #5>\nstore %to, %r, _"
PRODUCT = "%0 = async_dot %a, %a, %c, _ : tensor<64x64xf32, #5>\n"
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
TASKS = """async_tasks {num_warps = (4, 1, 4), start_warp = (0, 4, 8), num_regs = (0, 0, 0), replica = (0, 0, 0)} {
  barrier
} {
  barrier_wait %bar, %n, _
} {
  named_barrier_wait %id {threads = 128}
  barrier
}"""
GROUP_TASKS = """async_tasks {num_warps = (4, 8), start_warp = (0, 4), num_regs = (40, 232), replica = (0, 0)} {
  barrier
} {
  barrier
}"""

MADE = """%slots = descriptor_slots {count = 2, offset = 128} : ptr<u8>
%slot = descriptor_slot %slots, %n : ptr<u8>
%view = descriptor_view %slot : desc<64x64xf16, #1>
%map = local_alloc {offset = 25728} : buffer<128xu8, smem, #11>
%pitch = cast %n : i64
encode_descriptor %view, %map, %p, %n, %zero, %pitch {padding = "nan"}
%made = acquire_descriptor %view : desc<64x64xf16, #1>
tma_load %made, %a, %bar, _, _, %n, %zero"""
# Of a map of rank 2 with a swizzle of 128 bytes.  The rank counts from 0, dimensions from the innermost, strides bytes.
FIELDS = (
    ("global_address", r"b64 \[%r\d+\], %rd\d+"), ("rank", r"b32 \[%r\d+\], 1"),
    *((name, rf"b32 \[%r\d+\], {d}, %r\d+") for name in ("box_dim", "global_dim", "element_stride") for d in (0, 1)),
    ("global_stride", r"b64 \[%r\d+\], 0, %rd\d+"), ("elemtype", r"b32 \[%r\d+\], 6"),
    ("interleave_layout", r"b32 \[%r\d+\], 0"), ("swizzle_mode", r"b32 \[%r\d+\], 3"),
    ("fill_mode", r"b32 \[%r\d+\], 1"),
)  # fmt: skip

# Kind -> (body, regular expression that its PTX holds)
CASES: dict[str, list[tuple[str, str]]] = {
    "local_alloc": [("local_store %row, %line", r"\.extern \.shared \.align 1024 \.b8 smem\[\]")],
    "local_store": [
        ("local_store %a, %tile", r"st\.shared\.v4\.b32"),
        ("local_store %row, %line", r"st\.shared\.(b64|v2\.b32)"),
    ],
    "local_load": [("%r = local_load %a : tensor<64x64xf16, #0>" + STORE, r"ld\.shared\.v4\.b32")],
    "local_view": [("%v = local_view %as, %n : buffer<64x64xf16, smem, #1>\nlocal_store %v, %tile",
                    r"shl\.b32 \s*%r\d+, %r\d+, 13|mul\S+ \s*%r\d+, %r\d+, 8192|mad\S+ [^;]*8192")],
    "local_trans": [("%t = local_trans %a {order = (1, 0)} : buffer<64x64xf16, smem, #2>\n"
                     "%r = local_load %t : tensor<64x64xf16, #0>" + STORE, r"ld\.shared\.[bu]16|ldmatrix\S*\.trans")],
    "local_slice": [("%s = local_slice %a {offsets = (32, 0)} : buffer<32x64xf16, smem, #9>\n"
                     "%v = splat %h : tensor<32x64xf16, #10>\nlocal_store %s, %v", r"\b4096\b")],
    "local_reinterpret": [("%s = local_reinterpret %row : buffer<256xf32, smem, #7>\n"
                           "%v = splat %f : tensor<256xf32, #8>\nlocal_store %s, %v", r"st\.shared\.v[24]\.b")],
    "local_gather": [("%r = local_gather %a, %index {axis = 0} : tensor<64x64xf16, #0>" + STORE,
                      r"ld\.shared\.[bu]16")],
    "local_scatter": [("local_scatter %a, %tile, %index {axis = 1}", r"st\.shared\.[bu]16")],
    "grid_dependency": [('grid_dependency {action = "wait"}', r"griddepcontrol\.wait;"),
                        ('grid_dependency {action = "launch_dependents"}', r"griddepcontrol\.launch_dependents;")],
    "fence": [('fence {scope = "gpu"}', r"fence\.acq_rel\.gpu;"), ('fence {scope = "sys"}', r"fence\.acq_rel\.sys;")],
    "alloc_barriers": [("", r"mbarrier\.init\.shared::cta\.b64 \[%r\d+\], 3;"),
                       ("", r"mbarrier\.init\.shared::cta\.b64 \[%r\d+\], 128;")],
    "barrier_view": [("barrier_arrive %bar, _, _ {count = 1}", r"shl\.b32 \s*%r\d+, %r\d+, 3|mad\S+ [^;]*, 8,")],
    "barrier_wait": [("barrier_wait %bar, %n, _", r"mbarrier\.try_wait\.parity\.shared::cta\.b64"),
                     ("barrier_wait %bar, %n, %yes", r"setp\.eq\.b32 done, %r\d+, 0;")],
    "barrier_arrive": [
        ("barrier_arrive %bar, _, _ {count = 1}", r"bar\.sync[^@]*@p mbarrier\.arrive\.shared::cta\.b64 _, \[%r\d+\];"),
        ("barrier_arrive %bar, %yes, _ {count = 2, synced = true}",
         r"@p mbarrier\.arrive\.shared::cta\.b64 _, \[%r\d+\], 2;"),
        ("barrier_arrive %mine, _, _ {count = 1}", r"(?m)^\s*mbarrier\.arrive\.shared::cta\.b64 _, \[%r\d+\];"),
        ("barrier_arrive %bar, _, %n {count = 1}",
         r"mapa\.shared::cluster[^@]*@p mbarrier\.arrive\.shared::cluster\.b64"),
    ],
    "barrier_expect": [("barrier_expect %bar, _ {bytes = 8192}",
                        r"@p mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, \[%r\d+\], 8192;")],
    "named_barrier_wait": [("named_barrier_wait %id {threads = 256}", r"bar\.sync 9, 256;"),
                           ("named_barrier_wait %n {threads = 256}", r"bar\.sync %r\d+, 256;")],
    "named_barrier_arrive": [("named_barrier_arrive %id {threads = 256}", r"bar\.arrive 9, 256;")],
    "tma_load": [
        ("tma_load %desc, %a, %bar, _, _, %n, %zero", re.escape(LOAD) + r" \[%r\d+\], \[%rd\d+, \{"),
        ("tma_load %desc, %a, %bar, %yes, %n, %n, %n", re.escape(LOAD) + r"\.multicast::cluster "),
        ('tma_load %desc, %a, %bar, _, _, %n, %n {eviction = "evict_first"}', re.escape(LOAD) + r"\.L2::cache_hint "),
    ],
    "tma_store": [
        ("tma_store %desc, %a, %n, %n", r"cp\.async\.bulk\.tensor\.2d\.global\.shared::cta\.tile\.bulk_group[^@]*@p "
                                        r"cp\.async\.bulk\.commit_group;"),
        ('tma_store %desc, %a, %n, %n {reduce = "add"}',
         r"cp\.reduce\.async\.bulk\.tensor\.2d\.global\.shared::cta\.add"),
    ],
    "tma_store_wait": [("tma_store_wait {pendings = 1, read = true}", r"cp\.async\.bulk\.wait_group\.read 1;"),
                       ("tma_store_wait {pendings = 0, read = false}", r"cp\.async\.bulk\.wait_group 0;")],
    "tma_prefetch": [("tma_prefetch %desc, %yes, %n, %n", r"cp\.async\.bulk\.prefetch\.tensor\.2d\.L2\.global\.tile")],
    "prefetch_descriptor": [("prefetch_descriptor %desc", r"prefetch\.tensormap \[%rd\d+\];")],
    "descriptor_slots": [(MADE, r"(?s)ld\.param\.b64 \s*%rd\d+, \[k_param_9\].*mul\.lo\.s64 [^;]*, 384;")],
    "descriptor_slot": [(MADE, r"shl\.b32 \s*%r\d+, %r\d+, 7;|mul\S+ [^;]*128;|mad\S+ [^;]*128,")],
    "descriptor_view": [(MADE, r"cvta\.global\.u64")],
    "encode_descriptor": [
        (MADE, r"(?s)st\.shared\.b32 \[%r\d+\], 0;.*bar\.warp\.sync.*elect\.sync.*bar\.warp\.sync.*@p tensormap\."
               r"cp_fenceproxy\.global\.shared::cta\.tensormap::generic\.release\.gpu\.sync\.aligned \[%rd\d+\], "
               r"\[%r\d+\], 128;"),
        *((MADE, rf"@p tensormap\.replace\.tile\.{field}\.shared::cta\.b1024\.{rest};") for field, rest in FIELDS),
    ],
    "acquire_descriptor": [(MADE, r"cp_fenceproxy(?s:.*)fence\.proxy\.tensormap::generic\.acquire\.gpu "
                                  r"\[%rd\d+\], 128;(?s:.*)cp\.async\.bulk\.tensor\.2d")],
    "async_load": [("%t = async_load %places, %row, _, _ : token",
                    r"cp\.async\.ca\.shared\.global \[%r\d+\], \[%rd\d+\], 8;"),
                   ("%t = async_load %places, %row, %some, %line : token", r"@p cp\.async\.ca[^;]*, 8;"),
                   ("%t = async_load %places, %row, %some, _ : token", r"cp\.async\.ca[^;]*, 8, %r\d+;")],
    "async_load_commit": [("%t = async_load_commit : token", r"cp\.async\.commit_group;")],
    "async_load_wait": [("%t = async_load_wait {pendings = 2} : token", r"cp\.async\.wait_group 2;")],
    "bulk_load": [("bulk_load %p, %row, %bar, _, _",
                   r"@p cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes \[%r\d+\], \[%rd"),
                  ("bulk_load %p, %row, %bar, %n, %yes", r"cp\.async\.bulk\.shared::cluster\.global")],
    "bulk_store": [("bulk_store %p, %row, _", r"cp\.async\.bulk\.global\.shared::cta\.bulk_group[^@]*@p "
                                              r"cp\.async\.bulk\.commit_group;")],
    "async_dot": [
        (PRODUCT + "%r = async_dot_wait %0 {pendings = 0} : tensor<64x64xf32, #5>" + STORE_SUM,
         r"(?s)wgmma\.fence\.sync\.aligned;.*(wgmma\.mma_async\.sync\.aligned\.m64n64k16\.f32\.f16\.f16.*){4}"
         r"wgmma\.commit_group\.sync\.aligned;"),
        ("%t = local_trans %a {order = (1, 0)} : buffer<64x64xf16, smem, #2>\n%x = splat %h : tensor<64x64xf16, #6>\n"
         "%0 = async_dot %x, %t, _, _ : tensor<64x64xf32, #5>\n"
         "%r = async_dot_wait %0 {pendings = 0} : tensor<64x64xf32, #5>" + STORE_SUM,
         r"wgmma\.mma_async\.sync\.aligned\.m64n64k16\.f32\.f16\.f16"),
    ],
    "async_dot_wait": [(PRODUCT + "%1 = async_dot_wait %0 {pendings = 1} : tensor<64x64xf32, #5>\n"
                        "%r = async_dot_wait %1 {pendings = 0} : tensor<64x64xf32, #5>" + STORE_SUM,
                        r"(?s)wgmma\.wait_group\.sync\.aligned 1;.*wgmma\.wait_group\.sync\.aligned 0;")],
    "cluster_rank": [("%r = cluster_rank : i32" + STORE_NUMBER, r"%cluster_ctarank;")],
    "cluster_size": [("%r = cluster_size : i32" + STORE_NUMBER, r"%cluster_nctarank;")],
    "cluster_barrier": [
        ("cluster_barrier", r"barrier\.cluster\.arrive\.aligned;\s*barrier\.cluster\.wait\.aligned;"),
        ("cluster_barrier {relaxed = true}",
         r"barrier\.cluster\.arrive\.relaxed\.aligned;\s*barrier\.cluster\.wait\.aligned;"),
    ],
    "fence_mbarrier_init": [("fence_mbarrier_init", r"fence\.mbarrier_init\.release\.cluster;")],
    "remote_store": [("remote_store %a, %tile, %n", r"(?s)mapa\.shared::cluster\.u32.*st\.shared::cluster\.v4\.b32")],
    "async_remote_store": [("async_remote_store %a, %tile, %n, %bar",
                            r"st\.async\.shared::cluster\.mbarrier::complete_tx::bytes\.v4\.b32")],
    "async_remote_copy": [("async_remote_copy %a, %a, %n, %bar",
                           r"cp\.async\.bulk\.shared::cluster\.shared::cta\.mbarrier::complete_tx::bytes[^;]*, 8192,")],
    "async_tasks": [(TASKS, r"(?s)bar\.sync\s+1, 128;.*bar\.sync 9, 128;.*bar\.sync\s+2, 128;"),
                    (GROUP_TASKS,
                     r"(?s)setmaxnreg\.dec\.sync\.aligned\.u32\s+40;.*setmaxnreg\.inc\.sync\.aligned\.u32\s+232;"),
                    (GROUP_TASKS + "\n%r = clock64 : i64@thread",  # more code: every warpgroup gets its share back
                     r"(?s)u32\s+40;.*bar\.sync\s+0;\s+setmaxnreg\.inc\.sync\.aligned\.u32\s+168;"
                     r".*u32\s+232;.*bar\.sync\s+0;\s+setmaxnreg\.dec\.sync\.aligned\.u32\s+168;")],
    "thread_id": [(f"%r = thread_id {{axis = {axis}}} : i32@thread" + STORE_NUMBER,
                   rf"%tid\.{'xyz'[axis]};") for axis in range(3)],
    "vote": [("%r = vote %some {mask = 65535} : tensor<512xi32, #4>\n%to = splat %u : tensor<512xptr<i32>, #4>\n"
              "store %to, %r, _", r"vote\.sync\.ballot\.b32 %r\d+, p, 0xf+;")],
    "warp_vote": [(f"%v = warp_vote %some {{mode = \"{mode}\"}} : i1@warp\n%z = constant {{value = 0}} : i32\n"
                   "%r = select %v, %n, %z : i32@warp"
                   + STORE_NUMBER, rf"vote\.sync\.{mode}\.pred\s+%p\d+, %p\d+, -1;") for mode in ("any", "all")],
    "prefetch": [('prefetch %places, %some {level = "L2"}', r"@p prefetch\.global\.L2 \[%rd\d+\];")],
    "clock64": [("%r = clock64 : i64@thread\n%to = splat %w : tensor<512xptr<i64>, #4>\n"
                 "%all = splat %r : tensor<512xi64, #4>\nstore %to, %all, _", r"mov\.u64 %rd\d+, %clock64;")],
}  # fmt: skip
SAMPLES = [
    pytest.param(body, wanted, id=f"{kind}-{i}")
    for kind, rows in CASES.items()
    for i, (body, wanted) in enumerate(rows)
]


def module_of(body: str) -> Module:
    tasks = "async_tasks" in body
    attrs = "shared = 25856, workspace = 384" + ", total_warps = 12" * tasks
    limit = " maxnreg 168" if tasks else ""
    head = f"module @k({PARAMS}) warps 4{limit} cluster (2, 1, 1) {{{attrs}}} {{"
    return parse_module(f"{ALIASES.strip()}\n{head}\n{SETUP}{body}\n}}\n")


def test_every_new_kind_has_a_case() -> None:
    new = {kind for kind, row in OPS.items() if row.family in FAMILIES} - ELSEWHERE
    assert CASES.keys() == new | NEW_ELSEWHERE


@pytest.mark.parametrize(("body", "wanted"), SAMPLES)
def test_a_kind_becomes_its_instruction(body: str, wanted: str) -> None:
    module, target = module_of(body), get_target("sm_90")
    verify(module, layouts=True)
    check_supported(module, target)
    (ptx,) = emit(generate(module, target), target, {}, "assembly")
    assert re.search(wanted, ptx), ptx
    made = assemble(ptx, target.ptxas_arch)
    assert not made.spill_stores and not made.notes


@pytest.mark.parametrize("target", ["sm_100", "sm_103", "sm_120"])
@pytest.mark.parametrize(("body", "wanted"), [s for s in SAMPLES if not str(s.id).startswith("async_dot")])
def test_the_other_targets_take_all_but_wgmma(body: str, wanted: str, target: str) -> None:
    module, chosen = module_of(body), get_target(target)
    check_supported(module, chosen)
    (ptx,) = emit(generate(module, chosen), chosen, {}, "assembly")
    assert re.search(wanted, ptx), ptx
    assert assemble(ptx, chosen.ptxas_arch).cubin


@pytest.mark.parametrize("target", ["sm_100", "sm_103", "sm_120"])
@pytest.mark.parametrize("kind", ["async_dot", "async_dot_wait"])
def test_wgmma_is_refused_where_it_does_not_exist(kind: str, target: str) -> None:
    module = module_of(CASES[kind][0][0])
    ops = list(module.walk())
    for line, op in enumerate(ops, 1):
        op.loc = Location("kernel.py", line)
    first = next(line for line, op in enumerate(ops, 1) if op.kind == "async_dot")
    with pytest.raises(CompileError) as error:
        check_supported(module, get_target(target))
    text = str(error.value)
    assert f"kernel.py:{first}" in text and "async_dot needs wgmma" in text
    assert target in text and "allowed: sm_90" in text


@pytest.mark.parametrize("kind", sorted(NEEDS))
def test_a_kind_says_what_a_target_lacks(kind: str) -> None:
    """No target of the list lacks most of these; one without features lacks all."""
    from dataclasses import replace

    bare = replace(get_target("sm_90"), name="sm_none", features=frozenset())
    module = module_of(CASES.get(kind, [(kind, "")])[0][0])
    module.body.ops = [op for op in module.walk() if op.kind == kind]
    with pytest.raises(CompileError, match=rf"{kind} needs {NEEDS[kind]}: .*(?s:.)*target sm_none"):
        check_supported(module, bare)
