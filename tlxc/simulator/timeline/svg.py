"""The timeline as a picture: rows of CTAs and their lanes, waits in colour, arrows from what released a wait to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from .chrome import facts
from .layout import Track, tracks
from .record import LOAD, TENSOR, TRANSFER, WAIT, WORK, Launch, Span, Timeline

# Kind of a span -> its colour and what the legend says
COLOURS = {
    WORK: ("#5b8dbf", "instructions"),
    WAIT: ("#d9534f", "waiting"),
    LOAD: ("#e8964e", "waiting for a load"),
    TENSOR: ("#4a9a5b", "tensor core"),
    TRANSFER: ("#8f7ab8", "copies (pale: latency)"),
}
_LABELS, _ROW, _GAP, _TITLE = 150, 16, 4, 24  # pixels: column of names, height and distance of rows, height of titles
_WIDTH = 1500  # of all cycles
_CTAS, _SPANS = 4, 20_000  # that are drawn at most

STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#222}.h{font-weight:600}.g{fill:#f3f4f6}"
    ".a{fill:none;stroke:#222;stroke-opacity:.35;stroke-width:1;vector-effect:non-scaling-stroke}"
    + "".join(f".{kind.replace(' ', '-')}{{fill:{colour}}}" for kind, (colour, _) in COLOURS.items())
    + ".late{fill-opacity:.35}"
)


class _Picture:
    """Grows downwards.  `marks` are in cycles along x, `fixed` in pixels."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.y = 0
        self.marks: list[str] = []
        self.fixed: list[str] = []
        self.rows: dict[int, int] = {}  # span -> middle of its row
        self.left = _SPANS

    def cta(self, rows: list[Track]) -> None:
        lane = rows[0].lane
        self.y += _TITLE
        self.fixed.append(f'<text class="h" x="4" y="{self.y - 7}">CTA {lane.cta} on SM {lane.sm}</text>')
        for row in rows:
            self.fixed.append(f'<text x="12" y="{self.y + _ROW - 4}">{escape(row.name)}</text>')
            time = self.launch.end - self.launch.start
            self.marks.append(f'<rect class="g" x="0" y="{self.y}" width="{time}" height="{_ROW}"/>')
            for span in row.spans[: self.left]:
                self.rows[id(span)] = self.y + _ROW // 2
                self.marks += self._span(span)
            self.left = max(0, self.left - len(row.spans))
            self.y += _ROW + _GAP

    def _span(self, span: Span) -> Iterator[str]:
        kind, x = span.kind.replace(" ", "-"), span.start - self.launch.start
        moved = span.end if span.flight is None else span.flight.moved
        text = escape(f"{span.label}\n" + "\n".join(f"{k}: {v}" for k, v in _facts(span)))
        yield f'<g class="{kind}"><title>{text}</title>'
        yield f'<rect x="{x}" y="{self.y}" width="{moved - span.start}" height="{_ROW}"/>'
        if moved < span.end:
            late = x + moved - span.start
            yield f'<rect class="late" x="{late}" y="{self.y}" width="{span.end - moved}" height="{_ROW}"/>'
        yield "</g>"

    def arrows(self, spans: Iterable[Span]) -> None:
        """Of the waits that had to wait."""
        for span in spans:
            cause = span.cause
            if not span.blocked or cause is None or id(cause.span) not in self.rows or id(span) not in self.rows:
                continue
            x0, x1 = (time - self.launch.start for time in (cause.time, span.released))
            y0, y1 = self.rows[id(cause.span)], self.rows[id(span)]
            self.marks.append(f'<path class="a" marker-end="url(#tip)" d="M{x0} {y0}L{x1} {y1}"/>')


def _facts(span: Span) -> Iterator[tuple[str, object]]:
    yield "cycles", f"{span.start} to {span.end}"
    yield from ((key, value) for key, value in facts(span).items() if key != "op")


def picture(launch: Launch) -> str:
    """One launch as an `svg` element; the first CTAs where there are many."""
    drawn = _Picture(launch)
    rows = tracks(launch)
    ctas = list(dict.fromkeys(row.lane.cta for row in rows))
    for cta in ctas[:_CTAS]:
        drawn.cta([row for row in rows if row.lane.cta == cta])
    drawn.arrows(span for row in rows for span in row.spans)
    if len(ctas) > _CTAS or not drawn.left:
        drawn.y += _TITLE
        note = f"drawn: the first {_CTAS} of {len(ctas)} CTAs" if drawn.left else f"drawn: the first {_SPANS} spans"
        drawn.fixed.append(f'<text x="4" y="{drawn.y - 7}">{note}; the JSON trace has all</text>')
    scale = _WIDTH / max(1, launch.end - launch.start)
    axis = f"{launch.end - launch.start} cycles"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LABELS + _WIDTH + 10}" height="{drawn.y + _TITLE}">'
        f"<style>{STYLE}</style>"
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L6 3L0 6z" fill="#222" fill-opacity=".5"/></marker></defs>'
        f'<g transform="translate({_LABELS} 0)"><g class="time" transform="scale({scale:.6g} 1)">'
        + "".join(drawn.marks)
        + f'</g></g><g class="names"><rect x="0" y="0" width="{_LABELS - 4}" height="{drawn.y + _TITLE}" fill="#fff"/>'
        + "".join(drawn.fixed)
        + f'<text x="4" y="{drawn.y + 15}">0 to {axis}</text></g></svg>'
    )


def render(timeline: Timeline) -> str:
    """The last launch; a picture holds one."""
    return picture(timeline.launches[-1]) + "\n"
