"""How a pipeline lists its stages: a list in the making, and the evaluations that hang on each policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pipelines.parts import evaluation_stages, feedback_turns, rollout_stages, verification_stages
from plansmith.config.models import PddlInstructConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import Split
from plansmith.stages import Stage, StageContext


class Graph:
    """The stages of one run, in order."""

    def __init__(self, config: PddlInstructConfig) -> None:
        self.config = config
        self.stages: list[Stage] = []

    def stage(
        self,
        name: str,
        run: Callable[[StageContext], None],
        settings: Mapping[str, Any],
        *,
        is_needed: Callable[[Mapping[str, Artifact]], bool] | None = None,
        needs_all_inputs: bool = True,
        **inputs: Stage,
    ) -> Stage:
        """Return a stage with the run's seed, after adding it to the list."""
        self.stages.append(
            Stage(
                name=name,
                run=run,
                settings=settings,
                inputs=inputs,
                seed=self.config.seed,
                is_needed=is_needed,
                needs_all_inputs=needs_all_inputs,
            )
        )
        return self.stages[-1]


class Evaluations:
    """Stages that measure a policy and change nothing; iteration 0 is the policy before the feedback loop."""

    def __init__(self, graph: Graph, problems: Stage, plans: Stage) -> None:
        self._graph, self._config = graph, graph.config
        self._problems, self._plans = problems, plans
        self._tried: dict[int, Stage] = {}
        self._probes: dict[int, Stage] = {}

    def test(self, arm: str, policy: Stage, *, iteration: int, prompting: str | None = None) -> None:
        """Let a policy try the test problems, and judge it; ``prompting`` asks in another way than the run's."""
        tried = self._try(f"try_{arm}", policy, Split.TEST, iteration, prompting)
        self._judge(f"judge_{arm}", tried, prompting)
        if prompting is None:
            self._tried[iteration] = tried

    def probe(self, policy: Stage, *, iteration: int) -> None:
        """Let a policy try the probe set, if the loop looks at it; it is how an iteration is told to have gained."""
        if self._config.phase2.patience:
            tried = self._try(f"probe_{iteration}", policy, Split.PROBE, iteration, None)
            self._probes[iteration] = self._judge(f"judge_probe_{iteration}", tried, None)

    def explain(self, policy: Stage) -> None:
        """Let the policy of phase 1 explain valid and corrupted plans of D2, if the run asks for it."""
        phase1 = self._config.phase1
        if phase1.n_explained:
            self._graph.stage(
                "explain_plans",
                verification_stages.explain_plans,
                {"sampling": phase1.explaining(), "rendering": self._config.rendering},
                policy=policy,
                problems=self._problems,
                plans=self._plans,
            )

    def keep(self, policies: Mapping[int, Stage]) -> Stage:
        """Return the stage whose policy is kept: the last one, or with a probe set the best."""
        return self._graph.stage(
            "final_policy",
            evaluation_stages.keep_policy,
            {"is_best": bool(self._probes)},
            needs_all_inputs=False,
            **{f"policy_{t}": policy for t, policy in policies.items()},
            **{f"probe_{t}": probe for t, probe in self._probes.items()},
        )

    def finish(self, kept: Stage) -> None:
        """Measure the kept policy's verification of its own plans, and what feedback at inference adds."""
        tried = {f"tried_{t}": stage for t, stage in self._tried.items()}
        data = {"policy": kept, "problems": self._problems, **tried}
        self._graph.stage(
            "verify_attempts",
            verification_stages.verify_attempts,
            {"rendering": self._config.rendering},
            needs_all_inputs=False,
            **data,
        )
        evaluation = self._config.evaluation
        if evaluation.feedback_turns:
            settings = {"evaluation": evaluation.sampling(), "turns": evaluation.feedback_turns}
            feedback = {"feedback": self._config.phase2.feedback, "rendering": self._config.rendering}
            run = feedback_turns.hand_back
            self._graph.stage("feedback_turns", run, {**settings, **feedback}, needs_all_inputs=False, **data)

    def _try(self, name: str, policy: Stage, split: Split, iteration: int, prompting: str | None) -> Stage:
        config, evaluation = self._config, self._config.evaluation
        sampling = rollout_stages.Sampling(
            1, evaluation.temperature, evaluation.max_new_tokens, iteration, prompting or config.rendering
        )
        settings = {
            "rendering": prompting or config.rendering,
            "evaluation": evaluation.sampling(),
            "policy": config.policy.dtype,
        }
        run = partial(rollout_stages.try_problems, split=split, sampling=sampling)
        return self._graph.stage(name, run, settings, policy=policy, problems=self._problems, plans=self._plans)

    def _judge(self, name: str, tried: Stage, prompting: str | None) -> Stage:
        run = partial(rollout_stages.judge, prompting=prompting)
        return self._graph.stage(name, run, {}, rollouts=tried, problems=self._problems)

    def is_still_gaining(self, iteration: int) -> Callable[[Mapping[str, Artifact]], bool] | None:
        """Return the question whether iteration t is needed, or None where all are."""
        patience = self._config.phase2.patience
        if not patience:
            return None
        return partial(evaluation_stages.is_still_gaining, iteration=iteration, patience=patience)
