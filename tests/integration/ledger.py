"""What a writer promised before it died, and whether the next one found it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

# Key, is a tombstone, fingerprint of the record, fingerprint of the batch.
Print = tuple[str, bool, int, int]


@dataclass
class Ledger:
    """One partition: everything tried, and what of it was promised."""

    is_compacted: bool = False
    tried: set[Print] = field(default_factory=set)
    # Offset → what was synced there.
    kept: dict[int, Print] = field(default_factory=dict)
    # What a truncation that may not have happened was about to remove.
    doubtful: dict[int, Print] = field(default_factory=dict)
    # What was cut off for good: it may not come back to where it was.
    cut_off: set[tuple[int, Print]] = field(default_factory=set)
    start: int = 0
    # A start that a deletion which may not have happened was about to set.
    start_asked: int | None = None

    def note(self, event: dict[str, object]) -> None:
        match event["event"]:
            case "try":
                self.tried.add(_print(event["print"]))
            case "kept":
                self.kept.update(_batches(event["batches"]))
            case "cutting":
                offset = _int(event["offset"])
                self.doubtful = {o: p for o, p in self.kept.items() if o >= offset}
                self.kept = {o: p for o, p in self.kept.items() if o < offset}
            case "cut":
                self.cut_off.update(self.doubtful.items())
                self.doubtful = {}
            case "deleting":
                self.start_asked = _int(event["offset"])
            case "start":
                self.start, self.start_asked = _int(event["offset"]), None
            case unknown:
                raise AssertionError(f"what is {unknown}?")

    def check(self, opened: dict[str, object]) -> None:
        """Compare with what the next process found; it is the truth from now on."""
        assert opened["offline"] is None, opened["offline"]
        found = _batches(opened["batches"])
        start = _int(opened["start"])
        assert start in (self.start, self.start_asked), (start, self.start, self.start_asked)
        if self.is_compacted:
            self._check_compacted(found)
        else:
            lost = {o: p for o, p in self.kept.items() if o >= start and found.get(o) != p}
            assert not lost, f"acknowledged and gone: {lost}"
            ends = sorted(found)
            assert ends == list(range(ends[0], ends[0] + len(ends))) if ends else True, "a hole"
        strangers = [p for p in found.values() if _known(p, self.tried, self.is_compacted) is None]
        assert not strangers, f"nobody wrote {strangers}"
        returned = self.cut_off & set(found.items())
        assert not returned, f"cut off and back: {returned}"
        self.kept, self.doubtful = found, {}
        self.start, self.start_asked = start, None

    def _check_compacted(self, found: dict[int, Print]) -> None:
        """The last value of each key that was promised is there, or a later one."""
        newest: dict[str, tuple[int, Print]] = {}
        for offset in sorted(self.kept):
            newest[self.kept[offset][0]] = offset, self.kept[offset]
        for key, (offset, promised) in newest.items():
            later = [o for o, p in found.items() if p[0] == key and o >= offset]
            is_tombstone = promised[1]
            assert later or is_tombstone, f"the last value of {key}, at {offset}, is gone"
            older = [o for o, p in found.items() if p[0] == key and o < offset]
            assert later or not older, f"{key} was deleted at {offset}, and is back from {older}"
            if offset in found:
                assert found[offset][:3] == promised[:3], f"another value at {offset}"


def _known(found: Print, tried: set[Print], is_compacted: bool) -> Print | None:
    if is_compacted:
        return next((p for p in tried if p[:3] == found[:3]), None)
    return found if found in tried else None


def _print(told: object) -> Print:
    assert isinstance(told, list)
    key, is_tombstone, record, batch = told
    return (key, is_tombstone, record, batch)


def _batches(told: object) -> dict[int, Print]:
    assert isinstance(told, list)
    return {row[0]: _print(row[1:]) for row in told}


def _int(told: object) -> int:
    assert isinstance(told, int)
    return told


def events_in(output: Iterable[bytes]) -> list[dict[str, object]]:
    """Return the whole lines; the last one may have been cut off by the kill."""
    return [json.loads(line) for line in output if line.endswith(b"\n")]
