"""What pipelines promise about topics: each row once, or a sentence that says why not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.clients.pipeline.declaration import read_pipeline
from ottla.clients.pipeline.running import PipelineFailedError
from ottla.clients.pipeline.validation import require_exactly_once
from ottla.proto.errors import ConfigError
from tests.integration.nodes import running_node
from tests.integration.spark.conftest import MakeTopic
from tests.integration.spark.running import rows_of, run_to_end, send

pytestmark = [pytest.mark.integration, pytest.mark.long]

FILE = """
[pipeline]
name = "copy"
checkpoint = "state"
bootstrap = "{bootstrap}"

[[sources]]
name = "raw"
kind = "topic"
topic = "{source}"

[[sinks]]
name = "copies"
kind = "topic"
from = "raw"
topic = "{target}"
value = "value"
"""


def test_a_cluster_that_prepares_nothing_is_told_before_spark_starts(tmp_path: Path) -> None:
    options = {"transaction.two.phase.commit.enable": "false"}
    with running_node(tmp_path, options=options) as node:
        text = FILE.format(bootstrap=node.bootstrap, source="a", target="b")
        pipeline = read_pipeline(text.encode())
        wanted = "copy writes to topics exactly once, for which the cluster must keep prepared"
        with pytest.raises(ConfigError, match=wanted) as caught:
            require_exactly_once(pipeline)
        assert "transaction.two.phase.commit.enable=true" in str(caught.value)
        require_exactly_once(replace(pipeline, guarantee="at-least-once"))


def test_a_pipeline_whose_checkpoint_is_another_writes_nothing_until_it_takes_over(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(records=3), make_topic()
    text = FILE.format(bootstrap=bootstrap, source=source, target=target)

    def copies() -> Counter[bytes]:
        return Counter(bytes(row.value) for row in rows_of(spark, bootstrap, target))

    run_to_end(spark, text, tmp_path)
    assert copies() == Counter({b"p0-0": 1, b"p0-1": 1, b"p0-2": 1})
    told = r"copies belongs to the stream .* `ottla pipeline run --take-over` does so\."
    with pytest.raises(PipelineFailedError, match=told):
        run_to_end(spark, text, tmp_path, into=tmp_path / "other")
    send(bootstrap, source, [b"more"])
    run_to_end(spark, text, tmp_path)
    assert copies() == Counter({b"p0-0": 1, b"p0-1": 1, b"p0-2": 1, b"more": 1})
    run_to_end(spark, text, tmp_path, into=tmp_path / "other", takes_over=True)
    assert copies() == Counter({b"p0-0": 2, b"p0-1": 2, b"p0-2": 2, b"more": 2})


def test_what_a_pipeline_wrote_exactly_once_is_read_so_by_the_next_one(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, middle, target = make_topic(records=3), make_topic(), make_topic()
    poison = "if(offset = 2, cast(raise_error('poison') as binary), value)"
    first = FILE.format(bootstrap=bootstrap, source=source, target=middle)
    broken = re.sub('value = "value"', f'value = "{poison}"', first)
    with pytest.raises(PipelineFailedError, match="poison"):
        run_to_end(spark, broken, tmp_path / "first")
    run_to_end(spark, first, tmp_path / "first")
    run_to_end(spark, FILE.format(bootstrap=bootstrap, source=middle, target=target), tmp_path)
    found = Counter(bytes(row.value) for row in rows_of(spark, bootstrap, target))
    assert found == Counter({b"p0-0": 1, b"p0-1": 1, b"p0-2": 1})
