"""Which drawn problems a dataset takes: one of each canonical form, so many of each split, in the order of drawing.

The canonical form decides the split, so no problem of one split is another's under other names, whatever the scale, the
number of workers or the order in which they finish. Not here: drawing and solving (`actors`).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from plansmith.config.dataset import Cell

FIRST_WAVE = 1.1
"""Draws for each wanted problem at first."""

NEXT_WAVE = 1.25
"""Draws for each missing problem later, over what the draws so far promise."""

GROWTH = 4
"""A wave draws at most so many times what was drawn before it."""


def split_of(form: str, shares: Mapping[str, int], seed: int) -> str:
    """Return the split that a canonical form belongs to; it depends on the form, the seed and the shares alone."""
    place = int.from_bytes(hashlib.sha256(f"{seed} {form}".encode()).digest()[:8], "big") / 2**64 * sum(shares.values())
    for split, share in shares.items():
        place -= share
        if place < 0:
            return split
    return split


class Quota:
    """The problems taken so far of one domain and level."""

    def __init__(self, cell: Cell, *, reserve: float, max_draws: int, seed: int) -> None:
        self.cell, self._seed = cell, seed
        self.wanted = {split: math.ceil(count * (1 + reserve)) for split, count in cell.wanted.items()}
        self._draws_left = max_draws * sum(self.wanted.values())
        self.taken: Counter[str] = Counter()
        self.drawn = self.duplicates = self.surplus = 0
        self._new_forms = 0

    def take(self, form: str, seen: set[str], splits: dict[str, str]) -> str | None:
        """Return the split for which the next drawn problem is taken, or None where it is not; remember its form.

        Args:
            form: of the problem.
            seen: forms that were taken of the domain.
            splits: of every form that was taken of any: it is in no other, whatever the shares of its cells are.
        """
        self.drawn += 1
        if form in seen:
            self.duplicates += 1
            return None
        self._new_forms += 1
        split = split_of(form, self.cell.shares, self._seed)
        if self.taken[split] >= self.wanted[split] or splits.get(form, split) != split:
            self.surplus += 1
            return None
        seen.add(form)
        splits[form] = split
        self.taken[split] += 1
        return split

    @property
    def missing(self) -> dict[str, int]:
        """Return how many problems each split lacks, the reserve included."""
        return {split: count - self.taken[split] for split, count in self.wanted.items() if count > self.taken[split]}

    def next_draws(self) -> int:
        """Return how many problems to draw next; 0 when all are there, or no more are to be found."""
        if not self.missing or (self.drawn and not self._new_forms):
            return 0
        draws = self._promising_draws() if self.drawn else math.ceil(FIRST_WAVE * sum(self.wanted.values())) + 10
        draws = min(draws, self._draws_left)
        self._draws_left -= draws
        self._new_forms = 0
        return draws

    def _promising_draws(self) -> int:
        needs = []
        for split, count in self.missing.items():
            share = self.cell.shares[split] / sum(self.cell.shares.values())
            new_share = max(1, self.drawn - self.duplicates) / self.drawn
            needs.append(NEXT_WAVE * count / (share * new_share))
        return min(math.ceil(max(needs)) + 10, GROWTH * self.drawn)


def next_to_solve(splits: Sequence[str], fits: Sequence[bool | None], wanted: Mapping[str, int]) -> list[int]:
    """Return which problems to solve next: as many as each split lacks, the first ones not tried yet.

    Args:
        splits: of the problems of one domain and level, in their order.
        fits: whether each got a plan that the dataset takes; None where nobody has tried.
        wanted: solved problems of each split.
    """
    lacking = Counter(wanted)
    lacking.subtract(split for split, fit in zip(splits, fits, strict=True) if fit)
    return first_that_fit(splits, [fit is None for fit in fits], lacking)


def first_that_fit(splits: Sequence[str], fits: Sequence[bool | None], wanted: Mapping[str, int]) -> list[int]:
    """Return the first problems that fit, as many of each split as are wanted."""
    left, chosen = Counter(wanted), []
    for number, (split, fit) in enumerate(zip(splits, fits, strict=True)):
        if fit and left[split] > 0:
            left[split] -= 1
            chosen.append(number)
    return chosen
