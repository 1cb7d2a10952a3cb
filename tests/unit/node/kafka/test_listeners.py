"""Several listeners for clients: each client is told the addresses of the one it came in by."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from ottla.controller.image import ClientEndpoint
from ottla.controller.proposal import NO_REQUEST, Proposal, encode_proposal
from ottla.node.clock import Clock
from ottla.node.kafka.cluster import describe_cluster
from ottla.node.kafka.connection import Connection
from ottla.node.kafka.leading import endpoints_of
from ottla.node.kafka.listener import Listener, ListenerSettings
from ottla.node.kafka.metadata import metadata
from ottla.node.kafka.requests import Handler
from ottla.node.metrics import Metrics
from ottla.proto.errors import ConfigError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.apis import DESCRIBE_CLUSTER, METADATA, ApiRow
from ottla.proto.options.endpoints import Address
from tests.unit.node.kafka.asking_for_records import until
from tests.unit.node.kafka.one_door import Cluster
from tests.unit.node.kafka.stage import Stage

SETTINGS = ListenerSettings(1_000_000, 100, 100, 60_000)
TWO = BrokerId(2)
ENDPOINTS = (
    ClientEndpoint("INSIDE", "node2", 19092),
    ClientEndpoint("OUTSIDE", "localhost", 9093),
)


_NO_TOPICS = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}
_NO_FENCED = {
    "include_cluster_authorized_operations": False,
    "endpoint_type": 1,
    "include_fenced_brokers": False,
}


def _has_come(listener: Listener, name: str) -> bool:
    return name in {one.listener for one in listener.connections}


def _listener(**ports: int) -> Listener:
    def serve(connection: Connection, frame: memoryview) -> None:
        raise AssertionError("nobody asks anything")

    addresses = {name: Address("127.0.0.1", port) for name, port in ports.items()}
    return Listener(addresses, lambda: SETTINGS, serve, clock=Clock(), metrics=Metrics(version="0"))


def test_a_connection_knows_by_which_listener_it_came() -> None:
    async def story() -> None:
        listener = _listener(INSIDE=0, OUTSIDE=0)
        bound = listener.bind()
        assert list(bound) == ["INSIDE", "OUTSIDE"]
        listener.start()
        try:
            for name, address in bound.items():
                _, writer = await asyncio.open_connection(address.host, address.port)
                await until(partial(_has_come, listener, name))
                writer.close()
                await writer.wait_closed()
        finally:
            listener.stop()

    asyncio.run(story())


def test_a_port_that_is_taken_is_told_with_the_listener_that_wants_it() -> None:
    async def story() -> None:
        first = _listener(INSIDE=0)
        taken = first.bind()["INSIDE"].port
        first.start()
        second = _listener(INSIDE=0, OUTSIDE=taken)
        try:
            with pytest.raises(ConfigError, match=rf":{taken}: .*listeners=OUTSIDE://"):
                second.bind()
        finally:
            second.stop()
            first.stop()

    asyncio.run(story())


@pytest.fixture
def stage() -> Stage:
    """Broker 1 with one listener, and broker 2 with two."""
    cluster = Cluster(size=2)
    wanted = replace(cluster.registration(2), endpoints=ENDPOINTS)
    cluster.feed(encode_proposal(Proposal(NO_REQUEST, wanted)))
    cluster.unfence(2)
    return Stage(cluster=cluster)


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ("INSIDE", ("node2", 19092)),
        ("OUTSIDE", ("localhost", 9093)),
        # Broker 2 has none of this name, so it is told where it is known.
        ("CLIENT", ("host-2", 9092)),
    ],
)
@pytest.mark.parametrize(
    ("handler", "row", "version", "fields"),
    [
        (metadata, METADATA, 12, _NO_TOPICS),
        (describe_cluster, DESCRIBE_CLUSTER, 2, _NO_FENCED),
    ],
)
def test_brokers_are_told_where_clients_of_a_listener_find_them(
    stage: Stage,
    handler: Handler,
    row: ApiRow,
    version: int,
    fields: dict[str, object],
    listener: str,
    expected: tuple[str, int],
) -> None:
    answer = stage.ask(handler, row, version, fields, listener=listener)
    (told,) = [one for one in answer.brokers if one.get("node_id", one.get("broker_id")) == TWO]
    assert (told.host, told.port) == expected
    assert endpoints_of(stage.image, [TWO], listener) == [(TWO, *expected, None)]
