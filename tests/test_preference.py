"""DPO by hand, against TRL's on the same tensors, and however pairs lie in rows, micro-batches, ranks and files."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from ranks import on_two_ranks
from small_policies import LORA, load_policy, moved, trained

from actors.trainer import TrainerActor
from plansmith.config.training import OptimiserConfig, PreferenceConfig, TrainerConfig
from plansmith.data.rows import SequenceRow
from plansmith.data.tables import write_table
from plansmith.errors import BadInputError
from plansmith.learning.losses import token_logprobs
from plansmith.learning.objectives.preference import PairLogprobs, Preference, response_logprobs
from plansmith.learning.optimisation import OptimisationPlan, micro_batches, plan_optimisation
from plansmith.learning.packed_attention import register_packed_attention
from plansmith.learning.packing import build_batch
from plansmith.learning.sequence_files import StoredSequences, lengths_of, unit_names_of
from plansmith.learning.sequences import (
    NLL_WEIGHT,
    PAIR,
    PREFERENCE,
    REFERENCE_LOGPROB,
    TrainingSequence,
    preference_sequences,
    with_reference,
)
from plansmith.learning.token_reading import reading_head

END = 1
IDS = [
    ([3, 4], [5, 6, 7, 8, END], [5, 6, 9, 8, END]),
    ([10], [11, END], [12, 13, 14, END]),
    ([13, 14, 15], [16, 17, 18, END], [16, END]),
]
"""Prompt, chosen and rejected response of three pairs of 14, 8 and 12 tokens."""
PAPER = PreferenceConfig(beta=0.5)
ANCHORED = PreferenceConfig(beta=0.3, likelihood=0.7)
STEP = 0.03
"""Noise of a policy that has moved."""


def pairs_of(logprobs: Sequence[tuple[float, float]] | None = None) -> list[TrainingSequence]:
    """Return the halves of all pairs, chosen before rejected."""
    references = logprobs or [None] * len(IDS)
    return [
        half
        for number, (ids, reference) in enumerate(zip(IDS, references, strict=True))
        for half in preference_sequences(*ids, unit=f"pair {number}", reference_logprobs=reference)
    ]


# --- by hand


def test_preference_of_two_tokens_gives_the_hand_worked_numbers_and_gradient() -> None:
    chosen, rejected = preference_sequences(
        [0], [1, 2], [2, 2], unit="a", reference_logprobs=(math.log(1 / 4), math.log(1 / 8))
    )
    rows = [[0.25, 0.5, 0.25], [0.5, 0.25, 0.25], [1 / 3] * 3, [0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [1 / 3] * 3]
    logits = torch.tensor([rows]).log().requires_grad_()
    objective = Preference(PreferenceConfig(beta=2.0, likelihood=0.5))
    batch = build_batch([chosen, rejected], [(0, 1)], objective.columns)
    loss, figures = objective.loss(logits, batch, counts_of([chosen, rejected]))
    # log f: 1/2 * 1/4 = 1/8 for chosen, 1/4 * 1/8 = 1/32 for rejected; Delta = log 4 - log 2 = log 2, margin log 4
    assert {name: figure.item() for name, figure in figures.items()} == pytest.approx(
        {
            "preference": -math.log(4 / 5),  # sigmoid(log 4) = 4 / 5
            "nll": 1.5 * math.log(2),  # -log 1/8 over two tokens
            "loss": -math.log(4 / 5) + 0.75 * math.log(2),
            "margin": math.log(4),
            "accuracy": 1.0,
            "chosen_logprob": math.log(1 / 8),
            "rejected_logprob": math.log(1 / 32),
        }
    )
    (gradient,) = torch.autograd.grad(loss, logits)
    # dL / dDelta = -2 * (1 - 4/5) = -0.4; lambda adds -0.5 / 2 to each chosen token; times onehot - p
    expected = torch.zeros(6, 3)
    expected[0] = -0.65 * torch.tensor([-0.25, 0.5, -0.25])
    expected[1] = -0.65 * torch.tensor([-0.5, -0.25, 0.75])
    expected[3] = 0.4 * torch.tensor([-0.5, -0.25, 0.75])
    expected[4] = 0.4 * torch.tensor([-0.125, -0.75, 0.875])
    assert torch.allclose(gradient[0], expected, atol=1e-6)


def counts_of(sequences: Sequence[TrainingSequence]) -> dict[str, int]:
    """Return how many numbers of each column are not 0."""
    zeros = np.zeros(1)
    return {
        name: sum(int(np.count_nonzero(sequence.columns.get(name, zeros))) for sequence in sequences)
        for name in Preference.columns
    }


def test_preference_sequences_mark_responses_with_their_end_and_put_the_reference_at_it() -> None:
    chosen, rejected = preference_sequences([5, 6], [7, END], [8, 9, END], unit="a", reference_logprobs=(-1.5, -2.5))
    assert (chosen.unit, chosen.token_ids.tolist(), rejected.token_ids.tolist()) == (
        "a", [5, 6, 7, END], [5, 6, 8, 9, END],
    )  # fmt: skip
    assert {name: column.tolist() for name, column in chosen.columns.items()} == {
        NLL_WEIGHT: [0, 0, 1, 1],
        PREFERENCE: [0, 0, 1, 1],
        PAIR: [0, 0, 0, 1],
        REFERENCE_LOGPROB: [0, 0, 0, -1.5],
    }
    assert {name: column.tolist() for name, column in rejected.columns.items()} == {
        PREFERENCE: [0, 0, -1, -1, -1],
        REFERENCE_LOGPROB: [0, 0, 0, 0, -2.5],
    }


@pytest.mark.parametrize(
    ("ids", "unit", "logprobs", "message"),
    [
        (([1], [2], [3]), "", None, "has a name"),
        (([1], [2], [2]), "a", None, "two responses that differ"),
        (([], [2], [3]), "a", None, "both need"),
        (([1], [2], []), "a", None, "both need"),
        (([1], [2], [3]), "a", (-1.0, 0.5), "at most 0, got 0.5"),
        (([1], [2], [3]), "a", (math.nan, -1.0), "NaN"),
        (([1], [2], [3]), "a", (-1.0, -math.inf), "infinity"),
    ],
)
def test_preference_pair_that_is_none_is_refused(
    ids: tuple[list[int], ...], unit: str, logprobs: tuple[float, float] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        preference_sequences(*ids, unit=unit, reference_logprobs=logprobs)


@pytest.mark.parametrize("settings", [{"beta": 0.0}, {"beta": -0.1}, {"beta": math.nan}, {"likelihood": -0.1}], ids=str)
def test_preference_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=f"{next(iter(settings))}\n.*greater than"):
        PreferenceConfig(**settings)


def test_preference_settings_are_the_papers_by_default() -> None:
    assert PreferenceConfig() == PreferenceConfig(beta=0.1, likelihood=0.0)


def test_preference_without_anything_to_learn_is_zero_and_differentiable() -> None:
    sequences = pairs_of([(-1.0, -1.0)] * 3)
    batch = build_batch(sequences, [(0, 1), (2, 3)], Preference.columns).without_loss()
    logits = torch.zeros(2, 14, 20, requires_grad=True)
    loss, figures = Preference(ANCHORED).loss(logits, batch, counts_of(sequences))
    loss.backward()
    assert {figure.item() for figure in figures.values()} == {0.0}
    assert logits.grad is not None and logits.grad.abs().sum() == 0


@pytest.mark.parametrize(("positions", "message"), [((0, 1, 2), "2 chosen and 1 rejected"), ((1,), "0 chosen and 1")])
def test_half_a_pair_is_refused(positions: tuple[int, ...], message: str) -> None:
    sequences = pairs_of([(-1.0, -1.0)] * 3)
    batch = build_batch(sequences, [positions], Preference.columns)
    with pytest.raises(ValueError, match=message):
        Preference(PAPER).loss(torch.zeros(*batch.token_ids.shape, 20), batch, counts_of(sequences))


def test_pairs_that_no_reference_has_read_are_refused() -> None:
    batch = build_batch(pairs_of(), [(0, 1)], Preference.columns)
    with pytest.raises(ValueError, match="3 pairs, 0 log-probabilities of the reference"):
        Preference(PAPER).loss(torch.zeros(*batch.token_ids.shape, 20), batch, counts_of(pairs_of()))


# --- against TRL


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    path = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def tuned(folder: Path, attention: str, *, is_adapter: bool) -> Any:
    """Return the model of a folder, or an adapter on it that is none of its own accord, as one after SFT."""
    model = load_policy(folder, attention, is_adapter=is_adapter)
    return moved(model, seed=1, by=STEP) if is_adapter else model


def read(model: Any, sequences: Sequence[TrainingSequence]) -> list[NDArray[np.float32]]:
    """Return log p of each token, as the trainer reads it, each sequence alone."""
    with torch.no_grad():
        batches = [build_batch(sequences, [(position,)], ()) for position in range(len(sequences))]
        return [token_logprobs(model(**b.model_inputs()).logits, b.token_ids)[0].numpy() for b in batches]


def read_reference(model: Any) -> list[TrainingSequence]:
    """Return the pairs with the log-probabilities of a model as their reference."""
    sequences = pairs_of()
    logprobs = response_logprobs(read(model, sequences), sequences)
    return [with_reference(half, logprob) for half, logprob in zip(sequences, logprobs, strict=True)]


def plan_of(sequences: Any, row_length: int, n_ranks: int = 1) -> OptimisationPlan:
    """Return one optimiser batch of everything that fits into rows of a length."""
    settings = OptimiserConfig(learning_rate=1.0, batch_sequences=100, max_dropped_share=0.7)
    return plan_optimisation(
        lengths_of(sequences).tolist(), settings, seed=0, row_length_tokens=row_length,
        n_ranks=n_ranks, unit_names=unit_names_of(sequences),
    )  # fmt: skip


Result = tuple[dict[str, float], list[torch.Tensor]]


def our_result(
    model: Any, sequences: Any, settings: PreferenceConfig, *, row_length: int = 14, n_ranks: int = 1,
    is_read: bool = False,
) -> Result:  # fmt: skip
    """Return figures and gradient of an optimiser batch, added up over the micro-batches of all ranks.

    With ``is_read`` the head answers what is asked, and no logits are whole.
    """
    objective = Preference(settings)
    (rows,) = plan_of(sequences, row_length, n_ranks).batches
    batches = [
        batch
        for rank in range(n_ranks)
        for batch in micro_batches(sequences, rows, objective.columns, rank=rank, world_size=n_ranks)
    ]
    counts = {name: sum(int(batch.columns[name].count_nonzero()) for batch in batches) for name in objective.columns}
    figures: dict[str, float] = {}
    gradient = [torch.zeros_like(parameter) for parameter in trained(model)]
    for batch in batches:
        if is_read:
            with reading_head(model, batch, objective.question) as read_output:
                tokens = read_output(model(**batch.model_inputs()))
            loss, found = objective.loss_of(tokens, batch, counts)
        else:
            loss, found = objective.loss(model(**batch.model_inputs()).logits, batch, counts)
        figures = {name: figures.get(name, 0.0) + figure.item() for name, figure in found.items()}
        gradient = [g + d for g, d in zip(gradient, torch.autograd.grad(loss, trained(model)), strict=True)]
    return figures, gradient


def trl_trainer(folder: Path, output: Path, settings: PreferenceConfig, *, is_adapter: bool) -> Any:
    """Return TRL's trainer, whose reference is the policy as it is now: with an adapter, a copy of that adapter."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import DPOConfig, DPOTrainer

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(20)}, unk_token="w0"))
    policy = tuned(folder, "eager", is_adapter=is_adapter)
    return DPOTrainer(
        model=policy,
        ref_model=None if is_adapter else copy.deepcopy(policy),
        args=DPOConfig(
            output_dir=str(output),
            use_cpu=True,
            bf16=False,
            report_to=[],
            max_length=None,
            gradient_checkpointing=False,
            disable_tqdm=True,
            beta=settings.beta,
            loss_type=["sigmoid", "sft"],
            loss_weights=[1.0, settings.likelihood],
        ),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w1"),
        train_dataset=Dataset.from_list([{"prompt": "w3", "chosen": "w4", "rejected": "w5"}]),  # it asks for one
    )


