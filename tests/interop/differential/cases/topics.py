"""CreateTopics, CreatePartitions and DeleteTopics, and the names and numbers they refuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from ottla.proto.kafka.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    METADATA,
)
from tests.interop.differential.case import Ask, Case, NewTopic, Send, Talk, ends_of, many, one
from tests.interop.differential.messages import Fields
from tests.interop.differential.stage import FILLED

ENDS: Final = ends_of(CREATE_TOPICS)
THREE: Final = NewTopic(partitions=3)
ONE: Final = NewTopic()

Assignment = dict[int, list[int]]
# A list and not a mapping: a name may come twice.
Settings = list[tuple[str, str | None]]


def _topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignment: Iterable[tuple[int, list[int]]] = (),
    settings: Iterable[tuple[str, str | None]] = (),
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers} for index, brokers in assignment
        ],
        "configs": [{"name": key, "value": value} for key, value in settings],
    }


def _request(*topics: dict[str, Any], **changes: Any) -> Fields:
    return {"topics": list(topics), "timeout": 30_000, "validate_only": False, **changes}


def _create(name: str, *, versions: Iterable[int] | None = ENDS, **told: Any) -> Case:
    return one(
        name, CREATE_TOPICS, lambda ask: _request(_topic(ask.topic, **told)), versions=versions
    )


def _assigned(name: str, *assignment: tuple[int, list[int]], **told: Any) -> Case:
    chosen = {"partitions": -1, "replicas": -1, **told}
    return _create(name, assignment=assignment, **chosen)


def _with(name: str, *settings: tuple[str, str | None]) -> Case:
    return _create(f"option {name}", settings=settings)


def _bad_name(word: str, name: str) -> Case:
    return one(
        f"a name that cannot be: {word}",
        CREATE_TOPICS,
        lambda _: _request(_topic(name)),
        versions=ENDS,
    )


def _good_name(word: str, name: str) -> Case:
    def talk(ask: Ask) -> Talk:
        yield Send(CREATE_TOPICS, ask.version, _request(_topic(name)))
        yield Send(DELETE_TOPICS, 5, {"topic_names": [name], "timeout": 30_000})

    return many(f"a name that can be: {word}", CREATE_TOPICS, talk, versions=ENDS)


def _collision(ask: Ask) -> Talk:
    dotted, scored = f"{ask.topic}.x", f"{ask.topic}_x"
    yield Send(CREATE_TOPICS, ask.version, _request(_topic(dotted)))
    yield Send(CREATE_TOPICS, ask.version, _request(_topic(scored)))
    yield Send(CREATE_TOPICS, ask.version, _request(_topic(dotted)))
    yield Send(DELETE_TOPICS, 5, {"topic_names": [dotted], "timeout": 30_000})


def _validate(ask: Ask) -> Talk:
    """A topic that was only checked is not there."""
    asked = _request(_topic(ask.topic), validate_only=True)
    yield Send(CREATE_TOPICS, ask.version, asked)
    topics = [{"name": ask.topic, "topic_id": None}]
    yield Send(METADATA, 4, {"topics": topics, "allow_auto_topic_creation": False})


def _both_spellings_of_one_request(ask: Ask) -> Talk:
    topics = (_topic(f"{ask.topic}.y"), _topic(f"{ask.topic}_y"), _topic(f"{ask.topic}.z"))
    yield Send(CREATE_TOPICS, ask.version, _request(*topics))


_CREATE: Final = (
    _create("one topic", versions=None),
    _create("three partitions", partitions=3),
    one("a topic that exists", CREATE_TOPICS, lambda _: _request(_topic(FILLED))),
    one(
        "one good and one bad",
        CREATE_TOPICS,
        lambda ask: _request(_topic(ask.topic), _topic("a/b")),
        versions=ENDS,
    ),
    one(
        "a name twice", CREATE_TOPICS, lambda ask: _request(*[_topic(ask.topic)] * 2), versions=ENDS
    ),
    one("no topics", CREATE_TOPICS, lambda _: _request()),
    many("only checked", CREATE_TOPICS, _validate),
    *(_create(f"partitions {count}", partitions=count) for count in (0, -1, -2, 10**9, 2**31 - 1)),
    *(_create(f"replication factor {count}", replicas=count) for count in (0, -1, -2, 2, 32767)),
    _assigned("assigned", (0, [1]), (1, [1])),
    _assigned("assigned, and a number of partitions", (0, [1]), partitions=1),
    _assigned("assigned, and a replication factor", (0, [1]), replicas=1),
    _assigned("assigned, and both", (0, [1]), partitions=1, replicas=1),
    _assigned("assigned to a broker twice", (0, [1, 1])),
    _assigned("assigned to an unknown broker", (0, [9])),
    _assigned("assigned to broker -1", (0, [-1])),
    _assigned("assigned to nobody", (0, [])),
    _assigned("assigned with a gap", (1, [1])),
    _assigned("assigned twice", (0, [1]), (0, [1])),
    _assigned("assigned partition -1", (-1, [1])),
    _with("unknown", ("no.such.option", "1")),
    _with("with an empty name", ("", "1")),
    _with("of old", ("message.format.version", "3.0")),
    _with("null", ("retention.ms", None)),
    _with("empty", ("retention.ms", "")),
    _with("not a number", ("retention.ms", "x")),
    _with("too small", ("retention.ms", "-2")),
    _with("with blanks around it", ("retention.ms", " 5 ")),
    _with("twice", ("retention.ms", "5"), ("retention.ms", "6")),
    _with("of a list", ("cleanup.policy", "compact,delete")),
    _with("of a list, wrong", ("cleanup.policy", "foo")),
    _with("of a list, empty", ("cleanup.policy", "")),
    _with("min.insync.replicas 0", ("min.insync.replicas", "0")),
    _with("min.insync.replicas above the replication factor", ("min.insync.replicas", "5")),
    _with("segment.bytes too small", ("segment.bytes", "1048575")),
    _with("compression.type wrong", ("compression.type", "zip")),
    _with("max.message.bytes -1", ("max.message.bytes", "-1")),
    _with("preallocate wrong", ("preallocate", "maybe")),
    _with("min.cleanable.dirty.ratio 1.5", ("min.cleanable.dirty.ratio", "1.5")),
    _with("two that contradict", ("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")),
    _with("message.timestamp.type", ("message.timestamp.type", "LogAppendTime")),
    _with("message.timestamp.type wrong", ("message.timestamp.type", "Sometime")),
)

_NAMES: Final = (
    *(
        _bad_name(word, name)
        for word, name in {
            "empty": "",
            "a dot": ".",
            "two dots": "..",
            "250 letters": "a" * 250,
            "a slash": "a/b",
            "a backslash": "a\\b",
            "a NUL": "a\0b",
            "a path": "../../etc/x",
            "a letter beyond ASCII": "é",
            "a leading blank": " a",
            "a blank inside": "a b",
            "a colon": "a:b",
            "the metadata log": "__cluster_metadata",
        }.items()
    ),
    _good_name("249 letters", "a" * 249),
    _good_name("all kinds of characters", "Zz0-9._x"),
    _good_name("three dots", "..."),
    many("a dot against an underscore", CREATE_TOPICS, _collision, versions=ENDS),
    many(
        "both spellings in one request",
        CREATE_TOPICS,
        _both_spellings_of_one_request,
        versions=(7,),
    ),
)


def _grow(
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    topic: str | None = None,
    versions: Iterable[int] = ends_of(CREATE_PARTITIONS),
    **changes: Any,
) -> Case:
    told = None if assignments is None else [{"broker_ids": brokers} for brokers in assignments]

    def fields(ask: Ask) -> Fields:
        wanted = {"name": topic or ask.topic, "count": count, "assignments": told}
        return {"topics": [wanted], "timeout": 30_000, "validate_only": False, **changes}

    return one(name, CREATE_PARTITIONS, fields, versions=versions, topic=THREE)


def _grow_twice(ask: Ask) -> Talk:
    wanted = {"name": ask.topic, "count": 5, "assignments": None}
    fields = {"topics": [wanted, wanted], "timeout": 30_000, "validate_only": False}
    yield Send(CREATE_PARTITIONS, ask.version, fields)


_GROW: Final = (
    _grow("more", 5, versions=range(4)),
    _grow("more, assigned", 4, [[1]]),
    _grow("as many as there are", 3),
    _grow("fewer", 1),
    *(_grow(f"count {count}", count) for count in (0, -1, -(2**31))),
    _grow("only checked", 5, validate_only=True),
    _grow("only checked, 1000000000", 10**9, validate_only=True),
    _grow("count 2147483647", 2**31 - 1),
    _grow("an unknown topic", 5, topic="missing"),
    _grow("a name that cannot be", 5, topic="a/b"),
    _grow("assigned to an unknown broker", 4, [[9]]),
    _grow("assigned to a broker twice", 4, [[1, 1]]),
    _grow("assigned to nobody", 4, [[]]),
    _grow("too many assignments", 4, [[1], [1]]),
    _grow("too few assignments", 5, [[1]]),
    _grow("no assignments in the list", 4, []),
    many("a topic twice", CREATE_PARTITIONS, _grow_twice, topic=THREE),
    one(
        "no topics",
        CREATE_PARTITIONS,
        lambda _: {"topics": [], "timeout": 1000, "validate_only": False},
    ),
)


def _by_name(*names: str) -> Fields:
    topics = [{"name": name, "topic_id": None} for name in names]
    return {"topic_names": list(names), "topics": topics, "timeout": 30_000}


def _by_id(*topics: tuple[str | None, UUID | None]) -> Fields:
    told = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    return {"topics": told, "timeout": 30_000}


def _delete_again(ask: Ask) -> Talk:
    for _ in range(2):
        yield Send(DELETE_TOPICS, ask.version, _by_name(ask.topic))


_DELETE: Final = (
    many("a topic, and again", DELETE_TOPICS, _delete_again, topic=ONE),
    one(
        "a topic and one that is not there",
        DELETE_TOPICS,
        lambda ask: _by_name(ask.topic, "missing"),
        topic=ONE,
    ),
    one("a topic twice", DELETE_TOPICS, lambda ask: _by_name(ask.topic, ask.topic), topic=ONE),
    one("an empty name", DELETE_TOPICS, lambda _: _by_name("")),
    one("a name that cannot be", DELETE_TOPICS, lambda _: _by_name("../../etc/x")),
    one("no topics", DELETE_TOPICS, lambda _: _by_name()),
    one("by id", DELETE_TOPICS, lambda ask: _by_id((None, ask.topic_id)), versions=(6,), topic=ONE),
    one("by an unknown id", DELETE_TOPICS, lambda _: _by_id((None, UUID(int=9))), versions=(6,)),
    one("by neither", DELETE_TOPICS, lambda _: _by_id((None, None)), versions=(6,)),
    one(
        "by both",
        DELETE_TOPICS,
        lambda ask: _by_id((ask.topic, ask.topic_id)),
        versions=(6,),
        topic=ONE,
    ),
    one(
        "by name, and again by id",
        DELETE_TOPICS,
        lambda ask: _by_id((ask.topic, None), (None, ask.topic_id)),
        versions=(6,),
        topic=ONE,
    ),
    one(
        "by id twice",
        DELETE_TOPICS,
        lambda ask: _by_id((None, ask.topic_id), (None, ask.topic_id)),
        versions=(6,),
        topic=ONE,
    ),
)

TOPIC_CASES: Final[tuple[Case, ...]] = (*_CREATE, *_NAMES, *_GROW, *_DELETE)
