"""Spark's own Kafka connector on this machine: an environment of its own, and its jars.

The connector is compiled for one version of Spark: 4.0.0, while ours needs 4.2 or later. So it gets
a virtual environment with PySpark 4.0.0, in `target/spark-4.0`, made once (0.4 GB), and its jars
come by Maven.

    python -m bench.spark_peer        gets all, or says what is missing and exits with 1
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parent.parent
POM: Final = TOP / "bench" / "spark_pom.xml"
PLACE: Final = TOP / "target" / "spark-4.0"
PACKAGES: Final = ("pyspark==4.0.0",)
_DEADLINE_S: Final = 900.0
# Where this Python, or the Spark that it runs, looks for its own modules.
_OURS: Final = frozenset({"PYTHONPATH", "SPARK_HOME"})


@dataclass(frozen=True, slots=True)
class Peer:
    """What runs the connector."""

    python: Path
    jars: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """Return an environment in which Spark takes this Python, and not that of somebody else."""
        kept = {key: value for key, value in os.environ.items() if key not in _OURS}
        python = str(self.python)
        return {**kept, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}


def missing_tools() -> str | None:
    """Return a sentence that says what is missing, or None."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"Spark's Kafka connector needs Java and Maven: there is no `{program}` here."
    return None


def get_peer() -> Peer:
    """Return the peer, made now if it was not there."""
    python = PLACE / "bin" / "python"
    made = PLACE / ".made"
    if not made.exists():
        venv.create(PLACE, with_pip=True)
        _run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES])
        made.touch()
    listed = PLACE / "jars.txt"
    if not listed.exists():
        fresh = listed.with_suffix(f".{os.getpid()}")
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
        _run(["mvn", "-q", "-B", "-f", str(POM), *goal, f"-Dpeer.target={PLACE / 'maven'}"])
        fresh.replace(listed)
    return Peer(python, tuple(listed.read_text().strip().split(os.pathsep)))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    missing = missing_tools()
    if missing is not None:
        sys.exit(missing)
    print(*get_peer().jars, sep="\n")
