"""This node as a broker: from recovered logs to clients that are served, and back.

Not here: the order among the parts of a node (`lifecycle.py`), requests (`kafka/`), and how it
keeps in touch with the controllers (`lifeline.py`).

X1  clients are let in only when the metadata of this life was obeyed and the broker is unfenced
X2  a clean end is claimed only if every log was closed, and for the life that has ended
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from ottla.controller.commands import NO_BROKER_EPOCH
from ottla.controller.door import Door, Registration
from ottla.controller.image import ClientEndpoint, MetadataImage
from ottla.controller.replay import first_state
from ottla.node.broker import Broker
from ottla.node.clock import new_uuid
from ottla.node.cluster import ClusterController
from ottla.node.data import directory_uuid
from ottla.node.housekeeping import Housekeeping
from ottla.node.internal.transactions import RemotePeers, TransactionService
from ottla.node.just_fenced import JustFenced
from ottla.node.kafka.dispatch import Dispatch, warm_up
from ottla.node.kafka.producers import ProducerIds
from ottla.node.lifeline import Lifeline
from ottla.node.logs import logger
from ottla.node.premises import Premises
from ottla.node.reconcile import Reconcile
from ottla.node.replicating import Replication
from ottla.node.wiring import Logs, damaged_in, topic_defaults
from ottla.proto.options import node as rows
from ottla.proto.options.endpoints import is_for_clients
from ottla.replication.log.log import Log
from ottla.replication.replicas import Replicas

_log = logger("node.brokering")

# For requests that wait for the disk when a stop begins.
_DRAIN_ROUND_S: Final = 0.01
_DRAIN_ROUNDS: Final = 500
# For leaders to move to other brokers when a stop begins.
_SHUTDOWN_ROUND_MS: Final = 500
_SHUTDOWN_ROUNDS: Final = 20
_TOLD_MAX: Final = 10


class Brokering:
    """One life of a broker. `start` once, `stop` once."""

    def __init__(
        self,
        premises: Premises,
        logs: Logs,
        doors: Mapping[int, Door],
        *,
        on_death: Callable[[str], None],
        on_prepared: Callable[[], None],
    ) -> None:
        """`on_prepared` is called when all is made, before anybody waits for this broker."""
        self._on_prepared: Final = on_prepared
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
        # First of all listeners: nobody may answer from an image that it has not seen.
        self._just_fenced: Final = JustFenced()
        self.controller.watch(self._note_fenced)
        self.replication: Final = Replication(premises, logs, self.controller, self.lifeline)
        self._reconcile: Final = Reconcile(
            options.node_id, logs.replicas, options, premises.metrics, self.replication.fetchers
        )
        self.broker: Broker | None = None
        self._dispatch: Dispatch | None = None
        self._is_serving = False
        self._housekeeping: Housekeeping | None = None

    @property
    def replicas(self) -> Replicas:
        return self._logs.replicas

    # ── Starting ──────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Become a broker of the cluster and serve clients. Raises what makes that impossible."""
        self._watch_the_disk()
        await self.lifeline.start()
        await self._meet_cluster(await self.lifeline.first_image())
        epoch = await self.lifeline.register()
        await self.controller.following.reached(epoch)
        self.replication.start()
        damaged = self._logs.report.damaged
        await self.controller.join(
            lambda image: self._reconcile.begin(image, damaged), self._reconcile.obey
        )
        # From here on others wait for this broker: what takes long is done before.
        await asyncio.to_thread(warm_up)
        self._prepare()
        self._on_prepared()
        self.lifeline.recovered(damaged_in(self.controller.image, damaged))
        await self.lifeline.unfenced()
        self._tell_lost()
        self._serve()

    async def _note_fenced(self, image: MetadataImage) -> None:
        self._just_fenced.obey(image, self._premises.clock.monotonic_ms())

    def _watch_the_disk(self) -> None:
        """Give up everything that is led here, as soon as the disk fails (rule 48)."""
        manager, loop = self._logs.replicas.manager, asyncio.get_running_loop()

        def on_offline(reason: str) -> None:
            # Told on any thread, also on one that outlives the loop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self.lifeline.want_fence, reason)

        def on_damaged(log: Log, reason: str) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._logs.replicas.fail, log, reason)

        manager.on_offline = on_offline
        manager.on_log_damaged = on_damaged
        if manager.offline is not None:
            self.lifeline.want_fence(manager.offline)

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
        internal = premises.advertised["INTERNAL"]
        endpoints = tuple(
            ClientEndpoint(name, address.host, address.port)
            for name, address in premises.advertised.items()
            if is_for_clients(name)
        )
        known_at, *others = endpoints
        return Registration(
            cluster_id=premises.me.cluster_id,
            broker_id=premises.options.node_id,
            incarnation=premises.me.incarnation,
            directory_id=directory_uuid(premises.data.directory_id),
            boot_id=premises.data.boot_id,
            previous_epoch=NO_BROKER_EPOCH if previous is None else previous,
            host=known_at.host,
            port=known_at.port,
            internal_host=internal.host,
            internal_port=internal.port,
            rack=premises.options.static.value_of(rows.BROKER_RACK) or None,
            endpoints=endpoints if others else (),
        )

    def _prepare(self) -> None:
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
            is_out_of_reach=lambda one: self.replication.fetchers.leaders.get(one) is False,
            lost_for_s=self.replication.fetchers.lost_for_s,
            just_fenced=lambda: self._just_fenced.brokers(premises.clock.monotonic_ms()),
            hurry=self._reconcile.hurry,
            peers=RemotePeers(premises.me, premises.channels, lambda: self.controller.image),
        )
        self.broker = broker
        self._dispatch = Dispatch(broker)
        self._housekeeping = Housekeeping(broker, self._logs.executor)
        self._logs.events.on_role = broker.look
        self.controller.watch(broker.groups.obey)
        self.controller.watch(broker.transactions.obey)
        premises.metrics.watch(broker.groups.readings)
        premises.metrics.watch(broker.transactions.readings)
        premises.internal.add(TransactionService(premises.me, broker, premises.tls).handler)
        broker.groups.start()
        broker.transactions.start()
        premises.listener.serve = self._dispatch.serve

    def _serve(self) -> None:
        self._is_serving = True
        self._premises.listener.start()
        if self._housekeeping is not None:
            self._housekeeping.start()

    # ── Stopping ──────────────────────────────────────────────────────────────────────────────

    async def leave(self) -> None:
        """Give up what is led here, and answer what was asked."""
        if self._dispatch is None or not self._is_serving:
            return
        if self._others_are_active():
            moved = await self._move_leaders()
            _log.info("leaders_moved" if moved else "leaders_not_moved")
        self._premises.listener.drain()
        if self.broker is not None:
            # Those who wait for a group to gather must not hold up the end.
            await self.broker.groups.stop()
            await self.broker.transactions.stop()
        await self._dispatch.stop()
        for _ in range(_DRAIN_ROUNDS):
            if self._premises.listener.is_drained:
                break
            await asyncio.sleep(_DRAIN_ROUND_S)
        await self.replication.stop()

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
        if self.broker is not None:
            await self.broker.groups.stop()
            await self.broker.transactions.stop()
        await self.replication.stop()
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
        if self.replication.trace is not None:
            self.replication.trace.close()
