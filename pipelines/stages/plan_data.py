"""Stages that write tuples of domain, problem and plan to learn from, and hide the names of test problems."""

from __future__ import annotations

from collections import defaultdict

from actors.writer import PlanWriter
from pipelines.stages.label_budget import labelled
from pipelines.stages.phase1_data import solved_problems
from pipelines.stages.training import SEQUENCES
from plansmith.config.basics import StrictModel
from plansmith.config.dataset import PlanExamplesConfig
from plansmith.data.plan_examples import anonymised_problem
from plansmith.data.rows import ExampleRow, LengthRow, ProblemRow, SolvedProblemRow, Split
from plansmith.errors import BadInputError
from plansmith.learning.sequence_files import StoredSequences
from plansmith.report.finished_stages import read_columns
from plansmith.stages import StageContext


def write_plans(context: StageContext[PlanExamplesConfig]) -> None:
    """Write the solved problems of D1, answered by their plans; of a share (`label_budget`) only its own.

    Raises:
        BadInputError: there is none.
    """
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE1)
    if (labels := context.inputs.get("labels")) is not None:
        solved = [row for row in solved if row.problem_id in labelled(labels)]
    if not solved:
        raise BadInputError("no problem to learn from", got="no problem of D1 that has a plan", expected="one at least",
                            cure="draw more problems (problems.domains: phase1)")  # fmt: skip
    context.resources.map_rows(
        solved,
        SolvedProblemRow,
        PlanWriter,
        shards=context.output.shards("plans", ExampleRow),
        batch_size=64,
        description="writing plans",
        worker_settings={"config": context.settings, "seed": context.seed},
        is_resident=False,
    )


def hide_names(context: StageContext[None]) -> None:
    """Write the test problems again with every name hidden, each under its id: what holds of plans stays as it is."""
    rows = (row for row in context.inputs["problems"].rows(ProblemRow) if row.split == Split.TEST)
    context.output.write_rows((anonymised_problem(row, seed=context.seed) for row in rows), ProblemRow)


class CountingSettings(StrictModel):
    """What counts as too long."""

    longest_tokens: int
    """The longest text that is trained on."""


def count_tokens(context: StageContext[CountingSettings]) -> None:
    """Write how long the texts of each domain are (table 1 of the paper)."""
    problems = context.inputs["problems"]
    domain_of = dict(zip(*read_columns(problems, ProblemRow, "problem_id", "domain"), strict=True))
    stored = StoredSequences(context.inputs["sequences"].parts(SEQUENCES))
    lengths: dict[str, list[int]] = defaultdict(list)
    for name, length in zip(stored.ids, stored.lengths.tolist(), strict=True):
        lengths[domain_of[name.rpartition("-plan-")[0]]].append(length)
    limit = context.settings.longest_tokens
    rows = [
        LengthRow(domain, len(found), sum(length > limit for length in found), max(found))
        for domain, found in sorted(lengths.items())
    ]
    context.output.write_rows(rows, LengthRow)
