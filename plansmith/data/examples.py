"""Supervised examples from solved problems: chains of thought, explained plans, and which corruptions to draw."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from plansmith.config.chains import ChainConfig
from plansmith.data.rows import CorruptedPlanRow, ExampleKind, ExampleRow, SolvedProblemRow
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.parser import parse_step
from plansmith.problems.corruption import Corruption, corrupt_plan, true_claims
from plansmith.problems.mistakes import draw_mistake
from plansmith.problems.noise import Noise, noisy_problem
from plansmith.problems.renaming import random_renaming, rename_plan, rename_problem
from plansmith.text.branches import with_branches
from plansmith.text.chains import (
    Chain,
    ChainStep,
    abandoned_chain,
    chain_of_plan,
    continued_chain,
    recovering_chain,
    state_before,
)
from plansmith.text.explanations import Attempt, ClaimedPlan, FeedbackKind, explain
from plansmith.text.full_reader import read_literals
from plansmith.text.rendering import Rendering

STEPS_ALONE = ChainConfig()


def solved_task(row: SolvedProblemRow) -> tuple[PlanningTask, tuple[PlanStep, ...]]:
    """Return the task and the plan of a row."""
    return PlanningTask.from_text(row.domain_pddl, row.problem_pddl), tuple(parse_step(step) for step in row.plan)


def chain_examples(
    row: SolvedProblemRow,
    rendering: Rendering,
    names: Sequence[str],
    *,
    n_renamings: int,
    seed: int,
    chains: ChainConfig = STEPS_ALONE,
    noise: Noise | None = None,
) -> Iterator[ExampleRow]:
    """Yield the plan of a row as chains of thought, each under other object names, if any are given.

    With noise the prompt tells a disturbed state, and the chain always begins with the true one.
    """
    told = {"n_alternatives": chains.alternatives, "n_backtracks": chains.backtracks}
    key, tells_start = f"{seed} {row.problem_id}", chains.tells_start or noise is not None
    for copy, (task, chain) in enumerate(_renamed_chains(row, names, n_renamings, key, tells_start=tells_start)):
        shown, whole = task, with_branches(task, chain, **told) if any(told.values()) else chain
        if noise is not None:
            rng = random.Random(f"{seed} {row.problem_id} noise {copy}")
            seen = noisy_problem(
                task.domain, task.problem, rate=rng.choice(noise.rates), mixture=noise.mixture, rng=rng
            )
            shown = PlanningTask(task.domain, seen)
        yield ExampleRow(
            example_id=f"{row.problem_id}-{copy:03d}",
            problem_id=row.problem_id,
            kind=ExampleKind.PLAN_CHAIN,
            corruption=None,
            prompt=rendering.plan_prompt(shown),
            response=rendering.write_chain(whole),
        )


def opening_examples(
    row: SolvedProblemRow,
    rendering: Rendering,
    names: Sequence[str],
    *,
    n_renamings: int,
    n_steps: int,
    seed: int,
    tells_start: bool = False,
) -> Iterator[ExampleRow]:
    """Yield the first steps of a plan's chain, each time under other object names; nothing for a plan that has no more.

    Nothing ends there: no end mark is to be learnt after the response.
    """
    if len(row.plan) <= n_steps:
        return
    key = f"{seed} {row.problem_id} opening"
    for copy, (task, chain) in enumerate(_renamed_chains(row, names, n_renamings, key, tells_start=tells_start)):
        yield ExampleRow(
            example_id=f"{row.problem_id}-opening-{copy:03d}",
            problem_id=row.problem_id,
            kind=ExampleKind.PLAN_OPENING,
            corruption=None,
            prompt=rendering.plan_prompt(task),
            response=rendering.write_beginning(chain, n_steps),
        )


def _renamed_chains(
    row: SolvedProblemRow, names: Sequence[str], n_renamings: int, key: str, *, tells_start: bool
) -> Iterator[tuple[PlanningTask, Chain]]:
    """Yield the problem of a row under other object names, drawn by `key` and the copy's number, with its chain."""
    task, plan = solved_task(row)
    for copy in range(n_renamings):
        renaming, renamed = under_other_names(task, names, random.Random(f"{key} {copy}"))
        yield renamed, chain_of_plan(renamed, rename_plan(plan, renaming), tells_start=tells_start)


