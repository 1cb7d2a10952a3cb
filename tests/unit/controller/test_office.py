from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.commands import (
    BeginShutdown,
    FenceBroker,
    RegisterBroker,
    ReportDamage,
    TakeOffice,
    TakeProducerIds,
    UnfenceBroker,
)
from ottla.controller.office import FORWARDED, Requests, commands_for, wants_balance
from ottla.controller.proposal import KINDS, RequestId, encode_proposal
from ottla.controller.sightings import ProposeFence, ProposeShutdown, ProposeUnfence
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from tests.unit.controller.cluster import Cluster, some_id

ONE = BrokerId(1)


def test_rule_68_every_command_of_an_office_has_a_number_of_its_own() -> None:
    requests = Requests(ONE, 7)
    made = [requests.proposal(TakeProducerIds(1)).request for _ in range(3)]
    assert made == [RequestId(ONE, 7, number) for number in range(3)]


def test_a_wish_becomes_the_command_that_carries_its_epoch() -> None:
    assert commands_for(ProposeFence(ONE, 5, "why")) == [FenceBroker(ONE, 5)]
    assert commands_for(ProposeShutdown(ONE, 5)) == [BeginShutdown(ONE, 5)]
    assert commands_for(ProposeUnfence(ONE, 5, 9, {})) == [UnfenceBroker(ONE, 5, 9, {})]


@settings(deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 2**100).map(some_id),
        st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=30).map(sorted).map(tuple),
        max_size=5,
    ),
    st.integers(0, 5000),
    st.integers(0, 4),
)
def test_rule_8_any_damage_is_reported_in_commands_that_are_small_enough(
    few: dict[UUID, tuple[int, ...]], many: int, topics: int
) -> None:
    # Every other number, so that no two make a run.
    indexes = tuple(range(0, 2 * many, 2))
    damaged = few | ({some_id(number - 1): indexes for number in range(topics)} if many else {})
    commands = commands_for(ProposeUnfence(ONE, 5, 9, damaged))
    requests = Requests(ONE, 1)
    assert all(len(encode_proposal(requests.proposal(one))) < 32 * 1024 for one in commands)
    told: dict[UUID, tuple[int, ...]] = {}
    for command in commands:
        assert isinstance(command, ReportDamage | UnfenceBroker)
        for key, piece in command.damaged.items():
            told[key] = told.get(key, ()) + piece
    assert told == damaged
    assert [type(one) for one in commands[:-1]] == [ReportDamage] * (len(commands) - 1)


def test_of_every_command_it_is_decided_whether_a_broker_may_propose_it() -> None:
    own = {TakeOffice, RegisterBroker, FenceBroker, UnfenceBroker, BeginShutdown}
    assert {kind.command for kind in KINDS} - FORWARDED == own
    assert not own & FORWARDED


def test_leaders_are_out_of_balance_only_when_an_election_would_help() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2))
    assert not wants_balance(cluster.image)
    cluster.fence(1)
    assert not wants_balance(cluster.image)
    cluster.start(1)
    assert not wants_balance(cluster.image)
    assert cluster.alter_one(2, cluster.change([1, 2])) is None
    assert wants_balance(cluster.image)
    cluster.elect("preferred")
    assert not wants_balance(cluster.image)
