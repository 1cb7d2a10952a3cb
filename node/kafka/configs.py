"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

Topics and brokers have options here. Kafka's other resources (loggers, metrics subscriptions,
groups) have none, and are refused by name instead of being shown empty.

Where a change is refused, the code is Kafka's: INVALID_CONFIG for a topic's value, INVALID_REQUEST
for a broker's value and for what only a restart can change. A broker's option that nobody knows,
which Kafka keeps for its plug-ins, is refused with INVALID_CONFIG.

Not here: what an option means (`ottla.proto.options`), what is in force (`node/options.py`), and
keeping a change (the controller).
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.image import ALL_BROKERS, MetadataImage
from ottla.controller.names import name_problem
from ottla.controller.port import ConfigChange
from ottla.node.kafka.requests import Request
from ottla.proto.errors import ConfigError, ErrorCode, RequestError
from ottla.proto.kafka.message import Message
from ottla.proto.options import ignored, node, topic
from ottla.proto.options.option import Option, WireType, shown, shown_name
from ottla.proto.options.render import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_all_brokers,
    describe_node,
    describe_topic,
)

if TYPE_CHECKING:
    from ottla.node.broker import Broker


class ResourceType(IntEnum):
    """Kafka's numbers for whose options are meant."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """What IncrementalAlterConfigs does with a value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_RESOURCE_TYPES: Final = frozenset(ResourceType)
_WITHOUT_OPTIONS: Final = {
    ResourceType.BROKER_LOGGER: "Levels of loggers cannot be looked at or changed here.",
    ResourceType.CLIENT_METRICS: "There are no client metrics subscriptions here.",
    ResourceType.GROUP: "Groups have no options of their own here.",
}
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
# Programs that work with old and new brokers look here for the age of this one, kafka-ui for one.
_PROTOCOL_VERSION: Final = ConfigEntry(
    name="inter.broker.protocol.version",
    value="4.3-IV0",
    source=ConfigSource.DEFAULT_CONFIG,
    read_only=True,
    sensitive=False,
    synonyms=(
        ConfigSynonym("inter.broker.protocol.version", "4.3-IV0", ConfigSource.DEFAULT_CONFIG),
    ),
    wire_type=WireType.STRING,
    documentation="The version of Kafka whose protocol clients find here. It cannot be set.",
)
# Each takes about a millisecond: after so many, others on the event loop get their turn.
_AT_ONCE: Final = 20
# A sentence must fit into a short string of the oldest version.
_SENTENCE_MAX: Final = 1000


# ── DescribeConfigs ───────────────────────────────────────────────────────────────────────────


async def describe_configs(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    strange = [one for one in body.resources if one.resource_type not in _RESOURCE_TYPES]
    results: list[dict[str, Any]] = []
    # What is asked for twice is answered once: an answer is a hundred times its question.
    for number, one in enumerate(_distinct(body.resources), 1):
        try:
            if strange:
                # All of them, as Kafka does: who asks so does not know what he asks for.
                raise _unknown_type(strange[0].resource_type)
            entries = _entries(broker, one)
        except RequestError as refusal:
            results.append(_described(one, (), body, refusal))
        else:
            results.append(_described(one, entries, body))
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return {"throttle_time": 0, "results": results}


def _distinct(resources: Iterable[Message]) -> list[Message]:
    found: dict[object, Message] = {}
    for one in resources:
        keys = one.configuration_keys
        found.setdefault(
            (one.resource_type, one.resource_name, None if keys is None else tuple(keys)), one
        )
    return list(found.values())


def _entries(broker: Broker, resource: Message) -> Iterable[ConfigEntry]:
    described = _DESCRIBERS[ResourceType(resource.resource_type)](broker, resource.resource_name)
    keys = frozenset(resource.configuration_keys or ())
    return [entry for entry in described if not keys or entry.name in keys]


def _describe_topic(broker: Broker, name: str) -> Iterable[ConfigEntry]:
    _require_topic_name(name)
    info = broker.controller.image.topic(name)
    if info is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    options = broker.options
    return describe_topic(options.of_topic(info.configs), options.current, info.configs)


def _describe_broker(broker: Broker, name: str) -> Iterable[ConfigEntry]:
    if name == ALL_BROKERS:
        image = broker.controller.image
        return describe_all_brokers(image.broker_configs.get(ALL_BROKERS, {}))
    _require_this_broker(broker, name)
    return (*describe_node(broker.options.current), _PROTOCOL_VERSION)


def _refuse_to_describe(kind: ResourceType) -> Callable[[Broker, str], Iterable[ConfigEntry]]:
    def refuse(broker: Broker, name: str) -> Iterable[ConfigEntry]:
        raise RequestError(ErrorCode.INVALID_REQUEST, _WITHOUT_OPTIONS[kind])

    return refuse


_DESCRIBERS: Final[dict[ResourceType, Callable[[Broker, str], Iterable[ConfigEntry]]]] = {
    ResourceType.TOPIC: _describe_topic,
    ResourceType.BROKER: _describe_broker,
    **{kind: _refuse_to_describe(kind) for kind in _WITHOUT_OPTIONS},
}


def _described(
    resource: Message,
    entries: Iterable[ConfigEntry],
    asked: Message,
    refusal: RequestError | None = None,
) -> dict[str, Any]:
    with_synonyms = asked.get("include_synonyms", False)
    with_documentation = asked.get("include_documentation", False)
    return {
        "error_code": int(refusal.code) if refusal else 0,
        # Kafka's answer to a question that it can answer has an empty text, not none.
        "error_message": refusal.sentence if refusal else "",
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "config_source": int(entry.source),
                "is_sensitive": entry.sensitive,
                "synonyms": [
                    {"name": one.name, "value": one.value, "source": int(one.source)}
                    for one in entry.synonyms
                ]
                if with_synonyms
                else [],
                "config_type": int(entry.wire_type),
                "documentation": entry.documentation if with_documentation else None,
            }
            for entry in entries
        ],
    }


