"""Products as the lists that prompts show, files of a folder keep, and `reading` reads back."""

from __future__ import annotations

from collections.abc import Iterable

from plansmith.modelling.products import (
    ActionSketch,
    Parameter,
    Predicate,
    ProblemSketch,
    Schema,
    TypeSketch,
    TypeTree,
)
from plansmith.modelling.reading import HEADINGS
from plansmith.pddl.model import OBJECT

_FENCE = "```"


def _item(name: str, comment: str) -> str:
    return f"- {name}: {comment}" if comment else f"- {name}"


def write_types(types: Iterable[TypeSketch]) -> str:
    """Return types, one a line."""
    return "\n".join(_item(own.name, own.comment) for own in types)


def write_tree(tree: TypeTree) -> str:
    """Return a tree, one type a line, indented."""
    lines = [f"{'  ' * depth}{_item(node.name, node.comment)}" for node, depth in tree.depths()]
    return "\n".join([f"- {OBJECT}: everything", *lines])


def write_actions(actions: Iterable[ActionSketch]) -> str:
    """Return actions, each below a heading."""
    return "\n".join("\n".join(_action_lines(own)) for own in actions)


def _action_lines(own: ActionSketch) -> list[str]:
    example = [f"Example: {own.example}"] if own.example else []
    return [f"### {own.name}", *([own.description] if own.description else []), *example]


def write_action(own: ActionSketch) -> str:
    """Return an action in one line."""
    example = f" Example: {own.example}" if own.example else ""
    return f"{own.name}: {own.description}{example}"


def write_predicates(predicates: Iterable[Predicate]) -> str:
    """Return predicates, one a line."""
    return "\n".join(_item(own.declaration, own.comment) for own in predicates)


def write_parameters(parameters: Iterable[Parameter]) -> str:
    """Return parameters or objects, one a line."""
    return "\n".join(_item(own.pddl, own.comment) for own in parameters)


def write_schema(schema: Schema) -> str:
    """Return an action as step 4 is to write it."""
    parts = {
        "parameter": write_parameters(schema.parameters) or "None",
        "precondition": _fenced(schema.precondition or "(and)"),
        "effect": _fenced(schema.effect),
        "predicate": write_predicates(schema.predicates) or "None",
    }
    return _sections(parts)


def write_problem(problem: ProblemSketch) -> str:
    """Return a problem as step 5 is to write it."""
    parts = {
        "object": write_parameters(problem.objects) or "None",
        "state": _fenced(problem.init),
        "goal": _fenced(problem.goal),
    }
    return _sections(parts)


def _fenced(text: str) -> str:
    return f"{_FENCE}\n{text.strip()}\n{_FENCE}"


def _sections(parts: dict[str, str]) -> str:
    return "\n\n".join(f"## {HEADINGS[title]}\n{text}" for title, text in parts.items())
