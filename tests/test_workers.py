"""Where the actors of a run go, what they are told and in which order; then a real adapter from trainer to engines.

Last, the engines are killed: what `docs/reliability.md` says of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import ray
from answered_ray import Answer, AnsweredRay, generated
from checkpoints import qwen3_checkpoint
from conftest import ROOT
from strikes import Record, is_halfway, once, pid_of

from actors.ranks import Place
from pipelines import pddl_instruct
from pipelines.run.placement import EngineGroup, Placement, placement_of
from pipelines.run.ranks import Ranks
from pipelines.run.ray_session import RaySession
from pipelines.run.ray_start import start_ray
from pipelines.run.workers import (
    MERGED,
    MODEL,
    PROBE,
    Probe,
    TrainerHandle,
    Workers,
)
from plansmith.config.basics import narrowed
from plansmith.config.cluster import ClusterConfig
from plansmith.config.generation import SamplingConfig
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.config.training import EngineNumerics, LoraConfig, Numerics, OptimiserConfig, PolicyConfig, TrainerConfig
from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance
from plansmith.errors import (
    BadInputError,
    ConfigError,
    LostWorkerError,
    PlansmithError,
    StalePolicyError,
    StalledError,
)
from plansmith.generation import Generation
from plansmith.learning.adapters import base_folder_of, is_adapter_folder
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequences import TrainingSequence, supervised_sequence
from plansmith.live import WRITE_INTERVAL_S, LiveFile, read_live
from plansmith.stages import Stage, StageContext

OUR_CODE = {"env_vars": {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}}
SMOKE = pddl_instruct.PIPELINE.settings("smoke")
LORA = LoraConfig(rank=2, alpha=4.0)
PROMPTS = [[5, 6, 7, 8], [9, 10, 11], list(range(20, 60)), [90, 3], [7, 7, 7]]
SAMPLED = SamplingConfig(temperature=1.0, max_new_tokens=12, n=2)
SEEDS = list(range(100, 110))


def cuda(n_ranks: int = 1, **settings: Any) -> TrainerConfig:
    return TrainerConfig(device="cuda", n_ranks=n_ranks, optimizer="adamw", **settings)


# --- placement


LAPTOP = ClusterConfig()


@pytest.mark.parametrize("placement", ["colocated", "separate"])
def test_placement_of_a_cpu_reserves_nothing(placement: Any) -> None:
    found = placement_of(TrainerConfig(n_ranks=2), PolicyConfig(placement=placement, n_replicas=3), LAPTOP)
    assert found == Placement(2, 3, {}, {}, is_shared=False)
    assert found.engines() == [{}] * 3


@pytest.mark.parametrize(
    ("n_ranks", "n_replicas", "devices"), [(1, 1, 1), (2, 1, 2), (1, 2, 2), (4, 4, 4)], ids=lambda number: str(number)
)
def test_colocated_engine_asks_for_no_device_but_where_no_rank_has_one(
    n_ranks: int, n_replicas: int, devices: int
) -> None:
    policy = PolicyConfig(placement="colocated", n_replicas=n_replicas)
    found = placement_of(cuda(n_ranks), policy, LAPTOP)
    assert (found.rank, found.is_shared) == ({"GPU": 1.0}, True)
    assert n_ranks + sum(engine.get("GPU", 0) for engine in found.engines()) == devices


@pytest.mark.parametrize(("n_ranks", "n_replicas"), [(1, 1), (2, 3)])
def test_placement_of_separate_actors_is_a_whole_device_each(n_ranks: int, n_replicas: int) -> None:
    policy = PolicyConfig(placement="separate", n_replicas=n_replicas)
    found = placement_of(cuda(n_ranks), policy, LAPTOP)
    assert (found.n_ranks, found.rank) == (n_ranks, {"GPU": 1.0})
    assert found.engines() == [{"GPU": 1.0}] * n_replicas


def test_engine_of_two_devices_is_on_those_of_two_ranks_of_one_machine_or_has_its_own() -> None:
    found = placement_of(cuda(5), PolicyConfig(n_replicas=3, tensor_parallel_size=2), LAPTOP)
    assert [engine.get("GPU", 0) for engine in found.engines()] == [0, 0, 2]  # the fifth rank's is left over
    places = [Place(node, (str(number),), 1) for number, node in enumerate("aabbc")]
    assert [list(found.hosts(places, number)) for number in range(3)] == [places[:2], places[2:4], []]
    with pytest.raises(ConfigError, match="devices of one engine are on several machines") as caught:
        found.hosts([places[0], places[2], *places[3:]], 0)
    assert caught.value.got == "ranks 0 to 1, each with one"


def test_engines_on_the_devices_of_ranks_that_come_and_go_are_refused() -> None:
    elastic = cuda(2).model_copy(update={"min_ranks": 1})
    with pytest.raises(ConfigError, match="ranks that come and go"):
        placement_of(elastic, PolicyConfig(placement="colocated"), LAPTOP)
    assert placement_of(elastic, PolicyConfig(placement="separate"), LAPTOP).n_ranks == 2


CLUSTER = ClusterConfig(address="auto", actor_cpus=4, trainer_resource="trainer", policy_resource="policy")


@pytest.mark.parametrize(("placement", "gpus"), [("separate", {"GPU": 1.0}), ("colocated", {})])
def test_placement_on_a_cluster_takes_cores_and_the_resource_of_its_group(
    placement: Any, gpus: dict[str, float]
) -> None:
    found = placement_of(cuda(), PolicyConfig(placement=placement), CLUSTER)
    assert found.rank == {"GPU": 1.0, "CPU": 4.0, "trainer": 1.0}
    assert found.engines() == [{**gpus, "CPU": 4.0, "policy": 1.0}]


def test_placement_of_a_cpu_with_cores_of_its_own_reserves_them() -> None:
    found = placement_of(TrainerConfig(n_ranks=2), PolicyConfig(), ClusterConfig(address="auto", actor_cpus=1.5))
    assert (found.rank, found.engines()) == ({"CPU": 1.5}, [{"CPU": 1.5}])


@pytest.fixture(scope="module")
def ray_session() -> Iterator[None]:
    """A Ray that counts two devices; nothing here touches one."""
    start_ray(ray, num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, runtime_env=OUR_CODE)
    yield
    ray.shutdown()


def config_with(trainer: TrainerConfig, policy: PolicyConfig) -> PddlInstructConfig:
    return SMOKE.model_copy(update={"trainer": trainer, "policy": policy})


@pytest.fixture(scope="module")
def ranks(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Return two ranks that Ray Train runs, each with a device that it does not use; anew where a test ends them."""
    folder = tmp_path_factory.mktemp("ranks")
    session, config = RaySession(SMOKE, folder), TrainerConfig(n_ranks=2)
    ranks = Ranks(lambda: ray, session.wait_for, config, resources={"GPU": 1.0}, folder=folder, is_local=True)
    yield ranks
    ranks.end()


