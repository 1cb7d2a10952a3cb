"""The leader's end of replication streams.

A follower asks over gRPC (`/ottla.Replication/Open`), and says in the metadata of the call who it
is and whom it means. It is given a ticket, and where to go with it: there a cable is opened
(`entrance.py`). From then on its frames go to a `Feeder`, and the frames of the feeder go back, as
they are: raw bytes.

Not here: what a frame means (`ottla.replication.feeding`), how it travels (`cable.py`), the other
end (`replication_stream.py`).

R1  with TLS a follower speaks for itself only, and without it only brokers of this cluster do
R2  of one follower, one stream is served: the newest, unless it is of an earlier life
R3  a feeder is closed exactly once, however its stream ends
R4  a stream that is malformed, or silent while nothing is owed to it, ends with a reason; no other
    stream notices
R5  a follower that waits hears every two seconds that somebody is here
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import grpc

from ottla.node.internal.cable import Buffer, Cable, CableEndedError, tell_late
from ottla.node.internal.entrance import TICKET_BYTES, Ticket
from ottla.node.internal.identity import Context, WhoIAm
from ottla.node.internal.peers import RefusedError, Told, report_bug
from ottla.node.internal.service import CLUSTER_KEY, NODE_KEY, Verifier
from ottla.node.internal.tls import NOBODY
from ottla.node.internal.two_way import Voice
from ottla.node.logs import logger
from ottla.proto.errors import OttlaError, RemoteProtocolError
from ottla.proto.ids import BrokerId
from ottla.proto.options.endpoints import Address
from ottla.proto.replication import ASK_BYTES_MAX

_log = logger("internal.replication")

SERVICE: Final = "ottla.Replication"
OPEN: Final = f"/{SERVICE}/Open"
# In the metadata of the call, beside those of `service.py`: who follows, and in which life.
FOLLOWER_KEY: Final = "ottla-from"
EPOCH_KEY: Final = "ottla-broker-epoch"
# Followers ask again as soon as they are answered.
SILENT_MS: Final = 30_000
BEAT_MS: Final = 2_000
# How long a ticket is good for.
TICKET_MS: Final = 10_000

_DIGITS_MAX: Final = 19
_SHOWN_MAX: Final = 100


class FeedSide(Protocol):
    """What is behind the leader's end of one stream: a `Feeder`."""

    def take(self, ask: Buffer) -> None:
        """Hear the follower; raise `RemoteProtocolError` if that is no ask."""

    def next_answer(self) -> Sequence[Buffer] | None:
        """Return the pieces of the next answer, or None if none is due."""

    def due_ms(self) -> int | None:
        """Return when to ask for an answer for time's sake; None if no answer is owed."""

    def close(self) -> None: ...


# Given the follower, and what to call when an answer may be due, and when its time may be another.
MakeFeeder = Callable[[BrokerId, Callable[[], None], Callable[[], None]], FeedSide]


class _EndedError(OttlaError):
    """A stream that was served, and is ended from this side."""