# ── AlterConfigs and IncrementalAlterConfigs ──────────────────────────────────────────────────


async def alter_configs(broker: Broker, request: Request) -> dict[str, Any]:
    """Set all the options of each resource: what is not named goes back to its default."""
    return await _alter(broker, request, _whole_change)


async def incremental_alter_configs(broker: Broker, request: Request) -> dict[str, Any]:
    """Change the named options of each resource, and no other."""
    return await _alter(broker, request, _partial_change)


ChangeOf = Callable[["Broker", Message], ConfigChange]


async def _alter(broker: Broker, request: Request, change_of: ChangeOf) -> dict[str, Any]:
    resources, validate_only = request.body.resources, request.body.validate_only
    times = Counter((one.resource_type, one.resource_name) for one in resources)
    refusals: list[RequestError | None] = []
    for start in range(0, len(resources), _AT_ONCE):
        some = resources[start : start + _AT_ONCE]
        async with broker.options.changing:
            prepared = [_prepared(broker, one, times, change_of) for one in some]
            refusals += await _changed(
                broker, prepared, validate_only=validate_only, client=request.client
            )
    return {
        "throttle_time": 0,
        "responses": [
            {
                "error_code": int(refusal.code) if refusal else 0,
                "error_message": refusal.sentence[:_SENTENCE_MAX] if refusal else None,
                "resource_type": one.resource_type,
                "resource_name": one.resource_name,
            }
            for one, refusal in zip(resources, refusals, strict=True)
        ],
    }


def _prepared(
    broker: Broker, resource: Message, times: Counter[tuple[int, str]], change_of: ChangeOf
) -> ConfigChange | RequestError:
    if times[resource.resource_type, resource.resource_name] > 1:
        return _invalid("Each resource may stand in a request once.")
    try:
        return change_of(broker, resource)
    except RequestError as refusal:
        return refusal


async def _changed(
    broker: Broker,
    prepared: list[ConfigChange | RequestError],
    *,
    validate_only: bool,
    client: str,
) -> list[RequestError | None]:
    """Have the controller make what can be made, and return an answer for each."""
    changes = [one for one in prepared if isinstance(one, ConfigChange)]
    made: list[RequestError | None] = []
    if changes:
        made = await broker.controller.change_configs(
            changes, validate_only=validate_only, client=client
        )
    answers = iter(made)
    return [one if isinstance(one, RequestError) else next(answers) for one in prepared]


def _whole_change(broker: Broker, resource: Message) -> ConfigChange:
    _require_sound(resource, [one.name for one in resource.configs if one.value is None])
    kind = _require_alterable(resource.resource_type)
    wanted = {one.name: one.value for one in resource.configs}
    if kind is ResourceType.TOPIC:
        _require_topic_to_alter(resource.resource_name)
        return ConfigChange("topic", resource.resource_name, wanted, replace=True)
    name = _broker_name(broker, resource.resource_name)
    _require_broker_can_obey(broker, name, wanted, wanted)
    return ConfigChange("broker", name, wanted, replace=True)


def _partial_change(broker: Broker, resource: Message) -> ConfigChange:
    deleted = [one for one in resource.configs if one.config_operation == Operation.DELETE]
    others = [one for one in resource.configs if one.config_operation != Operation.DELETE]
    _require_sound(resource, [one.name for one in others if one.value is None])
    kind = _require_alterable(resource.resource_type)
    image, unset = broker.controller.image, frozenset(one.name for one in deleted)
    if kind is ResourceType.TOPIC:
        name = resource.resource_name
        _require_topic_to_alter(name)
        info = image.topic(name)
        own = {} if info is None else dict(info.configs)
        wanted = _changed_values(others, lambda key: _topic_list(broker, own, key))
        return ConfigChange("topic", name, wanted, unset)
    name = _broker_name(broker, resource.resource_name)
    wanted = _changed_values(others, lambda key: _broker_list(broker, image, name, key))
    kept = image.broker_configs.get(name, {})
    merged = {key: text for key, text in kept.items() if key not in unset} | wanted
    _require_broker_can_obey(broker, name, merged, wanted)
    return ConfigChange("broker", name, wanted, unset)


