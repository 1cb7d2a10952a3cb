"""The ways between containers, and by whom they are made ill: the kernel, or gates.

    KernelWays   nodes dial each other; iptables loses all packets of a way (`cuts.py`), and
                 `tc netem` delays and loses some (`weather.py`), if the kernel offers it
    GatedWays    nodes dial gates in a container of their own, which cut, delay and lose

Never both: behind a gate all packets come from the gates' address.

Not here: which of the two a cluster has (`containers.py`).
"""

from __future__ import annotations

from typing import Final, Protocol

from ottla.chaos.backends.cuts import Cuts
from ottla.chaos.backends.gatekeeper import Gatekeeper
from ottla.chaos.backends.weather import Weather
from ottla.chaos.ports import WHOLE, HarnessError, LinkFault


class Ways(Protocol):
    """All ways between the nodes of one cluster; closed once."""

    @property
    def how(self) -> str:
        """Return in words what is done to them, and by what."""

    def set(self, source: int, target: int, fault: LinkFault) -> None: ...

    def met(self, source: int, target: int) -> int:
        """Return how much has met the weather of a way since it was set."""

    def began(self, node: int, pid: int) -> None:
        """Let what holds hold for a process that has just begun."""

    def moved(self, node: int) -> None:
        """The same for one that is back on its network, maybe with another address."""

    def close(self) -> None: ...


class KernelWays:
    """Packets between nodes that dial each other."""

    def __init__(self, cuts: Cuts | None, weather: Weather | None = None) -> None:
        # What is None cannot be done here.
        self._cuts: Final = cuts
        self._weather: Final = weather

    @property
    def how(self) -> str:
        cuts = "no cuts between nodes" if self._cuts is None else "cuts between nodes by iptables"
        return cuts if self._weather is None else f"{cuts}, delay and loss by tc netem"

    def set(self, source: int, target: int, fault: LinkFault) -> None:
        weather = WHOLE if fault.is_cut else fault
        if fault.is_reset or (weather != WHOLE and self._weather is None):
            raise _cannot(fault)
        if fault.is_cut and self._cuts is None:
            raise _cannot(fault)
        if self._weather is not None:
            self._weather.set(source, target, weather)
        if self._cuts is not None:
            self._cuts.set(source, target, is_cut=fault.is_cut)

    def met(self, source: int, target: int) -> int:
        return 0 if self._weather is None else self._weather.met(source, target)

    def began(self, node: int, pid: int) -> None:
        self.moved(node)

    def moved(self, node: int) -> None:
        for ill in (self._cuts, self._weather):
            if ill is not None:
                ill.renew(node)

    def close(self) -> None:
        """Leave everything: it is gone with the containers."""


class GatedWays:
    """Gates between nodes, in a container of their own."""

    def __init__(self, keeper: Gatekeeper, why: str) -> None:
        self._keeper: Final = keeper
        # Why it is not netem.
        self._why: Final = why

    @property
    def how(self) -> str:
        return f"cuts, delay and loss between nodes by gates, not by tc netem: {self._why}"

    def set(self, source: int, target: int, fault: LinkFault) -> None:
        self._keeper.set(source, target, fault)

    def met(self, source: int, target: int) -> int:
        return self._keeper.met_pieces(source, target)

    def began(self, node: int, pid: int) -> None:
        # Its container sees the processes of the machine.
        self._keeper.watch(node, pid)

    def moved(self, node: int) -> None:
        """Do nothing: a gate looks a name up each time that it dials."""

    def close(self) -> None:
        self._keeper.close()


def _cannot(fault: LinkFault) -> HarnessError:
    return HarnessError(f"packets between containers cannot fare so here: {fault}")
