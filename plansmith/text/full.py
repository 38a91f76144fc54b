"""The full rendering: PDDL and bracketed section markers, for real language models.

Follows the structure of appendix B of arXiv 2509.13351 (instruction, domain, problem, steps with precondition check,
effects and states, goal check, final plan) in our own words, with a purpose line and a verdict section added. Every
domain that the parser takes can be told: a condition of any form is one line of PDDL with TRUE or FALSE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import TOTAL_COST, Domain, Literal, Number
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import StepJudgement
from plansmith.text.chains import COST_DIGITS, Alternative, Backtrack, Chain, ChainStep, GoalMark, ReadChain, in_order
from plansmith.text.explanations import Attempt, ClaimedPlan, Explanation, FeedbackKind
from plansmith.text.full_reader import DRAWBACKS, read_chain

PLAN_INSTRUCTION = (
    "Find a plan for the problem below. Reason one action at a time: check the goals where one was reached, say what "
    "the action is for, check every precondition in the current state, list what the action adds and deletes, and "
    "write the state it leads to. Check the goal at the end, repeat the plan, and say whether it is valid."
)
EXPLAIN_INSTRUCTION = (
    "Study the plan below for the given domain and problem. Go through its actions in order and explain for each "
    "why it can or cannot be applied and what state it leads to. Conclude whether the plan is valid."
)
COST_INSTRUCTION = "Say what each action costs, and the total so far."
"""Follows an instruction where the problem minimises the total cost."""

CORRECT_INSTRUCTION = (
    "An earlier attempt at the problem below was checked by a plan validator. Use its feedback to find a correct plan, "
    "reasoning one action at a time as before."
)


class FullRendering:
    """Prompts and chains in the full rendering; see the module."""

    name = "full"
    separator = "\n"

    def plan_prompt(self, task: PlanningTask) -> str:
        """Return the prompt that asks for a chain of thought with a plan."""
        return _prompt(PLAN_INSTRUCTION, task, "[RESPONSE]\n")

    def explain_prompt(self, task: PlanningTask, shown: ClaimedPlan) -> str:
        """Return the prompt that asks to explain a given plan."""
        lines = ["[PLAN]"]
        for index, step in enumerate(shown.plan):
            lines.append(f"{index + 1}. {step}")
            if index < len(shown.claims):
                lines.append(f"   state s{index + 1}: {_spaced(in_order(shown.claims[index]))}")
        return _prompt(EXPLAIN_INSTRUCTION, task, "\n".join([*lines, "[RESPONSE]\n"]))

    def write_attempt(self, attempt: Attempt, feedback: FeedbackKind) -> str:
        """Return an attempt with the validator's feedback, as it is handed back."""
        marks = ["VALID" if mark else "INVALID" for mark in attempt.marks]
        lines = ["[PREVIOUS PLAN]"]
        lines += [f"{i}. {step} - {mark}" for i, (step, mark) in enumerate(zip(attempt.plan, marks, strict=False), 1)]
        if feedback is FeedbackKind.DETAILED:
            lines += ["[VALIDATOR FEEDBACK]", attempt.report]
        return "\n".join(lines)

    def correct_prompt(self, task: PlanningTask, attempt: str) -> str:
        """Return the prompt that hands an attempt back, as `write_attempt` tells it."""
        return _prompt(CORRECT_INSTRUCTION, task, f"{attempt}\n[RESPONSE]\n")

    def write_chain(self, chain: Chain) -> str:
        """Return the text of a chain of thought."""
        return "\n".join([*_beginning_lines(chain, len(chain.steps)), *_closing_lines(chain)])

    def write_beginning(self, chain: Chain, n_steps: int) -> str:
        """Return the text with which a chain begins, up to the end of so many steps."""
        return "\n".join(_beginning_lines(chain, n_steps))

    def write_explanation(self, explanation: Explanation) -> str:
        """Return the text that explains a plan: its steps, the fault if any, the verdict."""
        lines = _lines_of(explanation.chain.steps)
        if explanation.fault is not None:
            lines += ["[FAULT]", *_fault_lines(explanation.fault)]
        return "\n".join([*lines, *_closing_lines(explanation.chain)])

    def write_outcome(self, step: ChainStep) -> str:
        """Return the part of a step that follows its action."""
        return "\n".join(outcome_lines(step))

    def write_goals(self, marks: Sequence[GoalMark], n_told: int) -> str:
        """Return what stands in a goal check after the marks of the first goals."""
        return "\n".join(_goal_lines(marks[n_told:]))

    def write_literals(self, literals: Sequence[Literal]) -> str:
        """Return what stands in a list of literals."""
        return _spaced(literals)

    def read(self, completion: str, domain: Domain) -> ReadChain:
        """Return the claims of a completion."""
        return read_chain(completion, domain)


