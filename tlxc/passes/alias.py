"""Storage that several allocations share: where each of their buffers lies in it.

Invariant after the pass: `alias` of a `local_alloc` is (number of the storage, offset of the first buffer in it, bytes
of all of it); pitch and group of its type say where its other buffers lie; no `buffer_overlap` is left.

Buffers of a storage come in *slots*, one per buffer group, one after the other.  A tree tells how the arrays divide a
slot: children of a shared group occupy the same bytes at different times, those of a distinct group follow each other,
from multiples of 128 bytes.  A group size of g puts g consecutive buffers of each array below it into one slot, packed.
Offsets and sizes are bytes.  Arrays outside the tree, and all where there is none, lie dense from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Union

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op, Value
from tlxc.ir.types import Buffer
from tlxc.targets import Target

ALIGNMENT = 128  # of slots, and of the children of a distinct group


# ------------------------------------------------------------------------------------------------ the tree
@dataclass(frozen=True, eq=False)
class Leaf:
    """An array of `count` buffers of `size` bytes each; itself and no other, whatever its fields."""

    name: str
    size: int
    count: int


@dataclass(frozen=True)
class Group:
    kind: str  # shared or distinct
    children: tuple[Node, ...]
    group_size: int = 1


Node = Union[Leaf, Group]


@dataclass(frozen=True)
class Place:
    """Where the buffers of an array lie: buffer i is buffer `index(i)` of a dense array from the storage's start."""

    size: int
    offset: int
    pitch: int  # bytes from one slot to the next
    group: int  # consecutive buffers in a slot

    @property
    def scale(self) -> int:
        """Buffers of this size from one slot to the next."""
        return self.pitch // self.size

    def index(self, i: int) -> int:
        return self.offset // self.size + i // self.group * self.scale + i % self.group


@dataclass(frozen=True)
class Plan:
    slot: int
    total: int
    places: dict[Leaf, Place]


