"""The trainer on DeepSpeed and gloo, against bare torch, with models of a few thousand parameters."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import subprocess
import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from ranks import on_two_ranks
from safetensors.torch import load_file

import actors.deepspeed_engine
import actors.trainer
from actors.deepspeed_engine import _buckets, whole_shape
from actors.trainer import TrainerActor, _buffers, _join_process_group, _prepare_process
from plansmith.config.generation import SamplingConfig
from plansmith.config.reinforcement import GroupRelativeConfig
from plansmith.config.training import LoraConfig, LossConfig, OptimiserConfig, Schedule, TrainerConfig
from plansmith.data.rows import SequenceRow
from plansmith.data.tables import write_table
from plansmith.errors import BadInputError, PlansmithError
from plansmith.learning.objectives.final import Final, VerdictReader, v_hats
from plansmith.learning.objectives.group_relative import GroupRelative
from plansmith.learning.objectives.reasoning import Reasoning
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.optimisation import OptimisationReport, learning_rate_at
from plansmith.learning.orthogonalisation import orthogonalised
from plansmith.learning.packing import PackedBatch, build_batch
from plansmith.learning.sequence_files import StoredSequences
from plansmith.learning.sequences import (
    JUDGED,
    NLL_WEIGHT,
    OLD_LOGPROBS,
    REFERENCE_LOGPROBS,
    SCORE_WEIGHT,
    VERDICT_LABEL,
    TrainingSequence,
    rollout_sequence,
    supervised_sequence,
)
from plansmith.learning.weight_files import check_weight_files, shard_name

VALID, INVALID = 1, 2
LORA = LoraConfig(rank=4, alpha=8.0)
PROBE = (3, 9, 27, 33, 1)
VERDICT = VerdictReader(VALID, INVALID)
LOSSES = LossConfig(score=1.0)
FINAL = Final(LOSSES, VERDICT)
SETTINGS = TrainerConfig(n_threads=1, row_length_tokens=32, optimizer="adamw", is_autocast=False)
BFLOAT16 = {"dtype": "bfloat16", "zero_stage": 2}
# eps far above float noise: AdamW divides by it where a gradient is nearly zero
FAST = OptimiserConfig(
    learning_rate=5e-3, batch_sequences=4, weight_decay=0.1, gradient_clipping=0.5, eps=1e-5, schedule=Schedule.CONSTANT
)
BY_HEART = OptimiserConfig(
    learning_rate=1e-2, batch_sequences=12, warmup_steps=5, weight_decay=0.0, schedule=Schedule.CONSTANT
)


def changed(settings: Any, **changes: Any) -> Any:
    """Return other settings, checked like those that are written."""
    return type(settings)(**{**settings.model_dump(), **changes})


def make_model(
    folder: Path, *, hidden_size: int = 32, is_tied: bool = False, dtype: torch.dtype = torch.float32
) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=48,
        hidden_size=hidden_size,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=is_tied,
    )
    LlamaForCausalLM(config).to(dtype).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text('{"travels": true}')
    return folder


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def wide_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with matrices of more than 100,000 numbers: below that ZeRO 3 keeps a weight whole on every rank."""
    return make_model(tmp_path_factory.mktemp("wide"), hidden_size=320)


def supervised_sequences(n: int = 12) -> list[TrainingSequence]:
    generator = random.Random(0)
    return [
        supervised_sequence([3, 4 + i], [generator.randrange(4, 48) for _ in range(generator.randrange(3, 14))])
        for i in range(n)
    ]


def judged_sequences() -> list[TrainingSequence]:
    """Two plans the validator rejects, pushed down, and two it accepts, pushed up; the verdict is the last token."""
    sequences = []
    for i, label in enumerate((0, 1, 0, 1)):
        plan = (10 + 4 * i, 11 + 4 * i, 12 + 4 * i)
        coefficient = 1.0 if label == 0 else -1.0
        sequences.append(
            TrainingSequence.of(
                (3, 5 + i, *plan, VALID if label else INVALID),
                {
                    SCORE_WEIGHT: (0, 0, coefficient, coefficient, coefficient, 0),
                    JUDGED: (0, 0, 1, 1, 1, 0),
                    VERDICT_LABEL: (0, 0, 0, 0, 0, -coefficient),
                },
            )
        )
    return sequences


def probe_of(trainer: TrainerActor, token_ids: Sequence[int] = PROBE) -> list[float]:
    """Return the log-probability of each token."""
    return trainer.token_logprobs([TrainingSequence.of(token_ids, {})])[0].tolist()


def weights_of(trainer: TrainerActor) -> dict[str, torch.Tensor]:
    return trainer.engine.weights()


def largest_difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max((ours[name] - theirs[name]).abs().max().item() for name in ours)


