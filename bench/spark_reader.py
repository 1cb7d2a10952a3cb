"""A Spark that reads topics when it is told to: one line of JSON in, one line out.

Runs in two environments: with our format on this PySpark, and with Spark's own Kafka connector on
PySpark 4.0.0 (`spark_peer.py`), where there is nothing of ours. So it imports nothing of ours
unless it is asked for our format. A turn reads every column of every record and throws it away
(`noop`), or counts (`count`).

Not here: what is compared (`spark.py`, `spark_count.py`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any


def session(form: str, jars: str) -> Any:
    settings = {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if form == "ottla":
        from ottla.clients.spark.session import start_session

        return start_session("bench", url="local[2]", conf=settings)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("bench").master("local[2]")
    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for key, value in {**settings, **local, "spark.jars": jars}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class WorkerMemory:
    """Looks at the memory of Spark's Python workers while a turn lasts."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for pid in _workers():
                self.peak_mb = max(self.peak_mb, _rss_mb(pid))


def _workers() -> list[int]:
    """Return the Python processes of tasks below this one: `pyspark.daemon` and its children."""
    parents, daemons = dict[int, int](), list[int]()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        parents[int(entry.name)] = int(stat.rsplit(")", 1)[1].split()[1])
        if b"pyspark.daemon" in line:
            daemons.append(int(entry.name))
    return [pid for pid in daemons if _is_below(pid, os.getpid(), parents)]


def _is_below(pid: int, top: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == top:
            return True
    return False


def _rss_mb(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return 0.0


def turn(spark: Any, form: str, order: dict[str, Any]) -> dict[str, Any]:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", order["bootstrap"])
    for key, value in order.get("options", {}).items():
        reader = reader.option(key, value)
    with WorkerMemory() as memory:
        began = time.perf_counter()
        rows = reader.option("subscribe", order["topic"]).load()
        count = -1
        if order["what"] == "count":
            count = rows.count()
        else:
            rows.write.format("noop").mode("overwrite").save()
        took_s = time.perf_counter() - began
    return {"seconds": took_s, "count": count, "worker_mb": memory.peak_mb}


def main() -> None:
    form, jars = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    spark = session(form, jars)
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"spark": spark.version}), flush=True)
    for line in sys.stdin:
        print(json.dumps(turn(spark, form, json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
