"""A member in a real process: a thread that ticks it, and doors for everybody else.

The member belongs to that thread alone. Whoever wants something leaves it at the door and the
thread does it before its next tick, which follows at once. Answers go back to the event loop of
whoever asked, in one place (`_asked`).

The state machine is applied in that thread too. What it wants to tell an event loop it must carry
over itself.

Not here: sockets. A transport calls `deliver`, `opened` and `closed`.

U1  the door holds a bounded number of things; what does not fit is refused, never waited for
U2  every call is answered, also when the member halts or is stopped
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final

from ottla.controller.quorum.member import QuorumMember
from ottla.controller.quorum.messages import Envelope
from ottla.controller.quorum.port import Done, Outcome, QuorumStatus, Refused, Unknown, Why
from ottla.controller.quorum.transport import Drop

# How soon after each other ticks follow while something is due, and while nothing is: a thread that
# runs a hundred times a second for nothing takes that time from the event loop beside it.
TICK_S: Final = 0.01
IDLE_TICK_S: Final = 0.05
DOOR_MAX: Final = 10_000
STOP_S: Final = 5.0
ADMISSION_MS: Final = 10_000

# Told with each status that differs from the one before in more than its indexes.
Watcher = Callable[[QuorumStatus], None]


class RunningMember:
    """One member and its thread."""

    def __init__(self, member: QuorumMember, watcher: Watcher | None = None) -> None:
        self._member = member
        self._watcher = watcher
        self._status = member.status()
        self._door: deque[Callable[[], None]] = deque()
        # Calls at the door, so that they are answered though nobody comes to take them.
        self._unanswered: set[_Asked] = set()
        self._guard = Lock()
        self._is_open = False
        self._wake = Event()
        self._thread = Thread(target=self._run, name=f"quorum-{member.node_id}", daemon=True)

    @property
    def node_id(self) -> int:
        return self._member.node_id

    @property
    def leader(self) -> int | None:
        return self._status.leader

    def status(self) -> QuorumStatus:
        """Return how it was after the last tick."""
        return self._status

    def drops(self) -> Mapping[Drop, int]:
        """Return how many messages of others were not believed, by reason."""
        return dict(self._member.drops)

    def start(self) -> None:
        self._is_open = True
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end. What was not answered is answered now."""
        self._shut()
        self._wake.set()
        # One that was never started has nothing to end.
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    async def propose(self, command: bytes, timeout_ms: int) -> Outcome:
        return await self._ask(lambda done: self._member.propose(command, timeout_ms, done))

    async def read(self, timeout_ms: int) -> Outcome:
        return await self._ask(lambda done: self._member.read(timeout_ms, done))

    def admit(self, voter: int, directory_id: str, done: Done | None = None) -> bool:
        """A voter joins with a new data directory. Only a leader does something about it.

        Whoever calls need not wait: as long as the voter says that it joins, call again. `done` is
        called in the member's thread. False if the door is full or shut; then nothing was done.
        """
        answer = done or (lambda _: None)
        return self._leave(lambda: self._member.admit(voter, directory_id, ADMISSION_MS, answer))

    # ── For a transport ───────────────────────────────────────────────────────────────────────

    def deliver(self, envelope: Envelope, *, verified_as: int | None = None) -> bool:
        """Take an envelope in. False if the door is full or shut: it is lost, and that is all."""

        def take() -> None:
            self._member.receive(envelope, verified_as=verified_as)

        return self._leave(take)

    def open_stream(self, peer: int, told: Callable[[str], None]) -> bool:
        """A way to `peer` is there; `told` is given the name of the new stream."""
        return self._leave(lambda: told(self._member.open_stream(peer)))

    def close_stream(self, peer: int) -> bool:
        return self._leave(lambda: self._member.close_stream(peer))

    def accept_stream(self, peer: int, stream: str) -> bool:
        def accept() -> None:
            self._member.accept_stream(peer, stream)

        return self._leave(accept)

    def process_is_gone(self, peer: int) -> bool:
        return self._leave(lambda: self._member.process_is_gone(peer))

    # ── The door ──────────────────────────────────────────────────────────────────────────────

    def _leave(self, work: Callable[[], None]) -> bool:
        with self._guard:
            if not self._is_open or len(self._door) >= DOOR_MAX:
                return False
            self._door.append(work)
        self._wake.set()
        return True

    async def _ask(self, begin: Callable[[Done], None]) -> Outcome:
        asked = _Asked(asyncio.get_running_loop())
        with self._guard:
            self._unanswered.add(asked)
        if not self._leave(lambda: begin(asked.answer)):
            asked.answer(Refused(Why.BUSY if self._is_open else Why.HALTED))
        try:
            return await asked.future
        finally:
            with self._guard:
                self._unanswered.discard(asked)

    def _shut(self) -> list[_Asked]:
        with self._guard:
            self._is_open = False
            return list(self._unanswered)

    # ── The thread ────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            while self._is_open:
                self._wake.wait(self._pause_s())
                self._wake.clear()
                for _ in range(len(self._door)):
                    self._door.popleft()()
                self._member.tick()
                self._publish()
        except Exception as error:  # noqa: BLE001  # its status tells everybody
            self._member.halt(f"{type(error).__name__}: {error}")
            with suppress(Exception):
                self._publish()
        finally:
            for asked in self._shut():
                asked.give_up()

    def _pause_s(self) -> float:
        """Return how long to wait for somebody at the door before the next tick."""
        if self._member.has_backlog:
            return 0
        # Due means a moment after its time: the library asks whether that has passed.
        rests_s = (self._member.rests_ms + 1) / 1000
        return min(max(rests_s, TICK_S), IDLE_TICK_S)

    def _publish(self) -> None:
        before, self._status = self._status, self._member.status()
        if self._watcher is not None and _gist(before) != _gist(self._status):
            self._watcher(self._status)


class _Asked:
    """One call of an event loop, answered from another thread, once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[Outcome] = loop.create_future()

    def answer(self, outcome: Outcome) -> None:
        try:
            self._loop.call_soon_threadsafe(self._set, outcome)
        except RuntimeError:
            # The loop is closed: nobody waits any more.
            return

    def give_up(self) -> None:
        """Nobody will answer: the member may have sent it to others, or not."""
        self.answer(Unknown(Why.HALTED))

    def _set(self, outcome: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)


def _gist(status: QuorumStatus) -> tuple[object, ...]:
    of_quorum = (status.leader, status.term, status.admitted)
    return *of_quorum, status.standing, status.role, status.trouble, status.halted
