"""The life of a node: starting, joining its cluster, serving, stopping.

The order of a start:
  1. take the addresses, so that a second node is refused before it touches anything
  2. tell about health; take the data directory; answer other nodes who this is
  3. at the same time: recover every log, and become a member of the quorum
  4. follow the metadata, register as a broker, make the partitions what the metadata says
  5. be unfenced; only then let clients in

A stop goes the other way round: leaders move first, requests are answered, logs closed, and the
marker that proves a clean end is written last.

Not here: this node as a controller (`voter.py`) and as a broker (`brokering.py`).
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from ottla.controller.door import Door
from ottla.controller.election import min_insync_of
from ottla.controller.quorum.port import Role
from ottla.node.brokering import Brokering
from ottla.node.clock import new_uuid
from ottla.node.data import Data, data_dir_of, open_data
from ottla.node.digest import digest_pages
from ottla.node.facts import (
    BrokerFacts,
    QuorumFacts,
    broker_readings,
    forming_facts,
    quorum_facts,
    quorum_readings,
)
from ottla.node.http import HttpListener
from ottla.node.internal.channels import Channels, detours_from_environment
from ottla.node.internal.entrance import Entrance
from ottla.node.internal.identity import WhoIAm, identity_handler, quorum_service
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.probe import Probe
from ottla.node.internal.remote import RemoteDoor
from ottla.node.internal.service import cluster_handlers
from ottla.node.internal.tls import Tls
from ottla.node.kafka.connection import Connection
from ottla.node.kafka.listener import Listener
from ottla.node.logs import logger
from ottla.node.metrics import Metrics, Reading, stream_readings
from ottla.node.misplaced import find_double
from ottla.node.options import NodeOptions
from ottla.node.premises import Premises
from ottla.node.process import disk_readings, process_readings
from ottla.node.readiness import NodeFacts, conditions_of
from ottla.node.sabotage import Sabotage
from ottla.node.status import (
    NodeStatus,
    PartitionStatus,
    cluster_readings,
    directory_readings,
    node_readings,
    pages,
    partition_statuses,
    replica_readings,
    tells_each,
)
from ottla.node.voter import QUORUM_NAME, Surroundings, Voter
from ottla.node.wiring import Logs, listener_settings, open_logs
from ottla.proto.errors import ConfigError, InvariantError, OttlaError, StorageError
from ottla.proto.options import node as node_rows
from ottla.proto.options.endpoints import Address, ListenerName
from ottla.proto.options.load import advertised_of, client_listeners_of, listeners_of

_log = logger("node.lifecycle")

# Where a running node says where it listens, for whoever gave it port 0.
ADDRESSES_NAME: Final = ".addresses.json"
_GC_THRESHOLDS: Final = (10_000, 20, 20)
# Supervisors send one signal to a process and to its group: the same at once is no impatience.
_IMPATIENT_MS: Final = 200
EXIT_STOPPED: Final = 0
EXIT_BUG: Final = 70


class Phase(Enum):
    """How far a node has come; only one that serves is ready."""

    STARTING = "starting"
    FORMING = "meeting the other voters"
    RECOVERING = "recovering its logs"
    JOINING = "registering with the controllers"
    SERVING = "serving"
    STOPPING = "stopping"


class Node:
    """One node of a cluster, from its first breath to its last. `run` once."""

    def __init__(
        self,
        options: NodeOptions,
        environ: Mapping[str, str],
        *,
        version: str,
        on_serving: Callable[[Node], None] = lambda node: None,
    ) -> None:
        self.options: Final = options
        self._environ: Final = environ
        self._version: Final = version
        self._on_serving: Final = on_serving
        self._sabotage: Final = Sabotage(environ)
        self._clock: Final = self._sabotage.clock
        self._metrics: Final = Metrics(version=version)
        self._began_ms: Final = self._clock.monotonic_ms()
        self._me: Final = WhoIAm(options.node_id, new_uuid())
        self._roles: Final = options.static.value_of(node_rows.PROCESS_ROLES)
        self._phase = Phase.STARTING
        self._internal: InternalListener | None = None
        self._voter: Voter | None = None
        self._brokering: Brokering | None = None
        self._stopping: Final = asyncio.Event()
        self._signalled_ms: int | None = None
        self._exit_code = EXIT_STOPPED
        self._fatal: OttlaError | None = None
        self.addresses: dict[str, Address] = {}

    @property
    def is_broker(self) -> bool:
        return "broker" in self._roles

    # -- what the pages show ---------------------------------------------------------------------

    def status(self) -> NodeStatus:
        brokering, facts = self._brokering, self._facts()
        return NodeStatus(
            node_id=self.options.node_id,
            cluster_id=self._me.cluster_id,
            version=self._version,
            roles=self._roles,
            listeners={name: str(address) for name, address in self.addresses.items()},
            uptime_ms=self._clock.monotonic_ms() - self._began_ms,
            partition_count=0 if brokering is None else len(brokering.replicas),
            conditions=conditions_of(facts),
            quorum=facts.quorum,
            broker=facts.broker,
        )

    def _facts(self) -> NodeFacts:
        brokering, broker = self._brokering, self._broker_facts()
        offline = None if brokering is None else brokering.replicas.manager.offline
        return NodeFacts(
            # From the signal on, before anything has been given away.
            is_stopping=self._stopping.is_set(),
            offline=offline if broker is None else offline or broker.fence_reason,
            is_recovered=brokering is not None,
            is_listening=self._phase is Phase.SERVING,
            quorum=self._quorum_facts(),
            broker=broker,
        )

    def _quorum_facts(self) -> QuorumFacts | None:
        if self._voter is None:
            return None
        status = self._voter.status
        if status is None:
            trouble = self._voter.introductions.refusal
            return forming_facts(self._voter.voters, self._voter.missing, trouble)
        return quorum_facts(status, self._voter.drops, self._clock.monotonic_ms())

    def _broker_facts(self) -> BrokerFacts | None:
        if self._brokering is None:
            return BrokerFacts() if self.is_broker else None
        return self._brokering.lifeline.facts()

    def partitions(self) -> Iterable[PartitionStatus]:
        if self._brokering is None:
            return ()
        image = self._brokering.controller.image
        return partition_statuses(self._brokering.replicas, image, self._isr_min_of)

    def _isr_min_of(self, topic: str) -> int:
        assert self._brokering is not None
        image = self._brokering.controller.image
        info = image.topic(topic)
        return 1 if info is None else min_insync_of(image, info)

    def _readings(self) -> Iterable[Reading]:
        node = self.status()
        quorum, broker = node.quorum, node.broker
        yield from node_readings(node)
        yield from stream_readings(self._metrics.streams, self._clock.monotonic_ms())
        if quorum is not None:
            yield from quorum_readings(quorum)
            yield from self._metrics.controller.readings()
        if self._voter is not None and (image := self._voter.image) is not None:
            leads = quorum is not None and quorum.role == Role.LEADER.value
            yield from cluster_readings(node.node_id, image, leads=leads)
        if broker is not None:
            yield from broker_readings(broker)
        if self._brokering is not None:
            yield from directory_readings(self._brokering.replicas.manager.offline)
            yield from replica_readings(
                node.node_id, self.partitions(), tells_each=tells_each(node.partition_count)
            )

    # -- the life --------------------------------------------------------------------------------

    async def run(self) -> int:
        """Live until told to stop; return the exit code. Raises `ConfigError`, `StorageError`."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_bug)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        self._sabotage.listen()
        async with AsyncExitStack() as parts:
            starting = asyncio.create_task(self._start(parts))
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                # A first start may wait for other voters for as long as it takes.
                starting.cancel()
            await asyncio.wait((starting,))
            stopping.cancel()
            if not starting.cancelled():
                # Raises what the start has met.
                starting.result()
                await self._stopping.wait()
            self._phase = Phase.STOPPING
            _log.info("node_stopping")
            if self._brokering is not None and self._ends_well:
                await self._brokering.leave()
            if self._internal is not None:
                # Before the lines to the controllers: whoever probes must find nobody here.
                await self._internal.stop()
            if self._voter is not None:
                await self._voter.leave()
        if self._fatal is not None:
            raise self._fatal
        if self._exit_code == EXIT_STOPPED:
            _log.info("node_stopped")
        return self._exit_code

    @property
    def _ends_well(self) -> bool:
        return self._exit_code == EXIT_STOPPED and self._fatal is None

    async def _start(self, parts: AsyncExitStack) -> None:
        wanted = listeners_of(self.options.static)
        tls = Tls.from_options(self.options.static)
        listener = self._make_listener(client_listeners_of(self.options.static))
        parts.callback(listener.stop)
        entrance = Entrance(wanted["REPLICATION"], tls)
        parts.push_async_callback(entrance.stop)
        if self.is_broker:
            self.addresses.update(listener.bind())
        internal = InternalListener(wanted["INTERNAL"], tls)
        self.addresses["INTERNAL"] = internal.bind()
        self._internal = internal
        parts.push_async_callback(internal.stop)
        digests = digest_pages(
            self.options.node_id,
            lambda: None if self._brokering is None else self._brokering.replicas,
        )
        routes = pages(self, self._metrics) | digests
        http = HttpListener(wanted["HTTP"], routes, self._clock)
        self.addresses["HTTP"] = await http.start()
        parts.push_async_callback(http.stop)
        if self.is_broker:
            # Last: mostly at any free port, which is to be none that another listener wants.
            self.addresses["REPLICATION"] = entrance.bind()
        self._metrics.watch(self._readings)
        self._metrics.watch(process_readings)
        data = await asyncio.to_thread(open_data, self.options, self._environ)
        parts.callback(data.close)
        self._sabotage.reach(data.storage.plan)
        self._metrics.watch(lambda: disk_readings(data.root))
        channels = Channels(tls, detours_from_environment(self._environ))
        parts.push_async_callback(channels.close)
        self._me.cluster_id = data.directory.identity.cluster_id or ""
        internal.add(quorum_service(identity_handler(self._me)))
        await internal.start()
        await self._join(parts, _Base(data, channels, internal, entrance, listener, tls))
        if not self.is_broker:
            self._settle_memory()
        self._phase = Phase.SERVING
        self._tell_addresses()
        self._on_serving(self)

    def _make_listener(self, addresses: Mapping[ListenerName, Address]) -> Listener:
        return Listener(
            addresses,
            lambda: listener_settings(self.options),
            self._serve_frame,
            clock=self._clock,
            metrics=self._metrics,
        )

    def _serve_frame(self, connection: Connection, frame: memoryview) -> None:
        raise InvariantError("no client is let in before the node serves")

    async def _join(self, parts: AsyncExitStack, base: _Base) -> None:
        """Become what `process.roles` says: a voter, a broker, or both."""
        opening: asyncio.Task[Logs] | None = None
        if self.is_broker:
            opening = asyncio.create_task(
                asyncio.to_thread(
                    open_logs, self.options, base.data, clock=self._clock, metrics=self._metrics
                )
            )
            parts.push_async_callback(self._close_unused, opening)
        self._phase = Phase.FORMING
        doors = await self._find_controllers(parts, base)
        if opening is None:
            return
        self._phase = Phase.RECOVERING
        # What is being recovered is not let go of half-way, whoever gives up.
        logs = await asyncio.shield(opening)
        _tell_recovery(logs)
        self._phase = Phase.JOINING
        self._brokering = Brokering(
            self._premises(base),
            logs,
            doors,
            on_death=lambda why: self._on_end(ConfigError(why)),
            on_prepared=self._settle_memory,
        )
        parts.push_async_callback(self._stop_brokering)
        await self._brokering.start()

    async def _close_unused(self, opening: asyncio.Task[Logs]) -> None:
        """Close logs that were opened for a start that was given up."""
        (outcome,) = await asyncio.gather(opening, return_exceptions=True)
        if self._brokering is None and isinstance(outcome, Logs):
            # Nothing was written since the last stop, so what that proved is still true.
            epoch = outcome.report.clean_broker_epoch
            await asyncio.to_thread(outcome.close, broker_epoch=epoch)

    async def _stop_brokering(self) -> None:
        assert self._brokering is not None
        await self._brokering.stop(is_clean=self._ends_well)

    async def _find_controllers(self, parts: AsyncExitStack, base: _Base) -> dict[int, Door]:
        """Return the doors of all controllers; where this node is one, become it first."""
        given = self.options.static.value_of(node_rows.CONTROLLER_VOTERS)
        voters = {int(one.node_id): one.address for one in given}
        voters = voters or {self.options.node_id: self.addresses["INTERNAL"]}
        doors: dict[int, Door] = {
            key: RemoteDoor(key, address, base.channels, cluster_id=lambda: self._me.cluster_id)
            for key, address in voters.items()
            if key != self.options.node_id
        }
        if "controller" in self._roles:
            doors[self.options.node_id] = await self._become_voter(parts, base, voters)
        return doors

    async def _become_voter(
        self, parts: AsyncExitStack, base: _Base, voters: Mapping[int, Address]
    ) -> Door:
        path = f"{base.data.root}/{QUORUM_NAME}"
        store = await asyncio.to_thread(base.data.storage.open_store, path)
        around = Surroundings(
            options=self.options,
            data=base.data,
            me=self._me,
            voters=voters,
            channels=base.channels,
            probe=Probe(base.channels),
            clock=self._clock,
            metrics=self._metrics,
            on_halted=lambda why: self._on_end(StorageError(f"The quorum's member stopped: {why}")),
        )
        parts.push_async_callback(asyncio.to_thread, store.close)
        voter = Voter(around, store)
        self._voter = voter
        parts.push_async_callback(voter.leave)
        if len(voters) > 1:
            parts.callback(asyncio.create_task(self._find_double(around)).cancel)
        base.internal.add(quorum_service(voter.introductions.handlers))
        active = await voter.join()
        base.internal.add(quorum_service(voter.raft_handlers), cluster_handlers(active, base.tls))
        await voter.start()
        return active

    async def _find_double(self, around: Surroundings) -> None:
        session_ms = self.options.current.value_of(node_rows.BROKER_SESSION_TIMEOUT_MS)
        address = around.voters[self.options.node_id]
        why = await find_double(self._me, address, around.probe, self._clock, session_ms=session_ms)
        if why is not None:
            self._on_end(ConfigError(why))

    def _premises(self, base: _Base) -> Premises:
        told = advertised_of(self.options.static)
        # A port that was left open is the one that was given.
        advertised = {
            name: Address(address.host, address.port or self.addresses[name].port)
            for name, address in told.items()
            if name != "HTTP"
        }
        return Premises(
            options=self.options,
            data=base.data,
            me=self._me,
            clock=self._clock,
            metrics=self._metrics,
            listener=base.listener,
            internal=base.internal,
            entrance=base.entrance,
            channels=base.channels,
            tls=base.tls,
            advertised=advertised,
        )

    def _settle_memory(self) -> None:
        """Spare the collector what lives as long as the process, and call it more rarely.

        Nearly everything here goes when its last holder lets go of it.
        """
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)

    def _tell_addresses(self) -> None:
        told = {name: str(address) for name, address in self.addresses.items()}
        path = Path(data_dir_of(self.options)) / ADDRESSES_NAME
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(told | {"pid": os.getpid()}))
        temporary.replace(path)
        _log.info("node_serving", **told, data=str(path.parent))

    # -- signals, ends and bugs ------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        name, now_ms = signal.Signals(number).name, self._clock.monotonic_ms()
        if self._signalled_ms is None:
            self._signalled_ms = now_ms
            _log.info("signal_received", signal=name)
            self._stopping.set()
        elif now_ms - self._signalled_ms >= _IMPATIENT_MS:
            _log.warning("node_killed", signal=name)
            os._exit(128 + number)

    def _on_end(self, error: OttlaError) -> None:
        """A part of this node has come to its end, and the node with it."""
        _log.error("node_failed", error=str(error))
        if self._fatal is None:
            self._fatal = error
        self._stopping.set()

    def _on_bug(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        story = traceback.format_exception(error) if isinstance(error, BaseException) else []
        _log.error("bug", what=context.get("message"), error=repr(error), story="".join(story))
        if isinstance(error, InvariantError):
            # Never go on: what others rely on may be wrong by now (style 6.9).
            self._exit_code = EXIT_BUG
            self._stopping.set()


@dataclass(frozen=True, slots=True)
class _Base:
    """What every role of a node stands on."""

    data: Data
    channels: Channels
    internal: InternalListener
    entrance: Entrance
    listener: Listener
    tls: Tls | None


def _tell_recovery(logs: Logs) -> None:
    """Say what the last stop left, and what was done about it."""
    report = logs.report
    for note in report.notes:
        _log.warning("recovery_note", note=note)
    for partition, found in report.recovered.items():
        for note in found.notes:
            _log.warning("log_recovered", partition=str(partition), note=note)
    is_new = not logs.replicas.manager.logs
    if report.clean_broker_epoch is not None or is_new:
        return
    _log.info(
        "unclean_stop_recovered",
        logs=len(logs.replicas.manager.logs),
        checked_bytes=sum(found.checked_bytes for found in report.recovered.values()),
        cut_bytes=sum(found.cut_bytes for found in report.recovered.values()),
        damaged=len(report.damaged),
    )
