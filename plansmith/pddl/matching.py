"""Matching patterns (atoms with variables) against ground atoms: a join, one pattern after another.

Serves the search for applicable actions, quantifiers over what static atoms leave possible, and orders of goals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from plansmith.pddl.model import EQUALITY, Atom

Index = Mapping[tuple[str, int, str], Sequence[Atom]]
"""Ground atoms by predicate, argument position and object there; position -1 and no object: all of the predicate."""


def index_of(atoms: Iterable[Atom]) -> Index:
    """Return the index of ground atoms."""
    index: dict[tuple[str, int, str], list[Atom]] = defaultdict(list)
    for atom in atoms:
        index[atom.predicate, -1, ""].append(atom)
        for place, name in enumerate(atom.arguments):
            index[atom.predicate, place, name].append(atom)
    return index


def in_join_order(patterns: Iterable[Atom]) -> list[Atom]:
    """Return the patterns to match, each time the one with the fewest variables not yet bound; equalities last."""
    waiting, order, bound = list(patterns), list[Atom](), set[str]()
    while waiting:
        best = min(waiting, key=lambda atom: (atom.predicate == EQUALITY, len(variables_of(atom) - bound)))
        waiting.remove(best)
        order.append(best)
        bound |= variables_of(best)
    return order


def variables_of(atom: Atom) -> set[str]:
    """Return the variables among an atom's arguments."""
    return {name for name in atom.arguments if is_variable(name)}


def matches(
    patterns: Sequence[Atom], binding: Mapping[str, str], index: Index, met: Callable[[], None] | None = None
) -> Iterator[Mapping[str, str]]:
    """Yield every extension of `binding` under which all patterns are in the index.

    An equality binds a variable to an object; between two variables that are still free it says nothing.

    Args:
        patterns: to be met, in this order.
        binding: to begin with.
        index: of the atoms.
        met: called whenever a pattern is, be it by a binding that later ones refuse; what it raises ends the search.
    """
    if not patterns:
        yield binding
        return
    pattern = patterns[0].substitute(binding)
    for extended in _equated(pattern, binding) if pattern.predicate == EQUALITY else _found(pattern, binding, index):
        if met is not None:
            met()
        yield from matches(patterns[1:], extended, index, met)


def _equated(pattern: Atom, binding: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    left, right = pattern.arguments
    if is_variable(left) and is_variable(right):
        yield binding
    elif is_variable(left) or is_variable(right):
        yield {**binding, **({left: right} if is_variable(left) else {right: left})}
    elif left == right:
        yield binding


def _found(pattern: Atom, binding: Mapping[str, str], index: Index) -> Iterator[Mapping[str, str]]:
    """Yield the binding extended by each atom that is the pattern; the shortest list of the index is tried."""
    keys = [(pattern.predicate, place, name) for place, name in enumerate(pattern.arguments) if not is_variable(name)]
    possible = min((index.get(key, ()) for key in [*keys, (pattern.predicate, -1, "")]), key=len)
    for atom in possible:
        extended = unified(pattern, atom, binding)
        if extended is not None:
            yield extended


def unified(pattern: Atom, atom: Atom, binding: Mapping[str, str]) -> dict[str, str] | None:
    """Return the binding under which the pattern is the atom, or None."""
    extended = dict(binding)
    for term, name in zip(pattern.arguments, atom.arguments, strict=True):
        if (extended.setdefault(term, name) if is_variable(term) else term) != name:
            return None
    return extended


def is_variable(term: str) -> bool:
    """Return whether a term is a variable, not an object."""
    return term.startswith("?")
