"""Has our own verifier read the files of a node that is down, as a program.

Not here: what is sound (`ottla log verify`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ottla.chaos.backends.process import surroundings
from ottla.chaos.ports import HarnessError

_VERIFY_DEADLINE_S: Final = 120.0


def verify(data_dir: Path) -> list[str]:
    """Return what our own verifier says is wrong, in sentences."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "log", "verify", "--json", str(data_dir)],
        capture_output=True,
        timeout=_VERIFY_DEADLINE_S,
        check=False,
        text=True,
        env=surroundings(),
    )
    try:
        told = json.loads(done.stdout)
    except ValueError:
        raise HarnessError(f"verifying {data_dir} failed: {done.stderr[-500:]}") from None
    return problems_in(told)


def problems_in(told: Mapping[str, Any]) -> list[str]:
    """Return all problems of a verifier's answer, each with its partition."""
    found = [str(one) for one in told.get("problems", ())]
    for partition in told.get("partitions", ()):
        name = partition.get("partition", "?")
        found += [f"{name}: {one}" for one in partition.get("problems", ())]
    return found
