"""What nodes tell over HTTP: readiness, the quorum, the batches of replicas.

Not here: what is wrong with it (`checkers/`).
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import urlencode

from ottla.chaos.evidence import BatchPrint, Damage, ReplicaPrint
from ottla.chaos.history import Place
from ottla.chaos.ports import HarnessError

_ANSWER_DEADLINE_S: Final = 5.0
_PAGES_MAX: Final = 10_000
_ALL: Final = (1 << 63) - 1
# What goes wrong when a node is down, hangs, or has just died.
Unanswered: Final = (OSError, http.client.HTTPException, ValueError)


def get(address: str, path: str, timeout_s: float = _ANSWER_DEADLINE_S) -> tuple[int, str]:
    """Return the status and the text; raises one of `Unanswered`."""
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def is_ready(address: str) -> bool:
    try:
        return get(address, "/health/ready", 1.0)[0] == http.client.OK
    except Unanswered:
        return False


def last_word(address: str) -> str:
    """Return why it is not ready, as it says itself."""
    try:
        return get(address, "/health/ready", 1.0)[1].strip()
    except Unanswered as error:
        return f"nothing ({error!r})"


def controller_of(address: str) -> tuple[int, int] | None:
    """Return whom a node takes for the active controller, and the term; None: it does not say."""
    try:
        quorum = json.loads(get(address, "/status", 1.0)[1]).get("quorum") or {}
    except Unanswered:
        return None
    leader, term = quorum.get("leader"), quorum.get("term")
    if isinstance(leader, int) and isinstance(term, int):
        return leader, term
    return None


def replica_print(address: str, place: Place, turn: int) -> ReplicaPrint | None:
    """Return the batches of a replica up to its high watermark; None: it has none to show.

    Every checksum is checked: a header is believed only if the bytes that it stands for are right.
    Behind damage it is not: one broken batch is no reason to look at no other.
    """
    pages = list(_pages(address, place, None, is_checked=True))
    if not pages or pages[-1]["next"] is not None:
        return None
    last, batches, damage = pages[-1], _batches(pages), None
    if last["damage"] is not None:
        first = batches[-1].last_offset + 1 if batches else int(last["from"])
        behind = _batches(_pages(address, place, first + 1, is_checked=False))
        # The broken one may be among them, with whatever it claims to hold.
        behind = [one for one in behind if one.base_offset > first]
        damage = Damage(first, behind[0].base_offset if behind else None, last["damage"])
        batches += behind
    return ReplicaPrint(
        place=place,
        node=int(last["node"]),
        turn=turn,
        start_offset=int(last["log_start_offset"]),
        high_watermark=int(last["high_watermark"]),
        batches=tuple(batches),
        damage=damage,
    )


def _pages(
    address: str, place: Place, at: int | None, *, is_checked: bool
) -> Iterator[dict[str, Any]]:
    """Yield the pages of a digest; the last has no next, unless the replica was given up."""
    for _ in range(_PAGES_MAX):
        asked: dict[str, Any] = {"topic": place.topic, "partition": place.partition}
        asked["check"] = "true" if is_checked else "false"
        # All there is, also what nobody has committed.
        asked["to"] = _ALL
        if at is not None:
            asked["from"] = at
        try:
            status, text = get(address, f"/digest?{urlencode(asked)}", 30.0)
            told: dict[str, Any] = json.loads(text)
        except Unanswered as error:
            raise HarnessError(f"{address} tells nothing of {place}: {error!r}") from error
        if status in (http.client.NOT_FOUND, http.client.SERVICE_UNAVAILABLE):
            # It is no replica, or one that was given up. Whether it may be is for the judge to say.
            return
        if status != http.client.OK:
            raise HarnessError(f"{address} tells nothing of {place}: {status} {text[:200]}")
        yield told
        at = told["next"]
        if at is None:
            return
    raise HarnessError(f"the digest of {place} at {address} does not end")


def _batches(pages: Iterable[dict[str, Any]]) -> list[BatchPrint]:
    return [
        BatchPrint(*(int(one[name]) for name in BatchPrint._fields))
        for page in pages
        for one in page["batches"]
    ]
