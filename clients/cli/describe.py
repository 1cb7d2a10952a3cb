"""`ottla topics describe`: where partitions are, who leads, who is in sync, and what is wrong.

Not here: what is wrong (`conditions.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import click

from ottla.clients.cli.cluster import Cluster, open_cluster
from ottla.clients.cli.conditions import Problem, Standing, problems, told_together
from ottla.clients.cli.configs import TOPIC, set_by_hand
from ottla.clients.cli.options import ToolCommand, for_clients, old_spelling, run
from ottla.clients.cli.output import (
    complain,
    printable,
    tell_json,
    tell_table,
    told_refusal,
    with_topic_hint,
)
from ottla.clients.cli.partitions import eligible_of, min_insync_of
from ottla.clients.connection import error_code_of
from ottla.proto.errors import RequestError
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name
from ottla.proto.options.topic import CLEANUP_POLICY, effective_min_insync


@dataclass(frozen=True, slots=True)
class _Described:
    """A topic, and what the cluster tells of it beyond its metadata."""

    topic: Message
    # Set by hand.
    configs: dict[str, str | None]
    # By partition; None: the cluster does not tell.
    eligible: dict[int, list[int]] | None
    # As it was set.
    min_insync: int | None

    @property
    def partitions(self) -> list[tuple[Message, Standing]]:
        in_order = sorted(self.topic.partitions, key=lambda one: int(one.partition_index))
        return [(one, self._standing(one)) for one in in_order]

    def _standing(self, one: Message) -> Standing:
        count, elr = len(one.replica_nodes), self.eligible
        least = self.min_insync
        return Standing(
            leader=known(one.leader_id),
            replicas=tuple(one.replica_nodes),
            isr=tuple(one.isr_nodes),
            elr=None if elr is None else tuple(elr.get(one.partition_index, ())),
            offline=tuple(one.get("offline_replicas", ())),
            min_isr=None
            if least is None
            else effective_min_insync(least, replication_factor=count),
            is_compacted="compact" in (self.configs.get(CLEANUP_POLICY.name) or ""),
        )


@click.command(cls=ToolCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@old_spelling("--topic", instead="say the name alone: `ottla topics describe NAME`.")
@for_clients
def describe(bootstrap: tuple[Address, ...], as_json: bool, names: tuple[str, ...]) -> None:
    """Tell where the partitions of topics are: of NAME, or of all topics; and what is wrong.

    Of each partition: who leads, in which epoch, the replicas, who of them is in sync (isr), and
    who else is known to have everything acknowledged (elr).
    """
    missing, there = run(_describe(bootstrap, names))
    if as_json:
        tell_json([_as_json(one) for one in there])
    else:
        for at, one in enumerate(there):
            if at:
                click.echo()
            _tell(one)
        if not there and not missing:
            click.echo("There are no topics.", err=True)
    for what, refusal in missing.items():
        complain(told_refusal(what, refusal))
    if missing:
        click.get_current_context().exit(1)


def _tell(described: _Described) -> None:
    topic = described.topic
    parts = [
        f"topic {shown_name(topic.name)}",
        counted(len(topic.partitions), "partition"),
        f"replication factor {replication_factor(topic)}",
    ]
    topic_id = topic.get("topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        parts.append(f"id {id_text(topic_id)}")
    click.echo(", ".join(parts))
    for key, value in sorted(described.configs.items()):
        click.echo(f"  {printable(key)}={printable(value or '')}")
    tells_elr = described.eligible is not None
    rows, wrong = list[list[object]](), list[tuple[int, Sequence[Problem]]]()
    for one, standing in described.partitions:
        found = problems(standing)
        wrong.append((one.partition_index, found))
        elr = [_ids(standing.elr or ())] if tells_elr else []
        rows.append(
            [
                one.partition_index,
                "none" if standing.leader is None else standing.leader,
                one.get("leader_epoch", -1),
                _ids(standing.replicas),
                _ids(standing.isr),
                *elr,
                ", ".join(problem.words for problem in found),
            ]
        )
    elr_heading = ["elr"] if tells_elr else []
    headings = ["partition", "leader", "epoch", "replicas", "isr", *elr_heading, ""]
    tell_table(headings, rows, indent=2)
    for line in told_together(wrong):
        click.echo(f"  {line}")


def _as_json(described: _Described) -> dict[str, Any]:
    return {
        **summary(described.topic),
        "configs": dict(sorted(described.configs.items())),
        "partitions": [
            {
                "partition": one.partition_index,
                "leader": standing.leader,
                "leader_epoch": known(one.get("leader_epoch")),
                "replicas": standing.replicas,
                "isr": standing.isr,
                "elr": standing.elr,
                "min_isr": standing.min_isr,
                "offline": standing.offline,
                "problems": [problem.as_json() for problem in problems(standing)],
            }
            for one, standing in described.partitions
        ],
    }


async def _describe(
    bootstrap: Sequence[Address], names: Sequence[str]
) -> tuple[dict[str, RequestError], list[_Described]]:
    """Return what is not there, with the reason, and what is."""
    async with open_cluster(bootstrap) as cluster:
        found = await topics_of(cluster, names or None)
        missing = {
            f"topic {shown_name(topic.name)}": with_topic_hint(
                RequestError(error_code_of(topic.error_code)), topic.name
            )
            for topic in found
            if topic.error_code
        }
        there = [topic for topic in found if not topic.error_code]
        told = [topic.name for topic in there]
        configs = await set_by_hand(cluster, TOPIC, told)
        eligible = await eligible_of(cluster, told)
        least = await min_insync_of(cluster, told)
    by_topic: dict[str, dict[int, list[int]]] = {}
    for (name, index), ids in (eligible or {}).items():
        by_topic.setdefault(name, {})[index] = ids
    return missing, [
        _Described(
            topic,
            # A topic that was deleted in between has none.
            configs.get(topic.name, {}),
            None if eligible is None else by_topic.get(topic.name, {}),
            least.get(topic.name),
        )
        for topic in there
    ]


# ── Of topics in general ──────────────────────────────────────────────────────────────────────


async def topics_of(cluster: Cluster, names: Sequence[str] | None) -> list[Message]:
    """Return the metadata of these topics, or of all, by name; some may not be there."""
    found: list[Message] = (await cluster.metadata(names)).topics
    return sorted(found, key=lambda topic: str(topic.name))


def summary(topic: Message) -> dict[str, Any]:
    topic_id = topic.get("topic_id", ZERO_UUID)
    return {
        "topic": topic.name,
        "id": None if topic_id == ZERO_UUID else id_text(topic_id),
        "internal": topic.get("is_internal", False),
        "partition_count": len(topic.partitions),
        "replication_factor": replication_factor(topic),
    }


def id_text(topic_id: UUID) -> str:
    """Return an id as Kafka's tools write it."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def replication_factor(topic: Message) -> int:
    # Partitions may differ while they are being moved; then the least that holds for all.
    return min((len(one.replica_nodes) for one in topic.partitions), default=0)


def known(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
