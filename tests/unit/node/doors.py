"""Controllers in memory, with doors that can be shut, lag, lose answers and hold them back.

All controllers share one machine, which is the committed log of a quorum that never fails. Each has
its own progress in it, and one of them may be active. Heartbeats and registrations are judged by
the real `Liveness`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from ottla.controller.commands import Command, RegisterBroker, TakeOffice
from ottla.controller.delta import Delta, encode_delta
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
from ottla.controller.image import ClusterDefaults, MetadataImage
from ottla.controller.liveness import Liveness
from ottla.controller.machine import MetadataMachine
from ottla.controller.office import Requests, commands_for, heard
from ottla.controller.outcome import Outcome
from ottla.controller.port import ConfigKind, TopicDefaults
from ottla.controller.proposal import NO_REQUEST, Proposal, encode_proposal
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.port import QuorumStatus, Role
from ottla.controller.replay import first_state
from ottla.controller.sightings import (
    AcceptRegistration,
    AnswerHeartbeat,
    BrokersChanged,
    Effect,
    Probe,
    ProbeAnswered,
    ProposeFence,
    ProposeShutdown,
    ProposeUnfence,
    RefuseRegistration,
    RegistrationAsked,
    TimePassed,
    TookOffice,
    Verdict,
)
from ottla.controller.snapshot import encode_image
from ottla.node.clock import Clock
from ottla.node.cluster import ClusterController
from ottla.proto.errors import ConfigError, ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID

T = TypeVar("T")
CLUSTER = "test"
SESSION_MS = 400
BEAT_MS = 20
WAIT_S = 10.0


class Controllers:
    """The controllers of a cluster, and what they have agreed on."""

    def __init__(self, *node_ids: int, session_ms: int = SESSION_MS) -> None:
        self.clock = Clock()
        self.machine = MetadataMachine(first_state(CLUSTER))
        self.images = [self.machine.image]
        self.deltas: list[Delta] = []
        # How often each command was fed to the machine, by its bytes.
        self.fed: dict[bytes, int] = {}
        self.clients: list[str] = []
        self.session_ms = session_ms
        self.verdict = Verdict.REFUSED
        self.liveness = Liveness(session_ms=session_ms)
        self.doors = {node_id: FakeDoor(self, node_id) for node_id in node_ids}
        self.active: int | None = None
        self.changed = asyncio.Event()
        self._office = Requests(BrokerId(-1), 0)
        self.elect(node_ids[0])

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    def elect(self, node_id: int | None) -> None:
        self.active = node_id
        if node_id is None:
            return
        epoch = self.image.controller_epoch
        command = TakeOffice(BrokerId(node_id), epoch, ClusterDefaults())
        outcome = self.feed(encode_proposal(Proposal(NO_REQUEST, command)))
        assert outcome.epoch is not None
        self._office = Requests(BrokerId(node_id), outcome.epoch)
        self.liveness = Liveness(session_ms=self.session_ms)
        self.liveness.step(TookOffice(brokers=self.image.brokers, now_ms=self.now()))

    def now(self) -> int:
        return self.clock.monotonic_ms()

    def feed(self, data: bytes) -> Outcome:
        """Commit a proposal."""
        self.fed[data] = self.fed.get(data, 0) + 1
        outcome = self.machine.apply(data)
        assert self.machine.last_delta is not None
        self.images.append(self.machine.image)
        self.deltas.append(self.machine.last_delta)
        brokers = self.image.brokers
        self.liveness.step(BrokersChanged(brokers=brokers, now_ms=self.now()))
        self.wake()
        return outcome

    def do(self, command: Command) -> Outcome:
        """Commit a command of the office itself."""
        return self.feed(encode_proposal(self._office.proposal(command)))

    def usurp(self, wanted: Registration) -> None:
        """Register a process whatever becomes of the one that has its id."""
        expected_epoch = self.image.brokers[wanted.broker_id].broker_epoch
        outcome = self.feed(encode_proposal(_registering(wanted, expected_epoch)))
        assert outcome.refusal is None

    def wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def judge(self, effects: list[Effect], wanted: Registration | None = None) -> Effect | None:
        """Do what the liveness wants done, and return what it answers."""
        answer: Effect | None = None
        for effect in effects:
            match effect:
                case ProposeFence() | ProposeUnfence() | ProposeShutdown():
                    for command in commands_for(effect):
                        self.do(command)
                case Probe():
                    event = ProbeAnswered(
                        broker_id=effect.broker_id,
                        broker_epoch=effect.broker_epoch,
                        verdict=self.verdict,
                        now_ms=self.now(),
                    )
                    answer = self.judge(self.liveness.step(event), wanted) or answer
                case AnswerHeartbeat() | AcceptRegistration() | RefuseRegistration():
                    answer = effect
        return answer

    def pass_time(self) -> None:
        self.judge(self.liveness.step(TimePassed(now_ms=self.now())))


class FakeLine:
    """A line to one of them."""

    def __init__(self, door: FakeDoor) -> None:
        self._door = door
        self.beats: list[Beat] = []
        self.is_broken = False
        self.goodbye: bool | None = None

    async def beat(self, beat: Beat) -> BeatAnswer | NotActive:
        door, cluster = self._door, self._door.cluster
        await door.pass_in()
        self._require_whole()
        self.beats.append(beat)
        if cluster.active != door.node_id:
            return NotActive(door.hint())
        if door.beat_answers:
            return door.beat_answers.pop(0)
        answer = cluster.judge(cluster.liveness.step(heard(beat, cluster.now())))
        await door.pass_out()
        self._require_whole()
        assert isinstance(answer, AnswerHeartbeat)
        version = cluster.machine.image.version
        return BeatAnswer(answer.refusal, answer.is_fenced, answer.may_exit, version)

    def _require_whole(self) -> None:
        if self.is_broken or self.goodbye is not None:
            raise DoorClosedError("the line is broken")

    async def close(self, *, is_goodbye: bool) -> None:
        self.goodbye = is_goodbye


class FakeDoor:
    """The door of one controller."""

    def __init__(self, cluster: Controllers, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.is_closed = False
        # Held back at the door, before or after the thing is done.
        self.held_in: asyncio.Event | None = None
        self.held_out: asyncio.Event | None = None
        # So many answers are lost on their way out.
        self.losses = 0
        # What follows of the log it has, at most; None: all.
        self.progress: int | None = None
        self.named: int | None = None
        # It hears of no other controller, and does not know who leads.
        self.is_cut_off = False
        self.lines: list[FakeLine] = []
        self.beat_answers: list[BeatAnswer] = []
        self.answers: list[Denied | Unresolved] = []
        self.registrations = 0
        self.follows: list[int] = []
        self.proposals = 0
        self.proposals_max = 0

    def hint(self) -> int | None:
        if self.is_cut_off:
            return None
        return self.cluster.active if self.named is None else self.named

    def close(self) -> None:
        """Break everything, as the end of a process does."""
        self.is_closed = True
        for line in self.lines:
            line.is_broken = True
        self.cluster.wake()

    def limit(self, version: int | None) -> None:
        self.progress = version
        self.cluster.wake()

    async def pass_in(self) -> None:
        await asyncio.sleep(0)
        if self.held_in is not None:
            await self.held_in.wait()
        if self.is_closed:
            raise DoorClosedError("nobody is there")

    async def pass_out(self) -> None:
        if self.held_out is not None:
            await self.held_out.wait()
        if self.losses:
            self.losses -= 1
            raise DoorClosedError("the answer was lost")

    async def register(self, wanted: Registration) -> Registered | NotActive | Denied:
        self.registrations += 1
        await self.pass_in()
        cluster = self.cluster
        if cluster.active != self.node_id:
            return NotActive(self.hint())
        if self.answers:
            answered = self.answers.pop(0)
            assert isinstance(answered, Denied)
            return answered
        cluster.pass_time()
        event = RegistrationAsked(
            broker_id=wanted.broker_id, incarnation=wanted.incarnation, now_ms=cluster.now()
        )
        answer = cluster.judge(cluster.liveness.step(event), wanted)
        if isinstance(answer, RefuseRegistration):
            return Denied(ErrorCode.DUPLICATE_BROKER_REGISTRATION, answer.why)
        assert isinstance(answer, AcceptRegistration)
        outcome = cluster.feed(encode_proposal(_registering(wanted, answer.expected_epoch)))
        await self.pass_out()
        if outcome.refusal is not None:
            return Denied(outcome.refusal.code, outcome.refusal.sentence)
        assert outcome.epoch is not None
        return Registered(outcome.epoch)

    def open_line(self) -> FakeLine:
        line = FakeLine(self)
        self.lines.append(line)
        return line

    async def propose(
        self, proposal: bytes, *, client: str
    ) -> Outcome | NotActive | Denied | Unresolved:
        self.proposals += 1
        self.proposals_max = max(self.proposals, self.proposals_max)
        try:
            await self.pass_in()
            if self.cluster.active != self.node_id:
                return NotActive(self.hint())
            if self.answers:
                return self.answers.pop(0)
            self.cluster.clients.append(client)
            outcome = self.cluster.feed(proposal).answer()
            await self.pass_out()
            return outcome
        finally:
            self.proposals -= 1

    async def read_version(self) -> int | NotActive:
        await self.pass_in()
        if self.cluster.active != self.node_id:
            return NotActive(self.hint())
        return self.cluster.image.version

    async def describe_quorum(self) -> QuorumView | NotActive:
        await self.pass_in()
        if self.cluster.active != self.node_id:
            return NotActive(self.hint())
        voters = tuple(self.cluster.doors)
        status = QuorumStatus(
            self.node_id, Standing.VOTER, Role.LEADER, 1, self.node_id, voters, 1, 9, 9, 9
        )
        return QuorumView(status)

    async def follow(self, version: int, digest: bytes) -> AsyncIterator[News]:
        self.follows.append(version)
        cluster = self.cluster
        if version < 0 or version > self._end():
            yield self._whole()
            version = self._end()
        while True:
            await self.pass_in()
            while version < self._end():
                delta = cluster.deltas[version]
                version += 1
                yield News(encode_delta(delta), False, version)
            changed = cluster.changed
            if version >= self._end() and not self.is_closed:
                await changed.wait()

    def _end(self) -> int:
        version = self.cluster.image.version
        return version if self.progress is None else min(version, self.progress)

    def _whole(self) -> News:
        image = self.cluster.images[self._end()]
        return News(encode_image(image), True, image.version)


def _registering(wanted: Registration, expected_epoch: int) -> Proposal:
    return Proposal(
        NO_REQUEST,
        RegisterBroker(
            cluster_id=wanted.cluster_id,
            broker_id=wanted.broker_id,
            incarnation=wanted.incarnation,
            expected_epoch=expected_epoch,
            directory_id=wanted.directory_id,
            boot_id=wanted.boot_id,
            previous_epoch=wanted.previous_epoch,
            host=wanted.host,
            port=wanted.port,
            internal_host=wanted.internal_host,
            internal_port=wanted.internal_port,
            rack=wanted.rack,
            feature_level_max=wanted.feature_level_max,
        ),
    )


def registration(broker_id: int = 7, *, incarnation: int = 1, **more: object) -> Registration:
    plain = Registration(
        cluster_id=CLUSTER,
        broker_id=BrokerId(broker_id),
        incarnation=UUID(int=broker_id << 64 | incarnation),
        directory_id=UUID(int=broker_id << 64 | 0xD0),
        boot_id=UUID(int=broker_id << 64 | 0xB0),
        host="127.0.0.1",
        port=9092,
        internal_host="127.0.0.1",
        internal_port=9093,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


class Ids:
    """Ids in order; the first must not be used by a topic."""

    def __init__(self, first: int = 0) -> None:
        self._count = first

    def __call__(self) -> UUID:
        self._count += 1
        return UUID(int=self._count - 1 << 64)


def check(kind: ConfigKind, name: str, configs: Mapping[str, str]) -> None:
    if "bad" in configs.values():
        raise ConfigError(f"{kind} {name} must not be bad.")


def follower(
    controllers: Controllers, *, node_id: int = 7, timeout_ms: int = 3_000, first_id: int = 0
) -> ClusterController:
    return ClusterController(
        node_id=BrokerId(node_id),
        image=first_state(CLUSTER).image,
        doors=controllers.doors,
        check_configs=check,
        defaults=lambda: TopicDefaults(1, 1),
        new_uuid=Ids(first_id),
        clock=Clock(),
        timeout_ms=timeout_ms,
    )


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition, with a deadline."""
    async with asyncio.timeout(WAIT_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
