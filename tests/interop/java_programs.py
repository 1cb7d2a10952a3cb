"""Java programs that run until they are told to end: a member of a group, and a stream of words.

Each has a JVM of its own, because they end with it.

Not here: programs that end by themselves (`tools.py`).
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.interop.kafka import java_command
from tests.interop.tools import VERIFIABLE_CONSUMER, WORD_COUNT

END_DEADLINE_S: Final = 60.0
_ASSIGNORS: Final = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
# Soon missed when it is killed, and the shortest that a group allows.
SESSION_MS: Final = 6000


class JavaMember:
    """A VerifiableConsumer: what it holds, and what it has seen. Started once, ended once."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        self.held: set[tuple[str, int]] = set()
        self.seen: Counter[int] = Counter()
        self._options: Final = (
            *("--bootstrap-server", bootstrap, "--group-id", group, "--topic", topic),
            *("--session-timeout", str(SESSION_MS), "--reset-policy", "earliest", "--verbose"),
            *("--assignment-strategy", _ASSIGNORS[strategy]),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: Final = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        command = [*java_command(VERIFIABLE_CONSUMER, heap="128m"), *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self._reader.start()

    def stop(self) -> None:
        """Let it leave its group."""
        self._end(is_killed=False)

    def kill(self) -> None:
        """End it as a power cut would, in the eyes of its group."""
        self._end(is_killed=True)

    def _end(self, *, is_killed: bool) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        if is_killed:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(END_DEADLINE_S)
        finally:
            process.kill()
            process.wait()
            self._reader.join(END_DEADLINE_S)
            self.held = set()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._take(json.loads(line))

    def _take(self, told: Mapping[str, Any]) -> None:
        match told["name"]:
            case "partitions_assigned":
                self.held = self.held | _places(told)
            case "partitions_revoked":
                self.held = self.held - _places(told)
            case "record_data":
                self.seen[int(told["value"])] += 1
            case _:
                pass


def _places(told: Mapping[str, Any]) -> set[tuple[str, int]]:
    return {(one["topic"], one["partition"]) for one in told["partitions"]}


@contextmanager
def word_count(bootstrap: str, folder: Path) -> Iterator[None]:
    """Run Kafka Streams' WordCountDemo for as long as the block lasts, and end it cleanly.

    It keeps what it has counted in the folder and in the cluster, and goes on from there.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "state.dir": str(folder / "state"),
        "commit.interval.ms": "100",
        # Streams does not leave its group at its end, so the next one waits this long.
        "session.timeout.ms": str(SESSION_MS),
        "heartbeat.interval.ms": "500",
    }
    properties = folder / "streams.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [*java_command(WORD_COUNT, heap="256m", temporary=folder), str(properties)]
    with (folder / "console.log").open("ab") as console:
        process = subprocess.Popen(
            command, stdout=console, stderr=console, stdin=subprocess.DEVNULL
        )
    try:
        yield
        assert process.poll() is None, (folder / "console.log").read_text()
    finally:
        process.terminate()
        try:
            process.wait(END_DEADLINE_S)
        finally:
            process.kill()
            process.wait()
