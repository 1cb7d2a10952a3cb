"""What members say survives the wire, and any bytes are a value or a clear refusal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.quorum.entries import Entry
from ottla.controller.quorum.formation import Account
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.messages import (
    Append,
    AppendAnswer,
    AskPreVote,
    Envelope,
    Message,
    PreVote,
    RequestVote,
    SnapshotPart,
    Vote,
)
from ottla.node.internal import wire
from ottla.proto.errors import RemoteProtocolError
from ottla.proto.gen import quorum_pb2 as pb

numbers = st.integers(0, 1 << 62)
nodes = st.integers(0, (1 << 31) - 1)
names = st.text(st.characters(codec="utf-8"), max_size=wire.TEXT_MAX)
incarnations = st.uuids()
entries = st.builds(Entry, st.binary(max_size=50), numbers, numbers)
MESSAGES: dict[type, st.SearchStrategy[Message]] = {
    RequestVote: st.builds(RequestVote, numbers, numbers, numbers),
    Vote: st.builds(Vote, numbers),
    Append: st.builds(
        Append, numbers, numbers, numbers, numbers, st.lists(entries, max_size=5).map(tuple)
    ),
    SnapshotPart: st.builds(
        SnapshotPart, numbers, numbers, numbers, numbers, st.binary(max_size=50), st.booleans()
    ),
    AppendAnswer: st.builds(AppendAnswer, numbers, st.booleans(), st.booleans()),
    AskPreVote: st.builds(AskPreVote, numbers, numbers, numbers),
    PreVote: st.builds(PreVote, numbers, numbers, st.booleans()),
}
envelopes = st.builds(
    Envelope, names, nodes, nodes, names, names, numbers, numbers, st.one_of(*MESSAGES.values())
)
hellos = st.builds(wire.Hello, names, nodes, nodes, names, names, incarnations)
identities = st.builds(wire.Identity, names, nodes, incarnations)
blanks = st.builds(Account, nodes, names, st.lists(nodes, max_size=5).map(tuple))
accounts = blanks | st.builds(
    Account,
    nodes,
    names,
    st.lists(nodes, max_size=5).map(tuple),
    st.sampled_from([Standing.FORMING, Standing.JOINING, Standing.VOTER]),
    names,
    st.dictionaries(nodes, names | st.none(), max_size=5),
)
DECODERS: list[Callable[[bytes], object]] = [
    wire.decode_frame,
    wire.decode_accepted,
    wire.decode_account,
    wire.decode_identity,
]


@pytest.mark.parametrize("kind", MESSAGES)
@given(st.data())
@settings(max_examples=50)
def test_every_message_survives(kind: type, data: st.DataObject) -> None:
    envelope = Envelope("c", 1, 2, "d", "s", 7, 8, data.draw(MESSAGES[kind]))
    assert wire.decode_frame(wire.encode_envelope(envelope)) == envelope


@given(envelopes)
def test_every_envelope_survives(envelope: Envelope) -> None:
    assert wire.decode_frame(wire.encode_envelope(envelope)) == envelope


@given(hellos)
def test_every_hello_survives(hello: wire.Hello) -> None:
    assert wire.decode_frame(wire.encode_hello(hello)) == hello


@given(accounts)
def test_every_account_survives(account: Account) -> None:
    assert wire.decode_account(wire.encode_account(account)) == account


@given(identities)
def test_every_identity_survives(identity: wire.Identity) -> None:
    assert wire.decode_identity(wire.encode_identity(identity)) == identity


@pytest.mark.parametrize("decode", DECODERS)
@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_any_bytes_are_a_value_or_refused(decode: Callable[[bytes], object], data: bytes) -> None:
    with suppress(RemoteProtocolError):
        decode(data)


@given(envelopes, st.data())
@settings(max_examples=300)
def test_a_damaged_frame_is_a_value_or_refused(envelope: Envelope, data: st.DataObject) -> None:
    frame = bytearray(wire.encode_envelope(envelope))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    for decode in DECODERS:
        with suppress(RemoteProtocolError):
            decode(bytes(frame))


@given(accounts, st.data())
def test_half_an_account_is_a_value_or_refused(account: Account, data: st.DataObject) -> None:
    told = wire.encode_account(account)
    with suppress(RemoteProtocolError):
        wire.decode_account(told[: data.draw(st.integers(0, len(told)))])


@pytest.mark.parametrize(
    ("decode", "data", "sentence"),
    [
        (wire.decode_frame, b"", "neither Hello nor envelope"),
        (wire.decode_frame, pb.Frame(envelope=pb.Envelope()).SerializeToString(), "no message"),
        (wire.decode_frame, b"x" * (wire.FRAME_BYTES_MAX + 1), "are allowed"),
        (wire.decode_frame, b"\x80\x04\x95\x00cos\nsystem\n", "cannot be read"),
        (
            wire.decode_frame,
            pb.Frame(hello=pb.Hello(stream="x" * 129, incarnation=bytes(16))).SerializeToString(),
            "129 characters",
        ),
        (wire.decode_accepted, b"", "0 bytes instead of 16"),
        (wire.decode_account, b"", "not known here"),
        (wire.decode_account, pb.Account(standing=9).SerializeToString(), "not known here"),  # type: ignore[arg-type]
        (
            wire.decode_account,
            pb.Account(standing=pb.STANDING_BLANK, configured=range(101)).SerializeToString(),
            "101 configured voters",
        ),
        (wire.decode_account, bytes(wire.SMALL_BYTES_MAX + 1), "are allowed"),
    ],
)
def test_what_is_wrong_is_told(
    decode: Callable[[bytes], object], data: bytes, sentence: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=sentence):
        decode(data)
