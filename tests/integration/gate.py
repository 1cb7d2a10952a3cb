"""A gate before a broker: the answers to one kind of request are dropped, or come late.

The broker must advertise the gate's address, or clients go round it.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import Final

from ottla.proto.kafka.apis import ApiRow


class Gate:
    """Stands before a broker on loopback. Listens once, is closed once."""

    def __init__(self, broker_port: int, api: ApiRow) -> None:
        self._broker_port: Final = broker_port
        self._api: Final = api
        # How many answers are still to be dropped (it hangs up instead), and how many were.
        self.to_drop = 0
        self.dropped = 0
        # How long an answer is held before it goes on, and how many were.
        self.late_s = 0.0
        self.held = 0
        self._server: asyncio.Server | None = None
        self._writers = set[asyncio.StreamWriter]()

    async def listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        while self._writers:
            await self._end(self._writers.pop())

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            inner, outer = await asyncio.open_connection("127.0.0.1", self._broker_port)
            self._writers.add(outer)
            asked = list[int]()
            back = asyncio.create_task(self._answers(inner, writer, asked))
            with suppress(asyncio.IncompleteReadError):
                while True:
                    frame = await _frame(reader)
                    asked.append(struct.unpack_from(">h", frame, 4)[0])
                    outer.write(frame)
            await self._end(outer)
            await back
        await self._end(writer)

    async def _answers(
        self, inner: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[int]
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(inner)
                if asked.pop(0) == self._api.key:
                    if self.to_drop:
                        self.to_drop -= 1
                        self.dropped += 1
                        break
                    if self.late_s:
                        await asyncio.sleep(self.late_s)
                        self.held += 1
                writer.write(frame)
        writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head))
