#!/usr/bin/env python3
"""Self-CriTeach: a model writes the PDDL domain of what it sees, learns from its plans, and is rewarded by it.

`self_criteach` is section 5 of the paper as a list of durable stages; running the file, or ``plansmith run
self_criteach``, runs them.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # found from any folder, as `ray job submit` starts it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.commands.run import run_command
from pipelines.run.paths import PRESETS
from pipelines.run.publishing import criteach_policy
from pipelines.stages import domain_writing, phase1_data, self_teaching, training
from pipelines.stages.chosen_tests import choose_tests
from pipelines.stages.criteach_arms import CriteachArms, engine_of
from pipelines.stages.domain_writing import (
    CheckingSettings,
    DamageSettings,
    GatheringSettings,
    PruningSettings,
    ReadingSettings,
    WriteDomainSettings,
    WriteSchemasSettings,
)
from pipelines.stages.generating import ASKING, GENERATION, GenerationSettings
from pipelines.stages.graph import Graph
from pipelines.stages.phase1_data import DrawingSettings, pddl_digest
from pipelines.stages.priming import primed_policy
from pipelines.stages.self_teaching import (
    WRITTEN,
    NarratingSettings,
    NarrationSettings,
    PartSettings,
    WritingLibrarySettings,
)
from pipelines.trials.answering import AnsweringWorkers, check_answering
from plansmith.ablation.criteach_seeds import (
    CriteachSeeds,
    criteach_seeds_report,
    criteach_seeds_results,
)
from plansmith.ablation.domain_damage import DamageResults, damage_results, damage_variants
from plansmith.ablation.domain_damage_report import damage_report
from plansmith.ablation.seeds import as_it_is, of_one_variant
from plansmith.config.basics import narrowed
from plansmith.config.chains import ChainConfig
from plansmith.config.domain_writing import DomainQuestionConfig
from plansmith.config.generation import AnsweringConfig, SamplingConfig
from plansmith.config.self_criteach import SelfCriteachConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import StageKind
from plansmith.data.demonstration_files import read_demonstrations
from plansmith.pddl.cases import read_text
from plansmith.pipeline import Ablation, OverSeeds, Pipeline, PublishedPolicy, Reporting
from plansmith.problems.library import load_domain
from plansmith.problems.noise import Noise
from plansmith.report.criteach_report import criteach_report
from plansmith.report.criteach_results import CriteachResults, criteach_results
from plansmith.report.finished_stages import RunSoFar
from plansmith.stages import Stage


def self_criteach(config: SelfCriteachConfig) -> list[Stage[Any]]:
    """Return the stages in order; each names what it reads and every setting it depends on."""
    graph = Graph(config.seed)
    stage = graph.stage

    # Scenes, demonstrations, and a domain for each kind of them (sections 5.1 and A.1)
    drawing = DrawingSettings(
        problems=config.problems, pddl=pddl_digest(config.problems), is_word_level=config.is_word_level
    )
    problems = stage("sample_problems", phase1_data.sample_problems, drawing, {}, kind=StageKind.DRAWS)
    single = config.planner.model_copy(update={"n_plans": 1})
    test_plans = stage("plan_tests", self_teaching.plan_tests, single, {"problems": problems}, kind=StageKind.PLANS)
    chosen = None
    if config.tests is not None:
        chosen = stage("choose_tests", choose_tests, config.tests, {"problems": problems, "plans": test_plans})
    recorded = {name: demonstrations(graph, config, name, problems) for name in learnt_domains(config)}
    base = None
    if config.prime is not None:
        base = primed_policy(graph, config, problems)
    elif config.model.folder is not None:
        base = start(graph, config, problems, next(iter(recorded.values())))
    written = {
        f"{WRITTEN} {name}": domain_of(graph, config, name, {"demonstrations": found, "problems": problems}, base)
        for name, found in recorded.items()
    }

    # The library of plans in the written domains, and its chains (sections A.1.3 and 5.2)
    scenes: Stage[Any] = problems
    if config.library.walks is not None:
        given = {"problems": problems, **written}
        scenes = stage("walk_library", self_teaching.walk_library, config.library.walks, given)
    library = stage("adopt_domains", self_teaching.adopt_domains, None, {"problems": scenes, **written})
    plans = stage(
        "synthesize_plans", phase1_data.synthesize_plans, config.planner, {"problems": library}, kind=StageKind.PLANS
    )
    stage("run_library", self_teaching.run_library, None, {"plans": plans, "reference": scenes})
    tests = library
    if chosen is not None:
        tests = stage("adopt_tests", self_teaching.adopt_domains, None, {"problems": chosen, **written})
    data: dict[str, Stage[Any]] = {
        "problems": scenes, "library": library, "plans": plans, "tests": tests, "test_plans": test_plans
    }  # fmt: skip
    if config.narrator.kind == "model":
        chains = narrated(graph, config, {"problems": library, "plans": plans}, base)
    else:
        chains = examples(graph, config, data, "write_chains", has_chains=True)
    base = base or start(graph, config, problems, chains)

    policies(graph, config, data, base, chains, recorded)
    return graph.stages


def policies(
    graph: Graph,
    config: SelfCriteachConfig,
    data: dict[str, Stage[Any]],
    base: Stage[Any],
    chains: Stage[Any],
    recorded: dict[str, Stage[Any]],
) -> None:
    """Add every arm: without learning, tuned (section 5.3), reinforced (section 5.4), and under noise."""
    arms = CriteachArms(graph, config, data)
    arms.measure("base", base)
    arms.measure_others()
    arms.measure_vote(base)
    arms.measure("prompt_cot", base, prompting="chain_of_thought")
    if arms.wants("self_distilled"):
        own = graph.stage("distil_itself", self_teaching.distil, None, arms.sample("self_distilled", base))
        arms.measure("self_distilled", arms.tune("self_distilled", base, own, only_if_any=True))
    if arms.wants("distilled"):
        taught = graph.stage("distil_teacher", self_teaching.distil, None, arms.taught("distilled"))
        arms.measure("distilled", arms.tune("distilled", base, taught, only_if_any=True))
    if arms.wants("symbol"):
        bare = examples(graph, config, data, "write_symbols", has_chains=False)
        arms.measure("symbol", arms.tune("symbol", base, part(graph, config, bare, "learnt_symbols")))
    last = base
    if arms.wants("cpo_only"):
        last = arms.constrain("cpo_only", base)
        arms.measure("cpo_only", last)
    if arms.wants("dpo_only"):
        last = arms.prefer("dpo_only", base)
        arms.measure("dpo_only", last)
    if arms.wants("sft_noisy"):
        seen = examples(graph, config, data, "write_noisy_chains", has_chains=True, is_noisy=True)
        believing = arms.tune("sft_noisy", base, part(graph, config, seen, "learnt_noisy_chains"))
        arms.measure("sft_noisy", believing)
        arms.measure_noise(believing, "believed")
    if arms.wants("sft", "sft_dpo", "sft_cpo"):
        learnt = part(graph, config, chains, "learnt_chains")
        last = tuned = arms.tune("sft", base, rephrased(graph, config, learnt, base))
        arms.measure("sft", tuned)
        if config.library.held_out_share:
            held_out = part(graph, config, chains, "held_out_chains", is_held_out=True)
            arms.read("base", base, held_out)
            arms.read("sft", tuned, held_out)
        if arms.wants("sft_dpo"):
            last = arms.prefer("sft_dpo", tuned)
            arms.measure("sft_dpo", last)
        if arms.wants("sft_cpo"):
            last = arms.constrain("sft_cpo", tuned)
            arms.measure("sft_cpo", last)
    arms.measure_noise(last, "shown")
    arms.plan_under_noise(recorded)


def learnt_domains(config: SelfCriteachConfig) -> list[str]:
    """Return what the domains that are written are called in PDDL; two kinds of problems may share one."""
    learnt = (level.domain for level in config.problems.domains if level.phase1)
    return list(dict.fromkeys(load_domain(name).domain.name for name in learnt))


def demonstrations(graph: Graph, config: SelfCriteachConfig, domain: str, problems: Stage[Any]) -> Stage[Any]:
    """Return what is recorded in the scenes of a domain, U of equation 4."""
    file = config.demonstrations.file
    if file is not None:
        read_demonstrations(Path(file))  # a mistake in it is said before anything starts
    settings = GatheringSettings(
        domain=domain,
        demonstrations=config.demonstrations,
        attempts_shown=config.domain.attempts_shown,
        digest=None if file is None else hashlib.sha256(read_text(Path(file)).encode()).hexdigest(),
    )
    name = f"gather_demonstrations_{domain}"
    return graph.stage(name, domain_writing.gather_demonstrations, settings, {"problems": problems})


def domain_of(
    graph: Graph, config: SelfCriteachConfig, domain: str, given: dict[str, Stage[Any]], base: Stage[Any] | None
) -> Stage[Any]:
    """Return a domain that was written of demonstrations, mended turn by turn, and pruned; damaged if that is asked."""
    wanted, planner = config.domain, config.planner.model_copy(update={"n_plans": 1, "search": "first"})
    checking: dict[str, Any] = {"domain": domain, "planner": planner, "scenes": wanted.scenes}
    if wanted.writer == "model":
        inputs = {**given, **answering(wanted.speaker, base)}
        first, written = writing(graph, config, CheckingSettings(**checking), inputs)
        inputs = {**given, "written": written, **({"first": first} if first != written else {})}
    else:
        text = None if wanted.file is None else read_text(Path(wanted.file))
        settings = ReadingSettings(**checking, given=text)
        written = graph.stage(f"write_domain_{domain}", domain_writing.read_domain, settings, given)
        inputs = {**given, "written": written}
    pruning = PruningSettings(
        **checking,
        objective=wanted.prune,
        agreement_scenes=wanted.agreement_scenes,
        max_faults=wanted.max_faults,
    )
    told = {"labels": {"domain": domain}}
    pruned = graph.stage(f"prune_domain_{domain}", domain_writing.prune_domain, pruning, inputs, **told)
    if wanted.damage is None:
        return pruned
    damage = DamageSettings(**checking, damage=wanted.damage)
    inputs, told = {**given, "written": pruned}, {"labels": {"damaged": domain}}
    return graph.stage(f"damage_domain_{domain}", domain_writing.damage_domain, damage, inputs, **told)


def writing(
    graph: Graph, config: SelfCriteachConfig, checking: CheckingSettings, given: dict[str, Stage[Any]]
) -> tuple[Stage[Any], Stage[Any]]:
    """Return the first answers, and the best domain after the last turn of repair (section A.1.2)."""
    wanted, turns = config.domain, list[Stage[Any]]()
    roots = roots_of(wanted.speaker)
    for turn in range(wanted.turns + 1):
        shared: dict[str, Any] = {
            "sampling": SamplingConfig(
                n=wanted.candidates, temperature=wanted.temperature, max_new_tokens=wanted.max_new_tokens
            ),
            "engine": engine_of(wanted.speaker, narrowed(config.policy, EngineNumerics)),
            "prompting": "",
            "iteration": turn,
            "checking": checking,
            "writing": narrowed(wanted, DomainQuestionConfig),
        }
        name = f"repair_domain_{checking.domain}_{turn}" if turn else f"write_domain_{checking.domain}"
        options: dict[str, Any] = {"iteration": turn, "code_roots": roots}
        inputs = {**given, **({"before": turns[-1]} if turns else {})}
        if config.prime is None:
            settings = WriteDomainSettings(**shared)
            turns.append(graph.stage(name, domain_writing.write_domain, settings, inputs, **options))
        else:
            by_schema = WriteSchemasSettings(**shared, symbols=config.prime.symbols)
            turns.append(graph.stage(name, domain_writing.write_schemas, by_schema, inputs, **options))
    return turns[0], turns[-1]


def start(graph: Graph, config: SelfCriteachConfig, problems: Stage[Any], texts: Stage[Any]) -> Stage[Any]:
    """Return the base model."""
    words = (*config.problems.object_names, *training.branch_words(config.narrator))
    settings = training.start_settings(config, words)
    given = {"problems": problems, "examples": texts}
    return graph.stage("initial_policy", training.initial_policy, settings, given)


def examples(
    graph: Graph,
    config: SelfCriteachConfig,
    data: dict[str, Stage[Any]],
    name: str,
    *,
    has_chains: bool,
    is_noisy: bool = False,
) -> Stage[Any]:
    """Return the library as examples to tune on: plans alone, or chains of thought, of disturbed prompts or not."""
    settings = library_settings(config, has_chains=has_chains)
    if is_noisy:
        evaluation = config.evaluation
        noise = Noise(rates=(0.0, *evaluation.noise_rates), mixture=evaluation.noise)
        settings = settings.model_copy(update={"noise": noise})
    given = {"problems": data["library"], "plans": data["plans"]}
    return graph.stage(name, self_teaching.write_library, settings, given, kind=StageKind.WRITES)


def narrated(
    graph: Graph, config: SelfCriteachConfig, given: dict[str, Stage[Any]], base: Stage[Any] | None
) -> Stage[Any]:
    """Return the library as the base model, or another, tells it, as far as it is believed (equations 6 and 7)."""
    narrator, library = config.narrator, library_settings(config)
    telling = NarratingSettings(
        sampling=SamplingConfig(temperature=narrator.temperature, max_new_tokens=narrator.max_new_tokens),
        engine=engine_of(narrator.speaker, narrowed(config.policy, EngineNumerics)),
        prompting=config.prompting,
        resample_budget=narrator.repeats,
        library=library,
        by=narrator.by,
    )
    asked = {**given, **answering(narrator.speaker, base)}
    told = graph.stage("narrate", self_teaching.narrate, telling, asked, code_roots=roots_of(narrator.speaker))
    keeping = NarrationSettings(library=library, by=narrator.by, max_refused_share=narrator.max_refused_share)
    run, options = self_teaching.keep_narrations, {"kind": StageKind.WRITES, "labels": {"narration": "model"}}
    return graph.stage("keep_narrations", run, keeping, {**given, "narrations": told}, **options)


def part(
    graph: Graph, config: SelfCriteachConfig, chains: Stage[Any], name: str, *, is_held_out: bool = False
) -> Stage[Any]:
    """Return chains to learn from, or those that only measure (appendix A.3.2): of the same problems in all arms."""
    share = config.library.held_out_share
    if not share:
        return chains
    settings = PartSettings(held_out_share=share, is_held_out=is_held_out)
    return graph.stage(name, self_teaching.part_of_chains, settings, {"chains": chains})


def rephrased(graph: Graph, config: SelfCriteachConfig, chains: Stage[Any], base: Stage[Any]) -> Stage[Any]:
    """Return the chains with their prompts rephrased, where the run wants that (appendix A.3.2)."""
    if config.paraphrase is None:
        return chains
    wanted, speaker = config.paraphrase, config.paraphrase.speaker
    settings = GenerationSettings(
        sampling=SamplingConfig(temperature=wanted.temperature, max_new_tokens=wanted.max_new_tokens),
        engine=engine_of(speaker, narrowed(config.policy, EngineNumerics)),
        prompting="",
    )
    given = {"examples": chains, **answering(speaker, base)}
    told = graph.stage("paraphrase", self_teaching.paraphrase, settings, given, code_roots=roots_of(speaker))
    inputs, options = {"examples": chains, "paraphrases": told}, {"kind": StageKind.WRITES}
    return graph.stage("keep_paraphrases", self_teaching.keep_paraphrases, None, inputs, **options)


def answering(speaker: AnsweringConfig, base: Stage[Any] | None) -> dict[str, Stage[Any]]:
    """Return the policy that a stage reads in order to be answered: the base model, none where somebody is named."""
    if speaker.is_named:
        return {}
    assert base is not None, "the config wants a model that answers"
    return {"policy": base}


def roots_of(speaker: AnsweringConfig) -> tuple[str, ...]:
    """Return the code that answers."""
    return ASKING if speaker.url else GENERATION


def library_settings(config: SelfCriteachConfig, *, has_chains: bool = True) -> WritingLibrarySettings:
    """Return what of the library is learnt, and how it is written."""
    return WritingLibrarySettings(
        library=config.library,
        prompting=config.prompting,
        object_names=config.problems.object_names,
        n_plans=config.planner.n_plans,
        has_chains=has_chains,
        chains=narrowed(config.narrator, ChainConfig),
    )


def published(run: RunSoFar[SelfCriteachConfig], results: CriteachResults) -> PublishedPolicy:
    """Return the policy that a run gives to the world: that of its last arm."""
    learnt = f"plans in a domain that was written of demonstrations ({results.writer}); arm {results.last.name}"
    return criteach_policy(run, results, f"It was trained after Self-CriTeach: {learnt}.")


PIPELINE = Pipeline(
    name="self_criteach",
    config=SelfCriteachConfig,
    presets=PRESETS / "self_criteach",
    stages=self_criteach,
    session=AnsweringWorkers,
    results=criteach_results,
    reporting=Reporting(CriteachResults, criteach_report),
    check=check_answering,
    published=published,
    ablation=Ablation(
        about="Run every arm over several seeds: no learning, votes, plans and chains tuned on, and what reinforces "
        "them. Print success, cost and progress over the seeds, with paired tests.",
        variants=as_it_is,
        results=of_one_variant(criteach_seeds_results),
        reporting=Reporting(CriteachSeeds, criteach_seeds_report, "ablation"),
        preset="laptop",
    ),
    over_seeds=OverSeeds(criteach_seeds_results, Reporting(CriteachSeeds, criteach_seeds_report, "seeds")),
    studies={
        "domain-damage": Ablation(
            about="Tune and reinforce policies in domains of which literals were removed or to which some were added, "
            "over several seeds. Print success, cost and disagreement by damage.",
            variants=damage_variants,
            results=damage_results,
            reporting=Reporting(DamageResults, damage_report, "domain-damage"),
        )
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return 0 when done, 1 when it failed, 2 for bad input."""
    return run_command(PIPELINE, argv)


if __name__ == "__main__":
    sys.exit(main())
