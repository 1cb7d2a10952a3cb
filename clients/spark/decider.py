"""Does what the programs of `decisions.py` ask for: on the driver, with clients of its own.

C1  who reads the book has taken over before, and reads what is certain up to the high watermark of
    that moment. The last stable offset is not the end of it: the partition is shared, and another
    sink's open write holds that offset back, for as long as its `transaction.timeout.ms` at most
C2  an abort of what has ended already is no failure. A commit that is refused is told by what the
    coordinator has under the id, which is used once: committed all the same, open and in somebody
    else's hands, or aborted by somebody else, which the book is to remember (B7)
C3  an id of a decision that its coordinator does not know, and that the book does not call lost,
    has been committed: coordinators forget only ids without an open transaction
    (`transactional.id.expiration.ms`), and nobody but a driver that has the book ends one that is
    prepared. An operator who does so all the same is found out by the next round, if there is one
    before the coordinator forgets
C4  an attempt that has its id and no row yet is fenced like one that has: it could prepare after
    the clean-up. What was fenced so is told by its time-out, and not fenced with every round again
C5  a coordinator says yes to a commit before the partitions have their markers, and readers see the
    rows when they have. Who waits for a query to end wants to read what it wrote: so the markers
    are waited for, but not for ever, because the batch is decided already

Not here: what is to be done when (`decisions.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from ottla.clients.admin.answers import NewTopic, TransactionInfo
from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.transactions import TERMINATED_TIMEOUT_MS
from ottla.clients.clock import now_ms
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.errors import ProducerFencedError, TransactionUnknownError
from ottla.clients.metadata import TopicInfo
from ottla.clients.producer.client import Producer
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.spark.decisions import (
    AbortedElsewhereError,
    Book,
    Claim,
    Effect,
    End,
    ListOpen,
    PeekBook,
    Program,
    ReadBook,
    Settle,
    StaleRoundError,
    TakeOver,
    Terminate,
    Warn,
    WriteBook,
    abort_batch,
    begin_round,
    commit_batch,
    driver_id,
)
from ottla.clients.spark.errors import WriteFailedError
from ottla.clients.spark.options import SinkOptions
from ottla.proto.errors import ErrorCode, RequestError, ensure
from ottla.proto.ids import TopicPartition

LOG: Final = logging.getLogger("ottla.spark")
# A driver that dies while it writes its book holds up all that read theirs: not for long.
_DRIVER_TIMEOUT_MS: Final = 10_000
# Longer than a driver's transaction can be open, and than coordinators take to look (C1).
_READ_MS: Final = 60_000
# Of a transaction that is committed, and lacks markers.
_GOING: Final = ("PrepareCommit",)
_COMMITTED: Final = (*_GOING, "CompleteCommit")
_SETTLE_MS: Final = 10_000
_SETTLE_POLL_S: Final = 0.02
# Every batch writes three books and as many markers: the last one of a query is near the end.
_BACK: Final = 64
_BOOK_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "600000",
}
# Where nodes count what is not on disk as held, a power cut could take the book and leave commits
# that it has decided: the batch would be written twice.
_ON_DISK: Final = {"ottla.durability": "fsync"}
# The coordinator knows no such id (C3).
_FORGOTTEN: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
)
_ENDED: Final = _FORGOTTEN | {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
}


class Decider:
    """The driver's end of a sink that writes exactly once; opened for one program, and closed."""

    def __init__(self, options: SinkOptions) -> None:
        ensure(options.prefix is not None, "the sink writes exactly once")
        self._prefix: Final = options.prefix or ""
        self._client: Final = dict(options.client)
        self._where: Final = TopicPartition(options.decisions_topic, 0)
        address = {"bootstrap.servers": self._client["bootstrap.servers"]}
        self._address: Final = address
        self._admin: Final = Admin(address)
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._producer is not None:
            self._producer.close()
        self._admin.close()

    def begin(self, claim: Claim) -> int:
        """Begin a round; return its number."""
        self._make_topic()
        number: int = self.run(begin_round(self._prefix, claim))
        return number

    def commit(
        self, number: int, claim: Claim, batch: int, prepared: Sequence[PreparedTransaction]
    ) -> bool:
        """Decide a batch; return whether these rows count, and not those of an earlier round."""
        is_new: bool = self.run(commit_batch(self._prefix, number, claim, batch, prepared))
        return is_new

    def abort(self, number: int, prepared: Sequence[PreparedTransaction]) -> None:
        self.run(abort_batch(self._prefix, number, prepared))

    def run(self, program: Program) -> Any:
        """Do what the program asks for, and return what it returns."""
        answer: Any = None
        failure: WriteFailedError | None = None
        while True:
            try:
                effect = program.send(answer) if failure is None else program.throw(failure)
            except StopIteration as end:
                return end.value
            answer = failure = None
            try:
                answer = self.perform(effect)
            except WriteFailedError as error:
                # The program may have more to do before it gives up.
                failure = error

    def perform(self, effect: Effect) -> Any:
        """Do one thing, and return what came of it."""
        match effect:
            case PeekBook():
                return self._peek()
            case TakeOver():
                self._take_over()
            case ReadBook():
                return self._read()
            case WriteBook(book):
                self._write(book)
            case End(prepared, commit):
                self._end(prepared, commit=commit)
            case Settle(prepared):
                self._settle({one.transactional_id for one in prepared})
            case ListOpen():
                return self._list_open()
            case Terminate(name):
                self._terminate(name)
            case Warn(sentence):
                LOG.warning("%s", sentence)
        return None

    def _take_over(self) -> None:
        if self._producer is not None:
            self._producer.close()
        own = {
            "transactional.id": driver_id(self._prefix),
            "transaction.timeout.ms": str(_DRIVER_TIMEOUT_MS),
            "linger.ms": "0",
        }
        self._producer = Producer({**self._client, **own})
        self._producer.init_transactions()

    def _write(self, book: Book) -> None:
        producer, where = self._producer, self._where
        if producer is None:
            raise StaleRoundError("the book can be written only after taking over.")
        try:
            with producer.transaction():
                producer.send(
                    where.topic,
                    book.to_bytes(),
                    key=self._prefix.encode(),
                    partition=where.partition,
                )
        except ProducerFencedError as error:
            raise StaleRoundError(
                f"another driver has taken over transactionalIdPrefix={self._prefix}: only one "
                "query at a time writes under it."
            ) from error

    def _peek(self) -> Book:
        """Return the last book of this prefix that is certain by now."""
        with self._reading("read_committed") as consumer:
            return self._last_before(consumer, consumer.end_offsets([self._where])[self._where])

    def _read(self) -> Book:
        """Return the last book of this prefix (C1)."""
        with self._reading("read_uncommitted") as consumer:
            end = consumer.end_offsets([self._where])[self._where]
        with self._reading("read_committed") as consumer:
            return self._last_before(consumer, end)

    def _reading(self, isolation: str) -> Consumer:
        own = {"enable.auto.commit": "false", "isolation.level": isolation}
        return Consumer({**self._address, **own})

    def _last_before(self, consumer: Consumer, end: int) -> Book:
        consumer.assign([self._where])
        begin = consumer.beginning_offsets([self._where])[self._where]
        back = _BACK
        while True:
            start = max(begin, end - back)
            found = self._last_between(consumer, start, end)
            if found is not None or start == begin:
                return Book() if found is None else Book.from_bytes(found)
            back *= 8

    def _last_between(self, consumer: Consumer, start: int, end: int) -> bytes | None:
        key, found = self._prefix.encode(), None
        end_ms = now_ms() + _READ_MS
        consumer.seek(self._where, start)
        while consumer.position(self._where) < end:
            if now_ms() > end_ms:
                raise WriteFailedError(
                    f"{self._where} could be read only up to {consumer.position(self._where)}, and "
                    f"not to {end}, within {_READ_MS} ms: a transaction that is open there holds "
                    "it up. `ottla transactions list --state Ongoing` tells whose."
                )
            for record in consumer.consume(500, 0.05):
                if record.key == key and record.value is not None:
                    found = record.value
        return found

    def _end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        try:
            self._admin.complete_transaction(prepared, commit=commit)
        except (RequestError, TransactionUnknownError) as error:
            if error.code is None or error.code not in _ENDED:
                raise
            if not commit:
                LOG.info("nothing to abort: %s", error)
            else:
                self._require_committed(prepared, error)

    def _require_committed(
        self, prepared: PreparedTransaction, refusal: RequestError | TransactionUnknownError
    ) -> None:
        """Raise unless one whose commit is refused is committed all the same (C2, C3)."""
        name = prepared.transactional_id
        found = self._admin.describe_transactions([name])[name]
        info = found if isinstance(found, TransactionInfo) else None
        # Else nobody has told what became of it: that is no proof of anything.
        is_told = isinstance(found, TransactionInfo) or found.code in _FORGOTTEN
        if info is not None and info.state in _COMMITTED:
            LOG.warning("%s is committed, by somebody else: %s", prepared, refusal)
        elif info is None and is_told and refusal.code in _FORGOTTEN:
            LOG.warning("%s is counted as committed (C3): %s", prepared, refusal)
        elif not is_told or isinstance(refusal, TransactionUnknownError):
            raise WriteFailedError(
                f"{refusal} The decision to commit it stands: the next round asks again."
            ) from refusal
        elif info is not None and info.is_open:
            raise WriteFailedError(
                f"{refusal} It is open, and somebody else has taken it over. The decision to commit"
                " it stands: the next round asks again."
            ) from refusal
        else:
            raise AbortedElsewhereError(
                f"{refusal} The decision says to commit it, so somebody else has ended it: its "
                "rows are missing."
            ) from refusal

    def _settle(self, names: set[str]) -> None:
        """Wait until every partition has the marker of these (C5)."""
        end_ms = now_ms() + _SETTLE_MS
        while names & {
            one.transactional_id for one in self._admin.list_transactions(states=_GOING)
        }:
            if now_ms() > end_ms:
                LOG.warning("what was committed cannot be read after %d ms yet.", _SETTLE_MS)
                return
            pause(_SETTLE_POLL_S)

    def _list_open(self) -> list[str]:
        """Return the ids of this prefix that are open, or that somebody can still open (C4)."""
        found = self._admin.list_transactions(states=["Ongoing", "Empty"])
        names = [
            one.transactional_id
            for one in found
            if one.transactional_id.startswith(f"{self._prefix}/")
        ]
        told = self._admin.describe_transactions(names) if names else {}
        return [name for name in names if not _is_terminated(told[name])]

    def _terminate(self, name: str) -> None:
        try:
            self._admin.terminate_transaction(name)
        except RequestError as error:
            if error.code not in _ENDED:
                raise
        LOG.info("%s was left, and is aborted if it was open.", name)

    def _make_topic(self) -> None:
        name = self._where.topic
        if isinstance(self._admin.describe_topics([name])[name], TopicInfo):
            # With each batch but the first: the controller need not be asked.
            return
        refusal = self._create(name, {**_BOOK_CONFIGS, **_ON_DISK})
        if refusal is not None and refusal.code is ErrorCode.INVALID_CONFIG:
            # Apache Kafka knows no such option.
            refusal = self._create(name, _BOOK_CONFIGS)
        if refusal is not None and refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise refusal

    def _create(self, name: str, configs: Mapping[str, str]) -> RequestError | None:
        (outcome,) = self._admin.create_topics([NewTopic(name, 1, None, dict(configs))]).values()
        return outcome if isinstance(outcome, RequestError) else None


def pause(seconds: float) -> None:
    asyncio.run(asyncio.sleep(seconds))


def _is_terminated(told: TransactionInfo | RequestError) -> bool:
    return (
        isinstance(told, TransactionInfo)
        and not told.is_open
        and told.timeout_ms == TERMINATED_TIMEOUT_MS
    )
