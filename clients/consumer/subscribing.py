"""What a consumer subscribes to: topics by name, or all that match a pattern.

Not here: who gets their partitions (`assignors.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.clients.metadata import TopicInfo
from ottla.proto.errors import ConfigError

_PATTERN_MARK = "^"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription as a program gives it; empty for none."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return bool(self.names) or self.pattern is not None

    def topics(self, known: Mapping[str, TopicInfo], *, internal_too: bool) -> frozenset[str]:
        """Return the topics by name; for a pattern, those of the known ones that match."""
        if self.pattern is None:
            return self.names
        match = self.pattern.match
        return frozenset(
            name
            for name, topic in known.items()
            if match(name) and (internal_too or not topic.is_internal)
        )


def wanted_of(topics: str | Iterable[str]) -> Wanted:
    """Return what `subscribe` was given; one text that begins with ^ is a pattern."""
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    for name in names:
        if not name or not isinstance(name, str):
            raise ConfigError(f"a topic has a name, and {name!r} is none.")
    if len(names) == 1 and names[0].startswith(_PATTERN_MARK):
        try:
            return Wanted(pattern=re.compile(names[0]))
        except re.error as error:
            raise ConfigError(f"the pattern {names[0]!r} cannot be understood: {error}.") from None
    return Wanted(frozenset(names))
