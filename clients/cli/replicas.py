"""`ottla replicas verify`: proves that the replicas of a topic are the same, byte by byte.

Every node that holds a replica is asked over HTTP for the digests of its batches (`/digest`), and
by default reads every byte for it. Nothing is changed.

V1  "identical" is said only if all replicas were compared, and every checksum was right
V2  records that came or went meanwhile are no difference

Not here: comparing (`digests.py`).
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import click

from ottla.clients.cli.cluster import Cluster, open_cluster
from ottla.clients.cli.digests import Comparison, Page, Stretch, page_of, stretch_of
from ottla.clients.cli.options import for_clients, run
from ottla.clients.cli.output import tell_json
from ottla.proto.errors import ConfigError, OttlaError, RemoteProtocolError
from ottla.proto.kafka.apis import DESCRIBE_CONFIGS
from ottla.proto.kafka.message import Message
from ottla.proto.options.endpoints import LISTENERS, Address, parse_address
from ottla.proto.options.node import DEFAULT_LISTENERS, LISTENERS_OPTION
from ottla.proto.options.option import shown, shown_name

_EXIT_FAILED: Final = 1
# Kafka's number for brokers among the kinds of resources.
_BROKER_TYPE: Final = 4
# A node gives up after ten seconds, and says so.
_ANSWER_S: Final = 30.0
_ANSWER_BYTES_MAX: Final = 64 << 20
# Of a node that is busy, and of a stretch that retention has moved.
_TRIES: Final = 5
_PAUSE_S: Final = 0.5
# For followers to hear how far their leader has come.
_HEADS_TRIES: Final = 10
_HEADS_PAUSE_S: Final = 0.1
_PAGES_MAX: Final = 1_000_000
_OK: Final = 200
_BUSY: Final = 503


class UnreadableError(OttlaError):
    """A replica cannot be read, in words that follow "node 3"."""


class DamagedError(OttlaError):
    """A replica holds bytes that are no sound batch."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one partition."""

    partition: int
    is_identical: bool
    sentence: str
    nodes: tuple[int, ...] = ()
    compared: int = 0
    stretch: Stretch | None = None

    def as_json(self) -> dict[str, Any]:
        stretch = self.stretch
        return {
            "partition": self.partition,
            "identical": self.is_identical,
            "sentence": self.sentence,
            "nodes": list(self.nodes),
            "batches": self.compared,
            "first_offset": None if stretch is None else stretch.first,
            # Exclusive.
            "end_offset": None if stretch is None else stretch.before,
            "compacted_below": None if stretch is None else stretch.compacted_below,
        }


@click.group()
def replicas() -> None:
    """Compare the replicas of a topic."""


@replicas.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), help="Only this one.")
@click.option(
    "--headers-only",
    is_flag=True,
    help="Believe the checksums that stand in the batches, and do not read every byte.",
)
@click.option(
    "--http",
    "http_text",
    metavar="ID=HOST:PORT[,...]",
    default="",
    help="Where nodes listen for HTTP, if it is not as their option `listeners` says.",
)
@for_clients
def verify(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    topic: str,
    partition: int | None,
    headers_only: bool,
    http_text: str,
) -> None:
    """Prove that the replicas of TOPIC are the same, or tell the first difference.

    Compared is what all replicas have and have committed: from the highest log start to the lowest
    high watermark. Batches must have the same offsets, epoch, size, attributes and checksum, and
    the checksums must be right. Followers are given a moment to hear of what is committed. Where
    compaction was at work only batches are compared that all have.

    The nodes are asked over HTTP. Where, is taken from the option `listeners` of each of them, with
    the host under which clients find it if it listens everywhere; so the HTTP port must be open to
    whoever calls this. With a port of 0, or an address that leads elsewhere from here, say --http.

    Exit code 0 if all are identical, 1 if one is not or could not be compared.
    """
    given = _addresses(http_text)
    outcomes = run(_verify(bootstrap, topic, partition, given, check=not headers_only))
    if as_json:
        tell_json({"topic": topic, "partitions": [one.as_json() for one in outcomes]})
    else:
        for one in outcomes:
            click.echo(f"{shown_name(topic)}-{one.partition}: {one.sentence}")
    if not all(one.is_identical for one in outcomes):
        click.get_current_context().exit(_EXIT_FAILED)


def _addresses(text: str) -> dict[int, Address]:
    found = dict[int, Address]()
    for item in filter(None, text.split(",")):
        node, equals, address = item.strip().partition("=")
        if not (equals and node.isascii() and node.isdigit() and len(node) < 11):
            raise ConfigError(f"--http takes ID=HOST:PORT, and {shown(item)} is not.")
        try:
            found[int(node)] = parse_address(address)
        except ValueError as error:
            raise ConfigError(f"--http must be ID={error}.") from None
    return found


