"""Takes out of an answer what may differ between two nodes that behave alike.

Ids that a node chose, addresses and sizes of disks become words in angle brackets. The order of a
list of things with names is not part of the protocol, so such lists are sorted.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from ottla.proto.kafka.apis import (
    CREATE_TOPICS,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    LIST_GROUPS,
    ApiRow,
)
from tests.builders import NOW_MS
from tests.interop.differential.case import ANSWERED, Answer, Ask, Case

TOPIC: Final = "<topic>"
# Ids that the cases themselves send are below this; a node answers them as they came.
CHOSEN_BY_CASES: Final = 1_000
DAY_MS: Final = 86_400_000
PRODUCER_IDS_OF_CASES: Final = 1_000_000
SET_FOR_THE_TOPIC: Final = 1
# Of a longer list only the first entry is kept, and how many there are.
ENTRIES_MAX: Final = 60
_LEFT_OUT: Final = object()
# Fields with words for people.
SENTENCES: Final = frozenset({"error_message", "batch_index_error_message"})
# Such as the time of the day in a sentence.
_LONG_NUMBER: Final = re.compile(r"-?\d{13,}")
# What a coordinator puts behind a client's name to make the id of a member.
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MEMBERS: Final = frozenset({"member_id", "leader"})
# How far a quorum has come is each node's own affair.
_OF_QUORUM: Final = frozenset(
    {
        "leader_epoch",
        "high_watermark",
        "log_end_offset",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
    }
)
# Lists that read better as one line for each key, and the field that is the key.
_TABLES: Final = {
    "api_keys": "api_key",
    "supported_features": "name",
    "finalized_features": "name",
}
# Whose order is an order of preference.
_IN_ORDER: Final = frozenset({"synonyms"})
_NAMES: Final = ("name", "topic", "resource_name", "topic_name")


def normalise(case: Case, ask: Ask, answer: Answer, shared: Mapping[str, UUID]) -> Any:
    """Return the answer as it is compared and recorded."""
    if isinstance(answer, str):
        return answer
    if case.only_how_it_ends:
        return ANSWERED
    names = {str(topic_id): name for name, topic_id in ask.ids.items()}
    walk = _Walk(case.row, ask.topic, names, frozenset(shared) if case.about_all_topics else None)
    return walk.value(answer)


class _Walk:
    """One walk through one answer."""

    def __init__(
        self, row: ApiRow, topic: str, names: Mapping[str, str], only: frozenset[str] | None
    ) -> None:
        self._row = row
        self._topic = topic
        self._names = names
        self._only = only

    def value(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            told = ((key, self.value(one, key)) for key, one in value.items())
            return self._fields({key: one for key, one in told if one is not _LEFT_OUT})
        if name in _TABLES:
            return {str(one[_TABLES[name]]): _range(one) for one in value}
        if isinstance(value, list):
            return self._list(value, name)
        if isinstance(value, bytes):
            return f"<{len(value)} bytes, CRC {zlib.crc32(value):08x}>" if value else "<0 bytes>"
        if value is None or (name == "throttle_time" and value == 0):
            return _LEFT_OUT
        if name == "topic_id":
            return self._topic_id(value)
        if self._row is DESCRIBE_QUORUM and name in _OF_QUORUM:
            return "<number>" if value > 0 else value
        known = _BY_NAME.get(name)
        if known is not None:
            return known(value)
        return self._text(value, name) if isinstance(value, str) else value

    def _fields(self, fields: dict[str, Any]) -> Any:
        # "No leader", "no epoch": a tagged field at its default, sent or not.
        return _LEFT_OUT if fields and all(one == -1 for one in fields.values()) else fields

    def _list(self, value: list[Any], name: str) -> Any:
        kept = [one for one in value if self._wanted(one)]
        if self._row is CREATE_TOPICS and name == "configs":
            # All options there are: which those are is what DescribeConfigs is asked about.
            kept = [one for one in kept if one["config_source"] == SET_FOR_THE_TOPIC]
        if self._row is LIST_GROUPS and name == "groups":
            # All groups there are: only the one of this conversation is the same in every run.
            kept = [one for one in kept if one["group_id"] == self._topic]
        found = [self.value(one, name) for one in kept]
        if name == "configs" and len({one["name"] for one in found}) == len(found) > 0:
            return {one.pop("name"): one for one in found}
        if len(found) > ENTRIES_MAX:
            return {"<entries>": len(found), "<first>": min(found, key=_sort_key)}
        if name in _IN_ORDER or self._row is DESCRIBE_TOPIC_PARTITIONS:
            return found
        if found and isinstance(found[0], dict):
            found.sort(key=_sort_key)
        return found

    def _wanted(self, one: Any) -> bool:
        if self._only is None or not isinstance(one, dict):
            return True
        if one.get("resource_type", 2) != 2:
            return True
        name = next((one[key] for key in _NAMES if key in one), None)
        return name is None or name in self._only

    def _text(self, value: str, name: str) -> str:
        told = value.replace(self._topic, TOPIC)
        if name in _MEMBERS:
            return _UUID.sub("<uuid>", told)
        return _LONG_NUMBER.sub("<number>", told) if name in SENTENCES else told

    def _topic_id(self, value: str) -> str:
        named = self._names.get(value)
        if named is not None:
            return f"<id of {TOPIC if named == self._topic else named}>"
        return value if UUID(value).int < CHOSEN_BY_CASES else "<id>"


def _above_zero(word: str) -> Callable[[Any], Any]:
    return lambda value: word if isinstance(value, int) and value > 0 else value


def _producer_id(value: int) -> int | str:
    return "<producer id>" if 0 <= value < PRODUCER_IDS_OF_CASES else value


def _range(one: dict[str, Any]) -> str:
    low = one.get("min_version", one.get("min_version_level"))
    high = one.get("max_version", one.get("max_version_level"))
    return f"{low}-{high}"


def _sort_key(one: dict[str, Any]) -> str:
    """What makes the place of an entry: who it is about, and not what is said about it."""
    about = {key: value for key, value in one.items() if not key.startswith("error_")}
    return json.dumps(about, sort_keys=True)


_BY_NAME: Final[Mapping[str, Callable[[Any], Any]]] = {
    "cluster_id": lambda value: "<cluster id>" if value else value,
    "port": lambda _: "<port>",
    "replica_directory_id": lambda _: "<id>",
    "log_dir": lambda _: "<directory>",
    "total_bytes": _above_zero("<bytes>"),
    "usable_bytes": _above_zero("<bytes>"),
    "session_id": _above_zero("<session id>"),
    "finalized_features_epoch": lambda value: "<epoch>" if value >= 0 else value,
    "producer_id": _producer_id,
    # The batches of the cases are from 2023; a node that told this time read its clock.
    "log_append_time": lambda value: "<now>" if value > NOW_MS + DAY_MS else value,
    "documentation": lambda value: "<text>" if value else value,
}
