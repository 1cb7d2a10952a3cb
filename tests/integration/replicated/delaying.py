"""A cable between nodes that is as long as one likes: passes bytes on, each after a delay.

It stands in front of a node's port. Bytes keep their order and their spacing: a delay, not a
limit of throughput. Not here: loss, cuts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from tests.integration.replicated.background import Background

_READ_BYTES: Final = 1 << 18
_HOST: Final = "127.0.0.1"


class DelayingCables(Background):
    """Listens at ports, and passes on to other ports of this machine."""

    def __init__(self, ports: Mapping[int, int], delay_s: float) -> None:
        super().__init__()
        self._ports: Final = dict(ports)
        self._delay_s: Final = delay_s
        self._tasks: Final = set[asyncio.Task[None]]()
        self.connections = 0

    async def _live(self) -> None:
        servers = [
            await asyncio.start_server(self._greet(target), _HOST, port)
            for port, target in self._ports.items()
        ]
        await self._ended()
        for server in servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _greet(
        self, target: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                far_reader, far_writer = await asyncio.open_connection(_HOST, target)
            except OSError:
                writer.transport.abort()
                return
            for source, sink in ((reader, far_writer), (far_reader, writer)):
                task = asyncio.create_task(self._carry(source, sink))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        return serve

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        # What is on the cable, and when it arrives; b"" is the end.
        under_way = deque[tuple[float, bytes]]()
        news = asyncio.Event()

        async def arrive() -> None:
            while True:
                while not under_way:
                    news.clear()
                    await news.wait()
                due_s, data = under_way.popleft()
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                if not data:
                    return
                sink.write(data)
                await sink.drain()

        arriving = asyncio.create_task(arrive())
        try:
            while not arriving.done():
                try:
                    data = await source.read(_READ_BYTES)
                except OSError:
                    data = b""
                under_way.append((loop.time() + self._delay_s, data))
                news.set()
                if not data:
                    break
            with suppress(OSError):
                await arriving
        finally:
            arriving.cancel()
            sink.close()
