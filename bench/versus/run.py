"""Takes the turns that are left, one after another, within a budget of time.

R1  what was measured is kept at once: a run that is ended goes on where it was
R2  no turn is begun for which the budget does not suffice
R3  a turn that fails is told, kept as failed, and taken once more; after a few the run ends

Not here: what comes next (`order.py`), what a turn does (`turns.py`, `lives.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from bench.measure import say
from bench.peers.table import VARIANTS
from bench.versus.lives import LIVES
from bench.versus.order import Turn, turns_of
from bench.versus.results import Figures, Results
from bench.versus.stage import Clusters, Stage
from bench.versus.turns import LOADS
from bench.versus.warming import warm_up
from bench.versus.workloads import Workload

_FAILURES_MAX: Final = 6
_TRIES: Final = 2
_REASON_MAX: Final = 300
_WARM_S_PER_GB: Final = 20.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, and for how long."""

    rows: Sequence[Workload]
    rounds: int
    variants: Sequence[str]
    warm_gb: float
    # So many rounds before those that count.
    uncounted: int
    # None: until all is done.
    budget_s: float | None
    began: float = field(default_factory=time.perf_counter)

    def left_s(self) -> float:
        if self.budget_s is None:
            return float("inf")
        return self.budget_s - (time.perf_counter() - self.began)


class Run:
    """One run; taken once."""

    def __init__(self, plan: Plan, results: Results, clusters: Clusters) -> None:
        self._plan: Final = plan
        self._results: Final = results
        self._clusters: Final = clusters
        self._failures = 0

    def left(self, uncounted: int = 0) -> list[Turn]:
        """Return the turns that are left; those of peers that are missing are not."""

        def is_wanted(variant: str) -> bool:
            wanted = self._plan.variants
            is_there = VARIANTS[variant].peer not in self._clusters.missing
            return is_there and (not wanted or variant in wanted)

        def is_done(turn: Turn) -> bool:
            return self._results.has(turn.row.name, turn.variant, turn.number)

        return turns_of(self._plan.rows, self._plan.rounds, is_wanted, is_done, uncounted)

    def take(self) -> bool:
        """Take turns until none is left or the time is up; return whether all were taken."""
        for turn in self.left(self._plan.uncounted):
            if self._plan.left_s() < turn.row.about_s:
                say(f"the time is up before {turn}; the same command goes on from there")
                return False
            for _ in range(_TRIES):
                if self._failures >= _FAILURES_MAX:
                    say(f"{self._failures} turns failed: enough")
                    return False
                if self._take(turn):
                    break
                self._warm_anew(turn)
        return not self.left()

    def _warm_anew(self, failed: Turn) -> None:
        """Make the cluster as warm that takes the place of the one in which a turn failed (O4)."""
        if failed.row.is_alone:
            return
        peer = VARIANTS[failed.variant].peer
        for turn in self.left(self._plan.uncounted):
            if turn.is_counted or VARIANTS[turn.variant].peer != peer:
                continue
            if self._failures >= _FAILURES_MAX or not self._take(turn):
                return

    def _take(self, turn: Turn) -> bool:
        """Return whether it did not fail."""
        start = time.perf_counter()
        try:
            figures = self._figures(turn)
        except Exception as error:  # noqa: BLE001  # the root of a turn
            # Whatever a client or a peer came up with: the other turns go on.
            self._failures += 1
            reason = f"{type(error).__name__}: {error}"[:_REASON_MAX]
            say(f"{turn}: FAILED: {reason}")
            if turn.is_counted:
                self._results.keep_failure(turn.row.name, turn.variant, turn.number, reason)
            # Whatever happened to it, the next turn gets a cluster that is well.
            self._clusters.drop(VARIANTS[turn.variant].peer)
            return False
        if figures is None:
            return True
        figures["turn_s"] = round(time.perf_counter() - start, 1)
        figures["ended_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        if turn.is_counted:
            self._results.keep(turn.row.name, turn.variant, turn.number, figures)
        else:
            at = turn.number + self._plan.uncounted
            self._results.keep_uncounted(turn.row.name, turn.variant, at, figures)
        shown = figures.get(turn.row.figure)
        say(f"{turn}: {shown} {turn.row.unit} ({figures['turn_s']} s)")
        return True

    def _figures(self, turn: Turn) -> Figures | None:
        if turn.row.is_alone:
            with self._clusters.alone(turn.variant, turn.life) as stage:
                return self._taken(LIVES[turn.row.kind], stage, turn.row)
        return self._taken(LOADS[turn.row.kind], self._warm_stage(turn.variant), turn.row)

    def _taken(
        self, take: Callable[[Stage, Workload], Figures], stage: Stage | None, row: Workload
    ) -> Figures | None:
        if stage is None:
            return None
        figures = take(stage, row)
        if not stage.is_calm:
            figures["is_calm"] = False
        return {**figures, "spent_s": {what: round(s, 2) for what, s in stage.spent_s.items()}}

    def _warm_stage(self, variant: str) -> Stage | None:
        """Return a stage on a shared cluster; a new one is warmed up first."""
        was_running = self._clusters.is_running(VARIANTS[variant].peer)
        stage = self._clusters.shared(variant)
        if stage is not None and not was_running:
            # The first variant may sync each record; a cluster is warmed up without.
            plain = self._clusters.shared(_PLAIN.get(stage.peer.name, variant))
            assert plain is not None
            gigabytes = min(self._plan.warm_gb, self._plan.left_s() / 4 / _WARM_S_PER_GB)
            self._results.keep_warm_up(stage.peer.name, warm_up(plain, gigabytes))
        return stage


_PLAIN: Final = {"ottla": "ottla-pagecache", "kafka": "kafka"}
