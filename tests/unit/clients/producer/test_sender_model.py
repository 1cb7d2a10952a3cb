"""The sender beside a naive broker on a bad network: order, no doubles, no lie about an outcome."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.producer.accumulator import Accumulator, AccumulatorSettings
from ottla.clients.producer.batch import Report, State
from ottla.clients.producer.sender import Sender, SenderSettings
from tests.unit.clients.producer.broker_model import POISON, Network

PARTITIONS = 3
STEPS = 300
# Long after everything has been given up.
FOR_EVER_MS = 1e9


class Run:
    """Records by dice into the real cores, the model broker at the other end."""

    def __init__(self, seed: int, *, idempotent: bool, in_flight: int, trouble: float) -> None:
        self.dice = Random(seed)
        self.accumulator = Accumulator(
            AccumulatorSettings(batch_size=200, batch_num_messages=5, linger_ms=3),
            self.dice.randrange,
        )
        self.accumulator.know("t", PARTITIONS, range(PARTITIONS), 0)
        self.sender = Sender(
            SenderSettings(
                is_idempotent=idempotent,
                max_in_flight=in_flight,
                delivery_timeout_ms=self.dice.choice([60, 300, 100_000]),
                retries=self.dice.choice([2, 1 << 30]),
                retry_backoff_ms=2,
                retry_backoff_max_ms=8,
            ),
            self.accumulator,
        )
        self.sender.identity = (7, 0)
        self.network = Network(
            self.sender, self.dice, trouble=trouble, count_max=self.dice.choice([3, 100])
        )
        self.now_ms = 0.0
        self.sent: list[tuple[int, bytes]] = []
        self.told: dict[int, list[Report]] = {}

    def go(self) -> None:
        for _ in range(STEPS):
            self.now_ms += self.dice.random() * 2
            if self.dice.random() < 0.5:
                self._send()
            self._turn()
        self.network.trouble = 0
        self.sender.is_flushing = True
        # A model of time that passes while nothing breaks: everything ends.
        while self.accumulator.live or self.network.pipe:
            self.now_ms += 5
            self._turn()
            assert self.now_ms < FOR_EVER_MS, "everything ends"

    def _send(self) -> None:
        number = len(self.sent)
        partition = self.dice.randrange(PARTITIONS)
        value = POISON if self.dice.random() < 0.01 else b"%d" % number
        self.sent.append((partition, value))
        told = self.told.setdefault(number, [])
        self.accumulator.append("t", None, value, partition, 1, (), told.append, self._clock)

    def _clock(self) -> float:
        return self.now_ms

    def _turn(self) -> None:
        for dispatch in self.sender.collect(self.now_ms, lambda *_: 0):
            assert self.sender.in_flight(0) <= self.sender.settings.max_in_flight
            parts = [batch.partition for batch in dispatch.batches]
            assert len(parts) == len(set(parts)), "one batch of a partition in a request"
            self.network.leave(dispatch)
        self.network.step(self.now_ms)
        for batch in self.accumulator.take_ended():
            for index, callback in batch.callbacks or ():
                callback(batch.report(index))

    # --- what must hold ---

    def check_told(self) -> None:
        assert all(len(told) == 1 for told in self.told.values()), "told once"
        assert self.accumulator.used_bytes == 0

    def check_outcomes(self, *, at_most: int | None) -> None:
        for number, (partition, value) in enumerate(self.sent):
            if value == POISON:
                assert self.told[number][0].state is not State.OK
                continue
            report = self.told[number][0]
            values = self.network.logs[partition].values if partition in self.network.logs else []
            times = values.count(value)
            if report.state is State.OK:
                assert times >= 1
                assert report.offset is None or values[report.offset] == value
            if report.state is State.FAILED:
                assert times == 0, "what is called failed is not there"
            assert at_most is None or times <= at_most

    def check_order(self) -> None:
        for partition, log in self.network.logs.items():
            expected = [
                value
                for at, value in self.sent
                if at == partition and value in set(log.values) and value != POISON
            ]
            assert log.values == expected, "the order of sending"


SEEDS = st.integers(0, 1 << 32)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 5), st.sampled_from([0.0, 0.05, 0.2, 0.5]))
def test_with_idempotence_nothing_is_double_lost_disordered_or_told_wrongly(
    seed: int, in_flight: int, trouble: float
) -> None:
    run = Run(seed, idempotent=True, in_flight=in_flight, trouble=trouble)
    run.go()
    run.check_told()
    run.check_outcomes(at_most=1)
    run.check_order()


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(1, 8), st.sampled_from([0.05, 0.3]))
def test_without_idempotence_outcomes_are_told_once_and_never_wrongly(
    seed: int, in_flight: int, trouble: float
) -> None:
    run = Run(seed, idempotent=False, in_flight=in_flight, trouble=trouble)
    run.go()
    run.check_told()
    run.check_outcomes(at_most=None)


@pytest.mark.parametrize("idempotent", [True, False])
def test_without_trouble_everything_is_written_once_in_order(idempotent: bool) -> None:
    run = Run(4, idempotent=idempotent, in_flight=5, trouble=0.0)
    run.go()
    run.check_told()
    run.check_order()
    states = Counter(
        told[0].state
        for (_, value), told in zip(run.sent, run.told.values(), strict=True)
        if value != POISON
    )
    assert set(states) <= {State.OK, State.FAILED}
