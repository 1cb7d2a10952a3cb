"""A broker at a desk: real parts, a disk in memory, no socket. A test hands requests over the desk.

What is asked goes through the codec both ways, so that a field which a version does not have cannot
be relied on. `stage.py` is smaller: a broker without logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from ottla.controller.port import NewTopic, TopicDefaults
from ottla.node.broker import Broker
from ottla.node.clock import Clock
from ottla.node.kafka import (
    configs,
    group_admin,
    group_offsets,
    groups,
    logdirs,
    offsets,
    producers,
    transaction_admin,
    transaction_offsets,
    transactions,
)
from ottla.node.kafka.producers import ProducerIds
from ottla.node.kafka.requests import Handler, Request
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.node.reconcile import Reconcile
from ottla.proto.ids import BrokerId
from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import ApiRow
from ottla.proto.kafka.decode import decode_request, decode_response
from ottla.proto.kafka.encode import encode_request, encode_response
from ottla.proto.kafka.framing import RequestHead
from ottla.proto.options.load import load
from ottla.replication.log.manager import LogManager
from ottla.replication.replica import Replica
from ottla.replication.replicas import Replicas
from ottla.replication.settings import LogSettings
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from tests.builders import NOW_MS
from tests.replicas import all_synced, catch_up, surroundings
from tests.unit.node.kafka.one_door import CLUSTER_ID, Cluster, OneDoor
from tests.unit.node.kafka.stage import CountedIds
from tests.unit.node.nobody_fetches import NobodyFetches

ROOT: Final = "/data"
T = TypeVar("T")

HANDLERS: dict[ApiRow, Handler] = {
    apis.DESCRIBE_CONFIGS: configs.describe_configs,
    apis.ALTER_CONFIGS: configs.alter_configs,
    apis.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    apis.LIST_CONFIG_RESOURCES: configs.list_config_resources,
    apis.LIST_OFFSETS: offsets.list_offsets,
    apis.OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
    apis.DELETE_RECORDS: offsets.delete_records,
    apis.INIT_PRODUCER_ID: producers.init_producer_id,
    apis.DESCRIBE_PRODUCERS: producers.describe_producers,
    apis.DESCRIBE_LOG_DIRS: logdirs.describe_log_dirs,
    apis.FIND_COORDINATOR: groups.find_coordinator,
    apis.JOIN_GROUP: groups.join_group,
    apis.SYNC_GROUP: groups.sync_group,
    apis.HEARTBEAT: groups.heartbeat,
    apis.LEAVE_GROUP: groups.leave_group,
    apis.OFFSET_COMMIT: group_offsets.offset_commit,
    apis.OFFSET_FETCH: group_offsets.offset_fetch,
    apis.OFFSET_DELETE: group_offsets.offset_delete,
    apis.LIST_GROUPS: group_admin.list_groups,
    apis.DESCRIBE_GROUPS: group_admin.describe_groups,
    apis.DELETE_GROUPS: group_admin.delete_groups,
    apis.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    apis.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
    apis.END_TXN: transactions.end_txn,
    apis.WRITE_TXN_MARKERS: transactions.write_txn_markers,
    apis.TXN_OFFSET_COMMIT: transaction_offsets.txn_offset_commit,
    apis.DESCRIBE_TRANSACTIONS: transaction_admin.describe_transactions,
    apis.LIST_TRANSACTIONS: transaction_admin.list_transactions,
}


class StillClock(Clock):
    """Every record is written at the same moment, unless a test moves it."""

    def __init__(self) -> None:
        self.moved_ms = 0

    def now_ms(self) -> int:
        return NOW_MS + self.moved_ms


class Desk:
    """One broker, and how to ask it."""

    def __init__(self, broker: Broker, runner: asyncio.Runner, door: OneDoor) -> None:
        self.broker = broker
        self._runner = runner
        self._door = door

    @property
    def cluster(self) -> Cluster:
        """What the controllers decide; `tell` lets this broker obey it."""
        return self._door.cluster

    def tell(self) -> None:
        self.run(self.tell_soon())

    async def tell_soon(self) -> None:
        await self._door.tell()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def ask(self, row: ApiRow, version: int, **fields: Any) -> dict[str, Any]:
        """Return the answer's fields, as a client of that version reads them."""
        return self.run(self.asked(row, version, **fields))

    async def asked(self, row: ApiRow, version: int, **fields: Any) -> dict[str, Any]:
        body = decode_request(row, version, encode_request(row, version, fields))
        head = RequestHead(row.key, version, 1, "test", 0)
        answer = await HANDLERS[row](
            self.broker, Request(head, row, version, body, "127.0.0.1", "CLIENT")
        )
        read = decode_response(row, version, encode_response(row, version, answer))
        return read.as_dict()

    def create(self, name: str, partitions: int = 1, **options: str) -> None:
        given = {key.replace("_", "."): text for key, text in options.items()}
        wanted = NewTopic(name, partitions, 1, configs=given)
        (made,) = self.run(self.broker.controller.create_topics([wanted], validate_only=False))
        if isinstance(made, Exception):
            raise made

    def replica(self, topic: str, index: int = 0) -> Replica:
        found = self.broker.replicas.get(topic, index)
        assert found is not None
        return found

    def write(self, topic: str, *batches: bytes) -> Replica:
        """Append batches, and let them be committed."""
        replica = self.write_only(topic, *batches)
        self.run(all_synced(replica))
        return replica

    def write_only(self, topic: str, *batches: bytes) -> Replica:
        """Append batches that nobody syncs, and that are not committed therefore."""
        replica = self.replica(topic)
        log = replica.log
        if log.epochs.latest != replica.leader_epoch:
            log.assign_epoch(replica.leader_epoch)
        for batch in batches:
            log.append_as_leader(batch, epoch=replica.leader_epoch, now_ms=NOW_MS)
        return replica

    def copy(self, topic: str, *followers: int) -> None:
        """Play followers that have fetched everything, and hold it."""
        replica = self.replica(topic)
        for one in followers:
            epoch = self.cluster.broker(one).broker_epoch
            catch_up(replica, BrokerId(one), broker_epoch=epoch)


