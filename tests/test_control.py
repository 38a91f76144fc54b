"""The control of the feedback loop has exactly as much supervision as the loop, and nothing that the policy wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import NAMES
from hypothesis import given
from hypothesis import strategies as st
from test_feedback import RIGHT, TOKENIZER, USELESS, StandIns, built, iteration, run

from pipelines.stages.control import (
    ControlSettings,
    Supervision,
    as_much,
    n_weighted,
    with_first_weights,
    write_supervision,
)
from pipelines.stages.training import SEQUENCES, TuningSettings, stage1, tune
from plansmith.config.chains import ChainConfig
from plansmith.config.training import Numerics, OptimiserConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import MetricRow
from plansmith.errors import BadInputError
from plansmith.learning.optimisation import OptimisationReport
from plansmith.learning.sequence_files import StoredSequences
from plansmith.learning.sequences import NLL_WEIGHT, SCORE_WEIGHT, Sequences, TrainingSequence, supervised_sequence

LONGEST = 400
TUNING = TuningSettings(
    optimiser=OptimiserConfig(learning_rate=0.1, batch_tokens=1000), numerics=Numerics(row_length_tokens=LONGEST)
)


class RecordingTrainer(StandIns):
    """Keeps what it is to train on; writes the tokenizer as a model."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[list[TrainingSequence]] = []

    def trainer(self, model_folder: Path, numerics: Numerics) -> Any:
        """Return what records."""
        both = super().trainer(model_folder, numerics)
        return SimpleNamespace(
            predict=both.predict,
            optimise=self._optimise,
            save=self._save,
            token_logprobs=lambda sequences: [np.zeros(len(sequence), np.float32) for sequence in sequences],
        )

    def _optimise(
        self, objective: Any, sequences: Sequences, settings: OptimiserConfig, **_: Any
    ) -> OptimisationReport:
        self.given.append([sequences[position] for position in range(len(sequences))])
        return OptimisationReport(
            objective=objective.name,
            metrics={"loss": (1.0,)},
            learning_rates=(0.1,),
            gradient_norms=(1.0,),
            n_sequences=len(sequences),
            n_dropped=0,
            n_dropped_tokens=0,
            n_tokens=9,
            n_trained_tokens=9,
            wall_time_s=1.0,
        )

    def _save(self, folder: str) -> None:
        TOKENIZER.save_pretrained(folder)
        (Path(folder) / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")


def trained(root: Path, *completions: str, longest: int = LONGEST) -> tuple[RecordingTrainer, Artifact]:
    """Return what the loop's stage 1 and then the control were to train on, and the control's data."""
    trainer, of_loop = RecordingTrainer(), iteration(root, *completions)
    datasets = built(root, of_loop, trainer)
    policy = of_loop["policy"]
    reasoned = run(root, "stage1_1", stage1, TUNING, trainer, policy=policy, datasets=datasets)
    writing = ControlSettings(
        rendering="compact", chains=ChainConfig(), object_names=tuple(NAMES), longest_tokens=longest
    )
    read = {name: of_loop[name] for name in ("policy", "problems", "plans")}
    read |= {"datasets": datasets, "reasoned": reasoned}
    data = run(root, "supervise_data_1", write_supervision, writing, trainer, **read)
    run(root, "supervise_1", tune, TUNING, trainer, policy=policy, sequences=data)
    return trainer, data


def test_control_trains_on_exactly_as_many_weighted_tokens_as_the_loop(tmp_path: Path) -> None:
    trainer, data = trained(tmp_path, RIGHT, USELESS)
    of_loop, of_control = trainer.given
    assert sum(map(n_weighted, of_control)) == sum(map(n_weighted, of_loop)) > 500
    total, longest = sum(map(len, of_loop)), max(map(len, of_control))
    assert total - longest < sum(map(len, of_control)) <= total
    numbers = {row.name.partition("/")[2]: row.value for row in data.rows(MetricRow, "metrics")}
    assert numbers["weighted_tokens"] == numbers["loop_weighted_tokens"] == sum(map(n_weighted, of_loop))
    assert (numbers["tokens"], numbers["loop_tokens"]) == (sum(map(len, of_control)), total)


def test_control_is_taught_the_planners_plans_of_the_same_problems_under_other_names(tmp_path: Path) -> None:
    trainer, data = trained(tmp_path, RIGHT, USELESS)
    ids = StoredSequences(data.parts(SEQUENCES)).ids
    assert {name.rpartition("-")[0] for name in ids} == {"p", "q"}  # the test problem is none of them
    texts = [TOKENIZER.decode(sequence.token_ids) for sequence in trainer.given[1]]
    assert len(set(texts)) == len(texts) > 2
    for text in texts:
        assert text.endswith("met: verdict: VALID <end>") and text.count(" do: ") == 4
    assert all(set(sequence.columns) == {NLL_WEIGHT} for sequence in trainer.given[1])


def test_control_counts_no_sequence_that_is_too_long_to_be_trained_on(tmp_path: Path) -> None:
    lengths = {
        len(sequence): n_weighted(sequence) for sequence in trained(tmp_path / "all", RIGHT, USELESS)[0].given[0]
    }
    longest = sorted(lengths)[-2]
    trainer, _ = trained(tmp_path / "few", RIGHT, USELESS, longest=longest)
    of_loop, of_control = trainer.given
    wanted = sum(n_weighted(sequence) for sequence in of_loop if len(sequence) <= longest)
    assert wanted < sum(map(n_weighted, of_loop))
    assert sum(map(n_weighted, of_control)) == wanted
    assert max(map(len, of_control)) <= longest


def test_control_without_a_chain_that_is_short_enough_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no chain of the planner's plans is short enough"):
        trained(tmp_path, RIGHT, USELESS, longest=16)


def chains(*lengths: int) -> list[tuple[str, TrainingSequence]]:
    return [(f"c{number}", supervised_sequence([1, 2], [3] * length)) for number, length in enumerate(lengths)]


def taken(wanted: Supervision, *lengths: int) -> list[tuple[int, int]]:
    """Return weighted and all tokens of each sequence that is taken of chains with a prompt of two tokens."""
    rows = as_much(wanted, chains(*lengths))
    return [(sum(number > 0 for number in row.numbers), len(row.token_ids)) for row in rows]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Supervision(8, 12), [(4, 6), (4, 6)]),
        (Supervision(6, 12), [(4, 6), (2, 6)]),
        (Supervision(4, 12), [(4, 6), (0, 6)]),
        (Supervision(4, 17), [(4, 6), (0, 6)]),
        (Supervision(6, 6), [(4, 6), (2, 6)]),
        (Supervision(0, 6), [(0, 6)]),
    ],
    ids=["as it comes", "cut", "the last without weight", "not more tokens", "more tokens for the weights", "none"],
)
def test_as_much_by_hand(wanted: Supervision, expected: list[tuple[int, int]]) -> None:
    assert taken(wanted, 4, 4, 4, 4) == expected


