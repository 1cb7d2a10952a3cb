"""Rules that lose packets between containers: made, renewed, and taken away as they were made."""

from __future__ import annotations

import pytest

from ottla.chaos.backends.cuts import ADD, REMOVE, Cuts
from ottla.chaos.ports import HarnessError


class Engine:
    """Says where nodes are, and keeps the rules of their networks."""

    def __init__(self) -> None:
        self.pids = {1: 101, 2: 102}
        self.known = {1: ["10.0.0.1"], 2: ["10.0.0.2"]}
        self.rules = set[tuple[int, str]]()

    def pid(self, node: int) -> int:
        return self.pids[node]

    def addresses(self, node: int) -> list[str]:
        return self.known[node]

    def act(self, pid: int, action: str, address: str) -> None:
        if action == ADD:
            self.rules.add((pid, address))
        elif (pid, address) not in self.rules:
            raise HarnessError(f"{REMOVE} of a rule that is not there")
        else:
            self.rules.discard((pid, address))

    def restart(self, node: int, address: str) -> None:
        self.rules = {rule for rule in self.rules if rule[0] != self.pids[node]}
        self.pids[node] += 1000
        self.known[node] = [address]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def cuts(engine: Engine) -> Cuts:
    return Cuts(engine, engine.act)


def test_a_cut_is_one_rule_at_the_receiver_and_goes_again(engine: Engine, cuts: Cuts) -> None:
    cuts.set(1, 2, is_cut=True)
    cuts.set(1, 2, is_cut=True)
    assert engine.rules == {(102, "10.0.0.1")}
    cuts.set(1, 2, is_cut=False)
    cuts.set(2, 1, is_cut=False)
    assert engine.rules == set()


def test_a_receiver_that_starts_anew_is_cut_off_still(engine: Engine, cuts: Cuts) -> None:
    cuts.set(1, 2, is_cut=True)
    engine.restart(2, "10.0.0.2")
    cuts.renew(2)
    assert engine.rules == {(1102, "10.0.0.1")}


def test_a_sender_with_another_address_is_cut_off_still_and_its_old_one_is_free(
    engine: Engine, cuts: Cuts
) -> None:
    cuts.set(1, 2, is_cut=True)
    engine.restart(1, "10.0.0.7")
    cuts.renew(1)
    assert engine.rules == {(102, "10.0.0.7")}
    engine.known[1] = ["10.0.0.8"]
    cuts.set(1, 2, is_cut=False)
    assert engine.rules == set()


def test_who_is_down_is_cut_off_when_it_starts(engine: Engine, cuts: Cuts) -> None:
    engine.pids[2] = 0
    cuts.set(1, 2, is_cut=True)
    assert engine.rules == set()
    engine.pids[2] = 500
    cuts.renew(2)
    assert engine.rules == {(500, "10.0.0.1")}


def test_a_receiver_that_started_anew_has_no_rule_to_take_away(engine: Engine, cuts: Cuts) -> None:
    cuts.set(1, 2, is_cut=True)
    engine.restart(2, "10.0.0.2")
    cuts.set(1, 2, is_cut=False)
    assert engine.rules == set()
