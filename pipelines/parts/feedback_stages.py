"""Stages that turn judged rollouts into what is trained on: replan, build both data sets (algorithm 1, lines 17-27)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any

from pydantic import Field

from pipelines.parts.problem_stages import solve_problems, solved_problems
from pipelines.parts.workers import MODEL, policy_version
from plansmith.config.basics import StrictModel
from plansmith.config.models import CorrectionConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import Numerics
from plansmith.data.examples import chain_examples, continuation_examples, correction_example, solved_task
from plansmith.data.rows import (
    ExampleRow,
    FinalPlanRow,
    MetricRow,
    PlanRow,
    ProblemRow,
    ReasoningStepRow,
    RolloutRow,
    SequenceRow,
    SolvedProblemRow,
    Split,
)
from plansmith.errors import PlansmithError, StalePolicyError
from plansmith.judging.chains import (
    JudgedChain,
    attempt_of,
    judge_completion,
    loss_of_step,
    reasoning_rows,
    sound_steps,
)
from plansmith.learning.feedback import (
    SampledTokens,
    expected_outcome_sequence,
    final_sequence,
    is_right,
    leave_one_out,
    reasoning_sequence,
)
from plansmith.learning.models import load_tokenizer
from plansmith.learning.printed_losses import LossWeights, plan_loss
from plansmith.learning.sequences import TrainingSequence
from plansmith.learning.tokenizer import encode, token_spans
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_problem
from plansmith.stages import StageContext
from plansmith.text.chains import true_step
from plansmith.text.explanations import FeedbackKind
from plansmith.text.rendering import rendering_of


class ReplanSettings(StrictModel):
    """How failed attempts are planned on."""

    planner: PlannerConfig
    """Which planner, within which limits."""
    rendering: str
    """How attempts are written."""
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
    max_unjudged_share: float = Field(exclude=True)
    """The run ends when more than this share of the rollouts cannot be read; changes no row."""


def replan(context: StageContext[ReplanSettings]) -> None:
    """Solve anew, from the state after their last sound step, the problems of failed attempts.

    Such a problem may have the canonical form of a test problem; it is left out then.
    """
    if not context.settings.is_on:
        context.output.write_rows([], PlanRow)
        return
    problems = {row.problem_id: row for row in context.inputs["problems"].rows(ProblemRow)}
    test_forms = {row.canonical_form for row in problems.values() if row.split == Split.TEST}
    failed = [item for item in judged_rollouts(context, context.settings.rendering) if not item.v]
    ahead = [problem_ahead(problems[item.rollout.problem_id], item) for item in failed]
    rows = [row for row in ahead if row.canonical_form not in test_forms]
    solve_problems(context, rows, context.settings.planner, description="planning on from failed attempts")


def problem_ahead(tried: ProblemRow, item: Judged) -> ProblemRow:
    """Return what is left of a problem after the sound steps of an attempt at it, under the attempt's id."""
    kept = item.chain.steps[: sound_steps(item.task, item.chain)]
    ahead = replace(item.task.problem, init=kept[-1].s_claimed) if kept else item.task.problem
    return replace(
        tried,
        problem_id=item.rollout.rollout_id,
        canonical_form=canonical_form(item.task.domain, ahead),
        problem_pddl=print_problem(ahead),
        source="rollout",
    )


@dataclass(frozen=True)
class Judged:
    """A rollout with its judgement, its tokens and the solved problem it tried."""

    rollout: RolloutRow
    problem: SolvedProblemRow
    task: PlanningTask
    chain: JudgedChain
    tokens: SampledTokens

    @property
    def v(self) -> int:
        """Return the validator's label of the plan."""
        return int(self.chain.verdict.is_valid)

    @property
    def is_flawless(self) -> bool:
        """Return whether the plan is valid and so is every claim about its steps."""
        return bool(self.v) and self.chain.first_fault is None

    @property
    def is_exemplary(self) -> bool:
        """Return whether the rollout is flawless and its plan no longer than the planner's."""
        return self.is_flawless and len(self.chain.verdict.plan) <= len(self.problem.plan)


def build_datasets(context: StageContext[DatasetSettings]) -> None:
    """Build D_reasoning and D_final with their training sequences (equations 10 and 11)."""
    settings = context.settings
    policy = context.inputs["policy"]
    weights = LossWeights(**settings.corrections.losses.model_dump())
    is_binary = FeedbackKind(settings.corrections.feedback) is FeedbackKind.BINARY
    judged = judged_rollouts(context, settings.rendering)
    losses = [[loss_of_step(step, weights, is_binary=is_binary) for step in item.chain.steps] for item in judged]
    write_reasoning(context, judged, losses)
    context.output.write_rows(
        [
            row
            for item in judged
            for row in reasoning_rows(item.task, item.rollout, item.chain, weights, is_binary=is_binary)
        ],
        ReasoningStepRow, table="reasoning_steps",
    )  # fmt: skip
    sequences = write_final(context, judged, weights)
    trainer = context.resources.trainer(policy.path(MODEL), settings.numerics)
    v_hats = trainer.verdict_probabilities(sequences)
    finals = [_final_row(item, v_hat, weights) for item, v_hat in zip(judged, v_hats, strict=True)]
    context.output.write_rows(finals, FinalPlanRow, table="final_plans")
    write_corrections(context, judged)
    _check_readable(judged, settings.max_unjudged_share)
    _write_metrics(context, judged, [loss for steps in losses for loss in steps], [row.plan_loss for row in finals])


