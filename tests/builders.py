"""What tests build logs from. A test states only what it is about; the rest is filled in here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import BatchHeader, read_header
from ottla.proto.records.record import Record
from ottla.replication.log.handles import Handles
from ottla.replication.log.log import Log
from ottla.replication.log.place import LogPlace, create_log
from ottla.replication.log.recovery import RecoveryReport, open_log
from ottla.replication.settings import LogSettings
from ottla.replication.storage.faults import FaultPlan, FaultyFiles, Power
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from ottla.replication.storage.ports import Files, StateStore

EPOCH = LeaderEpoch(0)
NOW_MS = 1_700_000_000_000
BIG = 1 << 30

# A key and a value, or a value alone.
Told = bytes | tuple[bytes | None, bytes | None]


def produced(
    *told: Told,
    codec: Codec = Codec.NONE,
    timestamps: Sequence[int] | None = None,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
) -> bytes:
    """Return a batch as a producer sends it: offsets from 0, no epoch."""
    records = []
    for number, one in enumerate(told):
        key, value = one if isinstance(one, tuple) else (None, one)
        timestamp = timestamps[number] if timestamps else NOW_MS
        records.append(Record(number, timestamp, key, value, ()))
    is_idempotent = producer_id >= 0
    return build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch if is_idempotent else -1,
        base_sequence=sequence if is_idempotent else -1,
        transactional=transactional,
    )


def small_settings(**changes: object) -> LogSettings:
    """Settings under which a few batches make several segments and index entries."""
    few: dict[str, object] = {
        "segment_bytes": 600,
        "index_interval_bytes": 100,
        "file_delete_delay_ms": 0,
    }
    return LogSettings(**{**few, **changes})  # type: ignore[arg-type]  # names are the fields'


class OneLog:
    """One partition on one disk, to be opened as often as a test likes."""

    def __init__(
        self,
        settings: LogSettings | None = None,
        files: Files | None = None,
        store: StateStore | None = None,
        root: str = "/data",
    ) -> None:
        self.settings = settings or small_settings()
        self.files: Files = files or MemoryFiles()
        self.store: StateStore = store or MemoryStateStore()
        self.root = root
        if files is None:
            self.files.make_dir(root)

    @property
    def place(self) -> LogPlace:
        return LogPlace(
            name="t-0",
            directory=f"{self.root}/t-0",
            files=self.files,
            store=self.store,
            handles=Handles(self.files),
            settings=self.settings,
        )

    def create(self) -> Log:
        log = create_log(self.place)
        log.assign_epoch(EPOCH)
        return log

    def open(self, now_ms: int = NOW_MS) -> tuple[Log, RecoveryReport]:
        return open_log(self.place, now_ms=now_ms)


def faulty_files() -> tuple[FaultyFiles, FaultPlan, Power]:
    """Return a disk with an empty `/data`, the plan of its errors, and its power switch."""
    disk = MemoryFiles()
    disk.make_dir("/data")
    plan, power = FaultPlan(), Power()
    return FaultyFiles(disk, power, plan), plan, power


def committed(log: Log) -> Log:
    """Let everything in the log be durable, below the recovery point, and committed."""
    log.advance_high_watermark(log.end_offset)
    log.checkpoint()
    return log


def append(log: Log, *told: Told, now_ms: int = NOW_MS, **how: object) -> Offset:
    """Append one batch as leader and return its first offset."""
    batch = produced(*told, **how)  # type: ignore[arg-type]  # passed on
    return log.append_as_leader(batch, epoch=log.epochs.latest, now_ms=now_ms).first_offset


def batches_of(log: Log, *, before: Offset | None = None) -> list[bytes]:
    """Return all the batches that a reader gets, from the start on."""
    return list(iterate_batches(log, log.start_offset, before=before))


def iterate_batches(log: Log, offset: Offset, *, before: Offset | None = None) -> Iterator[bytes]:
    while (found := log.read(offset, bytes_max=BIG, before=before)) is not None:
        data = found.read()
        position = 0
        while position < len(data):
            header = read_header(data, position)
            yield data[position : position + header.size]
            position += header.size
            offset = header.next_offset


def headers_of(log: Log) -> list[BatchHeader]:
    return [read_header(batch) for batch in batches_of(log)]


def records_of(log: Log) -> list[Record]:
    """Return all the records that a reader gets, from the start on."""
    found = [record for batch in batches_of(log) for record in decode_records(batch)]
    return [record for record in found if record.offset >= log.start_offset]


def values_of(log: Log) -> list[bytes | None]:
    return [record.value for record in records_of(log)]
