"""What an active controller proposes by itself, and under which numbers.

Not here: when (`liveness.py`, and the shell's timers), and proposing (the shell).

F1  one `Requests` gives every number once, and there is one of them for a session
F2  every command that is made here fits into one proposal
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from ottla.controller.commands import (
    BeginShutdown,
    Command,
    FenceBroker,
    Partitions,
    ReportDamage,
    UnfenceBroker,
)
from ottla.controller.election import active_brokers, prefer, terms_of
from ottla.controller.image import MetadataImage
from ottla.controller.proposal import Proposal, RequestId
from ottla.controller.sightings import ProposeFence, ProposeShutdown, ProposeUnfence
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID

# A topic id and the number of its runs take 19 bytes, and a run of numbers takes up to 8: of these
# many pieces, a command stays below 32 KiB whatever they are.
_PIECES_MAX: Final = 1500


class Requests:
    """Numbers the commands of one life of a broker, or of one office (rule 68)."""

    __slots__ = ("_numbers", "epoch", "node_id")

    def __init__(self, node_id: BrokerId, epoch: int) -> None:
        self.node_id: Final = node_id
        self.epoch: Final = epoch
        self._numbers = count()

    def proposal(self, command: Command) -> Proposal:
        """Return a command under the next number. To ask again, send the very same bytes."""
        return Proposal(RequestId(self.node_id, self.epoch, next(self._numbers)), command)


def commands_for(wished: ProposeFence | ProposeUnfence | ProposeShutdown) -> list[Command]:
    """Return the commands to propose, one after the other; the last one does what is wished."""
    key, epoch = wished.broker_id, wished.broker_epoch
    match wished:
        case ProposeFence():
            return [FenceBroker(key, epoch)]
        case ProposeShutdown():
            return [BeginShutdown(key, epoch)]
        case ProposeUnfence():
            *before, last = _in_pieces(wished.damaged)
            reports = [ReportDamage(key, epoch, piece) for piece in before]
            return [*reports, UnfenceBroker(key, epoch, wished.applied_version, last)]


def _in_pieces(damaged: Partitions) -> Iterator[Partitions]:
    """Yield what is damaged in pieces that fit into a command each; at least one."""
    piece: dict[UUID, tuple[int, ...]] = {}
    room = _PIECES_MAX
    for topic_id, indexes in damaged.items():
        left = indexes
        while left:
            if room < 2:
                yield piece
                piece, room = {}, _PIECES_MAX
            # One for the topic, and at most one for each number.
            taken = left[: room - 1]
            piece[topic_id], left = taken, left[len(taken) :]
            room -= 1 + len(taken)
    yield piece


def wants_balance(image: MetadataImage) -> bool:
    """Whether `ElectLeaders("preferred", None)` would change anything."""
    active = active_brokers(image)
    for topic in image.topics.values():
        terms = terms_of(image, topic, active)
        if any(prefer(one, terms) is not one for one in topic.partitions):
            return True
    return False
