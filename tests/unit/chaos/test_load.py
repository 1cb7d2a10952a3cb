"""How busy a machine was: counted from files like those of a kernel, and from real ones."""

from __future__ import annotations

import os
from pathlib import Path

from ottla.chaos.evidence import Load
from ottla.chaos.load import LoadWatch, Ticks, load_between, ticks
from tests.integration.nodes import wait_until

NS = 1_000_000_000


def kernel(root: Path, *processes: tuple[int, int, int]) -> Path:
    """Processes are their id, that of their parent, and their ticks."""
    (root / "stat").write_text("cpu  100 0 50 800 40 0 5 5 0 0\ncpu0 1 2 3\n")
    for pid, parent, used in processes:
        (root / str(pid)).mkdir()
        line = f"{pid} (a (b) c) S {parent} 0 0 0 0 0 0 0 0 0 {used} 0 0 0 0"
        (root / str(pid) / "stat").write_text(line)
    (root / "self").mkdir()
    return root


def test_own_is_what_a_process_and_all_below_it_used(tmp_path: Path) -> None:
    root = kernel(tmp_path, (10, 1, 5), (11, 10, 7), (12, 11, 9), (20, 1, 1000), (1, 0, 3))
    found = ticks(10, root)
    assert (found.all, found.idle, found.own) == (1000, 840, 21)


def test_what_is_neither_idle_nor_own_is_that_of_others() -> None:
    before, after = Ticks(0, 1000, 100, 50), Ticks(3 * NS // 2, 1200, 120, 130)
    assert load_between(before, after) == Load(0, 3 * NS // 2, 0.1, 0.5, 0.5)


def test_between_two_looks_at_the_same_moment_nothing_can_be_told() -> None:
    assert load_between(Ticks(0, 1000, 100, 50), Ticks(NS, 1000, 100, 50)) is None


def test_own_work_that_is_counted_late_is_no_work_of_others() -> None:
    load = load_between(Ticks(0, 1000, 100, 50), Ticks(NS, 1200, 100, 30))
    assert load is not None
    assert load.others == 1.0
    load = load_between(Ticks(0, 1000, 100, 50), Ticks(NS, 1200, 100, 900))
    assert load is not None
    assert load.others == 0.0


def test_a_real_machine_is_looked_at_until_it_is_stopped() -> None:
    found = list[Load]()
    assert ticks(os.getpid()).own > 0
    watch = LoadWatch(found.append)
    watch.start()
    wait_until(lambda: bool(found), 30.0, "somebody has looked")
    watch.stop()
    count = len(found)
    assert all(0 <= one.idle <= 1 and 0 <= one.others <= 1 for one in found)
    assert len(found) == count