def test_colocated_engines_are_on_the_devices_of_the_ranks_and_ask_for_none(ranks: Ranks) -> None:
    placement = placement_of(cuda(2), PolicyConfig(n_replicas=2), LAPTOP)
    places = ranks.places()
    assert sorted(place.devices for place in places) == [("0",), ("1",)]
    group = EngineGroup(placement, is_local=True)
    found = [group.options(ray, number, places) for number in range(2)]
    assert [(options["num_gpus"], options["scheduling_strategy"].node_id) for options in found] == [
        (0, place.node_id) for place in places
    ]


@pytest.mark.faults
def test_rank_killed_while_idle_is_replaced_and_its_group_holds_nothing(
    ranks: Ranks, tmp_path: Path, record_property: Record
) -> None:
    model = qwen3_checkpoint(tmp_path / "model")
    ranks.make(str(model), config=ranks.config)
    assert ranks.is_made
    before = ranks.places()
    start_s = time.monotonic()
    os.kill(before[1].pid, signal.SIGKILL)
    with pytest.raises(LostWorkerError, match="a rank of the trainer was lost"):
        ranks.ask("save", str(tmp_path / "never"))
    record_property("recovered_s", time.monotonic() - start_s)
    assert not ranks.is_made
    assert not {place.pid for place in ranks.places()} & {place.pid for place in before}
    ranks.make(str(model), config=ranks.config)
    ranks.ask("save", str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "model.safetensors").is_file()


@pytest.mark.faults
def test_error_that_a_rank_does_not_know_ends_its_group_and_is_named(ranks: Ranks, tmp_path: Path) -> None:
    ranks.make(str(qwen3_checkpoint(tmp_path / "model")), config=ranks.config)
    with pytest.raises(PlansmithError, match="the trainer failed") as caught:
        ranks.ask("fly")
    assert not isinstance(caught.value, LostWorkerError), "the same work would fail again"
    assert "no attribute 'fly'" in str(caught.value.got)
    assert not ranks.is_made


