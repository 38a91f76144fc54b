"""What measures a policy on test problems: as they are, or with every name hidden; and random walks as the floor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.stages import plan_data, reading, rollout
from pipelines.stages.generating import GENERATION
from pipelines.stages.graph import Graph
from pipelines.stages.judging import JudgingSettings, judge_plans, steps_of
from pipelines.stages.phase1_data import solved_problems
from pipelines.stages.rollout import TrialSettings
from pipelines.stages.training import MAX_TOO_LONG
from plansmith.config.basics import narrowed
from plansmith.config.generalization_gap import GeneralizationGapConfig, Variant
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import FailureRow, FinishReason, ProblemRow, RolloutRow, Split, VerdictRow
from plansmith.errors import BadInputError
from plansmith.judging.failure_kinds import failure_kind
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.simulation import random_walk_to_goal
from plansmith.pddl.validation import Verdict
from plansmith.stages import Stage, StageContext
from plansmith.text.plans import compact_plan
from plansmith.text.rendering import plan_prompting

WALK = "walk"
"""The arm of random walks, which no policy has."""


class PlanTrials:
    """Adds the stages that try and judge policies to a graph.

    Args:
        graph: that they are added to.
        config: of the run.
        data: the stages ``problems`` and ``plans``.
    """

    def __init__(self, graph: Graph, config: GeneralizationGapConfig, data: Mapping[str, Stage[Any]]) -> None:
        self._graph, self._config, self._data = graph, config, dict(data)
        self._hidden: Stage[Any] | None = None

    def measure(self, arm: str, policy: Stage[Any], variant: Variant) -> None:
        """Let a policy answer the test problems of all domains, those never trained on, too, and judge its plans.

        It is asked as it was tuned: for plans of its variant's form, and the anonymised one under hidden names.
        """
        plan_format = "compact" if variant == "compact" else "numbered"
        prompting = plan_prompting(plan_format, self._config.prompts)
        self._measure(arm, policy, prompting, self.hidden_names() if variant == "anonymised" else None)

    def measure_reading(self, arm: str, policy: Stage[Any]) -> None:
        """Let a policy that reads the domain answer the test problems under symbols, by chains, and judge it."""
        self._measure(arm, policy, "chain_told", self.hidden_names())

    def measure_walks(self) -> None:
        """Let random walks of the planner's plan's length try the test problems."""
        tried = self._graph.stage(f"try_{WALK}", walk, None, self._data, kind=StageKind.GENERATES)
        self._judge(WALK, tried, "plan_compact", self._data["problems"])

    def _measure(self, arm: str, policy: Stage[Any], prompting: str, hidden: Stage[Any] | None) -> None:
        problems = self._data["problems"] if hidden is None else hidden
        settings = TrialSettings(
            sampling=SamplingConfig(
                temperature=self._config.evaluation.temperature, max_new_tokens=self._config.evaluation.max_new_tokens
            ),
            engine=narrowed(self._config.policy, EngineNumerics),
            prompting=prompting,
            iteration=0,
            split=Split.TEST,
        )
        options = {"kind": StageKind.GENERATES, "code_roots": GENERATION}
        given = {"policy": policy, **self._data, "problems": problems}
        tried = self._graph.stage(f"try_{arm}", try_fitting, settings, given, **options)
        self._judge(arm, tried, prompting, problems)

    def _judge(self, arm: str, tried: Stage[Any], prompting: str, problems: Stage[Any]) -> None:
        told = {"kind": StageKind.JUDGES, "labels": {"arm": arm, "prompting": prompting}}
        given = {"rollouts": tried, "problems": problems}
        judged = self._graph.stage(f"judge_{arm}", judge_plans, JudgingSettings(prompting=prompting), given, **told)
        given = {"judged": judged, "problems": problems}
        told = {"kind": StageKind.SORTS_FAILURES, "labels": {"arm": arm}}
        self._graph.stage(f"failures_{arm}", sort_failures, None, given, **told)

    def hidden_names(self) -> Stage[Any]:
        """Return the stage that writes the test problems under symbols, which is made once."""
        if self._hidden is None:
            given, wanted = {"problems": self._data["problems"]}, self._config.reading
            if wanted is None:
                self._hidden = self._graph.stage("hide_names", plan_data.hide_names, None, given)
            else:
                hiding = reading.HidingSettings(symbols=wanted.symbols)
                self._hidden = self._graph.stage("hide_names", reading.hide_behind_symbols, hiding, given)
        return self._hidden


def try_fitting(context: StageContext[TrialSettings]) -> None:
    """Let the policy try every solved problem of a split; see `rollout.try_problems`.

    Raises:
        BadInputError: more than a few prompts leave no room for an answer.
    """
    rollout.try_problems(context)
    rows = context.output.shards("rows", RolloutRow).merged_rows()
    n_full = sum(row.finish_reason == FinishReason.NO_ROOM for row in rows)
    if n_full > MAX_TOO_LONG * len(rows):
        raise BadInputError("too many prompts leave no room for an answer", where=context.stage.name,
                            got=f"{n_full} of {len(rows)}", expected=f"a share of {MAX_TOO_LONG:g} at most",
                            cure="raise policy.max_model_len, or test smaller problems")  # fmt: skip


def walk(context: StageContext[None]) -> None:
    """Write a random walk for every solved test problem, as a compact plan.

    Each action is any that can be applied; there are as many as the planner's plan has, fewer where the goal is met on
    the way: no walk that comes by the goal misses it for going on.
    """
    rows = []
    for row in solved_problems(context.inputs["problems"], context.inputs["plans"], Split.TEST):
        task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
        steps, _ = random_walk_to_goal(task, len(row.plan), context.rng(row.problem_id))
        rows.append(
            RolloutRow(
                rollout_id=f"{row.problem_id}-{WALK}",
                problem_id=row.problem_id,
                iteration=0,
                policy_version=WALK,
                prompt="",
                completion=compact_plan(steps),
                prompt_token_ids=(),
                token_ids=(),
                rollout_logprobs=(),
                finish_reason=FinishReason.STOP,
                seed=0,
            )
        )
    context.output.write_rows(rows, RolloutRow)


def sort_failures(context: StageContext[None]) -> None:
    """Write of what kind each failed attempt is."""
    problems = {row.problem_id: row for row in context.inputs["problems"].rows(ProblemRow)}
    steps = steps_of(context.inputs["judged"])
    rows = []
    for verdict in context.inputs["judged"].rows(VerdictRow):
        if verdict.verdict not in (Verdict.VALID, Verdict.BAD_INPUT):
            problem = problems[verdict.problem_id]
            task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
            rows.append(FailureRow(verdict.problem_id, failure_kind(task, verdict, steps.get(verdict.rollout_id, []))))
    context.output.write_rows(rows, FailureRow)
