"""The names in a partition's directory, sorted into what they mean.

Not here: opening or removing any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.proto.ids import Offset
from ottla.replication.storage.ports import Files

_DIGITS: Final = 20
LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
# Only where transactions were aborted.
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
# A cleaned segment that has not taken the place of its sources yet.
CLEANED_SUFFIX: Final = ".cleaned"
# A segment that is no longer part of the log and waits to be removed.
DELETED_SUFFIX: Final = ".deleted"


def segment_stem(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}"


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """What is in the directory of a partition."""

    # Base offsets of the segments, in order.
    bases: list[Offset]
    # Files that a crash left behind, safe to remove.
    leftovers: list[str]
    # Files that we did not make.
    strangers: list[str]


def base_of(name: str, suffix: str) -> Offset | None:
    """Return the base offset in a segment's file name, or None if it is none."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != _DIGITS or not (stem.isascii() and stem.isdigit()):
        return None
    return Offset(int(stem))


def read_names(files: Files, directory: str) -> SegmentFiles:
    names = files.list_dir(directory)
    bases = [base for name in names if (base := base_of(name, LOG_SUFFIX)) is not None]
    known = set(bases)
    leftovers, strangers = [], []
    for name in names:
        kind = next((suffix for suffix in SUFFIXES if base_of(name, suffix) is not None), None)
        if kind is not None:
            # An index without its segment: the segment's removal was cut short.
            if base_of(name, kind) not in known:
                leftovers.append(name)
        elif _is_leftover(name):
            leftovers.append(name)
        else:
            strangers.append(name)
    return SegmentFiles(sorted(bases), leftovers, strangers)


def _is_leftover(name: str) -> bool:
    for suffix in (CLEANED_SUFFIX, DELETED_SUFFIX):
        stem = name.removesuffix(suffix)
        if stem != name and any(base_of(stem, kind) is not None for kind in SUFFIXES):
            return True
    return False
