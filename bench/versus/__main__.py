"""Ottla beside its peers, on this machine, in one run.

    python -m bench.versus run                        all workloads, five rounds; hours
    python -m bench.versus run --only quick --rounds 2
    python -m bench.versus run --only goals --minutes 6      six minutes of it; again: the next six
    python -m bench.versus run --only ack-300:kafka,nats --only 'produce-*'
    python -m bench.versus list                       the workloads
    python -m bench.versus render --out docs/benchmarks
    python -m bench.versus compare ONE OTHER          do two runs agree?

A run lives in `target/bench/NAME` (--run NAME) and goes on where it ended. One of all workloads
that is complete, or with --fresh any, is kept as NAME-before, and the next begins.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.limit import measure as measure_limits
from bench.machine import machine_of
from bench.measure import say, workspace
from bench.node_servers import TOP
from bench.peers.table import VARIANTS
from bench.versus.ending import end_tidily
from bench.versus.render import compared, render
from bench.versus.results import Results
from bench.versus.run import Plan, Run
from bench.versus.stage import Clusters
from bench.versus.workloads import WORKLOADS, chosen

_FREE_BYTES_MIN: Final = 24 << 30
_LIMIT_ROUNDS: Final = 5
_RUNS: Final = TOP / "target" / "bench"
DOCS: Final = TOP / "docs" / "benchmarks"


def _git(*words: str) -> str:
    told = subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True, check=False)
    return told.stdout.strip()


def _commit() -> str:
    """Return what the code is now; the page that a run writes does not make it another."""
    commit = _git("rev-parse", "--short", "HEAD") or "unknown"
    page = DOCS.relative_to(TOP)
    is_changed = _git("status", "--porcelain", "--untracked-files=no", "--", f":!{page}")
    return f"{commit}-dirty" if is_changed else commit


def _limits(directory: str) -> list[dict[str, object]]:
    say("measuring what this machine can do at all …")
    return [case.facts() for case in measure_limits(directory, _LIMIT_ROUNDS)]


def _facts(results: Results, clusters: Clusters, directory: str, began_at: str) -> dict[str, Any]:
    before = results.facts()
    peers = dict(before.get("peers", {}))
    for name, peer in clusters.seen.items():
        peers[name] = {"version": peer.version, "settings": dict(peer.settings)}
    commands = [*before.get("commands", []), "python -m bench.versus " + " ".join(sys.argv[1:])]
    return {
        "machine": before.get("machine") or machine_of(directory).facts(),
        "commits": sorted({*before.get("commits", []), began_at, _commit()}),
        "client": f"confluent-kafka {version('confluent-kafka')}",
        "peers": peers,
        "missing": clusters.missing,
        "commands": list(dict.fromkeys(commands)),
    }


def put_aside(folder: Path) -> None:
    """Keep a run under another name, and what had that name no longer."""
    before = folder.with_name(f"{folder.name}-before")
    shutil.rmtree(before, ignore_errors=True)
    folder.rename(before)
    say(f"the run before is kept as {before.name}")


def run(options: argparse.Namespace) -> None:
    end_tidily()
    # Now and at the end: nodes are started in between from what is there then.
    began_at = _commit()
    if options.part != 1.0 and options.run == "latest":
        raise SystemExit("--part gives figures that mean nothing: keep them apart with --run NAME")
    folder = _RUNS / options.run
    results = Results(folder)
    minutes = options.minutes
    plan = Plan(
        rows=[row.part(options.part) for row in chosen(options.only)],
        rounds=options.rounds,
        variants=options.variant,
        warm_gb=options.warm_gb,
        budget_s=None if minutes is None else minutes * 60,
    )
    with (
        workspace(options.dir, free_bytes_min=_FREE_BYTES_MIN) as directory,
        Clusters(Path(directory)) as clusters,
    ):
        taking = Run(plan, results, clusters)
        is_complete = not options.only and not taking.left()
        if folder.exists() and (options.fresh or is_complete):
            put_aside(folder)
        say(f"{len(taking.left())} turns are left")
        if options.limit and "limits" not in results.facts():
            results.add_facts({"limits": _limits(directory)})
        try:
            is_complete = taking.take()
        finally:
            results.add_facts(_facts(results, clusters, directory, began_at))
    if options.out is not None:
        render(results, Path(options.out))
    if not is_complete:
        sys.exit(3)


def compare(options: argparse.Namespace) -> None:
    text = compared(Results(_RUNS / options.one), Results(_RUNS / options.other))
    if options.out is None:
        print(text)
        return
    command = f"python -m bench.versus compare {options.one} {options.other}"
    heading = f"# Two runs of the table\n\nMade by `{command}`: edit nothing here."
    Path(options.out).write_text(f"{heading}\n\n{text}\n", encoding="utf-8")
    say(f"written: {options.out}")


def show_list() -> None:
    for row in WORKLOADS.values():
        sets = f" [{', '.join(row.sets)}]" if row.sets else ""
        print(f"{row.name:24} {row.title}{sets}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.versus", description=(__doc__ or "").split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="measure what is left, and write the table")
    runs.add_argument("--only", action="append", default=[], help="a workload, or goals, quick")
    runs.add_argument("--variant", action="append", default=[], choices=VARIANTS)
    runs.add_argument("--rounds", type=int, default=5)
    runs.add_argument("--minutes", type=float, help="begin no turn that would take longer")
    runs.add_argument("--warm-gb", type=float, default=3.0)
    runs.add_argument("--no-limit", dest="limit", action="store_false")
    runs.add_argument(
        "--part", type=float, default=1.0, help="of the records, to see that it works: 0.02"
    )
    runs.add_argument("--run", default="latest", help="its name")
    runs.add_argument("--fresh", action="store_true", help="do not go on with the one before")
    runs.add_argument("--dir", help="where clusters live; a directory of its own is made in it")
    runs.add_argument("--out", help="where the table and plots go; none: not written")
    shown = commands.add_parser("render", help="write table and plots of what was measured")
    shown.add_argument("--run", default="latest")
    shown.add_argument("--out", default=str(DOCS))
    commands.add_parser("list", help="the workloads")
    two = commands.add_parser("compare", help="do two runs agree within their spread?")
    two.add_argument("one")
    two.add_argument("other")
    two.add_argument("--out", help="a page to write instead of printing")
    options = parser.parse_args()
    if options.command == "run":
        run(options)
    elif options.command == "render":
        render(Results(_RUNS / options.run), Path(options.out))
    elif options.command == "compare":
        compare(options)
    else:
        show_list()


if __name__ == "__main__":
    main()
