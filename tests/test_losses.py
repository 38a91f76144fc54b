"""Losses against numbers worked out by hand, signs of gradients, and transformers' own loss."""

from __future__ import annotations

import math
import pickle

import pytest
import torch

from plansmith.learning import losses
from plansmith.learning.objectives import METRICS, BatchCounts, Objective, VerdictTokens, objective_loss
from plansmith.learning.packing import build_batch
from plansmith.learning.printed_losses import (
    LossWeights,
    binary_cross_entropy,
    feedback_penalty,
    mean_loss,
    plan_loss,
    step_loss,
)
from plansmith.learning.sequences import TrainingSequence, supervised_sequence
from plansmith.pddl.validation import FeedbackCode

PAPER = LossWeights()


def logits_of(*probabilities: tuple[float, ...]) -> torch.Tensor:
    """Return (1, T, V) logits whose softmax is exactly the given rows."""
    return torch.tensor([[[math.log(p) for p in row] for row in probabilities]])


@pytest.mark.parametrize(
    ("code", "detailed", "binary"),
    [("ok", 0.0, 0.0), ("malformed", 1.0, 1.0), ("precondition", 1.0, 1.0), ("effect", 1.0, 1.0), ("goal", 1.5, 1.0)],
)
def test_feedback_penalty_of_each_class_is_equation_7(code: str, detailed: float, binary: float) -> None:
    assert feedback_penalty(FeedbackCode(code), PAPER) == detailed
    assert feedback_penalty(FeedbackCode(code), PAPER, is_binary=True) == binary


def test_step_loss_is_distance_plus_a_tenth_of_the_penalty() -> None:
    # three atoms differ; goal missed: 0.1 * 1.5; together 3.15
    assert step_loss(3, FeedbackCode.GOAL, PAPER) == pytest.approx(3.15)
    assert step_loss(0, FeedbackCode.OK, PAPER) == 0.0


@pytest.mark.parametrize(
    ("v", "v_hat", "expected"),
    [
        (1, 0.5, 0.5 * math.log(2)),  # no penalty, alpha * log 2
        (0, 0.5, 2.0 + 0.5 * math.log(2)),
        (0, 0.75, 2.0 + 0.5 * math.log(4)),  # -log(1 - 0.75) = log 4
        (0, None, 2.0),
        (1, None, 0.0),
    ],
)
def test_plan_loss_is_penalty_plus_half_the_cross_entropy(v: int, v_hat: float | None, expected: float) -> None:
    assert plan_loss(v, v_hat, PAPER) == pytest.approx(expected)


def test_binary_cross_entropy_at_the_edges_is_finite_and_out_of_range_refused() -> None:
    assert binary_cross_entropy(1, 0.0) == pytest.approx(-math.log(1e-7))
    assert binary_cross_entropy(0, 1.0) == pytest.approx(-math.log(1e-7))
    for v, v_hat in ((2, 0.5), (1, 1.5), (1, math.nan)):
        with pytest.raises(ValueError, match="must be"):
            binary_cross_entropy(v, v_hat)


def test_mean_loss_of_nothing_is_none_not_zero() -> None:
    assert mean_loss([]) is None
    assert mean_loss([1.0, 2.0, 6.0]) == 3.0


def test_loss_weights_with_a_floor_of_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="logprob_floor"):
        LossWeights(logprob_floor=0.0)


def test_token_logprobs_read_each_token_from_the_position_before() -> None:
    logits = logits_of((0.5, 0.25, 0.25), (0.1, 0.2, 0.7), (0.9, 0.05, 0.05))
    logprobs = losses.token_logprobs(logits, torch.tensor([[0, 1, 2]]))
    # token 1 from the first row: 0.25; token 2 from the second: 0.7; nothing predicts the first
    assert logprobs[0].tolist() == pytest.approx([0.0, math.log(0.25), math.log(0.7)])


def test_token_logprobs_of_bfloat16_logits_are_float32() -> None:
    logits = torch.zeros(2, 3, 5, dtype=torch.bfloat16)
    logprobs = losses.token_logprobs(logits, torch.zeros(2, 3, dtype=torch.int64))
    assert logprobs.dtype is torch.float32
    assert logprobs[1].tolist() == pytest.approx([0.0, -math.log(5), -math.log(5)])


