"""A local cluster as one thing: start it, stop it, and do to its nodes what life does to nodes.

Nodes are `ottla node` processes in sessions of their own. The command that began them may end;
`cluster.json` says what there is.

Not here: what is printed (`commands/cluster.py`), how nodes are (`states.py`).

K1  nothing is started unless all of it can be: ports, files and options are looked at first
K2  a start that fails leaves no process behind; one that cannot be leaves no file either
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Final

from ottla.node.clock import Clock
from ottla.node.local.layout import (
    DEFAULT_BASE_PORT,
    NodePlan,
    decided,
    file_text,
    lay_out,
    text_without,
)
from ottla.node.local.ports import choose_free, require_free
from ottla.node.local.processes import Life, end_of_child, life_of, send, spawn
from ottla.node.local.record import LocalClusterError, NodeRecord, Place, Record
from ottla.node.local.states import NodeState, State, state_of
from ottla.node.local.words import told_end
from ottla.proto.errors import ConfigError, StorageError
from ottla.proto.options import node as rows
from ottla.proto.options.load import load
from ottla.proto.options.option import environment_name
from ottla.proto.options.sources import ConfigFile
from ottla.replication.storage.directory import META_NAME

START_MS: Final = 60_000
STOP_MS: Final = 30_000
# A signal that cannot be refused is obeyed at once; more is a machine that hangs.
_OBEY_MS: Final = 5_000
_POLL_S: Final = 0.02
_LOG_BYTES: Final = 16_384
_DECIDED: Final = (
    rows.NODE_ID,
    rows.PROCESS_ROLES,
    rows.CONTROLLER_VOTERS,
    rows.LISTENERS_OPTION,
    rows.ADVERTISED_LISTENERS,
    rows.LOG_DIRS,
)
# Whoever calls may have options of a single node set; they would make all nodes the same one.
_DECIDED_VARIABLES: Final = frozenset(
    environment_name(name.name) for row in _DECIDED for name in row.names
)


class LocalCluster:
    """The cluster in one directory."""

    def __init__(
        self, root: Path, environment: Mapping[str, str], clock: Clock, dice: Random
    ) -> None:
        self.place: Final = Place(root.absolute())
        self._environment: Final = {
            name: value for name, value in environment.items() if name not in _DECIDED_VARIABLES
        }
        self._clock: Final = clock
        self._dice: Final = dice
        # Node → how long its log was when it was begun: what stands before is of earlier lives.
        self._log_starts: Final = dict[int, int]()
        # Nobody wants to wait for a clean end any more.
        self.is_hurried = False

    # -- start -----------------------------------------------------------------------------------

    async def launch(
        self, node_count: int | None, base_port: int | None, options: Mapping[str, str]
    ) -> Record:
        """Begin all processes, and return at once; raises before there is any if one cannot."""
        # The lock needs a directory. What is refused without one has not made any (K2).
        self._prepare(node_count, base_port, options)
        self._make_root()
        async with self.place.locked():
            planned = self._prepare(node_count, base_port, options)
            self._write_files(planned)
            record = Record({plan.node_id: NodeRecord(plan) for plan, _ in planned})
            for plan, _ in planned:
                record = self._spawn(record, plan.node_id)
            return record

    async def until_ready(
        self, wanted: Collection[int], time_ms: int, tell: Callable[[NodeState], None]
    ) -> None:
        """Return when these nodes serve clients; each that does is told once.

        Raises `LocalClusterError` if one of them ends, or if the time does.
        """
        end_ms = self._clock.monotonic_ms() + time_ms
        missing = dict.fromkeys(wanted, "it does not answer yet")
        while True:
            record = self.place.require()
            found = await asyncio.gather(*(state_of(record.nodes[one]) for one in missing))
            for state in found:
                self._require_alive(state)
                missing[state.node_id] = state.reason
                if state.state is State.READY:
                    del missing[state.node_id]
                    tell(state)
            if not missing:
                return
            if self._clock.monotonic_ms() > end_ms:
                raise LocalClusterError(_told_missing(missing, time_ms))
            await asyncio.sleep(_POLL_S)

    def _prepare(
        self, node_count: int | None, base_port: int | None, options: Mapping[str, str]
    ) -> list[tuple[NodePlan, str]]:
        """Return the nodes with their files, or raise if they cannot be started; change nothing."""
        if (self.place.root / META_NAME).exists():
            raise ConfigError(
                f"{self.place.root} is a node's data directory (it has {META_NAME}): give the "
                "cluster a place of its own with --data."
            )
        before = self.place.read()
        if before is not None:
            self._require_startable(before, node_count)
        plans = self._plans(before, node_count, base_port)
        require_free(plans)
        return [(plan, self._file_of(plan, plans, options)) for plan in plans]

    def _make_root(self) -> None:
        try:
            self.place.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            told = f"{self.place.root} cannot be made: {error.strerror}."
            raise StorageError(told) from error

    def _require_startable(self, before: Record, node_count: int | None) -> None:
        alive = [node_id for node_id, one in before.nodes.items() if one.is_alive]
        if alive:
            raise LocalClusterError(
                f"the cluster in {self.place.root} is running already ({_named(alive)}): `ottla "
                f"cluster status{self.place.option}` shows it, `stop` ends it, and `restart ID` "
                "brings a dead node back."
            )
        there = len(before.nodes)
        if node_count not in (None, there):
            raise ConfigError(
                f"the cluster in {self.place.root} has {there} nodes, and not {node_count}: start "
                "it without --nodes, or give the other one a place of its own with --data DIR."
            )

    def _plans(
        self, before: Record | None, node_count: int | None, base_port: int | None
    ) -> tuple[NodePlan, ...]:
        if before is not None and base_port is None:
            return before.plans
        if before is None and node_count is None:
            raise ConfigError(
                f"there is no cluster in {self.place.root} yet: say how many nodes, --nodes 3."
            )
        count = node_count or (0 if before is None else len(before.nodes))
        if base_port == 0:
            return choose_free(count, self._dice)
        return lay_out(count, base_port or DEFAULT_BASE_PORT)

    def _write_files(self, planned: Iterable[tuple[NodePlan, str]]) -> None:
        for plan, text in planned:
            path = self.place.config_path(plan.node_id)
            try:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise StorageError(f"{path} cannot be written: {error.strerror}.") from error

    def _file_of(
        self, plan: NodePlan, plans: tuple[NodePlan, ...], options: Mapping[str, str]
    ) -> str:
        """Return a node's file, after reading it as the node will (K1)."""
        lines = decided(plan, plans, self.place.data_dir(plan.node_id))
        clash = next((name for name in options if name in lines), None)
        if clash is not None:
            raise ConfigError(
                f"{clash} follows from --nodes, --base-port and --data: leave it out."
            )
        path = self.place.config_path(plan.node_id)
        before = path.read_text(encoding="utf-8") if path.exists() else None
        text = file_text(before, lines, options)
        # First as if they were given to the node itself: the file that would have them is not there
        # yet, and a complaint about one of its lines would lead nowhere.
        without = text_without(before, lines, options)
        for part, flags in ((without, options), (text, {})):
            file = ConfigFile(str(path), part.encode())
            load(file=file, environment=self._environment, flags=flags)
        return text

    def _spawn(self, record: Record, node_id: int) -> Record:
        config_path, log_path = self.place.config_path(node_id), self.place.log_path(node_id)
        command = ["-P", "-m", "ottla", "node", "--quiet", "--config", str(config_path)]
        self._log_starts[node_id] = log_path.stat().st_size if log_path.exists() else 0
        process = spawn(command, log_path, self._environment)
        record = record.with_process(node_id, process)
        # After each: whoever looks, or dies, in the middle leaves no process that nobody knows.
        self.place.write(record)
        return record

    # -- what life does to nodes -----------------------------------------------------------------

    async def kill(self, node_id: int) -> int:
        """End a node as a power cut would, in its own eyes; return the number of its process."""
        return await self._signal(node_id, signal.SIGKILL, Life.GONE)

    async def pause(self, node_id: int) -> int:
        """Let it hang: alive, connected and silent."""
        return await self._signal(node_id, signal.SIGSTOP, Life.PAUSED)

    async def resume(self, node_id: int) -> int:
        return await self._signal(node_id, signal.SIGCONT, Life.RUNNING)

    async def restart(self, wanted: Collection[int]) -> list[int]:
        """Begin nodes again on their data; return those that had to be killed for it."""
        async with self.place.locked():
            record = self.place.require()
            for node_id in wanted:
                self._node(record, node_id)
            killed = await self._end({one: record.nodes[one] for one in wanted})
            require_free([record.nodes[one].plan for one in wanted])
            for node_id in wanted:
                record = self._spawn(record, node_id)
        return killed

    async def stop(self) -> tuple[list[int], list[int]]:
        """End all nodes; return which were running, and which of them had to be killed."""
        async with self.place.locked():
            record = self.place.require()
            running = [node_id for node_id, one in record.nodes.items() if one.is_alive]
            killed = await self._end(record.nodes)
            for node_id in record.nodes:
                record = record.with_process(node_id, None)
            self.place.write(record)
        return running, killed

    async def _signal(self, node_id: int, number: signal.Signals, wanted: Life) -> int:
        async with self.place.locked():
            process = self._node(self.place.require(), node_id).process
            if process is None or not send(process, number):
                raise LocalClusterError(
                    f"node {node_id} is not running: `ottla cluster restart {node_id}"
                    f"{self.place.option}` starts it."
                )
            await self._until(lambda: life_of(process) is wanted, _OBEY_MS)
        return process.pid

    def _node(self, record: Record, node_id: int) -> NodeRecord:
        found = record.nodes.get(node_id)
        if found is None:
            told = ", ".join(map(str, record.nodes))
            raise ConfigError(
                f"the cluster in {self.place.root} has no node {node_id}, only {told}."
            )
        return found

    async def _end(self, nodes: Mapping[int, NodeRecord]) -> list[int]:
        """Ask these to end, and kill those that do not in time; return whom."""
        asked = {node_id: one.process for node_id, one in nodes.items() if one.process is not None}
        for process in asked.values():
            # One that is paused cannot hear SIGTERM. The order matters to none of them.
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)

        def left() -> list[int]:
            for process in asked.values():
                end_of_child(process)
            return [one for one, process in asked.items() if life_of(process) is not Life.GONE]

        await self._until(lambda: self.is_hurried or not left(), STOP_MS)
        killed = left()
        for node_id in killed:
            send(asked[node_id], signal.SIGKILL)
        await self._until(lambda: not left(), _OBEY_MS)
        return killed

    async def _until(self, holds: Callable[[], bool], time_ms: int) -> None:
        """Wait for a condition, or for the time to run out."""
        end_ms = self._clock.monotonic_ms() + time_ms
        while not holds() and self._clock.monotonic_ms() < end_ms:  # noqa: ASYNC110  (of others)
            await asyncio.sleep(_POLL_S)

    # -- what it says ----------------------------------------------------------------------------

    def _require_alive(self, state: NodeState) -> None:
        if state.state in (State.DEAD, State.STOPPED):
            path = self.place.log_path(state.node_id)
            lines = _lines_since(path, self._log_starts.get(state.node_id, 0))
            raise LocalClusterError(told_end(state.node_id, path, lines))


def _named(node_ids: Collection[int]) -> str:
    told = ", ".join(map(str, node_ids))
    return f"node {told}" if len(node_ids) == 1 else f"nodes {told}"


def _told_missing(missing: Mapping[int, str], time_ms: int) -> str:
    told = "; ".join(f"node {node_id}: {reason}" for node_id, reason in missing.items())
    return f"{_named(missing)} did not become ready within {time_ms // 1000} s ({told})."


def _lines_since(path: Path, start: int) -> list[str]:
    """Return the lines of a log from there on; if they are many, the last."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start, size - _LOG_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()
