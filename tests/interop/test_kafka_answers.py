"""Kafka is asked again about every bad batch, and must answer as recorded.

`REWRITE=1 make interop` writes the answers down anew, to be reviewed as a diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.answers import ask_kafka, load_answers, save_answers
from tests.interop.broker import start_broker
from tests.unit.proto.records.bad_batches import CASES

pytestmark = pytest.mark.interop


def test_kafka_answers_to_every_bad_batch_as_recorded(kafka: None, tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker:
        answers = ask_kafka(broker, CASES)
    if os.environ.get("REWRITE"):
        save_answers(answers)
    assert answers == load_answers()