def _beginning_lines(chain: Chain, n_steps: int) -> list[str]:
    start = [] if chain.start is None else [f"[STATE] {_spaced(chain.start)}"]
    return [*start, *_lines_of(chain.steps[:n_steps])]


def step_lines(number: int, step: ChainStep) -> list[str]:
    """Return the lines of one step."""
    lines = [f"[STEP {number}]"]
    if step.goal_check is not None:
        lines += ["- Goals:", *_goal_lines(step.goal_check)]
    if step.purpose:
        lines.append(f"- Purpose: {' needs '.join(_purpose_parts(step))}")
    lines += [*map(_alternative_line, step.alternatives), *map(_backtrack_line, step.backtracks)]
    return [*lines, f"- Action: {step.action}", *outcome_lines(step)]


def _alternative_line(told: Alternative) -> str:
    words = next(words for words, drawback in DRAWBACKS.items() if drawback is told.drawback)
    return " ".join([f"- Instead: {told.action} {words}", *map(str, told.undone)])


def _backtrack_line(told: Backtrack) -> str:
    began = f"after {told.back_to}" if told.back_to else "at the start"
    branch = " ".join(map(str, told.branch))
    lacking = f"lacks {_spaced(told.unsatisfied)} because of {told.culprit}"
    return f"- Dead branch: {branch} {lacking}; back to the state {began}"


def _purpose_parts(step: ChainStep) -> Iterator[str]:
    for condition, settled in step.reasons:
        yield f"{condition} since {' '.join(map(str, settled))}" if settled else str(condition)


def outcome_lines(step: ChainStep) -> list[str]:
    """Return the lines after the action of one step."""
    lines = ["- Preconditions:"]
    lines += [f"  - {item}: {'FALSE' if item in step.unsatisfied else 'TRUE'}" for item in step.preconditions]
    if step.next_state is None:
        return [*lines, "- Applicable: NO"]
    lines += ["- Applicable: YES", f"- Add: {_spaced(step.added)}", f"- Delete: {_spaced(step.deleted)}"]
    if step.cost is not None:
        lines.append(f"- Cost: {_decimal(step.cost.amount)}, total {_decimal(step.cost.total)}")
    return [*lines, f"- Next state: {_spaced(step.next_state)}"]


def _lines_of(steps: Sequence[ChainStep]) -> list[str]:
    return [line for number, step in enumerate(steps, 1) for line in step_lines(number, step)]


def _closing_lines(chain: Chain) -> list[str]:
    lines = []
    if chain.goal_check is not None:
        lines += ["[GOAL CHECK]", *_goal_lines(chain.goal_check)]
    if chain.final_plan is not None:
        lines += ["[FINAL PLAN]", *(str(step) for step in chain.final_plan)]
    return [*lines, f"[VERDICT] {chain.verdict}"]


def _goal_lines(goal_check: Iterable[GoalMark]) -> list[str]:
    return [f"  - {mark.condition}: {_told_mark(mark)}" for mark in goal_check]


def _told_mark(mark: GoalMark) -> str:
    truth = "TRUE" if mark.is_met else "FALSE"
    return f"{truth}, after {' '.join(map(str, mark.after))}" if mark.after else truth


def _fault_lines(fault: StepJudgement) -> list[str]:
    classes: tuple[tuple[str, tuple[object, ...]], ...] = (
        ("Precondition not satisfied", fault.unsatisfied),
        ("The state lacks what the action adds", fault.missing_effects),
        ("The state keeps what the action deletes", fault.kept_deletes),
        ("The state loses what the action does not touch", fault.lost_atoms),
        ("The state gains what the action does not add", fault.invented_atoms),
    )
    return [f"- {label}: {_spaced(atoms)}" for label, atoms in classes if atoms]


def _decimal(value: Number) -> str:
    """Return a number without an exponent, which nobody reads as one."""
    return str(value) if isinstance(value, int) else f"{value:.{COST_DIGITS}f}".rstrip("0")


def _spaced(items: Iterable[object]) -> str:
    return " ".join(str(item) for item in items) or "none"


def _prompt(instruction: str, task: PlanningTask, tail: str) -> str:
    domain, problem = print_domain(task.domain).rstrip(), print_problem(task.problem).rstrip()
    if task.problem.metric == TOTAL_COST:
        instruction = f"{instruction} {COST_INSTRUCTION}"
    return f"[INSTRUCTION] {instruction}\n[DOMAIN]\n{domain}\n[PROBLEM]\n{problem}\n{tail}"
