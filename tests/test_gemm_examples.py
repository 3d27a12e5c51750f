"""The GEMM examples beyond one product of whole waves: batches, split sums, and every GEMM under many schedules.

Small matrices of small integers, whose sums are exact.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numeric.support import Blocks, emulate

import tlxc

EXAMPLES = Path(__file__).parent.parent / "examples"
BK, BN, BC = 32, 64, 32


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def integers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """Small enough for exact sums in float16."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float16)


def nothing(*shape: int) -> np.ndarray[Any, Any]:
    return np.full(shape, np.nan, np.float16)


def expect_product(c: Any, a: Any, b: Any) -> None:
    np.testing.assert_array_equal(c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64))


# ------------------------------------------------------------------------------------------------------------- batched
BATCHED = {
    "halves": dict(BM=128, STAGES=3, LEAD=2, PINGPONG=False),
    "pingpong": dict(BM=64, STAGES=2, PINGPONG=True),
}
PRODUCTS = [(3, 128, 64, 64), (2, 200, 72, 104), (4, 1, 8, 8), (1, 264, 136, 40), (3, 72, 64, 0)]


@pytest.mark.parametrize("shape", PRODUCTS, ids=str)
@pytest.mark.parametrize("form", BATCHED)
def test_batched(form: str, shape: tuple[int, int, int, int]) -> None:
    """Two CTAs walk over the tiles of all products; rows of one product do not spill into the next."""
    batch, m, n, k = shape
    a, b, c = integers(sum(shape), batch, m, k), integers(batch, batch, k, n), nothing(batch, m, n)
    blocks = ((1, 64, BK), (1, BK, BN), (1, 64, BC))
    described = [Blocks(x, block) for x, block in zip((a, b, c) if k else (c, c, c), blocks)]
    kernel = importlib.import_module("hopper_gemm_batched").gemm
    emulate(kernel, (2,), *described, batch, m, n, k, BN=BN, BK=BK, BC=BC, GROUP=2, **BATCHED[form])
    expect_product(c, a, b)


def test_products_that_share_b() -> None:
    a, b, c = integers(1, 3, 72, 40), integers(2, 1, 40, 72), nothing(3, 72, 72)
    described = [Blocks(x, block) for x, block in zip((a, b, c), ((1, 64, BK), (1, BK, BN), (1, 64, BC)))]
    kernel = importlib.import_module("hopper_gemm_batched").gemm
    emulate(kernel, (2,), *described, 3, 72, 72, 40, BN=BN, BK=BK, BC=BC, SHARED_B=True, **BATCHED["halves"])
    expect_product(c, a, b)


@pytest.mark.parametrize("case", ["products", "shared", "expanded", "gaps", "strides", "one"])
def test_operands_of_batches(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `prepare` makes of strides, on three SMs: shared B is one product of more rows where A and C allow that."""
    torch = pytest.importorskip("torch")
    example = importlib.import_module("hopper_gemm_batched")
    monkeypatch.setattr("_support.sm_count", lambda device: 3)
    torch.manual_seed(0)
    a, b = torch.randn(3, 40, 72).half(), torch.randn(3, 72, 136).half()
    a, b = {
        "products": lambda: (a, b),
        "shared": lambda: (a, b[1]),
        "expanded": lambda: (a, b[1].expand(3, -1, -1)),
        "gaps": lambda: (torch.randn(3, 48, 72).half()[:, 5:45], b[:1]),
        "strides": lambda: (a.transpose(0, 1).contiguous().transpose(0, 1), b),
        "one": lambda: (a[2], b[2]),
    }[case]()
    c = torch.full((*a.shape[:-1], 136), float("nan")).half()
    with tlxc.simulate() as simulation:
        example.launch(a, b, c, **example.FORMS["small"])
    assert not simulation.reports
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=2e-3, atol=2e-2)


def test_forms_of_batches() -> None:
    """Large tiles for large products, turns where K is short, small tiles where others would be mostly empty."""
    example = importlib.import_module("hopper_gemm_batched")
    assert example.choose(8, 4096, 4096, 4096, 132) == example.FORMS["halves"]
    assert example.choose(64, 1024, 1024, 1024, 132) == example.FORMS["pingpong"]
    assert example.choose(1000, 64, 64, 256, 132) == example.FORMS["small"]


# ---------------------------------------------------------------------------------------------------------- split sums
SPLIT = {
    "pairs": dict(BM=128, CONSUMERS=2, SPLIT=2, STAGES=2),
    "fours": dict(BM=64, CONSUMERS=1, SPLIT=4, STAGES=3),
}
SUMS = [(128, 64, 256), (136, 72, 200), (65, 8, 40), (8, 72, 8), (64, 64, 0)]


@pytest.mark.parametrize("shape", SUMS, ids=str)
@pytest.mark.parametrize("form", SPLIT)
def test_split_sums(form: str, shape: tuple[int, int, int]) -> None:
    """Whole and ragged tiles, fewer blocks of K than CTAs of a cluster, and none."""
    m, n, k = shape
    constants = SPLIT[form]
    rows, split = constants["BM"] // constants["CONSUMERS"], constants["SPLIT"]
    a, b, c = integers(sum(shape), m, k), integers(k, k, n), nothing(m, n)
    blocks = ((rows, BK), (BK, BN), (rows, BN // split))
    described = [Blocks(x, block) for x, block in zip((a, b, c) if k else (c, c, c), blocks)]
    kernel = importlib.import_module("hopper_gemm_splitk").gemm
    grid = (tlxc.cdiv(m, constants["BM"]) * tlxc.cdiv(n, BN) * split,)
    emulate(kernel, grid, *described, m, n, k, BN=BN, BK=BK, ctas_per_cga=(split, 1, 1), **constants)
    expect_product(c, a, b)


def test_what_is_split() -> None:
    """Sums are split where tiles are few and K is long, and every form fits into shared memory."""
    example = importlib.import_module("hopper_gemm_splitk")
    assert example.choose(512, 512, 16384, 132)["SPLIT"] == 8
    assert example.choose(128, 8192, 8192, 132)["SPLIT"] == 1
    assert example.choose(4096, 4096, 4096, 132)["SPLIT"] == 1
    half = tlxc.tl.float16
    for form in example.forms():
        if form["SPLIT"] > 1:
            rows, split = form["BM"] // form["CONSUMERS"], form["SPLIT"]
            blocks = ([rows, 64], [64, form["BN"]], [rows, form["BN"] // split])
            described = [tlxc.TensorDescriptor(half, [512, 512], [512, 1], block) for block in blocks]
            cluster = (split, 1, 1)
            made = example.gemm.warmup(*described, 512, 512, 512, target="sm_90", ctas_per_cga=cluster, **form)
            # Seven sums are read by rows, which takes fewer loads and one conversion.
            assert made.spill_bytes == 0
            assert {note.kind for note in made.notes} <= ({"convert"} if split == 8 else set())


def test_few_tiles_and_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `prepare` makes of a long sum, and of one that is not worth splitting."""
    torch = pytest.importorskip("torch")
    example = importlib.import_module("hopper_gemm_splitk")
    monkeypatch.setattr("_support.sm_count", lambda device: 8)
    torch.manual_seed(0)
    for m, n, k in ((40, 72, 1096), (136, 264, 40)):
        a, b, c = torch.randn(m, k).half(), torch.randn(k, n).half(), torch.full((m, n), float("nan")).half()
        with tlxc.simulate() as simulation:
            example.launch(a, b, c)
        assert not simulation.reports
        torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=2e-3, atol=2e-2)


