"""Stages that change weights: the initial policy, phase 1, and both optimisation stages of phase 2.

Each leaves an artifact with the model in Hugging Face layout, the probe that proves a hand-over, and the training
curve.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.parts.problem_stages import domains_of
from pipelines.parts.workers import MODEL, PROBE, Probe
from plansmith.config.models import PddlInstructConfig
from plansmith.config.training import OptimiserConfig
from plansmith.data.rows import ExampleKind, ExampleRow, MetricRow, OptimisationStepRow, SequenceRow
from plansmith.data.storage import link_folder
from plansmith.learning.adapters import write_quantised_values
from plansmith.learning.hub import resolve_model
from plansmith.learning.models import ModelShape, bpe_tokenizer, load_tokenizer, make_model
from plansmith.learning.objectives import Objective
from plansmith.learning.optimisation import Hyperparameters, OptimisationReport, Schedule
from plansmith.learning.printed_losses import LossWeights
from plansmith.learning.sequences import TrainingSequence, supervised_sequence
from plansmith.learning.tokenizer import encode, encode_prompt, end_token_ids, word_tokenizer
from plansmith.stages import StageContext

PROBE_TOKENS = 256
HYPERPARAMETERS = {"learning_rate", "muon_learning_rate", "batch_tokens", "batch_sequences", "small_batch_share",
                   "epochs", "warmup_steps", "weight_decay", "eps", "gradient_clipping"}  # fmt: skip
UNUSED_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx", "*.gguf", "original")
"""What a model folder may hold beside its safetensors."""
CURRICULUM = 0.5
"""Share of phase 1 that goes from short sequences to long ones."""


def example_rows(examples: Any) -> list[ExampleRow]:
    """Return the examples of phase 1: chains of thought and explanations."""
    return [*examples.rows(ExampleRow, "chains"), *examples.rows(ExampleRow, "explanations")]


def initial_policy(context: StageContext) -> None:
    """Build a model from nothing, or link the one given; write the probe of the untouched weights.

    Where the trainer holds them in four bits, the values are those that four bits can hold, for the engine too.
    """
    config: PddlInstructConfig = context.resources.config
    target = context.output.path(MODEL)
    if config.model.folder is None:
        _build_model(context, target)
    elif config.trainer.quantisation != "none":
        write_quantised_values(resolve_model(config.model.folder), target, config.trainer.quantisation)
    else:
        link_folder(resolve_model(config.model.folder), target, ignore=UNUSED_WEIGHTS)
    _write_probe(context, context.resources.trainer(target, load_tokenizer(str(target))), target)


def _build_model(context: StageContext, target: Path) -> None:
    """Write an untrained model whose tokenizer is made of the domains' words, or learnt from the texts of phase 1."""
    config: PddlInstructConfig = context.resources.config
    model = config.model
    if model.tokenizer == "words":
        tokenizer = word_tokenizer(domains_of(config.problems), config.problems.object_names)
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
        max_position_embeddings=config.policy.max_model_len,
    )
    n_parameters = make_model(target, tokenizer, shape, seed=context.seed)
    context.logger.info("a model from nothing: %d parameters, %d tokens", n_parameters, len(tokenizer))


def phase1(context: StageContext) -> None:
    """Tune on explained plans and chains of D1 (algorithm 1, lines 1 to 9)."""
    config: PddlInstructConfig = context.resources.config
    start = context.inputs["policy"].path(MODEL)
    rows = sorted(example_rows(context.inputs["examples"]), key=lambda row: context.row_seed(row.example_id))
    sequences = supervised_sequences(context, rows, start)
    if config.phase1.is_curriculum:
        sequences = in_curriculum_order(sequences, seed=context.seed)
    _optimise(context, Objective.SUPERVISED, sequences, config.phase1, start=start)


def in_curriculum_order(sequences: Sequence[TrainingSequence], *, seed: int) -> list[TrainingSequence]:
    """Return a random `CURRICULUM` of the sequences from short to long, then the others in random order.

    Short chains teach copying and looking up with few distractors. Sorted by length to its end, a model would finish on
    the longest chains and forget the others.
    """
    shuffled = random.Random(seed).sample(list(sequences), len(sequences))
    n_sorted = round(CURRICULUM * len(shuffled))
    return [*sorted(shuffled[:n_sorted], key=len), *shuffled[n_sorted:]]


def supervised_sequences(context: StageContext, rows: Sequence[ExampleRow], model: Path) -> list[TrainingSequence]:
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


def stage1(context: StageContext, iteration: int) -> None:
    """Optimise L_reasoning (equation 2) on the judged steps and the corrected chains."""
    config: PddlInstructConfig = context.resources.config
    start = context.inputs["policy"].path(MODEL)
    sequences = _stored_sequences(context.inputs["datasets"].rows(SequenceRow, "stage1"))
    corrections = context.inputs["datasets"].rows(ExampleRow, "corrections")
    sequences += supervised_sequences(context, corrections, start)
    _optimise(context, Objective.REASONING, sequences, config.phase2.optimisation("stage1", iteration), start=start)


def stage2(context: StageContext, iteration: int) -> None:
    """Optimise L_final (equation 3) on whole plans and their verdicts."""
    config: PddlInstructConfig = context.resources.config
    start = context.inputs["policy"].path(MODEL)
    sequences = _stored_sequences(context.inputs["datasets"].rows(SequenceRow, "stage2"))
    _optimise(context, Objective.FINAL, sequences, config.phase2.optimisation("stage2", iteration), start=start)


def _stored_sequences(rows: Sequence[SequenceRow]) -> list[TrainingSequence]:
    return [
        TrainingSequence(row.token_ids, row.nll_weights, row.score_weights, row.verdict_position, row.verdict_label)
        for row in rows
    ]


def _optimise(
    context: StageContext,
    objective: Objective,
    sequences: list[TrainingSequence],
    settings: OptimiserConfig,
    *,
    start: Path,
) -> None:
    """Train from the weights in `start` and leave the new weights, their probe and the curve."""
    config: PddlInstructConfig = context.resources.config
    trainer = context.resources.trainer(start, load_tokenizer(str(start)))
    report: OptimisationReport = trainer.optimise(
        objective,
        sequences,
        hyperparameters_of(settings, seed=context.seed),
        weights=LossWeights(**config.phase2.losses.model_dump()),
        max_length_tokens=settings.max_length_tokens,
        description=context.stage.name,
    )
    if report.n_dropped:
        limit = settings.max_length_tokens or config.trainer.row_length_tokens
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


def _write_probe(context: StageContext, trainer: Any, model: Path) -> None:
    rows = context.inputs["examples"].rows(ExampleRow, "chains")
    row = min((row for row in rows if row.kind == ExampleKind.PLAN_CHAIN), key=lambda row: row.example_id)
    tokenizer = load_tokenizer(str(model))
    token_ids = (encode_prompt(tokenizer, row.prompt) + encode(tokenizer, row.response))[:PROBE_TOKENS]
    Probe(tuple(token_ids), tuple(trainer.logprobs(token_ids))).write(context.output.path(PROBE))


def _write_report(context: StageContext, report: OptimisationReport) -> None:
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
