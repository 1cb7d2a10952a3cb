"""A real node as a child process on loopback, for as long as a `with` block lasts.

Every listener takes a free port. The node writes where it listens into its data directory, and is
given to the test when `/health/ready` says so. It must end well when it is asked to end.

Not here: what is asked of it.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

START_DEADLINE_S: Final = 30.0
STOP_DEADLINE_S: Final = 20.0
POLL_S: Final = 0.02
ADDRESSES: Final = ".addresses.json"
LOG_TAIL_LINES: Final = 40
_DEFAULTS: Final = {
    "listeners": "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0",
}
_ANSWER_DEADLINE_S: Final = 5.0


class NodeFailedError(Exception):
    """A node did not start, or did not end as it should; the text ends with its log."""


class RunningNode:
    """A node that answers: where it listens, where it writes, and how to end it."""

    def __init__(self, process: subprocess.Popen[bytes], data_dir: Path, log_path: Path) -> None:
        self.data_dir: Final = data_dir
        self.log_path: Final = log_path
        self._process: Final = process
        self._addresses: dict[str, str] = {}
        self._was_ended_by_test = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def bootstrap(self) -> str:
        """Return host:port of the CLIENT listener."""
        return self._addresses["CLIENT"]

    @property
    def http(self) -> str:
        """Return host:port of the HTTP listener."""
        return self._addresses["HTTP"]

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the text that the HTTP listener answers."""
        connection = http.client.HTTPConnection(self.http, timeout=_ANSWER_DEADLINE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait_until_ready(self) -> None:
        wait_until(self._has_addresses, START_DEADLINE_S, f"the node writes {ADDRESSES}")
        wait_until(self._is_ready, START_DEADLINE_S, "the node is ready")

    def kill(self) -> None:
        """End it as a power cut would, in the eyes of the process: SIGKILL."""
        self._was_ended_by_test = True
        self._process.kill()
        self._process.wait(STOP_DEADLINE_S)

    def stop(self) -> int:
        """Ask it to end, and return its exit code. One that does not end is killed."""
        self._was_ended_by_test = True
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failure(f"it did not end {STOP_DEADLINE_S:.0f} s after SIGTERM") from None

    def end_of_block(self) -> None:
        """Stop it, unless the test has ended it; raise if it does not end well."""
        if self._was_ended_by_test:
            return
        if not self.is_running:
            raise self.failure(f"it ended by itself with {self._process.returncode}")
        code = self.stop()
        if code != 0:
            raise self.failure(f"it ended with {code} after SIGTERM")

    def log_tail(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def failure(self, what: str) -> NodeFailedError:
        return NodeFailedError(f"the node failed: {what}\n--- its log ends:\n{self.log_tail()}")

    def _has_addresses(self) -> bool:
        self._require_running()
        try:
            told = json.loads((self.data_dir / ADDRESSES).read_text())
        except FileNotFoundError:
            return False
        if told.pop("pid") != self.pid:
            # What an earlier node in this directory left behind.
            return False
        self._addresses = told
        return True

    def _is_ready(self) -> bool:
        self._require_running()
        try:
            return self.get("/health/ready")[0] == http.client.OK
        except OSError:
            return False

    def _require_running(self) -> None:
        if not self.is_running:
            raise self.failure(f"it ended with {self._process.returncode} while it started")


@contextmanager
def running_node(
    directory: Path,
    *,
    options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    descriptors_max: int | None = None,
    program: str = "ottla",
) -> Iterator[RunningNode]:
    """Yield a node that is ready, with its data in `directory`; end it after the block.

    A directory that a node has used before is taken over with what is in it. Only a block that
    ended well, and did not end the node itself, asks for a good exit code.
    """

    def limit() -> None:
        assert descriptors_max is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors_max, descriptors_max))

    data_dir, log_path = directory / "data", directory / "node.log"
    chosen = {**_DEFAULTS, "log.dirs": str(data_dir), **(options or {})}
    settings = [f"{name}={value}" for name, value in chosen.items()]
    command = [sys.executable, "-m", program, "node", *settings]
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env={**_surroundings(), **(environment or {})},
            preexec_fn=None if descriptors_max is None else limit,
        )
    node = RunningNode(process, data_dir, log_path)
    try:
        _until_ready(node)
        yield node
        node.end_of_block()
    finally:
        if node.is_running:
            node.kill()


def wait_until(condition: Callable[[], bool], deadline_s: float, what: str) -> None:
    """Return when the condition holds; fail loudly if it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {deadline_s:.0f} s for this to hold: {what}")
        time.sleep(POLL_S)


def _until_ready(node: RunningNode) -> None:
    try:
        node.wait_until_ready()
    except TimeoutError as error:
        raise node.failure(str(error)) from None


def _surroundings() -> dict[str, str]:
    # A node must not be configured by whoever runs the tests.
    return {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
