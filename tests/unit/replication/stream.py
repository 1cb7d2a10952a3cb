"""A leader and a follower with real replicas, and a stream between them that is carried by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.proto.errors import StorageError
from ottla.proto.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.proto.replication import Answer, Ask, decode_answer, decode_ask
from ottla.replication.feeding import Feeder
from ottla.replication.follower import Step
from ottla.replication.leader import PartitionView
from ottla.replication.log.handles import Handles
from ottla.replication.log.log import Log
from ottla.replication.log.place import LogPlace, create_log
from ottla.replication.progress import FetchClaim, Verdict
from ottla.replication.pulling import Puller
from ottla.replication.replica import Replica
from ottla.replication.settings import LogSettings
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from ottla.replication.surroundings import ReplicaEvents, Surroundings
from tests.builders import NOW_MS, append, produced

LEADER, FOLLOWER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCH = LeaderEpoch(5)
TOPIC_ID = b"a topic's own id"
LAG_MS = 10_000
WAIT_MS = 500
# Of followers and leader, as the metadata has them.
BROKER_EPOCHS = {LEADER: 11, FOLLOWER: 12, THIRD: 13}


# Leader epochs, and what was written in each, one batch for each value.
History = Sequence[tuple[int, Sequence[bytes]]]


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def read(self) -> int:
        return self.now_ms


class HandSyncs:
    """Syncs at once, or, if the broker's disk is slow, when the test says so."""

    def __init__(self, broker: Broker, log: Log, on_synced: Callable[[Offset], None]) -> None:
        self._broker = broker
        self._log = log
        self._on_synced = on_synced
        self.is_wanted = False

    def request(self) -> None:
        self.is_wanted = True
        if not self._broker.is_slow:
            self.sync()

    def sync(self) -> None:
        if self.is_wanted and self._log.offline is None:
            self.is_wanted = False
            self._log.sync()
            self._on_synced(self._log.synced_offset)

    async def close(self) -> None: ...


class CountedReplica(Replica):
    """Counts how often the stream looks at it."""

    looks = 0

    def next_step(self) -> Step | None:
        self.looks += 1
        return super().next_step()

    def fetched(self, follower: BrokerId, broker_epoch: int, claim: FetchClaim) -> Verdict:
        self.looks += 1
        return super().fetched(follower, broker_epoch, claim)

    def read(self, offset: Offset, wanted: int, bytes_max: int) -> list[bytes]:
        self.looks += 1
        return super().read(offset, wanted, bytes_max)


class Broker:
    """One broker's replicas, all of one topic."""

    def __init__(self, me: BrokerId, clock: Clock) -> None:
        self.me = me
        self.replicas: dict[tuple[bytes, int], CountedReplica] = {}
        # Syncs wait for the test.
        self.is_slow = False
        self._files = MemoryFiles()
        self._files.make_dir("/data")
        self._store = MemoryStateStore()
        self._syncs: dict[Log, HandSyncs] = {}
        self._around = Surroundings(
            me=me,
            now_ms=clock.read,
            wall_ms=lambda: NOW_MS,
            lag_ms=lambda: LAG_MS,
            make_syncs=self._make_syncs,
            events=ReplicaEvents(),
        )

    def _make_syncs(
        self,
        log: Log,
        on_synced: Callable[[Offset], None],
        on_failed: Callable[[StorageError], None],
    ) -> HandSyncs:
        self._syncs[log] = HandSyncs(self, log, on_synced)
        return self._syncs[log]

    def make(self, index: int, settings: LogSettings | None = None) -> CountedReplica:
        place = LogPlace(
            name=f"t-{index}",
            directory=f"/data/t-{index}",
            files=self._files,
            store=self._store,
            handles=Handles(self._files),
            settings=settings or LogSettings(),
            topic_id=TOPIC_ID,
        )
        replica = CountedReplica(TopicPartition("t", index), create_log(place), self._around)
        self.replicas[TOPIC_ID, index] = replica
        return replica

    def find(self, topic_id: bytes, index: int) -> Replica | None:
        return self.replicas.get((topic_id, index))

    def sync(self, replica: Replica | None = None) -> None:
        """Let the syncs that wait be done."""
        logs = list(self._syncs) if replica is None else [replica.log]
        for log in logs:
            self._syncs[log].sync()

    @property
    def looks(self) -> int:
        return sum(replica.looks for replica in self.replicas.values())


