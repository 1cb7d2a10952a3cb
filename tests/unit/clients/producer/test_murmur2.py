"""Keys choose the partitions that Java's producer would choose."""

from __future__ import annotations

import pytest

from ottla.clients.producer.murmur2 import murmur2, positive_murmur2

# Kafka's own test: UtilsTest.testMurmur2.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA)
def test_the_hash_is_that_of_java(key: bytes) -> None:
    assert murmur2(key) == JAVA[key] & 0xFFFFFFFF


@pytest.mark.parametrize("key", JAVA)
def test_the_sign_is_cut_off_and_not_changed(key: bytes) -> None:
    assert positive_murmur2(key) == JAVA[key] & 0x7FFFFFFF
