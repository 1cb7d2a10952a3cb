"""Whatever is done and whenever the power goes: what was synced is intact, byte for byte."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.storage.faults import FaultyFile, FaultyFiles, Power
from ottla.replication.storage.memory import MemoryFiles
from ottla.replication.storage.unsynced import Style

NAMES = ("a", "b", "c")
SIZE_MAX = 20_000


class ModelFile:
    """A file as a naive reader of the contract would keep it."""

    def __init__(self) -> None:
        self.now = bytearray()
        self.synced = b""
        # Marks the synced bytes that were written or cut off since.
        self.touched = bytearray()
        self.low = 0

    def write(self, position: int, content: bytes) -> None:
        self.now.extend(bytes(max(0, position - len(self.now))))
        self.now[position : position + len(content)] = content
        for at in range(position, min(position + len(content), len(self.synced))):
            self.touched[at] = 1

    def truncate(self, size: int) -> None:
        del self.now[size:]
        self.now.extend(bytes(size - len(self.now)))
        for at in range(size, len(self.synced)):
            self.touched[at] = 1
        self.low = min(self.low, size)

    def sync(self) -> None:
        self.synced = bytes(self.now)
        self.touched = bytearray(len(self.now))
        self.low = len(self.now)

    def fault_in(self, found: bytes, style: Style) -> str | None:
        """Return what no disk could have done, if anything."""
        if style is Style.KEEP:
            return None if found == self.now else "keep lost something"
        if style is Style.DROP:
            return None if found == self.synced else "drop is not the synced state"
        if len(found) < self.low:
            return f"only {len(found)} of {self.low} bytes are left"
        for at, byte in enumerate(found):
            was = self.synced[at] if at < len(self.synced) else 0
            now = self.now[at] if at < len(self.now) else 0
            if byte not in (0, was, now):
                return f"byte {at} was never written"
            if at < len(self.synced) and not self.touched[at] and byte != was:
                return f"synced byte {at} is gone"
        return None


class World:
    """Two directories of the machine and of the model, driven side by side."""

    def __init__(self) -> None:
        self.power = Power()
        self.files = FaultyFiles(MemoryFiles(), self.power)
        self.handles: dict[int, FaultyFile] = {}
        # For each directory: its names as they were at its last sync and after each change since.
        self.histories: dict[str, list[dict[str, ModelFile]]] = {"/d": [{}], "/e": [{}]}
        for path in self.histories:
            self.files.make_dir(path)
        self.files.sync_dir("/")

    def step(self, kind: str, path: str, name: str, other: str, number: int, seed: int) -> None:
        names = self.histories[path][-1]
        if kind == "sync_dir":
            self.files.sync_dir(path)
            self.histories[path] = [names]
        elif kind == "create":
            if name not in names:
                self.change(path, names | {name: self.opened(f"{path}/{name}")})
        elif name in names:
            if kind == "remove":
                self.files.remove(f"{path}/{name}")
                self.change(path, {key: names[key] for key in names if key != name})
            elif kind == "rename" and other != name:
                self.files.rename(f"{path}/{name}", f"{path}/{other}")
                rest = {key: names[key] for key in names if key not in (name, other)}
                self.change(path, rest | {other: names[name]})
            else:
                self.touch(kind, names[name], number, seed)

    def touch(self, kind: str, model: ModelFile, number: int, seed: int) -> None:
        handle = self.handles[id(model)]
        if kind == "write":
            content = Random(seed).randbytes(1 + seed % 6_000)
            handle.write_at(number, [content])
            model.write(number, content)
        elif kind == "truncate":
            handle.truncate(number)
            model.truncate(number)
        elif kind == "sync":
            handle.sync()
            model.sync()

    def opened(self, path: str) -> ModelFile:
        model = ModelFile()
        self.handles[id(model)] = self.files.open(path, create=True)
        return model

    def change(self, path: str, names: dict[str, ModelFile]) -> None:
        self.histories[path].append(names)

    def faults_in(self, path: str, style: Style) -> list[str]:
        """Return why none of the states that the directory has had explains what is there now."""
        history = self.histories[path]
        candidates = {Style.DROP: history[:1], Style.KEEP: history[-1:]}.get(style, history)
        found = {
            name: self.files.open(f"{path}/{name}").read_at(0, 1 << 20)
            for name in self.files.list_dir(path)
        }
        reasons: list[str] = []
        for names in candidates:
            if set(names) != set(found):
                reasons.append(f"{sorted(found)} are not {sorted(names)}")
                continue
            faults = [names[name].fault_in(found[name], style) for name in found]
            if not any(faults):
                return []
            reasons += [fault for fault in faults if fault]
        return reasons


STEP = st.tuples(
    st.sampled_from(
        ("create", "write", "write", "truncate", "sync", "rename", "remove", "sync_dir")
    ),
    st.sampled_from(("/d", "/e")),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.integers(0, SIZE_MAX),
    st.integers(0, 100_000),
)


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, max_size=30), seed=st.integers(0, 9), style=st.sampled_from(Style))
def test_what_was_synced_survives_any_cut(
    steps: list[tuple[str, str, str, str, int, int]], seed: int, style: Style
) -> None:
    world = World()
    for step in steps:
        world.step(*step)
    world.power.cut(Random(seed), style)
    for path in world.histories:
        assert world.faults_in(path, style) == []
    # The cut is over: what it left is durable, and a second one finds nothing to take.
    before = {path: world.files.list_dir(path) for path in world.histories}
    world.power.cut(Random(seed + 1), Style.DROP)
    assert before == {path: world.files.list_dir(path) for path in world.histories}


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(STEP, max_size=20), seed=st.integers(0, 9))
def test_the_same_dice_give_the_same_disk(
    steps: list[tuple[str, str, str, str, int, int]], seed: int
) -> None:
    disks = []
    for _ in range(2):
        world = World()
        for step in steps:
            world.step(*step)
        world.power.cut(Random(seed), Style.MIXED)
        disks.append(
            {
                f"{path}/{name}": world.files.open(f"{path}/{name}").read_at(0, 1 << 20)
                for path in world.histories
                for name in world.files.list_dir(path)
            }
        )
    assert disks[0] == disks[1]
