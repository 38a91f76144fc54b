"""What the verdicts of a stage measured: on the test problems, of an iteration's rollouts, on the probe set."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from plansmith.data.rows import VerdictRow
from plansmith.evaluation.finished_stages import FinishedStage, Place, places_of, read_columns
from plansmith.evaluation.metric_list import Measurement
from plansmith.judging.taxonomy import ErrorClass
from plansmith.text.chains import VALID as STATED_VALID


def judged_attempts(stage: FinishedStage) -> list[Measurement]:
    """Return what an arm reached on the test problems."""
    arm, judged = stage.name.removeprefix("judge_"), _Judged.of(stage)
    found = []
    for labels, indices in _groups(judged.places):
        found += [
            stage.measured("evaluation/accuracy", judged.valid_share(indices), arm=arm, **labels),
            stage.measured("evaluation/problems", len(indices), arm=arm, **labels),
        ]
        progress = [share for i in indices if (share := judged.progress[i]) is not None]
        if progress:
            found.append(stage.measured("evaluation/mean_progress", fmean(progress), arm=arm, **labels))
        found += judged.errors(stage, "evaluation/errors", indices, arm=arm, **labels)
    stated = [(verdict == STATED_VALID) == (error is None) for verdict, error in judged.stated if verdict is not None]
    if stated:
        found.append(stage.measured("evaluation/self_verification", fmean(stated), arm=arm))
    return [*found, stage.measured("evaluation/stated_verdicts", len(stated), arm=arm)]


def judged_rollouts(stage: FinishedStage) -> list[Measurement]:
    """Return how the rollouts of an iteration fared, before anything is learnt from them."""
    judged, found = _Judged.of(stage), []
    for labels, indices in _groups(judged.places):
        found += [
            stage.measured("rollout/valid_plan_rate", judged.valid_share(indices), **labels),
            stage.measured("rollout/judged", len(indices), **labels),
        ]
        found += judged.errors(stage, "rollout/errors", indices, **labels)
    return found


def judged_probe(stage: FinishedStage) -> list[Measurement]:
    """Return what share of the probe set the policy solved."""
    judged = _Judged.of(stage)
    everything = range(len(judged.places))
    return [
        stage.measured("probe/accuracy", judged.valid_share(everything)),
        stage.measured("probe/problems", len(everything)),
    ]


@dataclass(frozen=True, slots=True)
class _Judged:
    """The verdicts of a stage as columns; an error class is None for a valid plan."""

    places: Sequence[Place]
    error_classes: Sequence[str | None]
    progress: Sequence[float | None]
    claimed: Sequence[str | None]

    @classmethod
    def of(cls, stage: FinishedStage) -> _Judged:
        place_of = places_of(stage.input("problems"))
        names = ("problem_id", "error_class", "progress", "claimed_verdict")
        problem_ids, *columns = read_columns(stage.artifact, VerdictRow, *names)
        return cls([place_of[problem_id] for problem_id in problem_ids], *columns)

    @property
    def stated(self) -> list[tuple[str | None, str | None]]:
        """Return what the policy said of each plan, with the class of its error."""
        return list(zip(self.claimed, self.error_classes, strict=True))

    def valid_share(self, indices: Sequence[int]) -> float:
        return fmean(self.error_classes[i] is None for i in indices)

    def errors(self, stage: FinishedStage, name: str, indices: Sequence[int], **labels: str) -> list[Measurement]:
        """Return the number of failures of every class; not for single levels of single domains, to have fewer."""
        if {"domain", "level"} <= labels.keys():
            return []
        counts = Counter(self.error_classes[i] for i in indices)
        return [stage.measured(name, counts[error], error_class=error.value, **labels) for error in ErrorClass]


def _groups(places: Sequence[Place]) -> list[tuple[dict[str, str], list[int]]]:
    """Return the indices of all, of each domain, of each level, and of each level of each domain, with their labels."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = defaultdict(list)
    for index, (domain, level) in enumerate(places):
        of_domain, of_level = ("domain", domain), ("level", level)
        for labels in ((), (of_domain,), (of_level,), (of_domain, of_level)):
            groups[labels].append(index)
    return [(dict(labels), indices) for labels, indices in groups.items()]
