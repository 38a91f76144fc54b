"""A problem's canonical form: equal exactly for problems that differ only in object names and the order of atoms.

What predicates, actions and the domain are called does not count either: a domain under other words, declared in the
same order, is the same domain. Mystery Blocksworld is Blocksworld.

Two such problems are the same planning problem in other words; a split that tells them apart only by text leaks the
test set. The form is exact, not a heuristic hash: objects are coloured by what they occur in until that tells nothing
more, then one of the objects still alike is singled out and the search goes on for each choice, keeping the least
encoding (individualisation and refinement, McKay, Practical graph isomorphism, 1981). Where two choices lead to the
same encoding, the renaming between them is an automorphism, and of choices that automorphisms map to each other only
one is searched. Unlike McKay's, the search drops no branch for what refinement shows on the way. Written here because
the libraries that do this are under the GPL.

Equal parts cost little. Slow are many parts that refinement takes for equal and that are not, such as a dozen rings of
three lengths: the search visits every order of the lengths.

Goals with other connectives than a conjunction of literals: each such conjunct counts as one fact, a relation (its text
without the objects) between all objects it names. Parts of a nested ``and`` or ``or`` that differ only in their objects
keep the order of the text, and bound variables their names; problems that differ in these alone get different forms.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from plansmith.pddl.model import (
    Condition,
    Conjunction,
    Disjunction,
    Domain,
    Implication,
    Literal,
    Negation,
    Problem,
    Quantification,
    conjuncts_of,
    typed_text,
)
from plansmith.pddl.printer import print_domain

Fact = tuple[str, tuple[str, ...]]
"""A relation (section, sign and predicate) with the objects it holds between."""

NumberedFact = tuple[int, ...]
"""The number of a relation, then those of the objects it holds between."""

ITSELF = -1
"""The colour of an object seen from itself."""


def canonical_form(domain: Domain, problem: Problem) -> str:
    """Return a hexadecimal digest of the problem up to renaming of its objects and order of its atoms.

    Constants keep their names: they mean the same in every problem of the domain.
    """
    words = (domain.name, *(predicate.name for predicate in domain.predicates), *(a.name for a in domain.actions))
    facts = {(_in_numbers(relation, words), names) for relation, names in _facts(problem)}
    structure = _structure(_kinds(domain, problem), facts)
    text = repr((_in_numbers(print_domain(domain), words), _least_encoding(structure)))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@lru_cache(maxsize=4096)
def _in_numbers(text: str, words: tuple[str, ...]) -> str:
    """Return a text with the number of each of the words in its place, wherever it stands.

    No two words get one number, so texts that differ in more than words stay different.
    """
    return re.sub(r"[^\s()]+", lambda found: f"#{words.index(found[0])}" if found[0] in words else found[0], text)


def _kinds(domain: Domain, problem: Problem) -> dict[str, str]:
    """Return what is known of each object without its facts."""
    kinds = {typed.name: f"object {' '.join(sorted(typed.types))}" for typed in problem.objects}
    return kinds | {typed.name: f"constant {typed.name}" for typed in domain.constants}


def _facts(problem: Problem) -> set[Fact]:
    facts: set[Fact] = {(f"init {atom.predicate}", atom.arguments) for atom in problem.init}
    facts |= {_goal_fact(conjunct) for conjunct in conjuncts_of(problem.goal)}
    facts |= {(f"value {x.value} {x.term.predicate}", x.term.arguments) for x in problem.function_values}
    facts |= {(f"minimize {problem.metric}", ())} if problem.metric else set()
    return facts


def _goal_fact(conjunct: Condition) -> Fact:
    if isinstance(conjunct, Literal):
        return (f"goal {conjunct.is_positive} {conjunct.atom.predicate}", conjunct.atom.arguments)
    skeleton, objects = _skeleton(conjunct)
    return (f"goal {skeleton}", objects)


def _skeleton(condition: Condition) -> tuple[str, tuple[str, ...]]:
    """Return the text of a condition with ``#`` in place of each object, and the objects in their order."""
    match condition:
        case Literal():
            objects = tuple(name for name in condition.atom.arguments if not name.startswith("?"))
            hidden = [name if name.startswith("?") else "#" for name in condition.atom.arguments]
            return f"({condition.is_positive} {' '.join([condition.atom.predicate, *hidden])})", objects
        case Conjunction() | Disjunction():
            return _joined(type(condition).__name__, sorted(map(_skeleton, condition.parts), key=lambda part: part[0]))
        case Negation():
            return _joined("not", [_skeleton(condition.part)])
        case Implication():
            return _joined("imply", [_skeleton(condition.premise), _skeleton(condition.conclusion)])
        case Quantification():
            word = f"{'forall' if condition.is_universal else 'exists'} ({typed_text(condition.parameters)})"
            return _joined(word, [_skeleton(condition.part)])


