"""What agreement needs around `apply`: versions, digests, sessions (rule 68)."""

from __future__ import annotations

import pytest

from ottla.controller.commands import (
    CreateTopic,
    DeleteTopic,
    FenceBroker,
    SetFeatureLevel,
    TakeOffice,
    TakeProducerIds,
)
from ottla.controller.delta import encode_delta
from ottla.controller.image import ClusterDefaults
from ottla.controller.machine import MetadataMachine
from ottla.controller.port import NewTopic
from ottla.controller.proposal import NO_REQUEST, Proposal, RequestId, encode_proposal
from ottla.controller.replay import WINDOW, first_state
from ottla.proto.errors import ErrorCode, StorageError
from ottla.proto.ids import BrokerId
from tests.unit.controller.cluster import ONE, Cluster
from tests.unit.controller.metadata import topic_id

TAKE = TakeProducerIds(10)


def _asked(cluster: Cluster, sequence: int, *, node: int = 1, epoch: int | None = None) -> bytes:
    known = cluster.office if epoch is None else epoch
    return encode_proposal(Proposal(RequestId(BrokerId(node), known, sequence), TAKE))


def test_rule_68_the_version_counts_every_command_also_those_refused() -> None:
    cluster = Cluster()
    before = cluster.image.version
    cluster.feed(b"")
    cluster.feed(b"garbage")
    assert cluster.refusal(DeleteTopic("none", topic_id(1)))
    assert cluster.image.version == before + 3


def test_rule_68_a_command_that_is_committed_twice_is_obeyed_once() -> None:
    cluster = Cluster()
    data = _asked(cluster, 100)
    first, again = cluster.feed(data), cluster.feed(data)
    assert first.producer_ids == range(10)
    assert again == first
    assert cluster.image.next_producer_id == 10


def test_rule_68_a_refusal_is_remembered_too() -> None:
    cluster = Cluster(1)
    wish = CreateTopic(NewTopic("a", 1, 1), topic_id(1), ONE, seed=1)
    request = RequestId(BrokerId(1), cluster.office, 500)
    cluster.ok(CreateTopic(NewTopic("a", 1, 1), topic_id(2), ONE, seed=1))
    refused = cluster.feed(encode_proposal(Proposal(request, wish)))
    cluster.ok(DeleteTopic("a", topic_id(2)))
    # It would succeed now. Whoever asked has been told that it did not.
    assert cluster.feed(encode_proposal(Proposal(request, wish))) == refused
    assert not cluster.image.topics


def test_rule_68_commands_may_overtake_each_other() -> None:
    cluster = Cluster()
    for sequence in (7, 5, 6, 5, 7):
        cluster.feed(_asked(cluster, sequence))
    assert cluster.image.next_producer_id == 30


def test_rule_68_below_the_floor_the_answer_is_unknown_and_nothing_happens() -> None:
    cluster = Cluster()
    old = _asked(cluster, 0)
    cluster.feed(old)
    for sequence in range(1, WINDOW + 1):
        cluster.feed(_asked(cluster, sequence))
    ids = cluster.image.next_producer_id
    told = cluster.feed(old)
    assert told.is_unknown
    assert told.refusal is not None
    assert told.refusal.code is ErrorCode.REQUEST_TIMED_OUT
    assert cluster.image.next_producer_id == ids
    assert not cluster.feed(_asked(cluster, 1)).is_unknown
    (session,) = cluster.machine.state.sessions.values()
    assert len(session.remembered) == WINDOW


def test_rule_68_an_earlier_life_is_below_every_floor() -> None:
    cluster = Cluster(1)
    old = cluster.broker(1).broker_epoch
    late = _asked(cluster, 3, epoch=old)
    cluster.register(1)
    assert cluster.feed(late).is_unknown
    assert cluster.image.next_producer_id == 0
    assert not cluster.feed(_asked(cluster, 3, epoch=cluster.broker(1).broker_epoch)).is_unknown


def test_a_deposed_controller_proposes_in_vain() -> None:
    cluster = Cluster(2)
    command = FenceBroker(BrokerId(2), cluster.broker(2).broker_epoch)
    late = encode_proposal(Proposal(RequestId(BrokerId(1), cluster.office, 99), command))
    cluster.take_office(2, ClusterDefaults())
    assert cluster.feed(late).is_unknown
    assert not cluster.broker(2).is_fenced


