"""A model behind an endpoint as a policy: its attempts, each kept as soon as it comes, and the requests that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from actors.endpoint import Answer, Endpoint, Question
from pipelines.parts.own_problems import Trial
from plansmith.data.rows import ProblemRow, RolloutRow
from plansmith.errors import PlansmithError
from plansmith.pddl.grounding import PlanningTask
from plansmith.stages import StageContext
from plansmith.text.rendering import prompting_of

ANSWERS, FAILURES = "answers", "failures"
"""Tables of `Answer` that an endpoint's attempts leave beside the rollouts."""


def endpoint_trial(endpoint: Endpoint, prompting: str, *, max_unjudged_share: float) -> Trial:
    """Return how a model behind an endpoint tries problems; the artifact also has tables of `ANSWERS` and `FAILURES`.

    The attempts depend on what is asked of whom, not on how many requests go out together or how long they may take.
    """
    how = {"concurrency", "timeout_s", "max_retries"}
    settings = {name: value for name, value in asdict(endpoint.settings).items() if name not in how}

    def run(context: StageContext[Any], rows: Sequence[ProblemRow]) -> None:
        _ask(context, rows, endpoint, prompting=prompting, max_unjudged_share=max_unjudged_share)

    return Trial(prompting, {"prompting": prompting, **settings}, run)


def _ask(
    context: StageContext[Any],
    rows: Sequence[ProblemRow],
    endpoint: Endpoint,
    *,
    prompting: str,
    max_unjudged_share: float,
) -> None:
    """Ask for a plan for every problem; an answer survives an interrupt, a failed request is made again after one."""
    questions = {row.problem_id: _question(context, row, prompting) for row in rows}
    answers, failures = context.output.shards(ANSWERS, Answer), []
    finished = answers.finished_ids("question_id")
    todo = [question for name, question in questions.items() if name not in finished]
    with context.progress(len(rows), f"asking {endpoint.settings.model}", unit="problem") as bar:
        bar.update(len(rows) - len(todo))
        for batch in endpoint.answers(todo):
            answers.append(answer for answer in batch if answer.fault is None)
            failures += [answer for answer in batch if answer.fault is not None]
            check_failures(failures, len(rows), max_unjudged_share, where=endpoint.settings.base_url)
            bar.update(len(batch))
    context.output.write_rows(failures, Answer, table=FAILURES)
    model, answered = endpoint.settings.model, answers.merged_rows()
    context.output.write_rows((_rollout(questions[row.question_id], row, model) for row in answered), RolloutRow)


def check_failures(failures: Sequence[Answer], n_problems: int, max_share: float, *, where: str) -> None:
    """Raise when more than a share of the problems can have no verdict, whatever else is answered.

    Raises:
        PlansmithError: with the last failure.
    """
    if len(failures) > max_share * n_problems:
        raise PlansmithError(
            "too many requests failed", where=where, got=f"{len(failures)} of {n_problems}; the last: "
            f"{failures[-1].fault}", expected=f"{max_share:g} of them at most (--max-unjudged-share)",
            cure="see to the server and give the same command again: what was answered is kept",
        )  # fmt: skip


def _question(context: StageContext[Any], row: ProblemRow, prompting: str) -> Question:
    prompt = prompting_of(prompting).plan_prompt(PlanningTask.from_text(row.domain_pddl, row.problem_pddl))
    return Question(row.problem_id, prompt, context.row_seed(row.problem_id, 0) % 2**31)


def _rollout(question: Question, answer: Answer, model: str) -> RolloutRow:
    """Return an answer as a rollout whose tokens nobody knows."""
    return RolloutRow(
        rollout_id=f"{question.question_id}-00-0",
        problem_id=question.question_id,
        iteration=0,
        policy_version=model,
        prompt=question.prompt,
        completion=answer.completion or "",
        prompt_token_ids=(),
        token_ids=(),
        rollout_logprobs=(),
        finish_reason=answer.finish_reason,
        seed=question.seed,
    )
