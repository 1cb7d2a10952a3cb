"""The tables of workloads, variants and goals fit together; turns come in their order."""

from __future__ import annotations

import pytest

from bench.peers.table import PEERS, VARIANTS
from bench.versus.goals import GOALS, Goal
from bench.versus.lives import LIVES
from bench.versus.order import Turn, turns_of
from bench.versus.payloads import payloads
from bench.versus.turns import LOADS
from bench.versus.workloads import WORKLOADS, Workload, chosen

ROWS = list(WORKLOADS.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_can_be_taken_and_is_bounded(row: Workload) -> None:
    assert (row.kind in LIVES) is row.is_alone
    assert (row.kind in LOADS) is not row.is_alone
    assert set(row.variants) <= set(VARIANTS)
    assert "kafka" in row.variants, "a ratio needs it"
    assert row.about_s > 0
    assert 0 < row.seconds_max <= 600
    if row.kind in ("produce", "consume", "together"):
        assert row.records % (1000 * row.clients) < 1000 * row.clients
        assert row.payload_bytes >= 100_000_000
    if row.kind in ("pace", "flow"):
        assert row.records / row.rate <= 10


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_has_its_peer_and_its_baseline(name: str) -> None:
    row = VARIANTS[name]
    assert row.name == name
    assert row.peer in PEERS
    assert VARIANTS[row.baseline].durability == row.durability


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.workload}-{goal.figure}")
def test_every_goal_is_measured_by_a_row_that_is_run_for_the_goals(goal: Goal) -> None:
    (row,) = [row for row in chosen(["goals"]) if row.name == goal.workload]
    assert goal.ours in row.variants
    assert goal.theirs is None or goal.theirs in row.variants
    assert (goal.at_least is None) is not (goal.at_most is None)


def test_rows_are_chosen_by_name_by_beginning_and_by_set() -> None:
    assert [row.name for row in chosen(["ack-300"])] == ["ack-300"]
    assert {row.name for row in chosen(["ack-*", "ack-300"])} == {
        "ack-300",
        "ack-1000",
    }
    assert chosen([]) == chosen(["full"]) == ROWS
    assert all("quick" in row.sets for row in chosen(["quick"]))


def test_some_variants_of_a_row_are_chosen() -> None:
    (row,) = chosen(["produce-1kb:kafka,ottla-pagecache"])
    assert row.variants == ("ottla-pagecache", "kafka")
    with pytest.raises(SystemExit, match="consume-warm is not measured for nats"):
        chosen(["consume-warm:nats"])


def test_for_the_goals_only_what_they_name_is_measured_and_what_it_is_compared_with() -> None:
    rows = {row.name: row.variants for row in chosen(["goals"])}
    assert rows["produce-100b"] == ("ottla-pagecache", "kafka")
    # Kafka is not named, and is up anyway: that it is saturated should be seen.
    assert rows["ack-1000"] == ("ottla-fsync", "kafka-flush", "nats-sync")
    # It would have to be started for it.
    assert rows["partitions-5000"] == ("ottla-pagecache",)
    assert "restart-5gb" not in rows


def test_a_turn_of_minutes_has_fewer_rounds() -> None:
    found = turns_of(chosen(["restart-5gb"]), 5, lambda name: name == "kafka", lambda _: False)
    assert [turn.number for turn in found] == [1, 2, 3]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_part_of_a_row_is_small_and_still_whole(row: Workload) -> None:
    part = row.part(0.001)
    assert part.name == row.name
    assert row.part(1.0) is row
    if row.records:
        assert 0 < part.records <= max(row.records // 10, 1000 * row.clients, row.rate // 2)
        assert row.rate or part.records % (1000 * row.clients) == 0
    assert part.partitions <= row.partitions


def test_no_more_is_read_to_warm_up_than_was_written() -> None:
    row = WORKLOADS["consume-warm"]
    assert row.warm_records == row.records
    cold = WORKLOADS["consume-cold"]
    assert cold.warm_records == 30_000
    assert cold.part(0.02).warm_records == cold.part(0.02).records == 16_000


def test_an_unknown_row_is_told_with_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match=r"there is no workload speed: .*produce-1kb"):
        chosen(["speed"])


