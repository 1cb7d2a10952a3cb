"""The page of a run: what was promised, what was done to the cluster, and what came of it.

It is one file. It loads nothing, runs nothing, and looks right in light and in dark.

Not here: judging (`checkers/`), the picture (`timeline.py`), files (`write.py`).

P1  the same evidence gives the same page
P2  whatever the length of a run, a page stays below two megabytes
"""

from __future__ import annotations

from html import escape
from typing import Final

from ottla.chaos.checkers.starving import Starving
from ottla.chaos.evidence import Evidence, Outcome
from ottla.chaos.report import tables
from ottla.chaos.report.drawing import count, milliseconds, seconds
from ottla.chaos.report.judgement import Judgement
from ottla.chaos.report.series import UNAVAILABLE_S
from ottla.chaos.report.style import STYLE
from ottla.chaos.report.timeline import draw_timeline

_CLASSES: Final = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.INCONCLUSIVE: "inconclusive",
    Outcome.HARNESS: "harness",
}
_FAILURES_MAX: Final = 20


def render_page(judgement: Judgement) -> str:
    facts = judgement.evidence.facts
    title = f"{facts.scenario} · seed {facts.seed} · {judgement.outcome.value}"
    parts = (
        _head(judgement),
        _alarm(judgement),
        _tiles(judgement),
        _picture(judgement),
        _promises(judgement),
        _faults(judgement),
        _numbers(judgement),
        _surroundings(judgement),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{''.join(parts)}\n</main>\n</body>\n</html>\n"
    )


def _section(title: str, lead: str, inside: str) -> str:
    told = f'<p class="lead">{lead}</p>' if lead else ""
    return f"\n<section><h2>{escape(title)}</h2>{told}{inside}</section>"


def _head(judgement: Judgement) -> str:
    facts = judgement.evidence.facts
    return (
        f'<section class="headline"><header class="{_CLASSES[judgement.outcome]}" '
        'style="padding-left:18px"><div class="top"><div>'
        f'<p class="kicker">chaos run · {escape(facts.system)} · backend {escape(facts.backend)} · '
        f"{len(facts.nodes)} nodes · seed {facts.seed}</p>"
        f"<h1>{escape(_name(judgement))}</h1></div>"
        f'<span class="pill big">{escape(judgement.outcome.value)}</span></div>'
        f'<p class="verdict">{escape(judgement.sentence())}</p>'
        '<div class="repeat"><span class="soft">Do it again:</span> '
        f"<code>{escape(facts.command)}</code></div></header></section>"
    )


def _name(judgement: Judgement) -> str:
    facts = judgement.evidence.facts
    return f"{facts.scenario}: {facts.title}" if facts.title else facts.scenario


def _alarm(judgement: Judgement) -> str:
    failures = judgement.evidence.harness_failures
    if not failures:
        return ""
    told = "".join(f"<li>{escape(one)}</li>" for one in failures[:_FAILURES_MAX])
    return (
        '\n<section class="alarm"><h2>The harness failed</h2><p class="lead">A run in which the '
        f"harness failed says nothing about the system.</p><ul>{told}</ul></section>"
    )


def _tiles(judgement: Judgement) -> str:
    figures = judgement.figures
    spread = figures.latency_ms.get("acks=all") or next(iter(figures.latency_ms.values()), None)
    worst = max((one.outage_s for one in figures.faults), default=None)
    tiles = (
        (count(judgement.total("send ok")), "acknowledged"),
        (count(judgement.total("send unknown")), "outcome unknown"),
        (count(judgement.total("send fail")), "surely refused"),
        (str(len(figures.faults)), "fault" if len(figures.faults) == 1 else "faults"),
        (seconds(worst), "longest outage"),
        (milliseconds(None if spread is None else spread.p50), "median latency"),
        (milliseconds(None if spread is None else spread.p99), "99th percentile"),
        (seconds(judgement.series.length_s), "of load"),
    )
    told = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in tiles
    )
    return f'\n<div class="tiles">{told}</div>'


def _picture(judgement: Judgement) -> str:
    evidence = judgement.evidence
    drawn = draw_timeline(judgement.series, evidence.facts.nodes)
    lead = (
        "Time goes from left to right. A red band is a fault, from when it was injected until it "
        "was mended. A thin red line above a partition is a time without an acknowledged write of "
        f"more than {UNAVAILABLE_S:g} s. Rest the pointer on anything to read what it is."
    )
    return _section("What happened", lead, f'<div class="scroll">{drawn}</div>')


def _promises(judgement: Judgement) -> str:
    lead = (
        "Each promise is judged from what clients were answered and shown, from what is in the "
        "logs at the end, and, where the system tells it, from the trace of its nodes."
    )
    table = tables.promises(judgement.evidence, judgement.verdicts)
    return _section("What was promised", lead, table)


def _faults(judgement: Judgement) -> str:
    figures = judgement.figures
    if not figures.faults:
        return ""
    lead = (
        "The longest outage is the longest time without an acknowledged write in any one "
        "partition, during the fault or the time for recovery after it."
    )
    by_name = (
        f"<h3>By kind</h3>{tables.outages(figures)}"
        if len(figures.faults) > len(figures.outages_s)
        else ""
    )
    met = f"<h3>Who was hit, as chosen then</h3>{tables.roles(figures.roles)}"
    told = tables.faults(figures) + by_name + (met if figures.roles else "")
    return _section("What was broken, and for how long", lead, told)


def _numbers(judgement: Judgement) -> str:
    figures = judgement.figures
    lag = (
        ""
        if figures.worst_lag_s is None
        else f'<p class="soft">An acknowledged record was read by somebody after at most '
        f"{seconds(figures.worst_lag_s)}.</p>"
    )
    used = f"<h3>The most that nodes used</h3>{tables.peaks(figures)}" if figures.peaks else ""
    return (
        '\n<div class="two">'
        + _section("What became of what was tried", "", tables.outcomes(figures.counts))
        + _section("How long it took", "", tables.latencies(figures) + lag + used)
        + "</div>"
    )


def _processors(evidence: Evidence) -> str:
    """Return how much of them the run had to share."""
    loads = evidence.loads
    if not loads:
        return "nobody looked who had them"
    others = sum(one.others for one in loads) / len(loads)
    starved = Starving(loads).share
    return f"{others:.0%} were taken by others, and {starved:.0%} of the time was starved"


def _surroundings(judgement: Judgement) -> str:
    evidence = judgement.evidence
    facts = evidence.facts
    trace = "not told" if evidence.trace is None else f"{count(len(evidence.trace))} lines"
    about = (
        ("system", facts.system),
        ("backend", facts.backend),
        ("nodes", ", ".join(map(str, facts.nodes))),
        ("scenario, seed", f"{facts.scenario}, {facts.seed}"),
        ("events", count(len(evidence.events))),
        ("trace of nodes", trace),
        ("final reads", count(len(evidence.finals))),
        ("processors", _processors(evidence)),
        *facts.machine.items(),
    )
    topics = (
        (name, ", ".join(f"{key}={value}" for key, value in sorted(options.items())) or "–")
        for name, options in sorted(facts.topics.items())
    )
    return (
        '\n<div class="two">'
        + _section("On what", "", tables.definitions(about))
        + _section("Topics", "", tables.definitions(topics))
        + "</div>"
    )
