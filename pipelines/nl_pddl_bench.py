#!/usr/bin/env python3
"""NL-PDDL-Bench (arXiv 2606.29700): from problems in words to their PDDL, with a planner in the loop.

`nl_pddl_bench` is sections 3.2 to 3.4 as a list of durable stages; running the file, or ``plansmith run
nl_pddl_bench``, runs them.
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
from pipelines.run.publishing import formalising_policy
from pipelines.run.workers import Workers
from pipelines.stages import direct_plans, phase1_data, preference, texts, training
from pipelines.stages.direct_plans import BudgetSettings
from pipelines.stages.given import given_stages, planbench_texts
from pipelines.stages.graph import Graph
from pipelines.stages.phase1_data import DrawingSettings, pddl_digest
from pipelines.stages.preference import PairSettings
from pipelines.stages.text_trials import TextTrials
from pipelines.stages.texts import PerturbingSettings, TextExampleSettings, text_settings
from pipelines.stages.training import PreferenceTuningSettings, TuningSettings, optimising
from plansmith.ablation.formalisation_report import formalisation_summary_report
from plansmith.ablation.formalisation_summary import FormalisationSummary
from plansmith.ablation.formalisation_variants import text_ablation_results, text_seeds_results, text_variants
from plansmith.config.basics import narrowed
from plansmith.config.nl_pddl_bench import DpoConfig, NlPddlBenchConfig
from plansmith.config.training import Numerics, OptimiserConfig, PreferenceConfig
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import Split
from plansmith.pipeline import Ablation, OverSeeds, Pipeline, PublishedPolicy, Reporting
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.formalisation_report import formalisation_report
from plansmith.report.formalisation_results import FormalisationResults, formalisation_results
from plansmith.stages import Stage


def nl_pddl_bench(config: NlPddlBenchConfig) -> list[Stage[Any]]:
    """Return the stages in order; each names what it reads and every setting it depends on."""
    graph, numerics = Graph(config.seed), narrowed(config.trainer, Numerics)
    stage = graph.stage

    # Texts with their problems (section 3.2)
    drawing = DrawingSettings(problems=config.problems, pddl=pddl_digest(config.problems), is_word_level=False)
    problems = stage("sample_problems", phase1_data.sample_problems, drawing, {}, kind=StageKind.DRAWS)
    saying = text_settings(config.problems, config.texts, config.planner)
    said = stage("write_texts", texts.write_texts, saying, {"problems": problems})
    data: dict[str, Stage[Any]] = {"problems": problems, "texts": said}
    if config.transfer.planbench is not None:  # table 5
        theirs = planbench_texts(Path(config.transfer.planbench), config.texts)
        data = given_stages(graph, theirs, config.planner, data)
    trials, given = TextTrials(graph, config, data), dict[str, Stage[Any]](texts=said)
    if config.examples.repair:
        given["perturbed"] = perturbed(graph, config, said, "draw_mistakes", {Split.PHASE1: config.examples.repair})
    names, copies = config.problems.object_names, config.examples.texts
    writing = TextExampleSettings(texts=config.texts, object_names=names, copies=copies)
    examples = stage("write_examples", texts.write_text_examples, writing, given, kind=StageKind.WRITES)
    if config.evaluation.tries_grammar:  # ours
        trials.measure_grammar("read")

    # Supervised fine-tuning (section 3.3, equations 3 and 4)
    given = {"problems": problems, "examples": examples}
    start = stage("initial_policy", training.initial_policy, training.start_settings(config), given)
    if config.evaluation.tries_untrained:
        trials.measure("untrained", start, is_repaired=config.model.folder is not None)
    sequences = stage("encode_examples", training.encode_examples, None, {"policy": start, "examples": examples})
    policy = tuned(graph, "sft", config.sft, numerics, {"policy": start, "sequences": sequences})
    trials.measure("sft", policy)
    if config.has_direct_plans:  # table 2; that they are learnt is ours
        given = {"policy": start, "texts": said, "sequences": sequences}
        trials.measure_plans("direct", planning(graph, config, writing, given))

    # Preference optimisation on pairs that a planner has verified (section 3.3, equation 5)
    if config.dpo is not None:
        pairs = preference_pairs(graph, config, config.dpo, trials, {"policy": policy, **data})
        given = {"policy": policy, "pairs": pairs}
        known = stage("read_reference", preference.read_reference, numerics, given)
        tuning = PreferenceTuningSettings(
            optimiser=narrowed(config.dpo, OptimiserConfig),
            numerics=numerics,
            preference=narrowed(config.dpo, PreferenceConfig),
        )
        given = {"policy": policy, "pairs": known}
        preferring = stage("dpo", training.dpo, tuning, given, **optimising("preference"))
        if config.sft_longer is not None:  # ours
            given = {"policy": policy, "pairs": known, "texts": said}
            more = stage("supervise_more", preference.write_supervision, None, given)
            given = {"policy": policy, "sequences": more}
            longer = tuned(graph, "sft_longer", config.sft_longer, numerics, given)
            trials.measure("sft_longer", longer)
        given = {"policy": preferring, "reference": policy, "pairs": pairs}
        told = {"kind": StageKind.READS_PAIRS, "labels": {"arm": "dpo"}}
        stage("read_held_out_pairs", preference.read_held_out, numerics, given, **told)
        trials.measure("dpo", preferring)
    return graph.stages


def planning(
    graph: Graph, config: NlPddlBenchConfig, writing: TextExampleSettings, given: dict[str, Stage[Any]]
) -> Stage[Any]:
    """Return the policy tuned as by `sft` on as many tokens of the same texts, answered by plans."""
    stage, policy, numerics = graph.stage, given["policy"], narrowed(config.trainer, Numerics)
    examples = stage(
        "write_plans", texts.write_plan_examples, writing, {"texts": given["texts"]}, kind=StageKind.WRITES
    )
    encoded = stage("encode_plans", training.encode_examples, None, {"policy": policy, "examples": examples})
    budget = BudgetSettings(longest_tokens=config.sft.max_length_tokens or numerics.row_length_tokens)
    given = {"plans": encoded, "sequences": given["sequences"]}
    matched = stage("match_tokens", direct_plans.match_tokens, budget, given)
    return tuned(graph, "direct", config.sft, numerics, {"policy": policy, "sequences": matched})


def perturbed(
    graph: Graph, config: NlPddlBenchConfig, said: Stage[Any], name: str, draws: dict[str, float]
) -> Stage[Any]:
    """Return problems with one mistake each, so many of each text of the splits."""
    settings = PerturbingSettings(judging=config.judging, rendering=config.texts.rendering, draws=draws)
    return graph.stage(name, texts.perturb_texts, settings, {"texts": said})


def preference_pairs(
    graph: Graph, config: NlPddlBenchConfig, dpo: DpoConfig, trials: TextTrials, given: dict[str, Stage[Any]]
) -> Stage[Any]:
    """Return pairs of right answers and answers with a proved fault, for texts of D2."""
    wanted = dpo.pairs
    if wanted.negatives == "sampled":
        judged = trials.sampled(given["policy"], n=wanted.draws_per_problem, temperature=wanted.temperature)
        faulty = graph.stage("collect_failures", preference.collect_failures, None, {"judged": judged})
    else:
        faulty = perturbed(graph, config, given["texts"], "perturb_texts", {Split.PHASE2: wanted.draws_per_problem})
    settings = narrowed(wanted, PairSettings)
    return graph.stage("write_pairs", preference.write_pairs, settings, {"texts": given["texts"], "perturbed": faulty})


def tuned(
    graph: Graph, name: str, optimiser: OptimiserConfig, numerics: Numerics, given: dict[str, Stage[Any]]
) -> Stage[Any]:
    """Return the policy after an optimisation by likelihood."""
    tuning = TuningSettings(optimiser=optimiser, numerics=numerics)
    return graph.stage(name, training.tune, tuning, given, **optimising("supervised"))


def published(run: RunSoFar[NlPddlBenchConfig], results: FormalisationResults) -> PublishedPolicy:
    """Return the policy that a run gives to the world."""
    taught = "texts answered by their problems"
    if run.config.dpo is not None:
        taught += ", then pairs of a right answer and one whose mistake a planner or validator has proved"
    return formalising_policy(run, results, f"It was trained with NL-PDDL-Bench (arXiv:2606.29700): {taught}.")


PIPELINE = Pipeline(
    name="nl_pddl_bench",
    config=NlPddlBenchConfig,
    presets=PRESETS / "nl_pddl_bench",
    stages=nl_pddl_bench,
    session=Workers,
    results=formalisation_results,
    reporting=Reporting(FormalisationResults, formalisation_report),
    check=check_model,
    published=published,
    ablation=Ablation(
        about="Run every arm, each as it answers first and with its failed answers repaired: the untrained policy, "
        "fine-tuning, as much more of it, and preference optimisation on each kind of negatives; and what the repair "
        "loop is without feedback. Print every figure over the seeds, and paired tests.",
        variants=text_variants,
        results=text_ablation_results,
        reporting=Reporting(FormalisationSummary, formalisation_summary_report, "ablation"),
        preset="laptop",
    ),
    over_seeds=OverSeeds(text_seeds_results, Reporting(FormalisationSummary, formalisation_summary_report, "seeds")),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return 0 when done, 1 when it failed, 2 for bad input."""
    return run_command(PIPELINE, argv)


if __name__ == "__main__":
    sys.exit(main())
