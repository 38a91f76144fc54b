"""The figures of a run so far, from the artifacts that are there: as the report's plots and tables have them.

They are what `plansmith.evaluation.measurements` measures, so that every window of a run shows the same. Not here: the
figures that need a finished run, such as paired tests and plan quality (`metrics`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from plansmith.data.artifacts import Artifact
from plansmith.errors import PlansmithError
from plansmith.evaluation.drawing import ERRORS, ON_ERROR, Plot, legend_above, svg_of
from plansmith.evaluation.measurements import Measurement, measurements_of
from plansmith.evaluation.metrics import ArmResult, LevelFigures
from plansmith.evaluation.plots import (
    draw_accuracy,
    draw_domains,
    draw_errors,
    draw_iteration_losses,
    draw_rollouts,
    draw_times,
    draw_training_curve,
)
from plansmith.evaluation.results import Losses, Results, TrainingCurve
from plansmith.evaluation.statistics import wilson_interval
from plansmith.evaluation.tables import Table, domain_table
from plansmith.evaluation.wording import interval, number_or_dash, percent, spoken
from plansmith.judging.taxonomy import ErrorClass

logger = logging.getLogger(__name__)

STAGE_OF = {"supervised": "phase1", "reasoning": "stage1", "final": "stage2"}
"""The training stage by what it optimises."""
ERROR_COLUMNS = ("precondition", "effect", "goal", "sequence")
"""The classes of error, in their order, as the columns of the report call them."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """What became of the rollouts of one feedback iteration, and both losses as printed; None is not known yet."""

    iteration: int
    n: int
    n_valid: int
    errors: Mapping[ErrorClass, int]
    reasoning: float | None
    final: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything measured so far.

    ``results`` holds what the report's plots draw; of its figures only counts, accuracies, losses and curves are known.
    It is None before the first policy was tried. ``tokens_per_s`` is by stage. ``n_not_finite`` counts losses that are
    NaN or infinite, which no plot shows.
    """

    results: Results | None
    rollouts: tuple[Rollouts, ...]
    tokens_per_s: Mapping[str, float]
    policy_version: str
    n_not_finite: int


class Measuring:
    """Measures each artifact once."""

    def __init__(self) -> None:
        self._known: dict[Artifact, list[Measurement]] = {}

    def measured(self, artifacts: Mapping[str, Artifact]) -> dict[str, list[Measurement]]:
        """Return the measurements of every stage; what cannot be measured has none, and a warning."""
        by_key = {artifact.key: artifact for artifact in artifacts.values()}
        self._known = {
            artifact: self._known[artifact] if artifact in self._known else _measured(name, artifact, by_key)
            for name, artifact in artifacts.items()
        }
        return {name: self._known[artifact] for name, artifact in artifacts.items()}


def inputs_of(artifact: Artifact, by_key: Mapping[str, Artifact]) -> dict[str, Artifact]:
    """Return the artifacts that one was made from, by the names it knows them by, as far as they are there."""
    keys = artifact.manifest.provenance.inputs
    return {name: by_key[key] for name, key in keys.items() if key in by_key}


