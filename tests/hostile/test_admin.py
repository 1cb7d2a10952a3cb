"""hostile-input.md, "Admin": topics that cannot be made as asked.

The codes are those of Kafka 4.3.1 unless a row says why ours is stricter. Names that cannot be are
in `test_topic_names.py`, each option's own bad values in `tests/unit/proto/options`.
"""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

import pytest

from ottla.proto.kafka.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    METADATA,
    PRODUCE,
)
from tests.hostile.stage import (
    CLOSED,
    FILLED,
    MISSING,
    Closed,
    Target,
    batch,
    codes_of,
    create,
    fetch_fields,
    frame_of,
    metadata_fields,
    produce_fields,
)
from tests.hostile.test_topic_names import create_fields, delete_fields, entries_of, new_topic

pytestmark = pytest.mark.integration

# The broker of a node that was told no id.
HERE: Final = 1
ABSENT: Final = 9
ASSIGNED: Final = {"num_partitions": -1, "replication_factor": -1}


class Row(NamedTuple):
    """What is asked of a topic that is not there yet, and the code."""

    changes: dict[str, Any]
    code: int
    # Where it is not Kafka's.
    difference: str = ""


def assigned(*partitions: tuple[int, list[int]], **changes: Any) -> dict[str, Any]:
    told = [{"partition_index": index, "broker_ids": brokers} for index, brokers in partitions]
    return {**ASSIGNED, "assignments": told, **changes}


def options(*pairs: tuple[str, str | None]) -> dict[str, Any]:
    return {"configs": [{"name": name, "value": value} for name, value in pairs]}


