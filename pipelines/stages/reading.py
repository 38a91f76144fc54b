"""Stages of policies that read the domain: invented domains and their problems, told examples, equally long tunings."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from actors.drawer import draw_in_domains
from actors.writer import PlanWriter
from pipelines.stages.direct_plans import rounds_of
from pipelines.stages.phase1_data import solved_problems
from pipelines.stages.training import SEQUENCES, TuningSettings, check_fitting, in_curriculum_order, optimise_sequences
from plansmith.config.basics import StrictModel
from plansmith.config.dataset import PlanExamplesConfig, SymbolPoolConfig
from plansmith.config.generalization_gap import GeneralizationGapConfig, ReadingArm, ReadingConfig
from plansmith.config.invention import InventionConfig
from plansmith.data.domain_shares import check_unseen, nearest
from plansmith.data.inventing import Candidate, size_of
from plansmith.data.plan_examples import anonymised_problem
from plansmith.data.rows import (
    ExampleRow,
    InventedDomainRow,
    InventedJobRow,
    ProblemRow,
    SolvedProblemRow,
    Split,
)
from plansmith.errors import BadInputError
from plansmith.invented import InventionJob, invent_domains
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequence_files import StoredSequences
from plansmith.pddl.domain_distance import DomainForms
from plansmith.pddl.parser import parse_domain
from plansmith.problems.invention.folders import INVENTED
from plansmith.problems.library import SETTINGS, PlanningDomain, load_domain
from plansmith.stages import StageContext
from plansmith.text.anonymisation import check_pool
from plansmith.text.told import domain_words

DOMAINS = "domains"
"""Folder of the invented domains in the artifact."""
FRESH = "fresh"
"""Table of the problems of invented domains that are tried without plans."""


class InventingSettings(StrictModel):
    """Which invented domains a run has."""

    folder: str | None
    """Where they are; None: they are invented."""
    content: str
    """Hash of that folder's domains, of those to breed from and of those that none may be equal to."""
    n_domains: int
    """How many are invented."""
    invention: InventionConfig
    """How."""
    sources: tuple[str, ...]
    """Domains to breed from."""
    tested: tuple[str, ...]
    """Domains that none may be equal to."""
    held_out_share: float
    """Share of them that is only tested."""
    n_workers: int = Field(exclude=True)
    """Processes."""


def inventing_settings(config: GeneralizationGapConfig, reading: ReadingConfig) -> InventingSettings:
    """Return which invented domains a run has; a folder that is not there, or cannot be told, is said here, at once."""
    wanted = reading.invented
    by_name = {level.domain_name: level.domain for level in config.problems.domains}
    trained = tuple(load_domain(by_name[name]).reference for name in sorted(config.trained_domains))
    tested = tuple(load_domain(by_name[name]).reference for name in sorted(config.unseen_domains))
    given = [] if wanted.folder is None else domains_in(Path(wanted.folder))
    for domain in given:
        domain_words(domain.domain)
        check_pool(domain.domain, reading.symbols)
    read = [*given, *(load_domain(name) for name in (*(trained if wanted.is_bred else ()), *tested))]
    content = hashlib.sha256("\0".join(domain.digest() for domain in read).encode()).hexdigest()
    return InventingSettings(
        folder=wanted.folder,
        content=content,
        n_domains=len(given) or wanted.domains,
        invention=wanted.invention,
        sources=trained if wanted.is_bred else (),
        tested=tested,
        held_out_share=wanted.held_out_share,
        n_workers=wanted.n_workers,
    )


def domains_in(folder: Path) -> list[PlanningDomain]:
    """Return the domains in the folders of a folder, by name.

    Raises:
        BadInputError: there are less than two, or two of one name.
    """
    found = [load_domain(str(path.parent)) for path in sorted(folder.glob(f"*/{SETTINGS}"))]
    names = {domain.domain.name for domain in found}
    if len(found) < 2 or len(names) < len(found):
        raise BadInputError("no folder of invented domains", where=str(folder),
                            got=f"{len(found)} domain folders with {len(names)} names of domains",
                            expected="two or more, each with its name",
                            cure="make one: plansmith domains generate --n 500 --out FOLDER")  # fmt: skip
    return found


