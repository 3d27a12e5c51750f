"""Lanes as rows that can be drawn: spans of a row do not overlap."""

from __future__ import annotations

from typing import NamedTuple

from .record import Lane, Launch, Span


class Track(NamedTuple):
    """One row of a lane; copies that overlap take further ones, `TMA load 2`."""

    name: str
    lane: Lane
    spans: list[Span]


def tracks(launch: Launch) -> list[Track]:
    """The rows of all CTAs, tasks before agents."""
    out: list[Track] = []
    order = {cta: i for i, cta in enumerate(sorted({lane.cta for lane in launch.lanes}))}
    for lane in sorted(launch.lanes, key=lambda lane: (order[lane.cta], lane.agent)):
        if lane.spans:
            out += _rows(lane) if lane.agent else [Track(lane.name, lane, lane.spans)]
    return out


def _rows(lane: Lane) -> list[Track]:
    """Each span on the first row that is free."""
    rows: list[Track] = []
    for span in sorted(lane.spans, key=lambda span: span.start):
        free = next((row for row in rows if row.spans[-1].end <= span.start), None)
        if free is None:
            free = Track(f"{lane.name} {len(rows) + 1}" if rows else lane.name, lane, [])
            rows.append(free)
        free.spans.append(span)
    return rows
