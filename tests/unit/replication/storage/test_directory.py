"""The rows "Disk at start" of the hostile-input list that are about the directory itself."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from ottla.proto.errors import ConfigError, CorruptionError, StorageError
from ottla.replication.storage.directory import DataDirectory, Identity
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.faults import FaultPlan, FaultRule, FaultyFiles, Power, PowerCutError
from ottla.replication.storage.memory import MemoryFiles
from ottla.replication.storage.ports import Files
from ottla.replication.storage.unsynced import Style

ROOT = "/data"
META = f"{ROOT}/meta.properties"
GOOD = b"#\n#Mon Jan 01\nversion=1\ncluster.id=north\nnode.id=1\ndirectory.id=d-1\n"


def open_directory(
    files: Files,
    *,
    path: str = ROOT,
    node_id: int | None = 1,
    cluster_id: str | None = "north",
    strict: bool = False,
) -> DataDirectory:
    return DataDirectory.open(
        files, path, node_id=node_id, cluster_id=cluster_id, strict=strict, new_id=lambda: "d-1"
    )


def with_meta(content: bytes) -> MemoryFiles:
    files = MemoryFiles()
    files.make_dir(ROOT)
    files.open(META, create=True).write_at(0, [content])
    return files


def meta_of(files: Files) -> bytes:
    return files.open(META, writable=False).read_at(0, 1 << 20)


def test_a_blank_directory_becomes_ours_and_stays_so() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    assert directory.identity == Identity(1, "d-1", "north")
    assert meta_of(files) == b"version=1\ncluster.id=north\nnode.id=1\ndirectory.id=d-1\n"
    directory.close()
    again = open_directory(files, node_id=None, cluster_id=None, strict=True)
    assert again.identity == Identity(1, "d-1", "north")


def test_kafkas_own_file_is_read() -> None:
    assert open_directory(with_meta(GOOD)).identity == Identity(1, "d-1", "north")
    spaced = GOOD.replace(b"=", b" = ").replace(b"\n", b"\r\n") + b"! note\nunknown.key=a=b\n"
    assert open_directory(with_meta(spaced)).identity == Identity(1, "d-1", "north")


def test_lost_and_found_and_hidden_files_are_nobodys_data() -> None:
    files = MemoryFiles()
    files.make_dir(ROOT)
    files.make_dir(f"{ROOT}/lost+found")
    files.open(f"{ROOT}/.snapshot", create=True)
    files.open(f"{ROOT}/meta.properties.tmp", create=True).write_at(0, [b"left over" * 100])
    open_directory(files)
    assert meta_of(files).startswith(b"version=1\n")
    assert meta_of(files).endswith(b"directory.id=d-1\n")


def test_a_directory_in_use_is_refused() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    with pytest.raises(StorageError, match="in use by another process"):
        open_directory(files)
    directory.close()
    open_directory(files)


def test_a_refused_directory_is_unlocked_again() -> None:
    files = with_meta(GOOD)
    with pytest.raises(ConfigError):
        open_directory(files, node_id=2)
    open_directory(files)


def test_another_node_is_refused() -> None:
    with pytest.raises(ConfigError, match="belongs to node 1, and this is node 2"):
        open_directory(with_meta(GOOD), node_id=2)


def test_another_cluster_is_refused() -> None:
    files = with_meta(GOOD)
    with pytest.raises(ConfigError, match="belongs to cluster north, and this node is to join s"):
        open_directory(files, cluster_id="south")
    assert meta_of(files) == GOOD


def test_a_node_may_meet_its_cluster_later_and_only_once() -> None:
    files = MemoryFiles()
    directory = open_directory(files, cluster_id=None)
    assert directory.identity.cluster_id is None
    directory.join_cluster("north")
    directory.join_cluster("north")
    with pytest.raises(ConfigError, match="belongs to cluster north"):
        directory.join_cluster("south")
    directory.close()
    assert open_directory(files).identity == Identity(1, "d-1", "north")


def test_a_new_directory_needs_a_node_id() -> None:
    with pytest.raises(ConfigError, match=r"node\.id must be given"):
        open_directory(MemoryFiles(), node_id=None)


@pytest.mark.parametrize("exists", [True, False])
def test_a_strict_start_refuses_a_blank_directory(exists: bool) -> None:
    files = MemoryFiles()
    if exists:
        files.make_dir(ROOT)
    with pytest.raises(ConfigError, match="Is the expected file system mounted"):
        open_directory(files, strict=True)
    assert files.exists(ROOT) == exists
    assert not files.exists(META)


@pytest.mark.parametrize("name", ["t-0", "state", "__consumer_offsets-49", "holiday.jpg"])
def test_data_without_an_identity_is_refused(name: str) -> None:
    files = MemoryFiles()
    files.make_dir(ROOT)
    files.make_dir(f"{ROOT}/{name}")
    with pytest.raises(StorageError, match=rf"holds {name} and no meta\.properties. Bring"):
        open_directory(files)
    assert not files.exists(META)


def test_many_strangers_are_not_all_named() -> None:
    files = MemoryFiles()
    files.make_dir(ROOT)
    for number in range(10):
        files.make_dir(f"{ROOT}/t-{number}")
    with pytest.raises(StorageError, match="holds t-0, t-1, t-2 and 7 more and no"):
        open_directory(files)


@pytest.mark.parametrize("version", [b"0", b"2", b"999"])
def test_another_format_version_is_refused_with_its_number(version: bytes) -> None:
    files = with_meta(GOOD.replace(b"version=1", b"version=" + version))
    with pytest.raises(StorageError, match=f"says version={version.decode()}, and this program"):
        open_directory(files)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "no line version="),
        (b"\0" * 4096, "line 1"),
        (b"version=1\ncluster.id=north\nnode.id=1\n", r"no line directory\.id="),
        (b"version=1\nnode.id=1\ndirectory.id=d\ncluster.i", r"line 4: 'cluster\.i'"),
        (GOOD.replace(b"node.id=1", b"node.id=one"), r"line 5: 'node\.id=one'"),
        (GOOD.replace(b"node.id=1", b"node.id=-1"), r"line 5: 'node\.id=-1'"),
        (GOOD.replace(b"node.id=1", "node.id=\u0661".encode()), "line 5"),
        (GOOD.replace(b"d-1", b"../../etc"), "line 6"),
        (GOOD.replace(b"north", b""), r"line 4: 'cluster\.id='"),
        (GOOD + b"node.id=2\n", r"line 7: 'node\.id=2'"),
        (GOOD + b"\xff\xfe", "line 7"),
        (b"version=\n" + GOOD, "line 4: 'version=1'"),
        (b"#" * 100_000, "larger than 65536 bytes"),
        (Random(1).randbytes(500), "line"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(content: bytes, sentence: str) -> None:
    files = with_meta(content)
    with pytest.raises(CorruptionError, match=sentence):
        open_directory(files)
    assert meta_of(files) == content


@pytest.mark.parametrize("cluster_id", ["", "a b", "x" * 65, "a\nnode.id=7"])
def test_a_cluster_id_that_could_not_be_read_back_is_not_written(cluster_id: str) -> None:
    files = MemoryFiles()
    with pytest.raises(ConfigError, match=r"cluster\.id is 1 to 64"):
        open_directory(files, cluster_id=cluster_id)
    assert not files.exists(META)


@pytest.mark.parametrize("operation", ["open", "lock", "list"])
def test_an_unreadable_directory_is_an_error_with_a_sentence(operation: str) -> None:
    rule = FaultRule(operation, "*", code=errno.EACCES)
    files = FaultyFiles(with_meta(GOOD), Power(), FaultPlan([rule]))
    with pytest.raises(StorageError, match=r"cannot be used: .*Permission denied"):
        open_directory(files)


def test_a_full_disk_at_the_first_start_leaves_a_blank_directory() -> None:
    plan = FaultPlan(room_bytes=5)
    files = FaultyFiles(MemoryFiles(), Power(), plan)
    with pytest.raises(StorageError, match="No space left"):
        open_directory(files)
    plan.room_bytes = None
    open_directory(files)


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").write_bytes(GOOD)
    (tmp_path / "data" / "meta.properties").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="Too many levels of symbolic links"):
        open_directory(DiskFiles(), path=str(tmp_path / "data"))


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot be used"):
        open_directory(DiskFiles(), path=str(tmp_path / "data"))


def test_a_cut_at_any_moment_of_the_first_start_leaves_it_blank_or_done() -> None:
    ends: set[bool] = set()
    for moment in range(1, 20):
        for seed, style in enumerate(Style):
            power = Power(cut_at=moment)
            files = FaultyFiles(MemoryFiles(), power)
            promised = False
            try:
                open_directory(files)
                promised = True
                power.switch_off("the start is done")
            except PowerCutError:
                power.cut(Random(seed), style)
            done = files.exists(META)
            assert done or not promised
            ends.add(done)
            assert open_directory(files, strict=done).identity == Identity(1, "d-1", "north")
    assert ends == {True, False}


SECOND_PROCESS = """
import sys
from ottla.proto.errors import StorageError
from ottla.replication.storage.directory import DataDirectory
from ottla.replication.storage.disk import DiskFiles
try:
    DataDirectory.open(
        DiskFiles(), sys.argv[1], node_id=1, cluster_id="north", strict=False, new_id=lambda: "d-2"
    )
except StorageError as error:
    print(error)
else:
    print("mine")
"""


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    def second() -> str:
        done = subprocess.run(
            [sys.executable, "-c", SECOND_PROCESS, str(tmp_path / "data")],
            env={"PYTHONPATH": "."},
            capture_output=True,
            timeout=60,
            check=True,
            text=True,
        )
        return done.stdout

    directory = open_directory(DiskFiles(), path=str(tmp_path / "data"))
    assert "in use by another process" in second()
    directory.close()
    assert second() == "mine\n"
    # The lock of a process that is gone is gone with it, and so is nothing else.
    assert open_directory(DiskFiles(), path=str(tmp_path / "data")).identity.directory_id == "d-1"
