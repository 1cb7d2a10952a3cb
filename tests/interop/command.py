"""Our own `ottla log` command, run as a user runs it, and its JSON lines read back."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

COMMAND: Final = Path(sys.executable).with_name("ottla")
DEADLINE_S: Final = 60.0

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record as `ottla log dump --records --json` tells it, with text turned back into bytes."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    # From the batch that holds it.
    control: bool


def dump_lines(files: Sequence[Path], *options: str) -> list[Line]:
    """Return the objects that `ottla log dump` prints; it must end well and print nothing else."""
    done = _run("dump", *(str(file) for file in files), "--json", *options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def dump_records(files: Sequence[Path]) -> list[ReadRecord]:
    records = []
    control = False
    for line in dump_lines(files, "--records"):
        if line["type"] == "batch":
            control = line["control"]
        else:
            assert line["type"] == "record"
            records.append(_record(line, control=control))
    return records


def verify(directory: Path) -> tuple[int, Line]:
    """Return the exit code and the one JSON object of `ottla log verify`."""
    done = _run("verify", str(directory), "--json")
    return done.returncode, json.loads(done.stdout)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), "log", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def _record(line: Line, *, control: bool) -> ReadRecord:
    return ReadRecord(
        offset=line["offset"],
        timestamp=line["timestamp"],
        key=_bytes(line["key"]),
        value=_bytes(line["value"]),
        headers=tuple((key, _bytes(value)) for key, value in line["headers"]),
        control=control,
    )


def _bytes(told: str | dict[str, str] | None) -> bytes | None:
    """Text stands for its UTF-8 bytes; anything else comes in base64."""
    if told is None:
        return None
    return told.encode() if isinstance(told, str) else base64.b64decode(told["base64"])
