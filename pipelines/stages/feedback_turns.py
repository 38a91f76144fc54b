"""The inference loop: a failed plan goes back to the policy with the validator's feedback, up to k times.

Source: LLM-Modulo (arXiv 2402.01817), which section 8 of PDDL-INSTRUCT proposes to combine it with. The policy's
weights do not change, and the validator judges every turn; measured is how many problems are solved after k turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pipelines.stages.generating import GenerationSettings, rollouts_of
from pipelines.stages.judging import verdicts_on
from plansmith.data.rows import ProblemRow, RolloutRow, VerdictRow
from plansmith.generation import Conversation, asking
from plansmith.judging.judge import PlanJudge
from plansmith.pddl.grounding import PlanningTask
from plansmith.report.arms import chosen_iteration
from plansmith.stages import StageContext
from plansmith.text.explanations import FeedbackKind
from plansmith.text.rendering import rendering_of

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
    problems = {row.problem_id: row for row in context.inputs["problems"].rows(ProblemRow)}
    judge, chosen = PlanJudge(settings.prompting), chosen_iteration(context.inputs["policy"])
    rollouts, verdicts = context.output.shards("rows", RolloutRow), context.output.shards(VERDICTS, VerdictRow)
    judged = verdicts.finished_ids("rollout_id")
    verdicts.append(
        verdicts_on([row for row in rollouts.merged_rows() if row.rollout_id not in judged], problems, judge)
    )
    known = sorted(verdicts.merged_rows(), key=lambda row: row.iteration)
    latest = {row.problem_id: row for row in [*context.inputs[f"judged_{chosen}"].rows(VerdictRow), *known]}
    first = 1 + (known[-1].iteration if known else 0)
    for turn in range(first, settings.n_turns + 1):
        asked = dict(_handed_back(context, latest.values(), problems))
        if not asked:
            break
        description = f"handing failed plans back, turn {turn}"
        answers = rollouts_of(context, asked, iteration=turn, description=description)
        rollouts.append(answers)
        verdicts.append(verdicts_on(answers, problems, judge))
        latest = {row.problem_id: row for row in verdicts.merged_rows() if row.iteration == turn}


def _handed_back(
    context: StageContext[FeedbackTurnSettings], verdicts: Iterable[VerdictRow], problems: Mapping[str, ProblemRow]
) -> Iterator[tuple[str, Conversation]]:
    """Yield the conversation that hands each failed attempt back, with the problem's id."""
    rendering = rendering_of(context.settings.prompting)
    for verdict in verdicts:
        problem, attempt = problems[verdict.problem_id], verdict.handed_back(context.settings.feedback)
        if attempt is not None:
            task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
            yield verdict.problem_id, asking(rendering.correct_prompt(task, attempt))
