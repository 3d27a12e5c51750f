"""Storage that buffers share: the worked examples of the language reference, and what does not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tlxc.errors import CompileError
from tlxc.passes.alias import Group, Leaf, Tree, alias_offsets


def shared(*children: Tree, group: int = 1) -> Group:
    return Group("shared", children, group)


def distinct(*children: Tree) -> Group:
    return Group("distinct", children)


def leaf(name: str, elements: int, bytes_: int, count: int = 2) -> Leaf:
    return Leaf(name, elements * bytes_, count)


CASES: list[tuple[Callable[[], Tree], int, int, dict[str, list[int]]]] = [
    (lambda: shared(leaf("a", 4096, 4), leaf("b", 4096, 2)), 16384, 32768, {"a": [0, 1], "b": [0, 2]}),
    (lambda: distinct(leaf("a", 4096, 4), leaf("b", 4096, 4)), 32768, 65536, {"a": [0, 2], "b": [1, 3]}),
    (
        lambda: shared(leaf("qk", 4096, 4), distinct(leaf("p", 4096, 2), leaf("alpha", 64, 4))),
        16384,
        32768,
        {"qk": [0, 1], "p": [0, 2], "alpha": [32, 96]},
    ),
    (
        lambda: distinct(leaf("a", 1024, 4), shared(leaf("b", 1024, 4), leaf("c", 1024, 2))),
        8192,
        16384,
        {"a": [0, 2], "b": [1, 3], "c": [2, 6]},
    ),
    (lambda: shared(leaf("big", 4096, 2), leaf("small", 1024, 2)), 8192, 16384, {"big": [0, 1], "small": [0, 4]}),
    (
        lambda: distinct(
            shared(leaf("a", 2, 4, 4), distinct(leaf("b", 2, 4, 4), leaf("c", 1, 2, 4))), leaf("d", 2, 4, 4)
        ),
        384,
        1536,
        {"a": [0, 48, 96, 144], "b": [0, 48, 96, 144], "c": [64, 256, 448, 640], "d": [32, 80, 128, 176]},
    ),
    # Parts of a buffer are packed: 4 quarters for 2 buffers of twice two.
    (
        lambda: shared(leaf("qk", 16384, 4), shared(leaf("p", 4096, 4, 4), group=2)),
        65536,
        131072,
        {"qk": [0, 1], "p": [0, 1, 4, 5]},
    ),
]


@pytest.mark.parametrize(("tree", "slot", "total", "indices"), CASES)
def test_worked_examples(tree: Callable[[], Tree], slot: int, total: int, indices: dict[str, list[int]]) -> None:
    storage = alias_offsets(tree())
    assert (storage.slot, storage.total) == (slot, total)
    found = {name: [place.index(i) for i in range(len(indices[name]))] for name, place in storage.places.items()}
    assert found == indices


def test_live_together_means_apart() -> None:
    a, b = Leaf("a", 96, 3, 16), Leaf("b", 128, 3)
    places = alias_offsets(distinct(a, shared(b, Leaf("c", 32, 6), group=2))).places
    spans = [[(places[x.name].index(i) * x.size, x.size) for i in range(x.count)] for x in (a, b)]
    for start, size in spans[0]:
        assert all(start + size <= other or other + n <= start for other, n in spans[1])


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (shared(Leaf("a", 16384, 2), Leaf("b", 96, 2)), "do not line up"),
        (shared(Leaf("a", 512, 2), distinct(Leaf("b", 64, 4), Leaf("c", 64, 4)), group=2), "not enough space"),
    ],
)
def test_what_does_not_fit(tree: Tree, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        alias_offsets(tree)


def test_swizzled_buffers_keep_their_alignment() -> None:
    storage = alias_offsets(distinct(Leaf("a", 256, 2, 1024), Leaf("b", 256, 2, 1024)))
    assert storage.slot == 2048 and storage.places["b"].start * 256 == 1024
