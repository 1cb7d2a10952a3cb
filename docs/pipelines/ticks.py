"""The ticks pipeline from end to end: a five-second moving average that slides by one second.

    python docs/pipelines/ticks.py DIR

Starts a node of its own and writes made-up trades of five shares as CSV: prices wander, some trades
arrive up to five seconds late, some lines are broken. `ticks.toml` runs on local Spark, more trades
come, some of them a minute late, and it runs again. Then every average is worked out anew, in the
most simple way, and compared with the topic and with the Parquet files: a window that is told has
the right average of all its trades but those that came too late. DIR/report.html shows the prices.

It exits with 1 and a sentence if anything is not as it should be.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from charts import lines, table, write_page
from stage import Stage, as_time, directory_named, say, staged

BEGIN_S = 1_760_018_400  # 2025-10-09 14:00 UTC
SECONDS = 600
PRICES = {"ALM": 101.0, "BRK": 54.5, "CLD": 230.0, "DNE": 12.25, "EBB": 77.7}
SIZE_S = 5
# Windows that begin in the last seconds may still be open: the watermark has not passed them.
OPEN_S = 25
BROKEN = (b"ALM,not a price,5,2025-10-09T14:00:00Z", b"BRK,-3.0,5,2025-10-09T14:00:00Z", b"")
FAR_LATE_S = 60.0


@dataclass(frozen=True)
class Tick:
    """One trade."""

    symbol: str
    price: float
    size: int
    # Since BEGIN_S, to the millisecond.
    second: float

    def line(self) -> bytes:
        at = as_time(BEGIN_S + self.second)
        return f"{self.symbol},{self.price:.2f},{self.size},{at}".encode()


def make_ticks(dice: random.Random) -> list[Tick]:
    """Return trades in the order in which they arrive."""
    arriving = list[tuple[float, Tick]]()
    for symbol, price in PRICES.items():
        now = 0.0
        while (now := now + dice.expovariate(3.0)) < SECONDS:
            price = max(1.0, price * math.exp(dice.gauss(0, 0.0008)))
            second = round(now, 3)
            late = dice.uniform(0, 5) if dice.random() < 0.05 else 0.0
            tick = Tick(symbol, round(price, 2), dice.randint(1, 500), second)
            arriving.append((now + late, tick))
    return [tick for _, tick in sorted(arriving, key=lambda one: one[0])]


def write(stage: Stage, ticks: list[Tick]) -> int:
    """Send trades, with broken lines between; return how many of those."""
    records, broken = list[tuple[str, bytes]](), 0
    for number, tick in enumerate(ticks):
        records.append((tick.symbol, tick.line()))
        if number % 900 == 450:
            records.append((tick.symbol, BROKEN[broken % len(BROKEN)]))
            broken += 1
    stage.send("ticks", records)
    return broken


# Symbol and first second of a window → average and number of trades.
Averages = dict[tuple[str, int], tuple[float, int]]


def expected(ticks: list[Tick]) -> Averages:
    prices = defaultdict[tuple[str, int], list[float]](list)
    for tick in ticks:
        last = math.floor(tick.second)
        for start in range(last - SIZE_S + 1, last + 1):
            prices[tick.symbol, start].append(tick.price)
    return {place: (sum(found) / len(found), len(found)) for place, found in prices.items()}


def seconds_of(when: datetime) -> int:
    known = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return round(known.timestamp()) - BEGIN_S


def told_in_topic(stage: Stage, spark: Any) -> tuple[Averages, int]:
    """Return the averages of the topic, and how many were told twice with another figure."""
    found, changed = Averages(), 0
    for row in stage.read_topic(spark, "moving-averages"):
        told = json.loads(bytes(row.value))
        start = seconds_of(datetime.fromisoformat(told["start"]))
        place, figures = (told["symbol"], start), (told["average"], told["trades"])
        changed += found.get(place, figures) != figures
        found[place] = figures
    return found, changed


def problems_of(
    stage: Stage, spark: Any, ticks: list[Tick], broken: int
) -> tuple[list[str], Averages]:
    problems = list[str]()
    told, changed = told_in_topic(stage, spark)
    if changed:
        problems.append(f"{changed} windows were told twice and differently.")
    rows = spark.read.parquet(str(stage.out / "averages")).selectExpr(
        "symbol", "unix_seconds(start) as start", "average", "trades"
    )
    kept = [((r.symbol, r.start - BEGIN_S), (r.average, r.trades)) for r in rows.collect()]
    if len(kept) != len(dict(kept)) or dict(kept) != told:
        problems.append(f"The files have {len(kept)} windows, and the topic {len(told)}.")
    right = expected(ticks)
    wrong = [
        place
        for place, (average, trades) in told.items()
        if place not in right
        or right[place][1] != trades
        or not math.isclose(right[place][0], average, rel_tol=1e-9)
    ]
    if wrong:
        problems.append(f"{len(wrong)} averages are wrong, one is {wrong[0]}.")
    missing = [start for _, start in right.keys() - told.keys() if start < SECONDS - OPEN_S]
    if missing:
        problems.append(f"{len(missing)} windows are missing, the first at second {min(missing)}.")
    reasons = stage.reasons(spark, "ticks-dead")
    if len(reasons) != broken or not all(reasons):
        problems.append(f"{len(reasons)} dead letters for {broken} broken lines.")
    return problems, told


def write_report(stage: Stage, ticks: list[Tick], told: Averages, broken: int) -> None:
    parts = [
        f"<p>{len(ticks)} trades, {broken} broken lines, {len(told)} windows of five seconds.</p>"
    ]
    for symbol in sorted(PRICES)[:2]:
        prices = sorted((one.second, one.price) for one in ticks if one.symbol == symbol)
        # The average is known at the end of its window.
        means = sorted((s + SIZE_S, told[n, s][0]) for n, s in told if n == symbol)
        drawn = {"price": prices, "5 s average": [(float(x), y) for x, y in means]}
        parts.append(lines(symbol, "second", drawn))
    rows = list[tuple[object, ...]]()
    for symbol in sorted(PRICES):
        of_it = [figures for (name, _), figures in told.items() if name == symbol]
        low, high = min(a for a, _ in of_it), max(a for a, _ in of_it)
        rows.append((symbol, len(of_it), f"{low:.2f}", f"{high:.2f}"))
    parts.append(table(("share", "windows", "lowest average", "highest"), rows))
    write_page(stage.out / "report.html", "Moving averages", *parts)


def main() -> None:
    dice = random.Random(11)
    topics = {"ticks": 3, "ticks-dead": 1, "moving-averages": 1}
    with staged("ticks", directory_named(), topics) as stage:
        ticks = make_ticks(dice)
        half = len(ticks) // 2
        broken = write(stage, ticks[:half])
        say(f"{half} trades are written; the pipeline runs")
        stage.run()
        # Ten seconds are waited for, so no window counts these.
        long_ago = ticks[half].second - FAR_LATE_S
        too_late = [Tick(symbol, 1000.0, 1, long_ago) for symbol in PRICES]
        broken += write(stage, too_late + ticks[half:])
        say(f"{len(ticks) - half} more, and {len(too_late)} a minute late; the pipeline goes on")
        stage.run()
        with stage.spark() as spark:
            problems, told = problems_of(stage, spark, ticks, broken)
        if told:
            write_report(stage, ticks, told, broken)
        stage.finish(
            problems, f"{len(ticks)} trades, {len(told)} averages right, {broken} dead letters"
        )


if __name__ == "__main__":
    main()
