"""`ottla log`, as a user calls it: what it prints, its exit codes, and that it changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.__main__ import main
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.record import Record
from ottla.replication.log import surgery
from ottla.replication.log.manager import LogManager
from ottla.replication.settings import LogSettings
from ottla.replication.storage.directory import DataDirectory
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.lmdb_store import LmdbStateStore

SETTINGS = {
    "plain": LogSettings(segment_bytes=4000, index_interval_bytes=200),
    "compacted": LogSettings(
        segment_bytes=4000,
        index_interval_bytes=200,
        compact=True,
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=10,
    ),
}
EPOCH = LeaderEpoch(0)


def _fill(manager: LogManager, topic: str) -> None:
    log = manager.create(TopicPartition(topic, 0))
    log.assign_epoch(EPOCH)
    sequences = {1: 0, 2: 0}
    for number in range(150):
        producer = number % 3
        batch = build_batch(
            [
                Record(at, 1000 + number * 7919 % 500, b"k%d" % (number % 7), b"v" * 50)
                for at in range(3)
            ],
            codec=Codec(number % 5),
            producer_id=producer or -1,
            producer_epoch=0 if producer else -1,
            base_sequence=sequences[producer] if producer else -1,
        )
        if producer:
            sequences[producer] += 3
        log.append_as_leader(batch, epoch=EPOCH, now_ms=5000)
        if number == 100:
            manager.checkpoint()
    log.advance_high_watermark(Offset(400))


def _write_data(root: Path) -> None:
    files = DiskFiles()
    directory = DataDirectory.open(
        files, str(root), node_id=1, cluster_id="c", strict=False, new_id=lambda: "d"
    )
    store = LmdbStateStore(str(root / "state"), map_size=1 << 20)
    manager = LogManager(files, store, str(root), SETTINGS.__getitem__)
    manager.open(now_ms=0)
    for topic in SETTINGS:
        _fill(manager, topic)
    manager.checkpoint()
    assert manager.clean(now_ms=10_000)
    plain = manager.logs[TopicPartition("plain", 0)]
    surgery.truncate(plain, Offset(420))
    surgery.delete_records(plain, Offset(100), now_ms=0)
    manager.close(broker_epoch=4)
    store.close()
    directory.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "node"
    _write_data(root)
    return root


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(written, tmp_path / "node"))


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["log", *map(str, arguments)], catch_exceptions=False)


def _looks(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_mode, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_a_directory_that_a_node_wrote_is_sound_and_stays_as_it_is(written: Path) -> None:
    before = _looks(written)
    result = _run("verify", written)
    assert result.exit_code == 0, result.stdout
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines if "offsets" in line] == [
        ["compacted-0", "ok"],
        ["plain-0", "ok"],
    ]
    assert lines[-1].startswith("sound: 2 partitions, ")
    assert _looks(written) == before


def test_the_report_in_json(written: Path) -> None:
    result = _run("verify", written, "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["ok"], told["problems"]) == (0, True, [])
    assert list(told["partitions"][1]) == [
        "partition",
        "ok",
        "problems",
        "notes",
        "batches",
        "records",
        "start_offset",
        "end_offset",
        "bytes",
    ]
    plain = told["partitions"][1]
    assert (plain["partition"], plain["start_offset"], plain["end_offset"]) == ("plain-0", 100, 420)


def test_one_partition_finds_its_state_beside_it(written: Path) -> None:
    result = _run("verify", written / "plain-0", "--json")
    assert [one["start_offset"] for one in json.loads(result.stdout)["partitions"]] == [100]


def test_a_copy_of_a_partition_is_told_where_its_state_is(written: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(written / "plain-0", tmp_path / "plain-0")
    result = _run("verify", copy, "--state", written / "state", "--json")
    assert [one["start_offset"] for one in json.loads(result.stdout)["partitions"]] == [100]


def test_damage_is_exit_code_1_and_told_below_its_partition(data: Path) -> None:
    path = sorted((data / "plain-0").glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    result = _run("verify", data)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[lines.index(next(line for line in lines if "BAD" in line)) + 1].startswith(
        f"    problem: {path.name} at 0: checksum 0x"
    )
    assert lines[-1].startswith("NOT SOUND: 1 of 2 partitions, ")


def test_a_damaged_state_store_is_a_problem_of_the_directory(data: Path) -> None:
    store = data / "state" / "data.mdb"
    store.write_bytes(store.read_bytes()[:5000])
    result = _run("verify", data, "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["ok"]) == (1, False)
    (problem,) = told["problems"]
    assert "data.mdb" in problem


def test_a_state_store_without_its_file_is_a_problem(data: Path) -> None:
    (data / "state" / "data.mdb").unlink()
    result = _run("verify", data)
    assert result.exit_code == 1
    assert "has lost its file data.mdb." in result.stdout


def test_a_directory_in_use_is_refused_unless_forced(data: Path) -> None:
    lock = DiskFiles().lock(str(data / ".lock"))
    try:
        refused = _run("verify", data)
        assert refused.exit_code == 2
        assert refused.stderr.startswith(f"ottla: {data} is in use by a node.")
        told = json.loads(_run("verify", data, "--json").stdout)
        assert (told["ok"], told["partitions"]) == (False, [])
        assert _run("verify", data, "--force").exit_code == 0
    finally:
        lock.close()


@pytest.mark.parametrize("command", ["verify", "dump"])
def test_what_is_no_data_directory_cannot_be_looked_at(tmp_path: Path, command: str) -> None:
    result = _run(command, tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"ottla: {tmp_path} holds no log: it is neither a data directory nor the directory of a "
        "log.\n"
    )


@pytest.mark.parametrize("command", ["verify", "dump"])
@pytest.mark.parametrize("name", ["nothing", "0.log", "nothing/0.log"])
def test_what_is_not_there_is_told_in_the_same_way(tmp_path: Path, command: str, name: str) -> None:
    result = _run(command, tmp_path / name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"ottla: {tmp_path / name}: no such file or directory.\n"


def test_one_partition_is_not_several(written: Path) -> None:
    lines = _run("verify", written / "plain-0").stdout.splitlines()
    assert lines[-1].startswith("sound: 1 partition, ")


def test_a_symbolic_link_in_the_place_of_a_segment_is_not_followed(data: Path) -> None:
    path = sorted((data / "plain-0").glob("*.log"))[1]
    path.rename(data / "elsewhere")
    path.symlink_to(data / "elsewhere")
    result = _run("verify", data)
    assert result.exit_code == 1
    assert "    problem: it cannot be read: [Errno 40] " in result.stdout


def test_people_see_records_and_programs_ask_for_them(written: Path) -> None:
    path = sorted((written / "plain-0").glob("*.log"))[0]
    words = _run("dump", path, "--max-batches", "1").stdout
    assert len(words.splitlines()) == 4
    assert 'key "k' in words
    assert len(_run("dump", path, "--max-batches", "1", "--no-records").stdout.splitlines()) == 1
    bare = _run("dump", path, "--json").stdout.splitlines()
    assert {json.loads(line)["type"] for line in bare} == {"batch"}
    opened = _run("dump", path, "--json", "--records").stdout.splitlines()
    assert len(opened) == 4 * len(bare)


def test_indexes_in_json(written: Path) -> None:
    paths = sorted((written / "plain-0").glob("*index"))[:2]
    lines = _run("dump", *paths, "--json").stdout.splitlines()
    assert {json.loads(line)["type"] for line in lines} == {"index_entry", "time_entry"}


def test_several_files_are_told_under_their_names(written: Path) -> None:
    paths = sorted((written / "plain-0").glob("*.log"))[:2]
    lines = _run("dump", *paths, "--no-records").stdout.splitlines()
    assert [line for line in lines if line.endswith(":")] == [f"{path}:" for path in paths]


def test_a_directory_is_told_by_its_state(written: Path) -> None:
    lines = _run("dump", written, "--json").stdout.splitlines()
    told = [json.loads(line) for line in lines]
    assert [one["partition"] for one in told] == ["compacted-0", "plain-0"]
    assert (told[1]["start_offset"], told[1]["epochs"]) == (100, [[0, 100]])
    assert {one["producer_id"] for one in told[0]["producers"]} == {1, 2}
    assert "  epoch 0          from 100" in _run("dump", written).stdout


def test_a_torn_tail_is_exit_code_1(data: Path) -> None:
    path = sorted((data / "plain-0").glob("*.log"))[-1]
    path.write_bytes(path.read_bytes()[:-5])
    result = _run("dump", path, "--no-records")
    assert result.exit_code == 1
    assert "  ! at position " in result.stdout


def test_a_file_that_cannot_be_dumped_is_told(data: Path) -> None:
    result = _run("dump", data / "meta.properties")
    assert result.exit_code == 2
    assert result.stderr.endswith("only .log, .index and .timeindex files can be dumped.\n")
    (data / "2.log").symlink_to(data / "meta.properties")
    linked = _run("dump", data / "2.log")
    assert linked.exit_code == 1
    assert linked.stderr.endswith("2.log cannot be read: Too many levels of symbolic links.\n")


def test_beginning_behind_the_end_says_so(written: Path) -> None:
    path = sorted((written / "plain-0").glob("*.log"))[-1]
    assert _run("dump", path, "--from", "420").stdout == "nothing at or above 420\n"
    assert _run("dump", path, "--from", "420", "--json").stdout == ""
    assert _run("dump", path, "--from", "419", "--max-batches", "0").stdout == ""
    assert _run("dump", path, "--from", "-1").exit_code == 2


def test_long_values_are_shortened_unless_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(build_batch([Record(0, 0, None, b"x" * 200)]))
    assert "… (200 bytes)" in _run("dump", path).stdout
    assert "x" * 200 in _run("dump", path, "--full").stdout
