"""How a figure, its spread and a table are written.

Not here: which tables there are (`render.py`, `details.py`, `agreement.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.versus.figures import Summary


def number(value: float) -> str:
    """Return a figure with three digits that count."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def told(summary: Summary | None) -> str:
    """Return the median, and the least and the most in brackets."""
    if summary is None:
        return "–"
    if summary.rounds == 1:
        return f"{number(summary.median)} (once)"
    return f"{number(summary.median)} ({number(summary.least)}–{number(summary.most)})"


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
