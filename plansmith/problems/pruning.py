"""Hill climbing that drops what a domain can do without: predicates, actions, literals, one at a time.

Source: Self-CriTeach, sections 5.1 and A.1.2. What "can do without" means is asked of the caller: the paper preserves
solvability, under which ``hand_free`` goes from ``pick-up``, since every problem is then solved all the more. Nothing
is ever added. Parameters stay: they are the arguments of the robot's skills.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from plansmith.pddl.model import (
    ActionSchema,
    Condition,
    Conjunction,
    Domain,
    Effect,
    Literal,
    conjuncts_of,
    literals_in,
    literals_of_effects,
)


@dataclass(frozen=True, slots=True)
class Pruned:
    """A domain with less in it, and what was dropped, in order."""

    domain: Domain
    dropped: tuple[str, ...]


def prune(domain: Domain, is_no_worse: Callable[[Domain], bool]) -> Pruned:
    """Return a domain of which nothing more can be dropped.

    Args:
        domain: to begin with.
        is_no_worse: whether a domain is as good as that one.
    """
    dropped: list[str] = []
    is_climbing = True
    while is_climbing:
        is_climbing = False
        for what, _ in list(_smaller(domain)):
            candidate = dict(_smaller(domain)).get(what)
            if candidate is not None and is_no_worse(candidate):
                domain, is_climbing = candidate, True
                dropped.append(what)
    return Pruned(domain, tuple(dropped))


def size_of(domain: Domain) -> int:
    """Return how many literals the actions of a domain have."""
    return sum(
        len(conjuncts_of(action.precondition)) + sum(1 for _ in literals_of_effects(action.effects))
        for action in domain.actions
    )


def _smaller(domain: Domain) -> Iterator[tuple[str, Domain]]:
    """Yield the domain without one part, each time with the part's name; large parts first."""
    for schema in domain.predicates:
        yield f"predicate {schema.name}", _without_predicate(domain, schema.name)
    for action in domain.actions:
        yield f"action {action.name}", replace(domain, actions=tuple(a for a in domain.actions if a != action))
    yield from without_literal(domain)


def without_literal(domain: Domain) -> Iterator[tuple[str, Domain]]:
    """Yield the domain without one conjunct of a precondition or one effect, each time with its name."""
    for action in domain.actions:
        for part in conjuncts_of(action.precondition):
            rest = tuple(other for other in conjuncts_of(action.precondition) if other != part)
            yield f"precondition {part} of {action.name}", with_action(domain, replace(action, precondition=_all(rest)))
        for effect in action.effects:
            left = tuple(other for other in action.effects if other != effect)
            yield f"effect {effect} of {action.name}", with_action(domain, replace(action, effects=left))


def _without_predicate(domain: Domain, name: str) -> Domain:
    """Return the domain without a predicate, and without the literals and conditions that mention it."""
    actions = tuple(
        replace(
            action,
            precondition=_all(tuple(part for part in conjuncts_of(action.precondition) if not _mentions(part, name))),
            effects=tuple(effect for effect in action.effects if not _changes(effect, name)),
        )
        for action in domain.actions
    )
    predicates = tuple(schema for schema in domain.predicates if schema.name != name)
    return replace(domain, predicates=predicates, actions=actions)


def _mentions(condition: Condition, name: str) -> bool:
    return any(literal.atom.predicate == name for literal in literals_in(condition))


def _changes(effect: Effect, name: str) -> bool:
    return any(literal.atom.predicate == name for literal in literals_of_effects((effect,))) or (
        not isinstance(effect, Literal) and re.search(rf"\({re.escape(name)}[\s)]", str(effect)) is not None
    )


def _all(parts: tuple[Condition, ...]) -> Condition:
    return Conjunction(parts)


def with_action(domain: Domain, action: ActionSchema) -> Domain:
    """Return the domain with an action schema in the place of that of its name."""
    actions = tuple(action if other.name == action.name else other for other in domain.actions)
    return replace(domain, actions=actions)
