"""A cluster whose members can lose their disks, with a shell that tells leaders who joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ottla.controller.quorum.layout import StateStore
from ottla.controller.quorum.member import Compaction
from ottla.controller.quorum.membership import Membership, Standing
from ottla.controller.quorum.port import Outcome
from ottla.controller.quorum.seam import Timing
from tests.unit.controller.quorum.cluster import CLUSTER_ID, Cluster, directory_of, voter

ADMIT_MS = 5_000


class WipedCluster(Cluster):
    """Voters 1 to `size`; whoever is wiped comes back with a new directory, and joins."""

    def __init__(
        self,
        size: int = 3,
        *,
        seed: int = 0,
        compaction: Compaction | None = None,
        timing: Timing | None = None,
        open_store: Callable[[int], StateStore] | None = None,
    ) -> None:
        self.wipes = Counter[int]()
        # Whether leaders are told who joins.
        self.is_telling = True
        super().__init__(
            size, seed=seed, compaction=compaction, timing=timing, open_store=open_store
        )

    def directory(self, node_id: int) -> str:
        return directory_of(node_id) + self.wipes[node_id] * "x"

    def membership_of(self, node_id: int) -> Membership:
        formed = voter(node_id, self.size)
        if not self.wipes[node_id]:
            return formed
        directory_id = self.directory(node_id)
        return Membership(Standing.JOINING, CLUSTER_ID, node_id, directory_id, formed.voters)

    def wipe(self, node_id: int) -> dict[bytes, bytes]:
        """Empty a member's disk and start it again; return what was on the disk."""
        if node_id in self.members:
            self.kill(node_id)
        before = dict(self.disks[node_id])
        self.disks[node_id].clear()
        self.wipes[node_id] += 1
        self.start(node_id)
        return before

    def step(self) -> None:
        super().step()
        if self.is_telling:
            self.tell_leaders()

    def tell_leaders(self) -> None:
        for leader in self.leaders():
            for node_id in sorted(self.members):
                if self.standing(node_id) is Standing.JOINING:
                    self.admit(leader, node_id)

    def admit(self, leader: int, node_id: int) -> list[Outcome]:
        """Tell a leader of a joiner; the outcome appears in the list that is returned."""
        found: list[Outcome] = []
        self.members[leader].admit(node_id, self.directory(node_id), ADMIT_MS, found.append)
        return found

    def standing(self, node_id: int) -> Standing:
        return self.journals[node_id].membership.standing

    def is_voter(self, node_id: int) -> bool:
        return self.standing(node_id) is Standing.VOTER

    def others(self, *node_ids: int) -> list[int]:
        return [n for n in range(1, self.size + 1) if n not in node_ids]
