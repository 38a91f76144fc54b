"""Everything a report says about one run that writes PDDL for texts, as one value, from the artifacts of the run.

The value is written to and read from ``results.json``; the live page asks for it at every look. Not here: computing the
figures (`formalisation_metrics`, `repair_metrics`, `preference_metrics`), rendering them (`formalisation_report`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from plansmith.config.nl_pddl_bench import NlPddlBenchConfig
from plansmith.data.artifacts import Artifact, StageKind
from plansmith.data.dataset_summary import quartiles
from plansmith.data.rows import PairReadingRow, PairRow, ProblemRow, TextRow
from plansmith.report.answers import AnswerExample, read_answers, shown_answers
from plansmith.report.direct_plans import PlanArm, PlannedText, learnt_levels, planned_texts, summarise_plans
from plansmith.report.finished_stages import RunSoFar, domain_levels_of, read_columns
from plansmith.report.formalisation_arms import (
    DIRECT,
    PREFERRING,
    READ,
    REPAIRED,
    RESAMPLED,
    TextArm,
    domains_of,
    main_arm,
    policies_among,
    text_arms,
)
from plansmith.report.formalisation_metrics import (
    AnsweredText,
    FormalisationArm,
    OutcomeComparison,
    compare_outcome,
    summarise_text_arm,
    trained_on,
    tried_texts,
)
from plansmith.report.preference_metrics import PreferenceFigures, summarise_preference
from plansmith.report.repair_metrics import RepairTurn
from plansmith.report.results import RunResults, check_arms
from plansmith.report.run_facts import facts_of
from plansmith.report.statistics import TriedById

Run = RunSoFar[NlPddlBenchConfig]


@dataclass(frozen=True, slots=True)
class TextFigures:
    """How many texts a level of a domain has, of all splits; ``domain`` is empty for all domains together (table 1).

    ``objects`` are the least and the most of a problem, ``plan_length`` the three quartiles.
    """

    domain: str
    level: str
    n: int
    objects: tuple[int, int]
    plan_length: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class FormalisationResults(RunResults):
    """One run, finished or not. ``arms`` has every policy before what its loops made of its answers.

    ``direct`` is the control that answers with plans. The first of ``paired_tests`` is the headline's. ``preference``
    is by policy, ``repair`` by arm; ``texts`` has every level of all domains, then of each.
    """

    arms: dict[str, FormalisationArm]
    paired_tests: tuple[OutcomeComparison, ...] = ()
    preference: dict[str, PreferenceFigures] = field(default_factory=dict)
    repair: dict[str, tuple[RepairTurn, ...]] = field(default_factory=dict)
    texts: tuple[TextFigures, ...] = ()
    failures: tuple[AnswerExample, ...] = ()
    direct: PlanArm | None = None

    def __post_init__(self) -> None:
        RunResults.__post_init__(self)
        check_arms(self.arms, self.paired_tests, *([DIRECT] if self.direct else []))

    def share(self, arm: str, outcome: str) -> float:
        """Return a figure of an arm; of `DIRECT` it is how many tasks are solved, whatever is asked."""
        if arm == DIRECT and self.direct is not None:
            return self.direct.task_success
        share: float = getattr(self.arms[arm], outcome)
        return share

    @property
    def first(self) -> FormalisationArm:
        """Return the arm that the run began with: the untrained policy, where it was tried."""
        return next(iter(self.arms.values()))

    @property
    def main(self) -> FormalisationArm:
        """Return the arm that the run is about: its last policy, with repair if that was tried."""
        return self.arms[main_arm(self.arms)]


def formalisation_results(run: Run) -> FormalisationResults | None:
    """Return everything that can be said about a run by now; None before an arm was judged."""
    found = text_arms(run)
    if not found:
        return None
    config, arms = run.config, {arm.name: arm for arm in found}
    level_names = {level.name: level.level for level in config.problems.domains}
    answered = {name: arm.answered(level_names) for name, arm in arms.items()}
    main, planned = main_arm(arms), planned_texts(run)
    policies = {arm.name: arm.policy for arm in found if arm.loop is None and arm.name != READ}
    return FormalisationResults(
        **facts_of(run, arms[main].judged.provenance, policies),
        arms={
            name: summarise_text_arm(name, texts, config.repair.turns if arms[name].loop else None)
            for name, texts in answered.items()
        },
        paired_tests=tuple(_paired_tests(answered, planned, main)),
        preference=_preference(run),
        repair={arm.name: arm.repair() for arm in found if arm.loop},
        texts=tuple(text_figures(arms[main].texts, arms[main].problems, level_names)),
        failures=tuple(_failures(arms[main], trained_on(answered[main]), config.evaluation.n_failures_shown)),
        direct=summarise_plans(DIRECT, planned) if planned else None,
    )


def compared_arms(names: Collection[str], main: str) -> list[tuple[str, str, str]]:
    """Return which arms are compared by what, the headline's first; which it is was fixed before any run."""
    policies = sorted(policies_among(names), key=lambda policy: not main.startswith(policy))
    preferring = [policy for policy in policies if policy.startswith(PREFERRING)]
    wanted = [
        *((policy, f"{policy}_{REPAIRED}", "psr_of_all") for policy in policies),
        *((f"{policy}_{RESAMPLED}", f"{policy}_{REPAIRED}", "equivalent") for policy in policies),
        *(("sft_longer", policy, "equivalent") for policy in preferring),
        *(("sft", policy, "equivalent") for policy in preferring),
        ("untrained", "sft", "equivalent"),
        *((DIRECT, name, "task_success") for name in dict.fromkeys((main, "sft", f"sft_{REPAIRED}"))),
    ]
    return [pair for pair in wanted if pair[0] in names and pair[1] in names]


