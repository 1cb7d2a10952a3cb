"""Charts and a page for them: SVG in one HTML file that needs nothing else.

Not here: what is shown.
"""

from __future__ import annotations

import html
from pathlib import Path

COLOURS = ("#2563eb", "#16a34a", "#d97706", "#dc2626", "#7c3aed", "#0891b2", "#be185d")
STYLE = (
    "body{font-family:sans-serif;margin:2em auto;max-width:60em;color:#1f2937}"
    "td,th{padding:.2em 1em;text-align:right}td:first-child,th:first-child{text-align:left}"
    "svg{max-width:100%;height:auto}"
)


def lines(title: str, across: str, points: dict[str, list[tuple[float, float]]]) -> str:
    """Return a line for each name through its points; `across` says what goes to the right."""
    every = [point for line in points.values() for point in line] or [(0.0, 0.0)]
    left, right = min(x for x, _ in every), max(x for x, _ in every)
    top = max(y for _, y in every)
    bottom = min(0.0, min(y for _, y in every))
    if min(y for _, y in every) > 0.5 * top:
        # A price of 101 to 103 would be a flat line above 0.
        bottom = min(y for _, y in every)
    drawn = []
    for number, (name, line) in enumerate(points.items()):
        colour = COLOURS[number % len(COLOURS)]
        dots = " ".join(
            f"{50 + 690 * (x - left) / ((right - left) or 1):.1f},"
            f"{220 - 190 * (y - bottom) / ((top - bottom) or 1):.1f}"
            for x, y in line
        )
        drawn.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{dots}"/>'
        )
        drawn.append(
            f'<text x="750" y="{40 + 20 * number}" fill="{colour}">{html.escape(name)}</text>'
        )
    labels = (
        f'<text x="4" y="34">{top:.6g}</text><text x="4" y="224">{bottom:.6g}</text>'
        f'<text x="50" y="238">{left:.6g}</text><text x="700" y="238">{right:.6g}</text>'
        f'<text x="340" y="238">{html.escape(across)}</text>'
    )
    return (
        f"<h2>{html.escape(title)}</h2>"
        f'<svg viewBox="0 0 880 244" width="880" font-family="sans-serif" font-size="13">'
        f'<path d="M50 20V220H740" fill="none" stroke="#888"/>{labels}{"".join(drawn)}</svg>'
    )


def bars(title: str, values: dict[str, float]) -> str:
    """Return a bar for each name."""
    most = max(values.values(), default=1) or 1
    drawn = []
    for number, (name, value) in enumerate(values.items()):
        y, colour = 10 + 26 * number, COLOURS[number % len(COLOURS)]
        wide = 600 * value / most
        drawn.append(
            f'<text x="4" y="{y + 15}">{html.escape(name)}</text>'
            f'<rect x="120" y="{y}" width="{wide:.1f}" height="20" fill="{colour}"/>'
            f'<text x="{128 + wide:.1f}" y="{y + 15}">{value:.6g}</text>'
        )
    high = 20 + 26 * len(values)
    return (
        f"<h2>{html.escape(title)}</h2>"
        f'<svg viewBox="0 0 880 {high}" width="880" font-family="sans-serif" font-size="13">'
        f"{''.join(drawn)}</svg>"
    )


def table(heading: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    head = "".join(f"<th>{html.escape(one)}</th>" for one in heading)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(one))}</td>" for one in row) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def write_page(path: Path, title: str, *parts: str) -> None:
    told = html.escape(title)
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{told}</title><style>{STYLE}</style><h1>{told}</h1>{''.join(parts)}</html>"
    )
    path.write_text(page, encoding="utf-8")
