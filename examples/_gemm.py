"""What the Hopper GEMM examples share: the order of tiles, the columns of an accumulator, and the check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import _support

import tlxc
from tlxc import tl

SHAPES = (
    (128, 256, 64),
    (1024, 1024, 512),
    (4096, 4096, 256),
    (200, 328, 136),
    (1, 8, 8),
    (129, 264, 1032),
    (64, 8, 0),
)


def tile_origin(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a tile of C.  GROUP tile rows are walked together, so that blocks are found in the L2 cache."""
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = tile // (GROUP * columns)
    height = min(rows - group * GROUP, GROUP)
    within = tile % (GROUP * columns)
    return (group * GROUP + within % height) * BM, (within // height) * BN


def column_parts(x, width: tl.constexpr):
    """A tile as a tuple of tiles of `width` columns, a power of two; no data moves."""
    PARTS: tl.constexpr = x.shape[1] // width
    if PARTS == 1:
        return (x,)
    ODD: tl.constexpr = PARTS // (PARTS & -PARTS)
    WAYS: tl.constexpr = ODD if ODD > 1 else 2
    found = ()
    for part in x.reshape(x.shape[0], WAYS, x.shape[1] // WAYS).permute(0, 2, 1).split():
        found += column_parts(part, width)
    return found


def descriptors(a: Any, b: Any, c: Any, *blocks: Sequence[int]) -> list[tlxc.TensorDescriptor]:
    """Descriptors of the three matrices in blocks of those shapes.  Where K is 0, A and B have no elements to describe
    and nothing reads them: C stands in."""
    matrices = (a, b, c) if a.shape[1] else (c, c, c)
    return [tlxc.TensorDescriptor.from_tensor(x, list(block)) for x, block in zip(matrices, blocks)]


def example(grid: int, *blocks: Sequence[int], k: int = 512, **constants: Any) -> tuple[tuple[int], dict[str, Any]]:
    """What `tlxc check` and `tlxc trace` run without a GPU: the grid and the arguments of 4 tiles of 128 x 256."""
    m, n = 256, 512
    a, b, c = (_support.rows(1, *shape)[0] for shape in ((m, k), (k, n), (m, n)))
    described = descriptors(a, b, c, *blocks)
    return (grid,), dict(zip(("a_desc", "b_desc", "c_desc"), described)) | dict(M=m, N=n, K=k) | constants


def check(
    torch: Any, launch: Callable[..., None], shapes: Sequence[tuple[int, int, int]] = SHAPES, **constants: Any
) -> None:
    """`launch(a, b, c, **constants)` against float64, on whole tiles, ragged ones, single ones, and without a K."""
    for m, n, k in shapes:
        for dtype in (torch.float16, torch.bfloat16):
            a = torch.randn(m, k, device="cuda", dtype=dtype)
            b = torch.randn(k, n, device="cuda", dtype=dtype)
            c = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
            launch(a, b, c, **constants)
            if k:
                _support.expect_close(c, a.double() @ b.double(), dtype)
            elif c.any():
                raise SystemExit(f"wrong result for K = 0: C (M, N) = ({m}, {n}) is not zero")
