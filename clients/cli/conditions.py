"""What is wrong with a partition, in words: what its users feel, why, and what to do.

    no leader          nothing can be written or read
    below min ISR      acks=all is refused, and what acks=1 writes stays invisible (rule 29)
    under-replicated   everything works, and fewer failures can be borne
    keeps deletions    a compacted log grows: what some replica may lack is not cleaned away

Not here: asking (`describe.py`), and the cluster as a whole (`verdict.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

_ABSENT: Final = "fenced: dead, cut off, or still starting"
_UNCLEAN: Final = (
    "an unclean election (Kafka's `kafka-leader-election.sh --election-type unclean`) gives it a "
    "leader, and may lose records that were acknowledged."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Who holds a partition, and how well."""

    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    # Not in sync, and known to have everything acknowledged; None: the cluster does not tell.
    elr: tuple[int, ...] | None
    # Replicas on brokers that are not there.
    offline: tuple[int, ...]
    # How many must be in sync for acks=all; None: nobody knows.
    min_isr: int | None
    # Its topic is compacted.
    is_compacted: bool = False

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(one for one in self.replicas if one not in self.isr)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    # For programs: it does not change when the sentence does.
    code: str
    # For a column of a table.
    words: str
    sentence: str

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "sentence": self.sentence}


def problems(standing: Standing) -> tuple[Problem, ...]:
    """Return what is wrong, the worst first."""
    if standing.leader is None:
        # Who has no leader does not want to hear that its replicas are not in sync, too.
        return (Problem("no_leader", "no leader", _no_leader(standing)),)
    return tuple(_problems_when_led(standing))


def _problems_when_led(standing: Standing) -> Iterator[Problem]:
    in_sync, least = len(standing.isr), standing.min_isr
    if least is not None and in_sync < least:
        sentence = (
            f"{in_sync} in sync, and min.insync.replicas asks for {least}: writes with acks=all "
            "are refused (NOT_ENOUGH_REPLICAS); what is written with acks=1 or 0 is taken, and "
            f"stays invisible to consumers until {least} are in sync."
        )
        yield Problem("under_min_isr", "below min ISR", sentence)
    if standing.missing:
        told = "; ".join(_why_missing(standing))
        yield Problem("under_replicated", "under-replicated", f"not in sync: {told}.")
        if standing.is_compacted:
            yield Problem("keeps_deletions", "keeps deletions", _keeping(standing))


def _keeping(standing: Standing) -> str:
    missing = standing.missing
    back, its = ("is", "its id") if len(missing) == 1 else ("are", "their ids")
    return (
        "compaction removes no tombstone and no end of a transaction any more that "
        f"{_brokers(missing)} may lack, so the log grows. It does again when {_brokers(missing)} "
        f"{back} in sync; what is lost for good is replaced by a node with {its} and an empty disk."
    )


def _why_missing(standing: Standing) -> Iterator[str]:
    absent = [one for one in standing.missing if one in standing.offline]
    behind = [one for one in standing.missing if one not in standing.offline]
    if absent:
        yield f"{_brokers(absent)} ({_ABSENT})"
    if behind:
        join = "it joins when it has" if len(behind) == 1 else "they join when they have"
        yield f"{_brokers(behind)} (behind: {join} caught up)"


def _no_leader(standing: Standing) -> str:
    begin = "no leader, so nothing can be written or read: "
    able = standing.isr or standing.elr or ()
    if not able:
        return (
            f"{begin}no replica is known to have everything that was acknowledged. If the disk of "
            f"one of {_brokers(standing.replicas)} was replaced, bring the old one back; else "
            f"{_UNCLEAN}"
        )
    if any(one not in standing.offline for one in able):
        return (
            f"{begin}{_brokers(able)} may lead, and the controllers have not elected one yet. "
            "`ottla health` says whether they can."
        )
    only = "is" if len(able) == 1 else "are"
    return (
        f"{begin}only {_brokers(able)} {only} known to have everything that was acknowledged, and "
        f"{'it is' if len(able) == 1 else 'they are'} not there ({_ABSENT}). Start "
        f"{'it' if len(able) == 1 else 'one of them'}; if "
        f"{'its disk is' if len(able) == 1 else 'their disks are'} lost for good, {_UNCLEAN}"
    )


def _brokers(ids: Sequence[int]) -> str:
    if len(ids) == 1:
        return f"broker {ids[0]}"
    return f"brokers {', '.join(map(str, ids[:-1]))} and {ids[-1]}"


def told_together(told: Sequence[tuple[int, Sequence[Problem]]]) -> Iterator[str]:
    """Yield a line for each sentence, with all the partitions that it is about."""
    about = dict[str, list[int]]()
    for partition, found in told:
        for one in found:
            about.setdefault(one.sentence, []).append(partition)
    for sentence, partitions in about.items():
        word = "partition" if len(partitions) == 1 else "partitions"
        yield f"{word} {', '.join(map(str, partitions))}: {sentence}"
