"""Starts Spark with what Ottla needs: a Java, the right Python in tasks, filters handed over.

Spark asks the environment for its Java and its Python when its JVM starts, so these are set here,
before, and stay set: a JVM that runs cannot be given another.

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
    builder = SparkSession.builder.appName(name).master(url)
    local = _LOCAL_DEFAULTS if url.startswith("local") else {}
    for key, value in {**_DEFAULTS, **local, **(conf or {})}.items():
        builder = builder.config(key, value)
    # The format needs no registration: Spark finds `pyspark_ottla` where this Python finds it.
    return builder.getOrCreate()
