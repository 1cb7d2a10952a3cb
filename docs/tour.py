"""A tour of the log: opens a data directory, writes batches that are synced one by one, reads back.

    python docs/tour.py DIR [COUNT]

Run it, kill it, run it again: whatever it called acknowledged is there. Two at once on one
directory would write over each other, so the second is refused.

It is written for readers: a node will use group commit (`replication/log/group_commit.py`) and let
many writers share a sync.
"""

from __future__ import annotations

import os
import sys
import time
import uuid

from ottla.proto.errors import ConfigError, StorageError
from ottla.proto.ids import LeaderEpoch, TopicPartition
from ottla.proto.records.build import build_batch
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import read_header
from ottla.proto.records.record import Record
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.settings import LogSettings
from ottla.replication.storage.directory import DataDirectory
from ottla.replication.storage.open import open_storage
from ottla.replication.storage.ports import Files, StateStore

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
        print(f"acknowledged offset {appended.last_offset}", flush=True)


def read_first(log: Log) -> None:
    found = log.read(log.start_offset, bytes_max=1)
    if found is not None:
        batch = found.read()
        for record in decode_records(batch[: read_header(batch).size]):
            print("offset", record.offset, "says", record.value)


def visit(files: Files, store: StateStore, root: str, count: int) -> None:
    """Open all logs of the directory, write, read, close."""
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


def main(root: str, count: int) -> None:
    # The real disk, with the faults that OTTLA_FAULTS asks for, if any.
    storage = open_storage(root, os.environ)
    # Holds the lock: as long as this object lives, no other process writes here.
    directory = DataDirectory.open(
        storage.files,
        root,
        node_id=1,
        cluster_id="tour",
        strict=False,
        new_id=lambda: uuid.uuid4().hex,
    )
    store = storage.open_store(f"{root}/state")
    try:
        visit(storage.files, store, root, count)
    finally:
        store.close()
        directory.close()


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit("usage: python docs/tour.py DIR [COUNT]")
    try:
        main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 10)
    except (ConfigError, StorageError) as error:
        sys.exit(str(error))
