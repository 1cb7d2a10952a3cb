"""Ways between containers on which packets are lost, by rules of iptables.

A rule stands in the network of the one that would receive, and names the address of the one that
sends: so each direction is cut by itself, and connections stay open as if the cable were cut. That
takes root, and `nsenter`.

Not here: delay and loss (`weather.py`, `links.py`), when to cut (`nemesis/`).

V1  what is cut stays cut when a node starts anew, or comes back with another address
V2  a rule is taken away as it was made, whatever address its sender has by then
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ottla.chaos.ports import HarnessError

ADD: Final = "-I"
REMOVE: Final = "-D"
_COMMAND_DEADLINE_S: Final = 30.0

# Adds or removes, in the network of a process, the rule for an address.
Filter = Callable[[int, str, str], None]


class Whereabouts(Protocol):
    """Where nodes are now."""

    def pid(self, node: int) -> int:
        """Return the process of a node; 0: it has none."""

    def addresses(self, node: int) -> Sequence[str]:
        """Return what a node sends from; nothing, while it is down or off its network."""


class Cuts:
    """All ways that are cut."""

    def __init__(self, whereabouts: Whereabouts, act: Filter | None = None) -> None:
        self._whereabouts: Final = whereabouts
        self._act: Final = act or filter_packets
        # By its way: whose network each rule is in, and whom it names.
        self._rules: Final = dict[tuple[int, int], list[tuple[int, str]]]()

    def set(self, source: int, target: int, *, is_cut: bool) -> None:
        self._mend((source, target))
        if is_cut:
            self._cut((source, target))

    def renew(self, node: int) -> None:
        """Have what is cut stay so: a node has another network, or another address."""
        for way in [way for way in self._rules if node in way]:
            self._mend(way)
            self._cut(way)

    def _cut(self, way: tuple[int, int]) -> None:
        source, target = way
        pid = self._whereabouts.pid(target)
        rules = self._rules.setdefault(way, [])
        # Who is down gets no rule yet: it is made when it starts.
        for address in self._whereabouts.addresses(source) if pid else ():
            self._act(pid, ADD, address)
            rules.append((pid, address))

    def _mend(self, way: tuple[int, int]) -> None:
        for pid, address in self._rules.pop(way, ()):
            # A node that has started anew has a new network, without rules.
            if pid == self._whereabouts.pid(way[1]):
                self._act(pid, REMOVE, address)


def can_cut() -> bool:
    return lacking("nsenter", "iptables") is None


def lacking(*programs: str) -> str | None:
    """Return what it takes to change networks of others, and is not here; None: nothing."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]} here"
    return None if os.geteuid() == 0 else "that takes root"


def filter_packets(pid: int, action: str, address: str) -> None:
    rule = ("iptables", "--wait", action, "INPUT", "--source", address, "-j", "DROP")
    done = subprocess.run(
        ("nsenter", "--target", str(pid), "--net", *rule),
        capture_output=True,
        text=True,
        timeout=_COMMAND_DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        raise HarnessError(f"{' '.join(rule)} failed: {done.stderr.strip()}")
