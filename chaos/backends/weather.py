"""Delay, loss and a rate on packets between containers, by `tc netem` where the kernel has it.

It is done where cuts are (`cuts.py`): from this machine, in the network of a node. That takes root,
`nsenter`, `tc`, and a kernel with netem, prio and u32; whether it has them is tried out.

Not here: the lines for `tc` (`netem.py`), delay and loss by gates (`links.py`).

V3  the weather of a way stays when a node starts anew, or comes back with another address
"""

from __future__ import annotations

import subprocess
from typing import Final, Protocol

from ottla.chaos.backends import netem
from ottla.chaos.backends.cuts import Whereabouts
from ottla.chaos.ports import WHOLE, HarnessError, LinkFault

_COMMAND_DEADLINE_S: Final = 30.0
# An address that nobody has (RFC 5737), and weather to try.
_NOBODY: Final = {1: (("192.0.2.1",), LinkFault(delay_ms=1, loss_per_mille=1, bytes_per_s=125_000))}


class TrafficControl(Protocol):
    """Who speaks to the kernel about packets, in the network of a process."""

    def change(self, pid: int, lines: list[str]) -> tuple[int, str]:
        """Do all lines up to the first that fails; return the exit code, and what was said."""

    def statistics(self, pid: int) -> str:
        """Return what passed so far, as JSON."""


class Tc:
    """The program of that name."""

    def change(self, pid: int, lines: list[str]) -> tuple[int, str]:
        done = _run(pid, "-batch", "-", said="".join(f"{line}\n" for line in lines))
        return done.returncode, done.stderr

    def statistics(self, pid: int) -> str:
        done = _run(pid, "-s", "-json", "qdisc", "show", "dev", netem.DEVICE)
        if done.returncode != 0:
            raise HarnessError(f"tc tells nothing: {done.stderr.strip()}")
        return done.stdout


class Weather:
    """What packets suffer on all ways."""

    def __init__(self, whereabouts: Whereabouts, control: TrafficControl | None = None) -> None:
        self._whereabouts: Final = whereabouts
        self._control: Final = control or Tc()
        self._faults: Final = dict[tuple[int, int], LinkFault]()
        # Of each way, packets that were counted by what was put anew since.
        self._met: Final = dict[tuple[int, int], int]()

    def set(self, source: int, target: int, fault: LinkFault) -> None:
        way = (source, target)
        if self._faults.get(way, WHOLE) == fault:
            return
        self._count(source)
        self._met.pop(way, None)
        if fault == WHOLE:
            del self._faults[way]
        else:
            self._faults[way] = fault
        self._settle(source)

    def met(self, source: int, target: int) -> int:
        """Return how many packets have met the weather of a way since it was set."""
        return self._met.get((source, target), 0) + self._counted(source).get(target, 0)

    def renew(self, node: int) -> None:
        """Have the weather stay: a node has another network, or another address."""
        for source in sorted({way[0] for way in self._faults if node in way}):
            self._count(source)
            self._settle(source)

    def _settle(self, source: int) -> None:
        if not self._is_there(source):
            # It has no network now: this is done when it has one again.
            return
        ways = {
            target: (self._whereabouts.addresses(target), fault)
            for (sender, target), fault in self._faults.items()
            if sender == source
        }
        lines = netem.tree(ways)
        code, said = self._control.change(self._whereabouts.pid(source), lines)
        if code != 0:
            raise HarnessError(f"tc failed in the network of node {source}: {said.strip()}")

    def _count(self, source: int) -> None:
        """Write down what was counted: to put lines anew begins at nothing."""
        for target, met in self._counted(source).items():
            self._met[source, target] = self._met.get((source, target), 0) + met

    def _counted(self, source: int) -> dict[int, int]:
        targets = [target for sender, target in self._faults if sender == source]
        if not targets or not self._is_there(source):
            return {}
        told = self._control.statistics(self._whereabouts.pid(source))
        return {target: netem.met_in(told, target) for target in targets}

    def _is_there(self, node: int) -> bool:
        return bool(self._whereabouts.pid(node) and self._whereabouts.addresses(node))


def why_no_netem(pid: int, control: TrafficControl | None = None) -> str | None:
    """Return why there can be no such weather in the network of a process; None: there can.

    It is tried with all that is needed for it, and leaves nothing behind.
    """
    chosen = control or Tc()
    found = netem.why_not(*chosen.change(pid, netem.tree(_NOBODY)))
    chosen.change(pid, [netem.CALM])
    return found


def _run(pid: int, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ("nsenter", "--target", str(pid), "--net", "tc", *words),
        input=said,
        capture_output=True,
        text=True,
        timeout=_COMMAND_DEADLINE_S,
        check=False,
    )
