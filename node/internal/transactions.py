"""What brokers ask of one another for the sake of transactions, over gRPC: both ends.

Not here: writing markers (`node/transactions/marking.py`), admitting (`node/transactions`), and
connections (`channels.py`).

T1  nothing but `PeerAwayError` is raised by the end that asks, whatever the other end does
T2  with TLS only nodes ask, and without it whoever reaches the INTERNAL listener; who means another
    node or cluster is refused with a sentence
T3  any bytes are answered or refused; what is asked for is bounded
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc

from ottla.controller.image import MetadataImage
from ottla.node.internal.identity import Context, WhoIAm
from ottla.node.internal.peers import RefusedError, Told, reason_of
from ottla.node.internal.remote import FAILURES, Ways
from ottla.node.internal.service import CLUSTER_KEY, NODE_KEY, OTHER_CLUSTER, Verifier, parse
from ottla.node.internal.tls import NOBODY
from ottla.node.logs import logger
from ottla.node.transactions.marking import write_markers
from ottla.node.transactions.peers import (
    Admission,
    Admitted,
    Outcomes,
    PeerAwayError,
    WantedMarker,
)
from ottla.node.transactions.words import Place
from ottla.proto.errors import ErrorCode, RemoteProtocolError
from ottla.proto.gen import transactions_pb2 as pb
from ottla.proto.ids import BrokerId
from ottla.proto.options.endpoints import Address
from ottla.proto.records.control import EndMarker, Marker

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_log = logger("internal.transactions")

SERVICE: Final = "ottla.Transactions"
# Longer than a coordinator waits for what is under way.
ADMIT_S: Final = 3.0
# A marker is waited for until it is committed; sent again, it does no harm.
MARKERS_S: Final = 10.0
_PLACES_MAX: Final = 1_000_000
_EPOCH_MAX: Final = 2**15 - 1

_Unary = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
T = TypeVar("T")


# ── Bytes ─────────────────────────────────────────────────────────────────────────────────────


def _write_places(places: Iterable[Place]) -> list[pb.Partitions]:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return [pb.Partitions(topic=topic, indexes=some) for topic, some in topics.items()]


def _read_places(said: Iterable[pb.Partitions]) -> tuple[Place, ...]:
    places = tuple((one.topic, index) for one in said for index in one.indexes)
    if len(places) > _PLACES_MAX or any(index < 0 for _, index in places):
        raise RemoteProtocolError(f"{len(places)} partitions are named, or one below 0.")
    return places


def _write_codes(said: Iterable[pb.Partitions], outcomes: Outcomes) -> pb.Codes:
    return pb.Codes(codes=[int(outcomes[place]) for place in _read_places(said)])


def _read_codes(asked: Iterable[pb.Partitions], told: pb.Codes) -> Outcomes:
    places = _read_places(asked)
    if len(places) != len(told.codes):
        raise RemoteProtocolError(f"{len(told.codes)} codes for {len(places)} partitions.")
    try:
        return {place: ErrorCode(code) for place, code in zip(places, told.codes, strict=True)}
    except ValueError:
        raise RemoteProtocolError("A code that Kafka does not have.") from None


def _write_marker(wanted: WantedMarker) -> pb.WantedMarker:
    end = wanted.end
    return pb.WantedMarker(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        is_commit=end.marker.is_commit,
        coordinator_epoch=end.marker.coordinator_epoch,
        partitions=_write_places(wanted.places),
        is_bumped=end.is_bumped,
    )


def _read_marker(said: pb.WantedMarker) -> WantedMarker:
    _require_producer(said.producer_id, said.producer_epoch)
    marker = Marker(said.is_commit, said.coordinator_epoch)
    end = EndMarker(said.producer_id, said.producer_epoch, marker, said.is_bumped)
    return WantedMarker(end, _read_places(said.partitions))


def _require_producer(producer_id: int, epoch: int) -> None:
    if producer_id < 0 or not 0 <= epoch <= _EPOCH_MAX:
        raise RemoteProtocolError(f"There is no producer {producer_id} of epoch {epoch}.")


# ── The end that asks ─────────────────────────────────────────────────────────────────────────


class RemotePeers:
    """The other brokers, where the metadata say that they are."""

    def __init__(self, me: WhoIAm, channels: Ways, image: Callable[[], MetadataImage]) -> None:
        self._me: Final = me
        self._channels: Final = channels
        self._image: Final = image

    async def write_markers(self, node: BrokerId, wanted: Sequence[WantedMarker]) -> list[Outcomes]:
        asked = pb.MarkersAsked(markers=[_write_marker(one) for one in wanted])

        def read(data: bytes) -> list[Outcomes]:
            told = parse(pb.MarkersAnswer, data).outcomes
            if len(told) != len(asked.markers):
                raise RemoteProtocolError(f"{len(told)} answers to {len(asked.markers)} markers.")
            return [
                _read_codes(one.partitions, codes)
                for one, codes in zip(asked.markers, told, strict=True)
            ]

        return await self._ask(node, "WriteMarkers", asked.SerializeToString(), MARKERS_S, read)

    async def admit(self, node: BrokerId, asked: Admission) -> Admitted:
        message = pb.AdmissionAsked(
            transactional_id=asked.transactional_id,
            producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch,
            partitions=_write_places(asked.places),
            adds=asked.adds,
        )

        def read(data: bytes) -> Admitted:
            told = parse(pb.AdmissionAnswer, data)
            return Admitted(_read_codes(message.partitions, told.outcomes), told.coordinator_epoch)

        return await self._ask(node, "Admit", message.SerializeToString(), ADMIT_S, read)

    async def _ask(
        self, node: BrokerId, method: str, data: bytes, timeout_s: float, read: Callable[[bytes], T]
    ) -> T:
        known = self._image().brokers.get(node)
        if known is None:
            raise PeerAwayError(f"There is no broker {node} in the metadata.")
        address = Address(known.internal_host, known.internal_port)
        cluster = (CLUSTER_KEY, self._me.cluster_id.encode())
        metadata = grpc.aio.Metadata((NODE_KEY, str(node)), cluster)
        try:
            channel = self._channels.to(node, address)
            call: _Unary = channel.unary_unary(f"/{SERVICE}/{method}")
            return read(await call(data, timeout=timeout_s, metadata=metadata))
        except FAILURES as error:
            raise _away(node, address, error) from None


def _away(node: BrokerId, address: Address, error: BaseException) -> PeerAwayError:
    """Return what to raise for it: a cancelled task is cancelled, and nothing else is."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    why = str(error) or type(error).__name__
    if isinstance(error, grpc.aio.AioRpcError):
        why = f"{error.code().name} {reason_of(error)}"
    return PeerAwayError(f"Broker {node} at {address} did not answer: {why}")


