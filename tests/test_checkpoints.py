"""Checkpoints within an optimisation: when, what stays, what is refused, and that what goes on ends as if undisturbed.

Here with an engine that is no DeepSpeed, and with one and two ranks of DeepSpeed; processes are killed in
`test_faults.py`.
"""

from __future__ import annotations

import json
import logging
import resource
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from ranks import on_two_ranks
from test_optimisation import PlainEngine
from test_trainer import LORA, SETTINGS, changed, make_model, supervised_sequences

from actors import deepspeed_engine
from actors.trainer import TrainerActor
from plansmith.config.training import OptimiserConfig, Schedule, TrainerConfig
from plansmith.data.artifacts import RECORD, ArtifactWriter, Provenance, has_shards
from plansmith.errors import BadInputError
from plansmith.learning.checkpoints import REACHED, VERSION, Checkpoints, interruption
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.optimisation import Course, OptimisationReport, plan_optimisation, run_optimisation
from plansmith.learning.sequences import supervised_sequence

SUPERVISED = Supervised()
SEQUENCES = [supervised_sequence([0], [1 + number % 6, 7]) for number in range(24)]
COURSE = OptimiserConfig(learning_rate=5.0, batch_sequences=4, epochs=2, schedule=Schedule.TRAPEZOID, decay_share=1 / 3)
"""Of 12 steps, in the last 4 of which the rate falls."""


class Killed(BaseException):
    """Stands in for a kill: nothing of ours catches it."""


@dataclass
class Clock:
    """Seconds that are steps: it moves on by one with every question."""

    seconds: float = -1.0

    def __call__(self) -> float:
        self.seconds += 1.0
        return self.seconds


