"""How far a written domain agrees with a reference: what can be done in which state, and what it changes.

States are those of random walks in the simulator, where the reference is right by definition. Not here: what the
demonstrations alone tell (`domain_checks`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plansmith.judging.domain_checks import Solve, adopted, known_atoms
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Domain, PlanStep, Problem
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.simulation import applicable_actions
from plansmith.pddl.validation import validate_plan

PlannedProblem = tuple[Problem, Sequence[str] | None]
"""A problem of the reference with a plan in it, None where none was found."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Precision: of what the written domain says, how much is true; recall: of what is true, how much it says.

    None where nothing was said, or nothing was true. Effects are those of actions that both domains allow.
    """

    n_states: int
    applicable_precision: float | None
    applicable_recall: float | None
    effect_precision: float | None
    effect_recall: float | None
    reference_plans: float | None
    """Of plans in the reference, those that are valid in the written domain; the other way is `Scores.true_plans`."""


def domain_agreement(
    reference: Domain, written: Domain, problems: Sequence[PlannedProblem], *, n_steps: int, rng: random.Random
) -> Agreement:
    """Return the agreement over plans, and over the states of one walk of so many steps in each problem."""
    valid = [is_valid for problem, plan in problems if (is_valid := _is_valid(written, problem, plan)) is not None]
    pairs = [pair for problem, _ in problems for pair in _walk(reference, written, problem, n_steps, rng)]
    applicable = [(said, true) for said, true, _ in pairs]
    effects = [effect for _, _, found in pairs for effect in found]
    shares = _precision(applicable), _recall(applicable), _precision(effects), _recall(effects)
    return Agreement(len(pairs), *shares, sum(valid) / len(valid) if valid else None)


def planned(reference: Domain, problems: Iterable[Problem], solve: Solve) -> list[PlannedProblem]:
    """Return problems with the plans that a planner finds in the reference."""
    text = print_domain(reference)
    return [(problem, solve(text, print_problem(problem)).plan) for problem in problems]


def _is_valid(written: Domain, problem: Problem, plan: Sequence[str] | None) -> bool | None:
    if plan is None:
        return None
    return validate_plan(PlanningTask(written, adopted(written, problem)), list(map(parse_step, plan))).is_valid


_Sets = tuple[set[object], set[object]]
"""What is said, and what is true."""


def _walk(
    reference: Domain, written: Domain, problem: Problem, n_steps: int, rng: random.Random
) -> Iterable[tuple[set[object], set[object], list[_Sets]]]:
    true_task, said_task = PlanningTask(reference, problem), PlanningTask(written, adopted(written, problem))
    state = true_task.initial_state
    for _ in range(n_steps + 1):
        seen = said_task.state_of(known_atoms(written, sorted(true_task.atoms_of(state))))
        true = {action.step: action for action in applicable_actions(true_task, state)}
        said = {action.step: action for action in applicable_actions(said_task, seen)}
        both: list[PlanStep] = sorted(true.keys() & said.keys(), key=str)
        changes = [(_changes(said_task, said[step], seen), _changes(true_task, true[step], state)) for step in both]
        yield set(said), set(true), changes
        if not true:
            return
        state = true[rng.choice(sorted(true, key=str))].apply(state)


def _changes(task: PlanningTask, action: GroundAction, state: int) -> set[object]:
    """Return the atoms that an action changes in a state, each with whether it is true afterwards."""
    after = action.apply(state)
    changed: list[tuple[Atom, bool]] = [(atom, True) for atom in task.atoms_of(after & ~state)]
    changed += [(atom, False) for atom in task.atoms_of(state & ~after)]
    return set(changed)


def _precision(pairs: Sequence[_Sets]) -> float | None:
    n_said = sum(len(said) for said, _ in pairs)
    return sum(len(said & true) for said, true in pairs) / n_said if n_said else None


def _recall(pairs: Sequence[_Sets]) -> float | None:
    n_true = sum(len(true) for _, true in pairs)
    return sum(len(said & true) for said, true in pairs) / n_true if n_true else None
