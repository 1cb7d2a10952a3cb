"""The judge of traces finds each fault, and nothing where nothing is amiss.

Real traces of nodes that die: `test_kills.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.proto.ids import TopicPartition
from tests.integration.replicated.history import Attempt, Fate
from tests.integration.replicated.trace_judge import judge_trace

PLACE = TopicPartition("t", 0)
MS = 1_000_000


def _line(at_ms: int, event: str, node: int = 1, **facts: Any) -> dict[str, Any]:
    place = {"topic": "t", "partition": 0}
    return {"t_ns": at_ms * MS, "node": node, "event": event, **place, **facts}


def _led(at_ms: int, node: int, epoch: int, *isr: int) -> dict[str, Any]:
    facts = {"leader_epoch": epoch, "isr": isr, "min_isr": 2, "high_watermark": 0}
    return _line(at_ms, "led", node, **facts)


def _state(epoch: int, leader: int | None, isr: list[int], node: int = 1) -> dict[str, Any]:
    facts = {"leader": leader, "leader_epoch": epoch, "partition_epoch": epoch, "isr": isr}
    return _line(epoch, "partition", node, **facts, elr=[], replicas=[1, 2, 3], topic_id="x")


def _ok(offset: int, ended_ms: int) -> Attempt:
    ended_s = ended_ms / 1000
    return Attempt("raw", PLACE, b"v", ended_s - 0.001, Fate.OK, ended_s, offset, 1)


def _committed(at_ms: int, high_watermark: int) -> dict[str, Any]:
    return _line(at_ms, "committed", leader_epoch=1, high_watermark=high_watermark)


GOOD = [_led(1, 1, 1, 1, 2), _committed(100, 8), _committed(112, 11), _committed(300, 12)]


def test_a_run_in_which_nothing_is_amiss_passes() -> None:
    states = [_state(1, 1, [1, 2, 3]), _state(1, 1, [1, 2, 3], node=2), _state(2, 2, [2, 3])]
    assert judge_trace([*GOOD, *states], [_ok(7, 100), _ok(10, 105), _ok(11, 290)]) == []


@pytest.mark.parametrize(
    ("row", "lines", "attempts"),
    [
        ("12", GOOD, [_ok(10, 80)]),
        ("17", [*GOOD, _led(2, 2, 1, 2, 3)], []),
        ("18", [_state(1, 1, [1, 2]), _state(2, 3, [3])], []),
        ("19", [_led(1, 1, 1, 1), *GOOD[1:]], [_ok(7, 100)]),
        ("20", [_state(3, 1, [1]), {**_state(2, 1, [1]), "t_ns": 9 * MS}], []),
        ("nodes", [_state(1, 1, [1, 2]), _state(1, 2, [1, 2], node=2)], []),
    ],
)
def test_each_fault_is_found(
    row: str, lines: list[dict[str, Any]], attempts: list[Attempt]
) -> None:
    found = judge_trace(lines, attempts)
    assert {one.partition(":")[0].split()[0] for one in found} == {row}, found


def test_a_kill_that_cut_a_trace_is_no_fault_of_the_acknowledgement() -> None:
    again = [_line(200, "started"), _committed(300, 12)]
    assert judge_trace([*GOOD[:2], *again], [_ok(10, 105)]) == []
