"""A domain that grows: words that a further task needs, added by steps 1 to 4 (not in the paper).

The paper writes the domain of a text once and lets later tasks do with it; what they lack was added by hand (its
medium and hard Tyreworld and Household). Here step 5 may use a word that is not there, and each of steps 1 to 4 is
shown its own answer again with what is lacking. Nothing that was there goes, and what somebody has mended stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from plansmith.config.modelling import ModellingConfig
from plansmith.data.rows import ModellingStepRow
from plansmith.modelling import folder as files
from plansmith.modelling import writing
from plansmith.modelling.dialogue import (
    MAX_ACTIONS,
    QuestionKind,
    action_exercise,
    actions_exercise,
    tree_exercise,
    types_exercise,
)
from plansmith.modelling.products import (
    RESERVED,
    ActionSketch,
    DomainSketch,
    ProblemSketch,
    TypeNode,
    TypeSketch,
    TypeTree,
)
from plansmith.modelling.prompts import growth_turn
from plansmith.modelling.reading import read_actions, read_schema, read_tree, read_types
from plansmith.modelling.steps import Asking, Products, make_domain, passed, sketched, with_schema

GROWING = "growing"
"""The step of its records."""
_HEAD = re.compile(r"\(\s*([\w-]+)[^()]*\)?")
NamedT = TypeVar("NamedT", TypeSketch, ActionSketch)


def lacks_of(problem: ProblemSketch, domain: DomainSketch) -> tuple[str, ...]:
    """Return the types and predicates that a problem uses and a domain has not, each with where it is used."""
    found = {
        own.type: f"the type {own.type}, of {own.name}"
        for own in problem.objects
        if re.fullmatch(r"[\w-]+", own.type) and own.type not in domain.tree.names
    }
    known = {own.name for own in domain.predicates} | RESERVED
    for used in _HEAD.finditer(f"{problem.init} {problem.goal}".lower()):
        if used[1] not in known:
            found.setdefault(used[1], f"the predicate {used[1]}, in {' '.join(used[0].split())}")
    return tuple(found.values())


def grow_domain(
    text: str, products: Products, config: ModellingConfig, *, task: str, lacks: Sequence[str]
) -> Asking[tuple[ModellingStepRow, ...]]:
    """Leave types, tree, actions and the last pass of step 4 again, with what a task lacks, and the domain of them.

    Args:
        text: that the domain was made of.
        products: of it.
        config: of the dialogue.
        task: the text that lacks something.
        lacks: what, see `lacks_of`.
    """
    said, kind, number = growth_turn(task, lacks), QuestionKind.GROWTH, config.passes
    before, n_messages = products.current(files.DOMAIN), 0
    known = passed(products, sketched(products), number=number)

    if not products.is_mended(files.TYPES):
        types = read_types(products.current(files.TYPES))[0]
        more = yield from types_exercise(text, config).again(config, types, said, kind)
        products.settle(files.TYPES, writing.write_types(_with_new(types, more.product)))
        n_messages += more.n_messages
    if not products.is_mended(files.HIERARCHY):
        types, tree = read_types(products.current(files.TYPES))[0], read_tree(products.current(files.HIERARCHY))[0]
        ordered = yield from tree_exercise(text, types, config).again(config, tree, said, kind)
        products.settle(files.HIERARCHY, writing.write_tree(_with_all(ordered.product, types)))
        n_messages += ordered.n_messages
    if not products.is_mended(files.ACTIONS):
        tree = read_tree(products.current(files.HIERARCHY))[0]
        actions = read_actions(products.current(files.ACTIONS))[0]
        named = yield from actions_exercise(text, tree, config).again(config, actions, said, kind)
        products.settle(files.ACTIONS, writing.write_actions(_with_new(actions, named.product)))
        n_messages += named.n_messages

    now = replace(sketched(products), predicates=known.predicates)
    schemas = {schema.name: schema for schema in known.schemas}
    for action in now.actions[:MAX_ACTIONS]:
        name, asked = files.action_file(number, action.name), action_exercise(text, now, action, config, number=number)
        if action.name not in schemas:
            made = yield from asked.run(config)
            products.settle(name, writing.write_schema(made.product))
            n_messages += made.n_messages
        elif not products.is_mended(name):
            made = yield from asked.again(config, schemas[action.name], said, kind)
            products.settle(name, writing.write_schema(made.product.with_declarations(schemas[action.name])))
            n_messages += made.n_messages
        now = with_schema(now, read_schema(action.name, products.current(name)))
    make_domain(products, config)
    return (ModellingStepRow(GROWING, "; ".join(lacks), n_messages, (), "", before, products.current(files.DOMAIN)),)


def _with_new(known: Sequence[NamedT], written: Iterable[NamedT]) -> tuple[NamedT, ...]:
    """Return what was known as it was, and what is new."""
    names = {own.name for own in known}
    return tuple(chain(known, (own for own in written if own.name not in names)))


def _with_all(tree: TypeTree, types: Iterable[TypeSketch]) -> TypeTree:
    """Return a tree with every type; those that it has not stand below the root."""
    lost = (TypeNode(own.name, comment=own.comment) for own in types if own.name not in tree.names)
    return TypeTree((*tree.nodes, *lost))
