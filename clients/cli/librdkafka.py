"""librdkafka, which `consume` stands on until our own consumer is here.

Only `consume.py` loads this: the library takes longer to load than most commands take to run.

Not here: whether the cluster can be reached and what is in it. That is asked by our own connection
first (`cluster.py`), which can say precisely what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError

from ottla.clients.connection import error_code_of
from ottla.proto.options.endpoints import Address

# Emergencies: what went wrong is told by the command, in one sentence.
_LOG_LEVEL: Final = 0
_WITH_UNDERSCORES: Final = frozenset({"error_cb", "log_level"})
_SENTENCES: Final = {
    KafkaError._MSG_TIMED_OUT: "it was not acknowledged in time; it may or may not be written.",
    KafkaError._TRANSPORT: "the connection to a broker broke.",
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached.",
    KafkaError._TIMED_OUT: "no answer came in time.",
    KafkaError._TIMED_OUT_QUEUE: "it was not acknowledged in time; it may or may not be written.",
    KafkaError._RESOLVE: "the name of a broker is not known here.",
    KafkaError._UNKNOWN_PARTITION: "the topic has no such partition.",
    KafkaError._UNKNOWN_TOPIC: "there is no such topic any more.",
    KafkaError._PURGE_QUEUE: "it was given up before it was sent.",
    KafkaError._PURGE_INFLIGHT: "it was given up while it was sent; it may or may not be written.",
    KafkaError._AUTO_OFFSET_RESET: "the log does not hold the offset any more.",
}


def settings(bootstrap: Sequence[Address], **more: Any) -> dict[str, Any]:
    """Return a configuration in librdkafka's words; an underscore in a name stands for a dot.

    The few names that have underscores are given as they are.
    """
    return {
        "bootstrap.servers": ",".join(map(str, bootstrap)),
        "client.id": "ottla",
        "log_level": _LOG_LEVEL,
        **{
            name if name in _WITH_UNDERSCORES else name.replace("_", "."): value
            for name, value in more.items()
        },
    }


def sentence_of(error: KafkaError) -> str:
    """Return what happened, with the name that people search for."""
    number = error.code()
    if number > 0:
        code = error_code_of(number)
        return f"{code.sentence} ({code.name})"
    return f"{_SENTENCES.get(number, error.str() + '.')} ({error.name()})"