def view(
    epoch: int = EPOCH,
    partition_epoch: int = 0,
    *,
    isr: tuple[BrokerId, ...] = (LEADER, FOLLOWER),
    active: tuple[BrokerId, ...] = (LEADER, FOLLOWER, THIRD),
    is_fsync: bool = True,
) -> PartitionView:
    return PartitionView(
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=partition_epoch,
        replicas=(LEADER, FOLLOWER, THIRD),
        isr=isr,
        min_isr=1,
        broker_epochs=BROKER_EPOCHS,
        active=active,
        is_fsync=is_fsync,
    )


class Stream:
    """One leader, one follower, some partitions, and what lies between them."""

    def __init__(self, count: int = 1, settings: LogSettings | None = None) -> None:
        self.clock = Clock()
        self.leader = Broker(LEADER, self.clock)
        self.follower = Broker(FOLLOWER, self.clock)
        self.broker_epoch = BROKER_EPOCHS[FOLLOWER]
        self.bytes_max = 10 << 20
        self.puller_wakes = 0
        self.feeder_wakes = 0
        self.puller = Puller(
            LEADER,
            broker_epoch=lambda: self.broker_epoch,
            now_ms=self.clock.read,
            wake=self._on_puller_wake,
        )
        for index in range(count):
            self.add(index, settings)
        self.feeder = self.make_feeder()
        self.puller.connected()

    def add(
        self,
        index: int,
        settings: LogSettings | None = None,
        *,
        led: History = (),
        followed: History = (),
    ) -> None:
        """Let there be another partition, with what each has of it from earlier epochs."""
        leader = self.leader.make(index, settings)
        remember(leader.log, led)
        leader.lead(view(is_fsync=leader.log.settings.fsync))
        follower = self.follower.make(index, settings)
        remember(follower.log, followed)
        follower.follow(EPOCH, LEADER)
        self.puller.add(follower)

    def _on_puller_wake(self) -> None:
        self.puller_wakes += 1

    def _on_feeder_wake(self) -> None:
        self.feeder_wakes += 1

    def make_feeder(self, follower: BrokerId = FOLLOWER) -> Feeder:
        return Feeder(
            follower,
            self.leader.find,
            bytes_max=lambda: self.bytes_max,
            wait_ms=lambda: WAIT_MS,
            now_ms=self.clock.read,
            wake=self._on_feeder_wake,
            look=self._on_feeder_wake,
        )

    def led(self, index: int = 0) -> Replica:
        return self.leader.replicas[TOPIC_ID, index]

    def followed(self, index: int = 0) -> Replica:
        return self.follower.replicas[TOPIC_ID, index]

    def write(self, *values: bytes, index: int = 0) -> None:
        """Append one batch for each value, at the leader."""
        self.led(index).append([produced(value) for value in values], now_ms=NOW_MS)

    def wait(self, ms: int) -> None:
        self.clock.now_ms += ms

    # ── Carrying ──────────────────────────────────────────────────────────────────────────────

    def asks(self) -> list[Ask]:
        """Carry what the follower has to say, and return it."""
        frames = self.puller.next_asks()
        for frame in frames:
            self.feeder.take(frame)
        return [decode_ask(frame) for frame in frames]

    def ask(self) -> Ask:
        (ask,) = self.asks()
        return ask

    def sent(self) -> bytes | None:
        """Return what the leader has to say; it is on its way."""
        pieces = self.feeder.next_answer()
        return None if pieces is None else b"".join(pieces)

    def answer(self) -> Answer:
        """Carry what the leader has to say, and return it."""
        frame = self.sent()
        assert frame is not None
        self.puller.take(frame)
        return decode_answer(frame)

    def settle(self) -> list[Answer]:
        """Carry until nobody has anything to say at this time; return the answers."""
        answers = list[Answer]()
        for _ in range(1000):
            asks = self.asks()
            frame = self.sent()
            if frame is not None:
                self.puller.take(frame)
                answers.append(decode_answer(frame))
            elif not asks:
                return answers
        raise AssertionError("they never stop talking")

    def is_equal(self, index: int = 0) -> bool:
        """Whether the follower has, byte for byte, what the leader has."""
        led, followed = self.led(index).log, self.followed(index).log
        return (
            led.end_offset == followed.end_offset
            and led.epochs.entries[-1:] == followed.epochs.entries[-1:]
            and bytes_of(led) == bytes_of(followed)
        )


def remember(log: Log, history: History) -> None:
    for epoch, values in history:
        log.assign_epoch(LeaderEpoch(epoch))
        for value in values:
            append(log, value)
    log.sync()


def bytes_of(log: Log) -> bytes:
    found, offset = b"", log.start_offset
    for segment in log.segments:
        slice_ = log.read(max(offset, segment.base_offset), bytes_max=1 << 30)
        found += b"" if slice_ is None else slice_.read()
    return found
