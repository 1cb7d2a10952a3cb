"""A member of a group at work: joins, shows that it lives, lets go, takes over. Decisions are in
`membership.py`; this waits, asks and tells.

Two tasks: one goes through rounds (let go, join, sync, take over), the other sends heartbeats,
whatever the program is doing.

J1  partitions are taken away only at a *quiet* moment: the program holds no record that it was
    given since it last came for more. So what commits by itself never commits unfinished work, and
    a listener is never called in the middle of it
J2  heartbeats go on while a round waits for a quiet moment; the coordinator waits for us as long as
    `max.poll.interval.ms`
J3  a program that does not come for more within `max.poll.interval.ms` is taken out of the group,
    and joins again when it comes
J4  a round is begun only after the program has asked for records: who only subscribes is no member
J5  a leader that comes back as a static member shares nothing out (KIP-814), and does not take for
    shared out what was added while it was away: it asks what each member of the stable group has,
    until it is told, and joins again if some partition is nobody's, or if it never will be told.
    Whatever else is a reason to join does not wait for that
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.clients import options as rows
from ottla.clients.clock import now_ms
from ottla.clients.cluster import ClusterClient
from ottla.clients.connection import error_code_of
from ottla.clients.consumer.coordinator import Coordinator
from ottla.clients.consumer.errors import ConsumerError, GroupError
from ottla.clients.consumer.membership import (
    Membership,
    Reaction,
    make_assignments,
    reaction_to,
    read_assignment,
    subscriptions_of,
    unowned_of,
)
from ottla.clients.consumer.positions import Bookmark, Bookmarks
from ottla.clients.consumer.protocol import Subscription
from ottla.clients.consumer.requests import leave_fields
from ottla.clients.errors import NoCommonVersionError
from ottla.clients.retrying import is_transient
from ottla.proto.errors import ErrorCode, OttlaError, RemoteProtocolError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import DESCRIBE_GROUPS, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from ottla.proto.kafka.message import Message

LOG: Final = logging.getLogger("ottla.clients.consumer")
_SLACK_S: Final = 5.0
_LEAVE_TIMEOUT_S: Final = 3.0
_METADATA_TIMEOUT_S: Final = 5.0
_LOOK_TIMEOUT_S: Final = 5.0
_STABLE: Final = "Stable"
_ADVICE: Final = {
    ErrorCode.INVALID_SESSION_TIMEOUT: "set session.timeout.ms between the broker's "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members use other assignors: choose a common one "
    "with partition.assignment.strategy",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer runs with the same group.instance.id",
    ErrorCode.INVALID_GROUP_ID: "choose another group.id",
}


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the consumer does for its member."""

    # The topics that are subscribed to, right now.
    topics: Callable[[], frozenset[str]]
    # Commits what is processed, if that is done by itself; before partitions go.
    commit: Callable[[], Awaitable[None]]
    assigned: Callable[[Sequence[TopicPartition]], Awaitable[None]]
    revoked: Callable[[Sequence[TopicPartition]], Awaitable[None]]
    lost: Callable[[Sequence[TopicPartition]], Awaitable[None]]
    # New bookmarks without a position.
    begin: Callable[[Sequence[Bookmark]], None]
    changed: Callable[[], None]
    failed: Callable[[OttlaError], None]


