"""Log-probabilities by the weights of another folder, of which the trainer keeps a frozen copy, while it trains on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import on_two_ranks
from test_trainer import (
    BFLOAT16,
    BY_HEART,
    LORA,
    PROBE,
    SETTINGS,
    changed,
    make_model,
    supervised_sequences,
    weights_of,
)

from actors.trainer import TrainerActor
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequences import TrainingSequence

LEARNING = changed(BY_HEART, epochs=3, warmup_steps=0)
READ = [TrainingSequence.of(PROBE, {}), *supervised_sequences(2)]


def learnt(trainer: TrainerActor) -> None:
    trainer.optimise(Supervised(), supervised_sequences(), LEARNING, keeps_moments=True)


def read_between_two_optimisations(config: Any, start: Path, **place: int) -> dict[str, Any]:
    """Return what is read by the start after an optimisation, and the weights after another; also without reading."""
    found: dict[str, Any] = {}
    for name, reference in (("calm", None), ("read", str(start))):
        trainer = TrainerActor(start, config=config, **place)
        if reference is not None:
            found["at first"] = trainer.token_logprobs(READ, as_trained=True)
        learnt(trainer)
        if reference is not None:
            found["own before"] = trainer.token_logprobs(READ, as_trained=True)
            found["reference"] = trainer.token_logprobs(READ, as_trained=True, weights=reference)
            found["reference again"] = trainer.token_logprobs(READ, as_trained=True, weights=reference)
            found["own after"] = trainer.token_logprobs(READ, as_trained=True)
        learnt(trainer)
        found[name] = weights_of(trainer)
        trainer.end()
    return found


def check(found: dict[str, Any]) -> None:
    for expected, names in (("at first", ("reference", "reference again")), ("own before", ("own after",))):
        for name in names:
            for one, other in zip(found[expected], found[name], strict=True):
                assert (one == other).all(), name
    assert abs(found["reference"][0] - found["own before"][0]).max() > 0.1
    assert all(torch.equal(found["calm"][name], weight) for name, weight in found["read"].items())


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="adamw"),
        pytest.param({"optimizer": "muon"}, id="muon", marks=pytest.mark.long),
        pytest.param(BFLOAT16, id="bfloat16", marks=pytest.mark.long),
        pytest.param({"zero_stage": 3}, id="zero 3", marks=pytest.mark.long),
        pytest.param({"zero_stage": 2, "lora": LORA}, id="adapter"),
    ],
)
def test_start_is_read_as_it_was_and_training_goes_on_as_if_it_had_not_been(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    check(read_between_two_optimisations(changed(SETTINGS, **changes), make_model(tmp_path / "model")))


def test_folder_is_read_once(tmp_path: Path) -> None:
    start = make_model(tmp_path / "model")
    trainer = TrainerActor(start, config=SETTINGS)
    reference = shutil.copytree(start, tmp_path / "reference")
    first = trainer.token_logprobs(READ, weights=str(reference))
    shutil.rmtree(reference)
    learnt(trainer)
    again = trainer.token_logprobs(READ, weights=str(reference))
    assert all((one == other).all() for one, other in zip(first, again, strict=True))


def read_on_a_rank(rank: int, port: int, start: Path, kinds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    place = {"rank": rank, "n_ranks": 2, "master_port": port}
    return [read_between_two_optimisations(changed(SETTINGS, n_ranks=2, **kind), start, **place) for kind in kinds]


@pytest.mark.long
def test_two_ranks_read_the_start_each_with_its_share(tmp_path: Path) -> None:
    start = make_model(tmp_path / "wide", hidden_size=320)  # else ZeRO 3 keeps its matrices whole
    kinds = [{}, {"zero_stage": 3}, {"zero_stage": 3, "offload": "all"}]
    first, second = on_two_ranks(read_on_a_rank, start, kinds)
    for found, other in zip(first, second, strict=True):
        check(found)
        assert all((a == b).all() for a, b in zip(found["reference"], other["reference"], strict=True))
