"""Exactly once: who decides which transactions of a query's tasks are committed, and when. A core.

Sealed envelopes: every task writes its rows into a transaction of its own, prepares it and hands in
its name. The driver writes into a book which envelopes of a batch count, and only then has them
opened. Whoever comes after a crash reads the book first: what is in it is opened, all else is
burned.

The book is a record in a topic, replaced as a whole. It is written in transactions of the driver
(`PREFIX/driver`), so that of two drivers the one that took over last can write, and the other
cannot.

B1  a batch is decided once: the first decision in the book stands, and rows that were written again
    are aborted. Batches of a query do not go back: one before the last that is decided is refused
B2  what is decided is in the book before the first transaction of it is committed, and stays there
    as open until the last one is
B3  the book is believed only after taking over: then no earlier write of it is still under way
B4  every round, which is one try of a driver at one batch, has a number larger than those before,
    and it is part of the names of its transactions. A driver aborts only what is of its own round
    or an older one, and never what the book says to commit
B5  no two attempts of tasks share a transactional id: a task that comes back from the dead can
    spoil nothing but its own transaction
B6  a prefix belongs to the first stream that writes under it. The book knows the last decision
    only, so with two streams in turn a batch that one of them does again would count twice: every
    other query is refused, before it disturbs the owner if it is known by then who it is
B7  what somebody else has aborted though it was decided is lost, and the book says so from the
    moment at which a round finds it: coordinators forget it, and it would look like one that is
    committed. Every round fails until somebody accepts the loss of this very batch

What crashes leave behind:

| crash | who ends it |
| --- | --- |
| of a task, or an attempt that was not wanted | the commit of the batch, or the next round |
| of the driver before the book is written | the next round aborts it, and does the batch again |
| of the driver after that | the next round commits it, does the batch again, and aborts that |

An operator is none of these. One who aborts what is decided loses rows (B7); one who commits what
is not decided has them twice, because the batch is done again, and nobody here can tell.

Programs here are generators: they yield what is to be done, and are sent what came of it.

Not here: doing it (`decider.py`).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.spark.errors import WriteFailedError
from ottla.proto.errors import ConfigError
from ottla.proto.options.option import shown

_FORMAT: Final = 1
_DRIVER: Final = "driver"


@dataclass(frozen=True, slots=True)
class BatchName:
    """One batch of one query: no other decision is ever called so (B1)."""

    query: str
    batch: int

    def __str__(self) -> str:
        return f"{self.query}:{self.batch}"

    @classmethod
    def parse(cls, text: str) -> BatchName:
        """Read what `str` wrote, or raise `ConfigError`."""
        query, _, batch = text.rpartition(":")
        if not (query and batch.isascii() and batch.isdecimal()):
            raise ConfigError(f"{shown(text)} names no batch: that is QUERY:BATCH.")
        return cls(query, int(batch))


@dataclass(frozen=True, slots=True)
class Decision:
    """Which transactions of a batch count."""

    query: str
    batch: int
    prepared: tuple[PreparedTransaction, ...]
    # Whether all of them are committed, or somebody has accepted that some are lost.
    is_done: bool = False
    # Those of them that somebody else has aborted (B7).
    lost: tuple[PreparedTransaction, ...] = ()
    # Those that are known to be committed, as long as it is not done: they need not be asked again.
    committed: tuple[PreparedTransaction, ...] = ()

    @property
    def name(self) -> BatchName:
        return BatchName(self.query, self.batch)


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants to write under a prefix."""

    # The id of a stream, or of a batch query; "" while it is not known which stream it is.
    query: str
    is_stream: bool
    # The owner is gone for good: somebody says so.
    takes_over: bool = False
    # The batch whose lost rows stay missing: somebody says so (B7).
    accepts: BatchName | None = None


@dataclass(frozen=True, slots=True)
class Book:
    """What is known of the queries that wrote under one prefix."""

    # Of the newest round; 0 before the first.
    round_number: int = 0
    decision: Decision | None = None
    # The stream whose prefix it is (B6); "" while none has written.
    owner: str = ""

    def to_bytes(self) -> bytes:
        decided = None
        if self.decision is not None:
            decided = {
                "query": self.decision.query,
                "batch": self.decision.batch,
                "prepared": [str(one) for one in self.decision.prepared],
                "done": self.decision.is_done,
                "lost": [str(one) for one in self.decision.lost],
                "committed": [str(one) for one in self.decision.committed],
            }
        told = {
            "format": _FORMAT,
            "round_number": self.round_number,
            "decision": decided,
            "owner": self.owner,
        }
        return json.dumps(told).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Book:
        """Read what `to_bytes` wrote, or raise `ConfigError`."""
        try:
            told = json.loads(data)
            if told["format"] != _FORMAT:
                raise ConfigError(f"the book of decisions has format {told['format']}.")
            decided = told["decision"]
            decision = decided and Decision(
                decided["query"],
                decided["batch"],
                _all_prepared(decided["prepared"]),
                decided["done"],
                # Older books do not have these.
                _all_prepared(decided.get("lost", ())),
                _all_prepared(decided.get("committed", ())),
            )
            return cls(told["round_number"], decision, told.get("owner", ""))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{data[:80]!r} is no book of decisions: {error!r}.") from None


