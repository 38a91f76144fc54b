"""A label budget: which plans a share has, what is tried without them, what each share is trained on; nothing runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from stand_in_updates import OPTIMISER, StandInTrainer, StandInUpdates, begin

from pipelines.generalization_gap import PIPELINE, generalization_gap
from pipelines.stages.label_budget import SharingSettings, in_share, share_labels, tune_labelled
from pipelines.stages.plan_data import write_plans
from pipelines.stages.training import SEQUENCES, TuningSettings
from plansmith.config.dataset import PlanExamplesConfig
from plansmith.config.training import Numerics, OptimiserConfig
from plansmith.data.artifacts import Artifact, StageKind
from plansmith.data.rows import PlanRow, ProblemRow, SequenceRow, SolvedProblemRow, Split
from plansmith.errors import BadInputError
from plansmith.learning.optimisation import OptimisationReport
from plansmith.learning.sequences import NLL_WEIGHT, TrainingSequence
from plansmith.report.gap_labels import LABELLED
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext, run_stages

IDS = [f"p{number:02d}" for number in range(40)]
UNSOLVED, TESTED = "p39", "t"
"""A problem of D1 without a plan, and a test problem with one."""


def write_problems(context: StageContext[None]) -> None:
    rows = [ProblemRow(name, name, "ferry", "L1", Split.PHASE1, 2, "(domain)", f"({name})", "sampler") for name in IDS]
    tested = ProblemRow(TESTED, TESTED, "ferry", "L1", Split.TEST, 2, "(domain)", "(t)", "sampler")
    context.output.write_rows([*rows, tested], ProblemRow)


def write_planned(context: StageContext[None]) -> None:
    solved = [PlanRow(name, "fd", "solved", ("(x)",), 1.0, 0.1, is_optimal=False) for name in (*IDS[:-1], TESTED)]
    unsolved = PlanRow(UNSOLVED, "fd", "out of time", (), None, 0.1, is_optimal=False)
    context.output.write_rows([*solved, unsolved], PlanRow)


PROBLEMS, PLANS = Stage(name="problems", run=write_problems), Stage(name="plans", run=write_planned)


def shared(share: float, seed: int = 0) -> Stage[Any]:
    given = {"problems": PROBLEMS, "plans": PLANS}
    return Stage(
        name=f"share_{share:g}", run=share_labels, settings=SharingSettings(share=share), inputs=given, seed=seed
    )


def ids_of(artifact: Artifact, table: str) -> set[str]:
    return {row.problem_id for row in artifact.rows(ProblemRow, table)}


# --- which problems a share has


def test_a_smaller_share_is_a_part_of_a_larger_one_and_the_order_follows_the_seed() -> None:
    parts = [in_share(IDS, share, seed=0) for share in (0.1, 0.3, 1.0)]
    assert [len(part) for part in parts] == [4, 12, 40]
    assert set(parts[0]) < set(parts[1]) < set(parts[2]) == set(IDS)
    assert parts[0] == in_share(IDS[::-1], 0.1, seed=0) != in_share(IDS, 0.1, seed=1)


def test_the_rest_is_all_of_d1_without_the_plans_of_the_share_be_it_solved_or_not(tmp_path: Path) -> None:
    made = run_stages([shared(0.1), shared(0.3), shared(1.0)], root=tmp_path, resources=Resources())
    labelled = {name: ids_of(made[f"share_{name}"], LABELLED) for name in ("0.1", "0.3", "1")}
    assert [len(ids) for ids in labelled.values()] == [4, 12, 39]  # of 39 plans
    assert labelled["0.1"] < labelled["0.3"] < labelled["1"]
    for name, ids in labelled.items():
        assert ids_of(made[f"share_{name}"], "rows") == set(IDS) - ids
    assert ids_of(made["share_1"], "rows") == {UNSOLVED}


def test_a_share_without_a_plan_is_refused_with_how_many_there_are(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="share of the plans that has none") as caught:
        run_stages([shared(0.01)], root=tmp_path, resources=Resources())
    assert (caught.value.where, caught.value.got) == ("share 0.01 (labels, plan_share)", "39 plans of D1")


# --- the tuning


@dataclass
class Recording(StandInTrainer):
    """Keeps the first token of all that it was trained on, which says of which problem it is."""

    taught: list[int] = field(default_factory=list)
    epochs: int = 0

    def optimise(self, objective: Any, sequences: Any, settings: OptimiserConfig, **options: Any) -> OptimisationReport:
        self.taught = [int(sequences[place].token_ids[0]) for place in range(len(sequences))]
        self.epochs = settings.epochs
        n = len(sequences)
        return OptimisationReport("supervised", {"loss": (1.0,)}, (0.1,), (1.0,), n, 0, 0, 9 * n, 1.0, 9 * n, 1.0)


def write_sequences(context: StageContext[None]) -> None:
    """Ten tokens for every solved problem of D1, all of which begin with its number; that of the last is too long."""
    rows = []
    for number, name in enumerate(IDS[:-1]):
        length = 60 if name == "p38" else 10
        weights = [0.0] + [1.0] * (length - 1)
        rows.append(TrainingSequence.of([number] * length, {NLL_WEIGHT: weights}).row(f"{name}-plan-0"))
    context.output.parts(SEQUENCES, SequenceRow).write("plans", rows, SequenceRow)


def tuned_on(root: Path, share: float) -> Recording:
    trainer = Recording()
    start, encoded = Stage(name="start", run=begin), Stage(name="encode", run=write_sequences)
    tuning = TuningSettings(
        optimiser=OPTIMISER.model_copy(update={"epochs": 3}), numerics=Numerics(row_length_tokens=50)
    )
    given = {"policy": start, "sequences": encoded, "labels": shared(share)}
    stage = Stage(name="labels", run=tune_labelled, settings=tuning, inputs=given)
    run_stages([stage], root=root, resources=StandInUpdates(held=trainer))
    return trainer


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_every_share_is_trained_on_its_own_plans_and_on_as_many_tokens(tmp_path: Path, share: float) -> None:
    trainer = tuned_on(tmp_path, share)
    assert trainer.epochs == 1  # the schedule goes over all rounds
    assert len(trainer.taught) == 3 * 38  # three passes over the 38 plans that are short enough, of whichever share
    fitting = {IDS.index(name) for name in in_share(IDS[:-1], share, seed=0) if name != "p38"}
    assert set(trainer.taught) == fitting
    counts = [trainer.taught.count(number) for number in fitting]
    assert max(counts) - min(counts) <= 1


# --- the stages


def stages_of(*overrides: str) -> dict[str, Stage[Any]]:
    return {stage.name: stage for stage in generalization_gap(PIPELINE.settings("smoke", overrides=overrides))}


def test_label_budget_adds_stages_and_changes_no_other() -> None:
    without, with_labels = stages_of(), stages_of("labels=[0.05, 0.5, 1]")
    assert {name: stage.key for name, stage in without.items()} == {name: with_labels[name].key for name in without}
    arms = ["labels5", "labels5_grpo", "labels50", "labels50_grpo", "labels100"]
    added = [name for name in with_labels if name not in without]
    measured = [f"{work}_{arm}" for arm in arms for work in ("try", "judge", "failures")]
    assert set(added) == {*arms, *measured, "share_labels5", "share_labels50", "share_labels100"}
    assert list(with_labels)[-1] == "failures_grpo"  # whose policy is published


def test_reinforcement_begins_with_the_share_and_tries_only_the_rest() -> None:
    stages = stages_of("labels=[0.05, 1]", "grpo.may_start_cold=false")
    tuned, learnt = stages["labels5"], stages["labels5_grpo"]
    assert tuned.inputs["labels"] is stages["share_labels5"] and tuned.inputs["policy"] is stages["initial_policy"]
    assert learnt.inputs == {"policy": tuned, "problems": stages["share_labels5"]}
    assert learnt.settings.may_start_cold and learnt.settings.last == learnt.settings.updates
    assert learnt.labels["loop"] == "labels5_grpo" and stages["share_labels5"].kind == StageKind.SHARES_LABELS
    assert stages["grpo_1_of_2"].settings.may_start_cold is False


def test_preset_labels_tunes_one_policy_a_share_and_leaves_out_what_tiny_has_beside_it() -> None:
    stages = {stage.name: stage for stage in generalization_gap(PIPELINE.settings("labels"))}
    tuned = [name for name in stages if name.startswith("labels") and not name.endswith("_grpo")]
    assert tuned == ["labels1", "labels10", "labels30", "labels100"]
    assert not {"numbered_1", "anonymised_1", "more_sft", "own_plans", "grpo_binary"} & stages.keys()


# --- v2 of a share


def test_compact_of_a_share_writes_its_plans_so_much_oftener_and_reinforcement_tries_the_rest() -> None:
    whole, part = stages_of("copies=2"), stages_of("copies=2", "plan_share=0.5")
    shared_out, written = part["share_plans"], part["write_compact"]
    assert written.inputs["labels"] is shared_out and shared_out.settings.share == 0.5
    assert (whole["write_compact"].settings.copies, written.settings.copies) == (2, 4)
    tries = [name for name in part if name.startswith("grpo") or name == "own_plans"]
    assert len(tries) > 2 and all(part[name].inputs["problems"] is shared_out for name in tries)
    assert part["own_plans"].inputs["held_out"] is part["sample_problems"]  # the rest has no tests
    same = ("write_numbered", "write_anonymised", "initial_policy")
    assert [whole[name].key for name in same] == [part[name].key for name in same]


def test_plans_of_a_share_are_written_and_no_other(tmp_path: Path) -> None:
    given = {"problems": PROBLEMS, "plans": PLANS, "labels": shared(0.3)}
    taken: list[SolvedProblemRow] = []

    class Taking(Resources):
        def map_rows(self, rows: Any, *_: Any, **__: Any) -> None:
            taken.extend(rows)

    writing = Stage(name="write", run=write_plans, settings=PlanExamplesConfig(), inputs=given)
    made = run_stages([writing], root=tmp_path, resources=Taking())
    assert made and {row.problem_id for row in taken} == set(in_share(IDS[:-1], 0.3, seed=0))


def test_label_budget_beside_plans_that_are_left_out_is_refused() -> None:
    with pytest.raises(BadInputError, match="takes some away"):
        stages_of("labels=[0.1]", "plan_share=0.5")


def test_share_of_the_plans_without_who_learns_from_it_is_refused() -> None:
    without = ("variants=[numbered]", "grpo=null", "other_grpo=null", "controls=[]")
    assert "share_plans" not in stages_of(*without)
    with pytest.raises(BadInputError, match="add compact to variants"):
        stages_of(*without, "plan_share=0.5")
