"""Where logs begin, end, and were at a time; and cutting their beginning off.

Partitions are asked of their leaders, several leaders at once; what a leader refuses because it is
none any more is asked again.

Not here: offsets that groups committed (`groups.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.clients.admin.answers import OffsetInfo
from ottla.clients.admin.asking import Asker, refusal_of, retry_on
from ottla.clients.errors import NoTopicError
from ottla.clients.retrying import is_transient
from ottla.proto.errors import ConfigError, ErrorCode, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import DELETE_RECORDS, LIST_OFFSETS
from ottla.proto.kafka.message import Message

_PLACES: Final = {"earliest": -2, "latest": -1, "max_timestamp": -3}


class Offsets:
    """Questions about the offsets of partitions."""

    def __init__(self, asker: Asker) -> None:
        self._asker: Final = asker

    async def at(
        self, wanted: Mapping[TopicPartition, int | str]
    ) -> dict[TopicPartition, OffsetInfo | RequestError]:
        times = {one: _time_of(place) for one, place in wanted.items()}
        answers = await asyncio.gather(*(self._at(one, times[one]) for one in times))
        return dict(zip(times, answers, strict=True))

    async def _at(self, partition: TopicPartition, time_ms: int) -> OffsetInfo | RequestError:
        async def once() -> OffsetInfo | RequestError:
            leader = await self._asker.leader(partition)
            fields = {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [
                    {
                        "name": partition.topic,
                        "partitions": [
                            {
                                "partition_index": partition.partition,
                                "current_leader_epoch": -1,
                                "timestamp": time_ms,
                            }
                        ],
                    }
                ],
                "timeout": self._asker.request_timeout_ms,
            }
            answer = await self._asker.cluster.call(leader, LIST_OFFSETS, fields)
            told = _only(answer.topics)
            retry_on(told.error_code)
            refusal = refusal_of(told)
            return refusal or OffsetInfo(told.offset, told.timestamp, told.get("leader_epoch", -1))

        found: OffsetInfo | RequestError = await self._answer_of(once)
        return found

    async def delete_before(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | RequestError]:
        answers = await asyncio.gather(
            *(self._delete(one, offset) for one, offset in before.items())
        )
        return dict(zip(before, answers, strict=True))

    async def _delete(self, partition: TopicPartition, offset: int) -> int | RequestError:
        async def once() -> int | RequestError:
            leader = await self._asker.leader(partition)
            wanted = [{"partition_index": partition.partition, "offset": offset}]
            fields = {
                "topics": [{"name": partition.topic, "partitions": wanted}],
                "timeout": self._asker.request_timeout_ms,
            }
            answer = await self._asker.cluster.call(leader, DELETE_RECORDS, fields)
            told = _only(answer.topics)
            # To cut at the same offset twice is the same as once.
            retry_on(told.error_code)
            refusal = refusal_of(told)
            return refusal or int(told.low_watermark)

        start: int | RequestError = await self._answer_of(once)
        return start

    async def _answer_of(self, once: Any) -> Any:
        try:
            return await self._asker.patiently(once, is_transient)
        except RequestError as error:
            return error
        except NoTopicError as error:
            return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error))


def _time_of(place: int | str) -> int:
    if isinstance(place, int):
        return place
    if place not in _PLACES:
        raise ConfigError(f"{place!r} is no place in a log: {', '.join(_PLACES)} or a time in ms.")
    return _PLACES[place]


def _only(topics: Sequence[Message]) -> Message:
    (topic,) = topics
    (part,) = topic.partitions
    found: Message = part
    return found
