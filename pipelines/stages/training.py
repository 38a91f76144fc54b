"""Stages that change weights: the initial policy, phase 1, and both optimisation stages of phase 2.

Each leaves an artifact with the model in Hugging Face layout, the probe that proves a hand-over, and the training
curve.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from actors.encoder import EncodingWorker
from pipelines.run.workers import MODEL, PROBE, Probe
from plansmith.config.basics import StrictModel, narrowed
from plansmith.config.chains import ChainConfig
from plansmith.config.run import ModelRunConfig
from plansmith.config.training import (
    LossConfig,
    ModelConfig,
    Numerics,
    OptimiserConfig,
    PreferenceConfig,
)
from plansmith.data.artifacts import Artifact, StageKind
from plansmith.data.plan_examples import in_order_of_training
from plansmith.data.rows import (
    EncodingJobRow,
    ExampleRow,
    MetricRow,
    ObjectiveFigureRow,
    OptimisationStepRow,
    PartTimeRow,
    ProblemRow,
    SequenceRow,
)
from plansmith.data.storage import link_folder
from plansmith.data.tables import count_rows
from plansmith.errors import BadInputError
from plansmith.learning.adapters import write_quantised_values
from plansmith.learning.checkpoints import interruption
from plansmith.learning.encoding import ExampleEncoder
from plansmith.learning.hub import resolve_model
from plansmith.learning.models import bpe_tokenizer, load_tokenizer, make_model
from plansmith.learning.objectives.base import Objective
from plansmith.learning.objectives.final import Final, VerdictReader
from plansmith.learning.objectives.preference import Preference
from plansmith.learning.objectives.reasoning import Reasoning
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.optimisation import CURRICULUM, OptimisationReport
from plansmith.learning.sequence_files import StoredSequences
from plansmith.learning.sequences import TrainingSequence
from plansmith.learning.tokenizer import word_tokenizer
from plansmith.pddl.parser import parse_domain
from plansmith.stages import StageContext
from plansmith.text.compact import BRANCH_MARKERS

PROBE_TOKENS = 256
SEQUENCES = "sequences"
TRAINER = "trainer"
"""Folder of what a trainer goes on from: weights and optimizer state."""
CHECKPOINTS = "checkpoints"
"""Scratch folder of what an optimisation that is killed goes on from."""
ROWS_PER_PART = 256
"""Examples that one job encodes."""
UNUSED_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx", "*.gguf", "original")
"""What a model folder may hold beside its safetensors."""
OPTIMISATION = (
    "plansmith.learning.optimisation.plan_optimisation",
    "plansmith.learning.optimisation.run_optimisation",
    "plansmith.learning.packed_attention.register_packed_attention",
    "plansmith.learning.orthogonalisation.write_updates",
    "plansmith.learning.objectives.supervised.TokenLogprobs",
)
"""The code that changes weights, which the stages reach through their run's trainer."""


def optimising(
    objective: str, iteration: int = 0, *, code_roots: tuple[str, ...] = OPTIMISATION, **labels: str
) -> dict[str, Any]:
    """Return what a stage says of itself that optimises."""
    labels = {"objective": objective, **labels}
    return {"kind": StageKind.OPTIMISES, "iteration": iteration, "labels": labels, "code_roots": code_roots}


def example_tables(examples: Artifact) -> list[str]:
    """Return the tables of examples that an artifact has, by name."""
    files = examples.manifest.files.items()
    return [name.removesuffix(".parquet") for name, file in files if file.row_type == ExampleRow.__name__]


def example_rows(examples: Artifact) -> list[ExampleRow]:
    """Return the examples of all tables that an artifact has."""
    return [row for table in example_tables(examples) for row in examples.rows(ExampleRow, table)]


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


