"""The promises of a cluster, each with a name, and what must be remembered to check them.

They are checked after every event, at the place that the event has touched.

I0   nobody stops by itself: members and brokers go on, whatever arrives
I1   a term has one leader, and a majority voted for it
I2   there is one history: an entry, once committed, is the same wherever it is; a version of the
     metadata has one digest
I3   what was acknowledged stays: every later leader holds it, with the outcome that was told
I4   a request is obeyed once
I5   a broker's metadata never goes back
I6   a leader is in sync, and who is in sync is a replica; epochs only grow; a leader epoch has one
     leader
I7   whoever leads a partition, is in sync with it or may be elected holds all that is committed
I8   a voter votes once in a term, over all its lives
I9   after the storm everything goes on, and all agree
I10  no majority that could elect one of its own lacks, on its disks, something that is committed
I11  a broker that relies on being heard knows of every fencing that whoever heard it knew of
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.controller.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.controller.outcome import Outcome
from ottla.controller.proposal import NO_REQUEST, RequestId, decode_proposal
from ottla.controller.quorum import transport
from ottla.controller.quorum.joining import may_vote
from ottla.controller.quorum.journal import Journal
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.messages import Envelope, RequestVote, Vote
from ottla.controller.quorum.transport import View
from ottla.proto.errors import RequestError
from tests.sim.cluster.schedule import Schedule


class BrokenInvariantError(AssertionError):
    """A promise was broken; its name comes first."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(f"{name}: {sentence}")
        self.name = name


@dataclass(slots=True)
class _Seen:
    """What was last seen of a member."""

    syncs: int = -1
    commit_index: int = 1
    leads_term: int = -1
    # Up to here its disk holds what is committed, as far as was looked.
    held: int = 1
    is_voter: bool = True
    journal: Journal | None = None


