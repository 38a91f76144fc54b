"""Problems of a run that a dataset has (`plansmith dataset build`), in place of problems that are drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plansmith.config.problems import DomainLevelConfig, ProblemsConfig
from plansmith.data.drawing import draw_problems, problem_row
from plansmith.data.rows import DatasetPlanRow, ProblemRow, Split
from plansmith.data.tables import matching_rows
from plansmith.errors import ArtifactError, BadInputError
from plansmith.groups import grouped
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_problem
from plansmith.pddl.printer import print_domain
from plansmith.problems.library import PlanningDomain, load_domain
from plansmith.problems.renaming import random_renaming, rename_problem
from plansmith.stages import StageContext

SOURCES: Mapping[Split, tuple[str, ...]] = {
    Split.TEST: ("test", "unseen"),
    Split.PROBE: ("validation",),
    Split.PHASE2: ("phase2", "train"),
    Split.PHASE1: ("train",),
}
"""The splits of a dataset that a run's are taken from, in the order in which they are taken: D2 before D1, because D1
has no other source. ``unseen`` is what a preset calls the tests of domains that it never trains on."""


def dataset_digest(folder: Path) -> str:
    """Return a hash of the problems of a dataset.

    Raises:
        BadInputError: the folder is none.
    """
    digest = hashlib.sha256()
    for path in _files(folder, "*"):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def dataset_rows(context: StageContext[Any], config: ProblemsConfig) -> list[ProblemRow]:
    """Return the problems of every level, as many as wanted of each split; what lacks is said.

    Raises:
        BadInputError: a folder or tables of another kind; a domain that is another one than the library's, or has no
            problem for a split that is wanted of it.
    """
    rows = list[ProblemRow]()
    for level in config.domains:
        taken = set[str]()
        for split, sources in SOURCES.items():
            rows += _chosen(context, config, level, split, sources, taken)
    _check_complete(config, rows)
    tested = {row.canonical_form for row in rows if row.split == Split.TEST}
    kept = [row for row in rows if row.split == Split.TEST or row.canonical_form not in tested]
    if len(kept) < len(rows):
        context.logger.warning(
            "%d problems of the dataset have the form of a test problem: left out", len(rows) - len(kept)
        )
    return kept


def _check_complete(config: ProblemsConfig, rows: Sequence[ProblemRow]) -> None:
    """Raise where no level of a domain has a problem for a split that is wanted of it."""
    found = {(row.level, row.split) for row in rows}
    for domain, levels in grouped(config.domains, lambda level: level.domain).items():
        for split, sources in SOURCES.items():
            wanted = sum(_wanted(level, split) for level in levels)
            if wanted and not any((level.name, split) in found for level in levels):
                raise BadInputError("the dataset lacks a split", where=f"{config.dataset}, domain {domain}",
                                    got=f"no problem left of {' or '.join(sources)}", expected=f"{wanted} for {split}",
                                    cure="build a dataset that has it, or want none in problems.domains")  # fmt: skip


def _wanted(level: DomainLevelConfig, split: Split) -> int:
    found: int = getattr(level, {Split.PHASE1: "phase1", Split.PHASE2: "phase2"}.get(split, split))
    return found


def _chosen(
    context: StageContext[Any], config: ProblemsConfig, level: DomainLevelConfig, split: Split,
    sources: tuple[str, ...], taken: set[str],
) -> list[ProblemRow]:  # fmt: skip
    """Return problems of a split in random order, and note their ids as taken."""
    loaded, folder, wanted = load_domain(level.domain), Path(config.dataset or ""), _wanted(level, split)
    domain = loaded.domain
    chosen = list[DatasetPlanRow]()
    for source in sources if wanted else ():
        found = [row for row in _rows_of(folder, source, loaded, level.level) if row.problem_id not in taken]
        found.sort(key=lambda row: context.row_seed(row.problem_id))
        chosen += found[: wanted - len(chosen)]
    taken.update(row.problem_id for row in chosen)
    if len(chosen) < wanted:
        context.logger.warning("%s, %s: %d of %d problems; the dataset has no more", level.name, split, len(chosen),
                               wanted)  # fmt: skip
    problems = [_renamed(context, parse_problem(row.problem_pddl, domain), config, row.problem_id) for row in chosen]
    items = draw_problems(domain, problems)
    return [problem_row(domain, item, level=level.name, split=split, source="dataset") for item in items]


def _renamed(context: StageContext[Any], problem: Problem, config: ProblemsConfig, name: str) -> Problem:
    if not config.object_names:
        return problem
    rng = context.rng("names", name)
    return rename_problem(problem, random_renaming(problem, config.object_names, rng), rng)


def _rows_of(folder: Path, source: str, loaded: PlanningDomain, level: str) -> Iterator[DatasetPlanRow]:
    """Yield the rows of a split with a level of a domain, which stands there under the name of its folder."""
    text = print_domain(loaded.domain)
    for path in _files(folder, source):
        try:
            for row in matching_rows(path, DatasetPlanRow, domain=loaded.name, level=level):
                if row.domain_pddl != text:
                    raise BadInputError("the dataset has another domain of this name", where=str(path),
                                        got=loaded.name, cure="build it again, or give problems.domains the folder "
                                        "of its domain")  # fmt: skip
                yield row
        except ArtifactError as error:
            raise BadInputError(error.message, where=error.where, got=error.got,
                                expected="a table that `plansmith dataset build` wrote",
                                cure="build the dataset again with this version") from error  # fmt: skip


def _files(folder: Path, source: str) -> list[Path]:
    """Return the files of a split; of a dataset without it, none."""
    plans = folder / "data" / "plans"
    if not any(plans.glob("*.parquet")):
        raise BadInputError("no dataset here", where=str(folder), got="no data/plans/*.parquet",
                            expected="a folder that `plansmith dataset build` wrote",
                            cure="set problems.dataset to the folder that the command named last")  # fmt: skip
    return sorted(plans.glob(f"{source}-*.parquet"))
