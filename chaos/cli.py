"""`ottla chaos`: breaks a cluster on purpose, judges what clients saw, and writes it down.

Exit codes: 0 every promise was kept; 1 one was broken; 2 the options are wrong; 3 too little
happened to say anything; 4 the harness failed. Of several runs the one that matters most decides:
a broken promise first, then a harness that failed.

Not here: doing it (`conductor.py`), judging (`checkers/`), the page (`report/`).
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import Final

import click

from ottla.chaos.backends.choose import open_backend
from ottla.chaos.checkers.happened import places_of
from ottla.chaos.conductor import run as conduct
from ottla.chaos.evidence import Outcome, Ruling
from ottla.chaos.history import BadHistoryError
from ottla.chaos.progress import progress_for
from ottla.chaos.report.documents import render_json
from ottla.chaos.report.drawing import seconds
from ottla.chaos.report.judgement import Judgement, judge_run
from ottla.chaos.report.write import write_overview, write_report
from ottla.chaos.run_folder import RunFolder
from ottla.chaos.scenarios import BACKENDS, TIERS, Scenario, load
from ottla.chaos.soak import LIMITS, Limits, forget_all_but_report, rounds_of, too_much
from ottla.clients.cli.output import tell_json, tell_table
from ottla.proto.errors import ConfigError

EXIT_CODES: Final = {
    Outcome.PASSED: 0,
    Outcome.FAILED: 1,
    Outcome.INCONCLUSIVE: 3,
    Outcome.HARNESS: 4,
}
# Of several runs, which matters most.
_WEIGHT: Final = (Outcome.FAILED, Outcome.HARNESS, Outcome.INCONCLUSIVE, Outcome.PASSED)
_SEEDS: Final = 100_000
# What a round of a soak may take before and after its faults, the last heal among it.
_AROUND_S: Final = 900.0
_DATA: Final = "data"

_TABLE: Final = click.option(
    "--table",
    "tables",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="More scenarios, as chaos/scenarios.toml has them. May be given several times.",
)
_FOLDERS: Final = click.argument(
    "folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True)
)


@click.group()
def chaos() -> None:
    """Break a cluster on purpose, and judge what clients saw."""


@chaos.command("list")
@_TABLE
@click.option("--tier", type=click.Choice(TIERS), help="Only these.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_(tables: tuple[Path, ...], tier: str | None, as_json: bool) -> None:
    """List the scenarios."""
    found = [one for one in load(*tables).values() if tier in (None, one.tier)]
    if as_json:
        tell_json([_as_json(one) for one in found])
        return
    headings = ("ID", "TIER", "LOAD", "NODES", "AT MOST", "BACKENDS", "WHAT HAPPENS")
    tell_table(
        headings,
        [
            (
                one.id,
                one.tier,
                one.workload,
                one.nodes,
                f"{one.limit_s:g} s",
                ",".join(one.backends),
                one.title,
            )
            for one in found
        ],
    )


def _as_json(one: Scenario) -> dict[str, object]:
    return {
        "id": one.id,
        "title": one.title,
        "tier": one.tier,
        "workload": one.workload,
        "nodes": one.nodes,
        "limit_s": one.limit_s,
        "backends": list(one.backends),
    }


@chaos.command()
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@_TABLE
@click.option("--tier", type=click.Choice(TIERS), help="All scenarios of this tier.")
@click.option("--seed", type=click.IntRange(0), help="Repeats a run; drawn by lot if not given.")
@click.option("--backend", type=click.Choice(BACKENDS), default="local", show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("target/chaos"),
    show_default=True,
    help="Where a folder is made for each run.",
)
@click.option("--keep", is_flag=True, help="Keep the data of nodes also of a run that passed.")
@click.option(
    "--program",
    metavar="MODULE [ARGUMENT]...",
    help="Run this Python module as the nodes: a build that is broken on purpose, say.",
)
def run(
    names: tuple[str, ...],
    tables: tuple[Path, ...],
    tier: str | None,
    seed: int | None,
    backend: str,
    out: Path,
    keep: bool,
    program: str | None,
) -> None:
    """Run scenarios, by their names or a whole tier, and judge them."""
    chosen = _chosen(load(*tables), names, tier, backend)
    drawn = SystemRandom().randrange(_SEEDS) if seed is None else seed
    each = list[Outcome | None]()
    for scenario in chosen:
        folder = _new_folder(out, scenario.id, backend, drawn)
        again = _command(scenario.id, tables, drawn, backend, program)
        outcome = _run_one(scenario, folder, drawn, backend, program, again)
        each.append(outcome)
        if outcome is Outcome.PASSED and not keep:
            shutil.rmtree(folder.path / _DATA, ignore_errors=True)
    outcomes = outcomes_of(each, is_by_name=bool(names))
    if len(chosen) > 1:
        told = ", ".join(f"{outcomes.count(one)} {one.value}" for one in _WEIGHT if one in outcomes)
        click.echo(f"{len(outcomes)} runs with seed {drawn}: {told or 'nothing could be run'}.")
        click.echo(f"All of them: {write_overview(out)}")
    _leave(outcomes)


def _chosen(
    known: Mapping[str, Scenario], names: Sequence[str], tier: str | None, backend: str
) -> list[Scenario]:
    if names and tier is not None:
        raise ConfigError("Say which scenarios, or --tier, not both.")
    if not names and tier is None:
        raise ConfigError("Say which scenarios; `ottla chaos list` shows them. Or say --tier pr.")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"There is no scenario {unknown[0]!r}; `ottla chaos list` shows what there is."
        )
    wrong = [name for name in names if backend not in known[name].backends]
    if wrong:
        raise ConfigError(
            f"{wrong[0]} runs on {', '.join(known[wrong[0]].backends)}, not on {backend}."
        )
    if names:
        return [known[name] for name in names]
    return [one for one in known.values() if one.tier == tier and backend in one.backends]


def _new_folder(out: Path, scenario: str, backend: str, seed: int) -> RunFolder:
    """Return a folder that is not there yet: evidence of two runs is never mixed."""
    name = f"{scenario}-{backend}-{seed}"
    numbers = (f"{name}-{number}" for number in range(2, _SEEDS))
    return next(RunFolder(path) for one in (name, *numbers) if not (path := out / one).exists())


def _command(
    scenario: str, tables: Sequence[Path], seed: int, backend: str, program: str | None
) -> str:
    """Return the command that does the same again."""
    parts = ["ottla", "chaos", "run", scenario, "--seed", str(seed), "--backend", backend]
    for table in tables:
        parts += ["--table", str(table)]
    if program is not None:
        parts += ["--program", program]
    return shlex.join(parts)


def _run_one(
    scenario: Scenario,
    folder: RunFolder,
    seed: int,
    backend_name: str,
    program: str | None,
    again: str,
) -> Outcome | None:
    """Return what a run came to; None if the backend cannot do it."""
    backend = open_backend(
        backend_name,
        folder.path / _DATA,
        nodes=scenario.nodes,
        controllers=scenario.controllers,
        options=scenario.options,
        seed=seed,
        program=("-m", *(program or "ottla").split()),
        needs=scenario.means,
    )
    lacking = scenario.means - backend.means
    if lacking:
        backend.close()
        needs = ", ".join(sorted(one.value for one in lacking))
        click.echo(f"{scenario.id} skipped: {backend_name} has no {needs}.")
        return None
    with progress_for(scenario.id) as progress:
        conduct(scenario, backend, folder, seed, progress)
    try:
        folder.write_facts(replace(folder.read_facts(), command=again))
        judgement = judge_run(folder.read())
    except (OSError, BadHistoryError) as error:
        click.echo(f"{scenario.id} HARNESS FAILURE: there is no evidence to judge: {error}")
        return Outcome.HARNESS
    write_report(folder, judgement)
    _tell(judgement, folder)
    return judgement.outcome


def _tell(judgement: Judgement, folder: RunFolder) -> None:
    facts, figures = judgement.evidence.facts, judgement.figures
    worst = max((one.outage_s for one in figures.faults), default=None)
    outage = "" if worst is None else f", longest outage {seconds(worst)}"
    click.echo(
        f"{facts.scenario} {judgement.outcome.value.upper()}: "
        f"{judgement.total('send ok')} acknowledged, {judgement.total('send unknown')} unknown, "
        f"{judgement.total('send fail')} refused{outage}. {folder.report_path}"
    )
    for one in judgement.of(Ruling.BROKEN):
        click.echo(f"  broken: {one.promise} {one.sentence} ({one.name}, {one.count}×)")
    if judgement.outcome is Outcome.INCONCLUSIVE:
        for doubt in judgement.doubts[:5]:
            click.echo(f"  inconclusive: {doubt}")
    reached, asked = places_of(judgement.evidence)
    if asked:
        click.echo(f"  {reached} of {asked} named places were reached")
    for failure in judgement.evidence.harness_failures[:5]:
        click.echo(f"  harness: {failure}")
    if judgement.outcome is not Outcome.PASSED:
        click.echo(f"  again:   {facts.command}")


def outcomes_of(each: Sequence[Outcome | None], *, is_by_name: bool) -> list[Outcome]:
    """Return what runs came to, of which some (None) were skipped.

    Of a tier what can be done is done; what was asked for by its name was to be shown.
    """
    skipped = [Outcome.INCONCLUSIVE] if is_by_name else []
    return [one for outcome in each for one in (skipped if outcome is None else [outcome])]


def worst_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Return what matters most; if nothing was run, nothing was shown."""
    return next((one for one in _WEIGHT if one in outcomes), Outcome.INCONCLUSIVE)


