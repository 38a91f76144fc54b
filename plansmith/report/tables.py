"""The tables about one run, as header and cells; the terminal, Markdown and the page show the same ones.

Not here: the sentences beside them (`run_report`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from plansmith.judging.taxonomy import ErrorClass
from plansmith.report.metrics import LevelFigures
from plansmith.report.results import Results
from plansmith.report.sections import Table
from plansmith.report.wording import beside, interval, number_or_dash, percent, percent_or_dash, spoken

LengthT = TypeVar("LengthT")
ERROR_COLUMNS = ("precondition", "effect", "goal", "sequence")
"""The classes of error, in their order."""
COLUMNS = ("policy", "n", "forms", "accuracy", "95% interval", *ERROR_COLUMNS, "plan length", "planner", "tokens")


def level_table(results: Results, level: str) -> Table:
    """Return the figures of every arm on one level, or on `ALL_LEVELS`, one row an arm."""
    rows = [(spoken(name), *_cells(arm.figures(level))) for name, arm in results.arms.items()]
    return Table(level, COLUMNS, tuple(rows), is_last_strong=True)


def trained_table(
    title: str,
    arms: Mapping[str, Mapping[str, LevelFigures]],
    trained: Collection[str],
    arm_name: Callable[[str], str],
    paper: Callable[[str, str], float | None],
    note: str,
    *,
    measured: str = "",
    own: Callable[[str, str], str] | None = None,
) -> Table:
    """Return accuracy, or another figure, by domain and arm with the paper's.

    Domains that were never trained on stand below the others.

    Args:
        title: what a row is, a domain or a task.
        arms: the figures of every arm by domain; all have those of the last.
        trained: domains that were trained on.
        arm_name: what an arm is called.
        paper: the paper's percentage of an arm in a domain, or None.
        note: of the table.
        measured: what the figures are, other than accuracy.
        own: then the figure of an arm in a domain.
    """
    rows = []
    for domain, last in sorted(list(arms.values())[-1].items(), key=lambda item: item[0] not in trained):
        shown = {name: "-" if domain not in found else percent(found[domain].accuracy) if own is None
                 else own(name, domain) for name, found in arms.items()}  # fmt: skip
        cells = (beside(text, paper(name, domain)) for name, text in shown.items())
        rows.append((domain if domain in trained else f"{domain}, never trained on", str(last.n), *cells))
    return Table(f"{measured} by {title}".strip().capitalize(), (title, "n", *map(arm_name, arms)), tuple(rows), note)


def by_length_table(title: str, arms: Mapping[str, Mapping[LengthT, LevelFigures]]) -> Table:
    """Return valid of tried plans by the steps of the planner's plan, one row an arm; lengths keep their order."""
    lengths = list(dict.fromkeys(length for found in arms.values() for length in found))
    rows = [
        (name, *(f"{found[length].n_valid}/{found[length].n}" if length in found else "-" for length in lengths))
        for name, found in arms.items()
    ]
    note = "Valid of tried, by the steps of the planner's plan."
    return Table(title, ("policy", *(f"{length} steps" for length in lengths)), tuple(rows), note)


def further_tables(results: Results) -> tuple[Table, ...]:
    """Return the tables that this run has data for: domains, plan quality, own verdicts, v_hat, feedback turns."""
    tables = (
        *([domain_table(results)] if len(results.domains) > 1 else []),
        quality_table(results),
        self_verification_table(results),
        calibration_table(results),
        feedback_table(results),
    )
    return tuple(table for table in tables if table.rows)


def rollout_table(results: Results) -> Table:
    """Return what the feedback iterations did, one row each."""
    unknown = itertools.repeat(None)
    printed = [itertools.chain(losses, unknown) for losses in (results.losses.reasoning, results.losses.final)]
    rows = [
        (
            str(rolled.iteration),
            str(rolled.n),
            percent(rolled.n_valid / rolled.n),
            number_or_dash(reasoning, 4),
            number_or_dash(final, 4),
            *(str(rolled.errors[kind]) for kind in ErrorClass),
        )
        for rolled, reasoning, final in zip(results.rollouts, *printed, strict=False)
    ]
    header = ("iteration", "rollouts", "valid", "L_reasoning", "L_final", *ERROR_COLUMNS)
    note = "Of training problems, sampled; losses as the paper prints them (equations 4 and 8), before the update."
    return Table("Feedback iterations", header, tuple(rows), note)


def domain_table(results: Results) -> Table:
    """Return accuracy by domain and arm, the shape of the paper's table 1."""
    arms = list(results.arms.values())
    rows = [
        (domain, str(arms[0].by_domain[domain].n), *(_accuracy(arm.by_domain[domain]) for arm in arms))
        for domain in results.domains
    ]
    note = (
        "Accuracy with its 95% interval, in percent; all levels of a domain together. The shape of the paper's table 1."
    )
    return Table("Accuracy by domain", ("domain", "n", *map(spoken, results.arms)), tuple(rows), note)


