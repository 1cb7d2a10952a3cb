"""What a broker hears of its controllers and of itself, and what it wants done about it.

Not here: deciding (`broker_life.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.controller.commands import Partitions
from ottla.controller.door import Beat, BeatAnswer, Denied, NotActive, Registered
from ottla.controller.image import MetadataImage

# ── Events ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationWanted:
    """The node is ready to be a broker."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationAnswered:
    """What came of a `Register`; None: the door was closed."""

    number: int
    answer: Registered | NotActive | Denied | None
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatAnswered:
    """What came of a `SendBeat`; None: the line is broken."""

    number: int
    answer: BeatAnswer | NotActive | None
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """This node obeys the metadata up to this image."""

    image: MetadataImage
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The logs are read and mended, but for these."""

    damaged: Partitions
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceWanted:
    """This node must lead nothing any more, and stays: its disk has failed (rule 48)."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownWanted:
    """The node is to stop, in an orderly way (rule 12)."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """This program cannot go on, for a reason that nobody here can mend."""

    sentence: str
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """Told when `wake_ms` has come."""

    now_ms: int


Event = (
    RegistrationWanted
    | RegistrationAnswered
    | BeatAnswered
    | Followed
    | Recovered
    | FenceWanted
    | ShutdownWanted
    | Doomed
    | TimePassed
)


# ── Effects ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Register:
    """Ask this controller to register us; forget any earlier question."""

    number: int
    node_id: int


@dataclass(frozen=True, slots=True)
class OpenLine:
    """Begin to beat at this controller."""

    node_id: int


@dataclass(frozen=True, slots=True)
class SendBeat:
    """Send this on the line."""

    number: int
    beat: Beat


@dataclass(frozen=True, slots=True)
class CloseLine:
    """End the line, and whatever waits for an answer on it."""

    is_goodbye: bool


@dataclass(frozen=True, slots=True)
class Die:
    """This process can be no broker (any more), for this reason."""

    sentence: str


Effect = Register | OpenLine | SendBeat | CloseLine | Die
