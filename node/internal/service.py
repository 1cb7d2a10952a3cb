"""The controller of this process on the wire: the handlers of the service `/ottla.Cluster`.

Every answer that a controller can give is a message. A gRPC status is for those who should not have
asked: who is not who it says (PERMISSION_DENIED), who means another node (FAILED_PRECONDITION) or
another cluster (NOT_FOUND), who sends what is no message (INVALID_ARGUMENT).

Not here: the server and its limits (`listener.py`), deciding (`ottla.controller.active`).

Y1  with TLS a node speaks for itself only: its certificate names the node
Y2  whatever comes in is answered, or refused with a sentence; nothing a peer sends raises here
Y3  the log tells of every reason for which somebody was refused, once
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message

from ottla.controller.active import ActiveController, LocalLine
from ottla.controller.door import DoorClosedError
from ottla.node.internal import cluster_wire as wire
from ottla.node.internal.peers import RefusedError, Told
from ottla.node.internal.tls import NOBODY, Authenticated
from ottla.node.logs import logger
from ottla.proto.errors import RemoteProtocolError
from ottla.proto.gen import cluster_pb2 as pb

_log = logger("internal.service")

SERVICE: Final = "ottla.Cluster"
# In the metadata of every call: which cluster and which node is meant.
CLUSTER_KEY: Final = "ottla-cluster-bin"
NODE_KEY: Final = "ottla-to"
# Who means another cluster does not find it here, however often it asks.
OTHER_CLUSTER: Final = grpc.StatusCode.NOT_FOUND
# A line on which nothing was said for so long is closed; brokers beat several times a second.
LINE_SILENT_S: Final = 30.0

Context = grpc.aio.ServicerContext[bytes, bytes]
M = TypeVar("M", bound=Message)


class Verifier(Protocol):
    """Knows who is at the other end: `Tls`."""

    def verified_node(self, context: Authenticated) -> int:
        """Return the node that the peer's certificate names, or `NOBODY`."""


def cluster_handlers(door: ActiveController, verifier: Verifier | None) -> grpc.GenericRpcHandler:
    """Return the handlers of the service, for the INTERNAL listener."""
    service = ClusterService(door, verifier)
    told = Told(_log)
    unary = grpc.unary_unary_rpc_method_handler
    heartbeats = grpc.stream_stream_rpc_method_handler
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Register": unary(_guarded(service.register, told)),
        "Propose": unary(_guarded(service.propose, told)),
        "ReadVersion": unary(_guarded(service.read_version, told)),
        "DescribeQuorum": unary(_guarded(service.describe_quorum, told)),
        "Heartbeats": heartbeats(_guarded(service.heartbeats, told)),
        "Follow": grpc.unary_stream_rpc_method_handler(_guarded(service.follow, told)),
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


