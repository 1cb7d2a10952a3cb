"""The television pipeline from end to end: minutes per customer and channel, by state and time.

    python docs/pipelines/viewing.py DIR

Starts a node of its own and writes what made-up television boxes tell of one evening: each minute
what is shown, at once when somebody zaps, and "off" at the end, unless the box is pulled from the
wall. Some events are up to a minute late, some twice, some broken. `viewing.toml` runs on local
Spark in the middle of the evening and again at its end; a session that is open at the first run
goes on in the second. Then every session is worked out anew from what the boxes really did, and
compared. DIR/report.html shows who watched what.

It exits with 1 and a sentence if anything is not as it should be.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from charts import bars, lines, table, write_page
from stage import Stage, as_time, directory_named, say, staged

BEGIN_S = 1_760_032_800  # 2025-10-09 18:00 UTC
CUSTOMERS = 120
EVENING_S = 3 * 3600
CHANNELS = ("news", "films", "sport", "music", "nature", "children")
WEIGHTS = (25, 30, 20, 8, 12, 5)
MINUTE_S = 60
BROKEN = (b"{no", b'{"customer": "c1"}', b'{"customer":"c1","kind":"dance","at":"2025-10-09"}')
# From a silent box: its session is over five minutes after its last word.
AFTER_S = 3600


@dataclass(frozen=True)
class Session:
    """Somebody stayed with a channel for so long."""

    customer: str
    channel: str
    began_s: int
    ended_s: int
    ended_by: str

    @property
    def minutes(self) -> float:
        return (self.ended_s - self.began_s) / 60


@dataclass(frozen=True)
class Event:
    """What a box tells."""

    customer: str
    channel: str
    kind: str
    second: int

    def value(self) -> bytes:
        told = {"customer": self.customer, "channel": self.channel, "kind": self.kind}
        return json.dumps({**told, "at": as_time(BEGIN_S + self.second)}).encode()


def an_evening(customer: str, dice: random.Random) -> tuple[list[Event], list[Session]]:
    """Return what the box of one customer tells, and what was watched."""
    events, sessions = list[Event](), list[Session]()
    now = dice.randrange(0, EVENING_S // 2)
    while now < EVENING_S - 600:
        channel = dice.choices(CHANNELS, WEIGHTS)[0]
        # Most people look into several channels before they stay with one.
        began, lasts = now, dice.choice((45, 130, 400, 1800, 3600))
        end = min(began + dice.randrange(lasts // 2, lasts + 1), EVENING_S)
        events += [Event(customer, channel, "watch", at) for at in range(began, end, MINUTE_S)]
        ending = dice.random()
        if ending < 0.6:
            other = dice.choice([one for one in CHANNELS if one != channel])
            sessions.append(Session(customer, channel, began, end, "zap"))
            events.append(Event(customer, other, "watch", end))
            now, quiet_s = end, dice.randrange(10, 55)
            events.append(Event(customer, other, "off", end + quiet_s))
            sessions.append(Session(customer, other, end, end + quiet_s, "off"))
            now = end + quiet_s + dice.randrange(1, 30)
        elif ending < 0.8:
            sessions.append(Session(customer, channel, began, end, "off"))
            events.append(Event(customer, channel, "off", end))
            now = end + dice.randrange(600, 3000)
        else:
            # Pulled from the wall: the last word is the last full minute.
            last = events[-1].second
            sessions.append(Session(customer, channel, began, last, "silence"))
            now = end + dice.randrange(900, 3000)
    return events, sessions


def make_evening(dice: random.Random) -> tuple[list[Event], list[Session]]:
    """Return all events in the order in which they arrive, and all sessions."""
    arriving, sessions = list[tuple[float, Event]](), list[Session]()
    for number in range(CUSTOMERS):
        events, watched = an_evening(f"c{number}", dice)
        sessions += watched
        for event in events:
            late = dice.uniform(0, 60) if dice.random() < 0.1 else 0.0
            arriving += [(event.second + late, event)] * (2 if dice.random() < 0.02 else 1)
    return [event for _, event in sorted(arriving, key=lambda one: one[0])], sessions


def write(stage: Stage, events: list[Event]) -> int:
    records, broken = list[tuple[str, bytes]](), 0
    for number, event in enumerate(events):
        records.append((event.customer, event.value()))
        if number % 1500 == 700:
            records.append((event.customer, BROKEN[broken % len(BROKEN)]))
            broken += 1
    stage.send("viewing", records)
    return broken


def read_sessions(rows: list[dict[str, Any]]) -> Counter[Session]:
    found = Counter[Session]()
    for row in rows:
        began = datetime.fromisoformat(str(row["began"]))
        began = began if began.tzinfo is not None else began.replace(tzinfo=UTC)
        began_s = round(began.timestamp()) - BEGIN_S
        ended_s = began_s + round(row["minutes"] * 60)
        found[Session(row["customer"], row["channel"], began_s, ended_s, row["ended_by"])] += 1
    return found


def problems_of(
    stage: Stage, spark: Any, sessions: list[Session], broken: int
) -> tuple[list[str], list[Session]]:
    problems = list[str]()
    right = Counter(sessions)
    files = spark.read.parquet(str(stage.out / "sessions")).collect()
    kept = read_sessions([row.asDict() for row in files])
    topic = stage.read_topic(spark, "viewing-sessions")
    told = read_sessions([json.loads(bytes(row.value)) for row in topic])
    for name, found in (("files", kept), ("topic", told)):
        missing, more = right - found, found - right
        if missing or more:
            example = next(iter(missing or more))
            problems.append(
                f"The {name} lack {missing.total()} sessions of {right.total()} and have "
                f"{more.total()} others; one is {example}."
            )
    reasons = stage.reasons(spark, "viewing-dead")
    if len(reasons) != broken or not all(reasons):
        problems.append(f"{len(reasons)} dead letters for {broken} broken events.")
    return problems, list(kept.elements())


def write_report(stage: Stage, sessions: list[Session]) -> None:
    minutes, by_customer = defaultdict[str, float](float), defaultdict[str, float](float)
    watching = {channel: [0] * (EVENING_S // 60 + 1) for channel in CHANNELS}
    for one in sessions:
        minutes[one.channel] += one.minutes
        by_customer[f"{one.customer}, {one.channel}"] += one.minutes
        for minute in range(one.began_s // 60, min(one.ended_s, EVENING_S) // 60 + 1):
            watching[one.channel][minute] += 1
    drawn = {
        channel: [(float(x), float(y)) for x, y in enumerate(line)]
        for channel, line in watching.items()
    }
    most = sorted(by_customer.items(), key=lambda one: -one[1])[:10]
    write_page(
        stage.out / "report.html",
        "Television",
        f"<p>{CUSTOMERS} customers, {len(sessions)} sessions.</p>",
        lines("Who watches what", "minute of the evening", drawn),
        bars("Minutes by channel", dict(sorted(minutes.items(), key=lambda one: -one[1]))),
        "<h2>Who stayed longest with a channel</h2>",
        table(("customer, channel", "minutes"), [(who, f"{m:.0f}") for who, m in most]),
    )


def main() -> None:
    topics = {"viewing": 3, "viewing-dead": 1, "viewing-sessions": 1}
    with staged("viewing", directory_named(), topics) as stage:
        events, sessions = make_evening(random.Random(23))
        half = len(events) // 2
        broken = write(stage, events[:half])
        say(f"{half} events are written; the pipeline runs")
        stage.run()
        # Five of an hour ago, which nobody waits for; and, at the end, one of much later, so that
        # the watermark passes everything.
        early = events[half].second - AFTER_S
        too_late = [Event(f"c{n}", "news", "watch", early) for n in range(5)]
        last = max(one.second for one in events) + AFTER_S
        broken += write(stage, too_late + events[half:])
        stage.send("viewing", [("nobody", Event("nobody", "", "off", last).value())])
        say(f"{len(events) - half} more, and 5 an hour late; the pipeline goes on")
        stage.run()
        with stage.spark() as spark:
            problems, found = problems_of(stage, spark, sessions, broken)
        write_report(stage, found)
        stage.finish(
            problems,
            f"{len(events)} events, {len(sessions)} sessions right, {broken} dead letters",
        )


if __name__ == "__main__":
    main()
