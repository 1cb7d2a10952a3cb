"""Stories in several acts, each of which once lost somebody's data.

Not here: single faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from ottla.chaos.clock import NeverHappenedError, wait_until
from ottla.chaos.history import Place
from ottla.chaos.nemesis.admin import elect_unclean
from ottla.chaos.nemesis.disks import suffer, tell_met
from ottla.chaos.nemesis.kind import Kind
from ottla.chaos.nemesis.networks import CUT, RESET, between, set_ways
from ottla.chaos.nemesis.nodes import go_on, hang
from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import HEAL, INJECT, NOTE, Scene
from ottla.chaos.nemesis.view import Seen
from ottla.chaos.ports import WHOLE, HarnessError, LinkFault, Means

_SHRINK_S: Final = 20.0
Swap = Callable[[Scene, Sequence[int]], None]


def _cut_off(scene: Scene, nodes: Sequence[int]) -> None:
    others = [one for one in scene.everybody if one not in nodes]
    set_ways(scene, between(nodes, others), CUT)


def _join(scene: Scene, nodes: Sequence[int]) -> None:
    set_ways(scene, between(nodes, scene.everybody), WHOLE)


@contextmanager
def _told(scene: Scene, fault: str, targets: Sequence[int]) -> Iterator[None]:
    scene.tell(fault, INJECT, targets)
    try:
        yield
    finally:
        scene.tell(fault, HEAL, targets)


def _wait_or_tell(
    scene: Scene, holds: Callable[[], bool], what: str, *, is_needed: bool = True
) -> None:
    """Wait for a while, and tell if it was in vain; without what is needed the story is another."""
    try:
        wait_until(holds, _SHRINK_S, what)
    except NeverHappenedError:
        scene.tell("never", NOTE, what=what, is_needed=is_needed)


def power_then_kill(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """C13: a follower loses power and is back at once; before anybody looks, the leader dies.

    1. The follower is in sync, and what it had not synced is gone.
    2. It starts again within its session, so nobody was told that it was away.
    3. The leader dies. If the follower may lead as it is, what it lost is lost.
    """
    leader, follower = targets
    with _told(scene, "power", [follower]):
        scene.backend.cut_power([follower])
        scene.begin([follower])
    with _told(scene, "kill", [leader]):
        scene.backend.kill([leader])
        yield
        scene.begin([leader])


def _swap(scene: Scene, step: Step, away: Swap, back: Swap, fault: str) -> Iterator[None]:
    """Lose sight of A; lose C's power; then see A and C, and lose sight of the rest."""
    drawn = list(scene.backend.nodes)
    scene.dice.shuffle(drawn)
    few = (len(drawn) - 1) // 2
    first, victim, rest = drawn[:few], drawn[few], drawn[few + 1 :]
    with _told(scene, fault, first):
        away(scene, first)
        scene.last(step.for_s)
        scene.tell("power", INJECT, [victim])
        scene.backend.cut_power([victim])
        back(scene, first)
    with _told(scene, fault, rest):
        away(scene, rest)
        scene.begin([victim])
        scene.tell("power", HEAL, [victim])
        yield
        back(scene, rest)


