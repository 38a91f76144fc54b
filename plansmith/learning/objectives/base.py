"""What a phase minimises, as a value: which columns it reads of each token, and its loss on one micro-batch.

A new objective is one new file beside this one. It names the columns that its sequences carry (`TrainingSequence.of`
takes any), divides its sums by the counts of those columns over the whole optimiser batch, and returns its loss with
the figures to report; loop, packing, storage, trainer and report know none of its names. Where it compares sequences,
a chosen with a rejected one, these have one `unit`, and so lie in one row. What it needs of another model, such as the
log-probabilities of a reference, is a column too, written once by `trainer.token_logprobs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from plansmith.learning.packing import PackedBatch
    from plansmith.learning.token_reading import TokenQuestion, TokenReading


class Objective(Protocol):
    """A frozen value, which travels to every rank; its settings are its fields.

    Every sum is divided by a count of the *whole* batch, never by one of the micro-batch: then a batch may be worked
    off in any number of micro-batches and on any number of ranks with the same result.
    """

    @property
    def name(self) -> str:
        """Return what curves and telemetry call it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that it reads."""

    def loss(self, logits: Tensor, batch: PackedBatch, counts: Mapping[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return this micro-batch's part of the loss, differentiable even where it is 0, and of what is reported.

        Args:
            logits: (B, T, V); those at a token predict the next one.
            batch: the same B rows, on the same device.
            counts: by column, how many of its numbers are not 0 in the whole optimiser batch, of all ranks.

        Returns:
            The loss, and figures by name that add up over micro-batches; ``loss`` is one of them.
        """


@runtime_checkable
class TokenObjective(Objective, Protocol):
    """An objective that asks of logits no more than a `TokenQuestion`, so that no engine needs to hold them all."""

    whole_logits: ClassVar[int]
    """Logits of a micro-batch, padding and prompts included, up to which they may be whole: below, that is quicker."""

    @property
    def question(self) -> TokenQuestion:
        """Return what is read of which tokens."""

    def loss_of(
        self, tokens: TokenReading, batch: PackedBatch, counts: Mapping[str, int]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what `loss` returns, from the answer to the question."""


class Reader(Protocol):
    """What is asked of a model without training it: a number for each token."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that it reads."""

    def read(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Return (B, T) float32; the arguments are those of `Objective.loss`."""