def _all_prepared(told: Iterable[str]) -> tuple[PreparedTransaction, ...]:
    return tuple(map(PreparedTransaction.parse, told))


# --- what is to be done ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PeekBook:
    """Return the book as it is readable now, which may be an old one: nobody is disturbed."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Become the driver who may write; what an older one was writing is written, or never is."""


@dataclass(frozen=True, slots=True)
class ReadBook:
    """Return the book; an empty one if there is none."""


@dataclass(frozen=True, slots=True)
class WriteBook:
    """Replace the book, or fail if another driver has taken over."""

    book: Book


@dataclass(frozen=True, slots=True)
class End:
    """Commit or abort a prepared transaction; to do it twice is harmless.

    A commit raises `AbortedElsewhereError` if it never will be.
    """

    prepared: PreparedTransaction
    commit: bool


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait a while until what is committed can be read: whoever waited for the query looks next."""

    prepared: tuple[PreparedTransaction, ...]


@dataclass(frozen=True, slots=True)
class ListOpen:
    """Return the transactional ids of this prefix under which a transaction is open, or which an
    attempt has taken and can still open one under."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Abort what is open under a transactional id, and fence whoever has it."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell whoever reads the log."""

    sentence: str


Effect = PeekBook | TakeOver | ReadBook | WriteBook | End | Settle | ListOpen | Terminate | Warn
Program = Generator[Effect, Any, Any]


class PrefixTakenError(WriteFailedError):
    """The prefix belongs to another query (B6)."""


class StaleRoundError(WriteFailedError):
    """Another round of this query, or another query with its prefix, has begun since."""


class AbortedElsewhereError(WriteFailedError):
    """A transaction that is to be committed was aborted, and not by a driver."""


class LostBatchError(WriteFailedError):
    """Rows of a batch that is decided are missing, and nobody has accepted that (B7)."""


# --- names ----------------------------------------------------------------------------------------


def driver_id(prefix: str) -> str:
    return f"{prefix}/{_DRIVER}"


def task_id(prefix: str, round_number: int, attempt: str) -> str:
    """Return the transactional id of one attempt of a task; `attempt` is unique in a round (B5)."""
    return f"{prefix}/{round_number}/{attempt}"


def round_of(prefix: str, transactional_id: str) -> int | None:
    """Return which round an id belongs to; None if it is no task's."""
    if not transactional_id.startswith(f"{prefix}/"):
        return None
    told, _, attempt = transactional_id.removeprefix(f"{prefix}/").partition("/")
    return int(told) if told.isdecimal() and attempt else None


# --- programs -------------------------------------------------------------------------------------


def begin_round(prefix: str, claim: Claim) -> Program:
    """Begin a round: end what older ones left, and return the number of this one."""
    # To take over would end what the owner is writing.
    _owned(prefix, (yield PeekBook()), claim)
    yield TakeOver()
    book: Book = yield ReadBook()
    book = replace(_owned(prefix, book, claim), round_number=book.round_number + 1)
    yield WriteBook(book)
    try:
        yield from _finish(prefix, book, claim)
    except LostBatchError:
        # What was never decided keeps readers waiting no longer, though the query stands.
        yield from _clean(prefix, book.round_number - 1, _kept(book.decision))
        raise
    yield from _clean(prefix, book.round_number - 1, ())
    return book.round_number


def commit_batch(
    prefix: str,
    round_number: int,
    claim: Claim,
    batch: int,
    prepared: Sequence[PreparedTransaction],
) -> Program:
    """Decide a batch, and see to it that it is done; return whether these rows count (B1)."""
    query = claim.query
    book: Book = yield from _believed(round_number)
    book = yield from _finish(prefix, _owned(prefix, book, claim), claim)
    _require_no_later(book.decision, query, batch)
    is_new = not _is_decided(book.decision, query, batch)
    if is_new:
        book = replace(book, decision=Decision(query, batch, tuple(prepared)))
        yield WriteBook(book)
        book = yield from _finish(prefix, book, claim)
    else:
        yield from _abort(book.decision, prepared)
    yield from _clean(prefix, round_number, ())
    return is_new


def abort_batch(prefix: str, round_number: int, prepared: Sequence[PreparedTransaction]) -> Program:
    """Abort what was written for a batch, unless it is decided already: Spark may not know that."""
    book: Book = yield from _believed(round_number)
    yield from _abort(book.decision, prepared)
    yield from _clean(prefix, round_number, _kept(book.decision))


def _believed(round_number: int) -> Program:
    """Return the book, after taking over (B3); raise if this round is not the newest."""
    yield TakeOver()
    book: Book = yield ReadBook()
    if book.round_number != round_number:
        raise StaleRoundError(
            f"round {book.round_number} has begun since, and this is round {round_number}: one "
            "query at a time writes under a transactionalIdPrefix."
        )
    return book


