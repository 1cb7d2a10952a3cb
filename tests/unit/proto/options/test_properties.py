"""Java's .properties format, by its rules and by what real files do."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ConfigError
from ottla.proto.options.properties import FILE_BYTES_MAX, KEYS_MAX, parse_properties


def values(text: str) -> dict[str, str]:
    found = parse_properties(text.encode(), file_name="f")
    return {key: prop.value for key, prop in found.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# a\n  ! b\n\n \t\n", {}),
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a \t= \f 1 ", {"a": "1 "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a=b=c:d e", {"a": "b=c:d e"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\\\n   2\\\r\n\t3\nb=4", {"a": "123", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n# no comment\nb=2", {"a": "1# no comment", "b": "2"}),
        ("# a comment does not go on \\\na=1", {"a": "1"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("a=\\t\\n\\r\\f\\x\\\\", {"a": "\t\n\r\fx\\"}),
        ("a=\\u00e9\\u00E9", {"a": "éé"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("\ufeffa=1", {"a": "1"}),
    ],
)
def test_a_file_means_what_it_means_to_java(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def test_a_property_knows_the_line_on_which_it_begins() -> None:
    found = parse_properties(b"# one\na=1\\\n  2\n\nb=3", file_name="f")
    assert {key: prop.line for key, prop in found.items()} == {"a": 2, "b": 5}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            b"a=1\nb=2\na=3\n",
            's.properties gives "a" twice, on line 1 and on line 3: keep one of them.',
        ),
        (b"b=2\na=\\u12x4", r"s.properties, line 2: four hexadecimal digits must follow \u."),
        (b"a=\\ud83d", r"s.properties, line 1: half of a \uXXXX pair stands alone."),
        (b"=1", 's.properties, line 1: there is no key before the value in "=1".'),
        (b"a=1\nb=\xff", "s.properties, line 2: this is not UTF-8 text."),
        (
            b"#" * (FILE_BYTES_MAX + 1),
            "s.properties is too large: at most 1048576 bytes are read.",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_line(data: bytes, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties(data, file_name="s.properties")
    assert str(caught.value) == sentence


def test_all_the_wrong_lines_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties(b"a=1\na=2\n=3\n", file_name="f")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"\\\n" * (FILE_BYTES_MAX // 2),
        b"\\" * (FILE_BYTES_MAX - 1) + b"a",
        b" " * FILE_BYTES_MAX,
        b"a\\ " * (FILE_BYTES_MAX // 3),
    ],
    ids=["continuations", "backslashes", "blanks", "escapes"],
)
def test_the_largest_file_is_read_in_one_pass(data: bytes) -> None:
    assert len(parse_properties(data, file_name="f")) <= 1


@pytest.mark.parametrize("filler", [b"=", b"\\u", b"a\n", b"=\n"])
def test_the_largest_wrong_file_is_refused_in_few_words(filler: bytes) -> None:
    data = (filler * FILE_BYTES_MAX)[:FILE_BYTES_MAX]
    with pytest.raises(ConfigError) as caught:
        parse_properties(data, file_name="f")
    assert len(str(caught.value)) < 2000


def test_a_file_with_too_many_keys_is_refused() -> None:
    data = "".join(f"k{n}=1\n" for n in range(KEYS_MAX + 1)).encode()
    with pytest.raises(ConfigError) as caught:
        parse_properties(data, file_name="f")
    assert str(caught.value) == "f is not read beyond line 1001: it has too much in it."
