"""Collects what a checker finds, and makes a verdict of it.

Not here: what is looked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ottla.chaos.checkers.rows import ROWS
from ottla.chaos.evidence import Ruling, Verdict

# So many findings are told in words, and so many events are named.
_TOLD_MAX: Final = 3
_EVIDENCE_MAX: Final = 10


@dataclass(slots=True)
class Findings:
    """Things of one kind that were found, of which the first few are told."""

    count: int = 0
    sentences: list[str] = field(default_factory=list)
    events: list[int] = field(default_factory=list)

    def add(self, sentence: str, *events: int) -> None:
        """Note one finding, and the events of the history that show it."""
        self.count += 1
        if len(self.sentences) < _TOLD_MAX:
            self.sentences.append(sentence)
            self.events += events

    def told(self) -> str:
        more = self.count - len(self.sentences)
        return "; ".join([*self.sentences, *([f"and {more} more"] if more > 0 else [])])


def ruled(row: int, broken: Findings, allowed: Findings | None = None, said: str = "") -> Verdict:
    """Return the verdict that follows from what is wrong and what is allowed and counted."""
    if broken.count:
        return _verdict(row, Ruling.BROKEN, broken, broken.told())
    if allowed is not None and allowed.count:
        return _verdict(row, Ruling.COUNTED, allowed, allowed.told())
    return _verdict(row, Ruling.HELD, broken, said)


def not_judged(row: int, why: str) -> Verdict:
    return _verdict(row, Ruling.NOT_JUDGED, Findings(), why)


def _verdict(row: int, ruling: Ruling, findings: Findings, sentence: str) -> Verdict:
    return Verdict(
        row=row,
        name=ROWS[row].name,
        promise=ROWS[row].promise,
        ruling=ruling,
        sentence=sentence,
        count=findings.count,
        evidence=tuple(dict.fromkeys(findings.events))[:_EVIDENCE_MAX],
    )
