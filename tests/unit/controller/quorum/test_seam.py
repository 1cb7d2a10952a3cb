"""The library is the one that was read, and its private copies leave the shared one alone."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pysyncobj  # type: ignore[import-untyped]
import pytest
from pysyncobj import serializer, syncobj
from pysyncobj.node import Node  # type: ignore[import-untyped]

from ottla.controller.quorum import seam
from ottla.controller.quorum.journal import Journal, create_journal
from ottla.controller.quorum.messages import Message
from ottla.controller.quorum.seam import Raft, Timing
from ottla.proto.errors import StorageError
from ottla.replication.storage.memory import MemoryStateStore
from tests.unit.controller.quorum.cluster import Notes, voter

ROOT = Path(__file__).resolve().parents[4]


def a_raft(journal: Journal | None = None, seed: int = 0) -> Raft:
    def send(_: int, __: Message) -> bool:
        return True

    return Raft(
        journal=journal or create_journal(MemoryStateStore(), voter(1, 3)),
        machine=Notes(),
        send=send,
        now_ms=lambda: 5_000,
        dice=Random(seed),
        timing=Timing(),
    )


def test_the_pinned_version_is_installed_and_is_the_one_in_the_dependencies() -> None:
    assert pysyncobj.version.VERSION == seam.PINNED
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(rf'"pysyncobj=={re.escape(seam.PINNED)}"', text)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "VERSION", "0.3.18")
    with pytest.raises(StorageError, match=r"needs pysyncobj 0\.3\.17; this is 0\.3\.18"):
        a_raft()


def test_every_name_that_is_replaced_or_used_is_there() -> None:
    for name in seam.REPLACED_NAMES:
        assert hasattr(syncobj, name), name
    library = a_raft()._raft
    for name in (*seam.PRIVATE_ATTRIBUTES, *seam.PRIVATE_METHODS):
        assert hasattr(library, name), name
    # What stands in the place of the library's own must be what the library would call.
    assert hasattr(syncobj.SyncObj, "_SyncObj__applyLogEntries")
    # What the library asks of what stands in for its own parts.
    journal, parts = library._SyncObj__raftLog, library._SyncObj__serializer
    for name in ("getRaftCommitIndex", "getCurrentTerm", "getVotedForNodeId", "onOneSecondTimer"):
        assert callable(getattr(syncobj.createJournal(), name))
        assert callable(getattr(journal, name))
    for name in ("add", "clear", "deleteEntriesFrom", "setRaftCommitIndex", "setCurrentTerm"):
        assert callable(getattr(syncobj.createJournal(), name))
        assert callable(getattr(journal, name))
    for name in ("checkSerializing", "deserialize", "getTransmissionData", "setTransmissionData",
                 "cancelTransmisstion"):  # fmt: skip
        assert callable(getattr(serializer.Serializer, name))
        assert callable(getattr(parts, name))


def test_the_numbers_of_the_library_are_those_that_were_read() -> None:
    assert vars(syncobj._RAFT_STATE)["LEADER"] == 2
    assert vars(syncobj._COMMAND_TYPE)["REGULAR"] == 0
    assert vars(syncobj._COMMAND_TYPE)["NO_OP"] == 1
    reasons = pysyncobj.FAIL_REASON
    assert (reasons.SUCCESS, reasons.QUEUE_FULL) == (0, 1)
    assert (reasons.MISSING_LEADER, reasons.REQUEST_DENIED) == (2, 6)
    assert serializer.SERIALIZER_STATE.NOT_SERIALIZING == 0


def test_a_member_leaves_the_shared_library_as_it_was() -> None:
    before = {name: getattr(syncobj, name) for name in seam.REPLACED_NAMES}
    one, other = a_raft(), a_raft()
    assert {name: getattr(syncobj, name) for name in seam.REPLACED_NAMES} == before
    assert type(one._raft).__mro__[1] is not type(other._raft).__mro__[1]
    assert not isinstance(one._raft, syncobj.SyncObj)


def test_the_clock_and_the_dice_are_those_that_were_handed_in() -> None:
    deadlines = [a_raft(seed=seed)._raft._SyncObj__raftElectionDeadline for seed in (1, 1, 2)]
    assert deadlines[0] == deadlines[1] != deadlines[2]
    assert 5.5 <= deadlines[0] <= 6.0


def test_members_are_numbers_so_that_sets_have_the_same_order_in_every_process() -> None:
    library = a_raft()._raft
    assert sorted(node.id for node in library.otherNodes) == [2, 3]
    assert hash(Node(2)) == hash(2)


def test_no_other_file_of_the_towers_knows_the_library() -> None:
    for path in sorted((ROOT / "controller").rglob("*.py")) + sorted((ROOT / "node").rglob("*.py")):
        if path.name != "seam.py":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"^\s*(?:import|from) pysyncobj", text, re.MULTILINE), path
