"""What a statement tells the visitor about the statements after it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

from tlxc.errors import Location
from tlxc.language.core import tensor

Step = Union[ast.stmt, Callable[[], None]]


@dataclass(frozen=True)
class Returned:
    """The function ends here with this value."""

    value: Any
    loc: Location


@dataclass(frozen=True)
class Splice:
    """Steps to run in place of a statement: a branch chosen at compile time, an unrolled loop."""

    steps: Sequence[Step]


@dataclass(frozen=True)
class Fork:
    """A run-time `if` with a `return` in it: what follows moves into its branches."""

    node: ast.If
    condition: tensor


Flow = Union[None, Returned, Splice, Fork]
