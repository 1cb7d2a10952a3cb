"""The text that Prometheus reads, made of a node's readings.

A node with thousands of partitions has tens of thousands of lines to tell. They are written in
small parts, and requests of clients are served between two parts.

X1  every line belongs to a row of the table, and stands below that row's HELP and TYPE
X2  others are let in after each millisecond of work, looked at every `PART_LINES` readings: one
    that is slow to make costs its own time, and not that of many others

Not here: HTTP.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.node.metric_table import METRICS, MetricRow
from ottla.node.metrics import Histogram, Metrics
from ottla.proto.errors import InvariantError

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PART_LINES: Final = 20
WORK_S: Final = 0.001
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


async def exposition(metrics: Metrics) -> bytes:
    """Return everything that the node can tell now, as text of Prometheus's format."""
    text, now_s = _Text(), asyncio.get_running_loop().time
    number, due_s = 0, now_s() + WORK_S
    for source in metrics.sources():
        for row, value, labels in source:
            text.add(row, value, labels)
            number += 1
            if number % PART_LINES == 0 and now_s() >= due_s:
                await asyncio.sleep(0)
                due_s = now_s() + WORK_S
    return text.whole()


class _Text:
    """The lines so far, below the names of their metrics."""

    __slots__ = ("_lines", "_pairs")

    def __init__(self) -> None:
        self._lines: Final[dict[str, list[str]]] = {row.name: [] for row in METRICS}
        # The same few labels come again for each metric of a topic or partition.
        self._pairs: Final[dict[tuple[tuple[str, ...], tuple[str, ...]], str]] = {}

    def add(self, row: MetricRow, value: float | Histogram, labels: tuple[str, ...]) -> None:
        lines = self._lines.get(row.name)
        if lines is None:
            raise InvariantError(f"a metric has a row (name={row.name!r})")
        key = (row.labels, labels)
        pairs = self._pairs.get(key)
        if pairs is None:
            pairs = self._pairs[key] = _pairs(row.labels, labels)
        if isinstance(value, Histogram):
            _add_histogram(lines, row.name, pairs, value)
        elif pairs:
            lines.append(f"{row.name}{{{pairs}}} {value}\n")
        else:
            lines.append(f"{row.name} {value}\n")

    def whole(self) -> bytes:
        lines = self._lines
        parts = (_head(row) + "".join(lines[row.name]) for row in METRICS if lines[row.name])
        return "".join(parts).encode()


def _head(row: MetricRow) -> str:
    told = row.doc.replace("\\", "\\\\")
    return f"# HELP {row.name} {told}\n# TYPE {row.name} {row.kind}\n"


def _pairs(names: tuple[str, ...], labels: tuple[str, ...]) -> str:
    return ",".join(
        f'{name}="{label.translate(_ESCAPES)}"'
        # There may be no labels: then it is the sum over all of them.
        for name, label in zip(names, labels, strict=False)
    )


def _add_histogram(lines: list[str], name: str, pairs: str, histogram: Histogram) -> None:
    before = f"{pairs}," if pairs else ""
    braced = f"{{{pairs}}}" if pairs else ""
    count = 0
    for bound, here in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        count += here
        lines.append(f'{name}_bucket{{{before}le="{bound}"}} {count}\n')
    lines.append(f"{name}_sum{braced} {histogram.sum}\n")
    lines.append(f"{name}_count{braced} {count}\n")
