"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ottla.proto.kafka.apis import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    METADATA,
)
from tests.interop.differential.case import Ask, Case, NewTopic, Send, Talk, ends_of, many, one
from tests.interop.differential.messages import Fields
from tests.interop.differential.stage import FILLED

TOPIC: Final = 2
BROKER: Final = 4
LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
SET, DELETE, APPEND, SUBTRACT = range(4)

OWN: Final = NewTopic(settings={"retention.ms": "3600000"})
ENDS: Final = ends_of(DESCRIBE_CONFIGS)
RETENTION: Final = "retention.ms"
MAX_BYTES: Final = "message.max.bytes"

# Options that both nodes have with the same meaning and the same default.
COMMON: Final = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
)

COMMON_OF_BROKERS: Final = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "connections.max.idle.ms",
    "fetch.max.bytes",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.enable",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleanup.policy",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.check.interval.ms",
    "log.segment.bytes",
    "log.segment.delete.delay.ms",
    "max.connections",
    "max.connections.per.ip",
    "max.request.partition.size.limit",
    "message.max.bytes",
    "num.partitions",
    "offset.metadata.max.bytes",
    "offsets.retention.minutes",
    "offsets.topic.segment.bytes",
    "producer.id.expiration.ms",
    "replica.fetch.response.max.bytes",
    "replica.fetch.wait.max.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "socket.request.max.bytes",
    "unclean.leader.election.enable",
)


def _describe_request(
    resource_type: int, name: str, keys: Sequence[str] | None = None, **changes: Any
) -> Fields:
    resource = {
        "resource_type": resource_type,
        "resource_name": name,
        "configuration_keys": None if keys is None else list(keys),
    }
    return {
        "resources": [resource],
        "include_synonyms": False,
        "include_documentation": False,
        **changes,
    }


def _describe(
    name: str,
    resource_type: int,
    resource: str,
    keys: Sequence[str] | None = None,
    *,
    versions: Iterable[int] = ENDS,
    **changes: Any,
) -> Case:
    fields = _describe_request(resource_type, resource, keys, **changes)
    return one(name, DESCRIBE_CONFIGS, lambda _: fields, versions=versions)


def _describe_own(name: str, keys: Sequence[str], **changes: Any) -> Case:
    return one(
        name,
        DESCRIBE_CONFIGS,
        lambda ask: _describe_request(TOPIC, ask.topic, keys, **changes),
        topic=OWN,
    )


_DESCRIBE: Final = (
    _describe("options of a topic", TOPIC, FILLED, COMMON, versions=range(1, 5)),
    _describe(
        "options of a topic with synonyms",
        TOPIC,
        FILLED,
        COMMON,
        include_synonyms=True,
        versions=range(1, 5),
    ),
    _describe("all options of a topic", TOPIC, FILLED, include_synonyms=True),
    _describe("options of a broker", BROKER, "1", COMMON_OF_BROKERS, include_synonyms=True),
    _describe("all options of all brokers", BROKER, ""),
    _describe_own("an option that is set", [RETENTION]),
    _describe_own("an option that is set, with synonyms", [RETENTION], include_synonyms=True),
    _describe_own("an option with its description", [RETENTION], include_documentation=True),
    _describe("an unknown option", TOPIC, FILLED, ["no.such.option"]),
    _describe("an option twice", TOPIC, FILLED, ["segment.ms", "segment.ms"]),
    _describe("an unknown topic", TOPIC, "missing"),
    _describe("a topic name that cannot be", TOPIC, "a/b"),
    _describe("an empty topic name", TOPIC, ""),
    _describe("an option of a broker", BROKER, "1", [MAX_BYTES], versions=range(1, 5)),
    _describe(
        "an option of a broker with synonyms", BROKER, "1", [MAX_BYTES], include_synonyms=True
    ),
    _describe("an option of all brokers", BROKER, "", [MAX_BYTES]),
    *(_describe(f"broker {name}", BROKER, name, [MAX_BYTES]) for name in ("7", "-1", "one", "1 ")),
    *(_describe(f"resource type {kind}", kind, "x") for kind in (0, 1, 3, 99, -1)),
    one(
        "no resources",
        DESCRIBE_CONFIGS,
        lambda _: {**_describe_request(TOPIC, FILLED), "resources": []},
    ),
    one(
        "a resource twice",
        DESCRIBE_CONFIGS,
        lambda _: {
            **_describe_request(TOPIC, FILLED),
            "resources": _describe_request(TOPIC, FILLED, ["segment.ms"])["resources"] * 2,
        },
        versions=ENDS,
    ),
)

Change = tuple[str, int, str | None]


