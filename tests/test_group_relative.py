"""GRPO, DAPO and Dr. GRPO by hand, against TRL's on the same tensors, and however rollouts lie in rows and ranks."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from small_policies import load_policy, moved, trained

from actors.deepspeed_engine import DeepSpeedEngineAdapter
from plansmith.config.generation import SamplingConfig
from plansmith.config.reinforcement import (
    GroupRelativeConfig,
    GroupSamplingConfig,
    ReinforcementConfig,
    RewardConfig,
)
from plansmith.config.training import OptimiserConfig
from plansmith.learning.constrained import penalised
from plansmith.learning.group_relative import (
    group_advantages,
    has_two_rewards,
    importance_weights,
    limited_weights,
    token_shares,
)
from plansmith.learning.losses import clipped_surrogate, divergence_estimates, token_logprobs
from plansmith.learning.objectives.group_relative import GroupRelative
from plansmith.learning.objectives.supervised import TokenLogprobs
from plansmith.learning.optimisation import micro_batches, plan_optimisation, run_optimisation
from plansmith.learning.packed_attention import register_packed_attention
from plansmith.learning.packing import PackedBatch, build_batch
from plansmith.learning.sequences import (
    ADVANTAGE,
    OLD_LOGPROBS,
    REFERENCE_LOGPROBS,
    RESPONSE_MASK,
    ROLLOUT_END,
    ROLLOUT_LOGPROBS,
    TrainingSequence,
    rollout_sequence,
)
from plansmith.learning.token_reading import TokenQuestion, TokenReading, reading_head

PROMPTS = [[3, 4], [13, 14, 15, 16]]
RESPONSES = [[[5, 6, 7, 8, 1], [5, 1], [9, 9, 8, 1]], [[17, 18, 1], [16, 1], [17, 2, 2, 2, 2, 1]]]
"""Two groups of three rollouts."""
REWARDS = [[1.0, 0.1, -0.1], [0.1, 1.0, 0.0]]
TEMPERATURE = 0.7
SAMPLING = SamplingConfig(temperature=TEMPERATURE, max_new_tokens=8)


# --- advantages


def test_advantages_of_a_group_of_three_are_worked_by_hand() -> None:
    # mean 1/3, squares 4/9, 1/9, 1/9 of deviations 2/3, -1/3, -1/3; of the sample 6/9 / 2 = 1/3
    deviations, sd = [2 / 3, -1 / 3, -1 / 3], math.sqrt(1 / 3)
    [found] = group_advantages([[1.0, 0.0, 0.0]], scale="group")
    assert found == pytest.approx([deviation / (sd + 1e-4) for deviation in deviations])
    [found] = group_advantages([[1.0, 0.0, 0.0]], scale="none")
    assert found == pytest.approx(deviations)


def test_advantages_by_the_spread_of_the_batch_keep_the_mean_of_the_group() -> None:
    # all rewards: 1, 0, 1, 1; mean 3/4, variance of the sample (1/16 * 3 + 9/16) / 3 = 1/4
    found = group_advantages([[1.0, 0.0], [1.0, 1.0]], scale="batch")
    assert found[0] == pytest.approx([0.5 / 0.5001, -0.5 / 0.5001])
    assert found[1] == [0.0, 0.0]


def test_advantages_over_the_mean_of_the_batch_let_a_group_of_equal_rewards_teach() -> None:
    # mean 3/4, sd 1/2, as above; the rollout that nobody could judge is in neither
    groups = [[1.0, 0.0], [1.0, None, 1.0]]
    assert group_advantages(groups, scale="none", baseline="batch") == [[0.25, -0.75], [0.25, None, 0.25]]
    [first, second] = group_advantages(groups, scale="batch", baseline="batch")
    assert first == pytest.approx([0.25 / 0.5001, -0.75 / 0.5001]) and second[1] is None
    assert group_advantages([[1.0], [1.0, 1.0]], scale="batch", baseline="batch") == [[0.0], [0.0, 0.0]]
    with pytest.raises(ValueError, match="divided by 0"):
        group_advantages(groups, scale="group", baseline="batch")


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("reward", [0.1, -0.1, 1 / 3])
def test_advantages_of_equal_rewards_are_exact_zeros(scale: Any, reward: float) -> None:
    assert group_advantages([[reward] * 7, [0.0, 1.0]], scale=scale)[0] == [0.0] * 7
    assert group_advantages([[reward]], scale=scale) == [[0.0]]


def test_rollout_that_nobody_could_judge_is_out_of_its_group() -> None:
    [found] = group_advantages([[1.0, None, 0.0]], scale="group")
    sd = math.sqrt(0.5)
    assert found[1] is None
    assert [found[0], found[2]] == pytest.approx([0.5 / (sd + 1e-4), -0.5 / (sd + 1e-4)])
    assert group_advantages([[None, 1.0, None], [None, None]], scale="group") == [[None, 0.0, None], [None, None]]
    assert group_advantages([], scale="batch") == []


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([1.0, 0.0], True), ([0.1, 0.1], False), ([None, 1.0], False), ([None], False), ([], False)],
    ids=str,
)
def test_group_teaches_where_two_of_its_rewards_differ(rewards: list[float | None], expected: bool) -> None:
    assert has_two_rewards(rewards) is expected


# --- parts of the loss


def test_importance_weights_of_tokens_and_of_whole_rollouts_are_worked_by_hand() -> None:
    old = torch.tensor([0.5, 0.5, 0.25, 1.0]).log()
    written = torch.tensor([0.25, 0.25, 0.5, 1.0]).log()
    rollouts = torch.tensor([0, 0, 2, 2])
    weights = importance_weights(old, written, rollouts, level="token")
    assert weights.tolist() == pytest.approx([2.0, 2.0, 0.5, 1.0])
    weights = importance_weights(old, written, rollouts, level="sequence")
    assert weights.tolist() == pytest.approx([4.0, 4.0, 0.5, 0.5])
    assert limited_weights(weights, 3.0, beyond="truncate").tolist() == pytest.approx([3.0, 3.0, 0.5, 0.5])
    assert limited_weights(weights, 3.0, beyond="mask").tolist() == pytest.approx([0.0, 0.0, 0.5, 0.5])
    assert limited_weights(torch.tensor([3.0]), 3.0, beyond="mask").tolist() == [3.0]


def test_clipped_surrogate_has_a_gradient_only_inside_its_bounds() -> None:
    ratios = torch.tensor([0.7, 1.1, 1.3, 0.7, 0.9, 1.3], requires_grad=True)
    advantages = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    found = clipped_surrogate(ratios, advantages, clip_low=0.2, clip_high=0.28)
    # better: grows to 1.28 at most; worse: falls to 0.8 at most
    assert found.tolist() == pytest.approx([0.7, 1.1, 1.28, -0.8, -0.9, -1.3])
    found.sum().backward()
    assert ratios.grad is not None and ratios.grad.tolist() == [1.0, 1.0, 0.0, 0.0, -1.0, -1.0]


def test_divergence_estimates_are_zero_at_the_reference_and_never_below() -> None:
    logprobs = torch.tensor([0.5, 0.5, 0.25]).log()
    found = divergence_estimates(logprobs, torch.tensor([0.5, 0.25, 0.5]).log())
    assert found.tolist() == pytest.approx([0.0, 0.5 - math.log(0.5) - 1, 2 - math.log(2) - 1])


@pytest.mark.parametrize(
    ("denominator", "expected"),
    [("rollouts", [1 / 8, 1 / 8, 1 / 4]), ("tokens", [1 / 7] * 3), ("limit", [1 / 40] * 3)],
)
def test_shares_of_tokens_are_those_of_the_whole_batch(denominator: Any, expected: list[float]) -> None:
    # two rollouts of 2 tokens and 1 token here; in the whole batch 4 rollouts of 7 tokens
    rollouts = torch.tensor([0, 0, 1])
    found = token_shares(rollouts, denominator=denominator, n_rollouts=4, n_tokens=7, max_new_tokens=10)
    assert found.tolist() == pytest.approx(expected)
    none = token_shares(rollouts[:0], denominator=denominator, n_rollouts=0, n_tokens=0, max_new_tokens=10)
    assert none.tolist() == []


# --- the objective by hand


def counts_of(sequences: Sequence[TrainingSequence], objective: GroupRelative) -> dict[str, int]:
    """Return how many numbers of each column are not 0."""
    zeros = np.zeros(1)
    return {
        name: sum(int(np.count_nonzero(sequence.columns.get(name, zeros))) for sequence in sequences)
        for name in objective.columns
    }


def with_columns(sequence: TrainingSequence, **columns: Sequence[float]) -> TrainingSequence:
    """Return a rollout with more columns, given for its response."""
    n_prompt = len(sequence) - len(next(iter(columns.values())))
    more = {name: [0.0] * n_prompt + list(numbers) for name, numbers in columns.items()}
    return TrainingSequence.of(sequence.token_ids, {**sequence.columns, **more})


def test_objective_of_two_tokens_gives_the_hand_worked_numbers_and_gradient() -> None:
    half, quarter = math.log(1 / 2), math.log(1 / 4)
    sequence = with_columns(
        rollout_sequence([0], [1, 2], advantage=2.0, rollout_logprobs=[math.log(1 / 6), quarter]),
        old_logprobs=[math.log(1 / 3), quarter], reference_logprobs=[half, half],
    )  # fmt: skip
    logits = torch.tensor([[[0.25, 0.5, 0.25], [0.5, 0.25, 0.25], [1 / 3] * 3]]).log().requires_grad_()
    settings = GroupRelativeConfig(beta=0.5, weight_limit=1.5)
    objective = GroupRelative(settings, SamplingConfig(temperature=1.0, max_new_tokens=4))
    batch = build_batch([sequence], [(0,)], objective.columns)
    loss, figures = objective.loss(logits, batch, counts_of([sequence], objective))
    # token 1: r = (1/2)/(1/3) = 3/2, clipped to 6/5; w = 2, at most 3/2; gain 3/2 * 6/5 * 2 = 18/5; k = 0
    # token 2: r = 1, w = 1, gain 2; k = 2 - log 2 - 1
    divergence = 1 - math.log(2)
    assert {name: figure.item() for name, figure in figures.items()} == pytest.approx(
        {
            "surrogate": -(18 / 5 + 2) / 2,
            "loss": -(18 / 5 + 2) / 2 + 0.5 * divergence / 2,
            "ratio": 1.25,
            "clipped_low": 0.0,
            "clipped_high": 0.5,
            "weight": 1.5,
            "limited_weight": 1.25,
            "mismatch": math.log(2) / 2,
            "divergence": divergence / 2,
            "entropy": (-(0.5 * half + 2 * 0.25 * quarter)),
        }
    )
    (gradient,) = torch.autograd.grad(loss, logits)
    # token 1 is clipped, and of k at the reference nothing is left; token 2: -A/2 + beta/2 * (1 - 2) = -5/4
    expected = torch.zeros(3, 3)
    expected[1] = -1.25 * torch.tensor([-0.5, -0.25, 0.75])
    assert torch.allclose(gradient[0], expected, atol=1e-6)


def test_objective_at_a_temperature_reads_what_was_drawn_from() -> None:
    logits = torch.tensor([[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]])
    reading = TokenQuestion(RESPONSE_MASK, temperature=0.5, has_entropies=True).answer(
        logits, build_batch([rollout_sequence([0], [1], advantage=1.0)], [(0,)], [RESPONSE_MASK])
    )
    weights = [math.exp(2), math.exp(4), math.exp(6)]
    shares = [weight / sum(weights) for weight in weights]
    assert reading.logprobs.item() == pytest.approx(math.log(shares[1]))
    assert reading.entropies.item() == pytest.approx(-sum(share * math.log(share) for share in shares))
    assert token_logprobs(logits, torch.tensor([[0, 1]]), temperature=0.5)[0, 1] == reading.logprobs[0]


def test_rollout_sequence_marks_what_the_policy_wrote() -> None:
    found = rollout_sequence([5, 6], [7, 8, 1], advantage=-0.5, rollout_logprobs=[-1.0, 0.0, -2.0])
    assert found.token_ids.tolist() == [5, 6, 7, 8, 1]
    assert {name: column.tolist() for name, column in found.columns.items()} == {
        RESPONSE_MASK: [0, 0, 1, 1, 1],
        ROLLOUT_END: [0, 0, 0, 0, 1],
        ADVANTAGE: [0, 0, -0.5, -0.5, -0.5],
        ROLLOUT_LOGPROBS: [0, 0, -1, 0, -2],
    }
    assert ROLLOUT_LOGPROBS not in rollout_sequence([5], [1], advantage=1.0).columns


@pytest.mark.parametrize(("prompt", "response", "n"), [([], [1], 0), ([1], [], 0), ([1], [2, 3], 1)])
def test_rollout_that_is_none_is_refused(prompt: list[int], response: list[int], n: int) -> None:
    with pytest.raises(ValueError, match="prompt has"):
        rollout_sequence(prompt, response, advantage=1.0, rollout_logprobs=[-1.0] * n)


def test_objective_reads_no_column_that_its_settings_have_no_use_for() -> None:
    always = (RESPONSE_MASK, ROLLOUT_END, ADVANTAGE)
    assert GroupRelative(GroupRelativeConfig(), SAMPLING, reads_old=False).columns == always
    settings = GroupRelativeConfig(beta=0.1, weight_limit=2.0)
    assert GroupRelative(settings, SAMPLING).columns == (
        *always, OLD_LOGPROBS, ROLLOUT_LOGPROBS, REFERENCE_LOGPROBS,
    )  # fmt: skip


def test_column_that_nobody_has_written_is_an_error() -> None:
    objective = GroupRelative(GroupRelativeConfig(), SAMPLING)
    sequence = rollout_sequence([1], [2], advantage=1.0)
    batch = build_batch([sequence], [(0,)], objective.columns)
    with pytest.raises(ValueError, match="1 tokens of rollouts, and nobody has written old_logprobs"):
        objective.loss(torch.zeros(1, 2, 5), batch, counts_of([sequence], objective))


def test_objective_without_anything_to_learn_is_zero_and_differentiable() -> None:
    objective = GroupRelative(GroupRelativeConfig(beta=0.1, weight_limit=2.0), SAMPLING)
    sequence = rollout_sequence([1], [2, 3], advantage=1.0)
    batch = build_batch([sequence], [(0,)], objective.columns).without_loss()
    logits = torch.zeros(1, 3, 5, requires_grad=True)
    loss, figures = objective.loss(logits, batch, dict.fromkeys(objective.columns, 7))
    loss.backward()
    assert {figure.item() for figure in figures.values()} == {0.0}
    assert logits.grad is not None and logits.grad.abs().sum() == 0


# --- under top-p and top-k


def read_alone(shares: Sequence[float], token: int, **cut: float) -> tuple[float, list[float]]:
    """Return exp(kept) of a token that was drawn from these shares, and the gradient of logp - kept."""
    logits = torch.tensor([[[*shares], [1.0] * len(shares)]]).log().requires_grad_()
    batch = build_batch([rollout_sequence([0], [token], advantage=1.0)], [(0,)], [RESPONSE_MASK])
    reading = TokenQuestion(RESPONSE_MASK, **cut).answer(logits, batch)
    (gradient,) = torch.autograd.grad((reading.logprobs - reading.kept).sum(), logits)
    return reading.kept.exp().item(), gradient[0, 0].tolist()


SHARES = [0.15, 0.5, 0.05, 0.3]


@pytest.mark.parametrize(
    ("token", "cut", "kept"),
    [
        (1, {"top_p": 0.7}, 0.8),
        (3, {"top_p": 0.7}, 0.8),
        (0, {"top_p": 0.7}, 0.95),  # beyond the nucleus
        (2, {"top_p": 0.7}, 0.85),
        (1, {"top_p": 0.1}, 0.5),
        (3, {"top_k": 2}, 0.8),
        (2, {"top_k": 2}, 0.85),
        (1, {"top_k": 2, "top_p": 0.6}, 0.5),  # 5/8 of the two
        (1, {"top_k": 2, "top_p": 0.7}, 0.8),
        (2, {"top_k": 9}, 1.0),
    ],
    ids=str,
)
def test_mass_of_a_nucleus_is_worked_by_hand_and_has_the_drawn_token(
    token: int, cut: dict[str, Any], kept: float
) -> None:
    assert read_alone(SHARES, token, **cut)[0] == pytest.approx(kept, abs=1e-6)


@pytest.mark.parametrize("token", [0, 2, 3])
def test_drawn_token_is_the_one_of_equals_that_its_nucleus_has(token: int) -> None:
    kept, gradient = read_alone([0.2, 0.4, 0.2, 0.2], token, top_p=0.5)
    assert kept == pytest.approx(0.6)
    # 1 - 1/3 of the drawn one, -2/3 of the likeliest, nothing of its equals
    assert gradient == pytest.approx([2 / 3 if k == token else -2 / 3 if k == 1 else 0.0 for k in range(4)], abs=1e-6)
    assert read_alone([0.2, 0.4, 0.2, 0.2], token, top_k=2)[0] == pytest.approx(1.0)  # as likely as the second


def processed(logits: torch.Tensor, sampling: SamplingConfig) -> torch.Tensor:
    """Return what vLLM's processed log-probabilities of one place are, token by token: (V,)."""
    logits = logits / sampling.temperature
    order = logits.argsort(descending=True)[: sampling.top_k or None]
    kept, mass = list[int](), 0.0
    for place, share in zip(order.tolist(), logits[order].softmax(0).tolist(), strict=True):
        if mass < sampling.top_p:
            kept.append(place)
            mass += share
    return torch.full_like(logits, -math.inf).index_put((torch.tensor(kept),), logits[kept].log_softmax(0))


