"""The function with state of the television pipeline: the same sessions, however events arrive."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

FILE = Path(__file__).resolve().parents[4] / "docs" / "pipelines" / "viewing_sessions.py"
DELAY_MS = 120_000
FAR_MS = 10**9


def _function() -> Any:
    spec = importlib.util.spec_from_file_location("viewing_sessions", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.sessions


SESSIONS = _function()
Event = tuple[int, str, str]


def _row(event: Event) -> dict[str, Any]:
    at_ms, kind, channel = event
    return {"at": datetime.fromtimestamp(at_ms / 1000, UTC), "kind": kind, "channel": channel}


def _all(batches: list[list[Event]]) -> list[tuple[str, float, str]]:
    """Run batches as Spark does: late rows left out, the watermark moved after each batch."""
    found, state, watermark_ms, wake_ms = list[dict[str, Any]](), None, 0, None
    for batch in [*batches, [], []]:
        rows = [_row(event) for event in batch if event[0] > watermark_ms]
        is_due = wake_ms is not None and wake_ms < watermark_ms
        if rows or is_due:
            done, state, wake_ms = SESSIONS(("c1",), rows, state, watermark_ms)
            found += done
        latest = max((event[0] for event in batch), default=FAR_MS)
        watermark_ms = max(watermark_ms, latest - DELAY_MS)
    assert state is None, "everything is over, and it still remembers"
    return [(one["channel"], one["minutes"], one["ended_by"]) for one in found]


def test_zapping_off_and_silence_end_sessions() -> None:
    minute = 60_000
    events: list[Event] = [
        (1 * minute, "watch", "news"),
        (2 * minute, "watch", "news"),
        (4 * minute, "watch", "films"),
        (5 * minute, "off", "films"),
        (6 * minute, "watch", "sport"),
        (8 * minute, "watch", "sport"),
        (14 * minute, "watch", "sport"),
    ]
    assert _all([events]) == [
        ("news", 3.0, "zap"),
        ("films", 1.0, "off"),
        ("sport", 2.0, "silence"),
        ("sport", 0.0, "silence"),
    ]


EVENTS = st.lists(
    st.tuples(
        st.integers(1, 3_600).map(lambda second: second * 1000),
        st.sampled_from(["watch", "watch", "watch", "off"]),
        st.sampled_from(["news", "films", "sport"]),
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda event: event[0],
)


@given(EVENTS, st.data())
def test_the_sessions_do_not_depend_on_how_a_stream_is_cut(
    events: list[Event], data: st.DataObject
) -> None:
    in_order = sorted(events)
    whole = _all([in_order])
    # In order but for neighbours less than the delay apart, cut anywhere.
    jittered = sorted(in_order, key=lambda e: e[0] + data.draw(st.integers(0, DELAY_MS - 1001)))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(events)), max_size=5)))
    edges = [0, *cuts, len(events)]
    batches = [jittered[a:b] for a, b in pairwise(edges) if b > a]
    assert _all(batches) == whole
