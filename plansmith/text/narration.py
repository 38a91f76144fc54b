"""Plans narrated by a model: the prompt that asks for it, and what of an answer is believed.

Source: Self-CriTeach, equation 6 and sections 5.2, A.2.3 and A.3.2; the prompt is in our own words. A narration is kept
only where its actions are those of the plan, in order, and every state that it claims is true: the paper trains on what
its base model writes as it comes. A policy is to answer with the narration and then the plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from plansmith.pddl.ground_actions import MalformedStep
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, PlanStep
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.text.baselines import FINAL_PLAN

REQUEST = (
    "You are given a planning problem and a plan that solves it. Explain step by step how somebody comes to this plan. "
    "For each step write a line 'Step N: (action objects)', then say why this action serves the goal, that its "
    "preconditions hold, which other actions could be applied and why they are not taken, and what would fail and "
    "because of which earlier step. End each step with a line 'State: ' that lists every fact that is true after it, "
    "as in the problem. Take no other step, and leave none out. Put all of it between <REASON> and </REASON>."
)
STEP_REQUEST = (
    "You are given a planning problem, one step of a plan that solves it, and the states before and after this step. "
    "Say why this action serves the goal, that its preconditions hold, which other actions could be applied here and "
    "why they are not taken, and what would fail and because of which earlier step. Speak of this step alone. Put what "
    "you say between <REASON> and </REASON>."
)
_REASON = re.compile(r"<REASON>((?:(?!<REASON>).)*?)</REASON>", re.DOTALL)
_STEP = re.compile(r"^[ \t*#]*Step\s+\d+\s*[:.][ \t*]*(\([^()\n]*\))", re.MULTILINE | re.IGNORECASE)
_STATE = re.compile(r"^[ \t*]*State:[ \t*]*(.*)$", re.MULTILINE | re.IGNORECASE)
_ATOM = re.compile(r"\([^()\n]*\)")


class Refusal(StrEnum):
    """Why a narration is not believed."""

    NO_REASON = "no_reason"
    """There is nothing between the marks."""
    OTHER_PLAN = "other_plan"
    """Its steps are not those of the plan, in their order."""
    NO_STATES = "no_states"
    """Not every step tells the state after it."""
    FALSE_STATE = "false_state"
    """A state that it tells is not true."""


@dataclass(frozen=True, slots=True)
class Narration:
    """A narration, or why it is refused."""

    text: str
    refusal: Refusal | None = None


def narration_prompt(task: PlanningTask, plan: Sequence[PlanStep]) -> str:
    """Return the prompt that asks to narrate a plan."""
    steps = "\n".join(map(str, plan))
    domain, problem = print_domain(task.domain).rstrip(), print_problem(task.problem).rstrip()
    return f"{REQUEST}\n\nDomain:\n{domain}\n\nProblem:\n{problem}\n\nPlan:\n{steps}\n"


def step_prompts(task: PlanningTask, plan: Sequence[PlanStep]) -> Iterator[str]:
    """Yield for each step of a valid plan the prompt that asks to narrate it alone (equation 6)."""
    domain, problem = print_domain(task.domain).rstrip(), print_problem(task.problem).rstrip()
    states = [task.initial_state, *_states_after(task, plan)]
    for step, (before, after) in zip(plan, pairwise(states), strict=True):
        told = f"Before:\n{_state_words(task, before)}\n\nStep:\n{step}\n\nAfter:\n{_state_words(task, after)}\n"
        yield f"{STEP_REQUEST}\n\nDomain:\n{domain}\n\nProblem:\n{problem}\n\n{told}"


def read_step_narration(completion: str) -> str | None:
    """Return what an answer says of one step; None where it says nothing, or speaks of steps by number."""
    found = _REASON.findall(completion)
    text: str = found[-1].strip() if found else ""
    return None if not text or _STEP.search(text) else text


def narration_of_steps(task: PlanningTask, plan: Sequence[PlanStep], told: Sequence[str]) -> str:
    """Return the answer that narrates a plan by what was said of each of its steps, with the states that are true."""
    states = [_state_words(task, state) for state in _states_after(task, plan)]
    parts = [
        f"Step {number}: {step}\n{text}\nState: {state}"
        for number, (step, text, state) in enumerate(zip(plan, told, states, strict=True), 1)
    ]
    return "\n".join(["<REASON>", *parts, "</REASON>"])


def _states_after(task: PlanningTask, plan: Sequence[PlanStep]) -> Iterator[int]:
    """Yield the state after each step of a valid plan."""
    state = task.initial_state
    for step in plan:
        action = task.ground(step)
        assert not isinstance(action, MalformedStep), "the plan is valid"
        state = action.apply(state)
        yield state


def _state_words(task: PlanningTask, state: int) -> str:
    """Return what may change of a state."""
    return " ".join(str(atom) for atom in task.atoms_of(state) if not task.is_static(atom.predicate))


def read_narration(completion: str, task: PlanningTask, plan: Sequence[PlanStep]) -> Narration:
    """Return the last narration of an answer, checked."""
    found = _REASON.findall(completion)
    if not found or not found[-1].strip():
        return Narration("", Refusal.NO_REASON)
    text: str = found[-1].strip()
    told = list(_STEP.finditer(text))
    if [_words(match[1]) for match in told] != [(step.name, *step.arguments) for step in plan]:
        return Narration(text, Refusal.OTHER_PLAN)
    ends = [*(match.start() for match in told[1:]), len(text)]
    parts = [text[match.end() : end] for match, end in zip(told, ends, strict=True)]
    return Narration(text, _fault_of_states(task, plan, parts))


def narrated_answer(narration: Narration, plan: Sequence[PlanStep]) -> str:
    """Return how a policy is to answer: the narration, then the plan as `loose_plans` finds it."""
    return "\n".join([narration.text, FINAL_PLAN, *map(str, plan)]) + "\n"


def _fault_of_states(task: PlanningTask, plan: Sequence[PlanStep], parts: Sequence[str]) -> Refusal | None:
    """Return what is wrong with the states that the steps of a plan end with."""
    for state, part in zip(_states_after(task, plan), parts, strict=True):
        lines = _STATE.findall(part)
        if not lines:
            return Refusal.NO_STATES
        claimed = {Atom(name, tuple(names)) for name, *names in map(_words, _ATOM.findall(lines[-1])) if name}
        true = set(task.atoms_of(state))
        is_left_out = any(not task.is_static(atom.predicate) for atom in true - claimed)
        if claimed - true or is_left_out:  # what never changes need not be told again
            return Refusal.FALSE_STATE
    return None


def _words(text: str) -> tuple[str, ...]:
    """Return the words between brackets; one empty word where there are none."""
    return tuple(text.strip("()").lower().split()) or ("",)
