"""What `plansmith evaluate` says: the figures, what was not tried or not judged, failed attempts step by step, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pipelines.trials.own_problems import NOT_ASKED, LeftOut, problems_left_out, summary_of
from plansmith.data.rows import JudgedStepRow, PlanRow, ProblemRow, RolloutRow, VerdictRow
from plansmith.data.storage import atomic_file, storage_errors
from plansmith.errors import PlansmithError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.validation import FeedbackCode, Verdict
from plansmith.report.arms import Arm, evaluated_problems
from plansmith.report.finished_stages import judged_steps
from plansmith.report.metrics import ArmResult, EvaluatedProblem, summarise_arm

PROTOCOL = ("Plan Validation details", "---", "Checking next happening", "Deleting ", "Adding ")
"""How lines begin in which the validator follows a plan; the terminal shows what it says in the end."""
_ATOM = re.compile(r"\(([^\s()]+)((?:\s+[^\s()]+)*)\s*\)")


@dataclass(frozen=True)
class Tried:
    """A policy's attempts at a set of problems, as the stages left them.

    Args:
        arm: the policy with its problems, their plans, its rollouts and verdicts.
        prompting: how it was asked.
        level: whose figures stand for the arm.
        head: what the JSON says of policy and problems.
        object_of: the user's object by the name it got, for each problem that was renamed.
        failures: why a problem has no attempt, where the request failed.
        tokens: of completions whose tokens only a server has counted.
        is_own: whether the problems are the user's, all of them to be accounted for.
    """

    arm: Arm
    prompting: str
    level: str
    head: Mapping[str, Any]
    object_of: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, int] | None = None
    is_own: bool = True


@dataclass(frozen=True)
class Attempt:
    """One attempt, in the names of the user's files."""

    problem: ProblemRow
    rollout: RolloutRow
    verdict: VerdictRow
    evaluated: EvaluatedProblem
    planner_plan: tuple[str, ...]
    object_of: Mapping[str, str]

    def in_own_names(self, text: str) -> str:
        """Return a text with the arguments of its atoms and steps as the user calls them."""

        def renamed(match: re.Match[str]) -> str:
            words = [self.object_of.get(word, word) for word in match[2].split()]
            return f"({' '.join([match[1], *words])})"

        return _ATOM.sub(renamed, text) if self.object_of else text