class EpochSettings(TuningSettings):
    """One epoch of an optimisation, of which each epoch is a stage of its own, so that all can be tried."""

    epoch: int
    """From 1; the optimiser's schedule goes over all its epochs."""
    stacked_copies: int = 0
    """Copies of the examples in the order in which they were stacked (`plansmith.data.plan_examples`), which is then
    the order of training; 0 draws the order of each epoch."""


Tuning = TypeVar("Tuning", bound=TuningSettings)


class PreferenceTuningSettings(TuningSettings):
    """One optimisation on preference pairs."""

    preference: PreferenceConfig
    """Weights of its loss."""


def start_settings(config: ModelRunConfig, object_names: tuple[str, ...] = ()) -> InitialPolicySettings:
    """Return what a run starts from; a folder's model has its own words and reach."""
    numerics = narrowed(config.trainer, Numerics)
    if config.model.folder is not None:
        return InitialPolicySettings(model=config.model, numerics=numerics)
    reach = config.policy.max_model_len
    return InitialPolicySettings(
        model=config.model, numerics=numerics, object_names=object_names, max_position_embeddings=reach
    )


def branch_words(told: ChainConfig) -> tuple[str, ...]:
    """Return the words that a word-level model needs for what its chains tell beside their steps."""
    return tuple(BRANCH_MARKERS) if told.alternatives or told.backtracks else ()


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
    row = min(example_rows(context.inputs["examples"]), key=lambda row: row.example_id)
    probe = ExampleEncoder(str(target)).encode(row).token_ids.tolist()
    write_probe(context.resources.trainer(target, settings.numerics), probe, context.output.path(PROBE))


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
        tokenizer = bpe_tokenizer(texts, model.vocabulary_size, has_whole_names=model.has_whole_names)
    reach = settings.max_position_embeddings or 0
    n_parameters = make_model(target, tokenizer, model, max_position_embeddings=reach, seed=context.seed)
    context.logger.info("a model from nothing: %d parameters, %d tokens", n_parameters, len(tokenizer))


FEW_EXAMPLES = 2000
"""So many are encoded sooner than workers are started."""


def encode_examples(context: StageContext[None]) -> None:
    """Write the examples of phase 1 as training sequences, part by part; a part that is there is kept."""
    parts = context.output.parts(SEQUENCES, SequenceRow)
    jobs = []
    n_examples = 0
    for table in example_tables(context.inputs["examples"]):
        path = context.inputs["examples"].path(f"{table}.parquet")
        n_rows = count_rows(path)
        n_examples += n_rows
        for first in range(0, n_rows, ROWS_PER_PART):
            name = f"{table}-{first // ROWS_PER_PART:06d}"
            if not parts.is_finished(name):
                jobs.append(EncodingJobRow(name, str(path), first, ROWS_PER_PART, str(parts.path(name))))
    worker_settings = {"model": str(context.inputs["policy"].path(MODEL))}
    with context.progress(len(jobs), "encoding examples", unit="part") as bar:
        encoded = (
            map(EncodingWorker(**worker_settings), [[job] for job in jobs])
            if n_examples <= FEW_EXAMPLES
            else context.resources.map_jobs(
                jobs, EncodingJobRow, EncodingWorker, PartTimeRow, worker_settings=worker_settings
            )
        )
        for _ in encoded:
            bar.update()


def tune(context: StageContext[TuningSettings]) -> None:
    """Tune on examples by likelihood: phase 1 of PDDL-INSTRUCT (algorithm 1, lines 1 to 9), a control, any other."""
    stored = StoredSequences(context.inputs["sequences"].parts(SEQUENCES))
    seeds = [context.row_seed(example_id) for example_id in stored.ids]
    order = sorted(range(len(stored)), key=seeds.__getitem__)
    if context.settings.optimiser.is_curriculum:
        order = in_curriculum_order(order, stored.lengths.tolist(), seed=context.seed)
    optimise_sequences(context, Supervised(), stored.in_order(order))


