"""The trainer on DeepSpeed and gloo, against bare torch, with models of a few thousand parameters."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import pickle
import queue
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import free_port

from actors.trainer import TrainerActor, TrainerSettings, _buffers, _prepare_process
from plansmith.errors import BadInputError, ConfigError, PlansmithError
from plansmith.learning.adapters import LoraSettings
from plansmith.learning.objectives import Objective
from plansmith.learning.optimisation import Hyperparameters, OptimisationReport, Schedule, learning_rate_at
from plansmith.learning.sequences import TrainingSequence, supervised_sequence

VALID, INVALID = 1, 2
SETTINGS = TrainerSettings(
    n_threads=1, row_length_tokens=32, micro_batch_rows=2, valid_token_id=VALID, invalid_token_id=INVALID
)
# eps far above float noise: AdamW divides by it where a gradient is nearly zero
FAST = Hyperparameters(learning_rate=5e-3, batch_sequences=4, weight_decay=0.1, gradient_clipping=0.5, eps=1e-5)


def make_model(folder: Path, *, hidden_size: int = 32, is_tied: bool = False) -> Path:
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
    LlamaForCausalLM(config).save_pretrained(folder)
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
            TrainingSequence(
                token_ids=(3, 5 + i, *plan, VALID if label else INVALID),
                nll_weights=(0.0,) * 6,
                score_weights=(0.0, 0.0, coefficient, coefficient, coefficient, 0.0),
                verdict_position=5,
                verdict_label=label,
            )
        )
    return sequences


def weights_of(trainer: TrainerActor) -> dict[str, torch.Tensor]:
    return trainer.engine.weights()


def largest_difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max((ours[name] - theirs[name]).abs().max().item() for name in ours)


def bare_torch_training(
    folder: Path, sequences: Sequence[TrainingSequence], phases: Sequence[Hyperparameters]
) -> dict[str, torch.Tensor]:
    """Train without packing, DeepSpeed or our loop: one sequence at a time, plain attention, torch's AdamW."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    for phase in phases:
        parameters = list(model.parameters())
        optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in parameters if p.ndim == 2], "weight_decay": phase.weight_decay},
                {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
            ],
            lr=phase.learning_rate,
            betas=phase.betas,
            eps=phase.eps,
        )
        for epoch in range(phase.epochs):
            order = list(range(len(sequences)))
            random.Random(phase.seed + epoch).shuffle(order)
            for start in range(0, len(order), phase.batch_sequences or 1):
                batch = [sequences[i] for i in order[start : start + (phase.batch_sequences or 1)]]
                n_tokens = sum(len(s) - 2 for s in batch)
                optimizer.zero_grad()
                for sequence in batch:
                    token_ids = torch.tensor([sequence.token_ids])
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
    phases = [replace(FAST, epochs=2), replace(FAST, learning_rate=1e-3, batch_sequences=5, betas=(0.8, 0.9), seed=7)]
    trainer = TrainerActor(model_folder, settings=replace(SETTINGS, zero_stage=zero_stage, offload=offload))
    reports = [trainer.optimise(Objective.SUPERVISED, sequences, phase) for phase in phases]
    assert [report.n_steps for report in reports] == [6, 3]
    expected = bare_torch_training(model_folder, sequences, phases)
    assert largest_difference(weights_of(trainer), expected) < 1e-5


