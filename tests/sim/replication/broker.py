"""A broker process: real replicas on a simulated machine, and a model of what is around them.

Real: `Replica` with its cores, the log, `Puller` and `Feeder`. Modelled, as simply as they can be:
registration, heartbeats, obeying metadata, sending proposals (`node/` has the real ones).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.controller.commands import NO_BROKER_EPOCH, PartitionChange, RegisterBroker
from ottla.controller.election import is_fsync
from ottla.controller.image import MetadataImage, TopicInfo
from ottla.controller.replay import first_state
from ottla.controller.serving import electable_others, standing
from ottla.node.views import Views
from ottla.proto.errors import ErrorCode, StorageError
from ottla.proto.ids import BrokerId, Offset, TopicPartition
from ottla.proto.kafka.uuids import UUID
from ottla.replication.leader import IsrProposal
from ottla.replication.log.manager import LogManager
from ottla.replication.log.state import NO_TOPIC_ID
from ottla.replication.log.surgery import delete_records
from ottla.replication.replica import Replica
from ottla.replication.settings import LogSettings
from ottla.replication.storage.faults import PowerCutError
from ottla.replication.surroundings import ReplicaEvents, Surroundings
from tests.builders import NOW_MS
from tests.sim.cluster.schedule import Work
from tests.sim.replication.control import CLUSTER_ID, SESSION_MS, TOPIC, Beat, BeatAnswer
from tests.sim.replication.machine import Machine, SlowSyncs
from tests.sim.replication.network import CONTROLLER, Line
from tests.sim.replication.streams import Streams

if TYPE_CHECKING:
    from tests.sim.replication.world import World

HEARTBEAT_MS = 110
RETRY_MS = 60
ANSWER_MS = 120
PROBE_MS = 40


class BrokerProcess:
    """One broker. Its machine outlives its lives."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.machine = Machine(node_id, world.new_id)
        self.life = 0
        self.is_up = False
        self.paused_until_ms = 0
        self.metadata_slow_ms = 0
        self.disk_slow_until_ms = 0
        self._forget()

    def _forget(self) -> None:
        self.incarnation = self.world.new_id()
        self.image: MetadataImage = first_state(CLUSTER_ID).image
        self.broker_epoch: int | None = None
        self.manager: LogManager | None = None
        self.replicas: dict[int, Replica] = {}
        self.damaged: dict[int, str] = {}
        # When a heartbeat was sent that the controller has answered (rule 13).
        self.heard_ms: int | None = None
        self.wants_shutdown = False
        self._is_dying = False
        self.streams = Streams(self)
        self._syncs: list[SlowSyncs] = []
        self._wanting: set[int] = set()
        self._previous_epoch = NO_BROKER_EPOCH

    # ── Life ──────────────────────────────────────────────────────────────────────────────────

    @property
    def now_ms(self) -> int:
        return self.world.schedule.now_ms

    def after(self, delay_ms: int, kind: str, work: Work) -> None:
        """Do something later, in this life: not while it stands still, and never after it."""
        life, schedule = self.life, self.world.schedule

        def done() -> None:
            if life != self.life or not self.is_up:
                return
            wait_ms = self.paused_until_ms - schedule.now_ms
            if wait_ms > 0:
                schedule.after(wait_ms, kind, done, self.node_id)
            else:
                self.run(work)

        schedule.after(delay_ms, kind, done, self.node_id)

    def run(self, work: Work) -> None:
        """Do something now; the power may go meanwhile."""
        self.world.touched = self
        try:
            work()
        except PowerCutError:
            self.world.lose_power(self, is_sudden=True)
        except StorageError:
            if self.manager is None or self.manager.offline is None:
                raise
        if self.is_up and self.manager is not None and self.manager.offline is not None:
            # A disk that refuses cannot be believed any more: the process ends (rule 48).
            self._give_up_disk()

    def _give_up_disk(self) -> None:
        if not self._is_dying:
            self._is_dying = True
            self.world.truth.lost_disk(self.node_id)
            self.world.schedule.note("the disk of broker %d has failed", self.node_id)
            self.after(3, "die", lambda: self.world.kill(self))

    def start(self) -> None:
        self.life += 1
        self.is_up, self.paused_until_ms, self.metadata_slow_ms = True, 0, 0
        self.machine.plan.rules.clear()
        self._forget()
        self.run(self._open)

    def _open(self) -> None:
        world = self.world
        self.manager, report = self.machine.open(self._settings_of, self.now_ms)
        self._previous_epoch = (
            NO_BROKER_EPOCH if report.clean_broker_epoch is None else report.clean_broker_epoch
        )
        self.damaged = {one.partition: why for one, why in report.damaged.items()}
        world.truth.opened(self)
        recovery_ms = 1 if world.network.is_calm else 1 + int(world.dice.random() * 30)
        self.after(recovery_ms, "register", self._register)
        self._repeat(world.climate.checkpoint_ms, "checkpoint", self._checkpoint)
        self._repeat(world.climate.lag_ms // 2, "check", self._check_isr)

    def _repeat(self, every_ms: int, kind: str, work: Work) -> None:
        def again() -> None:
            self.after(1 + int(every_ms * (0.5 + self.world.dice.random())), kind, again)
            work()

        self.after(1 + int(every_ms * self.world.dice.random()), kind, again)

    def end(self) -> None:
        """The process is gone; the machine, or what is left of it, stays."""
        self.is_up = False
        self.life += 1
        self.streams.lose_all()
        epoch, delay_ms = self.broker_epoch, 1 + int(self.world.dice.random() * PROBE_MS)
        if epoch is not None:
            self.world.schedule.after(delay_ms, "probe", lambda: self._probed(epoch))

    def _probed(self, epoch: int) -> None:
        # Whether somebody finds out before the session ends.
        if not self.world.network.is_cut(CONTROLLER, self.node_id) and not self.is_dark:
            self.world.control.stream_broke(self.node_id, epoch)

    @property
    def is_dark(self) -> bool:
        """The machine is off: nobody there even refuses a connection."""
        return not self.is_up and self.world.truth.is_dark(self.node_id)

    def _settings_of(self, topic: str) -> LogSettings:
        return replace(self.world.settings, fsync=self._is_fsync)

    @property
    def _is_fsync(self) -> bool:
        topic = self.image.topics.get(TOPIC)
        return self.world.climate.is_fsync if topic is None else is_fsync(self.image, topic)

    # ── Registration and heartbeats ───────────────────────────────────────────────────────────

    def _register(self) -> None:
        if self.broker_epoch is not None:
            return
        world = self.world
        wanted = RegisterBroker(
            cluster_id=CLUSTER_ID,
            broker_id=BrokerId(self.node_id),
            incarnation=self.incarnation,
            expected_epoch=NO_BROKER_EPOCH,
            directory_id=self.machine.directory_id,
            boot_id=self.machine.boot_id,
            previous_epoch=self._previous_epoch,
            host="host",
            port=9092,
            internal_host="host",
            internal_port=9093,
        )
        answered = self._answer(self._registered)
        self._ask(lambda: world.control.register(wanted, answered))
        self.after(RETRY_MS, "register", self._register)

    def _registered(self, broker_epoch: int) -> None:
        if self.broker_epoch is None:
            self.broker_epoch = broker_epoch
            self.world.schedule.note("broker %d is registered at %d", self.node_id, broker_epoch)
            self.world.control.tell(self)
            self._beat()

    def _beat(self) -> None:
        self.after(HEARTBEAT_MS, "beat", self._beat)
        self.beat_now()

    def beat_now(self) -> None:
        if self.broker_epoch is None:
            return
        sent_ms, world = self.now_ms, self.world
        topic = self.image.topics.get(TOPIC)
        damaged: Mapping[UUID, tuple[int, ...]] = {}
        if topic is not None and self.damaged:
            damaged = {topic.topic_id: tuple(sorted(self.damaged))}
        beat = Beat(
            self.node_id, self.broker_epoch, self.image.version, damaged, self.wants_shutdown
        )
        answered = self._answer(lambda answer: self._beat_answered(sent_ms, answer))
        self._ask(lambda: world.control.beat(beat, answered))

    def _beat_answered(self, sent_ms: int, answer: BeatAnswer) -> None:
        if not answer.is_fenced and self.image.version >= answer.fenced_at:
            self.heard_ms = max(sent_ms, self.heard_ms or sent_ms)
        if answer.may_exit and self.wants_shutdown:
            self._shut_down()

    def _shut_down(self) -> None:
        if any(one.is_busy for one in self._syncs):
            self.after(2, "shut down", self._shut_down)
            return
        assert self.manager is not None
        with suppress(StorageError):
            self.manager.close(broker_epoch=self.broker_epoch or 0)
        self.world.schedule.note("broker %d has shut down", self.node_id)
        self.world.kill(self)

    def _ask(self, work: Work, *, extra_ms: int = 0) -> None:
        """Send something to the controller."""
        schedule = self.world.schedule

        def arrive(delay_ms: int) -> None:
            schedule.after(delay_ms + extra_ms, "asked", work, self.node_id)

        self.world.network.post(self.node_id, CONTROLLER, arrive)

    def _answer(self, take: Callable[..., None]) -> Callable[..., None]:
        """Return what brings an answer of the controller back to this life, or does not."""
        life = self.life

        def answered(*given: object) -> None:
            def arrive(delay_ms: int) -> None:
                if life == self.life:
                    self.after(delay_ms, "answered", lambda: take(*given))

            self.world.network.post(CONTROLLER, self.node_id, arrive)

        return answered

    # ── Metadata ──────────────────────────────────────────────────────────────────────────────

    def learn(self, image: MetadataImage) -> None:
        epoch = self.broker_epoch
        if epoch is None or image.version <= self.image.version or image.version < epoch:
            return
        own = image.brokers.get(BrokerId(self.node_id))
        if own is None or own.incarnation != self.incarnation:
            return
        self.image = image
        topic = image.topics.get(TOPIC)
        if topic is None:
            return
        views = Views.of(image)
        for index, partition in enumerate(topic.partitions):
            if BrokerId(self.node_id) in partition.replicas:
                self._obey(views, topic, index)
        if own.is_fenced and own.broker_epoch == epoch:
            self.beat_now()

    def _obey(self, views: Views, topic: TopicInfo, index: int) -> None:
        """Lead or follow one partition as the metadata says."""
        partition, replica = topic.partitions[index], self._replica(index, topic.topic_id)
        if replica is None:
            if BrokerId(self.node_id) in (*partition.isr, *partition.elr):
                # Elected uncleanly, with a log that cannot be used.
                self._report_damage(index)
            return
        fsync = self._is_fsync
        if replica.log.settings.fsync != fsync:
            replica.log.adopt_settings(replace(replica.log.settings, fsync=fsync))
            replica.settings_changed()
        if partition.leader == self.node_id:
            replica.lead(views.partition(topic, partition))
        else:
            replica.follow(
                partition.leader_epoch,
                partition.leader,
                last_unclean_epoch=partition.last_unclean_epoch,
            )
        self.streams.follow(replica)

    def _replica(self, index: int, topic_id: UUID) -> Replica | None:
        found = self.replicas.get(index)
        if found is not None or self.has_lost(index):
            return found
        assert self.manager is not None
        partition = TopicPartition(TOPIC, index)
        log = self.manager.logs.get(partition)
        if log is None:
            made = self.manager.make({partition: topic_id.bytes})
            self.manager.adopt(made)
            log = made[partition]
        if log.state.topic_id == NO_TOPIC_ID:
            # The power went while it was made.
            log.commit_state(replace(log.state, topic_id=topic_id.bytes))
        around = Surroundings(
            me=BrokerId(self.node_id),
            now_ms=lambda: self.now_ms,
            wall_ms=lambda: NOW_MS + self.now_ms,
            lag_ms=lambda: self.world.climate.lag_ms,
            make_syncs=self._make_syncs,
            events=_Events(self),
        )
        replica = self.replicas[index] = Replica(partition, log, around)
        return replica

    def has_lost(self, index: int) -> bool:
        """Whether the start has found a log that cannot be used, or none where one was."""
        assert self.manager is not None
        log = self.manager.logs.get(TopicPartition(TOPIC, index))
        return index in self.damaged and (log is None or log.offline is not None)

    def _report_damage(self, index: int) -> None:
        world, epoch = self.world, self.broker_epoch or 0
        self._ask(lambda: world.control.report_damage(self.node_id, epoch, index))

    def _make_syncs(self, log: object, on_synced: object, on_failed: object) -> SlowSyncs:
        syncs = SlowSyncs(
            log,  # type: ignore[arg-type]
            on_synced,  # type: ignore[arg-type]
            on_failed,  # type: ignore[arg-type]
            after=self.after,
            duration_ms=self._sync_ms,
        )
        self._syncs.append(syncs)
        return syncs

    def _sync_ms(self) -> int:
        if self.world.network.is_calm:
            return 1
        slowness = 30 if self.disk_slow_until_ms > self.now_ms else 1
        return 1 + int(self.world.dice.random() * self.world.climate.sync_ms * slowness)

    def delete(self, index: int, below: int) -> None:
        replica = self.replicas[index]
        delete_records(replica.log, Offset(below), now_ms=NOW_MS + self.now_ms)
        replica.start_moved()

    def _checkpoint(self) -> None:
        if self.manager is not None and not self.wants_shutdown:
            self.manager.checkpoint()
            for replica in self.replicas.values():
                replica.catch_up()

    # ── In-sync sets ──────────────────────────────────────────────────────────────────────────

    def _check_isr(self) -> None:
        for replica in self.replicas.values():
            replica.check_isr()

    def isr_wanted(self, replica: Replica) -> None:
        index = replica.partition.partition
        if index not in self._wanting:
            self._wanting.add(index)
            self.after(0, "propose", lambda: self._propose(replica))

    def _propose(self, replica: Replica) -> None:
        index = replica.partition.partition
        self._wanting.discard(index)
        core = replica.leader
        if core is None or core.unsent is None or self.broker_epoch is None:
            return
        proposal, world = core.unsent, self.world
        core.sent()
        change = PartitionChange(
            UUID(bytes=replica.topic_id),
            index,
            proposal.leader_epoch,
            proposal.partition_epoch,
            proposal.isr,
            is_synced=proposal.is_synced,
        )
        waiting = [proposal]

        def answered(code: ErrorCode) -> None:
            if waiting:
                waiting.clear()
                replica.isr_answered(proposal, code)

        epoch, answer = self.broker_epoch, self._answer(answered)
        # Copies of one request are known for what they are.
        request: list[ErrorCode] = []
        self._ask(
            lambda: world.control.alter(self.node_id, epoch, change, request, answer),
            extra_ms=world.proposed(self.node_id, core.view.isr, proposal.members),
        )
        self.after(ANSWER_MS, "give up", lambda: self._give_up(waiting, replica, proposal))

    def _give_up(self, waiting: list[IsrProposal], replica: Replica, proposal: IsrProposal) -> None:
        if waiting:
            waiting.clear()
            replica.isr_answered(proposal, ErrorCode.REQUEST_TIMED_OUT)

    # ── Streams ───────────────────────────────────────────────────────────────────────────────

    def line_ended(self, line: Line) -> None:
        self.streams.ended(line)

    # ── Clients ───────────────────────────────────────────────────────────────────────────────

    def may_serve(self, replica: Replica) -> bool:
        """Whether a leader is not cut off (rule 13)."""
        now_ms, core = self.now_ms, replica.leader
        if core is None:
            return False
        if self.heard_ms is not None and now_ms - self.heard_ms < SESSION_MS:
            return True
        me = BrokerId(self.node_id)
        partition = self.image.topics[TOPIC].partitions[replica.partition.partition]
        others = {*electable_others(partition, me), *core.maximal_isr} - {me}
        found = standing(
            is_heard=False,
            fetched_ms={one: replica.heard_ms(one) for one in sorted(others)},
            is_unclean_allowed=self.world.climate.is_unclean,
            session_ms=SESSION_MS,
            now_ms=now_ms,
        )
        return found.may_serve


class _Events(ReplicaEvents):
    """What a replica tells its broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def cut(self, replica: Replica, old_end: Offset, *, is_reset: bool) -> None:
        self._broker.world.truth.was_cut(self._broker, replica, old_end, is_reset=is_reset)

    def isr_wanted(self, replica: Replica) -> None:
        self._broker.isr_wanted(replica)

    def failed(self, replica: Replica, why: str) -> None:
        self._broker.world.truth.failed(self._broker, replica, why)
