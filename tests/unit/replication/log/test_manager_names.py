"""Making many logs at once, the longest names, and logs that nobody claims."""

from __future__ import annotations

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import TopicPartition
from tests.builders import NOW_MS
from tests.unit.replication.log.one_directory import FIRST, Node, lead


def test_m2_a_topic_with_the_longest_name_can_be_deleted_and_set_aside() -> None:
    # A file system takes 255 bytes for a name, and the suffix needs some of them.
    longest = TopicPartition("a" * 249, 7)
    node = Node()
    manager = node.start()
    lead(manager, longest, b"a")
    manager.delete(longest)
    assert manager.offline is None
    lead(manager, longest, b"b")
    aside = manager.set_aside(longest)
    assert manager.offline is None
    assert aside.endswith("-7.0-stray")
    assert all(len(name) <= 255 for name in node.disk.list_dir("/data"))
    node.start()
    assert node.disk.list_dir("/data") == [aside.removeprefix("/data/")]


def test_what_is_set_aside_is_neither_opened_nor_removed_nor_missed() -> None:
    node = Node()
    manager = node.start()
    lead(manager, FIRST, b"a").sync()
    aside = manager.set_aside(FIRST)
    assert manager.logs == {}
    manager = node.start()
    assert manager.logs == {}
    assert node.report.damaged == {}
    assert node.disk.exists(f"{aside}/00000000000000000000.log")


def test_logs_that_are_made_together_share_one_transaction() -> None:
    node = Node()
    manager = node.start()
    partitions = [TopicPartition("many", number) for number in range(20)]
    before = node.power.moments
    manager.adopt(manager.make(dict.fromkeys(partitions, b"i" * 16)))
    # One sync of each directory, one of the root, one commit: each is a moment before and after.
    assert node.power.moments - before <= 2 * (len(partitions) + 2)
    node.power.crash()
    logs = node.start().logs
    assert sorted(logs) == partitions
    assert {log.state.topic_id for log in logs.values()} == {b"i" * 16}
    assert node.report.damaged == {}


def test_logs_that_are_deleted_together_share_two_transactions_and_one_sync() -> None:
    node = Node()
    manager = node.start()
    partitions = [TopicPartition("many", number) for number in range(20)]
    manager.adopt(manager.make(dict.fromkeys(partitions, b"i" * 16)))
    before = node.power.moments
    manager.bury(manager.take_out(partitions))
    assert node.power.moments - before <= 2 * 3
    assert node.records == {}
    assert all(name.endswith("-delete") for name in node.disk.list_dir("/data"))


def test_whoever_still_holds_a_deleted_log_can_do_nothing_with_it() -> None:
    node = Node()
    manager = node.start()
    log = lead(manager, FIRST, b"a")
    manager.delete(FIRST)
    with pytest.raises(StorageError, match="it was deleted"):
        manager.retain_in(log, now_ms=NOW_MS)
    assert manager.offline is None