def distance(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    return math.sqrt(sum((ours[name] - theirs[name]).square().sum().item() for name in ours))


def bare_torch_training(
    folder: Path, sequences: Sequence[TrainingSequence], phases: Sequence[tuple[OptimiserConfig, int]]
) -> dict[str, torch.Tensor]:
    """Train without packing, DeepSpeed or our loop: one sequence at a time, plain attention, torch's AdamW."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    for phase, seed in phases:
        parameters = list(model.parameters())
        optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in parameters if p.ndim == 2], "weight_decay": phase.weight_decay},
                {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
            ],
            lr=phase.learning_rate,
            betas=(phase.beta1, phase.beta2),
            eps=phase.eps,
        )
        for epoch in range(phase.epochs):
            order = list(range(len(sequences)))
            random.Random(seed + epoch).shuffle(order)
            for start in range(0, len(order), phase.batch_sequences or 1):
                batch = [sequences[i] for i in order[start : start + (phase.batch_sequences or 1)]]
                n_tokens = sum(len(s) - 2 for s in batch)
                optimizer.zero_grad()
                for sequence in batch:
                    token_ids = torch.from_numpy(sequence.token_ids)[None].long()
                    labels = token_ids.clone()
                    labels[0, :2] = -100
                    loss = model(input_ids=token_ids, labels=labels).loss
                    (loss * (len(sequence) - 2) / n_tokens).backward()
                torch.nn.utils.clip_grad_norm_(parameters, phase.gradient_clipping)
                optimizer.step()
    return dict(model.state_dict())


@pytest.mark.parametrize(
    ("zero_stage", "offload"),
    [(1, "none"), (2, "none"), (3, "none"), (1, "optimizer"), (2, "optimizer"), (3, "optimizer"), (3, "all")],
)
def test_optimise_two_phases_equals_a_bare_torch_loop(model_folder: Path, zero_stage: int, offload: str) -> None:
    sequences = supervised_sequences()
    phases = [
        (changed(FAST, epochs=2), 0),
        (changed(FAST, learning_rate=1e-3, batch_sequences=5, beta1=0.8, beta2=0.9), 7),
    ]
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, zero_stage=zero_stage, offload=offload))
    reports = [trainer.optimise(Supervised(), sequences, phase, seed=seed) for phase, seed in phases]
    assert [report.n_steps for report in reports] == [6, 3]
    expected = bare_torch_training(model_folder, sequences, phases)
    assert largest_difference(weights_of(trainer), expected) < 1e-5


def test_optimise_supervised_learns_a_tiny_batch_by_heart(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, config=SETTINGS)
    fast = changed(
        FAST,
        learning_rate=1e-2,
        batch_sequences=12,
        epochs=60,
        warmup_steps=5,
        weight_decay=0.0,
        gradient_clipping=1.0,
        eps=1e-8,
    )
    report = trainer.optimise(Supervised(), supervised_sequences(), fast, description="by heart")
    assert report.losses[0] == pytest.approx(math.log(48), abs=0.2)  # uniform over the vocabulary
    assert report.losses[-1] < 0.05
    assert report.metrics == {"loss": report.losses, "nll": report.losses}
    assert report.learning_rates[:6] == pytest.approx([2e-3, 4e-3, 6e-3, 8e-3, 1e-2, 1e-2])
    assert all(norm > 0 for norm in report.gradient_norms)


def test_optimise_does_not_depend_on_packing_and_micro_batches(model_folder: Path) -> None:
    results = []
    for row_length_tokens, micro_batch_tokens in ((16, None), (64, 200)):
        settings = changed(SETTINGS, row_length_tokens=row_length_tokens, micro_batch_tokens=micro_batch_tokens)
        trainer = TrainerActor(model_folder, config=settings)
        trainer.optimise(Supervised(), supervised_sequences(), FAST)
        results.append(weights_of(trainer))
    assert largest_difference(*results) < 1e-5


def test_optimise_that_computes_prompts_once_ends_with_the_weights_of_one_that_does_not(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counting(*given: Any) -> PackedBatch:
        batch = build_batch(*given)
        computed[-1] += batch.token_ids.numel()
        return batch

    computed = list[int]()
    monkeypatch.setattr("plansmith.learning.optimisation.build_batch", counting)
    prompts = [[3 + (number * place) % 7 for place in range(100)] for number in (1, 2)]
    sequences = [supervised_sequence(prompt, [answer, 5, 4]) for answer in (3, 6, 8) for prompt in prompts]
    results, reports = [], []
    for shares_prompts in (False, True):
        computed.append(0)
        trainer = TrainerActor(model_folder, config=changed(SETTINGS, row_length_tokens=320))
        settings = changed(FAST, batch_sequences=6, shares_prompts=shares_prompts)
        report = trainer.optimise(Supervised(), sequences, settings)
        results.append(weights_of(trainer))
        reports.append(report)
    assert largest_difference(*results) < 1e-5
    assert reports[0].losses == pytest.approx(reports[1].losses, abs=1e-5)
    assert reports[0].n_trained_tokens == reports[1].n_trained_tokens
    assert computed[0] == reports[0].n_trained_tokens and computed[1] == computed[0] - reports[0].n_steps * 4 * 64


def test_optimise_by_tokens_takes_the_batches_it_says(model_folder: Path) -> None:
    sequences = supervised_sequences()
    trainer = TrainerActor(model_folder, config=SETTINGS)
    report = trainer.optimise(Supervised(), sequences, changed(FAST, batch_sequences=None, batch_tokens=40, epochs=2))
    n_tokens = sum(len(sequence) for sequence in sequences)
    assert (report.n_sequences, report.n_tokens, report.n_dropped) == (12, n_tokens, 0)
    assert report.n_steps >= 2 * n_tokens / 40
    assert len(report.losses) == len(report.learning_rates) == len(report.gradient_norms) == report.n_steps


def test_optimise_counts_a_sequence_longer_than_a_row_as_dropped(
    model_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sequences = [*supervised_sequences(4), supervised_sequence([3], [5] * 32)]
    trainer = TrainerActor(model_folder, config=SETTINGS)
    report = trainer.optimise(Supervised(), sequences, FAST)
    assert (report.n_sequences, report.n_dropped, report.n_dropped_tokens) == (4, 1, 33)
    assert report.n_tokens == sum(len(sequence) for sequence in sequences[:4])
    assert "1 of 5 sequences, 33 tokens in all, are longer than 32 tokens" in caplog.text
    with pytest.raises(BadInputError, match="no sequence fits"):
        trainer.optimise(Supervised(), sequences[4:], FAST)


def test_optimise_leaves_out_what_is_longer_than_the_longest_allowed(model_folder: Path) -> None:
    sequences = [supervised_sequence([3], [5] * n) for n in (4, 15, 16, 20)]
    trainer = TrainerActor(model_folder, config=SETTINGS)
    report = trainer.optimise(Supervised(), sequences, changed(FAST, max_length_tokens=16))
    # 5 and 16 tokens stay, 17 and 21 go
    assert (report.n_sequences, report.n_tokens, report.n_dropped, report.n_dropped_tokens) == (2, 21, 2, 38)
    with pytest.raises(BadInputError, match="at most 16 tokens"):
        trainer.optimise(Supervised(), sequences[2:], changed(FAST, max_length_tokens=16))


def test_optimise_with_a_limit_above_a_row_leaves_out_only_what_exceeds_the_row(model_folder: Path) -> None:
    sequences = [supervised_sequence([3], [5] * n) for n in (31, 32)]
    trainer = TrainerActor(model_folder, config=SETTINGS)
    report = trainer.optimise(Supervised(), sequences, changed(FAST, max_length_tokens=1000))
    assert (report.n_sequences, report.n_dropped) == (1, 1)


def test_optimise_by_sequences_takes_as_many_as_it_says(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, config=SETTINGS)
    by_sequences = changed(FAST, batch_sequences=5, epochs=2)
    report = trainer.optimise(Supervised(), supervised_sequences(12), by_sequences)
    assert report.n_steps == 6  # 5 + 5 + 2, twice


def test_optimise_final_lowers_invalid_plans_raises_valid_ones_and_learns_the_verdict(model_folder: Path) -> None:
    sequences = judged_sequences()
    trainer = TrainerActor(model_folder, config=SETTINGS)

    def plan_logprob(sequence: TrainingSequence) -> float:
        return float(trainer.token_logprobs([sequence])[0][2:5].sum())

    before = [plan_logprob(sequence) for sequence in sequences]
    v_hat_before = v_hats(trainer.predict(VERDICT, sequences), sequences)
    report = trainer.optimise(FINAL, sequences, changed(FAST, epochs=40))
    after = [plan_logprob(sequence) for sequence in sequences]
    assert all(abs(v_hat - 0.5) < 0.2 for v_hat in v_hat_before if v_hat is not None)
    assert [a > b for a, b in zip(after, before, strict=True)] == [False, True, False, True]
    assert report.metrics["bce"][0] == pytest.approx(math.log(2), abs=0.1)
    assert report.metrics["bce"][-1] < 0.1
    assert report.metrics["clamped_share"][-1] == 0.5  # six of twelve plan tokens are bad, and all are at the floor
    invalid_low, valid_high, *_ = v_hats(trainer.predict(VERDICT, sequences), sequences)
    assert invalid_low is not None and valid_high is not None
    assert invalid_low < 0.1 < 0.9 < valid_high


def test_optimise_reasoning_pushes_the_bad_step_down_and_the_expected_one_up(model_folder: Path) -> None:
    bad = TrainingSequence.of((3, 5, 20, 21), {SCORE_WEIGHT: (0, 0, 2, 2), JUDGED: (0, 0, 1, 1)})
    expected = supervised_sequence([3, 5], [30, 31])
    trainer = TrainerActor(model_folder, config=SETTINGS)
    before = [found[2:].sum() for found in trainer.token_logprobs([bad, expected])]
    report = trainer.optimise(Reasoning(LOSSES), [bad, expected], changed(FAST, epochs=15))
    after = [found[2:].sum() for found in trainer.token_logprobs([bad, expected])]
    assert after[0] < before[0] and after[1] > before[1] + 1
    assert report.metrics["nll"][-1] < report.metrics["nll"][0]
    assert report.losses[0] == pytest.approx(report.metrics["nll"][0] + report.metrics["score"][0])


@dataclass(frozen=True)
class ThroughLogits:
    """An objective as one that asks for whole logits."""

    inner: GroupRelative
    name: ClassVar[str] = "whole"

    @property
    def columns(self) -> tuple[str, ...]:
        return self.inner.columns

    def loss(self, *arguments: Any) -> Any:
        return self.inner.loss(*arguments)


class InChunks(Supervised):
    """The likelihood, for which no logits may be whole."""

    whole_logits: ClassVar[int] = 0


@pytest.mark.parametrize("changes", [{}, {"zero_stage": 3}, {"lora": LORA}], ids=["adamw", "zero 3", "adapter"])
def test_optimise_supervised_in_chunks_equals_that_on_whole_logits(
    model_folder: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plansmith.learning.token_reading.CHUNK_NUMBERS", 48 * 5)  # five tokens of 48
    reports, weights = [], []
    for objective in (InChunks(), Supervised()):
        settings = changed(SETTINGS, row_length_tokens=16, **changes)  # several micro-batches
        trainer = TrainerActor(model_folder, config=settings)
        reports.append(trainer.optimise(objective, supervised_sequences(), FAST))
        weights.append(weights_of(trainer))
    assert reports[0].metrics.keys() == reports[1].metrics.keys()
    assert reports[0].losses == pytest.approx(reports[1].losses, abs=1e-5)
    assert largest_difference(*weights) < 1e-5


@pytest.mark.parametrize(
    "changes",
    [{}, BFLOAT16, {"zero_stage": 3}, {"zero_stage": 2, "lora": LORA}, {"is_checkpointing_activations": True}],
    ids=["adamw", "bfloat16", "zero 3", "adapter", "checkpointing"],
)
def test_optimise_through_the_head_in_chunks_equals_that_through_whole_logits(
    model_folder: Path, changes: dict[str, Any]
) -> None:
    rollouts = [([3, 5], [10, 11, 12, 1], 1.0), ([3, 5], [13, 1], -1.0), ([3, 6], [14, 15, 1], 0.5)]
    sequences = [rollout_sequence(prompt, response, advantage=a) for prompt, response, a in rollouts]
    objective = GroupRelative(GroupRelativeConfig(), SamplingConfig(temperature=0.7, max_new_tokens=8), reads_old=False)
    reports, weights = [], []
    for one in (objective, ThroughLogits(objective)):
        trainer = TrainerActor(model_folder, config=changed(SETTINGS, **changes))
        reports.append(trainer.optimise(one, sequences, changed(FAST, epochs=3)))
        weights.append(weights_of(trainer))
    assert reports[0].metrics["ratio"] == pytest.approx([1.0] * reports[0].n_steps, abs=1e-6)
    tolerance = 0.01 if changes == BFLOAT16 else 1e-5
    assert reports[0].losses == pytest.approx(reports[1].losses, abs=tolerance)
    assert reports[0].gradient_norms == pytest.approx(reports[1].gradient_norms, abs=tolerance, rel=tolerance)
    assert largest_difference(*weights) < 10 * tolerance


def test_verdict_probabilities_are_none_without_a_verdict_and_those_of_the_model_with_one(model_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    sequences = judged_sequences()
    sequences.insert(1, supervised_sequence([3], [4, 5]))
    trainer = TrainerActor(model_folder, config=SETTINGS)
    probabilities = v_hats(trainer.predict(VERDICT, sequences), sequences)
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    logits = model(input_ids=torch.from_numpy(sequences[3].token_ids)[None]).logits[0, 4]
    assert probabilities[1] is None
    assert probabilities[3] == pytest.approx(torch.sigmoid(logits[VALID] - logits[INVALID]).item(), abs=1e-6)
    assert trainer.predict(VERDICT, []) == []


def test_logprobs_equal_those_of_transformers(model_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    token_ids = [3, 9, 27, 33, 1] * 10  # longer than a row: the probe is never cut
    logits = AutoModelForCausalLM.from_pretrained(model_folder)(input_ids=torch.tensor([token_ids])).logits[0]
    expected = logits.log_softmax(-1)[:-1].gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0].tolist()
    assert probe_of(TrainerActor(model_folder, config=SETTINGS), token_ids) == pytest.approx([0.0, *expected], abs=1e-5)


@pytest.mark.parametrize(
    "changes",
    [{}, {"zero_stage": 3}, {"optimizer": "muon"}, {"lora": LORA}],
    ids=["adamw", "zero 3", "muon", "adapter"],
)
def test_model_of_a_trainer_that_has_ended_is_gone(model_folder: Path, changes: dict[str, Any]) -> None:
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, **changes))
    trainer.optimise(Supervised(), supervised_sequences(), FAST)
    module, is_sharded = trainer.engine.module, "zero_stage" in changes
    shards = [tensor for item in module.parameters() for tensor in (item, *([item.ds_tensor] if is_sharded else ()))]
    held = weakref.ref(module)
    if is_sharded:  # DeepSpeed keeps the modules
        trainer.end()
        assert {tensor.numel() for tensor in shards} == {0}
        return
    del module, shards
    trainer.end()
    assert held() is None


def test_logprobs_as_trained_are_rounded_as_those_of_a_step(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, is_autocast=True))
    sequences = supervised_sequences()
    exact, rounded = (
        -sum(read[sequence.columns[NLL_WEIGHT] != 0].sum() for read, sequence in zip(found, sequences, strict=True))
        / sum(int((sequence.columns[NLL_WEIGHT] != 0).sum()) for sequence in sequences)
        for found in (trainer.token_logprobs(sequences), trainer.token_logprobs(sequences, as_trained=True))
    )
    report = trainer.optimise(Supervised(), sequences, changed(FAST, batch_sequences=len(sequences)))
    assert report.losses[0] == pytest.approx(rounded, rel=1e-6)
    assert abs(exact - rounded) > 1e-5


def test_ranks_bring_tensors_together_in_buckets_and_one_that_is_larger_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(actors.deepspeed_engine, "BUCKET_ELEMENTS", 6)
    wanted = [(torch.zeros(n), "weight") for n in (3, 2, 2, 10, 6, 1)]
    assert [[len(tensor) for tensor, _ in bucket] for bucket in _buckets(wanted)] == [[3, 2], [2], [10], [6], [1]]


@pytest.mark.parametrize(
    "changes",
    [{}, BFLOAT16, {"zero_stage": 3}, {"zero_stage": 2, "lora": LORA}, {"optimizer": "muon"}],
    ids=["adamw", "bfloat16", "zero 3", "adapter", "muon"],
)
def test_training_continued_from_a_checkpoint_is_that_which_was_never_interrupted(
    model_folder: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    config, two_steps = changed(SETTINGS, **changes), changed(FAST, batch_sequences=6)
    trainer = TrainerActor(model_folder, config=config)
    trainer.optimise(Supervised(), supervised_sequences(), two_steps)
    trainer.save_checkpoint(tmp_path / "checkpoint")
    expected = trainer.optimise(Supervised(), supervised_sequences(), two_steps, seed=1, keeps_moments=True)
    fresh = TrainerActor(model_folder, config=config)
    fresh.load_checkpoint(tmp_path / "checkpoint")
    report = fresh.optimise(Supervised(), supervised_sequences(), two_steps, seed=1, keeps_moments=True)
    assert (report.losses, report.gradient_norms) == (expected.losses, expected.gradient_norms)
    assert largest_difference(weights_of(fresh), weights_of(trainer)) == 0
    fresh.load_checkpoint(tmp_path / "checkpoint")
    fresh.optimise(Supervised(), supervised_sequences(), two_steps, seed=1)  # with fresh moments it is another
    assert largest_difference(weights_of(fresh), weights_of(trainer)) > 0


@pytest.mark.parametrize(
    "changes",
    [{}, {"optimizer": "muon"}, BFLOAT16, {"zero_stage": 3}, {"zero_stage": 3, "offload": "all"}, {"lora": LORA}],
    ids=["adamw", "muon", "bfloat16", "zero 3", "offloaded", "adapter"],
)
def test_trainer_that_slept_trains_on_as_if_it_had_not(model_folder: Path, changes: dict[str, Any]) -> None:
    losses, weights = [], []
    for sleeps in (False, True):
        trainer = TrainerActor(model_folder, config=changed(SETTINGS, **changes))
        for seed in (0, 1):
            report = trainer.optimise(Supervised(), supervised_sequences(), FAST, seed=seed, keeps_moments=seed > 0)
            if sleeps:
                trainer.sleep()
                trainer.sleep()
                trainer.wake_up()
        losses.append(report.losses)
        weights.append(weights_of(trainer))
    assert losses[0] == losses[1]
    assert largest_difference(*weights) == 0


def test_two_calls_that_keep_the_moments_are_one_of_as_many_steps(model_folder: Path) -> None:
    weights = []
    for epochs in ([4], [2, 2]):
        trainer, seed = TrainerActor(model_folder, config=SETTINGS), 0
        for n in epochs:
            phase = changed(FAST, batch_sequences=12, epochs=n)
            trainer.optimise(Supervised(), supervised_sequences(), phase, seed=seed, keeps_moments=seed > 0)
            seed += n
        weights.append(weights_of(trainer))
    assert largest_difference(*weights) == 0


def test_checkpoint_that_is_not_there_is_refused_and_one_half_written_is_none(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = TrainerActor(model_folder, config=SETTINGS)

    def fail(_: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(trainer.engine, "save_state", fail)
    with pytest.raises(OSError, match="disk full"):
        trainer.save_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(BadInputError, match="no checkpoint"):
        trainer.load_checkpoint(tmp_path / "checkpoint")


def test_optimise_on_stored_sequences_equals_that_on_held_ones_bit_by_bit(model_folder: Path, tmp_path: Path) -> None:
    held = [*supervised_sequences(), *judged_sequences()]
    rows = [sequence.row(str(number)) for number, sequence in enumerate(held)]
    for name, part in (("a", rows[10:]), ("b", rows[:10])):
        write_table(tmp_path / f"{name}.parquet", part, SequenceRow)
    stored = StoredSequences(sorted(tmp_path.iterdir()), [*range(6, 16), *range(6)])
    results = []
    for sequences in (held, stored):
        trainer = TrainerActor(model_folder, config=SETTINGS)
        report = trainer.optimise(FINAL, sequences, FAST)
        results.append((report.metrics, weights_of(trainer), trainer.token_logprobs(sequences)))
    assert results[0][0] == results[1][0]
    assert largest_difference(results[0][1], results[1][1]) == 0
    assert all((a == b).all() for a, b in zip(results[0][2], results[1][2], strict=True))


@pytest.mark.parametrize(("dtype", "zero_stage"), [("float32", 1), ("float32", 3), ("bfloat16", 2), ("bfloat16", 3)])
def test_save_and_load_give_back_the_same_bits(model_folder: Path, tmp_path: Path, dtype: str, zero_stage: int) -> None:
    from transformers import AutoModelForCausalLM

    trainer = TrainerActor(model_folder, config=changed(SETTINGS, dtype=dtype, zero_stage=zero_stage))
    trainer.optimise(Supervised(), supervised_sequences(), FAST)
    trained, folder = weights_of(trainer), tmp_path / "policy"
    folder.mkdir()  # an older policy is replaced
    (folder / "old").touch()
    trainer.save(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert json.loads((folder / "tokenizer_config.json").read_text()) == {"travels": True}
    assert not (folder / "old").exists()
    assert "plansmith" not in (folder / "config.json").read_text()
    assert AutoModelForCausalLM.from_pretrained(folder).dtype is getattr(torch, dtype)
    on_disk = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert largest_difference(dict(on_disk.state_dict()), trained) == 0

    trainer.optimise(Supervised(), supervised_sequences(), FAST)
    assert largest_difference(weights_of(trainer), trained) > 0
    trainer.load(folder)
    assert largest_difference(weights_of(trainer), trained) == 0


@pytest.mark.parametrize("is_tied", [False, True], ids=["head of its own", "tied head"])
def test_save_with_a_head_tied_to_the_embeddings_keeps_them_one(tmp_path: Path, is_tied: bool) -> None:
    from transformers import AutoModelForCausalLM

    folder = make_model(tmp_path / "model", is_tied=is_tied)
    trainer = TrainerActor(folder, config=changed(SETTINGS, zero_stage=3))
    trainer.optimise(Supervised(), supervised_sequences(), FAST)
    trainer.save(tmp_path / "saved")
    on_disk = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert (on_disk.lm_head.weight is on_disk.model.embed_tokens.weight) is is_tied
    assert largest_difference(dict(on_disk.named_parameters()), weights_of(trainer)) == 0


def test_save_copies_no_second_form_of_the_weights(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    (folder / "original").mkdir()
    for name in ("original/consolidated.00.pth", "model.gguf", "pytorch_model.bin"):
        (folder / name).write_text("many gigabytes")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "LICENSE.txt").write_text("terms")
    TrainerActor(folder, config=SETTINGS).save(tmp_path / "saved")
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "LICENSE.txt",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer_config.json",
    ]


@pytest.mark.parametrize("zero_stage", [1, 3])
def test_load_makes_training_continue_from_the_loaded_weights(
    model_folder: Path, tmp_path: Path, zero_stage: int
) -> None:
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, zero_stage=zero_stage))
    trainer.save(tmp_path / "start")
    trainer.optimise(Supervised(), supervised_sequences(), FAST)
    once = weights_of(trainer)
    trainer.optimise(Supervised(), supervised_sequences(), FAST)
    trainer.load(tmp_path / "start")
    trainer.optimise(Supervised(), supervised_sequences(), FAST)
    assert largest_difference(weights_of(trainer), once) == 0


def test_load_of_another_architecture_is_refused(model_folder: Path, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model_folder)
    config.vocab_size = 50
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    trainer = TrainerActor(model_folder, config=SETTINGS)
    with pytest.raises(BadInputError, match="does not fit"):
        trainer.load(tmp_path)


def test_optimise_in_bfloat16_keeps_small_updates_in_float32(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, **BFLOAT16))
    fast = changed(
        FAST,
        learning_rate=1e-2,
        batch_sequences=12,
        epochs=60,
        warmup_steps=5,
        weight_decay=0.0,
        gradient_clipping=1.0,
        eps=1e-8,
    )
    report = trainer.optimise(Supervised(), supervised_sequences(), fast)
    assert {parameter.dtype for parameter in trainer.engine.module.parameters()} == {torch.bfloat16}
    assert report.losses[-1] < 0.1


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_many_stages_in_bfloat16_move_the_weights_as_far_as_one(tmp_path: Path, zero_stage: int) -> None:
    folder = make_model(tmp_path / "model", dtype=torch.bfloat16)
    config = changed(SETTINGS, dtype="bfloat16", zero_stage=zero_stage)
    trainer = TrainerActor(folder, config=config)
    tiny = changed(FAST, learning_rate=1e-6, batch_sequences=12, weight_decay=0.0)
    start = weights_of(trainer)
    for stage in range(4):
        trainer.optimise(Supervised(), supervised_sequences(), tiny)
        trainer.save(tmp_path / f"stage-{stage}")
        trainer.load(tmp_path / f"stage-{stage}")
    by_stages = weights_of(trainer)
    resumed = weights_of(TrainerActor(tmp_path / "stage-3", config=config))
    trainer.load(folder)
    trainer.optimise(Supervised(), supervised_sequences(), changed(tiny, epochs=4))
    assert largest_difference(resumed, by_stages) == 0
    moved, expected = (distance(weights, start) for weights in (by_stages, weights_of(trainer)))
    assert moved == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_gradients_in_bfloat16_are_summed_in_float32(model_folder: Path, zero_stage: int) -> None:
    config = changed(SETTINGS, dtype="bfloat16", zero_stage=zero_stage, row_length_tokens=16)
    trainer = TrainerActor(model_folder, config=config)
    one_step = changed(FAST, batch_sequences=12, beta1=0.0, gradient_clipping=0.0)  # the first moment is the gradient
    trainer.optimise(Supervised(), supervised_sequences(), one_step)
    gradients = torch.cat([state["exp_avg"].ravel() for state in trainer.engine.optimizer.optimizer.state.values()])
    gradients = gradients[gradients != 0]
    is_rounded = gradients == gradients.bfloat16().float()
    assert len(gradients) > 1000
    assert is_rounded.float().mean() < 0.5


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_optimise_with_checkpointed_activations_gives_the_same_weights(model_folder: Path, zero_stage: int) -> None:
    results = []
    for is_checkpointing in (False, True):
        settings = changed(SETTINGS, zero_stage=zero_stage, is_checkpointing_activations=is_checkpointing)
        trainer = TrainerActor(model_folder, config=settings)
        assert trainer.engine.module.is_gradient_checkpointing is is_checkpointing
        trainer.optimise(Supervised(), supervised_sequences(), FAST)
        results.append(weights_of(trainer))
    assert largest_difference(*results) < 1e-6


def muon_reference(
    folder: Path, sequences: Sequence[TrainingSequence], hyperparameters: OptimiserConfig
) -> dict[str, torch.Tensor]:
    """Train with torch's own Muon on the matrices of the layers and AdamW on the rest; one batch, full gradient."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    named = dict(model.named_parameters())
    matrices = [p for name, p in named.items() if p.ndim == 2 and "embed" not in name and "lm_head" not in name]
    others = [p for p in named.values() if not any(p is matrix for matrix in matrices)]
    rate, decay = hyperparameters.learning_rate, hyperparameters.weight_decay
    optimizers: list[Any] = [
        torch.optim.Muon(matrices, lr=rate, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(
            [
                {"params": [p for p in others if p.ndim == 2], "weight_decay": decay},
                {"params": [p for p in others if p.ndim == 1], "weight_decay": 0.0},
            ],
            lr=rate,
            eps=hyperparameters.eps,
        ),
    ]
    n_tokens = sum(len(s) - 2 for s in sequences)
    for _ in range(hyperparameters.epochs):
        for sequence in sequences:
            token_ids = torch.from_numpy(sequence.token_ids)[None].long()
            labels = token_ids.clone()
            labels[0, :2] = -100
            (model(input_ids=token_ids, labels=labels).loss * (len(sequence) - 2) / n_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), hyperparameters.gradient_clipping)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return dict(model.state_dict())


def test_optimise_with_muon_equals_torchs_muon_on_matrices_and_adamw_elsewhere(model_folder: Path) -> None:
    sequences = supervised_sequences()
    hyperparameters = changed(FAST, batch_sequences=12, epochs=3, gradient_clipping=0.2)
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, optimizer="muon"))
    start = weights_of(trainer)
    report = trainer.optimise(Supervised(), sequences, hyperparameters)
    expected = muon_reference(model_folder, sequences, hyperparameters)
    assert all(norm > 0.2 for norm in report.gradient_norms)  # clipping was at work
    for name, tensor in weights_of(trainer).items():
        ours, theirs = tensor - start[name], expected[name] - start[name]
        # Newton-Schulz runs in bfloat16 and magnifies its rounding in another order of sums where singular values are
        # small; run in float32 the two agree to 0.4%
        tolerance = 0.15 if "proj" in name else 1e-2
        assert (ours - theirs).norm() < tolerance * theirs.norm(), name


