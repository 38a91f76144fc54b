"""Faults injected for real: what was finished is kept, nothing counts twice, and the result is that of a calm run.

`docs/reliability.md` lists every fault with its test; those of the planner, of files, of the disk and of engines are
tested beside the code that meets them (test_planners.py, test_stages.py, test_workers.py).
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import optimisation_run
import pytest
import ray
import torch
import update_loop_run
from answered_ray import generated
from checkpoints import qwen3_checkpoint
from conftest import ROOT
from ray.cluster_utils import Cluster
from safetensors import safe_open
from strikes import Record, is_halfway, once, pid_of, strike_in_handover
from transformers import Qwen3ForCausalLM

from actors.mapping import map_rows
from actors.policy import PolicyActor
from pipelines import pddl_instruct
from pipelines.run.ray_start import start_ray
from pipelines.run.workers import MODEL, PROBE, Probe, Workers
from pipelines.stages.training import TRAINER as OPTIMIZER
from pipelines.stages.update_loop import RECORD, ROLLOUTS
from plansmith.config.basics import narrowed
from plansmith.config.cluster import ClusterConfig
from plansmith.config.generation import SamplingConfig
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.config.training import EngineNumerics, PolicyConfig, TrainerConfig
from plansmith.data.artifacts import StageKind, complete_artifacts
from plansmith.data.rows import MetricRow, OptimisationStepRow, RolloutRow
from plansmith.data.tables import read_table
from plansmith.errors import PlansmithError
from plansmith.live import LiveWork, read_live
from plansmith.stages import Stage, StageContext, run_stages

OUR_CODE = {"env_vars": {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}}
SMOKE = pddl_instruct.PIPELINE.settings("smoke")
TRAINER = TrainerConfig(optimizer="adamw", is_autocast=False, row_length_tokens=64, n_threads=1, n_ranks=2)
POLICY = PolicyConfig(max_model_len=512, max_num_seqs=4, kv_cache_gib=0.05, probe_tolerance=1e-3)
PROBE_TOKENS = tuple(range(40, 72))


def config(**cluster: Any) -> PddlInstructConfig:
    return SMOKE.model_copy(update={"trainer": TRAINER, "policy": POLICY, "cluster": ClusterConfig(**cluster)})


PROMPTS = [[5 + number, 6, 7, 8] for number in range(12)]
SAMPLED = SamplingConfig(temperature=1.0, max_new_tokens=200, n=2)
SEEDS = list(range(100, 124))


def start_policy(workers: Workers, folder: Path) -> Any:
    """Return weights that the workers' engine holds now: a checkpoint with its probe."""
    made = Weights("a" * 40, folder / "policy")
    qwen3_checkpoint(made.path(MODEL))
    Probe(PROBE_TOKENS, logprobs(made.path(MODEL))).write(made.path(PROBE))
    workers.load_policy(made, narrowed(POLICY, EngineNumerics))  # type: ignore[arg-type]
    return made


def logprobs(folder: Path) -> tuple[float, ...]:
    """Return what a checkpoint gives the tokens of the probe, 0 to the first."""
    with torch.no_grad():
        logits = Qwen3ForCausalLM.from_pretrained(folder)(torch.tensor([PROBE_TOKENS])).logits[0]
    rows = logits.log_softmax(dim=-1)
    return (0.0, *(float(row[token]) for row, token in zip(rows, PROBE_TOKENS[1:], strict=False)))


class Weights:
    """Stands in for an artifact: weights and their probe in a folder."""

    def __init__(self, key: str, folder: Path) -> None:
        self.key, self.folder = key, folder

    def path(self, name: str) -> Path:
        return self.folder / name


# --- machines and memory


