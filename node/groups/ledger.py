"""One partition of `__consumer_offsets` and the groups in it, coordinated here in one leader epoch.

    led ──▶ loading: read the log, wait until all of it is committed ──▶ serving ──▶ over

P1  nothing is served before everything that the log held at the beginning was read and is
    committed: what one coordinator has shown, the next one knows
P2  nothing is served, and nothing written, in another epoch than the one it was loaded in
P3  when it is over everybody who waits is told; a ledger never begins again
P4  what the log has is applied in the order of the log
P5  nobody is told to wait for it, or that all is well, while another node may coordinate unheard

Not here: what groups do (`group.py`), and which ledgers there are (`coordinator.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from ottla.node.clock import Clock
from ottla.node.groups.batches import Rows, batch_of, in_batches
from ottla.node.groups.group import Group
from ottla.node.groups.loading import Loaded
from ottla.node.groups.offsets import Changes, Offsets, Place, Retention
from ottla.node.groups.reading import OnAThread, read_until, until_committed
from ottla.node.groups.records import (
    GroupKey,
    GroupValue,
    Key,
    OffsetKey,
    encode_group,
    encode_offset,
    topics_of,
)
from ottla.node.groups.words import (
    Answer,
    Assigned,
    Effect,
    Emptied,
    Purpose,
    Reason,
    Rebalance,
    State,
    Terms,
    WriteGroup,
)
from ottla.node.groups.writing import Write, as_group_error, code_of
from ottla.node.logs import logger
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import Offset
from ottla.proto.kafka.uuids import UUID
from ottla.proto.records.control import EndMarker
from ottla.replication.log.append import Appended
from ottla.replication.replica import Replica

_log = logger("groups")

_CONSUMERS: Final = "consumer"
# How often a node that may not speak for its groups looks whether it may again.
_STANDING_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a ledger needs of its node."""

    clock: Clock
    terms: Callable[[], Terms]
    # Raises `RequestError` if another node may coordinate by now, unheard (rule 13).
    require_standing: Callable[[Replica], None]
    on_a_thread: OnAThread
    count_rebalance: Callable[[Reason], None]
    # Whether there is such a topic; and all of them, as far as the coordinator has noted them.
    is_topic: Callable[[str], bool]
    topics: Callable[[], Mapping[str, UUID]]
    # Whose turn it is to read: all partitions at once would leave no time for anything else.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Ledger:
    """The groups of one partition. `load` once; over for ever after `close`."""

    def __init__(self, replica: Replica, world: World) -> None:
        self.replica: Final = replica
        self.epoch: Final = replica.leader_epoch
        self._world: Final = world
        self.groups: Final[dict[str, Group]] = {}
        self.offsets: Final[dict[str, Offsets]] = {}
        # By producer: groups of which its transaction may have offsets; a marker goes to no others.
        self.undecided: Final[dict[int, set[str]]] = {}
        # Since when groups have no members, by the time of day.
        self._empty_since: Final[dict[str, int]] = {}
        self._timers: Final[dict[str, asyncio.TimerHandle]] = {}
        # The topics when this node began to lead the partition, until it is loaded.
        self._topics_before: Mapping[str, UUID] = world.topics()
        # Offsets in topics that are gone, whose tombstones were refused.
        self._owed: Final[dict[str, set[Place]]] = {}
        # When somebody was last refused because another node may coordinate by now.
        self._refused_ms: int | None = None
        self.is_loaded = False
        self.is_over = False

    # ── Beginning and ending ──────────────────────────────────────────────────────────────────

    @property
    def is_led(self) -> bool:
        """Whether its partition is still led here, in the epoch it was loaded in (P2)."""
        replica = self.replica
        return not self.is_over and replica.is_leader and replica.leader_epoch == self.epoch

    def _leads(self) -> bool:
        return self.is_led

    def require(self) -> None:
        """Raise `RequestError` unless this ledger may serve now.

        Who reads the log may do so for ever, cut off or on a bad disk: that it is loading is said
        only with standing (P5).
        """
        if not self.is_led:
            raise RequestError(ErrorCode.NOT_COORDINATOR)
        try:
            self._world.require_standing(self.replica)
        except RequestError as refusal:
            self._refused_ms = self._world.clock.monotonic_ms()
            raise RequestError(ErrorCode.NOT_COORDINATOR, refusal.sentence) from None
        if not self.is_loaded:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def load(self) -> None:
        """Read the log, and serve; or raise `StorageError`, `CorruptionError`, `RequestError`."""
        began_ms = self._world.clock.monotonic_ms()
        end = self.replica.log.end_offset
        async with self._world.turn:
            on_a_thread = self._world.on_a_thread
            gathered = await read_until(end, self.replica.log, on_a_thread, self._leads)
            loaded = await on_a_thread(gathered.loaded)
        if self.is_led:
            await until_committed(end, self.replica)
        if self.is_led:
            self._take_over(loaded)
            self._tell_loaded(loaded, self._world.clock.monotonic_ms() - began_ms)

    def _take_over(self, loaded: Loaded) -> None:
        now_ms, wall_ms = self._world.clock.monotonic_ms(), self._world.clock.now_ms()
        self.offsets.update(loaded.offsets)
        for name, offsets in loaded.offsets.items():
            for producer_id in offsets.undecided:
                self.undecided.setdefault(producer_id, set()).add(name)
        for name in loaded.names():
            value = loaded.groups.get(name)
            group = Group(name) if value is None else Group.restore(name, value, now_ms)
            self.groups[name] = group
            if value is not None and not value.members:
                self._empty_since[name] = value.since_ms if value.since_ms >= 0 else wall_ms
        self.is_loaded = True
        for group in self.groups.values():
            self._arm(group)
        before, now = self._topics_before, self._world.topics()
        self._topics_before = {}
        # Gone meanwhile; or before, and whoever led here could not say so any more.
        self._forget_places(lambda topic: before.get(topic, now.get(topic)) == now.get(topic))
        self._forget_places(lambda topic: topic in before, is_sure=False)

    def _tell_loaded(self, loaded: Loaded, took_ms: int) -> None:
        if not self.groups and not loaded.unreadable:
            return
        _log.info(
            "groups_loaded",
            partition=str(self.replica.partition),
            leader_epoch=self.epoch,
            groups=len(self.groups),
            offsets=sum(len(one) for one in self.offsets.values()),
            unreadable=loaded.unreadable,
            took_ms=took_ms,
        )

    def close(self) -> None:
        """Coordinate nothing any more (P3)."""
        if self.is_over:
            return
        self.is_over = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for group in list(self.groups.values()):
            self._carry_out(group, group.close(ErrorCode.NOT_COORDINATOR))
        self.groups.clear()
        self.offsets.clear()
        self.undecided.clear()

    # ── Groups ────────────────────────────────────────────────────────────────────────────────

    def ask(self, group: Group, question: Callable[[Group, int], list[Effect]]) -> None:
        """Put something to a group, and do what it wishes."""
        self.groups[group.group_id] = group
        self._carry_out(group, question(group, self._world.clock.monotonic_ms()))

    @property
    def terms(self) -> Terms:
        return self._world.terms()

    def _carry_out(self, group: Group, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer(waiter, answer):
                    if isinstance(waiter, asyncio.Future) and not waiter.done():
                        waiter.set_result(answer)
                case Rebalance():
                    self._tell_rebalance(group, effect)
                case WriteGroup(value, purpose):
                    self._write_group(group, value, purpose)
        self._arm(group)
        self._drop_if_nothing(group)

    def _tell_rebalance(self, group: Group, what: Rebalance) -> None:
        self._world.count_rebalance(what.reason)
        _log.info(
            "group_rebalances",
            group=group.group_id,
            after_generation=what.generation,
            members=len(group.members),
            reason=what.reason.value,
            detail=what.detail,
        )

    def _arm(self, group: Group) -> None:
        """Have its clock looked at when it is due; one that is set for earlier will do."""
        if self.is_over or group.next_deadline_ms is None:
            return
        due_ms = max(0, group.next_deadline_ms - self._world.clock.monotonic_ms())
        loop = asyncio.get_running_loop()
        when = loop.time() + due_ms / 1000
        timer = self._timers.get(group.group_id)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timers[group.group_id] = loop.call_at(when, self._on_time, group)

    def _on_time(self, group: Group) -> None:
        self._timers.pop(group.group_id, None)
        if self.groups.get(group.group_id) is not group or not self.is_led:
            return
        try:
            self.require()
        except RequestError:
            # Nobody is silent who was not listened to: time stands still meanwhile.
            loop = asyncio.get_running_loop()
            self._timers[group.group_id] = loop.call_later(_STANDING_S, self._on_time, group)
            return
        if self._refused_ms is not None:
            group.forgive(self._refused_ms)
        self._carry_out(group, group.tick(self._world.clock.monotonic_ms()))

    def _drop_if_nothing(self, group: Group) -> None:
        """Forget a group that never came to anything: strangers may name as many as they like."""
        name = group.group_id
        is_nothing = group.state is State.EMPTY and group.generation == 0 and not group.pending
        if is_nothing and name not in self.offsets and self.groups.get(name) is group:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self.groups.pop(name, None)
        self._empty_since.pop(name, None)
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _write_group(self, group: Group, value: GroupValue, purpose: Purpose) -> None:
        wall_ms = self._world.clock.now_ms()
        name = group.group_id
        match purpose:
            case Emptied():
                self._empty_since[name] = wall_ms
            case Assigned():
                self._empty_since.pop(name, None)
            case _:
                pass

        def told(code: ErrorCode | None) -> None:
            if code is not None:
                _log.warning("group_not_written", group=name, error=code.name)
            now_ms = self._world.clock.monotonic_ms()
            self._carry_out(group, group.written(purpose, code, now_ms))

        record = (GroupKey(name), encode_group(replace(value, since_ms=wall_ms)))
        self.write(self.batch_of([record]), lambda _: None, told)

    # ── Offsets ───────────────────────────────────────────────────────────────────────────────

    def commit(self, name: str, changes: Changes, told: Callable[[ErrorCode | None], None]) -> bool:
        """Write offsets of a group; `told` once, with None when they are committed.

        Returns whether they are in the log.
        """
        records: list[tuple[Key, bytes | None]] = [
            (OffsetKey(name, *place), None if value is None else encode_offset(value))
            for place, value in changes.items()
        ]
        is_written = self._write_offsets(name, changes, records, told)
        if is_written and name in self._owed:
            # What is newer than the topic that went is not owed to it.
            self._owed[name].difference_update(changes)
        return is_written

    def _write_offsets(
        self,
        name: str,
        changes: Changes,
        records: Rows,
        told: Callable[[ErrorCode | None], None],
    ) -> bool:
        offsets = self.offsets.setdefault(name, Offsets())
        offsets.begin(changes)

        def apply(end: Offset) -> None:
            offsets.settle(changes, end)
            self.drop_offsets(name)

        is_written = self.write(self.batch_of(records), apply, told)
        if not is_written:
            offsets.give_up(changes)
            self.drop_offsets(name)
        return is_written

    def drop_offsets(self, name: str) -> None:
        offsets = self.offsets.get(name)
        if offsets is not None and offsets.is_idle:
            del self.offsets[name]
            if (group := self.groups.get(name)) is not None:
                self._drop_if_nothing(group)

    def delete(self, group: Group, told: Callable[[ErrorCode | None], None]) -> None:
        """Delete a group that has no members, with all its offsets."""
        name = group.group_id
        offsets = self.offsets.get(name)
        places = () if offsets is None else offsets.everything()
        # Last of all the group itself: whoever finds it gone finds no offset either.
        steps: list[tuple[Changes, list[tuple[Key, bytes | None]]]] = []
        for some in in_batches(places):
            steps.append((some, [(OffsetKey(name, *one), None) for one in some]))
        if group.generation > 0:
            steps.append(({}, [(GroupKey(name), None)]))
        for changes, records in steps[:-1]:
            refusals: list[ErrorCode | None] = []
            if not self._write_offsets(name, changes, records, refusals.append):
                told(refusals[0])
                return
        if steps and not self._write_offsets(name, *steps[-1], told):
            return
        # From here on the name stands for a new group, whose records come later in the log.
        group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._forget(name)
        self.drop_offsets(name)
        if not steps:
            told(None)

    # ── Expiry ────────────────────────────────────────────────────────────────────────────────

    def expire(self, keep_ms: int) -> int:
        """Let go of offsets that are too old, and of groups that have nothing; return how many."""
        if not self.is_led or not self.is_loaded:
            return 0
        self._pay()
        gone = self._forget_places(self._world.is_topic, is_sure=False)
        for group in list(self.groups.values()):
            gone += self._expire(group, keep_ms)
        return gone

    def _expire(self, group: Group, keep_ms: int) -> int:
        name = group.group_id
        offsets = self.offsets.get(name)
        if offsets is None:
            is_over = group.state is State.EMPTY and not group.pending
            if is_over:
                self.delete(group, lambda code: None)
            return int(is_over)
        retention = Retention(
            now_ms=self._world.clock.now_ms(),
            keep_ms=keep_ms,
            empty_since_ms=self._empty_since.get(name),
            has_members=group.state is not State.EMPTY,
            subscribed=subscribed_topics(group),
        )
        places = offsets.expired(retention)
        self._remove(name, places)
        return len(places)

    def forget_topics(self, gone: frozenset[str]) -> None:
        """Let go of all offsets in topics that were deleted, and of what is owed since before."""
        if self.is_led and self.is_loaded:
            self._pay()
            if gone:
                self._forget_places(lambda topic: topic not in gone)

    def _forget_places(self, is_there: Callable[[str], bool], *, is_sure: bool = True) -> int:
        """Let go of offsets in topics that are not there; return how many.

        If one was seen to go, they are not shown from now on, and their tombstones are owed until
        they are written. If it is only not known here, a newer image may know it: the next look
        decides.
        """
        count = 0
        for name, offsets in tuple(self.offsets.items()):
            # Also what is under way: the tombstone comes behind it in the log.
            places = [place for place in offsets.everything() if not is_there(place[0])]
            count += len(places)
            if is_sure:
                offsets.hide(places)
            self._remove(name, places, is_owed=is_sure)
        return count

    def _pay(self) -> None:
        """Write the tombstones that were refused before: by now there may be enough replicas."""
        owed = tuple(self._owed.items())
        self._owed.clear()
        for name, places in owed:
            self._remove(name, sorted(places), is_owed=True)

    def _remove(self, name: str, places: Sequence[Place], *, is_owed: bool = False) -> None:
        for some in in_batches(places):
            if not self.commit(name, some, lambda code: None) and is_owed:
                self._owed.setdefault(name, set()).update(some)

    # ── The log ───────────────────────────────────────────────────────────────────────────────

    def write(
        self,
        batch: bytes | EndMarker,
        apply: Callable[[Offset], None],
        told: Callable[[ErrorCode | None], None],
    ) -> bool:
        """Write a batch; return whether it is in the log. `apply` gets where it ends there.

        What was in the log already was applied, or will be, by whoever wrote it.
        """
        replica = self.replica
        try:
            appended = self._append(batch)
        except (RequestError, StorageError) as error:
            told(as_group_error(code_of(error)))
            return False
        end = Offset(appended.last_offset + 1)

        def again(write: Write) -> None:
            if self.is_led:
                self._told_of(write, replica.when_committed(end, write, is_patient=True))

        check = partial(self._world.require_standing, replica)
        then = _nothing if appended.is_duplicate else partial(apply, end)
        write = Write(then, told, check, again)
        write.wait()
        self._told_of(write, replica.when_committed(end, write))
        return True

    def _told_of(self, write: Write, outcome: ErrorCode | None) -> None:
        if outcome is ErrorCode.NONE:
            write.reached()
        elif outcome is not None:
            write.failed(RequestError(outcome))

    def batch_of(self, records: Rows, producer: tuple[int, int, int] | None = None) -> bytes:
        """Return a batch; with a producer's id, epoch and sequence, one of its transaction."""
        return batch_of(records, self._world.clock.now_ms(), producer)

    def _append(self, batch: bytes | EndMarker) -> Appended:
        """Return where this batch is in the log; raises `RequestError`, `StorageError`."""
        self.require()
        replica = self.replica
        code = replica.refusal_of_all()
        if code is not None:
            raise RequestError(code)
        (appended,) = replica.append((batch,), now_ms=self._world.clock.now_ms())
        if isinstance(appended, RequestError):
            raise RequestError(appended.code, appended.sentence)
        return appended


def _nothing() -> None:
    pass


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """Return what the members of a group of consumers read, or None if nobody can tell."""
    if group.state is not State.STABLE or group.protocol_type != _CONSUMERS:
        return None
    topics = frozenset[str]()
    for member in group.members.values():
        known = topics_of(member.metadata_for(group.protocol))
        if known is None:
            return None
        topics |= known
    return topics
