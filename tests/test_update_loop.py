"""The durable inner loop: what an update learns, what is carried on, and tables that no kill changes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import BLOCKS_TEXT, ROOT, random_problem
from stand_in_generator import StandInGenerator
from stand_in_updates import (
    OPTIMISER,
    PROBLEMS,
    SETTINGS,
    CountingJudge,
    GroupAdvantages,
    StandInTrainer,
    StandInUpdates,
    stages,
)

from pipelines.run.workers import MODEL, PROBE, Probe
from pipelines.stages import update_loop
from pipelines.stages.rejection import Rejection, reject
from pipelines.stages.update_loop import JUDGED, ROLLOUTS, UPDATES, Tried, UpdateSettings, _at_update
from plansmith.data.artifacts import Artifact
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import (
    JudgedRow,
    JudgingRow,
    MetricRow,
    OptimisationStepRow,
    RolloutRow,
    SolvedProblemRow,
    VerdictRow,
)
from plansmith.data.tables import read_table, write_table
from plansmith.data.update_times import BESIDE, TIMES
from plansmith.errors import StalePolicyError
from plansmith.judging.judge import PlanJudge
from plansmith.judging.rewards import Reward
from plansmith.learning.sequences import NLL_WEIGHT
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.printer import print_problem
from plansmith.stages import Stage, StageContext, run_stages


def looped(root: Path, resources: StandInUpdates, **changes: Any) -> Artifact:
    made = stages(SETTINGS.model_copy(update=changes))
    return run_stages(made, root=root, resources=resources)["loop"]


def parts(artifact: Artifact, table: str, row_type: type[Any]) -> list[list[Any]]:
    """Return the rows of each update."""
    return [read_table(path, row_type) for path in artifact.parts(table)]


def figures(artifact: Artifact) -> dict[tuple[int, str], float]:
    return {(row.iteration, row.name): row.value for row in artifact.rows(MetricRow, UPDATES)}


# --- what an update does


def test_loop_asks_each_update_by_the_policy_of_the_one_before(tmp_path: Path) -> None:
    resources = StandInUpdates()
    made = looped(tmp_path, resources)
    versions = [{row.policy_version for row in rows} for rows in parts(made, ROLLOUTS, RolloutRow)]
    assert versions == [{key[:12]} for key in resources.asked]
    assert len(set(resources.asked)) == 4
    again = StandInUpdates()
    looped(tmp_path / "again", again)
    assert again.asked == resources.asked  # versions follow from the stage's key


def test_loop_that_writes_ahead_asks_each_update_by_the_policy_of_one_update_earlier(tmp_path: Path) -> None:
    resources = StandInUpdates()
    made = looped(tmp_path, resources, max_staleness=1)
    versions = [{row.policy_version for row in rows} for rows in parts(made, ROLLOUTS, RolloutRow)]
    first, second, third, fourth = resources.asked
    assert first == second and len({second, third, fourth}) == 3
    assert versions == [{key[:12]} for key in resources.asked]
    loaded = resources.loaded[1:]  # the first as the loop begins
    assert loaded[1::2] == resources.asked[1:], "before the trainer goes on, which may send it"
    assert loaded[0::2] == resources.asked, "and again before they are asked, which takes no time"
    assert [figures(made)[update, "rollout/staleness"] for update in (1, 2, 3, 4)] == [0, 1, 1, 1]
    names = [{row.name for row in made.rows(MetricRow, TIMES) if row.iteration == update} for update in (1, 3)]
    alone, beside = "time/generating_s", f"time/generating{BESIDE}_s"
    assert alone in names[0] and beside not in names[0] and beside in names[1] and alone not in names[1]
    assert "time/waiting for rollouts_s" in names[1]


def test_seconds_of_handing_weights_over_and_of_saving_them_are_those_of_their_update(tmp_path: Path) -> None:
    class Slow(StandInUpdates):
        """Hands weights over, and saves them, for as long as anybody notices."""

        def load_policy(self, policy: Any, engine: Any) -> None:
            time.sleep(0.05)
            super().load_policy(policy, engine)

        def save(self, folder: str) -> None:
            time.sleep(0.1)
            super().save(folder)

    made = looped(tmp_path, Slow())
    for update in range(1, 5):
        taken = {row.name: row.value for row in made.rows(MetricRow, TIMES) if row.iteration == update}
        assert taken["time/handing over_s"] >= 0.05 and taken["time/saving_s"] >= 0.1


def test_seconds_until_engines_and_trainer_are_there_count_as_no_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(update_loop.time, "perf_counter", lambda: clock[0])

    class Starting(StandInUpdates):
        """Needs a thousand seconds to be there, and one for each thing that it is asked."""

        def load_policy(self, policy: Any, engine: Any) -> None:
            clock[0] += 1 if self.loaded else 1000
            super().load_policy(policy, engine)

        def trainer(self, model_folder: Path, numerics: Any) -> Any:
            clock[0] += 1 if self.folder else 1000
            return super().trainer(model_folder, numerics)

    made = looped(tmp_path, Starting(), updates=1)
    assert 0 < sum(row.value for row in made.rows(MetricRow, TIMES)) < 1000


def test_groups_are_judged_while_others_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged, complete, judge = threading.Event(), StandInGenerator.complete, CountingJudge.judge

    def complete_slowly(*arguments: Any, **options: Any) -> Any:
        """Keep the second group of an update back until the first is judged, which it is not if they take turns."""
        for number, group in enumerate(complete(*arguments, **options)):
            assert number == 0 or judged.wait(60)
            yield group
        judged.clear()

    def judge_and_tell(self: CountingJudge, row: JudgingRow) -> JudgedRow:
        judged.set()
        return judge(self, row)

    monkeypatch.setattr(StandInGenerator, "complete", complete_slowly)
    monkeypatch.setattr(CountingJudge, "judge", judge_and_tell)
    beside = looped(tmp_path, StandInUpdates())
    names = {row.name for row in beside.rows(MetricRow, TIMES)}
    assert {"time/generating_s", f"time/judging{BESIDE}_s", "time/judging_s"} <= names


def test_judging_that_is_waited_for_is_not_beside_other_work() -> None:
    class Slow:
        def judge(self, row: JudgingRow) -> JudgedRow:
            time.sleep(1.0)
            return JudgedRow(row.problem_id, (), ())

    asked: Any = {"p0": SimpleNamespace(problem=PROBLEMS[0])}
    told = {"iteration": 1, "policy_version": "v", "completion": "", "finish_reason": "stop"}
    rollout: Any = SimpleNamespace(problem_id="p0", rollout_id="r", **told)
    taken = dict[str, float]()
    judge: Any = Slow()
    with update_loop._Judging(judge, asked, taken) as judging:
        judging.begin([rollout])
        assert [row.problem_id for row in judging.rows()] == ["p0"]
    assert taken[f"judging{BESIDE}"] < 0.9


def test_rollouts_too_many_to_be_judged_beside_are_judged_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = looped(tmp_path / "beside", StandInUpdates())
    monkeypatch.setattr(update_loop, "FEW_ROLLOUTS", 5)  # an update has six
    after = looped(tmp_path / "after", StandInUpdates())
    assert parts(after, JUDGED, JudgedRow) == parts(beside, JUDGED, JudgedRow)
    assert f"time/judging{BESIDE}_s" not in {row.name for row in after.rows(MetricRow, TIMES)}


def test_engines_write_the_next_rollouts_while_the_trainer_works(tmp_path: Path) -> None:
    class Meeting(StandInUpdates):
        """The trainer of the third update waits until the fourth is asked for, which it is not if they take turns."""

        asked_fourth = threading.Event()

        def generator(self, policy: Any, engine: Any) -> Any:
            found = super().generator(policy, engine)
            if len(self.asked) == 4:
                self.asked_fourth.set()
            return found

        def optimise(self, *arguments: Any, description: str, **options: Any) -> Any:
            assert not description.startswith("update 3,") or self.asked_fourth.wait(60)
            self.folder = None
            return self.held.optimise(*arguments, description=description, **options)

    looped(tmp_path, Meeting(), max_staleness=1)


def test_rollouts_that_cannot_be_written_ahead_end_the_stage_and_an_error_waits_for_them(tmp_path: Path) -> None:
    class Broken(StandInUpdates):
        is_done = False

        def generator(self, policy: Any, engine: Any) -> Any:
            if len(self.asked) == 2:
                time.sleep(0.2)
                self.is_done = True
                raise RuntimeError("no engine")
            return super().generator(policy, engine)

    class AtOnce(Broken):
        def optimise(self, *arguments: Any, description: str, **options: Any) -> Any:
            self.folder = None
            if description.startswith("update 3,"):
                raise ValueError("no trainer")
            return self.held.optimise(*arguments, description=description, **options)

    with pytest.raises(RuntimeError, match="no engine"):
        looped(tmp_path / "engine", Broken(), max_staleness=1)
    both = AtOnce()
    with pytest.raises((RuntimeError, ValueError)):
        looped(tmp_path / "both", both, max_staleness=1)
    assert both.is_done


def test_loop_gives_every_rollout_a_seed_of_its_own(tmp_path: Path) -> None:
    rows = [row for found in parts(looped(tmp_path, StandInUpdates()), ROLLOUTS, RolloutRow) for row in found]
    assert len(rows) == 4 * 2 * 3
    assert len({row.seed for row in rows}) == len({row.rollout_id for row in rows}) == len(rows)


def test_loop_records_rewards_and_those_that_nobody_can_tell_apart_by_reason(tmp_path: Path) -> None:
    made = looped(tmp_path, StandInUpdates())
    found = figures(made)
    values = {"valid": 1.0, "goal_not_reached": 0.1, "precondition_unsatisfied": -0.1}
    for number, judged in enumerate(parts(made, JUDGED, JudgedRow), 1):
        verdicts = [verdict.verdict for row in judged for verdict in row.verdicts]
        rewards = [values[verdict] for verdict in verdicts if verdict in values]
        assert found[number, "rollout/reward"] == pytest.approx(sum(rewards) / len(rewards))
        assert found[number, "rollout/valid_plan_rate"] == verdicts.count("valid") / 6
        assert found.get((number, "rollout/without reward: bad_input, by count"), 0) == verdicts.count("bad_input")
    assert sum(name.startswith("rollout/without") for _, name in found) > 0


def test_loop_carries_the_state_of_its_rule_on(tmp_path: Path) -> None:
    found = figures(looped(tmp_path, StandInUpdates()))
    multiplier = 0.5
    for number in range(1, 5):
        cost = 1 - found[number, "rollout/valid_plan_rate"]
        multiplier = max(0.0, multiplier + 0.1 * (cost - 0.25))
        assert found[number, "cost/multiplier"] == pytest.approx(multiplier)


def test_update_without_sequences_leaves_the_weights_and_goes_on(tmp_path: Path) -> None:
    resources = StandInUpdates()
    made = looped(tmp_path, resources)
    assert resources.held.steps == [f"update {number}, training" for number in (1, 3, 4)]
    found = figures(made)
    assert found[2, "training/n_sequences"] == 0
    steps = sum(found[number, "training/n_sequences"] for number in range(1, 5))
    assert len(made.rows(OptimisationStepRow, "curve")) == steps
    totals = {row.name: row.value for row in made.rows(MetricRow, "metrics")}
    assert totals["training/n_sequences"] == steps


def test_sequences_too_long_for_the_trainer_are_left_out_and_counted(tmp_path: Path) -> None:
    resources = StandInUpdates()
    optimiser = OPTIMISER.model_copy(update={"max_length_tokens": 45})
    found = figures(looped(tmp_path, resources, optimiser=optimiser))
    assert found[1, "training/n_dropped"] > 0
    whole = figures(looped(tmp_path / "whole", StandInUpdates()))
    assert found[1, "training/n_dropped"] + found[1, "training/n_sequences"] == whole[1, "training/n_sequences"]


def test_loop_leaves_the_last_weights_with_their_probe_and_no_checkpoint(tmp_path: Path) -> None:
    resources = StandInUpdates()
    made = looped(tmp_path, resources)
    assert json.loads((made.path(MODEL) / "weight.json").read_text()) == resources.held.weight
    resources.generator(made, SETTINGS.engine)  # which checks the probe
    assert len(Probe.read(made.path(PROBE)).token_ids) > 3
    assert {path.name for path in made.folder.iterdir()} == {
        MODEL, PROBE, "curve.parquet", "judged.parts", "manifest.json", "metrics.parquet", "rollouts.parts",
        "times.parquet", "updates.parquet",
    }  # fmt: skip


def test_rates_of_an_update_follow_the_schedule_over_all_updates() -> None:
    optimiser = OPTIMISER.model_copy(update={"muon_learning_rate": 0.1, "warmup_steps": 2})
    found = [_at_update(optimiser, number, 6) for number in range(1, 7)]
    assert [item.learning_rate for item in found] == pytest.approx([0.005, 0.01, 0.01, 0.0075, 0.005, 0.0025])
    assert [item.muon_learning_rate for item in found] == pytest.approx([0.05, 0.1, 0.1, 0.075, 0.05, 0.025])
    assert {(item.schedule, item.warmup_steps) for item in found} == {("constant", 0)}


# --- kills


def test_rollouts_of_another_policy_are_refused(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    class Dying(StandInUpdates):
        def trainer(self, model_folder: Path, numerics: Any) -> Any:
            if self.asked:
                raise Killed
            return super().trainer(model_folder, numerics)

    with pytest.raises(Killed):
        looped(tmp_path, Dying())
    [path] = tmp_path.glob("loop-*.partial/rollouts.parts/update-000001.parquet")
    rows = [dataclasses.replace(row, policy_version="other") for row in read_table(path, RolloutRow)]
    write_table(path, rows, RolloutRow)
    with pytest.raises(StalePolicyError, match="another policy"):
        looped(tmp_path, StandInUpdates())


def test_ranks_that_took_the_place_of_others_while_engines_wrote_go_on_from_the_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Replaced(StandInUpdates):
        def generator(self, policy: Any, engine: Any) -> Any:
            if len(self.asked) == 2:
                self.held, self.folder, self.group = StandInTrainer(), None, "second"
            return super().generator(policy, engine)

    calm, replaced = StandInUpdates(), Replaced()
    made = [looped(tmp_path / name, found) for name, found in (("a", calm), ("b", replaced))]
    assert replaced.group == "second" and replaced.held.steps == calm.held.steps[-2:]
    assert (replaced.held.weight, replaced.held.moment) == (calm.held.weight, calm.held.moment)
    assert "is run again" not in caplog.text, "they are there already, and need no other try"
    assert figures(made[0]) == figures(made[1])


def test_ranks_that_go_as_they_are_asked_for_have_the_stage_begin_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Going(StandInUpdates):
        n_calls = 0

        def trainer_group(self) -> str | None:
            self.n_calls += 1
            return "second" if self.n_calls == 3 else super().trainer_group()

    found = [looped(tmp_path / name, resources) for name, resources in (("a", StandInUpdates()), ("b", Going()))]
    assert figures(found[0]) == figures(found[1])
    assert "the ranks of the trainer were lost" in caplog.text


class Stopped(Exception):
    pass


class Counting(StandInUpdates):
    """Counts checkpoints, and is stopped as a trainer of some update is asked for."""

    n_checkpoints = 0
    stops_at = 0

    def optimise(self, *arguments: Any, description: str, **options: Any) -> Any:
        if description.startswith(f"update {self.stops_at},"):
            raise Stopped
        self.folder = None
        return self.held.optimise(*arguments, description=description, **options)

    def save_checkpoint(self, folder: str) -> None:
        self.n_checkpoints += 1
        self.held.save_checkpoint(folder)


@pytest.mark.parametrize("sends", [False, True])
def test_loop_with_few_checkpoints_goes_on_from_the_last_and_learns_again_from_the_rollouts_that_are_there(
    tmp_path: Path, sends: bool
) -> None:
    def loop(root: str, **changes: Any) -> tuple[Artifact, Counting]:
        resources = Counting(sends=sends)
        return looped(tmp_path / root, resources, updates=6, **changes), resources

    calm, every = loop("calm")
    few, some = loop("few", checkpoint_every=3)
    assert (every.n_checkpoints, some.n_checkpoints) == (6, 2)
    stopped = Counting(sends=sends)
    stopped.stops_at = 6
    with pytest.raises(Stopped):
        looped(tmp_path / "stopped", stopped, updates=6, checkpoint_every=3)
    again, resumed = loop("stopped", checkpoint_every=3)
    assert resumed.held.steps == [f"update {number}, training" for number in (4, 5, 6)]
    assert resumed.asked == [], "all rollouts were there"
    assert figures(calm) == figures(few) == figures(again)
    assert {artifact.manifest.files["model/weight.json"].sha256 for artifact in (calm, few, again)} == {
        calm.manifest.files["model/weight.json"].sha256
    }
    taken = [{row.name for row in again.rows(MetricRow, TIMES) if row.iteration == update} for update in range(1, 6)]
    assert all("time/generating_s" in names for names in taken), "seconds are those of when an update was first made"


def test_loop_with_few_checkpoints_that_ends_with_its_budget_leaves_the_weights(tmp_path: Path) -> None:
    def update_for(context: StageContext[UpdateSettings]) -> None:
        update_loop.run_updates(context, GroupAdvantages(), budget_s=1e-9)

    start, _ = stages()
    settings, resources = SETTINGS.model_copy(update={"checkpoint_every": 3}), StandInUpdates(sends=True)
    made = Stage(name="loop", run=update_for, settings=settings, inputs={"policy": start}, seed=3)
    [*_, found] = run_stages([start, made], root=tmp_path, resources=resources).values()
    assert resources.held.steps == ["update 1, training"]
    assert json.loads((found.path(MODEL) / "weight.json").read_text()) == resources.held.weight


@pytest.mark.parametrize("sends", [False, True])
def test_ranks_lost_between_checkpoints_have_the_stage_go_on_from_the_last(
    tmp_path: Path, sends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Replaced(StandInUpdates):
        def generator(self, policy: Any, engine: Any) -> Any:
            if len(self.asked) == 4 and self.group == "first":
                self.held, self.folder, self.group = StandInTrainer(), None, "second"
            return super().generator(policy, engine)

    calm, replaced = StandInUpdates(), Replaced(sends=sends)
    made = [
        looped(tmp_path / name, found, updates=6, checkpoint_every=3) for name, found in (("a", calm), ("b", replaced))
    ]
    assert replaced.held.steps == [f"update {number}, training" for number in (4, 5, 6)]
    assert "is run again (1 of" in caplog.text
    assert figures(made[0]) == figures(made[1])


KILLED_EVERYWHERE = """
import json, os, shutil, signal, sys, threading
from pathlib import Path
from tqdm import tqdm
from plansmith.data.artifacts import complete_artifacts
from plansmith.stages import run_stages
from stand_in_updates import SETTINGS, StandInUpdates, stages

