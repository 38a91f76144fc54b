"""Domains bred from given ones: a mutation of one, or two of them made to depend on each other, then mutated.

Their problems begin as those of the given domains do: they are drawn there, and walked through with the new actions.
All names are new, so that nothing tells what a domain was bred from.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from plansmith.config.domains import DomainSettings, WalkSettings
from plansmith.pddl.diagnosis import PredicateUses
from plansmith.pddl.model import (
    OBJECT,
    TOTAL_COST,
    ActionSchema,
    Atom,
    Condition,
    Conjunction,
    Domain,
    Literal,
    PredicateSchema,
    Problem,
    TypedName,
    conjuncts_of,
    literals_of_effects,
)
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.problems.invention.folders import EXAMPLES, Invention, with_requirements
from plansmith.problems.invention.starts import GOAL_SIZES, STEPS
from plansmith.problems.library import PlanningDomain

UNION_CHANCE = 0.4
N_EXAMPLES = 8
MOST_MUTATIONS = 3
MUTATION_TRIALS = 10
SIDES = ("x-", "y-")
"""Put before the names of the two domains of a union."""

BRED = "bred"
"""Its one level, which may have as many objects as the problems of the domains that it comes from, both together."""
_KEPT = {OBJECT, TOTAL_COST}
"""Names that belong to PDDL."""

Mutation = Callable[[Domain, random.Random], Domain | None]


def breed_domain(name: str, sources: Sequence[PlanningDomain], rng: random.Random) -> Invention | None:
    """Return a domain bred from one or two others, None where no mutation applies; equal `rng`, equal domain."""
    is_union = len(sources) > 1 and rng.random() < UNION_CHANCE
    parents = rng.sample(sources, 2 if is_union else 1)
    domain, examples = _union(parents, rng) if is_union else _alone(parents[0], rng)
    mutated = _mutated(domain, rng)
    if mutated is None:
        return None
    domain, examples = _with_new_names(name, *_used_part(mutated, examples))
    walk = WalkSettings(problems=EXAMPLES, steps=rng.choice(STEPS), goal_size=rng.choice(GOAL_SIZES))
    settings = DomainSettings(walk=walk, levels={BRED: {}})
    return Invention(
        with_requirements(domain), settings, f"bred from {' and '.join(p.name for p in parents)}", examples
    )


def _alone(parent: PlanningDomain, rng: random.Random) -> tuple[Domain, tuple[Problem, ...]]:
    level = parent.levels[0]
    return parent.domain, tuple(parent.sample(level, rng) for _ in range(N_EXAMPLES))


def _union(parents: Sequence[PlanningDomain], rng: random.Random) -> tuple[Domain, tuple[Problem, ...]]:
    """Return both domains in one, an action of one asking for what actions of the other change."""
    sides = []
    for parent, prefix in zip(parents, SIDES, strict=True):
        domain, examples = _alone(parent, rng)
        names = {old: f"{prefix}{old}" for old in _names(domain, examples)}
        sides.append(_renamed(domain, examples, names))
    (first, more), (second, others) = sides
    domain = Domain(
        "union",
        (),
        first.types + second.types,
        first.constants + second.constants,
        first.predicates + second.predicates,
        (_asking(rng.choice(first.actions), second, rng), *first.actions, *second.actions),
        tuple(dict.fromkeys(first.functions + second.functions)),
        first.derived + second.derived,
    )
    asking = domain.actions[0]
    actions = (asking, *(action for action in domain.actions[1:] if action.name != asking.name))
    joined = tuple(_joined(a, b) for a, b in zip(more, others, strict=True))
    return replace(domain, actions=actions), joined


def _asking(action: ActionSchema, other: Domain, rng: random.Random) -> ActionSchema:
    """Return an action that also asks for something which actions of another domain add."""
    schema = rng.choice(_added(other) or list(other.predicates))
    more = tuple(TypedName(f"?z{place}", typed.types) for place, typed in enumerate(schema.parameters))
    atom = Atom(schema.name, tuple(typed.name for typed in more))
    return replace(
        action,
        parameters=action.parameters + more,
        precondition=Conjunction((*conjuncts_of(action.precondition), Literal(atom))),
    )


def _joined(first: Problem, second: Problem) -> Problem:
    values = dict.fromkeys((*first.function_values, *second.function_values))
    return Problem("example", "union", first.objects + second.objects, first.init + second.init, Conjunction(),
                   tuple(values), first.metric or second.metric)  # fmt: skip


def _mutated(domain: Domain, rng: random.Random) -> Domain | None:
    """Return a domain after one or more mutations; None where none applied."""
    changed = None
    for _ in range(rng.randint(1, MOST_MUTATIONS)):
        trials = (rng.choice(MUTATIONS)(changed or domain, rng) for _ in range(MUTATION_TRIALS))
        changed = next((trial for trial in trials if trial is not None), changed)
    return changed


def _without_condition(domain: Domain, rng: random.Random) -> Domain | None:
    """Return a domain of which one action asks for less; every parameter stays in a positive condition."""
    action = rng.choice(domain.actions)
    parts = list(conjuncts_of(action.precondition))
    rng.shuffle(parts)
    for part in parts:
        left = [other for other in conjuncts_of(action.precondition) if other != part]
        if left and _covered(action.precondition) == _covered(Conjunction(tuple(left))):
            return _exchanged(domain, action, replace(action, precondition=Conjunction(tuple(left))))
    return None


def _with_condition(domain: Domain, rng: random.Random) -> Domain | None:
    """Return a domain of which one action asks for more."""
    action = rng.choice(domain.actions)
    known = set(conjuncts_of(action.precondition))
    atoms = [
        atom for atom in _atoms(domain, domain.predicates, action) if not known & {Literal(atom), Literal(atom, False)}
    ]
    if not atoms:
        return None
    condition = Conjunction((*conjuncts_of(action.precondition), Literal(rng.choice(atoms), rng.random() < 0.7)))
    return _exchanged(domain, action, replace(action, precondition=condition))


def _with_effect(domain: Domain, rng: random.Random) -> Domain | None:
    """Return a domain of which one action does more."""
    action = rng.choice(domain.actions)
    known = {literal.atom for literal in literals_of_effects(action.effects)}
    atoms = [atom for atom in _atoms(domain, _added(domain), action) if atom not in known]
    if not atoms:
        return None
    effect = Literal(rng.choice(atoms), rng.random() < 0.5)
    return _exchanged(domain, action, replace(action, effects=(*action.effects, effect)))


def _without_effect(domain: Domain, rng: random.Random) -> Domain | None:
    """Return a domain of which one action does less."""
    action = rng.choice(domain.actions)
    literals = [effect for effect in action.effects if isinstance(effect, Literal)]
    if len(literals) < 2:
        return None
    gone = rng.choice(literals)
    return _exchanged(domain, action, replace(action, effects=tuple(e for e in action.effects if e != gone)))


def _with_inverse(domain: Domain, rng: random.Random) -> Domain | None:
    """Return a domain with an action that undoes another one."""
    action = rng.choice(domain.actions)
    effects = [effect for effect in action.effects if isinstance(effect, Literal)]
    deleted = {Literal(effect.atom) for effect in effects if not effect.is_positive}
    kept = [part for part in conjuncts_of(action.precondition) if part not in deleted]
    condition = Conjunction((*kept, *(effect for effect in effects if effect.is_positive)))
    if not deleted or _covered(condition) != {typed.name for typed in action.parameters}:
        return None
    undone = tuple(Literal(effect.atom, not effect.is_positive) for effect in effects)
    inverse = ActionSchema(f"{action.name}-back", action.parameters, condition, undone)
    return None if domain.action(inverse.name) else replace(domain, actions=(*domain.actions, inverse))


def _without_action(domain: Domain, rng: random.Random) -> Domain | None:
    gone = rng.choice(domain.actions)
    left = tuple(action for action in domain.actions if action != gone)
    return replace(domain, actions=left) if left else None


MUTATIONS: Sequence[Mutation] = (
    _without_condition, _with_condition, _with_effect, _without_effect, _with_inverse, _without_action,
)  # fmt: skip


def _exchanged(domain: Domain, old: ActionSchema, new: ActionSchema) -> Domain:
    return replace(domain, actions=tuple(new if action is old else action for action in domain.actions))


def _covered(condition: Condition) -> set[str]:
    """Return the parameters in positive literals of a precondition."""
    return {term for part in conjuncts_of(condition) if isinstance(part, Literal) and part.is_positive
            for term in part.atom.arguments if term.startswith("?")}  # fmt: skip


def _added(domain: Domain) -> list[PredicateSchema]:
    added = PredicateUses.of(domain).added
    return [schema for schema in domain.predicates if schema.name in added]


def _atoms(domain: Domain, schemas: Iterable[PredicateSchema], action: ActionSchema) -> Iterator[Atom]:
    """Yield the atoms of predicates over different parameters of an action, of types that fit."""
    ancestors, derived = domain.ancestors(), PredicateUses.of(domain).derived
    for schema in schemas:
        fitting = [[typed.name for typed in action.parameters
                    if all(not ancestors[kind].isdisjoint(place.types) for kind in typed.types)]
                   for place in schema.parameters]  # fmt: skip
        for names in product(*fitting) if schema.name not in derived else ():
            if len(set(names)) == len(names):
                yield Atom(schema.name, names)


def _used_part(domain: Domain, examples: Sequence[Problem]) -> tuple[Domain, tuple[Problem, ...]]:
    """Return domain and problems without predicates that occur in no action."""
    used = PredicateUses.of(domain).of_any_kind
    domain = replace(domain, predicates=tuple(schema for schema in domain.predicates if schema.name in used))
    kept = (replace(e, init=tuple(atom for atom in e.init if atom.predicate in used), goal=Conjunction())
            for e in examples)  # fmt: skip
    return domain, tuple(kept)


def _with_new_names(name: str, domain: Domain, examples: Sequence[Problem]) -> tuple[Domain, tuple[Problem, ...]]:
    """Return domain and problems under names that tell nothing, numbered in the order of the declarations."""
    names: dict[str, str] = {}
    for letter, known in (
        ("k", [typed.name for typed in domain.types]),
        ("p", [schema.name for schema in domain.predicates]),
        ("a", [action.name for action in domain.actions]),
        ("f", [schema.name for schema in domain.functions]),
        ("o", _objects(domain, examples)),
        ("?x", re.findall(r"\?[^\s()]+", print_domain(domain))),
    ):
        for number, old in enumerate(dict.fromkeys(known), 1):
            names.setdefault(old, f"{letter}{number}")
    domain, examples = _renamed(domain, examples, {old: new for old, new in names.items() if old not in _KEPT})
    return replace(domain, name=name), tuple(
        replace(example, name=f"{name}-example", domain_name=name) for example in examples
    )


def _objects(domain: Domain, examples: Iterable[Problem]) -> list[str]:
    return [typed.name for typed in (*domain.constants, *(typed for e in examples for typed in e.objects))]


def _names(domain: Domain, examples: Iterable[Problem]) -> dict[str, None]:
    """Return every name that a domain and its problems give to anything."""
    found = [typed.name for typed in domain.types] + [schema.name for schema in domain.predicates]
    found += [schema.name for schema in domain.functions] + [action.name for action in domain.actions]
    return dict.fromkeys(name for name in (*found, *_objects(domain, examples)) if name not in _KEPT)


def _renamed(
    domain: Domain, examples: Iterable[Problem], names: Mapping[str, str]
) -> tuple[Domain, tuple[Problem, ...]]:
    """Return domain and problems in other words; a word that names two things names two things still."""
    renamed = parse_domain(_in_other_words(print_domain(replace(domain, name="bred", requirements=())), names))
    problems = (replace(example, name="example", domain_name="bred") for example in examples)
    return renamed, tuple(parse_problem(_in_other_words(print_problem(p), names), renamed) for p in problems)


def _in_other_words(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"[^\s()]+", lambda found: names.get(found[0], found[0]), text)
