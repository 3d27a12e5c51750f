"""Storage that allocations share: the plan as a pure function, the pass, the language, and places in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tlx_language import Tile

from tlxc.compiler import run_passes
from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op
from tlxc.ir.parser import parse_module
from tlxc.ir.printer import print_module
from tlxc.ir.types import Buffer
from tlxc.ir.verifier import verify
from tlxc.language import tl, tlx
from tlxc.language.context import Context, building
from tlxc.passes.alias import ALIGNMENT, Group, Leaf, Node, place_aliases, plan, size_of
from tlxc.targets import get_target

SM_90 = get_target("sm_90")


# ------------------------------------------------------------------------------------------------------- the plan
def leaf(name: str, size: int, count: int = 2) -> Leaf:
    return Leaf(name, size, count)


def shared(*children: Node, g: int = 1) -> Group:
    return Group("shared", children, g)


def distinct(*children: Node) -> Group:
    return Group("distinct", children)


def _plain() -> list[Any]:
    a, b = leaf("A", 16384), leaf("B", 8192)
    return [shared(a, b), 16384, 32768, {a: [0, 1], b: [0, 2]}]


def _distinct() -> list[Any]:
    a, b = leaf("A", 16384), leaf("B", 16384)
    return [distinct(a, b), 32768, 65536, {a: [0, 2], b: [1, 3]}]


def _attention() -> list[Any]:
    qk, p, alpha = leaf("qk", 16384), leaf("p", 8192), leaf("alpha", 256)
    return [shared(qk, distinct(p, alpha)), 16384, 32768, {qk: [0, 1], p: [0, 2], alpha: [32, 96]}]


def _nested() -> list[Any]:
    a, b, c = leaf("A", 4096), leaf("B", 4096), leaf("C", 2048)
    return [distinct(a, shared(b, c)), 8192, 16384, {a: [0, 2], b: [1, 3], c: [2, 6]}]


def _small() -> list[Any]:
    big, small = leaf("big", 8192), leaf("small", 2048)
    return [shared(big, small), 8192, 16384, {big: [0, 1], small: [0, 4]}]


def _tiny() -> list[Any]:
    a, b, c, d = leaf("A", 8, 4), leaf("B", 8, 4), leaf("C", 2, 4), leaf("D", 8, 4)
    maps = {a: [0, 48, 96, 144], b: [0, 48, 96, 144], c: [64, 256, 448, 640], d: [32, 80, 128, 176]}
    return [distinct(shared(a, distinct(b, c)), d), 384, 1536, maps]


def _packed() -> list[Any]:
    """Two consecutive buffers of p to a slot, one behind the other."""
    qk, p = leaf("qk", 65536), leaf("p", 16384, 4)
    return [shared(qk, shared(p, g=2)), 65536, 131072, {qk: [0, 1], p: [0, 1, 4, 5]}]


def _packed_by_four() -> list[Any]:
    qk, p = leaf("qk", 65536), leaf("p", 8192, 8)
    return [shared(qk, shared(p, g=4)), 65536, 131072, {qk: [0, 1], p: [0, 1, 2, 3, 8, 9, 10, 11]}]


def _groups_of_groups() -> list[Any]:
    p = leaf("p", 128, 8)
    return [shared(shared(p, g=2), g=2), 512, 1024, {p: [0, 1, 2, 3, 4, 5, 6, 7]}]


EXAMPLES = [_plain, _distinct, _attention, _nested, _small, _tiny, _packed, _packed_by_four, _groups_of_groups]


@pytest.mark.parametrize("make", EXAMPLES)
def test_worked_example(make: Callable[[], list[Any]]) -> None:
    """Slot, total and the places of all buffers, in buffers of their own size from the start of the storage."""
    root, slot, total, maps = make()
    made = plan(root)
    assert (made.slot, made.total) == (slot, total)
    assert {x.name: [made.places[x].index(i) for i in range(x.count)] for x in maps} == {
        x.name: found for x, found in maps.items()
    }


def _bytes(x: Leaf, place: Any, slot: int) -> set[int]:
    """First bytes of 64-byte pieces of an array."""
    starts = (place.index(i) * x.size for i in range(x.count))
    return {s + piece for s in starts for piece in range(0, x.size, 64)}


@st.composite
def trees(draw: st.DrawFn, depth: int = 3, groups: bool = True) -> Node:
    """Sizes are powers of two; group sizes only above leaves, so that every tree has a plan or a plain refusal."""
    if depth == 0 or draw(st.booleans()):
        return Leaf("x", 1 << draw(st.integers(6, 10)), 4)
    kind = draw(st.sampled_from(("shared", "distinct")))
    children = draw(st.lists(trees(depth=depth - 1), min_size=1, max_size=3))
    g = draw(st.sampled_from((1, 2))) if kind == "shared" and all(isinstance(c, Leaf) for c in children) else 1
    return Group(kind, tuple(children), g)


def _leaves(node: Node) -> list[Leaf]:
    return [node] if isinstance(node, Leaf) else [x for c in node.children for x in _leaves(c)]


@given(trees())
def test_children_of_distinct_groups_are_apart(root: Node) -> None:
    if isinstance(root, Leaf):
        root = shared(root)
    try:
        made = plan(root)
    except CompileError as error:
        assert "must be a multiple of" in str(error)
        return
    assert made.slot % ALIGNMENT == 0 and made.slot >= size_of(root)
    where = {x: _bytes(x, made.places[x], made.slot) for x in _leaves(root)}
    assert all(max(b) < made.total for b in where.values())
    assert all(len(b) == x.count * (x.size // 64) for x, b in where.items()), "buffers of one array are apart"
    work: list[Node] = [root]
    while work:
        node = work.pop()
        if isinstance(node, Leaf):
            continue
        work += node.children
        if node.kind == "distinct":
            sides = [set().union(*(where[x] for x in _leaves(c))) for c in node.children]
            assert sum(map(len, sides)) == len(set().union(*sides))


# ------------------------------------------------------------------------------------------------------- the pass
@pytest.fixture
def k() -> Iterator[Tile]:
    kernel = Tile()
    with building(Context(kernel.builder, SM_90)):
        yield kernel


def attention(k: Tile, size: int | None = None) -> tuple[Any, Any, Any]:
    spec = tlx.storage_alias_spec(buffer_size_bytes=size)
    qk = tlx.local_alloc((64, 64), tl.float32, 2, reuse=spec)
    p = tlx.local_alloc((64, 64), tl.float16, 2, reuse=spec)
    alpha = tlx.local_alloc((64,), tl.float32, 2, reuse=spec)
    for value, name in ((qk, "qk"), (p, "p"), (alpha, "alpha")):
        value.value.name = name
    inner = tlx.reuse_group(p, alpha, group_type=tlx.reuse_group_type.distinct)
    spec.set_buffer_overlap(tlx.reuse_group(qk, inner))
    return qk, p, alpha


def test_the_language_names_allocations_and_tree(k: Tile) -> None:
    attention(k, 65536)
    assert k.text().splitlines() == [
        "%qk = local_alloc {alias = (1, 65536)} : buffer<2 * 64x64xf32, smem>",
        "%p = local_alloc {alias = (1, 65536)} : buffer<2 * 64x64xf16, smem>",
        "%alpha = local_alloc {alias = (1, 65536)} : buffer<2 * 64xf32, smem>",
        'buffer_overlap %qk, %p, %alpha {alias = 1, tree = ("shared", 1, (0, ("distinct", 1, (1, 2))))}',
    ]


def test_the_pass_gives_offsets_and_pitches(k: Tile) -> None:
    _, p, _ = attention(k)
    tlx.local_reinterpret(p, tl.bfloat16)
    place_aliases(k.module, SM_90)
    assert k.text().splitlines() == [
        "%qk = local_alloc {alias = (1, 0, 32768)} : buffer<2 * 64x64xf32, smem>",
        "%p = local_alloc {alias = (1, 0, 32768)} : buffer<2 * 64x64xf16, smem, pitch 16384>",
        "%alpha = local_alloc {alias = (1, 8192, 32768)} : buffer<2 * 64xf32, smem, pitch 16384>",
        "%0 = local_reinterpret %p : buffer<2 * 64x64xbf16, smem, pitch 16384>",
    ]
    printed = print_module(k.module)
    assert print_module(parse_module(printed)) == printed


def test_groups_of_buffers_keep_a_pitch(k: Tile) -> None:
    spec = tlx.storage_alias_spec()
    a = tlx.local_alloc((64, 64), tl.float32, 2, reuse=spec)
    b = tlx.local_alloc((16, 64), tl.float32, 4, reuse=spec)
    spec.set_buffer_overlap(tlx.reuse_group(a, tlx.reuse_group(b, group_size=2)))
    place_aliases(k.module, SM_90)
    t = b.value.type
    assert isinstance(t, Buffer) and str(t) == "buffer<4 * 16x64xf32, smem, pitch 16384 group 2>"
    assert [t.tile_offset(i) for i in range(4)] == [0, 4096, 16384, 20480]
    assert t.nbytes == 24576
    printed = print_module(k.module)
    assert "pitch 16384 group 2" in printed and print_module(parse_module(printed)) == printed


def test_without_a_tree_all_start_at_the_first_byte(k: Tile) -> None:
    spec = tlx.storage_alias_spec(buffer_size_bytes=40000)
    tlx.local_alloc((64, 64), tl.float32, 2, reuse=spec)
    tlx.local_alloc((64, 64), tl.float16, 2, reuse=spec)
    place_aliases(k.module, SM_90)
    assert k.text().splitlines() == [
        "%0 = local_alloc {alias = (1, 0, 40000)} : buffer<2 * 64x64xf32, smem>",
        "%1 = local_alloc {alias = (1, 0, 40000)} : buffer<2 * 64x64xf16, smem>",
    ]


def test_what_the_tree_leaves_out_starts_at_the_first_byte(k: Tile) -> None:
    spec = tlx.storage_alias_spec()
    a = tlx.local_alloc((64,), tl.float32, 2, reuse=spec)
    tlx.local_alloc((512,), tl.float32, 3, reuse=spec)
    spec.set_buffer_overlap(tlx.reuse_group(a))
    place_aliases(k.module, SM_90)
    assert [op.attrs["alias"] for op in k.ops] == [(1, 0, 6144), (1, 0, 6144)]


def test_an_array_in_the_memory_of_another(k: Tile) -> None:
    wide = tlx.local_alloc((64, 64), tl.float32, 1)
    tlx.local_alloc((64, 64), tl.float16, 3, reuse=wide)
    place_aliases(k.module, SM_90)
    assert [op.attrs["alias"] for op in k.ops] == [(1, 0, 24576), (1, 0, 24576)]


def _set_twice(k: Tile) -> None:
    spec = tlx.storage_alias_spec()
    a = tlx.local_alloc((64,), tl.float32, 2, reuse=spec)
    spec.set_buffer_overlap(tlx.reuse_group(a))
    spec.set_buffer_overlap(tlx.reuse_group(a))


def _distinct_in_a_group(k: Tile) -> None:
    spec = tlx.storage_alias_spec()
    a, b = (tlx.local_alloc((64,), tl.float32, 4, reuse=spec) for _ in range(2))
    inner = tlx.reuse_group(a, b, group_type=tlx.reuse_group_type.distinct)
    spec.set_buffer_overlap(tlx.reuse_group(inner, group_size=2))


def _uneven(*extents: int, grouped: bool = False) -> Callable[[Tile], None]:
    def make(k: Tile) -> None:
        spec = tlx.storage_alias_spec()
        arrays = [tlx.local_alloc((n,), tl.float32, 2, reuse=spec) for n in extents]
        for i, a in enumerate(arrays):
            a.value.name = "abc"[i]
        spec.set_buffer_overlap(tlx.reuse_group(*arrays, group_type=tlx.reuse_group_type.distinct))

    return make


PASS_ERRORS = [
    (
        "too_small",
        lambda k: attention(k, 20000),
        "error: buffer_size_bytes (20000) is too small: this storage requires at least 32768 bytes\n"
        "  found: qk, 2 x 16384 bytes; p, 2 x 8192 bytes; alpha, 2 x 256 bytes\n"
        "  fix: give more bytes, or leave buffer_size_bytes out",
    ),
    (
        "set_twice",
        _set_twice,
        "error: the overlap of a storage_alias_spec is set twice\n"
        "  found: two calls of set_buffer_overlap, or one in code that is compiled more than once, as a replica\n"
        "  allowed: one call for each spec\n"
        "  fix: combine the groups in one tree, or make the spec where the second call stands\n"
        "  the overlap is set before",
    ),
    (
        "distinct_in_a_group",
        _distinct_in_a_group,
        "error: a distinct group lies in a shared group with a group_size\n"
        "  found: group_size 2 above a distinct group of 2 elements\n"
        "  allowed: group sizes of shared groups that hold buffers or shared groups\n"
        "  fix: make the distinct group the outer one, and give each of its elements a shared group with the "
        "group_size",
    ),
    (
        "slot",
        _uneven(64, 128),
        "error: units_between_buffer_groups (768) must be a multiple of the original buffer size (512)\n"
        "  found: b, of 512 bytes per buffer, in a storage of 768 bytes per group, at byte 256 of it\n"
        "  fix: order distinct groups from the largest buffer to the smallest, or pad extents to powers of two",
    ),
    (
        "offset",
        _uneven(64, 128, 64),
        "error: buffer_offset (256) must be a multiple of the original buffer size (512)\n"
        "  found: b, of 512 bytes per buffer, in a storage of 1024 bytes per group, at byte 256 of it\n"
        "  fix: order distinct groups from the largest buffer to the smallest, or pad extents to powers of two",
    ),
]


@pytest.mark.parametrize("make, text", [row[1:] for row in PASS_ERRORS], ids=[row[0] for row in PASS_ERRORS])
def test_error_of_the_pass(make: Callable[[Tile], Any], text: str, k: Tile) -> None:
    make(k)
    with pytest.raises(CompileError) as caught:
        place_aliases(k.module, SM_90)
    assert str(caught.value) == text


# --------------------------------------------------------------------------------------------------- the language
def test_a_spec_says_what_it_is(k: Tile) -> None:
    plain, sized = tlx.storage_alias_spec(), tlx.storage_alias_spec(tlx.storage_kind.smem, 16384)
    assert repr(plain) == "storage_alias_spec(storage=smem)"
    assert repr(sized) == "storage_alias_spec(storage=smem, size=16384)"
    assert (sized.storage, sized.buffer_size_bytes, plain.buffer_size_bytes) == (tlx.storage_kind.smem, 16384, None)
    with pytest.raises(AttributeError):
        sized.buffer_size_bytes = 1  # type: ignore[misc]


def test_a_group_says_what_it_is(k: Tile) -> None:
    a = tlx.local_alloc((64,), tl.float32, 2)
    group = tlx.reuse_group(a, group_size=4)
    assert (group.args, group.group_type, group.group_size) == ((a,), tlx.reuse_group_type.shared, 4)


def _foreign(k: Tile) -> None:
    tlx.storage_alias_spec().set_buffer_overlap(tlx.reuse_group(tlx.local_alloc((64,), tl.float32, 2)))


def _view_in_a_tree(k: Tile) -> None:
    spec = tlx.storage_alias_spec()
    spec.set_buffer_overlap(tlx.reuse_group(tlx.local_alloc((64,), tl.float32, 2, reuse=spec)[0]))


def _named_twice(k: Tile) -> None:
    spec = tlx.storage_alias_spec()
    a = tlx.local_alloc((64,), tl.float32, 2, reuse=spec)
    a.value.name = "a"
    spec.set_buffer_overlap(tlx.reuse_group(a, a))


NOT_ITS_OWN = (
    "  allowed: what tlx.local_alloc(..., reuse=spec) gave, whole arrays and no views\n"
    "  fix: allocate it with reuse=spec"
)
ERRORS = [
    (
        "spec_storage",
        lambda k: tlx.storage_alias_spec(tlx.storage_kind.smemCluster),
        "error: storage_alias_spec takes shared memory only\n"
        "  found: <storage_kind.smemCluster: 'smemCluster'> (storage_kind)\n"
        "  allowed: storage_kind.smem",
    ),
    (
        "spec_size",
        lambda k: tlx.storage_alias_spec(buffer_size_bytes=0),
        "error: buffer_size_bytes is positive\n  found: 0\n  fix: leave it out for as many as needed",
    ),
    (
        "reuse",
        lambda k: tlx.local_alloc((8,), tl.float16, 1, reuse=3),
        "error: reuse is a storage_alias_spec or a buffer array\n"
        "  found: the compile-time value 3\n"
        "  fix: make a spec with tlx.storage_alias_spec(), and pass it to each local_alloc that shares it",
    ),
    (
        "reuse_of_a_view",
        lambda k: tlx.local_alloc((8,), tl.float16, 1, reuse=k.buf(8)),
        "error: reuse takes a whole buffer array\n"
        "  found: a view, a buffer (8,) of tl.float16\n"
        "  fix: name what tlx.local_alloc gave, or use tlx.local_reinterpret to see a buffer in another type",
    ),
    (
        "empty_group",
        lambda k: tlx.reuse_group(),
        "error: a reuse_group has at least one element\n  found: none\n  fix: name the buffers in it",
    ),
    (
        "element",
        lambda k: tlx.reuse_group(3),
        "error: an element of reuse_group is a buffer array or another reuse_group\n  found: the compile-time value 3",
    ),
    (
        "group_type",
        lambda k: tlx.reuse_group(k.buf(8), group_type="shared"),
        "error: unknown group_type\n"
        "  found: 'shared' (str)\n"
        "  allowed: reuse_group_type.shared, reuse_group_type.distinct",
    ),
    (
        "group_size",
        lambda k: tlx.reuse_group(k.buf(8), group_size=0),
        "error: group_size counts buffers\n  found: 0\n  allowed: 1, 2, ...",
    ),
    (
        "group_size_of_distinct",
        lambda k: tlx.reuse_group(k.buf(8), group_type=tlx.reuse_group_type.distinct, group_size=2),
        "error: group_size has no effect on a distinct group\n"
        "  found: group_size=2\n"
        "  fix: give it to shared groups inside: reuse_group(buf, group_size=...)",
    ),
    (
        "overlap",
        lambda k: tlx.storage_alias_spec().set_buffer_overlap(k.buf(8)),
        "error: set_buffer_overlap takes a reuse_group\n"
        "  found: a buffer (8,) of tl.float16\n"
        "  fix: write spec.set_buffer_overlap(tlx.reuse_group(a, b))",
    ),
    (
        "foreign",
        _foreign,
        "error: the overlap of a spec names buffers that are no allocations of it\n"
        "  found: a buffer, an array of 2 buffers (64,) of tl.float32\n" + NOT_ITS_OWN,
    ),
    (
        "view",
        _view_in_a_tree,
        "error: the overlap of a spec names buffers that are no allocations of it\n"
        "  found: a buffer, a buffer (64,) of tl.float32\n" + NOT_ITS_OWN,
    ),
    (
        "twice",
        _named_twice,
        "error: a buffer array occurs twice in the overlap of a spec\n"
        "  found: a, an array of 2 buffers (64,) of tl.float32\n"
        "  allowed: each allocation of the spec once",
    ),
]


@pytest.mark.parametrize("make, text", [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_error(make: Callable[[Tile], Any], text: str, k: Tile) -> None:
    with pytest.raises(CompileError) as caught:
        make(k)
    assert str(caught.value) == text


# ------------------------------------------------------------------------------------------------ places in memory
def allocations(module: Module) -> dict[str, Op]:
    return {op.result.name: op for op in module.walk() if op.kind == "local_alloc"}


def planned(k: Tile) -> dict[str, Op]:
    run_passes(k.module, SM_90, check=True)
    return allocations(k.module)


def test_allocations_of_one_storage_are_placed_as_one(k: Tile) -> None:
    arrays = attention(k)
    other = tlx.local_alloc((64, 64), tl.float16, 1)
    other.value.name = "other"
    for _ in range(2):
        for a in (*arrays, other):
            tlx.local_store(a[0], tlx.local_load(a[0]) + 1)
    found = {name: op.attrs["offset"] for name, op in planned(k).items()}
    assert found == {"qk": 0, "p": 0, "alpha": 8192, "other": 32768}
    assert k.module.attrs["shared"] == 40960
    assert [row[:3] for row in k.module.attrs["memory_map"]] == [
        (0, 24576, "p"),
        (0, 32768, "qk"),
        (8192, 16640, "alpha"),
        (32768, 8192, "other"),
    ]


def test_overlapping_bytes_are_synchronised_and_others_are_not(k: Tile) -> None:
    qk, p, alpha = attention(k)
    tile = k.tile(tl.float16, 64, 64)
    row = k.tile(tl.float32, 64)
    out = k.param(tl.ptr(tl.float32), "out")  # type: ignore[arg-type]
    tlx.local_store(p[0], tile)
    tlx.local_store(alpha[1], row)  # another slot: no barrier
    tl.store(out + tl.arange(0, 64), tl.sum(tlx.local_load(qk[0]), axis=0))  # the bytes of p[0]
    planned(k)
    kinds = [op.kind for op in k.module.walk() if op.kind in ("local_store", "barrier", "local_load")]
    assert kinds[:4] == ["local_store", "local_store", "barrier", "local_load"]


def test_too_much_is_listed_by_storage(k: Tile) -> None:
    spec = tlx.storage_alias_spec()
    for name, dtype in (("a", tl.float32), ("b", tl.float16)):
        buf = tlx.local_alloc((128, 128), dtype, 4, reuse=spec)
        buf.value.name = name
        tlx.local_store(buf[0], 0)
    with pytest.raises(CompileError) as caught:
        planned(k)
    assert "threads: a 4 x (128, 128) | b 4 x (128, 128) 262144 bytes\n" in str(caught.value)


def test_the_verifier_wants_allocations_of_the_storage() -> None:
    module = parse_module(
        "module @k() warps 4 {\n%a = local_alloc : buffer<2 * 8xf32, smem>\n"
        'buffer_overlap %a {alias = 1, tree = ("shared", 1, (0))}\n}\n'
    )
    with pytest.raises(Exception, match="buffer_overlap takes allocations of its own storage"):
        verify(module)
