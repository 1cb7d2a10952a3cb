"""Deliberate breaks of the product, one rule each: the simulator must find every one of them.

A break that is found no longer means that the simulator has gone blind there, which is as bad as a
bug.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from ottla.controller import brokers, election, partitions, replay
from ottla.controller.broker_life import BrokerLife
from ottla.controller.election import Terms
from ottla.controller.image import PartitionInfo
from ottla.controller.machine import MetadataMachine
from ottla.controller.quorum import transport
from ottla.controller.quorum.election import PreElection
from ottla.controller.quorum.formation import Account, Formation
from ottla.controller.quorum.journal import Journal
from ottla.controller.quorum.layout import StateStore
from ottla.controller.quorum.membership import Membership, Standing
from ottla.controller.quorum.messages import Envelope, Message, Vote
from ottla.controller.quorum.seam import Applied, Raft
from ottla.controller.quorum.transport import Drop, Inbox, View
from ottla.controller.replay import apply_bytes
from ottla.proto.ids import BrokerId
from tests.sim.cluster import brokers as sim_brokers

Patch = pytest.MonkeyPatch


def truncate_on_every_append(patch: Patch) -> None:
    """J2, P1: whatever lies after the place of an append goes, wrong or right."""

    def truncate(journal: Journal, position: int) -> None:
        index = journal.first_index + position
        journal._size_bytes -= sum(len(entry.command) for entry in journal._entries[position:])
        del journal._entries[position:]
        journal._changed_from = min(journal._changed_from, index)

    patch.setattr(Journal, "mark_conflicts_from", truncate)


def count_a_vote_twice(patch: Patch) -> None:
    """T1, T3, P7: a vote that comes again is another vote."""
    admit = Inbox.admit

    def careless(inbox: Inbox, envelope: Envelope, view: View, **more: Any) -> Message | Drop:
        found = admit(inbox, envelope, view, **more)
        if isinstance(envelope.message, Vote) and found in (Drop.REPEATED, Drop.VOTED_ALREADY):
            return envelope.message
        return found

    patch.setattr(Inbox, "admit", careless)


def change_in_sync_sets_without_looking_at_epochs(patch: Patch) -> None:
    """Rules 14 and 15: whoever asks gets the in-sync set that it asks for."""
    patch.setattr(partitions, "_require_epochs", lambda partition, caller, change: None)


def forget_the_vote_on_restart(patch: Patch) -> None:
    """J3, P5: the vote is on the disk, and nobody reads it."""
    real = Journal.__init__

    def forgetful(journal: Journal, store: StateStore) -> None:
        real(journal, store)
        journal._vote = None

    patch.setattr(Journal, "__init__", forgetful)


def elect_outside_isr_and_elr(patch: Patch) -> None:
    """Rules 16 and 17: with nobody eligible, anybody leads."""
    real = election.settle

    def settle(
        partition: PartitionInfo,
        terms: Terms,
        *,
        isr: Collection[BrokerId] | None = None,
        lost: Collection[BrokerId] = (),
    ) -> PartitionInfo:
        settled = real(partition, terms, isr=isr, lost=lost)
        anybody = next((one for one in partition.replicas if one in terms.active), None)
        if settled.leader is not None or anybody is None:
            return settled
        return election._moved(partition, anybody, (anybody,), (), is_unclean=False)

    for module in (brokers, election, partitions):
        patch.setattr(module, "settle", settle)


def keep_claims_to_what_is_damaged(patch: Patch) -> None:
    """B4: whoever reports a damaged copy stays in sync with it."""
    patch.setattr(brokers, "_without_claims", lambda image, broker_id, damaged: [])


def let_a_wiped_voter_vote(patch: Patch) -> None:
    """G3, T4: a member with an empty disk votes as if it had one, and nobody looks from where."""

    def meet_voter(formation: Formation, voter: Account) -> Membership:
        voters = {**(voter.voters or {}), formation._node_id: formation._directory_id}
        return formation._store(Standing.VOTER, voter.cluster_id, voters)

    patch.setattr(Formation, "_meet_voter", meet_voter)
    patch.setattr(transport, "_check_directory", lambda envelope, view: None)


def send_before_the_sync(patch: Patch) -> None:
    """R1, P4: of five times that something should be made durable, once it is."""
    sync = Journal.sync
    calls = [0]

    def lazy(journal: Journal) -> None:
        calls[0] += 1
        if calls[0] % 5 == 0 or journal._installing:
            sync(journal)

    patch.setattr(Journal, "sync", lazy)


def answer_before_it_is_committed(patch: Patch) -> None:
    """Q1: a caller is told what will come of a command, as soon as it is in the leader's log."""
    append = Raft.append

    def hasty(raft: Raft, command: Any, done: Callable[[Applied], None]) -> None:
        machine, outcome = raft._machine, None
        if isinstance(machine, MetadataMachine) and isinstance(command, bytes):
            outcome = apply_bytes(machine.state, command).outcome
        if outcome is None or outcome.epoch is not None:
            append(raft, command, done)
        else:
            append(raft, command, lambda applied: None)
            done(Applied(raft.applied_index, outcome, is_applied=True, is_refused=False))

    patch.setattr(Raft, "append", hasty)