CUTS = [{"top_p": 0.95}, {"top_p": 0.5}, {"top_k": 5}, {"top_k": 8, "top_p": 0.8}]


def drawn_rollouts(logits: torch.Tensor, sampling: SamplingConfig) -> list[TrainingSequence]:
    """Return a row of two rollouts that were drawn from logits (T, V), and what an engine says of them."""
    tables = [processed(row, sampling) for row in logits]
    ids = [3, *(int(table.exp().multinomial(1)) for table in tables[:-1])]
    written = [0.0, *(table[token].item() for table, token in zip(tables, ids[1:], strict=False))]
    cuts = [(0, 2, 8), (8, 9, len(ids))]  # prompt, response
    return [rollout_sequence(ids[a:b], ids[b:c], advantage=1.0 - a, rollout_logprobs=written[b:c]) for a, b, c in cuts]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_tokens_are_read_in_their_nucleus_with_its_gradient_as_one_by_one(cut: dict[str, Any]) -> None:
    sampling = SamplingConfig(temperature=0.7, **cut)
    logits = torch.randn(1, 20, 30, generator=torch.Generator().manual_seed(3)).mul(2).requires_grad_()
    torch.manual_seed(4)
    batch = build_batch(drawn_rollouts(logits[0], sampling), [(0, 1)], [RESPONSE_MASK])
    question = TokenQuestion(RESPONSE_MASK, 0.7, **cut, has_entropies=True)
    reading, places = question.answer(logits, batch), question.is_counted(batch)[0].nonzero()[:, 0].tolist()
    naive = torch.stack([processed(logits[0, t - 1], sampling)[batch.token_ids[0, t]] for t in places])
    assert torch.allclose(reading.logprobs - reading.kept, naive, atol=1e-6)
    assert reading.kept.max() < 0
    weights = torch.randn(len(places))
    ours, theirs = (
        torch.autograd.grad((weights * found).sum(), logits)[0] for found in (reading.logprobs - reading.kept, naive)
    )
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_weights_are_one_where_the_engine_says_what_it_drew_from_and_the_divergence_is_of_the_whole(
    cut: dict[str, Any],
) -> None:
    sampling = SamplingConfig(temperature=0.7, **cut)
    logits = torch.randn(1, 20, 30, generator=torch.Generator().manual_seed(5)).mul(2)
    torch.manual_seed(6)
    rollouts = drawn_rollouts(logits[0], sampling)
    batch = build_batch(rollouts, [(0, 1)], [RESPONSE_MASK, ROLLOUT_END, ADVANTAGE, ROLLOUT_LOGPROBS])
    old, whole = (TokenLogprobs(0.7, **how).read(logits, batch) for how in (cut, {}))
    batch.columns.update({OLD_LOGPROBS: old, REFERENCE_LOGPROBS: whole})
    counts = {name: int(column.count_nonzero()) for name, column in batch.columns.items()}
    settings = GroupRelativeConfig(weight_limit=10.0, beta=0.1)
    for reads_old in (True, False):
        _, figures = GroupRelative(settings, sampling, reads_old).loss(logits, batch, counts)
        found = {name: figures[name].item() for name in ("ratio", "weight", "mismatch", "divergence")}
        assert found == pytest.approx({"ratio": 1, "weight": 1, "mismatch": 0, "divergence": 0}, abs=1e-6)
    _, figures = GroupRelative(settings, SAMPLING, reads_old=False).loss(logits, batch, counts)
    assert figures["weight"] < 0.99, "of the whole distribution they are less"


