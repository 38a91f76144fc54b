#!/usr/bin/env python3
"""PDDL-INSTRUCT (arXiv 2509.13351): instruction tuning with logical chains of thought and a validator's feedback.

`pddl_instruct` is algorithm 1 as a list of durable stages; running the file, or ``plansmith run pddl_instruct``, runs
them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # found from any folder, as `ray job submit` starts it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.parts import feedback_stages, problem_stages, rollout_stages, training_stages
from pipelines.parts.command import run_command
from pipelines.parts.evaluation_stages import chosen_iteration
from pipelines.parts.feedback_stages import DatasetSettings, ReplanSettings
from pipelines.parts.generating import GENERATION
from pipelines.parts.graph import Evaluations, Graph, IsNeeded
from pipelines.parts.judging_stages import JudgingSettings, judge_plans
from pipelines.parts.problem_stages import CorruptionSettings, DrawingSettings, WritingSettings, pddl_digest
from pipelines.parts.training_stages import OPTIMISATION, TuningSettings
from plansmith.config.basics import narrowed
from plansmith.config.models import CorrectionConfig, PddlInstructConfig
from plansmith.config.training import Numerics, OptimiserConfig
from plansmith.data.artifacts import Artifact
from plansmith.stages import Stage


def pddl_instruct(config: PddlInstructConfig) -> list[Stage[Any]]:
    """Return the stages of algorithm 1, in order; each names what it reads and every setting it depends on."""
    graph, rendering, numerics = Graph(config.seed), config.rendering, narrowed(config.trainer, Numerics)
    stage, names = graph.stage, config.problems.object_names

    # D1, D2, Dtest (section 4)
    pddl = pddl_digest(config.problems)
    drawing = DrawingSettings(problems=config.problems, pddl=pddl, is_word_level=config.is_word_level)
    problems = stage("sample_problems", problem_stages.sample_problems, drawing, {})
    plans = stage("synthesize_plans", problem_stages.synthesize_plans, config.planner, {"problems": problems})
    data: dict[str, Stage[Any]] = {"problems": problems, "plans": plans}
    corrupting = CorruptionSettings(per_problem=config.examples.invalid_explanations)
    corrupted = stage("corrupt_plans", problem_stages.corrupt_plans, corrupting, data)
    renamings = {level.name: level.renamings for level in config.problems.sampled_levels if level.renamings}
    writing = WritingSettings(rendering=rendering, object_names=names, examples=config.examples, renamings=renamings)
    examples = stage("write_chains", problem_stages.write_chains, writing, {**data, "corrupted": corrupted})

    evaluations = Evaluations(graph, config, data)
    start = training_stages.start_settings(config)
    policy: Stage[Any] = stage(
        "initial_policy", training_stages.initial_policy, start, {"problems": problems, "examples": examples}
    )
    evaluations.test("untrained", policy, iteration=0)
    for prompting in config.evaluation.baseline_prompts:
        evaluations.test(f"untrained_{prompting}", policy, iteration=0, prompting=prompting)

    # Phase 1: initial instruction tuning (lines 1 to 9)
    if config.phases != "phase2":
        tuning = TuningSettings(optimiser=narrowed(config.phase1, OptimiserConfig), numerics=numerics)
        given = {"policy": policy, "examples": examples}
        sequences = stage("encode_examples", training_stages.encode_examples, None, given)
        given = {"policy": policy, "sequences": sequences}
        policy = stage("phase1", training_stages.phase1, tuning, given, code_roots=OPTIMISATION)
        evaluations.test("phase1", policy, iteration=0)
        evaluations.explain(policy)
    policies = {0: policy}

    # Phase 2: chain-of-thought instruction tuning (lines 10 to 41)
    if config.phases != "phase1":
        evaluations.probe(policy, iteration=0)
        for t in range(1, config.phase2.eta + 1):
            is_needed = evaluations.is_still_gaining(t)
            given = {"policy": policies[t - 1], **data}
            policies[t] = feedback_iteration(graph, config, t, given, is_needed=is_needed)
            evaluations.probe(policies[t], iteration=t)
            evaluations.test(f"iteration_{t}", policies[t], iteration=t)

    evaluations.finish(evaluations.keep(policies))
    return graph.stages


def feedback_iteration(
    graph: Graph, config: PddlInstructConfig, t: int, given: Mapping[str, Stage[Any]], *, is_needed: IsNeeded | None
) -> Stage[Any]:
    """Return the policy after iteration t: roll out, judge, build the data sets, optimise twice (lines 12 to 40).

    Args:
        graph: that it is added to.
        config: of the run.
        t: from 1.
        given: the policy before it, problems and plans.
        is_needed: whether it is, see `Stage.is_needed`.
    """
    stage, loop, rendering, numerics = graph.stage, config.phase2, config.rendering, narrowed(config.trainer, Numerics)
    policy, problems = given["policy"], given["problems"]
    data = {name: given[name] for name in ("policy", "problems", "plans")}

    rolling = rollout_stages.roll_out_settings(config, t)
    run = rollout_stages.roll_out
    rolled_out = stage(f"roll_out_{t}", run, rolling, data, is_needed=is_needed, code_roots=GENERATION)
    judging = JudgingSettings(prompting=rendering)
    verdicts = stage(f"judge_{t}", judge_plans, judging, {"rollouts": rolled_out, "problems": problems})
    replanning = ReplanSettings(planner=config.planner, is_on=loop.continuation_renamings > 0)
    tried = {"policy": policy, "problems": problems, "verdicts": verdicts}
    replans = stage(f"replan_{t}", feedback_stages.replan, replanning, tried)
    building = DatasetSettings(
        corrections=narrowed(loop, CorrectionConfig),
        rendering=rendering,
        object_names=config.problems.object_names,
        numerics=numerics,
        max_unjudged_share=loop.max_unjudged_share,
    )
    judged = {**data, "rollouts": rolled_out, "verdicts": verdicts, "replans": replans}
    datasets = stage(f"build_datasets_{t}", feedback_stages.build_datasets, building, judged)

    tuning = TuningSettings(optimiser=loop.optimisation(loop.stage1, t), numerics=numerics, losses=loop.losses)
    read = {"datasets": datasets, "policy": policy}
    reasoned = stage(f"stage1_{t}", training_stages.stage1, tuning, read, code_roots=OPTIMISATION)
    tuning = TuningSettings(optimiser=loop.optimisation(loop.stage2, t), numerics=numerics, losses=loop.losses)
    read = {"datasets": datasets, "policy": reasoned}
    return stage(f"stage2_{t}", training_stages.stage2, tuning, read, code_roots=OPTIMISATION)


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
