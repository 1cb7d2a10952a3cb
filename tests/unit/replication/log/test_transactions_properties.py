"""Whatever happens to a log: what is stable and what was aborted is what its batches say.

The measure is naive: all the batches, walked from the first one. And the reader is a client: it
gets bytes and a list of aborted transactions, and leaves out what a client leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import LeaderEpoch, Offset
from ottla.proto.records.control import read_marker
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import read_header
from ottla.replication.compaction.cleaner import clean
from ottla.replication.log.log import Log
from ottla.replication.log.surgery import delete_records, truncate
from ottla.replication.storage.faults import PowerCutError
from ottla.replication.storage.unsynced import Style
from tests.builders import NOW_MS, OneLog, append, batches_of, faulty_files, small_settings
from tests.unit.replication.log.transactions import COORDINATOR, end, write

PRODUCERS: Final = (1, 2, 3)


@dataclass
class Naive:
    """What the batches of a log say, worked out from the first of them."""

    # Producer, first offset, offset of the marker or None, whether it was aborted.
    transactions: list[tuple[int, int, int | None, bool]] = field(default_factory=list)

    def __init__(self, log: Log) -> None:
        self.transactions = []
        opened: dict[int, int] = {}
        for batch in batches_of(log):
            header = read_header(batch)
            if header.is_control:
                marker = read_marker(batch)
                first = opened.pop(header.producer_id, None)
                if marker is not None and first is not None:
                    told = (header.producer_id, first, header.base_offset, not marker.is_commit)
                    self.transactions.append(told)
            elif header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
        self.transactions += [(one, first, None, False) for one, first in opened.items()]

    def opened(self) -> dict[int, int]:
        return {
            producer: first for producer, first, marker, _ in self.transactions if marker is None
        }

    def last_stable(self, high_watermark: int) -> int:
        held = [
            first
            for _, first, marker, _ in self.transactions
            if marker is None or marker >= high_watermark
        ]
        return min([high_watermark, *held])

    def aborted(self, first: int, bound: int) -> set[tuple[int, int]]:
        return {
            (producer, began)
            for producer, began, marker, is_aborted in self.transactions
            if is_aborted and marker is not None and marker >= first and began < bound
        }


def seen_by_client(log: Log, offset: int, bound: int) -> list[tuple[int, bytes | None]]:
    """Return what a client that reads committed gets, by the way Kafka's clients go about it."""
    listed = [
        (one.first_offset, one.producer_id)
        for one in log.aborted.overlapping(log.segments, Offset(offset), Offset(bound))
    ]
    out: set[int] = set()
    seen: list[tuple[int, bytes | None]] = []
    for batch in batches_of(log, before=Offset(bound)):
        header = read_header(batch)
        if header.last_offset < offset:
            continue
        while listed and listed[0][0] <= header.last_offset:
            out.add(listed.pop(0)[1])
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                out.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in out):
            seen += [(one.offset, one.value) for one in decode_records(batch)]
    return [one for one in seen if one[0] >= offset]


