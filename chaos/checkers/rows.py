"""The table of what is judged: a number, a name, and the promise to people.

What exactly breaks each of them stands in the docstring of the package.

Not here: judging.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One promise."""

    name: str
    promise: str


ROWS: Final = {
    1: Row("inconsistent-offset", "An offset has one value, for everybody and for ever."),
    2: Row("duplicate", "What was sent once is there once."),
    3: Row("lost-write", "What was acknowledged is read by whoever reads past it."),
    4: Row("unseen", "What was acknowledged by all in-sync replicas is there at the end."),
    5: Row("vanished-read", "What a reader was shown stays where it was."),
    6: Row("aborted-read", "What was refused does not appear."),
    7: Row("phantom", "Nothing appears that nobody sent there."),
    8: Row("int-poll-order", "One poll shows records in order and leaves none out."),
    9: Row("poll-order", "A reader goes on where it was: it does not go back and skips nothing."),
    10: Row("nonmono-send", "Records of one sender lie in the order in which it sent them."),
    11: Row("realtime-order", "What is sent after something was known lies behind it."),
    12: Row("stale-ack", "A leader acknowledges only what is committed, with enough in sync."),
    13: Row("gap", "The log has no holes."),
    14: Row("epoch-order", "Leader epochs never fall along the log."),
    15: Row("replica-divergence", "All replicas hold the same."),
    16: Row("lost-on-node", "What was acknowledged is on every replica in sync."),
    17: Row("two-leaders", "A leader epoch has one leader."),
    18: Row("unclean-election", "Only who has everything acknowledged is elected."),
    19: Row("min-isr-leak", "Nothing is acknowledged while too few are in sync."),
    20: Row("metadata-regress", "Metadata never goes back, and all nodes know the same."),
    21: Row("group-offsets", "What a group commits does not go back, nor past the end."),
    22: Row("torn-transaction", "Of a transaction everything is read, or nothing."),
    23: Row("log-scan", "No node meets what its program takes for impossible."),
    24: Row("progress", "The cluster serves while it is whole, and soon after it is mended."),
    25: Row("group-lost-commit", "What a group has committed is what it finds later."),
    26: Row("group-skip", "A group passes over nothing that none of its members was shown."),
    27: Row("group-owners", "In one generation of a group, a partition has one owner."),
    28: Row("txn-aborted-read", "What was not committed is not shown as committed."),
    29: Row("txn-circle", "No transaction has read from one that has read from it."),
    30: Row("precommitted-read", "Nothing is shown as committed before it is to be committed."),
    31: Row("txn-lost", "A transaction that is committed is read."),
    32: Row("txn-offsets", "Offsets of a transaction count if its records do, and only then."),
    33: Row("txn-standstill", "Every transaction is decided, and readers of the committed go on."),
    34: Row(
        "prepared-not-kept", "What is prepared waits for its decision, whoever dies meanwhile."
    ),
    # Of single scenarios; the numbers before it are for what all of them are judged by.
    40: Row("limits", "What this scenario may cost, it does not exceed."),
}
