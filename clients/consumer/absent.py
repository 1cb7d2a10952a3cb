"""What a consumer is to read and the cluster does not have: told once, in a sentence each.

A name that is mistyped would else look like a topic in which nothing is written. It is no error:
the topic or the partition is read as soon as somebody makes it.

Not here: saying it (`async_consumer.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.clients.consumer.positions import Bookmark
from ottla.clients.metadata import MetadataCache
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import TopicPartition


class Absent:
    """Looks at metadata, and remembers what was told. What comes and goes again is told again."""

    def __init__(self) -> None:
        self._told: Final = set[str | TopicPartition]()

    def news(
        self, metadata: MetadataCache, names: Iterable[str], bookmarks: Iterable[Bookmark]
    ) -> list[str]:
        """Return a sentence for whatever is missing and was not told yet."""
        assigned = [one.partition for one in bookmarks]
        missing = dict[str | TopicPartition, str]()
        for name in (*names, *(one.topic for one in assigned)):
            if metadata.errors.get(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                missing[name] = f"there is no topic {name}; it is read as soon as it is made"
        for one in assigned:
            topic = metadata.topics.get(one.topic)
            if topic is not None and one.partition >= (count := len(topic.partitions)):
                missing[one] = (
                    f"there is no partition {one}, and {one.topic} has {count}, numbered from 0; "
                    "it is read as soon as it is made"
                )
        news = [sentence for what, sentence in missing.items() if what not in self._told]
        self._told.clear()
        self._told.update(missing)
        return news
