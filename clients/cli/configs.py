"""`ottla configs`: the options of topics and brokers, as the cluster has them now.

What an option means is told by `ottla config describe NAME`.

Not here: options of a node that is not running (`ottla config check`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import click

from ottla.clients.cli.cluster import Cluster, only, open_cluster
from ottla.clients.cli.options import (
    Command,
    ToolGroup,
    for_clients,
    old_spelling,
    parse_pairs,
    run,
)
from ottla.clients.cli.output import (
    complain,
    refusal_as_json,
    refusal_of,
    tell_json,
    tell_table,
    told_refusal,
    told_undone,
    with_topic_hint,
)
from ottla.proto.errors import ConfigError, RequestError
from ottla.proto.ids import INT32_MAX
from ottla.proto.kafka.apis import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from ottla.proto.kafka.message import Message
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown, shown_name

Kind = Literal["topic", "broker"]
TOPIC: Final[Kind] = "topic"
BROKER: Final[Kind] = "broker"
# Kafka's numbers for kinds of resources, for what to do with an option, and for where it is set.
_RESOURCE_TYPES: Final[dict[Kind, int]] = {TOPIC: 2, BROKER: 4}
_SET: Final = 0
_UNSET: Final = 1
_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
}
_BY_HAND: Final[dict[Kind, frozenset[int]]] = {
    TOPIC: frozenset({1}),
    BROKER: frozenset({2, 3, 4}),
}
# What holds for every broker that does not say otherwise; Kafka's name for it is the empty one.
ALL_BROKERS: Final = "default"
# One topic has some thirty options: an answer stays small enough to be read.
_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that has options."""

    kind: Kind
    # As on the wire: a broker's id in digits, or nothing for all brokers.
    name: str

    @property
    def broker_id(self) -> int | None:
        """The only broker that can be asked about this, or None if any can."""
        return int(self.name) if self.kind == BROKER and self.name else None

    @property
    def topic(self) -> str | None:
        return self.name if self.kind == TOPIC else None

    def __str__(self) -> str:
        return f"{self.kind} {shown_name(self.name) or ALL_BROKERS}"


def _resource_of(kind: str, name: str) -> Resource:
    if kind == TOPIC:
        return Resource(TOPIC, name)
    if name == ALL_BROKERS:
        return Resource(BROKER, "")
    if not name.isascii() or not name.isdigit() or int(name) > INT32_MAX:
        raise ConfigError(
            f"a broker is named by its id, a number, or by {ALL_BROKERS} for what all brokers "
            f"share; {shown(name)} is neither."
        )
    return Resource(BROKER, str(int(name)))


_KIND: Final = click.argument("kind", type=click.Choice([TOPIC, BROKER]))


def _with_old_spellings(command: Command) -> Command:
    named = "say `ottla configs describe topic NAME`, or `broker ID`."
    decorators: tuple[Callable[[Command], Command], ...] = (
        old_spelling("--entity-type", instead=named),
        old_spelling("--entity-name", instead=named),
        old_spelling("--add-config", instead="say `configs alter topic NAME --set KEY=VALUE`."),
        old_spelling("--delete-config", instead="say `configs alter topic NAME --unset KEY`."),
    )
    for decorate in decorators:
        command = decorate(command)
    return command


@click.group(cls=ToolGroup)
@old_spelling("--describe", is_flag=True, instead="say `ottla configs describe topic NAME`.")
@old_spelling("--alter", is_flag=True, instead="say `ottla configs alter topic NAME --set K=V`.")
@_with_old_spellings
@old_spelling("--bootstrap-server", instead="say it after the command.")
def configs() -> None:
    """Show and change the options of topics and brokers."""


@configs.command()
@_KIND
@click.argument("name")
@click.option("--all", "everything", is_flag=True, help="Also what nobody has set.")
@for_clients
def describe(
    bootstrap: tuple[Address, ...], as_json: bool, kind: str, name: str, everything: bool
) -> None:
    """Show the options of the topic NAME, or of the broker with the id NAME.

    Without --all only those that somebody has set. `broker default` is what all brokers share.
    """
    resource = _resource_of(kind, name)
    result = run(_describe(bootstrap, resource))
    refusal = refusal_of(result)
    if refusal is not None:
        complain(told_refusal(str(resource), with_topic_hint(refusal, resource.topic)))
        click.get_current_context().exit(1)
    rows = [
        one
        for one in sorted(result.configs, key=lambda one: str(one.name))
        if everything or _is_by_hand(one, resource.kind)
    ]
    if as_json:
        tell_json([_as_json(one) for one in rows])
    elif rows:
        tell_table(
            ("option", "value", "set by", ""),
            [(one.name, _value(one), _source(one), _remark(one)) for one in rows],
        )
    else:
        click.echo(f"{resource}: all options have their defaults; --all shows them.", err=True)


