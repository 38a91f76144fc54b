"""Ray workers about problems in words: what they read, draw and prove; which problems, the pipeline decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from plansmith.config.formalisation import FormalisationConfig
from plansmith.config.planner import PlannerConfig
from plansmith.data.examples import under_other_names
from plansmith.data.formalisation_examples import FormalisationWriter
from plansmith.data.rows import PerturbedRow, ProblemRow, TextRow
from plansmith.errors import PlannerCrashError
from plansmith.judging.formalisation import FormalisationJudge, Reference, fault_of, solve_sorted
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain
from plansmith.pddl.parser import parse_problem
from plansmith.planners import FastDownward, PlannerResult, PlannerStatus
from plansmith.planners.goal_questions import goal_questions
from plansmith.problems.library import load_domain
from plansmith.problems.perturbation import Perturbation, perturb
from plansmith.stages import row_rng


class Judges:
    """A judge for each domain, all with one warm planner, which is started with the first question."""

    def __init__(self, config: PlannerConfig) -> None:
        self._config, self._judges = config, dict[str, FormalisationJudge]()

    @cached_property
    def _planner(self) -> FastDownward:
        return FastDownward(self._config)

    def of(self, reference: str, domain: Domain) -> FormalisationJudge:
        """Return the judge of a domain, which is known by what it is loaded by."""
        if reference not in self._judges:
            self._judges[reference] = FormalisationJudge(domain, self.solve, goal_questions(self._planner, domain))
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
        self._planner = Judges(config)
        self._formalisation, self._domains, self._names, self._seed = formalisation, domains, tuple(names), seed

    def __call__(self, rows: Sequence[ProblemRow]) -> list[TextRow]:
        """Return each problem that has a plan."""
        return [text for row in rows if (text := self._text(row)) is not None]

    def _text(self, row: ProblemRow) -> TextRow | None:
        reference = self._domains[row.domain]
        loaded, rng = load_domain(reference), row_rng(self._seed, "text", row.problem_id)
        task = PlanningTask(loaded.domain, parse_problem(row.problem_pddl, loaded.domain))
        problem = under_other_names(task, self._names, rng)[1].problem
        writer = FormalisationWriter(loaded, self._formalisation)
        example = writer.example(row.problem_id, row.problem_id, problem, writer.text(problem, rng))
        answer = parse_problem(example.response, loaded.domain)
        plan = solve_sorted(loaded.domain, answer, self._planner.solve).plan
        if plan is None:
            return None
        return TextRow(row.problem_id, reference, row.level, row.split, example.prompt, example.response, plan)

    def close(self) -> None:
        """End the planner."""
        self._planner.close()


class Perturber:
    """Draws problems with one mistake and proves what each amounts to.

    Args:
        config: of the planner.
        perturbations: that are drawn, one after the other.
        seed: of the run; what is drawn depends on it, on the problem and on the perturbation alone.
    """

    def __init__(self, *, config: PlannerConfig, perturbations: Sequence[Perturbation], seed: int) -> None:
        self._judges, self._perturbations, self._seed = Judges(config), tuple(perturbations), seed

    def __call__(self, rows: Sequence[TextRow]) -> list[PerturbedRow]:
        """Return one problem for each perturbation that a draw gave, of each row."""
        return [perturbed for row in rows for perturbed in self._perturbed(row)]

    def _perturbed(self, row: TextRow) -> Iterator[PerturbedRow]:
        domain = load_domain(row.domain).domain
        reference = Reference(parse_problem(row.problem_pddl, domain), row.plan)
        task, judge = PlanningTask(domain, reference.problem), self._judges.of(row.domain, domain)
        for perturbation in self._perturbations:
            text = perturb(task, perturbation, row_rng(self._seed, "perturb", row.problem_id, perturbation))
            if text is not None:
                fault = fault_of(judge.judge(text, reference), reference)
                name = f"{row.problem_id}-{perturbation}"
                yield PerturbedRow(name, row.problem_id, perturbation, fault, text)

    def close(self) -> None:
        """End the planner."""
        self._judges.close()
