"""How well a policy verifies: explanations of given plans after phase 1, and its verdicts on its own test plans.

The paper's future work ("Self-Verification Capabilities"). v is the validator's, v_hat the probability that the policy
gives to the word VALID against INVALID where it states its verdict.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pipelines.run.workers import MODEL
from pipelines.stages.generating import GenerationSettings, rollouts_of
from pipelines.stages.phase1_data import solved_problems
from plansmith.config.training import LossConfig, Numerics
from plansmith.data.examples import corrupted_row, invalid_explanation, valid_explanation
from plansmith.data.rows import ExampleRow, RolloutRow, SolvedProblemRow, Split, VerdictRow, VerificationRow
from plansmith.generation import asking
from plansmith.learning.feedback import SampledTokens, final_sequence
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import token_spans
from plansmith.pddl.grounding import PlanningTask
from plansmith.problems.corruption import Corruption
from plansmith.report.arms import chosen_iteration
from plansmith.stages import StageContext
from plansmith.text.rendering import Rendering, rendering_of


class ExplainingSettings(GenerationSettings):
    """What the policy of phase 1 explains."""

    n_explained: int
    """Plans, half of them corrupted."""


def explain_plans(context: StageContext[ExplainingSettings]) -> None:
    """Let the policy explain plans of D2's problems, half of them corrupted, and compare its verdicts with the truth.

    Table 2's generation settings of phase 1 (temperature 0.7, 1,024 tokens) are of this.
    """
    settings, rendering = context.settings, rendering_of(context.settings.prompting)
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE2)
    examples = plans_to_explain(solved, rendering, count=settings.n_explained, seed=context.seed)
    problems = {row.problem_id: row for row in solved}
    asked = {row.example_id: asking(row.prompt) for row in examples}
    answers = rollouts_of(context, asked, iteration=0, description="explaining plans")
    rows = []
    for example, answer in zip(examples, answers, strict=True):
        problem = problems[example.problem_id]
        task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
        stated = rendering.read(answer.completion, task.domain).chain.verdict
        rows.append(
            VerificationRow(
                example_id=example.example_id,
                problem_id=example.problem_id,
                corruption=example.corruption,
                v=int(example.corruption is None),
                stated_verdict=stated,
                v_hat=None,
                completion=answer.completion,
            )
        )
    context.output.write_rows(rows, VerificationRow)


def plans_to_explain(
    solved: Sequence[SolvedProblemRow], rendering: Rendering, *, count: int, seed: int
) -> list[ExampleRow]:
    """Return explanations of so many plans, in turn a valid one and one of each corruption class.

    Fewer where a plan cannot be corrupted in a way.
    """
    rows = random.Random(f"{seed} explained").sample(list(solved), len(solved))
    classes = list(Corruption)
    found: list[ExampleRow] = []
    for number, row in enumerate(rows):
        if len(found) >= count:
            break
        if number % 2 == 0:
            found.append(valid_explanation(row, rendering, seed=seed))
            continue
        corrupted = corrupted_row(row, classes[number // 2 % len(classes)], seed=seed)
        if corrupted is not None:
            found.append(invalid_explanation(corrupted, rendering))
    return found


def verify_attempts(context: StageContext[Numerics]) -> None:
    """Write v and v_hat of every test attempt of the kept policy."""
    from plansmith.learning.objectives.final import VerdictReader, v_hats  # it brings torch

    policy = context.inputs["policy"]
    folder, chosen = policy.path(MODEL), chosen_iteration(policy)
    tokenizer = load_tokenizer(str(folder))
    verdict_of = {row.rollout_id: row for row in context.inputs[f"judged_{chosen}"].rows(VerdictRow)}
    attempts = [(row, verdict_of[row.rollout_id]) for row in context.inputs[f"tried_{chosen}"].rows(RolloutRow)]
    weights, sequences = LossConfig(), []
    for rollout, verdict in attempts:
        _, spans = token_spans(tokenizer, rollout.token_ids)
        tokens = SampledTokens(rollout.prompt_token_ids, rollout.token_ids, tuple(spans))
        v, span = int(verdict.is_valid), verdict.verdict_span
        sequences.append(final_sequence(tokens, [], span, v=v, baseline=0.0, weights=weights))
    read = context.resources.trainer(folder, context.settings).predict(VerdictReader.of(tokenizer), sequences)
    rows = [
        VerificationRow(
            rollout.rollout_id, rollout.problem_id, None, int(verdict.is_valid), verdict.claimed_verdict, v_hat, ""
        )
        for (rollout, verdict), v_hat in zip(attempts, v_hats(read, sequences), strict=True)
    ]
    context.output.write_rows(rows, VerificationRow)