def test_nothing_is_cut_where_every_token_may_be_drawn(rollouts: list[TrainingSequence]) -> None:
    batch = build_batch(rollouts, [(0, 1, 2), (3, 4, 5)], [RESPONSE_MASK])
    logits = torch.randn(*batch.token_ids.shape, 20, generator=torch.Generator().manual_seed(7))
    question = TokenQuestion(RESPONSE_MASK, TEMPERATURE)
    reading = question.answer(logits, batch)
    expected = token_logprobs(logits, batch.token_ids, temperature=TEMPERATURE)
    assert not reading.kept.any()
    assert torch.equal(reading.logprobs - reading.kept, expected[question.is_counted(batch)])
    assert torch.equal(TokenLogprobs(TEMPERATURE).read(logits, batch), expected)


# --- against TRL


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=20,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.15,
        tie_word_embeddings=True,
    )
    path = tmp_path_factory.mktemp("model")
    Qwen3ForCausalLM(config).save_pretrained(path)
    return path


def response_logprobs(model: Any) -> list[list[float]]:
    """Return log p of each response token at the temperature, rollout by rollout, each alone."""
    found = []
    for prompt, responses in zip(PROMPTS, RESPONSES, strict=True):
        for response in responses:
            batch = build_batch([TrainingSequence.of([*prompt, *response], {})], [(0,)], ())
            with torch.no_grad():
                logits = model(**batch.model_inputs()).logits
            logprobs = token_logprobs(logits, batch.token_ids, temperature=TEMPERATURE)
            found.append(logprobs[0, len(prompt) :].tolist())
    return found


