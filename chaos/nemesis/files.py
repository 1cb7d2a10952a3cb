"""Faults of files: a bit that flips, an end that is cut off, a disk that is an old copy of itself.

All of them happen while the node is down. A node that then refuses to serve gets an empty disk, as
its operator would give it; that it refused is told.

Not here: disks that fail while they are used (`disks.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

from ottla.chaos.nemesis.kind import Kind
from ottla.chaos.nemesis.nodes import is_last, mend
from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import NOTE, Scene
from ottla.chaos.ports import Means

# A file's tail, in bytes: what was written last.
_TAIL_BYTES: Final = 4096
# How long damaged copies may take to be copied again before a person steps in.
_COPIES_S: Final = 30.0


def _logs(root: Path) -> dict[Path, list[Path]]:
    """Return the segments of each partition, in the order of their offsets."""
    found = dict[Path, list[Path]]()
    for path in sorted(root.glob("*/*.log")):
        if not path.parent.name.endswith(("-delete", "-stray")):
            found.setdefault(path.parent, []).append(path)
    return found


def _sealed(root: Path) -> list[Path]:
    return [path for paths in _logs(root).values() for path in paths[:-1]]


def _active(root: Path) -> list[Path]:
    return [paths[-1] for paths in _logs(root).values()]


def _indexes(root: Path) -> list[Path]:
    return sorted(root.glob("*/*.index")) + sorted(root.glob("*/*.timeindex"))


# What can be damaged, and which files that is.
SORTS: Final[dict[str, Callable[[Path], list[Path]]]] = {
    "sealed": _sealed,
    "active": _active,
    "index": _indexes,
    "state": lambda root: sorted(root.glob("state/data.mdb")),
    "quorum": lambda root: sorted(root.glob("quorum/data.mdb")),
    "any": lambda root: [
        path for sort in ("sealed", "active", "index") for path in SORTS[sort](root)
    ],
}


def flip_bit(path: Path, dice: Random, *, is_tail: bool) -> int:
    """Flip one bit; return where."""
    size = path.stat().st_size
    first = max(0, size - _TAIL_BYTES) if is_tail else 0
    at = dice.randrange(first, size)
    with path.open("r+b") as file:
        file.seek(at)
        (old,) = file.read(1)
        file.seek(at)
        file.write(bytes([old ^ (1 << dice.randrange(8))]))
    return at


def cut_short(path: Path, dice: Random) -> int:
    """Cut off the end, mostly little of it; return how many bytes."""
    size = path.stat().st_size
    # As in nature, small damage is common and large damage rare.
    taken = min(size, int(size ** dice.uniform(0.1, 1.0)))
    with path.open("r+b") as file:
        file.truncate(size - taken)
    return taken


def _damaged(scene: Scene, node: int, sort: str) -> Path | None:
    found = [path for path in SORTS[sort](scene.backend.data_dir(node)) if path.stat().st_size]
    return scene.dice.choice(found) if found else None


def flip(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    sort = str(step.facts.get("sort", "active"))
    scene.backend.kill(targets)
    for node in targets:
        path = _damaged(scene, node, sort)
        if path is None:
            scene.tell("nothing to damage", NOTE, (node,), sort=sort)
            continue
        at = flip_bit(path, scene.dice, is_tail=sort == "active")
        scene.tell("flipped", NOTE, (node,), file=f"{path.parent.name}/{path.name}", at=at)
    scene.begin(targets)
    yield
    _replace(scene, targets)


def truncate(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    sort = str(step.facts.get("sort", "any"))
    scene.backend.kill(targets)
    for node in targets:
        path = _damaged(scene, node, sort)
        if path is None:
            scene.tell("nothing to damage", NOTE, (node,), sort=sort)
            continue
        taken = cut_short(path, scene.dice)
        name = f"{path.parent.name}/{path.name}"
        scene.tell("cut short", NOTE, (node,), file=name, taken_bytes=taken)
    scene.begin(targets)
    yield
    _replace(scene, targets)


def _replace(scene: Scene, targets: Sequence[int]) -> None:
    """Mend nodes; one that keeps a damaged copy, and says so, gets an empty disk from a person."""
    mend(scene, targets, may_wipe=True)
    if scene.wait_whole(_COPIES_S):
        return
    for node in targets:
        if not is_last(scene, node):
            scene.tell("restarted", NOTE, (node,), is_wiped=True)
            scene.backend.kill([node])
            scene.backend.wipe(node)
            scene.backend.begin(node)


def restore(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Copy the disk of a node that is down, let it live on, and give it the old copy back."""
    (node,) = targets
    data = scene.backend.data_dir(node)
    copy = data.with_name("copy")
    if step.facts.get("clean", False):
        scene.backend.stop(targets)
    else:
        scene.backend.kill(targets)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(data, copy)
    scene.begin(targets)
    scene.wait_ready(targets)
    scene.wait_whole(30.0)
    scene.last(float(step.facts.get("meanwhile_s", 5.0)))
    scene.backend.kill(targets)
    shutil.rmtree(data)
    copy.rename(data)
    scene.begin(targets)
    yield
    mend(scene, targets, may_wipe=True)


_FILES: Final = frozenset({Means.FILES, Means.KILL})
KINDS: Final = (
    Kind(
        "bit-flip",
        "one bit of a file of a node that is down flips",
        _FILES,
        flip,
        (("sort", "active"),),
        needs_whole=True,
    ),
    Kind(
        "truncate",
        "a file of a node that is down loses its end",
        _FILES,
        truncate,
        (("sort", "any"),),
        needs_whole=True,
    ),
    Kind(
        "restore",
        "the disk of a node is an old copy of itself",
        _FILES,
        restore,
        (("clean", False), ("meanwhile_s", 5.0)),
        needs_whole=True,
    ),
)
