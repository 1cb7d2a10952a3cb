"""A real data directory with two partitions, for tests that damage it before a start.

`t-0` is the one that a test damages, `u-0` the neighbour that must go on whatever happens. Each
batch holds one record and takes 100 bytes, so a batch's number is its offset and five fill a
segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ottla.proto.errors import CorruptionError, RequestError, StorageError
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.proto.records.header import HEADER_SIZE, LENGTH_END, BatchHeader, read_batch_length
from ottla.proto.records.validate import validate_stored
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager, StartReport
from ottla.replication.log.state import (
    PartitionState,
    decode_state,
    encode_state,
    partition_key,
)
from ottla.replication.settings import LogSettings
from ottla.replication.storage.directory import DataDirectory
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.faults import FaultPlan, FaultyFiles, FaultyStore, Power
from ottla.replication.storage.lmdb_store import LmdbStateStore
from ottla.replication.storage.ports import Files, StateStore
from tests.builders import NOW_MS, append, batches_of, small_settings

VICTIM: Final = TopicPartition("t", 0)
NEIGHBOUR: Final = TopicPartition("u", 0)
BATCH: Final = 100
# Segments of the victim begin at these offsets, and the log ends at END.
BASES: Final = (0, 5, 10, 15)
END: Final = 17
# What was synced when the node stopped: two batches of the segment at 10.
RECOVERY_POINT: Final = 12
SETTINGS: Final = small_settings(segment_bytes=5 * BATCH, index_interval_bytes=1)
_MAP_SIZE: Final = 1 << 20


@dataclass(slots=True)
class Running:
    """A node that has started on a data directory."""

    manager: LogManager
    report: StartReport
    store: StateStore
    directory: DataDirectory

    @property
    def log(self) -> Log:
        return self.manager.logs[VICTIM]

    @property
    def neighbour(self) -> Log:
        return self.manager.logs[NEIGHBOUR]

    def stop(self) -> None:
        """End as kill -9 does: nothing is checkpointed."""
        for log in self.manager.logs.values():
            log.close()
        self.store.close()
        self.directory.close()


@dataclass
class Node:
    """A data directory, and the ways in which a test may touch it while nobody uses it."""

    root: str
    settings: LogSettings = SETTINGS
    plan: FaultPlan | None = None
    written: list[bytes] = field(default_factory=list)

    def start(self, *, now_ms: int = NOW_MS) -> Running:
        files: Files = DiskFiles()
        power = Power()
        if self.plan is not None:
            files = FaultyFiles(files, power, self.plan)
        directory = DataDirectory.open(
            files, self.root, node_id=1, cluster_id="c", strict=False, new_id=lambda: "d"
        )
        store: StateStore = LmdbStateStore(f"{self.root}/state", map_size=_MAP_SIZE)
        if self.plan is not None:
            store = FaultyStore(store, power, self.plan)
        manager = LogManager(files, store, self.root, lambda topic: self.settings)
        try:
            report = manager.open(now_ms=now_ms)
        except BaseException:
            store.close()
            directory.close()
            raise
        return Running(manager, report, store, directory)

    @contextmanager
    def started(self, *, now_ms: int = NOW_MS) -> Iterator[Running]:
        running = self.start(now_ms=now_ms)
        try:
            yield running
        finally:
            running.stop()

    @contextmanager
    def opened_store(self) -> Iterator[StateStore]:
        store = LmdbStateStore(f"{self.root}/state", map_size=_MAP_SIZE)
        try:
            yield store
        finally:
            store.close()

    # -- the victim's files ------------------------------------------------------------------------

    def path(self, base: int, suffix: str = ".log") -> Path:
        return Path(self.root, "t-0", f"{base:020d}{suffix}")

    def put(self, base: int, position: int, content: bytes, suffix: str = ".log") -> None:
        with self.path(base, suffix).open("r+b") as file:
            file.seek(position)
            file.write(content)

    def remove_segment(self, base: int) -> None:
        for suffix in (".log", ".index", ".timeindex"):
            self.path(base, suffix).unlink()

    def rename_segment(self, base: int, new_base: int) -> None:
        for suffix in (".log", ".index", ".timeindex"):
            self.path(base, suffix).rename(self.path(new_base, suffix))

    def logs(self) -> dict[str, bytes]:
        """Return the bytes of all the victim's batches, by file name."""
        return {
            path.name: path.read_bytes()
            for path in sorted(Path(self.root, "t-0").iterdir())
            if ".log" in path.name
        }

    # -- the victim's record -----------------------------------------------------------------------

    def state(self) -> PartitionState:
        with self.opened_store() as store:
            value = store.get(partition_key("t-0"))
        assert value is not None
        return decode_state("t-0", value)

    def change_state(self, **changes: object) -> None:
        changed = replace(self.state(), **changes)  # type: ignore[arg-type]  # names are the fields'
        self.commit({partition_key("t-0"): encode_state(changed)})

    def commit(self, changes: dict[bytes, bytes | None]) -> None:
        with self.opened_store() as store:
            store.commit(changes)


