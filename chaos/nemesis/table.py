"""Every kind of fault there is, by its name: what `scenarios.toml` may say.

Not here: what they do.
"""

from __future__ import annotations

from typing import Final

from ottla.chaos.nemesis import (
    admin,
    decisions,
    disks,
    files,
    hostile,
    networks,
    nodes,
    places,
    scripts,
)
from ottla.chaos.nemesis.kind import Kind

KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for module in (nodes, networks, disks, places, files, admin, hostile, scripts, decisions)
    for kind in module.KINDS
}
