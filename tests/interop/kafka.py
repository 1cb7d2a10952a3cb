"""Apache Kafka 4.3.1 on this machine: its class path, and its programs as child processes.

Maven finds the jars once; the class path is kept in a folder that git ignores (`target/interop`,
or `OTTLA_INTEROP_CACHE`), under a name that changes with `pom.xml`.

Not here: a running broker (`broker.py`), and what the tools' output means (`dump.py`).

    python -m tests.interop.kafka               says what is missing and exits with 1, or gets all
    python -m tests.interop.kafka class-path    the same, and prints where the jars are
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
POM: Final = HERE / "pom.xml"
DUMP_LOG_SEGMENTS: Final = "org.apache.kafka.tools.DumpLogSegments"
STORAGE_TOOL: Final = "kafka.tools.StorageTool"
BROKER: Final = "kafka.Kafka"

JAVA_VERSION_MIN: Final = 17
MAVEN_DEADLINE_S: Final = 600.0
TOOL_DEADLINE_S: Final = 90.0
# Short-lived processes on a small machine: one compiler, one collector thread, nothing in /tmp.
JVM_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Dfile.encoding=UTF-8",
    "-Dsun.stdout.encoding=UTF-8",
    f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}",
)


class KafkaToolError(Exception):
    """A program of Kafka ended with an error; the text is its output."""


@functools.cache
def missing_tools() -> str | None:
    """Return a sentence that says what is missing, or None if Kafka can be run."""
    java, maven = shutil.which("java"), shutil.which("mvn")
    if java is None:
        return "needs Java 17 and Maven: there is no `java` on the PATH"
    told = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=TOOL_DEADLINE_S, check=False
    ).stderr
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        return f"needs Java 17 and Maven: `java -version` says {told.splitlines()[:1]}"
    if maven is None and _cached_class_path() is None:
        return "needs Java 17 and Maven: there is no `mvn` on the PATH"
    return None


@functools.cache
def class_path() -> str:
    """Return Kafka's class path, asking Maven the first time."""
    cached = _cached_class_path()
    if cached is not None:
        return cached
    target = _class_path_file()
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(f".{os.getpid()}")
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(POM), *goal, f"-Dinterop.target={target.parent}"],
        capture_output=True,
        text=True,
        timeout=MAVEN_DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        raise KafkaToolError(f"Maven could not resolve {POM.name}:\n{done.stdout}{done.stderr}")
    # Renamed when whole, so that an interrupted run leaves no half class path behind.
    fresh.replace(target)
    return target.read_text().strip()


def java_command(main_class: str, *, heap: str, temporary: Path | None = None) -> list[str]:
    """Return the beginning of a command line that runs a class of Kafka."""
    unpack = [] if temporary is None else [f"-Djava.io.tmpdir={temporary}"]
    return ["java", f"-Xmx{heap}", *JVM_OPTIONS, *unpack, "-cp", class_path(), main_class]


def run_tool(main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Kafka to its end, whatever that is."""
    return subprocess.run(
        [*java_command(main_class, heap="512m"), *arguments],
        capture_output=True,
        text=True,
        timeout=TOOL_DEADLINE_S,
        check=False,
    )


def dump_log_segments(files: Sequence[Path], *options: str) -> str:
    """Return all that DumpLogSegments says about the files, on both of its streams.

    Its complaints about indexes go to standard error and do not change its exit code, so the
    streams belong together. Raises `KafkaToolError` if it fails.
    """
    listed = ",".join(str(file) for file in files)
    done = run_tool(DUMP_LOG_SEGMENTS, "--files", listed, *options)
    if done.returncode != 0:
        raise KafkaToolError(f"DumpLogSegments ended with {done.returncode}:\n{done.stderr}")
    return done.stdout + done.stderr


def _class_path_file() -> Path:
    folder = os.environ.get("OTTLA_INTEROP_CACHE") or str(HERE.parents[1] / "target" / "interop")
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    return Path(folder) / f"classpath-{digest}.txt"


def _cached_class_path() -> str | None:
    """Return the class path from last time if every jar of it is still there."""
    file = _class_path_file()
    if not file.exists():
        return None
    found = file.read_text().strip()
    return found if all(Path(jar).exists() for jar in found.split(os.pathsep)) else None


def main() -> int:
    missing = missing_tools()
    if missing is not None:
        print(f"make interop {missing}.", file=sys.stderr)
        return 1
    found = class_path()
    if sys.argv[1:] == ["class-path"]:
        print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
