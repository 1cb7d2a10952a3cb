"""Commands as a person types them, one line each, in one directory and towards one cluster."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from click.testing import CliRunner

from ottla.__main__ import main

DEADLINE_S: Final = 120.0
ROOT: Final = Path(__file__).parents[3]
ENVIRONMENT: Final = {
    **{name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")},
    "PYTHONPATH": str(ROOT),
}
# Commands that speak to no cluster, or start one; the others are told where it is.
_LOCAL: Final = ("cluster", "log")


class Typed(NamedTuple):
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


class Shell:
    """A terminal. What begins with `ottla` is run; `--bootstrap-server` is added for it."""

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        self.bootstrap = ""

    def words(self, line: str, more: tuple[str, ...]) -> list[str]:
        program, *words = [*shlex.split(line), *more]
        assert program == "ottla", line
        if words[0] not in _LOCAL:
            words += ["--bootstrap-server", self.bootstrap]
        return words

    def run(self, line: str, *more: str, given: str = "") -> Typed:
        """Type a line; return what came of it."""
        words = self.words(line, more)
        if words[0] == "cluster":
            # Nodes outlive the command, so it is a process of its own.
            done = subprocess.run(
                [sys.executable, "-m", "ottla", *words],
                cwd=self.directory,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
                env=ENVIRONMENT,
            )
            return Typed(done.returncode, done.stdout, done.stderr)
        ended = CliRunner().invoke(main, words, input=given)
        return Typed(ended.exit_code, ended.stdout, ended.stderr)

    def done(self, line: str, *more: str, given: str = "") -> str:
        """Type a line that must do what it says; return what it printed."""
        ended = self.run(line, *more, given=given)
        assert ended.code == 0, f"{line}: exit code {ended.code}: {ended.out}{ended.err}"
        return ended.out

    def told(self, line: str, *more: str, given: str = "") -> Any:
        """Type a line with --json; return what it told."""
        return json.loads(self.done(line, *more, "--json", given=given))

    def started(self, line: str) -> subprocess.Popen[str]:
        """Type a line that goes on until it is ended."""
        return subprocess.Popen(
            [sys.executable, "-m", "ottla", *self.words(line, ())],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            # A test that runs in the background would hand down that Ctrl-C is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
