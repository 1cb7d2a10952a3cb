"""Reading one partition that a coordinator keeps to its end, as it was when the reading began.

Bytes are read and taken apart on a thread; the loop only says how it goes on.

Not here: what the records say (`loading.py`), and what becomes of it (`ledger.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from ottla.node.groups.loading import Gathered, Piece, decode_piece
from ottla.node.groups.writing import Reached, is_committed
from ottla.proto.errors import CorruptionError, RequestError
from ottla.proto.ids import Offset
from ottla.replication.log.log import Log
from ottla.replication.log.slices import LogSlice
from ottla.replication.replica import Replica

# What is read and decoded at once.
PIECE_BYTES: Final = 1 << 20

T = TypeVar("T")


class OnAThread(Protocol):
    """Runs what blocks, or takes long, on a thread."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


async def read_until(
    end: Offset, log: Log, on_a_thread: OnAThread, goes_on: Callable[[], bool]
) -> Gathered:
    """Return what the log says below `end`, or less if it is not to go on.

    Raises `StorageError`, `CorruptionError`, `RequestError`.
    """
    at, gathered = log.start_offset, Gathered()
    while at < end and goes_on():
        at = Offset(max(at, log.start_offset))
        found = log.read(at, bytes_max=PIECE_BYTES, before=end)
        if found is None:
            break
        try:
            piece = await on_a_thread(partial(_read, found, at))
        except OSError as error:
            raise log.fail_reading("read", error) from error
        if piece.next_offset <= at:
            raise CorruptionError(f"Nothing can be read at offset {at}.")
        gathered.take(piece)
        at = Offset(piece.next_offset)
    return gathered


def _read(found: LogSlice, first: Offset) -> Piece:
    return decode_piece(found.read(), first)


async def until_committed(end: Offset, replica: Replica) -> None:
    """Wait until nothing below `end` can be lost any more, or raise why it may be.

    Raises `StorageError`, `RequestError`.
    """
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    outcome = replica.when_committed(end, Reached(future))
    if outcome is None:
        await future
    elif not is_committed(outcome):
        raise RequestError(outcome)
