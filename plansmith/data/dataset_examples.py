"""What a dataset holds of one solved problem: the problem with its plan, and training examples of several kinds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict

from plansmith.config.dataset import DatasetExamplesConfig
from plansmith.data.examples import corrupted_row, invalid_explanation, solved_task, valid_explanation
from plansmith.data.formalisation_examples import FormalisationWriter
from plansmith.data.plan_examples import plan_examples
from plansmith.data.rows import (
    DatasetExampleRow,
    DatasetPlanRow,
    ExampleKind,
    ExampleRow,
    PlanRow,
    ProblemRow,
    SolvedProblemRow,
)
from plansmith.pddl.parser import parse_problem
from plansmith.problems.corruption import Corruption
from plansmith.problems.library import PlanningDomain
from plansmith.text.chains import chain_of_plan
from plansmith.text.rendering import rendering_of


def plan_row(problem: ProblemRow, plan: PlanRow, text: str | None) -> DatasetPlanRow:
    """Return a solved problem as a dataset keeps it."""
    assert plan.cost is not None
    return DatasetPlanRow(
        problem_id=problem.problem_id,
        canonical_form=problem.canonical_form,
        domain=problem.domain,
        level=problem.level,
        n_objects=problem.n_objects,
        domain_pddl=problem.domain_pddl,
        problem_pddl=problem.problem_pddl,
        problem_text=text,
        plan=plan.plan,
        plan_length=len(plan.plan),
        cost=plan.cost,
        is_optimal=plan.is_optimal,
        planner=plan.planner,
    )


class ExampleWriter:
    """Writes the training examples of solved problems of one domain."""

    def __init__(self, loaded: PlanningDomain, config: DatasetExamplesConfig, seed: int) -> None:
        self._loaded, self._config, self._seed = loaded, config, seed
        self._rendering = rendering_of(config.rendering)
        self._formalisation = FormalisationWriter(loaded, config.formalisation)
        shares: dict[ExampleKind, float] = {
            ExampleKind.PLAN: config.plan,
            ExampleKind.FORMALISE: config.formalise,
            ExampleKind.PLAN_CHAIN: config.plan_chain,
            ExampleKind.EXPLAIN_VALID: config.explain_valid,
            ExampleKind.EXPLAIN_INVALID: config.explain_invalid / len(Corruption),
        }
        self._shares = {kind: share for kind, share in shares.items() if share > 0}

    @property
    def kinds(self) -> tuple[ExampleKind, ...]:
        """Return the kinds that are wanted."""
        return tuple(self._shares)

    def text_of(self, problem: ProblemRow) -> str | None:
        """Return a problem in words, drawn by its id; None where the domain has no phrases."""
        if self._loaded.phrases is None:
            return None
        parsed = parse_problem(problem.problem_pddl, self._loaded.domain)
        return self._formalisation.text(parsed, random.Random(f"{self._seed} {problem.problem_id} phrasing"))

    def write(self, kind: ExampleKind, row: DatasetPlanRow) -> list[DatasetExampleRow]:
        """Return the examples of one kind; none where the problem is not among those drawn for it.

        Raises:
            BadInputError: the problem has no example of this kind, for instance no chain because of a disjunction.
        """
        if kind is ExampleKind.PLAN:
            return list(self._plan_examples(row)) if self._is_drawn(kind, row) else []
        if kind is ExampleKind.EXPLAIN_INVALID:
            drawn = [corruption for corruption in Corruption if self._is_drawn(kind, row, corruption)]
            return [self._kept(example, row) for example in self._invalid_explanations(row, drawn)]
        if not self._is_drawn(kind, row):
            return []
        if kind is ExampleKind.FORMALISE:
            return [self._kept(self._formalised(row), row)]
        if kind is ExampleKind.PLAN_CHAIN:
            return [self._kept(self._chain(row), row)]
        return [self._kept(valid_explanation(_solved(row), self._rendering, seed=self._seed), row)]

    def _invalid_explanations(self, row: DatasetPlanRow, drawn: list[Corruption]) -> Iterator[ExampleRow]:
        for corruption in drawn:
            corrupted = corrupted_row(_solved(row), corruption, seed=self._seed)
            if corrupted is not None:
                yield invalid_explanation(corrupted, self._rendering)

    def _plan_examples(self, row: DatasetPlanRow) -> Iterator[DatasetExampleRow]:
        for example in plan_examples(row, self._config, seed=self._seed):
            yield DatasetExampleRow(
                problem_id=row.problem_id,
                domain=row.domain,
                level=row.level,
                kind=ExampleKind.PLAN,
                corruption=None,
                **asdict(example),
            )

    def _formalised(self, row: DatasetPlanRow) -> ExampleRow:
        problem, example_id = parse_problem(row.problem_pddl, self._loaded.domain), f"{row.problem_id}-formalise"
        return self._formalisation.example(example_id, row.problem_id, problem, row.problem_text or "")

    def _chain(self, row: DatasetPlanRow) -> ExampleRow:
        task, plan = solved_task(_solved(row))
        return ExampleRow(
            example_id=f"{row.problem_id}-chain",
            problem_id=row.problem_id,
            kind=ExampleKind.PLAN_CHAIN,
            corruption=None,
            prompt=self._rendering.plan_prompt(task),
            response=self._rendering.write_chain(chain_of_plan(task, plan)),
        )

    def _kept(self, example: ExampleRow, row: DatasetPlanRow) -> DatasetExampleRow:
        return DatasetExampleRow(
            example_id=example.example_id,
            problem_id=row.problem_id,
            domain=row.domain,
            level=row.level,
            kind=example.kind,
            corruption=example.corruption,
            is_anonymised=False,
            position=self._rng(row, example.example_id).random(),
            prompt=example.prompt,
            response=example.response,
        )

    def _is_drawn(self, kind: ExampleKind, row: DatasetPlanRow, *more: str) -> bool:
        return self._rng(row, "draw", kind, *more).random() < self._shares[kind]

    def _rng(self, row: DatasetPlanRow, *ids: str | int) -> random.Random:
        return random.Random(" ".join(map(str, (self._seed, row.problem_id, *ids))))


def _solved(row: DatasetPlanRow) -> SolvedProblemRow:
    return SolvedProblemRow(row.problem_id, row.level, row.domain_pddl, row.problem_pddl, row.plan)
