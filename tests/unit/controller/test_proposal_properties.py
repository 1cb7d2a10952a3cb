"""Commands as bytes: what was written is read, and nothing else is."""

from __future__ import annotations

from contextlib import suppress
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.commands import Command, CreateTopic, ElectLeaders
from ottla.controller.port import NewTopic
from ottla.controller.proposal import (
    COMMAND_BYTES_MAX,
    KINDS,
    Proposal,
    RequestId,
    decode_proposal,
    encode_proposal,
)
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from tests.unit.controller.metadata import commands, create, quorum_commands, topic_id

_requests = st.builds(
    RequestId,
    st.integers(-1, 9).map(BrokerId),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
)
_commands = commands | quorum_commands
REQUEST = RequestId(BrokerId(1), 2, 3)


@settings(deadline=None)
@given(_requests, _commands)
def test_a_proposal_is_read_as_it_was_written(request_id: RequestId, command: Command) -> None:
    proposal = Proposal(request_id, command)
    # Refused are seeds of more than 69 bits, which nobody throws.
    with suppress(RequestError):
        assert decode_proposal(encode_proposal(proposal), feature_level=1) == proposal


@settings(deadline=None)
@given(_commands, st.data())
def test_a_proposal_cut_short_or_made_longer_is_refused(
    command: Command, data: st.DataObject
) -> None:
    with suppress(RequestError):
        encoded = encode_proposal(Proposal(REQUEST, command))
        size = data.draw(st.integers(0, len(encoded) - 1))
        for spoiled in (encoded[:size], encoded + b"\0"):
            with pytest.raises(RequestError):
                decode_proposal(spoiled, feature_level=1)


@settings(deadline=None)
@given(st.binary() | st.binary().map(lambda rest: b"\x01\x02" + rest))
def test_garbage_is_refused_and_raises_nothing_else(data: bytes) -> None:
    with suppress(RequestError):
        decode_proposal(data, feature_level=1)


@settings(deadline=None)
@given(_commands, st.data())
def test_a_flipped_bit_is_another_command_or_refused(command: Command, data: st.DataObject) -> None:
    with suppress(RequestError):
        encoded = bytearray(encode_proposal(Proposal(REQUEST, command)))
        at = data.draw(st.integers(0, 8 * len(encoded) - 1))
        encoded[at // 8] ^= 1 << at % 8
        assert decode_proposal(bytes(encoded), feature_level=1) is not None


def test_every_command_has_one_number() -> None:
    assert len({kind.number for kind in KINDS}) == len(KINDS)
    assert {kind.command for kind in KINDS} == set(get_args(Command))


def test_what_does_not_fit_into_32_kib_is_refused_before_it_is_proposed() -> None:
    wanted = NewTopic("t", configs={"x": "y" * COMMAND_BYTES_MAX})
    command = CreateTopic(wanted, topic_id(1), create("t").defaults, seed=0)
    with pytest.raises(RequestError, match="at most 32768 bytes") as caught:
        encode_proposal(Proposal(REQUEST, command))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_what_is_larger_is_refused_before_it_is_read() -> None:
    with pytest.raises(RequestError, match="at most 32768 bytes"):
        decode_proposal(bytes(COMMAND_BYTES_MAX + 1), feature_level=1)


def test_5000_partitions_can_be_assigned_one_by_one_in_one_command() -> None:
    replicas = tuple(map(BrokerId, (1, 2, 3)))
    wish = create("t", None, None, assignments=dict.fromkeys(range(5000), replicas))
    assert len(encode_proposal(Proposal(REQUEST, wish))) < COMMAND_BYTES_MAX


def test_all_the_partitions_of_a_topic_are_named_in_a_few_bytes() -> None:
    wish = ElectLeaders("preferred", {topic_id(1): tuple(range(5000))})
    data = encode_proposal(Proposal(REQUEST, wish))
    assert len(data) < 50
    assert decode_proposal(data, feature_level=1).command == wish


def test_a_run_of_numbers_without_end_is_refused_before_it_is_made() -> None:
    wish = ElectLeaders("preferred", {topic_id(1): tuple(range(5))})
    data = encode_proposal(Proposal(REQUEST, wish))
    # The last byte is the length of the only run, as a zigzag varint.
    endless = data[:-1] + b"\xfe\xff\xff\xff\xff\xff\x7f"
    with pytest.raises(RequestError, match="make no sense"):
        decode_proposal(endless, feature_level=1)
