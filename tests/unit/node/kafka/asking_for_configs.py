"""How tests describe and change options, in few words."""

from __future__ import annotations

from typing import Any, Final

from ottla.proto.kafka.apis import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from tests.unit.node.kafka.desk import Desk

TOPIC: Final = 2
BROKER: Final = 4
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


def describe(
    desk: Desk,
    *resources: tuple[int, str, list[str] | None],
    version: int = 4,
    synonyms: bool = True,
    documentation: bool = True,
) -> list[dict[str, Any]]:
    answer = desk.ask(
        DESCRIBE_CONFIGS,
        version,
        resources=[
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for kind, name, keys in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    results: list[dict[str, Any]] = answer["results"]
    return results


def described(desk: Desk, kind: int, name: str, *, version: int = 4) -> dict[str, dict[str, Any]]:
    """Return the options of one that can be described, by name."""
    (answer,) = describe(desk, (kind, name, None), version=version)
    assert (answer["error_code"], answer["error_message"]) == (0, "")
    assert (answer["resource_type"], answer["resource_name"]) == (kind, name)
    return {entry["name"]: entry for entry in answer["configs"]}


def entry_of(desk: Desk, kind: int, name: str, option: str) -> dict[str, Any]:
    return described(desk, kind, name)[option]


def value_of(desk: Desk, kind: int, name: str, option: str) -> str | None:
    value: str | None = entry_of(desk, kind, name, option)["value"]
    return value


def change(
    desk: Desk,
    kind: int,
    name: str,
    *operations: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    """Change options of one resource; return error and sentence."""
    resource = resource_of(kind, name, *operations)
    (answer,) = change_all(desk, resource, version=version, validate_only=validate_only)
    return answer


def resource_of(kind: int, name: str, *operations: tuple[str, int, str | None]) -> dict[str, Any]:
    configs = [
        {"name": key, "config_operation": operation, "value": text}
        for key, operation, text in operations
    ]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def change_all(
    desk: Desk, *resources: dict[str, Any], version: int = 1, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    answer = desk.ask(
        INCREMENTAL_ALTER_CONFIGS, version, resources=list(resources), validate_only=validate_only
    )
    return _refusals(answer)


def replace(
    desk: Desk,
    kind: int,
    name: str,
    *values: tuple[str, str | None],
    version: int = 2,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    """Set all the options of one resource; return error and sentence."""
    configs = [{"name": key, "value": text} for key, text in values]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = desk.ask(ALTER_CONFIGS, version, resources=[resource], validate_only=validate_only)
    (refusal,) = _refusals(answer)
    return refusal


def _refusals(answer: dict[str, Any]) -> list[tuple[int, str | None]]:
    return [(one["error_code"], one["error_message"]) for one in answer["responses"]]