def mistake_example(
    row: SolvedProblemRow, rendering: Rendering, names: Sequence[str], *, seed: int, tells_start: bool = False
) -> ExampleRow | None:
    """Return the chain of a row's plan with one mistake, which is given and not taught; None where no draw gave one.

    Of four such chains two go on after an action that cannot be applied: taught are the check that says so and what
    follows. One ends there, and one ends a step or two before the goal: taught is the verdict alone, because the words
    before it would teach to stop.
    """
    key = f"{seed} {row.problem_id} mistake"
    rng, ((task, chain),) = random.Random(key), _renamed_chains(row, names, 1, key, tells_start=tells_start)
    if rng.random() < 1 / 4:
        beginning, text = _up_to_verdict(abandoned_chain(task, chain, len(chain.steps) - rng.choice((1, 2))), rendering)
    else:
        place = rng.randrange(len(chain.steps))
        state = task.state_of(state_before(task, chain, place))
        mistake = draw_mistake(task, state, chain.steps[place].action, rng)
        if mistake is None:
            return None
        chain = recovering_chain(task, chain, place, mistake)
        if rng.random() < 1 / 3:
            beginning, text = _up_to_verdict(abandoned_chain(task, chain, place + 1), rendering)
        else:
            beginning, text = _up_to_check(chain, place, rendering)
    return ExampleRow(
        example_id=f"{row.problem_id}-mistake",
        problem_id=row.problem_id,
        kind=ExampleKind.CHAIN_WITH_MISTAKE,
        corruption=None,
        prompt=rendering.plan_prompt(task),
        beginning=beginning,
        response=text.removeprefix(beginning),
    )


def _up_to_verdict(chain: Chain, rendering: Rendering) -> tuple[str, str]:
    """Return the text of a chain without its verdict, and whole."""
    text = rendering.write_chain(chain)
    return text.removesuffix(chain.verdict or "").rstrip(), text


def _up_to_check(chain: Chain, place: int, rendering: Rendering) -> tuple[str, str]:
    """Return the text of a chain up to the action of the step at an index, and whole."""
    beginning = rendering.write_beginning(chain, place + 1).removesuffix(rendering.write_outcome(chain.steps[place]))
    return beginning.rstrip(), rendering.write_chain(chain)


def valid_explanation(row: SolvedProblemRow, rendering: Rendering, *, seed: int) -> ExampleRow:
    """Return the plan of a row explained; half of them show the states, as the corrupted ones do."""
    task, plan = solved_task(row)
    rng = random.Random(f"{seed} {row.problem_id} valid")
    claims = true_claims(task, plan) if rng.random() < 0.5 else ()
    shown = ClaimedPlan(plan, claims)
    return ExampleRow(
        example_id=f"{row.problem_id}-valid",
        problem_id=row.problem_id,
        kind=ExampleKind.EXPLAIN_VALID,
        corruption=None,
        prompt=rendering.explain_prompt(task, shown),
        response=rendering.write_explanation(explain(task, shown)),
    )


def corrupted_row(row: SolvedProblemRow, corruption: Corruption, *, seed: int) -> CorruptedPlanRow | None:
    """Return the plan of a row corrupted, or None where no draw gave exactly this error."""
    task, plan = solved_task(row)
    shown = corrupt_plan(task, plan, corruption, random.Random(f"{seed} {row.problem_id} {corruption}"))
    if shown is None:
        return None
    return CorruptedPlanRow(
        corrupted_id=f"{row.problem_id}-{corruption}",
        problem_id=row.problem_id,
        corruption=corruption,
        domain_pddl=row.domain_pddl,
        problem_pddl=row.problem_pddl,
        plan=tuple(str(step) for step in shown.plan),
        claims=tuple(" ".join(map(str, claim)) for claim in shown.claims),
    )


def invalid_explanation(row: CorruptedPlanRow, rendering: Rendering) -> ExampleRow:
    """Return a corrupted plan explained up to its first error."""
    task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
    claims = tuple(tuple(literal.atom for literal in read_literals(claim)) for claim in row.claims)
    shown = ClaimedPlan(tuple(parse_step(step) for step in row.plan), claims)
    return ExampleRow(
        example_id=row.corrupted_id,
        problem_id=row.problem_id,
        kind=ExampleKind.EXPLAIN_INVALID,
        corruption=row.corruption,
        prompt=rendering.explain_prompt(task, shown),
        response=rendering.write_explanation(explain(task, shown)),
    )


def continuation_examples(
    rollout_id: str,
    problem_id: str,
    task: PlanningTask,
    kept: Sequence[ChainStep],
    plan: Sequence[PlanStep],
    rendering: Rendering,
    names: Sequence[str],
    *,
    n_renamings: int,
    seed: int,
    tells_start: bool = False,
) -> Iterator[ExampleRow]:
    """Yield a failed attempt, its sound steps as the beginning of the answer, continued by a plan from their end.

    What is taught is the choice at the policy's own states (DAgger: Ross, Gordon and Bagnell, AISTATS 2011).

    Args:
        kept: the attempt's sound steps, see `plansmith.judging.chains.sound_steps`.
        plan: from the state after them to the goal.
    """
    for copy in range(n_renamings):
        renaming, renamed = under_other_names(task, names, random.Random(f"{seed} {rollout_id} {copy}"))
        steps = [_rename_step(step, renaming) for step in kept]
        rest = rename_plan(plan, renaming)
        beginning, response = _continued(renamed, steps, rest, rendering, tells_start=tells_start)
        yield ExampleRow(
            example_id=f"{rollout_id}-continued-{len(kept):03d}-{copy:03d}",
            problem_id=problem_id,
            kind=ExampleKind.CONTINUE_PLAN,
            corruption=None,
            prompt=rendering.plan_prompt(renamed),
            beginning=beginning,
            response=response,
        )


