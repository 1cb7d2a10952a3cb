"""A cluster's metadata for tests: commands through their bytes, as a quorum would feed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.controller.commands import (
    NO_BROKER_EPOCH,
    AlterPartitions,
    BeginShutdown,
    ChangeConfigs,
    Command,
    CreateTopic,
    ElectionKind,
    ElectLeaders,
    FenceBroker,
    PartitionChange,
    Partitions,
    RegisterBroker,
    TakeOffice,
    UnfenceBroker,
)
from ottla.controller.image import BrokerInfo, ClusterDefaults, MetadataImage, PartitionInfo
from ottla.controller.machine import MetadataMachine
from ottla.controller.outcome import Outcome
from ottla.controller.port import ConfigChange, NewTopic, TopicDefaults
from ottla.controller.proposal import NO_REQUEST, Proposal, RequestId, encode_proposal
from ottla.controller.replay import first_state
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId, LeaderEpoch
from ottla.proto.kafka.uuids import UUID
from tests.unit.controller.metadata import topic_id

CLUSTER_ID = "test"
ONE = TopicDefaults(partitions=1, replication_factor=1)


def some_id(number: int) -> UUID:
    return UUID(int=number + 1)


class Cluster:
    """One member of a quorum, and an active controller that proposes through it."""

    def __init__(self, size: int = 0, *, defaults: ClusterDefaults | None = None) -> None:
        self.machine = MetadataMachine(first_state(CLUSTER_ID))
        self.log: list[bytes] = []
        self.starts = 0
        self.made = 0
        self.sequence = 0
        self.office = 0
        # Whether `ok` insists. Where anything goes, it need not.
        self.is_strict = True
        self.take_office(1, defaults or ClusterDefaults())
        for number in range(1, size + 1):
            self.start(number)

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    def feed(self, data: bytes) -> Outcome:
        self.log.append(data)
        return self.machine.apply(data)

    def propose(self, command: Command) -> Outcome:
        request = RequestId(self.image.controller_id, self.office, self.sequence)
        self.sequence += 1
        return self.feed(encode_proposal(Proposal(request, command)))

    def ok(self, command: Command) -> Outcome:
        outcome = self.propose(command)
        assert outcome.refusal is None or not self.is_strict, outcome.refusal
        return outcome

    def refusal(self, command: Command) -> ErrorCode:
        outcome = self.propose(command)
        assert outcome.refusal is not None
        assert outcome.refusal.sentence.endswith(".")
        return outcome.refusal.code

    def take_office(self, node_id: int, defaults: ClusterDefaults) -> Outcome:
        command = TakeOffice(BrokerId(node_id), self.image.controller_epoch, defaults)
        outcome = self.feed(encode_proposal(Proposal(NO_REQUEST, command)))
        if outcome.epoch is not None:
            self.office, self.sequence = outcome.epoch, 0
        return outcome

    # ── Brokers ───────────────────────────────────────────────────────────────────────────────

    def broker(self, number: int) -> BrokerInfo:
        return self.image.brokers[BrokerId(number)]

    def registration(
        self,
        number: int,
        *,
        incarnation: int | None = None,
        expected: int | None = None,
        directory: int | None = None,
        boot: int = 1,
        previous: int = NO_BROKER_EPOCH,
        cluster_id: str = CLUSTER_ID,
        rack: str | None = None,
        level: int = 1,
    ) -> RegisterBroker:
        """Return the registration of a new life on the same disk after a crash, unless told."""
        self.starts += 1
        old = self.image.brokers.get(BrokerId(number))
        present = NO_BROKER_EPOCH if old is None else old.broker_epoch
        return RegisterBroker(
            cluster_id=cluster_id,
            broker_id=BrokerId(number),
            incarnation=some_id(1000 + self.starts if incarnation is None else incarnation),
            expected_epoch=present if expected is None else expected,
            directory_id=some_id(number if directory is None else directory),
            boot_id=some_id(500 + boot),
            previous_epoch=previous,
            host=f"host-{number}",
            port=9092,
            internal_host=f"host-{number}",
            internal_port=9093,
            rack=rack,
            feature_level_max=level,
        )

    def register(self, number: int, **fields: object) -> Outcome:
        command = self.registration(number, **fields)  # type: ignore[arg-type]
        return self.feed(encode_proposal(Proposal(NO_REQUEST, command)))

    def unfence(self, number: int, damaged: Partitions | None = None) -> Outcome:
        epoch = self.broker(number).broker_epoch
        return self.ok(UnfenceBroker(BrokerId(number), epoch, self.image.version, damaged or {}))

    def start(self, number: int, **fields: object) -> None:
        assert self.register(number, **fields).refusal is None
        self.unfence(number)

    def fence(self, *numbers: int) -> None:
        for number in numbers:
            self.ok(FenceBroker(BrokerId(number), self.broker(number).broker_epoch))

    def shut_down(self, number: int) -> Outcome:
        return self.ok(BeginShutdown(BrokerId(number), self.broker(number).broker_epoch))

    # ── Topics ────────────────────────────────────────────────────────────────────────────────

    def create(
        self, *replicas: Sequence[int], name: str = "t", configs: Mapping[str, str] | None = None
    ) -> Outcome:
        """Make a topic whose partitions have these replicas."""
        assignments = {n: tuple(map(BrokerId, some)) for n, some in enumerate(replicas)}
        wanted = NewTopic(name, assignments=assignments, configs=configs or {})
        self.made += 1
        return self.ok(CreateTopic(wanted, topic_id(self.made), ONE, seed=self.made))

    def configure(self, name: str = "t", kind: str = "topic", **options: object) -> Outcome:
        told = {key.replace("__", "."): str(value).lower() for key, value in options.items()}
        return self.ok(ChangeConfigs(ConfigChange(kind, name, told)))  # type: ignore[arg-type]

    def partition(self, index: int = 0, *, topic: str = "t") -> PartitionInfo:
        return self.image.topics[topic].partitions[index]

    def change(
        self,
        isr: Sequence[int | tuple[int, int]],
        *,
        index: int = 0,
        topic: str = "t",
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        is_recovering: bool = False,
        is_synced: bool = False,
    ) -> PartitionChange:
        """Return what a leader that knows everything would ask for, unless told."""
        known = self.partition(index, topic=topic)
        pairs = [one if isinstance(one, tuple) else (one, NO_BROKER_EPOCH) for one in isr]
        return PartitionChange(
            topic_id=self.image.topics[topic].topic_id,
            partition=index,
            leader_epoch=LeaderEpoch(known.leader_epoch if leader_epoch is None else leader_epoch),
            partition_epoch=known.partition_epoch if partition_epoch is None else partition_epoch,
            isr=tuple((BrokerId(one), epoch) for one, epoch in pairs),
            is_recovering=is_recovering,
            is_synced=is_synced,
        )

    def alter(self, leader: int, *changes: PartitionChange, epoch: int | None = None) -> Outcome:
        known = self.broker(leader).broker_epoch if epoch is None else epoch
        return self.propose(AlterPartitions(BrokerId(leader), known, changes))

    def alter_one(self, leader: int, change: PartitionChange) -> ErrorCode | None:
        (result,) = self.alter(leader, change).results
        return None if result.refusal is None else result.refusal.code

    def elect(self, kind: ElectionKind, *indexes: int, topic: str = "t") -> list[ErrorCode | None]:
        """Elect leaders of these partitions, or of all if none is named."""
        wanted = {self.image.topics[topic].topic_id: indexes} if indexes else None
        outcome = self.ok(ElectLeaders(kind, wanted))
        return [None if one.refusal is None else one.refusal.code for one in outcome.results]
