"""Two runs side by side: which figures agree within the spread that they report, and which not.

    agree       the median of one run lies between the least and the most of the other (S3)
    near        it does with that spread widened by a tenth at both ends
    differ      neither
    saturated   a system did not keep up in a round of either: the figure, or ratio, is a bound

E1  a figure agrees or it does not: being near is told, and not counted as agreeing
E2  what only one of the runs has is counted, and compared with nothing; so is what is saturated

Not here: what the figures are (`render.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bench.versus.cells import markdown, told
from bench.versus.details import DETAILS, Detail, detail_values
from bench.versus.figures import Summary, agree, ratio_of, summary_of
from bench.versus.goals import GOALS, judged
from bench.versus.results import Results, fell_behind
from bench.versus.workloads import WORKLOADS, Workload, baseline_of

Verdict = Literal["agree", "near", "differ", "saturated"]

_NEAR: Final = 0.1
_RULE: Final = (
    "Two runs *agree* on a figure if the median of one of them lies within the spread of the "
    "other, from the least to the most of its rounds. They are *near* if it does with that spread "
    "widened by a tenth at both ends, and *differ* otherwise. Of two runs that differ by chance "
    "alone, 95 of 100 figures with five rounds agree, and 80 with three. A ratio is the median of "
    "the ratios within the rounds; Kafka's to itself says nothing, and is not counted. Nor is a "
    "figure that is *saturated* in a round of either run, or a ratio or a goal with such a figure: "
    "it is a lower bound."
)


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure in both runs."""

    title: str
    one: Summary
    other: Summary
    is_saturated: bool

    @property
    def verdict(self) -> Verdict:
        if self.is_saturated:
            return "saturated"
        if agree(self.one, self.other):
            return "agree"
        return "near" if agree(self.one, self.other, _NEAR) else "differ"

    @property
    def cells(self) -> list[str]:
        verdict = self.verdict
        return [
            told(self.one),
            told(self.other),
            f"**{verdict}**" if verdict in ("near", "differ") else verdict,
        ]

    @property
    def change(self) -> str:
        """Return the other run's median as a multiple of the first one's."""
        return f"{self.other.median / self.one.median:.2f}" if self.one.median else "–"


def _paired(
    title: str, both: Sequence[Summary | None], *, is_saturated: bool = False
) -> Pair | None:
    one, other = both
    return None if one is None or other is None else Pair(title, one, other, is_saturated)


def _behind(runs: Sequence[Results], workload: str, *variants: str | None) -> bool:
    named = [variant for variant in variants if variant is not None]
    return any(fell_behind(run, workload, *named) for run in runs)


def _figure(results: Results, row: Workload, variant: str) -> Summary | None:
    return summary_of(list(results.values(row.name, variant, row.figure).values()))


def _ratio(results: Results, row: Workload, variant: str) -> Summary | None:
    baseline = baseline_of(row, variant)
    if baseline == variant or not row.is_compared:
        return None
    figures = (results.values(row.name, one, row.figure) for one in (variant, baseline))
    return ratio_of(*figures)


def _ratio_cells(ratio: Pair | None) -> list[str]:
    if ratio is None:
        return [""] * 3
    return ["–", "–", ratio.verdict] if ratio.is_saturated else ratio.cells


def _counted(what: str, pairs: Sequence[Pair]) -> str:
    count = Counter(pair.verdict for pair in pairs)
    near = f"{count['near']} near, " if count["near"] else ""
    saturated = f", {count['saturated']} saturated and not counted" if count["saturated"] else ""
    return (
        f"{count['agree']} of {len(pairs) - count['saturated']} {what} agree "
        f"({near}{count['differ']} differ{saturated})"
    )


def _detail_rows(runs: Sequence[Results]) -> tuple[list[list[str]], list[Pair]]:
    """Return what else both runs measured."""
    rows, pairs = list[list[str]](), list[Pair]()
    for row in WORKLOADS.values():
        for variant in row.variants:
            for detail in DETAILS[row.kind]:
                both = [_detail(run, row, variant, detail) for run in runs]
                pair = _paired(
                    f"{row.name} {variant}, {detail.unit}",
                    both,
                    is_saturated=_behind(runs, row.name, variant),
                )
                if pair is not None:
                    pairs.append(pair)
                    rows.append([row.name, variant, detail.unit, *pair.cells])
    return rows, pairs


