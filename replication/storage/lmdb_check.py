"""Reads an LMDB file without LMDB, to know whether LMDB can be trusted with it.

LMDB maps its file and believes what it finds: a file that is too short ends the process with
SIGBUS, a flipped bit in a page number with worse. So every page that the newest transaction can
reach is walked here first, with bounds, as one walks a bridge before driving over it.

Not here: our own values and their checksums (`lmdb_store.py` hands in a function for these).

The format is that of LMDB 0.9 on a 64-bit little-endian machine:

    page   number u64, pad u16, flags u16, lower u16, upper u16 (overflow: page count u32)
    meta   at 16: magic u32, version u32, address u64, map size u64, two trees, last page, txn id
    tree   pad u32 (page size in the first), flags u16, depth u16, three counts, entries, root u64
    node   low u16, high u16, flags u16, key size u16, key, data
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.proto.errors import CorruptionError

_PAGE: Final = Struct("<QHHHH")
_META: Final = Struct("<IIQQ")
_TREE: Final = Struct("<IHHQQQQQ")
_LAST: Final = Struct("<QQ")
_NODE: Final = Struct("<HHHH")
_NUMBER: Final = Struct("<Q")

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_BRANCH: Final = 1
_LEAF: Final = 2
_OVERFLOW: Final = 4
_META_FLAG: Final = 8
_BIG_DATA: Final = 1
_NO_PAGE: Final = 2**64 - 1
_META_SIZE_MIN: Final = 152
_DEPTH_MAX: Final = 32

CheckPair = Callable[[bytes, bytes], None]


class _Meta(NamedTuple):
    """What one of the two meta pages says."""

    page_size: int
    free_root: int
    main_root: int
    main_flags: int
    entries: int
    last_page: int
    txn_id: int


def check_lmdb_file(path: str, check_pair: CheckPair) -> None:
    """Raise `CorruptionError` unless every reachable page is sound and every pair passes."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        first = os.pread(fd, 65536, 0)
        metas = [_read_meta(path, first, 0)]
        second = os.pread(fd, _META_SIZE_MIN, metas[0].page_size)
        metas.append(_read_meta(path, second, 1))
        newest = max(metas, key=lambda meta: meta.txn_id)
        _Walk(path, fd, size, newest).check(check_pair)
    finally:
        os.close(fd)


def _read_meta(path: str, page: bytes, number: int) -> _Meta:
    if len(page) < _META_SIZE_MIN:
        raise CorruptionError(f"{path} is too short to be a state store ({len(page)} bytes).")
    found_number, _, flags, _, _ = _PAGE.unpack_from(page, 0)
    magic, version, _, _ = _META.unpack_from(page, 16)
    if magic != _MAGIC or not flags & _META_FLAG or found_number != number:
        raise CorruptionError(f"{path} is not a state store: its meta page {number} is damaged.")
    if version != _VERSION:
        raise CorruptionError(f"{path} has LMDB format {version}; this version reads {_VERSION}.")
    free = _TREE.unpack_from(page, 40)
    main = _TREE.unpack_from(page, 88)
    last_page, txn_id = _LAST.unpack_from(page, 136)
    page_size = free[0]
    if page_size not in (4096, 8192, 16384, 32768, 65536):
        raise CorruptionError(f"{path} claims pages of {page_size} bytes.")
    return _Meta(page_size, free[7], main[7], main[1], main[6], last_page, txn_id)


