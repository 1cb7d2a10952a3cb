"""Why a node ends: a sentence that names the setting to change, and where that was set.

Whoever reads it may see nothing but an environment: the file of a container, say. So where a
setting that a sentence names came from there, the sentence ends with the variable.

Not here: finding out what is wrong, and printing (`commands/node.py`).

L1  of a node that ended, the exit code tells who can help: 2 whoever sets its options, 1 whoever
    looks after its disk or its cluster, 70 whoever wrote it
L2  a log in JSON stays one to the last line
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ottla.proto.errors import ConfigError, InvariantError, OttlaError
from ottla.proto.options import node as rows
from ottla.proto.options.option import environment_name
from ottla.proto.options.properties import parse_properties

EXIT_FAILED: Final = 1
EXIT_WRONG_OPTIONS: Final = 2
EXIT_BUG: Final = 70


def exit_code_of(error: OttlaError) -> int:
    """Return the exit code of a process that ends with this (L1)."""
    if isinstance(error, InvariantError):
        return EXIT_BUG
    return EXIT_WRONG_OPTIONS if isinstance(error, ConfigError) else EXIT_FAILED


def sentences_of(
    error: OttlaError, environment: Mapping[str, str], flags: Mapping[str, str]
) -> tuple[str, ...]:
    """Return what to tell: one sentence, or one for each of several wrong options."""
    problems = error.problems if isinstance(error, ConfigError) else (str(error),)
    return tuple(_with_origin(one, environment, flags) for one in problems)


def _with_origin(sentence: str, environment: Mapping[str, str], flags: Mapping[str, str]) -> str:
    """Return the sentence; with the variables, if settings that it names came from there."""
    found = [
        variable
        for name in rows.BY_ANY_NAME
        if (variable := environment_name(name)) in environment
        and variable not in sentence
        # The command line wins over the environment.
        and name not in flags
        and _names(sentence, name)
    ]
    return f"{sentence} (environment {', '.join(sorted(found))})" if found else sentence


def _names(sentence: str, option: str) -> bool:
    """Return whether a sentence names this option, and not one that only ends or begins so."""
    return re.search(rf"(?<![\w.-]){re.escape(option)}(?![\w-]|\.\w)", sentence) is not None


def wants_json(
    environment: Mapping[str, str], flags: Mapping[str, str], file: bytes | None
) -> bool:
    """Return whether the log is to be JSON, as far as that is known where others are wrong."""
    name = rows.LOG_FORMAT.name
    given = flags.get(name, environment.get(environment_name(name)))
    if given is None and file is not None:
        try:
            found = parse_properties(file, file_name="").get(name)
        except ConfigError:
            found = None
        given = None if found is None else found.value
    return given == "json"