def _detail(results: Results, row: Workload, variant: str, detail: Detail) -> Summary | None:
    return summary_of(list(detail_values(results, row, variant, detail).values()))


def _goal_rows(one: Results, other: Results) -> tuple[list[list[str]], list[Pair], int]:
    """Return the goals with what both runs say, those that could be compared, and how many of
    these have the same verdict twice.
    """
    rows, pairs, same = list[list[str]](), list[Pair](), 0
    for goal in GOALS:
        found = [judged(goal, run) for run in (one, other)]
        pair = _paired(
            goal.title,
            [run.measured for run in found],
            is_saturated=_behind((one, other), goal.workload, goal.ours, goal.theirs),
        )
        if pair is None:
            continue
        pairs.append(pair)
        first, second = (run.verdict for run in found)
        same += first == second
        rows.append(
            [goal.title, goal.wish, *pair.cells, first if first == second else f"{first}, {second}"]
        )
    return rows, pairs, same


def compared(one: Results, other: Results) -> str:
    """Return what two runs say of each figure and each ratio, and whether they agree."""
    runs = (one, other)
    rows, figures, ratios, single = list[list[str]](), list[Pair](), list[Pair](), 0
    for row in WORKLOADS.values():
        for variant in row.variants:
            both = [_figure(run, row, variant) for run in runs]
            figure = _paired(
                f"{row.name} {variant}, {row.unit}",
                both,
                is_saturated=_behind(runs, row.name, variant),
            )
            if figure is None:
                single += any(both)
                continue
            ratio = _paired(
                f"{row.name} {variant}, ratio",
                [_ratio(run, row, variant) for run in runs],
                is_saturated=_behind(runs, row.name, variant, baseline_of(row, variant)),
            )
            figures.append(figure)
            ratios += [ratio] if ratio else []
            rows.append([row.name, variant, row.unit, *figure.cells, *_ratio_cells(ratio)])
    goal_rows, goals, same = _goal_rows(one, other)
    detail_rows, details = _detail_rows(runs)
    apart = [pair for pair in (*figures, *ratios) if pair.verdict in ("near", "differ")]
    return "\n\n".join(
        [
            f"**{_counted('figures', figures)}; {_counted('ratios to Kafka', ratios)}; "
            f"{_counted('goals', goals)}, and {same} of {len(goals)} goals have the same verdict "
            f"in both. Of what else was measured, {_counted('figures', details)}.**"
            + (f" Only one run has {single} further figures." if single else ""),
            _RULE,
            "## Goals",
            markdown(["figure", "goal", "one", "other", "", "verdict"], goal_rows),
            "## What does not agree",
            _apart_table(apart) if apart else "Nothing.",
            "## Every figure",
            markdown(
                ["workload", "peer", "unit", "one", "other", "", "ratio: one", "other", ""], rows
            ),
            "## What else was measured",
            markdown(["workload", "peer", "figure", "one", "other", ""], detail_rows),
        ]
    )


def _apart_table(pairs: Sequence[Pair]) -> str:
    rows = [[pair.title, *pair.cells, pair.change] for pair in pairs]
    return markdown(["figure", "one", "other", "", "other as a multiple of one"], rows)


def agreement_page(one: Results, other: Results) -> str:
    """Return the whole page."""
    names = [run.folder.name for run in (one, other)]
    code = ", ".join(
        f"{name}: {' '.join(run.facts().get('commits', [])) or 'unknown'}"
        for name, run in zip(names, (one, other), strict=True)
    )
    return "\n\n".join(
        [
            "# Two runs of the table",
            f"Made by `python -m bench.versus compare {' '.join(names)}` from what was measured: "
            f"edit nothing here. Code of {code}.",
            compared(one, other) + "\n",
        ]
    )
