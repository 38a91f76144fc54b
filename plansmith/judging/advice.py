"""What advice did to an answer, held against a reference: helped, no effect, harmful (the paper looked by eye).

A product is taken as a set of items (names, or atoms with their signs), and the distance to the reference's is the
number of items that only one of them has. Where the two share no item they speak of other things, and nothing is said.
"""

from __future__ import annotations

import re

from plansmith.modelling.from_pddl import domain_sketch, problem_sketch
from plansmith.modelling.products import DialogueStep, Schema
from plansmith.modelling.reading import read_actions, read_problem_sketch, read_schema, read_tree, read_types
from plansmith.pddl.parser import parse_domain, parse_problem

_ATOM = re.compile(r"\(not\s*\([^()]*\)\s*\)|\([^()]+\)")


def effect_of_advice(step: str, subject: str, before: str, after: str, reference: tuple[str, str]) -> str:
    """Return what advice did.

    Args:
        step: a `DialogueStep`.
        subject: the pass and the action, of step 4.
        before: the product as it was shown to whoever advised.
        after: the product as it was accepted.
        reference: domain and problem.
    """
    if before.strip() == after.strip():
        return "no effect"
    right = _of_reference(step, subject, reference)
    items = [_items(step, subject, text) for text in (before, after)]
    if not right or not right & (items[0] | items[1]):
        return "unclassed"
    distances = [len(right ^ own) for own in items]
    if distances[0] == distances[1]:
        return "no effect"
    return "helped" if distances[1] < distances[0] else "harmful"


def _items(step: str, subject: str, product: str) -> frozenset[str]:
    match step:
        case DialogueStep.TYPES:
            return frozenset(sketch.name for sketch in read_types(product)[0])
        case DialogueStep.HIERARCHY:
            return frozenset(f"{node.name} below {node.parent}" for node in read_tree(product)[0].nodes)
        case DialogueStep.ACTIONS:
            return frozenset(sketch.name for sketch in read_actions(product)[0])
        case DialogueStep.CONSTRUCTION:
            return _of_schema(read_schema(subject.rpartition("/")[2], product))
        case _:
            problem = read_problem_sketch(product)
            objects = (f"{own.name} - {own.type}" for own in problem.objects)
            return frozenset({*objects, *_atoms("state", problem.init), *_atoms("goal", problem.goal)})


def _of_schema(schema: Schema) -> frozenset[str]:
    """Return the atoms of a schema, its parameters by their numbers."""
    numbers = {own.name: f"?{number}" for number, own in enumerate(schema.parameters)}
    parts = (("precondition", schema.precondition), ("effect", schema.effect))
    named = ((part, re.sub(r"\?[\w-]+", lambda own: numbers.get(own[0], own[0]), text)) for part, text in parts)
    types = (f"{numbers[own.name]} - {own.type}" for own in schema.parameters)
    return frozenset({*types, *(atom for part, text in named for atom in _atoms(part, text))})


def _atoms(part: str, text: str) -> frozenset[str]:
    found = (" ".join(atom.split()) for atom in _ATOM.findall(text.lower()))
    return frozenset(f"{part} {atom}" for atom in found if atom not in ("(and)", "(or)"))


def _of_reference(step: str, subject: str, reference: tuple[str, str]) -> frozenset[str]:
    domain = parse_domain(reference[0])
    sketch = domain_sketch(domain)
    match step:
        case DialogueStep.TYPES:
            return frozenset(node.name for node in sketch.tree.nodes)
        case DialogueStep.HIERARCHY:
            return frozenset(f"{node.name} below {node.parent}" for node in sketch.tree.nodes)
        case DialogueStep.ACTIONS:
            return frozenset(action.name for action in sketch.actions)
        case DialogueStep.CONSTRUCTION:
            named = (own for own in sketch.schemas if own.name == subject.rpartition("/")[2])
            return next((_of_schema(own) for own in named), frozenset())
        case _:
            problem = problem_sketch(parse_problem(reference[1], domain))
            objects = (f"{own.name} - {own.type}" for own in problem.objects)
            return frozenset({*objects, *_atoms("state", problem.init), *_atoms("goal", problem.goal)})
