"""Why a model has no plan, in words that its author can act on: what goes back to NL2Plan's steps 4 and 5.

Read off the delete relaxation (`plansmith.pddl.missing_facts`, `plansmith.pddl.reachability`): goals that nothing
brings about, actions that can never be taken. And a relation that is stated one way where a plan needs both, as a model
of the paper's did with the edges of a graph (table A1 of NL2Plan): whether both ways help is tried, not guessed. What
is said is true of the model; whether it is the mistake only the text tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from operator import and_

from plansmith.errors import BadInputError
from plansmith.judging.modelled import plan_task
from plansmith.modelling.products import Obstacle
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.missing_facts import out_of_reach
from plansmith.pddl.model import EQUALITY, ActionSchema, Atom, Literal, conjuncts_of, literals_of_effects
from plansmith.pddl.parser import parse_domain
from plansmith.pddl.printer import print_problem
from plansmith.pddl.reachability import Reachability
from plansmith.planners import Planner

MOST_SHOWN = 12
"""Facts that one obstacle names."""


def obstacles_of(planner: Planner, domain_pddl: str, problem_pddl: str) -> tuple[Obstacle, ...]:
    """Return what stands in the way of a plan, as far as it is found; nothing for a domain that cannot be read."""
    try:
        parse_domain(domain_pddl)
    except BadInputError:
        return ()
    try:
        task = PlanningTask.from_text(domain_pddl, problem_pddl)
    except BadInputError as error:
        return (Obstacle(f"the problem cannot be read: {' '.join(str(error).split())}"),)
    try:
        return (*_goals(task), *_actions(task), *_one_way(planner, domain_pddl, task))
    except BadInputError as error:  # too many instances of a condition
        return (Obstacle(f"the model cannot be looked at: {' '.join(str(error).split())}"),)


def _goals(task: PlanningTask) -> Iterator[Obstacle]:
    """Yield the goals that are out of reach even if nothing were ever undone."""
    found = out_of_reach(task)
    for goal in () if found is None else found.goals:
        predicate = goal.atom.predicate
        if not any(predicate in _added(action) for action in task.domain.actions):
            yield Obstacle(f"the goal {goal}: no action makes '{predicate}' true", _able(task, {predicate}))
            continue
        missing = found.missing  # type: ignore[union-attr]
        lacking = " ".join(map(str, missing[:MOST_SHOWN]))
        makers = {action.name for action in task.domain.actions if predicate in _added(action)}
        makers |= set(_able(task, {atom.predicate for atom in missing if not task.is_static(atom.predicate)}))
        yield Obstacle(f"the goal {goal} is out of reach, even if nothing were ever undone; all goals would be within "
                       f"reach if this held at first: {lacking}", tuple(sorted(makers)))  # fmt: skip


def _actions(task: PlanningTask) -> Iterator[Obstacle]:
    """Yield the actions that can never be taken."""
    reachability = Reachability.of(task)
    if reachability is None:
        return
    reached, ground = reachability.reached(task.initial_state), task.ground_actions()
    for schema in task.domain.actions:
        needs = [action.required for action in ground if action.step.name == schema.name]
        if any(not need & ~reached for need in needs):
            continue
        lacking = (_predicates(task, need & ~reached) for need in needs)
        never = reduce(and_, lacking) if needs else _never_stated(task, schema)
        names = ", ".join(f"'{name}'" for name in sorted(never))
        why = f"no fact of {names} that it needs can ever hold" if never else "its preconditions never hold together"
        if empty := [own.name for own in schema.parameters if not task.objects_of(own.types)]:
            why = f"there is no object for {', '.join(empty)}"
        yield Obstacle(f"the action '{schema.name}' can never be taken: {why}", (schema.name,))


def _never_stated(task: PlanningTask, schema: ActionSchema) -> frozenset[str]:
    """Return the predicates that an action needs, of which no fact holds at first, and that no action changes."""
    parts = [part for part in conjuncts_of(schema.precondition) if isinstance(part, Literal)]
    needed = {part.atom.predicate for part in parts if part.is_positive}
    stated = {atom.predicate for atom in task.problem.init}
    return frozenset(name for name in needed - stated - {EQUALITY} if task.is_static(name))


def _predicates(task: PlanningTask, state: int) -> frozenset[str]:
    return frozenset(atom.predicate for atom in task.atoms_of(state))


def _one_way(planner: Planner, domain_pddl: str, task: PlanningTask) -> Iterator[Obstacle]:
    """Yield the relations that are stated one way and would bring more goals within reach, or a plan, both ways.

    Looked at are relations between things of one type that no action changes, of which no pair is stated both ways.
    """
    before = out_of_reach(task)
    for schema in task.domain.predicates:
        stated = {atom for atom in task.problem.init if atom.predicate == schema.name and len(atom.arguments) == 2}
        turned = {Atom(atom.predicate, atom.arguments[::-1]) for atom in stated}
        is_alike = len(schema.parameters) == 2 and schema.parameters[0].types == schema.parameters[1].types
        if not stated or not is_alike or stated & turned or not task.is_static(schema.name):
            continue
        added = sorted(turned, key=str)
        problem = replace(task.problem, init=(*task.problem.init, *added))
        after = out_of_reach(PlanningTask(task.domain, problem))
        has_more = before is not None and after is not None and len(after.goals) < len(before.goals)
        if has_more or plan_task(planner, domain_pddl, print_problem(problem)).is_solved:
            example = min(stated, key=str)
            yield Obstacle(f"'{schema.name}' is stated one way only, such as {example} without "
                           f"{Atom(example.predicate, example.arguments[::-1])}; with both ways of each there would be "
                           f"{'more within reach' if has_more else 'a plan'}")  # fmt: skip


def _added(action: ActionSchema) -> set[str]:
    return {literal.atom.predicate for literal in literals_of_effects(action.effects) if literal.is_positive}


def _able(task: PlanningTask, predicates: Iterable[str]) -> tuple[str, ...]:
    """Return the actions with parameters that a fact of one of the predicates could be about."""
    schemas = [schema for schema in map(task.domain.predicate, predicates) if schema is not None]
    found = []
    for action in task.domain.actions:
        objects = [set(task.objects_of(own.types)) for own in action.parameters]
        for schema in schemas:
            wanted = [set(task.objects_of(own.types)) for own in schema.parameters]
            if all(any(own & fits for fits in objects) for own in wanted):
                found.append(action.name)
                break
    return tuple(found)
