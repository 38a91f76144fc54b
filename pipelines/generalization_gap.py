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
from pipelines.run.publishing import gap_policy
from pipelines.run.workers import Workers
from pipelines.stages import equal_seconds, group_relative, label_budget, phase1_data, plan_data, training
from pipelines.stages.equal_seconds import HELD_OUT, SEGMENT
from pipelines.stages.generating import GENERATION
from pipelines.stages.graph import Graph
from pipelines.stages.group_relative import group_relative_settings
from pipelines.stages.phase1_data import DrawingSettings, pddl_digest
from pipelines.stages.plan_trials import PlanTrials
from pipelines.stages.reading import (
    FRESH,
    SOURCES_OF,
    HidingSettings,
    InventedProblemsSettings,
    ReadingTuningSettings,
    ToldExamplesSettings,
    draw_invented,
    have_domains,
    hide_behind_symbols,
    inventing_settings,
    tune_reading,
    write_told,
)
from pipelines.stages.training import OPTIMISATION, SEQUENCES, EpochSettings, TuningSettings, optimising
from pipelines.stages.update_loop import SEGMENT_START
from plansmith.ablation.gap_seeds import gap_seeds_results
from plansmith.ablation.seeds import SeedsResults, as_it_is, of_one_variant
from plansmith.ablation.seeds_report import seeds_report
from plansmith.config.basics import narrowed
from plansmith.config.dataset import PlanExamplesConfig
from plansmith.config.generalization_gap import GeneralizationGapConfig, ReadingConfig, Variant
from plansmith.config.reinforcement import ReinforcementConfig
from plansmith.config.training import EngineNumerics, Numerics, OptimiserConfig, Schedule
from plansmith.data.artifacts import StageKind
from plansmith.data.domain_shares import check_unseen
from plansmith.data.rows import Split
from plansmith.pddl.domain_distance import DomainForms
from plansmith.pipeline import Ablation, OverSeeds, Pipeline, PublishedPolicy, Reporting
from plansmith.problems.library import load_domain
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.gap_report import gap_report
from plansmith.report.gap_results import GapResults, gap_results
from plansmith.stages import Stage
from plansmith.text.anonymisation import check_pool
from plansmith.text.rendering import plan_prompting
from plansmith.text.told import TOLD_MARKERS, domain_words


def generalization_gap(config: GeneralizationGapConfig) -> list[Stage[Any]]:
    """Return the stages in order; each names what it reads and every setting it depends on."""
    graph = Graph(config.seed)
    if config.reading is not None:
        read_domains(graph, config, config.reading)
    else:
        as_in_the_paper(graph, config)
    return graph.stages


def as_in_the_paper(graph: Graph, config: GeneralizationGapConfig) -> None:
    """Add B, v1, v2 and v3, tried in the domains that they were tuned on and in others."""
    stage = graph.stage

    # Problems and plans of the domains to learn from, problems of the others (sections 3 and 5)
    problems = drawn(graph, config)
    data = {"problems": problems, "plans": solved(graph, config, problems)}
    trials = PlanTrials(graph, config, data)

    # v2 may learn from some of the plans alone, so that reinforcement learning has problems of its own (ours)
    tried, of_compact = problems, data
    if config.plan_share < 1:
        sharing = label_budget.SharingSettings(share=config.plan_share)
        tried = stage("share_plans", label_budget.share_labels, sharing, data)
        of_compact = {**data, "labels": tried}
    examples = {
        variant: written(graph, config, variant, of_compact if variant == "compact" else data)
        for variant in config.variants
    }

    # Imitation: B, v1 and v2, each from the same start (sections 4.1, 4.2 and 5)
    given = {"problems": problems, "examples": examples[config.variants[0]]}
    start = stage("initial_policy", training.initial_policy, training.start_settings(config), given)
    if config.evaluation.tries_untrained:
        trials.measure("untrained", start, "numbered")
    tuned = {variant: epochs(graph, config, variant, start, examples[variant]) for variant in config.variants}
    counting = plan_data.CountingSettings(longest_tokens=longest_sequence(config))
    given = {"sequences": graph[f"encode_{config.variants[0]}"], "problems": problems}
    stage("count_tokens", plan_data.count_tokens, counting, given, kind=StageKind.COUNTS_TOKENS)
    for variant, policies in tuned.items():
        for epoch, policy in enumerate(policies, 1):
            trials.measure(variant if len(policies) == 1 else f"{variant}_{epoch}", policy, variant)

    # Reinforcement: v3, from v2 after one epoch (section 4.3); other rewards and objectives, and controls (ours)
    if config.grpo is not None:
        given = {"policy": tuned["compact"][config.grpo_after_epoch - 1], "problems": tried}
        updated = reinforced(graph, config, "grpo", config.grpo, given)
        for name, other in (config.other_grpo or {}).items():
            for arm, policy in reinforced(graph, config, f"grpo_{name}", other, given).items():
                trials.measure(arm, policy, "compact")
        for arm, policy in label_budgets(graph, config, config.grpo, {"policy": start, **data}).items():
            trials.measure(arm, policy, "compact")
        given[HELD_OUT] = problems
        for arm, policy in controls(graph, config, config.grpo, given, list(updated.values())).items():
            trials.measure(arm, policy, "compact")
        for arm, policy in updated.items():
            trials.measure(arm, policy, "compact")


