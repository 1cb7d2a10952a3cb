"""The coordinator of one group: found, asked, and found again when it moves. Commits go there.

O1  one connection, of its own: a JoinGroup waits for other members, and nothing else may wait for
    it. Heartbeats and commits have another
O2  every request of a group goes to the node that was last found; what says that it is not the
    coordinator any more makes the next request find it again
O3  a commit that is retried is the same commit: it has the same offsets. One that was overtaken by
    a later one is not retried

Not here: what the member does with a refusal (`group.py`, `membership.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.clients import options as rows
from ottla.clients.cluster import ClusterClient
from ottla.clients.connection import Connection, error_code_of
from ottla.clients.consumer.errors import CommitError, GroupError
from ottla.clients.consumer.membership import Reaction, reaction_to
from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.clients.consumer.requests import (
    COMMIT_VERSION_MAX,
    OFFSET_FETCH_VERSION_MAX,
    commit_errors,
    commit_fields,
    committed_of,
    offset_fetch_fields,
)
from ottla.clients.errors import NotSentError
from ottla.clients.retrying import Backoff, is_transient
from ottla.proto.errors import ErrorCode, OttlaError, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import JOIN_GROUP, OFFSET_COMMIT, OFFSET_FETCH, SYNC_GROUP, ApiRow
from ottla.proto.kafka.message import Message

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_PATIENT: Final = frozenset({JOIN_GROUP, SYNC_GROUP})
_VERSION_MAX: Final = {OFFSET_COMMIT: COMMIT_VERSION_MAX, OFFSET_FETCH: OFFSET_FETCH_VERSION_MAX}


class Coordinator:
    """Who coordinates our group, as far as we know; closed once."""

    def __init__(self, cluster: ClusterClient, group_id: str) -> None:
        self._cluster: Final = cluster
        self.group_id: Final = group_id
        self._node_id: int | None = None
        # One for what waits for other members, one for the rest (O1).
        self._connections: Final = dict[bool, Connection]()
        # Whoever asks while a connection is being made waits for the same one.
        self._opening: Final = {True: asyncio.Lock(), False: asyncio.Lock()}
        self._finding: Final = asyncio.Lock()
        value_of = cluster.options.value_of
        self._first_ms: Final = value_of(rows.RETRY_BACKOFF_MS)
        self._longest_ms: Final = value_of(rows.RETRY_BACKOFF_MAX_MS)

    def backoff(self) -> Backoff:
        return Backoff(self._first_ms, self._longest_ms)

    def lost(self) -> None:
        """Say that the node we know does not coordinate the group (any more)."""
        self._node_id = None

    async def find(self) -> int:
        """Return the coordinator, asked for until there is one; other refusals are raised."""
        async with self._finding:
            backoff = self.backoff()
            while self._node_id is None:
                try:
                    self._node_id = await self._cluster.find_coordinator(self.group_id)
                except RequestError as error:
                    if reaction_to(error.code) not in (Reaction.RETRY, Reaction.FIND):
                        raise GroupError(error.code, f"group {self.group_id}: {error}") from error
                except OttlaError as error:
                    if not is_transient(error):
                        raise
                if self._node_id is None:
                    self._cluster.refresh_soon()
                    await asyncio.sleep(backoff.failed() / 1000)
            return self._node_id

    async def ask(
        self, row: ApiRow, fields: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Message:
        """Ask the coordinator once. A broken connection makes it unknown (O2)."""
        node_id = await self.find()
        try:
            connection = await self._connection(node_id, patient=row in _PATIENT)
            version = min(connection.version_of(row), _VERSION_MAX.get(row, row.high))
            answer = await connection.call(row, fields, version, timeout_s=timeout_s)
        except OttlaError as error:
            if is_transient(error):
                self.lost()
                self._cluster.refresh_soon()
            raise
        self._cluster.metrics.count("group.requests")
        return answer

    async def _connection(self, node_id: int, *, patient: bool) -> Connection:
        broker = self._cluster.metadata.broker(node_id)
        if broker is None:
            raise NotSentError(f"the coordinator, broker {node_id}, is not in the cluster.")
        async with self._opening[patient]:
            found = self._connections.get(patient)
            if found is not None and not found.is_closed and found.address == broker.address:
                return found
            if found is not None:
                found.abort()
            opened = await self._cluster.peers.open(broker.address)
            self._connections[patient] = opened
            return opened

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()

    # --- offsets ------------------------------------------------------------------------------

    async def commit_once(self, identity: Mapping[str, Any], offsets: Offsets) -> ErrorCode:
        """Return the worst code of one OffsetCommit; NETWORK_EXCEPTION if nobody knows."""
        try:
            answer = await self.ask(OFFSET_COMMIT, commit_fields(identity, offsets))
        except OttlaError as error:
            if not is_transient(error):
                raise
            return ErrorCode.NETWORK_EXCEPTION
        codes = {error_code_of(number) for number in commit_errors(answer).values()}
        for code in sorted(codes, key=lambda code: _SEVERITY[reaction_to(code)], reverse=True):
            if reaction_to(code) is Reaction.FIND:
                self.lost()
            return code
        return ErrorCode.NONE

    async def commit(self, identity: Mapping[str, Any], offsets: Offsets, timeout_s: float) -> None:
        """Commit, trying again what can be tried again; or raise `CommitError`."""
        backoff = self.backoff()
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    code = await self.commit_once(identity, offsets)
                    if code is ErrorCode.NONE:
                        return
                    if reaction_to(code) not in (Reaction.RETRY, Reaction.FIND):
                        raise commit_error(code)
                    await asyncio.sleep(backoff.failed() / 1000)
        except TimeoutError:
            raise CommitError(
                f"The offsets were not committed within {timeout_s:g} s; the last thing heard was "
                f"{code.name}. They may be committed all the same.",
                code,
            ) from None

    async def committed(
        self, partitions: Iterable[TopicPartition] | None, timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed; None asks for all of it."""
        fields = offset_fetch_fields(self.group_id, partitions)
        backoff = self.backoff()
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        code, offsets = committed_of(await self.ask(OFFSET_FETCH, fields))
                    except OttlaError as error:
                        if not is_transient(error):
                            raise
                        code, offsets = ErrorCode.NETWORK_EXCEPTION, {}
                    if code is ErrorCode.NONE:
                        return offsets
                    reaction = reaction_to(code)
                    if reaction not in (Reaction.RETRY, Reaction.FIND):
                        raise GroupError(code, f"group {self.group_id}: {code.sentence}")
                    if reaction is Reaction.FIND:
                        self.lost()
                    await asyncio.sleep(backoff.failed() / 1000)
        except TimeoutError:
            raise GroupError(
                code,
                f"group {self.group_id}: its offsets could not be read within {timeout_s:g} s "
                f"({code.name}).",
            ) from None


_SEVERITY: Final = {
    Reaction.GO_ON: 0,
    Reaction.RETRY: 1,
    Reaction.FIND: 2,
    Reaction.REJOIN: 3,
    Reaction.TAKE_ID: 4,
    Reaction.RESET: 5,
    Reaction.FATAL: 6,
}


def commit_error(code: ErrorCode) -> CommitError:
    """Return what a program should know about a refused commit."""
    match reaction_to(code):
        case Reaction.RESET | Reaction.REJOIN:
            return CommitError(
                f"The offsets were not committed, because the group went on without this member "
                f"({code.name}). Its partitions may have gone to others: poll, and expect records "
                "again. If work between two polls takes long, raise max.poll.interval.ms or lower "
                "max.poll.records.",
                code,
            )
        case _:
            return CommitError(
                f"The offsets were not committed: {code.sentence} ({code.name})", code
            )
