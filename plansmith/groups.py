"""Things by what they share, and a few of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT")


def grouped(items: Iterable[ItemT], key_of: Callable[[ItemT], KeyT]) -> dict[KeyT, list[ItemT]]:
    """Return items by what they share, in the order of its first occurrence."""
    groups: dict[KeyT, list[ItemT]] = {}
    for item in items:
        groups.setdefault(key_of(item), []).append(item)
    return groups


def some_of_each(items: Iterable[ItemT], key_of: Callable[[ItemT], KeyT], count: int) -> list[ItemT]:
    """Return so many items: the first of each group, then the second of each, and so on."""
    groups = grouped(items, key_of).values()
    return [group[turn] for turn in range(count) for group in groups if turn < len(group)][:count]
