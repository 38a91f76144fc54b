"""Runs over several seeds that write PDDL for texts: every figure of every arm, and whether arms differ by chance.

One summary serves the seeds of one way of training and an ablation, in which the policies after preference optimisation
are several. Not here: reading the runs (`formalisation_variants`), tables and sentences (`formalisation_report`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol

from plansmith.ablation.order import OrderTest, tests_of
from plansmith.ablation.summary import MeanCell, SeedMean
from plansmith.report.formalisation_arms import main_arm
from plansmith.report.formalisation_metrics import (
    OUTCOMES,
    AnsweredText,
    never_trained_on,
    summarise_answers,
    tried_texts,
)
from plansmith.report.formalisation_results import compared_arms
from plansmith.report.results import Reproducible
from plansmith.report.statistics import TriedById, TriedProblem, interval_over_seeds, mean_interval

FIGURES = ("svr", "psr_of_all", "tsr", "cr", "equivalent", "flattered", "task_success")
"""What every arm is measured by, see `FormalisationFigures`."""
FAULTS = ("flattered",)
"""Those of which less is better."""
PAIR_ACCURACY = "pair accuracy"


class ArmRun(Protocol):
    """One arm trained with one seed on the test texts."""

    @property
    def arm(self) -> str:
        """Return its name."""

    @property
    def seed(self) -> int:
        """Return the seed."""

    @property
    def pairs(self) -> Sequence[TriedProblem]:
        """Return whether it tells held-out pairs apart."""

    @property
    def others(self) -> Sequence[AnsweredText]:
        """Return the texts of levels that it was not trained on, with its answers."""

    def figures(self) -> Mapping[str, float]:
        """Return those of `FIGURES` that it has, by name."""

    def tried(self, outcome: str) -> TriedById:
        """Return what became of each text by one of `OUTCOMES`."""


@dataclass(frozen=True, slots=True)
class PlanArmRun:
    """Every test text once, answered with a plan by one arm trained with one seed."""

    arm: str
    seed: int
    solved: TriedById
    pairs: tuple[TriedProblem, ...] = ()
    others: tuple[AnsweredText, ...] = ()

    def figures(self) -> Mapping[str, float]:
        """Return how many tasks are solved, all that there is."""
        return {"task_success": fmean(item.is_solved for item in self.solved.values())}

    def tried(self, outcome: str) -> TriedById:
        """Return which tasks are solved, whatever is asked."""
        return self.solved


@dataclass(frozen=True, slots=True)
class TextArmRun:
    """Every test text of levels that were trained on, answered once by one arm trained with one seed; and the others.

    ``pairs`` tells of each held-out pair whether the arm's policy tells it apart better than its reference; of a policy
    that learnt from no pairs it is empty.
    """

    arm: str
    seed: int
    texts: tuple[AnsweredText, ...]
    pairs: tuple[TriedProblem, ...] = ()
    others: tuple[AnsweredText, ...] = ()

    def figures(self) -> Mapping[str, float]:
        """Return every one of `FIGURES`."""
        figures = summarise_answers(self.texts)
        return {name: getattr(figures, name) for name in FIGURES}

    def tried(self, outcome: str) -> TriedById:
        """Return what became of each text by one of `OUTCOMES`."""
        return tried_texts(self.texts, outcome)


@dataclass(frozen=True, slots=True)
class FormalisationSummary(Reproducible):
    """The runs of several seeds, and in an ablation of several variants; ``arms`` are in the order of training.

    ``cells`` has every arm by every one of `FIGURES` that it has, ``pairs`` the accuracy on held-out pairs of the
    policies that learnt from pairs. ``transfer`` has how many texts of levels that were not trained on end as a problem
    of the right meaning, every arm by `Novelty`, ``by_new_place`` by domain and level. The scope of ``tests`` is the
    outcome that is compared; the first is the headline's.
    """

    name: str
    seeds: tuple[int, ...]
    arms: tuple[str, ...]
    cells: tuple[MeanCell, ...]
    pairs: tuple[MeanCell, ...] = ()
    transfer: tuple[MeanCell, ...] = ()
    by_new_place: tuple[MeanCell, ...] = ()
    tests: tuple[OrderTest, ...] = ()

    def of_figure(self, figure: str) -> tuple[MeanCell, ...]:
        """Return every arm by one figure."""
        return tuple(cell for cell in self.cells if cell.scope == figure)

    def cell(self, arm: str, figure: str) -> MeanCell:
        """Return one figure of one arm that has it."""
        return next(cell for cell in self.of_figure(figure) if cell.arm == arm)

    def has_figure(self, arm: str, figure: str) -> bool:
        """Return whether an arm has a figure: one that answers with plans has one alone."""
        return any(cell.arm == arm for cell in self.of_figure(figure))

    @property
    def main(self) -> str:
        """Return the arm that the headline is about."""
        return main_arm(self.arms)


def summarise_text_runs(name: str, runs: Sequence[ArmRun], **made: Any) -> FormalisationSummary:
    """Return every figure of every arm over its seeds, and the tests of a single run, pooled over seeds by form.

    Problems and forms of different seeds are different ones. Arms keep the order in which they first occur; the figures
    of one that some seeds have not are those of the others. ``made`` has the fields of `Reproducible`.

    Raises:
        ValueError: no runs, an arm that occurs twice under one seed, or two that answered different texts under it.
    """
    if not runs or len({(run.arm, run.seed) for run in runs}) < len(runs):
        raise ValueError(f"one arm or more, each once a seed; got {[(run.arm, run.seed) for run in runs]}")
    by_arm: dict[str, list[ArmRun]] = {run.arm: [] for run in runs}
    for run in sorted(runs, key=lambda run: run.seed):
        by_arm[run.arm].append(run)

    def tried(arm: str, outcome: str) -> dict[int, TriedById]:
        return {run.seed: run.tried(outcome) for run in by_arm[arm]}

    return FormalisationSummary(
        name=name,
        seeds=tuple(sorted({run.seed for run in runs})),
        arms=tuple(by_arm),
        cells=tuple(cell for arm, of_arm in by_arm.items() for cell in _cells(arm, of_arm)),
        pairs=tuple(_pair_cell(arm, told) for arm, of_arm in by_arm.items() if (told := _with_pairs(of_arm))),
        transfer=tuple(cell for arm, of_arm in by_arm.items() for cell in _transfer_cells(arm, of_arm, 0)),
        by_new_place=tuple(cell for arm, of_arm in by_arm.items() for cell in _transfer_cells(arm, of_arm, 1)),
        tests=tests_of(compared_arms(by_arm, main_arm(by_arm)), tried),
        **made,
    )


def _cells(arm: str, runs: Sequence[ArmRun]) -> Iterator[MeanCell]:
    """Yield one arm by every figure that it has."""
    texts = [run.tried("task_success") for run in runs]  # whichever outcome: it is how many texts there are
    figures = [run.figures() for run in runs]
    for name in figures[0]:
        seeds = [
            SeedMean(run.seed, len(tried), len({item.form for item in tried.values()}), one[name])
            for run, tried, one in zip(runs, texts, figures, strict=True)
        ]
        yield MeanCell.over(arm, name, seeds, _interval(name, runs, seeds))


def _interval(figure: str, runs: Sequence[ArmRun], seeds: Sequence[SeedMean]) -> tuple[float, float] | None:
    """Return the interval over seeds of a figure, within [0, 1]; of one that is no share it is Student's alone."""
    if figure in OUTCOMES:
        return interval_over_seeds([list(run.tried(figure).values()) for run in runs])
    spread = mean_interval([one.accuracy for one in seeds])
    return spread and (max(0.0, spread[0]), min(1.0, spread[1]))


