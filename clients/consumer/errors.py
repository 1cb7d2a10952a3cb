"""What a consumer raises, beside what every client raises (`clients/errors.py`).

OttlaError
└── ConsumerError
    ├── NoOffsetError      there is no position, and auto.offset.reset says not to choose one
    ├── CommitError        offsets were not committed, or nobody knows whether they were
    ├── GroupError         the coordinator does not take us
    └── FetchError         a broker does not give us a partition, and trying again cannot help
"""

from __future__ import annotations

from typing import Final

from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition


class ConsumerError(OttlaError):
    """The root of what only a consumer raises."""


class NoOffsetError(ConsumerError):
    """A partition has no position, and `auto.offset.reset=none` says not to choose one."""

    def __init__(self, partition: TopicPartition, why: str) -> None:
        super().__init__(
            f"{partition}: {why}, and auto.offset.reset is none; seek, or set it to earliest or "
            "latest."
        )
        self.partition: Final = partition


class CommitError(ConsumerError):
    """Offsets were not committed, or nobody knows whether they were."""

    def __init__(self, sentence: str, code: ErrorCode | None = None) -> None:
        super().__init__(sentence)
        self.code: Final = code


class GroupError(ConsumerError):
    """The coordinator does not take this member, and trying again cannot help."""

    def __init__(self, code: ErrorCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code: Final = code


class FetchError(ConsumerError):
    """A broker does not give a partition out, and trying again cannot help."""

    def __init__(self, partition: TopicPartition, code: ErrorCode) -> None:
        super().__init__(f"{partition}: {code.name}: {code.sentence}")
        self.partition: Final = partition
        self.code: Final = code
