"""P13, P14, P15, P18, P21: nobody gets in, nothing gets out. First as shipped, then ours."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pysyncobj import (  # type: ignore[import-untyped]
    SyncObj,
    SyncObjConf,
    serializer,
)

from ottla.controller.quorum.entries import COMMAND, COMMAND_BYTES_MAX, Entry
from ottla.controller.quorum.member import Compaction
from ottla.controller.quorum.messages import Append, RequestVote, SnapshotPart
from ottla.controller.quorum.transport import ENTRIES_MAX, SNAPSHOT_PART_BYTES_MAX, Drop
from tests.hazards.ours import Ours, append, entries
from tests.hazards.plain import alone, put_many
from tests.unit.controller.quorum.cluster import Cluster

DEADLINE_S = 5


class Marker:
    """Makes a file, if somebody unpickles it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def _listening() -> tuple[Any, int]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    return SyncObj(f"127.0.0.1:{port}", ["127.0.0.1:1"], conf=SyncObjConf(autoTick=False)), port


def _frame(message: object) -> bytes:
    data = zlib.compress(pickle.dumps(message, 2))
    return struct.pack("i", len(data)) + data


def test_p13_p14_p15_as_shipped_strangers_run_code_and_lead(tmp_path: Path) -> None:
    library, port = _listening()
    marker = tmp_path / "was-here"

    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)

    with connect() as first, connect() as second, connect() as third:
        first.sendall(_frame(Marker(str(marker))))
        for _ in range(100):
            library.doTick(0.01)
            if marker.exists():
                break
        assert marker.exists()
        second.sendall(_frame("readonly"))
        for _ in range(10):
            library.doTick(0.01)
        head = {"type": "append_entries", "term": 10**9, "commit_index": 1}
        second.sendall(_frame({**head, "prevLogIdx": 1, "prevLogTerm": 0, "entries": []}))
        for _ in range(100):
            library.doTick(0.01)
            if library.raftCurrentTerm == 10**9:
                break
        assert library.raftCurrentTerm == 10**9
        # A frame of a gigabyte is waited for.
        third.sendall(struct.pack("i", 1 << 30) + bytes(100_000))
        for _ in range(10):
            library.doTick(0.01)
        third.settimeout(0.05)
        with pytest.raises(TimeoutError):
            third.recv(1)
    library.doTick(0.01)
    library.destroy()


def test_p13_p18_p21_ours_opens_no_socket_and_unpickles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a member of the quorum must not do that")

    for module, name in [
        (socket, "socket"),
        (socket, "getaddrinfo"),
        (os, "fork"),
        (pickle, "loads"),
        (pickle, "load"),
        (pickle, "dumps"),
        (pickle, "dump"),
        (pickle, "_loads"),
        (pickle, "_load"),
        (threading.Thread, "start"),
    ]:
        monkeypatch.setattr(module, name, forbidden)
    cluster = Cluster(3, compaction=Compaction(entries=10))
    leader = cluster.elect()
    behind = next(n for n in (1, 2, 3) if n != leader)
    cluster.network.cut_off(behind)
    for number in range(30):
        cluster.commit(leader, b"%d" % number)
    cluster.network.heal()
    cluster.run_until(lambda: len(cluster.machines[behind].commands) == 30)
    assert cluster.journals[behind].snapshot is not None


def test_p18_as_shipped_a_snapshot_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forks: list[int] = []

    def fork() -> int:
        forks.append(1)
        return 1_000_000

    library = alone(journalFile=str(tmp_path / "j"), fullDumpFile=str(tmp_path / "d"))
    put_many(library, 1, 2)
    monkeypatch.setattr(serializer.os, "fork", fork)
    library.forceLogCompaction()
    library._SyncObj__tryLogCompaction()
    assert forks


@pytest.mark.parametrize(
    ("change", "drop"),
    [
        ({"cluster_id": "another"}, Drop.OTHER_CLUSTER),
        ({"receiver": 2}, Drop.NOT_FOR_ME),
        ({"sender": 9}, Drop.NO_VOTER),
        ({"sender": 1}, Drop.NO_VOTER),
        ({"stream": "another"}, Drop.OLD_STREAM),
        ({"sequence": 0}, Drop.REPEATED),
    ],
)
def test_p14_a_stranger_is_not_heard(change: dict[str, Any], drop: Drop) -> None:
    ours = Ours()
    letter = ours.letter(2, append(1, 0, *entries(2, 3), term=10**9))
    assert ours.member.receive(replace(letter, **change)) is drop
    assert (ours.term, ours.member.leader, ours.journal.last_index) == (0, None, 1)
    assert ours.sent == []
    assert ours.member.drops == {drop: 1}


def test_p14_whoever_has_the_certificate_of_another_is_not_heard() -> None:
    ours = Ours()
    letter = ours.letter(2, append(1, 0, term=5))
    assert ours.member.receive(letter, verified_as=3) is Drop.WRONG_IDENTITY
    assert ours.term == 0
    assert ours.member.receive(letter, verified_as=2) is None
    assert ours.term == 5


@pytest.mark.parametrize(
    "message",
    [
        append(1, 0, Entry(COMMAND + bytes(COMMAND_BYTES_MAX + 1), 2, 1)),
        append(1, 0, Entry(b"", 2, 1)),
        append(1, 0, Entry(b"\x07", 2, 1)),
        append(1, 0, *entries(3, 4)),
        append(1, 0, *entries(2, 2), *entries(4, 4)),
        append(1, 0, *entries(2, 2, term=2)),
        append(1, 5),
        append(-1, 0),
        append(0, 0),
        Append(1, 1, 1, 0, entries(2, 2) * (ENTRIES_MAX + 1)),
        append(1, 0, term=1 << 63),
        RequestVote(-1, 1, 1),
        SnapshotPart(1, 5, 1, 0, bytes(SNAPSHOT_PART_BYTES_MAX + 1), True),
        SnapshotPart(1, 5, 1, -1, b"", True),
    ],
    ids=lambda message: repr(message)[:40],
)
def test_p15_what_makes_no_sense_or_is_too_large_is_dropped(message: Append) -> None:
    ours = Ours()
    assert ours.tell(2, message) is Drop.MALFORMED
    assert (ours.term, ours.journal.last_index, ours.sent) == (0, 1, [])
