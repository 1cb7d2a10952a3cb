"""kcat as people use it: topics that come into being by writing, lists, queries, pipes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.clients.brokers import broker
from tests.integration.clients.cases import MOMENT_MS, numbered
from tests.integration.clients.confluent import ConfluentKafka
from tests.integration.clients.kcat import Kcat, KcatFailedError
from tests.integration.clients.port import (
    NewTopic,
    Sending,
    produce,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # kcat cannot create a topic otherwise.
    options = {"auto.create.topics.enable": "true", "num.partitions": "1"}
    with broker(tmp_path_factory.mktemp("node"), options) as address:
        yield address


def test_writing_to_a_topic_creates_it(kcat: Kcat, name: str) -> None:
    kcat.run("-P", "-t", name, "-K=", "-Z", stdin=b"a=1\nb=2\nc=\n")

    told = kcat.run("-C", "-e", "-q", "-t", name, "-f", r"%p %o %k %S %s\n")
    assert told == b"0 0 a 1 1\n0 1 b 1 2\n0 2 c -1 \n"


def test_reading_a_topic_does_not_create_it(kcat: Kcat, name: str) -> None:
    with pytest.raises(KcatFailedError, match="Unknown topic or partition"):
        kcat.run("-C", "-e", "-q", "-t", name)

    assert name not in {topic["topic"] for topic in json.loads(kcat.run("-L", "-J"))["topics"]}


def test_topics_are_listed(kcat: Kcat, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)

    told = json.loads(kcat.run("-L", "-J", "-t", topic))

    assert [broker["name"] for broker in told["brokers"]] == [bootstrap]
    (described,) = told["topics"]
    leaders = {each["partition"]: each["leader"] for each in described["partitions"]}
    assert leaders == {0: told["controllerid"], 1: told["controllerid"]}


@pytest.mark.parametrize(
    ("asked", "offset"),
    [
        pytest.param(-1, 5, id="the end"),
        pytest.param(-2, 0, id="the beginning"),
        pytest.param(MOMENT_MS + 2500, 3, id="a time"),
        pytest.param(MOMENT_MS + 10_000, -1, id="a time after all records"),
    ],
)
def test_offsets_are_queried(
    kcat: Kcat, bootstrap: str, asked: int, offset: int, new_topic: NewTopic
) -> None:
    topic = new_topic()
    produce(ConfluentKafka(bootstrap), topic, numbered(5))

    told = kcat.run("-Q", "-t", f"{topic}:0:{asked}")

    assert told.decode() == f"{topic} [0] offset {offset}\n"


def test_the_last_records_are_read_as_json(kcat: Kcat, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(ConfluentKafka(bootstrap), topic, numbered(5), Sending(codec="zstd"))

    lines = kcat.run("-C", "-e", "-q", "-J", "-t", topic, "-o", "-2").splitlines()

    assert [(told["offset"], told["payload"], told["ts"]) for told in map(json.loads, lines)] == [
        (3, "value 3", MOMENT_MS + 3000),
        (4, "value 4", MOMENT_MS + 4000),
    ]


def test_a_span_of_time_is_read(kcat: Kcat, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(ConfluentKafka(bootstrap), topic, numbered(6))
    span = ["-o", f"s@{MOMENT_MS + 2000}", "-o", f"e@{MOMENT_MS + 4000}"]

    told = kcat.run("-C", "-e", "-q", "-t", topic, *span, "-f", r"%s\n")

    assert told == b"value 2\nvalue 3\n"


def test_ten_thousand_lines_go_through_a_pipe(kcat: Kcat, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    lines = [f"key-{i}=line number {i}" for i in range(10_000)]

    kcat.run("-P", "-t", topic, "-K=", "-z", "lz4", stdin="\n".join(lines).encode())

    told = kcat.run("-C", "-e", "-q", "-t", topic, "-f", r"%k=%s\n").decode().splitlines()
    assert sorted(told) == sorted(lines)
