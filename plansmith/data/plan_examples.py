"""Examples that teach plans directly: domain and problem as PDDL, answered by a plan, with names shown or hidden.

Source: "On the Generalization Gap in LLM Planning" (arXiv 2601.14456), section 4: the tuples of its variants B, v1 and
v2. Not here: how plans look (`plansmith.text.plans`), what hides names (`plansmith.text.anonymisation`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from plansmith.config.dataset import PlanExamplesConfig, SymbolPoolConfig
from plansmith.data.rows import DatasetPlanRow, ProblemRow, SolvedProblemRow
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.problems.renaming import exchanged_names, rename_plan, rename_problem
from plansmith.text.anonymisation import anonymise
from plansmith.text.plans import plan_writer
from plansmith.text.rendering import PLAN_PROMPTS
from plansmith.text.told import told_chain


@dataclass(frozen=True, slots=True)
class PlanExample:
    """A tuple of domain, problem and plan; ``position`` in [0, 1) is its place in the order of training."""

    example_id: str
    is_anonymised: bool
    position: float
    prompt: str
    response: str


def plan_examples(
    row: SolvedProblemRow | DatasetPlanRow, config: PlanExamplesConfig, *, seed: int
) -> Iterator[PlanExample]:
    """Yield a solved problem as a tuple, once for each copy.

    Copy c of C lies in the c-th C-th of the order (section 4.1). No worker knows how many tuples there will be, so a
    position drawn by the tuple's id stands for the paper's (i - 1) / (N - 1), and is the probability of being
    anonymised.
    """
    task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
    plan = tuple(parse_step(step) for step in row.plan)
    prompt = PLAN_PROMPTS[config.prompts]
    for copy in range(config.copies):
        rng = _rng(row.problem_id, copy, seed)
        position = _position(rng, copy, config.copies)
        is_hidden = rng.random() < {"never": 0.0, "curriculum": position, "always": 1.0}[config.anonymise]
        asked, steps = task, plan
        if copy and config.varies:
            names = exchanged_names(task.problem, rng)
            asked = PlanningTask(task.domain, rename_problem(task.problem, names, rng))
            steps = rename_plan(plan, names)
        if is_hidden:
            of_domain = _of_domain(row.domain_pddl, copy, seed) if config.draws_names_for == "domain" else rng
            hidden = anonymise(task.domain, asked.problem, steps, of_domain, config.symbols, objects_rng=rng)
            asked, steps = PlanningTask(hidden.domain, hidden.problem), hidden.plan
        answer = told_chain(asked, steps) if config.plan_format == "chain" else plan_writer(config.plan_format)(steps)
        yield PlanExample(f"{row.problem_id}-plan-{copy}", is_hidden, position, prompt(asked), answer)


def in_order_of_training(example_ids: Sequence[str], copies: int, *, seed: int) -> list[int]:
    """Return the places of examples among these, by `PlanExample.position`."""

    def position(example_id: str) -> float:
        problem_id, copy = example_id.rsplit("-plan-", 1)
        return _position(_rng(problem_id, int(copy), seed), int(copy), copies)

    positions = [position(example_id) for example_id in example_ids]
    return sorted(range(len(example_ids)), key=lambda place: (positions[place], example_ids[place]))


def anonymised_problem(row: ProblemRow, *, seed: int, symbols: SymbolPoolConfig | None = None) -> ProblemRow:
    """Return a problem with its names and its domain's hidden, drawn by its id; verdicts on plans stay the same.

    Raises:
        BadInputError: more names than symbols, where there is a pool of these.
    """
    task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
    hidden = anonymise(task.domain, task.problem, (), random.Random(f"{seed} {row.problem_id} hidden"), symbols)
    return replace(row, domain_pddl=print_domain(hidden.domain), problem_pddl=print_problem(hidden.problem))


def _rng(problem_id: str, copy: int, seed: int) -> random.Random:
    return random.Random(f"{seed} {problem_id} plan {copy}")


def _of_domain(domain_pddl: str, copy: int, seed: int) -> random.Random:
    return random.Random(f"{seed} {domain_pddl} names {copy}")


def _position(rng: random.Random, copy: int, copies: int) -> float:
    return (copy + rng.random()) / copies
