"""Who was fenced a moment ago: brokers that died, as far as the metadata know.

Told to some clients a little longer (`kafka/metadata.py`, V3; ADR 0032). Nothing here knows of
streams: a broker that hangs, or that only this one cannot reach, does not come and go.

Not here: who is fenced, and why (`ottla.controller.liveness`), and whom it is told.

Q1  only the fencing of a process that was seen unfenced counts: not one that starts, and not
    another process in its place
Q2  who has begun to shut down is not among them: its partitions were led away before it ends
Q3  each is named for `NAMED_MS` after its fencing was seen, and no longer than the newest image
    knows it as that process, fenced
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.controller.image import BrokerInfo, MetadataImage
from ottla.proto.ids import BrokerId

# A client that was told the old leader just before asks again after a second (librdkafka).
NAMED_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class _Fencing:
    broker: BrokerInfo
    seen_ms: int


class JustFenced:
    """Sees every image once, in their order, before anybody answers from it."""

    def __init__(self) -> None:
        self._brokers: Mapping[BrokerId, BrokerInfo] = {}
        self._fencings: dict[BrokerId, _Fencing] = {}

    def obey(self, image: MetadataImage, now_ms: int) -> None:
        before, self._brokers = self._brokers, image.brokers
        if before is image.brokers:
            return
        known = self._fencings
        self._fencings = {
            key: fencing
            for key, fencing in known.items()
            if _is_fencing_of(fencing.broker, image.brokers.get(key))
        }
        for key, old in before.items():
            new = image.brokers.get(key)
            if new is not None and old.is_active and _is_fencing_of(old, new):
                self._fencings[key] = _Fencing(new, now_ms)

    def brokers(self, now_ms: int) -> list[BrokerInfo]:
        """Return who was fenced within the last `NAMED_MS`."""
        return [one.broker for one in self._fencings.values() if now_ms - one.seen_ms < NAMED_MS]


def _is_fencing_of(old: BrokerInfo, new: BrokerInfo | None) -> bool:
    """Whether it is the same process, fenced, and did not ask for it (Q1, Q2)."""
    return (
        new is not None
        and new.is_fenced
        and new.shutdown_version is None
        and (new.incarnation, new.broker_epoch) == (old.incarnation, old.broker_epoch)
    )
