"""The options in force on this node: what it was started with, and what was changed since.

    defaults < file < environment < command line     `static`, fixed for the life of the process
      < changed for all brokers < changed for this one    `current`, moves with the metadata

Whoever obeys an option that may change reads it from `current` each time.

A change is checked before it is kept (`check`). What was kept is obeyed as far as it can be: a
value that an older version allowed and this one does not must not keep a node from starting, so it
is left out, and told in `warnings`.

Not here: the rows and which of them may change (`ottla.proto.options`), and who tells the logs
(`reconcile.py`).

D1  every value in `current` has passed its row's check
D2  `current` is `static` where nothing was changed
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from ottla.controller.image import ALL_BROKERS, MetadataImage
from ottla.controller.port import ConfigKind
from ottla.node.config import settings_from
from ottla.proto.errors import ConfigError
from ottla.proto.ids import BrokerId
from ottla.proto.options import node
from ottla.proto.options.load import load_topic, require_consistent
from ottla.proto.options.option import shown_name
from ottla.proto.options.sources import Options, Source, overlay, read_topic_options
from ottla.replication.settings import LogSettings

_NOTHING: Final[Mapping[str, str]] = {}
# Options of one topic or broker that are kept: more than there are, and room for the longest lists.
# Whoever may change options must not be able to fill the metadata.
CONFIGS_MAX: Final = 64
CONFIGS_BYTES_MAX: Final = 16 * 1024


class NodeOptions:
    """What this node was told, and is being told."""

    def __init__(self, static: Options) -> None:
        self.static: Final = static
        self.current = static
        self.node_id: Final = BrokerId(static.value_of(node.NODE_ID))
        # Why something that was kept is not obeyed.
        self.warnings: tuple[str, ...] = ()
        # Held from reading what is to be changed until it is: else one of two that add to the same
        # list at once is lost.
        self.changing: Final = asyncio.Lock()
        self._of_all: Mapping[str, str] = _NOTHING
        self._own: Mapping[str, str] = _NOTHING

    def adopt(self, image: MetadataImage) -> bool:
        """Obey what an image says of brokers; return whether anything changed by it."""
        of_all = image.broker_configs.get(ALL_BROKERS, _NOTHING)
        own = image.broker_configs.get(str(self.node_id), _NOTHING)
        if (of_all, own) == (self._of_all, self._own):
            return False
        self._of_all, self._own = of_all, own
        warnings: list[str] = []
        for_all = _lay(self.static, of_all, Source.ALL_BROKERS, warnings)
        self.current = _lay(for_all, own, Source.THIS_BROKER, warnings)
        self.warnings = tuple(warnings)
        return True

    def of_topic(self, configs: Mapping[str, str]) -> Options:
        """Return the options of a topic that has these of its own, as far as they can be obeyed."""
        try:
            return read_topic_options(configs, self.current)
        except ConfigError:
            sound = {name: text for name, text in configs.items() if self._is_sound(name, text)}
            return read_topic_options(sound, self.current)

    def _is_sound(self, name: str, text: str) -> bool:
        try:
            read_topic_options({name: text}, self.current)
        except ConfigError:
            return False
        return True

    def log_settings(self, configs: Mapping[str, str]) -> LogSettings:
        """Return what the logs of a topic obey now. It never fails: the change was checked."""
        return settings_from(self.of_topic(configs), self.current)

    def check(self, kind: ConfigKind, name: str, configs: Mapping[str, str]) -> None:
        """Raise `ConfigError` if a topic or a broker could not obey these options of its own."""
        _require_modest(configs)
        if kind == "topic":
            load_topic(configs, self.current)
            return
        # What stands beside the change was checked in its own time.
        if name == ALL_BROKERS:
            changed = overlay(self.static, configs, Source.ALL_BROKERS)
            changed = _lay(changed, self._own, Source.THIS_BROKER, [])
        else:
            under = _lay(self.static, self._of_all, Source.ALL_BROKERS, [])
            changed = overlay(under, configs, Source.THIS_BROKER)
        require_consistent(changed)


def _require_modest(configs: Mapping[str, str]) -> None:
    if len(configs) > CONFIGS_MAX:
        raise ConfigError(f"{len(configs)} options are too many: at most {CONFIGS_MAX} are kept.")
    size = sum(len(text.encode()) for pair in configs.items() for text in pair)
    if size > CONFIGS_BYTES_MAX:
        raise ConfigError(f"{size} bytes of options are too many: {CONFIGS_BYTES_MAX} are kept.")
    for name, text in configs.items():
        # A row has its own check. This is for names without a row, which are kept all the same.
        if not name.isprintable() or not text.isprintable():
            raise ConfigError(f"{shown_name(name)} must be text without control characters.")


def _lay(
    options: Options, given: Mapping[str, str], source: Source, warnings: list[str]
) -> Options:
    """Lay over the options what can be obeyed of `given`; the rest becomes warnings."""
    for name, text in given.items():
        try:
            options = overlay(options, {name: text}, source)
        except ConfigError as error:
            warnings.extend(f"a change that was kept has no effect: {p}" for p in error.problems)
    return options
