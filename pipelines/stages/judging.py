"""Stages in which a judge reads what a policy wrote (algorithm 1, line 16); nothing later judges again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from actors.validator import ValidatorActor
from pipelines.stages.few_rows import worked_rows
from plansmith.config.basics import StrictModel
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import (
    CUT,
    CompletionRow,
    JudgedRow,
    JudgedStepRow,
    JudgingRow,
    ProblemRow,
    RolloutRow,
    SolvedProblemRow,
    VerdictRow,
)
from plansmith.groups import grouped
from plansmith.judging.judge import Judge, PlanJudge
from plansmith.report.finished_stages import read_columns
from plansmith.stages import StageContext

STEPS = "steps"
"""Table of the judged steps, beside the verdicts."""


class JudgingSettings(StrictModel):
    """How completions are read."""

    prompting: str
    """How the policy was asked."""


def judge_plans(context: StageContext[JudgingSettings]) -> None:
    """Judge plans and chains with the validator."""
    judge_rollouts(context, PlanJudge(context.settings.prompting))


def judge_rollouts(
    context: StageContext[Any], judge: Judge, problems: Mapping[str, ProblemRow | SolvedProblemRow] | None = None
) -> None:
    """Let a judge read every rollout, and write its verdicts and the steps that it judged.

    Args:
        context: of the stage.
        judge: reads the rollouts.
        problems: that they are judged on, by id; None takes those of the input ``problems``.
    """
    if problems is None:
        problems = {row.problem_id: row for row in context.inputs["problems"].rows(ProblemRow)}
    names = ("problem_id", "rollout_id", "iteration", "policy_version", "completion", "finish_reason")
    rollouts = zip(*read_columns(context.inputs["rollouts"], RolloutRow, *names), strict=True)
    rows = [
        judging_row(
            problems[problem_id],
            [CompletionRow(name, turn, version, text, end in CUT) for _, name, turn, version, text, end in group],
        )
        for problem_id, group in groupby(sorted(rollouts, key=lambda row: row[:2]), key=lambda row: row[0])
    ]
    judged = worked_rows(
        context,
        rows,
        (JudgingRow, JudgedRow),
        ValidatorActor,
        {"judge": judge},
        n_rollouts=sum(len(row.completions) for row in rows),
        description="judging",
    )
    verdicts = [verdict for row in judged for verdict in row.verdicts]
    context.output.write_rows(sorted(verdicts, key=lambda row: row.rollout_id), VerdictRow)
    steps = [step for row in judged for step in row.steps]
    context.output.write_rows(sorted(steps, key=lambda row: (row.rollout_id, row.step)), JudgedStepRow, table=STEPS)


def steps_of(judged: Artifact) -> dict[str, list[JudgedStepRow]]:
    """Return the judged steps of each rollout that has some, by its id."""
    return grouped(judged.rows(JudgedStepRow, STEPS), lambda step: step.rollout_id)


def judging_row(problem: ProblemRow | SolvedProblemRow, completions: Sequence[CompletionRow]) -> JudgingRow:
    """Return a problem joined with completions."""
    return JudgingRow(problem.problem_id, problem.domain_pddl, problem.problem_pddl, tuple(completions))


def completion_row(row: RolloutRow) -> CompletionRow:
    """Return what a judge reads of a rollout."""
    is_cut = row.finish_reason in CUT
    return CompletionRow(row.rollout_id, row.iteration, row.policy_version, row.completion, is_cut)


def verdicts_on(rollouts: Sequence[RolloutRow], problems: Mapping[str, ProblemRow], judge: Judge) -> list[VerdictRow]:
    """Return the verdicts on a few rollouts, here and now, in their order."""
    return [judge.judge(judging_row(problems[row.problem_id], [completion_row(row)])).verdicts[0] for row in rollouts]
