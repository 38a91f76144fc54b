"""Stages in which a policy tries problems (algorithm 1, lines 13 to 15)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from actors.policy import Generation, SamplingSettings
from pipelines.parts.problem_stages import solved_problems
from pipelines.parts.workers import MODEL, policy_version
from plansmith.config.basics import StrictModel, narrowed
from plansmith.config.models import PddlInstructConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.rows import FinishReason, RolloutRow, SolvedProblemRow, Split
from plansmith.judging.chains import judge_plan
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode_prompt, end_token_ids, token_spans
from plansmith.pddl.grounding import PlanningTask
from plansmith.stages import StageContext, row_seed
from plansmith.text.rendering import Prompting, prompting_of


class Sampling(StrictModel):
    """What one generating stage asks of the policy."""

    n_rollouts: int = 1
    """Completions of each prompt."""
    temperature: float
    """0 takes the likeliest token every time."""
    max_new_tokens: int
    """Longest completion; a longer one is cut."""
    iteration: int = 0
    """Feedback iteration that the rollouts belong to, or turn."""
    prompting: str
    """How the policy is asked."""
    first: int = 0
    """Number of the first rollout of a problem."""
    resample_budget: int = 0
    """How many further rollouts a problem gets while none is valid."""


class GenerationSettings(StrictModel):
    """What decides what a policy writes, beside its weights and the prompts."""

    sampling: Sampling
    """How completions are drawn."""
    engine: EngineNumerics
    """What draws them."""


class RollOutSettings(GenerationSettings):
    """What the policy tries in one feedback iteration."""

    n_problems: int
    """Problems of D2, the next ones in a fixed random order."""
    share: float
    """Share of each domain's problems, those with the shortest plans, that they are taken from."""


class TrialSettings(GenerationSettings):
    """What the policy tries to be measured."""

    split: Split
    """The problems."""


def roll_out_settings(config: PddlInstructConfig, iteration: int) -> RollOutSettings:
    """Return what the policy tries in iteration t.

    Eta is in it only where the curriculum depends on it, so that a longer loop continues a shorter one.
    """
    loop = config.phase2
    sampling = Sampling(
        n_rollouts=loop.rollouts_per_problem,
        temperature=loop.temperature,
        max_new_tokens=loop.max_new_tokens,
        iteration=iteration,
        prompting=config.rendering,
        resample_budget=loop.resample_budget,
    )
    engine = narrowed(config.policy, EngineNumerics)
    share = loop.share_of_d2(iteration)
    return RollOutSettings(sampling=sampling, engine=engine, n_problems=loop.problems_per_iteration, share=share)


def roll_out(context: StageContext[RollOutSettings]) -> None:
    """Let the policy try problems of D2 (algorithm 1, lines 13 to 15)."""
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE2)
    rows = problems_of_iteration(solved, context.settings, seed=context.seed)
    sample_rollouts(context, rows, description=f"rolling out, iteration {context.settings.sampling.iteration}")


def problems_of_iteration(
    solved: Sequence[SolvedProblemRow], settings: RollOutSettings, *, seed: int
) -> list[SolvedProblemRow]:
    """Return the problems that iteration t rolls out: the next ones in a fixed random order, round and round."""
    order = sorted(solved, key=lambda row: row_seed(seed, "order of D2", row.problem_id))
    if settings.share < 1:
        order = shortest_of_each_domain(order, settings.share)
    count = settings.n_problems
    first = (settings.sampling.iteration - 1) * count
    return [order[(first + offset) % len(order)] for offset in range(min(count, len(order)))]


def shortest_of_each_domain(rows: Sequence[SolvedProblemRow], share: float) -> list[SolvedProblemRow]:
    """Return so much of each domain, the problems with the shortest plans, in the order given."""
    by_domain: dict[str, list[SolvedProblemRow]] = defaultdict(list)
    for row in rows:
        by_domain[row.domain_pddl].append(row)
    kept = {
        row.problem_id
        for group in by_domain.values()
        for row in sorted(group, key=lambda row: len(row.plan))[: math.ceil(share * len(group))]
    }
    return [row for row in rows if row.problem_id in kept]


def try_problems(context: StageContext[TrialSettings]) -> None:
    """Let the policy try every solved problem of a split; nothing is fed back (section 5.3)."""
    rows = solved_problems(context.inputs["problems"], context.inputs["plans"], context.settings.split)
    sample_rollouts(context, rows, description=context.stage.name.replace("_", " "))


Generating = TypeVar("Generating", bound=GenerationSettings)


