"""`ottla quorum`: who leads the controllers, in which term, and who lags.

Not here: whether that is well (`health.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from ottla.clients.cli.cluster import Cluster, only, open_cluster
from ottla.clients.cli.options import for_clients, run
from ottla.clients.cli.output import complain, refusal_of, tell_json, tell_table
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.apis import DESCRIBE_QUORUM
from ottla.proto.kafka.message import Message
from ottla.proto.options.endpoints import Address

# Kafka's name for the log of the controllers.
METADATA_TOPIC: Final = "__cluster_metadata"
_UNKNOWN: Final = -1
_EXIT_FAILED: Final = 1
# What a broker says that finds no leader to ask: ours, and Kafka's.
_NOBODY_LEADS: Final = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)
_NO_LEADER: Final = (
    "The controllers have no leader. More than half of the voters must run; `ottla cluster "
    "status`, or /status of each node, shows them."
)


@dataclass(frozen=True, slots=True)
class Member:
    """A node that follows the metadata, as the leader knows it."""

    node_id: int
    votes: bool
    end_offset: int | None
    lag: int | None
    # How long ago it had all that the leader had then; None if the leader does not tell.
    caught_up_ms_ago: int | None
    address: str | None

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.node_id,
            "voter": self.votes,
            "address": self.address,
            "end_offset": self.end_offset,
            "lag": self.lag,
            "caught_up_ms_ago": self.caught_up_ms_ago,
        }


@dataclass(frozen=True, slots=True)
class QuorumTold:
    """The quorum as its leader describes it."""

    leader: int | None
    term: int
    high_watermark: int
    # What the leader has, committed or not.
    end_offset: int
    members: tuple[Member, ...]

    @property
    def voters(self) -> tuple[Member, ...]:
        return tuple(one for one in self.members if one.votes)


@click.command()
@for_clients
def quorum(bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Show the leader of the controllers, its term, the voters, and how far each has followed."""
    try:
        told = run(_read(bootstrap))
    except RequestError as refusal:
        if refusal.code not in _NOBODY_LEADS:
            raise
        complain(_NO_LEADER)
        click.get_current_context().exit(_EXIT_FAILED)
    _tell(told, as_json=as_json)
    if told.leader is None:
        complain(_NO_LEADER)
        click.get_current_context().exit(_EXIT_FAILED)


def _tell(told: QuorumTold, *, as_json: bool) -> None:
    if as_json:
        tell_json(
            {
                "leader": told.leader,
                "term": told.term,
                "high_watermark": told.high_watermark,
                "members": [one.as_json() for one in told.members],
            }
        )
        return
    leader = "nobody leads" if told.leader is None else f"node {told.leader} leads"
    voters = ", ".join(str(one.node_id) for one in told.voters)
    click.echo(
        f"{leader} in term {told.term}; voters {voters}; committed up to {told.high_watermark}"
    )
    rows = [
        (
            one.node_id,
            _role(one, told.leader),
            one.address or "",
            "?" if one.end_offset is None else one.end_offset,
            "?" if one.lag is None else one.lag,
            _ago(one.caught_up_ms_ago),
        )
        for one in told.members
    ]
    tell_table(("node", "role", "address", "end offset", "lag", "caught up"), rows, indent=2)


def _role(member: Member, leader: int | None) -> str:
    if member.node_id == leader:
        return "leader"
    return "voter" if member.votes else "observer"


def _ago(caught_up_ms_ago: int | None) -> str:
    if caught_up_ms_ago is None:
        return ""
    return "now" if caught_up_ms_ago < 1000 else f"{caught_up_ms_ago / 1000:.1f} s ago"


async def _read(bootstrap: Sequence[Address]) -> QuorumTold:
    async with open_cluster(bootstrap) as cluster:
        return await read_quorum(cluster)


async def read_quorum(cluster: Cluster) -> QuorumTold:
    """Return the quorum, or raise `RequestError` with what the broker said."""
    partitions = [{"partition_index": 0}]
    fields = {"topics": [{"topic_name": METADATA_TOPIC, "partitions": partitions}]}
    answer = await cluster.ask(DESCRIBE_QUORUM, fields)
    _require_done(answer)
    found = only(only(answer.topics).partitions)
    _require_done(found)
    return told_in(found, answer.get("nodes", ()))


def _require_done(result: Message) -> None:
    refusal = refusal_of(result)
    if refusal is not None:
        raise RequestError(refusal.code, refusal.sentence)


def told_in(partition: Message, nodes: Sequence[Message]) -> QuorumTold:
    """Return what an answer says; ids and offsets of −1 mean that nobody knows."""
    states = [*partition.current_voters, *partition.observers]
    known = (_known(one.log_end_offset) for one in states)
    end_offset = max((one for one in known if one is not None), default=partition.high_watermark)
    # The leader's own time stands at its own row; theirs are compared with that.
    now_ms = max((one.get("last_caught_up_timestamp", -1) for one in states), default=-1)
    addresses = {
        one.node_id: f"{one.listeners[0].host}:{one.listeners[0].port}"
        for one in nodes
        if one.listeners
    }
    voters = {one.replica_id for one in partition.current_voters}
    members = tuple(
        _member(one, end_offset, now_ms, one.replica_id in voters, addresses.get(one.replica_id))
        for one in sorted(states, key=lambda one: (one.replica_id not in voters, one.replica_id))
    )
    return QuorumTold(
        leader=_known(partition.leader_id),
        term=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        end_offset=end_offset,
        members=members,
    )


def _member(
    state: Message, end_offset: int, now_ms: int, votes: bool, address: str | None
) -> Member:
    own = _known(state.log_end_offset)
    caught_up_ms = _known(state.get("last_caught_up_timestamp", _UNKNOWN))
    return Member(
        node_id=state.replica_id,
        votes=votes,
        end_offset=own,
        lag=None if own is None else max(0, end_offset - own),
        caught_up_ms_ago=None if caught_up_ms is None else max(0, now_ms - caught_up_ms),
        address=address,
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
