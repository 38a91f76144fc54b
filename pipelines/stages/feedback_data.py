"""Stages that turn judged rollouts into what is trained on: replan, build both data sets (algorithm 1, lines 17-27)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from pydantic import Field

from actors.feedback_writer import FeedbackWriter
from actors.planner import Replanner
from pipelines.run.workers import MODEL, policy_version
from pipelines.stages.few_rows import worked_rows
from pipelines.stages.judging import STEPS, steps_of
from pipelines.stages.phase1_data import solved_problems
from plansmith.config.basics import StrictModel
from plansmith.config.chains import ChainConfig
from plansmith.config.pddl_instruct import CorrectionConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import LossConfig, Numerics
from plansmith.data.artifacts import Shards
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import (
    CUT,
    AttemptRow,
    ContinuationRow,
    ExampleRow,
    FinalPlanRow,
    JudgedStepRow,
    LearningRow,
    LessonRow,
    MetricRow,
    PlanRow,
    ProblemRow,
    ReplannedRow,
    RolloutRow,
    SequenceRow,
    Split,
    StepLossRow,
    VerdictRow,
)
from plansmith.errors import PlansmithError, StalePolicyError
from plansmith.learning.feedback import leave_one_out, weigh_verdicts
from plansmith.learning.models import load_tokenizer
from plansmith.learning.objectives.final import VerdictReader, v_hats
from plansmith.learning.printed_losses import plan_loss, step_loss
from plansmith.learning.sequence_files import StoredSequences
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
    chains: ChainConfig
    """What corrected chains tell beside their steps."""
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
    """Plan on from where attempts are still good: the sound part of failed ones, and what comes before a detour."""
    found: list[ReplannedRow] = []
    if context.settings.is_on:
        attempts, shards = attempts_of(context), Shards(context.output.scratch("replanned"), "rows", ReplannedRow)
        context.resources.map_rows(
            attempts,
            AttemptRow,
            Replanner,
            shards=shards,
            batch_size=16,
            id_column="rollout_id",
            description="planning on from attempts",
            worker_settings={
                "config": context.settings.planner,
                "held_out": HeldOut.of(context.inputs["problems"].rows(ProblemRow)),
            },
        )
        found = shards.merged_rows()
    context.output.write_rows((plan for row in found for plan in row.plans), PlanRow)
    continuations = (item for row in found for item in row.continuations)
    context.output.write_rows(continuations, ContinuationRow, table=CONTINUATIONS)


def attempts_of(context: StageContext[Any]) -> list[AttemptRow]:
    """Return the attempts that may go on better: all but the flawless ones that cost no more than they must.

    A valid one that says something false is sound up to there: what is false of an order is where a detour begins.
    """
    problems = {row.problem_id: row for row in context.inputs["problems"].rows(ProblemRow)}
    optimum_of = {row.problem_id: row.cost for row in context.inputs["plans"].rows(PlanRow) if row.is_optimal}
    steps = steps_of(context.inputs["verdicts"])
    attempts = []
    for row in verdicts_of(context):
        optimum, is_whole = optimum_of.get(row.problem_id), row.is_flawless
        if is_whole and not (row.plan_cost and optimum and row.plan_cost > optimum):
            continue
        n_sound = row.n_steps if is_whole else row.sound_steps
        taken = (
            step for step in steps.get(row.rollout_id, [])[:n_sound] if step.feedback_code != FeedbackCode.WITHDRAWN
        )
        plan = tuple(step.action for step in taken)
        attempts.append(AttemptRow(row.rollout_id, problems[row.problem_id], n_sound, plan, is_whole, optimum))
    return attempts


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
    step_places, continued = _by(row.problem_id for row in steps), _by(row.problem_id for row in continuations)
    return [
        LearningRow(
            problem_id,
            problem_of[problem_id],
            tuple(rollouts[i] for i in rollouts_of[problem_id]),
            tuple(verdicts[i] for i in indices),
            tuple(steps[i] for i in step_places[problem_id]),
            tuple(losses[i] / scale for i in step_places[problem_id]),
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
            "chains": settings.chains,
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
        "rollout/truncated_rate": fmean(row.finish_reason in CUT for row in rollouts),
        "rollout/tokens": float(sum(len(row.token_ids) for row in rollouts)),
    }
    iteration = verdicts[0].iteration
    rows = [MetricRow(context.stage.name, iteration, "", "", name, value) for name, value in numbers.items()]
    context.output.write_rows(rows, MetricRow, table="metrics")
