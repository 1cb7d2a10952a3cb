"""What a Kafka broker answers to every bad batch of `tests/unit/proto/records/bad_batches.py`.

Each case goes to a fresh partition, so that no case sees what another one left behind. Cases with
the same bytes under the same topic options are asked once: only we make a difference between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from kio.schema.errors import ErrorCode as KafkaErrorCode

from ottla.proto.records.header import TimestampType
from ottla.proto.records.validate import BatchLimits
from tests.interop.broker import Broker, wait_until
from tests.interop.wire import ClosedByBrokerError, Connection
from tests.unit.proto.records.bad_batches import BadBatch

RECORDED: Final = Path(__file__).with_name("kafka_answers.json")
# A broker unpacks a bomb of ten gigabytes to the end before it answers.
ANSWER_DEADLINE_S: Final = 120.0
TOPIC_DEADLINE_S: Final = 30.0

# Kafka's code, or a word where there is none: "closed" means that it hung up.
Answer = dict[str, int | str | None]
CLOSED: Final[Answer] = {"code": None, "error": "closed"}
_Question = tuple[str, bytes]


def load_answers(path: Path = RECORDED) -> dict[str, Answer]:
    answers: dict[str, Answer] = json.loads(path.read_text())
    return answers


def save_answers(answers: dict[str, Answer], path: Path = RECORDED) -> None:
    path.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")


def ask_kafka(broker: Broker, cases: Iterable[BadBatch]) -> dict[str, Answer]:
    """Return the broker's answer to each case, by the name of the case."""
    questions = {case.name: (_topic_options(case.limits), case.build()) for case in cases}
    places = _make_partitions(broker, set(questions.values()))
    known: dict[_Question, Answer] = {}
    for question in questions.values():
        if question not in known:
            topic, partition = places[question]
            known[question] = _ask(broker, topic, partition, question[1])
    return {name: known[question] for name, question in questions.items()}


def _topic_options(limits: BatchLimits) -> str:
    """Return the limits in Kafka's words. What only we know (`validate_records`) is left out."""
    append_time = limits.timestamp_type is TimestampType.LOG_APPEND_TIME
    return json.dumps(
        {
            "max.message.bytes": str(limits.max_message_bytes),
            "segment.bytes": str(limits.segment_bytes),
            "message.timestamp.type": "LogAppendTime" if append_time else "CreateTime",
            "message.timestamp.before.max.ms": str(limits.timestamp_before_max_ms),
            "message.timestamp.after.max.ms": str(limits.timestamp_after_max_ms),
            "cleanup.policy": "compact" if limits.compacted else "delete",
        }
    )


def _make_partitions(broker: Broker, questions: set[_Question]) -> dict[_Question, tuple[str, int]]:
    """Give each question a partition of its own, in one topic for each set of options."""
    places: dict[_Question, tuple[str, int]] = {}
    with Connection(broker.port) as connection:
        for number, options in enumerate(sorted({options for options, _ in questions})):
            topic = f"hostile-{number}"
            group = [question for question in questions if question[0] == options]
            connection.create_topic(topic, len(group), json.loads(options))
            wait_until(
                partial(_has_leaders, connection, topic, len(group)),
                TOPIC_DEADLINE_S,
                f"{topic} has leaders",
            )
            places.update({question: (topic, i) for i, question in enumerate(group)})
    return places


def _has_leaders(connection: Connection, topic: str, partitions: int) -> bool:
    return connection.partitions_with_leader(topic) == partitions


def _ask(broker: Broker, topic: str, partition: int, batch: bytes) -> Answer:
    # A connection of its own: a broker that hangs up must not take the next case with it.
    with Connection(broker.port, deadline_s=ANSWER_DEADLINE_S) as connection:
        try:
            code = connection.produce(topic, partition, batch)
        except (ClosedByBrokerError, ConnectionResetError):
            return CLOSED
    return {"code": code, "error": KafkaErrorCode(code).name.upper()}
