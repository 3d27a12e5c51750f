"""Draws benchmarks/results/*.json: docs/plots/{attention,gemm,launch}.svg and .png.

python scripts/plot.py [FOLDER]        needs matplotlib: pip install -e .[bench]

What is drawn are medians, for products those of ratios, with their intervals.  The files depend on the results alone:
drawing the same results again changes nothing.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PLOTS = ROOT / "docs" / "plots"

Record = Mapping[str, Any]
OURS = "tlxc"
# Colours that differ for all eyes; whoever is not named gets the next one that is left
COLOURS = {OURS: "#D55E00", "cuDNN": "#0072B2", "cuBLAS": "#0072B2", "floor": "#555555", "FlashAttention": "#009E73"}
OTHERS = ("#CC79A7", "#E69F00", "#56B4E9", "#999999")
LOADS = {"cool": "o", "burst": "s", "sustained": "D", "graph": "^"}  # of products -> marker
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "tlxc", "font.family": "sans-serif", "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.3,
    "legend.frameon": False,
}  # fmt: skip


def load(name: str, folder: Path = RESULTS) -> list[Record]:
    records: list[Record] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return records


def figures(record: Record) -> dict[str, float]:
    """Median by contestant, ours first."""
    return {OURS: record["tlxc"], **record["peers"]}


def colour(name: str, names: Sequence[str]) -> str:
    left = [other for other in names if other not in COLOURS]
    return COLOURS[name] if name in COLOURS else OTHERS[left.index(name) % len(OTHERS)]


def machine(records: Sequence[Record]) -> str:
    """What the figures were measured on, for below a plot."""
    first = records[0]
    return f"{first['card']}, driver {first['driver']}, torch {first['versions']['torch']}, tlxc at {first['commit']}"


# -- what is drawn ---------------------------------------------------------------------------------------------------


def attention_lines(records: Sequence[Record], how: str = "burst") -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Panel -> contestant -> (N, TFLOP/s), by N, of the records under this load.  A panel is all else in a case."""
    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for record in records:
        *words, under = record["case"].split()
        length = next((word for word in words if word.startswith("N=")), None)
        if under != how or length is None:
            continue
        panel = panels.setdefault(" ".join(word for word in words if word != length), {})
        for name, value in figures(record).items():
            panel.setdefault(name, []).append((int(length[2:]), value))
    return {title: {name: sorted(line) for name, line in lines.items()} for title, lines in panels.items()}


def product_ratios(records: Sequence[Record]) -> dict[str, list[tuple[str, str, float, float, float]]]:
    """Dtype -> (problem, load, ratio to cuBLAS, its interval), in the order of the records.  Ratios are medians over
    rounds of that within a round, which is what the intervals are of."""
    out: dict[str, list[tuple[str, str, float, float, float]]] = {}
    for record in records:
        dtype, *problem, under = record["case"].split()
        rounds = zip(record["samples"][OURS], record["samples"]["cuBLAS"])
        ratio = statistics.median(ours / theirs for ours, theirs in rounds)
        low, high = record["ratio_interval"]
        out.setdefault(dtype, []).append((_times(" ".join(problem)), under, ratio, low, high))
    return out


def _times(problem: str) -> str:
    return re.sub(r"(?<=\d)x(?=\d)", "×", problem)


def launch_times(records: Sequence[Record]) -> list[tuple[str, str, float]]:
    """(label, contestant, microseconds) of our launches by case, and of the others, once each, the shortest first."""
    rows = [(record["case"], OURS, record["tlxc"]) for record in records]
    peers = {name: value for record in records for name, value in record["peers"].items()}
    return sorted([*rows, *((name, name, value) for name, value in peers.items())], key=lambda row: row[2])


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw_attention(plt: Any, records: Sequence[Record]) -> Any:
    every = attention_lines(records)
    panels = {title: lines for title, lines in every.items() if len(lines[OURS]) > 1}  # one N is no line
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    lengths = sorted({n for lines in panels.values() for line in lines.values() for n, _ in line})
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(2.7 * columns, 2.4 * rows + 0.6), squeeze=False, sharex=True, sharey=True
    )
    for ax in list(axes.flat)[len(panels) :]:
        ax.set_visible(False)
    drawn = {}
    for ax, (title, lines) in zip(axes.flat, panels.items()):
        for name, line in lines.items():
            (drawn[name],) = ax.plot(*zip(*line), marker="o", markersize=3.5, color=colour(name, names))
        ax.set_title(title, fontsize=9)
        ax.set_xscale("log", base=2)
        ax.set_xticks(lengths, [f"{n // 1024}k" if n % 1024 == 0 else str(n) for n in lengths])
    axes.flat[0].set_ylim(bottom=0)
    for ax in axes[:, 0]:
        ax.set_ylabel("TFLOP/s")
    for ax in axes[-1]:
        ax.set_xlabel("N")
    figure.legend([drawn[name] for name in names], names, loc="upper center", ncols=len(names))
    _note(figure, f"Attention forward, launches in bursts. {machine(records)}")
    figure.tight_layout(rect=(0, 0.03, 1, 0.95))
    return figure


def draw_products(plt: Any, records: Sequence[Record]) -> Any:
    ratios = product_ratios(records)
    height = 0.24 * max(map(len, ratios.values())) + 1.1
    figure, axes = plt.subplots(1, len(ratios), figsize=(4.2 * len(ratios), height), squeeze=False, sharex=True)
    for ax, (dtype, rows) in zip(axes.flat, ratios.items()):
        for y, (_, under, ratio, low, high) in enumerate(rows):
            ends = [[max(0.0, ratio - low)], [max(0.0, high - ratio)]]
            ax.errorbar(ratio, y, xerr=ends, fmt=LOADS.get(under, "d"), color=COLOURS[OURS], capsize=2, markersize=4)
        ax.axvline(1.0, color=COLOURS["cuBLAS"], linewidth=1)
        ax.set_yticks(range(len(rows)), [f"{problem} {under}" for problem, under, *_ in rows], fontsize=7.5)
        ax.invert_yaxis()
        ax.set_title(dtype, fontsize=9)
        ax.set_xlabel("throughput, cuBLAS = 1")
    _note(figure, f"Medians of the ratios within rounds, with 95 % intervals. {machine(records)}")
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    return figure


def draw_launches(plt: Any, records: Sequence[Record]) -> Any:
    rows = launch_times(records)
    names = [name for _, name, _ in rows]
    figure, ax = plt.subplots(figsize=(6.4, 0.32 * len(rows) + 1.0))
    bars = ax.barh([label for label, _, _ in rows], [t for *_, t in rows], color=[colour(n, names) for n in names])
    ax.bar_label(bars, [f"{t:.1f}" for *_, t in rows], padding=3, fontsize=8)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("µs of the host for one launch")
    _note(figure, machine(records))
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    return figure


def _note(figure: Any, text: str) -> None:
    figure.text(0.01, 0.01, text, fontsize=6.5, color="#555555")


DRAWINGS = {"attention": ("hopper_attention", draw_attention), "gemm": ("hopper_gemm", draw_products),
            "launch": ("launch", draw_launches)}  # fmt: skip


def main(folder: Path = PLOTS) -> None:
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py draws with matplotlib, which is not installed; run: pip install -e .[bench]")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        for name, (results, draw) in DRAWINGS.items():
            figure = draw(plt, load(results))
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            figure.savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})
            plt.close(figure)
            print(folder / f"{name}.svg")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