def test_supervised_loss_is_the_weighted_mean_over_response_tokens() -> None:
    logprobs = torch.tensor([[0.0, math.log(0.5), math.log(0.25)]])
    # (1 * log 2 + 0.5 * log 4) / 2 tokens = (0.6931 + 0.6931) / 2 = 0.6931
    loss = losses.supervised_loss(logprobs, torch.tensor([[0.0, 1.0, 0.5]]), 2)
    assert loss.item() == pytest.approx(math.log(2))


def test_supervised_loss_equals_the_loss_of_transformers() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    )
    token_ids = torch.randint(0, 50, (3, 12))
    labels = token_ids.clone()
    labels[:, :5] = -100
    output = model(input_ids=token_ids, labels=labels)
    weights = (labels != -100).float()
    ours = losses.supervised_loss(losses.token_logprobs(output.logits, token_ids), weights, weights.sum().item())
    assert ours.item() == pytest.approx(output.loss.item(), abs=1e-6)


def test_score_function_loss_is_the_mean_of_coefficient_times_logprob() -> None:
    logprobs = torch.tensor([[0.0, -1.0, -2.0, -3.0]])
    # (2 * -1 + -0.5 * -2) / 2 tokens = (-2 + 1) / 2; the last token has no weight
    loss = losses.score_function_loss(logprobs, torch.tensor([[0.0, 2.0, -0.5, 0.0]]), 2, logprob_floor=-4.0)
    assert loss.item() == pytest.approx(-0.5)


@pytest.mark.parametrize(("coefficient", "sign"), [(1.0, 1.0), (-1.0, -1.0)])
def test_score_function_gradient_lowers_bad_tokens_and_raises_good_ones(coefficient: float, sign: float) -> None:
    logits = logits_of((0.5, 0.25, 0.25), (1.0, 1e-9, 1e-9)).requires_grad_()
    logprobs = losses.token_logprobs(logits, torch.tensor([[0, 1]]))
    losses.score_function_loss(logprobs, torch.tensor([[0.0, coefficient]]), 1, logprob_floor=-4.0).backward()
    # d log p(1) / d logits = onehot(1) - p = (-0.5, 0.75, -0.25)
    assert logits.grad is not None
    assert logits.grad[0, 0].tolist() == pytest.approx([-0.5 * sign, 0.75 * sign, -0.25 * sign])
    assert logits.grad[0, 1].abs().sum() == 0


def test_score_function_gradient_stops_at_the_floor_for_bad_tokens_only() -> None:
    logprobs = torch.tensor([[0.0, -5.0, -5.0, -3.0]], requires_grad=True)
    losses.score_function_loss(logprobs, torch.tensor([[0.0, 1.0, -1.0, 1.0]]), 1, logprob_floor=-4.0).backward()
    assert logprobs.grad is not None
    assert logprobs.grad[0].tolist() == [0.0, 0.0, -1.0, 1.0]
    assert losses.clamped_tokens(logprobs, torch.tensor([[0.0, 1.0, -1.0, 1.0]]), logprob_floor=-4.0) == 1


def test_score_function_descent_on_a_bad_token_stays_bounded() -> None:
    logits = torch.zeros(1, 2, 4, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=1.0)
    for _ in range(500):
        optimizer.zero_grad()
        logprobs = losses.token_logprobs(logits, torch.tensor([[0, 1]]))
        losses.score_function_loss(logprobs, torch.tensor([[0.0, 3.0]]), 1, logprob_floor=-4.0).backward()
        optimizer.step()
    # above the floor a step moves its own logit by at most -3 and each of the three others by at most +1, so log p ends
    # above -4 - 4; without the floor it falls on with every step, to below -9 after 500
    reached = losses.token_logprobs(logits, torch.tensor([[0, 1]]))[0, 1].item()
    assert -8.0 < reached < -4.0
    assert logits.abs().max() < 10


def test_verdict_loss_is_the_cross_entropy_over_two_tokens_one_position_before() -> None:
    # vocabulary: 0 other, 1 VALID, 2 INVALID; the verdict stands at column 1 and is predicted at column 0
    logits = logits_of((0.5, 0.375, 0.125), (0.98, 0.01, 0.01))
    two = losses.verdict_logits(logits, torch.tensor([0]), torch.tensor([1]), valid_id=1, invalid_id=2)
    # v_hat = 0.375 / (0.375 + 0.125) = 0.75
    assert two.softmax(-1)[0].tolist() == pytest.approx([0.25, 0.75])
    assert losses.verdict_loss(two, torch.tensor([1]), 1).item() == pytest.approx(-math.log(0.75))
    assert losses.verdict_loss(two, torch.tensor([0]), 1).item() == pytest.approx(-math.log(0.25))
    assert losses.verdict_loss(two, torch.tensor([0]), 2).item() == pytest.approx(-math.log(0.25) / 2)


