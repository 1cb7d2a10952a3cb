"""DescribeQuorum, ElectLeaders, UpdateFeatures and UnregisterBroker: a cluster and its controllers.

Nothing is changed: there is one broker, so no election is needed, every update of a feature is only
checked, and the brokers that are to be forgotten are not there. (Kafka would also forget the one
that it asked.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.proto.kafka.apis import (
    DESCRIBE_QUORUM,
    ELECT_LEADERS,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
)
from tests.interop.differential.case import Case, one
from tests.interop.differential.stage import FILLED

METADATA: Final = "__cluster_metadata"
PREFERRED: Final = 0
UNCLEAN: Final = 1
KINDS: Final = {"preferred": PREFERRED, "unclean": UNCLEAN}

Named = Sequence[tuple[str, Sequence[int]]]


def _quorum(name: str, *topics: tuple[str, Sequence[int]]) -> Case:
    told = [
        {"topic_name": topic, "partitions": [{"partition_index": index} for index in indexes]}
        for topic, indexes in topics
    ]
    return one(name, DESCRIBE_QUORUM, lambda _: {"topics": told})


def _elect(name: str, named: Named | None, kind: int = PREFERRED) -> Case:
    told = None
    if named is not None:
        told = [{"topic": topic, "partitions": list(indexes)} for topic, indexes in named]
    fields = {"election_type": kind, "topic_partitions": told, "timeout": 10_000}
    return one(name, ELECT_LEADERS, lambda _: fields, about_all_topics=named is None)


def _update(name: str, *updates: tuple[str, int, int]) -> Case:
    told = [
        {
            "feature": feature,
            "max_version_level": level,
            "upgrade_type": kind,
            "allow_downgrade": kind > 1,
        }
        for feature, level, kind in updates
    ]
    fields = {"feature_updates": told, "validate_only": True, "timeout": 10_000}
    return one(name, UPDATE_FEATURES, lambda _: fields)


def _unregister(name: str, broker_id: int) -> Case:
    return one(name, UNREGISTER_BROKER, lambda _: {"broker_id": broker_id})


_NAMED: Final[dict[str, Named | None]] = {
    "two partitions": [(FILLED, (0, 1))],
    "all": None,
    "no topics": [],
    "no partitions": [(FILLED, ())],
    "a known and an unknown partition": [(FILLED, (0, 9))],
    "partition -1": [(FILLED, (-1,))],
    "a partition twice": [(FILLED, (0, 0))],
    "a topic twice": [(FILLED, (0,)), (FILLED, (1,))],
    "an unknown topic": [("missing", (0, 1))],
    "a name that cannot be": [("../x", (0,))],
}

QUORUM_CASES: Final[tuple[Case, ...]] = (
    _quorum("the metadata", (METADATA, (0,))),
    _quorum("no topics"),
    _quorum("no partitions", (METADATA, ())),
    _quorum("another topic", (FILLED, (0,))),
    _quorum("another partition", (METADATA, (1,))),
    _quorum("the metadata and another partition", (METADATA, (0, 1))),
    _quorum("the metadata and another topic", (METADATA, (0,)), (FILLED, (0,))),
    _quorum("the metadata twice", (METADATA, (0,)), (METADATA, (0,))),
    *(
        _elect(f"{kind}, {name}", named, number)
        for kind, number in KINDS.items()
        for name, named in _NAMED.items()
    ),
    _elect("an unknown kind", [(FILLED, (0,))], 5),
    _elect("an unknown kind for all", None, -1),
    _update("nothing"),
    _update("the level of Kafka as it is", ("metadata.version", 30, 1)),
    _update("the level of Kafka twice", ("metadata.version", 30, 1), ("metadata.version", 30, 1)),
    _update("the level of Kafka, higher", ("metadata.version", 31, 1)),
    _update("the level of Kafka, lower", ("metadata.version", 29, 1)),
    _update("the level of Kafka, lower, safely", ("metadata.version", 29, 2)),
    _update("the level of Kafka, lower, unsafely", ("metadata.version", 29, 3)),
    _update("the level of Kafka, away", ("metadata.version", 0, 2)),
    _update("an upgrade of an unknown type", ("metadata.version", 30, 9)),
    _update("an unknown feature", ("missing", 1, 1)),
    _update("an unknown feature, away", ("missing", 0, 2)),
    _update("a known and an unknown feature", ("metadata.version", 30, 1), ("missing", 1, 1)),
    _unregister("an unknown broker", 77),
    _unregister("broker 0", 0),
    _unregister("broker -1", -1),
)
