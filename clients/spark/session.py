"""Starts Spark with what Ottla needs: a Java, the right Python in tasks, filters handed over.

Spark asks the environment for its Java and its Python when its JVM starts, so these are set here,
before, and stay set: a JVM that runs cannot be given another.

E1  Spark puts an archive of its Python, without compiled modules, before the installed package; so
    each Python that it starts compiles it anew, which takes 1.4 s of a processor and not 0.45 s. It
    starts several for a query, and gives the one that plans a stream ten seconds, which nobody can
    change: on a busy machine a query did not start again. So a local Spark gets a home that has no
    such archive, unless SPARK_HOME says where its home is

Not here: pipelines (`clients/pipeline`).
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ottla.clients.spark.java import Java, find_java
from ottla.proto.errors import ConfigError

_DEFAULTS: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Where Spark's home has its Python, in archives.
_ARCHIVES: Final = "python"
_LOCAL_DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


def prepare_environment() -> Java:
    """Set JAVA_HOME and PYSPARK_PYTHON for a JVM that is yet to start; return its Java."""
    scripts = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    atexit.register(shutil.rmtree, scripts, ignore_errors=True)
    java = find_java(os.environ, scripts)
    if java.home is not None:
        os.environ["JAVA_HOME"] = str(java.home)
    # Or tasks take the first python3 of PATH, which knows nothing of us.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java


def prepare_home() -> None:
    """Give a local Spark a home without the archive of its Python (E1)."""
    import pyspark

    if os.environ.get("SPARK_HOME"):
        return
    home = Path(tempfile.mkdtemp(prefix="ottla-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for entry in Path(pyspark.__file__).resolve().parent.iterdir():
        if entry.name != _ARCHIVES:
            (home / entry.name).symlink_to(entry)
    os.environ["SPARK_HOME"] = str(home)


def start_session(
    name: str, *, url: str = "local[*]", conf: Mapping[str, str] | None = None
) -> Any:
    """Return a SparkSession that knows the format `ottla`."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(
            f"Spark is not installed ({error}): `pip install ottla[spark]` installs it."
        ) from error
    prepare_environment()
    is_local = url.startswith("local")
    if is_local:
        prepare_home()
    builder = SparkSession.builder.appName(name).master(url)
    local = _LOCAL_DEFAULTS if is_local else {}
    for key, value in {**_DEFAULTS, **local, **(conf or {})}.items():
        builder = builder.config(key, value)
    # The format needs no registration: Spark finds `pyspark_ottla` where this Python finds it.
    return builder.getOrCreate()
