"""kill -9 in the middle of transactions: of the coordinator, of leaders, of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException

from ottla.proto.kafka import apis
from tests.integration.clusters import RunningCluster
from tests.integration.nodes import wait_until
from tests.integration.transactions.ledger_clients import (
    DEADLINE_S,
    ask,
    coordinator_of,
    leader_of,
    new_id,
    patiently,
    producer_of,
    read,
    words,
    write,
)

pytestmark = [pytest.mark.integration, pytest.mark.transactions]

NewTopic = Callable[[int], str]


@pytest.fixture
def healed(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """Start every node again that a test has killed."""
    yield cluster
    for node in cluster.nodes.values():
        if not node.is_running:
            node.restart()
    cluster.wait_until_ready()


def shown(cluster: RunningCluster, topic: str, expected: set[str], partitions: int) -> None:
    wait_until(
        lambda: words(read(cluster.bootstrap, topic)) == [expected] * partitions,
        DEADLINE_S,
        f"every partition of {topic} shows {expected}",
    )


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_coordinator_that_is_killed_in_the_middle_is_replaced(
    healed: RunningCluster, new_topic: NewTopic, is_commit: bool
) -> None:
    topic, name = new_topic(6), new_id()
    producer = producer_of(healed.bootstrap, name)
    producer.begin_transaction()
    write(producer, topic, 6, "before")
    healed[coordinator_of(healed, name)].kill()
    write(producer, topic, 6, "after")
    patiently(producer.commit_transaction if is_commit else producer.abort_transaction, DEADLINE_S)
    shown(healed, topic, {"before", "after"} if is_commit else set(), 6)
    producer.begin_transaction()
    write(producer, topic, 6, "next")
    patiently(producer.commit_transaction, DEADLINE_S)
    shown(healed, topic, {"before", "after", "next"} if is_commit else {"next"}, 6)


def test_a_leader_that_is_killed_in_the_middle_loses_nothing_of_a_transaction(
    healed: RunningCluster, new_topic: NewTopic
) -> None:
    topic, name = new_topic(6), new_id()
    producer = producer_of(healed.bootstrap, name)
    coordinator = coordinator_of(healed, name)
    leaders = {leader_of(healed, topic, index) for index in range(6)}
    producer.begin_transaction()
    write(producer, topic, 6, "before")
    healed[next(one for one in leaders if one != coordinator)].kill()
    write(producer, topic, 6, "after")
    patiently(producer.commit_transaction, DEADLINE_S)
    shown(healed, topic, {"before", "after"}, 6)


def test_what_was_decided_is_completed_by_the_next_coordinator(
    healed: RunningCluster, new_topic: NewTopic
) -> None:
    topic, name = new_topic(6), new_id()
    producer = producer_of(healed.bootstrap, name)
    coordinator = coordinator_of(healed, name)
    producer.begin_transaction()
    write(producer, topic, 6, "decided")
    # The markers for this one's partitions wait for another leader, and so does the completion.
    others = [one for one in healed.nodes if one != coordinator]
    healed[others[0]].pause()
    try:
        producer.commit_transaction(10)
        is_told = True
    except KafkaException:
        # Nobody knows, so it asks again.
        is_told = False
    healed[coordinator].kill()
    healed[others[0]].resume()
    if not is_told:
        patiently(producer.commit_transaction, DEADLINE_S)
    shown(healed, topic, {"decided"}, 6)

    def is_complete() -> bool:
        node = healed[coordinator_of(healed, name)]
        answer = ask(node.bootstrap, apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name])
        return bool(answer.transaction_states[0].transaction_state == "CompleteCommit")

    wait_until(is_complete, DEADLINE_S, "the transaction is complete")


def test_a_cluster_that_is_killed_as_a_whole_goes_on_where_it_was(
    healed: RunningCluster, new_topic: NewTopic
) -> None:
    topic, name = new_topic(6), new_id()
    producer = producer_of(healed.bootstrap, name)
    producer.begin_transaction()
    write(producer, topic, 6, "first")
    producer.commit_transaction(DEADLINE_S)
    producer.begin_transaction()
    write(producer, topic, 6, "open")
    for node in healed.nodes.values():
        node.kill()
    for node in healed.nodes.values():
        node.start()
    healed.wait_until_ready()
    patiently(producer.commit_transaction, DEADLINE_S)
    shown(healed, topic, {"first", "open"}, 6)
