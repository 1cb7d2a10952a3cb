"""The options of our clients: Kafka's names and defaults, and a sentence for every mistake."""

from __future__ import annotations

import re
from typing import cast

import pytest

from ottla.clients import options as rows
from ottla.clients.options import Role, is_idempotent, options_of, read_options
from ottla.clients.serdes import STRING
from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address

# What the documentation promises; the numbers are Kafka's.
PROMISED = {
    Role.PRODUCER: {
        "acks": "all",
        "enable.idempotence": "true",
        "max.in.flight.requests.per.connection": "5",
        "linger.ms": "5",
        "batch.size": "16384",
        "buffer.memory": "33554432",
        "max.block.ms": "60000",
        "retries": "2147483647",
        "delivery.timeout.ms": "120000",
        "request.timeout.ms": "30000",
        "retry.backoff.ms": "100",
        "compression.type": "none",
        "partitioner": "sticky",
    },
    Role.CONSUMER: {
        "fetch.min.bytes": "1",
        "fetch.max.wait.ms": "500",
        "max.partition.fetch.bytes": "1048576",
        "max.poll.records": "500",
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": "5000",
        "auto.offset.reset": "latest",
        "session.timeout.ms": "45000",
        "heartbeat.interval.ms": "3000",
        "max.poll.interval.ms": "300000",
        "isolation.level": "read_uncommitted",
    },
    Role.ADMIN: {"bootstrap.servers": "localhost:9092", "request.timeout.ms": "30000"},
}


@pytest.mark.parametrize("role", Role)
def test_defaults_are_the_promised_ones(role: Role) -> None:
    told = {option.name: option.default_text for option in options_of(role)}
    assert told == {**told, **PROMISED[role]}


@pytest.mark.parametrize("role", Role)
def test_every_default_passes_its_own_check(role: Role) -> None:
    texts = {one.name: one.default_text for one in options_of(role) if one.default_text}
    read_options(role, texts)


def test_python_values_and_texts_mean_the_same() -> None:
    plain = {"linger.ms": 7, "enable.idempotence": False, "bootstrap.servers": ["a:1", "b:2"]}
    texts = {"linger.ms": "7", "enable.idempotence": "false", "bootstrap.servers": "a:1,b:2"}
    for given in (plain, texts):
        options = read_options(Role.PRODUCER, given)
        assert options.value_of(rows.LINGER_MS) == 7
        assert options.value_of(rows.ENABLE_IDEMPOTENCE) is False
        assert options.value_of(rows.BOOTSTRAP_SERVERS) == (Address("a", 1), Address("b", 2))


def test_an_address_alone_is_told_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match='"localhost:9092"}, and str is none'):
        read_options(Role.PRODUCER, cast("dict[str, object]", "localhost:9092"))


@pytest.mark.parametrize(
    ("role", "given", "words"),
    [
        (
            Role.PRODUCER,
            {"linger.msec": 5},
            '"linger.msec" is no option of the producer; is linger.ms',
        ),
        (
            Role.PRODUCER,
            {"group.id": "g"},
            "group.id is an option of the consumer, not of the prod",
        ),
        (Role.PRODUCER, {"acks": 2}, 'acks must be all, 1 or 0; it is "2".'),
        (Role.PRODUCER, {"bootstrap.servers": "x"}, "has no port"),
        (Role.PRODUCER, {"bootstrap.servers": ""}, "bootstrap.servers must be host:port"),
        (Role.PRODUCER, {"linger.ms": None}, "must be a text, a number or a list, not NoneType"),
        (Role.PRODUCER, {"value.serializer": object()}, "with serialize(topic, …)"),
        (Role.PRODUCER, {"value.serializer": "avro"}, "must be one of bytes, string, int32"),
        (Role.PRODUCER, {"partitioner": 5}, "partitioner must be a name or a callable"),
        (Role.PRODUCER, {"security.protocol": "SSL"}, "PLAINTEXT, because this client speaks"),
        (
            Role.PRODUCER,
            {"enable.idempotence": True, "acks": "1"},
            "enable.idempotence=true needs acks=all.",
        ),
        (
            Role.PRODUCER,
            {"delivery.timeout.ms": 1000},
            "delivery.timeout.ms (1000) must be at least linger.ms + request.timeout.ms (30005)",
        ),
        (
            Role.CONSUMER,
            {"heartbeat.interval.ms": 45_000},
            "must be less than session.timeout.ms (45000)",
        ),
        (Role.CONSUMER, {"partition.assignment.strategy": "best"}, "range, roundrobin, sticky"),
    ],
)
def test_a_mistake_is_told_with_what_to_write(
    role: Role, given: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        read_options(role, given)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        read_options(Role.PRODUCER, {"acks": "2", "retires": 1, "linger.ms": -1})
    assert len(told.value.problems) == 3


def test_who_asks_for_less_than_idempotence_needs_goes_without_it() -> None:
    assert is_idempotent(read_options(Role.PRODUCER, {}))
    assert not is_idempotent(read_options(Role.PRODUCER, {"acks": 1}))
    assert not is_idempotent(
        read_options(Role.PRODUCER, {"max.in.flight.requests.per.connection": 6})
    )


def test_a_serde_may_be_given_as_an_object() -> None:
    options = read_options(Role.PRODUCER, {"key.serializer": STRING})
    assert options.value_of(rows.KEY_SERIALIZER) is STRING


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"transaction.two.phase.commit.enable": True}, "needs a transactional.id"),
        ({"transactional.id": "a", "enable.idempotence": False}, "enable.idempotence=true"),
        ({"transactional.id": "a", "acks": "1"}, "transactional.id needs acks=all"),
        (
            {
                "transactional.id": "a",
                "transaction.two.phase.commit.enable": True,
                "transaction.timeout.ms": 1000,
            },
            "leave one of them out",
        ),
    ],
)
def test_what_contradicts_transactions_is_told(given: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        read_options(Role.PRODUCER, given)
