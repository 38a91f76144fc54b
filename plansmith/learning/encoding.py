"""From supervised examples to training sequences, with the tokenizer of a model."""

from __future__ import annotations

from plansmith.data.rows import ExampleKind, ExampleRow
from plansmith.learning.models import load_tokenizer
from plansmith.learning.sequences import TrainingSequence, supervised_sequence
from plansmith.learning.tokenizer import encode, encode_prompt, end_token_ids


class ExampleEncoder:
    """Encodes examples as a model reads them.

    Args:
        model: folder of the model or adapter.
    """

    def __init__(self, model: str) -> None:
        self._tokenizer = load_tokenizer(model)
        self._end = list(end_token_ids(self._tokenizer, model)[:1])

    def encode(self, row: ExampleRow) -> TrainingSequence:
        """Return an example as tokens; the loss falls on the response and, but for openings, the end mark."""
        prompt = encode_prompt(self._tokenizer, row.prompt, row.beginning)
        response = encode(self._tokenizer, row.response)
        is_whole = row.kind != ExampleKind.PLAN_OPENING
        return supervised_sequence(prompt, response + self._end if is_whole else response)
