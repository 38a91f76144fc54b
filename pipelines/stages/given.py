"""Problems and texts that were read from files, where others are drawn and written: rows, and stages with them."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.formaliser import ReferenceSolver, domain_of
from pipelines.stages.few_rows import worked_rows
from pipelines.stages.formalising import CHAINS_PER_ANSWER
from pipelines.stages.graph import Graph
from plansmith.config.basics import StrictModel
from plansmith.config.formalisation import FormalisationConfig
from plansmith.config.planner import PlannerConfig
from plansmith.data.drawing import draw_problems, problem_row
from plansmith.data.planbench import PlanBenchText, read_planbench
from plansmith.data.rows import ProblemRow, Split, TextRow
from plansmith.errors import BadInputError
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.cases import read_text
from plansmith.pddl.model import Domain, Problem
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.stages import Stage, StageContext
from plansmith.text.formalisation import formalisation_prompt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class GivenSettings(StrictModel):
    """Which texts were given."""

    texts: str
    """Hash of them."""
    planner: PlannerConfig
    """What solves their problems."""


@dataclass(frozen=True)
class GivenTexts:
    """Problems, and texts that say them, whose plans are not known yet."""

    problems: Sequence[ProblemRow]
    texts: Sequence[TextRow]


def digest_of(rows: Sequence[DataclassInstance]) -> str:
    """Return a hash of everything that rows say."""
    return hashlib.sha256(json.dumps([asdict(row) for row in rows], sort_keys=True).encode()).hexdigest()


def given_row(domain: Domain, problem: Problem, path: Path, *, level: str, name: str = "") -> ProblemRow:
    """Return the row of the problem in a file; without a name of its own it has the file's.

    A file is a problem, whatever it repeats: no two have one id.
    """
    [item] = draw_problems(domain, [problem])
    row = problem_row(domain, item, level=level, split=Split.TEST, source=path.name)
    return replace(row, problem_id=name or path.stem)


def given_text(row: ProblemRow, reference: str, text: str, texts: FormalisationConfig) -> TextRow:
    """Return a text that asks for a problem, whose plan is not known."""
    prompt = formalisation_prompt(domain_of(reference), text, texts)
    return TextRow(row.problem_id, reference, row.level, row.split, prompt, row.problem_pddl, (), text)


def planbench_texts(folder: Path, texts: FormalisationConfig) -> GivenTexts:
    """Return the texts of a folder of PlanBench; the levels are its configurations.

    Raises:
        BadInputError: a folder of another shape, or a mistake in one of its files.
    """
    found = read_planbench(folder)
    rows = [_planbench_row(item) for item in found]
    said = [
        given_text(row, str(item.domain.resolve()), item.text, texts) for row, item in zip(rows, found, strict=True)
    ]
    return GivenTexts(rows, said)


def _planbench_row(item: PlanBenchText) -> ProblemRow:
    domain = domain_of(str(item.domain.resolve()))
    problem = parse_problem(read_text(item.problem), domain, source=str(item.problem))
    return given_row(domain, problem, item.problem, level=item.config, name=item.name)


# --- stages


def given_stages(
    graph: Graph, given: GivenTexts, planner: PlannerConfig, drawn: Mapping[str, Stage[Any]]
) -> dict[str, Stage[Any]]:
    """Return the stages ``problems`` and ``texts``, after adding them: what is given, behind what is drawn.

    Args:
        graph: that they are added to.
        given: problems and texts; those without a plan are left out of the texts.
        planner: solves the references.
        drawn: other ``problems`` and ``texts``; empty where there are none.
    """
    problems = graph.stage(
        "read_problems",
        partial(_write_problems, rows=given.problems),
        digest_of(given.problems),
        {name: stage for name, stage in drawn.items() if name == "problems"},
    )
    settings = GivenSettings(texts=digest_of(given.texts), planner=planner)
    inputs = {"problems": problems, **({"drawn": drawn["texts"]} if drawn else {})}
    return {
        "problems": problems,
        "texts": graph.stage("solve_references", partial(_solve, rows=given.texts), settings, inputs),
    }


def problems_stage(graph: Graph, rows: Sequence[ProblemRow]) -> Stage[str]:
    """Return the stage that has given problems, after adding it to a graph."""
    return graph.stage("read_problems", partial(_write_problems, rows=rows), digest_of(rows), {})


def _write_problems(context: StageContext[str], rows: Sequence[ProblemRow]) -> None:
    """Write what is drawn, then what is given, without what has the form of a problem that may be learnt from."""
    drawn = context.inputs["problems"].rows(ProblemRow) if "problems" in context.inputs else []
    forms = {row.canonical_form for row in drawn if row.split != Split.TEST}
    domains = [parse_domain(text) for text in dict.fromkeys(row.domain_pddl for row in drawn)]
    kept = [row for row in rows if not forms & {row.canonical_form, *_forms_in(domains, row)}]
    if len(kept) < len(rows):
        context.logger.warning("%d of %d given problems have the form of one that may be learnt from: left out",
                               len(rows) - len(kept), len(rows))  # fmt: skip
    context.output.write_rows([*drawn, *kept], ProblemRow)


def _forms_in(domains: Sequence[Domain], row: ProblemRow) -> Iterator[str]:
    """Yield the form of a problem in each domain that has its words, however that is written: forms are of both."""
    for domain in domains:
        with contextlib.suppress(BadInputError):
            yield canonical_form(domain, parse_problem(row.problem_pddl, domain))


def _solve(context: StageContext[GivenSettings], rows: Sequence[TextRow]) -> None:
    """Write the texts whose problem has a plan, each with it, behind those that are drawn."""
    kept = {row.problem_id for row in context.inputs["problems"].rows(ProblemRow)}
    drawn = context.inputs["drawn"].rows(TextRow) if "drawn" in context.inputs else []
    solved = worked_rows(
        context,
        [row for row in rows if row.problem_id in kept],
        (TextRow, TextRow),
        ReferenceSolver,
        {"config": context.settings.planner},
        n_rollouts=CHAINS_PER_ANSWER * len(rows),
        description="solving references",
    )
    context.output.write_rows([*drawn, *solved], TextRow)
