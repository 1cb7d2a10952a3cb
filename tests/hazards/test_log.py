"""P1, P2, P3, P4, P12, P20, P24: what was acknowledged is kept. First as shipped, then ours."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pysyncobj import SyncObjConf  # type: ignore[import-untyped]
from pysyncobj.journal import FileJournal, ResizableFile  # type: ignore[import-untyped]
from pysyncobj.node import Node  # type: ignore[import-untyped]
from pysyncobj.transport import Transport  # type: ignore[import-untyped]

from ottla.controller.quorum.journal import Journal
from ottla.controller.quorum.layout import entry_key
from ottla.controller.quorum.member import Compaction
from ottla.controller.quorum.messages import Append, AppendAnswer, Envelope
from ottla.controller.quorum.port import Committed
from ottla.proto.errors import CorruptionError
from ottla.replication.storage.failpoints import CrashError
from ottla.replication.storage.faults import FaultyStore, Power, PowerCutError
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.hazards.ours import Ours, append, entries
from tests.hazards.plain import (
    NO_OP,
    Counting,
    alone,
    indexes,
    plain,
    plain_journal,
    put_many,
    sent,
    stand,
    tell,
)
from tests.unit.controller.quorum.cluster import Cluster


def test_p1_an_older_append_does_not_truncate() -> None:
    library = plain()
    batch: dict[str, Any] = {"type": "append_entries", "term": 1, "commit_index": 1}
    all_entries = [(NO_OP, index, 1) for index in range(2, 21)]
    tell(library, "b", **batch, prevLogIdx=1, prevLogTerm=0, entries=all_entries)
    assert indexes(library)[-1] == 20
    tell(library, "b", **batch, prevLogIdx=5, prevLogTerm=1, entries=[(NO_OP, 6, 1)])
    assert indexes(library)[-1] == 6
    tell(library, "b", **batch, prevLogIdx=3, prevLogTerm=1, entries=[])
    assert indexes(library)[-1] == 3

    ours = Ours()
    ours.tell(2, append(1, 0, *entries(2, 20)))
    assert ours.messages[-1] == AppendAnswer(21, reset=False, success=True)
    ours.tell(2, append(5, 1, *entries(6, 6), commit=15))
    ours.tell(2, append(3, 1, commit=15))
    assert ours.journal.last_index == 20
    assert Journal(MemoryStateStore(ours.disk)).last_index == 20
    # The older append has shown nothing beyond entry 6, so nothing beyond it is committed.
    assert ours.member.status().commit_index == 6


def test_p1_an_entry_of_another_term_does_truncate() -> None:
    ours = Ours()
    ours.tell(2, append(1, 0, *entries(2, 20)))
    ours.tell(3, append(9, 1, *entries(10, 11, term=2), term=2))
    assert ours.journal.last_index == 11
    assert ours.journal.last_term == 2


class PlainTrio:
    """Three of the library, with one queue for each way."""

    def __init__(self) -> None:
        self.ways: dict[tuple[str, str], deque[Any]] = defaultdict(deque)
        trio = self

        class Queued(Transport):  # type: ignore[misc]
            def __init__(self, library: Any, me: Any, others: Any) -> None:
                super().__init__(library, me, others)
                self.me = me.id

            def send(self, node: Any, message: Any) -> bool:
                trio.ways[self.me, node.id].append(message)
                return True

        conf: dict[str, Any] = {"appendEntriesBatchSizeBytes": 64, "leaderFallbackTimeout": 1e6}
        conf |= {"raftMinTimeout": 500, "raftMaxTimeout": 501, "connectionTimeout": 1e6}
        conf |= {"appendEntriesPeriod": 100, "autoTick": False}
        self.members = {
            me: Counting(
                Node(me),
                [Node(other) for other in "LFT" if other != me],
                conf=SyncObjConf(**conf),
                nodeClass=Node,
                transportClass=Queued,
            )
            for me in "LFT"
        }

    def deliver(self, sender: str, receiver: str, count: int | None = None) -> None:
        way = self.ways[sender, receiver]
        for _ in range(len(way) if count is None else count):
            tell(self.members[receiver], sender, **way.popleft())

    def connect(self, one: str, other: str) -> None:
        self.members[one]._SyncObj__onNodeConnected(Node(other))
        self.members[other]._SyncObj__onNodeConnected(Node(one))

    def stand(self, me: str, voter: str) -> None:
        member = self.members[me]
        member._SyncObj__raftElectionDeadline = 0
        for _ in range(6):
            member.doTick(0)
            self.members[voter].doTick(0)
            if member._isLeader():
                member._SyncObj__sendAppendEntries()
            self.deliver(me, voter)
            self.deliver(voter, me)


def test_p1_as_shipped_commands_that_were_acknowledged_are_lost_over_plain_tcp() -> None:
    trio = PlainTrio()
    leader, follower = trio.members["L"], trio.members["F"]
    trio.connect("L", "F")
    trio.stand("L", "F")
    acknowledged: list[object] = []
    for number in range(10):
        leader.put(number, callback=lambda answer, _: acknowledged.append(answer))
    leader._checkCommandsToApply()
    leader._SyncObj__sendAppendEntries()
    trio.ways.clear()  # the connection breaks with all that is in it
    leader._SyncObj__sendAppendEntries()
    leader._SyncObj__sendAppendEntries()
    trio.deliver("L", "F")  # two heartbeats, and two wishes to begin anew
    trio.deliver("F", "L", 1)
    leader._SyncObj__sendAppendEntries()
    trio.deliver("L", "F")
    trio.deliver("F", "L", 1)
    leader._SyncObj__sendAppendEntries()  # once more from the old place
    trio.deliver("F", "L")
    leader.doTick(0)
    assert len(acknowledged) == 10
    trio.deliver("L", "F", 1)  # the first resent part arrives; then the leader dies
    trio.ways.clear()
    trio.connect("F", "T")
    follower._SyncObj__raftLeader = None
    trio.stand("F", "T")
    assert follower._isLeader()
    assert len(follower.seen) < 10


def test_p1_in_the_same_story_ours_loses_nothing() -> None:
    cluster = Cluster(3, seed=3)
    leader = cluster.elect()
    follower, third = (n for n in (1, 2, 3) if n != leader)
    network = cluster.network
    network.cut_off(third)
    resend = cluster.members[leader]._raft.send_entries
    # So large that three fill a batch.
    commands = [b"%d" % number + bytes(30_000) for number in range(10)]
    found = [cluster.propose(leader, command) for command in commands]
    cluster.members[leader].tick()
    network.queues[leader, follower].clear()
    network.queues[follower, leader].clear()
    resend()
    resend()
    network.deliver(leader, follower)
    answers = [letter.message for letter in network.queues[follower, leader]]
    assert [isinstance(told, AppendAnswer) and told.reset for told in answers] == [True, True]
    network.deliver(follower, leader, 1)
    resend()
    network.deliver(leader, follower)
    network.deliver(follower, leader, 1)
    resend()
    network.deliver(follower, leader)
    cluster.members[leader].tick()
    assert all(isinstance(outcome, Committed) for (outcome,) in found)
    network.deliver(leader, follower, 1)
    cluster.kill(leader)
    network.heal()
    assert cluster.elect() == follower
    assert cluster.machines[follower].commands == commands
    cluster.run(300)
    assert cluster.machines[third].commands == commands


def test_p2_a_crash_between_snapshot_and_trim_loses_no_suffix(tmp_path: Path) -> None:
    files: dict[str, Any] = {"journalFile": str(tmp_path / "j"), "useFork": False}
    files["fullDumpFile"] = str(tmp_path / "d")
    library = alone(**files)
    put_many(library, *range(50))
    library.forceLogCompaction()
    library._SyncObj__tryLogCompaction()  # it writes; it would trim in the next tick
    library._SyncObj__tryLogCompaction = lambda: None
    put_many(library, *range(50, 80))
    assert library.count == 80
    again = plain("a", "", **files)
    again.doTick(0)
    assert again.count == 50
    assert len(indexes(again)) == 2

    power, disk = Power(), dict[bytes, bytes]()
    for cut_in in (1, 2):
        store = FaultyStore(MemoryStateStore(disk), power)
        ours = Ours(1, disk=disk, store=store, compaction=Compaction(entries=80))
        ours.lead()
        before = len(ours.machine.commands)
        while len(ours.machine.commands) < before + 60:
            ours.propose(b"%d" % len(ours.machine.commands))
            ours.tick()
        kept = list(ours.machine.commands)
        power.cut_at = power.moments + cut_in
        with pytest.raises(PowerCutError):
            ours.journal.compact(ours.member.status().applied_index, ours.machine.snapshot())
        power.cut(Random(0), Style.DROP)
        again_ours = Ours(1, disk=disk)
        again_ours.lead()
        again_ours.tick()
        assert again_ours.machine.commands == kept
        assert (again_ours.journal.snapshot is not None) == (cut_in == 2)


def test_p3_a_crash_within_a_trim_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = plain_journal(str(tmp_path / "j"))
    for index in range(1, 21):
        journal.add(NO_OP, index, 1)
    add = FileJournal.add

    def add_three(self: Any, command: bytes, index: int, term: int) -> None:
        if index > 13:
            raise CrashError("killed")
        add(self, command, index, term)

    monkeypatch.setattr(FileJournal, "add", add_three)
    with pytest.raises(CrashError):
        journal.deleteEntriesTo(10)
    monkeypatch.undo()
    assert len(plain_journal(str(tmp_path / "j"))) == 3

    for cut_in in (1, 2):
        power, disk = Power(), dict[bytes, bytes]()
        ours = Ours(1, disk=disk, store=FaultyStore(MemoryStateStore(disk), power))
        ours.lead()
        for number in range(20):
            ours.propose(b"%d" % number)
        ours.tick()
        ours.tick()
        assert len(ours.machine.commands) == 20
        power.cut_at = power.moments + cut_in
        with pytest.raises(PowerCutError):
            ours.journal.compact(ours.journal.commit_index - 5, b"")
        assert Journal(MemoryStateStore(disk)).last_index == ours.journal.last_index


def test_p4_nothing_leaves_and_nothing_is_applied_before_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[object] = []
    monkeypatch.setattr(os, "fsync", syncs.append)
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    monkeypatch.setattr(ResizableFile, "flush", syncs.append)
    library = alone(journalFile=str(tmp_path / "j"))
    put_many(library, 1)
    assert library.count == 1
    assert not syncs
    monkeypatch.undo()

    ours = Ours()

    def look_at_the_disk(envelope: Envelope) -> None:
        found = Journal(MemoryStateStore(dict(ours.disk)))
        assert (found[:], found.term, found.vote) == (
            ours.journal[:],
            ours.journal.term,
            ours.journal.vote,
        )
        assert envelope.sender_term == found.term

    ours.on_send = look_at_the_disk
    ours.lead()
    ours.propose(b"one")
    ours.tick()
    assert any(isinstance(message, Append) and message.entries for message in ours.messages)


def test_p4_a_single_voter_syncs_before_it_applies() -> None:
    ours = Ours(1)
    apply = ours.machine.apply

    def look_at_the_disk(command: bytes) -> object:
        kept = [entry.command[1:] for entry in Journal(MemoryStateStore(ours.disk))[:]]
        assert command in kept
        return apply(command)

    ours.machine.apply = look_at_the_disk  # type: ignore[method-assign]
    ours.lead()
    found = ours.propose(b"one")
    ours.tick()
    ours.tick()
    assert isinstance(found[0], Committed)
    assert ours.machine.commands == [b"one"]


def test_p12_a_snapshot_is_never_kept_in_memory_only(tmp_path: Path) -> None:
    library = alone(journalFile=str(tmp_path / "j"))
    put_many(library, *range(50))
    library.forceLogCompaction()
    for _ in range(3):
        library.doTick(0)
    library._SyncObj__raftLog.onOneSecondTimer()
    again = plain("a", "", journalFile=str(tmp_path / "j"))
    for _ in range(3):
        again.doTick(0)
    assert (library.count, again.count) == (50, 0)

    ours = Ours(1, compaction=Compaction(entries=10))
    ours.lead()
    for number in range(50):
        ours.propose(b"%d" % number)
        ours.tick()
    ours.tick()
    assert ours.journal.first_index > 30
    restarted = Ours(1, disk=ours.disk)
    restarted.lead()
    restarted.tick()
    assert restarted.machine.commands == ours.machine.commands
    assert len(restarted.machine.commands) == 50


def test_p20_a_flipped_bit_is_found(tmp_path: Path) -> None:
    journal = plain_journal(str(tmp_path / "j"))
    journal.add(b"\x00command", 1, 1)
    journal.flush()
    data = bytearray((tmp_path / "j").read_bytes())
    data[data.index(b"command")] ^= 1
    (tmp_path / "j").write_bytes(data)
    assert plain_journal(str(tmp_path / "j"))[0][0] == b"\x00bommand"

    ours = Ours()
    ours.tell(2, append(1, 0, *entries(2, 5)))
    damaged = bytearray(ours.disk[entry_key(3)])
    damaged[-1] ^= 1
    ours.disk[entry_key(3)] = bytes(damaged)
    with pytest.raises(CorruptionError, match="entry 3 is not what was written"):
        Ours(disk=ours.disk)


def test_p24_nothing_is_applied_at_a_start_before_a_majority_was_heard(tmp_path: Path) -> None:
    file = str(tmp_path / "j")
    library = alone(journalFile=file)
    put_many(library, 1, 2, 3)
    library._SyncObj__raftLog.onOneSecondTimer()
    again = plain("a", "bc", journalFile=file)
    again.doTick(0)
    assert again.count == 3

    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.commit(leader, b"one")
    cluster.run(200)
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
    cluster.start(leader)
    cluster.run(5_000)
    assert cluster.machines[leader].commands == []
    assert cluster.leaders() == []
    cluster.start(next(n for n in (1, 2, 3) if n != leader))
    cluster.elect()
    assert cluster.machines[leader].commands == [b"one"]


def test_a_follower_with_wrong_entries_is_not_sent_the_same_for_ever() -> None:
    library = plain("a", "b", appendEntriesBatchSizeBytes=64)
    stand(library, "b")
    for _ in range(4):
        library.put(b"x" * 40)
    library._checkCommandsToApply()
    library._SyncObj__sendAppendEntries()
    # The first batch does not fit what is there; to the others there is nothing they could follow.
    for wanted in (2, 3, 3, 3):
        answer = {"next_node_idx": wanted, "reset": True, "success": False}
        tell(library, "b", type="next_node_idx", **answer)
    sent(library).clear()
    library._SyncObj__sendAppendEntries()
    assert sent(library)[0][1]["prevLogIdx"] == 2

    ours = Ours()
    ours.lead()
    for number in range(10):
        ours.propose(b"%d" % number + bytes(30_000))
    ours.tick()
    for wanted in (2, 3, 3, 3):
        ours.tell(2, AppendAnswer(wanted, reset=True, success=False))
    ours.sent.clear()
    ours.tick(150)
    first = next(letter.message for letter in ours.sent if letter.receiver == 2)
    assert isinstance(first, Append)
    assert first.previous_index == 1