def test_optimise_supervised_learns_a_tiny_batch_by_heart(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    fast = Hyperparameters(learning_rate=1e-2, batch_sequences=12, epochs=60, warmup_steps=5, weight_decay=0.0)
    report = trainer.optimise(Objective.SUPERVISED, supervised_sequences(), fast, description="by heart")
    assert report.losses[0] == pytest.approx(math.log(48), abs=0.2)  # uniform over the vocabulary
    assert report.losses[-1] < 0.05
    assert report.nll == report.losses
    assert report.score == report.bce == ()
    assert report.learning_rates[:6] == pytest.approx([2e-3, 4e-3, 6e-3, 8e-3, 1e-2, 1e-2])
    assert all(norm > 0 for norm in report.gradient_norms)


def test_optimise_does_not_depend_on_packing_and_micro_batches(model_folder: Path) -> None:
    results = []
    for row_length_tokens, micro_batch_rows in ((16, 1), (64, 3)):
        settings = replace(SETTINGS, row_length_tokens=row_length_tokens, micro_batch_rows=micro_batch_rows)
        trainer = TrainerActor(model_folder, settings=settings)
        trainer.optimise(Objective.SUPERVISED, supervised_sequences(), FAST)
        results.append(weights_of(trainer))
    assert largest_difference(*results) < 1e-5


def test_optimise_by_tokens_takes_the_batches_it_says(model_folder: Path) -> None:
    sequences = supervised_sequences()
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    report = trainer.optimise(
        Objective.SUPERVISED, sequences, replace(FAST, batch_sequences=None, batch_tokens=40, epochs=2)
    )
    n_tokens = sum(len(sequence) for sequence in sequences)
    assert (report.n_sequences, report.n_tokens, report.n_dropped) == (12, n_tokens, 0)
    assert report.n_steps >= 2 * n_tokens / 40
    assert len(report.losses) == len(report.learning_rates) == len(report.gradient_norms) == report.n_steps


def test_optimise_counts_a_sequence_longer_than_a_row_as_dropped(
    model_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sequences = [*supervised_sequences(4), supervised_sequence([3], [5] * 32)]
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    report = trainer.optimise(Objective.SUPERVISED, sequences, FAST)
    assert (report.n_sequences, report.n_dropped, report.n_dropped_tokens) == (4, 1, 33)
    assert report.n_tokens == sum(len(sequence) for sequence in sequences[:4])
    assert "1 of 5 sequences, 33 tokens in all, are longer than 32 tokens" in caplog.text
    with pytest.raises(BadInputError, match="no sequence fits"):
        trainer.optimise(Objective.SUPERVISED, sequences[4:], FAST)


def test_optimise_leaves_out_what_is_longer_than_the_longest_allowed(model_folder: Path) -> None:
    sequences = [supervised_sequence([3], [5] * n) for n in (4, 15, 16, 20)]
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    report = trainer.optimise(Objective.SUPERVISED, sequences, FAST, max_length_tokens=16)
    # 5 and 16 tokens stay, 17 and 21 go
    assert (report.n_sequences, report.n_tokens, report.n_dropped, report.n_dropped_tokens) == (2, 21, 2, 38)
    with pytest.raises(BadInputError, match="at most 4 tokens"):
        trainer.optimise(Objective.SUPERVISED, sequences, FAST, max_length_tokens=4)


def test_optimise_with_a_limit_above_a_row_leaves_out_only_what_exceeds_the_row(model_folder: Path) -> None:
    sequences = [supervised_sequence([3], [5] * n) for n in (31, 32)]
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    report = trainer.optimise(Objective.SUPERVISED, sequences, FAST, max_length_tokens=1000)
    assert (report.n_sequences, report.n_dropped) == (1, 1)


def test_optimise_by_sequences_takes_as_many_as_it_says(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    by_sequences = replace(FAST, batch_sequences=5, epochs=2)
    report = trainer.optimise(Objective.SUPERVISED, supervised_sequences(12), by_sequences)
    assert report.n_steps == 6  # 5 + 5 + 2, twice


def test_optimise_final_lowers_invalid_plans_raises_valid_ones_and_learns_the_verdict(model_folder: Path) -> None:
    sequences = judged_sequences()
    trainer = TrainerActor(model_folder, settings=SETTINGS)

    def plan_logprob(sequence: TrainingSequence) -> float:
        return sum(trainer.logprobs(sequence.token_ids)[2:5])

    before = [plan_logprob(sequence) for sequence in sequences]
    v_hat_before = trainer.verdict_probabilities(sequences)
    report = trainer.optimise(Objective.FINAL, sequences, replace(FAST, epochs=40))
    after = [plan_logprob(sequence) for sequence in sequences]
    assert all(abs(v_hat - 0.5) < 0.2 for v_hat in v_hat_before if v_hat is not None)
    assert [a > b for a, b in zip(after, before, strict=True)] == [False, True, False, True]
    assert report.bce[0] == pytest.approx(math.log(2), abs=0.1)
    assert report.bce[-1] < 0.1
    assert report.clamped_share[-1] == 0.5  # six of twelve plan tokens are bad, and all are at the floor
    invalid_low, valid_high, *_ = trainer.verdict_probabilities(sequences)
    assert invalid_low is not None and valid_high is not None
    assert invalid_low < 0.1 < 0.9 < valid_high


def test_optimise_reasoning_pushes_the_bad_step_down_and_the_expected_one_up(model_folder: Path) -> None:
    bad = TrainingSequence((3, 5, 20, 21), (0.0,) * 4, (0.0, 0.0, 2.0, 2.0))
    expected = supervised_sequence([3, 5], [30, 31])
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    before = [sum(trainer.logprobs(s.token_ids)[2:]) for s in (bad, expected)]
    report = trainer.optimise(Objective.REASONING, [bad, expected], replace(FAST, epochs=15))
    after = [sum(trainer.logprobs(s.token_ids)[2:]) for s in (bad, expected)]
    assert after[0] < before[0] and after[1] > before[1] + 1
    assert report.nll[-1] < report.nll[0]
    assert report.losses[0] == pytest.approx(report.nll[0] + report.score[0])


def test_verdict_probabilities_are_none_without_a_verdict_and_those_of_the_model_with_one(model_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    sequences = judged_sequences()
    sequences.insert(1, supervised_sequence([3], [4, 5]))
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    probabilities = trainer.verdict_probabilities(sequences)
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    logits = model(input_ids=torch.tensor([sequences[3].token_ids])).logits[0, 4]
    assert probabilities[1] is None
    assert probabilities[3] == pytest.approx(torch.sigmoid(logits[VALID] - logits[INVALID]).item(), abs=1e-6)
    assert trainer.verdict_probabilities([]) == []


def test_logprobs_equal_those_of_transformers(model_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    token_ids = [3, 9, 27, 33, 1] * 10  # longer than a row: the probe is never cut
    logits = AutoModelForCausalLM.from_pretrained(model_folder)(input_ids=torch.tensor([token_ids])).logits[0]
    expected = logits.log_softmax(-1)[:-1].gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0].tolist()
    assert TrainerActor(model_folder, settings=SETTINGS).logprobs(token_ids) == pytest.approx(
        [0.0, *expected], abs=1e-5
    )


@pytest.mark.parametrize("zero_stage", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_save_and_load_give_back_the_same_bits(model_folder: Path, tmp_path: Path, dtype: str, zero_stage: int) -> None:
    from transformers import AutoModelForCausalLM

    trainer = TrainerActor(model_folder, settings=replace(SETTINGS, dtype=dtype, zero_stage=zero_stage))
    trainer.optimise(Objective.SUPERVISED, supervised_sequences(), FAST)
    trained, folder = weights_of(trainer), tmp_path / "policy"
    folder.mkdir()  # an older policy is replaced
    (folder / "old").touch()
    trainer.save(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert json.loads((folder / "tokenizer_config.json").read_text()) == {"travels": True}
    assert not (folder / "old").exists()
    assert "plansmith" not in (folder / "config.json").read_text()
    on_disk = AutoModelForCausalLM.from_pretrained(folder)
    assert on_disk.dtype is getattr(torch, dtype)
    assert largest_difference(dict(on_disk.state_dict()), trained) == 0

    trainer.optimise(Objective.SUPERVISED, supervised_sequences(), FAST)
    assert largest_difference(weights_of(trainer), trained) > 0
    trainer.load(folder)
    assert largest_difference(weights_of(trainer), trained) == 0


@pytest.mark.parametrize("is_tied", [False, True], ids=["head of its own", "tied head"])
def test_save_with_a_head_tied_to_the_embeddings_keeps_them_one(tmp_path: Path, is_tied: bool) -> None:
    from transformers import AutoModelForCausalLM

    folder = make_model(tmp_path / "model", is_tied=is_tied)
    trainer = TrainerActor(folder, settings=replace(SETTINGS, zero_stage=3))
    trainer.optimise(Objective.SUPERVISED, supervised_sequences(), FAST)
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
    TrainerActor(folder, settings=SETTINGS).save(tmp_path / "saved")
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
    trainer = TrainerActor(model_folder, settings=replace(SETTINGS, zero_stage=zero_stage))
    trainer.save(tmp_path / "start")
    trainer.optimise(Objective.SUPERVISED, supervised_sequences(), FAST)
    once = weights_of(trainer)
    trainer.optimise(Objective.SUPERVISED, supervised_sequences(), FAST)
    trainer.load(tmp_path / "start")
    trainer.optimise(Objective.SUPERVISED, supervised_sequences(), FAST)
    assert largest_difference(weights_of(trainer), once) == 0


def test_load_of_another_architecture_is_refused(model_folder: Path, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model_folder)
    config.vocab_size = 50
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    with pytest.raises(BadInputError, match="does not fit"):
        trainer.load(tmp_path)


def test_optimise_in_bfloat16_keeps_small_updates_in_float32(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, settings=replace(SETTINGS, dtype="bfloat16"))
    fast = Hyperparameters(learning_rate=1e-2, batch_sequences=12, epochs=60, warmup_steps=5, weight_decay=0.0)
    report = trainer.optimise(Objective.SUPERVISED, supervised_sequences(), fast)
    assert {parameter.dtype for parameter in trainer.engine.module.parameters()} == {torch.bfloat16}
    assert report.losses[-1] < 0.1


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_optimise_with_checkpointed_activations_gives_the_same_weights(model_folder: Path, zero_stage: int) -> None:
    results = []
    for is_checkpointing in (False, True):
        settings = replace(SETTINGS, zero_stage=zero_stage, is_checkpointing_activations=is_checkpointing)
        trainer = TrainerActor(model_folder, settings=settings)
        assert trainer.engine.module.is_gradient_checkpointing is is_checkpointing
        trainer.optimise(Objective.SUPERVISED, supervised_sequences(), FAST)
        results.append(weights_of(trainer))
    assert largest_difference(*results) < 1e-6


def muon_reference(
    folder: Path, sequences: Sequence[TrainingSequence], hyperparameters: Hyperparameters
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
            token_ids = torch.tensor([sequence.token_ids])
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
    hyperparameters = replace(FAST, batch_sequences=12, epochs=3, gradient_clipping=0.2)
    trainer = TrainerActor(model_folder, settings=replace(SETTINGS, optimizer="muon"))
    start = weights_of(trainer)
    report = trainer.optimise(Objective.SUPERVISED, sequences, hyperparameters)
    expected = muon_reference(model_folder, sequences, hyperparameters)
    assert all(norm > 0.2 for norm in report.gradient_norms)  # clipping was at work
    for name, tensor in weights_of(trainer).items():
        ours, theirs = tensor - start[name], expected[name] - start[name]
        # Newton-Schulz runs in bfloat16 and magnifies its rounding in another order of sums where singular values are
        # small; run in float32 the two agree to 0.4%
        tolerance = 0.15 if "proj" in name else 1e-2
        assert (ours - theirs).norm() < tolerance * theirs.norm(), name


def test_optimise_with_muon_in_autocast_keeps_the_gradient_in_float32(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, settings=replace(SETTINGS, optimizer="muon", is_autocast=True))
    one_step = replace(FAST, batch_sequences=12, epochs=1, betas=(0.0, 0.999))  # the first moment is the gradient
    trainer.optimise(Objective.SUPERVISED, supervised_sequences(), one_step)
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
    monkeypatch.setattr("deepspeed.runtime.zero.muon.original_muon.ns_compute_dtype", None)  # put back afterwards
    trainer = TrainerActor(model_folder, settings=replace(SETTINGS, dtype=dtype, is_autocast=asked))
    assert trainer.settings.is_autocast == is_autocast
    assert bool(trainer.engine.engine.torch_autocast_enabled()) == is_autocast


def test_muon_iterates_in_float32_where_the_cpu_has_no_bfloat16(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepspeed.runtime.zero.muon import original_muon

    monkeypatch.setattr(original_muon, "ns_compute_dtype", lambda *_: torch.bfloat16)
    for capabilities, expected in (({"amx_bf16": True}, torch.bfloat16), ({"avx2": True}, torch.float32)):
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda found=capabilities: found)
        TrainerActor(model_folder, settings=replace(SETTINGS, optimizer="muon"))
        assert original_muon.ns_compute_dtype("standard") == expected
        assert original_muon.zeropower_via_newtonschulz5(torch.eye(4), steps=1).dtype == expected


def test_optimise_with_muon_learns_a_tiny_batch_by_heart(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, settings=replace(SETTINGS, optimizer="muon"))
    fast = Hyperparameters(learning_rate=1e-2, batch_sequences=12, epochs=40, warmup_steps=5, weight_decay=0.0)
    assert trainer.optimise(Objective.SUPERVISED, supervised_sequences(), fast).losses[-1] < 0.05


LORA = LoraSettings(rank=4, alpha=8.0)
TWO_RANK_SETTINGS = {
    "zero 1": SETTINGS,
    "zero 2": replace(SETTINGS, zero_stage=2),
    "zero 3": replace(SETTINGS, zero_stage=3),
    "zero 3, checkpointed": replace(SETTINGS, zero_stage=3, is_checkpointing_activations=True),
    "zero 3, offload": replace(SETTINGS, zero_stage=3, offload="all"),
    "zero 3, autocast": replace(SETTINGS, zero_stage=3, is_autocast=True),
    "muon": replace(SETTINGS, optimizer="muon", micro_batch_rows=1),
    "lora": replace(SETTINGS, lora=LORA),
    "lora, zero 3, bfloat16": replace(SETTINGS, lora=LORA, zero_stage=3, dtype="bfloat16"),
    "lora, nf4": replace(SETTINGS, lora=LORA, zero_stage=2, quantisation="nf4"),
}
PROBE = (3, 9, 27, 33, 1)


@dataclass(frozen=True)
class RankOutcome:
    """What one rank saw: v_hat before, its report, the weights (rank 0 alone), the probe when trained and reloaded."""

    v_hats: list[float | None]
    report: OptimisationReport
    weights: dict[str, Any]
    probe: list[float]
    probe_after_load: list[float]


def train_and_reload(trainer: TrainerActor, folder: Path) -> RankOutcome:
    """Train, save, train on, and load what was saved.

    Muon iterates in float32: rounded to bfloat16, one rank and two could not be compared closely.
    """
    judged = [*supervised_sequences(1), *judged_sequences()]
    # of one plan alone there is nothing left for a second rank to judge
    v_hats = trainer.verdict_probabilities(judged) + trainer.verdict_probabilities(judged[:2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deepspeed.runtime.zero.muon.original_muon.ns_compute_dtype", lambda *_: torch.float32)
        report = trainer.optimise(Objective.SUPERVISED, supervised_sequences(11), FAST)
    weights = {name: tensor.float().numpy() for name, tensor in weights_of(trainer).items()}
    probe = trainer.logprobs(PROBE)
    trainer.save(folder)
    trainer.optimise(Objective.SUPERVISED, supervised_sequences(5), FAST)
    assert trainer.logprobs(PROBE) != probe
    trainer.load(folder)
    return RankOutcome(v_hats, report, weights, probe, trainer.logprobs(PROBE))


def _train_as_rank(rank: int, port: int, folder: Path, target: Path, results: Any) -> None:
    """Train with each setting in turn and send what came of it; runs in a process of its own."""
    outcomes = {}
    for name, settings in TWO_RANK_SETTINGS.items():
        trainer = TrainerActor(folder, settings=settings, rank=rank, world_size=2, master_port=port)
        outcomes[name] = train_and_reload(trainer, target / name)
    results.put((rank, pickle.dumps(outcomes)))


@pytest.fixture(scope="module")
def two_ranks(
    wide_model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, RankOutcome], dict[str, RankOutcome]]:
    """Return the outcomes of both ranks by setting."""
    port = free_port()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["deepspeed", "peft", "transformers.models.llama.modeling_llama"])  # once for both
    results, target = processes.Queue(), tmp_path_factory.mktemp("two-ranks")
    ranks = [
        processes.Process(target=_train_as_rank, args=(rank, port, wide_model_folder, target, results))
        for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    received: dict[int, bytes] = {}
    while len(received) < len(ranks):
        with contextlib.suppress(queue.Empty):
            received |= [results.get(timeout=1.0)]
        assert {process.exitcode for process in ranks} <= {None, 0}, "a rank died; its own words are above"
    for process in ranks:
        process.join()
    return pickle.loads(received[0]), pickle.loads(received[1])


@pytest.mark.parametrize("name", TWO_RANK_SETTINGS)
def test_optimise_on_two_ranks_equals_one_rank_on_the_same_batches(
    wide_model_folder: Path,
    tmp_path: Path,
    two_ranks: tuple[dict[str, RankOutcome], dict[str, RankOutcome]],
    name: str,
) -> None:
    settings = TWO_RANK_SETTINGS[name]
    is_rounded = settings.is_computing_in_bfloat16
    alone = train_and_reload(TrainerActor(wide_model_folder, settings=settings), tmp_path / "policy")
    for outcomes in two_ranks:
        assert [v_hat is None for v_hat in outcomes[name].v_hats] == [True, *[False] * 4, True, False]
        assert outcomes[name].v_hats == pytest.approx(alone.v_hats, abs=1e-2 if is_rounded else 1e-5)
        assert outcomes[name].report.losses == pytest.approx(alone.report.losses, abs=2e-2 if is_rounded else 1e-4)
        assert outcomes[name].report.gradient_norms == pytest.approx(
            alone.report.gradient_norms, rel=5e-2 if is_rounded else 1e-3
        )
        assert outcomes[name].probe == pytest.approx(alone.probe, abs=5e-2 if is_rounded else 1e-3)
        assert outcomes[name].probe_after_load == pytest.approx(outcomes[name].probe, abs=1e-6)
    first, second = two_ranks
    assert first[name].probe == pytest.approx(second[name].probe, abs=1e-6)
    assert second[name].weights == {}
    ours, theirs = ({n: torch.from_numpy(w) for n, w in o.weights.items()} for o in (first[name], alone))
    assert largest_difference(ours, theirs) < (1e-2 if is_rounded else 1e-5)


@pytest.mark.parametrize("name", ["zero 1", "zero 3", "zero 3, offload", "zero 3, autocast"])
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
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    exploding = replace(FAST, learning_rate=1e30, epochs=20, gradient_clipping=0.0)
    with pytest.raises(PlansmithError, match="optimiser step"):
        trainer.optimise(Objective.SUPERVISED, supervised_sequences(), exploding)


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
    hyperparameters = Hyperparameters(learning_rate=1.0, warmup_steps=2, schedule=schedule)
    assert [learning_rate_at(step, 6, hyperparameters) for step in range(6)] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_tokens": 100},
        {"batch_sequences": None},
        {"batch_sequences": 0},
        {"learning_rate": 0.0},
        {"epochs": 0},
        {"warmup_steps": -1},
    ],
)
def test_hyperparameters_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        Hyperparameters(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"zero_stage": 0},
        {"dtype": "float16"},
        {"device": "tpu"},
        {"optimizer": "sgd"},
        {"offload": "nvme"},
        {"quantisation": "int8"},
        {"optimizer": "muon", "zero_stage": 2},
        {"optimizer": "muon", "offload": "optimizer"},
        {"optimizer": "muon", "lora": LORA},
        {"offload": "all", "zero_stage": 2},
        {"quantisation": "nf4"},
        {"quantisation": "nf4", "lora": LORA, "zero_stage": 3},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TrainerSettings(**changes)


def test_trainer_of_a_missing_model_folder_says_where(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="nowhere"):
        TrainerActor(tmp_path / "nowhere", settings=SETTINGS)


def test_final_without_verdict_tokens_is_refused(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, settings=TrainerSettings(n_threads=1))
    with pytest.raises(BadInputError, match="verdict tokens"):
        trainer.optimise(Objective.FINAL, judged_sequences(), FAST)


def test_import_of_the_trainer_loads_no_heavy_library() -> None:
    code = (
        "import sys, actors.trainer, plansmith.learning.printed_losses, plansmith.learning.sequences; "
        "sys.exit(bool({'torch', 'deepspeed', 'ray', 'transformers', 'vllm'} & sys.modules.keys()))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environment).returncode == 0


def test_reports_and_sequences_survive_pickling(model_folder: Path) -> None:
    trainer = TrainerActor(model_folder, settings=SETTINGS)
    report = trainer.optimise(Objective.FINAL, judged_sequences(), FAST)
    assert pickle.loads(pickle.dumps(report)) == report
    assert pickle.loads(pickle.dumps(judged_sequences())) == judged_sequences()


@pytest.mark.parametrize(("given", "kept"), [(None, "64"), ("7", "7")], ids=["by default", "as the user says"])
def test_trainer_keeps_few_compiled_kernels(given: str | None, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    for variable in ("DS_ACCELERATOR", "LOCAL_RANK", name):
        monkeypatch.setenv(variable, "")  # put back after the test
        monkeypatch.delenv(variable)
    if given is not None:
        monkeypatch.setenv(name, given)
    _prepare_process(TrainerSettings(n_threads=1), rank=0)
    assert os.environ[name] == kept
