"""A small world of replicas: logs are lists, the controller's metadata is the real one.

Every broker has one copy of one partition, with the real core of a leader or a follower over a list
of records. Nothing moves by itself: metadata is learnt, fetches and proposals arrive, and disks are
synced, when the world is told so. So every order of events can be played.

The world watches what replication promises (`require_promises`): whatever was below a high
watermark anywhere is held, unchanged, by everybody who may lead.

Not here: bytes, files and errors of disks; the simulator has them.
"""

from __future__ import annotations

from collections import deque

from ottla.controller.commands import PartitionChange
from ottla.controller.election import is_fsync, min_insync_of
from ottla.controller.image import MetadataImage, PartitionInfo
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import FIRST_OFFSET, BrokerId, Offset
from ottla.replication.epochs import EpochEnd, EpochHistory
from ottla.replication.follower import FollowerCore, FollowerState
from ottla.replication.leader import LeaderCore, PartitionView
from ottla.replication.progress import FetchClaim
from tests.scripts.replication.parts import Answer, Copy, Letter, Record, Request, Waiter
from tests.unit.controller.cluster import Cluster

LAG_MS = 1000


class Copies:
    """Brokers 1 to n with a copy each, a controller, and everything that is on its way."""

    def __init__(
        self,
        size: int = 3,
        *,
        min_isr: int = 2,
        durability: str = "fsync",
        unclean: bool = False,
        leads: type[LeaderCore] = LeaderCore,
        follows: type[FollowerCore] = FollowerCore,
    ) -> None:
        self.cluster = Cluster(size)
        self.now_ms = 0
        self.letters: list[Letter] = []
        self.told: list[str] = []
        # What was below a high watermark, by offset, and what was acknowledged with acks=all.
        self.committed: dict[int, Record] = {}
        self.acknowledged: dict[int, Record] = {}
        self.outcomes: dict[str, ErrorCode] = {}
        self._leads, self._follows = leads, follows
        configs = {
            "min.insync.replicas": str(min_isr),
            "ottla.durability": durability,
            "unclean.leader.election.enable": str(unclean).lower(),
        }
        self.cluster.create(list(range(1, size + 1)), configs=configs)
        self.copies = {n: Copy(n) for n in range(1, size + 1)}
        for number, copy in self.copies.items():
            copy.broker_epoch = self.cluster.broker(number).broker_epoch
            self.learn(number)

    # ── Metadata ──────────────────────────────────────────────────────────────────────────────

    def learn(self, number: int) -> None:
        """A broker gets the newest metadata."""
        copy, image = self.copies[number], self.cluster.image
        if not copy.is_up:
            return
        partition = image.topics["t"].partitions[0]
        copy.partition = partition
        copy.is_fsync = is_fsync(image, image.topics["t"])
        if partition.leader == number:
            self._lead(copy, view_of(image))
        else:
            self._follow(copy, partition)
        self._settle(copy)

    def _lead(self, copy: Copy, view: PartitionView) -> None:
        if copy.leader is not None:
            copy.leader.adopt(view, self.now_ms)
            self._settle(copy)
            if not copy.leader.is_over:
                return
        if copy.follower is not None and copy.follower.state is FollowerState.FAILED:
            return
        copy.follower = None
        copy.epochs.assign(view.leader_epoch, copy.end)
        copy.leader = self._leads(
            BrokerId(copy.number),
            view,
            epochs=copy.epochs,
            end_offset=copy.end,
            held_offset=copy.held,
            high_watermark=copy.high_watermark,
            lag_ms=LAG_MS,
            now_ms=self.now_ms,
        )

    def _follow(self, copy: Copy, partition: PartitionInfo) -> None:
        if copy.leader is not None:
            copy.leader.adopt(view_of(self.cluster.image), self.now_ms)
            self._settle(copy)
            copy.leader = None
        if copy.follower is None:
            copy.follower = self._follows(
                epochs=copy.epochs,
                start_offset=FIRST_OFFSET,
                end_offset=copy.end,
                held_offset=copy.held,
                high_watermark=copy.high_watermark,
                is_fsync=copy.is_fsync,
            )
        copy.follower.is_fsync = copy.is_fsync
        copy.follower.follow(
            partition.leader_epoch,
            is_led=partition.leader is not None,
            last_unclean_epoch=partition.last_unclean_epoch,
        )
        copy.follower.progressed(FIRST_OFFSET, copy.end, copy.held)

    # ── The log ───────────────────────────────────────────────────────────────────────────────

    def write(self, number: int, value: str, *, acks: str = "all") -> ErrorCode | None:
        """Return why a leader refuses a record, or None: it is appended."""
        copy = self.copies[number]
        core = copy.leader
        if core is None or not copy.is_up or core.is_over:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == "all" and (code := core.refusal_of_all()) is not None:
            return code
        copy.take(Record(core.leader_epoch, value))
        if acks == "all":
            copy.waiters.append(Waiter(core.leader_epoch, copy.end, value))
        self._progressed(copy)
        return None

    def sync(self, number: int) -> None:
        copy = self.copies[number]
        if copy.is_up:
            copy.synced = len(copy.log)
            self._progressed(copy)

    def _progressed(self, copy: Copy) -> None:
        if copy.leader is not None:
            copy.leader.progressed(copy.end, copy.held, self.now_ms)
        elif copy.follower is not None:
            copy.follower.progressed(FIRST_OFFSET, copy.end, copy.held)
        self._settle(copy)

    def _settle(self, copy: Copy) -> None:
        """Take over the high watermark, and answer those who wait for it."""
        core = copy.leader or copy.follower
        if core is None:
            return
        may_fall = copy.partition is not None and copy.partition.last_unclean_epoch >= 0
        assert core.high_watermark >= copy.high_watermark or may_fall, "it never falls"
        copy.high_watermark = core.high_watermark
        if copy.leader is None:
            return
        left = []
        for waiter in copy.waiters:
            code = copy.leader.outcome_of_all(waiter.epoch, waiter.end_offset)
            if code is None:
                left.append(waiter)
                continue
            self.outcomes[waiter.value] = code
            if code is ErrorCode.NONE:
                self._acknowledge(copy.leader, Record(waiter.epoch, waiter.value), waiter)
        copy.waiters = left

    def _acknowledge(self, core: LeaderCore, record: Record, waiter: Waiter) -> None:
        offset = waiter.end_offset - 1
        holders = [one for one in self.copies.values() if one.kept[offset : offset + 1] == [record]]
        # A disk that was lost since held it when its broker said so.
        lost = sum(one.disk > 0 for one in self.copies.values())
        assert len(holders) + lost >= core.view.min_isr, f"{record} is on {len(holders)} disks only"
        self.acknowledged[offset] = record

    # ── Fetching ──────────────────────────────────────────────────────────────────────────────

    def fetch(self, number: int, *, limit: int = 1000) -> None:
        """One whole step of a follower: a fetch and its answer, or a cut."""
        self.ask(number)
        self.arrive(number, limit=limit)
        self.answer(number)

    def ask(self, number: int) -> None:
        copy = self.copies[number]
        core = copy.follower
        if core is None or not copy.is_up:
            return
        step = core.next_step(self.now_ms)
        if isinstance(step, FetchClaim):
            assert copy.partition is not None
            copy.requests.append(Request(copy.partition.leader, copy.broker_epoch, step))
        elif step is not None:
            self.told.append(f"{number} cuts its log at {step.offset}")
            copy.cut(step.offset)
            core.was_cut(FIRST_OFFSET, copy.end, copy.held)
            self._settle(copy)

    def arrive(self, number: int, *, limit: int = 1000) -> None:
        """The oldest fetch of a broker arrives at the leader that it was sent to."""
        copy = self.copies[number]
        if not copy.requests:
            return
        request = copy.requests.popleft()
        leader = self.copies.get(request.leader or 0)
        if leader is None or not leader.is_up:
            return
        claim = request.claim
        if leader.leader is None:
            copy.answers.append(Answer(claim, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        verdict = leader.leader.fetched(
            BrokerId(number), request.broker_epoch, claim, FIRST_OFFSET, self.now_ms
        )
        self._settle(leader)
        at = claim.fetch_offset
        copy.answers.append(
            Answer(
                claim,
                verdict,
                tuple(leader.log[at : at + limit]) if verdict is None else (),
                leader.high_watermark,
                FIRST_OFFSET,
                leader.end,
            )
        )

    def answer(self, number: int) -> None:
        """The oldest answer arrives at the broker that has fetched."""
        copy = self.copies[number]
        if not copy.answers:
            return
        answer = copy.answers.popleft()
        core, claim, verdict = copy.follower, answer.claim, answer.verdict
        if core is None or not core.accepts(claim):
            return
        if verdict is None:
            for record in answer.records:
                copy.take(record)
            core.served(
                claim,
                copy.end,
                copy.held,
                leader_high_watermark=answer.high_watermark,
                leader_start=answer.start_offset,
            )
            self._settle(copy)
        elif isinstance(verdict, EpochEnd):
            self.told.append(f"{number} hears: epoch {verdict.epoch} ends at {verdict.end_offset}")
            core.diverged(claim, verdict, self.now_ms)
        else:
            core.refused(
                claim,
                verdict,
                self.now_ms,
                leader_start=answer.start_offset,
                leader_end=answer.end_offset,
            )

    # ── Proposals ─────────────────────────────────────────────────────────────────────────────

    def propose(self, number: int) -> None:
        """A leader sends what it has to propose."""
        copy = self.copies[number]
        if copy.is_up and copy.leader is not None and copy.leader.unsent is not None:
            self.letters.append(Letter(number, copy.broker_epoch, copy.leader.unsent))
            copy.leader.sent()

    def decide(self, letter: Letter) -> None:
        """The controller commits or refuses a proposal."""
        proposal = letter.proposal
        change = PartitionChange(
            topic_id=self.cluster.image.topics["t"].topic_id,
            partition=0,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch,
            isr=proposal.isr,
            is_synced=proposal.is_synced,
        )
        outcome = self.cluster.alter(letter.sender, change, epoch=letter.broker_epoch)
        refusal = outcome.refusal or outcome.results[0].refusal
        letter.code = ErrorCode.NONE if refusal is None else refusal.code

    def reply(self, letter: Letter, code: ErrorCode | None = None) -> None:
        """The answer arrives, or, with a code of one's own, something else that ends the wait.

        A letter that nobody has decided stays on its way.
        """
        told = letter.code if code is None else code
        core = self.copies[letter.sender].leader
        if letter.is_awaited and told is not None:
            letter.is_awaited = False
            if core is not None and letter.broker_epoch == self.copies[letter.sender].broker_epoch:
                core.answered(letter.proposal, told, self.now_ms)
                self._settle(self.copies[letter.sender])
        if letter.code is not None:
            self.letters.remove(letter)

    # ── Time, death and return ────────────────────────────────────────────────────────────────

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        for copy in self.copies.values():
            if copy.is_up and copy.leader is not None:
                copy.leader.check_isr(self.now_ms)

    def crash(self, number: int, *, power: bool = False) -> None:
        """A process dies; without power its disk loses what was not synced, too."""
        copy = self.copies[number]
        if not copy.is_up:
            return
        copy.is_up = False
        copy.leader = copy.follower = None
        copy.waiters, copy.answers = [], deque()
        if power:
            copy.boot += 1
            del copy.log[copy.synced :]
            copy.epochs.truncate_end(copy.end)
        # Written every few seconds: a hint, and older than the truth.
        copy.high_watermark = Offset(min(copy.high_watermark // 2, copy.end))

    def wipe(self, number: int) -> None:
        """A broker dies and comes back with an empty disk (rule 54).

        Unless it is the only one who holds all: nobody promises anything then.
        """
        copy = self.copies[number]
        if not {*self.partition.isr, *self.partition.elr} - {number}:
            return
        self.crash(number)
        copy.log, copy.epochs, copy.synced = [], EpochHistory(), 0
        copy.high_watermark = FIRST_OFFSET
        copy.disk += 1
        self.restart(number)

    def restart(self, number: int) -> None:
        """A new life of a broker registers; it is fenced at first."""
        copy = self.copies[number]
        if copy.is_up:
            return
        self.cluster.register(number, boot=copy.boot, directory=number + 100 * copy.disk)
        copy.is_up = True
        copy.synced = len(copy.log)
        copy.broker_epoch = self.cluster.broker(number).broker_epoch
        self.learn(number)

    def heal(self, rounds: int = 60) -> None:
        """Everybody is up, and everything arrives."""
        for number in self.copies:
            self.restart(number)
        for _ in range(rounds):
            for number in self.copies:
                if not self.cluster.image.is_active(BrokerId(number)):
                    self.cluster.unfence(number)
                self.learn(number)
                self.sync(number)
                self.fetch(number)
                self.propose(number)
            for letter in tuple(self.letters):
                self.decide(letter)
                self.reply(letter)
            self.wait(100)
            self.require_promises()

    # ── What must hold ────────────────────────────────────────────────────────────────────────

    @property
    def partition(self) -> PartitionInfo:
        return self.cluster.partition()

    def require_promises(self) -> None:
        """Whatever was below a high watermark is there, everywhere where it counts."""
        for copy in self.copies.values():
            for offset, record in enumerate(copy.log[: copy.high_watermark]):
                known = self.committed.setdefault(offset, record)
                assert known == record, f"{copy.number} has {record} at {offset}, not {known}"
            failed = copy.follower is not None and copy.follower.state is FollowerState.FAILED
            assert not failed, copy.follower and copy.follower.failure
        for member in (*self.partition.isr, *self.partition.elr):
            kept = self.copies[member].kept
            for offset, record in self.committed.items():
                assert kept[offset : offset + 1] == [record], f"{member} lacks {record} at {offset}"

    def require_agreement(self) -> None:
        """All copies are equal, and all that was acknowledged is in them."""
        first, *others = self.copies.values()
        for copy in others:
            assert copy.log == first.log, f"{copy.number} and {first.number} differ"
        assert all(copy.high_watermark == copy.end for copy in self.copies.values())
        for offset, record in self.acknowledged.items():
            assert first.log[offset] == record


def view_of(image: MetadataImage) -> PartitionView:
    """Return what a leader is told of the partition: what the shell of a node has to do as well."""
    topic = image.topics["t"]
    partition = topic.partitions[0]
    return PartitionView(
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        elr=partition.elr,
        min_isr=min_insync_of(image, topic),
        broker_epochs={key: broker.broker_epoch for key, broker in image.brokers.items()},
        active=frozenset(key for key, broker in image.brokers.items() if broker.is_active),
        is_fsync=is_fsync(image, topic),
        is_durable=partition.is_durable,
        is_recovering=partition.is_recovering,
    )