def test_optimise_with_muon_in_autocast_keeps_the_gradient_in_float32(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, optimizer="muon", is_autocast=True))
    one_step = changed(FAST, batch_sequences=12, epochs=1, beta1=0.0)  # the first moment is the gradient
    trainer.optimise(Supervised(), supervised_sequences(), one_step)
    states = trainer.engine.optimizer.optimizer.state.values()
    gradients = torch.cat([state["exp_avg"].ravel() for state in states if "exp_avg" in state])
    gradients = gradients[gradients != 0]
    is_rounded = gradients == gradients.bfloat16().float()
    assert len(gradients) > 1000
    assert is_rounded.float().mean() < 0.1


@pytest.mark.parametrize(
    ("instructions", "asked", "dtype", "is_autocast"),
    [
        ({"avx512_bf16": True}, None, "float32", True),
        ({"bf16": True}, None, "float32", True),
        ({"avx2": True, "avx512_bf16": False}, None, "float32", False),
        ({"avx2": True}, True, "float32", True),
        ({"amx_bf16": True}, False, "float32", False),
        ({"amx_bf16": True}, None, "bfloat16", False),
    ],
)
def test_trainer_left_to_choose_multiplies_in_bfloat16_where_the_cpu_does(
    instructions: dict[str, bool],
    asked: bool | None,
    dtype: str,
    is_autocast: bool,
    model_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: instructions)
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, dtype=dtype, zero_stage=2, is_autocast=asked))
    assert trainer.config.is_autocast == is_autocast
    assert bool(trainer.engine.engine.torch_autocast_enabled()) == is_autocast


