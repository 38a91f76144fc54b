"""Many short updates of one policy in one stage: generate, judge, choose what to learn, take a step, again and again.

What is a paper's own stands in an `UpdateRule`. Durable are the rollouts of an update, whole (of halves the engine
would decode another batch after a resume, and round otherwise), what the judge says of them, and then, of every update
or every n-th, a checkpoint: weights, optimizer state, the rule's state. So a stage killed anywhere goes on from its
last checkpoint, learns again from the rollouts that are there, and ends with the tables of one never interrupted.

With `max_staleness: 1` the engines write the rollouts of the next update while the trainer works on this one: always by
the policy of the update before, whoever is ready first, so that nothing hangs on speed and all of the above holds.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import count, groupby
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, Self, TypeVar

from pydantic import Field

from actors.validator import ValidatorActor
from pipelines.run.workers import MODEL, PROBE, Probe, policy_version
from pipelines.stages.few_rows import FEW_ROLLOUTS, worked_rows
from pipelines.stages.generating import GenerationSettings, rollout_groups
from pipelines.stages.judging import completion_row, judging_row
from pipelines.stages.training import TRAINER, write_probe
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import Numerics, OptimiserConfig, Schedule
from plansmith.data.artifacts import Artifact, remove
from plansmith.data.rows import (
    JudgedRow,
    JudgedStepRow,
    JudgingRow,
    MetricRow,
    OptimisationStepRow,
    ProblemRow,
    RolloutRow,
    SolvedProblemRow,
    VerdictRow,
)
from plansmith.data.storage import atomic_file, link_folder
from plansmith.data.tables import read_table
from plansmith.data.update_times import (
    BESIDE,
    CPU,
    GENERATING,
    HANDING_OVER,
    JUDGING,
    SAVING,
    TIMES,
    TRAINING,
    WAITING,
    spent,
    time_name,
)
from plansmith.errors import LostWorkerError, StalePolicyError
from plansmith.generation import Conversation, asking
from plansmith.groups import grouped
from plansmith.judging.judge import Judge
from plansmith.judging.rewards import Reward, rewarded
from plansmith.learning.objectives.base import Objective
from plansmith.learning.objectives.trust_region import TrustRegion
from plansmith.learning.optimisation import OptimisationReport, learning_rate_at
from plansmith.learning.packing import units_of
from plansmith.learning.sequences import TrainingSequence
from plansmith.pddl.grounding import PlanningTask
from plansmith.stages import StageContext, row_seed
from plansmith.text.rendering import prompting_of

ROLLOUTS, JUDGED, UPDATES = "rollouts", "judged", "updates"
"""Tables: two with a part for each update, of `RolloutRow` and `JudgedRow`; what was measured, by number of update."""
SEGMENT_START = "start"
"""Input of a segment that is not the first: the policy that the first began with."""
TABLES: tuple[tuple[str, type[Any]], ...] = ((ROLLOUTS, RolloutRow), (JUDGED, JudgedRow))
RECORD = "record.json"


class UpdateSettings(GenerationSettings):
    """What every loop of updates depends on."""

    updates: int
    """How many, over all segments."""
    first: int = 1
    """The first that the stage makes; above 1 it goes on from the artifact of the segment before."""
    last: int | None = None
    """The last that it makes; None: of all."""
    max_staleness: int = 0
    """So many updates older than the policy that is trained is the one that wrote what it learns from; 0 or 1."""
    checkpoint_every: int = Field(1, exclude=True)
    """Updates from one checkpoint to the next; the last update has one in any case."""
    optimiser: OptimiserConfig
    """One update's optimisation, whose schedule and warm-up go over the updates."""
    numerics: Numerics
    """How the trainer holds the model."""


@dataclass(frozen=True, slots=True)
class Question:
    """A problem, and how it is asked."""

    problem: ProblemRow | SolvedProblemRow
    conversation: Conversation

    @classmethod
    def for_plan(cls, row: ProblemRow | SolvedProblemRow, prompting: str) -> Question:
        """Return a problem as a prompting asks for its plan."""
        task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
        return cls(row, asking(prompting_of(prompting).plan_prompt(task)))