class Place:
    """What is left of a broker when it stops: its files and its memory beside them."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.files.make_dir(ROOT)
        self.states = MemoryStateStore()
        self.cluster = Cluster()
        self.new_uuid = CountedIds()


@contextmanager
def open_desk(place: Place | None = None, **flags: str) -> Iterator[Desk]:
    """Open a broker; one that is opened at the place of another finds what that one left."""
    place = place or Place()
    given = {key.replace("_", "."): text for key, text in flags.items()}
    options = NodeOptions(load(flags={"log.dirs": ROOT, **given}))
    metrics = Metrics(version="test")
    door = OneDoor(place.cluster, options.node_id)
    controller = door.open(
        check_configs=options.check,
        defaults=lambda: TopicDefaults(1, 1),
        new_uuid=place.new_uuid,
        clock=StillClock(),
    )

    def settings_of(topic: str) -> LogSettings:
        info = controller.image.topic(topic)
        return options.log_settings({} if info is None else info.configs)

    manager = LogManager(place.files, place.states, ROOT, settings_of)
    report = manager.open(now_ms=NOW_MS)
    with ThreadPoolExecutor(1) as executor, asyncio.Runner() as runner:
        replicas = Replicas(manager, executor, surroundings(executor, me=options.node_id))
        reconcile = Reconcile(options.node_id, replicas, options, metrics, NobodyFetches())
        broker = Broker(
            node_id=options.node_id,
            cluster_id=CLUSTER_ID,
            options=options,
            controller=controller,
            replicas=replicas,
            producer_ids=ProducerIds(controller.take_producer_ids),
            clock=StillClock(),
            metrics=metrics,
            data_dir=ROOT,
        )
        runner.run(door.tell())
        runner.run(reconcile.begin(controller.image, report.damaged))
        controller.watch(reconcile.obey)
        controller.watch(broker.groups.obey)
        controller.watch(broker.transactions.obey)
        runner.run(broker.groups.obey(controller.image))
        runner.run(broker.transactions.obey(controller.image))
        try:
            yield Desk(broker, runner, door)
        finally:
            runner.run(broker.groups.stop())
            runner.run(broker.transactions.stop())
            runner.run(replicas.close())
            manager.close(broker_epoch=1)
