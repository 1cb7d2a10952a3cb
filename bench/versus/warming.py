"""Warms a cluster up, and keeps the curve: how fast it was after how much.

Compilers of the JVM are at work for gigabytes; memory that was never touched is dear once. What is
written here is thrown away, and read once; single records are sent as well, so that this path was
gone too.

Not here: what is measured afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bench.measure import say
from bench.versus.results import Figures
from bench.versus.stage import Stage
from bench.versus.turns import TRAFFIC_S, consume, pace, produce
from bench.versus.workloads import WORKLOADS, Workload

# So slow that a system that was just started keeps up.
_SINGLE_RATE: Final = 600
_SINGLES: Final = 3000
_TURNS_MAX: Final = 200


def warm_up(stage: Stage, gigabytes: float) -> Figures:
    """Return the curve: gigabytes written so far, and the speed of the last piece."""
    curve = list[list[float]]()
    row = WORKLOADS["produce-1kb"]
    if stage.variant.speaks_kafka:
        done = 0.0
        for _ in range(_TURNS_MAX):
            if done >= gigabytes:
                break
            figures = produce(stage, row)
            # Who is slow is not handed all of a piece.
            done += figures["mb_per_s"] * figures["seconds"] / 1e3
            curve.append([round(done, 3), figures["mb_per_s"]])
        consume(stage, replace(WORKLOADS["consume-warm"], records=100_000))
    pace(stage, replace(WORKLOADS["ack-1000"], records=_SINGLES, rate=_SINGLE_RATE))
    told = ", ".join(f"{speed:.0f}" for _, speed in curve)
    say(f"warmed up {stage.peer.name}{f': {told} MB/s' if told else ''}")
    return {"how": _how(stage, row), "curve": curve}


def _how(stage: Stage, row: Workload) -> str:
    if not stage.variant.speaks_kafka:
        return f"{_SINGLES:,} single records"
    return (
        f"1 KB, acks=all, 12 partitions, {stage.variant.name}, pieces of "
        f"{row.payload_bytes / 1e6:.0f} MB or {TRAFFIC_S:.0f} s; then 100,000 records read twice, "
        f"{_SINGLES:,} single records"
    )
