"""The command `ottla` in the process of the test: most commands take less than a start of Python.

Not for a command that holds something until its process ends, that must be killed, or whose nodes
outlive it.
"""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from ottla.__main__ import main


def ottla(*arguments: str) -> Result:
    """Return what it printed and how it ended; an error that it did not expect is raised."""
    ended = CliRunner().invoke(main, arguments)
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return ended


def verify(data_dir: Path) -> None:
    """`ottla log verify` finds a directory sound as a node or a writer left it."""
    ended = ottla("log", "verify", str(data_dir), "--json")
    assert ended.exit_code == 0, (ended.stdout, ended.stderr)
    assert json.loads(ended.stdout)["ok"]
