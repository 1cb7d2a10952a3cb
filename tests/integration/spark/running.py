"""Pipelines of tests: sent records, run to the end in the Spark of the tests, read back.

Not here: the pipelines themselves.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ottla.clients.pipeline.declaration import Pipeline, read_pipeline
from ottla.clients.pipeline.running import Run
from ottla.clients.pipeline.validation import require_exactly_once, require_topics
from ottla.clients.producer.client import Producer

DEADLINE_S: Final = 200


def send(bootstrap: str, topic: str, values: list[bytes], key: bytes = b"k") -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for value in values:
            producer.send(topic, value, key=key)


def run_to_end(
    spark: Any,
    text: str,
    folder: Path,
    *,
    into: Path | None = None,
    takes_over: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Pipeline:
    """Run a pipeline over what is there; those of different folders have different names."""
    found = read_pipeline(text.encode())
    pipeline = replace(
        found, name=f"{found.name}-{uuid.uuid5(uuid.NAMESPACE_URL, str(folder)).hex}"
    )
    require_topics(pipeline)
    require_exactly_once(pipeline)
    run = Run(spark, pipeline, folder, into, takes_over=takes_over)
    run.start()
    try:
        asyncio.run(asyncio.wait_for(run.wait(tell), DEADLINE_S))
    finally:
        run.stop()
    for line in run.summary():
        tell(line)
    return pipeline


def rows_of(spark: Any, bootstrap: str, topic: str) -> list[Any]:
    given = {"subscribe": topic, "includeHeaders": "true"}
    # As pipelines write it, unless they are told otherwise.
    given["kafka.isolation.level"] = "read_committed"
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    found: list[Any] = reader.options(**given).load().collect()
    return found


def headers_of(row: Any) -> dict[str, str]:
    return {one.key: bytes(one.value).decode() for one in row.headers or ()}
