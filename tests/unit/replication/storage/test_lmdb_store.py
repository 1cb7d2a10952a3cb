from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import lmdb
import pytest

from ottla.proto.errors import CorruptionError, StorageError
from ottla.replication.storage.lmdb_store import LmdbStateStore

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with small and large values, some of them replaced and removed again."""
    store = LmdbStateStore(str(tmp_path / "state"))
    for turn in range(4):
        store.commit({b"key-%03d" % n: b"%d:" % turn + b"v" * (n * 40) for n in range(120)})
        store.commit({b"key-%03d" % n: None for n in range(turn, 120, 10)})
    store.close()
    return tmp_path / "state"


def pairs_of(path: Path) -> dict[bytes, bytes]:
    store = LmdbStateStore(str(path))
    try:
        return dict(store.scan(b""))
    finally:
        store.close()


def test_the_map_grows_by_itself(tmp_path: Path) -> None:
    store = LmdbStateStore(str(tmp_path / "state"), map_size=1 << 16)
    store.commit({b"%d" % n: b"v" * 10_000 for n in range(100)})
    assert len(list(store.scan(b""))) == 100
    store.close()
    # A map that is too small for what is there is no obstacle either.
    store = LmdbStateStore(str(tmp_path / "state"), map_size=1 << 16)
    store.commit({b"more": b"v" * 100_000})
    assert store.get(b"99") == b"v" * 10_000
    store.close()


def test_a_value_under_a_wrong_key_is_found(path: Path) -> None:
    with lmdb.open(str(path)) as environment, environment.begin(write=True) as transaction:
        stolen = transaction.get(b"key-011")
        assert stolen is not None
        transaction.put(b"key-012", stolen)
    with pytest.raises(CorruptionError, match="key-012"):
        LmdbStateStore(str(path))


@pytest.mark.parametrize(
    ("sealed", "sentence"),
    [(b"", "too short"), (b"\x01abc", "too short"), (b"\x02abcdef", "unknown format 2")],
)
def test_a_foreign_value_is_found_also_after_the_start(
    path: Path, sealed: bytes, sentence: str
) -> None:
    store = LmdbStateStore(str(path))
    with store._environment.begin(write=True) as transaction:
        transaction.put(b"strange", sealed)
    with pytest.raises(CorruptionError, match=f"strange.*{sentence}"):
        store.get(b"strange")
    with pytest.raises(CorruptionError, match=f"strange.*{sentence}"):
        list(store.scan(b"s"))
    store.close()


def test_a_changed_byte_in_a_value_names_its_key(path: Path) -> None:
    data = bytearray((path / "data.mdb").read_bytes())
    # The newest copy of a large value: it lies on pages of its own.
    position = data.rindex(b"3:" + b"v" * 3000)
    data[position + 1000] ^= 1
    (path / "data.mdb").write_bytes(data)
    with pytest.raises(CorruptionError, match="key-"):
        LmdbStateStore(str(path))


@pytest.mark.parametrize("size", [0, 1, 100, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE, 20 * PAGE])
def test_a_truncated_file_is_damage_and_never_a_first_start(path: Path, size: int) -> None:
    os.truncate(path / "data.mdb", size)
    with pytest.raises(CorruptionError):
        LmdbStateStore(str(path))


def test_a_directory_without_its_file_is_damage(path: Path) -> None:
    (path / "data.mdb").unlink()
    with pytest.raises(CorruptionError, match=r"has lost its file data\.mdb"):
        LmdbStateStore(str(path))


def test_random_bytes_are_no_store(path: Path) -> None:
    (path / "data.mdb").write_bytes(Random(1).randbytes(20 * PAGE))
    with pytest.raises(CorruptionError, match="not a state store"):
        LmdbStateStore(str(path))


def test_an_lmdb_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    with (
        lmdb.open(str(tmp_path / "theirs"), max_dbs=2) as environment,
        environment.begin(write=True) as transaction,
    ):
        transaction.put(b"a", b"b", db=environment.open_db(b"named", transaction))
    with pytest.raises(CorruptionError, match="not written by this project"):
        LmdbStateStore(str(tmp_path / "theirs"))


def test_a_future_format_is_refused_with_its_number(path: Path) -> None:
    data = bytearray((path / "data.mdb").read_bytes())
    data[20] = data[PAGE + 20] = 99
    (path / "data.mdb").write_bytes(data)
    with pytest.raises(CorruptionError, match="LMDB format 99"):
        LmdbStateStore(str(path))


def test_a_symbolic_link_is_refused(path: Path, tmp_path: Path) -> None:
    (path / "data.mdb").rename(tmp_path / "elsewhere")
    (path / "data.mdb").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="symbolic links"):
        LmdbStateStore(str(path))


def test_what_a_first_start_left_half_done_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "state.new").mkdir()
    (tmp_path / "state.new" / "data.mdb").write_bytes(b"half")
    store = LmdbStateStore(str(tmp_path / "state"))
    store.commit({b"a": b"1"})
    store.close()
    assert not (tmp_path / "state.new").exists()
    assert pairs_of(tmp_path / "state") == {b"a": b"1"}


FLIP_BITS = """
import os, random, shutil, sys
from ottla.proto.errors import CorruptionError
from ottla.replication.storage.lmdb_store import LmdbStateStore
source, scratch, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
dice = random.Random(7)
whole = open(source + "/data.mdb", "rb").read()
store = LmdbStateStore(source)
right = dict(store.scan(b""))
store.close()
found = 0
for turn in range(rounds):
    data = bytearray(whole)
    for _ in range(dice.choice((1, 1, 4))):
        page = dice.randrange(len(data) // 4096) * 4096
        # Headers and pointers are where LMDB would believe what it reads.
        place = page + dice.choice((dice.randrange(64), dice.randrange(4096)))
        data[place] ^= 1 << dice.randrange(8)
    shutil.rmtree(scratch, ignore_errors=True)
    os.mkdir(scratch)
    open(scratch + "/data.mdb", "wb").write(data)
    try:
        store = LmdbStateStore(scratch)
    except CorruptionError:
        found += 1
        continue
    seen = dict(store.scan(b""))
    # An older meta page may win if the newest lost its number: then the state is an older one.
    assert seen == right or set(seen) <= {b"key-%03d" % n for n in range(120)}, turn
    store.commit({b"key-000": b"again"})
    assert store.get(b"key-000") == b"again"
    store.close()
print(found)
"""


def test_flipped_bits_are_found_or_harmless_and_never_kill_the_process(
    path: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FLIP_BITS, str(path), str(tmp_path / "flipped"), "300"],
        env={"PYTHONPATH": "."},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) > 30


def test_a_power_cut_within_a_commit_leaves_the_state_before_it(path: Path, tmp_path: Path) -> None:
    """LMDB keeps D3: until the meta page is there, nothing that a commit wrote is reachable."""
    before = (path / "data.mdb").read_bytes()
    old = pairs_of(path)
    store = LmdbStateStore(str(path))
    changes = {b"key-%03d" % n: b"new" * n for n in range(0, 120, 2)}
    store.commit(changes)
    store.close()
    after = (path / "data.mdb").read_bytes()
    count = len(after) // PAGE
    padded = before.ljust(len(after), b"\0")
    changed = [n for n in range(count) if padded[n * PAGE :][:PAGE] != after[n * PAGE :][:PAGE]]
    meta = [n for n in changed if n < 2]
    assert len(meta) == 1
    assert len(changed) > 10

    def state_after(written: list[int], size: int) -> dict[bytes, bytes]:
        image = bytearray(padded)
        for number in written:
            image[number * PAGE : (number + 1) * PAGE] = after[number * PAGE :][:PAGE]
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        (tmp_path / "cut").mkdir()
        (tmp_path / "cut" / "data.mdb").write_bytes(image[:size])
        return pairs_of(tmp_path / "cut")

    dice = Random(3)
    pages = [n for n in changed if n not in meta]
    for _ in range(40):
        written = [n for n in pages if dice.random() < 0.5]
        assert state_after(written, dice.choice((len(before), len(after)))) == old
    assert state_after(changed, len(after)) == old | changes
