"""A type or a predicate under another name, in every product that names it; what is said in words stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from plansmith.errors import BadInputError
from plansmith.modelling import folder as files
from plansmith.modelling import writing
from plansmith.modelling.checks import is_legal
from plansmith.modelling.products import Parameter, Predicate, TypeTree
from plansmith.modelling.reading import read_problem_sketch, read_schema, read_tree, read_types
from plansmith.pddl.model import OBJECT
from plansmith.workbench.checking import action_of

Kind = Literal["type", "predicate"]
Rename = Callable[[str], str]


def renamed(texts: Mapping[str, str], kind: Kind, old: str, new: str) -> dict[str, str]:
    """Return the products that change, as they are afterwards.

    Args:
        texts: every product by its name.
        kind: of what is renamed.
        old: its name.
        new: its name afterwards.

    Raises:
        BadInputError: nothing has the old name, or the new one is no name, or is taken.
    """
    new = new.strip().lower()
    taken = names_in(texts)
    if old not in taken[kind] or old == OBJECT:
        raise BadInputError(f"no such {kind}", got=repr(old), expected=f"one of {', '.join(sorted(taken[kind]))}")
    if not is_legal(new):
        raise BadInputError(f"'{new[:60]}' cannot be the name of a {kind}", expected="letters, digits, '-' and '_'")
    owner = next((other for other, names in taken.items() if new in names), None)
    if owner is not None:
        raise BadInputError(f"'{new}' is the name of {'an' if owner in 'action object' else 'a'} {owner} already",
                            cure="choose another name")  # fmt: skip
    after = {name: _renamed_product(name, text, kind, old, new) for name, text in texts.items()}
    as_is = {name: _renamed_product(name, text, kind, old, old) for name, text in texts.items()}
    return {name: text for name, text in after.items() if text != as_is[name]}


def names_in(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the names that the products give to types, predicates, actions and objects."""
    types, predicates, actions, objects = {OBJECT}, set[str](), set[str](), set[str]()
    for name, text in texts.items():
        if name == files.TYPES:
            types |= {own.name for own in read_types(text)[0]}
        elif name == files.HIERARCHY:
            types |= read_tree(text)[0].names
        elif own := action_of(name):
            actions.add(own.action)
            predicates |= {each.name for each in read_schema(own.action, text).predicates}
        elif name == files.PROBLEM_SKETCH:
            objects |= {each.name for each in read_problem_sketch(text).objects}
    return {"type": types, "predicate": predicates, "action": actions, "object": objects}


def _renamed_product(name: str, text: str, kind: Kind, old: str, new: str) -> str:
    if name == files.TYPES:
        return text if kind != "type" else writing.write_types(
            replace(own, name=new if own.name == old else own.name) for own in read_types(text)[0]
        )  # fmt: skip
    if name == files.HIERARCHY:
        return text if kind != "type" else writing.write_tree(_tree(read_tree(text)[0], old, new))
    formula = renaming_in_pddl(kind, old, new)
    if own := action_of(name):
        schema = read_schema(own.action, text)
        return writing.write_schema(
            replace(
                schema,
                parameters=tuple(_parameter(each, formula) for each in schema.parameters),
                precondition=formula(schema.precondition),
                effect=formula(schema.effect),
                predicates=tuple(_predicate(each, formula) for each in schema.predicates),
            )
        )
    if name == files.PROBLEM_SKETCH:
        problem = read_problem_sketch(text)
        objects = tuple(_parameter(each, formula) for each in problem.objects)
        return writing.write_problem(
            replace(problem, objects=objects, init=formula(problem.init), goal=formula(problem.goal))
        )
    return formula(text) if name.endswith(".pddl") else text


def _tree(tree: TypeTree, old: str, new: str) -> TypeTree:
    def name_of(name: str) -> str:
        return new if name == old else name

    return TypeTree(tuple(replace(node, name=name_of(node.name), parent=name_of(node.parent)) for node in tree.nodes))


def _parameter(own: Parameter, formula: Rename) -> Parameter:
    return replace(own, type=formula(own.type) if own.type else own.type)


def _predicate(own: Predicate, formula: Rename) -> Predicate:
    declaration = formula(own.declaration)
    return replace(own, declaration=declaration, name=declaration.strip("()").split()[0])


def renaming_in_pddl(kind: Kind, old: str, new: str) -> Rename:
    """Return what renames a type or a predicate in PDDL: a predicate stands behind a bracket, a type never does.

    Comments, variables, keywords and the names of actions, domain and problem stay. No object may have the name of a
    type: what has it, behind no bracket, is the type.
    """
    before = r"\(\s*" if kind == "predicate" else r"(?<!\()(?:^|(?<=[\s]))"
    kept = r";[^\n]*|:action\s+[^\s()]+|\(\s*(?:domain|problem)\s+[^\s()]+"
    pattern = re.compile(rf"({kept})|({before}){re.escape(old)}(?=[\s()]|$)", re.IGNORECASE)

    def rename(text: str) -> str:
        return pattern.sub(lambda found: found[0] if found[1] is not None else f"{found[2]}{new}", text)

    return rename
