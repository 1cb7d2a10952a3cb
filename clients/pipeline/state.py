"""The step `state`: a function of the pipeline that remembers something for each key.

    def step(key, rows, state, watermark_ms):
        return results, state, wake_ms

`key` is a tuple in the order of `by`; `rows` are dicts, by time; `state` is a dict with the columns
of `state`, or None for a key that is new. It returns rows as dicts with the columns of `schema`,
the state to keep (None: forget the key), and when to be called again at the latest, in milliseconds
of event time (None: not before a row comes). It is called with no rows when that time has passed.

M1  rows older than the watermark are left out before the function sees them: Spark does that
M2  `wake_ms` is reached when the watermark has passed it; one that has passed already is moved to
    just after the watermark
M3  a function is given plain Python values; times are in UTC

Not here: loading the function (`functions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

StepFunction = Callable[
    [tuple[Any, ...], list[dict[str, Any]], dict[str, Any] | None, int],
    tuple[Sequence[dict[str, Any]], dict[str, Any] | None, int | None],
]


class StatefulStep:
    """What Spark calls for each key of a batch; sent to tasks."""

    def __init__(
        self, function: StepFunction, time: str, state_names: list[str], names: list[str]
    ) -> None:
        self._function: Final = function
        self._time: Final = time
        self._state_names: Final = state_names
        self._names: Final = names

    def __call__(self, key: tuple[Any, ...], frames: Any, group: Any) -> Iterator[Any]:
        import pandas as pd

        rows = [] if group.hasTimedOut else self._rows(frames)
        kept = dict(zip(self._state_names, group.get, strict=True)) if group.exists else None
        watermark_ms = group.getCurrentWatermarkMs()
        results, state, wake_ms = self._function(
            tuple(_plain(one) for one in key), rows, kept, watermark_ms
        )
        if state is None:
            group.remove()
        else:
            group.update(tuple(state[name] for name in self._state_names))
            if wake_ms is not None:
                group.setTimeoutTimestamp(max(int(wake_ms), watermark_ms + 1))
        if results:
            columns = {name: [one[name] for one in results] for name in self._names}
            yield pd.DataFrame(columns, dtype=object)

    def _rows(self, frames: Any) -> list[dict[str, Any]]:
        rows = list[dict[str, Any]]()
        for frame in frames:
            names = list(frame.columns)
            for values in frame.itertuples(index=False, name=None):
                rows.append({n: _plain(one) for n, one in zip(names, values, strict=True)})
        rows.sort(key=lambda row: row[self._time])
        return rows


def _plain(value: Any) -> Any:
    """Return what Python people expect: no types of pandas or numpy, and times in UTC (M3)."""
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    # What pandas has for "nothing" is not equal to itself.
    return None if value is None or (isinstance(value, float) and value != value) else value


def with_state(rows: Any, part: Any, function: StepFunction) -> Any:
    """Return the table of what the function makes of the rows of each key."""
    from pyspark.sql.types import StructType

    state, schema = StructType.fromDDL(part.text("state")), StructType.fromDDL(part.text("schema"))
    step = StatefulStep(function, part.text("time"), state.names, schema.names)
    grouped = rows.groupBy(*part.names("by"))
    return grouped.applyInPandasWithState(step, schema, state, "append", "EventTimeTimeout")
