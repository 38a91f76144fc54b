"""One training sequence: tokens with named numbers per token, and the unit it belongs to.

What a number means is the business of the objective that reads its column (`plansmith.learning.objectives`); 0 always
means that the token has no part in it. Not here: how rows become sequences (the text and the pipelines), where they are
stored (`sequence_files`) and how they become tensors (`packing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plansmith.data.rows import SequenceRow

NLL_WEIGHT = "nll_weight"
"""Column: weight w >= 0 of ``-w * log p(token)``; 0 on the prompt."""
SCORE_WEIGHT = "score_weight"
"""Column: coefficient c of ``c * log p(token)``: loss of the step (or plan) minus the baseline. Minimising it with
c > 0 makes a bad step less likely, with c < 0 a good one more likely."""
JUDGED = "judged"
"""Column: 1 at each token of what was judged, right or wrong; their number divides the score term."""
VERDICT_LABEL = "verdict_label"
"""Column: at the token VALID or INVALID the validator's verdict, 1 for a valid plan and -1 for another."""
PREFERENCE = "preference"
"""Column: 1 at each token of a chosen response, -1 at each of a rejected one."""
PAIR = "pair"
"""Column: 1 at the last token of a chosen response; their number is that of pairs."""
REFERENCE_LOGPROB = "reference_logprob"
"""Column: at the last token of a response log f0(y|x), the sum over its tokens, by the policy that f0 was."""
RESPONSE_MASK = "response_mask"
"""Column: 1 at each token that the policy wrote and that counts."""
ROLLOUT_END = "rollout_end"
"""Column: 1 at the last token of a rollout; their number is that of rollouts."""
ADVANTAGE = "advantage"
"""Column: at each token of a rollout by how much it is better than what was to be expected."""
COST_ADVANTAGE = "cost_advantage"
"""Column: at each token of a rollout by how much more it costs than was to be expected."""
ROLLOUT_LOGPROBS = "rollout_logprobs"
"""Column: log p of each token by the engine that wrote it."""
OLD_LOGPROBS = "old_logprobs"
"""Column: log p of each token in what it was drawn from, by the trainer as the update begins. Where it may be 0, which
is the logarithm of 1, and in the next column, `RESPONSE_MASK` says what counts."""
REFERENCE_LOGPROBS = "reference_logprobs"
"""Column: log p of each token by the policy that must not be left far behind."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSequence:
    """Prompt and response as tokens, with what objectives read of each token.

    Attributes:
        token_ids: (T,) int32, prompt and then response.
        columns: (T,) float32 by name. A column that is not there is 0 everywhere.
        unit: sequences of one unit, such as a preference pair, are trained on in one row or not at all; an empty one
            is a unit of its own.

    Raises:
        ValueError: no token; a column of another length, with NaN or infinity, or with a number at the first token,
            which nothing predicts.
    """

    token_ids: NDArray[np.int32]
    columns: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    unit: str = ""

    def __post_init__(self) -> None:
        if len(self.token_ids) == 0:
            raise ValueError("a training sequence needs at least one token")
        for name, numbers in self.columns.items():
            if len(numbers) != len(self.token_ids):
                raise ValueError(f"{name} has {len(numbers)} entries for {len(self.token_ids)} tokens")
            if not np.isfinite(numbers).all():
                raise ValueError(f"{name} holds NaN or infinity")
            if numbers[0] != 0:
                raise ValueError(f"{name}[0] must be 0: nothing predicts the first token; got {numbers[0]}")

    @classmethod
    def of(cls, token_ids: ArrayLike, columns: Mapping[str, ArrayLike], unit: str = "") -> TrainingSequence:
        """Return a sequence of any numbers; those of the columns are rounded to float32."""
        arrays = {name: np.asarray(numbers, np.float32) for name, numbers in columns.items()}
        return cls(np.asarray(token_ids, np.int32), arrays, unit)

    def __len__(self) -> int:
        return len(self.token_ids)

    def row(self, sequence_id: str) -> SequenceRow:
        """Return the row under which the sequence is stored."""
        numbers = [number for column in self.columns.values() for number in column.tolist()]
        return SequenceRow(sequence_id, self.unit, tuple(self.token_ids.tolist()), tuple(self.columns), tuple(numbers))


class Sequences(Protocol):
    """Training sequences by position, held (a list) or stored (`sequence_files.StoredSequences`)."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> TrainingSequence: ...


