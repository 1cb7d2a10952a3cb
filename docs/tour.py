"""A tour of the log: opens a data directory, writes batches that are synced one by one, reads back.

    python docs/tour.py DIR [COUNT]

Run it, kill it, run it again: whatever it called acknowledged is there. It is written for readers;
a node will use group commit (`replication/log/group_commit.py`) and let many writers share a sync.
"""

from __future__ import annotations

import sys
import time

from ottla.proto.ids import LeaderEpoch, TopicPartition
from ottla.proto.records.build import build_batch
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import read_header
from ottla.proto.records.record import Record
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.settings import LogSettings
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.lmdb_store import LmdbStateStore

GREETINGS = TopicPartition("greetings", 0)


def now_ms() -> int:
    return int(time.time() * 1000)


def write(log: Log, count: int) -> None:
    """Append `count` batches of one record each."""
    epoch = LeaderEpoch(log.epochs.latest + 1)
    log.assign_epoch(epoch)
    for _ in range(count):
        value = f"hello {log.end_offset}".encode()
        batch = build_batch([Record(0, now_ms(), b"from the tour", value)])
        appended = log.append_as_leader(batch, epoch=epoch, now_ms=now_ms())
        log.sync()
        # With one replica, what it holds is committed.
        log.advance_high_watermark(log.held_offset)
        # Only now may anybody be told.
        print("acknowledged offset", appended.last_offset, flush=True)


def read_first(log: Log) -> None:
    found = log.read(log.start_offset, bytes_max=1)
    if found is not None:
        batch = found.read()
        for record in decode_records(batch[: read_header(batch).size]):
            print("offset", record.offset, "says", record.value)


def main(root: str, count: int) -> None:
    files = DiskFiles()
    files.make_dir(root)
    store = LmdbStateStore(f"{root}/state")
    logs = LogManager(files, store, root, lambda topic: LogSettings())
    report = logs.open(now_ms=now_ms())
    if GREETINGS not in logs.logs:
        logs.create(GREETINGS)
        stop = "this is the first start"
    else:
        stop = f"the last stop was {'unclean' if report.clean_broker_epoch is None else 'clean'}"
    log = logs.logs[GREETINGS]
    print(f"opened {GREETINGS} with offsets [{log.start_offset}, {log.end_offset}); {stop}")
    for recovered in report.recovered.values():
        print(f"checked {recovered.checked_bytes} bytes, cut {recovered.cut_bytes}")
    write(log, count)
    read_first(log)
    logs.close(broker_epoch=0)
    store.close()


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit("usage: python docs/tour.py DIR [COUNT]")
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 10)
