"""The timeline as a picture: rows of CTAs and their lanes, waits in colour, lines from what released a wait to a dot on
it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from .chrome import facts
from .layout import Track, tracks
from .record import LOAD, TENSOR, TRANSFER, WAIT, WORK, Launch, Span, Timeline
from .summary import waited_for

# Kind of a span -> its colour and what the legend says
COLOURS = {
    WORK: ("#5b8dbf", "instructions"),
    TENSOR: ("#4a9a5b", "tensor core"),
    TRANSFER: ("#8f7ab8", "copies (pale: latency)"),
}
_WAITS = ("#d9534f", "#f0ad4e", "#c2578b", "#b5651d", "#e8d33f", "#7d3c3c")  # by what is waited for, in turn
_LABELS, _ROW, _GAP, _TITLE = 150, 16, 4, 24  # pixels: column of names, height and distance of rows, height of titles
_WIDTH = 1500  # of all cycles
_CTAS, _SPANS = 4, 20_000  # that are drawn at most

STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#222}.h{font-weight:600}.g{fill:#f3f4f6}"
    ".a{fill:none;stroke:#222;stroke-opacity:.35;stroke-width:1;vector-effect:non-scaling-stroke}"
    ".t{stroke-width:5;stroke-linecap:round;stroke-opacity:.8}"  # a dot, which zooming does not stretch
    + "".join(f".{kind.replace(' ', '-')}{{fill:{colour}}}" for kind, (colour, _) in COLOURS.items())
    + "".join(f".w{i}{{fill:{colour}}}" for i, colour in enumerate(_WAITS))
    + ".late{fill-opacity:.35}"
)


def wait_colours(launch: Launch) -> dict[str, int]:
    """What tasks wait for, and which of the colours each has."""
    names = {waited_for(span): None for lane in launch.tasks() for span in lane.spans if span.kind in (WAIT, LOAD)}
    return {name: i % len(_WAITS) for i, name in enumerate(names)}


def legend(launch: Launch) -> list[tuple[str, str]]:
    """Colours and what they mean."""
    waits = [(_WAITS[i], f"waits for {name}") for name, i in wait_colours(launch).items()]
    return [*COLOURS.values(), *waits]


class _Picture:
    """Grows downwards.  `marks` are in cycles along x, `fixed` in pixels."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.y = 0
        self.marks: list[str] = []
        self.fixed: list[str] = []
        self.rows: dict[int, int] = {}  # span -> middle of its row
        self.left = _SPANS
        self.waits = wait_colours(launch)

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
        waits = span.kind in (WAIT, LOAD)
        kind = f"w{self.waits[waited_for(span)]}" if waits else span.kind.replace(" ", "-")
        x = span.start - self.launch.start
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
            self.marks.append(f'<path class="a" d="M{x0} {y0}L{x1} {y1}"/><path class="a t" d="M{x1} {y1}h0"/>')


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
    keys, drawn.y = list(_keys(launch, drawn.y)), drawn.y + 2 * _TITLE
    scale = _WIDTH / max(1, launch.end - launch.start)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LABELS + _WIDTH + 10}" height="{drawn.y}">'
        f"<style>{STYLE}</style>"
        f'<g transform="translate({_LABELS} 0)"><g class="time" transform="scale({scale:.6g} 1)">'
        + "".join(drawn.marks)
        + f'</g></g><g class="names"><rect width="{_LABELS - 4}" height="{drawn.y}" fill="#fff"/>'
        + "".join([*drawn.fixed, *keys])
        + "</g></svg>"
    )


def _keys(launch: Launch, y: int) -> Iterator[str]:
    """The length of the time axis, and colours with what they mean."""
    yield f'<text x="4" y="{y + 16}">{launch.end - launch.start} cycles, a model</text>'
    x = _LABELS
    for colour, meaning in legend(launch):
        yield f'<rect x="{x}" y="{y + 7}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{x + 14}" y="{y + 16}">{escape(meaning)}</text>'
        x += 34 + 6 * len(meaning)


def render(timeline: Timeline) -> str:
    """The last launch; a picture holds one."""
    return picture(timeline.launches[-1]) + "\n"
