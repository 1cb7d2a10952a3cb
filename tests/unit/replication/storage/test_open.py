"""Faults in a real process, asked for by its environment."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.proto.errors import ConfigError
from ottla.replication.storage import failpoints
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.lmdb_store import LmdbStateStore
from ottla.replication.storage.open import faults_from_environment, open_storage
from ottla.replication.storage.unsynced import PAGE_SIZE, Style

PROGRAM = """
import os, sys
from ottla.replication.storage import failpoints
from ottla.replication.storage.open import open_storage
root = sys.argv[1]
storage = open_storage(root, os.environ)
failpoints.arm_from_environment(os.environ)
files = storage.files
store = storage.open_store(root + "/state")
for turn in range(10):
    file = files.open(root + f"/{turn}.log", create=True)
    file.write_at(0, [b"synced" * 2000])
    file.sync()
    files.sync_dir(root)
    file.write_at(12000, [b"unsynced" * 2000])
    files.open(root + f"/{turn}.index", create=True).close()
    files.rename(root + f"/{turn}.index", root + f"/{turn}.idx")
    if turn:
        files.remove(root + f"/{turn - 1}.log")
    store.commit({b"turn": b"%d" % turn})
    print(turn, storage.boot_id, flush=True)
"""


def run(root: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root)],
        env={"PYTHONPATH": ".", **environ},
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )


def turn_of(root: Path) -> bytes | None:
    store = LmdbStateStore(str(root / "state"))
    try:
        return store.get(b"turn")
    finally:
        store.close()


def test_a_power_cut_takes_from_the_real_files_what_was_not_synced(tmp_path: Path) -> None:
    # Six moments a turn: file, directory, store. The 17th is before the commit of turn 2.
    done = run(tmp_path, OTTLA_FAULTS="power_cut=17;style=drop")
    assert done.returncode == 137, done.stderr
    assert done.stdout.split()[::2] == ["0", "1"]
    assert turn_of(tmp_path) == b"1"
    names = sorted(path.name for path in tmp_path.iterdir() if path.suffix)
    # The removal of 1.log and the names of turn 2 were not synced; those of turn 1 were.
    assert names == ["0.idx", "1.idx", "1.log", "2.log"]
    assert (tmp_path / "2.log").read_bytes() == b"synced" * 2000
    assert (tmp_path / "1.log").read_bytes() == b"synced" * 2000


def test_a_process_cut_after_its_commit_has_committed(tmp_path: Path) -> None:
    assert run(tmp_path, OTTLA_FAULTS="power_cut=18").returncode == 137
    assert turn_of(tmp_path) == b"2"


def test_the_dice_of_a_cut_are_seeded(tmp_path: Path) -> None:
    contents: list[bytes] = []
    for seed in (1, 2, 3, 4, 1):
        root = tmp_path / str(len(contents))
        root.mkdir()
        done = run(root, OTTLA_FAULTS=f"power_cut=5;style=reorder;seed={seed}")
        assert done.returncode == 137, done.stderr
        content = (root / "0.log").read_bytes()
        assert content.startswith(b"synced" * 2000)
        contents.append(content)
    assert contents[0] == contents[4]
    assert len(set(contents)) > 2
    assert any(len(content) % PAGE_SIZE for content in contents)


def test_the_boot_id_changes_with_an_enacted_cut(tmp_path: Path) -> None:
    boots = [
        run(tmp_path, OTTLA_FAULTS=faults).stdout.split()[1]
        for faults in ("power_cut=17", "power_cut=17", "seed=1", "seed=1")
    ]
    assert boots[0] != boots[1] != boots[2]
    assert boots[2] == boots[3]
    assert open_storage(str(tmp_path), {}).boot_id in boots[0]


def test_a_failpoint_can_cut_the_power(tmp_path: Path) -> None:
    done = run(
        tmp_path, OTTLA_FAULTS="style=drop", OTTLA_FAILPOINTS="state.commit.after=powercut@2"
    )
    assert done.returncode == 137, done.stderr
    assert turn_of(tmp_path) == b"1"
    assert (tmp_path / "1.log").read_bytes() == b"synced" * 2000


def test_a_full_disk_stops_the_process_with_enospc(tmp_path: Path) -> None:
    done = run(tmp_path, OTTLA_FAULTS="enospc_after=30000")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert (tmp_path / "1.log").stat().st_size == 2000


def test_an_error_is_injected_by_name(tmp_path: Path) -> None:
    done = run(tmp_path, OTTLA_FAULTS="eio=sync:*.log:3")
    assert "Input/output error" in done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_without_faults_the_real_files_are_used_as_they_are(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), {"OTTLA_FAULTS": " "})
    assert isinstance(storage.files, DiskFiles)
    assert len(storage.boot_id) == 36


def test_all_clauses_are_understood() -> None:
    faults = faults_from_environment(
        {
            "OTTLA_FAULTS": "power_cut=17;style=reorder;seed=5;enospc_after=1000000;"
            "eio=sync:*.log:3;error=EACCES:open:meta.properties:1+; slow_sync_ms=20 ;"
        }
    )
    assert faults is not None
    assert (faults.power_cut, faults.style, faults.seed) == (17, Style.REORDER, 5)
    assert faults.plan.room_bytes == 1_000_000
    assert [(rule.operation, rule.pattern, rule.nth, rule.code) for rule in faults.plan.rules] == [
        ("sync", "*.log", 3, errno.EIO),
        ("open", "meta.properties", 1, errno.EACCES),
    ]
    assert [rule.is_lasting for rule in faults.plan.rules] == [False, True]
    assert faults.plan.slow_sync is not None
    assert faults_from_environment({}) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("power_cut", "power_cut is a whole number, not ''"),
        ("power_cut=-1", "whole number"),
        ("seed=x", "whole number"),
        ("style=nasty", "style is one of drop, keep, torn, reorder, mixed"),
        ("explode=1", "no fault 'explode'"),
        ("eio=sync", "eio is operation:pattern:nth"),
        ("eio=dance:*:1", "operations are open"),
        ("eio=sync:*:x", "whole number"),
        ("eio=sync:*:+", "whole number"),
        ("error=EWHAT:sync:*:1", "error is ERROR:operation:pattern:nth"),
    ],
)
def test_a_bad_setting_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        faults_from_environment({"OTTLA_FAULTS": text})


def test_a_slow_disk_blocks_the_syncing_thread(tmp_path: Path) -> None:
    faults = faults_from_environment({"OTTLA_FAULTS": "slow_sync_ms=1"})
    assert faults is not None
    assert faults.plan.slow_sync is not None
    faults.plan.slow_sync()
    failpoints.connect_power(None)