def trl_result(trainer: Any) -> Result:
    """Return loss, figures and gradient of TRL on all pairs in one padded batch."""
    names = ("prompt_ids", "chosen_ids", "rejected_ids")
    batch = trainer.data_collator([dict(zip(names, ids, strict=True)) for ids in IDS])
    loss = trainer.compute_loss(trainer.model.train(), batch)  # there is no dropout
    measured = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    figures = {
        "loss": loss.item(),
        "margin": measured["rewards/margins"],
        "accuracy": measured["rewards/accuracies"],
        "chosen_logprob": measured["logps/chosen"],
        "rejected_logprob": measured["logps/rejected"],
    }
    return figures, list(torch.autograd.grad(loss, trained(trainer.model)))


def assert_close(ours: Result, theirs: Result) -> None:
    """Check the figures that both have, and the gradient, to 1e-5."""
    common = ours[0].keys() & theirs[0].keys()
    assert {name: ours[0][name] for name in common} == pytest.approx(
        {name: theirs[0][name] for name in common}, abs=1e-5
    )
    assert all(torch.allclose(our, their, atol=1e-5) for our, their in zip(ours[1], theirs[1], strict=True))


LAYOUTS = {
    "a row a pair": {},
    "one row": {"row_length": 40},
    "two ranks, one with a row without loss": {"n_ranks": 2},
}


