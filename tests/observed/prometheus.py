"""A real Prometheus as a child process, and its tool: from the PATH, else from its Docker image.

Nodes are given to it in a file that it reads every second, so that they may come and go.

Not here: nodes (`tests.integration.clusters`), and what is asked.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from ottla.chaos.backends.reserved import HOST, reserve_ports
from tests.integration.nodes import wait_until

IMAGE: Final = "prom/prometheus"
SCRAPE_S: Final = 1
START_S: Final = 60.0
TOOL_S: Final = 120.0
_STOP_S: Final = 20.0
_CONFIG: Final = """\
global:
  scrape_interval: {every}s
  scrape_timeout: {every}s
  evaluation_interval: {every}s
rule_files:
  - {place}/rules.yml
scrape_configs:
  - job_name: ottla
    file_sd_configs:
      - files: ["{place}/targets.json"]
        refresh_interval: 1s
"""


def tool(program: str, place: Path) -> list[str]:
    """Return the beginning of a command that runs `prometheus` or `promtool` where `place` is.

    Skips the test if there is neither the program nor an engine with its image.
    """
    found = shutil.which(program)
    if found is not None:
        return [found]
    docker = shutil.which("docker")
    looked = [docker or "docker", "image", "inspect", IMAGE]
    if docker is None or subprocess.run(looked, capture_output=True, check=False).returncode:
        pytest.skip(f"NOT OBSERVED: no {program} on the PATH, and no Docker image {IMAGE}")
    return [
        *(docker, "run", "--rm", "--network", "host", "--user", f"{os.getuid()}:{os.getgid()}"),
        *("--volume", f"{place}:{place}", "--entrypoint", program, IMAGE),
    ]


def promtool(place: Path, *arguments: str) -> str:
    """Return what `promtool` says; raise if it does not like what it sees."""
    command = [*tool("promtool", place), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S, check=False)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True, slots=True)
class Series:
    """One line of an answer: its labels, and its values by time."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def has_data(self) -> bool:
        return any(not math.isnan(value) for _, value in self.points)


class Prometheus:
    """One that runs."""

    def __init__(self, place: Path, port: int) -> None:
        self.place: Final = place
        self.port: Final = port

    def scrape(self, *addresses: str) -> None:
        """Look at these nodes from now on, and at no others."""
        _write(self.place / "targets.json", json.dumps([{"targets": list(addresses)}]))

    def ask(self, path: str, **fields: str) -> Any:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            connection.request("GET", f"/api/v1/{path}?{urllib.parse.urlencode(fields)}")
            told = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert told["status"] == "success", f"{fields}: {told}"
        return told["data"]

    def query(self, expression: str) -> list[Series]:
        """Return what an expression is now."""
        data = self.ask("query", query=expression)
        assert data["resultType"] == "vector", data
        return [Series(one["metric"], (_point(one["value"]),)) for one in data["result"]]

    def query_range(self, expression: str, start_s: float, end_s: float) -> list[Series]:
        """Return what it was, for each second."""
        data = self.ask(
            "query_range", query=expression, start=f"{start_s}", end=f"{end_s}", step="1"
        )
        return [Series(one["metric"], tuple(map(_point, one["values"]))) for one in data["result"]]

    def value(self, expression: str) -> float | None:
        found = self.query(expression)
        return found[0].points[0][1] if found else None

    def metric_names(self) -> set[str]:
        """Return the names of all series there ever were."""
        return set(self.ask("label/__name__/values"))

    def alerts(self) -> dict[str, str]:
        """Return every alert and its state: inactive, pending or firing."""
        groups: Iterable[dict[str, Any]] = self.ask("rules", type="alert")["groups"]
        return {rule["name"]: rule["state"] for group in groups for rule in group["rules"]}

    def is_ready(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


@contextmanager
def running_prometheus(place: Path, rules: str) -> Iterator[Prometheus]:
    """Yield a Prometheus that goes by these rules and looks at nobody yet."""
    place.mkdir(parents=True, exist_ok=True)
    (port,) = reserve_ports(1)
    (place / "rules.yml").write_text(rules, encoding="utf-8")
    config = _CONFIG.format(every=SCRAPE_S, place=place)
    (place / "prometheus.yml").write_text(config, encoding="utf-8")
    running = Prometheus(place, port)
    running.scrape()
    command = tool("prometheus", place)
    name = f"observed-{uuid4().hex[:12]}"
    if "--entrypoint" in command:
        command[2:2] = ["--name", name]
    arguments = [
        f"--config.file={place}/prometheus.yml",
        f"--storage.tsdb.path={place}/data",
        f"--web.listen-address={HOST}:{port}",
        "--log.level=warn",
    ]
    log_path = place / "prometheus.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log)
    try:
        wait_until(
            lambda: process.poll() is not None or running.is_ready(), START_S, "Prometheus is ready"
        )
        assert process.poll() is None, log_path.read_text(errors="replace")
        yield running
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        process.kill()
        process.wait(_STOP_S)
        if "--entrypoint" in command:
            subprocess.run([command[0], "rm", "-f", name], capture_output=True, check=False)


def _point(told: list[Any]) -> tuple[float, float]:
    return float(told[0]), float(told[1])


def _write(path: Path, text: str) -> None:
    """Write at once: it is read at any moment."""
    made = path.with_suffix(".new")
    made.write_text(text, encoding="utf-8")
    made.replace(path)
