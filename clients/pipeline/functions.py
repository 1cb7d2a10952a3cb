"""Functions that people write for a pipeline, in a file beside it: found, loaded, sent to tasks.

Spark sends a function to its tasks by the name of its module, and a task on another machine has no
such file. So a module that is loaded here is sent whole, by value.

Not here: what the functions are given (`tables.py`, `state.py`).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from ottla.clients.pipeline.declaration import Part
from ottla.proto.errors import ConfigError


def load_function(part: Part, folder: Path) -> Any:
    """Return the function that a step names as "file.py:name", or raise `ConfigError`."""
    file, _, name = part.text("function").partition(":")
    path = folder / file
    module_name = f"ottla_step_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"steps {part.name}: {path} cannot be loaded.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    # Whatever a file of somebody else raises is told in one sentence.
    except Exception as error:
        raise ConfigError(f"steps {part.name}: {path} cannot be loaded: {error}.") from error
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"steps {part.name}: {path} has no function {name}.")
    return found
