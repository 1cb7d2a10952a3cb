"""Who in a group reads what: range and round robin, and the table of all assignors.

A deal of cards: *range* deals each suit apart, *round robin* all suits as one pack, *sticky* lets
everybody keep what they hold as long as hands stay even (`sticky.py`).

A1  every partition of a topic goes to exactly one member that subscribes to the topic, or to nobody
    if there is none
A2  the same arguments give the same result, whatever the order of the mapping
A3  members are taken in Kafka's order: static ones first by their instance ids, then the others by
    their member ids

Not here: the bytes of subscriptions (`protocol.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from ottla.clients.consumer.protocol import Subscription, encode_generation, encode_sticky_data
from ottla.clients.consumer.sticky import assign_cooperative, assign_sticky, members_in_order
from ottla.proto.errors import ConfigError
from ottla.proto.ids import TopicPartition

# Member id → its partitions. Every member is in it.
Assignments = dict[str, list[TopicPartition]]
Assign = Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignments]
UserData = Callable[[Sequence[TopicPartition], int], bytes | None]


@dataclass(frozen=True, slots=True)
class Assignor:
    """One strategy, under the name that all clients know."""

    name: str
    # From subscriptions by member id and partition counts by topic.
    assign: Assign
    # What a member sends along, from what it owns and the generation it got that in.
    user_data: UserData
    # Partitions that stay are kept through a rebalance (KIP-429).
    cooperative: bool


def assign_range(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Assignments:
    """Give each member a run of each topic; where it does not divide, the first get one more."""
    result: Assignments = {member: [] for member in members}
    in_order = members_in_order(members)
    for topic in sorted(counts):
        readers = [member for member in in_order if topic in members[member].topics]
        if not readers:
            continue
        each, more = divmod(counts[topic], len(readers))
        start = 0
        for place, member in enumerate(readers):
            end = start + each + (place < more)
            result[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return result


def assign_round_robin(
    members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> Assignments:
    """Deal all partitions of all topics in turn, passing over those who do not subscribe."""
    result: Assignments = {member: [] for member in members}
    wanted = {topic for member in members.values() for topic in member.topics}
    turn = cycle(members_in_order(members))
    for topic in sorted(wanted & set(counts)):
        for number in range(counts[topic]):
            # Somebody subscribes to it, so this ends.
            member = next(one for one in turn if topic in members[one].topics)
            result[member].append(TopicPartition(topic, number))
    return result


def _nothing(_owned: Sequence[TopicPartition], _generation: int) -> None:
    return None


def _generation_only(_owned: Sequence[TopicPartition], generation: int) -> bytes:
    return encode_generation(generation)


ASSIGNORS: Final[dict[str, Assignor]] = {
    row.name: row
    for row in (
        Assignor("range", assign_range, _nothing, cooperative=False),
        Assignor("roundrobin", assign_round_robin, _nothing, cooperative=False),
        Assignor("sticky", assign_sticky, encode_sticky_data, cooperative=False),
        Assignor("cooperative-sticky", assign_cooperative, _generation_only, cooperative=True),
    )
}
# Java's class names, as people copy them from their settings.
_ALIASES: Final = {
    "org.apache.kafka.clients.consumer.rangeassignor": "range",
    "org.apache.kafka.clients.consumer.roundrobinassignor": "roundrobin",
    "org.apache.kafka.clients.consumer.stickyassignor": "sticky",
    "org.apache.kafka.clients.consumer.cooperativestickyassignor": "cooperative-sticky",
    "round_robin": "roundrobin",
    "round-robin": "roundrobin",
}


def assignors_of(names: Sequence[str]) -> tuple[Assignor, ...]:
    """Return the rows of these names, in their order, or raise `ConfigError`."""
    found = []
    for name in names:
        wanted = _ALIASES.get(name.strip().lower(), name.strip())
        if wanted not in ASSIGNORS:
            raise ConfigError(
                f"partition.assignment.strategy: there is no assignor {name!r}; choose among "
                f"{', '.join(ASSIGNORS)}."
            )
        found.append(ASSIGNORS[wanted])
    if not found:
        raise ConfigError("partition.assignment.strategy: name at least one assignor.")
    return tuple(found)
