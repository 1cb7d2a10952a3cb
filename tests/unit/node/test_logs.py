"""The log of a node: what a line looks like, and what strangers cannot do to it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.node import log_line, logs
from ottla.node.clock import Clock
from ottla.proto.errors import ErrorCode

# 2026-01-02T03:04:05.006Z
NOW_MS = 1_767_323_045_006


class FakeClock(Clock):
    __slots__ = ("ms",)

    def __init__(self, ms: int = NOW_MS) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms


class Desk:
    """A log that can be read again."""

    def __init__(self, form: logs.Format = "text", level: log_line.Level = "debug") -> None:
        self.clock = FakeClock()
        self.stream = io.StringIO()
        self.sink = logs.setup(form, level, stream=self.stream, clock=self.clock)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    sink, root = logs._current.sink, logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logs._current.sink = sink
    root.handlers[:] = handlers
    root.setLevel(level)


log = logs.logger("replication.replica")


def test_a_line_has_time_level_logger_event_and_facts() -> None:
    desk = Desk()
    log.info("isr_shrunk", partition="orders-0", epoch=7, isr=(1, 2), ok=True, rack=None, part=0.5)
    assert desk.lines == [
        "03:04:05.006 INFO  replication.replica isr_shrunk "
        "partition=orders-0 epoch=7 isr=1,2 ok=true rack=none part=0.5"
    ]


def test_json_has_the_same_keys() -> None:
    desk = Desk("json")
    log.warning("isr_shrunk", partition="orders-0", epoch=7, isr=(1, 2), ok=True, rack=None)
    assert json.loads(desk.lines[0]) == {
        "time": "2026-01-02T03:04:05.006Z",
        "level": "warning",
        "logger": "replication.replica",
        "event": "isr_shrunk",
        "partition": "orders-0",
        "epoch": 7,
        "isr": "1,2",
        "ok": True,
        "rack": None,
    }


def test_bound_facts_stand_in_each_line() -> None:
    desk = Desk()
    bound = log.bind(partition="orders-0").bind(epoch=7)
    bound.debug("append_began", epoch=8)
    log.debug("append_began")
    assert desk.lines[0].endswith("append_began partition=orders-0 epoch=8")
    assert desk.lines[1].endswith("append_began")


def test_lines_below_the_level_are_not_written() -> None:
    desk = Desk(level="warning")
    log.info("node_started")
    assert not log.shows_debug
    log.error("disk_failed")
    assert [line.split()[1] for line in desk.lines] == ["ERROR"]


# ── L1: one event, one line ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("plain-1.0", "plain-1.0"),
        ("two words", '"two words"'),
        ("", '""'),
        ("a=b", '"a=b"'),
        ('say "x"', r'"say \"x\""'),
        ("back\\slash", r'"back\\slash"'),
        ("x\n03:04:05.006 ERROR node disk_failed", r'"x\n03:04:05.006 ERROR node disk_failed"'),
        ("\x1b[2J", r'"\u001b[2J"'),
        ("\r\t\x00", r'"\r\t\u0000"'),
        # Turns the reading direction of what follows.
        ("a\u202eb", r'"a\u202eb"'),
        # A line end to some programs.
        ("a\u2028b\x85", r'"a\u2028b\u0085"'),
        ("\udc80", r'"\udc80"'),
        ("Zürich", '"Zürich"'),
        (b"\x00\xff", "00ff"),
        (ErrorCode.NOT_CONTROLLER, "not_controller"),
        pytest.param(10**5_000, '"[large number]"', id="5000 digits"),
        (float("nan"), "nan"),
        (ValueError("no\nway"), r'"ValueError: no\nway"'),
    ],
)
def test_a_value_cannot_be_taken_for_anything_else(value: object, told: str) -> None:
    desk = Desk()
    log.info("client_named", client=value)
    assert desk.lines == [f"03:04:05.006 INFO  replication.replica client_named client={told}"]


@given(st.text() | st.binary() | st.floats() | st.integers() | st.lists(st.text()))
def test_whatever_the_value_text_is_one_line_and_json_is_json(value: object) -> None:
    text = Desk("text")
    log.debug("client_named", client=value)
    assert text.stream.getvalue().count("\n") == 1
    assert text.stream.getvalue()[:-1].isprintable()
    rows = Desk("json")
    log.debug("client_named", client=value)
    assert rows.stream.getvalue().count("\n") == 1
    assert json.loads(rows.stream.getvalue())["event"] == "client_named"


def test_a_fact_cannot_replace_what_every_line_has() -> None:
    desk = Desk("json")
    log.info("node_started", level="error", time=0)
    told = json.loads(desk.lines[0])
    assert (told["level"], told["level_"], told["time_"]) == ("info", "error", 0)


# ── L2: bounded ───────────────────────────────────────────────────────────────────────────────


def test_long_values_are_cut() -> None:
    desk = Desk()
    log.info("client_named", client="x" * 1_000_000)
    assert desk.lines[0].endswith(f'client="{"x" * 256}…(+999744)"')


def test_many_facts_are_cut() -> None:
    desk = Desk()
    log.info("client_named", **{f"fact_{number}": number for number in range(100)})
    assert desk.lines[0].endswith("fact_31=31 facts_left_out=68")


def test_an_endless_collection_is_cut() -> None:
    desk = Desk()
    log.info("client_named", names=list(range(1_000_000)))
    assert len(desk.lines[0]) < 400


# ── L3: bursts ────────────────────────────────────────────────────────────────────────────────


def test_a_burst_is_counted_instead_of_written() -> None:
    desk = Desk()
    for _ in range(130):
        log.warning("connection_refused")
    assert len(desk.lines) == 10
    desk.clock.ms += logs.BURST_MS
    log.info("node_stopped")
    assert desk.lines[10:] == [
        "03:04:15.006 WARNING replication.replica lines_held_back of=connection_refused count=120",
        "03:04:15.006 INFO  replication.replica node_stopped",
    ]


def test_the_next_burst_is_written_again() -> None:
    desk = Desk()
    for _ in range(3):
        for _ in range(12):
            log.warning("connection_refused")
        desk.clock.ms += logs.BURST_MS
    assert sum("connection_refused" in line.split()[3] for line in desk.lines) == 30


def test_one_event_does_not_silence_another() -> None:
    desk = Desk()
    for _ in range(50):
        log.warning("connection_refused")
    log.warning("disk_full")
    assert desk.lines[-1].endswith("disk_full")


def test_debug_is_not_limited() -> None:
    desk = Desk()
    for _ in range(50):
        log.debug("step_taken")
    assert len(desk.lines) == 50


def test_what_was_held_back_is_told_at_the_end() -> None:
    desk = Desk()
    for _ in range(12):
        log.warning("connection_refused")
    desk.sink.flush()
    assert desk.lines[-1].endswith("lines_held_back of=connection_refused count=2")
    desk.sink.flush()
    assert len(desk.lines) == 11


def test_a_clock_that_is_set_back_does_not_hold_lines_back_for_ever() -> None:
    desk = Desk()
    for _ in range(12):
        log.warning("connection_refused")
    desk.clock.ms -= 3_600_000
    log.warning("connection_refused")
    assert desk.lines[-1].endswith("connection_refused")


def test_loggers_without_number_are_not_all_remembered() -> None:
    desk = Desk()
    for number in range(5_000):
        logs.logger(f"made.up.{number}").warning("library_said")
    assert len(desk.sink._limiters) <= 1_025


# ── L4: secrets ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["password", "ssl_key_password", "delegation_token", "Secret"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_secret_is_not_written(name: str, form: logs.Format) -> None:
    desk = Desk(form)
    log.info("client_named", **{name: "hunter2"})
    assert "hunter2" not in desk.stream.getvalue()
    assert "[hidden]" in desk.stream.getvalue()


# ── L5: never fails ───────────────────────────────────────────────────────────────────────────


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("closed", [False, True])
def test_a_line_that_cannot_be_written_is_counted(closed: bool) -> None:
    stream = io.StringIO() if closed else FullDisk()
    stream.close() if closed else None
    logs.setup(stream=stream, clock=FakeClock())
    log.info("node_started")
    assert logs.lines_lost() == 1


def test_a_value_that_cannot_be_shown_does_no_harm() -> None:
    class Shy:
        def __str__(self) -> str:
            raise RuntimeError("no")

    desk = Desk()
    log.info("client_named", client=Shy(), known=1)
    assert desk.lines[0].endswith('client_named client="[a Shy]" known=1')


# ── Exceptions and libraries ──────────────────────────────────────────────────────────────────


def _fail() -> None:
    raise RuntimeError("bad\n03:04:05.006 INFO  node all_is_well")


def test_an_exception_is_told_with_its_origin_and_no_line_of_it_looks_like_ours() -> None:
    desk = Desk()
    try:
        _fail()
    except RuntimeError:
        log.exception("page_failed", path="/x")
    head, *below = desk.lines
    assert head == (
        "03:04:05.006 ERROR replication.replica page_failed path=/x "
        r'error="RuntimeError: bad\n03:04:05.006 INFO  node all_is_well"'
    )
    assert below[0] == "    | Traceback (most recent call last):"
    assert any("in _fail" in line for line in below)
    assert all(line.startswith("    | ") for line in below)


def test_a_deep_traceback_is_cut_above() -> None:
    def deep(level: int) -> None:
        if level:
            # Two functions in turn: Python shortens the story of one that calls itself.
            deeper(level - 1)
        else:
            raise RuntimeError("deep")

    def deeper(level: int) -> None:
        deep(level)

    desk = Desk("json")
    try:
        deep(60)
    except RuntimeError:
        log.exception("page_failed")
    told = json.loads(desk.lines[0])["traceback"].splitlines()
    assert len(told) == log_line.TRACE_LINES_MAX + 1
    assert told[0].endswith("lines above")
    assert told[-1] == "RuntimeError: deep"


def test_what_a_library_logs_is_one_of_our_lines() -> None:
    desk = Desk()
    logging.getLogger("asyncio").warning("Executing %s took\n%d s", "x", 3)
    logging.getLogger("asyncio").info("not shown")
    assert desk.lines == [
        "03:04:05.006 WARNING asyncio library_said " r'message="Executing x took\n3 s"'
    ]


def test_a_library_that_formats_wrongly_does_no_harm() -> None:
    desk = Desk()
    root = logging.getLogger()
    # Without pytest's own, which raises.
    root.handlers[:] = [one for one in root.handlers if isinstance(one, logs._Bridge)]
    logging.getLogger("some").error("%d", "x")
    assert desk.lines[0].endswith("some library_said message=%d")


def test_setting_up_twice_writes_once() -> None:
    Desk()
    desk = Desk()
    logging.getLogger("some").error("once")
    assert len(desk.lines) == 1
