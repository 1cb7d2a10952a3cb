"""A voter that lost its disk, on its way back: what it may say, who admits it, and when it votes.

It says that it joins, takes what the leader sends, and counts for nothing. The leader proposes to
admit its new data directory; the others commit that, since nothing the joiner says helps to commit
it. So the quorum that admits it meets every quorum before, and whoever holds the admission holds
all that was ever committed. When the joiner has applied it, so does the joiner, and it votes.

With so many voters lost that the rest is no majority, nobody can be admitted any more. That is
right: what only the lost ones held would be gone without a word. The status tells it.

Not here: how it finds out that it lost its disk (`formation.py`), and the talk itself
(`member.py`). A volume that was set back to an older state under the same directory id cannot be
told from one that was not.

L1  a joiner is a voter, durably, once it has applied the entry that admits its directory
L2  a voter, or joiner, whose directory was replaced is silent, and halts when it has applied that
L3  a directory is admitted only while it is the one that speaks: an old account admits nobody
L4  one directory of a voter is admitted at a time; one that was replaced, never again (N2)
L5  what a joiner says keeps no leader in office
L6  nothing is proposed that could not be committed: a majority without the joiner has acknowledged
    something since it came. An admission that waits takes the right to vote from the directory
    before, which may yet be found again
"""

from __future__ import annotations

from dataclasses import replace

from ottla.controller.quorum.entries import Admit
from ottla.controller.quorum.journal import Journal
from ottla.controller.quorum.membership import Membership, Standing
from ottla.controller.quorum.messages import AppendAnswer, Message
from ottla.controller.quorum.port import Why
from ottla.proto.errors import StorageError


def may_vote(journal: Journal) -> bool:
    """Tell whether this member may say what only a voter may say (B1)."""
    membership = journal.membership
    admitted = journal.admissions.newest.get(membership.node_id)
    is_mine = admitted in (None, membership.directory_id)
    return membership.standing is Standing.VOTER and is_mine


def next_step(journal: Journal, applied_index: int) -> Membership | None:
    """Return what this member becomes by what it has applied (L1). Raises if that is: nobody."""
    membership, admissions = journal.membership, journal.admissions
    me, directory_id = membership.node_id, membership.directory_id
    if admissions.index(me) > applied_index:
        return None
    if membership.standing is Standing.JOINING and admissions.was_admitted(me, directory_id):
        return replace(membership, standing=Standing.VOTER)
    if is_replaced(journal):
        raise StorageError(
            f"The quorum has admitted node {me} with the data directory {admissions.newest[me]}, "
            f"and this is {directory_id}. Bring that one back, or move this one away and let the "
            "node join again."
        )
    return None


def is_replaced(journal: Journal) -> bool:
    """Tell whether another directory of this member was admitted after its own, for good (N2)."""
    membership = journal.membership
    if membership.standing is Standing.VOTER:
        return not may_vote(journal)
    had = journal.admissions.had(membership.node_id)
    return membership.standing is Standing.JOINING and membership.directory_id in had[:-1]


class Joiners:
    """What one member has heard of the data directories of the others."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._speaks_from: dict[int, str] = {}
        # Since when it speaks from there, and when it acknowledged something last.
        self._speaks_since_ms: dict[int, int] = {}
        self._acknowledged_ms: dict[int, int] = {}

    def hear(self, voter: int, directory_id: str, message: Message, now_ms: int) -> None:
        if self._speaks_from.get(voter) != directory_id:
            self._speaks_from[voter] = directory_id
            self._speaks_since_ms[voter] = now_ms
        if isinstance(message, AppendAnswer) and message.success:
            self._acknowledged_ms[voter] = now_ms

    def is_counted(self, voter: int, directory_id: str, message: Message) -> bool:
        """Tell whether a leader may take the voter for present because of this message (L5)."""
        if not isinstance(message, AppendAnswer) or message.success:
            return True
        admissions = self._journal.admissions
        index = admissions.index(voter)
        # Of an admission of an earlier term it is not known whether the joiner has applied it.
        is_pending = (
            index > self._journal.commit_index
            and self._journal.term_at(index) == self._journal.term
        )
        is_admitted = admissions.newest.get(voter) in (None, directory_id)
        return message.reset and is_admitted and not is_pending

    def why_not(self, admission: Admit) -> Why | None:
        """Return why a leader does not propose this, if it does not."""
        voter, directory_id = admission
        membership, admissions = self._journal.membership, self._journal.admissions
        if voter not in membership.voters or voter == membership.node_id:
            return Why.NO_VOTER
        if admissions.newest.get(voter) == directory_id:
            return Why.ADMITTED_ALREADY
        if directory_id in admissions.had(voter):
            return Why.DIRECTORY_REPLACED
        if admissions.index(voter) > self._journal.commit_index:
            return Why.ADMITTING
        if self._speaks_from.get(voter) != directory_id:
            return Why.NOT_HEARD
        return None if self._is_majority_without(voter) else Why.TOO_FEW

    def _is_majority_without(self, joiner: int) -> bool:
        since_ms = self._speaks_since_ms[joiner]
        present = [
            voter
            for voter, at_ms in self._acknowledged_ms.items()
            if voter != joiner and at_ms > since_ms
        ]
        return 2 * (1 + len(present)) > len(self._journal.membership.voters)

    def trouble(self, leader: int | None) -> str | None:
        """Return what keeps this member from voting, or its quorum from having a leader."""
        membership, admissions = self._journal.membership, self._journal.admissions
        me, directory_id = membership.node_id, membership.directory_id
        if membership.standing is Standing.FORMING:
            return None
        if not may_vote(self._journal):
            if directory_id in admissions.had(me)[:-1]:
                return (
                    "Another data directory of this node takes the place of this one. If it does "
                    "not come back, move this one away and let the node join again."
                )
            return (
                "This node joins with an empty data directory. It votes as soon as a leader and "
                "a majority without it have admitted it."
            )
        strangers = self._strangers()
        if not strangers or (leader is not None and not self.lost_its_directory(leader)):
            return None
        who = ", ".join(map(str, strangers))
        if 2 * (len(membership.voters) - len(strangers)) <= len(membership.voters):
            return (
                f"Too many voters have lost their data directories ({who}): the others are no "
                "majority, and cannot admit them. Bring back the directory of one of them."
            )
        return f"The voters {who} wait for a leader to admit them: start those that are down."

    def lost_its_directory(self, voter: int) -> bool:
        """Tell whether it speaks from another one than was admitted: whatever it was, it is not."""
        admitted = self._journal.admissions.newest.get(voter)
        return admitted not in (None, self._speaks_from.get(voter, admitted))

    def _strangers(self) -> tuple[int, ...]:
        """Return who speaks from a directory whose admission is not known to be committed."""
        admissions, committed = self._journal.admissions, self._journal.commit_index
        return tuple(
            voter
            for voter, directory_id in sorted(self._speaks_from.items())
            if admissions.newest.get(voter) not in (None, directory_id)
            or admissions.index(voter) > committed
        )