def let_members_disagree(patch: Patch) -> None:
    """M3: what becomes of a command depends on more than the command."""
    digest_after, calls = replay._digest_after, count()

    def moody(before: bytes, data: bytes, *more: Any) -> bytes:
        return digest_after(before, data + bytes([next(calls) % 50 == 0]), *more)

    patch.setattr(replay, "_digest_after", moody)


def obey_a_request_again(patch: Patch) -> None:
    """M2: nobody remembers what was asked before."""
    patch.setattr(replay, "_recalled", lambda state, request: None)


def go_back_to_older_metadata(patch: Patch) -> None:
    """D2: a broker believes whatever image comes last."""
    patch.setattr(sim_brokers, "follow_whole", lambda image, whole: whole)


def keep_the_leader_epoch(patch: Patch) -> None:
    """E2: another leader, and the same leader epoch."""
    moved = election._moved

    def same_epoch(partition: PartitionInfo, *more: Any, **how: Any) -> PartitionInfo:
        found = moved(partition, *more, **how)
        is_same = found is partition
        return found if is_same else replace(found, leader_epoch=partition.leader_epoch)

    patch.setattr(election, "_moved", same_epoch)


def rely_on_answers_without_their_metadata(patch: Patch) -> None:
    """H2, rule 13: whoever is answered relies on it, whatever it has not followed yet."""

    def believe(life: BrokerLife) -> None:
        while life._unproven:
            _, life._heard_ms = life._unproven.popleft()

    patch.setattr(BrokerLife, "_prove", believe)


def never_stand_for_election(patch: Patch) -> None:
    """V1: nobody is ever sure enough to stand."""
    patch.setattr(PreElection, "has_won", lambda pre, now_ms: False)


@dataclass(frozen=True, slots=True)
class Break:
    """One rule undone, the family of seeds that is mostly about it, and what it breaks first."""

    undo: Callable[[Patch], None]
    family: str
    invariants: tuple[str, ...]


# The six that were asked for come first.
BREAKS = (
    Break(truncate_on_every_append, "appends", ("I10", "I2", "I3")),
    Break(change_in_sync_sets_without_looking_at_epochs, "brokers", ("I6", "I7")),
    Break(forget_the_vote_on_restart, "elections", ("I8",)),
    Break(elect_outside_isr_and_elr, "brokers", ("I6", "I7")),
    Break(let_a_wiped_voter_vote, "wipes", ("I10", "I8", "I2")),
    Break(send_before_the_sync, "elections", ("I10", "I8", "I2", "I3")),
    Break(answer_before_it_is_committed, "appends", ("I3",)),
    Break(let_members_disagree, "appends", ("I2",)),
    Break(obey_a_request_again, "brokers", ("I4",)),
    Break(go_back_to_older_metadata, "brokers", ("I5",)),
    Break(keep_claims_to_what_is_damaged, "brokers", ("I7",)),
    Break(keep_the_leader_epoch, "brokers", ("I6",)),
    Break(rely_on_answers_without_their_metadata, "brokers", ("I11",)),
    Break(never_stand_for_election, "elections", ("I9",)),
    Break(count_a_vote_twice, "elections", ("I1",)),
)