def _measured(name: str, artifact: Artifact, by_key: Mapping[str, Artifact]) -> list[Measurement]:
    try:
        return measurements_of(name, artifact, inputs_of(artifact, by_key))
    except (PlansmithError, OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("stage %s cannot be measured: %s", name, error)
        return []


def figures_of(measured: Mapping[str, Sequence[Measurement]], *, name: str, primary_level: str = "") -> Figures:
    """Return the figures of a run from the measurements of its stages, in their order."""
    everything = [item for items in measured.values() for item in items]
    curves, n_not_finite = _curves(everything)
    arms = _arms(everything, primary_level)
    rollouts = _rollouts(everything)
    results = None
    if arms:
        results = Results(
            run_name=name,
            preset="",
            seed=0,
            primary_level=next(iter(arms.values())).level,
            arms=arms,
            losses=Losses(_unbroken(r.reasoning for r in rollouts), _unbroken(r.final for r in rollouts), curves),
            rollout_valid_rate=tuple(r.n_valid / r.n for r in rollouts),
            time_s={m.labels["stage"]: m.value for m in everything if m.name == "stage/wall_time_s"},
        )
    speeds = ("training/tokens_per_s", "generation/tokens_per_s")
    versions = [m.labels["policy_version"] for m in everything if m.name == "policy/version"]
    return Figures(
        results=results,
        rollouts=rollouts,
        tokens_per_s={stage: m.value for stage, items in measured.items() for m in items if m.name in speeds},
        policy_version=versions[-1] if versions else "",
        n_not_finite=n_not_finite,
    )


def tables_of(figures: Figures) -> tuple[Table, ...]:
    """Return accuracy and errors by level and by domain, and what the iterations did."""
    tables = []
    if figures.results is not None:
        tables += [_level_table(figures.results, level) for level in figures.results.levels]
        by_domain = domain_table(figures.results)
        tables += [by_domain] if by_domain else []
    if figures.rollouts:
        tables.append(_rollout_table(figures.rollouts))
    return tuple(tables)


class Plotting:
    """Draws each plot once, and again only when what it shows has changed: drawing takes longer than all the rest."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, Plot]] = {}

    def plots(self, figures: Figures) -> tuple[Plot, ...]:
        """Return every plot there is data for, in the order of the report."""
        drawn: dict[str, tuple[object, Plot]] = {}
        for name, data, draw in _drawings(figures):
            known = self._known.get(name)
            drawn[name] = known if known is not None and known[0] == data else (data, draw())
        self._known = drawn
        return tuple(plot for _, plot in drawn.values())


def _drawings(figures: Figures) -> Iterator[tuple[str, object, Callable[[], Plot]]]:
    """Yield each plot by a name of its own, with what it shows and how it is drawn."""
    results, rollouts = figures.results, figures.rollouts
    if results is not None:
        yield "accuracy", results.arms, partial(draw_accuracy, results)
        if len(results.domains) > 1:
            yield "domains", results.arms, partial(draw_domains, results)
        for level in results.levels:
            yield f"errors {level}", results.arms, partial(draw_errors, results, level)
    if rollouts:
        yield "rollout verdicts", rollouts, partial(draw_rollout_verdicts, rollouts)
    if results is None:
        return
    losses = results.losses
    if losses.reasoning or losses.final:
        yield "losses", (losses.reasoning, losses.final), partial(draw_iteration_losses, results)
    if results.rollout_valid_rate:
        yield "rollouts", results.rollout_valid_rate, partial(draw_rollouts, results)
    for stage in dict.fromkeys(curve.stage for curve in losses.curves):
        curves = tuple(curve for curve in losses.curves if curve.stage == stage)
        yield f"training {stage}", curves, partial(draw_training_curve, results, stage)
    yield "times", results.time_s, partial(draw_times, results)


def draw_rollout_verdicts(rollouts: Sequence[Rollouts]) -> Plot:
    """Return the failed rollouts of each feedback iteration by error class, one stacked bar an iteration."""
    most = max(r.n for r in rollouts)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        left = [0] * len(rollouts)
        for kind, colour in zip(ErrorClass, ERRORS, strict=True):
            counts = [r.errors[kind] for r in rollouts]
            bars = axes.barh(range(len(rollouts)), counts, left=left, height=0.68, color=colour, label=spoken(kind))
            labels = [str(count) if count >= 0.045 * most else "" for count in counts]
            axes.bar_label(bars, labels=labels, label_type="center", color=ON_ERROR, fontsize=7.5)
            left = [start + count for start, count in zip(left, counts, strict=True)]
        axes.set_yticks(range(len(rollouts)), [f"iteration {r.iteration}" for r in rollouts])
        axes.invert_yaxis()
        axes.set_xlim(0, most)
        axes.set_xlabel(f"failed rollouts, of {most}")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        legend_above(figure, axes)

    return Plot(
        "rollout-verdicts",
        "Failed rollouts by class",
        "Attempts at training problems, judged before anything is learnt from them; each under its root cause.",
        svg_of("rollout-verdicts", 1.35 + 0.27 * len(rollouts), draw),
    )


def _level_table(results: Results, level: str) -> Table:
    header = ("policy", "n", "accuracy", "95% interval", *ERROR_COLUMNS)
    rows = []
    for name, arm in results.arms.items():
        figures = arm.by_level[level]
        errors = (str(figures.errors[kind]) for kind in ErrorClass)
        rows.append((spoken(name), str(figures.n), percent(figures.accuracy), interval(figures.ci95), *errors))
    return Table(level, header, tuple(rows))


def _rollout_table(rollouts: Sequence[Rollouts]) -> Table:
    header = ("iteration", "rollouts", "valid", "L_reasoning", "L_final", *ERROR_COLUMNS)
    rows = [
        (
            str(r.iteration),
            str(r.n),
            percent(r.n_valid / r.n),
            number_or_dash(r.reasoning, 4),
            number_or_dash(r.final, 4),
            *(str(r.errors[kind]) for kind in ErrorClass),
        )
        for r in rollouts
    ]
    note = "Of training problems, sampled; losses as the paper prints them (equations 4 and 8), before the update."
    return Table("Feedback iterations", header, tuple(rows), note)


def _arms(found: Sequence[Measurement], primary_level: str) -> dict[str, ArmResult]:
    """Return the arms in the order in which they were judged; one whose levels differ from the first's is left out."""
    arms: dict[str, ArmResult] = {}
    for arm in dict.fromkeys(m.labels["arm"] for m in found if m.name == "evaluation/accuracy"):
        own = [m for m in found if m.labels.get("arm") == arm]
        levels, domains = (
            {m.labels[key]: None for m in own if m.labels.keys() == {"arm", key}} for key in ("level", "domain")
        )
        by_level = {level: _group(own, {"level": level}) for level in levels}
        by_domain = {domain: _group(own, {"domain": domain}) for domain in domains}
        first = next(iter(arms.values()), None)
        if not levels or (
            first and (first.by_level.keys() != levels.keys() or first.by_domain.keys() != domains.keys())
        ):
            continue
        primary = first.level if first else primary_level if primary_level in levels else next(iter(levels))
        shared = {key: getattr(by_level[primary], key) for key in LevelFigures.__dataclass_fields__}
        arms[arm] = ArmResult(**shared, name=arm, level=primary, by_level=by_level, by_domain=by_domain)
    return arms


def _group(own: Iterable[Measurement], labels: Mapping[str, str]) -> LevelFigures:
    """Return the figures of one level or one domain of an arm; lengths and tokens are not measured here."""
    values: dict[str, float] = {}
    errors = dict.fromkeys(ErrorClass, 0)
    for m in own:
        rest = {key: value for key, value in m.labels.items() if key not in ("arm", "error_class")}
        if rest == labels and m.name == "evaluation/errors":
            errors[ErrorClass(m.labels["error_class"])] = int(m.value)
        elif rest == labels:
            values[m.name] = m.value
    n = int(values["evaluation/problems"])
    n_valid = round(values["evaluation/accuracy"] * n)
    return LevelFigures(n, n_valid, n_valid / n, wilson_interval(n_valid, n), errors, None, None, 0, 0.0)


def _rollouts(found: Sequence[Measurement]) -> tuple[Rollouts, ...]:
    """Return the judged iterations, in order."""
    values: dict[int, dict[str, float]] = {}
    for m in found:
        if m.name.startswith(("rollout/", "loss/")) and not m.labels.keys() - {"error_class"}:
            name = m.name if m.name != "rollout/errors" else m.labels["error_class"]
            if m.name == "rollout/errors" or not m.labels:
                values.setdefault(m.iteration, {})[name] = m.value
    return tuple(
        Rollouts(
            iteration=iteration,
            n=int(of["rollout/judged"]),
            n_valid=round(of["rollout/valid_plan_rate"] * of["rollout/judged"]),
            errors={kind: int(of.get(kind, 0)) for kind in ErrorClass},
            reasoning=_finite(of.get("loss/reasoning_as_printed")),
            final=_finite(of.get("loss/final_as_printed")),
        )
        for iteration, of in sorted(values.items())
        if of.get("rollout/judged")
    )


def _curves(found: Sequence[Measurement]) -> tuple[tuple[TrainingCurve, ...], int]:
    """Return the training curves of finite losses, and how many losses are not finite."""
    points: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for m in found:
        if m.name == "train/loss" and m.step is not None:
            stage = STAGE_OF.get(m.labels["objective"], m.labels["objective"])
            points.setdefault((stage, m.iteration), []).append((m.step, m.value))
    kept = {key: [point for point in curve if math.isfinite(point[1])] for key, curve in points.items()}
    curves = tuple(
        TrainingCurve(stage, iteration, *(tuple(column) for column in zip(*curve, strict=True)))
        for (stage, iteration), curve in kept.items()
        if curve
    )
    return curves, sum(map(len, points.values())) - sum(map(len, kept.values()))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _unbroken(values: Iterable[float | None]) -> tuple[float, ...]:
    """Return the values up to the first that is not known, as plots by iteration take them."""
    found: list[float] = []
    for value in values:
        if value is None:
            break
        found.append(value)
    return tuple(found)
