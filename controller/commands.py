"""What can be done to the metadata.

A command carries everything its outcome depends on beside the image: ids are drawn, defaults are
looked up and seeds are thrown before it is made. So it has the same outcome wherever, and however
often, it is applied.

Not here: what it does (`state.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.controller.port import ConfigChange, NewPartitions, NewTopic, TopicDefaults
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Make a topic under an id that was never used before."""

    wanted: NewTopic
    topic_id: UUID
    defaults: TopicDefaults
    seed: int


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Forget a topic: the one of this id, and not another that got its name since."""

    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Add partitions to the topic of this id."""

    wanted: NewPartitions
    topic_id: UUID
    seed: int


@dataclass(frozen=True, slots=True)
class ChangeConfigs:
    """Change the options of one topic or broker."""

    change: ConfigChange


@dataclass(frozen=True, slots=True)
class TakeProducerIds:
    """Set so many producer ids aside, for one broker to give away."""

    count: int


@dataclass(frozen=True, slots=True)
class StartLeading:
    """A broker has started again: what it leads, it leads under a new leader epoch.

    It may have lost the end of a log, and will give the same offsets to other records. By the
    epoch a reader can tell the ones from the others.
    """

    broker_id: BrokerId


Command = (
    CreateTopic | DeleteTopic | CreatePartitions | ChangeConfigs | TakeProducerIds | StartLeading
)
