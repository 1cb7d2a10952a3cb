"""What a replica holds: how much of its log will still be there after what it must survive.

A cheque is money for who trusts the bank, and a piece of paper for everybody else. While two people
disagree about the bank it is paper.

Not here: syncing (`log/`), and what a leader concludes from what others hold (`leader.py`).
"""

from __future__ import annotations

from ottla.proto.ids import Offset
from ottla.replication.leader import PartitionView
from ottla.replication.log.log import Log


def held_in(log: Log, view: PartitionView | None) -> Offset:
    """Return what counts as held, with fsync only what is synced (rule 47). `view`: if it leads.

    The log's settings and the view both say whether it is fsync. One image changes both, but one
    after the other, and a broker may learn of several changes with one image. While the two differ
    the stricter one counts. If the settings alone did, there would be a hole:

      1. a leader, alone in sync, appends with fsync, and has not synced yet
      2. the minimum is raised to 2, and then the topic is changed to pagecache
      3. the leader learns of both at once, and its log obeys the settings
      4. the view is the old one, its minimum 1: it acknowledges what is in one page cache only
      5. it obeys the new view, and that it needs two, too late
    """
    is_fsync = log.settings.fsync or (view is not None and view.is_fsync)
    return log.synced_offset if is_fsync else log.end_offset
