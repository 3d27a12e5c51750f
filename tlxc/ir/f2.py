"""Linear algebra over F2, the field of two elements.

A vector is an int whose bits are its coordinates, addition is XOR, a matrix is a sequence of ints (its columns).
Nothing here knows about layouts.
"""

from __future__ import annotations

from collections.abc import Iterable


def rref(vectors: Iterable[int]) -> tuple[int, ...]:
    """Reduced basis of the span, ascending: equal spans give equal tuples."""
    rows: list[int] = []
    for v in vectors:
        for r in rows:
            v = min(v, v ^ r)
        if v:
            rows = [min(r, r ^ v) for r in rows] + [v]
    return tuple(sorted(rows))


class Solver:
    """Expresses vectors as XOR of generators, preferring early ones.

    `redundant` has bit i set where generator i depends on the generators before it; those are never used in a solution.
    """

    def __init__(self, generators: Iterable[int]) -> None:
        # Each row is (vector, generators that make it); no leading bit occurs twice.
        self.rows: list[tuple[int, int]] = []
        self.redundant = 0
        for i, g in enumerate(generators):
            v, code = self._reduce(g, 1 << i)
            if v:
                self.rows.append((v, code))
            else:
                self.redundant |= 1 << i

    def _reduce(self, v: int, code: int) -> tuple[int, int]:
        for row, row_code in self.rows:
            if v ^ row < v:
                v, code = v ^ row, code ^ row_code
        return v, code

    def solve(self, v: int) -> int | None:
        """Bit i of the result: generator i takes part; None outside the span."""
        rest, code = self._reduce(v, 0)
        return None if rest else code

    def __contains__(self, v: int) -> bool:
        return self._reduce(v, 0)[0] == 0

    @property
    def rank(self) -> int:
        return len(self.rows)


def span_map(bases: Iterable[int], index: int) -> int:
    """The linear map that sends bit i to bases[i], applied to `index`; bits above the bases are ignored."""
    out = 0
    for b in bases:
        if index & 1:
            out ^= b
        index >>= 1
    return out


def intersect(a: Iterable[int], b: Iterable[int]) -> tuple[int, ...]:
    """Reduced basis of span(a) & span(b): Zassenhaus' method with each pair of vectors packed into one int."""
    a, b = tuple(a), tuple(b)
    width = max([1] + [x.bit_length() for x in (*a, *b)])
    rows = rref([(x << width) | x for x in a] + [x << width for x in b])
    return tuple(r for r in rows if r >> width == 0)


def disjoint_bits(vectors: Iterable[int]) -> bool:
    """Whether no bit is set in two of the vectors: XOR of any of them is then also their sum."""
    seen = 0
    for v in vectors:
        if seen & v:
            return False
        seen |= v
    return True
