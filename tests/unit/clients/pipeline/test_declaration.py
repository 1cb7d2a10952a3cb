"""A pipeline's file: what it means, and one sentence for each thing that is wrong with it."""

from __future__ import annotations

import re

import pytest

from ottla.clients.pipeline.declaration import read_pipeline
from ottla.clients.pipeline.sinks import topic_options
from ottla.clients.spark.options import read_sink_options
from ottla.proto.errors import ConfigError

WHOLE = """
[pipeline]
name = "clicks"
checkpoint = "state"
bootstrap = "localhost:9092"

[[sources]]
name = "raw"
kind = "topic"
topic = "clicks"

[[steps]]
name = "events"
kind = "parse_json"
from = "raw"
schema = "page string, at timestamp"
dead_letters = "clicks-dead"

[[steps]]
name = "counts"
kind = "window"
from = "events"
time = "at"
size = "1 minute"
watermark = "10 seconds"
by = ["page"]
select = ["count(*) as views"]

[[sinks]]
name = "out"
kind = "topic"
from = "counts"
topic = "views"
"""


def test_a_whole_file_is_read() -> None:
    found = read_pipeline(WHOLE.encode())
    assert [part.name for part in (*found.sources, *found.steps, *found.sinks)] == [
        "raw",
        "events",
        "counts",
        "out",
    ]
    assert found.trigger == "available-now"
    assert found.topics_read == {"clicks"}
    assert found.topics_written == {"views", "clicks-dead"}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[pipeline]", "[pipeline", "This is no TOML: "),
        ('name = "clicks"\n', "", "pipeline: name is missing."),
        ("checkpoint =", "checkpiont =", "pipeline: checkpiont is no key; is checkpoint meant?"),
        ('kind = "window"', 'kind = "widow"', "steps counts: kind must be one of parse_json,"),
        ('from = "events"', 'from = "event"', "'event' leads to nothing before it; is events mean"),
        ('name = "events"', 'name = "raw"', "The name raw is given twice."),
        ('name = "out"', 'name = "my out"', "sinks 1 needs a name of letters, digits and"),
        ('topic = "views"', 'topic = "clicks"', "Topic clicks is read and written"),
        ('topic = "views"', "topic = 7", "sinks out: topic must be a text, not 7."),
        ('topic = "views"', 'topic = ""', "sinks out: topic must not be empty."),
        ('by = ["page"]', "by = [1]", "steps counts: by must be a list of texts, not [1]."),
        ('by = ["page"]', 'bye = ["page"]', "steps counts: bye is no key; is by meant?"),
        ('topic = "views"', 'topic = "views"\nmode = "all"', "mode must be one of append, update"),
        (
            'name = "clicks"\n',
            'name = "clicks"\nguarantee = "twice"\n',
            "pipeline: guarantee must be one of exactly-once, at-least-once, not 'twice'.",
        ),
        (
            'topic = "views"',
            'topic = "views"\nguarantee = "no"',
            "sinks out: guarantee must be one",
        ),
        ("[[sinks]]", "[[sink]]", "At least one [[sinks]] is needed."),
    ],
)
def test_what_is_wrong_is_told(old: str, new: str, sentence: str) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        read_pipeline(WHOLE.replace(old, new, 1).encode())


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        (
            'kind = "join"\nfrom = "events"\nwith = "nams"\non = ["a"]',
            "with 'nams' leads to nothing",
        ),
        ('kind = "join"\nfrom = "events"\nwith = "raw"', "steps more: on is missing."),
        (
            'kind = "join"\nfrom = "events"\nwith = "raw"\non = ["a"]\nhow = "outer"',
            "steps more: how must be one of inner, left, not 'outer'.",
        ),
        (
            'kind = "python"\nfrom = "events"\nfunction = "count"',
            "steps more: function must be like file.py:name, not 'count'.",
        ),
        ('kind = "state"\nfrom = "events"', "steps more: function is missing."),
        ('kind = "session"\nfrom = "events"', "steps more: gap is missing."),
        ('kind = "parse_avro"\nfrom = "raw"', "steps more: schema_file is missing."),
        (
            'kind = "parse_avro"\nfrom = "raw"\nschema_file = "a"\nframing = "none"',
            "steps more: framing must be one of plain, registry, not 'none'.",
        ),
        (
            'kind = "parse_csv"\nfrom = "raw"\nschema = "a int"\nseperator = ";"',
            "steps more: seperator is no key; is separator meant?",
        ),
    ],
)
def test_what_is_wrong_with_a_step_is_told(added: str, sentence: str) -> None:
    text = WHOLE.replace("[[sinks]]", f'[[steps]]\nname = "more"\n{added}\n\n[[sinks]]')
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        read_pipeline(text.encode())


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        ('kind = "parquet"\npath = "p"\ntime = "at"', "time and every belong together."),
        (
            'kind = "parquet"\npath = "p"\ntime = "at"\nevery = "week"',
            "sinks more: every must be one of hour, day, not 'week'.",
        ),
        ('kind = "jdbc"\ntable = "t"', "sinks more: url is missing."),
        ('kind = "csv"', "sinks more: kind must be one of topic, parquet, delta, jdbc, console"),
    ],
)
def test_what_is_wrong_with_a_sink_is_told(added: str, sentence: str) -> None:
    text = f'{WHOLE}\n[[sinks]]\nname = "more"\nfrom = "events"\n{added}\n'
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        read_pipeline(text.encode())


