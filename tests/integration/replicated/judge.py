"""Says whether what is in the log follows from what was answered. A pure function of both.

Q1  every acknowledged record is at its offset; or anywhere, where the producer was not told it
Q2  no value is there twice: every value is sent once, or by an idempotent producer
Q3  nothing that surely failed is there, nor anything that nobody sent, nor in another partition
Q4  a record acknowledged before another one was sent lies below it (real time order); records of
    one idempotent producer lie in the order in which it was given them
Q5  offsets have no holes, and leader epochs never decrease
Q6  one leader in an epoch: by all that was seen in metadata, and by who acknowledged what
Q7  replicas have the same batches below the high watermark
Q8  what a reader was shown once is still there (rule 60)

Not here: how it was read (`reader.py`), how replicas are opened (`replicas.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.proto.ids import TopicPartition
from tests.integration.replicated.history import Attempt, Fate, LeaderSeen

# So many of a kind are told; the rest is counted.
_TOLD_MAX: Final = 5


class Found(NamedTuple):
    """A record as it was read back."""

    offset: int
    value: bytes
    # Of the batch that it lies in.
    epoch: int


class BatchPrint(NamedTuple):
    """A batch by what must be the same on every replica."""

    base_offset: int
    last_offset: int
    epoch: int
    size: int
    crc: int


Log = Sequence[Found]


def judge(
    attempts: Collection[Attempt],
    logs: Mapping[TopicPartition, Log],
    leaders: Iterable[LeaderSeen] = (),
    *,
    ordered: Collection[str] = (),
) -> list[str]:
    """Return what must not be, in sentences; nothing if all is well.

    `logs` holds every partition that was written to, all of it. `ordered` names the writers whose
    records must lie in the order in which they were sent, whatever became of them.
    """
    problems = list[str]()
    tried = {one.value: one for one in attempts}
    for place, log in logs.items():
        mine = [one for one in attempts if one.place == place]
        problems += _missing(place, log, mine)
        problems += _strange(place, log, tried)
        problems += _misplaced(place, log)
        problems += _out_of_real_time(place, log, mine)
        for writer in ordered:
            problems += _out_of_order(place, log, [one for one in mine if one.writer == writer])
    unread = {one.place for one in attempts} - set(logs)
    problems += [f"{place} was written to and not read" for place in unread]
    return problems + _two_leaders(attempts, logs, leaders)


def _few(what: Sequence[str]) -> list[str]:
    more = len(what) - _TOLD_MAX
    return [*what[:_TOLD_MAX], *([f"… and {more} more like the last"] if more > 0 else [])]


def _missing(place: TopicPartition, log: Log, attempts: Iterable[Attempt]) -> list[str]:
    at = {found.offset: found.value for found in log}
    where = {found.value: found.offset for found in log}
    return _few(
        [
            f"{place}: {one.value!r} was acknowledged at {one.offset} by node {one.node}; there is "
            f"{at.get(one.offset, b'nothing')!r}, and it is at {where.get(one.value, 'no offset')}"
            for one in attempts
            if one.fate is Fate.OK and not _is_there(one, at, where)
        ]
    )


def _is_there(one: Attempt, at: Mapping[int, bytes], where: Mapping[bytes, int]) -> bool:
    """An acknowledgement may leave open where it is, never that it is there."""
    return one.value in where if one.offset < 0 else at.get(one.offset) == one.value


def _strange(place: TopicPartition, log: Log, tried: Mapping[bytes, Attempt]) -> list[str]:
    told = list[str]()
    for offset, value, _ in log:
        attempt = tried.get(value)
        if attempt is None:
            told.append(f"{place}: nobody sent {value!r}, and it is at {offset}")
        elif attempt.place != place:
            told.append(f"{place}: {value!r} at {offset} was sent to {attempt.place}")
        elif attempt.fate is Fate.FAILED:
            told.append(f"{place}: {value!r} at {offset} had failed ({attempt.said})")
    twice = [value for value, count in Counter(found.value for found in log).items() if count > 1]
    return _few(told) + _few([f"{place}: {value!r} is there more than once" for value in twice])


def _misplaced(place: TopicPartition, log: Log) -> list[str]:
    holes = [
        f"{place}: offset {after.offset} follows {before.offset}"
        for before, after in pairwise(log)
        if after.offset != before.offset + 1
    ]
    if log and log[0].offset != 0:
        holes.insert(0, f"{place}: the first offset is {log[0].offset}")
    back = [
        f"{place}: epoch {after.epoch} at {after.offset} follows epoch {before.epoch}"
        for before, after in pairwise(log)
        if after.epoch < before.epoch
    ]
    return _few(holes) + _few(back)


def _out_of_real_time(place: TopicPartition, log: Log, attempts: Iterable[Attempt]) -> list[str]:
    """Nothing that began after an acknowledgement lies below what was acknowledged."""
    where = {found.value: found.offset for found in log}
    begins = [(one.began_s, 0, where[one.value], one) for one in attempts if one.value in where]
    ends = [(one.ended_s, 1, one.offset, one) for one in attempts if one.fate is Fate.OK]
    highest, told = None, list[str]()
    for _, is_end, offset, one in sorted(begins + ends, key=lambda row: row[:2]):
        if is_end:
            highest = one if highest is None or offset > highest.offset else highest
        elif highest is not None and offset <= highest.offset:
            told.append(
                f"{place}: {one.value!r} is at {offset}, below {highest.offset}, which was "
                f"acknowledged before it was sent"
            )
    return _few(told)


def _out_of_order(place: TopicPartition, log: Log, attempts: Iterable[Attempt]) -> list[str]:
    number = {one.value: at for at, one in enumerate(attempts)}
    mine = [found for found in log if found.value in number]
    return _few(
        [
            f"{place}: {after.value!r} at {after.offset} was sent before {before.value!r}"
            for before, after in pairwise(mine)
            if number[after.value] < number[before.value]
        ]
    )


def _two_leaders(
    attempts: Iterable[Attempt],
    logs: Mapping[TopicPartition, Log],
    leaders: Iterable[LeaderSeen],
) -> list[str]:
    told = defaultdict[tuple[TopicPartition, int], set[int]](set)
    for seen in leaders:
        told[seen.place, seen.epoch].add(seen.leader)
    epochs = {
        place: {(found.offset, found.value): found.epoch for found in log}
        for place, log in logs.items()
    }
    for one in attempts:
        epoch = epochs.get(one.place, {}).get((one.offset, one.value))
        if one.fate is Fate.OK and one.node is not None and epoch is not None:
            told[one.place, epoch].add(one.node)
    return _few(
        [
            f"{place}: nodes {sorted(nodes)} all led in epoch {epoch}"
            for (place, epoch), nodes in sorted(told.items(), key=str)
            if len(nodes) > 1
        ]
    )


def vanished(place: TopicPartition, seen: Mapping[int, bytes], log: Log) -> list[str]:
    """Return what a reader has seen at an offset and is not there any more (Q8)."""
    at = {found.offset: found.value for found in log}
    return _few(
        [
            f"{place}: a reader was shown {value!r} at {offset}; now there is "
            f"{at.get(offset, b'nothing')!r}"
            for offset, value in seen.items()
            if at.get(offset) != value
        ]
    )


def compare_replicas(
    place: TopicPartition,
    replicas: Mapping[int, Sequence[BatchPrint]],
    high_watermark: int,
) -> list[str]:
    """Return where the replicas differ below the high watermark (Q7)."""
    below = {
        node: [one for one in batches if one.base_offset < high_watermark]
        for node, batches in replicas.items()
    }
    problems = list[str]()
    for node, batches in below.items():
        end = batches[-1].last_offset + 1 if batches else 0
        if end < high_watermark:
            problems.append(
                f"{place}: node {node} ends at {end}, below the high watermark {high_watermark}"
            )
    (first, expected), *rest = below.items()
    for node, batches in rest:
        pairs = zip(expected, batches, strict=False)
        differing = [(ours, theirs) for ours, theirs in pairs if ours != theirs]
        if differing:
            ours, theirs = differing[0]
            problems.append(f"{place}: node {first} has {ours}, and node {node} {theirs}")
    return problems
