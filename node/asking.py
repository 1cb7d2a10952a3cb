"""Having something committed by the active controller, whoever that is by the time it happens.

The bytes of a proposal are made once, under the next number of this broker's session. They are sent
to whoever is believed to be active, and the same bytes again to whoever is active next, until there
is an answer or the time is up: the session makes sure that they are obeyed once (rule 68).

Not here: what is proposed (`cluster.py`), and following the metadata (`following.py`).

N1  one session has one counter: a registration that gives the same epoch again goes on with it,
    and no earlier one is ever taken up again
N2  the numbers that are under way lie within a span below the window that the quorum remembers, so
    an answer is never forgotten while somebody waits for it
N3  what may have happened is never called undone: REQUEST_TIMED_OUT says "unknown", and
    NOT_CONTROLLER says "nothing was done"
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from ottla.controller.commands import Command
from ottla.controller.door import (
    Denied,
    Door,
    DoorClosedError,
    NotActive,
    QuorumView,
    Unresolved,
)
from ottla.controller.office import Requests
from ottla.controller.outcome import Outcome
from ottla.controller.proposal import encode_proposal
from ottla.controller.replay import WINDOW
from ottla.controller.seeking import PAUSE_MS, Seeking
from ottla.node.clock import Clock
from ottla.proto.errors import ErrorCode, RequestError, ensure
from ottla.proto.ids import BrokerId

T = TypeVar("T")

# Between the oldest and the newest number that is under way.
SPAN_MAX: Final = 200
# A controller that is silent for so long is asked again, or another one is.
_ATTEMPT_MS: Final = 2500


class Session:
    """The numbers of one life of this broker, and which of them wait for an answer."""

    __slots__ = ("_last", "_moved", "_under_way", "epoch", "is_over", "requests")

    def __init__(self, node_id: BrokerId, epoch: int) -> None:
        self.epoch: Final = epoch
        self.requests: Final = Requests(node_id, epoch)
        # Another life has begun: nothing of this one will be obeyed any more.
        self.is_over = False
        self._last = -1
        # In the order in which the numbers were given.
        self._under_way: dict[int, None] = {}
        self._moved = asyncio.Event()

    @property
    def has_room(self) -> bool:
        oldest = next(iter(self._under_way), self._last + 1)
        return self._last + 1 - oldest < SPAN_MAX

    async def moved(self) -> None:
        """Wait until a number is answered, or the session is over."""
        await self._moved.wait()

    def number(self, command: Command) -> tuple[int, bytes]:
        """Return the next number, which is under way now, and the bytes to send."""
        ensure(self.has_room, "the window is wide enough")
        proposal = self.requests.proposal(command)
        data = encode_proposal(proposal)
        self._last = proposal.request.sequence
        self._under_way[self._last] = None
        return self._last, data

    def settle(self, number: int) -> None:
        del self._under_way[number]
        self._wake()

    def end(self) -> None:
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class Asking:
    """Asks the active controller, over the doors of all of them."""

    def __init__(
        self, node_id: BrokerId, doors: Mapping[int, Door], clock: Clock, *, timeout_ms: int
    ) -> None:
        ensure(SPAN_MAX < WINDOW, "what is under way is remembered")
        self.timeout_ms: Final = timeout_ms
        # Who is active, as far as somebody said.
        self.believed: int | None = None
        self._node_id: Final = node_id
        self._doors: Final = doors
        self._clock: Final = clock
        self._session: Session | None = None
        self._begun = asyncio.Event()

    def deadline(self, at_most_ms: int | None = None) -> int:
        """Return until when something that is asked now has time."""
        timeout_ms = self.timeout_ms if at_most_ms is None else min(at_most_ms, self.timeout_ms)
        return self._clock.monotonic_ms() + timeout_ms

    def left_s(self, deadline_ms: int) -> float:
        return max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000

    def begin_session(self, epoch: int) -> None:
        """Number from now on for this life of the broker; for the same one, go on (N1)."""
        before = self._session
        if before is not None:
            if epoch <= before.epoch:
                # Also an older one, from a controller that was deposed: numbers never begin again.
                return
            before.end()
        self._session = Session(self._node_id, epoch)
        self._begun.set()

    async def commit(self, command: Command, *, client: str, deadline_ms: int) -> Outcome:
        """Return what came of the command. Raises `RequestError` if that is not known (N3)."""
        session = await self._room(deadline_ms)
        number, data = session.number(command)
        try:
            outcome = await self._ask(
                lambda door: door.propose(data, client=client),
                deadline_ms,
                is_over=lambda: session.is_over,
            )
        finally:
            session.settle(number)
        if outcome.is_unknown:
            sentence = "" if outcome.refusal is None else outcome.refusal.sentence
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, sentence)
        return outcome

    async def read_version(self, deadline_ms: int) -> int:
        """Return a version that holds all that was committed before the call."""
        return await self._look(lambda door: door.read_version(), deadline_ms)

    async def describe_quorum(self, deadline_ms: int) -> QuorumView:
        return await self._look(lambda door: door.describe_quorum(), deadline_ms)

    async def _look(
        self, question: Callable[[Door], Awaitable[T | NotActive]], deadline_ms: int
    ) -> T:
        try:
            return await self._ask(question, deadline_ms)
        except RequestError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            # Whoever only looks has done nothing, whatever became of the question.
            raise _nobody_active() from None

    async def _room(self, deadline_ms: int) -> Session:
        """Return the session once it has a number to give."""
        try:
            async with asyncio.timeout(self.left_s(deadline_ms)):
                await self._begun.wait()
                while self._session is not None and not self._session.has_room:
                    await self._session.moved()
        except TimeoutError:
            why = "too much is under way" if self._session else "it is not registered"
            raise RequestError(
                ErrorCode.NOT_CONTROLLER,
                f"This broker cannot ask a controller now: {why}. Nothing was done; try again.",
            ) from None
        session = self._session
        assert session is not None
        return session

    async def _ask(
        self,
        question: Callable[[Door], Awaitable[T | NotActive | Denied | Unresolved]],
        deadline_ms: int,
        *,
        is_over: Callable[[], bool] = lambda: False,
    ) -> T:
        seeking = Seeking(tuple(self._doors), believed=self.believed)
        is_in_doubt = False
        while (left_s := self.left_s(deadline_ms)) > 0:
            if is_over() and is_in_doubt:
                raise _in_doubt("This broker has registered anew meanwhile.")
            node_id = seeking.next()
            if node_id is None:
                await asyncio.sleep(min(PAUSE_MS / 1000, left_s))
                seeking.begin_round()
                seeking.was_named(self.believed)
                continue
            try:
                async with asyncio.timeout(min(left_s, _ATTEMPT_MS / 1000)):
                    answer = await question(self._doors[node_id])
            except (DoorClosedError, TimeoutError):
                is_in_doubt = True
                seeking.was_silent(node_id)
                self._disbelieve(node_id)
                continue
            if isinstance(answer, NotActive):
                seeking.was_named(answer.leader)
                self._disbelieve(node_id)
                continue
            self.believed = node_id
            if isinstance(answer, Unresolved):
                is_in_doubt = True
                continue
            if isinstance(answer, Denied):
                # This time. An earlier attempt may have gone through.
                raise _denied(answer, is_in_doubt=is_in_doubt)
            return answer
        if is_in_doubt:
            raise _in_doubt(f"No controller answered within {self.timeout_ms} ms.")
        raise _nobody_active()

    def _disbelieve(self, node_id: int) -> None:
        if self.believed == node_id:
            self.believed = None


def _denied(answer: Denied, *, is_in_doubt: bool) -> RequestError:
    return _in_doubt(answer.sentence) if is_in_doubt else RequestError(answer.code, answer.sentence)


def _in_doubt(why: str) -> RequestError:
    sentence = f"{why} What was asked may or may not have happened."
    return RequestError(ErrorCode.REQUEST_TIMED_OUT, sentence)


def _nobody_active() -> RequestError:
    sentence = "No controller is active at the moment. Nothing was done; try again."
    return RequestError(ErrorCode.NOT_CONTROLLER, sentence)