def reinforced(
    graph: Graph, config: GeneralizationGapConfig, name: str, loop: ReinforcementConfig, given: dict[str, Stage[Any]]
) -> dict[str, Stage[Any]]:
    """Return the policy after each segment of reinforcement learning, by arm; the last has the loop's name.

    Compact plans are tried on D1; by policies that read the domain, chains on fresh problems.
    """
    segments: dict[str, Stage[Any]] = {}
    policy, first, reads = given["policy"], 1, config.reading is not None
    for number, last in enumerate(loop.ends, 1):
        updating = group_relative_settings(
            loop,
            engine=config.policy,
            numerics=narrowed(config.trainer, Numerics),
            prompting="chain_told" if reads else compact_prompting(config),
            split=Split.PHASE2 if reads else Split.PHASE1,
            segment=(first, last),
        )
        arm = name if last == loop.updates else f"{name}_{number}_of_{loop.segments}"
        inputs = {**given, "policy": policy} | ({SEGMENT_START: given["policy"]} if first > 1 else {})
        told = optimising("group_relative", code_roots=(*GENERATION, *OPTIMISATION), loop=name)
        policy = graph.stage(arm, group_relative.learn_from_groups, updating, inputs, **told)
        segments[arm], first = policy, last + 1
    return segments


def controls(
    graph: Graph,
    config: GeneralizationGapConfig,
    loop: ReinforcementConfig,
    given: dict[str, Stage[Any]],
    segments: list[Stage[Any]],
) -> dict[str, Stage[Any]]:
    """Return what else becomes of the start of reinforcement learning in the seconds that this took."""
    numerics = narrowed(config.trainer, Numerics)
    timed = {f"{SEGMENT}_{number}": stage for number, stage in enumerate(segments)}
    options = optimising("supervised", code_roots=(*GENERATION, *OPTIMISATION))
    found: dict[str, Stage[Any]] = {}
    if "more_sft" in config.controls:
        tuning = TuningSettings(optimiser=config.tuning.model_copy(update={"epochs": 1}), numerics=numerics)
        inputs = {"policy": given["policy"], "sequences": graph["encode_compact"], **timed}
        found["more_sft"] = graph.stage("more_sft", equal_seconds.tune_as_long, tuning, inputs, **options)
    if "own_plans" in config.controls:
        trying = equal_seconds.OwnPlansSettings(
            sampling=loop.sampling,
            engine=narrowed(config.policy, EngineNumerics),
            prompting=compact_prompting(config),
            updates=MOST_UPDATES * loop.updates,
            checkpoint_every=loop.checkpoint_every,
            optimiser=narrowed(loop, OptimiserConfig).model_copy(update={"schedule": Schedule.CONSTANT}),
            numerics=numerics,
            n_problems=loop.problems_per_update,
        )
        inputs = {**given, **timed}
        found["own_plans"] = graph.stage("own_plans", equal_seconds.learn_own_plans, trying, inputs, **options)
    return found


