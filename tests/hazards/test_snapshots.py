"""P19, and two more of the same kind that are in no list: snapshots that take away entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.controller.quorum.entries import COMMAND, Entry, Snapshot, encode_snapshot
from ottla.controller.quorum.layout import SNAPSHOT_KEY
from ottla.controller.quorum.member import Compaction
from ottla.controller.quorum.messages import AppendAnswer, SnapshotPart
from ottla.proto.errors import CorruptionError
from tests.hazards.ours import Ours, append, entries
from tests.hazards.plain import NO_OP, Counting, alone, indexes, plain, put_many, tell
from tests.unit.controller.quorum.cluster import Cluster


class Early(Counting):
    """Sets an attribute before the library looks."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.early: list[object] = []
        super().__init__(*arguments, **options)


def test_p19_a_snapshot_holds_everything_or_there_is_no_start(tmp_path: Path) -> None:
    files: dict[str, Any] = {"journalFile": str(tmp_path / "j"), "useFork": False}
    files["fullDumpFile"] = str(tmp_path / "d")
    library = alone(kind=Early, **files)
    library.early.append("precious")
    put_many(library, 1, 2, 3)
    library.forceLogCompaction()
    for _ in range(3):
        library.doTick(0)
    again = plain("a", "", kind=Early, **files)
    again.doTick(0)
    assert (again.count, again.early) == (3, [])
    (tmp_path / "d").write_bytes(b"damage")
    empty = plain("a", "", kind=Early, **files)
    empty.doTick(0)
    assert empty.count == 0

    ours = Ours(1, compaction=Compaction(entries=10))
    ours.lead()
    for number in range(30):
        ours.propose(b"%d" % number)
        ours.tick()
    damaged = bytearray(ours.disk[SNAPSHOT_KEY])
    damaged[-1] ^= 1
    with pytest.raises(CorruptionError, match="its snapshot is not what was written"):
        Ours(1, disk={**ours.disk, SNAPSHOT_KEY: bytes(damaged)})


def a_snapshot(index: int, term: int, state: bytes = b"state") -> SnapshotPart:
    previous = Entry(COMMAND + b"%d" % (index - 1), index - 1, term)
    last = Entry(COMMAND + b"%d" % index, index, term)
    data = encode_snapshot(Snapshot(previous, last, state))
    return SnapshotPart(term, index, term, 0, data, True)


def test_a_part_of_a_snapshot_does_not_commit_entries_that_the_leader_has_not_shown() -> None:
    library = plain()
    head: dict[str, Any] = {"type": "append_entries", "commit_index": 1}
    divergent = [(NO_OP, index, 1) for index in range(2, 6)]
    tell(library, "b", **head, term=1, prevLogIdx=1, prevLogTerm=0, entries=divergent)
    part = {**head, "term": 2, "commit_index": 100, "serialized": (b"part", True, False)}
    tell(library, "c", **part)
    assert library.raftCommitIndex == 5

    ours = Ours()
    ours.tell(2, append(1, 0, *entries(2, 5)))
    ours.tell(3, SnapshotPart(2, 100, 2, 0, b"part", False))
    assert ours.member.status().commit_index == 1


def test_a_snapshot_that_comes_late_takes_nothing_away(tmp_path: Path) -> None:
    source = alone()
    put_many(source, *range(10))
    source.forceLogCompaction()
    source.doTick(0)
    data = source._SyncObj__serializer._Serializer__inMemorySerializedData
    library = plain()
    head: dict[str, Any] = {"type": "append_entries", "term": 2, "commit_index": 1}

    def send_snapshot() -> None:
        tell(library, "b", **head, serialized=(data, True, False))
        tell(library, "b", **head, serialized=(b"", False, True))

    send_snapshot()
    last = indexes(library)[-1]
    more = [(NO_OP, index, 2) for index in range(last + 1, last + 6)]
    prev = {"prevLogIdx": last, "prevLogTerm": library._SyncObj__raftLog[-1][2]}
    tell(library, "b", **head, **prev, entries=more)
    assert indexes(library)[-1] == last + 5
    send_snapshot()
    assert indexes(library)[-1] == last

    ours = Ours()
    ours.tell(2, a_snapshot(100, 2))
    assert ours.messages[-1] == AppendAnswer(101, reset=False, success=True)
    ours.tell(2, append(100, 2, *entries(101, 105, term=2), term=2, commit=103))
    ours.tell(2, a_snapshot(100, 2))
    ours.tell(2, a_snapshot(50, 2))
    # One that ends at an entry which is here brings nothing new either.
    ours.tell(2, a_snapshot(104, 2))
    ours.tick()
    assert ours.journal.last_index == 105
    assert ours.machine.commands == [b"state", b"101", b"102", b"103"]


def test_a_snapshot_is_put_together_from_its_parts_only() -> None:
    whole = a_snapshot(100, 2, b"s" * 200_000)

    def part(first: int, end: int, index: int = 100, *, is_last: bool = False) -> SnapshotPart:
        return SnapshotPart(2, index, 2, first, whole.data[first:end], is_last)

    size = len(whole.data)
    ours = Ours()
    ours.tell(2, part(0, 60_000))
    ours.tell(2, part(120_000, 180_000))  # the part between was lost
    ours.tell(2, part(180_000, size, is_last=True))
    assert ours.journal.last_index == 1
    ours.tell(2, part(0, 60_000))
    ours.tell(2, part(60_000, 120_000, index=101))  # of another snapshot
    ours.tell(2, part(120_000, 180_000))
    assert ours.journal.snapshot is None
    for first in range(0, size, 60_000):
        ours.tell(2, part(first, first + 60_000, is_last=first + 60_000 >= size))
    assert ours.journal[:] == [Entry(COMMAND + b"99", 99, 2), Entry(COMMAND + b"100", 100, 2)]
    assert ours.machine.commands == [b"s" * 200_000]
    restarted = Ours(disk=ours.disk)
    assert restarted.machine.commands == [b"s" * 200_000]
    assert restarted.member.status().applied_index == 100


def test_a_member_that_was_away_for_long_catches_up_by_a_snapshot_and_goes_on() -> None:
    cluster = Cluster(3, compaction=Compaction(entries=20))
    leader = cluster.elect()
    away = next(n for n in (1, 2, 3) if n != leader)
    cluster.kill(away)
    for number in range(100):
        cluster.commit(leader, b"%d" % number + bytes(1_000))
    assert cluster.journals[leader].first_index > 50
    cluster.start(away)
    cluster.run_until(lambda: len(cluster.machines[away].commands) == 100)
    cluster.kill(leader)
    new_leader = cluster.elect()
    cluster.commit(new_leader, b"after")
    cluster.run(200)
    assert cluster.machines[away].commands == cluster.machines[new_leader].commands
    assert cluster.machines[away].commands[-1] == b"after"
