"""The power switch, and errors by plan: when a fault happens, and what works afterwards."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from ottla.proto.errors import StorageError
from ottla.replication.storage.faults import (
    FaultPlan,
    FaultRule,
    FaultyFile,
    FaultyFiles,
    FaultyStore,
    Power,
    PowerCutError,
)
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.unit.replication.storage.faulty_machine import content_of, durable, machine


def test_the_power_goes_off_at_the_moment_asked_for_and_stays_off() -> None:
    files, power = machine()
    file = durable(files, "/a", b"one")
    # Two moments for the file and two for its directory.
    assert power.moments == 4
    file.write_at(0, [b"two"])
    power.cut_at = 6
    with pytest.raises(PowerCutError, match="moment 6: after sync of /a"):
        file.sync()
    # Whoever cleans up on the way out is not hindered.
    file.close()
    with pytest.raises(PowerCutError):
        files.list_dir("/")
    with pytest.raises(PowerCutError):
        files.open("/b", create=True)
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"two"


def test_before_the_sync_the_same_bytes_are_lost() -> None:
    files, power = machine()
    file = durable(files, "/a", b"one")
    file.write_at(0, [b"two"])
    power.cut_at = 5
    with pytest.raises(PowerCutError, match="moment 5: before sync of /a"):
        file.sync()
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"one"


def test_no_exception_handler_survives_a_cut() -> None:
    assert not issubclass(PowerCutError, Exception)


def test_old_handles_are_dead_after_a_cut_and_locks_are_free() -> None:
    files, power = machine()
    file = durable(files, "/a", b"one")
    files.lock("/.lock")
    store = FaultyStore(MemoryStateStore(), power)
    power.cut(Random(0), Style.KEEP)
    dead: list[Callable[[], object]] = [
        lambda: file.write_at(0, [b"x"]),
        lambda: file.read_at(0, 1),
        lambda: file.truncate(0),
        file.sync,
        file.size,
        file.map,
        lambda: store.get(b"a"),
        lambda: store.scan(b"a"),
        lambda: store.commit({b"a": b"1"}),
    ]
    for use in dead:
        with pytest.raises(PowerCutError):
            use()
    file.close()
    files.lock("/.lock")


def test_the_boot_id_changes_with_a_cut_and_not_with_a_crash() -> None:
    _, power = machine()
    first = power.boot_id
    power.crash()
    assert power.boot_id == first
    power.cut(Random(0), Style.KEEP)
    assert power.boot_id != first


def test_a_crashed_process_leaves_the_page_cache_which_a_later_cut_may_take() -> None:
    files, power = machine()
    file = durable(files, "/a", b"one")
    file.write_at(0, [b"two"])
    files.lock("/.lock")
    power.crash()
    with pytest.raises(PowerCutError):
        file.read_at(0, 3)
    files.lock("/.lock")
    assert content_of(files, "/a") == b"two"
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"one"


def test_a_commit_is_cut_before_or_after_and_never_within() -> None:
    for moment, expected in ((1, None), (2, b"1")):
        power = Power(cut_at=moment)
        disk: dict[bytes, bytes] = {}
        with pytest.raises(PowerCutError, match=f"moment {moment}"):
            FaultyStore(MemoryStateStore(disk), power).commit({b"a": b"1", b"b": b"2"})
        power.cut(Random(0), Style.DROP)
        assert FaultyStore(MemoryStateStore(disk), power).get(b"a") == expected


def test_a_full_disk_takes_what_fits() -> None:
    plan = FaultPlan(room_bytes=10)
    files, _ = machine(plan)
    file = files.open("/a", create=True)
    file.write_at(0, [b"1234"])
    with pytest.raises(OSError, match="No space left") as caught:
        file.write_at(4, [b"5678", memoryview(b"90123")])
    assert caught.value.errno == errno.ENOSPC
    assert file.read_at(0, 100) == b"1234567890"
    with pytest.raises(OSError, match="No space left"):
        file.write_at(0, [b"x"])
    plan.room_bytes = None
    file.write_at(10, [b"healed"])


@pytest.mark.parametrize(
    ("operation", "use"),
    [
        ("open", lambda files, _: files.open("/a")),
        ("list", lambda files, _: files.list_dir("/")),
        ("read", lambda _, file: file.read_at(0, 1)),
        ("read", lambda _, file: file.map()),
        ("write", lambda _, file: file.write_at(0, [b"x"])),
        ("truncate", lambda _, file: file.truncate(0)),
        ("sync", lambda _, file: file.sync()),
        ("rename", lambda files, _: files.rename("/a", "/b")),
        ("remove", lambda files, _: files.remove("/a")),
        ("make_dir", lambda files, _: files.make_dir("/d")),
        ("lock", lambda files, _: files.lock("/a")),
    ],
)
def test_an_error_happens_at_the_nth_time_and_then_no_more(
    operation: str, use: Callable[[FaultyFiles, FaultyFile], object]
) -> None:
    plan = FaultPlan()
    files, _ = machine(plan)
    file = durable(files, "/a", b"one")
    plan.rules.append(FaultRule(operation, "*", nth=1, code=errno.EACCES))
    with pytest.raises(PermissionError):
        use(files, file)
    assert content_of(files, "/a") == b"one"
    use(files, file)


def test_a_rule_is_about_matching_paths_only() -> None:
    files, _ = machine(FaultPlan([FaultRule("sync", "*.log", nth=2)]))
    log = files.open("/1.log", create=True)
    index = files.open("/1.index", create=True)
    log.sync()
    index.sync()
    index.sync()
    with pytest.raises(OSError, match="Input/output error"):
        log.sync()


def test_a_rename_to_another_directory_is_beyond_the_model() -> None:
    files, _ = machine()
    files.make_dir("/d")
    durable(files, "/a", b"")
    with pytest.raises(OSError, match="Invalid cross-device link"):
        files.rename("/a", "/d/a")


def test_a_store_refuses_after_an_error() -> None:
    store = FaultyStore(MemoryStateStore(), Power(), FaultPlan([FaultRule("commit", "state")]))
    with pytest.raises(StorageError, match="failed to commit"):
        store.commit({b"a": b"1"})
    with pytest.raises(StorageError, match="nothing any more"):
        store.commit({b"a": b"1"})
    assert store.get(b"a") is None