def _change_request(resource_type: int, name: str, *changes: Change, **told: Any) -> Fields:
    configs = [
        {"name": option, "config_operation": operation, "value": value}
        for option, operation, value in changes
    ]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": configs}
    return {"resources": [resource], "validate_only": False, **told}


def _settled(ask: Ask) -> Talk:
    """Wait until a later change shows, so that the one in question shows as well."""
    wanted = {"name": ask.topic, "count": 2, "assignments": None}
    fields = {"topics": [wanted], "timeout": 10_000, "validate_only": False}
    yield Send(CREATE_PARTITIONS, 3, fields, is_recorded=False)
    yield Send(
        METADATA,
        1,
        {"topics": [{"name": ask.topic}]},
        until=lambda answer: len(answer["topics"][0]["partitions"]) == 2,
        is_recorded=False,
    )


def _change(name: str, *changes: Change, look: Sequence[str] = (RETENTION,), **told: Any) -> Case:
    """Change options of a topic of the case's own, and look at them."""

    def talk(ask: Ask) -> Talk:
        fields = _change_request(TOPIC, ask.topic, *changes, **told)
        yield Send(INCREMENTAL_ALTER_CONFIGS, ask.version, fields)
        yield from _settled(ask)
        yield Send(DESCRIBE_CONFIGS, 4, _describe_request(TOPIC, ask.topic, look))

    return many(name, INCREMENTAL_ALTER_CONFIGS, talk, topic=OWN)


def _change_other(name: str, resource_type: int, resource: str, *changes: Change) -> Case:
    return one(
        name,
        INCREMENTAL_ALTER_CONFIGS,
        lambda _: _change_request(resource_type, resource, *changes),
    )


def _change_broker(ask: Ask) -> Talk:
    """For one broker, then for all, then back to what the file says."""
    for resource, value in (("1", "1048500"), ("", "1048400")):
        fields = _change_request(BROKER, resource, (MAX_BYTES, SET, value))
        yield Send(INCREMENTAL_ALTER_CONFIGS, ask.version, fields)
    for resource in ("1", ""):
        fields = _change_request(BROKER, resource, (MAX_BYTES, DELETE, None))
        yield Send(INCREMENTAL_ALTER_CONFIGS, ask.version, fields)


def _resource_twice(ask: Ask) -> Talk:
    one_resource = _change_request(TOPIC, ask.topic, (RETENTION, SET, "5"))["resources"]
    fields = {"resources": one_resource * 2, "validate_only": False}
    yield Send(INCREMENTAL_ALTER_CONFIGS, ask.version, fields)


_POLICY: Final = ("cleanup.policy",)
_INCREMENTAL: Final = (
    _change("set", (RETENTION, SET, "5000")),
    _change(
        "set two",
        (RETENTION, SET, "5000"),
        ("segment.ms", SET, "7000"),
        look=(RETENTION, "segment.ms"),
    ),
    _change("set to null", (RETENTION, SET, None)),
    _change("set to nothing", (RETENTION, SET, "")),
    _change("set to no number", (RETENTION, SET, "x")),
    _change("set too small", (RETENTION, SET, "-2")),
    _change("set an unknown option", ("no.such.option", SET, "1")),
    _change("set an option without a name", ("", SET, "1")),
    _change("set an option twice", (RETENTION, SET, "5"), (RETENTION, SET, "6")),
    _change("one good and one bad", (RETENTION, SET, "5"), ("segment.ms", SET, "x")),
    _change("delete", (RETENTION, DELETE, None)),
    _change("delete with a value", (RETENTION, DELETE, "7")),
    _change("delete what is not set", ("segment.ms", DELETE, None)),
    _change("delete an unknown option", ("no.such.option", DELETE, None)),
    _change("append", (_POLICY[0], APPEND, "compact"), look=_POLICY),
    _change("append what is there", (_POLICY[0], APPEND, "delete"), look=_POLICY),
    _change("append something wrong", (_POLICY[0], APPEND, "foo"), look=_POLICY),
    _change("append null", (_POLICY[0], APPEND, None), look=_POLICY),
    _change("append to what is no list", (RETENTION, APPEND, "1")),
    _change("subtract", (_POLICY[0], SUBTRACT, "delete"), look=_POLICY),
    _change("subtract what is not there", (_POLICY[0], SUBTRACT, "compact"), look=_POLICY),
    _change("subtract from what is no list", (RETENTION, SUBTRACT, "1")),
    _change("operation 9", (RETENTION, 9, "1")),
    _change("operation -1", (RETENTION, -1, "1")),
    _change("nothing"),
    _change("only checked", (RETENTION, SET, "5000"), validate_only=True),
    _change("only checked, and wrong", (RETENTION, SET, "x"), validate_only=True),
    many("a resource twice", INCREMENTAL_ALTER_CONFIGS, _resource_twice, topic=OWN),
    _change_other("an unknown topic", TOPIC, "missing", (RETENTION, SET, "5")),
    _change_other("a topic name that cannot be", TOPIC, "a/b", (RETENTION, SET, "5")),
    _change_other("an empty topic name", TOPIC, "", (RETENTION, SET, "5")),
    many("an option of brokers", INCREMENTAL_ALTER_CONFIGS, _change_broker),
    _change_other(
        "an option that a broker reads at its start", BROKER, "1", ("log.dirs", SET, "x")
    ),
    _change_other(
        "an option of all brokers that is read at the start", BROKER, "", ("node.id", SET, "4")
    ),
    _change_other("an option of a broker, no number", BROKER, "1", (MAX_BYTES, SET, "x")),
    _change_other("an option of a broker, too small", BROKER, "1", (MAX_BYTES, SET, "-1")),
    *(
        _change_other(f"broker {name}", BROKER, name, (MAX_BYTES, SET, "1048588"))
        for name in ("7", "-1", "one")
    ),
    *(
        _change_other(f"resource type {kind}", kind, "x", (RETENTION, SET, "1"))
        for kind in (0, 99, -1)
    ),
    one(
        "no resources",
        INCREMENTAL_ALTER_CONFIGS,
        lambda _: {"resources": [], "validate_only": False},
    ),
)


