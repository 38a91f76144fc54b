"""Rejection sampling: the policy is trained on those of its own rollouts in which the validator finds no fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.stages.phase1_data import solved_problems
from pipelines.stages.update_loop import Lesson, Question, Tried, UpdateSettings, in_random_order, run_updates
from plansmith.config.basics import narrowed
from plansmith.config.generation import SamplingConfig
from plansmith.config.pddl_instruct import PddlInstructConfig, RejectionConfig
from plansmith.config.training import EngineNumerics, Numerics, OptimiserConfig
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import ProblemRow, RolloutRow, SolvedProblemRow, Split, VerdictRow
from plansmith.judging.judge import PlanJudge
from plansmith.judging.rewards import Reward, VerdictRewards
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequences import supervised_sequence
from plansmith.pddl.grounding import PlanningTask
from plansmith.stages import StageContext
from plansmith.text.rendering import PlainPrompting, prompting_of

ORDER = "order of D2"
"""In which problems are asked."""


class RejectionSettings(UpdateSettings):
    """What the policy tries and learns."""

    n_problems: int
    """Problems of D2 in one update, the next ones in a fixed random order."""


def rejection_settings(config: PddlInstructConfig, loop: RejectionConfig) -> RejectionSettings:
    """Return the settings of the stage."""
    return RejectionSettings(
        sampling=SamplingConfig(
            temperature=loop.temperature, max_new_tokens=loop.max_new_tokens, n=loop.rollouts_per_problem
        ),
        engine=narrowed(config.policy, EngineNumerics),
        prompting=config.rendering,
        updates=loop.updates,
        checkpoint_every=loop.checkpoint_every,
        optimiser=narrowed(loop, OptimiserConfig),
        numerics=narrowed(config.trainer, Numerics),
        n_problems=loop.problems_per_update,
    )


@dataclass(frozen=True, slots=True)
class Rejection:
    """The likelihood of flawless rollouts, each once however often it was drawn; all else teaches nothing.

    Nor does one that passes a problem which only measures. A rollout that is a plan alone is flawless when it is valid.
    """

    problems: tuple[SolvedProblemRow | ProblemRow, ...]
    judge: PlanJudge
    n_problems: int
    held_out: HeldOut

    def questions(self, update: int, state: Any, tried: Sequence[Tried]) -> list[Question]:
        """Return the next problems, round and round."""
        if tried:
            return []
        first, count = (update - 1) * self.n_problems, min(self.n_problems, len(self.problems))
        rows = (self.problems[(first + offset) % len(self.problems)] for offset in range(count))
        return [Question.for_plan(row, self.judge.prompting) for row in rows]

    def reward(self, rollout: RolloutRow, verdict: VerdictRow) -> Reward:
        """Return the reward by verdict."""
        return VerdictRewards().reward(verdict, rollout.finish_reason)

    def lesson(self, tried: Sequence[Tried], state: Any) -> Lesson:
        """Return what is kept."""
        has_chains = not isinstance(prompting_of(self.judge.prompting), PlainPrompting)
        right = (item for item in tried if (item.verdict.is_flawless if has_chains else item.verdict.is_valid))
        flawless = (item.rollout for item in right if self._is_clean(item))
        kept = dict.fromkeys((row.prompt_token_ids, row.token_ids) for row in flawless)
        return Lesson(Supervised(), [supervised_sequence(prompt, response) for prompt, response in kept])

    def _is_clean(self, item: Tried) -> bool:
        row = next(row for row in self.problems if row.problem_id == item.rollout.problem_id)
        task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
        return not self.held_out.is_met_by(task, item.steps, item.verdict.plan)


def reject(context: StageContext[RejectionSettings]) -> None:
    """Let the policy try problems of D2 and train on its flawless rollouts, update by update."""
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE2)
    problems = in_random_order(solved, context.seed, ORDER)
    judge = PlanJudge(context.settings.prompting)
    held_out = HeldOut.of(context.inputs["problems"].rows(ProblemRow))
    run_updates(context, Rejection(problems, judge, context.settings.n_problems, held_out))
