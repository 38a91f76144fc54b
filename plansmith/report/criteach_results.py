"""Everything a report says about one run of `self_criteach`, as one value, from the artifacts of the run.

The value is written to and read from ``results.json``; the live page asks for it at every look. Not here: the tables
and sentences (`criteach_report`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from plansmith.config.problems import task_of_level
from plansmith.config.self_criteach import SelfCriteachConfig
from plansmith.data.artifacts import Artifact, StageKind
from plansmith.data.rows import (
    FIRST,
    OPPONENTS,
    CriticismRow,
    MetricRow,
    PlanRow,
    ProblemRow,
    Split,
    VerdictRow,
    WrittenDomainRow,
)
from plansmith.groups import grouped
from plansmith.pddl.validation import Verdict
from plansmith.report.arms import Arm, arms_of, evaluated_problems, tokens_of_problems
from plansmith.report.attempts import AttemptExample
from plansmith.report.criteach_paper import CLASSIC, HARD, OF_HARD, SEVEN_SETS, TASKS
from plansmith.report.finished_stages import FinishedStage, RunSoFar, read_columns
from plansmith.report.metrics import (
    ALL_LEVELS,
    EvaluatedProblem,
    LevelFigures,
    PairedComparison,
    compare_arms,
    mean_of_known,
    summarise_level,
)
from plansmith.report.results import RunResults, check_arms
from plansmith.report.run_facts import Updates, facts_of, updates_of
from plansmith.report.run_results import shown_attempts
from plansmith.report.statistics import paired_permutation

Run = RunSoFar[SelfCriteachConfig]

LENGTHS = ((1, 10), (11, 20), (21, 30), (31, None))
"""The paper's intervals of plan lengths (section A.2.1)."""


@dataclass(frozen=True, slots=True)
class DomainFigures:
    """A written domain at one time; shares are None where nothing was tried or compared."""

    size: int
    n_faults: int
    transitions: float | None
    refusals: float | None
    solved: float | None
    true_plans: float | None
    applicable_precision: float | None
    applicable_recall: float | None
    effect_precision: float | None
    effect_recall: float | None
    reference_plans: float | None = None
    held_out: float | None = None


@dataclass(frozen=True, slots=True)
class WrittenDomain:
    """A domain as it was written first, after its repair, and pruned; None where that was not done.

    ``opponent`` is a safe action model of the same demonstrations, where it is another domain.
    """

    first_go: DomainFigures | None
    repaired: DomainFigures | None
    pruned: DomainFigures | None
    n_turns: int
    dropped: tuple[str, ...]
    opponent: DomainFigures | None = None


@dataclass(frozen=True, slots=True)
class DamagedDomain:
    """What was done to the domain that counts, after so many draws in which no scene could be solved."""

    changes: tuple[str, ...]
    n_redrawn: int
    figures: DomainFigures
    domain_pddl: str


@dataclass(frozen=True, slots=True)
class Library:
    """The plans of D1 and D2 in the written domain, by the lengths of the planner's first plan."""

    by_length: dict[str, int]
    n_plans: int
    n_true: int


@dataclass(frozen=True, slots=True)
class TaskProblems:
    """Solved problems of a task to learn from, and its tests, by the lengths of the planner's plans."""

    library: dict[str, int]
    tests: dict[str, int]


@dataclass(frozen=True, slots=True)
class Overall:
    """One policy over several tasks; ``progress`` is None where nobody knows it, tokens are of a problem."""

    n: int
    success: float
    progress: float | None
    tokens: float


@dataclass(frozen=True, slots=True)
class CriteachArm:
    """One policy on the test problems; ``progress_printed`` is equation 13 to the letter, ``cost_per_plan`` its 11.

    ``tokens_per_problem`` counts all answers of a vote, as do ``tokens_by_task`` and ``tokens_by_length``. A task is a
    domain of the library; stack, unstack and reorder have a figure together as well, under the name of `HARD`.
    ``overall`` is by the names of `over_all`, and empty where one of the paper's tasks is not tested.
    """

    name: str
    figures: LevelFigures
    by_task: dict[str, LevelFigures]
    by_length: dict[str, LevelFigures]
    progress: float | None
    progress_printed: float | None
    cost_per_plan: float | None
    tokens_per_problem: float
    tokens_by_task: dict[str, float]
    tokens_by_length: dict[str, float] = field(default_factory=dict)
    overall: dict[str, Overall] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeanTest:
    """Means of two arms on the same problems, and the chance of such a difference if they were alike."""

    before: str
    after: str
    what: str
    mean_before: float
    mean_after: float
    p_value: float


