"""What does it cost to count 1, 5 and 20 million records with Spark, and how much memory?

    python -m bench.spark_count [--millions 1,5,20] [--size 20]

One node, a topic of 12 partitions for each count, `spark.read.format("ottla").load().count()` on
two threads. After a warm-up each is counted twice; the better time is shown, with the most resident
memory that any Python worker had, all libraries included, while it was counted. Cost is linear if
the time of a million stays the same.

Not here: speed beside Spark's own connector (`spark.py`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from bench.machine import machine_of
from bench.measure import say, table, workspace
from bench.node_servers import node_command, running
from bench.spark_side import fill, our_side

_FREE_BYTES: Final = 4 << 30
_WARM_UP: Final = 100_000


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.spark_count", description=summary)
    parser.add_argument("--dir", help="where to write; a directory of its own is made in it")
    parser.add_argument("--millions", default="1,5,20")
    parser.add_argument("--size", type=int, default=20, help="bytes of a value")
    options = parser.parse_args()
    rows = list[list[str]]()
    with workspace(options.dir, free_bytes_min=_FREE_BYTES) as directory:
        print(machine_of(directory).line(), flush=True)
        place = Path(directory) / "node"
        with running("node", place, node_command(place, "pagecache")) as server, our_side() as ours:
            fill(server, "warm-up", options.size, _WARM_UP)
            ours.turn(bootstrap=server.address, topic="warm-up", what="count")
            for millions in (int(one) for one in options.millions.split(",")):
                topic = f"count-{millions}"
                say(f"filling {millions} million …")
                wanted = fill(server, topic, options.size, millions * 1_000_000)
                say(f"counting {wanted:,} …")
                told = [
                    ours.turn(bootstrap=server.address, topic=topic, what="count") for _ in range(2)
                ]
                if any(one["count"] != wanted for one in told):
                    raise SystemExit(f"{wanted} records were counted as {told}.")
                best_s = min(one["seconds"] for one in told)
                rows.append(
                    [
                        f"{wanted:,}",
                        f"{best_s:.1f}",
                        f"{best_s * 1e6 / wanted:.2f}",
                        f"{max(one['worker_mb'] for one in told):.0f}",
                    ]
                )
    print(table(["records", "s", "s per million", "worker RSS, MB"], rows), flush=True)


if __name__ == "__main__":
    main()
