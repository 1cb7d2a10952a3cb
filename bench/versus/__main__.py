"""Ottla beside its peers, on this machine, in one run.

    python -m bench.versus run                        all workloads, five rounds
    python -m bench.versus twice --out docs/benchmarks       that, again, and do the two agree?
    python -m bench.versus run --only quick --rounds 2
    python -m bench.versus run --only goals --minutes 6      six minutes of it; again: the next six
    python -m bench.versus run --only ack-300:kafka,nats --only 'produce-*'
    python -m bench.versus list                       the workloads
    python -m bench.versus render --out docs/benchmarks
    python -m bench.versus compare ONE OTHER          do two runs agree?

A run lives in `target/bench/NAME` (--run NAME) and goes on where it ended. One of all workloads
that is complete, or with --fresh any, is kept as NAME-before, and the next begins. The two runs of
`twice` are NAME-one and NAME-other; each goes on where it ended, and when both are complete they
are only compared (--fresh: taken again). Whoever has not taken all turns ends with 3.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from bench.limit import measure as measure_limits
from bench.machine import machine_of
from bench.measure import say, workspace
from bench.node_servers import TOP
from bench.peers.table import VARIANTS
from bench.versus.agreement import agreement_page
from bench.versus.ending import end_tidily
from bench.versus.render import figure_table, goal_table, render
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
        "client": ", ".join(_clients()),
        "peers": peers,
        "missing": clusters.missing,
        "commands": list(dict.fromkeys(commands)),
    }


def _clients() -> list[str]:
    found = list[str]()
    for name in ("confluent-kafka", "nats-py"):
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return found


def put_aside(folder: Path) -> None:
    """Keep a run under another name, and what had that name no longer."""
    before = folder.with_name(f"{folder.name}-before")
    shutil.rmtree(before, ignore_errors=True)
    folder.rename(before)
    say(f"the run before is kept as {before.name}")


def _plan(options: argparse.Namespace) -> Plan:
    if options.part != 1.0 and options.run == "latest":
        raise SystemExit("--part gives figures that mean nothing: keep them apart with --run NAME")
    return Plan(
        rows=[row.part(options.part) for row in chosen(options.only)],
        rounds=options.rounds,
        variants=options.variant,
        warm_gb=options.warm_gb,
        uncounted=options.uncounted,
        budget_s=None if options.minutes is None else options.minutes * 60,
    )


def run(options: argparse.Namespace) -> None:
    results = Results(_RUNS / options.run)
    is_complete = _taken(options, _plan(options), results)
    _print_tables(results)
    folder = _page_folder(options, is_complete=is_complete)
    if folder is not None:
        render(results, folder)
    if not is_complete:
        sys.exit(3)


def twice(options: argparse.Namespace) -> None:
    """Take two runs, one after the other, and compare them; both share the minutes."""
    plan = _plan(options)
    runs = [Results(_RUNS / f"{options.run}-{which}") for which in ("one", "other")]
    if options.fresh:
        for results in runs:
            if results.folder.exists():
                put_aside(results.folder)
    is_complete = all(_taken(options, plan, results, is_renewed=False) for results in runs)
    _print_tables(runs[0])
    folder = _page_folder(options, is_complete=is_complete)
    if folder is not None:
        render(runs[0], folder)
        render(runs[1], folder / "other", has_plots=False)
    _show_agreement(runs[0], runs[1], folder)
    if not is_complete:
        sys.exit(3)


def _print_tables(results: Results) -> None:
    print(f"\n{goal_table(results)}\n\n{figure_table(results)}\n", flush=True)


def _page_folder(options: argparse.Namespace, *, is_complete: bool) -> Path | None:
    """Return where the page goes: a part of the table does not replace the published one."""
    if options.out is None:
        return None
    folder = Path(options.out)
    is_part = options.only or options.variant or not is_complete
    if not is_part or folder.resolve() != DOCS:
        return folder
    aside = _RUNS / f"{options.run}-page"
    say(f"this is a part of the table: its page goes to {aside}, and {folder.name} stays as it is")
    return aside


def _taken(
    options: argparse.Namespace, plan: Plan, results: Results, *, is_renewed: bool = True
) -> bool:
    """Take the turns of a run that are left, and return whether none is left then.

    `is_renewed`: if there were none, the run is put aside, and the next begins.
    """
    end_tidily()
    # Now and at the end: nodes are started in between from what is there then.
    began_at = _commit()
    folder = results.folder
    with (
        workspace(options.dir, free_bytes_min=_FREE_BYTES_MIN) as directory,
        Clusters(Path(directory)) as clusters,
    ):
        taking = Run(plan, results, clusters)
        if is_renewed and folder.exists():
            is_complete = not options.only and not taking.left()
            if options.fresh or is_complete:
                put_aside(folder)
        say(f"{len(taking.left())} turns are left of {folder.name}")
        if not taking.left():
            return True
        if options.limit and "limits" not in results.facts():
            results.add_facts({"limits": _limits(directory)})
        try:
            return taking.take()
        finally:
            results.add_facts(_facts(results, clusters, directory, began_at))


def compare(options: argparse.Namespace) -> None:
    runs = [Results(_RUNS / name) for name in (options.one, options.other)]
    for results in runs:
        if not results.folder.exists():
            raise SystemExit(f"there is no run {results.folder.name} in {_RUNS}")
    _show_agreement(runs[0], runs[1], Path(options.out) if options.out is not None else None)


def _show_agreement(one: Results, other: Results, out: Path | None) -> None:
    """Print whether two runs agree, or write it: into a folder, or into a file of that name."""
    text = agreement_page(one, other)
    if out is None:
        print(text)
        return
    path = out if out.suffix == ".md" else out / "agreement.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    say(f"written: {path}")


def show_list() -> None:
    for row in WORKLOADS.values():
        sets = f" [{', '.join(row.sets)}]" if row.sets else ""
        print(f"{row.name:24} {row.title}{sets}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.versus", description=(__doc__ or "").split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_run(commands.add_parser("run", help="measure what is left, and write the table"))
    _add_run(commands.add_parser("twice", help="two runs, one after the other, and compare them"))
    shown = commands.add_parser("render", help="write table and plots of what was measured")
    shown.add_argument("--run", default="latest")
    shown.add_argument("--out", default=str(DOCS))
    commands.add_parser("list", help="the workloads")
    two = commands.add_parser("compare", help="do two runs agree within their spread?")
    two.add_argument("one")
    two.add_argument("other")
    two.add_argument("--out", help="a folder for agreement.md, or a page; none: printed")
    options = parser.parse_args()
    if options.command == "run":
        run(options)
    elif options.command == "twice":
        twice(options)
    elif options.command == "render":
        render(Results(_RUNS / options.run), Path(options.out))
    elif options.command == "compare":
        compare(options)
    else:
        show_list()


def _add_run(runs: argparse.ArgumentParser) -> None:
    runs.add_argument("--only", action="append", default=[], help="a workload, or goals, quick")
    runs.add_argument("--variant", action="append", default=[], choices=VARIANTS)
    runs.add_argument("--rounds", type=int, default=5)
    runs.add_argument("--minutes", type=float, help="begin no turn that would take longer")
    runs.add_argument("--warm-gb", type=float, default=3.0)
    runs.add_argument("--no-limit", dest="limit", action="store_false")
    runs.add_argument(
        "--uncounted", type=int, default=2, help="rounds of what goes as fast as it can, before"
    )
    runs.add_argument(
        "--part", type=float, default=1.0, help="of the records, to see that it works: 0.02"
    )
    runs.add_argument("--run", default="latest", help="its name")
    runs.add_argument("--fresh", action="store_true", help="do not go on with the one before")
    runs.add_argument("--dir", help="where clusters live; a directory of its own is made in it")
    runs.add_argument("--out", help="where the table and plots go; none: not written")


if __name__ == "__main__":
    main()
