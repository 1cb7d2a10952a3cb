"""The dashboard of replication: followers, in-sync sets, streams, and the quorum.

Not here: what a panel is (`panel.py`).
"""

from __future__ import annotations

from typing import Final

from ottla.node.boards.panel import BROKER_TOPICS, RAFT, REPLICAS, Board, Panel, Query, rate

REPLICATION: Final = Board(
    "ottla-replication",
    "Ottla: replication",
    (
        Panel(
            "Copied from leaders",
            "Bps",
            "What each broker fetches for the replicas that follow there.",
            (Query(rate(f"{BROKER_TOPICS}replicationbytesin_total"), "{{instance}}"),),
        ),
        Panel(
            "Copied to followers",
            "Bps",
            "What each broker sends of what it leads: with three replicas, twice what it takes in.",
            (Query(rate(f"{BROKER_TOPICS}replicationbytesout_total"), "{{instance}}"),),
        ),
        Panel(
            "Records that followers lack",
            "short",
            "By follower, in the partition of which it lacks most. It goes up and down under load; "
            "one that only grows does not keep up.",
            (
                Query("max by (follower) (ottla_replication_follower_lag)", "node {{follower}}"),
                Query("max(ottla_replication_lag_max)", "of all"),
            ),
        ),
        Panel(
            "Not as many in sync as there are",
            "short",
            "Partitions led by each node that lack a replica in sync.",
            (Query(f"{REPLICAS}underreplicatedpartitions", "{{instance}}"),),
        ),
        Panel(
            "In-sync sets that change",
            "ops",
            "A shrink is a follower that fell behind, an expansion one that is back. Refused by "
            "the controller: two of them at once, or a leader that is one no more.",
            (
                Query(f"sum({rate(f'{REPLICAS}isrshrinks_total')})", "shrinks"),
                Query(f"sum({rate(f'{REPLICAS}isrexpands_total')})", "expansions"),
                Query(f"sum({rate(f'{REPLICAS}failedisrupdates_total')})", "refused"),
            ),
        ),
        Panel(
            "Streams that are open",
            "short",
            "From every broker to each leader it follows, and from every voter to each other one.",
            (
                Query("sum by (stream) (ottla_stream_open)", "{{stream}}, open"),
                Query("count by (stream) (ottla_stream_open)", "{{stream}}, wanted"),
            ),
        ),
        Panel(
            "Streams that break",
            "ops",
            "A node that stops breaks all of its streams once. More than that is the network.",
            (
                Query(
                    f"sum by (stream, peer) ({rate('ottla_stream_breaks_total')})",
                    "{{stream}} to node {{peer}}",
                ),
            ),
        ),
        Panel(
            "Silence of leaders",
            "s",
            "How long ago each follower heard its leaders. Idle ones speak every half second.",
            (
                Query(
                    'ottla_stream_silence_seconds{stream="replication"}',
                    "node {{peer}} at {{instance}}",
                ),
            ),
        ),
        Panel(
            "Entries that voters lack",
            "short",
            "As the leader of the quorum sees the others. While one is behind, one loss less is "
            "borne.",
            (Query("ottla_quorum_voter_lag", "voter {{voter}}"),),
        ),
        Panel(
            "Entries not known to be committed",
            "short",
            "Near 0: what is proposed is committed at once.",
            (Query("ottla_quorum_commit_lag", "{{instance}}"),),
        ),
        Panel(
            "Entries of the quorum",
            "short",
            "How many have been committed, and how much of the metadata each broker follows.",
            (
                Query(f"max({RAFT}high_watermark)", "committed"),
                Query("min(ottla_metadata_version)", "followed by the slowest broker"),
            ),
        ),
        Panel(
            "Messages of voters not believed",
            "ops",
            "Some after an election; a steady stream is a voter that does not belong.",
            (
                Query(
                    f"sum by (reason) ({rate('ottla_quorum_messages_dropped_total')})",
                    "{{reason}}",
                ),
            ),
        ),
    ),
)
