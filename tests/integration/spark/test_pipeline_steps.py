"""Each kind of step and sink of a pipeline, on real Spark; and dead letters that are sent back."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.clients.pipeline.declaration import read_pipeline
from ottla.clients.pipeline.replay import replay
from ottla.clients.pipeline.running import Run
from ottla.proto.errors import ConfigError
from tests.integration.spark.conftest import MakeTopic
from tests.integration.spark.running import headers_of, rows_of, run_to_end, send

pytestmark = [pytest.mark.integration, pytest.mark.long]

HEAD = """
[pipeline]
name = "{name}"
checkpoint = "state"
bootstrap = "{bootstrap}"

[[sources]]
name = "raw"
kind = "topic"
topic = "{source}"
"""
TO_TOPIC = """
[[sinks]]
name = "out"
kind = "topic"
from = "{table}"
topic = "{target}"
"""
TO_FILES = """
[[sinks]]
name = "files"
kind = "parquet"
from = "{table}"
path = "lake"
"""


def _told(spark: Any, bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(bytes(row.value)) for row in rows_of(spark, bootstrap, topic)]


def test_lines_of_csv_are_parsed_joined_with_a_table_and_the_broken_ones_told(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, dead, target = make_topic(), make_topic(), make_topic()
    (tmp_path / "names.csv").write_text("A,Almond\n")
    text = (
        HEAD.format(name="csv", bootstrap=bootstrap, source=source)
        + f"""
[[sources]]
name = "names"
kind = "table"
format = "csv"
path = "names.csv"
schema = "symbol string, name string"

[[steps]]
name = "ticks"
kind = "parse_csv"
from = "raw"
separator = ";"
schema = "symbol string, price double"
check = "price > 0"
dead_letters = "{dead}"

[[steps]]
name = "known"
kind = "join"
from = "ticks"
with = "names"
on = ["symbol"]
how = "left"

[[steps]]
name = "shown"
kind = "sql"
sql = "select symbol, price, name from known"
"""
        + TO_TOPIC.format(table="shown", target=target)
    )
    send(bootstrap, source, [b"A;1.5", b"B;2", b"A;x", b"A;-1"])
    run_to_end(spark, text, tmp_path)
    assert sorted(_told(spark, bootstrap, target), key=lambda one: one["symbol"]) == [
        {"symbol": "A", "price": 1.5, "name": "Almond"},
        {"symbol": "B", "price": 2.0},
    ]
    letters = {
        bytes(r.value): headers_of(r)["ottla-error"] for r in rows_of(spark, bootstrap, dead)
    }
    assert letters == {
        b"A;x": "it is no CSV of the schema: symbol string, price double",
        b"A;-1": "it fails the check: price > 0",
    }


def test_avro_is_parsed_with_the_id_of_a_registry_before_it(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, dead, target = make_topic(), make_topic(), make_topic()
    schema = {
        "type": "record",
        "name": "tick",
        "fields": [
            {"name": "symbol", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        ],
    }
    (tmp_path / "tick.avsc").write_text(json.dumps(schema))
    text = (
        HEAD.format(name="avro", bootstrap=bootstrap, source=source)
        + f"""
[[steps]]
name = "ticks"
kind = "parse_avro"
from = "raw"
schema_file = "tick.avsc"
framing = "registry"
dead_letters = "{dead}"

[[steps]]
name = "shown"
kind = "sql"
sql = "select symbol, price, tags, unix_millis(at) as at from ticks"
"""
        + TO_TOPIC.format(table="shown", target=target)
    )
    one = b"\x02A" + struct.pack("<d", 1.5) + b"\x02\x02x\x00"
    send(bootstrap, source, [b"\0\0\0\0\7" + one + b"\x02\x02", b"\0\0\0\0\7" + one, b"{}"])
    run_to_end(spark, text, tmp_path)
    assert _told(spark, bootstrap, target) == [
        {"symbol": "A", "price": 1.5, "tags": ["x"], "at": 1}
    ]
    letters = [headers_of(row)["ottla-error"] for row in rows_of(spark, bootstrap, dead)]
    assert letters == [
        "it is no Avro of the schema: the value ends inside a number.",
        "it is no Avro of the schema: the value does not begin with the id of a schema.",
    ]


SESSIONS = """
[[steps]]
name = "events"
kind = "parse_json"
from = "raw"
schema = "key string, at timestamp"