def _replace(name: str, *settings: tuple[str, str | None], **told: Any) -> Case:
    """AlterConfigs replaces everything that was set before."""

    def talk(ask: Ask) -> Talk:
        configs = [{"name": option, "value": value} for option, value in settings]
        resource = {"resource_type": TOPIC, "resource_name": ask.topic, "configs": configs}
        fields = {"resources": [resource], "validate_only": False, **told}
        yield Send(ALTER_CONFIGS, ask.version, fields)
        yield from _settled(ask)
        look = _describe_request(TOPIC, ask.topic, (RETENTION, "segment.ms"))
        yield Send(DESCRIBE_CONFIGS, 4, look)

    return many(name, ALTER_CONFIGS, talk, topic=OWN)


def _replace_other(
    name: str, resource_type: int, resource: str, *settings: tuple[str, str | None]
) -> Case:
    configs = [{"name": option, "value": value} for option, value in settings]
    told = {"resource_type": resource_type, "resource_name": resource, "configs": configs}
    return one(name, ALTER_CONFIGS, lambda _: {"resources": [told], "validate_only": False})


_REPLACE: Final = (
    _replace("the same option", (RETENTION, "6000")),
    _replace("another option", ("segment.ms", "7000")),
    _replace("nothing"),
    _replace("null", (RETENTION, None)),
    _replace("no number", (RETENTION, "x")),
    _replace("an unknown option", ("no.such.option", "1")),
    _replace("an option twice", (RETENTION, "5"), (RETENTION, "6")),
    _replace("only checked", (RETENTION, "6000"), validate_only=True),
    _replace_other("an unknown topic", TOPIC, "missing", (RETENTION, "1")),
    _replace_other("a topic name that cannot be", TOPIC, "a/b", (RETENTION, "1")),
    _replace_other("an option that a broker reads at its start", BROKER, "1", ("log.dirs", "x")),
    _replace_other("broker 7", BROKER, "7", (MAX_BYTES, "1048588")),
    _replace_other("resource type 99", 99, "x", (RETENTION, "1")),
    one("no resources", ALTER_CONFIGS, lambda _: {"resources": [], "validate_only": False}),
)


def _resources(name: str, kinds: list[int], *, versions: Iterable[int] = (1,)) -> Case:
    return one(
        name,
        LIST_CONFIG_RESOURCES,
        lambda _: {"resource_types": kinds},
        versions=versions,
        about_all_topics=True,
    )


_RESOURCES: Final = (
    _resources("of version 0, only client metrics", [], versions=(0,)),
    _resources("all", []),
    _resources("topics", [TOPIC]),
    _resources("brokers", [BROKER]),
    _resources("brokers and loggers, twice", [BROKER, LOGGER, BROKER]),
    _resources("client metrics and groups", [CLIENT_METRICS, GROUP]),
    _resources("type 0", [0]),
    _resources("type 99", [99]),
    _resources("a known and an unknown type", [BROKER, 99]),
)

CONFIG_CASES: Final[tuple[Case, ...]] = (*_DESCRIBE, *_INCREMENTAL, *_REPLACE, *_RESOURCES)