@dataclass(frozen=True, slots=True)
class Tried:
    """A rollout with what the judge and the rule say of it."""

    rollout: RolloutRow
    verdict: VerdictRow
    steps: tuple[JudgedStepRow, ...]
    reward: Reward


@dataclass(frozen=True, slots=True)
class Lesson:
    """What an update learns: no sequences, and it leaves the weights as they are.

    Attributes:
        state: JSON values that the next update gets, such as a multiplier.
        reference_column: where the log-probabilities of the policy that the loop began with are written, if anywhere.
        old_column: the same of the policy that is about to be trained, in what was drawn from.
        sampling: how the rollouts were drawn: both are read at its temperature, and the old ones under top-p and top-k.
        figures: to be recorded, by name.
    """

    objective: Objective | TrustRegion
    sequences: Sequence[TrainingSequence]
    state: Any = None
    reference_column: str = ""
    old_column: str = ""
    sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(temperature=1.0))
    figures: Mapping[str, float] = field(default_factory=dict)


class UpdateRule(Protocol):
    """What a paper does in an update; a frozen value, whose answers follow from what it is asked with."""

    @property
    def judge(self) -> Judge:
        """Return who judges."""

    def questions(self, update: int, state: Any, tried: Sequence[Tried]) -> Sequence[Question]:
        """Return what update k, from 1, asks next; each problem once an update, and nothing ends the asking.

        Args:
            update: k.
            state: of the lesson before, None before the first.
            tried: what this update has tried so far.
        """

    def reward(self, rollout: RolloutRow, verdict: VerdictRow) -> Reward:
        """Return what a rollout is worth, or why nobody can say."""

    def lesson(self, tried: Sequence[Tried], state: Any) -> Lesson:
        """Return what is learnt from the rollouts of an update; the state is None before the first."""


@dataclass(frozen=True)
class Checkpoint:
    """What an update leaves, where a generator expects the artifact of a policy; real once it has its record.

    It always has the probe, the model at least as engines need it, and of some updates what the trainer goes on from.
    """

    folder: Path
    key: str

    def path(self, name: str) -> Path:
        """Return where a part of it lies."""
        return self.folder / name


@dataclass(frozen=True, slots=True)
class Record:
    """What is known after an update: the rule's state, and the figures of all updates so far."""

    update: int = 0
    state: Any = None
    figures: tuple[tuple[int, str, float], ...] = ()
    curve: tuple[tuple[float, float, float], ...] = ()
    times: tuple[tuple[int, str, float], ...] = ()

    @property
    def seconds(self) -> float:
        """Return how long all updates took."""
        return spent((name, seconds) for _, name, seconds in self.times)

    def values(self) -> dict[str, Any]:
        """Return the fields by name; no copies, as `dataclasses.asdict` makes of each of many thousand figures."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def read(cls, path: Path) -> Record:
        """Return the record in a file."""
        found = json.loads(path.read_text(encoding="utf-8"))
        lists = {name: tuple(map(tuple, found[name])) for name in ("figures", "curve", "times")}
        return cls(found["update"], found["state"], **lists)


Updating = TypeVar("Updating", bound=UpdateSettings)
AskedT = TypeVar("AskedT", ProblemRow, SolvedProblemRow)


def in_random_order(problems: Iterable[AskedT], seed: int, name: str) -> tuple[AskedT, ...]:
    """Return the problems in the order of that name that a run's seed says, in which all segments of a loop go on."""
    return tuple(sorted(problems, key=lambda row: row_seed(seed, name, row.problem_id)))


