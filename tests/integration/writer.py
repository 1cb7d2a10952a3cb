"""A real process that writes to a real log and says what it has promised, until somebody kills it.

    python -m tests.integration.writer DIR --seed 7 --steps 200

Every line on standard output is one JSON object, written at once: `opened` with all that is in
the log, `try` before a batch is appended, `kept` after the sync that covers it, `cutting` and
`cut` around a truncation, `done` at the end. The parent believes nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import zlib
from random import Random

from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import CRC_START, read_header
from ottla.replication.compaction.cleaner import clean
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.log.surgery import delete_records, truncate
from ottla.replication.settings import LogSettings
from ottla.replication.storage import failpoints
from ottla.replication.storage.directory import DataDirectory
from ottla.replication.storage.open import open_storage
from tests.builders import NOW_MS, iterate_batches, produced

PLAIN = TopicPartition("plain", 0)
COMPACTED = TopicPartition("compacted", 0)


def settings_of(topic: str) -> LogSettings:
    return LogSettings(
        segment_bytes=8000,
        index_interval_bytes=500,
        compact=topic == COMPACTED.topic,
        delete=topic != COMPACTED.topic,
        min_cleanable_dirty_ratio=0.2,
        delete_retention_ms=20,
        file_delete_delay_ms=0,
    )


def say(**facts: object) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


def print_of(batch: bytes) -> list[object]:
    """Return key, whether it is a tombstone, and fingerprints of the record and of the batch.

    The record's fingerprint survives compaction, the batch's need not.
    """
    (record,) = decode_records(batch)
    told = repr((record.timestamp, record.key, record.value)).encode()
    key = (record.key or b"").decode()
    return [key, record.value is None, zlib.crc32(told), zlib.crc32(batch[CRC_START:])]


class Writer:
    """The workload, from a seed."""

    def __init__(self, root: str, seed: int, epoch: int) -> None:
        self.dice = Random(seed)
        # Epochs are never used twice, as a controller would see to.
        self.epoch = epoch
        storage = open_storage(root, os.environ)
        # Held as long as the process lives: with it goes the lock.
        self.directory = DataDirectory.open(
            storage.files, root, node_id=1, cluster_id="c", strict=False, new_id=lambda: "d"
        )
        self.manager = LogManager(
            storage.files, storage.open_store(f"{root}/state"), root, settings_of
        )
        report = self.manager.open(now_ms=NOW_MS)
        self.now_ms = NOW_MS
        for partition in (PLAIN, COMPACTED):
            log = self.manager.logs.get(partition) or self.manager.create(partition)
            say(
                event="opened",
                partition=str(partition),
                offline=log.offline,
                start=log.start_offset,
                end=log.end_offset,
                batches=contents(log),
                recovered=partition in report.recovered,
            )
            self.lead(log)

    def lead(self, log: Log) -> None:
        self.epoch += 1
        log.assign_epoch(LeaderEpoch(self.epoch))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += 1
            partition = self.dice.choice((PLAIN, PLAIN, COMPACTED))
            log = self.manager.logs[partition]
            chance = self.dice.random()
            if chance < 0.8:
                self.append(log)
            elif chance < 0.9 and partition == PLAIN:
                self.truncate(log)
            elif chance < 0.94:
                self.manager.checkpoint()
            elif partition == COMPACTED:
                log.checkpoint()
                log.advance_high_watermark(log.synced_offset)
                clean(log, now_ms=self.now_ms)
            elif chance > 0.98:
                say(event="deleting", partition=log.name, offset=log.high_watermark)
                delete_records(log, log.high_watermark, now_ms=self.now_ms)
                say(event="start", partition=log.name, offset=log.start_offset)

    def append(self, log: Log) -> None:
        tried = []
        for _ in range(self.dice.randint(1, 4)):
            key = b"k%d" % self.dice.randrange(10)
            value = (
                None if self.dice.random() < 0.2 else self.dice.randbytes(self.dice.randrange(900))
            )
            batch = produced((key, value), timestamps=[self.now_ms])
            say(event="try", partition=log.name, print=print_of(batch))
            placed = log.append_as_leader(batch, epoch=log.epochs.latest, now_ms=self.now_ms)
            tried.append([placed.first_offset, *print_of(batch)])
        log.sync()
        say(event="kept", partition=log.name, batches=tried)
        if self.dice.random() < 0.7:
            log.advance_high_watermark(log.synced_offset)

    def truncate(self, log: Log) -> None:
        """Cut off what is not committed, and write other things there."""
        offset = self.dice.randint(log.high_watermark, log.end_offset)
        say(event="cutting", partition=log.name, offset=offset)
        truncate(log, Offset(offset))
        say(event="cut", partition=log.name, end=log.end_offset)
        self.lead(log)
        self.append(log)


def contents(log: Log) -> list[list[object]]:
    if log.offline is not None:
        return []
    return [
        [header.base_offset, *print_of(batch)]
        for batch in iterate_batches(log, log.start_offset)
        if (header := read_header(batch)).count or not log.settings.compact
        # What compaction has emptied and kept, the last batch of all (Q4), promises no record.
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--epoch", type=int, default=0)
    parser.add_argument("--close", action="store_true")
    given = parser.parse_args()
    failpoints.arm_from_environment(os.environ)
    writer = Writer(given.root, given.seed, given.epoch)
    writer.run(given.steps)
    if given.close:
        writer.manager.close(broker_epoch=1)
    say(event="done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
