"""Reinforcement learning in segments: an evaluation between two changes nothing of what is learnt."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from stand_in_updates import OPTIMISER, SETTINGS, StandInUpdates, stages

from pipelines.stages.training import TRAINER
from pipelines.stages.update_loop import RECORD, SEGMENT_START, UPDATES
from plansmith.config.reinforcement import ReinforcementConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import MetricRow, OptimisationStepRow
from plansmith.data.update_times import BESIDE, CPU, TIMES
from plansmith.learning.optimisation import learning_rate_at
from plansmith.stages import Stage, run_stages


def segments(root: Path, *ends: int) -> list[Artifact]:
    """Return the artifacts of segments that end with these updates, the last of which is the fourth."""
    start, first = stages(SETTINGS.model_copy(update={"last": ends[0]}))
    made = [start, first]
    for begin, end in pairwise(ends):
        settings = SETTINGS.model_copy(update={"first": begin + 1, "last": end})
        inputs = {**first.inputs, "policy": made[-1], SEGMENT_START: start}
        made.append(Stage(name=f"loop_{end}", run=first.run, settings=settings, inputs=inputs, seed=first.seed))
    found = run_stages(made, root=root, resources=StandInUpdates())
    return [found[stage.name] for stage in made[1:]]


def test_segments_have_the_updates_of_the_whole_each_once(tmp_path: Path) -> None:
    first, second = segments(tmp_path, 2, 4)
    for artifact, updates in ((first, {1, 2}), (second, {3, 4})):
        assert {row.iteration for row in artifact.rows(MetricRow, UPDATES)} == updates
        assert {row.iteration for row in artifact.rows(MetricRow, TIMES)} == updates
        assert {row.name for row in artifact.rows(MetricRow, TIMES)} <= {
            f"time/{work}_s"
            for work in (
                "generating",
                "judging",
                f"judging{BESIDE}",
                f"judging{CPU}",
                "training",
                "handing over",
                "saving",
            )
        }


def test_one_schedule_goes_over_all_segments_and_each_counts_its_own_steps(tmp_path: Path) -> None:
    for artifact, updates in zip(segments(tmp_path, 2, 4), ((0, 1), (2, 3)), strict=True):
        curve = artifact.rows(OptimisationStepRow, "curve")
        rates = {learning_rate_at(update, 4, OPTIMISER) for update in updates}
        assert {row.learning_rate for row in curve} <= rates
        assert [row.step for row in curve] == list(range(1, len(curve) + 1)) != []


def test_a_segment_that_others_follow_keeps_what_they_go_on_from_and_the_last_does_not(tmp_path: Path) -> None:
    first, second = segments(tmp_path, 2, 4)
    assert first.path(TRAINER).exists() and first.path(RECORD).is_file()
    names = {name.split("/")[0] for name in second.manifest.files}
    assert TRAINER not in names and RECORD not in names


def test_the_state_of_a_rule_goes_on_from_segment_to_segment(tmp_path: Path) -> None:
    def multipliers(artifacts: list[Artifact]) -> list[float]:
        rows = [row for artifact in artifacts for row in artifact.rows(MetricRow, UPDATES)]
        return [row.value for row in rows if row.name == "cost/multiplier"]

    found = multipliers(segments(tmp_path, 2, 4))
    assert len(found) == 4 and len(set(found)) > 1
    assert max(abs(after - before) for before, after in pairwise(found)) < 0.1


def test_segments_end_in_equal_parts_of_the_updates() -> None:
    config = ReinforcementConfig(updates=7, segments=2, learning_rate=0.1, batch_sequences=8)
    assert config.ends == (4, 7)
    with pytest.raises(ValueError, match="would be empty"):
        ReinforcementConfig(updates=2, segments=3, learning_rate=0.1, batch_sequences=8)