def label_budgets(
    graph: Graph, config: GeneralizationGapConfig, loop: ReinforcementConfig, given: dict[str, Stage[Any]]
) -> dict[str, Stage[Any]]:
    """Return the policies tuned on a share of the plans, each also as it is after reinforcement on the rest.

    A start that solves nothing is no mistake here: so few plans are too few.
    """
    tuning = TuningSettings(optimiser=config.tuning, numerics=narrowed(config.trainer, Numerics))
    on_rest = loop.model_copy(update={"segments": 1, "may_start_cold": True})
    found: dict[str, Stage[Any]] = {}
    for share in config.labels:
        name, sharing = f"labels{100 * share:g}".replace(".", "p"), label_budget.SharingSettings(share=share)
        inputs = {"problems": given["problems"], "plans": given["plans"]}
        labels = graph.stage(f"share_{name}", label_budget.share_labels, sharing, inputs, kind=StageKind.SHARES_LABELS)
        inputs = {"policy": given["policy"], "sequences": graph["encode_compact"], "labels": labels}
        found[name] = graph.stage(name, label_budget.tune_labelled, tuning, inputs, **optimising("supervised"))
        if share < 1:
            rest = {"policy": found[name], "problems": labels}
            found |= reinforced(graph, config, f"{name}_grpo", on_rest, rest)
    return found


MOST_UPDATES = 10
"""So many times the updates of reinforcement learning are made of one's own plans at most, if the seconds allow it."""


def longest_sequence(config: GeneralizationGapConfig) -> int:
    """Return the longest sequence that a variant is trained on, in tokens."""
    return config.tuning.max_length_tokens or narrowed(config.trainer, Numerics).row_length_tokens


def compact_prompting(config: GeneralizationGapConfig) -> str:
    """Return how compact plans are asked for."""
    return plan_prompting("compact", config.prompts)


def read_domains(graph: Graph, config: GeneralizationGapConfig, reading: ReadingConfig) -> None:
    """Add policies that read the domain, tuned on domains of the run and on invented ones (ours)."""
    stage, numerics = graph.stage, narrowed(config.trainer, Numerics)

    # Invented domains, some of them held out; problems and plans of these and of the run's own
    wanted, settings = reading.invented, inventing_settings(config, reading)
    domains = stage("invent_domains", have_domains, settings, {}, kind=StageKind.INVENTS)
    counts = InventedProblemsSettings(
        n_problems=wanted.problems,
        n_fresh=wanted.fresh_problems if reading.grpo else 0,
        n_test=wanted.test_problems,
        n_draws=wanted.n_draws,
    )
    given = {"problems": drawn(graph, config), "domains": domains}
    problems = stage("draw_invented", draw_invented, counts, given)
    data = {"problems": problems, "plans": solved(graph, config, problems)}
    trials = PlanTrials(graph, config, data)
    trials.measure_walks()

    # Chains that tell the domain, under symbols drawn anew for each; from a model that knows symbols alone
    how = PlanExamplesConfig(
        plan_format="chain", prompts="told", anonymise="always", copies=reading.copies, symbols=reading.symbols
    )
    sources = dict.fromkeys(source for arm in reading.arms for source in SOURCES_OF[arm])
    examples = {source: told(graph, ToldExamplesSettings(source=source, examples=how, tested=settings.tested), data)
                for source in sources}  # fmt: skip
    given = {"problems": trials.hidden_names(), "examples": next(iter(examples.values()))}
    words = (*TOLD_MARKERS, *reading.symbols.words)
    start = stage("initial_policy", training.initial_policy, training.start_settings(config, words), given)
    encoded = {
        source: stage(f"encode_{source}", training.encode_examples, None, {"policy": start, "examples": written})
        for source, written in examples.items()
    }

    # Every arm is tuned on as many tokens
    policies: dict[str, Stage[Any]] = {}
    for arm in (arm for arm in SOURCES_OF if arm in reading.arms):
        tuning = ReadingTuningSettings(optimiser=reading.sft, numerics=numerics, tokens=reading.tokens)
        sequences = {f"{SEQUENCES}_{source}": encoded[source] for source in SOURCES_OF[arm]}
        given = {"policy": start, **sequences}
        policies[arm] = stage(arm, tune_reading, tuning, given, **optimising("supervised"))
        trials.measure_reading(arm, policies[arm])

    # Reinforcement on problems of invented domains that no planner has solved
    if reading.grpo is not None:
        hiding = HidingSettings(symbols=reading.symbols, table=FRESH, split=Split.PHASE2)
        fresh = stage("hide_fresh", hide_behind_symbols, hiding, {"problems": problems})
        given = {"policy": policies["mixed"], "problems": fresh}
        for name, policy in reinforced(graph, config, "reinforced", reading.grpo, given).items():
            trials.measure_reading(name, policy)


def drawn(graph: Graph, config: GeneralizationGapConfig) -> Stage[Any]:
    """Return the problems of the run's own domains."""
    drawing = DrawingSettings(problems=config.problems, pddl=pddl_digest(config.problems), is_word_level=False)
    return graph.stage("sample_problems", phase1_data.sample_problems, drawing, {}, kind=StageKind.DRAWS)