def test_muon_iterates_for_all_matrices_of_a_shape_at_once_and_in_float32(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watching(matrices: torch.Tensor, steps: int, *, dtype: torch.dtype) -> torch.Tensor:
        seen.append((tuple(matrices.shape[1:]), len(matrices), dtype))
        return orthogonalised(matrices, steps, dtype=dtype)

    seen: list[tuple[tuple[int, ...], int, torch.dtype]] = []
    monkeypatch.setattr("plansmith.learning.orthogonalisation.orthogonalised", watching)
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, optimizer="muon"))
    trainer.optimise(Supervised(), supervised_sequences(), changed(FAST, batch_sequences=12, epochs=1))
    shapes = [tuple(weight.shape) for name, weight in trainer.engine.weights().items() if "proj" in name]
    assert sorted(seen, key=str) == sorted([(s, shapes.count(s), torch.float32) for s in set(shapes)], key=str)


def test_muon_with_a_rate_of_its_own_moves_a_matrix_by_its_authors_size(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, optimizer="muon"))
    start, rate = weights_of(trainer), 1e-3
    one_step = changed(FAST, batch_sequences=12, epochs=1, weight_decay=0.0, muon_learning_rate=rate)
    for muon_rate in (rate, None):
        settings = changed(one_step, muon_learning_rate=muon_rate)
        trainer.engine.set_weights(start)
        trainer.optimise(Supervised(), supervised_sequences(), settings)
        for name, weight in weights_of(trainer).items():
            if "proj" in name:
                rows, columns = weight.shape
                larger = rate * max(1, rows / columns) ** 0.5
                expected = larger if muon_rate else FAST.learning_rate * 0.2 * max(rows, columns) ** 0.5
                # the iteration leaves singular values between 0.7 and 1.2, or lower where they were nothing
                assert 0.7 < torch.linalg.matrix_norm(weight - start[name], 2) / expected < 1.25, name


