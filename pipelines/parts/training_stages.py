"""Stages that change weights: the initial policy, phase 1, and both optimisation stages of phase 2.

Each leaves an artifact with the model in Hugging Face layout, the probe that proves a hand-over, and the training
curve.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.parts.workers import MODEL, PROBE, Probe
from plansmith.config.basics import StrictModel, narrowed
from plansmith.config.models import PddlInstructConfig
from plansmith.config.training import LossConfig, ModelConfig, Numerics, OptimiserConfig
from plansmith.data.rows import ExampleKind, ExampleRow, MetricRow, OptimisationStepRow, ProblemRow, SequenceRow
from plansmith.data.storage import link_folder
from plansmith.learning.adapters import write_quantised_values
from plansmith.learning.hub import resolve_model
from plansmith.learning.models import ModelShape, bpe_tokenizer, load_tokenizer, make_model
from plansmith.learning.objectives import Objective
from plansmith.learning.optimisation import Hyperparameters, OptimisationReport, Schedule
from plansmith.learning.printed_losses import LossWeights
from plansmith.learning.sequences import TrainingSequence, supervised_sequence
from plansmith.learning.tokenizer import encode, encode_prompt, end_token_ids, word_tokenizer
from plansmith.pddl.parser import parse_domain
from plansmith.stages import StageContext

PROBE_TOKENS = 256
HYPERPARAMETERS = {"learning_rate", "muon_learning_rate", "batch_tokens", "batch_sequences", "small_batch_share",
                   "epochs", "warmup_steps", "weight_decay", "eps", "gradient_clipping"}  # fmt: skip
UNUSED_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx", "*.gguf", "original")
"""What a model folder may hold beside its safetensors."""
OPTIMISATION = ("plansmith.learning.optimisation.plan_optimisation", "plansmith.learning.optimisation.run_optimisation")
"""The code that changes weights, which the stages reach through their run's trainer."""
CURRICULUM = 0.5
"""Share of phase 1 that goes from short sequences to long ones."""


def example_rows(examples: Any) -> list[ExampleRow]:
    """Return the examples of phase 1: chains of thought and explanations."""
    return [*examples.rows(ExampleRow, "chains"), *examples.rows(ExampleRow, "explanations")]


class InitialPolicySettings(StrictModel):
    """What the run starts from."""

    model: ModelConfig
    """The model."""
    numerics: Numerics
    """How the trainer holds it."""
    object_names: tuple[str, ...] = ()
    """Words of a word-level model beside those of its domains."""
    max_position_embeddings: int | None = None
    """Reach of a model from nothing, in tokens."""


class TuningSettings(StrictModel):
    """One optimisation."""

    optimiser: OptimiserConfig
    """Its rates, batches and epochs."""
    numerics: Numerics
    """How the trainer holds the model."""
    losses: LossConfig = LossConfig()
    """Weights of the losses of phase 2."""


def start_settings(config: PddlInstructConfig) -> InitialPolicySettings:
    """Return what a run starts from; a folder's model has its own words and reach."""
    numerics = narrowed(config.trainer, Numerics)
    if config.model.folder is not None:
        return InitialPolicySettings(model=config.model, numerics=numerics)
    return InitialPolicySettings(
        model=config.model,
        numerics=numerics,
        object_names=config.problems.object_names if config.is_word_level else (),
        max_position_embeddings=config.policy.max_model_len,
    )


def initial_policy(context: StageContext[InitialPolicySettings]) -> None:
    """Build a model from nothing, or link the one given; write the probe of the untouched weights.

    Where the trainer holds them in four bits, the values are those that four bits can hold, for the engine too.
    """
    settings, target = context.settings, context.output.path(MODEL)
    folder = settings.model.folder
    if folder is None:
        _build_model(context, target)
    elif settings.numerics.quantisation != "none":
        write_quantised_values(resolve_model(folder), target, settings.numerics.quantisation)
    else:
        link_folder(resolve_model(folder), target, ignore=UNUSED_WEIGHTS)
    _write_probe(context, context.resources.trainer(target, settings.numerics), target)


def _build_model(context: StageContext[InitialPolicySettings], target: Path) -> None:
    """Write an untrained model whose tokenizer is made of the domains' words, or learnt from the texts of phase 1."""
    settings, model = context.settings, context.settings.model
    if model.tokenizer == "words":
        texts_of_domains = dict.fromkeys(row.domain_pddl for row in context.inputs["problems"].rows(ProblemRow))
        domains = [parse_domain(text, source="a problem's domain") for text in texts_of_domains]
        tokenizer = word_tokenizer(domains, settings.object_names)
    else:
        rows = example_rows(context.inputs["examples"])
        texts = (text for row in rows for text in (row.prompt, row.response))
        tokenizer = bpe_tokenizer(texts, model.vocabulary_size)
    shape = ModelShape(
        hidden_size=model.hidden_size,
        n_layers=model.n_layers,
        n_heads=model.n_heads,
        n_kv_heads=model.n_kv_heads,
        intermediate_size=model.intermediate_size,
        max_position_embeddings=settings.max_position_embeddings or 0,
    )
    n_parameters = make_model(target, tokenizer, shape, seed=context.seed)
    context.logger.info("a model from nothing: %d parameters, %d tokens", n_parameters, len(tokenizer))


def phase1(context: StageContext[TuningSettings]) -> None:
    """Tune on explained plans and chains of D1 (algorithm 1, lines 1 to 9)."""
    start = context.inputs["policy"].path(MODEL)
    rows = sorted(example_rows(context.inputs["examples"]), key=lambda row: context.row_seed(row.example_id))
    sequences = supervised_sequences(context, rows, start)
    if context.settings.optimiser.is_curriculum:
        sequences = in_curriculum_order(sequences, seed=context.seed)
    _optimise(context, Objective.SUPERVISED, sequences, start=start)


