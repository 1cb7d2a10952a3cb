"""Weather between containers: made, renewed, counted and taken away where its sender is."""

from __future__ import annotations

import json

import pytest

from ottla.chaos.backends import netem
from ottla.chaos.backends.weather import Weather, why_no_netem
from ottla.chaos.ports import WHOLE, HarnessError, LinkFault

SLOW = LinkFault(delay_ms=5)
LOSSY = LinkFault(loss_per_mille=10)


class Kernel:
    """Says where nodes are, and keeps the lines of each network; every netem meets ten packets."""

    def __init__(self) -> None:
        self.pids = {1: 101, 2: 102, 3: 103}
        self.known = {node: [f"10.0.0.{node}"] for node in self.pids}
        self.lines = dict[int, list[str]]()
        self.changes = 0
        self.is_willing = True

    def pid(self, node: int) -> int:
        return self.pids[node]

    def addresses(self, node: int) -> list[str]:
        return self.known[node]

    def change(self, pid: int, lines: list[str]) -> tuple[int, str]:
        self.changes += 1
        for line in lines:
            if line == netem.CALM:
                self.lines.pop(pid, None)
            elif not self.is_willing:
                return 2, "Error: no."
            else:
                self.lines.setdefault(pid, []).append(line)
        return 0, ""

    def statistics(self, pid: int) -> str:
        made = (line.split() for line in self.lines.get(pid, ()) if "netem" in line)
        counted = {"packets": 10, "drops": 0, "qlen": 0}
        return json.dumps([{"kind": "netem", "handle": words[7], **counted} for words in made])

    def restart(self, node: int, address: str) -> None:
        self.lines.pop(self.pids[node], None)
        self.pids[node] += 1000
        self.known[node] = [address]

    def suffered(self, node: int) -> list[str]:
        """Return to which addresses packets of a node suffer."""
        mine = self.lines.get(self.pids[node], ())
        return [line.partition(" dst ")[2].split()[0] for line in mine if " dst " in line]


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def weather(kernel: Kernel) -> Weather:
    return Weather(kernel, kernel)


def test_it_is_made_where_its_sender_is_and_goes_again(kernel: Kernel, weather: Weather) -> None:
    weather.set(1, 2, SLOW)
    weather.set(1, 3, LOSSY)
    assert kernel.suffered(1) == ["10.0.0.2/32", "10.0.0.3/32"]
    assert not kernel.suffered(2)
    weather.set(1, 2, WHOLE)
    assert kernel.suffered(1) == ["10.0.0.3/32"]
    weather.set(1, 3, WHOLE)
    assert kernel.lines == {}


def test_what_holds_already_changes_nothing(kernel: Kernel, weather: Weather) -> None:
    weather.set(1, 2, WHOLE)
    weather.set(1, 2, SLOW)
    weather.set(1, 2, SLOW)
    assert kernel.changes == 1


def test_it_stays_when_its_sender_starts_anew(kernel: Kernel, weather: Weather) -> None:
    weather.set(1, 2, SLOW)
    kernel.restart(1, "10.0.0.1")
    weather.renew(1)
    assert kernel.suffered(1) == ["10.0.0.2/32"]


def test_it_follows_a_receiver_with_another_address(kernel: Kernel, weather: Weather) -> None:
    weather.set(1, 2, SLOW)
    weather.set(3, 1, SLOW)
    kernel.restart(2, "10.0.0.7")
    weather.renew(2)
    assert kernel.suffered(1) == ["10.0.0.7/32"]
    assert kernel.changes == 3


@pytest.mark.parametrize("is_down", [True, False])
def test_who_is_down_or_off_its_network_has_it_when_it_is_back(
    kernel: Kernel, weather: Weather, is_down: bool
) -> None:
    if is_down:
        kernel.pids[1] = 0
    else:
        kernel.known[1] = []
    weather.set(1, 2, SLOW)
    assert kernel.lines == {}
    assert weather.met(1, 2) == 0
    kernel.restart(1, "10.0.0.1")
    weather.renew(1)
    assert kernel.suffered(1) == ["10.0.0.2/32"]


def test_packets_are_counted_from_when_it_was_set_also_across_what_was_put_anew(
    kernel: Kernel, weather: Weather
) -> None:
    assert weather.met(1, 2) == 0
    weather.set(1, 2, SLOW)
    weather.set(1, 3, SLOW)
    kernel.restart(3, "10.0.0.9")
    weather.renew(3)
    assert (weather.met(1, 2), weather.met(1, 3), weather.met(2, 1)) == (30, 20, 0)
    weather.set(1, 2, LOSSY)
    assert weather.met(1, 2) == 10


def test_a_kernel_that_refuses_is_told(kernel: Kernel, weather: Weather) -> None:
    kernel.is_willing = False
    with pytest.raises(HarnessError, match="network of node 1: Error: no"):
        weather.set(1, 2, SLOW)


def test_whether_a_kernel_offers_it_is_tried_and_leaves_nothing(kernel: Kernel) -> None:
    assert why_no_netem(7, kernel) is None
    kernel.is_willing = False
    assert why_no_netem(7, kernel) == "the kernel does not offer it (Error: no.)"
    assert kernel.lines == {}
