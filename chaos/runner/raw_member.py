"""A member of a group that speaks the protocol itself: it joins, reads, commits, and ends badly.

It lives one life after the other. A life begins without anything: a new member id, and what the
group has committed. It ends as was drawn: the member leaves; or it is cut off without a word; or it
falls silent for longer than its session lasts, and then commits what it knows, as a process does
that was stopped and goes on. Such a commit must be refused if the group has gone on.

Every request is sent once. What became of a commit is what the one answer says.

Not here: reading (`raw_consumer.py`), who reads what (`clients/consumer/assignors.py`).

M1  it commits only what it was shown, of partitions that it owns as far as it knows
M2  it begins where the group has committed, and reads nothing before it knows where that is
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import cycle
from typing import Any, Final

from ottla.chaos.clock import now_s
from ottla.chaos.history import Kind, Place
from ottla.chaos.outcomes import commit_outcome
from ottla.chaos.runner.book import LeaderBook
from ottla.chaos.runner.lines import Lines
from ottla.chaos.runner.pace import Pace, nothing_for
from ottla.chaos.runner.raw_consumer import RawConsumer
from ottla.chaos.runner.raw_producer import NOT_SENT
from ottla.chaos.runner.recorder import COMMIT, COMMITTED, CRASH, LEAVE, OWNS, SUBSCRIBE, Recorder
from ottla.chaos.runner.requests import place_of
from ottla.chaos.workload import Ending, Life, ProcessPlan, lives
from ottla.clients.connection import error_code_of
from ottla.clients.consumer.assignors import assignors_of
from ottla.clients.consumer.membership import (
    Membership,
    Reaction,
    make_assignments,
    read_assignment,
    subscriptions_of,
)
from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.clients.consumer.requests import (
    COMMIT_VERSION_MAX,
    OFFSET_FETCH_VERSION_MAX,
    commit_errors,
    commit_fields,
    committed_of,
    leave_fields,
    offset_fetch_fields,
)
from ottla.clients.errors import NotSentError
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    ApiRow,
)
from ottla.proto.kafka.message import Message

SESSION_MS: Final = 3_000
_REBALANCE_MS: Final = 4_000
_ANSWER_S: Final = 3.0
# A JoinGroup waits until the slowest member has come, or its time is up.
_JOIN_S: Final = 10.0
_HEARTBEAT_S: Final = 0.4
_HANG_S: Final = 1.5 * SESSION_MS / 1000
# One commit after so many polls.
_COMMIT_AFTER: Final = 3


async def find_coordinator(lines: Lines, node: int, key: str, kind: int = 0) -> int | None:
    """Return who coordinates a group (1: an id) as a node tells it; None: it does not."""
    fields = {"key": key, "key_type": kind, "coordinator_keys": [key]}
    try:
        line = await lines.to(node)
        answer = await line.call(FIND_COORDINATOR, fields, timeout_s=_ANSWER_S)
    except OttlaError:
        lines.cut(node)
        return None
    told = answer.get("coordinators")
    found = told[0] if told else answer
    known = found.error_code == ErrorCode.NONE and found.node_id in lines.addresses
    return found.node_id if known else None


class RawMember:
    """One process, from `live` until somebody says that it is over."""

    def __init__(
        self,
        plan: ProcessPlan,
        addresses: Mapping[int, str],
        book: LeaderBook,
        recorder: Recorder,
        is_over: Callable[[], bool],
    ) -> None:
        self._plan: Final = plan
        self._lines: Final = Lines(addresses, plan.name)
        self._recorder: Final = recorder
        self._is_over: Final = is_over
        self._reader: Final = RawConsumer(
            replace(plan, places=()), addresses, book, recorder, is_over
        )
        self._nodes: Final = cycle(sorted(addresses))
        self._counts: Final = dict(Counter(place.topic for place in plan.places))
        self._core = self._new_core()
        self._coordinator: int | None = None
        # What it owns and does not know where to begin in.
        self._unplaced = frozenset[Place]()
        self._committed: Final = dict[Place, int]()
        self._polls = 0
        self._beat_s = 0.0

    def _new_core(self) -> Membership:
        return Membership(
            group_id=self._plan.group,
            instance_id=None,
            assignors=assignors_of(["range", "roundrobin"]),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
        )

    async def live(self) -> None:
        pace = Pace(self._plan.per_s)
        try:
            for life in lives(self._plan):
                if self._is_over():
                    return
                await self._one_life(life, pace)
        finally:
            await self._reader.close()
            await self._lines.close()

    async def _one_life(self, life: Life, pace: Pace) -> None:
        self._core = self._new_core()
        self._recorder.note(self._plan.name, SUBSCRIBE, value=self._plan.group)
        self._core.want_join("a life begins")
        end_s = now_s() + life.seconds
        while not self._is_over() and now_s() < end_s:
            await pace.due()
            if self._core.join_reason is not None:
                await self._round()
            else:
                await self._work()
        await self._end(Ending.LEAVE if self._is_over() else life.ending)
        self._let_go()

    def _let_go(self) -> None:
        self._unplaced = frozenset()
        self._committed.clear()
        self._reader.hold({})

    # -- the coordinator -------------------------------------------------------------------------

    async def _ask(
        self,
        row: ApiRow,
        fields: Mapping[str, Any],
        version: int | None = None,
        timeout_s: float = _ANSWER_S,
    ) -> Message:
        """Ask the coordinator once; raise `NotSentError` if nobody knows who that is."""
        if self._coordinator is None:
            asked = next(self._nodes)
            self._coordinator = await find_coordinator(self._lines, asked, self._plan.group)
        node = self._coordinator
        if node is None:
            raise NotSentError("no coordinator is known")
        try:
            line = await self._lines.to(node)
            return await line.call(row, fields, version, timeout_s=timeout_s)
        except OttlaError:
            self._lose(node)
            raise

    def _lose(self, node: int | None) -> None:
        if node is not None:
            self._lines.cut(node)
        self._coordinator = None

    def _react(self, number: int, request: str) -> Reaction:
        reaction = self._core.react(error_code_of(number), request)
        if reaction is Reaction.FIND:
            self._coordinator = None
        elif reaction is Reaction.FATAL:
            self._core.forget(f"{request}: {error_code_of(number).name}")
        if not self._core.member.is_in:
            # The group has gone on: what was owned is lost.
            self._let_go()
        return reaction

    # -- joining ---------------------------------------------------------------------------------

    async def _round(self) -> None:
        """Go through one rebalance; whatever fails is tried again in the next turn."""
        core = self._core
        if self._reader.positions and core.member.is_in:
            await self._commit(self._moved())
        self._let_go()
        core.let_go(core.owned)
        reason = core.join_reason
        try:
            joined = await self._ask(JOIN_GROUP, core.join_fields(self._counts), timeout_s=_JOIN_S)
            reaction = self._react(joined.error_code, "JoinGroup")
            if reaction is Reaction.TAKE_ID:
                core.take_id(joined.member_id)
            if reaction is not Reaction.GO_ON:
                return
            core.joined(joined.member_id, joined.generation_id, joined.protocol_name)
            fields = core.sync_fields(self._shares(joined))
            synced = await self._ask(SYNC_GROUP, fields, timeout_s=_JOIN_S)
            if self._react(synced.error_code, "SyncGroup") is not Reaction.GO_ON:
                return
        except OttlaError:
            return
        core.settle(read_assignment(synced.assignment or b""), reason)
        self._unplaced = frozenset(place_of(one) for one in core.owned)
        self._recorder.note(
            self._plan.name,
            OWNS,
            value=self._plan.group,
            generation=core.member.generation,
            rebalanced=tuple(sorted(self._unplaced)),
        )

    def _shares(self, joined: Message) -> dict[str, bytes]:
        """Return who gets what, if we are the one to say."""
        if joined.leader != joined.member_id:
            return {}
        (assignor,) = (one for one in self._core.assignors if one.name == joined.protocol_name)
        members = subscriptions_of(
            (one.member_id, one.get("group_instance_id"), one.metadata) for one in joined.members
        )
        return make_assignments(assignor, members, self._counts)

    async def _locate(self) -> None:
        """Find out where to begin (M2)."""
        wanted = [TopicPartition(*place) for place in self._unplaced]
        index = self._recorder.begin(self._plan.name, COMMITTED, value=self._plan.group)
        try:
            fields = offset_fetch_fields(self._plan.group, wanted)
            answer = await self._ask(OFFSET_FETCH, fields, OFFSET_FETCH_VERSION_MAX)
        except OttlaError as error:
            self._recorder.end(index, Kind.FAIL, error=type(error).__name__)
            return
        code, found = committed_of(answer)
        if code is not ErrorCode.NONE:
            self._recorder.end(index, Kind.FAIL, error=code.name)
            self._react(code, "OffsetFetch")
            return
        offsets = {
            place_of(one): found[one].offset if one in found else -1 for one in sorted(wanted)
        }
        self._recorder.end(index, Kind.OK, offsets=tuple(offsets.items()))
        self._committed.update(offsets)
        self._unplaced = frozenset()
        self._reader.hold({place: max(0, offset) for place, offset in offsets.items()})

    # -- working ---------------------------------------------------------------------------------

    async def _work(self) -> None:
        await self._beat()
        if self._core.join_reason is not None:
            return
        if self._unplaced:
            await self._locate()
            return
        await self._reader.poll()
        self._polls += 1
        if self._polls % _COMMIT_AFTER == 0:
            await self._commit(self._moved())

    async def _beat(self) -> None:
        if now_s() < self._beat_s:
            return
        self._beat_s = now_s() + _HEARTBEAT_S
        try:
            answer = await self._ask(HEARTBEAT, self._core.identity())
        except OttlaError:
            return
        self._react(answer.error_code, "Heartbeat")

    def _moved(self) -> dict[Place, int]:
        """Return how far it has come where that is news (M1)."""
        known = self._committed
        return {
            place: offset
            for place, offset in self._reader.positions.items()
            if offset > max(0, known.get(place, 0))
        }

    async def _commit(self, offsets: Mapping[Place, int]) -> None:
        if not offsets:
            return
        index = self._recorder.begin(
            self._plan.name,
            COMMIT,
            value=self._plan.group,
            generation=self._core.member.generation,
            offsets=tuple(sorted(offsets.items())),
        )
        wanted = {TopicPartition(*at): OffsetAndMetadata(one) for at, one in offsets.items()}
        try:
            fields = commit_fields(self._core.identity(), wanted)
            answer = await self._ask(OFFSET_COMMIT, fields, COMMIT_VERSION_MAX)
        except NotSentError:
            self._recorder.end(index, Kind.FAIL, error=NOT_SENT)
            return
        except OttlaError as error:
            told = type(error).__name__.removesuffix("Error")
            self._recorder.end(index, Kind.UNKNOWN, error=told)
            return
        codes = set(commit_errors(answer).values())
        kind = commit_outcome(codes)
        bad = sorted(error_code_of(code).name for code in codes if code != ErrorCode.NONE)
        self._recorder.end(index, kind, error="+".join(bad) or None)
        if kind is Kind.OK:
            self._committed.update(offsets)
        for code in codes:
            self._react(code, "OffsetCommit")

    # -- ends ------------------------------------------------------------------------------------

    async def _end(self, ending: Ending) -> None:
        name, group = self._plan.name, self._plan.group
        if ending is Ending.LEAVE:
            await self._commit(self._moved())
            index = self._recorder.begin(name, LEAVE, value=group)
            try:
                await self._ask(LEAVE_GROUP, leave_fields(self._core.identity(), "its time is up"))
            except OttlaError as error:
                self._recorder.end(index, Kind.UNKNOWN, error=type(error).__name__)
            else:
                self._recorder.end(index, Kind.OK)
            return
        if ending is Ending.HANG and self._core.member.is_in and not self._unplaced:
            await self._reader.poll()
            knows = dict(self._reader.positions)
            await nothing_for(_HANG_S, self._is_over)
            await self._commit({place: offset for place, offset in knows.items() if offset > 0})
        self._recorder.note(name, CRASH, value=group)
        for node in self._lines.addresses:
            self._lines.cut(node)
        self._coordinator = None
