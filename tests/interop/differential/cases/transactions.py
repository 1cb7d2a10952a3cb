"""Transactions: what is answered to whom, from the first partition to the end and after it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from ottla.proto.kafka.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from tests.builders import produced
from tests.interop.differential.case import Answer, Ask, Case, NewTopic, Send, Talk, many

_GROUP: Final = "in-transactions"
_HERE: Final = NewTopic(partitions=2)
Producer = dict[str, Any]


def _is_well(answer: Any) -> bool:
    return isinstance(answer, dict) and str(answer["error_code"]).startswith("0 ")


def _held(name: str) -> Generator[Send, Answer, Producer]:
    """Hold an id; what is answered is not compared, since ids differ."""
    found = {"key_type": 1, "coordinator_keys": [name]}
    yield Send(
        FIND_COORDINATOR,
        4,
        found,
        until=lambda answer: _is_well(answer["coordinators"][0]),
        is_recorded=False,
    )
    asked = {
        "transactional_id": name,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    answer = yield Send(INIT_PRODUCER_ID, 5, asked, until=_is_well, is_recorded=False)
    assert isinstance(answer, dict)
    return {"producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}


def _adding(name: str, by: Producer, topic: str, *indexes: int, version: int = 3) -> Send:
    fields = {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": by["producer_id"],
        "v3_and_below_producer_epoch": by["producer_epoch"],
        "v3_and_below_topics": [{"name": topic, "partitions": list(indexes)}],
    }
    return Send(ADD_PARTITIONS_TO_TXN, version, fields)


def _ending(name: str, by: Producer, version: int, *, is_commit: bool = True) -> Send:
    return Send(END_TXN, version, {"transactional_id": name, **by, "committed": is_commit})


def _until_complete(name: str) -> Send:
    return Send(
        DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": [name]},
        until=lambda answer: "Complete" in answer["transaction_states"][0]["transaction_state"],
        is_recorded=False,
    )


def _wrong(by: Producer) -> list[Producer]:
    """Return those who do not hold the id: a stranger, and other epochs."""
    later, earlier = by["producer_epoch"] + 1, by["producer_epoch"] - 1
    return [
        {**by, "producer_id": 4_000_000},
        {**by, "producer_epoch": later},
        {**by, "producer_epoch": earlier},
    ]


def _strangers_end(ask: Ask) -> Talk:
    name = ask.topic
    by = yield from _held(name)
    # Nothing was begun.
    yield _ending(name, by, min(ask.version, 4))
    yield _adding(name, by, ask.topic, 0)
    for one in _wrong(by):
        yield _ending(name, one, ask.version)
    yield _ending("", by, ask.version)
    yield _ending(f"{name}-unknown", by, ask.version)


def _old_ends(ask: Ask) -> Talk:
    name = ask.topic
    by = yield from _held(name)
    yield _adding(name, by, ask.topic, 0, 1)
    yield _ending(name, by, ask.version)
    yield _until_complete(name)
    yield _ending(name, by, ask.version)
    yield _ending(name, by, ask.version, is_commit=False)


def _adds(ask: Ask) -> Talk:
    name = ask.topic
    by = yield from _held(name)
    yield _adding(name, by, ask.topic, 0, 7, version=ask.version)
    yield _adding(name, by, "__consumer_offsets", 0, version=ask.version)
    for one in _wrong(by):
        yield _adding(name, one, ask.topic, 0, version=ask.version)
    yield _adding("", by, ask.topic, 0, version=ask.version)
    yield _adding(name, by, ask.topic, 0, 1, version=ask.version)
    yield _adding(name, by, ask.topic, 1, version=ask.version)


def _writes(ask: Ask) -> Talk:
    name = ask.topic
    by = yield from _held(name)
    yield _adding(name, by, ask.topic, 0)
    for index, one in ((0, by), (1, by), *((0, wrong) for wrong in _wrong(by)[:2])):
        batch = produced(
            b"v",
            producer_id=one["producer_id"],
            producer_epoch=one["producer_epoch"],
            transactional=True,
        )
        data = [{"index": index, "records": batch}]
        topic = {"name": ask.topic, "topic_id": ask.topic_id, "partition_data": data}
        fields = {"transactional_id": name, "acks": -1, "timeout": 10_000, "topic_data": [topic]}
        yield Send(PRODUCE, ask.version, fields)
    yield _ending(name, by, 4, is_commit=False)


def _offsets(ask: Ask) -> Talk:
    name = ask.topic
    by = yield from _held(name)
    partition = {
        "partition_index": 0,
        "committed_offset": 5,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    fields = {
        "transactional_id": name,
        "group_id": _GROUP,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": ask.topic, "partitions": [partition]}],
    }
    group = {"key_type": 0, "coordinator_keys": [_GROUP]}
    yield Send(
        FIND_COORDINATOR,
        4,
        group,
        until=lambda answer: _is_well(answer["coordinators"][0]),
        is_recorded=False,
    )
    added = {"transactional_id": name, **by, "group_id": _GROUP}
    for one in _wrong(by):
        yield Send(ADD_OFFSETS_TO_TXN, min(ask.version, 4), {**added, **one})
    yield Send(ADD_OFFSETS_TO_TXN, min(ask.version, 4), added, until=_is_well)
    for one in (by, *_wrong(by)[:2]):
        yield Send(TXN_OFFSET_COMMIT, ask.version, {**fields, **one})
    yield Send(TXN_OFFSET_COMMIT, ask.version, {**fields, **by, "generation_id": 3})
    yield _ending(name, by, 4)


def _patterns(ask: Ask) -> Talk:
    asked = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    # What fits would be told with producer ids, and these differ.
    for pattern in ("nobody-.*-has-it", "[x-z]{3,}\\d+no", "(", "[a", "a**", "*a", "(?=a)", "\\"):
        yield Send(LIST_TRANSACTIONS, ask.version, {**asked, "transactional_id_pattern": pattern})


TRANSACTION_CASES: Final[tuple[Case, ...]] = (
    many("of strangers", END_TXN, _strangers_end, topic=_HERE),
    many("twice, by an old client", END_TXN, _old_ends, versions=range(5), topic=_HERE),
    many("right and wrong", ADD_PARTITIONS_TO_TXN, _adds, versions=range(4), topic=_HERE),
    many("in a transaction", PRODUCE, _writes, versions=(9, 10, 11), topic=_HERE),
    many("right and wrong", TXN_OFFSET_COMMIT, _offsets, topic=_HERE),
    many("by a pattern", LIST_TRANSACTIONS, _patterns, versions=(2,)),
)