def have_domains(context: StageContext[InventingSettings]) -> None:
    """Invent domains, or take a folder's; hold some out.

    Raises:
        BadInputError: one is a tested domain under other names.
        ConfigError: the grid gives no more domains.
    """
    settings, target = context.settings, context.output.path(DOMAINS)
    target.mkdir()
    for domain in _domains(context):
        shutil.copytree(domain.folder, target / domain.folder.name)
    loaded = domains_in(target)
    forms = [DomainForms.of(domain.domain.name, domain.domain) for domain in loaded]
    tested = [DomainForms.of(name, load_domain(name).domain) for name in settings.tested]
    check_unseen(forms, tested, where=settings.folder or context.stage.name)
    n_held_out = min(max(1, round(settings.held_out_share * len(loaded))), len(loaded) - 1)
    held_out = set(sorted((item.form for item in forms), key=context.row_seed)[:n_held_out])
    rows = []
    for domain, found in zip(loaded, forms, strict=True):
        near, size = nearest(found, tested), size_of(domain.domain)
        split = Split.TEST if found.form in held_out else Split.PHASE1
        rows.append(
            InventedDomainRow(
                found.name, domain.folder.name, split, found.form, size["actions"], size["predicates"],
                size["parameters"], size["types"], near.reference, near.n_shared,
            )
        )  # fmt: skip
    context.output.write_rows(rows, InventedDomainRow)


def _domains(context: StageContext[InventingSettings]) -> list[PlanningDomain]:
    settings = context.settings
    if settings.folder is not None:
        return domains_in(Path(settings.folder))
    folder = context.output.scratch(DOMAINS)
    job = InventionJob(settings.n_domains, context.seed, settings.invention, settings.sources)
    with context.progress(settings.n_domains, "inventing domains", unit="domain") as bar:

        def show(candidate: Candidate) -> None:
            bar.update(candidate.refusal is None)

        invent_domains(job, folder, n_workers=settings.n_workers, decided=show)
    return domains_in(folder)


class InventedProblemsSettings(StrictModel):
    """How many problems of invented domains there are."""

    n_problems: int
    """To learn from, of each domain."""
    n_fresh: int
    """Tried without plans, of each domain."""
    n_test: int
    """Of each domain that is held out."""
    n_draws: int
    """Draws in each."""


def draw_invented(context: StageContext[InventedProblemsSettings]) -> None:
    """Draw problems in invented domains, and write them behind those of the others; `FRESH` has those without plans."""
    settings, domains = context.settings, context.inputs["domains"]
    jobs = [
        InventedJobRow(
            domain=row.domain,
            folder=str(domains.path(DOMAINS) / row.folder),
            split=row.split,
            n_problems=settings.n_test if row.split == Split.TEST else settings.n_problems,
            n_fresh=0 if row.split == Split.TEST else settings.n_fresh,
            n_draws=settings.n_draws,
            seed=context.seed,
        )
        for row in domains.rows(InventedDomainRow)
    ]
    shards = context.output.shards("invented", ProblemRow)
    context.resources.map_rows(
        jobs,
        InventedJobRow,
        draw_in_domains,
        shards=shards,
        batch_size=4,
        description="drawing in invented domains",
        id_column="domain",
        is_resident=False,
    )
    drawn = sorted(shards.merged_rows(), key=lambda row: (row.domain, row.split, row.problem_id))
    known = [row for row in drawn if row.split != Split.PHASE2]
    context.output.write_rows([*context.inputs["problems"].rows(ProblemRow), *known], ProblemRow)
    fresh = (row for row in drawn if row.split == Split.PHASE2)
    context.output.write_rows(fresh, ProblemRow, table=FRESH)


class HidingSettings(StrictModel):
    """What is written under symbols."""

    symbols: SymbolPoolConfig
    """What names are hidden behind."""
    table: str = "rows"
    """Of the problems."""
    split: Split = Split.TEST
    """Of the problems that are taken."""


def hide_behind_symbols(context: StageContext[HidingSettings]) -> None:
    """Write the problems of a split again with every name hidden, each under its id: verdicts stay as they are."""
    settings = context.settings
    rows = (row for row in context.inputs["problems"].rows(ProblemRow, settings.table) if row.split == settings.split)
    hidden = (anonymised_problem(row, seed=context.seed, symbols=settings.symbols) for row in rows)
    context.output.write_rows(hidden, ProblemRow)


