"""`ottla groups reset`: where a group goes on reading.

S1  only a group without members is moved: theirs would be committed over it
S2  an offset that a partition does not hold becomes the nearest that it does, and that is said;
    this is how Kafka's own tool does it
S3  a dry run tells the same and commits nothing

A group that is not there yet is made: so it can be told where to begin before it is started.

Not here: the other commands (`groups.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from ottla.clients.admin.answers import GroupInfo, OffsetInfo
from ottla.clients.admin.client import AsyncAdmin
from ottla.clients.cli.admin import open_admin
from ottla.clients.cli.cluster import NoTopicError
from ottla.clients.cli.options import ToolCommand, for_clients, old_spelling, run
from ottla.clients.cli.output import complain, refusal_as_json, tell_json, tell_table, told_refusal
from ottla.clients.cli.text import parse_time
from ottla.clients.metadata import TopicInfo
from ottla.proto.errors import ConfigError, ErrorCode, OttlaError, RequestError
from ottla.proto.ids import INT32_MAX, INT64_MAX, TopicPartition
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown, shown_name

_EXIT_FAILED: Final = 1
_PARTITIONS: Final = re.compile(r"[0-9]{1,10}(,[0-9]{1,10})*")


class NotResetError(OttlaError):
    """A group was not moved."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to: a place or a time as list_offsets takes them, or an offset. One of them is set."""

    place: int | str | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One partition: where the group was (None: nowhere), and where it goes on."""

    partition: TopicPartition
    before: int | None
    after: int
    # What was asked for, if the partition does not hold it.
    asked: int | None = None


@click.command(cls=ToolCommand)
@click.argument("name")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:P,...]",
    help="All partitions of it, or these; may be said several times.",
)
@click.option("--to-earliest", is_flag=True, help="The first record kept.")
@click.option("--to-latest", is_flag=True, help="Behind the last record.")
@click.option("--to-offset", type=click.IntRange(0, INT64_MAX), metavar="N", help="This offset.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="The first record since then: 2026-11-16T09:00:00Z, or milliseconds since 1970.",
)
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@old_spelling("--execute", is_flag=True, instead="it is done unless you say --dry-run.")
@old_spelling("--reset-offsets", is_flag=True, instead="`ottla groups reset` says it.")
@old_spelling("--all-topics", is_flag=True, instead="say --topic TOPIC for each of them.")
@old_spelling("--group", instead="say the name alone: `ottla groups reset NAME --topic TOPIC …`.")
@for_clients
def reset(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    name: str,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    dry_run: bool,
) -> None:
    """Let the group NAME go on elsewhere in its topics. It must have no members."""
    target = _target(earliest=to_earliest, latest=to_latest, offset=to_offset, datetime=to_datetime)
    wanted = [_parse_topic(one) for one in topics]
    moves, refusals = run(_reset(bootstrap, name, wanted, target, dry_run=dry_run))
    for move in moves:
        if move.asked is not None:
            complain(f"{move.partition} has no offset {move.asked}; {move.after} is the nearest.")
    if as_json:
        tell_json(_as_json(name, moves, refusals, dry_run=dry_run))
    elif moves:
        rows = [_row(one) for one in moves if one.partition not in refusals]
        tell_table(("topic", "partition", "before", "after"), rows)
    for partition, refusal in refusals.items():
        complain(told_refusal(f"group {shown_name(name)} was not reset in {partition}", refusal))
    if refusals:
        click.get_current_context().exit(_EXIT_FAILED)


def _target(*, earliest: bool, latest: bool, offset: int | None, datetime: str | None) -> Target:
    given = [earliest, latest, offset is not None, datetime is not None]
    if sum(given) != 1:
        raise ConfigError(
            "say where to, once: --to-earliest, --to-latest, --to-offset N or --to-datetime TIME."
        )
    if offset is not None:
        return Target(offset=offset)
    if datetime is not None:
        return Target(place=parse_time(datetime))
    return Target(place="earliest" if earliest else "latest")


def _parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Return a topic, and the partitions of it if some are named: orders, orders:0,2."""
    name, colon, numbers = text.partition(":")
    if not colon:
        return name, None
    if not _PARTITIONS.fullmatch(numbers):
        raise ConfigError(f"--topic takes TOPIC or TOPIC:0,1, and {shown(text)} is neither.")
    found = tuple(sorted({int(one) for one in numbers.split(",")}))
    if found[-1] > INT32_MAX:
        raise ConfigError(f"--topic {shown_name(text)}: no partition has such a number.")
    return name, found


