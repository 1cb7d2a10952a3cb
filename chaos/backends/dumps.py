"""What replicas hold, record by record, from the files of a node that is down.

Cleaners work alone on each replica, so two copies of a compacted partition need not have the same
batches, and only their records tell whether nothing is lost. `ottla log dump` tells them.

Not here: whether files are sound (`verifying.py`), what should be in them (`checkers/`).

Q1  only the segments that count are read: what a cleaner has left behind is not
Q2  what cannot be read of a segment is not told: the verifier finds it, and its records are missing
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ottla.chaos.backends.process import surroundings
from ottla.chaos.clock import now_ns
from ottla.chaos.evidence import FinalRead, Record
from ottla.chaos.history import Place
from ottla.chaos.payload import TOMBSTONE_HEADER, decode_payload, wire_name
from ottla.chaos.ports import HarnessError

_DUMP_DEADLINE_S: Final = 120.0
# It is read before the restart of the whole cluster.
_TURN: Final = 1

# Has `ottla log dump --json` tell of these, and returns what it printed.
Dump = Callable[[Sequence[str]], str]


def offline_reads(node: int, root: str, places: Iterable[Place], dump: Dump) -> Iterator[FinalRead]:
    """Yield those partitions of which a data directory has a replica."""
    told = {one["partition"]: one for one in _items(dump([root])) if one["type"] == "partition"}
    for place in places:
        name = f"{wire_name(place.topic)}-{place.partition}"
        if name in told:
            yield _read(node, f"{root}/{name}", place, told[name], dump)


def _read(
    node: int, directory: str, place: Place, known: Mapping[str, Any], dump: Dump
) -> FinalRead:
    start, high_watermark = known["start_offset"], known["high_watermark"]
    if start is None or high_watermark is None:
        raise HarnessError(f"nobody knows where {directory} of node {node} begins or ends")
    files = [f"{directory}/{one['file']}" for one in known["segments"]]
    began_ns = now_ns()
    records = _records(place, _items(dump(["--records", *files])) if files else ())
    return FinalRead(
        place=place,
        source=f"offline-{node}",
        turn=_TURN,
        start_offset=start,
        high_watermark=high_watermark,
        records=tuple(one for one in records if one.offset >= start),
        began_ns=began_ns,
    )


def _records(place: Place, items: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
    epoch, is_control = -1, False
    for one in items:
        if one["type"] == "batch":
            epoch, is_control = one["leader_epoch"], one["control"]
        elif one["type"] == "record":
            yield Record(one["offset"], decode_payload(place, _payload(one)), epoch, is_control)


def _payload(record: Mapping[str, Any]) -> bytes | None:
    """Return its value, or of a tombstone what stands in its header."""
    value = record["value"]
    if value is None:
        value = dict(record["headers"]).get(TOMBSTONE_HEADER)
    # What is no text is none of ours.
    return value.encode() if isinstance(value, str) else None


def _items(text: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in text.splitlines())


def dump_here(arguments: Sequence[str]) -> str:
    """Have our own program tell of files of this machine."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "log", "dump", "--json", *arguments],
        capture_output=True,
        timeout=_DUMP_DEADLINE_S,
        check=False,
        text=True,
        env=surroundings(),
    )
    # One that could not tell everything ends with an exit code too, and has told the rest.
    if not done.stdout and done.returncode:
        raise HarnessError(f"dumping {Path(arguments[-1])} failed: {done.stderr[-500:]}")
    return done.stdout