Source = Literal["drawn", "invented", "distant"]
"""Where examples come from."""


class ToldExamplesSettings(StrictModel):
    """Which solved problems are written, and how."""

    source: Source
    """Of the run's own domains, of invented ones, or of both where they share no schema with a tested one."""
    examples: PlanExamplesConfig
    """How."""
    tested: tuple[str, ...]
    """The domains that are only tested."""


SOURCES_OF: dict[ReadingArm, tuple[Source, ...]] = {
    "trained": ("drawn",),
    "invented": ("invented",),
    "distant": ("distant",),
    "mixed": ("drawn", "invented"),
}
"""Which examples an arm is tuned on, in the order in which arms are tuned: what the run is about comes last."""


def write_told(context: StageContext[ToldExamplesSettings]) -> None:
    """Write solved problems as prompts that tell the domain, answered by chains, under symbols.

    Raises:
        BadInputError: there is none; or a domain that cannot be told, or that has more names than there are symbols.
    """
    settings = context.settings
    wanted = set(_wanted(context))
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE1)
    rows = [row for row in solved if row.problem_id in wanted]
    if not rows:
        raise BadInputError("no problem to learn from", where=context.stage.name,
                            got=f"no solved problem of D1 that is {settings.source}", expected="one at least",
                            cure="draw more problems, or leave the arm out of reading.arms")  # fmt: skip
    context.resources.map_rows(
        rows,
        SolvedProblemRow,
        PlanWriter,
        shards=context.output.shards("plans", ExampleRow),
        batch_size=64,
        description="writing told chains",
        worker_settings={"config": settings.examples, "seed": context.seed},
        is_resident=False,
    )


def _wanted(context: StageContext[ToldExamplesSettings]) -> Iterator[str]:
    """Yield the ids of the problems of the source."""
    source, near = context.settings.source, _near_domains(context)
    for row in context.inputs["problems"].rows(ProblemRow):
        is_invented = row.source == INVENTED
        if (source == "distant" and row.domain_pddl not in near) or source == ("invented" if is_invented else "drawn"):
            yield row.problem_id


def _near_domains(context: StageContext[ToldExamplesSettings]) -> set[str]:
    """Return the domains, as PDDL, that share an action schema with a tested one, where that matters."""
    if context.settings.source != "distant":
        return set()
    tested = [DomainForms.of(name, load_domain(name).domain) for name in context.settings.tested]
    texts = {row.domain_pddl for row in context.inputs["problems"].rows(ProblemRow)}
    return {text for text in texts if nearest(DomainForms.of("", parse_domain(text)), tested).n_shared}


class ReadingTuningSettings(TuningSettings):
    """One arm's tuning."""

    tokens: int
    """What it is tuned on, its examples round after round."""


def tune_reading(context: StageContext[ReadingTuningSettings]) -> None:
    """Tune on the examples of one or two sources by likelihood, for so many tokens.

    Raises:
        BadInputError: more than a few examples are too long to be trained on.
    """
    settings = context.settings
    inputs = [name for name in sorted(context.inputs) if name.startswith(SEQUENCES)]
    stored = StoredSequences([path for name in inputs for path in context.inputs[name].parts(SEQUENCES)])
    longest = settings.optimiser.max_length_tokens or settings.numerics.row_length_tokens
    check_fitting(stored.lengths.tolist(), longest, where=context.stage.name)
    fitting = [position for position in range(len(stored)) if stored.lengths[position] <= longest]
    order = sorted(fitting, key=lambda position: context.row_seed(stored.ids[position]))
    rounds = list(rounds_of(stored.lengths, order, settings.tokens))
    context.logger.info("%d examples, %.2f rounds", len(order), sum(map(len, rounds)) / len(order))
    taken = np.concatenate(rounds).tolist()
    if settings.optimiser.is_curriculum:
        taken = in_curriculum_order(taken, stored.lengths.tolist(), seed=context.seed)
    optimise_sequences(context, Supervised(), stored.in_order(taken))
