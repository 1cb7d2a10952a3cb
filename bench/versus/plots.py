"""Plots of a run, as PNG and SVG: ratios, latencies by rate, warm-up curves.

Not here: the table (`render.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from bench.peers.table import VARIANTS
from bench.versus.figures import ratio_of, summary_of
from bench.versus.results import Results
from bench.versus.workloads import WORKLOADS

mpl.use("Agg")
# So that the same figures give the same file.
mpl.rcParams["svg.hashsalt"] = "ottla"

from matplotlib import pyplot  # noqa: E402  (after the choice of what draws)
from matplotlib.ticker import FuncFormatter  # noqa: E402

COLOURS: Final = {
    "ottla-pagecache": "#3b6fb6",
    "ottla-fsync": "#1d3f73",
    "kafka": "#d9822b",
    "kafka-flush": "#9a5510",
    "nats": "#3a9a5b",
    "nats-sync": "#1f5c35",
}
_RATES: Final = (100, 300, 1000, 10_000)


def _save(figure: Any, folder: Path, name: str) -> None:
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=110)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def ratios(results: Results, folder: Path) -> None:
    """Draw Ottla as a multiple of Kafka; what is right of the line is better than Kafka."""
    rows = list[tuple[str, float, str]]()
    for row in WORKLOADS.values():
        for variant in ("ottla-pagecache", "ottla-fsync"):
            if variant not in row.variants:
                continue
            wanted = VARIANTS[variant].baseline
            baseline = wanted if wanted in row.variants else "kafka"
            ours = results.values(row.name, variant, row.figure)
            ratio = ratio_of(ours, results.values(row.name, baseline, row.figure))
            if ratio is not None and ratio.median > 0:
                better = ratio.median if row.better == "more" else 1 / ratio.median
                rows.append((f"{row.title} ({VARIANTS[variant].durability})", better, variant))
    if not rows:
        return
    figure, axes = pyplot.subplots(figsize=(10, 1.2 + 0.32 * len(rows)))
    names = [name for name, _, _ in reversed(rows)]
    # From 1 on, to either side.
    widths = [better - 1 for _, better, _ in reversed(rows)]
    axes.barh(names, widths, left=1, color=[COLOURS[variant] for _, _, variant in reversed(rows)])
    axes.set_xscale("log")
    for axis in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        axis(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.margins(y=0.01)
    axes.axvline(1, color="#333", linewidth=1)
    axes.set_xlabel("times as good as Apache Kafka in the same rounds (median; log scale)")
    axes.tick_params(labelsize=8)
    _save(figure, folder, "ratios")


def latencies(results: Results, folder: Path) -> None:
    """Draw the time to the acknowledgement by rate, p50 and p99."""
    figure, both = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    is_empty = True
    for axes, share in zip(both, ("p50_ms", "p99_ms"), strict=True):
        for variant, colour in COLOURS.items():
            points = list[tuple[int, float]]()
            for rate in _RATES:
                found = summary_of(list(results.values(f"ack-{rate}", variant, share).values()))
                if found is not None:
                    points.append((rate, found.median))
            if points:
                is_empty = False
                axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=variant)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"acks=all, single records: {share.removesuffix('_ms')}")
        axes.set_xlabel("records/s")
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
