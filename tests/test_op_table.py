"""The op table and the layers that dispatch on it: no kind is missing in a layer, no layer knows one that is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import tlxc.ir.ops  # noqa: F401  (fills the table)
from tlxc.codegen.generate import NEEDS, REFUSED, VENDOR_OPS, check_supported, implemented
from tlxc.codegen.simt.lowering import LOWER
from tlxc.errors import CompileError
from tlxc.ir.core import Module
from tlxc.ir.parser import parse_module
from tlxc.ir.printer import print_module
from tlxc.ir.table import FAMILIES, OPS
from tlxc.ir.types import DType, Pointer, element_of, shape_of
from tlxc.ir.verifier import verify
from tlxc.passes import axis, simplify
from tlxc.passes.layouts.relabel import RELABEL
from tlxc.targets import all_targets
from tlxc.targets.target import FEATURES

VENDORS = sorted({target.vendor for target in all_targets()})
TARGETS = [pytest.param(target, id=target.name) for target in all_targets()]
ELEMENTS = {"bool": "i1", "int": "i32", "uint": "u32", "float": "f32", "pointer": "ptr<f32>"}
PARAMS = ", ".join(f"%{kind}: {element}" for kind, element in {**ELEMENTS, "desc": "desc<64x32xf32>"}.items())
TILES = "\n".join(f"%t{kind} = splat %{kind} : tensor<64x32x{element}>" for kind, element in ELEMENTS.items())


def elementwise(kind: str) -> list[str]:
    """The op on scalars and on tiles of every kind of element that its row names."""
    operands = len(OPS[kind].operands)
    return [
        f"%r = {kind} {', '.join([prefix + element] * operands)} : {shape % ELEMENTS[element]}"
        for element in OPS[kind].kinds
        for prefix, shape in (("%", "%s"), ("%t", "tensor<64x32x%s>"))
    ]


def on_tiles(text: str, kinds: str = "bool int uint float pointer") -> list[str]:
    """`text` with $k for the kind of the element and $e for the element."""
    return [text.replace("$k", kind).replace("$e", ELEMENTS[kind]) for kind in kinds.split()]


_BUFFER = "%b = local_alloc : buffer<64x32xf32, smem>\n"
_ROW = "%row = local_alloc : buffer<1024xf32, smem>\n"
_BAR = "%bars = alloc_barriers {arrive_count = 1} : barrier<2>\n%bar = barrier_view %bars, %int : barrier\n"
_COPY = f"{_BUFFER}%copy = async_load %tpointer, %b, _, _ : token\n"
_DOT = (
    "%x = local_alloc : buffer<64x16xf16, smem>\n%y = local_alloc : buffer<16x8xf16, smem>\n"
    "%dot = async_dot %x, %y, _, _ : tensor<64x8xf32>\n"
)
_SLOTS = "%slots = descriptor_slots {count = 2, offset = 128} : ptr<u8>\n"
_MAP = f"{_SLOTS}%map = local_alloc : buffer<128xu8, smem>\n%wide = cast %int : i64\n"
# Kind -> texts of ops on the parameters and tiles above.
SAMPLES: dict[str, list[str]] = {
    **{kind: elementwise(kind) for kind in OPS if OPS[kind].family == "math" and OPS[kind].has("elementwise")},
    "constant": [
        "%r = constant {value = true} : i1", "%r = constant {value = -7} : i32",
        "%r = constant {value = 0x1.8p+1} : f32", "%r = constant {value = inf} : f16",
    ],
    "cmp": [f"%r = cmp %t{k}, %t{k} {{pred = \"{pred}\"}} : tensor<64x32xi1>"
            for k in OPS["cmp"].kinds for pred in ("eq", "ne", "lt", "le", "gt", "ge")],
    "select": [f"%r = select %tbool, %t{k}, %t{k} : tensor<64x32x{ELEMENTS[k]}>" for k in OPS["select"].kinds],
    "cast": [f"%r = cast %t{a} : tensor<64x32x{ELEMENTS[b]}>" for a in OPS["cast"].kinds for b in OPS["cast"].kinds],
    "arange": ["%r = arange {start = 16, end = 80} : tensor<64xi32>"],
    "splat": on_tiles("%r = splat %$k : tensor<8x$e>"),
    "expand_dims": on_tiles("%r = expand_dims %t$k {axis = 1} : tensor<64x1x32x$e>"),
    "broadcast": on_tiles("%s = splat %$k : tensor<64x1x$e>\n%r = broadcast %s : tensor<64x4x$e>"),
    "reshape": on_tiles("%r = reshape %t$k : tensor<32x64x$e>"),
    "permute": on_tiles("%r = permute %t$k {order = (1, 0)} : tensor<32x64x$e>"),
    "join": on_tiles("%r = join %t$k, %t$k : tensor<64x32x2x$e>"),
    "split": on_tiles("%j = join %t$k, %t$k : tensor<64x32x2x$e>\n"
                      "%r, %s = split %j : tensor<64x32x$e>, tensor<64x32x$e>"),
    "convert_layout": on_tiles("%r = convert_layout %t$k : tensor<64x32x$e>"),
    "require_layout": on_tiles("%r = require_layout %t$k {layout = #0} : tensor<64x32x$e>", "bool int uint float"),
    "dump_layout": on_tiles("dump_layout %t$k"),
    "addptr": ["%r = addptr %pointer, %int : ptr<f32>", "%r = addptr %tpointer, %tint : tensor<64x32xptr<f32>>"],
    "load": [
        "%r = load %pointer, _, _ : f32", "%r = load %tpointer, _, _ {cache = \".cg\"} : tensor<64x32xf32>",
        "%r = load %tpointer, %tbool, _ : tensor<64x32xf32>",
        "%r = load %tpointer, %tbool, %tfloat {eviction = \"evict_first\"} : tensor<64x32xf32>",
    ],
    "store": ["store %pointer, %float, _", "store %tpointer, %tfloat, %tbool {cache = \".wt\"}"],
    "atomic_rmw": [
        "%r = atomic_rmw %pointer, %float, %bool {op = \"add\", sem = \"acq_rel\", scope = \"gpu\"} : f32",
        "%r = atomic_rmw %tpointer, %tfloat, _ {op = \"add\", sem = \"relaxed\", scope = \"sys\"} : tensor<64x32xf32>",
    ],
    "reduce": [f"%r = reduce %t{k} {{axis = {axis}, combine = \"{c}\"}} : tensor<{n}x{ELEMENTS[k]}>"
               for k in OPS["reduce"].kinds for axis, n in ((0, 32), (1, 64)) for c in ("sum", "max", "min")],
    "partial_reduce": [
        f"%r = partial_reduce %tfloat {{axis = 1, combine = \"sum\", level = \"{level}\"}} : tensor<64x8xf32>"
        for level in ("thread", "warp")
    ],
    "local_alloc": [_BUFFER],
    "local_store": [f"{_BUFFER}local_store %b, %tfloat"],
    "local_load": [f"{_BUFFER}%r = local_load %b : tensor<64x32xf32>"],
    "buffer_overlap": ["%p = local_alloc {alias = (0, 0)} : buffer<64x32xf32, smem>\n"
                       "%q = local_alloc {alias = (0, 0)} : buffer<64x64xf16, smem>\n"
                       "buffer_overlap %p, %q {alias = 0, tree = (\"shared\", 1, (0, 1))}"],
    "local_view": ["%bs = local_alloc : buffer<4 * 64x32xf32, smem>\n"
                   "%r = local_view %bs, %int : buffer<64x32xf32, smem>"],
    "local_trans": [f"{_BUFFER}%r = local_trans %b {{order = (1, 0)}} : buffer<32x64xf32, smem>"],
    "local_slice": [f"{_BUFFER}%r = local_slice %b {{offsets = (0, 16)}} : buffer<64x16xf32, smem>"],
    "local_reinterpret": [f"{_BUFFER}%r = local_reinterpret %b : buffer<64x64xf16, smem>"],
    "local_gather": [f"{_BUFFER}%r = local_gather %b, %tint {{axis = 0}} : tensor<64x32xf32>"],
    "local_scatter": [f"{_BUFFER}local_scatter %b, %tfloat, %tint {{axis = 1}}"],
    "barrier": ["barrier", "barrier {cta = true}"],
    "fence_async_shared": ["fence_async_shared"],
    "grid_dependency": ["grid_dependency {action = \"wait\"}", "grid_dependency {action = \"launch_dependents\"}"],
    "fence": ["fence {scope = \"gpu\"}", "fence {scope = \"sys\"}"],
    "alloc_barriers": ["%r = alloc_barriers {arrive_count = 2} : barrier<4>",
                       "%r = alloc_barriers {arrive_count = 64} : barrier<1, warp>"],
    "barrier_view": [_BAR],
    "barrier_wait": [f"{_BAR}barrier_wait %bar, %int, _", f"{_BAR}barrier_wait %bar, %int, %bool"],
    "barrier_arrive": [f"{_BAR}barrier_arrive %bar, _, _ {{count = 1, synced = true}}",
                       f"{_BAR}barrier_arrive %bar, %bool, %int {{count = 2}}"],
    "barrier_expect": [f"{_BAR}barrier_expect %bar, _ {{bytes = 8192}}"],
    "named_barrier_wait": ["named_barrier_wait %int {threads = 128}"],
    "named_barrier_arrive": ["named_barrier_arrive %int {threads = 128}"],
    "tma_load": [
        f"{_BUFFER}{_BAR}tma_load %desc, %b, %bar, _, _, %int, %int",
        f"{_BUFFER}{_BAR}tma_load %desc, %b, %bar, %bool, %int, %int, %int {{eviction = \"evict_first\"}}",
    ],
    "tma_store": [f"{_BUFFER}tma_store %desc, %b, %int, %int",
                  f"{_BUFFER}tma_store %desc, %b, %int, %int {{reduce = \"add\", eviction = \"evict_last\"}}"],
    "descriptor_slots": [_SLOTS],
    "descriptor_slot": [f"{_SLOTS}%r = descriptor_slot %slots, %int : ptr<u8>"],
    "descriptor_view": [f"{_SLOTS}%r = descriptor_view %slots : desc<64x32xf32>"],
    "encode_descriptor": [
        f"{_MAP}%v = descriptor_view %slots : desc<64x32xf32>\n"
        "encode_descriptor %v, %map, %pointer, %int, %int, %wide {padding = \"nan\"}",
        f"{_MAP}%v = descriptor_view %slots : desc<64xf32>\n"
        "encode_descriptor %v, %map, %pointer, %int {padding = \"zero\"}",
    ],
    "acquire_descriptor": ["%r = acquire_descriptor %desc : desc<64x32xf32>"],
    "tma_store_wait": ["tma_store_wait {pendings = 1, read = true}"],
    "tma_prefetch": ["tma_prefetch %desc, _, %int, %int"],
    "prefetch_descriptor": ["prefetch_descriptor %desc"],
    "async_load": [_COPY, f"{_BUFFER}%r = async_load %tpointer, %b, %tbool, %tfloat {{cache = \".cg\"}} : token"],
    "async_load_commit": ["%r = async_load_commit : token", f"{_COPY}%r = async_load_commit %copy : token"],
    "async_load_wait": [f"{_COPY}%r = async_load_wait %copy {{pendings = 0}} : token"],
    "bulk_load": [f"{_ROW}{_BAR}bulk_load %pointer, %row, %bar, %int, %bool"],
    "bulk_store": [f"{_ROW}bulk_store %pointer, %row, _"],
    "async_dot": [
        _DOT,
        f"{_DOT}%r = async_dot %x, %y, %dot, _ : tensor<64x8xf32>",
        f"{_DOT}%r = async_dot %x, %y, %dot, %bool : tensor<64x8xf32>",
    ],
    "async_dot_wait": [f"{_DOT}%r = async_dot_wait %dot {{pendings = 0}} : tensor<64x8xf32>"],
    "cluster_rank": ["%r = cluster_rank : i32"],
    "cluster_size": ["%r = cluster_size : i32"],
    "cluster_barrier": ["cluster_barrier", "cluster_barrier {relaxed = true}"],
    "fence_mbarrier_init": ["fence_mbarrier_init"],
    "remote_store": [f"{_BUFFER}remote_store %b, %tfloat, %int"],
    "async_remote_store": [f"{_BUFFER}{_BAR}async_remote_store %b, %tfloat, %int, %bar"],
    "async_remote_copy": [f"{_BUFFER}{_BAR}async_remote_copy %b, %b, %int, %bar"],
    "async_tasks": [
        "async_tasks {num_warps = (4, 2), start_warp = (0, 4), num_regs = (0, 24), replica = (0, 0)} {\nbarrier\n} {\n}"
    ],
    "task_copy": ["%r = task_copy : i32"],
    "thread_id": [f"%r = thread_id {{axis = {axis}}} : i32@thread" for axis in range(3)],
    "clock64": ["%r = clock64 : i64@thread"],
    "vote": ["%t = thread_id {axis = 0} : i32@thread\n%p = cmp %t, %int {pred = \"lt\"} : i1@thread\n"
             "%r = vote %p {mask = 4294967295} : i32@warp", "%r = vote %tbool {mask = 15} : tensor<64x32xi32>"],
    "warp_vote": ["%r = warp_vote %tbool {mode = \"any\"} : i1@warp",
                  "%r = warp_vote %bool {mode = \"all\"} : i1@warp"],
    "prefetch": ["prefetch %tpointer, %tbool {level = \"L1\"}", "prefetch %tpointer, _ {level = \"L2\"}"],
    "program_id": [f"%r = program_id {{axis = {axis}}} : i32" for axis in range(3)],
    "num_programs": [f"%r = num_programs {{axis = {axis}}} : i32" for axis in range(3)],
    "dot": [
        "%a = cast %tfloat : tensor<64x32xf16>\n%b = permute %a {order = (1, 0)} : tensor<32x64xf16>\n"
        f"%z = splat %float : tensor<64x64xf32>\n%r = dot %a, %b, %z{impl} : tensor<64x64xf32>"
        for impl in ("", " {impl = \"mma.sync\"}", " {impl = \"wgmma\"}")
    ],
    "for": [
        "%r = for %int, %int, %int, %float {descending = true} : f32 {\n^(%i: i32, %acc: f32):\nyield %acc\n}",
        "for %int, %int, %int {\n^(%i: i32):\nyield\n}",
    ],
    "while": ["%r = while %int : i32 {\n^(%a: i32):\nyield %bool\n} {\n^(%a.2: i32):\nyield %a.2\n}"],
    "if": ["%r = if %bool : f32 {\nyield %float\n} {\nyield %float\n}", "if %bool {\nyield\n} {\nyield\n}"],
}  # fmt: skip
SAMPLES["breakpoint"] = [
    'breakpoint %int, %tfloat {names = ("n", "tile"), constants = (("STAGES", 2), ("mode", "fast"))}',
    "breakpoint {names = (), constants = ()}",
]
SAMPLES["yield"] = SAMPLES["for"] + SAMPLES["if"]
_LAYOUT = "#0 = 64x32 r[j1,j2,j4,i32] l[j8,j16,i1,i2,i4] w[i8,i16]"
CASES = [pytest.param(kind, text, id=f"{kind}-{i}") for kind, texts in SAMPLES.items() for i, text in enumerate(texts)]


def module_of(text: str) -> Module:
    return parse_module(f"{_LAYOUT}\nmodule @sample({PARAMS}) warps 4 {{\n{TILES}\n{text}\n}}\n")


def test_every_kind_has_a_sample() -> None:
    assert SAMPLES.keys() == OPS.keys()
    for kind, texts in SAMPLES.items():
        assert texts and all(any(op.kind == kind for op in module_of(text).walk()) for text in texts), kind


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_sample_is_valid_and_parses_back(kind: str, text: str) -> None:
    module = module_of(text)
    verify(module)
    printed = print_module(module)
    assert print_module(parse_module(printed)) == printed


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_axis_analysis_knows_something_of_every_result(kind: str, text: str) -> None:
    """A rule of its own, or the default: whatever the value is, the facts have its rank and promise one element at
    least."""
    module = module_of(text)
    info = axis.analyse(module)
    for value in (value for op in module.walk() for value in op.results):
        element = element_of(value.type)
        if isinstance(element, Pointer) or isinstance(element, DType) and element.kind in ("bool", "int", "uint"):
            for dim in range(len(shape_of(value.type))):
                assert info.contiguity(value, dim) >= 1 and info.divisibility(value, dim) >= 1


@pytest.mark.parametrize("vendor", VENDORS)
def test_code_generation_implements_or_refuses_every_kind(vendor: str) -> None:
    known = implemented(vendor) | REFUSED[vendor].keys()
    assert OPS.keys() - known == set(), "these kinds have neither a lowering nor a refusal"


def test_no_layer_dispatches_on_a_kind_that_does_not_exist() -> None:
    tables: Mapping[str, Mapping[str, Any]] = {
        "lowering": LOWER,
        **{f"lowering for {vendor}": ops for vendor, ops in VENDOR_OPS.items()},
        **{f"refusals of {vendor}": ops for vendor, ops in REFUSED.items()},
        "axis analysis": axis._RULES,
        "axis analysis, regions": axis._STRUCTURED,
        "folding": simplify._INTEGER,
        "rewriting": simplify._RULES,
    }
    unknown = {name: rows.keys() - OPS.keys() for name, rows in tables.items() if rows.keys() - OPS.keys()}
    assert not unknown


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", sorted(OPS))
def test_a_kind_compiles_or_is_refused_in_a_sentence(kind: str, target: Any) -> None:
    module = module_of(SAMPLES[kind][0])
    refusals = [refusal_of(op.kind, target) for op in module.walk()]
    if not any(refusals):
        check_supported(module, target)
        return
    with pytest.raises(CompileError) as error:
        check_supported(module, target)
    assert next(filter(None, refusals)) in str(error.value) and target.name in str(error.value)


def refusal_of(kind: str, target: Any) -> str:
    """The sentence in which a target refuses a kind of op; "" where it takes it."""
    if kind in REFUSED[target.vendor]:
        return REFUSED[target.vendor][kind]
    lacking = target.vendor == "nvidia" and kind in NEEDS and NEEDS[kind] not in target.features
    return f"{kind} needs {NEEDS[kind]}" if lacking else ""


def test_features_that_ops_need_exist() -> None:
    assert NEEDS.keys() <= OPS.keys() and set(NEEDS.values()) <= FEATURES.keys()


def test_layout_assignment_knows_every_op_that_moves_no_data() -> None:
    """It takes layouts through them; a pin (require_layout) is a node of its own."""
    assert {name for name, row in OPS.items() if row.has("relabel")} - {"require_layout"} == RELABEL


def test_families_are_modules_of_the_table() -> None:
    for row in OPS.values():
        assert row.family in FAMILIES and row.doc.strip().endswith("."), row.name
