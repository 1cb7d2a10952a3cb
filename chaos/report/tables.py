"""The tables of the page: promises with their evidence, faults, outcomes, latencies.

Not here: the picture (`timeline.py`), the page around them (`page.py`).

T1  every text that came from outside is escaped
T2  evidence is shown for so many events of so many characters, so that a page stays small
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from ottla.chaos.checkers.faults import NEVER_NS
from ottla.chaos.evidence import Evidence, Ruling, Verdict
from ottla.chaos.figures import Figures
from ottla.chaos.history import Event, Kind, Operation, operations, to_line
from ottla.chaos.report.drawing import count, milliseconds, seconds

_PILLS: Final = {
    Ruling.HELD: ("held", "✓ held"),
    Ruling.BROKEN: ("broken", "✗ broken"),
    Ruling.COUNTED: ("counted", "≈ counted"),
    Ruling.NOT_JUDGED: ("unjudged", "– not judged"),
}
_SHOWN_MAX: Final = 12
_LINE_MAX: Final = 900
_FAULTS_MAX: Final = 60
_S: Final = 1_000_000_000
_MB: Final = 1_000_000


def table(headings: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; headings are (text, class), cells are HTML already."""
    head = "".join(f'<th class="{kind}">{escape(said)}</th>' for said, kind in headings)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}">{cell}</td>' for cell, (_, kind) in zip(row, headings, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


# ── Promises ──────────────────────────────────────────────────────────────────────────────────

_WEIGHT: Final = {Ruling.BROKEN: 0, Ruling.COUNTED: 1, Ruling.HELD: 2, Ruling.NOT_JUDGED: 3}


def promises(evidence: Evidence, verdicts: Sequence[Verdict]) -> str:
    """Return all verdicts, what is broken first."""
    shown = _Shown(evidence, verdicts)
    ordered = sorted(verdicts, key=lambda one: (_WEIGHT[one.ruling], one.row))
    rows = []
    for one in ordered:
        kind, said = _PILLS[one.ruling]
        rows.append(
            (
                str(one.row),
                f'<span class="pill {kind}">{said}</span>',
                f"{escape(one.promise)}{_found(one)}{shown.details(one)}",
                escape(one.name),
            )
        )
    headings = (
        ("#", "row"),
        ("Verdict", ""),
        ("Promise, and what was found", ""),
        ("Name", "name"),
    )
    return table(headings, rows)


def _found(verdict: Verdict) -> str:
    if not verdict.sentence:
        return ""
    times = f" ({count(verdict.count)}×)" if verdict.count > 1 else ""
    kind = "found bad" if verdict.ruling is Ruling.BROKEN else "found"
    return f'<div class="{kind}">{escape(verdict.sentence)}{times}</div>'


class _Shown:
    """Looks events up by their index, with the other half of their operation."""

    def __init__(self, evidence: Evidence, verdicts: Sequence[Verdict]) -> None:
        wanted = {index for one in verdicts for index in one.evidence}
        self._began_ns: Final = evidence.events[0].t_ns if evidence.events else 0
        self._by_index: Final = dict[int, Operation]()
        if wanted:
            for one in operations(evidence.events):
                for event in (one.begin, one.end):
                    if event is not None and event.index in wanted:
                        self._by_index[event.index] = one

    def details(self, verdict: Verdict) -> str:
        if not verdict.evidence:
            return ""
        chosen = verdict.evidence[:_SHOWN_MAX]
        found = dict.fromkeys(
            self._by_index[index].index for index in chosen if index in self._by_index
        )
        lines = [self._told(self._by_index[index]) for index in chosen if index in self._by_index]
        told = "\n\n".join(dict.fromkeys(lines))
        more = len(verdict.evidence) - len(chosen)
        rest = f" and {more} more" if more > 0 else ""
        named = ", ".join(f"#{index}" for index in found) or ", ".join(
            f"#{index}" for index in chosen
        )
        return (
            f"<details><summary>evidence: operations {named}{rest}</summary>"
            f"<pre>{escape(told)}</pre></details>"
        )

    def _told(self, one: Operation) -> str:
        return "\n".join(self._line(event) for event in (one.begin, one.end) if event is not None)

    def _line(self, event: Event) -> str:
        line = to_line(event)
        cut = line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX]} … ({len(line)} characters)"
        return f"{(event.t_ns - self._began_ns) / _S:9.3f} s  {cut}"


