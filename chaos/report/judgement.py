"""A run, judged: what every form of the report is made from.

Not here: the forms (`page.py`, `documents.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.chaos.checkers.happened import places_of
from ottla.chaos.checkers.judge import doubts, judge, outcome
from ottla.chaos.evidence import Evidence, Outcome, Ruling, Verdict
from ottla.chaos.figures import Figures, figures_of
from ottla.chaos.report.series import Series, series_of


@dataclass(frozen=True, slots=True)
class Judgement:
    """The evidence, and all that follows from it."""

    evidence: Evidence
    verdicts: Sequence[Verdict]
    outcome: Outcome
    figures: Figures
    series: Series
    # Why it is inconclusive, if it is.
    doubts: Sequence[str] = ()

    def of(self, ruling: Ruling) -> list[Verdict]:
        return [one for one in self.verdicts if one.ruling is ruling]

    def total(self, prefix: str) -> int:
        """Return how many operations there were of a function, or of a function and an outcome."""
        return sum(
            value
            for name, value in self.figures.counts.items()
            if name == prefix or name.startswith(f"{prefix} ")
        )

    def sentence(self) -> str:
        """Return the whole run in a sentence or two."""
        broken, told = self.of(Ruling.BROKEN), self._counted()
        if self.outcome is Outcome.HARNESS:
            return f"The harness itself failed, so nothing is said about the system. {told}"
        if broken:
            first = broken[0]
            why = f" Found: {first.sentence}." if first.sentence else ""
            return f"A promise was broken: {first.promise}{why} {told}"
        if self.outcome is Outcome.FAILED:
            return f"What this test of the judge should have found was not found. {told}"
        if self.outcome is Outcome.INCONCLUSIVE:
            why = "; ".join(self.doubts[:3])
            more = f"; and {len(self.doubts) - 3} more" if len(self.doubts) > 3 else ""
            return f"Nothing was broken, and too little was shown to say so: {why}{more}. {told}"
        return f"Every promise that could be judged was kept. {told}"

    def _counted(self) -> str:
        words = (
            (Ruling.HELD, "held"),
            (Ruling.BROKEN, "broken"),
            (Ruling.COUNTED, "counted, and allowed here"),
            (Ruling.NOT_JUDGED, "not judged"),
        )
        told = [f"{len(found)} {word}" for ruling, word in words if (found := self.of(ruling))]
        reached, asked = places_of(self.evidence)
        places = f" Named places reached: {reached} of {asked}." if asked else ""
        return f"Of {len(self.verdicts)} promises: {', '.join(told)}.{places}"


def judge_run(evidence: Evidence) -> Judgement:
    verdicts = judge(evidence)
    return Judgement(
        evidence,
        verdicts,
        outcome(evidence, verdicts),
        figures_of(evidence),
        series_of(evidence),
        doubts(evidence, verdicts),
    )