class Story:
    """One log that things happen to, and the truth about every offset that was written."""

    def __init__(self, seed: int, *, compact: bool) -> None:
        self.dice: Final = Random(seed)
        # Its own, so that who coordinates changes nothing of what else is drawn.
        self.coordinators: Final = Random(f"{seed}/coordinators")
        self.coordinator = COORDINATOR
        self.files, _, self.power = faulty_files()
        self.one: Final = OneLog(
            small_settings(
                segment_bytes=400,
                compact=compact,
                delete=not compact,
                min_cleanable_dirty_ratio=0.0,
                delete_retention_ms=5,
            ),
            files=self.files,
        )
        self.log = self.one.create()
        self.log.checkpoint()
        self.now_ms = NOW_MS
        self.compact: Final = compact
        self.number = 0
        # Below it everything was committed once, also if a power cut took the watermark back.
        self.committed = Offset(0)
        # What was committed has been cut off a log that may have been cleaned because of it.
        self.is_unclean = False

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], object]]] = [
            (30, self.write),
            (14, self.end),
            (8, self.plain),
            (10, self.commit),
            (6, lambda: self.log.checkpoint()),
            (5, self.log.sync),
            (3, self.cut_off),
            (3, self.cut_power),
            (2, self.delete),
            (4, self.clean),
        ]
        weights = [weight for weight, _ in steps]
        (_, work), *_ = self.dice.choices(steps, weights)
        try:
            work()
        except PowerCutError:
            self.reopen()

    def value(self) -> tuple[bytes, bytes]:
        self.number += 1
        return (f"k{self.dice.randint(0, 3)}".encode(), f"v{self.number}".encode())

    def write(self) -> None:
        producer = self.dice.choice(PRODUCERS)
        known = self.log.producers.get(producer)
        write(self.log, producer, self.value(), epoch=0 if known is None else known.epoch)

    def end(self) -> None:
        producer = self.dice.choice(PRODUCERS)
        known = self.log.producers.get(producer)
        epoch = (0 if known is None else known.epoch) + self.dice.randint(0, 1)
        self.coordinator += self.coordinators.randrange(3) == 0
        facts: dict[str, Any] = {"is_commit": self.dice.random() < 0.5, "epoch": epoch}
        end(self.log, producer, coordinator=self.coordinator, **facts)
        # Written or not: whoever coordinated before has nothing to say here any more.
        began = self.log.producers.transactions.first_offset_of(producer)
        with pytest.raises(RequestError) as refused:
            end(self.log, producer, coordinator=self.coordinator - 1, **facts)
        assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert self.log.producers.transactions.first_offset_of(producer) == began

    def plain(self) -> None:
        append(self.log, self.value())

    def commit(self) -> None:
        self.log.sync()
        high = self.dice.randint(self.log.high_watermark, self.log.end_offset)
        self.log.advance_high_watermark(Offset(high))
        self.committed = max(self.committed, self.log.high_watermark)

    def cut_off(self) -> None:
        self.log.sync()
        at = self.dice.randint(self.log.high_watermark, self.log.end_offset)
        # Before, because the power may fail in the middle.
        self.is_unclean |= self.compact and at < self.committed
        truncate(self.log, Offset(at))
        latest = self.log.epochs.latest
        self.log.assign_epoch(LeaderEpoch(latest + 1))

    def delete(self) -> None:
        if not self.compact:
            bound = self.log.last_stable_offset
            at = self.dice.randint(self.log.start_offset, bound)
            delete_records(self.log, Offset(at), now_ms=self.now_ms)

    def clean(self) -> None:
        self.now_ms += 3
        if self.compact:
            clean(self.log, now_ms=self.now_ms)

    def cut_power(self) -> None:
        if self.dice.random() < 0.5:
            self.power.cut_at = self.power.moments + self.dice.randint(1, 10)
            return
        self.power.cut(self.dice, self.dice.choice(list(Style)))
        self.open()

    def reopen(self) -> None:
        self.power.cut_at = None
        self.power.cut(self.dice, self.dice.choice(list(Style)))
        self.open()

    def open(self) -> None:
        self.power.cut_at = None
        self.log, report = self.one.open(now_ms=self.now_ms)
        assert self.log.offline is None, report.notes
        self.log.checkpoint()
        if self.log.epochs.latest < 0:
            self.log.assign_epoch(LeaderEpoch(0))

    def check(self) -> None:
        log, dice = self.log, self.dice
        naive = Naive(log)
        if not self.is_unclean:
            # Of an open transaction nothing is deleted or cleaned, and no other is open: the last
            # stable offset would wait for a marker that does not come. But if the marker is cut
            # off, the log knows where a transaction began whose first batches are cleaned away.
            assert dict(log.producers.transactions.opened) == naive.opened()
        high = log.high_watermark
        stable = max(log.start_offset, naive.last_stable(high))
        if self.compact:
            # The first records of a transaction may be cleaned away: what is left began later.
            assert log.last_stable_offset <= stable
            stable = log.last_stable_offset
        assert log.last_stable_offset == stable
        first = dice.randint(log.start_offset, stable)
        bound = dice.randint(first, stable)
        if bound > first and not self.compact:
            listed = log.aborted.overlapping(
                log.segments[log.segment_number(Offset(first)) :], Offset(first), Offset(bound)
            )
            # Its first records may have been deleted: then it began before what is left.
            for producer, began in naive.aborted(first, bound):
                assert any(
                    one.producer_id == producer and one.first_offset <= began for one in listed
                )
        assert seen_by_client(log, first, stable) == self.truth(naive, first, stable)

    def truth(self, naive: Naive, first: int, bound: int) -> list[tuple[int, bytes | None]]:
        """Return the records that are not of aborted transactions, as the naive measure has it."""
        seen: list[tuple[int, bytes | None]] = []
        for batch in batches_of(self.log, before=Offset(bound)):
            header = read_header(batch)
            is_aborted = header.is_transactional and any(
                producer == header.producer_id
                and marker is not None
                and began <= header.base_offset < marker
                and gone
                for producer, began, marker, gone in naive.transactions
            )
            if not (header.is_control or is_aborted):
                seen += [(one.offset, one.value) for one in decode_records(batch)]
        return [one for one in seen if one[0] >= first]


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32), compact=st.booleans())
# A snapshot had a transaction open whose marker was deleted since.
@example(seed=1186368, compact=False)
def test_t3_what_is_stable_and_aborted_is_what_the_batches_say(seed: int, compact: bool) -> None:
    story = Story(seed, compact=compact)
    for number in range(70):
        story.step()
        if number % 3 == 0:
            story.check()
    story.power.cut_at = None
    story.check()