def _check_readable(judged: Sequence[Judged], bound: float) -> None:
    """Raise when more rollouts than are allowed cannot be read as a chain with a plan."""
    unread = [item for item in judged if item.chain.read.fault is not None]
    if len(unread) > bound * len(judged):
        raise PlansmithError(
            "too many rollouts cannot be read",
            where=unread[0].rollout.rollout_id,
            got=f"{len(unread)} of {len(judged)}, the first because of: {unread[0].chain.read.fault}",
            expected=f"at most a share of {bound:g} (phase2.max_unjudged_share)",
            cure="look at the completions in the stage roll_out; raise phase2.max_new_tokens if they are cut off",
        )


def judged_rollouts(context: StageContext[Any], rendering_name: str) -> list[Judged]:
    """Return the rollouts of the iteration with everything known about them.

    Raises:
        StalePolicyError: a rollout was not written by the policy that is about to be trained.
    """
    rendering = rendering_of(rendering_name)
    policy = context.inputs["policy"]
    tokenizer = load_tokenizer(str(policy.path(MODEL)))
    solved = {
        row.problem_id: row
        for row in solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE2)
    }
    tasks = {key: solved_task(row)[0] for key, row in solved.items()}
    rollouts = context.inputs["rollouts"].rows(RolloutRow)
    judged = []
    with context.progress(len(rollouts), "building data sets", unit="rollout") as bar:
        for rollout in rollouts:
            if rollout.policy_version != policy_version(policy):
                raise StalePolicyError("a rollout of another policy", where=rollout.rollout_id,
                                       got=rollout.policy_version, expected=policy_version(policy))  # fmt: skip
            task = tasks[rollout.problem_id]
            chain = judge_completion(task, rollout.completion, rendering)
            _, spans = token_spans(tokenizer, rollout.token_ids)
            tokens = SampledTokens(rollout.prompt_token_ids, rollout.token_ids, tuple(spans))
            judged.append(Judged(rollout, solved[rollout.problem_id], task, chain, tokens))
            bar.update()
    return judged


def write_reasoning(
    context: StageContext[DatasetSettings], judged: Sequence[Judged], losses: Sequence[Sequence[float]]
) -> None:
    """Write the sequences of stage 1: rollouts with step weights, and the expected outcome of each first fault."""
    rendering = rendering_of(context.settings.rendering)
    tokenizer = load_tokenizer(str(context.inputs["policy"].path(MODEL)))
    scale = step_loss_scale([loss for steps in losses for loss in steps])
    rows = []
    for item, step_losses in zip(judged, losses, strict=True):
        spans, steps = item.chain.read.spans, item.chain.steps
        scaled = [loss / scale for loss in step_losses]
        codes = [step.judgement.code for step in steps]
        sequence = reasoning_sequence(item.tokens, spans, scaled, codes, is_exemplary=item.is_exemplary)
        rows.append(_sequence_row(item, "steps", sequence))
        fault = item.chain.first_fault
        action = None if fault is None else item.task.ground(steps[fault].action)
        if fault is not None and isinstance(action, GroundAction) and not is_right(steps[fault].judgement.code):
            s_prev, total = steps[fault].s_prev, steps[fault].total_before
            step = true_step(item.task, s_prev, action, total_before=total)
            expected = encode(tokenizer, rendering.separator + rendering.write_outcome(step))
            sequence = expected_outcome_sequence(item.tokens, spans[fault], expected)
            rows.append(_sequence_row(item, "expected", sequence))
    context.output.write_rows(rows, SequenceRow, table="stage1")


def step_loss_scale(losses: Sequence[float]) -> float:
    """Return the standard deviation of the step losses of an iteration; 1 where there is nothing to compare.

    A badly claimed state costs ten atoms and more. Unscaled, a few such steps would outweigh the likelihood of all the
    right ones: a policy that we let train on the raw losses forgot how to write a chain.
    """
    deviation = pstdev(losses) if len(losses) > 1 else 0.0
    return deviation if deviation > 0 else 1.0


