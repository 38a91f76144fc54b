"""One-to-one maps between the objects of two problems under which their facts are the same, found within a budget.

Both problems are coloured as one structure of two sides (`structure`), so that objects which a map may pair have one
colour; a colour that more objects of one side have than of the other rules every map out. Then an object of the first
side is paired with each object of its colour in turn, and the colours refined again, until all are paired
(individualisation and refinement; McKay, Practical graph isomorphism, 1981). Equal sides cost little: where no choice
is wrong, the search never goes back.

It goes back often over many parts that look alike and are not, such as a dozen rings of three lengths. So when a
quarter of the budget is spent, objects are first told apart by what singling out each of them shows, which is dear
and mends it. Unlike `canonical`, the search ends when the budget does: what language models write has no bound on its
symmetry.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from plansmith.pddl.structure import Colouring, Fact, Structure, can_swap, refine, refined_kinds, structure_of

SEARCH_LIMIT = 1_000_000
"""Looks at a fact that one search may take: seconds, whatever the problems."""

OBJECTS_PER_LOOK = 8
"""Objects that are copied and counted with each colouring in the time of a look at a fact."""


class OutOfBudget(Exception):
    """The search took as many looks as it may."""


@dataclass(frozen=True)
class Side:
    """What there is to map of one problem: its objects with their kinds, and facts over them."""

    kinds: Mapping[str, str]
    facts: frozenset[Fact]

    def with_facts(self, facts: Iterable[Fact]) -> Side:
        """Return the side with more facts."""
        return Side(self.kinds, self.facts | frozenset(facts))

    def counts(self) -> Counter[tuple[str, str]]:
        """Return how many objects there are of each kind, and facts of each relation."""
        found = Counter(("kind", kind) for kind in self.kinds.values())
        found.update(("relation", relation) for relation, _ in self.facts)
        return found


class Pairing:
    """The maps from the objects of one side to those of another."""

    def __init__(self, first: Side, second: Side, *, limit: int = SEARCH_LIMIT) -> None:
        self._first, self._second, self._limit = first, second, limit
        self._joint = _Joint.of(first, second)
        self._has_equal_counts = first.counts() == second.counts()

    @cached_property
    def is_possible(self) -> bool:
        """Whether counts and colours allow a map; without that there is none."""
        return self._has_equal_counts and self._joint.is_even(self._start)

    @cached_property
    def is_rigid(self) -> bool:
        """Whether colours allow one map at most."""
        return not self.is_possible or self._joint.open_colour(self._start) is None

    @cached_property
    def _start(self) -> Colouring:
        return refined_kinds(self._joint.structure)

    def colours(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the colour of each object of either side; every map keeps it."""
        colours, n_first = self._start.colours, self._joint.n_first
        first = dict(zip(self._first.kinds, colours[:n_first], strict=True))
        return first, dict(zip(self._second.kinds, colours[n_first:], strict=True))

    def maps(self, *, kept_by_swaps: tuple[Side, Side] | None = None) -> Iterator[dict[str, str]]:
        """Yield maps under which the facts of one side are those of the other; one at least if there is any.

        Of maps that differ in swapping objects that look the same from everywhere, one is yielded; one may come twice.

        Args:
            kept_by_swaps: both sides with more facts, which such swaps have to leave as they are.

        Raises:
            OutOfBudget: there may be more maps.
        """
        if not self.is_possible:
            return
        twins = self._joint.structure if kept_by_swaps is None else _Joint.of(*kept_by_swaps).structure
        names, more_names = list(self._first.kinds), list(self._second.kinds)
        for pairs in self._pairs(twins):
            yield {names[first]: more_names[second - len(names)] for first, second in pairs}

    def _pairs(self, twins: Structure) -> Iterator[list[list[int]]]:
        try:
            yield from _Search(self._joint, twins, self._limit // 4).leaves(self._start)
        except OutOfBudget:
            search = _Search(self._joint, twins, self._limit - self._limit // 4)
            yield from search.leaves(search.told_apart(self._start))


@dataclass(frozen=True)
class _Joint:
    """Two sides as one structure; the objects of the first have the lesser numbers."""

    structure: Structure
    n_first: int

    @classmethod
    def of(cls, first: Side, second: Side) -> _Joint:
        kinds = {
            f"{number} {name}": kind for number, side in enumerate((first, second)) for name, kind in side.kinds.items()
        }
        facts = {
            (relation, tuple(f"{number} {name}" for name in names))
            for number, side in enumerate((first, second))
            for relation, names in side.facts
        }
        return cls(structure_of(kinds, facts), len(first.kinds))

    def is_even(self, colouring: Colouring) -> bool:
        """Return whether as many objects of one side as of the other have each colour."""
        balance = [0] * len(colouring.colours)
        for member, colour in enumerate(colouring.colours):
            balance[colour] += 1 if member < self.n_first else -1
        return not any(balance)

    def open_colour(self, colouring: Colouring) -> int | None:
        """Return the colour of the fewest objects of those not paired yet; None if all are."""
        sizes = ((len(members), colour) for colour, members in colouring.alike.items() if len(members) > 2)
        return min(sizes, default=(0, None))[1]

    def sides_of(self, members: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return those of the first side and those of the second."""
        return [m for m in members if m < self.n_first], [m for m in members if m >= self.n_first]


class _Search:
    """Depth-first search through the pairs that colours allow."""

    def __init__(self, joint: _Joint, twins: Structure, limit: int) -> None:
        self.joint, self.twins, self.left = joint, twins, limit

    def leaves(self, start: Colouring) -> Iterator[list[list[int]]]:
        """Yield the pairs of every colouring in which all objects are paired.

        Colours are refined to the end, so that the two of a pair occur in the same facts with the same pairs.
        """
        stack = [iter([start])]
        while stack:
            colouring = next(stack[-1], None)
            if colouring is None:
                stack.pop()
            elif not self.joint.is_even(colouring):
                continue
            elif (colour := self.joint.open_colour(colouring)) is not None:
                stack.append(self._choices(colouring, colour))
            else:
                yield [sorted(members) for members in colouring.alike.values()]

    def told_apart(self, start: Colouring) -> Colouring:
        """Return the colouring in which what singling out an object shows tells it from others, too."""
        finer = start
        for colour, members in start.alike.items():
            groups: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
            for member in members:
                alone = start.singled_out(member)
                self._refine(alone, self.joint.structure.neighbours[member])
                groups[tuple(sorted((c, len(alike)) for c, alike in alone.alike.items()))].append(member)
            finer = finer.divided(colour, [groups[shown] for shown in sorted(groups)])
        self._refine(finer, range(len(finer.colours)))
        return finer

    def _choices(self, colouring: Colouring, colour: int) -> Iterator[Colouring]:
        """Yield the colourings in which an object of a colour is paired; all of that colour if any pairs would do."""
        first, second = self.joint.sides_of(colouring.alike[colour])
        if self._are_twins(first) and self._are_twins(second):
            yield self._divided(colouring, colour, [list(pair) for pair in zip(first, second, strict=True)])
            return
        tried: list[int] = []
        for other in second:
            self._spend(len(tried))
            if not any(can_swap(self.twins, other, known) for known in tried):
                tried.append(other)
                rest = [member for member in (*first, *second) if member not in (first[0], other)]
                yield self._divided(colouring, colour, [[first[0], other], rest])

    def _are_twins(self, members: Sequence[int]) -> bool:
        return all(can_swap(self.twins, members[0], member) for member in members[1:])

    def _divided(self, colouring: Colouring, colour: int, parts: list[list[int]]) -> Colouring:
        finer = colouring.divided(colour, parts)
        neighbours = self.joint.structure.neighbours
        self._refine(finer, {other for part in parts[:-1] for member in part for other in neighbours[member]})
        return finer

    def _refine(self, colouring: Colouring, touched: Sequence[int] | set[int] | range) -> None:
        self._spend(refine(self.joint.structure, colouring, touched) + len(colouring.colours) // OBJECTS_PER_LOOK)

    def _spend(self, n_looks: int) -> None:
        self.left -= n_looks
        if self.left < 0:
            raise OutOfBudget