def test_reasoning_loss_is_score_term_plus_likelihood() -> None:
    logprobs = torch.tensor([[0.0, -1.0, -2.0]])
    nll, score = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.0, 1.5, 0.0]])
    loss = losses.reasoning_loss(logprobs, nll, score, n_nll_tokens=1, n_score_tokens=1, weights=PAPER)
    assert loss.item() == pytest.approx(1.5 * -1.0 + 2.0)
    halved = LossWeights(score=0.5)
    loss = losses.reasoning_loss(logprobs, nll, score, n_nll_tokens=1, n_score_tokens=1, weights=halved)
    assert loss.item() == pytest.approx(0.75 * -1.0 + 2.0)


def test_final_loss_of_two_plans_is_score_plus_verdict_plus_likelihood() -> None:
    # row 0: an invalid plan, v_hat 0.75; row 1: a valid one, v_hat 0.5
    logprobs = torch.tensor([[0.0, -1.0, -3.0], [0.0, -2.0, -0.5]])
    nll, score = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]), torch.tensor([[0.0, 2.0, 0.0], [0.0, -1.0, 0.0]])
    two = torch.tensor([[math.log(0.25), math.log(0.75)], [math.log(0.5), math.log(0.5)]])
    loss = losses.final_loss(
        logprobs,
        nll,
        score,
        two,
        torch.tensor([0, 1]),
        n_nll_tokens=2,
        n_score_tokens=2,
        n_plans=2,
        weights=LossWeights(score=0.5),
    )
    # 0.5 * (2 * -1 + -1 * -2) / 2 = 0; 0.5 * (log 4 + log 2) / 2 = 0.75 * log 2; (2 + 0.5) / 2
    assert loss.item() == pytest.approx(0.75 * math.log(2) + 1.25)


def test_losses_of_nothing_are_zero_not_nan() -> None:
    logprobs, zeros = torch.full((1, 2), -1.0), torch.zeros(1, 2)
    assert losses.supervised_loss(logprobs, zeros, 0) == 0
    assert losses.score_function_loss(logprobs, zeros, 0, logprob_floor=-4.0) == 0
    assert losses.verdict_loss(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), 0) == 0
    assert losses.clamped_tokens(logprobs, zeros, logprob_floor=-0.5) == 0


def test_verdict_gradient_moves_the_two_words_against_each_other_only() -> None:
    logits = logits_of((0.5, 0.375, 0.125), (0.98, 0.01, 0.01)).requires_grad_()
    two = losses.verdict_logits(logits, torch.tensor([0]), torch.tensor([1]), valid_id=1, invalid_id=2)
    losses.verdict_loss(two, torch.tensor([1]), 1).backward()
    # d BCE / d logits = p - onehot = (0.25, 0.75) - (0, 1) for (INVALID, VALID); the third word gets none
    assert logits.grad is not None
    assert logits.grad[0, 0].tolist() == pytest.approx([0.0, -0.25, 0.25])
    assert logits.grad[0, 1].abs().sum() == 0


def judged(label: int, coefficient: float) -> TrainingSequence:
    return TrainingSequence(
        token_ids=(0, 0, 1),
        nll_weights=(0.0, 1.0, 0.0),
        score_weights=(0.0, coefficient, 0.0),
        verdict_position=2,
        verdict_label=label,
    )


LOGITS = logits_of((0.5, 0.25, 0.25), (0.2, 0.6, 0.2), (0.4, 0.3, 0.3))
VERDICT_TOKENS = VerdictTokens(valid_id=1, invalid_id=2)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (Objective.SUPERVISED, math.log(2)),  # token 0 with p = 0.5
        (Objective.REASONING, 1.5 * -math.log(2) + math.log(2)),
        # v = 0, v_hat = 0.6 / 0.8 = 0.75; the anchor is token 0 again
        (Objective.FINAL, 1.5 * -math.log(2) + 0.5 * -math.log(0.25) + math.log(2)),
    ],
)
def test_objective_loss_of_one_judged_plan_is_the_hand_worked_number(objective: Objective, expected: float) -> None:
    sequence = judged(label=0, coefficient=1.5)
    loss, numbers = objective_loss(
        objective,
        LOGITS,
        build_batch([sequence], [(0,)]),
        counts=BatchCounts.of([sequence]),
        weights=PAPER,
        verdict_tokens=VERDICT_TOKENS,
    )
    assert loss.item() == pytest.approx(expected)
    assert set(numbers) == set(METRICS[objective])
    assert numbers["loss"] == pytest.approx(expected)


