from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.placement import place
from tests.unit.controller.metadata import brokers

_seeds = st.integers(0, 2**64 - 1)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(0, 60), _seeds, st.data())
def test_leaders_and_replicas_are_even_over_brokers_without_racks(
    size: int, count: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, size))
    known = brokers(size)
    placed = place(known, count=count, replication_factor=factor, seed=seed)
    assert len(placed) == count
    assert all(len(replicas) == len(set(replicas)) == factor for replicas in placed)
    leading = Counter(replicas[0] for replicas in placed)
    holding = Counter(broker for replicas in placed for broker in replicas)
    for counted in (leading, holding):
        numbers = [counted[broker.broker_id] for broker in known]
        assert max(numbers) - min(numbers) <= 1


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 40), _seeds, st.data())
def test_replicas_are_in_as_many_racks_as_there_are(
    size: int, racks: int, count: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, size))
    known = brokers(size, [f"rack-{number}" for number in range(racks)])
    rack_of = {broker.broker_id: broker.rack for broker in known}
    placed = place(known, count=count, replication_factor=factor, seed=seed)
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        in_racks = {rack_of[broker] for broker in replicas}
        assert len(in_racks) == min(factor, len(set(rack_of.values())))
    leading = Counter(replicas[0] for replicas in placed)
    numbers = [leading[broker.broker_id] for broker in known]
    assert max(numbers) - min(numbers) <= 1


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 30), _seeds)
def test_a_topic_that_grows_one_by_one_stays_even(size: int, count: int, seed: int) -> None:
    known = brokers(size)
    leading: Counter[int] = Counter()
    for step in range(count):
        (replicas,) = place(
            known,
            count=1,
            replication_factor=1,
            seed=seed + step,
            leading=dict(leading),  # type: ignore[arg-type]
        )
        leading[replicas[0]] += 1
    numbers = [leading[broker.broker_id] for broker in known]
    assert max(numbers) - min(numbers) <= 1


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 20), _seeds)
def test_the_same_seed_places_alike(size: int, count: int, seed: int) -> None:
    one, other = (
        place(known, count=count, replication_factor=1, seed=seed)
        for known in (brokers(size), list(reversed(brokers(size))))
    )
    assert one == other


def test_followers_of_one_leader_are_not_always_the_same_broker() -> None:
    placed = place(brokers(6), count=60, replication_factor=2, seed=1)
    followers = {replicas[1] for replicas in placed if replicas[0] == 1}
    assert len(followers) > 2


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(1, 20), _seeds, st.data())
def test_who_is_down_gets_a_replica_only_if_there_are_not_enough_others(
    size: int, count: int, seed: int, data: st.DataObject
) -> None:
    known = brokers(size, [None, "a", "b"])
    down = data.draw(st.sets(st.integers(1, size), max_size=size - 1))
    known = [replace(one, is_fenced=one.broker_id in down) for one in known]
    factor = data.draw(st.integers(1, size))
    placed = place(known, count=count, replication_factor=factor, seed=seed)
    up = size - len(down)
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert replicas[0] not in down
        assert len(set(replicas) & down) == max(0, factor - up)
