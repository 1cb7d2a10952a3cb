"""What is copied, and what becomes of in-sync sets, is counted on its way."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.node.isr import IsrListener
from ottla.node.metrics import ReplicationMetrics
from ottla.node.replication_counts import CountedFeeder, CountedPuller, IsrCounts
from ottla.proto.errors import ErrorCode, RemoteProtocolError
from ottla.proto.ids import BrokerId, TopicPartition
from ottla.proto.replication import Ask, encode_asks
from ottla.replication.leader import IsrProposal
from ottla.replication.replica import Replica
from tests.builders import EPOCH, OneLog
from tests.replicas import surroundings, view


class Told(IsrListener):
    def __init__(self) -> None:
        self.told: list[object] = []

    def isr_proposed(self, replica: Replica, proposal: IsrProposal) -> None:
        self.told.append(proposal)

    def isr_answered(self, replica: Replica, proposal: IsrProposal, code: ErrorCode) -> None:
        self.told.append(code)


def proposal(*members: int) -> IsrProposal:
    return IsrProposal(EPOCH, 0, tuple((BrokerId(one), 1) for one in members))


def led() -> Replica:
    """Return a replica that leads, of three that are in sync."""
    # Nothing is synced here, so no thread is ever started.
    replica = Replica(
        TopicPartition("t", 0), OneLog().create(), surroundings(ThreadPoolExecutor(1))
    )

    async def lead() -> None:
        replica.lead(view(1, 2, 3))

    asyncio.run(lead())
    return replica


def test_a_set_is_held_against_the_one_at_the_time_of_the_proposal_and_passed_on() -> None:
    replica, counts, then = led(), ReplicationMetrics(), Told()
    listener = IsrCounts(counts, then)
    fewer = proposal(1, 2)
    listener.isr_proposed(replica, fewer)
    # The metadata is here before the answer.
    replica.lead(view(1, 2, 3, isr=(BrokerId(1), BrokerId(2)), partition_epoch=1))
    listener.isr_answered(replica, fewer, ErrorCode.NONE)
    assert (counts.isr_shrinks, counts.isr_expands, counts.failed_isr_updates) == (1, 0, 0)
    listener.isr_proposed(replica, proposal(1, 2, 3))
    listener.isr_answered(replica, proposal(1, 2, 3), ErrorCode.INELIGIBLE_REPLICA)
    assert (counts.isr_shrinks, counts.isr_expands, counts.failed_isr_updates) == (1, 0, 1)
    assert then.told == [
        fewer,
        ErrorCode.NONE,
        proposal(1, 2, 3),
        ErrorCode.INELIGIBLE_REPLICA,
    ]


def test_what_goes_to_a_follower_is_counted() -> None:
    counts = ReplicationMetrics()
    feeder = CountedFeeder(
        counts,
        BrokerId(2),
        lambda topic_id, index: None,
        bytes_max=lambda: 1000,
        wait_ms=lambda: 0,
        now_ms=lambda: 0,
        wake=lambda: None,
        look=lambda: None,
    )
    assert feeder.next_answer() is None
    assert counts.bytes_out == 0
    for ask in encode_asks(Ask(1, 0, True, [])):
        feeder.take(ask)
    pieces = feeder.next_answer()
    assert pieces is not None
    assert counts.bytes_out == len(b"".join(pieces)) > 0
    assert counts.bytes_in == 0


def test_what_comes_from_a_leader_is_counted_whatever_it_is() -> None:
    counts = ReplicationMetrics()
    puller = CountedPuller(
        counts, BrokerId(1), broker_epoch=lambda: 1, now_ms=lambda: 0, wake=lambda: None
    )
    puller.connected()
    with pytest.raises(RemoteProtocolError):
        puller.take(b"no answer")
    assert (counts.bytes_in, counts.bytes_out) == (len(b"no answer"), 0)
