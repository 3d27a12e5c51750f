"""A bar for work that takes seconds, on stderr and at terminals only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(length: int, label: str = "") -> Iterator[Callable[[int], None]]:
    """What is called with the number of steps that are done; at a terminal it moves a bar on stderr."""
    if not sys.stderr.isatty():
        yield lambda steps: None
        return
    import click

    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
