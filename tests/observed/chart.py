"""Draws lines over time as SVG, in plain Python: panels in a grid, with units and legends.

Not here: where the lines come from (`boards.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 420
HEIGHT: Final = 240
# Points further apart than this are not joined.
GAP_S: Final = 2.5
COLUMNS: Final = 3
_LEFT: Final = 58
_TOP: Final = 34
_PLOT_HEIGHT: Final = 130
_GAP: Final = 14
_LEGEND_ROWS: Final = 4
_LEGEND_CHARACTERS: Final = 62
_TICKS: Final = 4
_COLOURS: Final = (
    *("#3b6fb6", "#d9822b", "#3a9a5b", "#c23b4b", "#7d5ba6", "#8c6d4f"),
    *("#d672a8", "#7a7a7a", "#a8a52c", "#2fa6b5"),
)
_STYLE: Final = (
    "text{font-family:Helvetica,Arial,sans-serif;fill:#333}"
    ".title{font-size:13px;font-weight:bold}.small{font-size:10px;fill:#666}"
    ".grid{stroke:#e4e4e4}.frame{fill:#fff;stroke:#ccc}.line{fill:none;stroke-width:1.6}"
)
# What one step of a unit's prefix is, and their names.
_PREFIXES: Final = {
    "short": (1000, ("", " k", " M", " G")),
    "ops": (1000, ("/s", " k/s", " M/s", " G/s")),
    "bytes": (1024, (" B", " KiB", " MiB", " GiB")),
    "Bps": (1024, (" B/s", " KiB/s", " MiB/s", " GiB/s")),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A name, and values by time in seconds; not a number: none."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """One panel."""

    title: str
    unit: str
    lines: Sequence[Line]


def told(value: float, unit: str) -> str:
    """Return a value as people read it."""
    if unit == "percentunit":
        return f"{value:.3g}".rstrip() if value == 0 else f"{value * 100:.3g} %"
    if unit in ("s", "ms"):
        seconds = value / 1000 if unit == "ms" else value
        if seconds == 0:
            return "0 s"
        return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
    base, names = _PREFIXES[unit]
    step = 0 if value <= 0 else min(len(names) - 1, int(math.log(max(value, 1), base) + 1e-9))
    # A thousand KiB are less than a MiB, and four digits.
    return f"{value / base**step:.{4 if value / base**step >= 999.5 else 3}g}{names[step]}"


def top_of(values: Sequence[float], unit: str) -> float:
    """Return a round number that is at least the largest value."""
    largest = max(values, default=0.0)
    if largest <= 0:
        return 1.0
    base = 1024.0 if unit in ("bytes", "Bps") else 1000.0
    scale = base ** math.floor(math.log(largest, base))
    digits = 10.0 ** math.floor(math.log10(largest / scale))
    for factor in (1, 2, 4, 5, 8, 10):
        if factor * digits * scale >= largest * 0.999:
            return factor * digits * scale
    return largest


def draw(heading: str, charts: Sequence[Chart], start_s: float, end_s: float) -> str:
    """Return the picture of one dashboard from one moment to another."""
    rows = -(-len(charts) // COLUMNS)
    width = COLUMNS * (WIDTH + _GAP) + _GAP
    height = rows * (HEIGHT + _GAP) + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#f6f6f6"/>',
        f'<text x="{_GAP}" y="28" style="font-size:18px;font-weight:bold">{escape(heading)}</text>',
    ]
    for number, chart in enumerate(charts):
        row, column = divmod(number, COLUMNS)
        x, y = _GAP + column * (WIDTH + _GAP), 44 + row * (HEIGHT + _GAP)
        parts.append(f'<g transform="translate({x},{y})">')
        parts += _panel(chart, start_s, end_s)
        parts.append("</g>")
    parts.append("</svg>\n")
    return "\n".join(parts)


def _panel(chart: Chart, start_s: float, end_s: float) -> list[str]:
    values = [value for line in chart.lines for _, value in line.points if math.isfinite(value)]
    top = top_of(values, chart.unit)
    plot_width = WIDTH - _LEFT - _GAP
    parts = [
        f'<rect class="frame" width="{WIDTH}" height="{HEIGHT}" rx="4"/>',
        f'<text class="title" x="12" y="20">{escape(chart.title)}</text>',
    ]
    for tick in range(_TICKS + 1):
        y = _TOP + _PLOT_HEIGHT * (1 - tick / _TICKS)
        label = escape(told(top * tick / _TICKS, chart.unit))
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}h{plot_width}"/>')
        parts.append(
            f'<text class="small" x="{_LEFT - 5}" y="{y + 3:.1f}" text-anchor="end">{label}</text>'
        )
    for tick in range(_TICKS + 1):
        x = _LEFT + plot_width * tick / _TICKS
        label = f"{(end_s - start_s) * tick / _TICKS:.0f} s"
        anchor = "end" if tick == _TICKS else "middle"
        parts.append(
            f'<text class="small" x="{x:.1f}" y="{_TOP + _PLOT_HEIGHT + 15}" '
            f'text-anchor="{anchor}">{label}</text>'
        )
    scale_x, scale_y = plot_width / (end_s - start_s), _PLOT_HEIGHT / top
    for number, line in enumerate(chart.lines):
        path = _path(line, start_s, scale_x, scale_y)
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<path class="line" stroke="{colour}" d="{path}"/>')
    return [*parts, *_legend(chart.lines)]


def _path(line: Line, start_s: float, scale_x: float, scale_y: float) -> str:
    steps, is_down, before_s = list[str](), False, start_s
    for at_s, value in line.points:
        # Where nothing was told, nothing is drawn.
        is_down = is_down and at_s - before_s <= GAP_S
        before_s = at_s
        if not math.isfinite(value):
            is_down = False
            continue
        x, y = _LEFT + (at_s - start_s) * scale_x, _TOP + _PLOT_HEIGHT - value * scale_y
        steps.append(f"{'L' if is_down else 'M'}{x:.1f} {y:.1f}")
        is_down = True
    return "".join(steps)


def _legend(lines: Sequence[Line]) -> list[str]:
    parts, row, taken = list[str](), 0, 0
    for number, line in enumerate(lines):
        size = len(line.name) + 4
        if taken and taken + size > _LEGEND_CHARACTERS:
            row, taken = row + 1, 0
        if row == _LEGEND_ROWS:
            break
        x, y = 14 + taken * 6.3, _TOP + _PLOT_HEIGHT + 34 + row * 14
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<rect x="{x:.0f}" y="{y - 8}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text class="small" x="{x + 14:.0f}" y="{y + 1}">{escape(line.name)}</text>')
        taken += size
    return parts
