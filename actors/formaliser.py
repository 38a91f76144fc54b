"""Ray workers about problems in words: what they read, draw and prove; which problems, the pipeline decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

from plansmith.config.formalisation import FormalisationConfig, FormalRendering, JudgingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.data.examples import under_other_names
from plansmith.data.formalisation_examples import FormalisationWriter
from plansmith.data.rows import (
    AnsweredTextRow,
    CompletionRow,
    ExampleKind,
    ExampleRow,
    FormalisedRow,
    PerturbedRow,
    ProblemRow,
    TextRow,
)
from plansmith.errors import PlannerCrashError
from plansmith.judging.formalisation import FormalisationJudge, Judgement, Reference, fault_of, solve_sorted
from plansmith.pddl.cases import read_text
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain
from plansmith.pddl.parser import parse_domain, parse_problem, parse_step
from plansmith.planners import FastDownward, PlannerResult, PlannerStatus
from plansmith.planners.goal_questions import goal_questions
from plansmith.problems.library import PlanningDomain, load_domain
from plansmith.problems.perturbation import Perturbation, perturb
from plansmith.stages import row_rng
from plansmith.text.formalisation import rendered


class Judges:
    """A judge for each domain, all with one warm planner, which is started with the first question."""

    def __init__(self, config: JudgingConfig) -> None:
        self._config, self._judges = config, dict[str, FormalisationJudge]()

    @cached_property
    def _planner(self) -> FastDownward:
        return FastDownward(self._config.planner)

    def of(self, reference: str) -> FormalisationJudge:
        """Return the judge of a domain, which is known by what it is loaded by."""
        if reference not in self._judges:
            domain = domain_of(reference)
            ask, checks = goal_questions(self._planner, domain), self._config.checks
            self._judges[reference] = FormalisationJudge(domain, self.solve, ask, checks=checks)
        return self._judges[reference]

    def solve(self, domain_pddl: str, problem_pddl: str) -> PlannerResult:
        """Return what the planner says; a problem over which it fails is an outcome as any other."""
        try:
            return self._planner.solve(domain_pddl, problem_pddl)
        except PlannerCrashError as error:
            return PlannerResult(PlannerStatus.CRASHED, None, None, 0.0, message=str(error))

    def close(self) -> None:
        """End the planner, if it was started."""
        if "_planner" in self.__dict__:
            self._planner.close()


@cache
def loaded_domain(reference: str) -> PlanningDomain:
    """Return a domain by what it is loaded by, read once in a process."""
    return load_domain(reference)


@cache
def domain_of(reference: str) -> Domain:
    """Return the PDDL of a domain by what it is loaded by, or by its file alone, read once in a process."""
    path = Path(reference)
    return parse_domain(read_text(path), source=reference) if path.is_file() else loaded_domain(reference).domain


class TextWriter:
    """Says problems in words, each with the PDDL that it is to be answered with and the plan of that.

    Args:
        config: of the planner.
        formalisation: how texts are written and asked about.
        domains: what each domain is loaded by, by its name.
        names: objects' names; none keeps those of the problems.
        seed: of the run.
    """

    def __init__(
        self,
        *,
        config: PlannerConfig,
        formalisation: FormalisationConfig,
        domains: Mapping[str, str],
        names: Sequence[str],
        seed: int,
    ) -> None:
        self._planner = Judges(JudgingConfig(planner=config))
        self._formalisation, self._domains, self._names, self._seed = formalisation, domains, tuple(names), seed

    def __call__(self, rows: Sequence[ProblemRow]) -> list[TextRow]:
        """Return each problem that has a plan."""
        return [text for row in rows if (text := self._text(row)) is not None]

    def _text(self, row: ProblemRow) -> TextRow | None:
        reference = self._domains[row.domain]
        loaded, rng = loaded_domain(reference), row_rng(self._seed, "text", row.problem_id)
        task = PlanningTask(loaded.domain, parse_problem(row.problem_pddl, loaded.domain))
        problem = under_other_names(task, self._names, rng)[1].problem
        writer = FormalisationWriter(loaded, self._formalisation)
        text = writer.text(problem, rng, level=row.level)
        example = writer.example(row.problem_id, row.problem_id, problem, text)
        answer = parse_problem(example.response, loaded.domain)
        plan = solve_sorted(loaded.domain, answer, self._planner.solve).plan
        if plan is None:
            return None
        return TextRow(row.problem_id, reference, row.level, row.split, example.prompt, example.response, plan, text)

    def close(self) -> None:
        """End the planner."""
        self._planner.close()


class ReferenceSolver:
    """Solves the problems of texts that were not written here.

    Args:
        config: of the planner.
    """

    def __init__(self, *, config: PlannerConfig) -> None:
        self._planner = Judges(JudgingConfig(planner=config))

    def __call__(self, rows: Sequence[TextRow]) -> list[TextRow]:
        """Return each text whose problem has a plan, with it."""
        return [replace(row, plan=plan) for row in rows if (plan := self._plan(row)) is not None]

    def _plan(self, row: TextRow) -> tuple[str, ...] | None:
        domain = domain_of(row.domain)
        return solve_sorted(domain, parse_problem(row.problem_pddl, domain), self._planner.solve).plan

    def close(self) -> None:
        """End the planner."""
        self._planner.close()


class TextExampleWriter:
    """Writes examples that ask for problems by texts, or by the same texts for their plans.

    Args:
        formalisation: how texts are written and asked about.
        kind: `FORMALISE` or `PLAN_FROM_TEXT`. An empty plan is no example: no reader tells it from no answer.
        texts: of each problem.
        names: objects' names; none keeps those of the problems.
        seed: of the run.
    """

    def __init__(
        self, *, formalisation: FormalisationConfig, kind: ExampleKind, texts: int, names: Sequence[str], seed: int
    ) -> None:
        self._formalisation, self._texts, self._names, self._seed = formalisation, texts, tuple(names), seed
        self._kind = kind

    def __call__(self, rows: Sequence[TextRow]) -> list[ExampleRow]:
        """Return the examples of each problem."""
        return [example for row in rows for example in self._examples(row)]

    def _examples(self, row: TextRow) -> Iterator[ExampleRow]:
        loaded = loaded_domain(row.domain)
        writer, problem = (
            FormalisationWriter(loaded, self._formalisation),
            parse_problem(row.problem_pddl, loaded.domain),
        )
        drawn = {"n_renamings": self._texts, "seed": self._seed}
        if self._kind is ExampleKind.FORMALISE:
            yield from writer.renamed_examples(row.problem_id, problem, self._names, **drawn)
        elif row.plan:
            plan = [parse_step(step) for step in row.plan]
            yield from writer.plan_examples(row.problem_id, problem, plan, self._names, **drawn)


class Perturber:
    """Draws problems with one mistake and proves what each amounts to.

    Args:
        config: what is told of them.
        rendering: of the answers that they stand for.
        perturbations: that are drawn among.
        draws: of each problem, by its split, of as many different perturbations; a fraction is drawn. None takes all.
        seed: of the run; what is drawn depends on it, on the problem and on the perturbation alone.
    """

    def __init__(
        self,
        *,
        config: JudgingConfig,
        rendering: FormalRendering,
        perturbations: Sequence[Perturbation],
        draws: Mapping[str, float] | None = None,
        seed: int,
    ) -> None:
        self._judges, self._perturbations, self._seed = Judges(config), tuple(perturbations), seed
        self._draws, self._rendering = draws, rendering

    def __call__(self, rows: Sequence[TextRow]) -> list[PerturbedRow]:
        """Return one problem for each perturbation that a draw gave, of each row."""
        return [perturbed for row in rows for perturbed in self._perturbed(row)]

    def _perturbed(self, row: TextRow) -> Iterator[PerturbedRow]:
        kinds = self._kinds_for(row)
        if not kinds:
            return
        domain = domain_of(row.domain)
        reference = Reference(parse_problem(row.problem_pddl, domain), row.plan)
        task, judge = PlanningTask(domain, reference.problem), self._judges.of(row.domain)
        for perturbation in kinds:
            text = perturb(task, perturbation, row_rng(self._seed, "perturb", row.problem_id, perturbation))
            if text is not None:
                text = rendered(text, reference.problem, row.text, self._rendering)
                judged = judge.judge(text, reference, text=row.text)
                name, fault = f"{row.problem_id}-{perturbation}", fault_of(judged, reference)
                yield PerturbedRow(name, row.problem_id, perturbation, fault, text, judged.feedback)

    def _kinds_for(self, row: TextRow) -> Sequence[Perturbation]:
        if self._draws is None:
            return self._perturbations
        rng, wanted = row_rng(self._seed, "perturbations of", row.problem_id), self._draws.get(row.split, 0.0)
        count = int(wanted) + (rng.random() < wanted % 1)
        return rng.sample(self._perturbations, min(count, len(self._perturbations)))

    def close(self) -> None:
        """End the planner."""
        self._judges.close()


class AnswerJudge:
    """Judges answers to texts, problem by problem.

    Args:
        config: what is looked for.
    """

    def __init__(self, *, config: JudgingConfig) -> None:
        self._judges = Judges(config)

    def __call__(self, rows: Sequence[AnsweredTextRow]) -> list[FormalisedRow]:
        """Return the judgement of every answer."""
        return [judged for row in rows for judged in self._judged(row)]

    def _judged(self, row: AnsweredTextRow) -> Iterator[FormalisedRow]:
        domain = domain_of(row.domain)
        reference, judge = Reference(parse_problem(row.problem_pddl, domain), row.plan), self._judges.of(row.domain)
        for answer in row.completions:
            judged = judge.judge(answer.completion, reference, text=row.text)
            yield formalised_row(answer, row.problem_id, judged, reference)

    def close(self) -> None:
        """End the planner."""
        self._judges.close()


def formalised_row(answer: CompletionRow, problem_id: str, judged: Judgement, reference: Reference) -> FormalisedRow:
    """Return the judgement of one answer as a row."""
    compared = judged.comparison
    return FormalisedRow(
        rollout_id=answer.rollout_id,
        problem_id=problem_id,
        iteration=answer.iteration,
        policy_version=answer.policy_version,
        readability=judged.readability,
        keeps_contract=judged.keeps_contract,
        problem_pddl=judged.problem_pddl or answer.completion,
        codes=judged.codes,
        feedback=judged.feedback,
        status=judged.status,
        plan=judged.plan,
        reference_plan=reference.plan,
        atom_similarity=judged.atom_similarity or 0.0,
        is_consistent=bool(judged.is_consistent),
        outcome=None if compared is None else compared.outcome,
        reason="" if compared is None else compared.reason,
        differences=() if compared is None else tuple(map(str, compared.differences)),
        has_task_success=bool(judged.has_task_success),
        fault=fault_of(judged, reference),
    )
