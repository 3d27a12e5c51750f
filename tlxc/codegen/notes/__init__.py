"""Performance notes of a compilation, each at its source line; `collect` finds them."""

from __future__ import annotations

from .note import KINDS, Note, placed

__all__ = ["KINDS", "Note", "placed"]
