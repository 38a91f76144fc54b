"""From conversations to rollouts: what every stage has in common that lets somebody answer.

Who answers is a `plansmith.generation.Generator` that the run lends; no stage knows if it is an engine or a server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import Field

from plansmith.config.basics import StrictModel
from plansmith.config.generation import EndpointModel, SamplingConfig
from plansmith.config.training import EngineNumerics, FolderEngine
from plansmith.data.artifacts import Shards
from plansmith.data.rows import CUT, FAILURES, USAGE, FailedRequestRow, RolloutRow, UsageRow
from plansmith.errors import PlansmithError
from plansmith.generation import Completion, Conversation, asking, plain_text
from plansmith.judging.chains import judge_plan
from plansmith.pddl.grounding import PlanningTask
from plansmith.stages import StageContext
from plansmith.text.rendering import prompting_of

GENERATION = ("plansmith.learning.codec.EngineGenerator", "actors.engine.sampling_params")
ASKING = ("actors.endpoint.Endpoint",)
"""Code that decides what is written, reached only through what the run lends (`Stage.code_roots`)."""

IsGood = Callable[[str, str], bool]
"""Whether a text is what was wanted of the problem with an id."""

WRITE_EVERY_S = 10.0
"""Rollouts wait so long for others before they are written; an interrupt does not lose them."""


class GenerationSettings(StrictModel):
    """What decides what is written, beside the weights and what is asked."""

    sampling: SamplingConfig
    """How completions are drawn."""
    engine: EngineNumerics | FolderEngine | EndpointModel
    """What draws them: an engine of ours with a policy of the run or with another model, or somebody's server."""
    prompting: str
    """How the policy is asked."""
    iteration: int = 0
    """Feedback iteration that the rollouts belong to, or turn."""
    resample_budget: int = 0
    """How many further rollouts a problem gets while none is valid."""
    max_failed_share: float = Field(0.1, exclude=True)
    """The stage ends with an error when the requests of more than this share of its problems failed."""


Generating = TypeVar("Generating", bound=GenerationSettings)


def completions_of(
    context: StageContext[Generating],
    conversations: Mapping[str, Conversation],
    *,
    first: int = 0,
    n: int | None = None,
    description: str,
) -> Iterator[tuple[str, list[Completion]]]:
    """Yield the id of each conversation with its completions, as they come, by the policy that the stage reads.

    Args:
        context: of the stage.
        conversations: by the id of what they are about, which their seeds depend on.
        first: number of the first completion of each.
        n: completions of each; None takes the settings'.
        description: of the bar.
    """
    settings, ids = context.settings, list(conversations)
    sampling = settings.sampling if n is None else settings.sampling.model_copy(update={"n": n})
    seeds = [context.row_seed(name, first + k) % 2**31 for name in ids for k in range(sampling.n)]
    generator = context.resources.generator(context.inputs.get("policy"), settings.engine)
    with context.progress(len(seeds), description, unit="rollout") as bar:
        for number, found in generator.complete(
            list(conversations.values()), sampling, seeds=seeds, description=description
        ):
            yield ids[number], found
            bar.update(len(found))


def rollout_groups(
    context: StageContext[Generating],
    conversations: Mapping[str, Conversation],
    *,
    iteration: int,
    first: int = 0,
    description: str,
) -> Iterator[tuple[str, list[RolloutRow]]]:
    """Yield the id of each conversation with its rollouts, as they come; see `completions_of`.

    Raises:
        PlansmithError: a request failed; none of the others is under way then.
    """
    faults: list[str] = []
    for name, found in completions_of(context, conversations, first=first, description=description):
        faults += [item.fault for item in found if item.fault]
        if not faults:
            yield name, rollout_rows(name, conversations[name], found, iteration)
    if faults:
        raise _failed_request(faults[0])


def rollouts_of(
    context: StageContext[Generating],
    conversations: Mapping[str, Conversation],
    *,
    iteration: int,
    description: str,
) -> list[RolloutRow]:
    """Return the rollouts of all conversations, in their order; see `rollout_groups`."""
    found = dict(rollout_groups(context, conversations, iteration=iteration, description=description))
    return [row for name in conversations for row in found[name]]


def keep_rollouts(
    context: StageContext[Generating],
    conversations: Mapping[str, Conversation],
    shards: Shards[RolloutRow],
    *,
    turn: int,
    n: int | None = None,
    description: str,
) -> None:
    """Write the rollouts of a turn of all conversations as they come; see `completions_of`.

    Raises:
        PlansmithError: a request failed; what was answered is written.
    """
    faults: list[str] = []
    with _kept(shards, None) as keep:
        for name, found in completions_of(context, conversations, first=turn, n=n, description=description):
            if fault := next((item.fault for item in found if item.fault), None):
                faults.append(fault)
            else:
                keep(rollout_rows(name, conversations[name], found, turn), found)
    if faults:
        raise _failed_request(f"{len(faults)} of {len(conversations)}; the last: {faults[-1]}")


def _failed_request(got: str) -> PlansmithError:
    return PlansmithError("a request failed", got=got, cure="give the command again")


