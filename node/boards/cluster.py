"""The dashboard of the cluster: is it whole, and what does it do?

Not here: what a panel is (`panel.py`).
"""

from __future__ import annotations

from typing import Final

from ottla.node.boards.panel import (
    ALL,
    BROKER_TOPICS,
    CONTROLLER,
    EACH,
    RAFT,
    REPLICAS,
    STATS,
    Board,
    Panel,
    Query,
    quantiles,
    rate,
)

CLUSTER: Final = Board(
    "ottla-cluster",
    "Ottla: cluster",
    (
        Panel(
            "Nodes",
            "short",
            "Nodes that answer, of those that should, and how many are ready to serve.",
            (
                Query('count(up{job="ottla"})', "all"),
                Query('sum(up{job="ottla"})', "up"),
                Query("sum(ottla_node_ready)", "ready"),
            ),
        ),
        Panel(
            "Active controller",
            "short",
            "Exactly one node is at 1. A moment without one is an election.",
            (Query(f"{CONTROLLER}activecontrollercount", "{{instance}}"),),
        ),
        Panel(
            "Brokers",
            "short",
            "Fenced ones neither lead nor serve: dead, cut off, starting, or with a failed disk.",
            (
                Query(f"sum({CONTROLLER}activebrokercount)", "active"),
                Query(f"sum({CONTROLLER}fencedbrokercount)", "fenced"),
            ),
        ),
        Panel(
            "Partitions that need a look",
            "short",
            "All at 0 in a whole cluster. Without a leader: not served. Under min ISR: acks=all is "
            "refused. Under-replicated: one loss less is borne.",
            (
                Query(f"sum({CONTROLLER}offlinepartitionscount)", "without a leader"),
                Query(f"sum({REPLICAS}underminisrpartitioncount)", "under min ISR"),
                Query(f"sum({REPLICAS}atminisrpartitioncount)", "at min ISR"),
                Query(f"sum({REPLICAS}underreplicatedpartitions)", "under-replicated"),
                Query(f"sum({REPLICAS}offlinereplicacount)", "replicas offline"),
            ),
        ),
        Panel(
            "Topics and partitions",
            "short",
            "How many there are in the cluster.",
            (
                Query(f"sum({CONTROLLER}globaltopiccount)", "topics"),
                Query(f"sum({CONTROLLER}globalpartitioncount)", "partitions"),
            ),
        ),
        Panel(
            "Leaders by node",
            "short",
            "Even lines share the work evenly; those without their preferred leader move back.",
            (
                Query(f"{REPLICAS}leadercount", "{{instance}}"),
                Query(
                    f"sum({CONTROLLER}preferredreplicaimbalancecount)", "not the preferred leader"
                ),
            ),
        ),
        Panel(
            "Bytes",
            "Bps",
            "What producers send, what consumers read, and what is copied between brokers.",
            (
                Query(f"sum({rate(f'{BROKER_TOPICS}bytesin_total', ALL)})", "in"),
                Query(f"sum({rate(f'{BROKER_TOPICS}bytesout_total', ALL)})", "out"),
                Query(f"sum({rate(f'{BROKER_TOPICS}replicationbytesin_total')})", "copied"),
            ),
        ),
        Panel(
            "Records in, by topic",
            "ops",
            "The ten topics that are written most.",
            (
                Query(
                    f"topk(10, sum by (topic) ({rate(f'{BROKER_TOPICS}messagesin_total', EACH)}))",
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            "Leader elections",
            "ops",
            "Partitions that get another leader. An unclean one may have lost records.",
            (
                Query(f"sum({rate('ottla_controller_leader_elections_total')})", "all"),
                Query(f"sum({rate(f'{STATS}uncleanleaderelections_total')})", "unclean"),
            ),
        ),
        Panel(
            "Term of the quorum",
            "short",
            "Steps are elections of a controller; the term is the same on every voter.",
            (Query(f"{RAFT}current_epoch", "{{instance}}"),),
        ),
        Panel(
            "Proposals to the quorum",
            "s",
            "How long a change of metadata takes until a majority has it on disk.",
            quantiles("ottla_quorum_proposal_duration_seconds"),
        ),
        Panel(
            "Free disk",
            "percentunit",
            "A broker whose disk is full is out. Make room before 10 %.",
            (Query("ottla_disk_free_bytes / ottla_disk_size_bytes", "{{instance}}"),),
        ),
    ),
)
