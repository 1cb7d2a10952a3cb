"""Names and patterns of topics."""

from __future__ import annotations

import pytest

from ottla.clients.consumer.subscribing import wanted_of
from ottla.clients.metadata import TopicInfo
from ottla.proto.errors import ConfigError
from ottla.proto.kafka.uuids import ZERO_UUID

KNOWN = {
    name: TopicInfo(name, ZERO_UUID, (), is_internal=name.startswith("__"))
    for name in ("orders", "orders-eu", "__consumer_offsets")
}


def test_names_are_taken_as_they_are() -> None:
    assert wanted_of("orders").topics({}, internal_too=False) == {"orders"}
    assert wanted_of(["a", "b"]).topics(KNOWN, internal_too=False) == {"a", "b"}
    assert not wanted_of([])


def test_a_pattern_matches_known_topics_that_are_not_internal() -> None:
    assert wanted_of("^ord.*").topics(KNOWN, internal_too=False) == {"orders", "orders-eu"}
    assert wanted_of("^.*").topics(KNOWN, internal_too=True) == set(KNOWN)
    assert wanted_of("^.*").topics(KNOWN, internal_too=False) == {"orders", "orders-eu"}


def test_a_pattern_that_cannot_be_understood_is_told() -> None:
    with pytest.raises(ConfigError, match="cannot be understood"):
        wanted_of("^(")
    with pytest.raises(ConfigError, match="a topic has a name"):
        wanted_of([""])