def _paired_tests(
    answered: Mapping[str, Sequence[AnsweredText]], planned: Sequence[PlannedText], main: str
) -> Iterator[OutcomeComparison]:
    """Yield the tests of all arms on the texts of levels that were trained on."""

    def tried(arm: str, outcome: str) -> TriedById:
        if arm == DIRECT:
            return {text.problem_id: text.tried for text in learnt_levels(planned)}
        return tried_texts(trained_on(answered[arm]), outcome)

    for before, after, outcome in compared_arms([*answered, *([DIRECT] if planned else [])], main):
        yield compare_outcome(before, after, outcome, tried)


def _preference(run: Run) -> dict[str, PreferenceFigures]:
    """Return what each policy gives to the held-out pairs."""
    if run.config.dpo is None:
        return {}
    beta = run.config.dpo.beta
    return {arm: summarise_preference(rows, problem_of, beta) for arm, rows, problem_of in pair_readings(run)}


def pair_readings(run: Run) -> Iterator[tuple[str, list[PairReadingRow], dict[str, str]]]:
    """Yield each policy with what it gives to the held-out pairs, and the problem of each pair."""
    for stage in run.stages(StageKind.READS_PAIRS):
        columns = read_columns(stage.input("pairs").artifact, PairRow, "pair_id", "problem_id", table="held_out")
        if rows := stage.artifact.rows(PairReadingRow):
            yield stage.provenance.labels["arm"], rows, dict(zip(*columns, strict=True))


def text_figures(texts: Artifact, problems: Artifact, level_names: Mapping[str, str]) -> Iterator[TextFigures]:
    """Yield the figures of every level of all domains together, then of each domain."""
    places = domain_levels_of(problems)
    objects = dict(zip(*read_columns(problems, ProblemRow, "problem_id", "n_objects"), strict=True))
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for problem_id, plan in zip(*read_columns(texts, TextRow, "problem_id", "plan"), strict=True):
        domain, level = places[problem_id]
        for place in (("", level_names.get(level, level)), (domain, level_names.get(level, level))):
            groups.setdefault(place, []).append((objects[problem_id], len(plan)))
    for (domain, level), found in sorted(groups.items()):
        sizes, lengths = zip(*found, strict=True)
        yield TextFigures(domain, level, len(found), (min(sizes), max(sizes)), quartiles(lengths))


def _failures(arm: TextArm, texts: Sequence[AnsweredText], count: int) -> list[AnswerExample]:
    """Return so many wrong answers of an arm, spread over levels of domains and flaws."""
    place_of = {text.problem_id: f"{text.domain} {text.level}" for text in texts}
    chosen = shown_answers([text.answer() for text in texts], place_of, count)
    if not chosen:
        return []
    domain_of = domains_of(arm.problems)
    return read_answers(chosen, arm=arm.name, texts=arm.texts, written=arm.written, domain_of=domain_of)