# ------------------------------------------------------------------------------------------------------ streamed tiles
STREAM = {
    "one consumer": dict(BM=64, CONSUMERS=1, STAGES=3),
    "two consumers": dict(BM=128, CONSUMERS=2, STAGES=2),
}
# M, N, K and streamed tiles, by three CTAs: ranges of more than a tile and of less, tiles that three CTAs share
STREAMED = [(200, 72, 160, 4), (128, 136, 72, 3), (65, 8, 200, 1), (8, 200, 104, 2), (64, 200, 0, 3)]


@pytest.mark.parametrize("shape", STREAMED, ids=str)
@pytest.mark.parametrize("form", STREAM)
def test_streamed_tiles(form: str, shape: tuple[int, int, int, int]) -> None:
    m, n, k, streamed = shape
    rows, tiles = STREAM[form]["BM"], tlxc.cdiv(m, STREAM[form]["BM"]) * tlxc.cdiv(n, BN)
    a, b, c = integers(sum(shape), m, k), integers(k, k, n), nothing(m, n)
    sums, flags = np.full(3 * rows * BN, np.nan, np.float32), np.zeros(6, np.int32)
    described = [Blocks(x, block) for x, block in zip((a, b, c) if k else (c, c, c), ((64, BK), (BK, BN), (64, BC)))]
    kernel = importlib.import_module("hopper_gemm_streamk").gemm
    constants = dict(BN=BN, BK=BK, BC=BC, GROUP=2) | STREAM[form]
    emulate(kernel, (3,), *described, sums, flags, m, n, k, min(streamed, tiles), **constants)
    expect_product(c, a, b)
    assert not flags.any()


def test_what_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles beyond whole waves, unless clusters that split sums or smaller tiles are faster."""
    example = importlib.import_module("hopper_gemm_streamk")
    assert example.choose(2432, 1792, 16384, 132) == 133
    assert example.choose(2304, 4096, 4096, 132) == example.choose(384, 8192, 8192, 132) == 0
    assert example.choose(512, 512, 16384, 132) == example.choose(1024, 1024, 1024, 132) == 0
    assert example.choose(4224, 4096, 4096, 132) == 0
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("_support.sm_count", lambda device: 2)
    torch.manual_seed(0)
    for m, n, k, streamed in ((264, 264, 72, 3), (136, 264, 40, None)):
        a, b, c = torch.randn(m, k).half(), torch.randn(k, n).half(), torch.full((m, n), float("nan")).half()
        with tlxc.simulate() as simulation:
            example.launch(a, b, c, streamed=streamed)
        assert not simulation.reports
        torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=2e-3, atol=2e-2)
