"""Stages of preference pairs: which mistakes become pairs, and what the reference reads of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_feedback import artifact, run

from pipelines.stages.preference import PairSettings, read_reference, write_pairs
from pipelines.stages.training import SEQUENCES
from plansmith.config.training import Numerics
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import PairRow, PerturbedRow, TextRow
from plansmith.errors import BadInputError
from plansmith.learning.sequence_files import StoredSequences
from plansmith.learning.sequences import PAIR, PREFERENCE, REFERENCE_LOGPROB, TrainingSequence
from plansmith.resources import Resources


def given(root: Path, *faults: str | None) -> dict[str, Artifact]:
    """Return two problems in words, and of each a problem with each of the faults."""
    texts = [
        TextRow(name, "blocksworld", "L1", "d1", f"goal: on? {name} b", f"on {name} b", (), f"{name} b")
        for name in "ac"
    ]
    perturbed = [
        PerturbedRow(
            f"{text.problem_id}-{k}", text.problem_id, "fact_dropped", fault, f"on b a {'clear ' * k}clear a", ""
        )
        for text in texts
        for k, fault in enumerate(faults)
    ]
    rows = "rows"
    return {
        "texts": artifact(root, "texts", (rows, TextRow, texts)),
        "perturbed": artifact(root, "perturbed", (rows, PerturbedRow, perturbed)),
        "policy": artifact(root, "policy"),
    }


def pairs_of(root: Path, negatives: Any, per_problem: int, *faults: str | None) -> Artifact:
    found = given(root, *faults)
    settings = PairSettings(negatives=negatives, per_problem=per_problem, held_out_share=0.0)
    return run(
        root, "write_pairs", write_pairs, settings, Resources(), texts=found["texts"], perturbed=found["perturbed"]
    )


@pytest.mark.parametrize(
    ("negatives", "expected"),
    [
        ("paper", {"unparseable", "unsolvable", "worse"}),
        ("faithful", {"unparseable", "unsolvable", "worse", "unfaithful"}),
    ],
)
def test_write_pairs_takes_problems_with_the_proved_faults_that_are_wanted(
    tmp_path: Path, negatives: str, expected: set[str]
) -> None:
    faults = ("unparseable", "unsolvable", "worse", "unfaithful", None)
    rows = pairs_of(tmp_path, negatives, 9, *faults).rows(PairRow)
    assert {row.fault for row in rows} == expected
    assert {(row.prompt, row.chosen) for row in rows} == {(f"goal: on? {name} b", f"on {name} b\n") for name in "ac"}
    assert {answer[len(answer.rstrip()) :] for row in rows for answer in (row.chosen, row.rejected)} == {"\n"}


def test_write_pairs_of_few_takes_each_fault_once_before_any_again(tmp_path: Path) -> None:
    rows = pairs_of(tmp_path, "paper", 2, "unparseable", "unparseable", "unparseable", "unsolvable").rows(PairRow)
    assert [row.problem_id for row in rows] == ["a", "a", "c", "c"]
    assert all({row.fault for row in rows[k : k + 2]} == {"unparseable", "unsolvable"} for k in (0, 2))


def test_write_pairs_without_a_proved_fault_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no preference pair") as caught:
        pairs_of(tmp_path, "paper", 2, "unfaithful", None)
    assert (caught.value.where, caught.value.got) == ("blocksworld", "4 draws: 2 of no proved fault, 2 unfaithful")


class ReadsLengths(Resources):
    """Has a trainer that gives every token the log-probability -1."""

    def trainer(self, model_folder: Path, numerics: Numerics) -> Any:
        def token_logprobs(sequences: Sequence[TrainingSequence], **_: bool) -> list[NDArray[np.float32]]:
            return [np.full(len(sequence), -1.0, np.float32) for sequence in sequences]

        return SimpleNamespace(token_logprobs=token_logprobs)


def test_read_reference_writes_both_halves_with_the_logprobs_of_their_answers_and_end_marks(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, "paper", 1, "unsolvable")
    policy = artifact(tmp_path, "policy")
    made = run(tmp_path, "read_reference", read_reference, Numerics(), ReadsLengths(), pairs=pairs, policy=policy)
    stored = StoredSequences(made.parts(SEQUENCES))
    assert stored.ids == ["a-0-0", "a-0-1", "c-0-0", "c-0-1"]
    for position, n_answer in enumerate((4, 6, 4, 6)):  # on a b, on b a clear a, and the end mark
        columns = stored[position].columns
        assert stored[position].unit == ("a-0", "c-0")[position // 2]
        assert np.abs(columns[PREFERENCE]).sum() == n_answer
        assert columns[REFERENCE_LOGPROB].sum() == -n_answer
        assert (PAIR in columns) == (position % 2 == 0)
