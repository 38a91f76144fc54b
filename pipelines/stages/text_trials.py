"""What measures a policy that answers texts: its first problems, the repair loop, its control; or its plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pipelines.stages import direct_plans, formalising
from pipelines.stages.direct_plans import PlanTrialSettings
from pipelines.stages.formalising import RepairSettings, TextTrialSettings
from pipelines.stages.generating import GENERATION
from pipelines.stages.graph import Graph
from plansmith.config.basics import narrowed
from plansmith.config.generation import SamplingConfig
from plansmith.config.nl_pddl_bench import NlPddlBenchConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import Split
from plansmith.stages import Stage


class TextTrials:
    """Adds the stages that try and judge policies to a graph.

    Args:
        graph: that they are added to.
        config: of the run.
        data: the stages ``problems`` and ``texts``.
    """

    def __init__(self, graph: Graph, config: NlPddlBenchConfig, data: Mapping[str, Stage[Any]]) -> None:
        self._graph, self._config, self._data = graph, config, data

    def measure(self, arm: str, policy: Stage[Any], *, is_repaired: bool = True) -> None:
        """Let a policy answer the test texts, and hand back what has no plan (section 3.4)."""
        evaluation, loop = self._config.evaluation, self._config.repair
        judged = self.judge(arm, self.answer(f"try_{arm}", policy, Split.TEST, self._sampling(evaluation.temperature)))
        if is_repaired and loop.turns:
            self._repair(f"repair_{arm}", arm, policy, judged, "validator")
            if loop.has_resampling:
                self._repair(f"resample_{arm}", arm, policy, judged, "none")

    def measure_plans(self, arm: str, policy: Stage[Any]) -> None:
        """Let a policy answer the test texts with plans, and judge them on the references."""
        settings = PlanTrialSettings(
            sampling=self._sampling(self._config.evaluation.temperature),
            engine=self._engine(),
            prompting=self._prompting,
            split=Split.TEST,
            texts=self._config.texts,
        )
        given = {"policy": policy, "texts": self._data["texts"]}
        options = {"kind": StageKind.GENERATES, "code_roots": GENERATION}
        tried = self._graph.stage(f"try_{arm}", direct_plans.try_plans, settings, given, **options)
        told = {"kind": StageKind.JUDGES_PLANS, "labels": {"arm": arm}}
        given = {"rollouts": tried, **self._data}
        self._graph.stage(f"judge_{arm}", direct_plans.judge_plans_of_texts, None, given, **told)

    def measure_grammar(self, arm: str) -> None:
        """Let the grammar that the texts are written by read the test texts: the ceiling, without a policy."""
        given = {"texts": self._data["texts"]}
        self.judge(arm, self._graph.stage(f"try_{arm}", formalising.read_texts, None, given))

    def answer(self, name: str, policy: Stage[Any], split: Split, sampling: SamplingConfig) -> Stage[Any]:
        """Return the stage in which a policy answers the texts of a split."""
        settings = TextTrialSettings(sampling=sampling, engine=self._engine(), prompting=self._prompting, split=split)
        given = {"policy": policy, "texts": self._data["texts"]}
        options = {"kind": StageKind.GENERATES, "code_roots": GENERATION}
        return self._graph.stage(name, formalising.try_texts, settings, given, **options)

    def judge(self, name: str, answers: Stage[Any], *, is_arm: bool = True) -> Stage[Any]:
        """Return the stage that judges answers; those of an arm are at the test texts."""
        told: dict[str, Any] = {"kind": StageKind.JUDGES_TEXTS, "labels": {"arm": name}} if is_arm else {}
        given = {"rollouts": answers, **self._data}
        return self._graph.stage(f"judge_{name}", formalising.judge_texts, self._config.judging, given, **told)

    def sampled(self, policy: Stage[Any], *, n: int, temperature: float) -> Stage[Any]:
        """Return the judged answers of a policy to the texts of D2."""
        sampling = self._sampling(temperature).model_copy(update={"n": n})
        return self.judge("samples", self.answer("sample_answers", policy, Split.PHASE2, sampling), is_arm=False)

    def _repair(
        self, name: str, arm: str, policy: Stage[Any], judged: Stage[Any], feedback: Literal["validator", "none"]
    ) -> None:
        settings = RepairSettings(
            sampling=self._sampling(self._config.repair.temperature),
            engine=self._engine(),
            prompting=self._prompting,
            turns=self._config.repair.turns,
            feedback=feedback,
            texts=self._config.texts,
            judging=self._config.judging,
        )
        given = {"policy": policy, "judged": judged, **self._data}
        told = {"kind": StageKind.REPAIRS, "labels": {"arm": arm, "feedback": feedback}, "code_roots": GENERATION}
        self._graph.stage(name, formalising.repair, settings, given, **told)

    @property
    def _prompting(self) -> str:
        return self._config.texts.rendering

    def _engine(self) -> EngineNumerics:
        return narrowed(self._config.policy, EngineNumerics)

    def _sampling(self, temperature: float) -> SamplingConfig:
        return SamplingConfig(temperature=temperature, max_new_tokens=self._config.evaluation.max_new_tokens)