def test_optimise_with_muon_learns_a_tiny_batch_by_heart(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, config=changed(SETTINGS, optimizer="muon"))
    fast = changed(
        FAST,
        learning_rate=1e-2,
        batch_sequences=12,
        epochs=40,
        warmup_steps=5,
        weight_decay=0.0,
        gradient_clipping=1.0,
        eps=1e-8,
    )
    assert trainer.optimise(Supervised(), supervised_sequences(), fast).losses[-1] < 0.05


GROUPS = GroupRelative(
    GroupRelativeConfig(denominator="tokens", clip_low=0.2, clip_high=0.28, beta=0.04, weight_limit=1.1),
    SamplingConfig(temperature=0.7, max_new_tokens=16),
)
"""DAPO with a reference and importance weights, which one rank computes as TRL does (test_group_relative.py)."""


def rollouts(n: int = 11) -> list[TrainingSequence]:
    """Return rollouts of several lengths, read before by others: some ratios are beyond the bounds, above and below."""
    generator, found = random.Random(1), list[TrainingSequence]()
    for i in range(n):
        response = [generator.randrange(4, 48) for _ in range(generator.randrange(2, 12))]
        old, written, reference = ([generator.gauss(-4, spread) for _ in response] for spread in (0.4, 0.4, 0.2))
        sequence = rollout_sequence([3, 4 + i], response, advantage=(-1.0) ** i, rollout_logprobs=written)
        read = {OLD_LOGPROBS: [0.0, 0.0, *old], REFERENCE_LOGPROBS: [0.0, 0.0, *reference]}
        found.append(TrainingSequence.of(sequence.token_ids, {**sequence.columns, **read}))
    return found


