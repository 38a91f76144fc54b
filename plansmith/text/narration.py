"""Plans narrated by a model: the prompt that asks for it, and what of an answer is believed.

Source: Self-CriTeach, equation 6 and sections 5.2, A.2.3 and A.3.2; the prompt is in our own words. A narration is kept
only where its actions are those of the plan, in order, and every state that it claims is true: the paper trains on what
its base model writes as it comes. A policy is to answer with the narration and then the plan; what its narration
claims of each step is read here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from plansmith.pddl.ground_actions import MalformedStep
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, PlanStep
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.text.baselines import FINAL_PLAN
from plansmith.text.chains import ChainStep, Span, StepSpans

REQUEST = (
    "You are given a planning problem and a plan that solves it. Explain step by step how somebody comes to this plan. "
    "For each step write a line 'Step N: (action objects)', then a line 'Preconditions: ' that lists the facts that "
    "this action needs; say why it serves the goal, which other actions could be applied and why they are not taken, "
    "and what would fail and because of which earlier step. End each step with a line 'State: ' that lists every fact "
    "that is true after it, as in the problem. Take no other step, and leave none out. Put all of it between <REASON> "
    "and </REASON>."
)
STEP_REQUEST = (
    "You are given a planning problem, one step of a plan that solves it, and the states before and after this step. "
    "Write a line 'Preconditions: ' that lists the facts that this action needs; say why it serves the goal, which "
    "other actions could be applied here and why they are not taken, and what would fail and because of which earlier "
    "step. Speak of this step alone, and do not list a state. Put what you say between <REASON> and </REASON>."
)
_REASON = re.compile(r"<REASON>((?:(?!<REASON>).)*?)</REASON>", re.DOTALL)
_STEP = re.compile(r"^[ \t*#]*Step\s+\d+\s*[:.][ \t*]*(\([^()\n]*\))", re.MULTILINE | re.IGNORECASE)
_STATE = re.compile(r"^[ \t*]*State:[ \t*]*(.*)$", re.MULTILINE | re.IGNORECASE)
_NEEDED = re.compile(r"^[ \t*]*Preconditions:[ \t*]*(.*)$", re.MULTILINE | re.IGNORECASE)
_ATOM = re.compile(r"\([^()\n]*\)")
_NEGATED = re.compile(r"\(\s*not\s*(\([^()\n]*\))\s*\)", re.IGNORECASE)


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
    FALSE_PRECONDITION = "false_precondition"
    """What it lists as a precondition does not hold before the step."""


class Aspect(StrEnum):
    """What a step of a narration may tell beside its state, the four of section 5.2."""

    REASON = "a reason"
    PRECONDITIONS = "preconditions"
    ALTERNATIVES = "alternatives"
    """Another action that could be applied is named."""
    FAILURES = "failures"
    """An action that could not be applied is named."""


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


def read_step_narration(completion: str, before: Set[Atom]) -> str | None:
    """Return what an answer says of one step; None where it cannot be used.

    It says nothing, has lines that are put beside it, or needs, as it says, what does not hold ``before`` the step.
    """
    found = _REASON.findall(completion)
    text: str = found[-1].strip() if found else ""
    is_refused = not text or _STEP.search(text) or _STATE.search(text) or _needs_what_is_false(text, before)
    return None if is_refused else text


def states_before(task: PlanningTask, plan: Sequence[PlanStep]) -> list[frozenset[Atom]]:
    """Return what holds before each step of a valid plan."""
    states = [task.initial_state, *_states_after(task, plan)]
    return [frozenset(task.atoms_of(state)) for state in states[:-1]]


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
    told = list(_told_steps(text))
    if [_words(step[1]) for step, _ in told] != [(step.name, *step.arguments) for step in plan]:
        return Narration(text, Refusal.OTHER_PLAN)
    return Narration(text, _fault_of_states(task, plan, [text[step.end() : end] for step, end in told]))


def aspects_of(narration: Narration, task: PlanningTask, plan: Sequence[PlanStep]) -> Iterator[Aspect]:
    """Yield what each step of a believed narration tells, every aspect once a step; nothing of it is judged."""
    states = [task.initial_state, *_states_after(task, plan)]
    for (step, end), action, state in zip(_told_steps(narration.text), plan, states, strict=False):
        part = _STATE.sub("", narration.text[step.end() : end])
        words = _NEEDED.sub("", part)
        named = (task.ground(PlanStep(*_named(told))) for told in _ATOM.findall(words))
        others = [one for one in named if not isinstance(one, MalformedStep) and one.step != action]
        is_told = {
            Aspect.REASON: any(map(str.isalpha, _ATOM.sub("", words))),
            Aspect.PRECONDITIONS: words != part,
            Aspect.ALTERNATIVES: any(one.is_applicable(state) for one in others),
            Aspect.FAILURES: not all(one.is_applicable(state) for one in others),
        }
        yield from (aspect for aspect, is_there in is_told.items() if is_there)


def _told_steps(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the line that begins each step of a narration, with the character at which the step ends."""
    found = list(_STEP.finditer(text))
    yield from zip(found, [*(match.start() for match in found), len(text)][1:], strict=True)


