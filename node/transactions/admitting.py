"""Partitions that are led here ask the coordinator before a transaction begins in them (KIP-890).

Without this, a batch that comes late would begin a transaction that nobody ever ends, and readers
of committed records would wait in front of it for ever:
    1. a transaction takes too long and is aborted; the marker is written
    2. a batch of it, on its way all the time, is appended behind the marker

N1  a batch begins a transaction only if the coordinator has said so, and no marker came since the
    question (rule 64b)
N2  a coordinator that cannot be reached admits nobody; who asks is told to try again
N3  an answer that is void is no refusal: it is asked for again, and if there is no end to it, who
    asks is told to try again

Not here: what the log knows of it (`replication/transactions.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.node.transactions.peers import Admission, Admitted, PeerAwayError
from ottla.node.transactions.places import partition_of
from ottla.node.transactions.words import Place
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.replication.replica import Replica

if TYPE_CHECKING:
    from ottla.node.broker import Broker

# While another one takes over as the coordinator, so long is waited, and so often it is looked.
PATIENCE_S: Final = 0.5
_LOOK_S: Final = 0.02
# Nothing is known, and the next moment may bring it. A partition that is led here is known
# everywhere in a moment, also if the coordinator has not heard of it yet.
_AWAY: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)


async def admit(
    broker: Broker, asked: Admission, replicas: Mapping[Place, Replica]
) -> dict[Place, ErrorCode]:
    """Let the next batch of a producer begin a transaction in these partitions, where it may.

    `asked` names no partition yet. Returns what the coordinator said of each.

    A marker that makes the answer void is, nearly always, that of the transaction before (N3):
        1. the producer is told that its transaction is decided, and begins the next one at once
        2. this leader asks, and the coordinator waits until the one before has all its markers
        3. the marker is written here, and makes the question void
        4. the coordinator says yes
    However long it took from 1 to 4, there is one question after it: the patience ends questions
    that begin late, not answers that come late. All partitions are asked for again, so that in the
    end all are admitted in the same moment.
    """
    loop = asyncio.get_running_loop()
    until_s, is_last = loop.time() + PATIENCE_S, False
    while True:
        told, void = await _admitted(broker, asked, replicas)
        if is_last or not void:
            return told | void
        is_last = loop.time() >= until_s
        if ErrorCode.NOT_COORDINATOR in void.values():
            await asyncio.sleep(_LOOK_S)


async def _admitted(
    broker: Broker, asked: Admission, replicas: Mapping[Place, Replica]
) -> tuple[dict[Place, ErrorCode], dict[Place, ErrorCode]]:
    """Return what the coordinator said; and where that is void, why it is (N1)."""
    guards = {
        place: replica.log.producers.transactions.guard(asked.producer_id, asked.producer_epoch)
        for place, replica in replicas.items()
    }
    outcomes, epoch = Admitted({})
    try:
        outcomes, epoch = await _asked(broker, replace(asked, places=tuple(replicas)))
    finally:
        told, void = dict[Place, ErrorCode](), dict[Place, ErrorCode]()
        for place, guard in guards.items():
            producers = replicas[place].log.producers
            told[place] = outcomes.get(place, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if told[place] is not ErrorCode.NONE:
                producers.transactions.drop(guard)
            elif (code := producers.admit(guard, epoch)) is not ErrorCode.NONE:
                void[place] = code
    return told, void


async def _asked(broker: Broker, asked: Admission) -> Admitted:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + PATIENCE_S
    while True:
        info = broker.transactions.topic.known
        if info is None:
            # Whoever has a transactional id has looked for its coordinator before.
            return _all(asked.places, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        index = partition_of(asked.transactional_id, len(info.partitions))
        told = await _asked_once(broker, asked, info.partitions[index].leader)
        is_away = any(code in _AWAY for code in told.outcomes.values())
        if not is_away or loop.time() >= until_s:
            return told
        await asyncio.sleep(_LOOK_S)


async def _asked_once(broker: Broker, asked: Admission, leader: BrokerId | None) -> Admitted:
    if leader is None:
        return _all(asked.places, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if leader == broker.node_id:
        return await broker.transactions.admit(asked)
    try:
        return await broker.peers.admit(leader, asked)
    except PeerAwayError:
        return _all(asked.places, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _all(places: Sequence[Place], code: ErrorCode) -> Admitted:
    return Admitted(dict.fromkeys(places, code))
