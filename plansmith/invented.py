"""A folder of invented domains: drawn and tried by worker processes, taken in order, kept with why others were not.

What a seed, a number of domains and settings give is the same for any number of workers: each candidate is drawn and
tried from a random source of its own number, and decided on in the order of the numbers. A folder that was left in the
middle is continued: ``inventions.jsonl`` has a line for each candidate decided on. Not here: what a candidate must show
(`plansmith.data.inventing`), and the command line.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from plansmith.config.invention import InventionConfig
from plansmith.data.inventing import Bin, Candidate, Refusal, try_candidate, write_files
from plansmith.data.invention_selection import Selection
from plansmith.data.storage import make_folder, run_lock, storage_errors
from plansmith.errors import BadInputError, ConfigError
from plansmith.pddl.domain_forms import domain_form
from plansmith.planners import FastDownward
from plansmith.problems.invention.breeding import breed_domain
from plansmith.problems.invention.drawing import draw_domain
from plansmith.problems.invention.folders import Invention
from plansmith.problems.library import domain_names, load_domain
from plansmith.stages import row_rng

JOURNAL = "inventions.jsonl"
DEFAULTS = InventionConfig()

BRED_SHARE = 0.5
"""Share of candidates that are bred, where there are domains to breed from."""

LOOK_AHEAD = 4
"""Candidates that are tried for each worker before the one whose turn it is has been decided on."""


@dataclass(frozen=True)
class InventionJob:
    """All that the domains of a folder hang on."""

    n_domains: int
    seed: int
    config: InventionConfig = DEFAULTS
    sources: tuple[str, ...] = ()
    """Domains to breed from, as `load_domain` finds them."""
    may_be_known: bool = False
    """Whether a domain may be one of the library in other words."""

    def header(self) -> str:
        """Return the first line of the journal."""
        return json.dumps(
            {
                "n_domains": self.n_domains,
                "seed": self.seed,
                "sources": list(self.sources),
                "may_be_known": self.may_be_known,
                "config": self.config.model_dump(mode="json"),
            }
        )

    def name_of(self, number: int) -> str:
        """Return what the domain of a candidate is called."""
        return f"invented-{self.seed}-{number:05d}"

    def draw(self, number: int) -> Invention | None:
        """Return a candidate, not tried yet; None where none could be made."""
        rng, config = row_rng(self.seed, "invent", number), self.config
        if self.sources and rng.random() < BRED_SHARE:
            return breed_domain(self.name_of(number), [load_domain(source) for source in self.sources], rng)
        return draw_domain(self.name_of(number), config.grid, rng, adl_share=config.adl_share)

    def known_forms(self) -> dict[str, str]:
        """Return the forms of the domains that none may be equal to, with their names."""
        own = [] if self.may_be_known else domain_names()
        return {domain_form(load_domain(name).domain): name for name in (*own, *self.sources)}


def try_number(job: InventionJob, number: int, full: frozenset[Bin]) -> Candidate:
    """Return a candidate as it was tried; the planner of this process is kept."""
    rng = row_rng(job.seed, "try invention", number)
    return try_candidate(number, job.draw(number), job.config, _planner(job.config, os.getpid()), rng, full=full)


@functools.lru_cache(maxsize=1)
def _planner(config: InventionConfig, _process: int) -> FastDownward:
    """Return the planner of a process; one that a process was forked with speaks to its parent."""
    return FastDownward(config.planner)


def invent_domains(
    job: InventionJob, folder: Path, *, n_workers: int = 1, decided: Callable[[Candidate], None] = lambda _: None
) -> Selection:
    """Fill a folder with invented domains, a folder each; return what was taken and refused.

    Args:
        job: what to invent.
        folder: made where it is missing; where it holds some of this job already, these are kept.
        n_workers: processes.
        decided: is told of every candidate in the order of the numbers, those of an earlier run too.

    Raises:
        BadInputError: the folder holds something else.
        ConfigError: so many candidates were refused in a row that the grid is taken to hold no more; what was taken
            stays.
    """
    selection = Selection(job.n_domains, job.config, job.known_forms())
    with storage_errors(folder), run_lock(folder):
        for unfinished in folder.glob(".invented-*"):  # of a session that was killed as it wrote one
            shutil.rmtree(unfinished)
        n_before = _taken_up(job, folder, selection, decided)
        with (
            (folder / JOURNAL).open("a", encoding="utf-8") as journal,
            contextlib.closing(_tried_in_order(job, n_before, n_workers, lambda: selection.full)) as candidates,
        ):
            while not selection.is_done:
                if selection.is_hopeless:
                    raise _hopeless(selection, folder)
                candidate = selection.decide(next(candidates))
                _keep(job, candidate, folder, journal)
                decided(candidate)
    return selection


def _keep(job: InventionJob, candidate: Candidate, folder: Path, journal: IO[str]) -> None:
    """Write a candidate into the journal, once its folder is there if it is taken."""
    if candidate.refusal is None:
        _write_domain(job, candidate.number, folder)
    journal.write(json.dumps(candidate.to_row()) + "\n")
    journal.flush()


def _write_domain(job: InventionJob, number: int, folder: Path) -> None:
    """Write the folder of a domain, which is complete or not there; one that is there is this one."""
    if (folder / job.name_of(number)).exists():
        return
    invention = job.draw(number)
    assert invention is not None
    unfinished = folder / f".{job.name_of(number)}.{os.getpid()}"
    shutil.rmtree(unfinished, ignore_errors=True)
    make_folder(unfinished)
    write_files(invention, unfinished)
    unfinished.replace(folder / job.name_of(number))


def _taken_up(job: InventionJob, folder: Path, selection: Selection, decided: Callable[[Candidate], None]) -> int:
    """Remember what an earlier run decided; return how many candidates that were."""
    path = folder / JOURNAL
    if not path.exists():
        path.write_text(job.header() + "\n", encoding="utf-8")
        return 0
    header, *lines = _complete_lines(path) or [""]
    if header != job.header():
        raise BadInputError("domains of other settings are here", where=str(path), got=header[:200],
                            expected=job.header()[:200], cure="name another folder, or remove this one")  # fmt: skip
    for line in lines:
        candidate = Candidate.of_row(json.loads(line))
        if candidate.refusal is None:
            _write_domain(job, candidate.number, folder)
        selection.remember(candidate)
        decided(candidate)
    return len(lines)


def _complete_lines(path: Path) -> list[str]:
    """Return the lines of a journal, and cut a half-written last one off."""
    complete, newline, _ = path.read_bytes().rpartition(b"\n")
    with path.open("r+b") as file:
        file.truncate(len(complete) + len(newline))
    return complete.decode("utf-8").splitlines()


def _tried_in_order(
    job: InventionJob, start: int, n_workers: int, full: Callable[[], frozenset[Bin]]
) -> Generator[Candidate, None, None]:
    """Yield tried candidates by number, without end."""
    if n_workers == 1:
        yield from (try_number(job, number, full()) for number in _numbers(start))
        return
    with ProcessPoolExecutor(n_workers) as pool:
        waiting: deque[Future[Candidate]] = deque()
        try:
            for number in _numbers(start):
                waiting.append(pool.submit(try_number, job, number, full()))
                if len(waiting) > n_workers * LOOK_AHEAD:
                    yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _numbers(start: int) -> Iterator[int]:
    while True:
        yield start
        start += 1


def _hopeless(selection: Selection, folder: Path) -> ConfigError:
    reasons = ", ".join(f"{count} {reason}" for reason, count in selection.refusals.most_common())
    grid = selection.config.grid
    full = ", ".join(f"{line} {least} to {most}" for line, (least, most) in sorted(selection.full))
    is_size = selection.refusals.most_common(1)[0][0] in (Refusal.OUTSIDE, Refusal.ENOUGH)
    return ConfigError(
        f"the grid gives no more domains: {selection.n_in_vain} candidates in a row were refused",
        where=str(folder),
        got=f"{len(selection.taken)} of {selection.n_wanted} domains; refused: {reasons}"
        + (f"; have their share: {full}" if full else ""),
        expected="; ".join(f"{line} {[list(b) for b in getattr(grid, line)]}" for line in type(grid).model_fields),
        cure="give the grid wider or other ranges, or raise spread" if is_size
        else "give the grid more actions and parameters, or ask less of a domain (min_longest_plan, max_walk_share)",
    )  # fmt: skip
