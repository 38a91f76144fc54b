"""What is wrong with a product as it stands in the editor: the checks of its step, told by the line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from plansmith.config.modelling import ModellingConfig
from plansmith.errors import BadInputError
from plansmith.modelling import folder as files
from plansmith.modelling.checks import check_actions, check_problem, check_schema, check_tree, check_types
from plansmith.modelling.dialogue import new_predicates
from plansmith.modelling.folder import TaskFolder
from plansmith.modelling.products import DialogueStep, DomainSketch
from plansmith.modelling.reading import Fault, read_actions, read_schema, read_tree, read_types
from plansmith.modelling.steps import Products, make_domain, passed, read_made_domain, sketched
from plansmith.pddl.diagnosis import diagnose
from plansmith.workbench.journal import Foreseen

ACTION_FILE = re.compile(r"4-actions/([1-9][0-9]*)/([a-z][a-z0-9_-]*)\.md")
MAX_FAULTS = 50

STEP_OF = {
    files.TYPES: DialogueStep.TYPES,
    files.HIERARCHY: DialogueStep.HIERARCHY,
    files.ACTIONS: DialogueStep.ACTIONS,
    files.PROBLEM_SKETCH: DialogueStep.TASK,
}


@dataclass(frozen=True, slots=True)
class ActionName:
    """The pass and the action of a product of step 4."""

    number: int
    action: str


def action_of(name: str) -> ActionName | None:
    """Return the pass and the action that a product is of; None for products of other steps."""
    found = ACTION_FILE.fullmatch(name)
    return ActionName(int(found[1]), found[2]) if found else None


def step_of(name: str) -> DialogueStep | None:
    """Return the step that makes a product; None for PDDL that is put together of others."""
    return DialogueStep.CONSTRUCTION if action_of(name) else STEP_OF.get(name)


def faults_of(folder: TaskFolder, config: ModellingConfig, name: str, text: str) -> tuple[Fault, ...]:
    """Return what is wrong with a text in the place of a product, given the products before it."""
    before = _with_domain(folder, config) if name == files.PROBLEM_SKETCH else folder
    try:
        return _faults(before, config, name, text)[:MAX_FAULTS]
    except BadInputError as error:
        return (Fault("before", f"what comes before this cannot be used: {error}"),)


def _with_domain(folder: TaskFolder, config: ModellingConfig) -> TaskFolder:
    """Return a folder whose domain is put together of what is there now, unless it was mended before a change."""
    foreseen = Foreseen(folder.path)
    try:
        if folder.has(files.TYPES):
            make_domain(foreseen, config)
    except BadInputError:
        return folder
    return foreseen


def _faults(products: Products, config: ModellingConfig, name: str, text: str) -> tuple[Fault, ...]:
    if name == files.TYPES:
        types, faults = read_types(text)
        return faults or check_types(types)
    if name == files.HIERARCHY:
        tree, faults = read_tree(text)
        return faults or check_tree(tree, read_types(products.current(files.TYPES))[0])
    if name == files.ACTIONS:
        actions, faults = read_actions(text)
        return faults or check_actions(actions)
    if name == files.PROBLEM_SKETCH:
        sketch = read_made_domain(products, config)
        return check_problem(text, tree=sketch.tree, predicates=sketch.predicates, checks=config.checks)
    if own := action_of(name):
        known = known_before(products, own)
        return check_schema(
            text, name=own.action, tree=known.tree, predicates=known.predicates, checks=config.checks
        )  # fmt: skip
    return tuple(_pddl_faults(products, name, text))


def known_before(products: Products, own: ActionName) -> DomainSketch:
    """Return what is known when an action is written: types, and predicates of the actions before it."""
    known = passed(products, sketched(products), number=own.number - 1)
    for action in known.actions:
        name = files.action_file(own.number, action.name)
        if action.name == own.action or not products.has(name):
            break
        schema = read_schema(action.name, products.current(name))
        known = replace(known, predicates=(*known.predicates, *new_predicates(schema, known)))
    return known


def _pddl_faults(products: Products, name: str, text: str) -> Iterable[Fault]:
    is_domain = name == files.DOMAIN
    domain, problem = (text, None) if is_domain else (products.current(files.DOMAIN), text)
    for found in diagnose(domain, problem, domain_source=files.DOMAIN, problem_source=files.PROBLEM):
        if found.is_error and found.place.source == name:
            yield Fault(found.code.value, found.message + (f"; {found.repair}" if found.repair else ""),
                        found.place.line)  # fmt: skip
