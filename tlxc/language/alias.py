"""Storage that several buffer arrays share, by the author's own plan."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.core import Op, Value
from tlxc.ir.types import Buffer

from .context import current
from .core import builder, builtin, describe, literal_int
from .handles import buffered_tensor, not_yet


class storage_kind(Enum):
    """Where a buffer lives: shared memory, tensor memory (Blackwell), or the shared memory of another CTA."""

    smem = "smem"
    tmem = "tmem"
    smemCluster = "smemCluster"


class reuse_group_type(Enum):
    """How the elements of a `reuse_group` divide its bytes: `shared` all have the same ones, at different times,
    `distinct` each has its own."""

    shared = "shared"
    distinct = "distinct"


def check_storage(storage: Any, what: str) -> None:
    """Only shared memory is allocated; tensor memory has a target's own reason."""
    if storage is storage_kind.tmem:
        not_yet("tcgen05", "tensor memory", "leave `storage` out, for shared memory")
    if storage is not storage_kind.smem:
        raise CompileError(f"{what} takes shared memory only", found=describe(storage), allowed="storage_kind.smem")


class reuse_group:
    """A node of the tree that `set_buffer_overlap` takes: buffer arrays and groups, which occupy the same bytes
    (`reuse_group_type.shared`) or each its own, from multiples of 128 bytes (`reuse_group_type.distinct`).

    `group_size=g`, of a shared group: g consecutive buffers of each element belong to one buffer of the group.
    Targets: all.  Errors: no element; elements of another type; a group size below 1.
    """

    __slots__ = ("args", "group_type", "group_size")

    def __init__(
        self, *elements: Any, group_type: reuse_group_type = reuse_group_type.shared, group_size: int = 1
    ) -> None:
        if not elements:
            raise CompileError("a reuse_group has at least one element", found="none", fix="name the buffers in it")
        for x in elements:
            if not isinstance(x, (buffered_tensor, reuse_group)):
                raise CompileError(
                    "an element of reuse_group is a buffer array or another reuse_group", found=describe(x)
                )
        if not isinstance(group_type, reuse_group_type):
            raise CompileError(
                "unknown group_type",
                found=describe(group_type),
                allowed="reuse_group_type.shared, reuse_group_type.distinct",
            )
        size = literal_int(group_size, "group_size")
        if size < 1:
            raise CompileError("group_size counts buffers", found=str(size), allowed="1, 2, ...")
        if size > 1 and group_type is reuse_group_type.distinct:
            raise CompileError(
                "group_size has no effect on a distinct group",
                found=f"group_size={size}",
                fix="give it to shared groups inside: reuse_group(buf, group_size=...)",
            )
        self.args, self.group_type, self.group_size = elements, group_type, size

    def leaves(self) -> Iterator[buffered_tensor]:
        """The arrays of the tree, in the order in which it names them."""
        for x in self.args:
            yield from x.leaves() if isinstance(x, reuse_group) else (x,)

    def attribute(self, numbers: Iterator[int]) -> tuple[Any, ...]:
        """The tree as `buffer_overlap` has it, its arrays numbered."""
        children = tuple(x.attribute(numbers) if isinstance(x, reuse_group) else next(numbers) for x in self.args)
        return (self.group_type.value, self.group_size, children)

    def __repr__(self) -> str:
        return f"reuse_group of {len(self.args)} elements, {self.group_type.value}, group_size={self.group_size}"


