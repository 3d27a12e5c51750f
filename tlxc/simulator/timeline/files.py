"""The forms that a timeline can be written in, by the suffix of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tlxc.errors import TlxcError

from . import chrome, page, svg
from .record import Timeline

FORMS: dict[str, Callable[[Timeline], str]] = {".json": chrome.render, ".html": page.render, ".svg": svg.render}


def form_of(path: Path) -> Callable[[Timeline], str]:
    """What writes a file of this name."""
    if path.suffix not in FORMS:
        raise TlxcError(
            f"The name of the trace is {str(path)!r}; it may end in {', '.join(FORMS)}: JSON for Perfetto, a page, or "
            "a picture."
        )
    return FORMS[path.suffix]


def write(timeline: Timeline, path: Path) -> None:
    """Writes the file; a block without launches leaves none."""
    if not timeline.launches:
        return
    try:
        path.write_text(form_of(path)(timeline), encoding="utf-8")
    except OSError as error:
        raise TlxcError(f"{path} could not be written: {error.strerror}.") from error
