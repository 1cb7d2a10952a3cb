"""Each refusal has the code that Apache Kafka 4.3.1 gives, or a comment that says why not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.node.kafka.topics import create_partitions, create_topics, delete_topics
from ottla.proto.kafka.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID
from tests.unit.node.kafka.stage import Stage

STRANGER = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
DEFAULT = -1


@pytest.fixture
def stage() -> Stage:
    return Stage()


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: list[tuple[int, list[int]]] | None = None,
    configs: list[tuple[str, str | None]] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [
            {"partition_index": index, "broker_ids": ids} for index, ids in assignments or ()
        ],
        "configs": [{"name": key, "value": value} for key, value in configs or ()],
    }


def assigned(*assignments: tuple[int, list[int]], partitions: int = -1, replicas: int = -1) -> Any:
    return topic("x", partitions, replicas, assignments=list(assignments))


def create(stage: Stage, *topics: Any, version: int = 7, validate_only: bool = False) -> Any:
    fields = {"topics": topics, "timeout": 5000, "validate_only": validate_only}
    return stage.ask(create_topics, CREATE_TOPICS, version, fields).topics


def code(stage: Stage, wish: Any, *, validate_only: bool = False) -> int:
    (answer,) = create(stage, wish, validate_only=validate_only)
    if answer.error_code:
        assert answer.error_message
        assert answer.topic_id == ZERO_UUID
        assert (answer.num_partitions, answer.replication_factor) == (-1, -1)
        assert answer.configs == []
        assert "x" not in stage.image.topics
    return int(answer.error_code)


# ── CreateTopics ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates(stage: Stage, version: int) -> None:
    (answer,) = create(stage, topic("a", 3), version=version)
    assert answer.error_code == 0
    assert answer.error_message is None
    made = stage.image.topics["a"]
    assert len(made.partitions) == 3
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
    if version >= 7:
        assert answer.topic_id == made.topic_id


def test_the_options_in_force_are_told_in_order_with_their_source(stage: Stage) -> None:
    (answer,) = create(stage, topic("a", configs=[("retention.ms", "1000")]))
    told = {one.name: one for one in answer.configs}
    assert list(told) == sorted(told)
    retention = told["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("1000", 1, False)
    assert told["cleanup.policy"].config_source == 5
    assert not any(one.is_sensitive for one in answer.configs)


def test_what_is_not_given_comes_from_the_node() -> None:
    stage = Stage({"num.partitions": "4", "default.replication.factor": "3"})
    (answer,) = create(stage, topic("a", DEFAULT, DEFAULT))
    assert (answer.num_partitions, answer.replication_factor) == (4, 1)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "a" * 250, "/", "\\", "\0", "a\0b", "../../etc/x", "ü", "日本", " a"),
        *("a ", "a b", "a\n", "a:b"),
    ],
)
def test_a_name_that_no_directory_should_have_is_refused(stage: Stage, name: str) -> None:
    assert code(stage, topic(name)) == 17
    assert not stage.image.topics


@pytest.mark.parametrize(
    "name", ["a" * 249, "__consumer_offsets", "__transaction_state", "...", "-a", "A.b_c-9"]
)
def test_a_name_that_kafka_takes_is_taken(stage: Stage, name: str) -> None:
    assert code(stage, topic(name)) == 0


def test_the_name_of_the_metadata_log_is_refused(stage: Stage) -> None:
    assert code(stage, topic("__cluster_metadata")) == 42


def test_names_that_metrics_could_not_tell_apart_collide(stage: Stage) -> None:
    assert code(stage, topic("a.b")) == 0
    assert code(stage, topic("a_b")) == 17
    assert code(stage, topic("a.b")) == 36
    # In one request too. Kafka lets both pass, and then warns of every later use.
    first, second = create(stage, topic("c.d"), topic("c_d"))
    assert (first.error_code, second.error_code) == (0, 17)


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [(0, 37), (-1, 0), (-2, 37), (-(2**31), 37), (10_001, 44), (10**9, 44), (2**31 - 1, 44)],
)
def test_numbers_of_partitions(stage: Stage, partitions: int, expected: int) -> None:
    assert code(stage, topic("p", partitions)) == expected


def test_ten_thousand_partitions_may_be_made_at_once(stage: Stage) -> None:
    # Kafka's own limit is one record of its log less.
    assert code(stage, topic("p", 10_000), validate_only=True) == 0


def test_too_many_partitions_in_all_refuse_every_topic_of_the_request(stage: Stage) -> None:
    answers = create(stage, topic("a", 6000), topic("b", 6000))
    assert [one.error_code for one in answers] == [44, 44]
    assert not stage.image.topics


@pytest.mark.parametrize(
    ("replicas", "expected"), [(0, 38), (-1, 0), (-2, 38), (1, 0), (2, 38), (32767, 38)]
)
def test_numbers_of_replicas(stage: Stage, replicas: int, expected: int) -> None:
    assert code(stage, topic("r", 1, replicas)) == expected


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        pytest.param(assigned((0, [1]), partitions=1, replicas=1), 42, id="both counts too"),
        pytest.param(assigned((0, [1]), partitions=1), 42, id="a count too"),
        pytest.param(assigned((0, [1]), replicas=1), 42, id="a factor too"),
        pytest.param(assigned((0, [1, 1])), 39, id="a broker twice"),
        pytest.param(assigned((0, [9])), 39, id="an unknown broker"),
        pytest.param(assigned((0, [-1])), 39, id="a negative broker"),
        pytest.param(assigned((0, [])), 39, id="no replicas"),
        pytest.param(assigned((1, [1])), 39, id="a gap"),
        pytest.param(assigned((-1, [1])), 39, id="a negative partition"),
        pytest.param(assigned((0, [1]), (0, [1])), 39, id="a partition twice"),
        pytest.param(assigned((0, [1]), (2**31 - 1, [1])), 39, id="a huge partition"),
        pytest.param(topic("x", 0, 0), 38, id="no partitions and no replicas"),
        pytest.param(topic("x", configs=[("nonsense", "1")]), 40, id="an unknown option"),
        pytest.param(topic("x", configs=[("log.retention.ms", "1")]), 40, id="a broker's option"),
        pytest.param(topic("x", configs=[("retention.ms", "abc")]), 40, id="no number"),
        pytest.param(topic("x", configs=[("min.insync.replicas", "0")]), 40, id="min ISR 0"),
        pytest.param(topic("x", configs=[("retention.ms", None)]), 40, id="no value"),
        pytest.param(topic("x", 0, configs=[("retention.ms", "abc")]), 40, id="options come first"),
        pytest.param(topic("/", configs=[("retention.ms", None)]), 17, id="but names before them"),
    ],
)
def test_wishes_that_make_no_sense(stage: Stage, wish: Any, expected: int) -> None:
    assert code(stage, wish) == expected
    assert not stage.image.topics


def test_min_isr_above_the_replication_factor_is_taken(stage: Stage) -> None:
    assert code(stage, topic("a", configs=[("min.insync.replicas", "5")])) == 0


def test_replicas_that_were_chosen_are_kept(stage: Stage) -> None:
    (answer,) = create(stage, topic("a", -1, -1, assignments=[(1, [1]), (0, [1])]))
    assert (answer.error_code, answer.num_partitions) == (0, 2)


def test_an_existing_topic_is_refused_whatever_else_is_wrong(stage: Stage) -> None:
    create(stage, topic("a"))
    for wish in (topic("a"), topic("a", 0), topic("a", configs=[("nonsense", "1")])):
        assert code(stage, wish) == 36
    assert code(stage, topic("a"), validate_only=True) == 36


def test_a_topic_named_twice_is_refused_once_and_not_made(stage: Stage) -> None:
    answers = create(stage, topic("a"), topic("b"), topic("a"), topic("/"), topic("/"))
    assert {one.name: one.error_code for one in answers} == {"a": 42, "b": 0, "/": 42}
    assert len(answers) == 3
    assert stage.image.topics.keys() == {"b"}


def test_validating_says_what_would_come_of_it_and_makes_nothing(stage: Stage) -> None:
    (answer,) = create(stage, topic("a", 3), validate_only=True)
    assert (answer.error_code, answer.num_partitions) == (0, 3)
    assert not stage.image.topics


def test_a_request_for_nothing_is_answered_with_nothing(stage: Stage) -> None:
    assert create(stage) == []


def test_of_two_who_create_the_same_name_at_once_one_wins(stage: Stage) -> None:
    fields = {"topics": [topic("a")], "timeout": 5000}

    async def both() -> list[Message]:
        asked = (stage.ask_soon(create_topics, CREATE_TOPICS, 7, fields) for _ in range(2))
        return await asyncio.gather(*asked)

    codes = [answer.topics[0].error_code for answer in asyncio.run(both())]
    assert sorted(codes) == [0, 36]


def test_when_nobody_is_the_controller_nothing_is_done_and_clients_try_again() -> None:
    stage = Stage(timeout_ms=30)
    create(stage, topic("a"))
    stage.door.is_deposed = True
    assert code(stage, topic("b")) == 41
    assert delete(stage, "a") == {"a": 41}
    assert grow(stage, ("a", 5, None)) == {"a": 41}
    assert stage.image.topics.keys() == {"a"}


def test_what_was_sent_and_not_answered_may_have_happened() -> None:
    stage = Stage(timeout_ms=30)
    stage.door.is_closed = True
    assert code(stage, topic("b")) == 7


def test_the_controller_hears_who_asks(stage: Stage) -> None:
    create(stage, topic("a"))
    grow(stage, ("a", 5, None))
    delete(stage, "a")
    assert stage.door.clients == ["127.0.0.1/a test"] * 3


# ── DeleteTopics ──────────────────────────────────────────────────────────────────────────────


def delete(stage: Stage, *names: str, version: int = 5) -> dict[str, int]:
    fields = {"topic_names": names, "timeout": 5000}
    answer = stage.ask(delete_topics, DELETE_TOPICS, version, fields)
    assert len({one.name for one in answer.responses}) == len(answer.responses)
    return {one.name: one.error_code for one in answer.responses}


def delete_by(stage: Stage, *pairs: tuple[str | None, UUID]) -> list[tuple[Any, ...]]:
    topics = [{"name": name, "topic_id": topic_id} for name, topic_id in pairs]
    fields = {"topics": topics, "timeout": 5000}
    answer = stage.ask(delete_topics, DELETE_TOPICS, 6, fields)
    return [(one.name, one.topic_id, one.error_code) for one in answer.responses]


@pytest.fixture
def known(stage: Stage) -> UUID:
    """The id of a topic "a" that is there, beside a topic "b"."""
    create(stage, topic("a"), topic("b"))
    return stage.image.topics["a"].topic_id


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(stage: Stage, known: UUID, version: int) -> None:
    answer = delete(stage, "a", "nope", "", "a/b", version=version)
    assert answer == {"a": 0, "nope": 3, "": 3, "a/b": 3}
    assert stage.image.topics.keys() == {"b"}


def test_a_topic_to_be_deleted_twice_is_refused_once(stage: Stage, known: UUID) -> None:
    assert delete(stage, "a", "nope", "a", "nope") == {"a": 42, "nope": 42}
    assert "a" in stage.image.topics


def test_topics_are_deleted_by_id(stage: Stage, known: UUID) -> None:
    answer = delete_by(stage, (None, known), (None, STRANGER), ("nope", ZERO_UUID))
    assert answer == [("a", known, 0), (None, STRANGER, 100), ("nope", ZERO_UUID, 3)]
    assert stage.image.topics.keys() == {"b"}


def test_an_answer_to_a_name_tells_the_id(stage: Stage, known: UUID) -> None:
    assert delete_by(stage, ("a", ZERO_UUID)) == [("a", known, 0)]


def test_topics_that_are_named_in_two_ways_or_in_none_stay(stage: Stage, known: UUID) -> None:
    assert delete_by(stage, ("a", known)) == [("a", known, 42)]
    assert delete_by(stage, ("a", STRANGER)) == [("a", STRANGER, 42)]
    assert delete_by(stage, (None, ZERO_UUID)) == [(None, ZERO_UUID, 42)]
    assert delete_by(stage, ("a", ZERO_UUID), (None, known)) == [("a", known, 42)]
    assert delete_by(stage, (None, known), ("a", ZERO_UUID)) == [("a", known, 42)]
    assert delete_by(stage, ("a", ZERO_UUID), ("a", ZERO_UUID)) == [("a", ZERO_UUID, 42)]
    assert delete_by(stage, (None, STRANGER), (None, STRANGER)) == [(None, STRANGER, 42)]
    assert stage.image.topics.keys() == {"a", "b"}


def test_a_topic_made_anew_under_the_same_name_has_another_id(stage: Stage, known: UUID) -> None:
    delete(stage, "a")
    create(stage, topic("a"))
    assert stage.image.topics["a"].topic_id != known
    assert delete_by(stage, (None, known)) == [(None, known, 100)]


# ── CreatePartitions ──────────────────────────────────────────────────────────────────────────

Wish = tuple[str, int, list[list[int]] | None]


def grow(
    stage: Stage, *wishes: Wish, version: int = 3, validate_only: bool = False
) -> dict[str, int]:
    topics = [
        {
            "name": name,
            "count": count,
            "assignments": None if lists is None else [{"broker_ids": ids} for ids in lists],
        }
        for name, count, lists in wishes
    ]
    fields = {"topics": topics, "timeout": 5000, "validate_only": validate_only}
    answer = stage.ask(create_partitions, CREATE_PARTITIONS, version, fields)
    assert len({one.name for one in answer.results}) == len(answer.results)
    assert all(one.error_message for one in answer.results if one.error_code)
    return {one.name: one.error_code for one in answer.results}


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions(stage: Stage, known: UUID, version: int) -> None:
    assert grow(stage, ("a", 3, None), version=version) == {"a": 0}
    assert len(stage.image.topics["a"].partitions) == 3


@pytest.mark.parametrize(
    ("count", "assignments", "expected"),
    [
        pytest.param(1, None, 37, id="as many as there are"),
        pytest.param(0, None, 37, id="none"),
        pytest.param(-1, None, 37, id="negative"),
        # Kafka answers -1, because its list overflows. That says nothing, so we say what is wrong.
        pytest.param(10**9, None, 44, id="a milliard"),
        pytest.param(2**31 - 1, None, 44, id="as many as can be said"),
        pytest.param(3, [[1]], 39, id="too few assigned"),
        pytest.param(2, [[1], [1]], 39, id="too many assigned"),
        pytest.param(2, [], 39, id="none assigned"),
        pytest.param(2, [[9]], 39, id="an unknown broker"),
        pytest.param(2, [[1, 1]], 39, id="a broker twice"),
        pytest.param(2, [[]], 39, id="no replicas"),
    ],
)
def test_partitions_that_cannot_be_added(
    stage: Stage, known: UUID, count: int, assignments: list[list[int]] | None, expected: int
) -> None:
    assert grow(stage, ("a", count, assignments)) == {"a": expected}
    assert len(stage.image.topics["a"].partitions) == 1


def test_fewer_partitions_are_refused(stage: Stage, known: UUID) -> None:
    grow(stage, ("a", 3, None))
    assert grow(stage, ("a", 2, None)) == {"a": 37}


def test_partitions_of_unknown_topics_are_refused(stage: Stage) -> None:
    wishes: list[Wish] = [("nope", 3, None), ("a/b", 3, None), ("", 3, None)]
    assert grow(stage, *wishes) == {"nope": 3, "a/b": 3, "": 3}


def test_a_topic_that_is_to_grow_twice_is_refused_alone(stage: Stage, known: UUID) -> None:
    assert grow(stage, ("a", 3, None), ("b", 3, None), ("a", 4, None)) == {"a": 42, "b": 0}


def test_validating_partitions_adds_none(stage: Stage, known: UUID) -> None:
    assert grow(stage, ("a", 3, None), validate_only=True) == {"a": 0}
    assert len(stage.image.topics["a"].partitions) == 1


def test_brokers_that_were_chosen_for_more_partitions_are_kept(stage: Stage, known: UUID) -> None:
    assert grow(stage, ("a", 3, [[1], [1]])) == {"a": 0}
    assert [one.replicas for one in stage.image.topics["a"].partitions] == [(1,)] * 3
