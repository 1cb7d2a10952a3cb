"""The cluster behind a bootstrap list, as a command sees it: whom to ask for what.

Changes go to any broker first, because Kafka without ZooKeeper and our own nodes pass them on;
one that does not says so, and then the controller is asked. The options of a broker are asked of
that broker.

Not here: trying again. A command tells what happened, and its user decides.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from ottla.clients.cli.output import told_refusal, with_topic_hint
from ottla.clients.connection import Connection, error_code_of
from ottla.clients.errors import UnreachableError
from ottla.proto.errors import ErrorCode, OttlaError, RemoteProtocolError, RequestError
from ottla.proto.kafka.apis import METADATA, ApiRow
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name

CONNECT_TIMEOUT_S: Final = 5.0
# What a broker is given to carry out a change; our own wait is a little longer.
CHANGE_TIMEOUT_MS: Final = 25_000
_ADVICE: Final = (
    "Is a node running there? `ottla node` starts one, and --bootstrap-server HOST:PORT names "
    "another."
)
_ADVICE_FOR_SEVERAL: Final = "`ottla cluster start` or `ottla node` starts one."
# What a connection that could not be made says of it.
_UNREACHABLE: Final = re.compile(r"(?P<address>\S+) cannot be reached: (?P<why>.+)\.")
# A topic that is made because somebody writes to it is there a moment later.
_APPEARS_TRIES: Final = 10
_APPEARS_WAIT_S: Final = 0.1
_NOT_YET: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


class NobodyThereError(UnreachableError):
    """No address of the bootstrap list can be reached."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(told_unreachable(reasons))
        self.reasons: Final = tuple(reasons)


class NoTopicError(OttlaError):
    """A topic is not there, or not now."""

    def __init__(self, name: str, code: ErrorCode, sentence: str = "") -> None:
        refusal = with_topic_hint(RequestError(code, sentence), None if sentence else name)
        super().__init__(told_refusal(f"topic {shown_name(name)}", refusal))
        self.code: Final = code


class NoBrokerError(OttlaError):
    """No broker of the cluster has this id."""


class Cluster:
    """Connections to the brokers that a command has had to ask."""

    def __init__(self, first: Connection) -> None:
        self._first: Final = first
        self._others: Final = dict[int, Connection]()

    async def ask(self, row: ApiRow, fields: Mapping[str, Any]) -> Message:
        """Ask any broker."""
        return await self._first.call(row, fields)

    async def ask_broker(self, broker_id: int, row: ApiRow, fields: Mapping[str, Any]) -> Message:
        """Ask this broker and no other, or raise `NoBrokerError`."""
        return await (await self._connection_to(broker_id)).call(row, fields)

    async def change(self, row: ApiRow, fields: Mapping[str, Any], results: str) -> list[Message]:
        """Ask for a change; return the outcome of each of its parts."""
        answer: list[Message] = (await self._first.call(row, fields)).get(results, [])
        if any(one.error_code == ErrorCode.NOT_CONTROLLER for one in answer):
            controller = (await self.metadata([])).controller_id
            answer = (await self.ask_broker(controller, row, fields)).get(results, [])
        return answer

    async def metadata(self, topics: Sequence[str] | None, *, create: bool = False) -> Message:
        """Return the brokers, and these topics, or all of them if None is given."""
        named = [{"name": name, "topic_id": ZERO_UUID} for name in topics or ()]
        fields = {
            "topics": None if topics is None else named,
            "allow_auto_topic_creation": create,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        return await self._first.call(METADATA, fields)

    async def topic(self, name: str, *, create: bool = False) -> Message:
        """Return a topic's metadata, or raise `NoTopicError`.

        With `create`, a cluster that makes topics when they are needed is given time to do so.
        """
        answer = await self.metadata([name], create=create)
        found = only(answer.topics)
        for _ in range(_APPEARS_TRIES if create else 0):
            if found.error_code not in _NOT_YET:
                break
            await asyncio.sleep(_APPEARS_WAIT_S)
            answer = await self.metadata([name], create=create)
            found = only(answer.topics)
        if found.error_code != ErrorCode.NONE:
            raise NoTopicError(name, error_code_of(found.error_code))
        return found

    async def close(self) -> None:
        for connection in (self._first, *self._others.values()):
            await connection.close()

    async def _connection_to(self, broker_id: int) -> Connection:
        if broker_id in self._others:
            return self._others[broker_id]
        brokers = (await self.metadata([])).brokers
        found = next((one for one in brokers if one.node_id == broker_id), None)
        if found is None:
            told = ", ".join(str(one.node_id) for one in brokers)
            raise NoBrokerError(f"the cluster has no broker {broker_id}; it has {told}.")
        connection = await Connection.open(
            found.host, found.port, connect_timeout_s=CONNECT_TIMEOUT_S
        )
        self._others[broker_id] = connection
        return connection


def only(results: Sequence[Message]) -> Message:
    """Return the outcome of the one thing that was asked for."""
    if len(results) != 1:
        raise RemoteProtocolError(f"the broker answered one question with {len(results)} results")
    return results[0]


@asynccontextmanager
async def open_cluster(bootstrap: Sequence[Address]) -> AsyncIterator[Cluster]:
    """Yield the cluster as the first address that answers knows it."""
    cluster = Cluster(await _open_first(bootstrap))
    try:
        yield cluster
    finally:
        await cluster.close()


async def require_somebody(bootstrap: Sequence[Address]) -> None:
    """Raise `NobodyThereError` at once; our clients would try until their time is over."""
    await (await _open_first(bootstrap)).close()


async def require_topic(bootstrap: Sequence[Address], topic: str) -> None:
    """Raise `NobodyThereError` or `NoTopicError` at once, as `require_somebody` does."""
    async with open_cluster(bootstrap) as cluster:
        await cluster.topic(topic)


async def _open_first(bootstrap: Sequence[Address]) -> Connection:
    reasons = list[str]()
    for address in bootstrap:
        try:
            return await Connection.open(
                address.host, address.port, connect_timeout_s=CONNECT_TIMEOUT_S
            )
        except UnreachableError as error:
            reasons.append(str(error))
    raise NobodyThereError(reasons)


def told_unreachable(reasons: Sequence[str]) -> str:
    """Return why nobody answers; several addresses with the same reason are one sentence."""
    found = [_UNREACHABLE.fullmatch(one) for one in reasons]
    pairs = [(one["address"], one["why"]) for one in found if one is not None]
    if len(pairs) < max(2, len(reasons)) or len({why for _, why in pairs}) > 1:
        return " ".join([*reasons, _ADVICE])
    addresses = ", ".join(address for address, _ in pairs)
    return f"None of {addresses} can be reached ({pairs[0][1]}). {_ADVICE_FOR_SEVERAL}"