def rollout_rows(
    name: str, conversation: Conversation, completions: Sequence[Completion], iteration: int
) -> list[RolloutRow]:
    """Return the completions of a conversation, each with a text, as rows; the name is the id of what it is about."""
    return [
        RolloutRow(
            rollout_id=f"{name}-{iteration:02d}-{k}",
            problem_id=name,
            iteration=iteration,
            policy_version=completion.policy_version,
            prompt=plain_text(conversation),
            completion=completion.text or "",
            prompt_token_ids=completion.prompt_token_ids,
            token_ids=completion.token_ids,
            rollout_logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            seed=completion.seed,
        )
        for k, completion in enumerate(completions)
    ]


def sample_rollouts(context: StageContext[Generating], rows: Sequence[Any], *, description: str) -> None:
    """Let the policy try problems, each until a rollout is valid or the budget is spent; see `sample_prompts`.

    Args:
        context: of the stage.
        rows: problems, with ``problem_id``, ``domain_pddl`` and ``problem_pddl``.
        description: of the bar.

    Raises:
        PlansmithError: more requests failed than may.
    """
    prompting = prompting_of(context.settings.prompting)
    tasks = {row.problem_id: PlanningTask.from_text(row.domain_pddl, row.problem_pddl) for row in rows}
    asked = {name: asking(prompting.plan_prompt(task)) for name, task in tasks.items()}

    def is_valid(name: str, text: str) -> bool:
        return judge_plan(tasks[name], prompting.read(text, tasks[name].domain)).is_valid

    sample_prompts(context, asked, description=description, is_good=is_valid)


def sample_prompts(
    context: StageContext[Generating], asked: Mapping[str, Conversation], *, description: str, is_good: IsGood
) -> None:
    """Let the policy answer; what it has written of one prompt survives a crash, a failed request is made again after.

    Behind an endpoint there are tables of `USAGE` and `FAILURES` as well.

    Args:
        context: of the stage.
        asked: conversations by the id of the problem that they are about.
        description: of the bar.
        is_good: whether a text is what was wanted, so that no budget is spent on further ones.

    Raises:
        PlansmithError: more requests failed than may.
    """
    settings, shards = context.settings, context.output.shards("rows", RolloutRow)
    usage = context.output.shards(USAGE, UsageRow) if isinstance(settings.engine, EndpointModel) else None
    finished = shards.finished_ids("problem_id")
    waiting = {name: messages for name, messages in asked.items() if name not in finished}
    failures: list[FailedRequestRow] = []
    with _kept(shards, usage) as keep:
        for name, found in _answered_until_good(context, waiting, description, is_good):
            if fault := next((item.fault for item in found if item.fault), None):
                failures.append(FailedRequestRow(name, fault))
                check_failures(failures, len(asked), settings.max_failed_share, where=found[0].policy_version)
            else:
                keep(rollout_rows(name, asked[name], found, settings.iteration), found)
    if usage is not None:
        context.output.write_rows(failures, FailedRequestRow, table=FAILURES)


def _answered_until_good(
    context: StageContext[Generating], asked: Mapping[str, Conversation], description: str, is_good: IsGood
) -> Iterator[tuple[str, list[Completion]]]:
    """Yield the completions of each prompt, with further ones while none is good and the budget lasts."""
    n, budget = context.settings.sampling.n, context.settings.resample_budget
    held: dict[str, list[Completion]] = {name: [] for name in asked}

    def is_over(name: str, found: Sequence[Completion]) -> bool:
        return any(
            item.fault or (item.text and item.finish_reason not in CUT and is_good(name, item.text)) for item in found
        )

    for turn in range(budget + 1):
        waiting = {name: asked[name] for name in held}
        if not waiting:
            return
        first, count = (n + turn - 1, 1) if turn else (0, n)
        title = f"{description}, again {turn}" if turn else description
        for name, found in completions_of(context, waiting, first=first, n=count, description=title):
            held[name] += found
            if turn == budget or is_over(name, found):
                yield name, held.pop(name)


@contextmanager
def _kept(
    shards: Shards[RolloutRow], usage: Shards[UsageRow] | None
) -> Iterator[Callable[[Sequence[RolloutRow], Sequence[Completion]], None]]:
    """Give what takes rollouts with their completions, and write them now and then, and whatever happens at the end."""
    rows, counts, written_s = list[RolloutRow](), list[UsageRow](), time.monotonic()

    def write() -> None:
        nonlocal written_s
        if usage is not None:
            usage.append(counts)  # first: a problem is finished once its rollouts are there
        shards.append(rows)
        rows.clear()
        counts.clear()
        written_s = time.monotonic()

    def keep(more: Sequence[RolloutRow], completions: Sequence[Completion]) -> None:
        rows.extend(more)
        counts.extend(
            UsageRow(row.rollout_id, row.problem_id, item.prompt_tokens, item.completion_tokens)
            for row, item in zip(more, completions, strict=True)
        )
        if time.monotonic() - written_s > WRITE_EVERY_S:
            write()

    try:
        yield keep
    finally:
        write()


def check_failures(failures: Sequence[FailedRequestRow], n_problems: int, max_share: float, *, where: str) -> None:
    """Raise when more than a share of the problems can have no verdict, whatever else is answered.

    Raises:
        PlansmithError: with the last failure.
    """
    if len(failures) > max_share * n_problems:
        raise PlansmithError(
            "too many requests failed", where=where,
            got=f"{len(failures)} of {n_problems}; the last: {failures[-1].fault}",
            expected=f"{max_share:g} of them at most (--max-unjudged-share)",
            cure="see to the server and give the same command again: what was answered is kept",
        )  # fmt: skip