class Slow:
    """Takes a moment for each row, and notes which rows it worked on; none before so many workers have begun."""

    def __init__(self, log: str, size: int = 0, n_workers: int = 1) -> None:
        self.log, self.size, self.n_workers = Path(log), size, n_workers
        self.log.with_name(f"worker-{os.getpid()}").touch()

    def __call__(self, rows: Sequence[MetricRow]) -> list[MetricRow]:
        while len(list(self.log.parent.glob("worker-*"))) < self.n_workers:
            time.sleep(0.01)
        time.sleep(0.05)
        with self.log.open("a", encoding="utf-8") as file:
            file.writelines(f"{row.name}\n" for row in rows)
        return [replace(row, stage="x" * self.size) for row in rows]


ROWS = [MetricRow("s", number, "d", "l", f"r{number:04d}", float(number)) for number in range(160)]


def mapped(folder: Path, *, size: int = 0, count: int = len(ROWS), n_workers: int = 1) -> list[MetricRow]:
    """Return what a stage makes of the rows, as a run has it: what it finished is kept when it runs again."""

    def run(context: StageContext) -> None:
        map_rows(
            ROWS[:count], MetricRow, Slow, shards=context.output.shards("rows", MetricRow), batch_size=2,
            pool_size=lambda: 2, description="working", id_column="name",
            worker_settings={"log": str(folder / "log"), "size": size, "n_workers": n_workers},
        )  # fmt: skip

    return run_stages([Stage(name="work", run=run)], root=folder)["work"].rows(MetricRow)


@contextmanager
def two_machines(
    resources: dict[str, float] | None = None, *, are_alike: bool = False
) -> Iterator[tuple[Cluster, Callable[[bool], None]]]:
    """Yield a cluster of two nodes, and what takes the second away and, if told to, adds another like it.

    Args:
        resources: of the second; of both if they are alike.
    """
    of_the_second: dict[str, Any] = {"num_cpus": 1, "resources": resources or {}}
    head = {**of_the_second, "resources": of_the_second["resources"] if are_alike else {}, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)  # which only a main thread can
    try:
        # before there is another: of several nodes on one machine Ray takes any for that of the driver
        ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False, runtime_env=OUR_CODE)
        added = [cluster.add_node(**of_the_second)]
        cluster.wait_for_nodes()

        def take_away(is_replaced: bool) -> None:
            cluster.remove_node(added.pop(), allow_graceful=False)
            if is_replaced:
                added.append(cluster.add_node(**of_the_second))  # as an autoscaler does

        yield cluster, take_away
    finally:
        ray.shutdown()
        cluster.shutdown()


def rows_of_a_stage_struck(folder: Path, strike: Callable[[], None], record: Record) -> list[MetricRow]:
    """Return the rows of a stage that two workers do, struck once a part of them is done."""
    folder.mkdir()
    log, struck = folder / "log", list[float]()

    def watch() -> None:
        while not (log.exists() and len(log.read_text(encoding="utf-8").splitlines()) >= 20):
            time.sleep(0.01)
        struck.append(time.monotonic())
        strike()

    thread = threading.Thread(target=watch)
    thread.start()
    rows = mapped(folder, n_workers=2)
    thread.join()
    record(f"recovered_s, {folder.name}", time.monotonic() - struck[0])
    return rows


@pytest.mark.faults
def test_machine_removed_during_parallel_work_and_replaced_or_not_loses_no_row_and_doubles_none(
    by_value: None, tmp_path: Path, caplog: pytest.LogCaptureFixture, record_property: Record
) -> None:
    with two_machines() as (_, take_away):
        for name, is_replaced in (("replaced", True), ("for good", False)):
            caplog.clear()
            rows = rows_of_a_stage_struck(tmp_path / name, partial(take_away, is_replaced), record_property)
            assert "others take over what is left: a worker process was lost" in caplog.text, name
            assert [row.name for row in rows] == sorted(row.name for row in ROWS), name


