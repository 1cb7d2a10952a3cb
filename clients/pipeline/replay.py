"""Dead letters of a pipeline, sent back to the topics they came from: after the cause is mended.

How far the letters have been sent back is kept as offsets of the group `pipeline-NAME-replay`, so
the next replay goes on after them. A letter that is still broken becomes a new dead letter.

L1  a letter goes to the topic that its header names, if the pipeline reads it, with its key and
    value as they were; anything else is counted and left where it is
L2  offsets are stored after everything before them was acknowledged: at least once
L3  only what was there at the beginning is sent back, so a replay ends

Not here: making dead letters (`parsing.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.record import Record
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.metadata import TopicInfo
from ottla.clients.pipeline.declaration import Pipeline
from ottla.clients.producer.batch import Report, State
from ottla.clients.producer.client import Producer
from ottla.clients.reprocessing.plan import ORIGIN_TOPIC, PREFIX
from ottla.proto.errors import ConfigError, OttlaError
from ottla.proto.ids import TopicPartition

_AT_ONCE: Final = 1_000
_WAIT_S: Final = 10.0


class ReplayError(OttlaError):
    """Letters could not be sent back; none of them is taken for sent."""


@dataclass(slots=True)
class Replayed:
    """What a replay did."""

    sent: int = 0
    # Letters without an origin that the pipeline reads.
    left: int = 0


def replay(pipeline: Pipeline) -> Replayed:
    """Send back what the dead-letter topics have beyond the last replay."""
    topics = sorted({topic for one in pipeline.steps if (topic := one.text("dead_letters"))})
    if not topics:
        raise ConfigError("No step of this pipeline names a topic for dead_letters.")
    done = Replayed()
    config: dict[str, object] = {"bootstrap.servers": pipeline.bootstrap}
    reading = {
        **config,
        "group.id": f"pipeline-{pipeline.name}-replay",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        # Letters of a batch that did not count are none.
        "isolation.level": "read_committed",
    }
    with Consumer(reading) as consumer, Producer(config) as producer:
        for where in _partitions(config, topics):
            _replay_partition(pipeline, where, consumer, producer, done)
    return done


def _partitions(config: dict[str, object], topics: list[str]) -> list[TopicPartition]:
    with Admin(config) as admin:
        found = admin.describe_topics(topics)
    places = list[TopicPartition]()
    for name, told in found.items():
        if not isinstance(told, TopicInfo):
            raise told
        places += [TopicPartition(name, number) for number in range(len(told.partitions))]
    return places


def _replay_partition(
    pipeline: Pipeline,
    where: TopicPartition,
    consumer: Consumer,
    producer: Producer,
    done: Replayed,
) -> None:
    consumer.assign([where])
    end = consumer.end_offsets([where])[where]
    while (position := consumer.position(where)) < end:
        letters = [one for one in consumer.consume(_AT_ONCE, _WAIT_S) if one.offset < end]
        if not letters:
            if consumer.position(where) > position:
                # Marks of transactions, and letters that did not count.
                continue
            raise ReplayError(f"{where}: nothing came from offset {position} on.")
        _send_back(pipeline, letters, producer, done)
        consumer.commit({where: letters[-1].offset + 1})
        if letters[-1].offset + 1 >= end:
            return


def _send_back(
    pipeline: Pipeline, letters: list[Record], producer: Producer, done: Replayed
) -> None:
    problems = list[Report]()

    def delivered(report: Report) -> None:
        if report.state is not State.OK:
            problems.append(report)

    sent = 0
    for letter in letters:
        topic = (letter.header(ORIGIN_TOPIC) or b"").decode(errors="replace")
        if topic not in pipeline.topics_read:
            done.left += 1
            continue
        kept: list[tuple[str, Any]] = [one for one in letter.headers if one[0][:6] != PREFIX]
        producer.send(topic, letter.value, key=letter.key, headers=kept, on_delivery=delivered)
        sent += 1
    producer.flush()
    if problems:
        raise ReplayError(
            f"{len(problems)} letters were not taken by {problems[0].topic}: {problems[0].error}"
        )
    done.sent += sent
