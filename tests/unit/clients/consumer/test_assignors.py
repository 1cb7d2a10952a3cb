"""Every partition has one reader, hands are even, and as little moves as possible."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.consumer.assignors import (
    ASSIGNORS,
    assign_range,
    assign_round_robin,
    assignors_of,
)
from ottla.clients.consumer.protocol import Subscription, encode_sticky_data
from ottla.clients.consumer.sticky import assign_cooperative, assign_sticky
from ottla.proto.errors import ConfigError
from ottla.proto.ids import TopicPartition

TOPICS = ("a", "b", "c", "d")
Hands = Mapping[str, list[TopicPartition]]

_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
_subscription = st.lists(st.sampled_from(TOPICS), unique=True, max_size=4).map(
    lambda topics: Subscription(tuple(topics))
)
_members = st.dictionaries(
    st.text("mnop", min_size=1, max_size=3), _subscription, min_size=1, max_size=7
)


def _same(members: int, *topics: str) -> dict[str, Subscription]:
    return {f"m{number}": Subscription(topics) for number in range(members)}


def _owning(
    members: Mapping[str, Subscription], hands: Hands, generation: int
) -> dict[str, Subscription]:
    return {
        member: Subscription(
            subscription.topics,
            encode_sticky_data(hands.get(member, ()), generation),
            tuple(hands.get(member, ())),
            generation,
        )
        for member, subscription in members.items()
    }


def _numbers(hands: Hands) -> dict[str, list[int]]:
    return {member: [one.partition for one in hand] for member, hand in hands.items()}


def _require_each_once(
    members: Mapping[str, Subscription], counts: Mapping[str, int], hands: Hands
) -> None:
    assert set(hands) == set(members)
    given_out = [one for hand in hands.values() for one in hand]
    read = {topic for member in members.values() for topic in member.topics} & set(counts)
    wanted = {TopicPartition(topic, number) for topic in read for number in range(counts[topic])}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == wanted
    assert all(
        one.topic in members[member].topics for member, hand in hands.items() for one in hand
    )


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=40)
@given(members=_members, counts=_counts)
def test_every_partition_goes_to_one_member_that_wants_it(
    name: str, members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    hands = ASSIGNORS[name].assign(members, counts)
    _require_each_once(members, counts, hands)
    backwards = dict(reversed(members.items()))
    assert ASSIGNORS[name].assign(backwards, counts) == hands


@settings(max_examples=40)
@given(members=_members, counts=_counts)
def test_sticky_hands_cannot_be_more_even(
    members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    hands = assign_sticky(members, counts)
    for giver, hand in hands.items():
        for one in hand:
            for taker, other in hands.items():
                if taker != giver and one.topic in members[taker].topics:
                    assert len(hand) - len(other) <= 1


@settings(max_examples=40)
@given(members=_members, counts=_counts, data=st.data())
def test_sticky_moves_nothing_when_nothing_has_changed(
    members: dict[str, Subscription], counts: dict[str, int], data: st.DataObject
) -> None:
    first = assign_sticky(members, counts)
    assert assign_sticky(_owning(members, first, 1), counts) == first
    assert assign_cooperative(_owning(members, first, 1), counts) == first


@settings(max_examples=40)
@given(count=st.integers(1, 30), members=st.integers(1, 6))
def test_whoever_stays_keeps_all_when_another_leaves(count: int, members: int) -> None:
    before = assign_sticky(_same(members + 1, "a"), {"a": count})
    gone = f"m{members}"
    left = {member: hand for member, hand in before.items() if member != gone}
    after = assign_sticky(_owning(_same(members, "a"), left, 1), {"a": count})
    for member, hand in left.items():
        assert set(hand) <= set(after[member])


@settings(max_examples=40)
@given(members=_members, counts=_counts, more=_members, rounds=st.integers(1, 6))
def test_cooperative_gives_nothing_away_that_somebody_still_has(
    members: dict[str, Subscription],
    counts: dict[str, int],
    more: dict[str, Subscription],
    rounds: int,
) -> None:
    owned: Hands = assign_cooperative(members, counts)
    group = members | more
    hands = owned
    for generation in range(1, rounds + 2):
        claims = {member: hand for member, hand in owned.items() if member in group}
        hands = assign_cooperative(_owning(group, claims, generation), counts)
        for member, hand in hands.items():
            for one in hand:
                holders = {who for who, held in claims.items() if one in held}
                assert holders <= {member} or member in holders
        if hands == owned:
            break
        owned = hands
    if rounds >= 3:
        _require_each_once(group, counts, hands)


def test_a_claim_of_an_earlier_generation_is_not_believed() -> None:
    partition = (TopicPartition("a", 0),)
    members = {
        "late": Subscription(("a",), encode_sticky_data(partition, 5)),
        "early": Subscription(("a",), encode_sticky_data(partition, 4)),
    }
    assert assign_sticky(members, {"a": 1})["late"] == list(partition)


def test_range_gives_runs_and_the_first_members_one_more() -> None:
    hands = assign_range(_same(3, "a", "b"), {"a": 4, "b": 2})
    assert _numbers(hands) == {"m0": [0, 1, 0], "m1": [2, 1], "m2": [3]}


def test_round_robin_deals_all_topics_as_one_pack() -> None:
    hands = assign_round_robin(_same(2, "a", "b"), {"a": 3, "b": 3})
    assert [str(one) for one in hands["m0"]] == ["a-0", "a-2", "b-1"]
    assert [str(one) for one in hands["m1"]] == ["a-1", "b-0", "b-2"]


def test_static_members_come_first_in_order_of_their_names() -> None:
    members = {
        "x": Subscription(("a",), instance_id="2"),
        "y": Subscription(("a",), instance_id="1"),
        "b": Subscription(("a",)),
    }
    assert _numbers(assign_range(members, {"a": 3})) == {"y": [0], "x": [1], "b": [2]}


def test_an_assignor_is_found_by_java_s_name_and_an_unknown_one_is_told() -> None:
    (found,) = assignors_of(["org.apache.kafka.clients.consumer.CooperativeStickyAssignor"])
    assert found.name == "cooperative-sticky"
    with pytest.raises(ConfigError, match="choose among range"):
        assignors_of(["fair"])
