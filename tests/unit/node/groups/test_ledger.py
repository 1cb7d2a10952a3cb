"""One partition of groups: what it forgets, when it serves, and what it does about trouble."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from ottla.node.groups.group import Group
from ottla.node.groups.ledger import Ledger
from ottla.node.groups.offsets import Offsets
from ottla.node.groups.records import GroupValue, MemberValue, OffsetValue
from ottla.node.groups.words import State
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.kafka.uuids import UUID
from tests.builders import headers_of, records_of
from tests.unit.node.groups.books import Books, changes

ANOTHER = UUID(int=200)
SESSION_MS = 10_000


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


# ── Topics that go ────────────────────────────────────────────────────────────────────────────


def test_a_commit_under_way_when_its_topic_goes_is_gone_too() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.ledger.forget_topics(frozenset({"t"}))
        books.disk.sync()
        assert books.shown() is None

    run(story())


def test_a_tombstone_that_was_refused_is_written_when_it_can_be() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.disk.sync()
        books.need_replicas(2)
        books.ledger.forget_topics(frozenset({"t"}))
        assert books.shown() is None, "at once, whatever the log says"
        books.need_replicas(1)
        # The topic is there again, and has nothing to do with it.
        books.ledger.forget_topics(frozenset())
        await books.loaded()
        assert books.shown() is None

    run(story())


def test_what_is_committed_in_the_new_topic_is_not_owed_to_the_old_one() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.disk.sync()
        books.need_replicas(2)
        books.ledger.forget_topics(frozenset({"t"}))
        books.need_replicas(1)
        books.commit(3)
        books.ledger.forget_topics(frozenset())
        books.ledger.expire(10**9)
        await books.loaded()
        assert books.shown() == 3

    run(story())


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_went_while_the_partition_was_read_is_forgotten(is_made_again: bool) -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.commit(7, topic="stays")
        books.topics["stays"] = UUID(int=101)
        books.disk.sync()
        books.ledger = books.new_ledger()
        if is_made_again:
            books.topics["t"] = ANOTHER
        else:
            del books.topics["t"]
        await books.ledger.load()
        books.disk.sync()
        assert (books.shown(), books.shown("stays")) == (None, 7)

    run(story())


def test_a_topic_that_went_before_this_node_led_is_forgotten() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.disk.sync()
        del books.topics["t"]
        await books.loaded()
        books.disk.sync()
        assert books.shown() is None

    run(story())


def test_expiry_finds_offsets_in_topics_that_are_not_there() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.disk.sync()
        del books.topics["t"]
        assert books.ledger.expire(10**9) == 1
        books.disk.sync()
        assert books.shown() is None

    run(story())


# ── Trouble with the disk ─────────────────────────────────────────────────────────────────────


def test_nothing_is_served_before_what_was_read_is_committed_whatever_the_disk_says() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.ledger = books.new_ledger()
        loading = asyncio.ensure_future(books.ledger.load())
        for _ in range(100):
            if books.replica.waiting_count == 2:
                break
            await asyncio.sleep(0)
        books.disk.lack()
        with pytest.raises(StorageError):
            await loading
        assert not books.ledger.is_loaded
        await books.loaded()
        assert books.shown() == 500

    run(story())


def test_a_write_that_could_not_be_synced_at_once_counts_when_it_is() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        first, second = books.commit(500), books.commit(501)
        books.disk.lack()
        assert first == second == [ErrorCode.NOT_COORDINATOR]
        third = books.commit(502)
        assert books.shown() is None
        books.disk.sync()
        assert books.shown() == 502
        assert third == [None]
        assert first == second == [ErrorCode.NOT_COORDINATOR], "told once"
        books.ledger.commit("g", {("t", 0): None}, lambda code: None)
        books.disk.sync()
        assert "g" not in books.ledger.offsets, "nothing is under way for ever"

    run(story())


def test_a_disk_that_lacks_a_descriptor_is_not_asked_without_end() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        asked = books.disk.asked
        books.disk.lack()
        assert books.disk.asked == asked

    run(story())


def test_a_log_that_cannot_be_read_is_given_up_as_any_other() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.disk.sync()
        books.ledger = books.new_ledger()
        books.trouble = OSError(errno.EIO, "Input/output error")
        with pytest.raises(StorageError):
            await books.ledger.load()
        assert books.replica.log.offline is not None

    run(story())


def test_partitions_are_read_one_after_the_other() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.disk.sync()
        world = books.ledger._world
        held, at_work, most = asyncio.Event(), 0, 0

        async def slowly(work: Any) -> Any:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            await held.wait()
            at_work -= 1
            return work()

        slow = replace(world, on_a_thread=slowly)
        ledgers = [type(books.ledger)(books.replica, slow) for _ in range(3)]
        loads = [asyncio.ensure_future(one.load()) for one in ledgers]
        for _ in range(10):
            await asyncio.sleep(0)
        held.set()
        await asyncio.gather(*loads)
        assert most == 1
        assert all(one.is_loaded for one in ledgers)

    run(story())


# ── Time, and standing ────────────────────────────────────────────────────────────────────────


def test_nobody_is_expelled_for_silence_while_nobody_was_listened_to() -> None:
    async def story() -> None:
        books = Books()
        ledger = await books.loaded()
        member = MemberValue("m", None, "c", "/h", SESSION_MS, SESSION_MS, b"", b"a")
        value = GroupValue("consumer", 7, "range", "m", 0, (member,))
        group = ledger.groups["g"] = Group.restore("g", value, 0)
        books.has_standing = False
        books.clock.ms = SESSION_MS + 1
        ledger._on_time(group)
        assert group.state is State.STABLE
        books.has_standing = True
        ledger._on_time(group)
        assert group.heartbeat("m", None, 7, books.clock.ms) is ErrorCode.NONE
        books.clock.ms += SESSION_MS
        ledger._on_time(group)
        assert not group.members, "from then on silence counts as ever"
        ledger.close()

    run(story())


def test_who_reads_its_log_without_standing_does_not_claim_to_be_loading() -> None:
    """It would read for ever: cut off, what it read is never committed."""

    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.ledger = books.new_ledger()
        loading = asyncio.ensure_future(books.ledger.load())
        for _ in range(100):
            if books.replica.waiting_count == 2:
                break
            await asyncio.sleep(0)
        assert refusal_of(books.ledger) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        books.has_standing = False
        assert refusal_of(books.ledger) is ErrorCode.NOT_COORDINATOR
        books.has_standing = True
        books.disk.sync()
        await loading
        assert refusal_of(books.ledger) is None

    run(story())


def test_who_cannot_read_its_log_does_not_claim_to_be_loading_without_standing() -> None:
    async def story() -> None:
        books = Books()
        await books.loaded()
        books.commit(500)
        books.disk.sync()
        books.ledger = books.new_ledger()
        books.trouble = StorageError("read: too many open files")
        for has_standing, code in (
            (True, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (False, ErrorCode.NOT_COORDINATOR),
        ):
            books.has_standing = has_standing
            with pytest.raises(StorageError):
                await books.ledger.load()
            assert refusal_of(books.ledger) is code

    run(story())


def refusal_of(ledger: Ledger) -> ErrorCode | None:
    try:
        ledger.require()
    except RequestError as refusal:
        return refusal.code
    return None


# ── Writing ───────────────────────────────────────────────────────────────────────────────────


def test_what_cannot_be_written_leaves_no_trace() -> None:
    async def story() -> None:
        books = Books()
        ledger = await books.loaded()
        endless = OffsetValue(1, -1, "", 0, 2**63 + 5)
        with pytest.raises(struct.error):
            ledger.commit("g", {("t", 0): endless}, lambda code: None)
        assert "g" not in ledger.offsets

    run(story())


def test_a_group_with_many_offsets_is_deleted_in_batches_and_last_of_all_itself() -> None:
    async def story() -> None:
        books = Books()
        ledger = await books.loaded()
        value = GroupValue("consumer", 7, None, None, 0, ())
        group = ledger.groups["g"] = Group.restore("g", value, 0)
        (one,) = changes(5).values()
        ledger.offsets["g"] = Offsets()
        ledger.offsets["g"].replay({("t", at): one for at in range(2_500)})
        told: list[ErrorCode | None] = []
        ledger.delete(group, told.append)
        assert told == []
        books.disk.sync()
        assert told == [None]
        assert ("g" in ledger.groups, "g" in ledger.offsets) == (False, False)
        log = books.replica.log
        assert [header.count for header in headers_of(log)] == [1_000, 1_000, 500, 1]
        assert records_of(log)[-1].key == b"\x00\x02\x00\x01g"

    run(story())


def test_a_group_stays_whose_tombstones_are_refused() -> None:
    async def story() -> None:
        books = Books()
        ledger = await books.loaded()
        books.commit(500)
        books.disk.sync()
        group = ledger.groups["g"] = Group("g")
        books.need_replicas(2)
        told: list[ErrorCode | None] = []
        ledger.delete(group, told.append)
        assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert ledger.groups["g"] is group
        assert books.shown() == 500

    run(story())