class Invariants:
    """What was promised so far."""

    def __init__(self, schedule: Schedule, members: int) -> None:
        self._schedule = schedule
        self._majority = members // 2 + 1
        self._broken: BrokenInvariantError | None = None
        self.leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._seen = {node: _Seen() for node in range(1, members + 1)}
        # By index: the term and the command of what is committed. An entry that went under a
        # snapshot in the very event in which it was committed may be missing; digests tell of it.
        self._chain: dict[int, tuple[int, bytes]] = {}
        self._newest = 1
        # By version, from 0.
        self.digests: list[bytes] = [b""]
        self.newest: MetadataImage | None = None
        self._obeyed: dict[RequestId, Outcome] = {}
        self._leader_of: dict[tuple[bytes, int, int], int] = {}
        self._of_brokers: dict[tuple[int, int], int] = {}
        # By id and epoch: the versions at which a life of a broker was fenced.
        self._fencings: dict[tuple[int, int], list[int]] = {}
        self.acknowledged = 0
        self._told_version = 0

    def fail(self, name: str, sentence: str) -> None:
        """Note a broken promise; it is raised when the event is over, whoever catches what."""
        if self._broken is None:
            self._broken = BrokenInvariantError(name, sentence)

    def require(self) -> None:
        if self._broken is not None:
            raise self._broken

    # ── Members ───────────────────────────────────────────────────────────────────────────────

    def hear(self, envelope: Envelope) -> None:
        """A member says something: a vote counts from here on (I8)."""
        message = envelope.message
        if isinstance(message, Vote):
            self._vote(envelope.sender, message.term, envelope.receiver)
        elif isinstance(message, RequestVote):
            self._vote(envelope.sender, message.term, envelope.sender)

    def _vote(self, voter: int, term: int, candidate: int) -> None:
        before = self._votes.setdefault((voter, term), candidate)
        if before != candidate:
            told = f"member {voter} votes for {candidate} in term {term}, after {before}"
            self.fail("I8", told)

    def look_at_leader(self, node: int, term: int) -> None:
        """A member leads (I1)."""
        if self._seen[node].leads_term == term:
            return
        self._seen[node].leads_term = term
        self._schedule.note("member %d leads in term %d", node, term)
        before = self.leaders.setdefault(term, node)
        if before != node:
            self.fail("I1", f"{before} and {node} lead in term {term}")
        voters = [n for n in self._seen if self._votes.get((n, term)) == node]
        if len({*voters, node}) < self._majority:
            self.fail("I1", f"{node} leads in term {term} by the votes of {voters} alone")

    def look_at_log(self, node: int, journal: Journal) -> None:
        """A member's journal may have changed (I2, I10)."""
        seen = self._seen[node]
        if journal.commit_index > seen.commit_index:
            self._commit(node, journal, seen.commit_index)
            seen.commit_index = journal.commit_index
        is_voter = may_vote(journal)
        if (journal.syncs != seen.syncs and journal.is_synced) or is_voter != seen.is_voter:
            seen.syncs, seen.is_voter, seen.journal = journal.syncs, is_voter, journal
            seen.held = self._held(journal)
            self._require_majority(node)

    def restarted(self, node: int, journal: Journal) -> None:
        self._seen[node].syncs = -1
        self._seen[node].leads_term = -1
        self._seen[node].commit_index = journal.committed_at_start
        self.look_at_log(node, journal)

    def wiped(self, node: int) -> None:
        """A member lost its disk, and with it the right to vote."""
        self._seen[node] = _Seen(is_voter=False)

    def _commit(self, node: int, journal: Journal, before: int) -> None:
        first = max(before + 1, journal.first_index)
        for entry in journal[first - journal.first_index :]:
            if entry.index > journal.commit_index:
                break
            known = self._chain.setdefault(entry.index, (entry.term, entry.command))
            if known != (entry.term, entry.command):
                told = f"member {node} has committed another entry {entry.index}: {entry}"
                self.fail("I2", told)
        self._newest = max(self._newest, journal.commit_index)

    def _held(self, journal: Journal) -> int:
        # Only what is on the disk counts.
        on_disk = min(journal._stored_last, journal._changed_from - 1)
        index = min(journal.last_index, on_disk, self._newest)
        first, chain = journal.first_index, self._chain
        while index > first and index in chain and journal.term_at(index) != chain[index][0]:
            index -= 1
        return index

    def _require_majority(self, node: int) -> None:
        newest = self._newest
        lacking = []
        for voter, seen in self._seen.items():
            if seen.is_voter and seen.held < newest:
                if seen.journal is not None:
                    seen.held = self._held(seen.journal)
                if seen.held < newest:
                    lacking.append(voter)
        if len(lacking) >= self._majority and any(
            sum(self._could_vote(one, voter) for voter in lacking) >= self._majority
            for one in lacking
        ):
            told = f"{newest} is committed, and after what {node} did the disks of {lacking} lack"
            self.fail("I10", f"{told} it: they hold {[self._seen[n].held for n in lacking]}")

    def _could_vote(self, candidate: int, voter: int) -> bool:
        """Whether the voter could vote for the candidate, and the candidate would count that.

        A disk that was lost, replaced and found again may believe that it votes; nobody counts it.
        """
        mine, its = self._seen[candidate].journal, self._seen[voter].journal
        if candidate == voter or mine is None or its is None:
            return candidate == voter
        is_new = (mine.last_term, mine.last_index) >= (its.last_term, its.last_index)
        vote = Envelope("", voter, candidate, its.membership.directory_id, "", 1, 1, Vote(1))
        view = View(Standing.VOTER, 1, False, 1, mine.admissions.newest)
        return is_new and transport._check_directory(vote, view) is None

    # ── Metadata ──────────────────────────────────────────────────────────────────────────────

    def applied(
        self, node: int, before: MetadataImage, after: MetadataImage, data: bytes, outcome: Outcome
    ) -> None:
        """A member applied a command (I2, I4, I6)."""
        version = after.version
        if version < len(self.digests):
            self.restored(node, after)
            return
        if version > len(self.digests):
            self.fail("I2", f"member {node} is at version {version}, and nobody was before it")
            return
        self.digests.append(after.digest)
        self.newest = after
        self._obey(version, data, outcome)
        if before.brokers is not after.brokers:
            self._note_fencings(before, after)
        if before.topics is not after.topics:
            self._check_topics(before, after)

    def _note_fencings(self, before: MetadataImage, after: MetadataImage) -> None:
        for key, broker in after.brokers.items():
            was = before.brokers.get(key)
            if was is not None and broker.is_fenced and not was.is_fenced:
                self._fencings.setdefault((key, broker.broker_epoch), []).append(after.version)

    def restored(self, node: int, image: MetadataImage) -> None:
        known = self.digests[image.version] if image.version < len(self.digests) else None
        if known != image.digest:
            self.fail("I2", f"member {node} has another version {image.version} than others")

    def _obey(self, version: int, data: bytes, outcome: Outcome) -> None:
        try:
            proposal = decode_proposal(data, feature_level=1)
        except RequestError:
            return
        kind = type(proposal.command).__name__
        refusal = "" if outcome.refusal is None else f" ({outcome.refusal.code.name})"
        self._schedule.note("version %d is %s of %s%s", version, kind, proposal.request, refusal)
        if proposal.request == NO_REQUEST or outcome.is_unknown:
            return
        before = self._obeyed.get(proposal.request)
        if before is None:
            self._obeyed[proposal.request] = outcome
        elif outcome.version == version or outcome.answer() != before.answer():
            self.fail("I4", f"{proposal.request} was obeyed at {before.version} and at {version}")

    def acknowledge(self, request: RequestId, outcome: Outcome) -> None:
        """Somebody was told what came of a request (I3)."""
        if outcome.is_unknown:
            return
        self.acknowledged += 1
        self._told_version = max(self._told_version, outcome.version or 0)
        known = self._obeyed.get(request)
        if known is None or known.answer() != outcome.answer():
            self.fail("I3", f"{request} was told {outcome}, and what happened is {known}")

    def took_office(self, node: int, image: MetadataImage) -> None:
        if image.version < self._told_version:
            told = f"{self._told_version}, which was told, is not there"
            self.fail("I3", f"{node} takes office at version {image.version}: {told}")

    def _check_topics(self, before: MetadataImage, after: MetadataImage) -> None:
        for name, topic in after.topics.items():
            old = before.topics.get(name)
            if old is topic:
                continue
            if old is not None and old.topic_id != topic.topic_id:
                old = None
            for index, partition in enumerate(topic.partitions):
                was = old.partitions[index] if old and index < len(old.partitions) else None
                if was is not partition:
                    self._check_partition(topic, index, was, partition)

    def _check_partition(
        self, topic: TopicInfo, index: int, was: PartitionInfo | None, now: PartitionInfo
    ) -> None:
        what = f"{topic.name}/{index}: {now}"
        leader = () if now.leader is None else (now.leader,)
        if not set(leader) <= set(now.isr) <= set(now.replicas) or set(now.isr) & set(now.elr):
            self.fail("I6", f"{what}: who leads is in sync, and who is in sync is a replica")
        if was is not None and (
            now.partition_epoch <= was.partition_epoch
            or now.leader_epoch < was.leader_epoch
            or (now.leader != was.leader and now.leader_epoch == was.leader_epoch)
        ):
            self.fail("I6", f"{what}, which was {was}: epochs grow")
        if now.leader is not None:
            key = (topic.topic_id.bytes, index, int(now.leader_epoch))
            if self._leader_of.setdefault(key, now.leader) != now.leader:
                self.fail("I6", f"{what}: {self._leader_of[key]} led in this epoch")
        if now.last_unclean_epoch >= 0:
            self.fail("I6", f"{what}: nobody allowed an unclean leader")

    # ── Brokers ───────────────────────────────────────────────────────────────────────────────

    def fenced_at(self, broker: int, epoch: int, version: int) -> int:
        """Return where a life of a broker was fenced last, for whoever is at this version."""
        return max((v for v in self._fencings.get((broker, epoch), ()) if v <= version), default=-1)

    def relies(self, broker: int, version: int, fenced_at: list[int]) -> None:
        """A broker may lead because it was heard, by those who knew of these fencings (I11)."""
        if not any(fencing <= version for fencing in fenced_at):
            told = f"broker {broker} may lead at version {version}, and was fenced at {fenced_at}"
            self.fail("I11", told)

    def followed(self, broker: int, life: int, image: MetadataImage) -> None:
        """A broker has a new image (I5)."""
        before = self._of_brokers.get((broker, life), -1)
        if image.version < before:
            self.fail("I5", f"broker {broker} goes from version {before} to {image.version}")
        self._of_brokers[broker, life] = image.version
        if image.version >= len(self.digests) or self.digests[image.version] != image.digest:
            self.fail("I5", f"broker {broker} has a version {image.version} that nobody agreed on")