os.fsync = lambda descriptor: None  # guards against power cuts, not kills, and is slow
tqdm.monitor_interval = 0
tqdm.set_lock(threading.RLock())  # its own is shared by processes, and stays with one that is killed while it has it
EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "os.link"}
root, (max_staleness, every, stride) = Path(sys.argv[1]), map(int, sys.argv[2:])
changes = {"updates": 2 + every, "max_staleness": max_staleness, "checkpoint_every": every}
made = stages(SETTINGS.model_copy(update=changes))

def run(number=0):
    count, resources = 0, StandInUpdates(sends=every > 1)

    def hook(event, arguments):
        nonlocal count
        count += event in EVENTS
        if event in EVENTS and count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    if number:
        sys.addaudithook(hook)
    run_stages(made, root=root, resources=resources)
    (root / "asked").write_text(str(len(resources.asked)))

def in_child(*arguments):
    child = os.fork()
    if child == 0:
        run(*arguments)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

run()  # what it imports and caches, every child would do again
number, died = 1, True
while died:
    shutil.rmtree(root, ignore_errors=True)
    died = in_child(number) == -signal.SIGKILL
    assert in_child() == 0
    hashes = {f"{a.manifest.provenance.stage}/{name}": entry.sha256
              for a in complete_artifacts(root) for name, entry in a.manifest.files.items() if name != "times.parquet"}
    print(json.dumps([number, hashes, len(list(root.glob("*.partial"))), int((root / "asked").read_text())]))
    number += stride
