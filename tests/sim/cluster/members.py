"""A member of the quorum as a process: real member, real journal, real metadata, real formation.

Only disk, power, wire, clock and dice are simulated. A process that finds nothing on its disk talks
with the others (`Formation`) until it knows whether it forms a quorum or joins one; a leader that
hears of a joiner admits it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from ottla.controller.delta import Delta
from ottla.controller.image import MetadataImage
from ottla.controller.machine import MetadataMachine
from ottla.controller.outcome import Outcome
from ottla.controller.quorum.formation import Account, Formation, Refusal
from ottla.controller.quorum.journal import Journal, create_journal
from ottla.controller.quorum.layout import MEMBERSHIP_KEY
from ottla.controller.quorum.member import Compaction, QuorumMember
from ottla.controller.quorum.membership import Membership, Standing, decode_membership
from ottla.controller.quorum.messages import Envelope
from ottla.controller.quorum.port import Outcome as Told
from ottla.controller.quorum.port import Refused, Why
from ottla.controller.replay import apply_bytes, first_state
from ottla.replication.storage.faults import FaultPlan, FaultyStore, Power
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.sim.cluster.network import Process

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

CLUSTER_ID = "sim"
TIMEOUT_MS = 800
DELTAS_KEPT = 12


class WatchedMachine(MetadataMachine):
    """The real machine, which tells the invariants what it does."""

    __slots__ = ("_member", "deltas")

    def __init__(self, member: MemberProcess) -> None:
        super().__init__(first_state(CLUSTER_ID))
        self._member = member
        self.deltas: deque[Delta] = deque(maxlen=DELTAS_KEPT)

    def apply(self, command: bytes) -> Outcome:
        before = self.image
        outcome = self._apply_shared(command)
        if self.last_delta is not None:
            self.deltas.append(self.last_delta)
        self._member.applied(before, self.image, command, outcome)
        return outcome

    def _apply_shared(self, command: bytes) -> Outcome:
        world = self._member.world
        if not world.climate.is_shared:
            return super().apply(command)
        key = (self.image.digest, command)
        known = world.applies.get(key)
        if known is None:
            known = world.applies[key] = apply_bytes(self.state, command)
        self._state, self.last_delta = known.state, known.delta
        return known.outcome

    def restore(self, state: bytes) -> None:
        super().restore(state)
        self.deltas.clear()
        self._member.world.invariants.restored(self._member.node_id, self.image)


class MemberProcess(Process):
    """One member. `disk` and `power` outlive its lives."""

    def __init__(self, world: World, node_id: int) -> None:
        super().__init__(node_id)
        self.world = world
        self.disk: dict[bytes, bytes] = {}
        self.power = Power(machine=f"m{node_id}")
        self.plan = FaultPlan()
        self.wipes = 0
        self.directory_id = f"d{node_id}"
        # Disks that were lost, each with its directory id, and whether this is one of them.
        self._lost: list[tuple[str, dict[bytes, bytes]]] = []
        self.is_found_again = False
        self.member: QuorumMember | None = None
        self.journal: Journal | None = None
        self.machine = WatchedMachine(self)
        self._forget()

    def _forget(self) -> None:
        """Lose what is only in memory."""
        # Something came since the last tick.
        self._is_touched = True

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    @property
    def leads(self) -> bool:
        return self.member is not None and self.member._raft.leads

    @property
    def is_voter(self) -> bool:
        """Whether its disk gives it the right to vote."""
        found = self.disk.get(MEMBERSHIP_KEY)
        return found is not None and decode_membership(found).standing is Standing.VOTER

    # ── Life ──────────────────────────────────────────────────────────────────────────────────

    def open_store(self) -> FaultyStore:
        return FaultyStore(MemoryStateStore(self.disk), self.power, self.plan)

    @property
    def disk_has_failed(self) -> bool:
        return any(rule.hits >= rule.nth for rule in self.plan.rules)

    def wipe(self) -> None:
        """Another disk, on which there is nothing."""
        self._lost.append((self.directory_id, self.disk))
        self.wipes += 1
        self._take_disk(f"d{self.node_id}.{self.wipes}", {})
        self.is_found_again = False

    def find_disk(self, dice: Random) -> bool:
        """Put in a disk that was lost, and is found again. Return whether there was one."""
        if not self._lost:
            return False
        found = self._lost.pop(dice.randrange(len(self._lost)))
        self._lost.append((self.directory_id, self.disk))
        self._take_disk(*found)
        self.is_found_again = True
        return True

    def _take_disk(self, directory_id: str, disk: dict[bytes, bytes]) -> None:
        self.directory_id, self.disk, self.journal = directory_id, disk, None
        self.world.invariants.wiped(self.node_id)

    def start_talking(self, journal: Journal | None) -> None:
        """Run without a vote, blank or forming, until it is known what this member is."""
        self.is_up, self.life, self.paused_until_ms = True, self.life + 1, 0
        self._forget()
        self._begin_formation(journal)
        self._introduce(self.life)

    def start(self, journal: Journal) -> None:
        """Run a member on its journal."""
        world, climate = self.world, self.world.climate
        self.is_up, self.life, self.paused_until_ms = True, self.life + 1, 0
        self._forget()
        self._begin_formation(journal)
        self.machine = WatchedMachine(self)
        world.invariants.restarted(self.node_id, journal)
        self.member = QuorumMember(
            journal=journal,
            machine=self.machine,
            link=self,
            now_ms=lambda: world.schedule.now_ms,
            dice=Random(world.dice.getrandbits(64)),
            timing=climate.timing,
            compaction=Compaction(entries=climate.compaction_entries),
        )
        world.network.open_all(self.node_id, world.member_ids)
        self._tick_later(self.life)
        self._introduce(self.life)

    def stop(self, *, loses_power: bool = False) -> None:
        """The process is gone, with everything that was not on its disk."""
        self.is_up, self.member = False, None
        self._forget()
        self.plan.rules.clear()
        if loses_power:
            self.power.cut(self.world.dice, Style.DROP)
        else:
            self.power.crash()
        self.world.network.break_all(self.node_id)

    # ── A lost disk ───────────────────────────────────────────────────────────────────────────

    def _introduce(self, life: int) -> None:
        """Tell the others what this member is, until it votes."""
        if life != self.life or not self.is_up or self.is_voter:
            return
        world = self.world
        for peer in world.controllers.values():
            if peer is not self:
                self._introduce_to(peer, life)
        delay_ms = 30 + int(world.dice.random() * 60)
        world.schedule.after(delay_ms, "introduce", lambda: self._introduce(life), self.node_id)

    def _begin_formation(self, journal: Journal | None) -> None:
        self.journal = journal
        self.formation = Formation(
            node_id=self.node_id,
            directory_id=self.directory_id,
            configured=self.world.member_ids,
            new_cluster_id=CLUSTER_ID,
            membership=None if journal is None else journal.membership,
        )

    def _account(self) -> Account:
        account = self.formation.account
        if self.journal is None:
            return account
        # An admission changes the standing in the journal, past the formation.
        return replace(account, standing=self.journal.membership.standing)

    def _introduce_to(self, peer: MemberProcess, life: int) -> None:
        account, peers_life = self._account(), peer.life

        def answer(told: Account) -> None:
            if life == self.life and self.is_up and self.member is None:
                self._keep(self.formation.hear(told))

        def admitted(told: Told) -> None:
            is_late = told == Refused(Why.DIRECTORY_REPLACED, peer.node_id)
            if is_late and life == self.life and self.is_up and self.is_found_again:
                self.world.move_disk_away(self)

        def hear() -> None:
            # What is under way to a process dies with it.
            if peer.life != peers_life:
                return
            if peer.member is None:
                peer._keep(peer.formation.hear(account))
            elif account.standing is Standing.JOINING and peer.leads:
                ids = (account.node_id, account.directory_id)
                peer.member.admit(*ids, TIMEOUT_MS, admitted)
            told = peer._account()
            self.world.post(peer, self, lambda: answer(told))

        self.world.post(self, peer, hear)

    def _keep(self, found: Membership | Refusal | None) -> None:
        """Store what the member has become, and run it if that is something."""
        if not isinstance(found, Membership):
            return
        self.world.schedule.note("member %d is %s", self.node_id, found.standing.value)
        if self.journal is None:
            self.journal = create_journal(self.open_store(), found)
        else:
            self.journal.set_membership(found)
            self.journal.sync()
        if found.standing is not Standing.FORMING:
            self.world.starting = self.node_id
            self.start(self.journal)

    # ── The member ────────────────────────────────────────────────────────────────────────────

    def send(self, envelope: Envelope) -> bool:
        """The wire of the member."""
        self.world.invariants.hear(envelope)
        taken = self.world.network.send(envelope)
        self.world.heard(envelope)
        return taken

    def receive(self, envelope: Envelope) -> None:
        member = self.member
        if member is not None:
            self._is_touched = True
            member.receive(envelope)
            if self.world.climate.is_eager:
                self._tick()
            self._look()

    def _tick_later(self, life: int) -> None:
        climate, dice = self.world.climate, self.world.dice
        delay_ms = 1 + int(dice.random() * 2 * climate.tick_ms)
        self.world.schedule.after(delay_ms, "tick", lambda: self._tick_loop(life), self.node_id)

    def _tick_loop(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        wait_ms = self.paused_until_ms - self.world.schedule.now_ms
        if wait_ms > 0:
            self.world.schedule.after(wait_ms, "tick", lambda: self._tick_loop(life), self.node_id)
            return
        if self._has_work():
            self._tick()
            self._look()
        self._tick_later(life)

    def _has_work(self) -> bool:
        """Whether a tick would do anything: most ticks of followers do not, and they take long."""
        member = self.member
        if member is None:
            return False
        return self._is_touched or member._raft.leads or member._raft.election_is_due

    def _tick(self) -> None:
        if self.member is not None:
            self._is_touched = False
            self.member.tick()
            self._after_tick()

    def _look(self) -> None:
        member, journal = self.member, self.journal
        if member is not None and journal is not None:
            if member._raft.leads:
                self.world.invariants.look_at_leader(self.node_id, member._raft.term)
            self.world.invariants.look_at_log(self.node_id, journal)

    # ── For whoever makes more of it ──────────────────────────────────────────────────────────

    def _after_tick(self) -> None:
        """Do what a controller does."""

    def applied(
        self, before: MetadataImage, after: MetadataImage, command: bytes, outcome: Outcome
    ) -> None:
        self.world.applied(self.node_id, before, after, command, outcome)
