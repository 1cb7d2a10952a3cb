"""A naive broker and a bad network, for the sender: what is in a log, and how answers get lost.

The broker counts as Kafka's does: a batch is appended if its sequence follows, recognised if it is
one of the last five, and refused otherwise; a new epoch begins at 0.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from ottla.clients.producer.batch import Batch
from ottla.clients.producer.sender import Answer, Dispatch, Sender
from ottla.proto.errors import ErrorCode

POISON = b"poison"
REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.CORRUPT_MESSAGE,
)
# A leader that is deposed says these of what it has appended, too.
DOUBTS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


@dataclass
class LogModel:
    """One partition: its values, and what it remembers of the producer."""

    values: list[bytes | None] = field(default_factory=list)
    epoch: int = -1
    next_sequence: int = 0
    # First and last sequence → base offset.
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))

    def append(self, batch: Batch, epoch: int, sequence: int, count_max: int) -> Answer:
        if len(batch.records) > count_max:
            return Answer(ErrorCode.MESSAGE_TOO_LARGE)
        if any(entry[2] == POISON for entry in batch.records):
            return Answer(ErrorCode.INVALID_RECORD)
        if sequence >= 0:
            refused = self._count(batch, epoch, sequence)
            if refused is not None:
                return refused
        base = len(self.values)
        self.values += [entry[2] for entry in batch.records]
        if sequence >= 0:
            self.recent.append((sequence, sequence + len(batch.records) - 1, base))
            self.next_sequence = sequence + len(batch.records)
        return Answer(ErrorCode.NONE, base)

    def _count(self, batch: Batch, epoch: int, sequence: int) -> Answer | None:
        if epoch < self.epoch:
            return Answer(ErrorCode.INVALID_PRODUCER_EPOCH)
        if epoch > self.epoch:
            # Kafka takes any first number from a producer that it has not heard of.
            if sequence != 0 and self.epoch != -1:
                return Answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            self.epoch, self.next_sequence = epoch, sequence
            self.recent.clear()
        for first, last, base in self.recent:
            if (first, last) == (sequence, sequence + len(batch.records) - 1):
                return Answer(ErrorCode.NONE, base)
        if sequence < self.next_sequence:
            return Answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        if sequence > self.next_sequence:
            return Answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        return None


@dataclass
class Request:
    """A request on its way, as the bytes were when it left."""

    dispatch: Dispatch
    numbers: list[tuple[int, int, int]]
    arrived: list[Answer] | None = None


class Network:
    """One connection to one broker that leads every partition, and breaks by dice."""

    def __init__(self, sender: Sender, dice: Random, *, trouble: float, count_max: int) -> None:
        self.sender = sender
        self.dice = dice
        self.trouble = trouble
        self.count_max = count_max
        self.logs: dict[int, LogModel] = {}
        self.pipe: deque[Request] = deque()

    def leave(self, dispatch: Dispatch) -> None:
        numbers = [self.sender.identity_of(batch) for batch in dispatch.batches]
        self.pipe.append(Request(dispatch, numbers))

    def step(self, now_ms: float) -> None:
        """Let one thing happen to what is on its way."""
        if not self.pipe:
            return
        if self.dice.random() < self.trouble:
            self._break(now_ms)
        elif (waiting := next((one for one in self.pipe if one.arrived is None), None)) and (
            self.pipe[0].arrived is None or self.dice.random() < 0.7
        ):
            self._arrive(waiting)
        else:
            request = self.pipe.popleft()
            assert request.arrived is not None
            pairs = list(zip(request.dispatch.batches, request.arrived, strict=True))
            self.sender.answered(0, pairs, now_ms)

    def _arrive(self, request: Request) -> None:
        request.arrived = []
        for batch, (_, epoch, sequence) in zip(
            request.dispatch.batches, request.numbers, strict=True
        ):
            log = self.logs.setdefault(batch.partition, LogModel())
            if self.dice.random() < self.trouble:
                request.arrived.append(Answer(self.dice.choice(REFUSALS)))
                continue
            answer = log.append(batch, epoch, sequence, self.count_max)
            if answer.code is ErrorCode.NONE and self.dice.random() < self.trouble:
                answer = Answer(self.dice.choice(DOUBTS))
            request.arrived.append(answer)

    def _break(self, now_ms: float) -> None:
        """The connection ends: a part of what was written to it had arrived."""
        never_left = self.dice.random() < 0.3
        while self.pipe:
            request = self.pipe.popleft()
            if request.arrived is None and not never_left and self.dice.random() < 0.5:
                self._arrive(request)
            else:
                never_left = never_left or request.arrived is None
            sent = request.arrived is not None or self.dice.random() < 0.5
            self.sender.lost(0, request.dispatch.batches, "it broke", now_ms, sent=sent)
