"""Each step between files: it reads the products before it, has its dialogue, and leaves its own, mended or as it is.

Whoever runs a step says where products lie (`Products`): a task's folder for the command, the rows of a run for the
pipeline. So an edit is read by whatever comes after it, and by nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from plansmith.config.modelling import ModellingConfig
from plansmith.data.rows import ModellingStepRow
from plansmith.errors import BadInputError
from plansmith.modelling import folder as files
from plansmith.modelling import writing
from plansmith.modelling.assembly import PAPER_REQUIREMENTS, domain_pddl, problem_pddl
from plansmith.modelling.checks import check_actions, check_problem, check_schema, check_tree, check_types
from plansmith.modelling.dialogue import (
    MAX_ACTIONS,
    Finished,
    Question,
    QuestionKind,
    action_exercise,
    actions_exercise,
    new_predicates,
    pruned,
    task_exercise,
    tree_exercise,
    types_exercise,
)
from plansmith.modelling.from_pddl import domain_sketch
from plansmith.modelling.products import DialogueStep, DomainSketch, Obstacle, ProblemSketch, Schema
from plansmith.modelling.prompts import planner_turn
from plansmith.modelling.reading import (
    Fault,
    read_actions,
    read_problem_sketch,
    read_schema,
    read_tree,
    read_types,
)
from plansmith.pddl.model import Domain
from plansmith.pddl.parser import parse_domain, parse_problem, read_domain

ResultT = TypeVar("ResultT")
PLANNING = "planning"
"""What a record says of an answer that was asked for again because there was no plan."""
TOO_MANY = "max_actions"
"""The check that a record names where step 3 has more actions than step 4 writes."""
Asking = Generator[Question, str, ResultT]


class Products(Protocol):
    """Where the products of one task lie."""

    def has(self, name: str) -> bool:
        """Return whether a product is there."""

    def current(self, name: str) -> str:
        """Return a product, mended or as it is."""

    def settle(self, name: str, text: str) -> str:
        """Keep a product, and return it as whoever goes on reads it."""

    def is_mended(self, name: str) -> bool:
        """Return whether somebody has mended a product."""


@dataclass
class RowProducts:
    """The products of one task in memory: those that are there, those that are made, and edits of these, by file."""

    before: Mapping[str, str] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    edits: Mapping[str, files.Edit] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Return whether a product is there."""
        return name in self.made or name in self.before

    def current(self, name: str) -> str:
        """Return a product."""
        return self.made[name] if name in self.made else self.before[name]

    def settle(self, name: str, text: str) -> str:
        """Keep a product."""
        edit = self.edits.get(name)
        self.made[name] = text if edit is None else edit.instead_of(text, where=f"an edit of {name}")
        return self.made[name]

    def is_mended(self, name: str) -> bool:
        """Return whether somebody has mended a product."""
        return name in self.edits


def _record(
    done: Finished[ResultT], step: DialogueStep, before: str, after: str, subject: str = ""
) -> ModellingStepRow:
    checks = tuple(dict.fromkeys(fault.check for fault in done.faults))
    return ModellingStepRow(step, subject, done.n_messages, checks, done.advice or "", before, after)


def _sound(name: str, text: str, product: str, faults: Sequence[Fault]) -> None:
    """Raise for an edit with faults; what a model wrote is kept as it is.

    Raises:
        BadInputError: a product that was mended has faults.
    """
    if faults and text.strip() != product.strip():
        raise BadInputError("an edit that cannot be used", where=f"{files.EDITS}/{name}", got=str(faults[0]),
                            cure="mend it, or remove it")  # fmt: skip


# --- steps 1 to 3


def make_types(text: str, products: Products, config: ModellingConfig) -> Asking[ModellingStepRow]:
    """Leave the types of a text (step 1)."""
    done = yield from types_exercise(text, config).run(config)
    product = writing.write_types(done.product)
    settled = products.settle(files.TYPES, product)
    types, faults = read_types(settled)
    _sound(files.TYPES, settled, product, faults or check_types(types))
    before = "" if done.unadvised is None else writing.write_types(done.unadvised)
    return _record(done, DialogueStep.TYPES, before, product)


def make_hierarchy(text: str, products: Products, config: ModellingConfig) -> Asking[ModellingStepRow]:
    """Leave the tree of the types (step 2)."""
    types = read_types(products.current(files.TYPES))[0]
    done = yield from tree_exercise(text, types, config).run(config)
    product = writing.write_tree(done.product)
    settled = products.settle(files.HIERARCHY, product)
    tree, faults = read_tree(settled)
    _sound(files.HIERARCHY, settled, product, faults or check_tree(tree, ()))
    before = "" if done.unadvised is None else writing.write_tree(done.unadvised)
    return _record(done, DialogueStep.HIERARCHY, before, product)


