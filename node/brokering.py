"""This node as a broker: from recovered logs to clients that are served, and back.

Not here: the order among the parts of a node (`lifecycle.py`), requests (`kafka/`), and how it
keeps in touch with the controllers (`lifeline.py`).

X1  clients are let in only when the metadata of this life was obeyed and the broker is unfenced
X2  a clean end is claimed only if every log was closed, and for the life that has ended
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.controller.commands import NO_BROKER_EPOCH
from ottla.controller.door import Door, Registration
from ottla.controller.image import MetadataImage
from ottla.controller.replay import first_state
from ottla.node.broker import Broker
from ottla.node.clock import Clock, new_uuid
from ottla.node.cluster import ClusterController
from ottla.node.data import Data, directory_uuid
from ottla.node.housekeeping import Housekeeping
from ottla.node.internal.identity import WhoIAm
from ottla.node.kafka.dispatch import Dispatch
from ottla.node.kafka.listener import Listener
from ottla.node.kafka.producers import ProducerIds
from ottla.node.lifeline import Lifeline
from ottla.node.logs import logger
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.node.reconcile import Reconcile
from ottla.node.wiring import Logs, damaged_in, topic_defaults
from ottla.proto.options import node as rows
from ottla.proto.options.endpoints import Address
from ottla.replication.replicas import Replicas

_log = logger("node.brokering")

# For requests that wait for the disk when a stop begins.
_DRAIN_ROUND_S: Final = 0.01
_DRAIN_ROUNDS: Final = 500
# For leaders to move to other brokers when a stop begins.
_SHUTDOWN_ROUND_MS: Final = 500
_SHUTDOWN_ROUNDS: Final = 20
_TOLD_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Premises:
    """What a broker needs of its node."""

    options: NodeOptions
    data: Data
    me: WhoIAm
    clock: Clock
    metrics: Metrics
    listener: Listener
    # Where clients and other nodes are told to find this one.
    advertised: Mapping[str, Address]


class Brokering:
    """One life of a broker. `start` once, `stop` once."""

    def __init__(
        self,
        premises: Premises,
        logs: Logs,
        doors: Mapping[int, Door],
        *,
        on_death: Callable[[str], None],
    ) -> None:
        options, clock = premises.options, premises.clock
        self._premises: Final = premises
        self._logs: Final = logs
        self.controller: Final = ClusterController(
            node_id=options.node_id,
            image=first_state(premises.me.cluster_id).image,
            doors=doors,
            check_configs=options.check,
            defaults=lambda: topic_defaults(options),
            new_uuid=new_uuid,
            clock=clock,
        )
        self.lifeline: Final = Lifeline(
            registration=self._registration(),
            doors=doors,
            clock=clock,
            session_ms=lambda: options.current.value_of(rows.BROKER_SESSION_TIMEOUT_MS),
            heartbeat_ms=lambda: options.current.value_of(rows.BROKER_HEARTBEAT_INTERVAL_MS),
            follower=self.controller,
            on_death=on_death,
        )
        self._reconcile: Final = Reconcile(
            options.node_id, logs.replicas, options, premises.metrics
        )
        self.broker: Broker | None = None
        self._dispatch: Dispatch | None = None
        self._housekeeping: Housekeeping | None = None

    @property
    def replicas(self) -> Replicas:
        return self._logs.replicas

    # ── Starting ──────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Become a broker of the cluster and serve clients. Raises what makes that impossible."""
        await self.lifeline.start()
        await self._meet_cluster(await self.lifeline.first_image())
        epoch = await self.lifeline.register()
        await self.controller.following.reached(epoch)
        damaged = self._logs.report.damaged
        await self.controller.join(
            lambda image: self._reconcile.begin(image, damaged), self._reconcile.obey
        )
        self.lifeline.recovered(damaged_in(self.controller.image, damaged))
        await self.lifeline.unfenced()
        self._tell_lost()
        self._serve()

    def _tell_lost(self) -> None:
        """Name what was only on a disk that this node does not have any more."""
        alone = (self._premises.options.node_id,)
        lost = [
            f"{topic.name}-{index}"
            for topic in self.controller.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if partition.replicas == alone and partition.leader is None
        ]
        if lost:
            _log.error(
                "partitions_lost",
                count=len(lost),
                partitions=", ".join(lost[:_TOLD_MAX]),
                why="their only replica was in another data directory of this node",
                hint="bring that directory back, delete the topics, or elect unclean leaders",
            )

    async def _meet_cluster(self, image: MetadataImage) -> None:
        """Go by the cluster that the controllers are of; another than before is refused."""
        premises = self._premises
        await asyncio.to_thread(premises.data.directory.join_cluster, image.cluster_id)
        premises.me.cluster_id = image.cluster_id
        self.lifeline.belongs_to(image.cluster_id)

    def _registration(self) -> Registration:
        premises = self._premises
        report = self._logs.report
        previous = report.clean_broker_epoch
        client, internal = premises.advertised["CLIENT"], premises.advertised["INTERNAL"]
        return Registration(
            cluster_id=premises.me.cluster_id,
            broker_id=premises.options.node_id,
            incarnation=premises.me.incarnation,
            directory_id=directory_uuid(premises.data.directory_id),
            boot_id=premises.data.boot_id,
            previous_epoch=NO_BROKER_EPOCH if previous is None else previous,
            host=client.host,
            port=client.port,
            internal_host=internal.host,
            internal_port=internal.port,
            rack=premises.options.static.value_of(rows.BROKER_RACK) or None,
        )

    def _serve(self) -> None:
        premises = self._premises
        broker = Broker(
            node_id=premises.options.node_id,
            cluster_id=premises.me.cluster_id,
            options=premises.options,
            controller=self.controller,
            replicas=self._logs.replicas,
            producer_ids=ProducerIds(self.controller.take_producer_ids),
            clock=premises.clock,
            metrics=premises.metrics,
            data_dir=premises.data.root,
            is_heard=lambda: self.lifeline.is_heard(premises.clock.monotonic_ms()),
        )
        self.broker = broker
        self._dispatch = Dispatch(broker)
        self._housekeeping = Housekeeping(broker, self._logs.executor)
        premises.listener.serve = self._dispatch.serve
        premises.listener.start()
        self._housekeeping.start()

    # ── Stopping ──────────────────────────────────────────────────────────────────────────────

    async def leave(self) -> None:
        """Give up what is led here, and answer what was asked."""
        if self._dispatch is None:
            return
        if self._others_are_active():
            moved = await self._move_leaders()
            _log.info("leaders_moved" if moved else "leaders_not_moved")
        self._premises.listener.drain()
        await self._dispatch.stop()
        for _ in range(_DRAIN_ROUNDS):
            if self._premises.listener.is_drained:
                return
            await asyncio.sleep(_DRAIN_ROUND_S)

    async def _move_leaders(self) -> bool:
        """Ask to be relieved, for as long as an active controller is there to do it."""
        clock = self._premises.clock
        for _ in range(_SHUTDOWN_ROUNDS):
            if await self.lifeline.shut_down(_SHUTDOWN_ROUND_MS):
                return True
            if not self.lifeline.is_heard(clock.monotonic_ms()):
                return False
        return False

    def _others_are_active(self) -> bool:
        brokers = self.controller.image.brokers.values()
        return any(one.is_active for one in brokers if one.broker_id != self._premises.me.node_id)

    async def stop(self, *, is_clean: bool) -> None:
        """Let go of everything, with the proof of a clean end if it is one (X2)."""
        self._premises.listener.stop()
        await self.lifeline.stop()
        await self.controller.close()
        if self._housekeeping is not None:
            await self._housekeeping.stop()
        await self._logs.replicas.close()
        epoch = self.lifeline.broker_epoch
        if epoch is None:
            # No life has begun, so nothing was written since the last one ended.
            epoch = self._logs.report.clean_broker_epoch
        if not is_clean:
            epoch = None
        await asyncio.to_thread(self._logs.close, broker_epoch=epoch)
