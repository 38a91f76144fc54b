"""Worker that turns the judged rollouts of a problem into training sequences and corrected chains.

Nothing is judged here: verdicts and steps come as rows. What needs the whole iteration, the scale of the step losses
and the baselines, comes with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plansmith.config.chains import ChainConfig
from plansmith.config.pddl_instruct import CorrectionConfig
from plansmith.data.examples import (
    chain_examples,
    confirmation_example,
    continuation_examples,
    correction_example,
    mending_example,
)
from plansmith.data.held_out import HeldOut
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
    told_by_step,
    with_true_verdict,
)
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode, token_spans, verdict_endings
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.stages import row_seed
from plansmith.text.explanations import Attempt, FeedbackKind
from plansmith.text.rendering import rendering_of


@dataclass(frozen=True, slots=True)
class _Judged:
    """A rollout with its tokens, its verdict, and its steps with their scaled losses.

    ``held_out_after`` so many steps it has come to a problem that only measures, None: never. Nothing of what follows
    is learnt from. In the first ``n_exemplary`` tokens nothing is wrong or needless, or must not be learnt from.
    """

    rollout: RolloutRow
    tokens: SampledTokens
    verdict: VerdictRow
    baseline: float
    steps: Sequence[JudgedStepRow]
    losses: Sequence[float]
    held_out_after: int | None
    n_exemplary: int

    @property
    def is_exemplary(self) -> bool:
        """Return whether all of it is."""
        return self.n_exemplary == len(self.tokens.completion_ids)

    @property
    def learnt(self) -> slice:
        """Return which steps are learnt from."""
        return slice(self.held_out_after)


class FeedbackWriter:
    """Writes what an iteration learns, problem by problem.

    Args:
        model: folder of the policy that wrote the rollouts; its tokenizer is used.
        rendering: of the run.
        corrections: what is made of failed attempts, and the weights of the losses.
        chains: what corrected chains tell beside their steps.
        names: objects' names for renamed copies.
        held_out: what must not be learnt from.
        has_verdicts: the rollouts' true verdicts are learnt in stage 1.
        seed: of the run.
        stage: whose random numbers the copies of corrected chains take.
    """

    def __init__(
        self,
        *,
        model: str,
        rendering: str,
        corrections: CorrectionConfig,
        chains: ChainConfig,
        names: Sequence[str],
        held_out: HeldOut,
        has_verdicts: bool,
        seed: int,
        stage: str,
    ) -> None:
        self._tokenizer, self._rendering = load_tokenizer(model), rendering_of(rendering)
        self._endings, self._has_verdicts = verdict_endings(self._tokenizer, model), has_verdicts
        self._config, self._names, self._seed, self._stage = corrections, names, seed, stage
        self._chains = chains
        self._held_out, self._is_binary = held_out, FeedbackKind(corrections.feedback) is FeedbackKind.BINARY

    def __call__(self, rows: Sequence[LearningRow]) -> list[LessonRow]:
        """Return what is learnt from each problem."""
        return [self.lesson(row) for row in rows]

    def lesson(self, row: LearningRow) -> LessonRow:
        """Return what is learnt from the rollouts of one problem."""
        judged = list(self._judged(row))
        return LessonRow(
            row.problem_id,
            tuple(sequence for item in judged for sequence in self._reasoning(item)),
            tuple(self._final(item) for item in judged),
            (*self._corrections(row), *self._confirmations(row, judged)),
            tuple(self._continuations(row, judged)),
        )

    def _judged(self, row: LearningRow) -> Iterator[_Judged]:
        first, task = 0, PlanningTask.from_text(row.problem.domain_pddl, row.problem.problem_pddl)
        needed_of = {item.rollout_id: item.needed_steps for item in row.continuations}
        for rollout, verdict, baseline in zip(row.rollouts, row.verdicts, row.baselines, strict=True):
            _, spans = token_spans(self._tokenizer, rollout.token_ids)
            tokens = SampledTokens(rollout.prompt_token_ids, rollout.token_ids, tuple(spans))
            own = slice(first, first + verdict.n_steps)
            steps = [told_by_step(step) if self._is_binary else step for step in row.steps[own]]
            met = self._held_out.met_by_chain(task, row.steps[own])
            if met is None and verdict.is_flawless and len(verdict.plan) <= len(row.problem.plan):
                n_exemplary = len(rollout.token_ids)
            else:
                needed = steps[:met][: needed_of.get(rollout.rollout_id, 0)]
                n_exemplary = tokens.before(needed[-1].outcome.end) if needed else 0
            yield _Judged(rollout, tokens, verdict, baseline, steps, row.step_losses[own], met, n_exemplary)
            first = own.stop

    def _reasoning(self, item: _Judged) -> Iterator[SequenceRow]:
        """Yield the rollout with step weights and its true verdict, and the expected words at its first fault."""
        verdict, tokens, steps, place = item.verdict, item.tokens, item.steps[item.learnt], item.verdict.expected_at
        sequence = reasoning_sequence(tokens, steps, item.losses[item.learnt], n_exemplary=item.n_exemplary)
        is_whole = verdict.reading_fault is None and item.held_out_after is None
        if self._has_verdicts and verdict.verdict_span is not None and is_whole:
            v = int(verdict.is_valid)
            sequence = with_true_verdict(sequence, tokens, verdict.verdict_span, self._endings[1 - v], v=v)
        yield sequence.row(f"{item.rollout.rollout_id}-steps")
        if verdict.expected_words is not None and place is not None and self._is_told(verdict, steps):
            n_kept = tokens.before(place)
            end = tokens.spans[n_kept - 1].end if n_kept else 0
            # tokens may end before the words do: with the space or the line break between
            expected = encode(self._tokenizer, item.rollout.completion[end:place] + verdict.expected_words)
            yield expected_words_sequence(tokens, n_kept, expected).row(f"{item.rollout.rollout_id}-expected")

    def _is_told(self, verdict: VerdictRow, learnt: Sequence[JudgedStepRow]) -> bool:
        """Return whether the words expected at the first fault are learnt; binary feedback has whole outcomes only."""
        if verdict.first_fault is None or verdict.first_fault > len(learnt):
            return False
        return not self._is_binary or verdict.expected_at == learnt[verdict.first_fault - 1].outcome.start

    def _final(self, item: _Judged) -> SequenceRow:
        verdict = item.verdict
        spans, is_whole = [step.choice for step in item.steps[item.learnt]], item.held_out_after is None
        sequence = final_sequence(
            item.tokens,
            [*spans, verdict.final_plan_span] if is_whole and verdict.final_plan_span is not None else spans,
            verdict.verdict_span if is_whole else None,
            v=int(verdict.is_valid),
            baseline=item.baseline,
            weights=self._config.losses,
            is_exemplary=item.is_exemplary,
        )
        return sequence.row(item.rollout.rollout_id)

    def _corrections(self, row: LearningRow) -> Iterator[ExampleRow]:
        """Yield the corrected chain from the plain prompt, and failed attempts with their feedback before it."""
        failed = [verdict for verdict in row.verdicts if not verdict.is_valid]
        if failed:
            seed = row_seed(self._seed, self._stage, row.problem_id)
            copies = self._config.correction_renamings
            yield from chain_examples(
                row.problem, self._rendering, self._names, n_renamings=copies, seed=seed, chains=self._chains
            )
        for verdict in self._handed_back(row):
            attempt, tells_start = self._attempt(verdict), self._chains.tells_start
            yield correction_example(verdict.rollout_id, row.problem, attempt, self._rendering, tells_start=tells_start)

    def _confirmations(self, row: LearningRow, judged: Sequence[_Judged]) -> Iterator[ExampleRow]:
        """Yield valid attempts with their feedback, explained."""
        feedback = FeedbackKind(self._config.feedback)
        valid = [item.verdict for item in judged if item.verdict.is_valid and item.held_out_after is None]
        for verdict in valid[: self._config.confirmations_per_problem]:
            plan = tuple(parse_step(step) for step in verdict.plan)
            attempt = Attempt(plan, (True,) * len(plan), None, (), verdict.report)
            yield confirmation_example(verdict.rollout_id, row.problem, attempt, self._rendering, feedback)

    def _continuations(self, row: LearningRow, judged: Sequence[_Judged]) -> Iterator[ExampleRow]:
        """Yield attempts that the planner continues, without and with feedback.

        None is among them whose kept steps pass a problem that only measures.
        """
        item_of = {item.rollout.rollout_id: item for item in judged}
        task = PlanningTask.from_text(row.problem.domain_pddl, row.problem.problem_pddl)
        handed_back = {verdict.rollout_id for verdict in self._handed_back(row)}
        for continuation in row.continuations:
            item, n_kept = item_of[continuation.rollout_id], continuation.kept_steps
            if item.held_out_after is None or n_kept < item.held_out_after:
                read = self._rendering.read(item.rollout.completion, task.domain)  # for the reasons; rows have none
                kept, plan = read.chain.steps[:n_kept], [parse_step(step) for step in continuation.plan]
                yield from continuation_examples(
                    continuation.rollout_id,
                    row.problem_id,
                    task,
                    kept,
                    plan,
                    self._rendering,
                    self._names,
                    n_renamings=self._config.continuation_renamings,
                    seed=self._seed,
                    tells_start=self._chains.tells_start,
                )
                if kept and n_kept == item.verdict.sound_steps and continuation.rollout_id in handed_back:
                    attempt = self._attempt(item.verdict)
                    yield mending_example(
                        continuation.rollout_id, row.problem, attempt, kept, plan, self._rendering,
                        tells_start=self._chains.tells_start,
                    )  # fmt: skip

    def _handed_back(self, row: LearningRow) -> list[VerdictRow]:
        """Return the failed attempts that are trained on with their feedback before the answer."""
        failed = [verdict for verdict in row.verdicts if not verdict.is_valid]
        return [verdict for verdict in failed[: self._config.corrections_per_problem] if self._attempt(verdict)]

    def _attempt(self, verdict: VerdictRow) -> str:
        """Return a failed attempt as it is handed back; empty where the rendering has no words for it."""
        return verdict.handed_back(FeedbackKind(self._config.feedback)) or ""
