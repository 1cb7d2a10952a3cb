"""What a story's commands do: one partition on a disk that can lose power, and a clock.

A command returns what it has to tell, or None. `t=…`, in milliseconds since the story began, sets
the clock first. Values are written `x`, or `x*600` for six hundred of them.
"""

from __future__ import annotations

import ast
from random import Random

from ottla.proto.errors import InvariantError, RequestError, StorageError
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.replication.compaction.cleaner import clean
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.log.surgery import delete_records, truncate
from ottla.replication.storage.faults import FaultRule, FaultyStore
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.builders import NOW_MS, faulty_files, produced, records_of, small_settings

PARTITION = TopicPartition("t", 0)


def value_of(text: str) -> bytes | None:
    piece, _, count = text.partition("*")
    return piece.encode() * int(count or 1) or None


def text_of(value: bytes | None) -> str:
    if value is None:
        return "(none)"
    text = value.decode()
    return f"{text[0]}*{len(text)}" if len(text) > 20 else text


class Stage:
    """One story's disk, log and clock; each `do_…` is a command, and returns its answer."""

    def __init__(self) -> None:
        self.files, self.plan, self.power = faulty_files()
        self.kept: dict[bytes, bytes] = {}
        self.settings = small_settings(segment_bytes=10_000)
        self.now_ms = NOW_MS

    @property
    def log(self) -> Log:
        return self.manager.logs[PARTITION]

    def answer(self, line: str) -> str | None:
        command, *words = line.split()
        named = dict(word.split("=", 1) for word in words if "=" in word and "," not in word)
        if "t" in named:
            self.now_ms = NOW_MS + int(named.pop("t"))
        plain = [word for word in words if not word.startswith("t=")]
        try:
            told: str | None = getattr(self, f"do_{command}")(plain, named)
        except (InvariantError, RequestError, StorageError) as error:
            return f"{type(error).__name__}: {error}"
        return told

    def do_set(self, words: list[str], named: dict[str, str]) -> None:
        changes = {name: ast.literal_eval(value) for name, value in named.items()}
        self.settings = small_settings(**{"segment_bytes": 10_000, **changes})

    def do_open(self, words: list[str], named: dict[str, str]) -> str:
        store = FaultyStore(MemoryStateStore(self.kept), self.power)
        self.manager = LogManager(self.files, store, "/data", lambda topic: self.settings)
        report = self.manager.open(now_ms=self.now_ms)
        if PARTITION not in self.manager.logs:
            self.manager.create(PARTITION)
            return "created"
        found = report.recovered.get(PARTITION)
        notes = [note.replace("/data/t-0/", "") for note in found.notes] if found else []
        return "\n".join([*notes, self.do_status(words, named)])

    def do_lead(self, words: list[str], named: dict[str, str]) -> None:
        self.log.assign_epoch(LeaderEpoch(int(words[0])))

    def do_append(self, words: list[str], named: dict[str, str]) -> str:
        """`append k=v,k2=v2,k3= [producer=7 sequence=0]`: one batch; no value is a tombstone."""
        pairs = [pair.partition("=") for pair in words[0].split(",") if pair]
        told = [(key.encode(), value_of(value)) for key, _, value in pairs]
        raw = produced(
            *told,
            timestamps=[self.now_ms] * len(told),
            producer_id=int(named.get("producer", -1)),
            producer_epoch=int(named.get("epoch", 0)),
            sequence=int(named.get("sequence", 0)),
        )
        at = self.log.append_as_leader(raw, epoch=self.log.epochs.latest, now_ms=self.now_ms)
        again = " (a repeat)" if at.is_duplicate else ""
        return f"offsets {at.first_offset} to {at.last_offset}{again}"

    def do_sync(self, words: list[str], named: dict[str, str]) -> None:
        self.log.sync()

    def do_checkpoint(self, words: list[str], named: dict[str, str]) -> None:
        self.manager.checkpoint()

    def do_roll(self, words: list[str], named: dict[str, str]) -> None:
        self.log.roll()

    def do_commit(self, words: list[str], named: dict[str, str]) -> None:
        self.log.advance_high_watermark(Offset(int(words[0])) if words else self.log.end_offset)

    def do_truncate(self, words: list[str], named: dict[str, str]) -> str:
        return f"ends at {truncate(self.log, Offset(int(words[0])))}"

    def do_delete(self, words: list[str], named: dict[str, str]) -> str:
        return f"starts at {delete_records(self.log, Offset(int(words[0])), now_ms=self.now_ms)}"

    def do_clean(self, words: list[str], named: dict[str, str]) -> str:
        done = clean(self.log, now_ms=self.now_ms)
        return "not due" if done is None else f"{done.removed_records} records removed"

    def do_retain(self, words: list[str], named: dict[str, str]) -> str:
        return f"{self.manager.retain(now_ms=self.now_ms)} segments dropped"

    def do_break(self, words: list[str], named: dict[str, str]) -> None:
        """`break sync *.log`: the next time that operation meets such a file, it fails."""
        self.plan.rules.append(FaultRule(words[0], words[1]))

    def do_cut(self, words: list[str], named: dict[str, str]) -> None:
        self.power.cut(Random(int(named.get("dice", 1))), Style(words[0]))

    def do_kill(self, words: list[str], named: dict[str, str]) -> None:
        self.power.crash()

    def do_status(self, words: list[str], named: dict[str, str]) -> str:
        log = self.log
        return (
            f"start={log.start_offset} committed={log.high_watermark} synced={log.synced_offset} "
            f"end={log.end_offset} recovery={log.state.recovery_point} "
            f"epochs={log.epochs.describe()} segments={len(log.segments)}"
        )

    def do_read(self, words: list[str], named: dict[str, str]) -> str:
        records = records_of(self.log)
        told = [f"{r.offset} {text_of(r.key)}={text_of(r.value)}" for r in records]
        return "\n".join(told) or "(empty)"
