"""Ways between containers: what is asked of iptables, of netem and of nobody."""

from __future__ import annotations

import pytest

from ottla.chaos.backends.cuts import Cuts
from ottla.chaos.backends.ways import KernelWays
from ottla.chaos.backends.weather import Weather
from ottla.chaos.ports import WHOLE, HarnessError, LinkFault
from tests.unit.chaos.backends.test_weather import Kernel

CUT = LinkFault(is_cut=True)
SLOW = LinkFault(delay_ms=5)


class Machine(Kernel):
    """The same with rules of iptables."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = list[tuple[int, str, str]]()

    def act(self, pid: int, action: str, address: str) -> None:
        self.rules.append((pid, action, address))


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def ways(machine: Machine) -> KernelWays:
    return KernelWays(Cuts(machine, machine.act), Weather(machine, machine))


def test_a_cut_takes_the_place_of_weather_and_the_other_way_round(
    machine: Machine, ways: KernelWays
) -> None:
    ways.set(1, 2, SLOW)
    assert (machine.suffered(1), machine.rules) == (["10.0.0.2/32"], [])
    assert ways.met(1, 2) == 10
    ways.set(1, 2, CUT)
    assert (machine.suffered(1), machine.rules) == ([], [(102, "-I", "10.0.0.1")])
    ways.set(1, 2, SLOW)
    assert (machine.suffered(1), machine.rules[1:]) == (
        ["10.0.0.2/32"],
        [(102, "-D", "10.0.0.1")],
    )
    ways.set(1, 2, WHOLE)
    assert machine.lines == {}


def test_both_stay_when_a_node_begins_anew_or_moves(machine: Machine, ways: KernelWays) -> None:
    ways.set(1, 2, SLOW)
    ways.set(2, 1, CUT)
    machine.restart(2, "10.0.0.8")
    ways.began(2, machine.pid(2))
    assert machine.suffered(1) == ["10.0.0.8/32"]
    assert machine.rules[-1] == (101, "-I", "10.0.0.8")
    machine.known[2] = ["10.0.0.9"]
    ways.moved(2)
    assert machine.suffered(1) == ["10.0.0.9/32"]
    assert machine.rules[-1] == (101, "-I", "10.0.0.9")


def test_what_cannot_be_done_is_refused_and_mending_is_not(machine: Machine) -> None:
    everything = KernelWays(Cuts(machine, machine.act), Weather(machine, machine))
    cuts, nothing = KernelWays(Cuts(machine, machine.act)), KernelWays(None)
    reset = LinkFault(is_reset=True)
    for ways, faults in ((everything, [reset]), (cuts, [reset, SLOW]), (nothing, [reset, CUT])):
        for fault in faults:
            with pytest.raises(HarnessError, match="cannot fare so here"):
                ways.set(1, 2, fault)
        ways.set(1, 2, WHOLE)
    assert (machine.rules, machine.lines) == ([], {})


def test_it_says_what_it_does_and_by_what(machine: Machine) -> None:
    cuts = Cuts(machine, machine.act)
    told = [KernelWays(None).how, KernelWays(cuts).how, KernelWays(cuts, Weather(machine)).how]
    assert told == [
        "no cuts between nodes",
        "cuts between nodes by iptables",
        "cuts between nodes by iptables, delay and loss by tc netem",
    ]
