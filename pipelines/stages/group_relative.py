"""Reinforcement learning from the validator: groups of rollouts, by their rewards against each other (GRPO and kin)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from pipelines.stages.update_loop import Lesson, Question, Tried, UpdateSettings, in_random_order, run_updates
from plansmith.config.basics import narrowed
from plansmith.config.reinforcement import GroupRelativeConfig, ReinforcementConfig, RewardConfig
from plansmith.config.training import EngineNumerics, Numerics, OptimiserConfig
from plansmith.data.rows import CUT, ProblemRow, RolloutRow, SolvedProblemRow, Split, VerdictRow
from plansmith.errors import BadInputError, ConfigError
from plansmith.groups import grouped
from plansmith.judging.judge import Judge, PlanJudge
from plansmith.judging.rewards import Reward, VerdictRewards
from plansmith.learning.group_relative import group_advantages, has_two_rewards
from plansmith.learning.objectives.group_relative import GroupRelative
from plansmith.learning.sequences import OLD_LOGPROBS, REFERENCE_LOGPROBS, TrainingSequence, rollout_sequence
from plansmith.pddl.validation import Verdict
from plansmith.stages import StageContext


class GroupRelativeSettings(UpdateSettings):
    """What the policy tries, and how it learns from it."""

    split: Split
    """Of the problems that are tried."""
    objective: GroupRelativeConfig
    """The objective."""
    rewards: RewardConfig
    """What a rollout is worth."""
    n_problems: int
    """Groups that an update learns from."""
    n_spare: int
    """Groups that are asked for beyond them, at most."""
    may_start_cold: bool = Field(exclude=True)
    """Begin although nothing is solved."""
    max_unjudged_share: float = Field(exclude=True)
    """The stage ends with an error when more than this share of an update's rollouts has no reward."""

    @property
    def takes_several_steps(self) -> bool:
        """Return whether an update may take more than one optimiser step, the later ones by a policy that has moved."""
        optimiser, n_rollouts = self.optimiser, self.n_problems * self.sampling.n
        fits = optimiser.batch_sequences is not None and optimiser.batch_sequences >= n_rollouts
        return not fits or optimiser.epochs > 1 or optimiser.small_batch_share > 0


def group_relative_settings(
    loop: ReinforcementConfig,
    *,
    engine: EngineNumerics,
    numerics: Numerics,
    prompting: str,
    split: Split = Split.PHASE2,
    segment: tuple[int, int | None] = (1, None),
) -> GroupRelativeSettings:
    """Return the settings of the stage.

    Args:
        loop: of the user.
        engine: what decides what the engine writes; more fields are left out, as of the next.
        numerics: how the trainer holds the model.
        prompting: how the policy is asked.
        split: of the problems that are tried; they need no plans.
        segment: its first update and its last.

    Raises:
        ConfigError: importance weights, and log-probabilities of another distribution than was drawn from.
    """
    is_plain = loop.temperature == 1 and loop.top_p == 1 and loop.top_k == 0
    if loop.weight_limit is not None and engine.logprobs == "raw" and not is_plain:
        raise ConfigError(
            "importance weights compare the engine's log-probabilities with the trainer's at the sampling temperature",
            got=f"policy.logprobs=raw with temperature={loop.temperature:g}, top_p={loop.top_p:g}, top_k={loop.top_k}",
            expected="those of what was drawn from", cure="set policy.logprobs=processed, or weight_limit=null",
        )  # fmt: skip
    return GroupRelativeSettings(
        sampling=loop.sampling,
        engine=narrowed(engine, EngineNumerics),
        prompting=prompting,
        split=split,
        updates=loop.updates,
        first=segment[0],
        last=segment[1],
        max_staleness=loop.max_staleness,
        checkpoint_every=loop.checkpoint_every,
        optimiser=narrowed(loop, OptimiserConfig),
        numerics=narrowed(numerics, Numerics),
        objective=narrowed(loop, GroupRelativeConfig),
        rewards=loop.rewards,
        n_problems=loop.problems_per_update,
        n_spare=loop.spare_problems,
        may_start_cold=loop.may_start_cold,
        max_unjudged_share=loop.max_unjudged_share,
    )


