"""Results as a page: the goals, the table of ratios, and what they were measured on.

Not here: two runs side by side (`agreement.py`), plots (`plots.py`), medians and ratios
(`figures.py`), what stands behind the figure of a row (`details.py`).
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.measure import say
from bench.versus.cells import markdown, number, told
from bench.versus.details import detail_table, round_table
from bench.versus.figures import ratio_of, summary_of
from bench.versus.goals import GOALS, Judged, judged
from bench.versus.results import Results, fell_behind, saturated_rounds, write_json
from bench.versus.workloads import WORKLOADS, Workload, baseline_of


def goal_table(results: Results) -> str:
    rows = [_goal_cells(judged(goal, results), results) for goal in GOALS]
    return markdown(["figure", "goal", "measured", "ours", "theirs", "verdict"], rows)


def _goal_cells(found: Judged, results: Results) -> list[str]:
    goal = found.goal
    versus = "" if goal.theirs is None else f" {goal.theirs}"
    ours, theirs = (_note(results, goal.workload, one) for one in (goal.ours, goal.theirs))
    return [
        goal.title,
        goal.wish,
        told(found.measured),
        f"{told(found.ours)} {goal.ours}{ours}",
        f"{told(found.theirs)}{versus}{theirs}",
        found.verdict if found.verdict == "reached" else f"**{found.verdict}**",
    ]


def figure_rows(results: Results, row: Workload) -> list[list[str]]:
    """Return one row of cells for each variant that was measured."""
    found = list[list[str]]()
    for variant in row.variants:
        ours = results.values(row.name, variant, row.figure)
        if not ours:
            continue
        figure = told(summary_of(list(ours.values())))
        found.append(
            [
                row.title,
                variant,
                f"{figure} {row.unit}{_note(results, row.name, variant)}",
                _ratio(results, row, variant),
                str(len(ours)),
            ]
        )
    return found


def _ratio(results: Results, row: Workload, variant: str) -> str:
    baseline = baseline_of(row, variant)
    if baseline == variant:
        return "1"
    if not row.is_compared:
        return ""
    # A bound divided by a figure, or by another bound, says nothing.
    if fell_behind(results, row.name, variant, baseline):
        return "–"
    figures = (results.values(row.name, one, row.figure) for one in (variant, baseline))
    return told(ratio_of(*figures))


def _note(results: Results, workload: str, variant: str | None) -> str:
    count = saturated_rounds(results, workload, variant) if variant is not None else 0
    if not count or variant is None:
        return ""
    return f", **saturated** in {count} of {len(results.rounds(workload, variant))}"


def figure_table(results: Results) -> str:
    rows = [cells for row in WORKLOADS.values() for cells in figure_rows(results, row)]
    heading = ["workload", "peer", "median (least–most)", "ratio to Kafka", "rounds"]
    return markdown(heading, rows)


def limit_table(facts: dict[str, Any]) -> str:
    rows = list[list[str]]()
    for one in facts.get("limits", []):
        if one["name"] in ("writev (page cache)", "writev+fdatasync", "sendfile to loopback"):
            size = f"{one['op_bytes'] >> 10} KiB"
            rows.append([one["name"], size, number(one["mb_per_s"] or 0), number(one["median_us"])])
    return markdown(["limit", "size", "MB/s", "µs"], rows) if rows else "Not measured."


def quiet(results: Results) -> str:
    """Say how much of the machine went elsewhere while turns were taken: others' work, not ours."""
    found = [
        value
        for row in WORKLOADS.values()
        for variant in row.variants
        for value in results.values(row.name, variant, "elsewhere_cores").values()
    ]
    summary = summary_of(found)
    if summary is None:
        return "Nobody looked whether the machine was quiet."
    return (
        "Cores that were busy with neither nodes nor drivers during a turn (other programs, the "
        f"host, the kernel's own threads): {told(summary)}.{_hurried(results)}"
    )


def _hurried(results: Results) -> str:
    """Say how many turns could not wait for what another cluster was still doing."""
    count = sum(
        one.get("is_calm") is False
        for row in WORKLOADS.values()
        for variant in row.variants
        for one in results.rounds(row.name, variant).values()
    )
    return f" Turns that began while another cluster was not idle: {count}." if count else ""


def minutes_table(results: Results) -> str:
    """Return what the turns of each row took, and how much of that was under load."""
    rows, all_s, load_s = list[list[str]](), 0.0, 0.0
    for row in WORKLOADS.values():
        turns = [one for name in row.variants for one in results.rounds(row.name, name).values()]
        took_s = sum(one.get("turn_s", 0.0) for one in turns)
        spent_s = defaultdict[str, float](float)
        for one in turns:
            for what, seconds in one.get("spent_s", {}).items():
                spent_s[what] += seconds
        all_s += took_s
        load_s += spent_s["load"]
        if turns:
            by_time = sorted(spent_s.items(), key=lambda part: -part[1])
            most = ", ".join(f"{what} {seconds:.0f} s" for what, seconds in by_time)
            rows.append([row.name, str(len(turns)), f"{took_s:.0f} s", most])
    rows.append(["all", "", f"{all_s / 60:.0f} min", f"load {load_s / 60:.0f} min"])
    return markdown(["workload", "turns", "took", "of it"], rows)