def run_updates(context: StageContext[Updating], rule: UpdateRule, *, budget_s: float | None = None) -> None:
    """Make all updates of a segment by a rule, and leave the weights after the last, their probe, and the tables.

    What was rolled out and judged stays, as a part for each update: all weights were learnt from it, and nobody needs
    it in one table. ``curve`` has every optimiser step, `UPDATES` the figures of each update, `TIMES` its seconds. A
    segment that others follow also leaves what they go on from: the optimizer's state and the record.

    Args:
        context: of the stage.
        rule: what an update learns.
        budget_s: no update begins after so many seconds of updates; None: all are made.

    Raises:
        StalePolicyError: a rollout was not written by the policy that was to write it.
    """
    loop, settings = _Loop(context, rule, budget_s), context.settings
    last = settings.last or settings.updates
    with loop, context.progress(last - settings.first + 1, context.stage.name, unit="update") as bar:
        bar.update(loop.record.update - settings.first + 1)
        while loop.goes_on:
            loop.update()
            bar.update()
    link_folder(loop.policy.path(MODEL), context.output.path(MODEL))
    shutil.copy(loop.policy.path(PROBE), context.output.path(PROBE))
    if last < settings.updates:
        link_folder(loop.policy.path(TRAINER), context.output.path(TRAINER))
        shutil.copy(loop.policy.path(RECORD), context.output.path(RECORD))
    _write_tables(context, loop.record, loop.n_steps_before)


def _write_tables(context: StageContext[Updating], record: Record, n_steps_before: int) -> None:
    """Write what a segment adds to the record."""
    first = context.settings.first
    curve = [OptimisationStepRow(step, *values) for step, values in enumerate(record.curve[n_steps_before:], 1)]
    context.output.write_rows(curve, OptimisationStepRow, table="curve")

    def metric_rows(items: Sequence[tuple[int, str, float]]) -> list[MetricRow]:
        return [MetricRow(context.stage.name, update, "", "", name, x) for update, name, x in items if update >= first]

    rows = metric_rows(record.figures)
    context.output.write_rows(rows, MetricRow, table=UPDATES)
    context.output.write_rows(metric_rows(record.times), MetricRow, table=TIMES)
    names = sorted({row.name for row in rows if row.name.startswith("training/")})
    totals = [sum(row.value for row in rows if row.name == name) for name in names]
    metrics = [MetricRow(context.stage.name, 0, "", "", name, x) for name, x in zip(names, totals, strict=True)]
    context.output.write_rows(metrics, MetricRow, table="metrics")


Times = dict[str, float]
"""Seconds by kind of work."""


class _Ahead:
    """The rollouts of the next update, which are made in a thread of their own."""

    def __init__(self, make: Callable[[], tuple[list[Tried], Times]]) -> None:
        self._make, self._found, self._error = make, None, None
        self._thread = threading.Thread(target=self._run, name="rollouts", daemon=True)
        self._thread.start()

    _found: tuple[list[Tried], Times] | None
    _error: BaseException | None

    def _run(self) -> None:
        try:
            self._found = self._make()
        except BaseException as error:  # noqa: BLE001 - who waits for it raises it
            self._error = error

    def wait(self) -> None:
        """Wait until they are made, or cannot be."""
        self._thread.join()

    def result(self) -> tuple[list[Tried], Times]:
        """Return them, and the seconds that they took; raise what kept them from being made."""
        self.wait()
        if self._found is None:
            raise self._error or RuntimeError("no rollouts")
        return self._found


