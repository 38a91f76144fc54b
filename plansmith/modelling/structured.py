"""Answers in JSON: the schema that a server or an engine enforces for each step, and how an answer is read.

An answer becomes the text with headings that `reading` reads and `checks` judges, so that the two forms differ in
nothing else. What is no JSON, or lacks fields, stays as it is, and is then found to lack its headings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plansmith.generation import encodable
from plansmith.modelling import writing
from plansmith.modelling.products import (
    ActionSketch,
    DialogueStep,
    Parameter,
    Predicate,
    ProblemSketch,
    Schema,
    TypeSketch,
)
from plansmith.modelling.reading import (
    legal_name,
    read_actions,
    read_problem_sketch,
    read_schema,
    read_tree,
    read_types,
)
from plansmith.pddl.model import OBJECT

_THOUGHTS = {"thoughts": "what you think first, as text"}
FIELDS: Mapping[DialogueStep, Mapping[str, str]] = {
    DialogueStep.TYPES: {**_THOUGHTS, "types": "a list of objects with name and comment"},
    DialogueStep.HIERARCHY: {**_THOUGHTS, "types": "a list of objects with name, parent and comment"},
    DialogueStep.ACTIONS: {**_THOUGHTS, "actions": "a list of objects with name, description and example"},
    DialogueStep.CONSTRUCTION: {
        **_THOUGHTS,
        "parameters": "a list of objects with name, such as ?x, type and comment",
        "preconditions": "one formula, as text",
        "effects": "one formula, as text",
        "new_predicates": "a list of objects with declaration, the predicate in brackets with typed arguments, and "
        "comment; empty where none is needed",
    },
    DialogueStep.TASK: {
        **_THOUGHTS,
        "objects": "a list of objects with name, type and comment",
        "initial_state": "the atoms that hold, as text",
        "goal": "one formula, as text",
    },
}
"""What an answer to each step holds, in the words of the prompt."""
_PARTS: Mapping[str, tuple[str, ...]] = {
    "actions": ("name", "description", "example"),
    "parameters": ("name", "type", "comment"),
    "new_predicates": ("declaration", "comment"),
    "objects": ("name", "type", "comment"),
}
"""What each entry of a list holds."""


def _parts_of(step: DialogueStep, field: str) -> tuple[str, ...]:
    """Return what each entry of a field's list holds; nothing for a text."""
    if field == "types":
        return ("name", "parent", "comment") if step is DialogueStep.HIERARCHY else ("name", "comment")
    return _PARTS.get(field, ())


def schema_of(step: DialogueStep) -> str:
    """Return the JSON schema of a step's answer."""
    fields = {field: _schema(_parts_of(step, field)) for field in FIELDS[step]}
    return json.dumps(_closed(fields))


def _schema(parts: Sequence[str]) -> dict[str, Any]:
    text = {"type": "string"}
    return {"type": "array", "items": _closed(dict.fromkeys(parts, text))} if parts else text


def _closed(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": list(fields), "additionalProperties": False}


def with_headings(step: DialogueStep, answer: str) -> str:
    """Return an answer in JSON as one with headings; an answer that does not fit the schema as it is."""
    try:
        read = json.loads(answer)
    except (ValueError, RecursionError):
        return answer
    if not _fits(step, read):
        return answer
    return encodable(_told(step, read))


def _told(step: DialogueStep, read: Mapping[str, Any]) -> str:
    match step:
        case DialogueStep.TYPES:
            return f"## Types\n{writing.write_types(TypeSketch(*_texts(own)) for own in read['types'])}"
        case DialogueStep.HIERARCHY:
            return "\n".join(["## Hierarchy", f"- {OBJECT}: everything", *_tree_lines(read["types"])])
        case DialogueStep.ACTIONS:
            return f"## Actions\n{writing.write_actions(ActionSketch(*_texts(own)) for own in read['actions'])}"
        case DialogueStep.CONSTRUCTION:
            predicates = (Predicate("", *_texts(own)) for own in read["new_predicates"])
            parameters = tuple(Parameter(*_texts(own)) for own in read["parameters"])
            schema = Schema("", parameters, read["preconditions"], read["effects"], tuple(predicates))
            return writing.write_schema(schema)
        case _:
            objects = tuple(Parameter(*_texts(own)) for own in read["objects"])
            return writing.write_problem(ProblemSketch(objects, read["initial_state"], read["goal"]))


def _fits(step: DialogueStep, read: Any) -> bool:
    """Return whether a value is as the schema of a step has it."""
    if not isinstance(read, dict) or set(read) != set(FIELDS[step]):
        return False
    for field, value in read.items():
        parts = _parts_of(step, field)
        if not parts and not isinstance(value, str):
            return False
        if parts and not (isinstance(value, list) and all(_is_entry(own, parts) for own in value)):
            return False
    return True


def _is_entry(value: Any, parts: Sequence[str]) -> bool:
    return isinstance(value, dict) and set(value) == set(parts) and all(isinstance(own, str) for own in value.values())


def _texts(entry: Mapping[str, str]) -> Iterator[str]:
    """Yield the texts of an entry in the order of the schema, each in one line."""
    order = ("name", "declaration", "type", "parent", "description", "example", "comment")
    return (" ".join(entry[part].split()) for part in order if part in entry)


def _tree_lines(types: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the types, each followed by those below it; one of a cycle, or of an unknown parent, is lost."""
    below: dict[str, list[Mapping[str, str]]] = {}
    for own in reversed(types):
        below.setdefault(legal_name(own["parent"]), []).append(own)
    waiting = [(own, 1) for own in below.pop(OBJECT, ())]
    while waiting:
        own, depth = waiting.pop()
        name, _, comment = _texts(own)
        yield f"{'  ' * depth}- {name}: {comment}" if comment else f"{'  ' * depth}- {name}"
        waiting += [(child, depth + 1) for child in below.pop(legal_name(own["name"]), ())]


def as_json(step: DialogueStep, answer: str, thoughts: str = "") -> str:
    """Return an answer with headings as one in JSON."""
    found: dict[str, Any]
    match step:
        case DialogueStep.TYPES:
            found = {"types": [(own.name, own.comment) for own in read_types(answer)[0]]}
        case DialogueStep.HIERARCHY:
            found = {"types": [(own.name, own.parent, own.comment) for own in read_tree(answer)[0].nodes]}
        case DialogueStep.ACTIONS:
            found = {"actions": [(own.name, own.description, own.example) for own in read_actions(answer)[0]]}
        case DialogueStep.CONSTRUCTION:
            schema = read_schema("", answer)
            found = {
                "parameters": [(own.name, own.type, own.comment) for own in schema.parameters],
                "preconditions": schema.precondition,
                "effects": schema.effect,
                "new_predicates": [(own.declaration, own.comment) for own in schema.predicates],
            }
        case _:
            problem = read_problem_sketch(answer)
            found = {
                "objects": [(own.name, own.type, own.comment) for own in problem.objects],
                "initial_state": problem.init,
                "goal": problem.goal,
            }
    lists = {field: [dict(zip(_parts_of(step, field), own, strict=True)) for own in value]
             for field, value in found.items() if not isinstance(value, str)}  # fmt: skip
    return json.dumps({"thoughts": thoughts, **found, **lists}, ensure_ascii=False)