# ── Numbers ───────────────────────────────────────────────────────────────────────────────────


def faults(figures: Figures) -> str:
    headings = (
        ("Fault", ""),
        ("Nodes", ""),
        ("At", "num"),
        ("Lasted", "num"),
        ("Longest outage", "num"),
        ("Partition", ""),
        ("First write after", "num"),
        ("After mending", "num"),
    )
    rows = []
    for one in figures.faults[:_FAULTS_MAX]:
        span = one.span
        is_open = span.end_ns == NEVER_NS
        rows.append(
            (
                escape(span.fault),
                ", ".join(map(str, span.targets)) or "–",
                f"{(span.begin_ns - figures.began_ns) / _S:.1f} s",
                "to the end" if is_open else seconds((span.end_ns - span.begin_ns) / _S),
                seconds(one.outage_s),
                "–" if one.place is None else escape(str(one.place)),
                seconds(one.first_ok_s),
                seconds(one.first_ok_after_heal_s),
            )
        )
    left = len(figures.faults) - len(rows)
    more = f'<p class="soft">and {left} more</p>' if left else ""
    return table(headings, rows) + more


def outages(figures: Figures) -> str:
    headings = (("Fault", ""), ("Times", "num"), ("p50", "num"), ("p99", "num"), ("worst", "num"))
    rows = (
        (escape(name), str(one.count), seconds(one.p50), seconds(one.p99), seconds(one.largest))
        for name, one in sorted(figures.outages_s.items())
    )
    return table(headings, rows)


def roles(met: Mapping[str, Mapping[str, int]]) -> str:
    """Return as what nodes were hit, by the kind of fault."""
    names = sorted({name for counts in met.values() for name in counts})
    headings = (("Fault", ""), *((name, "num") for name in names))
    rows = (
        (escape(fault), *(str(counts.get(name, 0)) for name in names))
        for fault, counts in sorted(met.items())
    )
    return table(headings, rows)


def latencies(figures: Figures) -> str:
    headings = (
        ("Writes", ""),
        ("Acknowledged", "num"),
        ("p50", "num"),
        ("p95", "num"),
        ("p99", "num"),
        ("slowest", "num"),
    )
    rows = (
        (
            escape(name),
            count(one.count),
            *map(milliseconds, (one.p50, one.p95, one.p99, one.largest)),
        )
        for name, one in figures.latency_ms.items()
    )
    return table(headings, rows)


def peaks(figures: Figures) -> str:
    headings = (("Node", ""), ("Memory", "num"), ("Open files", "num"), ("Disk", "num"))
    rows = (
        (
            str(node),
            f"{one.rss_bytes / _MB:.0f} MB",
            count(one.open_files),
            f"{one.disk_bytes / _MB:.1f} MB",
        )
        for node, one in sorted(figures.peaks.items())
    )
    return table(headings, rows)


def outcomes(counts: Mapping[str, int]) -> str:
    """Return a bar for each outcome and each error."""
    most = max(counts.values(), default=1)
    rows = []
    for name, value in sorted(counts.items(), key=_by_outcome):
        function, kind, *error = name.split(" ", 2)
        width = max(0.5, 100 * value / most)
        said = f"{function} {kind}" + (f" · {error[0]}" if error else "")
        rows.append(
            f'<span>{escape(said)}</span><i class="{escape(kind)}" style="width:{width:.1f}%"></i>'
            f"<b>{count(value)}</b>"
        )
    return f'<div class="bars">{"".join(rows)}</div>'


def _by_outcome(item: tuple[str, int]) -> tuple[str, int, int]:
    function, kind, *_ = item[0].split(" ", 2)
    order = (Kind.OK.value, Kind.UNKNOWN.value, Kind.FAIL.value)
    return function, order.index(kind) if kind in order else len(order), -item[1]


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    told = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f"<dl>{told}</dl>"