class _Judging:
    """The judge at work on one group after the other, in a thread of its own, while others are still being written."""

    def __init__(self, judge: Judge, asked: Mapping[str, Question], taken: Times) -> None:
        self._judge, self._asked, self._taken = judge, asked, taken
        self._thread = ThreadPoolExecutor(1, "judge")
        self._begun: list[Future[JudgedRow]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def begin(self, group: Sequence[RolloutRow]) -> None:
        """Have the rollouts of a problem judged; nobody waits for it."""
        self._begun.append(self._thread.submit(self._judged, group))

    def _judged(self, group: Sequence[RolloutRow]) -> JudgedRow:
        with _timed(self._taken, JUDGING + BESIDE), _timed(self._taken, JUDGING + CPU, time.thread_time):
            return self._judge.judge(_judging_row(self._asked, group))

    def rows(self) -> list[JudgedRow]:
        """Return what the judge says, by problem; what is waited for was not judged beside other work."""
        waited, beside = Times(), JUDGING + BESIDE
        with _timed(waited, beside):
            found = sorted((judged.result() for judged in self._begun), key=lambda row: row.problem_id)
        self._taken[beside] = max(0.0, self._taken.get(beside, 0.0) - waited[beside])
        return found


def _judging_row(asked: Mapping[str, Question], group: Sequence[RolloutRow]) -> JudgingRow:
    return judging_row(asked[group[0].problem_id].problem, [completion_row(row) for row in group])


class _Loop:
    """The loop after some update: its record, and the policy, a checkpoint or what the loop began with.

    Which ranks hold that policy with its optimizer state is known of this session only; others that took their place,
    of a machine that went while engines wrote, hold nothing. Left by an error, it waits for the rollouts that are being
    made: whoever begins the stage again must not meet them.
    """

    def __init__(self, context: StageContext[Updating], rule: UpdateRule, budget_s: float | None) -> None:
        self._context, self._rule, self._budget_s, self._held_by = context, rule, budget_s, None
        self._ahead: _Ahead | None = None
        self._folder = context.output.scratch(UPDATES)
        self._rollouts, self._judged = (context.output.parts(*table) for table in TABLES)
        found = [Record.read(path) for path in self._folder.glob(f"*/{RECORD}")]
        self._begun: Artifact = context.inputs["policy"]
        before = Record.read(self._begun.path(RECORD)) if context.settings.first > 1 else Record()
        whole = (record for record in found if self._checkpoint(record.update).path(TRAINER).is_dir())
        self.record = max(whole, key=lambda record: record.update, default=before)
        self._known_times = max(found, key=lambda record: record.update, default=before).times
        self.policy = self._after(self.record.update)
        self.n_steps_before = len(before.curve)
        self._start: Artifact = context.inputs.get(SEGMENT_START, context.inputs["policy"])

    _held_by: str | None

    def __enter__(self) -> Self:
        """Wait for engines and trainer, and count no seconds of it: how long machines take to come is no work."""
        if self.goes_on:
            self._context.resources.load_policy(self._writer(self.record.update + 1), self._context.settings.engine)
            self._trainer()
        return self

    @property
    def goes_on(self) -> bool:
        """Return whether another update is to be made."""
        last = self._context.settings.last or self._context.settings.updates
        return self.record.update < last and (self._budget_s is None or self.record.seconds < self._budget_s)

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> None:
        if self._ahead is not None and not isinstance(error, KeyboardInterrupt):
            self._ahead.wait()

    def _after(self, update: int) -> Artifact | Checkpoint:
        """Return the policy after an update; after the one before the segment's first, what the segment began with."""
        return self._begun if update < self._context.settings.first else self._checkpoint(update)

    def _writer(self, update: int) -> Artifact | Checkpoint:
        """Return the policy that writes the rollouts of an update."""
        return self._after(update - 1 - self._n_behind(update))

    def _n_behind(self, update: int) -> int:
        """Return by how many updates the writer of an update's rollouts is older than the policy that learns."""
        return min(self._context.settings.max_staleness, update - self._context.settings.first)

    def _checkpoint(self, update: int) -> Checkpoint:
        key = hashlib.sha256(f"{self._context.stage.key} {update}".encode()).hexdigest()
        return Checkpoint(self._folder / _name(update), key)

    def update(self) -> None:
        """Make the next update; it is there when its checkpoint is."""
        update, settings = self.record.update + 1, self._context.settings
        tried, taken = self._next_tried(update)
        lesson = self._rule.lesson(tried, self.record.state)
        if settings.max_staleness and update < (settings.last or settings.updates):
            with _timed(taken, HANDING_OVER):
                self._context.resources.load_policy(self.policy, settings.engine)  # while the trainer holds it
            self._ahead = _Ahead(partial(self._tried, update + 1, lesson.state))
        sequences = _fitting(lesson.sequences, settings)
        with _timed(taken, HANDING_OVER):
            trainer = self._trainer()
        figures, curve = {**_figures_of(tried), **lesson.figures}, self.record.curve
        if settings.max_staleness:
            figures["rollout/staleness"] = self._n_behind(update)
        figures["training/n_sequences"] = len(sequences)
        figures["training/n_dropped"] = len(lesson.sequences) - len(sequences)
        if sequences:
            with _timed(taken, TRAINING):
                report = self._step(trainer, lesson, sequences, update)
            curve += tuple(zip(report.losses, report.learning_rates, report.gradient_norms, strict=True))
            figures["training/n_tokens"] = report.n_tokens
            figures |= {f"{report.objective}/{name}": fmean(values) for name, values in report.metrics.items()}
        known = tuple((update, name, float(value)) for name, value in figures.items())
        probe = sequences[0].token_ids.tolist() if sequences else Probe.read(self.policy.path(PROBE)).token_ids
        with _timed(taken, SAVING):
            made = self._saved(trainer, update, probe)
        times = tuple((update, time_name(work), seconds) for work, seconds in taken.items())
        first_times = tuple(item for item in self._known_times if item[0] == update)  # before the loop was killed
        times = self.record.times + (first_times or times)
        self._finish(made, Record(update, lesson.state, self.record.figures + known, curve, times))

    def _next_tried(self, update: int) -> tuple[list[Tried], Times]:
        """Return the rollouts of the next update, and the seconds that they take now, or took beside training."""
        ahead, self._ahead, taken = self._ahead, None, Times()
        if ahead is None:
            return self._tried(update, self.record.state)
        with _timed(taken, WAITING):
            tried, beside = ahead.result()
        for work, seconds in beside.items():
            name = work if work.endswith(CPU) else work.removesuffix(BESIDE) + BESIDE
            taken[name] = taken.get(name, 0.0) + seconds
        return tried, taken

    def _tried(self, update: int, state: Any) -> tuple[list[Tried], Times]:
        """Return the rollouts of an update, judged, turn by turn until the rule has enough; and the seconds."""
        found, taken = list[Tried](), Times()
        for turn in count():
            questions = self._rule.questions(update, state, found)
            if not questions:
                break
            found += self._turn(update, turn, {item.problem.problem_id: item for item in questions}, taken)
        return found, taken

    def _turn(self, update: int, turn: int, asked: Mapping[str, Question], taken: Times) -> Iterator[Tried]:
        """Yield every rollout of a turn; what is written of it is not made again.

        Groups are judged here while others are still being written, unless they are so many that workers do it after.
        """
        writer, name = self._writer(update), _name(update) + f"-{turn}" * bool(turn)
        version = policy_version(writer)
        if not self._rollouts.is_finished(name):
            with _timed(taken, HANDING_OVER):  # asking would do it, too, and count as generating
                self._context.resources.load_policy(writer, self._context.settings.engine)
            judges_beside = len(asked) * self._context.settings.sampling.n <= FEW_ROLLOUTS
            with _Judging(self._rule.judge, asked, taken) if judges_beside else nullcontext() as judging:
                with _timed(taken, GENERATING):
                    self._rollouts.write(name, self._generate(asked, update, writer, judging), RolloutRow)
                if judging is not None:
                    with _timed(taken, JUDGING):
                        self._judged.write(name, judging.rows(), JudgedRow)
        rollouts = read_table(self._rollouts.path(name), RolloutRow)
        if stale := next((row for row in rollouts if row.policy_version != version), None):
            raise StalePolicyError("a rollout of another policy", where=stale.rollout_id,
                                   got=stale.policy_version, expected=version)  # fmt: skip
        if not self._judged.is_finished(name):
            with _timed(taken, JUDGING), _timed(taken, JUDGING + CPU, self._cpu_s):
                self._judged.write(name, self._judge(asked, rollouts, update), JudgedRow)
        judged = read_table(self._judged.path(name), JudgedRow)
        verdicts = {row.rollout_id: row for found in judged for row in found.verdicts}
        steps = grouped((step for found in judged for step in found.steps), lambda step: step.rollout_id)
        for row in rollouts:
            verdict = verdicts[row.rollout_id]
            yield Tried(row, verdict, tuple(steps.get(row.rollout_id, ())), self._rule.reward(row, verdict))

    def _generate(
        self, asked: Mapping[str, Question], update: int, writer: Artifact | Checkpoint, judging: _Judging | None
    ) -> list[RolloutRow]:
        """Return the rollouts of an update, each under a seed that no other has; each group is judged at once."""
        inputs: Any = {**self._context.inputs, "policy": writer}
        conversations = {name: item.conversation for name, item in asked.items()}
        first = (update - 1) * self._context.settings.sampling.n
        context, found = replace(self._context, inputs=inputs), dict[str, list[RolloutRow]]()
        for name, group in rollout_groups(
            context, conversations, first=first, iteration=update, description=f"update {update}, trying"
        ):
            found[name] = group
            if judging is not None:
                judging.begin(group)
        return [row for name in conversations for row in found[name]]

    def _judge(self, asked: Mapping[str, Question], rollouts: Sequence[RolloutRow], update: int) -> list[JudgedRow]:
        """Return what the judge says of rollouts that are all there."""
        groups = groupby(sorted(rollouts, key=lambda row: row.problem_id), key=lambda row: row.problem_id)
        rows = [_judging_row(asked, list(group)) for _, group in groups]
        how: dict[str, Any] = {"n_rollouts": len(rollouts), "description": f"update {update}, judging"}
        types = (JudgingRow, JudgedRow)
        return worked_rows(self._context, rows, types, ValidatorActor, {"judge": self._rule.judge}, **how)

    def _cpu_s(self) -> float:
        return time.thread_time() + self._context.resources.worker_cpu_s

    def _trainer(self) -> Any:
        """Return the trainer as it was after the last update.

        Begun anew it starts from what the loop began with, whose folder outlives the checkpoints.

        Raises:
            LostWorkerError: its ranks went this moment, or before and since the last checkpoint.
        """
        resources = self._context.resources
        is_held = self._held_by is not None and self._held_by == resources.trainer_group()
        held: Any = self.policy if is_held else self._start
        trainer, group = self._trainer_with(held), resources.trainer_group()
        if is_held and group != self._held_by:
            raise LostWorkerError("the ranks of the trainer were lost", got=str(group), expected=str(self._held_by))
        if self.record.update and not is_held:
            if not self.policy.path(TRAINER).is_dir():
                raise LostWorkerError("the ranks of the trainer were lost", got=f"{group} after their update "
                                      f"{self.record.update}", expected=str(self._held_by))  # fmt: skip
            trainer.load_checkpoint(str(self.policy.path(TRAINER)), self.policy.path(MODEL))
        self._held_by = group
        return trainer

    def _trainer_with(self, policy: Any) -> Any:
        settings = self._context.settings
        return self._context.resources.trainer(policy.path(MODEL), settings.numerics.during(settings.optimiser))

    def _step(
        self, trainer: Any, lesson: Lesson, sequences: Sequence[TrainingSequence], update: int
    ) -> OptimisationReport:
        context, settings, how = self._context, self._context.settings, {"temperature": lesson.sampling.temperature}
        if lesson.old_column:
            cut = {"top_p": lesson.sampling.top_p, "top_k": lesson.sampling.top_k}
            sequences = _read_by(trainer, sequences, lesson.old_column, **how, **cut)
        if lesson.reference_column:
            reference = str(self._start.path(MODEL))
            sequences = _read_by(trainer, sequences, lesson.reference_column, **how, weights=reference)
        report: OptimisationReport = trainer.optimise(
            lesson.objective,
            sequences,
            _at_update(settings.optimiser, update, settings.updates),
            seed=context.row_seed("update", update) % 2**31,
            keeps_moments=update > 1,
            description=f"update {update}, training",
        )
        return report

    def _saved(self, trainer: Any, update: int, probe_ids: Sequence[int]) -> Checkpoint:
        """Return what an update leaves, which lacks its record.

        Whoever goes on from a checkpoint also begins with the engines' policy of then, which may be an older one.
        """
        made, begun_with = self._checkpoint(update), range(update, update + 1 + self._context.settings.max_staleness)
        remove(made.folder)
        made.folder.mkdir(parents=True)
        if self._has_checkpoint(update):
            trainer.save_checkpoint(str(made.path(TRAINER)))
        if self._budget_s is not None or any(map(self._has_checkpoint, begun_with)):  # with a budget any is the last
            trainer.save(str(made.path(MODEL)))
        else:
            trainer.hand_over(str(made.path(MODEL)))
        write_probe(trainer, probe_ids, made.path(PROBE))
        return made

    def _has_checkpoint(self, update: int) -> bool:
        settings = self._context.settings
        return update % settings.checkpoint_every == 0 or update == (settings.last or settings.updates)

    def _finish(self, made: Checkpoint, record: Record) -> None:
        """Write the record of an update; remove what others left but the one before, and the last with a checkpoint.

        With the one before an engine starts again that is lost before it was given the new weights.
        """
        with atomic_file(made.path(RECORD)) as file:
            file.write(json.dumps(record.values(), allow_nan=False).encode())
        last = next(filter(self._has_checkpoint, range(record.update, 0, -1)), 0)
        first_of_last = last - self._context.settings.max_staleness
        kept = {_name(update) for update in (record.update, record.update - 1, *range(first_of_last, last + 1))}
        for folder in self._folder.iterdir():
            if folder.name not in kept:
                remove(folder)
        self.policy, self.record = made, record


@contextmanager
def _timed(taken: Times, work: str, clock: Callable[[], float] | None = None) -> Iterator[None]:
    """Add the seconds of what is done within to those of a kind of work; what is read again takes none."""
    clock = clock or time.perf_counter
    start_s = clock()
    yield
    taken[work] = taken.get(work, 0.0) + clock() - start_s


def _read_by(trainer: Any, sequences: Sequence[TrainingSequence], column: str, **how: Any) -> list[TrainingSequence]:
    """Return the sequences with what a trainer's weights, or others, say of each token, as a column."""
    read = trainer.token_logprobs(sequences, as_trained=True, **how)
    return [
        replace(sequence, columns={**sequence.columns, column: logprobs})
        for sequence, logprobs in zip(sequences, read, strict=True)
    ]


def _name(update: int) -> str:
    return f"update-{update:06d}"


def _fitting(sequences: Sequence[TrainingSequence], settings: UpdateSettings) -> list[TrainingSequence]:
    """Return the sequences that a trainer takes; too long ones are left out with their units."""
    row = settings.numerics.row_length_tokens
    longest = min(row, settings.optimiser.max_length_tokens or row)
    lengths = [len(sequence) for sequence in sequences]
    units = units_of(lengths, [sequence.unit for sequence in sequences])
    fitting = [unit for unit in units if unit.n_tokens <= row and all(lengths[i] <= longest for i in unit.indices)]
    return [sequences[index] for index in sorted(index for unit in fitting for index in unit.indices)]


def _at_update(optimiser: OptimiserConfig, update: int, n_updates: int) -> OptimiserConfig:
    """Return the optimisation of one update, whose rates are those of the schedule over all updates."""
    share = learning_rate_at(update - 1, n_updates, optimiser) / optimiser.learning_rate
    return optimiser.with_rates(share).model_copy(update={"schedule": Schedule.CONSTANT, "warmup_steps": 0})


def _figures_of(tried: Sequence[Tried]) -> dict[str, float]:
    """Return the mean reward of what has one, how many have none and why, the share of valid plans, and all tokens."""
    kept, left_out = rewarded(tried, [item.reward for item in tried])
    figures = {f"rollout/without reward: {reason}": float(count) for reason, count in left_out.items()}
    if kept:
        figures["rollout/reward"] = fmean(reward for _, reward in kept)
    if tried:
        figures["rollout/valid_plan_rate"] = fmean(item.verdict.is_valid for item in tried)
        figures["rollout/n_tokens"] = float(sum(len(item.rollout.token_ids) for item in tried))
    return figures
