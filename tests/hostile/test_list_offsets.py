"""hostile-input.md, "ListOffsets/OffsetForLeaderEpoch/DeleteRecords".

FILLED has offsets 0 to 12, written at 1,700,000,000,000 ms and later. The answers are those of
Kafka 4.3.1 unless a row says otherwise.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from ottla.proto.kafka.apis import (
    DELETE_RECORDS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from tests.builders import NOW_MS
from tests.hostile.stage import (
    FILLED,
    FILLED_END,
    MISSING,
    Target,
    batch,
    codes_of,
    create,
    fetch_fields,
    fetch_partition,
    list_fields,
    produce_fields,
)

pytestmark = pytest.mark.integration

NOT_IN_THIS_VERSION: Final = (35, -1, -1)
NOTHING: Final = (0, -1, -1)

# (timestamp asked for, version): (code, offset, timestamp told)
TIMES: Final[dict[tuple[int, int], tuple[int, int, int]]] = {
    (-1, 1): (0, FILLED_END, -1),
    (-1, 11): (0, FILLED_END, -1),
    (-2, 1): (0, 0, -1),
    (-2, 11): (0, 0, -1),
    (-3, 6): NOT_IN_THIS_VERSION,
    (-3, 7): (0, FILLED_END - 1, NOW_MS + 3002),
    (-4, 7): NOT_IN_THIS_VERSION,
    (-4, 8): (0, 0, -1),
    (-5, 8): NOT_IN_THIS_VERSION,
    (-5, 9): NOTHING,
    (-6, 10): NOT_IN_THIS_VERSION,
    (-6, 11): NOTHING,
    (-7, 1): NOT_IN_THIS_VERSION,
    (-7, 11): NOT_IN_THIS_VERSION,
    (-(2**63), 11): NOT_IN_THIS_VERSION,
    (0, 11): (0, 0, NOW_MS),
    (NOW_MS + 1500, 11): (0, 6, NOW_MS + 2000),
    (2**63 - 1, 1): NOTHING,
    (2**63 - 1, 11): NOTHING,
}


@pytest.mark.parametrize(("asked", "expected"), TIMES.items(), ids=[str(one) for one in TIMES])
def test_list_offsets(
    attacked: Target, asked: tuple[int, int], expected: tuple[int, int, int]
) -> None:
    timestamp, version = asked
    answer = attacked.answer(LIST_OFFSETS, version, list_fields(timestamp))
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.offset, found.timestamp) == expected


# What is asked, the version, all codes.
LISTED: Final[dict[str, tuple[dict[str, Any], int, tuple[int, ...]]]] = {
    "current epoch 0": (list_fields(current_leader_epoch=0), 4, (0,)),
    "current epoch 1": (list_fields(current_leader_epoch=1), 4, (75,)),
    "current epoch 2³¹−1": (list_fields(current_leader_epoch=2**31 - 1), 11, (75,)),
    "current epoch −2": (list_fields(current_leader_epoch=-2), 4, (74,)),
    "an unknown topic": (list_fields(topic=MISSING), 4, (3,)),
    # Stricter: on this listener nobody is a replica (CVE-2018-1288). Kafka answers as to a client.
    "replica id 0": ({**list_fields(), "replica_id": 0}, 4, (31,)),
    "replica id 99": ({**list_fields(), "replica_id": 99}, 4, (31,)),
    "isolation level 0": (list_fields(), 4, (0,)),
    "isolation level 1": ({**list_fields(), "isolation_level": 1}, 4, (0,)),
}


@pytest.mark.parametrize(("fields", "version", "codes"), LISTED.values(), ids=LISTED.keys())
def test_list_offsets_codes(
    attacked: Target, fields: dict[str, Any], version: int, codes: tuple[int, ...]
) -> None:
    assert codes_of(attacked.ask(LIST_OFFSETS, version, fields)) == codes


@pytest.mark.parametrize("level", [2, -1])
def test_list_offsets_with_an_isolation_level_that_is_none(attacked: Target, level: int) -> None:
    """Kafka fails with −1, which says nothing; a bad request is what it is."""
    fields = {**list_fields(), "isolation_level": level}
    assert codes_of(attacked.ask(LIST_OFFSETS, 4, fields)) == (42,)


def epoch_fields(epoch: int, current: int = -1, index: int = 0, topic: str = FILLED) -> Any:
    asked = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
    return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]}


# What is asked: (code, epoch, end offset)
EPOCHS: Final = {
    "epoch 0": (epoch_fields(0), (0, 0, FILLED_END)),
    "epoch −1": (epoch_fields(-1), (0, -1, -1)),
    "epoch 1": (epoch_fields(1), (0, -1, -1)),
    "epoch 2³¹−1": (epoch_fields(2**31 - 1), (0, -1, -1)),
    "current epoch 1": (epoch_fields(0, current=1), (75, -1, -1)),
    "current epoch −2": (epoch_fields(0, current=-2), (74, -1, -1)),
    "partition 2": (epoch_fields(0, index=2), (3, -1, -1)),
    "partition −1": (epoch_fields(0, index=-1), (3, -1, -1)),
    "an unknown topic": (epoch_fields(0, topic=MISSING), (3, -1, -1)),
}


@pytest.mark.parametrize(("fields", "expected"), EPOCHS.values(), ids=EPOCHS.keys())
@pytest.mark.parametrize("version", [2, 4])
def test_offset_for_leader_epoch(
    attacked: Target, version: int, fields: Any, expected: tuple[int, int, int]
) -> None:
    answer = attacked.answer(OFFSET_FOR_LEADER_EPOCH, version, fields)
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == expected


def delete_fields(topic: str, *partitions: tuple[int, int]) -> dict[str, Any]:
    told = [{"partition_index": index, "offset": offset} for index, offset in partitions]
    return {"timeout": 5000, "topics": [{"name": topic, "partitions": told}]}


@pytest.fixture
def own_topic(attacked: Target, request: pytest.FixtureRequest) -> str:
    """A topic with six records."""
    name = f"cut-{abs(hash(request.node.name))}"
    with attacked.wire() as wire:
        create(wire, name)
        for number in range(2):
            asked = produce_fields(name, [(0, batch(number))])
            assert codes_of(wire.ask(PRODUCE, 9, asked)) == (0,)
    return name


# Where to: (code, low watermark)
CUTS: Final = {
    -1: (0, 6),
    0: (0, 0),
    4: (0, 4),
    6: (0, 6),
    7: (1, -1),
    2**63 - 1: (1, -1),
    -2: (1, -1),
    -(2**63): (1, -1),
}


@pytest.mark.parametrize(("offset", "expected"), CUTS.items())
def test_delete_records(
    attacked: Target, own_topic: str, offset: int, expected: tuple[int, int]
) -> None:
    answer = attacked.answer(DELETE_RECORDS, 1, delete_fields(own_topic, (0, offset)))
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.low_watermark) == expected
    # What was refused has cut nothing.
    start = attacked.answer(LIST_OFFSETS, 4, list_fields(-2, topic=own_topic))
    assert start.topics[0].partitions[0].offset == max(0, expected[1])


def test_what_was_deleted_does_not_come_back(attacked: Target, own_topic: str) -> None:
    with attacked.wire() as wire:
        for offset, low in [(4, 4), (2, 4), (5, 5)]:
            answer = wire.ask(DELETE_RECORDS, 1, delete_fields(own_topic, (0, offset)))
            assert codes_of(answer) == (0,)
            start = attacked.answer(LIST_OFFSETS, 4, list_fields(-2, topic=own_topic))
            assert start.topics[0].partitions[0].offset == low
        asked = fetch_fields(fetch_partition(fetch_offset=4), topic=own_topic)
        assert codes_of(wire.ask(FETCH, 12, asked)) == (0, 1)
