"""Worker that turns the judged rollouts of a problem into training sequences and corrected chains.

Nothing is judged here: verdicts and steps come as rows. What needs the whole iteration, the scale of the step losses
and the baselines, comes with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plansmith.config.pddl_instruct import CorrectionConfig
from plansmith.data.examples import chain_examples, continuation_examples, correction_example
from plansmith.data.rows import (
    ExampleRow,
    JudgedStepRow,
    LearningRow,
    LessonRow,
    RolloutRow,
    SequenceRow,
    VerdictRow,
)
from plansmith.learning.feedback import (
    SampledTokens,
    expected_words_sequence,
    final_sequence,
    reasoning_sequence,
)
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode, token_spans
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.stages import row_seed
from plansmith.text.explanations import FeedbackKind
from plansmith.text.rendering import rendering_of


@dataclass(frozen=True, slots=True)
class _Judged:
    """A rollout with its tokens, its verdict, and its steps with their scaled losses."""

    rollout: RolloutRow
    tokens: SampledTokens
    verdict: VerdictRow
    baseline: float
    steps: Sequence[JudgedStepRow]
    losses: Sequence[float]


class FeedbackWriter:
    """Writes what an iteration learns, problem by problem.

    Args:
        model: folder of the policy that wrote the rollouts; its tokenizer is used.
        rendering: of the run.
        corrections: what is made of failed attempts, and the weights of the losses.
        names: objects' names for renamed copies.
        seed: of the run.
        stage: whose random numbers the copies of corrected chains take.
    """

    def __init__(
        self,
        *,
        model: str,
        rendering: str,
        corrections: CorrectionConfig,
        names: Sequence[str],
        seed: int,
        stage: str,
    ) -> None:
        self._tokenizer, self._rendering = load_tokenizer(model), rendering_of(rendering)
        self._config, self._names, self._seed, self._stage = corrections, names, seed, stage

    def __call__(self, rows: Sequence[LearningRow]) -> list[LessonRow]:
        """Return what is learnt from each problem."""
        return [self.lesson(row) for row in rows]

    def lesson(self, row: LearningRow) -> LessonRow:
        """Return what is learnt from the rollouts of one problem."""
        judged = list(self._judged(row))
        return LessonRow(
            row.problem_id,
            tuple(sequence for item in judged for sequence in self._reasoning(item, len(row.problem.plan))),
            tuple(self._final(item) for item in judged),
            tuple(self._corrections(row)),
            tuple(self._continuations(row)),
        )

    def _judged(self, row: LearningRow) -> Iterator[_Judged]:
        first = 0
        for rollout, verdict, baseline in zip(row.rollouts, row.verdicts, row.baselines, strict=True):
            _, spans = token_spans(self._tokenizer, rollout.token_ids)
            tokens = SampledTokens(rollout.prompt_token_ids, rollout.token_ids, tuple(spans))
            own = slice(first, first + verdict.n_steps)
            yield _Judged(rollout, tokens, verdict, baseline, row.steps[own], row.step_losses[own])
            first = own.stop

    def _reasoning(self, item: _Judged, planner_plan_length: int) -> Iterator[SequenceRow]:
        """Yield the rollout with step weights, and the expected words at its first fault."""
        verdict, tokens, place = item.verdict, item.tokens, item.verdict.expected_at
        is_exemplary = verdict.is_flawless and len(verdict.plan) <= planner_plan_length
        sequence = reasoning_sequence(tokens, item.steps, item.losses, is_exemplary=is_exemplary)
        yield sequence.row(f"{item.rollout.rollout_id}-steps")
        if verdict.expected_words is not None and place is not None:
            n_kept = tokens.before(place)
            end = tokens.spans[n_kept - 1].end if n_kept else 0
            # tokens may end before the words do: with the space or the line break between
            expected = encode(self._tokenizer, item.rollout.completion[end:place] + verdict.expected_words)
            yield expected_words_sequence(tokens, n_kept, expected).row(f"{item.rollout.rollout_id}-expected")

    def _final(self, item: _Judged) -> SequenceRow:
        verdict = item.verdict
        spans = [step.choice for step in item.steps]
        sequence = final_sequence(
            item.tokens,
            spans if verdict.final_plan_span is None else [*spans, verdict.final_plan_span],
            verdict.verdict_span,
            v=int(verdict.is_valid),
            baseline=item.baseline,
            weights=self._config.losses,
            is_flawless=verdict.is_flawless,
        )
        return sequence.row(item.rollout.rollout_id)

    def _corrections(self, row: LearningRow) -> Iterator[ExampleRow]:
        """Yield the corrected chain from the plain prompt, and failed attempts with their feedback before it."""
        failed = [verdict for verdict in row.verdicts if not verdict.is_valid]
        if failed:
            seed = row_seed(self._seed, self._stage, row.problem_id)
            copies = self._config.correction_renamings
            yield from chain_examples(row.problem, self._rendering, self._names, n_renamings=copies, seed=seed)
        for verdict in failed[: self._config.corrections_per_problem]:
            attempt = verdict.handed_back(FeedbackKind(self._config.feedback))
            if attempt is not None:
                yield correction_example(verdict.rollout_id, row.problem, attempt, self._rendering)

    def _continuations(self, row: LearningRow) -> Iterator[ExampleRow]:
        """Yield the failed attempts, each continued by the planner from its last sound state."""
        plan_of = {plan.problem_id: plan.plan for plan in row.replans}
        task = PlanningTask.from_text(row.problem.domain_pddl, row.problem.problem_pddl) if plan_of else None
        for rollout, verdict in zip(row.rollouts, row.verdicts, strict=True):
            if task is not None and rollout.rollout_id in plan_of:
                read = self._rendering.read(rollout.completion, task.domain)  # for the reasons; rows have none
                yield from continuation_examples(
                    rollout.rollout_id,
                    row.problem_id,
                    task,
                    read.chain.steps[: verdict.sound_steps],
                    [parse_step(step) for step in plan_of[rollout.rollout_id]],
                    self._rendering,
                    self._names,
                    n_renamings=self._config.continuation_renamings,
                    seed=self._seed,
                )
