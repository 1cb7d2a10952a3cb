"""NATS JetStream as a peer: three servers of one cluster, streams of three copies on disk.

Its settings are its defaults, but for `sync_interval: always` in the variant that syncs before it
acknowledges: there it is an option of the server, so that the variant is a cluster of its own.

Not here: who writes to it (`bench/versus/drive_nats.py`).
"""

from __future__ import annotations

import asyncio
import functools
import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from bench.peers.peer import HOST, NODES, MissingError, PeerError
from bench.peers.programs import ProgramPeer
from ottla.chaos.backends.reserved import reserve_ports

_PORTS: Final = ("client", "route", "monitor")
_ASK_S: Final = 2.0
_DO_S: Final = 10.0


@functools.cache
def program() -> str:
    """Return the server's path; raises `MissingError` if there is none."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise MissingError("NATS is not measured: there is no nats-server (make bench-install)")
    return found


class NatsPeer(ProgramPeer):
    """Three servers."""

    name = "nats"
    # None: the server's default, two minutes.
    sync_interval: str | None = None

    @functools.cached_property
    def _ports(self) -> dict[int, dict[str, int]]:
        count = len(_PORTS)
        drawn = reserve_ports(count * len(NODES))
        return {
            node: dict(zip(_PORTS, drawn[at * count : (at + 1) * count], strict=True))
            for at, node in enumerate(NODES)
        }

    @property
    def version(self) -> str:
        told = subprocess.run(
            [program(), "--version"], capture_output=True, text=True, timeout=_DO_S, check=True
        )
        return "NATS " + told.stdout.strip().rpartition(" ")[2].lstrip("v")

    @property
    def settings(self) -> Mapping[str, str]:
        sync = self.sync_interval or "not set (2 minutes)"
        return {"sync_interval": sync, "streams": "3 copies, storage on disk, one subject each"}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"nats://{HOST}:{self._ports[node]['client']}" for node in NODES)

    def prepare(self) -> None:
        routes = [f"nats://{HOST}:{self._ports[one]['route']}" for one in NODES]
        for node in NODES:
            self.node_dir(node).mkdir(parents=True, exist_ok=True)
            ports = self._ports[node]
            jetstream: dict[str, Any] = {"store_dir": str(self.data_dir(node))}
            if self.sync_interval is not None:
                jetstream["sync_interval"] = self.sync_interval
            # Its format takes JSON as well.
            text = json.dumps(
                {
                    "server_name": f"node-{node}",
                    "listen": f"{HOST}:{ports['client']}",
                    "http": f"{HOST}:{ports['monitor']}",
                    "jetstream": jetstream,
                    "cluster": {
                        "name": "bench",
                        "listen": f"{HOST}:{ports['route']}",
                        "routes": routes,
                    },
                }
            )
            (self.node_dir(node) / "nats.conf").write_text(text)

    def command_of(self, node: int) -> list[str]:
        return [program(), "-c", str(self.node_dir(node) / "nats.conf")]

    def is_ready(self) -> bool:
        self.require_alive()
        return all(self._says(node, "/healthz").get("status") == "ok" for node in NODES)

    def _says(self, node: int, path: str) -> Mapping[str, Any]:
        url = f"http://{HOST}:{self._ports[node]['monitor']}{path}"
        try:
            with urllib.request.urlopen(url, timeout=_ASK_S) as answer:
                told: Mapping[str, Any] = json.loads(answer.read())
                return told
        except (urllib.error.URLError, OSError, ValueError):
            return {}

    # -- streams -----------------------------------------------------------------------------------

    def create_stream(self, name: str) -> None:
        """Make a stream of three copies whose only subject has its name; wait for its leader."""

        async def made(jetstream: Any) -> None:
            info = await jetstream.add_stream(name=name, subjects=[name], num_replicas=len(NODES))
            if (info.config.num_replicas, info.config.storage) != (len(NODES), "file"):
                raise PeerError(f"{name} is not what was asked for: {info.config}")

        self._require_sync()
        self._do(made)

    def _require_sync(self) -> None:
        """Raise `PeerError` unless every node syncs as this variant promises."""
        for node in NODES:
            found = self._says(node, "/varz").get("jetstream", {}).get("config", {})
            if bool(found.get("sync_always")) is not (self.sync_interval == "always"):
                raise PeerError(f"node {node} of {self.name} syncs otherwise: {found}")

    def delete_stream(self, name: str) -> None:
        async def gone(jetstream: Any) -> None:
            await jetstream.delete_stream(name)

        self._do(gone)

    def leader_of(self, name: str) -> int:
        found = list[int]()

        async def told(jetstream: Any) -> None:
            info = await jetstream.stream_info(name)
            found.append(int(info.cluster.leader.removeprefix("node-")))

        self._do(told)
        return found[0]

    def _do(self, action: Callable[[Any], Awaitable[None]]) -> None:
        import nats

        async def done() -> None:
            connection = await nats.connect(self.bootstrap.split(","))
            try:
                await action(connection.jetstream(timeout=_DO_S))
            finally:
                await connection.close()

        asyncio.run(done())


class NatsSyncPeer(NatsPeer):
    """The same, synced before it acknowledges."""

    name = "nats-sync"
    sync_interval = "always"
