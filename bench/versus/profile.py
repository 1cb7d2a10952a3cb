"""Flame graphs of each node under load, and which functions cost most (`make profile`).

    python -m bench.versus.profile                            1 KB, page cache, as fast as it goes
    python -m bench.versus.profile --only ack-1000 --variant ottla-fsync

py-spy looks at three nodes from outside, a hundred times a second, while the workload is repeated.
Each workload is taken twice: once for the graphs (`NAME-node-N.svg`), once for the table of
functions (`NAME.md`), which shows shares of samples in which a thread had something to do: py-spy
takes a thread that waits in C for a busy one: samples that end in one of `_WAITS` are left out of
the table, and are still in the graph. Node 1 leads every partition of a workload with one. py-spy
needs the right to look into other processes: root, or `kernel.yama.ptrace_scope=0`.

Not here: time below Python, by function of C: `bench/replication_profile.py` asks `perf`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal

from bench.measure import say, workspace
from bench.node_servers import TOP
from bench.peers.peer import PeerError
from bench.versus.cells import markdown
from bench.versus.ending import end_tidily
from bench.versus.results import Figures
from bench.versus.stage import Clusters, Stage
from bench.versus.turns import LOADS
from bench.versus.workloads import WORKLOADS, Workload

Format = Literal["flamegraph", "raw"]

_FREE_BYTES_MIN: Final = 6 << 30
_HZ: Final = 100
_ROWS: Final = 25
_SPY_S_MAX: Final = 30.0
_TURNS_MAX: Final = 40
# Where a thread waits, in C, for what others give it: the pool's workers, gRPC's and the selector.
_WAITS: Final = frozenset(
    {
        "_worker (concurrent/futures/thread.py)",
        "Condition.wait (threading.py)",
        "EpollSelector.select (selectors.py)",
        "SyncThreads._work (ottla/replication/log/sync_threads.py)",
        "Thread.run (threading.py)",
    }
)
_PATH: Final = re.compile(r"[^\s(]*/(?=ottla/|site-packages/|python3\.\d+/)")


def spy_program() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise SystemExit("there is no py-spy: make bench-install")
    return found


def shares(stacks: Iterable[str]) -> tuple[Counter[str], Counter[str], int]:
    """Return samples by function, alone and with all it calls, and their number.

    A line is `thread;outer;…;inner COUNT`, each function as `name (file:line)`.
    """
    alone, below, total = Counter[str](), Counter[str](), 0
    for line in stacks:
        text, _, count_text = line.rpartition(" ")
        if not text:
            continue
        count = int(count_text)
        names = [_function(part) for part in text.split(";")]
        if names[-1] in _WAITS:
            continue
        alone[names[-1]] += count
        for name in set(names):
            below[name] += count
        total += count
    return alone, below, total


def _function(part: str) -> str:
    """Return a function without its line, and without what stands before the code."""
    return _PATH.sub("", re.sub(r":\d+\)$", ")", part))


def function_table(stacks: Iterable[str]) -> str:
    alone, below, total = shares(stacks)
    rows = [
        [f"`{name}`", f"{count / (total or 1):.1%}", f"{below[name] / (total or 1):.1%}"]
        for name, count in alone.most_common(_ROWS)
    ]
    ours = [
        [f"`{name}`", f"{alone[name] / (total or 1):.1%}", f"{count / (total or 1):.1%}"]
        for name, count in below.most_common()
        if "(ottla/" in name
    ][:_ROWS]
    heading = [f"{total:,} samples", "alone", "with calls"]
    return (
        f"{markdown(heading, rows)}\n\n{markdown(['ours, by all they call', *heading[1:]], ours)}"
    )


class Spy:
    """One py-spy on one process, for so many seconds."""

    def __init__(self, pid: int, path: Path, kind: Format, seconds: float) -> None:
        self._path: Final = path
        self._process: Final = subprocess.Popen(
            [
                *(spy_program(), "record", "--pid", str(pid), "--output", str(path)),
                *("--format", kind, "--rate", str(_HZ), "--duration", str(round(seconds))),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        try:
            _, told = self._process.communicate(timeout=_SPY_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, told = self._process.communicate()
        if not self._path.exists():
            raise PeerError(f"py-spy wrote nothing: {told[-300:]}")

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _loaded(stage: Stage, row: Workload, seconds: float) -> list[Figures]:
    """Repeat a workload for so long."""
    end = time.perf_counter() + seconds
    found = list[Figures]()
    while time.perf_counter() < end and len(found) < _TURNS_MAX:
        found.append(LOADS[row.kind](stage, row))
    return found


def spied(stage: Stage, row: Workload, folder: Path, kind: Format, seconds: float) -> list[Path]:
    """Return the files that were written, by node."""
    ending = "svg" if kind == "flamegraph" else "txt"
    name = f"{row.name}-{stage.variant.name}"
    paths = [folder / f"{name}-node-{node}.{ending}" for node in stage.peer.pids]
    with ExitStack() as stack:
        spies = list[Spy]()
        for pid, path in zip(stage.peer.pids.values(), paths, strict=True):
            path.unlink(missing_ok=True)
            spies.append(Spy(pid, path, kind, seconds))
            stack.callback(spies[-1].close)
        figures = _loaded(stage, row, seconds)
        for spy in spies:
            spy.wait()
    say(f"{name}, {kind}: {[one.get(row.figure) for one in figures]} {row.unit}")
    return paths


def profile(stage: Stage, row: Workload, folder: Path, seconds: float) -> None:
    for _ in range(2):
        LOADS[row.kind](stage, row)
    spied(stage, row, folder, "flamegraph", seconds)
    parts = [f"# {row.title} ({stage.variant.name})"]
    for node, path in enumerate(spied(stage, row, folder, "raw", seconds), 1):
        stacks = path.read_text(encoding="utf-8").splitlines()
        parts.append(f"## Node {node}\n\n{function_table(stacks)}")
        path.unlink()
    target = folder / f"{row.name}-{stage.variant.name}.md"
    target.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    say(f"written: {target}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.versus.profile", description=(__doc__ or "").split("\n")[0]
    )
    loads = [row.name for row in WORKLOADS.values() if row.kind in LOADS]
    parser.add_argument("--only", action="append", choices=loads)
    parser.add_argument(
        "--variant", default="ottla-pagecache", choices=("ottla-pagecache", "ottla-fsync")
    )
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--dir")
    parser.add_argument("--out", default=str(TOP / "target" / "profile"))
    options = parser.parse_args()
    end_tidily()
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        workspace(options.dir, free_bytes_min=_FREE_BYTES_MIN) as directory,
        Clusters(Path(directory)) as clusters,
    ):
        stage = clusters.shared(options.variant)
        assert stage is not None
        for name in options.only or ["produce-1kb"]:
            profile(stage, WORKLOADS[name], folder, options.seconds)


if __name__ == "__main__":
    main()
