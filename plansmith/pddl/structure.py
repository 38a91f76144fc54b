"""A problem as objects joined by facts, and what facts alone tell of each object.

Shared by the canonical form and by the comparison of two problems. Objects are coloured by what they occur in until
that tells nothing more (refinement: McKay, Practical graph isomorphism, 1981). Not here: searching through what is left
alike (`canonical`, `pairing`).

Goals with other connectives than a conjunction of literals: each such conjunct counts as one fact, a relation (its text
without the objects) between all objects it names. Parts of a nested ``and`` or ``or`` that differ only in their objects
keep the order of the text, and bound variables their names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

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

Fact = tuple[str, tuple[str, ...]]
"""A relation (section, sign and predicate) with the objects it holds between."""

NumberedFact = tuple[int, ...]
"""The number of a relation, then those of the objects it holds between."""

ITSELF = -1
"""The colour of an object seen from itself."""


def kinds_of(domain: Domain, problem: Problem) -> dict[str, str]:
    """Return what is known of each object without its facts."""
    kinds = {typed.name: f"object {' '.join(sorted(typed.types))}" for typed in problem.objects}
    return kinds | {typed.name: f"constant {typed.name}" for typed in domain.constants}


def problem_facts(problem: Problem) -> set[Fact]:
    """Return everything that a problem says of its objects, and its metric."""
    return state_facts(problem) | {goal_fact(conjunct) for conjunct in conjuncts_of(problem.goal)}


def state_facts(problem: Problem) -> set[Fact]:
    """Return what a problem says besides its goal."""
    facts: set[Fact] = {(f"init {atom.predicate}", atom.arguments) for atom in problem.init}
    facts |= {(f"value {x.value} {x.term.predicate}", x.term.arguments) for x in problem.function_values}
    facts |= {(f"minimize {problem.metric}", ())} if problem.metric else set()
    return facts


def goal_fact(conjunct: Condition) -> Fact:
    """Return a conjunct of a goal as one fact."""
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
class Structure:
    """Objects and relations by number; relations are numbered in the order of their texts."""

    kinds: list[str]
    relations: list[str]
    facts: frozenset[NumberedFact]
    facts_of: list[list[NumberedFact]]
    neighbours: list[set[int]]
    """The other objects that share a fact with each object."""


def structure_of(kinds: Mapping[str, str], facts: Iterable[Fact]) -> Structure:
    """Return objects, numbered in the order of `kinds`, and the facts over them."""
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
    return Structure(list(kinds.values()), relations, numbered, facts_of, neighbours)


@dataclass(frozen=True)
class Colouring:
    """Objects ordered as far as they are told apart: a colour is the number of objects of lesser colours."""

    colours: list[int]
    alike: dict[int, list[int]]
    """The objects of each colour that more than one object has."""

    def singled_out(self, member: int) -> Colouring:
        """Return the colouring in which `member` comes just before the objects of its colour."""
        colour = self.colours[member]
        return self.divided(colour, [[member], [other for other in self.alike[colour] if other != member]])

    def divided(self, colour: int, parts: Sequence[list[int]]) -> Colouring:
        """Return the colouring with one colour divided."""
        copy = Colouring(self.colours.copy(), self.alike.copy())
        copy.divide(colour, parts)
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


def refined_kinds(structure: Structure) -> Colouring:
    """Return the colouring that follows from kinds and facts alone."""
    members: dict[str, list[int]] = {kind: [] for kind in sorted(structure.kinds)}
    for member, kind in enumerate(structure.kinds):
        members[kind].append(member)
    everything = list(range(len(structure.kinds)))
    colouring = Colouring([0] * len(everything), {0: everything})
    colouring.divide(0, list(members.values()))
    refine(structure, colouring, everything)
    return colouring


def refine(structure: Structure, colouring: Colouring, touched: Collection[int]) -> int:
    """Divide the colours until no fact tells two objects of one colour apart; return how many facts were looked at.

    A round looks at all colours before it divides any, so that the order does not depend on the names. Objects of one
    colour were alike in the round before: only those next to a new colour are looked at again. The largest part of a
    divided colour does not count as new: objects that it tells apart, the other parts tell apart as well.

    Args:
        structure: the facts.
        colouring: divided in place.
        touched: the objects next to a new colour.
    """
    n_looks = 0
    while touched:
        n_looks += sum(len(structure.facts_of[member]) for member in touched)
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
    return n_looks


def _parts(structure: Structure, colouring: Colouring, colour: int, touched: Sequence[int]) -> list[list[int]]:
    """Return the objects of a colour in groups of equal surroundings, in the order of these."""
    groups: dict[tuple[NumberedFact, ...], list[int]] = defaultdict(list)
    for member in touched:
        groups[_surroundings(structure, colouring.colours, member)].append(member)
    again = set(touched)
    if rest := [member for member in colouring.alike[colour] if member not in again]:
        groups[_surroundings(structure, colouring.colours, rest[0])] += rest
    return [groups[surroundings] for surroundings in sorted(groups)]


def _surroundings(structure: Structure, colours: Sequence[int], member: int) -> tuple[NumberedFact, ...]:
    """Return what an object occurs in: the relation, and for each place the colour there."""
    found = [
        (fact[0], *[ITSELF if other == member else colours[other] for other in fact[1:]])
        for fact in structure.facts_of[member]
    ]
    return tuple(sorted(found))


def can_swap(structure: Structure, first: int, second: int) -> bool:
    """Return whether exchanging two objects of one kind maps the facts to themselves."""
    swap = {first: second, second: first}
    touched = [*structure.facts_of[first], *structure.facts_of[second]]
    return all((fact[0], *[swap.get(member, member) for member in fact[1:]]) in structure.facts for fact in touched)