def _transfer_cells(arm: str, runs: Sequence[ArmRun], way: int) -> Iterator[MeanCell]:
    """Yield how often one arm is right about texts of levels that were not trained on; see `never_trained_on`."""
    found = {run.seed: never_trained_on(run.others)[way] for run in runs}
    for scope in dict.fromkeys(scope for groups in found.values() for scope in groups):
        tried = {
            seed: list(tried_texts(groups[scope], "equivalent").values())
            for seed, groups in found.items()
            if scope in groups
        }
        seeds = [
            SeedMean(seed, len(items), len({item.form for item in items}), fmean(item.is_solved for item in items))
            for seed, items in tried.items()
        ]
        yield MeanCell.over(arm, scope, seeds, interval_over_seeds(list(tried.values())))


def _with_pairs(runs: Sequence[ArmRun]) -> list[ArmRun]:
    return [run for run in runs if run.pairs]


def _pair_cell(arm: str, runs: Sequence[ArmRun]) -> MeanCell:
    """Return the accuracy of one arm on held-out pairs; pairs of one problem count together."""
    seeds = [
        SeedMean(run.seed, len(run.pairs), len({pair.form for pair in run.pairs}),
                 fmean(pair.is_solved for pair in run.pairs))
        for run in runs
    ]  # fmt: skip
    return MeanCell.over(arm, PAIR_ACCURACY, seeds, interval_over_seeds([run.pairs for run in runs]))
