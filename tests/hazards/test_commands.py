"""P8, P10, P16, P17, P22, P23: every command once, every caller answered. Shipped, then ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pysyncobj import (  # type: ignore[import-untyped]
    pickle as library_pickle,
)
from pysyncobj import replicated, syncobj

from ottla.controller.quorum.entries import COMMAND, COMMAND_BYTES_MAX, Entry
from ottla.controller.quorum.messages import Append
from ottla.controller.quorum.port import (
    ApplyFailed,
    Committed,
    Outcome,
    Refused,
    Unknown,
    Why,
)
from ottla.controller.quorum.transport import Drop
from tests.hazards.ours import Ours, append, entries
from tests.hazards.plain import Counting, Node, alone, plain, put_many, sent, stand, tell
from tests.unit.controller.quorum.cluster import Cluster


def test_p8_an_unknown_code_version_cannot_be_asked_for() -> None:
    library = plain()
    put = library._methodToID[library._getFuncName("put")]

    def call(what: str) -> bytes:
        return b"\x00" + bytes(library_pickle.dumps((put, (what,))))

    version = b"\x03" + library_pickle.dumps(7)
    commands = [version, call("x"), call("y"), call("z")]
    entries_told = [(command, index, 1) for index, command in enumerate(commands, start=2)]
    head = {"term": 1, "commit_index": 5, "prevLogIdx": 1, "prevLogTerm": 0}
    tell(library, "b", type="append_entries", **head, entries=entries_told)
    for _ in range(4):
        library.doTick(0)
    assert library.seen == ["x", "y", "z", "z"]

    ours = Ours()
    assert ours.tell(2, append(1, 0, Entry(version, 2, 1))) is Drop.MALFORMED
    assert ours.journal.last_index == 1


def test_p10_a_command_that_raises_is_applied_once_and_the_next_one_too() -> None:
    library = alone()
    answers: list[object] = []
    library.fail(callback=lambda *told: answers.append(told))
    library.put(1, callback=lambda *told: answers.append(told))
    raised = 0
    for _ in range(10):
        try:
            library.doTick(0)
        except ValueError:
            raised += 1
    assert raised > 5
    assert (library.count, library.seen, answers) == (raised, [], [])

    cluster = Cluster(3)
    leader = cluster.elect()
    failed = cluster.commit(leader, b"raise")
    assert failed.answer == ApplyFailed("ValueError: raise")
    assert cluster.commit(leader, b"next") == Committed(failed.index + 1, 1)
    cluster.run(200)
    assert [machine.commands for machine in cluster.machines.values()] == [[b"next"]] * 3


def test_p10_a_machine_at_its_end_stops_instead_of_going_its_own_way() -> None:
    ours = Ours(1)
    ours.lead()

    def apply(command: bytes) -> object:
        raise MemoryError(command)

    ours.machine.apply = apply  # type: ignore[method-assign]
    found = ours.propose(b"one")
    with pytest.raises(MemoryError):
        ours.tick()
    assert found == [Unknown(Why.HALTED)]
    assert ours.member.halted is not None
    assert ours.propose(b"two") == [Refused(Why.HALTED)]


def test_p16_a_large_command_travels_in_one_piece_or_not_at_all() -> None:
    wrong = []
    for size in range(64, 200):
        library = plain("a", "b", appendEntriesBatchSizeBytes=64)
        stand(library, "b")
        library.put(b"x" * size)
        library._checkCommandsToApply()
        sent(library).clear()
        library._SyncObj__sendAppendEntries()
        parts = [message.get("transmission") for _, message in sent(library)]
        if parts.count("finish") != 1:
            wrong.append(size)
    assert wrong

    cluster = Cluster(3)
    leader = cluster.elect()
    assert cluster.propose(leader, bytes(COMMAND_BYTES_MAX + 1)) == [Refused(Why.TOO_LARGE)]
    for size in (COMMAND_BYTES_MAX - 1, COMMAND_BYTES_MAX):
        cluster.commit(leader, bytes(size))
    cluster.run(200)
    for machine in cluster.machines.values():
        assert [len(command) for command in machine.commands] == [
            COMMAND_BYTES_MAX - 1,
            COMMAND_BYTES_MAX,
        ]


def test_p17_every_caller_is_answered_in_time_and_not_more_than_is_known() -> None:
    library = plain()
    tell(library, "b", type="append_entries", term=1, commit_index=1, entries=[],
         prevLogIdx=1, prevLogTerm=0)  # fmt: skip
    answers: list[object] = []
    library.put(1, callback=lambda *told: answers.append(told))
    library.doTick(0)
    assert [message["type"] for _, message in sent(library)][-1] == "apply_command"
    library._SyncObj__onNodeDisconnected(Node("b"))
    for _ in range(50):
        library.doTick(0)
    assert answers == []

    cluster = Cluster(3)
    leader = cluster.elect()
    follower = next(n for n in (1, 2, 3) if n != leader)
    assert cluster.propose(follower, b"one") == [Refused(Why.NOT_LEADER, leader)]
    cluster.network.cut_off(leader)
    lost = cluster.propose(leader, b"two", timeout_ms=3_000)
    cluster.run(2_900)
    assert lost == []
    cluster.run(200)
    assert lost == [Unknown(Why.TIMED_OUT)]
    assert isinstance(cluster.propose(leader, b"three")[0], Refused)


def test_p17_what_another_leader_replaced_is_unknown_and_what_it_committed_is_committed() -> None:
    ours = Ours()
    ours.lead()
    replaced = ours.propose(b"mine")
    ours.tick()
    index = ours.journal.last_index
    other = Entry(COMMAND + b"other", index, ours.term + 1)
    ours.tell(2, append(index - 1, ours.term, other, term=ours.term + 1, commit=index))
    ours.tick()
    assert replaced == [Unknown(Why.REPLACED)]
    assert ours.machine.commands == [b"other"]


def test_p17_too_many_callers_are_turned_away() -> None:
    ours = Ours()
    ours.lead()
    found: list[Outcome] = []
    for number in range(1_005):
        ours.member.propose(b"%d" % number, 100, found.append)
    assert found == [Refused(Why.BUSY, 1)] * 5
    ours.tick()
    ours.tick(200)
    assert found[5:] == [Unknown(Why.TIMED_OUT)] * 1_000


class Versioned(Counting):
    """A method in two versions."""

    @replicated
    def add(self) -> None:
        self.count += 1

    @replicated(ver=1)  # type: ignore[no-redef]
    def add(self) -> None:  # noqa: F811
        self.count += 10


def test_p22_there_is_one_method_in_one_version(tmp_path: Path) -> None:
    files: dict[str, Any] = {"journalFile": str(tmp_path / "j"), "useFork": False}
    files["fullDumpFile"] = str(tmp_path / "d")
    library = alone(kind=Versioned, **files)
    library.setCodeVersion(1)
    put_many(library, 1)
    assert library._getFuncName("add") == "add_v1"
    library.forceLogCompaction()
    for _ in range(3):
        library.doTick(0)
    again = plain("a", "", kind=Versioned, **files)
    again.doTick(0)
    assert again._getFuncName("add") == "add_v0"

    ours = Ours(1)
    assert dict(ours.member._raft._raft._methodToID) == {"replicate_v0": 0}


def test_p23_a_command_does_not_wait_for_the_next_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(syncobj, "monotonicTime", lambda: 1_000.0)
    library: Any = plain()
    stand(library, "c")
    for _ in range(2):
        library.doTick(0)
    sent(library).clear()
    library.put(1)
    for _ in range(5):
        library.doTick(0)
    assert sent(library) == []

    ours = Ours()
    ours.lead()
    ours.tick()
    ours.sent.clear()
    ours.propose(b"one")
    ours.member.tick()
    (told, *_) = [message for message in ours.messages if isinstance(message, Append)]
    assert told.entries[-1].command == COMMAND + b"one"


def test_a_follower_applies_as_soon_as_the_leader_has_committed() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.run(100)
    found = cluster.propose(leader, b"one")
    began = cluster.now_ms
    cluster.run_until(lambda: all(m.commands == [b"one"] for m in cluster.machines.values()))
    assert cluster.now_ms - began <= 50
    assert isinstance(found[0], Committed)


def test_an_append_of_ours_is_taken_by_the_library() -> None:
    ours = Ours()
    ours.tell(2, append(1, 0, *entries(2, 4), commit=4))
    ours.tick()
    assert ours.machine.commands == [b"2", b"3", b"4"]
