"""Weights that go straight from the trainer into the engines: two ranks, two engines, over gloo."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from answered_ray import generated
from checkpoints import qwen3_checkpoint
from strikes import pid_of
from test_workers import LORA, PROBE_TOKENS, PROMPTS, TRAINED, config_with, cuda, finish, probe_of

from pipelines.run.workers import MODEL, PROBE, Probe, Workers
from plansmith.config.basics import narrowed
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import EngineNumerics, Numerics, OptimiserConfig, PolicyConfig, TrainerConfig
from plansmith.data.artifacts import Artifact, ArtifactWriter
from plansmith.errors import ConfigError, LostWorkerError, StalePolicyError
from plansmith.learning.objectives.supervised import Supervised

DIRECT = PolicyConfig(
    max_model_len=256, max_num_seqs=4, kv_cache_gib=0.05, n_replicas=2, probe_tolerance=1e-4, handover="direct"
)
REAL = config_with(TrainerConfig(n_ranks=2, optimizer="adamw", is_autocast=False, row_length_tokens=64), DIRECT)
NUMERICS, ENGINE = narrowed(REAL.trainer, Numerics), narrowed(REAL.policy, EngineNumerics)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def workers(running_ray: None, root: Path) -> Iterator[Workers]:
    with Workers(REAL, root) as workers:
        yield workers


@pytest.fixture(scope="module")
def base(workers: Workers, root: Path) -> Artifact:
    """Return the model that the engines were started from."""
    writer = ArtifactWriter(root, "policy", "b" * 40)
    qwen3_checkpoint(writer.path(MODEL))
    trainer = workers.trainer(writer.path(MODEL), NUMERICS)
    Probe(PROBE_TOKENS, probe_of(trainer)).write(writer.path(PROBE))
    base = finish(writer, "b" * 40)
    workers.trainer(base.path(MODEL), NUMERICS)
    workers.load_policy(base, ENGINE)
    return base


def trained_on(workers: Workers, root: Path, start: Artifact, name: str, *, is_written: bool = True) -> Artifact:
    """Return what a policy has learnt, in a folder with the weights of before, or none: who reads there goes wrong."""
    writer = ArtifactWriter(root, "policy", name * 40)
    trainer = workers.trainer(start.path(MODEL), NUMERICS)
    trainer.optimise(Supervised(), TRAINED, OptimiserConfig(learning_rate=0.02, batch_sequences=4, epochs=2))
    trainer.hand_over(str(writer.path(MODEL)))
    Probe(PROBE_TOKENS, probe_of(trainer)).write(writer.path(PROBE))
    for path in start.path(MODEL).glob("*.safetensors") if is_written else ():
        shutil.copy(path, writer.path(MODEL) / path.name)
    made = finish(writer, name * 40)
    workers._trainer_weights = made.path(MODEL)  # where the artifact was moved to
    return made


@pytest.mark.faults
def test_engines_take_the_weights_that_the_trainer_holds(workers: Workers, base: Artifact, root: Path) -> None:
    start = base
    for name in "cd":  # they meet once
        made = trained_on(workers, root, start, name)
        workers.load_policy(made, ENGINE)
        [[generation], _] = generated(
            workers, PROMPTS[:2], SamplingConfig(max_new_tokens=2), seeds=[1, 2], description=""
        )
        assert generation.policy_version == name * 12
        differences = [abs(a - b) for a, b in zip(Probe.read(made.path(PROBE)).logprobs,
                                                  Probe.read(base.path(PROBE)).logprobs, strict=True)]  # fmt: skip
        assert max(differences) > 0.1, "else the folder's would have passed, too"


@pytest.mark.faults
def test_weights_that_are_not_the_trainers_are_read_from_their_folder(workers: Workers, base: Artifact) -> None:
    workers.load_policy(base, ENGINE)
    assert ray.get([policy.policy_version.remote() for policy in workers._policies]) == ["b" * 12] * 2


@pytest.mark.faults
@pytest.mark.parametrize("who", ["engine", "rank"])
def test_engines_and_ranks_that_were_replaced_meet_anew(who: str, workers: Workers, base: Artifact, root: Path) -> None:
    made = trained_on(workers, root, base, "e" if who == "engine" else "f")
    if who == "engine":
        workers.load_policy(made, ENGINE)
        pids = [pid_of(workers._policies[1])]
    else:
        pids = [workers._ranks.places()[1].pid]
    os.kill(pids[0], signal.SIGKILL)
    made = _repeated(lambda: trained_on(workers, root, base, "1" if who == "engine" else "2"))
    workers.load_policy(made, ENGINE)
    assert ray.get([policy.policy_version.remote() for policy in workers._policies]) == [made.key[:12]] * 2


@pytest.mark.faults
def test_engine_that_is_lost_with_weights_which_nobody_wrote_has_the_stage_begin_again(
    workers: Workers, base: Artifact, root: Path
) -> None:
    made = trained_on(workers, root, base, "7", is_written=False)
    workers.load_policy(made, ENGINE)
    assert not list(made.path(MODEL).glob("*.safetensors"))
    asked = {"sampling": SamplingConfig(max_new_tokens=2), "seeds": [1, 2], "description": ""}
    [[generation], _] = generated(workers, PROMPTS[:2], **asked)
    assert generation.policy_version == "7" * 12
    os.kill(pid_of(workers._policies[1]), signal.SIGKILL)
    with pytest.raises(LostWorkerError):
        generated(workers, PROMPTS[:2], **asked)
    with pytest.raises(LostWorkerError, match="which nobody wrote"):
        workers.load_policy(made, ENGINE)
    workers.load_policy(base, ENGINE)  # as a stage does that goes on from its last checkpoint
    assert generated(workers, PROMPTS[:2], **asked)[0][0].policy_version == "b" * 12


def _repeated(make: Callable[[], Any]) -> Any:
    """Return what is made at the second attempt, as a stage does whose workers were lost."""
    try:
        return make()
    except LostWorkerError:
        return make()


@pytest.mark.faults
def test_probe_finds_weights_that_did_not_come(workers: Workers, base: Artifact, root: Path) -> None:
    made = trained_on(workers, root, base, "9")
    trainer = workers.trainer(made.path(MODEL), NUMERICS)
    trainer.load(str(base.path(MODEL)))  # behind the back of whoever counts on it
    with pytest.raises(StalePolicyError, match="the engine disagrees with the trainer"):
        workers.load_policy(made, ENGINE)


@pytest.mark.parametrize(
    ("trainer", "policy", "message"),
    [
        (TrainerConfig(lora=LORA, optimizer="adamw"), {}, "adapters go by folder"),
        (cuda(), {"placement": "colocated"}, "take turns on the same devices"),
        (TrainerConfig(), {"tensor_parallel_size": 2}, "an engine of one process takes weights"),
    ],
)
def test_direct_handover_where_it_cannot_be_is_refused(
    trainer: TrainerConfig, policy: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        Workers(config_with(trainer, DIRECT.model_copy(update=policy)), tmp_path)
