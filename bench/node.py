"""A node against the least that librdkafka takes for a broker, in the same run, taking turns.

    python -m bench.node                   everything, about ten minutes
    python -m bench.node --quick           everything, roughly, in a minute
    python -m bench.node --only produce    one part: produce, stream, write, memory, start, topics
    python -m bench.node --only profile    where the time of the node goes
    python -m bench.node --itself          the limit against itself: how much of a share is noise

produce  librdkafka, acks=1, 100 B and 1 KB, 1 and 4 partitions, both durabilities; then the same
         records consumed from the start
stream   prepared requests on one plain connection: the broker without the driver
write    one 100 B record at a time, acks=1, linger 0: p50 and p99
memory   what the process has for itself: idle, and under load
start    from the start of the process to the first acknowledged write, in an empty directory
topics   the cost of one request in a node with 1 topic and in a node with 2,000

One turn of each is thrown away as warm-up; then rounds, every other one backwards. A turn has a new
broker in an empty directory (`node_plan.py`). A figure is the median of its rounds. The driver
needs more of the machine than the broker does: where `driver cores` is near what the machine has
left, `CPU s/GB` says more than MB/s.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.machine import machine_of
from bench.measure import workspace
from bench.node_load import measure_produce, measure_stream, measure_write
from bench.node_plan import FULL, QUICK, Plan
from bench.node_process import measure_memory, measure_start, measure_topics, show_profile

_FREE_BYTES_MIN: Final = 4 << 30

PARTS: Final[dict[str, Callable[[Path, Plan], dict[str, object]]]] = {
    "produce": measure_produce,
    "stream": measure_stream,
    "write": measure_write,
    "memory": measure_memory,
    "start": measure_start,
    "topics": measure_topics,
    "profile": show_profile,
}


def plan_of(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else FULL
    return replace(plan, itself=options.itself, rounds=options.rounds or plan.rounds)


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.node", description=summary)
    parser.add_argument("--dir", help="where to write; a directory of its own is made in it")
    parser.add_argument("--quick", action="store_true", help="a minute, and rough")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--itself", action="store_true", help="the limit in place of the node")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    plan = plan_of(options)
    # Brokers are stopped and files removed also when somebody loses patience.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parts = options.only or [name for name in PARTS if name != "profile"]
    facts: dict[str, object] = {}
    with workspace(options.dir, free_bytes_min=_FREE_BYTES_MIN) as directory:
        machine = machine_of(directory)
        print(machine.line())
        print(f"{plan.rounds} rounds after one turn of warm-up\n", flush=True)
        for part in parts:
            facts |= PARTS[part](Path(directory), plan)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine.facts(), **facts}, file, indent=2)


if __name__ == "__main__":
    main()
