"""Faults that people make: options that change in the middle of everything, forced elections.

Not here: topics that come and go, which is work and no fault (`runner/churn.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ottla.chaos.clock import NeverHappenedError, wait_until
from ottla.chaos.nemesis.kind import Kind
from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import NOTE, Scene
from ottla.chaos.nemesis.view import ask
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS, ApiRow
from ottla.proto.kafka.message import Message

_CHANGE_S: Final = 10.0
_TOPIC: Final = 2
_SET: Final = 0
_UNCLEAN: Final = 1
MIN_ISR: Final = "min.insync.replicas"


def change(scene: Scene, row: ApiRow, fields: Mapping[str, Any]) -> Message | None:
    """Return the first answer that anybody gives."""
    for node in scene.running:
        if node not in scene.paused:
            answer = ask(scene.backend.inside(node), row, fields, _CHANGE_S)
            if answer is not None:
                return answer
    return None


def set_option(scene: Scene, name: str, value: str) -> bool:
    """Set an option of all topics; return whether it was."""
    configs = [{"name": name, "config_operation": _SET, "value": value}]
    fields = {
        "resources": [
            {"resource_type": _TOPIC, "resource_name": topic, "configs": configs}
            for topic in scene.topics
        ],
        "validate_only": False,
    }
    answer = change(scene, INCREMENTAL_ALTER_CONFIGS, fields)
    return answer is not None and all(one.error_code == ErrorCode.NONE for one in answer.responses)


def elect_unclean(scene: Scene) -> None:
    """Let anybody lead what nobody may lead."""
    leaderless = [place for place, seen in scene.view().items() if seen.leader < 0]
    by_topic = dict[str, list[int]]()
    for place in leaderless:
        by_topic.setdefault(place.topic, []).append(place.partition)
    fields = {
        "election_type": _UNCLEAN,
        "topic_partitions": [{"topic": t, "partitions": p} for t, p in by_topic.items()],
        "timeout": int(_CHANGE_S * 1000),
    }
    if by_topic:
        change(scene, ELECT_LEADERS, fields)
    scene.tell("unclean election", NOTE, partitions=[str(place) for place in leaderless])


def min_isr(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Change how many copies an acknowledgement takes, while some of them are gone."""
    old = str(step.facts.get("usual", 2))
    for value in (str(one) for one in step.facts.get("values", (3, 1))):
        is_set = set_option(scene, MIN_ISR, value)
        scene.tell("option", NOTE, name=MIN_ISR, value=value, is_set=is_set)
        scene.last(step.for_s)
    yield
    try:
        wait_until(lambda: set_option(scene, MIN_ISR, old), 30.0, f"{MIN_ISR} is {old} again")
    except NeverHappenedError:
        scene.tell("option", NOTE, name=MIN_ISR, value=old, is_set=False)


_NOTHING: Final = frozenset[Any]()
KINDS: Final = (
    Kind(
        "min-isr",
        "min.insync.replicas of all topics changes, and changes back",
        _NOTHING,
        min_isr,
        (("values", (3, 1)), ("usual", 2)),
    ),
)