@pytest.mark.parametrize("what", ["ranks", "engines"])
def test_too_few_devices_is_an_error_that_counts_them(
    what: str, ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.run.placement.LOCAL_WAIT_S", 0.2)  # they will not come, however long one waits
    monkeypatch.setattr("pipelines.run.ranks.LOCAL_WAIT_S", 3.0)
    placement = PolicyConfig(n_replicas=3, placement="separate")
    workers = Workers(config_with(cuda(3), placement), tmp_path)
    asked = {"ranks": workers._ranks.places, "engines": lambda: workers._group.options(ray, 0, [])}[what]
    with pytest.raises(ConfigError, match=f"Ray does not offer what the {what} need") as caught:
        asked()
    fit = workers._ranks._fit
    assert (fit is not None) == (what == "ranks")
    workers._ranks.end()
    assert fit is None or not fit.is_alive(), "it would end this process once Ray has shut down"
    assert (caught.value.got, str(caught.value.expected)[:13]) == ("2 GPU in all", "3 times 1 GPU")


# --- what is told, with stand-ins for the actors


@pytest.mark.parametrize(
    ("trainer", "settings", "expected"),
    [
        (TrainerConfig(), {"placement": "colocated"}, (None, False)),
        (TrainerConfig(lora=LORA, optimizer="adamw"), {"placement": "colocated"}, (2, False)),
        (TrainerConfig(lora=LORA, optimizer="adamw"), {"adapters": "merged"}, (None, False)),
        (cuda(lora=LORA), {"placement": "colocated"}, (2, True)),
        (cuda(), {"placement": "separate"}, (None, False)),
    ],
    ids=["cpu", "cpu_adapter", "cpu_merged", "colocated", "separate"],
)
def test_engines_know_adapters_and_whether_to_sleep(
    trainer: TrainerConfig, settings: dict[str, Any], expected: tuple[int | None, bool], tmp_path: Path
) -> None:
    policy = PolicyConfig(**settings, max_num_seqs=9)
    options = Workers(config_with(trainer, policy), tmp_path)._engine_options()
    assert (options["lora_rank"], options["has_sleep_mode"], options["settings"]) == (*expected, policy)


@dataclass
class StandInActor:
    """Writes down every call, in one list that all share, and answers with its own name."""

    name: str
    calls: list[str]
    effect: float | None = None
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def __getattr__(self, method: str) -> Any:
        actor = self

        class Method:
            @staticmethod
            def remote(*arguments: Any, **keywords: Any) -> Any:
                actor.calls.append(f"{actor.name} {method}")
                actor.arguments.append((arguments, keywords))
                return Answer({"prove": 0.0, "adapter_effect": actor.effect}.get(method, actor.name))

        return Method


class StandInRanks:
    """Writes down every call, and answers with its own name."""

    def __init__(self, calls: list[str]) -> None:
        self.calls, self.arguments, self.is_made = calls, list[Any](), False
        self.optimizers: list[str] = []

    def make(self, *_: Any, config: TrainerConfig, **__: Any) -> None:
        self.calls.append("start trainer")
        self.optimizers.append(config.optimizer)
        self.is_made = True

    def ask(self, method: str, *arguments: Any, doing: str | None = None, unit: str = "", **keywords: Any) -> str:
        self.calls.append(f"trainer {method}")
        self.arguments.append((arguments, keywords))
        return "rank0"

    def places(self) -> list[Place]:
        return [Place("here", ("0",), 1)]


class WorkersOfStandIns(Workers):
    """Workers that start stand-ins."""

    def __init__(self, config: PddlInstructConfig, folder: Path) -> None:
        super().__init__(config, folder)
        self.calls: list[str] = []
        self.ranks = StandInRanks(self.calls)
        self._ranks: Any = self.ranks

    def ray(self) -> Any:
        return AnsweredRay

    def _start_policies(self, *_: Any) -> list[Any]:
        self.calls.append("start engine")
        return [StandInActor("engine", self.calls)]


@dataclass(frozen=True)
class StandInArtifact:
    """Weights that nobody reads."""

    key: str
    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / name


def write_policy(folder: Path) -> None:
    """Write what the workers look at of a policy that stand-ins are asked to load."""
    Probe((1, 2), (0.0, -0.5)).write(folder / PROBE)
    (folder / MODEL).mkdir()
    (folder / MODEL / "model.safetensors").touch()


def take_turns(trainer: TrainerConfig, placement: Any, tmp_path: Path) -> list[str]:
    """Return the calls of a run that samples, trains, samples from the same and then from other weights."""
    write_policy(tmp_path)
    first, second = (StandInArtifact(key * 12, tmp_path) for key in "ab")
    workers = WorkersOfStandIns(config_with(trainer, PolicyConfig(placement=placement)), tmp_path)
    numerics = narrowed(trainer, Numerics)
    workers.load_policy(first, EngineNumerics())  # type: ignore[arg-type]
    workers.trainer(tmp_path, numerics)
    workers.load_policy(first, EngineNumerics())  # type: ignore[arg-type]
    workers.trainer(tmp_path, numerics)
    workers.load_policy(second, EngineNumerics())  # type: ignore[arg-type]
    return workers.calls


def test_stage_that_counts_on_another_trainer_or_engine_than_the_run_has_is_refused(tmp_path: Path) -> None:
    workers = WorkersOfStandIns(SMOKE, tmp_path)
    with pytest.raises(ValueError, match="row_length_tokens=16"):
        workers.trainer(tmp_path, Numerics(row_length_tokens=16))
    with pytest.raises(ValueError, match="max_model_len=32"):
        workers.load_policy(StandInArtifact("a" * 12, tmp_path), EngineNumerics(max_model_len=32))  # type: ignore[arg-type]
    assert workers.calls == []


def test_optimisation_with_another_optimizer_gets_a_trainer_with_that(tmp_path: Path) -> None:
    workers = WorkersOfStandIns(SMOKE, tmp_path)
    numerics, optimiser = narrowed(SMOKE.trainer, Numerics), OptimiserConfig(learning_rate=0.1, batch_sequences=1)
    for name in (None, "muon", "adamw", "adamw", None):
        workers.trainer(tmp_path, numerics.during(optimiser.model_copy(update={"optimizer": name})))
    assert SMOKE.trainer.optimizer == "muon"
    assert workers.ranks.optimizers == ["muon", "adamw", "muon"]


def test_colocated_engine_and_trainer_sleep_while_the_other_works(tmp_path: Path) -> None:
    assert take_turns(cuda(), "colocated", tmp_path) == [
        "start engine", "engine prove",
        "engine sleep", "start trainer",
        "trainer sleep", "engine wake_up", "engine prove",
        "engine sleep", "trainer wake_up",
        "trainer sleep", "engine load_weights", "engine prove",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("trainer", "placement"), [(TrainerConfig(), "colocated"), (cuda(), "separate")], ids=["cpu", "separate"]
)
def test_engine_with_memory_of_its_own_never_sleeps(trainer: TrainerConfig, placement: str, tmp_path: Path) -> None:
    assert take_turns(trainer, placement, tmp_path) == [
        "start engine", "engine prove", "start trainer", "engine prove", "engine load_weights", "engine prove",
    ]  # fmt: skip


@pytest.mark.parametrize(("effect", "is_told"), [(0.04, True), (0.06, False), (None, False)])
def test_probe_that_could_not_tell_an_adapter_from_none_is_told(
    effect: float | None, is_told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_policy(tmp_path)
    config = config_with(TrainerConfig(lora=LORA, optimizer="adamw"), PolicyConfig(probe_tolerance=0.05))
    workers = WorkersOfStandIns(config, tmp_path)
    workers._policies = [StandInActor("engine", workers.calls, effect)]
    workers.load_policy(StandInArtifact("a" * 12, tmp_path), EngineNumerics())  # type: ignore[arg-type]
    assert workers.calls == ["engine load_weights", "engine prove", "engine adapter_effect"]
    assert ("the probe proves nothing, the adapter changes it by 4.0e-02" in caplog.text) is is_told


def test_trainer_handle_optimise_hands_its_options_to_the_ranks(tmp_path: Path) -> None:
    workers = WorkersOfStandIns(SMOKE, tmp_path)
    handle = workers.trainer(tmp_path, narrowed(SMOKE.trainer, Numerics))
    answer: Any = handle.optimise("objective", [1, 2], "settings", description="d", seed=3, keeps_moments=True)  # type: ignore[arg-type]
    assert (answer, workers._is_trainer_changed) == ("rank0", True)
    options = {"description": "d", "seed": 3, "keeps_moments": True}
    assert workers.ranks.arguments == [(("objective", [1, 2], "settings"), options)]


@pytest.mark.parametrize(
    ("question", "given"),
    [
        ("token_logprobs", [[1, 2]]),
        ("predict", ["reader", [1, 2]]),
        ("save_checkpoint", ["x"]),
        ("load_checkpoint", ["x"]),
    ],
)
def test_trainer_handle_asks_the_ranks(question: str, given: list[Any], tmp_path: Path) -> None:
    workers = WorkersOfStandIns(SMOKE, tmp_path)
    handle = workers.trainer(tmp_path, narrowed(SMOKE.trainer, Numerics))
    assert getattr(handle, question)(*given) in ("rank0", None)
    assert workers.calls == ["start trainer", f"trainer {question}"]


# --- a real adapter, from a trainer to engines


TRAINED = [supervised_sequence([5, 6, 7], [20 + number, 21, 22, 23]) for number in range(8)]
PROBE_TOKENS = tuple(range(40, 72))
REAL = config_with(
    TrainerConfig(lora=LORA, optimizer="adamw", is_autocast=False, row_length_tokens=64, n_threads=1),
    PolicyConfig(max_model_len=256, max_num_seqs=4, kv_cache_gib=0.05, n_replicas=2, probe_tolerance=1e-4),
)
NUMERICS, ENGINE = narrowed(REAL.trainer, Numerics), narrowed(REAL.policy, EngineNumerics)


def finish(writer: ArtifactWriter, key: str) -> Artifact:
    return writer.finish(Provenance("policy", key, {}, {}, 0), wall_time_s=0.0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


def probe_of(trainer: TrainerHandle) -> tuple[float, ...]:
    """Return the trainer's side of the probe."""
    return tuple(trainer.token_logprobs([TrainingSequence.of(PROBE_TOKENS, {})])[0].tolist())


@pytest.fixture(scope="module")
def policies(ray_session: None, root: Path) -> dict[str, Artifact]:
    """Return the artifacts of a base and of an adapter over it, made by one trainer as the stages of a run do."""
    base, adapter = (ArtifactWriter(root, "policy", key * 40) for key in "ba")
    with Workers(REAL, root) as workers:
        qwen3_checkpoint(base.path(MODEL))
        trainer = workers.trainer(base.path(MODEL), NUMERICS)
        Probe(PROBE_TOKENS, probe_of(trainer)).write(base.path(PROBE))
        start = finish(base, "b" * 40)  # the base has moved now
        trainer = workers.trainer(start.path(MODEL), NUMERICS)
        settings = OptimiserConfig(learning_rate=0.02, batch_sequences=4, epochs=4, schedule="constant")
        trainer.optimise(Supervised(), TRAINED, settings)
        trainer.save(str(adapter.path(MODEL)))
        Probe(PROBE_TOKENS, probe_of(trainer)).write(adapter.path(PROBE))
    return {"base": start, "adapter": finish(adapter, "a" * 40)}


@pytest.fixture(scope="module")
def workers(policies: dict[str, Artifact], root: Path) -> Iterator[Workers]:
    """Return workers that start from what is there, as in a run continued."""
    with Workers(REAL, root) as workers:
        yield workers


def test_adapter_of_a_trainer_is_written_over_the_finished_base(policies: dict[str, Artifact]) -> None:
    folder = policies["adapter"].path(MODEL)
    assert is_adapter_folder(folder)
    assert base_folder_of(folder) == policies["base"].path(MODEL).resolve()
    probes = [Probe.read(policy.path(PROBE)).logprobs for policy in policies.values()]
    assert max(abs(base - adapter) for base, adapter in zip(*probes, strict=True)) > 0.1


def test_trainer_started_from_an_adapter_artifact_holds_it(workers: Workers, policies: dict[str, Artifact]) -> None:
    for name in ("adapter", "base", "adapter"):
        folder = policies[name].path(MODEL)
        trainer = workers.trainer(folder, NUMERICS)
        assert probe_of(trainer) == pytest.approx(Probe.read(policies[name].path(PROBE)).logprobs, abs=1e-5)


def test_error_of_the_project_in_a_rank_is_its_answer_and_the_ranks_go_on(
    workers: Workers, policies: dict[str, Artifact], tmp_path: Path
) -> None:
    workers.trainer(policies["base"].path(MODEL), NUMERICS)
    ranks = workers._ranks
    pids = [place.pid for place in ranks.places()]
    with pytest.raises(BadInputError, match="no checkpoint here"):
        ranks.ask("load_checkpoint", str(tmp_path / "nowhere"))
    assert ranks.is_made and [place.pid for place in ranks.places()] == pids


def test_trainer_of_a_cpu_has_the_allocator_that_ray_brings_along(
    workers: Workers, policies: dict[str, Artifact]
) -> None:
    workers.trainer(policies["base"].path(MODEL), NUMERICS)
    maps = [Path(f"/proc/{place.pid}/maps").read_text(encoding="utf-8") for place in workers._ranks.places()]
    assert maps and all("libjemalloc" in text for text in maps)


def test_load_policy_takes_base_and_adapter_in_any_order(workers: Workers, policies: dict[str, Artifact]) -> None:
    for name in ("base", "adapter", "base", "adapter"):  # the last test starts an engine from the adapter
        workers.load_policy(policies[name], ENGINE)
        [[generation]] = generated(workers, PROMPTS[:1], SamplingConfig(max_new_tokens=2), seeds=[1], description="")
        assert generation.policy_version == policies[name].key[:12]


def with_the_first_engine(workers: Workers, folder: Path, **policy: Any) -> Workers:
    """Return workers of other settings who have the first engine of these alone, with what it holds."""
    alone = Workers(config_with(REAL.trainer, REAL.policy.model_copy(update={"n_replicas": 1, **policy})), folder)
    alone._policies, alone._policy_version = workers._policies[:1], workers._policy_version
    return alone


def test_load_policy_merges_an_adapter_for_engines_that_take_none(
    workers: Workers, policies: dict[str, Artifact], tmp_path: Path
) -> None:
    base, adapter = policies["base"], policies["adapter"]
    workers.load_policy(base, ENGINE)
    merging = with_the_first_engine(workers, tmp_path, adapters="merged")
    try:
        with merging:
            merging.load_policy(adapter, ENGINE)  # proves itself by its probe
            assert merging._ask_policies("adapter_effect", PROBE_TOKENS) == [None], "this engine would take one beside"
            assert [path.name for path in (tmp_path / MERGED).iterdir()] == [adapter.key[:12]]
        assert not (tmp_path / MERGED).exists()
    finally:
        merging.load_policy(base, ENGINE)  # which the other engine holds as well


def test_merging_an_adapter_on_four_bits_is_refused(tmp_path: Path) -> None:
    trainer = TrainerConfig(lora=LORA, optimizer="adamw", quantisation="nf4")
    with pytest.raises(ConfigError, match="cannot be merged"):
        Workers(config_with(trainer, PolicyConfig(adapters="merged")), tmp_path)


def test_load_policy_adapter_with_the_probe_of_its_base_is_stale(
    workers: Workers, policies: dict[str, Artifact], tmp_path: Path
) -> None:
    wrong = StandInArtifact("c" * 40, tmp_path)
    (tmp_path / MODEL).symlink_to(policies["adapter"].path(MODEL))
    (tmp_path / PROBE).symlink_to(policies["base"].path(PROBE))
    with pytest.raises(StalePolicyError, match="disagrees with the trainer"):
        workers.load_policy(wrong, ENGINE)  # type: ignore[arg-type]


def test_load_policy_adapter_whose_base_is_gone_is_bad_input_before_an_engine_starts(
    policies: dict[str, Artifact], ray_session: None, tmp_path: Path
) -> None:
    shutil.copytree(policies["adapter"].path(MODEL), tmp_path / MODEL)
    config = json.loads((tmp_path / MODEL / "adapter_config.json").read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = str(tmp_path / "gone")
    (tmp_path / MODEL / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(BadInputError, match="base model of this adapter is gone"):
        Workers(REAL, tmp_path).load_policy(StandInArtifact("d" * 40, tmp_path), ENGINE)  # type: ignore[arg-type]


@pytest.fixture
def alone(workers: Workers, policies: dict[str, Artifact], root: Path) -> Workers:
    """Return workers with the first engine alone, which holds the adapter; it has had the base and this before."""
    for name in ("base", "adapter"):
        workers.load_policy(policies[name], ENGINE)
    return with_the_first_engine(workers, root)


def test_generate_with_one_engine_and_with_two_gives_the_same_tokens(workers: Workers, alone: Workers) -> None:
    two = generated(workers, PROMPTS, SAMPLED, seeds=SEEDS, description="")
    one = generated(alone, PROMPTS, SAMPLED, seeds=SEEDS, description="")
    assert (len(workers._policies), len(alone._policies)) == (2, 1)
    assert tokens(two) == tokens(one)
    assert len({g.token_ids for group in one for g in group}) == len(SEEDS)


def tokens(groups: list[list[Generation]]) -> list[list[tuple[int, ...]]]:
    return [[generation.token_ids for generation in group] for group in groups]


# --- engines that are killed


MANY_PROMPTS = [[5 + number, 6, 7, 8] for number in range(12)]
LONG = SAMPLED.model_copy(update={"max_new_tokens": 200})
MANY_SEEDS = list(range(100, 124))


@pytest.mark.faults
def test_engine_killed_during_a_rollout_after_an_update_answers_as_if_nothing_had_happened(
    alone: Workers, policies: dict[str, Artifact], record_property: Record
) -> None:
    base, adapter = policies["base"], policies["adapter"]
    calm = generated(alone, MANY_PROMPTS, LONG, seeds=MANY_SEEDS, description="calm")
    [engine] = alone._policies  # started from the base
    pid = pid_of(engine)
    with once(alone.run_folder, is_halfway("struck"), lambda: os.kill(pid, signal.SIGKILL)) as struck:
        again = generated(alone, MANY_PROMPTS, LONG, seeds=MANY_SEEDS, description="struck")
    record_property("recovered_s", time.monotonic() - struck[0])
    assert pid_of(engine) != pid
    assert tokens(again) == tokens(calm)
    assert {g.policy_version for group in again for g in group} == {"a" * 12}
    pointer = json.loads((alone.run_folder / "current-0.json").read_text(encoding="utf-8"))
    assert pointer == {"weights_folder": str(adapter.path(MODEL).resolve()), "policy_version": "a" * 12}
    for policy in (adapter, base):  # proves by the probe that it holds the one, and beneath it the other
        alone.load_policy(policy, ENGINE)
        assert ray.get(engine.policy_version.remote()) == policy.key[:12]


@pytest.mark.faults
def test_engine_that_dies_for_good_is_a_lost_worker_and_the_next_call_starts_another(
    alone: Workers, policies: dict[str, Artifact], record_property: Record
) -> None:
    ray.kill(alone._policies[0])  # for good: Ray does not restart what is killed so
    with pytest.raises(LostWorkerError):
        generated(alone, PROMPTS, SAMPLED, seeds=SEEDS, description="sampling")
    start_s = time.monotonic()
    alone.load_policy(policies["adapter"], ENGINE)
    record_property("recovered_s", time.monotonic() - start_s)
    assert len(generated(alone, PROMPTS, SAMPLED, seeds=SEEDS, description="sampling")) == len(PROMPTS)


# --- silence


def test_stage_that_waits_for_an_actor_that_never_answers_is_ended_by_the_watchdog(
    ray_session: None, tmp_path: Path
) -> None:
    class Silent:
        def answer(self, folder: str) -> None:
            file = LiveFile(Path(folder), "trainer")
            for step in (3, 4):
                file.update("phase1", step, 10, unit="step")
                time.sleep(2 * WRITE_INTERVAL_S)
            time.sleep(3600)

    def run(_: StageContext) -> None:
        workers.wait_for([silent.answer.remote(str(tmp_path))], doing="phase1", unit="step")

    watched = SMOKE.model_copy(update={"cluster": ClusterConfig(stall_limit_s=5)})
    silent = ray.remote(Silent).options(num_cpus=0).remote()
    ray.get(silent.__ray_ready__.remote())  # a busy machine takes longer to start it than the limit
    with (
        pytest.raises(StalledError, match="nothing has moved") as caught,
        Workers(watched, tmp_path) as workers,
    ):
        workers.run([Stage(name="phase1", run=run)], root=tmp_path)
    assert caught.value.where == "stage phase1"
    assert max(work.done for work in read_live(tmp_path)) == 4  # the bar has not counted itself
    assert [work.doing for work in read_live(tmp_path) if work.source == "stage"] == ["ended: StalledError"]
