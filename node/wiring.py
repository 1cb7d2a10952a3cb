"""Where the real things of a broker are joined: disk, metadata, logs, requests.

`open_logs` takes what blocks (recovery, the first look at everything on disk) and may run on a
thread; nothing else has begun then.

Not here: the order of a start and a stop (`lifecycle.py`), the controller (`voter.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from ottla.controller.commands import Partitions
from ottla.controller.image import MetadataImage
from ottla.controller.port import TopicDefaults
from ottla.node.clock import Clock
from ottla.node.data import Data
from ottla.node.events import NodeEvents
from ottla.node.kafka.listener import ListenerSettings
from ottla.node.logs import logger
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset, TopicPartition
from ottla.proto.kafka.uuids import UUID
from ottla.proto.options import node
from ottla.replication.inspect.state_file import STATE_NAME
from ottla.replication.log.group_commit import GroupCommit
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager, StartReport
from ottla.replication.log.sync_kernel import KernelSyncs
from ottla.replication.log.sync_threads import SyncThreads
from ottla.replication.replicas import Replicas
from ottla.replication.settings import LogSettings
from ottla.replication.storage.kernel_aio import open_kernel_aio
from ottla.replication.storage.ports import StateStore
from ottla.replication.surroundings import Surroundings

_log = logger("node.wiring")

# Syncs of different partitions run side by side; more threads than this only wait for the disk.
_SYNC_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Logs:
    """All the logs of a data directory, open, and what has to be closed again."""

    replicas: Replicas
    report: StartReport
    store: StateStore
    executor: ThreadPoolExecutor
    threads: SyncThreads
    # None: this kernel syncs nothing by itself.
    kernel: KernelSyncs | None
    # Told what becomes of replicas.
    events: NodeEvents

    def close(self, *, broker_epoch: int | None) -> None:
        """Let go of everything; with a broker epoch, leave the marker of a clean stop of it."""
        if broker_epoch is not None:
            self.replicas.manager.close(broker_epoch=broker_epoch)
        self.executor.shutdown()
        self.threads.shutdown()
        if self.kernel is not None:
            self.kernel.close()
        self.store.close()


def open_logs(options: NodeOptions, data: Data, *, clock: Clock, metrics: Metrics) -> Logs:
    """Open and recover every log; raises `StorageError`.

    The metadata is not known yet, so logs open with this node's defaults. They obey the options of
    their topics from the first image on.
    """
    store = data.storage.open_store(f"{data.root}/{STATE_NAME}")
    executor = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="work")
    threads = SyncThreads(_SYNC_THREADS)
    door = open_kernel_aio()
    kernel = None if door is None else KernelSyncs(door)
    if kernel is None:
        _log.info(
            "syncs_by_threads", why="the kernel offers no io_submit here, or a sandbox hides it"
        )

    def settings_of(_: str) -> LogSettings:
        return options.log_settings({})

    def make_syncs(
        log: Log,
        on_synced: Callable[[Offset], None],
        on_failed: Callable[[StorageError], None],
    ) -> GroupCommit:
        observe = metrics.fsync.observe
        return GroupCommit(
            log, threads, on_synced, on_failed=on_failed, observe=observe, kernel=kernel
        )

    manager = LogManager(data.storage.files, store, data.root, settings_of)
    events = NodeEvents()
    around = Surroundings(
        me=options.node_id,
        now_ms=clock.monotonic_ms,
        wall_ms=clock.now_ms,
        lag_ms=lambda: options.current.value_of(node.REPLICA_LAG_MAX_MS),
        make_syncs=make_syncs,
        events=events,
    )
    replicas = Replicas(manager, executor, around)
    report = manager.open(now_ms=clock.now_ms())
    return Logs(replicas, report, store, executor, threads, kernel, events)


def damaged_in(image: MetadataImage, damaged: Mapping[TopicPartition, str]) -> Partitions:
    """Return which of the cluster's partitions this disk does not hold as it should (rule 8)."""
    found: dict[UUID, list[int]] = {}
    for partition in damaged:
        topic = image.topic(partition.topic)
        if topic is not None and partition.partition < len(topic.partitions):
            found.setdefault(topic.topic_id, []).append(partition.partition)
    return {topic_id: tuple(sorted(indexes)) for topic_id, indexes in found.items()}


def topic_defaults(options: NodeOptions) -> TopicDefaults:
    current = options.current
    return TopicDefaults(
        current.value_of(node.NUM_PARTITIONS), current.value_of(node.DEFAULT_REPLICATION_FACTOR)
    )


def listener_settings(options: NodeOptions) -> ListenerSettings:
    of = options.current.value_of
    return ListenerSettings(
        request_bytes_max=of(node.SOCKET_REQUEST_MAX_BYTES),
        connections_max=of(node.MAX_CONNECTIONS),
        connections_per_host_max=of(node.MAX_CONNECTIONS_PER_IP),
        idle_ms_max=of(node.CONNECTIONS_MAX_IDLE_MS),
        receive_bytes_max=of(node.QUEUED_MAX_REQUEST_BYTES),
    )
