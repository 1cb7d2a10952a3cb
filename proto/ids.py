"""Words with types: an offset is never taken for an epoch.

Not here: anything that knows how an id is made. Ids are given, never drawn, in this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

BrokerId = NewType("BrokerId", int)
# Position of a record in its partition. As an end it is always exclusive.
Offset = NewType("Offset", int)
# Counts the leaders of a partition.
LeaderEpoch = NewType("LeaderEpoch", int)
# Given to an idempotent producer; with its epoch it tells a retry from a new batch.
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)

FIRST_OFFSET: Final = Offset(0)
NO_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One log, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