def make_actions(text: str, products: Products, config: ModellingConfig) -> Asking[ModellingStepRow]:
    """Leave the actions in words (step 3); that there are more than step 4 writes is recorded."""
    tree = read_tree(products.current(files.HIERARCHY))[0]
    done = yield from actions_exercise(text, tree, config).run(config)
    product = writing.write_actions(done.product)
    settled = products.settle(files.ACTIONS, product)
    actions, faults = read_actions(settled)
    _sound(files.ACTIONS, settled, product, faults or check_actions(actions))
    before = "" if done.unadvised is None else writing.write_actions(done.unadvised)
    record = _record(done, DialogueStep.ACTIONS, before, product)
    return replace(record, faults=(*record.faults, TOO_MANY)) if len(actions) > MAX_ACTIONS else record


# --- step 4


def sketched(products: Products) -> DomainSketch:
    """Return what steps 1 to 3 have left."""
    return DomainSketch(
        read_types(products.current(files.TYPES))[0],
        read_tree(products.current(files.HIERARCHY))[0],
        read_actions(products.current(files.ACTIONS))[0],
    )


def passed(products: Products, sketch: DomainSketch, *, number: int) -> DomainSketch:
    """Return a sketch with the predicates of the passes up to a number, and with the schemas of the last of them."""
    for each in range(1, number + 1):
        written = {action.name: files.action_file(each, action.name) for action in sketch.actions}
        there = {name: file for name, file in written.items() if products.has(file)}
        sketch = replace(sketch, schemas=()) if there else sketch
        for name, file in there.items():
            sketch = with_schema(sketch, read_schema(name, products.current(file)))
    return sketch


def with_schema(sketch: DomainSketch, schema: Schema) -> DomainSketch:
    """Return a sketch with a further schema, and the predicates that this needed anew."""
    predicates = (*sketch.predicates, *new_predicates(schema, sketch))
    return replace(sketch, schemas=(*sketch.schemas, schema), predicates=predicates)


def make_schemas(
    text: str, products: Products, config: ModellingConfig, *, number: int
) -> Asking[tuple[ModellingStepRow, ...]]:
    """Leave every action in PDDL, one after the other (step 4, one pass)."""
    now = replace(passed(products, sketched(products), number=number - 1), schemas=())
    records: list[ModellingStepRow] = []
    for action in now.actions[:MAX_ACTIONS]:
        done = yield from action_exercise(text, now, action, config, number=number).run(config)
        product, name = writing.write_schema(done.product), files.action_file(number, action.name)
        settled = products.settle(name, product)
        faults = check_schema(settled, name=action.name, tree=now.tree, predicates=now.predicates, checks=config.checks)
        _sound(name, settled, product, faults)
        before = "" if done.unadvised is None else writing.write_schema(done.unadvised)
        records.append(_record(done, DialogueStep.CONSTRUCTION, before, product, f"{number}/{action.name}"))
        now = with_schema(now, read_schema(action.name, settled))
    return tuple(records)


def make_domain(products: Products, config: ModellingConfig) -> DomainSketch:
    """Leave the domain, without the types and predicates that no action uses, and return it as it is gone on with.

    Raises:
        BadInputError: it was mended, and is no PDDL.
    """
    sketch = pruned(passed(products, sketched(products), number=config.passes))
    requirements = PAPER_REQUIREMENTS if config.checks == "paper" else None
    product = domain_pddl(sketch, requirements=requirements)
    settled = products.settle(files.DOMAIN, product)
    if settled.strip() == product.strip():
        return sketch
    return _of_pddl(parse_domain(settled, source=f"{files.EDITS}/{files.DOMAIN}"), sketch)


def _of_pddl(domain: Domain, sketch: DomainSketch) -> DomainSketch:
    """Return a domain that was mended, with what had been said about its actions and predicates."""
    comments = {own.name: own.comment for own in sketch.predicates}
    read = domain_sketch(domain, actions=sketch.actions)
    predicates = tuple(replace(own, comment=comments.get(own.name, "")) for own in read.predicates)
    return replace(read, predicates=predicates)


def read_made_domain(products: Products, config: ModellingConfig) -> DomainSketch:
    """Return the domain that step 4 has left, as step 5 is told of it.

    Raises:
        BadInputError: there is none, or it was mended and is no PDDL.
    """
    sketch = DomainSketch()
    if products.has(files.TYPES):
        sketch = pruned(passed(products, sketched(products), number=config.passes))
    elif products.has(files.ACTIONS):
        sketch = replace(sketch, actions=read_actions(products.current(files.ACTIONS))[0])
    if products.current(files.DOMAIN).strip() in _as_made(sketch):
        return sketch
    return _of_pddl(parse_domain(products.current(files.DOMAIN), source=files.DOMAIN), sketch)


def _as_made(sketch: DomainSketch) -> set[str]:
    return {domain_pddl(sketch).strip(), domain_pddl(sketch, requirements=PAPER_REQUIREMENTS).strip()}