def _leave(outcomes: Sequence[Outcome]) -> None:
    click.get_current_context().exit(EXIT_CODES[worst_of(outcomes)])


@chaos.command()
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), required=True)
@click.option("--round-minutes", type=click.FloatRange(min=0.5), default=20.0, show_default=True)
@click.option("--scenario", "name", default="C44", show_default=True, help="One with a mix.")
@click.option("--seed", type=click.IntRange(0), help="Of the first round; the next has the next.")
@click.option("--rss-mb", type=click.IntRange(1), default=LIMITS.rss_mb, show_default=True)
@click.option("--open-files", type=click.IntRange(1), default=LIMITS.open_files, show_default=True)
@click.option("--disk-mb", type=click.IntRange(1), default=LIMITS.disk_mb, show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("target/soak"),
    show_default=True,
)
def soak(
    hours: float,
    round_minutes: float,
    name: str,
    seed: int | None,
    rss_mb: int,
    open_files: int,
    disk_mb: int,
    out: Path,
) -> None:
    """Random faults for hours, round by round; stops at the first that is not good, and keeps it.

    Of a round that passed only its report is kept, so that the disk does not fill.
    """
    (scenario,) = _chosen(load(), (name,), None, "local")
    limits = Limits(rss_mb=rss_mb, open_files=open_files, disk_mb=disk_mb)
    first = SystemRandom().randrange(_SEEDS) if seed is None else seed
    for number, mix_s in enumerate(rounds_of(hours * 3600, round_minutes * 60)):
        drawn = first + number
        folder = _new_folder(out, scenario.id, "local", drawn)
        again = _command(scenario.id, (), drawn, "local", None)
        limit_s = mix_s + _AROUND_S
        told = replace(scenario, mix_s=mix_s, limit_s=limit_s)
        outcome = _run_one(told, folder, drawn, "local", None, again)
        above = too_much(folder.read().uses, limits)
        for one in above:
            click.echo(f"  above the limit: {one}")
        if outcome is not Outcome.PASSED or above:
            click.echo(f"Stopped in round {number + 1}; everything is in {folder.path}")
            _leave([Outcome.FAILED if above or outcome is None else outcome])
        forget_all_but_report(folder)
    click.echo(f"{hours:g} h of faults and nothing broken. The reports: {write_overview(out)}")


@chaos.command()
@_FOLDERS
@click.option("--json", "as_json", is_flag=True, help="All there is to say, for programs.")
def check(folders: tuple[Path, ...], as_json: bool) -> None:
    """Judge runs again, from their folders; nothing in them is changed."""
    outcomes = list[Outcome]()
    for path in folders:
        folder = RunFolder(path)
        judgement = judge_run(folder.read())
        outcomes.append(judgement.outcome)
        if as_json:
            click.echo(render_json(judgement), nl=False)
            continue
        rows = [
            (one.row, one.ruling.value, one.name, one.sentence or one.promise)
            for one in judgement.verdicts
        ]
        tell_table(("ROW", "VERDICT", "NAME", ""), rows)
        _tell(judgement, folder)
    _leave(outcomes)


@chaos.command()
@_FOLDERS
def report(folders: tuple[Path, ...]) -> None:
    """Judge runs again, and write their pages anew: report.html, verdict.json, junit.xml."""
    for path in folders:
        folder = RunFolder(path)
        write_report(folder, judge_run(folder.read()))
        click.echo(folder.report_path)
