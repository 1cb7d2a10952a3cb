"""The metadata of one member of the quorum: what the quorum feeds, asks for and gives back.

Not here: what a command does to the state (`replay.py`), and its bytes (`snapshot.py`).
"""

from __future__ import annotations

from ottla.controller.delta import Delta
from ottla.controller.image import MetadataImage
from ottla.controller.outcome import Outcome
from ottla.controller.replay import MetadataState, apply_bytes
from ottla.controller.snapshot import decode_state, encode_state
from ottla.proto.errors import ensure


class MetadataMachine:
    """The state of one member of the quorum, fed in the order of the log."""

    __slots__ = ("_state", "last_delta", "last_delta_bytes")

    def __init__(self, state: MetadataState) -> None:
        self._state = state
        # What the last command changed, for brokers that were told everything before it.
        self.last_delta: Delta | None = None
        # `encode_delta` of it.
        self.last_delta_bytes: bytes | None = None

    @property
    def state(self) -> MetadataState:
        return self._state

    @property
    def image(self) -> MetadataImage:
        return self._state.image

    def apply(self, command: bytes) -> Outcome:
        """Take in one committed command; return what came of it."""
        applied = apply_bytes(self._state, command)
        self._state, self.last_delta = applied.state, applied.delta
        self.last_delta_bytes = applied.delta_bytes
        return applied.outcome

    def snapshot(self) -> bytes:
        return encode_state(self._state)

    def restore(self, state: bytes) -> None:
        """Become what a `snapshot` of any member says. Raises `StorageError` for anything else."""
        restored = decode_state(state)
        ensure(
            restored.image.cluster_id == self.image.cluster_id,
            "the snapshot is of this cluster",
            ours=self.image.cluster_id,
            theirs=restored.image.cluster_id,
        )
        self._state, self.last_delta, self.last_delta_bytes = restored, None, None

    def describe(self) -> str:
        image = self.image
        return f"version={image.version} digest={image.digest.hex()} {len(image.topics)} topics"
