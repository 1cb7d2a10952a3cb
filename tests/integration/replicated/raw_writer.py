"""A writer that speaks the protocol itself: acks=all, one write in flight, none sent twice.

It sends a record every 10 ms for as long as it lives. Like any client it follows what an answer
says of another leader (KIP-951), and asks for metadata when it has lost its leader. If an answer
does not come it asks the other nodes whether somebody else leads by now, and turns to that one;
what it was waiting for stays unknown.

Not here: what the outcomes mean (`history.py`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Final

from ottla.clients.errors import NotSentError, OutcomeUnknownError
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import PRODUCE
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record
from tests.integration.replicated.background import Background
from tests.integration.replicated.history import NOT_SENT, Attempt, Fate, History, fate_of
from tests.integration.replicated.wire import PRODUCE_VERSION, Lines, PartitionSeen, newer_leader

RAW: Final = "raw"
EVERY_S: Final = 0.01
# An answer later than this makes the writer ask who leads.
PATIENCE_S: Final = 0.2
ASK_S: Final = 0.25
_PAUSE_S: Final = 0.01


class RawWriter(Background):
    """Writes to one partition at a time; `move_to` another one takes effect with the next write."""

    def __init__(
        self,
        addresses: Mapping[int, str],
        place: TopicPartition,
        history: History,
        *,
        name: str = RAW,
        timeout_ms: int = 10_000,
    ) -> None:
        super().__init__()
        self.name: Final = name
        self._history: Final = history
        self._timeout_ms: Final = timeout_ms
        self._addresses: Final = addresses
        self._place = place
        self._moved: Final = threading.Lock()
        # By partition, the leader of the highest epoch that was heard of.
        self._known: Final = dict[TopicPartition, PartitionSeen]()
        # The leader that is known is not believed any more.
        self._is_lost = True
        self._next_s = 0.0

    def move_to(self, place: TopicPartition) -> None:
        with self._moved:
            self._place, self._is_lost = place, True

    async def _live(self) -> None:
        lines, asking = Lines(self._addresses), Lines(self._addresses)
        try:
            while not self.is_over:
                with self._moved:
                    place = self._place
                leader = await self._leader(asking, place)
                if leader is None:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                await self._pace()
                await self._write(lines, asking, place, leader)
        finally:
            await lines.close()
            await asking.close()

    async def _pace(self) -> None:
        now_s = time.monotonic()
        await asyncio.sleep(max(0.0, self._next_s - now_s))
        self._next_s = max(self._next_s, now_s) + EVERY_S

    # -- who leads -------------------------------------------------------------------------------

    async def _leader(self, asking: Lines, place: TopicPartition) -> PartitionSeen | None:
        known = self._known.get(place)
        if known is not None and not self._is_lost:
            return known
        epoch = -1 if known is None else known.epoch
        found = await newer_leader(asking, place, epoch, ASK_S)
        if found is not None:
            self._learn(place, found)
        return found

    def _learn(self, place: TopicPartition, seen: PartitionSeen) -> None:
        self._history.saw(place, seen.epoch, seen.leader)
        self._known[place], self._is_lost = seen, False

    # -- one write -------------------------------------------------------------------------------

    async def _write(
        self, lines: Lines, asking: Lines, place: TopicPartition, leader: PartitionSeen
    ) -> None:
        attempt = self._history.begin(self.name, place)
        try:
            line = await lines.to(leader.leader)
        except (NotSentError, OutcomeUnknownError):
            # Whatever broke was not the write: it had not been sent.
            self._history.refuse(attempt, Fate.FAILED, NOT_SENT)
            self._is_lost = True
            return
        fields = produce_fields(place, attempt.value, self._timeout_ms)
        deadline_s = self._timeout_ms / 1000 + 5
        call = asyncio.ensure_future(
            line.call(PRODUCE, fields, PRODUCE_VERSION, timeout_s=deadline_s)
        )
        try:
            await self._wait(call, asking, place, leader)
            self._take(attempt, place, leader, await call)
        except NotSentError:
            self._history.refuse(attempt, Fate.FAILED, NOT_SENT)
            self._is_lost = True
        except OutcomeUnknownError as error:
            self._history.refuse(attempt, Fate.UNKNOWN, type(error).__name__)
            self._is_lost = True
        finally:
            if not call.done() or self._is_lost:
                lines.cut(leader.leader)
            await asyncio.gather(call, return_exceptions=True)

    async def _wait(
        self,
        call: asyncio.Future[Message],
        asking: Lines,
        place: TopicPartition,
        leader: PartitionSeen,
    ) -> None:
        """Return when the answer is there; raise if another leader is there before it."""
        while not (await asyncio.wait([call], timeout=PATIENCE_S))[0]:
            found = await newer_leader(asking, place, leader.epoch, ASK_S, not_=leader.leader)
            if found is not None and not call.done():
                self._learn(place, found)
                raise _SupersededError(str(found.leader))

    def _take(
        self, attempt: Attempt, place: TopicPartition, leader: PartitionSeen, answer: Message
    ) -> None:
        (topic,) = answer.responses
        (result,) = topic.partition_responses
        fate = fate_of(result.error_code)
        if fate is Fate.OK and result.base_offset >= 0:
            self._history.acknowledge(attempt, result.base_offset, leader.leader)
            return
        fate = Fate.UNKNOWN if fate is Fate.OK else fate
        self._history.refuse(attempt, fate, ErrorCode(result.error_code).name)
        hint = result.get("current_leader")
        if hint is not None and hint.leader_epoch > leader.epoch and hint.leader_id >= 0:
            self._learn(place, PartitionSeen(hint.leader_id, hint.leader_epoch, (), ()))
        elif result.error_code != ErrorCode.NOT_ENOUGH_REPLICAS:
            self._is_lost = True


class _SupersededError(OutcomeUnknownError):
    """Another node leads by now, and the old leader has not answered."""


def produce_fields(
    place: TopicPartition, value: bytes, timeout_ms: int, acks: int = -1
) -> dict[str, object]:
    now_ms = int(time.time() * 1000)
    batch = build_batch([Record(0, now_ms, None, value, ())])
    data = [{"index": place.partition, "records": batch}]
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": timeout_ms,
        "topic_data": [{"name": place.topic, "topic_id": ZERO_UUID, "partition_data": data}],
    }
