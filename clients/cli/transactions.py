"""`ottla transactions`: list, describe, commit and abort transactions, and find those that hang.

T1  exit code 0 only if it was done for everything that was named
T2  only what its producer has prepared is committed from here: the name that `prepare` gave is
    needed, not the transactional id, under which something else may be open by now
T3  `hanging` ends with 1 if it finds anything, so that a script can ask

Not here: what hangs (`clients/admin/transactions.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import click

from ottla.clients.admin.answers import HangingTransaction, ProducerInfo, TransactionInfo
from ottla.clients.admin.client import AsyncAdmin
from ottla.clients.cli.admin import open_admin
from ottla.clients.cli.options import ToolGroup, for_clients, old_spelling, run
from ottla.clients.cli.output import (
    complain,
    printable,
    refusal_as_json,
    tell_json,
    tell_table,
    told_refusal,
)
from ottla.clients.cli.text import time_text
from ottla.clients.errors import TransactionError
from ottla.clients.metadata import TopicInfo
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.proto.errors import ConfigError, ErrorCode, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name

R = TypeVar("R")
_NONE: Final = "-"
# Kafka's transaction.max.timeout.ms: what is open for longer should have ended by itself.
_OLDER_THAN_S: Final = 900


@click.group(cls=ToolGroup)
@old_spelling("--list", is_flag=True, instead="say `ottla transactions list`.")
@old_spelling("--find-hanging", is_flag=True, instead="say `ottla transactions hanging`.")
@old_spelling(
    "--bootstrap-server", instead="say it after the command, as in `transactions list …`."
)
def transactions() -> None:
    """List, describe, commit and abort transactions, and find those that hang."""


@transactions.command("list")
@click.option("--state", "states", multiple=True, help="Only these, as Ongoing; may be repeated.")
@click.option(
    "--open-for", type=click.IntRange(0), metavar="SECONDS", help="Only what is open for so long."
)
@for_clients
def list_(
    bootstrap: tuple[Address, ...], as_json: bool, states: tuple[str, ...], open_for: int | None
) -> None:
    """List the transactional ids of the cluster, and what state each is in."""
    open_for_ms = None if open_for is None else open_for * 1000
    found = run(
        _with_admin(
            bootstrap,
            lambda admin: admin.list_transactions(states=states, open_for_ms=open_for_ms),
        )
    )
    if as_json:
        tell_json(
            [
                {
                    "transactional_id": one.transactional_id,
                    "producer_id": one.producer_id,
                    "state": one.state,
                    "coordinator": one.node_id,
                }
                for one in found
            ]
        )
    elif found:
        rows = [(one.transactional_id, one.producer_id, one.state, one.node_id) for one in found]
        tell_table(("transactional id", "producer", "state", "coordinator"), rows)
    else:
        click.echo("There are no transactions.", err=True)


@transactions.command()
@click.argument("names", nargs=-1, metavar="[TRANSACTIONAL_ID]...")
@for_clients
def describe(bootstrap: tuple[Address, ...], as_json: bool, names: tuple[str, ...]) -> None:
    """Show what is open under transactional ids, since when and where; of all if none is named."""
    found = run(_with_admin(bootstrap, lambda admin: _describe(admin, names)))
    if as_json:
        tell_json([_as_json(name, one) for name, one in found.items()])
    else:
        told = [one for one in found.values() if isinstance(one, TransactionInfo)]
        for number, one in enumerate(told):
            if number:
                click.echo()
            _tell(one)
    _end({n: one for n, one in found.items() if isinstance(one, RequestError)}, "")


@transactions.command()
@click.argument("names", nargs=-1, required=True, metavar="PREPARED...")
@for_clients
def commit(bootstrap: tuple[Address, ...], as_json: bool, names: tuple[str, ...]) -> None:
    """Commit prepared transactions, by the names that `prepare` gave.

    PREPARED is PRODUCER_ID:EPOCH:TRANSACTIONAL_ID, as `describe` shows them, too. Saying it twice
    is harmless. A producer that has kept the transaction, and did not decide, is fenced. Those of a
    Spark sink (PREFIX/ROUND/…) are decided by its query: start that again instead.
    """
    prepared = {name: PreparedTransaction.parse(name) for name in names}
    _each(
        bootstrap,
        as_json,
        names,
        "committed",
        lambda admin, name: admin.complete_transaction(prepared[name], commit=True, take_over=True),
    )


@transactions.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--topic", help="Abort what hangs in a partition of this topic.")
@click.option("--partition", type=click.IntRange(0))
@click.option("--start-offset", type=click.IntRange(0), help="Where it begins, as `hanging` says.")
@for_clients
def abort(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    names: tuple[str, ...],
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
) -> None:
    """Abort transactions.

    NAME is a transactional id, whose producer is fenced, or what `prepare` gave. With --topic,
    --partition and --start-offset instead: a transaction that hangs, as `hanging` shows it. Those
    of a Spark sink (PREFIX/ROUND/…) are decided by its query: start that again instead.
    """
    place = (topic, partition, start_offset)
    if bool(names) == any(one is not None for one in place):
        raise ConfigError("Name transactions, or --topic, --partition and --start-offset.")
    if names:
        _each(bootstrap, as_json, names, "aborted", _abort_named)
        return
    if topic is None or partition is None or start_offset is None:
        raise ConfigError("--topic, --partition and --start-offset are needed together.")
    where, offset = TopicPartition(topic, partition), start_offset
    told = f"{where} from offset {offset}"
    _each(
        bootstrap,
        as_json,
        (told,),
        "aborted",
        lambda admin, _: _abort_hanging(admin, where, offset),
    )


@transactions.command()
@click.option("--topic", "topics", multiple=True, help="Only here; may be repeated.")
@click.option(
    "--older-than",
    type=click.IntRange(0),
    default=_OLDER_THAN_S,
    show_default=True,
    metavar="SECONDS",
    help="Only what nothing was written to for so long.",
)
@for_clients
def hanging(
    bootstrap: tuple[Address, ...], as_json: bool, topics: tuple[str, ...], older_than: int
) -> None:
    """Find transactions that are open in a partition, and that no coordinator will end."""
    found = run(_with_admin(bootstrap, lambda admin: _hanging(admin, topics, older_than * 1000)))
    if as_json:
        tell_json([_hanging_as_json(one) for one in found])
    elif found:
        rows = [
            (
                one.partition.topic,
                one.partition.partition,
                one.producer.open_since_offset,
                one.producer.producer_id,
                one.producer.epoch,
                time_text(one.producer.last_timestamp_ms),
                one.transactional_id or _NONE,
            )
            for one in found
        ]
        headings = ("topic", "partition", "start offset", "producer", "epoch", "last written")
        tell_table((*headings, "transactional id"), rows)
    else:
        click.echo("No transaction hangs.", err=True)
    if found:
        click.get_current_context().exit(1)


# --- doing ----------------------------------------------------------------------------------------


async def _with_admin(
    bootstrap: Sequence[Address], work: Callable[[AsyncAdmin], Awaitable[R]]
) -> R:
    async with open_admin(bootstrap) as admin:
        return await work(admin)


def _each(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    names: Sequence[str],
    done: str,
    work: Callable[[AsyncAdmin, str], Awaitable[None]],
) -> None:
    """Do it to each, tell what became of it, and end with 1 unless all is done (T1)."""

    async def to_all(admin: AsyncAdmin) -> dict[str, RequestError | TransactionError | None]:
        outcomes = dict[str, RequestError | TransactionError | None]()
        for name in dict.fromkeys(names):
            try:
                await work(admin, name)
            except (RequestError, TransactionError) as error:
                outcomes[name] = error
            else:
                outcomes[name] = None
        return outcomes

    outcomes = run(_with_admin(bootstrap, to_all))
    if as_json:
        tell_json(
            [
                {"name": name, done: error is None, "error": _error_as_json(error)}
                for name, error in outcomes.items()
            ]
        )
    for name, error in outcomes.items():
        if error is None and not as_json:
            click.echo(f"{shown_name(name)}: {done}")
    _end({name: error for name, error in outcomes.items() if error is not None}, f" was not {done}")


async def _describe(
    admin: AsyncAdmin, names: Sequence[str]
) -> dict[str, TransactionInfo | RequestError]:
    wanted = list(dict.fromkeys(names))
    return await admin.describe_transactions(
        wanted or [one.transactional_id for one in await admin.list_transactions()]
    )


async def _abort_named(admin: AsyncAdmin, name: str) -> None:
    try:
        prepared = PreparedTransaction.parse(name)
    except ConfigError:
        await admin.terminate_transaction(name)
    else:
        await admin.complete_transaction(prepared, commit=False, take_over=True)


async def _abort_hanging(admin: AsyncAdmin, where: TopicPartition, offset: int) -> None:
    found = (await admin.describe_producers([where]))[where]
    if isinstance(found, RequestError):
        raise found
    for one in found:
        if one.open_since_offset == offset:
            await admin.abort_transaction(where, one)
            return
    raise RequestError(ErrorCode.INVALID_TXN_STATE, _none_at(offset, found))


def _none_at(offset: int, found: Sequence[ProducerInfo]) -> str:
    begins = sorted(o.open_since_offset for o in found if o.open_since_offset is not None)
    others = f"others at {', '.join(map(str, begins))}" if begins else "no other either"
    return f"no transaction is open there from offset {offset}; {others}."


async def _hanging(
    admin: AsyncAdmin, topics: Sequence[str], older_than_ms: int
) -> list[HangingTransaction]:
    names = list(topics) or await admin.list_topics(internal=True)
    described = await admin.describe_topics(names)
    partitions = list[TopicPartition]()
    for name, topic in described.items():
        if isinstance(topic, TopicInfo):
            partitions += [TopicPartition(name, one.partition) for one in topic.partitions]
        elif topics:
            raise topic
    return await admin.hanging_transactions(partitions, older_than_ms=older_than_ms)


# --- telling --------------------------------------------------------------------------------------


def _tell(info: TransactionInfo) -> None:
    click.echo(
        f"transactional id {shown_name(info.transactional_id)}, {printable(info.state)}, producer "
        f"{info.producer_id}, epoch {info.epoch}, coordinator {info.node_id}"
    )
    if info.started_ms is not None:
        click.echo(f"open since {time_text(info.started_ms)}, time-out {info.timeout_ms} ms")
    if info.partitions:
        rows = [(one.topic, one.partition) for one in info.partitions]
        tell_table(("topic", "partition"), rows)


def _as_json(name: str, found: TransactionInfo | RequestError) -> dict[str, Any]:
    if isinstance(found, RequestError):
        return {"transactional_id": name, "error": refusal_as_json(found)}
    return {
        "transactional_id": name,
        "state": found.state,
        "producer_id": found.producer_id,
        "epoch": found.epoch,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms,
        "coordinator": found.node_id,
        "partitions": [
            {"topic": one.topic, "partition": one.partition} for one in found.partitions
        ],
        "error": None,
    }


def _hanging_as_json(one: HangingTransaction) -> dict[str, Any]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "start_offset": one.producer.open_since_offset,
        "producer_id": one.producer.producer_id,
        "epoch": one.producer.epoch,
        "last_timestamp_ms": one.producer.last_timestamp_ms,
        "transactional_id": one.transactional_id,
    }


def _error_as_json(error: RequestError | TransactionError | None) -> dict[str, Any] | None:
    if error is None or isinstance(error, RequestError):
        return refusal_as_json(error)
    code = ErrorCode.UNKNOWN_SERVER_ERROR if error.code is None else error.code
    return {"code": int(code), "name": code.name, "message": str(error)}


def _end(errors: dict[str, Any], what: str) -> None:
    """Complain about each to which it was not done, and end with 1 if there is any."""
    for name, error in errors.items():
        told = f"{shown_name(name)}{what}"
        if isinstance(error, RequestError):
            complain(told_refusal(told, _with_hint(error)))
        else:
            complain(f"{shown_name(name)}: {error}")
    if errors:
        click.get_current_context().exit(1)


def _with_hint(refusal: RequestError) -> RequestError:
    if refusal.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        sentence = "there is none; `ottla transactions list` tells which there are."
        return RequestError(refusal.code, sentence)
    return RequestError(refusal.code, printable(refusal.sentence))
