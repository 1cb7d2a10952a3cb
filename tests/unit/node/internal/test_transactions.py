"""What brokers ask of one another for the sake of transactions, over real gRPC on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast
from uuid import UUID

import grpc
import pytest

from ottla.controller.image import BrokerInfo, MetadataImage
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.service import CLUSTER_KEY, NODE_KEY
from ottla.node.internal.transactions import SERVICE, RemotePeers, TransactionService
from ottla.node.transactions.peers import Admission, Admitted, PeerAwayError, WantedMarker
from ottla.proto.errors import ErrorCode
from ottla.proto.gen import transactions_pb2 as pb
from ottla.proto.ids import BrokerId
from ottla.proto.options.endpoints import Address
from ottla.proto.records.control import EndMarker, Marker
from tests.unit.node.kafka.desk import Place, open_desk

if TYPE_CHECKING:
    from ottla.node.broker import Broker

ANYWHERE = Address("127.0.0.1", 0)
HERE = BrokerId(2)
CLUSTER = "c"
NEGATIVE = pb.Partitions(topic="t", indexes=[-1])
ASKED = Admission(
    transactional_id="x",
    producer_id=7,
    producer_epoch=1,
    places=(("t", 0), ("u", 3), ("t", 1)),
    adds=True,
)


class Coordinator:
    """Answers with a code for each partition, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[Admission] = []
        self.transactions = self

    async def admit(self, asked: Admission) -> Admitted:
        self.asked.append(asked)
        codes = (ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTION_ABORTABLE)
        return Admitted(dict(zip(asked.places, codes, strict=True)), 4)


Story = Callable[[RemotePeers, Coordinator, grpc.aio.Channel], Awaitable[None]]


def run(story: Story, *, cluster: str = CLUSTER, broker: Broker | None = None) -> None:
    async def within() -> None:
        me = WhoIAm(HERE, UUID(int=1), CLUSTER)
        coordinator = Coordinator()
        served = cast("Broker", coordinator) if broker is None else broker
        listener = InternalListener(ANYWHERE, None)
        listener.add(TransactionService(me, served, None).handler)
        address = listener.bind()
        await listener.start()
        info = BrokerInfo(HERE, "h", 1, internal_host=address.host, internal_port=address.port)
        image = MetadataImage(1, CLUSTER, BrokerId(1), {HERE: info})
        channels = Channels(None)
        asker = RemotePeers(WhoIAm(1, UUID(int=2), cluster), channels, lambda: image)
        try:
            async with asyncio.timeout(20):
                await story(asker, coordinator, channels.to(HERE, address))
        finally:
            await channels.close()
            await listener.stop(0)

    asyncio.run(within())


def test_a_question_and_its_answer_are_the_same_on_both_sides() -> None:
    async def story(peers: RemotePeers, coordinator: Coordinator, _: grpc.aio.Channel) -> None:
        told = await peers.admit(HERE, ASKED)
        (asked,) = coordinator.asked
        assert set(asked.places) == set(ASKED.places)
        assert (asked.transactional_id, asked.producer_id, asked.adds) == ("x", 7, True)
        assert told == await coordinator.admit(asked)

    run(story)


def test_markers_are_written_where_they_are_led_and_refused_elsewhere() -> None:
    with open_desk(Place()) as desk:
        desk.create("t", 1)
        end = EndMarker(7, 1, Marker(is_commit=True, coordinator_epoch=0))

        async def story() -> None:
            service = TransactionService(WhoIAm(1, UUID(int=1), CLUSTER), desk.broker, None)
            listener = InternalListener(ANYWHERE, None)
            listener.add(service.handler)
            address = listener.bind()
            await listener.start()
            one = BrokerId(1)
            info = BrokerInfo(one, "h", 1, internal_host=address.host, internal_port=address.port)
            image = MetadataImage(1, CLUSTER, one, {one: info})
            channels = Channels(None)
            peers = RemotePeers(WhoIAm(2, UUID(int=2), CLUSTER), channels, lambda: image)
            wanted = [WantedMarker(end, (("t", 0), ("nowhere", 0))), WantedMarker(end, (("t", 0),))]
            first, second = await peers.write_markers(one, wanted)
            assert first == {
                ("t", 0): ErrorCode.NONE,
                ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert second == {("t", 0): ErrorCode.NONE}
            await channels.close()
            await listener.stop(0)

        desk.run(story())
        # Told twice, written once.
        assert desk.replica("t").log.end_offset == 1


def test_who_means_another_cluster_is_refused() -> None:
    async def story(peers: RemotePeers, _: Coordinator, __: grpc.aio.Channel) -> None:
        with pytest.raises(PeerAwayError, match="another one was meant"):
            await peers.admit(HERE, ASKED)

    run(story, cluster="other")


def test_a_broker_that_is_not_there_is_away() -> None:
    async def story(peers: RemotePeers, _: Coordinator, __: grpc.aio.Channel) -> None:
        with pytest.raises(PeerAwayError, match="no broker 9"):
            await peers.admit(BrokerId(9), ASKED)

    run(story)


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("Admit", b"\xff\xff"),
        ("WriteMarkers", b"\xff\xff"),
        ("Admit", pb.AdmissionAsked(producer_id=-1).SerializeToString()),
        ("Admit", pb.AdmissionAsked(partitions=[NEGATIVE]).SerializeToString()),
        (
            "WriteMarkers",
            pb.MarkersAsked(markers=[pb.WantedMarker(producer_epoch=70_000)]).SerializeToString(),
        ),
    ],
)
def test_what_makes_no_sense_is_refused(method: str, data: bytes) -> None:
    async def story(_: RemotePeers, __: Coordinator, channel: grpc.aio.Channel) -> None:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
        call = channel.unary_unary(f"/{SERVICE}/{method}")
        metadata = grpc.aio.Metadata((NODE_KEY, str(HERE)), (CLUSTER_KEY, CLUSTER.encode()))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(data, metadata=metadata)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(story)
