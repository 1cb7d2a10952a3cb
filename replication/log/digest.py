"""What a log holds, batch by batch, without the records: for whoever compares replicas.

Two replicas are the same where their batches agree in offsets, epoch, size, attributes and
checksum, provided that the checksums are right. So a digest reads headers, and, if it is asked to
check, every byte.

    owner     `begin_digest` finds where to read, and holds the file
    thread    `DigestPart.read` reads it
    owner     the next part, from where that one ended

While a part is read the owner may do anything: append, cut, compact. What is below the high
watermark when a part begins is not cut, and what compaction replaces can be read to its end.

Not here: comparing (`ottla replicas verify`), the page that shows it (`node/digest.py`), and what
follows from damage: a digest changes nothing.

D1  a part reads at most so many batches, and bytes if it checks them
D2  damage is told, and what lies behind it is not: nobody can know where it would begin
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.proto.errors import CorruptionError, StorageError
from ottla.proto.ids import Offset
from ottla.replication.log.log import Log
from ottla.replication.log.scan import At, CheckedWalk, walk
from ottla.replication.storage.ports import File

# What one part reads where every byte is checked (D1); a batch that is larger is read whole.
CHECK_BYTES_MAX: Final = 64 << 20


class BatchDigest(NamedTuple):
    """One batch, without its records. Its checksum is what its header says."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    size: int
    attributes: int


@dataclass(frozen=True, slots=True)
class Digested:
    """What a part held."""

    batches: list[BatchDigest]
    # Where to go on.
    next_offset: Offset
    # What is wrong with the bytes there, if they are no sound batch.
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class DigestPart:
    """A stretch of one segment. It may be read on any thread, and once or several times."""

    path: str
    file: File
    position: int
    end_position: int
    # From here on nobody wants to know.
    before: Offset
    # The first batch holds this offset or lies above it.
    offset: Offset

    def read(self, batches_max: int, *, check: bool) -> Digested:
        """Return the batches of this part, as far as the bounds allow (D1)."""
        batches, next_offset = list[BatchDigest](), self.offset
        position = self.position
        checked = CheckedWalk(self.file, position, self.end_position) if check else None
        found: Iterable[At] = checked or walk(self.file, position, self.end_position)
        try:
            for at in found:
                is_full = len(batches) >= batches_max
                if check and batches and at.end_position - self.position > CHECK_BYTES_MAX:
                    is_full = True
                if is_full or at.header.base_offset >= self.before:
                    return Digested(batches, next_offset)
                batches.append(_digest_of(at))
                next_offset, position = at.header.next_offset, at.end_position
        except OSError as error:
            return Digested(batches, next_offset, f"{self.path}: {error.strerror}")
        if position == self.end_position or next_offset >= self.before:
            # What was cut meanwhile lay behind all that was asked for.
            return Digested(batches, next_offset)
        problem = "no batch can begin there" if checked is None else checked.problem
        return Digested(batches, next_offset, f"{self.path} at {position}: {problem}")


def _digest_of(at: At) -> BatchDigest:
    header = at.header
    return BatchDigest(
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.crc,
        header.size,
        header.attributes,
    )


def begin_digest(log: Log, offset: Offset, before: Offset) -> DigestPart | None:
    """Return the part that holds `offset` or what is next above it; None if that is not `before`.

    For the owner of the log. Raises `StorageError`, and leaves the log as it is.
    """
    log.require_online()
    try:
        for number in range(log.segment_number(offset), len(log.segments)):
            segment = log.segments[number]
            at = segment.find(offset)
            if at is None:
                # Compaction may have emptied the end of a segment: the next one goes on.
                continue
            if at.header.base_offset >= before:
                return None
            return DigestPart(
                segment.path, segment.reader(), at.position, segment.size, before, offset
            )
    except (OSError, CorruptionError) as error:
        raise StorageError(f"{log.name} cannot be read at {offset}: {error}") from error
    return None
