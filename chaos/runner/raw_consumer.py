"""A consumer that speaks the protocol itself, with partitions of its own and no group.

A member of a group reads with one too (`raw_member.py`), which is told what to hold.

A poll asks one leader for all partitions that it leads, the leaders by turns. Now and then the
consumer goes back to records that it has read, which must be the same whoever leads by then.

Not here: who leads (`book.py`), whether what it was shown makes sense (`checkers/`).

C1  a poll that did not end well does not move a position
C2  going back, or having to, is an operation `assign` of its own
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.chaos.history import Kind, Place, Shown
from ottla.chaos.payload import decode_payload
from ottla.chaos.runner.book import Compass, LeaderBook
from ottla.chaos.runner.lines import Lines
from ottla.chaos.runner.pace import Pace
from ottla.chaos.runner.raw_producer import NOT_SENT
from ottla.chaos.runner.recorder import ASSIGN, POLL, Recorder
from ottla.chaos.runner.requests import (
    FETCH_BY_NAME,
    Seen,
    end_of_batches,
    fetch_fields,
    records_in,
)
from ottla.chaos.workload import ProcessPlan, rewinds
from ottla.clients.connection import error_code_of
from ottla.clients.errors import NotSentError, OutcomeUnknownError
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import FETCH
from ottla.proto.kafka.message import Message

_ANSWER_S: Final = 3.0
_WAIT_MS: Final = 50


class RawConsumer:
    """One process, from `live` until somebody says that it is over."""

    def __init__(
        self,
        plan: ProcessPlan,
        addresses: Mapping[int, str],
        book: LeaderBook,
        recorder: Recorder,
        is_over: Callable[[], bool],
    ) -> None:
        self._plan: Final = plan
        self._lines: Final = Lines(addresses, plan.name)
        self._compass: Final = Compass(book, self._lines, is_stubborn=plan.is_stubborn)
        self._recorder: Final = recorder
        self._is_over: Final = is_over
        self._positions = dict.fromkeys(plan.places, 0)
        self._starts: Final = dict.fromkeys(plan.places, 0)
        # Of a member: what it was given, and has been shown nothing of since.
        self._new: Final = set[Place]()
        self._turn = 0

    async def live(self) -> None:
        pace, going_back = Pace(self._plan.per_s), rewinds(self._plan)
        try:
            for place in self._positions:
                self._assign(place, 0)
            while not self._is_over():
                await pace.due()
                self._maybe_go_back(next(going_back))
                await self.poll()
        finally:
            await self.close()

    async def close(self) -> None:
        await self._lines.close()

    @property
    def positions(self) -> Mapping[Place, int]:
        return self._positions

    def hold(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these from now on, each from there: a group says so."""
        self._positions = dict(positions)
        self._starts.update({place: 0 for place in positions if place not in self._starts})
        self._new.clear()
        self._new.update(positions)

    def _assign(self, place: Place, offset: int) -> None:
        index = self._recorder.begin(self._plan.name, ASSIGN, place=place, offset=offset)
        self._positions[place] = offset
        self._recorder.end(index, Kind.OK)

    def _maybe_go_back(self, count: int) -> None:
        if count:
            place = self._plan.places[self._turn % len(self._plan.places)]
            back = max(self._starts[place], self._positions[place] - count)
            if back < self._positions[place]:
                self._assign(place, back)

    # -- one poll --------------------------------------------------------------------------------

    def _next_leader(self) -> tuple[int, dict[Place, Seen]] | None:
        """Return whose turn it is, and which of our partitions it leads."""
        led = dict[int, dict[Place, Seen]]()
        for place in self._positions:
            seen = self._compass.leader(place)
            if seen is not None:
                led.setdefault(seen.leader, {})[place] = seen
        if not led:
            return None
        self._turn += 1
        node = sorted(led)[self._turn % len(led)]
        return node, led[node]

    async def poll(self) -> None:
        chosen = self._next_leader()
        if chosen is None:
            return
        node, places = chosen
        index = self._recorder.begin(self._plan.name, POLL, node=node)
        fields = fetch_fields(
            {place: self._positions[place] for place in places}, max_wait_ms=_WAIT_MS
        )
        try:
            line = await self._lines.to(node)
            answer = await line.call(FETCH, fields, FETCH_BY_NAME, timeout_s=_ANSWER_S)
        except NotSentError:
            self._recorder.end(index, Kind.FAIL, error=NOT_SENT)
        except OutcomeUnknownError as error:
            told = type(error).__name__.removesuffix("Error")
            self._recorder.end(index, Kind.UNKNOWN, error=told)
        else:
            await self._take(index, places, answer)
            return
        self._lines.cut(node)
        for place, seen in places.items():
            await self._compass.lost(place, seen)

    async def _take(self, index: int, places: Mapping[Place, Seen], answer: Message) -> None:
        shown, errors = list[Shown](), dict[Place, ErrorCode]()
        for topic in answer.responses:
            for part in topic.partitions:
                place = Place(topic.topic, part.partition_index)
                if place not in places:
                    continue
                self._starts[place] = max(self._starts[place], part.log_start_offset)
                if part.error_code != ErrorCode.NONE:
                    errors[place] = error_code_of(part.error_code)
                    continue
                self._compass.works(place)
                shown += self._read(place, part.records or b"")
        kind = Kind.FAIL if errors and len(errors) == len(places) else Kind.OK
        told = "+".join(sorted({code.name for code in errors.values()})) or None
        moved = tuple(sorted(self._new.intersection(one.place for one in shown)))
        self._recorder.end(index, kind, shown=tuple(shown), error=told, rebalanced=moved)
        self._new.difference_update(moved)
        for place, code in errors.items():
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._assign(place, self._starts[place])
            else:
                await self._compass.lost(place, places[place])

    def _read(self, place: Place, data: bytes | memoryview) -> list[Shown]:
        """Return what is new, and move the position behind it."""
        position = self._positions[place]
        shown = [
            Shown(place, one.offset, decode_payload(place, one.payload), one.leader_epoch)
            for one in records_in(data)
            if one.offset >= position and not one.is_control
        ]
        end = end_of_batches(data)
        if end is not None:
            self._positions[place] = max(position, end)
        return shown