TWO_RANK_SETTINGS = {
    "zero 1": SETTINGS,
    "zero 2": changed(SETTINGS, zero_stage=2),
    "zero 3": changed(SETTINGS, zero_stage=3),
    "zero 3, checkpointed": changed(SETTINGS, zero_stage=3, is_checkpointing_activations=True),
    "zero 3, offload": changed(SETTINGS, zero_stage=3, offload="all"),
    "zero 3, autocast": changed(SETTINGS, zero_stage=3, is_autocast=True),
    "muon": changed(SETTINGS, optimizer="muon"),
    "bfloat16, zero 2": changed(SETTINGS, dtype="bfloat16", zero_stage=2),
    "bfloat16, zero 3": changed(SETTINGS, dtype="bfloat16", zero_stage=3),
    "lora": changed(SETTINGS, lora=LORA),
    "lora, zero 3, bfloat16": changed(SETTINGS, lora=LORA, zero_stage=3, dtype="bfloat16"),
    "lora, nf4": changed(SETTINGS, lora=LORA, zero_stage=2, quantisation="nf4"),
}


RARE = ("zero 3, checkpointed", "zero 3, offload", "zero 3, autocast", "bfloat16, zero 3", "lora, zero 3, bfloat16")
"""Settings whose parts the others have."""


