"""`Domain`, `Problem` and plans back to PDDL text; parse, print, parse is the identity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from plansmith.pddl.model import OBJECT, Condition, Domain, Literal, PlanStep, Problem, TypedName


def print_domain(domain: Domain) -> str:
    """Return the PDDL text of a domain."""
    lines = [f"(define (domain {domain.name})"]
    if domain.requirements:
        lines.append(f"  (:requirements {' '.join(domain.requirements)})")
    for keyword, names in ((":types", domain.types), (":constants", domain.constants)):
        if names:
            lines.append(f"  ({keyword} {_typed(names)})")
    predicates = " ".join(f"({' '.join(filter(None, (p.name, _typed(p.parameters))))})" for p in domain.predicates)
    lines.append(f"  (:predicates {predicates})")
    for action in domain.actions:
        effects = " ".join(str(effect) for effect in action.effects)
        lines += [
            f"  (:action {action.name}",
            f"    :parameters ({_typed(action.parameters)})",
            f"    :precondition {print_condition(action.precondition)}",
            f"    :effect (and {effects}))",
        ]
    return "\n".join(lines) + ")\n"


def print_problem(problem: Problem) -> str:
    """Return the PDDL text of a problem."""
    return (
        f"(define (problem {problem.name})\n"
        f"  (:domain {problem.domain_name})\n"
        f"  (:objects {_typed(problem.objects)})\n"
        f"  (:init {' '.join(str(atom) for atom in problem.init)})\n"
        f"  (:goal {print_condition(problem.goal)}))\n"
    )


def print_condition(condition: Condition) -> str:
    """Return the PDDL text of a condition."""
    if isinstance(condition, Literal):
        return str(condition)
    return f"({' '.join(('and', *(print_condition(part) for part in condition.parts)))})"


def print_plan(plan: Iterable[PlanStep]) -> str:
    """Return a plan as text, one step a line."""
    return "".join(f"{step}\n" for step in plan)


def _typed(names: Sequence[TypedName]) -> str:
    """Write typed names; the untyped ones go last, since a later ``- type`` would claim them."""
    groups = [
        (types, [typed.name for typed in group]) for types, group in groupby(names, key=lambda typed: typed.types)
    ]
    is_plain = all(types == (OBJECT,) for types, _ in groups)
    if is_plain:
        return " ".join(typed.name for typed in names)
    return " ".join(f"{' '.join(group)} - {_type_text(types)}" for types, group in groups)


def _type_text(types: tuple[str, ...]) -> str:
    return types[0] if len(types) == 1 else f"(either {' '.join(types)})"
