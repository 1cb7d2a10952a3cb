"""A member never starts from a guess: a snapshot is read whole, or not at all."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.machine import MetadataMachine
from ottla.controller.replay import MetadataState, first_state
from ottla.controller.snapshot import decode_image, decode_state, encode_image, encode_state
from ottla.proto.errors import CorruptionError, InvariantError, StorageError
from tests.unit.controller.cluster import Cluster


def _state() -> MetadataState:
    cluster = Cluster(3)
    cluster.create((1, 2, 3), (2, 3, 1), configs={"min.insync.replicas": "2"})
    cluster.fence(2)
    cluster.shut_down(3)
    return cluster.machine.state


def test_every_flipped_bit_is_noticed() -> None:
    data = encode_state(_state())
    for at in range(0, 8 * len(data), 5):
        spoiled = bytearray(data)
        spoiled[at // 8] ^= 1 << at % 8
        with pytest.raises(StorageError):
            decode_state(bytes(spoiled))


def test_every_cut_is_noticed() -> None:
    data = encode_state(_state())
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            decode_state(data[:size])


@given(st.binary())
def test_garbage_raises_nothing_but_a_storage_error(data: bytes) -> None:
    with suppress(StorageError):
        decode_state(data)
    with suppress(StorageError):
        decode_image(data)


def test_an_image_is_not_taken_for_a_state() -> None:
    state = _state()
    with pytest.raises(CorruptionError, match="does not begin as one"):
        decode_state(encode_image(state.image))
    with pytest.raises(CorruptionError, match="does not begin as one"):
        decode_image(encode_state(state))


def test_a_snapshot_of_a_later_level_asks_for_a_newer_program() -> None:
    state = _state()
    later = MetadataState(replace(state.image, feature_level=2), state.sessions)
    with pytest.raises(StorageError, match="feature level 2") as caught:
        decode_state(encode_state(later))
    assert not isinstance(caught.value, CorruptionError)


def test_a_snapshot_of_another_cluster_halts() -> None:
    machine = MetadataMachine(first_state("other"))
    with pytest.raises(InvariantError, match="of this cluster"):
        machine.restore(encode_state(_state()))
