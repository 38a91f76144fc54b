"""A problem's canonical form: equal exactly for problems that differ only in object names and the order of atoms.

Two such problems are the same planning problem in other words; a split that tells them apart only by text leaks the
test set. The form is exact, not a heuristic hash: objects are coloured by what they occur in until that tells nothing
more, then one of the objects still alike is singled out and the search goes on for each choice, keeping the least
encoding (individualisation and refinement, McKay, Practical graph isomorphism, 1981, without his general automorphism
pruning: objects that can simply be swapped are tried once). Written here because the libraries that do this are under
the GPL.

Goals with other connectives than a conjunction of literals: each such conjunct counts as one fact, a relation (its text
without the objects) between all objects it names. Parts of a nested ``and`` or ``or`` that differ only in their objects
keep the order of the text, and bound variables their names; problems that differ in these alone get different forms.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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

Colouring = dict[str, int]


def canonical_form(domain: Domain, problem: Problem) -> str:
    """Return a hexadecimal digest of the problem up to renaming of its objects and order of its atoms.

    Constants keep their names: they mean the same in every problem of the domain.
    """
    structure = _structure(domain, problem)
    encoding = _least_encoding(structure, _refine(structure, _numbered(structure.kinds)))
    text = repr((print_domain(domain), encoding))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class _Structure:
    facts: frozenset[Fact]
    facts_of: dict[str, list[Fact]]
    kinds: dict[str, str]


def _structure(domain: Domain, problem: Problem) -> _Structure:
    facts: set[Fact] = {(f"init {atom.predicate}", atom.arguments) for atom in problem.init}
    facts |= {_goal_fact(conjunct) for conjunct in conjuncts_of(problem.goal)}
    facts |= {(f"value {x.value} {x.term.predicate}", x.term.arguments) for x in problem.function_values}
    facts |= {(f"minimize {problem.metric}", ())} if problem.metric else set()
    kinds = {typed.name: f"object {' '.join(sorted(typed.types))}" for typed in problem.objects}
    kinds |= {typed.name: f"constant {typed.name}" for typed in domain.constants}
    facts_of: dict[str, list[Fact]] = {name: [] for name in kinds}
    for fact in facts:
        for name in set(fact[1]):
            facts_of[name].append(fact)
    return _Structure(frozenset(facts), facts_of, kinds)


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


def _numbered(labels: Mapping[str, Any]) -> Colouring:
    number = {label: index for index, label in enumerate(sorted(set(labels.values())))}
    return {name: number[label] for name, label in labels.items()}


def _refine(structure: _Structure, colours: Colouring) -> Colouring:
    """Return the coarsest colouring, finer than `colours`, that no fact refines further."""
    while True:
        labels = {name: (colour, _surroundings(structure, colours, name)) for name, colour in colours.items()}
        finer = _numbered(labels)
        if len(set(finer.values())) == len(set(colours.values())):
            return finer
        colours = finer


def _surroundings(structure: _Structure, colours: Colouring, name: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return what an object occurs in: relation, and for each place the colour there, -1 being the object itself."""
    found = [
        (relation, tuple([-1 if other == name else colours[other] for other in arguments]))
        for relation, arguments in structure.facts_of[name]
    ]
    return tuple(sorted(found))


def _least_encoding(structure: _Structure, colours: Colouring) -> tuple[object, ...]:
    """Return the least encoding over all ways to single out objects that are still alike."""
    sizes = Counter(colours.values())
    alike = min((colour for colour, size in sizes.items() if size > 1), default=None)
    if alike is None:
        return _encoding(structure, colours)
    tried: list[str] = []
    for name in sorted(name for name, colour in colours.items() if colour == alike):
        if not any(_can_swap(structure, name, other) for other in tried):
            tried.append(name)
    return min(_least_encoding(structure, _refine(structure, _single_out(colours, name))) for name in tried)


def _single_out(colours: Colouring, name: str) -> Colouring:
    """Return the colouring in which `name` comes just before the objects of its colour."""
    return {other: 2 * colour + (other != name and colour == colours[name]) for other, colour in colours.items()}


def _can_swap(structure: _Structure, first: str, second: str) -> bool:
    """Return whether exchanging two objects maps the facts to themselves."""
    swap = {first: second, second: first}
    touched = [*structure.facts_of[first], *structure.facts_of[second]]
    return all((fact[0], tuple(swap.get(name, name) for name in fact[1])) in structure.facts for fact in touched)


def _encoding(structure: _Structure, colours: Colouring) -> tuple[object, ...]:
    """Return kinds and facts over the objects' numbers; the colouring tells every object apart."""
    kinds = tuple(structure.kinds[name] for name in sorted(colours, key=colours.__getitem__))
    facts = sorted((relation, tuple(colours[name] for name in arguments)) for relation, arguments in structure.facts)
    return (kinds, tuple(facts))
