"""The inference loop: a failed plan goes back to the policy with the validator's feedback, up to k times.

Source: LLM-Modulo (arXiv 2402.01817), which section 8 of PDDL-INSTRUCT proposes to combine it with. The policy's
weights do not change, and the validator judges every turn; measured is how many problems are solved after k turns.
"""

from __future__ import annotations

from pipelines.parts.evaluation_stages import chosen_iteration
from pipelines.parts.rollout_stages import GenerationSettings, judging_row, sample_prompts
from plansmith.data.rows import ProblemRow, RolloutRow, VerdictRow
from plansmith.judging.chains import attempt_of, judge_completion, judge_row
from plansmith.pddl.grounding import PlanningTask
from plansmith.stages import StageContext
from plansmith.text.explanations import FeedbackKind
from plansmith.text.rendering import Rendering, rendering_of

VERDICTS = "verdicts"
"""Table of the verdicts of all turns."""


class FeedbackTurnSettings(GenerationSettings):
    """How often a failed plan goes back, and with what."""

    n_turns: int
    """Turns at most."""
    feedback: FeedbackKind
    """What the validator says."""


def hand_back(context: StageContext[FeedbackTurnSettings]) -> None:
    """Write the attempts and verdicts of every turn; turn 0 is the evaluation, and a solved problem has no further.

    A turn that is written survives a crash.
    """
    settings = context.settings
    rendering, feedback = rendering_of(settings.sampling.prompting), settings.feedback
    problems = {row.problem_id: row for row in context.inputs["problems"].rows(ProblemRow)}
    rollouts = context.output.shards("rows", RolloutRow)
    known = sorted(rollouts.merged_rows(), key=lambda row: row.iteration)
    tried = context.inputs[f"tried_{chosen_iteration(context.inputs['policy'])}"]
    latest = {row.problem_id: row for row in [*tried.rows(RolloutRow), *known]}
    context.resources.load_policy(context.inputs["policy"], settings.engine)
    first = 1 + (known[-1].iteration if known else 0)
    for turn in range(first, settings.n_turns + 1):
        prompts = {
            problem_id: prompt
            for problem_id, rollout in latest.items()
            if (prompt := _feedback_prompt(problems[problem_id], rollout, rendering, feedback))
        }
        if not prompts:
            break
        answers = _answers(context, prompts, turn)
        rollouts.append(answers)
        latest = {row.problem_id: row for row in answers}
    judged = (judge_row(judging_row(row, problems[row.problem_id]), rendering) for row in rollouts.merged_rows())
    context.output.write_rows(judged, VerdictRow, table=VERDICTS)


def _feedback_prompt(
    problem: ProblemRow, rollout: RolloutRow, rendering: Rendering, feedback: FeedbackKind
) -> str | None:
    """Return the prompt that hands an attempt back, or None for a valid one."""
    task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
    judged = judge_completion(task, rollout.completion, rendering)
    return None if judged.verdict.is_valid else rendering.correct_prompt(task, attempt_of(task, judged), feedback)


def _answers(context: StageContext[FeedbackTurnSettings], prompts: dict[str, str], turn: int) -> list[RolloutRow]:
    sampling = context.settings.sampling.model_copy(update={"iteration": turn})
    description = f"handing failed plans back, turn {turn}"
    return list(sample_prompts(context, list(prompts), list(prompts.values()), sampling, description=description))
