"""`hopper_gemm_fused` on small matrices, in the emulator and the simulator: operands either way round, epilogues."""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numeric.support import Blocks, emulate

import tlxc
from tlxc import tl

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))
from _activations import activate  # noqa: E402

Array = np.ndarray[Any, Any]

SMALL: dict[str, Any] = {"BM": 128, "BN": 64, "BK": 32, "BC": 32, "GROUP": 2, "STAGES": 2}
SHAPES = [(256, 128, 160), (200, 72, 104)]


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def integers(rng: np.random.Generator, *shape: int, dtype: Any = np.float16) -> Array:
    """Small enough for exact sums in 16 bits."""
    return rng.integers(-2, 3, shape).astype(dtype)


def run(a: Array, b: Array, c: Array, extras: dict[str, Array | None] | None = None, **options: Any) -> None:
    """The kernel on the matrices as they are stored, on two CTAs.  extras: bias and residual."""
    options = {**SMALL, **options}
    left, right = options.get("A_TRANSPOSED", False), options.get("B_TRANSPOSED", False)
    (m, n), k = c.shape, a.shape[0] if left else a.shape[1]
    rows = options["BM"] // (1 if options.get("TURNS") else options.get("CONSUMERS", 2))
    bn, bk = options["BN"], options["BK"]
    blocks = ((bk, rows) if left else (rows, bk), (bn, bk) if right else (bk, bn), (rows, options["BC"]))
    nothing = np.zeros((8, 8), a.dtype)  # no one reads it
    described = [Blocks(x, block) for x, block in zip((a, b, c) if k else (nothing, nothing, c), blocks)]
    where = {"bias": (bn,), "residual": (rows, options["BC"])}
    more = {f"{name}_desc": Blocks(x, where[name]) for name, x in (extras or {}).items() if x is not None}
    emulate(importlib.import_module("hopper_gemm_fused").gemm, (2,), *described, m, n, k, **more, **options)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize(("left", "right"), list(product((False, True), repeat=2)))
def test_operands_either_way_round(left: bool, right: bool, consumers: int, shape: tuple[int, int, int]) -> None:
    (m, n, k), rng = shape, np.random.default_rng(sum(shape))
    dtype = ml_dtypes.bfloat16 if left else np.float16
    a, b = integers(rng, m, k, dtype=dtype), integers(rng, k, n, dtype=dtype)
    c = np.full((m, n), np.nan, dtype)
    stored = [np.ascontiguousarray(x.T) if t else x for x, t in ((a, left), (b, right))]
    run(*stored, c, A_TRANSPOSED=left, B_TRANSPOSED=right, BM=64 * consumers, CONSUMERS=consumers)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(c.astype(np.float64), exact.astype(dtype).astype(np.float64))


@pytest.mark.parametrize(("columns", "width"), [(192, 64), (96, 32), (160, 32), (192, 32), (72, 8), (240, 16)])
def test_tiles_of_any_width(columns: int, width: int) -> None:
    """Stored in parts of a power of two."""
    m, n, k, rng = 72, columns + 16, 40, np.random.default_rng(columns)
    a, b = integers(rng, m, k), integers(rng, n, k)
    c, residual = np.full((m, n), np.nan, np.float16), integers(rng, m, n)
    run(a, b, c, {"residual": residual}, BM=64, CONSUMERS=1, BN=columns, BC=width, B_TRANSPOSED=True)
    np.testing.assert_array_equal(c.astype(np.float64), a.astype(np.float64) @ b.T.astype(np.float64) + residual)


def normal(x: Array) -> Array:
    """The normal distribution."""
    return 0.5 + 0.5 * np.vectorize(math.erf)(x / math.sqrt(2))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * normal(x),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}
