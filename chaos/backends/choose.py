"""Makes the backend that a name stands for.

Not here: the backends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ottla.chaos.backends.kafka import KafkaBackend, KafkaSettings, environment_class_path
from ottla.chaos.backends.local import PROFILE, LocalBackend, LocalSettings
from ottla.chaos.ports import Backend
from ottla.proto.errors import ConfigError


def open_backend(
    name: str,
    directory: Path,
    *,
    nodes: int = 3,
    controllers: int = 0,
    options: Mapping[str, str] | None = None,
    seed: int = 0,
    program: tuple[str, ...] = ("-m", "ottla"),
) -> Backend:
    """Return a cluster of which nothing runs yet; its files will be in `directory`."""
    if name == "local":
        return LocalBackend(
            LocalSettings(
                directory=directory,
                nodes=nodes,
                controllers=controllers,
                seed=seed,
                options=options or {},
                program=program,
            )
        )
    if name == "kafka":
        class_path = environment_class_path()
        return KafkaBackend(
            KafkaSettings(directory=directory, class_path=class_path, nodes=nodes, seed=seed)
        )
    if name == "docker":
        return _containers(directory, options or {}, seed)
    raise ConfigError(f"There is no backend {name!r}; there are local, docker and kafka.")


def _containers(directory: Path, options: Mapping[str, str], seed: int) -> Backend:
    try:
        # Only who uses it needs the library.
        from ottla.chaos.backends.containers import ContainerBackend, ContainerSettings
    except ModuleNotFoundError as error:
        raise ConfigError("The backend docker needs the library docker: ottla[chaos].") from error
    return ContainerBackend(
        ContainerSettings(
            directory=directory,
            compose_file=Path("compose/compose.yaml"),
            project=f"ottla-chaos-{os.getpid()}",
            seed=seed,
            options={**PROFILE, **options},
        )
    )
