"""Where a record goes after each failure, and what its envelope says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.consumer.record import Record
from ottla.clients.reprocessing.plan import DUE_AT, Headers, Level, Plan, number_of
from ottla.proto.errors import ConfigError

PLAN = Plan.of("billing", delays_ms=(100, 1000))


def _record(topic: str = "orders", headers: Headers = ()) -> Record:
    return Record(topic, 3, 77, 1_000, b"k", b"v", headers)


def _told(record: Record) -> dict[str, bytes | None]:
    return dict(record.headers)


def test_each_failure_is_one_level_up_and_the_last_one_is_death() -> None:
    record, topics, now_ms = _record(headers=(("own", b"1"),)), list[str](), 5_000
    for attempt in range(3):
        passed = PLAN.after_failure(record, ValueError(f"no {attempt}"), now_ms)
        topics.append(passed.topic)
        record = Record(passed.topic, 0, attempt, now_ms, b"k", b"v", passed.headers)
        now_ms += 10_000
    assert topics == ["billing.retry.1", "billing.retry.2", "billing.dead"]
    told = _told(record)
    assert told["own"] == b"1"
    assert told["ottla-attempts"] == b"3"
    assert told["ottla-error"] == b"no 2"
    assert told["ottla-error-type"] == b"ValueError"
    assert told["ottla-first-failed-at-ms"] == b"5000"
    assert told["ottla-failed-at-ms"] == b"25000"
    assert (told["ottla-origin-topic"], told["ottla-origin-partition"]) == (b"orders", b"3")
    assert (told["ottla-origin-offset"], told["ottla-origin-timestamp-ms"]) == (b"77", b"1000")
    assert DUE_AT not in told
    assert len(record.headers) == len(told)


def test_a_record_is_due_after_the_delay_of_its_level() -> None:
    assert PLAN.due_ms(_record()) == 0
    passed = PLAN.after_failure(_record(), ValueError(), 5_000)
    waiting = _record(passed.topic, headers=passed.headers)
    assert PLAN.due_ms(waiting) == 5_100
    assert PLAN.due_ms(_record("billing.retry.2")) == 2_000


def test_an_error_that_cannot_heal_skips_all_levels() -> None:
    passed = PLAN.after_failure(_record(), KeyError("id"), 5_000, is_final=True)
    assert passed.is_dead
    assert passed.topic == "billing.dead"


def test_a_plan_without_levels_has_only_dead_letters() -> None:
    assert Plan.of("g", delays_ms=()).after_failure(_record(), ValueError(), 0).is_dead


def test_a_plan_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="a topic of their own"):
        Plan((Level("a", 1), Level("a", 2)), "dead")
    with pytest.raises(ConfigError, match="0 ms or more"):
        Plan((Level("a", -1),), "dead")


@settings(max_examples=40)
@given(st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=4), st.text())
def test_headers_of_the_program_stay_as_they_were(
    headers: list[tuple[str, bytes]], reason: str
) -> None:
    passed = PLAN.after_failure(_record(headers=tuple(headers)), ValueError(reason), 1)
    kept = [header for header in passed.headers if not header[0].startswith("ottla-")]
    assert kept == [header for header in headers if not header[0].startswith("ottla-")]


def test_a_number_that_cannot_be_read_is_none() -> None:
    assert number_of(_record(headers=((DUE_AT, b"soon"),)), DUE_AT) is None
