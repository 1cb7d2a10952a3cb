"""What clients tried, what became of it, and what they were shown: all that checkers believe.

A history is a list of events in the order of one clock. An operation is an event `invoke` and,
later, one that ends it, of the same process: a process does one thing at a time.

    {"i": 7, "t": 5023117, "p": "w1", "type": "invoke", "f": "send", "k": ["a", 0], "v": "w1-3", …}
    {"i": 9, "t": 5031970, "p": "w1", "type": "ok", "f": "send", "k": ["a", 0], "off": 12, …}

An outcome is one of three. `OK`: it happened. `FAIL`: surely it did not. `UNKNOWN`: everything
else; when in doubt, `UNKNOWN`. A process that died in the middle leaves an `invoke` alone, which is
unknown too.

Values are `"{process}-{counter}"`: each is sent once, and those of a process are in order. What a
member of a group does has the group as its value.

A transaction is several operations with its name: `begin-txn`, sends, polls, and `commit-txn` if it
was ever asked to be committed, which is `OK` if it is committed, and `FAIL` if it surely is not.
One that was prepared has `prepare-txn`, with the name that was given out for it as its value. Then
somebody else decides, maybe several times until it is known: the process of `commit-txn` and
`abort-txn` says who. `keep-txn` is a successor that holds the id and keeps what is open; it has as
its value what it found, and as its transaction what should be there.

Not here: who writes it (`runner/`), what errors mean (`outcomes.py`), what follows (`checkers/`).

H1  a line that is read back is the event that was written
H2  a line that is no event is refused with its number; only the last one may be torn
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ottla.proto.errors import OttlaError


class Kind(Enum):
    """Whether an event begins an operation, or how it ended."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Shown(NamedTuple):
    """A record as a client was shown it; `value` is None if its payload was not one of ours."""

    place: Place
    offset: int
    value: str | None
    leader_epoch: int


class BadHistoryError(OttlaError):
    """A file is no history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a history."""

    # Its place in the whole history: evidence names it.
    index: int
    # Nanoseconds of the monotonic clock, which all processes of one machine share.
    t_ns: int
    process: str
    kind: Kind
    # send, poll, assign, subscribe, owns, commit, committed, leave, crash, admin; of transactions
    # begin-txn, prepare-txn, keep-txn, commit-txn, abort-txn, late-end, hold.
    function: str
    place: Place | None = None
    value: str | None = None
    # −1, 0 or 1; None: it was no send.
    acks: int | None = None
    # Where a send was acknowledged (−1: nobody said where), or what a commit said.
    offset: int | None = None
    shown: tuple[Shown, ...] = ()
    # A code by its name, or what else was said.
    error: str | None = None
    # How often it was sent; 0: the client does not know.
    attempts: int = 1
    # Who answered, where the client knows.
    node: int | None = None
    # main or final.
    phase: str = "main"
    # It is idempotent: nothing of it may be there twice, whatever its client sends again.
    is_idempotent: bool = False
    # The answer said that it is kept, and not where (DUPLICATE_SEQUENCE): unknown, and surely done.
    is_kept: bool = False
    # Partitions that changed hands between members of a group before or while it polled; of `owns`,
    # all that its member has in this generation.
    rebalanced: tuple[Place, ...] = ()
    # Of a commit what it asks for, of `committed` what was found; −1: nothing is committed.
    offsets: tuple[tuple[Place, int], ...] = ()
    # Of the group, as the member that does it knows it.
    generation: int | None = None
    # The key of what was sent; None: the one that `payload.key_of` gives its value.
    key: str | None = None
    # The transaction that it is part of.
    transaction: str | None = None
    # Of a poll: only what is committed was asked for.
    is_committed: bool = False
    # It deletes its key. Such a record has its payload in a header, so that it can be told.
    is_tombstone: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """What was begun, and how it ended; `end` is None if nobody lived to tell."""

    begin: Event
    end: Event | None

    @property
    def kind(self) -> Kind:
        return Kind.UNKNOWN if self.end is None else self.end.kind

    @property
    def index(self) -> int:
        return self.begin.index

    @property
    def ended_ns(self) -> int | None:
        return None if self.end is None else self.end.t_ns


