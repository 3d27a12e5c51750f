"""Python's cyclic garbage collector, put to rest while something makes many objects that live to its end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """No collection inside: each would look at all objects of the program, and find nothing.  Threads may overlap: who
    stopped the collector starts it again."""
    stopped = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if stopped:
            gc.enable()
