"""UpdateFeatures, and the features that ApiVersions tells.

There are three. `metadata.version` is Kafka's: its tools take from it which requests they may send,
so it stays at the level of the Kafka whose protocol is spoken here. So is `transaction.version`:
with 2 its clients end each transaction with a new epoch, and never ask to add a partition
(KIP-890). `ottla.feature.level` says which commands there are in our own metadata; it is raised by
hand when all nodes of a cluster run a program that knows the next level, and never goes back.

What else Kafka finalises (the new group protocols, say) is not served here, and so it is
not told.

Not here: raising a level (`ottla.controller`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.controller.image import FEATURE_LEVEL, MetadataImage
from ottla.node.kafka.refusals import error_fields
from ottla.node.kafka.requests import Request
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.message import Message
from ottla.proto.options.option import shown

if TYPE_CHECKING:
    from ottla.node.broker import Broker

KAFKA_FEATURE: Final = "metadata.version"
# Kafka 4.3's, and the oldest that it still knows.
KAFKA_LEVEL: Final = 30
_KAFKA_LEVEL_MIN: Final = 7
TRANSACTION_FEATURE: Final = "transaction.version"
TRANSACTION_LEVEL: Final = 2
_LEVEL_ZERO_SINCE: Final = 4
OUR_FEATURE: Final = "ottla.feature.level"
_OUR_LEVEL_MIN: Final = 1

# Features that have one level, whatever the cluster agrees on.
_FIXED: Final = {KAFKA_FEATURE: KAFKA_LEVEL, TRANSACTION_FEATURE: TRANSACTION_LEVEL}

_UPGRADE: Final = 1
# Kafka's numbers: up, down if nothing is lost, down in any case.
_UPGRADE_TYPES: Final = (_UPGRADE, 2, 3)


def supported_features(version: int) -> list[dict[str, Any]]:
    """Return the features that this node knows, as ApiVersions tells them.

    Older clients break on a feature that may be at level 0, so they are not told (KAFKA-17011).
    """
    levels = {
        KAFKA_FEATURE: (_KAFKA_LEVEL_MIN, KAFKA_LEVEL),
        TRANSACTION_FEATURE: (0, TRANSACTION_LEVEL),
        OUR_FEATURE: (_OUR_LEVEL_MIN, FEATURE_LEVEL),
    }
    return [
        {"name": name, "min_version": low, "max_version": high}
        for name, (low, high) in levels.items()
        if low > 0 or version >= _LEVEL_ZERO_SINCE
    ]


def finalized_features(image: MetadataImage) -> list[dict[str, Any]]:
    """Return the levels that the cluster goes by, as ApiVersions tells them."""
    levels = {**_FIXED, OUR_FEATURE: image.feature_level}
    return [
        {"name": name, "min_version_level": level, "max_version_level": level}
        for name, level in levels.items()
    ]


async def update_features(broker: Broker, request: Request) -> dict[str, Any]:
    """Change all the features of a request or none: the first that is refused stops it."""
    body = request.body
    try:
        levels = [_level_wanted(broker.controller.image, one) for one in body.feature_updates]
        refused = await _raised(broker, request, max(filter(None, levels), default=None))
    except RequestError as refusal:
        refused = refusal
    results = [] if refused else [one.feature for one in body.feature_updates]
    return {
        "throttle_time": 0,
        **error_fields(refused),
        "results": [{"feature": name, **error_fields(None)} for name in results],
    }


async def _raised(broker: Broker, request: Request, level: int | None) -> RequestError | None:
    if level is None:
        return None
    validate_only = request.body.get("validate_only", False)
    return await broker.controller.set_feature_level(
        level, validate_only=validate_only, client=request.client
    )


def _level_wanted(image: MetadataImage, update: Message) -> int | None:
    """Return the level to raise our own feature to, or None if nothing has to be done."""
    name, level = update.feature, update.max_version_level
    if update.get("upgrade_type", _UPGRADE) not in _UPGRADE_TYPES:
        raise _invalid(name, level, f"There is no upgrade of type {update.upgrade_type}.")
    if name in _FIXED:
        if level != _FIXED[name]:
            raise _invalid(name, level, f"It is always {_FIXED[name]} here, and cannot be changed.")
        return None
    if name != OUR_FEATURE:
        raise _invalid(name, level, "There is no such feature here.")
    if level == image.feature_level:
        return None
    if level < image.feature_level:
        raise _invalid(name, level, f"It is {image.feature_level}, and never goes back.")
    if level > FEATURE_LEVEL:
        raise _invalid(name, level, f"This node knows levels up to {FEATURE_LEVEL}.")
    if update.get("upgrade_type", _UPGRADE) != _UPGRADE:
        raise _invalid(name, level, f"It is {image.feature_level}: that would be no downgrade.")
    return int(level)


def _invalid(name: str, level: int, sentence: str) -> RequestError:
    told = f"The feature {shown(name)} cannot get level {level}. {sentence}"
    return RequestError(ErrorCode.INVALID_UPDATE_VERSION, told)