def test_a_stranger_does_not_borrow_a_session() -> None:
    cluster = Cluster(1)
    assert cluster.feed(_asked(cluster, 0, node=2, epoch=cluster.office)).is_unknown


def test_only_one_of_two_nodes_that_saw_the_same_office_end_takes_it() -> None:
    cluster = Cluster()
    seen = cluster.image.controller_epoch
    assert cluster.take_office(2, ClusterDefaults()).refusal is None
    late = TakeOffice(BrokerId(3), seen, ClusterDefaults())
    outcome = cluster.feed(encode_proposal(Proposal(NO_REQUEST, late)))
    assert outcome.refusal is not None
    assert outcome.refusal.code is ErrorCode.NOT_CONTROLLER
    assert cluster.image.controller_id == 2
    assert cluster.image.controller_epoch == cluster.office


def test_rule_68_members_that_differ_in_one_command_have_different_digests() -> None:
    one, other = Cluster(2), Cluster(2)
    assert one.image.digest == other.image.digest
    one.feed(b"a")
    other.feed(b"b")
    assert one.image.version == other.image.version
    assert one.image.digest != other.image.digest
    # And for ever after, although the same is said to both.
    one.feed(b"c")
    other.feed(b"c")
    assert one.image.digest != other.image.digest


def test_rule_68_the_digest_sees_also_what_only_sessions_remember() -> None:
    one, other = Cluster(2), Cluster(2)
    assert one.feed(_asked(one, 50)) == other.feed(_asked(other, 51))
    assert one.image.topics == other.image.topics
    assert one.image.digest != other.image.digest


def test_the_words_of_a_refusal_may_differ_between_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = Cluster(1), Cluster(1)
    for cluster in clusters:
        stale = FenceBroker(BrokerId(1), 999)
        assert cluster.refusal(stale) is ErrorCode.STALE_BROKER_EPOCH
        # The next member is of a version that says it in other words.
        monkeypatch.setattr(ErrorCode.STALE_BROKER_EPOCH, "sentence", "This is an earlier life.")
    one, other = (cluster.machine.state for cluster in clusters)
    assert one.sessions != other.sessions
    assert one.image.digest == other.image.digest


def test_a_mistake_in_the_program_is_refused_and_not_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(*_: object) -> None:
        raise ZeroDivisionError

    cluster = Cluster(1)
    monkeypatch.setattr("ottla.controller.replay.apply", mistaken)
    assert cluster.refusal(TAKE) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_command_of_a_later_level_is_refused_by_old_and_new_programs_alike() -> None:
    cluster = Cluster(1)
    data = bytearray(_asked(cluster, 0))
    # The level is the second byte, a zigzag varint.
    data[1] = 9 << 1
    outcome = cluster.feed(bytes(data))
    assert outcome.refusal is not None
    assert outcome.refusal.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_program_that_is_older_than_the_cluster_stops_instead_of_guessing() -> None:
    cluster = Cluster()
    cluster.start(1, level=2)
    cluster.ok(SetFeatureLevel(2))
    with pytest.raises(StorageError, match="Start a newer version"):
        cluster.feed(b"anything")


def test_a_topic_of_5000_partitions_is_one_small_command() -> None:
    cluster = Cluster(3)
    wish = CreateTopic(NewTopic("big", 5000, 3), topic_id(1), ONE, seed=2**64 - 1)
    assert len(encode_proposal(Proposal(NO_REQUEST, wish))) < 100
    cluster.ok(wish)
    leaders = [one.leader for one in cluster.image.topics["big"].partitions]
    assert sorted(leaders.count(BrokerId(number)) for number in (1, 2, 3)) == [1666, 1667, 1667]


def test_a_machine_says_where_it_is_and_how_it_got_there() -> None:
    machine = MetadataMachine(first_state("c"))
    machine.apply(b"x")
    assert machine.describe().startswith("version=1 digest=")
    assert machine.last_delta is not None
    assert (machine.last_delta.from_version, machine.last_delta.version) == (0, 1)


def test_the_bytes_of_a_delta_are_made_once_and_are_those_of_the_delta_with_its_digest() -> None:
    cluster = Cluster(3)
    cluster.ok(CreateTopic(NewTopic("t", 5, 3), topic_id(1), ONE, seed=1))
    machine = cluster.machine
    assert machine.last_delta is not None
    assert machine.last_delta.digest == machine.image.digest
    assert machine.last_delta_bytes == encode_delta(machine.last_delta)
    machine.restore(machine.snapshot())
    assert machine.last_delta_bytes is None
