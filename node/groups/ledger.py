"""One partition of `__consumer_offsets` and the groups in it, coordinated here in one leader epoch.

    led ──▶ loading: read the log, wait until all of it is committed ──▶ serving ──▶ over

P1  nothing is served before everything that the log held at the beginning was read and is
    committed: what one coordinator has shown, the next one knows
P2  nothing is served, and nothing written, in another epoch than the one it was loaded in
P3  when it is over everybody who waits is told; a ledger never begins again
P4  what the log has is applied in the order of the log

Not here: what groups do (`group.py`), and which ledgers there are (`coordinator.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ottla.node.clock import Clock
from ottla.node.groups.group import Group
from ottla.node.groups.loading import Loaded, Piece, decode_piece
from ottla.node.groups.offsets import Changes, Offsets, Place, Retention
from ottla.node.groups.records import (
    GroupKey,
    GroupValue,
    Key,
    OffsetKey,
    encode_group,
    encode_key,
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
from ottla.node.groups.writing import Write, as_group_error, code_of, into
from ottla.node.logs import logger
from ottla.proto.errors import CorruptionError, ErrorCode, RequestError, StorageError
from ottla.proto.ids import Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record
from ottla.replication.log.log import LogSlice
from ottla.replication.replica import Replica

_log = logger("groups")

# What is read and decoded at once while loading.
PIECE_BYTES: Final = 1 << 20
# Tombstones of one batch.
_AT_ONCE: Final = 1_000
_CONSUMERS: Final = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a ledger needs of its node."""

    clock: Clock
    terms: Callable[[], Terms]
    # Raises `RequestError` if another node may coordinate by now, unheard (rule 13).
    require_standing: Callable[[Replica], None]
    # Runs what blocks on a thread.
    on_a_thread: Callable[[Callable[[], Piece]], Awaitable[Piece]]
    count_rebalance: Callable[[Reason], None]


