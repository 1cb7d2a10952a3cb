"""Reads along while others write, and remembers all that it was ever shown.

What a reader has seen stays where it was (rule 60), whoever led at that time.

Not here: the comparison (`judge.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import FETCH
from tests.integration.replicated.background import Background
from tests.integration.replicated.reader import fetch_fields, records_in
from tests.integration.replicated.wire import FETCH_VERSION, Lines, newer_leader

_EVERY_S: Final = 0.1
_ASK_S: Final = 0.5
_ANSWER_S: Final = 1.0


class LiveReader(Background):
    """Looks at each partition in turn, behind what it has seen."""

    def __init__(self, addresses: Mapping[int, str], places: Iterable[TopicPartition]) -> None:
        super().__init__()
        self._addresses: Final = addresses
        # By offset; each was shown once, as the reader only goes forward.
        self.seen: Final = {place: dict[int, bytes]() for place in places}
        self._next: Final = dict.fromkeys(self.seen, 0)
        self._leaders: Final = dict[TopicPartition, int]()

    async def _live(self) -> None:
        lines = Lines(self._addresses)
        try:
            while not self.is_over:
                for place in self.seen:
                    try:
                        await self._look_at(lines, place)
                    except OttlaError:
                        lines.cut(self._leaders.pop(place))
                await asyncio.sleep(_EVERY_S)
        finally:
            await lines.close()

    async def _look_at(self, lines: Lines, place: TopicPartition) -> None:
        if place not in self._leaders:
            found = await newer_leader(lines, place, -1, _ASK_S)
            if found is None:
                return
            self._leaders[place] = found.leader
        line = await lines.to(self._leaders[place])
        fields = fetch_fields(place, self._next[place], max_wait_ms=0)
        answer = await line.call(FETCH, fields, FETCH_VERSION, timeout_s=_ANSWER_S)
        (topic,) = answer.responses
        (part,) = topic.partitions
        if part.error_code != ErrorCode.NONE:
            del self._leaders[place]
            return
        for offset, value, _ in records_in(part.records or b""):
            if offset >= self._next[place]:
                self.seen[place][offset] = value
                self._next[place] = offset + 1
