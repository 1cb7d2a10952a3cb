"""What the figures should be: the rows of the table in issue 12, each judged by what was measured.

    ratio   ours to the baseline's, within the rounds (2.0: twice as much)
    value   ours as it is

Not here: the rest of the table (`render.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bench.versus.figures import Summary, ratio_of, summary_of
from bench.versus.results import Results

Verdict = Literal["reached", "missed", "not measured"]


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure, and what it should be."""

    title: str
    workload: str
    figure: str
    ours: str
    # None: judged by itself.
    theirs: str | None
    # Told if the figure is at least, or at most, this.
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    def is_reached(self, measured: float) -> bool:
        if self.at_least is not None:
            return measured >= self.at_least
        return self.at_most is not None and measured <= self.at_most

    @property
    def wish(self) -> str:
        sign, bound = ("≥", self.at_least) if self.at_least is not None else ("≤", self.at_most)
        return f"{sign} {bound:g}{f' {self.unit}' if self.unit else ''}"


GOALS: Final[Sequence[Goal]] = (
    Goal("produce RF 3 acks=all 1 KB, page cache", "produce-1kb", "mb_per_s", "ottla-pagecache",
         "kafka", at_least=2.0),
    Goal("the same, 1 partition", "produce-1kb-p1", "mb_per_s", "ottla-pagecache", "kafka",
         at_least=2.0),
    Goal("produce RF 3 acks=all 100 B, page cache", "produce-100b", "records_per_s",
         "ottla-pagecache", "kafka", at_least=1.3),
    Goal("produce RF 3 acks=all 1 KB, fsync before ack, beside flush.messages=1", "produce-1kb",
         "mb_per_s", "ottla-fsync", "kafka-flush", at_least=1.5),
    Goal("consume from the start, 1 KB, page cache warm", "consume-warm", "mb_per_s",
         "ottla-pagecache", "kafka", at_least=1.2),
    Goal("ack latency, single records, fsync, 300/s: p50", "ack-300", "p50_ms", "ottla-fsync",
         "kafka-flush", at_most=1.0),
    Goal("the same: p99", "ack-300", "p99_ms", "ottla-fsync", None, at_most=5.0, unit="ms"),
    Goal("the same at 1,000/s: p99", "ack-1000", "p99_ms", "ottla-fsync", None, at_most=10.0,
         unit="ms"),
    Goal("the same, beside NATS synced", "ack-1000", "p99_ms", "ottla-fsync", "nats-sync",
         at_most=1.0),
    Goal("three nodes from start to first acked write", "start", "first_ack_s", "ottla-fsync",
         "kafka", at_most=0.17),
    Goal("the same, beside NATS", "start", "first_ack_s", "ottla-fsync", "nats", at_most=1.0),
    Goal("memory per node (RssAnon), idle", "start", "rss_idle_mb", "ottla-fsync", "kafka",
         at_most=0.2),
    Goal("memory per node (RssAnon), loaded", "produce-1kb", "rss_peak_mb", "ottla-pagecache",
         "kafka", at_most=0.12),
    Goal("unavailability after kill -9 of a leader", "outage", "gap_s", "ottla-fsync", "kafka",
         at_most=0.05),
    Goal("the same, when it was also the active controller", "outage-controller", "gap_s",
         "ottla-fsync", "kafka", at_most=0.15),
    Goal("CPU seconds per GB replicated, page cache", "produce-1kb", "cpu_s_per_gb",
         "ottla-pagecache", "kafka", at_most=1.0),
    # With all that the kernel did meanwhile: ours syncs in threads of the kernel, Kafka in its own.
    Goal("CPU seconds per GB replicated, fsync", "produce-1kb", "cpu_s_per_gb_with_kernel",
         "ottla-fsync", "kafka-flush", at_most=1.0),
    Goal("produce with 5,000 partitions in the cluster, of the speed with 1", "partitions-5000",
         "after_share", "ottla-pagecache", None, at_least=0.9),
)  # fmt: skip


def variants_for(workload: str) -> set[str]:
    """Return the variants that the goals of a workload name; empty: it has none."""
    goals = [goal for goal in GOALS if goal.workload == workload]
    return {name for goal in goals for name in (goal.ours, goal.theirs) if name is not None}


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal with what was measured."""

    goal: Goal
    ours: Summary | None
    theirs: Summary | None
    # The ratio, or our own figure if the goal is judged by itself.
    measured: Summary | None

    @property
    def verdict(self) -> Verdict:
        if self.measured is None:
            return "not measured"
        return "reached" if self.goal.is_reached(self.measured.median) else "missed"


def judged(goal: Goal, results: Results) -> Judged:
    ours = results.values(goal.workload, goal.ours, goal.figure)
    own = summary_of(list(ours.values()))
    if goal.theirs is None:
        return Judged(goal, own, None, own)
    theirs = results.values(goal.workload, goal.theirs, goal.figure)
    other = summary_of(list(theirs.values()))
    return Judged(goal, own, other, ratio_of(ours, theirs))
