"""Problems in words, and supervised examples that ask for their PDDL, or for their plans."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plansmith.config.formalisation import FormalisationConfig
from plansmith.data.examples import under_other_names
from plansmith.data.rows import ExampleKind, ExampleRow
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep, Problem
from plansmith.problems.library import PlanningDomain
from plansmith.problems.renaming import rename_plan
from plansmith.text.formalisation import formal_answer, formalisation_prompt, plan_answer, plan_prompt
from plansmith.text.natural_language import problem_text

MANY_PHRASINGS = 1000
"""Numbers that a phrasing is drawn among: every frame and phrasing is among them about as often."""


@dataclass(frozen=True, slots=True)
class FormalisationWriter:
    """Says the problems of one domain in words and asks for their PDDL."""

    loaded: PlanningDomain
    config: FormalisationConfig

    def text(self, problem: Problem, rng: random.Random, *, level: str = "") -> str:
        """Return a problem in words, its frame and phrasings drawn among those that its level may have.

        Raises:
            BadInputError: the domain has no phrases, or one of each fact where one is to be kept apart, or the problem
                cannot be said in words; see `problem_text`.
        """
        phrases, reworded = self.loaded.needed_phrases(), self.config.reworded
        if reworded:
            phrases = phrases.divided(is_last=level in reworded)
        phrasing, mixing = rng.randrange(MANY_PHRASINGS), rng if self.config.phrasing == "mixed" else None
        return problem_text(self.loaded.domain, phrases, problem, phrasing=phrasing, mixing=mixing)

    def example(self, example_id: str, problem_id: str, problem: Problem, text: str) -> ExampleRow:
        """Return the example that asks for a problem by its text.

        Raises:
            BadInputError: the text cannot be read back.
        """
        domain = self.loaded.domain
        return ExampleRow(
            example_id=example_id,
            problem_id=problem_id,
            kind=ExampleKind.FORMALISE,
            corruption=None,
            prompt=formalisation_prompt(domain, text, self.config),
            response=formal_answer(
                domain, self.loaded.needed_phrases(), problem, text, rendering=self.config.rendering
            ),
        )

    def renamed_examples(
        self, problem_id: str, problem: Problem, names: Sequence[str], *, n_renamings: int, seed: int
    ) -> Iterator[ExampleRow]:
        """Yield a problem each time in other words and under other object names, if any are given."""
        for copy, (_, renamed, text) in enumerate(self._said(problem_id, problem, names, n_renamings, seed)):
            yield self.example(f"{problem_id}-text-{copy:03d}", problem_id, renamed, text)

    def plan_examples(
        self,
        problem_id: str,
        problem: Problem,
        plan: Sequence[PlanStep],
        names: Sequence[str],
        *,
        n_renamings: int,
        seed: int,
    ) -> Iterator[ExampleRow]:
        """Yield the texts of `renamed_examples`, each answered by the problem's plan under the names of the text."""
        for copy, (renaming, _, text) in enumerate(self._said(problem_id, problem, names, n_renamings, seed)):
            yield ExampleRow(
                example_id=f"{problem_id}-plan-{copy:03d}",
                problem_id=problem_id,
                kind=ExampleKind.PLAN_FROM_TEXT,
                corruption=None,
                prompt=plan_prompt(self.loaded.domain, text, self.config),
                response=plan_answer(rename_plan(plan, renaming)),
            )

    def _said(
        self, problem_id: str, problem: Problem, names: Sequence[str], n_renamings: int, seed: int
    ) -> Iterator[tuple[dict[str, str], Problem, str]]:
        """Yield each renaming of the objects with the problem under it, and that in words."""
        task = PlanningTask(self.loaded.domain, problem)
        for copy in range(n_renamings):
            rng = random.Random(f"{seed} {problem_id} formalise {copy}")
            renaming, renamed = under_other_names(task, names, rng)
            yield renaming, renamed.problem, self.text(renamed.problem, rng)
