"""Weather between containers as lines for `tc`: what becomes of packets from one node to others.

    root      prio, 1:      what nobody named goes to the first band and suffers nothing, answers
      1:1                   to clients among it
      1:2     netem, 12:    packets to node 1, by its addresses
      1:3     netem, 13:    packets to node 2

All of it stands in the network of the one that sends, so each direction is ill by itself. A way
has a band, and so a rate, of its own. A gate gives that rate to each connection, keeps all bytes in
order and loses none for good; here packets are really lost, and TCP notices.

Not here: running `tc`, and when (`weather.py`).

N1  the lines make the same of whatever was there before, and `CALM` leaves nothing of them
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ottla.chaos.ports import LinkFault

# What Docker calls the end of the one network of `compose/` in a container.
DEVICE: Final = "eth0"
# As it was before anybody touched it.
CALM: Final = f"qdisc replace dev {DEVICE} root noqueue"
# One for whatever is not named, and one for each node: the kernel has no more.
_BANDS_MAX: Final = 16
_PRIORITIES: Final = 16

# What packets to a node suffer, and the addresses that it has.
Way = tuple[Sequence[str], LinkFault]


def tree(ways: Mapping[int, Way]) -> list[str]:
    """Return the lines after which packets fare so, by whom they go to; of no way: as before."""
    suffering = {node: way for node, way in ways.items() if way[0]}
    return [CALM, *_bands(suffering)] if suffering else [CALM]


def _bands(ways: Mapping[int, Way]) -> Iterator[str]:
    bands = max(map(_band, ways))
    if bands > _BANDS_MAX:
        raise ValueError(f"there are {_BANDS_MAX} bands at most, not {bands}")
    # All priorities of packets go to the first band, or it would be chosen by the sort of service.
    first = " ".join(["0"] * _PRIORITIES)
    yield f"qdisc replace dev {DEVICE} root handle 1: prio bands {bands} priomap {first}"
    for node, (addresses, fault) in sorted(ways.items()):
        parent = f"1:{_band(node):x}"
        yield f"qdisc add dev {DEVICE} parent {parent} handle {_handle(node)} {_netem(fault)}"
        for address in addresses:
            whom = f"match ip dst {address}/32"
            yield f"filter add dev {DEVICE} parent 1: protocol ip prio 1 u32 {whom} flowid {parent}"


def _netem(fault: LinkFault) -> str:
    words = ["netem"]
    if fault.delay_ms or fault.jitter_ms:
        words += ["delay", f"{fault.delay_ms}ms"]
    if fault.jitter_ms:
        words.append(f"{fault.jitter_ms}ms")
    if fault.loss_per_mille:
        words += ["loss", f"{fault.loss_per_mille / 10:g}%"]
    if fault.bytes_per_s is not None:
        words += ["rate", f"{fault.bytes_per_s * 8}bit"]
    return " ".join(words)


def _band(node: int) -> int:
    return node + 1


def _handle(node: int) -> str:
    return f"1{_band(node):x}:"


def met_in(statistics: str, node: int) -> int:
    """Return how many packets to a node have met its weather, by what `tc -s -json` says."""
    told: list[dict[str, Any]] = json.loads(statistics)
    mine = [one for one in told if (one["kind"], one["handle"]) == ("netem", _handle(node))]
    # Those that went on, those that were lost, and those that still wait.
    return sum(int(one[name]) for one in mine for name in ("packets", "drops", "qlen"))


def why_not(code: int, said: str) -> str | None:
    """Return why the kernel does not offer it, by how `tc` ended; None: it does."""
    if code == 0:
        return None
    told = said.strip().splitlines()
    return f"the kernel does not offer it ({told[0].strip() if told else f'tc ended with {code}'})"
