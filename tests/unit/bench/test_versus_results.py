"""What is kept of a run, and the page that is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.versus.bars import bars
from bench.versus.cells import number, told
from bench.versus.details import detail_table, round_table
from bench.versus.figures import Summary
from bench.versus.goals import GOALS, judged
from bench.versus.profile import function_table, shares
from bench.versus.render import (
    all_figures,
    figure_rows,
    goal_table,
    minutes_table,
    page,
    plot_list,
)
from bench.versus.results import Results
from bench.versus.workloads import WORKLOADS, baseline_of


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "run")


def test_what_was_kept_is_there_and_of_its_own_variant(results: Results) -> None:
    results.keep("produce-1kb", "kafka", 1, {"mb_per_s": 70.0})
    results.keep("produce-1kb", "kafka-flush", 1, {"mb_per_s": 60.0})
    assert results.has("produce-1kb", "kafka", 1)
    assert not results.has("produce-1kb", "kafka", 2)
    assert results.values("produce-1kb", "kafka", "mb_per_s") == {1: 70.0}


def test_a_file_that_was_not_finished_is_no_result(results: Results) -> None:
    results.keep("start", "kafka", 1, {"first_ack_s": 9.0})
    (results.folder / "results" / "start" / ".kafka-2.json.77").write_text("{")
    assert list(results.rounds("start", "kafka")) == [1]


def test_a_failure_is_told_until_its_turn_was_taken_again(results: Results) -> None:
    results.keep_failure("start", "kafka", 1, "no Java")
    assert results.failures() == {"start kafka-1": "no Java"}
    assert not results.has("start", "kafka", 1)
    results.keep("start", "kafka", 1, {"first_ack_s": 9.0})
    assert results.failures() == {}


def test_warm_ups_are_numbered(results: Results) -> None:
    results.keep_warm_up("kafka", {"curve": [[0.3, 40.0]]})
    results.keep_warm_up("kafka", {"curve": [[0.3, 50.0]]})
    assert list(results.warm_ups()) == ["kafka-1", "kafka-2"]


def test_facts_are_added_to(results: Results) -> None:
    results.add_facts({"machine": {"cores": 2}})
    results.add_facts({"client": "x"})
    assert results.facts() == {"machine": {"cores": 2}, "client": "x"}


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234"), (12.345, "12.3"), (1.234, "1.23"), (0.05, "0.05")]
)
def test_figures_have_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


def test_a_figure_says_how_far_its_rounds_were_apart() -> None:
    assert told(Summary(2.0, 1.5, 3.0, 3)) == "2.00 (1.50–3.00)"
    assert told(Summary(2.0, 2.0, 2.0, 1)) == "2.00 (once)"
    assert told(None) == "–"


def test_each_is_compared_with_the_kafka_that_promises_as_much() -> None:
    assert baseline_of(WORKLOADS["produce-1kb"], "ottla-fsync") == "kafka-flush"
    assert baseline_of(WORKLOADS["produce-1kb"], "ottla-pagecache") == "kafka"
    assert baseline_of(WORKLOADS["start"], "ottla-fsync") == "kafka"


def test_a_row_shows_median_spread_and_ratio(results: Results) -> None:
    for at, (ours, theirs) in enumerate([(200.0, 100.0), (300.0, 100.0), (150.0, 50.0)], 1):
        results.keep("produce-1kb", "ottla-pagecache", at, {"mb_per_s": ours})
        results.keep("produce-1kb", "kafka", at, {"mb_per_s": theirs})
    first, second = figure_rows(results, WORKLOADS["produce-1kb"])
    assert first[1:4] == ["ottla-pagecache", "200 (150–300) MB/s", "3.00 (2.00–3.00)"]
    assert second[1:4] == ["kafka", "100 (50.0–100) MB/s", "1"]


def test_who_did_not_keep_up_is_shown_as_saturated(results: Results) -> None:
    results.keep("ack-1000", "kafka-flush", 1, {"p50_ms": 900.0, "is_saturated": True})
    ((*_, figure, _, _),) = figure_rows(results, WORKLOADS["ack-1000"])
    assert "**saturated** in 1 of 1" in figure


@pytest.mark.parametrize("behind", ["ottla-fsync", "kafka-flush"])
def test_where_one_of_both_did_not_keep_up_there_is_no_ratio(results: Results, behind: str) -> None:
    for variant in ("ottla-fsync", "kafka-flush"):
        results.keep("ack-1000", variant, 1, {"p50_ms": 2.0, "is_saturated": variant == behind})
    cells = {row[1]: row[3] for row in figure_rows(results, WORKLOADS["ack-1000"])}
    assert cells == {"ottla-fsync": "–", "kafka-flush": "1"}
    assert bars(results) == []


def _details(results: Results, workload: str, unit: str) -> dict[str, str]:
    """Return what the page tells of one further figure, by peer."""
    heading, _, *lines = (
        line.strip("| ").split(" | ") for line in detail_table(results).split("\n")
    )
    (found,) = (line for line in lines if line[:2] == [WORKLOADS[workload].title, unit])
    return {peer: cell for peer, cell in zip(heading[2:], found[2:], strict=False) if cell.strip()}


def test_whatever_else_was_measured_has_its_spread_and_its_ratio(results: Results) -> None:
    for at, p99_ms in enumerate((3.0, 9.0, 4.0), 1):
        results.keep("ack-300", "kafka-flush", at, {"p50_ms": 1.0, "p99_ms": p99_ms})
        results.keep("ack-300", "ottla-fsync", at, {"p50_ms": 1.0, "p99_ms": p99_ms / 2})
    assert _details(results, "ack-300", "ms p99") == {
        "ottla-fsync": "2.00 (1.50–4.50), ×0.50",
        "kafka-flush": "4.00 (3.00–9.00)",
    }


def test_who_did_not_keep_up_has_no_ratio_of_anything(results: Results) -> None:
    results.keep("ack-1000", "kafka-flush", 1, {"p99_ms": 900.0, "is_saturated": True})
    results.keep("ack-1000", "ottla-fsync", 1, {"p99_ms": 9.0})
    assert _details(results, "ack-1000", "ms p99")["ottla-fsync"] == "9.00 (once)"


def test_what_the_kernel_did_is_shown_for_those_that_sync(results: Results) -> None:
    figures = {"mb_per_s": 100.0, "cpu_s_per_gb": 4.0, "cpu_s_per_gb_with_kernel": 5.5}
    for variant in ("kafka", "ottla-fsync", "kafka-flush"):
        results.keep("produce-1kb", variant, 1, figures)
    assert set(_details(results, "produce-1kb", "CPU s/GB")) == {
        "kafka", "ottla-fsync", "kafka-flush"
    }  # fmt: skip
    with_kernel = _details(results, "produce-1kb", "CPU s/GB, with the kernel's threads")
    assert with_kernel == {"ottla-fsync": "5.50 (once), ×1.00", "kafka-flush": "5.50 (once)"}


def test_the_kernel_is_counted_for_single_records_too(results: Results) -> None:
    # A quarter of a core for four seconds, for 1,000 of 1,200 records.
    figures = {
        "p50_ms": 1.0, "cpu_us_per_record": 500.0, "elsewhere_cores": 0.25,
        "spent_s": {"load": 4.0}, "left": 200,
    }  # fmt: skip
    results.keep("ack-300", "ottla-fsync", 1, figures)
    results.keep("ack-300", "ottla-pagecache", 1, figures)
    assert _details(results, "ack-300", "µs CPU each, with the kernel's threads") == {
        "ottla-fsync": "1,500 (once)"
    }


def test_what_the_driver_alone_can_do_is_no_ratio(results: Results) -> None:
    for variant in ("ottla-pagecache", "kafka"):
        results.keep("consume-driver", variant, 1, {"mb_per_s": 1500.0})
    assert [row[3] for row in figure_rows(results, WORKLOADS["consume-driver"])] == ["", "1"]
    assert bars(results) == []


def test_goals_are_shown_round_by_round(results: Results) -> None:
    for at, theirs in enumerate((100.0, 150.0, 200.0, 250.0), 1):
        results.keep("produce-1kb", "ottla-pagecache", at, {"mb_per_s": 300.0})
        results.keep("produce-1kb", "kafka", at, {"mb_per_s": theirs})
    for at, theirs in enumerate((50.0, 75.0), 1):
        results.keep_uncounted("produce-1kb", "ottla-pagecache", at, {"mb_per_s": 300.0})
        # What was taken again counts once, and beside the turn that belongs to it.
        results.keep_uncounted("produce-1kb", "kafka", at, {"mb_per_s": 1.0})
        results.keep_uncounted("produce-1kb", "kafka", at, {"mb_per_s": theirs})
        results.keep_uncounted("produce-1kb", "kafka-flush", at, {"mb_per_s": 1.0})
    results.keep_uncounted("produce-1kb", "ottla-pagecache", 3, {"mb_per_s": 300.0})
    (line,) = (one for one in round_table(results).split("\n") if "1 KB, page cache |" in one)
    assert "| ≥ 2 | 6.00, 4.00 | 3.00 | 2.00 | 1.50 | 1.20 | 1.50 (1.20–2.00) |" in line
    (judged_by,) = (goal for goal in GOALS if goal.title.endswith("acks=all 1 KB, page cache"))
    measured = judged(judged_by, results).measured
    assert measured is not None
    assert measured.rounds == 4


def test_a_goal_says_who_did_not_keep_up(results: Results) -> None:
    results.keep("ack-1000", "ottla-fsync", 1, {"p99_ms": 9.0, "is_saturated": False})
    results.keep("ack-1000", "nats-sync", 1, {"p99_ms": 900.0, "is_saturated": True})
    (line,) = [one for one in goal_table(results).splitlines() if "beside NATS synced" in one]
    assert "9.00 (once) ottla-fsync |" in line
    assert "900 (once) nats-sync, **saturated** in 1 of 1 |" in line


def test_a_bar_is_longer_when_ours_is_better_and_ends_where_length_says_nothing(
    results: Results,
) -> None:
    results.keep("produce-1kb", "ottla-pagecache", 1, {"mb_per_s": 50.0})
    results.keep("produce-1kb", "kafka", 1, {"mb_per_s": 100.0})
    results.keep("ack-1000", "ottla-fsync", 1, {"p50_ms": 2.0})
    results.keep("ack-1000", "kafka-flush", 1, {"p50_ms": 4000.0})
    slower, faster = bars(results)
    assert (slower.times, slower.end, slower.text) == (0.5, 0.5, "0.50 ×")
    assert (faster.times, faster.end, faster.text) == (2000.0, 100.0, "2,000 ×")


def test_goals_are_judged_by_ratio_or_by_value(results: Results) -> None:
    results.keep("ack-300", "ottla-fsync", 1, {"p50_ms": 2.0, "p99_ms": 4.0})
    results.keep("ack-300", "kafka-flush", 1, {"p50_ms": 1.0, "p99_ms": 90.0})
    found = {goal.title: judged(goal, results).verdict for goal in GOALS}
    assert found["ack latency, single records, fsync, 300/s: p50"] == "missed"
    assert found["the same: p99"] == "reached"
    assert found["memory per node (RssAnon), idle"] == "not measured"


def test_the_page_tells_what_failed_and_what_is_missing(results: Results) -> None:
    results.keep_failure("start", "nats", 1, "it did not come true")
    results.add_facts({"missing": {"nats": "NATS is not measured: no program"}})
    text = page(results)
    assert "it did not come true" in text
    assert "NATS is not measured: no program" in text
    assert "not measured" in text


def test_the_page_tells_how_quiet_it_was_and_how_all_were_warmed_up(results: Results) -> None:
    assert "Nobody looked whether the machine was quiet." in page(results)
    results.keep("produce-1kb", "kafka", 1, {"mb_per_s": 70.0, "elsewhere_cores": 0.12})
    results.keep("produce-1kb", "kafka", 2, {"mb_per_s": 70.0, "is_calm": False})
    results.keep_warm_up("kafka", {"how": "1 KB", "curve": [[0.3, 40.0], [0.6, 55.0]]})
    results.keep_warm_up("nats", {"how": "3,000 single records", "curve": []})
    text = page(results)
    assert "0.12 (once). Turns that began while another cluster was not idle: 1." in text
    assert "- **kafka-1**: 1 KB. MB/s: 40, 55." in text
    assert "- **nats-1**: 3,000 single records." in text


def test_the_page_shows_only_plots_that_are_there(results: Results, tmp_path: Path) -> None:
    (tmp_path / "latency.svg").write_text("<svg/>")
    assert plot_list(tmp_path) == "![time to the acknowledgement by rate](latency.svg)"
    assert "(latency.svg)" in page(results, plot_list(tmp_path))


def test_the_page_tells_where_the_time_went(results: Results) -> None:
    for at in (1, 2):
        spent = {"load": 2.5, "topic": 0.5}
        results.keep("start", "kafka", at, {"turn_s": 30.0, "spent_s": spent})
    text = minutes_table(results)
    assert "| start | 2 | 60 s | load 5 s, topic 1 s |" in text
    assert "| all |  | 1 min | load 0 min |" in text
    assert text in page(results)


def test_programs_get_every_round(results: Results) -> None:
    results.keep("start", "kafka", 2, {"first_ack_s": 9.0})
    ((row),) = all_figures(results)["workloads"]
    assert row["rounds"]["kafka"] == {"2": {"first_ack_s": 9.0}}


def test_a_profile_counts_a_function_once_in_a_stack_without_its_lines_and_no_waiting() -> None:
    stacks = [
        "Thread.run (threading.py:975);_worker (concurrent/futures/thread.py:81) 7",
        "main (a/ottla/x.py:1);f (a/ottla/x.py:5);f (a/ottla/x.py:9) 3",
        "main (a/ottla/x.py:2) 1",
    ]
    alone, below, total = shares(stacks)
    assert total == 4
    assert alone == {"f (ottla/x.py)": 3, "main (ottla/x.py)": 1}
    assert below == {"f (ottla/x.py)": 3, "main (ottla/x.py)": 4}
    assert "| `f (ottla/x.py)` | 75.0% | 75.0% |" in function_table(stacks)
