"""Gates in a process of their own, and whoever talks to it.

Every byte between nodes and clients passes a gate. In the process of the clients, gates and clients
would wait for each other, and what looks like a slow cluster would be a slow harness.

    python -m ottla.chaos.backends.gatekeeper SEED [HOST]
        listens at the host, else on this machine only; asked by lines of JSON, which it answers

The process may be in a container: then whoever talks to it gives the command that starts it there.

Not here: gates (`links.py`).

Y1  it ends when whoever started it does: its standard input ends then
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from ottla.chaos.backends.links import Links
from ottla.chaos.backends.process import surroundings
from ottla.chaos.backends.reserved import HOST
from ottla.chaos.ports import HarnessError, LinkFault

_ANSWER_S: Final = 20.0
_END_S: Final = 5.0
_READ_BYTES: Final = 1 << 16


class Gatekeeper:
    """The gates of one cluster, as `Links` has them; opened once, closed once. For any thread."""

    def __init__(
        self,
        seed: int,
        command: Sequence[str] = (sys.executable, "-m", "ottla.chaos.backends.gatekeeper"),
        *,
        host: str = HOST,
        environment: Mapping[str, str] | None = None,
        answer_s: float = _ANSWER_S,
    ) -> None:
        # How long an answer may take; the first one takes its start as well.
        self._answer_s: Final = answer_s
        self._process: Final = subprocess.Popen(
            [*command, str(seed), host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**surroundings(), **(environment or {})},
            start_new_session=True,
        )
        self._turn: Final = threading.Lock()
        self._read = b""

    def add(self, source: int, target: int, target_port: int, target_host: str = HOST) -> int:
        return int(self._ask("add", source, target, target_port, target_host))

    def set(self, source: int, target: int, fault: LinkFault) -> None:
        self._ask("set", source, target, asdict(fault))

    def passed_bytes(self, source: int, target: int) -> int:
        return int(self._ask("passed_bytes", source, target))

    def met_pieces(self, source: int, target: int) -> int:
        return int(self._ask("met_pieces", source, target))

    def watch(self, node: int, pid: int) -> None:
        self._ask("watch", node, pid)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            with suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()

    def _ask(self, what: str, *given: object) -> Any:
        assert self._process.stdin is not None
        with self._turn:
            try:
                self._process.stdin.write(json.dumps([what, *given]).encode() + b"\n")
                self._process.stdin.flush()
            except (OSError, ValueError) as error:
                # A pipe that is broken, or one that was closed here.
                raise HarnessError(f"the gatekeeper is gone: {error}") from error
            told = json.loads(self._line())
        if "error" in told:
            raise HarnessError(f"the gatekeeper cannot {what}: {told['error']}")
        return told["answer"]

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._read:
            ready, _, _ = select.select([descriptor], [], [], self._answer_s)
            more = os.read(descriptor, _READ_BYTES) if ready else b""
            if not more:
                raise HarnessError("the gatekeeper does not answer")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line


def _obey(links: Links, told: list[Any]) -> Any:
    what, *given = told
    if what == "set":
        given[2] = LinkFault(**given[2])
    known: dict[str, Callable[..., Any]] = {
        "add": links.add,
        "set": links.set,
        "passed_bytes": links.passed_bytes,
        "met_pieces": links.met_pieces,
        "watch": links.watch,
    }
    return known[what](*given)


def main() -> None:
    links = Links(int(sys.argv[1]), *sys.argv[2:3])
    for line in sys.stdin:
        try:
            answer = {"answer": _obey(links, json.loads(line))}
        except Exception as error:  # noqa: BLE001  (whoever asked is told)
            answer = {"error": repr(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    links.close()


if __name__ == "__main__":
    main()