class _Walk:
    """One walk over all pages that a meta page can reach."""

    def __init__(self, path: str, fd: int, size: int, meta: _Meta) -> None:
        self._path = path
        self._fd = fd
        self._meta = meta
        # LMDB may hand out a page at the end and never write it. So a file may be shorter than
        # its last page number says, and only the pages in use are asked for.
        self._page_count = min(size // meta.page_size, meta.last_page + 1)
        self._seen: set[int] = set()

    def check(self, check_pair: CheckPair) -> None:
        if self._meta.main_flags:
            raise self._broken("it was not written by this project")
        for _, numbers in self._pairs(self._meta.free_root):
            self._check_free_list(numbers)
        count = 0
        previous = b""
        for key, value in self._pairs(self._meta.main_root):
            if key <= previous:
                raise self._broken(f"key {key!r} is out of order")
            check_pair(key, value)
            previous = key
            count += 1
        if count != self._meta.entries:
            raise self._broken(f"it holds {count} pairs and claims {self._meta.entries}")

    def _check_free_list(self, numbers: bytes) -> None:
        if len(numbers) < 8:
            raise self._broken("a free list is too short")
        (count,) = _NUMBER.unpack_from(numbers)
        if len(numbers) < 8 * (count + 1):
            raise self._broken("a free list is too short")
        for position in range(8, 8 * (count + 1), 8):
            (number,) = _NUMBER.unpack_from(numbers, position)
            if not 2 <= number <= self._meta.last_page:
                raise self._broken(f"it calls page {number} free")

    def _pairs(self, root: int) -> Iterator[tuple[bytes, bytes]]:
        return iter(()) if root == _NO_PAGE else self._walk(root, 0)

    def _walk(self, number: int, depth: int) -> Iterator[tuple[bytes, bytes]]:
        page, flags = self._read_page(number)
        if depth > _DEPTH_MAX or flags not in (_BRANCH, _LEAF):
            raise self._broken(f"page {number} has flags {flags} at depth {depth}")
        for position in self._node_positions(number, page):
            low, high, node_flags, key_size = _NODE.unpack_from(page, position)
            start = position + _NODE.size
            if start + key_size > len(page):
                raise self._broken(f"a key leaves page {number}")
            if flags == _BRANCH:
                yield from self._walk(low | high << 16 | node_flags << 32, depth + 1)
            else:
                value = self._value(page, start + key_size, low | high << 16, node_flags)
                yield page[start : start + key_size], value

    def _node_positions(self, number: int, page: bytes) -> list[int]:
        _, _, _, lower, upper = _PAGE.unpack_from(page, 0)
        if not _PAGE.size <= lower <= upper <= len(page) or lower % 2:
            raise self._broken(f"page {number} has bounds {lower} and {upper}")
        count = (lower - _PAGE.size) // 2
        positions = list(Struct(f"<{count}H").unpack_from(page, _PAGE.size))
        if any(not upper <= at <= len(page) - _NODE.size for at in positions):
            raise self._broken(f"a node leaves page {number}")
        return positions

    def _value(self, page: bytes, start: int, size: int, flags: int) -> bytes:
        if flags & ~_BIG_DATA:
            raise self._broken("it was not written by this project")
        if not flags:
            if start + size > len(page):
                raise self._broken("a value leaves its page")
            return page[start : start + size]
        if start + _NUMBER.size > len(page):
            raise self._broken("a page number leaves its page")
        return self._big_value(_NUMBER.unpack_from(page, start)[0], size)

    def _big_value(self, number: int, size: int) -> bytes:
        page, flags = self._read_page(number)
        pages = int.from_bytes(page[12:16], "little")
        needed = -(-(size + _PAGE.size) // self._meta.page_size)
        if flags != _OVERFLOW or pages != needed or number + pages > self._page_count:
            raise self._broken(f"the value on page {number} is not whole")
        self._seen.update(range(number, number + pages))
        return os.pread(self._fd, size, number * self._meta.page_size + _PAGE.size)

    def _read_page(self, number: int) -> tuple[bytes, int]:
        if not 2 <= number < self._page_count:
            raise self._broken(f"it needs page {number} and has {self._page_count}")
        if number in self._seen:
            raise self._broken(f"page {number} is used twice")
        self._seen.add(number)
        page = os.pread(self._fd, self._meta.page_size, number * self._meta.page_size)
        found, _, flags, _, _ = _PAGE.unpack_from(page, 0)
        if found != number:
            raise self._broken(f"page {number} calls itself {found}")
        return page, flags

    def _broken(self, what: str) -> CorruptionError:
        return CorruptionError(f"The state store {self._path} is damaged: {what}.")