# (activation, dtype of the bias, whether there is a residual, alpha, dtype of C, options)
BY_COLUMNS: dict[str, Any] = {"A_TRANSPOSED": True, "B_TRANSPOSED": True}
IN_TURNS: dict[str, Any] = {"TURNS": True, "STAGES": 3, "B_TRANSPOSED": True}
EPILOGUES: list[tuple[str, Any, bool, float | None, Any, dict[str, Any]]] = [
    ("", np.float16, False, None, np.float16, {}),
    ("", None, True, None, np.float16, {"A_TRANSPOSED": True}),
    ("", None, False, 0.25, np.float32, {"B_TRANSPOSED": True}),
    ("relu", np.float32, False, None, np.float16, BY_COLUMNS),
    ("silu", np.float16, True, 0.5, np.float16, {"B_TRANSPOSED": True}),
    ("silu", None, False, 0.5, ml_dtypes.bfloat16, IN_TURNS),
    ("gelu", ml_dtypes.bfloat16, True, 0.125, ml_dtypes.bfloat16, {"BM": 64, "CONSUMERS": 1}),
    ("gelu_tanh", np.float16, False, 0.25, np.float16, BY_COLUMNS),
    ("gelu", np.float32, True, 0.125, np.float32, {"STAGES": 3}),
    ("gelu_tanh", np.float16, True, None, np.float16, IN_TURNS),
]


@pytest.mark.parametrize("shape", [*SHAPES, (136, 72, 0)], ids=str)
@pytest.mark.parametrize("case", EPILOGUES, ids=str)
def test_epilogue(case: tuple[str, Any, bool, float | None, Any, dict[str, Any]], shape: tuple[int, int, int]) -> None:
    (activation, bias_dtype, with_residual, alpha, dtype, options), (m, n, k) = case, shape
    rng = np.random.default_rng(m + k)
    operands = ml_dtypes.bfloat16 if dtype is ml_dtypes.bfloat16 else np.float16
    a, b = integers(rng, m, k, dtype=operands), integers(rng, k, n, dtype=operands)
    c = np.full((m, n), np.nan, dtype)
    bias = None if bias_dtype is None else rng.standard_normal(n).astype(bias_dtype)
    residual = rng.standard_normal((m, n)).astype(dtype) if with_residual else None
    more = options if alpha is None else {**options, "alpha": alpha}
    turned = (options.get("A_TRANSPOSED", False), options.get("B_TRANSPOSED", False))
    stored = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turned)]
    run(*stored, c, {"bias": bias, "residual": residual}, ACTIVATION=activation, **more)
    x = (alpha or 1.0) * (a.astype(np.float64) @ b.astype(np.float64))
    x = ACTIVATIONS[activation](x + (0 if bias is None else bias.astype(np.float64)))
    wanted = x + (0 if residual is None else residual.astype(np.float64))
    rounding = {np.float16: 2.0**-11, np.float32: 2.0**-20, ml_dtypes.bfloat16: 2.0**-8}[dtype]
    np.testing.assert_allclose(c.astype(np.float64), wanted, rtol=1.1 * rounding, atol=4e-5)