"""


@pytest.mark.parametrize(
    ("max_staleness", "checkpoint_every", "stride"),
    [
        (0, 1, 8),
        (0, 3, 12),
        *(pytest.param(age, every, 1, marks=pytest.mark.faults) for age in (0, 1) for every in (1, 3)),
    ],
)
def test_loop_killed_before_each_single_file_operation_ends_with_the_tables_of_a_calm_one(
    tmp_path: Path, max_staleness: int, checkpoint_every: int, stride: int
) -> None:
    """Before each of them, or in `make test` before some; of those with few checkpoints the trainer sends weights."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, "-c", textwrap.dedent(KILLED_EVERYWHERE), str(tmp_path / "run"),
               *map(str, (max_staleness, checkpoint_every, stride))]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    *_, calm = outcomes
    assert len(outcomes) > 60 / stride
    for number, hashes, n_partial, _ in outcomes:
        assert hashes == calm[1], number
        assert n_partial == 0, number
    # after a kill in a later update the earlier ones are not made again
    assert {asked for *_, asked in outcomes[:-1]} == set(range(3 + checkpoint_every))


# --- rejection sampling


def tried(
    rollout_id: str, token_ids: tuple[int, ...], *, verdict: str = "valid", first_fault: int | None = None
) -> Tried:
    rollout = RolloutRow(rollout_id, "p", 1, "v", "", "", (1, 2), token_ids, (), "stop", 0)
    judged = VerdictRow(rollout_id, "p", 1, "v", verdict, "", None, None, (), ("(a)",), "", n_steps=1,
                        claimed_verdict="VALID", first_fault=first_fault)  # fmt: skip
    return Tried(rollout, judged, (), Reward(1.0, ""))


