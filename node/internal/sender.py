"""The sending end of Raft streams: dials one peer, again and again, and writes what the queue has.

A stream begins with a Hello, which the peer must accept before an envelope is written. When it
breaks, everything that was under way or waiting is dropped: the member finds out by itself what
the peer lacks.

Not here: the receiving end (`receiver.py`), and what a broken stream means (`raft.py`).

Z1  nothing is written twice, and nothing on another stream than the one it was made for
Z2  a peer that is away costs one log line, and a dial every half second
Z3  once cancelled it dials no more, whatever breaks at that moment
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final, TypeAlias

import grpc

from ottla.node.internal import wire
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import SERVICE, WhoIAm
from ottla.node.internal.outgoing import Outgoing
from ottla.node.internal.peers import Member, Told, end_if_cancelled, reason_of, resolve
from ottla.node.logs import logger
from ottla.node.stream_counts import StreamCount
from ottla.proto.errors import OttlaError, RemoteProtocolError
from ottla.proto.kafka.uuids import UUID
from ottla.proto.options.endpoints import Address

RAFT: Final = f"/{SERVICE}/Raft"
PAUSE_MIN_S: Final = 0.02
PAUSE_MAX_S: Final = 0.5
# To connect, and to be accepted.
_GREETING_S: Final = 3.0

_log = logger("internal.raft")

# A peer that says this is there, and does not want us.
_REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)

Call: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"
# Told the peer's incarnation when a stream that was accepted broke.
OnLost = Callable[[int, UUID], None]


class _BrokenError(OttlaError):
    """The stream is over, for this reason."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused: Final = refused


class Sender:
    """The way to one peer."""

    def __init__(
        self,
        *,
        me: WhoIAm,
        directory_id: str,
        peer: int,
        address: Address,
        channels: Channels,
        member: Member,
        dice: Random,
        on_lost: OnLost,
        count: StreamCount | None = None,
    ) -> None:
        self._me: Final = me
        self._directory_id: Final = directory_id
        self._peer: Final = peer
        self._address: Final = address
        self._channels: Final = channels
        self._member: Final = member
        self._dice: Final = dice
        self._on_lost: Final = on_lost
        self._told: Final = Told(_log.bind(peer=peer))
        self._count: Final = StreamCount() if count is None else count
        # Dials that failed: of several addresses of a name, the next one is tried.
        self._failures = 0
        self.outgoing: Final = Outgoing()
        # Where the peer was when it was last reached.
        self.reached_at: Address | None = None
        self.is_connected = False
        # The process that has accepted the stream, while there is one.
        self._incarnation: UUID | None = None

    @property
    def reached(self) -> UUID | None:
        """Return the process at the peer's address, while a stream leads there."""
        return self._incarnation if self.is_connected else None

    async def run(self) -> None:
        """Keep a stream open until cancelled."""
        self._count.wanted()
        pause_s, loop = PAUSE_MIN_S, asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            try:
                await self._one_stream()
            except _BrokenError as error:
                end_if_cancelled()
                self._tell(error)
            lost, self._incarnation = self._incarnation, None
            if lost is None:
                self._failures += 1
            else:
                self._count.broke()
                self._on_lost(self._peer, lost)
            # Two that take each other's place, say, must not do it as fast as they can.
            if loop.time() - began_s > PAUSE_MAX_S:
                pause_s = PAUSE_MIN_S
            await asyncio.sleep(pause_s * (0.5 + self._dice.random() / 2))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _tell(self, error: _BrokenError) -> None:
        if self._incarnation is not None:
            self._told.ill("peer_lost", str(error), address=self.reached_at)
        elif error.refused:
            self._told.ill("peer_refused", str(error), address=self._address)
        else:
            self._told.ill("peer_unreachable", str(error), address=self._address)

    async def _one_stream(self) -> None:
        """Dial, greet, and write until the stream breaks, which raises `_BrokenError`."""
        address = await self._next_address()
        channel = self._channels.fresh(self._peer, address)
        call: Call = channel.stream_stream(RAFT)(wait_for_ready=False)
        try:
            async with asyncio.timeout(_GREETING_S):
                await call.wait_for_connection()
                stream = await self._greet(call)
            self.reached_at = address
            self.is_connected = True
            self._count.opened()
            self._told.well("peer_connected", address=address)
            await self._carry(call, stream)
        except grpc.aio.AioRpcError as error:
            raise _broken(error) from None
        except TimeoutError:
            raise _BrokenError("It did not answer in time.") from None
        except RemoteProtocolError as error:
            raise _BrokenError(str(error)) from None
        finally:
            self.is_connected = False
            self.outgoing.close()
            self._member.close_stream(self._peer)
            call.cancel()
            await channel.close()

    async def _next_address(self) -> Address:
        try:
            found = await resolve(self._channels.way_to(self._address))
        except OSError as error:
            raise _BrokenError(f"Its name is not known: {error.strerror or error}.") from None
        return found[self._failures % len(found)]

    async def _greet(self, call: Call) -> str:
        stream = await self._open_stream()
        hello = wire.Hello(
            cluster_id=self._me.cluster_id,
            sender=self._me.node_id,
            receiver=self._peer,
            directory_id=self._directory_id,
            stream=stream,
            incarnation=self._me.incarnation,
        )
        # A write that fails has less to say about it than the read that follows.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(wire.encode_hello(hello))
        self._incarnation = wire.decode_accepted(await _read(call))
        return stream

    async def _open_stream(self) -> str:
        loop = asyncio.get_running_loop()
        named: asyncio.Future[str] = loop.create_future()

        def told(stream: str) -> None:
            # In the quorum's thread: what is sent from here on belongs to this stream.
            self.outgoing.open(stream)
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_name, named, stream)

        if not self._member.open_stream(self._peer, told):
            raise _BrokenError("The member of this node takes nothing in.")
        return await named

    async def _carry(self, call: Call, stream: str) -> None:
        writing = asyncio.get_running_loop().create_task(self._write(call, stream))
        try:
            # Nothing comes, but the end of the stream is seen here, at once.
            await _read(call)
            raise _BrokenError("It said more than it should.")
        finally:
            writing.cancel()
            # To await it would take a cancellation of this task for one of that.
            await asyncio.wait([writing])
            if not writing.cancelled() and (bug := writing.exception()) is not None:
                raise bug

    async def _write(self, call: Call, stream: str) -> None:
        filled = self.outgoing.is_filled
        # That the stream broke is seen in `_carry`.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                while (frame := self.outgoing.take(stream)) is not None:
                    await call.write(frame)
                await filled.wait()
                filled.clear()


def _name(named: asyncio.Future[str], stream: str) -> None:
    if not named.done():
        named.set_result(stream)


async def _read(call: Call) -> bytes:
    answer = await call.read()
    if isinstance(answer, bytes):
        return answer
    raise _BrokenError("It ended the stream.")


def _broken(error: grpc.aio.AioRpcError) -> _BrokenError:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return _BrokenError("It takes no part in a quorum, or not yet.", refused=True)
    return _BrokenError(reason_of(error), refused=error.code() in _REFUSALS)
