"""Ray worker that draws problems; which of them are taken, the pipeline decides."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from plansmith.data.drawing import DrawnProblem, problem_row
from plansmith.data.inventing import TRIAL_DRAWS
from plansmith.data.rows import CandidateRow, DrawJobRow, InventedJobRow, ProblemRow, Split
from plansmith.errors import BadInputError
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.printer import print_problem
from plansmith.problems.invention.folders import INVENTED
from plansmith.problems.library import PlanningDomain, load_domain
from plansmith.stages import row_rng

load_domain_once = cache(load_domain)
"""A domain folder is read once in each process."""


class DrawingWorker:
    """Draws candidates; candidate n of a domain and level is the same whoever draws it."""

    def __call__(self, jobs: Sequence[DrawJobRow]) -> list[CandidateRow]:
        """Return the candidates of each job."""
        return [_candidate(job, number) for job in jobs for number in range(job.first, job.first + job.count)]


def _candidate(job: DrawJobRow, number: int) -> CandidateRow:
    loaded: PlanningDomain = load_domain_once(job.domain)
    problem = loaded.sample(job.level, row_rng(job.seed, "draw", loaded.name, job.level, number))
    return CandidateRow(
        job_id=job.job_id,
        number=number,
        canonical_form=canonical_form(loaded.domain, problem),
        n_objects=len(problem.objects),
        problem_pddl=print_problem(problem),
    )


def draw_in_domains(jobs: Sequence[InventedJobRow]) -> list[ProblemRow]:
    """Return the problems of invented domains, each of another form; those of D2 come after the others.

    Raises:
        BadInputError: a domain of which no problem can be drawn.
    """
    return [row for job in jobs for row in _problems_of(job)]


def _problems_of(job: InventedJobRow) -> list[ProblemRow]:
    loaded, found = load_domain_once(job.folder), dict[str, DrawnProblem]()
    for number in range(job.n_draws):
        if len(found) == job.n_problems + job.n_fresh:
            break
        level = loaded.levels[number % len(loaded.levels)]
        try:
            rng = row_rng(job.seed, "draw invented", job.domain, level, number)
            problem = loaded.sample(level, rng, max_draws=TRIAL_DRAWS)
        except BadInputError:  # as a level whose walks end where they began, now and then
            continue
        form = canonical_form(loaded.domain, problem)
        found.setdefault(form, DrawnProblem(problem, form))
    if not found:
        raise BadInputError("no problem can be drawn in a domain", where=job.folder, got=f"none in {job.n_draws} draws",
                            expected="one at least", cure="leave the domain out of the folder")  # fmt: skip
    splits = [job.split] * job.n_problems + [Split.PHASE2] * job.n_fresh
    return [
        problem_row(loaded.domain, item, level=INVENTED, split=Split(split), source=INVENTED)
        for item, split in zip(found.values(), splits, strict=False)
    ]
