"""Stages in which a policy tries problems (algorithm 1, lines 13 to 15)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipelines.stages.generating import GenerationSettings, sample_rollouts
from pipelines.stages.phase1_data import solved_problems
from plansmith.config.basics import narrowed
from plansmith.config.generation import SamplingConfig
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.rows import SolvedProblemRow, Split
from plansmith.groups import grouped
from plansmith.stages import StageContext, row_seed


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
    return RollOutSettings(
        sampling=SamplingConfig(
            temperature=loop.temperature, max_new_tokens=loop.max_new_tokens, n=loop.rollouts_per_problem
        ),
        engine=narrowed(config.policy, EngineNumerics),
        prompting=config.rendering,
        iteration=iteration,
        resample_budget=loop.resample_budget,
        n_problems=loop.problems_per_iteration,
        share=loop.share_of_d2(iteration),
    )


def roll_out(context: StageContext[RollOutSettings]) -> None:
    """Let the policy try problems of D2 (algorithm 1, lines 13 to 15)."""
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE2)
    rows = problems_of_iteration(solved, context.settings, seed=context.seed)
    sample_rollouts(context, rows, description=f"rolling out, iteration {context.settings.iteration}")


def problems_of_iteration(
    solved: Sequence[SolvedProblemRow], settings: RollOutSettings, *, seed: int
) -> list[SolvedProblemRow]:
    """Return the problems that iteration t rolls out: the next ones in a fixed random order, round and round."""
    order = sorted(solved, key=lambda row: row_seed(seed, "order of D2", row.problem_id))
    if settings.share < 1:
        order = shortest_of_each_domain(order, settings.share)
    count = settings.n_problems
    first = (settings.iteration - 1) * count
    return [order[(first + offset) % len(order)] for offset in range(min(count, len(order)))]


def shortest_of_each_domain(rows: Sequence[SolvedProblemRow], share: float) -> list[SolvedProblemRow]:
    """Return so much of each domain, the problems with the shortest plans, in the order given."""
    kept = {
        row.problem_id
        for group in grouped(rows, lambda row: row.domain_pddl).values()
        for row in sorted(group, key=lambda row: len(row.plan))[: math.ceil(share * len(group))]
    }
    return [row for row in rows if row.problem_id in kept]


def try_problems(context: StageContext[TrialSettings]) -> None:
    """Let the policy try every solved problem of a split; nothing is fed back (section 5.3)."""
    rows = solved_problems(context.inputs["problems"], context.inputs["plans"], context.settings.split)
    sample_rollouts(context, rows, description=context.stage.name.replace("_", " "))
