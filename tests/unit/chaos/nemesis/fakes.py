"""A cluster that only writes down what is done to it, and a scene on top of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from ottla.chaos.evidence import FaultEvent, FinalRead, ReplicaPrint
from ottla.chaos.history import Place
from ottla.chaos.nemesis.scene import Scene
from ottla.chaos.nemesis.view import Seen, View
from ottla.chaos.ports import WHOLE, LinkFault, Means


class FakeBackend:
    """Nodes 1 to n; the first three vote unless there are others for that."""

    name = "fake"
    system = "nothing"

    def __init__(self, root: Path, nodes: int = 3, controllers: Sequence[int] = ()) -> None:
        self.root = root
        self.nodes = tuple(range(1, nodes + 1))
        self.controllers = tuple(controllers) or self.nodes[:3]
        self.means = frozenset(Means)
        self.calls = list[tuple[Any, ...]]()
        self.down = set[int]()
        self.links = dict[tuple[int, int], LinkFault]()
        self.client_links = dict[int, tuple[LinkFault, LinkFault]]()
        self.faults = dict[int, list[str]]()
        self.unplugged = set[int]()
        # How often each fault of a disk, a clock or a way is met.
        self.met = 1

    @property
    def cut(self) -> set[tuple[int, int]]:
        return {way for way, fault in self.links.items() if fault.is_cut}

    def start(self) -> None:
        self.calls.append(("start",))

    def close(self) -> None:
        self.calls.append(("close",))

    def bootstrap(self, node: int) -> str:
        return f"client-{node}:1"

    def inside(self, node: int) -> str:
        return f"inside-{node}:1"

    def is_running(self, node: int) -> bool:
        return node not in self.down

    def is_ready(self, node: int) -> bool:
        return node not in self.down

    def active_controller(self) -> int | None:
        return self.controllers[0]

    def kill(self, nodes: Sequence[int]) -> None:
        self.calls.append(("kill", *nodes))
        self.down |= set(nodes)

    def cut_power(self, nodes: Sequence[int]) -> None:
        self.calls.append(("power", *nodes))
        self.down |= set(nodes)

    def stop(self, nodes: Sequence[int]) -> dict[int, int]:
        self.calls.append(("stop", *nodes))
        self.down |= set(nodes)
        return dict.fromkeys(nodes, 0)

    def exit_code(self, node: int) -> int | None:
        return -9 if node in self.down else None

    def begin(self, node: int, environment: Mapping[str, str] | None = None) -> None:
        self.calls.append(("begin", node))
        self.down.discard(node)

    def start_twin(self, node: int, *, on_same_files: bool) -> int | None:
        self.calls.append(("twin", node, on_same_files))
        return 1

    def wait_ready(self, nodes: Sequence[int], deadline_s: float) -> None:
        self.calls.append(("ready", *nodes))

    def pause(self, node: int) -> None:
        self.calls.append(("pause", node))

    def resume(self, node: int) -> None:
        self.calls.append(("resume", node))

    def set_link(self, source: int, target: int, fault: LinkFault) -> None:
        self.links[source, target] = fault
        if fault == WHOLE:
            del self.links[source, target]

    def weather_met(self, source: int, target: int) -> int:
        return self.met if (source, target) in self.links else 0

    def set_client_link(self, node: int, to_node: LinkFault, from_node: LinkFault) -> None:
        self.client_links[node] = (to_node, from_node)
        if (to_node, from_node) == (WHOLE, WHOLE):
            del self.client_links[node]

    def unplug(self, node: int) -> None:
        self.calls.append(("unplug", node))
        self.unplugged.add(node)

    def plug_in(self, node: int) -> None:
        self.calls.append(("plug_in", node))
        self.unplugged.discard(node)

    def set_faults(self, node: int, clauses: Sequence[str]) -> int:
        self.calls.append(("faults", node, *clauses))
        before, self.faults[node] = self.faults.get(node), list(clauses)
        return self.met if before else 0

    def data_dir(self, node: int) -> Path:
        return self.root / str(node)

    def wipe(self, node: int) -> None:
        self.calls.append(("wipe", node))

    def limit_memory(self, node: int, more_bytes: int | None) -> None:
        self.calls.append(("memory", node, more_bytes))

    def trace_files(self) -> Sequence[Path]:
        return ()

    def replica_prints(self, topics: Mapping[str, int], turn: int) -> list[ReplicaPrint]:
        return []

    def verify_offline(self) -> dict[int, list[str]]:
        return {}

    def offline_reads(self, places: Sequence[Place]) -> list[FinalRead]:
        return []

    def log_lines(self) -> dict[int, list[tuple[int, str]]]:
        return {}

    def resources(self) -> dict[int, Mapping[str, Any]]:
        return {}


class FakeScene(Scene):
    """A scene in which time does not pass, and everybody is in sync unless they are cut off."""

    def __init__(self, backend: FakeBackend, seed: int = 1) -> None:
        self.told = list[FaultEvent]()
        super().__init__(backend, ["a"], Random(seed), self.told.append)
        self.fake = backend
        self.lasted = list[float]()

    @property
    def story(self) -> list[tuple[str, str, tuple[int, ...]]]:
        return [(one.fault, one.step, one.targets) for one in self.told if one.step != "note"]

    def views(self) -> dict[int, View]:
        seen = dict[Place, Seen]()
        for at, leader in enumerate(self.fake.nodes):
            order = [*self.fake.nodes[at:], *self.fake.nodes[:at]][:3]
            isr = [one for one in order if one == leader or not self._is_cut_off(one)]
            alive = [one for one in isr if one not in self.fake.down]
            seen[Place("a", at)] = Seen(alive[0] if alive else -1, 0, tuple(order), tuple(alive))
        return dict.fromkeys(self.running, seen)

    def _is_cut_off(self, node: int) -> bool:
        return any(node in way for way in self.fake.cut)

    def last(self, seconds: float) -> None:
        self.lasted.append(seconds)