def test_variants_of_a_row_take_turns_and_the_next_round_goes_backwards() -> None:
    rows = chosen(["produce-1kb", "start"])
    found = turns_of(rows, 2, lambda name: name in ("kafka", "ottla-fsync"), lambda _: False)
    assert [(turn.row.name, turn.variant, turn.number) for turn in found] == [
        ("produce-1kb", "kafka", 1),
        ("produce-1kb", "ottla-fsync", 1),
        ("produce-1kb", "ottla-fsync", 2),
        ("produce-1kb", "kafka", 2),
        ("start", "ottla-fsync", 1),
        ("start", "kafka", 1),
        ("start", "kafka", 2),
        ("start", "ottla-fsync", 2),
    ]


def test_an_outage_is_taken_on_the_cluster_whose_start_was_just_measured() -> None:
    rows = chosen(["start:kafka,ottla-fsync", "outage"])
    found = turns_of(rows, 2, lambda name: name != "ottla-fsync", lambda _: False)
    assert [(turn.row.name, turn.variant, turn.number) for turn in found] == [
        ("start", "kafka", 1),
        ("outage", "kafka", 1),
        # Its start is not asked for.
        ("outage", "nats", 1),
        ("outage", "nats", 2),
        ("start", "kafka", 2),
        ("outage", "kafka", 2),
    ]
    started, killed, *_ = found
    assert started.life == killed.life != found[-1].life


def test_an_outage_alone_is_taken_without_a_start() -> None:
    found = turns_of(chosen(["outage"]), 1, lambda _: True, lambda _: False)
    assert [turn.variant for turn in found] == ["ottla-fsync", "kafka", "nats"]


def test_all_restarts_of_a_variant_are_taken_on_one_cluster_after_all_others() -> None:
    rows = chosen(["restart-5gb", "start:kafka"])
    found = turns_of(rows, 2, lambda _: True, lambda _: False)
    assert [(turn.row.name, turn.variant, turn.number) for turn in found] == [
        ("start", "kafka", 1),
        ("start", "kafka", 2),
        ("restart-5gb", "ottla-pagecache", 1),
        ("restart-5gb", "ottla-pagecache", 2),
        ("restart-5gb", "kafka", 1),
        ("restart-5gb", "kafka", 2),
    ]
    assert len({turn.life for turn in found[2:]}) == 1


def test_what_was_done_is_not_done_again() -> None:
    done = Turn(WORKLOADS["ack-300"], "kafka", 1)
    found = turns_of(chosen(["ack-300"]), 1, lambda name: name == "kafka", lambda one: one == done)
    assert found == []


def test_records_have_their_size_and_are_the_same_every_time() -> None:
    assert {len(value) for value in payloads(100, 50)} == {100}
    assert payloads(1024, 3) == payloads(1024, 3)
    assert len(set(payloads(100, 50))) == 50


def test_what_goes_as_fast_as_it_can_is_taken_before_it_counts() -> None:
    rows = chosen(["produce-1kb", "consume-warm", "ack-300", "start"])
    done = {Turn(row, "kafka", at) for row in rows for at in (1, 2) if row.name == "consume-warm"}

    def left(is_done: bool) -> list[str]:
        found = turns_of(
            rows, 2, lambda name: name == "kafka", lambda one: is_done or one in done, uncounted=2
        )
        return [f"{one.row.name} {one.number}" for one in found]

    # Of what is left only, and nothing when nothing is.
    assert left(is_done=False) == [
        *("produce-1kb -1", "produce-1kb 0"),
        *("produce-1kb 1", "ack-300 1", "produce-1kb 2", "ack-300 2", "start 1", "start 2"),
    ]
    assert left(is_done=True) == []