async def _verify(
    bootstrap: Sequence[Address],
    topic: str,
    partition: int | None,
    given: Mapping[int, Address],
    *,
    check: bool,
) -> list[Outcome]:
    async with open_cluster(bootstrap) as cluster:
        found = await cluster.topic(topic)
        wanted = sorted(found.partitions, key=lambda one: int(one.partition_index))
        if partition is not None:
            if partition >= len(wanted):
                raise ConfigError(
                    f"--partition {partition}: {shown_name(topic)} has partitions 0 to "
                    f"{len(wanted) - 1}."
                )
            wanted = wanted[partition : partition + 1]
        holders = {int(node) for one in wanted for node in one.replica_nodes}
        addresses = await _find_all(cluster, sorted(holders), given)
    # One after another: each has all the disks of its replicas to itself.
    return [await compare_partition(topic, one, addresses, check=check) for one in wanted]


# ── Where the nodes are ───────────────────────────────────────────────────────────────────────


async def _find_all(
    cluster: Cluster, nodes: Iterable[int], given: Mapping[int, Address]
) -> dict[int, Address | str]:
    """Return where each node listens for HTTP, or why that is not known."""
    hosts = {int(one.node_id): str(one.host) for one in (await cluster.metadata([])).brokers}
    found = dict[int, Address | str]()
    for node in nodes:
        if node in given:
            found[node] = given[node]
        elif node not in hosts:
            found[node] = "is not there (fenced: dead, cut off, or still starting)"
        else:
            try:
                found[node] = await _find(cluster, node, hosts[node])
            except OttlaError as error:
                found[node] = f"does not tell where it listens for HTTP: {error}"
    return found


async def _find(cluster: Cluster, node: int, host: str) -> Address | str:
    resource = {
        "resource_type": _BROKER_TYPE,
        "resource_name": str(node),
        "configuration_keys": [LISTENERS_OPTION.name],
    }
    fields = {
        "resources": [resource],
        "include_synonyms": False,
        "include_documentation": False,
    }
    answer = await cluster.ask_broker(node, DESCRIBE_CONFIGS, fields)
    values = [one.value for result in answer.results for one in result.configs]
    return http_address(str(values[0]) if values else "", host)


def http_address(listeners: str, host: str) -> Address | str:
    """Return where a node with these listeners answers, or why nobody can know."""
    try:
        told = {one.name: one.address for one in LISTENERS.parse(listeners)}
    except ValueError:
        return "has no HTTP listener that could be asked: is it a node of Ottla?"
    address = told.get("HTTP", DEFAULT_LISTENERS["HTTP"].address)
    if address.port == 0:
        return "listens for HTTP at a port that it does not tell: say it with --http"
    return Address(host, address.port) if address.is_everywhere else address


# ── Asking ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Reader:
    """Gets the digest of one replica."""

    node: int
    address: Address
    topic: str
    partition: int
    check: bool

    async def head(self) -> Page:
        """Return how far the replica reaches, without any batch."""
        return await self.page(0, 0)

    async def page(self, first: int, before: int) -> Page:
        fields = {
            "topic": self.topic,
            "partition": self.partition,
            "from": first,
            "to": before,
            "check": "true" if self.check else "false",
        }
        told = await self._told(f"/digest?{urlencode(fields)}")
        page = page_of(told)
        if page.node != self.node:
            raise UnreadableError(
                f"is not at {self.address}, node {page.node} is: say where it is with --http"
            )
        return page

    async def _told(self, path: str) -> dict[str, Any]:
        for tries_left in reversed(range(_TRIES)):
            status, told = await asyncio.to_thread(_get, self.address, path)
            if status == _OK:
                return told
            if status != _BUSY or not tries_left:
                reason = told.get("reason", f"it answers with status {status}")
                raise UnreadableError(f"cannot tell at {self.address}: {reason}")
            await asyncio.sleep(_PAUSE_S)
        raise UnreadableError(f"is busy at {self.address}")


def _get(address: Address, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=_ANSWER_S)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        body = answer.read(_ANSWER_BYTES_MAX)
    except OSError as error:
        why = error.strerror or "it does not answer in time"
        raise UnreadableError(f"cannot be asked at {address}: {why}") from None
    except http.client.HTTPException as error:
        raise UnreadableError(f"at {address} does not speak HTTP: {error!r}") from None
    finally:
        connection.close()
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    return answer.status, told if isinstance(told, dict) else {}


