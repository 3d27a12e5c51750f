"""`breakpoint()`: an op with the variables that have a value there.

It changes nothing of the kernel but that these values are computed: no layout is chosen for it, no task captures for
it, and buffers and barriers are no operands, so that they live as long as without it.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tlxc.ir.core import Op, Value
from tlxc.ir.types import Tensor
from tlxc.language.core import tensor

from .scope import Binding

if TYPE_CHECKING:
    from .visitor import Visitor


def stop(v: Visitor, node: ast.Call) -> None:
    """Appends the op.  Items of a tuple `t` are named `t.0`, `t.1`."""
    if node.args or node.keywords:
        raise v.error(
            node,
            "breakpoint() takes no arguments in a kernel",
            found=f"`{ast.unparse(node)}`",
            fix="write breakpoint(): its prompt knows every variable that has a value there",
        )
    values: dict[str, Value] = {}
    constants: list[tuple[str, Any]] = []
    for name, entry in v.frame.names.items():
        if not isinstance(entry, Binding):
            continue
        for full, item in _items(name, entry.value):
            if isinstance(item, tensor):
                values[full] = item.value
            elif isinstance(item, (bool, int, float, str)):
                constants.append((full, item))
    with v.at(node):
        v.builder.op("breakpoint", list(values.values()), names=tuple(values), constants=tuple(constants))


def _items(name: str, value: Any) -> list[tuple[str, Any]]:
    return [(f"{name}.{i}", x) for i, x in enumerate(value)] if isinstance(value, tuple) else [(name, value)]


def forget(op: Op, held: set[Value]) -> None:
    """Leaves out tiles of which the threads of the task hold nothing: all but those in `held`."""
    kept = [(name, x) for name, x in zip(op.attrs["names"], op.inputs) if not isinstance(x.type, Tensor) or x in held]
    op.attrs["names"], op.operands = tuple(name for name, _ in kept), [x for _, x in kept]
