"""Stages in which a policy writes the PDDL of texts, is judged, and gets back what failed (NL-PDDL-Bench, 3.4 and C.2).

The loop sees what validator and planner say of an answer, never the reference; that only measures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from actors.formaliser import AnswerJudge
from pipelines.stages.generating import GenerationSettings, rollouts_of, sample_prompts
from plansmith.config.formalisation import FormalisationConfig
from plansmith.config.planner import PlannerConfig
from plansmith.data.artifacts import Shards
from plansmith.data.rows import AnsweredTextRow, CompletionRow, FormalisedRow, RolloutRow, Split, TextRow
from plansmith.generation import Conversation, asking
from plansmith.stages import StageContext
from plansmith.text.formalisation import repair_prompt

VERDICTS = "verdicts"
"""Table of the verdicts of all turns."""
JUDGED_AT_ONCE = 8
"""Texts whose answers a worker gets at once: one that is searched in vain takes as long as the planner may."""


class TextTrialSettings(GenerationSettings):
    """Which texts are answered."""

    split: Split
    """Those of the problems of a split."""


def try_texts(context: StageContext[TextTrialSettings]) -> None:
    """Let the policy write the problem of every text of a split, once or as often as the sampling says."""
    texts = texts_of(context, context.settings.split)
    asked = {name: asking(row.prompt) for name, row in texts.items()}
    description = context.stage.name.replace("_", " ")
    sample_prompts(context, asked, description=description, is_good=lambda _name, _text: True)


def texts_of(context: StageContext[object], split: Split) -> dict[str, TextRow]:
    """Return the texts of a split by the ids of their problems."""
    return {row.problem_id: row for row in context.inputs["texts"].rows(TextRow) if row.split == split}


def judge_texts(context: StageContext[PlannerConfig]) -> None:
    """Judge every answer with validator, planner and reference."""
    answers = context.inputs["rollouts"].rows(RolloutRow)
    judge_answers(context, context.settings, answers, context.output.shards("rows", FormalisedRow))


def judge_answers(
    context: StageContext[object], planner: PlannerConfig, answers: Iterable[RolloutRow], shards: Shards[FormalisedRow]
) -> None:
    """Write the judgement of each answer that has none yet."""
    texts = {row.problem_id: row for row in context.inputs["texts"].rows(TextRow)}
    by_text: dict[str, list[CompletionRow]] = defaultdict(list)
    for row in answers:
        answer = CompletionRow(row.rollout_id, row.iteration, row.policy_version, row.completion)
        by_text[row.problem_id].append(answer)
    rows = [
        AnsweredTextRow(name, texts[name].domain, texts[name].problem_pddl, texts[name].plan, tuple(found))
        for name, found in by_text.items()
    ]
    context.resources.map_rows(
        rows,
        AnsweredTextRow,
        AnswerJudge,
        shards=shards,
        batch_size=JUDGED_AT_ONCE,
        description="judging answers",
        worker_settings={"config": planner},
    )


class RepairSettings(GenerationSettings):
    """How often a failed answer is asked for again, and with what words."""

    turns: int
    """Turns, at most."""
    feedback: Literal["validator", "none"]
    """What the policy is told: what is wrong with its last answer, or nothing, so that it only tries again."""
    texts: FormalisationConfig
    """How prompts are written."""
    planner: PlannerConfig
    """What solves answers."""


def repair(context: StageContext[RepairSettings]) -> None:
    """Write the further answers and their verdicts, turn by turn; an answer with a plan ends the loop for its text.

    A turn that is written survives a crash.
    """
    settings, verdicts = context.settings, list[FormalisedRow]()
    texts = {row.problem_id: row for row in context.inputs["texts"].rows(TextRow)}
    rollouts = context.output.shards("rows", RolloutRow)
    latest = context.inputs["judged"].rows(FormalisedRow)
    for turn in range(1, settings.turns + 1):
        failed = [row for row in latest if not row.is_solved]
        answers = [row for row in rollouts.merged_rows() if row.iteration == turn]
        if failed and not answers:
            asked = {row.problem_id: _asked_again(texts[row.problem_id], row, settings) for row in failed}
            answers = rollouts_of(context, asked, iteration=turn, first=turn, description=f"asking again, turn {turn}")
            rollouts.append(answers)
        shards = Shards(context.output.scratch(f"turn_{turn}"), "rows", FormalisedRow)
        judge_answers(context, settings.planner, answers, shards)
        latest = shards.merged_rows()
        verdicts += latest
    context.output.write_rows(sorted(verdicts, key=lambda row: row.rollout_id), FormalisedRow, table=VERDICTS)


def _asked_again(text: TextRow, failed: FormalisedRow, settings: RepairSettings) -> Conversation:
    """Return the conversation that hands a failed answer back, or the one that led to it."""
    if settings.feedback == "none":
        return asking(text.prompt)
    return asking(repair_prompt(text.prompt, failed.problem_pddl, failed.feedback, settings.texts))
