"""What comes behind a refused batch: told the same as that one, until that one is sent again.

A post office with a counter for each customer. Letter 2 is sent back because the office has closed
for a moment; when it opens again letter 3 is next in hand, handed in long before its sender heard
about letter 2. It is sent back too, with the same words: "later". To say "your letters are out of
order" would be true, and would make the sender believe that something is lost.

Producers send up to five batches without waiting for an answer. What a leader that refuses one and
could take the next must not say, or do:

    1. batch 1 is written, and its answer is "not leader": the standing was lost meanwhile (rule 13)
    2. batch 2 is refused, for the same reason
    3. the standing is back; batch 3, sent long before, is out of order, and is told so
    4. librdkafka begins a new producer epoch, and sends all three again: 1 is there twice
    or, of a producer that is new here and may begin anywhere (rule 62):
    1. batch 1 is refused
    2. batch 2 is taken, and acknowledged
    3. librdkafka takes that for the acknowledgement of 1 as well: 1 is acknowledged and lost

Nothing is taken because of what is remembered here; some is refused that would be taken, and some
is refused with another code.

Z1  only a gap that consists of batches refused here, with a code that says "again", is told so: any
    other one is out of order (rule 61)
Z2  a batch is told so once for each time that the one before it was refused; if it comes again
    alone, the log judges it
Z3  a queue has at most five batches: more are never on their way at once
Z4  at most `QUEUES_MAX` queues are remembered, and `UNKNOWN_MAX` of topics that nobody knows; the
    one that grew longest ago goes first, and is judged by the log alone, as by Kafka
Z5  a queue is left alone by batches of an older epoch, and ends when the log is past it

Not here: what is in order (`producers.py`), and who refuses what (`ottla.node.kafka.produce`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT32_MAX
from ottla.proto.records.header import HEADER_SIZE, read_header
from ottla.replication.producers import BATCHES_MAX, ProducerStates

# Producers times partitions that a node refuses at once. Anybody may invent producer ids, and names
# of topics: so many take about 10 MB, and those of topics that are not known here 2 MB more.
QUEUES_MAX: Final = 20_000
UNKNOWN_MAX: Final = 1_000
# Nothing was written, and the producer sends the same batch again.
AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        # What its header says may be wrong, too: then somebody is told "again" once, for nothing.
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
# Where a batch says whose it is (proto/records/header.py).
_PRODUCER_AT: Final = 43
_EPOCH_AT: Final = 51
_SENTENCE: Final = "It comes behind a batch that was refused with this code: nothing was written."


class _Sent(NamedTuple):
    """A batch, by what its producer says of it."""

    producer_id: int
    epoch: int
    first: int
    # The sequence after its last one.
    end: int


@dataclass(slots=True)
class _Queue:
    """Batches of one producer that were refused, each right behind the one before."""

    epoch: int
    first: int
    # The sequence after the last one.
    end: int
    # The sequence after the one that was refused last: lower, when they come a second time.
    next: int
    batches: int
    code: ErrorCode

    def is_continued_by(self, sent: _Sent) -> bool:
        """Whether a batch may have been sent before its producer knew of the refusals."""
        if sent.epoch != self.epoch:
            return False
        # New ones may be between those that come a second time: Kafka's own producer does that.
        is_new = sent.first == self.end and self.batches < BATCHES_MAX
        return is_new or sent.first == self.next != self.end

    def has(self, sequence: int) -> bool:
        return self.has_before(self.end, sequence)

    def has_before(self, end: int, sequence: int) -> bool:
        """Whether a sequence is in the queue, and below `end`; they wrap from 2³¹-1 to 0."""
        if sequence < 0:
            return False
        return (sequence - self.first) & INT32_MAX < (end - self.first) & INT32_MAX

    def is_behind(self, expected: int) -> bool:
        """Whether a log that expects this has all of the queue, or will never have it."""
        if expected < 0:
            return True
        return not self.has(expected) and (expected - self.first) & INT32_MAX <= INT32_MAX // 2

    def take_in(self, sent: _Sent, code: ErrorCode) -> None:
        is_new = sent.first == self.end
        if not is_new or self.next == self.end:
            self.next = sent.end
        if is_new or not self.has(sent.end):
            self.end = sent.end
        self.batches += is_new
        self.code = code


class Behind:
    """The queues of all producers in all partitions of a node."""

    def __init__(self) -> None:
        # By partition, as its clients name it, and producer id; the last to grow comes last.
        self._known: OrderedDict[tuple[Hashable, int], _Queue] = OrderedDict()
        # Apart, so that whoever asks for what is not there displaces nobody else (Z4).
        self._unknown: OrderedDict[tuple[Hashable, int], _Queue] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown)

    def check(self, place: Hashable, batch: memoryview, producers: ProducerStates) -> bool:
        """Raise the `RequestError` of the batches before this one, if it is behind refused ones.

        Returns whether its producer has a queue here: `taken` wants to know what becomes of it.
        """
        # Not the whole header: nearly every batch has nothing to do with any queue.
        producer_id = int.from_bytes(batch[_PRODUCER_AT:_EPOCH_AT], "big", signed=True)
        key = (place, producer_id)
        queue = self._known.get(key) or self._unknown.get(key)
        if queue is None:
            return False
        sent = _sent(batch)
        if sent is None:
            return True
        expected = producers.next_sequence(sent.producer_id, sent.epoch)
        if sent.epoch == queue.epoch and expected is not None and queue.is_behind(expected):
            # Another leader has written it meanwhile, or its epoch is over.
            self._pop(key)
            return False
        if queue.is_continued_by(sent) and (
            expected is None or queue.has_before(sent.first, expected)
        ):
            raise RequestError(queue.code, _SENTENCE)
        return True

    def refused(self, place: Hashable, batch: memoryview | None, code: ErrorCode) -> None:
        """Remember a batch of which nothing was written."""
        sent = None if batch is None or code not in AGAIN else _sent(batch)
        if sent is None:
            return
        key = (place, sent.producer_id)
        queue = self._pop(key)
        if queue is None or (
            sent.epoch >= queue.epoch
            and not queue.is_continued_by(sent)
            and not (sent.epoch == queue.epoch and queue.has(sent.first))
        ):
            queue = _Queue(sent.epoch, sent.first, sent.end, sent.end, 1, code)
        elif sent.epoch == queue.epoch:
            queue.take_in(sent, code)
        # Else it is late: its epoch is over, and the queue is that of the next one.
        queues, most = (
            (self._unknown, UNKNOWN_MAX) if code in _UNKNOWN else (self._known, QUEUES_MAX)
        )
        queues[key] = queue
        if len(queues) > most:
            queues.popitem(last=False)

    def taken(self, place: Hashable, batch: memoryview) -> None:
        """Forget the first batch of a queue, which is in the log now; what is behind may follow.

        Any other batch of the queue is in the log only if the queue was no gap, or its producer has
        gone on without the first: then all of it is forgotten.
        """
        sent = _sent(batch)
        key = (place, -1 if sent is None else sent.producer_id)
        queue = self._known.get(key) or self._unknown.get(key)
        if sent is None or queue is None or sent.epoch < queue.epoch:
            return
        is_first = (sent.epoch, sent.first) == (queue.epoch, queue.first)
        if is_first and queue.has(sent.end):
            # What was one batch may come in several.
            queue.first, queue.batches = sent.end, max(1, queue.batches - 1)
        elif is_first or sent.epoch != queue.epoch or queue.has(sent.first):
            self._pop(key)

    def _pop(self, key: tuple[Hashable, int]) -> _Queue | None:
        return self._known.pop(key, None) or self._unknown.pop(key, None)


def _sent(batch: memoryview) -> _Sent | None:
    """Return what is remembered of a batch; None for one without a producer. It was not checked."""
    if len(batch) < HEADER_SIZE:
        return None
    header = read_header(batch)
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    end = (header.last_sequence + 1) & INT32_MAX
    return _Sent(header.producer_id, header.producer_epoch, header.base_sequence, end)
