"""Prepares a node for the cases: the topics that they share, and those of one case alone.

Everything goes over the wire, so it is the same for our node and for Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final
from uuid import UUID

from ottla.proto.kafka.apis import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
    ApiRow,
)
from tests.builders import NOW_MS, produced
from tests.interop.broker import wait_until
from tests.interop.differential.case import NewTopic, Send
from tests.interop.differential.exchange import Exchange
from tests.interop.differential.messages import Fields, Plain

DEADLINE_S: Final = 60.0
# Topics in one request: a controller takes some time for each.
TOPICS_AT_ONCE: Final = 100
RECORDS_PER_BATCH: Final = 3

# The topics that several cases look at and none changes.
EMPTY: Final = "shared-empty"
FILLED: Final = "shared-filled"
TRIMMED: Final = "shared-trimmed"
SHARED: Final[Mapping[str, NewTopic]] = {
    EMPTY: NewTopic(),
    FILLED: NewTopic(partitions=2, batches=4),
    TRIMMED: NewTopic(batches=4),
}
# Where the log of TRIMMED starts: in the middle of its second batch.
TRIMMED_START: Final = 4


class StageError(Exception):
    """The node did not let the stage be built."""


def batch(number: int) -> bytes:
    """Return the batch that a stage writes at this place."""
    first_ms = NOW_MS + number * 1000
    values = [f"value-{number}-{i}".encode() for i in range(RECORDS_PER_BATCH)]
    return produced(*values, timestamps=[first_ms + i for i in range(RECORDS_PER_BATCH)])


def build_stage(exchange: Exchange, topics: Mapping[str, NewTopic]) -> dict[str, UUID]:
    """Create the topics, fill them, and return their ids when all partitions are served."""
    wait_until(partial(_gives_producer_ids, exchange), DEADLINE_S, "producer ids are given out")
    wait_until(partial(_coordinates, exchange), DEADLINE_S, "groups are coordinated")
    names = iter(topics)
    while some := list(islice(names, TOPICS_AT_ONCE)):
        _create(exchange, {name: topics[name] for name in some})
        wait_until(
            partial(_all_led, exchange, {name: topics[name].partitions for name in some}),
            DEADLINE_S,
            "all partitions are served",
        )
    for name, topic in topics.items():
        for number in range(topic.batches):
            _produce(exchange, name, batch(number))
    return _ids(exchange, list(topics))


def trim(exchange: Exchange, topic: str, offset: int) -> None:
    partition = {"partition_index": 0, "offset": offset}
    fields = {"timeout": 10_000, "topics": [{"name": topic, "partitions": [partition]}]}
    _ask(exchange, DELETE_RECORDS, fields)


def _create(exchange: Exchange, topics: Mapping[str, NewTopic]) -> None:
    wanted = [
        {
            "name": name,
            "num_partitions": topic.partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [
                {"name": key, "value": value} for key, value in (topic.settings or {}).items()
            ],
        }
        for name, topic in topics.items()
    ]
    answer = _ask(exchange, CREATE_TOPICS, {"topics": wanted, "timeout": 30_000})
    refused = [one for one in answer["topics"] if not one["error_code"].startswith("0 ")]
    if refused:
        raise StageError(f"topics were refused: {refused[:3]}")


def _all_led(exchange: Exchange, partitions: Mapping[str, int]) -> bool:
    topics = [
        {
            "name": name,
            "partitions": [{"partition_index": i, "timestamp": -1} for i in range(count)],
        }
        for name, count in partitions.items()
    ]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": 1000}
    answer = _ask(exchange, LIST_OFFSETS, fields)
    return all(
        one["error_code"].startswith("0 ")
        for topic in answer["topics"]
        for one in topic["partitions"]
    )


def _produce(exchange: Exchange, topic: str, records: bytes) -> None:
    data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
    fields = {"acks": -1, "timeout": 10_000, "topic_data": [data]}
    answer = _ask(exchange, PRODUCE, fields, version=11)
    code = answer["responses"][0]["partition_responses"][0]["error_code"]
    if not code.startswith("0 "):
        raise StageError(f"{topic} could not be filled: {code}")


def _ids(exchange: Exchange, names: Sequence[str]) -> dict[str, UUID]:
    topics = [{"name": name, "topic_id": None} for name in names]
    fields = {"topics": topics, "include_topic_authorized_operations": False}
    answer = _ask(exchange, METADATA, fields, version=12)
    return dict(_named_ids(answer))


def _named_ids(answer: Plain) -> Iterator[tuple[str, UUID]]:
    for topic in answer["topics"]:
        if topic["topic_id"] is None:
            raise StageError(f"a topic without an id: {topic}")
        yield topic["name"], UUID(topic["topic_id"])


def _gives_producer_ids(exchange: Exchange) -> bool:
    fields = {"transactional_id": None, "transaction_timeout": 1000}
    return bool(_ask(exchange, INIT_PRODUCER_ID, fields, version=5)["error_code"].startswith("0 "))


def _coordinates(exchange: Exchange) -> bool:
    """Whether there is a coordinator that serves; the first question makes one."""
    found = _ask(exchange, FIND_COORDINATOR, {"key": "any", "key_type": 0}, version=3)
    if not found["error_code"].startswith("0 "):
        return False
    fetched = _ask(exchange, OFFSET_FETCH, {"group_id": "any", "topics": []}, version=7)
    return bool(fetched["error_code"].startswith("0 "))


def _ask(
    exchange: Exchange, row: ApiRow, fields: Fields, version: int | None = None
) -> dict[str, Any]:
    answer = exchange.ask(Send(row, row.high if version is None else version, fields))
    if isinstance(answer, str):
        raise StageError(f"{row.name}: {answer}")
    return answer
