"""The page `/digest`: the batches of one replica on this node, so that replicas can be compared.

    /digest?topic=orders&partition=0              from the log start to the high watermark
    /digest?topic=orders&partition=0&from=100&to=200&check=true

`to` may be above the high watermark, up to the end offset; what is there may still be cut. With
`check=true` every byte is read, and a batch whose checksum is wrong is told as `damage`. An answer
has a bounded number of batches, and `next` says where to go on; null: it is complete.

Not here: reading (`replication/log/digest.py`), comparing (`ottla replicas verify`).

P1  reading is done on a thread, a few at a time: whoever asks for much waits, and nobody else does
P2  what cannot be answered is refused in a sentence, and nothing that is asked changes anything
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

from ottla.node.http import JSON, Answer, Route
from ottla.proto.errors import ErrorCode, OttlaError, RequestError, StorageError
from ottla.proto.ids import INT32_MAX, INT64_MAX, BrokerId, Offset
from ottla.replication.log.digest import CHECK_BYTES_MAX, BatchDigest, begin_digest
from ottla.replication.log.log import Log

BATCHES_MAX: Final = 10_000
_FIELDS: Final = ("topic", "partition", "from", "to", "check")
_TRUTHS: Final = {"true": True, "false": False}
# A part of a second each: more at a time would only keep each other waiting.
_AT_ONCE: Final = 2
# Empty segments are passed by in no time; this is a bound, and not a goal.
_PARTS_MAX: Final = 1_000


class Digestible(Protocol):
    """What is asked of a replica."""

    @property
    def log(self) -> Log: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...


class Holder(Protocol):
    """Who has the replicas of this node."""

    def get(self, topic: str, index: int) -> Digestible | None: ...

    def refusal(self, topic: str, index: int) -> RequestError: ...


class _RefusedError(OttlaError):
    """A question that is answered with its fault."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status: Final = status


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query asks for; None: as far as there is."""

    topic: str
    partition: int
    first: int | None
    before: int | None
    check: bool


def digest_pages(node_id: BrokerId, replicas: Callable[[], Holder | None]) -> dict[str, Route]:
    """Return the page, for `HttpListener`. `replicas` are None while there are none yet."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def shows_digest(query: Mapping[str, str]) -> Answer:
        try:
            asked = read_query(query)
            replica = _find(replicas(), asked)
            async with turn:
                return await _digest(node_id, replica, asked)
        except _RefusedError as error:
            return _refused(error.status, str(error))
        except StorageError as error:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    return {"/digest": shows_digest}


def _refused(status: HTTPStatus, sentence: str) -> Answer:
    return Answer(status, json.dumps({"reason": sentence}).encode() + b"\n", JSON)


# ── What was asked ────────────────────────────────────────────────────────────────────────────


def read_query(query: Mapping[str, str]) -> Asked:
    """Return what is asked for, or raise what is answered to it."""
    unknown = [name for name in query if name not in _FIELDS]
    if unknown:
        raise _bad(f"there is no field {_shown(unknown[0])}; there are {', '.join(_FIELDS)}")
    if not query.get("topic"):
        raise _bad("topic is missing: /digest?topic=orders&partition=0")
    partition = _number(query, "partition", INT32_MAX)
    if partition is None:
        raise _bad("partition is missing: /digest?topic=orders&partition=0")
    check = _TRUTHS.get(query.get("check", "false"))
    if check is None:
        raise _bad("check is true or false")
    first, before = _number(query, "from", INT64_MAX), _number(query, "to", INT64_MAX)
    if first is not None and before is not None and first > before:
        raise _bad(f"from ({first}) is above to ({before})")
    return Asked(query["topic"], partition, first, before, check)


def _number(query: Mapping[str, str], name: str, most: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    # The length first: a number of thousands of digits takes its time.
    if len(text) > len(str(most)) or not (text.isascii() and text.isdigit()) or int(text) > most:
        raise _bad(f"{name} is a number from 0 to {most}, and not {_shown(text)}")
    return int(text)


def _bad(sentence: str) -> _RefusedError:
    return _RefusedError(HTTPStatus.BAD_REQUEST, sentence)


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= 40 else f"{text[:40]}…")


def _find(replicas: Holder | None, asked: Asked) -> Digestible:
    if replicas is None:
        told = "the node has not read its logs yet, or is no broker"
        raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, told)
    replica = replicas.get(asked.topic, asked.partition)
    if replica is not None:
        return replica
    refusal = replicas.refusal(asked.topic, asked.partition)
    if refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise _RefusedError(HTTPStatus.NOT_FOUND, "this node has no replica of that partition")
    raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, refusal.sentence)


# ── What is told ──────────────────────────────────────────────────────────────────────────────


async def _digest(node_id: BrokerId, replica: Digestible, asked: Asked) -> Answer:
    log = replica.log
    log.require_online()
    first = log.start_offset if asked.first is None else max(asked.first, log.start_offset)
    before = log.high_watermark if asked.before is None else min(asked.before, log.end_offset)
    told: dict[str, Any] = {
        "node": node_id,
        "topic": asked.topic,
        "partition": asked.partition,
        "leader_epoch": replica.leader_epoch,
        "is_leader": replica.is_leader,
        "log_start_offset": log.start_offset,
        "high_watermark": log.high_watermark,
        # Exclusive, as everywhere.
        "end_offset": log.end_offset,
        # Below it compaction, here or at the leader, may have taken records away.
        "compacted_below": log.gaps_below,
        "from": first,
        "to": max(first, before),
        "checked": asked.check,
    }
    batches, going_on, damage = await _batches(log, Offset(first), Offset(before), asked.check)
    told |= {"damage": damage, "next": going_on}
    # Thousands of rows take as long to write as to read.
    return Answer(HTTPStatus.OK, await asyncio.to_thread(_body, told, batches), JSON)


async def _batches(
    log: Log, first: Offset, before: Offset, check: bool
) -> tuple[list[BatchDigest], int | None, str | None]:
    """Return the batches, where to go on (None: nowhere), and what is damaged, if anything is."""
    batches, at = list[BatchDigest](), first
    for _ in range(_PARTS_MAX):
        part = begin_digest(log, at, before)
        if part is None:
            return batches, None, None
        room = BATCHES_MAX - len(batches)
        if room == 0:
            return batches, at, None
        found = await asyncio.to_thread(part.read, room, check=check)
        batches += found.batches
        at = found.next_offset
        if found.damage is not None:
            return batches, None, found.damage
        if check and sum(one.size for one in batches) >= CHECK_BYTES_MAX:
            break
    return batches, None if begin_digest(log, at, before) is None else at, None


def _body(told: Mapping[str, Any], batches: list[BatchDigest]) -> bytes:
    rows = [batch._asdict() for batch in batches]
    return json.dumps({**told, "batches": rows}).encode() + b"\n"
