"""Moving through states: which actions can be applied, and where they lead.

Applicable actions are found by a join: the positive literals of a precondition are matched one after another against
the atoms of the state, so that only arguments that satisfy them all are ever tried. Not here: search (`planners`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.matching import Index, in_join_order, index_of, matches
from plansmith.pddl.model import ActionSchema, Atom, Literal, PlanStep, conjuncts_of


def applicable_actions(task: PlanningTask, state: int) -> tuple[GroundAction, ...]:
    """Return the ground actions whose preconditions hold in `state`, in schema and object order."""
    index = index_of(task.atoms_of(task.basic_atoms(state)))
    position = {name: number for number, name in enumerate(task.objects)}
    found = []
    for schema in task.domain.actions:
        candidates = set(_candidates(task, schema, index))
        for arguments in sorted(candidates, key=lambda names: [position[name] for name in names]):
            action = task.instantiate(schema, arguments)
            if action.is_applicable(state):
                found.append(action)
    return tuple(found)


def successors(task: PlanningTask, state: int) -> tuple[tuple[GroundAction, int], ...]:
    """Return the applicable actions with the states they lead to."""
    return tuple((action, action.apply(state)) for action in applicable_actions(task, state))


def random_walk_to_goal(task: PlanningTask, length: int, rng: random.Random) -> tuple[tuple[PlanStep, ...], bool]:
    """Return a random walk of so many applicable actions, and whether it met a state of the goal, where it ends.

    It ends before, too, where no action can be applied. The goal is looked for after each action, not at the start.
    """
    state, steps = task.initial_state, list[PlanStep]()
    for _ in range(length):
        following = successors(task, state)
        if not following:
            break
        action, state = rng.choice(following)
        steps.append(action.step)
        if task.is_goal(state):
            return tuple(steps), True
    return tuple(steps), False


def _candidates(task: PlanningTask, schema: ActionSchema, index: Index) -> Iterator[tuple[str, ...]]:
    """Yield arguments of the right types for which the positive literals of the precondition hold."""
    allowed = {typed.name: dict.fromkeys(task.objects_of(typed.types)) for typed in schema.parameters}
    for binding in matches(_patterns(task, schema), {}, index):
        if all(name in allowed[variable] for variable, name in binding.items()):
            free = [[binding[name]] if name in binding else allowed[name] for name in allowed]
            yield from product(*free)


def _patterns(task: PlanningTask, schema: ActionSchema) -> list[Atom]:
    """Return the literals to match, in a good order."""
    return in_join_order(
        part.atom
        for part in conjuncts_of(schema.precondition)
        if isinstance(part, Literal) and part.is_positive and part.atom.predicate not in task.rules
    )
