"""The memory of a member: its entries, its term and vote, its snapshot and its standing.

Everything is held in memory and changed there; `sync` writes what differs from the disk in one
transaction. Whoever sends a message or applies an entry calls `sync` first, so nothing that others
can see is ever ahead of the disk, and a thousand changes cost one commit.

The library asks for a truncation on every append, right or wrong. Here that is only a mark: `add`
truncates if, and only if, the entry at that place has another term.

Not here: who calls when (`seam.py`), and what an entry means.

J1  entries are numbered without a gap, and their terms never fall
J2  an entry goes away only because of a term conflict after a mark, and never below the commit
    index; or because a snapshot stands for it, in the transaction that stores the snapshot
J3  term, vote, entries and snapshot reach the disk in the order in which they changed: all of
    them at once
J4  only a voter's journal holds a vote (B1)
J5  what is found at start is whole, or the start is refused: a part of a journal must not vote
J6  after a failed commit nothing works any more
J7  the commit index is not stored: at start only a snapshot is known to be committed
J8  the directories that were admitted are those of its snapshot and its entries, and of nothing
    else: they come, go, and are found again with them
"""

from __future__ import annotations

from typing import overload

from ottla.controller.quorum.admissions import Admissions
from ottla.controller.quorum.entries import (
    FIRST_ENTRY,
    FIRST_INDEX,
    Entry,
    Snapshot,
    encode_entry,
    encode_snapshot,
    is_known_kind,
)
from ottla.controller.quorum.layout import (
    FORMATTED_KEY,
    HEAD_KEY,
    MEMBERSHIP_KEY,
    SNAPSHOT_KEY,
    Head,
    StateStore,
    encode_head,
    entry_key,
    is_blank,
    load,
)
from ottla.controller.quorum.membership import Membership, Standing, encode_membership
from ottla.proto.errors import StorageError, ensure


def create_journal(store: StateStore, membership: Membership) -> Journal:
    """Make a journal and the standing of its member in one transaction."""
    if not is_blank(store):
        raise StorageError("There is a quorum's journal here already; it is not made anew.")
    ensure(membership.standing is not Standing.BLANK, "a blank member has no journal")
    store.commit(
        {
            MEMBERSHIP_KEY: encode_membership(membership),
            HEAD_KEY: encode_head(Head(0, None, FIRST_INDEX, FIRST_INDEX)),
            entry_key(FIRST_INDEX): encode_entry(FIRST_ENTRY),
            # From now on a store without a journal is one that lost it.
            FORMATTED_KEY: None,
        }
    )
    return Journal(store)


