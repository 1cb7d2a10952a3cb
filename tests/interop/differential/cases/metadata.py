"""Metadata, DescribeTopicPartitions and DescribeCluster: what there is, in every version."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from ottla.proto.kafka.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
)
from tests.interop.differential.case import Ask, Case, one
from tests.interop.differential.messages import Fields
from tests.interop.differential.stage import EMPTY, FILLED

BY_ID: Final = (12, 13)
UNKNOWN_ID: Final = UUID(int=9)

Topics = Callable[[Ask], list[dict[str, Any]] | None]


def topic(name: str | None, topic_id: UUID | None = None) -> dict[str, Any]:
    return {"name": name, "topic_id": topic_id}


def _ask(topics: Topics, **changes: Any) -> Callable[[Ask], Fields]:
    return lambda ask: {
        "topics": topics(ask),
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
        **changes,
    }


def _named(
    name: str, topics: Topics, versions: Iterable[int] | None = None, **changes: Any
) -> Case:
    return one(name, METADATA, _ask(topics, **changes), versions=versions)


def _bad_name(word: str, name: str) -> Case:
    return _named(f"a name that cannot be: {word}", lambda _: [topic(name)])


def _partitions(
    name: str, names: Iterable[str], *, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Case:
    told = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    fields = {
        "topics": [{"name": one} for one in names],
        "response_partition_limit": limit,
        "cursor": told,
    }
    return one(name, DESCRIBE_TOPIC_PARTITIONS, lambda _: fields)


def _cluster(name: str, endpoint_type: int, operations: bool) -> Case:
    fields = {
        "include_cluster_authorized_operations": operations,
        "endpoint_type": endpoint_type,
        "include_fenced_brokers": True,
    }
    return one(name, DESCRIBE_CLUSTER, lambda _: fields)


_METADATA: Final = (
    _named("two topics", lambda _: [topic(FILLED), topic(EMPTY)]),
    _named("an unknown topic", lambda _: [topic("missing")]),
    _named("a known and an unknown topic", lambda _: [topic(FILLED), topic("missing")]),
    _named("a topic twice", lambda _: [topic(FILLED), topic(FILLED)]),
    _named(
        "auto-creation asked for and switched off",
        lambda _: [topic("missing")],
        allow_auto_topic_creation=True,
    ),
    _named(
        "authorized operations",
        lambda _: [topic(FILLED), topic("missing")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    ),
    _named("no topics", lambda _: [], range(1, 14)),
    one("all topics", METADATA, _ask(lambda _: None), versions=range(1, 14), about_all_topics=True),
    one(
        "all topics, by an empty list",
        METADATA,
        _ask(lambda _: []),
        versions=(0,),
        about_all_topics=True,
    ),
    _named("a topic by its id", lambda ask: [topic(None, ask.ids[FILLED])], BY_ID),
    _named(
        "a topic by its id before that was possible",
        lambda ask: [topic(None, ask.ids[FILLED])],
        (10, 11),
    ),
    _named(
        "a name and an id before that was possible",
        lambda ask: [topic(FILLED, ask.ids[FILLED])],
        (10, 11),
    ),
    _named("an unknown id", lambda _: [topic(None, UNKNOWN_ID)], BY_ID),
    _named("neither name nor id", lambda _: [topic(None)], range(10, 14)),
    _named("a name and its id", lambda ask: [topic(FILLED, ask.ids[FILLED])], BY_ID),
    _named("a name and the id of another", lambda ask: [topic(EMPTY, ask.ids[FILLED])], BY_ID),
    _named(
        "a topic by name and again by id",
        lambda ask: [topic(FILLED), topic(None, ask.ids[FILLED])],
        BY_ID,
    ),
    *(
        _bad_name(word, name)
        for word, name in {
            "empty": "",
            "a dot": ".",
            "two dots": "..",
            "250 letters": "a" * 250,
            "a slash": "a/b",
            "a NUL": "a\0b",
            "a path": "../../etc/x",
            "a letter beyond ASCII": "é",
            "a blank": " a",
        }.items()
    ),
    _named("3000 unknown topics", lambda _: [topic(f"missing-{i}") for i in range(3000)], (1, 13)),
    _named(
        "a bad name with auto-creation",
        lambda _: [topic("a/b")],
        (4, 13),
        allow_auto_topic_creation=True,
    ),
)

_TOPIC_PARTITIONS: Final = (
    _partitions("two topics, not in order", (FILLED, EMPTY)),
    _partitions("an unknown topic", ("missing",)),
    _partitions("a name that cannot be", ("a/b",)),
    _partitions("an empty name", ("",)),
    _partitions("a topic twice", (FILLED, FILLED)),
    _partitions("no more than one partition", (EMPTY, FILLED), limit=1),
    _partitions("no more than two partitions", (EMPTY, FILLED), limit=2),
    _partitions("limit 0", (FILLED,), limit=0),
    _partitions("limit -1", (FILLED,), limit=-1),
    _partitions("limit 2147483647", (FILLED,), limit=2**31 - 1),
    _partitions("on from a cursor", (EMPTY, FILLED), cursor=(FILLED, 1)),
    _partitions("a cursor behind the last partition", (FILLED,), cursor=(FILLED, 9)),
    _partitions("a cursor at partition -1", (FILLED,), cursor=(FILLED, -1)),
    _partitions("a cursor in a topic that is not asked for", (FILLED,), cursor=("a-before", 0)),
    _partitions("a cursor behind all topics", (FILLED,), cursor=("z-behind", 0)),
    _partitions("a cursor in an unknown topic", ("missing",), cursor=("missing", 0)),
    one(
        "all topics",
        DESCRIBE_TOPIC_PARTITIONS,
        lambda _: {"topics": [], "response_partition_limit": 2000, "cursor": None},
        about_all_topics=True,
    ),
)

METADATA_CASES: Final[tuple[Case, ...]] = (
    *_METADATA,
    *_TOPIC_PARTITIONS,
    _cluster("of brokers", 1, operations=False),
    _cluster("with authorized operations", 1, operations=True),
    _cluster("of controllers, asked of a broker", 2, operations=False),
    _cluster("of an unknown kind", 3, operations=False),
    _cluster("of kind 0", 0, operations=False),
    one(
        "the whole answer",
        API_VERSIONS,
        lambda _: {"client_software_name": "ottla", "client_software_version": "1"},
    ),
)
