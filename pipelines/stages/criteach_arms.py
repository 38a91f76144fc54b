"""What tries and judges the arms of Self-CriTeach, and what draws answers that are chosen from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pipelines.stages import preference, rollout, self_teaching, training
from pipelines.stages.constrained import constrained_settings, learn_from_steps
from pipelines.stages.generating import ASKING, GENERATION
from pipelines.stages.graph import Graph
from pipelines.stages.judging import JudgingSettings, judge_plans
from pipelines.stages.rollout import TrialSettings
from pipelines.stages.self_teaching import DEMONSTRATED, NoiseSettings, has_examples, has_pairs
from pipelines.stages.training import OPTIMISATION, PreferenceTuningSettings, TuningSettings, optimising
from plansmith.config.basics import narrowed
from plansmith.config.constrained import CriticConfig
from plansmith.config.generation import AnsweringConfig, EndpointModel, SamplingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.self_criteach import CriteachEvaluationConfig, SamplesConfig, SelfCriteachConfig
from plansmith.config.training import EngineNumerics, FolderEngine, Numerics, OptimiserConfig, PreferenceConfig
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import Split
from plansmith.stages import Stage

FREE = "narrated"
"""How models are asked that have learnt no rendering."""


class CriteachArms:
    """Adds the stages of arms to a graph.

    Args:
        graph: that they are added to.
        config: of the run.
        data: the stages ``problems`` (in the reference domains), ``library`` (the same in the written ones), ``plans``
            of the library, ``tests`` (the library's, or those that were chosen) and ``test_plans``.
    """

    def __init__(self, graph: Graph, config: SelfCriteachConfig, data: Mapping[str, Stage[Any]]) -> None:
        self._graph, self._config, self._data = graph, config, dict(data)
        self._disturbed: dict[str, Stage[Any]] = {}
        self._numerics = narrowed(config.trainer, Numerics)
        self._engine = narrowed(config.policy, EngineNumerics)
        self._critic = CriticConfig() if config.cpo is None else narrowed(config.cpo, CriticConfig)

    def wants(self, *arms: str) -> bool:
        """Return whether the run has one of these arms."""
        return bool({*arms} & {*self._config.arms})

    # --- trying

    def measure(self, arm: str, policy: Stage[Any], *, prompting: str | None = None) -> None:
        """Let a policy try the test problems as the written domain has them; the reference domain judges its plans."""
        if not self.wants(arm):
            return
        given = {"policy": policy, "problems": self._data["tests"], "plans": self._data["test_plans"]}
        self._judge(arm, self._try(f"try_{arm}", given, prompting=prompting), prompting)

    def measure_others(self) -> None:
        """Let models that are no policies of the run try the test problems; they are asked in free words."""
        evaluation = self._config.evaluation
        for name, model in evaluation.models.items():
            settings = TrialSettings(
                sampling=SamplingConfig(max_new_tokens=evaluation.max_new_tokens, **_once(evaluation)),
                engine=engine_of(model, self._engine),
                prompting=FREE,
                split=Split.TEST,
            )
            given = {"problems": self._data["tests"], "plans": self._data["test_plans"]}
            self._judge(name, self._ask(f"try_{name}", model, settings, given), FREE)

    def measure_vote(self, policy: Stage[Any]) -> None:
        """Let a policy answer each test problem several times, and choose; all answers' tokens count."""
        if not self.wants("vote"):
            return
        given = {"policy": policy, "problems": self._data["tests"], "plans": self._data["test_plans"]}
        tried = self._try("try_vote", given, is_sampled=True)
        how = JudgingSettings(prompting=self._config.prompting)
        given = {"rollouts": tried, "problems": self._data["problems"]}
        judged = self._graph.stage("read_votes", judge_plans, how, given)
        told = {"kind": StageKind.JUDGES, "labels": {"arm": "vote", "prompting": self._config.prompting}}
        chosen = self._graph.stage("vote", self_teaching.vote, None, {**given, "judged": judged}, **told)
        self._criticise("vote", tried, chosen, self._config.prompting)

    def sample(self, name: str, policy: Stage[Any]) -> dict[str, Stage[Any]]:
        """Return several answers to each problem of D2, and what the written domain says of them."""
        given = {"policy": policy, "problems": self._data["library"], "plans": self._data["plans"]}
        return self._judged_answers(name, self._try(f"answer_{name}", given, split=Split.PHASE2, is_sampled=True))

    def taught(self, name: str) -> dict[str, Stage[Any]]:
        """Return several answers of the teacher to each problem of D2, and what the written domain says of them."""
        config = self._config
        settings = TrialSettings(
            sampling=SamplingConfig(max_new_tokens=config.evaluation.max_new_tokens, **_several(config.samples)),
            engine=engine_of(config.teacher, self._engine),
            prompting=config.prompting,
            split=Split.PHASE2,
        )
        given = {"problems": self._data["library"], "plans": self._data["plans"]}
        return self._judged_answers(name, self._ask(f"answer_{name}", config.teacher, settings, given))

    def _ask(
        self, name: str, model: AnsweringConfig, settings: TrialSettings, given: Mapping[str, Stage[Any]]
    ) -> Stage[Any]:
        """Return the answers of who is no policy of the run."""
        options = {"kind": StageKind.GENERATES, "code_roots": ASKING if model.url else GENERATION}
        return self._graph.stage(name, rollout.try_problems, settings, given, **options)

    def _judged_answers(self, name: str, tried: Stage[Any]) -> dict[str, Stage[Any]]:
        given = {"rollouts": tried, "problems": self._data["library"]}
        how = JudgingSettings(prompting=self._config.prompting)
        return {**given, "judged": self._graph.stage(f"judge_answers_{name}", judge_plans, how, given)}

    def _try(
        self,
        name: str,
        given: Mapping[str, Stage[Any]],
        *,
        split: Split = Split.TEST,
        prompting: str | None = None,
        is_sampled: bool = False,
    ) -> Stage[Any]:
        evaluation, samples = self._config.evaluation, self._config.samples
        drawn = _several(samples) if is_sampled else _once(evaluation)
        settings = TrialSettings(
            sampling=SamplingConfig(max_new_tokens=evaluation.max_new_tokens, **drawn),
            engine=self._engine,
            prompting=prompting or self._config.prompting,
            split=split,
        )
        options = {"kind": StageKind.GENERATES, "code_roots": GENERATION}
        return self._graph.stage(name, rollout.try_problems, settings, given, **options)

    def _judge(self, arm: str, tried: Stage[Any], prompting: str | None = None) -> None:
        how = JudgingSettings(prompting=prompting or self._config.prompting)
        told = {"kind": StageKind.JUDGES, "labels": {"arm": arm, "prompting": how.prompting}}
        given = {"rollouts": tried, "problems": self._data["problems"]}
        judged = self._graph.stage(f"judge_{arm}", judge_plans, how, given, **told)
        self._criticise(arm, tried, judged, how.prompting)

    def _criticise(self, arm: str, tried: Stage[Any], judged: Stage[Any], prompting: str) -> None:
        """Let the reference say what a plan reached, and the written domain, whose words it is in, what it cost."""
        how = JudgingSettings(prompting=prompting)
        given = {"rollouts": tried, "problems": self._data["library"]}
        as_written = self._graph.stage(f"check_claims_{arm}", judge_plans, how, given)
        given = {"judged": judged, "problems": self._data["problems"]}
        given |= {"as_written": as_written, "library": self._data["library"]}
        told = {"labels": {"criticised": arm}}
        self._graph.stage(f"criticise_{arm}", self_teaching.criticise_attempts, self._critic, given, **told)

    # --- learning

    def tune(self, name: str, policy: Stage[Any], examples: Stage[Any], *, only_if_any: bool = False) -> Stage[Any]:
        """Return a policy after tuning on examples by likelihood (equation 8)."""
        is_needed = partial(has_examples, stage=examples.name) if only_if_any else None
        given = {"policy": policy, "examples": examples}
        encode = training.encode_examples
        sequences = self._graph.stage(f"encode_{name}", encode, None, given, is_needed=is_needed)
        tuning = TuningSettings(optimiser=self._config.sft, numerics=self._numerics)
        given = {"policy": policy, "sequences": sequences}
        return self._graph.stage(name, training.tune, tuning, given, **optimising("supervised"))

    def read(self, name: str, policy: Stage[Any], chains: Stage[Any]) -> None:
        """Let a policy read chains that it has not learnt from."""
        given, told = {"policy": policy, "chains": chains}, {"labels": {"reads": name}}
        self._graph.stage(f"read_{name}", self_teaching.read_chains, self._numerics, given, **told)

    def constrain(self, name: str, policy: Stage[Any]) -> Stage[Any]:
        """Return a policy after constrained policy optimisation in the written domain (equation 9)."""
        assert self._config.cpo is not None, "the config wants it"
        updating = constrained_settings(
            self._config.cpo, engine=self._config.policy, numerics=self._numerics, prompting=self._config.prompting
        )
        given = {"policy": policy, "problems": self._data["library"], "reference": self._data["problems"]}
        options = optimising("constrained", code_roots=(*GENERATION, *OPTIMISATION))
        return self._graph.stage(name, learn_from_steps, updating, given, **options)

    def prefer(self, name: str, policy: Stage[Any]) -> Stage[Any]:
        """Return a policy after preference optimisation on pairs of its own answers; left out where there is none."""
        assert self._config.dpo is not None, "the config wants it"
        answers = self.sample(name, policy)
        pairs = self._graph.stage(f"pair_{name}", self_teaching.pair_answers, self._critic, answers)
        given = {"policy": policy, "pairs": pairs}
        read, is_needed = preference.read_reference, partial(has_pairs, stage=pairs.name)
        known = self._graph.stage(f"reference_{name}", read, self._numerics, given, is_needed=is_needed)
        tuning = PreferenceTuningSettings(
            optimiser=narrowed(self._config.dpo, OptimiserConfig),
            numerics=self._numerics,
            preference=narrowed(self._config.dpo, PreferenceConfig),
        )
        given = {"policy": policy, "pairs": known}
        return self._graph.stage(name, training.dpo, tuning, given, **optimising("preference"))

    def measure_noise(self, policy: Stage[Any], state: str) -> None:
        """Let a policy plan from noisy states; its plans run from the true ones (table 4).

        Args:
            policy: who plans.
            state: that it plans from: ``shown`` to it, or ``believed``, which it says is there.
        """
        for name, labels, noisy in self._noisy():
            given = {"policy": policy, "problems": noisy, "plans": self._data["test_plans"]}
            tried = self._try(f"try_{state}_{name}", given)
            how = JudgingSettings(prompting=self._config.prompting)
            given = {"rollouts": tried, "problems": self._data["problems"]}
            self._graph.stage(f"judge_{state}_{name}", judge_plans, how, given, labels=labels | {"state": state})

    def _noisy(self) -> Iterator[tuple[str, dict[str, str], Stage[Any]]]:
        """Yield each rate of noise as a name and a label, and the test problems disturbed at it."""
        evaluation = self._config.evaluation
        for rate in evaluation.noise_rates:
            name, settings = f"{100 * rate:g}".replace(".", "p"), NoiseSettings(rate=rate, mixture=evaluation.noise)
            if name not in self._disturbed:
                given = {"problems": self._data["tests"], "plans": self._data["test_plans"]}
                self._disturbed[name] = self._graph.stage(f"noise_{name}", self_teaching.add_noise, settings, given)
            yield name, {"noise": str(rate)}, self._disturbed[name]

    def plan_under_noise(self, recorded: Mapping[str, Stage[Any]]) -> None:
        """Let the planner plan from noisy states (table 4), and from the nearest that fit what was demonstrated."""
        stage = self._graph.stage
        demonstrated = {f"{DEMONSTRATED} {name}": found for name, found in recorded.items()}
        for name, labels, noisy in self._noisy():
            given = {"noisy": noisy, "reference": self._data["problems"]}
            planner = PlannerConfig(search="first", time_limit_s=self._config.planner.time_limit_s)
            shown = labels | {"state": "planned"}
            stage(f"plan_noise_{name}", self_teaching.plan_under_noise, planner, given, labels=shown)
            seen = {"noisy": noisy, "problems": self._data["library"], **demonstrated}
            found = labels | {"state": "found"}
            given["noisy"] = stage(f"nearest_{name}", self_teaching.find_nearest, None, seen, labels=found)
            planned = labels | {"state": "nearest"}
            stage(f"plan_nearest_{name}", self_teaching.plan_under_noise, planner, given, labels=planned)


def engine_of(answering: AnsweringConfig, numerics: EngineNumerics) -> EngineNumerics | EndpointModel:
    """Return what the answers depend on of somebody who is no policy of the run; nobody named is one of its policies.

    Args:
        answering: server, folder, or nobody.
        numerics: of the run's engines.
    """
    if answering.url:
        return narrowed(answering.endpoint, EndpointModel)
    return numerics if answering.folder is None else FolderEngine(**numerics.model_dump(), folder=answering.folder)


def _once(evaluation: CriteachEvaluationConfig) -> dict[str, Any]:
    """Return how an answer is drawn that counts by itself."""
    return {"temperature": evaluation.temperature, "top_p": evaluation.top_p}


def _several(samples: SamplesConfig) -> dict[str, Any]:
    """Return how answers are drawn that are chosen from."""
    return {"n": samples.answers, "temperature": samples.temperature, "top_p": samples.top_p}