@pytest.fixture(scope="module")
def rollouts(folder: Path) -> list[TrainingSequence]:
    """Return all rollouts, read by an engine, at the update's beginning and by a reference: policies that differ."""
    policy = load_policy(folder, register_packed_attention())
    old, written, reference = (response_logprobs(moved(policy, seed=seed)) for seed in (5, 6, 7))
    found = []
    advantages = [advantage for group in group_advantages(REWARDS, scale="group") for advantage in group]
    texts = [(prompt, response) for prompt, group in zip(PROMPTS, RESPONSES, strict=True) for response in group]
    for k, (prompt, response) in enumerate(texts):
        sequence = rollout_sequence(prompt, response, advantage=advantages[k] or 0.0, rollout_logprobs=written[k])
        found.append(with_columns(sequence, old_logprobs=old[k], reference_logprobs=reference[k]))
    return found


Result = tuple[dict[str, float], list[torch.Tensor]]


def our_result(
    model: Any,
    sequences: Sequence[TrainingSequence],
    objective: GroupRelative,
    *,
    row_length: int = 10,
    n_ranks: int = 1,
    is_whole: bool = False,
) -> Result:
    """Return figures and gradient of an optimiser batch, added up over the micro-batches of all ranks."""
    settings = OptimiserConfig(learning_rate=1.0, batch_sequences=100)
    plan = plan_optimisation(
        [len(s) for s in sequences], settings, seed=0, row_length_tokens=row_length, n_ranks=n_ranks
    )
    [rows] = plan.batches
    batches = [
        batch
        for rank in range(n_ranks)
        for batch in micro_batches(sequences, rows, objective.columns, rank=rank, world_size=n_ranks)
    ]
    counts = {name: sum(int(batch.columns[name].count_nonzero()) for batch in batches) for name in objective.columns}
    figures: dict[str, float] = {}
    gradient = [torch.zeros_like(parameter) for parameter in trained(model)]
    for batch in batches:
        if is_whole:
            loss, found = objective.loss(model(**batch.model_inputs()).logits, batch, counts)
        else:
            loss, found = objective.loss_of(read_by_head(model, batch, objective.question), batch, counts)
        figures = {name: figures.get(name, 0.0) + figure.item() for name, figure in found.items()}
        gradient = [g + d for g, d in zip(gradient, torch.autograd.grad(loss, trained(model)), strict=True)]
    return figures, gradient