class PlainTrainer:
    """One rank with a `PlainEngine`, as the checkpoints see a trainer."""

    def __init__(self, rank: int = 0, said_by_first: float | None = None) -> None:
        self.rank, self.engine, self._said_by_first = rank, PlainEngine(), said_by_first
        self.saved: list[int] = []

    def sum_over_ranks(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        """Return the numbers, or what the first rank says where this is another."""
        return np.asarray(numbers if self._said_by_first is None else [self._said_by_first], np.float64)

    def save_checkpoint(self, folder: str | Path) -> None:
        self.saved.append(int(Path(folder).name.removeprefix("step-")))
        Path(folder).mkdir(parents=True)
        (Path(folder) / "table").write_bytes(self.engine.table.detach().numpy().tobytes())

    def load_checkpoint(self, folder: str | Path) -> None:
        table = np.frombuffer((Path(folder) / "table").read_bytes(), np.float32).copy()
        self.engine.table = torch.from_numpy(table.reshape(8, 8)).requires_grad_()


class Watched:
    """The likelihood, and something that happens before so many losses were asked for."""

    name, columns = SUPERVISED.name, SUPERVISED.columns

    def __init__(self, before: Callable[[int], None]) -> None:
        self._before, self._n_asked = before, 0

    def loss(self, *arguments: Any) -> Any:
        self._before(self._n_asked)
        self._n_asked += 1
        return SUPERVISED.loss(*arguments)


def fuse(n_losses: int) -> Watched:
    """Return the likelihood until so many losses were asked for."""

    def before(n_asked: int) -> None:
        if n_asked == n_losses:
            raise Killed

    return Watched(before)


def checkpoints(trainer: Any, folder: Path, every_s: float = 3.0, **made_for: Any) -> Checkpoints:
    """Return checkpoints after steps 3, 6 and so on, at two questions of the clock a checkpoint and one otherwise."""
    return Checkpoints(folder, trainer, {"n_ranks": 1, **made_for}, n_planned=12, every_s=every_s, clock=Clock())


def trained(trainer: PlainTrainer, keeper: Any, objective: Any = None) -> OptimisationReport:
    plan = plan_optimisation([3] * 24, COURSE, seed=0, row_length_tokens=12)
    return run_optimisation(trainer.engine, objective or SUPERVISED, SEQUENCES, COURSE, plan, keeper=keeper)


def killed(folder: Path, n_losses: int, **how: Any) -> PlainTrainer:
    """Leave what an optimisation leaves that is killed in its next loss; with one row a step, losses are steps."""
    trainer = PlainTrainer()
    with pytest.raises(Killed):
        trained(trainer, checkpoints(trainer, folder, **how), fuse(n_losses))
    return trainer


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("n_losses", [0, 2, 3, 5, 8, 11], ids=lambda n: f"killed after {n}")
def test_optimisation_killed_at_any_step_ends_as_an_undisturbed_one(tmp_path: Path, n_losses: int) -> None:
    calm, struck = PlainTrainer(), PlainTrainer()
    expected = trained(calm, None)
    assert expected.n_steps == 12
    killed(tmp_path, n_losses)
    n_kept = n_losses - n_losses % 3
    assert interruption(tmp_path) == {
        0: "",
        2: "interrupted before its first checkpoint: 2 steps are taken again",
    }.get(n_losses, f"interrupted: goes on after step {n_kept} of 12, {n_losses - n_kept} steps are taken again")
    report = trained(struck, checkpoints(struck, tmp_path))
    assert (report.metrics, report.learning_rates) == (expected.metrics, expected.learning_rates)
    assert (report.gradient_norms, report.n_trained_tokens) == (expected.gradient_norms, expected.n_trained_tokens)
    assert torch.equal(struck.engine.table, calm.engine.table)
    assert struck.saved[0] == n_kept + 3  # what was kept was not done again


def test_the_last_two_checkpoints_stay(tmp_path: Path) -> None:
    assert killed(tmp_path, 10).saved == [3, 6, 9]
    assert names(tmp_path) == [REACHED, "step-00000006", "step-00000009"]
    assert (tmp_path / REACHED).read_text().strip() == "10"


def test_rank_0_alone_says_when_a_checkpoint_is_due(tmp_path: Path) -> None:
    course = Course()
    course.take({"loss": 1.0}, 1.0, 1.0, 12)
    told = {said: PlainTrainer(rank=1, said_by_first=said) for said in (0.0, 1.0)}
    for said, trainer in told.items():  # whose own clock says otherwise
        checkpoints(trainer, tmp_path / str(said), every_s=1e9 if said else 0.0).keep(course)
    assert [trainer.saved for trainer in told.values()] == [[], [1]]
    assert not (tmp_path / "1.0" / "step-00000001" / RECORD).exists()  # which rank 0 writes


def test_checkpoint_cut_short_is_not_read_and_the_one_before_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed(tmp_path, 8)
    table = tmp_path / "step-00000006" / "table"
    table.write_bytes(table.read_bytes()[:-1])
    (tmp_path / "step-00000008").mkdir()  # without a record: killed while it was written
    assert interruption(tmp_path) == "interrupted: goes on after step 3 of 12, 5 steps are taken again"
    assert "table is cut short" in caplog.text
    calm, struck = PlainTrainer(), PlainTrainer()
    trained(calm, None)
    trained(struck, checkpoints(struck, tmp_path))
    assert torch.equal(struck.engine.table, calm.engine.table)


@pytest.mark.parametrize(
    ("now", "got", "expected"),
    [
        ({"n_ranks": 2}, "n_ranks=1", "n_ranks=2"),
        ({"learning_rate": 0.5}, "learning_rate=None", "learning_rate=0.5"),
    ],
    ids=["ranks", "settings"],
)
def test_checkpoint_of_others_is_refused_with_what_differs(
    tmp_path: Path, now: dict[str, Any], got: str, expected: str
) -> None:
    killed(tmp_path, 4)
    trainer = PlainTrainer()
    with pytest.raises(BadInputError, match="a checkpoint of other settings") as caught:
        trained(trainer, checkpoints(trainer, tmp_path, **now))
    assert (caught.value.got, caught.value.expected) == (got, expected)
    assert caught.value.where == str(tmp_path / "step-00000003")
    assert f"remove {tmp_path}: the optimisation begins anew" in str(caught.value)


def test_checkpoint_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    killed(tmp_path, 4)
    path, trainer = tmp_path / "step-00000003" / RECORD, PlainTrainer()
    path.write_text(json.dumps({"version": VERSION + 1, "content": "of other kinds"}))
    for reading in (lambda: interruption(tmp_path), lambda: trained(trainer, checkpoints(trainer, tmp_path))):
        with pytest.raises(BadInputError, match="another version") as caught:
            reading()
        assert (caught.value.got, caught.value.expected) == (f"version {VERSION + 1}", f"version {VERSION}")
    assert torch.equal(trainer.engine.table, PlainEngine().table)


def test_interruptions_stand_in_the_manifest_and_the_checkpoints_go(tmp_path: Path) -> None:
    for text in ("first", "second"):
        output = ArtifactWriter(tmp_path, "phase1", "0" * 64)
        output.note(text)
        killed(output.scratch("checkpoints"), 4) if text == "first" else None
        assert has_shards(tmp_path, "phase1", "0" * 64)  # a dry run says: resumes
    made = output.finish(Provenance("phase1", "0" * 64, None, {}, 0), wall_time_s=1.0)
    assert list(made.manifest.notes) == ["first", "second"]
    assert names(made.folder) == ["manifest.json"]


# --- one rank of DeepSpeed


STEPS = OptimiserConfig(
    learning_rate=5e-3, batch_sequences=3, epochs=2, warmup_steps=2, weight_decay=0.1, schedule=Schedule.COSINE
)
KEPT = changed(SETTINGS, micro_batch_tokens=128, checkpoint_every_s=0)
"""Kept after each of eight steps of one micro-batch each."""
KINDS: dict[str, dict[str, Any]] = {
    "zero 1": {},
    "muon": {"optimizer": "muon"},
    "zero 2, bfloat16": {"dtype": "bfloat16", "zero_stage": 2},
    "zero 3, offloaded": {"zero_stage": 3, "offload": "all"},
    "adapter with dropout": {"lora": LORA.model_copy(update={"dropout": 0.3})},
}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def tuned(trainer: TrainerActor, objective: Any, **how: Any) -> OptimisationReport:
    return trainer.optimise(objective, supervised_sequences(), STEPS, seed=5, **how)


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_trainer_killed_after_five_steps_ends_with_the_bits_of_an_undisturbed_one(
    model_folder: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = changed(KEPT, **changes)
    calm = TrainerActor(model_folder, config=config)
    expected = tuned(calm, SUPERVISED)
    assert expected.n_steps == 8
    with pytest.raises(Killed):
        tuned(TrainerActor(model_folder, config=config), fuse(5), checkpoints=tmp_path)
    assert names(tmp_path) == [REACHED, "step-00000004", "step-00000005"]
    struck = TrainerActor(model_folder, config=config)
    report = tuned(struck, SUPERVISED, checkpoints=tmp_path)
    assert (report.metrics, report.learning_rates) == (expected.metrics, expected.learning_rates)
    weights = struck.engine.weights()
    assert all(torch.equal(weights[name], weight) for name, weight in calm.engine.weights().items())


# --- two ranks


TWO_RANK_KINDS: dict[str, dict[str, Any]] = {
    **{name: KINDS[name] for name in ("zero 1", "muon", "adapter with dropout")},
    "zero 2": {"zero_stage": 2},
    "zero 3": {"zero_stage": 3},
}


@dataclass(frozen=True)
class Outcome:
    """What one rank saw: whether the two reports are one, the weights of both trainers, and the checkpoints left."""

    is_same_report: bool
    weights: list[dict[str, Any]]
    left: list[str]


def kill_and_go_on(rank: int, port: int, folder: Path, target: Path, kinds: Sequence[str]) -> dict[str, Outcome]:
    """Return what came of some kinds; the second rank cannot write after the first step, and both die in the sixth."""
    return {
        name: _killed_and_gone_on(changed(KEPT, n_ranks=2, **TWO_RANK_KINDS[name]), rank, port, folder,
                                  target / name.replace(" ", "-"))
        for name in kinds
    }  # fmt: skip


def _killed_and_gone_on(config: TrainerConfig, rank: int, port: int, folder: Path, target: Path) -> Outcome:
    calm, struck, again = (TrainerActor(folder, config=config, rank=rank, master_port=port) for _ in range(3))
    reports, left, write = [tuned(calm, SUPERVISED)], [], deepspeed_engine.sync_file

    def refuse(*_: Any) -> None:
        raise OSError("no space for the second rank")

    def before(n_taken: int) -> None:
        deepspeed_engine.sync_file = refuse if rank == 1 and n_taken == 0 else write
        if n_taken == 1:
            left.extend(names(target))
        if n_taken == 5:
            raise Killed

    with pytest.raises(Killed):
        tuned(struck, Watched(before), checkpoints=target)
    if rank == 0:
        shutil.copytree(target, _left_by_two(target))
    reports.append(tuned(again, SUPERVISED, checkpoints=target))
    first, second = ((report.metrics, report.learning_rates, report.gradient_norms) for report in reports)
    weights = [{name: w.numpy() for name, w in t.engine.weights().items()} for t in (calm, again)]
    return Outcome(first == second, weights, left)


@pytest.mark.parametrize(
    "kinds",
    [("zero 3", "adapter with dropout"), pytest.param(("zero 1", "muon", "zero 2"), marks=pytest.mark.long)],
    ids=["two kinds", "the others"],
)
def test_two_ranks_killed_after_five_steps_end_with_the_bits_of_undisturbed_ones(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    wide = make_model(tmp_path / "model", hidden_size=320)  # of a narrower one ZeRO 3 would keep every weight whole
    first, second = on_two_ranks(kill_and_go_on, wide, tmp_path, kinds)
    for name in kinds:
        for outcome in (first[name], second[name]):
            assert outcome.is_same_report, name
            assert outcome.left == [REACHED], name  # one rank could not write: there is nothing of either
        calm, again = first[name].weights
        assert calm.keys() == again.keys() and all((calm[n] == again[n]).all() for n in calm), name
        check_one_rank_goes_on(wide, tmp_path / name.replace(" ", "-"), TWO_RANK_KINDS[name], calm)


def _left_by_two(target: Path) -> Path:
    return target.with_name(f"{target.name}-left-by-two")


def check_one_rank_goes_on(model: Path, target: Path, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    """Check that one rank alone takes the last three steps of eight to what two would have come to, but for rounding.

    Elements are dropped rank by rank, so with dropout it comes to something else.
    """
    config = changed(KEPT, n_ranks=2, min_ranks=1, **changes)
    alone, asked = TrainerActor(model, config=config, n_ranks=1), list[int]()
    report = tuned(alone, Watched(asked.append), checkpoints=_left_by_two(target))
    assert report.n_steps == 8 and len(asked) == 3
    if config.lora is None:
        weights = alone.engine.weights()
        closeness = 2e-3 if config.optimizer == "muon" else 1e-6  # it iterates in bfloat16 where the CPU can
        assert all(np.abs(weights[name].numpy() - weight).max() < closeness for name, weight in expected.items()), (
            target
        )
    else:
        assert np.isfinite(report.losses).all()


def test_checkpoint_of_a_trainer_with_another_optimizer_is_refused(model_folder: Path, tmp_path: Path) -> None:
    config = KEPT
    tuned(TrainerActor(model_folder, config=config), SUPERVISED, checkpoints=tmp_path)
    other = TrainerActor(model_folder, config=changed(config, optimizer="muon", n_threads=2))
    with pytest.raises(BadInputError, match="other settings") as caught:
        tuned(other, SUPERVISED, checkpoints=tmp_path)
    assert (caught.value.got, caught.value.expected) == ("trainer.optimizer=adamw", "trainer.optimizer=muon")


@contextmanager
def full_disk(n_bytes: int) -> Iterator[None]:
    """Let no file become longer: what torch's writer meets then is what it meets on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_full_disk_is_warned_about_and_the_run_goes_on_with_the_last_good_one(
    model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = KEPT
    expected = tuned(TrainerActor(model_folder, config=config), SUPERVISED)
    seen: list[list[str]] = []

    with ExitStack() as stack, caplog.at_level(logging.WARNING):

        def before(n_taken: int) -> None:
            seen.append(names(tmp_path))
            if n_taken == 3:
                stack.enter_context(full_disk(20_000))
            if n_taken == 5:
                stack.close()

        report = tuned(TrainerActor(model_folder, config=config), Watched(before), checkpoints=tmp_path)
    assert report.losses == expected.losses
    assert seen[5] == [REACHED, "step-00000002", "step-00000003"]  # after steps 4 and 5 there was no room
    assert names(tmp_path) == [REACHED, "step-00000007", "step-00000008"]
    warnings = [record.message for record in caplog.records if "no checkpoint after" in record.message]
    assert [text[:26] for text in warnings] == ["no checkpoint after step 4", "no checkpoint after step 5"]
    assert "MiB are free" in warnings[0]
