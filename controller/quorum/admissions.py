"""From which data directory each voter votes, according to one member's journal.

The record of the formation names a directory for each voter, and every admission in the journal
replaces one. The newest counts, committed or not: an admission that is not committed yet gives
nobody a right, because whoever was admitted waits until it knows the admission to be committed, but
it takes the right from the directory before.

Not here: who proposes an admission (`member.py`), and which messages depend on it (`transport.py`).

N1  the newest record before the end of the journal counts; what is truncated takes it back
N2  a directory that was replaced is never admitted again: what it has voted for may be forgotten
N3  the record of the formation is no admission: a member that joins is a voter only by an entry
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ottla.controller.quorum.entries import FIRST_INDEX, Admit, Entry, Snapshot, admission_in

# Stands where the formation has named no directory.
_UNKNOWN = ""


class Admissions:
    """The directories that each voter has had, the newest last."""

    def __init__(
        self, formed: Mapping[int, str | None], snapshot: Snapshot | None, entries: Iterable[Entry]
    ) -> None:
        # What is certain, and up to where; and what follows in the journal.
        self._had: dict[int, tuple[str, ...]] = {
            voter: (directory or _UNKNOWN,) for voter, directory in formed.items()
        }
        if snapshot is not None:
            told = snapshot.directories
            self._had.update({voter: told[voter] for voter in formed if voter in told})
        self._certain_index = FIRST_INDEX if snapshot is None else snapshot.index
        self._later: list[tuple[int, Admit]] = []
        self._newest: Mapping[int, str | None] | None = None
        for entry in entries:
            self.add(entry)

    @property
    def newest(self) -> Mapping[int, str | None]:
        """Return the directory of each voter; None where it is not known (N1)."""
        if self._newest is None:
            newest = {voter: had[-1] or None for voter, had in self._had.items()}
            newest.update({admission.voter: admission.directory_id for _, admission in self._later})
            self._newest = MappingProxyType(newest)
        return self._newest

    def had(self, voter: int) -> tuple[str, ...]:
        """Return every directory that the voter ever had, the newest last."""
        later = tuple(admission.directory_id for _, admission in self._of(voter))
        return (*self._had.get(voter, ()), *later)

    def index(self, voter: int) -> int:
        """Return the entry that admitted the newest directory, or one before which it was."""
        return max((index for index, _ in self._of(voter)), default=self._certain_index)

    def was_admitted(self, voter: int, directory_id: str) -> bool:
        """Tell whether an entry, and not the formation, has named this directory last (N3)."""
        first, *admitted = self.had(voter) or (_UNKNOWN,)
        return bool(admitted) and admitted[-1] == directory_id != first

    def up_to(self, index: int) -> Mapping[int, tuple[str, ...]]:
        """Return all directories up to that entry, for a snapshot."""
        had = dict(self._had)
        for at, admission in self._later:
            if at <= index:
                had[admission.voter] = (*had.get(admission.voter, ()), admission.directory_id)
        return had

    def add(self, entry: Entry) -> None:
        admission = admission_in(entry.command)
        if admission is None or entry.index <= self._certain_index:
            return
        # Who votes is fixed; only from where is not.
        if admission.voter in self._had:
            self._later.append((entry.index, admission))
            self._newest = None

    def truncate(self, index: int) -> None:
        """The entry `index` and all after it are gone."""
        self._later = [(at, admission) for at, admission in self._later if at < index]
        self._newest = None

    def _of(self, voter: int) -> list[tuple[int, Admit]]:
        return [(at, admission) for at, admission in self._later if admission.voter == voter]
