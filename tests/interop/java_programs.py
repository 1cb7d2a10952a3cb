"""Java programs in a JVM of their own: a member of a group, a stream of words, a copier.

They end with it, or are killed with it.

Not here: programs that end by themselves (`tools.py`).
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from tests.interop.kafka import java_command
from tests.interop.tools import TRANSACTIONAL_COPIER, VERIFIABLE_CONSUMER, WORD_COUNT

END_DEADLINE_S: Final = 60.0
COPY_DEADLINE_S: Final = 120.0
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
def word_count(
    bootstrap: str, folder: Path, more: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run Kafka Streams' WordCountDemo for as long as the block lasts, and end it cleanly.

    It keeps what it has counted in the folder and in the cluster, and goes on from there. Whoever
    wants it to end otherwise kills it.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "state.dir": str(folder / "state"),
        "commit.interval.ms": "100",
        # Streams does not leave its group at its end, so the next one waits this long.
        "session.timeout.ms": str(SESSION_MS),
        "heartbeat.interval.ms": "500",
        **(more or {}),
    }
    properties = folder / "streams.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [*java_command(WORD_COUNT, heap="256m", temporary=folder), str(properties)]
    with (folder / "console.log").open("ab") as console:
        process = subprocess.Popen(
            command, stdout=console, stderr=console, stdin=subprocess.DEVNULL
        )
    try:
        yield process
        assert process.poll() in (None, -signal.SIGKILL), (folder / "console.log").read_text()
    finally:
        process.terminate()
        try:
            process.wait(END_DEADLINE_S)
        finally:
            process.kill()
            process.wait()


class Copier:
    """A TransactionalMessageCopier: reads, writes what it has read, and commits both together.

    Used in a `with`, at the end of which it is killed if it has not ended by itself.
    """

    def __init__(self, bootstrap: str, *options: str) -> None:
        command = java_command(TRANSACTIONAL_COPIER, heap="128m")
        self._process: Final = subprocess.Popen(
            [*command, "--broker-list", bootstrap, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def told(self) -> Iterator[dict[str, Any]]:
        """Yield what it tells of itself, until it has ended; whoever hears enough may kill it."""
        watch = threading.Timer(COPY_DEADLINE_S, self._process.kill)
        watch.start()
        try:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if line.startswith(b"{"):
                    yield json.loads(line)
        finally:
            watch.cancel()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def run(self) -> None:
        """Return when it has ended by itself, well."""
        said = list(self.told())
        assert self._process.wait(END_DEADLINE_S) == 0, said
