"""What `viewing.toml` remembers of each customer: which channel, since when, until when.

Events may arrive in any order; they wait in the state until the watermark has passed them, and are
then taken by their time. So the result does not depend on how Spark cuts a stream into batches.

Not here: how it is called (`clients/pipeline/state.py`).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

# A box that says nothing for so long is off; it was on until its last word.
SILENCE_MS = 5 * 60_000
_NOTHING = {"channel": None, "began_ms": 0, "last_ms": 0, "waiting": "[]"}


def sessions(
    key: tuple[Any, ...],
    rows: list[dict[str, Any]],
    state: dict[str, Any] | None,
    watermark_ms: int,
) -> tuple[list[dict[str, Any]], dict[str, Any] | None, int | None]:
    """Return the sessions that are over, what to remember, and when to look again."""
    now = dict(state or _NOTHING)
    waiting = [tuple(one) for one in json.loads(now["waiting"])]
    waiting += [(round(r["at"].timestamp() * 1000), r["kind"], r["channel"] or "") for r in rows]
    waiting.sort()
    ripe = [one for one in waiting if one[0] <= watermark_ms]
    done = list[dict[str, Any]]()

    def end(why: str, at_ms: int) -> None:
        minutes = (at_ms - now["began_ms"]) / 60_000
        began = datetime.fromtimestamp(now["began_ms"] / 1000, UTC)
        found = {"customer": key[0], "channel": now["channel"], "began": began}
        done.append({**found, "minutes": minutes, "ended_by": why})
        now["channel"] = None

    for at_ms, kind, channel in ripe:
        if now["channel"] is not None and at_ms - now["last_ms"] > SILENCE_MS:
            end("silence", now["last_ms"])
        if now["channel"] is not None and (kind == "off" or channel != now["channel"]):
            end("off" if kind == "off" else "zap", at_ms)
        if kind == "watch" and now["channel"] is None:
            now["channel"], now["began_ms"] = channel, at_ms
        now["last_ms"] = at_ms
    waiting = waiting[len(ripe) :]
    if now["channel"] is not None and watermark_ms - now["last_ms"] > SILENCE_MS:
        end("silence", now["last_ms"])
    if now["channel"] is None and not waiting:
        return done, None, None
    times = [at_ms for at_ms, _, _ in waiting[:1]]
    if now["channel"] is not None:
        times.append(now["last_ms"] + SILENCE_MS + 1)
    return done, {**now, "waiting": json.dumps(waiting)}, min(times)