def filled(root: Path, settings: LogSettings = SETTINGS, *, clean: bool = False) -> Node:
    """A node that stopped after 17 batches in `t-0`, of which 12 were checkpointed, or all."""
    node = Node(str(root), settings)
    running = node.start()
    for partition in (VICTIM, NEIGHBOUR):
        running.manager.create(partition).assign_epoch(LeaderEpoch(3))
    log = running.log
    append(running.neighbour, (b"k", b"neighbour"))
    for number in range(END):
        if number == 7:
            log.assign_epoch(LeaderEpoch(4))
        record = (b"k%03d" % number, b"value %03d %s" % (number, b"." * 18))
        append(log, record, timestamps=[time_of(number)])
        if number + 1 == RECOVERY_POINT:
            log.advance_high_watermark(Offset(RECOVERY_POINT))
            running.manager.checkpoint()
    node.written = batches_of(log)
    assert {len(batch) for batch in node.written} == {BATCH}
    assert tuple(segment.base_offset for segment in log.segments) == BASES
    if clean:
        running.manager.close(broker_epoch=7)
    running.stop()
    return node


def time_of(number: int) -> int:
    """A second apart, all in the past."""
    return NOW_MS - 100_000 + 1000 * number


def require_offline(node: Node, sentence: str) -> None:
    """The log refuses everything with this sentence and keeps its bytes; the neighbour goes on.

    Twice: a start that found damage must not tidy it away for the next one.
    """
    before = node.logs()
    for _ in range(2):
        with node.started() as running:
            assert running.log.offline == sentence
            assert running.report.damaged == {VICTIM: sentence}
            assert sentence in running.report.recovered[VICTIM].notes
            require_neighbour(running)
        assert node.logs() == before


def require_all_served(node: Node) -> None:
    with node.started() as running:
        assert running.log.offline is None
        assert batches_of(running.log) == node.written
        require_neighbour(running)


def require_neighbour(running: Running) -> None:
    assert running.manager.offline is None
    before = batches_of(running.neighbour)
    append(running.neighbour, (b"k", b"more"))
    assert batches_of(running.neighbour)[:-1] == before != []


@dataclass(slots=True)
class Received:
    """What somebody who copies a whole log got, and why it ended early."""

    batches: list[bytes] = field(default_factory=list)
    refusal: str | None = None


def receive(log: Log) -> Received:
    """Read like a follower: every batch is checked, and a bad one is asked for once more.

    A slice is sent as it lies in the file, so what follows its first batch may be anything. Who
    asks for the offset of the bad one gets an error of the log, or a batch that is bad in itself.
    """
    got = Received()
    offset = log.start_offset
    try:
        while (found := log.read(offset, bytes_max=1 << 20)) is not None:
            headers, data = _sound_headers(found.read(), offset)
            if not headers:
                got.refusal = f"the batch for offset {offset} is not sound"
                return got
            position = 0
            for header in headers:
                got.batches.append(data[position : position + header.size])
                position += header.size
            offset = headers[-1].next_offset
    except StorageError as error:
        got.refusal = str(error)
    except RequestError:
        got.refusal = f"the batch before offset {offset} is not sound: there is no such offset"
    return got


def _sound_headers(data: bytes, offset: Offset) -> tuple[list[BatchHeader], bytes]:
    headers = list[BatchHeader]()
    position = 0
    while len(data) - position >= HEADER_SIZE:
        size = read_batch_length(data, position) + LENGTH_END
        if not HEADER_SIZE <= size <= len(data) - position:
            break
        try:
            header = validate_stored(data[position : position + size])
        except CorruptionError:
            break
        if header.last_offset < offset:
            break
        headers.append(header)
        position, offset = position + size, header.next_offset
    return headers, data
