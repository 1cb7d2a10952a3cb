"""What goes wrong, and when: at random, and where it hurts most."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.proto.ids import BrokerId
from ottla.replication.storage.faults import FaultRule
from tests.sim.replication.control import TOPIC
from tests.sim.replication.network import CONTROLLER

if TYPE_CHECKING:
    from tests.sim.replication.broker import BrokerProcess
    from tests.sim.replication.world import World

QUIET_MS = 80
SOON_MS = 20
LATER_MS = 500


class Faults:
    """The storm. Every method without an underscore that a climate names is one kind of fault."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = world.dice
        self.network = world.network
        self._names = [name for name, _ in world.climate.faults]
        self._weights = [weight for _, weight in world.climate.faults]
        self.is_over = False
        self.count = 0

    def begin(self) -> None:
        self.world.schedule.after(QUIET_MS, "fault", self._strike)

    def end(self) -> None:
        self.is_over = True
        self.network.heal()
        self.world.control.extra_ms = 0
        for broker in self.world.brokers.values():
            broker.paused_until_ms = broker.disk_slow_until_ms = broker.metadata_slow_ms = 0
            broker.machine.power.cut_at = None
            broker.machine.plan.rules.clear()
        self.start_all()

    def _strike(self) -> None:
        if self.is_over:
            return
        (name,) = self.dice.choices(self._names, self._weights)
        self.count += 1
        self.world.schedule.note("fault: %s", name)
        getattr(self, name)()
        delay_ms = 1 + int(self.dice.random() * 2 * self.world.climate.fault_ms)
        self.world.schedule.after(delay_ms, "fault", self._strike)

    def _some_broker(self) -> BrokerProcess:
        return self.world.brokers[self.dice.choice(sorted(self.world.brokers))]

    def _leader(self) -> BrokerProcess | None:
        leaders = [one.leader for one in self.world.control.partitions if one.leader is not None]
        return self.world.brokers[self.dice.choice(leaders)] if leaders else None

    # ── Death and return ──────────────────────────────────────────────────────────────────────

    def start_again(self, broker: BrokerProcess) -> None:
        """A process is gone. A supervisor starts it again, at once or later."""
        limit_ms = SOON_MS if self.is_over or self.dice.random() < 0.5 else LATER_MS
        life, delay_ms = broker.life, 1 + int(self.dice.random() * limit_ms)

        def start() -> None:
            if broker.life == life and not broker.is_up:
                self._start(broker)

        self.world.schedule.after(delay_ms, "start", start, broker.node_id)

    def _start(self, broker: BrokerProcess) -> None:
        self.world.schedule.note("broker %d starts", broker.node_id)
        broker.start()

    def start_all(self) -> None:
        for broker in self.world.brokers.values():
            if not broker.is_up:
                self._start(broker)

    def kill(self) -> None:
        self.world.kill(self._some_broker())

    def kill_leader(self) -> None:
        leader = self._leader()
        if leader is not None:
            self.world.kill(leader)

    def kill_all(self) -> None:
        for broker in self.world.brokers.values():
            self.world.kill(broker)

    def shut_down(self) -> None:
        broker = self._some_broker()
        if broker.is_up:
            broker.wants_shutdown = True

    # ── Power and disks ───────────────────────────────────────────────────────────────────────

    def lose_power(self) -> None:
        self.world.lose_power(self._some_broker())

    def leader_loses_power(self) -> None:
        leader = self._leader()
        if leader is not None:
            self.world.lose_power(leader)

    def lose_power_soon(self) -> None:
        """The power goes before or after one of the next syncs or commits."""
        power = self._some_broker().machine.power
        power.cut_at = power.moments + 1 + self.dice.randrange(12)

    def black_out(self) -> None:
        for broker in self.world.brokers.values():
            self.world.lose_power(broker)

    def slow_disk(self) -> None:
        until_ms = self.world.schedule.now_ms + self.dice.choice([60, 200, 500])
        self._some_broker().disk_slow_until_ms = until_ms

    def fail_disk(self) -> None:
        """One of the next syncs, writes or commits is refused."""
        operation = self.dice.choice(["sync", "sync", "write", "commit", "committed"])
        rule = FaultRule(operation, "*", nth=1 + self.dice.randrange(3))
        self._some_broker().machine.plan.rules.append(rule)

    def wipe(self) -> None:
        """A broker comes back with an empty disk, if no other disk is lost or damaged."""
        broker = self._some_broker()
        if self._may_lose(broker):
            self.world.wipe(broker)

    def wipe_with_words_under_way(self) -> None:
        """What a follower said lies in some buffer, while it loses its disk and comes back."""
        leader, broker = self._leader(), self._some_broker()
        if leader is None or leader is broker or not self._may_lose(broker):
            return
        way = broker.node_id, leader.node_id
        self.network.cut(*way)

        def wipe() -> None:
            if not self.is_over and self._may_lose(broker):
                self.world.wipe(broker)
                self._start(broker)

        def arrive() -> None:
            self.network.cuts.discard(way)

        at_ms = 20 + self.dice.randrange(60)
        later_ms = at_ms + 50 + self.dice.randrange(200)
        self.world.schedule.after(at_ms, "wipe", wipe)
        self.world.schedule.after(later_ms, "arrive", arrive)
        # Nobody writes meanwhile, or what it said would soon be too little to count.
        self.world.quiet_from_ms = self.world.schedule.now_ms + 10
        self.world.quiet_until_ms = self.world.schedule.now_ms + later_ms + 50

    def damage(self) -> None:
        """A disk rots below what was synced, while its broker is down."""
        broker = self._some_broker()
        if self._may_lose(broker):
            self.world.damage(broker)

    def _may_lose(self, broker: BrokerProcess) -> bool:
        """Whether what this disk holds is held by another one that may lead.

        One disk at a time: until a lost one is in sync again everywhere, no other is lost.
        """
        world = self.world
        if not world.control.partitions:
            return False
        world.lost = {one for one in world.lost if not self._is_back(one)}
        if world.lost - {broker.node_id}:
            return False
        for index, partition in enumerate(world.control.partitions):
            others = {*partition.isr, *partition.elr} - {BrokerId(broker.node_id)}
            held = [
                one
                for one in others
                if not world.truth.copies[one, index].is_damaged
                and (partition.is_durable or not world.truth.copies[one, index].is_dark)
            ]
            if BrokerId(broker.node_id) in partition.replicas and not held:
                return False
        return True

    def _is_back(self, number: int) -> bool:
        copies = self.world.truth.copies
        return all(
            number in partition.isr
            and not (copies[number, index].is_wiped or copies[number, index].is_damaged)
            for index, partition in enumerate(self.world.control.partitions)
            if number in partition.replicas
        )

    def delete_records(self) -> None:
        """A leader lets go of its oldest records; followers do so in their time."""
        leader = self._leader()
        if leader is None or not leader.is_up:
            return
        for index, replica in leader.replicas.items():
            known, log = self.world.truth.committed[index], replica.log
            bounds = [at for at in known.at if log.start_offset < at <= log.high_watermark]
            if replica.is_leader and bounds:
                leader.run(partial(leader.delete, index, self.dice.choice(bounds)))
                known.let_go(log.start_offset)
                return

    # ── Ways ──────────────────────────────────────────────────────────────────────────────────

    def cut_way(self) -> None:
        one, other = self.dice.sample(sorted(self.world.brokers), 2)
        self.network.cut(one, other)

    def cut_pair(self) -> None:
        one, other = self.dice.sample(sorted(self.world.brokers), 2)
        self.network.cut(one, other)
        self.network.cut(other, one)

    def cut_off(self) -> None:
        self._cut_off(self._some_broker().node_id)

    def cut_off_leader(self) -> None:
        leader = self._leader()
        if leader is not None:
            self._cut_off(leader.node_id)

    def _cut_off(self, number: int) -> None:
        for other in (CONTROLLER, *self.world.brokers):
            if other != number:
                self.network.cut(number, other)
                self.network.cut(other, number)

    def cut_from_controller(self) -> None:
        number = self._some_broker().node_id
        ways = [(number, CONTROLLER), (CONTROLLER, number)]
        for way in self.dice.choice([ways, ways[:1], ways[1:]]):
            self.network.cut(*way)

    def break_lines(self) -> None:
        for line in tuple(self.network.lines):
            if self.dice.random() < 0.5:
                line.break_off()

    def heal(self) -> None:
        self.network.heal()
        self.world.control.extra_ms = 0

    def pause(self) -> None:
        until_ms = self.world.schedule.now_ms + self.dice.choice([30, 150, 600])
        self._some_broker().paused_until_ms = until_ms

    def slow_metadata(self) -> None:
        self._some_broker().metadata_slow_ms = self.dice.choice([0, 50, 300])

    def slow_controller(self) -> None:
        self.world.control.extra_ms = self.dice.choice([0, 0, 60, 200])

    # ── Wishes ────────────────────────────────────────────────────────────────────────────────

    def prefer_leaders(self) -> None:
        self.world.control.elect("preferred")

    def fence_falsely(self) -> None:
        self.fence(self._some_broker().node_id)

    def fence(self, number: int) -> None:
        """A probe is wrong about a broker that is well; it is back with its next heartbeat."""
        info = self.world.control.image.brokers.get(BrokerId(number))
        if info is not None and not self.is_over:
            self.world.control.fence(number, info.broker_epoch)

    def change_min_isr(self) -> None:
        if TOPIC in self.world.control.image.topics:
            self.world.control.configure(min__insync__replicas=self.dice.choice([1, 2, 2, 3]))

    def change_durability(self) -> None:
        if TOPIC in self.world.control.image.topics:
            name = self.dice.choice(["fsync", "pagecache"])
            self.world.control.configure(ottla__durability=name)
