"""Ray worker that draws problems; which of them are taken, the pipeline decides."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from plansmith.data.rows import CandidateRow, DrawJobRow
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.printer import print_problem
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
