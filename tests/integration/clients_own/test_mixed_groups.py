"""Our consumer and those of others in one group: one reader a partition, and nothing is missed."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import pytest

from ottla.clients.producer.client import Producer
from tests.integration.clients_own.conftest import NamedTopic
from tests.integration.clients_own.consuming import write
from tests.integration.clients_own.members import MEMBERS, Member
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration
PARTITIONS = 8
RECORDS = 400
DEADLINE_S = 60.0


def _has_share(member: Member) -> bool:
    return bool(member.held)


@pytest.mark.parametrize(
    ("strategy", "others"),
    [
        ("range", ("confluent-kafka", "kafka-python", "aiokafka")),
        ("roundrobin", ("confluent-kafka", "kafka-python", "aiokafka")),
        ("cooperative-sticky", ("confluent-kafka",)),
        ("cooperative-sticky", ("kafka-python",)),
    ],
    ids=["range", "roundrobin", "cooperative-confluent", "cooperative-kafka-python"],
)
# Whoever comes first leads: once we share out for the others, once they share out for us.
@pytest.mark.parametrize("we_lead", [True, False], ids=["we-lead", "they-lead"])
def test_a_mixed_group_shares_and_misses_nothing(
    groups: str,
    producer: Producer,
    new_topic: NamedTopic,
    name: str,
    strategy: str,
    others: tuple[str, ...],
    we_lead: bool,
) -> None:
    topic = new_topic(PARTITIONS)
    order = ("ottla", *others) if we_lead else (*others, "ottla")
    with ExitStack() as stack:
        members = []
        for kind in order:
            member = MEMBERS[kind](groups, name, topic, strategy)
            member.start()
            stack.callback(member.stop)
            members.append(member)
            wait_until(partial(_has_share, member), DEADLINE_S, f"{kind} has a share")

        def is_shared() -> bool:
            held = [partition for one in members for partition in one.held]
            return len(held) == len(set(held)) == PARTITIONS and all(one.held for one in members)

        wait_until(is_shared, DEADLINE_S, "every partition has one reader")
        write(producer, topic, RECORDS, partitions=PARTITIONS)

        def seen() -> set[int]:
            return set().union(*(one.seen for one in members))

        wait_until(lambda: len(seen()) == RECORDS, DEADLINE_S, "every record was read")
        gone = members.pop()
        gone.stop()
        write(producer, topic, RECORDS, partitions=PARTITIONS, start=RECORDS)
        everything = set(range(2 * RECORDS))
        wait_until(
            lambda: seen() | set(gone.seen) == everything, DEADLINE_S, "without one, all the same"
        )
        wait_until(is_shared, DEADLINE_S, "every partition has one reader again")
