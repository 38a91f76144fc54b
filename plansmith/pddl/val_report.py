"""The verdict in the format of VAL's ``Validate -v``: the text that the papers feed to the model.

What each step deletes and adds, where the plan failed, and the repair advice. Not here: the judging (`validation`), and
what VAL prints of its type check and of strata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plansmith.errors import BadInputError
from plansmith.pddl.conditions import ExpansionBudget, bindings_of
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import (
    TOTAL_COST,
    Atom,
    Condition,
    Conjunction,
    Disjunction,
    Implication,
    Literal,
    Negation,
    Number,
    Quantification,
)
from plansmith.pddl.validation import PlanVerdict, Verdict

_HEAD = ["Plan Validation details", "-----------------------"]
_INDENT = "    "


def validation_details(task: PlanningTask, verdict: PlanVerdict) -> str:
    """Return the "Plan Validation details" of a well-formed plan, without repair advice."""
    return "\n".join([*_HEAD, *_happenings(task, verdict)])


def repair_advice(task: PlanningTask, verdict: PlanVerdict) -> str:
    """Return VAL's "Plan Repair Advice", or an empty text for a valid plan."""
    head = _advice_head(verdict)
    return "\n".join(["Plan Repair Advice:", "", head, *_advice_lines(task, verdict)]) if head else ""


def verbose_report(task: PlanningTask, verdict: PlanVerdict) -> str:
    """Return the details with the repair advice; for a malformed plan, the reason."""
    if verdict.verdict in (Verdict.MALFORMED_PLAN, Verdict.BAD_INPUT):
        return f"Bad plan description!\nStep {verdict.failed_step}: {verdict.reason}"
    advice = repair_advice(task, verdict)
    return validation_details(task, verdict) + (f"\n\n{advice}" if advice else "")


def val_output(task: PlanningTask, verdict: PlanVerdict, plan_name: str, *, is_verbose: bool) -> str:
    """Return what ``Validate`` (``Validate -v`` if verbose) prints for a plan file of that name."""
    lines = [f"Checking plan: {plan_name}"]
    if verdict.verdict is Verdict.MALFORMED_PLAN:
        lines += ["Bad plan description!", "", ""]
    elif is_verbose:
        lines += [*_listing(verdict), *(_HEAD if verdict.plan else []), *_happenings(task, verdict)]
        lines += _advice_section(task, verdict)
    else:
        lines += _outcome(verdict)
    return "\n".join([*lines, *_footer(verdict, plan_name)]) + "\n"


def _listing(verdict: PlanVerdict) -> list[str]:
    lines = ["Plan to validate:", "", f"Plan size: {len(verdict.plan)}"]
    for number, step in enumerate(verdict.plan, 1):
        lines += [f"{number}:", str(step), " "]
    return [*lines, ""]


def _happenings(task: PlanningTask, verdict: PlanVerdict) -> list[str]:
    """Return what happens at each step, then the outcome."""
    lines, total = list[str](), task.cost_at_start
    for number, (step, state) in enumerate(zip(verdict.plan, verdict.states, strict=False), 1):
        lines += ["", f"Checking next happening (time {number})"]
        action = task.ground(step)
        if number < len(verdict.states) and isinstance(action, GroundAction):
            lines += _changes(action.resolved(state), total)
            total += action.cost(state) or 0
    if verdict.verdict is Verdict.PRECONDITION_UNSATISFIED:
        lines += ["Plan failed because of unsatisfied precondition in:", str(verdict.plan[len(verdict.states) - 1]), ""]
    return lines + _outcome(verdict)


def _changes(action: GroundAction, total: Number) -> list[str]:
    """Return the changes that an action without conditional effects makes, `total` being the cost before it."""
    effect, lines = action.effect, list[str]()
    for atom in effect.adds:
        if atom in effect.deletes:
            lines.append(f"WARNING: {action.step} adds and deletes the literal {atom}")
    lines += [f"Deleting {atom}" for atom in effect.deletes]
    lines += [f"Adding {atom}" for atom in effect.adds]
    for increase in effect.increases:
        assert not isinstance(increase, Atom)  # the step was executed
        lines.append(f"Updating ({TOTAL_COST}) ({_number(total)}) by {_number(increase)} increase")
        total += increase
    return lines


def _outcome(verdict: PlanVerdict) -> list[str]:
    match verdict.verdict:
        case Verdict.VALID:
            return ["Plan executed successfully - checking goal", "Plan valid"]
        case Verdict.GOAL_NOT_REACHED:
            return ["Plan executed successfully - checking goal", "Goal not satisfied", "Plan invalid"]
        case Verdict.PRECONDITION_UNSATISFIED:
            return ["Plan failed to execute"]
        case _:
            return ["Error occurred in validation attempt:", "  Attempt to access undefined numeric expression!", ""]