class Ledger:
    """The groups of one partition. `load` once; over for ever after `close`."""

    def __init__(self, replica: Replica, world: World) -> None:
        self.replica: Final = replica
        self.epoch: Final = replica.leader_epoch
        self._world: Final = world
        self.groups: Final[dict[str, Group]] = {}
        self.offsets: Final[dict[str, Offsets]] = {}
        # Since when groups have no members, by the time of day.
        self._empty_since: Final[dict[str, int]] = {}
        self._timers: Final[dict[str, asyncio.TimerHandle]] = {}
        self.is_loaded = False
        self.is_over = False

    # ── Beginning and ending ──────────────────────────────────────────────────────────────────

    @property
    def is_led(self) -> bool:
        """Whether its partition is still led here, in the epoch it was loaded in (P2)."""
        replica = self.replica
        return not self.is_over and replica.is_leader and replica.leader_epoch == self.epoch

    def require(self) -> None:
        """Raise `RequestError` unless this ledger may serve now."""
        if not self.is_led:
            raise RequestError(ErrorCode.NOT_COORDINATOR)
        if not self.is_loaded:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        try:
            self._world.require_standing(self.replica)
        except RequestError as refusal:
            raise RequestError(ErrorCode.NOT_COORDINATOR, refusal.sentence) from None

    async def load(self) -> None:
        """Read the log, and serve; or raise `StorageError`, `CorruptionError`, `RequestError`."""
        began_ms = self._world.clock.monotonic_ms()
        log = self.replica.log
        end, at, loaded = log.end_offset, log.start_offset, Loaded()
        while at < end and self.is_led:
            at = Offset(max(at, log.start_offset))
            found = log.read(at, bytes_max=PIECE_BYTES, before=end)
            if found is None:
                break
            piece = await self._world.on_a_thread(partial(_read, found, at))
            if piece.next_offset <= at:
                raise CorruptionError(f"Nothing can be read at offset {at}.")
            loaded.take(piece)
            at = Offset(piece.next_offset)
        await self._until_committed(end)
        if self.is_led:
            self._take_over(loaded)
            self._tell_loaded(loaded, self._world.clock.monotonic_ms() - began_ms)

    async def _until_committed(self, end: Offset) -> None:
        """Wait until nothing that was read can be lost any more (P1)."""
        if not self.is_led:
            return
        future: asyncio.Future[ErrorCode | None] = asyncio.get_running_loop().create_future()
        waiter = Write(lambda: None, into(future), lambda: None)
        if self.replica.when_committed(end, waiter) is None:
            await future

    def _take_over(self, loaded: Loaded) -> None:
        now_ms, wall_ms = self._world.clock.monotonic_ms(), self._world.clock.now_ms()
        self.offsets.update(loaded.offsets)
        for name in loaded.names():
            value = loaded.groups.get(name)
            group = Group(name) if value is None else Group.restore(name, value, now_ms)
            self.groups[name] = group
            if value is not None and not value.members:
                self._empty_since[name] = value.since_ms if value.since_ms >= 0 else wall_ms
        self.is_loaded = True
        for group in self.groups.values():
            self._arm(group)

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
        if self.groups.get(group.group_id) is group and self.is_led:
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
        self._write([record], lambda: None, told)

    # ── Offsets ───────────────────────────────────────────────────────────────────────────────

    def commit(self, name: str, changes: Changes, told: Callable[[ErrorCode | None], None]) -> None:
        """Write offsets of a group; `told` once, with None when they are committed."""
        offsets = self.offsets.setdefault(name, Offsets())
        offsets.begin(changes)

        def apply() -> None:
            offsets.settle(changes)
            self._drop_offsets(name)

        records = [
            (OffsetKey(name, *place), None if value is None else encode_offset(value))
            for place, value in changes.items()
        ]
        if not self._write(records, apply, told):
            offsets.give_up(changes)
            self._drop_offsets(name)

    def _drop_offsets(self, name: str) -> None:
        offsets = self.offsets.get(name)
        if offsets is not None and offsets.is_idle:
            del self.offsets[name]
            if (group := self.groups.get(name)) is not None:
                self._drop_if_nothing(group)

    def delete(self, group: Group, told: Callable[[ErrorCode | None], None]) -> None:
        """Delete a group that has no members, with all its offsets."""
        name = group.group_id
        offsets = self.offsets.setdefault(name, Offsets())
        places = offsets.everything()
        records: list[tuple[Key, bytes | None]] = [(OffsetKey(name, *one), None) for one in places]
        if group.generation > 0:
            records.append((GroupKey(name), None))
        offsets.begin(places)
        changes: Changes = dict.fromkeys(places)

        def apply() -> None:
            offsets.settle(changes)
            self._drop_offsets(name)

        if not records or self._write(records, apply, told):
            # From here on the name stands for a new group, whose records come later in the log.
            group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._forget(name)
        else:
            offsets.give_up(places)
        self._drop_offsets(name)
        if not records:
            told(None)

    # ── Expiry ────────────────────────────────────────────────────────────────────────────────

    def expire(self, keep_ms: int) -> int:
        """Let go of offsets that are too old, and of groups that have nothing; return how many."""
        if not self.is_led or not self.is_loaded:
            return 0
        gone = 0
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
        """Let go of all offsets in topics that were deleted."""
        if self.is_led and self.is_loaded:
            for name, offsets in tuple(self.offsets.items()):
                self._remove(name, [place for place in offsets if place[0] in gone])

    def _remove(self, name: str, places: Sequence[Place]) -> None:
        for start in range(0, len(places), _AT_ONCE):
            some: Changes = dict.fromkeys(places[start : start + _AT_ONCE])
            self.commit(name, some, lambda code: None)

    # ── The log ───────────────────────────────────────────────────────────────────────────────

    def _write(
        self,
        records: Sequence[tuple[Key, bytes | None]],
        apply: Callable[[], None],
        told: Callable[[ErrorCode | None], None],
    ) -> bool:
        """Write records as one batch; return whether they are in the log."""
        replica = self.replica
        write = Write(apply, told, lambda: self._world.require_standing(replica))
        try:
            end = self._append(records)
        except (RequestError, StorageError) as error:
            write.tell(as_group_error(code_of(error)))
            return False
        write.wait()
        outcome = replica.when_committed(end, write)
        if outcome is ErrorCode.NONE:
            write.reached()
        elif outcome is not None:
            write.failed(RequestError(outcome))
        return True

    def _append(self, records: Sequence[tuple[Key, bytes | None]]) -> Offset:
        """Return where the log ends with these records; raises `RequestError`, `StorageError`."""
        self.require()
        replica, wall_ms = self.replica, self._world.clock.now_ms()
        code = replica.refusal_of_all()
        if code is not None:
            raise RequestError(code)
        batch = build_batch(
            [Record(at, wall_ms, encode_key(key), value) for at, (key, value) in enumerate(records)]
        )
        (appended,) = replica.append((batch,), now_ms=wall_ms)
        if isinstance(appended, RequestError):
            raise RequestError(appended.code, appended.sentence)
        return Offset(appended.last_offset + 1)


def _read(found: LogSlice, first: Offset) -> Piece:
    return decode_piece(found.read(), first)


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
