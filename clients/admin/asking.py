"""Asking a cluster with patience: what only looks again and again, a change at most once.

Not here: what is asked (`client.py`, `groups.py`, `offsets.py`, `transactions.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from ottla.clients import options as rows
from ottla.clients.clock import now_ms
from ottla.clients.cluster import GROUP_KEY_TYPE, ClusterClient
from ottla.clients.connection import error_code_of
from ottla.clients.errors import (
    BrokenAnswerError,
    NoCommonVersionError,
    NoTopicError,
    NotSentError,
)
from ottla.clients.retrying import STALE_COORDINATOR, Backoff, is_retriable, is_transient
from ottla.proto.errors import ErrorCode, OttlaError, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import ApiRow
from ottla.proto.kafka.message import Message

# None if it was done.
Outcome = RequestError | None
_LOADING: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *STALE_COORDINATOR})


class Asker:
    """One cluster, and how long each call may take."""

    def __init__(self, cluster: ClusterClient, timeout_s: float) -> None:
        self.cluster: Final = cluster
        self._timeout_s: Final = timeout_s
        value_of = cluster.options.value_of
        self.request_timeout_ms: Final = value_of(rows.REQUEST_TIMEOUT_MS)
        self._waits: Final = (value_of(rows.RETRY_BACKOFF_MS), value_of(rows.RETRY_BACKOFF_MAX_MS))

    async def look(
        self, row: ApiRow, fields: Mapping[str, Any], *, node_id: int | None = None
    ) -> Message:
        """Ask for what changes nothing, until somebody answers or the time is over."""

        async def once() -> Message:
            if node_id is None:
                return await self.cluster.ask(row, fields)
            return await self.cluster.call(node_id, row, fields)

        answer: Message = await self.patiently(once, is_transient)
        return answer

    async def change(self, row: ApiRow, fields: Mapping[str, Any], results: str) -> Message:
        """Ask for a change; again only if it was surely not done."""
        with_time = {**fields, "timeout": self.request_timeout_ms}
        target: int | None = None

        async def once() -> Message:
            nonlocal target
            node_id = self.cluster.any_broker() if target is None else target
            answer = await self.cluster.call(node_id, row, with_time)
            if any(o.error_code == ErrorCode.NOT_CONTROLLER for o in answer.get(results, ())):
                await self.cluster.refresh()
                target = self.cluster.metadata.controller_id
                raise _RefusedError(ErrorCode.NOT_CONTROLLER, answer)
            return answer

        done: Message = await self.patiently(once, lambda error: isinstance(error, NotSentError))
        return done

    async def coordinator(self, name: str, key_type: int = GROUP_KEY_TYPE) -> int:
        """Return who coordinates a group, or a transactional id, asked until somebody does."""

        async def once() -> int:
            try:
                return await self.cluster.find_coordinator(name, key_type)
            except RequestError as error:
                if error.code in _LOADING:
                    raise _RefusedError(error.code, None) from None
                raise

        node_id: int = await self.patiently(once, is_transient)
        return node_id

    async def leader(self, partition: TopicPartition) -> int:
        """Return who leads a partition; in `patiently`, it is asked for until somebody does."""
        topic = await self.cluster.topic(partition.topic, self.request_timeout_ms / 1000)
        if not 0 <= partition.partition < len(topic.partitions):
            raise NoTopicError(f"{partition}: it has {len(topic.partitions)} partitions.")
        found = self.cluster.metadata.leader_of(partition.topic, partition.partition)
        if found is None:
            self.cluster.refresh_soon()
            raise _RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, None)
        return found.leader

    async def patiently(
        self, once: Callable[[], Awaitable[Any]], may_repeat: Callable[[OttlaError], bool]
    ) -> Any:
        """Return what `once` returns; try it again after errors that allow it, until the deadline.

        `_RefusedError` always allows it; when the time is over its answer is the answer.
        """
        end_ms = now_ms() + self._timeout_s * 1000
        backoff = Backoff(*self._waits)
        await self.cluster.start(self._timeout_s)
        while True:
            try:
                return await once()
            except OttlaError as error:
                wait_ms = backoff.failed()
                refused = isinstance(error, _RefusedError)
                if isinstance(error, NoCommonVersionError) or not (refused or may_repeat(error)):
                    raise
                if now_ms() + wait_ms > end_ms:
                    if isinstance(error, _RefusedError) and error.answer is not None:
                        return error.answer
                    raise
                self.cluster.refresh_soon()
                await asyncio.sleep(wait_ms / 1000)


class _RefusedError(RequestError):
    """A refusal that another broker, or a later moment, may take back."""

    def __init__(self, code: ErrorCode, answer: Message | None) -> None:
        super().__init__(code)
        self.answer: Final = answer


def refusal_of(told: Message) -> Outcome:
    """Return why it was not done, or None if it was."""
    code = error_code_of(told.error_code)
    if code is ErrorCode.NONE:
        return None
    return RequestError(code, told.get("error_message") or "")


def retry_on(code: int) -> None:
    """Raise what makes `patiently` try again, if this code says that it may help."""
    known = error_code_of(code)
    if known is not ErrorCode.NONE and (is_retriable(known) or known in _LOADING):
        raise _RefusedError(known, None)


def retry_elsewhere(code: int) -> None:
    """The same for a change: only if this code says that surely nothing was changed."""
    known = error_code_of(code)
    if known in _LOADING:
        raise _RefusedError(known, None)


def only(results: Sequence[Message]) -> Message:
    """Return the outcome of the one thing that was asked for."""
    if len(results) != 1:
        raise BrokenAnswerError(f"a broker answered one question with {len(results)} results.")
    return results[0]
