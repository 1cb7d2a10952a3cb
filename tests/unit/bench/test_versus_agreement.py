"""Two runs side by side: what agrees within the spread, what is near, what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.versus.agreement import agreement_page, compared
from bench.versus.results import Results


@pytest.fixture
def one(tmp_path: Path) -> Results:
    return Results(tmp_path / "one")


@pytest.fixture
def other(tmp_path: Path) -> Results:
    return Results(tmp_path / "other")


def _keep(run: Results, variant: str, *speeds: float) -> None:
    for at, speed in enumerate(speeds, 1):
        run.keep("produce-1kb", variant, at, {"mb_per_s": speed})


def test_what_only_one_run_has_is_counted_and_not_compared(one: Results, other: Results) -> None:
    one.keep("start", "kafka", 1, {"first_ack_s": 9.0})
    other.keep("start", "kafka", 1, {"first_ack_s": 9.0})
    other.keep("start", "nats", 1, {"first_ack_s": 2.0})
    text = compared(one, other)
    assert "| start | kafka | s | 9.00 (once) | 9.00 (once) | agree |  |  |  |" in text
    assert "nats" not in text
    assert "1 of 1 figures agree (0 differ); 0 of 0 ratios to Kafka agree" in text
    assert "Only one run has 1 further figures." in text
    assert "## What does not agree\n\nNothing." in text


def test_of_two_runs_at_different_speeds_the_ratios_may_agree(one: Results, other: Results) -> None:
    for run, speed in ((one, 60.0), (other, 100.0)):
        _keep(run, "kafka", speed)
        _keep(run, "ottla-pagecache", 1.5 * speed)
        # There is no Kafka that syncs beside it in either run.
        _keep(run, "ottla-fsync", 70.0)
    text = compared(one, other)
    assert (
        "| produce-1kb | ottla-pagecache | MB/s | 90.0 (once) | 150 (once) | **differ** "
        "| 1.50 (once) | 1.50 (once) | agree |" in text
    )
    assert "1 of 3 figures agree (2 differ); 1 of 1 ratios to Kafka agree (0 differ)" in text
    assert (
        "| produce-1kb ottla-pagecache, MB/s | 90.0 (once) | 150 (once) | **differ** | 1.67 |"
        in text
    )


def test_what_is_near_does_not_count_as_agreeing(one: Results, other: Results) -> None:
    _keep(one, "kafka", 95.0, 100.0, 105.0)
    _keep(other, "kafka", 106.0, 112.0, 115.0)
    text = compared(one, other)
    assert "0 of 1 figures agree (1 near, 0 differ)" in text
    assert "**near**" in text


def test_what_is_saturated_is_told_and_not_counted(one: Results, other: Results) -> None:
    for run, is_behind in ((one, False), (other, True)):
        for variant, p50_ms in (("kafka-flush", 900.0), ("ottla-fsync", 2.0)):
            figures = {"p50_ms": p50_ms, "is_saturated": is_behind and variant == "kafka-flush"}
            run.keep("ack-1000", variant, 1, figures)
    text = compared(one, other)
    assert "1 of 1 figures agree (0 differ, 1 saturated and not counted)" in text
    assert "0 of 0 ratios to Kafka agree (0 differ, 1 saturated and not counted)" in text
    assert "| 900 (once) | 900 (once) | saturated |  |  |  |" in text
    assert "| 2.00 (once) | 2.00 (once) | agree | – | – | saturated |" in text
    assert "## What does not agree\n\nNothing." in text


def test_a_goal_with_a_saturated_figure_is_not_counted(one: Results, other: Results) -> None:
    for run in (one, other):
        run.keep("ack-1000", "ottla-fsync", 1, {"p99_ms": 9.0})
        run.keep("ack-1000", "nats-sync", 1, {"p99_ms": 900.0, "is_saturated": True})
    text = compared(one, other)
    assert (
        "1 of 1 goals agree (0 differ, 1 saturated and not counted), "
        "and 2 of 2 goals have the same verdict" in text
    )


def test_goals_are_told_with_the_verdicts_of_both_runs(one: Results, other: Results) -> None:
    for run, ours in ((one, 210.0), (other, 190.0)):
        _keep(run, "kafka", 100.0)
        _keep(run, "ottla-pagecache", ours)
    text = compared(one, other)
    assert "0 of 1 goals have the same verdict in both" in text
    assert "| ≥ 2 | 2.10 (once) | 1.90 (once) | **near** | reached, missed |" in text


def test_the_page_names_both_runs_and_their_code(one: Results, other: Results) -> None:
    one.add_facts({"commits": ["abc"]})
    text = agreement_page(one, other)
    assert "`python -m bench.versus compare one other`" in text
    assert "Code of one: abc, other: unknown." in text
    assert "widened by a tenth" in text


def test_what_else_was_measured_is_compared_too(one: Results, other: Results) -> None:
    for run, memory in ((one, 60.0), (other, 90.0)):
        run.keep("produce-1kb", "kafka", 1, {"mb_per_s": 100.0, "rss_peak_mb": memory})
    text = compared(one, other)
    assert "1 of 1 figures agree (0 differ)" in text
    assert "Of what else was measured, 0 of 1 figures agree (1 differ)." in text
    assert (
        "| produce-1kb | kafka | MB, the largest node | 60.0 (once) | 90.0 (once) | **differ** |"
        in text
    )