def solved(graph: Graph, config: GeneralizationGapConfig, problems: Stage[Any]) -> Stage[Any]:
    """Return the planner's plans."""
    given = {"problems": problems}
    return graph.stage("synthesize_plans", phase1_data.synthesize_plans, config.planner, given, kind=StageKind.PLANS)


def told(graph: Graph, settings: ToldExamplesSettings, data: dict[str, Stage[Any]]) -> Stage[Any]:
    """Return the chains of a source that tell their domain."""
    return graph.stage(f"write_{settings.source}", write_told, settings, data, kind=StageKind.WRITES)


def written(graph: Graph, config: GeneralizationGapConfig, variant: Variant, data: dict[str, Stage[Any]]) -> Stage[Any]:
    """Return the tuples that a variant is tuned on."""
    shared: dict[str, Any] = {"prompts": config.prompts, "varies": config.copies > 1}
    stacked = config.copies * config.tuning.epochs
    how = {
        "numbered": PlanExamplesConfig(**shared, copies=config.copies),
        "anonymised": PlanExamplesConfig(**shared, copies=stacked, anonymise="curriculum"),
        "compact": PlanExamplesConfig(**shared, copies=round(config.copies / config.plan_share), plan_format="compact"),
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
    stacked = config.copies * config.tuning.epochs if variant == "anonymised" else 0
    optimiser = config.tuning.model_copy(update={"epochs": 1}) if stacked else config.tuning
    policy, policies = start, list[Stage[Any]]()
    for epoch in range(1, optimiser.epochs + 1):
        tuning = EpochSettings(optimiser=optimiser, numerics=numerics, epoch=epoch, stacked_copies=stacked)
        given = {"policy": policy, "sequences": sequences}
        policy = graph.stage(f"{variant}_{epoch}", training.tune_epoch, tuning, given, **optimising("supervised"))
        policies.append(policy)
    return policies


def check_gap(config: GeneralizationGapConfig, *, is_dry_run: bool = False) -> None:
    """Raise unless the model is there, no domain that is trained on is one that is only tested, and all can be told.

    Raises:
        BadInputError: which cannot, or is.
    """
    check_model(config, is_dry_run=is_dry_run)
    forms = {level.domain_name: DomainForms.of(level.domain_name, load_domain(level.domain).domain)
             for level in config.problems.domains}  # fmt: skip
    learnt, tested = (
        [forms[name] for name in sorted(names)] for names in (config.trained_domains, config.unseen_domains)
    )
    check_unseen(learnt, tested, where="problems.domains")
    for domain in dict.fromkeys(level.domain for level in config.problems.domains):
        if config.reading is not None or config.prompts == "told":
            domain_words(load_domain(domain).domain)
        if config.reading is not None:
            check_pool(load_domain(domain).domain, config.reading.symbols)


def published(run: RunSoFar[GeneralizationGapConfig], results: GapResults) -> PublishedPolicy:
    """Return the policy that a run gives to the world: the one trained last."""
    taught = "plans by likelihood"
    if run.config.reading is not None:
        taught = "chains of thought in domains told in its prompt, among them invented ones, under drawn symbols"
    if results.rl:
        taught += ", then the validator's verdicts on its own plans"
    method = f"It was trained after On the Generalization Gap in LLM Planning (arXiv:2601.14456): {taught}."
    return gap_policy(run, results, method)


PIPELINE = Pipeline(
    name="generalization_gap",
    config=GeneralizationGapConfig,
    presets=PRESETS / "generalization_gap",
    preset="tiny",
    stages=generalization_gap,
    session=Workers,
    results=gap_results,
    reporting=Reporting(GapResults, gap_report),
    check=check_gap,
    published=published,
    ablation=Ablation(
        about="Run every arm over several seeds: epochs of imitation, hidden names, reinforcement learning with its "
        "controls, or policies that read the domain. Print every policy's figures over the seeds, and paired tests.",
        variants=as_it_is,
        results=of_one_variant(gap_seeds_results),
        reporting=Reporting(SeedsResults, seeds_report, "ablation"),
        preset="tiny",
    ),
    over_seeds=OverSeeds(gap_seeds_results, Reporting(SeedsResults, seeds_report, "seeds")),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return 0 when done, 1 when it failed, 2 for bad input."""
    return run_command(PIPELINE, argv)


if __name__ == "__main__":
    sys.exit(main())
