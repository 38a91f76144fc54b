"""`Domain` and `Problem` back to PDDL text; parse, print, parse is the identity."""

from __future__ import annotations

from collections.abc import Iterator

from plansmith.pddl.model import ActionSchema, Domain, Problem, TypedName, typed_text

_TEXTS_LIMIT = 64
_texts: dict[int, tuple[Domain, str]] = {}
"""Texts of domains by identity; each keeps its domain, so that no other one can take its identity. A domain is printed
again for every problem that is drawn of it, and hashing one takes as long as printing it."""


def print_domain(domain: Domain) -> str:
    """Return the PDDL text of a domain."""
    known = _texts.get(id(domain))
    if known is None:
        if len(_texts) >= _TEXTS_LIMIT:
            _texts.clear()
        known = _texts[id(domain)] = (domain, _domain_text(domain))
    return known[1]


def _domain_text(domain: Domain) -> str:
    lines = [f"(define (domain {domain.name})", *_declarations(domain)]
    for rule in domain.derived:
        lines.append(f"  (:derived {print_schema(rule.predicate, rule.parameters)} {rule.condition})")
    for action in domain.actions:
        lines += _action(action)
    return "\n".join(lines) + ")\n"


def _declarations(domain: Domain) -> Iterator[str]:
    if domain.requirements:
        yield f"  (:requirements {' '.join(domain.requirements)})"
    for keyword, names in ((":types", domain.types), (":constants", domain.constants)):
        if names:
            yield f"  ({keyword} {typed_text(names)})"
    yield f"  (:predicates {' '.join(print_schema(p.name, p.parameters) for p in domain.predicates)})"
    if domain.functions:
        functions = " ".join(f"{print_schema(f.name, f.parameters)} - number" for f in domain.functions)
        yield f"  (:functions {functions})"


def _action(action: ActionSchema) -> list[str]:
    effects = " ".join(str(effect) for effect in action.effects)
    return [
        f"  (:action {action.name}",
        f"    :parameters ({typed_text(action.parameters)})",
        f"    :precondition {action.precondition}",
        f"    :effect (and {effects}))",
    ]


def print_schema(name: str, parameters: tuple[TypedName, ...]) -> str:
    """Return a name with its parameters: ``(at ?t - truck ?p - place)``."""
    return f"({' '.join(filter(None, (name, typed_text(parameters))))})"


def print_problem(problem: Problem) -> str:
    """Return the PDDL text of a problem."""
    init = " ".join(str(fact) for fact in (*problem.init, *problem.function_values))
    metric = f"\n  (:metric minimize ({problem.metric}))" if problem.metric else ""
    return (
        f"(define (problem {problem.name})\n"
        f"  (:domain {problem.domain_name})\n"
        f"  (:objects {typed_text(problem.objects)})\n"
        f"  (:init {init})\n"
        f"  (:goal {problem.goal}){metric})\n"
    )
