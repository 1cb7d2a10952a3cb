"""Producers in transactions while nodes are killed at random: no transaction is ever torn."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from tests.integration.clusters import RunningCluster
from tests.integration.nodes import wait_until
from tests.integration.transactions.ledger_clients import DEADLINE_S, producer_of, read

pytestmark = [pytest.mark.integration, pytest.mark.transactions]

PARTITIONS = 6
TIMEOUT_MS = 15_000
NewTopic = Callable[[int], str]


@pytest.fixture
def healed(cluster: RunningCluster) -> Iterator[RunningCluster]:
    yield cluster
    for node in cluster.nodes.values():
        if not node.is_running:
            node.restart()


class Writer:
    """One transaction after another, and what became of each as far as it was told."""

    def __init__(self, bootstrap: str, topic: str, name: str, seed: int) -> None:
        self._bootstrap, self._topic, self._name = bootstrap, topic, name
        self._dice = random.Random(seed)
        # True: committed, False: aborted, None: nobody said.
        self.told: dict[str, bool | None] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(2 * DEADLINE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                timeout = {"transaction_timeout_ms": TIMEOUT_MS}
                producer = producer_of(self._bootstrap, self._name, **timeout)
                while not self._ends.is_set():
                    self._write(producer)
            except KafkaException:
                # Fenced by its own time-out, or given up: it begins anew.
                continue

    def _write(self, producer: Producer) -> None:
        word = f"{self._name}-{len(self.told)}"
        self.told[word] = None
        producer.begin_transaction()
        for number in range(self._dice.randint(1, 3)):
            for index in range(PARTITIONS):
                producer.produce(self._topic, f"{word}/{number}".encode(), partition=index)
            producer.poll(0)
        is_commit = self._dice.random() < 0.7
        end = time.monotonic() + DEADLINE_S
        while True:
            step = producer.commit_transaction if is_commit else producer.abort_transaction
            try:
                step(DEADLINE_S)
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort():
                    is_commit = False
                elif not error.retriable() or time.monotonic() > end:
                    raise
            else:
                self.told[word] = is_commit
                return


def wrong_with(told: dict[str, bool | None], found: dict[int, list[str]]) -> list[str]:
    """Return what must not be: torn, lost, aborted and read, twice."""
    problems = []
    for word, is_commit in told.items():
        seen = [sum(one.startswith(f"{word}/") for one in found[index]) for index in found]
        if len(set(seen)) != 1:
            problems.append(f"{word} is torn: {seen}")
        if is_commit is True and not all(seen):
            problems.append(f"{word} was committed, and is lost: {seen}")
        if is_commit is False and any(seen):
            problems.append(f"{word} was aborted, and is read: {seen}")
    problems += [f"twice in {one}" for one in found if len(found[one]) != len(set(found[one]))]
    return problems


@pytest.mark.parametrize("seed", [1])
def test_no_transaction_is_torn_whoever_is_killed(
    healed: RunningCluster, new_topic: NewTopic, seed: int
) -> None:
    topic, dice = new_topic(PARTITIONS), random.Random(seed)
    writers = [Writer(healed.bootstrap, topic, f"w{one}", seed * 100 + one) for one in range(3)]
    for writer in writers:
        writer.start()
    for _ in range(5):
        node = healed[dice.choice(list(healed.nodes))]
        node.live_for(dice.uniform(1, 4))
        node.kill()
        node.restart()
    for writer in writers:
        writer.stop()
    told = {word: how for writer in writers for word, how in writer.told.items()}
    everything = len(read(healed.bootstrap, topic, "read_uncommitted")[0])
    assert sum(how is not None for how in told.values()) > 20
    last = read(healed.bootstrap, topic)

    def is_settled() -> bool:
        # What was left open is aborted when its time is up.
        last.update(read(healed.bootstrap, topic))
        return not wrong_with(told, last)

    wait_until(is_settled, DEADLINE_S, f"all or nothing of {len(told)} transactions is seen")
    assert 0 < len(last[0]) <= everything
