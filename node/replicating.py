"""Everything that makes a broker keep copies: streams to leaders and from followers, in-sync sets,
and what is given up.

Not here: which partitions lead and follow (`reconcile.py`), and each of the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.node.cluster import ClusterController
from ottla.node.damage import DamageReporter
from ottla.node.fetchers import Fetchers
from ottla.node.internal.replication_service import ReplicationService
from ottla.node.internal.replication_stream import Follower
from ottla.node.isr import IsrKeeper
from ottla.node.lifeline import Lifeline
from ottla.node.premises import Premises
from ottla.node.replication_counts import CountedFeeder, CountedPuller, IsrCounts
from ottla.node.stream_counts import REPLICATION, StreamCount
from ottla.node.trace import TellsBoth, open_trace
from ottla.node.wiring import Logs
from ottla.proto.ids import INT32_MAX, BrokerId
from ottla.proto.options import node as rows
from ottla.replication.feeding import Feeder
from ottla.replication.pulling import Puller
from ottla.replication.replica import Replica

NO_LIFE: Final = -1
# Of an answer: the first batch in it is whole, and may be as large as it once was allowed to be.
# One that was not taken would hold up every partition of that leader.
ANSWER_BYTES_MAX: Final = INT32_MAX


class Replication:
    """The parts of one broker that copy. `start` once; `stop` may be called again."""

    def __init__(
        self, premises: Premises, logs: Logs, controller: ClusterController, lifeline: Lifeline
    ) -> None:
        self._premises: Final = premises
        self._logs: Final = logs
        self._lifeline: Final = lifeline
        self._has_started = self._is_stopped = False
        options, now_ms = premises.options, premises.clock.monotonic_ms
        self.trace: Final = open_trace(options, premises.clock)
        counts = IsrCounts(premises.metrics.replication)
        if self.trace is not None:
            logs.events.trace = self.trace
            controller.watch(self.trace.obey)
        self.keeper: Final = IsrKeeper(
            options.node_id,
            controller.asking,
            broker_epoch=lambda: lifeline.broker_epoch,
            now_ms=now_ms,
            replicas=lambda: tuple(logs.replicas),
            lag_ms=lambda: options.current.value_of(rows.REPLICA_LAG_MAX_MS),
            listener=counts if self.trace is None else TellsBoth(counts, self.trace),
        )
        self.damage: Final = DamageReporter(
            options.node_id,
            controller,
            broker_epoch=lambda: lifeline.broker_epoch,
            is_offline=lambda: logs.replicas.manager.offline is not None,
        )
        controller.watch(self.damage.obey)
        logs.events.on_isr_wanted = self.keeper.wanted
        logs.events.on_failed = self._on_failed
        self.fetchers: Final = Fetchers(
            Follower(
                me=premises.me,
                channels=premises.channels,
                broker_epoch=self._broker_epoch,
                now_ms=now_ms,
                receive_bytes_max=lambda: ANSWER_BYTES_MAX,
                count_of=self._stream_to,
            ),
            self._make_puller,
        )
        self._service: Final = ReplicationService(
            me=premises.me,
            make_feeder=self._make_feeder,
            is_broker=lambda one: one in controller.image.brokers,
            now_ms=now_ms,
            verifier=premises.tls,
            where=lambda: premises.advertised["REPLICATION"],
        )

    def start(self) -> None:
        self._has_started = True
        self._premises.entrance.start(self._service.redeem)
        self._premises.internal.add(self._service.handler)
        self.keeper.start()

    async def stop(self) -> None:
        """Copy nothing any more."""
        if self._is_stopped or not self._has_started:
            return
        self._is_stopped = True
        await self._premises.entrance.stop()
        await self._service.stop()
        await self.fetchers.stop()
        await self.keeper.stop()
        await self.damage.close()

    def _broker_epoch(self) -> int:
        epoch = self._lifeline.broker_epoch
        return NO_LIFE if epoch is None else epoch

    def _on_failed(self, replica: Replica, why: str) -> None:
        self.damage.report(replica.partition, replica.topic_id, why)

    def _make_puller(self, leader: BrokerId, wake: Callable[[], None]) -> Puller:
        return CountedPuller(
            self._premises.metrics.replication,
            leader,
            broker_epoch=self._broker_epoch,
            now_ms=self._premises.clock.monotonic_ms,
            wake=wake,
            stream=self._stream_to(leader),
        )

    def _stream_to(self, leader: BrokerId) -> StreamCount:
        return self._premises.metrics.streams.of(REPLICATION, leader)

    def _make_feeder(
        self, follower: BrokerId, wake: Callable[[], None], look: Callable[[], None]
    ) -> Feeder:
        current = self._premises.options
        return CountedFeeder(
            self._premises.metrics.replication,
            follower,
            self._logs.replicas.by_id,
            bytes_max=lambda: current.current.value_of(rows.REPLICA_FETCH_RESPONSE_MAX_BYTES),
            wait_ms=lambda: current.current.value_of(rows.REPLICA_FETCH_WAIT_MAX_MS),
            now_ms=self._premises.clock.monotonic_ms,
            wake=wake,
            look=look,
        )
