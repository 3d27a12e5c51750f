"""Python warnings about a kernel, at its own lines."""

from __future__ import annotations

import warnings

from tlxc.errors import Location

from .source import Source


def warn(source: Source, loc: Location, text: str) -> None:
    """One warning per place and text, as Python's own are."""
    registry = source.fn.__globals__.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, UserWarning, loc.file, loc.line, registry=registry)