# --- step 5


def make_problem(
    text: str, sketch: DomainSketch, products: Products, config: ModellingConfig
) -> Asking[ModellingStepRow]:
    """Leave the problem (step 5)."""
    done = yield from task_exercise(text, sketch, config).run(config)
    product = writing.write_problem(done.product)
    settled = products.settle(files.PROBLEM_SKETCH, product)
    faults = check_problem(settled, tree=sketch.tree, predicates=sketch.predicates, checks=config.checks)
    _sound(files.PROBLEM_SKETCH, settled, product, faults)
    settle_problem(products)
    before = "" if done.unadvised is None else writing.write_problem(done.unadvised)
    return _record(done, DialogueStep.TASK, before, product)


def make_all(text: str, products: Products, config: ModellingConfig) -> Asking[list[ModellingStepRow]]:
    """Leave everything (steps 1 to 5)."""
    records: list[ModellingStepRow] = []
    for make in (make_types, make_hierarchy, make_actions):
        records.append((yield from make(text, products, config)))
    for number in range(1, config.passes + 1):
        records += yield from make_schemas(text, products, config, number=number)
    records.append((yield from make_problem(text, make_domain(products, config), products, config)))
    return records


# --- once there is no plan (not in the paper)


def look_again_at_actions(
    text: str, products: Products, config: ModellingConfig, obstacles: Sequence[Obstacle]
) -> Asking[tuple[ModellingStepRow, ...]]:
    """Leave the actions of the last pass again, those asked for again that obstacles name, and the domain of them.

    What somebody has mended stays.
    """
    now, records = passed(products, sketched(products), number=config.passes), list[ModellingStepRow]()
    sketches = {action.name: action for action in now.actions}
    for schema in now.schemas:
        name = files.action_file(config.passes, schema.name)
        told = [obstacle.text for obstacle in obstacles if schema.name in obstacle.actions]
        if told and not products.is_mended(name):
            asked = action_exercise(text, now, sketches[schema.name], config, number=config.passes)
            done = yield from asked.again(config, schema, planner_turn(told), QuestionKind.PLANNER)
            done = replace(done, product=done.product.with_declarations(schema))
            settled = read_schema(schema.name, products.settle(name, writing.write_schema(done.product)))
            now = replace(now, predicates=(*now.predicates, *new_predicates(settled, now)))
            records.append(_looked_again(done, writing.write_schema(schema), schema.name, writing.write_schema))
    make_domain(products, config)
    return tuple(records)


def look_again_at_problem(
    text: str, products: Products, config: ModellingConfig, obstacles: Sequence[Obstacle]
) -> Asking[ModellingStepRow]:
    """Leave the problem again, after what stands in the way of a plan was told; what somebody has mended stays."""
    before = products.current(files.PROBLEM_SKETCH)
    problem, asked = read_problem_sketch(before), task_exercise(text, read_made_domain(products, config), config)
    done = Finished(problem)
    if not products.is_mended(files.PROBLEM_SKETCH):
        said = planner_turn(obstacle.text for obstacle in obstacles)
        done = yield from asked.again(config, problem, said, QuestionKind.PLANNER)
        products.settle(files.PROBLEM_SKETCH, writing.write_problem(done.product))
    settle_problem(products)
    return _looked_again(done, before, DialogueStep.TASK, writing.write_problem)


def _looked_again(
    done: Finished[ResultT], before: str, subject: str, write: Callable[[ResultT], str]
) -> ModellingStepRow:
    return ModellingStepRow(PLANNING, subject, done.n_messages, (), "", before, write(done.product))


def settle_problem(products: Products) -> str:
    """Leave the problem of what step 5 has left, as it stands, in the domain as it stands; return it.

    Raises:
        BadInputError: it was mended, and is no problem of the domain, which can be read.
    """
    domain = products.current(files.DOMAIN)
    named = re.search(r"\(\s*define\s*\(\s*domain\s+([^\s()]+)", domain, re.IGNORECASE)
    sketch = read_problem_sketch(products.current(files.PROBLEM_SKETCH))
    product = _problem_text(sketch, named[1].lower() if named else "")
    settled, read = products.settle(files.PROBLEM, product), read_domain(domain)
    if settled.strip() != product.strip() and not read.notebook.errors():
        parse_problem(settled, read.value, source=f"{files.EDITS}/{files.PROBLEM}")
    return settled


def put_together(products: Products, config: ModellingConfig) -> None:
    """Leave the domain and the problem of what is there as it stands; nobody is asked."""
    if products.has(files.TYPES):
        make_domain(products, config)
    if products.has(files.PROBLEM_SKETCH):
        settle_problem(products)


def _problem_text(problem: ProblemSketch, domain_name: str) -> str:
    return problem_pddl(problem, domain_name=domain_name) if domain_name else problem_pddl(problem)
