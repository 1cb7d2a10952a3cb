"""librdkafka writes to a leader that refuses one batch, and takes the next that is on its way.

librdkafka sends up to five batches without waiting. If one of them is answered
OUT_OF_ORDER_SEQUENCE_NUMBER it begins a new producer epoch, and sends again what has no good answer
yet, also what is kept: no log can tell that from something new.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.proto.ids import TopicPartition
from ottla.proto.records.header import HEADER_SIZE, LENGTH_END, read_batch_length, read_header
from tests.integration.nodes import RunningNode, running_node
from tests.integration.refusing import ANSWERS, WRITES
from tests.integration.replicated.reader import records_in

pytestmark = pytest.mark.integration

DEADLINE_S = 30.0
HERE = TopicPartition("orders", 0)
VALUES = [f"record {number}".encode() for number in range(12)]
PROGRAM = "tests.integration.refusing"


def _create(node: RunningNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(HERE.topic, 1, 1)])[HERE.topic].result(DEADLINE_S)


def _write(node: RunningNode, told: dict[bytes, str]) -> None:
    """Send every value in a batch of its own, five at a time; note what is said of each."""
    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "message.timeout.ms": int(DEADLINE_S * 1000),
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        told[message.value() or b""] = "kept" if error is None else error.name()

    # All are there before the first can be sent: so five are on their way at once.
    for value in VALUES:
        producer.produce(HERE.topic, value, partition=HERE.partition, on_delivery=on_delivery)
    assert producer.flush(DEADLINE_S) == 0


def _epochs(data: bytes) -> set[int]:
    """Return the producer epochs of all batches."""
    epochs, position = set[int](), 0
    while position + HEADER_SIZE <= len(data):
        epochs.add(read_header(memoryview(data)[position:]).producer_epoch)
        position += LENGTH_END + read_batch_length(data, position)
    return epochs


@pytest.mark.parametrize(
    ("writes", "answers"),
    [
        pytest.param("2", "1", id="behind-one-that-is-kept-and-was-not-acknowledged"),
        pytest.param("2,3", "1", id="two-of-them"),
        pytest.param("1", "", id="the-first-that-a-producer-ever-sent"),
        pytest.param("1,6,9", "2,5", id="again-and-again"),
    ],
)
def test_what_comes_behind_a_refused_batch_makes_librdkafka_write_nothing_twice(
    writes: str, answers: str, tmp_path: Path
) -> None:
    # A slow disk: the first answer is given when all five have come.
    environment = {WRITES: writes, ANSWERS: answers, "OTTLA_FAULTS": "slow_sync_ms=150"}
    told = dict[bytes, str]()
    with running_node(tmp_path, environment=environment, program=PROGRAM) as node:
        _create(node)
        _write(node, told)
    data = (tmp_path / "data" / str(HERE) / f"{0:020}.log").read_bytes()
    assert told == dict.fromkeys(VALUES, "kept")
    assert [found.value for found in records_in(data)] == VALUES
    assert _epochs(data) == {0}, "it had no reason to begin another epoch"