@dataclass(frozen=True, slots=True)
class NoiseFigures:
    """Plans made from noisy states, run from the true ones.

    Attributes:
        rate, n: share of the atoms that were disturbed, and tests.
        policy, planner: whose plans succeeded.
        nearest: the planner's, from the nearest states that fit what was demonstrated.
        restored: of those states, the true ones.
        believing: the policy's that first tells the state it believes in; None where there is none.
    """

    rate: float
    n: int
    policy: int
    planner: int
    nearest: int = 0
    restored: int = 0
    believing: int | None = None


@dataclass(frozen=True, slots=True)
class CriteachResults(RunResults):
    """One run, finished or not; ``arms`` in the order of training.

    ``cpo`` has by stage what was measured in every update, by name; ``held_out`` by policy the mean of -log p over the
    tokens of chains that were not learnt from, in nats; ``narration`` counts what a model told,
    ``paraphrase`` the prompts that were rephrased and those that were kept since the answer was refused; ``primer``
    what a model from nothing learnt before it counted as the base, and how many schemas of domains that it had not seen
    it was then asked for and wrote right; ``pairs`` by arm the problems whose answers were to be paired, and those that
    gave no pair; ``problems`` has those of each task, of those to learn from and tests the solved.
    """

    writer: str
    trained_domains: tuple[str, ...]
    domain: dict[str, WrittenDomain]
    library: dict[str, Library]
    arms: dict[str, CriteachArm]
    paired_tests: tuple[PairedComparison, ...] = ()
    mean_tests: tuple[MeanTest, ...] = ()
    cpo: dict[str, Updates] = field(default_factory=dict)
    held_out: dict[str, float] = field(default_factory=dict)
    narration: dict[str, int] = field(default_factory=dict)
    paraphrase: dict[str, int] = field(default_factory=dict)
    primer: dict[str, int] = field(default_factory=dict)
    pairs: dict[str, dict[str, int]] = field(default_factory=dict)
    problems: dict[str, TaskProblems] = field(default_factory=dict)
    noise: tuple[NoiseFigures, ...] = ()
    not_run: tuple[str, ...] = ()
    damage: dict[str, DamagedDomain] = field(default_factory=dict)
    failures: tuple[AttemptExample, ...] = ()

    def __post_init__(self) -> None:
        RunResults.__post_init__(self)
        check_arms(self.arms, self.paired_tests)

    @property
    def last(self) -> CriteachArm:
        """Return the arm that was trained last."""
        return list(self.arms.values())[-1]


def criteach_results(run: Run) -> CriteachResults | None:
    """Return everything that can be said about a run by now; None before an arm was judged."""
    arms = list(arms_of(run))
    if not arms:
        return None
    config, evaluated = run.config, {arm.name: evaluated_problems(arm) for arm in arms}
    criticised = dict(_criticised(run))
    return CriteachResults(
        **facts_of(run, arms[-1].policy.manifest.provenance, {arm.name: arm.policy for arm in arms}),
        writer=config.domain.writer,
        trained_domains=trained_tasks(config),
        domain=dict(_domains(run)),
        library=_library(run),
        arms={arm.name: _arm(arm, evaluated[arm.name], criticised.get(arm.name, {})) for arm in arms},
        paired_tests=tuple(_paired_tests(evaluated)),
        mean_tests=mean_tests(measured_in(run)),
        cpo=_updates(run),
        held_out=dict(_held_out(run)),
        narration=_narration(run),
        paraphrase=_counts(run, "paraphrase/", "keep_paraphrases"),
        primer=_counts(run, "primer/", "write_schema_primer", "write_plan_primer", "try_schema_primer"),
        pairs={arm: found for arm in ("dpo_only", "sft_dpo") if (found := _counts(run, "pairs/", f"pair_{arm}"))},
        problems=_problems(run, evaluated[arms[-1].name]),
        noise=tuple(_noise(run)),
        not_run=tuple(name for name in config.arms if name not in evaluated),
        damage=dict(_damaged(run)),
        failures=tuple(shown_attempts(arms[-1], is_valid=False, count=config.evaluation.n_failures_shown)),
    )


def length_name(length: int) -> str:
    """Return the interval that a plan length lies in."""
    least, most = next(bounds for bounds in LENGTHS if bounds[1] is None or length <= bounds[1])
    return f"{least}-{most}" if most else f"{least}+"


