"""Losses against numbers worked out by hand, signs of gradients, and transformers' own loss."""

from __future__ import annotations

import math
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from plansmith.config.training import LossConfig
from plansmith.data.rows import SequenceRow
from plansmith.data.tables import write_table
from plansmith.learning import losses
from plansmith.learning.objectives.base import Objective
from plansmith.learning.objectives.final import Final, VerdictReader, v_hats
from plansmith.learning.objectives.reasoning import Reasoning
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.packing import build_batch
from plansmith.learning.printed_losses import binary_cross_entropy, feedback_penalty, plan_loss, step_loss
from plansmith.learning.sequence_files import StoredSequences, lengths_of, unit_names_of
from plansmith.learning.sequences import (
    JUDGED,
    NLL_WEIGHT,
    SCORE_WEIGHT,
    VERDICT_LABEL,
    TrainingSequence,
    supervised_sequence,
)
from plansmith.pddl.validation import FeedbackCode

PAPER = LossConfig(score=1.0)


def logits_of(*probabilities: tuple[float, ...]) -> torch.Tensor:
    """Return (1, T, V) logits whose softmax is exactly the given rows."""
    return torch.tensor([[[math.log(p) for p in row] for row in probabilities]])


@pytest.mark.parametrize(
    ("code", "detailed", "binary"),
    [
        ("ok", 0.0, 0.0),
        ("malformed", 1.0, 1.0),
        ("precondition", 1.0, 1.0),
        ("effect", 1.0, 1.0),
        ("goal", 1.5, 1.0),
        ("claim", 1.0, 1.0),
    ],
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
    two = losses.verdict_logits(logits, torch.tensor([[0, 1]]), valid_id=1, invalid_id=2)
    # v_hat = 0.375 / (0.375 + 0.125) = 0.75
    assert two.softmax(-1)[0].tolist() == pytest.approx([0.25, 0.75])
    assert losses.verdict_loss(two, torch.tensor([1]), 1).item() == pytest.approx(-math.log(0.75))
    assert losses.verdict_loss(two, torch.tensor([0]), 1).item() == pytest.approx(-math.log(0.25))
    assert losses.verdict_loss(two, torch.tensor([0]), 2).item() == pytest.approx(-math.log(0.25) / 2)


def test_losses_of_nothing_are_zero_not_nan() -> None:
    logprobs, zeros = torch.full((1, 2), -1.0), torch.zeros(1, 2)
    assert losses.supervised_loss(logprobs, zeros, 0) == 0
    assert losses.score_function_loss(logprobs, zeros, 0, logprob_floor=-4.0) == 0
    assert losses.verdict_loss(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), 0) == 0
    assert losses.clamped_tokens(logprobs, zeros, logprob_floor=-0.5) == 0


def test_verdict_gradient_moves_the_two_words_against_each_other_only() -> None:
    logits = logits_of((0.5, 0.375, 0.125), (0.98, 0.01, 0.01)).requires_grad_()
    two = losses.verdict_logits(logits, torch.tensor([[0, 1]]), valid_id=1, invalid_id=2)
    losses.verdict_loss(two, torch.tensor([1]), 1).backward()
    # d BCE / d logits = p - onehot = (0.25, 0.75) - (0, 1) for (INVALID, VALID); the third word gets none
    assert logits.grad is not None
    assert logits.grad[0, 0].tolist() == pytest.approx([0.0, -0.25, 0.25])
    assert logits.grad[0, 1].abs().sum() == 0


def judged(label: int, coefficient: float) -> TrainingSequence:
    columns = {
        NLL_WEIGHT: (0, 1, 0),
        SCORE_WEIGHT: (0, coefficient, 0),
        JUDGED: (0, 1, 1),
        VERDICT_LABEL: (0, 0, label),
    }
    return TrainingSequence.of((0, 0, 1), columns)


LOGITS = logits_of((0.5, 0.25, 0.25), (0.2, 0.6, 0.2), (0.4, 0.3, 0.3))
OBJECTIVES: list[Objective] = [Supervised(), Reasoning(PAPER), Final(PAPER, VerdictReader(valid_id=1, invalid_id=2))]
NAMES = [objective.name for objective in OBJECTIVES]


def counts_of(objective: Objective, sequences: list[TrainingSequence]) -> dict[str, int]:
    """Return how many numbers of each column are not 0."""
    zeros = np.zeros(1)
    return {name: sum(np.count_nonzero(s.columns.get(name, zeros)) for s in sequences) for name in objective.columns}


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (OBJECTIVES[0], {"nll": math.log(2), "loss": math.log(2)}),  # token 0 with p = 0.5
        (
            Reasoning(LossConfig(score=0.5)),  # half of 1.5 * log 0.5 over two judged tokens, and the likelihood
            {"nll": math.log(2), "score": -0.75 * math.log(2), "clamped_share": 0.0, "loss": 0.625 * math.log(2)},
        ),
        (
            OBJECTIVES[2],  # v = 0, v_hat = 0.6 / 0.8 = 0.75; the anchor is token 0 again
            {
                "nll": math.log(2),
                "score": -0.75 * math.log(2),
                "clamped_share": 0.0,
                "bce": -math.log(0.25),
                "loss": 0.75 * -math.log(2) + 0.5 * -math.log(0.25) + math.log(2),
            },
        ),
    ],
    ids=NAMES,
)
def test_objective_of_one_judged_plan_gives_the_hand_worked_numbers(
    objective: Objective, expected: dict[str, float]
) -> None:
    sequence = judged(label=-1, coefficient=1.5)
    batch = build_batch([sequence], [(0,)], objective.columns)
    loss, parts = objective.loss(LOGITS, batch, counts_of(objective, [sequence]))
    assert {name: float(part) for name, part in parts.items()} == pytest.approx(expected)
    assert loss.item() == pytest.approx(expected["loss"])


