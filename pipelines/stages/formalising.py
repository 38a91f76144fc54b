"""Stages in which a policy writes the PDDL of texts, is judged, and gets back what failed (NL-PDDL-Bench, 3.4 and C.2).

The loop sees what validator and planner say of an answer, never the reference; that only measures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from actors.formaliser import AnswerJudge, loaded_domain
from pipelines.stages.few_rows import worked_rows
from pipelines.stages.generating import GenerationSettings, keep_rollouts, rollout_rows, sample_prompts
from pipelines.stages.judging import completion_row
from plansmith.config.formalisation import FormalisationConfig, JudgingConfig
from plansmith.data.rows import (
    AnsweredTextRow,
    CompletionRow,
    FinishReason,
    FormalisedRow,
    RolloutRow,
    Split,
    TextRow,
)
from plansmith.errors import BadInputError
from plansmith.generation import Completion, Conversation, asking
from plansmith.pddl.printer import print_problem
from plansmith.stages import StageContext
from plansmith.text.formalisation import repair_prompt
from plansmith.text.natural_language_reader import read_problem_text

VERDICTS = "verdicts"
"""Table of the verdicts of all turns."""
GRAMMAR = "grammar"
"""Stands for the version of a policy where a grammar answered."""
CHAINS_PER_ANSWER = 20
"""A planner takes about as long for one answer as a validator does for so many chains (`few_rows.FEW_ROLLOUTS`)."""


class TextTrialSettings(GenerationSettings):
    """Which texts are answered."""

    split: Split
    """Those of the problems of a split."""


def try_texts(context: StageContext[TextTrialSettings]) -> None:
    """Let the policy write the problem of every text of a split, once or as often as the sampling says."""
    texts, split = context.inputs["texts"].rows(TextRow), context.settings.split
    asked = {row.problem_id: asking(row.prompt) for row in texts if row.split == split}
    description = context.stage.name.replace("_", " ")
    sample_prompts(context, asked, description=description, is_good=lambda _name, _text: True)


def read_texts(context: StageContext[None]) -> None:
    """Write what a grammar of the domains' phrases reads the test texts as: the answers of no policy.

    It inverts what the texts were written by, so that it is the ceiling for texts of templates, and helps with no
    others; one that it cannot read has an empty answer.
    """
    rows = []
    for row in context.inputs["texts"].rows(TextRow):
        if row.split == Split.TEST:
            said = [Completion(_read(row), FinishReason.STOP, GRAMMAR, seed=0)]
            rows += rollout_rows(row.problem_id, asking(row.prompt), said, iteration=0)
    context.output.write_rows(sorted(rows, key=lambda row: row.rollout_id), RolloutRow)


def _read(row: TextRow) -> str:
    try:
        loaded = loaded_domain(row.domain)
        return print_problem(read_problem_text(loaded.domain, loaded.needed_phrases(), row.text))
    except BadInputError:
        return ""


def judge_texts(context: StageContext[JudgingConfig]) -> None:
    """Judge every answer with validator, planner and reference."""
    answers = context.inputs["rollouts"].rows(RolloutRow)
    judged = judged_answers(context, context.settings, answers, description="judging answers")
    context.output.write_rows(judged, FormalisedRow)


def judged_answers(
    context: StageContext[Any], judging: JudgingConfig, answers: Sequence[RolloutRow], *, description: str
) -> list[FormalisedRow]:
    """Return the judgement of each answer, by its id."""
    texts = {row.problem_id: row for row in context.inputs["texts"].rows(TextRow)}
    by_text: dict[str, list[CompletionRow]] = defaultdict(list)
    for row in answers:
        by_text[row.problem_id].append(completion_row(row))
    rows = [_answered(texts[name], found) for name, found in by_text.items()]
    judged = worked_rows(
        context,
        rows,
        (AnsweredTextRow, FormalisedRow),
        AnswerJudge,
        {"config": judging},
        n_rollouts=CHAINS_PER_ANSWER * len(answers),
        description=description,
    )
    return sorted(judged, key=lambda row: row.rollout_id)


def _answered(text: TextRow, answers: Sequence[CompletionRow]) -> AnsweredTextRow:
    return AnsweredTextRow(text.problem_id, text.domain, text.text, text.problem_pddl, text.plan, tuple(answers))


class RepairSettings(GenerationSettings):
    """How often a failed answer is asked for again, and with what words."""

    turns: int
    """Turns, at most."""
    feedback: Literal["validator", "none"]
    """What the policy is told: what is wrong with its last answer, or nothing, so that it only tries again."""
    texts: FormalisationConfig
    """How prompts are written."""
    judging: JudgingConfig
    """What is looked for in answers."""


def repair(context: StageContext[RepairSettings]) -> None:
    """Write the further answers and their verdicts, turn by turn; one with nothing to mend ends the loop for its text.

    What is written survives a crash.

    Raises:
        PlansmithError: a request failed; the answers to the others are kept.
    """
    settings, verdicts = context.settings, list[FormalisedRow]()
    texts = {row.problem_id: row for row in context.inputs["texts"].rows(TextRow)}
    rollouts = context.output.shards("rows", RolloutRow)
    latest = context.inputs["judged"].rows(FormalisedRow)
    for turn in range(1, settings.turns + 1):
        failed = {row.problem_id: row for row in latest if row.feedback}
        answered = {row.problem_id for row in rollouts.merged_rows() if row.iteration == turn}
        asked = {name: _asked_again(texts[name], row, settings) for name, row in failed.items() if name not in answered}
        if asked:
            keep_rollouts(context, asked, rollouts, turn=turn, description=f"asking again, turn {turn}")
        answers = [row for row in rollouts.merged_rows() if row.iteration == turn]
        latest = judged_answers(context, settings.judging, answers, description=f"judging answers, turn {turn}")
        verdicts += latest
    context.output.write_rows(verdicts, FormalisedRow, table=VERDICTS)


def _asked_again(text: TextRow, failed: FormalisedRow, settings: RepairSettings) -> Conversation:
    """Return the conversation that hands a failed answer back, or the one that led to it."""
    if settings.feedback == "none":
        return asking(text.prompt)
    return asking(repair_prompt(text.prompt, failed.problem_pddl, failed.feedback, settings.texts))
