"""`ottla topics`: create, list, describe, alter and delete topics.

Not here: their options (`configs.py`); a topic may be created with some. How they stand is told by
`describe.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from ottla.clients.cli.cluster import CHANGE_TIMEOUT_MS, only, open_cluster
from ottla.clients.cli.describe import (
    counted,
    describe,
    id_text,
    known,
    replication_factor,
    summary,
    topics_of,
)
from ottla.clients.cli.options import ToolGroup, for_clients, old_spelling, parse_pairs, run
from ottla.clients.cli.output import (
    complain,
    is_unknown,
    refusal_as_json,
    refusal_of,
    tell_json,
    tell_table,
    told_undone,
    with_topic_hint,
)
from ottla.proto.errors import ConfigError, ErrorCode, RequestError
from ottla.proto.kafka.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name

# "As the cluster does it by default."
_BY_DEFAULT: Final = -1
_COUNT: Final = click.IntRange(min=1)


@click.group(cls=ToolGroup)
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


topics.add_command(describe)


@topics.command()
@click.argument("name")
@old_spelling("--topic", instead="say the name alone: `ottla topics create NAME`.")
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
    result = only(run(_change(bootstrap, CREATE_TOPICS, fields, "topics")))
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
    _end_undone("created", {} if refusal is None else {name: refusal})


def _created(result: Message, refusal: RequestError | None) -> dict[str, Any]:
    topic_id = result.get("topic_id", ZERO_UUID)
    return {
        "id": None if topic_id == ZERO_UUID else id_text(topic_id),
        "partition_count": known(result.get("num_partitions")),
        "replication_factor": known(result.get("replication_factor")),
        "error": refusal_as_json(refusal),
    }


def _shape(result: Message) -> str:
    partitions = known(result.get("num_partitions"))
    copies = known(result.get("replication_factor"))
    if partitions is None or copies is None:
        # A broker older than Kafka 2.4 does not tell.
        return ""
    return f", {counted(partitions, 'partition')}, replication factor {copies}"


@topics.command("list")
@click.option("--exclude-internal", is_flag=True, help="Only topics that people made.")
@for_clients
def list_(bootstrap: tuple[Address, ...], as_json: bool, exclude_internal: bool) -> None:
    """List the topics of the cluster."""
    found = run(_read_topics(bootstrap, None))
    if exclude_internal:
        found = [topic for topic in found if not topic.get("is_internal", False)]
    if as_json:
        tell_json([summary(topic) for topic in found])
    elif found:
        rows = [(one.name, len(one.partitions), replication_factor(one)) for one in found]
        tell_table(("topic", "partitions", "replication factor"), rows)
    else:
        click.echo("There are no topics.", err=True)


@topics.command()
@click.argument("name")
@old_spelling("--topic", instead="say the name alone: `ottla topics alter NAME`.")
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
        click.echo(f"{_name(name)}: {verb} {counted(partitions, 'partition')}")
    _end_undone("altered", {} if refusal is None else {name: with_topic_hint(refusal, name)})


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@old_spelling("--topic", instead="say the name alone: `ottla topics delete NAME`.")
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


async def _change(
    bootstrap: Sequence[Address], row: Any, fields: dict[str, Any], results: str
) -> list[Message]:
    async with open_cluster(bootstrap) as cluster:
        return await cluster.change(row, fields, results)


async def _read_topics(bootstrap: Sequence[Address], names: Sequence[str] | None) -> list[Message]:
    async with open_cluster(bootstrap) as cluster:
        return await topics_of(cluster, names)


def _end_undone(done: str, refusals: dict[str, RequestError]) -> None:
    """Complain about each topic to which it was not done, and end with 1 if there is any."""
    for name, refusal in refusals.items():
        complain(told_undone(f"topic {_name(name)}", done, refusal))
    if refusals:
        click.get_current_context().exit(1)


def _name(name: str) -> str:
    return shown_name(name)