class GroupMember:
    """One member, from `start` to `stop`."""

    def __init__(
        self,
        cluster: ClusterClient,
        coordinator: Coordinator,
        core: Membership,
        bookmarks: Bookmarks,
        hooks: Hooks,
    ) -> None:
        self._cluster: Final = cluster
        self._coordinator: Final = coordinator
        self.core: Final = core
        self._bookmarks: Final = bookmarks
        self._hooks: Final = hooks
        value_of = cluster.options.value_of
        self._heartbeat_s: Final = value_of(rows.HEARTBEAT_INTERVAL_MS) / 1000
        self._poll_interval_ms: Final = value_of(rows.MAX_POLL_INTERVAL_MS)
        # Nothing is given out while this is set (J1).
        self.wants_quiet = False
        self._quiet: Final = asyncio.Event()
        self._may_join: Final = asyncio.Event()
        self._wake: Final = asyncio.Event()
        self._is_in_round = False
        self.last_poll_ms = now_ms()
        # How many calls wait for records right now.
        self.inside = 0
        # Of a leader: how many partitions its topics had when it shared them out.
        self._counts: dict[str, int] | None = None
        # Whether partitions may have come to nobody while we were away (J5).
        self._is_share_open = False
        self._joined_topics = frozenset[str]()
        self._tasks: list[asyncio.Task[None]] = []

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        self.core.want_join("the consumer has subscribed")
        self._tasks = [
            asyncio.create_task(self._rounds()),
            asyncio.create_task(self._heartbeats()),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Neither task ends by itself: a mistake of ours must not look like an idle topic.
        error = None if task.cancelled() else task.exception()
        if error is not None:
            LOG.error("a task of group %s ended", self.core.group_id, exc_info=error)
            self._hooks.failed(ConsumerError(f"group {self.core.group_id}: {error!r}"))

    async def stop(self, reason: str) -> None:
        """Let everything go and leave. A static member does not say that it leaves."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        if self.core.owned:
            await self._let_go(self.core.owned, lost=not self.core.member.is_in, waits=False)
        await self._leave(reason)
        self.core.leave()

    # --- what the consumer tells --------------------------------------------------------------

    def entered(self) -> None:
        """The program has come for more: it has done with what it was given."""
        self.last_poll_ms = now_ms()
        self._may_join.set()
        self._quiet.set()

    def metadata_changed(self) -> None:
        """Join again if what is subscribed to is not what it was."""
        if not self.core.member.is_in or self._is_in_round:
            return
        if self._hooks.topics() != self._joined_topics:
            self._want_join("the topics that are subscribed to have changed")
        elif self._counts is not None and self._counts != self._counts_of(self._counts):
            self._want_join("topics have other partitions than before")

    def subscription_changed(self) -> None:
        self._want_join("the subscription has changed")

    def react(self, code: ErrorCode, request: str) -> Reaction:
        reaction = self.core.react(code, request)
        if self.core.join_reason is not None:
            self._wake.set()
        return reaction

    def _want_join(self, reason: str) -> None:
        self.core.want_join(reason)
        self._wake.set()

    # --- rounds -------------------------------------------------------------------------------

    async def _rounds(self) -> None:
        backoff = self._coordinator.backoff()
        while True:
            if self.core.join_reason is None:
                await self._until_wanted()
                continue
            try:
                settled = await self._round()
            except OttlaError as error:
                if not is_transient(error):
                    # Tried again when the program comes for more, and not before.
                    self._may_join.clear()
                    self._hooks.failed(error)
                settled = False
            finally:
                self._is_in_round = False
            if settled:
                backoff.succeeded()
            elif self.core.join_reason is not None:
                await asyncio.sleep(backoff.failed() / 1000)

    async def _round(self) -> bool:
        """Go through one round; False if it has to be tried again after a pause."""
        core = self.core
        if core.owned and not core.member.is_in:
            await self._let_go(core.owned, lost=True)
        elif core.owned and not core.cooperative:
            await self._let_go(core.owned, lost=False)
        await self._may_join.wait()
        reason = core.join_reason
        self._is_in_round = True
        joined = await self._join()
        if joined is None:
            return False
        assigned = await self._sync(joined)
        self._is_in_round = False
        if assigned is None:
            return False
        await self._settle(assigned, reason)
        self._is_share_open = joined.get("skip_assignment", False)
        return True

    async def _until_wanted(self) -> None:
        """Wait for a reason to join; look for one meanwhile if there may be one (J5)."""
        self._wake.clear()
        if not self._is_share_open:
            await self._wake.wait()
            return
        looking = asyncio.create_task(self._look_for_unowned())
        looking.add_done_callback(self._ended)
        try:
            await self._wake.wait()
        finally:
            looking.cancel()
            await asyncio.wait({looking})

    async def _look_for_unowned(self) -> None:
        """Join again if partitions came while we, who lead on, were away (J5)."""
        backoff = self._coordinator.backoff()
        while True:
            try:
                unowned = await self._unowned()
            except OttlaError as error:
                # A round too many does less harm than a partition that nobody reads.
                self._want_join(f"what the members have is not told: {error}")
                return
            if unowned is not None:
                break
            await asyncio.sleep(backoff.failed() / 1000)
        self._is_share_open = False
        if unowned:
            self._want_join(f"partitions have no owner: {len(unowned)}")

    async def _unowned(self) -> set[TopicPartition] | None:
        """Return what nobody has, or None if it cannot be told now; raise if it never can be."""
        fields = {"groups": [self.core.group_id], "include_authorized_operations": False}
        try:
            answer = await self._coordinator.ask(DESCRIBE_GROUPS, fields, timeout_s=_LOOK_TIMEOUT_S)
        except OttlaError as error:
            if is_transient(error) and not isinstance(error, NoCommonVersionError):
                return None
            raise
        hands = list[bytes]()
        for group in answer.groups:
            code = error_code_of(group.error_code)
            self._refused(reaction_to(code), code)
            if code is not ErrorCode.NONE or group.group_state != _STABLE:
                # What they had before a rebalance is not what they will have.
                return None
            hands += [one.member_assignment for one in group.members]
        return unowned_of(self._counts or {}, hands)

    async def _join(self) -> Message | None:
        core = self.core
        topics = self._hooks.topics()
        timeout_s = self._poll_interval_ms / 1000 + _SLACK_S
        while True:
            fields = core.join_fields(topics)
            answer = await self._coordinator.ask(JOIN_GROUP, fields, timeout_s=timeout_s)
            code = error_code_of(answer.error_code)
            reaction = core.react(code, "JoinGroup")
            if reaction is Reaction.TAKE_ID:
                core.take_id(answer.member_id)
                continue
            if reaction is Reaction.GO_ON:
                core.joined(answer.member_id, answer.generation_id, answer.protocol_name)
                self._joined_topics = topics
                return answer
            self._refused(reaction, code)
            return None

    def _refused(self, reaction: Reaction, code: ErrorCode) -> None:
        if reaction is Reaction.FIND:
            self._coordinator.lost()
        if reaction is Reaction.FATAL:
            advice = _ADVICE.get(code)
            told = f"{code.sentence} ({code.name})" + (f": {advice}." if advice else "")
            raise GroupError(code, f"group {self.core.group_id}: {told}")

    async def _sync(self, joined: Message) -> tuple[TopicPartition, ...] | None:
        core = self.core
        assignments: dict[str, bytes] = {}
        self._counts = None
        if joined.leader == joined.member_id:
            members = subscriptions_of(
                (one.member_id, one.get("group_instance_id"), one.metadata)
                for one in joined.members
            )
            # Also who leads on after a restart, and shares nothing out, must notice partitions that
            # are added: nobody else does (KIP-814).
            self._counts = await self._count_partitions(members)
            if not joined.get("skip_assignment", False):
                assignor = next(row for row in core.assignors if row.name == joined.protocol_name)
                assignments = make_assignments(assignor, members, self._counts)
        answer = await self._coordinator.ask(SYNC_GROUP, core.sync_fields(assignments))
        code = error_code_of(answer.error_code)
        reaction = core.react(code, "SyncGroup")
        if reaction is not Reaction.GO_ON:
            self._refused(reaction, code)
            return None
        try:
            return read_assignment(answer.assignment or b"")
        except RemoteProtocolError as error:
            raise GroupError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {core.group_id}: its leader sent an unreadable assignment: {error}.",
            ) from error

    async def _count_partitions(self, members: Mapping[str, Subscription]) -> dict[str, int]:
        """Return how many partitions the topics of the group have, as far as they are known."""
        topics = {topic for member in members.values() for topic in member.topics}
        self._cluster.want(*topics)
        with suppress(TimeoutError):
            async with asyncio.timeout(_METADATA_TIMEOUT_S):
                while not all(map(self._is_known, topics)):
                    await self._cluster.refresh()
        return self._counts_of(topics)

    def _is_known(self, topic: str) -> bool:
        metadata = self._cluster.metadata
        return topic in metadata.topics or topic in metadata.errors

    def _counts_of(self, topics: object) -> dict[str, int]:
        found = {}
        for name in topics:  # type: ignore[attr-defined]
            topic = self._cluster.metadata.topic(name)
            if topic is not None:
                found[name] = len(topic.partitions)
        return found

    async def _settle(self, assigned: tuple[TopicPartition, ...], reason: str | None) -> None:
        change = self.core.settle(assigned, reason)
        self._cluster.metrics.count("group.rebalances")
        LOG.info(
            "group %s, generation %d (%s): %d partitions, %d new, %d let go",
            self.core.group_id, self.core.member.generation, reason,
            len(assigned), len(change.added), len(change.revoked),
        )  # fmt: skip
        if change.revoked:
            await self._let_go(change.revoked, lost=False)
        self._cluster.want(*{one.topic for one in change.added})
        with self._bookmarks.lock:
            new = self._bookmarks.add(change.added)
            self.wants_quiet = True
        try:
            await self._hooks.assigned(change.added)
        finally:
            self._give_out_again()
        self._hooks.begin(new)

    async def _let_go(
        self, partitions: Sequence[TopicPartition], *, lost: bool, waits: bool = True
    ) -> None:
        with self._bookmarks.lock:
            self.wants_quiet = True
        try:
            # J1. The program has done with its records when it comes for more.
            while waits and self._bookmarks.holds_out:
                self._quiet.clear()
                self._hooks.changed()
                await self._quiet.wait()
            if lost:
                await self._hooks.lost(partitions)
            else:
                await self._hooks.commit()
                await self._hooks.revoked(partitions)
            with self._bookmarks.lock:
                self._bookmarks.remove(partitions)
            self.core.let_go(partitions)
        finally:
            self._give_out_again()

    def _give_out_again(self) -> None:
        self.wants_quiet = False
        self._hooks.changed()

    # --- heartbeats ---------------------------------------------------------------------------

    async def _heartbeats(self) -> None:
        pause_s = self._heartbeat_s
        backoff = self._coordinator.backoff()
        while True:
            await asyncio.sleep(pause_s)
            pause_s = self._heartbeat_s
            if not self.core.member.is_in or self._is_in_round:
                continue
            if self._is_overdue():
                await self._leave_overdue()
            elif await self._heartbeat():
                backoff.succeeded()
            else:
                pause_s = min(self._heartbeat_s, backoff.failed() / 1000)

    async def _heartbeat(self) -> bool:
        member = self.core.member
        try:
            answer = await self._coordinator.ask(HEARTBEAT, self.core.identity())
        except OttlaError as error:
            if not is_transient(error):
                self._hooks.failed(error)
            return False
        self._cluster.metrics.count("group.heartbeats")
        if self.core.member != member or self._is_in_round:
            # It is about a generation that is over.
            return True
        code = error_code_of(answer.error_code)
        reaction = self.react(code, "Heartbeat")
        try:
            self._refused(reaction, code)
        except GroupError as error:
            self.core.forget(f"Heartbeat: {code.name}")
            self._may_join.clear()
            self._wake.set()
            self._hooks.failed(error)
        return reaction not in (Reaction.FIND, Reaction.RETRY)

    def _is_overdue(self) -> bool:
        return self.inside == 0 and now_ms() - self.last_poll_ms > self._poll_interval_ms

    async def _leave_overdue(self) -> None:
        LOG.warning(
            "group %s: no poll for more than max.poll.interval.ms (%d); leaving. Raise it, "
            "or lower max.poll.records.", self.core.group_id, self._poll_interval_ms,
        )  # fmt: skip
        self._may_join.clear()
        await self._leave("max.poll.interval.ms has passed without a poll")
        self.core.forget("max.poll.interval.ms had passed without a poll")
        self._cluster.metrics.count("group.overdue")
        self._wake.set()

    async def _leave(self, reason: str) -> None:
        core = self.core
        if not core.member.member_id or core.instance_id is not None:
            return
        with suppress(OttlaError, TimeoutError):
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self._coordinator.ask(LEAVE_GROUP, leave_fields(core.identity(), reason))