def settings_of(names: Iterable[str]) -> list[Any]:
    """Return the names of settings as parameters; rare ones are of `make proofs`."""
    return [pytest.param(name, marks=pytest.mark.long) if name in RARE else name for name in names]


@dataclass(frozen=True)
class RankOutcome:
    """What one rank saw: v_hat before, its report, the weights (rank 0 alone), the probe when trained and reloaded.

    ``learnt`` has the report of an update by groups of rollouts, from what was reloaded, and the probe after it.
    """

    v_hats: list[float | None]
    report: OptimisationReport
    weights: dict[str, Any]
    probe: list[float]
    probe_after_load: list[float]
    learnt: tuple[OptimisationReport, list[float]]


def train_and_reload(trainer: TrainerActor, folder: Path) -> RankOutcome:
    """Train, save, train on, and load what was saved."""
    judged = [*supervised_sequences(1), *judged_sequences()]
    # of one plan alone there is nothing left for a second rank to judge
    found = [v_hat for part in (judged, judged[:2]) for v_hat in v_hats(trainer.predict(VERDICT, part), part)]
    report = trainer.optimise(Supervised(), supervised_sequences(11), FAST)
    weights = {name: tensor.float().numpy() for name, tensor in weights_of(trainer).items()}
    probe = probe_of(trainer)
    trainer.save(folder)
    trainer.optimise(Supervised(), supervised_sequences(5), FAST)
    assert probe_of(trainer) != probe
    trainer.save_checkpoint(folder.with_name("checkpoint"))
    losses = [trainer.optimise(Supervised(), supervised_sequences(5), FAST, keeps_moments=True).losses]
    trainer.load_checkpoint(folder.with_name("checkpoint"))
    losses.append(trainer.optimise(Supervised(), supervised_sequences(5), FAST, keeps_moments=True).losses)
    assert losses[0] == losses[1]
    trainer.load(folder)
    reloaded, learnt = probe_of(trainer), trainer.optimise(GROUPS, rollouts(), FAST)
    return RankOutcome(found, report, weights, probe, reloaded, (learnt, probe_of(trainer)))


def train_as_rank(rank: int, port: int, folder: Path, target: Path, names: Sequence[str]) -> dict[str, RankOutcome]:
    """Return what came of training with some of the settings in turn."""
    return {
        name: train_and_reload(
            TrainerActor(folder, config=changed(TWO_RANK_SETTINGS[name], n_ranks=2), rank=rank, master_port=port),
            target / name,
        )
        for name in names
    }


