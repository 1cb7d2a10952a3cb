"""Transactions beside a naive cluster on a bad network: all or nothing, and no lie about which."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionError,
    TransactionUnknownError,
)
from ottla.clients.producer.accumulator import Accumulator, AccumulatorSettings
from ottla.clients.producer.sender import Answer, Dispatch, Sender, SenderSettings
from ottla.clients.producer.transactions import Phase, Transactions
from ottla.clients.producer.verdicts import Step, Verdict
from ottla.proto.errors import ErrorCode
from tests.unit.clients.producer.txn_broker_model import Cluster

E = ErrorCode
PARTITIONS = 3
TRANSACTIONS = 12
# How long a program waits for an end before it asks again.
PATIENCE = 6
FOR_EVER = 400


class Run:
    """A program with transactions by dice: the real cores, the model cluster at the other end."""

    def __init__(self, seed: int, *, second: bool, trouble: float) -> None:
        self.dice = Random(seed)
        self.trouble = trouble
        self.cluster = Cluster(PARTITIONS, second=second)
        self.second = second
        self.now_ms = 0.0
        self.written = dict[int, list[list[bytes]]]()
        self.committed, self.aborted, self.unknown = set[int](), set[int](), set[int]()
        self.new_producer()

    def new_producer(self) -> None:
        self.core = Transactions("billing")
        self.accumulator = Accumulator(
            AccumulatorSettings(batch_size=200, batch_num_messages=2, linger_ms=0),
            self.dice.randrange,
        )
        self.accumulator.know("t", PARTITIONS, range(PARTITIONS), self.now_ms)
        self.sender = Sender(
            SenderSettings(
                delivery_timeout_ms=self.dice.choice([100, 100_000]),
                retry_backoff_ms=2,
                retry_backoff_max_ms=8,
            ),
            self.accumulator,
            self.core,
        )
        self.sender.is_flushing = True
        self.identify(-1)

    def go(self) -> None:
        for number in range(TRANSACTIONS):
            if self.core.phase is Phase.FATAL or self.dice.random() < 0.05:
                self.new_producer()
            self.transaction(number)
        self.trouble = 0
        self.settle()

    def settle(self) -> None:
        """Let the next producer end what is open, as it would be in life."""
        self.new_producer()
        self.cluster.tick()

    # --- the network ---

    def is_lost(self) -> bool:
        return self.dice.random() < self.trouble

    def pass_time(self) -> None:
        self.now_ms += self.dice.choice([1, 5, 20])
        if self.dice.random() < 0.5:
            self.cluster.tick()
        if self.dice.random() < self.trouble / 20:
            self.cluster.time_out()
        if self.dice.random() < self.trouble / 20:
            # Another producer of this name takes over, and does nothing more.
            self.cluster.init(-1)

    # --- what the shell does ---

    def identify(self, epoch: int) -> None:
        for _ in range(FOR_EVER):
            self.pass_time()
            if self.is_lost():
                continue
            code, given_epoch = self.cluster.init(epoch)
            if self.is_lost():
                continue
            verdict = self.core.answered(Step.INIT, code)
            if verdict is Verdict.DONE:
                self.core.initialised(7, given_epoch, is_second_dialect=self.second)
                return
            if verdict is not Verdict.AGAIN:
                return
        raise AssertionError("no identity")

    def flush(self) -> None:
        for _ in range(FOR_EVER):
            if not self.accumulator.live:
                return
            self.pass_time()
            for dispatch in self.sender.collect(self.now_ms, lambda *_: 1):
                self.exchange(dispatch)
            wanted = self.core.adding()
            if wanted and not self.is_lost():
                code = self.cluster.add(self.core.epoch, [one.partition for one in wanted])
                if not self.is_lost():
                    self.core.added(dict.fromkeys(wanted, code))
        raise AssertionError("records without an outcome")

    def exchange(self, dispatch: Dispatch) -> None:
        is_sent, is_answered = not self.is_lost(), not self.is_lost()
        answers = []
        for batch in dispatch.batches:
            _, epoch, sequence = self.sender.identity_of(batch)
            values = [value or b"" for _, _, value, _ in batch.records]
            if is_sent:
                code = self.cluster.produce(batch.partition, epoch, sequence, values)
                answers.append((batch, Answer(code)))
        if is_sent and is_answered:
            self.sender.answered(1, answers, self.now_ms)
        else:
            self.sender.lost(1, dispatch.batches, "lost", self.now_ms, sent=is_sent)

    def end(self, *, commit: bool) -> None:
        self.core.begin_end(commit=commit)
        self.flush()
        if self.core.phase is not (Phase.COMMITTING if commit else Phase.ABORTING):
            self.core.raise_error()
        if not self.core.has_begun:
            if not self.core.needs_epoch:
                self.core.ended()
        else:
            self.ask_end(commit=commit)
        if self.core.needs_epoch:
            self.identify(self.core.epoch)

    def ask_end(self, *, commit: bool) -> None:
        self.core.end_asked()
        for _ in range(PATIENCE):
            self.pass_time()
            if self.is_lost():
                # Nobody can tell this from an answer that was lost.
                self.core.end_lost()
                continue
            code, epoch = self.cluster.end(self.core.epoch, commit=commit)
            if self.is_lost():
                self.core.end_lost()
                continue
            given = (7, epoch) if self.second else (-1, -1)
            if self.core.end_answered(code, *given) is Verdict.DONE:
                return
        self.core.end_given_up()
        raise self.core.end_unknown(1.0, "patience")

    # --- the program ---

    def transaction(self, number: int) -> None:
        written = self.written[number] = [[] for _ in range(PARTITIONS)]
        try:
            self.core.begin()
            for _ in range(self.dice.randrange(8)):
                self.write(number, written)
                if self.dice.random() < 0.3:
                    self.flush()
            self.change_of_mind()
            self.commit(number)
        except TransactionAbortableError:
            self.aborted.add(number)
            self.abort()
        except TransactionUnknownError:
            self.unknown.add(number)
        except TransactionError:
            self.aborted.add(number)

    def change_of_mind(self) -> None:
        if self.dice.random() < 0.3:
            raise TransactionAbortableError("the program wants it so")

    def write(self, number: int, written: list[list[bytes]]) -> None:
        self.core.require_open()
        partition = self.dice.randrange(PARTITIONS)
        value = b"%d.%d" % (number, sum(map(len, written)))
        written[partition].append(value)
        place = ("t", None, value, partition, 1, (), None)
        self.accumulator.append(*place, lambda: self.now_ms)

    def commit(self, number: int) -> None:
        for _ in range(self.dice.choice([1, 50])):
            try:
                self.end(commit=True)
            except TransactionUnknownError:
                if self.core.phase is Phase.FATAL:
                    raise
                continue
            self.committed.add(number)
            return
        # The program gives up, and so must this producer be.
        self.unknown.add(number)
        self.new_producer()

    def abort(self) -> None:
        for _ in range(50):
            try:
                self.end(commit=False)
            except TransactionUnknownError:
                continue
            except ProducerFencedError:
                return
            return
        self.new_producer()


@pytest.mark.parametrize("second", [True, False], ids=["second dialect", "first dialect"])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32), trouble=st.sampled_from([0.0, 0.05, 0.3]))
def test_committed_is_all_there_once_and_the_rest_is_not_there(
    second: bool, seed: int, trouble: float
) -> None:
    run = Run(seed, second=second, trouble=trouble)
    run.go()
    read = [log.committed() for log in run.cluster.logs]
    for number, written in run.written.items():
        mark = b"%d." % number
        found = [[value for value in values if value.startswith(mark)] for values in read]
        if number in run.committed:
            assert found == written, f"transaction {number} is committed"
        elif number in run.unknown:
            assert found in (written, [[], [], []]), f"transaction {number} is all or nothing"
        else:
            assert found == [[], [], []], f"transaction {number} is aborted"
    if not trouble:
        assert not run.unknown
        assert len(run.committed) + len(run.aborted) == TRANSACTIONS