async def _reset(
    bootstrap: Sequence[Address],
    name: str,
    topics: Iterable[tuple[str, tuple[int, ...] | None]],
    target: Target,
    *,
    dry_run: bool,
) -> tuple[list[Move], dict[TopicPartition, RequestError]]:
    async with open_admin(bootstrap) as admin:
        await _require_no_members(admin, name)
        partitions = await _partitions(admin, topics)
        before = await admin.list_group_offsets(name)
        earliest = await _offsets(admin, dict.fromkeys(partitions, "earliest"))
        latest = await _offsets(admin, dict.fromkeys(partitions, "latest"))
        asked = earliest if target.place == "earliest" else latest
        if isinstance(target.place, int):
            asked = await _offsets(admin, dict.fromkeys(partitions, target.place))
        elif target.offset is not None:
            asked = dict.fromkeys(partitions, target.offset)
        committed = {one: at.offset for one, at in before.items()}
        moves = decide(asked, committed, earliest, latest)
        if dry_run:
            return moves, {}
        outcomes = await admin.alter_group_offsets(
            name, {one.partition: one.after for one in moves}
        )
    refused = {one: refusal for one, refusal in outcomes.items() if refusal is not None}
    return moves, {one: _in_words(refusal) for one, refusal in refused.items()}


async def _require_no_members(admin: AsyncAdmin, name: str) -> None:
    found = (await admin.describe_groups([name]))[name]
    if isinstance(found, RequestError):
        if found.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise NotResetError(told_refusal(f"group {shown_name(name)} was not reset", found))
    if found.members:
        raise NotResetError(_told_members(found))


def _told_members(group: GroupInfo) -> str:
    count = len(group.members)
    members = "1 member" if count == 1 else f"{count} members"
    return (
        f"group {shown_name(group.group_id)} was not reset: it has {members} and is "
        f"{group.state}; stop them first ({ErrorCode.NON_EMPTY_GROUP.name})"
    )


async def _partitions(
    admin: AsyncAdmin, topics: Iterable[tuple[str, tuple[int, ...] | None]]
) -> list[TopicPartition]:
    wanted = list(topics)
    found = await admin.describe_topics({name for name, _ in wanted})
    partitions = dict[TopicPartition, None]()
    for name, numbers in wanted:
        topic = found[name]
        if not isinstance(topic, TopicInfo):
            raise NoTopicError(name, topic.code)
        count = len(topic.partitions)
        wrong = next((one for one in numbers or () if one >= count), None)
        if wrong is not None:
            raise ConfigError(
                f"--topic {shown_name(name)}:{wrong}: it has partitions 0 to {count - 1}."
            )
        chosen = range(count) if numbers is None else numbers
        partitions |= dict.fromkeys(TopicPartition(name, one) for one in chosen)
    return list(partitions)


async def _offsets(
    admin: AsyncAdmin, wanted: Mapping[TopicPartition, int | str]
) -> dict[TopicPartition, int]:
    found = dict[TopicPartition, int]()
    for one, told in (await admin.list_offsets(wanted)).items():
        if not isinstance(told, OffsetInfo):
            raise NotResetError(told_refusal(str(one), told))
        found[one] = told.offset
    return found


def decide(
    asked: Mapping[TopicPartition, int],
    before: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[Move]:
    """Return where the group goes on in each partition, sorted (S2)."""
    moves = list[Move]()
    for one in sorted(asked):
        # Nothing is as late as the time that was asked for: what comes next may be.
        wanted = latest[one] if asked[one] < 0 else asked[one]
        after = max(earliest[one], min(wanted, latest[one]))
        moves.append(Move(one, before.get(one), after, None if after == wanted else wanted))
    return moves


def _in_words(refusal: RequestError) -> RequestError:
    # How a coordinator refuses a commit from outside while there are members.
    if refusal.code is ErrorCode.UNKNOWN_MEMBER_ID:
        return RequestError(refusal.code, "it has got members meanwhile; stop them first.")
    return refusal


def _row(move: Move) -> tuple[object, ...]:
    before = "-" if move.before is None else move.before
    return move.partition.topic, move.partition.partition, before, move.after


def _as_json(
    name: str,
    moves: Iterable[Move],
    refusals: Mapping[TopicPartition, RequestError],
    *,
    dry_run: bool,
) -> dict[str, Any]:
    return {
        "group": name,
        "dry_run": dry_run,
        "partitions": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "before": one.before,
                "after": one.after,
                "error": refusal_as_json(refusals.get(one.partition)),
            }
            for one in moves
        ],
    }