@pytest.mark.parametrize("is_adapter", [False, True], ids=["all weights", "adapter"])
@pytest.mark.parametrize("settings", [PAPER, ANCHORED], ids=["paper", "with likelihood"])
def test_preference_and_its_gradient_equal_trls_however_pairs_are_packed_and_shared_out(
    folder: Path, tmp_path: Path, settings: PreferenceConfig, is_adapter: bool
) -> None:
    ours = tuned(folder, register_packed_attention(), is_adapter=is_adapter)
    trainer = trl_trainer(folder, tmp_path, settings, is_adapter=is_adapter)
    sequences = read_reference(ours)
    moved(ours, seed=2, by=STEP)
    moved(trainer.model, seed=2, by=STEP)
    theirs = trl_result(trainer)
    assert len(theirs[1]) == len(trained(ours)) == (28 if is_adapter else 21)
    assert abs(theirs[0]["margin"]) > 0.01 and max(g.abs().max() for g in theirs[1]) > 0.01
    for layout in LAYOUTS.values():
        assert_close(our_result(ours, sequences, settings, **layout), theirs)


@pytest.mark.parametrize("is_adapter", [False, True], ids=["all weights", "adapter"])
def test_preference_of_the_reference_itself_is_ln_2_and_prefers_nothing(folder: Path, is_adapter: bool) -> None:
    model = tuned(folder, register_packed_attention(), is_adapter=is_adapter)
    sequences = read_reference(model)
    figures, _ = our_result(model, sequences, PAPER)
    assert (figures["loss"], figures["margin"]) == pytest.approx((math.log(2), 0.0), abs=1e-5)
    given = [float(half.columns[REFERENCE_LOGPROB][-1]) for half in sequences]
    assert np.float32(response_logprobs(read(model, sequences), sequences)).tolist() == given


