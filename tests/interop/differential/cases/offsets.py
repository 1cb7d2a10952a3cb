"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ottla.proto.kafka.apis import DELETE_RECORDS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from tests.builders import NOW_MS
from tests.interop.differential.case import Ask, Case, NewTopic, Send, Talk, many, one
from tests.interop.differential.cases.fetch import partition as fetch_partition
from tests.interop.differential.cases.fetch import request as fetch_request
from tests.interop.differential.messages import Fields
from tests.interop.differential.stage import EMPTY, FILLED, TRIMMED

SOME: Final = (1, 4, 7, 11)
OWN: Final = NewTopic(batches=4)


def _at(timestamp: int, index: int = 0, **changes: Any) -> dict[str, Any]:
    told = {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
    return {**told, **changes}


def _list_request(topic: str, *partitions: dict[str, Any], **changes: Any) -> Fields:
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout": 1000,
        "topics": [{"name": topic, "partitions": list(partitions)}],
        **changes,
    }


def _list(
    name: str,
    *partitions: dict[str, Any],
    topic: str = FILLED,
    versions: Iterable[int] | None = SOME,
    **changes: Any,
) -> Case:
    fields = _list_request(topic, *partitions, **changes)
    return one(name, LIST_OFFSETS, lambda _: fields, versions=versions)


_SPECIAL: Final = (-1, -2, -3, -4, -5, -6, -7, -(2**63))
_TIMES: Final = {
    "0": 0,
    "of the first record": NOW_MS,
    "of a record in the middle": NOW_MS + 2001,
    "between two batches": NOW_MS + 1500,
    "of the last record": NOW_MS + 3002,
    "after the last record": NOW_MS + 3003,
    "9223372036854775807": 2**63 - 1,
}

_LIST_OFFSETS: Final = (
    *(_list(f"timestamp {special}", _at(special), versions=None) for special in _SPECIAL),
    *(_list(f"time {word}", _at(time_ms)) for word, time_ms in _TIMES.items()),
    *(
        _list(f"timestamp {t} of an empty log", _at(t), topic=EMPTY, versions=(1, 11))
        for t in (-1, -2, -3, 0)
    ),
    *(
        _list(f"timestamp {t} of a trimmed log", _at(t), topic=TRIMMED, versions=(1, 11))
        for t in (-1, -2, -3, 0)
    ),
    _list("times in a trimmed log", _at(NOW_MS + 1000), topic=TRIMMED),
    _list("two partitions", _at(-1), _at(-2, 1)),
    _list("a partition twice", _at(-1), _at(-2)),
    _list("an unknown topic", _at(-1), topic="missing"),
    _list("a name that cannot be", _at(-1), topic="../../etc/x"),
    *(_list(f"partition {index}", _at(-1, index)) for index in (2, -1, 2**31 - 1)),
    *(
        _list(
            f"current leader epoch {epoch}", _at(-1, current_leader_epoch=epoch), versions=(4, 11)
        )
        for epoch in (0, 1, 2**31 - 1, -2)
    ),
    *(_list(f"replica id {replica}", _at(-1), replica_id=replica) for replica in (0, 1, 99, -2)),
    *(
        _list(f"isolation level {level}", _at(-1), isolation_level=level, versions=(2, 11))
        for level in (1, 2, -1)
    ),
    one("no topics", LIST_OFFSETS, lambda _: {**_list_request(FILLED), "topics": []}),
    _list("no partitions in a topic"),
    _list("3000 partitions", *(_at(-1, index) for index in range(3000)), versions=(1, 11)),
)


def _epoch(
    name: str,
    leader_epoch: int,
    *,
    topic: str = FILLED,
    index: int = 0,
    current: int = -1,
    replica_id: int = -1,
) -> Case:
    told = {"partition": index, "current_leader_epoch": current, "leader_epoch": leader_epoch}
    fields = {"replica_id": replica_id, "topics": [{"topic": topic, "partitions": [told]}]}
    return one(name, OFFSET_FOR_LEADER_EPOCH, lambda _: fields)


_EPOCHS: Final = (
    *(_epoch(f"epoch {epoch}", epoch) for epoch in (0, -1, 1, 2**31 - 1, -2)),
    *(_epoch(f"epoch {epoch} of an empty log", epoch, topic=EMPTY) for epoch in (0, -1, 1)),
    _epoch("epoch 0 of a trimmed log", 0, topic=TRIMMED),
    *(_epoch(f"current epoch {epoch}", 0, current=epoch) for epoch in (0, 1, 2**31 - 1, -2)),
    *(_epoch(f"partition {index}", 0, index=index) for index in (2, -1, 2**31 - 1)),
    _epoch("an unknown topic", 0, topic="missing"),
    *(_epoch(f"replica id {replica}", 0, replica_id=replica) for replica in (0, 1, 99, -2)),
)


def _delete_request(topic: str, *partitions: tuple[int, int], timeout: int = 5000) -> Fields:
    told = [{"partition_index": index, "offset": offset} for index, offset in partitions]
    return {"timeout": timeout, "topics": [{"name": topic, "partitions": told}]}


def _delete(name: str, *partitions: tuple[int, int], timeout: int = 5000) -> Case:
    return one(
        name,
        DELETE_RECORDS,
        lambda ask: _delete_request(ask.topic, *partitions, timeout=timeout),
        topic=OWN,
    )


def _delete_and_look(ask: Ask) -> Talk:
    """Delete in steps, also backwards, then ask what is left."""
    for offset in (2, 1, 7):
        yield Send(DELETE_RECORDS, ask.version, _delete_request(ask.topic, (0, offset)))
    yield Send(LIST_OFFSETS, 7, _list_request(ask.topic, _at(-2)))
    for offset in (6, 7):
        asked = fetch_request(fetch_partition(fetch_offset=offset), topic=ask.topic)
        yield Send(FETCH, 11, asked(ask))


_DELETE: Final = (
    many("in steps, and what is left", DELETE_RECORDS, _delete_and_look, topic=OWN),
    one(
        "of a compacted topic",
        DELETE_RECORDS,
        lambda ask: _delete_request(ask.topic, (0, 0)),
        topic=NewTopic(settings={"cleanup.policy": "compact"}),
    ),
    one(
        "of a compacted topic that also deletes",
        DELETE_RECORDS,
        lambda ask: _delete_request(ask.topic, (0, 0)),
        topic=NewTopic(settings={"cleanup.policy": "compact,delete"}),
    ),
    _delete("all, by -1", (0, -1)),
    _delete("to the end", (0, 12)),
    _delete("nothing", (0, 0)),
    _delete("beyond the end", (0, 13)),
    _delete("offset 9223372036854775807", (0, 2**63 - 1)),
    _delete("offset -2", (0, -2)),
    *(_delete(f"partition {index}", (index, 0)) for index in (1, -1, 2**31 - 1)),
    _delete("a known and an unknown partition", (0, 1), (5, 1)),
    _delete("a partition twice", (0, 1), (0, 2)),
    _delete("no partitions"),
    _delete("timeout 0", (0, 3), timeout=0),
    _delete("timeout -1", (0, 3), timeout=-1),
    one("an unknown topic", DELETE_RECORDS, lambda _: _delete_request("missing", (0, 0))),
    one("a name that cannot be", DELETE_RECORDS, lambda _: _delete_request("../x", (0, 0))),
    one("no topics", DELETE_RECORDS, lambda _: {"timeout": 1000, "topics": []}),
)

OFFSET_CASES: Final[tuple[Case, ...]] = (*_LIST_OFFSETS, *_EPOCHS, *_DELETE)