class ReplicationService:
    """All the followers that pull from this broker."""

    def __init__(
        self,
        *,
        me: WhoIAm,
        make_feeder: MakeFeeder,
        is_broker: Callable[[BrokerId], bool],
        now_ms: Callable[[], int],
        verifier: Verifier | None,
        where: Callable[[], Address],
        silent_ms: int = SILENT_MS,
        beat_ms: int = BEAT_MS,
    ) -> None:
        """`is_broker` says whether the metadata know such a broker; `where` is the entrance."""
        self._me: Final = me
        self._make_feeder: Final = make_feeder
        self._is_broker: Final = is_broker
        self._now_ms: Final = now_ms
        self._verifier: Final = verifier
        self._where: Final = where
        self._silent_ms: Final = silent_ms
        self._beat_ms: Final = beat_ms
        self._streams: Final[dict[BrokerId, _Stream]] = {}
        # Of each follower the newest, and until when it is good.
        self._tickets: Final[dict[BrokerId, tuple[Ticket, int]]] = {}
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._told: Final = Told(_log)
        self._is_stopped = False

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        """Return the service, for the INTERNAL listener."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Open": grpc.unary_unary_rpc_method_handler(self._open)
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    @property
    def followers(self) -> list[BrokerId]:
        """Return who pulls from here at the moment."""
        return list(self._streams)

    async def stop(self) -> None:
        """Serve nobody any more. Every feeder is closed when this returns."""
        self._is_stopped = True
        self._tickets.clear()
        for stream in self._streams.values():
            stream.end(_EndedError("This broker is stopping."))
        while self._tasks:
            await asyncio.wait(self._tasks)

    # ── Tickets ───────────────────────────────────────────────────────────────────────────────

    async def _open(self, _: bytes, context: Context) -> bytes:
        try:
            follower, epoch = self._caller(context)
            self._require_latest(follower, epoch)
        except RefusedError as error:
            self._told.ill("stream_refused", str(error), caller=context.peer())
            await context.abort(error.code, str(error))
        except RemoteProtocolError as error:
            self._told.ill("stream_malformed", str(error), caller=context.peer())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        number = secrets.token_bytes(TICKET_BYTES)
        ticket = Ticket(number, follower, lambda sock: self._begin(follower, epoch, sock))
        # The one before is void: whoever asks again has given up on it.
        self._tickets[follower] = ticket, self._now_ms() + TICKET_MS
        return number + str(self._where()).encode()

    def redeem(self, number: bytes) -> Ticket | None:
        """Return the ticket with this number, once and in time."""
        for follower, (ticket, until_ms) in self._tickets.items():
            if hmac.compare_digest(ticket.number, number):
                del self._tickets[follower]
                return ticket if self._now_ms() <= until_ms else None
        return None

    def _begin(self, follower: BrokerId, epoch: int, sock: socket.socket) -> None:
        if self._is_stopped:
            sock.close()
            return
        cable = Cable(sock, frame_bytes_max=ASK_BYTES_MAX)
        task = asyncio.get_running_loop().create_task(self._carry(follower, epoch, cable))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(report_bug)

    # ── Streams ───────────────────────────────────────────────────────────────────────────────

    async def _carry(self, follower: BrokerId, epoch: int, cable: Cable) -> None:
        """Serve a stream to its end, and tell the follower why if it ends from this side."""
        why: str | None = None
        try:
            await self._serve(follower, epoch, cable)
        except CableEndedError as error:
            _log.debug("follower_gone", follower=follower, why=str(error))
        except _EndedError as error:
            why = str(error)
            _log.debug("stream_ended", follower=follower, why=why)
        except RefusedError as error:
            why = str(error)
            self._told.ill("stream_refused", why, follower=follower)
        except RemoteProtocolError as error:
            why = str(error)
            self._told.ill("stream_malformed", why, follower=follower)
        except Exception:
            # A bug, of which the node must hear (`report_bug`); the follower dials again.
            why = "A bug at the leader."
            raise
        finally:
            cable.close(why)

    async def _serve(self, follower: BrokerId, epoch: int, cable: Cable) -> None:
        if self._is_stopped:
            raise _EndedError("This broker is stopping.")
        self._require_latest(follower, epoch)
        before = self._streams.get(follower)
        stream = _Stream(epoch, self._now_ms, silent_ms=self._silent_ms, beat_ms=self._beat_ms)
        self._streams[follower] = stream
        try:
            if before is not None:
                sentence = f"A newer stream of broker {follower} has taken the place of this one."
                before.end(_EndedError(sentence))
                # Two feeders of one follower would both be fed.
                await before.ended.wait()
            _log.debug("follower_connected", follower=follower)
            await stream.serve(self._make_feeder(follower, stream.wake, stream.look), cable)
        finally:
            stream.ended.set()
            if self._streams.get(follower) is stream:
                del self._streams[follower]

    def _require_latest(self, follower: BrokerId, epoch: int) -> None:
        before = self._streams.get(follower)
        if before is not None and epoch < before.epoch:
            sentence = f"Broker {follower} has begun another life since, and pulls from here."
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence)

    # ── Who asks, and whom ────────────────────────────────────────────────────────────────────

    def _caller(self, context: Context) -> tuple[BrokerId, int]:
        """Return the follower and its life, or raise `RefusedError`."""
        told = dict(context.invocation_metadata() or ())
        follower = BrokerId(_number(told, FOLLOWER_KEY))
        epoch = _number(told, EPOCH_KEY)
        if self._verifier is not None:
            self._require_certificate(follower, self._verifier.verified_node(context))
        self._require_meant(told)
        if follower == self._me.node_id or not self._is_broker(follower):
            sentence = f"Node {follower} is not among the other brokers that this one knows."
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence)
        return follower, epoch

    def _require_certificate(self, follower: int, verified: int) -> None:
        if verified != follower:
            whose = "no node" if verified == NOBODY else f"node {verified}"
            sentence = f"The certificate is that of {whose}, and not of node {follower}."
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, sentence)

    def _require_meant(self, told: dict[str, str | bytes]) -> None:
        me, meant, cluster = self._me, told.get(NODE_KEY), told.get(CLUSTER_KEY)
        if self._is_stopped or not me.cluster_id:
            sentence = "This broker serves no follower at the moment."
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, sentence)
        if meant != str(me.node_id):
            sentence = f"This is node {me.node_id}, and node {_shown(meant)} was meant."
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence)
        if cluster != me.cluster_id.encode():
            sentence = f"This is the cluster {me.cluster_id!r}, and {_shown(cluster)} was meant."
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence)


class _Stream:
    """One stream while it is served."""

    def __init__(
        self, epoch: int, now_ms: Callable[[], int], *, silent_ms: int, beat_ms: int
    ) -> None:
        self.epoch: Final = epoch
        # Set when its feeder is closed.
        self.ended: Final = asyncio.Event()
        self._now_ms: Final = now_ms
        self._silent_ms: Final = silent_ms
        self._beat_ms: Final = beat_ms
        self._heard_ms = now_ms()
        self._voice: Voice | None = None
        # Why it is over.
        self._over: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if self._voice is not None:
            self._voice.wake()

    def look(self) -> None:
        if self._voice is not None:
            self._voice.look()

    def end(self, why: _EndedError) -> None:
        if not self._over.done():
            self._over.set_exception(why)

    def broke(self, error: Exception) -> None:
        if self._over.done():
            tell_late(error)
        else:
            self._over.set_exception(error)

    async def serve(self, feeder: FeedSide, cable: Cable) -> None:
        """Feed until the stream is over; raise why."""

        def answers() -> Sequence[Sequence[Buffer]]:
            pieces = feeder.next_answer()
            return () if pieces is None else (pieces,)

        def hear(ask: memoryview) -> None:
            self._heard_ms = self._now_ms()
            # What it has to say now is said in the next turn, with all that happens in this one.
            feeder.take(ask)
            voice.look()

        voice = Voice(cable, answers, due_ms=feeder.due_ms, now_ms=self._now_ms, on_bug=self.broke)
        self._voice = voice
        try:
            if not self._over.done():
                cable.start(hear, on_taken=voice.say, on_end=self.broke)
            while not self._over.done():
                await asyncio.wait((self._over,), timeout=self._beat_ms / 1000)
                if not self._over.done():
                    self._require_sound(feeder)
                    cable.beat()
            self._over.result()
        finally:
            self._voice = None
            voice.stop()
            feeder.close()
            if self._over.done():
                # Nobody needs to hear of it if something else has ended the stream before.
                self._over.exception()

    def _require_sound(self, feeder: FeedSide) -> None:
        """Raise `RefusedError` if nothing was asked for long, and nothing is owed."""
        if self._now_ms() - self._heard_ms > self._silent_ms and feeder.due_ms() is None:
            sentence = "Nothing was asked for long."
            raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, sentence)


def _number(told: dict[str, str | bytes], key: str) -> int:
    text = told.get(key)
    if isinstance(text, str) and len(text) <= _DIGITS_MAX and text.isascii() and text.isdecimal():
        return int(text)
    raise RemoteProtocolError(f"{key} must be a number, and is {_shown(text)}.")


def _shown(value: str | bytes | None) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return "nothing" if text is None else repr(text[:_SHOWN_MAX])
