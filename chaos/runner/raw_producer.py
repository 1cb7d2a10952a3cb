"""A producer that speaks the protocol itself: one write in flight, none sent twice.

Like any client it follows what an answer says of another leader, and looks up who leads when it has
lost its own. A write whose leader was replaced is given up soon after, unless the producer is
stubborn: then it waits as long as a patient client would. Either way it stays unknown.

Not here: who leads (`book.py`), what an error means (`outcomes.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.chaos.clock import wall_ms
from ottla.chaos.history import Kind, Place
from ottla.chaos.outcomes import is_kept, outcome_of
from ottla.chaos.payload import encode_payload, key_of
from ottla.chaos.runner.book import Compass, LeaderBook
from ottla.chaos.runner.lines import Lines
from ottla.chaos.runner.pace import Pace
from ottla.chaos.runner.recorder import SEND, Recorder
from ottla.chaos.runner.requests import PRODUCE_BY_NAME, Seen, produce_fields, produce_result
from ottla.chaos.workload import ProcessPlan, SendDraw, sends
from ottla.clients.connection import Connection, error_code_of
from ottla.clients.errors import NotSentError, OutcomeUnknownError
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import PRODUCE
from ottla.proto.kafka.message import Message

# The timing profile of the harness: requests have five seconds.
REQUEST_MS: Final = 5_000
ANSWER_S: Final = 6.0
# How long an answer of a leader that was replaced is still waited for.
_GRACE_S: Final = 0.25
_PAUSE_S: Final = 0.02
NOT_SENT: Final = "NOT_SENT"


class RawProducer:
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
        self._counter = 0
        # The write that waits for its answer: its index, and where it was sent.
        self._waiting: tuple[int, Place, Seen] | None = None
        if not plan.is_stubborn:
            book.listen(self._hear)

    async def live(self) -> None:
        pace, draws = Pace(self._plan.per_s), sends(self._plan)
        try:
            while not self._is_over():
                await pace.due()
                draw = next(draws)
                leader = self._compass.leader(draw.place)
                if leader is not None:
                    await self._write(draw, leader)
        finally:
            await self._lines.close()

    # -- one write -------------------------------------------------------------------------------

    async def _write(self, draw: SendDraw, leader: Seen) -> None:
        self._counter += 1
        place, acks, value = draw.place, draw.acks, f"{self._plan.name}-{self._counter}"
        index = self._recorder.begin(
            self._plan.name,
            SEND,
            place=place,
            value=value,
            acks=acks,
            node=leader.leader,
            is_tombstone=draw.is_tombstone,
        )
        was_sent = False
        try:
            line = await self._lines.to(leader.leader)
            was_sent = True
            answer = await self._ask(line, index, draw, value, leader)
        except NotSentError:
            self._recorder.end(index, outcome_of(None, False, acks), error=NOT_SENT)
        except OutcomeUnknownError as error:
            # If it was the first question on a new connection, the write was never sent.
            told = type(error).__name__.removesuffix("Error") if was_sent else NOT_SENT
            self._recorder.end(index, outcome_of(None, was_sent, acks), error=told)
        else:
            await self._take(index, draw, leader, answer)
            return
        self._lines.cut(leader.leader)
        await self._compass.lost(place, leader)

    async def _ask(
        self, line: Connection, index: int, draw: SendDraw, value: str, leader: Seen
    ) -> Message | None:
        fields = self._fields(draw, value)
        if draw.acks == 0:
            await line.send(PRODUCE, fields, PRODUCE_BY_NAME)
            return None
        self._waiting = (index, draw.place, leader)
        try:
            return await line.call(PRODUCE, fields, PRODUCE_BY_NAME, timeout_s=ANSWER_S)
        finally:
            self._waiting = None

    def _fields(self, draw: SendDraw, value: str) -> dict[str, Any]:
        return produce_fields(
            draw.place,
            encode_payload(draw.place, value),
            key=key_of(value).encode() if self._plan.is_keyed else None,
            acks=draw.acks,
            timeout_ms=REQUEST_MS,
            now_ms=wall_ms(),
            is_tombstone=draw.is_tombstone,
        )

    def _hear(self, place: Place, seen: Seen) -> None:
        waiting = self._waiting
        if waiting is not None and waiting[1] == place and seen.leader != waiting[2].leader:
            asyncio.get_running_loop().call_later(_GRACE_S, self._give_up, waiting)

    def _give_up(self, waiting: tuple[int, Place, Seen]) -> None:
        if self._waiting is waiting:
            self._lines.cut(waiting[2].leader)

    # -- what came back --------------------------------------------------------------------------

    async def _take(self, index: int, draw: SendDraw, leader: Seen, answer: Message | None) -> None:
        if answer is None:
            self._recorder.end(index, outcome_of(None, True, draw.acks))
            return
        result = produce_result(answer)
        code = None if result is None else result.code
        offset = -1 if result is None else result.offset
        kind = outcome_of(code, True, draw.acks, offset=offset)
        self._recorder.end(
            index,
            kind,
            offset=offset if kind is Kind.OK else None,
            error=told_code(code),
            is_kept=is_kept(code),
        )
        if code == ErrorCode.NONE:
            self._compass.works(draw.place)
        elif code not in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT):
            await self._turn(draw.place, leader, None if result is None else result.hint)

    async def _turn(self, place: Place, leader: Seen, hint: Seen | None) -> None:
        if hint is not None and hint.epoch > leader.epoch:
            self._compass.hint(place, hint)
            return
        await self._compass.lost(place, leader)
        await asyncio.sleep(_PAUSE_S)


def told_code(code: int | None) -> str | None:
    """Return what an answer said: nothing if all is well, and that it said nothing of ours."""
    if code is None:
        return "BrokenAnswer"
    return None if code == ErrorCode.NONE else error_code_of(code).name
