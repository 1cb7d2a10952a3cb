"""The clickstream pipeline from end to end: makes clicks, runs the pipeline twice, checks, draws.

    python docs/pipelines/clickstream.py DIR

Starts a node of its own, writes made-up clicks of a web shop (some twice, some late, some broken),
runs `clickstream.toml` on local Spark, writes more clicks, among them some that come too late, and
runs it again, as after a restart. Then it counts everything itself, in the most simple way, and
compares: the lake must have each click once, the topic of views the right counts, the dead letters
each broken record with its reason. At last DIR/report.html has charts of the results.

It exits with 1 and a sentence if anything is not as it should be.
"""

from __future__ import annotations

import calendar
import json
import random
import time
from collections import Counter
from typing import Any

from charts import bars, lines, write_page
from stage import Stage, as_time, directory_named, say, staged

CLICKS = 6000
MINUTES = 30
BEGIN_S = 1_760_000_400  # 2025-10-09 09:00 UTC
PAGES = ("home", "search", "basket", "checkout", "help")
WEIGHTS = (40, 30, 15, 5, 10)
BROKEN = (b"{not json", b'{"id": "x1", "page": "home"}', b'"just a text"')
# Windows of so many last minutes may still be open: the watermark has not passed them.
OPEN_MINUTES = 4


def make_clicks(dice: random.Random) -> list[dict[str, Any]]:
    """Return clicks in the order in which they arrive: nearly by time, some up to a minute late."""
    clicks = []
    for number in range(CLICKS):
        second = number * MINUTES * 60 / CLICKS
        late = dice.uniform(0, 60) if dice.random() < 0.05 else 0.0
        clicks.append(
            {
                "id": f"c{number}",
                "user": f"u{dice.randrange(400)}",
                "page": dice.choices(PAGES, WEIGHTS)[0],
                "second": max(0.0, second - late),
            }
        )
    return clicks


def as_json(click: dict[str, Any]) -> bytes:
    told = {name: click[name] for name in ("id", "user", "page")}
    return json.dumps({**told, "at": as_time(BEGIN_S + click["second"])}).encode()


def write(stage: Stage, clicks: list[dict[str, Any]], dice: random.Random) -> int:
    """Send clicks, some of them twice, with broken records between; return how many of those."""
    broken = 0
    records = []
    for number, click in enumerate(clicks):
        records += [(click["user"], as_json(click))] * (2 if dice.random() < 0.05 else 1)
        if number % 500 == 250:
            records.append((click["user"], BROKEN[broken % len(BROKEN)]))
            broken += 1
    stage.send("clicks", records)
    return broken


Views = Counter[tuple[str, int]]


def problems_of(
    stage: Stage, spark: Any, clicks: list[dict[str, Any]], broken: int
) -> tuple[list[str], Views]:
    problems = []
    rows = spark.read.parquet(str(stage.out / "lake")).select("id").collect()
    lake = Counter(row.id for row in rows)
    wanted = {one["id"] for one in clicks}
    if lake.keys() != wanted or set(lake.values()) != {1}:
        twice = sum(count > 1 for count in lake.values())
        problems.append(
            f"The lake has {len(lake)} clicks of {len(wanted)}, and {twice} of them twice."
        )
    views: Views = Counter()
    for row in stage.read_topic(spark, "page-views"):
        told = json.loads(bytes(row.value))
        began = calendar.timegm(time.strptime(told["start"][:19], "%Y-%m-%dT%H:%M:%S"))
        views[told["page"], (began - BEGIN_S) // 60] = told["views"]
    right = Counter((one["page"], int(one["second"] // 60)) for one in clicks)
    wrong = [place for place, count in views.items() if right.get(place) != count]
    if wrong:
        problems.append(f"{len(wrong)} windows have a wrong count, one is {wrong[0]}.")
    # A window is told when it is over: the last ones stay open, as the watermark says.
    missing = {minute for _, minute in right.keys() - views.keys()}
    if missing and min(missing) < MINUTES - OPEN_MINUTES:
        problems.append(f"The window of minute {min(missing)} is missing.")
    reasons = stage.reasons(spark, "clicks-dead")
    if len(reasons) != broken or not all(reasons):
        problems.append(f"{len(reasons)} dead letters for {broken} broken records.")
    return problems, views


def write_report(stage: Stage, views: Views, clicks: int, broken: int) -> None:
    last = max((minute for _, minute in views), default=0)
    drawn = {
        page: [(float(minute), float(views[page, minute])) for minute in range(last + 1)]
        for page in PAGES
    }
    totals = {page: sum(y for _, y in line) for page, line in drawn.items()}
    write_page(
        stage.out / "report.html",
        "Clickstream",
        f"<p>{clicks} clicks, {broken} records that were broken. A minute is counted when it is "
        f"over: {clicks - sum(totals.values()):.0f} clicks are in minutes that are still open.</p>",
        lines("Views by page", "minute", drawn),
        bars("Views by page in all", totals),
    )


def main() -> None:
    dice = random.Random(7)
    topics = {"clicks": 3, "clicks-dead": 1, "page-views": 1}
    with staged("clickstream", directory_named(), topics) as stage:
        clicks = make_clicks(dice)
        half = len(clicks) // 2
        broken = write(stage, clicks[:half], dice)
        say(f"{half} clicks are written; the pipeline runs")
        stage.run()
        # An hour late: two minutes are waited for, so nobody counts these.
        too_late = [
            {"id": f"late{n}", "user": "u1", "page": "home", "second": -3600.0} for n in range(5)
        ]
        broken += write(stage, clicks[half:] + too_late, random.Random(8))
        say(f"{len(clicks) - half} more, and 5 that are too late; the pipeline goes on")
        stage.run()
        with stage.spark() as spark:
            problems, views = problems_of(stage, spark, clicks, broken)
        write_report(stage, views, len(clicks), broken)
        stage.finish(
            problems,
            f"{len(clicks)} clicks once in the lake, {len(views)} windows right, "
            f"{broken} dead letters",
        )


if __name__ == "__main__":
    main()
