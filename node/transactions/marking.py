"""Markers come in: they are written to the partitions that are led here.

J1  a marker is said to be written when it is committed: what a reader was shown is not taken back
J2  the partitions of groups are written to by their coordinator, in line with what it has there

Not here: sending them (`markers.py`), and what a log makes of one (`replication/producers.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.node.groups.in_transactions import end_transaction
from ottla.node.groups.places import OFFSETS_TOPIC
from ottla.node.groups.reading import until_committed
from ottla.node.groups.writing import code_of, into
from ottla.node.kafka.leading import led_here, require_standing
from ottla.node.transactions.peers import Outcomes, WantedMarker
from ottla.node.transactions.places import TRANSACTIONS_TOPIC
from ottla.node.transactions.words import Place
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import Offset
from ottla.proto.records.control import EndMarker

if TYPE_CHECKING:
    from ottla.node.broker import Broker

# One that is not committed by then is sent again: others wait behind it.
WAIT_S: Final = 2.0


async def write_markers(broker: Broker, wanted: Sequence[WantedMarker]) -> list[Outcomes]:
    """Write markers, and return what became of each when that is known."""
    writes = [[_write(broker, one.end, place) for place in one.places] for one in wanted]
    codes = await asyncio.gather(*(one for some in writes for one in some))
    found = iter(codes)
    return [{place: next(found) for place in one.places} for one in wanted]


async def _write(broker: Broker, end: EndMarker, place: Place) -> ErrorCode:
    topic, index = place
    try:
        async with asyncio.timeout(WAIT_S):
            if topic == OFFSETS_TOPIC:
                return await _write_for_groups(broker, end, index)
            await _write_here(broker, end, topic, index)
    except (RequestError, StorageError) as error:
        return code_of(error)
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NONE


async def _write_here(broker: Broker, end: EndMarker, topic: str, index: int) -> None:
    replica = led_here(broker, topic, index)
    require_standing(broker, replica)
    code = replica.refusal_of_all()
    if code is not None:
        raise RequestError(code)
    if topic == TRANSACTIONS_TOPIC:
        # Nobody writes there in a transaction.
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    (appended,) = replica.append((end,), now_ms=broker.clock.now_ms())
    if isinstance(appended, RequestError):
        raise RequestError(appended.code, appended.sentence)
    await until_committed(Offset(appended.last_offset + 1), replica)
    require_standing(broker, replica)


async def _write_for_groups(broker: Broker, end: EndMarker, index: int) -> ErrorCode:
    ledger = broker.groups.ledgers.get(index)
    if ledger is None:
        # Says why, in the words of a log.
        led_here(broker, OFFSETS_TOPIC, index)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ledger.require()
    future: asyncio.Future[ErrorCode | None] = asyncio.get_running_loop().create_future()
    end_transaction(ledger, end, into(future))
    return await future or ErrorCode.NONE