def plan(root: Group) -> Plan:
    """Places every array of the tree; raises `CompileError` where an array does not fit the steps of its storage."""
    slot = _up(size_of(root))
    places = {leaf: Place(leaf.size, at, slot, group) for leaf, at, group in _offsets(root, 0, 1)}
    for leaf, place in places.items():
        _check(leaf, place)
    slots = max(-(-leaf.count // place.group) for leaf, place in places.items())
    return Plan(slot, slot * slots, places)


def size_of(node: Node) -> int:
    """Bytes of a node in one slot."""
    if isinstance(node, Leaf):
        return node.size
    if node.kind == "shared":
        return node.group_size * max(map(size_of, node.children))
    *_, end = (at + size_of(child) for child, at in _in_turn(node))
    return end


def _in_turn(node: Group) -> Iterator[tuple[Node, int]]:
    """The children of a distinct group and their offsets in it."""
    at = 0
    for child in node.children:
        at = _up(at)
        yield child, at
        at += size_of(child)


def _offsets(node: Node, at: int, group: int) -> Iterator[tuple[Leaf, int, int]]:
    """(array, offset, buffers in a slot) of each array."""
    if isinstance(node, Leaf):
        yield node, at, group
    elif node.kind == "shared":
        for child in node.children:
            yield from _offsets(child, at, group * node.group_size)
    else:
        if group > 1:
            raise CompileError(
                "a distinct group lies in a shared group with a group_size",
                found=f"group_size {group} above a distinct group of {len(node.children)} elements",
                allowed="group sizes of shared groups that hold buffers or shared groups",
                fix="make the distinct group the outer one, and give each of its elements a shared group with the "
                "group_size",
            )
        for child, start in _in_turn(node):
            yield from _offsets(child, at + start, group)


def _up(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def _check(leaf: Leaf, place: Place) -> None:
    """Slots and offsets are whole buffers of the array."""
    steps = (("units_between_buffer_groups", place.pitch), ("buffer_offset", place.offset))
    for name, step in steps:
        if step % leaf.size:
            raise CompileError(
                f"{name} ({step}) must be a multiple of the original buffer size ({leaf.size})",
                found=f"{leaf.name}, of {leaf.size} bytes per buffer, in a storage of {place.pitch} bytes per "
                f"group, at "
                f"byte {place.offset} of it",
                fix="order distinct groups from the largest buffer to the smallest, or pad extents to powers of two",
            )


# ------------------------------------------------------------------------------------------------ the pass
def place_aliases(module: Module, target: Target) -> None:
    """See the invariant of this module."""
    storages: dict[int, list[Op]] = {}
    trees: dict[int, Op] = {}
    for op in module.walk():
        if op.kind == "local_alloc" and "alias" in op.attrs:
            storages.setdefault(op.attrs["alias"][0], []).append(op)
        elif op.kind == "buffer_overlap":
            _remember(trees, op)
    if not storages:
        return
    for number, allocs in storages.items():
        _place(number, allocs, trees.get(number))
    _step_views(module)
    for region in (module.body, *(r for op in module.walk() for r in op.regions)):
        region.ops = [op for op in region.ops if op.kind != "buffer_overlap"]


def _remember(trees: dict[int, Op], op: Op) -> None:
    first = trees.setdefault(op.attrs["alias"], op)
    if first is not op:
        raise CompileError(
            "the overlap of a storage_alias_spec is set twice",
            found="two calls of set_buffer_overlap, or one in code that is compiled more than once, as a replica",
            allowed="one call for each spec",
            fix="combine the groups in one tree, or make the spec where the second call stands",
            loc=op.loc,
            related=[("the overlap is set before", first.loc)],
        )


def _place(number: int, allocs: list[Op], tree: Op | None) -> None:
    """Fills in `alias` and the steps of all allocations of one storage."""
    leaves = {op.result: _leaf(op) for op in allocs}
    total, places = 0, {}
    if tree is not None:
        try:
            made = plan(_group(tree.attrs["tree"], [leaves[v] for v in tree.inputs]))
        except CompileError as error:
            raise error.at(tree.loc) if tree.loc is not None else error  # noqa: B904  (it is the same error)
        total, places = made.total, made.places
    total = max([total, *(leaf.size * leaf.count for leaf in leaves.values() if leaf not in places)])
    given = max(op.attrs["alias"][1] for op in allocs)
    if given and given < total:
        raise _too_small(given, total, allocs, tree)
    for op in allocs:
        t, place = op.result.type, places.get(leaves[op.result])
        assert isinstance(t, Buffer)
        if place is not None and place.pitch != place.size * place.group:
            op.result.type = replace(t, pitch=place.pitch, group=place.group)
        op.attrs["alias"] = number, place.offset if place is not None else 0, max(given, total)


def _leaf(op: Op) -> Leaf:
    t = op.result.type
    assert isinstance(t, Buffer)
    return Leaf(op.result.name or f"a buffer {t.shape} of {t.dtype!r}", prod(t.shape) * t.dtype.bytes, max(1, t.count))


def _group(tree: Any, leaves: list[Leaf]) -> Any:
    """A node from the attribute of a `buffer_overlap`."""
    if isinstance(tree, int):
        return leaves[tree]
    kind, group_size, children = tree
    return Group(kind, tuple(_group(child, leaves) for child in children), group_size)


def _too_small(given: int, total: int, allocs: list[Op], tree: Op | None) -> CompileError:
    return CompileError(
        f"buffer_size_bytes ({given}) is too small: this storage requires at least {total} bytes",
        found="; ".join(f"{leaf.name}, {leaf.count} x {leaf.size} bytes" for leaf in map(_leaf, allocs)),
        fix="give more bytes, or leave buffer_size_bytes out",
        loc=(tree or allocs[-1]).loc,
    )


def _step_views(module: Module) -> None:
    """A view of a whole array as another type steps like the array."""
    changed: dict[Value, Buffer] = {}
    for op in module.walk():
        for v in op.results:
            if isinstance(v.type, Buffer) and v.type.pitch:
                changed[v] = v.type
        if op.kind == "local_reinterpret" and op.inputs[0] in changed:
            t, source = op.result.type, changed[op.inputs[0]]
            assert isinstance(t, Buffer)
            if t.count:
                op.result.type = changed[op.result] = replace(t, pitch=source.pitch, group=source.group)
