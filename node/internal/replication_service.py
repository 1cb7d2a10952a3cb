"""The leader's end of replication streams: the handler of `/ottla.Replication/Pull`.

A follower dials, and says in the metadata of the call who it is and whom it means. From then on
its frames go to a `Feeder`, and the frames of the feeder go back, as they are: raw bytes.

Not here: what a frame means (`ottla.replication.feeding`), the server (`listener.py`), the other
end (`replication_stream.py`).

R1  with TLS a follower speaks for itself only, and without it only brokers of this cluster do
R2  of one follower, one stream is served: the newest, unless it is of an earlier life
R3  a feeder is closed exactly once, however its stream ends
R4  a stream that is malformed, or silent while nothing is owed to it, ends with a reason; no other
    stream notices
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import grpc

from ottla.node.internal.identity import Context, WhoIAm
from ottla.node.internal.peers import RefusedError, Told
from ottla.node.internal.service import CLUSTER_KEY, NODE_KEY, Verifier
from ottla.node.internal.tls import NOBODY
from ottla.node.internal.two_way import Voice, until_first_ends
from ottla.node.logs import logger
from ottla.proto.errors import RemoteProtocolError
from ottla.proto.ids import BrokerId

_log = logger("internal.replication")

SERVICE: Final = "ottla.Replication"
PULL: Final = f"/{SERVICE}/Pull"
# In the metadata of the call, beside those of `service.py`: who follows, and in which life.
FOLLOWER_KEY: Final = "ottla-from"
EPOCH_KEY: Final = "ottla-broker-epoch"
# Followers ask again as soon as they are answered.
SILENT_MS: Final = 30_000

_DIGITS_MAX: Final = 19
_END_TRIES: Final = 50
_END_PAUSE_S: Final = 0.01
_SHOWN_MAX: Final = 100

Buffer = bytes | bytearray | memoryview


class FeedSide(Protocol):
    """What is behind the leader's end of one stream: a `Feeder`."""

    def take(self, ask: bytes) -> None:
        """Hear the follower; raise `RemoteProtocolError` if that is no ask."""

    def next_answer(self) -> Sequence[Buffer] | None:
        """Return the pieces of the next answer, or None if none is due."""

    def due_ms(self) -> int | None:
        """Return when to ask for an answer for time's sake; None if no answer is owed."""

    def close(self) -> None: ...


# Given the follower, and what to call when an answer may be due, and when its time may be another.
MakeFeeder = Callable[[BrokerId, Callable[[], None], Callable[[], None]], FeedSide]


