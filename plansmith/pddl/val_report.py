"""The verdict in the format of VAL's ``Validate -v``: the text that the papers feed to the model.

For STRIPS plans: what each step deletes and adds, where the plan failed,
and the repair advice. Not here: the judging (`validation`).
"""

from __future__ import annotations

from collections.abc import Sequence

from plansmith.pddl.grounding import GroundAction, PlanningTask
from plansmith.pddl.model import Literal
from plansmith.pddl.validation import PlanVerdict, Verdict


def validation_details(task: PlanningTask, verdict: PlanVerdict) -> str:
    """Return the "Plan Validation details" of a well-formed plan, without repair advice."""
    lines = ["Plan Validation details", "-----------------------"]
    executed = len(verdict.states) - 1
    for number, step in enumerate(verdict.plan[: executed + 1], 1):
        lines += ["", f"Checking next happening (time {number})"]
        action = task.ground(step)
        if number > executed or not isinstance(action, GroundAction):
            lines += ["Plan failed because of unsatisfied precondition in:", str(step), "", "Plan failed to execute"]
            return "\n".join(lines)
        lines += [f"Deleting {atom}" for atom in action.delete_effects]
        lines += [f"Adding {atom}" for atom in action.add_effects]
    lines.append("Plan executed successfully - checking goal")
    lines += ["Plan valid"] if verdict.is_valid else ["Goal not satisfied", "Plan invalid"]
    return "\n".join(lines)


def repair_advice(verdict: PlanVerdict) -> str:
    """Return VAL's "Plan Repair Advice", or an empty text for a valid plan."""
    if verdict.verdict is Verdict.PRECONDITION_UNSATISFIED:
        assert verdict.failed_step is not None
        step = verdict.plan[verdict.failed_step - 1]
        head = f"{step} has an unsatisfied precondition at time {verdict.failed_step}"
    elif verdict.verdict is Verdict.GOAL_NOT_REACHED:
        head = "The goal is not satisfied"
    else:
        return ""
    return f"Plan Repair Advice:\n\n{head}\n{_set_literals(verdict.unsatisfied)}"


def verbose_report(task: PlanningTask, verdict: PlanVerdict) -> str:
    """Return the details with the repair advice; for a malformed plan, the reason."""
    if verdict.verdict in (Verdict.MALFORMED_PLAN, Verdict.BAD_INPUT):
        return f"Bad plan description!\nStep {verdict.failed_step}: {verdict.reason}"
    advice = repair_advice(verdict)
    return validation_details(task, verdict) + (f"\n\n{advice}" if advice else "")


def _set_literals(literals: Sequence[Literal]) -> str:
    lines = [f"(Set {literal.atom} to {'true' if literal.is_positive else 'false'})" for literal in literals]
    if len(lines) == 1:
        return lines[0]
    first, *rest = lines
    return "\n".join(["(Follow each of:", f"    {first}", *(f"and {line}" for line in rest), ")"])
