"""Logs that nobody writes to for a while: what they hold is given back, in the order that is safe.

A shop that closes for the season: first the spare stock goes back, then the books are checked once
more, and only then are the keys handed in.

Z1  a file is let go of only when all in it is synced: the kernel tells an error of writing to who
    has the file open
Z2  room that was asked for goes first; that makes the kernel write the last block once more (V4 of
    `ahead.py`), so a sync comes between that and letting go

Not here: when, and of how many logs (`manager.py`).
"""

from __future__ import annotations

from ottla.replication.log.log import Log


def let_go(log: Log) -> bool:
    """Close the file of a log at rest, with its maps; return whether it was one (Z1)."""
    is_at_rest = log.active.base_offset not in log.unsynced.segments
    if is_at_rest:
        log.active.release()
    return is_at_rest


def rest(log: Log) -> None:
    """Take a log at rest one step further: from its room, or from its file (Z2)."""
    is_at_rest = log.active.base_offset not in log.unsynced.segments
    if is_at_rest and log.unsynced.jobs_running == 0 and not give_back_room(log):
        log.active.release()


def give_back_room(log: Log) -> bool:
    """Give back the room of the newest segment; return whether it had any, to be synced next."""
    had_any = log.active.give_back()
    if had_any:
        log.unsynced.wrote(log.active)
    return had_any
