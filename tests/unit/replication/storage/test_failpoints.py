from __future__ import annotations

import errno
import subprocess
import sys
import timeit
from collections.abc import Iterator

import pytest

from ottla.proto.errors import ConfigError, InvariantError
from ottla.replication.storage import failpoints
from ottla.replication.storage.failpoints import Action, CrashError, Kind, hit

NAME = "log.sync.before"


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    failpoints.disarm_all()
    yield
    failpoints.disarm_all()
    failpoints.connect_power(None)


def test_every_row_has_a_name_of_its_own_and_a_sentence() -> None:
    assert len(failpoints.NAMES) == len(failpoints.FAILPOINTS)
    assert all(row.sentence.endswith(".") for row in failpoints.FAILPOINTS)


def test_nothing_happens_while_nothing_is_armed() -> None:
    hit(NAME)
    hit("log.append.after")


def test_reaching_a_failpoint_costs_next_to_nothing() -> None:
    cost_s = min(timeit.repeat(lambda: hit(NAME), number=20_000, repeat=5)) / 20_000
    # A generous limit for a busy machine; about 0.05 µs on a quiet one.
    assert cost_s < 1e-6


def test_an_error_has_the_number_asked_for_and_happens_every_time() -> None:
    failpoints.arm(NAME, "error(ENOSPC)")
    for _ in range(2):
        with pytest.raises(OSError, match=NAME) as caught:
            hit(NAME)
        assert caught.value.errno == errno.ENOSPC
    hit("log.sync.after")
    failpoints.disarm(NAME)
    hit(NAME)


def test_an_action_can_wait_for_the_nth_time_and_then_happens_once() -> None:
    failpoints.arm(NAME, "raise@3")
    hit(NAME)
    hit(NAME)
    with pytest.raises(CrashError):
        hit(NAME)
    hit(NAME)


def test_a_simulated_crash_is_not_caught_by_except_exception() -> None:
    assert not issubclass(CrashError, Exception)


def test_a_sleep_blocks() -> None:
    failpoints.arm(NAME, "sleep(20)")
    assert timeit.timeit(lambda: hit(NAME), number=1) >= 0.02


def test_a_power_cut_is_left_to_whoever_holds_the_switch() -> None:
    failpoints.arm(NAME, Action(Kind.POWER_CUT))
    with pytest.raises(ConfigError, match="opened with faults"):
        hit(NAME)
    reached: list[str] = []
    failpoints.connect_power(reached.append)
    hit(NAME)
    assert reached == [NAME]


def test_a_place_without_a_row_is_a_bug() -> None:
    failpoints.arm(NAME, "sleep(0)")
    with pytest.raises(InvariantError, match="has a row"):
        hit("log.nowhere")


def test_the_environment_arms_several() -> None:
    failpoints.arm_from_environment(
        {"OTTLA_FAILPOINTS": " log.sync.before=crash@3; log.append.after=sleep(20);"}
    )
    assert failpoints.armed() == {
        "log.sync.before": Action(Kind.CRASH, nth=3),
        "log.append.after": Action(Kind.SLEEP, 20),
    }
    failpoints.disarm_all()
    failpoints.arm_from_environment({})
    assert failpoints.armed() == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("log.nowhere=crash", "no failpoint 'log.nowhere'"),
        ("log.sync.before", "not of the form"),
        ("log.sync.before=explode", "no failpoint action"),
        ("log.sync.before=crash@0", "no failpoint action"),
        ("log.sync.before=crash@-1", "no failpoint action"),
        ("log.sync.before=", "no failpoint action"),
        ("log.sync.before=crash(1)", "takes nothing in brackets"),
        ("log.sync.before=error", "name of an error"),
        ("log.sync.before=error(EWHAT)", "name of an error"),
        ("log.sync.before=error(errorcode)", "name of an error"),
        ("log.sync.before=sleep(soon)", "whole milliseconds"),
        ("log.sync.before=sleep", "whole milliseconds"),
    ],
)
def test_a_bad_setting_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        failpoints.arm_from_environment({"OTTLA_FAILPOINTS": text})


@pytest.mark.parametrize(("action", "code"), [("crash", 137), ("kill", -9)])
def test_a_real_process_dies_at_the_place_and_not_before(action: str, code: int) -> None:
    program = (
        "import os\n"
        "from ottla.replication.storage import failpoints\n"
        "failpoints.arm_from_environment(os.environ)\n"
        "for n in range(5):\n"
        "    print(n, flush=True)\n"
        "    failpoints.hit('log.sync.before')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"OTTLA_FAILPOINTS": f"{NAME}={action}@2", "PYTHONPATH": "."},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, b"0\n1\n")
