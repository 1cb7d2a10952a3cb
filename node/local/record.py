"""What is remembered of a local cluster between two commands: `cluster.json`, and its lock.

    DIR/cluster.json             nodes, addresses, processes
    DIR/node-1/server.properties
    DIR/node-1/data/             what the node remembers
    DIR/node-1/node.log          what it said

Not here: what is done with the processes (`cluster.py`).

R1  the record changes only under the lock; a command that finds it taken waits a moment
R2  a record is replaced as a whole: half of one is never read
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ottla.node.local.layout import NodePlan, replication_beside
from ottla.node.local.processes import Life, ProcessId, life_of
from ottla.proto.errors import OttlaError, StorageError
from ottla.proto.options.endpoints import LISTENER_NAMES, Address, ListenerName, parse_address
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.ports import File

DEFAULT_DATA: Final = "data-cluster"
RECORD_NAME: Final = "cluster.json"
_LOCK_NAME: Final = ".cluster.lock"
_FORMAT: Final = 1
_LOCK_TRIES: Final = 100
_LOCK_WAIT_S: Final = 0.05


class LocalClusterError(OttlaError):
    """A local cluster is not as the command needs it."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node, and the process that was begun for it last."""

    plan: NodePlan
    # None: it was stopped, or never started.
    process: ProcessId | None = None

    @property
    def is_alive(self) -> bool:
        return self.process is not None and life_of(self.process) is not Life.GONE


@dataclass(frozen=True, slots=True)
class Record:
    """The nodes of a local cluster by their ids, in order."""

    nodes: Mapping[int, NodeRecord]

    @property
    def plans(self) -> tuple[NodePlan, ...]:
        return tuple(one.plan for one in self.nodes.values())

    def with_process(self, node_id: int, process: ProcessId | None) -> Record:
        return Record({**self.nodes, node_id: replace(self.nodes[node_id], process=process)})


class Place:
    """The directory of a local cluster."""

    def __init__(self, root: Path) -> None:
        self.root: Final = root

    @property
    def option(self) -> str:
        """What a command has to say, after a blank, to mean this place; nothing if nothing."""
        is_default = self.root == Path(DEFAULT_DATA).absolute()
        return "" if is_default else f" --data {shlex.quote(str(self.root))}"

    def node_dir(self, node_id: int) -> Path:
        return self.root / f"node-{node_id}"

    def config_path(self, node_id: int) -> Path:
        return self.node_dir(node_id) / "server.properties"

    def data_dir(self, node_id: int) -> Path:
        return self.node_dir(node_id) / "data"

    def log_path(self, node_id: int) -> Path:
        return self.node_dir(node_id) / "node.log"

    def read(self) -> Record | None:
        """Return what is remembered; None if there is no cluster here."""
        path = self.root / RECORD_NAME
        try:
            return _record_of(json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(
                f"{path} is no record of a cluster ({error!r}). Move it away: `ottla cluster "
                f"start{self.option}` writes it anew, with the nodes and the base port that were "
                "used before."
            ) from error

    def require(self) -> Record:
        """Return what is remembered, or raise `LocalClusterError`."""
        found = self.read()
        if found is None:
            raise self._nothing_here()
        return found

    def _nothing_here(self) -> LocalClusterError:
        return LocalClusterError(
            f"there is no cluster in {self.root}: `ottla cluster start --nodes 3{self.option}` "
            "makes one, and --data DIR names another place."
        )

    def write(self, record: Record) -> None:
        path = self.root / RECORD_NAME
        temporary = path.with_suffix(".tmp")
        text = json.dumps(_as_json(record), indent=2)
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Keep other commands from changing the record, for as long as the block lasts (R1)."""
        held = await self._lock()
        try:
            yield
        finally:
            held.close()

    async def _lock(self) -> File:
        path = str(self.root / _LOCK_NAME)
        for _ in range(_LOCK_TRIES):
            try:
                return DiskFiles().lock(path)
            except BlockingIOError:
                await asyncio.sleep(_LOCK_WAIT_S)
            except (FileNotFoundError, NotADirectoryError):
                raise self._nothing_here() from None
            except OSError as error:
                raise StorageError(f"{self.root} cannot be used: {error.strerror}.") from error
        raise LocalClusterError(
            f"another `ottla cluster` command is at work on {self.root}; try again when it is done."
        )


def _as_json(record: Record) -> dict[str, Any]:
    return {"format": _FORMAT, "nodes": [_node_as_json(one) for one in record.nodes.values()]}


def _node_as_json(node: NodeRecord) -> dict[str, Any]:
    process = node.process
    return {
        "id": node.plan.node_id,
        "roles": list(node.plan.roles),
        "listeners": {name: str(address) for name, address in node.plan.listeners.items()},
        "process": None
        if process is None
        else {"pid": process.pid, "started": process.started, "boot_id": process.boot_id},
    }


def _record_of(told: Any) -> Record:
    if told["format"] != _FORMAT:
        raise ValueError(f"format {told['format']}")
    nodes = (_node_of(one) for one in told["nodes"])
    return Record({one.plan.node_id: one for one in nodes})


def _node_of(told: Any) -> NodeRecord:
    roles = tuple(map(str, told["roles"]))
    plan = NodePlan(int(told["id"]), roles, _listeners_of(told["listeners"]))
    process = told["process"]
    if process is None:
        return NodeRecord(plan)
    known = ProcessId(int(process["pid"]), int(process["started"]), str(process["boot_id"]))
    return NodeRecord(plan, known)


def _listeners_of(told: Any) -> dict[ListenerName, Address]:
    # A record of before there was REPLICATION.
    known = {"REPLICATION": str(replication_beside(parse_address(told["INTERNAL"]))), **told}
    return {name: parse_address(known[name]) for name in LISTENER_NAMES}
