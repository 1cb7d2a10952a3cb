"""What is sent behind a refused batch: Kafka takes it, our node refuses it like that one.

A difference that is meant (docs/acks.md, "Behind a refusal"): librdkafka, whose batches these could
be, counts the first as delivered when the second is, and it is nowhere.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.proto.kafka.apis import INIT_PRODUCER_ID, PRODUCE
from tests.builders import produced
from tests.integration.nodes import running_node
from tests.interop.broker import start_broker
from tests.interop.differential.case import NewTopic, Send
from tests.interop.differential.exchange import Exchange
from tests.interop.differential.stage import build_stage

pytestmark = pytest.mark.interop

TOPIC, STAGED = "late", "staged"
TAKEN = "0 none"
UNKNOWN = "3 unknown_topic_or_partition"
OUT_OF_ORDER = "45 out_of_order_sequence_number"


def _told(exchange: Exchange, producer_id: int, sequence: int) -> str:
    records = produced(b"x", producer_id=producer_id, sequence=sequence)
    data = {"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}
    fields = {"acks": -1, "timeout": 10_000, "topic_data": [data]}
    answer = exchange.ask(Send(PRODUCE, 11, fields))
    assert isinstance(answer, dict)
    code: str = answer["responses"][0]["partition_responses"][0]["error_code"]
    return code


def _story(host: str, port: int) -> list[str]:
    """Two batches of one producer; the topic appears between them. Then both are sent again."""
    with Exchange(host, port) as exchange:
        build_stage(exchange, {STAGED: NewTopic()})
        fields = {"transactional_id": None, "transaction_timeout": 1000}
        answer = exchange.ask(Send(INIT_PRODUCER_ID, 4, fields))
        assert isinstance(answer, dict)
        producer_id = answer["producer_id"]
        told = [_told(exchange, producer_id, 0)]
        build_stage(exchange, {TOPIC: NewTopic()})
        return told + [_told(exchange, producer_id, sequence) for sequence in (1, 0, 1)]


def test_kafka_takes_the_second_batch_and_never_the_first(kafka: None, tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker:
        told = _story("127.0.0.1", broker.port)
    assert told == [UNKNOWN, TAKEN, OUT_OF_ORDER, TAKEN]


def test_our_node_takes_both_in_their_order(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        host, _, port = node.bootstrap.rpartition(":")
        told = _story(host, int(port))
    assert told == [UNKNOWN, UNKNOWN, TAKEN, TAKEN]
