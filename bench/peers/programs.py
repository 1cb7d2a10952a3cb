"""Nodes that are programs with a command line each, as child processes.

Not here: what the programs are (`kafka.py`, `nats.py`).
"""

from __future__ import annotations

import subprocess
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.peers.peer import NODES, Peer, PeerError

_STOP_S_MAX: Final = 40.0
_LOG_TAIL: Final = 600


class ProgramPeer(Peer):
    """A peer whose nodes are started with one command each."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._processes: Final = dict[int, subprocess.Popen[bytes]]()

    @abstractmethod
    def command_of(self, node: int) -> list[str]: ...

    @property
    def pids(self) -> Mapping[int, int]:
        return {node: process.pid for node, process in self._processes.items()}

    def node_dir(self, node: int) -> Path:
        return self.directory / f"node-{node}"

    def data_dir(self, node: int) -> Path:
        return self.node_dir(node) / "data"

    def spawn(self) -> None:
        for node in NODES:
            self._begin(node)

    def _begin(self, node: int) -> None:
        directory = self.node_dir(node)
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "node.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                self.command_of(node),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def require_alive(self) -> None:
        for node, process in self._processes.items():
            if process.poll() is not None:
                log = (self.node_dir(node) / "node.log").read_text(errors="replace")
                raise PeerError(f"node {node} of {self.name} ended: {log[-_LOG_TAIL:]}")

    def kill(self, node: int) -> None:
        process = self._processes[node]
        if process.poll() is None:
            self._remember_cpu(process.pid)
            process.kill()
            process.wait()
        del self._processes[node]

    def end(self) -> None:
        for node in list(self._processes):
            self.kill(node)

    def stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                self._remember_cpu(process.pid)
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
