"""What a log remembers of each idempotent producer: enough to tell a retry from a new batch.

A doorman with a short memory: of each guest he knows the last five tickets. A ticket he has seen
is waved through to the seat it already has; the next number in line gets a new seat; anything
else is sent back.

S1  at most five batches per producer are remembered (rule 61)
S2  the state is a function of (newest snapshot ≤ end offset, batches after it) (rule 62); a
    snapshot counts only while no batch after it was deleted or cleaned away
S3  `check` changes nothing; only `record` does, and it never refuses
S4  at most `PRODUCERS_MAX` producers are remembered; the one whose last batch lies furthest back
    is forgotten first, and if it goes on it is taken for one that was never here (rule 62)
S5  who has an open transaction is never forgotten, however many they are (rule 64b)

Not here: who may use a producer id, and what is open or ended (`transactions.py`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT32_MAX, NO_SEQUENCE, Offset, ProducerEpoch, ProducerId
from ottla.proto.records.control import EndMarker, Marker
from ottla.proto.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.replication.transactions import Aborted, Guard, Transactions

BATCHES_MAX: Final = 5
# Anybody may invent producer ids, one in each batch. So many of them take some 8 MB, and 0.04 s of
# every checkpoint; a partition that so many really write to within a day is rare.
PRODUCERS_MAX: Final = 5000
NO_COORDINATOR: Final = -1
_new: Final = tuple.__new__


class Placed(NamedTuple):
    """A batch of a producer, and where it went."""

    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp: int


@dataclass(slots=True)
class Producer:
    """One producer, as this log knows it."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    # When this node last heard of it, or started; decides when it is forgotten. Not the time in its
    # batches: a producer that copies old records is as alive as any other.
    last_seen_ms: int
    batches: deque[Placed] = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))
    # Of the coordinator that wrote its last marker; −1: none did.
    coordinator_epoch: int = NO_COORDINATOR

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class ProducerStates:
    """All the producers of one log."""

    def __init__(self) -> None:
        # In the order of their last batches, but for those that `restore` has put back since.
        self._producers: OrderedDict[int, Producer] = OrderedDict()
        self._is_in_order = True
        self.transactions: Final = Transactions()

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(sorted(self._producers.values(), key=lambda producer: producer.producer_id))

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Return the sequence that a batch of this epoch must begin with.

        None: it may begin anywhere, its producer is not known here; −1: nowhere, the epoch is over.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if epoch != producer.epoch:
            return 0 if epoch > producer.epoch else NO_SEQUENCE
        # Without any, a marker has begun this epoch.
        return (producer.last_sequence + 1) & INT32_MAX

    def check(self, header: BatchHeader) -> Placed | None:
        """Return where a repeated batch went the first time, or None for one that may be appended.

        Raises `RequestError` for a batch that is neither a repeat nor the next in line.
        """
        placed = self._check_sequence(header)
        if placed is None and (header.attributes & TRANSACTIONAL_BIT or self.transactions):
            self._check_transaction(header)
        return placed

    def _check_transaction(self, header: BatchHeader) -> None:
        """Refuse a batch that is not part of the transaction that its producer has here."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        if not header.is_transactional:
            if self.transactions.first_offset_of(producer_id) is not None:
                raise RequestError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Producer {producer_id} has an open transaction, and this batch is in none.",
                )
        elif not self.may_write(producer_id, epoch):
            raise RequestError(
                ErrorCode.INVALID_TXN_STATE,
                f"The coordinator has not said that producer {producer_id} may begin a "
                f"transaction here with epoch {epoch}.",
            )

    def may_write(self, producer_id: int, epoch: int) -> bool:
        """Whether a transactional batch may be appended without asking the coordinator.

        A transaction has one epoch from its beginning to its marker: whoever comes with a later one
        has to ask, or could keep the marker out by it.
        """
        producer = self._producers.get(producer_id)
        if self.transactions.first_offset_of(producer_id) is not None:
            return producer is not None and producer.epoch == epoch
        return self.transactions.may_write(producer_id, epoch)

    def admit(self, guard: Guard, coordinator_epoch: int) -> ErrorCode:
        """Let the next batch begin a transaction; return NONE, or why the answer does not count.

        A coordinator that was replaced, and does not know it yet, may still say yes to what the
        next one has ended: by the marker of that one it is known here.
        """
        producer = self._producers.get(guard.producer_id)
        if producer is not None and coordinator_epoch < producer.coordinator_epoch:
            self.transactions.drop(guard)
            return ErrorCode.NOT_COORDINATOR
        is_admitted = self.transactions.admit(guard)
        return ErrorCode.NONE if is_admitted else ErrorCode.CONCURRENT_TRANSACTIONS

    def _check_sequence(self, header: BatchHeader) -> Placed | None:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # Its records may have been retained away, and it must be able to go on (rule 62).
            return None
        if header.producer_epoch == producer.epoch:
            return self._check_in_epoch(producer, header)
        if header.producer_epoch < producer.epoch:
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {header.producer_id} has epoch {producer.epoch}; "
                f"this batch is from epoch {header.producer_epoch}.",
            )
        if header.base_sequence != 0:
            raise RequestError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} begins epoch {header.producer_epoch} with "
                f"sequence {header.base_sequence}; a new epoch begins with 0.",
            )
        return None

    def _check_in_epoch(self, producer: Producer, header: BatchHeader) -> Placed | None:
        batches = producer.batches
        # Without any, a marker has begun this epoch.
        expected = (batches[-1].last_sequence + 1) & INT32_MAX if batches else 0
        sequence = header.base_sequence
        if sequence == expected:
            # Nearly always. It cannot be a repeat as well: five batches do not wrap around.
            return None
        for placed in batches:
            if placed.first_sequence == sequence and placed.last_sequence == header.last_sequence:
                self._require_same_transaction(placed, header)
                return placed
        raise RequestError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id} sent sequence {sequence}; "
            f"the next in line is {expected}.",
        )

    def _require_same_transaction(self, placed: Placed, header: BatchHeader) -> None:
        """Refuse a sequence that was used in a transaction that has ended.

        It would be taken for a repeat, and acknowledged, and be lost:
            1. a transaction is aborted while a batch of it is on its way, which is then written
            2. its producer (librdkafka 2.16 was seen to) gives the same sequences to a batch of its
               next transaction, as if that batch had never been sent
            3. that one "is there already": its transaction is committed without it
        Told out of order, the producer aborts, and goes on with another epoch.
        """
        if not header.is_transactional:
            return
        open_from = self.transactions.first_offset_of(header.producer_id)
        if open_from is None or placed.first_offset < open_from:
            raise RequestError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} used sequence {header.base_sequence} in a "
                "transaction that has ended.",
            )

    def check_marker(self, end: EndMarker) -> bool:
        """Return whether a marker says anything new; raises `RequestError` for a deposed sender."""
        producer = self._producers.get(end.producer_id)
        if producer is None:
            return True
        if end.producer_epoch < producer.epoch:
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {end.producer_id} has epoch {producer.epoch}; this marker is for epoch "
                f"{end.producer_epoch}.",
            )
        if end.marker.coordinator_epoch < producer.coordinator_epoch:
            raise RequestError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The coordinator of epoch {producer.coordinator_epoch} has written here, and this "
                f"marker is of epoch {end.marker.coordinator_epoch}.",
            )
        if end.is_bumped and end.producer_epoch == producer.epoch:
            # Sent again, and late: what is open in this epoch is the next transaction.
            return False
        # Sent again: it did its work, and nothing began since. That of a later coordinator is
        # written all the same. Else it would not be known here, and the one before it could end the
        # next transaction of an old client, which has the same epoch:
        #   1. the marker of coordinator A is written, nobody hears of it, and A stands still
        #   2. B sends the same marker, hears that it is here, and calls the transaction complete
        #   3. the next transaction writes here; A goes on, and sends its marker again
        is_known = (
            end.producer_epoch == producer.epoch
            and end.marker.coordinator_epoch == producer.coordinator_epoch
            and not producer.batches
        )
        return not is_known or self.transactions.first_offset_of(end.producer_id) is not None

    def record(
        self,
        header: BatchHeader,
        base_offset: Offset,
        now_ms: int,
        marker: Marker | None = None,
    ) -> Aborted | None:
        """Take note of a batch of a producer that is in the log at `base_offset`.

        Of a control batch, `marker` is what it says. Returns the transaction that it aborts.
        """
        # Taken apart once: looking the fields up by name, one by one, is what costs time here.
        _, _, _, _, _, attributes, _, _, _, producer_id, producer_epoch, _, _ = header
        if producer_id < 0 or (attributes & CONTROL_BIT and marker is None):
            return None
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != producer_epoch:
            coordinator_epoch = NO_COORDINATOR if producer is None else producer.coordinator_epoch
            producer = Producer(ProducerId(producer_id), ProducerEpoch(producer_epoch), now_ms)
            producer.coordinator_epoch = coordinator_epoch
            self._producers[producer_id] = producer
        self._producers.move_to_end(producer_id)
        producer.last_seen_ms = now_ms
        aborted = None
        if marker is not None:
            aborted = self._end(producer, base_offset, marker)
        else:
            self._place(producer, header, base_offset)
        if len(self._producers) > PRODUCERS_MAX:
            self._forget_oldest()
        return aborted

    def _place(self, producer: Producer, header: BatchHeader, base_offset: Offset) -> None:
        _, _, _, _, _, attributes, delta, _, max_timestamp, _, _, sequence, _ = header
        last_offset = base_offset + delta
        # What calling `Placed` does, in half the time.
        placed = sequence, header.last_sequence, base_offset, last_offset, max_timestamp
        producer.batches.append(_new(Placed, placed))
        if attributes & TRANSACTIONAL_BIT:
            self.transactions.wrote(header.producer_id, base_offset)

    def _end(self, producer: Producer, offset: Offset, marker: Marker) -> Aborted | None:
        producer.coordinator_epoch = marker.coordinator_epoch
        ended = self.transactions.ends(producer.producer_id, offset)
        if ended is None or marker.is_commit:
            return None
        first_open = self.transactions.first_open()
        return Aborted(*ended, offset + 1 if first_open is None else first_open)

    def _forget_oldest(self) -> None:
        if not self._is_in_order:
            ordered = sorted(self._producers.values(), key=lambda producer: producer.last_offset)
            self._producers = OrderedDict((one.producer_id, one) for one in ordered)
            self._is_in_order = True
        is_open = self.transactions.first_offset_of
        spare = len(self._producers) - PRODUCERS_MAX
        oldest = (one for one in self._producers if is_open(one) is None)
        for producer_id in list(islice(oldest, spare)):
            del self._producers[producer_id]

    def restore(self, producer: Producer) -> None:
        """Put back a producer as a snapshot remembers it."""
        self._producers[producer.producer_id] = producer
        self._is_in_order = False

    def expire(self, now_ms: int, expiry_ms: int) -> int:
        """Forget producers that were silent for longer than `expiry_ms`; return how many."""
        silent = [
            producer.producer_id
            for producer in self._producers.values()
            if now_ms - producer.last_seen_ms > expiry_ms
            and self.transactions.first_offset_of(producer.producer_id) is None
        ]
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)
