"""A bar on stderr for what takes long, where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

PATIENCE = 1.0  # seconds that a launch may take without a bar


@contextmanager
def progress(length: int, label: str = "", after: float = 0.0) -> Iterator[Callable[[int], None]]:
    """What is called with the number of steps that are done.  The bar appears `after` seconds."""
    if not sys.stderr.isatty():
        yield lambda steps: None
        return
    import click

    start, done = time.monotonic(), 0
    with ExitStack() as stack:
        bar: Any = None

        def update(steps: int) -> None:
            nonlocal bar, done
            done += steps
            if bar is not None:
                bar.update(steps)
            elif time.monotonic() - start >= after:
                bar = stack.enter_context(click.progressbar(length=length, label=label, file=sys.stderr))
                bar.update(done)

        if not after:
            update(0)
        yield update
