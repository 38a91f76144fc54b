"""A rule, a trainer and a generator for loops of updates, without a model; they leave real files and check hand-overs.

The rule is of the kind that policy gradients need: advantages within a group, a multiplier carried from update to
update, a column of the reference's log-probabilities. What is written depends on the weights, and the weights on every
step and moment before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from stand_in_generator import StandInGenerator, babble

from pipelines.run.workers import MODEL, PROBE, Probe
from pipelines.stages.update_loop import Lesson, Question, Tried, UpdateSettings, run_updates
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import EngineNumerics, Numerics, OptimiserConfig
from plansmith.data.rows import JudgedRow, JudgingRow, RolloutRow, SolvedProblemRow, VerdictRow
from plansmith.generation import asking
from plansmith.judging.rewards import Reward, VerdictRewards
from plansmith.learning.feedback import leave_one_out
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.optimisation import OptimisationReport
from plansmith.learning.sequences import NLL_WEIGHT, TrainingSequence
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext

OPTIMISER = OptimiserConfig(learning_rate=0.01, batch_sequences=4, warmup_steps=1)
SETTINGS = UpdateSettings(
    sampling=SamplingConfig(temperature=1.0, max_new_tokens=60, n=3), engine=EngineNumerics(), prompting="compact",
    updates=4, optimiser=OPTIMISER, numerics=Numerics(row_length_tokens=512),
)  # fmt: skip
PROBLEMS = [SolvedProblemRow(f"p{number}", "3 blocks", "(domain)", f"(problem {number})", ()) for number in range(5)]
REFERENCE = "reference_logprobs"
VERDICTS = ("valid", "goal_not_reached", "precondition_unsatisfied", "bad_input")


@dataclass(frozen=True)
class CountingJudge:
    """Judges by the number of words."""

    def judge(self, row: JudgingRow) -> JudgedRow:
        verdicts = []
        for item in row.completions:
            verdict = VERDICTS[len(item.completion.split()) % len(VERDICTS)]
            place = (item.rollout_id, row.problem_id, item.iteration, item.policy_version)
            verdicts.append(VerdictRow(*place, verdict, f"{verdict}, by count", None, None, (), (), ""))
        return JudgedRow(row.problem_id, tuple(verdicts), ())


@dataclass(frozen=True)
class GroupAdvantages:
    """Weights rollouts by their rewards' difference from those of their group.

    Update 1 asks for the reference, update 2 learns nothing, the others have nothing but the checkpoint's state.
    """

    judge: Any = CountingJudge()
    problems: tuple[SolvedProblemRow, ...] = tuple(PROBLEMS)
    silent: ClassVar[int] = 2

    def questions(self, update: int, state: Any, tried: Sequence[Tried]) -> list[Question]:
        if tried:
            return []
        chosen = [self.problems[(2 * update + 3 + k) % len(self.problems)] for k in range(2)]
        return [Question(row, asking(f"plan {row.problem_pddl}")) for row in chosen]

    def reward(self, rollout: RolloutRow, verdict: VerdictRow) -> Reward:
        return VerdictRewards().reward(verdict, rollout.finish_reason)

    def lesson(self, tried: Sequence[Tried], state: Any) -> Lesson:
        multiplier, sequences = 0.5 if state is None else state["multiplier"], []
        for _, group in groupby(tried, key=lambda item: item.rollout.problem_id):
            judged = [(item, item.reward.value) for item in group if item.reward.value is not None]
            baselines = leave_one_out([value for _, value in judged])
            sequences += [
                weighted(item.rollout, multiplier * (value - baseline))
                for (item, value), baseline in zip(judged, baselines, strict=True)
            ]
        cost = sum(not item.verdict.is_valid for item in tried) / len(tried)
        multiplier = max(0.0, multiplier + 0.1 * (cost - 0.25))
        if tried[0].rollout.iteration == self.silent:
            sequences = []
        state, figures = {"multiplier": multiplier}, {"cost/multiplier": multiplier}
        column = (
            REFERENCE if tried[0].rollout.iteration == 1 else ""
        )  # then the trainer's state comes from a checkpoint
        return Lesson(Supervised(), sequences, state, reference_column=column, figures=figures)


def weighted(rollout: RolloutRow, weight: float) -> TrainingSequence:
    ids = (*rollout.prompt_token_ids, *rollout.token_ids)
    zeros, weights = [0.0] * len(rollout.prompt_token_ids), [weight] * len(rollout.token_ids)
    return TrainingSequence.of(ids, {NLL_WEIGHT: [*zeros, *weights]})


def write_whole(folder: Path, **values: Any) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    partial.mkdir(exist_ok=True)
    for name, value in values.items():
        (partial / f"{name}.json").write_text(json.dumps(value))
    partial.rename(folder)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


@dataclass
class StandInTrainer:
    """One weight with a moment. As the real one, it takes the tokenizer of the folder that it was loaded from along."""

    base: Path | None = None
    weight: float = 0.0
    moment: float = 0.0
    steps: list[str] = field(default_factory=list)

    def load(self, folder: Path) -> None:
        self.base, self.weight, self.moment = folder, read(folder, "weight"), 0.0

    def optimise(
        self, objective: Any, sequences: Sequence[TrainingSequence], settings: OptimiserConfig, *, seed: int = 0,
        keeps_moments: bool = False, description: str = "",
    ) -> OptimisationReport:  # fmt: skip
        self.steps.append(description)
        if not keeps_moments:
            self.moment = 0.0
        losses = []
        for sequence in sequences:
            assert (REFERENCE in sequence.columns) == description.startswith("update 1,")
            gradient = float(sum(column.sum() for column in sequence.columns.values())) + seed % 7
            self.moment = 0.9 * self.moment + gradient
            self.weight += settings.learning_rate * self.moment
            losses.append(gradient)
        n, tokens = len(sequences), sum(map(len, sequences))
        rates = (settings.learning_rate,) * n
        return OptimisationReport("x", {"loss": tuple(losses)}, rates, rates, n, 0, 0, tokens, 1.0, tokens, 1.0)

    def token_logprobs(
        self, sequences: Sequence[TrainingSequence], *, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0,
        as_trained: bool = False, weights: str | None = None,
    ) -> list[Any]:  # fmt: skip
        weight = self.weight if weights is None else read(Path(weights), "weight")
        return [np.array([0.0, *(weight - k for k in range(1, len(s)))], np.float32) for s in sequences]

    def save(self, folder: str) -> None:
        assert self.base is not None and self.base.is_dir(), "the folder with the tokenizer is gone"
        write_whole(Path(folder), weight=self.weight, tokenizer="words")

    def save_checkpoint(self, folder: str) -> None:
        write_whole(Path(folder), state=[self.weight, self.moment])

    def load_checkpoint(self, folder: str) -> None:
        self.weight, self.moment = read(Path(folder), "state")


@dataclass
class StandInUpdates(Resources):
    """Lends the two; keeps track of the trainer's weights as `pipelines.run.workers.Workers` does.

    One that sends weights writes none for engines alone.
    """

    held: StandInTrainer = field(default_factory=StandInTrainer)
    sends: bool = False
    engine: float = 0.0
    folder: Path | None = None
    asked: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    group: str = "first"

    def trainer_group(self) -> str | None:
        return None if self.held.base is None else self.group

    def trainer(self, model_folder: Path, numerics: Numerics) -> Any:
        if self.folder != model_folder:
            self.held.load(model_folder)
        self.folder = model_folder
        return self

    def save(self, folder: str) -> None:
        self.held.save(folder)
        self.folder = Path(folder)

    def load_checkpoint(self, folder: str, weights: Path) -> None:
        self.held.load_checkpoint(folder)
        self.folder = weights

    def __getattr__(self, name: str) -> Any:
        if name == "optimise":
            self.folder = None
        return getattr(self.held, name)

    def hand_over(self, folder: str) -> None:
        self.save(folder)
        if self.sends:
            (Path(folder) / "weight.json").unlink()

    def load_policy(self, policy: Any, engine: EngineNumerics) -> None:
        if self.loaded[-1:] != [policy.key]:
            is_sent = self.sends and self.folder == policy.path(MODEL)
            self.engine = self.held.weight if is_sent else read(policy.path(MODEL), "weight")
        self.loaded.append(policy.key)

    def generator(self, policy: Any, engine: EngineNumerics) -> StandInGenerator:
        if self.loaded[-1] != policy.key:
            self.load_policy(policy, engine)
        weight, probe = self.engine, Probe.read(policy.path(PROBE))
        expected = StandInTrainer(weight=weight).token_logprobs([TrainingSequence.of(probe.token_ids, {})])[0]
        assert probe.logprobs == tuple(expected.tolist()), "the engine has other weights than the trainer"
        self.asked.append(policy.key)
        return StandInGenerator(lambda turns, seed: babble([*turns, *asking(str(weight))], seed),
                                policy_version=policy.key[:12])  # fmt: skip


def begin(context: StageContext[None]) -> None:
    write_whole(context.output.path(MODEL), weight=1.0, tokenizer="words")
    Probe((1, 2, 3), (0.0, 0.0, -1.0)).write(context.output.path(PROBE))


def update(context: StageContext[UpdateSettings]) -> None:
    run_updates(context, GroupAdvantages())


def stages(settings: UpdateSettings = SETTINGS) -> list[Stage[Any]]:
    """Return the policy that a loop begins with, and the loop."""
    start = Stage(name="start", run=begin, seed=3)
    return [start, Stage(name="loop", run=update, settings=settings, inputs={"policy": start}, seed=3)]
