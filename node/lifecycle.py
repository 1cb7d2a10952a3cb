"""The life of a node: starting, recovering, serving, stopping.

The order of a start: take the addresses (so that a second node is refused before it touches
anything), tell about health, open and recover the data directory, obey the metadata, and only then
let clients in. The order of a stop is the other way round, and ends with the marker that proves it
was clean.

Not here: what the parts are (`wiring.py`).
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from ottla.node.clock import Clock
from ottla.node.housekeeping import Housekeeping
from ottla.node.http import HttpListener
from ottla.node.kafka.connection import Connection
from ottla.node.kafka.dispatch import Dispatch
from ottla.node.kafka.listener import Listener
from ottla.node.logs import logger
from ottla.node.metrics import Metrics, Reading
from ottla.node.options import NodeOptions
from ottla.node.process import process_readings
from ottla.node.status import (
    NodeStatus,
    PartitionStatus,
    cluster_readings,
    pages,
    partition_statuses,
    replica_readings,
)
from ottla.node.wiring import Opened, data_dir_of, listener_settings, open_broker
from ottla.proto.errors import InvariantError
from ottla.proto.options import node as node_rows
from ottla.proto.options import topic as topic_rows
from ottla.proto.options.endpoints import Address
from ottla.proto.options.load import advertised_of, listeners_of
from ottla.proto.options.topic import effective_min_insync

_log = logger("node.lifecycle")

# Where a running node says where it listens, for whoever gave it port 0.
ADDRESSES_NAME: Final = ".addresses.json"
# For requests that wait for the disk when a stop begins.
_DRAIN_ROUND_S: Final = 0.01
_DRAIN_ROUNDS: Final = 500
_GC_THRESHOLDS: Final = (10_000, 20, 20)
EXIT_STOPPED: Final = 0
EXIT_BUG: Final = 70


class Phase(Enum):
    """How far a node has come; only one that serves is ready."""

    STARTING = "starting"
    RECOVERING = "recovering"
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
        self._clock: Final = Clock()
        self._metrics: Final = Metrics(version=version)
        self._began_ms: Final = self._clock.monotonic_ms()
        self._phase = Phase.STARTING
        self._opened: Opened | None = None
        self._listener: Listener | None = None
        self._stopping: Final = asyncio.Event()
        self._exit_code = EXIT_STOPPED
        self.addresses: dict[str, Address] = {}

    # -- what the pages show ---------------------------------------------------------------------

    def status(self) -> NodeStatus:
        opened = self._opened
        return NodeStatus(
            node_id=self.options.node_id,
            cluster_id="" if opened is None else opened.broker.cluster_id,
            version=self._version,
            roles=self.options.static.value_of(node_rows.PROCESS_ROLES),
            listeners={name: str(address) for name, address in self.addresses.items()},
            uptime_ms=self._clock.monotonic_ms() - self._began_ms,
            partition_count=0 if opened is None else len(opened.broker.replicas),
            not_ready=self._not_ready(),
        )

    def _not_ready(self) -> str | None:
        if self._phase is not Phase.SERVING:
            return f"the node is {self._phase.value}"
        assert self._opened is not None
        offline = self._opened.broker.replicas.manager.offline
        if offline is not None:
            return f"the data directory is offline: {offline}"
        refusal = self._opened.controller.refusal
        return None if refusal is None else f"no change can be made any more: {refusal}"

    def partitions(self) -> Iterable[PartitionStatus]:
        if self._opened is None:
            return ()
        broker = self._opened.broker
        return partition_statuses(broker.replicas, broker.controller.image, self._isr_min_of)

    def _isr_min_of(self, topic: str) -> int:
        assert self._opened is not None
        info = self._opened.broker.controller.image.topic(topic)
        if info is None:
            return 1
        wanted = self.options.of_topic(info.configs).value_of(topic_rows.MIN_INSYNC_REPLICAS)
        return effective_min_insync(wanted, replication_factor=info.replication_factor)

    def _readings(self) -> Iterable[Reading]:
        if self._opened is None:
            return
        image = self._opened.broker.controller.image
        yield from replica_readings(self.options.node_id, self.partitions())
        yield from cluster_readings(self.options.node_id, image)

    # -- the life --------------------------------------------------------------------------------

    async def run(self) -> int:
        """Live until told to stop; return the exit code. Raises `ConfigError`, `StorageError`."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_bug)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        listener = self._make_listener()
        wanted = listeners_of(self.options.static)
        self.addresses["CLIENT"] = listener.bind()
        http = HttpListener(wanted["HTTP"], pages(self, self._metrics), self._clock)
        try:
            self.addresses["HTTP"] = await http.start()
            self._metrics.watch(self._readings)
            self._metrics.watch(process_readings)
            await self._open()
            await self._serve(listener)
        finally:
            listener.stop()
            await http.stop()
        return self._exit_code

    def _make_listener(self) -> Listener:
        return Listener(
            listeners_of(self.options.static)["CLIENT"],
            lambda: listener_settings(self.options),
            self._serve_frame,
            clock=self._clock,
            metrics=self._metrics,
        )

    def _serve_frame(self, connection: Connection, frame: memoryview) -> None:
        raise InvariantError("no client is let in before the node serves")

    async def _open(self) -> None:
        self._phase = Phase.RECOVERING
        advertised = self._advertised()
        opened = await asyncio.to_thread(
            open_broker,
            self.options,
            advertised,
            self._environ,
            clock=self._clock,
            metrics=self._metrics,
        )
        self._opened = opened
        _tell_recovery(opened)
        await opened.reconcile.begin(opened.controller.image, opened.report.damaged)
        opened.controller.watch(opened.reconcile.obey)

    def _advertised(self) -> Address:
        """Return what clients are told; a port that was left open is the one that was given."""
        told = advertised_of(self.options.static)["CLIENT"]
        return Address(told.host, told.port or self.addresses["CLIENT"].port)

    async def _serve(self, listener: Listener) -> None:
        opened = self._opened
        assert opened is not None
        dispatch = Dispatch(opened.broker)
        housekeeping = Housekeeping(opened.broker, opened.executor)
        try:
            listener.serve = dispatch.serve
            # What lives as long as the process need not be looked at by each collection, and rarer
            # ones do: nearly everything here goes when its last holder lets go of it.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*_GC_THRESHOLDS)
            listener.start()
            housekeeping.start()
            self._phase = Phase.SERVING
            self._tell_addresses()
            self._on_serving(self)
            await self._stopping.wait()
            self._phase = Phase.STOPPING
            _log.info("node_stopping")
            listener.drain()
            await dispatch.stop()
            await _drained(listener)
        finally:
            listener.stop()
            await housekeeping.stop()
            await opened.broker.replicas.close()
            if self._exit_code == EXIT_STOPPED:
                await asyncio.to_thread(opened.close)
                _log.info("node_stopped")

    def _tell_addresses(self) -> None:
        told = {name: str(address) for name, address in self.addresses.items()}
        path = Path(data_dir_of(self.options)) / ADDRESSES_NAME
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(told | {"pid": os.getpid()}))
        temporary.replace(path)
        _log.info("node_serving", **told, data=str(path.parent))

    # -- signals and bugs ------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        if self._stopping.is_set():
            _log.warning("node_killed", signal=signal.Signals(number).name)
            os._exit(128 + number)
        _log.info("signal_received", signal=signal.Signals(number).name)
        self._stopping.set()

    def _on_bug(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        story = traceback.format_exception(error) if isinstance(error, BaseException) else []
        _log.error("bug", what=context.get("message"), error=repr(error), story="".join(story))
        if isinstance(error, InvariantError):
            # Never go on: what others rely on may be wrong by now (style 6.9).
            self._exit_code = EXIT_BUG
            self._stopping.set()


def _tell_recovery(opened: Opened) -> None:
    """Say what the last stop left, and what was done about it."""
    report = opened.report
    for note in report.notes:
        _log.warning("recovery_note", note=note)
    for partition, found in report.recovered.items():
        for note in found.notes:
            _log.warning("log_recovered", partition=str(partition), note=note)
    is_new = not opened.broker.replicas.manager.logs
    if report.clean_broker_epoch is not None or is_new:
        return
    _log.info(
        "unclean_stop_recovered",
        logs=len(opened.broker.replicas.manager.logs),
        checked_bytes=sum(found.checked_bytes for found in report.recovered.values()),
        cut_bytes=sum(found.cut_bytes for found in report.recovered.values()),
        damaged=len(report.damaged),
    )


async def _drained(listener: Listener) -> None:
    """Wait, for a while, until no request waits for its answer."""
    for _ in range(_DRAIN_ROUNDS):
        if listener.is_drained:
            return
        await asyncio.sleep(_DRAIN_ROUND_S)
