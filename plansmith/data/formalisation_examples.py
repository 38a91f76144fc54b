"""Problems in words, and supervised examples that ask for their PDDL."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plansmith.config.formalisation import FormalisationConfig
from plansmith.data.examples import under_other_names
from plansmith.data.rows import ExampleKind, ExampleRow
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Problem
from plansmith.problems.library import PlanningDomain
from plansmith.text.formalisation import formal_answer, formalisation_prompt
from plansmith.text.natural_language import problem_text

MANY_PHRASINGS = 1000
"""Numbers that a phrasing is drawn among: every frame and phrasing is among them about as often."""


@dataclass(frozen=True, slots=True)
class FormalisationWriter:
    """Says the problems of one domain in words and asks for their PDDL."""

    loaded: PlanningDomain
    config: FormalisationConfig

    def text(self, problem: Problem, rng: random.Random) -> str:
        """Return a problem in words, its frame and phrasings drawn.

        Raises:
            BadInputError: the domain has no phrases, or the problem cannot be said in words; see `problem_text`.
        """
        phrasing, mixing = rng.randrange(MANY_PHRASINGS), rng if self.config.phrasing == "mixed" else None
        return problem_text(self.loaded.domain, self.loaded.needed_phrases(), problem, phrasing=phrasing, mixing=mixing)

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
            response=formal_answer(domain, self.loaded.needed_phrases(), problem, text),
        )

    def renamed_examples(
        self, problem_id: str, problem: Problem, names: Sequence[str], *, n_renamings: int, seed: int
    ) -> Iterator[ExampleRow]:
        """Yield a problem each time in other words and under other object names, if any are given."""
        task = PlanningTask(self.loaded.domain, problem)
        for copy in range(n_renamings):
            rng = random.Random(f"{seed} {problem_id} formalise {copy}")
            renamed, example_id = under_other_names(task, names, rng)[1].problem, f"{problem_id}-text-{copy:03d}"
            yield self.example(example_id, problem_id, renamed, self.text(renamed, rng))
