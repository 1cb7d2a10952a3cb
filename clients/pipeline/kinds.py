"""Which kinds of sources, steps and sinks there are, and the keys of each: tables, and no code.

Key → type; a key that ends with a star must be there. `CHOICES` says which words a key may have.

Not here: reading a file (`declaration.py`), what a kind does (`tables.py`, `sinks.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Rows = Mapping[str, type]

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

PIPELINE: Final[Rows] = {
    "name*": str,
    "checkpoint*": str,
    "trigger": str,
    "bootstrap": str,
    # Of topics, those of dead letters too, unless a sink says otherwise.
    "guarantee": str,
}

SOURCES: Final[Mapping[str, Rows]] = {
    "topic": {"topic*": str, "starting": str, "max_per_batch": int, "options": dict},
    "json": {"path*": str, "schema*": str},
    "csv": {"path*": str, "schema*": str, "options": dict},
    "parquet": {"path*": str, "schema*": str},
    # Read anew for each batch, to be joined with.
    "table": {"path*": str, "format*": str, "schema*": str, "options": dict},
}

# Of every step that reads the values of records.
_PARSING: Final[Rows] = {"from*": str, "check": str, "dead_letters": str}

STEPS: Final[Mapping[str, Rows]] = {
    "parse_json": {**_PARSING, "schema*": str},
    "parse_csv": {**_PARSING, "schema*": str, "separator": str},
    "parse_avro": {**_PARSING, "schema_file*": str, "framing": str},
    "filter": {"from*": str, "where*": str},
    "sql": {"sql*": str},
    "python": {"from*": str, "function*": str},
    "join": {"from*": str, "with*": str, "on*": list, "how": str},
    "window": {
        "from*": str,
        "time*": str,
        "size*": str,
        "slide": str,
        "watermark": str,
        "by": list,
        "select*": list,
    },
    "session": {
        "from*": str,
        "time*": str,
        "gap*": str,
        "watermark": str,
        "by*": list,
        "select*": list,
    },
    "state": {
        "from*": str,
        "time*": str,
        "watermark": str,
        "by*": list,
        "function*": str,
        "state*": str,
        "schema*": str,
    },
    "deduplicate": {"from*": str, "keys*": list, "time*": str, "watermark": str},
}

SINKS: Final[Mapping[str, Rows]] = {
    "topic": {
        "from*": str,
        "topic*": str,
        "key": str,
        "value": str,
        "mode": str,
        "guarantee": str,
        "options": dict,
    },
    "parquet": {"from*": str, "path*": str, "partition_by": list, "time": str, "every": str},
    "delta": {"from*": str, "path*": str, "partition_by": list, "time": str, "every": str},
    "jdbc": {"from*": str, "url*": str, "table*": str, "batch_column": str, "options": dict},
    "console": {"from*": str, "mode": str, "rows": int},
}

# Where (pipeline, sources, steps, sinks) and key → what it may be.
CHOICES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("pipeline", "guarantee"): (EXACTLY_ONCE, AT_LEAST_ONCE),
    ("sinks", "guarantee"): (EXACTLY_ONCE, AT_LEAST_ONCE),
    ("sinks", "mode"): ("append", "update", "complete"),
    ("sinks", "every"): ("hour", "day"),
    ("steps", "how"): ("inner", "left"),
    ("steps", "framing"): ("plain", "registry"),
    ("sources", "format"): ("parquet", "csv", "json"),
}
# Of a function in Python: "file.py:name".
FUNCTION_KINDS: Final = ("python", "state")
