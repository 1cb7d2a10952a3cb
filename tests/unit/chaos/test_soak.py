"""Hours of faults: their rounds, what nodes may use, what is kept of a round that passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.chaos.evidence import Uses
from ottla.chaos.run_folder import RunFolder
from ottla.chaos.soak import Limits, forget_all_but_report, rounds_of, too_much
from tests.unit.chaos.story import Story

LIMITS = Limits(rss_mb=100, open_files=50, disk_mb=10)


@pytest.mark.parametrize("whole_s", [3600.0, 1210.0, 2500.0, 1229.0, 20.0])
def test_rounds_last_together_as_long_as_was_asked_for(whole_s: float) -> None:
    told = list(rounds_of(whole_s, 1200))
    assert sum(told) == whole_s
    assert all(one >= 30 for one in told) or len(told) == 1


def test_the_hour_is_three_rounds_of_twenty_minutes() -> None:
    assert list(rounds_of(3600, 1200)) == [1200, 1200, 1200]


def test_what_is_within_the_limits_is_not_told() -> None:
    assert too_much([Uses(1, 1, 100_000_000, 50, 10_000_000)], LIMITS) == []


def test_each_node_and_thing_above_its_limit_is_told_once() -> None:
    high = Uses(1, 2, 101_000_000, 51, 11_000_000)
    told = too_much([high, high._replace(t_ns=2, rss_bytes=500_000_000)], LIMITS)
    assert told == [
        "node 2: 101 MB of memory, not 100",
        "node 2: 51 open files, not 50",
        "node 2: 11 MB on disk, not 10",
    ]


def test_of_a_round_that_passed_only_what_tells_of_it_stays(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_facts(Story().evidence.facts)
    folder.open_history().close()
    folder.keep_trace([])
    for path in (folder.report_path, folder.verdict_path):
        path.write_text("x")
    forget_all_but_report(folder)
    assert {one.name for one in tmp_path.iterdir()} == {"run.json", "report.html", "verdict.json"}


def test_what_nodes_used_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_facts(Story().evidence.facts)
    folder.open_history().close()
    uses = [Uses(5, 1, 2, 3, 4), Uses(6, 2, 3, 4, 5)]
    folder.add_uses(uses)
    assert folder.read().uses == uses


def test_a_round_of_which_nobody_looked_at_what_nodes_use_is_not_within_the_limits() -> None:
    assert too_much((), LIMITS) == ["nobody has looked at what nodes use"]