def sample_rollouts(context: StageContext[Generating], rows: Sequence[Any], *, description: str) -> None:
    """Sample completions for problems, chunk by chunk; a finished chunk survives a crash.

    Args:
        rows: problems, with ``problem_id``, ``domain_pddl`` and ``problem_pddl``.
    """
    shards = context.output.shards("rows", RolloutRow)
    finished = shards.finished_ids("problem_id")
    todo = [row for row in rows if row.problem_id not in finished]
    if not todo:
        return
    settings = context.settings
    context.resources.load_policy(context.inputs["policy"], settings.engine)
    size = max(1, 2 * context.resources.n_decoded // settings.sampling.n_rollouts)
    chunks = [todo[start : start + size] for start in range(0, len(todo), size)]
    for number, chunk in enumerate(chunks, 1):
        title = description if len(chunks) == 1 else f"{description} ({number}/{len(chunks)})"
        shards.append(_sampled_until_valid(context, chunk, settings.sampling, title))


def _sampled_until_valid(
    context: StageContext[Generating], rows: Sequence[Any], sampling: Sampling, description: str
) -> list[RolloutRow]:
    """Return the rollouts of problems, and further ones of those without a valid one while the budget lasts."""
    prompting = prompting_of(sampling.prompting)
    tasks = {row.problem_id: PlanningTask.from_text(row.domain_pddl, row.problem_pddl) for row in rows}
    sampled = list(_sampled(context, rows, tasks, sampling, description))
    fresh = sampled
    for turn in range(sampling.resample_budget):
        solved = {row.problem_id for row in fresh if _is_solved(tasks[row.problem_id], row.completion, prompting)}
        rows = [row for row in rows if row.problem_id not in solved]
        if not rows:
            break
        first = sampling.first + sampling.n_rollouts + turn
        again = sampling.model_copy(update={"n_rollouts": 1, "first": first})
        fresh = list(_sampled(context, rows, tasks, again, f"{description}, again {turn + 1}"))
        sampled += fresh
    return sampled


def _is_solved(task: PlanningTask, completion: str, prompting: Prompting) -> bool:
    return judge_plan(task, prompting.read(completion, task.domain)).is_valid


def _sampled(
    context: StageContext[Generating],
    rows: Sequence[Any],
    tasks: dict[str, PlanningTask],
    sampling: Sampling,
    description: str,
) -> Iterator[RolloutRow]:
    """Yield `n_rollouts` rollouts of each problem."""
    prompting = prompting_of(sampling.prompting)
    prompts = [prompting.plan_prompt(tasks[row.problem_id]) for row in rows]
    yield from sample_prompts(context, [row.problem_id for row in rows], prompts, sampling, description=description)


def sample_prompts(
    context: StageContext[Generating],
    problem_ids: Sequence[str],
    prompts: Sequence[str],
    sampling: Sampling,
    *,
    description: str,
) -> Iterator[RolloutRow]:
    """Yield `n_rollouts` completions of each prompt; the policy must be loaded.

    A prompt that leaves the engine no room for an answer gets an empty completion with finish reason ``no_room``.
    """
    folder = str(context.inputs["policy"].path(MODEL))
    tokenizer = load_tokenizer(folder)
    numbers = range(sampling.first, sampling.first + sampling.n_rollouts)
    settings = SamplingSettings(
        temperature=sampling.temperature,
        max_new_tokens=sampling.max_new_tokens,
        n=sampling.n_rollouts,
        stop_token_ids=end_token_ids(tokenizer, folder),
    )
    seeds = [context.row_seed(problem_id, k) % 2**31 for problem_id in problem_ids for k in numbers]
    encoded = [encode_prompt(tokenizer, prompt) for prompt in prompts]
    window = context.settings.engine.max_model_len
    fitting = [i for i, prompt_ids in enumerate(encoded) if len(prompt_ids) < window]
    if len(fitting) < len(encoded):
        context.logger.warning(
            "%d of %d prompts do not fit in the engine's window of %d tokens (the longest has %d); they get no answer",
            len(encoded) - len(fitting), len(encoded), window, max(map(len, encoded)),
        )  # fmt: skip
    n = sampling.n_rollouts
    answers = context.resources.generate(
        [encoded[i] for i in fitting],
        settings,
        seeds=[seed for i in fitting for seed in seeds[i * n : (i + 1) * n]],
        description=description,
    )
    none = Generation((), (), FinishReason.NO_ROOM, policy_version(context.inputs["policy"]))
    groups = dict(zip(fitting, answers, strict=True))
    remaining = iter(seeds)
    for i, (problem_id, prompt, prompt_ids) in enumerate(zip(problem_ids, prompts, encoded, strict=True)):
        group = groups.get(i, [none] * n)
        for k, generation in zip(numbers, group, strict=True):
            yield RolloutRow(
                rollout_id=f"{problem_id}-{sampling.iteration:02d}-{k}",
                problem_id=problem_id,
                iteration=sampling.iteration,
                policy_version=generation.policy_version,
                prompt=prompt,
                completion=_text_of(tokenizer, generation),
                prompt_token_ids=tuple(prompt_ids),
                token_ids=generation.token_ids,
                rollout_logprobs=generation.logprobs,
                finish_reason=generation.finish_reason,
                seed=next(remaining),
            )


def _text_of(tokenizer: Any, generation: Generation) -> str:
    return token_spans(tokenizer, generation.token_ids)[0]
