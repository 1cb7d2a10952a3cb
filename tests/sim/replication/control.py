"""One controller that never fails: the real state machine, sessions, and the word that spreads.

The quorum has a simulator of its own (`tests/sim/cluster`). Here every command is applied at one
place, in one order; but proposals and answers are late, lost or repeated, and the metadata reaches
each broker in its own time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.controller.commands import (
    NO_BROKER_EPOCH,
    AlterPartitions,
    BeginShutdown,
    ChangeConfigs,
    Command,
    CreateTopic,
    ElectLeaders,
    FenceBroker,
    PartitionChange,
    RegisterBroker,
    ReportDamage,
    UnfenceBroker,
)
from ottla.controller.image import MetadataImage, PartitionInfo
from ottla.controller.outcome import Outcome
from ottla.controller.port import ConfigChange, NewTopic, TopicDefaults
from ottla.controller.replay import first_state
from ottla.controller.state import apply
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from tests.sim.cluster.schedule import Work
from tests.sim.replication.network import CONTROLLER

if TYPE_CHECKING:
    from tests.sim.replication.broker import BrokerProcess
    from tests.sim.replication.world import World

CLUSTER_ID = "sim"
TOPIC = "t"
SESSION_MS = 400
LOOK_MS = 50
# How often a broker that heard nothing gets the newest metadata again.
AGAIN_MS = 120


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat."""

    broker_id: int
    broker_epoch: int
    applied_version: int
    damaged: Mapping[UUID, tuple[int, ...]]
    wants_shutdown: bool


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """What a broker hears."""

    is_fenced: bool
    may_exit: bool = False
    # Where it was fenced last. A leader that does not know of that yet must not serve (rule 13).
    fenced_at: int = -1