class Journal:
    """One member's journal, open."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        found = load(store)
        self._membership = found.membership
        self._term = found.term
        self._vote = found.vote
        self._snapshot = found.snapshot
        self._entries = found.entries
        self._admissions = self._find_admissions()
        self._size_bytes = sum(len(entry.command) for entry in self._entries)
        # What the disk holds, and from where on memory differs from it.
        self._stored_first = self.first_index
        self._stored_last = self.last_index
        self._changed_from = self.last_index + 1
        self._head_changed = False
        self._changes: dict[bytes, bytes | None] = {}
        # Set by the library's wish to truncate; conflicts are allowed from here on.
        self._marked_from: int | None = None
        self._installing = False
        self._commit_index = self.committed_at_start
        self._is_broken = False
        self.syncs = 0

    # ── What it holds ─────────────────────────────────────────────────────────────────────────

    @property
    def term(self) -> int:
        return self._term

    @property
    def vote(self) -> int | None:
        return self._vote

    @property
    def membership(self) -> Membership:
        return self._membership

    @property
    def admissions(self) -> Admissions:
        """Return from which directory each voter votes, by this journal (J8)."""
        return self._admissions

    @property
    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    @property
    def first_index(self) -> int:
        return self._entries[0].index

    @property
    def last_index(self) -> int:
        return self._entries[-1].index

    @property
    def last_term(self) -> int:
        return self._entries[-1].term

    @property
    def commit_index(self) -> int:
        return self._commit_index

    @property
    def committed_at_start(self) -> int:
        """Return what is committed for certain without asking anybody (J7)."""
        return FIRST_INDEX if self._snapshot is None else self._snapshot.index

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def is_synced(self) -> bool:
        return (
            not self._head_changed
            and not self._changes
            and self._changed_from > self.last_index
            and (self._stored_first, self._stored_last) == (self.first_index, self.last_index)
        )

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        return self._entries[item]

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry with that index, or None if it is not here."""
        if not self.first_index <= index <= self.last_index:
            return None
        return self._entries[index - self.first_index].term

    # ── Changes, in memory ────────────────────────────────────────────────────────────────────

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append an entry; do nothing if it is there; truncate if another is in its place."""
        self._require_whole()
        ensure(is_known_kind(command), "an entry is of a known kind", index=index)
        if not self._entries:
            # Only between `clear` and the two entries of the snapshot that is being installed.
            ensure(self._installing, "only a snapshot refills a journal", index=index)
            self._append(Entry(bytes(command), index, term))
            return
        if index < self.first_index or self.term_at(index) == term:
            return
        if index <= self.last_index:
            self._truncate(index)
        ensure(index == self.last_index + 1, "entries have no gap", index=index)
        ensure(term >= self.last_term, "terms never fall", index=index, term=term)
        self._append(Entry(bytes(command), index, term))

    def mark_conflicts_from(self, position: int) -> None:
        """Allow `add` to replace entries from that position on. Nothing goes away by itself."""
        self._marked_from = self.first_index + position

    def set_term(self, term: int, vote: int | None) -> None:
        self._require_whole()
        ensure(term >= self._term, "the term never falls", old=self._term, new=term)
        is_voter = self._membership.standing is Standing.VOTER
        ensure(vote is None or is_voter, "only a voter votes", standing=self._membership.standing)
        ensure(
            term > self._term or self._vote is None or vote == self._vote,
            "one vote in a term",
            term=term,
            old=self._vote,
            new=vote,
        )
        self._term, self._vote = term, vote
        self._head_changed = True

    def set_commit_index(self, index: int) -> None:
        """Note what is committed, and sync before anybody can apply it."""
        if index > self._commit_index:
            ensure(index <= self.last_index, "what is committed is here", index=index)
            self.sync()
            self._commit_index = index

    def set_membership(self, membership: Membership) -> None:
        self._require_whole()
        ensure(self._membership.may_become(membership), "a standing never goes back")
        self._membership = membership
        self._admissions = self._find_admissions()
        self._changes[MEMBERSHIP_KEY] = encode_membership(membership)

    def compact(self, index: int, state: bytes) -> None:
        """Let `state`, which is that after entry `index`, stand for all entries up to it."""
        self._require_whole()
        ensure(self.first_index < index <= self._commit_index, "only what is committed", at=index)
        start = index - 1 - self.first_index
        previous, last = self._entries[start : start + 2]
        self._put_snapshot(Snapshot(previous, last, state, self._admissions.up_to(index)))
        self._size_bytes -= sum(len(entry.command) for entry in self._entries[:start])
        del self._entries[:start]
        self._admissions = self._find_admissions()
        self.sync()

    def wants(self, index: int, term: int) -> bool:
        """Tell whether a snapshot up to that entry brings something that is not here.

        If the entry itself is here then so is all before it, and what follows may have been
        acknowledged: it must stay.
        """
        return index > self._commit_index and self.term_at(index) != term

    def install(self, snapshot: Snapshot) -> None:
        """Replace everything by a snapshot. The library then adds its two entries itself."""
        self._require_whole()
        ensure(self.wants(snapshot.index, snapshot.term), "it brings something new")
        self._put_snapshot(snapshot)
        self._installing = True

    def clear(self) -> None:
        """Forget all entries, as the library does while it takes over a snapshot."""
        ensure(self._installing, "only a snapshot empties a journal")
        self._entries = []
        self._admissions = self._find_admissions()
        self._size_bytes = 0
        self._changed_from = 0

    # ── The disk ──────────────────────────────────────────────────────────────────────────────

    def sync(self) -> None:
        """Make everything durable that is not, in one transaction."""
        self._require_whole()
        if self.is_synced:
            return
        if self._installing:
            ensure(len(self._entries) == 2, "a snapshot was installed in full")
        changes = self._changes
        for index in range(self._stored_first, self._stored_last + 1):
            if not self.first_index <= index <= self.last_index:
                changes[entry_key(index)] = None
        first_changed = max(self._changed_from, self.first_index)
        for entry in self._entries[first_changed - self.first_index :]:
            changes[entry_key(entry.index)] = encode_entry(entry)
        changes[HEAD_KEY] = encode_head(
            Head(self._term, self._vote, self.first_index, self.last_index)
        )
        # Whatever leaves early, a simulated crash included, leaves the journal broken (J6).
        self._is_broken = True
        self._store.commit(changes)
        self._is_broken = False
        self._changes = {}
        self._stored_first, self._stored_last = self.first_index, self.last_index
        self._changed_from = self.last_index + 1
        self._head_changed = False
        self._marked_from = None
        if self._installing and self._snapshot is not None:
            self._installing = False
            self._commit_index = self._snapshot.index
        self.syncs += 1

    def _append(self, entry: Entry) -> None:
        self._changed_from = min(self._changed_from, entry.index)
        self._entries.append(entry)
        self._admissions.add(entry)
        self._size_bytes += len(entry.command)

    def _truncate(self, index: int) -> None:
        ensure(
            self._marked_from is not None and index >= self._marked_from,
            "only a leader's append replaces entries",
            index=index,
        )
        ensure(index > self._commit_index, "what is committed stays", index=index)
        position = index - self.first_index
        self._size_bytes -= sum(len(entry.command) for entry in self._entries[position:])
        del self._entries[position:]
        self._admissions.truncate(index)
        self._changed_from = min(self._changed_from, index)

    def _find_admissions(self) -> Admissions:
        return Admissions(self._membership.voters, self._snapshot, self._entries)

    def _put_snapshot(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._changes[SNAPSHOT_KEY] = encode_snapshot(snapshot)

    def _require_whole(self) -> None:
        if self._is_broken:
            raise StorageError("The quorum's journal failed to commit, and takes nothing any more.")