def supervised_sequence(prompt_ids: Sequence[int], response_ids: Sequence[int], *, unit: str = "") -> TrainingSequence:
    """Return a sequence whose loss is the plain next-token loss on the response only.

    Raises:
        ValueError: an empty prompt (then nothing predicts the response's first token) or an empty response.
    """
    if not prompt_ids or not response_ids:
        raise ValueError(f"prompt has {len(prompt_ids)}, response {len(response_ids)} tokens; both need one or more")
    weights = [0.0] * len(prompt_ids) + [1.0] * len(response_ids)
    return TrainingSequence.of([*prompt_ids, *response_ids], {NLL_WEIGHT: weights}, unit)


def rollout_sequence(
    prompt_ids: Sequence[int],
    response_ids: Sequence[int],
    *,
    advantage: float | Sequence[float],
    cost_advantage: Sequence[float] = (),
    rollout_logprobs: Sequence[float] = (),
) -> TrainingSequence:
    """Return a rollout with its advantage.

    Args:
        prompt_ids, response_ids: tokens.
        advantage: of the whole rollout, the same at each of its tokens; or one a token of the response.
        cost_advantage: one a token of the response; none leaves the column out.
        rollout_logprobs: one a token of the response, as the engine gave them; none leaves the column out.

    Raises:
        ValueError: an empty prompt or response, or not a log-probability for each token of the response.
    """
    if not prompt_ids or not response_ids or len(rollout_logprobs) not in (0, len(response_ids)):
        raise ValueError(
            f"prompt has {len(prompt_ids)}, response {len(response_ids)} tokens, both need one or more; "
            f"{len(rollout_logprobs)} log-probabilities of the engine"
        )
    zeros, n_tokens = [0.0] * len(prompt_ids), len(response_ids)
    by_token = [advantage] * n_tokens if isinstance(advantage, int | float) else [*advantage]
    columns = {
        RESPONSE_MASK: [*zeros, *[1.0] * n_tokens],
        ROLLOUT_END: [*zeros, *[0.0] * (n_tokens - 1), 1.0],
        ADVANTAGE: [*zeros, *by_token],
    }
    if cost_advantage:
        columns[COST_ADVANTAGE] = [*zeros, *cost_advantage]
    if rollout_logprobs:
        columns[ROLLOUT_LOGPROBS] = [*zeros, *rollout_logprobs]
    return TrainingSequence.of([*prompt_ids, *response_ids], columns)


def preference_sequences(
    prompt_ids: Sequence[int],
    chosen_ids: Sequence[int],
    rejected_ids: Sequence[int],
    *,
    unit: str,
    reference_logprobs: tuple[float, float] | None = None,
) -> tuple[TrainingSequence, TrainingSequence]:
    """Return a preference pair: prompt with chosen, and prompt with rejected response, as one unit.

    Args:
        prompt_ids: of both, x.
        chosen_ids, rejected_ids: y+ and y-, each with its end token.
        unit: a name that no other pair has.
        reference_logprobs: log f0(y+|x) and log f0(y-|x); None for a pair that f0 has yet to read (`with_reference`).

    Raises:
        ValueError: no name, an empty prompt or response, two responses that are one, or no log-probabilities.
    """
    if not unit or list(chosen_ids) == list(rejected_ids):
        raise ValueError(f"a pair has a name and two responses that differ, got unit={unit!r} and {list(chosen_ids)}")
    chosen, rejected = (supervised_sequence(prompt_ids, ids, unit=unit) for ids in (chosen_ids, rejected_ids))
    is_response, is_last = chosen.columns[NLL_WEIGHT], np.zeros(len(chosen), np.float32)
    is_last[-1] = 1.0
    chosen = replace(chosen, columns={NLL_WEIGHT: is_response, PREFERENCE: is_response, PAIR: is_last})
    rejected = replace(rejected, columns={PREFERENCE: -rejected.columns[NLL_WEIGHT]})
    if reference_logprobs is None:
        return chosen, rejected
    of_chosen, of_rejected = reference_logprobs
    return with_reference(chosen, of_chosen), with_reference(rejected, of_rejected)


def with_reference(sequence: TrainingSequence, logprob: float) -> TrainingSequence:
    """Return one half of a preference pair with log f0(y|x) of its response.

    Raises:
        ValueError: above 0, which no logarithm of a probability is, NaN or infinite.
    """
    if logprob > 0:
        raise ValueError(f"a log-probability is at most 0, got {logprob}")
    reference = np.zeros(len(sequence), np.float32)
    reference[-1] = logprob
    return replace(sequence, columns={**sequence.columns, REFERENCE_LOGPROB: reference})
