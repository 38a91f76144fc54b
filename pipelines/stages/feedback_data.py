"""Stages that turn judged rollouts into what is trained on: replan, build both data sets (algorithm 1, lines 17-27)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from pydantic import Field

from actors.feedback_writer import FeedbackWriter
from pipelines.run.workers import MODEL, policy_version
from pipelines.stages.few_rows import worked_rows
from pipelines.stages.judging import STEPS
from pipelines.stages.phase1_data import solve_problems, solved_problems
from plansmith.config.basics import StrictModel
from plansmith.config.pddl_instruct import CorrectionConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import LossConfig, Numerics
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import (
    ContinuationRow,
    ExampleRow,
    FinalPlanRow,
    FinishReason,
    JudgedStepRow,
    LearningRow,
    LessonRow,
    MetricRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    SequenceRow,
    Split,
    StepLossRow,
    VerdictRow,
)
from plansmith.errors import PlansmithError, StalePolicyError
from plansmith.judging.detours import steps_before_detour
from plansmith.learning.feedback import leave_one_out, weigh_verdicts
from plansmith.learning.models import load_tokenizer
from plansmith.learning.objectives.final import VerdictReader, v_hats
from plansmith.learning.printed_losses import plan_loss, step_loss
from plansmith.learning.sequence_files import StoredSequences
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import FeedbackCode
from plansmith.stages import StageContext
from plansmith.text.explanations import FeedbackKind

CONTINUATIONS = "continuations"
"""The table of how attempts go on better, beside the plans that were made to find it."""


class ReplanSettings(StrictModel):
    """How attempts are planned on."""

    planner: PlannerConfig
    """Which planner, within which limits."""
    is_on: bool
    """Whether anything is made of the new plans."""


class DatasetSettings(StrictModel):
    """What is made of the judged rollouts of an iteration."""

    corrections: CorrectionConfig
    """Which feedback, how many examples, and the weights of the losses."""
    rendering: str
    """How attempts are written."""
    object_names: tuple[str, ...]
    """Names that objects get when an attempt is written again."""
    numerics: Numerics
    """How the trainer, which is asked for v_hat, holds the model."""
    verdict_weight: float | None
    """Mean weight of a stated verdict in stage 1; None leaves the verdicts to stage 2."""
    max_unjudged_share: float = Field(exclude=True)
    """The run ends when more than this share of the rollouts cannot be read; changes no row."""


def replan(context: StageContext[ReplanSettings]) -> None:
    """Plan on from where attempts are still good: failed ones, and valid ones that cost more than they must."""
    if not context.settings.is_on:
        context.output.write_rows([], PlanRow)
        context.output.write_rows([], ContinuationRow, table=CONTINUATIONS)
        return
    problems = {row.problem_id: row for row in context.inputs["problems"].rows(ProblemRow)}
    optimum_of = {row.problem_id: row.cost for row in context.inputs["plans"].rows(PlanRow) if row.is_optimal}
    steps = {(row.rollout_id, row.step): row for row in context.inputs["verdicts"].rows(JudgedStepRow, STEPS)}
    tried = [(row, places_to_plan_from(row, optimum_of.get(row.problem_id))) for row in verdicts_of(context)]
    planned = solve_problems(
        context,
        [
            problem_ahead(problems[row.problem_id], row.rollout_id, kept, steps.get((row.rollout_id, kept)))
            for row, places in tried
            for kept in places
        ],
        context.settings.planner,
        held_out=HeldOut.of(problems.values()),
        description="planning on from attempts",
    )
    plan_of = {row.problem_id: row for row in planned}
    found = (
        continuation(problems[row.problem_id], row, [plan_of[_place(row.rollout_id, kept)] for kept in places])
        for row, places in tried
    )
    context.output.write_rows([row for row in found if row is not None], ContinuationRow, table=CONTINUATIONS)


def places_to_plan_from(tried: VerdictRow, optimum: float | None) -> Sequence[int]:
    """Return after how many steps of an attempt it is planned on.

    A failed one goes on after its last sound step. Of a valid one without a fault that costs more than an optimal plan,
    every state before a step is asked, as nobody knows yet where the detour begins.
    """
    if not tried.is_valid:
        return (tried.sound_steps,)
    is_whole = tried.is_flawless and tried.n_steps == len(tried.plan)
    is_long = optimum is not None and tried.plan_cost is not None and tried.plan_cost > optimum
    return range(tried.n_steps) if is_whole and is_long else ()


def continuation(problem: ProblemRow, tried: VerdictRow, planned: Sequence[PlanRow]) -> ContinuationRow | None:
    """Return how an attempt goes on better, or None where it cannot, or would pass a problem that only measures.

    Args:
        problem: that was tried.
        tried: the attempt.
        planned: from the states of `places_to_plan_from`.
    """
    if not planned:
        return None
    kept, chosen = tried.sound_steps, planned[0]
    if tried.is_valid:
        before = _steps_before_detour(problem, tried, planned)
        if before is None:
            return None
        kept, chosen = before, planned[before]
    if chosen.status != "solved" or chosen.held_out_after is not None:
        return None
    return ContinuationRow(tried.rollout_id, tried.problem_id, kept, chosen.plan)


def _steps_before_detour(problem: ProblemRow, tried: VerdictRow, planned: Sequence[PlanRow]) -> int | None:
    """Return how much of a valid attempt is optimal; None where an optimum is not known, or nothing is needless."""
    costs = [row.cost for row in planned if row.is_optimal and row.cost is not None]
    if len(costs) < len(planned):
        return None
    task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
    return steps_before_detour(task, [parse_step(step) for step in tried.plan], costs)


def problem_ahead(tried: ProblemRow, rollout_id: str, kept: int, last_kept: JudgedStepRow | None) -> ProblemRow:
    """Return what is left of a problem after some steps of an attempt at it, under a name of its own."""
    task = PlanningTask.from_text(tried.domain_pddl, tried.problem_pddl)
    ahead = task.problem if last_kept is None else replace(task.problem, init=last_kept.claimed_atoms)
    return replace(
        tried,
        problem_id=_place(rollout_id, kept),
        canonical_form=canonical_form(task.domain, ahead),
        problem_pddl=print_problem(ahead),
        source="rollout",
    )


def _place(rollout_id: str, kept: int) -> str:
    """Return the name of what is left after so many steps of an attempt."""
    return f"{rollout_id}-after-{kept:03d}"


def verdicts_of(context: StageContext[Any]) -> list[VerdictRow]:
    """Return the verdicts on the rollouts of the iteration.

    Raises:
        StalePolicyError: a rollout was not written by the policy that is about to be trained.
    """
    verdicts, version = context.inputs["verdicts"].rows(VerdictRow), policy_version(context.inputs["policy"])
    for row in verdicts:
        if row.policy_version != version:
            raise StalePolicyError("a rollout of another policy", where=row.rollout_id,
                                   got=row.policy_version, expected=version)  # fmt: skip
    return verdicts


def build_datasets(context: StageContext[DatasetSettings]) -> None:
    """Build D_reasoning and D_final with their training sequences (equations 10 and 11)."""
    settings, policy = context.settings, context.inputs["policy"]
    weights = settings.corrections.losses
    verdicts, rollouts = verdicts_of(context), context.inputs["rollouts"].rows(RolloutRow)
    _check_readable(verdicts, settings.max_unjudged_share)
    steps = context.inputs["verdicts"].rows(JudgedStepRow, STEPS)
    losses = losses_of_steps(
        steps, weights, is_binary=FeedbackKind(settings.corrections.feedback) is FeedbackKind.BINARY
    )
    printed = [
        StepLossRow(row.rollout_id, row.problem_id, row.step, loss) for row, loss in zip(steps, losses, strict=True)
    ]
    context.output.write_rows(printed, StepLossRow, table="reasoning_steps")

    path = write_lessons(context, learning_rows(context, rollouts, verdicts, steps, losses))
    folder, final = policy.path(MODEL), StoredSequences([path])
    trainer = context.resources.trainer(folder, settings.numerics)
    read = trainer.predict(VerdictReader.of(load_tokenizer(str(folder))), final)
    v_hat_of = dict(zip(final.ids, v_hats(read, final), strict=True))
    finals = [_final_row(row, v_hat_of[row.rollout_id], weights) for row in verdicts]
    context.output.write_rows(finals, FinalPlanRow, table="final_plans")
    _write_metrics(context, rollouts, verdicts, losses, [row.plan_loss for row in finals])


def _check_readable(verdicts: Sequence[VerdictRow], bound: float) -> None:
    """Raise when more rollouts than are allowed cannot be read as a chain with a plan."""
    unread = [row for row in verdicts if row.reading_fault is not None]
    if len(unread) > bound * len(verdicts):
        raise PlansmithError(
            "too many rollouts cannot be read",
            where=unread[0].rollout_id,
            got=f"{len(unread)} of {len(verdicts)}, the first because of: {unread[0].reading_fault}",
            expected=f"at most a share of {bound:g} (phase2.max_unjudged_share)",
            cure="look at the completions in the stage roll_out; raise phase2.max_new_tokens if they are cut off",
        )


def losses_of_steps(steps: Sequence[JudgedStepRow], weights: LossConfig, *, is_binary: bool) -> list[float]:
    """Return L_step of each judged step as printed (equations 5 to 7)."""
    return [
        step_loss(row.state_distance, FeedbackCode(row.feedback_code), weights, is_binary=is_binary) for row in steps
    ]


def step_loss_scale(losses: Sequence[float]) -> float:
    """Return the standard deviation of the step losses of an iteration; 1 where there is nothing to compare.

    A badly claimed state costs ten atoms and more. Unscaled, a few such steps would outweigh the likelihood of all the
    right ones: a policy that we let train on the raw losses forgot how to write a chain.
    """
    deviation = pstdev(losses) if len(losses) > 1 else 0.0
    return deviation if deviation > 0 else 1.0


def learning_rows(
    context: StageContext[Any],
    rollouts: Sequence[RolloutRow],
    verdicts: Sequence[VerdictRow],
    steps: Sequence[JudgedStepRow],
    losses: Sequence[float],
) -> list[LearningRow]:
    """Return what is known about each problem; the baseline is the mean failure of the other rollouts of a group."""
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE2)
    problem_of = {row.problem_id: row for row in solved}
    scale, continuations = step_loss_scale(losses), context.inputs["replans"].rows(ContinuationRow, CONTINUATIONS)
    rollouts_of, verdicts_by = _by(row.problem_id for row in rollouts), _by(row.problem_id for row in verdicts)
    steps_of, continued = _by(row.problem_id for row in steps), _by(row.problem_id for row in continuations)
    return [
        LearningRow(
            problem_id,
            problem_of[problem_id],
            tuple(rollouts[i] for i in rollouts_of[problem_id]),
            tuple(verdicts[i] for i in indices),
            tuple(steps[i] for i in steps_of[problem_id]),
            tuple(losses[i] / scale for i in steps_of[problem_id]),
            tuple(leave_one_out([1.0 - int(verdicts[i].is_valid) for i in indices])),
            tuple(continuations[i] for i in continued[problem_id]),
        )
        for problem_id, indices in verdicts_by.items()
    ]


def _by(names: Iterable[str]) -> Mapping[str, list[int]]:
    """Return the positions of each name."""
    positions: dict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        positions[name].append(position)
    return positions


def write_lessons(context: StageContext[DatasetSettings], rows: Sequence[LearningRow]) -> Path:
    """Write what is learnt, the sequences of both stages and corrections as text; return the path of stage 2's."""
    settings = context.settings
    lessons = worked_rows(
        context,
        rows,
        (LearningRow, LessonRow),
        FeedbackWriter,
        {
            "model": str(context.inputs["policy"].path(MODEL)),
            "rendering": settings.rendering,
            "corrections": settings.corrections,
            "names": settings.object_names,
            "has_verdicts": settings.verdict_weight is not None,
            "held_out": HeldOut.of(context.inputs["problems"].rows(ProblemRow)),
            "seed": context.seed,
            "stage": context.stage.name,
        },
        n_rollouts=sum(len(row.rollouts) for row in rows),
        description="building data sets",
    )
    corrected = [row for lesson in lessons for row in lesson.corrections]
    continued = [row for lesson in lessons for row in lesson.continuations]
    reasoning: Iterable[SequenceRow] = (row for lesson in lessons for row in lesson.reasoning)
    if settings.verdict_weight is not None:
        reasoning = weigh_verdicts(reasoning, settings.verdict_weight)
    context.output.write_rows(reasoning, SequenceRow, table="stage1")
    context.output.write_rows([*corrected, *continued], ExampleRow, table="corrections")
    return context.output.write_rows((row for lesson in lessons for row in lesson.final), SequenceRow, table="stage2")