def quality_table(results: Results) -> Table:
    """Return cost against the optimum, and progress, by domain and arm, where either is known."""
    rows = [
        (name, *_quality_cells(figures))
        for name, figures in _by_domain(results)
        if figures.quality is not None or figures.mean_progress is not None
    ]
    note = (
        "Optimal: the plan costs no more than a plan proven cheapest. Of all: of every problem whose optimum is known. "
        "Cost ratio: plan over optimum, mean over the problems solved. Progress: share of the goal that holds before "
        "the first wrong action, mean over all attempts."
    )
    header = ("policy", "optimum known", "solved", "optimal, of solved", "of all", "cost ratio", "progress")
    return Table("Plan quality", header, tuple(rows), note)


def self_verification_table(results: Results) -> Table:
    """Return how often the verdict the policy states is the validator's, by domain and arm."""
    rows = []
    for name, figures in _by_domain(results):
        if (own := figures.self_verification) is not None:
            counts = (name, str(own.n), str(own.n_said_valid), str(own.n_correct))
            rows.append((*counts, percent(own.accuracy), interval(own.ci95)))
    note = (
        "The verdict that the policy ends its chain with, against the validator's. Always saying the same is right "
        "as often as that verdict occurs."
    )
    header = ("policy", "stated", "said VALID", "right", "accuracy", "95% interval")
    return Table("The policy's own verdict", header, tuple(rows), note)


def calibration_table(results: Results) -> Table:
    """Return the scores of v_hat by arm, all levels together, where a v_hat is known."""
    rows = []
    for name, arm in results.arms.items():
        if (scores := arm.calibration) is not None:
            counts = (spoken(name), str(scores.n), percent(scores.n_valid / scores.n))
            errors = (f"{scores.brier:.3f}", f"{scores.expected_calibration_error:.3f}")
            rows.append((*counts, *errors, percent(scores.accuracy), number_or_dash(scores.auroc, 3)))
    note = (
        "v_hat is the probability that the policy gives to VALID. Brier score and expected calibration error: 0 is "
        "best. AUROC: the chance that a valid plan has the greater v_hat; 0.5 is no better than chance."
    )
    header = ("policy", "plans", "valid", "Brier score", "calibration error", "right at 0.5", "AUROC")
    return Table("Calibration of v_hat", header, tuple(rows), note)


def feedback_table(results: Results) -> Table:
    """Return accuracy by turns of validator feedback."""
    rows = tuple(
        (str(turn.turn), str(turn.n), str(turn.n_valid), percent(turn.accuracy), interval(turn.ci95))
        for turn in results.feedback_turns
    )
    note = (
        "A failed plan goes back to the policy with the validator's words, at most so many times (LLM-Modulo); a "
        "problem once solved stays solved."
    )
    return Table("Feedback turns", ("turns", "n", "solved", "accuracy", "95% interval"), rows, note)


def _by_domain(results: Results) -> list[tuple[str, LevelFigures]]:
    """Return the figures of every arm in every domain by name, which says the domain where there are several."""
    is_one = len(results.domains) == 1
    return [
        (spoken(name) if is_one else f"{domain}, {spoken(name)}", arm.by_domain[domain])
        for domain in results.domains
        for name, arm in results.arms.items()
    ]


def _cells(figures: LevelFigures) -> list[str]:
    """Return the cells after the arm's name."""
    return [
        str(figures.n),
        str(figures.n_forms),
        percent(figures.accuracy),
        interval(figures.ci95),
        *(str(figures.errors[kind]) for kind in ErrorClass),
        number_or_dash(figures.mean_plan_length, 1),
        number_or_dash(figures.mean_planner_plan_length, 1),
        f"{figures.tokens_per_problem:.0f}",
    ]


def _quality_cells(figures: LevelFigures) -> list[str]:
    """Return the cells of plan quality; dashes where it is not known."""
    quality, progress = figures.quality, number_or_dash(figures.mean_progress, 2)
    if quality is None:
        return ["0", "-", "-", "-", "-", progress]
    return [
        str(quality.n),
        str(quality.n_solved),
        percent_or_dash(quality.optimal_of_solved),
        percent(quality.optimal_of_all),
        number_or_dash(quality.mean_cost_ratio, 3),
        progress,
    ]


def _accuracy(figures: LevelFigures) -> str:
    """Return an accuracy with its interval, in percent without signs, so that many arms fit side by side."""
    low, high = figures.ci95
    return f"{100 * figures.accuracy:.1f} ({100 * low:.0f} to {100 * high:.0f})"
