"""The door of a controller in another process.

Every call has a deadline, and whatever goes wrong with it is one error with a sentence
(`DoorClosedError`); whoever calls knows then that nothing is known (K1 of `door.py`).

Not here: connections (`channels.py`), which controller to ask (`ottla.node.lifeline`).

Z1  nothing but `DoorClosedError` is raised, whatever the other end does
Z2  a line on which a beat was not answered is broken for good: a late answer is never taken for
    the answer to another beat
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from ottla.controller.door import (
    Beat,
    BeatAnswer,
    Denied,
    DoorClosedError,
    News,
    NotActive,
    OtherClusterError,
    QuorumView,
    Registered,
    Registration,
    Unresolved,
)
from ottla.controller.outcome import Outcome
from ottla.node.internal import cluster_wire as wire
from ottla.node.internal.peers import end_if_cancelled, reason_of
from ottla.node.internal.service import CLUSTER_KEY, NODE_KEY, OTHER_CLUSTER, SERVICE, parse
from ottla.proto.errors import RemoteProtocolError
from ottla.proto.gen import cluster_pb2 as pb
from ottla.proto.options.endpoints import Address

# Longer than the controller takes to answer that it does not know.
REGISTER_S: Final = 12.0
PROPOSE_S: Final = 7.0
READ_S: Final = 7.0
DESCRIBE_S: Final = 5.0
# A heartbeat is answered without asking the quorum.
BEAT_S: Final = 2.0
GOODBYE_S: Final = 1.0
_SENTENCE_MAX: Final = 500

# gRPC says with a cancellation that a channel was closed, and with the two after it that a call is
# over or its channel closed already.
FAILURES: Final = (
    grpc.aio.AioRpcError,
    asyncio.CancelledError,
    asyncio.InvalidStateError,
    grpc.aio.UsageError,
    RemoteProtocolError,
    TimeoutError,
)

T = TypeVar("T")
_Unary = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
_Follow = grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
_Beats = grpc.aio.StreamStreamMultiCallable[bytes, bytes]
_Call = grpc.aio.StreamStreamCall[bytes, bytes]


class Ways(Protocol):
    """Gives channels to nodes: `Channels`."""

    def to(self, node_id: int, address: Address) -> grpc.aio.Channel: ...


class RemoteDoor:
    """The `Door` of the controller on another node."""

    def __init__(
        self,
        node_id: int,
        address: Address,
        channels: Ways,
        *,
        cluster_id: Callable[[], str] = str,
    ) -> None:
        self.node_id: Final = node_id
        self.address: Final = address
        self._channels = channels
        # Empty until it is known.
        self._cluster_id = cluster_id

    async def register(self, wanted: Registration) -> Registered | NotActive | Denied:
        def read(data: bytes) -> Registered | NotActive | Denied:
            return wire.read_registration_answer(parse(pb.RegistrationAnswer, data))

        return await self._ask("Register", wire.write_registration(wanted), REGISTER_S, read)

    def open_line(self) -> RemoteLine:
        return RemoteLine(self)

    async def propose(
        self, proposal: bytes, *, client: str
    ) -> Outcome | NotActive | Denied | Unresolved:
        def read(data: bytes) -> Outcome | NotActive | Denied | Unresolved:
            return wire.read_proposal_answer(parse(pb.ProposalAnswer, data))

        message = pb.Proposed(proposal=proposal, client=client[: wire.TEXT_MAX])
        return await self._ask("Propose", message, PROPOSE_S, read)

    async def read_version(self) -> int | NotActive:
        def read(data: bytes) -> int | NotActive:
            return wire.read_version_answer(parse(pb.VersionAnswer, data))

        return await self._ask("ReadVersion", pb.Nothing(), READ_S, read)

    async def describe_quorum(self) -> QuorumView | NotActive:
        def read(data: bytes) -> QuorumView | NotActive:
            return wire.read_quorum_answer(parse(pb.QuorumAnswer, data))

        return await self._ask("DescribeQuorum", pb.Nothing(), DESCRIBE_S, read)

    async def follow(self, version: int, digest: bytes) -> AsyncIterator[News]:
        reader, call = wire.NewsReader(), None
        try:
            asked = pb.Followed(version=version, digest=digest).SerializeToString()
            method: _Follow = self.channel().unary_stream(f"/{SERVICE}/Follow")
            call = method(asked, metadata=self.metadata())
            async for data in call:
                news = reader.take(parse(pb.NewsPart, data))
                if news is not None:
                    yield news
        except FAILURES as error:
            raise self.closed(error) from None
        finally:
            if call is not None:
                call.cancel()
        raise self.closed(None)

    # ── Calls ─────────────────────────────────────────────────────────────────────────────────

    def channel(self) -> grpc.aio.Channel:
        return self._channels.to(self.node_id, self.address)

    def metadata(self) -> grpc.aio.Metadata:
        cluster = (CLUSTER_KEY, self._cluster_id().encode())
        return grpc.aio.Metadata((NODE_KEY, str(self.node_id)), cluster)

    def closed(self, error: BaseException | None) -> DoorClosedError:
        """Return what to raise for it: a cancelled task is cancelled, and nothing else is."""
        end_if_cancelled()
        why, kind = "it ended the call", DoorClosedError
        if isinstance(error, grpc.aio.AioRpcError):
            why = f"{error.code().name} {reason_of(error)}"
            kind = OtherClusterError if error.code() is OTHER_CLUSTER else DoorClosedError
        elif error is not None:
            why = str(error) or type(error).__name__
        where = f"Controller {self.node_id} at {self.address}"
        return kind(f"{where} did not answer: {why[:_SENTENCE_MAX]}")

    async def _ask(
        self, method: str, message: Message, timeout_s: float, read: Callable[[bytes], T]
    ) -> T:
        try:
            call: _Unary = self.channel().unary_unary(f"/{SERVICE}/{method}")
            data = await call(
                message.SerializeToString(), timeout=timeout_s, metadata=self.metadata()
            )
            return read(data)
        except FAILURES as error:
            raise self.closed(error) from None


class RemoteLine:
    """The heartbeats of one life of this broker, to the controller on another node."""

    def __init__(self, door: RemoteDoor) -> None:
        self._door = door
        self._call: _Call | None = None
        self._is_broken = False
        self._turn = asyncio.Lock()

    async def beat(self, beat: Beat) -> BeatAnswer | NotActive:
        async with self._turn:
            if self._is_broken:
                raise DoorClosedError(f"The line to controller {self._door.node_id} is broken.")
            try:
                async with asyncio.timeout(BEAT_S):
                    return await self._exchange(pb.Heartbeat(beat=wire.write_beat(beat)))
            except FAILURES as error:
                self._break()
                raise self._door.closed(error) from None

    async def close(self, *, is_goodbye: bool) -> None:
        if is_goodbye and self._call is not None and not self._is_broken:
            try:
                async with asyncio.timeout(GOODBYE_S):
                    await self._call.write(pb.Heartbeat(goodbye=pb.Nothing()).SerializeToString())
                    await self._call.done_writing()
                    # Once the other end has ended the call, it has heard the good-bye.
                    await self._call.code()
            except FAILURES as error:
                self._break()
                self._door.closed(error)
        self._break()

    async def _exchange(self, said: pb.Heartbeat) -> BeatAnswer | NotActive:
        if self._call is None:
            method: _Beats = self._door.channel().stream_stream(f"/{SERVICE}/Heartbeats")
            self._call = method(metadata=self._door.metadata())
        await self._call.write(said.SerializeToString())
        data = await self._call.read()
        if not isinstance(data, bytes):
            raise RemoteProtocolError("it ended the line")
        return wire.read_beat_answer(parse(pb.HeartbeatAnswer, data))

    def _break(self) -> None:
        self._is_broken = True
        if self._call is not None:
            self._call.cancel()
