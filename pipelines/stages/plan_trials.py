"""What measures a policy that answers with plans alone: the test problems as they are, or with every name hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.stages import plan_data, rollout
from pipelines.stages.generating import GENERATION
from pipelines.stages.graph import Graph
from pipelines.stages.judging import JudgingSettings, judge_plans
from pipelines.stages.rollout import TrialSettings
from plansmith.config.basics import narrowed
from plansmith.config.generalization_gap import GeneralizationGapConfig, Variant
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import Split
from plansmith.stages import Stage


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
        prompting = "plan_compact" if variant == "compact" else "plan_numbered"
        data = {**self._data, "problems": self._hidden_names()} if variant == "anonymised" else self._data
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
        tried = self._graph.stage(f"try_{arm}", rollout.try_problems, settings, {"policy": policy, **data}, **options)
        told = {"kind": StageKind.JUDGES, "labels": {"arm": arm, "prompting": prompting}}
        given = {"rollouts": tried, "problems": data["problems"]}
        self._graph.stage(f"judge_{arm}", judge_plans, JudgingSettings(prompting=prompting), given, **told)

    def _hidden_names(self) -> Stage[Any]:
        if self._hidden is None:
            given = {"problems": self._data["problems"]}
            self._hidden = self._graph.stage("hide_names", plan_data.hide_names, None, given)
        return self._hidden
