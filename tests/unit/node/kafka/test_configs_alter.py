"""AlterConfigs and IncrementalAlterConfigs, row by row.

Where a comment says so, the code is that of Apache Kafka 4.3.1 for the same request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla.controller.port import NewTopic
from ottla.node.kafka.configs import alter_configs, incremental_alter_configs
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, ApiRow
from ottla.proto.options import node
from tests.unit.node.kafka.asking_for_configs import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    change,
    change_all,
    described,
    entry_of,
    replace,
    resource_of,
    value_of,
)
from tests.unit.node.kafka.desk import Desk, Place, open_desk
from tests.unit.node.kafka.stage import Stage

OK = (0, None)
DEFAULT_RETENTION = "604800000"


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk() as opened:
        opened.create("t")
        yield opened


@pytest.mark.parametrize(
    "version", range(INCREMENTAL_ALTER_CONFIGS.low, INCREMENTAL_ALTER_CONFIGS.high + 1)
)
def test_a_topics_option_is_set_and_deleted(desk: Desk, version: int) -> None:
    assert change(desk, TOPIC, "t", ("retention.ms", SET, "5"), version=version) == OK
    assert value_of(desk, TOPIC, "t", "retention.ms") == "5"
    assert change(desk, TOPIC, "t", ("retention.ms", DELETE, None), version=version) == OK
    assert value_of(desk, TOPIC, "t", "retention.ms") == DEFAULT_RETENTION


def test_a_change_reaches_the_log_before_it_is_answered(desk: Desk) -> None:
    change(desk, TOPIC, "t", ("max.message.bytes", SET, "2000"))
    assert desk.replica("t").log.settings.max_message_bytes == 2000
    change(desk, BROKER, "", ("log.segment.bytes", SET, "2000000"))
    assert desk.replica("t").log.settings.segment_bytes == 2000000
    change(desk, BROKER, "1", ("max.connections", SET, "7"))
    assert desk.broker.options.current.value_of(node.MAX_CONNECTIONS) == 7


def test_changes_outlive_a_restart() -> None:
    place = Place()
    with open_desk(place) as desk:
        desk.create("t")
        change(desk, TOPIC, "t", ("retention.ms", SET, "5"))
        change(desk, BROKER, "", ("log.segment.bytes", SET, "2000000"))
    with open_desk(place) as desk:
        assert value_of(desk, TOPIC, "t", "retention.ms") == "5"
        assert desk.replica("t").log.settings.segment_bytes == 2000000


# The same as Kafka's, but for operations that nobody knows: −1 there, where it comes to a topic.
@pytest.mark.parametrize(
    ("option", "operation", "text", "code"),
    [
        ("retention.ms", SET, "x", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SET, "", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SET, "-2", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SET, "9" * 5000, ErrorCode.INVALID_CONFIG),
        ("min.insync.replicas", SET, "0", ErrorCode.INVALID_CONFIG),
        ("min.insync.replicas", SET, "5", ErrorCode.NONE),
        ("cleanup.policy", SET, "nope", ErrorCode.INVALID_CONFIG),
        ("compression.type", SET, "rar", ErrorCode.INVALID_CONFIG),
        ("nope", SET, "x", ErrorCode.INVALID_CONFIG),
        ("", SET, "x", ErrorCode.INVALID_CONFIG),
        ("log.retention.ms", SET, "5", ErrorCode.INVALID_CONFIG),
        ("nope", DELETE, None, ErrorCode.NONE),
        ("retention.ms", DELETE, "5", ErrorCode.NONE),
        ("retention.ms", SET, None, ErrorCode.INVALID_REQUEST),
        ("retention.ms", APPEND, "5", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SUBTRACT, "5", ErrorCode.INVALID_CONFIG),
        ("nope", APPEND, "5", ErrorCode.INVALID_CONFIG),
        ("cleanup.policy", APPEND, None, ErrorCode.INVALID_REQUEST),
        ("cleanup.policy", APPEND, "nope", ErrorCode.INVALID_CONFIG),
        ("cleanup.policy", SUBTRACT, "nope", ErrorCode.NONE),
        ("flush.ms", SET, "10", ErrorCode.NONE),
        ("retention.ms", 4, "5", ErrorCode.INVALID_REQUEST),
        ("retention.ms", -1, "5", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_of_a_topic_is_made_or_refused_with_a_sentence(
    desk: Desk, option: str, operation: int, text: str | None, code: int
) -> None:
    before = described(desk, TOPIC, "t")
    error, sentence = change(desk, TOPIC, "t", (option, operation, text))
    assert error == code
    assert (sentence is None) is (code == 0)
    assert sentence is None or len(sentence) < 300
    if code:
        assert described(desk, TOPIC, "t") == before


# The same as Kafka's, but for names that nobody knows, which it keeps, and threads, of which it has
# some.
@pytest.mark.parametrize(
    ("option", "operation", "text", "code"),
    [
        ("log.retention.ms", SET, "abc", ErrorCode.INVALID_REQUEST),
        ("message.max.bytes", SET, "-1", ErrorCode.INVALID_REQUEST),
        ("message.max.bytes", SET, "2000000000", ErrorCode.INVALID_REQUEST),
        ("node.id", SET, "5", ErrorCode.INVALID_REQUEST),
        ("log.retention.hours", SET, "5", ErrorCode.INVALID_REQUEST),
        ("num.io.threads", SET, "5", ErrorCode.INVALID_REQUEST),
        ("ssl.keystore.location", SET, "/etc/passwd", ErrorCode.INVALID_REQUEST),
        ("nope", SET, "5", ErrorCode.INVALID_CONFIG),
        ("nope", DELETE, None, ErrorCode.NONE),
        ("node.id", DELETE, None, ErrorCode.NONE),
        ("nope", APPEND, "5", ErrorCode.INVALID_CONFIG),
        ("max.connections", APPEND, "5", ErrorCode.INVALID_CONFIG),
        ("max.connections", 7, "5", ErrorCode.INVALID_REQUEST),
        ("max.connections", SET, None, ErrorCode.INVALID_REQUEST),
        ("max.connections", SET, "5", ErrorCode.NONE),
    ],
)
@pytest.mark.parametrize("name", ["1", "", "01"])
def test_a_change_of_a_broker_is_made_or_refused_with_a_sentence(
    desk: Desk, name: str, option: str, operation: int, text: str | None, code: int
) -> None:
    error, sentence = change(desk, BROKER, name, (option, operation, text))
    assert error == code
    assert (sentence is None) is (code == 0)
    if code:
        assert desk.broker.options.current is desk.broker.options.static


def test_what_needs_a_restart_is_refused_with_what_to_do(desk: Desk) -> None:
    _, sentence = change(desk, BROKER, "1", ("num.partitions", SET, "5"))
    assert sentence == "num.partitions can only be changed in the file and by a restart."


# The same as Kafka's.
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_REQUEST),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (16, "m", ErrorCode.INVALID_REQUEST),
        (32, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (9, "x", ErrorCode.INVALID_REQUEST),
        (-1, "x", ErrorCode.INVALID_REQUEST),
        # Here without options, and so different from Kafka.
        (8, "1", ErrorCode.INVALID_REQUEST),
        (32, "g", ErrorCode.INVALID_REQUEST),
    ],
)
def test_whose_options_cannot_be_changed_is_told(
    desk: Desk, kind: int, name: str, code: int
) -> None:
    option = "retention.ms" if kind == TOPIC else "log.retention.ms"
    assert change(desk, kind, name, (option, SET, "5"))[0] == code
    assert replace(desk, kind, name, (option, "5"))[0] == code
    assert replace(desk, kind, name)[0] == code


# The same as Kafka's.
def test_what_stands_twice_in_a_request_is_refused(desk: Desk) -> None:
    twice = (("retention.ms", SET, "5"), ("retention.ms", SET, "6"))
    assert change(desk, TOPIC, "t", *twice)[0] == ErrorCode.INVALID_REQUEST
    once = resource_of(TOPIC, "t", ("retention.ms", SET, "5"))
    other = resource_of(BROKER, "1", ("log.retention.ms", SET, "5"))
    codes = [code for code, _ in change_all(desk, once, other, once)]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert value_of(desk, TOPIC, "t", "retention.ms") == "5"
    assert entry_of(desk, TOPIC, "t", "retention.ms")["config_source"] == 2
    assert replace(desk, TOPIC, "t", ("a", "1"), ("a", "2"))[0] == ErrorCode.INVALID_REQUEST


def test_one_that_is_refused_does_not_spoil_another(desk: Desk) -> None:
    desk.create("u")
    answers = change_all(
        desk,
        resource_of(TOPIC, "t", ("retention.ms", SET, "x")),
        resource_of(TOPIC, "u", ("retention.ms", SET, "5")),
        resource_of(TOPIC, "nope", ("retention.ms", SET, "5")),
    )
    assert [code for code, _ in answers] == [ErrorCode.INVALID_CONFIG, 0, 3]
    assert value_of(desk, TOPIC, "u", "retention.ms") == "5"
    assert change_all(desk) == []


def test_of_one_resource_all_or_nothing_is_changed(desk: Desk) -> None:
    both = (("retention.ms", SET, "5"), ("segment.bytes", SET, "1"))
    assert change(desk, TOPIC, "t", *both)[0] == ErrorCode.INVALID_CONFIG
    assert value_of(desk, TOPIC, "t", "retention.ms") == DEFAULT_RETENTION


# The same as Kafka's.
def test_options_that_cannot_stand_together_are_refused(desk: Desk) -> None:
    lags = (("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5"))
    error, sentence = change(desk, TOPIC, "t", *lags)
    assert error == ErrorCode.INVALID_CONFIG
    assert sentence == "min.compaction.lag.ms (10) must not be more than max.compaction.lag.ms (5)."


# The same as Kafka's.
def test_a_list_is_added_to_and_taken_from(desk: Desk) -> None:
    for operation, text, policy in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact,delete", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (APPEND, " delete , compact", "delete,compact"),
    ):
        assert change(desk, TOPIC, "t", ("cleanup.policy", operation, text)) == OK
        assert value_of(desk, TOPIC, "t", "cleanup.policy") == policy
    assert entry_of(desk, TOPIC, "t", "cleanup.policy")["config_source"] == 1


def test_a_list_that_is_inherited_is_added_to_as_it_is_in_force(desk: Desk) -> None:
    change(desk, BROKER, "", ("log.cleanup.policy", SET, "compact"))
    change(desk, TOPIC, "t", ("cleanup.policy", APPEND, "delete"))
    assert value_of(desk, TOPIC, "t", "cleanup.policy") == "compact,delete"
    change(desk, BROKER, "1", ("log.cleanup.policy", APPEND, "delete"))
    assert value_of(desk, BROKER, "1", "log.cleanup.policy") == "compact,delete"
    change(desk, BROKER, "", ("log.cleanup.policy", SUBTRACT, "compact"))
    assert value_of(desk, BROKER, "", "log.cleanup.policy") == ""


def test_two_who_add_to_a_list_at_once_both_do(desk: Desk) -> None:
    change(desk, TOPIC, "t", ("cleanup.policy", SET, ""))

    async def add(item: str) -> None:
        resource = resource_of(TOPIC, "t", ("cleanup.policy", APPEND, item))
        await desk.asked(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)

    async def both() -> None:
        await asyncio.gather(add("delete"), add("compact"))

    desk.run(both())
    assert value_of(desk, TOPIC, "t", "cleanup.policy") == "delete,compact"


@pytest.mark.parametrize("kind_and_name", [(TOPIC, "t"), (BROKER, "1"), (BROKER, "")])
def test_what_is_only_validated_changes_nothing(desk: Desk, kind_and_name: tuple[int, str]) -> None:
    kind, name = kind_and_name
    option = "retention.ms" if kind == TOPIC else "log.retention.ms"
    image = desk.broker.controller.image
    assert change(desk, kind, name, (option, SET, "7"), validate_only=True) == OK
    assert replace(desk, kind, name, (option, "7"), validate_only=True) == OK
    assert change(desk, kind, name, (option, SET, "x"), validate_only=True)[0]
    assert replace(desk, kind, name, (option, "x"), validate_only=True)[0]
    assert desk.broker.controller.image is image


def test_a_hundred_topics_are_changed_in_one_request(desk: Desk) -> None:
    names = [f"t{n}" for n in range(50)]
    for name in names:
        desk.create(name)
    resources = [resource_of(TOPIC, name, ("retention.ms", SET, "5")) for name in names]
    resources += [resource_of(TOPIC, f"{name}x", ("retention.ms", SET, "5")) for name in names]
    codes = [code for code, _ in change_all(desk, *resources)]
    assert codes == [0] * 50 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 50
    assert {value_of(desk, TOPIC, name, "retention.ms") for name in names} == {"5"}


@pytest.mark.parametrize("version", [0, 1])
def test_a_flood_of_options_is_refused_in_a_short_sentence(desk: Desk, version: int) -> None:
    flood = [(f"retention.m{n}", SET, "x") for n in range(20_000)]
    error, sentence = change(desk, TOPIC, "t", *flood, version=version)
    assert error == ErrorCode.INVALID_CONFIG
    assert sentence == "20000 options are too many: at most 64 are kept."
    some = [(f"retention.m{n}", SET, "x") for n in range(60)]
    error, sentence = change(desk, TOPIC, "t", *some, version=version)
    assert error == ErrorCode.INVALID_CONFIG
    assert sentence is not None
    assert len(sentence) == 1000


def test_a_value_as_long_as_a_text_can_be_is_not_kept(desk: Desk) -> None:
    for option in ("flush.ms", "retention.ms", "x"):
        error, sentence = change(desk, TOPIC, "t", (option, SET, "9" * 32_767))
        assert error == ErrorCode.INVALID_CONFIG
        assert sentence is not None
        assert "bytes of options are too many" in sentence
    error, _ = change(desk, BROKER, "1", ("log.retention.ms", SET, "9" * 32_767))
    assert error == ErrorCode.INVALID_REQUEST


# ── AlterConfigs ──────────────────────────────────────────────────────────────────────────────


# The same as Kafka's.
@pytest.mark.parametrize("version", range(ALTER_CONFIGS.low, ALTER_CONFIGS.high + 1))
def test_what_is_not_named_goes_back_to_its_default(desk: Desk, version: int) -> None:
    assert replace(desk, TOPIC, "t", ("retention.ms", "9"), version=version) == OK
    assert value_of(desk, TOPIC, "t", "retention.ms") == "9"
    assert replace(desk, TOPIC, "t", ("segment.ms", "8"), version=version) == OK
    assert value_of(desk, TOPIC, "t", "retention.ms") == DEFAULT_RETENTION
    assert replace(desk, TOPIC, "t", version=version) == OK
    assert entry_of(desk, TOPIC, "t", "segment.ms")["config_source"] == 5


def test_a_brokers_changes_are_replaced_as_a_whole(desk: Desk) -> None:
    for name in ("1", ""):
        assert replace(desk, BROKER, name, ("log.retention.ms", "9")) == OK
        assert replace(desk, BROKER, name, ("log.roll.ms", "8")) == OK
        assert value_of(desk, BROKER, "1", "log.retention.ms") == DEFAULT_RETENTION
        assert value_of(desk, BROKER, "1", "log.roll.ms") == "8"
        assert replace(desk, BROKER, name) == OK
        assert desk.broker.options.current.given() == desk.broker.options.static.given()


# The same as Kafka's.
@pytest.mark.parametrize(
    ("kind", "name", "option", "text", "code"),
    [
        (TOPIC, "t", "retention.ms", None, ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", "x", "y", ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", "retention.ms", "y", ErrorCode.INVALID_CONFIG),
        (BROKER, "1", "node.id", "3", ErrorCode.INVALID_REQUEST),
        (BROKER, "1", "log.retention.ms", None, ErrorCode.INVALID_REQUEST),
        (8, "1", "root", "INFO", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_replacement_is_refused_with_a_sentence(
    desk: Desk, kind: int, name: str, option: str, text: str | None, code: int
) -> None:
    error, sentence = replace(desk, kind, name, (option, text))
    assert error == code
    assert sentence


@pytest.mark.parametrize("row", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
def test_without_a_controller_nothing_is_changed_and_the_rest_is_refused_as_ever(
    row: ApiRow,
) -> None:
    stage = Stage(timeout_ms=30)
    asyncio.run(stage.controller.create_topics([NewTopic("t", 1, 1)], validate_only=False))
    stage.door.is_deposed = True
    option = {"name": "retention.ms", "config_operation": 0, "value": "5"}
    resources = [
        {"resource_type": TOPIC, "resource_name": "t", "configs": [option]},
        {"resource_type": TOPIC, "resource_name": "..", "configs": [option]},
    ]
    handler = alter_configs if row is ALTER_CONFIGS else incremental_alter_configs
    fields = {"resources": resources, "validate_only": False}
    answer = stage.ask(handler, row, row.high, fields)
    assert [one.error_code for one in answer.responses] == [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert "Nothing was done" in answer.responses[0].error_message