@dataclass(frozen=True)
class Evaluation:
    """Everything that is said about one evaluation."""

    tried: Tried
    figures: ArmResult
    attempts: Sequence[Attempt]
    left_out: Sequence[LeftOut]

    @classmethod
    def of(cls, tried: Tried) -> Evaluation:
        """Return the evaluation of attempts.

        Raises:
            PlansmithError: not one of them could be judged.
        """
        evaluated = evaluated_problems(tried.arm)
        if not evaluated:
            raise PlansmithError("no attempt could be judged", got=f"{len(tried.failures)} failed requests")
        if tried.tokens is not None:
            evaluated = [replace(item, completion_tokens=tried.tokens[item.problem_id]) for item in evaluated]
        figures = summarise_arm(tried.arm.name, evaluated, primary_level=tried.level)
        if any(row.status == NOT_ASKED for row in tried.arm.plans.rows(PlanRow)):
            figures = _without_planner(figures)
        left_out = problems_left_out(tried.arm.problems, tried.arm.plans) if tried.is_own else []
        return cls(tried, figures, list(_attempts(tried, evaluated)), left_out)

    def notes(self) -> list[str]:
        """Return a line for what the figures leave out, if anything."""
        notes = []
        if self.left_out:
            notes.append(f"not tried: {summary_of(self.left_out)}")
        if failures := self.tried.failures:
            some = "; ".join(f"{name}: {fault}" for name, fault in list(failures.items())[:3])
            notes.append(f"not judged: {len(failures)} whose request failed ({some})")
        return notes

    def failed(self, count: int) -> list[str]:
        """Return so many failed attempts as text, spread over the error classes."""
        groups: dict[Any, list[Attempt]] = {}
        for attempt in self.attempts:
            if not attempt.evaluated.is_valid:
                groups.setdefault(attempt.evaluated.error_class, []).append(attempt)
        deepest = max(map(len, groups.values()), default=0)
        in_turn = [group[place] for place in range(deepest) for group in groups.values() if place < len(group)]
        chosen = in_turn[:count]
        steps_of = judged_steps(self.tried.arm.verdicts, [attempt.rollout.rollout_id for attempt in chosen])
        return ["\n".join(attempt_lines(attempt, steps_of[attempt.rollout.rollout_id])) for attempt in chosen]

    def write(self, out: Path) -> None:
        """Write figures and attempts as JSON, complete or not at all."""
        content = {
            **self.tried.head,
            "prompting": self.tried.prompting,
            **asdict(self.figures),
            "attempts": [_as_json(attempt) for attempt in self.attempts],
            "not_judged": [{"problem": name, "fault": fault} for name, fault in self.tried.failures.items()],
            "not_tried": [asdict(item) for item in self.left_out],
            "without_a_plan": [
                row.problem_id for row in self.tried.arm.plans.rows(PlanRow) if row.status not in ("solved", NOT_ASKED)
            ],
        }
        with storage_errors(out.parent), atomic_file(out) as file:
            file.write((json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def _attempts(tried: Tried, evaluated: Sequence[EvaluatedProblem]) -> Iterator[Attempt]:
    """Yield the attempts in the order of the problems."""
    judged = {item.problem_id: item for item in evaluated}
    rollouts = {row.rollout_id: row for row in tried.arm.rollouts.rows(RolloutRow)}
    verdicts = {row.problem_id: row for row in tried.arm.verdicts.rows(VerdictRow)}
    planner_plan = {row.problem_id: row.plan for row in tried.arm.plans.rows(PlanRow)}
    for problem in tried.arm.problems.rows(ProblemRow):
        name = problem.problem_id
        if name in judged:
            verdict = verdicts[name]
            yield Attempt(problem, rollouts[verdict.rollout_id], verdict, judged[name], planner_plan[name],
                          tried.object_of.get(name, {}))  # fmt: skip


def _without_planner(figures: ArmResult) -> ArmResult:
    """Return the figures without the length of plans that no planner made."""
    by_level = {name: replace(level, mean_planner_plan_length=None) for name, level in figures.by_level.items()}
    by_domain = {name: replace(domain, mean_planner_plan_length=None) for name, domain in figures.by_domain.items()}
    all_levels = replace(figures.all_levels, mean_planner_plan_length=None)
    return replace(
        figures, mean_planner_plan_length=None, by_level=by_level, by_domain=by_domain, all_levels=all_levels
    )


def _as_json(attempt: Attempt) -> dict[str, Any]:
    verdict, evaluated = attempt.verdict, attempt.evaluated
    return {
        "problem": attempt.problem.problem_id,
        "level": attempt.problem.level,
        "is_valid": evaluated.is_valid,
        "verdict": verdict.verdict,
        "error_class": evaluated.error_class,
        "failed_step": verdict.failed_step,
        "unsatisfied": [attempt.in_own_names(literal) for literal in verdict.unsatisfied],
        "validator": attempt.in_own_names(verdict.report),
        "plan": [attempt.in_own_names(step) for step in verdict.plan],
        "planner_plan": [attempt.in_own_names(step) for step in attempt.planner_plan],
        "completion": attempt.rollout.completion,
        "finish_reason": attempt.rollout.finish_reason,
        "tokens": evaluated.completion_tokens,
    }


# --- one attempt as text


def attempt_lines(attempt: Attempt, judged: Sequence[JudgedStepRow]) -> list[str]:
    """Return a failed attempt step by step: each action with its mark, then the validator's text."""
    task = PlanningTask.from_text(attempt.problem.domain_pddl, attempt.problem.problem_pddl)
    lines = [f"{attempt.problem.problem_id}: {attempt.evaluated.error_class}",
             f"  goal: {' '.join(str(literal) for literal in task.goal)}"]  # fmt: skip
    steps = list(_chain_steps(judged) if judged else _plan_steps(attempt.verdict))
    lines += [f"  {number}. {step}" for number, step in enumerate(steps, 1)]
    if not steps:
        text = attempt.rollout.completion.strip()
        lines += [f"  no step can be read; the answer begins: {text[:200]!r}" if text else "  an empty answer"]
    said = (line.strip() for line in attempt.verdict.report.splitlines())
    lines += ["  validator:", *(f"    {line}" for line in said if line and not line.startswith(PROTOCOL))]
    if attempt.planner_plan:
        lines.append(f"  the planner's plan: {' '.join(attempt.planner_plan)}")
    return [attempt.in_own_names(line) for line in lines]


def _chain_steps(judged: Sequence[JudgedStepRow]) -> Iterator[str]:
    """Yield the steps of a chain of thought, with what is wrong with them, up to the first that cannot be taken."""
    for row in judged:
        code = FeedbackCode(row.feedback_code)
        if code is FeedbackCode.CLAIM:
            yield f"{row.action}  false words: {row.reason}"
        elif code.is_outcome_right:
            yield f"{row.action}  correct" + (f"; {row.reason}" if row.reason else "")
        elif code is FeedbackCode.EFFECT:
            yield f"{row.action}  wrong state: {row.reason}"
        else:
            yield f"{row.action}  fails here: {row.reason}"
            yield from (f"{later.action}  not reached" for later in judged[row.step :])
            return


def _plan_steps(verdict: VerdictRow) -> Iterator[str]:
    """Yield the steps of a plan without a chain; a malformed plan is not executed, so only its fault is marked."""
    is_executed = verdict.verdict != Verdict.MALFORMED_PLAN
    for number, step in enumerate(verdict.plan, 1):
        if number == verdict.failed_step:
            yield f"{step}  fails here: {verdict.reason}"
        elif is_executed:
            is_reached = verdict.failed_step is None or number < verdict.failed_step
            yield f"{step}  {'correct' if is_reached else 'not reached'}"
        else:
            yield step
