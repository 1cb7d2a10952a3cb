"""The same for programs: JSON for whoever wants numbers, JUnit for whoever runs tests.

Not here: the page (`page.py`), files (`write.py`).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final
from xml.etree import ElementTree

from ottla.chaos.checkers.faults import NEVER_NS
from ottla.chaos.evidence import Outcome, Ruling
from ottla.chaos.figures import FaultFigure
from ottla.chaos.report.judgement import Judgement

_S: Final = 1_000_000_000
FORMAT: Final = 1


def render_json(judgement: Judgement) -> str:
    facts, figures = judgement.evidence.facts, judgement.figures
    told = {
        "format": FORMAT,
        "outcome": judgement.outcome.value,
        "sentence": judgement.sentence(),
        "scenario": facts.scenario,
        "title": facts.title,
        "seed": facts.seed,
        "backend": facts.backend,
        "system": facts.system,
        "command": facts.command,
        "nodes": list(facts.nodes),
        "machine": dict(facts.machine),
        "length_s": round(figures.length_s, 3),
        "counts": dict(figures.counts),
        "latency_ms": {name: asdict(one) for name, one in figures.latency_ms.items()},
        "outages_s": {name: asdict(one) for name, one in figures.outages_s.items()},
        "roles": {fault: dict(counts) for fault, counts in figures.roles.items()},
        "worst_lag_s": figures.worst_lag_s,
        "peaks": {str(node): one._asdict() for node, one in sorted(figures.peaks.items())},
        "faults": [_fault(one, figures.began_ns) for one in figures.faults],
        "verdicts": [
            asdict(one) | {"ruling": one.ruling.value, "evidence": list(one.evidence)}
            for one in judgement.verdicts
        ],
        "harness_failures": list(judgement.evidence.harness_failures),
        "doubts": list(judgement.doubts),
    }
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def _fault(one: FaultFigure, began_ns: int) -> dict[str, Any]:
    end = one.span.end_ns
    return {
        "fault": one.span.fault,
        "targets": list(one.span.targets),
        "at_s": round((one.span.begin_ns - began_ns) / _S, 3),
        "lasted_s": None if end == NEVER_NS else round((end - one.span.begin_ns) / _S, 3),
        "outage_s": one.outage_s,
        "place": None if one.place is None else str(one.place),
        "first_ok_s": one.first_ok_s,
        "first_ok_after_heal_s": one.first_ok_after_heal_s,
    }


def render_junit(judgement: Judgement) -> str:
    """Return a test for each promise, and one for the run as a whole."""
    facts = judgement.evidence.facts
    suite = ElementTree.Element(
        "testsuite",
        name=f"chaos {facts.scenario}",
        tests=str(len(judgement.verdicts) + 1),
        failures=str(len(judgement.of(Ruling.BROKEN)) + (judgement.outcome is Outcome.FAILED)),
        errors=str(int(judgement.outcome in (Outcome.HARNESS, Outcome.INCONCLUSIVE))),
        skipped=str(len(judgement.of(Ruling.NOT_JUDGED))),
        time=f"{judgement.figures.length_s:.3f}",
    )
    for one in judgement.verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"chaos.{facts.scenario}", name=f"{one.row} {one.name}"
        )
        if one.ruling is Ruling.BROKEN:
            failure = ElementTree.SubElement(case, "failure", message=one.sentence or one.promise)
            failure.text = f"{one.promise} Events: {', '.join(map(str, one.evidence[:20]))}"
        elif one.ruling is Ruling.NOT_JUDGED:
            ElementTree.SubElement(case, "skipped", message=one.sentence)
    whole = ElementTree.SubElement(
        suite, "testcase", classname=f"chaos.{facts.scenario}", name=f"the run, seed {facts.seed}"
    )
    if judgement.outcome is Outcome.FAILED:
        ElementTree.SubElement(whole, "failure", message=judgement.sentence()).text = facts.command
    elif judgement.outcome is not Outcome.PASSED:
        ElementTree.SubElement(whole, "error", message=judgement.sentence()).text = facts.command
    ElementTree.indent(suite)
    told = ElementTree.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{told}\n'
