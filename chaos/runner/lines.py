"""Connections to nodes by their ids, opened when they are needed; nothing is sent twice.

Not here: whom to ask (`book.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from ottla.chaos.history import Place
from ottla.chaos.runner.requests import Seen, leaders_in, metadata_fields
from ottla.clients.connection import Connection
from ottla.clients.errors import NotSentError
from ottla.proto.errors import OttlaError, RequestError
from ottla.proto.kafka.apis import METADATA
from ottla.proto.kafka.message import Message

CONNECT_S: Final = 1.0


class Lines:
    """What one client has open; for one event loop."""

    def __init__(self, addresses: Mapping[int, str], name: str) -> None:
        self.addresses: Final = dict(addresses)
        self._name: Final = name
        self._open: Final = dict[int, Connection]()
        self._ending: Final = set[asyncio.Future[None]]()

    async def to(self, node: int) -> Connection:
        """Return a connection that is open as far as we know, or raise that nothing was sent."""
        known = self._open.get(node)
        if known is None or known.is_closed:
            self.cut(node)
            host, _, port = self.addresses[node].rpartition(":")
            try:
                known = await Connection.open(
                    host,
                    int(port),
                    client_id=self._name,
                    connect_timeout_s=CONNECT_S,
                    request_timeout_s=CONNECT_S,
                )
            except RequestError as error:
                # It refused to say what it speaks: nobody got as far as a question of ours.
                raise NotSentError(f"node {node}: {error}") from error
            self._open[node] = known
        return known

    def cut(self, node: int) -> None:
        """End a connection; whoever waits for an answer on it never learns what became of it."""
        known = self._open.pop(node, None)
        if known is not None:
            known.abort()
            # Somebody has to hold it until its reader has ended.
            ending = asyncio.ensure_future(known.close())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        for node in list(self._open):
            self.cut(node)
        await asyncio.gather(*self._ending)

    async def metadata(
        self, node: int, topics: Collection[str], timeout_s: float = CONNECT_S
    ) -> Message | None:
        """Return what one node tells; None if it does not answer."""
        try:
            async with asyncio.timeout(timeout_s):
                line = await self.to(node)
                return await line.call(METADATA, metadata_fields(topics))
        except (TimeoutError, OttlaError):
            self.cut(node)
            return None

    async def leaders(
        self, node: int, topics: Collection[str], timeout_s: float = CONNECT_S
    ) -> Mapping[Place, Seen] | None:
        answer = await self.metadata(node, topics, timeout_s)
        return None if answer is None else leaders_in(answer)
