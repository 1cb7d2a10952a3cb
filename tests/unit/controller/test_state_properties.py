from __future__ import annotations

from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.commands import Command
from ottla.controller.image import MetadataImage
from ottla.controller.names import name_problem
from ottla.controller.state import apply
from tests.unit.controller.metadata import commands, image_of, quorum_commands

# What clients ask for, and what controllers and brokers do.
_commands = commands | quorum_commands
_histories = st.lists(_commands, max_size=25)


def _require_sound(image: MetadataImage) -> None:
    assert image.topic_names == {topic.topic_id: name for name, topic in image.topics.items()}
    for name, topic in image.topics.items():
        assert topic.name == name
        assert name_problem(name) is None
        assert topic.partitions
        for partition in topic.partitions:
            assert partition.replicas
            assert len(set(partition.replicas)) == len(partition.replicas)
            assert set(partition.replicas) <= set(image.brokers)
            assert set(partition.isr) <= set(partition.replicas)
            assert partition.leader in partition.isr if partition.isr else partition.leader is None
    assert all(image.broker_configs.values())


@settings(deadline=None)
@given(_histories)
def test_any_history_leaves_a_sound_image(history: list[Command]) -> None:
    image = image_of()
    for command in history:
        following, outcome = apply(image, command)
        if outcome.refusal is not None:
            assert following is image
        if following is not image:
            assert following.version == image.version + 1
        image = following
        _require_sound(image)


@settings(deadline=None)
@given(_histories)
def test_the_same_history_gives_the_same_images_and_outcomes(history: list[Command]) -> None:
    one, other = image_of(), image_of()
    for command in history:
        one, first = apply(one, command)
        other, second = apply(other, deepcopy(command))
        assert (one, first) == (other, second)


@settings(deadline=None)
@given(_histories, _commands)
def test_an_image_once_given_out_never_changes(history: list[Command], last: Command) -> None:
    image = image_of()
    for command in history:
        image, _ = apply(image, command)
    before = deepcopy(image)
    apply(image, last)
    assert image == before


@settings(deadline=None)
@given(_histories)
def test_an_outcome_names_every_topic_and_option_set_that_differs(history: list[Command]) -> None:
    image = image_of()
    for command in history:
        following, outcome = apply(image, command)
        names = image.topics.keys() | following.topics.keys()
        differing = {name for name in names if image.topic(name) != following.topic(name)}
        assert differing <= set(outcome.topics)
        sets = image.broker_configs.keys() | following.broker_configs.keys()
        changed = {
            name
            for name in sets
            if image.broker_configs.get(name) != following.broker_configs.get(name)
        }
        assert changed <= set(outcome.broker_configs)
        image = following
