"""Every way between nodes, and from clients to nodes, as a small proxy that can be made ill.

    node 1 ──▶ gate 1→2 ──▶ node 2         bytes of this connection from 1 to 2 fare as 1→2 says,
    node 2 ──▶ gate 2→1 ──▶ node 1         those from 2 to 1 as 2→1 says, whoever dialled

There is a gate for each port of a node that another one dials, and all of a pair fare alike.

All gates live in one thread with a loop of its own; whoever calls may be in any other. A dead
process must look dead through its gate: where nobody listens behind it, nobody listens at it
either, so that a connection is refused and not merely closed. Unless the way is cut: then there is
silence, and nothing else.

Not here: what happens to bytes (`pipes.py`), who is cut off when (`nemesis/`).

K1  a gate listens exactly while the port behind it does, or while its way is cut in either
    direction
K2  the two directions between two nodes are independent of each other
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from itertools import chain
from random import Random
from typing import Any, Final, TypeVar

from ottla.chaos.backends.pipes import Direction, Pipe
from ottla.chaos.backends.reserved import HOST, take_port
from ottla.chaos.ports import HarnessError, LinkFault

# Where gates listen that are reached from other machines, or from other containers.
EVERYWHERE: Final = "0.0.0.0"
# Stands for all clients, where a node is asked for.
CLIENTS: Final = -1
_CALL_DEADLINE_S: Final = 10.0
_LISTEN_POLL_S: Final = 0.02
_BACKLOG: Final = 1024
# On loopback a knock is answered at once, by the kernel; between containers of a machine nearly so.
_KNOCK_S: Final = 0.2

_T = TypeVar("_T")


def is_listening(port: int, host: str = HOST) -> bool:
    """Return whether somebody listens at a port, by knocking and going away again."""
    with socket.socket() as knocking, suppress(socket.gaierror):
        knocking.settimeout(_KNOCK_S)
        return knocking.connect_ex((host, port)) == 0
    # Nobody has that name now.
    return False


class _End(asyncio.Protocol):
    """One of the two sockets of a connection through a gate."""

    def __init__(self, out: Pipe, into: Pipe, ends: set[asyncio.Transport]) -> None:
        self._out: Final = out
        self._into: Final = into
        self._ends: Final = ends
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ends.add(transport)
        self._out.attach_source(transport)
        self._into.attach_sink(transport)

    def data_received(self, data: bytes) -> None:
        self._out.take(data)

    def pause_writing(self) -> None:
        self._into.sink_is_full(True)

    def resume_writing(self) -> None:
        self._into.sink_is_full(False)

    def connection_lost(self, _: Exception | None) -> None:
        if self._transport is not None:
            self._ends.discard(self._transport)
        self._into.end()
        self._out.take_end()


class _Gate:
    """Where one node is reached by another, or by clients."""

    def __init__(
        self, taken: socket.socket, target: tuple[str, int], there: Direction, back: Direction
    ) -> None:
        self.port: Final[int] = taken.getsockname()[1]
        # A host, maybe by name, and a port.
        self.target: Final = target
        self._there: Final = there
        self._back: Final = back
        self._socket: Final = taken
        self._socket.setblocking(False)
        self._loop: Final = asyncio.get_running_loop()
        self._is_listening = False
        self.is_target_up = False
        self._ends: Final = set[asyncio.Transport]()
        self._tasks: Final = set[asyncio.Task[None]]()

    def find_target(self) -> None:
        """Be open to others: the target listens."""
        if not self.is_target_up:
            self.is_target_up = True
            self.settle()

    def lose_target(self) -> None:
        self.is_target_up = False
        self.settle()

    def settle(self) -> None:
        """Listen or not, and end what must end, as the faults say now."""
        faults = (self._there.fault, self._back.fault)
        wants = self.is_target_up or any(one.is_cut for one in faults)
        if wants and not self._is_listening:
            self._socket.listen(_BACKLOG)
            self._loop.add_reader(self._socket, self._greet)
        elif self._is_listening and not wants:
            self._loop.remove_reader(self._socket)
            # The port stays ours, and whoever dials is refused.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._is_listening = wants
        if any(one.is_reset for one in faults):
            self._reset()

    def _reset(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        for transport in tuple(self._ends):
            transport.abort()

    def _greet(self) -> None:
        with suppress(OSError):
            near, _ = self._socket.accept()
            if self._there.fault.is_reset or self._back.fault.is_reset:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                near.close()
                return
            task = self._loop.create_task(self._connect(near))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, near: socket.socket) -> None:
        there, back = Pipe(self._there), Pipe(self._back)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: _End(there, back, self._ends), near
            )
        except BaseException:
            near.close()
            raise
        try:
            await self._there.passable()
            await self._dial(back, there)
        except OSError:
            # A refusal has to travel too.
            await self._back.passable()
            transport.abort()

    async def _dial(self, back: Pipe, there: Pipe) -> None:
        far = _End(back, there, self._ends)
        # A name is looked up each time: a container that starts anew may have another address.
        await self._loop.create_connection(lambda: far, *self.target)

    def close(self) -> None:
        self._reset()
        if self._is_listening:
            self._loop.remove_reader(self._socket)
        self._socket.close()


class Links:
    """All gates, in a thread; opened once, closed once."""

    def __init__(self, seed: int, host: str = HOST) -> None:
        self._host: Final = host
        self._dice: Final = Random(seed)
        self._loop: Final = asyncio.new_event_loop()
        # By the pair: one for each port that is dialled.
        self._gates: Final = dict[tuple[int, int], list[_Gate]]()
        self._directions: Final = dict[tuple[int, int], Direction]()
        # Nodes whose processes run, by the descriptor that tells of their end.
        self._watched: Final = dict[int, int]()
        self._looking: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._thread: Final = threading.Thread(target=self._run, name="links", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    # -- for any thread --------------------------------------------------------------------------

    def add(self, source: int, target: int, target_port: int, target_host: str = HOST) -> int:
        """Open a way to a port of a node, for one other node or for `CLIENTS`; return its port.

        Ways to several ports of a node, for the same one, fare alike.
        """

        async def work() -> int:
            directions = self._direction(source, target), self._direction(target, source)
            gate = _Gate(take_port(self._host), (target_host, target_port), *directions)
            self._gates.setdefault((source, target), []).append(gate)
            return gate.port

        return self._call(work())

    def set(self, source: int, target: int, fault: LinkFault) -> None:
        """From now on, bytes from one to the other fare so."""

        async def work() -> None:
            self._direction(source, target).set(fault)
            for pair in ((source, target), (target, source)):
                for gate in self._gates.get(pair, ()):
                    gate.settle()

        self._call(work())

    def passed_bytes(self, source: int, target: int) -> int:
        """Return how many bytes went from one to the other so far."""

        async def work() -> int:
            return self._direction(source, target).passed_bytes

        return self._call(work())

    def met_pieces(self, source: int, target: int) -> int:
        """Return how many pieces came from one for the other since it fares as it does."""

        async def work() -> int:
            return self._direction(source, target).met_pieces

        return self._call(work())

    def watch(self, node: int, pid: int) -> None:
        """Let the gates of a node open when its process listens, and shut when it ends."""

        async def work() -> None:
            self._forget(node)
            descriptor = os.pidfd_open(pid)
            self._watched[node] = descriptor
            self._loop.add_reader(descriptor, self._forget, node)
            if self._looking is None or self._looking.done():
                self._looking = self._loop.create_task(self._look())
                self._looking.add_done_callback(self._note)

        self._call(work())

    def close(self) -> None:
        async def work() -> None:
            for node in tuple(self._watched):
                self._forget(node)
            for gate in chain.from_iterable(self._gates.values()):
                gate.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        if self._loop.is_closed():
            return
        self._failure = None
        self._call(work())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_DEADLINE_S)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._failure is not None:
            work.close()
            raise HarnessError(f"the links failed: {self._failure!r}")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_DEADLINE_S)

    # -- in the loop -----------------------------------------------------------------------------

    def _note(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._failure = task.exception()

    def _direction(self, source: int, target: int) -> Direction:
        found = self._directions.get((source, target))
        if found is None:
            found = Direction(Random(self._dice.randrange(1 << 32)))
            self._directions[source, target] = found
        return found

    def _towards(self, node: int) -> list[_Gate]:
        towards = (gates for (_, target), gates in self._gates.items() if target == node)
        return list(chain.from_iterable(towards))

    def _forget(self, node: int) -> None:
        descriptor = self._watched.pop(node, None)
        if descriptor is not None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
            for gate in self._towards(node):
                gate.lose_target()

    async def _look(self) -> None:
        """See which targets have begun to listen, until all that run do."""
        while waiting := self._waiting():
            for target in waiting:
                if await _answers(*target):
                    # Asked again: those who ended meanwhile do not wait any more.
                    for gate in self._waiting().get(target, ()):
                        gate.find_target()
            await asyncio.sleep(_LISTEN_POLL_S)

    def _waiting(self) -> Mapping[tuple[str, int], list[_Gate]]:
        """Return the gates that are shut to nodes that run, by where those will listen."""
        found = dict[tuple[str, int], list[_Gate]]()
        for node in self._watched:
            for gate in self._towards(node):
                if not gate.is_target_up:
                    found.setdefault(gate.target, []).append(gate)
        return found


async def _answers(host: str, port: int) -> bool:
    if host == HOST:
        return is_listening(port)
    # To look up a name may take its time, and bytes must not wait for that.
    return await asyncio.to_thread(is_listening, port, host)
