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

from pipelines.commands.run import check_model, run_command
from pipelines.run.paths import PRESETS
from pipelines.run.publishing import planning_policy
from pipelines.run.workers import Workers
from pipelines.stages import control, feedback_data, phase1_data, rejection, rollout, training
from pipelines.stages.control import ControlSettings
from pipelines.stages.feedback_data import DatasetSettings, ReplanSettings
from pipelines.stages.generating import GENERATION
from pipelines.stages.graph import Evaluations, Graph, IsNeeded
from pipelines.stages.judging import JudgingSettings, judge_plans
from pipelines.stages.phase1_data import CorruptionSettings, DrawingSettings, WritingSettings, pddl_digest
from pipelines.stages.training import OPTIMISATION, TuningSettings, optimising
from plansmith.ablation.report import ablation_report
from plansmith.ablation.seeds import SeedsResults, seeds_results
from plansmith.ablation.seeds_report import seeds_report
from plansmith.ablation.summary import AblationResults
from plansmith.ablation.variants import ablation_results, variants
from plansmith.config.basics import narrowed
from plansmith.config.chains import ChainConfig
from plansmith.config.pddl_instruct import CorrectionConfig, PddlInstructConfig
from plansmith.config.training import Numerics, OptimiserConfig
from plansmith.data.artifacts import StageKind
from plansmith.pipeline import Ablation, OverSeeds, Pipeline, PublishedPolicy, Reporting
from plansmith.report.arms import chosen_iteration
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.results import Results
from plansmith.report.run_report import report_of
from plansmith.report.run_results import results_so_far
from plansmith.stages import Stage


def pddl_instruct(config: PddlInstructConfig) -> list[Stage[Any]]:
    """Return the stages of algorithm 1, in order; each names what it reads and every setting it depends on."""
    graph, rendering, numerics = Graph(config.seed), config.rendering, narrowed(config.trainer, Numerics)
    stage, names = graph.stage, config.problems.object_names

    # D1, D2, Dtest (section 4)
    pddl = pddl_digest(config.problems)
    drawing = DrawingSettings(problems=config.problems, pddl=pddl, is_word_level=config.is_word_level)
    problems = stage("sample_problems", phase1_data.sample_problems, drawing, {}, kind=StageKind.DRAWS)
    solving, drawn = phase1_data.synthesize_plans, {"problems": problems}
    plans = stage("synthesize_plans", solving, config.planner, drawn, kind=StageKind.PLANS)
    data: dict[str, Stage[Any]] = {"problems": problems, "plans": plans}
    corrupting = CorruptionSettings(per_problem=config.examples.invalid_explanations)
    corrupted = stage("corrupt_plans", phase1_data.corrupt_plans, corrupting, data)
    renamings = {level.name: level.renamings for level in config.problems.sampled_levels if level.renamings}
    writing = WritingSettings(rendering=rendering, object_names=names, examples=config.examples, renamings=renamings)
    solved = {**data, "corrupted": corrupted}
    examples = stage("write_chains", phase1_data.write_chains, writing, solved, kind=StageKind.WRITES)

    evaluations = Evaluations(graph, config, data)
    words = (*config.problems.object_names, *training.branch_words(config.examples)) if config.is_word_level else ()
    start = training.start_settings(config, words)
    policy: Stage[Any] = stage(
        "initial_policy", training.initial_policy, start, {"problems": problems, "examples": examples}
    )
    if config.evaluation.tries_untrained:
        evaluations.test("untrained", policy, iteration=0)
    for prompting in config.evaluation.baseline_prompts:
        evaluations.test(f"untrained_{prompting}", policy, iteration=0, prompting=prompting)

    # Phase 1: initial instruction tuning (lines 1 to 9)
    if config.phases != "phase2":
        tuning = TuningSettings(optimiser=narrowed(config.phase1, OptimiserConfig), numerics=numerics)
        given = {"policy": policy, "examples": examples}
        sequences = stage("encode_examples", training.encode_examples, None, given)
        given = {"policy": policy, "sequences": sequences}
        policy = stage("phase1", training.tune, tuning, given, **optimising("supervised"))
        evaluations.test("phase1", policy, iteration=0)
        evaluations.explain(policy)
    if config.rejection is not None:  # ours
        updating = rejection.rejection_settings(config, config.rejection)
        given, options = {"policy": policy, **data}, optimising("supervised", code_roots=(*GENERATION, *OPTIMISATION))
        policy = stage("rejection", rejection.reject, updating, given, **options)
        evaluations.test("rejection", policy, iteration=0)
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
    if config.phases != "phase1" and config.phase2.has_control:
        supervised = policies[0]
        for t in range(1, config.phase2.eta + 1):
            supervised = control_iteration(graph, config, t, {"policy": supervised, **data})
            evaluations.test_control(supervised, iteration=t)
    return graph.stages


