#!/usr/bin/env python3
"""On the Generalization Gap in LLM Planning (arXiv 2601.14456): plans by imitation, by verdicts, and in new domains.

`generalization_gap` is sections 4 and 5 as a list of durable stages; running the file, or ``plansmith run
generalization_gap``, runs them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # found from any folder, as `ray job submit` starts it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.commands.run import check_model, run_command
from pipelines.run.paths import PRESETS
from pipelines.run.workers import Workers
from pipelines.stages import group_relative, phase1_data, plan_data, training
from pipelines.stages.generating import GENERATION
from pipelines.stages.graph import Graph
from pipelines.stages.group_relative import group_relative_settings
from pipelines.stages.phase1_data import DrawingSettings, pddl_digest
from pipelines.stages.plan_trials import PlanTrials
from pipelines.stages.training import OPTIMISATION, EpochSettings
from plansmith.config.basics import narrowed
from plansmith.config.dataset import PlanExamplesConfig
from plansmith.config.generalization_gap import GeneralizationGapConfig, Variant
from plansmith.config.training import Numerics
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import Split
from plansmith.pipeline import Pipeline, Reporting
from plansmith.report.gap_report import gap_report
from plansmith.report.gap_results import GapResults, gap_results
from plansmith.stages import Stage


def generalization_gap(config: GeneralizationGapConfig) -> list[Stage[Any]]:
    """Return the stages in order; each names what it reads and every setting it depends on."""
    graph, numerics = Graph(config.seed), narrowed(config.trainer, Numerics)
    stage = graph.stage

    # Problems and plans of the domains to learn from, problems of the others (sections 3 and 5)
    drawing = DrawingSettings(problems=config.problems, pddl=pddl_digest(config.problems), is_word_level=False)
    problems = stage("sample_problems", phase1_data.sample_problems, drawing, {}, kind=StageKind.DRAWS)
    given = {"problems": problems}
    plans = stage("synthesize_plans", phase1_data.synthesize_plans, config.planner, given, kind=StageKind.PLANS)
    data: dict[str, Stage[Any]] = {"problems": problems, "plans": plans}
    examples = {variant: written(graph, config, variant, data) for variant in config.variants}
    trials = PlanTrials(graph, config, data)

    # Imitation: B, v1 and v2, each from the same start (sections 4.1, 4.2 and 5)
    given = {"problems": problems, "examples": examples[config.variants[0]]}
    start = stage("initial_policy", training.initial_policy, training.start_settings(config), given)
    if config.evaluation.tries_untrained:
        trials.measure("untrained", start, "numbered")
    tuned = {variant: epochs(graph, config, variant, start, examples[variant]) for variant in config.variants}
    for variant, policies in tuned.items():
        for epoch, policy in enumerate(policies, 1):
            trials.measure(variant if len(policies) == 1 else f"{variant}_{epoch}", policy, variant)

    # Reinforcement: v3, from v2 after one epoch (section 4.3)
    if config.grpo is not None:
        updating = group_relative_settings(
            config.grpo, engine=config.policy, numerics=numerics, prompting="plan_compact", split=Split.PHASE1
        )
        given = {"policy": tuned["compact"][0], "problems": problems}
        told = {"kind": StageKind.OPTIMISES, "labels": {"objective": "group_relative"}}
        roots = (*GENERATION, *OPTIMISATION)
        learnt = stage("grpo", group_relative.learn_from_groups, updating, given, code_roots=roots, **told)
        trials.measure("grpo", learnt, "compact")
    return graph.stages


def written(graph: Graph, config: GeneralizationGapConfig, variant: Variant, data: dict[str, Stage[Any]]) -> Stage[Any]:
    """Return the tuples that a variant is tuned on."""
    how = {
        "numbered": PlanExamplesConfig(),
        "anonymised": PlanExamplesConfig(anonymise="curriculum", copies=config.sft.epochs),
        "compact": PlanExamplesConfig(plan_format="compact"),
    }[variant]
    return graph.stage(f"write_{variant}", plan_data.write_plans, how, data, kind=StageKind.WRITES)


def epochs(
    graph: Graph, config: GeneralizationGapConfig, variant: Variant, start: Stage[Any], examples: Stage[Any]
) -> list[Stage[Any]]:
    """Return the policy after each epoch of a variant's tuning, all under one schedule.

    The anonymised tuples are stacked as often as the others have epochs, and trained on once.
    """
    numerics, given = narrowed(config.trainer, Numerics), {"policy": start, "examples": examples}
    sequences = graph.stage(f"encode_{variant}", training.encode_examples, None, given)
    stacked = config.sft.epochs if variant == "anonymised" else 0
    optimiser = config.sft.model_copy(update={"epochs": 1}) if stacked else config.sft
    policy, policies = start, list[Stage[Any]]()
    for epoch in range(1, optimiser.epochs + 1):
        tuning = EpochSettings(optimiser=optimiser, numerics=numerics, epoch=epoch, stacked_copies=stacked)
        given = {"policy": policy, "sequences": sequences}
        told = {"kind": StageKind.OPTIMISES, "labels": {"objective": "supervised"}, "code_roots": OPTIMISATION}
        policy = graph.stage(f"{variant}_{epoch}", training.tune_epoch, tuning, given, **told)
        policies.append(policy)
    return policies


PIPELINE = Pipeline(
    name="generalization_gap",
    config=GeneralizationGapConfig,
    presets=PRESETS / "generalization_gap",
    stages=generalization_gap,
    session=Workers,
    results=gap_results,
    reporting=Reporting(GapResults, gap_report),
    check=check_model,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return 0 when done, 1 when it failed, 2 for bad input."""
    return run_command(PIPELINE, argv)


if __name__ == "__main__":
    sys.exit(main())
