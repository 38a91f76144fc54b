"""Self-CriTeach's reinforcement learning (section 5.4): the written domain rewards steps and prices their faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pipelines.run.workers import MODEL
from pipelines.stages.group_relative import (
    FromGroups,
    GroupRelativeSettings,
    check_judged,
    clipped_lesson,
    group_relative_settings,
    groups_of,
    n_asked,
)
from pipelines.stages.update_loop import Lesson, Tried, in_random_order, run_updates
from plansmith.config.basics import narrowed
from plansmith.config.constrained import ConstraintConfig, CpoConfig, TrustRegionConfig
from plansmith.config.training import EngineNumerics, Numerics
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import ProblemRow, RolloutRow, Split, VerdictRow
from plansmith.errors import BadInputError
from plansmith.judging.judge import PlanJudge
from plansmith.judging.rewards import Reward
from plansmith.judging.step_critic import Criticism, criticise
from plansmith.learning.constrained import next_penalty, penalised, step_advantages, token_advantages
from plansmith.learning.feedback import SampledTokens
from plansmith.learning.models import load_tokenizer
from plansmith.learning.objectives.trust_region import TrustRegion
from plansmith.learning.sequences import TrainingSequence, rollout_sequence
from plansmith.learning.tokenizer import token_spans
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.validation import Verdict, validate_plan
from plansmith.stages import StageContext


class ConstrainedSettings(GroupRelativeSettings):
    """What the policy tries, and how it learns from it."""

    constraint: ConstraintConfig
    """The critic, and how much cost a plan may have."""
    trust_region: TrustRegionConfig | None = None
    """How an update is solved; None: penalised."""


def constrained_settings(
    loop: CpoConfig, *, engine: EngineNumerics, numerics: Numerics, prompting: str
) -> ConstrainedSettings:
    """Return the settings of the stage, whose problems are those of D2."""
    shared = group_relative_settings(loop, engine=engine, numerics=numerics, prompting=prompting, split=Split.PHASE2)
    values = {name: getattr(shared, name) for name in type(shared).model_fields}
    region = loop.trust_region if loop.solver == "trust_region" else None
    return ConstrainedSettings(**values, constraint=narrowed(loop, ConstraintConfig), trust_region=region)


@dataclass(frozen=True)
class FromSteps(FromGroups):
    """Learns from groups of rollouts, step by step, by what the written domain says of each step."""

    settings: ConstrainedSettings
    references: Mapping[str, ProblemRow]
    """The same problems with the reference domain, which rewards nothing: it says how often the two disagree."""
    held_out: HeldOut
    tokenizer: Any

    def reward(self, rollout: RolloutRow, verdict: VerdictRow) -> Reward:
        """Return R of the whole plan."""
        found = criticise(self._task(rollout), verdict, (), self.settings.constraint,
                          finish_reason=rollout.finish_reason)  # fmt: skip
        return super().reward(rollout, verdict) if found is None else Reward(found.reward, verdict.reason)

    def lesson(self, tried: Sequence[Tried], state: Any) -> Lesson:
        """Return what is learnt from the groups, penalised under nu and with nu for the next update, or to be solved.

        Raises:
            BadInputError: more rollouts than may could not be judged.
        """
        settings, groups = self.settings, groups_of(tried)
        criticised = [[(item, self._criticised(item)) for item in group] for group in groups.values()]
        unjudged = [item for group in criticised for item, found in group if found is None]
        check_judged(unjudged, tried, settings.max_unjudged_share)
        known = [[(item, found) for item, found in group if found is not None] for group in criticised]
        judged = [pair for group in known for pair in group]
        asked = {"asked": n_asked(state) + len(groups)}
        cost = fmean(found.cost for _, found in judged)
        figures = {
            "cpo/reward": fmean(found.reward for _, found in judged),
            "cpo/cost": cost,
            "cpo/disagreement": fmean(self._disagrees(item) for item, _ in judged),
        }
        if settings.trust_region is not None:
            solved = TrustRegion(settings.trust_region, settings.sampling, cost - settings.constraint.budget)
            return Lesson(solved, self._sequences(known), asked, sampling=settings.sampling, figures=figures)
        penalty = state["penalty"] if state else settings.constraint.penalty
        budget, rate = settings.constraint.budget, settings.constraint.penalty_rate
        following = {**asked, "penalty": next_penalty(penalty, cost, budget=budget, rate=rate)}
        return clipped_lesson(settings, self._sequences(known, penalty), following, {**figures, "cpo/penalty": penalty})

    def _criticised(self, item: Tried) -> Criticism | None:
        task, finish = self._task(item.rollout), item.rollout.finish_reason
        return criticise(task, item.verdict, item.steps, self.settings.constraint, finish_reason=finish)

    def _sequences(
        self, groups: Sequence[Sequence[tuple[Tried, Criticism]]], penalty: float | None = None
    ) -> list[TrainingSequence]:
        """Return the rollouts that learn, each token with the advantage of its step: under a penalty, or R and C."""
        found = []
        for group in groups:
            rewards = step_advantages([[step.reward for step in found.steps] for _, found in group])
            costs = step_advantages([[step.cost for step in found.steps] for _, found in group])
            for (item, criticism), reward, cost in zip(group, rewards, costs, strict=True):
                if not self.held_out.is_met_by(self._task(item.rollout), item.steps, item.verdict.plan):
                    by_step = [reward, cost] if penalty is None else [penalised(reward, cost, penalty)]
                    found.append(self._sequence_of(item, criticism, by_step))
        return found

    def _sequence_of(self, item: Tried, found: Criticism, by_step: Sequence[Sequence[float]]) -> TrainingSequence:
        rollout, places = item.rollout, [step.place for step in found.steps]
        _, spans = token_spans(self.tokenizer, rollout.token_ids)
        tokens = SampledTokens(rollout.prompt_token_ids, rollout.token_ids, tuple(spans))
        ends = [item.steps[place].outcome.end for place in places if place is not None]
        is_stopped = found.steps[-1].cost >= 1.0
        advantage, *of_cost = [token_advantages(tokens, steps, ends, is_stopped=is_stopped) for steps in by_step]
        written = rollout.rollout_logprobs if self.settings.objective.weight_limit is not None else ()
        return rollout_sequence(
            rollout.prompt_token_ids,
            rollout.token_ids,
            advantage=advantage,
            cost_advantage=of_cost[0] if of_cost else (),
            rollout_logprobs=written,
        )

    def _disagrees(self, item: Tried) -> bool:
        """Return whether the reference domain judges a plan differently; what could not be read is none in either."""
        if item.verdict.verdict == Verdict.MALFORMED_PLAN:
            return False
        row = self.references[item.rollout.problem_id]
        task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
        is_true = validate_plan(task, [parse_step(step) for step in item.verdict.plan]).is_valid
        return is_true != item.verdict.is_valid

    def _task(self, rollout: RolloutRow) -> PlanningTask:
        row = next(row for row in self.problems if row.problem_id == rollout.problem_id)
        return PlanningTask.from_text(row.domain_pddl, row.problem_pddl)


def learn_from_steps(context: StageContext[ConstrainedSettings]) -> None:
    """Let the policy try problems of D2 in the written domain, and learn from what that says of each step.

    Raises:
        BadInputError: there is no such problem; see also `FromSteps.lesson`.
    """
    settings = context.settings
    rows = context.inputs["problems"].rows(ProblemRow)
    problems = in_random_order((row for row in rows if row.split == settings.split), context.seed, "order of problems")
    if not problems:
        raise BadInputError("no problem to try", got=f"none of split {settings.split}", expected="one or more")
    references = {row.problem_id: row for row in context.inputs["reference"].rows(ProblemRow)}
    tokenizer = load_tokenizer(str(context.inputs["policy"].path(MODEL)))
    judge = PlanJudge(settings.prompting)
    run_updates(context, FromSteps(problems, judge, settings, references, HeldOut.of(rows), tokenizer))
