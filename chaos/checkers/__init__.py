"""Says of a run whether a replicated log kept its promises. This page is the specification.

What is judged
--------------

Clients wrote values, each of them once and each different from all others, and read partitions.
All they tried and saw is in a history (`history.py`): every operation has a beginning and an end,
and came to `ok` (it happened), `fail` (it surely did not) or `unknown`. At the end, when everything
was mended, every partition was read whole: from its leader and from each replica, before and after
a restart of the whole cluster. Where the system tells more (its trace, the batches of its replicas,
its logs), that is evidence too; where it does not, the rows that need it are *not judged*, which is
no pass.

Everything here is a function of `Evidence`. The same folder gives the same verdict for ever.

Words
-----

promised
    A value that was acknowledged with acks=all; also one of which an idempotent producer was told
    that it is kept already (DUPLICATE_SEQUENCE_NUMBER), or where only the offset is not known.
shown
    An offset with its value, as any poll or any final read of a leader had it. Polls count
    whatever became of them: a reader must never be shown what is not safe.
known
    An offset at which a value was shown, or for which one is promised.
may be gone
    Below the start offset of the log, if the options of its topic delete and it is old enough for
    that; or, in a compacted topic, a record whose key has a newer known record, or a tombstone
    older than delete.retention.ms of whose key nothing is left.

binding
    A transaction that is committed, as its client was told; also one of which nobody knows what
    became, and any record of which a reader of committed records was shown. If several have asked
    for the same, it is committed if one of them was told so, and unknown if one of them was not
    told.
prepared
    A transaction of which all is written, and which its client has named to whoever decides. It is
    asked for from when somebody first asked to commit or abort it, and did not surely fail.

acks=1 promises that the leader has it: an offset that was acknowledged so may get another value
when the leader changes, so such acknowledgements say nothing about offsets. acks=0 promises
nothing. But once a reader was *shown* a record, it stays, however it was written.

The rows
--------

V: the run is not valid. Counted: it happened, it is told, and it is allowed.

 1  inconsistent-offset   One offset was shown with two values; or it is promised for one value and
                          was shown with another, or is promised for two.  V
 2  duplicate             A value was shown at two offsets.  V if its producer is idempotent, or
                          sent it only once; counted if its producer itself sent it again, or gave
                          up on another record meanwhile and so began a new producer epoch.
 3  lost-write            Acknowledged at an offset below one that was shown, and never shown.
                          V with acks=all. With acks=1: counted if the leader changed after it was
                          sent, or if it was sent to a replaced leader within one session after the
                          change, or if nobody can tell; else V. What acks=0 lost is told.
 4  unseen                Promised, and not in a final read of the leader: not at its offset or, if
                          that is not known, nowhere.  V
 5  vanished-read         Shown by a poll, or by an earlier final read, and a final read has
                          something else or nothing at that offset.  V in every acks mode
 6  aborted-read          A value whose send failed was shown, or is on a replica.  V
 7  phantom               A value was shown, or is on a replica, that nobody sent, that was sent to
                          another partition, that was sent only later, or that is no payload of
                          ours.  V
 8  int-poll-order        Inside one poll, a partition goes back, or passes over a known offset
                          that may not be gone. Partitions that changed hands are left out.  V
 9  poll-order            The same from one successful poll of a process to its next; it may be
                          elsewhere after assign, subscribe, seek or a crash, and goes on from
                          there.  V; counted for members of groups
10  nonmono-send          Of one process and partition, a later promised send has a lower offset. Of
                          idempotent producers everything that was shown counts.  V
11  realtime-order        A send that began after an offset was promised or polled lies at or below
                          it. The log is linearizable.  V
12  stale-ack             acks=all was answered by a node whose high watermark was not above the
                          offset by then (its trace may be 10 ms late); or that knew from when it
                          was committed on that fewer than the minimum were in sync.  V
13  gap                   An offset from the start (from 0, where nothing is deleted) to the high
                          watermark is missing in a final read of the leader, and is neither a
                          control record nor may be gone.  V
14  epoch-order           Leader epochs fall along the log, in a final read or on a replica.  V
15  replica-divergence    Replicas differ below the high watermark, in any batch by offsets, epoch,
                          size or checksum; one that is in sync ends below it; files are unsound. A
                          difference above the high watermark is counted, and V in the last turn.
16  lost-on-node          Promised, and not on a replica that was in sync when it was read. Of a
                          compacted partition: not among the records that are in the files of each
                          replica when all nodes are down, and may not be gone.  V
17  two-leaders           Two nodes led, or appended, in one leader epoch of a partition: by the
                          trace, by metadata that clients got, by who acknowledged records of it.
                          Two processes live with one id; or the second ended, and not as one that
                          is refused.  V
18  unclean-election      A new leader was neither in sync nor eligible in the state before, or the
                          metadata call the election unclean.  V; counted where it is allowed
19  min-isr-leak          acks=all was answered by a node whose metadata had fewer in sync than the
                          minimum from the beginning of the send to its end.  V
20  metadata-regress      In one life of a node, the version, the epoch of the controller, of a
                          partition, of its leader or of a broker fell; or they are lower in the
                          end than what anybody had told before all were started again; or two nodes
                          tell different things of one partition epoch.  V
21  group-offsets         A group committed less than it surely had, although no reader was sent
                          back, or more than the high watermark.  V
22  torn-transaction      Of a transaction that is binding a reader of committed records went past
                          a record and was not shown it, or a final read of what is committed lacks
                          it, and other records of it were shown.  V
23  log-scan              A node has logged a traceback, a broken invariant, or a line that calls
                          itself critical; or it ended badly when it was asked to stop, or by a
                          signal that nobody sent.  V; counted if the scenario announced it
24  progress              Fewer than 100 acknowledged writes in 20 healthy seconds (unless hardly
                          more were tried); or none, at all or in some partition, within the limit
                          for recovery after everything was mended; or copies that are not in sync
                          by then; or a partition that cannot be read at the end.  V; a machine
                          whose processors others had excuses as it does in row 40.
25  group-lost-commit     Reading what a group has committed found less than was acknowledged, or
                          found, before.  V; counted if it is just what a commit before that had
                          asked for of which nobody knows what became. Or it cannot be read at the
                          end.  V
26  group-skip            A group committed past a record that is known, may not be gone, and was
                          shown to none of its members before.  V
27  group-owners          Two members of a group own a partition in the same generation.  V
28  txn-aborted-read      A reader of committed records was shown a record of a transaction that is
                          surely not committed (G1a).  V
29  txn-circle            Transactions that are binding have each been shown what the next one
                          wrote, in a circle (G1c of reads).  V; counted if it takes the order of
                          writes to close it: nobody promises that transactions do not overlap
30  precommitted-read     A reader of committed records was shown a record of a transaction, in that
                          transaction itself, or before it was asked to be committed.  V
31  txn-lost              The same as row 22 of a transaction that is committed, and of which
                          nothing was shown.  V
32  txn-offsets           A producer found its group elsewhere than where the last binding
                          transaction with its offsets has left it, or so it is at the end.  V
33  txn-standstill        When everything is mended and time-outs are over, the last stable offset
                          of a partition is below its high watermark, or a transactional id cannot
                          be held by a new producer, or what is left prepared cannot be decided.  V
34  prepared-not-kept     A transaction was prepared, and before a decision was asked for a
                          successor that was to keep it did not find it, or a reader of committed
                          records was shown what lies behind a record of it. Or it was to be
                          committed and never to be aborted, and is not among what is committed at
                          the end. Or it was found open after its decision was acknowledged.  V
40  limits                The scenario has limits of its own (`ottla.chaos.limits`), and something
                          is above one: writes refused or unknown, an outage, changes of in-sync
                          sets, elections, memory.  V; counted if it took at most three times as
                          long as it may while others had the processors. More than that, or too
                          often, at such a time: not judged, and the run is inconclusive.

The whole run
-------------

It has *failed* if a row is broken; rows 24 and 40 alone only if the harness worked. Else it is a
*harness failure* if the harness failed anywhere. Else it is *inconclusive* if fewer writes were
acknowledged than the scenario asks for, or fewer than ten transactions were committed by any kind
of client that was to write them, if row 4 could not be judged (or row 40, where there are limits;
row 24, where something was mended; rows 22, 28 to 31 and 33, where there were to be transactions,
and 32, where there were to be offsets in them; or rows 15 to 18, 20 and 23, where it was agreed
that the system tells what they need), if it was not read both before and after the restart, or if a
step of the scenario did not take place: a named place that was not reached, a file that was not
there, a state that was waited for in vain (`happened.py`; of a random mix, if hardly anything took
place). Else it has *passed*.

A scenario may tolerate rows: then they are counted. A test of the judge names rows that it expects:
then the run passes if at least one of these is broken, and no other; if it names rows 3 or 4, one
of those two.

After the example of jepsen.tests.kafka and its anomalies; rows 5, 11 to 20, 24 to 27 and 31 to 34
ask for more.
"""
