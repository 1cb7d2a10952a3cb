"""What is committed is never lost: the metadata together with logs of the simplest kind.

Three brokers hold one partition. A log is a list of numbers, of which a power cut may take what was
not synced; the high watermark moves as rules 29 and 33 say. Whatever happens, in whatever order,
whoever is elected holds everything that was committed (rules 8, 16 to 18, 20, 50, 52 to 54).
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.commands import PartitionChange, ReportDamage
from ottla.controller.election import is_fsync, min_insync_of
from ottla.controller.image import PartitionInfo
from ottla.proto.ids import BrokerId
from tests.unit.controller.cluster import Cluster

BROKERS = (1, 2, 3)


class Disk:
    """One broker's copy of the log."""

    def __init__(self, number: int) -> None:
        self.records: list[int] = []
        self.synced = 0
        self.directory = number
        self.boot = 1
        # The leader epoch in which the leader knows how far this copy is (rule 22).
        self.fetched_epoch = 0
        # Bad bytes were found in it: it is neither served nor written any more in this life.
        self.is_failed = False

    def sync(self) -> None:
        self.synced = len(self.records)


class World:
    """A cluster, its disks, and what was acknowledged."""

    def __init__(self) -> None:
        self.cluster = Cluster(3)
        self.cluster.create(BROKERS, configs={"min.insync.replicas": "2"})
        self.disks = {number: Disk(number) for number in BROKERS}
        self.committed: list[int] = []
        self.next = 0

    @property
    def partition(self) -> PartitionInfo:
        return self.cluster.partition()

    @property
    def is_fsync(self) -> bool:
        return is_fsync(self.cluster.image, self.cluster.image.topics["t"])

    def is_up(self, number: int) -> bool:
        return self.cluster.image.is_active(BrokerId(number))

    def check(self) -> None:
        leader = self.partition.leader
        if leader is not None:
            held = self.disks[leader].records
            assert not self.disks[leader].is_failed
            told = f"{self.partition} holds {held}, and {self.committed} is committed"
            assert held[: len(self.committed)] == self.committed, told

    # ── The log ───────────────────────────────────────────────────────────────────────────────

    def append(self, number: int, dice: int) -> None:
        leader = self.partition.leader
        if leader is not None:
            self.disks[leader].records.append(self.next)
            self.next += 1

    def fetch(self, number: int, dice: int) -> None:
        leader = self.partition.leader
        if leader is None or leader == number or not self.is_up(number):
            return
        if self.disks[number].is_failed:
            return
        disk, source = self.disks[number], self.disks[leader].records
        while disk.records != source[: len(disk.records)]:
            disk.records.pop()
        disk.synced = min(disk.synced, len(disk.records))
        disk.records += source[len(disk.records) :]
        disk.fetched_epoch = self.partition.leader_epoch
        if self.is_fsync:
            disk.sync()

    def commit(self, number: int, dice: int) -> None:
        partition = self.partition
        topic = self.cluster.image.topics["t"]
        enough = min_insync_of(self.cluster.image, topic)
        if partition.leader is None or len(partition.isr) < enough:
            return
        leader = self.disks[partition.leader]
        leader.fetched_epoch = partition.leader_epoch
        if self.is_fsync:
            leader.sync()
        ends = [
            len(disk.records) if disk.fetched_epoch == partition.leader_epoch else 0
            for disk in (self.disks[one] for one in partition.isr)
        ]
        if min(ends) > len(self.committed):
            self.committed = leader.records[: min(ends)]

    # ── The in-sync set ───────────────────────────────────────────────────────────────────────

    def join(self, number: int, dice: int) -> None:
        self.fetch(number, dice)
        leader = self.partition.leader
        # A leader asks for whoever has fetched, and who has failed does not.
        is_fetching = self.is_up(number) and not self.disks[number].is_failed
        if leader is not None and number != leader and is_fetching:
            wanted = sorted({*self.partition.isr, number})
            self.cluster.alter(leader, self.cluster.change(wanted))

    def leave(self, number: int, dice: int) -> None:
        leader = self.partition.leader
        if leader is not None and number != leader:
            wanted = [one for one in self.partition.isr if one != number]
            self.cluster.alter(leader, self.cluster.change(wanted))

    def swear(self, number: int, dice: int) -> None:
        """All in sync have synced what they hold, and the leader says so."""
        partition = self.partition
        if partition.leader is not None and self.is_fsync:
            for one in partition.isr:
                self.fetch(one, dice)
                self.disks[one].sync()
            change = self.cluster.change(partition.isr, is_synced=True)
            self.cluster.alter(partition.leader, change)

    def prefer(self, number: int, dice: int) -> None:
        self.cluster.elect("preferred")

    # ── Lives ─────────────────────────────────────────────────────────────────────────────────

    def cut_off(self, number: int, dice: int) -> None:
        self.cluster.fence(number)

    def return_(self, number: int, dice: int) -> None:
        self.cluster.unfence(number)

    def crash(self, number: int, dice: int) -> None:
        self._register(number)

    def cut_power(self, number: int, dice: int) -> None:
        self._lose_power(number, dice)
        self._register(number)

    def cut_all_power(self, number: int, dice: int) -> None:
        for one in BROKERS:
            self._lose_power(one, dice)
        for one in BROKERS:
            self._register(one)

    def find_bad_bytes(self, number: int, dice: int) -> None:
        """A broker gives up its copy; the next life begins with an empty one."""
        disk, cluster = self.disks[number], self.cluster
        disk.records, disk.synced, disk.is_failed = [], 0, True
        where = {cluster.image.topics["t"].topic_id: (0,)}
        late = self._late_wish(number)
        cluster.ok(ReportDamage(BrokerId(number), cluster.broker(number).broker_epoch, where))
        if late is not None:
            assert cluster.alter_one(*late) is not None
        assert number not in {*self.partition.isr, *self.partition.elr}

    def _late_wish(self, number: int) -> tuple[int, PartitionChange] | None:
        """Return the wish of a leader to take the broker in, from before it failed."""
        leader = self.partition.leader
        if leader is None or leader == number:
            return None
        return leader, self.cluster.change(sorted({*self.partition.isr, number}))

    def lose_disk(self, number: int, dice: int) -> None:
        disk = self.disks[number]
        disk.records, disk.synced, disk.directory = [], 0, disk.directory + 10
        self._register(number)

    def stop(self, number: int, dice: int) -> None:
        self.cluster.shut_down(number)
        self.disks[number].sync()
        epoch = self.cluster.broker(number).broker_epoch
        # The machine may lose its power while nothing runs on it.
        self.disks[number].boot += dice % 2
        self._register(number, previous=epoch)

    def _lose_power(self, number: int, dice: int) -> None:
        disk = self.disks[number]
        kept = disk.synced + dice % (len(disk.records) - disk.synced + 1)
        disk.records = disk.records[:kept]
        disk.boot += 1

    def _register(self, number: int, **fields: int) -> None:
        disk = self.disks[number]
        disk.fetched_epoch = -1
        disk.is_failed = False
        told = {"directory": disk.directory, "boot": disk.boot, **fields}
        assert self.cluster.register(number, **told).refusal is None

    # ── Options ───────────────────────────────────────────────────────────────────────────────

    def set_minimum(self, number: int, dice: int) -> None:
        self.cluster.configure(min__insync__replicas=1 + dice % 3)

    def set_durability(self, number: int, dice: int) -> None:
        self.cluster.configure(ottla__durability=("fsync", "pagecache")[dice % 2])


# A step is as likely as it stands here often.
STEPS: list[Callable[[World, int, int], None]] = [
    *[World.append] * 4,
    *[World.fetch] * 3,
    *[World.commit] * 4,
    *[World.join] * 3,
    *[World.return_] * 3,
    World.leave,
    World.swear,
    World.prefer,
    *[World.cut_off] * 2,
    World.crash,
    World.cut_power,
    World.cut_all_power,
    World.lose_disk,
    World.find_bad_bytes,
    World.stop,
    World.set_minimum,
    World.set_durability,
]
_stories = st.lists(
    st.tuples(st.sampled_from(STEPS), st.sampled_from(BROKERS), st.integers(0, 5)), max_size=40
)


@settings(deadline=None)
@given(_stories)
def test_whoever_is_elected_holds_everything_that_was_committed(
    story: list[tuple[Callable[[World, int, int], None], int, int]],
) -> None:
    world = World()
    for step, number, dice in story:
        step(world, number, dice)
        world.check()
