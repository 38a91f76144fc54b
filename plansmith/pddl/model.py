"""Domains, problems and their parts, as data.

The shape is PDDL 2.1's: a condition is a tree and an effect is a list, so that disjunctions, quantifiers and
conditional effects become further members of `Condition` and `Effect`. In this version both stop at STRIPS with
typing, equality, negative conditions and constants; the parser refuses the rest by name. Names are lower case;
variables start with ``?``. Not here: reading (`parser`), writing (`printer`), meaning (`grounding`, `validation`).
"""

from __future__ import annotations

from dataclasses import dataclass

OBJECT = "object"
"""The root of the type hierarchy; every type is below it, declared or not."""

EQUALITY = "="
"""The built-in predicate of two terms that are the same object."""


@dataclass(frozen=True, slots=True, order=True)
class Atom:
    """A predicate applied to terms; ground when no argument is a variable."""

    predicate: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"({' '.join((self.predicate, *self.arguments))})"

    def substitute(self, binding: dict[str, str]) -> Atom:
        """Return the atom with every variable of `binding` replaced by its object."""
        return Atom(self.predicate, tuple(binding.get(argument, argument) for argument in self.arguments))


@dataclass(frozen=True, slots=True, order=True)
class Literal:
    """An atom or its negation; as an effect, an add or a delete effect."""

    atom: Atom
    is_positive: bool = True

    def __str__(self) -> str:
        return str(self.atom) if self.is_positive else f"(not {self.atom})"

    def substitute(self, binding: dict[str, str]) -> Literal:
        """Return the literal with every variable of `binding` replaced by its object."""
        return Literal(self.atom.substitute(binding), self.is_positive)


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All parts hold; the empty conjunction is true."""

    parts: tuple[Condition, ...] = ()


Condition = Literal | Conjunction
Effect = Literal


def literals_of(condition: Condition) -> tuple[Literal, ...]:
    """Return the literals of a conjunctive condition in the order of the text, each once."""
    if isinstance(condition, Literal):
        return (condition,)
    found: dict[Literal, None] = {}
    for part in condition.parts:
        found.update(dict.fromkeys(literals_of(part)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class TypedName:
    """A name with its types: one, or several for ``(either ...)``."""

    name: str
    types: tuple[str, ...] = (OBJECT,)


@dataclass(frozen=True, slots=True)
class PredicateSchema:
    """A predicate's name and parameters."""

    name: str
    parameters: tuple[TypedName, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionSchema:
    """A lifted action: add and delete effects are the positive and negative `effects`."""

    name: str
    parameters: tuple[TypedName, ...]
    precondition: Condition
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A PDDL domain. `types` pairs each declared type with its direct supertypes."""

    name: str
    requirements: tuple[str, ...]
    types: tuple[TypedName, ...]
    constants: tuple[TypedName, ...]
    predicates: tuple[PredicateSchema, ...]
    actions: tuple[ActionSchema, ...]

    def action(self, name: str) -> ActionSchema | None:
        """Return the action schema of that name, or None."""
        return next((action for action in self.actions if action.name == name), None)

    def predicate(self, name: str) -> PredicateSchema | None:
        """Return the predicate of that name, or None."""
        return next((predicate for predicate in self.predicates if predicate.name == name), None)

    def supertypes(self, name: str) -> frozenset[str]:
        """Return `name` with every type above it; `object` is always among them."""
        parents = {typed.name: typed.types for typed in self.types}
        found, waiting = {OBJECT}, [name]
        while waiting:
            current = waiting.pop()
            if current not in found or current == name:
                found.add(current)
                waiting.extend(parent for parent in parents.get(current, ()) if parent not in found)
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Problem:
    """A PDDL problem; `init` lists the true ground atoms in the order of the text."""

    name: str
    domain_name: str
    objects: tuple[TypedName, ...]
    init: tuple[Atom, ...]
    goal: Condition


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan: the name of a ground action, which may or may not exist in the domain."""

    name: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"({' '.join((self.name, *self.arguments))})"
