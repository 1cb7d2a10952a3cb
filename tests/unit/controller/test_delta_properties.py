"""The difference of any two images, against a model that looks at everything.

The digest of the metadata runs over the bytes of the difference, so these are as fixed as the
commands are: the order included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.delta import Delta, TopicDelta, delta_between, encode_delta, follow
from ottla.controller.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.proto.ids import BrokerId, LeaderEpoch
from tests.unit.controller.metadata import image_of, topic_id


def naive_delta(before: MetadataImage, after: MetadataImage) -> Delta:
    """Return the difference without regard to what the images share."""
    old, new = before.broker_configs, after.broker_configs
    configs = {name: options for name, options in new.items() if old.get(name) != options}
    configs |= {name: {} for name in old if name not in new}
    return Delta(
        from_version=before.version,
        from_digest=before.digest,
        version=after.version,
        digest=after.digest,
        controller_id=after.controller_id,
        controller_epoch=after.controller_epoch,
        next_producer_id=after.next_producer_id,
        feature_level=after.feature_level,
        defaults=after.defaults,
        brokers=tuple(b for key, b in after.brokers.items() if before.brokers.get(key) != b),
        brokers_gone=tuple(key for key in before.brokers if key not in after.brokers),
        topics=tuple(t for t in after.topics.values() if t.topic_id not in before.topic_names),
        topics_changed=tuple(_naive_changes(before, after)),
        topics_gone=tuple(key for key in before.topic_names if key not in after.topic_names),
        broker_configs=configs if old != new else None,
    )


def _naive_changes(before: MetadataImage, after: MetadataImage) -> Iterator[TopicDelta]:
    for name, topic in after.topics.items():
        old = before.topics.get(name)
        if old is None or old.topic_id != topic.topic_id or old == topic:
            continue
        known = dict(enumerate(old.partitions))
        partitions = {n: p for n, p in enumerate(topic.partitions) if known.get(n) != p}
        configs = None if old.configs == topic.configs else topic.configs
        yield TopicDelta(topic.topic_id, partitions, configs)


def _partition(epoch: int) -> PartitionInfo:
    one = BrokerId(1)
    return PartitionInfo((one,), (one,), one, LeaderEpoch(epoch), epoch)


class Pen:
    """Draws an image, and a later one that shares some of it."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self._ids = 0

    def new_topic(self, name: str) -> TopicInfo:
        self._ids += 1
        partitions = tuple(_partition(0) for _ in range(self.dice.randint(1, 4)))
        return TopicInfo(name, topic_id(self._ids), partitions, {})

    def image(self) -> MetadataImage:
        names = [f"t{number}" for number in range(self.dice.randint(0, 12))]
        return self._with(image_of(), {name: self.new_topic(name) for name in names})

    def later(self, before: MetadataImage) -> MetadataImage:
        topics = dict(before.topics)
        for _ in range(self.dice.choice((0, 0, 1, 1, 2, 3, 9))):
            self._change(topics)
        after = replace(before, version=before.version + 1, digest=b"later")
        if before.brokers and self.dice.random() < 0.3:
            gone = self.dice.choice(list(before.brokers))
            brokers = {key: one for key, one in before.brokers.items() if key != gone}
            after = replace(after, brokers=brokers, broker_configs={"2": {"a": "b"}})
        # Also: the same mapping, or another one with the same in it.
        is_same = topics == before.topics and self.dice.random() < 0.5
        return after if is_same else self._with(after, topics)

    def _change(self, topics: dict[str, TopicInfo]) -> None:
        name = f"t{self.dice.randrange(14)}"
        topic = topics.get(name)
        if topic is None:
            topics[name] = self.new_topic(name)
            return
        match self.dice.randrange(6):
            case 0:
                del topics[name]
            case 1:
                # Made again: in its old place, as nobody does it, or in the last.
                if self.dice.random() < 0.5:
                    del topics[name]
                topics[name] = self.new_topic(name)
            case 2:
                at = self.dice.randrange(len(topic.partitions))
                epoch = topic.partitions[at].partition_epoch + 1
                partitions = (
                    *topic.partitions[:at],
                    _partition(epoch),
                    *topic.partitions[at + 1 :],
                )
                topics[name] = replace(topic, partitions=partitions)
            case 3:
                topics[name] = replace(topic, partitions=(*topic.partitions, _partition(0)))
            case 4:
                topics[name] = replace(topic, configs={**topic.configs, "k": "v"})
            case _:
                # Another object that is equal.
                topics[name] = replace(topic)

    def _with(self, image: MetadataImage, topics: dict[str, TopicInfo]) -> MetadataImage:
        """Put topics into an image; that their ids stand in another order changes nothing."""
        names = [(topic.topic_id, name) for name, topic in topics.items()]
        if self.dice.random() < 0.5:
            self.dice.shuffle(names)
        return replace(image, topics=topics, topic_names=dict(names))


@given(st.integers(0, 2**32))
def test_the_bytes_are_those_of_a_model_that_looks_at_everything(seed: int) -> None:
    pen = Pen(seed)
    before = pen.image()
    for _ in range(4):
        after = pen.later(before)
        delta, expected = delta_between(before, after), naive_delta(before, after)
        assert delta == expected
        assert encode_delta(delta) == encode_delta(expected)
        assert follow(before, delta) == after
        before = after


@given(st.integers(0, 2**32))
def test_images_that_share_nothing_differ_by_what_is_in_them(seed: int) -> None:
    pen = Pen(seed)
    before, after = pen.image(), replace(pen.image(), version=1)
    assert encode_delta(delta_between(before, after)) == encode_delta(naive_delta(before, after))