# ── Comparing ─────────────────────────────────────────────────────────────────────────────────


async def compare_partition(
    topic: str, partition: Message, addresses: Mapping[int, Address | str], *, check: bool
) -> Outcome:
    """Return how the replicas of one partition compare; an address may be why there is none."""
    index, nodes = int(partition.partition_index), [int(one) for one in partition.replica_nodes]
    known = {node: addresses[node] for node in nodes}
    reasons = [f"node {node} {one}" for node, one in known.items() if isinstance(one, str)]
    if reasons:
        return Outcome(index, False, f"not compared: {'; '.join(reasons)}")
    readers = [
        _Reader(node, one, topic, index, check)
        for node, one in known.items()
        if isinstance(one, Address)
    ]
    try:
        for _ in range(_TRIES):
            stretch = stretch_of(await _heads(readers))
            outcome, at = await _compare_stretch(index, readers, stretch)
            if at is None or at >= await _start_now(readers):
                return outcome
        return Outcome(index, False, "not compared: records are deleted faster than they are read")
    except DamagedError as error:
        return Outcome(index, False, str(error))
    except UnreadableError as error:
        return Outcome(index, False, f"not compared: {error}")


async def _heads(readers: Sequence[_Reader]) -> list[Page]:
    """Return how far the replicas reach, when all have heard of what was committed before.

    Followers hear of it a moment later than the leader. Who does not hear of it is not waited for.
    """
    heads = await _gather(readers, [reader.head() for reader in readers])
    committed = max(one.high_watermark for one in heads)
    for _ in range(_HEADS_TRIES):
        if all(one.high_watermark >= committed for one in heads):
            break
        await asyncio.sleep(_HEADS_PAUSE_S)
        heads = await _gather(readers, [reader.head() for reader in readers])
    return heads


async def _start_now(readers: Sequence[_Reader]) -> int:
    heads = await _gather(readers, [reader.head() for reader in readers])
    return max(one.log_start_offset for one in heads)


async def _compare_stretch(
    index: int, readers: Sequence[_Reader], stretch: Stretch
) -> tuple[Outcome, int | None]:
    """Return the outcome, and where the first difference is, if there is one."""
    nodes = tuple(reader.node for reader in readers)
    comparison = Comparison(nodes, stretch.compacted_below)
    by_node = {reader.node: reader for reader in readers}
    at: dict[int, int] = dict.fromkeys(nodes, stretch.first)
    for _ in range(_PAGES_MAX):
        wanted = comparison.wants
        if not wanted:
            break
        asked = [by_node[node] for node in wanted]
        coming = [one.page(at[one.node], stretch.before) for one in asked]
        for reader, page in zip(asked, await _gather(asked, coming), strict=True):
            if page.damage is not None:
                raise DamagedError(f"damaged on node {reader.node}: {page.damage}")
            comparison.give(reader.node, page.batches, is_last=page.following is None)
            at[reader.node] = page.following or stretch.before
    if comparison.difference is not None:
        sentence = comparison.difference
        told = Outcome(index, False, sentence, nodes, comparison.compared, stretch)
        return told, comparison.difference_at
    sentence = _told_identical(comparison, stretch)
    return Outcome(index, True, sentence, nodes, comparison.compared, stretch), None


def _told_identical(comparison: Comparison, stretch: Stretch) -> str:
    count = comparison.compared
    batches = "1 batch" if count == 1 else f"{count} batches"
    if stretch.is_empty:
        return "identical, nothing is committed that all of them have"
    offsets = f"offsets {stretch.first}–{stretch.before - 1}"
    if len(comparison.nodes) == 1:
        return f"one replica, {batches}, {offsets}"
    if stretch.compacted_below <= stretch.first:
        return f"identical, {batches}, {offsets}"
    return (
        f"identical, {batches}, {offsets}; compacted below {stretch.compacted_below}: compared "
        f"where all have the batch, {comparison.cleaned} more were cleaned on some of them"
    )


async def _gather(readers: Sequence[_Reader], work: Sequence[Any]) -> list[Page]:
    """Return all pages, or raise the first reason for which there is none."""
    found = list[Page]()
    answers = await asyncio.gather(*work, return_exceptions=True)
    for reader, one in zip(readers, answers, strict=True):
        if isinstance(one, UnreadableError | RemoteProtocolError):
            raise UnreadableError(f"node {reader.node} {one}") from None
        if isinstance(one, BaseException):
            raise one
        found.append(one)
    return found
