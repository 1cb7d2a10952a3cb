"""The follower's end of replication streams: dials one leader, again and again, and pulls.

All that this broker fetches from one leader goes over one stream, with a connection of its own:
answers are larger than anything else that nodes say, and must not stand before a heartbeat. It asks
for that connection over gRPC, where both prove who they are, and goes with a ticket to the address
that it is told (`entrance.py`).

Not here: what is asked for and what becomes of it (`ottla.replication.pulling`), which leaders are
followed (`ottla.node.fetchers`), the other end (`replication_service.py`).

D1  one stream at a time, and one puller on it, which is told of every new one
D2  a leader that is away costs one log line, and a dial every second; one that has moved or started
    again is dialled at once
D3  what is no answer ends the stream, never the task
D4  a leader of which nothing was heard for `SILENT_S` is given up: it says every two seconds that
    it is there
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import grpc

from ottla.node.internal.cable import Buffer, Cable, CableEndedError, prepare, tell_late
from ottla.node.internal.channels import Channels
from ottla.node.internal.entrance import TICKET_BYTES, secured
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.peers import Told, end_if_cancelled, reason_of, resolve
from ottla.node.internal.replication_service import EPOCH_KEY, FOLLOWER_KEY, OPEN
from ottla.node.internal.service import CLUSTER_KEY, NODE_KEY
from ottla.node.internal.tls import name_of, why_of
from ottla.node.internal.two_way import Voice
from ottla.node.logs import logger
from ottla.node.stream_counts import StreamCount
from ottla.proto.errors import OttlaError, RemoteProtocolError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from ottla.proto.options.endpoints import Address, parse_address

_log = logger("internal.replication")

PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0
# A leader that was heard for less than this and is gone again was not lost: the stream flaps.
STEADY_S: Final = 1.0
# A leader beats twice in this time, whatever else it has to say.
SILENT_S: Final = 4.5
_CONNECT_S: Final = 3.0
# Of the addresses of a listener REPLICATION, each for its share of that time.
_WAYS_MAX: Final = 3
_LOOK_S: Final = 1.0


class PullSide(Protocol):
    """What is behind the follower's end of a stream: a `Puller`."""

    def connected(self) -> None:
        """Begin anew: there is a new stream, on which nothing was said yet."""

    def next_asks(self) -> list[bytes]: ...

    def take(self, answer: Buffer) -> None:
        """Hear the leader; raise `RemoteProtocolError` if that is no answer."""

    def due_ms(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a leader is, and which process it is, as the metadata say."""

    address: Address
    incarnation: UUID


@dataclass(frozen=True, slots=True)
class Follower:
    """What a stream needs of the broker that follows."""

    me: WhoIAm
    channels: Channels
    broker_epoch: Callable[[], int]
    now_ms: Callable[[], int]
    # The largest answer that is taken, looked at whenever a leader is dialled.
    receive_bytes_max: Callable[[], int]
    # Where it is counted how the stream to a leader does.
    count_of: Callable[[BrokerId], StreamCount] = lambda leader: StreamCount()


class _BrokenError(OttlaError):
    """The stream is over, for this reason."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused: Final = refused


class ReplicationStream:
    """The way to one leader. `run` until cancelled."""

    def __init__(self, leader: BrokerId, follower: Follower) -> None:
        self.leader: Final = leader
        self._follower: Final = follower
        self._where: Whereabouts | None = None
        self._has_moved: Final = asyncio.Event()
        # Set to end a pause.
        self._is_awaited: Final = asyncio.Event()
        self._voice: Voice | None = None
        # Why the stream that is open is over; None: the leader has moved.
        self._over: asyncio.Future[None] | None = None
        self._told: Final = Told(_log.bind(leader=leader))
        self._count: Final = follower.count_of(leader)
        # Dials that failed: of several addresses of a name, the next one is tried.
        self._failures = 0
        # When a leader that had answered was lost, by the clock of the loop.
        self._lost_at_s: float | None = None

    @property
    def is_connected(self) -> bool:
        return self._voice is not None

    @property
    def lost_for_s(self) -> float | None:
        """Return since when a leader that had answered for a while is gone; None: it is not."""
        if self._lost_at_s is None:
            return None
        return asyncio.get_running_loop().time() - self._lost_at_s

    def wake(self) -> None:
        """Ask the puller soon what it has to say."""
        if self._voice is not None:
            self._voice.wake()

    def hurry(self) -> None:
        """End the pause between two dials: somebody waits for what is followed there now."""
        self._is_awaited.set()

    def point_at(self, where: Whereabouts) -> None:
        """Go there from now on; a stream that leads elsewhere, or to an earlier process, ends."""
        if where != self._where:
            self._where = where
            self._has_moved.set()
            self._is_awaited.set()
            if self._over is not None and not self._over.done():
                self._over.set_result(None)

    async def run(self, puller: PullSide) -> None:
        """Keep a stream open until cancelled."""
        self._count.wanted()
        try:
            await self._keep_open(puller)
        finally:
            self._count.left()

    async def _keep_open(self, puller: PullSide) -> None:
        pause_s, loop = PAUSE_MIN_S, asyncio.get_running_loop()
        while True:
            if self._where is None:
                await self._has_moved.wait()
                continue
            self._has_moved.clear()
            self._is_awaited.clear()
            began_s = loop.time()
            await self._try_one(self._where, puller)
            if self._is_awaited.is_set() or loop.time() - began_s > PAUSE_MAX_S:
                pause_s = PAUSE_MIN_S
            if not self._has_moved.is_set():
                # Whoever waited since before has waited for this dial.
                self._is_awaited.clear()
            pause_s = await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> float:
        """Wait before the next dial; return for how long to wait before the one after it."""
        try:
            async with asyncio.timeout(pause_s):
                await self._is_awaited.wait()
        except TimeoutError:
            return min(2 * pause_s, PAUSE_MAX_S)
        return PAUSE_MIN_S

    async def _try_one(self, where: Whereabouts, puller: PullSide) -> None:
        is_reached, reached_at_s = False, 0.0
        now_s = asyncio.get_running_loop().time

        def reached() -> None:
            nonlocal is_reached, reached_at_s
            is_reached, reached_at_s = True, now_s()
            self._lost_at_s = None
            self._count.opened()
            self._told.well("leader_connected", address=where.address)

        try:
            await self._one_stream(where, puller, reached)
            # It has moved: that is no break, and the next one is dialled at once.
            self._count.wanted()
        except _BrokenError as error:
            end_if_cancelled()
            away = "leader_refused" if error.refused else "leader_unreachable"
            event = "leader_lost" if is_reached else away
            self._told.ill(event, str(error), address=where.address)
            self._failures += not is_reached
            if is_reached:
                self._count.broke()
            if is_reached and now_s() - reached_at_s >= STEADY_S:
                self._lost_at_s = now_s()
        except Exception as error:  # noqa: BLE001  # whatever it is, the other partitions go on
            end_if_cancelled()
            what = {"message": "the follower's end of a replication stream", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)

    async def _one_stream(
        self, where: Whereabouts, puller: PullSide, reached: Callable[[], None]
    ) -> None:
        """Dial and pull until the leader moves; raise `_BrokenError` if the stream ends before."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                number, entrance = await self._ticket(where)
                ways = await self._addresses(entrance)
        except grpc.aio.AioRpcError as error:
            raise _broken(error) from None
        except TimeoutError:
            raise _BrokenError("It did not answer in time.") from None
        sock = await self._dialled(entrance, ways, number)
        cable = Cable(sock, frame_bytes_max=self._follower.receive_bytes_max())
        try:
            if not self._has_moved.is_set():
                await self._pull(cable, puller, reached)
        except (CableEndedError, RemoteProtocolError) as error:
            raise _BrokenError(str(error)) from None
        finally:
            self._voice = None
            cable.close()

    async def _ticket(self, where: Whereabouts) -> tuple[bytes, Address]:
        """Ask the leader for a ticket; return its number, and where to go with it."""
        channel = self._follower.channels.fresh(
            self.leader, await self._next_address(where.address)
        )
        try:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(OPEN)
            told = await method(b"", metadata=self._metadata(), wait_for_ready=False)
        finally:
            await channel.close()
        try:
            return told[:TICKET_BYTES], parse_address(told[TICKET_BYTES:].decode())
        except ValueError:
            raise _BrokenError("It gave no ticket, but something else.") from None

    async def _dialled(
        self, entrance: Address, ways: Sequence[Address], number: bytes
    ) -> socket.socket:
        """Open a connection and show the ticket; raise `_BrokenError` if that cannot be done."""
        why = "it has no address"
        # Of many addresses others are tried the next time.
        first = self._failures % len(ways) if len(ways) > _WAYS_MAX else 0
        # The one by which the leader was asked need not be the right one.
        tried = [*ways[first:], *ways[:first]][:_WAYS_MAX]
        # One that swallows all that is sent there, as a firewall may, leaves time for the others.
        each_s = _CONNECT_S / max(1, len(tried))
        for position, way in enumerate(tried):
            try:
                async with asyncio.timeout(each_s):
                    return await self._connected(way, number)
            except TimeoutError:
                found = f"no answer within {each_s:g} s"
            except OSError as error:
                found = why_of(error)
            # The first is the one that whoever looks for the reason will try.
            why = found if position == 0 else why
        raise _BrokenError(f"Its listener REPLICATION at {entrance} cannot be reached: {why}.")

    async def _connected(self, way: Address, number: bytes) -> socket.socket:
        """Return a connection on which the ticket was shown, or raise `OSError`."""
        sock = socket.socket(socket.AF_INET6 if ":" in way.host else socket.AF_INET)
        try:
            prepare(sock)
            await asyncio.get_running_loop().sock_connect(sock, (way.host, way.port))
            if (keys := self._follower.channels.calling_context) is not None:
                sock = await secured(sock, keys, server_hostname=name_of(self.leader))
            # So little goes into a new connection at once.
            sock.send(number)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _pull(self, cable: Cable, puller: PullSide, reached: Callable[[], None]) -> None:
        over = self._over = asyncio.get_running_loop().create_future()
        is_first = True

        def end(why: Exception) -> None:
            if over.done():
                tell_late(why)
            else:
                over.set_exception(why)

        def asks() -> Sequence[Sequence[Buffer]]:
            return [(ask,) for ask in puller.next_asks()]

        def hear(answer: memoryview) -> None:
            nonlocal is_first
            if is_first:
                # Only now is it known that the leader serves this broker.
                is_first = False
                reached()
            voice.hear(puller.take, answer)

        now_ms = self._follower.now_ms
        voice = Voice(cable, asks, due_ms=puller.due_ms, now_ms=now_ms, on_bug=end)
        self._voice = voice
        try:
            puller.connected()
            cable.start(hear, on_taken=voice.say, on_end=end)
            voice.wake()
            await self._until_over(cable, over)
        finally:
            voice.stop()
            self._over = None
            if over.done():
                # Nobody needs to hear of it if this was cancelled.
                over.exception()

    async def _until_over(self, cable: Cable, over: asyncio.Future[None]) -> None:
        """Wait for the end, and raise why; a leader of which nothing is heard is an end (D4)."""
        loop = asyncio.get_running_loop()
        heard_s = loop.time()
        while not over.done():
            await asyncio.wait((over,), timeout=_LOOK_S)
            if cable.was_heard():
                heard_s = loop.time()
            elif loop.time() - heard_s > SILENT_S and not over.done():
                raise _BrokenError(f"Nothing was heard of it for {SILENT_S} s.")
        over.result()

    def _metadata(self) -> grpc.aio.Metadata:
        own = self._follower
        return grpc.aio.Metadata(
            (NODE_KEY, str(self.leader)),
            (CLUSTER_KEY, own.me.cluster_id.encode()),
            (FOLLOWER_KEY, str(own.me.node_id)),
            (EPOCH_KEY, str(own.broker_epoch())),
        )

    async def _next_address(self, address: Address) -> Address:
        found = await self._addresses(address)
        return found[self._failures % len(found)]

    async def _addresses(self, address: Address) -> list[Address]:
        try:
            return await resolve(self._follower.channels.way_to(address))
        except OSError as error:
            raise _BrokenError(f"Its name is not known: {error.strerror or error}.") from None


def _broken(error: grpc.aio.AioRpcError) -> _BrokenError:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return _BrokenError("It is no broker, or not yet.", refused=True)
    return _BrokenError(reason_of(error), refused=error.code() is not grpc.StatusCode.UNAVAILABLE)
