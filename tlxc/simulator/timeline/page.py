"""The timeline as a page of its own: the summary and a picture that can be zoomed, no other files."""

from __future__ import annotations

from html import escape

from .record import Timeline
from .summary import summarise, text
from .svg import picture

_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:16px;color:#222}pre{background:#f3f4f6;padding:8px;overflow-x:auto}"
    ".view{overflow-x:auto;border:1px solid #ddd}"
)
# The slider stretches time; names stay at the left edge.
_SCRIPT = """
for (const part of document.querySelectorAll('section')) {
  const view = part.querySelector('.view'), svg = view.querySelector('svg');
  const time = svg.querySelector('.time'), names = svg.querySelector('.names'), zoom = part.querySelector('input');
  const scale = parseFloat(time.getAttribute('transform').slice(6)), width = svg.width.baseVal.value;
  zoom.oninput = () => {
    const middle = (view.scrollLeft + view.clientWidth / 2) / svg.width.baseVal.value;
    time.setAttribute('transform', `scale(${scale * zoom.value} 1)`);
    svg.setAttribute('width', width * zoom.value);
    view.scrollLeft = middle * width * zoom.value - view.clientWidth / 2;
  };
  view.onscroll = () => names.setAttribute('transform', `translate(${view.scrollLeft} 0)`);
}
"""


def render(timeline: Timeline) -> str:
    """The whole file."""
    parts = [
        f"<section><h2>{escape(launch.name)}</h2><pre>{escape(text(timeline, summarise(launch)))}</pre>"
        f'<p>zoom <input type="range" min="1" max="40" step="0.5" value="1"></p>'
        f'<div class="view">{picture(launch)}</div></section>'
        for launch in timeline.launches
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>tlxc trace</title>'
        f"<style>{_STYLE}</style></head><body><h1>Simulated timeline, {escape(timeline.target.name)}</h1>"
        + "".join(parts)
        + f"<script>{_SCRIPT}</script></body></html>\n"
    )
