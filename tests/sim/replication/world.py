"""One seed's world: brokers, a controller, clients, a storm, and what must be true afterwards."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from ottla.proto.errors import InvariantError
from ottla.proto.kafka.uuids import UUID
from ottla.replication.log.files import segment_stem
from ottla.replication.log.state import decode_state, partition_key
from ottla.replication.settings import LogSettings
from tests.sim.cluster.schedule import Schedule
from tests.sim.replication.broker import ANSWER_MS, BrokerProcess
from tests.sim.replication.clients import ALL, Producer
from tests.sim.replication.climate import Climate, draw_climate
from tests.sim.replication.control import TOPIC, Control
from tests.sim.replication.faults import Faults
from tests.sim.replication.machine import ROOT
from tests.sim.replication.network import Network
from tests.sim.replication.truth import Truth, fail

QUIET_MS = 100
# After the storm all is well within this time.
HEALING_MS = 5_000
LOOK_MS = 20
EVENTS_MAX = 60_000


class Clock(Schedule):
    """Virtual time that can be asked when it will move."""

    @property
    def next_ms(self) -> int:
        return self._due[0][0]


class World:
    """Everything that happens to one seed."""

    def __init__(self, seed: int, family: str, climate: Climate | None = None) -> None:
        self.dice = Random(f"replication/{family}/{seed}")
        self.climate = climate or draw_climate(self.dice, family)
        self.schedule = Clock()
        self.network = Network(self.schedule, self.dice, self.climate)
        self.settings = LogSettings(
            segment_bytes=self.climate.segment_bytes,
            index_interval_bytes=300,
            segment_index_bytes=800,
            producer_expiry_ms=10**12,
        )
        self.is_writing = True
        # Nobody writes in between.
        self.quiet_from_ms = self.quiet_until_ms = 0
        self._value = 0
        # Whose logs may be others than they were before the last event.
        self.touched: BrokerProcess | None = None
        # Brokers whose disk was lost or damaged, until they are in sync again.
        self.lost: set[int] = set()
        self.brokers: dict[int, BrokerProcess] = {}
        for number in range(1, self.climate.brokers + 1):
            self.brokers[number] = BrokerProcess(self, number)
        self.control = Control(self)
        self.truth = Truth(self)
        self.faults = Faults(self)
        self.last_acknowledged = [-1] * self.climate.partitions
        self.producers = [
            Producer(self, number, acks, is_idempotent=acks != 0 and self.dice.random() < 0.6)
            for number, acks in enumerate(self.climate.producers)
        ]

    def new_id(self) -> UUID:
        return UUID(int=self.dice.getrandbits(128) | 1 << 100)

    def next_value(self) -> int:
        self._value += 1
        return self._value

    # ── The course of it ──────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        self._begin()
        for producer in self.producers:
            producer.begin()
        self.faults.begin()
        self._until(self.schedule.now_ms + QUIET_MS + self.climate.storm_ms)
        self._heal()
        self._write_once_more()
        self.truth.require_agreement()

    def _begin(self) -> None:
        """A cluster that was never well can lose nothing."""
        self.network.is_calm = True
        self.control.begin()
        while not self._are_active():
            self._until(self.schedule.now_ms + LOOK_MS)
        self.control.create_topic()
        self._wait("at the beginning")
        self.network.is_calm = False

    def _are_active(self) -> bool:
        known = self.control.image.brokers
        return len(known) == len(self.brokers) and all(one.is_active for one in known.values())

    def _until(self, end_ms: int) -> None:
        schedule, truth = self.schedule, self.truth
        while schedule.next_ms <= end_ms:
            try:
                schedule.step()
            except InvariantError as error:
                fail("I1", f"an invariant of the code is broken: {error}")
            truth.look()
            if schedule.events > EVENTS_MAX:
                fail("I11", "the world does not come to rest")
        schedule.now_ms = end_ms

    def _heal(self) -> None:
        """Everything is mended; then all must be well soon (I11)."""
        self.schedule.note("the storm is over")
        self.network.is_calm = True
        self.is_writing = False
        self.faults.end()
        for number in sorted(self.lost):
            broker = self.brokers[number]
            if broker.damaged:
                # Somebody puts an empty disk into its place.
                self.wipe(broker)
        self._wait("after the storm")

    def _wait(self, when: str) -> None:
        deadline_ms = self.schedule.now_ms + HEALING_MS
        while self.truth.missing():
            if self.schedule.now_ms > deadline_ms:
                fail("I11", f"{when}: {self.truth.missing()}")
            self._until(self.schedule.now_ms + LOOK_MS)
            self._help()

    def _help(self) -> None:
        """An operator may elect somebody who lacks records, where there is nobody else."""
        if self.climate.family not in ("pagecache", "unclean"):
            return
        if all(one.is_up for one in self.brokers.values()) and any(
            partition.leader is None and not partition.elr for partition in self.control.partitions
        ):
            self.control.elect("unclean")

    def _write_once_more(self) -> None:
        writers = [
            Producer(self, 100 + index, ALL, is_idempotent=True)
            for index in range(self.climate.partitions)
        ]
        self.is_writing = True
        for index, writer in enumerate(writers):
            writer.index = index
            writer.begin()
        deadline_ms = self.schedule.now_ms + HEALING_MS
        while not all(writer.acknowledged for writer in writers):
            if self.schedule.now_ms > deadline_ms:
                fail("I11", "nothing can be written after the storm")
            self._until(self.schedule.now_ms + LOOK_MS)
        self.is_writing = False
        self._wait("after the last write")

    # ── What happens to brokers ───────────────────────────────────────────────────────────────

    def kill(self, broker: BrokerProcess) -> None:
        if not broker.is_up:
            return
        self.schedule.note("broker %d is killed", broker.node_id)
        self.truth.look()
        broker.end()
        broker.machine.power.crash()
        self.faults.start_again(broker)

    def lose_power(self, broker: BrokerProcess, *, is_sudden: bool = False) -> None:
        """A machine goes dark; suddenly, in the midst of something: nobody looks at its logs."""
        self.schedule.note("broker %d loses power", broker.node_id)
        if broker.is_up:
            if not is_sudden:
                self.truth.look()
            broker.end()
        self.truth.lost_power(broker.node_id)
        broker.machine.lose_power(self.dice)
        self.faults.start_again(broker)

    def wipe(self, broker: BrokerProcess) -> None:
        self.kill(broker)
        self.schedule.note("broker %d loses its disk", broker.node_id)
        self.lost.add(broker.node_id)
        self.truth.wiped(broker.node_id)
        broker.machine.wipe()
        self.faults.start_again(broker)

    def damage(self, broker: BrokerProcess) -> None:
        """A broker dies, and a part of its log that was synced is gone when it comes back."""
        self.kill(broker)
        files = broker.machine.files
        broker.machine.power.cut_at = None
        broker.machine.plan.rules.clear()
        for index in range(self.climate.partitions):
            name = f"{TOPIC}-{index}"
            record = broker.machine.records.get(partition_key(name))
            if record is None:
                continue
            state = decode_state(name, record)
            path = segment_stem(f"{ROOT}/{name}", state.recovery_base) + ".log"
            if state.recovery_position and files.exists(path):
                size = self.dice.randrange(state.recovery_position)
                file = files.open(path)
                file.truncate(size)
                file.sync()
                self.schedule.note("broker %d: %s is damaged", broker.node_id, path)
                self.lost.add(broker.node_id)
                self.truth.was_damaged(broker.node_id, index)
        self.faults.start_again(broker)

    def acknowledged(self, index: int) -> None:
        """acks=all was told to a client: now hurt whoever gave the word."""
        if not self.network.happens(self.climate.hurt_acks):
            return
        partition = self.control.partitions[index]
        if partition.leader is not None:
            self.lose_power(self.brokers[partition.leader])

    def proposed(self, leader: int, isr: Collection[int], members: Collection[int]) -> int:
        """A leader sends a proposal. Return how much later than others it arrives.

        Who is to join is perhaps lost from sight just now, and taken for dead for a moment.
        """
        joining = [one for one in members if one not in isr]
        if joining and self.network.happens(self.climate.hurt_joins):
            self.network.cut(leader, joining[0])
            self.network.cut(joining[0], leader)
            if self.dice.random() < 0.5:
                delay_ms = self.dice.randrange(ANSWER_MS, 2 * ANSWER_MS)
                self.schedule.after(delay_ms, "fence", lambda: self.faults.fence(joining[0]))
        if not self.network.happens(self.climate.late_proposals):
            return 0
        return self.dice.randrange(ANSWER_MS, 5 * ANSWER_MS)
