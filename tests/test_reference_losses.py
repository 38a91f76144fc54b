"""Our losses and log-probabilities against those of other libraries on the same tensors, and step sums by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plansmith.config.training import LossConfig
from plansmith.data.rows import JudgedStepRow
from plansmith.learning import losses
from plansmith.learning.feedback import SampledTokens, reasoning_sequence
from plansmith.learning.objectives.reasoning import Reasoning, score_parts
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.packed_attention import register_packed_attention
from plansmith.learning.packing import build_batch, pack_rows, units_of
from plansmith.learning.sequences import JUDGED, NLL_WEIGHT, SCORE_WEIGHT, supervised_sequence
from plansmith.pddl.validation import FeedbackCode
from plansmith.text.chains import Span

EXAMPLES = [([3, 4], [5, 6, 7, 8, 9]), ([10], [11, 12]), ([13, 14, 15], [16, 17, 18])]
"""Prompts and responses as token ids."""


@pytest.fixture(scope="module")
def model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.3,
    )
    config._attn_implementation = register_packed_attention()
    return LlamaForCausalLM(config)


def our_loss(model: Any, indices: range) -> torch.Tensor:
    """Return our supervised loss of these examples, packed into rows of eleven tokens."""
    sequences = [supervised_sequence(*EXAMPLES[index]) for index in indices]
    rows = pack_rows(units_of([len(s) for s in sequences], [""] * len(sequences)), 11)
    batch = build_batch(sequences, rows, Supervised.columns)
    counts = {NLL_WEIGHT: sum(len(EXAMPLES[index][1]) for index in indices)}
    loss, _ = Supervised().loss(model(**batch.model_inputs()).logits, batch, counts)
    return loss


def gradients_of(model: Any, loss: torch.Tensor) -> Iterator[torch.Tensor]:
    yield from torch.autograd.grad(loss, list(model.parameters()))


def test_packed_loss_and_gradient_equal_those_of_transformers_on_each_example_alone(model: Any) -> None:
    ours = our_loss(model, range(3))
    total = torch.zeros(())
    for prompt, response in EXAMPLES:
        token_ids = torch.tensor([prompt + response])
        labels = torch.tensor([[-100] * len(prompt) + response])
        lengths = ((len(prompt + response),),)
        total = total + len(response) * model(input_ids=token_ids, labels=labels, sequence_lengths=lengths).loss
    theirs = total / 10  # response tokens: 5 + 2 + 3
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    pairs = zip(gradients_of(model, ours), gradients_of(model, theirs), strict=True)
    assert all(torch.allclose(our, their, atol=5e-6) for our, their in pairs)  # gradients up to 1.3: rounding


@pytest.fixture(scope="module")
def trl_trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return TRL's supervised trainer on a copy of the model above, with plain attention."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    folder: Path = tmp_path_factory.mktemp("trl")
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(50)}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w1", pad_token="w2")
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    rows = [
        {"input_ids": prompt + response, "completion_mask": [0] * len(prompt) + [1] * len(response)}
        for prompt, response in EXAMPLES
    ]
    return SFTTrainer(
        model=LlamaForCausalLM(config),
        args=SFTConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            report_to=[],
            max_length=None,
            completion_only_loss=True,
            gradient_checkpointing=False,
            dataset_num_proc=None,
            disable_tqdm=True,
        ),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
    )


def test_packed_loss_and_gradient_equal_those_of_trls_sft(model: Any, trl_trainer: Any) -> None:
    trl_trainer.model.load_state_dict(model.state_dict())
    batch = trl_trainer.data_collator([trl_trainer.train_dataset[i] for i in range(3)])
    assert (batch["labels"] != -100).sum() == 10  # TRL pads, and counts the same tokens
    theirs = trl_trainer.compute_loss(trl_trainer.model, batch)
    ours = our_loss(model, range(3))
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    pairs = zip(gradients_of(model, ours), gradients_of(trl_trainer.model, theirs), strict=True)
    assert all(torch.allclose(our, their, atol=5e-6) for our, their in pairs)  # gradients up to 1.3: rounding


def test_token_logprobs_and_their_gradient_equal_trls_selective_log_softmax() -> None:
    from trl.trainer.utils import selective_log_softmax

    generator = torch.Generator().manual_seed(0)
    logits = (10 * torch.randn(3, 7, 50, generator=generator)).requires_grad_()
    token_ids = torch.randint(0, 50, (3, 7), generator=generator)
    ours = losses.token_logprobs(logits, token_ids)[:, 1:]
    theirs = selective_log_softmax(logits[:, :-1], token_ids[:, 1:])
    assert torch.allclose(ours, theirs, atol=1e-5)
    weights = torch.randn(3, 6, generator=generator)
    (our_gradient,) = torch.autograd.grad((weights * ours).sum(), logits)
    (their_gradient,) = torch.autograd.grad((weights * theirs).sum(), logits)
    assert torch.allclose(our_gradient, their_gradient, atol=1e-5)


def test_log_probability_of_a_step_is_the_sum_over_its_tokens() -> None:
    # vocabulary of four; the step is tokens 2 and 3, predicted with probabilities 1/2 and 1/8
    probabilities = [[0.25] * 4, [0.125, 0.25, 0.5, 0.125], [0.25, 0.5, 0.125, 0.125], [0.25] * 4]
    logits = torch.tensor([probabilities]).log().requires_grad_()
    logprobs = losses.token_logprobs(logits, torch.tensor([[0, 1, 2, 3]]))
    assert logprobs[0, 2:].sum().item() == pytest.approx(math.log(1 / 16))
    loss = losses.score_function_loss(logprobs, torch.tensor([[0.0, 0.0, 3.0, 3.0]]), 2, logprob_floor=-4.0)
    # L_step 3 times log p(step), over two tokens; its gradient is that of 1.5 * log p(step)
    assert loss.item() == pytest.approx(1.5 * math.log(1 / 16))
    (ours,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (step,) = torch.autograd.grad(logprobs[0, 2:].sum(), logits)
    assert torch.allclose(ours, 1.5 * step)
    # d log p(2) / d logits at the second position = onehot(2) - p
    assert step[0, 1].tolist() == pytest.approx([-0.125, -0.25, 0.5, -0.125])


def test_a_steps_loss_falls_on_its_false_words_and_is_divided_by_all_that_was_judged() -> None:
    # prompt of two tokens; completion: choice (2 tokens), outcome (2), then a second step alike
    tokens = SampledTokens((0, 0), tuple(range(1, 9)), tuple(Span(i, i + 1) for i in range(8)))
    faults = ((1, 0, FeedbackCode.EFFECT, Span(3, 4)), (2, 4, FeedbackCode.PRECONDITION, Span(4, 6)))
    steps = [
        JudgedStepRow("r", "p", 1, "v", number, "(a)", code, 0, "", (), fault, (), (), (), Span(i, i + 2),
                      Span(i + 2, i + 4))
        for number, i, code, fault in faults
    ]  # fmt: skip
    sequence = reasoning_sequence(tokens, steps, [2.0, 0.5])
    # the first step claims a wrong atom; the second cannot be taken: its action
    assert sequence.columns[SCORE_WEIGHT].tolist() == [0, 0, 0, 0, 0, 2.0, 0.5, 0.5, 0, 0]
    objective = Reasoning(LossConfig(score=1.0, logprob_floor=-100.0))
    batch = build_batch([sequence], [(0,)], objective.columns)
    counts = {name: int(np.count_nonzero(sequence.columns[name])) for name in objective.columns}
    assert counts == {NLL_WEIGHT: 0, SCORE_WEIGHT: 3, JUDGED: 8}
    score = score_parts(-torch.arange(10.0)[None], batch, counts, objective.weights)["score"]
    # (2 * -5 + 0.5 * (-6 - 7)) / 8 tokens of two steps
    assert score.item() == pytest.approx(-16.5 / 8)