@pytest.mark.parametrize(
    ("of_pipeline", "of_sink", "prefix", "is_once"),
    [
        (None, None, "clicks.out", True),
        (None, "at-least-once", None, True),
        ("at-least-once", None, None, False),
        ("at-least-once", "exactly-once", "clicks.out", True),
    ],
)
def test_topics_are_written_exactly_once_unless_the_file_asks_for_less(
    of_pipeline: str | None, of_sink: str | None, prefix: str | None, *, is_once: bool
) -> None:
    text = WHOLE
    if of_pipeline is not None:
        text = text.replace("[pipeline]", f'[pipeline]\nguarantee = "{of_pipeline}"', 1)
    if of_sink is not None:
        text += f'guarantee = "{of_sink}"\n'
    found = read_pipeline(text.encode())
    assert found.prefix_of(found.sinks[0]) == prefix
    # There is also the topic of dead letters, which goes by what the pipeline says.
    assert found.writes_exactly_once is is_once
    options = topic_options(found.sinks[0], found, takes_over=True)
    assert options.get("transactionalidprefix") == prefix
    assert options.get("takeoverprefix") == (None if prefix is None else "true")


@pytest.mark.parametrize(
    ("guarantee", "own", "prefix"),
    [
        ("exactly-once", 'exactlyOnce = true, transactionalIdPrefix = "mine"', "mine"),
        ("at-least-once", 'exactlyonce = "true", TransactionalIdPrefix = "mine"', "mine"),
        ("exactly-once", 'transactionalIdPrefix = "mine"', "mine"),
        ("at-least-once", "exactlyOnce = true", "clicks.out"),
        ("exactly-once", "exactlyOnce = false", None),
        ("exactly-once", '"kafka.linger.ms" = 5', "clicks.out"),
        ("at-least-once", '"kafka.linger.ms" = 5', None),
        ("exactly-once", "takeOverPrefix = false", "clicks.out"),
    ],
)
def test_options_of_a_sink_say_themselves_what_it_promises_and_are_taken_over_like_others(
    guarantee: str, own: str, prefix: str | None
) -> None:
    text = WHOLE.replace('dead_letters = "clicks-dead"\n', "")
    text = text.replace("[pipeline]", f'[pipeline]\nguarantee = "{guarantee}"', 1)
    found = read_pipeline((text + f"options = {{ {own} }}\n").encode())
    # There is no other topic: the cluster is asked for it just then.
    assert found.writes_exactly_once is (prefix is not None)
    given = topic_options(found.sinks[0], found, takes_over=True)
    made = read_sink_options(given)
    assert (made.prefix, made.takes_over) == (prefix, prefix is not None)


def test_a_prefix_without_its_promise_is_refused_by_the_sink() -> None:
    text = WHOLE.replace("[pipeline]", '[pipeline]\nguarantee = "at-least-once"', 1)
    found = read_pipeline((text + 'options = { transactionalIdPrefix = "mine" }\n').encode())
    with pytest.raises(ConfigError, match="with exactlyOnce=true only"):
        read_sink_options(topic_options(found.sinks[0], found, takes_over=False))


def test_acks_of_a_sink_do_not_turn_exactly_once_off_without_a_word() -> None:
    found = read_pipeline((WHOLE + 'options = { "kafka.acks" = "all" }\n').encode())
    options = topic_options(found.sinks[0], found, takes_over=False)
    assert (options["exactlyonce"], options["kafka.acks"]) == ("true", "all")
    found = read_pipeline((WHOLE + 'options = { "kafka.acks" = 1 }\n').encode())
    with pytest.raises(ConfigError, match=r"kafka\.acks=1 promises less than exactly once"):
        topic_options(found.sinks[0], found, takes_over=False)


def test_steps_that_have_nowhere_to_send_what_they_cannot_read_are_known() -> None:
    assert read_pipeline(WHOLE.encode()).dropping_steps == []
    without = WHOLE.replace('dead_letters = "clicks-dead"\n', "")
    assert read_pipeline(without.encode()).dropping_steps == ["events"]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    broken = WHOLE.replace('size = "1 minute"\n', "").replace('topic = "views"', "topic = 7")
    with pytest.raises(ConfigError) as caught:
        read_pipeline(broken.encode())
    assert caught.value.problems == (
        "steps counts: size is missing.",
        "sinks out: topic must be a text, not 7.",
    )


def test_a_file_that_is_too_large_is_not_read() -> None:
    with pytest.raises(ConfigError, match="A pipeline has at most"):
        read_pipeline(b"#" * (1 << 20) + b"\n")