@tlxc.kernel
def activated(x, y, NAME: tl.constexpr, BLOCK: tl.constexpr = 1024):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, activate(tl.load(x + at), NAME))


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_activations_are_as_exact_as_16_bits_show(name: str) -> None:
    """Over all of float16: within a rounding of it, or 2e-5."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = x[np.isfinite(x)][: 62 * 1024].astype(np.float32)
    y = np.full_like(x, np.nan)
    emulate(activated, (62,), x, y, NAME=name)
    with np.errstate(over="ignore"):
        wanted = ACTIVATIONS[name](x.astype(np.float64))
    np.testing.assert_allclose(y, wanted, rtol=2.0**-11, atol=2e-5)


@pytest.mark.parametrize("stored", list(product((False, True), repeat=3)), ids=str)
def test_launch_takes_tensors_as_they_are_strided(stored: tuple[bool, bool, bool]) -> None:
    """In the simulator; a C by columns is computed as the transposed product."""
    torch, example = pytest.importorskip("torch"), importlib.import_module("hopper_gemm_fused")
    m, n, k = 136, 72, 40
    shapes = ((m, k), (k, n), (m, n))
    a, b, c = (
        torch.randint(-2, 3, shape[::-1]).half().mT if by_columns else torch.randint(-2, 3, shape).half()
        for shape, by_columns in zip(shapes, stored)
    )
    with tlxc.simulate():
        example.launch(a, b, c, **SMALL)
    assert c.stride() == ((1, m) if stored[2] else (n, 1))
    assert torch.equal(c.double(), a.double() @ b.double())


def test_a_residual_by_columns_like_the_result() -> None:
    torch, example = pytest.importorskip("torch"), importlib.import_module("hopper_gemm_fused")
    a, b, residual = (torch.randint(-2, 3, shape).half() for shape in ((136, 40), (40, 72), (72, 136)))
    c = torch.empty(72, 136, dtype=torch.float16).mT
    with tlxc.simulate():
        example.launch(a, b, c, residual=residual.mT, activation="relu", **SMALL)
        with pytest.raises(ValueError, match="and dimension 0 contiguous"):
            example.launch(a, b, c, residual=residual.mT.contiguous(), **SMALL)
        with pytest.raises(ValueError, match="the rows of c are contiguous"):
            example.launch(a, b, c, bias=b[0], **SMALL)
    assert torch.equal(c.double(), example.reference(torch, a, b, residual=residual.mT, activation="relu"))


SIMULATED: list[dict[str, Any]] = [
    {"extras": (), "activation": "relu"},
    {"extras": ("bias",), "activation": "", "STAGES": 3},
    {"extras": ("residual",), "activation": "", "CONSUMERS": 1, "BM": 64},
    {"extras": ("bias", "residual"), "activation": "relu"},
    {"extras": (), "activation": "", "TURNS": True, "STAGES": 3},
    {"extras": ("bias", "residual"), "activation": "relu", "TURNS": True, "BM": 64},
]


def simulate(options: dict[str, Any], trips: int, seed: int) -> None:
    """Each CTA has two or three tiles; integers, so that results are exact."""
    torch, example = pytest.importorskip("torch"), importlib.import_module("hopper_gemm_fused")
    torch.manual_seed(trips)
    m, n, k = 200, 136, 32 * trips
    operands = {"a": (m, k), "b": (k, n), "c": (m, n), "bias": (n,), "residual": (m, n)}
    a, b, c, *_ = made = [torch.randint(-2, 3, shape).half() for shape in operands.values()]
    extras = {name: x for name, x in zip(operands, made) if name in options["extras"]}
    rest = {name: x for name, x in options.items() if name != "extras"}
    with tlxc.simulate(seed=seed):
        example.launch(a, b, c, **extras, **{**SMALL, **rest})
    wanted = example.reference(torch, a, b, **extras, activation=options["activation"])
    assert torch.equal(c.double(), wanted)


@pytest.mark.parametrize("options", SIMULATED, ids=str)
def test_of_any_number_of_steps_in_the_simulator(options: dict[str, Any]) -> None:
    for trips in range(10):
        simulate(options, trips, seed=trips)


@pytest.mark.parametrize("options", SIMULATED, ids=str)
def test_in_twenty_schedules(options: dict[str, Any]) -> None:
    for seed in range(20):
        simulate(options, 3, seed)


def test_without_contiguous_rows_or_columns() -> None:
    torch, example = pytest.importorskip("torch"), importlib.import_module("hopper_gemm_fused")
    a = torch.zeros(64, 64, dtype=torch.float16)
    message = (
        "The matrix b of shape (64, 32) has strides (128, 2); one of them must be 1, so that rows or columns are "
        "contiguous. Pass a copy, as .contiguous() makes one."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        example.launch(a, torch.zeros(64, 128, dtype=torch.float16)[:, :64:2], a[:, :32])


@pytest.mark.parametrize("tile", [*range(6)])
def test_as_many_stages_as_there_is_room_for(tile: int) -> None:
    """Of every tile that `prepare` chooses from, with all extras and with none."""
    torch, example = pytest.importorskip("torch"), importlib.import_module("hopper_gemm_fused")
    options = example._named(list(example.TILES)[tile])
    x, c, bias = (torch.empty(64, 512, dtype=t) for t in (torch.float16, torch.float32, torch.float32))
    for extras in ((x, None, None), (c, bias[0], c)):
        count = example.stages(options["BM"], options["BN"], options["TURNS"], *extras)
        if count >= 3:
            more = {**options, "BC": 128 // extras[0].element_size()}
            described = example.describe(x, x, *extras, **more)
            made = example.gemm.warmup(**described, M=64, N=512, K=512, STAGES=count, target="sm_90", **more)
            assert made.shared <= 227 * 1024 and made.spill_bytes == 0 and not made.notes
