"""One page for many runs: a line for each, and the way to its own page.

Made from the `verdict.json` of each run, so that runs of many days can stand side by side.

Not here: the page of one run (`page.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from ottla.chaos.report.drawing import count, milliseconds, seconds
from ottla.chaos.report.style import STYLE
from ottla.chaos.report.tables import roles, table

_PILLS: Final = {
    "passed": ("held", "✓ passed"),
    "failed": ("broken", "✗ failed"),
    "inconclusive": ("counted", "? inconclusive"),
    "harness failure": ("counted", "! harness failure"),
}
# Of what was found, as much as fits on a line or two: the rest stands on the run's own page.
_BROKEN_MAX: Final = 2
_SAID_MAX: Final = 120
_HEADINGS: Final = (
    ("Scenario", ""),
    ("Verdict", ""),
    ("What happened", ""),
    ("Seed", "num"),
    ("Acknowledged", "num"),
    ("Unknown", "num"),
    ("Refused", "num"),
    ("Faults", "num"),
    ("Longest outage", "num"),
    ("Median", "num"),
)


def render_overview(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return the page; each run is the name of its folder and what its verdict.json tells."""
    ordered = sorted(runs, key=lambda one: (one[1]["outcome"] == "passed", one[0]))
    counted = Counter(str(told["outcome"]) for _, told in runs)
    told = ", ".join(f"{number} {name}" for name, number in counted.most_common())
    writes = sum(_sends(one, "ok") for _, one in runs)
    faults = sum(len(one["faults"]) for _, one in runs)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>Chaos: {escape(told)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<section><h1>Chaos: {escape(told) or 'no runs'}</h1>"
        f'<p class="lead">{len(runs)} runs, {count(faults)} faults, {count(writes)} acknowledged '
        "writes. What did not pass comes first.</p>"
        f"{table(_HEADINGS, [_row(*one) for one in ordered])}{_met(runs)}</section>\n"
        "</main>\n</body>\n</html>\n"
    )


def _met(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return as what nodes were hit in all runs together, by the kind of fault."""
    met = defaultdict[str, Counter[str]](Counter)
    for _, told in runs:
        # Runs of before do not tell.
        for fault, counts in told.get("roles", {}).items():
            met[fault].update(counts)
    return f"<h3>Who was hit, as chosen then</h3>{roles(met)}" if met else ""


def _sends(told: Mapping[str, Any], outcome: str) -> int:
    name = f"send {outcome}"
    counts: Mapping[str, int] = told["counts"]
    return sum(value for key, value in counts.items() if key == name or key.startswith(f"{name} "))


def _row(folder: str, told: Mapping[str, Any]) -> tuple[str, ...]:
    kind, said = _PILLS[told["outcome"]]
    worst = max((one["outage_s"] for one in told["faults"]), default=None)
    spread = told["latency_ms"].get("acks=all")
    broken = [one for one in told["verdicts"] if one["ruling"] == "broken"]
    found = "".join(
        f'<div class="found bad">{escape(one["name"])}: {escape(one["sentence"][:_SAID_MAX])}</div>'
        for one in broken[:_BROKEN_MAX]
    )
    return (
        f'<a href="{escape(folder, quote=True)}/report.html">{escape(told["scenario"])}</a>',
        f'<span class="pill {kind}">{said}</span>',
        f"{escape(told.get('title', ''))}{found}",
        str(told["seed"]),
        count(_sends(told, "ok")),
        count(_sends(told, "unknown")),
        count(_sends(told, "fail")),
        str(len(told["faults"])),
        seconds(worst),
        milliseconds(None if spread is None else spread["p50"]),
    )
