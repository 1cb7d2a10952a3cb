"""What came of a command: an answer for whoever asked, and which parts of the image are new.

Not here: how it came about (`state.py`), and which outcomes are remembered (`replay.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.uuids import UUID


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command was not obeyed."""

    code: ErrorCode
    sentence: str


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What came of a command for one of the partitions that it names."""

    topic_id: UUID
    partition: int
    refusal: Refusal | None = None
    # After the change; −1 if it was refused.
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a command, and which parts of the image are new."""

    refusal: Refusal | None = None
    # Names of topics that were made, changed or deleted.
    topics: tuple[str, ...] = ()
    # Names in `MetadataImage.broker_configs`.
    broker_configs: tuple[str, ...] = ()
    producer_ids: range | None = None
    # The version that a registration or an office was given.
    epoch: int | None = None
    # One for each partition that the command names, in its order.
    results: tuple[PartitionResult, ...] = ()
    # Nobody can tell whether it was obeyed before; this time, it was not (rule 68).
    is_unknown: bool = False
    # The version of the image that holds the change; None where nobody counts all commands.
    version: int | None = None

    def answer(self) -> Outcome:
        """Return what is told to whoever asked, without what is only about the image."""
        return replace(self, topics=(), broker_configs=())


def refused(error: RequestError) -> Outcome:
    return Outcome(Refusal(error.code, error.sentence))


def unknown(sentence: str) -> Outcome:
    return Outcome(Refusal(ErrorCode.REQUEST_TIMED_OUT, sentence), is_unknown=True)
