"""`ottla topics`: create, list, describe, alter and delete topics.

Not here: their options (`configs.py`); a topic may be created with some.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import click

from ottla.clients.cli.cluster import CHANGE_TIMEOUT_MS, Cluster, only, open_cluster
from ottla.clients.cli.configs import TOPIC, set_by_hand
from ottla.clients.cli.followers import NOTE, refuses_writes
from ottla.clients.cli.options import for_clients, old_spelling, parse_pairs, run
from ottla.clients.cli.output import (
    complain,
    is_unknown,
    printable,
    refusal_as_json,
    refusal_of,
    tell_json,
    tell_table,
    told_refusal,
    told_undone,
    with_topic_hint,
)
from ottla.clients.connection import error_code_of
from ottla.proto.errors import ConfigError, ErrorCode, RequestError
from ottla.proto.kafka.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name

# "As the cluster does it by default."
_BY_DEFAULT: Final = -1
_COUNT: Final = click.IntRange(min=1)


@click.group()
@old_spelling("--create", is_flag=True, instead="say `ottla topics create NAME`.")
@old_spelling("--list", is_flag=True, instead="say `ottla topics list`.")
@old_spelling("--describe", is_flag=True, instead="say `ottla topics describe [NAME]`.")
@old_spelling("--alter", is_flag=True, instead="say `ottla topics alter NAME --partitions N`.")
@old_spelling("--delete", is_flag=True, instead="say `ottla topics delete NAME`.")
@old_spelling("--topic", instead="say the name alone, as in `ottla topics describe NAME`.")
@old_spelling("--zookeeper", instead="say --bootstrap-server HOST:PORT after the command.")
@old_spelling("--bootstrap-server", instead="say it after the command, as in `topics list …`.")
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("name")
@click.option("--partitions", type=_COUNT, help="How many; else as the cluster does by default.")
@click.option(
    "--replication-factor",
    type=_COUNT,
    help="How many copies of each partition; else as the cluster does by default.",
)
@click.option("--config", "pairs", multiple=True, metavar="KEY=VALUE", help="An option of it.")
@click.option("--if-not-exists", is_flag=True, help="It is no failure if the topic is there.")
@click.option("--dry-run", is_flag=True, help="Only tell whether it could be done.")
@for_clients
def create(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    pairs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create the topic NAME."""
    configs = parse_pairs("--config", pairs)
    fields = {
        "topics": [
            {
                "name": name,
                "num_partitions": partitions or _BY_DEFAULT,
                "replication_factor": replication_factor or _BY_DEFAULT,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
        ],
        "timeout": CHANGE_TIMEOUT_MS,
        "validate_only": dry_run,
    }
    result, note = run(_create(bootstrap, fields))
    refusal = refusal_of(result)
    is_there = refusal is not None and refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS
    if if_not_exists and is_there:
        refusal = None
    verb = "could be created" if dry_run else "is there already" if is_there else "created"
    if as_json:
        is_made = refusal is None and not is_there and not dry_run
        made = None if is_unknown(refusal) else is_made
        tell_json({"topic": name, "created": made, **_created(result, refusal)})
    elif refusal is None:
        click.echo(f"{_name(name)}: {verb}{'' if is_there else _shape(result)}")
        if note:
            click.echo(note, err=True)
    _end_undone("created", {} if refusal is None else {name: refusal})


def _created(result: Message, refusal: RequestError | None) -> dict[str, Any]:
    topic_id = result.get("topic_id", ZERO_UUID)
    return {
        "id": None if topic_id == ZERO_UUID else id_text(topic_id),
        "partition_count": _known(result.get("num_partitions")),
        "replication_factor": _known(result.get("replication_factor")),
        "error": refusal_as_json(refusal),
    }


def _known(count: int | None) -> int | None:
    return None if count is None or count < 0 else count


def _shape(result: Message) -> str:
    partitions = _known(result.get("num_partitions"))
    copies = _known(result.get("replication_factor"))
    if partitions is None or copies is None:
        # A broker older than Kafka 2.4 does not tell.
        return ""
    return f", {_counted(partitions, 'partition')}, replication factor {copies}"


@topics.command("list")
@click.option("--exclude-internal", is_flag=True, help="Only topics that people made.")
@for_clients
def list_(bootstrap: tuple[Address, ...], as_json: bool, exclude_internal: bool) -> None:
    """List the topics of the cluster."""
    found = run(_read_topics(bootstrap, None))
    if exclude_internal:
        found = [topic for topic in found if not topic.get("is_internal", False)]
    if as_json:
        tell_json([_summary(topic) for topic in found])
    elif found:
        rows = [(one.name, len(one.partitions), _replication_factor(one)) for one in found]
        tell_table(("topic", "partitions", "replication factor"), rows)
    else:
        click.echo("There are no topics.", err=True)


def _summary(topic: Message) -> dict[str, Any]:
    topic_id = topic.get("topic_id", ZERO_UUID)
    return {
        "topic": topic.name,
        "id": None if topic_id == ZERO_UUID else id_text(topic_id),
        "internal": topic.get("is_internal", False),
        "partition_count": len(topic.partitions),
        "replication_factor": _replication_factor(topic),
    }


@topics.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@for_clients
def describe(bootstrap: tuple[Address, ...], as_json: bool, names: tuple[str, ...]) -> None:
    """Tell where the partitions of topics are: of NAME, or of all topics."""
    found, configs = run(_describe(bootstrap, names))
    missing = {
        f"topic {_name(topic.name)}": with_topic_hint(
            RequestError(error_code_of(topic.error_code)), topic.name
        )
        for topic in found
        if topic.error_code
    }
    there = [topic for topic in found if not topic.error_code]
    if as_json:
        tell_json([_description(topic, configs[topic.name]) for topic in there])
    else:
        for at, topic in enumerate(there):
            _tell_topic(topic, configs[topic.name], is_first=at == 0)
        if not found:
            click.echo("There are no topics.", err=True)
    _end(missing)


def _tell_topic(topic: Message, configs: dict[str, str | None], *, is_first: bool) -> None:
    if not is_first:
        click.echo()
    parts = [
        f"topic {_name(topic.name)}",
        _counted(len(topic.partitions), "partition"),
        f"replication factor {_replication_factor(topic)}",
    ]
    topic_id = topic.get("topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        parts.append(f"id {id_text(topic_id)}")
    click.echo(", ".join(parts))
    for key, value in sorted(configs.items()):
        click.echo(f"  {printable(key)}={printable(value or '')}")
    headings = ("partition", "leader", "epoch", "replicas", "isr", "")
    rows = [
        (
            one.partition_index,
            "none" if one.leader_id < 0 else one.leader_id,
            one.get("leader_epoch", -1),
            _ids(one.replica_nodes),
            _ids(one.isr_nodes),
            _remark(one),
        )
        for one in _in_order(topic)
    ]
    tell_table(headings, rows, indent=2)


def _remark(partition: Message) -> str:
    if partition.leader_id < 0:
        return "no leader"
    behind = len(set(partition.replica_nodes) - set(partition.isr_nodes))
    return f"{_counted(behind, 'replica')} behind" if behind else ""


def _description(topic: Message, configs: dict[str, str | None]) -> dict[str, Any]:
    return {
        **_summary(topic),
        "configs": dict(sorted(configs.items())),
        "partitions": [
            {
                "partition": one.partition_index,
                "leader": _known(one.leader_id),
                "leader_epoch": _known(one.get("leader_epoch")),
                "replicas": one.replica_nodes,
                "isr": one.isr_nodes,
                "offline": one.get("offline_replicas", []),
            }
            for one in _in_order(topic)
        ],
    }


@topics.command()
@click.argument("name")
@click.option("--partitions", type=_COUNT, help="How many there shall be; never fewer than now.")
@click.option("--dry-run", is_flag=True, help="Only tell whether it could be done.")
@old_spelling("--config", instead="say `ottla configs alter topic NAME --set KEY=VALUE`.")
@old_spelling("--delete-config", instead="say `ottla configs alter topic NAME --unset KEY`.")
@for_clients
def alter(
    bootstrap: tuple[Address, ...], as_json: bool, name: str, partitions: int | None, dry_run: bool
) -> None:
    """Add partitions to the topic NAME. Keys may go to other partitions than before."""
    if partitions is None:
        raise ConfigError(
            "nothing to alter: --partitions N is missing. (`ottla configs alter topic` changes "
            "options.)"
        )
    fields = {
        "topics": [{"name": name, "count": partitions, "assignments": None}],
        "timeout": CHANGE_TIMEOUT_MS,
        "validate_only": dry_run,
    }
    result = only(run(_change(bootstrap, CREATE_PARTITIONS, fields, "results")))
    refusal = refusal_of(result)
    if as_json:
        tell_json({"topic": name, "partition_count": partitions, "error": refusal_as_json(refusal)})
    elif refusal is None:
        verb = "could have" if dry_run else "has now"
        click.echo(f"{_name(name)}: {verb} {_counted(partitions, 'partition')}")
    _end_undone("altered", {} if refusal is None else {name: with_topic_hint(refusal, name)})


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--if-exists", is_flag=True, help="It is no failure if a topic is not there.")
@for_clients
def delete(
    bootstrap: tuple[Address, ...], as_json: bool, names: tuple[str, ...], if_exists: bool
) -> None:
    """Delete topics, with all their records. This cannot be undone."""
    fields = {
        # Versions up to 5, and from 6 on.
        "topic_names": list(names),
        "topics": [{"name": name, "topic_id": ZERO_UUID} for name in names],
        "timeout": CHANGE_TIMEOUT_MS,
    }
    results = run(_change(bootstrap, DELETE_TOPICS, fields, "responses"))
    outcomes = dict[str, RequestError | None]()
    for result in results:
        refusal = refusal_of(result)
        gone = refusal is not None and refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        outcomes[result.name] = None if if_exists and gone else refusal
        if not as_json and refusal is None:
            click.echo(f"{_name(result.name)}: deleted")
    if as_json:
        tell_json(
            [
                {"topic": name, "error": refusal_as_json(refusal)}
                for name, refusal in outcomes.items()
            ]
        )
    refusals = {name: refusal for name, refusal in outcomes.items() if refusal is not None}
    _end_undone("deleted", {name: _with_list_hint(one) for name, one in refusals.items()})


def _with_list_hint(refusal: RequestError) -> RequestError:
    # To make a topic is no way to delete it; its name was mistyped, or it is gone.
    if refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return refusal
    return RequestError(refusal.code, "there is none; `ottla topics list` tells which there are.")


async def _create(bootstrap: Sequence[Address], fields: dict[str, Any]) -> tuple[Message, str]:
    """Return what became of it, and what its user should know; mostly nothing."""
    async with open_cluster(bootstrap) as cluster:
        result = only(await cluster.change(CREATE_TOPICS, fields, "topics"))
        copies = _known(result.get("replication_factor")) or 1
        return result, NOTE if await refuses_writes(cluster, copies) else ""


async def _change(
    bootstrap: Sequence[Address], row: Any, fields: dict[str, Any], results: str
) -> list[Message]:
    async with open_cluster(bootstrap) as cluster:
        return await cluster.change(row, fields, results)


async def _read_topics(bootstrap: Sequence[Address], names: Sequence[str] | None) -> list[Message]:
    async with open_cluster(bootstrap) as cluster:
        return await _topics_of(cluster, names)


async def _topics_of(cluster: Cluster, names: Sequence[str] | None) -> list[Message]:
    found: list[Message] = (await cluster.metadata(names)).topics
    return sorted(found, key=lambda topic: str(topic.name))


async def _describe(
    bootstrap: Sequence[Address], names: Sequence[str]
) -> tuple[list[Message], dict[str, dict[str, str | None]]]:
    async with open_cluster(bootstrap) as cluster:
        found = await _topics_of(cluster, names or None)
        there = [topic.name for topic in found if not topic.error_code]
        return found, await set_by_hand(cluster, TOPIC, there)


def _end(refusals: dict[str, RequestError]) -> None:
    """Complain about each, and end with 1 if there is any."""
    for what, refusal in refusals.items():
        complain(told_refusal(what, refusal))
    if refusals:
        click.get_current_context().exit(1)


def _end_undone(done: str, refusals: dict[str, RequestError]) -> None:
    """Complain about each topic to which it was not done, and end with 1 if there is any."""
    for name, refusal in refusals.items():
        complain(told_undone(f"topic {_name(name)}", done, refusal))
    if refusals:
        click.get_current_context().exit(1)


def id_text(topic_id: UUID) -> str:
    """Return an id as Kafka's tools write it."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _name(name: str) -> str:
    return shown_name(name)


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _in_order(topic: Message) -> list[Message]:
    return sorted(topic.partitions, key=lambda one: int(one.partition_index))


def _replication_factor(topic: Message) -> int:
    # Partitions may differ while they are being moved; then the least that holds for all.
    return min((len(one.replica_nodes) for one in topic.partitions), default=0)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