def _arm(arm: Arm, items: Sequence[EvaluatedProblem], criticised: Mapping[str, CriticismRow]) -> CriteachArm:
    lengths = grouped(items, lambda item: length_name(item.planner_plan_length))
    in_order = {name: lengths[name] for name in map(_named, LENGTHS) if name in lengths}
    figures, rows, tokens = summarise_level(items), criticised.values(), tokens_of_problems(arm.rollouts)
    tasks = by_task(items)
    return CriteachArm(
        name=arm.name,
        figures=figures,
        by_task={task: summarise_level(found) for task, found in tasks.items()},
        by_length={name: summarise_level(found) for name, found in in_order.items()},
        progress=figures.mean_progress,
        progress_printed=mean_of_known(row.progress_printed for row in rows),
        cost_per_plan=mean_of_known(row.cost for row in rows),
        tokens_per_problem=sum(tokens.values()) / len(items),
        tokens_by_task=_mean_tokens(tasks, tokens),
        tokens_by_length=_mean_tokens(in_order, tokens),
        overall=over_all(tasks, tokens),
    )


def _mean_tokens(groups: Mapping[str, Sequence[EvaluatedProblem]], tokens: Mapping[str, int]) -> dict[str, float]:
    return {name: fmean(tokens[item.problem_id] for item in found) for name, found in groups.items()}


def over_all(tasks: Mapping[str, Sequence[EvaluatedProblem]], tokens: Mapping[str, int]) -> dict[str, Overall]:
    """Return the figures over all attempts but those of Classic, over all, and the means of the paper's six columns.

    The first are the paper's "Overall": seven sets of 200, so that the column Hard weighs three times.
    """
    if not {*TASKS} <= {*tasks}:
        return {}
    columns = [_overall(tasks[name], tokens) for name in TASKS]
    everything = [item for name, found in tasks.items() if name not in OF_HARD for item in found]
    return {
        SEVEN_SETS: _overall([item for item in everything if task_of_level(item.level) != CLASSIC], tokens),
        "all tests": _overall(everything, tokens),
        "mean of the six columns": Overall(
            len(everything),
            fmean(column.success for column in columns),
            mean_of_known(column.progress for column in columns),
            fmean(column.tokens for column in columns),
        ),
    }


def _overall(items: Sequence[EvaluatedProblem], tokens: Mapping[str, int]) -> Overall:
    return Overall(
        len(items),
        fmean(item.is_valid for item in items),
        mean_of_known(item.progress for item in items),
        fmean(tokens[item.problem_id] for item in items),
    )


def by_task(items: Sequence[EvaluatedProblem]) -> dict[str, list[EvaluatedProblem]]:
    """Return attempts by task; the three that the paper counts as one are there as one as well."""
    found = grouped(items, lambda item: task_of_level(item.level))
    if {*OF_HARD} & {*found}:
        found[HARD] = [item for task in (HARD, *OF_HARD) for item in found.get(task, ())]
    return found


def trained_tasks(config: SelfCriteachConfig) -> tuple[str, ...]:
    """Return the tasks that are learnt in; what the paper counts as one is, where all of it that is tested is."""
    trained = config.trained_domains
    tested = {HARD, *OF_HARD} & {*config.problems.tested_tasks}
    others = tuple(task for task in trained if task != HARD)
    return (*others, HARD) if tested and tested <= {*trained} else others


