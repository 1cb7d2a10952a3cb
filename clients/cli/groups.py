"""`ottla groups`: list, describe, reset and delete consumer groups.

G1  exit code 0 only if it was done for every group that was named
G2  a group that is not there is told so, and not shown as an empty one

Not here: what a lag is (`lag.py`), moving a group (`reset.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ottla.clients.admin.answers import GroupInfo, OffsetInfo
from ottla.clients.admin.client import AsyncAdmin
from ottla.clients.cli.admin import open_admin
from ottla.clients.cli.describe import counted
from ottla.clients.cli.lag import (
    Standing,
    partitions_of,
    partitions_read,
    standings,
    total_lag,
)
from ottla.clients.cli.options import ToolGroup, for_clients, old_spelling, run
from ottla.clients.cli.output import (
    complain,
    printable,
    refusal_as_json,
    tell_json,
    tell_table,
    told_refusal,
)
from ottla.clients.cli.reset import reset
from ottla.clients.metadata import TopicInfo
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name

R = TypeVar("R")
_UNKNOWN = "-"


@click.group(cls=ToolGroup)
@old_spelling("--list", is_flag=True, instead="say `ottla groups list`.")
@old_spelling("--describe", is_flag=True, instead="say `ottla groups describe NAME`.")
@old_spelling("--delete", is_flag=True, instead="say `ottla groups delete NAME`.")
@old_spelling(
    "--reset-offsets",
    is_flag=True,
    instead="say `ottla groups reset NAME --topic TOPIC --to-earliest`.",
)
@old_spelling("--group", instead="say the name alone, as in `ottla groups describe NAME`.")
@old_spelling("--bootstrap-server", instead="say it after the command, as in `groups list …`.")
@old_spelling("--broker-list", instead="say --bootstrap-server HOST:PORT after the command.")
@old_spelling("--zookeeper", instead="say --bootstrap-server HOST:PORT after the command.")
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


groups.add_command(reset)


@dataclass(frozen=True, slots=True)
class _Described:
    """A group, and where it stands in its partitions."""

    group: GroupInfo
    partitions: list[Standing]


@groups.command("list")
@for_clients
def list_(bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """List the groups of the cluster."""
    found = run(_with_admin(bootstrap, lambda admin: admin.list_groups()))
    if as_json:
        tell_json(
            [
                {"group": one.group_id, "state": one.state, "protocol_type": one.protocol_type}
                for one in found
            ]
        )
    elif found:
        rows = [(one.group_id, one.state or _UNKNOWN, one.protocol_type) for one in found]
        tell_table(("group", "state", "protocol"), rows)
    else:
        click.echo("There are no groups.", err=True)


@groups.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@old_spelling("--group", instead="say the name alone: `ottla groups describe NAME`.")
@old_spelling("--all-groups", is_flag=True, instead="name none: `ottla groups describe`.")
@for_clients
def describe(bootstrap: tuple[Address, ...], as_json: bool, names: tuple[str, ...]) -> None:
    """Show members, offsets and lag of groups; of all groups if none is named."""
    found = run(_with_admin(bootstrap, lambda admin: _describe(admin, names)))
    if as_json:
        tell_json([_as_json(name, one) for name, one in found.items()])
    else:
        # A line between two groups, and none after the last.
        for number, one in enumerate(one for one in found.values() if isinstance(one, _Described)):
            if number:
                click.echo()
            _tell(one)
    _end(
        {
            f"group {shown_name(name)}": one
            for name, one in found.items()
            if isinstance(one, RequestError)
        }
    )


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@old_spelling("--group", instead="say the name alone: `ottla groups delete NAME`.")
@for_clients
def delete(bootstrap: tuple[Address, ...], as_json: bool, names: tuple[str, ...]) -> None:
    """Delete groups that have no members, with the offsets they have committed."""
    wanted = list(dict.fromkeys(names))
    outcomes = run(_with_admin(bootstrap, lambda admin: admin.delete_groups(wanted)))
    if as_json:
        tell_json(
            [
                {"group": name, "deleted": one is None, "error": refusal_as_json(one)}
                for name, one in outcomes.items()
            ]
        )
    for name, one in outcomes.items():
        if one is None and not as_json:
            click.echo(f"{shown_name(name)}: deleted")
    refused = {name: one for name, one in outcomes.items() if one is not None}
    _end({f"group {shown_name(name)} was not deleted": one for name, one in refused.items()})


async def _with_admin(
    bootstrap: Sequence[Address], work: Callable[[AsyncAdmin], Awaitable[R]]
) -> R:
    async with open_admin(bootstrap) as admin:
        return await work(admin)


async def _describe(
    admin: AsyncAdmin, names: Sequence[str]
) -> dict[str, _Described | RequestError]:
    wanted = list(dict.fromkeys(names)) or [one.group_id for one in await admin.list_groups()]
    told = await admin.describe_groups(wanted)
    answers = await asyncio.gather(*(_stand(admin, told[name]) for name in wanted))
    return dict(zip(wanted, answers, strict=True))


async def _stand(admin: AsyncAdmin, group: GroupInfo | RequestError) -> _Described | RequestError:
    if isinstance(group, RequestError):
        return group
    read = partitions_read(group)
    committed = await admin.list_group_offsets(group.group_id)
    ends = await end_offsets(admin, {*read, *committed})
    return _Described(group, standings(read, committed, ends))


async def end_offsets(
    admin: AsyncAdmin, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where partitions end; without those that are not there or do not tell."""
    wanted = list(partitions)
    # Offsets may be kept of a topic that is gone; a leader of it would be waited for.
    topics = await admin.describe_topics({one.topic for one in wanted})
    there = dict.fromkeys((one for one in wanted if _is_there(one, topics)), "latest")
    found = await admin.list_offsets(there)
    return {one: told.offset for one, told in found.items() if isinstance(told, OffsetInfo)}


