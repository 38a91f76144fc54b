"""A problem in one of the many ways to write it: what text alone shows to mean the same is written the same.

Order, repeats and nesting of ``and`` and ``or``, double negations, ``imply``, equalities of objects, and what PDDL
takes for granted: costs begin at 0, and without a metric plans are measured in steps. Not here: what needs the
domain, such as goals that hold in every state (`goal_proofs`), and names (`pairing`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from plansmith.pddl.model import (
    EQUALITY,
    TOTAL_COST,
    Atom,
    Condition,
    Conjunction,
    Disjunction,
    FunctionValue,
    Implication,
    Literal,
    Negation,
    Problem,
    Quantification,
    TypedName,
    conjuncts_of,
)

TRUE, FALSE = Conjunction(), Disjunction()
COSTS_BEGIN_AT_0 = FunctionValue(Atom(TOTAL_COST), 0)


def normal_problem(problem: Problem) -> Problem:
    """Return the problem with everything in a fixed order, once, and nothing that goes without saying."""
    values = set(problem.function_values) - {COSTS_BEGIN_AT_0}
    return replace(
        problem,
        objects=tuple(sorted(TypedName(o.name, tuple(sorted(set(o.types)))) for o in problem.objects)),
        init=tuple(sorted(set(problem.init))),
        goal=Conjunction(conjuncts_of(normal_condition(problem.goal))),
        function_values=tuple(sorted(values, key=lambda known: known.term)),
        metric=problem.metric if problem.metric == TOTAL_COST else None,
    )


def normal_condition(condition: Condition) -> Condition:
    """Return a condition that holds in the same states."""
    match condition:
        case Literal():
            return _normal_equality(condition) if condition.atom.predicate == EQUALITY else condition
        case Conjunction() | Disjunction():
            return _normal_junction(type(condition), [*map(normal_condition, condition.parts)])
        case Negation():
            return negated(normal_condition(condition.part))
        case Implication():
            parts = [negated(normal_condition(condition.premise)), normal_condition(condition.conclusion)]
            return _normal_junction(Disjunction, parts)
        case Quantification():
            return replace(condition, part=normal_condition(condition.part))


def negated(condition: Condition) -> Condition:
    """Return the negation of a condition in normal form."""
    match condition:
        case Literal():
            return Literal(condition.atom, not condition.is_positive)
        case Negation():
            return condition.part
        case Conjunction(parts=()):
            return FALSE
        case Disjunction(parts=()):
            return TRUE
        case _:
            return Negation(condition)


def _normal_equality(literal: Literal) -> Condition:
    """Return whether two objects are the same, where no variable is compared; names are different objects."""
    terms = tuple(sorted(literal.atom.arguments))
    if any(term.startswith("?") for term in terms):
        return Literal(Atom(EQUALITY, terms), literal.is_positive)
    return TRUE if (terms[0] == terms[1]) == literal.is_positive else FALSE


def _normal_junction(kind: type[Conjunction | Disjunction], normal: Iterable[Condition]) -> Condition:
    """Return a junction of conditions in normal form."""
    neutral, deciding = (TRUE, FALSE) if kind is Conjunction else (FALSE, TRUE)
    parts: set[Condition] = set()
    for part in normal:
        parts.update(part.parts if isinstance(part, kind) else [part])
    if deciding in parts:
        return deciding
    ordered = tuple(sorted(parts - {neutral}, key=str))
    return ordered[0] if len(ordered) == 1 else kind(ordered)
