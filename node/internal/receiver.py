"""The receiving end of Raft streams: who may speak to this member, and what they may say.

The first frame is a Hello. It is checked before anything else is read, and refused with a sentence.
Then come envelopes, which go to the member as they come. Whatever cannot be read ends its stream:
after it nothing is known to be in order.

Not here: whether an envelope is believed (`ottla.controller.quorum.transport`).

Y1  only envelopes of a voter that was greeted reach the member, marked with whom they come from
Y2  a stream that says nothing sensible ends with a reason, which is logged and counted; no other
    stream notices
Y3  of one peer, one stream is served: the newest
Y4  while one process is reached at a voter's address, no other one speaks for that voter: a second
    node with the same id would take its streams, and perhaps its vote
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container
from dataclasses import dataclass
from typing import Final

import grpc

from ottla.controller.quorum.messages import Envelope
from ottla.node.internal import wire
from ottla.node.internal.identity import Context, WhoIAm
from ottla.node.internal.peers import Member, RefusedError, Told
from ottla.node.internal.sender import OnLost
from ottla.node.internal.tls import Tls
from ottla.node.logs import logger
from ottla.proto.errors import RemoteProtocolError
from ottla.proto.kafka.uuids import UUID

_log = logger("internal.raft")

HELLO_S: Final = 5.0
# Where what strangers did wrong is told, of all of them together.
_STRANGER: Final = -1


class EndedError(RefusedError):
    """A stream that was served, and is no longer needed."""


@dataclass(slots=True, eq=False)
class _Stream:
    """One that is being served."""

    hello: wire.Hello
    task: asyncio.Task[None]
    # Why it is ended from this side.
    end: EndedError | None = None

    def stop(self, end: EndedError) -> None:
        self.end = end
        self.task.cancel()


class Receiver:
    """All the ways from other members to this one."""

    def __init__(
        self,
        *,
        me: WhoIAm,
        voters: Container[int],
        tls: Tls | None,
        on_lost: OnLost,
        reached: Callable[[int], UUID | None],
    ) -> None:
        """`reached` gives the process that this node's own stream to a voter leads to, if any."""
        self._me: Final = me
        self._voters: Final = voters
        self._tls: Final = tls
        self._on_lost: Final = on_lost
        self._reached: Final = reached
        self._streams: Final[dict[int, _Stream]] = {}
        self._told: Final[dict[int, Told]] = {}
        # None before the start and after the end.
        self.member: Member | None = None
        # `refused`, `malformed`, `lost_at_the_door`.
        self.counts: Final[Counter[str]] = Counter()

    def stop(self) -> None:
        self.member = None
        for stream in self._streams.values():
            stream.stop(EndedError(grpc.StatusCode.UNAVAILABLE, "This node is stopping."))

    async def serve(self, _: AsyncIterator[bytes], context: Context) -> None:
        """Serve one stream: the method `Raft`."""
        sender = _STRANGER
        try:
            verified_as = None if self._tls is None else self._tls.verified_node(context)
            hello = await self._hear_hello(context)
            sender = hello.sender if hello.sender in self._voters else _STRANGER
            self._check(hello, verified_as)
            await self._serve_peer(hello, context)
        except EndedError as error:
            _log.debug("stream_ended", peer=sender, why=str(error))
            await context.abort(error.code, str(error))
        except RefusedError as error:
            self.counts["refused"] += 1
            self._tell(sender).ill("stream_refused", str(error), caller=context.peer())
            await context.abort(error.code, str(error))
        except RemoteProtocolError as error:
            self.counts["malformed"] += 1
            self._tell(sender).ill("stream_malformed", str(error), caller=context.peer())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    async def _hear_hello(self, context: Context) -> wire.Hello:
        try:
            async with asyncio.timeout(HELLO_S):
                data: object = await context.read()
        except TimeoutError:
            sentence = "No Hello came in time."
            raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, sentence) from None
        if not isinstance(data, bytes):
            raise RemoteProtocolError("A Raft stream ended before its Hello.")
        hello = wire.decode_frame(data)
        if not isinstance(hello, wire.Hello):
            raise RemoteProtocolError("A Raft stream did not begin with a Hello.")
        return hello

    def _check(self, hello: wire.Hello, verified_as: int | None) -> None:
        me = self._me
        if verified_as is not None and verified_as != hello.sender:
            whose = "no node" if verified_as < 0 else f"node {verified_as}"
            sentence = f"The certificate is that of {whose}, and not of node {hello.sender}."
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, sentence)
        if hello.receiver != me.node_id:
            sentence = f"This is node {me.node_id}, and not node {hello.receiver}."
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence)
        if hello.cluster_id != me.cluster_id:
            sentence = (
                f"Node {hello.sender} is of the cluster {hello.cluster_id}, and node {me.node_id} "
                f"of the cluster {me.cluster_id}."
            )
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence)
        if hello.sender not in self._voters or hello.sender == me.node_id:
            sentence = f"Node {hello.sender} is not among the other voters of node {me.node_id}."
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, sentence)
        if self._reached(hello.sender) not in (None, hello.incarnation):
            # If it has only started again, the way to the process before is soon found broken.
            sentence = (
                f"Another process is node {hello.sender}, and answers at its address. Stop that "
                "one, or give this one another node.id."
            )
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence)

    async def _serve_peer(self, hello: wire.Hello, context: Context) -> None:
        peer, member = hello.sender, self.member
        if member is None or not member.accept_stream(peer, hello.stream):
            sentence = f"Node {self._me.node_id} does not take part in the quorum at the moment."
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, sentence)
        task = asyncio.current_task()
        stream = _Stream(hello, task) if task is not None else None
        before = self._streams.pop(peer, None)
        if before is not None:
            sentence = f"A newer stream of node {peer} has taken the place of this one."
            before.stop(EndedError(grpc.StatusCode.ABORTED, sentence))
        if stream is None:
            return
        self._streams[peer] = stream
        try:
            await context.write(wire.encode_accepted(self._me.incarnation))
            self._tell(peer).well("stream_accepted", caller=context.peer())
            await self._receive(hello, context, member)
        except asyncio.CancelledError:
            # Either the connection is gone, or this side ends the stream.
            if stream.end is None:
                raise
            raise stream.end from None
        finally:
            if self._streams.get(peer) is stream:
                del self._streams[peer]
                if stream.end is None:
                    self._on_lost(peer, hello.incarnation)

    async def _receive(self, hello: wire.Hello, context: Context, member: Member) -> None:
        """Hand over what comes until the peer ends the stream."""
        while isinstance(data := _as_object(await context.read()), bytes):
            envelope = wire.decode_frame(data)
            if not isinstance(envelope, Envelope):
                raise RemoteProtocolError("A Raft stream has two Hellos.")
            # With a certificate, the Hello was found to be its owner's.
            if not member.deliver(envelope, verified_as=hello.sender):
                self.counts["lost_at_the_door"] += 1

    def _tell(self, sender: int) -> Told:
        if sender not in self._told:
            self._told[sender] = Told(_log.bind(peer=sender) if sender != _STRANGER else _log)
        return self._told[sender]


def _as_object(read: object) -> object:
    """Forget the type: at the end of a stream something else than bytes is read."""
    return read
