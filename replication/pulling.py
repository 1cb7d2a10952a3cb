"""The follower's end of a replication stream: everything that this broker fetches from one leader.

A shopper with a long list and one errand boy. The boy is sent when he is back, never twice at a
time, and is told only what is new on the list.

One fetch is under way at a time. When its answer has come, what it brought is appended and begins
to be synced; the next ask waits a little for that, so that one message says both where to read on
and what is held. If the leader has more at once, or a sync takes long, it is not waited for: then
what is held is said later, by an ask that is no fetch.

Whatever may change the next step of a replica puts it on a list, and an ask is made of those on the
list. So thousands of idle partitions cost nothing.

Not here: what a follower does next (`follower.py`), the log (`replica.py`), frames
(`proto/replication.py`), the network (`ottla.node`), the other end (`feeding.py`).

U1  one fetch at a time; the answer to it is the next in number
U2  an answer to a claim that does not stand any more changes nothing     (rule 45)
U3  what is no longer followed here is said with the next ask, before anything else: an ask proves
    to the leader that all it does not name is followed as before         (rule 13)
U4  cuts are carried out a few at a time, and never while the log is busy
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from ottla.proto.errors import ErrorCode, RemoteProtocolError
from ottla.proto.ids import BrokerId, LeaderEpoch, Offset
from ottla.proto.replication import (
    DIVERGED,
    SERVED,
    AnswerPart,
    Ask,
    Buffer,
    PartitionClaim,
    decode_answer,
    encode_asks,
)
from ottla.replication.copying import Sent
from ottla.replication.epochs import EpochEnd
from ottla.replication.follower import Cut, Reset, Step
from ottla.replication.progress import FetchClaim
from ottla.replication.replica import Replica
from ottla.replication.storage.failpoints import hit

# How long an ask waits for the syncs that the last answer began.
SYNC_WAIT_MS: Final = 20
# How many logs are cut by one call, each with several syncs of the disk.
CUTS_MAX: Final = 4
# When to look again at a log that is to be cut and is busy.
CUT_PAUSE_MS: Final = 20

_CUTS: Final = (Cut, Reset)

_Key = tuple[bytes, int]


class _Followed:
    """One partition that is fetched on this stream."""

    __slots__ = ("claim", "is_said", "key", "replica", "resume_ms")

    def __init__(self, key: _Key, replica: Replica) -> None:
        self.key: Final = key
        self.replica: Final = replica
        # What the leader has to answer, as it was said last; None: nothing.
        self.claim: FetchClaim | None = None
        # The leader knows of this partition by this stream.
        self.is_said = False
        # When it is looked at again for time's sake.
        self.resume_ms: int | None = None


class Puller:
    """All that is fetched from one leader. It outlives streams: each begins with `connected`."""

    def __init__(
        self,
        leader: BrokerId,
        *,
        broker_epoch: Callable[[], int],
        now_ms: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called when `next_asks` may have something to send."""
        self.leader: Final = leader
        self._broker_epoch: Final = broker_epoch
        self._now_ms: Final = now_ms
        self._wake: Final = wake
        self._followed: Final[dict[_Key, _Followed]] = {}
        # Whose next step may be another; and what is not followed any more, to be said.
        self._changed: dict[_Followed, None] = {}
        self._forgotten: dict[_Key, None] = {}
        # By the time at which they are looked at again; the number settles ties.
        self._paused: Final[list[tuple[int, int, _Followed]]] = []
        self._paused_count = 0
        # What the last answer has brought, to be synced up to this offset; waited for until then.
        self._syncing: Final[dict[_Followed, Offset]] = {}
        self._patient_until_ms = 0
        self._is_connected = False
        self._has_fetch = False
        # The leader will answer at once: it said that it has more.
        self._has_more = False
        # Of the last answer.
        self._number = 0
        self._said_epoch = -1

    @property
    def is_empty(self) -> bool:
        return not self._followed

    def add(self, replica: Replica) -> None:
        """Fetch this partition, too."""
        key = _key_of(replica)
        known = self._followed.get(key)
        if known is not None and known.replica is not replica:
            self.remove(known.replica)
            known = None
        if known is None:
            known = self._followed[key] = _Followed(key, replica)
        replica.puller = self
        self._changed[known] = None
        self._wake()

    def remove(self, replica: Replica) -> None:
        """Fetch this partition no more."""
        followed = self._of(replica)
        if followed is None:
            return
        del self._followed[followed.key]
        self._changed.pop(followed, None)
        self._syncing.pop(followed, None)
        if followed.is_said:
            self._forgotten[followed.key] = None
        if replica.puller is self:
            replica.puller = None
        self._wake()

    def changed(self, replica: Replica) -> None:
        """Take note that the replica's next step may be another."""
        followed = self._of(replica)
        if followed is None:
            return
        self._changed[followed] = None
        awaited = self._syncing.get(followed)
        if awaited is not None and replica.log.held_offset >= awaited:
            del self._syncing[followed]
        self._wake()

    def _of(self, replica: Replica) -> _Followed | None:
        followed = self._followed.get(_key_of(replica))
        return followed if followed is not None and followed.replica is replica else None

    def connected(self) -> None:
        """Begin a new stream: the leader knows nothing yet, and its answers count from 1."""
        self._is_connected = True
        self._has_fetch = self._has_more = False
        self._number = 0
        self._forgotten.clear()
        self._syncing.clear()
        for followed in self._followed.values():
            followed.is_said = False
        self._say_all_again()
        self._wake()

    def _say_all_again(self) -> None:
        self._said_epoch = self._broker_epoch()
        for followed in self._followed.values():
            followed.claim = None
            self._changed[followed] = None

    # ── What the leader says ──────────────────────────────────────────────────────────────────

    def take(self, answer: Buffer) -> None:
        """Take an answer; raise `RemoteProtocolError` if it is none, or not the one that is due."""
        heard = decode_answer(answer)
        if not self._has_fetch or heard.number != self._number + 1:
            raise RemoteProtocolError(
                f"answer {heard.number} where {self._number + 1} is the next, and "
                f"{'it is' if self._has_fetch else 'none is'} due"
            )
        self._number = heard.number
        self._has_fetch = False
        self._has_more = heard.has_more
        self._patient_until_ms = self._now_ms() + SYNC_WAIT_MS
        for part in heard.parts:
            followed = self._followed.get((part.topic_id, part.index))
            if followed is not None:
                self._take_part(followed, part)
        self._wake()

    def _take_part(self, followed: _Followed, part: AnswerPart) -> None:
        # Whatever becomes of it: the leader does not answer again before a new claim.
        claim, followed.claim = followed.claim, None
        self._changed[followed] = None
        if (
            claim is None
            or claim.leader_epoch != part.leader_epoch
            or claim.fetch_offset != part.fetch_offset
        ):
            return
        replica = followed.replica
        if part.kind == SERVED:
            self._take_batches(followed, claim, part)
        elif part.kind == DIVERGED:
            end = EpochEnd(LeaderEpoch(part.epoch), Offset(part.end_offset))
            replica.diverged(claim, end)
        else:
            start, end_offset = Offset(part.start_offset), Offset(part.end_offset)
            replica.refused(claim, _code_of(part.code), start, end_offset)

    def _take_batches(self, followed: _Followed, claim: FetchClaim, part: AnswerPart) -> None:
        replica = followed.replica
        sent = Sent(
            part.batches,
            Offset(part.high_watermark),
            Offset(part.start_offset),
            Offset(part.gaps_below),
            Offset(part.held_by_all),
        )
        replica.took(claim, sent)
        log = replica.log
        end_offset = log.end_offset
        if end_offset == claim.fetch_offset:
            if part.end_offset > end_offset and not part.batches:
                # The leader says that there is more, and has none of it: not at once again.
                replica.refused(claim, ErrorCode.UNKNOWN_SERVER_ERROR, Offset(-1), Offset(-1))
            return
        if end_offset < part.end_offset:
            self._has_more = True
        if log.held_offset < end_offset:
            self._syncing[followed] = end_offset

    # ── What the follower says ────────────────────────────────────────────────────────────────

    def next_asks(self) -> list[bytes]:
        """Return the frames to send now, none if there is nothing to be said.

        Cuts that are due are carried out first, a few by each call.
        """
        now_ms = self._now_ms()
        if not self._is_connected or self._is_patient(now_ms):
            return []
        self._resume(now_ms)
        broker_epoch = self._broker_epoch()
        if broker_epoch != self._said_epoch:
            # Idle partitions, too: only who is known to live now can be let into in-sync sets.
            self._say_all_again()
        if self._has_fetch and not (self._changed or self._forgotten):
            return []
        claims = self._take_claims(now_ms)
        is_fetch = not self._has_fetch and not self.is_empty
        if not claims and not is_fetch:
            return []
        if is_fetch:
            self._has_fetch = True
            self._syncing.clear()
        # A held offset that is new need not be said while an answer is surely on its way.
        self._patient_until_ms = now_ms + SYNC_WAIT_MS
        hit("follower.claim")
        return encode_asks(Ask(broker_epoch, self._number, is_fetch, claims))

    def due_ms(self) -> int | None:
        """Return when to call `next_asks` again for time's sake, or None."""
        if not self._is_connected:
            return None
        now_ms = self._now_ms()
        has_news = bool(self._changed or self._forgotten or not (self._has_fetch or self.is_empty))
        due_ms = None
        if has_news:
            due_ms = self._patient_until_ms if self._is_patient(now_ms) else now_ms
        if self._paused:
            resume_ms = self._paused[0][0]
            due_ms = resume_ms if due_ms is None else min(due_ms, resume_ms)
        return due_ms

    def _is_patient(self, now_ms: int) -> bool:
        """Whether it is better to say nothing yet: soon there is more to be said at once."""
        if now_ms >= self._patient_until_ms:
            return False
        return self._has_more if self._has_fetch else bool(self._syncing) and not self._has_more

    def _resume(self, now_ms: int) -> None:
        paused = self._paused
        while paused and paused[0][0] <= now_ms:
            resume_ms, _, followed = heappop(paused)
            if followed.resume_ms == resume_ms:
                followed.resume_ms = None
            if self._followed.get(followed.key) is followed:
                self._changed[followed] = None

    def _pause(self, followed: _Followed, resume_ms: int) -> None:
        if followed.resume_ms != resume_ms:
            followed.resume_ms = resume_ms
            self._paused_count += 1
            heappush(self._paused, (resume_ms, self._paused_count, followed))

    def _take_claims(self, now_ms: int) -> list[PartitionClaim]:
        """Return what is to be said; cut logs where that comes first."""
        changed, self._changed = self._changed, {}
        claims: list[PartitionClaim] = []
        cut_count = 0
        for followed in changed:
            step = followed.replica.next_step()
            if isinstance(step, _CUTS):
                if cut_count == CUTS_MAX:
                    self._changed[followed] = None
                    continue
                cut_count += 1
                step = self._cut(followed, step, now_ms)
            if isinstance(step, FetchClaim):
                if step != followed.claim:
                    followed.claim = step
                    followed.is_said = True
                    claims.append(_said(followed.key, step))
            elif step is None:
                self._wait(followed)
        forgotten = [PartitionClaim(*key, 0, 0, 0, -1, False, True) for key in self._forgotten]
        self._forgotten.clear()
        return forgotten + claims

    def _cut(self, followed: _Followed, step: Cut | Reset, now_ms: int) -> Step | None:
        """Carry a cut out if nobody is at work on the log; return what comes next."""
        replica = followed.replica
        if replica.may_cut:
            replica.carry_out(step)
            # It has told of itself meanwhile.
            self._changed.pop(followed, None)
            return replica.next_step()
        self._pause(followed, now_ms + CUT_PAUSE_MS)
        return step

    def _wait(self, followed: _Followed) -> None:
        resume_ms = followed.replica.resume_at_ms
        if resume_ms is not None:
            self._pause(followed, resume_ms)
        elif followed.is_said:
            # It leads, has failed, or waits for metadata: the leader is not to count on it.
            followed.is_said = False
            followed.claim = None
            self._forgotten[followed.key] = None


def _key_of(replica: Replica) -> _Key:
    return replica.topic_id, replica.partition.partition


def _said(key: _Key, claim: FetchClaim) -> PartitionClaim:
    leader_epoch, fetch_offset, held_offset, last_epoch, is_synced = claim
    return PartitionClaim(*key, leader_epoch, fetch_offset, held_offset, last_epoch, is_synced)


def _code_of(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        # From a leader that knows more errors than we do.
        return ErrorCode.UNKNOWN_SERVER_ERROR
