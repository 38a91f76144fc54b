"""The arm that answers a text with a plan, not with a problem: as a run's artifacts have it, and its figures.

It is a control (table 2 of NL-PDDL-Bench), and no figure of a written problem means anything of it: it has the share
whose plan solves the task, and nothing else. Not here: the arms that formalise (`formalisation_arms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from plansmith.data.artifacts import StageKind
from plansmith.data.rows import VerdictRow
from plansmith.groups import grouped
from plansmith.pddl.validation import Verdict
from plansmith.report.finished_stages import FinishedStage, RunSoFar, domain_levels_of, forms_of, read_columns
from plansmith.report.formalisation_arms import novelties_of
from plansmith.report.formalisation_metrics import Novelty
from plansmith.report.metric_list import Measurement
from plansmith.report.statistics import TriedProblem, accuracy_interval


@dataclass(frozen=True, slots=True)
class PlannedText:
    """A test text that was answered with a plan; ``level`` is as tables of problems name it, the domain's own."""

    problem_id: str
    domain: str
    level: str
    form: str
    novelty: Novelty
    is_solved: bool
    """The plan is valid for the reference."""

    @property
    def tried(self) -> TriedProblem:
        """Return what intervals and tests need to know of it."""
        return TriedProblem(self.is_solved, self.form)


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """How many of ``n`` texts of ``n_forms`` forms got a plan that solves the reference."""

    n: int
    n_forms: int
    task_success: float
    ci95: tuple[float, float]

    @classmethod
    def of(cls, texts: Sequence[PlannedText]) -> PlanFigures:
        """Return the figures of some texts, one at least."""
        tried = [text.tried for text in texts]
        share = fmean(item.is_solved for item in tried)
        return cls(len(tried), len({item.form for item in tried}), share, accuracy_interval(tried))


@dataclass(frozen=True, slots=True)
class PlanArm(PlanFigures):
    """The figures over the test texts of levels that were trained on, and those of its domains and of other texts.

    ``by_novelty`` and ``by_new_place`` are as of `FormalisationArm`.
    """

    name: str
    by_domain: dict[str, PlanFigures]
    by_novelty: dict[str, PlanFigures]
    by_new_place: dict[str, PlanFigures]


def planned_texts(run: RunSoFar[Any]) -> list[PlannedText]:
    """Return the test texts with the plans that were written directly; none before that has been judged."""
    stage = run.one(StageKind.JUDGES_PLANS)
    return [] if stage is None else read_planned(stage)


def read_planned(stage: FinishedStage) -> list[PlannedText]:
    """Return the texts whose plans a stage judged."""
    problems = stage.input("problems").artifact
    places, forms, novelties = domain_levels_of(problems), forms_of(problems), novelties_of(problems)
    columns = read_columns(stage.artifact, VerdictRow, "problem_id", "verdict")
    return [
        PlannedText(name, *places[name], forms[name], novelties[name], verdict == Verdict.VALID)
        for name, verdict in zip(*columns, strict=True)
    ]


def learnt_levels(texts: Sequence[PlannedText]) -> list[PlannedText]:
    """Return the texts of levels that were trained on."""
    return [text for text in texts if text.novelty is Novelty.TRAINED]


def summarise_plans(name: str, planned: Sequence[PlannedText]) -> PlanArm:
    """Return the figures of an arm; domains keep the order in which they first occur.

    Args:
        name: of the arm.
        planned: texts with its plans, some of a level that was trained on.
    """
    texts, others = learnt_levels(planned), [text for text in planned if text.novelty is not Novelty.TRAINED]
    shared = PlanFigures.of(texts)
    by_domain, by_novelty, by_place = (
        {key: PlanFigures.of(found) for key, found in groups.items()}
        for groups in (
            grouped(texts, lambda text: text.domain),
            grouped(others, lambda text: text.novelty.value),
            grouped(others, lambda text: text.level),
        )
    )
    figures = {key: getattr(shared, key) for key in PlanFigures.__dataclass_fields__}
    return PlanArm(**figures, name=name, by_domain=by_domain, by_novelty=by_novelty, by_new_place=by_place)


def plan_measurements(stage: FinishedStage) -> list[Measurement]:
    """Return the share of texts whose plan solves the task, all together and by domain."""
    arm = summarise_plans(stage.provenance.labels["arm"], read_planned(stage))
    by_domain = {(("domain", domain),): figures for domain, figures in arm.by_domain.items()}
    return [
        stage.measured("formalisation/task_success", figures.task_success, arm=arm.name, **dict(labels))
        for labels, figures in ({(): arm} | by_domain).items()
    ]