def tune_in_order(context: StageContext[TuningSettings]) -> None:
    """Tune on examples by likelihood in the order in which they were written."""
    in_order = context.settings.optimiser.model_copy(update={"is_curriculum": True})
    optimise_sequences(context, Supervised(), StoredSequences(context.inputs["sequences"].parts(SEQUENCES)), in_order)


def tune_epoch(context: StageContext[EpochSettings]) -> None:
    """Tune on examples by likelihood for one more epoch, with the optimizer's state of the one before.

    Raises:
        BadInputError: more than a few examples are too long to be trained on.
    """
    settings, stored = context.settings, StoredSequences(context.inputs["sequences"].parts(SEQUENCES))
    optimiser = settings.optimiser
    longest = optimiser.max_length_tokens or settings.numerics.row_length_tokens
    check_fitting(stored.lengths.tolist(), longest, where=context.stage.name)
    if settings.stacked_copies:
        stored = stored.in_order(in_order_of_training(stored.ids, settings.stacked_copies, seed=context.seed))
        optimiser = optimiser.model_copy(update={"is_curriculum": True})
    optimise_sequences(context, Supervised(), stored, optimiser, epoch=settings.epoch)


MAX_TOO_LONG = 0.05
"""Share of examples, or prompts, beyond the window above which a run ends: what is left would be another question."""


def check_fitting(lengths: Sequence[int], longest: int, *, where: str) -> None:
    """Raise where more than a few texts are longer than the window.

    Raises:
        BadInputError: with the share.
    """
    n_too_long = sum(length > longest for length in lengths)
    if n_too_long > MAX_TOO_LONG * len(lengths) or n_too_long == len(lengths):
        raise BadInputError("too many texts are longer than the window", where=where,
                            got=f"{n_too_long} of {len(lengths)}, the longest with {max(lengths, default=0)} tokens",
                            expected=f"a share of {MAX_TOO_LONG:g} at most beyond {longest} tokens",
                            cure="raise trainer.row_length_tokens, or draw smaller problems")  # fmt: skip


def in_curriculum_order(order: Sequence[int], lengths: Sequence[int], *, seed: int) -> list[int]:
    """Return a random `CURRICULUM` of the sequences from short to long, then the others in random order.

    Short chains teach copying and looking up with few distractors. Sorted by length to its end, a model would finish on
    the longest chains and forget the others.
    """
    shuffled = random.Random(seed).sample(order, len(order))
    n_sorted = round(CURRICULUM * len(shuffled))
    return [*sorted(shuffled[:n_sorted], key=lengths.__getitem__), *shuffled[n_sorted:]]


def stage1(context: StageContext[TuningSettings]) -> None:
    """Optimise L_reasoning (equation 2) on the judged steps and the corrected chains."""
    datasets, encoder = context.inputs["datasets"], ExampleEncoder(str(context.inputs["policy"].path(MODEL)))
    corrections, parts = datasets.rows(ExampleRow, "corrections"), context.output.parts(SEQUENCES, SequenceRow)
    paths = [datasets.path("stage1.parquet")]
    for first in range(0, len(corrections), ROWS_PER_PART):
        rows = corrections[first : first + ROWS_PER_PART]
        name = f"corrections-{first // ROWS_PER_PART:06d}"
        parts.write(name, (encoder.encode(row).row(row.example_id) for row in rows), SequenceRow)
        paths.append(parts.path(name))
    optimise_sequences(context, Reasoning(context.settings.losses), StoredSequences(paths))


def stage2(context: StageContext[TuningSettings]) -> None:
    """Optimise L_final (equation 3) on whole plans and their verdicts."""
    reader = VerdictReader.of(load_tokenizer(str(context.inputs["policy"].path(MODEL))))
    sequences = StoredSequences([context.inputs["datasets"].path("stage2.parquet")])
    optimise_sequences(context, Final(context.settings.losses, reader), sequences)