# ── The end that is asked ─────────────────────────────────────────────────────────────────────


class TransactionService:
    """Serves other brokers, for as long as this one is a broker."""

    def __init__(self, me: WhoIAm, broker: Broker, verifier: Verifier | None) -> None:
        self._me: Final = me
        self._broker: Final = broker
        self._verifier: Final = verifier
        self._told: Final = Told(_log)

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        unary = grpc.unary_unary_rpc_method_handler
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "WriteMarkers": unary(self._guarded(self.write_markers)),
            "Admit": unary(self._guarded(self.admit)),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def write_markers(self, data: bytes) -> bytes:
        asked = parse(pb.MarkersAsked, data)
        outcomes = await write_markers(self._broker, [_read_marker(one) for one in asked.markers])
        codes = [
            _write_codes(one.partitions, told)
            for one, told in zip(asked.markers, outcomes, strict=True)
        ]
        return pb.MarkersAnswer(outcomes=codes).SerializeToString()

    async def admit(self, data: bytes) -> bytes:
        asked = parse(pb.AdmissionAsked, data)
        _require_producer(asked.producer_id, asked.producer_epoch)
        told = await self._broker.transactions.admit(
            Admission(
                transactional_id=asked.transactional_id,
                producer_id=asked.producer_id,
                producer_epoch=asked.producer_epoch,
                places=_read_places(asked.partitions),
                adds=asked.adds,
            )
        )
        return pb.AdmissionAnswer(
            outcomes=_write_codes(asked.partitions, told.outcomes),
            coordinator_epoch=told.coordinator_epoch,
        ).SerializeToString()

    def _require_meant(self, context: Context) -> None:
        told, me = dict(context.invocation_metadata() or ()), self._me
        if self._verifier is not None and self._verifier.verified_node(context) == NOBODY:
            sentence = "The certificate is that of no node."
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, sentence)
        if told.get(NODE_KEY) != str(me.node_id):
            sentence = f"This is node {me.node_id}, and another one was meant."
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence)
        if told.get(CLUSTER_KEY) != me.cluster_id.encode():
            sentence = f"This is the cluster {me.cluster_id!r}, and another one was meant."
            raise RefusedError(OTHER_CLUSTER, sentence)

    def _guarded(self, work: Callable[[bytes], Awaitable[bytes]]) -> Any:
        async def guarded(data: bytes, context: Context) -> bytes:
            try:
                self._require_meant(context)
                return await work(data)
            except RefusedError as error:
                self._told.ill("call_refused", str(error), caller=context.peer())
                await context.abort(error.code, str(error))
            except RemoteProtocolError as error:
                self._told.ill("call_malformed", str(error), caller=context.peer())
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                # gRPC would answer UNKNOWN and go on; but it is a bug: the node must hear of it.
                what = {"message": "a handler of transactions failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(what)
                raise
            raise AssertionError

        return guarded