# --- through DeepSpeed


ONE_STEP = OptimiserConfig(
    learning_rate=1.0, eps=1.0, batch_sequences=100, weight_decay=0.0, gradient_clipping=0.0, schedule="constant"
)
"""AdamW's first step is then g / (|g| + 1), from which the gradient can be read."""
CASES = {
    f"{name}, {what}": (settings, is_adapter)
    for name, settings in (("paper", PAPER), ("with likelihood", ANCHORED))
    for what, is_adapter in (("all weights", False), ("adapter", True))
}


def deepspeed_results(
    rank: int, port: int, folder: Path, weights: dict[bool, tuple[dict[str, torch.Tensor], ...]], n_ranks: int = 2
) -> dict[str, tuple[dict[str, float], dict[str, torch.Tensor]]]:
    """Return figures and gradient of every case, by the names of the weights; the second rank has no gradient.

    The pairs are read by the trainer itself with the first of the weights, and learnt from with the second.
    """
    results = {}
    for is_adapter, (before, after) in weights.items():
        config = TrainerConfig(
            n_threads=1, row_length_tokens=16, optimizer="adamw", is_autocast=False,
            lora=LORA if is_adapter else None, n_ranks=n_ranks,
        )  # fmt: skip
        trainer = TrainerActor(folder, config=config, rank=rank, master_port=port)
        trainer.engine.set_weights(before)
        logprobs = response_logprobs(trainer.token_logprobs(pairs_of()), pairs_of())
        sequences = [with_reference(half, logprob) for half, logprob in zip(pairs_of(), logprobs, strict=True)]
        for name, (settings, is_of_adapter) in CASES.items():
            if is_of_adapter == is_adapter:
                trainer.engine.set_weights(after)
                report = trainer.optimise(Preference(settings), sequences, ONE_STEP)
                steps = {key: after[key] - weight for key, weight in trainer.engine.weights().items()}
                figures = {key: numbers[0] for key, numbers in report.metrics.items()}
                results[name] = figures, {key: step / (1 - step.abs()) for key, step in steps.items()}
    return results