def write_final(
    context: StageContext[DatasetSettings], judged: Sequence[Judged], weights: LossWeights
) -> list[TrainingSequence]:
    """Write and return the sequences of stage 2; the baseline is the mean failure of the other rollouts of a group."""
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(judged):
        groups.setdefault(item.rollout.problem_id, []).append(index)
    baselines: dict[int, float] = {}
    for members in groups.values():
        others = leave_one_out([1.0 - judged[index].v for index in members])
        baselines.update(zip(members, others, strict=True))
    sequences = []
    for index, item in enumerate(judged):
        read = item.chain.read
        spans = [span.choice for span in read.spans] + ([read.final_plan_span] if read.final_plan_span else [])
        sequences.append(
            final_sequence(
                item.tokens,
                spans,
                read.verdict_span,
                v=item.v,
                baseline=baselines[index],
                weights=weights,
                is_flawless=item.is_flawless,
            )
        )
    rows = [_sequence_row(item, "final", sequence) for item, sequence in zip(judged, sequences, strict=True)]
    context.output.write_rows(rows, SequenceRow, table="stage2")
    return sequences


def write_corrections(context: StageContext[DatasetSettings], judged: Sequence[Judged]) -> None:
    """Write what failed attempts teach.

    The attempt with its feedback and the corrected chain, that chain from the plain prompt, and the attempt continued.
    """
    settings, loop = context.settings, context.settings.corrections
    rendering, feedback = rendering_of(settings.rendering), FeedbackKind(loop.feedback)
    written: Counter[str] = Counter()
    rows: list[ExampleRow] = []
    for item in judged:
        problem_id = item.rollout.problem_id
        if item.v or written[problem_id] >= max(loop.corrections_per_problem, 1):
            continue
        written[problem_id] += 1
        if written[problem_id] == 1:
            seed = context.row_seed(problem_id)
            names, copies = settings.object_names, loop.correction_renamings
            rows += chain_examples(item.problem, rendering, names, n_renamings=copies, seed=seed)
        if not loop.corrections_per_problem:
            continue
        attempt = attempt_of(item.task, item.chain)
        rows.append(correction_example(item.rollout.rollout_id, item.problem, attempt, feedback, rendering))
    context.output.write_rows(rows + continuations(context, judged), ExampleRow, table="corrections")


def continuations(context: StageContext[DatasetSettings], judged: Iterable[Judged]) -> list[ExampleRow]:
    """Return the failed attempts, each continued by the planner from its last sound state."""
    settings = context.settings
    plan_of = {row.problem_id: row.plan for row in context.inputs["replans"].rows(PlanRow) if row.status == "solved"}
    rendering = rendering_of(settings.rendering)
    rows: list[ExampleRow] = []
    for item in judged:
        rollout = item.rollout
        if rollout.rollout_id in plan_of:
            rows += continuation_examples(
                rollout.rollout_id,
                rollout.problem_id,
                item.task,
                item.chain.read.chain.steps[: sound_steps(item.task, item.chain)],
                [parse_step(step) for step in plan_of[rollout.rollout_id]],
                rendering,
                settings.object_names,
                n_renamings=settings.corrections.continuation_renamings,
                seed=context.seed,
            )
    return rows


def _sequence_row(item: Judged, kind: str, sequence: TrainingSequence) -> SequenceRow:
    return SequenceRow(
        sequence_id=f"{item.rollout.rollout_id}-{kind}",
        rollout_id=item.rollout.rollout_id,
        token_ids=sequence.token_ids,
        nll_weights=sequence.nll_weights,
        score_weights=sequence.score_weights,
        verdict_position=sequence.verdict_position,
        verdict_label=sequence.verdict_label,
    )


def _final_row(item: Judged, v_hat: float | None, weights: LossWeights) -> FinalPlanRow:
    return FinalPlanRow(
        rollout_id=item.rollout.rollout_id,
        problem_id=item.rollout.problem_id,
        iteration=item.rollout.iteration,
        policy_version=item.rollout.policy_version,
        plan=tuple(str(step) for step in item.chain.verdict.plan),
        v=item.v,
        v_hat=v_hat,
        plan_loss=plan_loss(item.v, v_hat, weights),
    )


def _write_metrics(
    context: StageContext[Any], judged: Sequence[Judged], step_losses: Sequence[float], plan_losses: Sequence[float]
) -> None:
    iteration = judged[0].rollout.iteration
    numbers = {
        "loss/reasoning_as_printed": fmean(step_losses) if step_losses else 0.0,
        "loss/final_as_printed": fmean(plan_losses),
        "rollout/valid_plan_rate": fmean(item.v for item in judged),
        "rollout/unreadable_rate": fmean(float(item.chain.read.fault is not None) for item in judged),
        "rollout/truncated_rate": fmean(float(item.rollout.finish_reason == "length") for item in judged),
        "rollout/tokens": float(sum(len(item.rollout.token_ids) for item in judged)),
    }
    rows = [MetricRow(context.stage.name, iteration, "", "", name, value) for name, value in numbers.items()]
    context.output.write_rows(rows, MetricRow, table="metrics")