@pytest.mark.faults
def test_machine_of_the_engine_removed_during_a_rollout_answers_as_if_nothing_had_happened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, record_property: Record
) -> None:
    found: dict[str, list[list[Any]]] = {}
    with two_machines({"engines": 1}) as (cluster, take_away):
        placed = config(address=cluster.address, policy_resource="engines")
        with Workers(placed, tmp_path) as workers:
            made = start_policy(workers, tmp_path)

            def roll_out(context: StageContext) -> None:
                workers.load_policy(made, narrowed(POLICY, EngineNumerics))
                found[context.stage.name] = generated(
                    workers, PROMPTS, SAMPLED, seeds=SEEDS, description=context.stage.name
                )

            workers.run([Stage(name="calm", run=roll_out)], root=tmp_path)
            with once(tmp_path, is_halfway("struck"), lambda: take_away(True)) as struck:
                workers.run([Stage(name="struck", run=roll_out)], root=tmp_path)
            record_property("recovered_s", time.monotonic() - struck[0])
    assert "stage struck is run again" in caplog.text
    tokens = {name: [[g.token_ids for g in group] for group in groups] for name, groups in found.items()}
    assert tokens["struck"] == tokens["calm"]


@pytest.mark.faults
@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "one rank goes on"])
def test_machine_of_a_rank_removed_in_a_step_goes_on_from_its_checkpoint_to_where_a_calm_run_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, record_property: Record, is_replaced: bool
) -> None:
    least = {} if is_replaced else {"min_ranks": 1}
    trainer = optimisation_run.TRAINER.model_copy(update={"n_ranks": 2, **least})
    fuse = tmp_path / "fuse-struck"
    with two_machines({"trainers": 1}, are_alike=True) as (cluster, take_away):
        placed = ClusterConfig(address=cluster.address, trainer_resource="trainers")
        with Workers(SMOKE.model_copy(update={"trainer": trainer, "cluster": placed}), tmp_path) as workers:
            calm = workers.run(optimisation_run.stages("calm"), root=tmp_path)["calm"]
            assert len({place.node_id for place in workers._ranks.places()}) == 2
            [second] = cluster.worker_nodes
            [raylet] = second.all_processes["raylet"]
            fuse.write_text(f"{optimisation_run.MACHINE}{raylet.process.pid}")

            def take_it_away() -> None:
                while fuse.exists():
                    time.sleep(0.01)
                take_away(is_replaced)

            thread = threading.Thread(target=take_it_away)
            thread.start()
            began = time.monotonic()
            struck = workers.run(optimisation_run.stages("struck"), root=tmp_path)["struck"]
            record_property("struck_s", time.monotonic() - began)
            thread.join()
            assert len({place.node_id for place in workers._ranks.places()}) == 1 + is_replaced
    assert caplog.text.count("is run again") == caplog.text.count(GOES_ON) == 1
    assert list(calm.manifest.notes) == []
    curves = [run.rows(OptimisationStepRow, "curve") for run in (struck, calm)]
    if is_replaced:
        assert list(struck.manifest.notes) == [GOES_ON]
        assert weights(struck.path(MODEL)) == weights(calm.path(MODEL))
        assert curves[0] == curves[1]
    else:
        assert list(struck.manifest.notes) == [GOES_ON, FEWER]
        assert "the trainer has 1 of 2 ranks" in caplog.text
        losses = [[step.loss for step in curve] for curve in curves]
        assert losses[0] == pytest.approx(losses[1], abs=1e-5)


# --- one Ray from here on: the tests above start their own


@pytest.fixture(scope="module")
def private_ray() -> Iterator[None]:
    """A Ray with a small store."""
    start_ray(
        ray, num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=OUR_CODE,
        object_store_memory=80 * 2**20,
    )  # fmt: skip
    yield
    ray.shutdown()


@pytest.mark.faults
def test_object_store_that_is_full_spills_and_loses_no_row(by_value: None, private_ray: None, tmp_path: Path) -> None:
    rows = mapped(tmp_path, size=2**21, count=60)  # 120 MiB of results
    assert [row.name for row in rows] == sorted(row.name for row in ROWS[:60])
    assert {len(row.stage) for row in rows} == {2**21}


# --- the trainer


def weights(folder: Path) -> dict[str, list[float]]:
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        return {name: file.get_tensor(name).ravel().tolist() for name in file.keys()}  # noqa: SIM118 - not a mapping


GOES_ON = "interrupted: goes on after step 5 of 16, 0 steps are taken again"
FEWER = "ended with 1 rank fewer than asked for, batches as they were"


