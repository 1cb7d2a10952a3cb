"""A decoded message: its fields as attributes, plain values, and nothing else.

A field that the version does not have is absent: ask with `get` where versions differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class Message:
    """A message, or a part of one that repeats, as it was read."""

    def __init__(self, fields: dict[str, Any]) -> None:
        """Take the mapping itself; the reader that built it lets go of it."""
        self.__dict__ = fields

    def get(self, name: str, default: Any = None) -> Any:
        return self.__dict__.get(name, default)

    def as_dict(self) -> dict[str, Any]:
        """Return the whole tree as new mappings and lists."""
        return {name: _unfold(value) for name, value in self.__dict__.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def _unfold(value: Any) -> Any:
    if isinstance(value, Message):
        return value.as_dict()
    if isinstance(value, list):
        return [_unfold(element) for element in value]
    return value