def _final_row(verdict: VerdictRow, v_hat: float | None, weights: LossConfig) -> FinalPlanRow:
    v = int(verdict.is_valid)
    return FinalPlanRow(
        rollout_id=verdict.rollout_id,
        problem_id=verdict.problem_id,
        iteration=verdict.iteration,
        policy_version=verdict.policy_version,
        plan=verdict.plan,
        v=v,
        v_hat=v_hat,
        plan_loss=plan_loss(v, v_hat, weights),
    )


def _write_metrics(
    context: StageContext[Any],
    rollouts: Sequence[RolloutRow],
    verdicts: Sequence[VerdictRow],
    step_losses: Sequence[float],
    plan_losses: Sequence[float],
) -> None:
    numbers = {
        "loss/reasoning_as_printed": fmean(step_losses) if step_losses else 0.0,
        "loss/final_as_printed": fmean(plan_losses),
        "rollout/valid_plan_rate": fmean(row.is_valid for row in verdicts),
        "rollout/unreadable_rate": fmean(row.reading_fault is not None for row in verdicts),
        "rollout/unread_reason_rate": fmean(row.unread_reasons > 0 for row in verdicts),
        "rollout/truncated_rate": fmean(row.finish_reason == FinishReason.LENGTH for row in rollouts),
        "rollout/tokens": float(sum(len(row.token_ids) for row in rollouts)),
    }
    iteration = verdicts[0].iteration
    rows = [MetricRow(context.stage.name, iteration, "", "", name, value) for name, value in numbers.items()]
    context.output.write_rows(rows, MetricRow, table="metrics")