ROWS: Final[dict[str, Row]] = {
    "partitions 0": Row({"num_partitions": 0}, 37),
    "partitions −1, which is the default": Row({"num_partitions": -1}, 0),
    "partitions −2": Row({"num_partitions": -2}, 37),
    "partitions 10⁹": Row({"num_partitions": 10**9}, 44),
    "partitions 2³¹−1": Row({"num_partitions": 2**31 - 1}, 44),
    "replication factor 0": Row({"replication_factor": 0}, 38),
    "replication factor −1, which is the default": Row({"replication_factor": -1}, 0),
    "replication factor −2": Row({"replication_factor": -2}, 38),
    "replication factor 2 on one broker": Row({"replication_factor": 2}, 38),
    "replication factor 32767": Row({"replication_factor": 32767}, 38),
    "a broker twice": Row(assigned((0, [HERE, HERE])), 39),
    "a broker that is not there": Row(assigned((0, [ABSENT])), 39),
    "broker −1": Row(assigned((0, [-1])), 39),
    "no broker": Row(assigned((0, [])), 39),
    "a gap between partitions": Row(assigned((1, [HERE])), 39),
    "a partition twice": Row(assigned((0, [HERE]), (0, [HERE])), 39),
    "partition −1": Row(assigned((-1, [HERE])), 39),
    "assignment and count": Row(assigned((0, [HERE]), num_partitions=1), 42),
    "assignment and replication factor": Row(assigned((0, [HERE]), replication_factor=1), 42),
    "assignment, count and replication factor": Row(
        assigned((0, [HERE]), num_partitions=1, replication_factor=1), 42
    ),
    "an unknown option": Row(options(("no.such.option", "1")), 40),
    "an option without a name": Row(options(("", "1")), 40),
    "an option of Kafka's past": Row(
        options(("message.format.version", "3.0")), 0, "more lenient: taken and ignored"
    ),
    "an option that is null": Row(options(("retention.ms", None)), 40),
    "an option that is empty": Row(options(("retention.ms", "")), 40),
    "an option that is no number": Row(options(("retention.ms", "x")), 40),
    "an option of 32,000 digits": Row(options(("retention.ms", "9" * 32_000)), 40),
    "a policy that is none": Row(options(("cleanup.policy", "foo")), 40),
    "options that contradict": Row(
        options(("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")), 40
    ),
    "segment.bytes too small": Row(options(("segment.bytes", "1048575")), 40),
    "min.insync.replicas 0": Row(options(("min.insync.replicas", "0")), 40),
    "min.insync.replicas above the replication factor": Row(
        options(("min.insync.replicas", "5")), 0
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("version", [2, 7])
def test_a_topic_is_made_or_refused_with_the_code(
    attacked: Target, request: pytest.FixtureRequest, row: Row, version: int
) -> None:
    name = f"admin-{abs(hash(request.node.name))}"
    fields = create_fields(new_topic(name, **row.changes))
    with attacked.wire() as wire:
        before = entries_of(attacked.node.data_dir)
        assert codes_of(wire.ask(CREATE_TOPICS, version, {**fields, "validate_only": True})) == (
            row.code,
        )
        assert codes_of(wire.ask(CREATE_TOPICS, version, fields)) == (row.code,)
        known = codes_of(wire.ask(METADATA, 12, metadata_fields(name)))
        if row.code:
            assert known == (3,)
            assert entries_of(attacked.node.data_dir) == before
        else:
            assert codes_of(wire.ask(DELETE_TOPICS, 5, delete_fields(name))) == (0,)


def test_min_insync_replicas_above_the_replication_factor_counts_as_the_factor(
    attacked: Target,
) -> None:
    """Else a topic made like this could never be written to with acks=all."""
    with attacked.wire() as wire:
        create(wire, "strict", min_insync_replicas="5")
        assert codes_of(wire.ask(PRODUCE, 9, produce_fields("strict", [(0, batch())]))) == (0,)


def test_a_topic_that_exists(attacked: Target) -> None:
    for version in (2, 7):
        answer = attacked.ask(CREATE_TOPICS, version, create_fields(new_topic(FILLED)))
        assert codes_of(answer) == (36,)


def test_a_name_twice_in_one_request(attacked: Target) -> None:
    answer = attacked.ask(CREATE_TOPICS, 7, create_fields(*[new_topic("two")] * 2))
    assert codes_of(answer) == (42,)


GROWTH: Final[dict[str, tuple[int, list[list[int]] | None, int]]] = {
    "fewer": (1, None, 37),
    "as many": (2, None, 37),
    "0": (0, None, 37),
    "−1": (-1, None, 37),
    "−2³¹": (-(2**31), None, 37),
    "a broker twice": (3, [[HERE, HERE]], 39),
    "a broker that is not there": (3, [[ABSENT]], 39),
    "nobody": (3, [[]], 39),
    "too many assignments": (3, [[HERE], [HERE]], 39),
    "too few assignments": (4, [[HERE]], 39),
}


@pytest.mark.parametrize(("count", "brokers", "code"), GROWTH.values(), ids=GROWTH.keys())
def test_a_topic_does_not_grow_to_what_cannot_be(
    attacked: Target, count: int, brokers: list[list[int]] | None, code: int
) -> None:
    told = None if brokers is None else [{"broker_ids": one} for one in brokers]
    topic = {"name": FILLED, "count": count, "assignments": told}
    fields = {"topics": [topic], "timeout": 10_000, "validate_only": False}
    assert codes_of(attacked.ask(CREATE_PARTITIONS, 1, fields)) == (code,)


def test_more_partitions_than_a_node_could_hold(attacked: Target) -> None:
    """Kafka has no bound here and dies of it; we refuse as for a new topic."""
    topic = {"name": FILLED, "count": 10**9, "assignments": None}
    fields = {"topics": [topic], "timeout": 10_000, "validate_only": False}
    assert codes_of(attacked.ask(CREATE_PARTITIONS, 1, fields)) == (44,)


def test_a_topic_deleted_while_it_is_fetched(attacked: Target) -> None:
    """Who waits is told at once, and not when the wait is over."""
    with attacked.wire() as reader, attacked.wire() as admin:
        create(admin, "going")
        waits = fetch_fields(topic="going", min_bytes=1, max_wait=2**31 - 1)
        reader.send(frame_of(FETCH, 12, waits))
        assert codes_of(admin.ask(DELETE_TOPICS, 5, delete_fields("going"))) == (0,)
        answer = reader.read_frame()
        assert not isinstance(answer, Closed)
        assert codes_of(reader.ask(FETCH, 12, fetch_fields(topic="going"))) == (0, 3)


def test_a_topic_deleted_while_it_is_written(attacked: Target) -> None:
    with attacked.wire() as writer, attacked.wire() as admin:
        create(admin, "written")
        one = frame_of(PRODUCE, 9, produce_fields("written", [(0, batch())]))
        writer.send(one * 50)
        assert codes_of(admin.ask(DELETE_TOPICS, 5, delete_fields("written"))) == (0,)
        for _ in range(50):
            assert not isinstance(writer.read_frame(), Closed)
        late = writer.ask(PRODUCE, 9, produce_fields("written", [(0, batch())]))
        assert codes_of(late) == (3,)


def test_concurrent_creates_of_one_name_make_one_topic(attacked: Target) -> None:
    answers = list[object]()

    def make() -> None:
        answers.append(codes_of(attacked.ask(CREATE_TOPICS, 7, create_fields(new_topic("race")))))

    threads = [threading.Thread(target=make) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers, key=str) == [(0,), *[(36,)] * 15]


def test_deleting_what_is_not_there(attacked: Target) -> None:
    assert codes_of(attacked.ask(DELETE_TOPICS, 5, delete_fields(MISSING))) == (3,)
    assert codes_of(attacked.ask(DELETE_TOPICS, 5, delete_fields(FILLED, FILLED))) == (42,)
    assert codes_of(attacked.ask(METADATA, 12, metadata_fields(FILLED))) == (0, 0, 0)


def test_too_many_topics_in_one_request_close_the_connection(attacked: Target) -> None:
    fields = create_fields(*[new_topic("x")] * 100_001)
    assert attacked.ask(CREATE_TOPICS, 7, fields) is CLOSED