@pytest.mark.faults
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_trainer_rank_killed_in_a_step_goes_on_from_its_checkpoint_to_the_bits_of_a_calm_run(
    private_ray: None, tmp_path: Path, caplog: pytest.LogCaptureFixture, record_property: Record, n_ranks: int
) -> None:
    trainer = optimisation_run.TRAINER.model_copy(update={"n_ranks": n_ranks})
    with Workers(SMOKE.model_copy(update={"trainer": trainer}), tmp_path) as workers:
        calm = workers.run(optimisation_run.stages("calm"), root=tmp_path)["calm"]
        pids = {place.pid for place in workers._ranks.places()}  # these go on, with the weights of the start again
        (tmp_path / "fuse-struck").write_text(optimisation_run.RANK)
        began = time.monotonic()
        struck = workers.run(optimisation_run.stages("struck"), root=tmp_path)["struck"]
        record_property("struck_s", time.monotonic() - began)
        assert not {place.pid for place in workers._ranks.places()} & pids
    assert caplog.text.count("is run again") == caplog.text.count(GOES_ON) == 1
    assert (list(calm.manifest.notes), list(struck.manifest.notes)) == ([], [GOES_ON])
    assert weights(struck.path(MODEL)) == weights(calm.path(MODEL))
    assert struck.rows(OptimisationStepRow, "curve") == calm.rows(OptimisationStepRow, "curve")
    assert not (struck.folder / "scratch").exists()


def start_optimisation(folder: Path, n_ranks: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(ROOT / "tests" / "optimisation_run.py"), str(folder), str(n_ranks)]
    return subprocess.Popen(command, env={**os.environ, **OUR_CODE["env_vars"]}, stderr=subprocess.DEVNULL)


@pytest.mark.faults
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_driver_killed_in_a_step_of_an_optimisation_goes_on_from_its_checkpoint_to_the_bits_of_a_calm_run(
    tmp_path: Path, n_ranks: int
) -> None:
    (tmp_path / "struck" / "artifacts").mkdir(parents=True)
    (tmp_path / "struck" / "artifacts" / "fuse-optimise").touch()
    assert start_optimisation(tmp_path / "calm", n_ranks).wait() == 0
    assert start_optimisation(tmp_path / "struck", n_ranks).wait() == -signal.SIGKILL
    assert start_optimisation(tmp_path / "struck", n_ranks).wait() == 0
    calm, struck = (
        next(a for a in complete_artifacts(tmp_path / name / "artifacts") if a.manifest.provenance.stage == "optimise")
        for name in ("calm", "struck")
    )
    [told] = struck.manifest.notes
    # ranks do not notice at once that their driver is gone
    assert re.fullmatch(r"interrupted: goes on after step ([5-9]|1\d) of 16, [01] steps are taken again", told)
    assert weights(struck.path(MODEL)) == weights(calm.path(MODEL))
    assert struck.rows(OptimisationStepRow, "curve") == calm.rows(OptimisationStepRow, "curve")


# --- the policy


class _IdleEngine:
    """Stands in for vLLM: takes prompts and is done without an output."""

    llm_engine = property(lambda self: self)
    model_config = property(lambda self: self)
    aborted: list[Any]

    def get_vocab_size(self) -> int:
        return 100

    def enqueue(self, inputs: Sequence[Any], params: Any, **_: Any) -> list[str]:
        return [str(number) for number in range(len(inputs))]

    def has_unfinished_requests(self) -> bool:
        return False

    def abort_request(self, ids: Sequence[str], **_: Any) -> None:
        self.aborted = list(ids)


def test_engine_that_returns_nothing_is_an_error_that_counts(tmp_path: Path) -> None:
    class Idle(PolicyActor):
        def _build_engine(self) -> Any:
            return _IdleEngine()

    qwen3_checkpoint(tmp_path / "model")
    policy = Idle(str(tmp_path / "model"), "v1")
    with pytest.raises(PlansmithError, match="the engine lost prompts") as caught:
        list(policy.generate([[1, 2], [3]], SamplingConfig(max_new_tokens=4), seeds=[1, 2], description="x"))
    assert (caught.value.got, caught.value.expected) == ("2 left", "none")


