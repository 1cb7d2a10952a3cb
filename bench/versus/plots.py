"""Plots of a run, as PNG and SVG: ratios, latencies by rate, warm-up curves.

Not here: the table (`render.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from bench.versus.bars import bars
from bench.versus.figures import Summary, summary_of
from bench.versus.results import Results, fell_behind

mpl.use("Agg")
# So that the same figures give the same file.
mpl.rcParams["svg.hashsalt"] = "ottla"

from matplotlib import pyplot  # noqa: E402  (after the choice of what draws)
from matplotlib.ticker import (  # noqa: E402
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

COLOURS: Final = {
    "ottla-pagecache": "#3b6fb6",
    "ottla-fsync": "#1d3f73",
    "kafka": "#d9822b",
    "kafka-flush": "#9a5510",
    "nats": "#3a9a5b",
    "nats-sync": "#1f5c35",
}
_RATES: Final = (100, 300, 1000, 10_000)
# Who drew it and under which terms: of no use to who looks at it, and full of addresses.
_ABOUT: Final = re.compile(r"<!DOCTYPE.*?>\n?| *<metadata>.*?</metadata>\n?", re.DOTALL)
_BLANKS: Final = re.compile(r"[ \t]+$", re.MULTILINE)


def _save(figure: Any, folder: Path, name: str) -> None:
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=110)
    drawn = StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    tidy = _BLANKS.sub("", _ABOUT.sub("", drawn.getvalue()))
    (folder / f"{name}.svg").write_text(tidy, encoding="utf-8")
    pyplot.close(figure)


def ratios(results: Results, folder: Path) -> None:
    """Draw Ottla as a multiple of Kafka; what is right of the line is better than Kafka."""
    rows = list(reversed(bars(results)))
    if not rows:
        return
    figure, axes = pyplot.subplots(figsize=(11, 1.4 + 0.32 * len(rows)))
    shown = axes.barh(
        [one.name for one in rows],
        # From 1 on, to either side.
        [one.end - 1 for one in rows],
        left=1,
        color=[COLOURS[one.variant] for one in rows],
    )
    axes.set_xscale("log")
    axes.bar_label(shown, labels=[one.text for one in rows], padding=4, fontsize=8)
    # Room for the words beside the bars.
    axes.set_xlim(min(0.5, *(one.end / 3 for one in rows)), max(8 * one.end for one in rows))
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(y=0.01)
    axes.axvline(1, color="#333", linewidth=1)
    axes.set_xlabel("times as good as Apache Kafka in the same rounds (median; log scale)")
    axes.tick_params(labelsize=8)
    _save(figure, folder, "ratios")


def _acked(results: Results, variant: str, rate: int, share: str) -> tuple[Summary | None, bool]:
    """Return the time to the acknowledgement, and whether the pace was not kept.

    With a reader beside it where it was not measured without.
    """
    for workload, figure in ((f"ack-{rate}", share), (f"flow-{rate}", f"ack_{share}")):
        found = summary_of(list(results.values(workload, variant, figure).values()))
        if found is not None:
            return found, fell_behind(results, workload, variant)
    return None, False


def latencies(results: Results, folder: Path) -> None:
    """Draw the time to the acknowledgement by rate, p50 and p99."""
    figure, both = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    is_empty = True
    for axes, share in zip(both, ("p50_ms", "p99_ms"), strict=True):
        for variant, colour in COLOURS.items():
            points, behind = list[tuple[int, float]](), list[tuple[int, float]]()
            for rate in _RATES:
                found, is_behind = _acked(results, variant, rate, share)
                if found is not None:
                    points.append((rate, found.median))
                    if is_behind:
                        behind.append(points[-1])
            if points:
                is_empty = False
                axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=variant)
            if behind:
                axes.plot(*zip(*behind, strict=True), "X", color=colour, markersize=11)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(_RATES)
        axes.xaxis.set_minor_locator(NullLocator())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.set_title(f"acks=all, single records: {share.removesuffix('_ms')}")
        axes.set_xlabel("records/s (100 and 10,000: with a reader; a cross: it did not keep up)")
        axes.grid(visible=True, which="major", color="#e4e4e4")
    both[0].set_ylabel("ms from when the record was due")
    if is_empty:
        pyplot.close(figure)
        return
    both[0].legend(fontsize=8)
    _save(figure, folder, "latency")


def warm_ups(results: Results, folder: Path) -> None:
    """Draw how fast each cluster was after how much."""
    found = {name: one["curve"] for name, one in results.warm_ups().items() if one["curve"]}
    if not found:
        return
    figure, axes = pyplot.subplots(figsize=(8, 4.2))
    for name, curve in found.items():
        peer = name.rpartition("-")[0]
        colour = COLOURS["ottla-pagecache" if peer == "ottla" else peer]
        axes.plot(*zip(*curve, strict=True), marker=".", color=colour, label=name, alpha=0.7)
    axes.set_xlabel("GB written so far (1 KB, acks=all, 12 partitions)")
    axes.set_ylabel("MB/s of the last piece")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, color="#e4e4e4")
    axes.legend(fontsize=8)
    _save(figure, folder, "warm-up")


_PLOTS: Final[tuple[Callable[[Results, Path], None], ...]] = (ratios, latencies, warm_ups)


def draw(results: Results, folder: Path) -> None:
    for plot in _PLOTS:
        plot(results, folder)