def _continued(
    task: PlanningTask, kept: Sequence[ChainStep], plan: Sequence[PlanStep], rendering: Rendering, *, tells_start: bool
) -> tuple[str, str]:
    """Return the text up to the end of the kept steps, and what follows it in the chain that goes on with a plan."""
    chain = continued_chain(task, kept, plan, tells_start=tells_start)
    beginning = rendering.write_beginning(chain, len(kept)) if kept else ""
    text = rendering.write_chain(chain)
    return beginning, text.removeprefix(beginning)


def under_other_names(
    task: PlanningTask, names: Sequence[str], rng: random.Random
) -> tuple[dict[str, str], PlanningTask]:
    """Return a task with its objects under some of `names`, or their own where there are none, and its facts shuffled.

    The names of constants are not given away.
    """
    if not names:
        return {}, PlanningTask(task.domain, rename_problem(task.problem, {}, rng))
    constants = {constant.name for constant in task.domain.constants}
    renaming = random_renaming(task.problem, [name for name in names if name not in constants], rng)
    return renaming, PlanningTask(task.domain, rename_problem(task.problem, renaming, rng))


def _rename_step(step: ChainStep, renaming: dict[str, str]) -> ChainStep:
    (action,) = rename_plan([step.action], renaming)
    purpose = tuple(condition.substitute(renaming) for condition in step.purpose)
    support = tuple(tuple(item.substitute(renaming) for item in conditions) for conditions in step.support)
    return replace(step, action=action, purpose=purpose, support=support)


def correction_example(
    rollout_id: str, row: SolvedProblemRow, attempt: str, rendering: Rendering, *, tells_start: bool = False
) -> ExampleRow:
    """Return a failed attempt with its feedback as prompt, and the planner's plan as the corrected chain.

    Args:
        rollout_id: of the attempt.
        row: the problem that was tried.
        attempt: as `Rendering.write_attempt` tells it.
        rendering: of the attempt.
    """
    task, plan = solved_task(row)
    return ExampleRow(
        example_id=f"{rollout_id}-corrected",
        problem_id=row.problem_id,
        kind=ExampleKind.CORRECT_WITH_FEEDBACK,
        corruption=None,
        prompt=rendering.correct_prompt(task, attempt),
        response=rendering.write_chain(chain_of_plan(task, plan, tells_start=tells_start)),
    )


def mending_example(
    rollout_id: str,
    row: SolvedProblemRow,
    attempt: str,
    kept: Sequence[ChainStep],
    plan: Sequence[PlanStep],
    rendering: Rendering,
    *,
    tells_start: bool = False,
) -> ExampleRow:
    """Return a failed attempt with its feedback as prompt, and its sound steps as the beginning of the answer.

    What is learnt is what follows them: the choice that the feedback is about.

    Args:
        rollout_id: of the attempt.
        row: the problem that was tried.
        attempt: as `Rendering.write_attempt` tells it.
        kept: the attempt's sound steps, one at least; without any this is `correction_example`.
        plan: from the state after them to the goal.
        rendering: of the attempt.
    """
    task, _ = solved_task(row)
    beginning, response = _continued(task, kept, plan, rendering, tells_start=tells_start)
    return ExampleRow(
        example_id=f"{rollout_id}-mended",
        problem_id=row.problem_id,
        kind=ExampleKind.CORRECT_WITH_FEEDBACK,
        corruption=None,
        prompt=rendering.correct_prompt(task, attempt),
        beginning=beginning,
        response=response,
    )


def confirmation_example(
    rollout_id: str, row: SolvedProblemRow, attempt: Attempt, rendering: Rendering, feedback: FeedbackKind
) -> ExampleRow:
    """Return a valid attempt with its feedback as prompt, and its explanation (appendix B.2.3).

    Args:
        rollout_id: of the attempt.
        row: the problem that was tried.
        attempt: its plan, each step marked valid.
        rendering: of the attempt.
        feedback: what the attempt is handed back with.
    """
    task, _ = solved_task(row)
    return ExampleRow(
        example_id=f"{rollout_id}-confirmed",
        problem_id=row.problem_id,
        kind=ExampleKind.CONFIRM_WITH_FEEDBACK,
        corruption=None,
        prompt=rendering.correct_prompt(task, rendering.write_attempt(attempt, feedback)),
        response=rendering.write_explanation(explain(task, ClaimedPlan(attempt.plan))),
    )
