"""What scripts/plot.py draws, and that drawing the same results again changes nothing."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def plot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plot", ROOT / "scripts" / "plot.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(case: str, ours: float, peers: dict[str, float], **more: object) -> dict[str, object]:
    return {"case": case, "tlxc": ours, "peers": peers, **more}


def test_attention_is_drawn_by_length(plot: ModuleType) -> None:
    records = [
        record("float16 D=64 N=8192 full burst", 5.0, {"cuDNN": 4.0}),
        record("float16 D=64 N=2048 full burst", 3.0, {"cuDNN": 2.0}),
        record("float16 D=64 N=2048 full cool", 9.0, {"cuDNN": 9.0}),
        record("float16 D=64 N=2048 causal burst", 1.0, {}),
    ]
    assert plot.attention_lines(records) == {
        "float16 D=64 full": {"tlxc": [(2048, 3.0), (8192, 5.0)], "cuDNN": [(2048, 2.0), (8192, 4.0)]},
        "float16 D=64 causal": {"tlxc": [(2048, 1.0)]},
    }


def test_products_are_drawn_as_ratios_within_rounds(plot: ModuleType) -> None:
    samples = {"tlxc": [1.0, 3.0, 4.0], "cuBLAS": [1.0, 2.0, 5.0]}
    made = record("float16 16x32x64 graph", 3.0, {"cuBLAS": 2.0}, samples=samples, ratio_interval=[0.8, 1.5])
    assert plot.product_ratios([made]) == {"float16": [("16×32×64", "graph", 1.0, 0.8, 1.5)]}


def test_launches_are_drawn_with_each_peer_once(plot: ModuleType) -> None:
    records = [record("many", 5.0, {"floor": 3.0}), record("few", 4.0, {"floor": 3.0})]
    assert plot.launch_times(records) == [("floor", "floor", 3.0), ("few", "tlxc", 4.0), ("many", "tlxc", 5.0)]


def test_contestants_have_colours_of_their_own(plot: ModuleType) -> None:
    names = ["tlxc", "floor", "cuda.bindings", "torch.add", "triton"]
    assert len({plot.colour(name, names) for name in names}) == len(names)


def test_drawing_again_changes_nothing(plot: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot.main(tmp_path / "a")
    plot.main(tmp_path / "b")
    for name in plot.DRAWINGS:
        for suffix in ("svg", "png"):
            first, second = (tmp_path / run / f"{name}.{suffix}" for run in "ab")
            assert first.read_bytes() == second.read_bytes()


def test_drawings_are_small() -> None:
    drawn = list((ROOT / "docs" / "plots").glob("*.svg"))
    assert len(drawn) == 3 and all(path.stat().st_size < 100_000 for path in drawn)
