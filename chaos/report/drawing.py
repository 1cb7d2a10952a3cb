"""Shapes of SVG as text, and numbers as people read them.

Not here: what is drawn (`timeline.py`), colours (`style.py`).

D1  every text that came from outside is escaped
"""

from __future__ import annotations

from html import escape
from typing import Final

_MINUTE_S: Final = 60.0
_TEN: Final = 10


def number(value: float) -> str:
    """Return a coordinate, short."""
    return f"{value:.1f}".removesuffix(".0")


def rect(
    x: float, y: float, width: float, height: float, kind: str, title: str = "", radius: float = 0
) -> str:
    rounded = f' rx="{number(radius)}"' if radius else ""
    shape = (
        f'<rect class="{kind}" x="{number(x)}" y="{number(y)}" width="{number(max(width, 0.6))}" '
        f'height="{number(height)}"{rounded}'
    )
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return (
        f'<line class="{kind}" x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" '
        f'y2="{number(y2)}"/>'
    )


def text(x: float, y: float, said: str, kind: str, anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">'
        f"{escape(said)}</text>"
    )


def path(points: list[tuple[float, float]], kind: str, *, closed: bool = False) -> str:
    if not points:
        return ""
    told = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return f'<path class="{kind}" d="M{told}{"Z" if closed else ""}"/>'


def seconds(value: float | None) -> str:
    """Return a length of time, with as many digits as matter."""
    if value is None:
        return "–"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 2 * _MINUTE_S:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), int(_MINUTE_S))
    return f"{minutes} min {rest} s" if minutes < _TEN else f"{minutes} min"


def milliseconds(value: float | None) -> str:
    return "–" if value is None else seconds(value / 1000)


def count(value: int) -> str:
    """Return a number with thin spaces between thousands."""
    return f"{value:,}".replace(",", "\u202f")
