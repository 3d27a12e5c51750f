"""Outlines of kernels on disk (see `frontend.outline`), so that finding a kernel in the cache parses nothing.

One file for each kernel, beside the cache, with the outlines of the kernel and of all that it called when it was last
built.  Each is found by the text that it was made of: after an edit, what was edited is parsed.
"""

from __future__ import annotations

import hashlib
import sys

from tlxc.frontend.outline import OUTLINES, Outline
from tlxc.frontend.source import Source
from tlxc.runtime.cache import PACKAGE, default_cache, stamp
from tlxc.runtime.entries import Entry

FOLDER = "outlines"
SHARE = 64  # they take a 64th of the cache's size

_stored: dict[str, frozenset[str]] = {}  # file -> addresses in it, as far as this process knows


def recall(source: Source) -> None:
    """Adds what is on disk about a kernel to the outlines of this process."""
    name = _name(source)
    entry = None if name in _stored else default_cache(FOLDER, SHARE).load(name)
    if entry is not None:
        found = entry.metadata["outlines"]
        _stored[name] = frozenset(found)
        for address, (first, last, chains) in found.items():
            OUTLINES.setdefault(address, Outline(first, last, tuple(map(tuple, chains))))


def keep(source: Source) -> None:
    """Stores the outlines of a kernel and of what it calls, unless just these are on disk."""
    name = _name(source)
    made = {address: OUTLINES[address] for address in source.dependencies.addresses if address in OUTLINES}
    if _stored.get(name) != made.keys():
        _stored[name] = frozenset(made)
        default_cache(FOLDER, SHARE).store(name, Entry({"outlines": made}, {}))


def _name(source: Source) -> str:
    """Covers the text of the kernel, tlxc's own files and the Python that parses."""
    return hashlib.sha256(f"{source.address} {stamp(PACKAGE)} {sys.version}".encode()).hexdigest()