def read_by_head(model: Any, batch: PackedBatch, question: TokenQuestion) -> TokenReading:
    with reading_head(model, batch, question) as read:
        return read(model(**batch.model_inputs(is_rounded=True)))


VARIANTS = {
    "grpo": GroupRelativeConfig(denominator="rollouts"),
    "dapo": GroupRelativeConfig(denominator="tokens", clip_high=0.28),
    "dr_grpo": GroupRelativeConfig(denominator="limit"),
}
WEIGHTS: dict[str, dict[str, Any]] = {
    "no weights": {},
    "tokens truncated": {"weight_limit": 1.2},
    "tokens masked": {"weight_limit": 1.2, "beyond_limit": "mask"},
    "sequences truncated": {"weight_limit": 1.2, "weight_level": "sequence"},
    "sequences masked": {"weight_limit": 1.2, "weight_level": "sequence", "beyond_limit": "mask"},
}


@pytest.fixture(scope="module")
def trl_trainer(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return TRL's trainer on the model; what is tested of its settings is set later."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    with pytest.MonkeyPatch.context() as patch:  # it would import vLLM, which nothing here asks
        patch.setattr(importlib.import_module("trl.import_utils"), "is_vllm_available", lambda *_, **__: False)
        from trl import GRPOConfig, GRPOTrainer

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(20)}, unk_token="w0"))
    return GRPOTrainer(
        model=moved(load_policy(folder, "eager"), seed=2),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=str(tmp_path_factory.mktemp("trl")),
            use_cpu=True,
            bf16=False,
            report_to=[],
            gradient_checkpointing=False,
            disable_tqdm=True,
            per_device_train_batch_size=6,
            num_generations=3,
            max_completion_length=SAMPLING.max_new_tokens,
            temperature=TEMPERATURE,
            use_bias_correction_kl=False,
        ),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=words, unk_token="w0", eos_token="w1", pad_token="w0"
        ),
        train_dataset=Dataset.from_list([{"prompt": "w3"}] * 6),
    )


def trl_result(trainer: Any, sequences: Sequence[TrainingSequence], variant: str, settings: Any) -> Result:
    """Return loss, figures and gradient of TRL on all rollouts in one padded batch."""
    trainer.loss_type, trainer.beta = variant, settings.beta
    trainer.epsilon_low, trainer.epsilon_high = settings.clip_low, settings.clip_high
    trainer.use_vllm, trainer.vllm_importance_sampling_correction = settings.weight_limit is not None, True
    inputs = trl_inputs(sequences, settings)
    trainer._metrics["eval"].clear()
    loss = trainer._compute_loss(trainer.model.eval(), inputs)  # there is no dropout, and nothing is accumulated
    measured = {name: values[-1] for name, values in trainer._metrics["eval"].items()}
    figures = {
        "loss": loss.item(),
        "entropy": measured["entropy"],
        "clipped_low": measured["clip_ratio/low_mean"],
        "clipped_high": measured["clip_ratio/high_mean"],
    }
    if settings.beta:
        figures["divergence"] = measured["kl"]
    return figures, list(torch.autograd.grad(loss, trained(trainer.model)))