def operations(events: Iterable[Event]) -> list[Operation]:
    """Pair what was begun with what ended it, in the order in which they began."""
    found = list[Event]()
    ends = dict[int, Event]()
    open_by = dict[str, int]()
    for event in events:
        if event.kind is Kind.INVOKE:
            open_by[event.process] = event.index
            found.append(event)
            continue
        begun = open_by.pop(event.process, None)
        if begun is None:
            raise BadHistoryError(f"event {event.index} ends what {event.process} never began")
        ends[begun] = event
    return [Operation(one, ends.get(one.index)) for one in found]


# ── Lines ─────────────────────────────────────────────────────────────────────────────────────

# Of the fields that are seldom there: the name in a line, and the attribute.
_PLAIN: Final = (
    ("v", "value"),
    ("acks", "acks"),
    ("off", "offset"),
    ("err", "error"),
    ("node", "node"),
    ("key", "key"),
    ("gen", "generation"),
    ("txn", "transaction"),
)


def to_line(event: Event) -> str:
    """Return the event as a line, without its end."""
    told: dict[str, Any] = {
        "i": event.index,
        "t": event.t_ns,
        "p": event.process,
        "type": event.kind.value,
        "f": event.function,
        "phase": event.phase,
        "attempts": event.attempts,
    }
    if event.place is not None:
        told["k"] = list(event.place)
    told |= {key: value for key, name in _PLAIN if (value := getattr(event, name)) is not None}
    if event.shown:
        told["recs"] = [
            [[*one.place], one.offset, one.value, one.leader_epoch] for one in event.shown
        ]
    if event.is_idempotent:
        told["idempotent"] = True
    if event.is_kept:
        told["kept"] = True
    if event.is_tombstone:
        told["tombstone"] = True
    if event.is_committed:
        told["committed"] = True
    if event.rebalanced:
        told["reb"] = [[*one] for one in event.rebalanced]
    if event.offsets:
        told["offs"] = [[[*place], offset] for place, offset in event.offsets]
    return json.dumps(told, separators=(",", ":"))


def from_line(line: str) -> Event:
    """Return the event of a line; raise `BadHistoryError` if it is none."""
    try:
        told = json.loads(line)
        place = told.get("k")
        return Event(
            index=int(told["i"]),
            t_ns=int(told["t"]),
            process=str(told["p"]),
            kind=Kind(told["type"]),
            function=str(told["f"]),
            place=None if place is None else _place(place),
            shown=tuple(
                Shown(_place(at), int(offset), None if value is None else str(value), int(epoch))
                for at, offset, value, epoch in told.get("recs", ())
            ),
            attempts=int(told.get("attempts", 1)),
            phase=str(told.get("phase", "main")),
            is_idempotent=bool(told.get("idempotent", False)),
            is_kept=bool(told.get("kept", False)),
            is_tombstone=bool(told.get("tombstone", False)),
            is_committed=bool(told.get("committed", False)),
            rebalanced=tuple(map(_place, told.get("reb", ()))),
            offsets=tuple((_place(at), int(offset)) for at, offset in told.get("offs", ())),
            **{name: told.get(key) for key, name in _PLAIN},
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadHistoryError(f"this is no event: {line[:80]!r} ({error})") from error


def _place(told: Any) -> Place:
    topic, partition = told
    return _kept_place(topic, partition)


# There are few, and a history names them a million times.
@lru_cache(maxsize=4096)
def _kept_place(topic: Any, partition: Any) -> Place:
    return Place(str(topic), int(partition))


def from_lines(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of a file; a torn last line is no event, any other is refused."""
    bad: tuple[int, str] | None = None
    for number, line in enumerate(lines, 1):
        if bad is not None:
            raise BadHistoryError(f"line {bad[0]}: {bad[1]}")
        try:
            yield from_line(line)
        except BadHistoryError as error:
            bad = (number, str(error))
