"""A Docker engine as tests use it, and the cluster of `compose/` in it.

The cluster has a project and ports of its own, so it disturbs none that a person has started.

Not here: what is tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.chaos.backends.reserved import reserve_ports
from tests.integration.nodes import wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
COMPOSE_FILE: Final = ROOT / "compose" / "compose.yaml"
NODES: Final = (1, 2, 3)
COMMAND_DEADLINE_S: Final = 120
BUILD_DEADLINE_S: Final = 900
READY_DEADLINE_S: Final = 120
_PORTS: Final = (
    *(f"NODE{node}_PORT" for node in NODES),
    *(f"NODE{node}_HTTP_PORT" for node in NODES),
    "PROMETHEUS_PORT",
)


@dataclass(frozen=True, slots=True)
class Said:
    """What came of a command."""

    code: int
    out: str
    error: str

    @property
    def text(self) -> str:
        return self.out + self.error


class Engine:
    """`docker`, as a command."""

    @classmethod
    def found(cls) -> Engine:
        engine = cls()
        for words in (("info",), ("compose", "version")):
            said = engine.try_(*words)
            assert said.code == 0, f"docker {' '.join(words)} does not work here: {said.error}"
        return engine

    def try_(
        self,
        *words: str,
        stdin: str | None = None,
        environment: dict[str, str] | None = None,
        deadline_s: float = COMMAND_DEADLINE_S,
    ) -> Said:
        ran = subprocess.run(
            ("docker", *words),
            input=stdin,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
        return Said(ran.returncode, ran.stdout, ran.stderr)

    def __call__(self, *words: str, stdin: str | None = None) -> str:
        said = self.try_(*words, stdin=stdin)
        assert said.code == 0, f"docker {' '.join(words)}: {said.text}"
        return said.out.strip()

    def inspect(self, name: str, path: str) -> Any:
        return json.loads(self("inspect", "--format", f"{{{{json {path}}}}}", name))


class ContainerCluster:
    """The cluster of `compose/compose.yaml`. `up` once, `down` once."""

    def __init__(self, engine: Engine) -> None:
        self.engine: Final = engine
        self.project: Final = f"ottla-test-{os.getpid()}"
        # Who names an image wants that one tested.
        self.image: Final = os.environ.get("NODE_IMAGE", "ottla-test")
        ports = reserve_ports(len(_PORTS))
        self.ports: Final = dict(zip(_PORTS, ports, strict=True))
        self.environment: Final = {
            "NODE_IMAGE": self.image,
            **{name: str(port) for name, port in self.ports.items()},
        }
        # From the call to the moment at which all nodes said that they are ready.
        self.took_s = 0.0

    def compose(self, *words: str) -> str:
        said = self.try_compose(*words)
        assert said.code == 0, f"docker compose {' '.join(words)}: {said.text}"
        return said.out

    def try_compose(self, *words: str) -> Said:
        told = ("compose", "-f", str(COMPOSE_FILE), "-p", self.project, *words)
        return self.engine.try_(*told, environment=self.environment, deadline_s=BUILD_DEADLINE_S)

    def script(self, *words: str, **environment: str) -> Said:
        """Run what is behind `make up` and its like, for this cluster unless told otherwise."""
        ran = subprocess.run(
            (str(ROOT / "compose" / "run.sh"), *words),
            env={
                **os.environ,
                **self.environment,
                "COMPOSE_PROJECT_NAME": self.project,
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=BUILD_DEADLINE_S,
            check=False,
        )
        return Said(ran.returncode, ran.stdout, ran.stderr)

    # -- its life --------------------------------------------------------------------------------

    def up(self) -> None:
        began = time.monotonic()
        self.compose("up", "--detach", "--no-build", "--quiet-pull")
        self.wait_until_ready()
        self.took_s = time.monotonic() - began

    def down(self) -> None:
        self.compose("down", "--volumes", "--timeout", "5")

    def wait_until_ready(self, *nodes: int, deadline_s: float = READY_DEADLINE_S) -> None:
        for node in nodes or NODES:
            wait_until(
                lambda node=node: self.page(node, "/health/ready")[0] == 200,  # type: ignore[misc]
                deadline_s,
                f"node {node} is ready; it says {self.page(node, '/health/ready')[1]}",
            )

    # -- its nodes -------------------------------------------------------------------------------

    @property
    def network(self) -> str:
        return f"{self.project}_default"

    @property
    def bootstrap(self) -> str:
        """Where clients on this machine begin."""
        return ",".join(f"localhost:{self.ports[f'NODE{node}_PORT']}" for node in NODES)

    def container(self, node: int) -> str:
        return f"{self.project}-node{node}-1"

    def volume(self, node: int) -> str:
        return f"{self.project}_node{node}"

    def page(self, node: int, path: str) -> tuple[int, str]:
        """Return what the node's HTTP listener answers; code 0: nothing."""
        where = f"http://127.0.0.1:{self.ports[f'NODE{node}_HTTP_PORT']}{path}"
        try:
            with urllib.request.urlopen(where, timeout=5) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def log_lines(self, node: int) -> list[str]:
        said = self.engine.try_("logs", self.container(node))
        return said.text.splitlines()

    def run(self, *words: str, options: tuple[str, ...] = (), stdin: str | None = None) -> Said:
        """Run a container of the nodes' image to its end, in the network of the cluster."""
        where = () if "--network" in options else ("--network", self.network)
        return self.engine.try_(
            "run", "--rm", "-i", *where, *options, self.image, *words, stdin=stdin
        )