@given(st.integers(0, 60), st.integers(0, 200), st.lists(st.integers(1, 9), min_size=80, max_size=80))
def test_as_much_has_the_weighted_tokens_exactly_and_all_tokens_to_within_a_sequence(
    n_wanted: int, n_more: int, lengths: Sequence[int]
) -> None:
    found = taken(Supervision(n_wanted, n_wanted + n_more), *lengths)
    assert sum(weighted for weighted, _ in found) == n_wanted
    total = sum(tokens for _, tokens in found)
    needed = 2 * sum(weighted > 0 for weighted, _ in found) + 9 + n_wanted  # prompts, and the rest of the chain cut
    assert n_wanted + n_more - 11 < total <= max(n_wanted + n_more, needed)


def test_with_first_weights_keeps_tokens_and_other_columns() -> None:
    sequence = TrainingSequence.of([1, 2, 3, 4], {NLL_WEIGHT: [0, 1, 0.5, 1], SCORE_WEIGHT: [0, 2, 2, 2]})
    cut = with_first_weights(sequence, 2)
    assert cut.columns[NLL_WEIGHT].tolist() == [0, 1, 0.5, 0]
    assert cut.columns[SCORE_WEIGHT].tolist() == [0, 2, 2, 2]
    assert sequence.columns[NLL_WEIGHT].tolist() == [0, 1, 0.5, 1]
    assert with_first_weights(sequence, 9).columns[NLL_WEIGHT].tolist() == [0, 1, 0.5, 1]
