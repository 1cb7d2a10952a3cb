"""What every peer can be asked: three nodes, started, looked at from outside, broken and ended.

A peer is a system with its settings; a *variant* of it is what a client may choose for a topic of
the same cluster, such as whether a record is synced before it is acknowledged (`table.py`).

P1  a peer that cannot be had here says what is missing (`MissingError`); it is left out, not faked
P2  only processes that this peer began are signalled
P3  after `stop`, and after `end`, none of them is left

Not here: what is asked of a peer (`bench/versus/`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from bench.replication_cluster import cpu_of, memory_mb

NODES: Final = (1, 2, 3)
HOST: Final = "127.0.0.1"
READY_S_MAX: Final = 120.0
_POLL_S: Final = 0.05


class MissingError(Exception):
    """This peer cannot be started here; the text says what it would take."""


class PeerError(Exception):
    """A peer did not do what it was asked for in time."""


class Peer(ABC):
    """Three nodes of one system on this machine; started once, stopped once."""

    # As in the table of peers.
    name: str

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        # Of nodes that were killed or stopped: their time is not in /proc any more.
        self._spent_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    # -- what it is --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def version(self) -> str: ...

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Return what was set, other than addresses and directories, with the reason."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Return the addresses of all nodes for clients, with commas."""

    @property
    @abstractmethod
    def pids(self) -> Mapping[int, int]:
        """Return the process of each node that runs."""

    # -- its life ----------------------------------------------------------------------------------

    def prepare(self) -> None:  # noqa: B027  (most need nothing)
        """Do what is done once, before the first start: it is not part of a start."""

    @abstractmethod
    def spawn(self) -> None:
        """Begin the processes of all nodes, and return at once."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether all nodes serve clients and know each other."""

    def start(self) -> None:
        self.prepare()
        self.spawn()
        self.wait_ready()

    def wait_ready(self) -> None:
        wait_until(self.is_ready, READY_S_MAX, f"{self.name} is ready")

    @abstractmethod
    def kill(self, node: int) -> None:
        """End a node with SIGKILL, and return when it is gone."""

    @abstractmethod
    def stop(self) -> None:
        """End all nodes, politely if they let themselves be asked; may be called again."""

    @abstractmethod
    def end(self) -> None:
        """End all nodes at once, for good: nobody wants their data. May be called again."""

    @abstractmethod
    def data_dir(self, node: int) -> Path: ...

    # -- looking at it -----------------------------------------------------------------------------

    def rss_mb(self) -> dict[int, float]:
        """Return the memory of each node that is its own (RssAnon)."""
        return {node: memory_mb(pid)[1] for node, pid in self.pids.items()}

    def cpu_s(self) -> float:
        """Return the processor time of all nodes since they began, the dead ones included."""
        return self._spent_s + cpu_of(list(self.pids.values())).all_s

    def _remember_cpu(self, pid: int) -> None:
        """Called before a process is ended."""
        self._spent_s += cpu_of([pid]).all_s


def wait_until(holds: Callable[[], bool], seconds_max: float, what: str) -> float:
    """Return how long it took; raise `PeerError` if it did not come true in time."""
    start = time.perf_counter()
    while not holds():
        if time.perf_counter() - start > seconds_max:
            raise PeerError(f"it did not come true in {seconds_max:.0f} s: {what}")
        time.sleep(_POLL_S)
    return time.perf_counter() - start