def feedback_iteration(
    graph: Graph, config: PddlInstructConfig, t: int, given: Mapping[str, Stage[Any]], *, is_needed: IsNeeded | None
) -> Stage[Any]:
    """Return the policy after iteration t: roll out, judge, build the data sets, optimise (lines 12 to 40).

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

    rolling = rollout.roll_out_settings(config, t)
    options = {"kind": StageKind.GENERATES, "iteration": t, "is_needed": is_needed, "code_roots": GENERATION}
    rolled_out = stage(f"roll_out_{t}", rollout.roll_out, rolling, data, **options)
    judging, rollouts = JudgingSettings(prompting=rendering), {"rollouts": rolled_out, "problems": problems}
    options = {"kind": StageKind.JUDGES, "iteration": t, "labels": {"prompting": rendering}}
    verdicts = stage(f"judge_{t}", judge_plans, judging, rollouts, **options)
    replanning = ReplanSettings(planner=config.planner, is_on=loop.continuation_renamings > 0)
    tried = {**data, "verdicts": verdicts}
    replans = stage(f"replan_{t}", feedback_data.replan, replanning, tried, kind=StageKind.PLANS, iteration=t)
    building = DatasetSettings(
        corrections=narrowed(loop, CorrectionConfig),
        chains=narrowed(config.examples, ChainConfig),
        rendering=rendering,
        object_names=config.problems.object_names,
        numerics=numerics,
        verdict_weight=loop.verdict_weight if loop.stage2 is None else None,
        max_unjudged_share=loop.max_unjudged_share,
    )
    judged = {**data, "rollouts": rolled_out, "verdicts": verdicts, "replans": replans}
    options = {"kind": StageKind.BUILDS, "iteration": t}
    datasets = stage(f"build_datasets_{t}", feedback_data.build_datasets, building, judged, **options)

    tuning = TuningSettings(optimiser=loop.optimisation(loop.stage1, t), numerics=numerics, losses=loop.losses)
    read = {"datasets": datasets, "policy": policy}
    reasoned = stage(f"stage1_{t}", training.stage1, tuning, read, **optimising("reasoning", t))
    if loop.stage2 is None:
        return reasoned
    tuning = TuningSettings(optimiser=loop.optimisation(loop.stage2, t), numerics=numerics, losses=loop.losses)
    read = {"datasets": datasets, "policy": reasoned}
    return stage(f"stage2_{t}", training.stage2, tuning, read, **optimising("final", t))


def control_iteration(graph: Graph, config: PddlInstructConfig, t: int, given: Mapping[str, Stage[Any]]) -> Stage[Any]:
    """Return the control's policy after iteration t, taught as much as the loop was by plans alone.

    Args:
        graph: that it is added to; the loop's iteration is there.
        config: of the run.
        t: from 1.
        given: the control's policy before it, problems and plans.
    """
    loop, numerics = config.phase2, narrowed(config.trainer, Numerics)
    optimiser = loop.optimisation(loop.stage1, t)
    writing = ControlSettings(
        rendering=config.rendering,
        chains=narrowed(config.examples, ChainConfig),
        object_names=config.problems.object_names,
        longest_tokens=min(numerics.row_length_tokens, optimiser.max_length_tokens or numerics.row_length_tokens),
    )
    read = {**given, "datasets": graph[f"build_datasets_{t}"], "reasoned": graph[f"stage1_{t}"]}
    sequences = graph.stage(f"supervise_data_{t}", control.write_supervision, writing, read, iteration=t)
    tuning = TuningSettings(optimiser=optimiser, numerics=numerics)
    read = {"policy": given["policy"], "sequences": sequences}
    return graph.stage(f"supervise_{t}", training.tune, tuning, read, **optimising("control", t))


def published(run: RunSoFar[PddlInstructConfig], results: Results) -> PublishedPolicy:
    """Return the policy that a run gives to the world."""
    return planning_policy(run, results, f"It was trained with PDDL-INSTRUCT (arXiv:2509.13351): {_training(run)}.")


def _training(run: RunSoFar[PddlInstructConfig]) -> str:
    """Return what the kept policy was trained on, part by part."""
    config, kept, parts = run.config, run.one(StageKind.KEEPS), []
    if config.phases != "phase2":
        parts.append("explained plans and chains of thought")
    if config.rejection is not None:
        parts.append("those of its own attempts that a plan validator found valid")
    if kept is not None and (count := chosen_iteration(kept.artifact)):
        parts.append(
            f"{count} iteration{'s' * (count > 1)} of {config.phase2.feedback} feedback by a plan validator on every "
            "step of its own attempts"
        )
    return ", then ".join(parts) or "nothing"


PIPELINE = Pipeline(
    name="pddl_instruct",
    config=PddlInstructConfig,
    presets=PRESETS / "pddl_instruct",
    stages=pddl_instruct,
    session=Workers,
    results=results_so_far,
    reporting=Reporting(Results, report_of),
    check=check_model,
    published=published,
    ablation=Ablation(
        about="Run every arm of table 1: baseline, phase 1 only, phase 2 only, binary and detailed feedback, two "
        "numbers of iterations; and what tells which part teaches: as much supervision without rollouts, no continued "
        "attempts, the score term, feedback at the test. Print tables 1, 4 and 5 with the paper's figures beside ours.",
        variants=variants,
        results=ablation_results,
        reporting=Reporting(AblationResults, ablation_report, "ablation"),
        preset="laptop",
    ),
    over_seeds=OverSeeds(seeds_results, Reporting(SeedsResults, seeds_report, "seeds")),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return 0 when done, 1 when it failed, 2 for bad input."""
    return run_command(PIPELINE, argv)


if __name__ == "__main__":
    sys.exit(main())
