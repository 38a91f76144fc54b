#!/usr/bin/env python3
"""PDDL-INSTRUCT (arXiv 2509.13351): instruction tuning with logical chains of thought and a validator's feedback.

`pddl_instruct` is algorithm 1 as a list of durable stages; running the file, or ``plansmith run pddl_instruct``, runs
them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

if __name__ == "__main__":  # found from any folder, as `ray job submit` starts it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.parts import feedback_stages, problem_stages, rollout_stages, training_stages
from pipelines.parts.command import run_command
from pipelines.parts.evaluation_stages import chosen_iteration
from pipelines.parts.graph import Evaluations, Graph
from plansmith.config.basics import narrowed
from plansmith.config.models import PddlInstructConfig
from plansmith.config.training import AdapterConfig, Numerics, OptimiserConfig
from plansmith.data.artifacts import Artifact
from plansmith.stages import Stage


def pddl_instruct(config: PddlInstructConfig) -> list[Stage]:
    """Return the stages of algorithm 1, in order; each names what it reads and every setting it depends on."""
    graph = Graph(config)
    stage, training = graph.stage, {"trainer": narrowed(config.trainer, Numerics)}

    # D1, D2, Dtest (section 4)
    drawing = {"problems": config.problems, "pddl": problem_stages.pddl_digest(config.problems)}
    problems = stage("sample_problems", problem_stages.sample_problems, drawing)
    solving = {"planner": config.planner}
    plans = stage("synthesize_plans", problem_stages.synthesize_plans, solving, problems=problems)
    data = {"problems": problems, "plans": plans}
    texts = {"examples": config.examples, "rendering": config.rendering}
    corrupted = stage("corrupt_plans", problem_stages.corrupt_plans, texts, **data)
    examples = stage("write_chains", problem_stages.write_chains, texts, **data, corrupted=corrupted)

    evaluations = Evaluations(graph, **data)
    model = {"model": config.model, "adapter": narrowed(config.trainer, AdapterConfig)}
    policy = stage("initial_policy", training_stages.initial_policy, model, examples=examples)
    evaluations.test("untrained", policy, iteration=0)
    for prompting in config.evaluation.baseline_prompts:
        evaluations.test(f"untrained_{prompting}", policy, iteration=0, prompting=prompting)

    # Phase 1: initial instruction tuning (lines 1 to 9)
    if config.phases != "phase2":
        tuning = {"phase1": narrowed(config.phase1, OptimiserConfig), **training}
        policy = stage("phase1", training_stages.phase1, tuning, policy=policy, examples=examples)
        evaluations.test("phase1", policy, iteration=0)
        evaluations.explain(policy)
    policies = {0: policy}

    # Phase 2: chain-of-thought instruction tuning (lines 10 to 41)
    if config.phases != "phase1":
        evaluations.probe(policy, iteration=0)
        for t in range(1, config.phase2.eta + 1):
            is_needed = evaluations.is_still_gaining(t)
            policies[t] = feedback_iteration(graph, t, policies[t - 1], examples, data, is_needed=is_needed)
            evaluations.probe(policies[t], iteration=t)
            evaluations.test(f"iteration_{t}", policies[t], iteration=t)

    evaluations.finish(evaluations.keep(policies))
    return graph.stages


def feedback_iteration(
    graph: Graph,
    t: int,
    policy: Stage,
    examples: Stage,
    data: Mapping[str, Stage],
    *,
    is_needed: Callable[[Mapping[str, Artifact]], bool] | None,
) -> Stage:
    """Return the policy after iteration t: roll out, judge, build the data sets, optimise twice (lines 12 to 40)."""
    stage, config, loop = graph.stage, graph.config, graph.config.phase2
    rolled_out = stage(
        f"roll_out_{t}",
        partial(rollout_stages.roll_out, iteration=t),
        {"rollouts": loop.sampling(), "rendering": config.rendering},
        is_needed=is_needed,
        policy=policy,
        **data,
    )
    verdicts = stage(f"judge_{t}", rollout_stages.judge, {}, rollouts=rolled_out, problems=data["problems"])
    solving = {"planner": config.planner, "is_on": loop.continuation_renamings > 0}
    replans = stage(f"replan_{t}", feedback_stages.replan, solving, policy=policy, rollouts=rolled_out, **data)
    datasets = stage(
        f"build_datasets_{t}",
        feedback_stages.build_datasets,
        {"loop": loop.corrections(), "losses": loop.losses},
        policy=policy,
        rollouts=rolled_out,
        verdicts=verdicts,
        replans=replans,
        **data,
    )
    losses = {"losses": loop.losses, "trainer": narrowed(config.trainer, Numerics)}
    given = {"datasets": datasets, "examples": examples}
    optimising = {"stage1": loop.optimisation("stage1", t), **losses}
    reasoned = stage(f"stage1_{t}", partial(training_stages.stage1, iteration=t), optimising, policy=policy, **given)
    optimising = {"stage2": loop.optimisation("stage2", t), **losses}
    return stage(f"stage2_{t}", partial(training_stages.stage2, iteration=t), optimising, policy=reasoned, **given)


def arms(config: PddlInstructConfig, kept: Artifact | None = None) -> dict[str, tuple[str, str]]:
    """Return each arm of the report with the stage of its policy and the name its evaluation runs under.

    Args:
        config: of the run.
        kept: the kept policy, once there is one: which iteration ``final`` is, and how many there were, may depend on
            the probe set.
    """
    found = {"untrained": ("initial_policy", "untrained")}
    for name in config.evaluation.baseline_prompts:
        found[f"untrained_{name}"] = ("initial_policy", f"untrained_{name}")
    start, chosen = "untrained", 0
    if config.phases != "phase2":
        start = "phase1"
        found["phase1"] = ("phase1", "phase1")
    if config.phases != "phase1":
        chosen = config.phase2.eta
        found |= {f"iteration_{t}": (f"stage2_{t}", f"iteration_{t}") for t in range(1, chosen + 1)}
    if kept is not None:
        chosen = chosen_iteration(kept)
    return found | {"final": ("final_policy", f"iteration_{chosen}" if chosen else start)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return 0 when done, 1 when it failed, 2 for bad input."""
    return run_command("pddl_instruct", pddl_instruct, arms, argv)


if __name__ == "__main__":
    sys.exit(main())