# --- a loop of updates, killed with its driver: minutes, run by `make faults` as what follows


def start_loop(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(ROOT / "tests" / "update_loop_run.py"), str(folder), *options],
                            env={**os.environ, **OUR_CODE["env_vars"]}, stderr=subprocess.DEVNULL)  # fmt: skip


def loop_of(folder: Path) -> dict[str, str]:
    """Return the content of every file that the loop left, by segment, but for its seconds and what it goes on from.

    Of equal moments the files differ; the weights of the next segment tell.
    """
    found = {}
    for made in complete_artifacts(folder / "artifacts"):
        stage = made.manifest.provenance.stage
        if stage.startswith("loop"):
            found |= {f"{stage}/{name}": entry.sha256 for name, entry in made.manifest.files.items()
                      if name.split("/")[0] not in ("times.parquet", RECORD, OPTIMIZER)}  # fmt: skip
    return found


@pytest.mark.faults
def test_loop_of_updates_killed_while_it_generates_and_in_a_checkpoint_ends_as_a_calm_one(tmp_path: Path) -> None:
    assert start_loop(tmp_path / "calm").wait() == 0
    for due in ("update-000001/record.json", "update-000003/.*"):  # the second update begins; a checkpoint is written
        process = start_loop(tmp_path / "struck")
        while not list((tmp_path / "struck").glob(f"artifacts/loop-*.partial/scratch/updates/{due}")):
            assert process.poll() is None
            time.sleep(0.002)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert start_loop(tmp_path / "struck").wait() == 0
    assert loop_of(tmp_path / "struck") == loop_of(tmp_path / "calm")
    [made] = [a for a in complete_artifacts(tmp_path / "struck" / "artifacts") if (a.folder / "curve.parquet").exists()]
    assert len(made.rows(OptimisationStepRow, "curve")) >= 4  # every update has learnt


@pytest.mark.faults
@pytest.mark.parametrize("max_staleness", [0, 1], ids=["in turns", "writing ahead"])
def test_loop_of_updates_whose_rank_and_engine_are_killed_ends_as_a_calm_one(
    private_ray: None, tmp_path: Path, caplog: pytest.LogCaptureFixture, max_staleness: int
) -> None:
    made = dict[str, Path]()
    for name in ("calm", "struck"):
        folder, engines = tmp_path / name, list[int]()
        with Workers(SMOKE, folder) as workers, ExitStack() as strikes:

            def find_engine(workers: Workers = workers, engines: list[int] = engines) -> None:
                engines.append(pid_of(workers._policies[0]))

            def kill_engine(engines: list[int] = engines) -> None:
                os.kill(engines[0], signal.SIGKILL)

            if name == "struck":
                strikes.enter_context(once(folder, doing("update 1, training"), find_engine))
                strikes.enter_context(once(folder, doing("update 2, training"), partial(kill_rank, workers)))
                strikes.enter_context(once(folder, doing("update 4, trying"), kill_engine))
            workers.run(update_loop_run.stages(max_staleness), root=folder / "artifacts")
        made[name] = folder
    assert caplog.text.count("stage loop is run again") == 1, "of an engine another takes the place"
    assert loop_of(made["struck"]) == loop_of(made["calm"])


def doing(what: str) -> Callable[[LiveWork], bool]:
    return lambda work: work.doing == what


def kill_rank(workers: Workers) -> None:
    os.kill(workers._ranks.places()[-1].pid, signal.SIGKILL)


@pytest.fixture(scope="module", params=[0, 1], ids=["in turns", "writing ahead"])
def calm_grpo(
    request: pytest.FixtureRequest, private_ray: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, Path]:
    """Return how stale rollouts may be, and a run of GRPO in segments that nobody disturbed."""
    folder: Path = tmp_path_factory.mktemp("calm")
    with Workers(update_loop_run.config("direct"), folder) as workers:
        workers.run(update_loop_run.stages(request.param, learns_from_groups=True), root=folder / "artifacts")
    return request.param, folder


