from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from ottla.controller.names import folded, is_internal, is_usable_topic_id, name_problem
from ottla.proto.kafka.uuids import UUID


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "-", "_", "__consumer_offsets", "a" * 249])
def test_what_kafka_allows_is_allowed(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "a" * 250, "/", "\\", "\0", "a\0", "../../etc/x", "é", "٣", " a"),
        *("a ", "a\n", "a:b", "a%2e", "\ud800", "~", "*", "a,b", "CON\t"),
    ],
)
def test_what_kafka_refuses_is_refused_with_a_sentence(name: str) -> None:
    problem = name_problem(name)
    assert problem is not None
    assert problem.endswith(".")


def test_only_the_topics_that_brokers_keep_are_internal() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("__mine")


def test_names_that_differ_in_dots_only_fold_to_the_same() -> None:
    assert folded("a.b_c") == folded("a_b.c")
    assert folded("a-b") != folded("a_b")


def test_an_id_that_would_begin_with_a_dash_is_not_used() -> None:
    for first in range(256):
        drawn = UUID(bytes=bytes([first]) + bytes(14) + b"\x09")
        begins_with_dash = urlsafe_b64encode(drawn.bytes).startswith(b"-")
        assert is_usable_topic_id(drawn) != begins_with_dash
