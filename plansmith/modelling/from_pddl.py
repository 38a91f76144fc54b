"""A domain and a problem in PDDL as the products of the steps: of a reference, or of a file that was mended by hand."""

from __future__ import annotations

from collections.abc import Iterable

from plansmith.modelling.products import (
    ActionSketch,
    DomainSketch,
    Parameter,
    Predicate,
    ProblemSketch,
    Schema,
    TypeNode,
    TypeSketch,
    TypeTree,
)
from plansmith.pddl.model import OBJECT, ActionSchema, Domain, PredicateSchema, Problem, TypedName, conjuncts_of


def domain_sketch(domain: Domain, *, actions: Iterable[ActionSketch] = ()) -> DomainSketch:
    """Return a domain as what steps 1 to 4 would have made; what they do not know, such as constants, is left out.

    Args:
        domain: it; a type with several supertypes stands below the first.
        actions: what is said of its actions; of one left out nothing but its parameters.
    """
    tree, said = _tree(domain), {sketch.name: sketch for sketch in actions}
    sketches = tuple(
        said.get(action.name) or ActionSketch(action.name, _signature(action)) for action in domain.actions
    )
    return DomainSketch(
        types=tuple(TypeSketch(node.name) for node in tree.nodes),
        tree=tree,
        actions=sketches,
        predicates=tuple(predicate_of(own) for own in domain.predicates),
        schemas=tuple(schema_of(action) for action in domain.actions),
    )


def _tree(domain: Domain) -> TypeTree:
    waiting, nodes, known = list(domain.types), list[TypeNode](), {OBJECT}
    while waiting:
        ready = [typed for typed in waiting if typed.types[0] in known]
        if not ready:
            break
        nodes += [TypeNode(typed.name, typed.types[0]) for typed in ready]
        known |= {typed.name for typed in ready}
        waiting = [typed for typed in waiting if typed not in ready]
    return TypeTree(tuple(nodes))


def _signature(action: ActionSchema) -> str:
    return f"takes {', '.join(own.pddl for own in map(parameter_of, action.parameters)) or 'nothing'}"


def _type(typed: TypedName) -> str:
    return typed.types[0] if len(typed.types) == 1 else f"(either {' '.join(typed.types)})"


def parameter_of(typed: TypedName) -> Parameter:
    """Return a parameter or an object with its type."""
    return Parameter(typed.name, _type(typed))


def predicate_of(schema: PredicateSchema) -> Predicate:
    """Return a predicate with its declaration, every argument with its type."""
    arguments = [parameter_of(typed).pddl for typed in schema.parameters]
    return Predicate(schema.name, f"({' '.join([schema.name, *arguments])})")


def schema_of(action: ActionSchema) -> Schema:
    """Return an action as step 4 would have made it, with no predicate that it needed anew."""
    effect = f"(and {' '.join(map(str, action.effects))})"
    return Schema(action.name, tuple(map(parameter_of, action.parameters)), str(action.precondition), effect)


def problem_sketch(problem: Problem) -> ProblemSketch:
    """Return a problem as step 5 would have made it."""
    parts = conjuncts_of(problem.goal)
    goal = "\n".join(["(and", *(f"  {part}" for part in parts), ")"])
    return ProblemSketch(tuple(map(parameter_of, problem.objects)), "\n".join(map(str, problem.init)), goal)