def trl_inputs(sequences: Sequence[TrainingSequence], settings: GroupRelativeConfig) -> dict[str, torch.Tensor]:
    """Return the rollouts as TRL has them: prompts padded on the left, completions on the right."""
    from trl.trainer.utils import pad

    def column(name: str, side: str = "right") -> torch.Tensor:
        parts = [torch.from_numpy(s.columns[name][s.columns[RESPONSE_MASK] != 0]) for s in sequences]
        return pad(parts, padding_value=0, padding_side=side)

    is_response = [torch.from_numpy(s.columns[RESPONSE_MASK] != 0) for s in sequences]
    ids = [torch.from_numpy(s.token_ids).long() for s in sequences]
    prompts = [i[~m] for i, m in zip(ids, is_response, strict=True)]
    mask = column(RESPONSE_MASK)
    inputs = {
        "prompt_ids": pad(prompts, padding_value=0, padding_side="left"),
        "prompt_mask": pad([torch.ones_like(p) for p in prompts], padding_value=0, padding_side="left"),
        "completion_ids": pad([i[m] for i, m in zip(ids, is_response, strict=True)], padding_value=0),
        "completion_mask": mask.long(),
        "advantages": column(ADVANTAGE),
        "old_per_token_logps": column(OLD_LOGPROBS),
        "ref_per_token_logps": column(REFERENCE_LOGPROBS),
        "num_items_in_batch": mask.sum(),
    }
    if settings.weight_limit is not None:
        inputs["importance_sampling_ratio"] = trl_weights(column(OLD_LOGPROBS) - column(ROLLOUT_LOGPROBS), settings)
    return inputs


def trl_weights(differences: torch.Tensor, settings: GroupRelativeConfig) -> torch.Tensor:
    """Return what `GRPOTrainer._generate_and_score_completions` hands to its loss; padding differs by 0."""
    limit = settings.weight_limit
    assert limit is not None
    weights = (differences.sum(-1, keepdim=True) if settings.weight_level == "sequence" else differences).exp()
    return torch.where(weights > limit, limit if settings.beyond_limit == "truncate" else 0.0, weights)


def assert_close(ours: Result, theirs: Result) -> None:
    """Check the figures that both have, and the gradient, to 1e-5."""
    common = ours[0].keys() & theirs[0].keys()
    assert {name: ours[0][name] for name in common} == pytest.approx(
        {name: theirs[0][name] for name in common}, abs=1e-5
    )
    assert all(torch.allclose(our, their, atol=1e-5) for our, their in zip(ours[1], theirs[1], strict=True))


LAYOUTS: dict[str, dict[str, Any]] = {
    "a row a rollout or two": {},
    "logits whole": {"is_whole": True},
    "one row": {"row_length": 60},
    "two ranks": {"n_ranks": 2},
    "four ranks, one of them without a row": {"n_ranks": 4, "row_length": 20},
}


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_gradient_equal_trls_however_rollouts_are_packed_and_shared_out(
    folder: Path, trl_trainer: Any, rollouts: list[TrainingSequence], variant: str, beta: float, weights: dict[str, Any]
) -> None:
    settings = VARIANTS[variant].model_copy(update={"beta": beta, **weights})
    theirs = trl_result(trl_trainer, rollouts, variant, settings)
    assert theirs[0]["clipped_high"] > 0 and theirs[0]["clipped_low"] > 0
    assert max(g.abs().max() for g in theirs[1]) > 0.01
    model = moved(load_policy(folder, register_packed_attention()), seed=2)
    objective = GroupRelative(settings, SAMPLING)
    for layout in LAYOUTS.values():
        assert_close(our_result(model, rollouts, objective, **layout), theirs)


@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_loss_of_steps_with_a_divergence_equals_trls(
    folder: Path, trl_trainer: Any, rollouts: list[TrainingSequence], penalty: float
) -> None:
    settings = GroupRelativeConfig(beta=0.1)
    by_step = []
    for number, sequence in enumerate(rollouts):
        n = int(sequence.columns[RESPONSE_MASK].sum())
        rewards, costs = [(number + t) % 3 - 1.0 for t in range(n)], [(number * t) % 2 * 1.5 for t in range(n)]
        advantages = [0.0] * (len(sequence) - n) + penalised(rewards, costs, penalty)
        by_step.append(with_columns(sequence, advantage=advantages[len(sequence) - n :]))
    theirs = trl_result(trl_trainer, by_step, "grpo", settings)
    model = moved(load_policy(folder, register_packed_attention()), seed=2)
    assert_close(our_result(model, by_step, GroupRelative(settings, SAMPLING)), theirs)