@pytest.mark.parametrize("objective", OBJECTIVES, ids=NAMES)
def test_objective_of_micro_batches_adds_up_to_that_of_the_batch(objective: Objective) -> None:
    sequences = [judged(-1, 1.0), judged(1, -1.0), judged(1, -0.5)]
    counts = counts_of(objective, sequences)

    def loss_of(rows: list[tuple[int, ...]]) -> float:
        batch = build_batch(sequences, rows, objective.columns)
        loss, _ = objective.loss(LOGITS.repeat(len(rows), len(rows[0]), 1), batch, counts)
        return loss.item()

    together = loss_of([(0,), (1,), (2,)])
    assert loss_of([(0,)]) + loss_of([(1,), (2,)]) == pytest.approx(together)
    assert loss_of([(0, 1, 2)]) == pytest.approx(together)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=NAMES)
def test_objective_without_anything_to_learn_is_zero_and_differentiable(objective: Objective) -> None:
    nothing = TrainingSequence.of((0, 1), {})
    logits = torch.zeros(1, 2, 3, requires_grad=True)
    batch = build_batch([nothing], [(0,)], objective.columns)
    loss, _ = objective.loss(logits, batch, counts_of(objective, [nothing]))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None and logits.grad.abs().sum() == 0


def test_verdict_reader_reads_v_hat_at_verdicts_and_none_without_one() -> None:
    sequences = [judged(-1, 0.0), supervised_sequence([0], [0, 1])]
    reader = VerdictReader(valid_id=1, invalid_id=2)
    read = reader.read(LOGITS.repeat(2, 1, 1), build_batch(sequences, [(0,), (1,)], reader.columns))
    assert read.tolist() == [[0.0, 0.0, pytest.approx(0.75)], [0.0, 0.0, 0.0]]
    assert v_hats(list(read.numpy()), sequences) == [pytest.approx(0.75), None]


def test_supervised_sequence_weighs_the_response_only() -> None:
    sequence = supervised_sequence([5, 6], [7, 8, 9])
    assert sequence.token_ids.tolist() == [5, 6, 7, 8, 9]
    assert {name: column.tolist() for name, column in sequence.columns.items()} == {NLL_WEIGHT: [0, 0, 1, 1, 1]}
    assert len(sequence) == 5


@pytest.mark.parametrize(
    ("token_ids", "column", "message"),
    [
        ((), (), "at least one"),
        ((1, 2, 3), (0.0, 1.0), "2 entries for 3"),
        ((1, 2, 3), (0.0, math.nan, 0.0), "NaN"),
        ((1, 2, 3), (0.0, math.inf, 0.0), "infinity"),
        ((1, 2, 3), (1.0, 1.0, 1.0), "must be 0"),
    ],
)
def test_training_sequence_that_does_not_add_up_is_refused(
    token_ids: tuple[int, ...], column: tuple[float, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSequence.of(token_ids, {"any": column})


@pytest.mark.parametrize(("prompt", "response"), [((), (1,)), ((1,), ())])
def test_supervised_sequence_without_prompt_or_response_is_refused(
    prompt: tuple[int, ...], response: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="both need"):
        supervised_sequence(prompt, response)


@pytest.mark.parametrize("n_rows", [1, 300], ids=["one", "over groups and files"])
@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_stored_sequences_are_those_written_in_any_order(
    n_rows: int, cache_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plansmith.learning.sequence_files.CACHE_BYTES", cache_bytes)
    columns = [{}, {NLL_WEIGHT: 0.1}, {NLL_WEIGHT: 1.0, SCORE_WEIGHT: 1 / 3}]
    written = [
        TrainingSequence.of(
            range(1 + number % 7),
            {name: (0.0, *[weight] * (number % 7)) for name, weight in columns[number % 3].items()},
            unit=str(number // 2) if number % 5 else "",
        )
        for number in range(n_rows)
    ]
    rows = [sequence.row(f"s{number}") for number, sequence in enumerate(written)]
    for name, part in (("a", rows[: 2 * n_rows // 3]), ("b", rows[2 * n_rows // 3 :])):
        write_table(tmp_path / f"{name}.parquet", part, SequenceRow)
    order = random.Random(0).sample(range(n_rows), (n_rows + 1) // 2)
    stored = pickle.loads(pickle.dumps(StoredSequences(sorted(tmp_path.iterdir())).in_order(order)))
    assert len(stored) == len(order) and stored.ids == [f"s{place}" for place in order]
    assert lengths_of(stored).tolist() == lengths_of([written[place] for place in order]).tolist()
    assert unit_names_of(stored) == [written[place].unit for place in order]
    for position, place in enumerate(order):
        assert_equal(stored[position], written[place])


def test_training_sequence_survives_pickling() -> None:
    sequence = TrainingSequence.of((5, 6, 7), {NLL_WEIGHT: (0, 1, 1), SCORE_WEIGHT: (0, -0.1, 1 / 3)}, unit="pair 1")
    assert_equal(pickle.loads(pickle.dumps(sequence)), sequence)


def assert_equal(ours: TrainingSequence, theirs: TrainingSequence) -> None:
    assert (ours.token_ids.tolist(), ours.unit) == (theirs.token_ids.tolist(), theirs.unit)
    assert {n: c.tolist() for n, c in ours.columns.items()} == {n: c.tolist() for n, c in theirs.columns.items()}
    assert {array.dtype for array in (*ours.columns.values(), *theirs.columns.values())} <= {np.dtype(np.float32)}
