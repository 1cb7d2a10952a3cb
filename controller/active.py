"""The controller of this process, as brokers ask it: active while its member leads and has office.

A member that is elected first sees to it that it knows everything that was committed before
(`read`), then proposes `TakeOffice`. Only when that is applied it decides anything. When another is
elected, or the majority is lost, the office ends, and everybody who waits is told so.

Not here: what an office does (`tenure.py`), the wire (`ottla.node.internal`).

J1  nothing is decided or answered as the active controller before the office is taken, or after
    the member has stopped to lead
J2  a heartbeat is answered only while the member leads and its thread is alive (rule 13)
J3  what a proposal came to is either known, or `Unresolved`; what was refused was not done
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Final

from ottla.controller.commands import TakeOffice
from ottla.controller.door import (
    Beat,
    BeatAnswer,
    Denied,
    DoorClosedError,
    News,
    NotActive,
    QuorumView,
    Registered,
    Registration,
    Unresolved,
)
from ottla.controller.feed import MetadataFeed, Tell, tell_nobody
from ottla.controller.image import BrokerInfo, ClusterDefaults, MetadataImage
from ottla.controller.office import ADMIN, forwarded
from ottla.controller.outcome import Outcome
from ottla.controller.proposal import NO_REQUEST, Proposal, encode_proposal
from ottla.controller.quorum import port
from ottla.controller.quorum.port import Committed, QuorumStatus, Refused, Role, Unknown, Why
from ottla.controller.sightings import Verdict
from ottla.controller.tenure import AskedQuorum, Means, Stream, Tenure, outcome_of
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId

PROPOSE_MS: Final = 5_000
READ_MS: Final = 5_000
RETRY_S: Final = 0.05
# Proposals of brokers that are under way; the quorum takes 1000.
FORWARDED_MAX: Final = 500
# A member whose thread has not ticked for so long may have been replaced without noticing it.
TICK_LOST_MS: Final = 1_000


class ActiveController:
    """The `Door` of the controller in this process."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        cluster_id: str,
        quorum: AskedQuorum,
        feed: MetadataFeed,
        now_ms: Callable[[], int],
        session_ms: Callable[[], int],
        balance_s: Callable[[], int],
        defaults: Callable[[], ClusterDefaults],
        probe: Callable[[BrokerInfo, str | None], Awaitable[Verdict]],
        tell: Tell = tell_nobody,
    ) -> None:
        self.node_id: Final = node_id
        self.cluster_id: Final = cluster_id
        self._means = Means(
            node_id=node_id,
            quorum=quorum,
            feed=feed,
            now_ms=now_ms,
            session_ms=session_ms,
            balance_s=balance_s,
            probe=probe,
            tell=tell,
        )
        self._defaults = defaults
        self._term: int | None = None
        self._tenure: Tenure | None = None
        self._task: asyncio.Task[None] | None = None
        self._lines = count(1)
        self._forwarded = 0
        self._is_stopped = False
        feed.watch(self._on_image)

    @property
    def is_active(self) -> bool:
        return self._office() is not None

    @property
    def office_epoch(self) -> int | None:
        """The epoch of the office, while this controller has it."""
        office = self._office()
        return None if office is None else office.epoch

    # ── The office ────────────────────────────────────────────────────────────────────────────

    def on_status(self, status: QuorumStatus) -> None:
        """Take in how the member is. Told on the loop, at every change of role, term or leader."""
        term = status.term if status.role is Role.LEADER else None
        if term == self._term or self._is_stopped:
            return
        self._leave()
        self._term = term
        if term is not None:
            self._task = asyncio.get_running_loop().create_task(self._lead(term))
            self._task.add_done_callback(_raise_to_loop)

    async def stop(self) -> None:
        """End the office and let everybody go."""
        self._is_stopped = True
        task, tenure, self._term = self._task, self._tenure, None
        self._leave()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)
        if tenure is not None:
            await tenure.until_idle()
        self._means.feed.close()

    def _leave(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._end_office()

    def _end_office(self) -> None:
        tenure, self._tenure = self._tenure, None
        if tenure is not None:
            tenure.end()
            facts = {"node": self.node_id, "term": tenure.term, "epoch": tenure.epoch}
            self._means.tell("office_ended", facts)

    async def _lead(self, term: int) -> None:
        while True:
            tenure = await self._take_office(term)
            if tenure is None:
                await asyncio.sleep(RETRY_S)
                continue
            self._tenure = tenure
            facts = {"node": self.node_id, "term": term, "epoch": tenure.epoch}
            self._means.tell("controller_elected", facts)
            tenure.begin()
            await tenure.until_ended()
            self._end_office()

    async def _take_office(self, term: int) -> Tenure | None:
        quorum, feed = self._means.quorum, self._means.feed
        # What earlier leaders committed must be in the image whose epoch is expected below.
        if not isinstance(await quorum.read(READ_MS), Committed):
            return None
        command = TakeOffice(self.node_id, feed.image.controller_epoch, self._defaults())
        found = await quorum.propose(encode_proposal(Proposal(NO_REQUEST, command)), PROPOSE_MS)
        if not isinstance(found, Committed):
            return None
        outcome = outcome_of(found)
        if outcome.refusal is not None:
            facts = {"node": self.node_id, "term": term, "why": outcome.refusal.sentence}
            self._means.tell("office_refused", facts)
        epoch = outcome.epoch
        if epoch is None or feed.image.controller_epoch != epoch:
            return None
        return Tenure(self._means, term=term, epoch=epoch)

    def _on_image(self, image: MetadataImage) -> None:
        if self._tenure is not None:
            self._tenure.follow(image)

    def _office(self) -> Tenure | None:
        """Return the office, if this controller is known to have it at this moment (J1, J2)."""
        status, tenure = self._means.quorum.status(), self._tenure
        is_alive = self._means.now_ms() - status.at_ms <= TICK_LOST_MS
        if tenure is None or tenure.has_ended or not is_alive:
            return None
        leads = status.role is Role.LEADER and status.term == tenure.term
        return tenure if leads else None

    def _not_active(self) -> NotActive:
        leader = self._means.quorum.status().leader
        # That it leads does not make it active; whoever asks shall ask around, and come again.
        return NotActive(None if leader == self.node_id else leader)

    # ── Brokers ───────────────────────────────────────────────────────────────────────────────

    async def register(self, wanted: Registration) -> Registered | NotActive | Denied:
        office = self._office()
        if office is None:
            return self._not_active()
        if wanted.cluster_id != self.cluster_id:
            sentence = (
                f"Node {wanted.broker_id} belongs to the cluster {wanted.cluster_id!r}, and this "
                f"is the cluster {self.cluster_id!r}."
            )
            return Denied(ErrorCode.INCONSISTENT_CLUSTER_ID, sentence)
        answer = await office.register(wanted)
        if isinstance(answer, Denied):
            facts = {"broker": wanted.broker_id, "why": answer.sentence, "code": answer.code.name}
            self._means.tell("registration_refused", facts)
        return self._not_active() if answer is None else answer

    def open_line(self, peer: str | None = None) -> LocalLine:
        """Begin to hear a broker, whose connection comes from this IP address."""
        return LocalLine(self, Stream(next(self._lines), peer))

    def hear(self, stream: Stream, beat: Beat) -> BeatAnswer | NotActive:
        """Answer a heartbeat; raises `DoorClosedError` if its line is not current any more."""
        office = self._office()
        if office is None:
            return self._not_active()
        answer = office.beat(stream, beat)
        if answer is None:
            raise DoorClosedError(f"A later line of broker {beat.broker_id} has replaced this one.")
        return answer

    def line_ended(self, stream: Stream, *, is_goodbye: bool) -> None:
        if self._tenure is not None:
            self._tenure.line_ended(stream, is_goodbye=is_goodbye)

    # ── Proposals ─────────────────────────────────────────────────────────────────────────────

    async def propose(
        self, proposal: bytes, *, client: str
    ) -> Outcome | NotActive | Denied | Unresolved:
        return await self.forward(proposal, client=client, caller=self.node_id)

    async def forward(
        self, proposal: bytes, *, client: str, caller: int | None
    ) -> Outcome | NotActive | Denied | Unresolved:
        """Propose for the broker that is known to be `caller`; None: nothing proves who asks."""
        office = self._office()
        if office is None:
            return self._not_active()
        level = self._means.feed.image.feature_level
        try:
            read = forwarded(proposal, caller=caller, feature_level=level)
        except RequestError as error:
            facts = {"client": client, "node": caller, "why": error.sentence}
            self._means.tell("proposal_denied", facts)
            return Denied(error.code, error.sentence)
        if self._forwarded >= FORWARDED_MAX:
            # Nothing was done: whoever asks shall come again.
            return NotActive(None)
        self._forwarded += 1
        try:
            work = self._means.quorum.propose(proposal, PROPOSE_MS)
            answer = self._answer_to(await office.while_in_office(work))
        finally:
            self._forwarded -= 1
        if type(read.command) in ADMIN:
            self._tell_of(read, client, answer)
        return answer

    def _answer_to(self, found: port.Outcome | None) -> Outcome | NotActive | Denied | Unresolved:
        match found:
            case None:
                return Unresolved("The office of the controller ended meanwhile.")
            case Committed():
                return outcome_of(found).answer()
            case Refused(why=Why.TOO_LARGE):
                return Denied(ErrorCode.INVALID_REQUEST, found.why.value)
            case Refused(why=Why.BUSY):
                return NotActive(None)
            case Unknown():
                return Unresolved(found.why.value)
            case _:
                return self._not_active()

    def _tell_of(
        self, read: Proposal, client: str, answer: Outcome | NotActive | Denied | Unresolved
    ) -> None:
        facts: dict[str, object] = {
            "client": client,
            "node": read.request.node_id,
            "kind": type(read.command).__name__,
        }
        match answer:
            case Outcome(refusal=None):
                facts["version"] = answer.version
            case Outcome(refusal=refusal) if refusal is not None:
                facts |= {"refused": refusal.code.name, "why": refusal.sentence}
            case _:
                facts["unanswered"] = type(answer).__name__
        self._means.tell("command_forwarded", facts)

    # ── Looking ───────────────────────────────────────────────────────────────────────────────

    async def read_version(self) -> int | NotActive:
        office = self._office()
        if office is None:
            return self._not_active()
        found = await office.while_in_office(self._means.quorum.read(READ_MS))
        match found:
            case Committed():
                return self._means.feed.image.version
            case Unknown() | Refused(why=Why.BUSY):
                raise DoorClosedError(found.why.value)
            case _:
                return self._not_active()

    async def describe_quorum(self) -> QuorumView | NotActive:
        office = self._office()
        if office is None:
            return self._not_active()
        status, newest = self._means.quorum.status(), self._means.feed.image.version
        # As indexes of the log, like those of the voters: its end, less the versions they lack.
        observers = {
            int(key): max(0, status.last_index - max(0, newest - version))
            for key, version in office.applied.items()
            if key not in status.voters
        }
        return QuorumView(status, observers)

    def follow(self, version: int, digest: bytes) -> AsyncIterator[News]:
        return self._means.feed.follow(version, digest)


class LocalLine:
    """The heartbeats of one life of a broker: of this process, or of a stream that ends here."""

    __slots__ = ("_controller", "_is_closed", "_stream")

    def __init__(self, controller: ActiveController, stream: Stream) -> None:
        self._controller = controller
        self._stream = stream
        self._is_closed = False

    async def beat(self, beat: Beat) -> BeatAnswer | NotActive:
        if self._is_closed:
            raise DoorClosedError("The line is closed.")
        return self._controller.hear(self._stream, beat)

    async def close(self, *, is_goodbye: bool) -> None:
        self.end(is_goodbye=is_goodbye)

    def end(self, *, is_goodbye: bool) -> None:
        """Close it where nothing can be awaited."""
        if not self._is_closed:
            self._is_closed = True
            self._controller.line_ended(self._stream, is_goodbye=is_goodbye)


def _raise_to_loop(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        what = {"message": "the active controller failed", "exception": error}
        task.get_loop().call_exception_handler(what)
