"""What the verdicts of a stage measured: on the test problems, of an iteration's rollouts, on the probe set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from plansmith.data.rows import VerdictRow
from plansmith.evaluation.arms import Arm, evaluated_problems
from plansmith.evaluation.finished_stages import FinishedStage, Place, places_of, read_columns
from plansmith.evaluation.metric_list import Measurement
from plansmith.evaluation.metrics import summarise_level
from plansmith.evaluation.results import IterationRollouts
from plansmith.judging.taxonomy import ErrorClass

ItemT = TypeVar("ItemT")


def judged(stage: FinishedStage) -> list[Measurement]:
    """Return what the attempts that a stage judged reached; whose they are stands in its labels."""
    labels = stage.provenance.labels
    if "arm" in labels:
        return _judged_attempts(stage, labels["arm"])
    return _judged_probe(stage) if "probe" in labels else _judged_rollouts(stage)


def _judged_attempts(stage: FinishedStage, arm: str) -> list[Measurement]:
    """Return what an arm reached on the test problems."""
    found, n_stated = [], 0
    for place, items in _groups(evaluated_problems(Arm.of(stage)), lambda item: (item.domain, item.level)):
        figures, labels = summarise_level(items), {"arm": arm, **place}
        found += [
            stage.measured("evaluation/accuracy", figures.accuracy, **labels),
            stage.measured("evaluation/problems", figures.n, **labels),
        ]
        if figures.mean_progress is not None:
            found.append(stage.measured("evaluation/mean_progress", figures.mean_progress, **labels))
        found += _errors(stage, "evaluation/errors", figures.errors, labels)
        if not place and (own := figures.self_verification) is not None:
            n_stated = own.n
            found.append(stage.measured("evaluation/self_verification", own.accuracy, arm=arm))
    return [*found, stage.measured("evaluation/stated_verdicts", n_stated, arm=arm)]


def _judged_rollouts(stage: FinishedStage) -> list[Measurement]:
    """Return how the rollouts of an iteration fared, before anything is learnt from them."""
    found = []
    for labels, classes in _groups(_error_classes(stage), lambda item: item[1]):
        figures = IterationRollouts.of(stage.provenance.iteration, [error for error, _ in classes])
        found += [
            stage.measured("rollout/valid_plan_rate", figures.n_valid / figures.n, **labels),
            stage.measured("rollout/judged", figures.n, **labels),
            *_errors(stage, "rollout/errors", figures.errors, labels),
        ]
    return found


def _judged_probe(stage: FinishedStage) -> list[Measurement]:
    """Return what share of the probe set the policy solved."""
    classes = [error for error, _ in _error_classes(stage)]
    figures = IterationRollouts.of(stage.provenance.iteration, classes)
    accuracy = [stage.measured("probe/accuracy", figures.n_valid / figures.n)] if classes else []
    return [*accuracy, stage.measured("probe/problems", figures.n)]


def _error_classes(stage: FinishedStage) -> list[tuple[str | None, Place]]:
    """Return the class of error of every attempt, None where its plan is valid, and where its problem belongs."""
    place_of = places_of(stage.input("problems").artifact)
    columns = read_columns(stage.artifact, VerdictRow, "error_class", "problem_id")
    return [(error, place_of[problem_id]) for error, problem_id in zip(*columns, strict=True)]


def _errors(
    stage: FinishedStage, name: str, errors: Mapping[ErrorClass, int], labels: Mapping[str, str]
) -> list[Measurement]:
    """Return the number of failures of every class; not for single levels of single domains, to have fewer."""
    if {"domain", "level"} <= labels.keys():
        return []
    return [stage.measured(name, count, error_class=error.value, **labels) for error, count in errors.items()]


def _groups(items: Iterable[ItemT], place_of: Callable[[ItemT], Place]) -> list[tuple[dict[str, str], Sequence[ItemT]]]:
    """Return all items, those of each domain, each level, and each level of each domain, with their labels."""
    groups: dict[tuple[tuple[str, str], ...], list[ItemT]] = defaultdict(list)
    for item in items:
        domain, level = place_of(item)
        of_domain, of_level = ("domain", domain), ("level", level)
        for labels in ((), (of_domain,), (of_level,), (of_domain, of_level)):
            groups[labels].append(item)
    return [(dict(labels), found) for labels, found in groups.items()]
