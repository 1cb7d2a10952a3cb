"""One connection per broker, made when it is needed and made again when it broke.

P1  at most one connection per broker, shared by all who ask; whoever asks while it is being made
    waits for the same one
P2  after a failure the next try waits, twice as long each time, up to `reconnect.backoff.max.ms`
P3  a broker that moved to another address is connected to there

Not here: whom to ask (`cluster.py`), and what became of a request (`connection.py`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.clients import options as rows
from ottla.clients.clock import now_ms
from ottla.clients.connection import Connection
from ottla.clients.errors import ClientClosedError, NotSentError
from ottla.clients.metadata import BrokerInfo
from ottla.clients.metrics import Metrics
from ottla.clients.options import ClientOptions
from ottla.clients.retrying import Backoff
from ottla.proto.errors import OttlaError
from ottla.proto.options.endpoints import Address


class _Peer:
    """What is known of the way to one broker."""

    def __init__(self, backoff: Backoff) -> None:
        self.connection: Connection | None = None
        self.opening: asyncio.Task[Connection] | None = None
        self.backoff: Final = backoff
        self.next_try_ms = 0.0


class Peers:
    """The connections of one client; closed once."""

    def __init__(self, options: ClientOptions, metrics: Metrics) -> None:
        self._options: Final = options
        self._metrics: Final = metrics
        self._peers: Final = dict[int, _Peer]()
        self._is_closed = False

    async def open(self, address: Address, *, timeout_s: float | None = None) -> Connection:
        """Return a new connection that nobody shares."""
        allowed_s = self._options.value_of(rows.CONNECT_TIMEOUT_MS) / 1000
        connection = await Connection.open(
            address.host,
            address.port,
            client_id=self._options.value_of(rows.CLIENT_ID),
            connect_timeout_s=allowed_s if timeout_s is None else min(allowed_s, timeout_s),
            request_timeout_s=self._options.value_of(rows.REQUEST_TIMEOUT_MS) / 1000,
        )
        self._metrics.count("connections.made")
        return connection

    def adopt(self, broker: BrokerInfo, connection: Connection) -> bool:
        """Take a connection that was made to a bootstrap address, if it is this broker's."""
        peer = self._peer(broker.node_id)
        if self._usable(peer, broker) is not None or connection.address != broker.address:
            return False
        peer.connection = connection
        return True

    def existing(self, broker: BrokerInfo) -> Connection | None:
        """Return the connection if there is one that works, as far as is known."""
        peer = self._peers.get(broker.node_id)
        return None if peer is None else self._usable(peer, broker)

    def outstanding(self, broker: BrokerInfo) -> int | None:
        """Return how many requests wait there for answers; None if it is not connected."""
        found = self.existing(broker)
        return None if found is None else found.outstanding

    async def to(self, broker: BrokerInfo) -> Connection:
        """Return the connection to this broker, or raise `NotSentError`."""
        if self._is_closed:
            raise ClientClosedError("the client is closed.")
        peer = self._peer(broker.node_id)
        found = self._usable(peer, broker)
        if found is not None:
            return found
        if peer.opening is None or peer.opening.done():
            peer.opening = asyncio.create_task(self._open(peer, broker))
            # Whoever waits is told by `shield`; if nobody does any more, nobody needs to know.
            peer.opening.add_done_callback(_look)
        return await asyncio.shield(peer.opening)

    async def close(self) -> None:
        self._is_closed = True
        for peer in self._peers.values():
            if peer.opening is not None and not peer.opening.done():
                peer.opening.cancel()
                await asyncio.wait([peer.opening])
            if peer.connection is not None:
                await peer.connection.close()

    def _peer(self, node_id: int) -> _Peer:
        peer = self._peers.get(node_id)
        if peer is None:
            value_of = self._options.value_of
            backoff = Backoff(
                value_of(rows.RECONNECT_BACKOFF_MS), value_of(rows.RECONNECT_BACKOFF_MAX_MS)
            )
            peer = self._peers[node_id] = _Peer(backoff)
        return peer

    def _usable(self, peer: _Peer, broker: BrokerInfo) -> Connection | None:
        found = peer.connection
        if found is None:
            return None
        if found.is_closed or found.address != broker.address:
            peer.connection = None
            found.abort()
            return None
        return found

    async def _open(self, peer: _Peer, broker: BrokerInfo) -> Connection:
        wait_ms = peer.next_try_ms - now_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
        try:
            connection = await self.open(broker.address)
        except OttlaError as error:
            peer.next_try_ms = now_ms() + peer.backoff.failed()
            self._metrics.count("connections.failed")
            # No request of the caller has left, whatever became of our first question.
            raise NotSentError(f"broker {broker.node_id}: {error}") from error
        peer.backoff.succeeded()
        if self._is_closed:
            connection.abort()
            raise ClientClosedError("the client is closed.")
        peer.connection = connection
        return connection


def _look(task: asyncio.Task[Connection]) -> None:
    if not task.cancelled():
        task.exception()
