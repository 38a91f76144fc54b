"""Stages that say problems in words, and write what a policy learns of that (NL-PDDL-Bench, sections 3.2 and 3.3)."""

from __future__ import annotations

from collections.abc import Mapping

from actors.formaliser import Perturber, TextExampleWriter, TextWriter
from plansmith.config.basics import StrictModel
from plansmith.config.formalisation import FormalisationConfig, FormalRendering, JudgingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.problems import ProblemsConfig
from plansmith.data.rows import ExampleKind, ExampleRow, PerturbedRow, ProblemRow, Split, TextRow
from plansmith.errors import BadInputError
from plansmith.problems.library import load_domain
from plansmith.problems.perturbation import Perturbation
from plansmith.stages import StageContext
from plansmith.text.formalisation import repair_prompt


class TextSettings(StrictModel):
    """How problems are said in words."""

    texts: FormalisationConfig
    """Phrasing and prompt."""
    planner: PlannerConfig
    """What solves the references."""
    object_names: tuple[str, ...]
    """Names that objects get; none: each problem keeps its own."""
    domains: Mapping[str, str]
    """What each domain is loaded by, by its name."""


def text_settings(problems: ProblemsConfig, texts: FormalisationConfig, planner: PlannerConfig) -> TextSettings:
    """Return how the problems of a run are said.

    Raises:
        BadInputError: a domain without phrases, or with one of each fact where one is to be kept apart.
    """
    loaded = {level.domain: load_domain(level.domain) for level in problems.domains}
    for domain in loaded.values():
        phrases = domain.needed_phrases()
        if texts.reworded:
            phrases.divided(is_last=True)
    names = {domain.domain.name: reference for reference, domain in loaded.items()}
    return TextSettings(texts=texts, planner=planner, object_names=problems.object_names, domains=names)


def write_texts(context: StageContext[TextSettings]) -> None:
    """Say every problem in words, with the PDDL that it is to be answered with; those without a plan are left out."""
    settings, problems = context.settings, context.inputs["problems"].rows(ProblemRow)
    shards = context.output.shards("rows", TextRow)
    context.resources.map_rows(
        problems,
        ProblemRow,
        TextWriter,
        shards=shards,
        batch_size=64,
        description="writing texts",
        worker_settings={
            "config": settings.planner,
            "formalisation": settings.texts,
            "domains": settings.domains,
            "names": settings.object_names,
            "seed": context.seed,
        },
    )
    n_texts = len(shards.finished_ids("problem_id"))
    if n_texts < len(problems):
        context.logger.warning(
            "%d of %d problems have no plan and are left out", len(problems) - n_texts, len(problems)
        )


class PerturbingSettings(StrictModel):
    """How many problems with a mistake are drawn."""

    judging: JudgingConfig
    """What proves what they amount to, and what is told of them."""
    rendering: FormalRendering
    """Of the answers that they stand for."""
    draws: Mapping[str, float]
    """Of each problem, by its split."""


def perturb_texts(context: StageContext[PerturbingSettings]) -> None:
    """Draw problems with one mistake, each with what it is proved to amount to."""
    settings, texts = context.settings, context.inputs["texts"].rows(TextRow)
    shards = context.output.shards("rows", PerturbedRow)
    context.resources.map_rows(
        [row for row in texts if settings.draws.get(row.split)],
        TextRow,
        Perturber,
        shards=shards,
        batch_size=16,
        description="drawing mistakes",
        worker_settings={
            "config": settings.judging,
            "rendering": settings.rendering,
            "perturbations": tuple(Perturbation),
            "draws": settings.draws,
            "seed": context.seed,
        },
    )


class TextExampleSettings(StrictModel):
    """How texts become examples."""

    texts: FormalisationConfig
    """Phrasing and prompt."""
    object_names: tuple[str, ...]
    """Names that objects get; none: each problem keeps its own."""
    copies: int
    """Texts of each problem."""


def write_text_examples(context: StageContext[TextExampleSettings]) -> None:
    """Write texts of D1's problems with these, and the mistakes that validator or planner tell of, with the cure.

    Raises:
        BadInputError: no problem of D1.
    """
    texts = _written(context, ExampleKind.FORMALISE, "texts")
    perturbed = context.inputs["perturbed"].rows(PerturbedRow) if "perturbed" in context.inputs else []
    told = [row for row in perturbed if row.problem_id in texts and row.feedback]
    config = context.settings.texts
    context.output.write_rows(
        (_repair_example(texts[row.problem_id], row, config) for row in told), ExampleRow, table="repairs"
    )


def write_plan_examples(context: StageContext[TextExampleSettings]) -> None:
    """Write the texts of `write_text_examples`, word for word, with plans for answers: the control of formalising.

    Raises:
        BadInputError: no problem of D1.
    """
    _written(context, ExampleKind.PLAN_FROM_TEXT, "plans")


def _written(context: StageContext[TextExampleSettings], kind: ExampleKind, table: str) -> dict[str, TextRow]:
    """Write the examples of D1's texts in a table, and return these texts by the ids of their problems."""
    settings = context.settings
    texts = {row.problem_id: row for row in context.inputs["texts"].rows(TextRow) if row.split == Split.PHASE1}
    if not texts:
        raise BadInputError("no text to learn from", got="no problem of D1 that has a plan", expected="one at least",
                            cure="draw more problems (problems.domains: phase1)")  # fmt: skip
    context.resources.map_rows(
        list(texts.values()),
        TextRow,
        TextExampleWriter,
        shards=context.output.shards(table, ExampleRow),
        batch_size=64,
        description="writing examples",
        worker_settings={
            "formalisation": settings.texts,
            "kind": kind,
            "texts": settings.copies,
            "names": settings.object_names,
            "seed": context.seed,
        },
        is_resident=False,
    )
    return texts


def _repair_example(text: TextRow, row: PerturbedRow, config: FormalisationConfig) -> ExampleRow:
    prompt = repair_prompt(text.prompt, row.problem_pddl, row.feedback, config)
    return ExampleRow(row.perturbed_id, row.problem_id, ExampleKind.REPAIR, row.perturbation, prompt, text.problem_pddl)
