"""Which brokers hold the partitions of a topic.

Chosen from a seed that came with the command, so every member of a quorum chooses alike and a
command stays small however many partitions it makes.

Partitions are dealt out in rounds of as many as there are brokers, each round in a new order, so
that the partitions that one broker leads have their followers all over the cluster.

A broker that is not up gets a partition only when there are not enough others, and never as its
preferred leader: the partition waits for it, as it would if the broker had gone down since.

Not here: whether a replication factor can be reached (`topics.py`).

P1  the replicas of a partition are distinct brokers
P2  of the partitions placed at once, no broker leads two more than another
P3  without racks, no broker holds two replicas more than another, of those placed at once
P4  no two replicas of a partition are in one rack while another rack has none of them
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from math import gcd
from typing import Final

from ottla.controller.image import BrokerInfo
from ottla.proto.errors import ensure
from ottla.proto.ids import BrokerId

_MASK: Final = 2**64 - 1
_STEP: Final = 0x9E3779B97F4A7C15
Replicas = tuple[BrokerId, ...]


def place(
    brokers: Iterable[BrokerInfo],
    *,
    count: int,
    replication_factor: int,
    seed: int,
    leading: Mapping[BrokerId, int] | None = None,
) -> list[Replicas]:
    """Return the replicas of `count` partitions, the leader first.

    `leading` says how many partitions of the topic each broker leads already: who leads few comes
    first, so that a topic that grows one by one stays even.
    """
    everyone = sorted(brokers, key=lambda broker: broker.broker_id)
    known = [broker for broker in everyone if broker.is_active]
    ensure(
        1 <= replication_factor <= len(everyone), "there are brokers enough", known=len(everyone)
    )
    ensure(known, "somebody can lead")
    if replication_factor > len(known):
        rest = [broker for broker in everyone if not broker.is_active]
        upfront = place(
            known, count=count, replication_factor=len(known), seed=seed, leading=leading
        )
        return _with_absent(upfront, known, rest, replication_factor - len(known))
    if len(known) == 1:
        # Thousands of partitions on one node are the common case, and there is nothing to choose.
        return [(known[0].broker_id,)] * count
    has_racks = len({broker.rack for broker in known}) > 1
    led = leading or {}
    dice = _Dice(seed)
    placed: list[Replicas] = []
    while len(placed) < count:
        ring = sorted(_mixed(known, dice), key=lambda broker: led.get(broker.broker_id, 0))
        deal = _deal_by_rack if has_racks else _deal
        placed += deal(ring, min(count - len(placed), len(ring)), replication_factor)
    return placed


def _with_absent(
    placed: Sequence[Replicas],
    present: Sequence[BrokerInfo],
    absent: Sequence[BrokerInfo],
    count: int,
) -> list[Replicas]:
    """Return the replicas with `count` more each on brokers that are not up, new racks first."""
    racks = {broker.rack for broker in present}

    def more(turn: int) -> Replicas:
        start = turn % len(absent)
        ring = sorted((*absent[start:], *absent[:start]), key=lambda broker: broker.rack in racks)
        return tuple(broker.broker_id for broker in ring[:count])

    return [replicas + more(turn) for turn, replicas in enumerate(placed)]


class _Dice:
    """Numbers that look random and are the same for the same seed, on every machine for ever."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, bound: int) -> int:
        # SplitMix64: a counter, and a mixer that spreads each of its bits over all of the result.
        self._state = (self._state + _STEP) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return (mixed ^ (mixed >> 31)) % bound


def _mixed(known: Sequence[BrokerInfo], dice: _Dice) -> list[BrokerInfo]:
    """Return the brokers in a new order, in which neighbours are of different racks if possible."""
    order = list(known)
    for last in range(len(order) - 1, 0, -1):
        other = dice.below(last + 1)
        order[last], order[other] = order[other], order[last]
    by_rack: dict[str | None, list[BrokerInfo]] = {}
    for broker in order:
        by_rack.setdefault(broker.rack, []).append(broker)
    turns = zip_longest(*by_rack.values())
    return [broker for turn in turns for broker in turn if broker is not None]


def _deal(ring: Sequence[BrokerInfo], count: int, replication_factor: int) -> list[Replicas]:
    """Return a round: all the leaders are dealt out first, then all the first followers, and so on.

    So the cards go round the table without a gap (P3). After `lap` of them a partition would meet
    a broker that it has already; from there on everything is moved by one (P1).
    """
    size = len(ring)
    lap = size * count // gcd(size, count)

    def broker_of(card: int) -> BrokerId:
        return ring[(card + card // lap) % size].broker_id

    return [
        tuple(broker_of(turn * count + partition) for turn in range(replication_factor))
        for partition in range(count)
    ]


def _deal_by_rack(
    ring: Sequence[BrokerInfo], count: int, replication_factor: int
) -> list[Replicas]:
    """Return a round: each partition takes the next brokers whose racks it has not yet (P4)."""
    return [
        _next_of_new_racks([*ring[leader:], *ring[:leader]], replication_factor)
        for leader in range(count)
    ]


def _next_of_new_racks(ring: list[BrokerInfo], replication_factor: int) -> Replicas:
    chosen: list[BrokerId] = []
    while len(chosen) < replication_factor:
        seen: set[str | None] = set()
        passed_over: list[BrokerInfo] = []
        for broker in ring:
            if broker.rack in seen:
                passed_over.append(broker)
            else:
                seen.add(broker.rack)
                chosen.append(broker.broker_id)
        ring = passed_over
    return tuple(chosen[:replication_factor])