def _joined(word: str, parts: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[str, tuple[str, ...]]:
    text = " ".join([word, *(skeleton for skeleton, _ in parts)])
    return f"({text})", tuple(name for _, objects in parts for name in objects)


@dataclass(frozen=True)
class _Structure:
    """Objects and relations by number; relations are numbered in the order of their texts."""

    kinds: list[str]
    relations: list[str]
    facts: frozenset[NumberedFact]
    facts_of: list[list[NumberedFact]]
    neighbours: list[set[int]]
    """The other objects that share a fact with each object."""


def _structure(kinds: Mapping[str, str], facts: Iterable[Fact]) -> _Structure:
    objects = {name: number for number, name in enumerate(kinds)}
    relations = sorted({relation for relation, _ in facts})
    number_of = {relation: number for number, relation in enumerate(relations)}
    numbered = frozenset((number_of[relation], *(objects[name] for name in names)) for relation, names in facts)
    facts_of: list[list[NumberedFact]] = [[] for _ in objects]
    neighbours: list[set[int]] = [set() for _ in objects]
    for fact in numbered:
        for member in set(fact[1:]):
            facts_of[member].append(fact)
            neighbours[member].update(fact[1:])
    for member, others in enumerate(neighbours):
        others.discard(member)
    return _Structure(list(kinds.values()), relations, numbered, facts_of, neighbours)


@dataclass(frozen=True)
class _Colouring:
    """Objects ordered as far as they are told apart: a colour is the number of objects of lesser colours."""

    colours: list[int]
    alike: dict[int, list[int]]
    """The objects of each colour that more than one object has."""

    def singled_out(self, member: int) -> _Colouring:
        """Return the colouring in which `member` comes just before the objects of its colour."""
        copy = _Colouring(self.colours.copy(), self.alike.copy())
        colour = self.colours[member]
        copy.divide(colour, [[member], [other for other in self.alike[colour] if other != member]])
        return copy

    def divide(self, colour: int, parts: Sequence[list[int]]) -> None:
        """Give the objects of one colour, cut into parts, a colour for each part, in order."""
        del self.alike[colour]
        for part in parts:
            for member in part:
                self.colours[member] = colour
            if len(part) > 1:
                self.alike[colour] = part
            colour += len(part)


def _refined_kinds(structure: _Structure) -> _Colouring:
    """Return the colouring that follows from kinds and facts alone."""
    members: dict[str, list[int]] = {kind: [] for kind in sorted(structure.kinds)}
    for member, kind in enumerate(structure.kinds):
        members[kind].append(member)
    everything = list(range(len(structure.kinds)))
    colouring = _Colouring([0] * len(everything), {0: everything})
    colouring.divide(0, list(members.values()))
    _refine(structure, colouring, everything)
    return colouring


def _refine(structure: _Structure, colouring: _Colouring, touched: Collection[int]) -> None:
    """Divide the colours until no fact tells two objects of one colour apart.

    A round looks at all colours before it divides any, so that the order does not depend on the names. Objects of one
    colour were alike in the round before: only those next to a new colour are looked at again. The largest part of a
    divided colour does not count as new: objects that it tells apart, the other parts tell apart as well.

    Args:
        structure: the facts.
        colouring: divided in place.
        touched: the objects next to a new colour.
    """
    while touched:
        touched_of: dict[int, list[int]] = defaultdict(list)
        for member in touched:
            if colouring.colours[member] in colouring.alike:
                touched_of[colouring.colours[member]].append(member)
        divided = {colour: _parts(structure, colouring, colour, again) for colour, again in touched_of.items()}
        new: list[int] = []
        for colour, parts in divided.items():
            if len(parts) > 1:
                colouring.divide(colour, parts)
                largest = max(parts, key=len)
                new += [member for part in parts if part is not largest for member in part]
        touched = {other for member in new for other in structure.neighbours[member]}


def _parts(structure: _Structure, colouring: _Colouring, colour: int, touched: Sequence[int]) -> list[list[int]]:
    """Return the objects of a colour in groups of equal surroundings, in the order of these."""
    groups: dict[tuple[NumberedFact, ...], list[int]] = defaultdict(list)
    for member in touched:
        groups[_surroundings(structure, colouring.colours, member)].append(member)
    again = set(touched)
    if rest := [member for member in colouring.alike[colour] if member not in again]:
        groups[_surroundings(structure, colouring.colours, rest[0])] += rest
    return [groups[surroundings] for surroundings in sorted(groups)]


def _surroundings(structure: _Structure, colours: Sequence[int], member: int) -> tuple[NumberedFact, ...]:
    """Return what an object occurs in: the relation, and for each place the colour there."""
    found = [
        (fact[0], *[ITSELF if other == member else colours[other] for other in fact[1:]])
        for fact in structure.facts_of[member]
    ]
    return tuple(sorted(found))


def _least_encoding(structure: _Structure) -> tuple[object, ...]:
    """Return kinds and facts over the objects' numbers, the least over all ways to single out objects still alike."""
    search = _Search(structure)
    search.explore(_refined_kinds(structure))
    encoding, members = min(search.leaves.items())
    facts = tuple((structure.relations[fact[0]], fact[1:]) for fact in encoding)
    return (tuple(structure.kinds[member] for member in members), facts)


class _Search:
    """Depth-first search through the choices of an object to single out.

    A leaf is a colouring that tells every object apart. The branch of a choice that an automorphism maps to an earlier
    one has the leaves of the earlier branch, its first leaf among them: that leaf gives it away and is where it ends.
    """

    def __init__(self, structure: _Structure) -> None:
        self.structure = structure
        self.leaves: dict[tuple[NumberedFact, ...], list[int]] = {}
        """Each encoding met, with the objects in the order that led to it first."""
        self.automorphisms: list[dict[int, int]] = []
        """The object that each object is mapped to."""

    def explore(self, colouring: _Colouring) -> bool:
        """Search a branch; return whether its first leaf is new, else nothing of it was searched."""
        choices = self._choices(colouring)
        while len(choices) == 1:
            colouring = self._singled_out(colouring, choices[0][0])
            choices = self._choices(colouring)
        if not choices:
            return self._add_leaf(colouring.colours)
        return self._explore_each(colouring, choices)

    def _explore_each(self, colouring: _Colouring, choices: Sequence[list[int]]) -> bool:
        """Search one choice of each orbit; automorphisms found on the way keep the colouring, so they map choices."""
        n_known = len(self.automorphisms)
        searched: set[int] = set()
        for swappable in choices:
            if searched.isdisjoint(_orbit(swappable[0], self.automorphisms[n_known:])):
                is_new = self.explore(self._singled_out(colouring, swappable[0]))
                if not is_new and not searched:
                    return False
            searched.update(swappable)
        return True

    def _choices(self, colouring: _Colouring) -> list[list[int]]:
        """Return the objects of the first colour that several have, those that can be swapped in one group."""
        choices: list[list[int]] = []
        for member in colouring.alike[min(colouring.alike)] if colouring.alike else ():
            group = next((group for group in choices if _can_swap(self.structure, group[0], member)), None)
            if group is None:
                choices.append([member])
            else:
                group.append(member)
        return choices

    def _singled_out(self, colouring: _Colouring, member: int) -> _Colouring:
        finer = colouring.singled_out(member)
        _refine(self.structure, finer, self.structure.neighbours[member])
        return finer

    def _add_leaf(self, colours: Sequence[int]) -> bool:
        """Remember a leaf, or the automorphism that maps the first leaf of the same encoding to it."""
        members = sorted(range(len(colours)), key=colours.__getitem__)
        encoding = tuple(sorted((fact[0], *[colours[member] for member in fact[1:]]) for fact in self.structure.facts))
        first = self.leaves.setdefault(encoding, members)
        if first is members:
            return True
        self.automorphisms.append(dict(zip(first, members, strict=True)))
        return False


def _orbit(member: int, automorphisms: Iterable[Mapping[int, int]]) -> set[int]:
    """Return the objects that an object is mapped to by any sequence of the automorphisms."""
    orbit, waiting = {member}, [member]
    while waiting:
        current = waiting.pop()
        images = {automorphism[current] for automorphism in automorphisms} - orbit
        orbit |= images
        waiting += images
    return orbit


def _can_swap(structure: _Structure, first: int, second: int) -> bool:
    """Return whether exchanging two objects of one kind maps the facts to themselves."""
    swap = {first: second, second: first}
    touched = [*structure.facts_of[first], *structure.facts_of[second]]
    return all((fact[0], *[swap.get(member, member) for member in fact[1:]]) in structure.facts for fact in touched)
