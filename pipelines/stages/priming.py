"""What a model from nothing learns before it counts as a base model, which Self-CriTeach takes for granted.

Schemas of random STRIPS domains from transitions, their repair, and bare plans of training problems of a move or two.
No domain that is learnt of is one that the run has, up to names. Not here: how the primed model then writes the run's
domain (`domain_writing.write_schemas`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.stages import training
from pipelines.stages.generating import GENERATION, GenerationSettings, completions_of
from pipelines.stages.graph import Graph
from pipelines.stages.phase1_data import solve_problems, solved_problems
from pipelines.stages.self_teaching import bare_plans
from pipelines.stages.training import TuningSettings, optimising
from plansmith.config.basics import StrictModel, narrowed
from plansmith.config.generation import SamplingConfig
from plansmith.config.invention import InventionGrid
from plansmith.config.planner import PlannerConfig
from plansmith.config.priming import PrimerConfig
from plansmith.config.self_criteach import SelfCriteachConfig
from plansmith.config.training import EngineNumerics, Numerics
from plansmith.data.artifacts import Artifact, StageKind
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import ExampleKind, ExampleRow, MetricRow, ProblemRow, Split
from plansmith.errors import BadInputError, PlansmithError
from plansmith.generation import asking
from plansmith.judging.schema_examples import Recorded, SchemaLessons, record, types_as_facts
from plansmith.judging.schema_writing import Shown
from plansmith.pddl.domain_forms import domain_form
from plansmith.pddl.parser import parse_domain
from plansmith.problems.invention.drawing import draw_domain
from plansmith.problems.simulator import Recording
from plansmith.stages import Stage, StageContext
from plansmith.text.schema_words import CHECK, schema_vocabulary, without_lost

SCHEMAS, PLANS, METRICS = "schemas", "plans", "metrics"


class PrimerPlansSettings(StrictModel):
    """Which training problems are solved."""

    planner: PlannerConfig
    """By what."""
    problems: int
    """How many."""


class SchemaPrimerSettings(StrictModel):
    """Which invented domains are made into examples."""

    primer: PrimerConfig
    """Their sizes, and how often each schema is asked for."""
    shown: tuple[int, int]
    """Attempts and faults in a question."""
    recording: tuple[int, int]
    """Steps of a walk, and refused attempts before each."""
    count: int
    """How many are drawn."""


class PlanPrimerSettings(StrictModel):
    """How bare plans are written."""

    prompting: str
    """How policies are asked."""
    most_steps: int
    """Longest plan."""


def plan_primer(context: StageContext[PrimerPlansSettings]) -> None:
    """Solve some problems of D1 in the reference domain, drawn among all."""
    rows = context.inputs["problems"].rows(ProblemRow)
    own = [row for row in rows if row.split == Split.PHASE1]
    chosen = context.rng("problems").sample(own, min(context.settings.problems, len(own)))
    solve_problems(context, chosen, context.settings.planner, held_out=HeldOut.of(rows), description="solving a few")


def write_plan_primer(context: StageContext[PlanPrimerSettings]) -> None:
    """Write the short ones of these plans as bare plans."""
    settings = context.settings
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE1)
    short = [row for row in solved if len(row.plan) <= settings.most_steps]
    context.output.write_rows(bare_plans(short, settings.prompting), ExampleRow, table=PLANS)
    _write_counts(context, {"plans": len(short)})


def write_schema_primer(context: StageContext[SchemaPrimerSettings]) -> None:
    """Write questions about the schemas of invented domains with their answers.

    No domain is one of the run, nor of those that another such stage, the input ``learnt``, has examples of.

    Raises:
        BadInputError: no domain gave an example.
    """
    settings = context.settings
    known, primer = _known_forms(context.inputs), settings.primer
    lessons = SchemaLessons(Shown(*settings.shown), primer.symbols, primer.renamings, primer.repairs)
    counts, rows = {"domains": 0, "domains left out": 0}, list[ExampleRow]()
    with context.progress(settings.count, "inventing domains", unit="domain") as bar:
        for number in range(settings.count):
            recorded = drawn_domain(context, number)
            bar.update()
            if recorded is None:
                continue
            if domain_form(recorded.domain) in known:
                counts["domains left out"] += 1
                continue
            counts["domains"] += 1
            rows += lessons.examples(recorded, context.rng("lessons", number))
    if not rows:
        raise BadInputError(
            "no schema to learn",
            got=f"{settings.count} domains drawn",
            expected="one with a schema that its walks determine",
            cure="draw more or other domains (prime.domains, prime.grid, prime.walks)",
        )
    context.output.write_rows(rows, ExampleRow, table=SCHEMAS)
    kinds = {"schemas": ExampleKind.WRITE_DOMAIN, "repairs": ExampleKind.REPAIR}
    counts |= {name: sum(row.kind == kind for row in rows) for name, kind in kinds.items()}
    _write_counts(context, counts)


def _write_counts(context: StageContext[Any], counts: Mapping[str, int]) -> None:
    rows = [MetricRow(context.stage.name, 0, "", "", f"primer/{name}", float(n)) for name, n in counts.items()]
    context.output.write_rows(rows, MetricRow, table=METRICS)


def drawn_domain(context: StageContext[SchemaPrimerSettings], number: int) -> Recorded | None:
    """Return an invented domain with walks in it; None where the draw gave none."""
    primer, rng = context.settings.primer, context.rng("domain", number)
    grid = InventionGrid(**primer.grid.model_dump())
    invention = draw_domain(f"primer-{number}", grid, rng, adl_share=0.0)
    return None if invention is None else record(invention, Recording(*context.settings.recording), rng,
                                                 n_walks=primer.walks)  # fmt: skip


def _known_forms(inputs: Mapping[str, Artifact]) -> set[str]:
    """Return the forms of the domains of the run, their types as facts, and of those that are learnt of."""
    texts = dict.fromkeys(row.domain_pddl for row in inputs["problems"].rows(ProblemRow))
    learnt = inputs["learnt"].rows(ExampleRow, SCHEMAS) if "learnt" in inputs else []
    return {domain_form(types_as_facts(parse_domain(text))) for text in texts} | {row.problem_id for row in learnt}


def try_schema_primer(context: StageContext[GenerationSettings]) -> None:
    """Ask the primed model for schemas of domains it has not seen, and count those that are as they should be.

    Raises:
        PlansmithError: a request failed.
    """
    rows = {row.example_id: row for row in context.inputs["examples"].rows(ExampleRow, SCHEMAS)}
    asked = {name: asking(row.prompt) for name, row in rows.items()}
    n_right = 0
    for name, [item] in completions_of(context, asked, description="writing schemas never seen"):
        if item.fault:
            raise PlansmithError("a request failed", got=item.fault, cure="give the command again")
        n_right += _schema_words(item.text or "") == _schema_words(rows[name].response)
    _write_counts(context, {"asked": len(rows), "right": n_right})


def _schema_words(text: str) -> list[str]:
    """Return the words of the schema in an answer, whose order is fixed."""
    words = text.split()
    return without_lost(words[words.index(CHECK) :]) if CHECK in words else []


def primed_policy(graph: Graph, config: SelfCriteachConfig, problems: Stage[Any]) -> Stage[Any]:
    """Return the base model of a run that primes it, after adding the stages that do."""
    assert config.prime is not None, "the config wants it"
    prime, given, stage = config.prime, {"problems": problems}, graph.stage
    shared: dict[str, Any] = {
        "primer": narrowed(prime, PrimerConfig),
        "shown": (config.domain.attempts_shown, config.domain.faults_shown),
        "recording": (config.demonstrations.steps, config.demonstrations.refused),
    }
    learning = SchemaPrimerSettings(**shared, count=prime.domains)
    tables: dict[str, Stage[Any]] = {"schemas": stage("write_schema_primer", write_schema_primer, learning, given)}
    if prime.problems:
        planner = config.planner.model_copy(update={"n_plans": 1})
        solving = PrimerPlansSettings(planner=planner, problems=prime.problems)
        plans = stage("plan_primer", plan_primer, solving, given, kind=StageKind.PLANS)
        how = PlanPrimerSettings(prompting=config.prompting, most_steps=prime.most_steps)
        tables["plans"] = stage("write_plan_primer", write_plan_primer, how, {**given, "plans": plans})
    examples = stage("primer", join_examples, None, tables, kind=StageKind.WRITES)
    words = (*config.problems.object_names, *training.branch_words(config.narrator), *schema_vocabulary(prime.symbols))
    settings, given = training.start_settings(config, words), {**given, "examples": examples}
    untrained = stage("initial_policy", training.initial_policy, settings, given)
    sequences = stage("encode_primer", training.encode_examples, None, {"policy": untrained, "examples": examples})
    tuning = TuningSettings(optimiser=prime.optimiser, numerics=narrowed(config.trainer, Numerics))
    given = {"policy": untrained, "sequences": sequences}
    base = stage("prime_base", training.tune, tuning, given, **optimising("supervised"))
    if prime.held_out:
        _measure(graph, config, shared, {"problems": problems, "learnt": tables["schemas"], "policy": base})
    return base


def join_examples(context: StageContext[None]) -> None:
    """Write what schemas and plans are learnt of as one artifact."""
    for name, artifact in context.inputs.items():
        context.output.write_rows(artifact.rows(ExampleRow, name), ExampleRow, table=name)


def _measure(graph: Graph, config: SelfCriteachConfig, shared: dict[str, Any], given: dict[str, Stage[Any]]) -> None:
    """Add the stages that say which share of schemas it writes right of domains that it has not seen."""
    assert config.prime is not None, "the config wants it"
    primer = narrowed(config.prime, PrimerConfig).model_copy(update={"renamings": 1, "repairs": 0})
    settings = SchemaPrimerSettings(**{**shared, "primer": primer}, count=config.prime.held_out)
    known = {name: given[name] for name in ("problems", "learnt")}
    held_out = graph.stage("hold_out_schemas", write_schema_primer, settings, known)
    trying = GenerationSettings(
        sampling=SamplingConfig(max_new_tokens=config.domain.max_new_tokens),
        engine=narrowed(config.policy, EngineNumerics),
        prompting="",
    )
    inputs = {"policy": given["policy"], "examples": held_out}
    graph.stage("try_schema_primer", try_schema_primer, trying, inputs, code_roots=GENERATION)
