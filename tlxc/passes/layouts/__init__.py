"""Layout assignment: anchors as the start of a priced local search.

Fixed are what instructions dictate (dots) and what users pin; memory accesses and reductions only propose layouts, with
a price.  What no choice of layouts makes free becomes an explicit `convert_layout`.
"""

from __future__ import annotations

from tlxc.ir.core import Module
from tlxc.passes.axis import analyse
from tlxc.passes.pending import pending_values
from tlxc.targets import Target

from .apply import write_layouts
from .defer import find_sums, finish_after_loops
from .graph import Graph
from .search import choose

__all__ = ["assign_layouts"]


def assign_layouts(module: Module, target: Target) -> None:
    """Afterwards every tile has a layout, elementwise ops have one layout object for all operands and results, and
    layouts with equal maps are one object per module.  Cheap values stand once per demanded layout; loop-carried sums
    are finished after their loop.  Tiles must be used in their own task only, dots have their `impl` and buffers their
    layouts."""
    sums = find_sums(module)
    graph = Graph(module, target.warp_size, analyse(module), sums, pending_values(module))
    labels = choose(graph)
    graph.check(labels)
    canon = write_layouts(graph, labels)
    finish_after_loops(module, sums, canon)
