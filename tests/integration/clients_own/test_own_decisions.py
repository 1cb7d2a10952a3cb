"""The driver of Spark's sink dies after any step of its commit, on real brokers."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.clients.admin.blocking import Admin
from ottla.clients.producer.client import Producer
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.spark.decider import Decider
from ottla.clients.spark.decisions import (
    Claim,
    Program,
    StaleRoundError,
    WriteBook,
    commit_batch,
    task_id,
)
from ottla.clients.spark.options import SinkOptions, read_sink_options
from tests.integration.clients_own.transacting import Cluster, new_name, require_read

pytestmark = [pytest.mark.integration, pytest.mark.transactions]
# Take over, read, write, two ends, write, wait, list; then one attempt that nobody wanted is
# aborted.
STEPS = 9
CLAIM = Claim("q", is_stream=True)


class Sink:
    """A sink that writes exactly once, without Spark around it."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.prefix = new_name()
        self.topic = topic
        self.options: SinkOptions = read_sink_options(
            {
                "kafka.bootstrap.servers": cluster.bootstrap,
                "topic": topic,
                "exactlyOnce": "true",
                "transactionalIdPrefix": self.prefix,
            }
        )

    def begin(self) -> int:
        with Decider(self.options) as decider:
            return decider.begin(CLAIM)

    def prepare(self, number: int, attempt: str, value: bytes) -> PreparedTransaction:
        config = {
            **self.options.client,
            "transactional.id": task_id(self.prefix, number, attempt),
            "transaction.two.phase.commit.enable": "true",
        }
        with Producer(config) as producer:
            producer.init_transactions()
            producer.begin()
            producer.send(self.topic, value, partition=0)
            prepared = producer.prepare()
        assert prepared is not None
        return prepared

    def write(self, number: int, batch: int) -> list[PreparedTransaction]:
        """Do what the tasks of a batch do; a third attempt is left for nobody."""
        self.prepare(number, f"{batch}-late", b"unwanted")
        return [self.prepare(number, f"{batch}-{one}", b"%d.%d" % (batch, one)) for one in range(2)]

    def commit(self, number: int, batch: int, prepared: list[PreparedTransaction]) -> bool:
        with Decider(self.options) as decider:
            return decider.commit(number, CLAIM, batch, prepared)


def _die_after(decider: Decider, program: Program, steps: int) -> tuple[int, Any]:
    """Do so many steps of a program; return how often the book was written, and the last answer."""
    answer: Any = None
    written = 0
    for _ in range(steps):
        effect = program.send(answer)
        answer = decider.perform(effect)
        written += isinstance(effect, WriteBook)
    return written, answer


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_driver_that_dies_after_any_step_leaves_every_row_once(
    transactional: Cluster, topic: str, steps: int
) -> None:
    sink = Sink(transactional, topic)
    number = sink.begin()
    prepared = sink.write(number, 0)
    with Decider(sink.options) as decider:
        program = commit_batch(sink.prefix, number, CLAIM, 0, prepared)
        written, _ = _die_after(decider, program, steps)
    # The next driver does the batch again, because Spark knows nothing of a commit.
    number = sink.begin()
    assert sink.commit(number, 0, sink.write(number, 0)) is (written == 0)
    number = sink.begin()
    assert sink.commit(number, 1, sink.write(number, 1)) is True
    require_read(transactional, topic, [b"0.0", b"0.1", b"1.0", b"1.1"])


def test_a_driver_that_comes_back_from_the_dead_can_do_nothing(
    transactional: Cluster, topic: str, txn_admin: Admin
) -> None:
    sink = Sink(transactional, topic)
    first = sink.begin()
    old = sink.write(first, 0)
    with Decider(sink.options) as decider:
        program = commit_batch(sink.prefix, first, CLAIM, 0, old)
        _, book = _die_after(decider, program, 2)
        decision = program.send(book)
        assert isinstance(decision, WriteBook)
        second = sink.begin()
        new = sink.write(second, 0)
        with pytest.raises(StaleRoundError, match="another driver has taken over"):
            decider.perform(decision)
    with pytest.raises(StaleRoundError, match=f"this is round {first}"):
        sink.commit(first, 0, old)
    assert sink.commit(second, 0, new) is True
    require_read(transactional, topic, [b"0.0", b"0.1"])
    left = [one.transactional_id for one in txn_admin.list_transactions(states=["Ongoing"])]
    assert [name for name in left if name.startswith(sink.prefix)] == []
