"""A small log on a memory disk, with a little of everything, for tests that damage it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.record import Record
from ottla.replication.inspect.partition import PartitionReport
from ottla.replication.inspect.verify import VerifyReport, verify_directory
from ottla.replication.log.handles import Handles
from ottla.replication.log.log import Log
from ottla.replication.log.place import LogPlace, create_log
from ottla.replication.log.recovery import open_log
from ottla.replication.log.state import (
    PartitionState,
    decode_state,
    encode_state,
    partition_key,
)
from ottla.replication.settings import LogSettings
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore

ROOT = "/data"
NAME = "t-0"
DIRECTORY = f"{ROOT}/{NAME}"
# A segment takes ten batches of these tests, and each batch but the first has an index entry.
SETTINGS = LogSettings(segment_bytes=1000, index_interval_bytes=1)


@dataclass
class Shelf:
    """A disk with one partition, and the ways in which a test may touch it."""

    settings: LogSettings = SETTINGS
    files: MemoryFiles = field(default_factory=MemoryFiles)
    disk: dict[bytes, bytes] = field(default_factory=dict)
    # As the controller counts them: also when a log has forgotten its own, they never go back.
    epoch: int = 0

    def __post_init__(self) -> None:
        self.files.make_dir(ROOT)
        self.files.make_dir(f"{ROOT}/state")

    def place(self) -> LogPlace:
        return LogPlace(
            name=NAME,
            directory=DIRECTORY,
            files=self.files,
            store=MemoryStateStore(self.disk),
            handles=Handles(self.files),
            settings=self.settings,
        )

    def create(self) -> Log:
        log = create_log(self.place())
        log.assign_epoch(LeaderEpoch(0))
        return log

    def next_epoch(self) -> LeaderEpoch:
        self.epoch += 1
        return LeaderEpoch(self.epoch)

    def open(self) -> Log:
        return open_log(self.place(), now_ms=0)[0]

    def append(self, log: Log, count: int, *, codec: Codec = Codec.NONE, producer: int = 7) -> None:
        """Append batches of two records, by an idempotent producer, with times out of order."""
        for _ in range(count):
            known = log.producers.get(producer)
            number = log.end_offset
            records = [
                Record(index, 1000 + number * 37 % 100 + number, b"k%d" % (number % 3), b"v" * 9)
                for index in range(2)
            ]
            batch = build_batch(
                records,
                codec=codec,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=known.last_sequence + 1 if known else 0,
            )
            log.append_as_leader(batch, epoch=log.epochs.latest, now_ms=5000)

    def verify(self, path: str = ROOT) -> VerifyReport:
        return verify_directory(
            self.files, path, read_state=lambda _: MemoryStateStore(dict(self.disk))
        )

    def report(self) -> PartitionReport:
        (report,) = self.verify().partitions
        return report

    def problems(self) -> list[str]:
        return self.report().problems

    # -- damage ----------------------------------------------------------------------------------

    def read(self, name: str) -> bytes:
        path = f"{DIRECTORY}/{name}"
        return self.files.open(path).read_at(0, self.files.size_of(path))

    def write(self, name: str, content: bytes) -> None:
        file = self.files.open(f"{DIRECTORY}/{name}", create=True)
        file.truncate(0)
        file.write_at(0, [content])

    def put(self, name: str, position: int, content: bytes) -> None:
        self.files.open(f"{DIRECTORY}/{name}").write_at(position, [content])

    def flip(self, name: str, position: int) -> None:
        self.put(name, position, bytes([self.read(name)[position] ^ 0xFF]))

    def remove(self, stem: str) -> None:
        for suffix in (".log", ".index", ".timeindex"):
            self.files.remove(f"{DIRECTORY}/{stem}{suffix}")

    @property
    def state(self) -> PartitionState:
        return decode_state(NAME, self.disk[partition_key(NAME)])

    def change_state(self, **changes: object) -> None:
        changed = replace(self.state, **changes)  # type: ignore[arg-type]
        self.disk[partition_key(NAME)] = encode_state(changed)

    def contents(self) -> dict[str, bytes]:
        return {name: self.read(name) for name in self.files.list_dir(DIRECTORY)}


def filled() -> Shelf:
    """Thirty batches of 97 bytes and two records each, all checkpointed.

    Segments begin at 0, 20 and 40; epoch 0 from 0 on, epoch 2 from 30 on; the end is 60.
    """
    shelf = Shelf()
    log = shelf.create()
    shelf.append(log, 15)
    log.assign_epoch(LeaderEpoch(2))
    shelf.append(log, 15)
    log.advance_high_watermark(Offset(60))
    log.checkpoint()
    log.close()
    return shelf