@dataclass(frozen=True, slots=True)
class FromGroups:
    """An `UpdateRule`: rollouts better than others of their problem get likelier, worse ones less likely.

    Problems are asked in their order, round and round; `state` holds how many have been. With spare problems a
    group of equal rewards, which teaches nothing, is replaced by the next problem (DAPO's dynamic sampling, arXiv
    2503.14476, section 3.2); only whole groups are, so that no rollout is chosen by its reward. How we differ: DAPO
    draws on without end, and fills its batch from the surplus of a round.
    """

    problems: tuple[ProblemRow | SolvedProblemRow, ...]
    judge: Judge
    settings: GroupRelativeSettings

    def questions(self, update: int, state: Any, tried: Sequence[Tried]) -> list[Question]:
        """Return the next problems: at first as many as an update learns from, then those that groups still lack."""
        settings, groups = self.settings, groups_of(tried)
        n_taught = sum(has_two_rewards(_rewards(group)) for group in groups.values())
        wanted = settings.n_problems - n_taught if groups else settings.n_problems
        room = min(settings.n_problems + settings.n_spare, len(self.problems)) - len(groups)
        count = min(wanted, room) if settings.n_spare or not groups else 0
        order, first = self.problems, n_asked(state) + len(groups)
        rows = (order[(first + offset) % len(order)] for offset in range(count))
        return [Question.for_plan(row, settings.prompting) for row in rows]

    def reward(self, rollout: RolloutRow, verdict: VerdictRow) -> Reward:
        """Return the reward by the table."""
        return VerdictRewards(self.settings.rewards).reward(verdict, rollout.finish_reason)

    def lesson(self, tried: Sequence[Tried], state: Any) -> Lesson:
        """Return what is learnt from the groups, with the spare ones only from those that teach something.

        Raises:
            BadInputError: more rollouts than may have no reward, or all; or in the first update, unless it may start
                cold, none is valid, or no group has two rewards, though spare problems were tried. A later one learns
                nothing.
        """
        groups, settings = groups_of(tried), self.settings
        self._check(tried, groups, is_first=state is None)
        chosen = [group for group in groups.values() if not settings.n_spare or has_two_rewards(_rewards(group))]
        objective = settings.objective
        advantages = group_advantages(
            [_rewards(group) for group in chosen], scale=objective.advantage_scale, baseline=objective.baseline
        )
        pairs = [
            (item, advantage * (objective.negative_weight if advantage < 0 else 1.0))
            for group, found in zip(chosen, advantages, strict=True)
            for item, advantage in zip(group, found, strict=True)
            if advantage is not None
        ]
        taught = [pair for pair in pairs if settings.objective.trains_cut or not _is_cut(pair[0])]
        sequences = [self._sequence(item.rollout, advantage) for item, advantage in taught]
        asked = {"asked": n_asked(state) + len(groups)}
        return clipped_lesson(settings, sequences, asked, _shares(tried) | _group_figures(groups, pairs))

    def _sequence(self, row: RolloutRow, advantage: float) -> TrainingSequence:
        written = row.rollout_logprobs if self.settings.objective.weight_limit is not None else ()
        return rollout_sequence(row.prompt_token_ids, row.token_ids, advantage=advantage, rollout_logprobs=written)

    def _check(self, tried: Sequence[Tried], groups: Mapping[str, Sequence[Tried]], *, is_first: bool) -> None:
        check_judged([item for item in tried if item.reward.value is None], tried, self.settings.max_unjudged_share)
        if not is_first or self.settings.may_start_cold:
            return
        if not any(item.verdict.is_valid for item in tried):
            raise BadInputError(
                "the policy that reinforcement learning begins with solves nothing", where="the first update",
                got=f"no valid plan among {len(tried)} rollouts of {len(groups)} problems", expected="one or more",
                cure="tune it on plans first, draw easier problems, or set may_start_cold",
            )  # fmt: skip
        if self.settings.n_spare and not any(has_two_rewards(_rewards(group)) for group in groups.values()):
            raise BadInputError(
                "no group has two rewards: nothing can be learnt", where="the first update",
                got=f"equal rewards in each of {len(groups)} groups",
                expected="rollouts of a problem that differ in what they are worth",
                cure="raise spare_problems, rollouts_per_problem or temperature, or draw harder problems",
            )  # fmt: skip


