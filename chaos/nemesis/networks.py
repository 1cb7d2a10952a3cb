"""Faults of the ways between nodes, and between clients and nodes.

Not here: bytes (`backends/pipes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.chaos.clock import now_s
from ottla.chaos.nemesis.kind import Kind
from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import NOTE, Scene
from ottla.chaos.ports import WHOLE, LinkFault, Means

CUT: Final = LinkFault(is_cut=True)
RESET: Final = LinkFault(is_reset=True)
Ways = Iterable[tuple[int, int]]


def between(some: Iterable[int], others: Iterable[int]) -> list[tuple[int, int]]:
    """Return all ways from some to others and back, each of them once."""
    others = tuple(others)
    there = [(one, other) for one in some for other in others if one != other]
    return list(dict.fromkeys([*there, *((other, one) for one, other in there)]))


def ring(nodes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the ways to cut so that each node reaches a majority, and no two the same one.

    Each keeps half of its neighbours on the one side and half on the other.
    """
    reach = len(nodes) // 4 or 1
    return [
        (one, other)
        for at, one in enumerate(nodes)
        for to, other in enumerate(nodes)
        if min((at - to) % len(nodes), (to - at) % len(nodes)) > reach
    ]


def set_ways(scene: Scene, ways: Ways, fault: LinkFault) -> None:
    for source, target in ways:
        scene.backend.set_link(source, target, fault)


def _cut(scene: Scene, ways: Ways) -> Iterator[None]:
    ways = list(ways)
    set_ways(scene, ways, CUT)
    yield
    set_ways(scene, ways, WHOLE)


def isolate(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    others = [node for node in scene.everybody if node not in targets]
    return _cut(scene, between(targets, others))


def one_way(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    first, second = targets
    is_back = bool(step.facts.get("back", False))
    return _cut(scene, [(second, first) if is_back else (first, second)])


def ring_cut(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    drawn = list(scene.everybody)
    scene.dice.shuffle(drawn)
    return _cut(scene, ring(tuple(drawn)))


def from_controllers(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    return _cut(scene, between(targets, scene.backend.controllers))


def controllers_apart(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    own = scene.backend.controllers
    return _cut(scene, [(one, other) for one in own for other in own if one != other])


def weather(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    bad = LinkFault(
        delay_ms=int(step.facts.get("delay_ms", 100)),
        jitter_ms=int(step.facts.get("jitter_ms", 50)),
        loss_per_mille=int(step.facts.get("loss_per_mille", 50)),
        bytes_per_s=int(step.facts.get("bytes_per_s", 125_000)),
    )
    ways = between(targets, scene.everybody)
    set_ways(scene, ways, bad)
    yield
    _tell_met(scene, targets, ways, step.fault)
    set_ways(scene, ways, WHOLE)


def _tell_met(scene: Scene, targets: tuple[int, ...], ways: Ways, fault: str) -> None:
    """Tell how much has met a fault of ways, and on how many of them anything has."""
    met = [scene.backend.weather_met(source, target) for source, target in ways]
    on = f"{sum(1 for one in met if one)} of {len(met)} ways"
    scene.tell("met", NOTE, targets, what=fault, times=sum(met), on=on)


def unplug(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    for node in targets:
        scene.backend.unplug(node)
    yield
    for node in targets:
        scene.backend.plug_in(node)


def client_cut(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    for node in targets:
        scene.backend.set_client_link(node, CUT, CUT)
    yield
    for node in targets:
        scene.backend.set_client_link(node, WHOLE, WHOLE)


def client_resets(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Break the connections of clients again and again, at moments of the dice."""
    end_s = now_s() + step.for_s
    while now_s() < end_s:
        for node in targets:
            # First the answers are held back: what is on its way then has happened already.
            scene.backend.set_client_link(node, WHOLE, CUT)
            scene.last(scene.dice.uniform(0.0, 0.1))
            scene.backend.set_client_link(node, RESET, RESET)
            scene.backend.set_client_link(node, WHOLE, WHOLE)
        scene.last(scene.dice.uniform(0.05, 0.4))
    yield


_LINKS: Final = frozenset({Means.LINKS})
_CLIENTS: Final = frozenset({Means.CLIENT_LINKS})
KINDS: Final = (
    Kind("isolate", "cut off from all other nodes; clients still reach it", _LINKS, isolate),
    Kind(
        "one-way",
        "nothing passes from the first to the second; back it does",
        _LINKS,
        one_way,
        (("back", False),),
    ),
    Kind("ring", "each node reaches a majority, and no two the same one", _LINKS, ring_cut),
    Kind("from-controllers", "cut off from the controllers only", _LINKS, from_controllers),
    Kind(
        "controllers-apart", "controllers are cut off from one another", _LINKS, controllers_apart
    ),
    Kind(
        "weather",
        "delay, jitter, lost packets and little throughput",
        frozenset({Means.WEATHER}),
        weather,
        (("delay_ms", 100), ("jitter_ms", 50), ("loss_per_mille", 50), ("bytes_per_s", 125_000)),
    ),
    Kind(
        "unplug",
        "off its network: neither nodes nor clients reach it; then back",
        frozenset({Means.UNPLUG}),
        unplug,
    ),
    Kind("client-cut", "clients get no byte through", _CLIENTS, client_cut),
    Kind("client-resets", "connections of clients break, over and over", _CLIENTS, client_resets),
)
