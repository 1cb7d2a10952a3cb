"""The dashboard of one node: its process, its disk, its share of the work.

Not here: what a panel is (`panel.py`).
"""

from __future__ import annotations

from typing import Final

from ottla.node.boards.panel import (
    ALL_HERE,
    BROKER_TOPICS,
    HERE,
    OURS,
    REPLICAS,
    Board,
    Panel,
    Query,
    quantiles,
    rate,
)

NODE: Final = Board(
    "ottla-node",
    "Ottla: one node",
    (
        Panel(
            "Ready",
            "short",
            "Ready serves clients. Fenced is known to the cluster and may not.",
            (
                Query(f"ottla_node_ready{HERE}", "ready"),
                Query(f"ottla_broker_fenced{HERE}", "fenced"),
                Query(f"kafka_log_logmanager_offlinelogdirectorycount{HERE}", "disk failed"),
            ),
        ),
        Panel(
            "Up since",
            "s",
            "A saw is a node that starts again and again.",
            (Query(f"time() - process_start_time_seconds{OURS}", "up"),),
        ),
        Panel(
            "Processor",
            "percentunit",
            "Of one core. One event loop does most of it: near 1 it is the limit.",
            (Query(rate("process_cpu_seconds_total", OURS), "processor"),),
        ),
        Panel(
            "Memory",
            "bytes",
            "Resident, mapped files included.",
            (Query(f"process_resident_memory_bytes{OURS}", "resident"),),
        ),
        Panel(
            "File descriptors",
            "short",
            "Logs and connections take them. At the limit connections are refused.",
            (
                Query(f"process_open_fds{OURS}", "open"),
                Query(f"process_max_fds{OURS}", "limit"),
            ),
        ),
        Panel(
            "Lateness of the event loop",
            "s",
            "How long everybody waits for somebody. Above a tenth of a second clients feel it.",
            quantiles("ottla_event_loop_delay_seconds", HERE),
        ),
        Panel(
            "A sync of a log",
            "s",
            "Every acknowledged write waits for one.",
            quantiles("ottla_log_fsync_duration_seconds", HERE),
        ),
        Panel(
            "Syncs",
            "ops",
            "One sync serves all who wait for it, so this need not grow with the load.",
            (Query(rate("ottla_log_fsync_duration_seconds_count", HERE), "syncs"),),
        ),
        Panel(
            "Disk",
            "bytes",
            "Room where the data is, and what the logs take of it.",
            (
                Query(f"ottla_disk_free_bytes{HERE}", "free"),
                Query(f"ottla_disk_size_bytes{HERE}", "size"),
                Query(f"ottla_log_size_bytes{HERE}", "logs"),
            ),
        ),
        Panel(
            "Largest logs",
            "bytes",
            "The ten partitions that take most. Not told of more than 2,000 replicas on a node.",
            (Query(f"topk(10, kafka_log_log_size{HERE})", "{{topic}}-{{partition}}"),),
        ),
        Panel(
            "Bytes",
            "Bps",
            "From producers, to consumers, from leaders and to followers.",
            (
                Query(rate(f"{BROKER_TOPICS}bytesin_total", ALL_HERE), "in"),
                Query(rate(f"{BROKER_TOPICS}bytesout_total", ALL_HERE), "out"),
                Query(rate(f"{BROKER_TOPICS}replicationbytesin_total", HERE), "from leaders"),
                Query(rate(f"{BROKER_TOPICS}replicationbytesout_total", HERE), "to followers"),
            ),
        ),
        Panel(
            "Replicas",
            "short",
            "Kept here, led here, and serving nothing.",
            (
                Query(f"{REPLICAS}partitioncount{HERE}", "kept"),
                Query(f"{REPLICAS}leadercount{HERE}", "led"),
                Query(f"{REPLICAS}offlinereplicacount{HERE}", "offline"),
            ),
        ),
        Panel(
            "Collections of garbage",
            "ops",
            "By generation; the last one looks at everything, and should be rare.",
            (Query(rate("python_gc_collections_total", OURS), "generation {{generation}}"),),
        ),
        Panel(
            "Lines of the log that were lost",
            "ops",
            "Whatever takes standard error did not take them.",
            (Query(rate("ottla_log_lines_lost_total", HERE), "lost"),),
        ),
        Panel(
            "Streams to other nodes",
            "short",
            "1 is open.",
            (Query(f"ottla_stream_open{HERE}", "{{stream}} to node {{peer}}"),),
        ),
    ),
    is_of_one_node=True,
)