def learn_from_groups(context: StageContext[GroupRelativeSettings]) -> None:
    """Let the policy try the problems of a split in groups, and learn from their rewards, update by update.

    Raises:
        BadInputError: there is no such problem; see also `FromGroups.lesson`.
    """
    settings = context.settings
    found = [row for row in context.inputs["problems"].rows(ProblemRow) if row.split == settings.split]
    if not found:
        raise BadInputError("no problem to try", got=f"none of split {settings.split}", expected="one or more")
    problems = in_random_order(found, context.seed, "order of problems")
    run_updates(context, FromGroups(problems, PlanJudge(settings.prompting), settings))


def clipped_lesson(
    settings: GroupRelativeSettings, sequences: list[TrainingSequence], state: Any, figures: dict[str, float]
) -> Lesson:
    """Return what is learnt by the clipped objective, with the log-probabilities that it compares with."""
    reads_old = settings.takes_several_steps
    return Lesson(
        GroupRelative(settings.objective, settings.sampling, reads_old),
        sequences,
        state,
        reference_column=REFERENCE_LOGPROBS if settings.objective.beta > 0 else "",
        old_column=OLD_LOGPROBS if reads_old else "",
        sampling=settings.sampling,
        figures=figures,
    )


def check_judged(unjudged: Sequence[Tried], tried: Sequence[Tried], most: float) -> None:
    """Raise where more than a share of an update's rollouts, or all of them, could not be judged.

    Raises:
        BadInputError: with the reason of the last of them.
    """
    if len(unjudged) > most * len(tried) or (unjudged and len(unjudged) == len(tried)):
        raise BadInputError(
            "too many rollouts have no reward",
            got=f"{len(unjudged)} of {len(tried)}; the last: {unjudged[-1].reward.reason}",
            expected=f"a share of {most:g} at most, max_unjudged_share, and one with a reward at least",
            cure="draw smaller problems, or raise policy.max_model_len",
        )  # fmt: skip


def n_asked(state: Any) -> int:
    """Return how many problems were asked before an update."""
    return int(state["asked"]) if state else 0


def groups_of(tried: Sequence[Tried]) -> dict[str, list[Tried]]:
    """Return the rollouts of each problem, problems in the order in which they were asked."""
    return grouped(tried, lambda item: item.rollout.problem_id)


def _rewards(group: Sequence[Tried]) -> list[float | None]:
    return [item.reward.value for item in group]


def _is_cut(item: Tried) -> bool:
    return item.rollout.finish_reason in CUT


def _is_empty(item: Tried) -> bool:
    return _class_of(item) == Verdict.GOAL_NOT_REACHED and not item.verdict.plan


def _shares(tried: Sequence[Tried]) -> dict[str, float]:
    """Return the shares of rollouts by what their reward is for; and those of empty plans, which miss their goals."""
    classes = Counter(_class_of(item) for item in tried)
    names = ("unjudged", "cut", *(verdict for verdict in Verdict if verdict is not Verdict.BAD_INPUT))
    shares = {f"rollout/share {name}": classes[name] / len(tried) for name in names}
    return shares | {"rollout/share empty_plan": sum(map(_is_empty, tried)) / len(tried)}


def _class_of(item: Tried) -> str:
    if item.reward.value is None:
        return "unjudged"
    return "cut" if _is_cut(item) else item.verdict.verdict


def _group_figures(
    groups: Mapping[str, Sequence[Tried]], advantages: Sequence[tuple[Tried, float]]
) -> dict[str, float]:
    """Return how many groups were asked and how many have equal rewards, and what is learnt from whom.

    The sum of abs(A) is split by whether the group has a valid plan: without one, the best of the failures is learnt.
    """
    solved = {name for name, group in groups.items() if any(item.verdict.is_valid for item in group)}
    sums = {True: 0.0, False: 0.0}
    for item, advantage in advantages:
        sums[item.rollout.problem_id in solved] += abs(advantage)
    return {
        "group/asked": len(groups),
        "group/equal": sum(not has_two_rewards(_rewards(group)) for group in groups.values()),
        "group/advantage with a valid plan": sums[True],
        "group/advantage without a valid plan": sums[False],
    }
