"""Nodes that die at a named place of their code: at one, or at every one in turn.

Some places are passed all the time. Others are passed only for a reason: a log is cut when a leader
comes back that was cut off while clients wrote to it; somebody begins to lead, or proposes another
in-sync set, when another node is gone. To come to every place in turn such a reason is given.

Not here: which places there are (docs/generated/FAILPOINTS.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ottla.chaos.clock import NeverHappenedError, wait_until
from ottla.chaos.nemesis.disks import suffer
from ottla.chaos.nemesis.kind import Kind
from ottla.chaos.nemesis.networks import CUT, between, set_ways
from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import NOTE, Scene
from ottla.chaos.ports import WHOLE, Means

# Places that a broker passes while it works (docs/generated/FAILPOINTS.md).
PLACES: Final = (
    "log.append.before", "log.append.after", "log.sync.before", "log.sync.after",
    "log.roll.before", "log.roll.after", "log.epoch.before", "log.epoch.after",
    "log.truncate.begin", "log.truncate.state", "log.truncate.files", "log.truncate.end",
    "log.checkpoint.before", "log.checkpoint.after", "log.snapshot.before", "log.snapshot.after",
    "log.delete.before", "log.delete.after", "state.commit.before", "state.commit.after",
    "leader.lead.before", "leader.lead.after", "leader.feed", "replica.commit",
    "isr.propose.before", "isr.propose.after", "isr.commit.before", "isr.commit.after",
    "follower.append.before", "follower.append.after", "follower.claim",
)  # fmt: skip
# Places of a start, which are armed before it.
START_PLACES: Final = ("log.recovery.before", "log.recovery.truncate", "log.recovery.after")


Reason = Callable[[Scene, Sequence[int]], Iterator[None]]


# ── Reasons ───────────────────────────────────────────────────────────────────────────────────


def _none(scene: Scene, targets: Sequence[int]) -> Iterator[None]:
    yield


def _come_back(scene: Scene, targets: Sequence[int]) -> Iterator[None]:
    """Cut it off, until others lead what it led, and join it: what nobody else has, it cuts."""
    ways = between(targets, [one for one in scene.everybody if one not in targets])
    set_ways(scene, ways, CUT)
    yield
    set_ways(scene, ways, WHOLE)
    yield


def _lose_another(scene: Scene, targets: Sequence[int]) -> Iterator[None]:
    """Kill somebody else, and start it again: leaders and in-sync sets change, twice."""
    another = scene.dice.choice([one for one in scene.backend.nodes if one not in targets])
    scene.backend.kill([another])
    yield
    scene.begin([another])
    yield


# By how the names of places begin.
_REASONS: Final[dict[str, Reason]] = {
    "log.truncate.": _come_back,
    "log.epoch.": _lose_another,
    "leader.lead.": _lose_another,
    "isr.": _lose_another,
}
# Places that are passed now and then are waited for so many times as long: what is old is deleted
# when it is old.
_RARE: Final = {"log.delete.": 7}


def _of(place: str, table: dict[str, Reason]) -> Reason:
    return next((made for begin, made in table.items() if place.startswith(begin)), _none)


def _patience_s(place: str, for_s: float) -> float:
    return next((for_s * one for begin, one in _RARE.items() if place.startswith(begin)), for_s)


# ── Dying there ───────────────────────────────────────────────────────────────────────────────


def failpoint(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Kill a node when it comes to a named place; if it never does, nothing has happened."""
    place = str(step.facts.get("place", "any"))
    if place == "any":
        place = scene.dice.choice(PLACES)
    nth = scene.dice.randint(1, int(step.facts.get("nth_max", 5)))
    action = str(step.facts.get("action", "kill"))
    _die_at(scene, targets, place, f"{action}@{nth}", step.for_s)
    yield
    scene.begin(targets)


def each_failpoint(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Come to every place in turn, on a node that is chosen anew each time."""
    for place in PLACES:
        target = scene.choose(step.target)
        for_s = _patience_s(place, step.for_s)
        _die_at(scene, target, place, "kill@1", for_s, _of(place, _REASONS))
        scene.begin(target)
        scene.wait_whole(60.0)
    yield


def _die_at(
    scene: Scene,
    targets: Sequence[int],
    place: str,
    action: str,
    for_s: float,
    reason: Reason = _none,
) -> None:
    """Have it die there, and tell whether it did."""
    if place in START_PLACES:
        scene.backend.kill(targets)
        for node in targets:
            scene.backend.begin(node, {"OTTLA_FAILPOINTS": f"{place}={action}"})
    else:
        suffer(scene, targets, [f"failpoint={place}:{action}"])
    is_reached = False
    # To its end in any case: whatever a reason has broken it mends.
    for _ in reason(scene, targets):
        is_reached = is_reached or _is_dead(scene, targets, place, for_s)
    if not is_reached:
        suffer(scene, targets, ())
    scene.tell("failpoint", NOTE, targets, place=place, action=action, is_reached=is_reached)


def _is_dead(scene: Scene, targets: Sequence[int], place: str, within_s: float) -> bool:
    def holds() -> bool:
        return not all(map(scene.backend.is_running, targets))

    try:
        wait_until(holds, within_s, f"{place} is reached")
    except NeverHappenedError:
        return False
    return True


KINDS: Final = (
    Kind(
        "failpoint",
        "killed when it comes to a named place of its code",
        frozenset({Means.FAILPOINTS}),
        failpoint,
        (("place", "any"), ("nth_max", 5), ("action", "kill")),
    ),
    Kind(
        "each-failpoint",
        "the same at every place in turn, with a reason to come there",
        frozenset({Means.FAILPOINTS, Means.LINKS, Means.KILL}),
        each_failpoint,
    ),
)