class storage_alias_spec:
    """A piece of shared memory that the buffer arrays allocated with `reuse=spec` share.

    Without `set_buffer_overlap` each of them starts at its first byte, and it is as big as the biggest.
    `buffer_size_bytes`: at least so many bytes; too few are an error.  What overlaps must not be live at once: the
    compiler orders accesses inside one task, between tasks order is the author's work.  `tlx.local_alloc(reuse=buf)`
    shares the memory of one buffer array without a spec.  A spec in which nothing is allocated gives a warning.
    Targets: all.  Errors: another storage than shared memory; a size below 1.
    """

    __slots__ = ("_number", "_storage", "_bytes")

    def __init__(self, storage: storage_kind = storage_kind.smem, buffer_size_bytes: int | None = None) -> None:
        check_storage(storage, "storage_alias_spec")
        size = 0 if buffer_size_bytes is None else literal_int(buffer_size_bytes, "buffer_size_bytes")
        if buffer_size_bytes is not None and size < 1:
            fix = "leave it out for as many as needed"
            raise CompileError("buffer_size_bytes is positive", found=str(size), fix=fix)
        self._number, self._storage, self._bytes = new_storage(), storage, size
        current().unused_specs[self._number] = builder().loc

    @property
    def storage(self) -> storage_kind:
        """Where it is: shared memory."""
        return self._storage

    @property
    def buffer_size_bytes(self) -> int | None:
        """The size that the author gave, or None."""
        return self._bytes or None

    @property
    def attribute(self) -> tuple[int, int]:
        """The `alias` of its allocations: number and bytes."""
        return self._number, self._bytes

    @builtin
    def set_buffer_overlap(self, overlap_def: Any) -> None:
        """Says how the arrays of this spec share it: a tree of `reuse_group`s that names each of them once, at most one
        for a spec.  Arrays that it leaves out start at the first byte.  A compile-time `if` may choose the tree.

        Targets: all.  Errors: no reuse_group; arrays of another spec; an array named twice; a second call; buffers
        whose size does not divide the bytes between them.
        """
        if not isinstance(overlap_def, reuse_group):
            raise CompileError(
                "set_buffer_overlap takes a reuse_group",
                found=describe(overlap_def),
                fix="write spec.set_buffer_overlap(tlx.reuse_group(a, b))",
            )
        leaves = [self._leaf(x) for x in overlap_def.leaves()]
        twice = next((v for i, v in enumerate(leaves) if v in leaves[:i]), None)
        if twice is not None:
            raise CompileError(
                "a buffer array occurs twice in the overlap of a spec",
                found=f"{twice.name or 'an array'}, {buffered_tensor(twice).describe()}",
                allowed="each allocation of the spec once",
            )
        tree = overlap_def.attribute(iter(range(len(leaves))))
        builder().op("buffer_overlap", leaves, alias=self._number, tree=tree)

    def _leaf(self, x: buffered_tensor) -> Value:
        op = x.value.op
        if op is None or op.kind != "local_alloc" or op.attrs.get("alias", (0,))[0] != self._number:
            raise CompileError(
                "the overlap of a spec names buffers that are no allocations of it",
                found=f"{x.value.name or 'a buffer'}, {x.describe()}",
                allowed="what tlx.local_alloc(..., reuse=spec) gave, whole arrays and no views",
                fix="allocate it with reuse=spec",
            )
        return x.value

    def __repr__(self) -> str:
        size = f", size={self._bytes}" if self._bytes else ""
        return f"storage_alias_spec(storage={self._storage.value}{size})"


def new_storage() -> int:
    """A number for storage that allocations of this kernel share."""
    context = current()
    context.storages += 1
    return context.storages


def shared_storage(reuse: Any) -> tuple[int, int]:
    """The `alias` of an allocation that shares the memory of `reuse`: a spec, or an earlier buffer array."""
    if isinstance(reuse, storage_alias_spec):
        current().unused_specs.pop(reuse.attribute[0], None)
        return reuse.attribute
    if not isinstance(reuse, buffered_tensor):
        raise CompileError(
            "reuse is a storage_alias_spec or a buffer array",
            found=describe(reuse),
            fix="make a spec with tlx.storage_alias_spec(), and pass it to each local_alloc that shares it",
        )
    op = _allocation(reuse)
    if "alias" not in op.attrs:
        op.attrs["alias"] = new_storage(), 0
    number, size = op.attrs["alias"]
    return number, size


def _allocation(x: buffered_tensor) -> Op:
    """The allocation of a whole array."""
    op = x.value.op
    if op is None or op.kind != "local_alloc":
        raise CompileError(
            "reuse takes a whole buffer array",
            found=f"a view, {x.describe()}",
            fix="name what tlx.local_alloc gave, or use tlx.local_reinterpret to see a buffer in another type",
        )
    assert isinstance(x.value.type, Buffer)
    return op
