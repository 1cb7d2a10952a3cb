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
Z3  a run has at most five batches: more are never on their way at once
Z4  at most `RUNS_MAX` runs are remembered, of anybody; the one that grew longest ago goes first

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

# Anybody may invent producer ids; so many take about 3 MB.
RUNS_MAX: Final = 5000
# Nothing was written, and the producer sends the same batch again.
AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
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
class _Run:
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
        """Whether a sequence is in the run, and below `end`; they wrap from 2³¹-1 to 0."""
        if sequence < 0:
            return False
        return (sequence - self.first) & INT32_MAX < (end - self.first) & INT32_MAX

    def take_in(self, sent: _Sent, code: ErrorCode) -> None:
        is_new = sent.first == self.end
        if not is_new or self.next == self.end:
            self.next = sent.end
        if is_new or not self.has(sent.end):
            self.end = sent.end
        self.batches += is_new
        self.code = code


class Behind:
    """The runs of all producers in all partitions of a node."""

    def __init__(self) -> None:
        # By partition, as its clients name it, and producer id; the last to grow comes last.
        self._runs: OrderedDict[tuple[Hashable, int], _Run] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def check(self, place: Hashable, batch: memoryview, producers: ProducerStates) -> bool:
        """Raise the `RequestError` of the batches before this one, if it is behind refused ones.

        Returns whether its producer has a run here: then `taken` wants to know what becomes of it.
        """
        # Not the whole header: nearly every batch has nothing to do with any run.
        producer_id = int.from_bytes(batch[_PRODUCER_AT:_EPOCH_AT], "big", signed=True)
        run = self._runs.get((place, producer_id))
        if run is None:
            return False
        sent = _sent(batch)
        if sent is None or not run.is_continued_by(sent):
            return True
        expected = producers.next_sequence(sent.producer_id, sent.epoch)
        if expected is None or run.has_before(sent.first, expected):
            raise RequestError(run.code, _SENTENCE)
        return True

    def refused(self, place: Hashable, batch: memoryview | None, code: ErrorCode) -> None:
        """Remember a batch of which nothing was written."""
        sent = None if batch is None or code not in AGAIN else _sent(batch)
        if sent is None:
            return
        key = (place, sent.producer_id)
        run = self._runs.get(key)
        if run is not None and (
            run.is_continued_by(sent) or (sent.epoch == run.epoch and run.has(sent.first))
        ):
            run.take_in(sent, code)
        else:
            self._runs[key] = _Run(sent.epoch, sent.first, sent.end, sent.end, 1, code)
        self._runs.move_to_end(key)
        if len(self._runs) > RUNS_MAX:
            self._runs.popitem(last=False)

    def taken(self, place: Hashable, batch: memoryview) -> None:
        """Forget the first batch of a run, which is in the log now; what is behind it may follow.

        Any other batch of the run is in the log only if the run was no gap, or its producer has
        gone on without the first: then all of it is forgotten.
        """
        sent = _sent(batch)
        run = None if sent is None else self._runs.get((place, sent.producer_id))
        if sent is None or run is None:
            return
        is_first = (sent.epoch, sent.first) == (run.epoch, run.first)
        if is_first and run.has(sent.end):
            run.first, run.batches = sent.end, run.batches - 1
        elif is_first or sent.epoch != run.epoch or run.has(sent.first):
            del self._runs[place, sent.producer_id]


def _sent(batch: memoryview) -> _Sent | None:
    """Return what is remembered of a batch; None for one without a producer. It was not checked."""
    if len(batch) < HEADER_SIZE:
        return None
    header = read_header(batch)
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    end = (header.last_sequence + 1) & INT32_MAX
    return _Sent(header.producer_id, header.producer_epoch, header.base_sequence, end)