def _changed_values(
    changes: Iterable[Message], list_of: Callable[[str], tuple[str, ...]]
) -> dict[str, str]:
    """Return what each value would be; `list_of` gives the list that a change adds to."""
    wanted = {}
    for one in changes:
        if one.config_operation == Operation.SET:
            wanted[one.name] = one.value
            continue
        if one.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
            raise _invalid(f"There is no operation {one.config_operation}.")
        items = list(list_of(one.name))
        given = [item.strip() for item in one.value.split(",")]
        if one.config_operation == Operation.APPEND:
            items += [item for item in dict.fromkeys(given) if item not in items]
        else:
            items = [item for item in items if item not in given]
        wanted[one.name] = ",".join(items)
    return wanted


def _topic_list(broker: Broker, own: dict[str, str], name: str) -> tuple[str, ...]:
    _require_list(name, topic.BY_NAME.get(name))
    value: tuple[str, ...] = broker.options.of_topic(own).settings[name].value
    return value


def _broker_list(
    broker: Broker, image: MetadataImage, broker_name: str, name: str
) -> tuple[str, ...]:
    _require_list(name, node.BY_NAME.get(name))
    kept = image.broker_configs.get(broker_name, {}).get(name)
    if kept is not None:
        return tuple(item.strip() for item in kept.split(",") if item.strip())
    under = broker.options.static if broker_name == ALL_BROKERS else broker.options.current
    value: tuple[str, ...] = under.settings[name].value
    return value


def _require_list(name: str, row: Option[Any] | None) -> None:
    if row is None:
        raise RequestError(ErrorCode.INVALID_CONFIG, f"There is no option {shown(name)}.")
    if row.kind.wire_type is not WireType.LIST:
        raise RequestError(
            ErrorCode.INVALID_CONFIG, f"{name} is no list: nothing can be added or taken away."
        )


def _require_sound(resource: Message, without_value: list[str]) -> None:
    names = Counter(one.name for one in resource.configs)
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise _invalid(f"{shown_name(twice[0])} is there more than once.")
    if without_value:
        raise _invalid(f"{shown_name(without_value[0])} needs a value.")


def _require_alterable(resource_type: int) -> ResourceType:
    if resource_type not in _RESOURCE_TYPES:
        raise _unknown_type(resource_type)
    kind = ResourceType(resource_type)
    if kind in _WITHOUT_OPTIONS:
        raise _invalid(_WITHOUT_OPTIONS[kind])
    return kind


def _require_broker_can_obey(
    broker: Broker, name: str, configs: dict[str, str], wanted: dict[str, str]
) -> None:
    for key in wanted:
        is_known = key in node.BY_ANY_NAME or _is_known_to_kafka(key)
        if not is_known:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"There is no option {shown(key)}.")
    try:
        broker.options.check("broker", name, configs)
    except ConfigError as error:
        raise _invalid(" ".join(error.problems)) from None


def _is_known_to_kafka(name: str) -> bool:
    return ignored.reason_of((*ignored.NODE, *ignored.REFUSED), name) is not None


# ── ListConfigResources ───────────────────────────────────────────────────────────────────────


async def list_config_resources(broker: Broker, request: Request) -> dict[str, Any]:
    """Tell whose options can be looked at. Version 0 asks for metrics subscriptions only."""
    asked = frozenset(request.body.get("resource_types", (ResourceType.CLIENT_METRICS,)))
    answer: dict[str, Any] = {"throttle_time": 0, "error_code": 0, "config_resources": []}
    if not asked <= _RESOURCE_TYPES:
        return {**answer, "error_code": int(ErrorCode.UNSUPPORTED_VERSION)}
    image = broker.controller.image
    names = {
        ResourceType.BROKER: [str(key) for key, one in image.brokers.items() if not one.is_fenced],
        ResourceType.TOPIC: list(image.topics),
    }
    answer["config_resources"] = [
        {"resource_name": name, "resource_type": int(kind)}
        for kind, found in names.items()
        if not asked or kind in asked
        for name in found
    ]
    return answer


# ── What all of them need ─────────────────────────────────────────────────────────────────────


def _invalid(sentence: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, sentence)


def _unknown_type(resource_type: int) -> RequestError:
    return _invalid(f"There is no resource of type {resource_type}.")


def _require_topic_name(name: str) -> None:
    if problem := name_problem(name):
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _require_topic_to_alter(name: str) -> None:
    if not name:
        raise _invalid("There are no options for all topics; a broker's are their defaults.")
    _require_topic_name(name)


def _broker_name(broker: Broker, name: str) -> str:
    """Return the name under which the options are kept."""
    if name == ALL_BROKERS:
        return name
    _require_this_broker(broker, name)
    return str(broker.node_id)


def _require_this_broker(broker: Broker, name: str) -> None:
    if not _NUMBER.fullmatch(name):
        raise _invalid(f"A broker's name is its number, and not {shown(name)}.")
    if int(name) != broker.node_id:
        raise _invalid(f"This is broker {broker.node_id}; ask broker {int(name)} itself.")
