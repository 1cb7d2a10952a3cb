"""The picture of a run: faults, who led, who was in sync, what was served and how fast.

Everything has the same axis of time from left to right, and every fault is a band through all of
it, so that an eye can go straight down from what was broken to what came of it.

Not here: what happened (`series.py`), colours (`style.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.chaos.report.drawing import line, milliseconds, number, path, rect, seconds, text
from ottla.chaos.report.series import Row, Series, Span, Step

WIDTH: Final = 1160
_LEFT: Final = 118
_RIGHT: Final = 14
_INNER: Final = WIDTH - _LEFT - _RIGHT
_FAULT_H: Final = 17
_FAULT_LANES_MAX: Final = 7
_ROW_GAP: Final = 10
_LEADER_H: Final = 10
_SYNC_H: Final = 3
_CHART_H: Final = 110
_TICKS: Final = 10
_TICK_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
_LETTER_W: Final = 6.3
_PALETTE: Final = 6
# Of more than these, no bar has words of its own: a page must stay small.
_SPANS_MAX: Final = 60
_FAULTS_NAMED_MAX: Final = 60
# The nodes behind the name of a fault.
_TARGETS: Final = re.compile(r" [\d,]+$")
# The axis of latency: powers of ten, in milliseconds.
_DECADES: Final = (1, 10, 100, 1_000, 10_000)


@dataclass(slots=True)
class _Sheet:
    """What is drawn so far, and how far down it goes."""

    series: Series
    nodes: tuple[int, ...]
    y: float = 8
    parts: list[str] = field(default_factory=list)

    def x(self, at_s: float) -> float:
        return _LEFT + _INNER * min(max(at_s / self.series.length_s, 0), 1)

    def add(self, *shapes: str) -> None:
        self.parts += shapes

    def colour(self, node: str) -> str:
        """Return the class of a node, by its place among all nodes."""
        if not node.isdigit() or int(node) not in self.nodes:
            return "nobody"
        return f"n{self.nodes.index(int(node)) % _PALETTE + 1}"

    def title(self, said: str) -> None:
        self.y += 16
        self.add(text(0, self.y, said, "head"))
        self.y += 10


def draw_timeline(series: Series, nodes: tuple[int, ...]) -> str:
    """Return the picture as SVG, to be put into a page."""
    sheet = _Sheet(series, nodes)
    _draw_phases(sheet)
    begin = sheet.y + 4
    _draw_faults(sheet)
    top = sheet.y
    _draw_rows(sheet)
    _draw_served(sheet)
    _draw_latency(sheet)
    _draw_axis(sheet)
    deep = sheet.y - begin
    bands = [
        rect(sheet.x(one.begin_s), begin, sheet.x(one.end_s) - sheet.x(one.begin_s), deep, "band")
        for one in series.faults
    ]
    height = math.ceil(sheet.y + 26)
    _draw_notes(sheet, top)
    return (
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Faults, leaders, replicas in sync, throughput and latency over time">'
        f"{''.join(bands)}{''.join(sheet.parts)}</svg>"
    )


# ── Phases ────────────────────────────────────────────────────────────────────────────────────


def _draw_phases(sheet: _Sheet) -> None:
    if not sheet.series.phases:
        return
    for one in sheet.series.phases:
        x, end = sheet.x(one.begin_s), sheet.x(one.end_s)
        told = f"{one.what}: {seconds(one.end_s - one.begin_s)}"
        sheet.add(rect(x + 1, sheet.y, end - x - 2, 15, "phase", told, 3))
        if end - x > len(one.what) * _LETTER_W:
            sheet.add(text((x + end) / 2, sheet.y + 11.5, one.what, "small", "middle"))
    sheet.y += 18


# ── Faults ────────────────────────────────────────────────────────────────────────────────────


def _draw_faults(sheet: _Sheet) -> None:
    sheet.title("Faults")
    if len(sheet.series.faults) > _FAULTS_NAMED_MAX:
        _draw_many_faults(sheet)
        return
    free = list[float]()
    for one in sheet.series.faults:
        x, end = sheet.x(one.begin_s), sheet.x(one.end_s)
        label = len(one.what) * _LETTER_W + 10
        lane = _lane(free, x, max(end, x + label) + 4)
        y = sheet.y + lane * (_FAULT_H + 3)
        told = (
            f"{one.what}: from {one.begin_s:.1f} s to {one.end_s:.1f} s, "
            f"{seconds(one.end_s - one.begin_s)}"
        )
        sheet.add(rect(x, y, end - x, _FAULT_H, "fault", told, 3))
        fits = end - x > label
        sheet.add(text(x + 5 if fits else end + 4, y + 12.5, one.what, "on" if fits else "small"))
    if not sheet.series.faults:
        sheet.add(text(_LEFT, sheet.y + 12, "nothing was broken", "small"))
    sheet.y += max(1, len(free)) * (_FAULT_H + 3) + 4


def _draw_many_faults(sheet: _Sheet) -> None:
    """A lane for each kind, instead of a name for each fault."""
    kinds = dict[str, list[Span]]()
    for one in sheet.series.faults:
        kinds.setdefault(_TARGETS.sub("", one.what), []).append(one)
    for name, spans in sorted(kinds.items()):
        sheet.add(text(_LEFT - 8, sheet.y + 10, f"{name} ×{len(spans)}", "label", "end"))
        _draw_spans(sheet, spans, sheet.y, 12, "fault", name)
        sheet.y += 16
    sheet.y += 4


def _lane(free: list[float], begin: float, end: float) -> int:
    """Return the first lane with room, and take the room."""
    for at, until in enumerate(free):
        if until <= begin:
            free[at] = end
            return at
    if len(free) < _FAULT_LANES_MAX:
        free.append(end)
        return len(free) - 1
    free[-1] = end
    return len(free) - 1


def _draw_notes(sheet: _Sheet, top: float) -> None:
    for at_s, said in sheet.series.notes:
        x = sheet.x(at_s)
        sheet.add(f"<g><title>{said} at {at_s:.1f} s</title>{line(x, top, x, sheet.y, 'note')}</g>")


# ── Partitions ────────────────────────────────────────────────────────────────────────────────


def _draw_rows(sheet: _Sheet) -> None:
    sheet.title("Who leads, and below it who is in sync")
    x = float(WIDTH - _RIGHT)
    for node in ("none", *reversed(sheet.nodes)):
        label = "nobody" if node == "none" else f"node {node}"
        x -= len(label) * _LETTER_W + 8
        sheet.add(text(x, sheet.y - 10, label, "small"))
        x -= 14
        sheet.add(rect(x, sheet.y - 19, 10, 10, sheet.colour(str(node)), "", 2))
        x -= 8
    sheet.y += 4
    for row in sheet.series.rows:
        _draw_row(sheet, row)
    if sheet.series.rows_left_out:
        sheet.y += 12
        sheet.add(text(_LEFT, sheet.y, f"and {sheet.series.rows_left_out} more", "small"))


def _draw_row(sheet: _Sheet, row: Row) -> None:
    y = sheet.y
    sync_h = _SYNC_H * len(row.in_sync)
    height = _LEADER_H + sync_h + (1.5 if row.in_sync else 0)
    sheet.add(text(_LEFT - 8, y + height / 2 + 4, str(row.place), "label", "end"))
    sheet.add(rect(_LEFT, y, _INNER, height, "lane"))
    by_leader = dict[str, list[Span]]()
    for span in row.leaders:
        by_leader.setdefault(span.what, []).append(span)
    for node, spans in by_leader.items():
        said = f"{row.place}: {_led(node)}"
        _draw_spans(sheet, spans, y, _LEADER_H, sheet.colour(node), said)
    for at, (one, spans) in enumerate(row.in_sync.items()):
        top = y + _LEADER_H + 1.5 + at * _SYNC_H
        said = f"{row.place}: node {one} in sync"
        _draw_spans(sheet, spans, top, _SYNC_H - 1, sheet.colour(str(one)), said)
    said = f"{row.place}: nothing was acknowledged"
    _draw_spans(sheet, row.outages, y - 4.5, 2.5, "outage", said)
    sheet.y += height + _ROW_GAP


def _draw_spans(
    sheet: _Sheet, spans: Sequence[Span], y: float, height: float, kind: str, said: str
) -> None:
    """Draw a bar for each, with words; of very many, one line without."""
    if len(spans) <= _SPANS_MAX:
        for one in spans:
            told = f"{said}, {one.begin_s:.1f} s to {one.end_s:.1f} s"
            x = sheet.x(one.begin_s)
            sheet.add(rect(x, y, sheet.x(one.end_s) - x, height, kind, told))
        return
    middle = number(y + height / 2)
    told = "".join(
        f"M{number(sheet.x(one.begin_s))} {middle}H{number(sheet.x(one.end_s) + 0.3)}"
        for one in spans
    )
    sheet.add(f'<path class="{kind}" stroke-width="{number(height)}" d="{told}"/>')


def _led(node: str) -> str:
    return "nobody leads" if node == "none" else f"node {node} leads"


# ── Writes ────────────────────────────────────────────────────────────────────────────────────


def _draw_served(sheet: _Sheet) -> None:
    series = sheet.series
    per_s = [(one.ok + one.fail + one.unknown) / series.step_s for one in series.steps]
    top = _nice(max(per_s, default=1))
    sheet.title("Writes a second")
    _legend(sheet, (("acknowledged", "ok"), ("unknown", "unknown"), ("refused", "fail")))
    base = sheet.y + _CHART_H
    for share in (0, 0.5, 1):
        y = base - share * _CHART_H
        sheet.add(line(_LEFT, y, WIDTH - _RIGHT, y, "grid"))
        sheet.add(text(_LEFT - 8, y + 4, f"{top * share:g}", "label", "end"))
    width = _INNER * series.step_s / series.length_s
    for at, step in enumerate(series.steps):
        x, y = sheet.x(at * series.step_s), base
        shown = min(width, WIDTH - _RIGHT - x) - (0.6 if width > 3 else 0)
        for value, kind in ((step.ok, "ok"), (step.unknown, "unknown"), (step.fail, "fail")):
            if value:
                height = _CHART_H * value / series.step_s / top
                y -= height
                sheet.add(rect(x, y, shown, height, kind, _told(at * series.step_s, step)))
    sheet.y = base + 6


def _told(at_s: float, step: Step) -> str:
    return (
        f"{at_s:g} s: {step.ok} acknowledged, {step.unknown} unknown, {step.fail} refused; "
        f"half within {milliseconds(step.p50_ms)}, all within {milliseconds(step.max_ms)}"
    )


def _legend(sheet: _Sheet, items: tuple[tuple[str, str], ...]) -> None:
    x = float(WIDTH - _RIGHT)
    for said, kind in reversed(items):
        x -= len(said) * _LETTER_W + 4
        sheet.add(text(x, sheet.y - 10, said, "small"))
        x -= 14
        sheet.add(rect(x, sheet.y - 19, 10, 10, kind, "", 2))
        x -= 10


def _nice(value: float) -> float:
    """Return a round number that is not below the value."""
    power = 10.0 ** math.floor(math.log10(max(value, 1)))
    return next(
        step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10) if step * power >= value
    )


def _draw_latency(sheet: _Sheet) -> None:
    sheet.title("Time to an acknowledgement")
    _legend(sheet, (("half of them", "p50key"), ("99 of 100", "p99key"), ("the slowest", "maxkey")))
    base = sheet.y + _CHART_H

    def y_of(value_ms: float) -> float:
        least, most = math.log10(_DECADES[0]), math.log10(_DECADES[-1])
        share = (math.log10(max(value_ms, 1)) - least) / (most - least)
        return base - _CHART_H * min(share, 1)

    for value in _DECADES:
        y = y_of(value)
        sheet.add(line(_LEFT, y, WIDTH - _RIGHT, y, "grid"))
        said = f"{value // 1000} s" if value >= 1000 else f"{value} ms"
        sheet.add(text(_LEFT - 8, y + 4, said, "label", "end"))
    half = sheet.series.step_s / 2
    for at, step in enumerate(sheet.series.steps):
        if step.max_ms is not None:
            x = sheet.x(at * sheet.series.step_s + half)
            sheet.add(f'<circle class="max" cx="{x:.1f}" cy="{y_of(step.max_ms):.1f}" r="1.6"/>')
    for kind in ("p99", "p50"):
        for run in _runs(sheet.series.steps, kind):
            points = [(sheet.x(at * sheet.series.step_s + half), y_of(value)) for at, value in run]
            sheet.add(path(points if len(points) > 1 else points * 2, kind))
    sheet.y = base + 4


def _runs(steps: list[Step], kind: str) -> list[list[tuple[int, float]]]:
    """Return the line in pieces: it is not drawn over a time without acknowledgements."""
    runs = list[list[tuple[int, float]]]()
    was_there = False
    for at, step in enumerate(steps):
        value = step.p50_ms if kind == "p50" else step.p99_ms
        if value is not None:
            if not was_there:
                runs.append([])
            runs[-1].append((at, value))
        was_there = value is not None
    return runs


def _draw_axis(sheet: _Sheet) -> None:
    series = sheet.series
    every = next((one for one in _TICK_S if series.length_s / one <= _TICKS), _TICK_S[-1])
    for at in range(0, int(series.length_s) + 1, every):
        x = sheet.x(at)
        sheet.add(line(x, sheet.y, x, sheet.y + 4, "tick"))
        sheet.add(text(x, sheet.y + 17, f"{at} s", "label", "middle"))
