"""What is marked is run by some target: a test that nothing collects shows nothing."""

from __future__ import annotations

import re

from tests.tidy.tree import ROOT, files, shown

# They run what needs Java; `make spark` brings its own.
WITH_JAVA = ("interop", "spark")


def _folders(target: str) -> list[str]:
    """Return the folders that pytest is given by a target of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert recipe is not None, target
    return [
        word
        for line in recipe[1].splitlines()
        if "pytest" in line
        for word in line.split()
        if word.startswith("tests/")
    ]


def test_what_is_judged_by_apache_kafka_is_collected_where_there_is_one() -> None:
    folders = tuple(f"{folder}/" for target in WITH_JAVA for folder in _folders(target))
    marked = [
        shown(path)
        for path in files()
        if path.suffix == ".py" and "mark" + ".interop" in path.read_text(encoding="utf-8")
    ]
    assert len(marked) > len(folders)
    assert [path for path in marked if not path.startswith(folders)] == []