def _owned(prefix: str, book: Book, claim: Claim) -> Book:
    """Return the book with its owner, or raise if that is another query (B6)."""
    if claim.is_stream and not claim.query and not claim.takes_over:
        # It is asked again when its tasks have told.
        return book
    if book.owner and book.owner != claim.query and not claim.takes_over:
        wrote = ""
        if book.decision is not None and book.decision.query == book.owner:
            wrote = f", which has written up to batch {book.decision.batch} under it"
        this = f"the stream {claim.query}" if claim.is_stream else "a batch query"
        raise PrefixTakenError(
            f"transactionalIdPrefix={prefix} belongs to the stream {book.owner}{wrote}, and this "
            f"is {this}: two queries under one prefix could write rows twice. Give this one a "
            "prefix of its own; or, if the other will never run again, for instance because its "
            "checkpoint is gone, start this one with takeOverPrefix=true, once."
        )
    return replace(book, owner=claim.query if claim.is_stream else "")


def _finish(prefix: str, book: Book, claim: Claim) -> Program:
    """Commit what is decided and not known to be committed (B2); return the book."""
    if book.decision is None or book.decision.is_done:
        return book
    failures: list[WriteFailedError]
    book, decision, failures = yield from _commit_each(book, book.decision)
    if decision.lost and claim.accepts != decision.name:
        failures.insert(0, _lost(prefix, decision))
    if failures:
        if decision != book.decision:
            yield WriteBook(replace(book, decision=decision))
        raise failures[0]
    book = replace(book, decision=replace(decision, is_done=True, committed=()))
    yield WriteBook(book)
    if decision.lost:
        yield Warn(
            f"the loss is accepted: {_what_is_lost(decision)} Batch {decision.batch} is called "
            f"done without these rows; acceptLostBatch={decision.name} can be taken away."
        )
    yield Settle(decision.prepared)
    return book


def _commit_each(book: Book, decision: Decision) -> Program:
    """Return the book as it is written, the decision as it is known now, and what failed.

    One that cannot be committed does not keep the others open, which have no time-out.
    """
    failures = list[WriteFailedError]()
    known = {*decision.lost, *decision.committed}
    committed = list(decision.committed)
    for one in decision.prepared:
        if one in known:
            continue
        try:
            yield End(one, commit=True)
        except AbortedElsewhereError:
            lost = (*decision.lost, one)
            decision = replace(decision, lost=lost, committed=tuple(committed))
            # At once: the next step may be the last of this driver (B7).
            book = replace(book, decision=decision)
            yield WriteBook(book)
        except WriteFailedError as error:
            failures.append(error)
        else:
            committed.append(one)
    return book, replace(decision, committed=tuple(committed)), failures


def _lost(prefix: str, decision: Decision) -> LostBatchError:
    return LostBatchError(
        f"{_what_is_lost(decision)} Nothing more is written under transactionalIdPrefix={prefix} "
        f"until somebody accepts that: start the query with acceptLostBatch={decision.name}, once, "
        "and it goes on without these rows."
    )


def _what_is_lost(decision: Decision) -> str:
    names = ", ".join(one.transactional_id for one in decision.lost)
    return (
        f"batch {decision.batch} of query {decision.query} was decided, and somebody else has "
        f"ended {len(decision.lost)} of its {len(decision.prepared)} transactions ({names}): "
        "their rows are missing. Or they had been committed before that: look before you write "
        "them again."
    )


def _abort(decision: Decision | None, prepared: Iterable[PreparedTransaction]) -> Program:
    kept = () if decision is None else decision.prepared
    for one in prepared:
        if one not in kept:
            yield End(one, commit=False)


def _clean(prefix: str, round_number: int, kept: Sequence[str]) -> Program:
    """End what is of this round and older ones, and is not to be committed (B4)."""
    for name in (yield ListOpen()):
        found = round_of(prefix, name)
        if found is not None and found <= round_number and name not in kept:
            yield Terminate(name)


def _kept(decision: Decision | None) -> tuple[str, ...]:
    if decision is None:
        return ()
    return tuple(one.transactional_id for one in decision.prepared)


def _is_decided(decision: Decision | None, query: str, batch: int) -> bool:
    return decision is not None and (decision.query, decision.batch) == (query, batch)


def _require_no_later(decision: Decision | None, query: str, batch: int) -> None:
    """Raise if a later batch is decided: what this one had is not known any more."""
    if decision is not None and decision.query == query and decision.batch > batch:
        raise WriteFailedError(
            f"batch {batch} of query {query} is to be written, and batch {decision.batch} of it is "
            "committed: its checkpoint was set back. Whether these rows are in the topic is not "
            "known. Put back the checkpoint that was there; or start with a new one and "
            "takeOverPrefix=true, which writes them again."
        )
