"""Which batches go out now, to whom, and what follows from each answer. A core.

S1  batches of a partition are in the log in the order in which they were filled. What is sent again
    goes alone: nothing of its partition is in flight then
S2  no more than `max_in_flight` requests are unanswered at a broker, and a request has at most one
    batch of a partition
S3  with idempotence a batch keeps its sequence number for as long as an attempt with it may have
    been written: the broker recognises a repeat
S4  a number that was given to a batch which is not in the log, or perhaps is not, leaves a gap. The
    lane is drained, and begins again at 0 under the next epoch; each partition counts for itself
S5  the first batch of a count goes alone. Kafka takes any number from a producer it has not heard
    of: behind a first batch that was refused the second would be taken, and the order be lost
S6  in a transaction nothing begins to count again by itself: what is lost breaks the transaction,
    and then nothing that waits is sent any more
S7  every batch ends by `delivery_timeout_ms`, in flight or not. What may have been written ends as
    unknown, and only what surely was not as failed (P7)

What a refusal does:

| answer | then |
| --- | --- |
| can be tried again | back to the front of its lane, after a wait |
| MESSAGE_TOO_LARGE, several records | two halves are tried |
| OUT_OF_ORDER_SEQUENCE_NUMBER behind another batch | that one failed first: again, in order |
| the same of the first batch, UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH | the count is lost: |
| | unknown if an earlier attempt may be in the log, else again under a new epoch |
| DUPLICATE_SEQUENCE_NUMBER | it is in the log; nobody knows where |
| anything else | it has failed |

Not here: sockets, clocks, callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.clients.producer.accumulator import Accumulator, Lane
from ottla.clients.producer.batch import Batch, Outcome, State
from ottla.clients.producer.transactions import Transactions
from ottla.clients.retrying import backoff_ms, is_retriable, may_be_written
from ottla.proto.errors import ErrorCode, ensure
from ottla.proto.ids import INT32_MAX

EPOCH_MAX: Final = (1 << 15) - 1
_E: Final = ErrorCode
# The markers of the transaction before are written soon.
_PAUSE_MS: Final = 20.0
_LOST_COUNT: Final = frozenset(
    {
        _E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        _E.UNKNOWN_PRODUCER_ID,
        _E.INVALID_PRODUCER_EPOCH,
        _E.INVALID_PRODUCER_ID_MAPPING,
        _E.PRODUCER_FENCED,
    }
)

# Topic and partition → the broker that leads it, if one is known.
LeaderOf = Callable[[str, int], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """The options that the sender obeys."""

    acks: int = -1
    is_idempotent: bool = True
    max_in_flight: int = 5
    retries: int = INT32_MAX
    delivery_timeout_ms: float = 120_000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    max_request_size: int = 1 << 20


class Answer(NamedTuple):
    """What a broker said of one batch."""

    code: ErrorCode
    base_offset: int = -1
    append_ms: int = -1
    message: str = ""


class Dispatch(NamedTuple):
    """One request to one broker: these batches, each of another partition."""

    node_id: int
    batches: list[Batch]


class Sender:
    """The way of every batch from its lane into a log."""

    def __init__(
        self,
        settings: SenderSettings,
        accumulator: Accumulator,
        transactions: Transactions | None = None,
    ) -> None:
        self.settings: Final = settings
        self._accumulator: Final = accumulator
        self._transactions: Final = transactions
        if transactions is not None:
            accumulator.on_failure = _tells(transactions)
        self._lanes: Final = dict[Batch, Lane]()
        self._in_flight: Final = dict[int, int]()
        # Id and epoch, given by a broker.
        self.identity: tuple[int, int] | None = None
        # All that is there goes at once: somebody waits for it.
        self.is_flushing = False
        # Why nothing can be sent at the moment, for the sentences of what is given up.
        self.hindrance = ""

    @property
    def needs_identity(self) -> bool:
        """Whether a broker must be asked for an id before anything can be sent."""
        return (
            self._transactions is None
            and self.settings.is_idempotent
            and self.identity is None
            and bool(self._accumulator.busy)
        )

    def in_flight(self, node_id: int) -> int:
        return self._in_flight.get(node_id, 0)

    # --- out ---

    def collect(self, now_ms: float, leader_of: LeaderOf) -> list[Dispatch]:
        """Return the requests that may go now; their batches are in flight from here on."""
        self._expire(now_ms)
        if self._transactions is not None and self._transactions.is_broken:
            self._give_up_queued("the transaction of it is aborted")
        chosen = dict[int, list[Lane]]()
        room = dict[int, int]()
        for lane in tuple(self._accumulator.busy):
            if not self._may_send(lane, now_ms):
                continue
            node_id = leader_of(lane.topic, lane.partition)
            if node_id is None or self.in_flight(node_id) >= self.settings.max_in_flight:
                continue
            left = room.get(node_id, self.settings.max_request_size)
            size = lane.queue[0].size
            if size > left and node_id in chosen:
                continue
            room[node_id] = left - size
            chosen.setdefault(node_id, []).append(lane)
        return [Dispatch(node_id, self._take(node_id, lanes)) for node_id, lanes in chosen.items()]

    def _take(self, node_id: int, lanes: list[Lane]) -> list[Batch]:
        self._in_flight[node_id] = self.in_flight(node_id) + 1
        if self._transactions is not None:
            self._transactions.writing()
        batches = []
        for lane in lanes:
            batch = lane.queue.popleft()
            self._give_number(lane, batch)
            batch.attempts += 1
            lane.in_flight.append(batch)
            self._lanes[batch] = lane
            # The others have their turn first.
            del self._accumulator.busy[lane]
            if lane.queue:
                self._accumulator.busy[lane] = None
            batches.append(batch)
        return batches

    def _may_send(self, lane: Lane, now_ms: float) -> bool:
        if not lane.queue or now_ms < lane.retry_at_ms:
            return False
        if self._transactions is not None:
            if not self._may_join(lane, self._transactions):
                return False
        elif self.settings.is_idempotent:
            if self.identity is None:
                return False
            if lane.needs_reset and (not self._reset(lane) or not lane.queue):
                return False
        if lane.in_flight and not self._may_follow(lane):
            return False
        return self.is_flushing or now_ms >= self._ready_ms(lane)

    def _may_join(self, lane: Lane, transactions: Transactions) -> bool:
        """Whether a lane may send in the transaction that is open (S6)."""
        identity = transactions.producer_id, transactions.epoch
        if (lane.producer_id, lane.epoch) != identity:
            if lane.in_flight:
                return False
            lane.producer_id, lane.epoch = identity
            lane.next_sequence = 0
            lane.needs_reset = lane.is_anchored = False
        transactions.want(lane.topic, lane.partition)
        return not lane.needs_reset and transactions.may_write(lane.topic, lane.partition)

    def _may_follow(self, lane: Lane) -> bool:
        """Whether a lane may send though something of it is in flight (S1, S2, S5)."""
        if self.settings.is_idempotent and (lane.needs_reset or not lane.is_anchored):
            return False
        if lane.queue[0].attempts or lane.in_flight[0].attempts > 1:
            return False
        return len(lane.in_flight) < self.settings.max_in_flight

    def _ready_ms(self, lane: Lane) -> float:
        """Return when the head of a lane may leave; in the past means now."""
        head, settings = lane.queue[0], self._accumulator.settings
        if (
            len(lane.queue) > 1
            or head.attempts
            or head.size >= settings.batch_size
            or len(head.records) >= settings.batch_num_messages
        ):
            return 0.0
        return head.created_ms + settings.linger_ms

    def _give_number(self, lane: Lane, batch: Batch) -> None:
        if not self.settings.is_idempotent or batch.sequence is not None:
            return
        if lane.producer_id < 0:
            ensure(self.identity is not None, "there is an id")
            lane.producer_id, lane.epoch = self.identity or (-1, -1)
        batch.sequence = lane.next_sequence
        lane.next_sequence = (lane.next_sequence + len(batch.records)) & INT32_MAX

    def identity_of(self, batch: Batch) -> tuple[int, int, int]:
        """Return producer id, epoch and first sequence number, as the batch carries them."""
        if batch.sequence is None:
            return -1, -1, -1
        lane = self._lanes[batch]
        return lane.producer_id, lane.epoch, batch.sequence

    # --- back ---

    def answered(
        self, node_id: int, answers: Iterable[tuple[Batch, Answer]], now_ms: float
    ) -> None:
        """Take what a broker said about one request."""
        self._in_flight[node_id] -= 1
        for batch, answer in answers:
            lane = self._back(batch)
            if batch.has_ended:
                # It was given up in the meantime, and what was told then was true.
                continue
            self._judge(lane, batch, answer, now_ms)

    def lost(
        self, node_id: int, batches: Iterable[Batch], sentence: str, now_ms: float, *, sent: bool
    ) -> None:
        """Take that a request got no answer; `sent` unless it surely never left."""
        self._in_flight[node_id] -= 1
        for batch in batches:
            lane = self._back(batch)
            if batch.has_ended:
                continue
            batch.trouble = (None, sentence)
            batch.is_maybe_written |= sent
            self._again_or_never(lane, batch, now_ms)

    def sent_unasked(self, node_id: int, batches: Iterable[Batch]) -> None:
        """Take that a request left to which no answer will come (acks=0)."""
        self._in_flight[node_id] -= 1
        for batch in batches:
            self._back(batch)
            if not batch.has_ended:
                self._end(batch, Outcome(State.UNKNOWN))

    def retry_at_once(self, topic: str, partition: int) -> None:
        """Take that somebody said who leads now (KIP-951): there is nothing to wait for."""
        for lane in self._accumulator.busy:
            if lane.topic == topic and lane.partition == partition:
                lane.retry_at_ms = 0.0

    def _back(self, batch: Batch) -> Lane:
        lane = self._lanes.pop(batch)
        lane.in_flight.remove(batch)
        return lane

    def _judge(self, lane: Lane, batch: Batch, answer: Answer, now_ms: float) -> None:
        code = answer.code
        if code is _E.NONE:
            base = answer.base_offset if answer.base_offset >= 0 else None
            append_ms = answer.append_ms if answer.append_ms >= 0 else None
            lane.is_anchored = not lane.needs_reset
            self._end(batch, Outcome(State.OK, base, append_ms))
            return
        if code is _E.DUPLICATE_SEQUENCE_NUMBER:
            self._end(batch, Outcome(State.OK))
            return
        batch.trouble = (code, f"{answer.message or code.sentence} ({code.name})")
        if code is _E.MESSAGE_TOO_LARGE and len(batch.records) > 1 and not batch.is_maybe_written:
            lane.needs_reset = self.settings.is_idempotent and self._transactions is None
            self._accumulator.split(lane, batch, keep_numbers=self._transactions is not None)
        elif code in _LOST_COUNT and self.settings.is_idempotent:
            self._lost_count(lane, batch, code, now_ms)
        elif is_retriable(code):
            batch.is_maybe_written |= may_be_written(code)
            self._again_or_never(lane, batch, now_ms)
        else:
            batch.is_maybe_written |= may_be_written(code)
            self._give_up(lane, batch)

    def _lost_count(self, lane: Lane, batch: Batch, code: ErrorCode, now_ms: float) -> None:
        behind = any(
            other.number < batch.number for group in (lane.in_flight, lane.queue) for other in group
        )
        if behind and code is _E.OUT_OF_ORDER_SEQUENCE_NUMBER and not batch.is_maybe_written:
            self._again(lane, batch, now_ms, wait=False)
            return
        lane.needs_reset = True
        if batch.is_maybe_written or self._transactions is not None:
            self._give_up(lane, batch)
        else:
            # This attempt was refused, and no other can be in the log: it may have a new number.
            batch.sequence = None
            self._again(lane, batch, now_ms, wait=True)

    def _again_or_never(self, lane: Lane, batch: Batch, now_ms: float) -> None:
        if batch.attempts > self.settings.retries:
            self._give_up(lane, batch)
        else:
            self._again(lane, batch, now_ms, wait=True)

    def _again(self, lane: Lane, batch: Batch, now_ms: float, *, wait: bool) -> None:
        """Put a batch back into its lane, in order (S1)."""
        self._accumulator.put_back(lane, batch)
        if wait:
            pause_ms = backoff_ms(
                batch.attempts - 1,
                self.settings.retry_backoff_ms,
                self.settings.retry_backoff_max_ms,
            )
            if batch.trouble[0] is _E.CONCURRENT_TRANSACTIONS:
                pause_ms = min(pause_ms, _PAUSE_MS)
            lane.retry_at_ms = max(lane.retry_at_ms, now_ms + pause_ms)

    def _reset(self, lane: Lane) -> bool:
        """Begin to count again, if nothing is under way (S4); return whether it could be done."""
        if lane.in_flight:
            return False
        head = lane.queue[0]
        if head.sequence is not None and head.is_maybe_written:
            # Asking for it once more under its old number tells whether it is there.
            return True
        for batch in [one for one in lane.queue if one.sequence is not None]:
            if batch.is_maybe_written:
                lane.queue.remove(batch)
                self._end(batch, _given_up(batch))
            else:
                batch.sequence = None
        lane.needs_reset = lane.is_anchored = False
        lane.next_sequence = 0
        lane.epoch += 1
        if lane.producer_id >= 0 and lane.epoch > EPOCH_MAX:
            # All epochs of this id are used up here; another id is asked for.
            self.identity = None
            lane.producer_id = lane.epoch = -1
            return False
        return True

    # --- ends ---

    def _expire(self, now_ms: float) -> None:
        """End what is older than promised (S7)."""
        limit_ms = now_ms - self.settings.delivery_timeout_ms
        for batch in tuple(self._accumulator.live):
            if batch.created_ms > limit_ms:
                # Batches live in the order of their creation, but for the halves of one.
                break
            if batch.partition < 0:
                continue
            lane = self._lanes.get(batch)
            if lane is not None:
                batch.is_maybe_written = True
                lane.needs_reset = self.settings.is_idempotent
                batch.trouble = (None, "no answer came")
                self._end(batch, self._late(batch))
                continue
            self._expire_queued(batch)

    def _expire_queued(self, batch: Batch) -> None:
        for lane in tuple(self._accumulator.busy):
            if lane.topic == batch.topic and lane.partition == batch.partition:
                lane.queue.remove(batch)
                if not lane.queue:
                    del self._accumulator.busy[lane]
                lane.needs_reset |= batch.sequence is not None
                self._end(batch, self._late(batch))
                return

    def _late(self, batch: Batch) -> Outcome:
        limit = f"delivery.timeout.ms ({self.settings.delivery_timeout_ms:g}) is over"
        why = batch.trouble[1] or self.hindrance or "it was never sent"
        batch.trouble = (batch.trouble[0], f"{limit}: {why}")
        return _given_up(batch)

    def _give_up(self, lane: Lane, batch: Batch) -> None:
        lane.needs_reset = self.settings.is_idempotent
        self._end(batch, _given_up(batch))

    def _give_up_queued(self, sentence: str) -> None:
        """End everything that waits to be sent; what is in flight is waited for (S6)."""
        for topic in self._accumulator.waiting_topics:
            self._accumulator.give_up(topic, sentence)
        for lane in tuple(self._accumulator.busy):
            batches = tuple(lane.queue)
            lane.queue.clear()
            lane.needs_reset |= any(batch.sequence is not None for batch in batches)
            for batch in batches:
                batch.trouble = (batch.trouble[0], batch.trouble[1] or sentence)
                self._end(batch, _given_up(batch))
        self._accumulator.busy.clear()

    def give_up_all(self, sentence: str) -> None:
        """End everything that has not ended: the producer closes."""
        for batch in tuple(self._accumulator.live):
            if batch in self._lanes:
                batch.is_maybe_written = True
            batch.trouble = (batch.trouble[0], sentence)
            self._end(batch, _given_up(batch))
        for lane in tuple(self._accumulator.busy):
            lane.queue.clear()
        self._accumulator.busy.clear()

    def _end(self, batch: Batch, outcome: Outcome) -> None:
        self._accumulator.end(batch, outcome)

    # --- when to look again ---

    def next_ms(self, now_ms: float, leader_of: LeaderOf) -> float | None:
        """Return when `collect` may have something to do though nothing new has come."""
        times = [
            max(self._ready_ms(lane), lane.retry_at_ms)
            for lane in self._accumulator.busy
            if lane.queue and self._may_wait_for_time(lane, leader_of)
        ]
        for batch in self._accumulator.live:
            times.append(batch.created_ms + self.settings.delivery_timeout_ms)
            break
        return min(times, default=None)

    def _may_wait_for_time(self, lane: Lane, leader_of: LeaderOf) -> bool:
        """Whether time alone lets this lane send: else an answer or metadata does."""
        if self._transactions is not None:
            if not self._transactions.may_write(lane.topic, lane.partition):
                return False
        elif self.settings.is_idempotent and self.identity is None:
            return False
        if lane.in_flight and not self._may_follow(lane):
            return False
        node_id = leader_of(lane.topic, lane.partition)
        return node_id is not None and self.in_flight(node_id) < self.settings.max_in_flight


def _tells(transactions: Transactions) -> Callable[[Outcome], None]:
    return lambda outcome: transactions.record_failed(outcome.code, outcome.sentence)


def _given_up(batch: Batch) -> Outcome:
    code, sentence = batch.trouble
    if batch.is_maybe_written:
        told = f"{sentence}; it may or may not have been written"
        return Outcome(State.UNKNOWN, sentence=told, code=code)
    return Outcome(State.FAILED, sentence=sentence or "it was never sent", code=code)