def part_kill(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """C14: what a majority acknowledged must be with every majority that comes after it."""
    return _swap(scene, step, _cut_off, _join, "isolate")


def pause_kill(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """C15: the same with nodes that hang."""
    return _swap(scene, step, hang, go_on, "pause")


def last_standing(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """C16: the leader is alone in sync when its power fails, and the others come back first.

    Nobody may lead then, unless they hold everything that was acknowledged.
    """
    place, seen = _chosen(scene)
    first, second = (node for node in seen.replicas if node != seen.leader)
    with _told(scene, "isolate", [first]):
        _cut_off(scene, [first])
        _wait_or_tell(scene, lambda: first not in _isr(scene, place), f"{first} is out of sync")
        with _told(scene, "isolate", [second]):
            _cut_off(scene, [second])
            # Where brokers vote too, nobody is left who could write that down.
            is_out = partial(_is_out, scene, seen.leader, place, second)
            _wait_or_tell(scene, is_out, f"{second} is out", is_needed=False)
            scene.last(step.for_s)
            scene.tell("power", INJECT, [seen.leader])
            scene.backend.cut_power([seen.leader])
            _join(scene, [first, second])
    yield
    scene.begin([seen.leader])
    scene.tell("power", HEAL, [seen.leader])


def heirs(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """A leader dies, and its heir as soon as it leads, before the third has fetched from it.

    The third is in sync: it has all that was acknowledged, and must not have thrown it away.
    """
    place, seen = _chosen(scene)
    slow = LinkFault(delay_ms=int(step.facts.get("delay_ms", 150)))
    ways = between(seen.replicas, seen.replicas)
    with _told(scene, "weather", seen.replicas):
        set_ways(scene, ways, slow)
        scene.last(step.for_s)
        scene.tell("kill", INJECT, [seen.leader])
        scene.backend.kill([seen.leader])
        heir = _heir(scene, place, seen.leader)
        if heir is not None:
            scene.tell("kill", INJECT, [heir])
            scene.backend.kill([heir])
        set_ways(scene, ways, WHOLE)
    yield
    for node in (seen.leader, heir):
        if node is not None:
            scene.begin([node])
            scene.tell("kill", HEAL, [node])


def early_joiner(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """A new leader does not know yet how far the old one had acknowledged (rule 37).

    1. The third hears nothing more, and leaves the in-sync set: the leader and its heir go on.
    2. The leader dies before its heir has heard of the high watermark.
    3. The third asks the heir for more. It holds all up to the high watermark that the heir knows,
       and lacks what was acknowledged since: it must not be taken in.
    4. As soon as it is in sync, whenever that is, the heir dies.
    """
    place, seen = _chosen(scene)
    heir, third = scene.dice.sample([one for one in seen.replicas if one != seen.leader], k=2)
    late = LinkFault(delay_ms=int(step.facts.get("news_ms", 700)))
    slow = LinkFault(delay_ms=int(step.facts.get("delay_ms", 900)))
    with _told(scene, "isolate", [third]):
        set_ways(scene, [(seen.leader, heir)], late)
        scene.last(step.for_s)
        set_ways(scene, between([third], [seen.leader, heir]), CUT)
        _wait_or_tell(scene, partial(_is_out, scene, seen.leader, place, third), f"{third} is out")
        scene.tell("kill", INJECT, [seen.leader])
        scene.backend.kill([seen.leader])
        # What the leader sent is on its way no more.
        set_ways(scene, between([seen.leader], [heir, third]), RESET)
    with _told(scene, "weather", [heir, third]):
        _wait_or_tell(scene, lambda: _leads(scene, heir, place), f"{heir} leads {place}")
        set_ways(scene, [(heir, third)], slow)
        set_ways(scene, [(third, heir)], WHOLE)
        _wait_or_tell(
            scene, lambda: third in _isr_at(scene, heir, place), f"{third} is in sync with {heir}"
        )
        set_ways(scene, between([heir], [third]), RESET)
        scene.tell("kill", INJECT, [heir])
        scene.backend.kill([heir])
    set_ways(scene, between(seen.replicas, seen.replicas), WHOLE)
    yield
    for node in (seen.leader, heir):
        scene.begin([node])
        scene.tell("kill", HEAL, [node])


def slow_then_dark(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Copies sync slowly; all lose power; the leader, which had synced, is back last (rule 47).

    What was acknowledged must be on the disks of those who lead now.
    """
    place, seen = _chosen(scene)
    copies = [one for one in seen.replicas if one != seen.leader]
    with _told(scene, "disk-slow", copies):
        suffer(scene, copies, [f"slow_sync_ms={int(step.facts.get('sync_ms', 300))}"])
        scene.last(float(step.facts.get("slow_s", 3)))
        scene.tell("power", INJECT, scene.everybody)
        scene.backend.cut_power(scene.everybody)
    yield from _led_by_copies(scene, place, seen.leader, copies)


def failing_then_dark(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Copies cannot sync; all lose power; the leader, which could, is back last (rule 48).

    1. Every sync of a copy fails: what it wrote is on no disk, and its kernel forgets that.
    2. A copy that takes this for a success claims to hold it, and so it is acknowledged.
    3. After the cut that copy leads before the leader is back, without what was acknowledged.

    Copies that know better are out of sync by then, and need not lead.
    """
    place, seen = _chosen(scene)
    copies = [one for one in seen.replicas if one != seen.leader]
    with _told(scene, "disk-error", copies):
        suffer(scene, copies, ["eio=sync:*.log:1+"])
        scene.last(float(step.facts.get("failing_s", 4)))
        # It works again, and that brings nothing back: what was not written stays unwritten.
        tell_met(scene, copies, "disk-error", suffer(scene, copies, ()))
        scene.tell("power", INJECT, scene.everybody)
        scene.backend.cut_power(scene.everybody)
    yield from _led_by_copies(scene, place, seen.leader, copies, is_needed=False)


def _led_by_copies(
    scene: Scene, place: Place, leader: int, copies: Sequence[int], *, is_needed: bool = True
) -> Iterator[None]:
    """Start all but the leader, which comes back when a copy leads, or does not for long."""
    scene.begin([one for one in scene.everybody if one != leader])
    scene.wait_ready(copies)
    suffer(scene, copies, ())

    def holds() -> bool:
        now = scene.view().get(place)
        return now is not None and now.leader in copies

    _wait_or_tell(scene, holds, f"a copy leads {place}", is_needed=is_needed)
    yield
    scene.begin([leader])
    scene.tell("power", HEAL, scene.everybody)


def _leads(scene: Scene, node: int, place: Place) -> bool:
    told = scene.views().get(node, {}).get(place)
    return told is not None and told.leader == node


def _is_out(scene: Scene, leader: int, place: Place, node: int) -> bool:
    return node not in _isr_at(scene, leader, place)


def _isr_at(scene: Scene, node: int, place: Place) -> tuple[int, ...]:
    """Return who is in sync as one node says, who leads."""
    told = scene.views().get(node, {}).get(place)
    return () if told is None else told.isr


def _heir(scene: Scene, place: Place, dead: int) -> int | None:
    """Return who leads next, as soon as anybody says so; None: nobody did for long."""

    def holds() -> bool:
        now = scene.view().get(place)
        return now is not None and now.leader not in (-1, dead)

    _wait_or_tell(scene, holds, f"somebody leads {place}")
    now = scene.view().get(place)
    return None if now is None or now.leader in (-1, dead) else now.leader


def wiped_heir(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """One that may lead comes back on an empty disk, and the one that has everything is away.

    1. The third dies, then the heir, then the leader: the heir had all that was acknowledged.
    2. The heir comes back without its disk: its name may lead, and that is all it has (rule 54).
    3. The third comes back, and must not follow anybody below what it holds (rule 44).
    """
    place, seen = _chosen(scene)
    heir, third = scene.dice.sample([one for one in seen.replicas if one != seen.leader], k=2)
    gone = (third, heir, seen.leader)
    for node in (third, heir):
        scene.tell("kill", INJECT, [node])
        scene.backend.kill([node])
        is_out = partial(_is_out, scene, seen.leader, place, node)
        _wait_or_tell(scene, is_out, f"{node} is out")
    scene.tell("kill", INJECT, [seen.leader])
    scene.backend.kill([seen.leader])
    with _told(scene, "wipe", [heir]):
        scene.backend.wipe(heir)
        scene.begin([heir])
        scene.wait_ready([heir])
        scene.last(step.for_s)
        scene.begin([third])
        scene.wait_ready([third])
    yield
    scene.begin([seen.leader])
    for node in gone:
        scene.tell("kill", HEAL, [node])


def stale_leader(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """A follower misses what was acknowledged, and is then the only one that is left.

    It must not lead. With `unclean.leader.election.enable` it does, and that loses records.
    """
    place, seen = _chosen(scene)
    stale, *others = (node for node in seen.replicas if node != seen.leader)
    gone = (seen.leader, *others)
    with _told(scene, "isolate", [stale]):
        _cut_off(scene, [stale])
        _wait_or_tell(scene, lambda: stale not in _isr(scene, place), f"{stale} is out of sync")
        scene.last(step.for_s)
        scene.tell("kill", INJECT, gone)
        scene.backend.kill(gone)
        _join(scene, [stale])
    yield
    scene.begin(gone)
    scene.tell("kill", HEAL, gone)


def _chosen(scene: Scene) -> tuple[Place, Seen]:
    """Return a partition of which all three copies are in sync."""
    whole = [(k, v) for k, v in scene.led().items() if v.is_whole and len(v.replicas) == 3]
    if not whole:
        raise HarnessError("no partition has three copies in sync")
    return scene.dice.choice(sorted(whole))


def _isr(scene: Scene, place: Place) -> tuple[int, ...]:
    seen = scene.view().get(place)
    return () if seen is None else seen.isr


def swizzle(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """C25: one node after the other is cut off, and joined again in another order."""
    clogged = scene.dice.sample(scene.everybody, k=max(2, len(scene.everybody) - 1))
    pause_s = step.for_s / len(clogged)
    for node in clogged:
        scene.tell("isolate", INJECT, [node])
        _cut_off(scene, [node])
        scene.last(pause_s)
    yield
    scene.dice.shuffle(clogged)
    still = list(clogged)
    for node in clogged:
        still.remove(node)
        # Those that are cut off still stay so.
        set_ways(
            scene, between([node], [one for one in scene.everybody if one not in still]), WHOLE
        )
        scene.tell("isolate", HEAL, [node])
        scene.last(pause_s)


def dark(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """C12 without syncing: all lose power; what nobody may lead is led by whoever is there."""
    with _told(scene, "power", scene.everybody):
        scene.backend.cut_power(scene.everybody)
        scene.begin(scene.everybody)
        scene.wait_ready(scene.everybody)
    scene.last(step.for_s)
    elect_unclean(scene)
    yield


_LINKS_AND_POWER: Final = frozenset({Means.LINKS, Means.POWER})
KINDS: Final = (
    Kind(
        "power-then-kill",
        "a follower loses power and is back at once; then the leader is killed",
        frozenset({Means.POWER, Means.KILL}),
        power_then_kill,
        is_script=True,
    ),
    Kind(
        "part-kill",
        "cut off A, cut C's power, see A and C again and not the rest",
        _LINKS_AND_POWER,
        part_kill,
        is_script=True,
    ),
    Kind(
        "pause-kill",
        "the same with nodes that hang",
        frozenset({Means.PAUSE, Means.POWER}),
        pause_kill,
        is_script=True,
    ),
    Kind(
        "last-standing",
        "a leader alone in sync loses power, and the others come back first",
        _LINKS_AND_POWER,
        last_standing,
        is_script=True,
    ),
    Kind(
        "heirs",
        "a leader is killed, and the next one as soon as it leads, on slow links",
        frozenset({Means.KILL, Means.WEATHER}),
        heirs,
        (("delay_ms", 150),),
        is_script=True,
    ),
    Kind(
        "early-joiner",
        "a follower lacks what was acknowledged, its new leader does not know; then that one dies",
        frozenset({Means.KILL, Means.LINKS, Means.WEATHER}),
        early_joiner,
        (("news_ms", 700), ("delay_ms", 900)),
        is_script=True,
    ),
    Kind(
        "slow-then-dark",
        "copies are slow to sync; then all lose power, and the leader is back last",
        frozenset({Means.DISK, Means.POWER}),
        slow_then_dark,
        (("sync_ms", 300), ("slow_s", 3)),
        is_script=True,
    ),
    Kind(
        "failing-then-dark",
        "copies cannot sync; then all lose power, and the leader is back last",
        frozenset({Means.DISK, Means.POWER}),
        failing_then_dark,
        (("failing_s", 4),),
        is_script=True,
    ),
    Kind(
        "wiped-heir",
        "one that may lead is back on an empty disk while those that have everything are away",
        frozenset({Means.KILL, Means.WIPE}),
        wiped_heir,
        is_script=True,
        needs_whole=True,
    ),
    Kind(
        "stale-leader",
        "a follower that lacks what was acknowledged is the only one left",
        frozenset({Means.LINKS, Means.KILL}),
        stale_leader,
        is_script=True,
    ),
    Kind(
        "swizzle",
        "nodes are cut off one by one, and joined in another order",
        frozenset({Means.LINKS}),
        swizzle,
        is_script=True,
    ),
    Kind(
        "dark",
        "all lose power; then an unclean election of what nobody leads",
        frozenset({Means.POWER, Means.UNCLEAN}),
        dark,
        is_script=True,
    ),
)
