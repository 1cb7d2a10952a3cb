"""How fast does Spark read through our format, beside its own Kafka connector? The same topic.

    python -m bench.spark [--rounds 3] [--mb 300] [--sizes 100,1000]

One node, a topic of 12 partitions, two Sparks of two threads each (`local[2]`): ours on this
PySpark, and the connector on PySpark 4.0.0 (`spark_peer.py`; needs Java and Maven). They take
turns; one turn of each is thrown away. A turn reads every column of every record into Spark's rows
and drops them. A figure is the median of its rounds; `ratio` is the median of the ratios within a
round.

    python -m bench.spark --profile     where a task of ours spends its time

Not here: memory and many records (`spark_count.py`).
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from pathlib import Path
from statistics import median
from typing import Final

from bench.machine import machine_of
from bench.measure import say, table, workspace
from bench.node_servers import node_command, running
from bench.spark_peer import get_peer, missing_tools
from bench.spark_side import fill, our_side, peer_side

_FREE_BYTES: Final = 4 << 30
_PROFILE_ROWS: Final = 25


def compare(directory: Path, sizes: list[int], total_mb: int, rounds: int) -> None:
    place = directory / "node"
    rows = list[list[str]]()
    with running("node", place, node_command(place, "pagecache")) as server:
        counts = dict[int, int]()
        for size in sizes:
            say(f"filling {size} B …")
            # Small records take longer: fewer bytes of them are enough.
            wanted = total_mb * 1_000_000 // size // (1 if size > 500 else 2)
            counts[size] = fill(server, f"bench-{size}", size, wanted)
        with our_side() as ours, peer_side(get_peer()) as theirs:
            print(f"ottla on Spark {ours.spark_version}, kafka on Spark {theirs.spark_version}")
            for size in sizes:
                taken: dict[str, list[float]] = {ours.name: [], theirs.name: []}
                for number in range(rounds + 1):
                    sides = (ours, theirs) if number % 2 else (theirs, ours)
                    for side in sides:
                        say(f"{size} B, {side.name}, round {number} …")
                        told = side.turn(
                            bootstrap=server.address, topic=f"bench-{size}", what="read"
                        )
                        if number:
                            taken[side.name].append(counts[size] / told["seconds"])
                shares = [a / b for a, b in zip(taken["ottla"], taken["kafka"], strict=True)]
                rows.append(
                    [
                        f"{size} B",
                        f"{counts[size]:,}",
                        f"{median(taken['ottla']):,.0f}",
                        f"{median(taken['kafka']):,.0f}",
                        f"{median(shares):.2f}",
                        " ".join(f"{one:.2f}" for one in shares),
                    ]
                )
    heading = ["records of", "count", "ottla rows/s", "kafka rows/s", "ratio", "by round"]
    print(table(heading, rows), flush=True)


def profile(directory: Path, sizes: list[int], total_mb: int) -> None:
    """Read all partitions in this process, as tasks do, without Spark, and tell what it costs."""
    from pyspark.sql.types import StructType

    from ottla.clients.spark.arrow import SCHEMA
    from ottla.clients.spark.options import read_source_options
    from ottla.clients.spark.source import BatchReader

    place = directory / "node"
    with running("node", place, node_command(place, "pagecache")) as server:
        for size in sizes:
            topic = f"bench-{size}"
            count = fill(server, topic, size, total_mb * 250_000 // size)
            given = {"kafka.bootstrap.servers": server.address, "subscribe": topic}
            options = read_source_options(given, is_stream=False)
            reader = BatchReader(options, StructType.fromDDL(SCHEMA))
            profiler = cProfile.Profile()
            profiler.enable()
            got = sum(one.num_rows for piece in reader.partitions() for one in reader.read(piece))
            profiler.disable()
            assert got == count, f"{got} rows of {count}"
            print(f"\n{size} B: {count:,} records")
            pstats.Stats(profiler).sort_stats("tottime").print_stats(_PROFILE_ROWS)


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=summary)
    parser.add_argument("--dir", help="where to write; a directory of its own is made in it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb", type=int, default=300)
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    sizes = [int(one) for one in options.sizes.split(",")]
    missing = None if options.profile else missing_tools()
    if missing is not None:
        raise SystemExit(missing)
    with workspace(options.dir, free_bytes_min=_FREE_BYTES) as directory:
        print(machine_of(directory).line(), flush=True)
        if options.profile:
            profile(Path(directory), sizes, options.mb)
        else:
            compare(Path(directory), sizes, options.mb, options.rounds)


if __name__ == "__main__":
    main()