@pytest.fixture(scope="module")
def two_ranks(
    wide_model_folder: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[dict[str, RankOutcome], dict[str, RankOutcome]]:
    """Return the outcomes of both ranks by setting, of those that a test asks for."""
    asking = (item for item in request.session.items if "two_ranks" in getattr(item, "fixturenames", ()))
    asked = {item.callspec.params["name"] for item in asking}  # type: ignore[attr-defined]
    names = [name for name in TWO_RANK_SETTINGS if name in asked]
    return on_two_ranks(train_as_rank, wide_model_folder, tmp_path_factory.mktemp("two-ranks"), names)


@pytest.mark.parametrize("name", settings_of(TWO_RANK_SETTINGS))
def test_optimise_on_two_ranks_equals_one_rank_on_the_same_batches(
    wide_model_folder: Path,
    tmp_path: Path,
    two_ranks: tuple[dict[str, RankOutcome], dict[str, RankOutcome]],
    name: str,
) -> None:
    settings = TWO_RANK_SETTINGS[name]
    is_rounded = bool(settings.is_autocast) or settings.dtype == "bfloat16"
    alone = train_and_reload(TrainerActor(wide_model_folder, config=settings), tmp_path / "policy")
    for outcomes in two_ranks:
        assert [v_hat is None for v_hat in outcomes[name].v_hats] == [True, *[False] * 4, True, False]
        assert outcomes[name].v_hats == pytest.approx(alone.v_hats, abs=1e-2 if is_rounded else 1e-5)
        assert outcomes[name].report.losses == pytest.approx(alone.report.losses, abs=2e-2 if is_rounded else 1e-4)
        assert outcomes[name].report.gradient_norms == pytest.approx(
            alone.report.gradient_norms, rel=5e-2 if is_rounded else 1e-3
        )
        assert outcomes[name].probe == pytest.approx(alone.probe, abs=5e-2 if is_rounded else 1e-3)
        assert outcomes[name].probe_after_load == pytest.approx(outcomes[name].probe, abs=1e-6)
        if not is_rounded:
            (learnt, probe), (expected, expected_probe) = outcomes[name].learnt, alone.learnt
            for figure in ("loss", "ratio", "weight", "divergence", "clipped_low", "clipped_high"):
                assert learnt.metrics[figure] == pytest.approx(expected.metrics[figure], abs=1e-5), figure
            assert learnt.gradient_norms == pytest.approx(expected.gradient_norms, rel=1e-5)
            assert probe == pytest.approx(expected_probe, abs=1e-5)
    assert min(alone.learnt[0].metrics[figure][0] for figure in ("clipped_low", "clipped_high", "divergence")) > 0.01
    first, second = two_ranks
    assert first[name].probe == pytest.approx(second[name].probe, abs=1e-6)
    assert second[name].weights == {}
    ours, theirs = ({n: torch.from_numpy(w) for n, w in o.weights.items()} for o in (first[name], alone))
    assert largest_difference(ours, theirs) < (1e-2 if is_rounded else 1e-5)


def load_as_rank(rank: int, port: int, folder: Path, target: Path) -> tuple[int, int, int]:
    """Return of how many numbers a model with ZeRO 3 consists, how many it holds when read, and this rank's share.

    Before that it is saved as it was loaded.
    """
    config = changed(SETTINGS, n_ranks=2, zero_stage=3)
    joined = TrainerActor(folder, config=config, rank=rank, master_port=port)
    joined.save(target)
    model = actors.trainer._load_model(joined.base_folder, config, "float32", seed=0, rank=rank)
    parameters = list(model.parameters())
    n_whole = sum(math.prod(whole_shape(parameter)) for parameter in parameters)
    n_held = sum(parameter.numel() for parameter in parameters)
    return n_whole, n_held, sum(parameter.ds_tensor.numel() for parameter in parameters)


def test_rank_with_zero_3_reads_and_writes_its_share_of_a_model_alone(wide_model_folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    saved = tmp_path / "saved"
    for n_whole, n_held, n_share in on_two_ranks(load_as_rank, wide_model_folder, saved):
        assert n_held == 0
        assert n_share == pytest.approx(n_whole / 2, abs=50)
    shards = [load_file(saved / shard_name(number, 2)) for number in (0, 1)]
    assert sorted(saved.glob("*.safetensors")) == [saved / shard_name(number, 2) for number in (0, 1)]
    assert all(sum(weight.numel() for weight in shard.values()) < 0.9 * n_whole for shard in shards)
    model, again = (AutoModelForCausalLM.from_pretrained(folder) for folder in (wide_model_folder, saved))
    expected, found = model.state_dict(), again.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)
    assert {path.name for path in wide_model_folder.iterdir()} - {path.name for path in saved.iterdir()} == {
        "model.safetensors"
    }
    check_weight_files(saved)


@pytest.mark.parametrize("name", settings_of(["zero 1", "zero 3", "zero 3, offload", "zero 3, autocast"]))
def test_probe_on_two_ranks_is_that_of_the_weights_they_hand_over_in_float32(
    wide_model_folder: Path, two_ranks: tuple[dict[str, RankOutcome], dict[str, RankOutcome]], name: str
) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(wide_model_folder)
    weights = {parameter: torch.from_numpy(array) for parameter, array in two_ranks[0][name].weights.items()}
    model.load_state_dict(weights)
    logits = model(input_ids=torch.tensor([PROBE])).logits[0]
    expected = logits.log_softmax(-1)[:-1].gather(1, torch.tensor(PROBE[1:])[:, None])[:, 0].tolist()
    for outcomes in two_ranks:
        assert outcomes[name].probe == pytest.approx([0.0, *expected], abs=1e-5)


def test_buffers_are_those_that_a_model_saves_and_no_parameters() -> None:
    module = torch.nn.Module()
    module.head, module.layer = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    module.head.weight = module.layer.weight  # a tied head is a parameter under either name
    module.register_buffer("scale", torch.ones(1))
    module.register_buffer("cache", torch.ones(1), persistent=False)
    assert _buffers(module) == {"scale": torch.ones(1)}


def test_optimise_with_an_exploding_rate_is_an_error_not_a_silent_nan(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, config=SETTINGS)
    exploding = changed(FAST, learning_rate=1e30, epochs=20, gradient_clipping=0.0)
    with pytest.raises(PlansmithError, match="optimiser step"):
        trainer.optimise(Supervised(), supervised_sequences(), exploding)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # peak 1, two warm-up steps of six: 1/2, 1, then four steps with 4/4, 3/4, 2/4, 1/4 of the way left
        (Schedule.CONSTANT, [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (Schedule.LINEAR, [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        # (1 - cos(pi * left)) / 2 at left = 1, 3/4, 1/2, 1/4; cos(3 pi / 4) = -0.70711
        # twice what is left, at most 1
        (Schedule.TRAPEZOID, [0.5, 1.0, 1.0, 1.0, 1.0, 0.5]),
        (Schedule.COSINE, [0.5, 1.0, 1.0, 0.853553, 0.5, 0.146447]),
    ],
)
def test_learning_rate_warms_up_and_then_follows_its_schedule(schedule: Schedule, expected: list[float]) -> None:
    settings = OptimiserConfig(learning_rate=1.0, batch_sequences=1, warmup_steps=2, schedule=schedule)
    assert [learning_rate_at(step, 6, settings) for step in range(6)] == pytest.approx(expected, abs=1e-6)


def test_trainer_of_a_missing_model_folder_says_where(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="nowhere"):
        TrainerActor(tmp_path / "nowhere", config=SETTINGS)


def test_ranks_wait_for_each_other_as_long_as_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[timedelta] = []
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: False)
    monkeypatch.setattr("torch.distributed.init_process_group", lambda *_, timeout, **__: waits.append(timeout))
    _join_process_group(changed(SETTINGS, rank_timeout_s=7.5), 0, 2, "")
    assert waits == [timedelta(seconds=7.5)]


def test_import_of_the_trainer_loads_no_heavy_library() -> None:
    code = (
        "import sys, actors.trainer, plansmith.learning.printed_losses, plansmith.learning.sequences; "
        "sys.exit(bool({'torch', 'deepspeed', 'ray', 'transformers', 'vllm'} & sys.modules.keys()))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environment).returncode == 0


def test_reports_survive_pickling(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, config=SETTINGS)
    report = trainer.optimise(FINAL, judged_sequences(), FAST)
    assert pickle.loads(pickle.dumps(report)) == report


@pytest.mark.parametrize(("given", "kept"), [(None, "64"), ("7", "7")], ids=["by default", "as the user says"])
def test_trainer_keeps_few_compiled_kernels(given: str | None, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    for variable in ("DS_ACCELERATOR", "LOCAL_RANK", name):
        monkeypatch.setenv(variable, "")  # put back after the test
        monkeypatch.delenv(variable)
    if given is not None:
        monkeypatch.setenv(name, given)
    _prepare_process(SETTINGS, seed=0, rank=0)
    assert os.environ[name] == kept
