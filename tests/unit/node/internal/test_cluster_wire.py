"""The messages between brokers and controllers: what is written is read back, the rest refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.controller.commands import Partitions
from ottla.controller.door import (
    Beat,
    BeatAnswer,
    Denied,
    News,
    NotActive,
    QuorumView,
    Registered,
    Registration,
    Unresolved,
)
from ottla.controller.image import ClientEndpoint
from ottla.controller.outcome import Outcome, PartitionResult, Refusal
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.port import QuorumStatus, Role
from ottla.node.internal import cluster_wire as wire
from ottla.node.internal.service import parse, peer_address
from ottla.proto.errors import ErrorCode, RemoteProtocolError
from ottla.proto.gen import cluster_pb2 as pb
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID

_nodes = st.integers(0, 2**31 - 1)
_numbers = st.integers(-(2**63), 2**63 - 1)
_ids = st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_codes = st.sampled_from(ErrorCode)
_ports = st.integers(1, 65_535)
_damaged: st.SearchStrategy[Partitions] = st.dictionaries(
    _ids, st.sets(st.integers(0, 2**31 - 1), min_size=1).map(sorted).map(tuple), max_size=3
)
_not_active = st.builds(NotActive, st.none() | _nodes)
_denied = st.builds(Denied, _codes, _texts)
_registrations = st.builds(
    Registration,
    cluster_id=_texts,
    broker_id=_nodes.map(BrokerId),
    incarnation=_ids,
    directory_id=_ids,
    boot_id=_ids,
    previous_epoch=_numbers,
    host=_texts,
    port=_ports,
    internal_host=_texts,
    internal_port=_ports,
    rack=st.none() | _texts,
    feature_level_max=st.integers(0, 100),
    endpoints=st.lists(st.builds(ClientEndpoint, _texts, _texts, _ports), max_size=3).map(tuple),
)
_beats = st.builds(
    Beat,
    broker_id=_nodes.map(BrokerId),
    broker_epoch=_numbers,
    applied_version=_numbers,
    is_recovered=st.booleans(),
    wants_fence=st.booleans(),
    wants_shutdown=st.booleans(),
    damaged=_damaged,
)
_outcomes = st.builds(
    Outcome,
    refusal=st.none() | st.builds(Refusal, _codes, _texts),
    producer_ids=st.none() | st.just(range(3, 9)),
    epoch=st.none() | st.integers(0, 2**40),
    results=st.lists(
        st.builds(PartitionResult, _ids, st.integers(0, 99), partition_epoch=st.integers(-1, 9)),
        max_size=3,
    ).map(tuple),
    is_unknown=st.booleans(),
    version=st.none() | st.integers(0, 2**40),
)
_statuses = st.builds(
    QuorumStatus,
    node_id=_nodes,
    standing=st.sampled_from(Standing),
    role=st.sampled_from(Role),
    term=_numbers,
    leader=st.none() | _nodes,
    voters=st.lists(_nodes, max_size=5, unique=True).map(tuple),
    first_index=_numbers,
    last_index=_numbers,
    commit_index=_numbers,
    applied_index=_numbers,
    acknowledged=st.dictionaries(_nodes, _numbers, max_size=4),
    halted=st.none() | _texts,
    admitted=st.dictionaries(_nodes, st.none() | _texts.filter(bool), max_size=4),
    trouble=st.none() | _texts,
)
_views = st.builds(QuorumView, _statuses, st.dictionaries(_nodes, _numbers, max_size=4))


@given(_registrations)
def test_a_registration_is_read_back(value: Registration) -> None:
    data = wire.write_registration(value).SerializeToString()
    assert wire.read_registration(parse(pb.Registration, data)) == value


@given(_beats)
def test_a_heartbeat_is_read_back(value: Beat) -> None:
    data = wire.write_beat(value).SerializeToString()
    assert wire.read_beat(parse(pb.Beat, data)) == value


@given(st.builds(Registered, _numbers) | _not_active | _denied)
def test_the_answer_to_a_registration_is_read_back(value: Registered | NotActive | Denied) -> None:
    data = wire.write_registration_answer(value).SerializeToString()
    assert wire.read_registration_answer(parse(pb.RegistrationAnswer, data)) == value


@given(
    st.builds(BeatAnswer, st.none() | _codes, st.booleans(), st.booleans(), st.integers(-1, 9))
    | _not_active,
)
@example(BeatAnswer(ErrorCode.NONE))
def test_the_answer_to_a_heartbeat_is_read_back(value: BeatAnswer | NotActive) -> None:
    data = wire.write_beat_answer(value).SerializeToString()
    read = wire.read_beat_answer(parse(pb.HeartbeatAnswer, data))
    assert read == value
    assert isinstance(read, NotActive) or read.version == getattr(value, "version", None)


@given(_outcomes | _not_active | _denied | st.builds(Unresolved, _texts))
def test_the_answer_to_a_proposal_is_read_back(
    value: Outcome | NotActive | Denied | Unresolved,
) -> None:
    data = wire.write_proposal_answer(value).SerializeToString()
    assert wire.read_proposal_answer(parse(pb.ProposalAnswer, data)) == value


@given(_numbers | _not_active)
@example(0)
def test_a_version_is_read_back(value: int | NotActive) -> None:
    data = wire.write_version_answer(value).SerializeToString()
    assert wire.read_version_answer(parse(pb.VersionAnswer, data)) == value


@given(_views | _not_active)
def test_a_view_of_the_quorum_is_read_back(value: QuorumView | NotActive) -> None:
    data = wire.write_quorum_answer(value).SerializeToString()
    assert wire.read_quorum_answer(parse(pb.QuorumAnswer, data)) == value


# ── What nobody should send ───────────────────────────────────────────────────────────────────

READERS: list[tuple[type[Any], Callable[[Any], object]]] = [
    (pb.Registration, wire.read_registration),
    (pb.RegistrationAnswer, wire.read_registration_answer),
    (pb.Beat, wire.read_beat),
    (pb.HeartbeatAnswer, wire.read_beat_answer),
    (pb.ProposalAnswer, wire.read_proposal_answer),
    (pb.VersionAnswer, wire.read_version_answer),
    (pb.QuorumAnswer, wire.read_quorum_answer),
    (pb.Followed, wire.read_followed),
    (pb.NewsPart, lambda part: wire.NewsReader().take(part)),
]


@given(st.sampled_from(READERS), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_and_nothing_else(
    reader: tuple[type[Any], Callable[[Any], object]], data: bytes
) -> None:
    kind, read = reader
    with suppress(RemoteProtocolError):
        read(parse(kind, data))


@given(st.sampled_from(READERS), _beats, _registrations, st.data())
def test_any_damage_to_a_message_is_read_or_refused_and_nothing_else(
    reader: tuple[type[Any], Callable[[Any], object]],
    beat: Beat,
    wanted: Registration,
    data: st.DataObject,
) -> None:
    kind, read = reader
    sound = data.draw(
        st.sampled_from(
            [
                wire.write_beat(beat).SerializeToString(),
                wire.write_registration(wanted).SerializeToString(),
            ]
        )
    )
    at = data.draw(st.integers(0, max(0, len(sound) - 1)))
    damaged = sound[:at] + data.draw(st.binary(max_size=3)) + sound[at + 1 :]
    with suppress(RemoteProtocolError):
        read(parse(kind, damaged))


def _registration() -> pb.Registration:
    return pb.Registration(
        broker_id=1,
        incarnation=bytes(16),
        directory_id=bytes(16),
        boot_id=bytes(16),
        port=1,
        internal_port=1,
    )


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"broker_id": -1}, "the broker id is -1"),
        ({"incarnation": b"short"}, "5 bytes instead of 16"),
        ({"boot_id": b""}, "0 bytes instead of 16"),
        ({"port": 0}, "the port is 0"),
        ({"internal_port": 70_000}, "the internal port is 70000"),
        ({"host": "h" * 2000}, "2000 characters"),
        ({"rack": "r" * 1025}, "at most 1024"),
    ],
)
def test_a_registration_that_cannot_be_is_refused(fields: dict[str, Any], what: str) -> None:
    message = _registration()
    message.MergeFrom(pb.Registration(**fields))
    for name, value in fields.items():
        setattr(message, name, value)
    with pytest.raises(RemoteProtocolError, match=what):
        wire.read_registration(message)


@pytest.mark.parametrize(
    "damaged",
    [
        [pb.DamagedTopic(topic_id=bytes(16))],
        [pb.DamagedTopic(topic_id=bytes(16), partitions=[2, 1])],
        [pb.DamagedTopic(topic_id=bytes(16), partitions=[1, 1])],
        [pb.DamagedTopic(topic_id=bytes(16), partitions=[-1])],
        [pb.DamagedTopic(topic_id=bytes(16), partitions=[1])] * 2,
        [pb.DamagedTopic(topic_id=b"x", partitions=[1])],
        [pb.DamagedTopic(topic_id=bytes(16), partitions=range(wire.DAMAGED_MAX))],
    ],
    ids=["none", "descending", "twice", "negative", "topic twice", "no id", "too many"],
)
def test_damage_that_cannot_be_is_refused(damaged: list[pb.DamagedTopic]) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.read_beat(pb.Beat(broker_id=1, damaged=damaged))


def test_an_answer_that_answers_nothing_is_refused() -> None:
    for kind, read in READERS:
        if kind.__name__.endswith("Answer"):
            with pytest.raises(RemoteProtocolError, match="answers nothing"):
                read(kind())


# ── Pieces of metadata ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, wire.PART_BYTES, wire.PART_BYTES + 1, 5 << 20])
def test_metadata_of_any_size_travels_in_parts_of_a_mebibyte(size: int) -> None:
    reader = wire.NewsReader()
    for version, is_image in ((7, True), (8, False)):
        news = News(bytes(range(256)) * (size // 256) + b"x" * (size % 256), is_image, version)
        parts = list(wire.write_news(news))
        assert all(len(part.data) <= wire.PART_BYTES for part in parts)
        assert [reader.take(part) for part in parts] == [None] * (len(parts) - 1) + [news]


@pytest.mark.parametrize(
    "second",
    [
        {"version": 8},
        {"is_image": False},
        {"left": 1},
        {"left": -2},
        {"data": b""},
        {"data": b"abcdefgh"},
    ],
    ids=str,
)
def test_parts_that_do_not_fit_together_are_refused(second: dict[str, Any]) -> None:
    reader = wire.NewsReader()
    part: dict[str, Any] = {"version": 7, "is_image": True, "data": b"ab", "left": 4}
    assert reader.take(pb.NewsPart(**part)) is None
    with pytest.raises(RemoteProtocolError):
        reader.take(pb.NewsPart(**{**part, "left": 2, **second}))


@pytest.mark.parametrize("left", [wire.NEWS_BYTES_MAX, 2**62, -3])
def test_metadata_that_claims_to_be_huge_is_refused_at_its_first_part(left: int) -> None:
    with pytest.raises(RemoteProtocolError, match="a piece of metadata has"):
        wire.NewsReader().take(pb.NewsPart(version=1, data=b"x", left=left))


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1"),
        ("ipv6:[::1]:5000", "::1"),
        ("ipv6:%5B2001:db8::7%5D:5000", "2001:db8::7"),
        ("unix:/tmp/x", None),
        ("", None),
    ],
)
def test_the_address_of_a_peer_is_found(peer: str, address: str | None) -> None:
    assert peer_address(peer) == address


def test_long_sentences_are_cut_before_they_are_sent() -> None:
    long = Denied(ErrorCode.INVALID_REQUEST, "x" * 5000)
    answer = wire.write_registration_answer(long)
    assert wire.read_registration_answer(answer) == replace(long, sentence="x" * wire.TEXT_MAX)
