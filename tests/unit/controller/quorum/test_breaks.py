"""The storm can fail: undo one rule at a time, and it finds out.

Rules whose absence takes a longer chain of accidents have a test in `tests/hazards/` that makes the
chain by hand.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.controller.quorum.journal import Journal
from ottla.controller.quorum.messages import Envelope, Message, Vote
from ottla.controller.quorum.transport import Drop, Inbox, View
from ottla.proto.errors import OttlaError
from tests.unit.controller.quorum.cluster import Cluster
from tests.unit.controller.quorum.storm import Storm

SEEDS = 500
Patch = pytest.MonkeyPatch


def count_a_vote_twice(patch: Patch) -> None:
    admit = Inbox.admit

    def careless(
        self: Inbox, envelope: Envelope, view: View, *, verified_as: int | None = None
    ) -> Message | Drop:
        if isinstance(envelope.message, Vote) and envelope.sender in view.voters:
            return envelope.message
        return admit(self, envelope, view, verified_as=verified_as)

    patch.setattr(Inbox, "admit", careless)


def send_before_the_sync(patch: Patch) -> None:
    sync = Journal.sync
    calls = [0]

    def lazy(self: Journal) -> None:
        calls[0] += 1
        if calls[0] % 5 == 0:
            sync(self)

    patch.setattr(Journal, "sync", lazy)


def let_a_wiped_voter_vote(patch: Patch) -> None:
    kill = Cluster.kill

    def wipe(self: Cluster, node_id: int) -> None:
        kill(self, node_id)
        self.disks[node_id].clear()

    patch.setattr(Cluster, "kill", wipe)


@pytest.mark.parametrize(
    "undo",
    [
        pytest.param(count_a_vote_twice, marks=pytest.mark.long),
        send_before_the_sync,
        let_a_wiped_voter_vote,
    ],
)
def test_a_rule_that_is_undone_is_missed(
    undo: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    undo(monkeypatch)
    for seed in range(SEEDS):
        try:
            Storm(seed).run()
        except (AssertionError, OttlaError):
            return
    raise AssertionError(f"{undo.__name__} was not missed in {SEEDS} seeds")
