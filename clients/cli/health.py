"""`ottla health`: one verdict about a cluster, and the reasons.

It asks any node of the bootstrap list that answers, over Kafka's protocol, and changes nothing.
Exit code 0 if the cluster is healthy, 1 if it is degraded, 2 if it is unavailable. With `--http`
the nodes are asked themselves, each whether it is ready: 0 if all are, 1 if some are, 2 if none is.

Not here: what makes a cluster healthy (`verdict.py`), and asking over HTTP (`nodes.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import click

from ottla.clients.cli.cluster import Cluster, NobodyThereError, open_cluster, told_unreachable
from ottla.clients.cli.nodes import ask_nodes, tell_nodes
from ottla.clients.cli.options import for_clients, run
from ottla.clients.cli.output import tell_json
from ottla.clients.cli.partitions import min_insync_of
from ottla.clients.cli.quorum import QuorumTold, read_quorum
from ottla.clients.cli.verdict import (
    ClusterFacts,
    Finding,
    PartitionFacts,
    QuorumFacts,
    Verdict,
    VoterFacts,
    findings,
    node_findings,
    verdict_of,
)
from ottla.clients.errors import NoCommonVersionError, NotSentError, OutcomeUnknownError
from ottla.proto.errors import ConfigError, OttlaError, RequestError
from ottla.proto.kafka.apis import DESCRIBE_CLUSTER
from ottla.proto.kafka.message import Message
from ottla.proto.options.endpoints import Address, parse_address
from ottla.proto.options.topic import effective_min_insync

# A node that is paused takes a connection and says nothing: the next one is asked then.
_PATIENCE_S: Final = 8.0
# Controllers that can elect a leader have done so by then, several times over.
_QUORUM_PATIENCE_S: Final = 4.0
# Who has not reached by then what the leader had before is behind, and not just a step later.
_CATCH_UP_S: Final = 0.5
# Kafka's number for this kind of endpoints.
_BROKERS: Final = 1


class SilentError(OttlaError):
    """Nobody in the bootstrap list answers."""


@click.command()
@click.option(
    "--http",
    "http_text",
    metavar="HOST:PORT[,...]",
    default="",
    help="Ask these nodes themselves, at their HTTP listeners, whether they are ready.",
)
@for_clients
def health(bootstrap: tuple[Address, ...], as_json: bool, http_text: str) -> None:
    """Tell whether a cluster is healthy, degraded or unavailable, and why.

    Exit code 0, 1 or 2 in that order. With --http the nodes named there are asked, and nobody else:
    0 if all of them are ready, 1 if some are, 2 if none is.
    """
    verdict = _of_nodes(http_text, as_json) if http_text else _of_cluster(bootstrap, as_json)
    if verdict is not Verdict.HEALTHY:
        click.get_current_context().exit(verdict.value)


def _of_cluster(bootstrap: tuple[Address, ...], as_json: bool) -> Verdict:
    facts: ClusterFacts | None
    try:
        facts = run(_read(bootstrap))
    except SilentError as error:
        facts = None
        found: tuple[Finding, ...] = (Finding(Verdict.UNAVAILABLE, "unreachable", str(error)),)
    else:
        found = findings(facts)
    verdict = verdict_of(found)
    if as_json:
        tell_json(_as_json(verdict, found, facts))
    else:
        told = "" if facts is None else f": {_summary(facts)}"
        click.echo(f"{verdict.word}{told}")
        for one in found:
            click.echo(f"  {one.sentence}")
    return verdict


def _of_nodes(http_text: str, as_json: bool) -> Verdict:
    try:
        addresses = [parse_address(item.strip()) for item in http_text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--http must be {error}.") from None
    nodes = run(ask_nodes(addresses))
    found = node_findings(nodes)
    verdict = verdict_of(found)
    if as_json:
        told = {"verdict": verdict.word, "reasons": [one.as_json() for one in found]}
        tell_json({**told, "nodes": [one.as_json() for one in nodes]})
        return verdict
    ready = sum(one.is_ready for one in nodes)
    click.echo(f"{verdict.word}: {ready} of {len(nodes)} nodes are ready")
    for one in found:
        click.echo(f"  {one.sentence}")
    tell_nodes(nodes)
    return verdict


def _summary(facts: ClusterFacts) -> str:
    if facts.quorum is not None and facts.quorum.leader is None:
        # Who counts then counts the dead among the living: nobody has told otherwise.
        return "no controller is active; what follows is as last known to the node that was asked"
    parts = [
        f"{len(facts.brokers) - len(facts.fenced)} of {len(facts.brokers)} brokers unfenced",
        f"{len(facts.partitions) - len(facts.leaderless)} of {len(facts.partitions)} partitions "
        "have a leader",
    ]
    if facts.quorum is not None:
        parts.append(f"node {facts.quorum.leader} leads the controllers")
    return ", ".join(parts)


def _as_json(
    verdict: Verdict, found: Sequence[Finding], facts: ClusterFacts | None
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "verdict": verdict.word,
        "reasons": [one.as_json() for one in found],
    }
    if facts is None:
        return told
    quorum = facts.quorum
    return told | {
        "quorum": None
        if quorum is None
        else {
            "leader": quorum.leader,
            "term": quorum.term,
            "voters": [one.node_id for one in quorum.voters],
        },
        "brokers": {"registered": list(facts.brokers), "fenced": list(facts.fenced)},
        "partitions": {
            "total": len(facts.partitions),
            "leaderless": len(facts.leaderless),
            "under_min_isr": len(facts.under_min_isr),
            "under_replicated": len(facts.under_replicated),
        },
    }


async def _read(bootstrap: Sequence[Address]) -> ClusterFacts:
    """Return what the first node knows that answers and has found the controllers.

    If none has, what one knows without them; if none answers, raises `SilentError`.
    """
    reasons = list[str]()
    cut_off: ClusterFacts | None = None
    for address in bootstrap:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                facts = await _facts_of(address)
        except TimeoutError:
            reasons.append(f"{address} did not answer within {_PATIENCE_S:g} s.")
        except NobodyThereError as error:
            reasons.extend(error.reasons)
        except (NotSentError, OutcomeUnknownError, RequestError) as error:
            reasons.append(str(error))
        else:
            if facts.quorum is None or facts.quorum.leader is not None:
                return facts
            cut_off = cut_off or facts
    if cut_off is None:
        raise SilentError(told_unreachable(reasons))
    return cut_off


async def _facts_of(address: Address) -> ClusterFacts:
    # Answers come in order: who waits for a controller must not keep the others waiting.
    quorum = asyncio.create_task(_quorum_of(address))
    try:
        async with open_cluster([address]) as cluster:
            fields = {
                "include_cluster_authorized_operations": False,
                "endpoint_type": _BROKERS,
                "include_fenced_brokers": True,
            }
            answer = await cluster.ask(DESCRIBE_CLUSTER, fields)
            partitions = tuple(await _partitions_of(cluster))
        brokers = sorted(answer.brokers, key=lambda one: int(one.broker_id))
        return ClusterFacts(
            quorum=await quorum,
            brokers=tuple(one.broker_id for one in brokers),
            fenced=tuple(one.broker_id for one in brokers if one.get("is_fenced", False)),
            partitions=partitions,
        )
    finally:
        quorum.cancel()
        await asyncio.gather(quorum, return_exceptions=True)


async def _quorum_of(address: Address) -> QuorumFacts | None:
    """Return the controllers; None if the cluster does not tell about them."""
    try:
        async with asyncio.timeout(_QUORUM_PATIENCE_S), open_cluster([address]) as cluster:
            first = await read_quorum(cluster)
            if first.leader is None or not any(one.lag != 0 for one in first.voters):
                return _quorum_facts(first, first.end_offset)
            await asyncio.sleep(_CATCH_UP_S)
            return _quorum_facts(await read_quorum(cluster), first.end_offset)
    except NoCommonVersionError:
        return None
    except (TimeoutError, RequestError):
        # Whoever was asked finds nobody to ask: there is no leader that it knows of.
        return QuorumFacts(None, -1, ())


def _quorum_facts(told: QuorumTold, wanted_offset: int) -> QuorumFacts:
    voters = (
        VoterFacts(
            one.node_id,
            one.end_offset,
            0 if one.end_offset is None else max(0, wanted_offset - one.end_offset),
        )
        for one in told.voters
    )
    return QuorumFacts(told.leader, told.term, tuple(voters))


async def _partitions_of(cluster: Cluster) -> list[PartitionFacts]:
    topics = (await cluster.metadata(None)).topics
    # Only where a replica is missing can too few be in sync.
    short = [one.name for one in topics if any(map(_is_short, one.partitions))]
    wanted = await min_insync_of(cluster, short)
    return [
        PartitionFacts(
            topic=topic.name,
            partition=one.partition_index,
            leader=None if one.leader_id < 0 else one.leader_id,
            replica_count=len(one.replica_nodes),
            in_sync_count=len(one.isr_nodes),
            in_sync_min=None
            if topic.name not in wanted
            else effective_min_insync(
                wanted[topic.name], replication_factor=len(one.replica_nodes)
            ),
        )
        for topic in topics
        for one in topic.partitions
    ]


def _is_short(partition: Message) -> bool:
    return len(partition.isr_nodes) < len(partition.replica_nodes)