def claimed_steps(answer: str) -> Iterator[tuple[ChainStep, StepSpans]]:
    """Yield the steps that an answer of a policy narrates before its plan, with the states that it claims.

    None where a step has no state, or more than one: what is claimed then cannot be told.
    """
    found = list[tuple[ChainStep, StepSpans]]()
    text, start = answer.partition(FINAL_PLAN)[0], 0
    for step, end in _told_steps(text):
        states = [match for match in _STATE.finditer(text, step.end()) if match.start() < end]
        if len(states) != 1:
            return
        action, (state,) = PlanStep(*_named(step[1])), states
        denied = [match.span() for match in _NEGATED.finditer(text, *state.span(1))]
        atoms = [
            atom
            for atom in _ATOM.finditer(text, *state.span(1))
            if not any(start <= atom.start() < end for start, end in denied)
        ]
        places = tuple(Span(*atom.span()) for atom in atoms)
        told = ChainStep(action, next_state=tuple(Atom(*_named(atom[0])) for atom in atoms))
        choice, outcome = Span(start, step.end(1)), Span(step.end(1), state.end())
        found.append((told, StepSpans(choice, outcome, Span(*step.span(1)), places)))
        start = state.end()
    yield from found


def narrated_answer(narration: Narration, plan: Sequence[PlanStep]) -> str:
    """Return how a policy is to answer: the narration, then the plan as `loose_plans` finds it."""
    return "\n".join([narration.text, FINAL_PLAN, *map(str, plan)]) + "\n"


def _fault_of_states(task: PlanningTask, plan: Sequence[PlanStep], parts: Sequence[str]) -> Refusal | None:
    """Return what is wrong with what each step of a plan is said to need and to lead to."""
    states = [task.initial_state, *_states_after(task, plan)]
    for (before, after), part in zip(pairwise(states), parts, strict=True):
        lines = _STATE.findall(part)
        if not lines:
            return Refusal.NO_STATES
        true = set(task.atoms_of(after))
        for line in lines:
            claimed = _facts(_NEGATED.sub("", line))
            is_left_out = any(not task.is_static(atom.predicate) for atom in true - claimed)
            denied = _facts(" ".join(_NEGATED.findall(line)))
            if claimed - true or denied & true or is_left_out:  # what never changes need not be told again
                return Refusal.FALSE_STATE
        if _needs_what_is_false(part, set(task.atoms_of(before))):
            return Refusal.FALSE_PRECONDITION
    return None


def _needs_what_is_false(part: str, known: Set[Atom]) -> bool:
    """Return whether a step is said to need what is not among the facts, or not to bear what is."""
    for line in _NEEDED.findall(part):
        forbidden = _facts(" ".join(_NEGATED.findall(line)))
        if forbidden & known or _facts(_NEGATED.sub("", line)) - known:
            return True
    return False


def _facts(line: str) -> set[Atom]:
    return {Atom(*_named(told)) for told in _ATOM.findall(line)}


def _named(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the first of the words between brackets, and the others."""
    name, *names = _words(text)
    return name, tuple(names)


def _words(text: str) -> tuple[str, ...]:
    """Return the words between brackets; one empty word where there are none."""
    return tuple(text.strip("()").lower().split()) or ("",)