class _EndedError(RefusedError):
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
        silent_ms: int = SILENT_MS,
    ) -> None:
        """`is_broker` says whether the metadata know such a broker."""
        self._me: Final = me
        self._make_feeder: Final = make_feeder
        self._is_broker: Final = is_broker
        self._now_ms: Final = now_ms
        self._verifier: Final = verifier
        self._silent_ms: Final = silent_ms
        self._streams: Final[dict[BrokerId, _Stream]] = {}
        self._told: Final = Told(_log)
        self._is_stopped = False

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        """Return the service, for the INTERNAL listener."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Pull": grpc.stream_stream_rpc_method_handler(self._pull)
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    @property
    def followers(self) -> list[BrokerId]:
        """Return who pulls from here at the moment."""
        return list(self._streams)

    async def stop(self) -> None:
        """Serve nobody any more. Every feeder is closed when this returns."""
        self._is_stopped = True
        streams = list(self._streams.values())
        for stream in streams:
            stream.end(_EndedError(grpc.StatusCode.UNAVAILABLE, "This broker is stopping."))
        for stream in streams:
            await stream.ended.wait()

    async def _pull(self, _: object, context: Context) -> None:
        try:
            follower, epoch = self._caller(context)
            await self._serve(follower, epoch, context)
        except _EndedError as error:
            _log.debug("stream_ended", caller=context.peer(), why=str(error))
            await _end(context, error.code, str(error))
        except RefusedError as error:
            self._told.ill("stream_refused", str(error), caller=context.peer())
            await _end(context, error.code, str(error))
        except RemoteProtocolError as error:
            self._told.ill("stream_malformed", str(error), caller=context.peer())
            await _end(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Exception as error:
            # gRPC would answer UNKNOWN and go on; but it is a bug, and the node must hear of it.
            what = {"message": "the leader's end of a replication stream", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)
            raise

    async def _serve(self, follower: BrokerId, epoch: int, context: Context) -> None:
        before = self._streams.get(follower)
        if before is not None and epoch < before.epoch:
            sentence = f"Broker {follower} has begun another life since, and pulls from here."
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence)
        stream = _Stream(epoch, now_ms=self._now_ms, silent_ms=self._silent_ms)
        self._streams[follower] = stream
        try:
            if before is not None:
                sentence = f"A newer stream of broker {follower} has taken the place of this one."
                before.end(_EndedError(grpc.StatusCode.ABORTED, sentence))
                # Two feeders of one follower would both be fed.
                await before.ended.wait()
            _log.debug("follower_connected", follower=follower, caller=context.peer())
            await stream.serve(self._make_feeder(follower, stream.wake, stream.look), context)
        finally:
            stream.ended.set()
            if self._streams.get(follower) is stream:
                del self._streams[follower]

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

    def __init__(self, epoch: int, *, now_ms: Callable[[], int], silent_ms: int) -> None:
        self.epoch: Final = epoch
        # Set when its feeder is closed.
        self.ended: Final = asyncio.Event()
        self._now_ms: Final = now_ms
        self._silent_ms: Final = silent_ms
        self._heard_ms = now_ms()
        self._voice: Voice | None = None
        self._is_ending: Final = asyncio.Event()
        self._why: _EndedError | None = None

    def wake(self) -> None:
        if self._voice is not None:
            self._voice.wake()

    def look(self) -> None:
        if self._voice is not None:
            self._voice.look()

    def end(self, why: _EndedError) -> None:
        self._why = self._why or why
        self._is_ending.set()

    async def serve(self, feeder: FeedSide, context: Context) -> None:
        """Feed until the follower has ended the stream; raise why if it ends otherwise."""

        def answers() -> list[bytes]:
            pieces = feeder.next_answer()
            return [] if pieces is None else [b"".join(pieces)]

        voice = Voice(answers, due_ms=feeder.due_ms, now_ms=self._now_ms)
        self._voice = voice
        try:
            await until_first_ends(
                self._until_ended(),
                self._hear(feeder, voice, context),
                self._say(voice, context),
                self._watch(feeder),
            )
        finally:
            self._voice = None
            feeder.close()

    async def _hear(self, feeder: FeedSide, voice: Voice, context: Context) -> None:
        while isinstance(ask := _as_object(await context.read()), bytes):
            self._heard_ms = self._now_ms()
            # What it has to say now another task writes (V4): on a slow link that takes long, and
            # what the follower holds by then must be heard, because writers wait for it.
            feeder.take(ask)
            voice.look()

    async def _say(self, voice: Voice, context: Context) -> None:
        # What failed is the connection, of which gRPC tells the handler by cancelling it.
        with suppress(grpc.aio.BaseError):
            await voice.run(context.write)
        await self._is_ending.wait()

    async def _watch(self, feeder: FeedSide) -> None:
        while True:
            left_ms = self._heard_ms + self._silent_ms - self._now_ms()
            if left_ms <= 0:
                if feeder.due_ms() is None:
                    sentence = "Nothing was asked for long."
                    raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, sentence)
                # It waits for an answer that is owed to it.
                left_ms = self._silent_ms
            await asyncio.sleep(left_ms / 1000)

    async def _until_ended(self) -> None:
        await self._is_ending.wait()
        if self._why is not None:
            raise self._why


async def _end(context: Context, code: grpc.StatusCode, why: str) -> None:
    """End the call with the reason; it raises, as `abort` does.

    A frame that was being written when its task was cancelled is still on its way in gRPC, which
    then takes no reason yet.
    """
    for _ in range(_END_TRIES):
        try:
            await context.abort(code, why)
        except grpc.aio.AbortError:
            raise
        except grpc.aio.BaseError:
            await asyncio.sleep(_END_PAUSE_S)


def _number(told: dict[str, str | bytes], key: str) -> int:
    text = told.get(key)
    if isinstance(text, str) and len(text) <= _DIGITS_MAX and text.isascii() and text.isdecimal():
        return int(text)
    raise RemoteProtocolError(f"{key} must be a number, and is {_shown(text)}.")


def _shown(value: str | bytes | None) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return "nothing" if text is None else repr(text[:_SHOWN_MAX])


def _as_object(read: object) -> object:
    """Forget the type: at the end of a stream something else than bytes is read."""
    return read
