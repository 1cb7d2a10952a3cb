"""What the pipelines of this folder share: a node of their own, runs of `ottla pipeline`, a check.

Not here: their data and what must come out (`clickstream.py`, `ticks.py`, `viewing.py`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla import Admin, NewTopic, Producer

HERE = Path(__file__).resolve().parent
NODE_DEADLINE_S = 300.0
POLL_S = 0.1


def say(line: str) -> None:
    print(line, flush=True)


def as_time(second: float) -> str:
    """Return a time as records have it, with milliseconds."""
    whole, rest = divmod(round(second * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{rest:03}Z"


class Stage:
    """A node with topics, and a pipeline that runs on it."""

    def __init__(self, name: str, out: Path, bootstrap: str) -> None:
        self.name = name
        self.out = out
        self.bootstrap = bootstrap
        self._file = out / f"{name}.toml"
        for path in HERE.glob(f"{name}*"):
            # The file, and what it names: functions, tables.
            text = path.read_text(encoding="utf-8").replace("localhost:9092", bootstrap)
            (out / path.name).write_text(text, encoding="utf-8")

    def send(self, topic: str, records: list[tuple[str, bytes]]) -> None:
        """Send keys with values, in order."""
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            for key, value in records:
                producer.send(topic, value, key=key.encode())

    def run(self) -> None:
        self._ottla("run", "--master", "local[2]", "--conf", "spark.driver.memory=1g")

    def replay(self) -> None:
        self._ottla("replay")

    def _ottla(self, command: str, *options: str) -> None:
        words = [sys.executable, "-m", "ottla", "pipeline", command, str(self._file), *options]
        if subprocess.run(words, check=False).returncode:
            sys.exit(f"{self.name}: `ottla pipeline {command}` has failed; why stands above.")

    @contextmanager
    def spark(self) -> Iterator[Any]:
        from ottla.clients.spark.session import start_session

        session = start_session(f"{self.name}-check", url="local[2]")
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()

    def read_topic(self, spark: Any, topic: str) -> list[Any]:
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", self.bootstrap)
        # Pipelines write exactly once, for whoever reads what is committed.
        options = {"kafka.isolation.level": "read_committed", "includeHeaders": "true"}
        rows: list[Any] = reader.options(subscribe=topic, **options).load().collect()
        return rows

    def reasons(self, spark: Any, topic: str) -> list[str]:
        """Return why each record of a dead-letter topic is there; "" for one that does not say."""
        found = []
        for row in self.read_topic(spark, topic):
            told = [bytes(one.value) for one in row.headers or () if one.key == "ottla-error"]
            found.append(told[0].decode() if told else "")
        return found

    def finish(self, problems: list[str], good: str) -> None:
        """End with a sentence: what is right, or what is not."""
        if problems:
            sys.exit(f"{self.name}: " + " ".join(problems))
        say(good)
        say(f"charts: {self.out / 'report.html'}")


@contextmanager
def staged(name: str, out: Path, topics: dict[str, int]) -> Iterator[Stage]:
    """Yield a stage in an empty directory with topics of so many partitions; end its node after."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    data = out / "node"
    command = [sys.executable, "-m", "ottla", "node", "--quiet", f"log.dirs={data}"]
    command.append("listeners=CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0")
    process = subprocess.Popen(command)
    try:
        bootstrap = _address(name, process, data / ".addresses.json")
        say(f"node at {bootstrap}")
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics([NewTopic(topic, count) for topic, count in topics.items()])
        yield Stage(name, out, bootstrap)
    finally:
        process.terminate()
        process.wait(60)


def _address(name: str, process: subprocess.Popen[bytes], file: Path) -> str:
    deadline = time.monotonic() + NODE_DEADLINE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"{name}: the node has ended; what it says stands above.")
        if file.exists():
            address: str = json.loads(file.read_text())["CLIENT"]
            return address
        time.sleep(POLL_S)
    sys.exit(f"{name}: the node is not there after {NODE_DEADLINE_S:.0f} s.")


def directory_named() -> Path:
    """Return the directory that the command line names."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: python docs/pipelines/{Path(sys.argv[0]).name} DIR")
    return Path(sys.argv[1])