class Control:
    """The controller: it has number 0 in the network."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.image: MetadataImage = first_state(CLUSTER_ID).image
        self.extra_ms = 0
        self._heard_ms: dict[int, int] = {}
        self._applied: dict[int, int] = {}
        self._fenced_at: dict[int, int] = {}
        self._arrives_ms: dict[int, int] = {}

    def begin(self) -> None:
        """The brokers start; then there is a topic."""
        for broker in self.world.brokers.values():
            broker.start()
        self.world.schedule.after(LOOK_MS, "look", self._look)
        self.world.schedule.after(AGAIN_MS, "again", self._tell_again)

    def create_topic(self) -> None:
        climate = self.world.climate
        replicas = sorted(self.world.brokers)
        assignments = {
            index: tuple(map(BrokerId, self.world.dice.sample(replicas, 3)))
            for index in range(climate.partitions)
        }
        configs = {
            "min.insync.replicas": str(climate.min_isr),
            "ottla.durability": "fsync" if climate.is_fsync else "pagecache",
            "unclean.leader.election.enable": str(climate.is_unclean).lower(),
        }
        wanted = NewTopic(TOPIC, assignments=assignments, configs=configs)
        # Some ids are not for topics.
        while not self.partitions:
            self.obey(CreateTopic(wanted, self.world.new_id(), TopicDefaults(1, 3), seed=1))

    # ── Commands ──────────────────────────────────────────────────────────────────────────────

    def obey(self, command: Command) -> Outcome:
        before = self.image
        self.image, outcome = apply(before, command)
        if self.image is not before:
            self.world.truth.metadata_changed(before, self.image)
            self._spread()
        return outcome

    def obey_soon(self, command: Command, answer: Callable[[Outcome], None]) -> None:
        self._soon(lambda: answer(self.obey(command)))

    def _soon(self, work: Work) -> None:
        """Do something after as long as the quorum takes today."""
        delay_ms = 0
        if not self.world.network.is_calm:
            delay_ms = int(self.world.dice.random() * self.world.climate.commit_ms) + self.extra_ms
        self.world.schedule.after(delay_ms, "commit", work)

    @property
    def partitions(self) -> tuple[PartitionInfo, ...]:
        topic = self.image.topics.get(TOPIC)
        return () if topic is None else topic.partitions

    def configure(self, **options: object) -> None:
        told = {key.replace("__", "."): str(value).lower() for key, value in options.items()}
        self.obey(ChangeConfigs(ConfigChange("topic", TOPIC, told)))

    def elect(self, kind: str) -> None:
        self.obey(ElectLeaders(kind, None))  # type: ignore[arg-type]

    # ── The word ──────────────────────────────────────────────────────────────────────────────

    def _spread(self) -> None:
        for broker in self.world.brokers.values():
            self.tell(broker)

    def tell(self, broker: BrokerProcess) -> None:
        """Send a broker the metadata as it is now; later ones do not overtake it."""
        network, image = self.world.network, self.image
        if not broker.is_up or (CONTROLLER, broker.node_id) in network.cuts:
            return
        now_ms = self.world.schedule.now_ms
        lateness = 1 if network.is_calm else self.world.climate.metadata_ms
        delay_ms = 1 + int(self.world.dice.random() * lateness) + broker.metadata_slow_ms
        arrives_ms = max(self._arrives_ms.get(broker.node_id, 0), now_ms + delay_ms)
        self._arrives_ms[broker.node_id] = arrives_ms
        broker.after(arrives_ms - now_ms, "metadata", lambda: broker.learn(image))

    def _tell_again(self) -> None:
        self.world.schedule.after(AGAIN_MS, "again", self._tell_again)
        for broker in self.world.brokers.values():
            if broker.is_up and broker.image.version < self.image.version:
                self.tell(broker)

    # ── Sessions ──────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        self.world.schedule.after(LOOK_MS, "look", self._look)
        now_ms = self.world.schedule.now_ms
        for number, info in tuple(self.image.brokers.items()):
            silent_ms = now_ms - self._heard_ms.get(number, now_ms)
            if not info.is_fenced and silent_ms > SESSION_MS:
                self.world.schedule.note("broker %d is silent, and fenced", number)
                self.fence(number, info.broker_epoch)

    def fence(self, number: int, broker_epoch: int) -> None:
        self.obey(FenceBroker(BrokerId(number), broker_epoch))
        self._fenced_at[number] = self.image.version

    def stream_broke(self, number: int, broker_epoch: int) -> None:
        """A probe found nobody at home (rule 11a)."""
        info = self.image.brokers.get(BrokerId(number))
        if info is not None and not info.is_fenced and info.broker_epoch == broker_epoch:
            self.world.schedule.note("broker %d is dead, and fenced", number)
            self.fence(number, broker_epoch)

    def register(self, wanted: RegisterBroker, answer: Callable[[int], None]) -> None:
        """A new life. The old one, if any, is dead: a probe tells (rules 7 and 11a)."""
        old = self.image.brokers.get(wanted.broker_id)
        broker = self.world.brokers[wanted.broker_id]
        if old is not None and broker.is_up and old.incarnation == broker.incarnation:
            if wanted.incarnation == old.incarnation:
                answer(old.broker_epoch)
            return
        present = NO_BROKER_EPOCH if old is None else old.broker_epoch

        def told(outcome: Outcome) -> None:
            if outcome.epoch is not None:
                self._heard_ms[wanted.broker_id] = self.world.schedule.now_ms
                answer(outcome.epoch)

        self.obey_soon(replace(wanted, expected_epoch=present), told)

    def beat(self, beat: Beat, answer: Callable[[BeatAnswer], None]) -> None:
        broker_id = BrokerId(beat.broker_id)
        info = self.image.brokers.get(broker_id)
        if info is None or info.broker_epoch != beat.broker_epoch:
            answer(BeatAnswer(is_fenced=True))
            return
        self._heard_ms[broker_id] = self.world.schedule.now_ms
        self._applied[broker_id] = max(self._applied.get(broker_id, 0), beat.applied_version)
        if beat.wants_shutdown:
            outcome = self.obey(BeginShutdown(broker_id, beat.broker_epoch))
            answer(BeatAnswer(False, self._may_exit(broker_id, outcome.epoch or 0)))
        elif info.is_fenced and beat.applied_version >= info.broker_epoch:
            command = UnfenceBroker(
                broker_id, beat.broker_epoch, beat.applied_version, beat.damaged
            )
            at = self._fenced_at.get(broker_id, -1)
            self.obey_soon(command, lambda outcome: answer(BeatAnswer(False, fenced_at=at)))
        else:
            answer(BeatAnswer(info.is_fenced, fenced_at=self._fenced_at.get(broker_id, -1)))

    def _may_exit(self, broker_id: BrokerId, version: int) -> bool:
        leads = any(one.leader == broker_id for one in self.partitions)
        others = [one for one, info in self.image.brokers.items() if info.is_active]
        return not leads and all(self._applied.get(one, 0) >= version for one in others)

    # ── In-sync sets ──────────────────────────────────────────────────────────────────────────

    def alter(
        self,
        broker_id: int,
        broker_epoch: int,
        change: PartitionChange,
        request: list[ErrorCode],
        answer: Callable[[ErrorCode], None],
    ) -> None:
        """Grant or refuse an in-sync set; a copy of a request gets the same answer (rule 68)."""
        command = AlterPartitions(BrokerId(broker_id), broker_epoch, (change,))

        def decide() -> None:
            if not request:
                outcome = self.obey(command)
                refusal = outcome.refusal or outcome.results[0].refusal
                request.append(ErrorCode.NONE if refusal is None else refusal.code)
            answer(request[0])

        self._soon(decide)

    def report_damage(self, broker_id: int, broker_epoch: int, index: int) -> None:
        topic = self.image.topics[TOPIC]
        damaged = {topic.topic_id: (index,)}
        self.obey(ReportDamage(BrokerId(broker_id), broker_epoch, damaged))
