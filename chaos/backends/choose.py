"""Makes the backend that a name stands for.

Not here: the backends.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import SystemRandom
from typing import Final

from ottla.chaos.backends.kafka import KafkaBackend, KafkaSettings, environment_class_path
from ottla.chaos.backends.local import PROFILE, LocalBackend, LocalSettings
from ottla.chaos.ports import Backend, Means
from ottla.proto.errors import ConfigError

COMPOSE_FILE: Final = Path("compose/compose.yaml")
_COMPOSE_NODES: Final = 3


def open_backend(
    name: str,
    directory: Path,
    *,
    nodes: int = 3,
    controllers: int = 0,
    options: Mapping[str, str] | None = None,
    seed: int = 0,
    program: tuple[str, ...] = ("-m", "ottla"),
    needs: frozenset[Means] = frozenset(),
) -> Backend:
    """Return a cluster of which nothing runs yet; its files will be in `directory`.

    `needs` is what will be done to it, where a backend has to know that before it starts.
    """
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
        if (nodes, controllers) != (_COMPOSE_NODES, 0):
            raise ConfigError("The cluster of the backend docker has three nodes, which all vote.")
        return _containers(directory, options or {}, seed, needs)
    raise ConfigError(f"There is no backend {name!r}; there are local, docker and kafka.")


def _containers(
    directory: Path, options: Mapping[str, str], seed: int, needs: frozenset[Means]
) -> Backend:
    try:
        # Only who uses it needs the library.
        from ottla.chaos.backends.containers import ContainerBackend, ContainerSettings
    except ModuleNotFoundError as error:
        raise ConfigError("The backend docker needs the library docker: ottla[chaos].") from error
    if not COMPOSE_FILE.exists():
        raise ConfigError(f"The backend docker needs {COMPOSE_FILE}: call it from a checkout.")
    return ContainerBackend(
        ContainerSettings(
            directory=directory,
            compose_file=COMPOSE_FILE,
            # No two runs share containers, also if they share a seed, or an engine.
            project=f"ottla-chaos-{SystemRandom().getrandbits(40):010x}",
            seed=seed,
            options={**PROFILE, **options},
            has_weather=Means.WEATHER in needs,
        )
    )
