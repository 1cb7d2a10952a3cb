"""kcat in the words of `port.py`: one process for each question.

kcat takes a key, headers and one value from its command line and a file, so a record is a process.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Final

from tests.integration.clients.cases import KCAT_SAMPLE
from tests.integration.clients.port import (
    DEADLINE_S,
    FETCH_WAIT_MS,
    REQUEST_BYTES_MAX,
    AtBeginning,
    AtOffset,
    AtTime,
    Following,
    Producing,
    ReadRecord,
    Record,
    Sending,
    Start,
)
from tests.integration.kcat import find_kcat

# One line about a record, then its key and its value, byte for byte.
_FORMAT: Final = r"%p %o %T %K %S %h\n%k%s"
_LINE: Final = re.compile(rb"(\d+) (\d+) (-?\d+) (-?\d+) (-?\d+) (.*)\n")
_AT_END: Final = b"Reached end of topic"


class KcatFailedError(Exception):
    """kcat ended with an error; the text is what it said."""


class Kcat:
    """Produces and consumes with kcat."""

    name: Final = "kcat"
    sample: Final = KCAT_SAMPLE

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap: Final = bootstrap
        self._program: Final = find_kcat()

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Return what kcat prints; it must end well."""
        done = subprocess.run(
            self._command(*arguments),
            input=stdin,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
            env=self._environment(),
        )
        if done.returncode != 0:
            raise KcatFailedError(f"{done.returncode}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    @contextmanager
    def producing(self, sending: Sending) -> Iterator[Producing]:
        settings = {
            "acks": sending.acks,
            "enable.idempotence": str(sending.idempotent).lower(),
            "message.max.bytes": str(REQUEST_BYTES_MAX),
        }
        chosen = ["-z", sending.codec, *(f"-X{name}={value}" for name, value in settings.items())]

        def send(topic: str, records: Sequence[Record], *, partition: int = 0) -> list[int] | None:
            for record in records:
                self._send(record, "-P", "-t", topic, "-p", str(partition), *chosen)
            return None

        yield send

    def _send(self, record: Record, *arguments: str) -> None:
        headers = [f"-H{name}={(value or b'').decode()}" for name, value in record.headers]
        if record.value is None:
            # Only a line can be empty: kcat sends nothing for a file that is.
            line = (record.key or b"") + b"=\n"
            self.run(*arguments, *headers, "-Z", "-K=", stdin=line)
            return
        key = [] if record.key is None else ["-k", record.key.decode()]
        with tempfile.NamedTemporaryFile() as file:
            file.write(record.value)
            file.flush()
            self.run(*arguments, *headers, *key, file.name)

    def consume(
        self, topic: str, start: Start, *, partitions: Sequence[int] = (0,)
    ) -> list[ReadRecord]:
        # It reads one partition, or all that there are.
        place = ["-t", topic] if len(partitions) > 1 else ["-t", topic, "-p", str(partitions[0])]
        return _parsed(self.run("-C", "-e", "-q", *_READING, *place, "-o", _offset(start)))

    @contextmanager
    def follow(self, topic: str) -> Iterator[Following]:
        command = self._command("-C", "-u", *_READING, "-t", topic, "-p", "0", "-o", "end")
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._environment()
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                _skip_to_end(process.stderr)
                output = process.stdout
                yield lambda count: [_next_record(output) for _ in range(count)]
            finally:
                process.kill()

    def _command(self, *arguments: str) -> list[str]:
        # Without -F kcat reads a file in the home directory of whoever runs the tests.
        return [self._program.path, "-b", self._bootstrap, "-F", os.devnull, *arguments]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._program.environment}


_READING: Final = (
    "-f",
    _FORMAT,
    "-Xauto.offset.reset=earliest",
    f"-Xfetch.wait.max.ms={FETCH_WAIT_MS}",
)


def _offset(start: Start) -> str:
    match start:
        case AtBeginning():
            return "beginning"
        case AtOffset(offset):
            return str(offset)
        case AtTime(timestamp_ms):
            return f"s@{timestamp_ms}"


def _parsed(output: bytes) -> list[ReadRecord]:
    records = []
    at = 0
    while at < len(output):
        line = _LINE.match(output, at)
        assert line is not None, output[at : at + 80]
        record, size = _with_bytes(line, output[line.end() :])
        records.append(record)
        at = line.end() + size
    return records


def _with_bytes(line: re.Match[bytes], rest: bytes) -> tuple[ReadRecord, int]:
    key_size, value_size = int(line[4]), int(line[5])
    key_end = max(key_size, 0)
    end = key_end + max(value_size, 0)
    pairs = [pair.split(b"=", 1) for pair in line[6].split(b",") if pair]
    record = ReadRecord(
        partition=int(line[1]),
        offset=int(line[2]),
        timestamp_ms=int(line[3]),
        key=None if key_size < 0 else rest[:key_end],
        value=None if value_size < 0 else rest[key_end:end],
        headers=tuple((name.decode(), value) for name, value in pairs),
    )
    return record, end


def _skip_to_end(errors: IO[bytes]) -> None:
    for line in errors:
        if _AT_END in line:
            return
    raise KcatFailedError("kcat ended before it came to the end")


def _next_record(output: IO[bytes]) -> ReadRecord:
    head = output.readline()
    line = _LINE.fullmatch(head)
    assert line is not None, head
    size = max(int(line[4]), 0) + max(int(line[5]), 0)
    return _with_bytes(line, output.read(size))[0]
