"""Thousands of damaged data directories: no start hangs, crashes, or passes wrong bytes on.

A good directory is built once, one thing in it is changed by lot, and then it is opened and read
to the end like a follower does it, batch by batch with every checksum. Asked is:

Q1  opening and reading raise nothing but `StorageError`, and that only for a log that is offline
Q2  no silent acceptance: every batch that a reader accepts is, byte for byte, one that was written
    at that offset
Q3  no silent loss: whatever lay below the recovery point is served, or the log or its reader says
    that it cannot be
Q4  opening a second time gives the same
Q5  `verify`, before the start, has a problem to tell of every change below the recovery point, and
    at least a note of every change above it

Base offset and leader epoch stand outside the checksum, because the leader writes them on the
outside of the envelope. So these changes, and no others, can pass:

P1  below the recovery point: the stamp (base offset, epoch) of a batch. Old segments are not read
    at start and are sent unread. A follower compares offsets and epochs itself (rule 45); `verify`
    finds it
P2  above the recovery point: a leader epoch that is raised. Nothing else knows what it was
P3  above the recovery point of a compacted log: a base offset that is raised. Gaps are legal there
P4  in a compacted log, among gaps that are known: batches that vanished from the end of a segment,
    or all of it. Nothing tells them from batches that were cleaned away
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.proto.errors import CorruptionError, StorageError
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.proto.records.header import STAMP_END, read_header
from ottla.replication.inspect.verify import VerifyReport, verify_directory
from ottla.replication.log.manager import LogManager
from ottla.replication.log.state import (
    PartitionState,
    decode_producers,
    decode_state,
    encode_producers,
    encode_state,
    new_state,
    partition_key,
)
from ottla.replication.settings import LogSettings
from ottla.replication.storage.lmdb_store import _seal as seal
from ottla.replication.storage.lmdb_store import _unseal as unseal
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from tests.builders import NOW_MS, append, batches_of, small_settings
from tests.unit.replication.log.disk_at_start import Received, receive

PARTITION = TopicPartition("t", 0)
DIRECTORY = "/data/t-0"
# Of 750 a world the first half in `make test`, the second in `make crash`.
MUTATIONS = [range(375), pytest.param(range(375, 750), marks=pytest.mark.long)]


class SealedStore:
    """A memory store whose values carry the checksum that LMDB's values carry on a real disk."""

    def __init__(self, disk: dict[bytes, bytes]) -> None:
        self._inner = MemoryStateStore(disk)

    def get(self, key: bytes) -> bytes | None:
        sealed = self._inner.get(key)
        return None if sealed is None else unseal(key, sealed)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, sealed in self._inner.scan(prefix):
            yield key, unseal(key, sealed)

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        self._inner.commit(
            {key: None if value is None else seal(key, value) for key, value in changes.items()}
        )

    def close(self) -> None:
        self._inner.close()


@dataclass
class World:
    """A data directory as bytes: what a disk holds, and what was written to it."""

    settings: LogSettings
    files: dict[str, bytes] = field(default_factory=dict)
    disk: dict[bytes, bytes] = field(default_factory=dict)
    # By base offset, as the log had them when it stopped.
    written: dict[int, bytes] = field(default_factory=dict)

    @property
    def state(self) -> PartitionState:
        key = partition_key("t-0")
        return decode_state("t-0", unseal(key, self.disk[key]))

    def copy(self) -> World:
        return World(self.settings, dict(self.files), dict(self.disk), self.written)

    def memory(self) -> MemoryFiles:
        files = MemoryFiles()
        for path in ("/data", "/data/state", DIRECTORY):
            files.make_dir(path)
        for name, content in self.files.items():
            files.open(f"{DIRECTORY}/{name}", create=True).write_at(0, [content])
        return files

    def take(self, files: MemoryFiles) -> None:
        self.files = {
            name: files.open(f"{DIRECTORY}/{name}").read_at(0, 1 << 20)
            for name in files.list_dir(DIRECTORY)
        }

    def open(self) -> tuple[LogManager, MemoryFiles]:
        files = self.memory()
        manager = LogManager(files, SealedStore(self.disk), "/data", lambda topic: self.settings)
        manager.open(now_ms=NOW_MS)
        return manager, files

    def verify(self) -> VerifyReport:
        return verify_directory(
            self.memory(), "/data", read_state=lambda path: SealedStore(dict(self.disk))
        )


