"""Patterns of names, beside Python's own, and with patterns that take Python for ever."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.node.transactions.patterns import PATTERN_MAX, PLACES_MAX, Pattern
from ottla.proto.errors import ErrorCode, RequestError

_CHARS = st.sampled_from("ab-_.1")
_ATOMS = st.one_of(
    _CHARS.map(re.escape),
    st.sampled_from([".", r"\d", r"\w", r"\W", r"\s", "[ab]", "[^a]", "[a-b1]", "[^-]", "^", "$"]),
)


def _grown(inner: Any) -> Any:
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,}", "{0,2}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    )


@given(st.recursive(_ATOMS, _grown, max_leaves=6), st.lists(_CHARS, max_size=6).map("".join))
def test_a_pattern_fits_the_names_that_python_says_it_fits(text: str, name: str) -> None:
    # `$` of Python also stands before a line feed at the end; no name here has one.
    assert Pattern(text).matches(name) == bool(re.fullmatch(text, name))


@pytest.mark.parametrize(
    ("text", "fits", "fits_not"),
    [
        ("orders-.*", ["orders-", "orders-1"], ["my-orders-1", "orders"]),
        ("a|b", ["a", "b"], ["ab", ""]),
        ("", [""], ["a"]),
        (r"app-\d{2,3}", ["app-12", "app-123"], ["app-1", "app-1234", "app-xy"]),
        ("[]a]+", ["]a", "a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("x{y}", ["x{y}"], ["x"]),
        (r"\.\*", [".*"], ["ab"]),
        ("^a$", ["a"], ["aa"]),
        ("a^b", [], ["ab", "a^b"]),
        ("é+", ["éé"], ["e"]),
    ],
)
def test_what_fits(text: str, fits: list[str], fits_not: list[str]) -> None:
    pattern = Pattern(text)
    assert all(map(pattern.matches, fits))
    assert not any(map(pattern.matches, fits_not))


@pytest.mark.parametrize(
    "text",
    [
        *("(", ")", "a)", "[", "[a", "*", "a**", "a{2}{3}", "a++", "(?=a)", "(?i)a", "(?P<n>a)"),
        *("\\", r"\1", r"\b", r"\Q", r"\p{L}", "[b-a]", "[[:alpha:]]", "a{3,2}", r"[\D]", "+a"),
        *("(" * 60 + ")" * 60, "a" * (PATTERN_MAX + 1), "(a{40}){40}", "(){9999}", "a{9999}"),
    ],
)
def test_what_is_no_pattern_or_too_much_is_refused(text: str) -> None:
    with pytest.raises(RequestError) as refusal:
        Pattern(text)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|aa)*b", "(a*)*b", "a?" * 80 + "a" * 80, "(.*a){20}", "(a|b)*a(a|b){50}"]
)
def test_e2_a_pattern_that_takes_python_for_ever_takes_a_step_for_each_place(text: str) -> None:
    pattern, name = Pattern(text), "a" * 2000
    pattern.matches(name)
    assert pattern.steps <= (len(name) + 1) * (PLACES_MAX + 1)


def test_a_name_that_cannot_fit_any_more_is_not_read_to_its_end() -> None:
    pattern = Pattern("b.*")
    assert not pattern.matches("a" * 30_000)
    assert pattern.steps < 20