[[steps]]
name = "visits"
kind = "session"
from = "events"
time = "at"
gap = "5 minutes"
watermark = "1 minute"
by = ["key"]
select = ["count(*) as clicks"]
"""


def _at(key: str, minute: int) -> bytes:
    return json.dumps({"key": key, "at": f"2026-01-01T00:{minute:02}:00Z"}).encode()


def test_sessions_end_with_a_gap(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(), make_topic()
    text = HEAD.format(name="visits", bootstrap=bootstrap, source=source) + SESSIONS
    text += TO_TOPIC.format(table="visits", target=target)
    send(bootstrap, source, [_at("a", 0), _at("a", 3), _at("b", 1), _at("a", 20)])
    run_to_end(spark, text, tmp_path)
    send(bootstrap, source, [_at("z", 50)])
    run_to_end(spark, text, tmp_path)
    told = {
        (one["key"], one["start"][11:16], one["end"][11:16], one["clicks"])
        for one in _told(spark, bootstrap, target)
    }
    assert told == {
        ("a", "00:00", "00:08", 2),
        ("b", "00:01", "00:06", 1),
        ("a", "00:20", "00:25", 1),
    }


COUNTING = '''
def count(key, rows, state, watermark_ms):
    """Tell how many came, when nothing has come for ten minutes."""
    now = state or {"n": 0, "last_ms": 0}
    n = now["n"] + len(rows)
    last_ms = max([now["last_ms"], *(int(row["at"].timestamp() * 1000) for row in rows)])
    if watermark_ms > last_ms + 600_000:
        return [{"key": key[0], "n": n}], None, None
    return [], {"n": n, "last_ms": last_ms}, last_ms + 600_001


def louder(table):
    from pyspark.sql import functions as f

    return table.withColumn("key", f.udf(shout)("key"))


def shout(text):
    return text.upper() + "!"
'''


def test_a_function_keeps_state_for_each_key_and_is_called_when_its_time_has_come(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(), make_topic()
    (tmp_path / "counting.py").write_text(COUNTING)
    text = (
        HEAD.format(name="counting", bootstrap=bootstrap, source=source)
        + """
[[steps]]
name = "events"
kind = "parse_json"
from = "raw"
schema = "key string, at timestamp"

[[steps]]
name = "loud"
kind = "python"
from = "events"
function = "counting.py:louder"

[[steps]]
name = "counted"
kind = "state"
from = "loud"
time = "at"
watermark = "1 minute"
by = ["key"]
function = "counting.py:count"
state = "n bigint, last_ms bigint"
schema = "key string, n bigint"
"""
        + TO_TOPIC.format(table="counted", target=target)
        + TO_FILES.format(table="counted")
    )
    send(bootstrap, source, [_at("a", 0), _at("a", 3), _at("b", 1)])
    run_to_end(spark, text, tmp_path)
    assert _told(spark, bootstrap, target) == []
    # State outlives the run; what is older than the watermark of minute 2 is left out.
    send(bootstrap, source, [_at("a", 5), _at("b", 0), _at("z", 40)])
    run_to_end(spark, text, tmp_path)
    told = sorted((one["key"], one["n"]) for one in _told(spark, bootstrap, target))
    assert told == [("A!", 3), ("B!", 1)]
    kept = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert sorted((row.key, row.n) for row in kept) == told


def test_rows_go_to_a_database_once_and_to_files_by_time(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source = make_topic()
    url = f"jdbc:derby:;databaseName={tmp_path / 'base'};create=true"
    text = (
        HEAD.format(name="base", bootstrap=bootstrap, source=source)
        + f"""
[[steps]]
name = "events"
kind = "parse_json"
from = "raw"
schema = "key string, at timestamp"

[[steps]]
name = "chosen"
kind = "sql"
sql = "select key as who, at from events"

[[sinks]]
name = "base"
kind = "jdbc"
from = "chosen"
url = "{url}"
table = "visits"
batch_column = "batch"
options = {{ driver = "org.apache.derby.jdbc.EmbeddedDriver" }}

[[sinks]]
name = "files"
kind = "parquet"
from = "chosen"
path = "lake"
time = "at"
every = "hour"
"""
    )
    send(bootstrap, source, [_at("a", 0), _at("b", 1)])
    run_to_end(spark, text, tmp_path)
    # As after a driver that died when the batch was written and not yet noted: it comes again.
    for note in (tmp_path / "state/base/commits").iterdir():
        note.unlink()
    send(bootstrap, source, [_at("c", 2)])
    run_to_end(spark, text, tmp_path)
    rows = spark.read.format("jdbc").options(url=url, dbtable="visits").load().collect()
    assert sorted((row.who, row.batch) for row in rows) == [("a", 0), ("b", 0), ("c", 1)]
    assert (tmp_path / "lake/day=2026-01-01/hour=00").is_dir()
    assert spark.read.parquet(str(tmp_path / "lake")).count() == 3


def test_dead_letters_are_sent_back_once_after_the_pipeline_was_mended(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, dead, target = make_topic(), make_topic(), make_topic()
    text = (
        HEAD.format(name=f"mended-{source}", bootstrap=bootstrap, source=source)
        + f"""
[[steps]]
name = "events"
kind = "parse_json"
from = "raw"
schema = "id int"
check = "id < 10"
dead_letters = "{dead}"