def in_curriculum_order(sequences: Sequence[TrainingSequence], *, seed: int) -> list[TrainingSequence]:
    """Return a random `CURRICULUM` of the sequences from short to long, then the others in random order.

    Short chains teach copying and looking up with few distractors. Sorted by length to its end, a model would finish on
    the longest chains and forget the others.
    """
    shuffled = random.Random(seed).sample(list(sequences), len(sequences))
    n_sorted = round(CURRICULUM * len(shuffled))
    return [*sorted(shuffled[:n_sorted], key=len), *shuffled[n_sorted:]]


def supervised_sequences(context: StageContext[Any], rows: Sequence[ExampleRow], model: Path) -> list[TrainingSequence]:
    """Return the examples as tokens; the loss falls on the response and, but for openings, the end mark."""
    tokenizer = load_tokenizer(str(model))
    end = list(end_token_ids(tokenizer, str(model))[:1])
    with context.progress(len(rows), "encoding examples", unit="example") as bar:
        sequences = []
        for row in rows:
            prompt, response = encode_prompt(tokenizer, row.prompt, row.beginning), encode(tokenizer, row.response)
            is_whole = row.kind != ExampleKind.PLAN_OPENING
            sequences.append(supervised_sequence(prompt, response + end if is_whole else response))
            bar.update()
    return sequences


def stage1(context: StageContext[TuningSettings]) -> None:
    """Optimise L_reasoning (equation 2) on the judged steps and the corrected chains."""
    start = context.inputs["policy"].path(MODEL)
    sequences = _stored_sequences(context.inputs["datasets"].rows(SequenceRow, "stage1"))
    corrections = context.inputs["datasets"].rows(ExampleRow, "corrections")
    sequences += supervised_sequences(context, corrections, start)
    _optimise(context, Objective.REASONING, sequences, start=start)


def stage2(context: StageContext[TuningSettings]) -> None:
    """Optimise L_final (equation 3) on whole plans and their verdicts."""
    start = context.inputs["policy"].path(MODEL)
    sequences = _stored_sequences(context.inputs["datasets"].rows(SequenceRow, "stage2"))
    _optimise(context, Objective.FINAL, sequences, start=start)


def _stored_sequences(rows: Sequence[SequenceRow]) -> list[TrainingSequence]:
    return [
        TrainingSequence(row.token_ids, row.nll_weights, row.score_weights, row.verdict_position, row.verdict_label)
        for row in rows
    ]


def _optimise(
    context: StageContext[TuningSettings], objective: Objective, sequences: list[TrainingSequence], *, start: Path
) -> None:
    """Train from the weights in `start` and leave the new weights, their probe and the curve."""
    settings, numerics = context.settings.optimiser, context.settings.numerics
    trainer = context.resources.trainer(start, numerics)
    report: OptimisationReport = trainer.optimise(
        objective,
        sequences,
        hyperparameters_of(settings, seed=context.seed),
        weights=LossWeights(**context.settings.losses.model_dump()),
        max_length_tokens=settings.max_length_tokens,
        description=context.stage.name,
    )
    if report.n_dropped:
        limit = settings.max_length_tokens or numerics.row_length_tokens
        context.logger.warning(
            "%d of %d sequences, %d tokens, were longer than %d tokens and were not trained on",
            report.n_dropped, report.n_sequences + report.n_dropped, report.n_dropped_tokens, limit,
        )  # fmt: skip
    trainer.save(str(context.output.path(MODEL)))
    _write_probe(context, trainer, start)
    _write_report(context, report)


def hyperparameters_of(settings: OptimiserConfig, *, seed: int) -> Hyperparameters:
    """Return the trainer's hyperparameters for one optimisation."""
    plain = settings.model_dump(include=HYPERPARAMETERS)
    return Hyperparameters(
        **plain,
        schedule=Schedule(settings.schedule),
        betas=(settings.beta1, settings.beta2),
        seed=seed,
        is_shuffled=not settings.is_curriculum,
    )


def _write_probe(context: StageContext[Any], trainer: Any, model: Path) -> None:
    rows = context.inputs["examples"].rows(ExampleRow, "chains")
    row = min((row for row in rows if row.kind == ExampleKind.PLAN_CHAIN), key=lambda row: row.example_id)
    tokenizer = load_tokenizer(str(model))
    token_ids = (encode_prompt(tokenizer, row.prompt) + encode(tokenizer, row.response))[:PROBE_TOKENS]
    Probe(tuple(token_ids), tuple(trainer.logprobs(token_ids))).write(context.output.path(PROBE))


def _write_report(context: StageContext[Any], report: OptimisationReport) -> None:
    steps = zip(report.losses, report.learning_rates, report.gradient_norms, strict=True)
    context.output.write_rows(
        [OptimisationStepRow(number, *values) for number, values in enumerate(steps, 1)],
        OptimisationStepRow,
        table="curve",
    )
    number = {"n_sequences": report.n_sequences, "n_dropped": report.n_dropped,
              "n_dropped_tokens": report.n_dropped_tokens, "n_tokens": report.n_tokens,
              "tokens_per_s": report.n_tokens / report.wall_time_s, "fill": report.fill}  # fmt: skip
    metrics = [MetricRow(context.stage.name, 0, "", "", f"training/{name}", float(x)) for name, x in number.items()]
    context.output.write_rows(metrics, MetricRow, table="metrics")
