"""What a turn measured besides the figure that stands in the table, and the goals round by round.

A goal's median hides whether a system was still getting faster: so each round is shown, with those
before that were not counted, and the median of the last three.

Not here: the figures that workloads are named for (`render.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.peers.table import VARIANTS
from bench.versus.cells import markdown, number, told
from bench.versus.figures import Summary, ratio_of, summary_of
from bench.versus.goals import GOALS, Goal
from bench.versus.results import Figures, Results, fell_behind
from bench.versus.workloads import WORKLOADS, Kind, Workload, baseline_of


@dataclass(frozen=True, slots=True)
class Detail:
    """One further figure of a kind of turn."""

    figure: str
    unit: str
    # Of those that sync: the kernel may do it in threads of its own, in nobody's account.
    is_of_kernel: bool = False


_CPU: Final = Detail("cpu_s_per_gb", "CPU s/GB")
_CPU_WITH_KERNEL: Final = Detail(
    "cpu_s_per_gb_with_kernel", "CPU s/GB, with the kernel's threads", is_of_kernel=True
)
_CPU_EACH: Final = Detail("cpu_us_per_record", "µs CPU each")
_CPU_EACH_WITH_KERNEL: Final = Detail(
    "cpu_us_per_record_with_kernel", "µs CPU each, with the kernel's threads", is_of_kernel=True
)
_MEMORY: Final = Detail("rss_peak_mb", "MB, the largest node")
_DRIVER: Final = Detail("driver_cores", "driver cores")
_TAILS: Final = (Detail("p99_ms", "ms p99"), Detail("p999_ms", "ms p99.9"))

DETAILS: Final[Mapping[Kind, Sequence[Detail]]] = {
    "produce": (_CPU, _CPU_WITH_KERNEL, _MEMORY, _DRIVER),
    "consume": (_CPU, _MEMORY, _DRIVER),
    "together": (Detail("mb_per_s", "MB/s written"), _CPU, _CPU_WITH_KERNEL, _MEMORY),
    "pace": (
        *_TAILS,
        _CPU_EACH,
        _CPU_EACH_WITH_KERNEL,
        _MEMORY,
        Detail("disk_p50_ms", "ms p50 of the disk alone"),
        Detail("disk_p99_ms", "ms p99 of the disk alone"),
    ),
    "flow": (*_TAILS, Detail("ack_p50_ms", "ms p50 of the ack"), _MEMORY),
    "start": (
        Detail("rss_idle_mb", "MB idle"),
        Detail("idle_cores", "cores idle"),
        Detail("start_cpu_s", "CPU s"),
    ),
    "outage": (Detail("first_ack_after_s", "s to the first new record"),),
    "partitions": (
        Detail("before_mb_per_s", "MB/s before"),
        Detail("warm_gb", "GB to warm up"),
        Detail("create_s", "s to make"),
        Detail("failover_s", "s to fail over"),
        Detail("rss_mb", "MB, the largest node"),
    ),
    "restart": (Detail("stopped_s", "s after a stop"), Detail("stop_s", "s to stop")),
}
_LAST: Final = 3


def detail_values(
    results: Results, row: Workload, variant: str, detail: Detail
) -> dict[int, float]:
    """Return a further figure of each round, or nothing where it says nothing."""
    if detail.is_of_kernel and VARIANTS[variant].durability != "fsync":
        return {}
    if detail is _CPU_EACH_WITH_KERNEL:
        rounds = results.rounds(row.name, variant)
        return {at: each for at, one in rounds.items() if (each := _each_with_kernel(one, row))}
    return results.values(row.name, variant, detail.figure)


def _each_with_kernel(one: Figures, row: Workload) -> float | None:
    """Return the time of each record with all that was busy with neither drivers nor others."""
    if not {"cpu_us_per_record", "elsewhere_cores", "spent_s"} <= one.keys():
        return None
    acked = max(1, row.records - int(one.get("left", 0)))
    kernel_s = float(one["elsewhere_cores"]) * float(one["spent_s"]["load"])
    return float(one["cpu_us_per_record"]) + kernel_s / acked * 1e6


def detail_table(results: Results) -> str:
    """Return a line for each further figure, and a column for each peer."""
    rows = [
        [row.title, detail.unit, *cells]
        for row in WORKLOADS.values()
        for detail in DETAILS[row.kind]
        if any(cells := [_cell(results, row, variant, detail) for variant in VARIANTS])
    ]
    return markdown(["workload", "figure", *VARIANTS], rows)


def _cell(results: Results, row: Workload, variant: str, detail: Detail) -> str:
    if variant not in row.variants:
        return ""
    ours = detail_values(results, row, variant, detail)
    found = summary_of(list(ours.values()))
    if found is None:
        return ""
    baseline = baseline_of(row, variant)
    is_bound = fell_behind(results, row.name, variant, baseline)
    if baseline == variant or is_bound or not row.is_compared:
        return told(found)
    ratio = ratio_of(ours, detail_values(results, row, baseline, detail))
    return told(found) if ratio is None else f"{told(found)}, ×{number(ratio.median)}"


def round_table(results: Results) -> str:
    """Return each goal in each round, before any counted too, and the median of the last three."""
    found = [(goal, early(goal, results), by_round(goal, results)) for goal in GOALS]
    last = max((at for _, _, rounds in found for at in rounds), default=0)
    rows = []
    for goal, before, rounds in found:
        cells = [number(rounds[at]) if at in rounds else "" for at in range(1, last + 1)]
        uncounted = ", ".join(number(one) for one in before)
        rows.append([goal.title, goal.wish, uncounted, *cells, told(late(rounds))])
    numbers = [f"round {at}" for at in range(1, last + 1)]
    return markdown(["figure", "goal", "uncounted", *numbers, f"the last {_LAST} rounds"], rows)


def early(goal: Goal, results: Results) -> list[float]:
    """Return what would have judged a goal in the rounds that are not counted."""
    ours = results.uncounted(goal.workload, goal.ours, goal.figure)
    if goal.theirs is None:
        return list(ours.values())
    theirs = results.uncounted(goal.workload, goal.theirs, goal.figure)
    return [one / theirs[at] for at, one in ours.items() if theirs.get(at)]


def by_round(goal: Goal, results: Results) -> dict[int, float]:
    """Return what judges a goal, round by round: the ratio, or our own figure."""
    ours = results.values(goal.workload, goal.ours, goal.figure)
    if goal.theirs is None:
        return ours
    theirs = results.values(goal.workload, goal.theirs, goal.figure)
    return {at: ours[at] / theirs[at] for at in sorted(ours) if theirs.get(at)}


def late(rounds: Mapping[int, float]) -> Summary | None:
    return summary_of([rounds[at] for at in sorted(rounds)[-_LAST:]])