def warm_list(results: Results) -> str:
    lines = list[str]()
    for name, one in results.warm_ups().items():
        speeds = ", ".join(f"{speed:.0f}" for _, speed in one["curve"])
        lines.append(f"- **{name}**: {one['how']}{f'. MB/s: {speeds}' if speeds else ''}.")
    if not lines:
        return "Nobody was warmed up."
    counts = [
        len(results.uncounted(row.name, variant, row.figure))
        for row in WORKLOADS.values()
        for variant in row.variants
    ]
    before = max(counts, default=0)
    lines.append(
        f"- Then {before} rounds of whatever goes as fast as it can were taken and not counted."
    )
    return "\n".join(lines)


def plot_list(folder: Path) -> str:
    """Return the plots that are there."""
    return "\n".join(
        f"![{title}]({name}.svg)"
        for name, title in _PLOTS.items()
        if (folder / f"{name}.svg").exists()
    )


_PLOTS = {
    "ratios": "Ottla as a multiple of Apache Kafka",
    "latency": "time to the acknowledgement by rate",
    "warm-up": "speed while warming up",
}


def peer_list(facts: dict[str, Any]) -> str:
    lines = list[str]()
    for name, peer in facts.get("peers", {}).items():
        settings = "; ".join(f"{key}: {value}" for key, value in peer["settings"].items())
        lines.append(f"- **{name}**: {peer['version']}. {settings}.")
    lines += [f"- {why}" for why in facts.get("missing", {}).values()]
    return "\n".join(lines)


def page(results: Results, plots: str = "") -> str:
    """Return the whole page."""
    facts = results.facts()
    machine = facts.get("machine", {})
    told_machine = (
        f"{machine.get('cpu')}, {machine.get('cores')} cores, "
        f"{machine.get('memory_gb', 0):.0f} GB, Linux {machine.get('kernel')}, "
        f"{machine.get('filesystem')}, Python {machine.get('python')}"
    )
    commands = "\n".join(facts.get("commands", []))
    failures = "\n".join(f"- {turn}: {why[:300]}" for turn, why in results.failures().items())
    return "\n\n".join(
        [
            "# Results",
            "Made by `python -m bench.versus render` from what was measured: edit nothing here. "
            "README.md of `docs/benchmarks` says how to read it.",
            f"Machine: {told_machine}. Client: {facts.get('client')}. "
            f"Code: {', '.join(facts.get('commits', []))}.",
            quiet(results),
            "## Goals",
            goal_table(results),
            "## Goals, round by round",
            round_table(results),
            *([plots] if plots else []),
            "## Every figure",
            figure_table(results),
            "## What else these turns measured",
            "The median, with the least and the most, and its ratio to Kafka.",
            detail_table(results),
            "## The limit of the machine",
            limit_table(facts),
            "## Peers and their settings",
            peer_list(facts),
            "## How they were warmed up",
            warm_list(results),
            "## Where the time went",
            "What a warm-up took is in the first turn of its cluster. *load*: between the word "
            '"go" and the last answer; *drivers*: until they were ready, with what they write '
            "first; *calm*: until the other clusters were idle; *fill* counts what it wrote as "
            "load, too.",
            minutes_table(results),
            "## Turns that failed and were not taken again",
            failures or "None.",
            "## Commands",
            f"```\n{commands}\n```\n",
        ]
    )


def all_figures(results: Results) -> dict[str, Any]:
    """Return everything that was measured, for programs."""
    return {
        "facts": results.facts(),
        "warm_ups": results.warm_ups(),
        "workloads": [
            {
                **row.facts(),
                "rounds": {
                    variant: {str(at): one for at, one in results.rounds(row.name, variant).items()}
                    for variant in row.variants
                },
            }
            for row in WORKLOADS.values()
            if any(results.rounds(row.name, variant) for variant in row.variants)
        ],
    }


def render(results: Results, folder: Path, *, has_plots: bool = True) -> None:
    """Write the page, the JSON and the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "results.json", all_figures(results))
    if has_plots:
        _draw(results, folder)
    (folder / "results.md").write_text(page(results, plot_list(folder)), encoding="utf-8")
    say(f"written: {folder}/results.md")


def _draw(results: Results, folder: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        say("there is no matplotlib, so there are no plots: make bench-install")
        return
    from bench.versus.plots import draw

    draw(results, folder)
