"""How a pipeline lists its stages: a list in the making, and the evaluations that hang on each policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from pipelines.stages import feedback_turns, kept_policy, rollout, verification
from pipelines.stages.generating import GENERATION
from pipelines.stages.judging import JudgingSettings, judge_plans
from pipelines.stages.rollout import TrialSettings
from plansmith.config.basics import narrowed
from plansmith.config.generation import SamplingConfig
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.config.training import EngineNumerics, Numerics
from plansmith.data.artifacts import Artifact, StageKind
from plansmith.data.rows import Split
from plansmith.report.arms import CONTROL, FINAL
from plansmith.stages import Stage, StageContext
from plansmith.text.explanations import FeedbackKind

SettingsT = TypeVar("SettingsT")
IsNeeded = Callable[[Mapping[str, Artifact]], bool]


class Graph:
    """The stages of one run, in order.

    Args:
        seed: of the run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.stages: list[Stage[Any]] = []

    def stage(
        self,
        name: str,
        run: Callable[[StageContext[SettingsT]], None],
        settings: SettingsT,
        inputs: Mapping[str, Stage[Any]],
        **options: Any,
    ) -> Stage[SettingsT]:
        """Return a stage with the run's seed, after adding it to the list.

        Args:
            name, run, settings, inputs, options: of the `Stage`.
        """
        made = Stage(name=name, run=run, settings=settings, inputs=inputs, seed=self.seed, **options)
        self.stages.append(made)
        return made

    def __getitem__(self, name: str) -> Stage[Any]:
        """Return the stage of that name."""
        return next(stage for stage in self.stages if stage.name == name)


class Evaluations:
    """Stages that measure a policy and change nothing; iteration 0 is the policy before the feedback loop."""

    def __init__(self, graph: Graph, config: PddlInstructConfig, data: Mapping[str, Stage[Any]]) -> None:
        self._graph, self._config, self._data = graph, config, data
        self._engine = narrowed(config.policy, EngineNumerics)
        self._tried: dict[int, Stage[Any]] = {}
        self._judged: dict[int, Stage[Any]] = {}
        self._probes: dict[int, Stage[Any]] = {}

    def test(self, arm: str, policy: Stage[Any], *, iteration: int, prompting: str | None = None) -> None:
        """Let a policy try the test problems, and judge it; ``prompting`` asks in another way than the run's."""
        tried = self._try(f"try_{arm}", policy, Split.TEST, iteration, prompting)
        series = {"series": "loop"} if iteration or arm == "phase1" else {}  # one curve, which phase 1 begins
        judged = self._judge(f"judge_{arm}", tried, iteration, prompting, arm=arm, **series)
        if prompting is None:
            self._tried[iteration], self._judged[iteration] = tried, judged

    def test_control(self, policy: Stage[Any], *, iteration: int) -> None:
        """Let the control's policy try the test problems, and judge it; it is never the policy that is kept."""
        arm = f"{CONTROL}_{iteration}"
        tried = self._try(f"try_{arm}", policy, Split.TEST, iteration, None)
        self._judge(f"judge_{arm}", tried, iteration, arm=arm)

    def probe(self, policy: Stage[Any], *, iteration: int) -> None:
        """Let a policy try the probe set, if the loop looks at it; it is how an iteration is told to have gained."""
        if self._config.phase2.patience:
            tried = self._try(f"probe_{iteration}", policy, Split.PROBE, iteration, None)
            self._probes[iteration] = self._judge(f"judge_probe_{iteration}", tried, iteration, probe="yes")

    def explain(self, policy: Stage[Any]) -> None:
        """Let the policy of phase 1 explain valid and corrupted plans of D2, if the run asks for it."""
        phase1 = self._config.phase1
        if phase1.n_explained:
            settings = verification.ExplainingSettings(
                sampling=SamplingConfig(temperature=phase1.temperature, max_new_tokens=phase1.max_new_tokens),
                engine=self._engine,
                prompting=self._config.rendering,
                n_explained=phase1.n_explained,
            )
            given = {"policy": policy, **self._data}
            run, options = verification.explain_plans, {"kind": StageKind.VERIFIES, "code_roots": GENERATION}
            self._graph.stage("explain_plans", run, settings, given, **options)

    def keep(self, policies: Mapping[int, Stage[Any]]) -> Stage[Any]:
        """Return the stage whose policy is kept: the last one, or with a probe set the best, which reads all."""
        given = {f"policy_{t}": policy for t, policy in policies.items() if self._probes or t == max(policies)}
        probes = {f"probe_{t}": probe for t, probe in self._probes.items()}
        run, settings = kept_policy.keep_policy, kept_policy.KeepingSettings(patience=self._config.phase2.patience)
        options = {"needs_all_inputs": False, "kind": StageKind.KEEPS}
        return self._graph.stage("final_policy", run, settings, {**given, **probes}, **options)

    def finish(self, kept: Stage[Any]) -> None:
        """Measure the kept policy's verification of its own plans, and what feedback at inference adds."""
        config, evaluation = self._config, self._config.evaluation
        tried = {f"tried_{t}": stage for t, stage in self._tried.items()}
        data = {"policy": kept, **tried, **{f"judged_{t}": stage for t, stage in self._judged.items()}}
        numerics = narrowed(config.trainer, Numerics)
        options = {"needs_all_inputs": False, "kind": StageKind.VERIFIES, "labels": {"arm": FINAL}}
        self._graph.stage("verify_attempts", verification.verify_attempts, numerics, data, **options)
        if evaluation.feedback_turns:
            settings = feedback_turns.FeedbackTurnSettings(
                sampling=self._sampling(),
                engine=self._engine,
                prompting=config.rendering,
                n_turns=evaluation.feedback_turns,
                feedback=FeedbackKind(config.phase2.feedback),
            )
            data = {**data, "problems": self._data["problems"]}
            options = {"needs_all_inputs": False, "kind": StageKind.HANDS_BACK, "code_roots": GENERATION}
            self._graph.stage("feedback_turns", feedback_turns.hand_back, settings, data, **options)

    def _sampling(self) -> SamplingConfig:
        evaluation = self._config.evaluation
        return SamplingConfig(temperature=evaluation.temperature, max_new_tokens=evaluation.max_new_tokens)

    def _try(
        self, name: str, policy: Stage[Any], split: Split, iteration: int, prompting: str | None
    ) -> Stage[TrialSettings]:
        settings = TrialSettings(
            sampling=self._sampling(),
            engine=self._engine,
            prompting=prompting or self._config.rendering,
            iteration=iteration,
            split=split,
        )
        given = {"policy": policy, **self._data}
        options = {"kind": StageKind.GENERATES, "iteration": iteration, "code_roots": GENERATION}
        return self._graph.stage(name, rollout.try_problems, settings, given, **options)

    def _judge(
        self, name: str, tried: Stage[Any], iteration: int, prompting: str | None = None, **labels: str
    ) -> Stage[JudgingSettings]:
        """Return the stage that judges what another generated; its labels say whose attempts these are."""
        settings = JudgingSettings(prompting=prompting or self._config.rendering)
        given = {"rollouts": tried, "problems": self._data["problems"]}
        options = {"kind": StageKind.JUDGES, "iteration": iteration}
        labels["prompting"] = settings.prompting
        return self._graph.stage(name, judge_plans, settings, given, labels=labels, **options)

    def is_still_gaining(self, iteration: int) -> IsNeeded | None:
        """Return the question whether iteration t is needed, or None where all are."""
        patience = self._config.phase2.patience
        if not patience:
            return None
        return partial(kept_policy.is_still_gaining, iteration=iteration, patience=patience)