def _problems(run: Run, tests: Sequence[EvaluatedProblem]) -> dict[str, TaskProblems]:
    """Return how many problems each task has by plan length."""
    counts: dict[str, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for level, length in _learnt_lengths(run, "level"):
        counts[task_of_level(level)][0][length] += 1
    for item in tests:
        counts[task_of_level(item.level)][1][length_name(item.planner_plan_length)] += 1
    names = [*map(_named, LENGTHS)]
    return {
        task: TaskProblems(*({name: found[name] for name in names} for found in pair)) for task, pair in counts.items()
    }


def _learnt_lengths(run: Run, column: str) -> Iterator[tuple[str, str]]:
    """Yield a fact of each solved problem of D1 and D2, and the interval of its plan's length."""
    plans, problems = (run.artifacts.get(name) for name in ("synthesize_plans", "sample_problems"))
    if plans is None or problems is None:
        return
    ids, facts, splits = read_columns(problems, ProblemRow, "problem_id", column, "split")
    fact_of = {name: fact for name, fact, split in zip(ids, facts, splits, strict=True) if split != Split.TEST}
    for problem_id, plan in zip(*read_columns(plans, PlanRow, "problem_id", "plan"), strict=True):
        if plan and problem_id in fact_of:
            yield fact_of[problem_id], length_name(len(plan))


def _named(bounds: tuple[int, int | None]) -> str:
    return length_name(bounds[0])


def _criticised(run: Run) -> Iterator[tuple[str, dict[str, CriticismRow]]]:
    """Yield what a domain says of the attempts of each arm, by problem."""
    for stage in run.stages():
        if arm := stage.provenance.labels.get("criticised"):
            yield arm, {row.problem_id: row for row in stage.artifact.rows(CriticismRow)}


def _domains(run: Run) -> Iterator[tuple[str, WrittenDomain]]:
    for stage in run.stages():
        if (name := stage.provenance.labels.get("domain")) is None:
            continue
        rows = stage.artifact.rows(WrittenDomainRow)
        pruned = next((row for row in rows if row.candidate == 1 and row.is_best and not row.completion), None)
        repaired = rows[0]
        yield (
            name,
            WrittenDomain(
                next(map(_figures, _beside(stage.artifact, FIRST)), None),
                _figures(repaired),
                None if pruned is None or len(rows) == 1 else _figures(pruned),
                repaired.turn,
                rows[-1].dropped,
                next(map(_figures, _beside(stage.artifact, OPPONENTS)), None),
            ),
        )


def _beside(artifact: Artifact, table: str) -> list[WrittenDomainRow]:
    """Return what stands beside a written domain in a table; runs of before had none."""
    return artifact.rows(WrittenDomainRow, table) if f"{table}.parquet" in artifact.manifest.files else []


def _damaged(run: Run) -> Iterator[tuple[str, DamagedDomain]]:
    for stage in run.stages():
        if name := stage.provenance.labels.get("damaged"):
            row = _best(stage.artifact)
            yield name, DamagedDomain(row.dropped, row.candidate, _figures(row), row.domain_pddl)


def _best(written: Artifact) -> WrittenDomainRow:
    return next(row for row in written.rows(WrittenDomainRow) if row.is_best)


def _figures(row: WrittenDomainRow) -> DomainFigures:
    shared = {name: getattr(row, name) for name in DomainFigures.__dataclass_fields__ if hasattr(row, name)}
    return DomainFigures(size=row.n_literals, n_faults=len(row.faults), **shared)


def _library(run: Run) -> dict[str, Library]:
    """Return the solved problems of D1 and D2 by domain and plan length, and how many plans are true."""
    checked = run.artifacts.get("run_library")
    if checked is None:
        return {}
    lengths: dict[str, Counter[str]] = defaultdict(Counter)
    for domain, length in _learnt_lengths(run, "domain"):
        lengths[domain][length] += 1
    counted = {(row.domain, row.name): int(row.value) for row in checked.rows(MetricRow)}
    return {
        domain: Library(
            {name: found[name] for name in map(_named, LENGTHS)},
            counted.get((domain, "library/plans"), 0),
            counted.get((domain, "library/true_plans"), 0),
        )
        for domain, found in lengths.items()
    }


def compared_arms(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return which arms are compared, the headline's first; which it is was fixed before any run."""
    wanted = [
        ("sft", "sft_cpo"), ("base", "sft"), ("base", "sft_cpo"), ("vote", "sft_cpo"), ("prompt_cot", "sft_cpo"),
        ("self_distilled", "sft_cpo"), ("distilled", "sft_cpo"), ("symbol", "sft"), ("dpo_only", "cpo_only"),
        ("sft_dpo", "sft_cpo"),
    ]  # fmt: skip
    return [pair for pair in wanted if set(pair) <= set(names)]


def _paired_tests(evaluated: Mapping[str, Sequence[EvaluatedProblem]]) -> Iterator[PairedComparison]:
    for before, after in compared_arms(list(evaluated)):
        first, second = evaluated[before], evaluated[after]
        yield compare_arms(before, after, ALL_LEVELS, evaluated_before=first, evaluated_after=second)


Measured = Mapping[str, Mapping[str, Mapping[Any, float | None]]]
"""By arm and by what is measured, the numbers of problems, by id and canonical form; None where nobody knows."""


def measured_in(run: Run) -> Measured:
    """Return cost and progress of the plans of every arm, which success does not show, by problem."""
    costs = {name: {key: row.cost for key, row in rows.items()} for name, rows in _criticised(run)}
    found: dict[str, dict[str, dict[Any, float | None]]] = {}
    for arm in arms_of(run):
        evaluated, cost_of = evaluated_problems(arm), costs.get(arm.name, {})
        found[arm.name] = {
            "cost per plan": {(own.problem_id, own.form): cost_of.get(own.problem_id) for own in evaluated},
            "progress": {(own.problem_id, own.form): own.progress for own in evaluated},
        }
    return found


def mean_tests(measured: Measured) -> tuple[MeanTest, ...]:
    """Return the tests of what is measured, of the first two of the compared pairs of arms."""
    return tuple(
        test
        for before, after in compared_arms(list(measured))[:2]
        for what in measured[before]
        if (test := _mean_test(before, after, what, measured[before][what], measured[after][what]))
    )


def _mean_test(
    before: str, after: str, what: str, first: Mapping[Any, float | None], second: Mapping[Any, float | None]
) -> MeanTest | None:
    """Return the test over the problems on which both numbers are known; None if there is no such problem."""
    pairs = [
        (a, b, key[-1])
        for key in sorted(first.keys() & second.keys())
        if (a := first[key]) is not None and (b := second[key]) is not None
    ]
    if not pairs:
        return None
    firsts, seconds, forms = zip(*pairs, strict=True)
    return MeanTest(before, after, what, fmean(firsts), fmean(seconds), paired_permutation(firsts, seconds, forms))


def _updates(run: Run) -> dict[str, Updates]:
    stages = (
        stage for stage in run.stages(StageKind.OPTIMISES) if stage.provenance.labels.get("objective") == "constrained"
    )
    return {stage.name: updates_of([stage]) for stage in stages}


def _held_out(run: Run) -> Iterator[tuple[str, float]]:
    for stage in run.stages():
        if name := stage.provenance.labels.get("reads"):
            rows = stage.artifact.rows(MetricRow, "metrics")
            yield name, next(row.value for row in rows if row.name == "held_out/loss")


def _narration(run: Run) -> dict[str, int]:
    """Return how many plans a model was to tell, how many were believed, and how many tellings were refused and why."""
    stages = (stage for stage in run.stages(StageKind.WRITES) if "narration" in stage.provenance.labels)
    rows = (row for stage in stages for row in stage.artifact.rows(MetricRow, "metrics"))
    return {row.name.removeprefix("narration/"): int(row.value) for row in rows}


def _counts(run: Run, beginning: str, *stages: str) -> dict[str, int]:
    """Return what stages have counted under names with a beginning, without it."""
    found = (run.artifacts[name] for name in stages if name in run.artifacts)
    rows = (row for artifact in found for row in artifact.rows(MetricRow, "metrics"))
    return {row.name.removeprefix(beginning): int(row.value) for row in rows}


def _noise(run: Run) -> Iterator[NoiseFigures]:
    """Yield how planner and policy do from states of each rate of noise."""
    by_rate: dict[str, dict[str, FinishedStage]] = defaultdict(dict)
    for stage in run.stages():
        if rate := stage.provenance.labels.get("noise"):
            by_rate[rate][stage.provenance.labels["state"]] = stage
    for rate, stages in by_rate.items():
        if not {"shown", "planned", "found", "nearest"} <= {*stages}:
            continue
        of_policies = {kind: _verdicts_of(stages[kind]) for kind in ("shown", "believed") if kind in stages}
        n_valid = {kind: found.count(Verdict.VALID) for kind, found in of_policies.items()}
        by_planner, from_nearest = (_sum_of(stages[kind], "noise/succeeded") for kind in ("planned", "nearest"))
        restored = _sum_of(stages["found"], "nearest/true")
        yield NoiseFigures(
            float(rate), len(of_policies["shown"]), n_valid["shown"], by_planner, from_nearest, restored,
            n_valid.get("believed"),
        )  # fmt: skip


def _verdicts_of(stage: FinishedStage) -> list[str]:
    (verdicts,) = read_columns(stage.artifact, VerdictRow, "verdict")
    return list(verdicts)


def _sum_of(stage: FinishedStage, name: str) -> int:
    """Return a figure of a stage over all levels."""
    return int(sum(row.value for row in stage.artifact.rows(MetricRow, "metrics") if row.name == name))