[[steps]]
name = "ids"
kind = "sql"
sql = "select id from events"
"""
        + TO_TOPIC.format(table="ids", target=target)
    )
    send(bootstrap, source, [b'{"id": 1}', b'{"id": 11}', b"no"])
    run_to_end(spark, text, tmp_path)
    assert len(rows_of(spark, bootstrap, dead)) == 2
    mended = text.replace("id < 10", "id < 100")
    done = replay(read_pipeline(mended.encode()))
    assert (done.sent, done.left) == (2, 0)
    run_to_end(spark, mended, tmp_path)
    assert sorted(one["id"] for one in _told(spark, bootstrap, target)) == [1, 11]
    # What is still broken is a dead letter again, and only that one is sent back next time.
    assert replay(read_pipeline(mended.encode())).sent == 1


DROPPING = """
[[steps]]
name = "events"
kind = "parse_json"
from = "raw"
schema = "id int"
check = "id < 10"

[[steps]]
name = "ids"
kind = "sql"
sql = "select id from events"

[[steps]]
name = "twice"
kind = "sql"
sql = "select id from ids union all select id + 100 from ids"

[[sinks]]
name = "base"
kind = "jdbc"
from = "ids"
url = "{url}"
table = "ids"
options = {{ driver = "org.apache.derby.jdbc.EmbeddedDriver" }}
"""


def test_rows_that_are_dropped_because_nobody_wants_the_letters_are_counted_and_told(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(), make_topic()
    url = f"jdbc:derby:;databaseName={tmp_path / 'base'};create=true"
    text = HEAD.format(name="dropping", bootstrap=bootstrap, source=source)
    text += DROPPING.format(url=url) + TO_FILES.format(table="twice")
    text += TO_TOPIC.format(table="ids", target=target)
    text = text.replace('topic = "' + source, 'max_per_batch = 3\ntopic = "' + source)
    send(bootstrap, source, [b'{"id": 1}', b"no", b'{"id": 11}', b'{"id": 2}', b"neither"])
    told = list[str]()
    run_to_end(spark, text, tmp_path, tell=told.append)
    assert sorted(one["id"] for one in _told(spark, bootstrap, target)) == [1, 2]
    kept = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert sorted(row.id for row in kept) == [1, 2, 101, 102]
    for name, batches in (("out", 2), ("base", 2)):
        lines = [line for line in told if line.startswith(f"{name}: batch")]
        assert len(lines) == batches
        assert lines[0].startswith(f"{name}: batch 0, 3 rows, 2 dropped by events, ")
        assert lines[1].startswith(f"{name}: batch 1, 2 rows, 1 dropped by events, ")
        assert f"{name}: done, 5 rows read, 3 dropped by events." in told
    # This one reads its topic twice, and yet no row is dropped twice.
    assert any(
        line.startswith("files: done, ") and line.endswith(", 3 dropped by events.")
        for line in told
    )


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        (
            '[[steps]]\nname = "j"\nkind = "join"\nfrom = "events"\nwith = "raw"\non = ["key"]',
            "steps j: with must be a source of kind table",
        ),
        (
            '[[steps]]\nname = "p"\nkind = "python"\nfrom = "events"\nfunction = "none.py:f"',
            "steps p: .*none.py cannot be loaded",
        ),
        (
            '[[steps]]\nname = "p"\nkind = "python"\nfrom = "events"\nfunction = "ours.py:f"',
            "steps p: .*ours.py has no function f",
        ),
        (
            '[[steps]]\nname = "a"\nkind = "parse_avro"\nfrom = "raw"\nschema_file = "ours.py"',
            "steps a: .*ours.py: the Avro schema is no JSON",
        ),
        (
            '[[steps]]\nname = "a"\nkind = "parse_json"\nfrom = "events"\nschema = "a int"',
            "steps a: from must be a source of kind topic",
        ),
        (
            '[[steps]]\nname = "a"\nkind = "parse_json"\nfrom = "raw"\nschema = "offset int"',
            "steps a: the schema has offset, and so has each row by itself",
        ),
        (
            '[[sinks]]\nname = "d"\nkind = "delta"\nfrom = "events"\npath = "x"',
            "sinks d: this Spark has no format delta",
        ),
        (
            '[[sinks]]\nname = "d"\nkind = "parquet"\nfrom = "events"\npath = "x"\ntime = "when"\n'
            'every = "day"',
            "sinks d: .*`when`",
        ),
        (
            '[[sinks]]\nname = "d"\nkind = "jdbc"\nfrom = "events"\nurl = "u"\ntable = "a b"',
            "sinks d: table 'a b' is no plain name",
        ),
    ],
)
def test_what_makes_no_sense_is_one_sentence_before_anything_runs(
    spark: Any, bootstrap: str, tmp_path: Path, added: str, sentence: str
) -> None:
    (tmp_path / "ours.py").write_text("x = 1\n")
    text = HEAD.format(name="wrong", bootstrap=bootstrap, source="a") + SESSIONS
    text += f"\n{added}\n" + TO_FILES.format(table="events")
    with pytest.raises(ConfigError, match=sentence) as caught:
        Run(spark, read_pipeline(text.encode()), tmp_path)
    assert "\n" not in str(caught.value)
