"""Where the real things are joined: disk, clock, metadata, logs, listeners.

`open_broker` takes what blocks (recovery, the first look at everything on disk) and may run on a
thread; nothing else has begun then.

Not here: the order of a start and a stop (`lifecycle.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.controller.image import BrokerInfo
from ottla.controller.port import TopicDefaults
from ottla.controller.solo import SoloController
from ottla.node.broker import Broker
from ottla.node.clock import Clock, new_id, new_uuid
from ottla.node.kafka.listener import ListenerSettings
from ottla.node.kafka.producers import ProducerIds
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.node.reconcile import Reconcile
from ottla.proto.ids import BrokerId
from ottla.proto.options import node
from ottla.proto.options.endpoints import Address
from ottla.replication.inspect.state_file import STATE_NAME
from ottla.replication.log.manager import LogManager, StartReport
from ottla.replication.replicas import Replicas
from ottla.replication.settings import LogSettings
from ottla.replication.storage.directory import DataDirectory
from ottla.replication.storage.open import open_storage
from ottla.replication.storage.ports import StateStore

METADATA_NAME: Final = "metadata"
# Syncs of different partitions run side by side; more threads than this only wait for the disk.
_SYNC_THREADS: Final = 8


@dataclass(slots=True)
class Opened:
    """A data directory with everything in it open, and what has to be closed again."""

    broker: Broker
    reconcile: Reconcile
    report: StartReport
    directory: DataDirectory
    stores: tuple[StateStore, ...]
    executor: ThreadPoolExecutor
    controller: SoloController

    def close(self) -> None:
        """Leave the marker of a clean stop, and let go of everything."""
        self.broker.replicas.manager.close(broker_epoch=self.controller.image.version)
        self.executor.shutdown()
        for store in self.stores:
            store.close()
        self.directory.close()


def data_dir_of(options: NodeOptions) -> str:
    (path,) = options.static.value_of(node.LOG_DIRS)
    return str(Path(path).absolute())


def open_broker(
    options: NodeOptions,
    advertised: Address,
    environ: Mapping[str, str],
    *,
    clock: Clock,
    metrics: Metrics,
) -> Opened:
    """Open the data directory and recover what is in it; raises `StorageError`, `ConfigError`."""
    root = data_dir_of(options)
    Path(root).parent.mkdir(parents=True, exist_ok=True)
    storage = open_storage(root, environ)
    node_id = BrokerId(options.static.value_of(node.NODE_ID))
    directory = DataDirectory.open(
        storage.files,
        root,
        node_id=node_id,
        cluster_id=None,
        strict=options.static.value_of(node.STRICT_DATA_DIR),
        new_id=new_id,
    )
    if directory.identity.cluster_id is None:
        directory.join_cluster(new_id())
    cluster_id = directory.identity.cluster_id
    assert cluster_id is not None
    metadata_store = storage.open_store(f"{root}/{METADATA_NAME}")
    controller = SoloController(
        metadata_store,
        cluster_id=cluster_id,
        broker=BrokerInfo(node_id, advertised.host, advertised.port),
        check_configs=options.check,
        defaults=lambda: _defaults(options),
        new_uuid=new_uuid,
    )
    options.adopt(controller.image)
    state_store = storage.open_store(f"{root}/{STATE_NAME}")
    executor = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="sync")

    def settings_of(topic: str) -> LogSettings:
        info = controller.image.topic(topic)
        return options.log_settings({} if info is None else info.configs)

    manager = LogManager(storage.files, state_store, root, settings_of)
    replicas = Replicas(manager, executor, observe_sync=metrics.fsync.observe)
    reconcile = Reconcile(node_id, replicas, options, metrics)
    report = manager.open(now_ms=clock.now_ms())
    broker = Broker(
        node_id=node_id,
        cluster_id=cluster_id,
        options=options,
        controller=controller,
        replicas=replicas,
        producer_ids=ProducerIds(controller.take_producer_ids),
        clock=clock,
        metrics=metrics,
        data_dir=root,
    )
    return Opened(
        broker, reconcile, report, directory, (metadata_store, state_store), executor, controller
    )


def _defaults(options: NodeOptions) -> TopicDefaults:
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
