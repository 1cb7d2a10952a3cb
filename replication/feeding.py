"""The leader's end of a replication stream: everything that one follower fetches from this broker.

A waiter with one guest: he knows what the guest has ordered, does not ask again, and comes to the
table when a dish is ready. If nothing is, he comes after a while to say so.

The last claim of every partition is kept, and stands until the follower makes another one. What
happens to a partition puts it on a list; an answer is made of those on the lists, and no message
looks at the others. So thousands of idle partitions cost nothing.

A follower may hear of a new leader before that one does. Then its claim waits for a moment:
refused, the follower would pause, and the writers with it.

A follower that is not in the in-sync set may be let in for reasons that have nothing to do with its
claim: it is no longer fenced, say. So standing claims of such are judged anew from time to time,
always on hearing from the follower.

Not here: whether to serve a claim (`progress.py`, `leader.py`), frames (`proto/replication.py`),
the network (`ottla.node`), the other end (`pulling.py`).

D1  a fetch gets exactly one answer; nobody asks again before it has the last one
D2  a partition that was named in an answer is named again only after a claim that was made with
    knowledge of that answer
D3  batches are read for a claim that was accepted in the leader epoch of this moment     (rule 39)
D4  who did not fit into an answer comes first in the next one; whoever has batches comes before
    those who only hear for the first time, or that they are not led. These wait for a moment,
    and are a few in each answer: after a failover thousands of idle partitions must not stand
    between a writer and its acknowledgement
D5  the follower was heard at the time when the answer was sent that its last ask came after: what
    lay in some buffer since then proves nothing                                     (rule 13)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from ottla.proto.errors import ErrorCode, RemoteProtocolError, RequestError, StorageError
from ottla.proto.ids import BrokerId, LeaderEpoch, Offset
from ottla.proto.replication import (
    PARTS_MAX,
    SERVED,
    Answer,
    AnswerPart,
    Ask,
    Buffer,
    PartitionClaim,
    answer_pieces,
    decode_ask,
)
from ottla.replication.answering import Key, News, divergence, news_of, refusal, service, why_not
from ottla.replication.epochs import EpochEnd
from ottla.replication.progress import FetchClaim
from ottla.replication.replica import Replica
from ottla.replication.storage.failpoints import hit

# A new high watermark alone is worth an answer only after this time: mostly batches come before.
HIGH_WATERMARK_LINGER_MS: Final = 50
# When an answer has as much as this, more batches wait for the next one (ADR 0023).
DRAIN_BYTES_MAX: Final = 1 << 20
# How many partitions hear in one answer for the first time, if there are no batches for them, or
# that they are not led here; and how long that waits. A follower acts on neither: its own
# metadata tells it whom to follow, mostly before this does.
FIRST_WORDS_MAX: Final = 100
FIRST_WORDS_LINGER_MS: Final = 100
# How often standing claims of followers outside of the in-sync set are judged anew.
JUDGE_AGAIN_MS: Final = 500
# Refusals that wait for a fetch. More than that is no follower of ours.
_SAID_MAX: Final = 1 << 17

_NOTHING: Final = (b"",)


class PartitionFeed:
    """One partition on the stream of one follower, from its first claim until it is forgotten."""

    __slots__ = (
        "_feeder",
        "answered_in",
        "claim",
        "is_accepted",
        "is_open",
        "key",
        "replica",
        "told",
    )

    def __init__(self, feeder: Feeder, key: Key, replica: Replica, claim: FetchClaim) -> None:
        self._feeder: Final = feeder
        self.key: Final = key
        self.replica: Final = replica
        # The last one, which stands.
        self.claim = claim
        # It was not answered yet (D2).
        self.is_open = False
        # It is to be served.
        self.is_accepted = False
        # The number of the last answer that named this partition.
        self.answered_in = 0
        # What that answer has told.
        self.told: News | None = None

    @property
    def is_current(self) -> bool:
        """Whether the claim is one for the leader of this moment (D3)."""
        replica = self.replica
        return replica.is_leader and replica.leader_epoch == self.claim.leader_epoch

    def appended(self) -> None:
        self._feeder.on_appended(self)

    def committed(self) -> None:
        self._feeder.on_committed(self)

    def changed(self) -> None:
        self._feeder.on_changed(self)

    def heard_ms(self) -> int | None:
        """Return when the follower surely followed here in this leader epoch, or None (D5)."""
        return self._feeder.heard_ms if self.is_accepted and self.is_current else None


class Feeder:
    """One follower's stream at the leader. Made when the stream begins, closed when it ends."""

    def __init__(
        self,
        follower: BrokerId,
        find: Callable[[bytes, int], Replica | None],
        *,
        bytes_max: Callable[[], int],
        wait_ms: Callable[[], int],
        now_ms: Callable[[], int],
        wake: Callable[[], None],
        look: Callable[[], None],
    ) -> None:
        """`wake` is called when `next_answer` may be another, `look` when only `due_ms` may."""
        self.follower: Final = follower
        # None: nothing proves yet that it follows.
        self.heard_ms: int | None = None
        self._find: Final = find
        self._bytes_max: Final = bytes_max
        self._wait_ms: Final = wait_ms
        self._now_ms: Final = now_ms
        self._wake: Final = wake
        self._look: Final = look
        self._feeds: Final[dict[Key, PartitionFeed]] = {}
        # What is to be said: refusals and where logs part; who has batches, longest waiting first;
        # since when: who hears for the first time, has news, or is not led here, any more or yet.
        self._said: Final[dict[Key, AnswerPart]] = {}
        self._ready: Final[dict[PartitionFeed, None]] = {}
        self._unheard: Final[dict[PartitionFeed, int]] = {}
        self._news: Final[dict[PartitionFeed, int]] = {}
        self._unled: Final[dict[PartitionFeed, int]] = {}
        # Whose claims came before the metadata did, which is here now.
        self._early: Final[dict[PartitionFeed, None]] = {}
        # Whose claims are to be judged anew: from time to time, and at the next ask.
        self._outside: Final[dict[PartitionFeed, None]] = {}
        self._fresh: Final[dict[PartitionFeed, None]] = {}
        self._judged_ms: int | None = None
        # Since when a fetch waits for its answer.
        self._fetch_ms: int | None = None
        # Of the last answer; and which one the follower is known to have.
        self._number = 0
        self._sent_ms = 0
        self._acknowledged = 0
        # Of the last ask.
        self._broker_epoch = -1

    # ── What the follower says ────────────────────────────────────────────────────────────────

    def take(self, ask: Buffer) -> None:
        """Hear the follower; raise `RemoteProtocolError` if that is no ask, or out of turn."""
        heard = decode_ask(ask)
        self._require_turn(heard)
        self._broker_epoch = heard.broker_epoch
        if heard.is_last and heard.answered > self._acknowledged:
            self._acknowledged = heard.answered
            self.heard_ms = self._sent_ms
        for said in heard.claims:
            self._take_claim(heard, said)
        if heard.is_last and (self._outside or self._fresh):
            self._judge_again(heard.broker_epoch)
        if heard.is_fetch:
            self._fetch_ms = self._now_ms()
        if self._fetch_ms is not None and self._has_words:
            self._wake()

    @property
    def _has_words(self) -> bool:
        """Whether there is something to say at once. On a new stream that is anything at all."""
        return bool(self._said or self._ready or (self._unheard and self._number == 0))

    def _require_turn(self, ask: Ask) -> None:
        is_known = self._acknowledged <= ask.answered <= self._number
        is_late = self._fetch_ms is not None or ask.answered != self._number
        if not is_known or (ask.is_fetch and is_late):
            raise RemoteProtocolError(
                f"an ask that follows answer {ask.answered}, where {self._number} was the last"
            )
        if len(self._said) > _SAID_MAX:
            raise RemoteProtocolError(f"{len(self._said)} claims that were refused, and no fetch")

    def _take_claim(self, ask: Ask, said: PartitionClaim) -> None:
        key = said.topic_id, said.index
        self._said.pop(key, None)
        feed = self._feeds.get(key)
        if feed is not None:
            self._unled.pop(feed, None)
            self._early.pop(feed, None)
        if said.is_forgotten:
            if feed is not None:
                self._drop(feed)
            return
        claim = FetchClaim(
            LeaderEpoch(said.leader_epoch),
            Offset(said.fetch_offset),
            Offset(said.held_offset),
            LeaderEpoch(said.last_epoch),
            said.is_synced,
        )
        replica = self._find(*key)
        if feed is not None and feed.replica is not replica:
            self._drop(feed)
            feed = None
        is_early = replica is not None and claim.leader_epoch > replica.leader_epoch
        if replica is None or not (replica.is_leader or is_early):
            self._said[key] = refusal(key, claim, why_not(replica, claim), replica)
            return
        if feed is None:
            feed = self._feeds[key] = PartitionFeed(self, key, replica, claim)
            replica.feeds[self.follower] = feed
        feed.claim = claim
        # What was said before the answer came that names it will be said again (D2).
        feed.is_open = feed.is_open or ask.answered >= feed.answered_in
        if is_early:
            self._put_unled(feed)
        else:
            self._judge(feed, ask.broker_epoch)

    def _judge(self, feed: PartitionFeed, broker_epoch: int) -> None:
        replica, log, held = feed.replica, feed.replica.log, feed.replica.log.held_by_all
        verdict = replica.fetched(self.follower, broker_epoch, feed.claim)
        if held < log.end_offset <= log.held_by_all and log.settings.compact:
            # On a quiet topic nothing else is told to the others, who clean what all have (Q8).
            for one in replica.feeds.values():
                one.committed()
        feed.is_accepted = verdict is None
        if verdict is None:
            if feed.is_open:
                self._queue(feed)
            core = replica.leader
            if core is not None and self.follower not in core.isr:
                self._outside[feed] = None
            else:
                self._outside.pop(feed, None)
            return
        self._leave_lists(feed)
        if feed.is_open and isinstance(verdict, EpochEnd):
            self._said[feed.key] = divergence(feed.key, feed.claim, replica, verdict)
        elif feed.is_open and isinstance(verdict, ErrorCode):
            self._said[feed.key] = refusal(feed.key, feed.claim, verdict, replica)

    def _judge_again(self, broker_epoch: int) -> None:
        now_ms = self._now_ms()
        due = dict(self._fresh)
        self._fresh.clear()
        if self._judged_ms is None or now_ms >= self._judged_ms + JUDGE_AGAIN_MS:
            self._judged_ms = now_ms
            due.update(self._outside)
        for feed in due:
            if feed.is_accepted and feed.is_current:
                self._judge(feed, broker_epoch)
            else:
                self._outside.pop(feed, None)

    def _judge_early(self) -> None:
        """Judge what was claimed a moment before this broker heard that it leads."""
        while self._early:
            feed, _ = self._early.popitem()
            if self._unled.pop(feed, None) is not None and feed.is_current:
                self._judge(feed, self._broker_epoch)

    def _queue(self, feed: PartitionFeed) -> None:
        """Put a claim that is served on the list where it belongs, if there is news for it."""
        log, claim, told = feed.replica.log, feed.claim, feed.told
        if log.end_offset > claim.fetch_offset:
            self._put_ready(feed)
            return
        self._ready.pop(feed, None)
        if told is None or told[0] != claim.leader_epoch:
            self._unheard.setdefault(feed, self._now_ms())
            self._news.pop(feed, None)
        elif told != news_of(claim, feed.replica):
            self._news.setdefault(feed, self._now_ms())

    def _put_ready(self, feed: PartitionFeed) -> None:
        self._ready[feed] = None
        self._unheard.pop(feed, None)
        self._news.pop(feed, None)

    def _leave_lists(self, feed: PartitionFeed) -> None:
        self._ready.pop(feed, None)
        self._unheard.pop(feed, None)
        self._news.pop(feed, None)
        self._outside.pop(feed, None)
        self._fresh.pop(feed, None)
        self._unled.pop(feed, None)
        self._early.pop(feed, None)

    def _drop(self, feed: PartitionFeed) -> None:
        feed.is_open = feed.is_accepted = False
        self._leave_lists(feed)
        self._feeds.pop(feed.key, None)
        # A newer stream of the same follower may have put its own there.
        if feed.replica.feeds.get(self.follower) is feed:
            del feed.replica.feeds[self.follower]

    def close(self) -> None:
        """Feed nobody any more."""
        for feed in tuple(self._feeds.values()):
            self._drop(feed)
        self._said.clear()
        self._fetch_ms = None

    # ── What happens to partitions ────────────────────────────────────────────────────────────

    def on_appended(self, feed: PartitionFeed) -> None:
        """There are batches for it."""
        if feed.is_open and feed.is_accepted and feed not in self._ready:
            self._put_ready(feed)
            if self._fetch_ms is not None:
                self._wake()

    def on_committed(self, feed: PartitionFeed) -> None:
        """Its high watermark or its start has moved."""
        if not (feed.is_open and feed.is_accepted):
            return
        if feed in self._ready or feed in self._unheard or feed in self._news:
            return
        self._news[feed] = self._now_ms()
        if self._fetch_ms is not None and len(self._news) == 1:
            # There is a time now at which an answer is due.
            self._look()

    def on_changed(self, feed: PartitionFeed) -> None:
        """Somebody else leads it, or in another epoch, or its metadata is newer."""
        if not feed.is_current:
            self._put_unled(feed)
        elif feed in self._unled:
            self._early[feed] = None
            self._wake()
        else:
            self._fresh[feed] = None

    def _put_unled(self, feed: PartitionFeed) -> None:
        """Let a claim wait that is not one for the leader of this moment: to be refused, soon."""
        feed.is_accepted, since_ms = False, self._unled.get(feed, self._now_ms())
        self._leave_lists(feed)
        if feed.is_open:
            self._unled[feed] = since_ms
            if self._fetch_ms is not None and len(self._unled) == 1:
                self._look()

    # ── What the leader says ──────────────────────────────────────────────────────────────────

    def due_ms(self) -> int | None:
        """Return when an answer is due for time's sake; None: no answer is owed."""
        if self._fetch_ms is None:
            return None
        if self._has_words:
            return self._fetch_ms
        due_ms = self._fetch_ms + self._wait_ms()
        if self._news:
            due_ms = min(due_ms, _oldest_ms(self._news) + HIGH_WATERMARK_LINGER_MS)
        if self._unheard:
            due_ms = min(due_ms, _oldest_ms(self._unheard) + FIRST_WORDS_LINGER_MS)
        if self._unled:
            due_ms = min(due_ms, _oldest_ms(self._unled) + FIRST_WORDS_LINGER_MS)
        return due_ms

    def next_answer(self) -> list[Buffer] | None:
        """Return the pieces of an answer that is due, to be sent now, or None."""
        self._judge_early()
        due_ms = self.due_ms()
        if due_ms is None or (now_ms := self._now_ms()) < due_ms:
            return None
        parts = self._take_said() if self._said else []
        self._take_ready(parts)
        if self._unled or self._unheard or self._news:
            self._take_unled(parts, now_ms)
            self._take_unheard(parts, now_ms)
            self._take_news(parts, now_ms)
        hit("leader.feed")
        self._number += 1
        self._sent_ms = now_ms
        self._fetch_ms = None
        return answer_pieces(Answer(self._number, bool(self._said or self._ready), parts))

    def _take_said(self) -> list[AnswerPart]:
        parts: list[AnswerPart] = []
        for key in tuple(islice(self._said, PARTS_MAX)):
            parts.append(self._said.pop(key))
            feed = self._feeds.get(key)
            if feed is not None:
                self._named(feed)
        return parts

    def _take_ready(self, parts: list[AnswerPart]) -> None:
        """Add batches, up to the bound; the first batch of an answer is sent whatever its size."""
        bytes_max = self._bytes_max()
        left = min(bytes_max, DRAIN_BYTES_MAX)
        size = 0
        # Reading may fail a log, which takes others off the list.
        for feed in tuple(islice(self._ready, PARTS_MAX - len(parts))):
            if feed not in self._ready:
                continue
            part = self._serve(feed, left - size, bytes_max - size)
            if size and size + part.size > bytes_max:
                break
            self._ready.pop(feed, None)
            self._say(feed, part)
            parts.append(part)
            size += part.size
            if size >= left:
                break

    def _take_unled(self, parts: list[AnswerPart], now_ms: int) -> None:
        """Add some of those who are not led here, and have waited for that (D4)."""
        for feed in self._due(self._unled, parts, now_ms):
            why = why_not(feed.replica, feed.claim)
            self._named(feed)
            parts.append(refusal(feed.key, feed.claim, why, feed.replica))

    def _take_unheard(self, parts: list[AnswerPart], now_ms: int) -> None:
        """Add some of those who hear for the first time; the others have the next answers (D4)."""
        for feed in self._due(self._unheard, parts, now_ms):
            part = self._serve(feed, 0, 0)
            self._say(feed, part)
            parts.append(part)

    def _due(
        self, waiting: dict[PartitionFeed, int], parts: Sequence[AnswerPart], now_ms: int
    ) -> list[PartitionFeed]:
        """Take some off a list that have waited long enough; on a new stream nobody has to."""
        until_ms = now_ms if self._number == 0 else now_ms - FIRST_WORDS_LINGER_MS
        some = islice(waiting.items(), min(FIRST_WORDS_MAX, PARTS_MAX - len(parts)))
        due = [feed for feed, since_ms in some if since_ms <= until_ms]
        for feed in due:
            del waiting[feed]
        return due

    def _say(self, feed: PartitionFeed, part: AnswerPart) -> None:
        """Take note of what the next answer says of a partition that was to be served."""
        self._named(feed)
        if part.kind == SERVED:
            feed.told = news_of(feed.claim, feed.replica)
        else:
            # It may have been refused twice, once by the failure itself.
            feed.is_accepted = False
            self._said.pop(feed.key, None)

    def _take_news(self, parts: list[AnswerPart], now_ms: int) -> None:
        """Add new high watermarks that have waited, or all of them if there is nothing else."""
        is_alone = not parts
        for feed, since_ms in tuple(islice(self._news.items(), PARTS_MAX - len(parts))):
            if not is_alone and now_ms < since_ms + HIGH_WATERMARK_LINGER_MS:
                break
            del self._news[feed]
            self._named(feed)
            feed.told = news_of(feed.claim, feed.replica)
            parts.append(service(feed.key, feed.claim, feed.replica, _NOTHING))

    def _named(self, feed: PartitionFeed) -> None:
        feed.is_open = False
        feed.answered_in = self._number + 1

    def _serve(self, feed: PartitionFeed, wanted: int, bytes_max: int) -> AnswerPart:
        replica, claim = feed.replica, feed.claim
        if not feed.is_current:
            return refusal(feed.key, claim, why_not(replica, claim), replica)
        if self._find(*feed.key) is not replica:
            # Deleted: its files may be gone, which is no failure of the disk.
            return refusal(feed.key, claim, ErrorCode.UNKNOWN_TOPIC_ID, None)
        if replica.log.end_offset <= claim.fetch_offset:
            return service(feed.key, claim, replica, _NOTHING)
        try:
            pieces = replica.read(claim.fetch_offset, wanted, bytes_max)
            return service(feed.key, claim, replica, pieces)
        except RequestError as error:
            return refusal(feed.key, claim, error.code, replica)
        except StorageError:
            return refusal(feed.key, claim, ErrorCode.KAFKA_STORAGE_ERROR, replica)


def _oldest_ms(waiting: dict[PartitionFeed, int]) -> int:
    return next(iter(waiting.values()))