def test_rejection_learns_each_flawless_rollout_once_and_nothing_else() -> None:
    rule = Rejection((problem_p(),), PlanJudge("compact"), 2, HeldOut())
    found = rule.lesson(
        [tried("a", (5, 6)), tried("b", (5, 6)), tried("c", (7,), first_fault=1), tried("d", (8,), verdict="x"),
         tried("e", (9,))], None,
    ).sequences  # fmt: skip
    assert [sequence.token_ids.tolist() for sequence in found] == [[1, 2, 5, 6], [1, 2, 9]]
    assert found[0].columns[NLL_WEIGHT].tolist() == [0, 0, 1, 1]


def test_rejection_learns_no_rollout_that_passes_a_held_out_problem() -> None:
    row = problem_p()
    task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
    held_out = HeldOut(frozenset({canonical_form(task.domain, task.problem)}), frozenset({3}))
    for known, n_learnt in ((held_out, 0), (HeldOut(), 1), (replace(held_out, n_objects=frozenset({4})), 1)):
        rule = Rejection((row,), PlanJudge("compact"), 2, known)
        assert len(rule.lesson([tried("a", (5, 6))], None).sequences) == n_learnt


def problem_p() -> SolvedProblemRow:
    return SolvedProblemRow("p", "", BLOCKS_TEXT, print_problem(random_problem(3, 0)), ("(a)",))


def test_rejection_goes_through_the_problems_in_turn(blocks_problems: tuple[SolvedProblemRow, ...]) -> None:
    rule = Rejection(blocks_problems, PlanJudge("compact"), 2, HeldOut())
    asked = [[item.problem.problem_id for item in rule.questions(number, None, ())] for number in range(1, 4)]
    assert sorted(asked[0] + asked[1]) == sorted(row.problem_id for row in blocks_problems)
    assert asked[2] == asked[0]


@pytest.fixture
def blocks_problems() -> tuple[SolvedProblemRow, ...]:
    texts = [print_problem(random_problem(3, seed)) for seed in range(4)]
    return tuple(SolvedProblemRow(f"p{i}", "", BLOCKS_TEXT, text, ("(a)",)) for i, text in enumerate(texts))


def test_key_of_a_loop_holds_the_code_of_the_loop_and_of_its_rule() -> None:
    code = Stage(name="rejection", run=reject).code
    assert {"pipelines.stages.update_loop", "pipelines.stages.rejection", "plansmith.judging.rewards"} <= code.keys()
