"""One write to `__consumer_offsets`, from the log to being committed.

W1  `apply` is called if and only if the write is committed, in the order of the log
W2  `told` is called exactly once: with None if it is committed, else with why nobody can say so

A write whose time is up, or that the disk could not sync at once, may be committed yet: then it is
applied, although nobody was told.

Not here: what is written (`ledger.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.proto.errors import ErrorCode, RequestError, StorageError

# offsets.commit.timeout.ms, as Kafka has it.
WRITE_MS: Final = 5_000

# What the log says, in words that members know; as in Kafka.
_TOLD: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def as_group_error(code: ErrorCode) -> ErrorCode:
    """Return what a member is told when the log has said `code`."""
    return _TOLD.get(code, code)


def code_of(error: RequestError | StorageError) -> ErrorCode:
    return error.code if isinstance(error, RequestError) else ErrorCode.KAFKA_STORAGE_ERROR


def is_committed(code: ErrorCode) -> bool:
    """Whether what the log says this of is committed."""
    # The second one: committed, and then too few stayed in sync.
    return code in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class Write:
    """A write that waits to be committed. The replica tells it, once if its disk is well."""

    __slots__ = ("_again", "_apply", "_check", "_timer", "_told")

    def __init__(
        self,
        apply: Callable[[], None],
        told: Callable[[ErrorCode | None], None],
        check: Callable[[], None],
        again: Callable[[Write], None],
    ) -> None:
        """`check` raises `RequestError` if this node may not speak for the partition any more.

        `again` lets the write wait once more: what is in the log may be committed yet (W1).
        """
        self._apply: Final = apply
        self._told: Callable[[ErrorCode | None], None] | None = told
        self._check: Final = check
        self._again: Final = again
        self._timer: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        """Let it not wait for ever."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(
            WRITE_MS / 1000, self.tell, ErrorCode.COORDINATOR_NOT_AVAILABLE
        )

    def reached(self) -> None:
        self._apply()
        try:
            self._check()
        except RequestError as refusal:
            self.tell(as_group_error(refusal.code))
        else:
            self.tell(None)

    def failed(self, error: StorageError | RequestError) -> None:
        code = code_of(error)
        if is_committed(code):
            self._apply()
        if isinstance(error, StorageError):
            # First of all, so that writes wait again in the order of the log.
            self._again(self)
        self.tell(as_group_error(code))

    def tell(self, code: ErrorCode | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        told, self._told = self._told, None
        if told is not None:
            told(code)


class Reached:
    """Waits, with whoever loads a partition, until all that was read is committed."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future: Final = future

    def reached(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def failed(self, error: StorageError | RequestError) -> None:
        if is_committed(code_of(error)):
            self.reached()
        elif not self._future.done():
            self._future.set_exception(error)


def into(future: asyncio.Future[ErrorCode | None]) -> Callable[[ErrorCode | None], None]:
    """Return what passes the outcome on to somebody who may have gone away."""

    def told(code: ErrorCode | None) -> None:
        if not future.done():
            future.set_result(code)

    return told
