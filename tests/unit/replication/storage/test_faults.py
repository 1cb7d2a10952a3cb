"""Each fault really happens: a fault that cannot happen is a check that cannot fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.faults import (
    FaultPlan,
    FaultRule,
    FaultyFile,
    FaultyFiles,
    Power,
)
from ottla.replication.storage.unsynced import PAGE_SIZE, SECTOR_SIZE, Style
from tests.unit.replication.storage.faulty_machine import content_of, durable, machine

SEEDS = range(60)
OLD = b"o" * (3 * PAGE_SIZE)


def outcomes(style: Style, change: Callable[[FaultyFiles, FaultyFile], None]) -> set[bytes]:
    """Return all that a file can be after a durable OLD, a change, and a cut."""
    found: set[bytes] = set()
    for seed in SEEDS:
        files, power = machine()
        file = durable(files, "/a", OLD)
        change(files, file)
        power.cut(Random(seed), style)
        found.add(content_of(files, "/a"))
    return found


def append(_: FaultyFiles, file: FaultyFile) -> None:
    file.write_at(len(OLD), [b"n" * 10_000])


def overwrite(_: FaultyFiles, file: FaultyFile) -> None:
    file.write_at(100, [b"n" * 9_000])


def truncate_and_append(_: FaultyFiles, file: FaultyFile) -> None:
    file.truncate(5_000)
    file.write_at(5_000, [b"n" * 2_000])


CHANGED_OVERWRITE = OLD[:100] + b"n" * 9_000 + OLD[9_100:]
CHANGED_TRUNCATED = OLD[:5_000] + b"n" * 2_000


def test_drop_takes_everything_back() -> None:
    for change in (append, overwrite, truncate_and_append):
        assert outcomes(Style.DROP, change) == {OLD}


def test_keep_takes_nothing_back() -> None:
    assert outcomes(Style.KEEP, append) == {OLD + b"n" * 10_000}
    assert outcomes(Style.KEEP, overwrite) == {CHANGED_OVERWRITE}
    assert outcomes(Style.KEEP, truncate_and_append) == {CHANGED_TRUNCATED}


def test_torn_leaves_a_prefix_that_ends_at_a_sector() -> None:
    found = outcomes(Style.TORN, append)
    new = OLD + b"n" * 10_000
    assert len(found) > 10
    assert all(new.startswith(content) and len(content) >= len(OLD) for content in found)
    ends = {len(content) for content in found} - {len(new)}
    assert all(end % SECTOR_SIZE == 0 for end in ends)
    assert any(end % PAGE_SIZE for end in ends)


def test_torn_cuts_an_overwrite_inside_a_page() -> None:
    found = outcomes(Style.TORN, overwrite)
    assert len(found) > 5
    for content in found:
        news = content.count(b"n")
        # New up to a sector, old from there on.
        assert content == OLD[:100] + b"n" * news + OLD[100 + news :]
        assert news in (0, 9_000) or (100 + news) % SECTOR_SIZE == 0


def test_reorder_writes_a_late_page_and_loses_an_early_one() -> None:
    found = outcomes(Style.REORDER, append)
    holes = [content for content in found if b"\0n" in content]
    assert holes
    assert all(content.startswith(OLD) for content in found)
    assert len({len(content) for content in found}) > 10


def test_reorder_mixes_old_and_new_pages() -> None:
    found = outcomes(Style.REORDER, overwrite)
    assert OLD in found
    assert CHANGED_OVERWRITE in found
    # The first page is old and the second one new: no order of writing, yet real.
    assert any(content[:PAGE_SIZE] == OLD[:PAGE_SIZE] and b"n" in content for content in found)
    assert all(len(content) == len(OLD) for content in found)


@pytest.mark.parametrize("style", [Style.TORN, Style.REORDER])
def test_what_was_truncated_can_come_back_behind_what_was_written_since(style: Style) -> None:
    """The hazard of rule 49a."""
    forks = [
        content
        for content in outcomes(style, truncate_and_append)
        if content[5_000:5_100] == b"n" * 100 and content.endswith(b"oooo")
    ]
    assert forks


def test_a_size_between_truncation_and_append_can_survive() -> None:
    sizes = {len(content) for content in outcomes(Style.REORDER, truncate_and_append)}
    assert any(5_000 <= size < 7_000 for size in sizes)


def test_a_synced_truncation_stays() -> None:
    def change(_: FaultyFiles, file: FaultyFile) -> None:
        file.truncate(5_000)
        file.sync()

    for style in Style:
        assert outcomes(style, change) == {OLD[:5_000]}


def test_mixed_gives_each_file_its_own_fate() -> None:
    fates: set[tuple[bool, bool]] = set()
    for seed in SEEDS:
        files, power = machine()
        for name in ("/a", "/b"):
            durable(files, name, OLD).write_at(0, [b"n"])
        power.cut(Random(seed), Style.MIXED)
        fates.add((content_of(files, "/a") == OLD, content_of(files, "/b") == OLD))
    assert fates == {(True, True), (True, False), (False, True), (False, False)}


def test_a_file_whose_name_was_not_synced_vanishes_with_its_synced_bytes() -> None:
    files, power = machine()
    file = files.open("/a", create=True)
    file.write_at(0, [b"x"])
    file.sync()
    power.cut(Random(0), Style.DROP)
    assert files.list_dir("/") == []


def names_after(change: Callable[[FaultyFiles], None]) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for seed in SEEDS:
        files, power = machine()
        for name in ("a", "b"):
            durable(files, f"/{name}", name.encode())
        change(files)
        power.cut(Random(seed), Style.TORN)
        found.add(
            tuple(
                f"{name}:{content_of(files, f'/{name}').decode()}" for name in files.list_dir("/")
            )
        )
    return found


def test_a_prefix_of_the_names_survives() -> None:
    def change(files: FaultyFiles) -> None:
        files.rename("/a", "/c")
        files.rename("/c", "/b")
        files.remove("/b")

    assert names_after(change) == {("a:a", "b:b"), ("b:b", "c:a"), ("b:a",), ()}


def test_a_replaced_file_can_come_back() -> None:
    assert names_after(lambda files: files.rename("/a", "/b")) == {("a:a", "b:b"), ("b:a",)}


def test_a_removed_and_recreated_name_has_three_fates() -> None:
    def change(files: FaultyFiles) -> None:
        files.remove("/a")
        files.open("/a", create=True).sync()

    assert names_after(change) == {("a:a", "b:b"), ("b:b",), ("a:", "b:b")}


def test_directories_are_independent_of_each_other() -> None:
    found: set[tuple[tuple[str, ...], ...]] = set()
    for seed in SEEDS:
        files, power = machine()
        for name in ("/d", "/e"):
            files.make_dir(name)
        files.sync_dir("/")
        for name in ("/d", "/e"):
            files.open(f"{name}/x", create=True)
        power.cut(Random(seed), Style.REORDER)
        found.add((tuple(files.list_dir("/d")), tuple(files.list_dir("/e"))))
    assert found == {((), ()), (("x",), ()), ((), ("x",)), (("x",), ("x",))}


def test_a_removed_directory_comes_back_with_what_was_in_it() -> None:
    files, power = machine()
    files.make_dir("/d")
    file = files.open("/d/x", create=True)
    file.write_at(0, [b"inside"])
    file.sync()
    files.sync_dir("/d")
    files.sync_dir("/")
    files.rename("/d", "/e")
    files.remove("/e/x")
    files.remove_dir("/e")
    power.cut(Random(0), Style.DROP)
    assert files.list_dir("/") == ["d"]
    assert content_of(files, "/d/x") == b"inside"


def test_a_directory_whose_name_was_not_synced_takes_all_with_it() -> None:
    files, power = machine()
    files.make_dir("/d")
    files.open("/d/x", create=True).sync()
    files.sync_dir("/d")
    power.cut(Random(0), Style.DROP)
    assert files.list_dir("/") == []


def test_a_write_during_a_sync_is_not_covered_by_it() -> None:
    plan = FaultPlan()
    files, power = machine(plan)
    file = durable(files, "/a", b"one")
    file.write_at(3, [b"two"])
    plan.slow_sync = lambda: file.write_at(6, [b"three"])
    file.sync()
    plan.slow_sync = None
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"onetwo"


def test_unsynced_bytes_are_lost_also_if_their_file_was_closed_and_opened_again() -> None:
    files, power = machine()
    file = durable(files, "/a", b"one")
    file.write_at(3, [b"two"])
    file.close()
    again = files.open("/a")
    again.write_at(6, [b"three"])
    again.close()
    assert content_of(files, "/a") == b"onetwothree"
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"one"


def test_one_handle_syncs_what_another_wrote() -> None:
    files, power = machine()
    file = durable(files, "/a", b"one")
    file.write_at(3, [b"two"])
    files.open("/a", writable=False).sync()
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"onetwo"


@pytest.mark.parametrize("style", Style)
def test_a_thread_that_syncs_while_another_appends_promises_no_more_than_it_saw(
    tmp_path: Path, style: Style
) -> None:
    power = Power()
    files = FaultyFiles(DiskFiles(), power)
    path = str(tmp_path / "a")
    file = files.open(path, create=True)
    files.sync_dir(str(tmp_path))
    content = Random(9).randbytes(200_000)
    promised = [0]
    done = Event()

    def sync_forever() -> None:
        while not (done.is_set() and promised[0]):
            size = file.size()
            file.sync()
            promised[0] = size

    thread = Thread(target=sync_forever)
    thread.start()
    for position in range(0, len(content), 500):
        file.write_at(
            position, [content[position : position + 200], content[position + 200 : position + 500]]
        )
    done.set()
    thread.join()
    power.cut(Random(1), style)
    assert promised[0] > 0
    assert files.open(path).read_at(0, promised[0]) == content[: promised[0]]


def test_after_a_failed_sync_a_later_one_says_done_and_keeps_nothing() -> None:
    files, power = machine(FaultPlan([FaultRule("sync", "a", nth=2)]))
    file = durable(files, "/a", b"one")
    file.write_at(3, [b"two"])
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"one\0\0\0"


def test_what_is_written_anew_after_a_failed_sync_is_kept_by_the_next() -> None:
    files, power = machine(FaultPlan([FaultRule("sync", "a", nth=2)]))
    file = durable(files, "/a", b"one")
    file.write_at(3, [b"two"])
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.write_at(3, [b"two"])
    file.sync()
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"onetwo"


def test_an_error_that_lasts_fails_every_time_from_its_first_one_on() -> None:
    files, _ = machine(FaultPlan([FaultRule("sync", "a", nth=2, is_lasting=True)]))
    file = durable(files, "/a", b"one")
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
    assert files.plan.met == 3


def test_a_directory_whose_sync_failed_fails_until_the_machine_starts_anew() -> None:
    files, power = machine(FaultPlan([FaultRule("sync_dir", "/", nth=2)]))
    durable(files, "/a", b"one")
    files.open("/b", create=True)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            files.sync_dir("/")
    power.cut(Random(0), Style.DROP)
    assert files.list_dir("/") == ["a"]
    files.sync_dir("/")


def test_of_several_unsynced_versions_the_durable_one_comes_back() -> None:
    files, power = machine(FaultPlan([FaultRule("sync", "a", nth=2)]))
    file = durable(files, "/a", b"one")
    file.write_at(0, [b"two"])
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.write_at(0, [b"3"])
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"one"


def test_a_removed_file_comes_back_with_what_was_synced_after_its_removal() -> None:
    files, power = machine()
    file = durable(files, "/a", b"one")
    files.remove("/a")
    file.write_at(3, [b"two"])
    file.sync()
    file.close()
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"onetwo"


def test_what_was_in_a_directory_stays_gone_if_the_directory_does() -> None:
    found: set[tuple[str, ...]] = set()
    for seed in SEEDS:
        files, power = machine()
        files.make_dir("/d")
        files.open("/d/x", create=True).sync()
        files.sync_dir("/d")
        files.sync_dir("/")
        files.remove("/d/x")
        files.remove_dir("/d")
        power.cut(Random(seed), Style.REORDER)
        found.add(tuple(files.list_dir("/") + (files.list_dir("/d") if files.exists("/d") else [])))
    assert found == {(), ("d",), ("d", "x")}
