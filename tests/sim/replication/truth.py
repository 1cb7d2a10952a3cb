"""What was promised, as an outside observer knows it, and whether it still holds.

The observer sees every log and every high watermark. Whatever was below a high watermark anywhere,
at any time, was committed: a reader may have seen it. It is kept here as bytes, and held against
every replica. A rule that is broken has a name:

  I1  log start ≤ high watermark ≤ end offset; within one life a high watermark never falls (69)
  I2  below a high watermark all replicas have the same bytes, for ever                (45, 57, 60)
  I3  whoever may lead next, in sync or eligible, holds all that is committed, and on its disk if
      the partition is durable                                          (8, 17, 29 to 31, 37, 47)
  I4  acks=all is acknowledged below the high watermark, with enough in sync, on enough disks (27,
      47, 69); acks=1 when the leader holds it                                              (26)
  I5  one broker appends in one leader epoch; what one epoch has at an offset is one batch (3, 69)
  I6  no batch of an idempotent producer is committed twice                                 (61)
  I7  what was refused before it was appended is nowhere, and changed nothing            (25, 27)
  I8  a leader that was replaced refuses writes after a session                              (13)
  I9  a write that began after another was acknowledged comes after it (acks=all)
  I10 no replica fails, and what a process left on its disk is there at the next start   (44, 51)
  I11 after the storm everything converges                                            (liveness)
  I12 an offset that was acknowledged with acks=all holds that very batch at the end         (60)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.election import min_insync_of
from ottla.controller.image import MetadataImage, PartitionInfo
from ottla.proto.ids import BrokerId, Offset, TopicPartition
from ottla.proto.records.header import read_header
from ottla.replication.log.log import Log
from ottla.replication.replica import Replica
from tests.sim.replication.control import SESSION_MS, TOPIC
from tests.sim.replication.observed import Committed, Copy

if TYPE_CHECKING:
    from tests.sim.replication.broker import BrokerProcess
    from tests.sim.replication.world import World

_BIG = 1 << 30
# The value of a record stands before its last byte, which counts its headers.
VALUE_BYTES = 8
# Bytes that are equal stay so until a log is cut or opened: it is enough to look now and then.
_LOOK_EVERY = 80


class BrokenRuleError(AssertionError):
    """A rule was broken."""

    def __init__(self, name: str, told: str) -> None:
        super().__init__(f"{name}: {told}")
        self.name = name


def fail(name: str, told: str) -> None:
    raise BrokenRuleError(name, told)


def value_of(batch: bytes | memoryview) -> int:
    """Return the number that a batch of ours carries."""
    return int(bytes(batch[-1 - VALUE_BYTES : -1]))


class Truth:
    """The observer."""

    def __init__(self, world: World) -> None:
        self.world = world
        count = world.climate.partitions
        self.committed = [Committed() for _ in range(count)]
        self.copies: dict[tuple[int, int], Copy] = {
            (number, index): Copy() for number in world.brokers for index in range(count)
        }
        self.refused: set[int] = set()
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(count)]
        self.cuts = 0
        # A batch that is being appended: epoch, offset and value. It may be committed at once.
        self.expected: tuple[int, int, int] | None = None
        self._events = 0
        self._version = -1

    # ── What happens to machines ──────────────────────────────────────────────────────────────

    def is_dark(self, number: int) -> bool:
        return any(copy.is_dark for (one, _), copy in self.copies.items() if one == number)

    def lost_power(self, number: int) -> None:
        for (one, _), copy in self.copies.items():
            if one == number:
                copy.is_dark = True
                copy.is_torn = True
                copy.end = min(copy.end, copy.synced)
                copy.losses += 1

    def lost_disk(self, number: int) -> None:
        """A disk refuses everything from now on."""
        for (one, _), copy in self.copies.items():
            if one == number:
                copy.is_torn = True

    def wiped(self, number: int) -> None:
        for key, copy in self.copies.items():
            if key[0] == number:
                self.copies[key] = Copy(is_wiped=True, losses=copy.losses + 1)

    def was_damaged(self, number: int, index: int) -> None:
        copy = self.copies[number, index]
        copy.is_damaged = True
        copy.losses += 1

    def opened(self, broker: BrokerProcess) -> None:
        """A process has read its disk: what it was promised to find is there (I10)."""
        assert broker.manager is not None
        for index in range(len(self.committed)):
            copy = self.copies[broker.node_id, index]
            log = broker.manager.logs.get(TopicPartition(TOPIC, index))
            copy.is_damaged = broker.has_lost(index)
            if log is None or copy.is_damaged:
                continue
            # Perhaps it was just being cut; never below its high watermark.
            floor = min(copy.synced, copy.high_watermark) if copy.is_torn else copy.end
            copy.is_torn = False
            if log.end_offset < floor and not self._may_fall(index):
                fail("I10", f"{broker.node_id} had {floor}, and finds {log.end_offset}")
            copy.end, copy.synced = log.end_offset, log.synced_offset
            copy.high_watermark, copy.verified = log.high_watermark, 0
        self._version = -1

    def was_cut(
        self, broker: BrokerProcess, replica: Replica, old_end: Offset, *, is_reset: bool
    ) -> None:
        self.cuts += 1
        index, log = replica.partition.partition, replica.log
        copy = self.copies[broker.node_id, index]
        told = (broker.node_id, index, old_end, log.end_offset, "reset" if is_reset else "cut")
        self.world.schedule.note("%d: partition %d from %d to %d is %s", *told)
        copy.end, copy.synced = log.end_offset, log.synced_offset
        copy.verified = 0 if is_reset else min(copy.verified, log.end_offset)
        if log.high_watermark < copy.high_watermark and self._may_fall(index):
            copy.high_watermark = log.high_watermark

    def _may_fall(self, index: int) -> bool:
        return self.committed[index].era >= 0

    def failed(self, broker: BrokerProcess, replica: Replica, why: str) -> None:
        index = replica.partition.partition
        told = f"broker {broker.node_id}, partition {index}: {why}"
        self.world.schedule.note("%s", told)
        fail("I10", told)

    # ── What the metadata says ────────────────────────────────────────────────────────────────

    def metadata_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        for number, info in after.brokers.items():
            old = before.brokers.get(number)
            is_new = old is None or old.broker_epoch != info.broker_epoch
            broker = self.world.brokers[number]
            if is_new and broker.is_up and info.incarnation == broker.incarnation:
                # Its claims were judged by the controller just now.
                for index in range(len(self.committed)):
                    copy = self.copies[number, index]
                    copy.is_dark = copy.is_wiped = False
        topic, old_topic = after.topics.get(TOPIC), before.topics.get(TOPIC)
        if topic is None or topic is old_topic:
            return
        for index, partition in enumerate(topic.partitions):
            if old_topic is not None and partition is old_topic.partitions[index]:
                continue
            self.world.schedule.note(
                "metadata %d: partition %d has leader %s in epoch %d, in sync %s, eligible %s",
                after.version,
                index,
                partition.leader,
                partition.leader_epoch,
                partition.isr,
                partition.elr,
            )
            if partition.last_unclean_epoch > self.committed[index].era:
                self._begin_era(index, partition)

    def _begin_era(self, index: int, partition: PartitionInfo) -> None:
        """An unclean election: what was committed may be lost, and nobody is held to it."""
        known = self.committed[index]
        kept = Committed(era=partition.last_unclean_epoch)
        kept.writers, kept.written, kept.led_ms = known.writers, known.written, known.led_ms
        kept.losses, kept.deleted = known.losses, known.deleted
        kept.deleted_below = known.deleted_below
        self.committed[index] = kept
        self.acknowledged[index].clear()
        self.world.schedule.note("partition %d has an unclean leader", index)
        for (_, one), copy in self.copies.items():
            if one == index:
                copy.verified = 0

    # ── After every event ─────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """See what is new, and that all still holds."""
        self._events += 1
        world = self.world
        version, broker = world.control.image.version, world.touched
        is_new = self._version != version
        self._version = version
        world.touched = None
        if broker is not None and broker.is_up:
            for index, replica in broker.replicas.items():
                if self._look_at(broker, index, replica):
                    is_new = True
        if is_new:
            self.require_holders()
        if self._events % _LOOK_EVERY == 0:
            self.verify_all()

    def _look_at(self, broker: BrokerProcess, index: int, replica: Replica) -> bool:
        log = replica.log
        copy = self.copies[broker.node_id, index]
        if log.offline is not None:
            return False
        seen = (log.end_offset, log.synced_offset, log.high_watermark, replica.leader_epoch)
        if seen == copy.seen:
            return False
        copy.seen = seen
        end, synced, high, epoch = seen
        if not log.start_offset <= high <= end:
            fail("I1", f"{broker.node_id}: {log.start_offset} ≤ {high} ≤ {end}")
        if high < copy.high_watermark and not self._may_fall(index):
            fail("I1", f"{broker.node_id}: the high watermark fell from {copy.high_watermark}")
        if high > max(copy.high_watermark, synced) and log.settings.fsync:
            fail("I1", f"{broker.node_id}: high watermark {high}, and synced is {synced}")
        copy.end, copy.synced, copy.high_watermark = end, synced, high
        if replica.is_leader:
            self.committed[index].led_ms.setdefault(epoch, self.world.schedule.now_ms)
        if high > self.committed[index].end and self._counts(index, replica):
            self._grow(broker, index, log)
        return True

    def _counts(self, index: int, replica: Replica) -> bool:
        """Whether the replica has left everything behind from before an unclean election."""
        era = self.committed[index].era
        if era < 0:
            return True
        core = replica.leader
        return replica.log.epochs.latest >= era or (core is not None and core.leader_epoch >= era)

    def _grow(self, broker: BrokerProcess, index: int, log: Log) -> None:
        known = self.committed[index]
        if log.start_offset > known.end:
            if known.era < 0:
                fail("I2", f"{broker.node_id} has lost what is below {log.start_offset}")
            known.begin_at(log.start_offset)
        data = read(log, known.end, log.high_watermark)
        position = 0
        while position < len(data):
            header = read_header(data, position)
            value = value_of(data[position : position + header.size])
            if header.base_offset != known.end:
                fail("I2", f"{broker.node_id} has a hole at {known.end}")
            if known.offsets.get(value, -1) >= known.deleted_below:
                told = f"{value} is committed at {known.offsets[value]} and {header.base_offset}"
                fail("I6", told)
            if value in self.refused:
                fail("I7", f"{value} was refused, and is committed at {header.base_offset}")
            writer = known.written.get((header.leader_epoch, header.base_offset))
            found = (header.leader_epoch, header.base_offset, value)
            if writer != value and found != self.expected:
                told = f"{value} at {header.base_offset} in epoch {header.leader_epoch}"
                fail("I5", f"{told}: nobody wrote that there, but {writer}")
            known.offsets[value] = header.base_offset
            known.values[header.base_offset] = value
            position += header.size
            known.end = header.next_offset
            known.at[known.end] = len(known.data) + position
        known.data += data
        if known.end != log.high_watermark:
            told = f"{broker.node_id}: high watermark {log.high_watermark} inside a batch"
            fail("I2", told)
        self.copies[broker.node_id, index].verified = known.end

    def require_holders(self) -> None:
        """Whoever may lead next has all that is committed, counted in offsets (I3)."""
        for index, partition in enumerate(self.world.control.partitions):
            known = self.committed[index]
            if known.era >= 0 and partition.last_unclean_epoch > known.era:
                continue
            for member in (*partition.isr, *partition.elr):
                self._require_holder(index, partition, member, known.end)

    def _require_holder(
        self, index: int, partition: PartitionInfo, member: BrokerId, end: int
    ) -> None:
        copy = self.copies[member, index]
        info, broker = self.world.control.image.brokers[member], self.world.brokers[member]
        is_back = broker.is_up and info.incarnation == broker.incarnation
        if copy.is_damaged and info.is_active and is_back and not self._may_fall(index):
            fail("I3", f"{member} may lead, and its log is damaged: {partition}")
        if copy.is_wiped or copy.is_damaged or (copy.is_dark and not partition.is_durable):
            # It lost its claim with its bytes, and says so before it can lead.
            return
        if self._may_fall(index) and member != partition.leader:
            return
        held = copy.synced if partition.is_durable else copy.end
        if held < end:
            told = f"{member} holds {held} of {end} that are committed, and may lead: {partition}"
            fail("I3", told)

    def verify_all(self) -> None:
        """Hold the bytes of all running replicas against what is committed (I2)."""
        for broker in self.world.brokers.values():
            if broker.is_up:
                for index, replica in broker.replicas.items():
                    self.verify(broker, index, replica)

    def verify(self, broker: BrokerProcess, index: int, replica: Replica) -> None:
        log, known = replica.log, self.committed[index]
        copy = self.copies[broker.node_id, index]
        if log.offline is not None or not self._counts(index, replica):
            return
        partition = self.world.control.partitions[index]
        may_lead = broker.node_id in (*partition.isr, *partition.elr)
        bound = log.end_offset if may_lead else log.high_watermark
        end = min(bound, known.end)
        first = max(copy.verified, log.start_offset)
        if first >= end:
            return
        if read(log, first, end) != known.slice(first, end):
            fail("I2", f"{broker.node_id} differs from what is committed in {first} to {end}")
        copy.verified = end

    # ── What clients are told ─────────────────────────────────────────────────────────────────

    def appended(
        self, broker: BrokerProcess, replica: Replica, first_offset: int, value: int
    ) -> None:
        """A leader took a batch (I5, I8)."""
        index, epoch = replica.partition.partition, replica.leader_epoch
        known = self.committed[index]
        if known.writers.setdefault(epoch, broker.node_id) != broker.node_id:
            fail("I5", f"{known.writers[epoch]} and {broker.node_id} append in epoch {epoch}")
        if known.written.setdefault((epoch, first_offset), value) != value:
            fail("I5", f"epoch {epoch} has two batches at {first_offset}")
        known.losses.setdefault(value, self._losses_of(index))
        now_ms = self.world.schedule.now_ms
        later = [at_ms for one, at_ms in known.led_ms.items() if one > epoch]
        if later and now_ms - min(later) > SESSION_MS:
            told = f"{broker.node_id} takes {value} in epoch {epoch}, over since {min(later)}"
            fail("I8", told)

    def acknowledge_all(
        self, broker: BrokerProcess, replica: Replica, offset: int, value: int
    ) -> None:
        """acks=all is answered with success now (I4)."""
        index, core = replica.partition.partition, replica.leader
        known, log = self.committed[index], replica.log
        # In the midst of something: there will be more to see.
        self.world.touched = broker
        self.look()
        self.world.touched = broker
        if core is None or log.high_watermark <= offset:
            fail("I4", f"{broker.node_id} acknowledges {value} at {offset}, not committed")
        assert core is not None
        if not self._counts(index, replica):
            return
        if not known.has(offset, value):
            told = f"{value} is acknowledged at {offset}, where {known.values.get(offset)} is"
            fail("I4", told)
        if len(core.view.isr) < core.view.min_isr:
            fail("I4", f"{value} is acknowledged with {core.view.isr} in sync")
        holders = [
            copy
            for (_, one), copy in self.copies.items()
            if one == index
            and not (copy.is_wiped or copy.is_damaged)
            and (copy.synced if core.view.is_durable else copy.end) > offset
        ]
        # Who has lost it since it was appended may have held it when it counted.
        lost = self._losses_of(index) - known.losses[value]
        if len(holders) + lost < core.view.min_isr:
            fail("I4", f"{value} is acknowledged, and on {len(holders)} disks")
        self.acknowledged[index][offset] = value

    def _losses_of(self, index: int) -> int:
        return sum(copy.losses for (_, one), copy in self.copies.items() if one == index)

    def acknowledge_one(self, broker: BrokerProcess, replica: Replica, offset: int) -> None:
        """acks=1 is answered with success now (I4)."""
        log, core = replica.log, replica.leader
        # What it leads by and what its log obeys may differ for a moment: neither is broken.
        is_fsync = log.settings.fsync or (core is not None and core.view.is_fsync)
        held = log.synced_offset if is_fsync else log.end_offset
        if held <= offset:
            fail("I4", f"{broker.node_id} acknowledges {offset}, and holds {held}")

    # ── At the end ────────────────────────────────────────────────────────────────────────────

    def missing(self) -> str:
        """Return what keeps everything from being well, or nothing."""
        control, brokers = self.world.control, self.world.brokers
        if not control.partitions:
            return "there is no topic"
        for index, partition in enumerate(control.partitions):
            if partition.leader is None:
                return f"partition {index} has no leader: {partition}"
            if set(partition.isr) != set(partition.replicas):
                return f"partition {index} has {partition.isr} in sync: {partition}"
            enough = min_insync_of(control.image, control.image.topics[TOPIC])
            if len(partition.isr) < enough:
                return f"partition {index} has too few in sync"
            if not all(index in brokers[one].replicas for one in partition.replicas):
                return f"partition {index} is not everywhere yet"
            logs = [brokers[one].replicas[index].log for one in partition.replicas]
            ends = {(log.end_offset, log.high_watermark) for log in logs}
            if len(ends) > 1 or logs[0].high_watermark != logs[0].end_offset:
                return f"the logs of partition {index} end at {ends}"
        return ""

    def require_agreement(self) -> None:
        """All replicas are the same, and all that was acknowledged is in them (I2, I12)."""
        for copy in self.copies.values():
            copy.verified = 0
        self.look()
        self.verify_all()
        for index, partition in enumerate(self.world.control.partitions):
            known = self.committed[index]
            for offset, value in self.acknowledged[index].items():
                if not known.has(offset, value):
                    fail("I12", f"{value} was acknowledged at {offset}, and is not there")
            logs = [self.world.brokers[one].replicas[index].log for one in partition.replicas]
            start = max(log.start_offset for log in logs)
            contents = {read(log, start, log.end_offset) for log in logs}
            if len(contents) > 1:
                fail("I2", f"the replicas of partition {index} differ")


def read(log: Log, first: int, end: int) -> bytes:
    """Return the bytes of all batches from one offset to another."""
    parts = []
    while first < end:
        found = log.read(Offset(first), bytes_max=_BIG, before=Offset(end))
        if found is None:
            break
        data = found.read()
        parts.append(data)
        # The last batch says where to go on; ours are small, and a segment holds few.
        position = 0
        while position < len(data):
            header = read_header(data, position)
            position += header.size
            first = header.next_offset
    return b"".join(parts)
