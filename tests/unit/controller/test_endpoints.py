"""Brokers with several listeners for clients, in commands, deltas and snapshots.

Endpoints were added when there were clusters already: what those have written is read as before,
and a cluster without such brokers writes, byte for byte, what it always wrote.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest

from ottla.controller.commands import RegisterBroker
from ottla.controller.delta import decode_delta, delta_between, encode_delta
from ottla.controller.image import ClientEndpoint, MetadataImage
from ottla.controller.outcome import Outcome
from ottla.controller.proposal import NO_REQUEST, Proposal, decode_proposal, encode_proposal
from ottla.controller.snapshot import decode_image, decode_state, encode_image, encode_state
from ottla.proto.errors import CorruptionError, ErrorCode
from ottla.proto.ids import BrokerId
from tests.unit.controller.cluster import Cluster

INSIDE = ClientEndpoint("INSIDE", "node4", 19092)
OUTSIDE = ClientEndpoint("OUTSIDE", "localhost", 9095)
FOUR = BrokerId(4)


def _register(cluster: Cluster, *endpoints: ClientEndpoint) -> Outcome:
    wanted = replace(cluster.registration(4), endpoints=endpoints)
    return cluster.feed(encode_proposal(Proposal(NO_REQUEST, wanted)))


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1 to 3 with one listener, and 4 with two."""
    made = Cluster(3)
    assert _register(made, INSIDE, OUTSIDE).refusal is None
    return made


def test_a_client_is_told_the_address_of_its_listener(cluster: Cluster) -> None:
    several, one = cluster.image.brokers[FOUR], cluster.image.brokers[BrokerId(1)]
    assert several.address_for("INSIDE") == ("node4", 19092)
    assert several.address_for("OUTSIDE") == ("localhost", 9095)
    # Who has no such listener is found where it is known.
    assert several.address_for("CLIENT") == (several.host, several.port)
    assert one.address_for("OUTSIDE") == (one.host, one.port)


def test_a_later_life_has_the_endpoints_that_it_says(cluster: Cluster) -> None:
    assert _register(cluster, INSIDE).refusal is None
    assert cluster.image.brokers[FOUR].endpoints == (INSIDE,)
    assert _register(cluster).refusal is None
    assert cluster.image.brokers[FOUR].endpoints == ()


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_port_that_there_is_not_is_refused(cluster: Cluster, port: int) -> None:
    refusal = _register(cluster, INSIDE, replace(OUTSIDE, port=port)).refusal
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_REGISTRATION


def test_they_are_read_as_they_were_written(cluster: Cluster) -> None:
    image = cluster.image
    assert decode_image(encode_image(image)) == image
    assert decode_state(encode_state(cluster.machine.state)) == cluster.machine.state
    empty = MetadataImage(0, image.cluster_id, BrokerId(-1), {})
    delta = delta_between(empty, image)
    assert decode_delta(encode_delta(delta)) == delta
    assert any(one.endpoints for one in delta.brokers)


@pytest.mark.parametrize("endpoints", [(), (INSIDE,), (INSIDE, OUTSIDE)])
def test_a_registration_is_read_as_it_was_written(endpoints: tuple[ClientEndpoint, ...]) -> None:
    wanted = replace(Cluster(1).registration(4), endpoints=endpoints)
    data = encode_proposal(Proposal(NO_REQUEST, wanted))
    read = decode_proposal(data, feature_level=1).command
    assert isinstance(read, RegisterBroker)
    assert read == wanted


def test_every_cut_of_a_delta_with_endpoints_is_noticed(cluster: Cluster) -> None:
    image = cluster.image
    delta = delta_between(MetadataImage(0, image.cluster_id, BrokerId(-1), {}), image)
    data, bare = encode_delta(delta), encode_delta(replace(delta, brokers=delta.brokers[:3]))
    # Without all of that part it is a delta of its own: the stream that carries it has checksums.
    whole = {len(data), len(data) - _tail_bytes(cluster)}
    assert bare
    for size in set(range(len(data))) - whole:
        with pytest.raises(CorruptionError):
            decode_delta(data[:size])


def _tail_bytes(cluster: Cluster) -> int:
    bare = replace(cluster.image.brokers[FOUR], endpoints=())
    without = replace(cluster.image, brokers={**cluster.image.brokers, FOUR: bare})
    return len(encode_image(cluster.image)) - len(encode_image(without))


def test_what_was_written_before_there_were_endpoints_is_written_the_same() -> None:
    cluster = Cluster(3)
    cluster.create((1, 2, 3), (2, 3, 1), configs={"min.insync.replicas": "2"})
    before = cluster.image
    cluster.fence(2)
    registration = cluster.registration(2)
    cluster.start(2)
    cluster.shut_down(3)
    written = (
        encode_proposal(Proposal(NO_REQUEST, registration)),
        encode_delta(delta_between(before, cluster.image)),
        encode_image(cluster.image),
        encode_state(cluster.machine.state),
    )
    # As the version before wrote them.
    assert [sha256(data).hexdigest()[:32] for data in written] == [
        "46ce1b82fc2b04743fbcea9e63b4492a",
        "9113c3343b99ed5763b02a2b458de65a",
        "c22323855e589b7d2fbabbace449990c",
        "e95df315547dc91d7f8dc7c2bf251c08",
    ]
    assert cluster.image.digest.hex() == "2c4230292703874a842531fb3a0bdd68"