@pytest.mark.faults
def test_grpo_in_segments_struck_while_weights_are_handed_over_ends_as_a_calm_one(
    calm_grpo: tuple[int, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    max_staleness, calm = calm_grpo
    with Workers(update_loop_run.config("direct"), tmp_path) as workers:

        def strike_rank() -> None:
            strike_in_handover(workers, workers._ranks.places()[-1].pid)

        with (
            once(tmp_path, doing("update 1, training"), strike_rank),
            once(tmp_path, doing("update 4, training"), partial(strike_in_handover, workers)),
        ):
            steps = update_loop_run.stages(max_staleness, learns_from_groups=True)
            workers.run(steps, root=tmp_path / "artifacts")
    assert caplog.text.count("is run again") == 2
    assert loop_of(tmp_path) == loop_of(calm)
    assert_each_problem_once(tmp_path)


@pytest.mark.faults
def test_grpo_in_segments_whose_driver_is_killed_while_weights_are_handed_over_ends_as_a_calm_one(
    calm_grpo: tuple[int, Path], tmp_path: Path
) -> None:
    max_staleness, calm = calm_grpo
    options = ("--groups", "--max-staleness", str(max_staleness))
    assert start_loop(tmp_path, *options, "--dies").wait() == -signal.SIGKILL
    assert start_loop(tmp_path, *options).wait() == 0
    assert loop_of(tmp_path) == loop_of(calm)
    assert_each_problem_once(tmp_path)


def assert_each_problem_once(folder: Path) -> None:
    """Check that no problem was lost or doubled, and that every update has learnt, once."""
    learning, asked = update_loop_run.LEARNING, Counter[str]()
    segments = [a for a in complete_artifacts(folder / "artifacts") if a.manifest.provenance.stage != "start"]
    for made in segments:
        asked.update(row.problem_id for path in made.parts(ROLLOUTS) for row in read_table(path, RolloutRow))
    assert len(asked) == update_loop_run.N_PROBLEMS and set(asked.values()) == {learning.rollouts_per_problem}
    assert sum(len(made.rows(OptimisationStepRow, "curve")) for made in segments) == learning.updates


# --- the driver, killed in each of its stages


def start_pipeline(runs: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "pipelines" / "pddl_instruct.py"), "--preset", "smoke"]
    command += ["--runs", str(runs), "--name", name]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def run_killed_everywhere(runs: Path, name: str) -> list[str]:
    """Run to the end, killing the driver once in every stage as soon as that says it runs; return these stages."""
    struck: list[str] = []
    while True:
        process = start_pipeline(runs, name)
        assert process.stderr is not None
        for line in process.stderr:
            stage, _, status = line.partition(": ")
            if " stage " in stage and status.strip() in ("running", "continuing") and stage.split()[-1] not in struck:
                struck.append(stage.split()[-1])
                process.kill()
                break
        process.stderr.read()
        if process.wait() == 0:
            return struck
        assert process.returncode == -signal.SIGKILL


@pytest.mark.faults
def test_driver_killed_in_each_stage_ends_with_the_tables_of_a_calm_run(tmp_path: Path) -> None:
    calm = start_pipeline(tmp_path, "calm")
    assert calm.stderr is not None
    stages = [
        line.partition(": ")[0].split()[-1] for line in calm.stderr if " stage " in line and line.endswith("running\n")
    ]
    assert calm.wait() == 0
    assert run_killed_everywhere(tmp_path, "struck") == stages
    first, second = (
        json.loads((tmp_path / name / "report" / "results.json").read_text(encoding="utf-8"))
        for name in ("calm", "struck")
    )
    for part in ("arms", "losses", "rollout_valid_rate", "policy_versions", "feedback_turns", "tokens"):
        assert second[part] == first[part], part


# --- texts: killed in the middle of what takes long


TEXT_OPTIONS = ("repair.turns=3", "repair.has_resampling=false", "has_direct_plans=false", "sft_longer=null",
                "evaluation.tries_grammar=false", "sft.batch_tokens=1024", "sft.epochs=6", "dpo.batch_tokens=1024",
                "dpo.epochs=6",
                "trainer.n_threads=1")  # fmt: skip
"""The smoke preset with long optimisations, and no controls; its policies learn nothing, so that every turn is due."""


def start_run(pipeline: str, options: Sequence[str], runs: Path, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(ROOT / "pipelines" / f"{pipeline}.py"), "--preset", "smoke"]
    command += ["--runs", str(runs), "--name", name, *(word for option in options for word in ("--set", option))]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


start_texts = partial(start_run, "nl_pddl_bench", TEXT_OPTIONS)


def kill_once_due(process: subprocess.Popen[bytes], run: Path, is_due: Callable[[LiveWork], bool]) -> None:
    """Kill the driver of a run once a process of it says what is waited for."""
    while not any(is_due(work) for work in read_live(run)):
        assert process.poll() is None, "it had ended before: nothing was struck"
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def tables_of(run: Path) -> dict[str, Any]:
    """Return the content of every file of every stage, but for the one that has times.

    Of answers it is what they say: log-probabilities are rounded by how many are decoded together, fewer in a turn that
    is continued.
    """
    found: dict[str, Any] = {}
    for artifact in complete_artifacts(run / "artifacts"):
        stage, kind = artifact.manifest.provenance.stage, artifact.manifest.provenance.kind
        hashes = {f"{stage}/{name}": entry.sha256 for name, entry in artifact.manifest.files.items()}
        found |= {name: value for name, value in hashes.items() if not name.endswith("/metrics.parquet")}
        if kind == StageKind.REPAIRS:
            found[f"{stage}/rows.parquet"] = [(row.rollout_id, row.token_ids) for row in artifact.rows(RolloutRow)]
    return found


@pytest.mark.faults
def test_texts_killed_in_fine_tuning_in_preferences_and_in_the_third_turn_of_repair_end_with_the_tables_of_a_calm_run(
    tmp_path: Path,
) -> None:
    assert start_texts(tmp_path, "calm").wait() == 0
    for is_due in (is_halfway("sft"), doing("asking again, turn 3"), is_halfway("dpo")):
        kill_once_due(start_texts(tmp_path, "struck"), tmp_path / "struck", is_due)
    assert start_texts(tmp_path, "struck").wait() == 0
    calm, struck = (tables_of(tmp_path / name) for name in ("calm", "struck"))
    assert {"sft/model/model.safetensors", "dpo/curve.parquet", "repair_sft/verdicts.parquet"} <= calm.keys()
    assert [name for name in calm if struck[name] != calm[name]] == [] and struck.keys() == calm.keys()


# --- reinforcement learning as a run has it


GAP_OPTIONS = ("variants=[compact]", "other_grpo=null", "controls=[]", "grpo.updates=4")
"""The smoke preset with one loop alone, two updates a segment."""


@pytest.mark.faults
def test_driver_killed_in_the_second_segment_of_grpo_ends_with_the_arms_and_the_updates_of_a_calm_run(
    tmp_path: Path,
) -> None:
    start = partial(start_run, "generalization_gap", GAP_OPTIONS, tmp_path)
    assert start("calm").wait() == 0
    kill_once_due(start("struck"), tmp_path / "struck", doing("update 4, training"))
    assert start("struck").wait() == 0
    calm, struck = (
        json.loads((tmp_path / name / "report" / "results.json").read_text(encoding="utf-8"))
        for name in ("calm", "struck")
    )
    assert list(calm["arms"]) == ["compact_1", "compact_2", "grpo_1_of_2", "grpo"]
    assert struck["arms"] == calm["arms"]
    updates = [{name: values for name, values in results["rl"]["grpo"].items() if not name.startswith("time/")}
               for results in (calm, struck)]  # fmt: skip
    assert updates[0] == updates[1] and len(updates[0]["group_relative/weight"]) == 4