def _footer(verdict: PlanVerdict, plan_name: str) -> list[str]:
    if verdict.is_valid:
        value = _number(verdict.cost or 0)
        return [f"Final value: {value} ", "", "Successful plans:", f"Value: {value}", f" {plan_name} {value} ", ""]
    if verdict.verdict is Verdict.BAD_INPUT:
        return ["", "Queries (validator failed):", f" {plan_name} "]
    return ["" for _ in range(verdict.verdict is not Verdict.MALFORMED_PLAN)] + ["Failed plans:", f" {plan_name} "]


def _number(value: Number) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


@dataclass(frozen=True, slots=True)
class _Advice:
    """What would make a condition true: one atom to set (`text`), or each or one of the members."""

    text: str = ""
    is_all: bool = True
    members: tuple[_Advice, ...] = ()

    def lines(self, indent: str = "") -> list[str]:
        """Return the advice as VAL nests it; a group of one is told as its member."""
        if self.text:
            return [indent + self.text]
        if len(self.members) <= 1:
            return [line for member in self.members for line in member.lines(indent)]
        word, inner = "and" if self.is_all else "or", indent + _INDENT
        lines = [f"{indent}(Follow {'each' if self.is_all else 'one'} of:", *self.members[0].lines(inner)]
        for member in self.members[1:]:
            lines += [f"{inner}{word} {member.text}", *([] if member.text else member.lines(inner))]
        return [*lines, f"{indent})"]


def _advice_section(task: PlanningTask, verdict: PlanVerdict) -> list[str]:
    head = _advice_head(verdict)
    return ["", "Plan Repair Advice:", "", head, *_advice_lines(task, verdict), ""] if head else []


def _advice_head(verdict: PlanVerdict) -> str:
    if verdict.verdict is Verdict.PRECONDITION_UNSATISFIED:
        assert verdict.failed_step is not None
        step = verdict.plan[verdict.failed_step - 1]
        return f"{step} has an unsatisfied precondition at time {verdict.failed_step}"
    return "The goal is not satisfied" if verdict.verdict is Verdict.GOAL_NOT_REACHED else ""


def _advice_lines(task: PlanningTask, verdict: PlanVerdict) -> list[str]:
    if _is_without_advice(task, verdict):
        return []
    adviser = _Adviser(task, verdict.states[-1])
    try:
        return adviser.group(verdict.unsatisfied, is_positive=True, is_all=True).lines()
    except BadInputError:  # quantifiers with more instances than can be listed
        return []


def _is_without_advice(task: PlanningTask, verdict: PlanVerdict) -> bool:
    """Return whether the precondition that failed is one derived literal, not in any ``and``: VAL says nothing then."""
    if verdict.verdict is not Verdict.PRECONDITION_UNSATISFIED:
        return False
    action = task.domain.action(verdict.plan[len(verdict.states) - 1].name)
    literal = action.precondition if action is not None else None
    return isinstance(literal, Literal) and literal.atom.predicate in task.rules


class _Adviser:
    """Says how a condition that is false in one state could be made true; `is_positive` false: its negation.

    A derived atom cannot be set, but it can be satisfied: so VAL words it, and leaves open by what.
    """

    def __init__(self, task: PlanningTask, state: int) -> None:
        self.task, self.state, self._budget = task, state, ExpansionBudget()

    def group(self, parts: Sequence[Condition], *, is_positive: bool, is_all: bool) -> _Advice:
        """Return the advice on each or one of the parts, those left out that need none."""
        found = (self.advice(part, is_positive=is_positive) for part in parts)
        return _Advice(is_all=is_all, members=tuple(member for member in found if member.text or member.members))

    def advice(self, condition: Condition, *, is_positive: bool) -> _Advice:
        """Return the advice on a condition; an empty one where it holds."""
        if self.task.holds(condition, self.state) == is_positive:
            return _Advice()
        match condition:
            case Literal():
                return self._literal(condition, is_positive=is_positive)
            case Negation():
                return self.advice(condition.part, is_positive=not is_positive)
            case Implication():
                parts: Sequence[Condition] = (Negation(condition.premise), condition.conclusion)
            case Conjunction() | Disjunction():
                parts = condition.parts
            case Quantification():
                bindings = bindings_of(self.task, condition, {}, self._budget)
                parts = [condition.part.substitute(binding) for binding in bindings]
        is_all = isinstance(condition, Conjunction) or (
            isinstance(condition, Quantification) and condition.is_universal
        )
        return self.group(parts, is_positive=is_positive, is_all=is_all == is_positive)

    def _literal(self, literal: Literal, *, is_positive: bool) -> _Advice:
        is_wanted = literal.is_positive == is_positive
        if literal.atom.predicate in self.task.rules:
            return _Advice(f"(Satisfy derived predicate {literal.atom if is_wanted else f'(NOT {literal.atom})'}!)")
        return _Advice(f"(Set {literal.atom} to {'true' if is_wanted else 'false'})")
