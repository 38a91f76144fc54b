"""What the reports of all pipelines say in the same way: tiles, paired tests, the course of a run, how it was made.

Not here: what each pipeline says of its own (`run_report`, `criteach_report`, `formalisation_report`, `gap_report`,
`nl2plan_report`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plansmith.report.metrics import LevelFigures
from plansmith.report.results import Reproducible, RunResults
from plansmith.report.sections import Block, Command, Drawing, Listing, Plots, Section, Sentences, Table, Tile
from plansmith.report.wording import clock, interval, percent, spoken

FIRST_TEST = (
    "Which tests are made, and in what order, was fixed before any run, and the first is the headline's; p-values are "
    "not adjusted for their number."
)
EACH_IN_TURN = "Of each level and kind of failure in turn."


def accuracy_tile(title: str, figures: LevelFigures) -> Tile:
    """Return a share of problems with its interval."""
    return share_tile(title, figures.accuracy, figures.ci95, figures.n)


def share_tile(title: str, share: float, ci95: tuple[float, float], n: int) -> Tile:
    """Return a share of ``n`` with its interval."""
    return Tile(title, percent(share), f"{interval(ci95)}, n = {n}")


def time_tile(results: RunResults) -> Iterator[Tile]:
    """Yield the time of all stages, where one is finished."""
    if results.time_s:
        more = f"seed {results.seed}, preset {results.preset}"
        yield Tile("time, all stages", clock(sum(results.time_s.values())), more)


def paired_tests(lines: Iterable[str]) -> Sentences:
    """Return paired tests in words, with what a reader must know of their number."""
    shown = tuple(lines)
    return Sentences((*shown, FIRST_TEST) if shown else (), "Paired tests")


def dropped_sequences(results: RunResults) -> Sentences:
    """Return which stages could not be trained on all sequences."""
    return Sentences(
        tuple(
            f"{spoken(stage)}: {count} sequences were too long and were not trained on."
            for stage, count in results.n_dropped.items()
            if count
        )
    )


def course_section(results: RunResults, drawings: Iterable[Drawing], *more: Block) -> Section:
    """Return what tells how a run got where it is: what is wrong first, then plots."""
    count = results.n_not_finite
    text = f"{count} optimiser steps had a loss that is NaN or infinite, or such a gradient. The curves leave them out."
    wrong = Sentences((text,) if count else ())
    return Section("How it got there", (wrong, Plots(tuple(drawings)), *more), is_printed=False)


def run_provenance(results: RunResults) -> Section:
    """Return the section that the report of a run ends with: how it was made, and what that took."""
    rows = [(stage, f"{time_s:.1f}", str(results.tokens.get(stage, "-"))) for stage, time_s in results.time_s.items()]
    header, note = ("stage", "wall time (s)", "tokens"), f"Preset {results.preset}, seed {results.seed}."
    times = Table("Time and tokens by stage", header, tuple(rows), note, is_folded=True)
    return provenance_section(results, Listing("Policy versions", results.policy_versions), times)


def provenance_section(results: Reproducible, *more: Block) -> Section:
    """Return the section that every report ends with: how it was made."""
    listings = (
        Listing("Settings", flatten(results.config)),
        Listing("Versions and machine", results.versions),
    )
    title = "Settings, versions, and how to reproduce this"
    return Section(title, (Command(results.command), *listings, *more), is_printed=False)


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return every setting by its dotted name."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        inner = isinstance(value, Mapping) and value
        flat |= flatten(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": str(value)}
    return flat
