"""A broker process: registration, heartbeats, metadata by delta, in-sync sets, admin requests.

It is a model around real cores: `BrokerLife` decides when it registers and beats, and to whom;
images are followed by `delta.follow`; requests are numbered by `office.Requests` and sent again
with the same bytes until somebody answers. Every proposal carries the epochs that the broker knows,
however old they are by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.controller.broker_life import BrokerLife, State
from ottla.controller.commands import NO_BROKER_EPOCH, AlterPartitions, Command, ReportDamage
from ottla.controller.delta import Delta, NotFollowed, follow, follow_whole
from ottla.controller.door import BeatAnswer, Denied, NotActive, Registered, Registration
from ottla.controller.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.controller.lifesigns import (
    BeatAnswered,
    CloseLine,
    Die,
    Effect,
    Event,
    FenceWanted,
    Followed,
    OpenLine,
    Recovered,
    Register,
    RegistrationAnswered,
    RegistrationWanted,
    SendBeat,
    ShutdownWanted,
    TimePassed,
)
from ottla.controller.office import Requests
from ottla.controller.outcome import Outcome
from ottla.controller.proposal import Proposal, encode_proposal
from ottla.controller.replay import first_state
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from tests.sim.cluster.controllers import SESSION_MS
from tests.sim.cluster.members import CLUSTER_ID
from tests.sim.cluster.network import Process
from tests.sim.cluster.replicas import Copy, Place, Record

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

HEARTBEAT_MS = 200
RETRY_MS = 250
PULL_MS = 100
WORK_MS = 60
LAG_MS = 200
RECORDS_MAX = 60
LATE_WISHES = 0.2
Done = Callable[[Outcome], None]


class BrokerProcess(Process):
    """One broker. `copies`, the directory id and the proof of a clean end outlive its lives."""

    def __init__(self, world: World, node_id: int) -> None:
        super().__init__(node_id)
        self.world = world
        self.directory_id = world.new_id()
        self.copies: dict[Place, Copy] = {}
        self.previous_epoch = NO_BROKER_EPOCH
        self.died_ms = 0
        self._forget()

    def _forget(self) -> None:
        self.incarnation = self.world.new_id()
        self.image: MetadataImage = first_state(CLUSTER_ID).image
        self.slow_until_ms = 0
        # Beats that were heard: when they were sent, and what those who heard them knew (I11).
        self._heard: list[tuple[int, int]] = []
        self._active = 1
        self._wake_ms: int | None = None
        self._line = self.world.controllers[1]
        self.core = BrokerLife(
            broker_id=BrokerId(self.node_id),
            incarnation=self.incarnation,
            controllers=self.world.member_ids,
            session_ms=SESSION_MS,
            heartbeat_ms=HEARTBEAT_MS,
        )
        self._requests: Requests | None = None
        self._asked: dict[int, tuple[bytes, Done]] = {}
        self.is_offline = False
        # Copies that the controllers are told of before they unfence this life.
        self._damaged: list[Copy] = []
        self._wants_whole = False

    # ── Life ──────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        world = self.world
        self.is_up, self.life, self.paused_until_ms = True, self.life + 1, 0
        self._forget()
        self._active = world.dice.choice(world.member_ids)
        for loop, every_ms in (
            (self._pull, PULL_MS),
            (self._work, WORK_MS),
            (self._ask_again, RETRY_MS),
        ):
            self._repeat(loop, every_ms, self.life)
        self.drive(RegistrationWanted(now_ms=world.schedule.now_ms))
        damaged = {place: copy for place, copy in self.copies.items() if copy.is_failed}
        self._damaged = list(damaged.values())
        told = {key: tuple(sorted(n for one, n in damaged if one == key)) for key, _ in damaged}
        self.drive(Recovered(damaged=told, now_ms=world.schedule.now_ms))

    def stop(self) -> None:
        self.is_up, self.died_ms = False, self.world.schedule.now_ms
        self._forget()
        for copy in self.copies.values():
            copy.forget()
        self.world.stream_of_broker_broke(self.node_id)

    def wipe(self) -> None:
        """Another disk: nothing is left of the old one."""
        self.copies.clear()
        self.directory_id = self.world.new_id()
        self.previous_epoch = NO_BROKER_EPOCH

    def _repeat(self, work: Callable[[], None], every_ms: int, life: int) -> None:
        dice = self.world.dice

        def again() -> None:
            if life != self.life or not self.is_up:
                return
            if self.paused_until_ms <= self.world.schedule.now_ms:
                work()
            delay_ms = 1 + int(every_ms * (0.5 + dice.random()))
            self.world.schedule.after(delay_ms, work.__name__, again, self.node_id)

        self.world.schedule.after(int(dice.random() * every_ms), "begin", again, self.node_id)

    def _later(self, work: Callable[..., None]) -> Callable[..., None]:
        """Return `work` for an answer that must reach this life, and no later one."""
        life = self.life

        def checked(*given: object) -> None:
            if life == self.life and self.is_up:
                work(*given)

        return checked

    # ── Registration and heartbeats ───────────────────────────────────────────────────────────

    def drive(self, event: Event) -> None:
        """Tell the real core what happened, and do what it wants."""
        for effect in self.core.step(event):
            self._do(effect)
        if self.core.state is State.UNFENCED:
            for copy in self._damaged:
                copy.begin_anew()
            self._damaged = []
        now_ms = self.world.schedule.now_ms
        if self.core.is_heard(now_ms):
            heard = [fenced_at for at_ms, fenced_at in self._heard if now_ms < at_ms + SESSION_MS]
            self.world.invariants.relies(self.node_id, self.image.version, heard)
        if self.is_up and self.core.state is State.MAY_EXIT:
            self.world.schedule.note("broker %d has shut down", self.node_id)
            self.previous_epoch = self.core.broker_epoch or NO_BROKER_EPOCH
            self.world.stop_broker(self)
        wake_ms = self.core.wake_ms
        if self.is_up and wake_ms is not None and wake_ms != self._wake_ms:
            self._wake_ms = wake_ms
            delay_ms = max(0, wake_ms - self.world.schedule.now_ms)
            wake = self._later(lambda: self._wake(wake_ms))
            self.world.schedule.after(delay_ms, "wake", wake, self.node_id)

    def _wake(self, wake_ms: int) -> None:
        wait_ms = self.paused_until_ms - self.world.schedule.now_ms
        if wait_ms > 0:
            wake = self._later(lambda: self._wake(wake_ms))
            self.world.schedule.after(wait_ms, "wake", wake, self.node_id)
        elif self._wake_ms == wake_ms:
            self._wake_ms = None
            self.drive(TimePassed(now_ms=self.world.schedule.now_ms))

    def _do(self, effect: Effect) -> None:
        match effect:
            case Register():
                self._register(effect)
            case OpenLine():
                self._line = self.world.controllers[effect.node_id]
            case SendBeat():
                self._beat(effect)
            case CloseLine():
                controller, is_goodbye = self._line, effect.is_goodbye
                self.world.post(
                    self, controller, lambda: controller.end_line(self.node_id, is_goodbye)
                )
            case Die():
                self.world.schedule.note("broker %d gives up: %s", self.node_id, effect.sentence)
                self.world.stop_broker(self)

    def _register(self, effect: Register) -> None:
        controller, wanted = self.world.controllers[effect.node_id], self._registration()

        def answered(answer: Registered | NotActive | Denied | None) -> None:
            now_ms = self.world.schedule.now_ms
            self.drive(RegistrationAnswered(number=effect.number, answer=answer, now_ms=now_ms))
            if self._requests is None and self.core.broker_epoch is not None:
                self.previous_epoch = NO_BROKER_EPOCH
                self._requests = Requests(BrokerId(self.node_id), self.core.broker_epoch)
                told = (self.node_id, self.core.broker_epoch)
                self.world.schedule.note("broker %d is registered at %d", *told)

        reply = self.world.reply(controller, self, self._later(answered))
        self.world.post(self, controller, lambda: controller.take_registration(wanted, reply))

    def _beat(self, effect: SendBeat) -> None:
        controller, sent_ms = self._line, self.world.schedule.now_ms

        def answered(answer: BeatAnswer | NotActive, fenced_at: int) -> None:
            now_ms = self.world.schedule.now_ms
            if isinstance(answer, BeatAnswer) and not answer.is_fenced:
                self._heard.append((sent_ms, fenced_at))
            self.drive(BeatAnswered(number=effect.number, answer=answer, now_ms=now_ms))

        reply = self.world.reply(controller, self, self._later(answered))
        self.world.post(self, controller, lambda: controller.take_heartbeat(effect.beat, reply))

    def _registration(self) -> Registration:
        return Registration(
            cluster_id=CLUSTER_ID,
            broker_id=BrokerId(self.node_id),
            incarnation=self.incarnation,
            directory_id=self.directory_id,
            boot_id=UUID(int=self.node_id),
            previous_epoch=self.previous_epoch,
            host="host",
            port=9092,
            internal_host="host",
            internal_port=9093,
            rack=f"r{self.node_id % 2}",
        )

    def shut_down(self) -> None:
        if self.is_up:
            self.drive(ShutdownWanted(now_ms=self.world.schedule.now_ms))

    def fail_disk(self) -> None:
        """Nothing can be read or written any more, until somebody starts it again (rule 48)."""
        if self.is_up and not self.is_offline:
            self.is_offline = True
            self.drive(FenceWanted(now_ms=self.world.schedule.now_ms))

    # ── Metadata ──────────────────────────────────────────────────────────────────────────────

    def _pull(self) -> None:
        world = self.world
        if self.slow_until_ms > world.schedule.now_ms:
            # Its heartbeats come through, and the metadata does not.
            return
        controller = world.controllers[world.dice.choice(world.member_ids)]
        version = -1 if self._wants_whole else self.image.version
        take = self._later(self._take_news)

        def give() -> None:
            news = world.news(controller, version)
            if news is not None:
                world.post(controller, self, lambda: take(news))

        world.post(self, controller, give)

    def _take_news(self, news: MetadataImage | list[Delta]) -> None:
        if isinstance(news, MetadataImage):
            self._take(follow_whole(self.image, news))
            self._wants_whole = False
            return
        for delta in news:
            self._take(follow(self.image, delta))

    def _take(self, found: MetadataImage | NotFollowed) -> None:
        if found is NotFollowed.GAP:
            self._wants_whole = True
        if isinstance(found, MetadataImage):
            self.image = found
            self.world.invariants.followed(self.node_id, self.life, found)
            self.drive(Followed(image=found, now_ms=self.world.schedule.now_ms))

    @property
    def broker_epoch(self) -> int | None:
        return self.core.broker_epoch

    # ── Requests ──────────────────────────────────────────────────────────────────────────────

    def ask(self, command: Command, done: Done) -> None:
        """Have a command committed by whoever is active, asking until there is an answer."""
        if self._requests is not None:
            proposal = self._requests.proposal(command)
            number = proposal.request.sequence
            self._asked[number] = (encode_proposal(proposal), self._keep(proposal, done))
            self._send(number)

    def _keep(self, proposal: Proposal, done: Done) -> Done:
        def answered(outcome: Outcome) -> None:
            self.world.acknowledge(self._active, proposal.request, outcome)
            done(outcome)

        return answered

    def _send(self, number: int) -> None:
        if self.core.believed is not None:
            self._active = self.core.believed
        controller = self.world.controllers[self._active]
        data = self._asked[number][0]

        def answered(outcome: Outcome | None, active: int | None) -> None:
            if outcome is None:
                self._active = active or self.world.dice.choice(self.world.member_ids)
            elif number in self._asked:
                _, done = self._asked.pop(number)
                done(outcome)

        reply = self.world.reply(controller, self, self._later(answered))
        self.world.post(self, controller, lambda: controller.take_proposal(data, reply))

    def _ask_again(self) -> None:
        for number in list(self._asked):
            self._send(number)

    # ── Partitions ────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        """Append where it leads, fetch where it follows."""
        me, now_ms = self.image.brokers.get(BrokerId(self.node_id)), self.world.schedule.now_ms
        if self.broker_epoch is None or me is None or me.incarnation != self.incarnation:
            return
        if self.is_offline:
            return
        for topic in self.image.topics.values():
            for index, partition in enumerate(topic.partitions):
                if self.node_id not in partition.replicas:
                    continue
                copy = self.copies.setdefault((topic.topic_id, index), Copy())
                self._ask_too_late(copy, partition.partition_epoch)
                if copy.is_failed:
                    self._give_up(copy, (topic.topic_id, index), partition)
                elif partition.leader == self.node_id:
                    self._lead(copy, topic, index)
                elif partition.leader is not None and self.slow_until_ms <= now_ms:
                    self._fetch(copy, topic, index, partition.leader)

    def _lead(self, copy: Copy, topic: TopicInfo, index: int) -> None:
        partition, now_ms = topic.partitions[index], self.world.schedule.now_ms
        copy.lead(partition.leader_epoch, now_ms, partition.isr)
        if len(copy.log) < RECORDS_MAX and self.world.dice.random() < 0.6:
            copy.log.append((partition.leader_epoch, self.world.next_number()))
        self._commit(copy, topic, index)
        wanted = copy.wanted_isr(self.node_id, self.image, partition, LAG_MS, now_ms)
        if wanted is not None and self.broker_epoch is not None:
            change = copy.change(topic.topic_id, index, partition, wanted)
            command = AlterPartitions(BrokerId(self.node_id), self.broker_epoch, (change,))
            pending = copy.pending

            def done(outcome: Outcome) -> None:
                codes = [one.refusal.code for one in outcome.results if one.refusal is not None]
                if codes == [ErrorCode.INELIGIBLE_REPLICA] and copy.pending is pending:
                    # It was not granted and never will be (rule 38).
                    copy.pending = None

            self.ask(command, done)

    def _give_up(self, copy: Copy, place: Place, partition: PartitionInfo) -> None:
        """Report the damage, and again whenever somebody believes in this copy (rule 55)."""
        has_claim = self.node_id in (*partition.isr, *partition.elr)
        if copy.is_reporting or (copy.was_reported and not has_claim) or self.core.is_fenced:
            return

        def done(outcome: Outcome) -> None:
            copy.is_reporting, copy.was_reported = False, outcome.refusal is None

        copy.is_reporting = True
        damaged = {place[0]: (place[1],)}
        self.ask(ReportDamage(BrokerId(self.node_id), self.broker_epoch or 0, damaged), done)

    def _ask_too_late(self, copy: Copy, partition_epoch: int) -> None:
        """Say once more what was said as a leader: a wish that lay in some queue meanwhile.

        Only if it is known to be too late. Else it might be granted, and nobody would count on it.
        """
        if copy.asked is None or copy.asked.partition_epoch >= partition_epoch:
            return
        if self.world.is_calm or self.world.dice.random() >= LATE_WISHES:
            return
        if self.broker_epoch is not None:
            changes = (copy.asked,)
            command = AlterPartitions(BrokerId(self.node_id), self.broker_epoch, changes)
            self.ask(command, lambda outcome: None)

    def _commit(self, copy: Copy, topic: TopicInfo, index: int) -> None:
        records = copy.committed(self.node_id, self.image, topic, index)
        self.world.commit((topic.topic_id, index), records, self.node_id)

    def _fetch(self, copy: Copy, topic: TopicInfo, index: int, leader_id: int) -> None:
        leader, epoch = self.world.brokers[leader_id], topic.partitions[index].leader_epoch
        mine, broker_epoch = list(copy.log), self.broker_epoch
        place = (topic.topic_id, index)

        def take(log: list[Record]) -> None:
            now = self.image.topic_by_id(topic.topic_id)
            # Only if nothing has changed since it asked (rule 45).
            is_same = now is not None and now.partitions[index].leader_epoch == epoch
            is_well = not copy.is_failed and not self.is_offline
            if is_same and is_well and copy.log == mine:
                copy.follow(log)

        taken = self._later(take)

        def give() -> None:
            log = leader.serve(place, epoch, self.node_id, mine, broker_epoch)
            if log is not None:
                self.world.post(leader, self, lambda: taken(log))

        self.world.post(self, leader, give)

    def serve(
        self, place: Place, epoch: int, follower: int, log: list[Record], broker_epoch: int | None
    ) -> list[Record] | None:
        """Answer a fetch, and note how far the follower is (rules 33, 39 and 41)."""
        copy, topic = self.copies.get(place), self.image.topic_by_id(place[0])
        if copy is None or copy.epoch != epoch or topic is None:
            return None
        if copy.is_failed or self.is_offline:
            return None
        partition = topic.partitions[place[1]]
        known = self.image.brokers.get(BrokerId(follower))
        if partition.leader_epoch != epoch or partition.leader != self.node_id:
            return None
        if known is None or broker_epoch is None or broker_epoch < known.broker_epoch:
            return None
        if copy.log[: len(log)] == log:
            copy.ends[follower] = len(log)
            copy.broker_epochs[follower] = broker_epoch
            copy.fetched_at[follower] = partition.partition_epoch
            if len(log) == len(copy.log) or self.world.dice.random() < 0.5:
                copy.heard_ms[follower] = self.world.schedule.now_ms
            self._commit(copy, topic, place[1])
        return list(copy.log)