def test_preference_step_of_one_rank_and_of_two_has_trls_loss_and_gradient(folder: Path, tmp_path: Path) -> None:
    weights, expected = {}, {}
    for is_adapter in (False, True):
        model = tuned(folder, "eager", is_adapter=is_adapter)
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        before = {name: p.detach().clone() for name, p in named}
        moved(model, seed=2, by=STEP)
        weights[is_adapter] = before, {name: p.detach().clone() for name, p in named}
        for name, (settings, is_of_adapter) in CASES.items():
            if is_of_adapter == is_adapter:
                trainer = trl_trainer(folder, tmp_path, settings, is_adapter=is_adapter)
                moved(trainer.model, seed=2, by=STEP)
                expected[name] = [key for key, _ in named], trl_result(trainer)
    alone = deepspeed_results(0, 0, folder, weights, 1)
    first, second = on_two_ranks(deepspeed_results, folder, weights)
    for name, (keys, theirs) in expected.items():
        for figures, gradient in (alone[name], first[name]):
            assert_close((figures, [gradient[key] for key in keys]), theirs)
        assert second[name] == (first[name][0], {})


# --- however they lie


@pytest.fixture(scope="module")
def read_by_another(folder: Path) -> tuple[Any, list[TrainingSequence], Result]:
    """Return a policy, pairs that it has moved away from, and their figures and gradient."""
    model = tuned(folder, register_packed_attention(), is_adapter=False)
    sequences = read_reference(model)
    moved(model, seed=2, by=STEP)
    return model, sequences, our_result(model, sequences, ANCHORED)


@pytest.mark.parametrize("seed", range(4))
def test_preference_of_halves_in_any_order_and_place_is_the_same(
    read_by_another: tuple[Any, list[TrainingSequence], Result], seed: int
) -> None:
    model, sequences, expected = read_by_another
    for row_length in (14, 22, 40):
        mixed = random.Random(seed).sample(sequences, 6)
        assert_close(our_result(model, mixed, ANCHORED, row_length=row_length), expected)


def test_preference_read_through_the_head_in_chunks_is_the_same(
    read_by_another: tuple[Any, list[TrainingSequence], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, sequences, expected = read_by_another
    monkeypatch.setattr("plansmith.learning.token_reading.CHUNK_NUMBERS", 20 * 4)  # four tokens of 20
    for layout in LAYOUTS.values():
        assert_close(our_result(model, sequences, ANCHORED, is_read=True, **layout), expected)


def test_preference_of_stored_pairs_is_that_of_those_held(
    read_by_another: tuple[Any, list[TrainingSequence], Result], tmp_path: Path
) -> None:
    model, sequences, expected = read_by_another
    write_table(tmp_path / "pairs.parquet", [half.row(str(n)) for n, half in enumerate(sequences)], SequenceRow)
    stored = StoredSequences([tmp_path / "pairs.parquet"]).in_order([4, 1, 3, 0, 2, 5])
    assert_close(our_result(model, stored, ANCHORED), expected)


def test_pair_longer_than_a_row_is_dropped_whole_and_counted() -> None:
    packing = plan_of(pairs_of(), row_length=13).packing  # 14 tokens are too many
    assert (packing.n_sequences, packing.n_dropped, packing.n_dropped_tokens) == (4, 2, 14)


def test_pairs_none_of_which_fits_a_row_are_refused() -> None:
    with pytest.raises(BadInputError, match="6 of 6 sequences are too long, alone or with others of their unit"):
        plan_of(pairs_of(), row_length=7)


# --- held-out pairs


def test_figures_of_pairs_are_as_by_hand_and_count_only_what_is_above_zero() -> None:
    halves = preference_sequences([1], [2, END], [3, END], unit="a", reference_logprobs=(-2.0, -2.0))
    # what stands at a prompt is no part of a response
    numbers = [np.array([9.0, *at], np.float32) for at in [(-1, -1), (-2, -1)]]
    assert response_logprobs(numbers, halves) == [-2.0, -3.0]
    # (-3 + 1) - (-3 + 4) = -3; (-1 + 2) - (-3 + 2) = 2; (-2 + 2) - (-3 + 3) = 0
    chosen, rejected, reference_chosen, reference_rejected = (
        torch.tensor(read) for read in ([-3.0, -1.0, -2.0], [-3.0, -3.0, -3.0], [-1.0, -2.0, -2.0], [-4.0, -2.0, -3.0])
    )
    pairs = PairLogprobs(chosen, rejected, reference_chosen, reference_rejected)
    assert pairs.deltas.tolist() == [-3.0, 2.0, 0.0]
    figures = {name: figure.item() for name, figure in pairs.figures(3, beta=0.1).items()}
    losses = [math.log1p(math.exp(-0.1 * delta)) for delta in (-3, 2, 0)]
    assert figures == pytest.approx(
        {
            "preference": sum(losses) / 3,
            "margin": -0.1 / 3,
            "accuracy": 1 / 3,
            "chosen_logprob": -2.0,
            "rejected_logprob": -3.0,
        }
    )
