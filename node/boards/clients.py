"""The dashboard of clients: how long they wait, what they ask, how far they and groups are behind.

Not here: what a panel is (`panel.py`).
"""

from __future__ import annotations

from typing import Final

from ottla.node.boards.panel import (
    ALL,
    BROKER_TOPICS,
    EACH,
    REQUESTS,
    Board,
    Panel,
    Query,
    quantiles,
    rate,
)

CLIENTS: Final = Board(
    "ottla-clients",
    "Ottla: clients and lag",
    (
        Panel(
            "Produce",
            "ms",
            "From the last byte of a request to its answer: with acks=all, on every disk in sync.",
            quantiles(f"{REQUESTS}totaltimems", '{request="Produce"}'),
        ),
        Panel(
            "Produce by phases, 99 %",
            "ms",
            "Queue: others of its connection came first. Local: checked and written here. Remote: "
            "waiting for the disk and for followers.",
            tuple(
                Query(
                    "histogram_quantile(0.99, sum by (le) "
                    f"""({rate(f"{REQUESTS}{phase}timems_bucket", '{request="Produce"}')}))""",
                    name,
                )
                for phase, name in (
                    ("requestqueue", "queue"),
                    ("local", "local"),
                    ("remote", "remote"),
                )
            ),
        ),
        Panel(
            "Fetch",
            "ms",
            "A fetch waits for records, half a second by default: long is not slow.",
            quantiles(f"{REQUESTS}totaltimems", '{request="Fetch"}'),
        ),
        Panel(
            "From a record's timestamp to its append",
            "s",
            "How far producers are behind: what they gather, the way here, and how far clocks "
            "differ.",
            quantiles("ottla_record_append_delay_seconds"),
        ),
        Panel(
            "Lag of groups",
            "short",
            "Offsets that a group has not committed yet, in all partitions of a topic; the ten "
            "that are behind most. Told by its coordinator, where that has a replica.",
            (
                Query(
                    "topk(10, sum by (group, topic) (kafka_consumergroup_lag))",
                    "{{group}} {{topic}}",
                ),
            ),
        ),
        Panel(
            "Groups",
            "short",
            "By state. One that is never Stable rebalances all the time.",
            (
                Query(
                    "sum by (state) (kafka_coordinator_group_groupmetadatamanager_numgroups)",
                    "{{state}}",
                ),
                Query("sum(ottla_group_members)", "members"),
                Query("sum(ottla_group_partitions_loading)", "partitions still loading"),
            ),
        ),
        Panel(
            "Rebalances",
            "ops",
            "By reason. The log of the coordinator names group and member (group_rebalances).",
            (
                Query(
                    f"sum by (reason) ({rate('ottla_group_rebalances_total')})",
                    "{{reason}}",
                ),
            ),
        ),
        Panel(
            "Transactions",
            "short",
            "Transactional ids, by the state of their transaction.",
            (Query("sum by (state) (ottla_transactions)", "{{state}}"),),
        ),
        Panel(
            "Oldest open transaction",
            "s",
            "By its coordinator. So long whoever reads committed records waits, in its partitions. "
            "`ottla transactions list` names it.",
            (Query("ottla_transaction_oldest_seconds", "{{instance}}"),),
        ),
        Panel(
            "Markers that wait",
            "short",
            "Of transactions that are decided. One that stays has a partition without a leader.",
            (Query("ottla_transaction_markers_waiting", "{{instance}}"),),
        ),
        Panel(
            "Requests",
            "ops",
            "By what was asked.",
            (
                Query(
                    f"sum by (request) ({rate(f'{REQUESTS}requests_total')})",
                    "{{request}}",
                ),
            ),
        ),
        Panel(
            "Errors in answers",
            "ops",
            "docs/generated/ERRORS.md says what each means. NOT_LEADER_OR_FOLLOWER is usual while "
            "leaders move.",
            (
                Query(
                    f"sum by (request, error) ({rate(f'{REQUESTS}errors_total')})",
                    "{{request}} {{error}}",
                ),
            ),
        ),
        Panel(
            "Partitions refused",
            "ops",
            "Of what was written and read, what was answered with an error, and of how many.",
            (
                Query(
                    f"sum({rate(f'{BROKER_TOPICS}failedproducerequests_total', ALL)})",
                    "Produce, failed",
                ),
                Query(
                    f"sum({rate(f'{BROKER_TOPICS}failedfetchrequests_total', ALL)})",
                    "Fetch, failed",
                ),
                Query(f"sum({rate(f'{BROKER_TOPICS}totalproducerequests_total', ALL)})", "Produce"),
                Query(f"sum({rate(f'{BROKER_TOPICS}totalfetchrequests_total', ALL)})", "Fetch"),
            ),
        ),
        Panel(
            "Bytes in, by topic",
            "Bps",
            "The ten topics that are written most.",
            (
                Query(
                    f"topk(10, sum by (topic) ({rate(f'{BROKER_TOPICS}bytesin_total', EACH)}))",
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            "Bytes out, by topic",
            "Bps",
            "The ten topics that are read most.",
            (
                Query(
                    f"topk(10, sum by (topic) ({rate(f'{BROKER_TOPICS}bytesout_total', EACH)}))",
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            "Requests that wait",
            "short",
            "Fetch for records, Produce for the disk or for followers.",
            (
                Query(
                    "sum by (delayedOperation) "
                    "(kafka_server_delayedoperationpurgatory_purgatorysize)",
                    "{{delayedOperation}}",
                ),
            ),
        ),
        Panel(
            "Connections",
            "short",
            "Clients that are connected to each node.",
            (
                Query(
                    "sum by (instance) (kafka_server_socket_server_metrics_connection_count)",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Connections that begin and end",
            "ops",
            "Many that come and go are clients that do not keep theirs, or do not speak Kafka.",
            (
                Query(
                    f"sum({rate('kafka_server_socket_server_metrics_connection_creation_total')})",
                    "taken",
                ),
                Query(
                    f"sum({rate('kafka_server_socket_server_metrics_connection_close_total')})",
                    "ended",
                ),
                Query(f"sum({rate('ottla_connections_refused_total')})", "refused"),
                Query(f"sum({rate('ottla_protocol_errors_total')})", "not Kafka's protocol"),
            ),
        ),
    ),
)