def dpo(context: StageContext[PreferenceTuningSettings]) -> None:
    """Optimise equation 5 of NL-PDDL-Bench on pairs that the reference has read."""
    sequences = StoredSequences(context.inputs["pairs"].parts(SEQUENCES))
    optimise_sequences(context, Preference(context.settings.preference), sequences)


def optimise_sequences(
    context: StageContext[Tuning],
    objective: Objective,
    sequences: StoredSequences,
    optimiser: OptimiserConfig | None = None,
    *,
    epoch: int | None = None,
) -> None:
    """Train from the weights of the policy and leave the new weights, their probe and the curve.

    The probe is the first sequence: what is trained on is likely enough for both sides to agree on. With ``epoch`` only
    this one of the optimiser's is trained, and left is also what the next one goes on from. Killed, it goes on from its
    newest checkpoint, and the manifest says so.
    """
    settings = optimiser or context.settings.optimiser
    numerics = context.settings.numerics.during(settings)
    policy, is_later = context.inputs["policy"], epoch is not None and epoch > 1
    trainer = context.resources.trainer(policy.path(MODEL), numerics)
    checkpoints = context.output.scratch(CHECKPOINTS)
    if told := interruption(checkpoints):
        context.logger.warning("stage %s: %s", context.stage.name, told)
        context.output.note(told)
    if is_later:
        trainer.load_checkpoint(str(policy.path(TRAINER)))
    report: OptimisationReport = trainer.optimise(
        objective,
        sequences,
        settings,
        seed=context.seed,
        keeps_moments=is_later,
        epoch=epoch,
        description=context.stage.name,
        checkpoints=str(checkpoints),
    )
    if n_missing := report.n_missing_ranks:
        ranks = f"{n_missing} rank{'s' * (n_missing > 1)}"
        context.output.note(f"ended with {ranks} fewer than asked for, batches as they were")
    if epoch is not None and epoch < settings.epochs:
        trainer.save_checkpoint(str(context.output.path(TRAINER)))
    if report.n_dropped:
        limit = settings.max_length_tokens or numerics.row_length_tokens
        context.logger.warning(
            "%d of %d sequences, %d tokens, were longer than %d tokens, alone or as a pair, and were not trained on",
            report.n_dropped, report.n_sequences + report.n_dropped, report.n_dropped_tokens, limit,
        )  # fmt: skip
    trainer.save(str(context.output.path(MODEL)))
    write_probe(trainer, sequences[0].token_ids.tolist(), context.output.path(PROBE))
    _write_report(context, report)


def write_probe(trainer: Any, token_ids: Sequence[int], path: Path) -> None:
    """Write what the trainer, as it is, gives the first tokens of a sequence."""
    token_ids = tuple(token_ids[:PROBE_TOKENS])
    (logprobs,) = trainer.token_logprobs([TrainingSequence.of(token_ids, {})])
    Probe(token_ids, tuple(logprobs.tolist())).write(path)


def _write_report(context: StageContext[Any], report: OptimisationReport) -> None:
    steps = zip(report.losses, report.learning_rates, report.gradient_norms, strict=True)
    context.output.write_rows(
        [OptimisationStepRow(number, *values) for number, values in enumerate(steps, 1)],
        OptimisationStepRow,
        table="curve",
    )
    figures = [
        ObjectiveFigureRow(step, name, value)
        for name, values in report.metrics.items()
        if name != "loss"
        for step, value in enumerate(values, 1)
    ]
    context.output.write_rows(figures, ObjectiveFigureRow, table="figures")
    number = {"n_sequences": report.n_sequences, "n_dropped": report.n_dropped,
              "n_dropped_tokens": report.n_dropped_tokens, "n_tokens": report.n_tokens,
              "tokens_per_s": report.n_trained_tokens / report.wall_time_s}  # fmt: skip
    metrics = [MetricRow(context.stage.name, 0, "", "", f"training/{name}", float(x)) for name, x in number.items()]
    context.output.write_rows(metrics, MetricRow, table="metrics")
