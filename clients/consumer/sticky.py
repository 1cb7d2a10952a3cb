"""Sticky assignment: hands as even as they can be, and as few cards as possible change them.

Everybody keeps what they hold, what is free goes to whoever has least, and then one partition at a
time moves from a full hand to an emptier one for as long as that makes the two more even.

S1  A1 to A3 of `assignors.py`
S2  balance: nobody could take a partition from somebody who has two more
S3  nobody loses a partition unless S2 asks for it, or its reader left or unsubscribed
S4  of two members that claim a partition the one of the later generation is believed; of the same
    generation, neither
S5  cooperative: a partition that somebody still owns is given to nobody else in the same round. Its
    owner is told to let go first, and the next round gives it away (KIP-429)
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.clients.consumer.protocol import Subscription, decode_sticky_data, generation_of
from ottla.proto.ids import TopicPartition

Hands = dict[str, list[TopicPartition]]


def assign_sticky(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Hands:
    """The eager one: what members had stands in their user data."""
    claims = {}
    for member, subscription in members.items():
        data = decode_sticky_data(subscription.user_data)
        if data is not None:
            claims[member] = (data.generation, data.partitions)
    return deal(members, counts, held_by(claims))


def assign_cooperative(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Hands:
    """The one that moves a partition in two rounds."""
    claims = {}
    for member, subscription in members.items():
        generation = subscription.generation
        if generation < 0:
            generation = generation_of(subscription.user_data)
        claims[member] = (generation, subscription.owned)
    hands = deal(members, counts, held_by(claims))
    # Whoever says that he has it may be reading it now, believed or not.
    readers: dict[TopicPartition, set[str]] = {}
    for member, subscription in members.items():
        for one in subscription.owned:
            readers.setdefault(one, set()).add(member)
    return {
        member: [one for one in hand if member in readers.get(one, {member})]
        for member, hand in hands.items()
    }


def held_by(
    claims: Mapping[str, tuple[int, tuple[TopicPartition, ...]]],
) -> dict[TopicPartition, str]:
    """Return who is believed to hold what (S4)."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in sorted(claims):
        generation, partitions = claims[member]
        for one in partitions:
            before = best.get(one)
            if before is None or generation > before[0]:
                best[one] = (generation, member)
            elif generation == before[0] and before[1] != member:
                best[one] = (generation, None)
    return {one: member for one, (_, member) in best.items() if member is not None}


def deal(
    members: Mapping[str, Subscription],
    counts: Mapping[str, int],
    held: Mapping[TopicPartition, str],
) -> Hands:
    """Return balanced hands in which as much as possible stays where it is."""
    order = members_in_order(members)
    hands: Hands = {member: [] for member in order}
    readers = {
        topic: tuple(member for member in order if topic in members[member].topics)
        for topic in sorted(counts)
    }
    free = []
    for topic, able in readers.items():
        for number in range(counts[topic]):
            one = TopicPartition(topic, number)
            holder = held.get(one)
            if holder in able:
                hands[holder].append(one)
            elif able:
                free.append(one)
    # Those with the fewest possible readers first, so that the others can even it out.
    for one in sorted(free, key=lambda one: len(readers[one.topic])):
        least = min(readers[one.topic], key=lambda member: len(hands[member]))
        hands[least].append(one)
    _even_out(hands, readers)
    return {member: sorted(hands[member]) for member in members}


def _even_out(hands: Hands, readers: Mapping[str, tuple[str, ...]]) -> None:
    """Move partitions until S2 holds. Each move makes the sum of squares smaller, so it ends."""
    moved = True
    while moved:
        moved = False
        for giver in sorted(hands, key=lambda member: -len(hands[member])):
            while _give_one(giver, hands, readers):
                moved = True


def _give_one(giver: str, hands: Hands, readers: Mapping[str, tuple[str, ...]]) -> bool:
    """Let one partition go to the emptiest hand that may take it, if that is two smaller."""
    have = len(hands[giver])
    best: tuple[int, int] | None = None
    taker = ""
    seen: set[str] = set()
    # The last come goes first: what was held longest stays.
    for place in range(have - 1, -1, -1):
        topic = hands[giver][place].topic
        if topic in seen:
            continue
        seen.add(topic)
        least = min(readers[topic], key=lambda member: len(hands[member]))
        if best is None or len(hands[least]) < best[0]:
            best, taker = (len(hands[least]), place), least
    if best is None or best[0] + 1 >= have:
        return False
    hands[taker].append(hands[giver].pop(best[1]))
    return True


def members_in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Return them in Kafka's order (A3)."""

    def key(member: str) -> tuple[bool, str]:
        instance_id = members[member].instance_id
        return instance_id is None, member if instance_id is None else instance_id

    return sorted(members, key=key)
