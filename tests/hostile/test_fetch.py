"""hostile-input.md, "Fetch": who asks, from where, how much, how long.

FILLED has four batches, offsets 0 to 12. The codes are those of Kafka 4.3.1 unless a row says why
ours is stricter. "epoch wrong (71)" cannot happen: nobody is given a session, so none has an epoch.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

from ottla.node.metric_table import PURGATORY_SIZE
from ottla.proto.kafka.apis import API_VERSIONS, DELETE_RECORDS, FETCH, PRODUCE
from ottla.proto.kafka.message import Message
from ottla.proto.records.header import read_header
from tests.builders import produced
from tests.hostile.stage import (
    CLOSED,
    EMPTY,
    FILLED_END,
    MISSING,
    Closed,
    Target,
    Wire,
    batch,
    codes_of,
    create,
    fetch_fields,
    fetch_partition,
    frame_of,
    produce_fields,
)
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration

BATCH: Final = len(batch())
ALL: Final = FILLED_END // 3
NO_REPLICAS: Final = "clients may not pose as replicas (CVE-2018-1288); Kafka says 6"
NO_NAME: Final = "Kafka fails without a name"


class Row(NamedTuple):
    """A request, all the codes of its answer, and how many batches come."""

    fields: dict[str, Any]
    codes: tuple[int, ...] | Closed
    batches: int = 0
    version: int = 12
    stricter: str = ""


def at(offset: int, **changes: Any) -> dict[str, Any]:
    return fetch_fields(fetch_partition(fetch_offset=offset, **changes))


def sized(size: int) -> dict[str, Any]:
    return fetch_fields(fetch_partition(partition_max_bytes=size))


REPLICA: Final = {"replica_id": 1, "replica_epoch": -1}

ROWS: Final[dict[str, Row]] = {
    "replica id 0": Row(fetch_fields(replica_id=0), (31, 31), 0, 12, NO_REPLICAS),
    "replica id 1": Row(fetch_fields(replica_id=1), (31, 31), 0, 12, NO_REPLICAS),
    "replica id 99": Row(fetch_fields(replica_id=99), (31,), 0, 4, NO_REPLICAS),
    "replica state 1": Row(fetch_fields(replica_state=REPLICA), (31, 31), 0, 17, NO_REPLICAS),
    "replica id −2": Row(fetch_fields(replica_id=-2), (0, 0), ALL),
    "offset −1": Row(at(-1), (0, 1)),
    "offset −2⁶³": Row(at(-(2**63)), (0, 1)),
    "offset of the end": Row(at(FILLED_END), (0, 0)),
    "offset behind the end": Row(at(FILLED_END + 1), (0, 1)),
    "offset 2⁶³−1": Row(at(2**63 - 1), (0, 1)),
    "offset in the middle of a batch": Row(at(7), (0, 0), 2),
    "partition max bytes 0": Row(sized(0), (0, 0), 1),
    "partition max bytes 1": Row(sized(1), (0, 0), 1),
    "partition max bytes −1": Row(sized(-1), (0, 4), 0, 12, NO_NAME),
    "partition max bytes 2³¹−1": Row(sized(2**31 - 1), (0, 0), ALL),
    "max bytes 0": Row(fetch_fields(max_bytes=0), (0, 0), 1),
    "max bytes −1": Row(fetch_fields(max_bytes=-1), (4, 4), 0, 12, NO_NAME),
    "max bytes 2³¹−1": Row(fetch_fields(max_bytes=2**31 - 1), (0, 0), ALL),
    "min bytes −1": Row(fetch_fields(min_bytes=-1, max_wait=2**31 - 1), (0, 0), ALL),
    "min bytes > max bytes": Row(
        fetch_fields(min_bytes=2**31 - 1, max_bytes=BATCH, max_wait=50), (0, 0), 1
    ),
    "max wait 2³¹−1, and data is there": Row(
        fetch_fields(min_bytes=1, max_wait=2**31 - 1), (0, 0), ALL
    ),
    "max wait −1": Row(fetch_fields(min_bytes=2**31 - 1, max_wait=-1), (0, 0), ALL),
    "current epoch 0": Row(at(0, current_leader_epoch=0), (0, 0), ALL),
    "current epoch in the future": Row(at(0, current_leader_epoch=1), (0, 75)),
    "current epoch 2³¹−1": Row(at(0, current_leader_epoch=2**31 - 1), (0, 75)),
    "current epoch −2": Row(at(0, current_leader_epoch=-2), (0, 0), ALL),
    "last fetched epoch 0": Row(at(0, last_fetched_epoch=0), (0, 0), ALL),
    "last fetched epoch unknown": Row(at(0, last_fetched_epoch=1), (0, 1)),
    "last fetched epoch 2³¹−1": Row(at(0, last_fetched_epoch=2**31 - 1), (0, 1)),
    "last fetched epoch 0, behind the end": Row(at(99, last_fetched_epoch=0), (0, 0)),
    "session id unknown": Row(fetch_fields(session_id=77, session_epoch=1), (70,)),
    "session epoch wrong": Row(
        fetch_fields(session_id=0, session_epoch=5), (70,), 0, 12, "as Kafka: there is no session"
    ),
    "session epoch −2": Row(fetch_fields(session_epoch=-2), (70,)),
    "session id unknown, but a full fetch": Row(
        fetch_fields(session_id=77, session_epoch=0), (0, 0), ALL
    ),
    "forgotten topics that were never fetched": Row(
        fetch_fields(
            forgotten_topics_data=[{"topic": MISSING, "topic_id": UUID(int=9), "partitions": [1]}]
        ),
        (0, 0),
        ALL,
    ),
    "isolation level 1": Row(fetch_fields(isolation_level=1), (0, 0), ALL),
    "isolation level 2": Row(fetch_fields(isolation_level=2), (42, 42), 0, 12, NO_NAME),
    "isolation level −1": Row(fetch_fields(isolation_level=-1), (42, 42), 0, 12, NO_NAME),
    "partition 2": Row(fetch_fields(fetch_partition(2)), (0, 3)),
    "partition −1": Row(fetch_fields(fetch_partition(-1)), (0, 3)),
    "an unknown topic": Row(fetch_fields(topic=MISSING), (0, 3)),
    "an unknown topic id": Row(fetch_fields(topic_id=UUID(int=9)), (0, 100), 0, 13),
    "the zero topic id": Row(fetch_fields(), (0, 100), 0, 13),
    "no topics": Row({**fetch_fields(), "topics": []}, (0,)),
}


def batches_in(answer: Message) -> int:
    count = 0
    for topic in answer.responses:
        for partition in topic.partitions:
            data, position = bytes(partition.records or b""), 0
            while position < len(data):
                position += read_header(data, position).size
                count += 1
    return count


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_fetch_gets_its_codes_and_its_batches(attacked: Target, row: Row) -> None:
    answer = attacked.ask(FETCH, row.version, row.fields)
    assert codes_of(answer) == row.codes
    assert not isinstance(answer, Closed)
    assert batches_in(answer) == row.batches


def test_a_divergence_is_told_and_no_batch_is_given(attacked: Target) -> None:
    answer = attacked.answer(FETCH, 12, at(99, last_fetched_epoch=0))
    (found,) = answer.responses[0].partitions
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, FILLED_END)


def test_an_offset_below_the_start_of_the_log(attacked: Target) -> None:
    with attacked.wire() as wire:
        create(wire, "trimmed")
        for number in range(3):
            wire.ask(PRODUCE, 9, produce_fields("trimmed", [(0, batch(number))]))
        cut = {"name": "trimmed", "partitions": [{"partition_index": 0, "offset": 4}]}
        assert codes_of(wire.ask(DELETE_RECORDS, 1, {"timeout": 1000, "topics": [cut]})) == (0,)
        for offset, code in {3: 1, 4: 0}.items():
            asked = fetch_fields(fetch_partition(fetch_offset=offset), topic="trimmed")
            assert codes_of(wire.ask(FETCH, 12, asked)) == (0, code)


def test_a_partition_named_twice_is_answered_twice_within_the_bounds(attacked: Target) -> None:
    """Kafka keeps the last of them without a word."""
    asked = fetch_fields(fetch_partition(), fetch_partition(fetch_offset=3), max_bytes=BATCH * 5)
    answer = attacked.answer(FETCH, 12, asked)
    assert codes_of(answer) == (0, 0, 0)
    assert batches_in(answer) == 5


def test_who_names_a_partition_twice_does_not_wait(attacked: Target) -> None:
    """Else each append would cost as many looks as there are names of one partition."""
    end = fetch_partition(fetch_offset=FILLED_END)
    asked = fetch_fields(end, end, min_bytes=1, max_wait=2**31 - 1)
    assert codes_of(attacked.ask(FETCH, 12, asked)) == (0, 0, 0)


def test_a_hundred_thousand_partitions(attacked: Target) -> None:
    """As many elements as a request may have; one more and the connection closes."""
    many = [fetch_partition(index) for index in range(2, 99_999 + 2)]
    answer = attacked.ask(FETCH, 11, fetch_fields(*many))
    assert codes_of(answer) == (0, *[3] * 99_999)
    too_many = fetch_fields(*[*many, fetch_partition()])
    assert attacked.ask(FETCH, 11, too_many) is CLOSED
    assert attacked.ask(FETCH, 12, too_many) is CLOSED


def test_a_fetch_that_waits_for_ever_ends_with_its_connection(attacked: Target) -> None:
    waits = fetch_fields(topic=EMPTY, min_bytes=1, max_wait=2**31 - 1)
    before = attacked.memory
    with contextlib.ExitStack() as wires:
        for _ in range(100):
            wire = wires.enter_context(attacked.wire())
            wire.send(frame_of(FETCH, 12, waits))
        wait_until(lambda: waiting_fetches(attacked) == 100, 10, "a hundred fetches wait")
    attacked.settles(4 << 20, since=before)
    # Gone with their clients.
    wait_until(lambda: waiting_fetches(attacked) == 0, 10, "no fetch waits")


def waiting_fetches(attacked: Target) -> int:
    _, page = attacked.node.get("/metrics")
    (line,) = [
        line
        for line in page.splitlines()
        if line.startswith(PURGATORY_SIZE.name) and '"Fetch"' in line
    ]
    return int(float(line.split()[-1]))


# 64 batches of 1 MB.
LARGE_BATCHES: Final = 64
SERVER_CAP: Final = 55 << 20


@pytest.fixture(scope="module")
def large_topic(hostile_target: Target) -> str:
    with hostile_target.wire() as wire:
        create(wire, "large", ottla_durability="pagecache")
        records = produced(bytes(1_000_000))
        for _ in range(LARGE_BATCHES):
            asked = produce_fields("large", [(0, records)], acks=1)
            assert codes_of(wire.ask(PRODUCE, 9, asked)) == (0,)
    return "large"


def all_of(topic: str) -> dict[str, Any]:
    whole = fetch_partition(partition_max_bytes=2**31 - 1)
    return fetch_fields(whole, topic=topic, max_bytes=2**31 - 1)


def test_an_answer_stays_within_the_cap_of_the_server(attacked: Target, large_topic: str) -> None:
    answer = attacked.answer(FETCH, 12, all_of(large_topic))
    (found,) = answer.responses[0].partitions
    assert 0 < len(found.records) <= SERVER_CAP


def test_a_client_that_never_reads_its_answers_costs_no_memory(
    attacked: Target, large_topic: str
) -> None:
    before = attacked.memory
    frame = frame_of(FETCH, 12, all_of(large_topic))
    with contextlib.ExitStack() as wires:
        for _ in range(50):
            wire = wires.enter_context(Wire(attacked.node.bootstrap, receive_buffer=4096))
            # 50 clients, 20 answers of 55 MB each: 55 GB that nobody reads.
            wire.send(frame * 20)
        assert codes_of(attacked.ask(API_VERSIONS, 0, {})) == (0,)
        attacked.settles(8 << 20, since=before)
