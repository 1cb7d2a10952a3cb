"""Several real nodes on loopback that are one cluster, for as long as a `with` block lasts.

Every node is a process of its own with its own directory. Ports are chosen before anything starts,
because nodes must know each other's; they stay the same when a node comes back, and nobody else of
us takes them while it is dead.

Not here: `ottla cluster`, which is for people and has tests of its own; what is asked of the nodes.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ottla.chaos.backends.reserved import HOST, reserve_ports
from tests.integration.nodes import (
    LOG_TAIL_LINES,
    START_DEADLINE_S,
    STOP_DEADLINE_S,
    NodeFailedError,
    wait_until,
)

LISTENERS: Final = ("CLIENT", "INTERNAL", "REPLICATION", "HTTP")
VOTERS_MAX: Final = 5
_ANSWER_DEADLINE_S: Final = 5.0
OptionsOf = Callable[[int], Mapping[str, str]]


class ClusterNode:
    """One node of a cluster, through all its lives."""

    # The module that is run.
    program = "ottla"

    def __init__(
        self,
        node_id: int,
        directory: Path,
        options: Mapping[str, str],
        environment: Mapping[str, str],
        ports: Mapping[str, int],
    ) -> None:
        self.node_id: Final = node_id
        self.directory: Final = directory
        self.data_dir: Final = directory / "data"
        self.log_path: Final = directory / "node.log"
        self.ports: Final = dict(ports)
        self.bootstrap: Final = f"{HOST}:{ports['CLIENT']}"
        self.internal: Final = f"{HOST}:{ports['INTERNAL']}"
        self.http: Final = f"{HOST}:{ports['HTTP']}"
        # Obeyed at the next start.
        self.options: Final = dict(options)
        self.environment: Final = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        # It should be running: then an end is a failure.
        self.is_expected = False

    # -- its lives -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life; `wait_until_ready` says when it serves."""
        assert not self.is_running, f"node {self.node_id} is running"
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = [f"{name}={value}" for name, value in self.options.items()]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.program, "node", *settings],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**_surroundings(), **self.environment},
            )
        self.is_expected = True

    def kill(self) -> None:
        """End it as a power cut would, in the eyes of the process: SIGKILL."""
        self.is_expected = False
        self.process.kill()
        self.process.wait(STOP_DEADLINE_S)

    def stop(self) -> int:
        """Ask it to end, and return its exit code. One that does not end is killed."""
        self.is_expected = False
        self.ask_to_stop()
        return self.wait_stopped()

    def ask_to_stop(self) -> None:
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
            # One that is paused hears it when it goes on.
            self.process.send_signal(signal.SIGCONT)

    def wait_stopped(self) -> int:
        try:
            return self.process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failure(f"it did not end {STOP_DEADLINE_S:.0f} s after SIGTERM") from None

    def pause(self) -> None:
        """Let it hang: alive, connected, and silent."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Begin again on the same data, after a clean stop if it runs; return when it serves."""
        if self.is_running:
            self.stop()
        self.start()
        self.wait_until_ready()

    def live_for(self, seconds: float) -> None:
        """Let it run for so long, or until it ends."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    # -- how it is -------------------------------------------------------------------------------

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"node {self.node_id} was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def get(self, path: str, timeout_s: float = _ANSWER_DEADLINE_S) -> tuple[int, str]:
        """Return the status and the text that the HTTP listener answers."""
        connection = http.client.HTTPConnection(self.http, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        """Return what `/status` tells."""
        told: dict[str, Any] = json.loads(self.get("/status")[1])
        return told

    def leader(self) -> int | None:
        """Return whom it takes for the active controller; None if it does not know or answer."""
        with suppress(OSError, http.client.HTTPException, json.JSONDecodeError):
            quorum = self.status().get("quorum") or {}
            found = quorum.get("leader")
            return found if isinstance(found, int) else None
        return None

    def metadata_version(self) -> int | None:
        """Return how much of the metadata it has followed; None if it does not know or answer."""
        with suppress(OSError, http.client.HTTPException, json.JSONDecodeError):
            found = (self.status().get("broker") or {}).get("metadata_version")
            return found if isinstance(found, int) else None
        return None

    def answers(self) -> bool:
        """Return whether it tells how it is, ready or not."""
        try:
            self.get("/health/ready")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def is_ready(self) -> bool:
        try:
            return self.get("/health/ready")[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def wait_until_ready(self, deadline_s: float = START_DEADLINE_S) -> None:
        def holds() -> bool:
            self.require_running()
            return self.is_ready()

        try:
            wait_until(holds, deadline_s, f"node {self.node_id} is ready")
        except TimeoutError as error:
            raise self.failure(f"{error}; it says {self._last_word()}") from None

    def require_running(self) -> None:
        if not self.is_running:
            raise self.failure(f"it ended by itself with {self.exit_code}")

    def _last_word(self) -> str:
        try:
            return self.get("/health/ready")[1].strip()
        except (OSError, http.client.HTTPException) as error:
            return f"nothing ({error!r})"

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def failure(self, what: str) -> NodeFailedError:
        told = f"node {self.node_id} failed: {what}\n--- its log ends:\n{self.log_tail()}"
        return NodeFailedError(told)


class RunningCluster:
    """Nodes that know each other."""

    def __init__(self, nodes: Mapping[int, ClusterNode]) -> None:
        self.nodes: Final = dict(nodes)

    def __getitem__(self, node_id: int) -> ClusterNode:
        return self.nodes[node_id]

    @property
    def bootstrap(self) -> str:
        """Return the CLIENT addresses of all nodes."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def running(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_running]

    def others(self, *node_ids: int) -> list[ClusterNode]:
        """Return the nodes that run, without these."""
        return [node for node in self.running if node.node_id not in node_ids]

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def wait_until_ready(
        self, node_ids: Collection[int] | None = None, deadline_s: float = START_DEADLINE_S
    ) -> None:
        """Wait for these nodes, or for all that run."""
        chosen = self.running if node_ids is None else [self.nodes[one] for one in node_ids]
        end = time.monotonic() + deadline_s
        for node in chosen:
            node.wait_until_ready(max(0.0, end - time.monotonic()))

    def active_controller(self, *, not_: int | None = None) -> ClusterNode:
        """Wait until a running node says that it leads the controllers, and return it."""
        found = list[ClusterNode]()

        def holds() -> bool:
            found[:] = [
                node
                for node in self.running
                if node.node_id != not_ and node.leader() == node.node_id
            ]
            return bool(found)

        wait_until(holds, START_DEADLINE_S, "a node leads the controllers")
        return found[0]

    def end_of_block(self) -> None:
        """Stop all that run, at once; raise if one does not end well."""
        for node in self.nodes.values():
            if node.is_expected:
                node.require_running()
        asked = [node for node in self.running if node.is_expected]
        for node in asked:
            node.is_expected = False
            node.ask_to_stop()
        for node in asked:
            code = node.wait_stopped()
            if code != 0:
                raise node.failure(f"it ended with {code} after SIGTERM")

    def story(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(
            f"--- the log of node {node.node_id} ends:\n{node.log_tail()}"
            for node in self.nodes.values()
        )


def no_options(_: int) -> Mapping[str, str]:
    return {}


def make_cluster(
    directory: Path,
    nodes: int = 3,
    *,
    voters: int | None = None,
    options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    options_of: OptionsOf = no_options,
    environment_of: OptionsOf = no_options,
) -> RunningCluster:
    """Return a cluster of which nothing runs yet; the first `voters` nodes vote."""
    ids = range(1, nodes + 1)
    voter_ids = ids[: min(nodes, VOTERS_MAX) if voters is None else voters]
    drawn = iter(reserve_ports(nodes * len(LISTENERS)))
    ports = {node_id: {name: next(drawn) for name in LISTENERS} for node_id in ids}
    quorum = ",".join(f"{one}@{HOST}:{ports[one]['INTERNAL']}" for one in voter_ids)
    made = dict[int, ClusterNode]()
    for node_id in ids:
        listeners = (f"{name}://{HOST}:{port}" for name, port in ports[node_id].items())
        place = directory / f"node-{node_id}"
        chosen = {
            "node.id": str(node_id),
            "process.roles": "broker,controller" if node_id in voter_ids else "broker",
            "controller.quorum.voters": quorum,
            "listeners": ",".join(listeners),
            "log.dirs": str(place / "data"),
            **(options or {}),
            **options_of(node_id),
        }
        surroundings = {**(environment or {}), **environment_of(node_id)}
        made[node_id] = ClusterNode(node_id, place, chosen, surroundings, ports[node_id])
    return RunningCluster(made)


@contextmanager
def living(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """Yield a cluster, whatever runs of it; end all of it after the block.

    Only a block that ended well asks for good exit codes, and only of nodes that it did not end
    itself. What goes wrong in the block is told with the logs of all nodes.
    """
    try:
        yield cluster
        cluster.end_of_block()
    except BaseException as error:
        error.add_note(cluster.story())
        raise
    finally:
        for node in cluster.running:
            node.kill()


@contextmanager
def running_cluster(
    directory: Path,
    nodes: int = 3,
    *,
    voters: int | None = None,
    options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[RunningCluster]:
    """Yield a cluster of which every node is ready; end it after the block."""
    made = make_cluster(directory, nodes, voters=voters, options=options, environment=environment)
    with living(made):
        made.start()
        made.wait_until_ready()
        yield made


def _surroundings() -> dict[str, str]:
    # A node must not be configured by whoever runs the tests.
    return {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
