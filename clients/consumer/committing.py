"""Commits: by itself, before partitions go, and when the program asks.

T1  by itself only what is processed is committed (N2), every `auto.commit.interval.ms`, before
    partitions go, and at the end
T2  a later commit of ours is sent only after an earlier one was answered: committed offsets do not
    go back by commits that overtake each other
T3  an asynchronous commit is tried once. Its outcome goes to the callback, if only when the
    consumer is closed and nobody knows it
T4  a member that the group went on without commits nothing. Without its id and generation it would
    look like somebody who commits from outside, and an empty group takes that
T5  an answer is about the member id and the generation that the commit was sent with. One that
    comes after the member has joined anew changes nothing about it
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from ottla.clients import options as rows
from ottla.clients.consumer.coordinator import Coordinator, commit_error
from ottla.clients.consumer.errors import CommitError
from ottla.clients.consumer.group import GroupMember
from ottla.clients.consumer.membership import Member
from ottla.clients.consumer.positions import Bookmarks
from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.clients.metrics import Metrics
from ottla.clients.options import ClientOptions
from ottla.proto.errors import ConfigError, ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition

LOG: Final = logging.getLogger("ottla.clients.consumer")
_REVOCATION_TIMEOUT_S: Final = 5.0
Callback = Callable[[dict[TopicPartition, OffsetAndMetadata], OttlaError | None], object]


class Committer:
    """The commits of one consumer."""

    def __init__(
        self,
        options: ClientOptions,
        bookmarks: Bookmarks,
        coordinator: Coordinator | None,
        metrics: Metrics,
    ) -> None:
        self._bookmarks: Final = bookmarks
        self._coordinator: Final = coordinator
        self._metrics: Final = metrics
        self._by_itself: Final = (
            options.value_of(rows.ENABLE_AUTO_COMMIT) and coordinator is not None
        )
        self._interval_s: Final = options.value_of(rows.AUTO_COMMIT_INTERVAL_MS) / 1000
        self._member: GroupMember | None = None
        self._task: asyncio.Task[None] | None = None
        self._asynchronous: Final = set[asyncio.Task[None]]()
        self._turn: Final = asyncio.Lock()

    @property
    def has_group(self) -> bool:
        return self._coordinator is not None

    def start(self, member: GroupMember | None) -> None:
        """Begin to commit by itself: as this member, or without one for partitions assigned."""
        self._member = member
        if self._by_itself and self._task is None:
            self._task = asyncio.create_task(self._commit_now_and_then())

    def stop(self) -> None:
        self._member = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        self.stop()
        if not self._asynchronous:
            return
        _, late = await asyncio.wait(self._asynchronous, timeout=_REVOCATION_TIMEOUT_S)
        # Who looks for a coordinator that does not come would look for ever.
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None,
        timeout_s: float,
        asynchronous: bool,
        callback: Callback | None,
    ) -> None:
        """What a program asked for."""
        if self._coordinator is None:
            raise ConfigError("group.id is needed to commit.")
        wanted = self._bookmarks.positions() if offsets is None else _complete(offsets)
        if asynchronous:
            task = asyncio.create_task(self._commit_once(wanted, callback))
            self._asynchronous.add(task)
            task.add_done_callback(self._asynchronous.discard)
            return
        error: OttlaError | None = None
        try:
            await self._commit(wanted, timeout_s)
        except OttlaError as failure:
            error = failure
        if callback is not None:
            callback(wanted, error)
        elif error is not None:
            raise error

    async def commit_processed(self, timeout_s: float) -> None:
        """Commit what is processed, if that is done by itself; a failure is logged."""
        if not self._by_itself:
            return
        with self._bookmarks.lock:
            wanted = self._bookmarks.to_commit()
        try:
            await self._commit(wanted, timeout_s)
        except OttlaError as error:
            LOG.warning("positions were not committed: %s", error)

    async def commit_before_revocation(self) -> None:
        await self.commit_processed(_REVOCATION_TIMEOUT_S)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if self._coordinator is None:
            raise ConfigError("group.id is needed to have committed offsets.")
        wanted = list(partitions)
        found = await self._coordinator.committed(wanted, timeout_s) if wanted else {}
        return {one: found.get(one) for one in wanted}

    async def _commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_s: float
    ) -> None:
        if not offsets or self._coordinator is None:
            return
        async with self._turn:
            self._require_member()
            sender = self._sender()
            try:
                await self._coordinator.commit(self._identity(), offsets, timeout_s)
            except CommitError as error:
                self._refused(error.code, sender)
                raise
            self._done(offsets)

    async def _commit_once(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: Callback | None
    ) -> None:
        error: OttlaError | None = None
        try:
            if offsets and self._coordinator is not None:
                async with self._turn:
                    error = await self._try_once(self._coordinator, offsets)
        except asyncio.CancelledError:
            # Nothing is left to be done here, so the task may end as if it had not been cancelled.
            error = CommitError(
                "The consumer was closed before the coordinator had answered. The offsets may be "
                "committed all the same."
            )
        if callback is not None:
            callback(offsets, error)
        elif error is not None:
            LOG.warning("an asynchronous commit failed: %s", error)

    async def _try_once(
        self, coordinator: Coordinator, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> OttlaError | None:
        try:
            self._require_member()
            sender = self._sender()
            code = await coordinator.commit_once(self._identity(), offsets)
        except OttlaError as error:
            return error
        if code is ErrorCode.NONE:
            self._done(offsets)
            return None
        self._refused(code, sender)
        return commit_error(code)

    def _sender(self) -> tuple[GroupMember, Member] | None:
        """Return who commits: the member, and what it is in the group at this moment."""
        return None if self._member is None else (self._member, self._member.core.member)

    def _refused(self, code: ErrorCode | None, sender: tuple[GroupMember, Member] | None) -> None:
        self._metrics.count("commits.failed")
        if code is not None and sender is not None and sender == self._sender():  # T5
            sender[0].react(code, "OffsetCommit")

    def _done(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._metrics.count("commits")
        for partition, offset in offsets.items():
            bookmark = self._bookmarks.all.get(partition)
            if bookmark is not None:
                bookmark.committed = offset.offset

    def _require_member(self) -> None:
        """Refuse to commit for a member that is out of its group (T4)."""
        if self._member is not None and not self._member.core.member.is_in:
            self._metrics.count("commits.failed")
            raise commit_error(ErrorCode.UNKNOWN_MEMBER_ID)

    def _identity(self) -> dict[str, Any]:
        if self._member is not None:
            return self._member.core.identity()
        group_id = "" if self._coordinator is None else self._coordinator.group_id
        return {
            "group_id": group_id,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
        }

    async def _commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            with suppress(OttlaError):
                await self.commit_processed(self._interval_s)


def _complete(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    complete = {}
    for partition, offset in offsets.items():
        whole = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if whole.offset < 0:
            raise CommitError(f"{partition}: an offset is 0 or more, not {whole.offset}.")
        complete[partition] = whole
    return complete
