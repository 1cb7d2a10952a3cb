"""Rule 68 on the broker's side: nobody follows back, and nobody follows two truths."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.commands import DeleteTopic
from ottla.controller.delta import (
    NotFollowed,
    decode_delta,
    delta_between,
    encode_delta,
    follow,
    follow_whole,
)
from ottla.proto.errors import CorruptionError, InvariantError, StorageError
from tests.unit.controller.cluster import Cluster


def _grown() -> Cluster:
    cluster = Cluster(2)
    cluster.create(*[(1, 2)] * 50)
    return cluster


def test_a_delta_tells_only_what_is_new() -> None:
    cluster = _grown()
    before = cluster.image
    assert cluster.alter_one(1, cluster.change([1], index=7)) is None
    delta = delta_between(before, cluster.image)
    assert not delta.topics
    assert not delta.brokers
    assert delta.broker_configs is None
    (topic,) = delta.topics_changed
    assert list(topic.partitions) == [7]
    assert topic.configs is None
    assert len(encode_delta(delta)) < 200


def test_rule_68_what_is_older_is_passed_over() -> None:
    cluster = _grown()
    before = cluster.image
    cluster.fence(1)
    delta = cluster.machine.last_delta
    assert delta is not None
    cluster.fence(2)
    assert follow(cluster.image, delta) is NotFollowed.OLD
    assert follow_whole(cluster.image, before) is NotFollowed.OLD


def test_rule_68_after_a_gap_a_whole_image_is_needed() -> None:
    cluster = _grown()
    before = cluster.image
    cluster.fence(1)
    cluster.fence(2)
    last = cluster.machine.last_delta
    assert last is not None
    assert follow(before, last) is NotFollowed.GAP
    assert follow_whole(before, cluster.image) is cluster.image


def test_rule_68_one_version_with_two_digests_halts() -> None:
    cluster = _grown()
    before = cluster.image
    cluster.fence(1)
    delta = cluster.machine.last_delta
    assert delta is not None
    other = replace(cluster.image, digest=b"another")
    with pytest.raises(InvariantError, match="the same wherever it comes from"):
        follow(other, delta)
    with pytest.raises(InvariantError, match="the same wherever it comes from"):
        follow_whole(other, cluster.image)
    with pytest.raises(InvariantError, match="the same wherever it comes from"):
        follow(replace(before, digest=b"another"), delta)


def test_rule_4_epochs_that_go_back_halt() -> None:
    cluster = _grown()
    before = cluster.image
    cluster.fence(1)
    back = replace(before, version=cluster.image.version + 1, digest=b"later")
    with pytest.raises(InvariantError, match="only grow"):
        follow_whole(cluster.image, back)
    with pytest.raises(InvariantError, match="only grow"):
        follow(cluster.image, delta_between(cluster.image, back))


def test_an_image_of_another_cluster_halts() -> None:
    cluster = _grown()
    with pytest.raises(InvariantError, match="of this cluster"):
        follow_whole(cluster.image, replace(cluster.image, cluster_id="other", version=99))


def test_rule_5_a_topic_that_was_made_again_is_another_topic() -> None:
    cluster = _grown()
    before = cluster.image
    cluster.ok(DeleteTopic("t", before.topics["t"].topic_id))
    cluster.create((1, 2))
    delta = delta_between(before, cluster.image)
    assert delta.topics_gone == (before.topics["t"].topic_id,)
    assert [topic.name for topic in delta.topics] == ["t"]
    assert follow(before, delta) == cluster.image


@given(st.binary())
def test_garbage_raises_nothing_but_a_storage_error(data: bytes) -> None:
    with suppress(StorageError):
        decode_delta(data)


def test_a_delta_cut_short_is_refused() -> None:
    cluster = _grown()
    assert cluster.machine.last_delta is not None
    data = encode_delta(cluster.machine.last_delta)
    for size in range(0, len(data), 7):
        with pytest.raises(CorruptionError):
            decode_delta(data[:size])
    with pytest.raises(CorruptionError):
        decode_delta(data + b"\0")