def scored_by_trl(
    trainer: Any, patch: pytest.MonkeyPatch, rewards: Sequence[float], written: Sequence[Sequence[float]] | None = None
) -> dict[str, torch.Tensor]:
    """Return what TRL makes of groups of three, of which an engine has said so much, before it computes a loss."""
    prompts, answers = ([row for group in rows for row in group] for rows in ([[p] * 3 for p in PROMPTS], RESPONSES))
    n = len(rewards)
    prompts, answers = (prompts + prompts)[:n], (answers + answers)[:n]
    for name, value in {
        "beta": 0.0,
        "use_vllm": written is not None,
        "vllm_importance_sampling_correction": True,
        "_calculate_rewards": lambda *_: torch.tensor(rewards)[:, None],
        "_generate": lambda _: (prompts, answers, None, [""] * n, written, {}, None, None),
    }.items():
        patch.setattr(trainer, name, value)
    trainer.model.eval()
    found: dict[str, torch.Tensor] = trainer._generate_and_score_completions([{"prompt": "w3"}] * n)
    return found


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_equal_trls(trl_trainer: Any, scale: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[list[float | None]] = [[1.0, 0.1, -0.1], [0.1, 0.1, 0.1], [1.0, None, 0.0]]
    flat = [math.nan if reward is None else reward for group in groups for reward in group]
    monkeypatch.setattr(trl_trainer, "scale_rewards", scale)
    theirs = scored_by_trl(trl_trainer, monkeypatch, flat)["advantages"]
    ours = [advantage or 0.0 for group in group_advantages(groups, scale=scale) for advantage in group]
    assert ours == pytest.approx(theirs.tolist(), abs=1e-5)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("beyond", ["truncate", "mask"])
def test_importance_weights_equal_trls(
    trl_trainer: Any, rollouts: list[TrainingSequence], level: Any, beyond: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [s.columns[ROLLOUT_LOGPROBS][s.columns[RESPONSE_MASK] != 0].tolist() for s in rollouts]
    monkeypatch.setattr(trl_trainer, "vllm_importance_sampling_mode", f"{level}_{beyond}")
    monkeypatch.setattr(trl_trainer, "vllm_importance_sampling_clip_max", 1.05)
    theirs = scored_by_trl(trl_trainer, monkeypatch, [0.0] * 6, written)
    mask = theirs["completion_mask"].bool()
    numbers = torch.arange(6)[:, None].expand(mask.shape)[mask]
    said = torch.tensor([logprob for logprobs in written for logprob in logprobs])
    weights = importance_weights(theirs["old_per_token_logps"][mask], said, numbers, level=level)
    ours = limited_weights(weights, 1.05, beyond=beyond)
    assert (weights > 1.05).any() and (weights < 1.0).any()
    assert torch.allclose(ours, theirs["importance_sampling_ratio"].expand(mask.shape)[mask], atol=1e-5)
    settings = GroupRelativeConfig(weight_limit=1.05, weight_level=level, beyond_limit=beyond)
    differences = torch.zeros(mask.shape).masked_scatter(mask, theirs["old_per_token_logps"][mask] - said)
    assert torch.allclose(trl_weights(differences, settings), theirs["importance_sampling_ratio"], atol=1e-5)


# --- through the head


class PlainEngine:
    """One rank without DeepSpeed."""

    rank, world_size, device, vocabulary_size = 0, 1, torch.device("cpu"), 20

    def __init__(self, model: Any, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def __call__(self, batch: PackedBatch) -> torch.Tensor:
        raise AssertionError("nobody needs all logits")

    def read_tokens(self, batch: PackedBatch, question: TokenQuestion) -> TokenReading:
        return read_by_head(self.model, batch, question)

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def step(self) -> float:
        self.optimizer.step()
        self.optimizer.zero_grad()
        return 1.0

    def set_learning_rate(self, learning_rate: float) -> None:
        pass

    def sum_over_ranks(self, numbers: Sequence[float]) -> Any:
        return np.asarray(numbers, np.float64)


def test_ratio_is_one_at_the_first_step_of_an_update_and_goes_no_further_than_its_bounds(folder: Path) -> None:
    model = load_policy(folder, register_packed_attention())
    sequences = [rollout_sequence([3, 4], [5, 6, 1], advantage=1.0), rollout_sequence([3, 4], [7, 1], advantage=-1.0)]
    old = response_logprobs_of(model, sequences)
    sequences = [with_columns(s, old_logprobs=numbers) for s, numbers in zip(sequences, old, strict=True)]
    settings = OptimiserConfig(learning_rate=1.0, batch_sequences=2, epochs=3)
    plan = plan_optimisation([5, 4], settings, seed=0, row_length_tokens=12)
    engine = PlainEngine(model, torch.optim.SGD(model.parameters(), lr=0.05))
    objective = GroupRelative(GroupRelativeConfig(), SAMPLING)
    report = run_optimisation(engine, objective, sequences, settings, plan)
    assert report.objective == "group_relative"
    assert report.metrics["ratio"][0] == pytest.approx(1.0, abs=1e-5)
    assert report.losses[0] == pytest.approx(0.0, abs=1e-5)  # both advantages, each a mean over its rollout
    # one large step takes every ratio beyond its bound, and there it stays: (1.2 - 0.8) / 2
    assert report.losses[1:] == pytest.approx([-0.2, -0.2], abs=1e-5)
    assert [report.metrics[name][1] for name in ("clipped_high", "clipped_low")] == pytest.approx([3 / 5, 2 / 5])
    better, worse = (sum(numbers) for numbers in response_logprobs_of(model, sequences))
    assert better > sum(old[0]) and worse < sum(old[1])


def response_logprobs_of(model: Any, sequences: Sequence[TrainingSequence]) -> list[list[float]]:
    question = TokenQuestion(RESPONSE_MASK, TEMPERATURE)
    with torch.no_grad():
        batches = [build_batch(sequences, [(k,)], [RESPONSE_MASK]) for k in range(len(sequences))]
        return [read_by_head(model, batch, question).logprobs.tolist() for batch in batches]


@pytest.mark.parametrize("cut", [{}, *CUTS], ids=str)
@pytest.mark.parametrize("is_adapter", [False, True], ids=["all weights", "adapter"])
def test_tokens_read_through_the_head_in_chunks_are_those_of_the_logits_with_their_gradient(
    folder: Path, rollouts: list[TrainingSequence], is_adapter: bool, cut: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plansmith.learning.token_reading.CHUNK_TOKENS", 3)
    model = load_policy(folder, register_packed_attention(), is_adapter=is_adapter)
    batch = build_batch(rollouts, [(0, 1, 2), (3, 4, 5)], [RESPONSE_MASK])
    question = TokenQuestion(RESPONSE_MASK, 0.7, **cut, has_entropies=True)
    found, whole = read_by_head(model, batch, question), question.answer(model(**batch.model_inputs()).logits, batch)
    assert found.logprobs.shape == (sum(map(len, [*RESPONSES[0], *RESPONSES[1]])),)
    expected = token_logprobs(model(**batch.model_inputs()).logits, batch.token_ids, temperature=0.7)
    for reading in (found, whole):
        assert torch.allclose(reading.logprobs, expected[question.is_counted(batch)], atol=1e-5)
        assert torch.allclose(reading.kept, whole.kept, atol=1e-5)
        assert torch.allclose(reading.entropies, whole.entropies, atol=1e-5)
        assert not reading.entropies.requires_grad
    ours, theirs = (torch.autograd.grad((r.logprobs - r.kept).sum(), trained(model)) for r in (found, whole))
    assert all(torch.allclose(our, their, atol=1e-4) for our, their in zip(ours, theirs, strict=True))


def test_engine_reads_tokens_of_a_row_that_was_lengthened(folder: Path) -> None:
    model = load_policy(folder, register_packed_attention())
    batch = build_batch([rollout_sequence([3], [5, 1], advantage=1.0)], [(0,)], [RESPONSE_MASK])
    engine: Any = SimpleNamespace(module=model, engine=model, _is_rounded=True)
    found = DeepSpeedEngineAdapter.read_tokens(engine, batch, TokenQuestion(RESPONSE_MASK))
    whole = TokenQuestion(RESPONSE_MASK).answer(model(**batch.model_inputs()).logits, batch)
    assert torch.allclose(found.logprobs, whole.logprobs, atol=1e-5)


def test_head_gives_logits_again_after_it_was_read_through_even_if_the_pass_failed(folder: Path) -> None:
    model = load_policy(folder, register_packed_attention())
    batch = build_batch([rollout_sequence([3], [5, 1], advantage=1.0)], [(0,)], [RESPONSE_MASK])
    before = model(**batch.model_inputs()).logits
    with pytest.raises(RuntimeError, match="out of memory"), reading_head(model, batch, TokenQuestion(RESPONSE_MASK)):
        raise RuntimeError("out of memory")
    assert torch.equal(model(**batch.model_inputs()).logits, before)


def test_batch_without_a_counted_token_reads_none_and_still_reaches_every_weight(folder: Path) -> None:
    model = load_policy(folder, register_packed_attention())
    batch = build_batch([rollout_sequence([3], [5, 1], advantage=1.0)], [(0,)], [RESPONSE_MASK]).without_loss()
    found = read_by_head(model, batch, TokenQuestion(RESPONSE_MASK))
    assert found.logprobs.shape == found.entropies.shape == (0,)
    found.logprobs.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in trained(model))


def test_head_whose_logits_are_changed_after_it_is_read_whole(folder: Path) -> None:
    model = load_policy(folder, register_packed_attention())
    batch = build_batch([rollout_sequence([3], [5, 1], advantage=1.0)], [(0,)], [RESPONSE_MASK])
    expected = read_by_head(model, batch, TokenQuestion(RESPONSE_MASK))
    model.config.final_logit_softcapping = 30.0
    head = model.get_output_embeddings()
    with reading_head(model, batch, TokenQuestion(RESPONSE_MASK)) as read:
        assert "forward" not in vars(head)
        found = read(model(**batch.model_inputs(is_rounded=True)))
    assert torch.allclose(found.logprobs, expected.logprobs, atol=1e-5)


# --- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_k": 1}, "top_k=1 draws equal ones at any temperature"),
        ({"temperature": 0.0}, "temperature=0 draws equal ones"),
        ({"rollouts_per_problem": 1}, "rollouts_per_problem=1 leaves one"),
        ({"temperature": -1.0}, "greater than or equal to 0"),
    ],
    ids=str,
)
def test_groups_whose_rollouts_cannot_differ_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GroupSamplingConfig(**settings)


def test_rewards_of_one_value_are_refused() -> None:
    names = RewardConfig.model_fields
    with pytest.raises(ValidationError, match=r"every reward is 0\.5: advantages would all be 0"):
        RewardConfig(**dict.fromkeys(names, 0.5))
    assert RewardConfig(**{**dict.fromkeys(names, 0.0), "valid": 1.0}).valid == 1.0


@pytest.mark.parametrize(
    "settings", [{"clip_low": 1.0}, {"clip_high": 0.0}, {"beta": -0.1}, {"weight_limit": 0.0}], ids=str
)
def test_objective_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(settings))):
        GroupRelativeConfig(**settings)


def test_paper_and_its_successors_are_settings() -> None:
    shared: dict[str, Any] = {"learning_rate": 5e-6, "updates": 1000}
    paper = ReinforcementConfig(
        **shared, rollouts_per_problem=3, temperature=0.5, top_p=0.95, batch_sequences=24, schedule="cosine"
    )
    assert (paper.beta, paper.clip_low, paper.clip_high, paper.denominator) == (0.0, 0.2, 0.2, "rollouts")
    assert paper.sampling.model_dump(include={"n", "temperature", "top_p", "top_k"}) == {
        "n": 3, "temperature": 0.5, "top_p": 0.95, "top_k": 0,
    }  # fmt: skip
    later = ReinforcementConfig(
        **shared, batch_sequences=64, clip_high=0.28, denominator="limit", advantage_scale="none", weight_limit=2.0,
        trains_cut=False, spare_problems=8,
    )  # fmt: skip
    assert (later.rollouts_per_problem, later.temperature, later.top_p) == (8, 1.0, 1.0)