def _is_there(partition: TopicPartition, topics: dict[str, TopicInfo | RequestError]) -> bool:
    topic = topics[partition.topic]
    return isinstance(topic, TopicInfo) and partition.partition < len(topic.partitions)


def _tell(described: _Described) -> None:
    group, lag = described.group, total_lag(described.partitions)
    how = f", assignor {printable(group.protocol)}" if group.protocol else ""
    behind = "" if lag is None else f", lag {lag}"
    members = counted(len(group.members), "member")
    click.echo(f"group {shown_name(group.group_id)}, {group.state}{how}, {members}{behind}")
    if described.partitions:
        rows = [_row(one) for one in described.partitions]
        tell_table(("topic", "partition", "committed", "end", "lag", "member"), rows)
    if group.members:
        members_told = [
            (one.member_id, one.client_id, one.host, " ".join(map(str, partitions_of(one))) or "-")
            for one in group.members
        ]
        tell_table(("member", "client", "host", "partitions"), members_told)


def _row(one: Standing) -> tuple[object, ...]:
    told = (one.committed, one.end, one.lag)
    numbers = (_UNKNOWN if number is None else number for number in told)
    member = _UNKNOWN if one.member is None else one.member.member_id
    return one.partition.topic, one.partition.partition, *numbers, member


def _as_json(name: str, found: _Described | RequestError) -> dict[str, Any]:
    if isinstance(found, RequestError):
        return {"group": name, "error": refusal_as_json(found)}
    group = found.group
    return {
        "group": name,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.protocol or None,
        "lag": total_lag(found.partitions),
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.group_instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "partitions": [
                    {"topic": part.topic, "partition": part.partition}
                    for part in partitions_of(one)
                ],
            }
            for one in group.members
        ],
        "partitions": [one.as_json() for one in found.partitions],
        "error": None,
    }


def _end(refusals: dict[str, RequestError]) -> None:
    """Complain about each group to which it was not done, and end with 1 if there is any."""
    for what, refusal in refusals.items():
        complain(told_refusal(what, with_group_hint(refusal)))
    if refusals:
        click.get_current_context().exit(1)


def with_group_hint(refusal: RequestError) -> RequestError:
    """Return the refusal, in words that say what to do."""
    if refusal.code is ErrorCode.GROUP_ID_NOT_FOUND:
        sentence = "there is none; `ottla groups list` tells which there are."
        return RequestError(refusal.code, sentence)
    if refusal.code is ErrorCode.NON_EMPTY_GROUP:
        return RequestError(refusal.code, "it has members; stop them first.")
    return RequestError(refusal.code, printable(refusal.sentence))