class ClusterService:
    """One handler for each method. Messages come and go as bytes."""

    def __init__(self, door: ActiveController, verifier: Verifier | None) -> None:
        self._door = door
        self._verifier = verifier

    async def register(self, data: bytes, context: Context) -> bytes:
        # Which cluster is wrong is an answer here, so it is not looked at before.
        self._require_meant(context, is_any_cluster=True)
        wanted = wire.read_registration(parse(pb.Registration, data))
        self._require_self(context, wanted.broker_id)
        answer = await self._door.register(wanted)
        return wire.write_registration_answer(answer).SerializeToString()

    async def propose(self, data: bytes, context: Context) -> bytes:
        self._require_meant(context)
        asked = parse(pb.Proposed, data)
        caller = self._verified(context)
        client = asked.client[: wire.TEXT_MAX]
        answer = await self._door.forward(asked.proposal, client=client, caller=caller)
        return wire.write_proposal_answer(answer).SerializeToString()

    async def read_version(self, data: bytes, context: Context) -> bytes:
        self._require_meant(context)
        parse(pb.Nothing, data)
        return wire.write_version_answer(await self._door.read_version()).SerializeToString()

    async def describe_quorum(self, data: bytes, context: Context) -> bytes:
        self._require_meant(context)
        parse(pb.Nothing, data)
        return wire.write_quorum_answer(await self._door.describe_quorum()).SerializeToString()

    async def follow(self, data: bytes, context: Context) -> None:
        self._require_meant(context)
        version, digest = wire.read_followed(parse(pb.Followed, data))
        async for news in self._door.follow(version, digest):
            for part in wire.write_news(news):
                # It waits while the other end does not read, and the feed goes on without it.
                await context.write(part.SerializeToString())

    # ── Heartbeats ────────────────────────────────────────────────────────────────────────────

    async def heartbeats(self, _: object, context: Context) -> None:
        self._require_meant(context)
        line = self._door.open_line(peer_address(context.peer()))
        is_goodbye = False
        try:
            is_goodbye = await self._hear(line, context)
        finally:
            line.end(is_goodbye=is_goodbye)

    async def _hear(self, line: LocalLine, context: Context) -> bool:
        """Answer beats to the end of the line; return whether it ended with a good-bye."""
        broker_id: int | None = None
        while True:
            said = await self._next_said(context)
            if said is None or said.WhichOneof("said") == "goodbye":
                return said is not None
            if said.WhichOneof("said") != "beat":
                raise RemoteProtocolError("A heartbeat says nothing.")
            beat = wire.read_beat(said.beat)
            if broker_id is None:
                self._require_self(context, beat.broker_id)
                broker_id = beat.broker_id
            elif broker_id != beat.broker_id:
                sentence = f"The line of broker {broker_id} says something of {beat.broker_id}."
                raise RemoteProtocolError(sentence)
            answer = await line.beat(beat)
            await context.write(wire.write_beat_answer(answer).SerializeToString())

    async def _next_said(self, context: Context) -> pb.Heartbeat | None:
        try:
            async with asyncio.timeout(LINE_SILENT_S):
                data: object = await context.read()
        except TimeoutError:
            sentence = "Nothing was said for long."
            raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, sentence) from None
        return parse(pb.Heartbeat, data) if isinstance(data, bytes) else None

    # ── Who asks, and whom ────────────────────────────────────────────────────────────────────

    def _verified(self, context: Context) -> int | None:
        return None if self._verifier is None else self._verifier.verified_node(context)

    def _require_self(self, context: Context, node_id: int) -> None:
        verified = self._verified(context)
        if verified is not None and verified != node_id:
            sentence = (
                f"The certificate is that of node {verified}, which may not speak for node "
                f"{node_id}."
            )
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, sentence)

    def _require_meant(self, context: Context, *, is_any_cluster: bool = False) -> None:
        told = dict(context.invocation_metadata() or ())
        meant, cluster = told.get(NODE_KEY), told.get(CLUSTER_KEY)
        ours = self._door.cluster_id
        if self._verified(context) == NOBODY:
            sentence = "The certificate names no node."
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, sentence)
        if meant is not None and meant != str(self._door.node_id):
            sentence = f"This is node {self._door.node_id}, and node {_shown(meant)} was meant."
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence)
        if cluster and cluster != ours.encode() and not is_any_cluster:
            sentence = f"This is the cluster {ours!r}, and {_shown(cluster)} was meant."
            raise RefusedError(OTHER_CLUSTER, sentence)


def parse(kind: type[M], data: bytes) -> M:
    """Return the message, or raise `RemoteProtocolError`."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise RemoteProtocolError(f"These {len(data)} bytes are no {kind.__name__}.") from None


def peer_address(peer: str) -> str | None:
    """Return the IP address in what gRPC calls the peer; None if there is none."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    return rest.rpartition(":")[0].strip("[]") or None


def _shown(value: str | bytes) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return repr(text[:100])


# ── gRPC ──────────────────────────────────────────────────────────────────────────────────────


def _guarded(work: Callable[[Any, Context], Awaitable[Any]], told: Told) -> Any:
    async def guarded(request: Any, context: Context) -> Any:
        try:
            return await work(request, context)
        except RefusedError as error:
            told.ill("call_refused", str(error), caller=context.peer())
            await context.abort(error.code, str(error))
        except RemoteProtocolError as error:
            told.ill("call_malformed", str(error), caller=context.peer())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except DoorClosedError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            # gRPC would answer UNKNOWN and go on; but it is a bug, and the node must hear of it.
            what = {"message": "a handler of the cluster service failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)
            raise

    return guarded