@pytest.mark.parametrize("objective", list(Objective))
def test_objective_loss_of_micro_batches_adds_up_to_that_of_the_batch(objective: Objective) -> None:
    sequences = [judged(0, 1.0), judged(1, -1.0), judged(1, -0.5)]
    counts = BatchCounts.of(sequences)

    def loss_of(rows: list[tuple[int, ...]]) -> float:
        batch = build_batch(sequences, rows)
        logits = LOGITS.repeat(len(rows), len(rows[0]), 1)
        loss, _ = objective_loss(objective, logits, batch, counts=counts, weights=PAPER, verdict_tokens=VERDICT_TOKENS)
        return loss.item()

    together = loss_of([(0,), (1,), (2,)])
    assert loss_of([(0,)]) + loss_of([(1,), (2,)]) == pytest.approx(together)
    assert loss_of([(0, 1, 2)]) == pytest.approx(together)


@pytest.mark.parametrize("objective", list(Objective))
def test_objective_loss_without_anything_to_learn_is_zero_and_differentiable(objective: Objective) -> None:
    nothing = TrainingSequence((0, 1), (0.0, 0.0), (0.0, 0.0))
    logits = torch.zeros(1, 2, 3, requires_grad=True)
    loss, _ = objective_loss(
        objective,
        logits,
        build_batch([nothing], [(0,)]),
        counts=BatchCounts.of([nothing]),
        weights=PAPER,
        verdict_tokens=VERDICT_TOKENS,
    )
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None and logits.grad.abs().sum() == 0


def test_supervised_sequence_weighs_the_response_only() -> None:
    sequence = supervised_sequence([5, 6], [7, 8, 9])
    assert sequence.token_ids == (5, 6, 7, 8, 9)
    assert sequence.nll_weights == (0, 0, 1, 1, 1)
    assert (sequence.n_nll_tokens, sequence.n_score_tokens, len(sequence)) == (3, 0, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": (), "nll_weights": (), "score_weights": ()}, "at least one"),
        ({"nll_weights": (0.0, 1.0)}, "2 entries for 3"),
        ({"score_weights": (0.0, math.nan, 0.0)}, "NaN"),
        ({"score_weights": (0.0, math.inf, 0.0)}, "infinity"),
        ({"nll_weights": (1.0, 1.0, 1.0)}, "must be 0"),
        ({"score_weights": (1.0, 1.0, 1.0)}, "must be 0"),
        ({"nll_weights": (0.0, -1.0, 0.0)}, ">= 0"),
        ({"verdict_position": 1}, "does not fit"),
        ({"verdict_label": 1}, "does not fit"),
        ({"verdict_position": 0, "verdict_label": 1}, "1..2"),
        ({"verdict_position": 3, "verdict_label": 1}, "1..2"),
        ({"verdict_position": 1, "verdict_label": 2}, "0, 1 or -1"),
    ],
)
def test_training_sequence_that_does_not_add_up_is_refused(changes: dict[str, object], message: str) -> None:
    fields = {"token_ids": (1, 2, 3), "nll_weights": (0.0, 1.0, 1.0), "score_weights": (0.0, 0.0, 0.0)}
    with pytest.raises(ValueError, match=message):
        TrainingSequence(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("prompt", "response"), [((), (1,)), ((1,), ())])
def test_supervised_sequence_without_prompt_or_response_is_refused(
    prompt: tuple[int, ...], response: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="both need"):
        supervised_sequence(prompt, response)


def test_training_sequence_survives_pickling_and_shares_equal_weights() -> None:
    sequence = TrainingSequence((5, 6, 7), (0.0, 1.0, 1.0), (0.0, -0.25, -0.25), 2, 1)
    copy = pickle.loads(pickle.dumps(sequence))
    assert copy == sequence
    assert copy.score_weights[1] is copy.score_weights[2]
