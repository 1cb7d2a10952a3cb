"""This node as a controller: how it becomes a member of the quorum, and what it then is.

    form      every voter tells the others what it is, until all have stored the same
    or join   a voter that lost its disk waits until the others have admitted it
    tick      the member runs in its own thread; here is what it tells the event loop
    act       while it leads, it is the active controller (`ottla.controller.active`)

Not here: the talk itself (`internal/`), and what a controller decides (`ottla.controller`).

Z1  what is told to others of this node's standing is durable first
Z2  a journal that is gone is not begun anew beside data that is still there: refused, with what
    to do
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from ottla.controller.active import ActiveController
from ottla.controller.feed import MetadataFeed
from ottla.controller.image import BrokerInfo, ClusterDefaults, MetadataImage
from ottla.controller.machine import MetadataMachine
from ottla.controller.publishing import PublishingMachine
from ottla.controller.quorum.formation import Formation
from ottla.controller.quorum.journal import Journal, create_journal
from ottla.controller.quorum.layout import is_blank, is_formatted
from ottla.controller.quorum.member import Compaction, QuorumMember
from ottla.controller.quorum.membership import Membership, Standing
from ottla.controller.quorum.port import QuorumStatus, Role
from ottla.controller.quorum.runner import RunningMember
from ottla.controller.quorum.transport import Drop
from ottla.controller.replay import first_state
from ottla.controller.sightings import Verdict
from ottla.node.clock import Clock, new_id
from ottla.node.data import Data
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import Handlers, WhoIAm
from ottla.node.internal.introductions import Introductions
from ottla.node.internal.probe import Probe
from ottla.node.internal.raft import RaftTransport
from ottla.node.logs import logger
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.node.quorum_counts import CountedMember, ElectionCounts
from ottla.node.quorum_store import QuorumStore
from ottla.proto.errors import ConfigError, StorageError
from ottla.proto.options import node
from ottla.proto.options import topic as topic_rows
from ottla.proto.options.endpoints import Address
from ottla.replication.storage.ports import StateStore

_log = logger("node.voter")

QUORUM_NAME: Final = "quorum"
PROBE_TIMEOUT_MS: Final = 500
LOOKUP_S: Final = 0.2


@dataclass(slots=True)
class Surroundings:
    """What a voter needs of its node."""

    options: NodeOptions
    data: Data
    me: WhoIAm
    # All of them, this node included, by their INTERNAL addresses.
    voters: Mapping[int, Address]
    channels: Channels
    probe: Probe
    clock: Clock
    metrics: Metrics
    # Told once, when the member has stopped for good.
    on_halted: Callable[[str], None]


class Voter:
    """One controller of the cluster. `join` once, `leave` at the end."""

    def __init__(self, around: Surroundings, store: StateStore) -> None:
        """Look into the store. Raises `StorageError` or `ConfigError` if that may not vote."""
        self._around: Final = around
        self._store: Final = QuorumStore(store)
        self._journal: Journal | None = None
        self._member: RunningMember | None = None
        self._transport: RaftTransport | None = None
        self._feed: MetadataFeed | None = None
        self._is_halted = False
        self._has_left = False
        stored = self._stored_membership()
        pinned = around.data.directory.identity.cluster_id
        self.introductions: Final = Introductions(
            formation=Formation(
                node_id=around.options.node_id,
                directory_id=around.data.directory_id,
                configured=around.voters,
                new_cluster_id=pinned or new_id(),
                membership=stored,
            ),
            voters=around.voters,
            channels=around.channels,
            keep=self._keep,
            dice=Random(),
            on_joiner=self._on_joiner,
        )

    @property
    def status(self) -> QuorumStatus | None:
        """Return how the member is; None before there is one."""
        return None if self._member is None else self._member.status()

    @property
    def image(self) -> MetadataImage | None:
        """Return the metadata as this controller knows it; None before it is one."""
        return None if self._feed is None else self._feed.image

    @property
    def raft_handlers(self) -> Handlers:
        assert self._transport is not None
        return self._transport.handlers

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(sorted(self._around.voters))

    @property
    def missing(self) -> tuple[int, ...]:
        """Return who was not heard of yet, while the quorum forms."""
        return self.introductions.missing

    @property
    def drops(self) -> Mapping[Drop, int]:
        """Return how many messages of others were not believed, and why."""
        return {} if self._member is None else self._member.drops()

    # ── Becoming a member ─────────────────────────────────────────────────────────────────────

    def _stored_membership(self) -> Membership | None:
        if is_blank(self._store):
            self._require_new()
            return None
        self._journal = Journal(self._store)
        stored = self._journal.membership
        self._require_own(stored)
        return stored

    def _require_new(self) -> None:
        data = self._around.data
        if data.directory.identity.cluster_id is None or is_formatted(self._store):
            return
        raise StorageError(
            f"The data directory {data.root} belongs to a cluster, and its quorum's journal is "
            "gone: this node has forgotten what it voted for. Bring the directory "
            f"'{QUORUM_NAME}' back, or move the whole data directory away and let the node "
            "join again."
        )

    def _require_own(self, stored: Membership) -> None:
        """Refuse a journal of another node, and another list of voters than it was formed with."""
        around = self._around
        identity = around.data.directory.identity
        is_ours = (stored.node_id, stored.directory_id) == (identity.node_id, identity.directory_id)
        if not is_ours or identity.cluster_id not in (None, stored.cluster_id):
            raise StorageError(
                f"The journal in {around.data.root}/{QUORUM_NAME} is that of node {stored.node_id} "
                f"of cluster {stored.cluster_id}, with the directory {stored.directory_id}, and "
                f"not of this data directory. Bring its own '{QUORUM_NAME}' back."
            )
        if set(stored.voters) != set(around.voters):
            formed, given = (
                ", ".join(map(str, sorted(one))) for one in (stored.voters, around.voters)
            )
            raise ConfigError(
                f"controller.quorum.voters has {given}, and this quorum was formed with {formed}. "
                "The voters of a cluster cannot be changed yet: bring the list back."
            )

    async def _keep(self, membership: Membership) -> None:
        """Make a step durable before anybody hears of it (Z1)."""
        try:
            await asyncio.to_thread(self._keep_now, membership)
        except ConfigError as error:
            raise StorageError(str(error)) from error

    def _keep_now(self, membership: Membership) -> None:
        pinned = self._around.data.directory.identity.cluster_id
        if pinned is not None:
            # Refused before anything is written, if this directory is another cluster's.
            self._around.data.directory.join_cluster(membership.cluster_id)
        if self._journal is None:
            self._journal = create_journal(self._store, membership)
        else:
            self._journal.set_membership(membership)
            self._journal.sync()

    async def join(self) -> ActiveController:
        """Become a member, and begin to tick; return the controller that this node is."""
        around = self._around
        membership = await self.introductions.run_until_member()
        await asyncio.to_thread(around.data.directory.join_cluster, membership.cluster_id)
        around.me.cluster_id = membership.cluster_id
        _log.info(
            "quorum_joined",
            cluster=membership.cluster_id,
            standing=membership.standing.value,
            voters=sorted(membership.voters),
        )
        return self._begin(membership)

    def _begin(self, membership: Membership) -> ActiveController:
        around, journal = self._around, self._journal
        assert journal is not None
        loop = asyncio.get_running_loop()
        machine = MetadataMachine(first_state(membership.cluster_id))
        feed = MetadataFeed(machine.image)
        transport = RaftTransport(
            me=around.me,
            directory_id=around.data.directory_id,
            voters=around.voters,
            channels=around.channels,
            probe=around.probe,
            dice=Random(),
            streams=around.metrics.streams,
        )
        member = QuorumMember(
            journal=journal,
            machine=PublishingMachine(machine, loop, feed),
            link=transport,
            now_ms=around.clock.monotonic_ms,
            dice=Random(),
            compaction=Compaction(size_bytes=around.options.current.value_of(node.SNAPSHOT_BYTES)),
        )
        running = CountedMember(
            member,
            lambda status: _hop(loop, lambda: self._on_status(active, status)),
            counts=around.metrics.controller,
            streams=around.metrics.streams,
            clock=around.clock,
        )
        elections = ElectionCounts(
            around.metrics.controller, lambda: running.status().role is Role.LEADER
        )
        feed.watch(elections.obey)
        active = ActiveController(
            node_id=around.options.node_id,
            quorum=running,
            feed=feed,
            now_ms=around.clock.monotonic_ms,
            session_ms=lambda: around.options.current.value_of(node.BROKER_SESSION_TIMEOUT_MS),
            balance_s=lambda: around.options.current.value_of(node.LEADER_IMBALANCE_CHECK_SECONDS),
            defaults=lambda: cluster_defaults(around.options),
            probe=self._probe_broker,
            cluster_id=membership.cluster_id,
            tell=lambda event, facts: _log.info(event, **facts),
        )
        transport.attach(running)
        self._member, self._transport, self._active = running, transport, active
        self._feed = feed
        return active

    async def start(self) -> None:
        assert self._member is not None
        assert self._transport is not None
        self._member.start()
        await self._transport.start()

    # ── What the member tells ─────────────────────────────────────────────────────────────────

    def _on_status(self, active: ActiveController, status: QuorumStatus) -> None:
        _log.info(
            "quorum_changed",
            role=status.role.value,
            term=status.term,
            leader=status.leader,
            standing=status.standing.value,
        )
        active.on_status(status)
        if status.standing is Standing.VOTER:
            self.introductions.became_voter()
        if status.halted is not None and not self._is_halted:
            self._is_halted = True
            self._around.on_halted(status.halted)

    def _on_joiner(self, voter: int, directory_id: str) -> None:
        if self._member is not None:
            self._member.admit(voter, directory_id)

    async def _probe_broker(self, broker: BrokerInfo, peer_host: str | None) -> Verdict:
        """Look where the broken stream came from, and where the broker says that it is (11a).

        They differ where ports are mapped or the listener has an address of its own: a living
        process refuses there, and is asked at the other place.
        """
        me = self._around.me
        if broker.broker_id == me.node_id:
            # This very process is that node, so an earlier one of it is not any more.
            is_mine = broker.incarnation == me.incarnation
            return Verdict.SAME_INCARNATION if is_mine else Verdict.OTHER_INCARNATION
        told = Address(broker.internal_host, broker.internal_port)
        if peer_host is None:
            return await self._probe_at(told, broker)
        found = await self._probe_at(Address(peer_host, broker.internal_port), broker)
        if found is Verdict.REFUSED and await _leads_elsewhere(told, peer_host):
            return await self._probe_at(told, broker)
        return found

    async def _probe_at(self, address: Address, broker: BrokerInfo) -> Verdict:
        return await self._around.probe(
            address,
            node_id=broker.broker_id,
            incarnation=broker.incarnation,
            cluster_id=self._around.me.cluster_id,
            timeout_ms=PROBE_TIMEOUT_MS,
        )

    async def leave(self) -> None:
        """Take no more part: the others shall find at once that this member is gone."""
        if self._has_left:
            return
        self._has_left = True
        await self.introductions.stop()
        if self._member is not None and self._transport is not None:
            await self._active.stop()
            await self._transport.stop()
            await asyncio.to_thread(self._member.stop)


def cluster_defaults(options: NodeOptions) -> ClusterDefaults:
    """Return what topics go by that do not set it themselves, as this node would have it."""
    of = options.static.value_of
    rows = node.OF_TOPIC_OPTION
    return ClusterDefaults(
        min_insync_replicas=of(rows[topic_rows.MIN_INSYNC_REPLICAS.name]),
        is_unclean_allowed=of(rows[topic_rows.UNCLEAN_LEADER_ELECTION.name]),
        is_fsync=of(rows[topic_rows.DURABILITY.name]) == "fsync",
    )


async def _leads_elsewhere(told: Address, peer_host: str) -> bool:
    """Whether an address is another one than that of the peer. A name nobody knows leads nowhere.

    So a name that goes with its process does not hold up the verdict.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LOOKUP_S):
            found = await loop.getaddrinfo(told.host, told.port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(name[0] != peer_host for _, _, _, _, name in found)


def _hop(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """Do it on the event loop; if that is closed, nobody is interested any more."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(work)
