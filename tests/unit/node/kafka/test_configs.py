"""DescribeConfigs and ListConfigResources, row by row.

Where a comment says so, the answer is that of Apache Kafka 4.3.1 to the same request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import DESCRIBE_CONFIGS, LIST_CONFIG_RESOURCES
from ottla.proto.options import node, topic
from tests.unit.node.kafka.asking_for_configs import (
    BROKER,
    TOPIC,
    change,
    describe,
    described,
    entry_of,
)
from tests.unit.node.kafka.desk import Desk, open_desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk(log_retention_hours="1") as opened:
        opened.create("t", retention_ms="5", flush_ms="1")
        yield opened


@pytest.mark.parametrize("version", range(DESCRIBE_CONFIGS.low, DESCRIBE_CONFIGS.high + 1))
def test_every_version_describes_a_topic_and_a_broker(desk: Desk, version: int) -> None:
    of_topic = described(desk, TOPIC, "t", version=version)
    assert set(topic.BY_NAME) <= set(of_topic)
    assert of_topic["retention.ms"]["value"] == "5"
    of_broker = described(desk, BROKER, "1", version=version)
    assert set(node.BY_NAME) <= set(of_broker)
    assert of_broker["node.id"]["value"] == "1"


def test_an_entry_says_all_there_is_to_say(desk: Desk) -> None:
    assert entry_of(desk, TOPIC, "t", "retention.ms") == {
        "name": "retention.ms",
        "value": "5",
        "read_only": False,
        "config_source": 1,
        "is_sensitive": False,
        "synonyms": [
            {"name": "retention.ms", "value": "5", "source": 1},
            # Under the name it was given by, so in hours.
            {"name": "log.retention.hours", "value": "1", "source": 4},
            {"name": "log.retention.ms", "value": "604800000", "source": 5},
        ],
        "config_type": 5,
        "documentation": topic.RETENTION_MS.doc,
    }


def test_every_layer_is_told_strongest_first(desk: Desk) -> None:
    change(desk, BROKER, "", ("log.retention.ms", 0, "20"))
    change(desk, BROKER, "1", ("log.retention.ms", 0, "30"))
    below = [("log.retention.ms", "30", 2), ("log.retention.ms", "20", 3)]
    below += [("log.retention.hours", "1", 4), ("log.retention.ms", "604800000", 5)]
    at_topic = entry_of(desk, TOPIC, "t", "retention.ms")
    at_broker = entry_of(desk, BROKER, "1", "log.retention.ms")
    told = [
        [(one["name"], one["value"], one["source"]) for one in entry["synonyms"]]
        for entry in (at_topic, at_broker)
    ]
    assert told == [[("retention.ms", "5", 1), *below], below]
    assert (at_topic["value"], at_broker["value"]) == ("5", "30")
    assert (at_broker["config_source"], at_broker["read_only"]) == (2, False)


def test_a_topic_without_its_own_value_shows_the_brokers_change(desk: Desk) -> None:
    change(desk, BROKER, "", ("log.segment.bytes", 0, "2000000"))
    entry = entry_of(desk, TOPIC, "t", "segment.bytes")
    assert (entry["value"], entry["config_source"]) == ("2000000", 3)


# The same as Kafka's.
def test_the_defaults_of_all_brokers_show_what_was_changed_and_no_more(desk: Desk) -> None:
    assert described(desk, BROKER, "") == {}
    change(desk, BROKER, "", ("log.retention.ms", 0, "20"))
    (entry,) = described(desk, BROKER, "").values()
    assert (entry["name"], entry["value"], entry["config_source"]) == ("log.retention.ms", "20", 3)
    assert entry["synonyms"] == [{"name": "log.retention.ms", "value": "20", "source": 3}]
    assert entry["read_only"] is False


def test_what_needs_a_restart_is_read_only(desk: Desk) -> None:
    of_broker = described(desk, BROKER, "1")
    assert of_broker["node.id"]["read_only"]
    assert not of_broker["message.max.bytes"]["read_only"]
    assert not any(entry["read_only"] for entry in described(desk, TOPIC, "t").values())


def test_a_topics_option_without_effect_is_shown_as_such(desk: Desk) -> None:
    entry = entry_of(desk, TOPIC, "t", "flush.ms")
    assert (entry["value"], entry["config_source"]) == ("1", 1)
    assert "no effect here" in entry["documentation"]


def test_kafka_ui_finds_the_version_of_the_protocol(desk: Desk) -> None:
    entry = entry_of(desk, BROKER, "1", "inter.broker.protocol.version")
    assert float(entry["value"].split("-")[0]) >= 4
    assert entry["read_only"]


def test_synonyms_and_documentation_are_told_to_those_who_ask(desk: Desk) -> None:
    for synonyms in (False, True):
        for documentation in (False, True):
            (answer,) = describe(
                desk, (TOPIC, "t", ["retention.ms"]), synonyms=synonyms, documentation=documentation
            )
            (entry,) = answer["configs"]
            assert bool(entry["synonyms"]) is synonyms
            assert bool(entry["documentation"]) is documentation


# The same as Kafka's.
def test_only_the_options_that_are_asked_for_are_told(desk: Desk) -> None:
    def names(keys: list[str] | None) -> list[str]:
        (answer,) = describe(desk, (TOPIC, "t", keys))
        return [entry["name"] for entry in answer["configs"]]

    assert names(["retention.ms", "nope", "cleanup.policy"]) == ["cleanup.policy", "retention.ms"]
    assert names(["nope"]) == []
    assert names([]) == names(None)


# The same as Kafka's, but for 8, 16 and 32, which have options there.
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "../../etc/x", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (BROKER, "-1", ErrorCode.INVALID_REQUEST),
        (BROKER, "9" * 5000, ErrorCode.INVALID_REQUEST),
        (BROKER, "٣", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (16, "m", ErrorCode.INVALID_REQUEST),
        (32, "g", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
        (-1, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_says_why(desk: Desk, kind: int, name: str, code: int) -> None:
    (answer,) = describe(desk, (kind, name, None))
    assert (answer["error_code"], answer["configs"]) == (code, [])
    assert answer["error_message"]
    assert len(answer["error_message"]) < 300


# The same as Kafka's.
def test_a_broker_may_be_named_with_leading_zeros(desk: Desk) -> None:
    assert described(desk, BROKER, "01")["node.id"]["value"] == "1"


# The same as Kafka's.
def test_a_type_that_nobody_knows_refuses_the_whole_request(desk: Desk) -> None:
    answers = describe(desk, (TOPIC, "t", None), (99, "x", None))
    assert [one["error_code"] for one in answers] == [ErrorCode.INVALID_REQUEST] * 2


def test_one_that_cannot_be_described_does_not_spoil_another(desk: Desk) -> None:
    answers = describe(desk, (TOPIC, "nope", None), (TOPIC, "t", ["retention.ms"]))
    assert [(one["error_code"], len(one["configs"])) for one in answers] == [(3, 0), (0, 1)]
    assert describe(desk) == []


def test_what_is_asked_for_a_thousand_times_is_answered_once(desk: Desk) -> None:
    answers = describe(desk, *[(TOPIC, "t", None)] * 1000, (TOPIC, "t", ["retention.ms"]))
    assert len(answers) == 2


def test_a_long_answer_lets_others_work_in_between(desk: Desk) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def both() -> None:
        counting = asyncio.create_task(count())
        resources = [
            {"resource_type": TOPIC, "resource_name": f"t{n}", "configuration_keys": None}
            for n in range(200)
        ]
        await desk.asked(DESCRIBE_CONFIGS, 4, resources=resources)
        counting.cancel()

    desk.run(both())
    assert turns >= 10


# ── ListConfigResources ───────────────────────────────────────────────────────────────────────


def listed(desk: Desk, *types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    fields: dict[str, Any] = {"resource_types": list(types)} if version else {}
    answer = desk.ask(LIST_CONFIG_RESOURCES, version, **fields)
    found = [(one["resource_type"], one["resource_name"]) for one in answer["config_resources"]]
    return answer["error_code"], found


# The same as Kafka's, but that brokers have no loggers to list.
def test_what_has_options_is_listed(desk: Desk) -> None:
    desk.create("u")
    topics = [(TOPIC, "t"), (TOPIC, "u")]
    assert listed(desk) == (0, [(BROKER, "1"), *topics])
    assert listed(desk, TOPIC) == listed(desk, TOPIC, TOPIC) == (0, topics)
    assert listed(desk, BROKER) == (0, [(BROKER, "1")])
    assert listed(desk, 8) == listed(desk, 16) == listed(desk, 32) == (0, [])


# The same as Kafka's.
def test_a_type_that_nobody_knows_is_not_listed(desk: Desk) -> None:
    for strange in (0, 99, -1):
        assert listed(desk, TOPIC, strange) == (ErrorCode.UNSUPPORTED_VERSION, [])


# The same as Kafka's.
def test_version_0_asks_for_metrics_subscriptions_of_which_there_are_none(desk: Desk) -> None:
    answer = desk.ask(LIST_CONFIG_RESOURCES, 0)
    assert (answer["error_code"], answer["config_resources"]) == (0, [])