def build(*, compact: bool, clean: bool) -> World:
    """Several segments, epochs, producers; cleaned if compacted; a tail unless stopped clean."""
    world = World(small_settings(compact=compact, delete_retention_ms=0))
    files = world.memory()
    manager = LogManager(files, SealedStore(world.disk), "/data", lambda topic: world.settings)
    log = manager.create(PARTITION)
    sequence = 0
    for number in range(30):
        if number % 9 == 0:
            log.assign_epoch(LeaderEpoch(number // 9))
        how: dict[str, object] = {"timestamps": [NOW_MS - 5000 + number * 37 % 100] * 2}
        if number % 3 == 0:
            how.update(producer_id=7, sequence=sequence)
            sequence += 2
        append(log, (b"k%d" % (number % 4), b"v%d" % number), (b"x%d" % number, None), **how)  # type: ignore[arg-type]  # passed on
        if number == 22:
            log.advance_high_watermark(log.end_offset)
            manager.checkpoint()
            manager.clean(now_ms=NOW_MS)
    if clean:
        log.advance_high_watermark(log.end_offset)
        manager.close(broker_epoch=1)
    world.written = {read_header(batch).base_offset: batch for batch in batches_of(log)}
    world.take(files)
    assert len(world.files) >= 9
    return world


WORLDS = {
    (compact, clean): build(compact=compact, clean=clean)
    for compact in (False, True)
    for clean in (False, True)
}


# -- mutations -------------------------------------------------------------------------------------


def flip(content: bytes, dice: Random) -> bytes:
    if not content:
        return b"\x01"
    at = dice.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :]


def zero(content: bytes, dice: Random) -> bytes:
    at, size = dice.randrange(len(content) + 1), dice.choice([1, 4, 61, 200])
    return content[:at] + bytes(len(content[at : at + size])) + content[at + size :]


def shorten(content: bytes, dice: Random) -> bytes:
    return content[: dice.randrange(len(content) + 1)]


def duplicate(content: bytes, dice: Random) -> bytes:
    at, size = dice.randrange(len(content) + 1), dice.choice([1, 8, 12, 100])
    return content[: at + size] + content[at:]


def extend(content: bytes, dice: Random) -> bytes:
    return content + dice.randbytes(dice.choice([1, 8, 12, 61, 300]))


def repeat(content: bytes, dice: Random) -> bytes:
    del dice
    return content * 2


CHANGES: list[Callable[[bytes, Random], bytes]] = [flip, zero, shorten, duplicate, extend, repeat]


def mutate(world: World, dice: Random) -> str:
    """Change one thing, and say what."""
    name = dice.choice(sorted(world.files))
    what = dice.choices(["change", "remove", "swap", "state"], [20, 1, 1, 2])[0]
    if what == "remove":
        del world.files[name]
        return f"{name} removed"
    if what == "swap":
        suffix = name.rpartition(".")[2]
        other = dice.choice([one for one in sorted(world.files) if one.endswith("." + suffix)])
        world.files[name], world.files[other] = world.files[other], world.files[name]
        return f"{name} and {other} swapped"
    change = dice.choices(CHANGES, [8, 3, 2, 2, 1, 1])[0]
    if what == "state":
        key = dice.choice(sorted(world.disk))
        world.disk[key] = change(world.disk[key], dice)
        return f"state {key!r}: {change.__name__}"
    world.files[name] = change(world.files[name], dice)
    return f"{name}: {change.__name__}"


# -- what is asked ---------------------------------------------------------------------------------


@dataclass
class Damage:
    """A world before and after, and which of the changes that may pass it holds (P1–P4)."""

    good: World
    bad: World

    @property
    def changed(self) -> set[str]:
        names = {*self.good.files, *self.bad.files}
        return {name for name in names if self.good.files.get(name) != self.bad.files.get(name)}

    @property
    def is_state(self) -> bool:
        return self.good.disk != self.bad.disk

    @property
    def is_lost_end(self) -> bool:
        """P4: a file of a compacted log ends earlier, and still with a whole batch."""
        if not self.good.settings.compact:
            return False
        return any(
            name.endswith(".log") and self._is_lost_end(name, self.bad.files.get(name, b""))
            for name in self.changed
        )

    def _is_lost_end(self, name: str, new: bytes) -> bool:
        old, at = self.good.files.get(name, b""), 0
        while at < len(new) and at < len(old):
            at += read_header(old, at).size
        return at == len(new) and old.startswith(new)

    def changed_bytes(self) -> Iterator[tuple[int, str, int]]:
        """Yield (base offset of the file, name, position) of all bytes of batches that differ."""
        for name in self.changed:
            if not name.endswith(".log"):
                continue
            old, new = self.good.files.get(name, b""), self.bad.files.get(name, b"")
            for at in range(max(len(old), len(new))):
                if old[at : at + 1] != new[at : at + 1]:
                    yield int(name[:20]), name, at

    def is_below_recovery_point(self) -> bool:
        state = self.good.state
        place = (state.recovery_base, state.recovery_position)
        return any((base, at) < place for base, _, at in self.changed_bytes())

    def is_raised_stamp(self) -> bool:
        """P2 and P3: only the epoch, or of a compacted log the base offset, is other and higher."""
        fields = {self._field_of(name, at) for _, name, at in self.changed_bytes()}
        return fields <= ({"epoch", "offset"} if self.good.settings.compact else {"epoch"})

    def _field_of(self, name: str, position: int) -> str:
        content, at = self.good.files[name], 0
        while at < len(content):
            size = read_header(content, at).size
            if at <= position < at + size:
                inside = position - at
                return "offset" if inside < 8 else "epoch" if 12 <= inside < 16 else "other"
            at += size
        return "other"


def require_nothing_wrong(damage: Damage, got: Received) -> None:
    """Q2: by content, and by place but for P1 to P3."""
    written = damage.good.written
    inside = {batch[STAMP_END:] for batch in written.values()}
    for batch in got.batches:
        offset = read_header(batch).base_offset
        if written.get(offset) == batch:
            continue
        assert batch[STAMP_END:] in inside, f"offset {offset} was never written like this"
        stamped = {damage._field_of(name, at) for _, name, at in damage.changed_bytes()}
        assert stamped <= {"offset", "epoch"} or damage.is_below_recovery_point(), offset


def require_nothing_missing(damage: Damage, got: Received) -> None:
    """Q3."""
    if got.refusal is not None or damage.is_lost_end:
        return
    bodies = {batch[STAMP_END:] for batch in got.batches}
    point = damage.good.state.recovery_point
    for offset, batch in damage.good.written.items():
        if offset < point:
            assert batch[STAMP_END:] in bodies, f"offset {offset} is gone, and nobody says so"


def require_told(damage: Damage) -> None:
    """Q5."""
    if not any(name.endswith(".log") for name in damage.changed) or damage.is_lost_end:
        return
    report = damage.bad.verify()
    if damage.is_below_recovery_point():
        assert not report.ok, "verify calls it sound"
    elif not damage.is_raised_stamp():
        assert not report.ok or any(partition.notes for partition in report.partitions)


def open_and_read(world: World) -> Received:
    """Q1."""
    manager, files = world.open()
    log = manager.logs[PARTITION]
    got = receive(log)
    assert (got.refusal is None) or (log.offline is not None) or "not sound" in got.refusal
    world.take(files)
    return got


def examine(good: World, bad: World) -> None:
    damage = Damage(good, bad.copy())
    require_told(damage)
    try:
        got = open_and_read(bad)
    except CorruptionError:
        # The store found it when it was asked. LMDB finds it before anybody asks.
        assert damage.is_state
        return
    require_nothing_wrong(damage, got)
    require_nothing_missing(damage, got)
    again = open_and_read(bad)
    assert (again.batches, again.refusal is None) == (got.batches, got.refusal is None)


@pytest.mark.parametrize("seeds", MUTATIONS, ids=str)
@pytest.mark.parametrize(("compact", "clean"), WORLDS, ids=lambda flag: str(flag).lower())
def test_no_damage_is_passed_on_and_none_is_hidden(
    compact: bool, clean: bool, seeds: range
) -> None:
    good = WORLDS[compact, clean]
    for seed in seeds:
        bad = good.copy()
        what = mutate(bad, Random(seed))
        try:
            examine(good, bad)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {what}") from error


# What a single bit, or a few, can do to the fields that decide where a reader goes next.
FIELDS = {
    "a base offset far above": (0, b"\x01"),
    "a base offset above": (6, b"\x01"),
    "a base offset below zero": (0, b"\x80"),
    "a batch length of zero": (8, bytes(4)),
    "a huge batch length": (8, b"\x7f"),
    "a huge epoch": (12, b"\x7f"),
    "another magic": (16, b"\x03"),
    "a negative delta": (23, b"\x80"),
    "a huge delta": (23, b"\x7f"),
    "a late timestamp": (35, b"\x7f"),
    "a negative count": (57, b"\xff"),
}


@pytest.mark.parametrize("what", FIELDS)
@pytest.mark.parametrize(("compact", "clean"), WORLDS, ids=lambda flag: str(flag).lower())
def test_no_field_of_any_batch_leads_a_reader_astray(compact: bool, clean: bool, what: str) -> None:
    good = WORLDS[compact, clean]
    inside, value = FIELDS[what]
    for name in sorted(good.files):
        content, at = good.files[name], 0
        while name.endswith(".log") and at < len(content):
            bad = good.copy()
            place = at + inside
            bad.files[name] = content[:place] + value + content[place + len(value) :]
            try:
                examine(good, bad)
            except Exception as error:
                raise AssertionError(f"{name} at {at}") from error
            at += read_header(content, at).size


def test_the_good_worlds_are_sound() -> None:
    for world in WORLDS.values():
        assert world.verify().ok
        got = open_and_read(world.copy())
        assert (got.batches, got.refusal) == (list(world.written.values()), None)


# -- values of the state store ---------------------------------------------------------------------

_RECORD = encode_state(WORLDS[True, False].state)
_SNAPSHOT = next(
    unseal(key, value)
    for key, value in WORLDS[False, True].disk.items()
    if key.startswith(b"producers/")
)


@given(st.binary(max_size=200))
@example(b"")
@example(_RECORD)
def test_any_bytes_are_a_record_or_corrupt(value: bytes) -> None:
    try:
        state = decode_state("t-0", value)
    except StorageError:
        return
    assert encode_state(state) == value


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x01\xff\xff\xff\xff")
@example(_SNAPSHOT)
def test_any_bytes_are_a_snapshot_of_producers_or_corrupt(value: bytes) -> None:
    try:
        producers = decode_producers("t-0", value)
    except CorruptionError:
        return
    assert len(encode_producers(producers)) <= len(value)


@given(st.integers(0, 2**32 - 1))
def test_a_changed_record_is_read_as_what_it_says_or_corrupt(seed: int) -> None:
    dice = Random(seed)
    for good in (_RECORD, encode_state(new_state(Offset(0)))):
        value = dice.choice(CHANGES)(good, dice)
        try:
            assert encode_state(decode_state("t-0", value)) == value
        except StorageError:
            continue


@given(st.integers(0, 2**32 - 1))
def test_a_changed_snapshot_of_producers_is_read_as_what_it_says_or_corrupt(seed: int) -> None:
    dice = Random(seed)
    value = dice.choice(CHANGES)(_SNAPSHOT, dice)
    try:
        producers = decode_producers("t-0", value)
    except CorruptionError:
        return
    assert encode_producers(producers) == value


@given(st.integers(0, 2**32 - 1))
def test_a_changed_record_that_can_be_read_never_makes_a_start_crash(seed: int) -> None:
    # Its checksum would have told; this is a record that a faulty program wrote.
    dice = Random(seed)
    world = WORLDS[dice.choice([False, True]), dice.choice([False, True])].copy()
    key = partition_key("t-0")
    value = unseal(key, world.disk[key])
    world.disk[key] = seal(key, dice.choice(CHANGES)(value, dice))
    try:
        manager, _ = world.open()
    except StorageError:
        return
    got = receive(manager.logs[PARTITION])
    inside = {batch[STAMP_END:] for batch in world.written.values()}
    assert all(batch[STAMP_END:] in inside for batch in got.batches)
