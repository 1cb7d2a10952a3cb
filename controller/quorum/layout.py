"""Where a journal lies in the state store, and what is found there at a start.

Not here: what changes, and when it is written (`journal.py`).

Y1  what is found is whole, or the start is refused: a part of a journal must not vote (J5)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from ottla.controller.quorum.entries import (
    FIRST_ENTRY,
    Entry,
    Snapshot,
    decode_entry,
    decode_snapshot,
)
from ottla.controller.quorum.membership import Membership, decode_membership
from ottla.proto.errors import CorruptionError

PREFIX: Final = b"raft/"
HEAD_KEY: Final = b"raft/head"
MEMBERSHIP_KEY: Final = b"raft/membership"
SNAPSHOT_KEY: Final = b"raft/snapshot"
_ENTRY_PREFIX: Final = b"raft/entry/"
# In a store that was formatted and has no journal yet. Outside the prefix: it is blank still.
FORMATTED_KEY: Final = b"formatted"
_HEAD: Final = Struct(">QqQQ")
_CHECKSUM_SIZE: Final = 4
_NOBODY: Final = -1
_WHAT_TO_DO: Final = (
    "This member must not vote on what is left. If most of the others are up, move its data "
    "directory away and let it join again."
)


class StateStore(Protocol):
    """What is needed of a state store: durable, checksummed, one atomic commit."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]: ...

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None: ...


class Head(NamedTuple):
    """What changes with every step. `last` tells when entries are missing."""

    term: int
    vote: int | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Found:
    """A whole journal, as it lies on the disk."""

    membership: Membership
    term: int
    vote: int | None
    snapshot: Snapshot | None
    entries: list[Entry]


def is_blank(store: StateStore) -> bool:
    """Tell whether no journal was ever made here."""
    return next(store.scan(PREFIX), None) is None


def is_formatted(store: StateStore) -> bool:
    """Tell whether the lack of a journal is intended: the member is new, and its cluster known."""
    return store.get(FORMATTED_KEY) is not None


def load(store: StateStore) -> Found:
    try:
        return _load(store)
    except CorruptionError as error:
        sentence = f"The quorum's journal is damaged: {error} {_WHAT_TO_DO}"
        raise CorruptionError(sentence) from error


def entry_key(index: int) -> bytes:
    return _ENTRY_PREFIX + index.to_bytes(8, "big")


def encode_head(head: Head) -> bytes:
    body = _HEAD.pack(head.term, _NOBODY if head.vote is None else head.vote, head.first, head.last)
    return crc32c(body).to_bytes(_CHECKSUM_SIZE, "big") + body


def _decode_head(data: bytes) -> Head:
    body = data[_CHECKSUM_SIZE:]
    if len(body) != _HEAD.size or int.from_bytes(data[:_CHECKSUM_SIZE], "big") != crc32c(body):
        raise CorruptionError("its head is not what was written.")
    term, vote, first, last = _HEAD.unpack(body)
    return Head(term, None if vote == _NOBODY else vote, first, last)


def _load(store: StateStore) -> Found:
    stored_membership, stored_head = store.get(MEMBERSHIP_KEY), store.get(HEAD_KEY)
    if stored_membership is None or stored_head is None:
        missing = "record of members" if stored_membership is None else "head"
        raise CorruptionError(f"its {missing} is missing.")
    head = _decode_head(stored_head)
    stored_snapshot = store.get(SNAPSHOT_KEY)
    snapshot = None
    if stored_snapshot is not None:
        snapshot = decode_snapshot(stored_snapshot, "its snapshot")
    entries = [_decode_at(key, value) for key, value in store.scan(_ENTRY_PREFIX)]
    _check(head, entries, snapshot)
    return Found(decode_membership(stored_membership), head.term, head.vote, snapshot, entries)


def _check(head: Head, entries: list[Entry], snapshot: Snapshot | None) -> None:
    found = [entry.index for entry in entries]
    if not found or found != list(range(head.first, head.last + 1)):
        sentence = f"it should have the entries {head.first} to {head.last}, and has others."
        raise CorruptionError(sentence)
    terms = [entry.term for entry in entries]
    if terms != sorted(terms) or terms[-1] > head.term:
        raise CorruptionError("the terms of its entries fall.")
    beginning = [FIRST_ENTRY] if snapshot is None else [snapshot.previous, snapshot.last]
    if entries[: len(beginning)] != beginning:
        raise CorruptionError("its entries do not begin where its snapshot ends.")


def _decode_at(key: bytes, value: bytes) -> Entry:
    index = int.from_bytes(key[len(_ENTRY_PREFIX) :], "big")
    entry = decode_entry(value, f"entry {index}")
    if entry.index != index:
        raise CorruptionError(f"entry {entry.index} stands in the place of entry {index}.")
    return entry