def _value(config: Message) -> str:
    if config.is_sensitive:
        return "(hidden)"
    return config.value if config.value is not None else "(none)"


def _source(config: Message) -> str:
    return _SOURCES.get(config.get("config_source", -1), "unknown")


def _remark(config: Message) -> str:
    return "read-only" if config.read_only else ""


def _is_by_hand(config: Message, kind: Kind) -> bool:
    return config.get("config_source", -1) in _BY_HAND[kind]


def _as_json(config: Message) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "source": _source(config),
        "read_only": config.read_only,
        "sensitive": config.is_sensitive,
    }


@configs.command()
@_KIND
@click.argument("name")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Give an option a value.")
@click.option("--unset", "keys", multiple=True, metavar="KEY", help="Give it its default again.")
@click.option("--dry-run", is_flag=True, help="Only tell whether it could be done.")
@_with_old_spellings
@for_clients
def alter(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    kind: str,
    name: str,
    pairs: tuple[str, ...],
    keys: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change options of the topic NAME, or of the broker with the id NAME: all or none of them."""
    resource = _resource_of(kind, name)
    changes = _changes_of(pairs, keys)
    refusal = run(_alter(bootstrap, resource, changes, dry_run=dry_run))
    if as_json:
        tell_json(
            {
                kind: name,
                "set": {key: value for key, value in changes.items() if value is not None},
                "unset": [key for key, value in changes.items() if value is None],
                "error": refusal_as_json(refusal),
            }
        )
    elif refusal is None:
        word = "could be altered" if dry_run else "altered"
        click.echo(f"{resource}: {word}")
    if refusal is not None:
        hinted = with_topic_hint(refusal, resource.topic)
        complain(told_undone(str(resource), "altered", hinted))
        click.get_current_context().exit(1)


def _changes_of(pairs: tuple[str, ...], keys: tuple[str, ...]) -> dict[str, str | None]:
    """Return the new value of each option, None for its default."""
    given = parse_pairs("--set", pairs)
    if not given and not keys:
        raise ConfigError("nothing to alter: say --set KEY=VALUE or --unset KEY.")
    both = next((key for key in keys if key in given or keys.count(key) > 1), None)
    if both is not None:
        raise ConfigError(f"{shown_name(both)} is named twice: keep one of them.")
    return {**given, **dict.fromkeys(keys)}


async def _describe(bootstrap: Sequence[Address], resource: Resource) -> Message:
    async with open_cluster(bootstrap) as cluster:
        return only(await _configs_of(cluster, [resource]))


async def _alter(
    bootstrap: Sequence[Address],
    resource: Resource,
    changes: Mapping[str, str | None],
    *,
    dry_run: bool,
) -> RequestError | None:
    fields = {
        "resources": [
            {
                "resource_type": _RESOURCE_TYPES[resource.kind],
                "resource_name": resource.name,
                "configs": [
                    {
                        "name": key,
                        "config_operation": _UNSET if value is None else _SET,
                        "value": value,
                    }
                    for key, value in changes.items()
                ],
            }
        ],
        "validate_only": dry_run,
    }
    async with open_cluster(bootstrap) as cluster:
        if resource.broker_id is None:
            results = await cluster.change(INCREMENTAL_ALTER_CONFIGS, fields, "responses")
        else:
            answer = await cluster.ask_broker(resource.broker_id, INCREMENTAL_ALTER_CONFIGS, fields)
            results = answer.responses
        return refusal_of(only(results))


async def set_by_hand(
    cluster: Cluster, kind: Kind, names: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """Return what somebody has set, by resource."""
    found = dict[str, dict[str, str | None]]()
    for start in range(0, len(names), _AT_ONCE):
        some = [Resource(kind, name) for name in names[start : start + _AT_ONCE]]
        for result in await _configs_of(cluster, some):
            found[result.resource_name] = {
                one.name: one.value for one in result.configs if _is_by_hand(one, kind)
            }
    return found


async def _configs_of(cluster: Cluster, resources: Sequence[Resource]) -> list[Message]:
    """Ask about resources that the same broker can tell about."""
    fields = {
        "resources": [
            {
                "resource_type": _RESOURCE_TYPES[resource.kind],
                "resource_name": resource.name,
                "configuration_keys": None,
            }
            for resource in resources
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }
    broker_id = resources[0].broker_id
    if broker_id is None:
        answer = await cluster.ask(DESCRIBE_CONFIGS, fields)
    else:
        answer = await cluster.ask_broker(broker_id, DESCRIBE_CONFIGS, fields)
    results: list[Message] = answer.results
    return results
