"""Starts the brokers that are compared, and looks at them from outside through /proc.

Each is a process of its own on a free port of loopback, in a directory of its own, and leaves its
address in `.addresses.json` when it listens.
Not here: what is asked of them (`node_cases.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

Durability = Literal["fsync", "pagecache"]

TOP: Final = Path(__file__).resolve().parents[1]
_START_S_MAX: Final = 30.0
_STOP_S_MAX: Final = 20.0
_POLL_S: Final = 0.002
_SAMPLE_S: Final = 0.02
_LISTENERS: Final = "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0"


class Server:
    """A running broker."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.name: Final = name
        self.process: Final = process
        self.directory: Final = directory
        self.started_at: Final = time.perf_counter()
        self.address = ""

    def wait_for_address(self) -> str:
        """Return host:port as soon as it listens."""
        path = self.directory / ".addresses.json"
        while not path.exists():
            if self.process.poll() is not None:
                log = self.log_path.read_text(errors="replace")[-2000:]
                raise SystemExit(f"{self.name} ended while it started:\n{log}")
            if time.perf_counter() - self.started_at > _START_S_MAX:
                raise SystemExit(f"{self.name} did not listen in {_START_S_MAX:.0f} s.")
            time.sleep(_POLL_S)
        self.address = json.loads(path.read_text(encoding="utf-8"))["CLIENT"]
        return self.address

    @property
    def log_path(self) -> Path:
        return self.directory.with_suffix(".out")

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def cpu_s(self) -> float:
        """Return the processor time of all its threads that still run."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        times = ((task / "schedstat").read_text(encoding="ascii") for task in tasks.iterdir())
        return sum(int(text.split()[0]) for text in times) / 1e9

    def anon_mb(self) -> float:
        """Return the memory that is its own: not files, not shared libraries."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024 / 1e6
        return 0.0

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def limit_command(directory: Path, durability: Durability) -> list[str]:
    command = [sys.executable, "-m", "bench.limit_broker", "--dir", str(directory)]
    return [*command, "--fsync"] if durability == "fsync" else command


def bare_command(directory: Path, durability: Durability) -> list[str]:
    command = [sys.executable, "-m", "bench.bare_replication", "--dir", str(directory)]
    return [*command, "--fsync"] if durability == "fsync" else command


def node_command(directory: Path, durability: Durability) -> list[str]:
    settings = {
        "log.dirs": str(directory),
        "listeners": _LISTENERS,
        "ottla.durability": durability,
    }
    flags = [f"{name}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", "ottla", "node", *flags]


def profiled(command: list[str], output: Path) -> list[str]:
    """Return the command with Python's profiler around it; it writes when the process ends."""
    return [command[0], "-m", "cProfile", "-o", str(output), *command[1:]]


def _environment(directory: Path) -> dict[str, str]:
    """Return an environment in which Python keeps what it compiled, as it does for everybody."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**environment, "PYTHONPYCACHEPREFIX": str(directory / "compiled")}


@contextmanager
def running(name: str, directory: Path, command: list[str]) -> Iterator[Server]:
    """Start a broker, wait until it listens, and stop it in the end."""
    directory.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".out").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=TOP,
            env=_environment(directory.parent),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    server = Server(name, process, directory)
    try:
        server.wait_for_address()
        yield server
    finally:
        server.stop()


class MemoryWatch:
    """Remembers the most memory that a server had of its own while the watch was on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_mb = 0.0

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            self.peak_mb = max(self.peak_mb, self._server.anon_mb())
