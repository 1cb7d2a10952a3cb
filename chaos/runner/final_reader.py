"""Reads whole partitions when everything is mended: with new clients, from the first record on.

It reads to the high watermark of the leader and to the highest offset that was ever acknowledged,
whichever is more: a new leader may not know yet how far it is, so it is asked again until nothing
more has come for as long as the deadline. What could be read by then is returned, and whoever
judges sees what is missing. A machine that is slow is not a log that has lost something.

Not here: what should be there (`checkers/`).

F1  a partition that nobody could read has a high watermark of −1 and no records
F2  of what is committed, the high watermark is the last stable offset
F3  only what brings the reader further gives it more time
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.chaos.clock import now_ns, now_s
from ottla.chaos.evidence import FinalRead, Record
from ottla.chaos.history import Place
from ottla.chaos.payload import decode_payload, wire_name
from ottla.chaos.runner.lines import Lines
from ottla.chaos.runner.requests import (
    EARLIEST,
    FETCH_BY_NAME,
    Seen,
    Taken,
    end_of_batches,
    fetch_fields,
    list_offsets_fields,
    records_in,
    without_aborted,
)
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.kafka.apis import FETCH, LIST_OFFSETS

_AT_ONCE: Final = 3
_ANSWER_S: Final = 5.0
_PAUSE_S: Final = 0.05
_BYTES_MAX: Final = 4 << 20
LEADER: Final = "leader"
COMMITTED: Final = "committed"


@dataclass(slots=True)
class _Reading:
    """How far a partition has been read."""

    place: Place
    wanted: int
    # Only what is committed, to the last stable offset: its high watermark is that.
    is_committed: bool = False
    # Where the log begins; None: nobody said.
    start: int | None = None
    position: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    records: list[Record] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.high_watermark >= 0 and self.position >= max(self.high_watermark, self.wanted)


async def read_partitions(
    addresses: Mapping[int, str],
    wanted: Mapping[Place, int],
    turn: int,
    deadline_s: float,
    *,
    is_committed: bool = False,
) -> list[FinalRead]:
    """Return every partition, each read to the offset that is wanted of it at least (exclusive).

    Of what is committed it is read until nothing is undecided below the high watermark.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(place: Place, offset: int) -> FinalRead:
        async with gate:
            reading = _Reading(place, offset, is_committed)
            return await _read(addresses, reading, turn, deadline_s)

    return list(await asyncio.gather(*(one(*item) for item in sorted(wanted.items()))))


async def _read(
    addresses: Mapping[int, str], reading: _Reading, turn: int, deadline_s: float
) -> FinalRead:
    lines = Lines(addresses, "final")
    began_ns, end_s = now_ns(), now_s() + deadline_s
    try:
        while not reading.is_done and now_s() < end_s:
            if await _read_on(lines, reading):
                end_s = now_s() + deadline_s
            else:
                await asyncio.sleep(_PAUSE_S)
    finally:
        await lines.close()
    return FinalRead(
        place=reading.place,
        source=COMMITTED if reading.is_committed else LEADER,
        turn=turn,
        start_offset=reading.start or 0,
        high_watermark=(
            reading.last_stable_offset if reading.is_committed else reading.high_watermark
        ),
        records=tuple(reading.records),
        began_ns=began_ns,
    )


async def _read_on(lines: Lines, reading: _Reading) -> bool:
    """Read one answer more; return false if it is better to wait a little."""
    place = Place(wire_name(reading.place.topic), reading.place.partition)
    leader = await _leader(lines, place)
    if leader is None:
        return False
    try:
        line = await lines.to(leader)
        if reading.start is None:
            answer = await line.call(
                LIST_OFFSETS, list_offsets_fields(place, EARLIEST), timeout_s=_ANSWER_S
            )
            (part,) = answer.topics[0].partitions
            if part.error_code != ErrorCode.NONE:
                return False
            reading.start = reading.position = part.offset
        fields = fetch_fields(
            {place: reading.position},
            max_wait_ms=0,
            bytes_max=_BYTES_MAX,
            is_committed=reading.is_committed,
        )
        answer = await line.call(FETCH, fields, FETCH_BY_NAME, timeout_s=_ANSWER_S)
        (part,) = answer.responses[0].partitions
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return _begin_again(reading, part.log_start_offset)
        if part.error_code != ErrorCode.NONE:
            return False
    except OttlaError:
        lines.cut(leader)
        return False
    reading.last_stable_offset = max(reading.last_stable_offset, part.last_stable_offset)
    aborted = [(one.producer_id, one.first_offset) for one in part.aborted_transactions or ()]
    return _take(reading, part.records or b"", part.high_watermark, aborted)


def _begin_again(reading: _Reading, start: int) -> bool:
    """Retention may have passed the place where we were."""
    if start <= reading.position:
        return False
    reading.start = reading.position = start
    reading.records = [one for one in reading.records if one.offset >= start]
    return True


def _take(
    reading: _Reading,
    data: bytes | memoryview,
    high_watermark: int,
    aborted: Sequence[tuple[int, int]],
) -> bool:
    reading.high_watermark = max(reading.high_watermark, high_watermark)
    end = end_of_batches(data)
    if end is None:
        # Behind the last batch there may be nothing but what a cleaner took away.
        is_at_end = reading.position >= high_watermark
        return is_at_end and reading.is_done
    reading.records += [
        Record(
            one.offset, decode_payload(reading.place, one.payload), one.leader_epoch, one.is_control
        )
        for one in _records(reading, data, aborted)
        if one.offset >= reading.position
    ]
    has_grown = end > reading.position
    reading.position = max(reading.position, end)
    return has_grown


def _records(
    reading: _Reading, data: bytes | memoryview, aborted: Sequence[tuple[int, int]]
) -> Iterable[Taken]:
    taken = records_in(data)
    return without_aborted(taken, aborted) if reading.is_committed else taken


async def _leader(lines: Lines, place: Place) -> int | None:
    """Return who leads by the highest epoch that any node names."""
    asked = await asyncio.gather(*(lines.leaders(node, [place.topic]) for node in lines.addresses))
    found = [view[place] for view in asked if view is not None and place in view]
    # Of one epoch a broker that just lost its leader names nobody.
    best = max(found, key=lambda seen: (seen.epoch, seen.leader >= 0), default=Seen(-1, -1))
    return best.leader if best.leader >= 0 else None
