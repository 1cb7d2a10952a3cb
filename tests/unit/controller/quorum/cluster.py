"""Members on virtual time, with disks and a network in memory."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.controller.quorum.journal import Journal, create_journal
from ottla.controller.quorum.layout import StateStore, is_blank
from ottla.controller.quorum.member import Compaction, QuorumMember
from ottla.controller.quorum.membership import Membership, Standing
from ottla.controller.quorum.memory import MemoryNetwork
from ottla.controller.quorum.port import Committed, Outcome
from ottla.controller.quorum.seam import Timing
from ottla.replication.storage.memory import MemoryStateStore

CLUSTER_ID = "cluster"
STEP_MS = 10


class Notes:
    """A state machine that keeps every command it was given."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, command: bytes) -> object:
        if command.startswith(b"raise"):
            raise ValueError(command.decode())
        self.commands.append(command)
        return len(self.commands)

    def snapshot(self) -> bytes:
        return b"\n".join(self.commands)

    def restore(self, state: bytes) -> None:
        self.commands = state.split(b"\n") if state else []


def directory_of(node_id: int) -> str:
    return f"directory-{node_id}"


def voter(node_id: int, voters: int, standing: Standing = Standing.VOTER) -> Membership:
    everybody = {peer: directory_of(peer) for peer in range(1, voters + 1)}
    return Membership(standing, CLUSTER_ID, node_id, directory_of(node_id), everybody)


def open_journal(store: StateStore, membership: Membership) -> Journal:
    return create_journal(store, membership) if is_blank(store) else Journal(store)


class Cluster:
    """Voters 1 to `size`. `disks` outlive the members."""

    def __init__(
        self,
        size: int = 3,
        *,
        seed: int = 0,
        compaction: Compaction | None = None,
        timing: Timing | None = None,
        open_store: Callable[[int], StateStore] | None = None,
    ) -> None:
        self.size = size
        self.now_ms = 1_000
        self.network = MemoryNetwork()
        self.disks: dict[int, dict[bytes, bytes]] = {n: {} for n in range(1, size + 1)}
        self.journals: dict[int, Journal] = {}
        self.machines: dict[int, Notes] = {}
        self.standings: dict[int, Standing] = {}
        self._open_store = open_store or (lambda n: MemoryStateStore(self.disks[n]))
        self._compaction = compaction
        self._timing = timing
        self._dice = Random(seed)
        for node_id in self.disks:
            self.start(node_id)

    @property
    def members(self) -> dict[int, QuorumMember]:
        return self.network.members

    def membership_of(self, node_id: int) -> Membership:
        """Return what a member is whose disk is empty."""
        return voter(node_id, self.size, self.standings.get(node_id, Standing.VOTER))

    def start(self, node_id: int) -> QuorumMember:
        journal = open_journal(self._open_store(node_id), self.membership_of(node_id))
        machine = Notes()
        self.journals[node_id], self.machines[node_id] = journal, machine
        member = QuorumMember(
            journal=journal,
            machine=machine,
            link=self.network.link(),
            now_ms=lambda: self.now_ms,
            dice=Random(self._dice.getrandbits(64)),
            compaction=self._compaction,
            timing=self._timing,
        )
        self.network.attach(member)
        return member

    def kill(self, node_id: int) -> None:
        self.network.detach(node_id)

    def step(self) -> None:
        self.now_ms += STEP_MS
        for node_id in sorted(self.members):
            self.members[node_id].tick()
        self.network.deliver_all()

    def run(self, milliseconds: int) -> None:
        for _ in range(milliseconds // STEP_MS):
            self.step()

    def run_until(self, condition: Callable[[], bool], within_ms: int = 20_000) -> None:
        for _ in range(within_ms // STEP_MS):
            if condition():
                return
            self.step()
        raise AssertionError(f"not within {within_ms} ms")

    def leaders(self) -> list[int]:
        return [n for n, member in self.members.items() if member.leader == n]

    def elect(self) -> int:
        """Wait until one member leads and all that it can reach know."""
        self.run_until(lambda: len(self.leaders()) == 1 and self._is_settled())
        return self.leaders()[0]

    def _is_settled(self) -> bool:
        leader = self.members[self.leaders()[0]].status()
        return leader.commit_index == leader.last_index > 1

    def propose(self, node_id: int, command: bytes, timeout_ms: int = 5_000) -> list[Outcome]:
        """Begin a proposal; its outcome appears in the list that is returned."""
        found: list[Outcome] = []
        self.members[node_id].propose(command, timeout_ms, found.append)
        return found

    def commit(self, node_id: int, command: bytes) -> Committed:
        found = self.propose(node_id, command)
        self.run_until(lambda: bool(found))
        assert isinstance(found[0], Committed), found
        return found[0]
