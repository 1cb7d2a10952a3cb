"""Which names and ids a topic may have.

A name becomes a directory and a metric label, so the rules are Kafka's, exactly: what passes here
needs no quoting anywhere.

Not here: whether a name is taken (`state.py`).
"""

from __future__ import annotations

import re
from typing import Final

from ottla.proto.kafka.uuids import UUID

NAME_MAX: Final = 249
# Kept by brokers for themselves. Whoever may create topics may create these too, as in Kafka; but
# they get no more partitions, and are not deleted (ADR 0026).
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
# Kafka keeps its metadata log under this name; no topic may have it.
METADATA_TOPIC: Final = "__cluster_metadata"

_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
# Zero is "no id" and one is the metadata log's.
_RESERVED_IDS_BELOW: Final = 2
# The first six bits of an id that begins with "-" in base64, and would be an option to a command.
_DASH: Final = 62


def name_problem(name: str) -> str | None:
    """Return why a topic cannot have this name, in one sentence, or None."""
    if not name:
        return "A topic's name must not be empty."
    if name in (".", ".."):
        return f"A topic cannot be called {name!r}."
    if len(name) > NAME_MAX:
        return f"A topic's name has at most {NAME_MAX} characters, not {len(name)}."
    if _ALLOWED.fullmatch(name) is None:
        return "A topic's name is made of ASCII letters, digits, '.', '_' and '-' only."
    return None


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def folded(name: str) -> str:
    """Return what two names have in common if a metric could not tell them apart."""
    return name.replace(".", "_")


def is_usable_topic_id(topic_id: UUID) -> bool:
    return topic_id.int >= _RESERVED_IDS_BELOW and topic_id.bytes[0] >> 2 != _DASH
